"""What the OpenAI API answers when all is well."""
import re

from harness import (BLOCK_TOKENS, Case, Cluster, cached_tokens,
                     cost_model_json, mostly_waits, total, wait_until)
from test_failures import in_background

TEXT = 'The quick brown fox jumps over the lazy dog. '


class Completions(Case):
    def test_answers_and_usage(self):
        api = self.cluster().api
        reply = api.complete(TEXT, 8).ok()
        body = reply.body
        self.assertEqual(body['object'], 'text_completion')
        self.assertEqual(body['model'], 'tiny')
        self.assertTrue(body['id'])
        self.assertIsInstance(body['created'], int)
        choice, = body['choices']
        self.assertEqual(choice['index'], 0)
        self.assertEqual(choice['finish_reason'], 'length')
        self.assertEqual(len(choice['text']), 8)
        self.assertTrue(choice['text'].isascii() and
                        choice['text'].isprintable(), choice)
        self.assertEqual(body['usage']['prompt_tokens'], len(TEXT))
        self.assertEqual(body['usage']['completion_tokens'], 8)
        self.assertEqual(body['usage']['total_tokens'], len(TEXT) + 8)
        self.assertEqual(
            body['usage']['prompt_tokens_details']['cached_tokens'], 0)

        again = api.complete(TEXT, 8).body
        self.assertEqual(again['choices'][0]['text'], choice['text'])
        self.assertEqual(
            again['usage']['prompt_tokens_details']['cached_tokens'],
            len(TEXT) // BLOCK_TOKENS * BLOCK_TOKENS)

    def test_answers_are_named_as_the_client_names_them(self):
        """Good and bad ones, streamed and not, by x-request-id, which is
        what OpenAI's client calls _request_id, and traceparent; explain
        finds them by either."""
        api = self.cluster().api
        trace_id = '4bf92f3577b34da6a3ce929d0e0e4736'
        names = {'x-request-id': 'mine-1',
                 'traceparent': f'00-{trace_id}-00f067aa0ba902b7-01'}
        body = {'model': 'tiny', 'prompt': 'x', 'max_tokens': 2}
        for status, path, fields, headers in (
                (200, '/v1/completions', {}, {}),
                (200, '/v1/completions', {'stream': True}, {}),
                (429, '/v1/completions', {}, {'x-slo-ttft-ms': '0.001'}),
                (404, '/v1/completions', {'model': 'none'}, {}),
                (415, '/v1/completions', {}, {'Content-Type': 'a/b'}),
                (404, '/v1/nothing', {}, {})):
            with self.subTest(status=status, path=path, **fields):
                got = api.post(path, {**body, **fields}, {**names, **headers})
                self.assertEqual(got.status, status, got.body)
                for name, value in names.items():
                    self.assertEqual(got.headers.get_all(name), [value])
                own = api.post(path, {**body, **fields}, headers)
                self.assertIsNone(own.headers['traceparent'])
                self.assertEqual(own.headers['x-request-id'],
                                 own.headers['x-conductor-request-id'])
        for name in ('mine-1', trace_id):
            why = api.explain(name)
            self.assertEqual(why['reason'], 'slo_ttft_exceeded')
            self.assertEqual(why['client_request_id'], 'mine-1')
            self.assertEqual(why['traceparent'], names['traceparent'])
        self.assertEqual(api.get(f'/admin/explain/{trace_id[1:]}').status, 404)
        done = api.complete('x', 2).body
        why = api.get(f"/admin/explain/{done['id']}").body
        self.assertEqual(why['request_id'], done['conductor']['request_id'])

    def test_text_and_ids_are_the_same(self):
        api = self.cluster().api
        text = api.complete(TEXT, 8).body['choices'][0]['text']
        ids = api.complete(list(TEXT.encode()), 8).body
        self.assertEqual(ids['choices'][0]['text'], text)

    def test_a_batch_is_its_prompts(self):
        api = self.cluster().api
        prompts = ['one', 'two', 'three' * 20]
        alone = [api.complete(p, 5).body['choices'][0]['text']
                 for p in prompts]
        for batch in prompts, [list(p.encode()) for p in prompts]:
            body = api.complete(batch, 5).body
            choices = sorted(body['choices'], key=lambda c: c['index'])
            self.assertEqual([c['index'] for c in choices], [0, 1, 2])
            self.assertEqual([c['text'] for c in choices], alone)
            self.assertEqual(body['usage']['prompt_tokens'],
                             sum(map(len, prompts)))
            self.assertEqual(body['usage']['completion_tokens'], 15)

    def test_one_token_needs_no_decode(self):
        api = self.cluster().api
        whole = api.complete(TEXT, 4).body['choices'][0]['text']
        body = api.complete(TEXT, 1).body
        self.assertEqual(body['choices'][0]['text'], whole[0])
        self.assertEqual(body['usage']['completion_tokens'], 1)

    def test_stream(self):
        api = self.cluster().api
        whole = api.complete(TEXT, 8).body
        events = list(api.stream('/v1/completions', {
            'prompt': TEXT, 'max_tokens': 8,
            'stream_options': {'include_usage': True}}))
        self.assertEqual(events.pop(), '[DONE]')
        usage = events.pop()
        self.assertEqual(usage['choices'], [])
        self.assertEqual(usage['usage']['completion_tokens'], 8)
        self.assertEqual(usage['usage']['prompt_tokens'], len(TEXT))
        choices = [c for e in events for c in e['choices']]
        self.assertEqual(''.join(c['text'] for c in choices),
                         whole['choices'][0]['text'])
        self.assertEqual(choices[-1]['finish_reason'], 'length')
        self.assertEqual({e['id'] for e in events}, {usage['id']})
        self.assertEqual({e['object'] for e in events}, {'text_completion'})

    def test_usage_in_each_event(self):
        api = self.cluster().api
        events = list(api.stream('/v1/chat/completions', {
            'messages': [{'role': 'user', 'name': 'me', 'content': TEXT}],
            'max_tokens': 4, 'stream_options': {
                'include_usage': True, 'continuous_usage_stats': True}}))
        self.assertEqual([e['usage']['completion_tokens']
                          for e in events[:-1]], [1, 1, 2, 3, 4, 4, 4])

    def test_stream_of_a_batch(self):
        api = self.cluster().api
        prompts = ['one', 'two']
        alone = [api.complete(p, 5).body['choices'][0]['text']
                 for p in prompts]
        texts = ['', '']
        events = list(api.stream('/v1/completions',
                                 {'prompt': prompts, 'max_tokens': 5}))
        self.assertEqual(events.pop(), '[DONE]')
        for event in events:
            for choice in event['choices']:
                texts[choice['index']] += choice['text']
        self.assertEqual(texts, alone)


class Chat(Case):
    MESSAGES = [{'role': 'system', 'content': 'Be brief.'},
                {'role': 'user', 'content': 'Hello'}]

    def test_answer_and_stream(self):
        api = self.cluster().api
        reply = api.post('/v1/chat/completions', {
            'model': 'tiny', 'messages': self.MESSAGES, 'max_tokens': 6}).ok()
        self.assertEqual(reply.body['object'], 'chat.completion')
        choice, = reply.body['choices']
        self.assertEqual(choice['message']['role'], 'assistant')
        self.assertEqual(len(choice['message']['content']), 6)
        self.assertEqual(reply.body['usage']['completion_tokens'], 6)

        events = list(api.stream('/v1/chat/completions', {
            'messages': self.MESSAGES, 'max_tokens': 6}))
        self.assertEqual(events.pop(), '[DONE]')
        self.assertEqual({e['object'] for e in events},
                         {'chat.completion.chunk'})
        deltas = [e['choices'][0]['delta'] for e in events if e['choices']]
        self.assertEqual(deltas[0]['role'], 'assistant')
        self.assertEqual(''.join(d.get('content') or '' for d in deltas),
                         choice['message']['content'])


class Views(Case):
    def test_models_health_ready(self):
        api = self.cluster(prefill=2, decode=1).api
        models = api.get('/v1/models').body
        self.assertEqual(models['object'], 'list')
        self.assertEqual([m['id'] for m in models['data']], ['tiny'])
        self.assertEqual(api.get('/v1/models/tiny').body,
                         models['data'][0])
        none = api.get('/v1/models/gpt-9')
        self.assertEqual((none.status, none.body['error']['code']),
                         (404, 'model_not_found'))
        self.assertIn('"gpt-9"', none.body['error']['message'])
        self.assertEqual(api.get('/ready').status, 200)
        self.assertEqual(api.instances(), (2, 1))

    def test_model_by_escaped_name(self):
        cost = self.write('cost-ab.json',
                          cost_model_json().replace('tiny', 'a/b 1%'))
        cluster = Cluster(self, {'model': 'a/b 1%', 'cost_model': cost})
        cluster.start_conductor()
        for name, status in (('a/b%201%25', 200), ('a%2fb%201%25', 200),
                             ('%61%2Fb%201%', 200), ('a%2Fb%201', 404),
                             ('a%2Fb%201%25%25', 404), ('a%2', 404)):
            reply = cluster.api.get('/v1/models/' + name)
            self.assertEqual(reply.status, status, name)
            if status == 200:
                self.assertEqual(reply.body['id'], 'a/b 1%')

    def test_metrics_count_requests(self):
        api = self.cluster().api
        api.complete(TEXT, 8)
        api.complete(TEXT, 8)
        metrics = api.metrics()
        self.assertEqual(total(metrics, 'conductor_prompt_tokens_total'),
                         2 * len(TEXT))
        self.assertEqual(total(metrics, 'conductor_output_tokens_total'), 16)
        cached = len(TEXT) // BLOCK_TOKENS * BLOCK_TOKENS
        self.assertEqual(cached_tokens(metrics, 'local'), cached)
        self.assertEqual(total(metrics, 'conductor_computed_tokens_total'),
                         2 * len(TEXT) - cached)

    def test_a_tenant_sees_no_other_cache(self):
        api = self.cluster().api
        def cached(salt):
            usage = api.complete(TEXT, 2, cache_salt=salt).body['usage']
            return usage['prompt_tokens_details']['cached_tokens']
        self.assertEqual(cached('a'), 0)
        self.assertEqual(cached('b'), 0)
        self.assertGreater(cached('a'), 0)


class NotReady(Case):
    def test_without_instances(self):
        cluster = self.cluster(prefill=0, decode=0)
        self.assertEqual(cluster.api.get('/ready').status, 503)
        self.assertEqual(cluster.api.get('/health').status, 200)
        self.refused(cluster, 'no_ready_instance', 'no instance is ready')

    def refused(self, cluster, code, *words):
        reply = cluster.api.complete(TEXT)
        self.assertError(reply, 503, *words)
        self.assertEqual(reply.body['error']['code'], code)

    def test_decode_alone_is_not_ready(self):
        cluster = self.cluster(prefill=0, decode=1)
        self.assertEqual(cluster.api.get('/ready').status, 503)
        self.refused(cluster, 'no_prefill_instance',
                     'no prefill instance is ready')
        self.assertIn('worker d0 joined: role decode, ',
                      cluster.conductor.log())

    def test_prefill_alone_is_not_ready(self):
        cluster = self.cluster(prefill=1, decode=0)
        self.assertEqual(cluster.api.get('/ready').status, 503)
        self.refused(cluster, 'no_decode_instance',
                     'no decode instance is ready')
        cluster.start_worker('d0', 'decode')
        cluster.wait_ready(1, 1)
        self.assertEqual(cluster.api.get('/ready').status, 200)
        self.assertEqual(cluster.api.complete(TEXT).status, 200)
        cluster.api.post('/admin/instances/p0/drain').ok()
        self.refused(cluster, 'no_prefill_instance',
                     'no prefill instance is ready: the only one is drained')
        cluster.api.post('/admin/instances/d0/drain').ok()
        self.refused(cluster, 'no_ready_instance',
                     'no instance is ready to take the request: all 2 are '
                     'drained')


class Slo(Case):
    def test_a_miss_is_refused_at_once(self):
        api = self.cluster(engine='timed',
                           cost={'prefill': (1000000, 0, 0, 0)}).api
        reply = api.post('/v1/completions',
                         {'model': 'tiny', 'prompt': TEXT},
                         {'x-slo-ttft-ms': '100'})
        self.assertError(reply, 429, 'first token')
        # No instance is that fast, however idle.
        self.assertIn('an idle instance would miss', reply.body['error']['message'])
        self.assertIsNone(reply.headers['Retry-After'])
        reply = api.complete(TEXT, 1, headers={'x-slo-ttft-ms': '60000'}).ok()

    @mostly_waits
    def test_a_miss_that_passes_says_when(self):
        api = self.cluster(engine='timed',
                           cost={'prefill': (1000000, 0, 0, 0)}).api
        first = [in_background(lambda: api.complete(TEXT, 1))
                 for _ in range(6)]
        wait_until('six are accepted', lambda: sum(
            total(api.metrics(), f'conductor_instance_prefills_{state}')
            for state in ('waiting', 'running')) == 6)
        reply = api.complete(TEXT, 1, headers={'x-slo-ttft-ms': '4000'})
        self.assertError(reply, 429, 'first token')
        self.assertIn(int(reply.headers['Retry-After']), range(1, 61))
        told_ms = self.assert_true_miss(reply, 4000)
        why = api.explain(reply)
        self.assertAlmostEqual(why['predicted']['tested_ttft_ms'], told_ms, 2)
        for answer in first:
            self.assertEqual(answer().status, 200)

    def assert_true_miss(self, reply, limit_ms):
        text = reply.body['error']['message']
        self.assertNotIn('idle', text)
        told_ms = re.match('predicted time to first token of ([0-9.]+) ms',
                           text)
        self.assertGreater(float(told_ms[1]), limit_ms)
        return float(told_ms[1])

    def test_tbt_miss(self):
        api = self.cluster(engine='timed',
                           cost={'decode': (500000, 0, 0)}).api
        reply = api.post('/v1/completions',
                         {'model': 'tiny', 'prompt': TEXT},
                         {'x-slo-tpot-ms': '10'})
        self.assertError(reply, 429, 'between tokens', 'an idle instance would '
                         'miss the limit, too: allow more time')
        self.assertIsNone(reply.headers['Retry-After'])

    @mostly_waits
    def test_a_tbt_miss_that_passes(self):
        """It is met beside nothing else."""
        api = self.cluster(engine='timed',
                           cost={'decode': (100000, 50000, 0)}).api
        held = api.hold(TEXT)
        reply = api.complete(TEXT, 4, headers={'x-slo-tpot-ms': '170'})
        self.assertError(reply, 429, 'between tokens', 'it is met once decodes '
                         'that run now have ended: send the request again')
        self.assertGreater(int(reply.headers['Retry-After']), 0)
        held.end()

    def test_limits_of_the_configuration(self):
        api = self.cluster(engine='timed', config={'slo_ttft_ms': 100},
                           cost={'prefill': (1000000, 0, 0, 0)}).api
        self.assertError(api.complete(TEXT, 1), 429, 'first token')
