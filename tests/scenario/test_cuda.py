"""Workers with engine cuda, on emulated cards: what they answer, and what
becomes of their requests when a card disappears."""
import os

import wire
from harness import WORKER, Case, program, wait_until
from test_load import LoadCase

EMULATED = 'tests', 'gpu', 'emulate', 'conductor-worker-emulated'
TEXT = 'Where the card is gone, the work goes on elsewhere. ' * 2


def run_worker(case, path, *more):
    return case.run_program(program(*path), '--conductor', '127.0.0.1:1',
                            '--engine', 'cuda', *more)


class Pages(LoadCase):
    """Workers of one machine, each with a card."""
    path = EMULATED

    def program(self):
        return program(*self.path)

    def card(self, name, **environment):
        os.environ.update(environment)
        try:
            return self.worker(name, 'both', '--engine', 'cuda',
                               '--log-level', 'debug', '--step-tokens', '64',
                               '--device-kv-mib', '64')
        finally:
            for key in environment:
                del os.environ[key]

    def test_pages_of_another_worker(self):
        """KV goes from card to card, and by way of the host where one card
        cannot reach the other."""
        if not os.path.exists(self.program()):
            self.skipTest('built without a C++ compiler: no emulated card')
        self.exchange()

    def test_pages_on_a_card(self):
        if not os.path.exists('/dev/nvidia0'):
            self.skipTest('there is no card')
        self.path = WORKER
        self.exchange()

    def exchange(self):
        a = self.card('a')
        tokens = [i * 7 % 251 for i in range(100)]
        want, _ = self.run_here(a, 1, tokens, 3)
        cases = [('near', 6, {}), ('far', 0, {'EMULATE_NO_IPC': '1'})]
        for rid, (name, lent, environment) in enumerate(
                cases if self.path == EMULATED else cases[:1], 2):
            t = self.card(name, **environment)
            got, done = self.run_here(t, rid, tokens, 3, mode=wire.LOAD,
                                      sources=[(a.address, 0, 6)])
            self.assertEqual(got, want)
            self.assertEqual(done['fetched'], 96, done)
            self.idle(a)
            log = self.log('a')
            self.assertIn(f'worker {name} moves KV over shm' +
                          (', directly from the card' if lent else '\n'), log)
            self.assertEqual(log.count('6 of 6 blocks of a grant were lent'),
                             1)
        for link in self.links:
            self.leave(link)


class Cuda(Case):
    def setUp(self):
        super().setUp()
        if not os.path.exists(program(*EMULATED)):
            self.skipTest('built without a C++ compiler: no emulated card')

    def start_worker(self, cluster, name, role):
        """A worker whose card is lost when the file NAME.lost appears."""
        os.environ['EMULATE_LOSE_FILE'] = self.lost_file(name)
        try:
            return cluster.start_worker(
                name, role, path=EMULATED, engine='cuda', step_tokens=64,
                max_batch=8, kv_mib=8, device_kv_mib=2)
        finally:
            del os.environ['EMULATE_LOSE_FILE']

    def lost_file(self, name):
        return os.path.join(self.folder, name + '.lost')

    def start_cluster(self):
        cluster = self.cluster(prefill=0, decode=0)
        for name, role in (('p0', 'prefill'), ('p1', 'prefill'),
                           ('d0', 'decode')):
            self.start_worker(cluster, name, role)
        cluster.wait_ready(2, 1)
        return cluster

    def complete(self, cluster):
        reply = cluster.api.complete(TEXT, 6).ok()
        return reply.body['choices'][0]['text']

    def test_a_card_that_disappears(self):
        cluster = self.start_cluster()
        answer = self.complete(cluster)
        self.assertEqual(len(answer), 6)
        lost = cluster.workers['p0']
        self.write('p0.lost', '')
        # The cached prefix may draw all of them to the other worker.
        for n in range(20):
            reply = cluster.api.complete(f'{n} ' + TEXT, 2).ok()
            if not lost.alive():
                break
        self.assertEqual(lost.wait(), 1)
        self.processes.remove(lost)
        self.assertIn('the engine is lost: emulated card: ', lost.log())
        wait_until('the worker has left',
                   lambda: cluster.api.instances() == (1, 1))
        self.assertEqual(self.complete(cluster), answer)

    def test_refusals(self):
        for mib, words in (('0', 'no card'), ('260', 'GiB free of 0.25')):
            os.environ['EMULATE_MEMORY_MIB'] = mib
            try:
                status, _, errors = run_worker(self, EMULATED)
            finally:
                del os.environ['EMULATE_MEMORY_MIB']
            self.assertEqual(status, 2)
            self.assertIn(words, errors)
        status, _, errors = run_worker(self, EMULATED, '--layers', '5')
        self.assertEqual(status, 2)
        self.assertIn('--layers 5: model tiny has 4 layers', errors)

    def test_without_a_driver(self):
        os.environ.update(EMULATE_MEMORY_MIB='0', EMULATE_NO_DRIVER='1')
        try:
            status, _, errors = run_worker(self, EMULATED)
        finally:
            del os.environ['EMULATE_MEMORY_MIB']
            del os.environ['EMULATE_NO_DRIVER']
        self.assertEqual(status, 2)
        self.assertIn('no card: no CUDA driver was found', errors)

    def test_without_a_card(self):
        if os.path.exists('/dev/nvidia0'):
            self.skipTest('there is a card')
        status, _, errors = run_worker(self, ('workers', 'conductor-worker'))
        self.assertEqual(status, 2)
        self.assertRegex(errors, 'cuda: no card|built without CUDA')
