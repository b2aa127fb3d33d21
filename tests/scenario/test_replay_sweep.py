"""conductor-replay sweep: its cases are what simulate says of them."""
import csv
import io
import json
import os
import unittest

from harness import FolderCase, replay
from test_replay import SAMPLE

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
        self.description['load'] = [1.5, 0.5]
        self.sweep(status=1, says='load: [1.5,0.5]: must be [least, most]')
        replay('sweep', status=2, says='--description')


if __name__ == '__main__':
    unittest.main()
