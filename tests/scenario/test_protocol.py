"""Strangers on the worker port: each is told why and closed, and nothing else
happens."""
import os
import re
import signal
import socket
import struct
import threading
import time

from harness import (BLOCK_TOKENS, Case, Peer, mostly_waits, total,
                     wait_until)
from test_failures import in_background
import wire


class Strangers(Case):
    def setUp(self):
        super().setUp()
        self.cluster_ = self.cluster()
        self.api = self.cluster_.api

    def tearDown(self):
        try:
            reply = self.api.complete('still here').ok()
            self.assertEqual(self.api.instances(), (1, 1))
        finally:
            super().tearDown()

    def refused(self, data, *words, logged=True):
        """The conductor answers `data` with an ERROR of these words."""
        peer = Peer(self.cluster_.ports['worker'])
        peer.send(data)
        text = peer.receive_error()
        peer.close()
        for word in words:
            self.assertIn(word, text)
        if logged:
            self.assertIn(words[0], self.cluster_.conductor.log())

    def hello(self, **fields):
        """A HELLO that fits this cluster but for `fields`. The log tells the
        fingerprint of the model, a refusal does not."""
        peer = Peer(self.cluster_.ports['worker'])
        peer.send(Peer.hello(name='scout', fingerprint=1))
        told = peer.receive_error()
        peer.close()
        found = re.search("workers' fingerprint is ([0-9a-f]{16})",
                          self.cluster_.conductor.log())
        self.assertNotIn(found.group(1), told)
        return Peer.hello(**{'fingerprint': int(found.group(1), 16),
                             **fields})

    def test_another_version(self):
        self.refused(Peer.hello(version=9), '9', str(Peer.VERSION))

    def test_a_newer_version(self):
        """A newer side that also speaks this version may say more in HELLO."""
        peer = Peer(self.cluster_.ports['worker'])
        peer.send(self.hello(newest=Peer.VERSION + 1, more=b'more'))
        kind, payload = peer.receive()
        self.assertEqual(kind, Peer.WELCOME, payload)
        self.assertEqual(payload[:2], struct.pack('<H', Peer.VERSION))
        peer.close()

    def test_another_model(self):
        self.refused(Peer.hello(model='llama-8b'), 'llama-8b', 'tiny')

    def test_another_fingerprint(self):
        self.refused(Peer.hello(fingerprint=1), '0000000000000001', '--seed',
                     '--layers', 'start it as the others')

    def test_another_block_size(self):
        self.refused(Peer.hello(block_tokens=64), '64', '16')

    def test_a_name_in_use(self):
        self.refused(self.hello(name='p0'), 'p0')

    def test_of_this_machine_and_of_another(self):
        """Those of other machines would look for p0 at 127.0.0.1."""
        self.refused(self.hello(host='192.0.2.7'), '192.0.2.7', '127.0.0.1',
                     '--listen')

    def test_names_nobody_could_print(self):
        for name in '', 'a b', 'a\nb', 'ü', '\x7f':
            with self.subTest(name=name):
                self.refused(self.hello(name=name), 'name')

    def test_a_name_to_be_escaped(self):
        peer = Peer(self.cluster_.ports['worker'])
        peer.send(self.hello(name='a"b\\c'))
        self.assertEqual(peer.receive()[0], Peer.WELCOME)
        lines = self.api.get('/metrics').body.decode().splitlines()
        self.assertIn('conductor_instance_ready{instance="a\\"b\\\\c"} 0',
                      lines)
        peer.close()
        wait_until('it is gone', lambda: self.api.health()[
            'instances']['starting'] == 0)

    def test_no_hello(self):
        self.refused(Peer.frame(Peer.STATUS, bytes(44)), 'HELLO')

    def test_bad_magic(self):
        self.refused(Peer.hello(magic=1), 'HELLO')

    def test_truncated_hello(self):
        whole = Peer.hello()
        self.refused(struct.pack('<I', 20) + whole[4:36], 'HELLO')

    def test_too_long_a_frame(self):
        self.refused(Peer.frame(Peer.HELLO, length=0xffffffff),
                     str(0xffffffff))

    def test_reserved_bits(self):
        self.refused(Peer.frame(Peer.HELLO, reserved=1), 'reserved')

    def test_http_on_the_worker_port(self):
        peer = Peer(self.cluster_.ports['worker'])
        peer.send(b'GET / HTTP/1.1\r\nHost: a\r\n\r\n')
        while peer.receive():
            pass
        peer.close()

    def closed_for(self, data, *words):
        """A worker that sends `data` after WELCOME loses its link, with an
        ERROR of these words, and is counted."""
        before = total(self.api.metrics(), 'conductor_bad_frames_total')
        peer = Peer(self.cluster_.ports['worker'])
        peer.send(self.hello())
        self.assertEqual(peer.receive()[0], Peer.WELCOME)
        peer.send(data)
        text = peer.receive_error()
        peer.close()
        for word in words:
            self.assertIn(word, text)
        self.assertEqual(
            total(self.api.metrics(), 'conductor_bad_frames_total'), before + 1)

    def test_bad_frame_after_welcome(self):
        self.closed_for(Peer.frame(wire.BLOCKS_STORED, b'\x07'),  # cut short
                        'BLOCKS_STORED', 'malformed')

    def test_a_second_hello(self):
        self.closed_for(self.hello(), 'HELLO', 'out of place')

    def test_an_unknown_type(self):
        for kind in 0, 30, 99, 0xffff:
            with self.subTest(kind):
                self.closed_for(Peer.frame(kind), f'type {kind}',
                                'out of place')

    def test_frames_of_the_other_direction(self):
        self.closed_for(Peer.frame(wire.CANCEL, request_id=1), 'CANCEL',
                        'out of place')

    def test_an_error(self):
        """A worker that closes says why, and is not to blame for it."""
        peer = Peer(self.cluster_.ports['worker'])
        peer.send(self.hello())
        self.assertEqual(peer.receive()[0], Peer.WELCOME)
        peer.send(Peer.frame(Peer.ERROR, struct.pack('<H', 2) +
                             Peer.text('PREFILL is malformed')))
        self.assertIsNone(peer.receive())
        peer.close()
        wait_until('the reason is logged', lambda: 'it refuses this conductor '
                   '(bad_frame): PREFILL is malformed' in
                   self.cluster_.conductor.log())
        self.assertEqual(
            total(self.api.metrics(), 'conductor_bad_frames_total'), 0)

    def test_a_request_id_that_was_never_given(self):
        for kind in (wire.DECODE_READY, wire.PREFILL_STARTED, wire.PREFILL_DONE,
                     wire.DONE, wire.FAILED):
            for request_id in 0, 2 ** 64 - 1:
                with self.subTest(f'{kind} of {request_id}'):
                    self.closed_for(Peer.frame(kind, request_id=request_id),
                                    f'type {kind}', 'out of place')
        self.closed_for(Peer.frame(wire.TOKENS, struct.pack(
            '<IQII', 1, 2 ** 64 - 1, 1, 1)), 'TOKENS', 'out of place')

    def test_leaves_in_the_middle(self):
        for size in 1, 10, 16, 30:
            peer = Peer(self.cluster_.ports['worker'])
            peer.send(Peer.hello()[:size])
            peer.close()


class Played(Case):
    """Workers that this file plays."""
    CONFIG = {'worker_timeout_ms': 600000}

    def setUp(self):
        super().setUp()
        self.cluster_ = self.cluster(prefill=0, decode=0, config=self.CONFIG)
        self.api = self.cluster_.api

    def worker(self, name, role):
        link = wire.Link(socket.create_connection(
            ('127.0.0.1', self.cluster_.ports['worker'])))
        link.send(Peer.hello(name=name, role=role) +
                  wire.frame(wire.STATUS, 0, bytes(44)))
        link.wait(wire.WELCOME)
        return link


class Liars(Played):
    """Workers that join and then say what cannot be. The conductor believes a
    worker only about itself: each loses its own link, and no other."""

    def test_started_before_it_was_sent(self):
        """A prefill worker cannot have begun what still waits for the decode
        worker. If that were believed, DECODE_READY would come too late."""
        liar, honest = self.worker('p', 1), self.worker('d', 2)
        self.cluster_.wait_ready(1, 1)
        answer = in_background(lambda: self.api.complete('a prompt'))
        honest.wait(wire.DECODE)
        request_id = next(r for k, r, _ in honest.frames if k == wire.DECODE)
        liar.send(wire.frame(wire.PREFILL_STARTED, request_id, bytes(8)))
        self.assertIn('out of place',
                      wire.parse_reason(liar.wait(wire.ERROR))[1])
        liar.wait_closed()
        honest.send(wire.frame(wire.DECODE_READY, request_id) +
                    wire.frame(wire.STATUS, 0, struct.pack(
                        '<IIIQQQQ', 0, 0, 0, 7, 7, 0, 0)))
        wait_until('the honest one is heard', lambda: total(
            self.api.metrics(), 'conductor_instance_kv_used_tokens') == 7 * BLOCK_TOKENS)
        self.assertEqual(answer().status, 503)
        wait_until('the liar is gone',
                   lambda: self.api.instances() == (0, 1))
        self.assertFalse(honest.closed)
        self.assertEqual(
            total(self.api.metrics(), 'conductor_bad_frames_total'), 1)
        honest.close()

    def test_tokens_before_the_prefill_was_sent(self):
        honest, liar = self.worker('p', 1), self.worker('d', 2)
        self.cluster_.wait_ready(1, 1)
        for name, tokens in ('d2', True), ('d3', False):
            answer = in_background(lambda: self.api.complete('a prompt', 4))
            liar.wait(wire.DECODE)
            request_id = [r for k, r, _ in liar.frames if k == wire.DECODE][-1]
            liar.send(wire.frame(wire.TOKENS, 0, struct.pack(
                '<IQII', 1, request_id, 1, 1)) if tokens else
                wire.frame(wire.DONE, request_id, struct.pack('<I', 1)))
            self.assertIn('out of place',
                          wire.parse_reason(liar.wait(wire.ERROR))[1])
            liar.wait_closed()
            self.assertEqual(answer().status, 503)
            self.assertFalse(honest.closed)
            liar = self.worker(name, 2)
            self.cluster_.wait_ready(1, 1)
        liar.close()
        honest.close()


class Stalled(Played):
    """Workers that are heard from, and do not go on with a request."""
    CONFIG = {**Played.CONFIG, 'request_timeout_ms': 1000, 'max_retries': 1}

    def begin(self):
        self.p, self.d = self.worker('p', 1), self.worker('d', 2)
        self.cluster_.wait_ready(1, 1)
        return in_background(lambda: self.api.complete('a prompt', 4))

    def ends(self, answer, name):
        reply = answer()
        self.assertError(reply, 502,
                         f'worker {name} made no progress for 1000 ms')
        self.assertEqual(reply.body['error']['code'], 'worker_failed')
        for link in self.p, self.d:
            self.assertFalse(link.closed)
            link.close()
        self.assertEqual(
            self.api.metric('requests_in_flight'), 0)

    @mostly_waits
    def test_a_decode_worker(self):
        answer = self.begin()
        self.d.wait(wire.DECODE)
        self.ends(answer, 'd')

    @mostly_waits
    def test_a_prefill_worker(self):
        answer = self.begin()
        told = set()
        while len(told) < 2:
            told.add(self.ready(told))
        self.ends(answer, 'p')

    def ready(self, told):
        """The decode worker is ready for the next attempt; its id."""
        def next_id():
            return next((r for k, r, _ in self.d.frames
                         if k == wire.DECODE and r not in told), None)
        wait_until('another attempt', next_id)
        self.d.send(wire.frame(wire.DECODE_READY, next_id()))
        return next_id()


class Orphans(Played):
    """KV whose prefill worker is gone may still be on its way."""
    CONFIG = {'worker_timeout_ms': 2000, 'max_retries': 0}

    def test_time_in_which_the_conductor_did_not_run(self):
        p, d = self.worker('p', 1), self.worker('d', 2)
        over = threading.Event()
        self.addCleanup(over.set)

        def live():
            while not over.wait(0.1):
                d.send(wire.frame(wire.STATUS, 0, bytes(44)))
        alive = threading.Thread(target=live)
        alive.start()
        self.cluster_.wait_ready(1, 1)
        prompt = 'a prompt'
        answer = in_background(lambda: self.api.complete(prompt, 2))
        d.wait(wire.DECODE)
        rid = next(r for k, r, _ in d.frames if k == wire.DECODE)
        d.send(wire.frame(wire.DECODE_READY, rid))
        p.wait(wire.PREFILL)
        p.send(wire.frame(wire.PREFILL_STARTED, rid, bytes(8)) +
               wire.frame(wire.PREFILL_DONE, rid, struct.pack(
                   '<IIIIIQQQQQQBIQ', ord('a'), 0, 0, len(prompt), 0, 0, 0, 0,
                   1000, 0, 0, wire.COMPUTE, 0, 0)))
        wait_until('it is prefilled', lambda: total(
            self.api.metrics(), 'conductor_computed_tokens_total') ==
            len(prompt))
        p.close()
        wait_until('the prefill worker is gone',
                   lambda: self.api.instances() == (0, 1))
        conductor = self.cluster_.conductor.child.pid
        os.kill(conductor, signal.SIGSTOP)
        time.sleep(2.5)  # longer than worker_timeout_ms: nobody's fault
        os.kill(conductor, signal.SIGCONT)
        for _ in range(5):  # it has looked what is late
            self.assertEqual(self.api.health()['requests_in_flight'], 1)
            time.sleep(0.1)
        d.send(wire.frame(wire.TOKENS, 0, struct.pack(
            '<IQII', 1, rid, 1, ord('b'))) +
            wire.frame(wire.DONE, rid, struct.pack('<I', 2)))
        got = answer().ok()
        self.assertEqual(got.body['choices'][0]['text'], 'ab')
        over.set()
        alive.join()
        d.close()
