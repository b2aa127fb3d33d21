"""Every bench of tests/bench, once and shortly: it ends well, and prints rows of
figures of the form that its readers expect. The figures themselves say nothing
here. tests/gpu's are run by test_gpu_check."""
import os
import re
import shutil
import subprocess
import tempfile
import unittest

from harness import ROOT, cost_model_json, sanitized, settings

FOLDER = os.path.join(ROOT, 'tests', 'bench')
REFERENCE = os.path.join(ROOT, 'traces', 'clusters', 'reference-16.json')
SAMPLE = os.path.join(ROOT, 'traces', 'sample.jsonl')
TRACES = ['--conversation', SAMPLE, '--steady', SAMPLE, '--seeds', '1']

# The words of each, without the build folder; a line of what it prints, as a
# pattern; the programs that it needs beside the project's.
PROGRAMS = {
    'bench_access': ([], r'a request of \d+ blocks [\d.]+ us'),
    'bench_core': (['decide', 'long'], r'p50 +[\d.]+ us'),
    'bench_disk': (['.', '64'], r'\d', 'fio'),
    'bench_engine': ([], r'^prefill 128 +\d+ +\d+'),
    'bench_events': (['20000'], r'^ +decode +[\d.]+ ns a block'),
    'bench_index': (['100000'], r'stored [\d.]+ M/s'),
    'bench_index_faults': ([], r'^ +full index: floods +[\d.]+ '),
    'bench_json': ([], r'^75,000 ids, compact +\d+ +[\d.]+'),
    'bench_loader': (['1'], r'[\d.]+ us a piece'),
    'bench_shared': (['1', '1', '16'], r'^ +prefill +\d+'),
    'bench_sim': ([REFERENCE, '-', '200', '16'], r'\d+ requests/s'),
    'bench_transfer': (['160', '1', '1'], r'median +[\d.]+ .*GB/s'),
    'bench_turns': ([], r'up to \d+: [\d.]+'),
}
SCRIPTS = {
    'attacks': (['--seconds', '0.3', '--filter', '300', '--kv-mib', '16'],
                r'^300 stalled readers +[\d.]+'),
    'builds': (['--cost-model', 'COSTS', '--lengths', '32', '--each', '1',
                'a=BUILD'], r'^ +32 +a +[\d.]+'),
    'conductors': (['--requests', '40', 'cost'],
                   r'with Redis: 40 of 40 requests', 'redis-server',
                   'haproxy'),
    'conductors_simulated': (
        ['--nodes', '4', '--requests', '200', '--seeds', '1', '--conductors',
         '2', '--delays', '1', '--loads', '0.8'], r'^\| 2 \| [\d.]+ '),
    'forward': (['BUILD', '--short'], r'^ +\d+ text +whole +-?\d+'),
    'front_door': (['--short', 'BUILD'], r'^request of 1 KB +nginx +[\d.]+',
                   'nginx'),
    'late_events': (['30', 'BUILD'],
                    r'^directly +30 streams, [\d.]+ %', 'nginx'),
    'load_ratio': (['--tokens', '512', '--block-tokens', '32', '--repeats',
                    '1', '--ratios', '1'], r'^\| 1:1 \| \d+'),
    'metrics': (['--engines', '20', '--scrapes', '2'],
                r'^\d+ bytes, \d+ lines, [\d.]+ ms each'),
    'mixed_pools': (['--cases', '1', '--jobs', '1', '--trace', SAMPLE],
                    r'^\| 0 \| .*\| [\d.]+ '),
    'pipeline': (['--engine', 'timed', '--workers', '2', '--tokens', '256',
                  '--pairs', '1', '--prompt-s', '0.1'],
                 r'^ratio +median of pairs [\d.]+'),
    'replication/measure': (['simulate', '--begin', '5', '--crowd', '5'],
                            r'^ +1 +0 \| +[\d.]+'),
    'replication/steady': (['--seeds', '1-2', '--requests', '50', '--only',
                            'toolagent'], r'replicate=0.5: mean +\+'),
    'roles/measure': (['--seeds', '1', '--fixed', '6', 'steady'],
                      r'^mean \| +[\d.]+ %'),
    'rules': (['BUILD', *TRACES, '--rules', 'order', '--requests', '50'],
              r'^\| nothing \| [\d.]+'),
    'schedule': (['BUILD', '--instances', '2', '--decisions', '300', '--rates',
                  '0', '--connections', '2', '--state'],
                 r'^\d+ decisions a second of CPU', 'redis-server'),
    'scheduling': (['BUILD', *TRACES, '--tables', 'raw'],
                   r'^\| conversation, 3x \| [\d.]+'),
    'shared_tier': (['BUILD', '--short'], r'^1048576 \| \d+ \| \d+',
                    'redis-server'),
    'transfer': (['160', '1'], r'GB/s', 'iperf3'),
}
# What these need is made elsewhere, or takes longer than a test may.
ELSEWHERE = {
    'cores': 'it needs a cost model of this machine (tools/up)',
    'live': 'it measures a cost model of this machine (tools/up)',
    'lines': 'it counts a revision that a clone need not have',
    'indexer': "it needs Dynamo's indexer (tests/engines/install)",
    'side_by_side': 'it needs other routers (side_by_side/install)',
    'bench_front_door': 'front_door runs it',
    'bench_schedule': 'schedule runs it',
    'bench_shared_tier': 'shared_tier runs it',
}


class Benches(unittest.TestCase):
    def once(self, program, words, form, needs):
        missing = [n for n in (program, *needs) if not shutil.which(n)]
        if missing:
            self.skipTest(f'no {", ".join(map(os.path.basename, missing))}')
        with tempfile.TemporaryDirectory() as folder:
            costs = os.path.join(folder, 'costs.json')
            with open(costs, 'w', encoding='ascii') as f:
                f.write(cost_model_json(prefill=(500, 10, 0, 0),
                                        decode=(500, 0, 0)))
            words = [{'COSTS': costs, 'BUILD': settings.build}.get(
                w, w.replace('=BUILD', '=' + settings.build)) for w in words]
            done = subprocess.run(
                [program, *words], cwd=ROOT, capture_output=True, text=True,
                timeout=120 * settings.scale, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertTrue(re.search(form, done.stdout, re.M), done.stdout)

    def each(self, benches, path, takes_build):
        for name, (words, form, *needs) in benches.items():
            build = ['--build', settings.build]
            with self.subTest(name):
                self.once(path(name),
                          [*(build if takes_build(words) else []), *words],
                          form, needs)

    def setUp(self):
        if sanitized():
            self.skipTest('a bench measures builds without sanitizers')

    def test_programs(self):
        self.each(PROGRAMS, lambda name: os.path.join(
            settings.build, 'tests', 'bench', name), lambda words: False)

    def test_scripts(self):
        self.each(SCRIPTS, lambda name: os.path.join(FOLDER, name),
                  lambda words: not {'BUILD', 'a=BUILD'} & set(words))

    def test_none_is_forgotten(self):
        found = {n.removesuffix('.c') for n in os.listdir(FOLDER)
                 if n.startswith('bench_')}
        for name in os.listdir(FOLDER):
            path = os.path.join(FOLDER, name)
            if os.path.isfile(path) and os.access(path, os.X_OK):
                found.add(name)
            elif os.path.isdir(path) and not name.startswith('_'):
                found.add(name)
        known = {n.split('/')[0] for n in (*PROGRAMS, *SCRIPTS, *ELSEWHERE)}
        self.assertEqual(found, known)


if __name__ == '__main__':
    unittest.main()
