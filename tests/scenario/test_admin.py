"""A listener of its own for operators, the drain, and what a reload takes."""
import ctypes
import json
import os
import re
import signal
import socket
import sys
import threading
import time

from engines import enter_loopback
from test_forward import EngineCase
from stand_in import Engine, chunk, stream_head
from harness import (CONDUCTOR, Api, Case, Cluster, cost_model_json,
                     mostly_waits, program, wait_until)

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
            self.assertEqual(cluster.api.get(path).status, 404)
        for path in '/query', '/register', '/admin/instances':
            reply = cluster.api.post(path, {})
            self.assertEqual((reply.status, reply.body['error']['code']),
                             (404, 'unknown_path'))
        for path in '/health', '/ready', '/v1/models':
            self.assertEqual(cluster.api.get(path).status, 200)
            self.assertEqual(admin.get(path).status, 200)
        self.assertEqual(cluster.api.complete('hello').status, 200)
        self.assertEqual(admin.complete('hello').status, 404)
        self.assertEqual(admin.post('/v1/schedule', {}).status, 404)
        self.assertGreater(len(admin.metrics()), 50)

    def test_all_of_admin_needs_the_key(self):
        _, admin = self.doors()
        named = {'Authorization': f'Bearer {KEY}'}
        for path, status in (('/admin/instances', 200),
                             ('/admin/explain/x', 404)):
            for headers in {}, {'Authorization': f'Bearer {KEY[1:]}x'}:
                reply = admin.get(path, headers=headers)
                self.assertEqual(
                    (reply.status, reply.body['error']['code']),
                    (401, 'invalid_admin_key'))
            self.assertEqual(
                admin.get(path, headers=named).status, status)

    def test_without_a_key_this_machine_looks(self):
        _, admin = self.doors(key=False)
        self.assertEqual(admin.get('/admin/instances').status, 200)

    def test_clients_that_fill_the_other_door(self):
        """A probe and an operator get in all the same."""
        cluster, admin = self.doors(key=False, max_connections=8)
        idle = [socket.create_connection(('127.0.0.1', cluster.ports['http']))
                for _ in range(200)]
        self.addCleanup(lambda: [s.close() for s in idle])
        wait_until('it closes those of before', lambda:
            admin.metric('http_evicted_total') >= 170)
        for _ in range(20):
            self.assertEqual(admin.health()['status'], 'ready')
            self.assertEqual(admin.get('/ready').status, 200)

    def test_addresses_that_cannot_be(self):
        config = self.write('c.json', '{}')
        for options, text in (
                (['admin_listen=0.0.0.0:9'],
                 'admin_listen: "0.0.0.0:9": other machines can reach it'),
                (['admin_listen=127.0.0.1'], 'admin_listen: "127.0.0.1"'),
                (['admin_listen=127.0.0.1:8080'],
                 'admin_listen: "127.0.0.1:8080": must differ from listen'),
                (['admin_listen=127.0.0.1:7', 'worker_listen=127.0.0.1:7'],
                 'worker_listen: "127.0.0.1:7": must differ from admin_listen'),
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
        cluster = self.cluster(config={'drain_wait_ms': 4000,
                                       'admin_listen': '127.0.0.1:0'})
        admin = Api(cluster.ports['admin'])
        began = time.monotonic()
        self.stop(cluster)
        wait_until('it is not ready', lambda: cluster.api.get(
            '/ready').status == 503)
        self.assertEqual(cluster.api.complete('still here').status, 200)
        wait_until('it has ended', lambda: not cluster.conductor.alive())
        self.assertGreaterEqual(time.monotonic() - began, 4)
        self.assertIn('not ready for 4000 ms', cluster.conductor.log())
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
        wait_until('both are in work', lambda:
            cluster.api.metric('http_in_flight') == 2)
        self.stop(cluster)
        thread.join()
        other.join()
        self.assertEqual(events[-1], '[DONE]')
        self.assertEqual(events[-2]['error']['code'], 'shutting_down')
        self.assertEqual((whole[0].status, whole[0].body['error']['code']),
                         (503, 'shutting_down'))
        wait_until('it has ended', lambda: not cluster.conductor.alive())
        self.assertIn('2 requests are cut off', cluster.conductor.log())
        self.assertEqual(len(re.findall(
            r': its answer was cut after \d+ tokens, instance d0: the server '
            'is shutting down', cluster.conductor.log())), 2)


class DrainOfEngines(EngineCase):
    def test_a_stream_of_an_engine_that_is_cut_is_told(self):
        over = threading.Event()
        self.addCleanup(over.set)
        # The engine's bytes stop at the end of an event, or within it.
        begins = [b'data: {}' + end for end in (
            b'\n\n', b'\r\n\r\n', b'', b'\n', b'\r\n', b'\r\n\r')]

        def serve(request, send):
            body = json.loads(request.body)
            send(stream_head() + chunk(begins[body['max_tokens'] - 1]))
            over.wait(60)
            return 'close'
        cluster = self.engines(serve, config={'drain_limit_ms': 300})
        answers = [cluster.api.open('POST', '/v1/completions', {
            'model': 'm', 'prompt': 'p', 'stream': True, 'max_tokens': i + 1})
            for i in range(len(begins))]
        for begin, (_, response) in zip(begins, answers):
            self.assertEqual(response.read(len(begin)), begin)
        cluster.conductor.child.send_signal(signal.SIGTERM)
        cluster.conductor.killed = True
        for begin, (connection, response) in zip(begins, answers):
            text = (begin + response.read()).replace(b'\r\n', b'\n')
            first, error, done, end = text.split(b'\n\n')
            self.assertEqual(first.rstrip(), b'data: {}')
            self.assertEqual(json.loads(error.removeprefix(
                b'data: '))['error']['code'], 'shutting_down', begin)
            self.assertEqual((done, end), (b'data: [DONE]', b''))
            connection.close()
        self.assertEqual(len(re.findall(
            r': its answer was cut after \d tokens \(\d+ bytes\), instance e0: '
            'the server is shutting down', cluster.conductor.log())),
            len(begins))


class Reload(EngineCase):
    def rewrite(self, cluster, **config):
        self.write('conductor.json', json.dumps({**cluster.config, **config}))

    def reload(self, cluster, **config):
        self.rewrite(cluster, **config)
        return cluster.api.post('/admin/reload')

    def test_what_is_taken_and_what_is_not(self):
        cluster = self.cluster(cost={'prefill': (50000, 0, 0, 0)})
        self.assertEqual(cluster.api.complete('p' * 40).status, 200)
        reply = self.reload(cluster, slo_ttft_ms=1, max_retries=7,
                            policy='least_loaded', seed=9,
                            policy_options={})
        self.assertEqual((reply.status, reply.body), (200, {
            'taken': ['slo_ttft_ms', 'max_retries'],
            'needs_restart': ['policy', 'seed']}))
        reply = cluster.api.complete('q' * 40)
        self.assertEqual((reply.status, reply.body['error']['code']),
                         (429, 'slo_ttft_exceeded'))
        self.assertEqual(self.reload(cluster).body, {
            'taken': ['slo_ttft_ms', 'max_retries'], 'needs_restart': []})
        self.assertEqual(cluster.api.complete('q' * 40).status, 200)

    def test_the_logs_format(self):
        cluster = self.cluster(config={'log_format': 'json'})
        wait_until('it serves', lambda: 'listening' in cluster.conductor.log())
        for line in cluster.conductor.log().splitlines():
            self.assertEqual(list(json.loads(line)),
                             ['time', 'level', 'program', 'message'])
        self.assertEqual(self.reload(cluster, log_format='text').body['taken'],
                         ['log_format'])
        self.assertRegex(cluster.conductor.log().splitlines()[-1],
                         r'^\S+Z info  conductor: reload: taken: log_format')

    def test_a_bad_file_changes_nothing(self):
        cluster = self.cluster()
        for config, named in (({'slo_ttft_ms': -1}, 'slo_ttft_ms'),
                              ({'nonsense': 1}, 'nonsense'),
                              ({'tenants_file': 'none.json'}, 'tenants_file'),
                              ({'cost_model': 'none.json'}, 'cost_model'),
                              ({'admin_key_file': 'none'}, 'admin_key_file'),
                              ({'engines': [{'name': 'x', 'url': 'y'}]},
                               'engines')):
            reply = self.reload(cluster, **{'slo_tbt_ms': 1, **config})
            self.assertEqual((reply.status, reply.body['error']['code']),
                             (400, 'invalid_configuration'))
            self.assertIn(named, reply.body['error']['message'])
        self.write('conductor.json', '{"listen":')
        self.assertEqual(
            cluster.api.post('/admin/reload').status, 400)
        self.assertEqual(self.reload(cluster).body['taken'], [])
        self.assertEqual(cluster.api.complete('p' * 40).status, 200)

    def test_engines_come_and_go(self):
        cluster = self.engines(None)
        new = Engine()
        self.more.append(new)
        for _ in range(5):
            reply = self.reload(cluster, engines=[
                *cluster.config['engines'],
                {'name': 'new', 'url': new.url, 'model': 'm'}])
            self.assertEqual(reply.body['taken'], ['engines'])
            wait_until('two are ready',
                       lambda: cluster.api.instances()[0] == 2)
            self.assertEqual(self.post(cluster, {'prompt': 'p'}).status, 200)
            self.assertEqual(self.reload(cluster).body['taken'], ['engines'])
            wait_until('one is ready',
                       lambda: cluster.api.instances()[0] == 1)
            self.assertEqual(self.post(cluster, {'prompt': 'p'}).status, 200)

    def test_the_key_changes(self):
        old, new = 'o' * 32, 'n' * 32
        path = self.write('admin.key', old)
        os.chmod(path, 0o600)
        cluster = self.cluster(config={'admin_key_file': path})
        self.write('admin.key', new)

        def reload(key):
            return cluster.api.post('/admin/reload', headers={
                'Authorization': f'Bearer {key}'}).status
        self.assertEqual([reload(new), reload(old), reload(old), reload(new)],
                         [401, 200, 401, 200])
        told = [line for line in cluster.conductor.log().splitlines()
                if 'reload: taken: ' in line]
        self.assertEqual([line.split('taken: ')[1].split(';')[0]
                          for line in told], ['admin_key_file', 'nothing'])

    def test_a_cost_model_of_another_name(self):
        """It needs a restart: until then nothing is read of it."""
        cluster = self.cluster(cost={'prefill': (1000, 0, 0, 0)})
        reply = self.reload(cluster, slo_ttft_ms=1000, cost_model=self.write(
            'slow.json', cost_model_json(prefill=(9000000, 0, 0, 0))))
        self.assertEqual(reply.body, {'taken': ['slo_ttft_ms'],
                                      'needs_restart': ['cost_model']})
        self.assertEqual(cluster.api.complete('p').status, 200)
        # That of the same name counts at once.
        self.write(cluster.config['cost_model'], cost_model_json(
            prefill=(9000000, 0, 0, 0)))
        reply = self.reload(cluster, slo_ttft_ms=1000)
        self.assertEqual(reply.body, {'taken': ['cost_model'],
                                      'needs_restart': []})
        self.assertEqual(cluster.api.complete('p').status, 429)


class ReloadWhereAllReach(Case):
    """In a network of loopback alone."""

    def setUp(self):
        self.home = os.open('/proc/thread-self/ns/net', os.O_RDONLY)
        self.addCleanup(self.leave)
        if not enter_loopback():
            self.skipTest('no right to make a network of loopback alone')
        super().setUp()

    def leave(self):
        ctypes.CDLL(None).setns(self.home, 0)
        os.close(self.home)

    def test_who_sees_all_is_told(self):
        """Where others reach the only address, and need no key."""
        text = 'admin_listen: none: every client that reaches listen can read'
        for config, told in (({'listen': '0.0.0.0:0',
                               'admin_listen': '127.0.0.1:0'}, False),
                             ({'listen': '127.0.0.1:0'}, False),
                             ({'listen': '0.0.0.0:0'}, True)):
            cluster = self.cluster(prefill=0, decode=0, config=config)
            self.assertEqual(text in cluster.conductor.log(), told, config)

    def test_the_key_stays(self):
        """The listener stays until a restart, and so does its need of one."""
        path = self.write('admin.key', KEY)
        os.chmod(path, 0o600)
        cluster = self.cluster(config={'admin_listen': '0.0.0.0:0',
                                       'admin_key_file': path})
        admin = Api(cluster.ports['admin'])
        for dropped in ['admin_key_file'], ['admin_key_file', 'admin_listen']:
            with open(os.path.join(self.folder, 'conductor.json'), 'w',
                      encoding='utf-8') as f:
                json.dump({key: value for key, value in cluster.config.items()
                           if key not in dropped}, f)
            reply = admin.post('/admin/reload',
                               headers={'Authorization': f'Bearer {KEY}'})
            self.assertEqual(reply.status, 400, reply.body)
            self.assertIn('admin_listen: "0.0.0.0:0": other machines can reach it',
                          reply.body['error']['message'])
            self.assertEqual(
                admin.get('/admin/instances').status, 401)


class Supervised(Case):
    """As systemd starts it: sockets that listen already, and what it is
    told."""

    # The id of the process must be in its environment.
    STARTER = ('import os,sys\n'
               'fd = int(sys.argv[1])\n'
               'os.dup2(fd, 3)\n'
               'os.set_inheritable(3, True)\n'
               'os.environ.update(LISTEN_PID=str(os.getpid()),'
               ' LISTEN_FDS="1", LISTEN_FDNAMES="http")\n'
               'os.execv(sys.argv[2], sys.argv[2:])\n')

    def notified(self, **environment):
        """A socket that hears what the next programs say."""
        path = os.path.join(self.folder, 'notify')
        hears = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.addCleanup(hears.close)
        hears.bind(path)
        hears.settimeout(60)
        for name, value in {'NOTIFY_SOCKET': path, **environment}.items():
            os.environ[name] = value
            self.addCleanup(os.environ.pop, name)
        return hears

    def test_what_it_is_told(self):
        hears = self.notified(WATCHDOG_USEC='600000')
        cluster = Cluster(self)
        cluster.start_conductor()
        told = [hears.recv(200).decode()]
        self.assertEqual(told[0], 'READY=1')
        for _ in range(3):
            self.assertEqual(hears.recv(200), b'WATCHDOG=1')
        cluster.conductor.child.send_signal(signal.SIGHUP)
        while told[-1] != 'READY=1' or len(told) < 2:
            text = hears.recv(200).decode()
            if text != 'WATCHDOG=1':
                told.append(text)
        self.assertRegex(told[1], r'\ARELOADING=1\nMONOTONIC_USEC=\d+\Z')
        cluster.conductor.child.send_signal(signal.SIGTERM)
        cluster.conductor.killed = True
        while hears.recv(200) != b'STOPPING=1':
            pass

    def test_a_hangup_while_it_stops(self):
        """READY would take the STOPPING back."""
        hears = self.notified()
        cluster = Cluster(self)
        cluster.config['drain_wait_ms'] = 3600000
        cluster.start_conductor()
        cluster.conductor.child.send_signal(signal.SIGTERM)
        wait_until('it is not ready', lambda: 'not ready for' in
                   cluster.conductor.log())
        cluster.conductor.child.send_signal(signal.SIGHUP)
        wait_until('it says so', lambda: 'SIGHUP is ignored' in
                   cluster.conductor.log())
        cluster.conductor.child.send_signal(signal.SIGTERM)
        cluster.conductor.killed = True
        self.assertEqual([hears.recv(200), hears.recv(200)],
                         [b'READY=1', b'STOPPING=1'])
        hears.setblocking(False)
        self.assertRaises(BlockingIOError, hears.recv, 200)

    def test_a_worker_says_when_it_serves(self):
        cluster = self.cluster(prefill=0, decode=0)
        hears = self.notified()
        cluster.start_worker('w', 'both')
        self.assertEqual(hears.recv(200), b'READY=1')

    @mostly_waits
    def test_exchanged_without_a_lost_request(self):
        """Clients ask all the time, while one conductor follows another at the
        same socket, five times."""
        engine = Engine()
        self.addCleanup(engine.stop)
        door = socket.create_server(('127.0.0.1', 0), backlog=1024)
        self.addCleanup(door.close)
        config = self.write('c.json', json.dumps({
            'listen': '127.0.0.1:1', 'engine_health_ms': 50, 'engines': [
                {'name': 'e', 'url': engine.url, 'model': 'm'}]}))
        api = Api(door.getsockname()[1])

        def begin(i):
            os.set_inheritable(door.fileno(), True)
            return self.start(f'c{i}', [
                sys.executable, '-c', self.STARTER, str(door.fileno()),
                program(*CONDUCTOR), '-c', config], pass_fds=[door.fileno()])

        def ready():
            return api.get('/ready').status == 200
        now = begin(0)
        wait_until('it serves', ready)
        wrong, n, stop = [], [0], threading.Event()

        def client():
            while not stop.is_set():
                try:
                    reply = api.post('/v1/completions', {
                        'model': 'm', 'prompt': 'p'})
                    if reply.status != 200:
                        wrong.append(reply.body)
                    n[0] += 1
                except OSError as error:
                    wrong.append(error)
        threads = [threading.Thread(target=client) for _ in range(4)]
        for thread in threads:
            thread.start()
        for i in range(5):
            before = n[0]
            wait_until('requests pass', lambda b=before: n[0] > b + 20)
            # The old one closes the door before the new one is ready: what
            # comes meanwhile waits in the socket's queue.
            now.child.send_signal(signal.SIGTERM)
            now.killed = True
            old, now = now, begin(i + 1)
            wait_until('the old one has gone', lambda o=old: not o.alive())
        wait_until('requests pass', lambda b=n[0]: n[0] > b + 20)
        stop.set()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [])
