"""conductor-replay compare and size: the same numbers as simulate has."""
import csv
import json
import os
import re
import subprocess
import sys
import unittest
from random import Random
import xml.etree.ElementTree

from harness import (REPLAY, ROOT, FolderCase, computes_long, program,
                     read_file, replay)
from test_replay import SAMPLE

for folder in 'compare', 'size':
    sys.path.append(os.path.join(ROOT, 'tools', 'replay', 'study', folder))
import capacity
import compare
import mixes
import words as size_words

CLUSTERS = os.path.join(ROOT, 'traces', 'clusters')
REFERENCE = os.path.join(CLUSTERS, 'reference-16.json')
PAPER = os.path.join(CLUSTERS, 'paper-16.json')


class Means(unittest.TestCase):
    def test_counts(self):
        """Counts are means, as the ratios beside them; the latest is of all
        seeds; what a run has not measured is left out."""
        runs = [dict.fromkeys((
            'ttft_mean_s', 'ttft_p50_s', 'ttft_p90_s', 'ttft_p99_s',
            'tbt_p90_s', 'predicted_ratio', 'error_p99_s', 'error_max_s'))
            | {'policy': 'plan', 'nodes': 2, 'decode_nodes': 1,
               'link_gbps': 10.0, 'speed': 1.0, 'hit_ratio': 0.5,
               'effective_ratio': 0.1 * i, 'effective_token_ratio': 1.0,
               'effective': 10 * i, 'arrivals_s': 20.0, 'p90_told': i,
               'p90_held': 1, 'rejected': 10 + i, 'late': 4 + i,
               'latest_s': 5.0 - i} for i in range(3)]
        runs[1] |= {'ttft_mean_s': 3.0, 'error_max_s': 2.0}
        runs[2] |= {'ttft_mean_s': 5.0, 'error_max_s': 7.0}
        case = compare.Case(runs)
        self.assertEqual((case.rejected, case.late, case.latest_s), (11, 5, 5))
        self.assertEqual((case.nodes, case.ttft[:2]), ('2+1', [4, None]))
        self.assertEqual((case.predicted, case.error_max_s), (None, 7))
        for got, value in ((case.effective, 0.1), (case.goodput, 0.5),
                           (case.held, 1)):
            self.assertAlmostEqual(got, value)


class Mixes(unittest.TestCase):
    """The search for the cheapest mix against trying all."""

    def space(self, random):
        kinds, roles = random.choice([1, 2, 3]), random.choice([[0], [0, 1]])
        most = [random.randrange(1, 7 if kinds < 3 else 4) for _ in range(2)]
        prices = [random.randrange(1, 9) for _ in range(kinds)]
        return mixes.Space([(k, r, prices[k]) for r in roles
                            for k in range(kinds)],
                           (most[0], most[1] if 1 in roles else 0))

    def by_hand(self, space, ask):
        tried = [(m, *ask([m])[0]) for m in space.mixes(range(len(
            space.dims)))]
        return min(((space.price(m), -share, space.nodes(m, 0), m)
                    for m, meets, share in tried if meets),
                   default=(None,) * 4)[-1]

    def check(self, space, ask, everything):
        asked = []

        def counted(some):
            asked.extend(some)
            return ask(some)
        search = mixes.Search(space, counted, everything,
                              at_once=Random(len(space.dims)).randrange(1, 5))
        best = self.by_hand(space, ask)
        self.assertEqual(search.run(), best)
        self.assertEqual(len(asked), len(set(asked)))  # nothing twice
        spare = mixes.Search(space, mixes.Spare(search).ask, everything)
        spare.failed = list(search.failed)

        def survives(some):
            return [(meets and all(space.fits(x) and ask([x])[0][0]
                                   for x in space.without_one(m)), share)
                    for m, (meets, share) in zip(some, ask(some))]
        self.assertEqual(spare.run(), self.by_hand(space, survives))
        return search

    def test_more_never_hurts(self):
        """Each kind of node brings its part of the work of each role."""
        left_out = 0
        for seed in range(200):
            random = Random(seed)
            space = self.space(random)
            worth = [random.randrange(1, 6) for _ in space.dims]
            need = [random.randrange(1, 25) for _ in range(2)]

            def ask(some):
                shares = [min([1.0] + [
                    sum(n * w for n, w, dim in zip(m, worth, space.dims)
                        if dim[1] == r) / need[r] for r in space.roles])
                          for m in some]
                return [(share >= 1, share) for share in shares]
            with self.subTest(seed=seed):
                search = self.check(space, ask, seed % 4 == 0)
                self.assertEqual(search.contradicted, 0)
                left_out += len(space.mixes(range(len(space.dims)))) - len(
                    search.answers)
        self.assertGreater(left_out, 2000)

    def test_anything_goes(self):
        """Of one kind, where more nodes may be worse."""
        for seed in range(200):
            random = Random(seed)
            space = mixes.Space([(0, 0, 1), (0, 1, 1)], (
                random.randrange(1, 9), random.randrange(1, 9)))
            shares = {m: random.randrange(1000) for m in space.mixes((0, 1))}
            level = random.randrange(700, 1020)
            with self.subTest(seed=seed):
                self.check(space, lambda some: [
                    (shares[m] >= level, shares[m]) for m in some], True)

    def test_doubt_is_found(self):
        """A mix that was left out and meets the target is told, and taken."""
        space = mixes.Space([(0, 0, 3), (1, 0, 4)], (6, 0))
        search = mixes.Search(space, lambda some: [
            (m in ((1, 1), (6, 0)), 1.0) for m in some], False)
        self.assertEqual(search.run(), (1, 1))
        self.assertEqual(search.contradicted, 1)


class Resampled(unittest.TestCase):
    def requests(self):
        """20 sessions of 3 turns behind a prefix of all."""
        made = [{'timestamp': 100 * s + 7 * turn, 'input_length': 512 * turn,
                 'output_length': 1, 'tenant': s,
                 'hash_ids': [0, 1] + [1000 * (s + 1) + i
                                       for i in range(2 * turn)]}
                for s in range(20) for turn in (1, 2, 3)]
        return sorted(made, key=lambda q: q['timestamp'])

    def test_sessions(self):
        sessions = capacity.sessions_of(self.requests())
        self.assertEqual([[q['tenant'] for q, _ in s] for s in sessions],
                         [[s] * 3 for s in range(20)])
        self.assertEqual({own for s in sessions for _, own in s}, {2})

    def test_resample(self):
        sessions = capacity.sessions_of(self.requests())
        made = capacity.resample(sessions, Random(5))
        self.assertEqual(made, capacity.resample(sessions, Random(5)))
        times = [q['timestamp'] for q in made]
        self.assertEqual(times, sorted(times))
        # At each start some session begins; one that comes twice is another.
        starts = {s[0][0]['timestamp'] for s in sessions}
        self.assertEqual({q['timestamp'] for q in made
                          if q['input_length'] == 512}, starts)
        copies = {}
        for q in made:
            self.assertEqual(q['hash_ids'][:2], [0, 1])
            copies.setdefault(q['hash_ids'][2], []).append(q)
        self.assertEqual(len(copies), 20)
        self.assertLess(len({c[0]['tenant'] for c in copies.values()}), 20)
        for copy in copies.values():
            self.assertEqual(len({q['tenant'] for q in copy}), 1)
            for a, b in zip(copy, copy[1:]):
                self.assertEqual(a['hash_ids'],
                                 b['hash_ids'][:len(a['hash_ids'])])


class Said(unittest.TestCase):
    """Sentences of size."""

    def test_load(self):
        def said(holds, fails, *parts):
            return size_words.load_text({
                'holds': holds, 'fails': fails, 'lowest': 0.5, 'highest': 3,
                'holds_of_parts': [holds or 0.0, *parts]})
        for args, told in (
                ((1.33, 1.36), 'holds up to 1.33 times the load, and breaks at '
                               '1.36'),
                ((1.33, 1.36, 1.08, 1.31),
                 'holds 1.08 to 1.31 times the load on 2 resampled traces; on '
                 'the trace itself it holds up to 1.33 times the load, and '
                 'breaks at 1.36'),
                ((None, 0.5, 0.0, 3),
                 'holds less than 0.5 to 3 or more times the load on 2 '
                 'resampled traces; on the trace itself it misses the target '
                 'at 0.5 times the load already'),
                ((None, 0.5, 0.0, 0.0),
                 'misses the target at 0.5 times the load already, as on 2 '
                 'resampled traces'),
                ((3, None, 3),
                 'holds 3 or more times the load on 1 resampled trace; on the '
                 'trace itself it holds at 3 times the load, the most that '
                 'was tried')):
            self.assertEqual(said(*args), told)
        self.assertEqual(size_words.load_text(None), 'serves nothing')

    def test_doubts(self):
        def said(requests, longest, token_target):
            return size_words.doubts({
                'requests': requests, 'tokens': 100000,
                'longest_tokens': longest, 'token_target': token_target})
        self.assertEqual(said(1000, 5000, 0.95), '')
        self.assertEqual(said(1000, 90000, 0), '')
        self.assertEqual(said(1000, 90000, 1), '')
        self.assertIn('the trace has 999, fewer than 1,000', said(999, 1, 0.9))
        self.assertIn('one alone has 5.1 % of the input tokens, and 5 % may '
                      'miss the target', said(1000, 5100, 0.95))

    def test_tried(self):
        def said(checked, met):
            return size_words.tried_text({
                'everything': False, 'simulated': 6, 'checked': checked,
                'contradicted': met, 'answer': {}})
        self.assertNotIn('To check', said(0, 0))
        self.assertIn('1 of those left out was simulated, too: it missed it',
                      said(1, 0))
        self.assertIn('9 of those left out were simulated, too: 2 met it',
                      said(9, 2))


class Study(FolderCase):
    def trace(self, requests, seed=1, like='conversation', rate=4):
        replay('generate', '--like', like, '--requests', requests,
               '--rate', rate, '--seed', seed, '--out',
               self.path('t.jsonl'))
        return self.path('t.jsonl')

    def simulate(self, trace, *args):
        replay('simulate', '--trace', trace, '--report',
               self.path('r.json'), *args)
        return self.read_json('r.json')

    def rows(self):
        return self.read_csv('o.csv')

    def test_compare_is_what_simulate_says(self):
        trace = self.trace(300)
        args = ['compare', '--trace', trace, '--cluster', PAPER, '--speeds',
                '1,5', '--prefill', '2,3', '--decode', 2, '--policies',
                'random,global_cache', '--csv', self.path('o.csv'), '--plot',
                self.path('o.svg'), '--slo-ttft', 20]
        done = replay(*args, '--jobs', 4)
        rows = self.rows()
        self.assertEqual(
            [(r['nodes'], r['speed'], r['policy']) for r in rows],
            [(n, s, p) for n in '23' for s in '15'
             for p in ('random', 'global_cache')])
        for row in rows:
            report = self.simulate(
                trace, '--cluster', PAPER, '--prefill', row['nodes'],
                '--decode', 2, '--speed', row['speed'], '--policy',
                row['policy'], '--slo-ttft', 20)
            self.assertEqual(float(row['ttft_mean_s']),
                             report['ttft_s']['mean'])
            self.assertEqual(float(row['ttft_p99_s']), report['ttft_s']['p99'])
            self.assertEqual(float(row['hit_ratio']),
                             report['prefix_hit_ratio'])
            self.assertEqual(float(row['effective_ratio']),
                             report['slo']['effective_ratio'])
            self.assertEqual(int(row['rejected']),
                             report['requests']['rejected'])
        xml.etree.ElementTree.parse(self.path('o.svg'))
        # However many run at once: the same bytes.
        with open(self.path('o.csv'), 'rb') as f:
            before = f.read()
        one = replay(*args, '--jobs', 1)
        self.assertEqual(one.stdout, done.stdout)
        with open(self.path('o.csv'), 'rb') as f:
            self.assertEqual(f.read(), before)

    def test_compare_seeds(self):
        """A run a seed, the first as without --seeds; the table is of their
        means, and the verdict on these."""
        cluster = json.loads(read_file(PAPER))
        cluster['prefill_error_sigma'] = 0.3
        self.write('c.json', json.dumps(cluster))
        args = ['compare', '--trace', SAMPLE, '--cluster',
                self.path('c.json'), '--policies', 'local_cache,plan',
                '--prefill', 2, '--csv', self.path('o.csv')]
        replay(*args)
        alone = self.rows()
        self.assertNotIn('seed', alone[0])
        done = replay(*args, '--seeds', 4)
        self.assertIn('means of 4 seeds', done.stdout)
        rows = self.rows()
        self.assertEqual([r['seed'] for r in rows], list('1234') * 2)
        self.assertEqual([{**r, 'seed': '1'} for r in rows[::4]],
                         [{**r, 'seed': '1'} for r in alone])
        means = {}
        for at in (0, 4):
            ttft = [float(r['ttft_mean_s']) for r in rows[at:at + 4]]
            self.assertEqual(len(set(ttft)), 4)
            means[rows[at]['policy']] = sum(ttft) / 4
            self.assertRegex(done.stdout,
                             rf'{rows[at]["policy"]} +{sum(ttft) / 4:.3f} ')
        lowest = int(means['plan'] <= means['local_cache'])
        self.assertIn(f'plan is the lowest: at {lowest} of 1 points',
                      done.stdout)
        again = replay(*args, '--seeds', 4, '--jobs', 3)
        self.assertEqual(again.stdout, done.stdout)

    def test_compare_requests(self):
        """The requests of every run, as simulate has them."""
        replay('compare', '--trace', SAMPLE, '--cluster', PAPER,
               '--policies', 'plan,random', '--speeds', '1,3',
               '--requests-csv', self.path('o.csv'))
        rows = self.rows()
        for policy in ('plan', 'random'):
            for speed in '13':
                self.simulate(SAMPLE, '--cluster', PAPER, '--policy', policy,
                              '--speed', speed, '--requests-csv',
                              self.path('s.csv'))
                want = self.read_csv('s.csv')
                told = {'nodes': '8', 'decode_nodes': '8', 'link_gbps': '800',
                        'speed': speed, 'policy': policy, 'seed': '1'}
                self.assertEqual([r for r in rows if r['policy'] == policy and
                                  r['speed'] == speed],
                                 [{**told, **r} for r in want])
        self.assertEqual(len(rows), 4 * 80)

    def test_compare_verdict(self):
        """The default policy is among those that are compared, and what is
        said of them does not depend on the order in which they are given."""
        args = ['compare', '--trace', SAMPLE, '--cluster', REFERENCE,
                '--speeds', '1,8']
        one = replay(*args)
        self.assertTrue(one.stdout.endswith(
            '\nno verdict: that takes --seeds 3\n'), one.stdout)
        args += ['--seeds', '3', '--csv', self.path('o.csv')]
        done = replay(*args)
        rows = self.rows()
        self.assertEqual({r['policy'] for r in rows},
                         {'random', 'least_loaded', 'local_cache',
                          'global_cache', 'plan'})
        said = done.stdout[done.stdout.index('\nmean TTFT'):]
        mean = {(r['speed'], r['policy']):
                sum(float(x['ttft_mean_s']) for x in rows
                    if (x['speed'], x['policy']) == (r['speed'], r['policy']))
                for r in rows}
        falls = lowest = 0
        for speed in '18':
            order = [mean[speed, p] for p in
                     ('random', 'least_loaded', 'local_cache', 'global_cache')]
            falls += order == sorted(order, reverse=True)
            lowest += mean[speed, 'plan'] <= min(order)
        self.assertEqual(
            said, '\nmean TTFT:\n  random >= least_loaded >= local_cache >= '
            f'global_cache: at {falls} of 2 points\n'
            f'  plan is the lowest: at {lowest} of 2 points\n')
        other = replay(*args, '--policies', 'plan,global_cache,random,'
                       'local_cache,least_loaded')
        self.assertTrue(other.stdout.endswith(said), other.stdout)
        one = replay(*args, '--policies', 'round_robin')
        self.assertNotIn('mean TTFT', one.stdout)

    def test_compare_rules(self):
        """The default policy, and the same with an option of 0."""
        args = ['compare', '--trace', SAMPLE, '--cluster', PAPER, '--speeds',
                '2', '--csv', self.path('o.csv')]
        replay(*args, '--policy-option', 'wait_price=2', '--rules',
               'session_ms,wait_price')
        rows = self.rows()
        self.assertEqual([r['policy'] for r in rows],
                         ['plan', 'plan wait_price=0', 'plan session_ms=0'])
        for row, more in zip(rows, (['wait_price=2'], ['wait_price=0'],
                                    ['wait_price=2', 'session_ms=0'])):
            replay(*args, '--policies', 'plan',
                   *(x for o in more for x in ('--policy-option', o)))
            self.assertEqual({**self.rows()[0], 'policy': ''},
                             {**row, 'policy': ''})
        done = replay(*args, '--rules', 'switches')
        self.assertIn('plan price=0', done.stdout)
        self.assertNotIn('rho=0', done.stdout)
        self.assertNotIn('verdict', done.stdout)
        choices = 'options of plan that can be 0: wait_price, '
        for wrong, words in (
                ('price,nix', f'--rules nix: must be switches, or {choices}'),
                ('price,price', '--rules price: comes twice'),
                ('load_modes', '--rules load_modes: must be '), ('', '--rules'),
                ('replicate', '--rules replicate: is 0 without that')):
            replay(*args, '--rules', wrong, status=2, says=words)
        replay(*args, '--policy-option', 'price=0', '--rules', 'price',
               status=2)
        replay(*args, '--rules', 'switches', '--policies', 'plan,random',
               status=2)

    def test_compare_plots(self):
        for lists in (['--prefill', '2,4'], ['--speeds', '1'],
                      ['--speeds', '1,2', '--prefill', '2,3,4,5']):
            replay('compare', '--trace', SAMPLE, '--cluster', REFERENCE,
                   '--plot', self.path('o.svg'), *lists)
            xml.etree.ElementTree.parse(self.path('o.svg'))

    def by_hand(self, trace, side, slo, target):
        """Every size up to side x side, as one would try them."""
        best = None
        for prefill in range(1, side + 1):
            for decode in range(1, side + 1):
                report = self.simulate(
                    trace, '--cluster', PAPER, '--prefill', prefill,
                    '--decode', decode, '--policy', 'plan', '--speed', 8,
                    *slo)
                ratio = report['slo']['effective_ratio']
                key = (prefill + decode, -ratio, prefill)
                if ratio >= target and (best is None or key < best[0]):
                    best = key, prefill, decode
        return best and best[1:]

    @computes_long
    def test_size_is_what_trying_all_finds(self):
        trace = self.trace(250)
        for target, ttft, tbt in ((0.95, 10, 0.05), (0.8, 5, 0.1),
                                  (0.99, 60, 0.026)):
            slo = ['--slo-ttft', ttft, '--slo-tbt', tbt]
            with self.subTest(target=target, slo=slo):
                best = self.by_hand(trace, 6, slo, target)
                done = replay('size', '--trace', trace, '--cluster-template',
                              PAPER, '--target', target, '--speed', 8,
                              '--max-prefill', 6, '--max-decode', 6, '--csv',
                              self.path('o.csv'), '--plot', self.path('o.svg'),
                              *slo, status=0 if best else 1)
                if best is None:
                    self.assertIn('none of the 36 sizes up to 6 prefill nodes '
                                  'and 6 decode', done.stdout)
                    continue
                self.assertIn(f'{best[0]} prefill and {best[1]} decode',
                              done.stdout)
                self.assertLessEqual(len(self.rows()), 36)
                xml.etree.ElementTree.parse(self.path('o.svg'))

    def test_size_where_more_is_not_better(self):
        """Short links and batch places: larger clusters of random kinds fail
        where smaller ones do; the answer is that of trying all."""
        random = Random('size')
        paper = json.loads(read_file(PAPER))
        for i in range(4):
            trace = self.trace(60 + 20 * i, seed=i + 1, like='toolagent',
                               rate=random.choice([2, 4]))
            paper['decode'].update(kv_tokens=300000,
                                   max_batch=random.choice([2, 4, 8]))
            paper['links']['gbps'] = random.choice([25, 50, 100])
            self.write('c.json', json.dumps(paper))
            slo = ['--slo-ttft', 30, '--slo-tbt',
                   random.choice([0.05, 0.1, 0.2])]
            ratios = {}
            for p in range(1, 6):
                for d in range(1, 6):
                    report = self.simulate(
                        trace, '--cluster', self.path('c.json'), '--prefill',
                        p, '--decode', d, '--policy', 'plan', *slo)
                    ratios[p, d] = report['slo']['effective_ratio']
            # A target that few meet, so that the answer is not 1 + 1. Reports
            # round: one that rounds up would be met by none.
            target = sorted(ratios.values())[random.choice([12, 18, 24])] - 1e-6
            best = min((p + d, -r, p, d) for (p, d), r in ratios.items()
                       if r >= target)
            done = replay('size', '--trace', trace, '--cluster',
                          self.path('c.json'), '--target', target,
                          '--max-prefill', 5, '--max-decode', 5, *slo)
            self.assertIn(f'{best[2]} prefill and {best[3]} decode',
                          done.stdout, (i, target, ratios))
            self.assertIn('input tokens served: ', done.stdout)
            below = max((r for (p, d), r in ratios.items()
                         if p + d == best[0] - 1), default=None)
            if below is not None:
                self.assertIn(f'best with {best[0] - 1} nodes', done.stdout)
                self.assertIn(f', {100 * below:.2f} %', done.stdout)

    def test_size_says_why(self):
        """Prompts that cannot be served in time on any number of nodes."""
        asked = ['--slo-ttft', 2, '--slo-tbt', 0.2]
        slo = [*asked, '--policy-option', 'lend=0',
               '--policy-option', 'warm_on_reject=0']
        done = replay('size', '--trace', SAMPLE, '--cluster-template', PAPER,
                      '--max-prefill', 3, '--max-decode', 2, *slo, status=1)
        hopeless = int(re.search(
            r'\n(\d+) of 80 requests miss an SLO on any number of nodes',
            done.stdout)[1])
        self.assertIn('; the target allows 4\n', done.stdout)
        self.assertEqual(done.stderr, '')  # nothing was simulated
        replay('size', '--trace', SAMPLE, '--cluster-template', PAPER,
               '--max-prefill', 3, '--max-decode', 2, *slo,
               '--csv', self.path('none.csv'), status=1)
        rows = [tuple(map(int, (r['requests_judged'], r['nodes'],
                                r['prefill'])))
                for r in self.read_csv('none.csv')]
        # Those that got furthest first; of equals the one of fewest nodes.
        self.assertEqual(len(rows), 6)
        self.assertEqual(rows, sorted(rows, key=lambda r: (-r[0], *r[1:])))
        # One after the other on many nodes all others are in time.
        slow = self.simulate(SAMPLE, '--cluster', PAPER, '--prefill', 32,
                             '--decode', 8, '--policy', 'plan', '--speed',
                             0.01, *slo)
        self.assertEqual(slow['requests']['rejected'], hopeless)
        # Nor those that are lent others, or were warmed.
        done = replay('size', '--trace', SAMPLE, '--cluster-template', PAPER,
                      '--max-prefill', 3, '--max-decode', 2, *asked, status=1)
        fewer = int(re.search(r'\n(\d+) of 80 requests miss', done.stdout)[1])
        slow = self.simulate(SAMPLE, '--cluster', PAPER, '--prefill', 32,
                             '--decode', 8, '--policy', 'plan', '--speed',
                             0.01, *asked)
        self.assertLessEqual(fewer, slow['requests']['rejected'])
        self.assertLess(slow['requests']['rejected'], hopeless)
        done = replay('size', '--trace', SAMPLE, '--cluster-template', PAPER,
                      '--slo-ttft', 60, '--slo-tbt', 0.2, '--speed', 50,
                      '--max-prefill', 1, '--max-decode', 1, status=1)
        self.assertNotIn('any number of nodes', done.stdout)

    def test_size_of_one_kind(self):
        trace = self.trace(200)
        done = replay('size', '--trace', trace, '--cluster-template',
                      REFERENCE, '--slo-ttft', 10, '--speed', 8)
        self.assertIn(' prefill nodes, ', done.stdout)
        done = replay('size', '--trace', trace, '--cluster-template',
                      os.path.join(CLUSTERS, 'paper-16-coupled.json'),
                      '--slo-ttft', 10, '--slo-tbt', 0.5, '--speed', 4,
                      '--policy', 'local_cache')
        self.assertRegex(done.stdout, r'smallest cluster: \d+ nodes?, ')

    def kinds(self, *prices):
        """Writes a kind of node for each price, with other costs and memory.
        Returns their descriptions."""
        os.makedirs(self.path('kinds'), exist_ok=True)
        made = []
        for i, price in enumerate(prices):
            cluster = json.loads(read_file(PAPER))
            cluster |= {'name': f'k{i}', 'cost': {
                'kind': 'polynomial',
                'prefill_us': [0, 60 * 2 ** i, 1e-4, 2e-4],
                'decode_us': [9000 - 4000 * i, 20, 0.02]}}
            cluster['decode']['max_batch'] = 4 + 8 * i
            if price is not None:
                cluster['price_per_hour'] = price
            self.write(os.path.join('kinds', f'k{i}.json'),
                       json.dumps(cluster))
            made.append(cluster)
        return made

    @computes_long
    def test_mixes_are_what_trying_all_finds(self):
        """Every mix of two kinds, each as a cluster file with groups."""
        random = Random('mixes')
        for seed in (1, 2):
            a, b = self.kinds(*random.sample(range(3, 12), 2))
            trace = self.trace(60, seed=seed, rate=3)
            slo = ['--slo-ttft', 20, '--slo-tbt', 0.05, '--speed', 2]
            every = [(p, q, d, e) for p in range(3) for q in range(3)
                     for d in range(3) for e in range(3)
                     if 1 <= p + q <= 2 and 1 <= d + e <= 2]
            shares = {}
            for p, q, d, e in every:
                c = json.loads(json.dumps(a))
                c['prefill']['nodes'], c['decode']['nodes'] = p + q, d + e
                if q:
                    c['prefill']['groups'] = [
                        {'nodes': q, 'prefill_us': b['cost']['prefill_us']}]
                if e:
                    c['decode']['groups'] = [
                        {'nodes': e, 'decode_us': b['cost']['decode_us'],
                         'max_batch': b['decode']['max_batch']}]
                got = self.simulate(
                    trace, '--cluster', self.write('c.json', json.dumps(c)),
                    '--policy', 'plan', *slo)['slo']
                shares[p, q, d, e] = (got['effective_ratio'],
                                      got['effective_token_ratio'])
            # Reports round: one that rounds up would be met by none.
            # Mixes that serve enough requests need not serve enough tokens.
            target, tokens = (sorted(x[i] for x in shares.values())[k] - 1e-6
                              for i, k in ((0, 6), (1, 18)))

            def price(m):
                return (a['price_per_hour'] * (m[0] + m[2]) +
                        b['price_per_hour'] * (m[1] + m[3]))
            best = min((price(m), -x[0], m[0] + m[1]) for m, x in
                       shares.items() if x[0] >= target and x[1] >= tokens)
            done = replay('size', '--trace', trace, '--nodes',
                          self.path('kinds'), '--target', target,
                          '--token-target', tokens, '--max-prefill', 2,
                          '--max-decode', 2, '--csv', self.path('o.csv'), *slo)
            self.assertIn(f', {best[0]:.2f} price units an hour, {-100 * best[1]:.2f} % '
                          'effective', done.stdout)
            self.assertIn(f'(target {100 * target:.4g} %)', done.stdout)
            self.assertIn(f'input tokens (target {100 * tokens:.4g} %)',
                          done.stdout)
            for row in self.rows():
                k0, k1 = (tuple(map(int, re.search(
                    rf'{k}:(\d+)\+(\d+)', row['mix'] + ' k0:0+0 k1:0+0')
                    .groups())) for k in ('k0', 'k1'))
                m = k0[0], k1[0], k0[1], k1[1]
                self.assertEqual(float(row['price_per_hour']), price(m))
                self.assertEqual(row['meets'], str(int(
                    shares[m][0] >= target and shares[m][1] >= tokens)))

    def test_report(self):
        """The report stands alone; its numbers are those of simulate."""
        trace = self.trace(80)
        odd = self.path('<b>t&.jsonl')
        os.rename(trace, odd)
        slo = ['--slo-ttft', 10, '--slo-tbt', 0.1]
        self.kinds(2.5)
        done = replay('size', '--trace', odd, '--nodes', self.path('kinds'),
                      '--target', 0.9, '--token-target', 0.8, '--speed', 2,
                      '--spare', '--loads', '0.5,1,40', '--subsets', 2,
                      '--report', self.path('r.html'), '--capacity',
                      self.path('o.csv'), '--json', self.path('o.json'), *slo)
        self.assertIn(' times the load, and breaks at ', done.stdout)
        self.assertIn('  without a prefill node: ', done.stdout)
        page = read_file(self.path('r.html'))
        for words in ('Buy ', 'an hour', 'a month', 'any one node lost',
                      '&lt;b&gt;t&amp;.jsonl', 'its file names no source'):
            self.assertIn(words, page)
        self.assertNotIn('<b>t', page)
        k0 = json.loads(read_file(self.path('kinds/k0.json')))
        for words in (k0['about'][:60], 'too few requests for a verdict: the '
                      'trace has 80', 'TTFT is the time from', 'price units an '
                      'hour', 'that cost no more than the answer'):
            self.assertLess(0, page.find(words), words)
        self.assertLess(page.index(k0['about'][:60]), page.index('>Buy '))
        self.assertIn('warning: too few requests for a verdict', done.stdout)
        self.assertEqual(len(re.findall('<svg', page)), 2)
        self.assertEqual(re.findall(r'(?:src|href)="(?!#)[^"]*"', page), [])
        found = self.read_json('o.json')
        answer, spare = found['answer'], found['spare']
        self.assertTrue(answer['meets'] and spare['meets'])
        self.assertTrue(all(x['meets'] for x in spare['lost']))
        self.assertEqual(answer['price_per_hour'], 2.5 * answer['nodes'])
        rows = [r for r in self.rows() if r['cluster'] == 'answer' and
                r['nodes_lost'] == '0']
        self.assertEqual([r['load'] for r in rows], ['0.5', '1', '40'])
        self.assertEqual([r['meets'] for r in rows], ['1', '1', '0'])
        for row in rows:
            report = self.simulate(
                odd, '--cluster', self.path('kinds/k0.json'), '--prefill',
                answer['prefill'], '--decode', answer['decode'], '--policy',
                'plan', '--speed', 2 * float(row['load']), *slo)
            self.assertAlmostEqual(float(row['ttft_p99_s']),
                                   report['ttft_s']['p99'], 5)
            self.assertAlmostEqual(float(row['effective_token_ratio']),
                                   report['slo']['effective_token_ratio'], 5)
            self.assertLessEqual(float(row['ttft_p99_s_least']),
                                 float(row['ttft_p99_s']))
        for loss in answer['lost']:
            if loss['result']:
                self.assertEqual(loss['nodes'], answer['nodes'] - 1)
        # As it is, under a load that it does not hold.
        done = replay('size', '--trace', odd, '--nodes', self.path(
            'kinds/k0.json'), '--fixed', '--speed', 400, '--target', 1,
                      '--slo-ttft', 1, '--slo-tbt', 0.1, status=1)
        self.assertIn('the cluster as it is: 16 nodes: 8 prefill and 8 decode',
                      done.stdout)
        self.assertIn('misses the target: ', done.stdout)

    def test_bad_kinds(self):
        def refused(words, *args, status=1):
            with self.subTest(words=words):
                done = replay('size', '--trace', SAMPLE, '--nodes',
                              self.path('kinds'), '--slo-ttft', 30,
                              '--slo-tbt', 1, *args, status=status, says=words)
                self.assertEqual(done.stdout, '')

        self.kinds(3, 4)
        refused('--kinds k2: ' + self.path('kinds') + ' has k0, k1',
                '--kinds', 'k0,k2')
        refused('--kinds k0: comes twice', '--kinds', 'k0,k0')
        refused('--fixed: is for one file, not for 2 kinds', '--fixed')
        refused('--spare: searches, and --fixed does not', '--fixed', '--spare',
                '--kinds', 'k0')
        refused('--token-target 1.5', '--token-target', 1.5, status=2)
        refused('--loads 1,0', '--loads', '1,0', status=2)
        refused('--kinds k0: ' + PAPER + ' is not a folder', '--nodes', PAPER,
                '--kinds', 'k0')
        kinds = self.kinds(3, None)
        refused('kinds/k1.json: price_per_hour: missing: ')
        kinds[1]['price_per_hour'] = 0
        self.write('kinds/k1.json', json.dumps(kinds[1]))
        refused('kinds/k1.json: price_per_hour: 0: must be a number ')
        kinds[1]['price_per_hour'] = 3
        kinds[1]['currency'] = 'euros'
        self.write('kinds/k1.json', json.dumps(kinds[1]))
        refused('kinds/k1.json: currency: "euros": is missing in ')
        kinds[0]['currency'] = kinds[1]['currency']
        self.write('kinds/k0.json', json.dumps(kinds[0]))
        done = replay('size', '--trace', SAMPLE, '--nodes', self.path('kinds'),
                      '--slo-ttft', 30, '--slo-tbt', 1, '--target', 0.1,
                      '--report', self.path('r.html'))
        self.assertIn(' euros an hour, ', done.stdout)
        self.assertIn(' euros an hour, ', read_file(self.path('r.html')))
        self.assertIn('; none that could have been cheaper was', done.stdout)
        kinds[1]['links']['gbps'] = 100
        self.write('kinds/k1.json', json.dumps(kinds[1]))
        refused('kinds/k1.json: links.gbps: 100: is 800 in ')
        kinds[1]['links']['gbps'] = 800
        kinds[1]['decode']['groups'] = [{'nodes': 1, 'max_batch': 3}]
        self.write('kinds/k1.json', json.dumps(kinds[1]))
        refused('kinds/k1.json: decode.groups: ')
        os.mkdir(self.path('none'))
        refused('none: has no file of a kind of node', '--nodes',
                self.path('none'))
        # What no cluster can do is told as such.
        self.kinds(3, 4)
        done = replay('size', '--trace', SAMPLE, '--nodes', self.path('kinds'),
                      '--slo-ttft', 30, '--slo-tbt', 1, '--speed', 1000,
                      '--max-prefill', 1, '--max-decode', 1, '--target', 1,
                      '--json', self.path('j.json'), status=1)
        self.assertIn('will do\n', done.stdout)
        told = ' '.join(done.stdout.split())
        for k, entry in enumerate(self.read_json('j.json')['of_kinds']):
            share = 100 * entry['result']['effective_ratio']
            self.assertEqual(entry['mix'], [[f'k{k}', 1, 1]])
            self.assertIn(
                f'k{k} alone: 2 nodes: prefill on 1 k{k}; decode on 1 k{k} '
                f'(P/D 1.00) serve in time {share:.2f} % of requests, '
                f'{100 - share:.2f} points less than the target; most of the '
                'others: ', told)
        done = replay('size', '--trace', SAMPLE, '--nodes', self.path('kinds'),
                      '--slo-ttft', 0.01, '--slo-tbt', 1, '--token-target',
                      0.9, status=1)
        self.assertIn('no number of nodes will do', done.stdout)
        self.assertRegex(done.stdout, r'they have \d+\.\d+ % of the input '
                         r'tokens; the target allows 10\.00 %')
        # The same is told of each kind as if it were the only one.
        told = ' '.join(done.stdout.split())
        for k in range(2):
            replay('size', '--trace', SAMPLE, '--nodes', self.path('kinds'),
                   '--kinds', f'k{k}', '--slo-ttft', 0.01, '--slo-tbt', 1,
                   '--token-target', 0.9, '--json', self.path('j.json'),
                   status=1)
            alone = self.read_json('j.json')
            shares = [100 * (1 - alone[a] / alone[b]) for a, b in (
                ('hopeless', 'requests'), ('hopeless_tokens', 'tokens'))]
            self.assertIn(
                f'k{k} alone: any number of nodes serves in time at most '
                f'{shares[0]:.2f} % of requests, {95 - shares[0]:.2f} points '
                f'less than the target; at most {shares[1]:.2f} % of input '
                f'tokens, {90 - shares[1]:.2f} points', told)

    @computes_long
    def test_figures(self):
        self.trace(150)
        os.mkdir(self.path('in'))
        os.rename(self.path('t.jsonl'), self.path('in/conversation.jsonl'))
        with open(self.path('in/conversation.jsonl'), 'rb') as f:
            conversation = f.read()
        with open(self.path('in/other.jsonl'), 'wb') as f:
            f.write(conversation)
        for like in ('toolagent', 'synthetic'):
            os.rename(self.trace(100, like=like, rate=6),
                      self.path(f'in/{like}.jsonl'))
        replay('figures', '--traces', self.path('in'), '--out',
               self.path('out'), '--clusters', CLUSTERS, timeout=240)
        results = self.read('out/RESULTS.md')
        for figure in ('01', '05', '08', '09', '10', '11', '13', '15',
                       'goodput'):
            for name in ('conversation', 'toolagent', 'synthetic'):
                stem = f'{name}/figure-{figure}'
                self.assertIn(f'({stem}.svg)', results)
                xml.etree.ElementTree.parse(self.path(f'out/{stem}.svg'))
                with open(self.path(f'out/{stem}.csv'),
                          encoding='utf-8') as f:
                    rows = list(csv.reader(f))
                self.assertGreater(len(rows), 1)
                self.assertEqual({len(r) for r in rows}, {len(rows[0])})
        # Verdicts come from the numbers, and only where the paper has any.
        with open(self.path('out/synthetic/figure-08.csv'),
                  encoding='utf-8') as f:
            seconds = [float(r['prefill_s_per_request'])
                       for r in csv.DictReader(f)]
        change = 100 * (seconds[2] / seconds[0] - 1)
        self.assertIn(
            f'- synthetic: {"agrees" if abs(change + 64) <= 5 else "differs"}'
            f': prefill time with the global cache {change:+.0f} %, -64 % in',
            results)
        # A maximum of the paper: only what is above it differs.
        gains = re.findall(r'- conversation: (\w+): a decode step of \d+ ms '
                           r'more, [a-z ]+: (?:the largest gain over a coupled '
                           r'system is \+(\d+) %|no gain to name), up to \+498',
                           results)
        self.assertEqual([word for word, _ in gains],
                         ['agrees' if gain and int(gain) <= 503 else 'differs'
                          for _, gain in gains])
        self.assertEqual(len(gains), 4)
        self.check_capacity(self.path('out/synthetic/figure-01.csv'),
                            self.path('in/synthetic.jsonl'))
        self.assertNotIn('- other: ', results)
        self.assertIn('The paper has no such figure', results)
        self.assertIn('All requests of each trace', results)
        # Every table row has as many cells as its header.
        for block in results.split('\n\n'):
            lines = block.strip().split('\n')
            if lines[0].startswith('|'):
                self.assertGreater(len(lines), 3)
                self.assertEqual({line.count('|') for line in lines},
                                 {lines[0].count('|')}, lines)
        # However many run at once: the same bytes.
        texts = []
        for jobs in (1, 3):
            replay('figures', '--traces', self.path('in'), '--out',
                   self.path('out'), '--clusters', CLUSTERS, '--jobs',
                   jobs, '--only', '08,10,11')
            texts.append(self.read('out/RESULTS.md'))
        self.assertEqual(*texts)

    def check_capacity(self, path, trace):
        """Of the speeds on both sides of the rate, 90 % of the requests are
        effective at the lower one, and fewer at the higher one."""
        with open(trace, encoding='utf-8') as f:
            at = [json.loads(line)['timestamp'] for line in f]
        rate = len(at) / (at[-1] - at[0]) * 1000
        found = {float(r['tbt_slo_s']): float(r['requests_per_s']) / rate
                 for r in csv.DictReader(read_file(path).splitlines())
                 if r['system'] == 'coupled, both, our router' and
                 r['step_ms'] == '5'}
        self.assertEqual(list(found), [0.1, 0.2, 0.3])
        speeds = [2 ** (i / 8) for i in range(-24, 25)]
        coupled = os.path.join(CLUSTERS, 'paper-16-coupled.json')
        for slo, told in found.items():
            if not 0.125 < told < 8:
                continue
            for speed in (max(s for s in speeds if s <= told + 1e-3),
                          min(s for s in speeds if s > told + 1e-3)):
                self.simulate(trace, '--cluster', coupled, '--policy', 'plan',
                              '--speed', speed, '--requests-csv',
                              self.path('o.csv'))
                good = [float(r['ttft_s']) <= 30 and
                        float(r['tbt_s'] or 0) <= slo for r in self.rows()]
                self.assertEqual(sum(good) / len(good) >= 0.9,
                                 speed <= told + 1e-3)

    def test_bad_figures(self):
        os.mkdir(self.path('in'))
        for args, words, status in [
                ([], '--traces DIR is missing', 2),
                (['--traces', self.path('in')], '--out DIR is missing', 2),
                (['--traces', self.path('in'), '--out', self.path('o'),
                  '--only', '05,12'], '--only 12: is not one of 01 ', 2),
                (['--traces', '/nowhere', '--out', self.path('o')],
                 '--traces /nowhere: No such file', 1),
                (['--traces', self.path('in'), '--out', self.path('o')],
                 'holds no *.jsonl', 1)]:
            replay('figures', *args, status=status, says=words)

    def test_compare_links(self):
        trace = self.trace(100)
        done = replay('compare', '--trace', trace, '--cluster', PAPER,
                      '--link-gbps', '25,400', '--prefill', '2,4', '--decode',
                      2, '--policies', 'global_cache', '--cache-tokens',
                      '1000000', '--admission', 'none', '--csv',
                      self.path('o.csv'), '--plot', self.path('o.svg'))
        self.assertIn('4+2     400', done.stdout)
        self.assertIn('TBT (s)', done.stdout)
        self.assertIn('asked for: no SLO', done.stdout)
        for row in self.rows():
            report = self.simulate(
                trace, '--cluster', PAPER, '--prefill', row['nodes'],
                '--decode', row['decode_nodes'], '--link-gbps',
                row['link_gbps'], '--cache-tokens', '1000000', '--policy',
                'global_cache')
            self.assertEqual(float(row['ttft_mean_s']),
                             report['ttft_s']['mean'])
        self.assertEqual([(r['link_gbps'], r['nodes']) for r in self.rows()],
                         [('25', '2'), ('25', '4'), ('400', '2'), ('400', '4')])

    def test_no_result(self):
        """What was not served is no result, and destroys none."""
        trace = self.trace(20)
        empty, short = self.path('empty.jsonl'), self.path('short.json')
        open(empty, 'w', encoding='utf-8').close()
        paper = json.loads(read_file(PAPER))
        paper['decode']['kv_tokens'] = 10
        with open(short, 'w', encoding='utf-8') as f:
            json.dump(paper, f)
        slo = ['--slo-ttft', 60, '--slo-tbt', 1]
        for args, words in [
                (['--trace', empty, '--cluster', PAPER], 'holds no'),
                (['--trace', trace, '--cluster', PAPER, '--from', 20],
                 'holds no'),
                (['--trace', trace, '--cluster', short],
                 'none of 20 requests can be served')]:
            for command in (['simulate', '--policy', 'random'], ['compare'],
                            ['size', '--max-prefill', 2, *slo]):
                with self.subTest(args=args, command=command):
                    done = replay(*command, *args, status=1, says=words)
                    self.assertEqual(done.stdout, '')
        with open(trace, 'rb') as f:
            before = f.read()
        simulate = ['simulate', '--cluster', PAPER, '--policy', 'random']
        for args, words in [
                (['--trace', trace, '--requests-csv', trace],
                 'is the file of --trace'),
                (['--trace', trace, '--requests-csv', self.path('x'),
                  '--report', os.path.join(self.folder, '.', 'x')],
                 'is the file of --requests-csv'),
                (['--trace', empty, '--requests-csv', short], 'holds no')]:
            replay(*simulate, *args, status=1, says=words)
        with open(trace, 'rb') as f:
            self.assertEqual(f.read(), before)
        self.assertEqual(json.loads(read_file(short)), paper)
        self.assertEqual(sorted(os.listdir(self.folder)),
                         ['empty.jsonl', 'short.json', 't.jsonl'])
        with open('/dev/full', 'w', encoding='utf-8') as full:
            done = subprocess.run([program(*REPLAY), 'compare', '--help'],
                                  stdout=full, check=False)
        self.assertEqual(done.returncode, 1)

    def test_bad_command_lines(self):
        both = ['--trace', SAMPLE, '--cluster', REFERENCE]
        size = ['--trace', SAMPLE, '--cluster-template', PAPER]
        for args, words, status in [
                (['compare'], '--trace FILE is missing', 2),
                (['compare', '--trace', SAMPLE], '--cluster FILE is missing', 2),
                (['compare', *both, '--policies', 'best'],
                 '--policies best: is not one of random ', 2),
                (['compare', *both, '--policies', 'plan random'],
                 '--policies "plan random": names are separated by commas', 2),
                (['compare', *both, '--policies', 'plan,plan'],
                 '--policies plan: comes twice', 2),
                (['compare', *both, '--speeds', '1,x'], '--speeds 1,x', 2),
                (['compare', *both, '--prefill', '1.5'],
                 '--prefill 1.5: must be whole', 2),
                (['compare', *both, '--policy-option', 'wait_price=1',
                  '--policy-option', 'wait_price=2'],
                 '--policy-option wait_price=2: wait_price comes twice', 2),
                (['compare', *both, '--policies',
                  'plan,global_cache,local_cache,least_loaded',
                  '--policy-option', 'xy=1'],
                 ', price_floor; policy local_cache has none; policy '
                 'least_loaded has none', 2),
                (['compare', *both, '--admission', 'x'],
                 '--admission x: must be plain, none', 2),
                (['compare', '--trace', SAMPLE, '--cluster', '/nowhere'],
                 '/nowhere: No such file', 1),
                (['compare', '--trace', '/nowhere', '--cluster', PAPER],
                 '/nowhere: No such file', 1),
                (['size', *size], '--slo-ttft S is missing', 2),
                (['size', *size, '--slo-ttft', '3'],
                 '--slo-tbt S is missing', 2),
                (['size', *size, '--slo-ttft', '3', '--slo-tbt', '1',
                  '--policy', 'x'], '--policy x', 2),
                (['size', *size, '--slo-ttft', '3', '--target', '1.5'],
                 '--target 1.5', 2)]:
            with self.subTest(args=args):
                replay(*args, status=status, says=words)

    def test_help(self):
        for name in ('compare', 'figures', 'size', 'sweep', 'simulate'):
            done = replay(name, '--help')
            examples = done.stdout.split('examples:')[1]
            for option in re.findall(r'--policy-option\s+(\w+)=', examples):
                self.assertIn(f'\n  {option}=', replay(
                    name, '--help', 'policy-options').stdout)
