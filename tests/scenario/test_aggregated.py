"""Native workers that do both: a request decodes where it was prefilled."""
from concurrent.futures import ThreadPoolExecutor

from harness import Case


class Aggregated(Case):
    def test_decodes_where_it_was_prefilled(self):
        cluster = self.cluster(prefill=0, decode=0, both=3,
                               config={'pool': 'aggregated'})

        def complete(i):
            reply = cluster.api.complete(f'question {i} ' * 40, max_tokens=24)
            self.assertEqual(reply.status, 200, reply.body)
            return (reply.headers['x-conductor-prefill'],
                    reply.headers['x-conductor-decode'])
        with ThreadPoolExecutor(10) as pool:
            places = list(pool.map(complete, range(30)))
        self.assertEqual([p for p in places if p[0] != p[1]], [])
        self.assertEqual({p for p, _ in places}, {'b0', 'b1', 'b2'})
