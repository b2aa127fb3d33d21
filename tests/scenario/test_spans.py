"""Spans of requests at a receiver of OTLP: a trace with its parts, traceparent
on its way through, retries, and receivers that refuse or are away."""
import json
import os
import signal
import threading

from harness import mostly_waits, read_file, settings, wait_until
from otlp import Receiver, attributes_of
from test_forward import EngineCase

TRACE = '4bf92f3577b34da6a3ce929d0e0e4736'
PARENT = '00f067aa0ba902b7'


def traceparent(flags='01', version='00'):
    return {'traceparent': f'{version}-{TRACE}-{PARENT}-{flags}'}


class Spans(EngineCase):
    def setUp(self):
        super().setUp()
        self.receiver = Receiver(self)

    def tearDown(self):
        super().tearDown()
        self.assertEqual(self.receiver.faults, [])

    def spans(self, n):
        """The n spans that have come, by name; a name that comes twice is a
        list."""
        wait_until(f'{n} spans', lambda: len(self.receiver.spans) >= n)
        self.assertEqual(len(self.receiver.spans), n)
        found = {}
        for one in self.receiver.spans:
            found.setdefault(one['name'], []).append(one)
        return {name: all_[0] if len(all_) == 1 else all_
                for name, all_ in found.items()}

    def traced(self, **config):
        return self.cluster(kv_mib=16, config={
            'otlp_endpoint': self.receiver.url, **config})

    def test_a_first_token_that_is_held(self):
        """It waits while its KV is on its way; that is no part of the
        prefill."""
        cluster = self.traced(policy='plan')
        got = cluster.api.post('/v1/completions', {
            'model': 'tiny', 'prompt': 'x' * 100, 'max_tokens': 3},
            {'x-slo-ttft-ms': '60000', 'x-slo-tpot-ms': '60000'}).ok()
        spans = self.spans(8)
        hold, prefill = spans['hold'], spans['prefill']
        self.assertEqual(hold['startTimeUnixNano'],
                         prefill['endTimeUnixNano'])
        self.assertGreater(int(hold['endTimeUnixNano']),
                           int(hold['startTimeUnixNano']))

    def test_a_request_of_workers(self):
        cluster = self.traced()
        got = cluster.api.post('/v1/completions', {
            'model': 'tiny', 'prompt': 'x' * 100, 'max_tokens': 3},
            {**traceparent(), 'x-request-id': 'mine "1"'}).ok()
        self.assertEqual(got.headers['traceparent'],
                         traceparent()['traceparent'])
        spans = self.spans(7)
        root, attempt = spans['text_completion tiny'], spans['attempt']
        self.assertEqual({s['traceId'] for s in self.receiver.spans}, {TRACE})
        self.assertEqual((root['parentSpanId'], root['kind']), (PARENT, 2))
        self.assertEqual(spans['decision']['parentSpanId'], root['spanId'])
        self.assertEqual(attempt['parentSpanId'], root['spanId'])
        for name in 'queue', 'prefill', 'transfer', 'decode':
            self.assertEqual(spans[name]['parentSpanId'], attempt['spanId'])
        self.assertEqual(spans['prefill']['endTimeUnixNano'],
                         spans['transfer']['startTimeUnixNano'])
        order = [int(spans[s][f'{t}TimeUnixNano']) for s, t in (
            (root['name'], 'start'), ('decision', 'start'),
            ('attempt', 'start'), ('queue', 'start'), ('prefill', 'start'),
            ('prefill', 'end'), ('decode', 'start'), ('decode', 'end'),
            (root['name'], 'end'))]
        self.assertEqual(order, sorted(order))
        told = attributes_of(root)
        for key, value in {
                'gen_ai.operation.name': 'text_completion',
                'gen_ai.request.model': 'tiny',
                'gen_ai.usage.input_tokens': '100',
                'gen_ai.usage.output_tokens': '3',
                'http.response.status_code': '200',
                'conductor.outcome': 'completed',
                'conductor.request.client_id': 'mine "1"',
                'conductor.request.id': got.body['conductor']['request_id'],
        }.items():
            self.assertEqual(told[key], value, key)
        self.assertEqual(attributes_of(attempt)['conductor.instance.prefill'],
                         'p0')

    def test_which_traces(self):
        """A trace that is not sampled stays alone; what is no traceparent
        begins a new one, which the access log names."""
        log = os.path.join(self.folder, 'access.log')
        cluster = self.traced(access_log=log)
        for headers in traceparent('00'), traceparent('02'):
            cluster.api.post('/v1/completions', {
                'prompt': 'x', 'max_tokens': 1}, headers)
        later = traceparent('03', '7e')
        later['traceparent'] += '-more'
        for headers in later, traceparent(version='ff'), {}:
            cluster.api.post('/v1/completions', {
                'prompt': 'x', 'max_tokens': 1}, headers)
        wait_until('three came', lambda: [s['name'] for s in (
            self.receiver.spans)].count('text_completion tiny') == 3)
        one, two, three = [s for s in self.receiver.spans
                           if s['kind'] == 2]
        self.assertEqual((one['traceId'], one['parentSpanId']),
                         (TRACE, PARENT))
        self.assertEqual(len({s['traceId'] for s in (one, two, three)}), 3)
        for span in two, three:
            self.assertNotIn('parentSpanId', span)
        last = [json.loads(line) for line in read_file(log).splitlines()][-1]
        self.assertEqual(last['traceparent'],
                         f"00-{three['traceId']}-{three['spanId']}-01")

    def test_none_of_those_without_a_trace(self):
        cluster = self.traced(otlp_sample_ratio=0)
        for headers in {}, traceparent(), {}:
            self.assertEqual(cluster.api.post(
                '/v1/completions', {'prompt': 'x', 'max_tokens': 1},
                headers).status, 200)
        wait_until('one came', lambda: any(
            s['kind'] == 2 for s in self.receiver.spans))
        self.assertEqual({s['traceId'] for s in self.receiver.spans}, {TRACE})

    def test_engines_stand_below(self):
        """An engine gets the id of its attempt in place of the client's own;
        one that breaks off is told of, too."""
        def breaks(request, send):
            return 'reset'
        cluster = self.engines(breaks, breaks, None, None, config={
            'otlp_endpoint': self.receiver.url})
        tries = []
        while len(tries) < 2:
            for e in self.all:
                e.requests.clear()
            self.receiver.spans.clear()
            got = self.post(cluster, {'prompt': 'x' * 50}, headers={
                **traceparent(), 'TraceState': 'a=b'})
            tries = [r for e in self.all for r in e.requests]
            wait_until('it is told', lambda: any(
                s['kind'] == 2 for s in self.receiver.spans))
        attempts = [s for s in self.receiver.spans if s['name'] == 'attempt']
        self.assertEqual({f"00-{TRACE}-{s['spanId']}-01" for s in attempts},
                         {r.header('traceparent') for r in tries})
        self.assertEqual({r.header('tracestate') for r in tries}, {'a=b'})
        self.assertEqual(len(attempts), len(tries))
        self.assertEqual([s['kind'] for s in attempts], [3] * len(tries))
        self.assertEqual(sorted(attributes_of(s)['conductor.attempt']
                                for s in attempts),
                         [str(i + 1) for i in range(len(tries))])
        bad = [s for s in attempts if 'status' in s]
        self.assertEqual(len(bad), len(tries) - (got.status == 200))
        self.assertEqual(got.headers['traceparent'],
                         traceparent()['traceparent'])

    def test_traces_that_begin_here(self):
        cluster = self.engines(None, config={
            'otlp_endpoint': self.receiver.url})
        for headers in {'tracestate': 'a=b'}, {
                'traceparent': 'no', 'tracestate': 'a=b'}, {
                **traceparent('00'), 'tracestate': 'a=b'}:
            self.assertEqual(self.post(cluster, {'prompt': 'x'},
                                       headers=headers).status, 200)
        new, other, unsampled = self.all[0].requests
        for request in new, other:
            self.assertRegex(request.header('traceparent'),
                             '^00-[0-9a-f]{32}-[0-9a-f]{16}-01$')
            self.assertIsNone(request.header('tracestate'))
        self.assertEqual(unsampled.header('traceparent'),
                         traceparent('00')['traceparent'])
        self.assertEqual(unsampled.header('tracestate'), 'a=b')

    def test_receivers_that_refuse(self):
        """What may pass is tried again, when it is told to; the rest is
        counted."""
        cluster = self.traced()

        def count(result):
            return cluster.api.metric('otlp_spans_total', result=result)
        self.receiver.answers = [(503, {'Retry-After': '1'}, b''), None]
        cluster.api.complete('x', max_tokens=1)
        n = len(self.spans_when(3))
        wait_until('all are counted', lambda: count('sent') == n)
        self.assertEqual((count('dropped'), count('rejected')), (0, 0))
        self.assertIn('it answers 503', cluster.conductor.log())
        wait_until('it is told that it is well', lambda:
                   'takes spans again' in cluster.conductor.log())
        self.receiver.answers = [(400, {}, b'no')]
        cluster.api.complete('x', max_tokens=1)
        wait_until('it is refused', lambda: count('rejected') == n)
        self.receiver.answers = [(200, {}, json.dumps({'partialSuccess': {
            'rejectedSpans': '2', 'errorMessage': 'two "bad"'}}).encode())]
        cluster.api.complete('x', max_tokens=1)
        wait_until('some are refused', lambda: count('rejected') == n + 2)
        self.assertEqual(count('sent'), 2 * n - 2)

    def spans_when(self, tries):
        wait_until(f'{tries} tries', lambda: self.receiver.seen == tries)
        wait_until('spans', lambda: self.receiver.spans)
        return self.receiver.spans

    def test_a_receiver_that_is_away(self):
        """Requests go on, little is kept, and what finds no room counts; at
        the end nobody waits for it."""
        self.receiver.close()
        cluster = self.traced()
        self.assertEqual(cluster.api.complete('x').status, 200)
        wait_until('it is told once', lambda:
                   'cannot be reached' in cluster.conductor.log())
        metrics = cluster.api.metrics()
        self.assertGreater(metrics['conductor_otlp_queue_bytes'], 0)
        self.write('conductor.json', json.dumps(
            {**cluster.config, 'otlp_endpoint': ''}))
        self.assertEqual(cluster.api.post('/admin/reload').body[
            'taken'], ['otlp_endpoint'])
        metrics = cluster.api.metrics()
        self.assertEqual(metrics['conductor_otlp_queue_bytes'], 0)
        self.assertEqual(
            metrics['conductor_otlp_spans_total{result="dropped"}'], 7)
        self.assertEqual(cluster.conductor.log().count('cannot be reached'), 1)

    def test_answers_without_an_end(self):
        """Their status counts; nobody reads the rest, or waits for it."""
        cluster = self.traced()
        over = threading.Event()
        self.addCleanup(over.set)

        def endless(handler):
            handler.close_connection = True
            handler.wfile.write(b'HTTP/1.1 200 OK\r\n'
                                b'Content-Length: 99999999999\r\n\r\n' +
                                b' ' * (128 << 10))
            over.wait(60 * settings.scale)
        self.receiver.answers = [endless]
        self.assertEqual(cluster.api.complete('x').status, 200)
        wait_until('they are counted', lambda:
            cluster.api.metric('otlp_spans_total', result='sent') == 7)
        self.assertEqual(self.receiver.seen, 1)
        self.assertIn('its answer does not end', cluster.conductor.log())
        self.assertEqual(cluster.api.complete('y').status, 200)
        wait_until('the next ones come', lambda: self.receiver.spans)

    @mostly_waits
    def test_a_receiver_that_hangs(self):
        """It takes the connection and answers nothing: requests go on, it is
        told once, and nobody waits for it at the end."""
        cluster = self.traced()
        over = threading.Event()
        self.addCleanup(over.set)

        def hang(handler):
            handler.close_connection = True
            over.wait(60 * settings.scale)
        self.receiver.answers = [hang] * 9
        self.assertEqual(cluster.api.complete('x').status, 200)
        wait_until('it is asked again', lambda: self.receiver.seen == 2)
        for _ in range(20):
            self.assertEqual(cluster.api.complete('x').status, 200)
        self.assertEqual(cluster.conductor.log().count('does not answer'), 1)
        self.assertEqual(
            cluster.api.metric('otlp_spans_total', result='sent'), 0)
        cluster.conductor.child.send_signal(signal.SIGTERM)
        self.assertEqual(cluster.conductor.wait(), 0)

    def test_the_last_ones_are_sent(self):
        cluster = self.traced()
        self.assertEqual(cluster.api.complete('x').status, 200)
        cluster.conductor.child.send_signal(signal.SIGTERM)
        self.assertEqual(cluster.conductor.wait(), 0)
        self.assertEqual(len(self.receiver.spans), 7)

    def test_bad_endpoints(self):
        for bad in 'nowhere', 'https://h:4318/v1/traces', 'http://h/?a=b':
            self.check_config({'otlp_endpoint': bad}, 2,
                              f'otlp_endpoint: "{bad}"')
