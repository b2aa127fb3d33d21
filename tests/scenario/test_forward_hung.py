"""Engines that take a request and say nothing more: they hold on to what they
were given, and a client must not wait for them for ever."""
import http.client
import threading
import time

from harness import mostly_waits, settings, total, wait_until
from stand_in import chunk, event, stream_head
from test_forward import EngineCase
from test_failures import in_background

LIMIT_MS = 500
LATE = {'request_timeout_ms': LIMIT_MS, 'policy': 'round_robin'}


class HungEngines(EngineCase):
    def setUp(self):
        super().setUp()
        self.go_on = threading.Event()

    def tearDown(self):
        self.go_on.set()
        super().tearDown()

    def hang(self, *_):
        self.go_on.wait(60 * settings.scale)
        return 'close'

    def both(self, cluster):
        """Two requests, of which the first engine has at least one."""
        for reply in [answer() for answer in [in_background(
                lambda: self.post(cluster, {'prompt': 'x', 'stream': True}))
                for _ in range(2)]]:
            self.assertEqual(reply.status, 200, reply.body)
            self.assertEqual(reply.headers['x-conductor-prefill'], 'e1')
        self.assertEqual(len(self.all[0].requests), 1)
        self.assertEqual(total(cluster.api.metrics(),
                               'conductor_retries_total'), 1)

    @mostly_waits
    def test_nothing_comes(self):
        cluster = self.engines(self.hang, None, config=LATE)
        self.both(cluster)
        self.assertRegex(cluster.conductor.log(),
                         f'engine e0: .* made no progress for {LIMIT_MS} ms')

    @mostly_waits
    def test_only_interim_answers(self):
        def serve(_, send):
            while not self.go_on.is_set():
                send(b'HTTP/1.1 102 Processing\r\n\r\n')
                time.sleep(0.02)
        self.both(self.engines(serve, None, config=LATE))

    @mostly_waits
    def test_all_hang(self):
        cluster = self.engines(self.hang, config={**LATE, 'max_retries': 1})
        self.assertError(self.post(cluster, {'prompt': 'x'}), 502)
        self.assertEqual(len(self.all[0].requests), 2)

    @mostly_waits
    def test_in_the_middle(self):
        def serve(_, send):
            send(stream_head() + chunk(event('one')))
            return self.hang()
        cluster = self.engines(serve, None, config=LATE)
        connection, response = self.stream(cluster, 'e0')
        with self.assertRaises(http.client.IncompleteRead):
            response.read()
        connection.close()
        self.assertRegex(cluster.conductor.log(), 'the answer is broken off')

    def stream(self, cluster, engine):
        """An answer of that engine, whose head has come."""
        while True:
            connection, response = cluster.api.open(
                'POST', '/v1/completions',
                {'model': 'm', 'stream': True, 'prompt': 'x'})
            if response.headers['x-conductor-prefill'] == engine:
                return connection, response
            response.read()
            connection.close()

    @mostly_waits
    def test_a_client_that_does_not_read(self):
        """It holds its engine up: that is no fault of the engine."""
        blocks = [chunk(event('x' * 65000))] * 400

        def serve(_, send):
            send(stream_head())
            for block in blocks:
                send(block)
            send(b'0\r\n\r\n')
        cluster = self.engines(serve, config={'request_timeout_ms': 2000})
        connection, response = self.stream(cluster, 'e0')
        time.sleep(4)
        self.assertEqual(len(response.read()),
                         len(blocks) * len(event('x' * 65000)))
        connection.close()

    @mostly_waits
    def test_nor_does_its_health_answer(self):
        """Long before the request is late it is somebody else's."""
        cluster = self.engines(self.hang, None, config={
            'engine_timeout_ms': 200, 'policy': 'round_robin'})
        answers = [in_background(
            lambda: self.post(cluster, {'prompt': 'x', 'stream': True}))
            for _ in range(2)]
        wait_until('it has one', lambda: self.all[0].requests)
        self.all[0].silent = self.go_on
        for answer in answers:
            self.assertEqual(answer().status, 200)
        self.assertRegex(cluster.conductor.log(), 'engine e0 gets no work')
        self.assertGreaterEqual(total(cluster.api.metrics(),
                                      'conductor_retries_total'), 1)

    @mostly_waits
    def test_the_only_engine_keeps_its_requests(self):
        """Nobody else can have them."""
        began, go_on = threading.Event(), threading.Event()

        def serve(request, send):
            began.set()
            go_on.wait(60 * settings.scale)
            return self.all[0].complete(request, send)
        cluster = self.engines(serve, config={'engine_timeout_ms': 200})
        answer = in_background(lambda: self.post(cluster, {'prompt': 'x'}))
        wait_until('it has it', began.is_set)
        self.all[0].silent = self.go_on
        wait_until('it is suspect',
                   lambda: 'engine e0 gets no work' in cluster.conductor.log())
        go_on.set()
        self.assertEqual(answer().status, 200)
