"""Several conductors in front of the same workers."""
from harness import Case, Cluster, total, wait_until
from test_failures import in_background

PROMPT = list(range(1, 161))
# A token of a decode takes 20 ms, so that answers last.
SLOW = {'prefill': (2000, 20, 0, 0), 'decode': (20000, 0, 0)}


class Conductors(Case):
    def start_all(self, n, config=None, cost=None):
        """n conductors without workers, the first of which starts those."""
        self.clusters = [Cluster(self, config, cost, name=f'c{i}')
                         for i in range(n)]
        for cluster in self.clusters:
            cluster.start_conductor()
        return self.clusters

    def restart(self, cluster):
        """A conductor that has ended, on the ports that it had."""
        for option, port in (('listen', 'http'), ('worker_listen', 'worker')):
            cluster.config[option] = f'127.0.0.1:{cluster.ports[port]}'
        cluster.start_conductor()

    def addresses(self, clusters):
        return ','.join(f'127.0.0.1:{c.ports["worker"]}' for c in clusters)

    def wait_all(self, prefill, decode):
        for cluster in self.clusters:
            wait_until(f'{cluster.name} has its workers', lambda c=cluster:
                       c.api.instances() == (prefill, decode))


class Listed(Conductors):
    """Workers that are told of all conductors."""

    def begin(self, n=2, **options):
        clusters = self.start_all(n, cost=SLOW)
        for name, role in (('p0', 'prefill'), ('d0', 'decode')):
            clusters[0].start_worker(name, role, engine='timed',
                                     conductor=self.addresses(clusters),
                                     **options)
        self.wait_all(1, 1)
        return clusters

    def test_each_index_is_whole(self):
        """What one conductor had computed, the other one finds; and who comes
        late finds all of it."""
        a, b = self.begin()
        first = a.api.complete(PROMPT)
        self.assertEqual(first.status, 200, first.body)
        wait_until('b knows the blocks', lambda: total(
            b.api.metrics(), 'conductor_index_holders') == total(
                a.api.metrics(), 'conductor_index_holders') > 0)
        again = b.api.complete(PROMPT)
        self.assertEqual(again.body['choices'], first.body['choices'])
        cached = again.body['usage']['prompt_tokens_details']['cached_tokens']
        self.assertGreater(cached, 100)
        pairs = total(b.api.metrics(), 'conductor_index_holders')
        b.conductor.kill()
        self.restart(b)
        wait_until('it knows them again', lambda: total(
            b.api.metrics(), 'conductor_index_holders') == pairs)

    def test_one_is_killed(self):
        """Its requests end; those of the other one do not notice."""
        a, b = self.begin()
        mine = in_background(lambda: a.api.complete(PROMPT, max_tokens=60))
        others = in_background(lambda: b.api.complete(PROMPT, max_tokens=60))
        for c in a, b:
            wait_until('it decodes', lambda c=c: total(
                c.api.metrics(), 'conductor_output_tokens_total') > 3)
        a.conductor.kill()
        with self.assertRaises(OSError):
            mine()
        reply = others()
        self.assertEqual(reply.status, 200, reply.body)
        self.assertEqual(reply.body['usage']['completion_tokens'], 60)
        self.assertEqual(total(b.api.metrics(), 'conductor_retries_total'), 0)
        self.assertIn('1 of 2 requests are dropped', a.workers['d0'].log())

    def test_worker_leaves(self):
        """It ends what it has of both first."""
        a, b = self.begin()
        answers = [in_background(lambda c=c: c.api.complete(PROMPT, 40))
                   for c in (a, b)]
        for c in a, b:
            wait_until('it decodes', lambda c=c: total(
                c.api.metrics(), 'conductor_output_tokens_total') > 3)
        a.workers['d0'].child.terminate()
        for answer in answers:
            reply = answer()
            self.assertEqual(reply.status, 200, reply.body)
        self.assertEqual(a.workers['d0'].wait(), 0)

    def test_one_refuses(self):
        """The worker serves the other one."""
        a, = self.start_all(1)
        other = Cluster(self, {'block_tokens': 32}, name='other')
        other.start_conductor()
        self.clusters.append(other)
        for name, role in (('p0', 'prefill'), ('d0', 'decode')):
            a.start_worker(name, role,
                           conductor=self.addresses([other, a]))
        a.wait_ready(1, 1)
        wait_until('they know', lambda: all(
            'no longer looked for' in w.log() for w in a.workers.values()))
        self.assertEqual(a.api.complete(PROMPT).status, 200)
