"""Several conductors in front of the same engines of others."""
import threading
import unittest

import engines
from harness import Cluster, wait_until
from redis_server import MISSING, REDIS, RedisServer
from stand_in import Engine, reply
from test_conductors import OverRedis
from test_failures import in_background


class OverEngines(OverRedis):
    def begin_over(self, *lists):
        """A conductor for each list of engines."""
        self.redis = RedisServer(self)
        self.clusters = []
        for i, listed in enumerate(lists):
            cluster = Cluster(self, name=f'c{i}')
            cluster.config = {
                'listen': '127.0.0.1:0', 'engine_health_ms': 50,
                'state': self.redis.url(), 'state_lease_ms': self.LEASE_MS,
                'engines': listed}
            cluster.start_conductor()
            self.clusters.append(cluster)
        for c, listed in zip(self.clusters, lists):
            self.ready(c, len(listed))
            wait_until(f'{c.name} knows all', lambda c=c: self.metric(
                c, 'state_conductors') == len(lists))
        return self.clusters

    def ready(self, cluster, n):
        wait_until('the engines are ready', lambda:
                   cluster.api.instances()[0] == n)


@unittest.skipUnless(REDIS, MISSING)
class StandIns(OverEngines):
    def setUp(self):
        super().setUp()
        self.free = threading.Event()

    def tearDown(self):
        self.free.set()
        super().tearDown()

    def test_late_engine(self):
        """What others gave an engine before this conductor had it counts, and
        what they give it goes on doing so."""
        free = self.free

        def serve(request, send):
            free.wait(60)
            send(reply(200, {'choices': [], 'usage': {
                'prompt_tokens': 9, 'completion_tokens': 1}}))
        both = [Engine(serve) for _ in range(2)]
        for e in both:
            self.addCleanup(e.stop)
        listed = [{'name': f'e{i}', 'url': e.url, 'model': 'm'}
                  for i, e in enumerate(both)]
        a, b = self.begin_over(listed, listed[:1])

        def ask(c):
            return in_background(lambda: c.api.post('/v1/completions', {
                    'model': 'm', 'prompt': [1] * 9, 'max_tokens': 50}))
        answers = [ask(a) for _ in range(4)]
        wait_until('both engines have half', lambda: all(
            len(e.requests) == 2 for e in both))
        self.wait_foreign(b, 4)
        self.assertNotEqual(self.booked(a), self.booked(b))
        added = b.api.post('/admin/instances', listed[1])
        self.assertLess(added.status, 300, added.body)
        self.ready(b, 2)
        wait_until('both believe the same', lambda:
                   self.booked(a) == self.booked(b))
        # A fifth and a sixth one go where the others' are fewest.
        both[0].requests.clear()
        both[1].requests.clear()
        answers += [ask(b), ask(b)]
        wait_until('one each', lambda: all(
            len(e.requests) == 1 for e in both))
        free.set()
        for answer in answers:
            self.assertEqual(answer().status, 200)
        for c in a, b:
            self.wait_foreign(c, 0)


@unittest.skipUnless(REDIS, MISSING)
class Mocked(OverEngines, engines.Case):
    only_loopback = True

    def test_each_subscribes(self):
        """What one conductor had an engine compute, the other one finds, as
        each hears the engine's events itself."""
        mockers = [engines.Mocker(self, f'mocker{i}') for i in range(2)]
        listed = [{
            'name': f'e{i}', 'kind': 'vllm', 'url': m.url,
            'model': engines.MODEL, 'block_tokens': m.block_tokens,
            'kv_events': f'tcp://127.0.0.1:{m.events_port}',
            'kv_replay': f'tcp://127.0.0.1:{m.replay_port}',
            'index': 'events'} for i, m in enumerate(mockers)]
        clusters = self.begin_over(listed, listed)
        homes = {}
        for turn in range(4):
            for i in range(4):
                c = clusters[(turn + i) % 2]
                got = c.api.post('/v1/completions', {
                    'model': engines.MODEL, 'max_tokens': 2,
                    'prompt': [4 + i] * (160 + 40 * turn)}).ok()
                engine = got.headers['x-conductor-prefill']
                # From the second turn on the other one has it from the
                # engine's events alone.
                self.assertEqual(homes.setdefault(i, engine), engine)
                cached = got.body['usage'].get('prompt_tokens_details') or {}
                if turn:
                    self.assertGreaterEqual(
                        cached.get('cached_tokens', 0),
                        (120 + 40 * turn) // 16 * 16)
                wait_until('both have heard of the same', lambda: self.metric(
                    clusters[0], 'instance_blocks') == self.metric(
                        clusters[1], 'instance_blocks') >= 0)
        for c in clusters:
            self.wait_foreign(c, 0)
