"""The greedy output of a prompt does not depend on where its KV came from."""
import concurrent.futures
import os
import random

from harness import BLOCK_TOKENS, Case, cached_tokens

PROMPTS = 200
OUTPUT_TOKENS = 6
CLIENTS = 8


def random_prompts(rng, count):
    """Prompts that share prefixes as branches of trees do: each goes on from
    a random cut of an earlier one, at a block's edge or within a block."""
    prompts = []
    for _ in range(count):
        prefix = []
        if prompts and rng.random() < 0.85:
            earlier = rng.choice(prompts[-40:])
            prefix = earlier[:rng.randint(1, len(earlier))]
        new = [rng.randrange(512) for _ in range(rng.randint(1, 100))]
        prompts.append((prefix + new)[:400])
    return prompts


class Reuse(Case):
    def setUp(self):
        super().setUp()
        seed = int(os.environ.get('CONDUCTOR_SEED', '0')) or \
            random.randrange(1, 1 << 32)
        self.seed = f'CONDUCTOR_SEED={seed}'
        self.prompts = random_prompts(random.Random(seed), PROMPTS)

    def answers(self, cluster, fresh=False):
        """The reply of each prompt; with `fresh`, each in a cache of its own,
        so that nothing is reused."""
        def ask(i):
            more = {'cache_salt': f'salt {i}'} if fresh else {}
            reply = cluster.api.complete(self.prompts[i], OUTPUT_TOKENS,
                                         temperature=0, **more).ok()
            return reply.body
        with concurrent.futures.ThreadPoolExecutor(CLIENTS) as pool:
            return list(pool.map(ask, range(len(self.prompts))))

    def check(self, local=0, fetched=0, **cluster):
        """A cluster answers as a cold worker does, twice. Of these requests,
        2 * PROMPTS in all, at least `local` reused blocks of the worker that
        computed them, and at least `fetched` blocks of another. Returns the
        metrics and the pairs of workers (prefill, decode) that served."""
        oracle = self.cluster(prefill=0, decode=0, both=1)
        cold = self.answers(oracle, fresh=True)
        self.assertEqual(cached_tokens(oracle.api.metrics(), 'local'), 0)
        texts = {reply['choices'][0]['text'] for reply in cold}
        self.assertGreater(len(texts), PROMPTS // 2, 'answers tell nothing')
        for process in oracle.processes():
            self.stop(process)

        tested = self.cluster(**cluster)
        reuses = {'local': 0, 'fetched': 0}
        pairs = set()
        for _ in range(2):
            warm = self.answers(tested)
            for i, (a, b) in enumerate(zip(cold, warm)):
                self.assertEqual(a['choices'][0]['text'],
                                 b['choices'][0]['text'],
                                 f'prompt {i}, {self.seed}')
                self.assertEqual(a['usage']['completion_tokens'],
                                 OUTPUT_TOKENS)
                pairs.add((b['conductor']['prefill'], b['conductor']['decode']))
                for source in reuses:
                    reuses[source] += b['conductor'][source + '_tokens'] > 0
        print(f'   of {2 * PROMPTS} requests reused: {reuses}', flush=True)
        self.assertGreaterEqual(reuses['local'], local, self.seed)
        self.assertGreaterEqual(reuses['fetched'], fetched, self.seed)
        metrics = tested.api.metrics()
        for source, n in reuses.items():
            self.assertGreaterEqual(cached_tokens(metrics, source),
                                    n * BLOCK_TOKENS)
        return metrics, pairs

    def test_local_prefix(self):
        self.check(local=PROMPTS, prefill=0, decode=0, both=1)

    def test_fetched_prefix(self):
        # Computing looks so dear that work goes to idle instances, and the
        # blocks with it.
        self.check(local=PROMPTS // 2, fetched=PROMPTS // 4, prefill=0,
                   decode=0, both=3, cost={'prefill': (1000, 1000, 0, 0)})

    def test_eviction_pressure(self):
        blocks = 96
        metrics, _ = self.check(local=PROMPTS // 4, fetched=PROMPTS // 20,
                                prefill=0, decode=0, both=2, kv_blocks=blocks,
                                cost={'prefill': (1000, 1000, 0, 0)})
        # Each store was emptied and filled again, more than once.
        self.assertGreater(
            metrics['conductor_block_events_total{event="removed"}'],
            2 * 2 * blocks)

    def test_prefill_and_decode_apart(self):
        _, pairs = self.check(local=PROMPTS, prefill=1, decode=1)
        self.assertEqual(pairs, {('p0', 'd0')})

    def test_two_prefill_and_one_decode(self):
        _, pairs = self.check(local=PROMPTS // 2, fetched=PROMPTS // 5,
                              prefill=2, decode=1,
                              cost={'prefill': (1000, 1000, 0, 0)})
        self.assertEqual(pairs, {('p0', 'd0'), ('p1', 'd0')})
