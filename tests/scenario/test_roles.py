"""Workers that switch between prefill and decode, by command and by load."""
import struct
import threading

import wire
from harness import Case, mostly_waits, program, wait_until
from test_drain import Clients, change
from test_instances import InstanceCase
from test_worker import WorkerCase

COST = {'prefill': (10000, 0, 0, 0), 'decode': (5000, 5000, 0)}


def roles(cluster):
    return {i['name']: (i['role'], i['state']) for i in cluster.api.listed()}


class ByCommand(Clients, Case):
    @mostly_waits
    def test_under_load(self):
        """A decode worker is to prefill and back while clients ask: it ends
        what it has, no request fails, and then it has work of its new role."""
        cluster = self.cluster(prefill=2, decode=2, cost=COST, engine='timed',
                               config={'policy': 'random',
                                       'policy_options': {}})
        heard, end = self.load(cluster)
        for role, place in ('prefill', 0), ('decode', 1):
            reply = change(cluster, 'd1', f'role/{role}').ok()
            self.assertIn(reply.body['state'], ('draining', 'ready'))
            wait_until(f'd1 has the role {role}', lambda:
                       roles(cluster)['d1'] == (role, 'ready'))
            before = len(heard)
            wait_until(f'd1 has work to {role}', lambda:
                       'd1' in [h[place] for h in heard[before:]])
            # Answers to what it was given before may come late.
            before = self.each_is_answered(heard)
            self.each_is_answered(heard)
            self.assertNotIn('d1', [h[1 - place] for h in heard[before:]])
        self.assertEqual(end(), [])
        metrics = cluster.api.metrics()
        for to in 'prefill', 'decode':
            self.assertEqual(metrics['conductor_role_switches_total'
                                     f'{{to="{to}",why="command"}}'], 1)
        self.assertEqual(metrics['conductor_role_switches_taken_total'], 2)
        self.assertIn('switches from decode to prefill: by command',
                      cluster.conductor.log())
        self.assertIn('the role is prefill from now on',
                      cluster.workers['d1'].log())

    def test_who_comes_back_keeps_its_role(self):
        """The worker knows its role: a conductor that begins anew does too."""
        cluster = self.cluster(prefill=1, decode=2)
        self.assertEqual(change(cluster, 'd1', 'role/prefill').status, 200)
        wait_until('d1 prefills', lambda: cluster.api.instances() == (2, 1))
        port = cluster.ports['worker']
        self.stop(cluster.conductor)
        cluster.config['worker_listen'] = f'127.0.0.1:{port}'
        cluster.start_conductor()
        cluster.wait_ready(2, 1)
        self.assertEqual(roles(cluster)['d1'], ('prefill', 'ready'))

    def test_what_cannot_be(self):
        cluster = self.cluster(prefill=1, decode=2)
        self.assertError(change(cluster, 'p0', 'role/decode'), 409, '"p0"',
                         'no other worker', 'prefill')
        self.assertError(change(cluster, 'x', 'role/decode'), 404, '"x"')
        self.assertError(change(cluster, 'd0', 'role/both'), 404, 'role/both',
                         '/role/prefill')
        self.assertEqual(change(cluster, 'd0', 'role/decode').body,
                         {'name': 'd0', 'state': 'ready'})
        self.assertEqual(cluster.api.instances(), (1, 2))
        status, out, errors = self.run_program(
            program('tools', 'conductorctl'), '--address',
            f'127.0.0.1:{cluster.ports["http"]}', 'role', 'd0', 'prefill')
        self.assertEqual((status, errors), (0, ''))
        self.assertIn(out, ('d0: draining\n', 'd0: ready\n'))
        wait_until('d0 prefills', lambda: cluster.api.instances() == (2, 1))
        for words, told in ((('role', 'd0'), 'needs NAME and'),
                            (('role', 'd0', 'x'), '"x": must be prefill')):
            status, out, errors = self.run_program(
                program('tools', 'conductorctl'), *words)
            self.assertEqual((status, out), (2, ''))
            self.assertIn(told, errors)

    def test_aggregated(self):
        cluster = self.cluster(prefill=0, decode=0, both=2,
                               config={'pool': 'aggregated'})
        self.assertError(change(cluster, 'b0', 'role/decode'), 400,
                         'aggregated')

    def test_called_off(self):
        """While it ends its work it may be told to stay what it is."""
        cluster = self.cluster(prefill=1, decode=2, cost=COST, engine='timed')
        held = cluster.api.hold('hello')
        name = None

        def busy():
            nonlocal name
            for i in cluster.api.listed():
                if i['decodes']:
                    name = i['name']
            return name
        wait_until('one decodes', busy)
        self.assertEqual(change(cluster, name, 'role/prefill').body['state'],
                         'draining')
        self.assertEqual(InstanceCase.states(cluster)[name], 'draining')
        self.assertEqual(change(cluster, name, 'role/decode').body['state'],
                         'ready')
        held.goes_on()
        held.end()
        self.assertEqual(roles(cluster)[name], ('decode', 'ready'))


class Led(WorkerCase):
    """A worker of two conductors, of which one leads."""

    def test_who_led_before_hears_the_role(self):
        """Its ROLE changes nothing, and it does not go on to believe that it
        did."""
        other = wire.Conductor()
        self.addCleanup(other.close)
        self.launch('w', 'prefill', '--conductor',
                    f'127.0.0.1:{self.conductor.port},'
                    f'127.0.0.1:{other.port}')
        old, new = (c.accept() for c in (self.conductor, other))
        self.links += [old, new]
        for link, token in (old, 5), (new, 7):
            link.send(wire.frame(wire.LEAD, 0, struct.pack('<Q', token)))
        new.status(lambda _: True)
        old.switch_role(2)
        old.wait(wire.LEAVING)
        old.send(wire.frame(wire.LEAVE, 0))
        old.wait_closed()
        again = self.conductor.accept()
        self.links.append(again)
        self.assertEqual(wire.parse_hello(again.wait(wire.HELLO))['role'], 1)


class ByLoad(Case):
    @mostly_waits
    def test_prompts(self):
        """Three decode workers and one that prefills, for prompts that take
        half a second: some switch, and say why."""
        cluster = self.cluster(
            prefill=1, decode=3, engine='timed',
            cost={'prefill': (300000, 0, 0, 0), 'decode': (5000, 100, 0)},
            config={'policy_options': {'switch_roles': 2}})
        over = threading.Event()
        wrong = []

        def client(n):
            k = 0
            while not over.is_set():
                k += 1
                reply = cluster.api.complete(f'{n} asks {k}', 2)
                if reply.status != 200:
                    wrong.append(reply.body)
        clients = [threading.Thread(target=client, args=(n,)) for n in range(6)]
        for c in clients:
            c.start()
        try:
            wait_until('one has switched', lambda:
                       cluster.api.instances()[0] > 1, 60)
        finally:
            over.set()
            for c in clients:
                c.join()
        self.assertEqual(wrong, [])
        self.assertGreater(cluster.api.metrics()[
            'conductor_role_switches_total{to="prefill",why="load"}'], 0)
        self.assertRegex(cluster.conductor.log(),
                         r'from decode to prefill: prefills need [0-9.]+ of 1 '
                         r'workers and decodes [0-9.]+ of 3')


class Worker(WorkerCase):
    def test_frame(self):
        """It refuses the work of a role that it does not have, takes ROLE, and
        ends the connection where that names none."""
        link = self.worker('a', 'decode')
        link.prefill(1, [1, 2, 3], 1)
        self.assertIn('the role is decode', link.failure(1)[1])
        link.switch_role(1)
        link.prefill(2, [1, 2, 3], 1)
        link.prefill_done(2)
        link.decode(3, 3, 2)
        self.assertIn('the role is prefill', link.failure(3)[1])
        link.send(wire.frame(wire.ROLE, 0, b'\4'))
        link.wait_closed()
