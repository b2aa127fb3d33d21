"""conductor-replay sessions: recorded sessions in a closed loop."""
import json
import os
import random
import resource
import unittest

from harness import FolderCase, replay
from fake_server import FakeServer

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(
    os.path.abspath(__file__))))
PAPER = os.path.join(ROOT, 'traces', 'clusters', 'paper-16.json')


def session(draw, name):
    """Turns of a parent that grow, and now and then one of a sub-agent."""
    requests, begun, ids, blocks = [], 0.0, 1, {}
    for i in range(draw.randint(3, 8)):
        sub = int(i > 0 and draw.random() < 0.2)
        base = sub if sub in blocks else (-1 if i == 0 else 0)
        keep = blocks[base] if base == sub else 0
        new = draw.randint(5, 60)
        requests.append({
            't': begun, 'sub': sub, 'in': 64 * (keep + new) + 9,
            'out': draw.randint(1, 40), 'from': base, 'keep': keep,
            'add': [[ids, new]], 'stop': 'tool_use', 'api': 1.0,
            'think': draw.choice([0.0, 3.5, 900.0, None]),
            'itypes': ['text'], 'model': 'm'})
        blocks[sub], ids, begun = keep + new, ids + new, begun + 2.5
    return {'id': name, 'block_tokens': 64, 'tool_tokens': 150,
            'system_tokens': 100, 'requests': requests}


class Sessions(FolderCase):
    def setUp(self):
        super().setUp()
        draw = random.Random(27)
        self.sessions = [session(draw, f's{i}') for i in range(10)]

    def write(self, sessions):
        with open(self.path('s.jsonl'), 'w', encoding='utf-8') as file:
            file.writelines(json.dumps(s) + '\n' for s in sessions)
        return self.path('s.jsonl')

    def run_it(self, *args, report='r.json'):
        done = replay('sessions', '--trace', self.path('s.jsonl'), '--cluster',
                      PAPER, '--report', self.path(report), *args)
        return done.stdout, self.read_json(report)

    def test_report(self):
        """Each session is answered whole, up to its first long prompt; the
        file begins again; two runs say the same."""
        self.write(self.sessions)
        limit = 150 * 64
        turns = []
        for s in self.sessions:
            sizes = [r['in'] for r in s['requests']]
            turns.append(next((i for i, n in enumerate(sizes) if n > limit),
                              len(sizes)))
        self.assertIn(True, [n < len(s['requests'])
                             for n, s in zip(turns, self.sessions)])
        args = ('--in-flight', '2,5', '--sessions', 13, '--input-max', limit,
                '--policies', 'global_cache,plan')
        text, report = self.run_it(*args)
        self.assertEqual(len(report['runs']), 4)
        for run in report['runs']:
            self.assertEqual(run['sessions'],
                             {'started': 13, 'finished': 13, 'lost': 0})
            self.assertEqual(run['turns'], sum(turns) + sum(turns[:3]))
            self.assertEqual(len(run['ttft_s']), 5)
            self.assertLess(run['ttft_s']['mean'], run['turn_s']['mean'])
            self.assertLessEqual(run['prefix_hit_ratio'],
                                 run['best_possible_hit_ratio'])
            self.assertIn(f"{run['in_flight']:9}  {run['policy']:14}", text)
        self.assertGreater(report['runs'][2]['sessions_finished_per_hour'],
                           report['runs'][0]['sessions_finished_per_hour'])
        self.assertEqual(self.run_it(*args, report='again.json')[1], report)

    def test_search(self):
        """The number at which the mean TTFT is as asked for, half, twice."""
        self.write(self.sessions)
        replay('sessions', '--trace', self.path('s.jsonl'), '--cluster',
               PAPER, '--ttft', 4, '--hours', 0.05, '--think-max', 0,
               '--policies', 'local_cache', '--report',
               self.path('r.json'))
        half, found, twice = self.read_json('r.json')['runs']
        self.assertEqual(half['in_flight'], found['in_flight'] // 2)
        self.assertEqual(twice['in_flight'], found['in_flight'] * 2)
        self.assertLess(half['ttft_s']['mean'], 4)
        self.assertGreater(twice['ttft_s']['mean'], 4)

    def test_refused(self):
        self.sessions[1]['requests'][2]['keep'] = -3
        trace = self.write(self.sessions)
        replay('sessions', '--trace', trace, '--cluster', PAPER, status=1,
               says=f'{trace}:2: requests[2].keep: -3: must be')
        for words, why in (
                (('--in-flight', '3', '--ttft', '2'),
                 '--in-flight: does not go with --ttft'),
                (('--in-flight', '1.5'), '--in-flight 1.5'),
                (('--policies', 'none'), 'none')):
            replay('sessions', '--trace', trace, '--cluster', PAPER,
                   *words, status=2, says=why)

    def live(self, server, *args, **how):
        done = replay('live-sessions', '--url', server.url, '--trace',
                      self.path('s.jsonl'), '--length-scale', 16,
                      '--think-max', 0, '--report', self.path('r.json'), *args,
                      **how)
        return done, self.read_json('r.json')

    def test_live(self):
        """Each turn comes when the answers before it have ended, with the
        tokens of the turn that it begins with."""
        server = FakeServer()
        self.addCleanup(server.close)
        self.write(self.sessions[:3])
        done, report = self.live(server, '--in-flight', 1, '--sessions', 4)
        loop = report['closed_loop']
        self.assertEqual(loop['sessions'],
                         {'started': 4, 'finished': 4, 'lost': 0})
        turns = [r for s in self.sessions[:3] + self.sessions[:1]
                 for r in s['requests']]
        self.assertEqual(loop['turns'], len(turns))
        self.assertEqual(report['requests']['completed'], len(turns))
        self.assertEqual(sorted(len(b['prompt']) for b in server.requests),
                         sorted((r['in'] + 15) // 16 for r in turns))
        first = [b['prompt'] for b in server.requests][:2]
        self.assertEqual(len(first[0]), (turns[0]['in'] + 15) // 16)
        kept = turns[1]['keep'] * 64 // 512 * 32 if turns[1]['sub'] == 0 else 0
        self.assertEqual(first[1][:kept], first[0][:kept])
        # An infinite cache behind the server, and one turn after the other.
        self.assertAlmostEqual(report['prefix_hit_ratio'],
                               report['best_possible_hit_ratio'], delta=0.003)
        self.assertIn('sessions started', done.stdout)
        # The server's answers have no 90th percentile.
        self.assertIsNone(report['prediction']['ttft_p90_held_ratio'])
        self.assertNotIn('predicted p90', done.stdout)

    def test_live_needs_more_files(self):
        """More connections than this process may have files, at first."""
        server = FakeServer()
        self.addCleanup(server.close)
        self.write(self.sessions)
        few, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        done, report = self.live(
            server, '--in-flight', 60, '--sessions', 60, preexec_fn=lambda:
            resource.setrlimit(resource.RLIMIT_NOFILE, (min(few, 30), most)))
        self.assertEqual(report['closed_loop']['sessions']['finished'], 60)

    def test_live_lost(self):
        """A turn that is refused ends its session; others go on."""
        server = FakeServer(behave=lambda i: 429 if i == 1 else 'answer')
        self.addCleanup(server.close)
        self.write(self.sessions[:2])
        done, report = self.live(server, '--in-flight', 1, '--sessions', 2)
        self.assertEqual(report['closed_loop']['sessions'],
                         {'started': 2, 'finished': 1, 'lost': 1})
        self.assertEqual(len(server.requests),
                         2 + len(self.sessions[1]['requests']))
        replay('live-sessions', '--trace', self.path('s.jsonl'),
               status=2, says='needs --hours or --sessions')


if __name__ == '__main__':
    unittest.main()
