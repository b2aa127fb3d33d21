"""The shared store: what workers put there they find again, whoever is gone;
what is wrong there is computed, and a store that is away hurts nobody."""
import ctypes
import ctypes.util
import random
import socketserver
import struct
import threading
import unittest

import wire
from harness import (BLOCK_TOKENS, Case, Cluster, Process, settings,
                     wait_until)
from redis_server import MISSING, REDIS, RedisServer
from test_worker import BLOCK, BLOCK_BYTES, WorkerCase

N = 200  # tokens of a prompt
FULL = N // BLOCK
LONG = 128 << 20  # bytes of a value

XXH3 = ctypes.CDLL(ctypes.util.find_library('xxhash')).XXH3_64bits
XXH3.restype = ctypes.c_uint64
XXH3.argtypes = ctypes.c_char_p, ctypes.c_size_t


def prompt(seed, n=N):
    rng = random.Random(seed)
    return [rng.randrange(256) for _ in range(n)]


@unittest.skipUnless(REDIS, MISSING)
class SharedCase(WorkerCase):
    def setUp(self):
        super().setUp()
        self.servers = []

    def tearDown(self):
        for server in self.servers:
            server.process.kill()
        super().tearDown()

    def server(self, name='redis', **options):
        """RedisServer asks a case for a folder and for programs in it."""
        case = self

        class Place:
            folder = case.folder.name

            def start(self, name, command):
                return Process(self.folder, name, command)

        self.servers.append(RedisServer(Place(), name, **options))
        return self.servers[-1]

    def sharing(self, server, name='w', *more, put='all', role='both', mib=64,
                timeout_ms=20000):
        w = self.worker(name, role, '--shared-store', server.url(),
                        '--shared-store-mib', str(mib), '--shared-store-put',
                        put, '--shared-store-timeout-ms', str(timeout_ms),
                        *more)
        w.shared(lambda s: s['id'] != 0)
        return w

    def kill(self, link):
        link.process.kill()
        link.process.wait()
        link.wait_closed()

    def kept(self, link, n):
        """Waits until so many blocks are there."""
        link.until(f'{n} blocks in the store',
                   lambda _: len(link.in_store()) == n)

    def answers(self, link, rid, tokens, n=6, **more):
        """(answer, PREFILL_DONE)"""
        return self.run_here(link, rid, tokens, n, **more)

    def blocks(self, server):
        """Names of the blocks that are there, by name."""
        return sorted(k.decode() for k in server.command('KEYS', '*:b:*'))

    def put_by_one(self, server, *prompts):
        """A worker that puts these there and is gone; their answers."""
        w = self.sharing(server, 'first')
        right = [self.answers(w, 1 + i, p)[0] for i, p in enumerate(prompts)]
        self.kept(w, sum(len(p) // BLOCK for p in prompts))
        self.kill(w)
        return right


class Keeping(SharedCase):
    def test_all_workers_restarted(self):
        """The first request with an old prompt loads, in every mode, and the
        answer is the same."""
        server = self.server()
        right, = self.put_by_one(server, prompt(1))
        for mode in ('auto', 'load', 'both', 'layerwise'):
            w = self.sharing(server, mode, '--load-mode', mode,
                             '--step-tokens', '32', '--max-batch', '8')
            self.kept(w, FULL)  # it tells what it found
            got, done = self.answers(w, 1, prompt(1))
            self.assertEqual(got, right)
            # Computing and loading meet where they meet; else all comes.
            least = BLOCK if mode == 'both' else FULL * BLOCK
            self.assertGreaterEqual(done['shared'], least, mode)
            self.assertEqual(done['computed'] + done['shared'], N)
            self.assertGreaterEqual(done['shared_bytes'],
                                    done['shared'] // BLOCK * BLOCK_BYTES)
            self.kill(w)

    def test_evicted(self):
        """What memory had no room for comes back from the store, with what
        was in front of it."""
        server = self.server()
        cold = self.worker('cold', 'both')
        w = self.sharing(server, 'w', '--kv-blocks', '32', put='evicted')
        right = {}
        for i in range(1, 9):
            right[i], _ = self.answers(cold, i, prompt(i))
            self.answers(w, i, prompt(i))
            self.idle(w)
        w.until('blocks leave', lambda _: len(w.in_store()) >= 6 * FULL)
        self.assertLessEqual(len(w.held()), 32)
        for i in range(1, 4):
            got, done = self.answers(w, 20 + i, prompt(i))
            self.assertEqual(got, right[i])
            self.assertGreater(done['shared'], 0)
            self.idle(w)

    def test_plan(self):
        """What the plan says of the store is done, and nothing else."""
        server = self.server()
        right, = self.put_by_one(server, prompt(1))
        w = self.sharing(server)
        _, done = self.answers(w, 1, prompt(1), mode=wire.COMPUTE)
        self.assertEqual(done['shared'], 0)
        v = self.sharing(server, 'v')
        _, done = self.answers(v, 1, prompt(1), mode=wire.LOAD)
        self.assertEqual(done['shared'], 0)  # it names no source
        u = self.sharing(server, 'u', '--step-tokens', '32', '--max-batch',
                         '8')
        got, done = self.answers(u, 1, prompt(1), mode=wire.BOTH,
                                 sources=[(wire.SHARED, 4, FULL)])
        self.assertEqual(got, right)
        self.assertGreater(done['shared'], 0)

    def test_behind_what_memory_has(self):
        """The store goes on where memory ends."""
        server = self.server()
        long = prompt(1)
        right, = self.put_by_one(server, long)
        w = self.sharing(server)
        self.answers(w, 1, long[:5 * BLOCK + 1], mode=wire.COMPUTE)
        got, done = self.answers(w, 2, long)
        self.assertEqual(got, right)
        self.assertEqual((done['local'], done['shared']),
                         (5 * BLOCK, (FULL - 5) * BLOCK))

    def test_other_models_never_meet(self):
        server = self.server()
        self.put_by_one(server, prompt(1))
        names = self.blocks(server)
        w = self.sharing(server, 'w', '--seed', '2')
        _, done = self.answers(w, 1, prompt(1))
        self.assertEqual(done['shared'], 0)
        self.kept(w, FULL)
        self.assertEqual(len(self.blocks(server)), 2 * len(names))
        other = self.sharing(server, 'l', '--layers', '2')
        _, done = self.answers(other, 1, prompt(1))
        self.assertEqual(done['shared'], 0)

    def test_another_tenant(self):
        """Other keys for the same tokens: nothing is found."""
        server = self.server()
        self.put_by_one(server, prompt(1))
        w = self.sharing(server)
        _, done = self.answers(w, 1, prompt(1), key_seed=6)
        self.assertEqual(done['shared'], 0)


class Damage(SharedCase):
    """What is wrong in the store is computed, and reported as gone."""

    def damaged(self, change):
        """Puts a prompt, has change(server, names by block) spoil it, and
        loads: what came from the store."""
        server = self.server()
        right, = self.put_by_one(server, prompt(1))
        w = self.sharing(server, 'finder', put='evicted')
        self.kept(w, FULL)
        change(server, self.blocks(server))
        got, done = self.answers(w, 1, prompt(1))
        self.assertEqual(got, right)
        self.idle(w)
        return w, done

    def test_cut_layers(self):
        def cut(server, names):
            for name in names:
                layer = server.command('HGET', name, '2')
                server.command('HSET', name, '2', layer[:-1])
        w, done = self.damaged(cut)
        self.assertEqual(done['shared'], 0)
        w.until('it is reported', lambda _: len(w.in_store()) < FULL)

    def test_flipped_layers(self):
        def flip(server, names):
            for name in names:
                layer = bytearray(server.command('HGET', name, '1'))
                layer[77] ^= 4
                server.command('HSET', name, '1', bytes(layer))
        _, done = self.damaged(flip)
        self.assertEqual(done['shared'], 0)

    def test_flipped_heads(self):
        def flip(server, names):
            for i, name in enumerate(names):
                head = bytearray(server.command('HGET', name, 'h'))
                head[(i * 7) % len(head)] ^= 1
                server.command('HSET', name, 'h', bytes(head))
        _, done = self.damaged(flip)
        self.assertEqual(done['shared'], 0)

    def test_swapped(self):
        """Every block is whole, under the key of another one."""
        def swap(server, names):
            for a, b in zip(names[::2], names[1::2]):
                server.command('RENAME', a, 'x')
                server.command('RENAME', b, a)
                server.command('RENAME', 'x', b)
        _, done = self.damaged(swap)
        self.assertEqual(done['shared'], 0)

    def test_swapped_layers(self):
        def swap(server, names):
            for name in names:
                one, two = server.command('HMGET', name, '0', '1')
                server.command('HSET', name, '0', two, '1', one)
        _, done = self.damaged(swap)
        self.assertEqual(done['shared'], 0)

    def test_the_child_of_a_collision(self):
        """A block with the right key, tokens and parent key that was computed
        behind another one: its head is whole, its chain is not ours."""
        def other_chain(server, names):
            for name in names:
                head = bytearray(server.command('HGET', name, 'h'))
                head[48] ^= 1
                head[-8:] = struct.pack('<Q', XXH3(bytes(head[:-8]),
                                                   len(head) - 8))
                server.command('HSET', name, 'h', bytes(head))
        _, done = self.damaged(other_chain)
        self.assertEqual(done['shared'], 0)

    def test_the_same_head_again(self):
        """What the case above relies on: a head that is made here counts."""
        def same(server, names):
            for name in names:
                head = server.command('HGET', name, 'h')
                server.command('HSET', name, 'h', head[:-8] + struct.pack(
                    '<Q', XXH3(head[:-8], len(head) - 8)))
        _, done = self.damaged(same)
        self.assertEqual(done['shared'], FULL * BLOCK)

    def test_gone_between(self):
        """Expired, or evicted by the store: the list says more than there
        is."""
        def drop(server, names):
            server.command('DEL', *names[::2])
        w, done = self.damaged(drop)
        self.assertLess(done['shared'], FULL * BLOCK)
        w.until('it is reported', lambda _: len(w.in_store()) < FULL)

    def test_other_types(self):
        def other(server, names):
            for name in names:
                server.command('DEL', name)
                server.command('SET', name, 'text')
        _, done = self.damaged(other)
        self.assertEqual(done['shared'], 0)

    def test_far_too_long(self):
        """A value that is longer than any of ours is not read in."""
        def grow(server, names):
            server.command('HSET', names[0], 'h', bytes(LONG))
        w, done = self.damaged(grow)
        self.assertEqual(done['shared'], 0)
        self.assertIn('is longer than the', self.log('finder'))
        with open(f'/proc/{w.process.pid}/status',
                  encoding='ascii') as f:
            most, = [int(line.split()[1]) for line in f
                     if line.startswith('VmHWM')]
        if settings.scale == 1:  # sanitizers take memory of their own
            self.assertLess(most << 10, LONG)

    def test_other_types_give_way(self):
        """Values of other types under the names of blocks and of the index:
        blocks are put all the same, those and others."""
        server = self.server()
        self.put_by_one(server, prompt(1))
        names = self.blocks(server)
        index = names[0].rpartition(':b:')[0] + ':index'
        for name in names[0], index:
            server.command('DEL', name)
            server.command('SET', name, 'text')
        again = self.sharing(server, 'again')
        self.answers(again, 2, prompt(1))
        self.answers(again, 3, prompt(2))
        wait_until('all are there', lambda: len(self.blocks(server)) ==
                   2 * FULL and server.command('TYPE', index) == 'zset')
        self.assertEqual(server.command('TYPE', names[0]), 'hash')
        self.assertNotIn('takes no blocks', self.log('again'))


class Faults(SharedCase):
    """The store gone, silent, emptied or full: requests go on."""

    def test_killed_and_back_empty(self):
        server = self.server()
        right, = self.put_by_one(server, prompt(1))
        w = self.sharing(server, put='evicted')
        before = w.shared(lambda s: s['id'] != 0)['id']
        server.kill()
        w.shared(lambda s: s['id'] == 0)
        got, done = self.answers(w, 1, prompt(1))
        self.assertEqual((got, done['shared']), (right, 0))
        server.start()
        after = w.shared(lambda s: s['id'] != 0, 60)
        self.assertNotEqual(after['id'], before)
        log = self.log('w')
        self.assertIn('is down', log)
        self.assertIn('is up again', log)
        self.idle(w)

    def test_killed_while_it_loads(self):
        server = self.server()
        long = prompt(1, 3000)
        right, = self.put_by_one(server, long)
        w = self.sharing(server, 'w', '--load-gbps', '0.05', put='evicted')
        w.prefill(1, long, 6)
        w.until('it loads', lambda _: server.command('INFO', 'commandstats')
                and b'cmdstat_hmget' in server.command('INFO', 'commandstats'))
        server.kill()
        done = w.prefill_done(1, 60)
        self.assertEqual(w.answer(1, done['first']), right)
        self.assertGreater(done['computed'], BLOCK)
        self.idle(w)

    def test_stopped(self):
        """A load waits for the time-out once; then nobody asks."""
        server = self.server()
        right, = self.put_by_one(server, prompt(1))
        w = self.sharing(server, 'w', timeout_ms=300, put='evicted')
        server.stop()
        try:
            got, done = self.answers(w, 1, prompt(1))
            self.assertEqual((got, done['shared']), (right, 0))
            w.shared(lambda s: s['id'] == 0)
            other, done = self.answers(w, 2, prompt(2))
            self.assertEqual(done['shared'], 0)
        finally:
            server.go_on()
        w.shared(lambda s: s['id'] != 0, 60)
        got, done = self.answers(w, 3, prompt(1), key_seed=5)
        self.assertEqual(got, right)
        self.idle(w)

    def test_first_address_is_a_replica(self):
        """It is left for the next one."""
        primary = self.server('primary')
        replica = self.server('replica',
                              replicaof=f'127.0.0.1 {primary.port}')

        class Both:
            def url(self):
                return (f'redis://127.0.0.1:{replica.port},'
                        f'127.0.0.1:{primary.port}')
        w = self.sharing(Both())
        self.answers(w, 1, prompt(1))
        wait_until('all are put', lambda: len(self.blocks(primary)) == FULL)
        self.idle(w)

    def test_not_there_at_the_start(self):
        server = self.server()
        server.kill()
        w = self.worker('w', 'both', '--shared-store', server.url(),
                        '--shared-store-mib', '8')
        self.answers(w, 1, prompt(1))
        w.shared(lambda s: s['id'] == 0)
        server.start()
        w.shared(lambda s: s['id'] != 0, 60)

    def test_full(self):
        """maxmemory is hit: no block is put for a time, old ones leave, and
        what is there is found."""
        server = self.server(maxmemory=3 << 20)
        w = self.sharing(server)
        right = {}
        for i in range(1, 11):
            right[i], _ = self.answers(w, i, prompt(i))
        w.shared(lambda s: s['failed'] > 0)
        self.assertIn('takes no blocks: OOM', self.log('w'))
        self.assertNotIn('is down', self.log('w'))
        self.idle(w)
        v = self.sharing(server, 'v', put='evicted')
        for i in range(1, 11):
            self.assertEqual(self.answers(v, i, prompt(i))[0], right[i])

    def test_output_buffer_limit(self):
        """The server cuts off whoever asks for much: a miss."""
        server = self.server()
        long = prompt(1, 3000)
        right, = self.put_by_one(server, long)
        server.command('CONFIG', 'SET', 'client-output-buffer-limit',
                       'normal 20000 20000 0')
        w = self.sharing(server, 'w', put='evicted')
        got, _ = self.answers(w, 1, long)
        self.assertEqual(got, right)
        self.idle(w)


class NoRedis(WorkerCase):
    def test_answers_of_the_wrong_form(self):
        """A server that is not Redis is away, and asked again after a
        pause."""
        class Good(socketserver.BaseRequestHandler):
            def handle(self):
                while self.request.recv(4096):
                    self.request.sendall(b'+OK\r\n')
        server = socketserver.ThreadingTCPServer(('127.0.0.1', 0), Good)
        server.daemon_threads = True
        self.addCleanup(server.server_close)
        threading.Thread(target=server.serve_forever).start()
        self.addCleanup(server.shutdown)
        w = self.worker('w', 'both', '--shared-store-mib', '8',
                        '--shared-store',
                        f'redis://127.0.0.1:{server.server_address[1]}')
        wait_until('it is down', lambda: 'is down: one of its answers is '
                   'malformed' in self.log('w'))
        self.leave(w)


class Bounds(SharedCase):
    def test_share(self):
        """--shared-store-mib bounds what all workers together keep."""
        server = self.server()
        # A block of 32 KiB takes 33.3 there.
        one = self.sharing(server, 'one', mib=1)
        two = self.sharing(server, 'two', mib=1)
        most = (1 << 20) // (BLOCK_BYTES + 1000)
        for i in range(1, 5):
            for w in (one, two):
                self.answers(w, i, prompt(i + 10 * (w is one)))
                self.idle(w)
        for w in (one, two):
            w.shared(lambda s: s['put'] >= 4 * FULL)
        self.assertLessEqual(len(self.blocks(server)), most)
        self.assertGreater(len(self.blocks(server)), most // 2)
        index, = [k for k in server.command('KEYS', '*:index')]
        self.assertEqual(server.command('ZCARD', index),
                         len(self.blocks(server)))

    def test_expiry(self):
        """Everything expires; what is used stays."""
        server = self.server()
        w = self.sharing(server, 'w', '--shared-store-ttl', '600')
        self.answers(w, 1, prompt(1))
        self.kept(w, FULL)
        for key in server.command('KEYS', '*'):
            self.assertGreater(server.command('TTL', key), 0, key)
        for name in self.blocks(server):
            server.command('EXPIRE', name, 50)
        v = self.sharing(server, 'v', '--shared-store-ttl', '600',
                         put='evicted')
        _, done = self.answers(v, 1, prompt(1))
        self.assertEqual(done['shared'], FULL * BLOCK)
        wait_until('they stay for longer', lambda: all(
            server.command('TTL', name) > 500 for name in self.blocks(server)))

    def test_password(self):
        server = self.server(requirepass='s3cret-word')
        w = self.sharing(server)
        self.answers(w, 1, prompt(1))
        self.kept(w, FULL)
        self.assertNotIn('s3cret', self.log('w'))
        wrong = self.worker('wrong', 'both', '--shared-store',
                            f'redis://:wr0ng@127.0.0.1:{server.port}',
                            '--shared-store-mib', '8')
        self.answers(wrong, 1, prompt(1))
        wrong.shared(lambda s: s['id'] == 0)
        wait_until('it says why', lambda: 'WRONGPASS' in self.log('wrong'))
        self.assertNotIn('wr0ng', self.log('wrong'))
        path = self.log_path('key')
        with open(path, 'w', encoding='ascii') as f:
            f.write('s3cret-word\n')
        v = self.worker('v', 'both', '--shared-store',
                        f'redis://127.0.0.1:{server.port}',
                        '--shared-store-mib', '8',
                        '--shared-store-password-file', path)
        v.shared(lambda s: s['id'] != 0)

    def test_no_prompt_is_told(self):
        """Nothing there has the tokens of a prompt, but as KV."""
        server = self.server()
        tokens = prompt(1)
        self.put_by_one(server, tokens)
        told = b''.join(t.to_bytes(4, 'little') for t in tokens[:BLOCK])
        for name in self.blocks(server):
            self.assertNotIn(told, server.command('HGET', name, 'h'))


TEXT = ''.join(chr(97 + i % 26) for i in range(40 * BLOCK_TOKENS + 3))


@unittest.skipUnless(REDIS, MISSING)
class Clusters(Case):
    """The conductor knows what the store has, and plans with it."""

    def begin(self, **config):
        self.redis = RedisServer(self)
        self.cluster_ = Cluster(self, {'policy': 'plan', **config},
                                {'prefill': (0, 400, 0, 0)})
        self.cluster_.start_conductor()

    def workers(self, *names, server=None):
        for name in names:
            self.cluster_.start_worker(
                name, 'both', shared_store=(server or self.redis).url(),
                shared_store_mib=64, shared_store_put='all')
        self.cluster_.wait_ready(len(names), len(names))

    def gauge(self, name, instance):
        return self.cluster_.api.metric(f'instance_{name}', instance=instance)

    def ask(self, text=TEXT):
        reply = self.cluster_.api.complete(text, 4).ok()
        return reply.body['choices'][0]['text'], reply.body['conductor']

    def restart_workers(self, *names):
        for process in self.cluster_.workers.values():
            process.kill()
        self.cluster_.workers.clear()
        wait_until('nobody is left', lambda:
                   self.cluster_.api.instances() == (0, 0))
        self.workers(*names)

    def all_put(self, n):
        wait_until('all blocks are there', lambda: len(
            self.redis.command('KEYS', '*:b:*')) == n)

    def test_all_workers_restarted(self):
        """The first request with an old prompt loads what is planned, by
        another worker than the one that computed it."""
        self.begin()
        self.workers('w0')
        right, vendor = self.ask()
        self.assertEqual(vendor['shared_tokens'], 0)
        self.all_put(40)
        self.restart_workers('w1', 'w2')
        wait_until('the store is known', lambda:
                   self.gauge('shared_store_up', 'w1') == 1 and
                   self.gauge('shared_store_up', 'w2') == 1)
        held = 'conductor_shared_store_blocks{model="tiny"}'
        wait_until('its blocks are known', lambda:
                   self.cluster_.api.metrics()[held] == 40)
        found = self.cluster_.api.post(
            '/admin/blocks', {'prompt': TEXT}).body['blocks']
        self.assertEqual([(b['held'], b['shared']) for b in found],
                         [([], True)] * 40)
        text, vendor = self.ask()
        self.assertEqual(text, right)
        self.assertGreater(vendor['shared_tokens'], 10 * BLOCK_TOKENS)
        why = self.cluster_.api.explain(vendor['request_id'])
        self.assertIn('shared', {s['from'] for s in why['plan']['sources']})
        self.assertEqual(why['actual']['shared_tokens'],
                         vendor['shared_tokens'])
        m = self.cluster_.api.metrics()
        self.assertEqual(m['conductor_cached_tokens_total{source="shared"}'],
                         vendor['shared_tokens'])
        self.assertGreater(m['conductor_shared_bytes_total'], 0)

    def test_emptied(self):
        """What the store no longer has is not counted on."""
        self.begin()
        self.workers('w0')
        right, _ = self.ask()
        self.all_put(40)
        held = 'conductor_shared_store_blocks{model="tiny"}'
        wait_until('its blocks are known', lambda:
                   self.cluster_.api.metrics()[held] == 40)
        self.redis.command('FLUSHALL')
        wait_until('they are forgotten', lambda:
                   self.cluster_.api.metrics()[held] < 40, 60)
        self.redis.kill()
        wait_until('it is away', lambda:
                   self.gauge('shared_store_up', 'w0') == 0)
        self.assertEqual(self.ask()[0], right)

    def test_another_store(self):
        """One whose store is not that of the others does not take part."""
        self.begin()
        self.workers('w0')
        self.ask()
        other = RedisServer(self, 'other')
        self.cluster_.start_worker('w1', 'both', shared_store=other.url(),
                                   shared_store_mib=64)
        wait_until('it is seen', lambda: 'differs from the other'
                   in self.cluster_.conductor.log())
        self.assertEqual(self.gauge('shared_store_up', 'w0'), 1)
        self.assertEqual(self.gauge('shared_store_up', 'w1'), 0)

    def test_most_decide(self):
        """Which store counts is what most workers have; when they leave, it is
        that of those who are left."""
        self.begin()
        self.workers('w0')
        other = RedisServer(self, 'other')
        for name in 'w1', 'w2':
            wait_until('the one that was there counts', lambda: self.gauge(
                'shared_store_up', 'w0') == 1)
            self.cluster_.start_worker(name, 'both', shared_store=other.url(),
                                       shared_store_mib=64)
            wait_until('it is there', lambda n=name: self.known(n))

        def up():
            return {n: self.gauge('shared_store_up', n)
                    for n in ('w0', 'w1', 'w2') if self.known(n)}
        wait_until('two outvote one', lambda: up() == {
            'w0': 0, 'w1': 1, 'w2': 1})
        for name in 'w1', 'w2':
            self.cluster_.workers.pop(name).kill()
        wait_until('one is left', lambda: up() == {'w0': 1})

    def known(self, instance):
        return (f'conductor_instance_shared_store_up{{instance="{instance}"}}'
                in self.cluster_.api.metrics())
