"""Workers that die, clients that leave: nothing hangs, nothing is lost in
silence."""
import json
import os
import re
import signal
import socket
import struct
import threading
import time

from harness import (BLOCK_TOKENS, Case, Peer, cost_model_json, mostly_waits,
                     settings, total, wait_until)
import wire

TEXT = 'The quick brown fox jumps over the lazy dog. '
# A prefill that takes 1.5 s at once, and decode steps of 50 ms.
SLOW_PREFILL = {'prefill': (1500000, 0, 0, 0)}
# One that takes 20 s for 20,000 tokens, step by step.
STEADY_PREFILL = {'prefill': (0, 1000, 0, 0)}
SLOW_DECODE = {'prefill': (1000, 0, 0, 0), 'decode': (50000, 0, 0)}


def in_background(call):
    """Starts call(); returns a function that waits for what it returned."""
    box = []

    def run():
        try:
            box.append(call())
        except Exception as e:  # noqa: BLE001, handed over to the test
            box.append(e)
    thread = threading.Thread(target=run, daemon=True)
    thread.start()

    def result():
        thread.join(60 * settings.scale)
        if not box:
            raise AssertionError('a request hangs')
        if isinstance(box[0], Exception):
            raise box[0]
        return box[0]
    return result


class KilledWorkers(Case):
    def busy(self, cluster, role='prefill'):
        """The worker that has the request."""
        gauge = {'prefill': 'prefills_running', 'decode': 'decodes'}[role]

        def find():
            metrics = cluster.api.metrics()
            for name, worker in cluster.workers.items():
                if metrics.get(f'conductor_instance_{gauge}'
                               f'{{instance="{name}"}}'):
                    return worker
            return None
        return wait_until(f'a {role} worker has the request', find)

    def test_a_worker_that_leaves(self):
        """One without work has left; nothing was lost, and nothing warns."""
        cluster = self.cluster(prefill=1, decode=1)
        os.kill(cluster.workers['p0'].child.pid, signal.SIGTERM)
        wait_until('p0 has left', lambda: re.search(
            r' info  conductor: worker p0 \(127\.0\.0\.1:\d+\) left\n',
            cluster.conductor.log()))
        self.assertEqual(cluster.api.instances(), (0, 1))
        self.assertNotIn('is gone', cluster.conductor.log())
        self.assertEqual(total(cluster.api.metrics(),
                               'conductor_workers_lost_total'), 1)

    def test_signals_that_go_on(self):
        """An operator's impatience does not make an end a death."""
        cluster = self.cluster(prefill=1, decode=1)
        for process in (cluster.workers['p0'], cluster.conductor):
            while process.alive():
                process.child.send_signal(signal.SIGTERM)
                time.sleep(0.0002)
            self.assertEqual(process.child.returncode, 0, process.name)

    def test_prefill_worker_before_the_first_token(self):
        cluster = self.cluster(prefill=2, decode=1, engine='timed',
                               cost=SLOW_PREFILL)
        answer = in_background(lambda: cluster.api.complete(TEXT, 4))
        self.busy(cluster).kill()
        reply = answer().ok()
        self.assertEqual(len(reply.body['choices'][0]['text']), 4)
        cluster.wait_ready(1, 1)
        metrics = cluster.api.metrics()
        self.assertGreaterEqual(total(metrics, 'conductor_retries_total'), 1)

    def test_the_only_prefill_worker(self):
        cluster = self.cluster(engine='timed', cost=SLOW_PREFILL)
        answer = in_background(lambda: cluster.api.complete(TEXT, 4))
        self.busy(cluster).kill()
        self.assertError(answer(), 503)
        cluster.start_worker('p1', 'prefill', engine='timed')
        cluster.wait_ready(1, 1)
        self.assertEqual(cluster.api.complete(TEXT, 1).status, 200)

    def test_decode_worker_before_the_first_token(self):
        cluster = self.cluster(prefill=1, decode=2, engine='timed',
                               cost=SLOW_PREFILL)
        answer = in_background(lambda: cluster.api.complete(TEXT, 4))
        self.busy(cluster, 'decode').kill()
        reply = answer().ok()
        self.assertEqual(len(reply.body['choices'][0]['text']), 4)

    def test_decode_worker_in_the_stream(self):
        cluster = self.cluster(engine='timed', cost=SLOW_DECODE)
        held = cluster.api.hold(TEXT)
        held.goes_on()
        cluster.workers['d0'].kill()
        self.assertIsInstance(held.fails()['message'], str)
        self.assertEqual(sum('error' in e for e in held.events), 1)
        self.assertRegex(cluster.conductor.log(),
                         r' info .*: \S+: its answer was cut after \d+ tokens, '
                         r'instance d0: ')

    def test_prefill_worker_after_its_work(self):
        # Its part is over: the decode worker goes on.
        cluster = self.cluster(engine='timed', cost=SLOW_DECODE)
        held = cluster.api.hold(TEXT)
        cluster.workers['p0'].kill()
        wait_until('it is gone', lambda: cluster.api.instances() == (0, 1))
        held.goes_on()
        held.end()

    def test_prefill_worker_when_the_kv_has_arrived(self):
        # The decode worker has everything and is in its first step of 2 s.
        cluster = self.cluster(engine='timed', cost={
            'prefill': (1000, 0, 0, 0), 'decode': (2000000, 0, 0)},
            config={'heartbeat_ms': 100})
        events = cluster.api.stream('/v1/completions',
                                    {'prompt': TEXT, 'max_tokens': 2})
        self.assertIn('choices', next(events))
        p0 = 'conductor_instance_kv_{}_tokens{{instance="p0"}}'.format

        def sent():
            metrics = cluster.api.metrics()
            return metrics[p0('used')] > 0 and metrics[p0('pinned')] == 0
        wait_until('p0 has sent all and keeps it for others', sent)
        cluster.workers['p0'].kill()
        rest = in_background(lambda: list(events))()
        self.assertEqual(rest[-1], '[DONE]')
        self.assertFalse([e for e in rest if 'error' in e])

    def test_decode_worker_without_stream(self):
        cluster = self.cluster(engine='timed', cost=SLOW_DECODE)
        answer = in_background(lambda: cluster.api.complete(TEXT, 400))
        wait_until('tokens come', lambda: total(
            cluster.api.metrics(), 'conductor_output_tokens_total') > 3)
        cluster.workers['d0'].kill()
        reply = answer()
        self.assertGreaterEqual(reply.status, 500, reply.body)
        self.assertError(reply, reply.status)

    def test_tokens_that_nobody_has_seen(self):
        """A whole answer begins anew elsewhere, with the same tokens; a stream
        that has begun cannot."""
        cluster = self.cluster(prefill=1, decode=2)
        want = cluster.api.complete(TEXT * 4, 600).body['choices'][0]['text']
        answer = in_background(lambda: cluster.api.complete(TEXT * 4, 600))
        batch = in_background(lambda: cluster.api.complete(
            [TEXT * 4, TEXT * 4], 600))
        before = total(cluster.api.metrics(), 'conductor_output_tokens_total')
        wait_until('tokens come', lambda: total(
            cluster.api.metrics(), 'conductor_output_tokens_total') >
            before + 9)
        self.busy(cluster, 'decode').kill()
        replies = [answer(), batch()]
        for reply in replies:
            self.assertEqual(reply.status, 200, reply.body)
            self.assertEqual(reply.body['usage']['completion_tokens'],
                             600 * len(reply.body['choices']))
            for choice in reply.body['choices']:
                self.assertEqual(choice['text'], want)
        metrics = cluster.api.metrics()
        self.assertGreaterEqual(total(metrics, 'conductor_retries_total'), 1)
        self.assertEqual(total(metrics, 'conductor_time_to_first_token_seconds_count'), 4)

    def test_under_load(self):
        """20 clients while workers die and come back: each request ends."""
        cluster = self.cluster(prefill=2, decode=2)
        answers = [in_background(
            lambda i=i: [cluster.api.complete(TEXT * (i % 7 + 1) + str(i), 20)
                         for _ in range(5)]) for i in range(20)]
        cluster.workers['p0'].kill()
        cluster.workers['d0'].kill()
        cluster.start_worker('p2', 'prefill')
        cluster.start_worker('d2', 'decode')
        for answer in answers:
            for reply in answer():
                if reply.status == 200:
                    text = reply.body['choices'][0]['text']
                    self.assertEqual(len(text), 20)
                else:
                    self.assertError(reply, reply.status)
                    self.assertGreaterEqual(reply.status, 500)
        cluster.wait_ready(2, 2)
        self.assertEqual(cluster.api.complete(TEXT).status, 200)

    def test_the_holder_of_fetched_blocks(self):
        """A fetch whose source is gone is only a miss."""
        cluster = self.cluster(prefill=2, decode=1)
        prompt = TEXT * 20
        whole = cluster.api.complete(prompt, 8).body['choices'][0]['text']
        cluster.workers['p0'].kill()
        reply = cluster.api.complete(prompt, 8).ok()
        self.assertEqual(reply.body['choices'][0]['text'], whole)


class Batches(Case):
    """The first prompt that fails takes the others of its batch with it, out
    of whatever state and list they are in."""

    def post(self, cluster, prompts, max_tokens, **headers):
        return cluster.api.post('/v1/completions', {
            'model': 'tiny', 'prompt': prompts, 'max_tokens': max_tokens},
            {'x-slo-' + k.replace('_', '-'): str(v)
             for k, v in headers.items()})

    def goes_on(self, cluster):
        """Nothing is left of the batch, and requests are served."""
        self.assertTrue(cluster.conductor.alive())
        self.assertEqual(cluster.api.complete(TEXT, 1).status, 200)
        self.assertEqual(
            cluster.api.metric('http_in_flight'), 0)

    def test_slo_that_cannot_be_met(self):
        cluster = self.cluster(engine='timed',
                               cost={'prefill': (1000000, 0, 0, 0),
                                     'decode': (50000, 0, 0)})
        for headers in {'ttft_ms': 100}, {'tpot_ms': 10}:
            for n in 2, 40:
                self.assertError(
                    self.post(cluster, [TEXT] * n, 4, **headers), 429)
        self.goes_on(cluster)

    @mostly_waits
    def test_wait_that_expires(self):
        """Another request has all of the decode worker's room for longer than
        the conductor, which believes in fast decodes, expects."""
        cluster = self.cluster(decode=0, engine='timed',
                               cost={'decode': (2000, 0, 0)})
        cluster.start_worker(
            'd0', 'decode', engine='timed', kv_blocks=12,
            cost_model=self.write('slow.json', cost_model_json(**SLOW_DECODE)))
        cluster.wait_ready(1, 1)
        first = in_background(lambda: cluster.api.complete([1] * 16, 150))
        wait_until('it decodes', lambda: total(
            cluster.api.metrics(), 'conductor_output_tokens_total'))
        batches = [in_background(lambda: self.post(
            cluster, [[2] * 16] * 3, 100, ttft_ms=2000)) for _ in range(3)]
        for batch in batches:
            self.assertError(batch(), 429, 'within')
        self.assertEqual(first().status, 200)
        self.goes_on(cluster)

    def test_more_than_may_be_in_flight(self):
        cluster = self.cluster(config={'max_in_flight': 4})
        reply = self.post(cluster, ['x'] * 5, 1)
        self.assertError(reply, 400, '4')
        self.assertIsNone(reply.headers['Retry-After'])
        self.assertEqual(self.post(cluster, ['x'] * 4, 1).status, 200)

    def kill_decode(self, cluster, when):
        answer = in_background(lambda: self.post(cluster, [TEXT] * 2, 400))
        wait_until('the batch runs', when)
        cluster.workers['d0'].kill()
        reply = answer()
        self.assertGreaterEqual(reply.status, 500, reply.body)
        self.assertError(reply, reply.status)
        cluster.start_worker('d1', 'decode', engine='timed')
        cluster.wait_ready(1, 1)
        self.goes_on(cluster)

    def test_the_only_decode_worker_before_the_first_token(self):
        cluster = self.cluster(engine='timed', cost=SLOW_PREFILL)
        self.kill_decode(cluster, lambda: total(
            cluster.api.metrics(), 'conductor_instance_prefills_running'))

    def test_the_only_decode_worker_after_the_first_token(self):
        cluster = self.cluster(engine='timed', cost=SLOW_DECODE)
        self.kill_decode(cluster, lambda: total(
            cluster.api.metrics(), 'conductor_output_tokens_total') > 3)


class StoppedConductor(Case):
    def test_sigterm_lets_requests_end_and_takes_no_more(self):
        cluster = self.cluster(engine='timed', cost=SLOW_DECODE)
        kept, response = cluster.api.open('GET', '/ready')
        self.assertEqual((response.status, response.read()),
                         (200, b'{"ready":true,"models":{"tiny":true}}\n'))
        late = socket.create_connection(
            ('127.0.0.1', cluster.api.port), timeout=30 * settings.scale)
        late.sendall(b'POST /v1/completions HTTP/1.1\r\nHost: a\r\n'
                     b'Content-Length: 14\r\n')
        events = cluster.api.stream('/v1/completions',
                                    {'prompt': TEXT, 'max_tokens': 40})
        batch = in_background(lambda: cluster.api.complete([TEXT] * 2, 30))
        self.assertIn('choices', next(events))
        wait_until('the batch decodes, too', lambda: total(
            cluster.api.metrics(), 'conductor_instance_decodes') == 3)
        cluster.conductor.child.terminate()
        # The connection that waits for its next request is closed, ...
        self.assertEqual(kept.sock.recv(1), b'')
        # ... one on which a request was coming refuses it, ...
        late.sendall(b'\r\n{"prompt":"x"}')
        answer = b''.join(iter(lambda: late.recv(65536), b''))
        self.assertIn(b' 503 ', answer)
        self.assertIn(b'shutting_down', answer)
        self.assertIn(b'Connection: close', answer)
        # ... and what was in flight ends well.
        rest = list(events)
        self.assertEqual(rest[-1], '[DONE]')
        self.assertFalse([e for e in rest if 'error' in e])
        reply = batch().ok()
        self.assertEqual(reply.headers['Connection'], 'close')
        self.assertEqual(cluster.conductor.wait(), 0)
        kept.close()
        late.close()


class RestartedConductor(Case):
    def restart(self, cluster):
        """A new conductor on the old one's ports."""
        cluster.conductor.kill()
        cluster.config.update(
            listen=f'127.0.0.1:{cluster.ports["http"]}',
            worker_listen=f'127.0.0.1:{cluster.ports["worker"]}')
        cluster.start_conductor()

    def test_workers_come_back_with_their_blocks(self):
        cluster = self.cluster(prefill=0, decode=0, both=1)
        prompt = TEXT * 10
        first = cluster.api.complete(prompt, 8).body
        self.restart(cluster)
        cluster.wait_ready(1, 1)
        again = cluster.api.complete(prompt, 8).body
        self.assertEqual(again['choices'][0]['text'],
                         first['choices'][0]['text'])
        self.assertGreater(
            again['usage']['prompt_tokens_details']['cached_tokens'], 0)


    def worker_facts(self, cluster):
        """(fingerprint, port for peers of d0), as the conductor says them."""
        peer = Peer(cluster.ports['worker'])
        peer.send(Peer.hello(name='stranger', fingerprint=1))
        peer.receive_error()
        peer.close()
        # A refusal tells nothing; the operator's log does.
        said = re.search(r"the other workers' fingerprint is ([0-9a-f]{16})",
                         cluster.conductor.log())
        joined = re.search(r'worker d0 joined.*:(\d+)$',
                           cluster.conductor.log(), re.M)
        return int(said.group(1), 16), int(joined.group(1))

    def test_kv_of_a_straggler(self):
        """A prefill worker that still acts for the conductor that is gone
        pushes KV under the first id that conductors used to give. The decode
        worker must not decode from it."""
        cluster = self.cluster(prefill=1, decode=1)
        prompt, n = 'Hello, cold reference', 12
        want = cluster.api.complete(prompt, n, cache_salt='cold').body
        fingerprint, port = self.worker_facts(cluster)
        self.restart(cluster)
        cluster.wait_ready(1, 1)
        in_flight = 4096  # the default of max_in_flight, and slot 0
        straggler = wire.connect(('127.0.0.1', port))
        straggler.send(wire.pusher(fingerprint=fingerprint,
                                   block_tokens=BLOCK_TOKENS))
        straggler.wait(wire.WELCOME)
        p0 = cluster.workers['p0'].child.pid
        os.kill(p0, signal.SIGSTOP)
        try:
            answer = in_background(lambda: cluster.api.complete(prompt, n))
            wait_until('d0 has the request', lambda:
                cluster.api.metric('instance_decodes', instance='d0'))
            self.push_garbage(straggler, in_flight, len(prompt), n)
        finally:
            os.kill(p0, signal.SIGCONT)
        reply = answer().ok()
        self.assertEqual(reply.body['choices'][0]['text'],
                         want['choices'][0]['text'])
        self.assertIn('announced', wire.parse_reason(
            straggler.wait(wire.KV_REFUSE, in_flight))[1])
        straggler.close()

    def push_garbage(self, link, rid, n_tokens, max_tokens):
        """As a prefill worker of tiny would, but whatever the answer is."""
        link.send(wire.frame(wire.KV_BEGIN, rid, struct.pack(
            '<IIQ', n_tokens, max_tokens, 1)))
        link.until('a grant or a refusal', lambda frames: any(
            k in (wire.KV_GRANT, wire.KV_REFUSE) for k, _, _ in frames))
        for layer in range(4):
            link.send(wire.kv_layer(rid, layer, 0, n_tokens, BLOCK_TOKENS))
        link.send(wire.frame(wire.KV_END, rid, struct.pack('<I', 70)))
        link.send(wire.frame(wire.FETCH, 1, struct.pack('<IQ', 1, 5)))
        link.wait(wire.FETCH_CHAIN, 1)  # it has read all that came before


class Disconnects(Case):
    def leave(self, cluster, body, started):
        """Sends a request, closes the connection once started() is true."""
        connection = socket.create_connection(
            ('127.0.0.1', cluster.api.port), timeout=30 * settings.scale)
        data = body.encode()
        connection.sendall(
            b'POST /v1/completions HTTP/1.1\r\nHost: a\r\n'
            b'Content-Type: application/json\r\n'
            b'Content-Length: %d\r\n\r\n%s' % (len(data), data))
        wait_until('the request runs', started)
        connection.close()

    def check(self, stream, cost, started, tokens=5):
        """Returns the metrics once the workers have forgotten a request of
        `tokens` prompt tokens whose client left after started() was true."""
        cluster = self.cluster(engine='timed', cost=cost, kv_mib=64,
                               config={'heartbeat_ms': 50})
        api = cluster.api
        kv_used = 'conductor_instance_kv_used_tokens{instance="d0"}'

        def runs():
            metrics = api.metrics()
            return metrics[kv_used] and started(metrics)
        body = {'model': 'tiny', 'prompt': [7] * tokens, 'max_tokens': 2000,
                'stream': stream}
        self.leave(cluster, json.dumps(body), runs)
        wait_until('it is cancelled', lambda: api.metrics()
                   ['conductor_requests_total{outcome="cancelled"}'])
        # What the worker itself reports, not what the conductor believes.
        wait_until('the decode worker has let go of its KV',
                   lambda: api.metrics()[kv_used] == 0)
        self.assertEqual(api.complete('hello', 1).status, 200)
        return api.metrics()

    def prefilling(self, stream):
        """The prefill ends in the middle: not all of its blocks appear, though
        the worker has since served a request that queued behind it."""
        stored = 'conductor_block_events_total{event="stored"}'
        metrics = self.check(stream, STEADY_PREFILL, lambda m: m[stored],
                             tokens=20000)
        self.assertLess(metrics[stored], 20000 // BLOCK_TOKENS)

    def decoding(self, stream):
        self.check(stream, SLOW_DECODE,
                   lambda m: m['conductor_output_tokens_total'])

    def test_while_prefilling(self):
        self.prefilling(False)

    def test_while_prefilling_a_stream(self):
        self.prefilling(True)

    def test_while_decoding(self):
        self.decoding(False)

    def test_while_decoding_a_stream(self):
        self.decoding(True)
