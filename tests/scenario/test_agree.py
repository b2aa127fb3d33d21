"""conductor-replay agree: a live report against the simulation of the same."""
import json
import os
import subprocess

from harness import ROOT, FolderCase, replay, settings
from test_replay import SAMPLE

DECISIONS = os.path.join(ROOT, 'tools', 'lib', 'decisions.py')
AGREE_3 = os.path.join(ROOT, 'traces', 'clusters', 'agree-3.json')


class Agree(FolderCase):
    def live_report(self, **changes):
        """As `live` would have written it, with the simulator's numbers."""
        replay('simulate', '--trace', SAMPLE, '--cluster', AGREE_3,
               '--policy', 'local_cache', '--length-scale', 16,
               '--from', 10, '--requests', 50, '--speed', 2,
               '--report', self.path('live.json'))
        report = self.read_json('live.json')
        report['trace'] = {'file': SAMPLE, 'from': 10, 'requests': 50,
                           'length_scale': 16, 'block_tokens': 32, 'speed': 2}
        report['ttft_s'].update(changes.pop('ttft_s', {}))
        report.update(changes)
        self.write('live.json', json.dumps(report))
        return report

    def agree(self, *args, **how):
        return replay('agree', '--live', self.path('live.json'), '--cluster',
                      AGREE_3, '--json', self.path('a.json'), *args, **how)

    def test_same(self):
        report = self.live_report()
        self.agree()
        result = self.read_json('a.json')
        for name in ('mean', 'p50', 'p90', 'p99'):
            pair = result[f'ttft_{name}_s']
            self.assertEqual(pair['live'], report['ttft_s'][name])
            self.assertAlmostEqual(pair['percent'], 0, places=3)
        self.assertAlmostEqual(result['prefix_hit_ratio']['points'], 0,
                               places=3)

    def test_limits(self):
        p50 = self.live_report()['ttft_s']['p50']
        self.live_report(ttft_s={'p50': p50 * 1.1})
        done = self.agree(status=1)
        self.assertRegex(done.stdout, r'p50 .* -9.09 % +DIFFERS')
        self.agree('--max-ttft', 10)
        hits = self.live_report()['prefix_hit_ratio']
        self.live_report(prefix_hit_ratio=hits + 0.006)
        done = self.agree(status=1)
        self.assertRegex(done.stdout, r'hit ratio .* -0.60 points +DIFFERS')

    def test_bad_reports(self):
        report = self.live_report()
        report['requests'] = {'total': 50, 'completed': 48}
        self.write('live.json', json.dumps(report))
        self.agree(status=1, says='2 requests were not completed live')
        for spoil, words in (
                (lambda r: r.pop('trace'), 'live.json: trace: missing'),
                (lambda r: r['trace'].update(speed=0), 'trace.speed'),
                (lambda r: r['trace'].update(length_scale=0),
                 'trace.length_scale'),
                (lambda r: r['ttft_s'].update(p90='x'), 'ttft_s.p90'),
                (lambda r: r.update(policy=None), 'policy: null'),
                (lambda r: r.update(policy='best'), 'best')):
            report = self.live_report()
            spoil(report)
            self.write('live.json', json.dumps(report))
            self.agree(status=1, says=words)
        self.write('live.json', '{')
        self.agree(status=1, says='live.json: line 1')

    def test_decisions(self):
        columns = ('index', 'intended_s', 'prefill', 'reused_tokens',
                   'prompt_tokens', 'queue_s')
        live = [[i, f'{i / 8:.6f}', f'prefill-{i % 2}', 32, 100, '0.001000']
                for i in range(8)]
        simulated = [list(row) for row in live]
        simulated[3][2], simulated[5][2] = 'prefill-0', 'prefill-0'
        simulated[4][3] = 64  # another hit at the same place is no decision
        for name, rows in (('live.csv', live), ('sim.csv', simulated)):
            with open(self.path(name), 'w', encoding='utf-8') as f:
                for row in [columns] + rows:
                    f.write(','.join(map(str, row)) + '\n')
        for other, words in (('live.csv', '8 of 8 the same'),
                             ('sim.csv', '6 of 8 the same')):
            done = subprocess.run(
                ['python3', DECISIONS, self.path('live.csv'),
                 self.path(other)], capture_output=True, text=True,
                timeout=30, check=False)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn(words, done.stdout)
            self.assertEqual('request 3, at 0.3750 s' in done.stdout,
                             other == 'sim.csv')

    def test_bad_command_lines(self):
        for args, words in (([], '--live FILE is missing'),
                            (['--live', 'x'], '--cluster FILE is missing')):
            replay('agree', *args, status=2, says=words)
        done = replay('agree', '--help')
        self.assertIn('examples:', done.stdout)

    def test_with_real_programs(self):
        """What is reused agrees; how well times do is measured elsewhere, on a
        machine that does nothing else."""
        done = subprocess.run(
            [os.path.join(ROOT, 'tools', 'agree'), '--build', settings.build,
             '--requests', '25', '--speed', '2', '--json',
             self.path('a.json')], capture_output=True, text=True,
            timeout=120 * settings.scale)
        self.assertIn('completed live', done.stdout, done.stderr)
        result = self.read_json('a.json')
        self.assertGreater(result['ttft_p50_s']['live'], 0)
        self.assertIsInstance(result['ttft_p50_s']['percent'], (int, float))
        self.assertLess(abs(result['prefix_hit_ratio']['points']), 2)
        for args, words in ((['--speed', '0'], "--speed: '0'"),
                            (['--policy', 'best'], "--policy: 'best'"),
                            (['--what'], "unknown option '--what'")):
            done = subprocess.run(
                [os.path.join(ROOT, 'tools', 'agree'), '--build',
                 settings.build, *args],
                capture_output=True, text=True, timeout=60)
            self.assertEqual(done.returncode, 2)
            self.assertIn(words, done.stderr)
