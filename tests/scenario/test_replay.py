"""conductor-replay against a fake server, and its words on bad input."""
import gzip
import json
import os
import signal
import socket
import subprocess
import threading
import time
import xml.etree.ElementTree

from fake_server import FakeServer
from harness import (REPLAY, ROOT, FolderCase, program, read_file, replay,
                     settings)
from reference import infinite_cache_ratio

SAMPLE = os.path.join(ROOT, 'traces', 'sample.jsonl')


class Replay(FolderCase):
    def serve(self, **kind):
        server = FakeServer(**kind)
        self.addCleanup(server.close)
        return server

    def live(self, server, *args, trace=SAMPLE, **how):
        done = replay('live', '--url', server.url, '--trace', trace,
                      '--length-scale', 16, '--report', self.path('r.json'),
                      *args, **how)
        return done, self.read_json('r.json')

    def test_numbers(self):
        server = self.serve()
        done, report = self.live(
            server, '--speed', 12, '--requests-csv', self.path('r.csv'),
            '--plot', self.path('r.svg'))
        self.assertEqual(report['requests'], {
            'total': 80, 'completed': 80, 'rejected': 0, 'failed': 0})
        self.assertEqual(report['mode'], 'live')
        self.assertEqual(report['policy'], 'global_cache')
        self.assertFalse(report['interrupted'])
        self.assertNotIn('interrupted', done.stdout)
        # An infinite cache behind the server: the best possible, to the token.
        self.assertGreater(report['prefix_hit_ratio'], 0.2)
        self.assertAlmostEqual(report['prefix_hit_ratio'],
                               report['best_possible_hit_ratio'], delta=0.003)
        tokens = report['tokens']
        self.assertEqual(tokens['input'],
                         sum(len(r['prompt']) for r in server.requests))
        self.assertEqual(tokens['output'],
                         sum(r['max_tokens'] for r in server.requests))
        self.assertEqual(tokens['reused'] + tokens['computed'],
                         tokens['input'])
        self.assertEqual(report['blocks']['fetched'], tokens['reused'] // 32)
        self.assertGreaterEqual(report['ttft_s']['p50'], 0.002)
        self.assertGreaterEqual(report['tbt_s']['p50'], 0.002)
        self.assertEqual(report['retries'], 80)
        rows = self.read_csv('r.csv')
        self.assertEqual(len(rows), 80)
        self.assertEqual(rows[3]['outcome'], 'completed')
        self.assertEqual(rows[3]['prefill'], 'p0')
        self.assertEqual(float(rows[3]['predicted_ttft_s']), 0.00625)
        xml.etree.ElementTree.parse(self.path('r.svg'))

    def test_tenants(self):
        """Those of the trace have keys of their own, and their requests the
        trace's priorities."""
        server = self.serve()
        with open(SAMPLE, encoding='utf-8') as f:
            lines = [json.loads(line) for line in f][:6]
        for i, line in enumerate(lines):
            line.update({'tenant': i, 'priority': i - 2} if i else {})
        trace = self.path('t.jsonl')
        with open(trace, 'w', encoding='utf-8') as f:
            f.writelines(json.dumps(line) + '\n' for line in lines)
        done, report = self.live(server, '--speed', 60, trace=trace)
        self.assertEqual(
            {(key, body.get('priority'))
             for key, body in zip(server.keys, server.requests)},
            {(None, None), ('Bearer tenant-1', -1), ('Bearer tenant-2', None),
             ('Bearer tenant-3', 1), ('Bearer tenant-4', 2),
             ('Bearer tenant-5', 3)})
        self.assertEqual([t['tenant'] for t in report['tenants']],
                         [0, 1, 2, 3, 4, 5])

    def test_twice_on_one_server(self):
        server = self.serve()
        options = '--speed', 60, '--requests', 20
        done, report = self.live(server, *options)
        self.assertIn('an infinite cache', done.stdout)
        self.assertFalse(report['held_before'])
        done, report = self.live(server, *options)
        self.assertNotIn('an infinite cache', done.stdout)
        self.assertIn('already held', done.stdout)
        self.assertTrue(report['held_before'])
        done, _ = self.live(server, *options, '--seed', 1)
        self.assertIn('an infinite cache', done.stdout)

    def test_rejected_and_warmed(self):
        """What is reused of a prompt that was rejected counts for the infinite
        cache, too: it is of all requests offered."""
        lines = [{'timestamp': 100 * i, 'input_length': 2100,
                  'output_length': 2, 'hash_ids': [1, 2, 3, 4, 5]}
                 for i in range(4)]
        trace = self.path('t.jsonl')
        with open(trace, 'w', encoding='utf-8') as f:
            f.writelines(json.dumps(line) + '\n' for line in lines)
        server = self.serve(behave=lambda i: 'answer' if i else 'warm')
        done, report = self.live(server, trace=trace)
        self.assertEqual(report['requests'], {
            'total': 4, 'completed': 3, 'rejected': 1, 'failed': 0})
        self.assertFalse(report['held_before'])
        self.assertNotIn('already held', done.stdout)
        best = infinite_cache_ratio(lines, 16)
        self.assertAlmostEqual(report['best_possible_hit_ratio'], best, 6)
        self.assertRegex(done.stdout, r'of all offered  \(an infinite cache: '
                                      rf'{100 * best:.1f}%')

    def test_open_loop(self):
        # The server answers nobody before all have asked.
        all_asked = threading.Barrier(20)

        def behave(_):
            all_asked.wait(60 * settings.scale)
            return 'answer'
        server = self.serve(behave=behave)
        done, report = self.live(server, '--speed', 60, '--requests', 20)
        self.assertEqual(report['requests']['completed'], 20)

    def test_no_answer(self):
        server = self.serve(behave=lambda index: 'hang')
        done, report = self.live(server, '--speed', 60, '--timeout', 2,
                                 '--requests', 20, status=1)
        self.assertEqual(report['requests']['failed'], 20)
        self.assertEqual(report['failures'][0]['reason'], 'timeout')

    def test_late_counts(self):
        # One at a time: what waits to be sent is slow, not unseen.
        server = self.serve(token_gap_s=0.01)
        _, report = self.live(server, '--speed', 1000, '--max-in-flight', 1,
                              '--requests', 10)
        self.assertGreater(report['send_lag_s']['max'], 0.5)
        self.assertGreater(report['ttft_s']['max'],
                           report['send_lag_s']['max'])

    def test_connections_are_used_again(self):
        """As clients of the OpenAI API do. One that the server has closed
        meanwhile is no failure."""
        for keeps, connections in (True, 1), (False, 10):
            server = self.serve(keeps=keeps)
            done, report = self.live(server, '--speed', 1000, '--requests', 10,
                                     '--max-in-flight', 1)
            self.assertEqual(report['requests']['completed'], 10)
            self.assertEqual(len(server.requests), 10)
            self.assertEqual(len(server.connections), connections)

    def test_failures(self):
        plan = {1: 429, 2: 500, 3: 'cut', 4: 'error', 5: 429, 6: 404}
        server = self.serve(behave=lambda i: plan.get(i, 'answer'))
        done, report = self.live(server, '--speed', 30, '--requests', 12,
                                 status=1)
        self.assertEqual(report['requests'], {
            'total': 12, 'completed': 6, 'rejected': 2, 'failed': 4})
        reasons = {x['reason']: x['example'] for x in report['failures']}
        self.assertEqual(reasons.pop('http 500 made_up'), 'no, 500')
        self.assertEqual(reasons.pop('http 404 made_up'), 'no, 404')
        self.assertEqual(reasons.pop('error event worker_gone'), 'worker lost')
        self.assertEqual(list(reasons), ['connection closed'])
        self.assertEqual(report['slo']['effective_ratio'], 0.5)

    def test_limit_of_the_report(self):
        """--effective-ttft judges; it promises nobody anything."""
        _, report = self.live(self.serve(), '--speed', 30, '--requests', 4,
                              '--effective-ttft', 0.001)
        self.assertEqual(report['requests']['completed'], 4)
        slo = report['slo']
        self.assertEqual((slo['ttft_s'], slo['effective_ratio'],
                          slo['promised']), (0.001, 0.0, None))
        for limit, told in ((), False), (('--slo-tbt', 1), True):
            done, report = self.live(self.serve(), '--speed', 30, '--requests',
                                     4, *limit)
            self.assertEqual('effective requests' in done.stdout, told)
            self.assertEqual(report['slo']['asked'], told)

    def test_figure(self):
        """What has no TTFT stands in the key and above the scale; a replay
        without Python says so and writes the rest."""
        server = self.serve(behave=lambda i: {1: 429, 2: 500}.get(i, 'answer'))
        self.live(server, '--speed', 60, '--requests', 12, '--plot',
                  self.path('r.svg'), '--effective-ttft', 30, status=1)
        tree = xml.etree.ElementTree.parse(self.path('r.svg'))
        words = [text.text for text in tree.iter(
            '{http://www.w3.org/2000/svg}text')]
        for word in ('completed', 'rejected (1)', 'failed (1)', 'SLO 30 s',
                     'TTFT predicted (s)', 'TTFT observed (s)', 'as observed'):
            self.assertIn(word, words)
        self.assertTrue(any(w.startswith('p99 ') for w in words))
        replay('live', '--url', self.serve().url, '--trace', SAMPLE,
               '--requests', 2, '--length-scale', 16, '--plot',
               self.path('new.svg'), '--report', self.path('new.json'),
               env={**os.environ, 'PATH': self.folder}, status=1,
               says=f"{self.path('new.svg')}: not drawn, Python's matplotlib "
               "is missing: install Debian's python3-matplotlib")
        self.assertEqual(sorted(os.listdir(self.folder)),
                         ['new.json', 'r.json', 'r.svg'])

    def test_no_server(self):
        replay('live', '--url', 'http://127.0.0.1:1', '--trace', SAMPLE,
               status=1, says='no answer from '
               'http://127.0.0.1:1/v1/models: Connection refused')
        done = replay('live', '--url', 'http://nohost.invalid', '--trace',
                      SAMPLE, status=1)
        self.assertRegex(done.stderr, 'http://nohost.invalid:80/v1/models: .')
        self.assertNotIn('Success', done.stderr)
        with socket.create_server(('127.0.0.1', 0)) as other:
            def hang_up():
                while True:
                    try:
                        other.accept()[0].close()
                    except OSError:
                        return
            threading.Thread(target=hang_up, daemon=True).start()
            replay('live', '--url', 'http://127.0.0.1:%d'
                   % other.getsockname()[1], '--trace', SAMPLE,
                   status=1, says='gives no HTTP answer')

    def test_url_as_openai_clients_have_it(self):
        server = self.serve()
        server.url += '/v1/'
        done, _ = self.live(server, '--requests', 2, '--speed', 100)
        self.assertEqual(server.paths, {'/v1/models', '/v1/completions'})

    def test_block_size_warning(self):
        for of_server, words in (
                (64, ["blocks have 64 tokens, the trace's 32",
                      '--length-scale 8 here, or block_tokens 32 in',
                      '--block-tokens 32 in its workers']),
                (48, ["blocks have 48 tokens, the trace's 32",
                      'Use block_tokens 32 in']),
                (32, []), (16, [])):
            with self.subTest(of_server=of_server):
                server = self.serve(block_tokens=of_server)
                done, _ = self.live(server, '--requests', 2, '--speed', 100)
                for text in words:
                    self.assertIn(text, done.stderr)
                self.assertEqual('warning' in done.stderr, bool(words))

    def test_interrupt(self):
        server = self.serve()
        process = subprocess.Popen(
            [program(*REPLAY), 'live', '--url', server.url, '--trace', SAMPLE,
             '--length-scale', '16', '--report', self.path('r.json'),
             '--plot', self.path('r.svg')],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        limit = time.monotonic() + 20 * settings.scale
        while len(server.requests) < 3 and time.monotonic() < limit:
            time.sleep(0.05)
        time.sleep(1)
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=20 * settings.scale)
        self.assertEqual(process.returncode, 130)
        self.assertIn('prefix hit ratio', out)
        report = self.read_json('r.json')
        self.assertGreater(report['requests']['completed'], 0)
        answered = report['requests']['total']
        self.assertLess(answered, 80)
        self.assertTrue(report['interrupted'])
        words = f'interrupted after {answered} of 80 requests'
        self.assertIn(words, out)
        self.assertIn(words, self.read('r.svg'))
        self.assertEqual(report['requests']['failed'], 0)

    def test_bad_trace(self):
        lines = gzip.compress(b'{"timestamp": 5, "input_length": 600, '
                              b'"output_length": 1, "hash_ids": [0, 1]}\n'
                              b'{"timestamp": 4, "input_length": 6, '
                              b'"output_length": 1, "hash_ids": [0]}\n')
        with open(self.path('t.gz'), 'wb') as f:
            f.write(lines)
        replay('live', '--trace', self.path('t.gz'),
               status=1, says='t.gz:2: timestamp 4: goes backward, '
               'the line before has 5')
        replay('live', '--trace', self.path('none'), status=1,
               says='none: No such file or directory')

    def test_no_requests(self):
        self.write('empty.jsonl', '')
        self.write('bad.jsonl', 'hello\n')
        for command in 'live', 'stats':
            with self.subTest(command):
                replay(command, '--trace', self.path('empty.jsonl'),
                       status=1, says='empty.jsonl: is empty')
                replay(command, '--trace', SAMPLE, '--from', 90, status=1,
                       says='holds 80 requests, and --from skips 90')
        replay('stats', '--trace', self.path('bad.jsonl'), '--skip-bad',
               status=1, says='holds no good line')

    def test_outputs_that_cannot_be_written(self):
        # Said before anything is sent or computed, and nothing is left behind.
        server = self.serve()
        live = 'live', '--url', server.url, '--trace', SAMPLE
        for command in (
                (*live, '--report'), (*live, '--plot'),
                (*live, '--requests-csv'),
                ('stats', '--trace', SAMPLE, '--json'),
                ('generate', '--like', 'synthetic', '--out'),
                ('simulate', '--trace', SAMPLE, '--cluster', 'none',
                 '--policy', 'random', '--report')):
            for path, why in (('/nonexistent/a', 'No such file'),
                              (self.folder, 'Is a directory')):
                with self.subTest(command=command, path=path):
                    replay(*command, path, status=1,
                           says=f'{command[-1]} {path}: {why}')
        self.assertEqual(server.paths, set())
        kept = self.path('kept')
        self.write('kept', 'before')
        done = replay(*live, '--block-tokens', 7, '--report', kept, '--plot',
                      self.path('new'), status=None)
        self.assertNotEqual(done.returncode, 0)
        self.assertEqual(self.read('kept'), 'before')
        self.assertEqual(os.listdir(self.folder), ['kept'])

    def test_standard_output(self):
        """A file named - is standard output; text goes to standard error."""
        simulate = ['simulate', '--trace', SAMPLE, '--cluster', os.path.join(
            ROOT, 'traces', 'clusters', 'reference-16.json'), '--policy',
            'plan']
        plain = replay(*simulate, '--report', self.path('r.json'),
                       '--requests-csv', self.path('r.csv'))
        os.chdir(self.folder)
        for option, name in (('--report', 'r.json'),
                             ('--requests-csv', 'r.csv')):
            done = replay(*simulate, option, '-')
            self.assertEqual(done.stdout, self.read(name))
            self.assertIn(plain.stdout, done.stderr)
        done = replay('cake-adaptive', '--plot', '-', '--runs', 1)
        self.assertTrue(done.stdout.rstrip().endswith('</svg>'))
        # Behind what is there, as any text.
        self.write('all', 'first\n')
        with open(self.path('all'), 'a', encoding='utf-8') as f:
            subprocess.run([program(*REPLAY), 'generate', '--like',
                            'conversation', '--requests', '3', '--out', '-'],
                           stdout=f,
                           stderr=subprocess.DEVNULL, check=True)
        self.assertRegex(self.read('all'), '^first\n({.*}\n){3}$')
        replay(*simulate, '--report', '-', '--requests-csv', '-',
               status=1, says='--requests-csv -: standard output is '
               'that of --report')
        self.assertEqual(sorted(os.listdir(self.folder)),
                         ['all', 'r.csv', 'r.json'])

    def test_help_is_a_command(self):
        for args, words in ((['help'], 'usage: conductor-replay COMMAND'),
                            (['help', 'size'], 'usage: conductor-replay size')):
            done = replay(*args)
            self.assertIn(words, done.stdout)
        replay('help', 'sing', status=2, says="unknown command 'sing'")

    def test_bad_command_lines(self):
        for args, words in [
                ([], 'usage: conductor-replay'),
                (['sing'], "unknown command 'sing'"),
                (['sise'], "unknown command 'sise': did you mean size? ("),
                (['live'], '--trace FILE is missing'),
                (['live', '--tracer', 'x'], "unknown option '--tracer'"),
                (['live', '--trace', 'x', '--speed', '0'], '--speed 0'),
                (['live', '--trace', 'x', '--length-scale', '3'],
                 '--length-scale 3: must divide the block size of 512'),
                (['live', '--trace', 'x', '--url', 'https://a'],
                 '--url https://a: must be http://'),
                (['generate', '--like', 'chat'], '--like chat'),
                (['generate', '--like', 'synthetic', '--requests', '1.5'],
                 '--requests 1.5: must be a whole number'),
                (['generate', '--seed'], '--seed needs a value')]:
            with self.subTest(args=args):
                replay(*args, status=2, says=words)

    def test_sample_is_what_its_command_makes(self):
        done = replay('generate', '--like', 'conversation', '--requests', 80,
                      '--rate', 1.4, '--seed', 1)
        self.assertEqual(done.stdout, read_file(SAMPLE))

    def test_generate_gzip(self):
        options = 'generate', '--like', 'toolagent', '--requests', 300, '--out'
        plain = replay(*options[:-1]).stdout
        for name in 'a.jsonl', 'a.jsonl.gz', 'b.jsonl.gz':
            replay(*options, self.path(name))
        self.assertEqual(self.read('a.jsonl'), plain)
        with gzip.open(self.path('a.jsonl.gz'), 'rt') as f:
            self.assertEqual(f.read(), plain)
        with open(self.path('a.jsonl.gz'), 'rb') as a, \
                open(self.path('b.jsonl.gz'), 'rb') as b:
            self.assertEqual(a.read(), b.read())
        replay('stats', '--trace', self.path('a.jsonl.gz'))
        os.symlink('/dev/full', self.path('full.gz'))
        done = replay(*options, self.path('full.gz'), status=1)
        self.assertRegex(done.stderr, 'full.gz: (No space|Input/output)')

    def test_help(self):
        for args in (['--help'], ['live', '--help'], ['generate', '--help'],
                     ['stats', '--help']):
            done = replay(*args)
            self.assertIn('examples:', done.stdout)
