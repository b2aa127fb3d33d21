"""conductor-replay cake: against a walk step by step, and on bad input."""
import csv
import json
import os
import random
import re
import statistics
import sys
import unittest
import xml.etree.ElementTree

import reference_cake
from harness import ROOT, FolderCase, read_file, replay

sys.path += [os.path.join(ROOT, 'tools', 'replay', *folder)
             for folder in ((), ('paper', 'cake'))]
import cake
import cake_input

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


HEADER = ','.join(COLUMNS) + '\n'

# A tenth of a second for every chunk, a tenth more for each one behind; a
# piece of 10 tokens takes 0.02 s at 4 kbit/s and 0.03 s beside.
TOY = ('{"source": "by hand", "io_fixed_s": 0.25, "io_piece_s": 0.03,'
       ' "io_piece_tokens": 10, "final_step_s": 0.5, "chunk_tokens": 100,'
       ' "step_tokens": "chunk_tokens * utilisation",'
       ' "kv_bytes_per_token": {"m": 1000, "n": 2000},'
       ' "chunk_cost_s": [{"hardware": "h", "model": "m", "alpha":'
       ' 0.1, "beta": 0.1, "assumed_rising_share": 0.2}]}')


def table_of(text):
    return cake_input.read_table('t.csv', text.encode())


class Input(unittest.TestCase):
    def refused(self, read, *args):
        with self.assertRaises(cake_input.Refused) as caught:
            read(*args)
        return str(caught.exception)

    def test_table(self):
        first, second = table_of(
            '# remark\n\n' + HEADER +
            'A100,87.5,32,LongAlpaca-13B,16384,512,8,1.90,2.1\r\n'
            'H100,100,7,m,1,1,4,1e-1,20')
        self.assertEqual(first, {
            'hardware': 'A100', 'util_pct': 0.875, 'bandwidth_gbps': 32,
            'model': 'LongAlpaca-13B', 'seq_len': 16384, 'chunk': 512,
            'kv_bits': 8, 'speedup_io': 1.9, 'speedup_compute': 2.1,
            'line': 4})
        self.assertEqual((second['kv_bits'], second['line']), (4, 5))

    def test_table_order(self):
        """The columns may stand in any sequence, and others beside them; 3
        bits are published ones."""
        row, = table_of('x,kv_bits,model,hardware,seq_len,chunk,bandwidth_gbps,'
                        'speedup_compute,util_pct,y,speedup_io\n'
                        '?,3,m,h,5,6,7,8,9,"?,10\n')
        self.assertEqual(row, {
            'kv_bits': 3, 'model': 'm', 'hardware': 'h', 'seq_len': 5,
            'chunk': 6, 'bandwidth_gbps': 7, 'speedup_compute': 8,
            'util_pct': 0.09, 'speedup_io': 10, 'line': 2})

    def test_table_errors(self):
        for text, message in (
                ('', 't.csv:1: the file ends before the header'),
                (HEADER, 't.csv:2: the file ends before the first row'),
                ('hardware,model\n',
                 't.csv:1: the header has no column util_pct'),
                ('a,b,c,d,e,f,g,h,i\n',
                 't.csv:1: the header has no column hardware'),
                (','.join('x' * 66) + '\n', 't.csv:1: more than 64 columns'),
                ('model,model,c,d,e,f,g,h,i\n',
                 't.csv:1: column 2: model is there twice'),
                (HEADER + 'A,1,1,m,1,1,16,1\n',
                 't.csv:2: 8 columns: must be 9'),
                (HEADER + 'A,1,1,m,1,1,16,1,1,\n',
                 't.csv:2: 10 columns: must be 9'),
                (HEADER + ',1,1,m,1,1,16,1,1\n',
                 't.csv:2: hardware: "": must be a name'),
                (HEADER + 'A b,1,1,m,1,1,16,1,1\n',
                 't.csv:2: hardware: "A b": must be a name'),
                (HEADER + 'A,0,1,m,1,1,16,1,1\n',
                 't.csv:2: util_pct: "0": must be a number of 0.01 to 100'),
                (HEADER + 'A,101,1,m,1,1,16,1,1\n', 't.csv:2: util_pct: '),
                (HEADER + 'A, 1,1,m,1,1,16,1,1\n', 't.csv:2: util_pct: '),
                (HEADER + 'A,nan,1,m,1,1,16,1,1\n', 't.csv:2: util_pct: '),
                (HEADER + 'A,0x1,1,m,1,1,16,1,1\n', 't.csv:2: util_pct: '),
                (HEADER + 'A,1,-1,m,1,1,16,1,1\n',
                 't.csv:2: bandwidth_gbps: '),
                (HEADER + 'A,1,1e999,m,1,1,16,1,1\n',
                 't.csv:2: bandwidth_gbps: '),
                (HEADER + 'A,1,1,m,1.5,1,16,1,1\n',
                 't.csv:2: seq_len: "1.5": must be an integer of 1 to 1e+07'),
                (HEADER + 'A,1,1,m,0,1,16,1,1\n', 't.csv:2: seq_len: '),
                (HEADER + 'A,1,1,m,99999999999999999999,1,16,1,1\n',
                 't.csv:2: seq_len: '),
                (HEADER + 'A,1,1,m,1,,16,1,1\n', 't.csv:2: chunk: '),
                (HEADER + 'A,1,1,m,1,1,17,1,1\n',
                 't.csv:2: kv_bits: "17": must be an integer of 1 to 16'),
                (HEADER + 'A,1,1,m,1,1,0,1,1\n', 't.csv:2: kv_bits: '),
                (HEADER + 'A,1,1,m,1,1,16,0,1\n', 't.csv:2: speedup_io: '),
                (HEADER + 'A,1,1,m,1,1,16,1,x\n',
                 't.csv:2: speedup_compute: '),
                (HEADER + 'A,1,1,m,1,1,16,1,1\nA\n',
                 't.csv:3: 1 columns: must be 9'),
                (HEADER + 'x' * 600, 't.csv:2: longer than 512 bytes'),
                ('a\0b', 't.csv:1: a NUL byte'),
                (HEADER + 'A100,.1,25,m,10,512,16,1,1\n',
                 't.csv:2: util_pct: ')):
            with self.subTest(text=text):
                self.assertTrue(self.refused(table_of, text).startswith(
                    message))
        self.assertEqual(self.refused(cake_input.read_table, '/nowhere/t.csv'),
                         '/nowhere/t.csv: No such file or directory')

    def test_calibration(self):
        self.assertEqual(cake_input.read_calibration('c', TOY.encode()), {
            'io_fixed_s': 0.25, 'io_piece_s': 0.03, 'io_piece_tokens': 10,
            'final_step_s': 0.5, 'chunk_tokens': 100,
            'kv_bytes_per_token': {'m': 1000, 'n': 2000},
            'chunk_cost_s': {('h', 'm'): (0.1, 0.1)}})

    def test_calibration_errors(self):
        for old, new, message in (
                ('0.25', '-1',
                 'c.json: io_fixed_s: -1: must be a number of 0 to 10000'),
                ('"io_piece_s"', '"io_pieces"',
                 'c.json: io_pieces: no such field'),
                ('10,', '10.5,',
                 'c.json: io_piece_tokens: 10.5: must be an integer'),
                ('"final_step_s": 0.5,', '',
                 'c.json: final_step_s: missing: must be a number'),
                ('* utilisation', '/ 2', 'c.json: step_tokens: "chunk'),
                ('1000', '"x"',
                 'c.json: kv_bytes_per_token.m: "x": must be an integer of 16'),
                ('"m": 1000', '"\\n": 1000',
                 'c.json: kv_bytes_per_token: "?": must be a name of 1 to 63'),
                ('[{', '[{}, {', 'c.json: chunk_cost_s[0].hardware: missing'),
                ('[{', '[7, {',
                 'c.json: chunk_cost_s[0]: 7: must be an object'),
                ('"beta": 0.1', '"beta": 0.2',
                 'c.json: chunk_cost_s[0].alpha: 0.1 is less than beta, 0.2'),
                ('}]}', '}, {"hardware": "h", "model": "m", "alpha": 1, "beta": 0}]}',
                 'c.json: chunk_cost_s[1]: m on h is there twice'),
                ('{"source"', '{,', 'c.json: line 1, column 2: '),
                (TOY, '[]', 'c.json: []: must be an object'),
                ('"m": 1000', '"n": 1', 'c.json: a name is there twice'),
                ('0.25', 'NaN', 'c.json: NaN: must be a number')):
            with self.subTest(new=new):
                self.assertIn(old, TOY)
                self.assertTrue(self.refused(
                    cake_input.read_calibration, 'c.json',
                    TOY.replace(old, new, 1).encode()).startswith(message))

    def test_any_bytes(self):
        """Is refused with a message of one line, or within bounds."""
        seed = random.randrange(10 ** 6)
        dice = random.Random(seed)
        with open(OWN, 'rb') as f:
            table = f.read()
        for name, read, text in (
                ('t.csv', cake_input.read_table, table),
                ('c.json', cake_input.read_calibration, TOY.encode())):
            good = 0
            for _ in range(3000):
                data = bytearray(text)
                for _ in range(dice.randrange(1, 4)):
                    at = dice.randrange(len(data))
                    data[at:at + dice.randrange(3)] = bytes(
                        dice.choice((dice.randrange(256), 44, 10, 34, 57, 0))
                        for _ in range(dice.randrange(3)))
                with self.subTest(seed=seed, data=bytes(data)):
                    try:
                        got = read(name, bytes(data))
                    except cake_input.Refused as why:
                        self.assertRegex(str(why), f'^{name}:[ -~]+$')
                        continue
                    good += 1
                    for row in got if name == 't.csv' else ():
                        self.assertTrue(0 < row['util_pct'] <= 1)
                        self.assertTrue(1 <= row['kv_bits'] <= 16)
                        self.assertTrue(row['seq_len'] >= 1 <= row['chunk'])
                        self.assertTrue(row['speedup_io'] > 0)
                    for alpha, beta in (got['chunk_cost_s'].values()
                                        if name == 'c.json' else ()):
                        self.assertTrue(0 <= beta <= alpha > 0)
            self.assertGreater(good, 0)


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

    def test_unusable_rows(self):
        row = {**some_row(random.Random(1)), 'hardware': 'A100',
               'model': 'LongAlpaca-13B', 'chunk': 100}
        for change, words in (
                ({'util_pct': 0.1}, ':2: util_pct: 0.1 % of a chunk'),
                ({'util_pct': 100, 'chunk': 1000000}, ':2: chunk: 1000000'),
                ({'model': 'x'}, ':2: model: the calibration has no'),
                ({'util_pct': 0.2, 'chunk': 512, 'seq_len': 10 ** 7},
                 ':2: seq_len: 10000000 tokens take too long to compute')):
            with self.subTest(change=change):
                done = replay('cake', '--table', self.table([{**row, **change}]),
                              status=None)
                self.assertEqual(done.returncode, 1)
                self.assertIn(words, done.stderr)

    def test_by_hand(self):
        """Steps of 50 tokens take 0.1, 0.15, 0.2 ... s, ten tokens 0.05 s to
        load; half the bits 0.01 s less."""
        row = {'hardware': 'h', 'model': 'm', 'util_pct': 50,
               'bandwidth_gbps': 4e-3, 'seq_len': 400, 'chunk': 100,
               'kv_bits': 16, 'speedup_io': 1, 'speedup_compute': 1}
        rows = [row, {**row, 'kv_bits': 8}, {**row, 'kv_bits': 4},
                {**row, 'kv_bits': 4, 'seq_len': 101},
                {**row, 'util_pct': 100, 'bandwidth_gbps': 1, 'seq_len': 20},
                {**row, 'util_pct': 100, 'bandwidth_gbps': 1000,
                 'seq_len': 1000},
                {**row, 'util_pct': 10, 'bandwidth_gbps': 1000, 'seq_len': 90}]
        got = self.json('--table', self.table(rows), '--calibration',
                        self.write('c.json', TOY))['rows']
        for name, value in (('predicted_cake_s', 1.5), ('split_tokens', 250),
                            ('predicted_compute_s', 2.2),
                            ('predicted_load_s', 2.25),
                            ('predicted_speedup_io', 1.5),
                            ('predicted_speedup_compute', 2.2 / 1.5)):
            self.assertAlmostEqual(got[0][name], value, 9)
        self.assertEqual([r['split_tokens'] for r in got[1:3]], [250, 200])
        self.assertAlmostEqual(got[3]['predicted_load_s'],
                               11 * 0.035 + 0.25, 9)
        self.assertEqual([r['fastest'] for r in got[4:]],
                         ['compute', 'both', 'load'])

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


def fluctuation(seed, n=4000, budget=100, gbps=8e-3, period_s=0.03,
                extra_s=0.03, split=0):
    """A token takes a millisecond in steps of 100, the last step half a
    second, a piece of ten tokens 10 kB and 0.03 s beside."""
    return cake.Fluctuation((n, 100, 10, 10000, extra_s, 0.05, 0.25, 0.5, 1000,
                             0, 0), budget, gbps, period_s, seed, split)


class Fluctuation(unittest.TestCase):
    def test_any(self):
        """What holds whatever is drawn."""
        seeds = range(300)
        for seed in seeds:
            r = fluctuation(seed, split=2000)
            with self.subTest(seed=seed):
                self.assertEqual(vars(r), vars(fluctuation(seed, split=2000)))
                self.assertTrue(r.in_a_day)
                self.assertLess(r.ideal_s, r.cake_s)
                self.assertLess(r.cake_s, r.ideal_s + 0.1 + 0.5 + 0.06 + 0.5)
                self.assertLess(r.ideal_s, min(r.split_s, r.compute_s,
                                               r.load_s))
                self.assertGreater(len(r.course), 2)
                for i, (before, at) in enumerate(zip(r.course, r.course[1:])):
                    self.assertGreater(at[0], before[0])
                    self.assertGreaterEqual(at[1], before[1])
                    self.assertLessEqual(at[2], before[2])
                    self.assertEqual(at[1] >= at[2], i + 2 == len(r.course))
                self.assertAlmostEqual(r.course[-1][0] + 0.5, r.cake_s, 9)
        # Half the budget on average, and half a step more at the end.
        self.assertAlmostEqual(statistics.mean(
            fluctuation(s).compute_s for s in seeds), 8.05, delta=0.2)

    def test_loader(self):
        """It goes on from step to step just as it does alone."""
        for seed in range(20):
            r = fluctuation(seed, budget=1)
            met_s = r.cake_s - 0.5
            self.assertTrue(0 < r.met_tokens < 300)
            alone_s = fluctuation(seed, 4000 - r.met_tokens,
                                  budget=1).load_s - 0.25
            self.assertTrue(met_s - 0.1 - 1e-9 < alone_s <= met_s + 1e-9)

    def test_ends(self):
        """Only one of the two gets anything to speak of."""
        r = fluctuation(7, gbps=1e-7, period_s=1, split=4000)
        self.assertFalse(r.in_a_day)
        self.assertEqual(r.met_tokens, 4000)
        self.assertAlmostEqual(r.cake_s, r.compute_s + 0.5, 9)
        self.assertAlmostEqual(r.split_s, r.cake_s, 9)
        r = fluctuation(7, gbps=1e6, period_s=1, extra_s=1e-9)
        self.assertTrue(r.in_a_day)
        self.assertLessEqual(r.met_tokens, 100)
        self.assertAlmostEqual(r.load_s, 0.25, 3)
        self.assertAlmostEqual(r.cake_s, 0.1 + 0.5, 9)


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
