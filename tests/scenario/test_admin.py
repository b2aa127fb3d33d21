"""A listener of its own for operators, and the drain."""
import os
import signal
import socket
import threading
import time

from harness import (CONDUCTOR, Api, Case, mostly_waits, program, wait_until)

KEY = 'k' * 64


class Door(Case):
    def doors(self, key=True, **config):
        if key:
            path = self.write('admin.key', KEY)
            os.chmod(path, 0o600)
            config['admin_key_file'] = path
        cluster = self.cluster(config={'admin_listen': '127.0.0.1:0', **config})
        return cluster, Api(cluster.ports['admin'])

    def test_what_each_door_has(self):
        cluster, admin = self.doors()
        for path in '/metrics', '/admin/instances', '/admin/explain/x', \
                '/workers', '/services', '/global_view':
            self.assertEqual(cluster.api.request('GET', path).status, 404)
        for path in '/query', '/register', '/admin/instances':
            reply = cluster.api.request('POST', path, {})
            self.assertEqual((reply.status, reply.body['error']['code']),
                             (404, 'unknown_path'))
        for path in '/health', '/ready', '/v1/models':
            self.assertEqual(cluster.api.request('GET', path).status, 200)
            self.assertEqual(admin.request('GET', path).status, 200)
        self.assertEqual(cluster.api.complete('hello').status, 200)
        self.assertEqual(admin.complete('hello').status, 404)
        self.assertEqual(admin.request('POST', '/v1/schedule', {}).status, 404)
        self.assertGreater(len(admin.metrics()), 50)

    def test_all_of_admin_needs_the_key(self):
        _, admin = self.doors()
        named = {'Authorization': f'Bearer {KEY}'}
        for path, status in (('/admin/instances', 200),
                             ('/admin/explain/x', 404)):
            for headers in {}, {'Authorization': f'Bearer {KEY[1:]}x'}:
                reply = admin.request('GET', path, headers=headers)
                self.assertEqual(
                    (reply.status, reply.body['error']['code']),
                    (401, 'invalid_admin_key'))
            self.assertEqual(
                admin.request('GET', path, headers=named).status, status)

    def test_without_a_key_this_machine_looks(self):
        _, admin = self.doors(key=False)
        self.assertEqual(admin.request('GET', '/admin/instances').status, 200)

    def test_clients_that_fill_the_other_door(self):
        """A probe and an operator get in all the same."""
        cluster, admin = self.doors(key=False, max_connections=8)
        idle = [socket.create_connection(('127.0.0.1', cluster.ports['http']))
                for _ in range(200)]
        self.addCleanup(lambda: [s.close() for s in idle])
        wait_until('it turns clients away', lambda: admin.metrics()[
            'conductor_http_refused_total'] >= 190)
        for _ in range(20):
            self.assertEqual(admin.health()['status'], 'ready')
            self.assertEqual(admin.request('GET', '/ready').status, 200)

    def test_addresses_that_cannot_be(self):
        config = self.write('c.json', '{}')
        for options, text in (
                (['admin_listen=0.0.0.0:9'],
                 'admin_listen: "0.0.0.0:9": other machines reach it'),
                (['admin_listen=127.0.0.1'], 'admin_listen: "127.0.0.1"'),
                (['admin_listen=127.0.0.1:8080'],
                 'admin_listen: "127.0.0.1:8080": must not be listen, too'),
                (['admin_listen=127.0.0.1:7', 'worker_listen=127.0.0.1:7'],
                 'worker_listen: "127.0.0.1:7": must not be admin_listen, too'),
        ):
            sets = [word for option in options for word in ('-s', option)]
            status, _, errors = self.run_program(
                program(*CONDUCTOR), '-t', '-c', config, *sets)
            self.assertEqual(status, 2)
            self.assertIn(text, errors)


class Drain(Case):
    def stop(self, cluster):
        cluster.conductor.child.send_signal(signal.SIGTERM)
        cluster.conductor.killed = True

    @mostly_waits
    def test_ready_says_no_before_the_door_closes(self):
        """A load balancer that looks at /ready has time to send clients
        elsewhere: until then they are served."""
        cluster = self.cluster(config={'drain_wait_ms': 2500,
                                       'admin_listen': '127.0.0.1:0'})
        admin = Api(cluster.ports['admin'])
        began = time.monotonic()
        self.stop(cluster)
        wait_until('it is not ready', lambda: cluster.api.request(
            'GET', '/ready').status == 503)
        self.assertEqual(cluster.api.complete('still here').status, 200)
        self.assertLess(time.monotonic() - began, 2.5 * 4)
        wait_until('it has ended', lambda: not cluster.conductor.alive())
        self.assertGreaterEqual(time.monotonic() - began, 2.5)
        self.assertIn('not ready for 2500 ms', cluster.conductor.log())
        with self.assertRaises(OSError):
            admin.health()

    @mostly_waits
    def test_a_stream_that_is_cut_is_told(self):
        """What is left at the end of drain_limit_ms gets an error and
        [DONE], and nobody waits for ever."""
        cluster = self.cluster(
            config={'drain_limit_ms': 1000},
            cost={'decode': (200000, 0, 0)}, engine='timed')
        events = []

        def client():
            events.extend(cluster.api.stream(
                '/v1/completions', {'prompt': 'p' * 40, 'max_tokens': 600}))
        thread = threading.Thread(target=client)
        thread.start()
        wait_until('it streams', lambda: len(events) > 0)
        whole = []
        other = threading.Thread(target=lambda: whole.append(
            cluster.api.complete('q' * 40, max_tokens=600)))
        other.start()
        wait_until('both are in work', lambda: cluster.api.metrics()[
            'conductor_http_in_flight'] == 2)
        self.stop(cluster)
        thread.join()
        other.join()
        self.assertEqual(events[-1], '[DONE]')
        self.assertEqual(events[-2]['error']['code'], 'shutting_down')
        self.assertEqual((whole[0].status, whole[0].body['error']['code']),
                         (503, 'shutting_down'))
        wait_until('it has ended', lambda: not cluster.conductor.alive())
        self.assertIn('2 requests are cut off', cluster.conductor.log())
