"""Pairs of engines: one computes the prompt, another one answers."""
import http.client
import json
import threading
import time

from harness import (Cluster, cost_model_json, mostly_waits, settings,
                     wait_until)
from pair_stand_in import (CACHED, D, Mooncake, Nixl, Offloading, P, PROMPT,
                           Sglang, Storage, answer, body_of)
from stand_in import Engine, reply
from test_failures import in_background
from test_forward import EngineCase

LONG = 'x' * 4000  # a thousand words


class PairCase(EngineCase):
    connector, kind = 'nixl', 'vllm'

    def pair(self, *engines, config=None, decode_token_us=50):
        """A conductor in front of (role, what serves) each: e0, e1, ..
        decode_token_us: of prefills on engines that decode."""
        self.all = [Engine(serve) for _, serve in engines]
        self.more = []
        for e in self.all:
            e.metrics = 'vllm:num_requests_waiting 0\n'
        cluster = Cluster(self)
        # Stand-ins compute nothing, and would be found fast.
        cost = {role: self.write(f'{role}.json', json.dumps(
            {**json.loads(cost_model_json(prefill=(200, token_us, 0, 0))),
             'model': 'm'}))
                for role, token_us in ((P, 50), (D, decode_token_us),
                                       ('both', 50))}
        cluster.config = {
            'listen': '127.0.0.1:0', 'engine_health_ms': 50,
            'engine_tokenize_ms': 0,
            'engines': [
                {'name': f'e{i}', 'url': e.url, 'model': 'm',
                 'cost_model': cost[role],
                 'kind': self.kind, 'role': role, 'kv_connector':
                 'none' if role == 'both' else self.connector,
                 **(self.of_prefill() if role == P else {})}
                for (i, e), (role, _) in zip(enumerate(self.all), engines)],
            **(config or {})}
        cluster.start_conductor()
        wait_until('all engines are ready', lambda: all(
            i['state'] == 'ready' for i in self.instances(cluster)))
        return cluster

    def of_prefill(self):
        """More of a prefill engine's entry."""
        return {}

    def remove(self, cluster, name):
        self.assertEqual(cluster.api.request(
            'DELETE', '/admin/instances/' + name).status, 202)

    def gone(self, cluster, name):
        wait_until(f'{name} is gone', lambda: name not in [
            i['name'] for i in self.instances(cluster)])

    def begin(self, cluster, when, prompt=LONG):
        """A request that is that far; its connection."""
        connection = http.client.HTTPConnection(
            '127.0.0.1', cluster.api.port, timeout=60 * settings.scale)
        connection.request('POST', '/v1/completions', json.dumps(
            {'model': 'm', 'prompt': prompt}))
        wait_until('it is that far', when)
        return connection

    @staticmethod
    def instances(cluster):
        return cluster.api.listed()

    def explain(self, cluster, got):
        return cluster.api.explain(got)

    def idle(self, cluster):
        """Nothing is booked any more."""
        wait_until('nothing is booked', lambda: all(
            i['prefills'] == i['decodes'] == 0
            for i in self.instances(cluster)))

    def counted(self, cluster, name, **labels):
        wanted = [f'{k}="{v}"' for k, v in labels.items()]
        return sum(value for key, value in cluster.api.metrics().items()
                   if key.startswith(f'conductor_{name}') and
                   all(label in key for label in wanted))


class NixlPairs(PairCase):
    def setUp(self):
        super().setUp()
        self.nixl = Nixl()
        self.go_on = threading.Event()

    def tearDown(self):
        self.go_on.set()
        super().tearDown()
        self.assertEqual(self.nixl.faults, [])

    def usual(self, **more):
        return self.pair((P, self.nixl.prefill), (D, self.nixl.decode), **more)

    def clean(self, cluster, held=0):
        self.idle(cluster)
        wait_until('the prefill engine keeps nothing',
                   lambda: len(self.nixl.held) == held)

    def test_its_tokens_count_once(self):
        """Those that the prefill engine tells, of which a stream's answer may
        tell nothing."""
        cluster = self.usual()
        for stream in False, True:
            self.assertEqual(self.post(cluster, {
                'prompt': f'{stream}{LONG}', 'stream': stream}).status, 200)
        self.clean(cluster)
        for name, more, value in (
                ('prompt_tokens_total', {}, 2 * PROMPT),
                ('cached_tokens_total', {'source': 'local'}, 2 * CACHED),
                ('computed_tokens_total', {}, 2 * (PROMPT - CACHED)),
                ('guessed_prompt_tokens_total', {}, 0),
                ('engine_cached_tokens_total',
                 {'instance': 'e0', 'source': 'told'}, 2 * CACHED),
                ('engine_cached_tokens_total', {'instance': 'e1'}, 0)):
            self.assertEqual(self.counted(cluster, name, **more), value, name)

    def test_whole_answer(self):
        cluster = self.usual()
        sent = {'prompt': LONG, 'max_tokens': 4, 'min_tokens': 2, 'seed': 7}
        got = self.post(cluster, sent).ok()
        self.assertEqual(got.body['choices'][0], {
            'text': 'abcd', 'finish_reason': 'length', 'logprobs': [1]})
        self.assertEqual(got.body['usage']['prompt_tokens_details'],
                         {'cached_tokens': CACHED, 'other': 1})
        self.assertEqual(got.headers['x-conductor-prefill'], 'e0')
        self.assertEqual(got.headers['x-conductor-decode'], 'e1')
        first, second = self.nixl.prefills[0], self.nixl.fetched[0]
        for leg in (first, second):
            self.assertEqual(leg.header('x-request-id'),
                             got.headers['x-conductor-request-id'])
            self.assertEqual(leg.path, '/v1/completions')
        body = body_of(second)
        del body['kv_transfer_params']
        self.assertEqual(body, {'model': 'm', **sent})
        self.clean(cluster)
        self.assertEqual(self.counted(cluster, 'pair_legs_total',
                                      result='prefill'), 1)

    def test_stream(self):
        cluster = self.usual()
        sent = {'messages': [{'role': 'user', 'content': LONG}],
                'stream': True, 'stream_options': {'include_usage': True},
                'max_completion_tokens': 9}
        got = self.post(cluster, sent, '/v1/chat/completions').ok()
        events = [json.loads(line[6:]) for line in
                  (got.body if isinstance(got.body, str)
                   else got.body.decode()).split('\n\n')
                  if line.startswith('data: {')]
        self.assertEqual(''.join(e['choices'][0]['text']
                                 for e in events[:-1]), 'abcd')
        self.assertEqual(
            events[-1]['usage']['prompt_tokens_details']['cached_tokens'],
            CACHED)
        self.assertEqual(body_of(self.nixl.prefills[0])
                         ['max_completion_tokens'], 1)
        self.assertEqual(body_of(self.nixl.fetched[0])['stream_options'],
                         {'include_usage': True})
        self.assertEqual([i['role'] for i in self.instances(cluster)],
                         [P, D])
        self.clean(cluster)

    def test_parameters_of_a_client(self):
        cluster = self.usual()
        got = self.post(cluster, {'prompt': LONG, 'kv_transfer_params': {
            'do_remote_prefill': True, 'remote_block_ids': [[1]]}}).ok()
        self.assertEqual((len(self.nixl.prefills), len(self.nixl.fetched)),
                         (1, 1))

    def test_no_parameters(self):
        """The decode engine computes the prompt itself."""
        cluster = self.usual()
        self.nixl.null = True
        got = self.post(cluster, {'prompt': LONG, 'max_tokens': 5}).ok()
        self.assertEqual(body_of(self.nixl.alone[0]),
                         {'model': 'm', 'prompt': LONG, 'max_tokens': 5})
        self.assertEqual(self.counted(cluster, 'pair_legs_total',
                                      result='no_kv'), 1)
        self.clean(cluster)

    def test_what_no_pair_shares(self):
        cluster = self.usual()
        for more in ({'n': 2}, {'prompt': [LONG, 'y']}, {'echo': True},
                     {'prompt': [[1] * 900, [2]]}, {'best_of': 2},
                     {'prompt_logprobs': 1}):
            got = self.post(cluster, {'prompt': LONG, **more}).ok()
            self.assertEqual(got.headers['x-conductor-prefill'], 'e1', more)
        self.post(cluster, {'input': LONG}, '/v1/responses')
        self.post(cluster, {'input': LONG}, '/v1/embeddings')
        self.assertEqual((len(self.nixl.prefills), len(self.nixl.alone)),
                         (0, 8))

    def test_skips_the_prefill_leg(self):
        """The decode engine holds nearly all of the prompt."""
        cluster = self.usual()
        self.post(cluster, {'prompt': LONG})
        got = self.post(cluster, {'prompt': LONG + 'y'})
        self.assertEqual((len(self.nixl.prefills), len(self.nixl.alone)),
                         (1, 1))
        why = self.explain(cluster, got)
        self.assertEqual((why['prefill'], why['decode']), ('e1', 'e1'))
        shown = {c['instance']: c for c in why['candidates']}
        self.assertGreater(shown['e0']['push_ms'], 0)
        self.assertEqual(shown['e1']['push_ms'], 0)
        self.assertFalse(shown['e1']['spared'])
        why = self.explain(cluster, self.post(cluster, {'prompt': 'z' * 4000}))
        shown = {c['instance']: c for c in why['candidates']}
        self.assertEqual((why['prefill'], why['decode']), ('e0', 'e1'))
        self.assertTrue(shown['e1']['spared'])
        [decode] = why['decode_candidates']
        self.assertEqual(decode['instance'], 'e1')
        self.assertEqual(decode['push_ms'], why['predicted']['push_ms'])
        self.assertEqual(decode['push_tokens'], why['prompt_tokens'])
        self.clean(cluster)

    def test_prefill_engine_fails(self):
        """Others take its place, and in the end the decode engine."""
        bad = []

        def refuse(status):
            def serve(request, send):
                bad.append(request)
                send(reply(status, {'error': 'no'}))
            return serve
        cluster = self.pair((P, refuse(503)), (P, refuse(500)),
                            (D, self.nixl.decode))
        got = self.post(cluster, {'prompt': LONG}).ok()
        self.assertEqual(len(bad), 2)
        self.assertEqual(len(self.nixl.alone), 1)
        self.clean(cluster)

    def test_prefill_engine_breaks_off(self):
        cluster = self.pair((P, lambda *_: 'close'), (D, self.nixl.decode))
        self.assertEqual(self.post(cluster, {'prompt': LONG}).status, 200)
        self.assertEqual(len(self.nixl.alone), 1)

    def test_odd_replies(self):
        odd = [b'[]', b'{"kv_transfer_params":7}', b'{"kv_transfer_params":{']

        def serve(_, send):
            send(reply(200, odd.pop()))
        cluster = self.pair((P, serve), (D, self.nixl.decode))
        for i in range(3):
            wait_until('its prefill engine is ready', lambda: all(
                i['state'] == 'ready' for i in self.instances(cluster)))
            got = self.post(cluster, {'prompt': str(i) + LONG}).ok()
        self.assertEqual((odd, len(self.nixl.alone)), ([], 3))

    def test_what_a_client_did_wrong(self):
        """It hears it from the engine that was to answer."""
        cluster = self.pair(
            (P, lambda _, send: send(reply(400, {'error': 'leg'}))),
            (D, lambda _, send: send(reply(400, {'error': 'whole'}))))
        got = self.post(cluster, {'prompt': LONG, 'temperature': 'hot'})
        self.assertEqual((got.status, got.body), (400, {'error': 'whole'}))
        self.assertNotIn('kv_transfer_params', body_of(self.all[1].requests[0]))

    def test_decode_engine_has_no_room(self):
        """Another one answers, with a new prefill; what was kept for the first
        is released."""
        cluster = self.pair(
            (P, self.nixl.prefill),
            (D, lambda _, send: send(reply(503, {'error': 'no room'}))),
            (D, self.nixl.decode), config={'policy': 'round_robin'})
        got = self.post(cluster, {'prompt': LONG, 'stream': True}).ok()
        self.assertEqual(got.headers['x-conductor-decode'], 'e2')
        self.assertEqual(len(self.nixl.prefills), 2)
        self.clean(cluster)
        wait_until('it is counted', lambda: self.counted(
            cluster, 'pair_releases_total', result='released') == 1)
        self.assertEqual(sorted(body_of(r).get('max_tokens', 0)
                                for r in self.nixl.fetched), [0, 1])

    def test_the_only_decode_engine_has_no_room(self):
        """Its client hears so; what was kept for it is released."""
        busy = [1]

        def serve(request, send):
            if busy:
                busy.pop()
                return send(reply(503, {'error': 'no room'}))
            return self.nixl.decode(request, send)
        cluster = self.pair((P, self.nixl.prefill), (D, serve),
                            config={'max_retries': 0})
        got = self.post(cluster, {'prompt': LONG})
        self.assertEqual(got.status, 503)
        self.clean(cluster)
        self.released(cluster)

    def test_decode_engine_dies(self):
        """It may have fetched the KV: another prefill, and no parameters
        twice."""
        cluster = self.pair((P, self.nixl.prefill), (D, lambda *_: 'reset'),
                            (D, self.nixl.decode))
        got = self.post(cluster, {'prompt': LONG})
        self.assertEqual((got.status, got.headers['x-conductor-decode']),
                         (200, 'e2'))
        self.assertEqual(len(self.nixl.prefills), 2)
        self.clean(cluster, held=1)

    def test_a_client_leaves_the_prefill_leg(self):
        """The engine sees it go."""
        def serve(request, send):
            self.go_on.wait(60 * settings.scale)
            return self.nixl.prefill(request, send)
        cluster = self.pair((P, serve), (D, self.nixl.decode))
        self.leave(cluster, lambda: self.all[0].requests)
        self.idle(cluster)
        self.assertEqual(self.nixl.n, 0)

    def leave(self, cluster, when, prompt=LONG):
        self.begin(cluster, when, prompt).close()

    def test_a_client_leaves_with_the_reply(self):
        """The prefill leg's reply is on its way: it is read, and released."""
        def serve(request, send):
            whole = reply(200, self.nixl.reply(body_of(request)))
            send(whole[:-20])
            self.go_on.wait(60 * settings.scale)
            send(whole[-20:])
        cluster = self.pair((P, serve), (D, self.nixl.decode))
        self.leave(cluster, lambda: self.counted(
            cluster, 'engine_answers_total', instance='e0', **{'class': '2xx'}) > 0)
        self.idle_requests(cluster)
        self.go_on.set()
        self.clean(cluster)
        self.released(cluster)

    def idle_requests(self, cluster):
        wait_until('the request has ended', lambda: self.counted(
            cluster, 'requests_total', outcome='cancelled') == 1)

    def released(self, cluster):
        """By one token, which nobody gets."""
        wait_until('it is counted', lambda: self.counted(
            cluster, 'pair_releases_total', result='released') == 1)
        body = body_of(self.nixl.fetched[0])
        self.assertEqual((body['max_tokens'], body['stream']), (1, False))
        self.assertEqual(len(self.nixl.fetched), 1)

    def test_a_client_leaves_between_the_legs(self):
        """The decode engine does not read the request: more of it than sockets
        hold."""
        cluster = self.pair((P, self.nixl.prefill), (D, None),
                            (D, self.nixl.decode),
                            config={'policy': 'round_robin'})
        self.all[1].deaf = self.go_on
        self.leave(cluster, lambda: self.all[1].asked or self.nixl.fetched,
                   'x' * 12000000)
        if self.nixl.fetched:  # its turn is the next
            self.leave(cluster, lambda: self.all[1].asked, 'y' * 12000000)
        self.clean(cluster)
        wait_until('it is counted', lambda: self.counted(
            cluster, 'pair_releases_total', result='released') == 1)

    @mostly_waits
    def test_prefill_engine_hangs(self):
        def serve(*_):
            self.go_on.wait(60 * settings.scale)
            return 'close'
        cluster = self.pair((P, serve), (D, self.nixl.decode),
                            config={'request_timeout_ms': 500})
        self.assertEqual(self.post(cluster, {'prompt': LONG}).status, 200)
        self.assertEqual(len(self.nixl.alone), 1)
        self.assertRegex(cluster.conductor.log(),
                         'engine e0: .* made no progress for 500 ms')

    @mostly_waits
    def test_decode_engine_stops(self):
        """It would go on with KV that is another prompt's by then: it loses the
        request, even if no try is left."""
        def serve(request, send):
            self.go_on.wait(60 * settings.scale)
            return self.nixl.decode(request, send)
        cluster = self.pair((P, self.nixl.prefill), (D, serve), config={
            'engine_timeout_ms': 200, 'max_retries': 0})
        got = in_background(lambda: self.post(cluster, {'prompt': LONG}))
        wait_until('it has the request', lambda: self.all[1].requests)
        self.all[1].silent = self.go_on
        wait_until('it is taken from it', lambda: self.counted(
            cluster, 'requests_total', outcome='failed') == 1)
        self.assertEqual(got().status, 502)
        self.idle(cluster)

    def stop_behind_the_legs(self, *prefills, config=None):
        """A pair whose prefill engines' KV cannot be fetched until go_on: so
        they are stopped once something waits for it."""
        def serve(request, send):
            there = 'kv_transfer_params' not in body_of(request)
            while not there:
                there = self.go_on.wait(0.02)
                if request.left():
                    return 'close'
            return self.nixl.decode(request, send)
        return self.pair(*((P, self.nixl.prefill) for _ in prefills),
                         (D, serve), config={'engine_timeout_ms': 200,
                                             **(config or {})})

    @mostly_waits
    def test_prefill_engine_stops_behind_its_leg(self):
        """The decode engine cannot fetch the KV: it gets the request anew,
        with another prefill engine's KV or to compute the prompt."""
        for n in 1, 2:
            for stream in False, True:
                self.go_on.clear()
                cluster = self.stop_behind_the_legs(*range(n))
                legs = len(self.nixl.prefills)
                got = in_background(lambda: self.post(
                    cluster, {'prompt': LONG, 'stream': stream}))
                wait_until('it waits for KV', lambda: self.all[n].requests)
                first, = (e for e in self.all[:n] if e.requests)
                first.silent = self.go_on
                wait_until('it is taken back', lambda: self.counted(
                    cluster, 'retries_total') == 1)
                self.go_on.set()
                got = got().ok()
                self.assertEqual(len(self.nixl.prefills) - legs, n)
                self.assertEqual(len(self.all[n].requests), 2)
                self.idle(cluster)
        # What was to be fetched first, and was not, is left to the lease.
        self.assertEqual(len(self.nixl.held), 4)
        self.assertEqual(len(self.nixl.alone), 2)

    @mostly_waits
    def test_an_answer_behind_a_fetch_stays(self):
        """Of an answer that is not streamed nothing comes before all of it:
        where the prefill engine was well for long enough, it has been read."""
        cluster = self.stop_behind_the_legs(0)
        got = in_background(lambda: self.post(cluster, {'prompt': LONG}))
        wait_until('it is answered', lambda: self.all[1].requests)
        time.sleep(1)
        asked = self.all[0].n_health
        wait_until('it is well', lambda: self.all[0].n_health > asked + 1)
        self.all[0].silent = self.go_on
        wait_until('it is known', lambda: 'suspect' in [
            i['state'] for i in self.instances(cluster)])
        asked = self.all[1].n_health
        wait_until('time goes by', lambda: self.all[1].n_health > asked + 9)
        self.go_on.set()
        self.assertEqual(got().status, 200)
        self.assertEqual(self.counted(cluster, 'retries_total'), 0)
        self.clean(cluster)

    def test_prefill_engine_redirects(self):
        """The decode engine computes the prompt."""
        cluster = self.pair((P, lambda _, send: send(reply(
            307, b'', ['Location: http://127.0.0.1:1/']))),
                            (D, self.nixl.decode))
        got = self.post(cluster, {'prompt': LONG})
        self.assertEqual((got.status, got.headers['x-conductor-prefill']),
                         (200, 'e1'))
        self.clean(cluster)

    def test_replies_of_prefill_legs_are_bounded(self):
        """All together: what is over goes back to where it came from, and its
        client hears why."""
        reply_to = self.nixl.reply
        self.nixl.reply = lambda body: {**reply_to(body), 'x': 'y' * 600000}

        def hold(request, send):
            self.go_on.wait(60 * settings.scale)
            return self.nixl.decode(request, send)
        cluster = self.pair((P, self.nixl.prefill), (D, hold), config={
            'max_body_bytes': 1 << 20, 'max_body_total_bytes': 1 << 20,
            'max_retries': 0})
        first = in_background(lambda: self.post(cluster, {'prompt': LONG}))
        wait_until('it decodes', lambda: self.all[1].requests)
        self.assertError(self.post(cluster, {'prompt': 'y' + LONG}), 502,
                         'exceed max_body_total_bytes')
        self.assertEqual(self.counted(cluster, 'pair_releases_total',
                                      result='stranded'), 1)
        self.go_on.set()
        self.assertEqual(first().status, 200)
        # There is room again.
        self.assertEqual(self.post(
            cluster, {'prompt': 'z' + LONG}).status, 200)
        self.clean(cluster, 1)

    def test_prefill_engine_goes(self):
        """Its leg is done: the answer goes on."""
        def serve(request, send):
            self.go_on.wait(60 * settings.scale)
            return self.nixl.decode(request, send)
        cluster = self.pair((P, self.nixl.prefill), (D, serve))
        got = in_background(lambda: self.post(cluster, {'prompt': LONG}))
        wait_until('it decodes', lambda: self.all[1].requests)
        self.remove(cluster, 'e0')
        self.gone(cluster, 'e0')
        self.go_on.set()
        self.assertEqual(got().status, 200)

    def test_beside_an_aggregated_engine(self):
        """Each does what it was made for."""
        def long(request, send):
            wait_until('a pair has work', lambda: self.nixl.prefills)
            answer(request, send)
        cluster = self.pair((P, self.nixl.prefill), (D, self.nixl.decode),
                            ('both', long))
        answers = [in_background(lambda i=i: self.post(
            cluster, {'prompt': str(i) + LONG})) for i in range(12)]
        for got in answers:
            self.assertEqual(got().status, 200)
        self.assertGreater(len(self.all[2].requests), 0)
        self.assertGreater(len(self.nixl.prefills), 0)
        self.clean(cluster)


class OffloadingPairs(NixlPairs):
    """The same, with an id that the conductor makes."""
    connector = 'offloading'
    test_no_parameters = None  # of a reply: none has them

    def setUp(self):
        super().setUp()
        self.nixl = Offloading()

    def test_rank_and_port(self):
        """Each rank of a prefill engine has a port."""
        self.nixl.PORT = 6002
        self.of_prefill = lambda: {'bootstrap_port': 6000, 'dp_rank': 2}
        cluster = self.usual()
        self.assertEqual(self.post(cluster, {'prompt': LONG}).status, 200)
        self.assertEqual(len(self.nixl.fetched), 1)
        self.clean(cluster)


class StoragePairs(PairCase):
    connector = 'shared_storage'

    def setUp(self):
        super().setUp()
        self.storage = Storage()

    def test_both_legs(self):
        cluster = self.pair((P, self.storage.prefill),
                            (D, self.storage.decode))
        sent = {'prompt': LONG, 'stream': True}
        got = self.post(cluster, sent).ok()
        self.assertIn(f'"cached_tokens": {CACHED}'.encode(), got.body)
        self.assertNotIn(b'"cached_tokens": 192', got.body)
        self.assertEqual(body_of(self.storage.found[0]), {'model': 'm', **sent})
        self.idle(cluster)

    def test_prefill_engine_fails(self):
        cluster = self.pair((P, lambda _, send: send(reply(500))),
                            (D, self.storage.decode))
        self.assertEqual(self.post(cluster, {'prompt': LONG}).status, 200)
        self.assertEqual(len(self.storage.alone), 1)
        self.idle(cluster)


class SglangPairs(PairCase):
    """Both legs at once."""
    connector, kind = 'sglang', 'sglang'

    def setUp(self):
        super().setUp()
        self.sglang = Sglang()
        self.go_on = threading.Event()

    def tearDown(self):
        self.go_on.set()
        super().tearDown()
        self.assertEqual(self.sglang.faults, [])

    def usual(self, **more):
        return self.pair((P, self.sglang.prefill), (D, self.sglang.decode),
                         **more)

    def clean(self, cluster):
        self.idle(cluster)
        wait_until('no leg is open', lambda: self.sglang.open == 0)

    def test_answers(self):
        """Streamed and not; one token, too; what a client says of rooms is not
        taken."""
        cluster = self.usual()
        own = dict(zip(Sglang.OWN, ('10.0.0.1', 1, 2)))
        for path, sent in (
                ('/v1/completions', {'prompt': LONG, 'max_tokens': 4}),
                ('/v1/completions', {'prompt': LONG, 'max_tokens': 1}),
                ('/v1/completions', {'prompt': 'short'}),
                ('/v1/completions', {'prompt': LONG, **own}),
                ('/v1/chat/completions', {'stream': True, 'messages': [
                    {'role': 'user', 'content': LONG}]}),
                ('/generate', {'text': LONG})):
            n = len(self.sglang.decodes)
            got = self.post(cluster, sent, path).ok()
            self.assertEqual(got.headers['x-conductor-prefill'], 'e0')
            self.assertEqual(got.headers['x-conductor-decode'], 'e1')
            self.assertEqual(len(self.sglang.decodes), n + 1)
            leg = self.sglang.decodes[n]
            self.assertEqual(leg.path, path)
            body = body_of(leg)
            for name in Sglang.OWN:
                self.assertNotEqual(body.pop(name), sent.get(name))
                sent.pop(name, None)
            self.assertEqual(body, {'model': 'm', **sent})
        self.clean(cluster)
        self.assertEqual(self.counted(cluster, 'pair_legs_total',
                                      result='prefill'), 6)
        self.assertEqual(self.counted(cluster, 'pair_releases_total'), 0)
        for name, told in ('e0', 6 * CACHED), ('e1', 0):
            self.assertEqual(self.counted(
                cluster, 'engine_cached_tokens_total', instance=name,
                source='told'), told)

    def test_several_prompts_and_answers(self):
        cluster = self.usual()
        for more in ({'n': 3}, {'prompt': [LONG, 'y'], 'n': 2},
                     {'prompt': [[1] * 900, [2]]}, {'echo': True}) * 2:
            got = self.post(cluster, {'prompt': LONG, **more}).ok()
            self.assertEqual(got.headers['x-conductor-decode'], 'e1')
        self.clean(cluster)

    def test_one_engine_refuses(self):
        """Its partner's leg is cancelled, and both are sent anew."""
        def refuse(_, send):
            send(reply(503, {'error': 'no room'}))
        for bad in (P, D):
            with self.subTest(bad=bad):
                self.sglang = Sglang()
                serve = {P: self.sglang.prefill, D: self.sglang.decode}
                cluster = self.pair((bad, refuse), (bad, serve[bad]),
                                    (P if bad == D else D,
                                     serve[P if bad == D else D]),
                                    config={'policy': 'round_robin'})
                for i in range(2):  # one begins at each
                    got = self.post(cluster, {'prompt': f'{i}{LONG}'}).ok()
                self.assertGreater(len(self.all[0].requests), 0)
                self.assertEqual(len(self.sglang.decodes), 2)
                self.assertEqual(self.sglang.faults, [])
                self.clean(cluster)
                self.stop(cluster.conductor)

    def test_one_engine_dies(self):
        for bad in (P, D):
            with self.subTest(bad=bad):
                self.sglang = Sglang()
                serve = {P: self.sglang.prefill, D: self.sglang.decode}
                cluster = self.pair((bad, lambda *_: 'reset'),
                                    (bad, serve[bad]),
                                    (P if bad == D else D,
                                     serve[P if bad == D else D]),
                                    config={'policy': 'round_robin'})
                for i in range(2):
                    got = self.post(cluster, {'prompt': f'{i}{LONG}'}).ok()
                self.assertEqual(len(self.sglang.decodes), 2)
                self.assertEqual(self.sglang.faults, [])
                self.clean(cluster)
                self.stop(cluster.conductor)

    def test_the_only_engine_fails(self):
        """One answer, which says so."""
        for bad in (P, D):
            with self.subTest(bad=bad):
                self.sglang = Sglang()
                serve = {P: self.sglang.prefill, D: self.sglang.decode}
                serve[bad] = lambda *_: 'reset'
                cluster = self.pair((P, serve[P]), (D, serve[D]))
                got = self.post(cluster, {'prompt': LONG})
                self.assertIn(got.status, (502, 503), got.body)
                self.clean(cluster)
                self.stop(cluster.conductor)

    def test_what_a_client_did_wrong(self):
        """Whichever engine says so first; the other one is not left waiting."""
        def refuse(_, send):
            send(reply(400, {'error': 'hot'}))
        for bad in (P, D):
            with self.subTest(bad=bad):
                self.sglang = Sglang()
                serve = {P: self.sglang.prefill, D: self.sglang.decode}
                serve[bad] = refuse
                cluster = self.pair((P, serve[P]), (D, serve[D]))
                got = self.post(cluster, {'prompt': LONG, 'temperature': 'h'})
                self.assertEqual((got.status, got.body), (400, {'error': 'hot'}))
                self.clean(cluster)
                self.stop(cluster.conductor)

    @mostly_waits
    def test_one_engine_hangs(self):
        def hang(*_):
            self.go_on.wait(60 * settings.scale)
            return 'close'

        def hang_later(request, _):
            self.sglang.serve(D, request)
            return hang()
        for bad, how in ((P, hang), (D, hang_later)):
            with self.subTest(bad=bad):
                self.sglang = Sglang()
                serve = {P: self.sglang.prefill, D: self.sglang.decode}
                cluster = self.pair((bad, how), (bad, serve[bad]),
                                    (P if bad == D else D,
                                     serve[P if bad == D else D]),
                                    config={'policy': 'round_robin',
                                            'request_timeout_ms': 500})
                for i in range(2):
                    got = self.post(cluster, {'prompt': f'{i}{LONG}'}).ok()
                self.assertIn('made no progress for 500 ms',
                              cluster.conductor.log())
                self.clean(cluster)
                self.stop(cluster.conductor)

    def test_a_client_leaves(self):
        """Both legs see it go."""
        left = []

        def hang(request, _):
            while not request.left():
                self.go_on.wait(0.02)
            left.append(request)
        cluster = self.pair((P, hang), (D, hang))
        self.begin(cluster,
                   lambda: all(e.requests for e in self.all)).close()
        wait_until('the request has ended', lambda: self.counted(
            cluster, 'requests_total', outcome='cancelled') == 1)
        wait_until('both saw it', lambda: len(left) == 2)
        self.idle(cluster)
        self.assertEqual(self.counted(cluster, 'retries_total'), 0)

    def test_the_decode_engine_is_first(self):
        """The prefill leg ends behind the answer, and is read to its end."""
        def late(request, send):
            self.sglang.serve(P, request)
            self.go_on.wait(60 * settings.scale)
            return answer(request, send)
        cluster = self.pair((P, late), (D, self.sglang.decode))
        got = self.post(cluster, {'prompt': LONG, 'stream': True}).ok()
        self.idle(cluster)
        self.go_on.set()
        wait_until('it is over', lambda: self.counted(
            cluster, 'engine_answers_total', instance='e0',
            **{'class': '2xx'}) == 1)
        self.assertEqual(self.all[0].gone, [])

    def test_an_engine_is_removed(self):
        """Either one, with both legs under way: they end first. With the
        prefill leg behind the answer, too."""
        for name in 'e0', 'e1':
            with self.subTest(name=name):
                self.sglang = Sglang()
                self.go_on.clear()

                def late(request, send):
                    self.sglang.serve(P, request)
                    self.go_on.wait(60 * settings.scale)
                    return answer(request, send)
                serve = {P: late, D: self.sglang.decode}
                if name == 'e1':
                    serve = {P: self.sglang.prefill, D: self.wait_and_decode}
                cluster = self.pair((P, serve[P]), (D, serve[D]))
                got = in_background(lambda c=cluster: self.post(
                    c, {'prompt': LONG, 'stream': True}))
                wait_until('both have it', lambda: all(
                    e.requests for e in self.all))
                self.remove(cluster, name)
                self.go_on.set()
                self.assertEqual(got().status, 200)
                self.gone(cluster, name)
                self.stop(cluster.conductor)

    def wait_and_decode(self, request, send):
        self.go_on.wait(60 * settings.scale)
        return self.sglang.decode(request, send)

    @mostly_waits
    def test_an_engine_is_removed_that_never_ends(self):
        """It is cut off: no leg of it is left."""
        def hang(request, _):
            while not request.left():
                self.go_on.wait(0.02)

        def hang_later(request, send):
            self.sglang.serve(P, request)
            return hang(request, send)
        for where, serve in (('beside', {P: hang, D: hang}),
                             ('behind', {P: hang_later,
                                         D: self.sglang.decode})):
            with self.subTest(where=where):
                cluster = self.pair((P, serve[P]), (D, serve[D]),
                                    config={'engine_drain_ms': 300})
                got = in_background(lambda c=cluster: self.post(
                    c, {'prompt': LONG}))
                wait_until('both have it', lambda: all(
                    e.requests for e in self.all))
                self.remove(cluster, 'e0')
                self.assertIn(got().status, (200, 502, 503))
                self.gone(cluster, 'e0')
                self.stop(cluster.conductor)
                self.sglang.rooms.clear()

    def test_an_engine_goes(self):
        """The decode engine, before it has answered."""
        def wait(request, send):
            self.go_on.wait(60 * settings.scale)
            return 'close'
        cluster = self.pair((P, wait), (D, wait))
        got = in_background(lambda: self.post(cluster, {'prompt': LONG}))
        wait_until('both have it', lambda: all(e.requests for e in self.all))
        self.all[1].stop()
        self.assertIn(got().status, (502, 503))
        self.idle(cluster)


class MooncakePairs(PairCase):
    """Both legs at once, each with a body of its own."""
    connector = 'mooncake'

    def setUp(self):
        super().setUp()
        self.mooncake = Mooncake()

    def tearDown(self):
        self.mooncake.go_on.set()
        super().tearDown()
        self.assertEqual(self.mooncake.faults, [])
        for server in self.mooncake.servers:
            self.assertEqual(server.faults, [])
            server.stop()

    def of_prefill(self):
        return {'bootstrap_port': self.mooncake.bootstrap()}

    def usual(self, **more):
        return self.pair((P, self.mooncake.prefill), (D, self.mooncake.decode),
                         **more)

    def clean(self, cluster):
        self.idle(cluster)
        wait_until('no engine keeps anything', lambda: not (
            self.mooncake.held or self.mooncake.waiting))

    def both_have_it(self):
        return all(e.requests for e in self.all) and self.mooncake.waiting

    def test_answers(self):
        """Streamed and not; what a client says of transfers is not taken, and
        its stops end no prefill leg. The reply of that comes first."""
        # A push is as slow as the machine, but no reason to do without.
        cluster = self.usual(decode_token_us=1000)
        self.mooncake.before_answer = lambda: wait_until(
            'the prefill leg has ended', lambda: self.counted(
                cluster, 'engine_answers_total', instance='e0',
                **{'class': '2xx'}) == len(self.mooncake.prefills))
        for path, sent in (
                ('/v1/completions', {'prompt': LONG, 'max_tokens': 4,
                                     'min_tokens': 2, 'stop': ['x'],
                                     'stop_token_ids': [7],
                                     'ignore_eos': False}),
                ('/v1/completions', {'prompt': 'y' + LONG, 'stream': True}),
                ('/v1/chat/completions', {
                    'stream': True, 'stream_options': {'include_usage': True},
                    'max_completion_tokens': 9, 'messages': [
                        {'role': 'user', 'content': 'z' + LONG}]})):
            n = len(self.mooncake.fetched)
            got = self.post(cluster, {**sent, 'kv_transfer_params': {
                'do_remote_prefill': True, 'transfer_id': 'mine'}}, path).ok()
            self.assertEqual(got.headers['x-conductor-prefill'], 'e0')
            self.assertEqual(got.headers['x-conductor-decode'], 'e1')
            text = json.dumps(got.body) if isinstance(got.body, dict) else \
                got.body.decode()
            self.assertIn(f'"cached_tokens": {CACHED}', text)
            self.assertNotIn('"cached_tokens": 192', text)
            leg = self.mooncake.fetched[n]
            for part in (leg, self.mooncake.prefills[n]):
                self.assertEqual(part.path, path)
                self.assertEqual(part.header('x-request-id'),
                                 got.headers['x-conductor-request-id'])
            body = body_of(leg)
            del body['kv_transfer_params']
            self.assertEqual(body, {'model': 'm', **sent})
        self.clean(cluster)
        self.assertEqual(self.counted(cluster, 'pair_legs_total',
                                      result='prefill'), 3)
        self.assertEqual(self.counted(cluster, 'pair_releases_total'), 0)
        self.assertEqual(self.counted(
            cluster, 'engine_cached_tokens_total', instance='e0',
            source='told'), 3 * CACHED)
        self.assertEqual(self.counted(
            cluster, 'engine_cached_tokens_total', instance='e1',
            source='told'), 0)

    def test_what_no_pair_shares(self):
        cluster = self.usual()
        for more in ({'n': 2}, {'prompt': [LONG, 'y']}, {'echo': True}):
            got = self.post(cluster, {'prompt': LONG, **more}).ok()
            self.assertEqual(got.headers['x-conductor-prefill'], 'e1', more)
        self.assertEqual((len(self.mooncake.prefills),
                          len(self.mooncake.alone)), (0, 3))

    def test_ranks(self):
        """The id of the entry's rank is taken."""
        ports = []

        def of_prefill():
            ports.append(self.mooncake.bootstrap())
            self.mooncake.told[0] = {
                str(r): {'engine_id': f'id-0_dp{r}', 'worker_addr': {}}
                for r in range(3)}
            return {'bootstrap_port': ports[0], 'dp_rank': 2}
        self.of_prefill = of_prefill
        cluster = self.usual()
        self.assertEqual(self.post(cluster, {'prompt': LONG}).status, 200)
        self.assertEqual(
            body_of(self.mooncake.fetched[0])['kv_transfer_params']
            ['remote_engine_id'], 'id-0_dp2')
        self.clean(cluster)

    def test_prefill_engine_restarts(self):
        """Its id is another one: no leg has the old one any more."""
        cluster = self.usual()
        self.assertEqual(self.post(cluster, {'prompt': LONG}).status, 200)
        self.all[0].stop()
        wait_until('it is seen', lambda: self.instances(cluster)[0]['state'] !=
                   'ready')
        self.mooncake.told[0]['0']['engine_id'] = 'another'
        self.all[0] = self.all[0].restart()
        wait_until('it is back', lambda: self.instances(cluster)[0]['state'] ==
                   'ready')
        self.assertEqual(self.post(cluster, {'prompt': 'y' + LONG}).status, 200)
        self.assertEqual(len(self.mooncake.fetched), 2)
        # So fast that no probe saw it gone.
        self.mooncake.told[0]['0']['engine_id'] = 'a third'
        wait_until('it is seen', lambda: cluster.conductor.log().count(
            'engine e0 was restarted') == 1)
        self.assertEqual(self.post(cluster, {'prompt': 'z' + LONG}).status, 200)
        self.assertEqual(len(self.mooncake.fetched), 3)
        self.clean(cluster)

    def test_two_engines_of_one_id(self):
        """The second one gets no pairs: decode engines would ask the first
        one for its KV. It does when its server tells an id of its own."""
        cluster = self.usual()
        port = self.mooncake.bootstrap()
        self.mooncake.told[1]['0']['engine_id'] = \
            self.mooncake.told[0]['0']['engine_id']
        self.all.append(Engine(self.mooncake.prefill))
        self.assertEqual(cluster.api.post('/admin/instances', {
            'name': 'e2', 'url': self.all[2].url, 'model': 'm', 'kind': 'vllm',
            'role': P, 'kv_connector': 'mooncake',
            'bootstrap_port': port}).status, 201)
        wait_until('the log has both', lambda:
                   'engine e2 was never ready' in cluster.conductor.log() and
                   'its bootstrap server gives the id of engine e0, "'
                   in cluster.conductor.log())
        states = lambda: [i['state'] for i in self.instances(cluster)]
        self.assertEqual(states(), ['ready', 'ready', 'starting'])
        for i in range(4):
            got = self.post(cluster, {'prompt': f'{i}{LONG}'})
            self.assertEqual((got.status, got.headers['x-conductor-prefill']),
                             (200, 'e0'))
        self.mooncake.told[1]['0']['engine_id'] = 'own'
        wait_until('it is ready', lambda: states() == ['ready'] * 3)
        self.clean(cluster)

    def test_prefill_engine_redirects(self):
        """No client is sent to where only a leg was to go."""
        def redirect(_, send):
            send(reply(307, b'', ['Location: http://127.0.0.1:1/']))
        cluster = self.pair((P, redirect), (D, self.mooncake.decode))
        got = self.post(cluster, {'prompt': LONG})
        self.assertEqual((got.status, got.headers['x-conductor-prefill']),
                         (200, 'e1'))
        self.idle(cluster)

    @mostly_waits
    def test_bootstrap_server_that_tells_nothing(self):
        """Its engine gets no work; the other one answers alone."""
        cluster = self.usual(config={'engine_timeout_ms': 300})

        def hang(request, _):
            wait_until('nobody waits for it', request.left)
            return 'close'
        server = self.mooncake.servers[0]
        serve = server.serve
        for how, why in (
                (lambda _, send: send(reply(503)), 'no status 200'),
                (lambda _, send: send(reply(200, b'[')), 'no ranks'),
                (lambda _, send: send(reply(200, b'{}')), 'no worker yet'),
                (lambda _, send: send(reply(200, {'0': {'engine_id': 7}})),
                 "no id for the engine's rank"),
                (lambda _, send: send(reply(200, {'0': {}, '1': {}})),
                 'several ranks'),
                (hang, 'when asked for its bootstrap server')):
            with self.subTest(why=why):
                server.serve = how
                wait_until('it gets no work', lambda: self.instances(
                    cluster)[0]['state'] == 'suspect')
                self.assertIn(why, cluster.conductor.log())
                self.assertEqual(self.post(
                    cluster, {'prompt': why + LONG}).status, 200)
                server.serve = serve
                wait_until('it is back', lambda: self.instances(
                    cluster)[0]['state'] == 'ready')
        self.assertEqual((len(self.mooncake.alone),
                          len(self.mooncake.fetched)), (6, 0))

    def test_one_engine_refuses_or_dies(self):
        """Both legs are sent anew, as another transfer, or the decode engine
        computes the prompt itself."""
        def refuse(_, send):
            send(reply(503, {'error': 'no room'}))
        for bad in (P, D):
            for how in (refuse, lambda *_: 'reset'):
                with self.subTest(bad=bad, how=how):
                    self.mooncake = Mooncake()
                    serve = {P: self.mooncake.prefill,
                             D: self.mooncake.decode}
                    good = P if bad == D else D
                    cluster = self.pair((bad, how), (bad, serve[bad]),
                                        (good, serve[good]),
                                        config={'policy': 'round_robin'})
                    for i in range(2):  # one begins at each
                        got = self.post(cluster, {'prompt': f'{i}{LONG}'}).ok()
                    self.assertGreater(len(self.all[0].requests), 0)
                    self.assertEqual(self.mooncake.faults, [])
                    self.idle(cluster)
                    self.stop(cluster.conductor)

    def refuse_once(self, when):
        """Two decode engines; the first leg is refused, then."""
        busy = [1]

        def serve(request, send):
            if busy:
                busy.pop()
                wait_until('it refuses', when)
                return send(reply(503, {'error': 'no room'}))
            return self.mooncake.decode(request, send)
        return self.pair((P, self.mooncake.prefill), (D, serve), (D, serve))

    def test_decode_engine_has_no_room(self):
        """Its prefill leg is cancelled, and nothing is to be released."""
        cluster = self.refuse_once(lambda: self.all[0].requests)
        self.mooncake.go_on.clear()
        got = in_background(lambda: self.post(cluster, {'prompt': LONG}))
        wait_until('both legs are sent anew', lambda: len(
            self.all[0].requests) == 2 and self.all[0].requests[0].left())
        self.mooncake.go_on.set()
        self.assertEqual(got().status, 200)
        self.clean(cluster)
        self.assertEqual(self.counted(cluster, 'pair_releases_total'), 0)

    def test_decode_engine_has_no_room_later(self):
        """The prompt is computed: another engine fetches what was kept."""
        cluster = self.refuse_once(lambda: self.counted(
            cluster, 'engine_answers_total', instance='e0',
            **{'class': '2xx'}) == 1)
        got = self.post(cluster, {'prompt': LONG}).ok()
        self.clean(cluster)
        wait_until('it is counted', lambda: self.counted(
            cluster, 'pair_releases_total', result='released') == 1)
        self.assertEqual(sorted(body_of(r).get('max_tokens', 0)
                                for r in self.mooncake.fetched), [0, 1])

    def test_the_only_engine_fails(self):
        for bad in (P, D):
            with self.subTest(bad=bad):
                self.mooncake = Mooncake()
                serve = {P: self.mooncake.prefill, D: self.mooncake.decode}
                serve[bad] = lambda *_: 'reset'
                cluster = self.pair((P, serve[P]), (D, serve[D]))
                got = self.post(cluster, {'prompt': LONG})
                if bad == P:  # the decode engine computes the prompt
                    self.assertEqual(got.status, 200, got.body)
                    self.assertEqual(len(self.mooncake.alone), 1)
                else:
                    self.assertIn(got.status, (502, 503), got.body)
                self.idle(cluster)
                self.stop(cluster.conductor)

    def test_what_a_client_did_wrong(self):
        def refuse(_, send):
            send(reply(400, {'error': 'hot'}))
        for bad in (P, D):
            with self.subTest(bad=bad):
                self.mooncake = Mooncake()
                serve = {P: self.mooncake.prefill, D: self.mooncake.decode}
                serve[bad] = refuse
                cluster = self.pair((P, serve[P]), (D, serve[D]))
                got = self.post(cluster, {'prompt': LONG, 'temperature': 'h'})
                self.assertEqual((got.status, got.body), (400, {'error': 'hot'}))
                self.idle(cluster)
                self.stop(cluster.conductor)

    @mostly_waits
    def test_one_engine_hangs(self):
        go_on = threading.Event()

        def hang(request, _):
            while not request.left() and not go_on.wait(0.02):
                pass
            return 'close'

        def hang_later(request, send):
            self.mooncake.decode(request, lambda _: None)
            return hang(request, send)
        for bad, how in ((P, hang), (D, hang_later)):
            with self.subTest(bad=bad):
                self.mooncake = Mooncake()
                serve = {P: self.mooncake.prefill, D: self.mooncake.decode}
                good = P if bad == D else D
                cluster = self.pair((bad, how), (bad, serve[bad]),
                                    (good, serve[good]),
                                    config={'policy': 'round_robin',
                                            'request_timeout_ms': 500})
                for i in range(2):
                    got = self.post(cluster, {'prompt': f'{i}{LONG}'}).ok()
                self.assertIn('made no progress for 500 ms',
                              cluster.conductor.log())
                self.idle(cluster)
                self.stop(cluster.conductor)

    def test_a_client_leaves(self):
        """The prompt is computed, as the decode engine has blocks for it."""
        cluster = self.usual()
        self.mooncake.go_on.clear()
        self.begin(cluster, self.both_have_it).close()
        wait_until('the request has ended', lambda: self.counted(
            cluster, 'requests_total', outcome='cancelled') == 1)
        wait_until('its decode leg is gone', lambda: self.all[1].requests[0]
                   .left())
        self.assertFalse(self.all[0].requests[0].left())
        self.mooncake.go_on.set()
        self.clean(cluster)
        wait_until('it is counted', lambda: self.counted(
            cluster, 'engine_answers_total', instance='e0',
            **{'class': '2xx'}) == 1)
        self.assertEqual(self.counted(cluster, 'pair_releases_total'), 0)
        self.assertEqual(self.post(cluster, {'prompt': LONG}).status, 200)

    def test_a_client_leaves_a_decode_engine_that_does_not_read(self):
        """What the prefill engine keeps is fetched by another one."""
        cluster = self.pair((P, self.mooncake.prefill), (D, None),
                            (D, self.mooncake.decode),
                            config={'policy': 'round_robin'})
        self.all[1].deaf = threading.Event()
        for n, letter in enumerate('xy', 1):  # one of them is for it
            self.begin(cluster, lambda n=n: self.counted(
                cluster, 'engine_answers_total', instance='e0',
                **{'class': '2xx'}) == n and (
                    self.all[1].asked or self.mooncake.fetched),
                letter * 12000000).close()
            if self.all[1].asked:
                break
        self.clean(cluster)
        wait_until('it is counted', lambda: self.counted(
            cluster, 'pair_releases_total', result='released') == 1)
        self.all[1].deaf.set()

    def test_an_engine_is_removed(self):
        """Either one, with both legs under way: they end first."""
        for name in 'e0', 'e1':
            with self.subTest(name=name):
                self.mooncake = Mooncake()
                cluster = self.usual()
                self.mooncake.go_on.clear()
                got = in_background(lambda c=cluster: self.post(
                    c, {'prompt': LONG}))
                wait_until('both have it', self.both_have_it)
                self.remove(cluster, name)
                self.mooncake.go_on.set()
                self.assertEqual(got().status, 200)
                self.gone(cluster, name)
                self.stop(cluster.conductor)

    @mostly_waits
    def test_an_engine_is_removed_that_never_ends(self):
        """It is cut off, also where its client has left."""
        for leaves in False, True:
            with self.subTest(leaves=leaves):
                self.mooncake = Mooncake()
                cluster = self.usual(config={'engine_drain_ms': 300})
                self.mooncake.go_on.clear()
                connection = self.begin(cluster, self.both_have_it)
                self.remove(cluster, 'e0')
                if leaves:
                    connection.close()
                else:
                    self.assertIn(connection.getresponse().status,
                                  (200, 502, 503))
                self.gone(cluster, 'e0')
                self.idle(cluster)
                self.stop(cluster.conductor)


class Configurations(PairCase):
    def test_roles_and_connectors_that_do_not_fit(self):
        for entry, field, words in (
                ({'role': 'prefill', 'kind': 'vllm'}, 'role',
                 'needs kv_connector'),
                ({'kv_connector': 'nixl', 'kind': 'vllm'}, 'kv_connector',
                 'needs role prefill or decode'),
                ({'kv_connector': 'nixl', 'role': 'decode'}, 'kv_connector',
                 'needs kind vllm'),
                ({'kv_connector': 'sglang', 'role': 'decode', 'kind': 'vllm'},
                 'kv_connector', 'needs kind sglang'),
                ({'bootstrap_port': 9, 'kind': 'sglang'}, 'bootstrap_port',
                 'needs role prefill, and the kv_connector sglang'),
                ({'kv_connector': 'nixl', 'role': 'prefill', 'kind': 'vllm',
                  'bootstrap_port': 9}, 'bootstrap_port', 'needs role prefill'),
                ({'kv_connector': 'offloading', 'role': 'prefill',
                  'kind': 'vllm', 'dp_ranks': 2,
                  'kv_events': 'tcp://127.0.0.1:9'}, 'dp_ranks',
                 'an entry for each'),
                ({'kv_connector': 'mooncake', 'role': 'prefill',
                  'kind': 'vllm', 'dp_ranks': 2,
                  'kv_events': 'tcp://127.0.0.1:9'}, 'dp_ranks',
                 'an entry for each'),
                ({'kv_connector': 'mooncake', 'role': 'decode', 'kind': 'vllm',
                  'bootstrap_port': 9}, 'bootstrap_port', 'role prefill'),
                ({'kv_connector': 'offloading', 'role': 'decode'},
                 'kv_connector', 'needs kind vllm'),
                ({'kv_connector': 'wire', 'role': 'decode', 'kind': 'vllm'},
                 'kv_connector', '"wire": must be none or nixl or '),
                ({'role': 'draft'}, 'role', 'must be both or prefill')):
            self.check_config({'listen': '127.0.0.1:0', 'engines': [
                {'name': 'a', 'url': 'http://127.0.0.1:9', 'model': 'm',
                 **entry}]}, 2, f'engines[0].{field}: ', words)

    def test_engines_that_cannot_meet_are_told(self):
        """Not refused: partners may be added while it runs."""
        def entry(name, role, **more):
            return {'name': name, 'url': f'http://127.0.0.1:{ord(name)}',
                    'model': 'm', 'kind': 'vllm', 'role': role,
                    'kv_connector': 'mooncake', **more}
        partner = ': model "m" has no engine of the role '
        for engines, told in (
                ([entry('p', P), entry('d', D)], []),
                ([entry('d', D)], ['engine d' + partner + 'prefill']),
                ([entry('p', P), entry('d', D, kv_connector='nixl')],
                 ['engine p' + partner + 'decode with kv_connector "mooncake"',
                  'engine d' + partner + 'prefill with kv_connector "nixl"']),
                ([entry('p', P), entry('d', D, model='n')],
                 ['engine p' + partner + 'decode',
                  'engine d: model "n" has no engine of the role prefill']),
                ([entry('p', P), entry('q', P), entry('d', D)],
                 ['engine q: bootstrap_port: 8998: engine p has the same '
                  'port on 127.0.0.1']),
                ([entry('p', P), entry('q', P, bootstrap_port=9),
                  entry('d', D)], []),
                ([entry('p', P, dp_rank=0), entry('q', P, dp_rank=1),
                  entry('d', D)], [])):
            with self.subTest(engines):
                errors = self.check_config(
                    {'listen': '127.0.0.1:0', 'engines': engines}, 0, *told)
                self.assertEqual(errors.count(' warn '), len(told), errors)
