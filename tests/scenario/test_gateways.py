"""Conductor as a service to other gateways: where they are to send a request
that they send themselves."""
import http.client
import json
import os
import pathlib
import shutil
import socket
import subprocess
import unittest

from harness import ROOT, cost_model_json, wait_until
from stand_in import Engine, chunk, event, reply, stream_head
from test_forward import EngineCase

PROGRAMS = '/usr/sbin:/usr/bin:/sbin:/bin'
NGINX = shutil.which('nginx', path=PROGRAMS)
HAPROXY = shutil.which('haproxy', path=PROGRAMS)


class GatewayCase(EngineCase):
    def ask(self, cluster, body=None, headers=None, path='/v1/schedule'):
        body = {'model': 'm', **body} if isinstance(body, dict) else body
        return cluster.api.post(path, body, headers)

    def ticket(self, cluster, prompt='hello', headers=None, **body):
        if prompt is not None:
            body['prompt'] = prompt
        got = self.ask(cluster, body, headers).ok()
        return got

    @staticmethod
    def report(cluster, ticket, **said):
        return cluster.api.post('/v1/schedule/done', {'ticket': ticket, **said})

    @staticmethod
    def gauge(cluster, name, i):
        return cluster.api.metric(f'instance_{name}', instance=f'e{i}')

    @staticmethod
    def count(cluster, event):
        return cluster.api.metric('tickets_total', event=event)


class Schedule(GatewayCase):
    def test_says_where_and_books_it(self):
        cluster = self.engines(None, None)
        ids = list(range(1000, 1200))
        got = self.ticket(cluster, token_ids=ids, prompt=None)
        first = got.body
        i = int(first['decode']['instance'][1])
        engine = self.all[i]
        address = f'127.0.0.1:{engine.port}'
        self.assertEqual(first['prefill'], first['decode'])
        self.assertEqual(first['decode'], {
            'instance': f'e{i}', 'url': engine.url, 'address': address})
        self.assertEqual(
            (first['prompt_tokens'], first['prompt_known_by'],
             first['cached_tokens'], first['model']), (200, 'tokens', 0, 'm'))
        self.assertEqual(got.headers['x-gateway-destination-endpoint'], address)
        self.assertEqual(got.headers['x-conductor-ticket'], first['ticket'])
        self.assertEqual(got.headers['x-conductor-decode'], f'e{i}')
        self.assertNotIn('x-prefiller-host-port', got.headers)
        self.assertIsNone(first['pair'])
        self.assertNotIn('x-accel-redirect', got.headers)
        # It counts as being there, and what it stores is expected there.
        self.assertEqual(self.gauge(cluster, 'decodes', i), 1)
        again = self.ticket(cluster, token_ids=ids, prompt=None).body
        self.assertEqual(again['decode']['instance'], f'e{i}')
        self.assertEqual(again['cached_tokens'], 192)
        self.assertEqual(again['plan']['local_tokens'], 192)
        self.assertNotEqual(first['ticket'], again['ticket'])
        self.assertEqual(self.gauge(cluster, 'decodes', i), 2)
        for t in first, again:
            done = self.report(cluster, t['ticket'], output_tokens=7,
                               cached_tokens=192)
            self.assertEqual((done.status, done.body), (200, {'ok': True}))
        self.assertEqual(self.gauge(cluster, 'decodes', i), 0)
        self.assertEqual(self.count(cluster, 'granted'), 2)
        why = cluster.api.explain(first['request_id'])
        self.assertEqual(why['decode'], f'e{i}')
        # Nothing reached an engine.
        self.assertEqual([e.requests for e in self.all], [[], []])
        self.assertError(self.report(cluster, first['ticket']), 404,
                         f'ticket: "{first["ticket"]}": is unknown')

    def test_what_only_conductor_says(self):
        """Is not taken out of what another gateway sends on: it is refused."""
        cluster = self.engines(None)
        for name in ('kv_transfer_params', 'bootstrap_host', 'bootstrap_room',
                     'data_parallel_rank', 'routed_dp_rank'):
            self.assertError(self.ask(cluster, {'prompt': 'x', name: None}),
                             400, f'{name}: null: must be left out')
        for name in 'X-Prefiller-Host-Port', 'x-data-parallel-rank':
            self.assertError(self.ask(cluster, {'prompt': 'x'}, {name: '1'}),
                             400, f'header {name}: must be left out')
        self.ticket(cluster, user={'bootstrap_host': 1}, rid='r')

    def test_takes_what_clients_send(self):
        """Bodies of completions, of chats and of SGLang, as they are."""
        cluster = self.engines(None)
        for body, by, n in (
                ({'prompt': 'x' * 400}, 'bytes', 100),
                ({'prompt': list(range(64))}, 'tokens', 64),
                ({'token_ids': list(range(64))}, 'tokens', 64),
                ({'input_ids': list(range(64))}, 'tokens', 64),
                ({'text': 'x' * 400}, 'bytes', 100),
                # Behind the client's own members, too.
                ({'prompt': 'x' * 400, 'token_ids': list(range(64))},
                 'tokens', 64),
                ({'messages': [{'role': 'user', 'content': 'x' * 400}],
                  'prompt': None, 'stream': True}, 'bytes', 108)):
            got = self.ask(cluster, body).ok()
            self.assertEqual(got.body['prompt_known_by'], by)
            self.assertAlmostEqual(got.body['prompt_tokens'], n, delta=1)
        cold = [self.ticket(cluster, list(range(64)), cache_salt='a').body
                for _ in range(2)]
        self.assertEqual([t['cached_tokens'] for t in cold], [0, 48])

    def test_hashes_of_blocks(self):
        """They stand in for tokens: those that no engine has told, too,
        are found again where they were sent."""
        cluster = self.engines(None, None)
        hashes = [-5, 2 ** 64 - 1, 0, *range(7, 129)]
        ask = lambda **body: self.ask(cluster, body).body
        first = ask(block_hashes=hashes, prompt_tokens=2005, block_size=16)
        self.assertEqual((first['prompt_known_by'], first['prompt_tokens'],
                          first['cached_tokens']), ('hashes', 2005, 0))
        for name in 'seq_hashes', 'block_hash':
            again = ask(**{name: hashes})
            self.assertEqual(again['decode'], first['decode'])
            self.assertEqual((again['prompt_tokens'], again['cached_tokens']),
                             (2000, 1984))  # the last block is computed
        self.assertEqual(ask(block_hashes=hashes[:100] + [1, 2])[
            'cached_tokens'], 1600)
        self.assertEqual(ask(block_hashes=[], prompt_tokens=9)[
            'prompt_tokens'], 9)
        # Token ids go before them, they before a text.
        self.assertEqual(ask(block_hashes=hashes, token_ids=[1])[
            'prompt_known_by'], 'tokens')
        self.assertEqual(ask(block_hashes=hashes, prompt='x')[
            'prompt_known_by'], 'hashes')
        why = cluster.api.explain(first['request_id'])
        self.assertEqual(why['decode'], first['decode']['instance'])

    def test_first_token_and_end_are_learned(self):
        """A gateway that reports first tokens teaches the estimates, and its
        requests count in the histograms."""
        cluster = self.engines(None)
        open_ = [self.ticket(cluster, headers={
            'x-conductor-reports': 'first-token'}).body for _ in range(2)]
        metrics = cluster.api.metrics()
        self.assertEqual(
            metrics['conductor_time_to_first_token_seconds_count'], 0)
        self.assertEqual(self.gauge(cluster, 'prefills_running', 0), 1)
        self.assertEqual(self.gauge(cluster, 'prefills_waiting', 0), 1)
        for t in open_:
            got = self.report(cluster, t['ticket'], state='first_token').ok()
        metrics = cluster.api.metrics()
        self.assertEqual(
            metrics['conductor_time_to_first_token_seconds_count'], 2)
        self.assertEqual(self.gauge(cluster, 'prefills_running', 0), 0)
        self.assertEqual(self.gauge(cluster, 'decodes', 0), 2)
        self.report(cluster, open_[0]['ticket'], output_tokens=20)
        self.report(cluster, open_[1]['ticket'], state='failed')
        metrics = cluster.api.metrics()
        self.assertEqual(self.gauge(cluster, 'decodes', 0), 0)
        self.assertEqual(metrics['conductor_output_tokens_total'], 19)
        self.assertEqual(metrics['conductor_requests_total'
                                 '{outcome="completed"}'], 1)
        self.assertEqual(metrics['conductor_requests_total'
                                 '{outcome="failed"}'], 1)

    def test_a_time_out_stands_in_for_the_end(self):
        cluster = self.engines(None, config={'ticket_timeout_ms': 300})
        ids = [self.ticket(cluster, headers={
            'x-conductor-reports': 'first-token'} if i else None).body['ticket']
            for i in range(4)]
        wait_until('all have expired',
                   lambda: self.count(cluster, 'expired') == 4)
        self.assertEqual(self.gauge(cluster, 'decodes', 0), 0)
        self.assertEqual(self.gauge(cluster, 'prefills_waiting', 0), 0)
        self.assertEqual(self.gauge(cluster, 'prefills_running', 0), 0)
        for t in ids:
            self.assertEqual(self.report(cluster, t).status, 404)
        self.assertEqual(cluster.api.metric('requests_in_flight'), 0)

    def test_tickets_are_bounded(self):
        """One key alone gets four fifths of them; others find the rest."""
        cluster = self.engines(None, config={'max_tickets': 50})
        greedy = {'Authorization': 'Bearer greedy'}
        tickets = []
        for _ in range(40):
            tickets.append(self.ticket(cluster, headers=greedy).body['ticket'])
        got = self.ask(cluster, {'prompt': 'x'}, greedy)
        self.assertError(got, 429, 'too many tickets')
        self.assertEqual(got.headers['retry-after'], '1')
        others = [self.ask(cluster, {'prompt': 'x'}, {
            'Authorization': f'Bearer {i}'}).status for i in range(8)]
        # Shares are by a hash: another key may have one with the greedy one.
        self.assertGreaterEqual(others.count(200), 6)
        self.assertEqual(self.count(cluster, 'refused'), 9 - others.count(200))
        for t in tickets[:20]:
            self.report(cluster, t)
        self.ticket(cluster, headers=greedy)

    def test_an_slo_is_refused_with_a_reason(self):
        cost = json.loads(cost_model_json(prefill=(1000000, 0, 0, 0)))
        path = os.path.join(self.folder, 'costs.json')
        with open(path, 'w') as f:
            json.dump({**cost, 'model': 'm'}, f)
        cluster = self.engines(None, cost_model=path)
        got = self.ask(cluster, {'prompt': 'x'}, {'x-slo-ttft-ms': '10'})
        self.assertError(got, 429, 'predicted time to first token')
        got = self.ask(cluster, {'prompt': 'x'}, {'x-slo-ttft-ms': '5000'})
        self.assertEqual(got.status, 200, got.body)
        self.assertEqual(got.body['estimates']['from'], 'file')
        self.assertGreaterEqual(got.body['estimates']['ttft_ms'], 1000)
        got = self.ask(cluster, {'prompt': 'y'}, {'x-slo-ttft-ms': '1500'})
        self.assertError(got, 429, 'predicted time to first token')
        self.assertIn('retry-after', got.headers)

    def test_an_engine_that_leaves_waits_for_its_tickets(self):
        cluster = self.engines(config={'engines': [], 'engine_drain_ms': 0})
        self.more = [Engine()]
        entry = {'name': 'e0', 'url': self.more[0].url, 'model': 'm'}
        self.assertEqual(cluster.api.post(
            '/admin/instances', entry).status, 201)
        wait_until('it is ready', lambda: cluster.api.instances()[0] == 1)
        ticket = self.ticket(cluster).body['ticket']
        self.assertEqual(cluster.api.request(
            'DELETE', '/admin/instances/e0').status, 202)
        names = lambda: [i['state'] for i in cluster.api.listed()]
        for _ in range(3):
            self.assertEqual(names(), ['draining'])
        self.assertEqual(self.report(cluster, ticket).status, 200)
        wait_until('it is gone', lambda: names() == [])

    def pair(self, kind='vllm', connector='nixl', of_prefill=None, **config):
        cluster = self.engines(config={'engines': [], **config})
        self.more = [Engine(), Engine()]
        for e, role in zip(self.more, ('prefill', 'decode')):
            got = cluster.api.post('/admin/instances', {
                'name': role, 'url': e.url, 'model': 'm', 'role': role,
                'kind': kind, 'kv_connector': connector,
                **(of_prefill or {} if role == 'prefill' else {})})
            self.assertEqual(got.status, 201, got.body)
        wait_until('both are ready', lambda: [
            i['state'] for i in cluster.api.listed()] == ['ready'] * 2)
        return cluster

    def test_both_engines_of_a_pair_wait_for_its_tickets(self):
        for name in 'prefill', 'decode':
            with self.subTest(leaves=name):
                cluster = self.pair(engine_drain_ms=0)
                ticket = self.ticket(cluster, token_ids=list(range(800)),
                                     prompt=None).body['ticket']
                self.assertEqual(cluster.api.request(
                    'DELETE', '/admin/instances/' + name).status, 202)
                states = lambda: {i['name']: i['state']
                                  for i in cluster.api.listed()}
                for _ in range(3):
                    self.assertEqual(states().get(name), 'draining')
                self.assertEqual(self.report(cluster, ticket).status, 200)
                wait_until('it is gone', lambda: name not in states())

    def test_a_pair_whose_decode_engine_is_cut_off(self):
        """Its ticket ends with it, and holds nothing on the other one."""
        cluster = self.pair(engine_drain_ms=1)
        ticket = self.ticket(cluster, token_ids=list(range(800)),
                             prompt=None).body['ticket']
        cluster.api.request('DELETE', '/admin/instances/decode')
        wait_until('it is gone', lambda:
            [i['name'] for i in cluster.api.listed()] == ['prefill'])
        self.assertEqual(self.report(cluster, ticket).status, 404)
        metrics = cluster.api.metrics()
        self.assertEqual(metrics['conductor_requests_in_flight'], 0)
        cluster.api.request('DELETE', '/admin/instances/prefill')
        wait_until('it is gone, too', lambda: cluster.api.listed() == [])

    def test_a_pair_has_two_addresses(self):
        cluster = self.pair()
        got = self.ticket(cluster, token_ids=list(range(800)), prompt=None)
        at = [f'127.0.0.1:{e.port}' for e in self.more]
        self.assertEqual([got.body[k]['instance'] for k in (
            'prefill', 'decode')], ['prefill', 'decode'])
        self.assertEqual(got.body['pair'], {
            'kv_connector': 'nixl', 'at_once': False, 'prefill_body': {
                'kv_transfer_params': {
                    'do_remote_decode': True, 'do_remote_prefill': False,
                    'remote_engine_id': None, 'remote_block_ids': None,
                    'remote_host': None, 'remote_port': None},
                'stream': False, 'max_tokens': 1}, 'decode_body': None,
            'decode_body_from_prefill': ['kv_transfer_params']})
        self.assertEqual(got.headers['x-prefiller-host-port'], at[0])
        self.assertEqual(got.headers['x-gateway-destination-endpoint'], at[1])
        count = lambda name: cluster.api.metrics()[
            f'conductor_instance_decodes{{instance="{name}"}}']
        self.assertEqual((count('prefill'), count('decode')), (0, 1))
        done = self.report(cluster, got.body['ticket'], output_tokens=9).ok()
        self.assertEqual((count('prefill'), count('decode')), (0, 0))

    def test_a_pair_of_sglang_gets_a_room(self):
        cluster = self.pair('sglang', 'sglang')
        rooms = set()
        for _ in range(3):
            pair = self.ticket(cluster, token_ids=list(range(800)),
                               prompt=None).body['pair']
            self.assertEqual((pair['kv_connector'], pair['at_once'],
                              pair['decode_body_from_prefill']),
                             ('sglang', True, []))
            body = pair['prefill_body']
            self.assertEqual(pair['decode_body'], body)
            self.assertEqual((body['bootstrap_host'], body['bootstrap_port']),
                             ('127.0.0.1', 8998))
            self.assertLess(body['bootstrap_room'], 2 ** 63)
            rooms.add(body['bootstrap_room'])
        self.assertEqual(len(rooms), 3)

    def test_a_pair_over_an_offloading_tier(self):
        """Each ticket has an id of its own, which both legs name."""
        cluster = self.pair(connector='offloading')
        numbers = set()
        for _ in range(3):
            pair = self.ticket(cluster, token_ids=list(range(800)),
                               prompt=None).body['pair']
            at = pair['prefill_body']['kv_transfer_params']['remote_decoder']
            numbers.add(at['kv_request_id'])
            self.assertEqual(pair, {
                'kv_connector': 'offloading', 'at_once': False,
                'prefill_body': {
                    'kv_transfer_params': {'remote_decoder': at},
                    'stream': False, 'max_tokens': 1},
                'decode_body': {'kv_transfer_params': {'remote_prefiller': {
                    **at, 'remote_host': '127.0.0.1', 'remote_port': 5710}}},
                'decode_body_from_prefill': []})
        self.assertEqual(len(numbers), 3)

    def test_a_pair_over_mooncake(self):
        """Its legs go at once, and meet at the bootstrap server."""
        def tell(request, send):
            self.assertEqual(request.path, '/query')
            send(reply(200, {'0': {'engine_id': 'an id', 'worker_addr': {}}}))
        server = Engine(tell)
        self.addCleanup(server.stop)
        cluster = self.pair(connector='mooncake',
                            of_prefill={'bootstrap_port': server.port})
        numbers = set()
        for _ in range(3):
            pair = self.ticket(cluster, token_ids=list(range(800)),
                               prompt=None).body['pair']
            number = pair['prefill_body']['kv_transfer_params']['transfer_id']
            numbers.add(number)
            self.assertEqual(pair, {
                'kv_connector': 'mooncake', 'at_once': True,
                'prefill_body': {
                    'kv_transfer_params': {
                        'do_remote_decode': True, 'do_remote_prefill': False,
                        'transfer_id': number},
                    'ignore_eos': True, 'stream': False, 'max_tokens': 1},
                'decode_body': {'kv_transfer_params': {
                    'do_remote_decode': False, 'do_remote_prefill': True,
                    'transfer_id': number, 'remote_engine_id': 'an id',
                    'remote_bootstrap_addr':
                        f'http://127.0.0.1:{server.port}'}},
                'decode_body_from_prefill': []})
        self.assertEqual(len(numbers), 3)

    def test_a_slash_behind_the_path(self):
        cluster = self.engines(None)
        self.assertEqual(self.ask(cluster, {'prompt': 'x'},
                                  path='/v1/schedule/').status, 200)
        self.assertEqual(self.all[0].requests, [])
        self.assertEqual(cluster.api.get('/ready/').status, 200)
        # What engines know goes on as it is.
        self.post(cluster, {'prompt': 'x'}, '/v1/completions/')
        self.assertEqual(self.all[0].requests[0].path, '/v1/completions/')

    def test_a_pair_over_files(self):
        pair = self.ticket(self.pair(connector='shared_storage'),
                           token_ids=list(range(800)), prompt=None).body['pair']
        self.assertEqual(pair, {
            'kv_connector': 'shared_storage', 'at_once': False,
            'prefill_body': {'stream': False, 'max_tokens': 1},
            'decode_body': None, 'decode_body_from_prefill': []})

    def test_bad_input(self):
        cluster = self.engines(None)
        ask = lambda body, **h: self.ask(cluster, body, {
            k.replace('_', '-'): v for k, v in h.items()})
        self.assertError(ask({}), 400, 'prompt: missing')
        self.assertError(ask(b'{"model": "m", "prompt": '), 400,
                         'expected a value')
        self.assertError(ask(b'[]'), 400, 'object')
        self.assertError(ask({'model': 'n', 'prompt': 'x'}), 404,
                         'model: "n": does not exist')
        self.assertError(ask({'prompt': 'x'}, x_conductor_reports='often'),
                         400, 'header x-conductor-reports: "often": must be '
                         'first-token or end')
        self.assertError(
            ask({'prompt': 'x'}, x_conductor_accel_redirect='/admin'), 400,
            'header x-conductor-accel-redirect: "/admin": must be')
        self.assertError(ask({'prompt': 'x'}, x_slo_ttft_ms='soon'), 400,
                         'header x-slo-ttft-ms: "soon"')
        for body, words in (
                ({'block_hashes': 'a'}, 'block_hashes: "a": must be an array'),
                ({'seq_hashes': [1, 'a']}, 'seq_hashes: "a": must be a whole'),
                ({'block_hash': [2 ** 64]}, 'whole number of 64 bits'),
                ({'block_hashes': [1.5]}, 'block_hashes: 1.5'),
                ({'block_hashes': [[1]]}, 'block_hashes: '),
                ({'block_hashes': [1], 'seq_hashes': [1]},
                 'seq_hashes: comes twice'),
                ({'block_hashes': [1, 2], 'prompt_tokens': 31},
                 'prompt_tokens: 31: must be from 32'),
                ({'block_hashes': [1], 'prompt_tokens': 2 ** 24 + 1},
                 'to 16777216'),
                ({'block_hashes': [1], 'block_size': 32},
                 'block_size: 32: must be 16, the block size of model "m"')):
            self.assertError(ask({'model': 'm', **body}), 400, words)
        self.assertError(ask(b'{"block_hashes": [1, '), 400)
        got = cluster.api.get('/v1/schedule')
        self.assertError(got, 405, 'must be one of POST')
        done = lambda body: cluster.api.post('/v1/schedule/done', body)
        self.assertError(done({}), 400, 'ticket: missing')
        self.assertError(done({'ticket': 'x'}), 404, 'ticket: "x": is unknown')
        self.assertError(done({'ticket': '0-1-2-3'}), 404, 'or has ended')
        self.assertError(done({'ticket': 7}), 400, 'ticket: 7: must be')
        self.assertError(done({'ticket': 'x', 'state': 'well'}), 400,
                         'state: "well": must be first_token, done or failed')
        self.assertError(done({'ticket': 'x', 'ttft_ms': -1}), 400,
                         'ttft_ms: -1')
        self.assertError(done({'ticket': 'x', 'output_tokens': 1.5}), 400,
                         'output_tokens: 1.5')
        self.assertError(done({'ticket': 'x', 'tokens': 1}), 400, 'tokens')
        self.assertError(done(b'{'), 400, 'JSON')
        self.assertError(done(b'[3]'), 400, 'object')
        self.assertEqual(cluster.api.metric('requests_in_flight'), 0)

    def test_a_client_that_leaves_while_it_waits(self):
        """Nothing is granted to nobody: one that waits for a place and goes
        leaves nothing behind."""
        cluster = self.engines(None, config={'max_queue_per_instance': 1})
        head = {'x-conductor-reports': 'first-token'}
        tickets = []
        while True:  # until no instance has room
            connection = http.client.HTTPConnection(
                '127.0.0.1', cluster.api.port, timeout=.5)
            connection.request('POST', '/v1/schedule', json.dumps(
                {'model': 'm', 'prompt': 'x'}), head)
            try:
                tickets.append(json.loads(
                    connection.getresponse().read())['ticket'])
            except TimeoutError:
                connection.close()
                break
        wait_until('nobody waits', lambda:
            cluster.api.metric('requests_in_flight') == len(tickets))
        for t in tickets:
            self.assertEqual(self.report(cluster, t).status, 200)
        self.assertEqual(cluster.api.metric('requests_in_flight'), 0)


class Example(GatewayCase):
    """A gateway of docs/examples before engines."""
    def front(self, program, name, *more):
        """Starts it with the ports of this test in its configuration."""
        cluster = self.engines(*self.answers)
        with socket.create_server(('127.0.0.1', 0)) as listener:
            port = listener.getsockname()[1]
        folder = pathlib.Path(self.folder) / 'gateway'
        folder.mkdir()
        for file in (name, *more):
            text = (pathlib.Path(ROOT) / 'docs/examples' / file).read_text()
            (folder / file).write_text(
                text.replace('127.0.0.1:8080', f'127.0.0.1:{cluster.api.port}')
                .replace('127.0.0.1:8000', f'127.0.0.1:{port}'))
        self.process = subprocess.Popen(program, cwd=folder)
        wait_until('it listens', lambda: self.listens(port))
        return cluster, port

    def tearDown(self):
        self.process.terminate()
        self.process.wait()
        super().tearDown()

    @staticmethod
    def listens(port):
        with socket.socket() as s:
            return s.connect_ex(('127.0.0.1', port)) == 0

    def send(self, port, path, body, method='POST'):
        connection = http.client.HTTPConnection('127.0.0.1', port, timeout=60)
        self.addCleanup(connection.close)
        # Clients have no say in what the gateway reports.
        connection.request(method, path, json.dumps({'model': 'm', **body}),
                           {'Content-Type': 'application/json',
                            'Authorization': 'Bearer client',
                            'x-conductor-reports': 'whatever'})
        got = connection.getresponse()
        return got.status, got.read()

    def check_routes_by_prefix(self):
        """Requests go to the engines without passing Conductor, those that
        begin alike to one engine, and their end is reported."""
        def streams(request, send):
            send(stream_head())
            send(chunk(event('one')) + chunk(event('two')) + b'0\r\n\r\n')
        self.answers = streams, streams, streams
        cluster, port = self.gateway()
        for talk in range(6):
            for turn in range(4):
                body = {'prompt': [1000 * talk + i
                                   for i in range(64 * (turn + 1))],
                        'stream': True}
                self.assertEqual(
                    self.send(port, '/v1/completions?a=b', body),
                    (200, event('one') + event('two')))
                # Else the next one may go where nobody is waiting.
                wait_until('its end is reported', lambda:
                    cluster.api.metric('requests_in_flight') == 0)
        self.assertEqual(
            cluster.api.metric('requests_total', outcome='completed'), 24)
        homes = {}
        for i, e in enumerate(self.all):
            for r in e.requests:
                self.assertEqual((r.method, r.path),
                                 ('POST', '/v1/completions?a=b'))
                self.assertEqual(r.header('authorization'), 'Bearer client')
                homes.setdefault(json.loads(r.body)['prompt'][0],
                                 set()).add(i)
        self.assertEqual(sum(len(e.requests) for e in self.all), 24)
        self.assertEqual({len(h) for h in homes.values()}, {1}, homes)

    def check_refusals(self):
        self.answers = None,
        _, port = self.gateway()
        status, body = self.send(port, '/v1/completions', {'model': 'other',
                                                           'prompt': 'x'})
        self.assertEqual(status, 404)
        self.assertIn('does not exist', json.loads(body)['error']['message'])
        status, body = self.send(port, '/v1/models', {}, 'GET')
        self.assertEqual((status, json.loads(body)['data'][0]['id']),
                         (200, 'm'))


@unittest.skipUnless(NGINX, 'nginx is not installed')
class Nginx(Example):
    def gateway(self):
        return self.front([NGINX, '-p', '.', '-c', 'nginx.conf'], 'nginx.conf')

    def test_routes_by_prefix(self):
        self.check_routes_by_prefix()

    def test_a_refusal_reaches_the_client(self):
        self.check_refusals()


@unittest.skipUnless(HAPROXY, 'haproxy is not installed')
class Haproxy(Example):
    def gateway(self):
        return self.front([HAPROXY, '-db', '-f', 'haproxy.cfg'], 'haproxy.cfg',
                          'haproxy.lua')

    def test_routes_by_prefix(self):
        self.check_routes_by_prefix()

    def test_a_refusal_reaches_the_client(self):
        self.check_refusals()
