"""Who asks: fair shares, weights, and what is told of them."""
import hashlib
import json
import os
import signal
import threading
import time

from harness import Case, computes_long, cost_model_json, total, wait_until
from test_forward import EngineCase
from stand_in import chunk, event, reply, stream_head

# Predicted for each prompt here, so that a short queue (2 s) holds few; and
# it stays so: of two equal prompts the later one would be taken for shorter.
HALF_SECOND = {'prefill': (500000, 0, 0, 0)}
UNCORRECTED = {'correction_ms': 3600000}


def bearer(key):
    return {'Authorization': f'Bearer {key}'}


def entry(name, key, weight=1):
    return {'name': name, 'weight': weight,
            'sha256': [hashlib.sha256(key.encode()).hexdigest()]}


class Clients:
    """Threads that ask with a key, again and again until they are stopped, and
    the order in which answers came, over all of them."""

    def __init__(self, case, api, n_tokens):
        self.case, self.api, self.n_tokens = case, api, n_tokens
        self.lock = threading.Lock()
        self.order, self.wrong, self.threads = [], [], []
        self.refused = []
        self.n_sent = 0
        self.stopped = False

    def prompt(self):
        """Another one each time: nothing is reused."""
        with self.lock:
            self.n_sent += 1
            n = self.n_sent
        return [n % 251, n // 251] + [1] * (self.n_tokens - 2)

    def ask(self, key, slo=None):
        reply = self.api.post('/v1/completions', {
            'model': 'tiny', 'prompt': self.prompt(), 'max_tokens': 1},
            {**bearer(key), **({'x-slo-ttft-ms': slo} if slo else {})})
        with self.lock:
            if reply.status == 200:
                self.order.append(key)
            elif not slo or reply.status != 429:
                self.wrong.append(reply.body)
            else:
                self.refused.append(reply.body['error'])
        if slo and reply.status == 429:
            time.sleep(0.1)

    def begin(self, key, threads, times=None, slo=None):
        def work():
            n = 0
            while not self.stopped and n != times:
                self.ask(key, slo)
                n += 1
        begun = [threading.Thread(target=work) for _ in range(threads)]
        for thread in begun:
            thread.start()
        self.threads += begun
        return begun

    def end(self):
        self.stopped = True
        for thread in self.threads:
            thread.join()
        self.case.assertEqual(self.wrong, [])


class Shares(Case):
    GREEDY, ASKED = 60, 10

    def passed_by(self, **config):
        """Of a greedy key, which always has 60 requests waiting, how many are
        answered from the time another one begins to wait for ten until it has
        them."""
        cluster = self.cluster(prefill=2, decode=1, cost=HALF_SECOND,
                               config={**UNCORRECTED, **config}, kv_mib=32)
        clients = Clients(self, cluster.api, 1200)
        clients.ask('modest')
        clients.begin('greedy', self.GREEDY)
        wait_until('all of them are there', lambda: cluster.api.health()[
            'requests_in_flight'] >= self.GREEDY - 5)
        begun = len(clients.order)
        for thread in clients.begin('modest', self.ASKED, 1):
            thread.join()
        passed = clients.order[begun:].count('greedy')
        metrics = cluster.api.metrics()
        clients.end()
        for process in cluster.processes():
            self.stop(process)
        return passed, metrics

    @computes_long
    def test_a_greedy_key_leaves_others_their_share(self):
        """Who has work waiting gets at least half of his share, which is a
        quarter of what is served here, but for the short queues that were full
        when he came: two workers', and what each has begun."""
        passed, metrics = self.passed_by()
        self.assertLessEqual(passed, 3 * self.ASKED + 14)
        self.assertGreater(metrics[
            'conductor_tenant_waiting{tenant="other"}'], 0)
        # Without shares all of them are served before.
        without, _ = self.passed_by(policy_options={'shares': 0})
        self.assertGreater(without, 3 * self.ASKED + 14)

    @computes_long
    def test_an_slo_does_not_push_others_out(self):
        """Who says that an hour is soon enough fills no queue that others,
        who say nothing, then wait behind for ever."""
        cluster = self.cluster(prefill=1, decode=1, cost=HALF_SECOND,
                               config=UNCORRECTED, kv_mib=32)
        clients = Clients(self, cluster.api, 1200)
        clients.ask('modest')
        clients.begin('greedy', 20, slo='3600000')
        wait_until('all of them are there', lambda: cluster.api.health()[
            'requests_in_flight'] >= 15)
        begun = len(clients.order)
        modest = clients.begin('modest', 3, 1)
        wait_until('modest ones are served, or many others', lambda:
                   not any(t.is_alive() for t in modest) or
                   len(clients.order) > begun + 60)
        passed = clients.order[begun:].count('greedy')
        clients.end()
        self.assertLess(passed, 40)
        # They are told why, by the name that the documentation uses.
        told = [e['message'] for e in clients.refused if e['code'] == 'share']
        self.assertTrue(told)
        for message in told:
            self.assertRegex(message, "tenant 'other'.* for other tenants")


class Sizes(EngineCase):
    """Requests whose tokens nobody knows, before an engine has told them."""
    BIG = 30000

    def serve(self, request, send):
        big = request.header('authorization') == 'Bearer big'
        send(reply(200, {'data': [], 'usage': {
            'prompt_tokens': self.BIG if big else 10,
            'total_tokens': self.BIG if big else 10}}))

    def metrics_of(self, config, **fields):
        cluster = self.engines(self.serve, **fields, config={
            'tenants_file': self.write('tenants.json', json.dumps({'tenants': [
                entry('big', 'big'), entry('small', 'small')]})), **config})
        for i in range(4):
            for key in 'big', 'small':
                got = cluster.api.post('/v1/embeddings', {
                    'model': 'm', 'input': f'{i}' * 40}, bearer(key)).ok()
        metrics = cluster.api.metrics()
        self.end(cluster)
        return [metrics['conductor_tenant_%s{tenant="%s"}' % (m, key)]
                for key in ('big', 'small')
                for m in ('standing_ratio', 'computed_tokens_total')]

    def test_usage_tells_what_is_charged(self):
        """With equal bodies, and one engine that says much more of one: by
        counts, by a cost model, and by one that is being learnt."""
        path = self.write('own.json',
                          cost_model_json().replace('tiny', 'm'))
        for config, fields in (({}, {'cost_model': path}), ({}, {}),
                               ({'policy': 'least_loaded'}, {})):
            with self.subTest(config, **fields):
                big, tokens, small, few = self.metrics_of(config, **fields)
                self.assertGreater(big, 1.9)
                self.assertLess(small, 0.2)
                self.assertEqual(tokens, 4 * self.BIG)
                self.assertLess(few, 100)

    def test_lies_are_not_believed(self):
        """An engine that tells more than a body can have."""
        def lie(request, send):
            send(reply(200, {'usage': {'prompt_tokens': lie.tokens,
                                       'cached_tokens': 10 ** 12}}))
        cluster = self.engines(lie)
        for lie.tokens in 2 * 10 ** 9, 10 ** 11, 10 ** 30:
            self.assertEqual(cluster.api.post('/v1/embeddings', {
                'model': 'm', 'input': 'x'}).status, 200)
        metrics = cluster.api.metrics()
        self.assertLess(total(metrics, 'conductor_tenant_computed_tokens_total'),
                        33000)
        self.assertEqual(total(metrics, 'conductor_cached_tokens_total'), 0)

    def test_a_client_writes_no_usage(self):
        """What an answer has of its request is not the engine's word, and
        neither is what stands in a text."""
        forged = {'usage': {'prompt_tokens': 1, 'input_tokens': 1},
                  'prompt_tokens': 1, 'input_tokens': 1}
        text = json.dumps({'usage': {'input_tokens': 1}})

        def serve(request, send):
            usage = {'input_tokens': self.BIG, 'output_tokens': 1}
            answer = {'tools': [forged], 'prompt': forged, 'usage': usage,
                      'metadata': forged, 'user': text,
                      'input_messages': [forged, '}\\'], 'store': text}
            if not json.loads(request.body).get('stream'):
                send(reply(200, answer))
                return
            send(stream_head() + chunk(event({'delta': text, **forged})) + chunk(
                event({'type': 'response.completed', 'response': answer}))
                + b'0\r\n\r\n')
        cluster = self.engines(serve)
        for n, stream in enumerate((False, True), 1):
            self.assertEqual(cluster.api.post('/v1/responses', {
                'model': 'm', 'input': f'{n}' * 40, 'stream': stream}).status,
                200)
            self.assertEqual(total(
                cluster.api.metrics(),
                'conductor_tenant_computed_tokens_total'), n * self.BIG)

    def test_bytes_until_then(self):
        """A body counts by its bytes; sounds and pictures up to a bound."""
        cluster = self.engines(self.serve)
        for path, body, type_, tokens in (
                ('/v1/embeddings', b'{"model":"m","input":"%s"}' % (b'x' * 4000),
                 'application/json', range(1000, 1020)),
                ('/v1/files', b'x' * 100000, 'audio/wav', range(8192, 8193)),
                ('/v1/files', b'', 'application/json', range(1, 2))):
            got = cluster.api.post(path, body, {'Content-Type': type_}).ok()
            why = cluster.api.explain(got)
            self.assertIn(why['prompt_tokens'], tokens, path)


class Names(Case):
    def told(self, cluster, headers=None, **body):
        reply = cluster.api.complete([7] * 40, 1, headers=headers, **body).ok()
        told = cluster.api.explain(reply)
        return told['tenant'], told['priority']

    def test_names_weights_and_reload(self):
        path = self.write('tenants.json', json.dumps({'tenants': [
            entry('team-a', 'the key of a')]}))
        cluster = self.cluster(prefill=0, decode=0, both=1,
                               config={'tenants_file': 'tenants.json'})
        a, b = bearer('the key of a'), {'authorization': 'bearer the key of b'}
        self.assertEqual(self.told(cluster, a, priority=-3), ('team-a', -3))
        # One of many: nobody goes first because he says so.
        self.assertEqual(self.told(cluster, b, priority=-3), ('other', 0))
        self.assertEqual(self.told(cluster, priority=-3), ('other', 0))
        self.write('tenants.json', '{"tenants": [{"name": "x"}]}')
        cluster.conductor.child.send_signal(signal.SIGHUP)
        wait_until('a wrong file is told', lambda:
                   'nothing has changed' in cluster.conductor.log())
        self.assertEqual(self.told(cluster, a), ('team-a', 0))
        self.write('tenants.json', json.dumps({'tenants': [
            entry('team-b', 'the key of b', 3),
            entry('team-a', 'the key of a')]}))
        cluster.conductor.child.send_signal(signal.SIGHUP)
        wait_until('it was read again', lambda:
                   'reload: taken: tenants_file;' in cluster.conductor.log())
        self.assertEqual(self.told(cluster, b, priority=10 ** 12),
                         ('team-b', 2 ** 31 - 1))
        metrics = cluster.api.metrics()
        for name, n in (('team-a', 2), ('team-b', 1), ('other', 2)):
            self.assertEqual(metrics[
                'conductor_tenant_requests_total{tenant="%s",'
                'outcome="completed"}' % name], n)
        self.assertEqual(total(metrics, 'conductor_tenant_requests_total'), 5)
        self.assertIn('conductor_tenant_standing_ratio{tenant="team-b"}',
                      metrics)
        # Keys are told nowhere.
        self.assertNotIn('the key', cluster.conductor.log() + str(metrics))
        self.assertTrue(path)

    def test_another_header(self):
        cluster = self.cluster(prefill=0, decode=0, both=1, config={
            'tenants_file': self.write('tenants.json', json.dumps({'tenants': [
                entry('a', 'one')]})), 'tenant_header': 'x-team',
            'priority_header': 'x-priority', 'log_level': 'debug'})
        self.assertEqual(self.told(cluster, {'x-team': 'one'}), ('a', 0))
        self.assertEqual(self.told(cluster, {'X-Team': 'one',
                                             'x-priority': '-7'}, priority=3),
                         ('a', -7))
        self.assertEqual(self.told(cluster, bearer('one')), ('other', 0))
        self.assertNotIn('one', cluster.conductor.log().replace('none', ''))

    def test_without_a_file_every_key_is_one(self):
        cluster = self.cluster(prefill=0, decode=0, both=1)
        self.assertEqual(self.told(cluster, bearer('some'), priority=2),
                         ('other', 2))
        cluster.conductor.child.send_signal(signal.SIGHUP)
        wait_until('it was read again', lambda:
                   'reload: taken: nothing' in cluster.conductor.log())
        self.assertEqual(self.told(cluster), ('other', 0))


class Keys(Case):
    """api_keys required: who may ask, and on what terms."""

    def keyed(self, *tenants, **config):
        path = self.write('tenants.json', json.dumps({'tenants': [
            {**entry(name, f'key of {name}'), **terms}
            for name, terms in tenants]}))
        return self.cluster(config={'tenants_file': path,
                                    'api_keys': 'required', **config})

    @staticmethod
    def ask(cluster, name, prompt='p' * 70, **more):
        return cluster.api.complete(
            prompt, 1, headers=bearer(f'key of {name}'), **more)

    def test_strangers(self):
        cluster = self.keyed(('a', {}))
        for headers in {}, bearer('key of b'), bearer('key of '), bearer(''), \
                {'Authorization': 'Basic key of a'}:
            for method, path in (('POST', '/v1/completions'),
                                 ('POST', '/v1/chat/completions'),
                                 ('POST', '/v1/schedule'), ('GET', '/v1/models'),
                                 ('GET', '/v1/nothing'), ('POST', '/generate')):
                reply = cluster.api.request(
                    method, path, {} if method == 'POST' else None, headers)
                self.assertEqual(
                    (reply.status, reply.body['error']['code'],
                     reply.headers['WWW-Authenticate']),
                    (401, 'invalid_api_key', 'Bearer'), (path, headers))
        for path in '/health', '/ready':
            self.assertEqual(cluster.api.get(path).status, 200)
        self.assertEqual(self.ask(cluster, 'a').status, 200)
        self.assertEqual(cluster.api.get(
            '/v1/models', headers=bearer('key of a')).status, 200)

    def test_operators_need_theirs(self):
        key = self.write('admin.key', 'k' * 64)
        os.chmod(key, 0o600)
        cluster = self.keyed(('a', {}), admin_key_file=key)
        for path in '/metrics', '/admin/instances', '/admin/explain/x', \
                '/workers', '/global_view':
            for headers in {}, bearer('key of a'):
                self.assertEqual(cluster.api.get(
                    path, headers=headers).status, 401)
            self.assertIn(cluster.api.get(
                path, headers=bearer('k' * 64)).status, (200, 404))

    def test_tenants_share_no_cache(self):
        cluster = self.keyed(('a', {}), ('b', {}))

        def cached(name, **more):
            reply = self.ask(cluster, name, **more).ok()
            return reply.body['usage']['prompt_tokens_details'][
                'cached_tokens']
        self.assertEqual(cached('a'), 0)
        self.assertEqual(cached('a'), 64)
        self.assertEqual(cached('b'), 0)
        self.assertEqual(cached('b', cache_salt='a'), 64)  # has no effect
        self.assertEqual(cached('b'), 64)

    def test_limits(self):
        cluster = self.keyed(('a', {'requests_per_minute': 3}),
                             ('b', {'tokens_per_minute': 140}), ('c', {}))
        for name, fits, code in (('a', 3, 'requests'), ('b', 2, 'tokens')):
            for _ in range(fits):
                self.assertEqual(self.ask(cluster, name).status, 200)
            reply = self.ask(cluster, name)
            self.assertEqual((reply.status, reply.body['error']['code']),
                             (429, f'rate_limit_{code}'))
            self.assertIn(f'tenant {name}: {code}_per_minute is '
                          f'{3 if name == "a" else 140}, and ',
                          reply.body['error']['message'])
            self.assertIn(int(reply.headers['Retry-After']), range(1, 21))
            self.assertEqual(self.ask(cluster, 'c').status, 200)
        self.assertEqual(
            cluster.api.metric('tenant_limited_total', tenant='a'), 1)

    def test_in_flight(self):
        cluster = self.keyed(('a', {'max_in_flight': 1}), ('b', {}),
                             ('c', {'max_in_flight': 2}))
        connection, response = cluster.api.open(
            'POST', '/v1/completions',
            {'model': 'tiny', 'prompt': 'p', 'max_tokens': 4000,
             'stream': True}, bearer('key of a'))
        self.assertEqual(response.status, 200)
        reply = self.ask(cluster, 'a')
        self.assertEqual((reply.status, reply.body['error']['code']),
                         (429, 'rate_limit_in_flight'))
        self.assertIn('tenant a: max_in_flight is 1, and ',
                      reply.body['error']['message'])
        self.assertEqual(self.ask(cluster, 'b').status, 200)
        # Each prompt of a batch is one.
        self.assertError(self.ask(cluster, 'c', ['x', 'y', 'z']), 429,
                         'prompt: 3 prompts: the tenant may have 2 more')
        self.assertEqual(self.ask(cluster, 'c', ['x', 'y']).status, 200)
        response.close()
        connection.close()
        wait_until('the first one is over',
                   lambda: self.ask(cluster, 'a').status == 200)

    def test_slo_and_reload(self):
        cluster = self.keyed(('a', {'slo_ttft_ms': 0.001}), ('b', {}))
        reply = self.ask(cluster, 'a')
        self.assertEqual((reply.status, reply.body['error']['code']),
                         (429, 'slo_ttft_exceeded'))
        self.assertEqual(cluster.api.post('/v1/completions', {
            'model': 'tiny', 'prompt': 'p', 'max_tokens': 1},
            {**bearer('key of a'), 'x-slo-ttft-ms': '60000'}).status, 200)
        self.write('tenants.json', json.dumps(
            {'tenants': [entry('b', 'another')]}))
        cluster.conductor.child.send_signal(signal.SIGHUP)
        wait_until('the key is gone',
                   lambda: self.ask(cluster, 'b').status == 401)
        self.assertEqual(cluster.api.complete(
            'p', 1, headers=bearer('another')).status, 200)


class KeysOfEngines(EngineCase):
    def test_engines_are_told_whose_it_is(self):
        path = self.write('tenants.json', json.dumps({'tenants': [
            entry('a', 'one')]}))
        cluster = self.engines(None, config={
            'tenants_file': path, 'api_keys': 'required',
            'cache_salt_header': 'x-salt'})
        for more, salt in ({}, 'a'), ({'x-salt': 's'}, 'a/s'):
            reply = self.post(cluster, {'prompt': 'p', 'cache_salt': 'x'},
                              headers={**bearer('one'), **more}).ok()
            self.assertEqual(json.loads(self.all[0].requests[-1].body)[
                'cache_salt'], salt)
        self.assertEqual(self.post(cluster, {'prompt': 'p'}).status, 401)
        self.assertEqual(self.post(
            cluster, {'input': 'p'}, '/v1/embeddings').status, 401)
        n = len(self.all[0].requests)
        # Without a key nothing reaches them, nor what a browser asks first.
        for path in '/v1/completions', '/v1/files', '/v1/embeddings':
            for body in None, {'model': 'm'}:
                self.assertEqual(cluster.api.request(
                    'OPTIONS', path, body).status, 401, (path, body))
        self.assertEqual(len(self.all[0].requests), n)
        self.assertEqual(cluster.api.request(
            'OPTIONS', '/v1/completions', {'model': 'm', 'prompt': 'p'},
            bearer('one')).status, 200)

    def test_keys_stay_here(self):
        """In whatever header one stands; what is none passes."""
        path = self.write('tenants.json', json.dumps({'tenants': [
            entry('a', 'one')]}))
        keyed = {'tenants_file': path, 'api_keys': 'required'}
        cluster = self.engines(None, config=keyed)
        for more in {}, {'x-api-key': 'one', 'Api-Key': 'bearer  one'}:
            self.assertEqual(self.post(
                cluster, {'prompt': 'p'}, headers={
                    **bearer('one'), **more, 'x-other': 'two'}).status, 200)
            seen = dict(self.all[0].requests[-1].headers)
            self.assertEqual(seen['x-other'], 'two')
            self.assertNotIn('one', str(seen))
        self.end(cluster)
        # Where the key has a header of its own, Authorization is the engine's.
        cluster = self.engines(None, config={**keyed, 'tenant_header': 'x-key'})
        for own in 'bearer engine', 'bearer one':
            self.assertEqual(self.post(
                cluster, {'prompt': 'p'},
                headers={'x-key': 'one', 'Authorization': own}).status, 200)
        seen = [dict(r.headers) for r in self.all[0].requests]
        self.assertEqual([r.get('authorization') for r in seen],
                         ['bearer engine', None])
        self.assertNotIn('one', str(seen))
        self.end(cluster)
        # Where none is required all of it is the client's business.
        cluster = self.engines(None)
        self.post(cluster, {'prompt': 'p'}, headers=bearer('one'))
        self.assertEqual(self.all[0].requests[-1].header('authorization'),
                         'Bearer one')

    def keeper(self, request, send):
        """An engine that has whatever it is asked for, and makes responses
        whose bodies hold what clients said in front of the id."""
        if request.method != 'POST' or request.path.count('/') > 2:
            send(reply(200, {'of': request.path}))
            return
        said = json.loads(request.body)
        self.made += 1
        answer = {'metadata': said.get('metadata'),
                  'instructions': 'id"' * 1000,
                  'id': f'resp_{self.made}', 'output': []}
        if not said.get('stream'):
            send(reply(200, answer))
            return
        send(stream_head() + chunk(event(
            {'type': 'response.created', 'response': answer})) +
            b'0\r\n\r\n')

    def test_what_engines_keep(self):
        """Is their tenant's: nobody else's request for it reaches an engine,
        and the answer is that for what does not exist."""
        self.made = 0
        path = self.write('tenants.json', json.dumps({'tenants': [
            entry('a', 'one'), entry('b', 'two')]}))
        cluster = self.engines(self.keeper, self.keeper, config={
            'tenants_file': path, 'api_keys': 'required'})
        n_seen = [0]

        def ask(key, method, path, reaches, body=None):
            got = cluster.api.request(method, path, body, bearer(key))
            n = sum(r.path != '/health' and r.path != '/v1/models' and
                    r.path != '/metrics'
                    for e in self.all for r in e.requests)
            self.assertEqual(n - n_seen[0], int(reaches), (key, method, path))
            n_seen[0] = n
            return got

        def make(key, **more):
            got = ask(key, 'POST', '/v1/responses', True,
                      {'model': 'm', 'input': 'x', **more}).ok()
            return f'resp_{self.made}'

        def lost(got, param):
            self.assertEqual(
                (got.status, got.body['error']['code'],
                 got.body['error']['param']), (404, 'not_found', param))
            return got.body['error']['message']
        own = {'one': [make('one'), make('one', stream=True)],
               'two': [make('two', metadata={'id': 'resp_1'})]}
        for key, other in ('one', 'two'), ('two', 'one'):
            for id_ in own[key]:
                for method, rest in (('GET', ''), ('POST', '/cancel'),
                                     ('GET', '/input_items?limit=1'),
                                     ('DELETE', '')):
                    got = ask(key, method, f'/v1/responses/{id_}{rest}', True)
                    self.assertEqual(got.status, 200, got.body)
                make(key, previous_response_id=id_)
            for id_ in own[other]:
                for method, rest in (('GET', ''), ('DELETE', ''), ('PUT', ''),
                                     ('POST', '/cancel'), ('OPTIONS', '')):
                    told = [lost(ask(key, method, f'/v1/responses/{i}{rest}',
                                     False), 'path').replace(i, 'ID')
                            for i in (id_, 'resp_99')]
                    self.assertEqual(*told)
                told = [lost(ask(key, 'POST', '/v1/responses', False, {
                    'model': 'm', 'input': 'x', 'previous_response_id': i}),
                    'previous_response_id').replace(i, 'ID')
                    for i in (id_, 'resp_99')]
                self.assertEqual(*told)
        # Nor by another spelling of it, or of the path.
        for path in ('/v1/responses/%72esp_1', '/v1/%72esponses/resp_1',
                     '/v1/responses/resp_1%2f', '/v1/responses/'):
            for key in 'one', 'two':
                got = ask(key, 'GET', path, False)
                self.assertIn(got.status, (403, 404), path)
        for path in ('/v1/files/f', '/v1/batches/b', '/v1/conversations/c',
                     '/v1/files/f/content', '/v1/vector_stores/v/files',
                     '/v1/chat/completions/c', '/v1/anything/x',
                     '/v1/anything', '/v1/messages'):
            for method in 'GET', 'DELETE', 'PUT', 'PATCH':
                got = ask('one', method, path, False)
                self.assertEqual(got.status, 404, (method, path))
        for path in ('/v1/files', '/v1/batches', '/v1/conversations/',
                     '/v1/responses', '/v1/batches?limit=1'):
            self.assertError(ask('one', 'GET', path, False), 403,
                             'of all tenants there together')
        for more, param in (
                ({'conversation': 'c'}, 'conversation'),
                ({'input_file_id': 'f'}, 'input_file_id'),
                ({'input': [{'content': [{'file_id': 'f'}]}]}, 'file_id')):
            lost(ask('one', 'POST', '/v1/responses', False,
                     {'model': 'm', **more}), param)
        lost(ask('one', 'POST', '/v1/schedule', False,
                 {'prompt': 'x', 'previous_response_id': own['two'][0]}),
             'previous_response_id')

    def test_paths_without_a_salt(self):
        """What engines cannot tell apart by tenants does not reach them; nor
        do parameters of somebody else's transfers, wherever they stand."""
        path = self.write('tenants.json', json.dumps({'tenants': [
            entry('a', 'one')]}))
        cluster = self.engines(None, config={
            'tenants_file': path, 'api_keys': 'required'})
        for path in '/v1/messages', '/v1/batches', '/infill', '/%763/x', \
                '/v1/mess%61ges':
            reply = self.post(cluster, {'messages': []}, path, bearer('one'))
            self.assertEqual(
                (reply.status, reply.body['error']['code']),
                (404, 'unknown_path') if path == '/%763/x' else
                (403, 'path_shares_cache'))
        for extra in {'vllm_xargs': {'kv_transfer_params': 1}}, \
                {'sampling_params': {'extra_args': {
                    'kv_transfer_params': {'remote_host': 'x'}}}}:
            reply = self.post(cluster, {'token_ids': [1], 'prompt': [1],
                                        **extra},
                              '/inference/v1/generate', bearer('one'))
            self.assertError(reply, 400, 'kv_transfer_params')
        self.assertEqual([r for r in self.all[0].requests
                          if r.method == 'POST'], [])
        for path in '/v1/embeddings', '/inference/v1/generate', \
                '/v1/respo%6eses':
            reply = self.post(cluster, {'input': 'p', 'token_ids': [1]},
                              path, bearer('one')).ok()
            self.assertEqual(json.loads(self.all[0].requests[-1].body)[
                'cache_salt'], 'a')

    def test_tickets(self):
        """Their end can be told at every limit; hashes name blocks of all."""
        path = self.write('tenants.json', json.dumps({'tenants': [
            {**entry('a', 'one'), 'max_in_flight': 1,
             'requests_per_minute': 2}]}))
        cluster = self.engines(None, config={
            'tenants_file': path, 'api_keys': 'required'})

        def ask():
            return self.post(cluster, {'prompt': 'p'}, '/v1/schedule',
                             headers=bearer('one'))
        for _ in range(2):
            got = ask().ok()
            reply = cluster.api.post(
                '/v1/schedule/done', {'ticket': got.body['ticket']},
                bearer('one')).ok()
        self.assertEqual(ask().status, 429)

    def test_hashes_are_of_all_tenants(self):
        path = self.write('tenants.json', json.dumps({'tenants': [
            entry('a', 'one')]}))
        cluster = self.engines(None, config={
            'tenants_file': path, 'api_keys': 'required'})
        reply = self.post(cluster, {'block_hashes': [1]}, '/v1/schedule',
                          headers=bearer('one'))
        self.assertEqual((reply.status, reply.body['error']['param']),
                         (403, 'block_hashes'))
