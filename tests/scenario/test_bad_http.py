"""Bad requests: the right status, a message that names field and value, and
everything else keeps running."""
import json
import re
import socket

from harness import Case, settings, wait_until

COMPLETIONS = '/v1/completions'
CHAT = '/v1/chat/completions'

# (name, body, status, words of the message)
BAD_BODIES = [
    ('malformed', '{"model": "tiny", "prompt": "x"', 400, []),
    ('not JSON', 'prompt=hello', 400, []),
    ('not an object', '[1, 2]', 400, ['object']),
    ('a number twice as long as it should be', '{"prompt": [1' + '0' * 40 +
     '], "model": "tiny"}', 400, ['prompt']),
    ('not UTF-8', b'{"model": "tiny", "prompt": "\xff\xfe"}', 400,
     ['prompt']),
    ('deep', '{"model": "tiny", "prompt": "x", "user": ' + '[' * 2000 +
     ']' * 2000 + '}', 400, []),
    ('empty', '', 400, []),
    ('mark', b'\xef\xbb\xbf{"model": "tiny", "prompt": "x"}', 400,
     ['a byte order mark']),
    ('NaN', '{"model": "tiny", "prompt": "x", "user": NaN}', 400,
     ['expected a number: JSON has no NaN']),
    ('infinity', '{"model": "tiny", "prompt": "x", "user": [-Infinity]}', 400,
     ['expected a number: JSON has no NaN']),
]
# (name, fields on top of {"model": "tiny", "prompt": "x"}, status, words)
BAD_FIELDS = [
    ('no prompt', {'prompt': None}, 400, ['prompt']),
    ('empty prompt', {'prompt': ''}, 400, ['prompt']),
    ('empty ids', {'prompt': []}, 400, ['prompt']),
    ('empty prompt in a batch', {'prompt': ['x', '']}, 400, ['prompt']),
    ('prompt is a number', {'prompt': 7}, 400, ['prompt']),
    ('prompt is an object', {'prompt': {'a': 1}}, 400, ['prompt']),
    ('mixed prompt', {'prompt': ['x', 1]}, 400, ['prompt']),
    ('fraction in ids', {'prompt': [1, 2.5]}, 400, ['prompt']),
    ('negative id', {'prompt': [1, -1]}, 400, ['prompt']),
    ('id out of range', {'prompt': [1, 512]}, 400, ['512']),
    ('id far out of range', {'prompt': [4294967296]}, 400, ['prompt']),
    ('longer than the window', {'prompt': [1] * 40000}, 400,
     ['40000', '32768']),
    ('no room for the answer', {'prompt': [1] * 32000, 'max_tokens': 1000},
     400, ['32768']),
    ('unknown model', {'model': 'gpt-4'}, 404, ['gpt-4']),
    ('model is a number', {'model': 1}, 400, ['model']),
    ('max_tokens is text', {'max_tokens': 'many'}, 400, ['max_tokens']),
    ('max_tokens is zero', {'max_tokens': 0}, 400, ['max_tokens', '0']),
    ('max_tokens is negative', {'max_tokens': -5}, 400,
     ['max_tokens', '-5']),
    ('max_tokens is a fraction', {'max_tokens': 1.5}, 400, ['max_tokens']),
    ('stream is text', {'stream': 'yes'}, 400, ['stream']),
    ('stream_options without stream',
     {'stream_options': {'include_usage': True}}, 400, ['stream_options']),
    ('temperature', {'temperature': 0.7}, 400, ['temperature', '0.7']),
    ('n', {'n': 2}, 400, ['n']),
    ('best_of', {'best_of': 3}, 400, ['best_of']),
    ('logprobs', {'logprobs': 5}, 400, ['logprobs']),
    ('stop', {'stop': ['\n']}, 400, ['stop']),
    ('suffix', {'suffix': 'end'}, 400, ['suffix']),
    ('echo', {'echo': True}, 400, ['echo']),
    ('logit_bias', {'logit_bias': {'5': 1}}, 400, ['logit_bias']),
    ('min_tokens is negative', {'min_tokens': -1}, 400,
     ['min_tokens: -1: must be a whole number of at least 0']),
    ('unknown', {'max_tokenz': 5}, 400, ['max_tokenz: 5: unknown']),
    ('a long and nested n', {'n': [[[1]]] * 2000}, 400, ['n: [[[1]]', '...: not supported']),
    ('more metadata than fits', {'metadata': {'a': 'x' * 70000}}, 400,
     ['65536 bytes beside the prompt']),
    ('more values than fit', {'metadata': {'a': [[[1]]] * 3000}}, 400,
     ['metadata: the body holds more than 8192 values beside the prompt']),
]
BAD_MESSAGES = [
    ('no messages', None, ['messages']),
    ('empty', [], ['messages']),
    ('text', 'hello', ['messages']),
    ('no role', [{'content': 'x'}], ['role']),
    ('content is a number', [{'role': 'user', 'content': 5}], ['content']),
    ('an image', [{'role': 'user', 'content': [
        {'type': 'image_url', 'image_url': {'url': 'x'}}]}], ['content', 'text']),
]


class BadRequests(Case):
    def setUp(self):
        super().setUp()
        self.api = self.cluster(config={'max_body_bytes': 300000}).api

    def tearDown(self):
        try:
            reply = self.api.complete('still here').ok()
        finally:
            super().tearDown()

    def post(self, path, body, **headers):
        return self.api.post(path, body, headers)

    def assertNamed(self, got):
        """The message begins with the field, or one in it, and its value."""
        error = got.body['error']
        if error['code'] != 'invalid_json':
            self.assertRegex(error['message'],
                             '^' + re.escape(error['param']) +
                             r'[\[\]\w.]*: (.+: |must not be empty|must hold|'
                             r'the body holds more than)')

    def test_bodies(self):
        for path in COMPLETIONS, CHAT:
            for name, body, status, words in BAD_BODIES:
                if path == CHAT and words == ['prompt']:
                    continue
                with self.subTest(f'{path}: {name}'):
                    self.assertError(self.post(path, body), status, *words)

    def test_fields(self):
        for name, fields, status, words in BAD_FIELDS:
            with self.subTest(name):
                body = {'model': 'tiny', 'prompt': 'x', **fields}
                got = self.post(COMPLETIONS, body)
                self.assertError(got, status, *words)
                self.assertNamed(got)

    def test_fields_of_a_stream(self):
        reply = self.post(COMPLETIONS, {'model': 'tiny', 'prompt': [512],
                                        'stream': True})
        self.assertError(reply, 400, '512')

    def test_messages(self):
        for name, messages, words in BAD_MESSAGES:
            with self.subTest(name):
                body = {'model': 'tiny', 'messages': messages}
                got = self.post(CHAT, body)
                self.assertError(got, 400, *words)
                self.assertNamed(got)

    def test_headers(self):
        for header in 'x-slo-ttft-ms', 'x-slo-tpot-ms':
            for value in 'soon', '-5', '1e99', '':
                with self.subTest(f'{header}: {value}'):
                    reply = self.api.post(
                        COMPLETIONS, {'model': 'tiny', 'prompt': 'x'},
                        {header: value})
                    self.assertError(reply, 400, header)

    def test_oversized_body(self):
        body = json.dumps({'model': 'tiny', 'prompt': 'x' * 400000})
        try:
            reply = self.post(COMPLETIONS, body)
        except (BrokenPipeError, ConnectionResetError):
            return  # answered and closed before all of it was sent
        self.assertError(reply, 413, '300000')

    def test_paths_and_methods(self):
        self.assertError(self.api.get('/nope'), 404, '/nope')
        self.assertError(self.post('/v2/completions', {}), 404)
        for method, path in (('GET', COMPLETIONS), ('GET', CHAT),
                             ('DELETE', COMPLETIONS), ('POST', '/v1/models'),
                             ('POST', '/metrics'), ('PUT', '/health')):
            with self.subTest(f'{method} {path}'):
                self.assertError(self.api.request(method, path), 405, method)

    def raw(self, data):
        """What comes back for these bytes until the daemon closes."""
        with socket.create_connection(
                ('127.0.0.1', self.api.port),
                timeout=20 * settings.scale) as s:
            s.sendall(data)
            s.shutdown(socket.SHUT_WR)
            answer = b''
            while True:
                try:
                    more = s.recv(65536)
                except ConnectionResetError:
                    more = b''
                if not more:
                    return answer
                answer += more

    def test_not_http(self):
        for data in (b'\x00\x01\x02\x03' * 100, b'GET\r\n\r\n',
                     b'POST /v1/completions HTTP/1.1\r\n'
                     b'Content-Length: -1\r\n\r\n',
                     b'POST /v1/completions HTTP/1.1\r\n'
                     b'Content-Length: 99999999999999999999\r\n\r\n',
                     b'GET /health HTTP/1.1\r\n' + b'x: ' + b'y' * 300000 +
                     b'\r\n\r\n'):
            with self.subTest(data[:40]):
                self.assertNotIn(b' 200 ', self.raw(data)[:20])

    def test_lengths(self):
        """A proxy in front and this server must see the same requests."""
        head = b'POST /v1/completions HTTP/1.1\r\nHost: a\r\n'
        for lines, words in (
                (b'Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}',
                 b'two Content-Length headers'),
                (b'Content-Length: 2\r\nContent-Length: 2\r\n\r\n{}',
                 b'two Content-Length headers'),
                (b'Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n{}',
                 b"Transfer-Encoding is not allowed here"),
                (b'Transfer-Encoding: gzip\r\n\r\n', b'only'),
                (b'Transfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n',
                 b'chunk')):
            with self.subTest(lines):
                got = self.raw(head + lines)
                self.assertIn(got[9:12], (b'400', b'501'), got)
                self.assertIn(b'invalid_http', got)
                self.assertIn(words, got)
        self.assertGreaterEqual(self.api.metrics()[
            'conductor_http_responses_total{class="4xx"}'], 3)

    def test_a_body_that_never_comes(self):
        self.assertEqual(self.raw(
            b'POST /v1/completions HTTP/1.1\r\nHost: a\r\n'
            b'Content-Length: 1000\r\n\r\n{"model"'), b'')


class ManyBodies(Case):
    def test_bodies_are_bounded_together(self):
        mib = 1 << 20
        cluster = self.cluster(config={'max_body_bytes': mib,
                                       'max_body_total_bytes': mib})
        gauge = 'conductor_http_body_bytes'
        with socket.create_connection(
                ('127.0.0.1', cluster.api.port),
                timeout=20 * settings.scale) as s:
            s.sendall(b'POST /v1/completions HTTP/1.1\r\nHost: a\r\n'
                      b'Content-Length: 600000\r\n\r\n' + b' ' * 590000)
            wait_until('it has arrived', lambda:
                       cluster.api.metrics()[gauge] == 590000)
            try:
                reply = cluster.api.complete('x' * 500000)
                self.assertError(reply, 503)
                self.assertEqual(reply.headers['Retry-After'], '1')
            except (BrokenPipeError, ConnectionResetError):
                pass  # answered and closed before all of it was sent
            self.assertEqual(
                cluster.api.metric('http_bodies_refused_total'), 1)
        wait_until('it is forgotten', lambda:
                   cluster.api.metrics()[gauge] == 0)
        self.assertError(cluster.api.complete('x' * 500000), 400, '32768')


class TooLongForAnyInstance(Case):
    def test_prompt_larger_than_every_kv(self):
        cluster = self.cluster(prefill=0, decode=0, both=2, kv_blocks=32)
        reply = cluster.api.complete([1] * 2000, 4)
        self.assertError(reply, 400, '2000')
        self.assertEqual(cluster.api.complete([1] * 100, 4).status, 200)

    def test_prompt_larger_than_the_decode_kv(self):
        cluster = self.cluster(prefill=0, decode=0)
        cluster.start_worker('p0', 'prefill', kv_blocks=1000)
        cluster.start_worker('d0', 'decode', kv_blocks=32)
        cluster.wait_ready(1, 1)
        self.assertError(cluster.api.complete([1] * 2000, 4), 400, '2000')
        self.assertEqual(cluster.api.complete([1] * 2000, 1).status, 200)
