"""conductor-replay cake: against a walk step by step, and on bad input."""
import csv
import json
import os
import random
import re
import statistics
import unittest
import xml.etree.ElementTree

import reference_cake
from harness import ROOT, FolderCase, read_file, replay

OWN = os.path.join(ROOT, 'tests', 'scenario', 'data', 'cake.csv')
FACTS = os.path.join(os.path.dirname(ROOT), 'shared', 'facts')
PUBLISHED = os.path.join(FACTS, 'cake_table3.csv')
PUBLISHED_COSTS = os.path.join(FACTS, 'cake_calibration.json')
COLUMNS = ['hardware', 'util_pct', 'bandwidth_gbps', 'model', 'seq_len',
           'chunk', 'kv_bits', 'speedup_io', 'speedup_compute']


def need(path):
    if not os.path.exists(path):
        raise unittest.SkipTest(f'{path} is not there')
    return path


def some_calibration(dice):
    sizes = {f'm{i}': dice.randrange(16, 10 ** 6) for i in range(3)}
    costs = []
    for model in sizes:
        alpha = dice.uniform(0.01, 0.3)
        costs.append({'hardware': 'x', 'model': model, 'alpha': alpha,
                      'beta': alpha * dice.choice((0, 0.02, 0.05))})
    return {'io_fixed_s': dice.uniform(0, 0.1),
            'io_piece_s': dice.choice((0, 0.001, 0.02)),
            'io_piece_tokens': dice.choice((16, 100, 128, 512)),
            'final_step_s': dice.uniform(0, 0.1),
            'chunk_tokens': dice.choice((256, 512)),
            'step_tokens': 'chunk_tokens * utilisation',
            'kv_bytes_per_token': sizes, 'chunk_cost_s': costs}


def some_row(dice):
    return {'hardware': 'x', 'model': f'm{dice.randrange(3)}',
            'util_pct': dice.choice((6.25, 12.5, 25, 50, 87.5, 100)),
            'bandwidth_gbps': dice.choice((0.5, 7, 25, 32, 56, 100)),
            'seq_len': dice.choice((1, 100, 4096, 8192, 10001, 16384, 32768)),
            'chunk': dice.choice((256, 512, 1024, 2048)),
            'kv_bits': dice.choice((16, 8, 4)),
            'speedup_io': dice.uniform(1, 9),
            'speedup_compute': dice.uniform(1, 9)}


class Cake(FolderCase):
    def table(self, rows):
        with open(self.path('t.csv'), 'w', encoding='utf-8', newline='') as f:
            out = csv.DictWriter(f, COLUMNS)
            out.writeheader()
            out.writerows(rows)
        return self.path('t.csv')

    def json(self, *args):
        done = replay('cake', *args, '--json')
        return json.loads(done.stdout)

    def test_equals_a_walk(self):
        seed = random.randrange(10 ** 6)
        dice = random.Random(seed)
        for round_ in range(10):
            calibration = some_calibration(dice)
            rows = [some_row(dice) for _ in range(60)]
            got = self.json(
                '--table', self.table(rows), '--calibration',
                self.write('c.json', json.dumps(calibration)))
            for row, line in zip(rows, got['rows'], strict=True):
                cake, load, compute, split = reference_cake.walk(calibration,
                                                                 row)
                with self.subTest(seed=seed, round=round_, row=row):
                    self.assertEqual(line['split_tokens'], split)
                    for key, value in (('cake', cake), ('load', load),
                                       ('compute', compute)):
                        self.assertAlmostEqual(
                            line[f'predicted_{key}_s'], value, delta=3e-6)
                    fastest = min((cake, 'both'), (load, 'load'),
                                  (compute, 'compute'))
                    if abs(fastest[0] - cake) > 1e-5 or fastest[1] == 'both':
                        self.assertEqual(line['fastest'], fastest[1])
            for key, name in (('io', 'speedup_io'),
                              ('compute', 'speedup_compute')):
                errors = [abs(r[f'predicted_{name}'] / r[name] - 1)
                          for r in got['rows']]
                self.assertAlmostEqual(got['median_rel_error'][name],
                                       statistics.median(errors), 6)
                self.assertAlmostEqual(got['largest_rel_error'][name],
                                       max(errors), 6)
                for row, error in zip(got['rows'], errors):
                    self.assertAlmostEqual(row[f'rel_error_{key}'], error, 6)

    def test_published_table(self):
        got = self.json('--table', need(PUBLISHED))
        self.assertEqual(len(got['rows']), 60)
        self.assertLessEqual(got['median_rel_error']['speedup_io'], 0.025)
        self.assertLessEqual(got['median_rel_error']['speedup_compute'], 0.02)

    def test_own_constants_are_the_published_ones(self):
        costs = json.loads(read_file(need(PUBLISHED_COSTS)))['chunk_cost_s']
        rows = [dict(row, hardware=cost['hardware'], model=cost['model'])
                for cost in costs
                for row in (some_row(random.Random(i)) for i in range(20))]
        table = self.table(rows)
        self.assertEqual(
            self.json('--table', table),
            self.json('--table', table, '--calibration', PUBLISHED_COSTS))

    def test_outputs(self):
        args = ('--table', OWN)
        got = self.json(*args)
        done = replay('cake', *args, '--csv', self.path('o.csv'), '--plot',
                      self.path('o.svg'))
        self.assertIn('6 rows.', done.stdout)
        self.assertIn('Relative error over loading: median', done.stdout)
        rows = self.read_csv('o.csv')
        self.assertEqual(len(rows), 6)
        for row, line in zip(rows, got['rows']):
            self.assertEqual(row['hardware'], line['hardware'])
            self.assertAlmostEqual(float(row['predicted_cake_s']),
                                   line['predicted_cake_s'], 6)
        xml.etree.ElementTree.parse(self.path('o.svg'))

    def test_takes_its_own_csv(self):
        done = replay('cake', '--table', OWN, '--csv', self.path('o.csv'))
        again = replay('cake', '--table', self.path('o.csv'))
        self.assertEqual(again.stdout, done.stdout)

    def test_one_row(self):
        dice = random.Random(1)
        costs = self.write('c.json', json.dumps(some_calibration(dice)))
        done = replay('cake', '--table', self.table([some_row(dice)]),
                      '--calibration', costs)
        self.assertIn('\n1 row. Relative error', done.stdout)

    def test_unknown_rows(self):
        rows = [dict(some_row(random.Random(1)), hardware='A100',
                     model='LongAlpaca-13B'),
                dict(some_row(random.Random(1)), hardware='B200',
                     model='LongAlpaca-13B')]
        table = self.table(rows)
        done = replay('cake', '--table', table,
                      status=1, says=f'{table}:3: hardware: ')
        self.assertIn('"B200"', done.stderr)
        got = self.json('--table', table, '--skip-unknown')
        self.assertEqual((len(got['rows']), got['skipped_rows']), (1, 1))
        done = replay('cake', '--table', table, '--skip-unknown')
        self.assertIn('1 row skipped', done.stdout)

    def test_bad_input(self):
        bad = self.write('t.csv', ','.join(COLUMNS) +
                         '\nA100,0,7,LongAlpaca-13B,1,512,16,1,1\n')
        for args, status, words in (
                ((), 2, '--table FILE is missing'),
                (('--table', self.path('no.csv')), 1, 'No such file'),
                (('--table', self.folder), 1, 'not a regular file'),
                (('--table', bad), 1, 't.csv:2: util_pct: "0": must be a number'),
                (('--table', OWN, '--calibration',
                  self.write('c.json', '{"io_fixed_s": -1}')), 1,
                 'c.json: io_fixed_s: -1: must be a number of 0 to 10000'),
                (('--table', OWN, '--calibration', self.path('no.json')), 1,
                 'No such file'),
                (('--table', OWN, '--plot', '/nowhere/o.svg'), 1, '/nowhere')):
            with self.subTest(args=args):
                done = replay('cake', *args, status=status, says=words)
                self.assertEqual(done.stdout, '')


class Experiments(FolderCase):
    def rows(self, *args):
        done = replay(*args, '--csv', self.path('o.csv'), '--plot',
                      self.path('o.svg'))
        self.assertIn('simulated: ', done.stdout)
        xml.etree.ElementTree.parse(self.path('o.svg'))
        with open(self.path('o.csv'), encoding='utf-8') as f:
            return [{k: v if k == 'order' else float(v)
                     for k, v in row.items()} for row in csv.DictReader(f)]

    def test_fluctuation(self):
        rows = self.rows('cake-fluctuation', '--runs', 30, '--seed', 5)
        self.assertEqual([r['seed'] for r in rows], list(range(5, 35)))
        for r in rows:
            with self.subTest(row=r):
                self.assertLess(r['ideal_s'], r['cake_s'])
                self.assertLess(r['cake_s'], r['compute_s'])
                self.assertLess(r['cake_s'], r['load_s'])
        self.assertEqual(
            rows, self.rows('cake-fluctuation', '--runs', 30, '--seed', 5))
        # On average about what the plan makes of the means.
        mean = statistics.mean(r['cake_s'] for r in rows)
        self.assertAlmostEqual(mean / rows[0]['planned_s'], 1, delta=0.1)

    def test_labels_are_clear_of_numbers(self):
        """The name of the y axis stands left of what its ticks say."""
        replay('cake-fluctuation', '--runs', 2, '--plot', self.path('o.svg'))
        svg = self.read('o.svg')
        name, = re.findall(r'rotate\(-90 ([0-9.]+)[^>]*>token of the prompt',
                           svg)
        ticks = re.findall(r'end" x="([0-9.]+)"[^>]*>(1[0-9]000)<', svg)
        self.assertGreater(len(ticks), 1)
        for right, text in ticks:
            left = float(right) - 6 * len(text)
            self.assertLess(float(name) + 3, left)  # 9 px, what hangs below

    def test_adaptive(self):
        rows = self.rows('cake-adaptive', '--runs', 10)
        self.assertEqual([(r['bandwidth_gbps'], r['order']) for r in rows],
                         [(b, o) for b in (7, 25, 32, 56, 100)
                          for o in ('fifo', 'uncached_first')])
        for fifo, uncached_first in zip(rows[::2], rows[1::2]):
            self.assertLess(uncached_first['done_s'], fifo['done_s'])
            self.assertLess(uncached_first['computed_tokens'],
                            fifo['computed_tokens'])
            self.assertLess(uncached_first['short_ttft_mean_s'],
                            fifo['short_ttft_mean_s'])

    def test_bad_options(self):
        for args, status, words in (
                (('cake-fluctuation', '--gbps', 0), 2, '--gbps'),
                (('cake-fluctuation', '--budget', 2000), 1, '--budget 2000'),
                (('cake-fluctuation', '--kv-bits', 17), 2, '--kv-bits 17'),
                (('cake-fluctuation', '--gbps', 0.001), 1, 'more than a day'),
                (('cake-adaptive', '--hardware', 'B200'), 1, '"B200"'),
                (('cake-adaptive', '--model', 'x' * 99), 2, '--model xxx'),
                (('cake-adaptive', '--bandwidths', '7,-1'), 2, '--bandwidths'),
                (('cake-adaptive', '--short-max', 5), 2, '--short-max 5')):
            with self.subTest(args=args):
                done = replay(*args, status=status, says=words)
                self.assertEqual(done.stdout, '')
