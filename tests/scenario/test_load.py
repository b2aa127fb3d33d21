"""Loading with real processes: the same tokens by every mode and source, also
when a source dies or a request is cancelled in the middle of it, and the order
in which those that load and those that do not are served."""
import os
import random
import signal
import time
import unittest

import wire
from harness import mostly_waits, reduced, wait_until
from test_worker import BLOCK, WorkerCase, prompts

MODES = (wire.AUTO, wire.COMPUTE, wire.LOAD, wire.BOTH, wire.LAYERWISE)
MIB_GBPS = 2 ** 20 * 8 / 1e9


def long_prompt():
    return [i * 7 % 251 for i in range(reduced(4000, 1600))]


class LoadCase(WorkerCase):
    def disk(self, name):
        return ('--disk-path', os.path.join(self.folder.name, name + '.kv'),
                '--disk-mib', '16')

    def restart(self, link, role, *more):
        """The same worker again, its memory empty."""
        self.leave(link)
        link.close()
        self.links.remove(link)
        return self.worker('again', role, *more)

    def settle(self, link):
        """What it holds is on its disk as far as there is room."""
        self.idle(link)


class SameTokens(LoadCase):
    def test_every_mode(self):
        """Prompts over two peers, the own disk, all modes, with a restart
        now and then, decoded here and elsewhere."""
        seed = int(os.environ.get('CONDUCTOR_SEED', time.time_ns() % 2 ** 32))
        print(f'   CONDUCTOR_SEED={seed}', flush=True)
        rng = random.Random(seed)
        todo = prompts(reduced(100, 60), seed)
        cold = self.worker('cold', 'both')
        a = self.worker('a', 'both')
        b = self.worker('b', 'both')
        d = self.worker('d', 'decode')
        options = ('--kv-blocks', '80', '--step-tokens', '48', '--max-batch', '8',
                   '--max-prefills', '2', '--load-gbps', '0.5')
        t = self.worker('t', 'both', *options, *self.disk('t'))
        used = {'local': 0, 'fetched': 0, 'disk': 0}
        for i, tokens in enumerate(todo, 1):
            n = 2 + i % 7
            want, _ = self.run_here(cold, i, tokens, n, key_seed=i)
            some = tokens[:rng.randrange(1, len(tokens) + 1)]
            self.run_here(a, i, some, 1)
            self.run_here(b, i, tokens, 1)
            if i % 20 == 0:
                t = self.restart(t, 'both', *options, *self.disk('t'))
            end = (len(tokens) - 1) // BLOCK
            sources = [(a.address, 0, end), (b.address, end // 2, end),
                       (None, 0, end), (a.address, end // 3, end)]
            rng.shuffle(sources)
            ask = {'mode': rng.choice(MODES),
                   'sources': sources[:rng.randrange(1, 5)]}
            if i % 3:
                got, done = self.run_here(t, i, tokens, n, **ask)
            else:
                got, done = self.run_split(t, d, i, tokens, n, **ask)
            self.assertEqual(got, want, (i, ask))
            self.assertEqual(sum(done[k] for k in (
                'local', 'fetched', 'disk', 'computed')), len(tokens))
            for what in used:
                used[what] += done[what] > 0
        print(f'   of {len(todo)} prompts used: {used}', flush=True)
        for what, n in used.items():
            self.assertGreater(n, 5, what)
        for link in self.links:
            self.idle(link)
            self.leave(link)


class Meeting(LoadCase):
    def warm(self, *options, key_seed=5):
        """A worker with a prompt on its disk and not in memory."""
        tokens = long_prompt()
        t = self.worker('t', 'both', *self.disk('t'))
        want, _ = self.run_here(t, 1, tokens, 4, key_seed=key_seed)
        self.settle(t)
        t = self.restart(t, 'both', *self.disk('t'), *options)
        return t, tokens, want

    def test_modes_of_the_command_line(self):
        for mode, loads, computes in (('compute', 0, 1), ('load', 1, 0),
                                      ('both', 1, 1), ('layerwise', 1, 0)):
            with self.part(mode):
                t, tokens, want = self.warm('--load-mode', mode,
                                            '--load-gbps', '0.2')
                got, done = self.run_here(t, 2, tokens, 4)
                self.assertEqual(got, want)
                self.assertEqual(done['disk'] > 0, bool(loads), done)
                self.assertEqual(done['computed'] > BLOCK, bool(computes),
                                 done)
                self.assertEqual(done['local'], 0)
                if mode == 'both':
                    # It was not computed twice, and not loaded twice.
                    self.assertLess(done['disk_bytes'],
                                    (done['disk'] + 20 * BLOCK) * 2048)
                self.leave(t)

    def test_throttle(self):
        """Its tokens have 2 KiB each: at least half a second for all of them.
        That it is not much longer is for test_loader's clock."""
        n = len(long_prompt())
        t, tokens, want = self.warm('--load-mode', 'load', '--load-gbps',
                                    str(n / 512 * 2 * MIB_GBPS))
        got, done = self.run_here(t, 2, tokens, 4)
        self.assertEqual(got, want)
        self.assertGreater(done['disk'], n * 7 // 8)
        self.assertGreater(done['load_us'], 450000)

    def test_others_compute_meanwhile(self):
        """A request that waits for its load does not hold the engine, although
        only one may be under way; in mode both it takes what others leave. All
        are there before the first step, and no block comes until the others
        are done."""
        tokens = [i * 7 % 251 for i in range(2000)]
        others = range(3, 8)
        for mode in ('load', 'both', 'layerwise'):
            with self.part(mode):
                a = self.worker('a', 'both')
                want, _ = self.run_here(a, 1, tokens, 4)
                t = self.worker('t', 'both', '--load-mode', mode,
                                '--max-prefills', '1', '--max-batch', '8',
                                '--step-tokens', '32',
                                '--fetch-timeout-ms', '3600000')
                gate = wire.Gate(a.address)
                self.addCleanup(gate.close)
                t.process.send_signal(signal.SIGSTOP)
                t.prefill(2, tokens, 4, sources=[(gate.address, 0, 124)])
                for rid in others:
                    t.prefill(rid, [rid] * 300, 1)
                t.process.send_signal(signal.SIGCONT)
                for rid in others:
                    t.prefill_done(rid, 60)
                gate.open()
                done = t.prefill_done(2, 60)
                self.assertEqual(t.answer(2, done['first']), want)
                self.assertEqual(
                    [rid for kind, rid, _ in t.frames
                     if kind == wire.PREFILL_DONE], [*others, 2])
                if mode != 'both':
                    self.assertGreater(done['fetched'], 0)
                self.idle(t)
                self.leave(t)

    def test_cancelled(self):
        """In the middle of a slow load: nothing stays pinned, and the next
        request finds what was there."""
        for mode in ('load', 'both', 'layerwise'):
            with self.part(mode):
                t, tokens, want = self.warm('--load-mode', mode,
                                            '--load-gbps', '0.1')
                for rid in range(2, 6):
                    t.prefill(rid, tokens, 4)
                    time.sleep(0.02 * rid)
                    t.cancel(rid)
                self.idle(t)
                got, _ = self.run_here(t, 9, tokens, 4)
                self.assertEqual(got, want)
                self.idle(t)
                self.leave(t)


class Losses(LoadCase):
    def test_a_source_that_dies(self):
        """SIGKILL of one of two peers while both send: the other goes on, and
        alone the engine."""
        tokens = long_prompt()
        end = (len(tokens) - 1) // BLOCK
        for mode in (wire.LOAD, wire.BOTH, wire.LAYERWISE):
            with self.part(mode):
                a = self.worker('a', 'both')
                b = self.worker('b', 'both')
                t = self.worker('t', 'both', '--load-gbps', '0.1')
                want, _ = self.run_here(a, 1, tokens, 4)
                self.run_here(b, 1, tokens, 1)
                t.prefill(2, tokens, 4, mode=mode,
                          sources=[(a.address, 0, end), (b.address, 0, end)])
                time.sleep(0.1)
                a.process.kill()
                time.sleep(0.1)
                b.process.kill()
                done = t.prefill_done(2)
                self.assertEqual(t.answer(2, done['first']), want)
                self.idle(t)
                self.leave(t)

    @mostly_waits
    def test_a_source_that_stops(self):
        """SIGSTOP of a peer after 20 blocks: it is given up, and what came is
        used. Another request has the engine until these are there."""
        tokens = long_prompt()
        end = (len(tokens) - 1) // BLOCK
        for mode in (wire.LOAD, wire.BOTH, wire.LAYERWISE):
            with self.part(mode):
                a = self.worker('a', 'both')
                # A busy machine must not give the source up before the gate.
                t = self.worker('t', 'both', '--fetch-timeout-ms', '3000',
                                '--kv-mib', '80')
                want, _ = self.run_here(a, 1, tokens, 4)
                gate = wire.Gate(a.address, 20)
                self.addCleanup(gate.close)
                t.prefill(3, [1] * 30000, 1)
                t.prefill(2, tokens, 4, mode=mode,
                          sources=[(gate.address, 0, end)])
                wait_until('20 blocks have come', lambda: gate.closed)
                os.kill(a.process.pid, signal.SIGSTOP)
                t.cancel(3)
                done = t.prefill_done(2)
                os.kill(a.process.pid, signal.SIGCONT)
                self.assertEqual(t.answer(2, done['first']), want)
                if mode != wire.LAYERWISE:
                    self.assertGreater(done['fetched'], 0)
                self.idle(t)
                self.leave(t)
                self.leave(a)

    def test_a_damaged_block(self):
        """Bytes of the slab change: that block is computed."""
        tokens = long_prompt()
        for mode in ('load', 'both', 'layerwise'):
            with self.part(mode):
                t = self.worker('t', 'both', *self.disk('t'))
                want, _ = self.run_here(t, 1, tokens, 4)
                self.settle(t)
                self.leave(t)
                path = self.disk('t')[1]
                with open(path, 'r+b') as file:
                    size = os.path.getsize(path)
                    for at in range(size // 4, size, size // 9):
                        file.seek(at)
                        file.write(b'\xee' * 64)
                t.close()
                t = self.worker('u', 'both', *self.disk('t'), '--load-mode',
                                mode)
                got, done = self.run_here(t, 2, tokens, 4)
                self.assertEqual(got, want)
                self.assertGreater(done['computed'], BLOCK)
                self.idle(t)
                self.leave(t)


if __name__ == '__main__':
    unittest.main()
