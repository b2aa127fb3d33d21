"""What workers report comes over connections that nothing orders. Workers
played by this test make the orders happen that real ones make by chance."""
import socket
import struct
import threading
import time

from harness import BLOCK_TOKENS, Case, Cluster, wait_until
from test_failures import in_background
import wire


class PlayedWorker(wire.Link):
    """A worker's side of its link to a real conductor."""

    def __init__(self, port, name, role, disk_blocks=0, window=32768,
                 peer_port=9, blocks=1000):
        super().__init__(socket.create_connection(('127.0.0.1', port), 10))
        self.send(wire.frame(wire.HELLO, 0, struct.pack(
            '<IHHBBQ', wire.MAGIC, wire.VERSION, wire.VERSION, 2,
            wire.ROLES[role], 0) +
            wire.text(name) + wire.text('played') + wire.text('tiny') +
            struct.pack('<QIIIQQQII', 99, BLOCK_TOKENS, window, 512, blocks, 64,
                        disk_blocks, 64, 2) + wire.text('127.0.0.1') +
            struct.pack('<H', peer_port) + bytes(32)))
        welcome = self.wait(wire.WELCOME)
        self.queue_order = wire.text_at(welcome, 18)
        self.status()

    def status(self, used=0, pinned=0, disk=0, rate=0):
        self.send(wire.frame(wire.STATUS, 0, struct.pack(
            '<IIIQQQQ', 0, 0, 0, used, pinned, disk, rate)))

    def paths(self, *paths):
        """Each (host, port, transport, bytes a second)."""
        self.send(wire.frame(wire.PATHS, 0, bytes([len(paths)]) + b''.join(
            wire.text(host) + struct.pack('<H', port) + wire.text(transport) +
            struct.pack('<Q', rate) for host, port, transport, rate in paths)))

    def hold(self, keys, tier):
        """Reports a prompt's first blocks as stored."""
        self.send(wire.frame(wire.BLOCKS_STORED, 0, struct.pack(
            f'<BQI{len(keys)}Q', tier, 0, len(keys), *keys)))

    def next(self, kind, n=1):
        """The n-th frame of this kind so far: (request id, payload)."""
        def found(frames):
            some = [(rid, p) for k, rid, p in frames if k == kind]
            return some[n - 1] if len(some) >= n else None
        return self.until(f'frame {kind}, number {n}', found)

    def prefilled(self, rid, first, n_tokens, disk=0, load_us=0, disk_bytes=0,
                  prefill_us=5, load_mode=wire.COMPUTE, fetched=0, fetch_us=0,
                  fetch_bytes=0):
        self.send(wire.frame(wire.PREFILL_STARTED, rid, struct.pack('<Q', 1)))
        self.send(wire.frame(wire.PREFILL_DONE, rid, struct.pack(
            '<IIIIIQQQQQQBIQ', first, 0, fetched, n_tokens, disk, 1, fetch_us,
            fetch_bytes, prefill_us, load_us, disk_bytes, load_mode, 0, 0)))

    def decoded(self, rid, tokens):
        self.send(wire.frame(wire.TOKENS, 0, struct.pack('<I', len(tokens)) +
                             b''.join(struct.pack('<QII', rid, i + 1, t)
                                      for i, t in enumerate(tokens))))

    def done(self, rid, n):
        self.send(wire.frame(wire.DONE, rid, struct.pack('<I', n)))


class Windows(Case):
    def serve(self, cluster, links, window):
        """Prompts that only one of them has a window for."""
        self.assertEqual(window(), 1000)
        for n in range(1, 4):
            answer = in_background(lambda: cluster.api.complete([7] * 300, 1))
            rid, _ = links[1000].next(wire.PREFILL, n)
            links[1000].prefilled(rid, 65, 300)
            links[1000].done(rid, 1)
            self.assertEqual(answer().status, 200)
        self.assertError(cluster.api.complete([7] * 1001, 1), 400, 'window')
        links[1000].close()
        wait_until('one is left', lambda: window() == 100)
        self.assertError(cluster.api.complete([7] * 300, 1), 400, 'window')

    def test_each_instance_has_its_own(self):
        """A prompt is sent to no worker with a shorter window, whichever came
        first; the model's window is the longest that is there."""
        for order in (100, 1000), (1000, 100):
            cluster = Cluster(self, {'policy': 'round_robin'})
            cluster.start_conductor()
            links = {window: PlayedWorker(
                cluster.ports['worker'], f'p{window}', 'both',
                window=window) for window in order}

            def window():
                reply = cluster.api.get('/v1/models')
                return reply.body['data'][0]['max_model_len']
            wait_until('both are ready',
                       lambda: cluster.api.instances() == (2, 2))
            self.serve(cluster, links, window)
            links[100].close()
            self.stop(cluster.conductor)


class QueueOrder(Case):
    def test_the_conductor_says_how_workers_serve(self):
        """The order that a worker is told is the one that the pool estimates
        waits with (WELCOME takes it from there): both follow one option."""
        def told(role='prefill', **config):
            cluster = Cluster(self, config)
            cluster.start_conductor()
            p = PlayedWorker(cluster.ports['worker'], 'p', role)
            p.close()
            self.stop(cluster.conductor)
            return p.queue_order
        self.assertEqual(told(), 'shortest_first_yield')  # the policy's, plan's
        for order in ('fifo', 'fifo_strict', 'uncached_first'):
            self.assertEqual(told(policy='global_cache', queue_order=order),
                             order)
            self.assertEqual(told(policy_options={'order': 0},
                                  queue_order=order), order)
        self.assertEqual(told(policy_options={'preempt': 0}),
                         'shortest_first')
        # Where a prompt is one step, or shares steps, nothing interrupts it.
        self.assertEqual(told(step_tokens=0), 'shortest_first')
        self.assertEqual(told('both', pool='aggregated'), 'shortest_first')
        self.assertEqual(told(policy='global_cache'), 'uncached_first')


class Overhead(Case):
    def test_is_known_after_few_requests(self):
        """What a first token spends outside queue and prefill is the median of
        what the last requests showed, each at most 1 ms from it."""
        cluster = Cluster(self)
        cluster.start_conductor()
        p = PlayedWorker(cluster.ports['worker'], 'p', 'both')
        wait_until('it is ready', lambda: cluster.api.instances() == (1, 1))
        for n, want in enumerate((0.001, 0.001, 0.002, 0.002), 1):
            answer = in_background(lambda: cluster.api.complete([7] * 300, 1))
            rid, _ = p.next(wire.PREFILL, n)
            time.sleep(0.01)
            p.prefilled(rid, 65, 300)
            p.done(rid, 1)
            self.assertEqual(answer().status, 200)
            seen = cluster.api.metric('overhead_seconds')
            self.assertAlmostEqual(seen, want, 5)
        p.close()


class Correction(Case):
    def test_follows_as_fast_as_it_is_told(self):
        """One prefill that takes ten times its prediction. By default it
        stands for too little work to be believed."""
        ratios = []
        for config in {}, {'correction_ms': 1}:
            cluster = Cluster(self, config, {'prefill': [5000, 0, 0, 0]})
            cluster.start_conductor()
            p = PlayedWorker(cluster.ports['worker'], 'p', 'both')
            wait_until('it is ready', lambda: cluster.api.instances() == (1, 1))
            answer = in_background(lambda: cluster.api.complete([7] * 300, 1))
            rid, _ = p.next(wire.PREFILL)
            p.prefilled(rid, 65, 300, prefill_us=50000)
            p.done(rid, 1)
            self.assertEqual(answer().status, 200)
            ratios.append(cluster.api.metrics()[
                'conductor_instance_prefill_correction_ratio{instance="p"}'])
            p.close()
            self.stop(cluster.conductor)
        self.assertLess(ratios[0], 1.001)
        self.assertGreater(ratios[1], 3.9)  # 4 is the most


class Orphans(Case):
    def test_a_decode_worker_that_waits_for_a_lost_peer(self):
        """The prefill worker leaves before its KV_BEGIN: the decode worker
        lives, and never says a word about the request."""
        cluster = Cluster(self, {'worker_timeout_ms': 1000})
        cluster.start_conductor()
        port = cluster.ports['worker']
        p = PlayedWorker(port, 'p', 'prefill')
        d = PlayedWorker(port, 'd', 'decode')
        cluster.wait_ready(1, 1)
        replies = []
        thread = threading.Thread(
            target=lambda: replies.append(cluster.api.complete('hello', 4)))
        thread.start()
        rid, _ = d.next(wire.DECODE)
        d.send(wire.frame(wire.DECODE_READY, rid))
        p.next(wire.PREFILL)
        p.prefilled(rid, 65, 5)
        wait_until('token 0 is out', lambda:
            cluster.api.metric('output_tokens_total') == 1)
        p.close()
        for _ in range(100):
            d.send(wire.frame(wire.STATUS, 0, bytes(44)))
            thread.join(0.1)
            if replies:
                break
        self.assertEqual([r.status for r in replies], [503])
        self.assertIn('prefill worker', replies[0].body['error']['message'])
        d.wait(wire.CANCEL, rid)
        self.assertEqual(cluster.api.instances(), (0, 1))
        d.close()


class PlayedCase(Case):
    """Requests in the background, to a cluster_ of played workers p and d."""

    def setUp(self):
        super().setUp()
        self.cluster_ = None
        self.p = self.d = None
        self.replies = {}
        self.threads = []

    def tearDown(self):
        for worker in self.p, self.d:
            if worker:
                worker.close()
        super().tearDown()

    def begin(self, name, prompt, max_tokens, **more):
        def run():
            try:
                self.replies[name] = self.cluster_.api.complete(
                    prompt, max_tokens, **more)
            except OSError:
                pass  # its conductor was killed
        self.threads.append(threading.Thread(target=run))
        self.threads[-1].start()

    def finish(self):
        for thread in self.threads:
            thread.join(30)


class Promises(PlayedCase):
    """A request that is accepted with a limit on its TTFT was promised it."""

    def test_broken(self):
        self.cluster_ = Cluster(self, {'slo_ttft_ms': 300})
        self.cluster_.start_conductor()
        port = self.cluster_.ports['worker']
        self.p = PlayedWorker(port, 'p', 'prefill')
        self.d = PlayedWorker(port, 'd', 'decode')
        self.cluster_.wait_ready(1, 1)
        self.begin('a', 'hello', 4)
        rid, _ = self.d.next(wire.DECODE)
        asked = time.monotonic()
        self.d.send(wire.frame(wire.DECODE_READY, rid))
        self.p.next(wire.PREFILL)
        wait_until('its time is over', lambda: time.monotonic() > asked + 0.3)
        self.p.prefilled(rid, 65, 5)
        self.d.decoded(rid, [66, 67, 68])
        self.d.done(rid, 4)
        self.finish()
        self.assertEqual(self.replies['a'].status, 200, self.replies)
        metrics = self.cluster_.api.metrics()
        want = {'promises_total': 1,
                'promises_broken_total{cause="other"}': 1,
                'promises_broken_total{cause="retried"}': 0,
                'promise_late_seconds_count': 1,
                'effective_requests_total': 0, 'effective_tokens_total': 0,
                'offered_tokens_total': 5}
        self.assertEqual(want, {k: metrics[f'conductor_{k}'] for k in want})


class HeldFirst(PlayedCase):
    """A first token that waits for the KV that the others need."""

    def prefilled(self, slo_ttft_ms):
        self.cluster_ = Cluster(self, {'slo_ttft_ms': slo_ttft_ms,
                                       'slo_tbt_ms': 1000})
        self.cluster_.start_conductor()
        port = self.cluster_.ports['worker']
        self.p = PlayedWorker(port, 'p', 'prefill')
        self.d = PlayedWorker(port, 'd', 'decode')
        self.cluster_.wait_ready(1, 1)
        self.begin('a', 'hello', 4)
        rid, _ = self.d.next(wire.DECODE)
        self.d.send(wire.frame(wire.DECODE_READY, rid))
        self.p.next(wire.PREFILL)
        self.p.prefilled(rid, 65, 5)
        wait_until('the prefill is over', lambda:
            self.cluster_.api.metric('prefill_seconds_count') == 1)
        return rid

    def out(self):
        return self.cluster_.api.metric('output_tokens_total')

    def ends(self, rid):
        self.d.decoded(rid, [66, 67, 68])
        self.d.done(rid, 4)
        self.finish()
        self.assertEqual(self.replies['a'].status, 200, self.replies)
        self.assertEqual(self.replies['a'].body['choices'][0]['text'], 'ABCD')
        self.assertEqual(self.out(), 4)

    def test_until_the_next_one(self):
        rid = self.prefilled(600000)
        self.assertEqual(self.out(), 0)
        self.ends(rid)

    def test_until_its_ttft_is_nearly_over(self):
        rid = self.prefilled(2000)
        wait_until('it is out', lambda: self.out() == 1)
        self.assertGreater(
            self.cluster_.api.metric('time_to_first_token_seconds_sum'), 1.9)
        self.ends(rid)

    def test_its_worker_is_lost(self):
        """Nobody has a token yet: the request begins anew elsewhere."""
        self.prefilled(600000)
        other = PlayedWorker(self.cluster_.ports['worker'], 'e', 'decode')
        self.cluster_.wait_ready(1, 2)
        self.d.close()
        self.d = other
        rid, _ = self.d.next(wire.DECODE)
        self.d.send(wire.frame(wire.DECODE_READY, rid))
        self.p.next(wire.PREFILL, 2)
        self.p.prefilled(rid, 65, 5)
        self.ends(rid)


class Order(PlayedCase):
    def setUp(self):
        super().setUp()
        self.cluster_ = Cluster(self, {'max_retries': 0,
                                       'worker_timeout_ms': 60000})
        self.join()

    def join(self):
        self.cluster_.start_conductor()
        port = self.cluster_.ports['worker']
        self.p = PlayedWorker(port, 'p', 'prefill')
        self.d = PlayedWorker(port, 'd', 'decode')
        self.cluster_.wait_ready(1, 1)

    def announced(self, n=1):
        rid, _ = self.d.next(wire.DECODE, n)
        return rid

    def restart_conductor(self):
        """The same cluster under a new conductor; its workers are new too."""
        self.p.close()
        self.d.close()
        self.cluster_.conductor.kill()
        self.join()

    def ready(self, rid):
        self.d.send(wire.frame(wire.DECODE_READY, rid))

    def test_tokens_before_token_0(self):
        self.begin('a', 'hello', 4)
        rid = self.announced()
        self.ready(rid)
        self.p.next(wire.PREFILL)
        self.d.decoded(rid, [66, 67, 68])
        self.d.done(rid, 4)
        # The conductor has read them when it answers what came after.
        self.d.send(wire.frame(wire.BLOCKS_CLEARED))
        self.d.send(wire.frame(wire.STATUS, 0, struct.pack(
            '<IIIQQQQ', 0, 0, 0, 7, 0, 0, 0)))
        key = 'conductor_instance_kv_used_tokens{instance="d"}'
        while self.cluster_.api.metrics()[key] != 7 * BLOCK_TOKENS:
            pass
        self.p.prefilled(rid, 65, 5)
        self.finish()
        self.assertEqual(self.replies['a'].status, 200, self.replies)
        self.assertEqual(self.replies['a'].body['choices'][0]['text'], 'ABCD')
        self.assertEqual(self.cluster_.api.instances(), (1, 1))

    def test_a_gap_in_early_tokens_costs_the_link(self):
        self.begin('a', 'hello', 4)
        rid = self.announced()
        self.ready(rid)
        self.p.next(wire.PREFILL)
        self.d.send(wire.frame(wire.TOKENS, 0, struct.pack(
            '<IQII', 1, rid, 2, 66)))
        self.d.wait_closed()
        self.finish()
        self.assertEqual(self.replies['a'].status, 502, self.replies)

    def status(self, used, pinned, disk=0, rate=0):
        self.d.status(used, pinned, disk, rate)

    def test_status_counts_blocks(self):
        def gauge(name):
            return self.cluster_.api.metric(f'instance_{name}', instance='d')
        self.status(1000, 3)
        wait_until('the status is read', lambda: gauge(
            'kv_used_tokens') == 1000 * BLOCK_TOKENS)
        self.assertEqual(gauge('kv_pinned_tokens'), 3 * BLOCK_TOKENS)
        self.assertEqual(gauge('kv_capacity_tokens'), 1000 * BLOCK_TOKENS)
        self.status(1001, 3)  # it has 1000
        self.d.wait_closed()

    def test_status_pins_more_than_it_uses(self):
        self.status(3, 4)
        self.d.wait_closed()

    def test_status_of_a_disk_that_is_none(self):
        self.status(3, 3, disk=1)
        self.d.wait_closed()

    def test_status_of_a_rate_that_is_none(self):
        self.status(3, 3, rate=1 << 63)
        self.d.wait_closed()

    def test_reports_out_of_bounds_cost_the_link(self):
        good = {'first': 65, 'local': 0, 'fetched': 0, 'computed': 5,
                'disk': 0, 'queue_us': 1, 'fetch_us': 0, 'fetch_bytes': 0,
                'prefill_us': 5, 'load_us': 0, 'disk_bytes': 0,
                'load_mode': 1}
        for n, (field, value) in enumerate((
                ('first', 512), ('queue_us', 1 << 63),
                ('fetch_us', (1 << 64) - 1), ('fetch_bytes', 1 << 62),
                ('prefill_us', 10**12 + 1), ('load_us', 10**12 + 1),
                ('disk_bytes', 1 << 62), ('disk', 1), ('load_mode', 0),
                ('load_mode', 5)), 1):
            with self.subTest(field=field):
                self.begin(field, 'hello', 4)
                rid = self.announced(n)
                self.ready(rid)
                self.p.next(wire.PREFILL)
                self.p.send(wire.frame(wire.PREFILL_STARTED, rid,
                                       struct.pack('<Q', 1)))
                self.p.send(wire.frame(wire.PREFILL_DONE, rid, struct.pack(
                    '<IIIIIQQQQQQBIQ', *{**good, field: value}.values(), 0, 0)))
                self.p.wait_closed()
                self.finish()
                self.assertEqual(self.replies[field].status, 502)
            self.p = PlayedWorker(self.cluster_.ports['worker'], 'p',
                                  'prefill')
            self.cluster_.wait_ready(1, 1)

    def test_the_longest_report_is_taken(self):
        self.begin('a', 'hello', 1)
        rid, _ = self.p.next(wire.PREFILL)
        self.p.send(wire.frame(wire.PREFILL_STARTED, rid,
                               struct.pack('<Q', 1)))
        self.p.send(wire.frame(wire.PREFILL_DONE, rid, struct.pack(
            '<IIIIIQQQQQQBIQ', 511, 0, 0, 5, 0, *[10**12, 10**12, 1 << 50,
                                               10**12, 10**12, 1 << 50, 4],
            0, 1 << 50)))
        self.p.done(rid, 1)
        self.finish()
        self.assertEqual(self.replies['a'].status, 200, self.replies)

    def test_a_token_out_of_the_vocabulary_costs_the_link(self):
        self.begin('a', 'hello', 4)
        rid = self.announced()
        self.ready(rid)
        self.p.next(wire.PREFILL)
        self.d.decoded(rid, [66, 512])
        self.d.wait_closed()
        self.finish()
        self.assertEqual(self.replies['a'].status, 502, self.replies)

    def test_ids_of_two_conductors_do_not_meet(self):
        """A straggler of the first must not name a request of the second."""
        self.begin('a', 'hello', 4)
        old = self.announced()
        self.restart_conductor()
        self.threads.clear()
        self.begin('b', 'hello', 4)
        new = self.announced()
        self.assertGreater(abs(old - new), 1 << 20)
        self.d.close()
        self.finish()
        self.assertEqual(self.replies['b'].status, 502, self.replies)

    def test_decode_announces_the_prompt(self):
        """DECODE's digest is that of PREFILL's tokens and key seed."""
        mine = {'cache_salt': 'mine'}
        for n, (prompt, salt) in enumerate((('hello', {}), ('hello', mine),
                                            ('h' * 500, {})), 1):
            self.begin(n, prompt, 4, **salt)
            rid, p = self.d.next(wire.DECODE, n)
            *lengths, digest = struct.unpack('<IIQ', p)
            self.assertEqual(lengths, [len(prompt), 4])
            self.ready(rid)
            _, p = self.p.next(wire.PREFILL, n)
            seed, = struct.unpack_from('<Q', p)
            self.assertEqual(digest, wire.prompt_digest(prompt.encode(), seed))
        self.d.close()
        self.finish()

    def test_one_token_waits_its_turn(self):
        """PREFILLs leave in the order of the decisions."""
        self.begin('a', 'first of two', 4)
        first = self.announced()
        self.begin('b', 'second', 1)
        in_flight = 'conductor_requests_in_flight'
        while self.cluster_.api.metrics()[in_flight] != 2:
            pass
        self.ready(first)
        sent = [self.p.next(wire.PREFILL, n)[0] for n in (1, 2)]
        # On a machine that stalls for the patience of 5 ms the second may
        # leave first: what counts here is that both leave and are served.
        self.assertIn(first, sent)
        second = next(r for r in sent if r != first)
        self.p.prefilled(first, 65, 12)
        self.d.decoded(first, [66, 67, 68])
        self.d.done(first, 4)
        self.p.prefilled(second, 90, 6)
        self.p.done(second, 1)
        self.finish()
        texts = [self.replies[k].body['choices'][0]['text'] for k in 'ab']
        self.assertEqual(texts, ['ABCD', 'Z'])

    def test_a_silent_decode_worker_holds_nobody_up(self):
        self.begin('a', 'never announced', 4)
        self.announced()
        self.begin('b', 'goes on', 1)
        rid, _ = self.p.next(wire.PREFILL)
        self.p.prefilled(rid, 90, 7)
        self.p.done(rid, 1)
        self.threads[1].join(30)
        self.assertEqual(self.replies['b'].status, 200)
        self.d.close()
        self.finish()
        self.assertEqual(self.replies['a'].status, 502, self.replies)
