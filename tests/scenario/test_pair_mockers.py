"""Dynamo's mockers as pairs of engines: rooms where others' code meets."""
import http.client
import json
import os
import random
import signal
import threading

import engines
from harness import Cluster, mostly_waits, settings, wait_until
from test_failures import in_background
import publisher  # noqa: F401  what the mockers' events need

P, D, BOTH = 'prefill', 'decode', 'both'
BLOCK, BLOCKS = 16, 256


class MockerPairs(engines.Case):
    only_loopback = True

    def pool(self, *roles, speed=0, blocks=BLOCKS, config=None):
        """Conductor in front of mockers of these roles, e0, e1, .."""
        self.legs = [engines.MockerLeg(
            self, role, f'mocker{i}', blocks=blocks, block_tokens=BLOCK,
            options=['--speedup-ratio', speed])
            for i, role in enumerate(roles)]
        self.cluster = Cluster(self)
        self.cluster.config = {
            'listen': '127.0.0.1:0', 'engine_health_ms': 100,
            'engines': [self.entry(i, leg)
                        for i, leg in enumerate(self.legs)],
            **(config or {})}
        self.cluster.start_conductor()
        wait_until('all are ready', lambda: all(
            i['state'] == 'ready' for i in self.instances()))

    @staticmethod
    def entry(i, leg):
        entry = {'name': f'e{i}', 'kind': 'sglang', 'url': leg.url,
                 'model': engines.MODEL, 'block_tokens': BLOCK,
                 'role': leg.role}
        if leg.role != BOTH:
            entry['kv_connector'] = 'sglang'
        if leg.role == P:
            entry['bootstrap_port'] = leg.bootstrap_port
        if leg.role != D:  # decode engines tell nothing
            entry.update({
                'kv_events': f'tcp://127.0.0.1:{leg.events_port}',
                'kv_replay': f'tcp://127.0.0.1:{leg.replay_port}'})
        return entry

    def instances(self):
        return self.cluster.api.listed()

    def ask(self, prompt, max_tokens=4, **more):
        return self.cluster.api.post('/v1/completions', {
            'model': engines.MODEL, 'prompt': prompt,
            'max_tokens': max_tokens, **more})

    def check(self, got, prompt, max_tokens=4):
        """An answer of one request, whole: a mocker's tokens are random."""
        self.assertEqual(got.status, 200, got.body)
        body = got.body
        self.assertEqual(body['choices'][0]['finish_reason'], 'length')
        self.assertEqual(body['choices'][0]['text'].count('<'), max_tokens)
        self.assertEqual(
            [body['usage'][name + '_tokens']
             for name in ('prompt', 'completion')], [len(prompt), max_tokens])

    def clean(self):
        """Nothing is booked, and engines hold no block: each serves a prompt
        that needs them all."""
        wait_until('nothing is booked', lambda: all(
            i['prefills'] == i['decodes'] == 0 for i in self.instances()))
        whole = tokens(random.Random(1), BLOCKS * BLOCK - 2 * BLOCK)
        for _ in self.legs:
            self.check(self.ask(whole), whole)


def tokens(rng, n):
    return [rng.randrange(4, 250) for _ in range(n)]


class Served(MockerPairs):
    def test_answers(self):
        """Streamed and not, one token too; what a prefill engine holds is
        known by its events."""
        self.pool(P, D)
        rng = random.Random(7)
        for i in range(30):
            prompt, n = tokens(rng, rng.randrange(1, 900)), rng.randrange(1, 9)
            got = self.ask(prompt, n)
            self.check(got, prompt, n)
            self.assertEqual((got.headers['x-conductor-prefill'],
                              got.headers['x-conductor-decode']), ('e0', 'e1'))
            if i % 3 == 0:
                got = self.ask(prompt, n, stream=True).ok()
                text = got.body if isinstance(got.body, str) else \
                    got.body.decode()
                self.assertEqual(text.count('<'), n)
                self.assertIn('data: [DONE]', text)
        wait_until('blocks are known', lambda:
            self.cluster.api.metric('instance_blocks', instance='e0') > 0)
        got = self.ask(prompt)
        why = self.cluster.api.explain(got)
        self.assertEqual(why['predicted']['used_blocks'],
                         (len(prompt) - 1) // BLOCK)
        self.clean()

    def test_engines_are_killed(self):
        """One of each role, with -9, amid requests: all are answered, once."""
        self.pool(P, P, D, D, speed=20)
        rng, answers = random.Random(11), []

        def client(prompts):
            for prompt in prompts:
                answers.append((prompt, self.ask(prompt)))
        clients = [threading.Thread(target=client, args=(
            [tokens(rng, rng.randrange(200, 900)) for _ in range(20)],))
            for _ in range(4)]
        for thread in clients:
            thread.start()
        for part, killed in ((1, 0), (2, 2)):
            wait_until('it is time', lambda: len(answers) >= 25 * part)
            self.legs[killed].kill()
        for thread in clients:
            thread.join()
        self.assertEqual(len(answers), 80)
        for prompt, got in answers:
            self.check(got, prompt)
        for leg in self.legs[0], self.legs[2]:
            leg.start()
        wait_until('all are ready', lambda: all(
            i['state'] == 'ready' for i in self.instances()))
        self.clean()

    def test_clients_leave(self):
        """Amid the prefill and the decode: both engines stop."""
        self.pool(P, D, speed=1)
        rng = random.Random(13)
        for i in range(6):
            connection = http.client.HTTPConnection(
                '127.0.0.1', self.cluster.api.port,
                timeout=60 * settings.scale)
            connection.request('POST', '/v1/completions', json.dumps(
                {'model': engines.MODEL, 'prompt': tokens(rng, 1500),
                 'max_tokens': 2000, 'stream': True}))
            if i % 2:  # it decodes
                connection.getresponse().read(10)
            else:
                wait_until('it is accepted', lambda: any(
                    k['prefills'] + k['decodes'] for k in self.instances()))
            connection.close()
            wait_until('it has ended', lambda: all(
                k['prefills'] == k['decodes'] == 0 for k in self.instances()))
        self.clean()

    @mostly_waits
    def test_a_prefill_engine_is_stopped(self):
        """It hangs, and accepts connections: requests go on with another
        one, in another room."""
        self.pool(P, P, D, config={'request_timeout_ms': 1500,
                                   'policy': 'round_robin'})
        os.kill(self.legs[0].engine.child.pid, signal.SIGSTOP)
        rng = random.Random(17)
        prompts = [tokens(rng, 300) for _ in range(2)]
        for prompt, got in [(p, in_background(lambda p=p: self.ask(p)))
                            for p in prompts]:
            self.check(got(), prompt)
        self.assertIn('made no progress for 1500 ms',
                      self.cluster.conductor.log())
        os.kill(self.legs[0].engine.child.pid, signal.SIGCONT)
        wait_until('all are ready', lambda: all(
            i['state'] == 'ready' for i in self.instances()))
        self.clean()

    def test_beside_an_aggregated_one(self):
        """A pair and an engine that does both serve one model."""
        self.pool(P, D, BOTH, speed=10, config={'policy': 'round_robin'})
        rng = random.Random(19)
        pairs = set()
        for _ in range(12):
            prompt = tokens(rng, rng.randrange(100, 900))
            got = self.ask(prompt)
            self.check(got, prompt)
            pairs.add((got.headers['x-conductor-prefill'],
                       got.headers.get('x-conductor-decode')))
        self.assertIn(('e0', 'e1'), pairs)
        self.assertTrue({('e2', None), ('e2', 'e2')} & pairs, pairs)
        self.clean()
