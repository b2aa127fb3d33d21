"""Workers that hang: stopped with SIGSTOP, so that their kernel still answers
for them. Requests are tried elsewhere or end with an error; nothing hangs, and
a worker that goes on serves again."""
import os
import re
import signal
import threading

from harness import Case, mostly_waits, total, wait_until
from test_failures import SLOW_DECODE, SLOW_PREFILL, TEXT, in_background

PROMPTS = [TEXT * (i % 7 + 1) + str(i) for i in range(24)]
OUTPUT_TOKENS = 20
CLIENTS = 6
SOON = {'heartbeat_ms': 200, 'worker_timeout_ms': 1500}


class HungWorkers(Case):
    def hang(self, worker):
        os.kill(worker.child.pid, signal.SIGSTOP)

    def go_on(self, worker):
        if worker.alive():
            os.kill(worker.child.pid, signal.SIGCONT)

    def tearDown(self):
        # A stopped process cannot be ended politely.
        for process in self.processes:
            self.go_on(process)
        super().tearDown()

    def served_by(self, cluster, prefill, decode):
        """Asks until that pair of workers has served a request. Some at a
        time, as an idle cluster always decodes on the same worker."""
        def served():
            replies = [answer() for answer in [in_background(
                lambda: cluster.api.complete(TEXT, 40)) for _ in range(6)]]
            for reply in replies:
                self.assertEqual(reply.status, 200, reply.body)
            pairs = [reply.body['conductor'] for reply in replies]
            return any(pair['prefill'] == prefill and pair['decode'] == decode
                       for pair in pairs)
        wait_until(f'{prefill} and {decode} serve', served)

    def under_load(self, *names):
        """Clients ask all the time while these workers hang and go on; the
        answers are those of an undisturbed cluster, or errors."""
        cluster = self.cluster(prefill=2, decode=2, config={
            **SOON, 'policy': 'random'})
        want = [cluster.api.complete(p, OUTPUT_TOKENS).body['choices'][0]
                ['text'] for p in PROMPTS]
        enough = threading.Event()
        replies = []

        def client(k):
            while not enough.is_set():
                for i in range(k, len(PROMPTS), CLIENTS):
                    replies.append((i, cluster.api.complete(
                        PROMPTS[i], OUTPUT_TOKENS)))
        clients = [in_background(lambda k=k: client(k))
                   for k in range(CLIENTS)]
        try:
            wait_until('the clients are served', lambda: len(replies) > 10)
            for name in names:
                self.hang(cluster.workers[name])
            kinds = {name[0] for name in names}
            cluster.wait_ready(2 - ('p' in kinds), 2 - ('d' in kinds))
            for name in names:
                wait_until(f'{name} is given up', lambda name=name: re.search(
                    f'worker {name} .*is gone: silent',
                    cluster.conductor.log()))
            asked = len(replies)
            wait_until('the clients are served by the others',
                       lambda: len(replies) > asked + 10)
            for name in names:
                self.go_on(cluster.workers[name])
            cluster.wait_ready(2, 2)
        finally:
            enough.set()
        for result in clients:
            result()
        for i, reply in replies:
            if reply.status == 200:
                self.assertEqual(reply.body['choices'][0]['text'], want[i])
            else:
                self.assertError(reply, reply.status)
                self.assertGreaterEqual(reply.status, 500)
        good = sum(reply.status == 200 for _, reply in replies)
        self.assertGreater(good, len(replies) // 2)
        self.assertEqual(
            cluster.api.metric('requests_in_flight'), 0)
        self.served_by(cluster, 'p0', 'd0')
        return cluster

    def test_a_prefill_worker(self):
        cluster = self.under_load('p0')
        self.assertGreaterEqual(
            total(cluster.api.metrics(), 'conductor_retries_total'), 1)

    def test_a_decode_worker(self):
        self.under_load('d0')

    def test_both_at_once(self):
        self.under_load('p0', 'd0')

    @mostly_waits
    def test_the_only_prefill_worker(self):
        cluster = self.cluster(engine='timed', cost=SLOW_PREFILL, config=SOON)
        answer = in_background(lambda: cluster.api.complete(TEXT, 4))
        wait_until('it works', lambda:
            cluster.api.metric('instance_prefills_running', instance='p0'))
        self.hang(cluster.workers['p0'])
        self.assertError(answer(), 503)
        self.go_on(cluster.workers['p0'])
        cluster.wait_ready(1, 1)
        self.served_by(cluster, 'p0', 'd0')

    @mostly_waits
    def test_the_only_decode_worker_in_a_stream(self):
        cluster = self.cluster(engine='timed', cost=SLOW_DECODE, config=SOON)
        events = cluster.api.stream('/v1/completions',
                                    {'prompt': TEXT, 'max_tokens': 400})
        for _ in range(3):
            self.assertIn('choices', next(events))
        self.hang(cluster.workers['d0'])
        rest = in_background(lambda: list(events))()
        errors = [e for e in rest if isinstance(e, dict) and 'error' in e]
        self.assertEqual(len(errors), 1, rest[-3:])
        self.assertError(cluster.api.complete(TEXT, 4), 503)
        self.go_on(cluster.workers['d0'])
        cluster.wait_ready(1, 1)
        self.served_by(cluster, 'p0', 'd0')

    def test_a_worker_of_the_same_name_replaces_it(self):
        cluster = self.cluster(config=SOON)
        old = cluster.workers['p0']
        self.hang(old)
        new = cluster.start_worker('p0', 'prefill')
        wait_until('the new one waits', lambda: 'waiting until the conductor drops' in new.log())
        wait_until('the new one joins', lambda: cluster.conductor.log().count(
            'worker p0 joined') == 2)
        cluster.wait_ready(1, 1)
        self.served_by(cluster, 'p0', 'd0')
        old.kill()
        self.assertEqual(cluster.api.instances(), (1, 1))
