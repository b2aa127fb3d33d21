"""conductor-worker alone, under a stand-in for its conductor: what it computes
is the same by every way the KV can take, and nothing that a peer or a frame
does hurts more than it must."""
import contextlib
import os
import random
import signal
import struct
import subprocess
import tempfile
import time
import unittest

import wire
from harness import (KV_MIB, mostly_waits, read_file, reduced, settings,
                     wait_until)

BLOCK = 16
BLOCK_BYTES = 2048 * BLOCK  # of tiny in float32
LAYERS = 4


def program():
    return os.path.join(settings.build, 'workers', 'conductor-worker')


class WorkerCase(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.conductor = wire.Conductor()
        self.links = []
        self.processes = []

    def tearDown(self):
        for link in self.links:
            link.close()
        for process in self.processes:
            process.kill()
            process.wait()
        self.conductor.close()
        self.folder.cleanup()

    @contextlib.contextmanager
    def part(self, name):
        """A subtest with workers of its own: they end with it, however it
        ends, and the next one has another folder."""
        with self.subTest(name):
            try:
                yield
            finally:
                self.tearDown()
                self.setUp()

    def log_path(self, name):
        return os.path.join(self.folder.name, name + '.log')

    def log(self, name):
        return read_file(self.log_path(name))

    def program(self):
        return program()

    def launch(self, name, role, *more):
        if '--drain-ms' not in more:  # the stand-in answers no LEAVING
            more = ('--drain-ms', '0', *more)
        if not {'--kv-mib', '--kv-blocks'} & set(more):
            more = ('--kv-mib', str(KV_MIB), *more)
        with open(self.log_path(name), 'w') as log:
            process = subprocess.Popen(
                [self.program(), '--conductor',
                 f'127.0.0.1:{self.conductor.port}', '--name', name, '--role', role, '--block-tokens', str(BLOCK),
                 *more], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self.processes.append(process)
        return process

    def worker(self, name, role, *more, **accept):
        process = self.launch(name, role, *more)
        try:
            link = self.accept(**accept)
        except TimeoutError:
            raise AssertionError(f'{name} does not come: {self.log(name)}')
        link.process = process
        link.role = role
        return link

    def accept(self, **options):
        link = self.conductor.accept(**options)
        self.links.append(link)
        return link

    def leave(self, link):
        """SIGTERM: ends well, whatever it was doing."""
        link.process.send_signal(signal.SIGTERM)
        self.assertEqual(link.process.wait(20 * settings.scale), 0)

    def idle(self, link):
        """Nothing is left of any request."""
        link.status(lambda s: s['pinned'] == 0 and s['queued'] == 0 and
                    s['running'] == 0 and s['decodes'] == 0)

    def run_here(self, link, rid, tokens, n, **more):
        link.prefill(rid, tokens, n, **more)
        done = link.prefill_done(rid, 60)
        return link.answer(rid, done['first']), done

    def run_split(self, p, d, rid, tokens, n, **more):
        d.decode_of(rid, tokens, n)
        d.wait(wire.DECODE_READY, rid)
        p.prefill(rid, tokens, n, decode=d.address, **more)
        done = p.prefill_done(rid, 60)
        return d.answer(rid, done['first']), done


def prompts(n, seed):
    """Random prompts of which many share prefixes."""
    rng = random.Random(seed)
    roots = [[rng.randrange(256) for _ in range(400)] for _ in range(5)]
    out = []
    for _ in range(n):
        root = rng.choice(out + roots)[:rng.randrange(1, 400)]
        out.append(root + [rng.randrange(256)
                           for _ in range(rng.randrange(1, 120))])
    return out


class SameTokens(WorkerCase):
    def test_every_way(self):
        """Prompts: cold, local prefix, fetched prefix, eviction, split."""
        seed = int(os.environ.get('CONDUCTOR_SEED', time.time_ns() % 2 ** 32))
        print(f'   CONDUCTOR_SEED={seed}', flush=True)
        todo = prompts(reduced(200, 80), seed)
        cold = self.worker('cold', 'both')
        warm = self.worker('warm', 'both', '--step-tokens', '48', '--max-batch',
                           '8')
        fetcher = self.worker('fetcher', 'both')
        small = self.worker('small', 'both', '--kv-blocks', '48')
        p = self.worker('p', 'prefill', '--kv-blocks', '90')
        d = self.worker('d', 'decode')
        hits = {'local': 0, 'fetched': 0, 'small': 0, 'p_fetched': 0}
        for i, tokens in enumerate(todo, 1):
            n = 1 + i % 9
            # Another key seed each time: nothing is ever found again.
            want, done = self.run_here(cold, i, tokens, n, key_seed=i)
            self.assertEqual(done['local'], 0)
            blocks = 0, (len(tokens) - 1) // BLOCK
            got, done = self.run_here(warm, i, tokens, n)
            self.assertEqual(got, want)
            hits['local'] += done['local'] > 0
            got, done = self.run_here(fetcher, i, tokens, n,
                                      fetch=warm.address, blocks=blocks)
            self.assertEqual(got, want)
            hits['fetched'] += done['fetched'] > 0
            got, done = self.run_here(small, i, tokens, n)
            self.assertEqual(got, want)
            hits['small'] += done['local'] > 0
            if n > 1:
                got, done = self.run_split(p, d, i, tokens, n,
                                           fetch=warm.address, blocks=blocks)
                self.assertEqual(got, want)
                hits['p_fetched'] += done['fetched'] > 0
            self.assertEqual(done['local'] + done['fetched'] + done['computed'],
                             len(tokens))
        print(f'   of {len(todo)} prompts reused: {hits}', flush=True)
        for what, n in hits.items():
            self.assertGreater(n, len(todo) // 5, what)
        removed = sum((len(p) - 5) // 8 for k, _, p in small.frames
                      if k == wire.BLOCKS_REMOVED)
        self.assertGreater(removed, 10 * 48)
        for link in self.links:
            self.idle(link)
            used = link.status(lambda s: True)['used']
            self.assertEqual(len(link.held()), used)
            self.leave(link)

    def test_many_at_once(self):
        """All in flight together, under pressure for blocks."""
        todo = prompts(60, 7)
        cold = self.worker('cold', 'both')
        a = self.worker('a', 'both', '--kv-blocks', '120', '--step-tokens',
                        '37', '--max-batch', '9', '--max-prefills', '3')
        p = self.worker('p', 'prefill', '--kv-blocks', '120')
        d = self.worker('d', 'decode', '--kv-blocks', '100', '--max-batch', '4')
        n = 12
        want = {}
        for i, tokens in enumerate(todo, 1):
            want[i] = self.run_here(cold, i, tokens, n)[0]
        for i, tokens in enumerate(todo, 1):
            d.decode_of(i, tokens, n)
            d.wait(wire.DECODE_READY, i)
            blocks = 0, len(tokens) // BLOCK
            a.prefill(i, tokens, n, fetch=p.address, blocks=blocks)
            p.prefill(i, tokens, n, decode=d.address, fetch=a.address,
                      blocks=blocks)
        for i in want:
            first = a.prefill_done(i, 60)['first']
            self.assertEqual(a.answer(i, first), want[i])
            first = p.prefill_done(i, 60)['first']
            self.assertEqual(d.answer(i, first), want[i])
        for link in self.links:
            self.idle(link)
        self.leave(link)


class QueueOrder(WorkerCase):
    def test_the_order_is_the_conductors(self):
        """Behind a long prompt wait one that is loading, from a peer that says
        nothing, and a younger one that is not."""
        silent = wire.Conductor()
        for order, want in (('fifo', [1, 2, 3]), ('uncached_first', [1, 3, 2])):
            link = self.worker(f'w-{order}', 'prefill', '--max-prefills', '1',
                               reply=wire.welcome(queue_order=order))
            link.prefill(1, [7] * 2000)
            link.prefill(2, [8] * 100, blocks=(0, 6), mode=wire.BOTH,
                         fetch=('127.0.0.1', silent.port))
            link.prefill(3, [9] * 100)
            for rid in (1, 2, 3):
                link.prefill_done(rid)
            with link.changed:
                self.assertEqual([rid for kind, rid, _ in link.frames
                                  if kind == wire.PREFILL_STARTED], want)
            self.leave(link)

    def test_interrupted_prefills(self):
        """Short prompts begin while a long one is computed, and end before it;
        all answers are what they are without that."""
        seed = int(os.environ.get('CONDUCTOR_SEED', time.time_ns() % 2 ** 32))
        print(f'   CONDUCTOR_SEED={seed}', flush=True)
        rng = random.Random(seed)
        long = [rng.randrange(256)
                for _ in range(reduced(12000, 1500))]
        short = prompts(8, seed)
        cold = self.worker('cold', 'both')
        want = {1: self.run_here(cold, 1, long, 4)[0]}
        for rid, tokens in enumerate(short, 2):
            want[rid], _ = self.run_here(cold, rid, tokens, 4, key_seed=rid)
        order = 'shortest_first_yield'
        link = self.worker(order, 'both', '--step-tokens', '32', '--max-batch', '8',
                           reply=wire.welcome(queue_order=order))
        link.prefill(1, long, 4, cost_us=15_000_000)
        link.wait(wire.PREFILL_STARTED, 1)
        for rid, tokens in enumerate(short, 2):
            link.prefill(rid, tokens, 4, cost_us=1000 + rid)
        for rid in want:
            done = link.prefill_done(rid, 120)
            self.assertEqual(link.answer(rid, done['first']), want[rid])
        with link.changed:
            ended = [rid for kind, rid, _ in link.frames
                     if kind == wire.PREFILL_DONE]
        self.assertEqual(ended[-1], 1)
        self.assertGreater(link.prefill_done(1)['queue_us'], 0)
        self.idle(link)
        self.leave(link)

    def test_a_conductor_with_an_order_that_nobody_knows(self):
        """A worker that served its queue in another order than the conductor
        estimates with would be worse than none."""
        process = self.launch('w', 'both')
        link = self.accept(reply=wire.welcome(queue_order='lifo'))
        code, why = wire.parse_reason(link.wait(wire.ERROR))
        self.assertEqual((code, 'queue_order' in why), (3, True))
        self.assertGreater(process.wait(20 * settings.scale), 0)
        self.assertIn('queue_order', self.log('w'))


class Refusals(WorkerCase):
    def test_bad_requests(self):
        both = self.worker('both', 'both', '--kv-blocks', '64')
        p = self.worker('p', 'prefill')
        d = self.worker('d', 'decode')
        some = list(range(40))
        cases = [
            (both, lambda w: w.prefill(1, []), 4, '0 prompt tokens'),
            (both, lambda w: w.prefill(1, some, 0), 4, 'max_tokens 0'),
            (both, lambda w: w.prefill(1, some + [512]), 4, 'token 40 is 512'),
            (both, lambda w: w.prefill(1, [1] * 32768, 2), 4, 'window'),
            (both, lambda w: w.prefill(1, [1] * 1025), 6, '65 KV blocks'),
            (both, lambda w: w.prefill(1, some, 1000), 6, '65 KV blocks'),
            (both, lambda w: w.decode(1, 1000, 26), 6, '65 KV blocks'),
            (both, lambda w: w.decode(1, 0, 26), 4, '0 prompt tokens'),
            (p, lambda w: w.prefill(1, some, 2), 4, 'role'),
            (p, lambda w: w.decode(1, 40, 2), 4, 'role'),
            (d, lambda w: w.prefill(1, some), 4, 'role'),
        ]
        for i, (link, send, code, text) in enumerate(cases):
            with self.subTest(text):
                link.forget(1)
                send(link)
                got = link.failure(1)
                self.assertEqual(got[0], code, got)
                self.assertIn(text, got[1])
        # Everything still works.
        self.assertEqual(len(self.run_here(both, 50, some, 5)[0]), 5)
        self.assertEqual(len(self.run_split(p, d, 51, some, 5)[0]), 5)

    def test_queues_are_bounded(self):
        link = self.worker('w', 'both', '--max-queue', '3', '--kv-mib', '64')
        long = [1] * 20000
        for rid in range(1, 9):
            link.prefill(rid, long[rid:])
        code, text = link.failure(8)
        self.assertEqual(code, 5)
        self.assertIn('3 prefills wait', text)
        for rid in range(20, 25):
            link.decode(rid, 10, 5)
        self.assertEqual(link.failure(23)[0], 5)
        for rid in range(1, 30):
            link.cancel(rid)
        self.idle(link)
        # The same id twice.
        link.decode(40, 10, 5)
        link.wait(wire.DECODE_READY, 40)
        link.decode(40, 10, 5)
        self.assertEqual(link.failure(40)[0], 10)

    def test_garbage_closes_only_its_connection(self):
        link = self.worker('w', 'both')
        good = wire.pusher(fingerprint=link.hello['fingerprint'],
                           block_tokens=BLOCK)
        begin = wire.frame(wire.KV_BEGIN, 1, struct.pack('<IIQ', 40, 3, 0))
        cases = {
            'noise': b'GET / HTTP/1.1\r\nHost: x\r\n\r\n' * 4,
            'too long': struct.pack('<IHHQ', 1 << 31, wire.FETCH, 0, 1),
            'no hello': wire.frame(wire.FETCH, 1, b'\0' * 8),
            'version': wire.hello(version=9),
            'kind': wire.hello(kind=2),
            'fingerprint': wire.hello(fingerprint=1, block_tokens=BLOCK),
            'blocks': wire.hello(fingerprint=link.hello['fingerprint'],
                                 block_tokens=32),
            'truncated': good + wire.frame(wire.FETCH, 1, b'\0' * 7),
            'not named': wire.hello(
                fingerprint=link.hello['fingerprint'], block_tokens=BLOCK,
                capabilities=0) + wire.frame(wire.FETCH, 1, struct.pack(
                    '<IQ', 1, 5)),
            'no keys': good + wire.frame(wire.FETCH, 1, b'\0' * 8),
            'not held': good + wire.frame(wire.FETCH, 1, struct.pack(
                '<IQ', 1, 5)) + wire.fetch_want(1, 0, 0, 1),
            'nothing wanted': good + wire.fetch_want(1, 0, 0, 0),
            'type': good + wire.frame(99),
            'grant': good + wire.frame(wire.KV_GRANT, 1),
            'offered twice': good + wire.transports(1),
            'layer': good + begin + wire.kv_layer(1, 99, 0, 1),
            'range': good + begin + wire.kv_layer(1, 0, 0, 41),
            'hole': good + begin + wire.kv_layer(1, 0, 1, 1),
            'no tokens': good + begin + wire.kv_layer(1, 0, 0, 0, sums=[]),
            'blocks': good + begin + wire.kv_layer(1, 0, 0, 20, blocks=[0]),
            'sums': good + begin + wire.kv_layer(1, 0, 0, 20, sums=[0, 0]),
            'end': good + begin + wire.frame(wire.KV_END, 1,
                                             struct.pack('<I', 1)),
        }
        for name, data in cases.items():
            with self.subTest(name):
                if begin in data:
                    link.decode(1, 40, 3)
                    link.wait(wire.DECODE_READY, 1)
                peer = wire.connect(link.address)
                first, begun, rest = data.partition(begin)
                peer.send(first + begun)
                if begun:
                    peer.wait(wire.KV_GRANT, 1)
                    peer.send(rest)
                peer.wait_closed()
                self.assertIn(wire.ERROR, [k for k, _, _ in peer.frames])
                peer.close()
                if begin in data:
                    self.assertEqual(link.failure(1)[0], 7)
                    link.forget(1)
        # A decode that nobody announced, or with other lengths.
        peer = wire.connect(link.address)
        peer.send(good + begin)
        self.assertIn('announced', wire.parse_reason(
            peer.wait(wire.KV_REFUSE, 1))[1])
        link.decode(1, 41, 3)
        link.wait(wire.DECODE_READY, 1)
        peer.send(begin)
        peer.until('a second refusal', lambda frames: sum(
            k == wire.KV_REFUSE for k, _, _ in frames) == 2)
        peer.close()
        link.cancel(1)
        self.assertEqual(len(self.run_here(link, 9, [1] * 40, 4)[0]), 4)
        self.idle(link)

    def test_kv_of_another_prompt(self):
        """An id and lengths that fit do not make it the same request."""
        link = self.worker('w', 'decode')
        link.decode(1, 40, 3, digest=7)
        link.wait(wire.DECODE_READY, 1)
        peer = wire.connect(link.address)
        peer.send(wire.pusher(fingerprint=link.hello['fingerprint'],
                              block_tokens=BLOCK))
        peer.send(wire.frame(wire.KV_BEGIN, 1, struct.pack('<IIQ', 40, 3, 8)))
        code, text = wire.parse_reason(peer.wait(wire.KV_REFUSE, 1))
        self.assertEqual(code, 4)
        self.assertIn('another prompt', text)
        # It still waits for its own.
        peer.send(wire.frame(wire.KV_BEGIN, 1, struct.pack('<IIQ', 40, 3, 7)))
        peer.wait(wire.KV_GRANT, 1)
        peer.close()
        self.assertEqual(link.failure(1)[0], 7)
        self.idle(link)

    def test_conductor_of_another_version(self):
        process = self.launch('w', 'both')
        self.accept(reply=wire.frame(wire.ERROR, 0, struct.pack('<H', 1) +
                                     wire.text('speaks version 9')))
        self.assertGreater(process.wait(20 * settings.scale), 0)
        self.assertIn('speaks version 9', self.log('w'))

    def test_a_name_in_use_may_come_free(self):
        """The namesake may hang and be given up soon."""
        taken = wire.frame(wire.ERROR, 0, struct.pack('<H', 10) +
                           wire.text('w is registered'))
        process = self.launch('w', 'both')
        for _ in range(3):
            self.accept(reply=taken).close()
            self.assertIsNone(process.poll())
        link = self.accept()
        self.assertRegex(self.log('w'), 'w is registered; waiting until')
        self.assertEqual(len(self.run_here(link, 1, [1] * 40, 4)[0]), 4)

    def test_a_conductor_that_is_away(self):
        """It is told once, however often the worker tries."""
        process = self.launch('w', 'both')
        for _ in range(4):
            s, _ = self.conductor.listener.accept()
            s.recv(65536)  # else it is reset now and then: another reason
            s.close()
        self.assertIsNone(process.poll())
        link = self.accept()
        self.assertEqual(self.log('w').count('trying again'), 1)
        self.assertEqual(self.log('w').count(': connecting'), 1)
        link.close()
        self.accept()
        wait_until('it is told again', lambda:
                   self.log('w').count('trying again') == 2)

    @mostly_waits
    def test_a_name_in_use_for_good(self):
        process = self.launch('w', 'both')
        taken = wire.frame(wire.ERROR, 0, struct.pack('<H', 10) +
                           wire.text('w is registered'))
        first = time.monotonic()
        while process.poll() is None:
            try:
                self.accept(reply=taken, limit_s=1).close()
            except TimeoutError:
                pass
        self.assertGreater(process.returncode, 0)
        self.assertGreaterEqual(time.monotonic() - first, 15)

    @mostly_waits
    def test_a_name_lost_to_another(self):
        """A worker that was registered keeps its cache, and waits without
        limit for its name: it says so at every attempt, and goes on as soon as
        the name is free."""
        process = self.launch('w', 'both')
        self.accept().close()
        taken = wire.frame(wire.ERROR, 0, struct.pack('<H', 10) +
                           wire.text('w is registered'))
        first = time.monotonic()
        refusals = 0
        while time.monotonic() - first < 16:
            self.accept(reply=taken).close()
            refusals += 1
        self.assertIsNone(process.poll())
        self.accept()
        wait_until('each is logged', lambda: self.log('w').count(
            'waiting until the conductor drops the worker of that name'
        ) == refusals)

    def test_bad_options(self):
        good = {'--conductor': '127.0.0.1:1'}
        cases = [('--role', 'cook'), ('--engine', 'steam'),
                 ('--engine', 'timed'), ('--model', 'gpt-4'),
                 ('--conductor', 'nowhere'), ('--conductor', 'a:0'),
                 ('--listen', '127.0.0.1:65536'), ('--listen', ':1'),
                 ('--block-tokens', '7'), ('--block-tokens', '40'),
                 ('--kv-blocks', 'many'), ('--kv-blocks', '0'),
                 ('--step-tokens', '-1'),
                 ('--max-batch', '513'), ('--max-queue', '1025'),
                 ('--name', ''), ('--name', 'x' * 64), ('--seed', '1x'),
                 ('--cost-model', '/nonexistent.json'),
                 ('--transports', 'shm,shm'), ('--transports', 'shm,'),
                 ('--rdma-slice-kib', '3'), ('--rdma-slice-kib', '18'),
                 ('--load-mode', 'some'), ('--load-gbps', '0'),
                 ('--load-gbps', '-1'), ('--load-gbps', 'nan'),
                 ('--load-gbps', '1x'), ('--load-gbps', ''),
                 ('--load-gbps', 'inf'), ('--load-gbps', '1e-320'),
                 ('--load-gbps', '9e-7'),
                 ('--log-level', 'loud'), ('--bogus', '1')]
        for option, value in cases:
            with self.subTest(f'{option} {value}'):
                words = [w for pair in {**good, option: value}.items()
                         for w in pair]
                done = subprocess.run([program(), *words], timeout=20,
                                      capture_output=True, text=True,
                                      stdin=subprocess.DEVNULL)
                self.assertEqual(done.returncode, 2, done.stderr)
                self.assertIn(option, done.stderr)
                if option != '--bogus':
                    self.assertIn(value, done.stderr)
        done = subprocess.run([program()], capture_output=True, text=True)
        self.assertEqual(done.returncode, 2)
        self.assertIn('--conductor', done.stderr)
        done = subprocess.run([program(), '--help'], capture_output=True,
                              text=True)
        self.assertEqual(done.returncode, 0)
        self.assertIn('examples:', done.stdout)

    def test_kv_size_twice(self):
        done = subprocess.run([program(), '--conductor', '127.0.0.1:1',
                               '--kv-mib', '1', '--kv-blocks', '3'],
                              timeout=20, capture_output=True, text=True)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn('--kv-mib 1 and --kv-blocks 3', done.stderr)

    def test_memory(self):
        """Weights and KV count together, and nothing is made before."""
        pages = os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGE_SIZE')
        mib = pages >> 20
        for options, words in (
                (['--kv-blocks', '100000000'],
                 ['12207.0 GiB for KV blocks', '--kv-blocks of at most']),
                (['--model', 'llama3-8b', '--layers', '4', '--kv-mib',
                  str(mib - 1000)],
                 ['3.3 GiB for weights', '--kv-mib of at most',
                  f'this machine has {pages / 2 ** 30:.1f} GiB']),
                (['--model', 'llama3-70b', '--layers', '80'],
                 ['model llama3-70b', '--layers N'])):
            process = subprocess.Popen(
                [program(), '--conductor', '127.0.0.1:1', '--block-tokens',
                 '64', *options], stderr=subprocess.PIPE, text=True)
            self.addCleanup(process.kill)
            with process.stderr:
                said = process.stderr.read()
            _, status, used = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
            self.assertEqual(process.returncode, 1, said)
            self.assertLess(used.ru_maxrss, 1 << 20)  # KiB: less than weights
            for word in words:
                self.assertIn(word, said)

    def test_weights_take_long(self):
        """It is said before they are made."""
        process = subprocess.Popen(
            [program(), '--conductor', '127.0.0.1:1', '--model', 'llama3-8b',
             '--layers', '1'], stderr=subprocess.PIPE, text=True)
        line = process.stderr.readline()
        process.kill()
        process.communicate()
        self.assertIn('making 0.8 GiB of weights of llama3-8b', line)

    def test_port_in_use(self):
        taken = wire.Conductor()
        done = subprocess.run([program(), '--conductor', '127.0.0.1:1',
                               '--listen', f'127.0.0.1:{taken.port}'],
                              timeout=20, capture_output=True, text=True)
        taken.close()
        self.assertGreater(done.returncode, 0)
        self.assertIn(str(taken.port), done.stderr)
        self.assertIn('another program listens there', done.stderr)


class Losses(WorkerCase):
    def test_conductor_goes_and_comes_back(self):
        link = self.worker('w', 'both', '--kv-mib', '64')
        tokens = list(range(200))
        want, _ = self.run_here(link, 1, tokens, 6)
        held = link.held()
        link.prefill(2, [3] * 20000, 5)
        link.wait(wire.PREFILL_STARTED, 2)
        link.close()
        again = self.accept()
        again.until('the inventory', lambda f: again.held() >= held)
        got, done = self.run_here(again, 1, tokens, 6)
        self.assertEqual(got, want)
        self.assertEqual(done['local'], 192)
        self.idle(again)

    def test_cancel_in_each_state(self):
        a = self.worker('a', 'both', '--kv-mib', '64')
        b = self.worker('b', 'both', '--kv-blocks', '200')
        long = [5] * 6000
        # queued, prefilling, decoding
        a.prefill(1, long, 5)
        a.prefill(2, long[1:], 5)
        a.wait(wire.PREFILL_STARTED, 1)
        a.cancel(2)
        a.cancel(1)
        self.idle(a)
        a.prefill(3, [1] * 50, 20000)
        first = a.prefill_done(3)['first']
        a.until('some tokens', lambda f: any(k == wire.TOKENS for k, _, _ in f))
        a.cancel(3)
        self.idle(a)
        # announced; waiting for room; receiving
        b.decode(4, 3000, 10)
        b.wait(wire.DECODE_READY, 4)
        b.cancel(4)
        for rid in (5, 6):
            b.decode(rid, 2000, 10)
            b.wait(wire.DECODE_READY, rid)
        good = wire.pusher(fingerprint=a.hello['fingerprint'],
                           block_tokens=BLOCK)
        peer = wire.connect(b.address)
        begin = struct.pack('<IIQ', 2000, 10, 0)
        peer.send(good + wire.frame(wire.KV_BEGIN, 5, begin))
        peer.wait(wire.KV_GRANT, 5)
        peer.send(wire.frame(wire.KV_BEGIN, 6, begin))
        b.cancel(6)
        b.cancel(5)
        self.idle(b)
        # KV of a cancelled request may still be on its way
        peer.send(wire.kv_layer(5, 0, 0, 1))
        peer.send(wire.frame(wire.KV_END, 5, struct.pack('<I', 1)))
        b.decode(7, 2000, 10)
        b.wait(wire.DECODE_READY, 7)
        peer.send(wire.frame(wire.KV_BEGIN, 7, begin))
        peer.wait(wire.KV_GRANT, 7)
        peer.close()
        self.assertEqual(b.failure(7)[0], 7)
        # fetching, from one that never answers; pushing, to one that never
        # grants
        silent = wire.Conductor()
        a.prefill(8, list(range(100)), 3, fetch=('127.0.0.1', silent.port),
                  blocks=(0, 6))
        time.sleep(0.2)
        a.cancel(8)
        a.prefill(9, list(range(100)), 3, decode=('127.0.0.1', silent.port))
        a.prefill_done(9)
        a.cancel(9)
        self.idle(a)
        self.idle(b)
        silent.close()
        self.assertEqual(len(self.run_here(a, 10, [1] * 40, 4)[0]), 4)

    def test_waits_for_room(self):
        """Two that do not fit together are served one after the other."""
        d = self.worker('d', 'decode', '--kv-blocks', '40')
        p = self.worker('p', 'prefill')
        for rid in (1, 2, 3):
            d.decode_of(rid, [rid] * 400, 100)
            d.wait(wire.DECODE_READY, rid)
            p.prefill(rid, [rid] * 400, 100, decode=d.address)
        for rid in (1, 2, 3):
            first = p.prefill_done(rid)['first']
            self.assertEqual(len(d.answer(rid, first)), 100)
        self.idle(d)
        self.idle(p)

    def test_silent_source(self):
        """A source that answers nothing: the prefill is computed."""
        a = self.worker('a', 'both', '--fetch-timeout-ms', '300')
        tokens = list(range(100))
        want, _ = self.run_here(a, 1, tokens, 5, key_seed=77)
        silent = wire.Conductor()
        got, done = self.run_here(a, 2, tokens, 5, blocks=(0, 6),
                                  fetch=('127.0.0.1', silent.port))
        self.assertEqual(got, want)
        self.assertEqual(done['fetched'], 0)
        self.assertGreaterEqual(done['fetch_us'], 300000)
        silent.close()

        # Nobody listens there.
        got, done = self.run_here(a, 4, tokens, 5, key_seed=79, blocks=(0, 6),
                                  fetch=('127.0.0.1', 1))
        self.assertEqual(got, want)

    def lie(self, worker, rid, tokens, want, **lies):
        """Fetches from a source that sends one block of zeroes. Returns how
        many tokens of it were used, after comparing the answer with `want`,
        if that is not None."""
        liar = wire.Holder()
        worker.prefill(rid, tokens, 5, key_seed=rid, blocks=(0, 6),
                       fetch=liar.address)
        link = liar.wait()
        ask = link.wait(wire.FETCH, rid)
        self.assertEqual(struct.unpack_from('<I', ask), (6,))
        zeroes = wire.xxh3(bytes(BLOCK_BYTES // LAYERS))
        lie = {'words': tokens[:BLOCK], 'block': 0, 'layer': 0,
               'sums': [zeroes] * LAYERS, **lies}
        link.send(wire.frame(wire.FETCH_CHAIN, rid, struct.pack(
            f'<{len(lie["words"]) + 1}I', len(lie['words']), *lie['words'])))
        if lie['words'] == tokens[:BLOCK]:
            link.wait(wire.FETCH_WANT, rid)
            link.send(wire.fetch_grant(rid, lie['block'], lie['layer'],
                                       lie['sums']))
        done = worker.prefill_done(rid)
        answer = worker.answer(rid, done['first'])
        if want is not None:
            self.assertEqual(answer, want)
        link.close()
        liar.close()
        return done['fetched']

    def test_lying_source(self):
        """What does not fit this prompt in every respect is not used."""
        a = self.worker('a', 'both')
        tokens = list(range(100))
        want, _ = self.run_here(a, 1, tokens, 5, key_seed=1)
        lies = [('checksum', {'sums': [1] * LAYERS}, 'did not come'),
                ('tokens', {'words': [9] + tokens[1:BLOCK]}, 'other tokens')]
        for rid, (name, lie, said) in enumerate(lies, 10):
            with self.subTest(name):
                self.assertEqual(self.lie(a, rid, tokens, want, **lie), 0)
                self.assertRegex(self.log('a'), f'request {rid}: .*{said}')
        for rid, (name, lie) in enumerate([
                ('fewer tokens', {'words': tokens[:8]}),
                ('more tokens', {'words': tokens[:7 * BLOCK]}),
                ('another block', {'block': 1}),
                ('another layer', {'layer': 1}),
                ('fewer sums', {'sums': [1] * (LAYERS - 1)}),
                ('more sums', {'sums': [1] * (LAYERS + 1)}),
                ('no sums', {'sums': []})], 20):
            with self.subTest(name):
                self.assertEqual(self.lie(a, rid, tokens, want, **lie), 0)
                self.assertRegex(self.log('a'), 'malformed')
        # The same without a lie is taken: what was refused above would have
        # been used.
        self.assertEqual(self.lie(a, 30, tokens, None), BLOCK)
        self.idle(a)

    def keepalive_timers(self, port):
        """How many ends of established connections to this port, at the side
        that connected, have the kernel probe the other side."""
        with open('/proc/net/tcp') as file:
            rows = [line.split() for line in file][1:]
        far, established, keepalive = f'0100007F:{port:04X}', '01', '02:'
        return sum(row[2] == far and row[3] == established and
                   row[5].startswith(keepalive) for row in rows)

    def test_vanished_hosts_are_noticed(self):
        """The kernel probes the conductor's host and those of other workers:
        nobody else would notice that one was switched off."""
        a = self.worker('a', 'both')
        b = self.worker('b', 'both', '--transports', 'tcp')
        tokens = list(range(100))
        self.run_here(a, 1, tokens, 1)
        self.run_here(b, 2, tokens, 1, fetch=a.address, blocks=(0, 6))
        # With a there is a control connection, and two for its KV.
        for port, ends in ((self.conductor.port, 2), (a.address[1], 3)):
            # While data is on its way another timer runs.
            wait_until('keepalive runs', lambda: self.keepalive_timers(
                port) == ends)

    def test_killed_peers(self):
        """SIGKILL of the source while it sends, and of the decode worker."""
        source = self.worker('source', 'prefill')
        a = self.worker('a', 'both')
        d = self.worker('d', 'decode')
        tokens = [i * 7 % 256 for i in range(reduced(6000, 2000))]
        want, _ = self.run_here(a, 1, tokens, 3, key_seed=1)
        source.prefill(1, tokens)
        source.prefill_done(1, 60)
        a.prefill(2, tokens, 3, fetch=source.address,
                  blocks=(0, (len(tokens) - 1) // BLOCK))
        time.sleep(0.01)
        source.process.kill()
        done = a.prefill_done(2, 60)
        self.assertEqual(a.answer(2, done['first']), want)
        d.decode_of(3, tokens, 5, key_seed=2)
        d.wait(wire.DECODE_READY, 3)
        a.prefill(3, tokens, 5, key_seed=2, decode=d.address)
        a.wait(wire.PREFILL_STARTED, 3)
        d.process.kill()
        self.assertEqual(a.failure(3, 60)[0], 7)
        self.idle(a)
        self.leave(a)

    def test_term_while_busy(self):
        a = self.worker('a', 'both', '--kv-mib', '64')
        a.prefill(1, [1] * 20000, 5)
        a.wait(wire.PREFILL_STARTED, 1)
        self.leave(a)


if __name__ == '__main__':
    unittest.main()
