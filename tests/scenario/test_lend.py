"""A long prompt is lent idle workers, by the conductor's own decision."""
from harness import Case, Cluster, mostly_waits, program, wait_until
from test_failures import in_background

LONG = [i * 7 % 250 for i in range(4000)]
# Only what takes 2 s alone is lent any: LONG takes 2.4.
COST = {'prefill': (0, 600, 0, 0)}


class Lend(Case):
    def cluster_of(self, n, engine='timed', cost=COST, **options):
        """Of n prefill workers; at most half of those that are idle beside the
        one that leads are lent to it."""
        cluster = Cluster(self, {'policy': 'plan', **options.pop(
            'config', {})}, cost)
        cluster.start_conductor()
        for i in range(n):  # a name that JSON escapes
            cluster.start_worker(f'p"{i}', 'prefill', engine=engine, **options)
        cluster.start_worker('d', 'decode', engine=engine)
        cluster.wait_ready(n, 1)
        return cluster

    def ask(self, cluster, prompt, max_tokens=4):
        reply = cluster.api.complete(prompt, max_tokens).ok()
        explained = cluster.api.explain(reply)
        return reply.body['choices'][0]['text'], explained

    def led(self, cluster):
        return sum(w.log().count('are computed by')
                   for w in cluster.workers.values())

    @mostly_waits
    def test_four(self):
        """Four simulated workers of seven: the answer of one, predicted in
        less than 0.4 of its time (tests/bench/pipeline measures it). What is
        short is not lent any, and who computes is not lent."""
        one = self.cluster_of(1)
        want, alone = self.ask(one, LONG)
        self.assertEqual(alone['lent'], [])
        for p in one.processes():
            self.stop(p)
        four = self.cluster_of(7)
        got, group = self.ask(four, LONG)
        self.assertEqual(got, want)
        self.assertEqual(len({group['prefill'], *group['lent']}), 4)
        self.assertEqual(self.led(four), 1)
        status, text, _ = self.run_program(
            program('tools', 'conductorctl'), '-a',
            f"127.0.0.1:{four.ports['http']}", 'explain', group['request_id'])
        self.assertEqual(status, 0)
        self.assertIn(f"\nlent            {', '.join(group['lent'])}: predicted "
                      'for the group', text)
        self.assertLess(group['predicted']['prefill_ms'], 0.4 * 2400)
        _, short = self.ask(four, LONG[100:300])
        self.assertEqual(short['lent'], [])
        self.assertEqual(self.led(four), 1)

    def test_same_tokens(self):
        """Four real ones agree with one."""
        known = {'prefill': (0, 5000, 0, 0)}  # 7.5 s: it is lent
        one = self.cluster_of(1, 'cpu', known)
        prompts = [LONG[i:i + 1500 + i] for i in range(3)]
        want = [self.ask(one, p)[0] for p in prompts]
        for p in one.processes():
            self.stop(p)
        four = self.cluster_of(7, 'cpu', known)
        self.assertEqual([self.ask(four, p)[0] for p in prompts], want)
        self.assertEqual(self.led(four), 3)

    @mostly_waits
    def test_member_lost(self):
        """The request is answered all the same, and what was lent is free."""
        cluster = self.cluster_of(5)
        wait = in_background(lambda: self.ask(cluster, LONG))
        wait_until('a group', lambda: self.led(cluster))
        leader = next(n for n, w in cluster.workers.items()
                      if 'are computed by' in w.log())
        member = wait_until('a member computes', lambda: next(
            (n for n, w in cluster.workers.items()
             if 'are computed here' in w.log()), None))
        cluster.workers[member].kill()
        text, _ = wait()
        self.assertEqual(len(text), 4)
        cluster.wait_ready(4, 1)
        _, again = self.ask(cluster, LONG[1:])
        self.assertEqual(len(again['lent']), 1)
