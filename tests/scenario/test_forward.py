"""Engines that speak OpenAI's API, behind the conductor: strict stand-ins for
what no real engine does on command."""
import http.client
import itertools
import json
import os
import re
import signal
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

from harness import (CONDUCTOR, Case, Cluster, cost_model_json, program,
                     settings, total, wait_until)
from stand_in import Engine, chunk, event, reply, stream_head
from test_drain import change


class EngineCase(Case):
    def engines(self, *serves, config=None, **fields):
        """A conductor in front of one engine for each function; None: a usual
        one."""
        self.all = [Engine(serve) for serve in serves]
        self.more = []
        cluster = Cluster(self)
        cluster.config = {
            'listen': '127.0.0.1:0', 'engine_health_ms': 50,
            'engines': [{'name': f'e{i}', 'url': e.url, 'model': 'm', **fields}
                        for i, e in enumerate(self.all)],
            **(config or {})}
        cluster.start_conductor()
        wait_until('the engines are ready',
                   lambda: cluster.api.instances()[0] ==
                   len(cluster.config['engines']))
        return cluster

    def end(self, cluster):
        """Before the next one of the same test."""
        self.stop(cluster.conductor)
        for e in self.all:
            e.stop()

    def tearDown(self):
        for e in getattr(self, 'all', []) + getattr(self, 'more', []):
            if e.open:
                e.stop()
            self.assertEqual(e.faults, [])
        super().tearDown()

    @staticmethod
    def post(cluster, body, path='/v1/completions', headers=None):
        return cluster.api.post(path, {'model': 'm', **body}, headers)


class Passthrough(EngineCase):
    def test_bytes_pass_as_they_are(self):
        odd = (b'{ "model" : "m", "prompt":"Hi \\u00e9", "unknown": {"x":[1,2]},'
               b'\n "temperature": 1e-1, "logit_bias":{"5":-1.0} }')

        def serve(request, send):
            send(b'HTTP/1.1 200 Fine\r\nX-Engine: yes\r\nConnection: x-hop\r\n'
                 b'X-Hop: drop me\r\nX-Conductor-Prefill: an engine\'s own\r\n'
                 b'Content-Type: text/odd\r\n'
                 b'Content-Length: 7\r\n\r\n{"a" :1')
        cluster = self.engines(serve)
        got = cluster.api.post('/v1/completions?user=7', odd, {
            'Authorization': 'Bearer client', 'X-Request-Id': 'abc-1',
            'Traceparent': '00-1-2-01', 'Connection': 'x-drop',
            'X-Drop': 'me'})
        self.assertEqual((got.status, got.body), (200, b'{"a" :1'))
        self.assertEqual(got.headers['x-engine'], 'yes')
        self.assertEqual(got.headers['content-type'], 'text/odd')
        self.assertNotIn('x-hop', got.headers)
        self.assertEqual(got.headers['x-conductor-prefill'], 'e0')
        self.assertEqual(got.headers['x-conductor-decode'], 'e0')
        seen = self.all[0].requests[0]
        self.assertEqual(seen.body, odd)
        self.assertEqual(seen.path, '/v1/completions?user=7')
        self.assertEqual(seen.header('authorization'), 'Bearer client')
        self.assertEqual(seen.header('x-request-id'),
                         got.headers['x-conductor-request-id'])
        self.assertEqual(seen.header('traceparent'), '00-1-2-01')
        self.assertIsNone(seen.header('x-drop'))
        # The engine did not say it again, and explain knows it, too.
        self.assertEqual(got.headers['x-request-id'], 'abc-1')
        self.assertEqual(got.headers['traceparent'], '00-1-2-01')
        for id_ in ('abc-1', got.headers['x-conductor-request-id']):
            why = cluster.api.get(f'/admin/explain/{id_}')
            self.assertEqual(why.body['prefill'], 'e0')
        self.assertEqual(cluster.api.get('/admin/explain/abc').status, 404)

    def test_events_are_counted(self):
        """The lines of a stream end with LF or CR LF, and its pieces
        anywhere."""
        def serve(request, send):
            end = '\r\n' if json.loads(request.body)['prompt'] else '\n'
            send(stream_head())
            for c in ''.join(f'data: {i}{end}{end}' for i in range(20)):
                send(chunk(c.encode()))
            send(b'0\r\n\r\n')

        def tokens():
            return total(cluster.api.metrics(), 'conductor_output_tokens_total')
        cluster = self.engines(serve)
        counts = [tokens()]
        for prompt in '', 'with CR':
            self.post(cluster, {'prompt': prompt, 'stream': True})
            counts.append(tokens())
        self.assertGreaterEqual(counts[1] - counts[0], 20)
        self.assertEqual(counts[2] - counts[1], counts[1] - counts[0])

    def test_what_is_no_json(self):
        """Reaches no engine, whatever is served."""
        bodies = (b'\xef\xbb\xbf{"model":"m","prompt":"x"}',
                  b'{"model":"m","prompt":"x","temperature":NaN}',
                  b'{"model":"m","prompt":"x","a":{"b":[-Infinity]}}',
                  b'{"model":"m","prompt":"x","temperature":1e999}',
                  b'{"model":"m","prompt":"caf\xe9"}',
                  b'{"model":"m","prompt":"x","user":"\xed\xa0\x80"}',
                  b'{"model":"m","prompt":"x","a":[1,]}')
        for more in ({}, {'worker_listen': '127.0.0.1:0', 'model': 'n',
                           'policy': 'round_robin'}):
            cluster = self.engines(None, config=more)
            if not more:
                second = Engine(None)
                self.more.append(second)
                self.assertEqual(cluster.api.post('/admin/instances', {
                        'name': 'other', 'url': second.url,
                        'model': 'n'}).status, 201)
            for body in bodies:
                for path in '/v1/completions', '/v1/embeddings':
                    got = cluster.api.post(path, body)
                    self.assertError(got, 400, "isn't valid JSON at byte",
                                     'JSON has no NaN' if re.search(
                                         b'NaN|Infinity', body) else '')
            self.assertError(cluster.api.post('/v1/completions', b'[1,2]'),
                             400, 'must be a JSON object; it begins with [')
            for e in self.all + self.more:
                self.assertEqual([r for r in e.requests
                                  if r.method == 'POST'], [])
            self.end(cluster)

    def test_names_of_the_client(self):
        """They stand in every answer, once, whatever the engine says."""
        trace_id = '4bf92f3577b34da6a3ce929d0e0e4736'
        names = {'x-request-id': 'mine',
                 'traceparent': f'00-{trace_id}-00f067aa0ba902b7-01'}

        def serve(_, send):
            send(reply(200, {}, ['X-Request-Id: theirs', 'TraceParent: t']))
        cluster = self.engines(serve)
        for status, model in ((200, 'm'), (404, 'none')):
            got = self.post(cluster, {'model': model, 'prompt': 'x'},
                            headers=names)
            self.assertEqual(got.status, status)
            for name, value in names.items():
                self.assertEqual(got.headers.get_all(name), [value])
        got = self.post(cluster, {'prompt': 'x'})
        self.assertEqual(got.headers.get_all('x-request-id'), ['theirs'])
        why = cluster.api.explain(trace_id)
        self.assertEqual(why['client_request_id'], 'mine')
        self.all[0].stop()
        wait_until('the engine is gone',
                   lambda: cluster.api.instances()[0] == 0)
        got = self.post(cluster, {'prompt': 'x'}, headers=names)
        self.assertEqual(got.status, 503)
        self.assertEqual(got.headers.get_all('x-request-id'), ['mine'])
        got = self.post(cluster, {'prompt': 'x'})
        self.assertEqual(got.headers['x-request-id'],
                         got.headers['x-conductor-request-id'])

    def test_ids_of_clients(self):
        """Two clients have the same one: the engine tells them apart, and
        each client has its own back."""
        cluster = self.engines(None)
        names = {'X-Request-Id': 'same', 'X-Dynamo-Request-Id': 'same'}
        got = [self.post(cluster, {'prompt': 'x', 'stream': i == 1},
                         headers=names) for i in range(2)]
        own = [g.headers['x-conductor-request-id'] for g in got]
        self.assertEqual([g.headers.get_all('x-request-id') for g in got],
                         [['same']] * 2)
        seen = [r for r in self.all[0].requests if r.method == 'POST']
        self.assertEqual([r.header('x-request-id') for r in seen], own)
        self.assertNotEqual(*own)
        for r in seen:
            self.assertIsNone(r.header('x-dynamo-request-id'))
        self.assertEqual(cluster.api.get(
            '/admin/explain/same').body['client_request_id'], 'same')

    def test_long_headers_of_the_answer(self):
        long = {'x-' + 'n' * 200: 'short', 'x-long': 'v' * 30000}

        def serve(_, send):
            send(reply(200, {}, [f'{n}: {v}' for n, v in long.items()]))
        cluster = self.engines(serve)
        got = self.post(cluster, {'prompt': 'x'}).headers
        self.assertEqual({n: got.get(n) for n in long}, long)
        self.assertEqual(got['x-conductor-prefill'], 'e0')

    def test_key_of_the_engine(self):
        key = self.write('key', 'sk-engine\n')
        cluster = self.engines(None, api_key_file=key)
        self.post(cluster, {'prompt': 'x'}, headers={'Authorization': 'mine'})
        self.assertEqual(self.all[0].requests[0].header('authorization'),
                         'Bearer sk-engine')

    def test_rank_of_the_engine(self):
        """Whatever rank a client names, and how often."""
        named = {'X-DATA-parallel-rank': '7', 'X-Data-Parallel-Rank': '8',
                 'X_data-parallel_rank': '9'}
        for fields, ranks in (({'dp_rank': 0}, ['0']), ({'dp_rank': 3}, ['3']),
                              ({}, [])):
            cluster = self.engines(None, **fields)
            self.post(cluster, {'prompt': 'x'}, headers=named)
            self.post(cluster, {'prompt': 'x'})
            first, second = ([v for n, v in r.headers
                              if 'rank' in n]
                             for r in self.all[0].requests)
            self.assertEqual(first, ranks)
            self.assertEqual(second, ranks)
            self.end(cluster)

    def test_a_client_chooses_no_engine(self):
        """Nor a rank, a peer or a sidecar's next hop, however it is spelled;
        what only looks like it passes."""
        steering = {
            'x-prefiller-host-port': '169.254.169.254:80',
            'X-Prefiller-Url': 'http://x', 'x-data-parallel-host-port': 'x:1',
            'x-encoder-hosts-ports': 'x:1', 'x-kv-cache-source-host-port': 'x',
            'x-gateway-destination-endpoint': 'x:1',
            'X-Worker-Instance-ID': '7', 'x-prefill-instance-id': '7',
            'x-dp-rank': '1', 'x-prefill-dp-rank': '1',
            'x-dynamo-token-data': '[1]', 'x-smg-target-worker': '1',
            'target-pod': 'x', 'prefill_target_pod': 'x'}
        fine = {'x-prefill': 'y', 'x-dp-rank-too': 'y', 'x-target-pod': 'y'}
        cluster = self.engines(lambda _, send: send(reply(200, {})))
        self.assertEqual(self.post(cluster, {'prompt': 'x'}, headers={
            **steering, **fine}).status, 200)
        self.assertEqual(cluster.api.get(
            '/v1/files/one', headers=steering).status, 200)
        first, second = (dict(r.headers) for r in self.all[0].requests)
        for name in steering:
            self.assertNotIn(name.lower(), first)
            self.assertNotIn(name.lower(), second)
        self.assertEqual({n: first.get(n) for n in fine}, fine)

    def test_an_engine_commands_no_proxy_and_no_browser(self):
        commands = ('X-Accel-Redirect: /secret', 'x-accel-buffering: yes',
                    'X-Sendfile: /etc/passwd', 'X-LIGHTTPD-send-file: /x',
                    'X-Reproxy-URL: http://x', 'x-envoy-overloaded: true',
                    'Set-Cookie: a=b', 'set-cookie: c=d', 'Alt-Svc: h3=":1"',
                    'Strict-Transport-Security: max-age=9', 'NEL: {}',
                    'Clear-Site-Data: "*"', 'Refresh: 0; url=http://x',
                    'Surrogate-Control: max-age=9')
        fine = {'x-accelerator': 'y', 'x-sendfile-too': 'y', 'vary': 'accept',
                'content-disposition': 'inline', 'x-ratelimit-limit': '1',
                'etag': '"e"', 'openai-processing-ms': '3'}
        cluster = self.engines(lambda _, send: send(reply(
            200, {}, [*commands, *(f'{n}: {v}' for n, v in fine.items())])))
        got = self.post(cluster, {'prompt': 'x'}).ok()
        for line in commands:
            self.assertNotIn(line.split(':')[0].lower(),
                             [n.lower() for n in got.headers])
        self.assertEqual({n: got.headers.get(n) for n in fine}, fine)

    def test_streams_as_it_comes(self):
        go_on = threading.Event()

        def serve(request, send):
            send(stream_head(['X-Request-Id: theirs']))
            send(chunk(event('one')))
            go_on.wait(60 * settings.scale)
            send(chunk(event('two')[:5]) + chunk(event('two')[5:]))
            send(b'0\r\nTrailer: x\r\n\r\n')
        cluster = self.engines(serve)
        connection, response = cluster.api.open(
            'POST', '/v1/chat/completions',
            {'model': 'm', 'stream': True, 'messages': [], 'max_tokens': 3})
        self.assertEqual(response.status, 200)
        self.assertEqual(response.headers['x-request-id'], 'theirs')
        self.assertEqual(response.headers['x-accel-buffering'], 'no')
        self.assertEqual(response.read(len(event('one'))), event('one'))
        go_on.set()
        self.assertEqual(response.read(), event('two'))
        connection.close()
        id_ = response.headers['x-conductor-request-id']
        why = wait_until('it has ended', lambda: (
            lambda r: r if r['state'] == 'completed' else None)(
                cluster.api.explain(id_)))
        self.assertEqual((why['prefill'], why['decode']), ('e0', 'e0'))
        self.assertEqual(why['cost'], 'guess')

    def test_connections_are_kept(self):
        cluster = self.engines(None)
        for i in range(6):
            self.assertEqual(self.post(cluster, {
                'prompt': f'{i}', 'stream': i % 2 == 0}).status, 200)
        # Two: one may just have been asked for its health.
        self.assertLessEqual(
            len({r.connection for r in self.all[0].requests}), 2)

    def test_connections_of_engines_that_name_nobody(self):
        """Whose answers cannot be told apart: one request for each."""
        cluster = self.engines(lambda _, send: send(reply(200, {'id': 'x'})))
        for _ in range(4):
            self.assertEqual(self.post(cluster, {'prompt': 'x'}).body,
                             {'id': 'x'})
        asked = self.all[0].requests
        self.assertEqual(len({r.connection for r in asked}), 4)
        self.assertEqual([r.header('connection') for r in asked],
                         [None, 'close', 'close', 'close'])

    def test_a_late_second_answer(self):
        """On a connection that has another request by then, which does not get
        it. Another engine's fault is not seen in it."""
        def serve(request, send):
            own = request.answer_id()
            text = json.loads(request.body)['prompt']
            answer = reply(200, {'id': own, 'text': text})
            first = served.setdefault(request.connection, answer)
            if first is not answer:
                send(first)  # once more
            send(answer)
        for stream in False, True:
            served = {}
            cluster = self.engines(serve)
            for i in range(8):
                got = self.post(cluster, {'prompt': f'{i}', 'stream': stream})
                self.assertEqual((got.status, got.body['text']), (200, f'{i}'))
            self.assertGreater(len(self.all[0].requests), 8)  # it did so
            self.assertEqual(total(cluster.api.metrics(),
                                   'conductor_retries_total'), 0)
            self.end(cluster)

    def test_a_kept_connection_that_was_closed(self):
        """Behind an answer; or when the next request is on its way: then it is
        sent once more, and that is no retry."""
        used = set()

        def again(request, send):
            if request.connection in used:
                return 'close'
            used.add(request.connection)
            return Engine.complete(request, send)

        for serve in (lambda *call: Engine.complete(*call) or 'close', again):
            cluster = self.engines(serve)
            for _ in range(5):
                self.assertEqual(self.post(cluster, {'prompt': 'x'}).status,
                                 200)
            self.assertEqual(total(cluster.api.metrics(),
                                   'conductor_retries_total'), 0)
            self.end(cluster)
        self.assertGreater(len(self.all[0].requests), 5)

    @staticmethod
    def upload(model, *more):
        """A form with a file, and its Content-Type."""
        fields = b''.join(
            b'--Zz\r\nContent-Disposition: form-data; name="%s"\r\n\r\n%s\r\n'
            % f for f in ([(b'model', model)] if model else []) + list(more))
        return (b'--Zz\r\nContent-Disposition: form-data; name="file"; '
                b'filename="a.wav"\r\nContent-Type: audio/wav\r\n\r\n'
                b'RIFF\0\xff\r\n\r\n' + fields + b'--Zz--\r\n',
                {'Content-Type': 'multipart/form-data; boundary=Zz'})

    def test_forms(self):
        """Bodies that are no JSON."""
        def serve(request, send):
            if b'"stream"' not in request.body:
                return send(reply(200, {'text': 'Hi'}))
            send(stream_head())
            return send(chunk(event({'text': 'Hi'})) + b'0\r\n\r\n')
        path = '/v1/audio/transcriptions'
        cluster = self.engines(serve, serve)
        post = cluster.api.request
        for form in (self.upload(b'm'), self.upload(None),
                     (b'any \0 bytes', {'Content-Type': 'text/plain'})):
            got = post('POST', path, *form)
            self.assertEqual((got.status, got.body), (200, {'text': 'Hi'}))
            seen = next(r for e in self.all for r in e.requests
                        if r.body == form[0])
            self.assertEqual((seen.path, seen.header('content-type')),
                             (path, form[1]['Content-Type']))
        got = post('POST', path, *self.upload(b'm', (b'stream', b'true')))
        self.assertEqual(got.body, event({'text': 'Hi'}))
        self.assertError(post('POST', path, *self.upload(b'other')), 404,
                         'model: "other": does not exist; this server has "m"')
        self.assertError(post('POST', path, self.upload(b'm')[0],
                              {'Content-Type': 'multipart/form-data'}), 400,
                         'header content-type: multipart/form-data needs a '
                         'boundary')
        # What has a prompt is JSON.
        for path in ('/v1/completions', '/v1/responses'):
            for form in (self.upload(b'm'), (b'x', {'Content-Type': 'a/b'})):
                self.assertError(
                    post('POST', path, *form), 415,
                    f'header content-type: "{form[1]["Content-Type"]}": must '
                    'be application/json, or left out')

    def test_forms_of_several_models(self):
        self.all = [Engine(lambda _, send: send(reply(200, {}))) for _ in 'ab']
        cluster = Cluster(self)
        cluster.config = {
            'listen': '127.0.0.1:0', 'engine_health_ms': 50, 'engines': [
                {'name': f'e{m}', 'url': e.url, 'model': m}
                for m, e in zip('ab', self.all)]}
        cluster.start_conductor()
        wait_until('both are ready', lambda: cluster.api.instances()[0] == 2)
        path = '/v1/images/edits'
        got = cluster.api.request('POST', path, *self.upload(b'b'))
        self.assertEqual(got.headers['x-conductor-prefill'], 'eb')
        self.assertError(
            cluster.api.request('POST', path, *self.upload(None)), 400,
            'model: missing: this server has "a", "b"')
        self.assertError(
            cluster.api.post(path, b'x', {'Content-Type': 'a/b'}),
            415, 'header content-type: "a/b": must be application/json or '
            'multipart/form-data')

    def test_other_paths_and_models(self):
        cluster = self.engines(None, None)
        for path in ('/v1/embeddings', '/v1/responses', '/v1/new/thing'):
            self.assertEqual(self.post(cluster, {'input': ['a'] * 50},
                                       path).status, 200)
        self.assertEqual({r.path for e in self.all for r in e.requests},
                         {'/v1/embeddings', '/v1/responses', '/v1/new/thing'})
        names = [m['id'] for m in cluster.api.get('/v1/models').body['data']]
        self.assertEqual(names, ['m'])
        self.assertEqual(cluster.api.get('/v1/models/m').status, 200)
        self.assertError(cluster.api.post('/v1/completions', {
            'model': 'other', 'prompt': 'x'}), 404,
            'model: "other": does not exist; this server has "m"')
        self.assertError(self.post(cluster, {'prompt': 'x', 'model': 5}), 400,
                         'model: 5: must be a text')
        self.assertError(cluster.api.post(
            '/v1/completions', '{"model": "m", '), 400)
        self.assertEqual(cluster.api.post(
            '/v1/completions', {'prompt': 'no model'}).status, 200)

    def test_bodies_without_a_model(self):
        """They are for the only model; of several, none is meant."""
        bodies = [{'prompt': 'x'}, {'prompt': 'x', 'model': None},
                  {'prompt': 'x', 'model': ''}]
        cluster = self.engines(None)
        for body in bodies:
            self.assertEqual(cluster.api.post(
                '/v1/completions', body).status, 200, body)
        self.assertEqual([json.loads(r.body) for r in self.all[0].requests],
                         bodies)
        self.end(cluster)
        engine = Engine()
        cluster = self.engines(config={'engines': [
            {'name': 'a', 'url': engine.url, 'model': 'm',
             'aliases': ['other'], 'adapters': ['lora']},
            {'name': 'b', 'url': engine.url, 'model': 'n'}]})
        self.more = [engine]
        served = 'this server has "m", "n", "lora", "other"'
        for body in bodies:
            self.assertError(cluster.api.post('/v1/completions', body), 400,
                f'model: missing: {served}')
        for got in (cluster.api.post('/v1/completions', {
                        'model': 'zz', 'prompt': 'x'}),
                    cluster.api.get('/v1/models/zz')):
            self.assertError(got, 404, f'model: "zz": does not exist; {served}')
        self.assertEqual(engine.requests, [])

    def test_least_window(self):
        """max_model_len of a model is the least that its engines tell."""
        def told(cluster):
            card, = cluster.api.get('/v1/models').body['data']
            return card['max_model_len']

        cluster = self.engines(None, None)
        self.assertIsNone(told(cluster))
        for windows, least in (((None, 1984), 1984), ((4096, 1984), 1984),
                               ((4096, 8192), 4096), ((-1, 2**40), None)):
            for engine, window in zip(self.all, windows):
                engine.models = [{'id': 'm', 'max_model_len': window}]
            wait_until(f'the window is {least}',
                       lambda: told(cluster) == least)
        # Its model need not be the first that it lists.
        for engine in self.all:
            engine.models = [{'id': 'x', 'root': 'x', 'max_model_len': 512},
                             {'id': 'm', 'root': 'm', 'max_model_len': 777}]
        wait_until('it is its own', lambda: told(cluster) == 777)

    def test_statuses_pass(self):
        def serve(request, send):
            send(reply(int(json.loads(request.body)['status']), {'why': 'mine'}))
        cluster = self.engines(serve, serve)
        sent = {400: 1, 404: 2, 422: 1, 429: 2, 500: 2, 502: 2, 503: 2}
        for status in sent:
            got = self.post(cluster, {'prompt': 'x', 'status': status})
            self.assertEqual((got.status, got.body), (status, {'why': 'mine'}))
        # Each engine is asked once at most, and no third one about a 500.
        self.assertEqual(Counter(json.loads(r.body)['status']
                                 for e in self.all for r in e.requests), sent)
        self.assertEqual(cluster.api.instances()[0], 2)


class Bodies(EngineCase):
    """What of a body does not go on as it came."""

    def sent(self, cluster, body, headers=None):
        self.assertEqual(cluster.api.post(
            '/v1/completions', body, headers).status, 200)
        return self.all[0].requests[-1].body

    def test_parameters_of_another_prompt_are_taken_out(self):
        cluster = self.engines(None)
        self.assertEqual(self.sent(
            cluster, b'{"model":"m", "kv_transfer_params":{"do_remote_prefill"'
            b':true},\n"prompt": "x","kv\\u005ftransfer_params":[]}'),
            b'{"model":"m",\n"prompt": "x"}')
        # What else chooses engines, however it is spelled and how often.
        self.assertEqual(self.sent(
            cluster, b'{"bootstrap_host":"x","model":"m","bootstrap_port":1,'
            b'"bootstrap_room":2,"prompt":"x","bootstrap_\\u0068ost":"y",'
            b'"data_parallel_rank":1,"bootstrap_host":3}'),
            b'{"model":"m","prompt":"x"}')
        self.assertError(self.post(cluster, {
            'prompt': 'x', 'nvext': {'backend_instance_id': 7}}), 400,
            'backend_instance_id: 7: must be left out')
        # A long one, and those inside of something else.
        prompt = b'"' + b'long ' * 500_000 + b'"'
        inner = b'"x":{"kv_transfer_params":1}'
        self.assertEqual(self.sent(
            cluster, b'{"prompt":' + prompt + b',"kv_transfer_params":{},'
            + inner + b',"model":"m"}'),
            b'{"prompt":' + prompt + b',' + inner + b',"model":"m"}')
        many = b'"kv_transfer_params":1,"a":1,' * 17
        self.assertError(cluster.api.post(
            '/v1/completions', b'{' + many + b'"model":"m"}'), 400,
            'more than 16 times')
        wait_until('bodies are given back', lambda: total(
            cluster.api.metrics(), 'conductor_http_body_bytes') == 0)

    def test_a_changed_body_is_sent_again(self):
        cluster = self.engines(lambda r, s: 'close', None)
        bodies = []
        while not self.all[0].requests:
            bodies.append(b'{"kv_transfer_params":1,"model":"m","prompt":"%d"}'
                          % len(bodies))
            self.assertEqual(cluster.api.post(
                '/v1/completions', bodies[-1]).status, 200)
        expected = bodies[-1].replace(b'"kv_transfer_params":1,', b'')
        self.assertEqual(self.all[0].requests[-1].body, expected)
        self.assertEqual(self.all[1].requests[-1].body, expected)

    def test_what_is_set(self):
        cluster = self.engines(None, config={
            'cache_salt_header': 'x-tenant', 'priority_header': 'x-priority'})
        body = b'{"cache_salt":"mine","model":"m","prompt":[%s],"priority":3}' \
            % b','.join([b'5'] * 64)
        left = body[21:-14] + b'}'
        self.assertEqual(self.sent(cluster, body), b'{' + left)
        self.assertEqual(
            self.sent(cluster, body, {'X-Tenant': 'a "b"', 'X-Priority': '-2'}),
            b'{"cache_salt":"a \\"b\\"","priority":-2,' + left)
        # The keys have the tenant in them, and not what the client says.
        cached = []
        for tenant in ('a', 'a', 'b', None):
            got = cluster.api.post('/v1/completions', body, {
                'X-Tenant': tenant} if tenant else {})
            why = cluster.api.explain(got)
            cached.append(why['predicted']['used_blocks'])
        self.assertEqual(cached, [0, 3, 0, 3])
        for given, told in (('2147483647', b'2147483647'),
                            ('-2147483647', b'-2147483647'),
                            ('-007', b'-7')):
            self.assertIn(b'"priority":' + told + b',',
                          self.sent(cluster, body, {'X-Priority': given}))
        for headers in ({'X-Tenant': ''}, {'X-Tenant': 'x' * 200},
                        {'X-Tenant': 'caf\xe9'}, {'X-Priority': '1.5'},
                        {'X-Priority': '-'}, {'X-Priority': '2147483648'},
                        {'X-Priority': '-2147483648'}, {'X-Priority': '+7'},
                        {'X-Priority': '1' * 30}):
            self.assertError(cluster.api.post(
                '/v1/completions', body, headers), 400, 'header')

    def test_objects_of_another_type(self):
        """Servers that read JSON whatever its type says get none that was not
        looked at."""
        cluster = self.engines(None, config={'cache_salt_header': 'x-tenant'})
        body = '{"cache_salt":"theirs","kv_transfer_params":{}}'
        for kind in ('text/plain', 'application/x+json',
                     'application/x-www-form-urlencoded',
                     'multipart/form-data; boundary=B'):
            for data in (body.encode(), b' \n' + body.encode(),
                         body.encode('utf-16'), body.encode('utf-8-sig'),
                         body.encode() + b'\r\n--B\r\n\r\n\r\n--B--'):
                for path in ('/v1/embeddings', '/v1/completion%73'):
                    self.assertError(cluster.api.post(path, data, {
                        'Content-Type': kind, 'X-Tenant': 'a'}), 415,
                        f'header content-type: "{kind}": must be '
                        'application/json, or left out')
        self.assertEqual(self.all[0].requests, [])

    def test_tenants_of_native_models(self):
        cluster = self.cluster(prefill=0, decode=0, both=1,
                               config={'cache_salt_header': 'x-tenant'})
        cached = []
        for tenant, salt in (('a', 'x'), ('a', 'y'), ('b', 'x'), (None, 'a')):
            got = cluster.api.post('/v1/completions', {
                'prompt': 'x' * 400, 'max_tokens': 1, 'cache_salt': salt},
                {'X-Tenant': tenant} if tenant else {}).ok()
            cached.append(got.body['conductor']['local_tokens'] > 0)
        self.assertEqual(cached, [False, True, False, False])


class Failures(EngineCase):
    def ask_until(self, cluster, condition):
        """Sends requests until the condition holds; their statuses."""
        statuses = []

        def more():
            statuses.append(self.post(cluster, {
                'prompt': f'question {len(statuses)}'}).status)
            return condition()
        wait_until('a request comes by', more)
        return statuses

    def test_503_is_tried_elsewhere(self):
        def busy(request, send):
            send(reply(503, {'error': 'full'}))
        cluster = self.engines(busy, None)
        statuses = self.ask_until(cluster, lambda: self.all[0].requests)
        self.assertEqual(set(statuses), {200})
        self.assertEqual(cluster.api.metrics()[
            'conductor_engine_answers_total{instance="e0",class="5xx"}'],
            len(self.all[0].requests))
        # It is no fault of the engine.
        self.assertEqual(cluster.api.instances()[0], 2)

    def test_503_of_all(self):
        def busy(request, send):
            send(reply(503, {'error': 'full'}))
        cluster = self.engines(busy)
        got = self.post(cluster, {'prompt': 'x'})
        self.assertEqual((got.status, got.body), (503, {'error': 'full'}))

    def test_404_has_a_second_opinion(self):
        """As of a server that is up again before its model is."""
        def not_yet(request, send):
            send(reply(404, {'error': 'no such model'}))
        cluster = self.engines(not_yet, None)
        statuses = self.ask_until(cluster, lambda: self.all[0].requests)
        self.assertEqual(set(statuses), {200})
        self.assertEqual(cluster.api.instances()[0], 2)
        self.end(cluster)
        # Two that agree are believed; so is one about its paths.
        cluster = self.engines(not_yet, not_yet, not_yet)
        got = self.post(cluster, {'prompt': 'x'})
        self.assertEqual((got.status, got.body),
                         (404, {'error': 'no such model'}))
        self.assertEqual(sum(len(e.requests) for e in self.all), 2)
        self.assertEqual(self.post(cluster, {'input': 'x'},
                                   '/v1/embeddings').status, 404)
        self.assertEqual(sum(len(e.requests) for e in self.all), 3)
        self.end(cluster)
        cluster = self.engines(not_yet)
        self.assertEqual(self.post(cluster, {'prompt': 'x'}).status, 404)

    @staticmethod
    def always(status):
        return lambda request, send: send(reply(status, {'why': status}))

    def test_whose_fault_a_status_is(self):
        """A wrong request is no failure of the cluster."""
        for status, outcome in ((400, 'invalid'), (404, 'invalid'),
                                (422, 'invalid'), (401, 'failed'),
                                (429, 'failed'), (500, 'failed')):
            with self.subTest(status):
                cluster = self.engines(self.always(status))
                self.assertEqual(self.post(cluster, {'prompt': 'x'}).status,
                                 status)
                for one in ('completed', 'invalid', 'failed'):
                    wait_until(f'{one} is {outcome}', lambda o=one:
                        cluster.api.metric('requests_total', outcome=o)
                        == (o == outcome))
                self.assertEqual(cluster.api.metric(
                    'failures_total', reason='engine_status'),
                    outcome == 'failed')
                self.assertEqual(
                    f'failed: engine e0 answers {status}' in
                    cluster.conductor.log(), outcome == 'failed')
                self.end(cluster)

    def test_an_engine_that_refuses_everything(self):
        """It gets no work after three, although it says it is healthy."""
        for status in (401, 403, 500, 502, 503, 504):
            with self.subTest(status):
                cluster = self.engines(self.always(status), None,
                                       config={'engine_health_ms': 600000})
                statuses = self.ask_until(
                    cluster, lambda: cluster.api.instances()[0] == 1)
                self.assertEqual(set(statuses), {200})
                self.assertEqual(len(self.all[0].requests), 3)
                self.assertEqual(cluster.api.metrics()[
                    'conductor_engine_failures_total{instance="e0"}'], 3)
                self.assertIn(f'engine e0 gets no work: it answers {status}, '
                              'and engine e1 does not', cluster.conductor.log())
                self.end(cluster)

    def test_trials_become_rarer(self):
        """Of an engine that is well, as it says, and refuses each prompt."""
        at = []  # how often it was asked for its health before each refusal

        def refuse(_, send):
            at.append(self.all[0].n_health)
            send(reply(500))
        cluster = self.engines(refuse, None)

        def trial():
            # Each is new, so that both engines are as good for it.
            self.post(cluster, {'prompt': f'{time.monotonic()} ' * 50})
            return len(at) >= 7
        wait_until('the fourth trial has failed', trial)
        # Behind the third refusal, 1, 2, 4 and 8 good answers: the first one
        # of them may have been asked for before.
        for i, least in ((4, 1), (5, 3), (6, 7)):
            self.assertGreaterEqual(at[i] - at[i - 1], least, at)

    def test_trials_of_an_engine_that_goes(self):
        """A trial ends with its health: that is no request's failure, and the
        next one takes no more good answers."""
        healths = []

        class Flapping(Engine):
            health = property(lambda _: healths.pop() if len(healths) > 1
                              else healths[0] if healths else 200,
                              lambda *_: None)
        engine = Flapping()
        self.more = [engine]
        cluster = self.engines(config={'engines': [
            {'name': 'e0', 'url': engine.url, 'model': 'm'}]})
        # From the end on: it fails, then one good answer at a time.
        healths.extend([500] + [500, 200] * 6 + [500] * 3)
        wait_until('all are told', lambda: len(healths) == 1)
        log = cluster.conductor.log()
        self.assertEqual(log.count('engine e0 is ready'), 7, log)
        healths[:] = [200]
        wait_until('it is back', lambda: cluster.api.instances()[0] == 1)

    def test_good_health_is_no_good_answer(self):
        cluster = self.engines(self.always(500), None)

        def more():
            before = self.all[0].n_health
            wait_until('its health was good', lambda:
                       self.all[0].n_health >= before + 2)
            self.assertEqual(self.post(cluster, {'prompt': 'x'}).status, 200)
            return 'engine e0 gets no work' in cluster.conductor.log()
        wait_until('it gets no work', more)

    def test_a_prompt_that_all_refuse(self):
        """It is no engine's fault: nobody takes a pool out with his own."""
        for status in (401, 403, 500, 502, 503, 504):
            with self.subTest(status):
                cluster = self.engines(self.always(status), self.always(status),
                                       self.always(status))
                for _ in range(8):
                    self.assertEqual(self.post(cluster, {'prompt': 'x'}).status,
                                     status)
                self.assertEqual(cluster.api.instances()[0], 3)
                self.assertEqual(total(cluster.api.metrics(),
                                       'conductor_engine_failures_total'), 0)
                self.end(cluster)

    def test_what_is_the_clients(self):
        """His own key, and what he asks too often or wrongly."""
        for status, headers, tries in ((401, {'Authorization': 'mine'}, False),
                                       (400, {}, False), (422, {}, False),
                                       (429, {}, True)):
            with self.subTest(status):
                cluster = self.engines(self.always(status), None)
                statuses = set()

                def more():
                    statuses.add(self.post(cluster, {
                        'prompt': f'question {len(statuses)}'},
                        headers=headers).status)
                    return len(self.all[0].requests) > 5
                wait_until('some went there', more)
                self.assertEqual(statuses, {200} if tries else {200, status})
                self.assertEqual(cluster.api.instances()[0], 2)
                self.assertEqual(total(cluster.api.metrics(),
                                       'conductor_engine_failures_total'), 0)
                self.end(cluster)

    def test_a_key_that_is_refused(self):
        key = self.write('key', 'sk-engine\n')
        refused = 'conductor_engine_key_refused{instance="e0"}'
        for asked in ('health', 'models_status'):
            with self.subTest(asked):
                cluster = self.engines(None, None, api_key_file=key)
                setattr(self.all[0], asked, 401)
                wait_until('it gets no work',
                           lambda: cluster.api.instances()[0] == 1)
                self.assertEqual(cluster.api.metrics()[refused], 1)
                self.assertIn('engine e0 gets no work: it refuses the API '
                              'key of its entry (status 401)',
                              cluster.conductor.log())
                setattr(self.all[0], asked, 200)
                wait_until('it is back',
                           lambda: cluster.api.instances()[0] == 2)
                self.assertEqual(cluster.api.metrics()[refused], 0)
                self.end(cluster)
        # Without a key of Conductor's the clients may have theirs.
        cluster = self.engines(None)
        self.all[0].models_status = 401
        before = self.all[0].n_models
        wait_until('it was asked', lambda: self.all[0].n_models > before + 1)
        self.assertEqual(self.post(cluster, {'prompt': 'x'}).status, 200)

    def test_a_head_is_no_answer(self):
        """Of a stream: an engine may send it before it computes anything."""
        def dies(request, send):
            send(stream_head())
            return 'close'
        cluster = self.engines(dies, None)
        statuses = []

        def more():
            statuses.append(self.post(cluster, {
                'prompt': f'question {len(statuses)}', 'stream': True}))
            return self.all[0].requests
        wait_until('a request comes by', more)
        self.assertEqual({(a.status, a.headers['x-conductor-prefill'])
                          for a in statuses}, {(200, 'e1')})
        self.end(cluster)
        cluster = self.engines(lambda r, send: send(
            stream_head() + b'0\r\n\r\n'))
        got = self.post(cluster, {'prompt': 'x', 'stream': True})
        self.assertEqual((got.status, got.body), (200, b''))

    def test_no_answer_is_tried_elsewhere(self):
        for how in ('close', 'reset'):
            with self.subTest(how):
                cluster = self.engines(lambda r, s, how=how: how, None)
                statuses = self.ask_until(cluster,
                                          lambda: self.all[0].requests)
                self.assertEqual(set(statuses), {200})
                self.assertGreater(total(cluster.api.metrics(),
                                         'conductor_retries_total'), 0)
                self.end(cluster)

    def test_half_a_head(self):
        def serve(request, send):
            send(b'HTTP/1.1 200 OK\r\nContent-Le')
            return 'close'
        cluster = self.engines(serve)
        got = self.post(cluster, {'prompt': 'x'})
        self.assertError(got, 502, 'engine e0 failed: ', '; failed attempts: ',
                         '. /admin/instances shows which instances are ready')
        self.assertEqual(len(self.all[0].requests), 4)  # and three retries

    def test_a_head_over_its_bound(self):
        """65536 bytes with its empty line is the most; whether it ends or
        goes on, one above fails, and is tried elsewhere."""
        end = b'\r\nContent-Length: 2\r\n\r\n'

        def head(n):
            begin = b'HTTP/1.1 200 OK\r\nX-Long: '
            return begin + b'a' * (n - len(begin) - len(end)) + end
        cluster = self.engines(lambda r, send: send(head(65536) + b'{}'))
        got = self.post(cluster, {'prompt': 'x'})
        self.assertEqual((got.status, got.body), (200, b'{}'))
        self.end(cluster)
        for name, answer in (('one more', head(65537) + b'{}'),
                             ('no end', head(140000)[:-len(end)]),
                             ('the bound and no end',
                              head(65536 + len(end))[:-len(end)])):
            with self.subTest(name):
                def serve(request, send, answer=answer):
                    send(answer)
                cluster = self.engines(serve)
                got = self.post(cluster, {'prompt': 'x'})
                self.assertError(got, 502, 'e0', 'head is too large')
                self.assertEqual(len(self.all[0].requests), 4)
                self.end(cluster)
                cluster = self.engines(serve, None)
                statuses = self.ask_until(cluster,
                                          lambda: self.all[0].requests)
                self.assertEqual(set(statuses), {200})
                self.end(cluster)

    def test_not_http(self):
        for text in (b'SSH-2.0-hello\r\n\r\n', b'HTTP/1.1 99 No\r\n\r\n',
                     b'HTTP/1.1 200 OK\r\nContent-Length: 3\r\n'
                     b'Transfer-Encoding: chunked\r\n\r\nabc',
                     b'HTTP/1.1 200 OK\r\nContent-Length: 3\r\n'
                     b'Content-Length: 4\r\n\r\nabcd'):
            with self.subTest(text):
                cluster = self.engines(
                    lambda r, send, text=text: send(text) or 'close')
                self.assertError(self.post(cluster, {'prompt': 'x'}), 502, 'e0')
                self.assertGreater(total(cluster.api.metrics(),
                                         'conductor_engine_failures_total'), 0)
                self.end(cluster)

    def read_broken(self, cluster, stream):
        connection, response = cluster.api.open(
            'POST', '/v1/completions',
            {'model': 'm', 'prompt': 'x', 'stream': stream})
        try:
            self.assertEqual(response.status, 200)
            with self.assertRaises(http.client.IncompleteRead) as caught:
                response.read()
            return caught.exception.partial
        finally:
            connection.close()

    def test_half_a_body(self):
        def serve(request, send):
            send(reply(200, b'x' * 100)[:-40])
            return 'close'
        cluster = self.engines(serve, None)
        self.all[1].health = 500  # nobody else to blame
        wait_until('one is left', lambda: cluster.api.instances()[0] == 1)
        self.assertEqual(self.read_broken(cluster, False), b'x' * 60)
        self.assertEqual(len(self.all[1].requests), 0)
        self.assertEqual(
            cluster.api.metric('requests_total', outcome='failed'), 1)
        self.assertRegex(cluster.conductor.log(), r'\S+: its answer was cut '
                         r'after 0 tokens \(60 bytes\), instance e0: engine e0 '
                         r'failed: ')

    def test_half_a_stream(self):
        for end in (b'', chunk(b'')[:2], b'zz\r\n'):
            with self.subTest(end):
                def serve(request, send, end=end):
                    send(stream_head() + chunk(event('one')) + end)
                    return 'close'
                cluster = self.engines(serve)
                self.assertEqual(self.read_broken(cluster, True), event('one'))
                self.assertRegex(
                    cluster.conductor.log(),
                    r'\S+: its answer was cut after 1 tokens \(\d+ bytes\), '
                    'instance e0: engine e0 failed: ')
                self.end(cluster)

    def test_an_engine_that_goes_and_comes_back(self):
        cluster = self.engines(None, None)
        prompt = 'the same long prompt ' * 40
        for _ in range(3):
            self.post(cluster, {'prompt': prompt})
        self.all[0].stop()
        statuses = [self.post(cluster, {'prompt': prompt + str(i)}).status
                    for i in range(10)]
        self.assertEqual(set(statuses), {200})
        wait_until('it gets no work', lambda: cluster.api.instances()[0] == 1)
        self.more.append(self.all[0].restart())
        wait_until('it is back', lambda: cluster.api.instances()[0] == 2)
        blocks = 'conductor_instance_blocks{instance="e0"}'
        self.assertEqual(cluster.api.metrics()[blocks], 0)
        self.assertGreater(
            cluster.api.metric('instance_blocks', instance='e1'), 0)

    def test_what_vllm_tells(self):
        """Its blocks bound the predicted cache; a new start empties it."""
        def metrics(start_s, blocks):
            return (f'process_start_time_seconds {start_s}\n'
                    'vllm:num_requests_running{engine="0"} 3\n'
                    'vllm:cache_config_info{block_size="32",'
                    f'num_gpu_blocks="{blocks}"}} 1\n')

        def value(name):
            return cluster.api.metric(name, instance='e0')
        cluster = self.engines(None, kind='vllm')
        self.all[0].metrics = metrics(1000, 20)
        wait_until('blocks are told', lambda: value('engine_kv_blocks') == 40)
        self.assertEqual(value('engine_running'), 3)
        for i in range(4):
            self.post(cluster, {'prompt': [i] * 320})
        self.assertEqual(value('instance_blocks'), 40)
        self.all[0].metrics = metrics(2000, 20)
        wait_until('the cache is empty', lambda: value('instance_blocks') == 0)

    def test_work_of_others(self):
        """Requests that an engine has from others decode beside a prompt."""
        def metrics(running):
            return (f'vllm:num_requests_running{{engine="0"}} {running}\n'
                    'vllm:kv_cache_usage_perc{engine="0"} 0.5\n'
                    'vllm:cache_config_info{block_size="16",'
                    'num_gpu_blocks="100"} 1\n')

        def beside_ms():
            got = self.post(cluster, {'prompt': [7] * 640})
            return cluster.api.explain(got)['predicted']['beside_ms']
        cost = json.loads(cost_model_json(decode=(1000, 100, 10)))
        path = self.write('m.json', json.dumps({**cost, 'model': 'm'}))
        cluster = self.engines(None, kind='vllm', cost_model=path)
        self.assertEqual(beside_ms(), 0)
        self.all[0].metrics = metrics(8)
        wait_until('it counts', lambda: beside_ms() > 0)
        self.all[0].metrics = metrics(0)
        wait_until('nothing is beside it', lambda: beside_ms() == 0)
        # An engine that tells no more: what it told is over, as far as is
        # known.
        for status in 503, None:
            self.all[0].metrics_status = 200
            self.all[0].metrics = metrics(8)
            wait_until('it counts again', lambda: beside_ms() > 0)
            self.all[0].metrics_status = status
            wait_until('it is over', lambda: beside_ms() == 0)
            self.assertEqual(
                cluster.api.metric('engine_running', instance='e0'), -1)
            self.assertEqual(cluster.api.instances()[0], 1)

    def test_what_no_engine_has(self):
        """What is told counts as far as the index can know it, and blocks of
        a size that the configuration could not say do not."""
        def value(name):
            return cluster.api.metric(f'engine_{name}', instance='e0')

        def tell(running, *caches):
            self.all[0].metrics = f'vllm:num_requests_running {running}\n'
            for size, blocks in caches:
                self.all[0].metrics += (
                    f'vllm:cache_config_info{{block_size="{size}",'
                    f'num_gpu_blocks="{blocks}"}} 1\n')
            wait_until('it is told', lambda: value('running') == running)
        cluster = self.engines(None, kind='vllm', config={'index_mib': 1})
        most = (1 << 20) // 24
        for n, (size, blocks) in enumerate(
                ((16, 200000000), (16, 20), (16, 4294967295), (16, 20),
                 (32, 4294967295))):
            tell(n, (size, blocks))
            self.assertEqual(value('kv_blocks'), min(blocks, most))
            self.assertEqual(value('block_tokens'), size)
        tell(10, (8192, 20))
        self.assertEqual(value('block_tokens'), 16)
        self.assertEqual(value('kv_blocks'), 20 * 512)
        tell(11, (16, 20))
        # 2^33 blocks of nearly 2^32 tokens: beyond all numbers.
        tell(12, (4294967295, 4294967295), (4294967295, 4294967295))
        self.assertEqual(value('kv_blocks'), 20)

    def test_events_that_do_not_come(self):
        cluster = self.engines(None, kv_events='tcp://127.0.0.1:1')
        prompt = [7] * 100
        for i in range(16):
            self.post(cluster, {'prompt': prompt + [i]})
        wait_until('the log tells', lambda: 'no KV events arrive' in
                   cluster.conductor.log())
        metrics = cluster.api.metrics()
        self.assertEqual(metrics[
            'conductor_engine_events_state{instance="e0"}'], 1)
        # Meanwhile it is predicted.
        self.assertEqual(metrics['conductor_instance_blocks{instance="e0"}'],
                         6)

    def test_an_engine_that_had_the_blocks(self):
        """It has nothing to tell: that is no silence."""
        def serve(_, send):
            send(reply(200, {'choices': [], 'usage': {
                'prompt_tokens_details': {'cached_tokens': cached}}}))
        cluster = self.engines(serve, kv_events='tcp://127.0.0.1:1',
                               index='events')
        for cached, state in (96, 2), (0, 1):
            for i in range(20):
                self.post(cluster, {'prompt': [7] * 100 + [i]})
            asked = self.all[0].n_health
            wait_until('its events were looked at',
                       lambda n=asked: self.all[0].n_health > n + 2)
            self.assertEqual(cluster.api.metrics()[
                'conductor_engine_events_state{instance="e0"}'], state)

    def test_nobody_there(self):
        cluster = self.engines(None)
        self.all[0].stop()
        wait_until('it gets no work', lambda: cluster.api.instances()[0] == 0)
        got = self.post(cluster, {'prompt': 'x'})
        self.assertError(got, 503, "no engine of model 'm' is ready")

    def test_never_there(self):
        """The log says so once, with the address to correct."""
        cluster = Cluster(self)
        cluster.config = {
            'listen': '127.0.0.1:0', 'engine_health_ms': 10, 'engines': [
                {'name': 'e0', 'url': 'http://127.0.0.1:1', 'model': 'm'}]}
        cluster.start_conductor()
        line = 'engine e0 was never ready at http://127.0.0.1:1 and gets no'
        wait_until('the log says so', lambda: line in cluster.conductor.log())
        failures = 'conductor_engine_failures_total{instance="e0"}'
        wait_until('more failures',
                   lambda: cluster.api.metrics()[failures] > 5)
        self.assertEqual(cluster.conductor.log().count(line), 1)

    def test_a_client_that_leaves(self):
        began, gone = threading.Event(), threading.Event()

        def serve(request, send):
            send(stream_head())
            began.set()
            try:
                while True:
                    send(chunk(event('x' * 1000)))
                    time.sleep(0.01)
            finally:
                gone.set()
        cluster = self.engines(serve)
        connection, response = cluster.api.open(
            'POST', '/v1/completions',
            {'model': 'm', 'prompt': 'x', 'stream': True})
        began.wait(60 * settings.scale)
        connection.sock and connection.sock.close()
        response.close()
        connection.close()
        self.assertTrue(gone.wait(60 * settings.scale))
        wait_until('nothing is in flight', lambda: total(
            cluster.api.metrics(), 'conductor_requests_in_flight') == 0)

    def test_slow_bytes(self):
        def serve(request, send):
            for byte in stream_head() + chunk(event('slow')) + b'0\r\n\r\n':
                send(bytes([byte]))
        cluster = self.engines(serve)
        self.assertEqual(self.post(cluster, {'prompt': 'x', 'stream': True})
                         .body, event('slow'))


class KeepAlive(EngineCase):
    COMMENT = b': keep-alive\n\n'

    def waiting(self, serve, body=None, cluster=None, **fields):
        """A request to an engine that does not answer yet, behind two
        comments: (the answer's rest, what lets the engine go on)."""
        go_on = threading.Event()

        def later(request, send):
            go_on.wait(60 * settings.scale)
            return serve(request, send)
        cluster = self.engines(later, config={'keepalive_ms': 20,
                                              'max_retries': 0}, **fields)
        connection, response = cluster.api.open(
            'POST', '/v1/completions',
            {'model': 'm', 'prompt': 'x', 'stream': True}, {
                'X-Request-Id': 'mine'})
        self.assertEqual(response.status, 200)
        self.assertEqual(response.headers['content-type'], 'text/event-stream')
        self.assertEqual(response.headers['x-accel-buffering'], 'no')
        self.assertEqual(response.headers['x-request-id'], 'mine')
        self.assertEqual(response.read(2 * len(self.COMMENT)),
                         2 * self.COMMENT)
        go_on.set()
        rest = response.read()
        connection.close()
        while rest.startswith(self.COMMENT):
            rest = rest[len(self.COMMENT):]
        return cluster, rest

    def test_a_stream_goes_on_as_it_is(self):
        _, rest = self.waiting(Engine.complete)
        self.assertEqual(rest, b''.join(
            event({'id': self.all[0].requests[-1].answer_id(), 'choices': [{'text': c}]})
            for c in 'abcd') + event('[DONE]'))

    def test_what_is_no_stream_becomes_an_event(self):
        for answer in (reply(400, b'{"error":\r\n "why"}\n'),
                       reply(200, b'{"error":\n "why"}')):
            cluster, rest = self.waiting(lambda r, send: send(answer))
            self.assertEqual(
                rest, b'data: {"error":\ndata:  "why"}\n\ndata: [DONE]\n\n')
            self.end(cluster)

    def test_a_failure_becomes_an_event(self):
        _, rest = self.waiting(lambda r, send: 'close')
        first, done, end = rest.split(b'\n\n')
        error = json.loads(first.removeprefix(b'data: '))['error']
        self.assertEqual((error['type'], error['code']),
                         ('server_error', 'worker_failed'))
        self.assertEqual((done, end), (b'data: [DONE]', b''))

    def test_a_head_is_no_token(self):
        """An engine may send its head before it computes anything."""
        go_on = threading.Event()

        def serve(request, send):
            send(stream_head())
            go_on.wait(60 * settings.scale)
            send(chunk(event('one')) + b'0\r\n\r\n')
        cluster = self.engines(serve, config={'keepalive_ms': 20})
        connection, response = cluster.api.open(
            'POST', '/v1/completions',
            {'model': 'm', 'prompt': 'x', 'stream': True})
        self.addCleanup(go_on.set)
        connection.sock and connection.sock.settimeout(10 * settings.scale)
        self.assertEqual(response.read(2 * len(self.COMMENT)),
                         2 * self.COMMENT)
        go_on.set()
        self.assertTrue(response.read().endswith(event('one')))
        connection.close()

    def test_only_streams_get_them(self):
        cluster = self.engines(
            lambda r, send: time.sleep(0.1) or send(reply(418, {'a': 1})),
            config={'keepalive_ms': 10})
        for path, stream in (('/v1/completions', False),
                             ('/v1/embeddings', True)):
            got = self.post(cluster, {'prompt': 'x', 'stream': stream}, path)
            self.assertEqual((got.status, got.body), (418, {'a': 1}))

    def test_native_models(self):
        cluster = self.cluster(prefill=0, decode=0, both=1,
                               config={'keepalive_ms': 20})
        child = cluster.workers['b0'].child
        child.send_signal(signal.SIGSTOP)
        try:
            connection, response = cluster.api.open(
                'POST', '/v1/completions',
                {'prompt': 'hello', 'max_tokens': 3, 'stream': True})
            self.assertEqual(response.read(2 * len(self.COMMENT)),
                             2 * self.COMMENT)
        finally:
            child.send_signal(signal.SIGCONT)
        rest = response.read()
        connection.close()
        self.assertEqual(rest.count(b'"text"'), 4)
        self.assertTrue(rest.endswith(b'data: [DONE]\n\n'), rest)
        self.assertEqual(response.headers['x-accel-buffering'], 'no')


class Bounds(EngineCase):
    def test_back_pressure(self):
        """A client that does not read holds the engine back; when it reads,
        it gets all."""
        size = 64 << 20
        sent = [0]

        def serve(request, send):
            send(stream_head())
            piece = b'y' * 65536
            while sent[0] < size:
                send(chunk(piece))
                sent[0] += len(piece)
            send(b'0\r\n\r\n')
        cluster = self.engines(serve)
        connection, response = cluster.api.open(
            'POST', '/v1/completions',
            {'model': 'm', 'prompt': 'x', 'stream': True})

        def stands_still():
            before = sent[0]
            time.sleep(0.5)
            return before and sent[0] == before
        wait_until('the engine is held back', stands_still)
        self.assertLess(sent[0], size)
        got = 0
        while piece := response.read(1 << 20):
            got += len(piece)
        connection.close()
        self.assertEqual(got, size)

    def test_long_body(self):
        cluster = self.engines(None)
        prompt = 'long ' * 1_000_000
        self.assertEqual(self.post(cluster, {'prompt': prompt}).status, 200)
        self.assertEqual(json.loads(self.all[0].requests[0].body)['prompt'],
                         prompt)


class Placement(EngineCase):
    def known(self, *serves):
        """Engines whose costs are told, and not learned from how long answers
        took: what a prefix is worth does not change with the machine's load."""
        cost = self.write('m.json', json.dumps(
            {**json.loads(cost_model_json()), 'model': 'm'}))
        return self.engines(*serves, cost_model=cost,
                            config={'correction_ms': 3600000})

    def test_prefixes_return_to_their_engine(self):
        """Conversations that go on are found again where they were."""
        cluster = self.known(None, None, None)
        talks = [[i] * 600 for i in range(1, 7)]
        homes = []
        for turn in range(4):
            where = []
            for talk in talks:
                got = self.post(cluster, {'prompt': talk, 'stream': True})
                where.append(got.headers['x-conductor-prefill'])
                talk += [1000 + turn] * 64
            homes.append(where)
        self.assertEqual(homes, [homes[0]] * 4)
        self.assertGreater(len(set(homes[0])), 1)
        # The engine has told none of the blocks that it is assumed to have.
        def explain(reply):
            return cluster.api.explain(reply)
        told = explain(got)['predicted']
        self.assertGreater(told['local_blocks'], 37)
        self.assertEqual(told['stored_blocks'], 0)
        self.assertEqual(
            [explain(self.post(cluster, {'prompt': prompt}))['known_by']
             for prompt in ([5] * 20, 'a text')], ['tokens', 'bytes'])
        self.assertIn(f'listening on 127.0.0.1, port {cluster.api.port}',
                      cluster.conductor.log())

    def test_equal_scores(self):
        """One block of 41 is less than predictions are off by: the engine
        whose last prefill is longest ago is chosen, and explain says so."""
        cluster = self.known(None, None)
        first = self.post(cluster, {'prompt': [1] * 656})
        got = self.post(cluster, {'prompt': [1] * 16 + [2] * 640})
        why = cluster.api.explain(got)
        chosen, other = why['candidates']
        self.assertEqual(other['instance'],
                         first.headers['x-conductor-prefill'])
        self.assertEqual((chosen['used_blocks'], other['used_blocks']), (0, 1))
        self.assertLess(other['score_ms'], chosen['score_ms'])
        self.assertLessEqual(chosen['score_ms'],
                             other['score_ms'] + why['plan']['equal_ms'] + .002)

        def text(reply):
            status, out, errors = self.run_program(
                program('tools', 'conductorctl'), '--address',
                f'127.0.0.1:{cluster.ports["http"]}', 'explain',
                reply.headers['x-conductor-request-id'])
            self.assertEqual((status, errors), (0, ''))
            return out
        self.assertIn('Scores that differ by at most '
                      f'{why["plan"]["equal_ms"]:.3f} ms count as equal.',
                      text(got))
        self.assertNotIn('count as equal', text(first))

    def test_sessions_stay(self):
        """Prompts that have nothing in common, one at a time: idle engines
        take turns, but for sessions."""
        cluster = self.engines(None, None, None)
        for header in ('X-Session-ID', 'X-Dynamo-Session-ID'):
            homes = []
            for turn in range(3):
                homes.append([self.post(
                    cluster, {'prompt': [turn * 100 + i] * 50}, headers={
                        header: f'session {i}'})
                    .headers['x-conductor-prefill'] for i in range(6)])
            self.assertEqual(homes, [homes[0]] * 3)
            self.assertEqual(set(homes[0]), {'e0', 'e1', 'e2'})
        for header, session in ((None, None), ('X-Session-ID', 'a "b"')):
            got = self.post(cluster, {'prompt': 'x'}, headers={
                header: session} if header else {})
            told = cluster.api.get('/admin/explain/' + got.headers[
                'x-conductor-request-id'])
            self.assertEqual(told.body['session'], session)

    def test_what_was_refused_is_nowhere(self):
        """Neither in the predicted caches, nor the session's home."""
        status = [200]

        def serve(request, send):
            if status[0] >= 300:
                send(reply(status[0], {'why': 'mine'}))
            else:
                Engine.complete(request, send)
        cluster = self.engines(serve, serve)

        def blocks():
            return total(cluster.api.metrics(), 'conductor_instance_blocks')
        begin, rest = [7] * 160, [8] * 160
        self.post(cluster, {'prompt': begin})
        had = blocks()
        self.assertGreater(had, 0)
        for status[0] in (400, 404, 429, 500, 503):
            got = self.post(cluster, {'prompt': begin + rest})
            self.assertEqual((got.status, blocks()), (status[0], had))
        status[0] = 200
        self.post(cluster, {'prompt': begin + rest})
        self.assertEqual(blocks(), 2 * had)
        for i in range(6):
            asked = {'prompt': [100 + i] * 50}
            session = {'X-Session-ID': f's{i}'}
            status[0] = 200
            home = self.post(cluster, asked, headers=session).headers[
                'x-conductor-prefill']
            for status[0] in (400, 429, 500, 200):
                got = self.post(cluster, asked, headers=session)
            self.assertEqual(got.headers['x-conductor-prefill'], home)

    def test_prompts_of_other_paths(self):
        """SGLang's own path, and OpenAI's newest."""
        cluster = self.known(None, None, None)
        kinds = [
            ('/generate', lambda i, n: {'input_ids': [i] * n}),
            ('/generate', lambda i, n: {'text': f'question {i}: ' + 'x' * n}),
            ('/v1/responses', lambda i, n: {'input': f'say {i} ' + 'y' * n}),
            ('/v1/responses', lambda i, n: {'input': [
                {'role': 'user', 'content': f'say {i} ' + 'z' * n}]})]
        for path, body in kinds:
            homes = []
            for turn in range(3):
                homes.append([self.post(
                    cluster, {**body(i, 1000 + 100 * turn), 'stream': True},
                    path).headers['x-conductor-prefill'] for i in range(6)])
            self.assertEqual(homes, [homes[0]] * 3, path)
            self.assertGreater(len(set(homes[0])), 1)
        self.assertEqual(total(cluster.api.metrics(),
                               'conductor_requests_in_flight'), 0)

    def test_costs_are_learned(self):
        """A limit rejects nothing until times are known, and then does."""
        def slow(request, send):
            send(stream_head())
            time.sleep(0.05)
            send(chunk(event('x')) + b'0\r\n\r\n')
        cluster = self.engines(slow)
        limit = {'x-slo-ttft-ms': '1'}
        statuses = [self.post(cluster, {'prompt': [i] * 40, 'stream': True},
                              headers=limit).status for i in range(10)]
        self.assertEqual(statuses[:8], [200] * 8)
        got = self.post(cluster, {'prompt': [99] * 40, 'stream': True},
                        headers=limit)
        self.assertError(got, 429, 'predicted')
        why = cluster.api.get(
            f'/admin/explain/{got.headers["x-conductor-request-id"]}')
        self.assertEqual(why.body['cost'], 'learned')

    def test_each_engine_learns_its_own_costs(self):
        """Of two engines of a model, one is far slower: one of them is told
        apart, the one or the other, until both are as fast."""
        pauses = [0.1, 0.01]  # far apart on a busy machine, too

        def serve(i):
            def answer(request, send):
                send(stream_head())
                time.sleep(pauses[i])
                send(chunk(event('x')) + b'0\r\n\r\n')
            return answer
        cluster = self.engines(serve(0), serve(1))
        asked = itertools.count()

        def predicted():
            got = self.post(cluster, {'prompt': [next(asked)] * 40,
                                      'stream': True}).ok()
            why = cluster.api.explain(got)
            return {c['instance']: c['prefill_ms'] for c in why['candidates']}

        def told(what):
            """In turns, so that the two are compared."""
            wait_until(what, lambda: [
                (change(cluster, idle, 'drain'),
                 [predicted() for _ in range(16)],
                 change(cluster, idle, 'undrain'))
                for idle in ('e1', 'e0')] and
                re.search(f'engine e[01]: {what}',
                          cluster.conductor.log()), 120)
        first = predicted()
        self.assertEqual(first['e0'], first['e1'])
        told('its costs differ from')
        apart = predicted()
        self.assertGreater(apart['e0'], apart['e1'])
        pauses[:] = 0.03, 0.03
        told('its costs equal those of')

    def test_answers_that_come_whole_teach(self):
        """Costs are learned without a stream, where an engine has one request
        at a time: from answers of one token what a prefill takes. Of two
        that it has together neither is timed."""
        together = threading.Barrier(2)

        def slow(request, send):
            if b'both' in request.body:
                together.wait(60 * settings.scale)
            time.sleep(0.02)
            send(reply(200, {'usage': {'completion_tokens': 1}}))
        cluster = self.engines(slow)
        asked = itertools.count()

        def learned():
            got = self.post(cluster,
                            {'prompt': [next(asked)] * 40, 'max_tokens': 1})
            self.assertEqual(got.status, 200)
            why = cluster.api.explain(got)
            return why['cost'] == 'learned' and why
        # On a busy machine one may come before the conductor has seen the end
        # of the one before: these two teach nothing.
        why = wait_until('costs are learned', learned)
        self.assertGreaterEqual(why['candidates'][0]['prefill_ms'], 20)

        def timed():
            return cluster.api.metrics()[
                'conductor_engine_timed_prefills_total{instance="e0"}']
        n_timed = timed()
        self.assertGreaterEqual(n_timed, 8)
        both = [threading.Thread(target=self.post, args=(cluster, {
            'prompt': [i] * 40, 'max_tokens': 1, 'user': 'both'}))
                for i in range(2)]
        for one in both:
            one.start()
        for one in both:
            one.join()
        self.assertEqual(timed(), n_timed)

    def test_lengths_are_learned(self):
        """Of answers with a usage, in the words of two APIs, and of streams
        with and without one. Who asks for too much is expected to get as
        much."""
        usages = {'plain': {'usage': {'completion_tokens': 40}},
                  'other words': {'usage': {'output_tokens': 40,
                                            'output_tokens_details': {}}}}

        def serve(request, send):
            body = json.loads(request.body)
            if not body.get('stream'):
                send(reply(200, usages[body['user']]))
                return
            send(stream_head())
            for _ in range(40):
                send(chunk(event({'text': '"completion_tokens\\":7'})))
            if body['user'] == 'told':
                send(chunk(event({'usage': {'completion_tokens': 3}})))
                send(chunk(event({'usage': {'completion_tokens': 40}})))
            send(chunk(event('[DONE]')) + b'0\r\n\r\n')
        for user in 'plain', 'other words', 'told', 'counted':
            with self.subTest(user):
                cluster = self.engines(serve)
                expected = []
                for i in range(10):
                    got = self.post(cluster, {
                        'prompt': [i] * 40, 'user': user, 'max_tokens': 4000,
                        'stream': user not in usages}).ok()
                    why = cluster.api.get('/admin/explain/' + got.headers[
                            'x-conductor-request-id'])
                    expected.append(why.body['expected_tokens'])
                self.assertEqual(expected, [4000] * 8 + [40] * 2)
                self.end(cluster)

    def test_lengths_of_each_key(self):
        """Who has long answers is not taken for one who has short ones,
        whatever else is in their bodies."""
        def serve(request, send):
            send(reply(200, {'usage': {
                'completion_tokens': json.loads(request.body)['seed']}}))
        cluster = self.engines(serve)

        def expected(key, n, **body):
            got = self.post(cluster, {'prompt': 'x', 'max_tokens': 4000,
                                      'seed': n, **body},
                            headers={'Authorization': f'Bearer {key}'}).ok()
            return cluster.api.explain(got)['expected_tokens']
        for i in range(200):
            expected('long', 1000, cache_salt=f'salt {i}')
            expected('short', 10)
        self.assertGreater(expected('long', 1000), 900)
        self.assertLess(expected('short', 10), 100)
        # Of one that is not known yet: what all have.
        self.assertGreater(expected('new', 10), 200)
        self.assertLess(expected('new', 10), 900)

    def test_many_at_once(self):
        cluster = self.engines(None, None)
        with ThreadPoolExecutor(16) as pool:
            statuses = list(pool.map(lambda i: self.post(cluster, {
                'prompt': [i] * 50, 'stream': i % 2 == 0}).status, range(200)))
        self.assertEqual(set(statuses), {200})
        metrics = cluster.api.metrics()
        self.assertEqual(metrics[
            'conductor_requests_total{outcome="completed"}'], 200)
        self.assertEqual(total(metrics, 'conductor_requests_in_flight'), 0)
        self.assertEqual(total(metrics, 'conductor_instance_decodes'), 0)
        for e in self.all:
            self.assertGreater(len(e.requests), 20)

    def test_native_workers_beside_engines(self):
        engine = Engine()
        self.all = [engine]
        cluster = self.cluster(prefill=0, decode=0, both=1, config={})
        cluster.conductor.child.terminate()
        self.assertEqual(cluster.conductor.wait(), 0)
        self.processes.remove(cluster.conductor)
        cluster.config.update(engines=[
            {'name': 'e0', 'url': engine.url, 'model': 'm',
             'aliases': ['also']}],
            worker_listen=f'127.0.0.1:{cluster.ports["worker"]}')
        cluster.start_conductor()
        wait_until('both are ready',
                   lambda: cluster.api.instances()[0] == 2)
        self.assertEqual(cluster.api.complete('hello').status, 200)
        self.assertEqual(self.post(cluster, {'prompt': 'hello'}).status, 200)
        self.assertEqual(len(engine.requests), 1)
        self.assertEqual([m['id'] for m in cluster.api.get(
            '/v1/models').body['data']], ['tiny', 'm', 'also'])
        served = 'this server has "tiny", "m", "also"'
        for got in (cluster.api.get('/v1/models/x'),
                    cluster.api.complete('hello', model='x')):
            self.assertError(got, 404, f'model: "x": does not exist; {served}')
        many = {f'x{i}': 1 for i in range(1100)}
        self.assertError(
            self.post(cluster, {'prompt': 'x', **many}), 400,
            'the body has more than 1024 members')
        for model in ({}, {'model': None}, {'model': ''}):
            self.assertError(cluster.api.post(
                '/v1/completions', {'prompt': 'hello', **model}), 400,
                f'model: missing: {served}')


class Configuration(Case):
    def refused(self, engines, *words, **more):
        self.check_config({'engines': engines, **more}, 2, *words)

    def test_the_daemon_refuses_as_its_test_does(self):
        good = {'name': 'a', 'url': 'http://127.0.0.1:1', 'model': 'm'}
        native = {'worker_listen': '127.0.0.1:0', 'model': 'n'}
        empty = self.write('empty', '')
        for config, field in (
                (native, 'cost_model'),
                ({**native, 'secret_file': empty}, 'secret_file'),
                ({'engines': [{**good, 'api_key_file': 'no'}]},
                 'engines[0].api_key_file'),
                ({'engines': [good], 'tenants_file': 'no'}, 'tenants_file'),
                ({'engines': [good], 'admin_key_file': 'no'},
                 'admin_key_file'),
                ({'engines_file': 'no'}, 'engines_file')):
            path = self.write('c.json', json.dumps(
                {'listen': '127.0.0.1:0', **config}))
            done = [self.run_program(program(*CONDUCTOR), *test, '-c', path)
                    for test in (('-t',), ())]
            with self.subTest(field):
                self.assertEqual(done[1], done[0])
                self.assertEqual(done[0][0], 2)
                self.assertIn(f'{path}: {field}: ', done[0][2])

    def test_rules_are_no_options(self):
        """What is fixed in the policy is named, by -t, at the start and by a
        reload, and left out; what is set beside it counts."""
        cluster = Cluster(self, {'policy_options': {'lend': 2, 'lend_ms': 9,
                                                    'wait_price': 3}})
        said = (r'warn .*policy_options: lend_ms is no longer an option of the '
                r'policy plan: it is fixed at 2000, .*use the option lend;',
                r'warn .*policy_options: wait_price .* fixed at 1, .*it;')
        cluster.start_conductor()
        log = cluster.conductor.log
        path = os.path.join(self.folder, 'conductor.json')
        for test, left in (('-t', 'configuration ok\n'),
                           ('--dump-config', '"lend": 2.0\n')):
            status, out, errors = self.run_program(program(*CONDUCTOR), test,
                                                   '-c', path)
            self.assertEqual(status, 0, errors)
            self.assertIn(left, out)
            self.assertNotIn('lend_ms', out)
            for words in said:
                self.assertRegex(errors, words)
        self.assertEqual([len(re.findall(w, log())) for w in said], [1, 1])
        reply = cluster.api.post('/admin/reload').ok()
        self.assertEqual([len(re.findall(w, log())) for w in said], [2, 2])
        status, _, errors = self.run_program(
            program(*CONDUCTOR), '-t', '-c', path, '--policy-option', 'lent=1')
        self.assertEqual(status, 2)
        self.assertIn('lent=1: no such option (did you mean lend?); policy plan '
                      'has order, preempt,',
                      errors)
        self.assertNotIn('lend_ms,', errors)

    def test_errors_name_field_and_value(self):
        good = {'name': 'a', 'url': 'http://h:1', 'model': 'm'}
        self.refused({}, 'c.json: engines: {}: must be an array')
        self.refused([5], 'c.json: engines[0]: 5: must be an object')
        for names, field, shown in (
                ({'aliases': ['b', 'b']}, 'aliases', 'b'),
                ({'aliases': ['m']}, 'aliases', 'm'),
                ({'aliases': ['x'], 'adapters': ['x']}, 'adapters', 'x'),
                ({'adapters': ['y', 'x', 'y']}, 'adapters', 'y')):
            self.refused([{**good, **names}],
                         f'c.json: engines[0].{field}: "{shown}": ')
        self.refused([good, {**good, 'name': 'b', 'model': 'n',
                             'aliases': ['m']}],
                     'c.json: engines[1].aliases: "m": ', 'engine a')
        self.refused([good], 'model', '"gpt"', model='gpt')
        self.refused([{'name': 'a', 'url': good['url'], 'aliases': ['x']}],
                     'engines[0].aliases', 'needs model')
        self.refused([{**good, 'model': 256 * 'm'}], 'engines[0].model: "m',
                     'must be a text of 1 to 255 printable bytes')
        for names, wanted in ((33 * ['x'], 'an array of at most 32 names'),
                              ([256 * 'x'], 'names of 1 to 255 bytes'),
                              ([f'{i:0255}' for i in range(17)],
                               'at most 4064 bytes in all')):
            self.refused([{**good, 'aliases': names}],
                         'engines[0].aliases: ', wanted)
        self.refused([{**good, 'models_path': 'x'}], 'engines[0].models_path')
        self.refused([{**good, 'kind': 'trt'}], 'engines[0].kind', 'trt')
        self.refused([{**good, 'role': 'prefil'}], 'engines[0].role', 'prefil')
        self.refused([{**good, 'index': 'x'}], 'engines[0].index', 'x')
        self.refused([{**good, 'urll': 'x'}], 'urll')
        self.refused([{**good, 'index': 'events'}], 'engines[0].index',
                     'kv_events')
        self.refused([{**good, 'kv_events': 'h:1'}], 'engines[0].kv_events',
                     'h:1')
        self.refused([{**good, 'kv_replay': 'tcp://h:1'}],
                     'engines[0].kv_replay', 'needs kv_events')
        for field, value in (('kv_topic', '"t"'), ('dp_ranks', '2'),
                             ('kv_events_bind', 'true')):
            self.refused([{**good, field: json.loads(value)}],
                         f'engines[0].{field}: {value}: needs kv_events')
        for field, value, fields, *words in (
                ('kv_events', 'tcp://*:8611', {}, 'kv_events_bind'),
                ('kv_events', 'tcp://300.1.1.1:1', {}, 'a name or an address'),
                ('kv_events', 'tcp://h:65535', {'dp_ranks': 3}, 'rank 2'),
                ('kv_events', 'tcp://h:65533', {'dp_rank': 3}, 'rank 3'),
                ('kv_replay', 'tcp://*:2', {'kv_events': 'tcp://*:1',
                                            'kv_events_bind': True}),
                ('kv_replay', 'tcp://h:1', {'kv_events': 'tcp://h:1'},
                 'other ports than kv_events'),
                ('kv_replay', 'tcp://h:5558', {'kv_events': 'tcp://h:5557',
                                               'dp_ranks': 4},
                 'other ports than kv_events, which needs 4')):
            self.refused([{**good, **fields, field: value}],
                         f'engines[0].{field}: "{value}": must ', *words)
        for rank in (-1, 256, '0'):
            self.refused([{**good, 'dp_rank': rank}],
                         f'engines[0].dp_rank: {json.dumps(rank)}: ')
        self.refused([{**good, 'dp_rank': 0, 'dp_ranks': 2,
                       'kv_events': 'tcp://h:1'}],
                     'engines[0].dp_rank: 0: ', 'dp_ranks 2')
        self.refused([{**good, 'url': 'ftp://h'}], 'engines[0].url', 'ftp://h')
        self.refused([{**good, 'url': 'http://h:0'}], 'engines[0].url')
        self.refused([{**good, 'url': 'http://u@h:1'}], 'engines[0].url')
        self.refused([{**good, 'api_key_file': 'no.key'}],
                     'c.json: engines[0].api_key_file: "', 'no.key": No such')
        self.refused([{**good, 'url': 'https://h', 'tls_ca_file': 'no.pem'}],
                     'c.json: engines[0].tls_ca_file: "', 'no.pem": No such')
        self.refused([{**good, 'cost_model': 'no.json'}],
                     'c.json: engines[0].cost_model: cost model ',
                     'no.json: No such file')
        pipe = os.path.join(self.folder, 'pipe')
        os.mkfifo(pipe)
        for field in 'api_key_file', 'tls_ca_file', 'cost_model':
            for path in pipe, self.folder:
                self.refused([{**good, 'url': 'https://h', field: path}],
                             f'c.json: engines[0].{field}: ',
                             f'{path}', ': not a regular file')
        self.refused([], f'{pipe}: not a regular file', engines_file=pipe)
        model = json.loads(cost_model_json())
        for change, *words in (({}, '"tiny"', f'"{good["model"]}"'),
                               ({'model': good['model'], 'block_tokens': 64},
                                '64', '32')):
            self.write('cost.json', json.dumps({**model, **change}))
            self.refused([{**good, 'cost_model': 'cost.json',
                           'block_tokens': 32}],
                         'engines[0].cost_model', 'cost.json', *words)
        self.refused([{**good, 'name': 'a b'}], 'engines[0].name', 'a b')
        self.refused([good, good], 'engines[1].name', '"a"')
        self.refused([{'name': 'a'}], 'engines[0].url')
        self.refused([{'nam': 'a', 'url': 'http://h:1'}],
                     'engines[0].nam: no such field')
        self.refused([good], 'stores[0].nam: no such field',
                     stores=[{'nam': 's', 'model': 'm'}])
        self.refused([good], 'c.json: admin_key_file: /', '/none: No such file',
                     admin_key_file='none')
        self.refused([], 'c.json: engines_file: /', '/none.json: No such file',
                     engines_file='none.json')
        folder = os.path.dirname(self.write('x', ''))
        self.refused([{**good, 'api_key_file': folder}],
                     'engines[0].api_key_file', 'not a regular file')
        self.refused([{**good, 'kv_blocks': 0}], 'engines[0].kv_blocks')
        self.refused([{**good, 'block_tokens': 16},
                      {**good, 'name': 'b', 'block_tokens': 32},
                      {**good, 'name': 'c', 'block_tokens': 24}],
                     'engines[2].block_tokens: 24: no block size of the '
                     'index fits both this size and the 16 of engine a')
        self.refused([{**good, 'block_tokens': 12},
                      {**good, 'name': 'b', 'block_tokens': 16}],
                     'engines[1].block_tokens: 16', '12 of engine a')
        self.refused([good], 'cache_salt_header', 'X-Tenant',
                     cache_salt_header='X-Tenant')
        self.refused([good], 'cost_model: "', 'cost.json"', 'native workers',
                     cost_model='cost.json')
        self.refused([{**good, 'model': 'tiny'}], 'model', 'tiny',
                     worker_listen='127.0.0.1:0')
