"""Blocks that workers copy from each other before a request asks for them, and
blocks that they are told to drop; and a conductor that orders it."""
import random
import struct
import threading
import time
import urllib.parse

import wire
from harness import BLOCK_TOKENS, Case, Cluster, wait_until
from test_drain import change
from test_load_peers import Trickle
from test_order import PlayedWorker
from test_worker import BLOCK, BLOCK_BYTES, LAYERS, WorkerCase

RNG = random.Random(4)
TOKENS = [RNG.randrange(256) for _ in range(20 * BLOCK + 3)]
KEYS = wire.block_keys(TOKENS, BLOCK, 5)
COST = {'prefill': (1000, 1000, 0, 0)}


class Worker(WorkerCase):
    def test_copies(self):
        """What was copied is reported, used as if it had been computed here,
        and copied on; a copy may begin behind what is there."""
        a, b, c = (self.worker(name, 'both') for name in 'abc')
        want, _ = self.run_here(a, 1, TOKENS, 5)
        b.copy(2, a.address, KEYS[:12])
        self.assertEqual(b.copied(2), 12)
        self.assertEqual(b.held(), set(KEYS[:12]))
        b.copy(3, a.address, KEYS, 12)
        self.assertEqual(b.copied(3), 8)
        c.copy(4, b.address, KEYS)
        self.assertEqual(c.copied(4), 20)
        for link in b, c:
            got, done = self.run_here(link, 5, TOKENS, 5)
            self.assertEqual((got, done['local']), (want, 20 * BLOCK))
            self.idle(link)
        # All of it is there.
        b.copy(6, a.address, KEYS)
        self.assertEqual(b.copied(6), 0)

    def test_what_is_not_there(self):
        """A holder that has a part of it, or nothing; one that is gone."""
        a, b = self.worker('a', 'both'), self.worker('b', 'both')
        self.run_here(a, 1, TOKENS[:7 * BLOCK], 1)
        b.copy(2, a.address, KEYS)
        self.assertEqual(b.copied(2), 7)
        b.copy(3, a.address, [1, 2, 3])
        self.assertEqual(b.copied(3), 0)
        b.copy(4, a.address, KEYS, key_seed=6)
        self.assertEqual(b.copied(4), 0)
        gone = a.address
        self.leave(a)
        b.copy(5, gone, KEYS, 7)
        self.assertEqual(b.copied(5), 0)
        self.idle(b)
        self.assertEqual(b.held(), set(KEYS[:7]))

    def test_liar(self):
        """Other tokens than those of the keys: only blocks before them are
        taken, and only if what is here before them has the peer's tokens."""
        for right in (0, 5):
            lie = TOKENS[:right * BLOCK] + [9] * (20 - right) * BLOCK
            with self.part(right):
                link = self.worker('b', 'both')
                peer = Trickle(lie, 0, BLOCK_BYTES // LAYERS)
                link.copy(2, peer.address, KEYS)
                self.assertEqual(link.copied(2), right)
                self.assertEqual(link.held(), set(KEYS[:right]))
                self.idle(link)
                peer.close()

    def test_rate_and_cancel(self):
        """No faster than it was told; a cancelled one leaves nothing pinned."""
        a, b = self.worker('a', 'both'), self.worker('b', 'both')
        self.run_here(a, 1, TOKENS, 1)
        begin = time.monotonic()
        b.copy(2, a.address, KEYS[:10], rate=20 * BLOCK_BYTES)
        self.assertEqual(b.copied(2), 10)
        self.assertGreater(time.monotonic() - begin, 0.4)
        gate = wire.Gate(a.address)
        b.copy(3, gate.address, KEYS, 10)
        wait_until('the copy waits', lambda: gate.closed)
        b.cancel(3)
        self.idle(b)
        self.assertFalse([k for k, _, _ in b.by_id.get(3, [])])
        gate.open()

    def test_requests_come_first(self):
        """While a request loads, a copy waits; at most four are taken."""
        a, b = self.worker('a', 'both'), self.worker('b', 'both')
        other = [7] * (10 * BLOCK + 1)
        self.run_here(a, 1, TOKENS, 1)
        self.run_here(a, 2, other, 1)
        gate = wire.Gate(a.address)
        b.prefill(3, other, 1, fetch=gate.address, blocks=(0, 10),
                  mode=wire.LOAD)
        wait_until('the load waits', lambda: gate.closed)
        for rid in range(10, 15):
            b.copy(rid, a.address, KEYS)
        self.assertEqual(b.failure(14)[0], 5)
        time.sleep(0.3)
        self.assertFalse(b.held() & set(KEYS))
        gate.open()
        b.prefill_done(3)
        self.assertEqual(sum(b.copied(rid) for rid in range(10, 14)), 20)
        self.idle(b)

    def test_drop(self):
        """Cold blocks leave from the last one up, as far as nothing is behind
        them or uses them."""
        a = self.worker('a', 'both')
        self.run_here(a, 1, TOKENS, 1)
        self.idle(a)
        a.drop(KEYS[19], 5)
        wait_until('five are gone', lambda: a.held() == set(KEYS[:15]))
        a.drop(KEYS[3], 2)  # others stand behind it
        a.drop(12345, 3)
        a.drop(KEYS[14], 100)
        wait_until('all are gone', lambda: not a.held())

    def test_bad_frames(self):
        for payload in (b'', struct.pack('<Q', 5) + wire.text('') +
                        struct.pack('<HQIIQ', 1, 9, 0, 1, 7),
                        struct.pack('<Q', 5) + wire.text('h') +
                        struct.pack('<HQIIQ', 1, 0, 0, 1, 7),
                        struct.pack('<Q', 5) + wire.text('h') +
                        struct.pack('<HQIIQ', 1, 9, 1, 1, 7)):
            with self.part(payload):
                link = self.worker('a', 'both')
                link.send(wire.frame(wire.COPY, 1, payload))
                link.wait_closed()
        with self.part('drop'):
            link = self.worker('a', 'both')
            link.send(wire.frame(wire.DROP, 0, struct.pack('<QI', 5, 0)))
            link.wait_closed()


class Daemon(Case):
    def test_crowd(self):
        """One document, asked for by many: it comes to more workers, with a
        reason, and it is seen where it lies."""
        # A fetch takes longer than the queue: requests stay on one worker.
        cluster = Cluster(self, {'policy_options': {'replicate': 1},
                                 'link_mbps': 1}, COST)
        cluster.start_conductor()
        for i in range(3):  # names that need the most room in JSON
            cluster.start_worker(str(i) + '"' * 62, 'both', engine='timed',
                                 load_gbps='0.001')
        cluster.wait_ready(3, 3)
        document = [i * 7 % 250 for i in range(40 * BLOCK_TOKENS)]
        over = threading.Event()

        def client(n):
            k = 0
            while not over.is_set():
                k += 1
                cluster.api.complete(document + [n, k % 250] * 30, 1)
        clients = [threading.Thread(target=client, args=(n,)) for n in range(4)]
        for c in clients:
            c.start()
        try:
            wait_until('it is copied', lambda:
                cluster.api.metric('replication_blocks_total') > 0, 60)
        finally:
            over.set()
            for c in clients:
                c.join()
        metrics = cluster.api.metrics()
        # Who has a copy uses it, and is told why it is there.
        while True:
            reply = cluster.api.complete(document + [9] * 40, 1)
            told = cluster.api.explain(reply.body['conductor']['request_id'])
            if told['copied']:
                break
            holders = [c['to'] for c in cluster.api.get(
                '/admin/copies').body['copies'] if c['blocks']]
            self.assertNotIn(told['prefill'], holders)
            change(cluster, urllib.parse.quote(told['prefill']), 'drain')
        copied = told['copied']
        self.assertNotEqual(copied['from'], told['prefill'])
        self.assertEqual(copied['first_block'], 0)
        self.assertLessEqual(copied['end_block'], 40)
        self.assertGreater(copied['reason']['per_s'], 0)
        self.assertGreater(metrics['conductor_replication_passes_total'], 0)
        self.assertGreater(metrics['conductor_replication_wanted_total'], 0)
        copies = cluster.api.get('/admin/copies').body['copies']
        for copy in copies:
            self.assertEqual(copy['order'], 'copy')
            self.assertGreater(copy['reason']['per_s'], 0)
            self.assertGreater(copy['reason']['busy_ratio'],
                               copy['reason']['after_ratio'])
        tokens = ','.join(map(str, document))
        blocks = cluster.api.get('/admin/blocks?tokens=' +
                                 tokens).body['blocks']
        self.assertEqual(len(blocks), 40)
        self.assertGreater(len(blocks[39]['held']), 1)
        one = cluster.api.get('/admin/blocks?key=' +
                              blocks[39]['key']).body['blocks']
        self.assertEqual(one, blocks[39:])
        self.assertEqual(one[0]['held'][0]['tiers'], ['host'])

    def test_replicas(self):
        """As many workers hold a prompt as somebody says, and what can then
        be reused there is what the first one has computed."""
        cluster = self.cluster(prefill=3, decode=1)
        document = 'What is kept here is kept by one. ' * 4
        n = len(document) // BLOCK_TOKENS
        prompt = urllib.parse.quote(document)

        def ask(copies, what='prompt', value=prompt):
            return cluster.api.post(
                f'/admin/replicas?copies={copies}&{what}={value}')

        def holders():
            blocks = cluster.api.get(
                f'/admin/blocks?prompt={prompt}').body['blocks']
            return [h['instance'] for h in blocks[-1]['held']]
        self.assertError(ask(2), 404, 'no native worker', 'prompt')
        first = cluster.api.complete(document, 8)
        reply = ask(3).ok()
        self.assertEqual((reply.body['blocks'], reply.body['holders'],
                          len(reply.body['orders'])), (n, 1, 2))
        for order in reply.body['orders']:
            self.assertEqual((order['order'], order['blocks']), ('copy', n))
            self.assertEqual([order['from']], holders()[:1])
        wait_until('three have it', lambda: len(holders()) == 3)
        copies = cluster.api.get('/admin/copies').body['copies']
        self.assertEqual([c['reason'] for c in copies],
                         [{'told': True, 'holders': 1}] * 2)
        change(cluster, first.body['conductor']['prefill'], 'drain')
        again = cluster.api.complete(document, 8)
        self.assertEqual(again.body['choices'][0]['text'],
                         first.body['choices'][0]['text'])
        self.assertEqual(again.body['conductor']['local_tokens'],
                         n * BLOCK_TOKENS)
        change(cluster, first.body['conductor']['prefill'], 'undrain')
        reply = ask(1, 'tokens', ','.join(str(ord(c)) for c in document))
        self.assertEqual([o['order'] for o in reply.body['orders']],
                         ['drop'] * 2)
        wait_until('one has it', lambda: len(holders()) == 1)
        copies = cluster.api.get('/admin/copies').body['copies']
        self.assertEqual([(c['order'], c['reason']) for c in copies[:2]],
                         [('drop', {'told': True, 'holders': 3})] * 2)
        for words in ((0, 'prompt', 'a'), 'copies: "0"'), (
                ('1025', 'prompt', 'a'), 'copies: "1025"'), (
                ('x', 'prompt', 'a'), 'copies: "x"'), (
                (1, 'key', 'a'), 'key: "a"'), (
                (1, 'tokens', '1,'), 'tokens: "1,"'), (
                (1, 'prompt', ''), 'prompt: ""'):
            self.assertError(ask(*words[0]), 400, words[1])
        self.assertError(cluster.api.post(
            '/admin/replicas?copies=1'), 400, 'prompt')
        # The same in a body, which may be longer than a request line.
        for body in {'prompt': document}, {
                'tokens': [ord(c) for c in document]}:
            reply = cluster.api.post('/admin/replicas', {'copies': 1, **body})
            self.assertEqual((reply.body['blocks'], reply.body['holders'],
                              reply.body['orders']), (n, 1, []))
            blocks = cluster.api.post('/admin/blocks', body)
            self.assertEqual([b['held'][0]['instance']
                              for b in blocks.body['blocks']], holders() * n)
        one = blocks.body['blocks'][-1]
        self.assertEqual(cluster.api.post(
            '/admin/blocks', {'key': one['key']}).body['blocks'], [one])
        for body, *words in (
                ({'copies': 0, 'prompt': 'a'}, 'copies: 0'),
                ({'copies': 1}, 'prompt, tokens: must be one of them'),
                ({'copies': 1, 'prompt': 'a', 'tokens': [1]}, 'one of them'),
                ({'copies': 1, 'prompt': ''}, 'prompt: ""'),
                ({'copies': 1, 'tokens': [1, -1]}, 'tokens: [1,-1]'),
                ({'copies': 1, 'key': 'a'}, 'key', 'no such field'),
                ([1], 'must be an object')):
            self.assertError(cluster.api.post(
                '/admin/replicas', body), 400, *words)
        self.assertError(cluster.api.post(
            '/admin/replicas?copies=1', {'prompt': 'a'}), 400, 'query')

    def test_a_worker_that_is_lost(self):
        """A copy to it has ended, with no block."""
        cluster = Cluster(self)
        cluster.start_conductor()
        document = 'Blocks of one that others are to copy. ' * 4
        a, b = (PlayedWorker(cluster.ports['worker'], name, 'both')
                for name in 'ab')
        cluster.wait_ready(2, 2)
        blocks = cluster.api.post('/admin/blocks', {
            'prompt': document}).body['blocks']
        a.hold([int(block['key'], 16) for block in blocks], wire.HOST)

        def copies():
            return [c['blocks'] for c in cluster.api.get(
                '/admin/copies').body['copies']]
        wait_until('it is ordered', lambda: cluster.api.post(
            '/admin/replicas', {'copies': 2, 'prompt': document}
        ).body.get('orders'))
        b.wait(wire.COPY)
        self.assertEqual(copies(), [None])
        b.close()
        wait_until('it has ended', lambda: copies() == [0])
        a.close()

    def test_bad_questions(self):
        cluster = Cluster(self)
        cluster.start_conductor()
        for query, *words in (
                ('', 'key', 'prompt'), ('?key=', 'key: ""'),
                ('?key=xyz', 'key: "xyz"', 'hexadecimal'),
                ('?key=00', 'key: "00"'),
                ('?key=' + '1' * 17, 'key: "1111'),
                ('?tokens=1,,2', 'tokens: "1,,2"'),
                ('?tokens=1,2x', 'tokens: "1,2x"'),
                ('?tokens=4294967296', 'tokens: "4294967296"'),
                ('?promt=a', 'promt: "a"', 'only key, prompt and tokens'),
                ('?key=1&x', 'x: ""'), ('?keys=1', 'keys: "1"'),
                ('?key=1&tokens=2', 'tokens: "2"', 'one of')):
            reply = cluster.api.get('/admin/blocks' + query)
            self.assertError(reply, 400, *words)
        reply = cluster.api.get('/admin/blocks?prompt=' + 'ab%20' * 99)
        self.assertEqual(reply.status, 200)
        self.assertEqual(len(reply.body['blocks']), 297 // BLOCK_TOKENS)
        self.assertEqual(reply.body['block_tokens'], BLOCK_TOKENS)
        # A blank is a +, as a form has it.
        self.assertEqual(cluster.api.get(
            '/admin/blocks?prompt=' + 'ab+' * 99).body, reply.body)
