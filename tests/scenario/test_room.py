"""What an instance has room for: the conductor counts as its workers do."""
import time

from harness import Case, settings, wait_until
from test_failures import in_background

# Decode steps of 100 ms.
SLOW_DECODE = {'prefill': (1000, 0, 0, 0), 'decode': (100000, 0, 0)}


class Room(Case):
    def wait_metric(self, cluster, name, value):
        wait_until(f'{name} is {value}',
                   lambda: cluster.api.metrics().get(name) == value)

    def all_answered(self, cluster, n, max_tokens):
        answers = [
            in_background(lambda i=i: cluster.api.complete(f'p{i}', max_tokens))
            for i in range(n)]
        for answer in answers:
            reply = answer()
            self.assertEqual(reply.status, 200, reply.body)

    def test_short_requests_take_whole_blocks(self):
        # Four of a block each, though more than four would fit by tokens:
        # those would wait on the worker for longer than a push may.
        cluster = self.cluster(engine='timed', cost=SLOW_DECODE, kv_blocks=4,
                               push_timeout_ms=int(400 * settings.scale))
        self.all_answered(cluster, 8, 7)

    def test_a_batch_takes_no_more_than_the_worker(self):
        # Six streams for a batch of two: the later ones wait before their
        # first token, none of them between two tokens.
        cluster = self.cluster(engine='timed', cost=SLOW_DECODE, max_batch=2)

        def longest_gap(i):
            times = [time.monotonic() for _ in cluster.api.stream(
                '/v1/completions', {'prompt': f'p{i}', 'max_tokens': 8})]
            return max(b - a for a, b in zip(times, times[1:]))
        gaps = [in_background(lambda i=i: longest_gap(i)) for i in range(6)]
        for gap in gaps:
            self.assertLess(gap(), 0.4 * settings.scale)

    def test_a_full_batch_and_a_limit(self):
        cluster = self.cluster(engine='timed', cost=SLOW_DECODE, max_batch=1)
        first = in_background(lambda: cluster.api.complete('first', 20))
        self.wait_metric(cluster, 'conductor_instance_decodes{instance="d0"}',
                         1)
        reply = cluster.api.request(
            'POST', '/v1/completions',
            {'prompt': 'second', 'max_tokens': 4}, {'x-slo-ttft-ms': '500'})
        self.assertError(reply, 429, 'room')
        self.assertEqual(first().status, 200)
