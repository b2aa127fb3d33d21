"""Refused prompts that workers compute in the background."""
import struct

from harness import BLOCK_TOKENS, Case, Cluster, program, total, wait_until
from test_failures import in_background
from test_order import PlayedWorker
import wire

PROMPT = [i * 7 % 250 for i in range(81 * BLOCK_TOKENS + 4)]
COST = {'prefill': (0, 1000, 0, 0)}  # a ms a token
BLOCKS = 2000  # 16 such prompts, and more


def ask(cluster, prompt=PROMPT, slo_ms=500, max_tokens=1):
    headers = {'x-slo-ttft-ms': str(slo_ms)} if slo_ms else None
    return cluster.api.complete(prompt, max_tokens, headers=headers)


def jobs(cluster, result):
    return cluster.api.metric('warm_jobs_total', result=result)


class Warm(Case):
    def refused(self, config=None):
        """A conductor with a played worker that has refused the prompt."""
        cluster = Cluster(self, config or {}, COST)
        cluster.start_conductor()
        link = PlayedWorker(cluster.ports['worker'], 'p', 'both',
                            blocks=BLOCKS)
        cluster.wait_ready(1, 1)
        reply = ask(cluster)
        self.assertError(reply, 429, 'first token')
        return cluster, link, reply.headers['x-conductor-request-id']

    def prefill(self, link, n, tokens):
        """The n-th PREFILL, of that prompt; returns its id."""
        rid, p = link.next(wire.PREFILL, n)
        self.seed, max_tokens = struct.unpack_from('<QI', p)
        count, = struct.unpack_from('<I', p, 42)
        self.assertEqual(max_tokens, 1)
        self.assertEqual(list(struct.unpack_from(f'<{count}I', p, 42 + 4)),
                         tokens)
        return rid

    def finish(self, link, rid, n_tokens):
        keys = wire.block_keys(PROMPT, BLOCK_TOKENS, self.seed)
        if n_tokens >= 512:
            link.hold(keys[:n_tokens // BLOCK_TOKENS], tier=0)
        link.prefilled(rid, 65, n_tokens)
        link.done(rid, 1)

    def test_requests_come_first(self):
        """Pieces of 512 tokens are sent one by one, and only while nothing
        else is accepted. Asked for again, the prompt is in time."""
        cluster, link, refused_id = self.refused()
        piece = self.prefill(link, 1, PROMPT[:512])
        explained = cluster.api.get(f'/admin/explain/{refused_id}')
        self.assertEqual((explained.body['state'], explained.body['warmed']),
                         ('rejected', True))
        status, text, _ = self.run_program(
            program('tools', 'conductorctl'), '-a',
            f"127.0.0.1:{cluster.ports['http']}", 'explain', refused_id)
        self.assertEqual(status, 0)
        self.assertIn('\nwarmed          to be computed in the background\n',
                      text)
        # A request is not kept back behind more than that piece.
        first = in_background(lambda: ask(cluster, [1] * 20, 60000))
        rid = self.prefill(link, 2, [1] * 20)
        self.finish(link, piece, 512)
        wait_until('the piece has ended', lambda: total(
            cluster.api.metrics(), 'conductor_instance_prefills_waiting') == 1)
        # Nor are others, while that one is there.
        second = in_background(lambda: ask(cluster, [2] * 20, 60000))
        other = self.prefill(link, 3, [2] * 20)
        self.finish(link, rid, 20)
        self.finish(link, other, 20)
        self.assertEqual([first().status, second().status], [200, 200])
        self.finish(link, self.prefill(link, 4, PROMPT[:1024]), 1024)
        self.finish(link, self.prefill(link, 5, PROMPT[:1296]), 1296)
        wait_until('all is there', lambda: jobs(cluster, 'done') == 1)
        again = in_background(lambda: ask(cluster))
        self.finish(link, self.prefill(link, 6, PROMPT), len(PROMPT))
        self.assertEqual(again().status, 200)
        metrics = cluster.api.metrics()
        self.assertEqual(metrics['conductor_warm_pieces_total'], 3)
        self.assertEqual(metrics['conductor_warm_tokens_total'], 1296)
        self.assertEqual(metrics['conductor_warm_jobs'], 0)
        self.assertEqual(metrics['conductor_prompt_tokens_total'],
                         40 + len(PROMPT))
        self.assertEqual(
            metrics['conductor_requests_total{outcome="completed"}'], 3)
        link.close()

    def test_pieces_that_fail(self):
        """The prompt is given up, and nothing else is."""
        cluster, link, _ = self.refused()
        rid = self.prefill(link, 1, PROMPT[:512])
        link.send(wire.frame(wire.FAILED, rid,
                             struct.pack('<H', 9) + wire.text('no')))
        wait_until('it is dropped', lambda: jobs(cluster, 'dropped') == 1)
        self.assertError(ask(cluster), 429, 'first token')
        self.prefill(link, 2, PROMPT[:512])
        link.close()
        wait_until('it is dropped', lambda: jobs(cluster, 'dropped') == 2)
        link = PlayedWorker(cluster.ports['worker'], 'q', 'both')
        cluster.wait_ready(1, 1)
        answer = in_background(lambda: ask(cluster, [1] * 20, 0))
        self.finish(link, self.prefill(link, 1, [1] * 20), 20)
        self.assertEqual(answer().status, 200)
        link.close()

    def test_pieces_that_are_forgotten(self):
        cluster, link, _ = self.refused({'request_timeout_ms': 1000})
        rid = self.prefill(link, 1, PROMPT[:512])
        self.assertEqual(link.next(wire.CANCEL)[0], rid)
        wait_until('it is dropped', lambda: jobs(cluster, 'dropped') == 1)
        link.close()

    def test_lies_about_pieces(self):
        """They end the connection, as those about requests do."""
        for kind, payload in (
                (wire.DONE, struct.pack('<I', 1)),
                (wire.PREFILL_DONE, bytes(85)),
                (wire.PREFILL_STARTED, b'')):
            cluster, link, _ = self.refused()
            rid = self.prefill(link, 1, PROMPT[:512])
            link.send(wire.frame(kind, rid, payload))
            wait_until('it is cut off', lambda:
                cluster.api.metric('bad_frames_total') == 1)
            link.close()
            self.stop(cluster.conductor)

    def test_workers(self):
        """A real worker computes what was refused, and the answer to it is
        as ever."""
        def answer(cluster, slo_ms):
            reply = ask(cluster, slo_ms=slo_ms, max_tokens=8).ok()
            return reply.body
        cold = self.cluster(cost=COST)
        expected = answer(cold, 0)
        for process in cold.processes():
            self.stop(process)
        cluster = self.cluster(cost=COST, kv_blocks=BLOCKS)
        self.assertError(ask(cluster), 429, 'first token')
        wait_until('it is warm', lambda: jobs(cluster, 'done') == 1)
        warm = answer(cluster, 500)
        self.assertEqual(warm['choices'], expected['choices'])
        self.assertEqual(
            warm['usage']['prompt_tokens_details']['cached_tokens'], 1296)
        self.assertEqual(cluster.api.metric('warm_pieces_total'),
                         3)

    def test_off(self):
        self.none_of(self.cluster(cost=COST, kv_blocks=BLOCKS, config={
            'policy_options': {'warm_on_reject': 0}}))

    def test_too_long(self):
        self.none_of(self.cluster(cost=COST, kv_blocks=1000))

    def none_of(self, cluster):
        self.assertError(ask(cluster), 429, 'first token')
        self.assertEqual(ask(cluster, [1] * 20).status, 200)
        metrics = cluster.api.metrics()
        self.assertEqual(metrics['conductor_warm_jobs'], 0)
        self.assertEqual(total(metrics, 'conductor_warm_pieces_total'), 0)
