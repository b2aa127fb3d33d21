"""Clients that mean harm, or hang: what they get, and what others still get."""
import json
import re
import socket
import threading

from harness import Case, read_file, sanitized, settings, wait_until
from stand_in import chunk, event, stream_head
from test_forward import EngineCase
from test_tenants import bearer, entry

HEAD = b'POST %s HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n%s\r\n'
CHUNKED = (b'POST %s HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n'
           b'\r\n')
SMUGGLED = b'GET /health HTTP/1.1\r\nHost: a\r\n\r\n'


class Attack(Case):
    def connect_from(self, host, port):
        """Another client: all of 127.0.0.0/8 is this machine."""
        s = socket.create_connection(('127.0.0.1', port),
                                     20 * settings.scale, (host, 0))
        self.addCleanup(s.close)
        return s

    def connect(self, port, receive_bytes=None):
        s = socket.socket()
        self.addCleanup(s.close)
        if receive_bytes:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        s.settimeout(20 * settings.scale)
        s.connect(('127.0.0.1', port))
        return s

    @staticmethod
    def statuses(s):
        """Of all answers until the daemon closes."""
        data = b''
        while True:
            try:
                more = s.recv(65536)
            except (ConnectionResetError, BrokenPipeError):
                more = b''
            if not more:
                return [int(n) for n in
                        re.findall(rb'HTTP/1.1 (\d+) ', data)]
            data += more

    def gauge(self, cluster, name):
        return cluster.api.metric(f'http_{name}')


class Early(Attack):
    """Route, key and limits are looked at before the body."""

    def test_slow_uploads_to_nowhere(self):
        cluster = self.cluster(prefill=0, decode=0,
                               config={'max_connections': 80})
        slow = [self.connect(cluster.api.port) for _ in range(64)]
        for s in slow:
            s.sendall(HEAD % (b'/v1/nothing', 10 << 20, b'') + b'x' * 30000)
        for s in slow:
            self.assertEqual(self.statuses(s), [404])
        self.assertEqual(self.gauge(cluster, 'body_bytes'), 0)
        self.assertEqual(cluster.api.get('/v1/models').status, 200)
        for s in slow:
            s.close()
        wait_until('they are forgotten', lambda:
                   self.gauge(cluster, 'connections') == 1)

    def test_what_follows_is_no_request(self):
        """Of a body whose head was answered nothing is a request, whether it
        has come, comes later, or never all of it."""
        path = self.write('tenants.json', json.dumps(
            {'tenants': [entry('a', 'one')]}))
        cluster = self.cluster(prefill=0, decode=0, config={
            'tenants_file': path, 'api_keys': 'required'})
        long = SMUGGLED * 20
        last = b'GET /health HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n'
        for route, status in ((b'/v1/completions', 401), (b'/health', 401),
                              (b'/nothing', 401)):
            # All of it is here: the connection goes on behind it.
            s = self.connect(cluster.api.port)
            s.sendall(HEAD % (route, len(long), b'') + long + last)
            self.assertEqual(self.statuses(s), [status, 200])
            for head, body in (
                    (HEAD % (route, 1 << 20, b''), long),
                    (HEAD % (route, 1 << 20, b'Expect: 100-continue\r\n'), b''),
                    (CHUNKED % route, b'%x\r\n%s\r\n0\r\n\r\n' % (
                        len(long), long))):
                s = self.connect(cluster.api.port)
                s.sendall(head + body)
                s.sendall(b'' if head.endswith(b'chunked\r\n\r\n') else
                          SMUGGLED)
                self.assertEqual(self.statuses(s), [status], (head, body))

    def test_limits_are_looked_at_first(self):
        path = self.write('tenants.json', json.dumps({'tenants': [
            {**entry('a', 'one'), 'requests_per_minute': 2}]}))
        log = self.write('access.log', '')
        cluster = self.cluster(prefill=0, decode=0, config={
            'tenants_file': path, 'api_keys': 'required', 'access_log': log})
        head = HEAD % (b'/v1/completions', 1000,
                       b'Authorization: Bearer one\r\n')
        for _ in range(2):  # a head counts, whatever becomes of it
            s = self.connect(cluster.api.port)
            s.sendall(head)
            s.shutdown(socket.SHUT_WR)
            self.assertEqual(self.statuses(s), [])
        s = self.connect(cluster.api.port)
        s.sendall(head)
        self.assertEqual(self.statuses(s), [429])
        self.assertError(cluster.api.post('/v1/completions', {
            'prompt': 'x'}), 401, 'header authorization: missing')
        self.assertError(cluster.api.post('/v1/completions', {
            'prompt': 'x'}, bearer('no')), 401, 'the key is unknown')

        def lines():
            return [json.loads(line) for line in read_file(log).splitlines()]
        wait_until('all are in the log', lambda: len(lines()) == 3)
        self.assertEqual(
            [[line[k] for k in ('tenant_name', 'path', 'status', 'outcome',
                                'reason')] for line in lines()],
            [[name, '/v1/completions', status, 'refused', reason]
             for name, status, reason in (
                 ('a', 429, 'rate_limit_requests'),
                 ('other', 401, 'invalid_api_key'),
                 ('other', 401, 'invalid_api_key'))])


class Connections(Attack):
    """Idle ones are closed for others; busy ones of one client leave room."""

    def crowd(self, limit, n):
        """A probe and a request, while n idle clients are there."""
        cluster = self.cluster(prefill=0, decode=0,
                               config={'max_connections': limit})
        crowd = []
        for i in range(n):
            crowd.append(self.connect(cluster.api.port))
            if i % 3 == 0:  # some have begun to say something
                crowd[-1].sendall(b'GET /health HT')
        for _ in range(3):
            self.assertEqual(cluster.api.get('/health').status, 200)
            self.assertEqual(cluster.api.get('/v1/models').status, 200)
        self.assertLessEqual(self.gauge(cluster, 'connections'), limit + 16)
        self.assertGreaterEqual(self.gauge(cluster, 'evicted_total'),
                                n - limit)
        self.assertEqual(crowd[0].recv(1), b'')  # the oldest went first
        crowd[-1].setblocking(False)
        self.assertRaises(BlockingIOError, crowd[-1].recv, 1)

    def test_1100_idle_clients_at_a_limit_of_1024(self):
        self.crowd(1024, 1100)

    def test_4096_idle_clients(self):
        self.crowd(4096, 4200)


class Bodies(Attack):
    def test_one_client_leaves_memory_to_others(self):
        """Bodies that never end take four fifths of what there is."""
        mib = 1 << 20
        cluster = self.cluster(prefill=0, decode=0, config={
            'max_body_bytes': 1 * mib, 'max_body_total_bytes': 10 * mib})
        for _ in range(20):
            s = self.connect(cluster.api.port)
            try:
                s.sendall(HEAD % (b'/v1/completions', mib, b'') +
                          b' ' * (mib - 10))
            except (ConnectionResetError, BrokenPipeError):
                pass  # refused before all of it was sent
        wait_until('some are refused', lambda: self.gauge(
            cluster, 'bodies_refused_total') > 0)
        self.assertIn(self.gauge(cluster, 'body_bytes') // mib, (7, 8))
        s = self.connect_from('127.0.0.2', cluster.api.port)
        body = b' ' * (mib - 10)
        s.sendall(HEAD % (b'/v1/completions', len(body), b'') + body)
        self.assertIn(b'no_ready_instance', s.recv(4096))


class Readers(Attack):
    """Streams whose clients take nothing: one figure bounds their memory."""
    figure = 4 << 20

    def stall(self, port, host, tokens):
        """The system takes little for it: its window is small."""
        s = socket.socket()
        self.addCleanup(s.close)
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        s.bind((host, 0))
        s.connect(('127.0.0.1', port))
        body = (b'{"prompt": "x", "stream": true, "max_tokens": %d}' % tokens)
        s.sendall(HEAD % (b'/v1/completions', len(body), b'') + body)
        return s

    def test_300_stalled_readers(self):
        cluster = self.cluster(
            prefill=0, decode=0, both=1, engine='timed', kv_mib=1024,
            cost={'prefill': (20, 0, 0, 0), 'decode': (500, 0, 0)},
            config={'max_output_total_bytes': self.figure})
        unsent = lambda: self.gauge(cluster, 'unsent_bytes')
        before = cluster.conductor.rss_mib()
        # Each is sent some 200 KB: fifteen times the figure in all.
        sockets = [self.stall(cluster.api.port, f'127.0.0.{2 + i % 5}', 1000)
                   for i in range(300)]
        most = 0

        def ended():
            nonlocal most
            most = max(most, unsent())
            return self.gauge(cluster, 'in_flight') == 0
        # Another client reads its stream to the end meanwhile.
        words = list(cluster.api.stream('/v1/completions', {
            'prompt': 'y', 'max_tokens': 300}))
        self.assertEqual((len(words), words[-1]), (302, '[DONE]'))
        wait_until('all streams are written, or broken off', ended)
        self.assertGreater(most, self.figure // 2)
        # What is above it are the pieces of /metrics that tell it.
        self.assertLess(most, self.figure + (320 << 10))
        self.assertGreater(self.gauge(cluster, 'slow_total'), 100)
        if not sanitized():  # which keeps what was freed
            self.assertLess(cluster.conductor.rss_mib() - before, 4 + 12)
        for s in sockets:
            s.close()
        wait_until('all of it is free', lambda: unsent() < 64 << 10)


class Busy(EngineCase):
    def test_busy_ones_of_one_client(self):
        """They have four fifths of the connections, and others what is left:
        here another tenant, though the address is the same."""
        path = self.write('tenants.json', json.dumps({'tenants': [
            entry('a', 'one'), entry('b', 'two')]}))
        go_on = threading.Event()
        self.addCleanup(go_on.set)

        def serve(_, send):
            send(stream_head() + chunk(event('{}')))
            go_on.wait(60 * settings.scale)
            return 'close'
        cluster = self.engines(serve, config={
            'max_connections': 20, 'tenants_file': path,
            'api_keys': 'required'})

        def busy(key):
            s = socket.create_connection(('127.0.0.1', cluster.api.port),
                                         20 * settings.scale)
            self.addCleanup(s.close)
            body = b'{"model": "m", "prompt": "x", "stream": true}'
            s.sendall(HEAD % (b'/v1/completions', len(body), b'Authorization: '
                              b'Bearer ' + key + b'\r\n') + body)
            return int(re.match(rb'HTTP/1.1 (\d+)', s.recv(100)).group(1))
        self.assertEqual([busy(b'one') for _ in range(20)],
                         [200] * 16 + [503] * 4)
        self.assertEqual([busy(b'two') for _ in range(3)], [200] * 3)
        for _ in range(20):
            self.assertEqual(cluster.api.get('/ready').status, 200)
        go_on.set()


class Work(Attack):
    """Bodies that are slow to read: a client has its share of each turn."""
    def bodies(self, bytes_each):
        """Deeply nested, of many keys, and an n that is refused."""
        nested = '[' * 20 + ']' * 20
        return [('{"prompt": "x", "model": "tiny", %s}' % more).encode()
                for more in (
                    '"metadata": {"a": [%s]}' % ','.join(
                        [nested] * (bytes_each // 41)),
                    '"metadata": {%s}' % ','.join(
                        f'"{i:06d}": 1' for i in range(bytes_each // 12)),
                    '"n": [%s]' % ','.join(['[[[1]]]'] * (bytes_each // 8)))]

    def test_large_ones_are_not_read_to_their_end(self):
        cluster = self.cluster(prefill=0, decode=0, both=1)
        for body in self.bodies(1 << 20):
            got = cluster.api.post('/v1/completions', body)
            self.assertRegex(got.body['error']['message'], (
                r'^(metadata|n): the body holds more than (65536 bytes|8192 '
                r'values) beside the prompt$'))
            self.assertEqual(got.status, 400)
        for n, status in (8191, 200), (8192, 400):
            got = cluster.api.post('/v1/completions', {
                'prompt': 'x', 'max_tokens': 1, 'metadata': {'a': [1] * n}})
            self.assertEqual(got.status, status, got.body)
        for prompt in '"' + 'x' * 1200000, '[' + '1,' * 600000:
            # What is behind the bound is no JSON, and nobody finds out.
            got = cluster.api.post('/v1/completions',
                                   ('{"prompt": ' + prompt).encode())
            self.assertError(got, 400, 'prompt: longer than 1048576 bytes')

    def test_a_client_has_its_share_of_a_turn(self):
        cluster = self.cluster(prefill=0, decode=0)
        sockets = []
        for body in self.bodies(15000) * 30:
            s = self.connect(cluster.api.port)
            s.sendall(HEAD % (b'/v1/completions', len(body), b'') + body)
            sockets.append(s)
        other = self.connect_from('127.0.0.2', cluster.api.port)
        other.sendall(b'GET /v1/models HTTP/1.1\r\nHost: a\r\n\r\n')
        self.assertIn(b' 200 ', other.recv(100))
        for s in sockets:
            self.assertIn(b' 503 ', s.recv(100))  # there is no worker
        self.assertGreater(self.gauge(cluster, 'put_off_total'), 0)
