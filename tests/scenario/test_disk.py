"""The worker's disk tier: what it keeps, finds again, and refuses."""
import os
import random
import shutil
import signal
import struct
import time

import wire
from harness import BLOCK_TOKENS, Case, read_file, total, wait_until
from test_worker import BLOCK, BLOCK_BYTES, WorkerCase, prompts

MIB = 16  # of the slab: hundreds of blocks


class DiskCase(WorkerCase):
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

    def test_down_a_tier(self):
        """Where the disk keeps up, what leaves memory is there before: evicted
        blocks, and cold ones that the worker is told to drop; and it is read
        again from there."""
        w = self.disk_worker('w', 'both', '--kv-blocks', '30')
        for rid in range(1, 12):
            w.prefill(rid, prompt(rid))
            w.prefill_done(rid)
            self.written(w, rid * (200 // BLOCK))
            self.assertLessEqual(self.left(w), w.held(wire.ON_DISK))
        n = 200 // BLOCK
        keys = wire.block_keys(prompt(11), BLOCK, 5)
        self.idle(w)
        w.drop(keys[n - 1], n)
        w.until('they have left memory',
                lambda _: not w.held() & set(keys[:n]))
        self.assertLessEqual(set(keys[:n]), w.held(wire.ON_DISK))
        w.prefill(20, prompt(11))
        self.assertEqual(w.prefill_done(20)['disk'], n * BLOCK)
        self.leave(w)

    @staticmethod
    def left(link):
        """Keys that were in memory, and are not any more."""
        with link.changed:
            stored = [p for kind, _, p in link.frames
                      if kind == wire.BLOCKS_STORED and p[0] == wire.HOST]
        return {key for p in stored for key in struct.unpack_from(
            f'<{(len(p) - 13) // 8}Q', p, 13)} - link.held()

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

    def test_more_layers_than_the_model_has(self):
        self.refused('--layers 5: model tiny has 4 layers', status=2,
                     options=['--layers', '5'])

    def test_files(self):
        with open(self.path(), 'w', encoding='utf-8') as file:
            file.write('a diary')
        self.refused(self.path(), 'not a slab of KV blocks')
        self.assertEqual(read_file(self.path()), 'a diary')
        os.remove(self.path())
        os.mkdir(self.path())
        self.refused(self.path(), 'no regular file')
        os.rmdir(self.path())
        self.refused('/nowhere/slab', options=[
            '--disk-path', '/nowhere/slab', '--disk-mib', '1'])

    def test_no_space(self):
        """More than the file system has: the sizes are said, and no file is
        left."""
        twice = shutil.disk_usage(self.folder.name).free * 2 >> 20
        for mib in twice, 100000000:
            self.refused('--disk-path', f'--disk-mib {mib}',
                         f'{mib} MiB are more than', 'may be at most',
                         options=['--disk-path', self.path(), '--disk-mib',
                                  str(mib)])
            self.assertFalse(os.path.exists(self.path()))

    def test_too_small(self):
        self.refused('do not hold one block', 'with its headers',
                     'ask for at least 2 MiB', options=[
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


class Loading(DiskCase):
    """What comes from disk is what was computed."""

    def setUp(self):
        super().setUp()
        seed = int(os.environ.get('CONDUCTOR_SEED', time.time_ns() % 2 ** 32))
        print(f'   CONDUCTOR_SEED={seed}', flush=True)
        self.rng = random.Random(seed)
        self.oracle = self.worker('oracle', 'both')

    def expected(self, rid, tokens, n):
        """Computed in a cache of its own."""
        return self.run_here(self.oracle, rid, tokens, n, key_seed=rid)[0]

    def ask(self, w, rid, tokens, n=4, **more):
        """The answer must be right; returns what PREFILL_DONE said."""
        answer, done = self.run_here(w, rid, tokens, n, **more)
        self.assertEqual(answer, self.expected(rid, tokens, n), done)
        self.assertEqual(done['local'] + done['fetched'] + done['disk'] +
                         done['computed'], len(tokens), done)
        self.assertEqual(done['fetched'], 0)
        self.assertGreaterEqual(done['disk_bytes'],
                                done['disk'] // BLOCK * BLOCK_BYTES)
        w.forget(rid)
        self.oracle.forget(rid)
        return done

    def way(self):
        """A plan for the own disk, or none at all."""
        if self.rng.random() < 0.4:
            return {}
        mode = self.rng.choice((wire.LOAD, wire.BOTH, wire.LAYERWISE))
        return {'mode': mode, 'sources': [(None, 0, self.rng.randrange(1, 40))]}

    def damage(self):
        """Flips bytes all over the file, or cuts it."""
        size = os.path.getsize(self.path())
        if self.rng.random() < 0.3:
            os.truncate(self.path(), self.rng.randrange(4096, size))
            return
        with open(self.path(), 'r+b') as file:
            for _ in range(self.rng.randrange(1, 40)):
                at = self.rng.randrange(size)
                file.seek(at)
                byte = file.read(1)
                file.seek(at)
                file.write(bytes([byte[0] ^ 1 << self.rng.randrange(8)]))

    def test_after_eviction(self):
        """Memory for one prompt, disk for all."""
        w = self.disk_worker('w', 'both', '--kv-blocks', '28')
        for rid in range(1, 10):
            self.assertEqual(self.ask(w, rid, prompt(rid))['disk'], 0)
            self.written(w, rid * (200 // BLOCK))
        # Enough of them for a sample of the disk's rate, however fast it is.
        for rid in range(10, 64):
            done = self.ask(w, rid, prompt(rid % 9 + 1))
            self.assertEqual(done['disk'] + done['local'], 192, done)
            self.assertEqual(done['computed'], 8)
        self.idle(w)
        self.assertGreater(w.status(lambda s: s['disk_rate'])['disk_rate'], 0)
        self.leave(w)

    def test_everything(self):
        """Random prompts that share prefixes: computed, evicted, loaded in
        every mode, with restarts of every kind and damage in between."""
        options = '--kv-blocks', '60', '--log-level', 'warn'
        w = self.disk_worker('w', 'both', *options, mib=8)
        todo = prompts(160, self.rng.randrange(1 << 30))
        n = {'disk': 0, 'local': 0, 'damaged': 0, 'restarts': 0}
        for rid, tokens in enumerate(todo, 1):
            done = self.ask(w, rid, tokens, **self.way())
            n['disk'] += done['disk'] > 0
            n['local'] += done['local'] > 0
            if rid % 16:
                continue
            self.rng.choice((self.leave, self.kill))(w)
            n['restarts'] += 1
            if rid > 80:
                self.damage()
                n['damaged'] += 1
            w = self.disk_worker('w', 'both', *options, mib=8)
        print(f'   of {len(todo)} prompts: {n}', flush=True)
        self.assertGreater(n['disk'], 40)
        self.leave(w)

    def test_damaged(self):
        """Each block on disk is damaged: computed, said in the log, healed."""
        w = self.disk_worker()
        self.ask(w, 1, prompt(1))
        self.written(w, 12)
        self.leave(w)
        with open(self.path(), 'r+b') as file:
            slots = (MIB << 20) - 8192
            slots //= BLOCK_BYTES + 4096
            for slot in range(slots):
                file.seek(8192 + slots * 4096 + slot * BLOCK_BYTES + 100)
                file.write(b'wrong')
        w = self.disk_worker()
        self.assertEqual(self.ask(w, 2, prompt(1))['disk'], 0)
        self.assertIn('do not match their checksum', self.log('w'))
        # Each time the last damaged one is found, dropped and written anew.
        found = []
        for rid in range(3, 20):
            self.written(w, 12)
            self.kill(w)
            w = self.disk_worker()
            found.append(self.ask(w, rid, prompt(1))['disk'])
            if found[-1] == 192:
                break
        self.assertEqual(found[-1], 192, found)
        self.leave(w)

    def test_truncated(self):
        """What was behind the end is not found again, and is counted."""
        w = self.disk_worker()
        self.ask(w, 1, prompt(1))
        self.written(w, 12)
        self.leave(w)
        slots = ((MIB << 20) - 8192) // (BLOCK_BYTES + 4096)
        data = 8192 + slots * 4096
        os.truncate(self.path(), data + 5 * BLOCK_BYTES + 1)
        w = self.disk_worker()
        self.written(w, 5)
        self.assertIn('7 blocks lost', self.log('w'))
        self.assertEqual(self.ask(w, 2, prompt(1))['disk'], 5 * BLOCK)
        self.leave(w)

    def test_cancel_while_loading(self):
        """Requests that go away in the middle leave no pins."""
        w = self.disk_worker('w', 'both', '--kv-blocks', '100', '--load-gbps',
                             '0.2')
        self.ask(w, 1, prompt(1, 800))
        self.written(w, 50)
        self.leave(w)
        w = self.disk_worker('w', 'both', '--kv-blocks', '100', '--load-gbps',
                             '0.2')
        for rid in range(2, 20):
            w.prefill(rid, prompt(1, 800), mode=rid % 3 + wire.LOAD,
                      sources=[(None, 0, 50)])
            time.sleep(0.004 * (rid % 5))
            w.cancel(rid)
        self.idle(w)
        self.assertEqual(self.ask(w, 30, prompt(1, 801))['computed'], 1)
        self.leave(w)

    def test_plan_without_disk(self):
        """A plan that does not name the disk is followed."""
        w = self.disk_worker()
        self.ask(w, 1, prompt(1))
        self.written(w, 12)
        self.leave(w)
        w = self.disk_worker()
        self.assertEqual(
            self.ask(w, 2, prompt(1), mode=wire.COMPUTE)['computed'], 200)
        self.leave(w)


class UnderAConductor(Case):
    def start(self, name, command):
        """Each worker has a slab of its own."""
        if '--name' in command:
            command = [*command, '--disk-path',
                       os.path.join(self.folder, name + '.slab'),
                       '--disk-mib', '64']
        return super().start(name, command)

    def answers(self, cluster):
        out = []
        for seed in range(12):
            reply = cluster.api.complete(prompt(seed, 300), 5, temperature=0)
            self.assertEqual(reply.status, 200, reply.body)
            out.append(reply.body['choices'][0]['text'])
        return out

    def test_restarts(self):
        """Workers are killed and the conductor is restarted: the answers stay,
        and nearly all of the prompts comes from disk, as under every policy
        that may not compute what it could load."""
        cluster = self.cluster(prefill=1, decode=1,
                               config={'policy': 'global_cache'})
        cold = self.answers(cluster)
        # What is written behind.
        wait_until('all is on disk', lambda:
            cluster.api.metric('instance_disk_used_tokens', instance='p0') >=
            12 * (300 // BLOCK_TOKENS * BLOCK_TOKENS))
        cluster.workers['p0'].kill()
        cluster.conductor.kill()
        for process in cluster.processes():
            process.killed or self.stop(process)
        cluster.workers = {}
        cluster.start_conductor()
        for name, role in ('p0', 'prefill'), ('d0', 'decode'):
            cluster.start_worker(name, role)
        cluster.wait_ready(1, 1)
        self.assertEqual(self.answers(cluster), cold)
        computed = total(cluster.api.metrics(),
                         'conductor_computed_tokens_total')
        self.assertLess(computed, 12 * 2 * BLOCK_TOKENS)
