"""Requests to engines that are no prompts: any method, below /v1/."""
import http.client
import json
import threading
import time

from harness import Cluster, settings, wait_until
from stand_in import Engine, chunk, event, reply, stream_head
from test_forward import EngineCase

# What changes an engine, or shows it. No client gets there.
OF_ENGINES = ('/sleep', '/wake_up', '/reset_prefix_cache', '/collective_rpc',
              '/update_weights', '/flush_cache', '/load_lora_adapter',
              '/admin/x', '/load', '/version', '/server_info',
              '/v1', '/v1/', '/%761/sleep', '//v1/files')
CLOSED = ('/v1/load_lora_adapter', '/v1/unload_lora_adapter', '/v1/loads',
          '/v1/load%5Flora_adapter', '/v1/LOADS/')
ODD = ('/v1/../sleep', '/v1/%2e%2e/sleep', '/v1//load_lora_adapter',
       '/v1/..;/sleep', '/v1/%252e%252e/sleep', '/v1/a%0d%0ab',
       '/v1/load_lora_adapter#x')
METHODS = 'GET', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS'


class Paths(EngineCase):
    def seen(self):
        return [(r.method, r.path) for e in self.all for r in e.requests]

    def two_models(self):
        cluster = Cluster(self)
        self.all = [Engine(lambda _, send: send(reply(200, {}))) for _ in 'ab']
        cluster.config = {
            'listen': '127.0.0.1:0', 'engine_health_ms': 50, 'engines': [
                {'name': f'e{m}', 'url': e.url, 'model': m}
                for m, e in zip('ab', self.all)]}
        cluster.start_conductor()
        wait_until('both are ready', lambda: cluster.api.instances()[0] == 2)
        return cluster

    def test_methods_pass(self):
        """Bodies and answers as they are; HEAD has none."""
        def serve(request, send):
            if request.method == 'DELETE':
                return send(b'HTTP/1.1 204 Gone\r\n\r\n')
            if request.method == 'HEAD':
                return send(b'HTTP/1.1 200 Fine\r\nContent-Length: 77\r\n\r\n')
            return send(b'HTTP/1.1 200 Fine\r\nContent-Type: a/b\r\n'
                        b'Content-Length: %d\r\n\r\n%s' %
                        (len(request.body), request.body))
        cluster = self.engines(serve)
        path = '/v1/files/file-1/content?after=2'
        for method in METHODS + ('HEAD',):
            for body in (b'', b' any \0 bytes'):
                got = cluster.api.request(method, path, body or None, {
                    'Content-Type': 'application/octet-stream',
                    'Authorization': 'Bearer client'} if body else None)
                with self.subTest(f'{method} {body}'):
                    self.assertEqual(got.status,
                                     204 if method == 'DELETE' else 200)
                    self.assertEqual(got.headers['x-conductor-prefill'], 'e0')
                    self.assertEqual(
                        got.body,
                        b'' if method in ('DELETE', 'HEAD') else body)
                    seen = self.all[0].requests[-1]
                    self.assertEqual((seen.method, seen.path, seen.body),
                                     (method, path, body))
        self.assertEqual(got.headers['content-length'], '77')
        self.assertEqual(seen.header('authorization'), 'Bearer client')

    def test_no_content(self):
        """A 204 has no body and tells no length of one, on either side; it is
        over with its head, whether or not the engine hangs up."""
        ends = threading.Event()

        def serve(_, send):
            send(b'HTTP/1.1 204 Gone\r\nConnection: close\r\n\r\n')
            ends.wait(60)
        cluster = self.engines(serve)
        client = http.client.HTTPConnection(
            '127.0.0.1', cluster.api.port, timeout=20 * settings.scale)
        self.addCleanup(client.close)
        self.addCleanup(ends.set)
        for _ in range(2):
            client.request('DELETE', '/v1/files/file-1')
            got = client.getresponse()
            self.assertEqual((got.status, got.read()), (204, b''))
            self.assertIsNone(got.headers['content-length'])
            self.assertIsNone(got.headers['transfer-encoding'])

    def test_other_methods_of_prompts_paths(self):
        """Only POST has a prompt there. A browser asks with OPTIONS before it
        sends one."""
        cluster = self.engines(lambda _, send: send(
            b'HTTP/1.1 200 Fine\r\nContent-Length: 0\r\n\r\n'))
        want = [(method, path) for method in METHODS + ('HEAD',)
                if method != 'POST'
                for path in ('/v1/responses', '/v1/messages')]
        want += [('OPTIONS', '/v1/completions'),
                 ('OPTIONS', '/v1/chat/completions')]
        for method, path in want:
            self.assertEqual(cluster.api.request(method, path).status, 200,
                             (method, path))
        self.assertEqual(self.seen(), want)
        for method in ('GET', 'PUT', 'DELETE'):
            self.assertError(cluster.api.request(method, '/v1/completions'),
                             405, 'must be one of POST')
        self.assertEqual(cluster.api.request('OPTIONS', '/metrics').status, 405)

    def test_head_of_unknown_length(self):
        """The connection goes on behind it."""
        def serve(request, send):
            send(b'HTTP/1.1 200 Fine\r\n\r\n')
        cluster = self.engines(serve)
        connection, answer = cluster.api.open('HEAD', '/v1/files')
        self.assertEqual((answer.status, answer.read()), (200, b''))
        self.assertIsNone(answer.headers['transfer-encoding'])
        connection.request('GET', '/health')
        self.assertEqual(connection.getresponse().status, 200)
        connection.close()

    def test_streams_as_it_comes(self):
        go_on = threading.Event()

        def serve(_, send):
            send(stream_head())
            send(chunk(event('one')))
            go_on.wait(60 * settings.scale)
            send(chunk(event('two')) + b'0\r\n\r\n')
        cluster = self.engines(serve)
        connection, answer = cluster.api.open(
            'GET', '/v1/responses/resp_1?stream=true')
        self.assertEqual(answer.read(len(event('one'))), event('one'))
        go_on.set()
        self.assertEqual(answer.read(), event('two'))
        connection.close()

    def test_another_engine_has_it(self):
        """What an engine keeps is looked for at each of them."""
        def serve(has):
            def one(request, send):
                send(reply(200 if has in request.path else 404, {'of': has}))
            return one
        cluster = self.engines(*(serve(f'r{i}') for i in range(3)))
        for method, path in (('GET', '/v1/responses/r{}'),
                             ('DELETE', '/v1/responses/r{}'),
                             ('POST', '/v1/responses/r{}/cancel')):
            for i in range(3):
                got = cluster.api.request(method, path.format(i))
                self.assertEqual((got.status, got.body), (200, {'of': f'r{i}'}))
                self.assertEqual(got.headers['x-conductor-prefill'], f'e{i}')
        n = len(self.seen())
        got = cluster.api.get('/v1/responses/nobodys')
        self.assertEqual(got.status, 404)
        self.assertIn(got.body['of'], ('r0', 'r1', 'r2'))
        self.assertEqual(len(self.seen()), n + 3)  # each of them once
        self.assertEqual(cluster.api.instances()[0], 3)

    def keeper(self, name, streams):
        """An engine that knows the responses that it has made."""
        made = set()

        def serve(request, send):
            parts = request.path.split('/')
            if len(parts) > 3:
                send(reply(200 if parts[3] in made else 404, {'of': name}))
                return
            before = json.loads(request.body).get('previous_response_id')
            if before and before not in made:
                send(reply(404, {}))
                return
            id_ = f'resp_{name}_{len(made)}'
            made.add(id_)
            if not streams:
                send(reply(200, {'id': id_, 'output': [{'id': 'msg_1'}],
                                 'text': 'x' * 3000}))
                return
            first = chunk(b'event: response.created\n' + event(
                {'type': 'response.created', 'response': {'id': id_}}))
            send(stream_head())
            for at in range(0, len(first), 40):  # in pieces
                send(first[at:at + 40])
                time.sleep(0.005)
            send(chunk(event({'item': {'id': 'msg_1'}})) + b'0\r\n\r\n')
        return serve

    def test_who_made_it_is_asked(self):
        """With more engines than are tried: none but the one that has it, also
        by a prompt that goes on from there."""
        for streams in False, True:
            with self.subTest(streams=streams):
                cluster = self.engines(
                    *(self.keeper(f'e{i}', streams) for i in range(6)),
                    config={'policy': 'round_robin', 'max_retries': 1})

                def ask(**body):
                    got = self.post(cluster, {'input': 'x', 'stream': streams,
                                              **body}, '/v1/responses').ok()
                    e = got.headers['x-conductor-prefill']
                    return e, f'resp_{e}_'
                ids = [f'{ask()[1]}0' for _ in range(6)]
                self.assertEqual(len(set(ids)), 6)
                n = len(self.seen())
                for id_ in ids:
                    for method, path in (
                            ('GET', ''), ('GET', '/input_items?limit=1'),
                            ('POST', '/cancel'), ('DELETE', '')):
                        got = cluster.api.request(
                            method, f'/v1/responses/{id_}{path}')
                        self.assertEqual((got.status, got.body),
                                         (200, {'of': id_.split('_')[1]}))
                    self.assertEqual(ask(previous_response_id=id_)[0],
                                     id_.split('_')[1])
                self.assertEqual(len(self.seen()), n + 5 * 6)
                # When it is gone others are asked, and have it not.
                gone = self.all[int(ids[0][6])]
                gone.stop()
                wait_until('it is gone',
                           lambda: cluster.api.instances()[0] == 5)
                got = self.post(cluster, {'input': 'x', 'stream': streams,
                                          'previous_response_id': ids[0]},
                                '/v1/responses')
                self.assertEqual(got.status, 404)
                self.end_of(cluster, gone)

    def end_of(self, cluster, gone):
        self.stop(cluster.conductor)
        for e in self.all:
            if e is not gone:
                e.stop()

    def test_limits_are_not_for_them(self):
        """No token is asked for, and none is told of another answer."""
        def serve(request, send):
            if request.method == 'POST':
                time.sleep(0.02)
                Engine.complete(request, send)
            else:
                send(reply(200, {'usage': {'cached_tokens': 64}}))
        cluster = self.engines(serve, config={'slo_ttft_ms': 1})
        wait_until('prompts are refused', lambda: self.post(
            cluster, {'prompt': 'x', 'stream': True}).status == 429)
        self.assertEqual(cluster.api.get('/v1/responses/r').status, 200)
        self.assertEqual(sum(
            v for k, v in cluster.api.metrics().items()
            if 'engine_cached_tokens_total' in k and 'told' in k), 0)

    def test_they_make_up_for_no_refusal(self):
        """An engine that refuses all prompts, and has what is asked for."""
        def refuse(request, send):
            send(reply(500 if request.method == 'POST' else 200, {}))

        def answer(request, send):
            send(reply(200 if request.method == 'POST' else 404, {}))
        cluster = self.engines(refuse, answer)

        def more():
            got = cluster.api.get('/v1/files/one')
            if got.status != 200:  # it was not asked any more
                self.assertEqual(cluster.api.instances()[0], 1)
            for _ in self.all:  # one of them goes to e0
                self.assertEqual(self.post(cluster, {
                    'prompt': f'{time.monotonic()} ' * 50}).status, 200)
            return 'engine e0 gets no work' in cluster.conductor.log()
        wait_until('it gets no work', more)

    def test_paths_of_engines(self):
        """By no method and no spelling."""
        cluster = self.engines(None)
        for paths, status, words in (
                (OF_ENGINES, 404, 'does not exist'),
                (CLOSED, 403, 'send it to the engine itself'),
                (ODD, 400, 'must have no "//", "." or ".."')):
            for path in paths:
                for method in METHODS:
                    with self.subTest(f'{method} {path}'):
                        self.assertError(cluster.api.request(method, path),
                                         status, f'path: "{path}": ', words)
        self.assertEqual(self.seen(), [])
        self.assertEqual(cluster.api.metric('http_paths_refused_total'),
            (len(CLOSED) + len(ODD)) * len(METHODS))
        got = cluster.api.get('/generate')
        self.assertError(got, 405, 'must be one of POST for "/generate"')
        self.assertEqual(got.headers['allow'], 'POST')
        got = cluster.api.request('TRACE', '/v1/files')
        self.assertError(got, 405, 'TRACE')
        self.assertIn('DELETE', got.headers['allow'])

    def test_prompts_by_any_spelling(self):
        """What engines read as a prompt's path is one: its work counts."""
        cluster = self.engines(None)
        for path in ('/v1/chat/completions', '/v1/chat%2Fcompletions',
                     '/v1/chat/%63ompletions', '/chat/completions',
                     '/invocations'):
            got = cluster.api.post(path, {'messages': [
                {'role': 'user', 'content': 'word ' * 800}]})
            told = cluster.api.explain(got)
            with self.subTest(path):
                self.assertGreater(told['prompt_tokens'], 900)

    def test_own_paths_stay(self):
        cluster = self.engines(None)
        for method, path, status in (
                ('GET', '/v1/models', 200), ('GET', '/v1/models/m', 200),
                ('GET', '/metrics', 200), ('GET', '/health', 200),
                ('DELETE', '/v1/models/m', 405), ('POST', '/metrics', 405),
                ('GET', '/v1/completions', 405), ('PUT', '/health', 405)):
            with self.subTest(f'{method} {path}'):
                self.assertEqual(cluster.api.request(method, path).status,
                                 status)
        self.assertEqual(self.seen(), [])

    def test_several_models(self):
        """A header names one where nothing else does."""
        cluster = self.two_models()

        def ask(*names, method='GET', body=None, **headers):
            return cluster.api.request(
                method, '/v1/files', body,
                {**({'x-conductor-model': names[0]} if names else {}),
                 **headers})
        self.assertEqual(ask(method='OPTIONS').status, 200)
        self.assertError(ask(), 400, 'header x-conductor-model: missing: '
                         'this request names no model elsewhere, and this '
                         'server has "a", "b"')
        for method in METHODS:
            got = ask('b', method=method)
            self.assertEqual(got.headers['x-conductor-prefill'], 'eb')
        got = ask('c')
        self.assertError(got, 404, 'header x-conductor-model: "c": does not '
                         'exist; this server has "a", "b"')
        self.assertEqual(got.body['error']['param'], 'x-conductor-model')
        self.assertError(ask('n' * 256), 400, 'header x-conductor-model: "',
                         'must be 1 to 255 bytes')
        self.assertError(ask(''), 400, 'must be 1 to 255 bytes')
        # A body that names one comes first.
        got = ask('b', method='POST', body={'model': 'a'})
        self.assertEqual(got.headers['x-conductor-prefill'], 'ea')
        got = ask('b', method='POST', body={})
        self.assertEqual(got.headers['x-conductor-prefill'], 'eb')
        self.assertError(ask(method='POST', body=b'x',
                             **{'Content-Type': 'a/b'}), 415,
                         'name it in the header x-conductor-model')
        got = ask('b', method='POST', body=b'x', **{'Content-Type': 'a/b'})
        self.assertEqual(got.headers['x-conductor-prefill'], 'eb')

    def test_prompts_of_several_models(self):
        """SGLang's clients name no model at /generate."""
        cluster = self.two_models()
        for path in '/generate', '/v1/completions':
            self.assertError(
                cluster.api.post(path, {'text': 'x', 'prompt': 'x'}),
                400, 'model: missing: this server has "a", "b"; the header '
                'x-conductor-model may name it, too')
            got = cluster.api.post(
                path, {'text': 'x', 'prompt': 'x'}, {'x-conductor-model': 'b'})
            self.assertEqual(got.headers['x-conductor-prefill'], 'eb')

    def test_a_browser_asks_any_model(self):
        """What is ready answers, whatever the path."""
        cluster = self.two_models()
        self.all[0].health = 500
        wait_until('one is ready', lambda: cluster.api.instances()[0] == 1)
        for path in '/v1/completions', '/v1/chat/completions', '/v1/responses':
            got = cluster.api.request('OPTIONS', path).ok()
            self.assertEqual(got.headers['x-conductor-prefill'], 'eb')
        got = cluster.api.request('OPTIONS', path, None,
                                  {'x-conductor-model': 'c'})
        self.assertError(got, 404, '"c": does not exist')

    def test_native_workers_beside_engines(self):
        """Native models have no such paths."""
        self.all = [Engine(lambda _, send: send(reply(200, {'mine': 1})))]
        cluster = self.cluster(prefill=0, decode=0, both=1, config={
            'engines': [{'name': 'e0', 'model': 'm',
                         'url': self.all[0].url}]})
        wait_until('both are ready',
                   lambda: cluster.api.instances()[0] == 2)
        got = cluster.api.request('GET', '/v1/files', None,
                                  {'x-conductor-model': 'm'})
        self.assertEqual(got.body, {'mine': 1})
        self.assertError(cluster.api.request(
            'GET', '/v1/files', None, {'x-conductor-model': 'tiny'}), 404,
            '/v1/files')
        self.assertEqual(cluster.api.request(
            'OPTIONS', '/v1/completions').body, {'mine': 1})
        self.assertError(cluster.api.get('/v1/files'), 400,
                         'this server has')
