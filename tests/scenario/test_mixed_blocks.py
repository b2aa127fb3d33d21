"""Engines of one model whose blocks have different sizes: the index has one
size, and what each engine holds is cut for it from the tokens of its events."""
import random
import unittest

import engines
import stand_in
from harness import Case, Cluster, wait_until
from kv_feed import Feed
from publisher import Engine, Publisher
from test_forward_events import Behind

LONGEST = 384  # tokens of a prompt


class Words(Engine):
    """Says what an engine would about prompts that others have, too."""

    def __init__(self, seed, block_tokens, prompts):
        super().__init__(seed, block_tokens)
        self.prompts = prompts

    def prompt(self):
        base, size = self.rng.choice(self.prompts), self.block_tokens
        tokens = base[:self.rng.randrange(size, LONGEST + 1)]
        if self.rng.random() < .5:
            tokens = tokens + [self.rng.randrange(100000)
                               for _ in range(self.rng.randrange(2 * size))]
        return tokens[:len(tokens) // size * size]

    def reused(self, prompt):
        """So many tokens of a prompt the engine would not compute."""
        size = self.block_tokens
        return min(self.cache.leading(prompt), (len(prompt) - 1) // size) * size


class StandIns(Case):
    def begin(self, sizes, said=True, **config):
        """A conductor and an engine for each size."""
        self.all, self.publishers, entries = [], [], []
        for i, size in enumerate(sizes):
            # Nothing that is refused is expected to be cached.
            self.all.append(stand_in.Engine(
                lambda _, send: send(stand_in.reply(400, {'error': 'no'}))))
            self.addCleanup(self.all[i].stop)
            entries.append(self.entry(i, size if said else None))
        self.cluster = Cluster(self)
        self.cluster.config = {
            'listen': '127.0.0.1:0', 'engine_health_ms': 50,
            'engines': entries, **config}
        self.cluster.start_conductor()
        self.api = self.cluster.api
        wait_until('all are ready',
                   lambda: self.api.instances()[0] == len(sizes))

    def entry(self, i, size):
        port = engines.free_ports(2)
        self.publishers.append(Publisher(port, port + 1))
        self.addCleanup(self.publishers[-1].stop)
        return {'name': f'e{i}', 'kind': 'vllm', 'url': self.all[i].url,
                'model': 'm', 'index': 'events',
                'kv_events': f'tcp://127.0.0.1:{port}',
                'kv_replay': f'tcp://127.0.0.1:{port + 1}',
                **({'block_tokens': size} if size else {})}

    def publish(self, i, events):
        """Events of an engine, which the conductor has before this returns."""
        def taken():
            return self.api.metric('engine_events_total', instance=f'e{i}')
        before = taken()
        self.publishers[i].publish(events)
        wait_until('they are taken', lambda: taken() >= before + len(events))

    def explain(self, prompt):
        """(tokens of an index block, what is known of each engine)."""
        got = self.api.post('/v1/completions', {'model': 'm', 'prompt': prompt})
        self.assertEqual(got.status, 400, got.body)
        why = self.api.explain(got)
        return why['block_tokens'], {c['instance']: c
                                     for c in why['candidates']}

    def compare(self, words, prompt, index):
        """What is counted on is what the engine would reuse, but for what is
        said to be unseen. Returns both."""
        block, found = self.explain(prompt)
        self.assertEqual(block, index)
        sums = [0, 0]
        for i, w in enumerate(words):
            c = found[f'e{i}']
            seen, reused = c['local_blocks'] * index, w.reused(prompt)
            sums = [sums[0] + seen, sums[1] + reused]
            self.assertLessEqual(seen, reused, (i, prompt))
            self.assertLessEqual(reused, seen + c.get('unseen_tokens', 0),
                                 (i, prompt))
            if w.block_tokens >= index:
                self.assertEqual(c.get('unseen_tokens', 0), 0)
            else:
                self.assertLessEqual(c['unseen_tokens'],
                                     index - w.block_tokens)
            self.assertEqual(c.get('block_tokens', index), w.block_tokens)
        return sums

    def agree(self, sizes, index, steps=40, seed=4711, **kwargs):
        self.begin(sizes, **kwargs)
        rng = random.Random(seed)
        prompts = [[rng.randrange(100000) for _ in range(LONGEST)]
                   for _ in range(4)]
        words = [Words(rng.random(), size, prompts) for size in sizes]
        seen = reused = 0
        for step in range(steps):
            for i, w in enumerate(words):
                events = w.step()
                if rng.random() < .03:
                    events.append({'type': 'AllBlocksCleared'})
                    w.cache.apply(events[-1:])
                self.publish(i, events)
            prompt = rng.choice(words).prompt()
            if rng.random() < .5:
                prompt = prompt[:rng.randrange(1, len(prompt) + 1)]
            if prompt:
                s, r = self.compare(words, prompt, index)
                seen, reused = seen + s, reused + r
        self.assertGreater(seen, 0)
        return seen, reused

    def test_16_and_32(self):
        """Nothing is lost: the index has the smaller size."""
        seen, reused = self.agree((16, 32, 16), 16)
        self.assertEqual(seen, reused)

    def test_neither_divides_the_other(self):
        seen, reused = self.agree((64, 48), 16)
        self.assertEqual(seen, reused)

    def test_pages_of_one_beside_16(self):
        """SGLang's beside vLLM's."""
        seen, reused = self.agree((1, 16), 16, steps=25)
        self.assertLess(seen, reused)

    def test_sizes_that_nobody_said(self):
        """The first event says it."""
        seen, reused = self.agree((16, 32), 16, steps=15, said=False)
        self.assertEqual(seen, reused)
        self.assertEqual(
            [self.api.metric('engine_block_tokens', instance=f'e{i}')
            for i in range(2)], [16, 32])

    def test_an_engine_that_comes_later(self):
        """The index keeps its size, and what is not seen is told."""
        self.begin((32,))
        self.all.append(stand_in.Engine(self.all[0].serve))
        self.addCleanup(self.all[1].stop)
        got = self.api.post('/admin/instances', self.entry(1, 24))
        self.assertEqual(got.status, 400)
        self.assertIn('24', str(got.body))
        self.assertIn('32', str(got.body))
        self.publishers.pop().stop()
        got = self.api.post('/admin/instances', self.entry(1, 16))
        self.assertIn(got.status, (200, 201, 202), got.body)
        wait_until('it is ready', lambda: self.api.instances()[0] == 2)
        self.assertIn('up to 16 cached tokens of a prompt are not counted',
                      self.cluster.conductor.log())
        words = Words(1, 16, [list(range(1000, 1000 + LONGEST))])
        prompt = words.prompts[0]
        self.publish(1, [words.stored(prompt[:112])])
        for n, local, unseen in ((112, 3, 0), (113, 3, 16), (111, 3, 0),
                                 (96, 2, 16), (16, 0, 0), (17, 0, 16)):
            block, found = self.explain(prompt[:n])
            self.assertEqual(
                (block, found['e1']['local_blocks'],
                 found['e1']['unseen_tokens']), (32, local, unseen), n)

    def test_larger_blocks_are_reused_whole(self):
        """Of two blocks that begin alike the index finds the first half for a
        prompt that goes on in a third way; the engine could not reuse it."""
        self.begin((16, 32))
        words = Words(1, 32, [])
        base = list(range(1000, 1080))
        one, two = base + [1] * 16, base + [2] * 16
        self.publish(1, [words.stored(one), words.stored(two, 2)])
        held = 'conductor_instance_blocks{instance="e1"}'
        self.assertEqual(self.api.metrics()[held], 7)
        self.assertEqual(self.explain(base + [3] * 20)[1]['e1'][
            'local_blocks'], 4)
        # The half that both have stays with the last of them.
        chains = [words.stored(p)['block_hashes'][2] for p in (one, two)]
        self.publish(1, [{'type': 'BlockRemoved', 'medium': 'GPU',
                          'block_hashes': chains[:1]}])
        self.assertEqual(self.api.metrics()[held], 6)
        self.assertEqual([self.explain(p + [9])[1]['e1']['local_blocks']
                          for p in (one, two)], [4, 6])
        self.publish(1, [{'type': 'BlockRemoved', 'medium': 'GPU',
                          'block_hashes': chains[1:]}])
        self.assertEqual(self.api.metrics()[held], 4)

    def test_a_restart_with_another_size(self):
        """If nobody said the size, it is what the new process says."""
        self.begin((16,), said=False)
        prompt = list(range(1000, 1129))
        self.publish(0, [Words(1, 16, []).stored(prompt)])
        self.assertEqual(self.explain(prompt)[1]['e0']['local_blocks'], 8)
        self.publishers[0].stop()
        self.publishers[0].start()
        words = Words(2, 64, [])

        def restarted():
            self.publishers[0].publish([words.stored(prompt)])
            return self.explain(prompt)[1]['e0'].get('block_tokens') == 64
        wait_until('it is known', restarted)
        self.assertEqual(self.explain(prompt)[1]['e0']['local_blocks'], 8)
        self.assertEqual(self.explain(prompt[:127])[1]['e0']['local_blocks'],
                         4)

    def test_a_size_that_is_said_is_held_to(self):
        self.begin((16, 32))
        self.publish(1, [Words(1, 16, []).stored(list(range(64)))])
        self.assertEqual(self.api.metrics()[
            'conductor_engine_event_faults_total'
            '{instance="e1",fault="block_size"}'], 1)


class Mocked(Behind):
    """Dynamo's mockers, one request at a time, with evictions: what is counted
    on is what they count, on every request."""

    def together(self, sizes, seed=4711):
        mockers = [engines.Mocker(self, f'mocker{i}', 1024 // size, size)
                   for i, size in enumerate(sizes)]
        cluster = self.in_front_of(mockers, index='events')
        observers = [Feed(self, m.events_port, m.replay_port,
                          block_tokens=m.block_tokens) for m in mockers]
        rng, hits, lost, homes = random.Random(seed), 0, 0, set()
        bases = [[rng.randrange(4, 250) for _ in range(320)] for _ in range(6)]
        for _ in range(60):
            prompt = rng.choice(bases)[:rng.randrange(20, 321)] + \
                [rng.randrange(4, 250) for _ in range(rng.randrange(1, 40))]
            if rng.random() < .3:  # whole blocks: the last one is recomputed
                prompt = prompt[:len(prompt) // 32 * 32] or prompt
            home, predicted, told = self.ask(cluster, prompt, 1)
            chosen = cluster.api.explain(self.last)['candidates'][0]
            self.assertEqual(chosen['instance'], home)
            unseen = chosen.get('unseen_tokens', 0)
            self.assertLessEqual(predicted, told, prompt)
            self.assertLessEqual(told, predicted + unseen, prompt)
            hits, lost = hits + (told > 0), lost + told - predicted
            homes.add(home)
            i = int(home[1])
            wait_until('its blocks are observed', lambda: observers[i].match(
                prompt) == len(prompt) // sizes[i])
            wait_until('the conductor knows them', lambda: self.metric(
                cluster, 'engine_events_total', i) ==
                observers[i].stats()['events'])
        self.assertGreater(hits, 15)
        self.assertEqual(homes, {'e0', 'e1'})
        self.assertGreater(sum(o.stats()['removed'] for o in observers), 0)
        return lost

    def test_16_and_32(self):
        self.assertEqual(self.together((16, 32)), 0)

    def test_8_beside_16(self):
        self.assertGreater(self.together((8, 16)), 0)


if __name__ == '__main__':
    unittest.main()
