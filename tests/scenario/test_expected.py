"""What is expected of engines that publish KV events, until the events come:
stand-ins that tell them when the test says so."""
import json
import threading

import engines
import stand_in
from harness import Case, Cluster, mostly_waits, settings, wait_until
from test_failures import in_background
from publisher import Engine, Publisher

PROMPT = list(range(100, 100 + 8 * 4))  # 8 blocks
USED = 7  # of these: the last token is always computed


class Expected(Case):
    def setUp(self):
        super().setUp()
        self.go_on = threading.Event()
        self.addCleanup(self.go_on.set)
        self.begun = 0
        self.status = 200
        self.all = [stand_in.Engine(self.serve) for _ in range(2)]
        for engine in self.all:
            self.addCleanup(engine.stop)
        self.publishers = []
        for _ in self.all:
            port = engines.free_ports(8)
            self.publishers.append(Publisher(port, port + 4))
            self.addCleanup(self.publishers[-1].stop)
        self.words = Engine(4711, 4)  # of what they publish
        self.cluster = Cluster(self)
        self.cluster.config = {
            'listen': '127.0.0.1:0', 'engine_health_ms': 50,
            'engines': [
                {'name': f'e{i}', 'kind': 'vllm', 'url': e.url, 'model': 'm',
                 'index': 'events', 'block_tokens': 4,
                 'kv_events': f'tcp://127.0.0.1:{p.port}',
                 'kv_replay': f'tcp://127.0.0.1:{p.replay_port}'}
                for i, (e, p) in enumerate(zip(self.all, self.publishers))]}
        self.cluster.start_conductor()
        self.api = self.cluster.api
        wait_until('all are ready', lambda: self.api.instances()[0] == 2)

    def serve(self, request, send):
        """A stream begins at once, and ends when the test goes on."""
        if not json.loads(request.body).get('stream'):
            send(stand_in.reply(self.status, {'choices': []}))
            return
        send(stand_in.stream_head())
        send(stand_in.chunk(stand_in.event({'choices': [{'text': 'a'}]})))
        self.go_on.wait()
        send(stand_in.chunk(stand_in.event('[DONE]')) + b'0\r\n\r\n')

    def begin(self, prompt):
        """A stream of whose answer the beginning has come; its engine."""
        connection, reply = self.api.open('POST', '/v1/completions', {
            'model': 'm', 'prompt': prompt, 'stream': True})
        self.addCleanup(connection.close)
        reply.readline()
        return reply.headers['x-conductor-prefill']

    def ask(self, prompt):
        """(engine, leading blocks counted on, those that were told)."""
        got = self.api.post('/v1/completions', {'model': 'm', 'prompt': prompt})
        self.assertEqual(got.status, self.status, got.body)
        why = self.api.explain(got)
        return (why['prefill'], why['predicted']['used_blocks'],
                why['predicted']['stored_blocks'])

    def publish(self, name, events):
        """Events of an engine, which the conductor has before this returns."""
        i = int(name[1])
        def taken():
            return self.api.metric('engine_events_total', instance=name)
        before = taken()
        self.publishers[i].publish(events)
        wait_until('they are taken', lambda: taken() >= before + len(events))

    def test_a_burst_stays_together(self):
        """Streams run, and no event has come: one prefix, one engine."""
        homes = {self.begin(PROMPT + [i] * 3) for i in range(8)}
        self.assertEqual(len(homes), 1)
        home = homes.pop()
        self.assertEqual(self.ask(PROMPT), (home, USED, 0))
        self.publish(home, [self.words.stored(PROMPT)])
        self.assertEqual(self.ask(PROMPT), (home, USED, USED))
        # They are told: what is removed now is not expected any more.
        chain = [self.words.hash_of(PROMPT[:4 * (i + 1)]) for i in range(8)]
        self.publish(home, [{'type': 'BlockRemoved', 'medium': 'GPU',
                             'block_hashes': chain[2:]}])
        self.status = 400
        self.assertEqual(self.ask(PROMPT), (home, 2, 2))
        self.go_on.set()

    def test_what_is_refused_is_not_expected(self):
        self.status = 400
        for _ in range(4):
            self.assertEqual(self.ask(PROMPT)[1:], (0, 0))

    def test_what_is_never_told(self):
        """Expected a while after the answer's end."""
        self.assertEqual(self.ask(PROMPT)[1:], (0, 0))
        self.status = 400  # from now on nothing new is expected
        self.assertEqual(self.ask(PROMPT)[2], 0)
        wait_until('it is given up', lambda: self.ask(PROMPT)[1:] == (0, 0))

    @mostly_waits
    def test_what_was_taken_from_an_engine(self):
        """A text whose tokens nobody tells: no event will name its blocks."""
        def blocks():
            return [self.api.metrics()[f'conductor_instance_blocks'
                                       f'{{instance="e{i}"}}'] for i in (0, 1)]

        def hang(request, send):
            if request.path == '/v1/completions':
                self.go_on.wait(60 * settings.scale)
            return self.serve(request, send)
        for i in 0, 1:
            self.publish(f'e{i}', [self.words.stored(PROMPT)])
        for engine in self.all:
            engine.serve = hang
        got = in_background(lambda: self.ask('a text of some words' * 9))
        wait_until('it is sent', lambda: max(blocks()) > 8)
        first = blocks().index(max(blocks()))
        self.all[first].silent = self.go_on
        wait_until('it is taken back', lambda:
            self.api.metric('retries_total') == 1, 60)
        self.assertEqual(blocks()[first], 8)
        self.go_on.set()
        self.assertEqual(got()[0], f'e{1 - first}')
        self.assertEqual(blocks()[first], 8)

    def test_a_cleared_cache(self):
        home, *_ = self.ask(PROMPT)
        self.publish(home, [{'type': 'AllBlocksCleared'}])
        self.status = 400
        self.assertEqual(self.ask(PROMPT)[1:], (0, 0))

    def test_its_size_comes_late(self):
        """What is known by events stays when the engine tells its size."""
        self.publish('e0', [self.words.stored(PROMPT)])
        for engine in self.all:
            engine.metrics = ('vllm:cache_config_info{block_size="4",'
                              'num_gpu_blocks="77"} 1\n')
        wait_until('blocks are told', lambda:
            self.api.metric('engine_kv_blocks', instance='e0') == 77)
        self.assertEqual(self.ask(PROMPT), ('e0', USED, USED))


class Silence(Case):
    def test_few_requests_without_events(self):
        """Two are enough, after a while; then events come."""
        port = engines.free_ports(1)
        engine = stand_in.Engine()
        self.addCleanup(engine.stop)
        cluster = Cluster(self)
        cluster.config = {
            'listen': '127.0.0.1:0', 'engine_health_ms': 50, 'engines': [{
                'name': 'e0', 'url': engine.url, 'model': 'm',
                'kv_events': f'tcp://127.0.0.1:{port}'}]}
        cluster.start_conductor()
        wait_until('it is ready', lambda: cluster.api.instances()[0] == 1)
        state = 'conductor_engine_events_state{instance="e0"}'
        # Nothing was asked of it; what it said before is not known.
        self.assertEqual(cluster.api.metrics()[state], 2)
        for i in range(2):
            cluster.api.post('/v1/completions', {
                'model': 'm', 'prompt': [i] * 100})
        wait_until('the log tells', lambda: 'no KV events arrive' in
                   cluster.conductor.log())
        self.assertEqual(cluster.api.metrics()[state], 1)
        publisher = Publisher(port)
        self.addCleanup(publisher.stop)

        def told():
            publisher.publish([{'type': 'AllBlocksCleared'}])
            return 'its KV events arrive' in cluster.conductor.log()
        wait_until('they come', told)
        self.assertNotEqual(cluster.api.metrics()[state], 1)
