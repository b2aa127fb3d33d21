"""What an instance has room for: the conductor counts as its workers do."""
from harness import Case, settings
from test_failures import in_background

# Decode steps of 100 ms.
SLOW_DECODE = {'prefill': (1000, 0, 0, 0), 'decode': (100000, 0, 0)}


class Room(Case):
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
