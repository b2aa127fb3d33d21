"""conductor-replay sweep: its cases are what simulate says of them."""
import csv
import io
import json
import math
import os
import sys
import unittest

from harness import REPLAY, ROOT, FolderCase, program, read_file, replay
from test_replay import SAMPLE

sys.path += [os.path.join(ROOT, 'tools', 'replay', *folder)
             for folder in ((), ('study', 'sweep'))]
import cases
import script
import sweep

HARDWARE = {
    'name': 'small', 'layers': 32, 'kv_bytes_per_token': 131072,
    'prefill_us': [5000, 60, 0.001, 0.002], 'decode_us': [8000, 100, 0.05],
    'kv_tokens': 400000, 'max_batch': 64, 'step_tokens': 2048,
    'device': {'tokens': 200000},
    'disk': {'tokens': 2000000, 'gbytes_per_s': 3}}


class Sweep(FolderCase):
    def setUp(self):
        super().setUp()
        self.description = {
            'format': 'conductor-sweep', 'version': 1, 'name': 'small',
            'requests': [100, 200], 'nodes': [2, 6], 'balance': [0.7, 1.5],
            'aggregated': 0.4, 'disks': 0.5, 'unequal': 0.5,
            'slow_nodes': [0.3, 0.6], 'slow_speed': [0.4, 0.6],
            'link_gbps': [10, 400], 'load': [0.5, 1.5], 'errors': 0.7,
            'prefill_error_sigma': [0.1, 0.3],
            'decode_error_sigma': [0.1, 0.2], 'slo_ttft_s': [2, 5],
            'slo_tbt_s': [0.1, 0.4], 'hardware': [HARDWARE],
            'traces': [{'name': 'c', 'like': 'conversation'},
                       {'name': 't', 'like': 'toolagent'}]}

    def write(self, name, value):
        return super().write(name, json.dumps(value))

    def sweep(self, *args, **how):
        return replay('sweep', '--description',
                      self.write('d.json', self.description), *args, **how)

    def rows(self, *args):
        done = self.sweep('--csv', '-', *args)
        return list(csv.DictReader(io.StringIO(done.stdout)))

    def cluster(self, row):
        """The case's cluster file, written by hand."""
        file = {
            'format': 'conductor-cluster', 'version': 1, 'name': 'case',
            'model': {'layers': 32, 'kv_bytes_per_token': 131072,
                      'block_tokens': 512},
            'cost': {'kind': 'polynomial',
                     'prefill_us': HARDWARE['prefill_us'],
                     'decode_us': HARDWARE['decode_us']},
            'links': {'gbps': float(row['link_gbps'])},
            'prefill_error_sigma': float(row['prefill_error_sigma']),
            'decode_error_sigma': float(row['decode_error_sigma'])}
        prefill, decode, coupled = (int(row[k]) for k in (
            'prefill_nodes', 'decode_nodes', 'coupled_nodes'))
        if coupled:
            file['coupled'] = {'nodes': coupled, 'kv_tokens': 400000,
                               'max_batch': 64, 'step_tokens': 2048,
                               'mix_requests': True}
        else:
            file['prefill'] = {'nodes': prefill, 'step_tokens': 2048,
                               'device': HARDWARE['device']}
            if row['disks'] == '1':
                file['prefill']['disk'] = HARDWARE['disk']
            file['decode'] = {'nodes': decode, 'kv_tokens': 400000,
                              'max_batch': 64}
        return self.write('c.json', file)

    def test_is_what_simulate_says(self):
        # Numbers that the CSV has with all their digits.
        self.description.update({
            'unequal': 0, 'link_gbps': [100, 100], 'slo_ttft_s': [3, 3],
            'slo_tbt_s': [0.25, 0.25], 'prefill_error_sigma': [0.25, 0.25],
            'decode_error_sigma': [0.125, 0.125]})
        self.description['traces'].append({'name': 'd', 'like': 'day'})
        rows = self.rows('--cases', 12, '--policies', 'plan,local_cache')
        self.assertEqual({r['trace'] for r in rows}, {'c', 't', 'd'})
        for row in rows:
            trace = self.path('t.jsonl')
            replay('generate', '--like', {
                'c': 'conversation', 't': 'toolagent', 'd': 'day'}[
             row['trace']],
                *(['--rate', row['rate']] if row['trace'] == 'd' else []),
                '--requests', row['requests'], '--seed', row['seed'],
                '--out', trace)
            for slo in ([], ['--slo-ttft', 3, '--slo-tbt', 0.25]):
                replay('simulate', '--trace', trace, '--cluster',
                       self.cluster(row), '--policy', row['policy'],
                       '--seed', row['seed'], '--speed', row['speed'],
                       '--report', self.path('r.json'), *slo)
                report = self.read_json('r.json')
                if slo:
                    for name in ('effective_ratio', 'effective_token_ratio',
                                 'promised', 'late'):
                        self.assertEqual(float(row[name]),
                                         report['slo'][name])
                    self.assertEqual(float(row['latest_s']),
                                     report['slo']['late_s']['max'] or 0)
                else:
                    self.assertIsNone(report['slo']['promised'])
                    for name in ('mean', 'p99'):
                        # The last of six places may be rounded either way.
                        self.assertAlmostEqual(float(row[f'ttft_{name}_s']),
                                               report['ttft_s'][name],
                                               delta=2e-6)

    def test_again(self):
        args = ['--cases', 8, '--seeds', 3, '--causes', '--threshold', 0,
                '--seed', 5]
        one = self.sweep(*args, '--jobs', 1, '--json', self.path('1.json'),
                         '--csv', self.path('1.csv'))
        many = self.sweep(*args, '--jobs', 4, '--json', self.path('2.json'),
                          '--csv', self.path('2.csv'))
        self.assertEqual(many.stdout, one.stdout)
        for name in ('json', 'csv'):
            with open(self.path(f'1.{name}'), 'rb') as f:
                first = f.read()
            with open(self.path(f'2.{name}'), 'rb') as f:
                self.assertEqual(f.read(), first)
        rows = self.read_csv('1.csv')
        self.assertEqual(
            self.rows('--case', 6, '--seed', 5, '--threshold', 0),
            [r for r in rows if r['case'] == '6'])
        self.assertNotEqual(self.rows('--cases', 8, '--seed', 6,
                                      '--threshold', 0), rows)

    def test_losses_are_listed(self):
        """A policy that knows nothing loses, the worst first, on all seeds."""
        done = self.sweep('--cases', 8, '--policies', 'random,local_cache',
                          '--json', self.path('r.json'))
        cases = self.read_json('r.json')['cases']
        metrics = 'ttft', 'p99', 'effective', 'tokens'
        losses = sorted((c[m]['loss'] for c in cases for m in metrics
                         if c[m]['loses']), reverse=True)
        listed = [line for line in done.stdout.splitlines()
                  if line.split()[1:2] and line.split()[1] in metrics]
        self.assertGreater(len(losses), 0)
        self.assertEqual([line.split()[0] for line in listed
                          if '%' in line.split()[0]],
                         [f'{100 * x:.1f}%' for x in losses])
        for case in cases:
            for metric in metrics:
                if case[metric]['loses']:
                    self.assertEqual(case['seeds'], 3)
        alone = [line for line in done.stdout.splitlines()
                 if line.startswith('  conductor-replay sweep ')]
        self.assertEqual(len(alone), len(set(alone)))
        done = replay(*alone[0].split()[1:])
        self.assertIn(f'\ncase {alone[0].split()[-1]}: ', done.stdout)
        self.assertRegex(done.stdout, r'\nrandom +[0-9.]+s +[0-9.]+s ')
        ttft = cases[0]['ttft']
        self.assertAlmostEqual(
            ttft['values']['random'] / ttft['values']['local_cache'] - 1,
            ttft['loss'], places=4)

    def test_files(self):
        self.description['traces'] = [{'name': 's', 'file': SAMPLE}]
        self.description['requests'] = [2000, 2000]
        rows = self.rows('--cases', 2, '--policies', 'random,plan',
                         '--trace', SAMPLE)
        self.assertLessEqual({r['trace'] for r in rows}, {
            's', os.path.basename(SAMPLE)})

    def test_bad_input(self):
        for args, message in (
                (['--policies', 'plan'], '--policies plan: must be 2 to 16'),
                (['--policies', 'plan,best'], '--policies best: is not one of'),
                (['--seeds', 0], '--seeds 0: must be'),
                (['--threshold', 'x'], '--threshold x: must be')):
            self.sweep(*args, status=2, says=message)
        done = self.sweep('--trace', self.path('none.jsonl'), '--cases', 20,
                          status=1)
        self.assertRegex(done.stderr,
                         r'case \d+: .*none.jsonl: No such file')
        done = self.sweep('--policies', 'plan,random', *[
            word for k in range(15) for word in ('--trace', f'{k}.jsonl')],
            status=1)
        self.assertIn('too long, or more than 16', done.stderr)
        self.description['load'] = [1.5, 0.5]
        self.sweep(status=1, says='load: [1.5,0.5]: must be [least, most]')
        replay('sweep', status=2, says='--description')

    # Drawn cases.

    def test_descriptions(self):
        """Each field is checked, by its name."""
        small = HARDWARE | {'name': ''}
        for change, message in (
                ({'format': 'x'}, 'format: "x": must be "conductor-sweep"'),
                ({'version': 2}, 'version: 2: must be 1'),
                ({'requests': [9, 3]},
                 'requests: [9,3]: must be [least, most] from 1 to 1e+06'),
                ({'requests': 3},
                 'requests: 3: must be an array of 2 numbers'),
                ({'requests': [1, True]}, 'requests[1]: true: must be a '
                 'number'),
                ({'nodes': [1, 4]},
                 'nodes: [1,4]: must be [least, most] from 2 to 512'),
                ({'aggregated': 1.5},
                 'aggregated: 1.5: must be a number of 0 to 1'),
                ({'asks': 0.5}, 'max_tokens: missing: must be an array of 2 '
                 'numbers'),
                ({'hardware': []},
                 'hardware: []: must be an array of 1 to 8 objects'),
                ({'hardware': [small]}, 'hardware[0].name: "": must be a text '
                 'of 1 to 63 printable bytes'),
                ({'hardware': [HARDWARE | {'decode_us': [0, 0, 1]}]},
                 'hardware[0].decode_us: no cost'),
                ({'hardware': [HARDWARE | {'device': {'tokens': 0}}]},
                 'hardware[0].device.tokens: 0: must be an integer of 1 to '),
                ({'traces': [4]}, 'traces[0]: 4: must be an object'),
                ({'traces': [{'name': 'n', 'like': 'chat'}]},
                 'traces[0].like: "chat": must be a workload of `generate`'),
                ({'traces': [{'name': 'n', 'like': 'day', 'file': 'x'}]},
                 'traces[0].like: does not go with "file"'),
                ({'traces': [{'name': 'n', 'like': 'day', 'length_scale': 3}]},
                 'traces[0].length_scale: 3: must be a divisor of 512'),
                ({'more': 1}, 'more: no such field')):
            with self.subTest(change):
                with self.assertRaises(script.Refused) as refused:
                    self.described(self.description | change)
                self.assertTrue(str(refused.exception).startswith(
                    f'd/F: {message}'), refused.exception)
        d = self.described(self.description | {'traces': [
            {'name': 'f', 'file': 't.jsonl', 'length_scale': 8}]})
        self.assertEqual((d.traces[0].file, d.traces[0].scale),
                         ('d/t.jsonl', 8))

    def described(self, description):
        return cases.Description(
            script.Fields('d/F', description),
            {'conversation': False, 'toolagent': False, 'day': True},
            ['device', 'host', 'disk'])

    OPTIONAL = {
        'asks': 0.5, 'max_tokens': [512, 4096], 'mixed': 0.5,
        'mixed_nodes': [0.2, 0.6], 'mixed_cost': [0.5, 2],
        'mixed_memory': [0.4, 1], 'small_caches': 0.5, 'cache': [0.02, 1]}

    def test_draw(self):
        """A case depends on its number and the seed alone, and a changed share
        changes nothing but what it is the share of."""
        d = self.described(self.description | self.OPTIONAL | {'nodes': [2, 64]})
        none = self.described(self.description | {'nodes': [2, 64]} | dict.fromkeys(
            cases.SHARES, 0))
        counts = dict.fromkeys(sweep.CAUSES, 0)
        low = 0
        for k in range(1000):
            a, c = d.draw(7, k), none.draw(7, k)
            self.assertEqual(a, d.draw(7, k))
            self.assertNotEqual(a.seed, d.draw(8, k).seed)
            for name in ('seed', 'load', 'link_gbps', 'nodes', 'requests',
                         'slow_speed', 'slo_tbt_s'):
                self.assertEqual(getattr(a, name), getattr(c, name))
            for cause, has in sweep.HAS.items():
                counts[cause] += has(a)
                self.assertFalse(has(c) and cause not in ('slow links',
                                                          'load'))
                self.assertFalse(has(cases.SimpleNamespace(
                    **vars(a) | sweep.WITHOUT[cause])))
            self.assertTrue(100 <= a.requests <= 200 and 2 <= a.nodes <= 64)
            self.assertTrue(10 <= a.link_gbps <= 400 and 0.5 <= a.load <= 1.5)
            self.assertTrue(a.max_tokens == 0 or 512 <= a.max_tokens <= 4096)
            self.assertTrue(a.slow_nodes == 0 or 0.3 <= a.slow_nodes <= 0.6)
            self.assertFalse(a.aggregated and a.disks)
            low += a.link_gbps < math.sqrt(10 * 400)
        self.assertTrue(400 < low < 600)  # the middle of the logarithms
        for cause in ('slow nodes', 'two kinds', 'max_tokens', 'small caches'):
            self.assertTrue(400 < counts[cause] < 600, (cause, counts))

    def test_make(self):
        """A drawn case becomes a cluster at the drawn load."""
        self.description |= self.OPTIONAL
        self.description['traces'].append({'name': 'd', 'like': 'day'})
        runner = script.Runner(
            program(*REPLAY), 'sweep-run', {}, (), '--policies', 'plan', '--quiet', '--file',
            self.write('d.json', self.description))
        self.addCleanup(runner.end)
        given = runner.read()
        d = cases.Description(script.Fields('F', given['file']),
                              given['workloads'], given['tiers'])
        for k in range(40):
            draw = d.draw(3, k)
            sessions = draw.trace.like == 'day'
            case = cases.Case(draw, sessions, runner.ask)
            work, c = case.work(), case.cluster()
            self.assertAlmostEqual(
                work['least_s'] * case.speed / work['span_s'], case.load)
            self.assertAlmostEqual(case.load / draw.load, 1,
                                   delta=0.04 if sessions else 1e-9)
            self.assertEqual((case.rate > 0, case.speed == 1.0 or not sessions),
                             (sessions, True))
            first = c['coupled' if draw.aggregated else 'prefill']
            self.assertEqual(first['nodes'] + (
                0 if draw.aggregated else c['decode']['nodes']), draw.nodes)
            self.assertEqual('disk' in first,
                             draw.disks and draw.cache == 0)
            if draw.slow_nodes:
                self.assertEqual(c['node_speed'][0], draw.slow_speed)
            if draw.mixed_nodes:
                *_, last = first['groups']
                self.assertEqual(sum(g['nodes'] for g in first['groups']),
                                 first['nodes'])
                self.assertAlmostEqual(last['prefill_us'][1],
                                       60 * draw.mixed_cost)
            if draw.cache:
                tokens = (first['kv_tokens'] if draw.aggregated else
                          first['device']['tokens'])
                self.assertGreaterEqual(tokens, 2 * work['longest_tokens'])
                self.assertGreaterEqual(tokens * first['nodes'], draw.cache *
                                        work['touched_tokens'] * 0.8)

    def test_losses(self):
        values = [dict(zip(sweep.METRICS, v)) for v in (
            (1.1, 8.8, 0.6, 0.5), (1.0, 9.0, 0.8, 0.8),
            (math.nan, 8.0, 0.9, 0.2), (2.0, 16.0, 0.1, 0.1))]
        for metric, other, by in (('ttft', 1, 0.1), ('p99', 2, 0.1),
                                  ('effective', 2, 0.3), ('tokens', 1, 0.3)):
            loss, index = sweep.worst(metric, values)
            self.assertEqual(index, other)
            self.assertAlmostEqual(loss, by)
        self.assertEqual(sweep.worse_by('effective', 0.0, 0.0), 0.0)

    def test_default(self):
        """The repository's description is drawn as it always was."""
        path = os.path.join(ROOT, 'traces', 'sweeps', 'default.json')
        file = json.loads(read_file(path))
        d = cases.Description(script.Fields(path, file), {
            t['like']: False for t in file['traces']},
            ['device', 'host', 'disk'])
        for k, drawn in enumerate((
                (1033440104902264, 'singles', 7933, 16, 113.332138, 0.027063),
                (3918379240964979, 'mixed', 6820, 54, 93.218875, 0.286902),
                (748579724444413, 'nightly', 6921, 3, 366.670091, 0.940481),
                (1655813546282214, 'nightly', 7588, 25, 17.339144, 0.133116))):
            x = d.draw(9, k)
            self.assertEqual((x.seed, x.trace.name, x.requests, x.nodes, round(
                x.link_gbps, 6), round(x.cache, 6)), drawn)


if __name__ == '__main__':
    unittest.main()
