"""conductor-replay live against a real cluster, and tools/up."""
import collections
import csv
import json
import os
import re
import signal
import subprocess
import sys
import time
import unittest

from harness import (FIT, REPLAY, ROOT, Case, program, read_file, settings,
                     total, wait_until)
from reference import infinite_cache_ratio, read_trace
import speed_change

SAMPLE = os.path.join(ROOT, 'traces', 'sample.jsonl')


class Live(Case):
    def replay(self, cluster, *options):
        paths = {name: os.path.join(self.folder, name)
                 for name in ('report.json', 'requests.csv', 'ttft.svg')}
        status, output, errors = self.run_program(
            program(*REPLAY), 'live', '--url',
            f'http://127.0.0.1:{cluster.ports["http"]}', '--report',
            paths['report.json'], '--requests-csv', paths['requests.csv'], '--plot',
            paths['ttft.svg'], '--trace', SAMPLE, *options, limit_s=120)
        self.assertEqual(status, 0, errors)
        return json.loads(read_file(paths['report.json'])), output, paths

    def test_sixty_requests(self):
        cluster = self.cluster(prefill=2, decode=1,
                               config={'block_tokens': 32}, block_tokens=32)
        report, output, paths = self.replay(
            cluster, '--requests', '60', '--length-scale', '16', '--speed',
            '20')
        requests = report['requests']
        self.assertEqual((requests['total'], requests['completed'],
                          requests['rejected'], requests['failed']),
                         (60, 60, 0, 0))
        self.assertEqual(report['mode'], 'live')
        self.assertEqual(report['policy'], 'plan')

        trace = read_trace(SAMPLE, 60)
        tokens = report['tokens']
        self.assertEqual(tokens['input'], sum(
            max(1, -(-r['input_length'] // 16)) for r in trace))
        self.assertEqual(tokens['reused'] + tokens['computed'],
                         tokens['input'])
        self.assertAlmostEqual(report['prefix_hit_ratio'],
                               tokens['reused'] / tokens['input'], places=4)
        self.assertLessEqual(report['prefix_hit_ratio'],
                             infinite_cache_ratio(trace, 16) + 1e-9 + 1e-6)
        self.assertGreater(report['prefix_hit_ratio'], 0)
        metrics = cluster.api.metrics()
        self.assertEqual(total(metrics, 'conductor_output_tokens_total'),
                         tokens['output'])
        for key in 'ttft_s', 'tbt_s':
            values = [report[key][k] for k in ('p50', 'p90', 'p99', 'max')]
            self.assertEqual(values, sorted(values))
            self.assertGreater(values[0], 0)
            self.assertLessEqual(report[key]['mean'], report[key]['max'])
        self.assertIn('effective_ratio', report['slo'])
        self.assertIn('p50', report['prediction']['ttft_abs_rel_error'])
        self.assertGreater(report['prediction']['ttft_rel_error']['p50'], -1)
        self.assertGreater(report['wall_s'], 0)
        self.assertIn('60', output)

        with open(paths['requests.csv'], encoding='utf-8') as f:
            rows = list(csv.DictReader(f))
        self.assertEqual(len(rows), 60)
        with open(paths['ttft.svg'], encoding='utf-8') as f:
            self.assertIn('<svg', f.read(1000))

    def test_one_after_the_other_reuses_all(self):
        """Without haste and with room for all blocks the reuse is that of an
        infinite cache, to the token."""
        cluster = self.cluster(prefill=0, decode=0, both=1,
                               config={'block_tokens': 32}, block_tokens=32)
        report, _, _ = self.replay(cluster, '--requests', '40',
                                   '--length-scale', '16', '--speed', '20')
        self.assertAlmostEqual(
            report['prefix_hit_ratio'],
            infinite_cache_ratio(read_trace(SAMPLE, 40), 16), places=2)

    def test_rejections_are_counted(self):
        cluster = self.cluster(
            engine='timed', block_tokens=32, cost={'prefill':
                                                   (300000, 0, 0, 0)},
            config={'block_tokens': 32, 'slo_ttft_ms': 500})
        report, _, _ = self.replay(cluster, '--requests', '30',
                                   '--length-scale', '16', '--speed', '50')
        requests = report['requests']
        self.assertGreater(requests['rejected'], 0)
        self.assertGreater(requests['completed'], 0)
        self.assertEqual(requests['failed'], 0)
        self.assertEqual(requests['completed'] + requests['rejected'], 30)


class Profile(Case):
    """What tools/up does to measure prefills."""
    TOOL = os.path.join(ROOT, 'tools', 'lib', 'serving_profile.py')
    US = 2000, 4  # of a prefill, and of each token that it computes

    def tool(self, *args):
        status, output, errors = self.run_program(sys.executable, self.TOOL,
                                                  *args)
        self.assertEqual(status, 0, errors)
        return output

    def serve(self, trace):
        cluster = self.cluster(
            engine='timed', block_tokens=32,
            cost={'prefill': (*self.US, 0, 0)},
            config={'block_tokens': 32, 'policy': 'round_robin'})
        requests = os.path.join(self.folder, 'requests.csv')
        status, _, errors = self.run_program(
            program(*REPLAY), 'live', '--url',
            f'http://127.0.0.1:{cluster.ports["http"]}', '--trace', trace,
            '--speed', '1000', '--block-tokens', '32', '--max-in-flight', '1',
            '--requests-csv', requests, limit_s=120)
        self.assertEqual(status, 0, errors)
        return requests, cluster.api.metrics()

    def test_prefills_are_measured_as_they_are_served(self):
        trace = self.write('trace.jsonl', self.tool('trace', '32'))
        requests, metrics = self.serve(trace)
        self.assertGreater(total(metrics, 'conductor_requests_total'), 100)
        head = ('# engine: timed\n# model: tiny\n# machine: none\n'
                '# date: 2026-01-01\n# block_tokens: 32\n# seed: 1\n'
                'kind,uncached_tokens,cached_tokens,batch,kv_tokens,us\n')
        decodes = ''.join(f'decode,,,{b},{b * k},{100 + b + b * k / 10}\n'
                          for b in (1, 2, 4, 8) for k in (16, 64, 256))
        profile = self.write('profile.csv', head + 'prefill,9,0,,,1.0\n' +
                             decodes)
        merged = self.tool('rows', requests, profile)
        self.assertTrue(merged.startswith(head + decodes))
        points = collections.Counter()
        took = least = 0
        for line in merged[len(head + decodes):].splitlines():
            kind, uncached, cached, _, _, us = line.split(',')
            points[int(uncached), int(cached)] += 1
            self.assertEqual(kind, 'prefill')
            took += float(us)
            least += self.US[0] + self.US[1] * int(uncached)
        self.assertGreater(took, 0.9 * least)  # the engine's work is in it
        self.assertGreaterEqual(len(points), 25)
        self.assertEqual(set(points.values()), {5})
        self.assertIn((16, 3072), points)
        status, _, errors = self.run_program(
            program(*FIT), '--out', os.path.join(self.folder, 'model.json'),
            self.write('merged.csv', merged))
        self.assertEqual(status, 0, errors)

    def test_a_machine_that_has_changed(self):
        line = 'conductor_instance_prefill_correction_ratio{instance="%s"} %g\n'
        for ratios, said in (((1, 1.2), None), ((1.0, 1.5), '1.50'),
                             ((1.4, 1.8), '1.60'), ((0.5, 0.7), '0.60'),
                             ((), None)):
            text = 'conductor_up 1\n' + ''.join(
                line % (i, r) for i, r in enumerate(ratios))
            words = speed_change.describe(text)
            if said:
                self.assertIn(f'took {said} times as long', words)
            else:
                self.assertIsNone(words)


class Up(Case):
    UP = os.path.join(ROOT, 'tools', 'up')

    def test_wrong_options(self):
        for options, word in ((['--bogus'], "'--bogus'; see --help"),
                              (['--prefil', '3'],
                               "'--prefil': did you mean --prefill?"),
                              (['--requests', 'all'], 'all'),
                              (['--engine', 'steam'], 'steam'),
                              (['--policy', 'psychic'],
                               "up: --policy: 'psychic' is not one of: "
                               'random round_robin'),
                              (['--policy', 'plan,'], "--policy: ''"),
                              (['--policy', 'plan,random,plan'],
                               "--policy: 'plan' is named twice in "
                               "'plan,random,plan'"),
                              (['--length-scale', '3'], '3'),
                              (['--speed', '-1'], '-1'),
                              (['--trace', '/nonexistent'], '/nonexistent'),
                              (['--no-replay'], '--no-replay: needs --stay'),
                              (['--report'], '--report')):
            with self.subTest(options):
                status, _, errors = self.run_program(self.UP, *options)
                self.assertEqual(status, 2)
                self.assertIn(word, errors)

    def children(self, session):
        """The programs of a session that still run, from /proc/N/stat: pid
        (name) state parent group session."""
        found = []
        for pid in filter(str.isdigit, os.listdir('/proc')):
            try:
                name, rest = read_file(f'/proc/{pid}/stat').rsplit(')', 1)
            except OSError:
                continue
            state, _, _, of_session = rest.split()[:4]
            if int(of_session) == session and state != 'Z':
                found.append(name)
        return found

    def start_up(self, *options):
        log = os.path.join(self.folder, 'up.log')
        # What a shell starts in the background ignores SIGINT, and a script
        # of bash cannot change that.
        heeds = signal.signal(signal.SIGINT, signal.SIG_DFL)
        with open(log, 'wb') as out:
            child = subprocess.Popen(
                [self.UP, *options], stdin=subprocess.DEVNULL, stdout=out,
                stderr=out, start_new_session=True)
        signal.signal(signal.SIGINT, heeds)
        self.addCleanup(lambda: child.poll() is None and
                        os.killpg(child.pid, signal.SIGKILL))

        def said():
            with open(log, encoding='utf-8', errors='replace') as f:
                return f.read()
        return child, said

    def test_progress_in_a_pipe(self):
        """The last count comes in any case, without a terminal, too; the log
        has all."""
        text = '[1/3] a\n[2/3] b\nwarning\n[3/3] c\n'
        log = os.path.join(self.folder, 'log')
        done = subprocess.run(
            ['bash', '-c', 'source tools/lib/common.sh; show_progress "$1" '
             "'^(\\[[0-9]+/[0-9]+\\])'", 'bash', log], input=text, cwd=ROOT,
            capture_output=True, text=True, check=True)
        self.assertEqual((done.stdout, done.stderr), ('   [3/3]\n', ''))
        self.assertEqual(read_file(log), text)

    def test_work_of_others(self):
        """What a child of the script has computed is not the work of others."""
        done = subprocess.run(
            ['bash', '-c', """
source tools/lib/cluster.sh
exec 3< <(exec python3 -c 'import time
while time.process_time() < 3: pass
print(flush=True)
time.sleep(60)')
child=$!
read -r -u 3
with=$(other_ticks)
children[$child]=it
echo $((with - $(other_ticks))) "$(getconf CLK_TCK)"
kill "$child" """], cwd=ROOT, capture_output=True, text=True, check=True)
        ticks, per_s = map(int, done.stdout.split())
        self.assertGreater(ticks, per_s)

    def rows_of(self, output):
        """The table's rows, and what each policy's files say."""
        folder = os.path.join(ROOT, re.search(
            r'^== picture: (run/\d+)/compare.svg$', output, re.M)[1])
        self.assertIn('<svg', read_file(os.path.join(folder, 'compare.svg')))
        for policy in 'round_robin', 'plan':
            row = re.search(rf'^{policy} +(\d+) of (\d+) +([\d.]+) % +([\d.]+)'
                            r' +([\d.]+) +([\d.]+) %$', output, re.M)
            report = json.loads(read_file(os.path.join(folder, policy,
                                                       'report.json')))
            self.assertEqual(report['policy'], policy)
            with open(os.path.join(folder, policy, 'requests.csv'),
                      encoding='utf-8') as f:
                requests = list(csv.DictReader(f))
            ttft = sorted(float(r['ttft_s']) for r in requests
                          if r['outcome'] == 'completed')
            effective = sum(t <= 0.1 for t in ttft)  # 1.6 s / 16
            yield [float(x) for x in row.groups()], [
                report['requests']['completed'], len(requests),
                round(100 * report['prefix_hit_ratio'], 1),
                round(1000 * sum(ttft) / len(ttft), 1),
                round(1000 * report['ttft_s']['p99'], 1),
                round(100 * effective / len(requests), 1)]

    def test_table_and_pictures(self):
        """The table's numbers are the reports', and the pictures have its
        words and units. Where nothing was answered, nothing is made up."""
        rows = 'completed,0.101,0.1', 'completed,0.1,0.21', 'failed,,', \
            'completed,0.1,0.2'
        for policy, some, ttft_s in (('plan', rows, 0.1),
                                     ('random', rows[2:3], None)):
            os.makedirs(os.path.join(self.folder, policy))
            self.write(f'{policy}/report.json', json.dumps({
                'slo': {'asked': True, 'ttft_s': 0.08, 'tbt_s': 0.2,
                        'effective_ratio': 0.25 if ttft_s else 0.0},
                'trace': {'file': '/t.jsonl', 'speed': 1}, 'requests': {
                    'total': len(some), 'completed': len(some) - 1},
                'prefix_hit_ratio': ttft_s, 'best_possible_hit_ratio': 0.5,
                'ttft_s': dict.fromkeys(('mean', 'p50', 'p90', 'p99'),
                                        ttft_s)}))
            self.write(f'{policy}/requests.csv', '\n'.join([
                'outcome,ttft_s,tbt_s,intended_s,predicted_ttft_s,send_lag_s',
                *(row + ',0,,' for row in some)]) + '\n')
        status, output, errors = self.run_program(
            sys.executable, os.path.join(ROOT, 'tools', 'lib',
                                         'compare_runs.py'),
            self.folder, 'plan', 'random')
        self.assertEqual((status, errors), (0, ''))
        self.assertIn('\nplan                3 of 4   10.0 %    100.0   100.0'
                      '      25.0 %\n', output)
        self.assertIn('\nrandom              0 of 1      - %        -       -'
                      '       0.0 %\n', output)
        self.assertIn('first token within 80 ms, each further one within 200 '
                      'ms\n', output)
        for name, words in (
                ('compare.svg', ('ms', 'prefix hits', 'effective requests',
                                 '100')),
                ('plan/ttft.svg', ('SLO 0.08 s',)),
                ('random/ttft.svg', ('SLO 0.08 s',))):
            drawn = re.findall(r'>([^<]+)</text>', read_file(os.path.join(
                self.folder, name)))
            for word in words:
                self.assertIn(word, drawn)

    def test_one_table(self):
        """Each policy serves the trace with empty caches, and the table says
        what their reports say. A prompt that has no room fails under both."""
        status, output, errors = self.run_program(
            self.UP, '--requests', '8', '--speed', '50', '--kv-mib', '1',
            limit_s=300)
        self.assertEqual(status, 1, output + errors)
        for shown, told in self.rows_of(output):
            self.assertEqual(shown[1], 8)
            self.assertLess(shown[0], 8)
            for a, b in zip(shown, told):
                self.assertAlmostEqual(a, b, delta=0.11)
        self.assertRegex(errors, r'requests that were not answered: \d under '
                         r'round_robin, \d under plan, see ')

    def test_ctrl_c_between_two_policies(self):
        self.assertEqual(self.stops(
            signal.SIGINT, '--requests', '2', '--speed', '50',
            when='starting a conductor with policy plan'), 130)

    def test_replays_twice_at_once(self):
        report = os.path.join(self.folder, 'a.json')
        options = '--requests', '8', '--speed', '50'
        first, said = self.start_up(*options, '--report', report)
        status, output, errors = self.run_program(
            self.UP, *options, '--engine', 'timed', '--decode', '2',
            limit_s=300)
        self.assertEqual(status, 0, output + errors)
        self.assertEqual(first.wait(300), 0, said())
        with open(report, encoding='utf-8') as f:
            self.assertEqual(json.load(f)['requests']['completed'], 8)
        self.assertEqual(self.children(first.pid), [])
        for shown, told in self.rows_of(output):
            self.assertEqual(shown[:2], [8, 8])
            for a, b in zip(shown, told):
                self.assertAlmostEqual(a, b, delta=0.11)
        for words in ('ttft.svg', 'status page: http://127.0.0.1:',
                      '== to try next:', 'tools/up --stay --no-replay'):
            self.assertIn(words, output)

    def stops(self, number, *options, when, kill=os.killpg):
        child, said = self.start_up(*options)
        wait_until(f'it says "{when}"', lambda: when in said() or
                   self.assertIsNone(child.poll(), said()), 200)
        time.sleep(0.2)
        kill(child.pid, number)
        status = child.wait(60)
        wait_until('all have ended', lambda: not self.children(child.pid))
        return status

    def test_signals(self):
        slow = '--speed', '0.001'
        self.assertEqual(self.stops(signal.SIGINT, *slow,
                                    when='replaying'), 130)
        self.assertEqual(self.stops(signal.SIGTERM, *slow,
                                    when='replaying'), 143)

    def test_killed_while_it_measures(self):
        """kill tells the script alone; a terminal tells all its processes."""
        for kill in os.kill, os.killpg:
            for number, status in (signal.SIGTERM, 143), (signal.SIGINT, 130):
                self.assertEqual(self.stops(
                    number, '--measure', '--length-scale', '8',
                    when='measuring', kill=kill), status)

    def test_stays_until_it_is_told(self):
        self.assertEqual(self.stops(signal.SIGINT, '--requests', '2',
                                    '--speed', '50', '--stay',
                                    when='curl -s'), 0)

    def test_serves_at_once(self):
        child, said = self.start_up('--stay', '--no-replay')
        wait_until('it serves', lambda: 'curl -s' in said() or
                   self.assertIsNone(child.poll(), said()), 200)
        os.killpg(child.pid, signal.SIGINT)
        self.assertEqual(child.wait(60), 0)
        self.assertNotIn('replaying', said())


def load_tests(loader, tests, pattern):
    """tools/up always runs build/: under another build it shows nothing."""
    if settings.build != os.path.join(ROOT, 'build'):
        return unittest.TestSuite(loader.loadTestsFromTestCase(case)
                                  for case in (Live, Profile))
    return tests
