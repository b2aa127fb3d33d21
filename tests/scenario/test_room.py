"""What an instance has room for: the conductor counts as its workers do."""
from harness import Case, mostly_waits, wait_until
from test_failures import in_background

# Decode steps of 100 ms.
SLOW_DECODE = {'prefill': (1000, 0, 0, 0), 'decode': (100000, 0, 0)}
# Of half a second.
SLOWER_DECODE = {'prefill': (1000, 0, 0, 0), 'decode': (500000, 0, 0)}


class Room(Case):
    def wait_metric(self, cluster, name, value):
        wait_until(f'{name} is {value}',
                   lambda: cluster.api.metrics().get(name) == value)

    def all_answered(self, cluster, n, max_tokens):
        answers = [
            in_background(lambda i=i: cluster.api.complete(f'p{i}', max_tokens))
            for i in range(n)]
        for answer in answers:
            reply = answer().ok()

    @mostly_waits
    def test_short_requests_take_whole_blocks(self):
        # Four of a block each, though more than four would fit by tokens:
        # those would wait on the worker for the 3 s of the others, which is
        # longer than a push may.
        cluster = self.cluster(engine='timed', cost=SLOWER_DECODE, kv_blocks=4,
                               push_timeout_ms=2500)
        self.all_answered(cluster, 8, 7)

    @mostly_waits
    def test_a_batch_takes_no_more_than_the_worker(self):
        # Six streams for a batch of two: the later ones wait before their
        # first token, none of them between two tokens. That would be for all
        # tokens of two others, twice 19.
        cluster = self.cluster(engine='timed', cost=SLOW_DECODE, max_batch=2)
        seen = []

        def read(i):
            for event in cluster.api.stream(
                    '/v1/completions', {'prompt': f'p{i}', 'max_tokens': 20}):
                seen.append(i)
        for answer in [in_background(lambda i=i: read(i)) for i in range(6)]:
            answer()
        for i in range(6):
            at = [k for k, j in enumerate(seen) if j == i]
            self.assertGreaterEqual(len(at), 20)
            self.assertLess(max(b - a for a, b in zip(at, at[1:])), 30, seen)

    def test_a_full_batch_and_a_limit(self):
        cluster = self.cluster(engine='timed', cost=SLOW_DECODE, max_batch=1)
        first = cluster.api.stream('/v1/completions',
                                   {'prompt': 'first', 'max_tokens': 1000})
        next(first)
        self.wait_metric(cluster, 'conductor_instance_decodes{instance="d0"}',
                         1)
        reply = cluster.api.post('/v1/completions', {
            'prompt': 'second', 'max_tokens': 4}, {'x-slo-ttft-ms': '500'})
        self.assertError(reply, 429, 'room')
        self.assertIn('choices', next(first))
        first.close()
