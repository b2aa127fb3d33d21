"""conductor-replay simulate: against an independent calculation, and its words.

The published trace is used where CONDUCTOR_TRACE names it.
"""
import csv
import gzip
import json
import os
import unittest

import reference_sim
from harness import ROOT, FolderCase, read_file, replay

SAMPLE = os.path.join(ROOT, 'traces', 'sample.jsonl')
CLUSTERS = os.path.join(ROOT, 'traces', 'clusters')
REFERENCE = os.path.join(CLUSTERS, 'reference-16.json')
PAPER = os.path.join(CLUSTERS, 'paper-16.json')
COUPLED = os.path.join(CLUSTERS, 'paper-16-coupled.json')

# facts of the published conversation trace: mean, p50, p99, hit
PUBLISHED = {
    'round_robin': (3.997977, 1.068000, 37.721115, 0.095507),
    'least_loaded': (1.828749, 0.654051, 22.548542, 0.093056),
    'local_cache': (1.398113, 0.439918, 18.169526, 0.325808),
    'global_cache': (1.294404, 0.321998, 18.010187, 0.367949),
}

# The policy plan without the rules for overload, but with equal candidates
# (decision 013), which no number turns off: cluster, speed and TTFT SLO of
# the sample on two prefill nodes; mean TTFT, rejected, hit ratio.
BEFORE_RULES = {
    ('paper-16', 4, 0): (15.518427, 0, 0.277523),
    ('paper-16', 4, 4): (2.529046, 16, 0.333388),
    ('paper-16-disk', 12, 0): (20.060733, 0, 0.275697),
    ('reference-16', 4, 0): (15.518185, 0, 0.277523),
    ('reference-16', 12, 4): (3.296372, 34, 0.365828),
}
RULES = ('order', 'lengths', 'bypass', 'links', 'shares',
         'beside_tbt', 'price')


class Simulate(FolderCase):
    def simulate(self, trace, cluster, policy, *args):
        replay('simulate', '--trace', trace, '--cluster', cluster,
               '--policy', policy, '--report', self.path('r.json'),
               *args)
        return self.read_json('r.json')

    def test_without_a_policy(self):
        """It is the daemon's."""
        done = replay('simulate', '--trace', SAMPLE, '--cluster', REFERENCE)
        self.assertIn('policy plan, ', done.stdout)

    def compare(self, trace, cluster, nodes, speed, tolerance,
                capacity=3_000_000):
        requests = reference_sim.read(trace)
        for policy in reference_sim.POLICIES:
            want = reference_sim.simulate(requests, policy, nodes, speed,
                                          capacity)
            report = self.simulate(trace, cluster, policy, '--prefill', nodes,
                                   '--speed', speed)
            with self.subTest(policy=policy, nodes=nodes, speed=speed):
                self.assertEqual(report['requests']['completed'],
                                 len(requests))
                for name in 'mean', 'p50', 'p99':
                    self.assertAlmostEqual(
                        report['ttft_s'][name], want[name],
                        delta=2e-6 + tolerance * want[name], msg=name)
                self.assertAlmostEqual(report['prefix_hit_ratio'],
                                       want['hit'], delta=1e-6 + tolerance)

    def generated(self, like, requests, rate, seed):
        trace = self.path('t.jsonl')
        replay('generate', '--like', like, '--requests', requests,
               '--rate', rate, '--seed', seed, '--out', trace)
        return trace

    def small_caches(self, tokens):
        cluster = json.loads(read_file(REFERENCE))
        cluster['prefill']['device']['tokens'] = tokens
        return self.write('small.json', json.dumps(cluster))

    def test_reference_sample(self):
        for nodes, speed in (16, 1), (4, 1), (3, 2), (1, 3):
            self.compare(SAMPLE, REFERENCE, nodes, speed, 0)

    def test_reference_generated(self):
        """Loaded, and with caches that evict from the first minute on."""
        trace = self.generated('toolagent', 1500, 4, 7)
        self.compare(trace, REFERENCE, 6, 1, 1e-3)
        self.compare(trace, self.small_caches(200_000), 6, 2, 1e-3, 200_000)

    def test_reference_saturated(self):
        """Queues so long that blocks leave the cache before they are ready."""
        trace = self.generated('synthetic', 400, 20, 3)
        self.compare(trace, self.small_caches(300_000), 2, 3, 1e-3, 300_000)

    @unittest.skipUnless(os.environ.get('CONDUCTOR_TRACE'),
                         'CONDUCTOR_TRACE names no published trace')
    def test_reference_published(self):
        trace = os.environ['CONDUCTOR_TRACE']
        for policy, want in PUBLISHED.items():
            report = self.simulate(trace, REFERENCE, policy)
            got = (*(report['ttft_s'][k] for k in ('mean', 'p50', 'p99')),
                   report['prefix_hit_ratio'])
            for a, b in zip(got, want):
                self.assertAlmostEqual(a / b, 1, delta=1e-3, msg=policy)
        for nodes, speed in (16, 2), (16, 3), (10, 2), (8, 1):
            self.compare(trace, REFERENCE, nodes, speed, 1e-3)

    def test_same_bytes(self):
        for cluster in REFERENCE, PAPER, COUPLED:
            for policy in 'random', 'global_cache', 'ideal_pool':
                texts = []
                for _ in range(2):
                    self.simulate(SAMPLE, cluster, policy, '--seed', 5,
                                  '--slo-ttft', 2, '--speed', 20,
                                  '--requests-csv', self.path('r.csv'))
                    with open(self.path('r.json'), 'rb') as a, \
                            open(self.path('r.csv'), 'rb') as b:
                        texts.append(a.read() + b.read())
                self.assertEqual(*texts)

    def test_report(self):
        report = self.simulate(SAMPLE, PAPER, 'global_cache', '--timing',
                               '--requests', 50, '--requests-csv',
                               self.path('r.csv'))
        self.assertEqual(report['mode'], 'simulate')
        self.assertEqual(report['requests']['total'], 50)
        self.assertGreater(report['sim']['wall_s'], 0)
        self.assertGreater(report['sim']['requests_per_wall_s'], 0)
        self.assertGreater(report['sim']['events'], 50)
        self.assertEqual(report['transfers']['bytes'],
                         report['tokens']['fetched'] * 327680)
        first = report['replicas']['ranks'][0]
        self.assertEqual((first['rank'], first['block']), (1, 0))
        self.assertEqual(len(first['copies']),
                         len(report['replicas']['times_s']))
        self.assertEqual(report['replicas']['times_s'][:2], [0, 30])
        rows = self.read_csv('r.csv')
        self.assertEqual([int(r['index']) for r in rows], list(range(50)))
        ttft = sum(float(r['ttft_s']) for r in rows) / 50
        self.assertAlmostEqual(ttft, report['ttft_s']['mean'], delta=1e-6)
        # Without --timing nothing in the report depends on this machine.
        report = self.simulate(SAMPLE, PAPER, 'global_cache')
        self.assertIsNone(report['sim']['wall_s'])
        self.assertIsNone(report['sim']['requests_per_wall_s'])

    def test_options(self):
        one = self.simulate(SAMPLE, PAPER, 'global_cache', '--prefill', 2,
                            '--decode', 0)
        self.assertIsNone(one['tbt_s']['mean'])
        self.assertEqual(one['trace']['prefill_nodes'], 2)
        slow = self.simulate(SAMPLE, PAPER, 'global_cache', '--prefill', 2,
                             '--decode', 1, '--link-gbps', 10)
        fast = self.simulate(SAMPLE, PAPER, 'global_cache', '--prefill', 2,
                             '--decode', 1, '--link-gbps', 400)
        self.assertGreater(slow['ttft_s']['mean'] + slow['tbt_s']['mean'],
                           fast['ttft_s']['mean'] + fast['tbt_s']['mean'])
        part = self.simulate(SAMPLE, REFERENCE, 'local_cache', '--from', 70)
        self.assertEqual(part['requests']['total'], 10)
        zipped = self.path('s.gz')
        with open(SAMPLE, 'rb') as a, gzip.open(zipped, 'wb') as b:
            b.write(a.read())
        again = self.simulate(zipped, REFERENCE, 'local_cache', '--from', 70)
        self.assertEqual(part['ttft_s'], again['ttft_s'])

    def test_slo(self):
        """Rejected at arrival; no accepted one misses it by more than its
        prediction was off."""
        report = self.simulate(SAMPLE, REFERENCE, 'global_cache', '--prefill',
                               1, '--speed', 4, '--slo-ttft', 3,
                               '--requests-csv', self.path('r.csv'))
        self.assertGreater(report['requests']['rejected'], 5)
        self.assertEqual(report['slo']['effective'],
                         report['requests']['completed'])
        with open(self.path('r.csv'), encoding='utf-8') as file:
            for row in csv.DictReader(file):
                if row['outcome'] == 'completed':
                    ttft = float(row['ttft_s'])
                    off = abs(ttft - float(row['predicted_ttft_s']))
                    self.assertLessEqual(ttft, 3 + off + 1e-6)
        report = self.simulate(SAMPLE, REFERENCE, 'global_cache', '--prefill',
                               1, '--speed', 4, '--slo-ttft', 3,
                               '--admission', 'none')
        self.assertEqual(report['requests']['rejected'], 0)
        self.assertLess(report['slo']['effective'],
                        report['requests']['completed'])

    def test_effective_requests(self):
        """They are told where somebody asked for a limit."""
        for args in ('simulate',), ('compare', '--policies', 'plan'):
            for limit, told in ((), False), (('--slo-ttft', 3), True):
                done = replay(*args, '--trace', SAMPLE, '--cluster', REFERENCE,
                              '--requests', 5, *limit)
                self.assertEqual('effective' in done.stdout, told)

    def test_bad_lines(self):
        lines = read_file(SAMPLE).splitlines()
        lines[3] = '{"timestamp": "now"}'
        lines[5] = 'what'
        trace = self.write('bad.jsonl', '\n'.join(lines))
        replay('simulate', '--trace', trace, '--cluster', REFERENCE,
               '--policy', 'random', status=1, says='bad.jsonl:4: timestamp')
        report = self.simulate(trace, REFERENCE, 'random', '--skip-bad')
        self.assertEqual(report['requests']['total'], len(lines) - 2)
        self.assertEqual(report['sim']['skipped_lines'], 2)

    def refused(self, status, text, *args):
        replay('simulate', *args, status=status, says=text)

    def test_pipe(self):
        """A trace is read twice: what can be read once only is refused."""
        pipe = self.path('pipe')
        os.mkfifo(pipe)
        self.refused(1, 'pipe: not a regular file, and it is read more than '
                     'once', '--trace', pipe, '--cluster', REFERENCE,
                     '--policy', 'random')
        replay('size', '--trace', pipe, '--cluster-template',
               REFERENCE, '--slo-ttft', 3,
               status=1, says='pipe: not a regular file')

    def test_long_silence(self):
        """Copies are counted at 4096 times at most, however long it takes."""
        line = ('{"timestamp": %d, "input_length": 600, "output_length": 1, '
                '"hash_ids": [1, 2]}\n')
        trace = self.write('gap.jsonl', line % 0 + line % 3_000_000_000)
        copies = self.simulate(trace, REFERENCE, 'local_cache')['replicas']
        times = copies['times_s']
        self.assertLessEqual(len(times), 4096)
        self.assertGreater(len(times), 2048)
        self.assertEqual(copies['interval_s'], 30 * 32)
        self.assertEqual(times, [i * 960 for i in range(len(times))])
        self.assertGreater(times[-1], 3_000_000 - 960)
        self.assertEqual(copies['ranks'][0]['copies'][1:],
                         [1] * (len(times) - 1))

    def test_policy_option(self):
        """The policy's numbers decide, and stand in the report."""
        def random(*args):
            return self.simulate(SAMPLE, PAPER, 'random', *args)
        plain, seeded = random(), random('--policy-option', 'seed=5')
        self.assertEqual(seeded.pop('policy_options'), {'seed': 5})
        old = random('--seed', 5)
        self.assertNotEqual(plain['ttft_s'], seeded['ttft_s'])
        self.assertEqual(old['ttft_s'], seeded['ttft_s'])
        both = random('--seed', 7, '--policy-option', 'seed=5')
        self.assertEqual(old['ttft_s'], both['ttft_s'])

    def test_rules_off(self):
        """With every rule off the policy decides as before there were any."""
        off = [word for rule in RULES
               for word in ('--policy-option', f'{rule}=0')]
        for (cluster, speed, slo), expected in BEFORE_RULES.items():
            def run(*more):
                r = self.simulate(
                    SAMPLE, os.path.join(CLUSTERS, cluster + '.json'), 'plan',
                    '--prefill', 2, '--speed', speed,
                    *(['--slo-ttft', slo] if slo else []), *more)
                return (r['ttft_s']['mean'], r['requests']['rejected'],
                        r['prefix_hit_ratio'])
            with self.subTest(cluster=cluster, speed=speed, slo=slo):
                self.assertEqual(run(*off), expected)
                self.assertNotEqual(run(), expected)

    def test_warm_on_reject(self):
        """A prompt that is too long is computed while nothing else is to be
        done: asked for again, it is in time. Short ones come all the while."""
        def line(at_ms, ids):
            return json.dumps({'timestamp': at_ms, 'output_length': 1,
                               'input_length': 512 * len(ids),
                               'hash_ids': list(ids)})
        lines = [line(0, range(128)), line(1, range(128))]
        lines += [line(100 * i, [1000 + i]) for i in range(1, 600)]
        lines.append(line(60000, range(129)))
        trace = self.write('t.jsonl', '\n'.join(lines) + '\n')

        def run(*more):
            return self.simulate(trace, REFERENCE, 'plan', '--prefill', 1,
                                 '--slo-ttft', 4, *more)
        off = run('--policy-option', 'warm_on_reject=0')
        self.assertEqual(off['requests']['rejected'], 3)
        self.assertNotIn('warm', off)
        on = run()
        one = run('--policy-option', 'warm_on_reject=1')
        self.assertEqual(one.pop('policy_options'), {'warm_on_reject': 1})
        self.assertEqual(one, on)
        self.assertEqual(on['requests']['total'], 602)
        self.assertEqual(on['requests']['rejected'], 2)
        self.assertEqual(on['warm'], {
            'jobs': 1, 'joined': 1, 'crowded': 0, 'begun': 1, 'pieces': 128,
            'tokens': 65536, 'done': 1, 'late': 0, 'dropped': 0})
        self.assertLess(on['ttft_s']['max'], 4)

    def test_warm_of_conductors(self):
        """Each of two conductors computes what it refused, although it knows
        nothing of the other one's pieces."""
        trace = self.write('t.jsonl', ''.join(json.dumps(
            {'timestamp': at, 'output_length': 1, 'input_length': 512 * n,
             'hash_ids': list(range(n))}) + '\n'
            for at, n in ((0, 128), (1, 128), (60000, 129), (60001, 1))))
        report = self.simulate(trace, PAPER, 'plan', '--prefill', 1,
                               '--slo-ttft', 4, '--conductors', 2)
        self.assertEqual(report['requests']['rejected'], 2)
        warm = report['warm']
        self.assertEqual((warm['jobs'], warm['joined'], warm['begun']),
                         (2, 0, 2))
        self.assertEqual(warm['done'], 2)

    def test_tenants(self):
        """Nine of ten requests, and more than can be served, are of one tenant;
        the other one's are longer, so that the order alone puts them last."""
        lines = []
        for i in range(600):
            tenant, n = (2, 12) if i % 10 == 9 else (1, 8)
            lines.append(json.dumps({
                'timestamp': 70 * i, 'input_length': 512 * n,
                'output_length': 1, 'tenant': tenant,
                'hash_ids': [i * 16 + k for k in range(n)],
                **({'priority': -1} if i == 9 else {})}))
        trace = self.write('t.jsonl', '\n'.join(lines) + '\n')

        def means(*more):
            report = self.simulate(trace, REFERENCE, 'plan', '--prefill', 1,
                                   *more)
            tenants = {t['tenant']: t for t in report['tenants']}
            self.assertEqual([tenants[k]['total'] for k in (1, 2)], [540, 60])
            self.assertEqual(report['requests']['completed'], 600)
            return [tenants[k]['ttft_mean_s'] for k in (1, 2)]
        greedy, modest = means()
        self.assertLess(2 * modest, greedy)
        greedy, modest = means('--policy-option', 'shares=0')
        self.assertLess(greedy, modest)
        _, light = means('--weights', '9,1')
        _, heavy = means('--weights', '1,9')
        self.assertLess(2 * heavy, light)
        replay('simulate', '--trace', trace, '--cluster', REFERENCE,
               '--policy', 'plan', '--weights', '3,,1',
               status=2, says='--weights 3,,1: must be')
        done = replay('simulate', '--trace', SAMPLE, '--cluster', REFERENCE,
                      '--weights', '3,1')
        self.assertIn('warning: --weights 3,1: more than the trace has '
                      'tenants', done.stderr)
        replay('simulate', '--trace', SAMPLE, '--cluster', REFERENCE,
               '--nodes-interval', '1',
               status=2, says='--nodes-interval: needs --nodes-csv')

    def full_decodes(self, kv_tokens, every, aggregated=False):
        """A cluster whose decode node has little room, and a trace of 60 s:
        every: (tenant, period in ms, input, output tokens)."""
        nodes = {
            'prefill': {'nodes': 2, 'order': 'fifo', 'step_tokens': 512,
                        'max_waiting': 1023, 'device': {'tokens': 3000000}},
            'decode': {'nodes': 1, 'kv_tokens': kv_tokens, 'max_batch': 64}}
        if aggregated:
            nodes = {'coupled': {'nodes': 2, 'kv_tokens': kv_tokens // 2,
                                 'max_batch': 64, 'step_tokens': 2048}}
        cluster = self.write('c.json', json.dumps({
            'format': 'conductor-cluster', 'version': 1, 'name': 'full',
            'model': {'layers': 32, 'kv_bytes_per_token': 1000,
                      'block_tokens': 512},
            'cost': {'kind': 'polynomial', 'prefill_us': [1000, 100, 0, 0],
                     'decode_us': [20000, 100, 0]},
            **nodes, 'links': {'gbps': 100, 'shared': True}}))
        come = sorted((at, *one[:1], *one[2:]) for one in every
                      for at in range(one[1], 60000, one[1]))
        return cluster, self.write('t.jsonl', ''.join(
            json.dumps({'timestamp': at, 'tenant': tenant, 'input_length': n,
                        'output_length': m,
                        'hash_ids': [i * 64 + k for k in range(-(-n // 512))]})
            + '\n' for i, (at, tenant, n, m) in enumerate(come)))

    def rows(self, trace, cluster, *args):
        """What became of each request."""
        path = self.path('r.csv')
        self.simulate(trace, cluster, 'plan', '--requests-csv', path, *args)
        return list(csv.DictReader(read_file(path).splitlines()))

    def test_large_ones_wait(self):
        """More long prompts wait for room to decode than can be sent: short
        ones go past them, and those that do not decode wait for nobody."""
        cluster, trace = self.full_decodes(40000, (
            (1, 833, 20000, 50), (2, 250, 500, 1), (3, 500, 500, 20)))
        report = self.simulate(trace, cluster, 'plan', '--policy-option',
                               'shares=0')
        means = {t['tenant']: t['ttft_mean_s'] for t in report['tenants']}
        self.assertEqual(report['requests']['completed'],
                         report['requests']['total'])
        self.assertGreater(means[1], 20)
        self.assertLess(means[2], 1)
        self.assertLess(means[3], 2)
        reasons = {row['reason'] for row in self.rows(
            trace, cluster, '--policy-option', 'links=0', '--slo-ttft', 10,
            '--slo-tbt', 0.05, '--policy-option', 'shares=0')}
        self.assertEqual(reasons, {'', 'no_capacity', 'reject_slo_ttft'})

    def test_shares_of_decodes(self):
        """One tenant's long answers could fill all room to decode. Another one
        that asks for less than its share gets it; where both ask for too much,
        each gets at least half of its share of what it uses most of: here room
        to decode and prefills."""
        for aggregated in False, True:
            cluster, trace = self.full_decodes(
                40000, ((1, 50, 64, 1000), (2, 2000, 4000, 50)), aggregated)
            late = [row for row in self.rows(trace, cluster)
                    if row['input_tokens'] == '4000' and
                    float(row['ttft_s']) > 45]
            self.assertEqual(late, [])
        cluster, trace = self.full_decodes(
            40000, ((1, 50, 64, 1000), (2, 166, 4000, 50)))
        room = prefills = 0
        for row in self.rows(trace, cluster):
            begin, end = (float(row['intended_s']) + float(row[k])
                          for k in ('ttft_s', 'total_s'))
            if row['input_tokens'] == '64':
                room += 1064 * max(0, min(end, 60) - max(begin, 0))
            elif begin < 60:
                prefills += float(row['prefill_s'])
        self.assertGreater(room, 40000 * 60 / 4)
        self.assertGreater(prefills, 2 * 60 / 4)

    def test_nodes_csv(self):
        """What nodes did adds up to the requests, and queues are what is
        between acceptance and begin. The report does not change."""
        interval = 0.7303
        args = ['--speed', 8, '--prefill', 3, '--decode', 2, '--requests-csv',
                self.path('q.csv')]
        plain = self.simulate(SAMPLE, PAPER, 'local_cache', *args)
        self.assertEqual(
            self.simulate(SAMPLE, PAPER, 'local_cache', *args, '--nodes-csv',
                          self.path('n.csv'), '--nodes-interval', interval),
            plain)
        samples = self.read_csv('n.csv')
        with open(self.path('q.csv'), encoding='utf-8') as file:
            requests = [r for r in csv.DictReader(file) if r['ttft_s']]
        self.assertEqual([s['node'] for s in samples[:5]],
                         ['prefill-0', 'prefill-1', 'prefill-2', 'decode-0',
                          'decode-1'])
        self.assertEqual(len(samples) // 5, int(plain['wall_s'] / interval))
        deepest = 0
        for s in samples:
            at, node = float(s['time_s']), s['node']
            begun = [(float(r['intended_s']),
                      float(r['intended_s']) + float(r['queue_s']))
                     for r in requests if r['prefill'] == node]
            waiting = sum(a < at < b for a, b in begun)
            deepest = max(deepest, waiting)
            self.assertEqual(int(s['waiting']), waiting, s)
            self.assertLessEqual(float(s['prefill_busy_ratio']),
                                 float(s['busy_ratio']))
            self.assertLessEqual(float(s['busy_ratio']), 1)
        self.assertGreater(deepest, 3)
        for node in ('prefill-0', 'prefill-1', 'prefill-2'):
            spent = sum(float(s['prefill_busy_ratio']) * interval
                        for s in samples if s['node'] == node)
            self.assertAlmostEqual(
                spent, sum(float(r['prefill_s']) for r in requests
                           if r['prefill'] == node), delta=0.001)
        self.refused(2, '--nodes-interval 0: must be', '--trace', SAMPLE,
                     '--cluster', PAPER, '--policy', 'random',
                     '--nodes-interval', 0)

    def test_conductors(self):
        """Of several it says how many and how late, and each request ends
        once. One has nobody to hear from."""
        def report(*options):
            path = self.path('r.json')
            r = replay('simulate', '--trace', SAMPLE, '--cluster', PAPER,
                       '--speed', 4, '--slo-ttft', 10, *options, '--report',
                       path)
            return r.stdout, read_file(path)

        self.assertEqual(report(), report('--conductors', 1))
        for options, told in (
                (('--state-delay', 50), '--state-delay: needs --conductors N'),
                (('--conductors-drawn',), '--conductors-drawn: needs'),
                (('--conductors', 1, '--nothing-shared'),
                 '--nothing-shared: needs'),
                (('--conductors', 2, '--state-delay', 0, '--nothing-shared'),
                 '--state-delay 0: --nothing-shared says')):
            self.refused(2, told, '--trace', SAMPLE, '--cluster', PAPER,
                         *options)
        shown, text = report('--conductors', 4, '--state-delay', 50)
        self.assertIn('4 conductors, requests in turn; state 50 ms old\n',
                      shown)
        found = json.loads(text)
        self.assertEqual(found['conductors'],
                         {'count': 4, 'state_delay_ms': 50.0, 'drawn': False,
                          'crowded': 0})
        self.assertEqual(found['requests']['total'], 80)
        shown, text = report('--conductors', 4, '--nothing-shared',
                             '--conductors-drawn')
        self.assertIn('4 conductors, requests at random; nothing shared\n',
                      shown)
        self.assertIsNone(json.loads(text)['conductors']['state_delay_ms'])
        # A group may have what another one's prompt is computed by.
        shown, text = report('--conductors', 4, '--nothing-shared',
                             '--policy-option', 'lend_ms=0')
        self.assertEqual(json.loads(text)['requests']['total'], 80)
        replay('simulate', '--trace', SAMPLE, '--cluster', REFERENCE,
               '--conductors', 2, status=1, says='2 conductors: cluster '
               'reference-16 has cache_at "dispatch"')

    def test_words(self):
        good = '--trace', SAMPLE, '--cluster', REFERENCE
        self.refused(2, 'is not one of random round_robin least_loaded '
                     'local_cache global_cache', *good, '--policy', 'best')
        for option, words in (
                ('wait=0', 'wait=0: no such option (did you mean '
                           'wait_price?); policy plan has '
                           'wait_price'),
                ('wait_price=-1', 'wait_price=-1 of policy plan: must be a '
                                  'number from 0 to 1000000'),
                ('wait_price=0x10', 'wait_price: 0x10: must be a number'),
                ('wait_price', 'must be NAME=NUMBER')):
            self.refused(2, words, *good, '--policy', 'plan',
                         '--policy-option', option)
        self.refused(2, 'must divide', *good, '--policy', 'random',
                     '--length-scale', 3)
        self.refused(1, 'blocks have 128 tokens', *good, '--policy', 'random',
                     '--length-scale', 4)
        self.refused(1, 'no.jsonl: No such file', '--trace', 'no.jsonl',
                     '--cluster', REFERENCE, '--policy', 'random')
        self.refused(1, 'no.json: No such file', '--trace', SAMPLE,
                     '--cluster', 'no.json', '--policy', 'random')
        bad = self.write('bad.json', '{"format": "conductor-cluster", '
                                     '"version": 2}')
        self.refused(1, 'bad.json: version: 2: must be 1', '--trace', SAMPLE, '--cluster', bad, '--policy',
                     'random')
        self.refused(1, 'coupled nodes do not go with', '--trace', SAMPLE,
                     '--cluster', COUPLED, '--policy', 'random', '--decode',
                     3)


if __name__ == '__main__':
    unittest.main()
