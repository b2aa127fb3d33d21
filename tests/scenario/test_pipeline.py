"""A prompt that several workers prefill together, each some of the layers: its
tokens are those of one worker, and nothing that a member does hurts."""
import os
import random
import socket
import struct
import threading
import time

import wire
from harness import cost_model_json, mostly_waits, wait_until
from test_worker import BLOCK, WorkerCase

CAPABILITIES = 1 << 8
LAYERS = 4  # of tiny
CHUNK = 50
ROW_BYTES = 16  # of engine timed


class Member:
    """A stand-in for a member: accepts the leader's connection."""

    def __init__(self, capabilities=CAPABILITIES):
        self.listener = wire.Conductor()
        self.capabilities = capabilities

    @property
    def address(self):
        return '127.0.0.1', self.listener.port

    def accept(self):
        link = wire.Link(self.listener.listener.accept()[0])
        link.wait(wire.HELLO)
        link.send(wire.frame(wire.WELCOME, 0, struct.pack(
            '<HQII', wire.VERSION, self.capabilities, 0, 0) + wire.text('')))
        return link

    def close(self):
        self.listener.close()


class PipelineCase(WorkerCase):
    def group(self, n, *more):
        return [self.worker(f'w{i}', 'both', *more) for i in range(n)]

    def ends(self, members):
        """The members of a group that shares the layers evenly."""
        each = LAYERS // (len(members) + 1)
        return [(m.address, (i + 2) * each) for i, m in enumerate(members)]

    def lead(self, leader, members, rid, tokens, n, chunk=64, **more):
        leader.lead(rid, tokens, n, self.ends(members), chunk,
                    LAYERS // (len(members) + 1), **more)

    def run_group(self, leader, members, rid, tokens, n, **more):
        self.lead(leader, members, rid, tokens, n, **more)
        done = leader.prefill_done(rid, 60)
        return leader.answer(rid, done['first']), done

    def cost(self, **more):
        path = os.path.join(self.folder.name, 'cost.json')
        with open(path, 'w') as file:
            file.write(cost_model_json(**more))
        return '--engine', 'timed', '--cost-model', path


class Pipeline(PipelineCase):
    def test_same_tokens(self):
        """40 prompts over random groups, chunks, prefixes and places of
        decoding."""
        seed = int(os.environ.get('CONDUCTOR_SEED', time.time_ns() % 2 ** 32))
        print(f'   CONDUCTOR_SEED={seed}', flush=True)
        rng = random.Random(seed)
        workers = self.group(4, '--step-tokens', '128')
        one = self.worker('one', 'both')
        d = self.worker('d', 'decode')
        root = [rng.randrange(256) for _ in range(500)]
        reused = 0
        for i in range(1, 41):
            tokens = root[:rng.randrange(400)] + [
                rng.randrange(256) for _ in range(rng.randrange(1, 700))]
            n = rng.randrange(1, 7)
            want, _ = self.run_here(one, i, tokens, n, key_seed=i)
            rng.shuffle(workers)
            leader, *members = workers[:rng.choice((2, 4))]
            chunk = rng.randrange(16, 129)
            if rng.random() < 0.5:
                d.decode_of(i, tokens, n)
                d.wait(wire.DECODE_READY, i)
                self.lead(leader, members, i, tokens, n, chunk,
                          decode=d.address)
                done = leader.prefill_done(i, 60)
                got = d.answer(i, done['first']) if n > 1 else [done['first']]
            else:
                got, done = self.run_group(leader, members, i, tokens, n,
                                           chunk=chunk)
            self.assertEqual(got, want, (i, len(tokens), n))
            self.assertEqual(done['computed'] + done['local'], len(tokens))
            reused += done['local']
        self.assertGreater(reused, 0)
        for i in range(4):
            self.assertNotIn('goes on alone', self.log(f'w{i}'))
        for w in (*workers, d):
            self.idle(w)
            self.leave(w)

    def test_reuse(self):
        """The leader holds the blocks afterwards, a member holds none."""
        leader, member = self.group(2)
        tokens = [i % 256 for i in range(500)]
        self.run_group(leader, [member], 1, tokens, 1)
        keys = wire.block_keys(tokens, BLOCK, 5)
        wait_until('blocks', lambda: leader.held() == set(keys))
        self.assertEqual(member.held(), set())
        _, done = self.run_here(leader, 2, tokens, 1)
        self.assertEqual(done['local'], 496)

    def test_beside_others(self):
        """A leader and a member with requests of their own at the same time,
        and two groups that lead each other."""
        a, b = self.group(2)
        long = [i % 251 for i in range(3000)]
        want, _ = self.run_here(a, 1, long, 3, key_seed=9)
        self.lead(a, [b], 2, long, 3, key_seed=10)
        self.lead(b, [a], 3, long, 3, key_seed=10)
        for i in range(10, 20):
            a.prefill(i, long[:i * 10], 4)
            b.prefill(i, long[:i * 10], 4)
        for w, rid in ((a, 2), (b, 3)):
            done = w.prefill_done(rid, 60)
            self.assertEqual(w.answer(rid, done['first']), want)
            self.assertEqual(done['computed'], 3000)
        for i in range(10, 20):
            self.assertEqual(a.answer(i, a.prefill_done(i)['first']),
                             b.answer(i, b.prefill_done(i)['first']))
        for w in (a, b):
            self.idle(w)

    @mostly_waits
    def test_timed(self):
        """Simulated engines agree, too."""
        workers = self.group(4, *self.cost())
        tokens = [i * 7 % 256 for i in range(1500)]
        want, _ = self.run_here(workers[0], 1, tokens, 3, key_seed=6)
        got, _ = self.run_group(workers[0], workers[1:], 2, tokens, 3)
        self.assertEqual(got, want)


class PipelineTrouble(PipelineCase):
    def setUp(self):
        super().setUp()
        self.tokens = [i * 3 % 256 for i in range(400)]

    def stand_in(self, **more):
        """A worker, what it answers alone, and a member that is not real."""
        leader = self.worker('w', 'both', *more.pop('options', ()))
        want, _ = self.run_here(leader, 1, self.tokens, 3, key_seed=99)
        return leader, want, Member(**more)

    def begin(self, leader, member, rid=2, chunk=64):
        leader.lead(rid, self.tokens, 3, [(member.address, LAYERS)], chunk, 1)

    def finishes_alone(self, leader, want, rid=2):
        done = leader.prefill_done(rid, 20)
        self.assertEqual(leader.answer(rid, done['first']), want)
        self.assertIn('goes on alone', self.log('w'))
        self.idle(leader)

    def test_no_such_member(self):
        leader, want, member = self.stand_in()
        member.close()
        self.begin(leader, member)
        self.finishes_alone(leader, want)

    def test_no_stages_there(self):
        leader, want, member = self.stand_in(capabilities=0)
        self.begin(leader, member)
        link = member.accept()
        self.finishes_alone(leader, want)
        self.assertEqual([k for k, _, _ in link.frames], [wire.HELLO])

    def test_refused(self):
        leader, want, member = self.stand_in()
        self.begin(leader, member)
        link = member.accept()
        n, after, chunk, first, end = struct.unpack(
            '<5I', link.wait(wire.STAGE_BEGIN, 2))
        self.assertEqual((n, after, chunk, first, end), (400, 0, 64, 1, 4))
        link.send(wire.frame(wire.STAGE_REFUSE, 2, struct.pack('<H', 5) +
                             wire.text('no')))
        self.finishes_alone(leader, want)

    def test_bad_frames(self):
        """Every bad frame of a member ends its connection and the group, and
        no request."""
        done = wire.frame(wire.STAGE_DONE, 2, struct.pack('<II', 64, 0))
        data = bytes(2 * 256 * 64)

        def kv(layer=1, start=0, n=64, raw=data, checksum=None):
            return wire.frame(wire.STAGE_KV, 2, struct.pack(
                '<IIIQI', layer, start, n, wire.xxh3(raw) if checksum is None
                else checksum, len(raw)) + raw)

        def rows(raw):
            return wire.frame(wire.STAGE_ROWS, 2, struct.pack(
                '<IIQI', 0, 64, wire.xxh3(raw), len(raw)) + raw)
        bad = {
            'ready twice': wire.frame(wire.STAGE_READY, 2),
            'done too soon': done + done,
            'done elsewhere': wire.frame(wire.STAGE_DONE, 2,
                                         struct.pack('<II', 63, 0)),
            'KV of a chunk that is not done': kv(),
            'layer': done + kv(layer=0),
            'beyond': done + kv(layer=LAYERS),
            'hole': done + kv(start=1, n=63, raw=data[:63 * 512]),
            'size': done + kv(raw=data[:-1]),
            'checksum': done + kv(checksum=1),
            'rows of the last': done + rows(bytes(64 * 512)),
            'another id': wire.frame(wire.STAGE_DONE, 3,
                                     struct.pack('<II', 64, 0)),
            'another frame': wire.frame(wire.KV_GRANT, 2),
        }
        for name, data_sent in bad.items():
            with self.part(name):
                self.tokens = [i * 3 % 256 for i in range(400)]
                leader, want, member = self.stand_in()
                self.begin(leader, member)
                link = member.accept()
                link.wait(wire.STAGE_BEGIN, 2)
                link.send(wire.frame(wire.STAGE_READY, 2))
                if data_sent.startswith(done):
                    link.until('a chunk', lambda frames: sum(
                        struct.unpack_from('<I', p, 4)[0] for k, _, p in frames
                        if k == wire.STAGE_ROWS) >= 64)
                link.send(data_sent)
                self.finishes_alone(leader, want)
                link.wait_closed()
                member.close()

    def test_window(self):
        """A member that computes nothing gets two chunks, then silence; a
        leader that is told to forget closes the connection."""
        leader, want, member = self.stand_in()
        self.begin(leader, member)
        link = member.accept()
        link.wait(wire.STAGE_BEGIN, 2)
        link.send(wire.frame(wire.STAGE_READY, 2))

        def sent(frames):
            return sum(struct.unpack_from('<I', p, 4)[0]
                       for k, _, p in frames if k == wire.STAGE_ROWS)
        link.until('two chunks', lambda frames: sent(frames) >= 128)
        time.sleep(0.2)
        self.assertEqual(sent(link.frames), 128)
        leader.cancel(2)
        link.wait_closed()
        self.idle(leader)
        member.close()

    def test_silence(self):
        """A member that says nothing is given up in time."""
        leader, want, member = self.stand_in(
            options=('--push-timeout-ms', '500'))
        self.begin(leader, member)
        member.accept()
        self.finishes_alone(leader, want)

    def test_member_killed(self):
        """In the middle of a prompt: the leader goes on where its KV is
        whole, and the answer is right."""
        timed = self.cost(prefill=(0, 1000, 0, 0))
        w, x, y = (self.worker(name, 'both', *timed) for name in 'wxy')
        tokens = [i % 256 for i in range(1000)]
        want, _ = self.run_here(y, 1, tokens, 3)
        self.lead(w, [x], 2, tokens, 3)
        wait_until('the first blocks', lambda: len(w.held()) >= 8)
        x.process.kill()
        self.finishes_alone(w, want)

    def test_leader_killed(self):
        """The member gives back what it was lent."""
        timed = self.cost(prefill=(0, 1000, 0, 0))
        w, x = (self.worker(name, 'both', *timed) for name in 'wx')
        self.lead(w, [x], 2, [i % 256 for i in range(1000)], 3)
        x.status(lambda s: s['pinned'] > 0)
        w.process.kill()
        self.idle(x)
        self.leave(x)

    def stage(self, w, rid, n_tokens=100, answer=wire.STAGE_READY):
        """A connection of a leader whose last stage is ready, or refused."""
        link = wire.Link(socket.create_connection(w.address))
        self.addCleanup(link.close)
        link.send(wire.hello(fingerprint=w.hello['fingerprint'],
                             block_tokens=BLOCK, capabilities=CAPABILITIES))
        link.wait(wire.WELCOME)
        link.send(wire.frame(wire.STAGE_BEGIN, rid, struct.pack(
            '<5I', n_tokens, 0, CHUNK, LAYERS // 2, LAYERS)))
        link.wait(answer, rid)
        return link

    def test_too_many_stages(self):
        """One more than 16 is refused as busy: later it may be computed."""
        x = self.worker('x', 'both')
        for rid in range(2, 18):
            self.stage(x, rid)
        link = self.stage(x, 18, answer=wire.STAGE_REFUSE)
        code, why = wire.parse_reason(link.wait(wire.STAGE_REFUSE, 18))
        self.assertEqual((code, 'too many stages' in why), (5, True))

    def test_silent_leader(self):
        """A member whose leader says nothing keeps nothing for it."""
        x = self.worker('x', 'both', '--push-timeout-ms', '100')
        link = self.stage(x, 2)
        x.status(lambda s: s['pinned'] > 0)
        link.wait_closed()
        self.idle(x)
        self.assertIn('is silent', self.log('x'))

    def test_stages_take_turns(self):
        """A stage that always has a chunk does not keep another one waiting
        until its end."""
        x = self.worker('x', 'both', *self.cost(prefill=(0, 2000, 0, 0)))
        chunks = 10
        data = bytes(CHUNK * ROW_BYTES)
        one, two = self.stage(x, 2, chunks * CHUNK), self.stage(x, 3)

        def chunk(link, rid, i):
            link.send(wire.frame(wire.STAGE_ROWS, rid, struct.pack(
                '<IIQI', i * CHUNK, CHUNK, wire.xxh3(data), len(data)) + data))

        def n_done(link):
            with link.changed:
                return sum(k == wire.STAGE_DONE for k, _, _ in link.frames)

        def feed():
            for i in range(chunks):
                one.until('room', lambda frames, least=i - 1: sum(
                    k == wire.STAGE_DONE for k, _, _ in frames) >= least)
                chunk(one, 2, i)
        feeder = threading.Thread(target=feed)
        feeder.start()
        one.until('a chunk', lambda frames: any(
            k == wire.STAGE_DONE for k, _, _ in frames))
        chunk(two, 3, 0)
        two.wait(wire.STAGE_DONE, 3)
        self.assertLess(n_done(one), chunks)
        feeder.join()

    def test_no_room(self):
        """A member without room for the KV refuses."""
        w = self.worker('w', 'both')
        small = self.worker('small', 'both', '--kv-blocks', '4')
        want, _ = self.run_here(w, 1, self.tokens, 3, key_seed=8)
        self.lead(w, [small], 2, self.tokens, 3)
        self.finishes_alone(w, want)

    def test_bad_layers(self):
        """A group that does not fit the model: the worker goes without it."""
        w = self.worker('w', 'both')
        want, _ = self.run_here(w, 1, self.tokens, 3, key_seed=8)
        for rid, (layer, end, chunk) in enumerate(
                ((1, 3, 64), (1, 5, 64), (1, 4, 5000)), 2):
            w.lead(rid, self.tokens, 3, [(w.address, end)], chunk, layer)
            done = w.prefill_done(rid)
            self.assertEqual(w.answer(rid, done['first']), want)

    def test_bad_leader(self):
        """What a leader sends wrongly closes its connection, and frees what
        it had."""
        w = self.worker('w', 'both')
        begin = wire.frame(wire.STAGE_BEGIN, 2,
                           struct.pack('<5I', 100, 0, 50, 2, 4))
        raw = bytes(50 * 512)

        def rows(start=0, n=50, data=raw, checksum=None):
            return wire.frame(wire.STAGE_ROWS, 2, struct.pack(
                '<IIQI', start, n, wire.xxh3(data) if checksum is None
                else checksum, len(data)) + data)
        bad = {
            'no BEGIN': rows(),
            'two': begin + begin,
            'from layer 0': wire.frame(wire.STAGE_BEGIN, 2, struct.pack(
                '<5I', 100, 0, 50, 0, 4)),
            'a hole': begin + rows(start=1, n=49, data=raw[:49 * 512]),
            'beyond the chunk': begin + rows(n=51, data=raw + bytes(512)),
            'size': begin + rows(data=raw[:-1]),
            'checksum': begin + rows(checksum=3),
            'KV of no prefix': begin + wire.frame(
                wire.STAGE_KV, 2, struct.pack('<IIIQI', 2, 0, 1,
                                              wire.xxh3(bytes(512)), 512) +
                bytes(512)),
            'done': begin + wire.frame(wire.STAGE_DONE, 2,
                                       struct.pack('<II', 50, 0)),
        }
        for name, data in bad.items():
            with self.subTest(name):
                link = wire.Link(socket.create_connection(w.address))
                link.send(wire.hello(fingerprint=w.hello['fingerprint'],
                                     block_tokens=BLOCK,
                                     capabilities=CAPABILITIES))
                link.wait(wire.WELCOME)
                link.send(data)
                link.wait_closed()
                self.idle(w)
        for layers, why in (((4, 5), 'too many'), ((1, 3), None)):
            link = wire.Link(socket.create_connection(w.address))
            link.send(wire.hello(fingerprint=w.hello['fingerprint'],
                                 block_tokens=BLOCK,
                                 capabilities=CAPABILITIES))
            link.wait(wire.WELCOME)
            link.send(wire.frame(wire.STAGE_BEGIN, 2, struct.pack(
                '<5I', 100, 0, 50, *layers)))
            if why:
                self.assertIn(why, wire.parse_reason(
                    link.wait(wire.STAGE_REFUSE, 2))[1])
            else:
                link.wait(wire.STAGE_READY, 2)
            link.close()
