"""The policy plan through the daemon, and why it decided as it did. Workers
played by the test say what they hold and how fast they read it."""
import os
import struct
import threading
import time

from harness import BLOCK_TOKENS, Case, Cluster, wait_until
from test_order import PlayedCase, PlayedWorker
import wire

BYTES_PER_TOKEN = 64
BLOCK_BYTES = BLOCK_TOKENS * BYTES_PER_TOKEN
PROMPT = 'p' * (10 * BLOCK_TOKENS + 5)


def parse_prefill(p):
    """What PREFILL says of loading: mode, sources."""
    at = 36
    n, = struct.unpack_from('<H', p, at)
    at += 2 + n + 2
    mode, n_sources = struct.unpack_from('<BB', p, at)
    at += 2
    sources = []
    for _ in range(n_sources):
        kind, n = struct.unpack_from('<BH', p, at)
        host = p[at + 3:at + 3 + n].decode()
        port, first, end = struct.unpack_from('<HII', p, at + 3 + n)
        at += 3 + n + 10
        sources.append((kind, host, port, first, end))
    return mode, sources


class Plan(PlayedCase):
    """A prefill worker p with a disk, a worker q that also prefills, and a
    prompt of ten blocks at 100 us a token."""

    CONFIG = {'policy': 'plan', 'max_retries': 0, 'worker_timeout_ms': 60000}
    COST = {'prefill': (0, 100, 0, 0)}

    def begin_cluster(self, **config):
        self.cluster_ = Cluster(self, {**self.CONFIG, **config}, self.COST)
        self.cluster_.start_conductor()
        self.p = PlayedWorker(self.cluster_.ports['worker'], 'p', 'prefill',
                              disk_blocks=1000)
        self.d = PlayedWorker(self.cluster_.ports['worker'], 'd', 'decode')
        self.cluster_.wait_ready(1, 1)

    def explain(self, request_id, status=200):
        reply = self.cluster_.api.get(f'/admin/explain/{request_id}')
        self.assertEqual(reply.status, status, reply.body)
        return reply.body

    def ask(self, name, number, computed, **reused):
        """One request of one token; returns what PREFILL said of loading."""
        self.begin(name, PROMPT, 1)
        rid, p = self.p.next(wire.PREFILL, number)
        self.p.prefilled(rid, 65, computed, **reused)
        self.p.done(rid, 1)
        self.finish()
        self.assertEqual(self.replies[name].status, 200, self.replies)
        return parse_prefill(p)

    def keys(self):
        """The keys of the prompt, with the seed of a first request."""
        self.begin('seed', 'hello', 1)
        rid, p = self.p.next(wire.PREFILL)
        self.p.prefilled(rid, 65, 5,
                         prefill_us=5 * self.COST['prefill'][1])  # as predicted
        self.p.done(rid, 1)
        self.finish()
        seed, = struct.unpack_from('<Q', p)
        return wire.block_keys(PROMPT.encode(), BLOCK_TOKENS, seed)

    def hold_on_disk(self):
        """p has the prompt on its disk, which reads a block in half the time
        that it takes to compute, 0.1 ms a token."""
        rate = BLOCK_BYTES * 2 * 10**6 // (BLOCK_TOKENS * 100)
        self.p.hold(self.keys(), tier=2)
        self.p.status(disk=10, rate=rate)
        gauge = 'conductor_instance_disk_bytes_per_second{instance="p"}'
        wait_until('the rate is known', lambda: self.cluster_.api.metrics()[
            gauge] == rate)

    def test_own_disk(self):
        self.begin_cluster()
        self.hold_on_disk()
        n = len(PROMPT)
        self.assertEqual(self.cluster_.api.metrics()[
            'conductor_instance_disk_used_tokens{instance="p"}'],
                         10 * BLOCK_TOKENS)
        # 3 blocks are computed, 7 loaded meanwhile.
        mode, sources = self.ask(
            'a', 2, n - 7 * BLOCK_TOKENS, disk=7 * BLOCK_TOKENS,
            load_us=12345, disk_bytes=7 * BLOCK_BYTES,
            load_mode=wire.LAYERWISE)  # as its command line may say
        self.assertEqual(mode, wire.BOTH)
        self.assertEqual(sources, [(wire.DISK, '', 0, 0, 10)])
        vendor = self.replies['a'].body['conductor']
        self.assertEqual(vendor['disk_tokens'], 7 * BLOCK_TOKENS)
        self.assertEqual(self.replies['a'].body['usage'][
            'prompt_tokens_details']['cached_tokens'], 7 * BLOCK_TOKENS)
        why = self.explain(vendor['request_id'])
        self.assertEqual(why['state'], 'completed')
        self.assertEqual((why['policy'], why['verdict'], why['prefill']),
                         ('plan', 'accept', 'p'))
        plan = why['plan']
        self.assertEqual((plan['mode'], plan['resident_blocks'],
                          plan['split_block'], plan['cached_blocks']),
                         ('both', 0, 3, 10))
        self.assertEqual(plan['engine_price'], 0)  # nobody else is there
        self.assertEqual((plan['evicted_us_per_token'],
                          why['candidates'][0]['evicted_tokens']), (0, 0))
        ms = BLOCK_TOKENS * 0.1
        self.assertEqual([(s['instance'], s['from'], s['from_block'],
                           s['to_block'], s['start_ms'])
                          for s in plan['sources']], [('p', 'disk', 3, 10, 0)])
        self.assertAlmostEqual(plan['sources'][0]['end_ms'], 3.5 * ms, 1)
        self.assertAlmostEqual(why['predicted']['ttft_ms'], 3.5 * ms + 0.5, 1)
        self.assertEqual([c['instance'] for c in why['candidates']], ['p'])
        actual = why['actual']
        self.assertEqual((actual['mode'], actual['disk_tokens'],
                          actual['load_ms']),
                         ('layerwise', 7 * BLOCK_TOKENS, 12.345))
        self.assertGreater(actual['ttft_ms'], 0)
        metrics = self.cluster_.api.metrics()
        for name, value in (('prefills_total{load="both"}', 0),
                            ('prefills_total{load="compute"}', 1),
                            ('prefills_total{load="layerwise"}', 1),
                            ('cached_tokens_total{source="disk"}',
                             7 * BLOCK_TOKENS),
                            ('disk_bytes_total', 7 * BLOCK_BYTES)):
            self.assertEqual(metrics['conductor_' + name], value, name)

    def test_queue_is_not_load(self):
        """A wait for a load is not counted as an error of the queue."""
        self.begin_cluster()
        self.begin('a', PROMPT, 1)
        rid, _ = self.p.next(wire.PREFILL)
        time.sleep(0.3)
        self.p.prefilled(rid, 65, len(PROMPT))
        self.p.done(rid, 1)
        self.finish()
        metrics = self.cluster_.api.metrics()
        name = 'conductor_queue_prediction_error_seconds'
        self.assertEqual(metrics[name + '_count'], 1)
        self.assertLess(metrics[name + '_sum'], 0.01)

    def test_a_peer(self):
        """q holds the prompt and is busy: p fetches some and computes some."""
        self.begin_cluster()
        keys = self.keys()
        self.cluster_.wait_ready(1, 1)
        q = PlayedWorker(self.cluster_.ports['worker'], 'q', 'prefill')
        q.hold(keys, tier=1)
        self.cluster_.wait_ready(2, 1)
        self.begin('long', PROMPT + 'x' * 9000, 1)
        q.next(wire.PREFILL)
        rate = 'conductor_instance_link_bytes_per_second{instance="q"}'
        self.assertEqual(self.cluster_.api.metrics()[rate], 1.25e9)
        self.begin('a', PROMPT, 1)
        rid, frame = self.p.next(wire.PREFILL, 2)
        # A millisecond of loading, after ten seconds of waiting for room.
        n = 10 * BLOCK_TOKENS
        self.p.prefilled(rid, 65, len(PROMPT) - n, fetched=n, fetch_us=10**7,
                         load_us=1000, fetch_bytes=25 * 10**5,
                         load_mode=wire.LOAD)
        self.p.done(rid, 1)
        wait_until('q is known to be faster', lambda:
                   self.cluster_.api.metrics()[rate] > 1.25e9)
        q.close()
        self.finish()
        mode, sources = parse_prefill(frame)
        self.assertIn(mode, (wire.LOAD, wire.LAYERWISE))
        self.assertEqual(sources, [(wire.PEER, '127.0.0.1', 9, 0, 10)])
        self.assertEqual(self.replies['long'].status, 502)
        name = self.replies['long'].headers['x-conductor-request-id']
        why = self.explain(name)
        self.assertEqual((why['state'], why['reason'], why['prefill']),
                         ('failed', 'worker_failed', 'q'))
        name = self.replies['a'].body['conductor']['request_id']
        source, = self.explain(name)['plan']['sources']
        self.assertEqual((source['instance'], source['from']), ('q', 'link'))

    def test_algorithm_1_is_explained_too(self):
        self.begin_cluster(policy='global_cache')
        mode, sources = self.ask('a', 1, len(PROMPT))
        self.assertEqual((mode, sources), (wire.AUTO, []))
        why = self.explain(self.replies['a'].body['conductor']['request_id'])
        self.assertEqual(why['plan']['mode'], 'auto')
        self.assertEqual(why['plan']['sources'], [])
        self.assertEqual(why['predicted']['load_ms'], 0)

    def test_own_disk_without_plans(self):
        """The worker reads its disk by itself, and that takes time:
        ten blocks, each in half the time that it takes to compute."""
        self.begin_cluster(policy='global_cache')
        self.hold_on_disk()
        mode, sources = self.ask('a', 2, 5, disk=10 * BLOCK_TOKENS)
        self.assertEqual((mode, sources), (wire.AUTO, []))
        why = self.explain(self.replies['a'].body['conductor']['request_id'])
        read_ms = 5 * BLOCK_TOKENS * 0.1
        for told in why['predicted'], why['candidates'][0]:
            self.assertAlmostEqual(told['load_ms'], read_ms, 2)
            self.assertAlmostEqual(told['ttft_ms'], read_ms + 0.5, 1)
        self.assertEqual(why['plan']['sources'], [])

    def test_sources_of_a_rejected_one(self):
        """Their times are from the decision on, too."""
        self.begin_cluster()
        self.hold_on_disk()
        reply = self.cluster_.api.post(
            '/v1/completions', {'prompt': PROMPT, 'max_tokens': 1},
            {'x-slo-ttft-ms': '1'})
        self.assertError(reply, 429)
        why = self.explain(reply.headers['x-conductor-request-id'])
        source, = why['plan']['sources']
        self.assertEqual(source['start_ms'], 0)
        self.assertAlmostEqual(source['end_ms'], why['predicted']['load_ms'])

    def test_rejected(self):
        self.begin_cluster()
        reply = self.cluster_.api.post(
            '/v1/completions', {'prompt': PROMPT, 'max_tokens': 1},
            {'x-slo-ttft-ms': '1'})
        self.assertError(reply, 429)
        name = reply.headers['x-conductor-request-id']
        why = self.explain(name)
        self.assertEqual((why['state'], why['reason'], why['verdict']),
                         ('rejected', 'slo_ttft_exceeded', 'reject_slo_ttft'))
        self.assertEqual(why['slo_ttft_ms'], 1)
        self.assertEqual(why['actual'], {'ttft_ms': None})

    def test_measured_paths(self):
        """What a worker says of others is said of it, and of what stands
        there; what cannot be closes its connection."""
        self.begin_cluster()
        port = self.cluster_.ports['worker']
        workers = {name: PlayedWorker(port, name, 'prefill', peer_port=at)
                   for name, at in (('q', 11), ('r', 12))}
        q, r = workers['q'], workers['r']
        host = '127.0.0.1'

        def rates():
            return {k: v for k, v in self.cluster_.api.metrics().items()
                    if k.startswith('conductor_instance_path_bytes')}

        def line(to, peer, transport):
            return (f'conductor_instance_path_bytes_per_second{{instance="{to}",'
                    f'from="{peer}",transport="{transport}"}}')
        q.paths((host, 9, 'tcp', 7 * 10 ** 8), (host, 12, 'x"y', 5),
                (host, 13, 'tcp', 6), ('10.9.9.9', 9, 'tcp', 6),
                (host, 11, 'tcp', 6), (host, 12, 'tcp', 9))
        r.paths((host, 9, 'shm', 6 * 10 ** 9), (host, 11, 'new2', 4))
        wait_until('rates are known', lambda: rates() == {
            line('q', 'p', 'tcp'): 7 * 10 ** 8, line('q', 'r', 'other'): 5,
            line('r', 'p', 'shm'): 6 * 10 ** 9, line('r', 'q', 'new2'): 4})
        q.paths()
        r.close()
        wait_until('they are not', lambda: rates() == {})
        for bad in ([(host, 9, 'tcp', 0)], [(host, 9, 'tcp', 1 << 45)],
                    [(host, 9, 'tcp', 1)] * 17):
            s = PlayedWorker(port, 's', 'prefill')
            s.paths(*bad)
            s.wait_closed()
        q.close()
        self.finish()

    def test_late_ones_stand_behind(self):
        """q, busy, has it on its disk: the best one, were it not too late."""
        self.COST = {'prefill': (0, 10000, 0, 0)}
        self.begin_cluster()
        keys = self.keys()
        q = PlayedWorker(self.cluster_.ports['worker'], 'q', 'prefill',
                         disk_blocks=1000)
        q.hold(keys, tier=2)
        q.status(disk=10, rate=10**6)
        gauge = 'conductor_instance_disk_bytes_per_second{instance="q"}'
        wait_until('the rate is known', lambda: self.cluster_.api.metrics(
            ).get(gauge) == 10**6)
        self.begin('long', 'x' * 250, 1)
        q.next(wire.PREFILL)

        def ask():
            self.replies['a'] = self.cluster_.api.post(
                '/v1/completions', {'prompt': PROMPT, 'max_tokens': 1},
                {'x-slo-ttft-ms': '2200'})
        self.threads.append(threading.Thread(target=ask))
        self.threads[-1].start()
        rid, _ = self.p.next(wire.PREFILL, 2)
        self.p.prefilled(rid, 65, len(PROMPT))
        self.p.done(rid, 1)
        q.close()
        self.finish()
        why = self.explain(self.replies['a'].body['conductor']['request_id'])
        p, q = why['candidates']
        self.assertEqual((p['instance'], p['late'], q['instance'], q['late']),
                         ('p', False, 'q', True))
        self.assertLess(q['score_ms'], p['score_ms'])

    def test_only_the_last_ones_are_known(self):
        self.begin_cluster(explain_requests=2)
        names = []
        for n in range(3):
            self.ask(n, n + 1, len(PROMPT))
            names.append(
                self.replies[n].body['conductor']['request_id'])
        self.explain(names[0], 404)
        for name in names[1:]:
            self.assertEqual(self.explain(name)['request_id'], name)
        for name in '', 'x', '-', names[2] + '0', 'z-' + names[2][-1]:
            self.explain(name, 404)

    def test_none_are_known(self):
        self.begin_cluster(explain_requests=0)
        self.ask('a', 1, len(PROMPT))
        self.explain(self.replies['a'].body['conductor']['request_id'], 404)


class RealWorkers(Case):
    """Real workers under the policy plan: the answers of every way."""

    def rounds(self, disk):
        """Eight prompts, three times over, of which memory holds one and a
        half on each of two prefill workers. Returns the answers of each
        round, and the explanations of all but the first."""
        cluster = Cluster(self, {'policy': 'plan', 'disk_mbps': 1000},
                          {'prefill': (0, 400, 0, 0)})
        cluster.start_conductor()
        for name in 'p0', 'p1':
            options = {'disk_path': os.path.join(self.folder, name + '.slab'),
                       'disk_mib': 64} if disk else {}
            cluster.start_worker(name, 'prefill', kv_blocks=64, **options)
        cluster.start_worker('d0', 'decode')
        cluster.wait_ready(2, 1)
        prompts = [chr(97 + i) * (40 * BLOCK_TOKENS + 3) for i in range(8)]
        answers, why = [], []
        for n in range(3):
            replies = [cluster.api.complete(prompt, 3) for prompt in prompts]
            self.assertEqual([r.status for r in replies], [200] * 8)
            answers.append([r.body['choices'][0]['text'] for r in replies])
            why += [cluster.api.get(
                '/admin/explain/' + r.body['conductor']['request_id']
            ).body for r in replies if n > 0]
        self.assertEqual(answers[1], answers[0])
        self.assertEqual(answers[2], answers[0])
        for w in why:
            self.assertEqual((w['state'], w['policy']), ('completed', 'plan'))
            self.assertEqual(
                sum(w['actual'][f'{source}_tokens'] for source in (
                    'local', 'fetched', 'disk', 'computed')),
                w['prompt_tokens'])
        return why

    def test_with_disks(self):
        why = self.rounds(disk=True)
        told = {(s['from'], w['plan']['mode'])
                for w in why for s in w['plan']['sources']}
        self.assertIn('disk', {kind for kind, _ in told}, why)
        self.assertGreater(sum(w['actual']['disk_tokens'] for w in why), 0)

    def test_without_disks(self):
        why = self.rounds(disk=False)
        self.assertEqual(sum(w['actual']['disk_tokens'] for w in why), 0)
        self.assertNotIn('disk', {s['from'] for w in why
                                  for s in w['plan']['sources']})
