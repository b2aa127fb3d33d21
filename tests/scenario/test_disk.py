"""The worker's disk tier: what it keeps, finds again, and refuses."""
import os
import random
import shutil
import signal

import wire
from test_worker import BLOCK, BLOCK_BYTES, WorkerCase

MIB = 16  # of the slab: hundreds of blocks


class DiskCase(WorkerCase):
    def short_name(self):
        return self.id().replace('test_disk.', '')

    def path(self, name='slab'):
        return os.path.join(self.folder.name, name)

    def disk_worker(self, name='w', role='both', *more, slab='slab', mib=MIB):
        return self.worker(name, role, '--disk-path', self.path(slab),
                           '--disk-mib', str(mib), *more)

    def written(self, link, n):
        """Waits until n blocks are on disk; returns their keys."""
        link.until(f'{n} blocks on disk',
                   lambda _: len(link.held(wire.ON_DISK)) == n)
        return link.held(wire.ON_DISK)

    def kill(self, link):
        link.process.send_signal(signal.SIGKILL)
        link.process.wait()
        link.wait_closed()


def prompt(seed, n=200):
    rng = random.Random(seed)
    return [rng.randrange(256) for _ in range(n)]


class Keeping(DiskCase):
    def test_reports(self):
        """Each held block gets to disk, in tier 2 and in STATUS."""
        w = self.disk_worker()
        self.assertGreater(w.hello['disk_blocks'], 400)
        self.assertLess(w.hello['disk_blocks'], MIB * (1 << 20) // BLOCK_BYTES)
        for rid in range(1, 6):
            w.prefill(rid, prompt(rid))
            w.prefill_done(rid)
        self.written(w, 5 * (200 // BLOCK))
        self.assertEqual(w.held(wire.ON_DISK), w.held())
        self.assertEqual(
            w.status(lambda s: s['disk_used'] == 60)['pinned'], 0)
        self.leave(w)

    def test_without(self):
        w = self.worker('w', 'both')
        self.assertEqual(w.hello['disk_blocks'], 0)
        w.prefill(1, prompt(1))
        w.prefill_done(1)
        self.assertEqual(w.status(lambda s: s['used'] > 0)['disk_used'], 0)
        self.assertEqual(w.held(wire.ON_DISK), set())
        self.leave(w)

    def test_eviction(self):
        """Disk keeps what memory had no room for; then it evicts as well."""
        w = self.disk_worker('w', 'both', '--kv-blocks', '30', mib=3)
        slots = w.hello['disk_blocks']
        self.assertGreater(slots, 60)
        for rid in range(1, 20):
            w.prefill(rid, prompt(rid))
            w.prefill_done(rid)
            self.idle(w)
        self.assertLessEqual(len(w.held()), 30)
        self.assertGreater(len(w.held(wire.ON_DISK)), slots - 12)
        self.assertLessEqual(len(w.held(wire.ON_DISK)), slots)
        self.leave(w)

    def test_restart(self):
        """Found again, after SIGTERM and after SIGKILL, and by a conductor
        that is new."""
        w = self.disk_worker()
        for rid in range(1, 6):
            w.prefill(rid, prompt(rid))
            w.prefill_done(rid)
        keys = self.written(w, 60)
        for end in self.leave, self.kill, self.leave:
            end(w)
            w = self.disk_worker()
            self.assertEqual(self.written(w, 60), keys)
            self.assertEqual(w.held(), set())
        w.close()
        again = self.accept()
        again.process = w.process
        self.assertEqual(self.written(again, 60), keys)
        self.leave(again)

    def test_killed_while_writing(self):
        """Whatever was lost is a miss; the rest is right: see the answers of
        the cases below."""
        w = self.disk_worker()
        for round_ in range(4):
            for rid in range(1, 9):
                w.prefill(rid, prompt(10 * round_ + rid, 400))
            w.prefill_done(3)
            self.kill(w)
            w = self.disk_worker()
            w.status(lambda s: True)
        self.leave(w)


class Refusing(DiskCase):
    def refused(self, *words, options=None, status=1):
        process = self.launch('refused', 'both', *(
            options or ['--disk-path', self.path(), '--disk-mib', str(MIB)]))
        self.assertEqual(process.wait(), status)
        for word in words:
            self.assertIn(word, self.log('refused'))

    def test_options(self):
        self.refused('--disk-path FILE needs --disk-mib N', status=2,
                     options=['--disk-path', 'x'])
        self.refused('--disk-mib N needs --disk-path FILE', status=2,
                     options=['--disk-mib', '5'])
        self.refused('--disk-mib 0', status=2,
                     options=['--disk-path', 'x', '--disk-mib', '0'])

    def test_files(self):
        with open(self.path(), 'w', encoding='utf-8') as file:
            file.write('a diary')
        self.refused(self.path(), 'not a slab of KV blocks')
        with open(self.path(), encoding='utf-8') as file:
            self.assertEqual(file.read(), 'a diary')
        os.remove(self.path())
        os.mkdir(self.path())
        self.refused(self.path(), 'no regular file')
        os.rmdir(self.path())
        self.refused('/nowhere/slab', options=[
            '--disk-path', '/nowhere/slab', '--disk-mib', '1'])

    def test_no_space(self):
        """More than the file system has: the sizes are said, and no file is
        left."""
        mib = shutil.disk_usage(self.folder.name).free * 2 >> 20
        self.refused('--disk-path', 'MiB are needed', 'MiB free', options=[
            '--disk-path', self.path(), '--disk-mib', str(mib)])
        self.assertFalse(os.path.exists(self.path()))

    def test_too_small(self):
        self.refused('do not hold one block', options=[
            '--disk-path', self.path(), '--disk-mib', '1', '--block-tokens',
            '512'])

    def test_of_others(self):
        """A slab in use, read-only, or of another model."""
        w = self.disk_worker()
        self.refused('in use by another process')
        self.leave(w)
        os.chmod(self.path(), 0o444)
        self.refused('is read-only')
        os.chmod(self.path(), 0o600)
        same = ['--disk-path', self.path(), '--disk-mib', str(MIB)]
        self.refused('another model', options=[*same, '--seed', '2'])
        self.refused('16 tokens', options=[*same, '--block-tokens', '32'])
        self.refused('was made for', options=[*same[:3], str(2 * MIB)])
        w = self.disk_worker()
        self.leave(w)
