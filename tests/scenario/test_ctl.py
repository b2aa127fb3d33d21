"""conductorctl: what it shows of a cluster, what it changes, and what it says
of servers that give no good answer."""
import json
import os
import re
import socket
import threading

from harness import (CONDUCTOR, ROOT, Case, Cluster, program, read_file,
                     wait_until)
from stand_in import Engine, reply
from test_failures import in_background

CTL = 'tools', 'conductorctl'
KEY = 'k' * 40


class Ctl(Case):
    def ctl(self, port, *words):
        return self.run_program(program(*CTL), '--address',
                                f'127.0.0.1:{port}', *words)

    def good(self, cluster, *words):
        status, out, errors = self.ctl(cluster.ports['http'], *words)
        self.assertEqual((status, errors), (0, ''))
        return out

    def bad(self, port, words, status, *told):
        got, out, errors = self.ctl(port, *words)
        self.assertEqual((got, out), (status, ''))
        for text in told:
            self.assertIn(text, errors)

    def test_what_it_shows(self):
        cluster = self.cluster()
        self.assertRegex(self.good(cluster, 'status'),
                         r'\Astatus +ready\nmodel +tiny: ready\n'
                         r'instances +1 for prefill, 1 for decode\n +2 ready')
        rows = [line.split() for line in
                self.good(cluster, 'instances').splitlines()]
        self.assertEqual(rows[0][:5],
                         ['NAME', 'MODEL', 'KIND', 'ROLE', 'STATE'])
        self.assertEqual(sorted(row[:5] for row in rows[1:]), [
            ['d0', 'tiny', 'native', 'decode', 'ready'],
            ['p0', 'tiny', 'native', 'prefill', 'ready']])
        self.assertEqual({len(row) for row in rows}, {11})
        self.assertEqual({row[9] for row in rows[1:]}, {'-'})
        shown = json.loads(self.good(cluster, '--json', 'instances'))
        self.assertEqual(shown, cluster.api.get('/admin/instances').body)
        got = cluster.api.complete('a prompt ' * 10)
        self.assertEqual(self.good(cluster, 'replicas', '1', 'a prompt ' * 10),
                         '5 blocks: 1 worker holds them\n')
        # Longer than a request line may be.
        long = ' é%' * 1500
        cluster.api.complete(long)
        self.assertEqual(self.good(cluster, 'replicas', '2', long),
                         '375 blocks: 1 worker holds them\nnot 2: no other '
                         'prefill worker can take a copy now\n')
        self.bad(cluster.ports['http'], ('replicas', '0', long), 1,
                 '/admin/replicas: 400: copies: 0: must be')
        text = self.good(cluster, 'explain',
                         got.body['conductor']['request_id'])
        self.assertRegex(text, r'\nstate +completed\n')
        self.assertRegex(text, r'\npredicted +TTFT, ms [0-9.]+; queue, ms')
        self.assertRegex(text, r'\n\*  p0 ')
        self.assertRegex(text, r'\n\*  d0 ')
        self.assertRegex(text, r'\ncost +file\n')
        self.assertRegex(text, r'\nprompt tokens +90\n')
        self.assertNotIn('guessed', text)
        self.assertNotIn('No times', text)
        self.assertIn('LOCAL, USED: blocks of 16 tokens', text)
        shown = json.loads(self.good(cluster, '--json', 'explain',
                                     got.body['conductor']['request_id']))
        self.assertEqual(shown['state'], 'completed')
        lines = self.good(cluster, 'metrics', 'requests_total').splitlines()
        self.assertIn('conductor_requests_total{outcome="completed"} 2', lines)
        self.assertTrue(all('requests_total' in line for line in lines))
        self.assertIn('# HELP', self.good(cluster, 'metrics'))
        samples = {(s['name'], *s['labels'].items()): s['value'] for s in
                   json.loads(self.good(cluster, '--json', 'metrics'))}
        self.assertEqual(samples['conductor_requests_total',
                                 ('outcome', 'completed')], 2)
        self.assertEqual(samples['conductor_instance_ready',
                                 ('instance', 'p0')], 1)
        self.assertEqual(len(samples), sum(
            line[:1] not in ('#', '')
            for line in self.good(cluster, 'metrics').splitlines()))
        one, = json.loads(self.good(cluster, '--json', 'metrics',
                                    'requests_total{outcome="completed"'))
        self.assertEqual(one, {'name': 'conductor_requests_total', 'value': 2,
                               'labels': {'outcome': 'completed'}})
        self.bad(cluster.ports['http'], ('metrics', 'no such'), 1,
                 'metrics: "no such": in no line')

    def test_what_it_changes(self):
        cluster = self.cluster()
        status, out, errors = self.ctl(cluster.ports['http'], 'drain', 'd0')
        self.assertEqual((status, out), (0, 'd0: draining\n'))
        self.assertEqual(
            errors, 'conductorctl: warning: no decode instance of model tiny '
            'is ready now: its requests get 503 until conductorctl undrain '
            'd0\n')
        self.assertRegex(self.good(cluster, 'instances'),
                         r'd0 +tiny +native +decode +drained ')
        status, out, _ = self.ctl(cluster.ports['http'], 'status')
        self.assertEqual((status, out.splitlines()[0].split()),
                         (1, ['status', 'not', 'ready']))
        self.assertEqual(self.good(cluster, 'undrain', 'd0'), 'd0: ready\n')
        self.bad(cluster.ports['http'], ('drain', 'x/../y'), 1,
                 'name: "x/../y": no instance of that name')
        self.write('conductor.json', json.dumps(
            {**cluster.config, 'slo_ttft_ms': 5000, 'seed': 8}))
        self.assertEqual(self.good(cluster, 'reload'),
                         'taken: slo_ttft_ms\nneeds a restart: seed\n')
        self.write('conductor.json', '{"listen": 7}')
        self.bad(cluster.ports['http'], ('reload',), 1, 'listen', '7',
                 'nothing has changed')

    def test_an_engine_that_tells_nothing(self):
        """What is guessed is marked, and what is not known is said."""
        begun, go_on = threading.Event(), threading.Event()

        def serve(request, send):
            if b'wait' in request.body:
                begun.set()
                go_on.wait(30)
            send(reply(200, b'{"choices": []}'))
        engine = Engine(serve)
        self.addCleanup(engine.stop)
        self.addCleanup(go_on.set)
        cluster = Cluster(self)
        cluster.config = {'listen': '127.0.0.1:0', 'engine_health_ms': 20,
                          'engines': [{'name': 'a', 'url': engine.url,
                                       'model': 'm'}]}
        cluster.start_conductor()
        wait_until('a is ready', lambda: cluster.api.instances()[0] == 1)
        got = cluster.api.post('/v1/completions', {
            'model': 'm', 'prompt': 'a prompt ' * 40})
        self.assertEqual(got.status, 200)
        text = self.good(cluster, 'explain', got.headers['x-request-id'])
        self.assertRegex(text, r'\nprompt tokens +≈\d+, guessed by bytes\n')
        self.assertRegex(text, r'\nactual +prompt ≈\d+; here ≈\d+;.*; '
                         'prompt guessed by bytes; cached guessed by the '
                         'index\n')
        self.assertRegex(text, r'\ncost +guess\n')
        self.assertIn('\nNo times: no cost is known yet (8 prefills needed).\n',
                      text)
        row = re.search(r'\n\*  a  .*\n(?=\nTESTED)', text).group()
        self.assertIn('  no limit  ', row)
        row = self.good(cluster, 'instances').splitlines()[1].split()
        self.assertEqual(row[-2:], ['-', '-'])
        client = in_background(lambda: cluster.api.post('/v1/completions', {
            'model': 'm', 'prompt': 'wait'}))
        wait_until('it has work', begun.is_set)
        drain = in_background(lambda: (self.ctl(
            cluster.ports['http'], '--wait', 'drain', 'a'), go_on.is_set()))
        wait_until('it is drained', lambda: cluster.api.instances()[0] == 0)
        self.assertRegex(self.good(cluster, 'instances'), ' draining ')
        go_on.set()
        (status, out, _), waited = drain()
        self.assertEqual((status, out), (0, 'a: draining\na: drained\n'))
        self.assertTrue(waited)
        self.assertEqual(client().status, 200)
        self.assertRegex(self.good(cluster, 'instances'), ' drained ')

    def test_a_bound_that_is_not_known(self):
        """Of two equal engines one is not worked out."""
        cluster = Cluster(self)
        cluster.config = {'listen': '127.0.0.1:0', 'engine_health_ms': 20,
                          'engines': []}
        for name in 'a', 'b':
            engine = Engine(lambda request, send: send(
                reply(200, b'{"choices": []}')))
            self.addCleanup(engine.stop)
            cluster.config['engines'].append(
                {'name': name, 'url': engine.url, 'model': 'm'})
        cluster.start_conductor()
        wait_until('both are ready', lambda: cluster.api.instances()[0] == 2)
        got = cluster.api.post('/v1/completions', {
            'model': 'm', 'prompt': 'a prompt ' * 40})
        known = cluster.api.get(
            f'/admin/explain/{got.headers["x-request-id"]}').body
        self.assertEqual({(c['at_least'], c['ttft_ms'])
                          for c in known['candidates']},
                         {(False, None), (True, None)})
        text = self.good(cluster, 'explain', got.headers['x-request-id'])
        self.assertNotIn('>=-', text)

    def test_a_refused_request(self):
        """Each candidate has the TTFT that was compared with the limit."""
        cluster = self.cluster(cost={'prefill': (50000, 0, 0, 0)},
                               engine='timed', config={'slo_ttft_ms': 20})
        self.assertEqual(cluster.api.complete('x').status, 429)
        refused, = cluster.api.get('/admin/decisions').body['refused']
        one, = refused['candidates']
        self.assertEqual(one['tested_ttft_ms'],
                         refused['predicted']['tested_ttft_ms'])
        self.assertGreater(one['tested_ttft_ms'], 20)
        text = self.good(cluster, 'explain', refused['request_id'])
        self.assertIn(f' {one["tested_ttft_ms"]:.3f} ', text)

    def test_keys(self):
        path = self.write('admin.key', KEY)
        other = self.write('other.key', KEY[1:] + 'x')
        for name in path, other:
            os.chmod(name, 0o600)
        cluster = self.cluster(config={'admin_key_file': path,
                                       'admin_listen': '127.0.0.1:0'})
        port = cluster.ports['admin']
        self.bad(port, ('instances',), 1, '401', '--key-file FILE')
        self.bad(port, ('--key-file', other, 'drain', 'p0'), 1, '401',
                 'is wrong')
        self.bad(port, ('--key-file', 'none', 'drain', 'p0'), 2, 'none')
        self.assertEqual(self.ctl(port, '-k', path, 'drain', 'p0')[:2],
                         (0, 'p0: draining\n'))

    def test_a_package_that_nobody_has_configured(self):
        """Its configuration serves nothing: -t, the log and reload say so; and
        what asks at the wrong one of its addresses is told which is right."""
        config = json.loads(read_file(ROOT, 'packaging', 'conductor.json'))
        path = self.write('c.json', json.dumps(config))
        says = 'warn .*nothing to route to: no engines, and no worker_listen'
        status, out, errors = self.run_program(program(*CONDUCTOR), '-t', '-c',
                                               path)
        self.assertEqual((status, out), (0, 'configuration ok\n'))
        self.assertRegex(errors, says)
        cluster = Cluster(self)
        cluster.config = {**config, 'listen': '127.0.0.1:0',
                          'admin_listen': '127.0.0.1:0', 'drain_wait_ms': 0}
        cluster.start_conductor()
        log = cluster.conductor.log
        self.assertEqual(len(re.findall(says, log())), 1)
        ctl = program(*CTL)

        def at(port, *words):
            return self.run_program(
                'env', f'CONDUCTOR_ADDRESS=127.0.0.1:{port}', ctl, *words)
        status, out, errors = at(cluster.ports['http'], 'instances')
        self.assertEqual((status, out), (1, ''))
        self.assertRegex(errors, '404: path: "/admin/instances": not served at '
                                 'this address.* use admin_listen')
        self.assertError(cluster.api.get('/nothing'), 404,
                         'does not exist, and is not forwarded to engines')
        self.assertEqual(at(cluster.ports['admin'], 'instances')[::2], (0, ''))
        self.assertEqual(at(9, '-a', f'127.0.0.1:{cluster.ports["admin"]}',
                            'reload')[::2], (0, ''))
        self.assertEqual(len(re.findall(says, log())), 2)

    def test_usage(self):
        for words, told in (((), 'a command is missing'),
                            (('stauts',), '"stauts"'),
                            (('drian', 'a'), 'did you mean drain?'),
                            (('xyzzy',), 'no such command; try'),
                            (('--json', 'status'),
                             '--json: status has no such option'),
                            (('--wait', 'undrain', 'a'),
                             '--wait: undrain has no such option'),
                            (('--limit', '5', 'status'), '--limit: status'),
                            (('drain',), 'needs NAME'),
                            (('replicas', '2'), 'needs N and PROMPT'),
                            (('replicas', 'x', 'a'), 'N: "x": must be'),
                            (('replicas', '2', b'\xff'), 'UTF-8'),
                            (('status', 'x'), 'too many words'),
                            (('explain', 'a b'), '"a b"'),
                            (('--ca-file', 'x', 'status'), 'https://'),
                            (('-a', 'x', 'status'), '--address: "x": must be'),
                            (('-a', 'h:0', 'status'), '"h:0": must be'),
                            (('--timeout', 'soon', 'status'), 'timeout')):
            self.bad(9, words, 2, told)
        status, out, _ = self.ctl(9, '--help')
        self.assertEqual(status, 0)
        self.assertIn('conductorctl explain', out)

    def test_servers_that_are_none(self):
        answers = [reply(200, b'{"instances": '),
                   reply(200, b'[1]')]
        with socket.create_server(('127.0.0.1', 0)) as unused:
            port = unused.getsockname()[1]
        self.bad(port, ('status',), 1, 'Connection refused',
                 '(address from --address)')
        server = Engine(lambda request, send: send(answers.pop(0)))
        self.addCleanup(server.stop)
        port = int(server.url.rsplit(':', 1)[1])
        for _ in range(2):
            self.bad(port, ('instances',), 1, 'no JSON object')
        server.metrics = '\x1b[2J\n'
        status, out, _ = self.ctl(port, 'metrics')
        self.assertEqual((status, out), (0, '?[2J\n'))
        silent = socket.create_server(('127.0.0.1', 0))
        self.addCleanup(silent.close)
        self.bad(silent.getsockname()[1], ('--timeout', '0.2', 'status'), 1,
                 'gives no HTTP answer')
