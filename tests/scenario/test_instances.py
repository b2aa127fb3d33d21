"""Engines that come and go while the conductor runs: over /admin, by a file
that is watched, and by the addresses of a name."""
import http.client
import json
import os
import re
import socket
import threading

import engines
from certificates import Certificates
from harness import (CONDUCTOR, Case, Cluster, cost_model_json, program,
                     mostly_waits, sanitized, settings, wait_until)
from name_server import NameServer
from stand_in import Engine, chunk, event, reply, stream_head

KEY = 'a-key-of-sixteen-bytes-or-more'
NATIVE = (': is the model of the native workers, too; give one of them another '
          'name, or clear worker_listen')


class InstanceCase(Case):
    def setUp(self):
        super().setUp()
        self.more = []

    def engine(self, serve=None, **where):
        self.more.append(Engine(serve, **where))
        self.more[-1].models = None
        return self.more[-1]

    def conductor(self, **config):
        cluster = Cluster(self)
        cluster.config = {'listen': '127.0.0.1:0', 'engine_health_ms': 50,
                          'engines': [], **config}
        cluster.start_conductor()
        return cluster

    def tearDown(self):
        for e in self.more:
            if e.open:
                e.stop()
            self.assertEqual(e.faults, [])
        super().tearDown()

    @staticmethod
    def entry(name, engine, **more):
        return {'name': name, 'url': engine.url, 'model': 'm', **more}

    @staticmethod
    def states(cluster):
        """{name: state}"""
        got = cluster.api.get('/admin/instances')
        assert got.status == 200, got.body
        return {i['name']: i['state'] for i in got.body['instances']}

    def wait_states(self, cluster, **states):
        wait_until(f'the instances are {states}',
                   lambda: self.states(cluster) == states)

    @staticmethod
    def wait_log(cluster, *words):
        wait_until(f'the log has {words}', lambda: all(
            w in cluster.conductor.log() for w in words))

    @staticmethod
    def ask(cluster, model='m', **body):
        return cluster.api.post('/v1/completions', {
            'model': model, 'prompt': 'x', **body})


class Admin(InstanceCase):
    def add(self, cluster, entry, headers=None):
        return cluster.api.post('/admin/instances', entry, headers)

    def remove(self, cluster, name, headers=None):
        return cluster.api.request('DELETE', f'/admin/instances/{name}',
                                   headers=headers)

    def test_one_comes_and_another_goes(self):
        go_on = threading.Event()

        def slow(request, send):
            send(stream_head())
            send(chunk(event('one')))
            go_on.wait(60 * settings.scale)
            send(chunk(event('two')) + b'0\r\n\r\n')
        cluster = self.conductor()
        self.assertEqual(self.states(cluster), {})
        self.assertError(self.ask(cluster), 404, 'model: "m": does not exist')
        a, b = self.engine(slow), self.engine()
        got = self.add(cluster, self.entry('a', a))
        self.assertEqual((got.status, got.body),
                         (201, {'name': 'a', 'state': 'starting'}))
        self.wait_states(cluster, a='ready')
        connection, response = cluster.api.open(
            'POST', '/v1/completions',
            {'model': 'm', 'stream': True, 'prompt': 'x'})
        self.assertEqual(response.read(len(event('one'))), event('one'))
        self.assertEqual(self.add(cluster, self.entry('b', b)).status, 201)
        self.wait_states(cluster, a='ready', b='ready')
        self.assertError(self.add(cluster, self.entry('b', b)), 409, '"b"')
        got = self.remove(cluster, 'a')
        self.assertEqual((got.status, got.body),
                         (202, {'name': 'a', 'state': 'draining'}))
        self.assertEqual(self.states(cluster),
                         {'a': 'draining', 'b': 'ready'})
        self.assertError(self.remove(cluster, 'a'), 404, '"a"')
        for _ in range(4):
            self.assertEqual(self.ask(cluster).headers[
                'x-conductor-prefill'], 'b')
        # One of the same name may come at once.
        other = self.engine()
        self.assertEqual(self.add(cluster, self.entry('a', other)).status, 201)
        wait_until('the new one is ready', lambda: 'ready' in [
            i['state'] for i in cluster.api.listed()
            if i['name'] == 'a'])
        cluster.api.metrics()  # fails where a sample comes twice
        go_on.set()
        self.assertEqual(response.read(), event('two'))
        connection.close()
        self.wait_states(cluster, a='ready', b='ready')
        for name in 'ab':
            self.assertEqual(self.remove(cluster, name).status, 202)
        self.wait_states(cluster)
        wait_until('the model is gone', lambda: self.ask(cluster).status == 404)
        metrics = cluster.api.metrics()
        self.assertEqual([k for k in metrics if 'instance=' in k], [])
        # What was counted before stays counted.
        self.assertEqual(metrics[
            'conductor_requests_total{outcome="completed"}'], 5)

    @mostly_waits
    def test_three_hundred_come_and_go(self):
        """Models with their engines, again and again: all is right, and what
        they took is given back."""
        e = self.engine()
        cluster = self.conductor()
        sizes, answered = [cluster.conductor.rss_mib()], 0
        names = [(f'e{i}', f'm{i // 5}') for i in range(25)]
        for turn in range(12):
            for name, model in names:
                self.assertEqual(self.add(cluster, self.entry(
                    name, e, model=model, kv_blocks=100000)).status, 201)
            self.wait_states(cluster, **{name: 'ready' for name, _ in names})
            for i in range(10):
                prompt = [turn] + list(range(i * 10000, i * 10000 + 10000))
                got = self.ask(cluster, f'm{i % 5}', prompt=prompt).ok()
                self.assertIn((got.headers['x-conductor-prefill'],
                               f'm{i % 5}'), names)
                answered += 1
            for name, _ in names:
                self.assertEqual(self.remove(cluster, name).status, 202)
            self.wait_states(cluster)
            wait_until('the models are gone', lambda: cluster.api.get(
                '/v1/models').body['data'] == [])
            metrics = cluster.api.metrics()
            self.assertEqual([k for k in metrics if 'instance=' in k], [])
            self.assertEqual(metrics[
                'conductor_requests_total{outcome="completed"}'], answered)
            self.assertEqual(metrics['conductor_index_bytes'], 0)
            sizes.append(cluster.conductor.rss_mib())
        # The sanitizers keep what was freed.
        if not sanitized():
            self.assertLess(max(sizes), sizes[0] + 40, sizes)

    def test_no_counter_goes_back(self):
        a = self.engine()
        cluster = self.conductor(index_mib=1)
        self.assertEqual(self.add(cluster, self.entry(
            'a', a, kv_blocks=100000)).status, 201)
        self.wait_states(cluster, a='ready')
        evicted = 'conductor_index_evicted_blocks_total'
        first = 0
        while cluster.api.metrics()[evicted] == 0:
            self.assertLess(first, 10**7)
            self.assertEqual(self.ask(cluster, prompt=list(range(
                first, first + 10**5))).status, 200)
            first += 10**5
        before = cluster.api.metrics()
        self.assertEqual(self.remove(cluster, 'a').status, 202)
        wait_until('the model is gone', lambda: self.ask(cluster).status == 404)
        after = cluster.api.metrics()
        self.assertEqual([], [name for name, value in before.items()
                              if re.search('_(total|sum|count|bucket)', name)
                              and '="a"' not in name
                              and value > after.get(name, -1)])

    def test_one_that_does_not_drain(self):
        go_on = threading.Event()

        def slow(request, send):
            if json.loads(request.body)['prompt'] == 'begun':
                send(stream_head())
                send(chunk(event('one')))
            go_on.wait(60 * settings.scale)
        self.addCleanup(go_on.set)
        cluster = self.conductor(engine_drain_ms=300)
        self.assertEqual(self.add(cluster, self.entry(
            'a', self.engine(slow))).status, 201)
        self.wait_states(cluster, a='ready')
        begun, response = cluster.api.open('POST', '/v1/completions', {
            'model': 'm', 'stream': True, 'prompt': 'begun'})
        self.assertEqual(response.read(len(event('one'))), event('one'))
        answers = []
        waits = threading.Thread(target=lambda: answers.append(
            self.ask(cluster, prompt='waits')))
        waits.start()
        wait_until('both are there', lambda: cluster.api.health()[
            'requests_in_flight'] == 2)
        self.assertEqual(self.add(cluster, self.entry(
            'b', self.engine())).status, 201)
        self.wait_states(cluster, a='ready', b='ready')
        self.assertEqual(self.remove(cluster, 'a').status, 202)
        self.wait_states(cluster, b='ready')
        # The one that nobody has seen anything of is tried elsewhere.
        waits.join()
        self.assertEqual(answers[0].status, 200)
        self.assertEqual(answers[0].headers['x-conductor-prefill'], 'b')
        # The other one's answer ends, as if its engine had died.
        with self.assertRaises(http.client.IncompleteRead):
            response.read()
        begun.close()
        self.assertIn('engine_drain_ms is over: 2 running requests are cut off',
                      cluster.conductor.log())

    def test_one_url_twice(self):
        a = self.engine()
        cluster = self.conductor()
        for name, model in ('a', 'm'), ('b', 'n'), ('c', 'm'):
            self.assertNotIn('same url', cluster.conductor.log())
            self.assertEqual(self.add(cluster, self.entry(
                name, a, model=model)).status, 201)
        # Told once, whatever else comes, and never of what is refused.
        self.assertEqual(self.add(cluster, self.entry(
            'd', self.engine(), model='o')).status, 201)
        self.assertEqual(self.add(cluster, self.entry(
            'e', a, block_tokens=7)).status, 400)
        log = cluster.conductor.log()
        self.assertEqual(log.count('have the same model and the same url'), 1)
        self.assertIn('engines a and c have the same model and the same url', log)
        self.wait_states(cluster, a='ready', b='ready', c='ready', d='ready')

    def test_names_of_native_workers(self):
        a = self.engine()
        cluster = self.conductor(worker_listen='127.0.0.1:0', model='tiny',
                                 policy='least_loaded', block_tokens=16,
                                 engines=[self.entry('b', a)])
        cluster.start_worker('w', 'both')
        self.wait_states(cluster, w='ready', b='ready')
        self.assertError(self.add(cluster, self.entry('w', a)), 409,
                         'name: "w": is the name of a native worker')
        late = cluster.start_worker('b', 'both')
        wait_until('it is refused', lambda: 'name: "b" is the name of an '
                   'engine' in cluster.conductor.log())
        late.kill()
        self.assertError(self.add(cluster, self.entry('c', a, model='tiny')),
                         400, 'model: "tiny"' + NATIVE)
        self.assertError(self.add(cluster, self.entry(
            'c', a, model='n', adapters=['tiny'])), 400, 'adapters: "tiny"' + NATIVE)
        lists = self.engine()
        lists.models = [{'id': 'tiny'}]
        self.assertEqual(self.add(
            cluster, {'name': 'c', 'url': lists.url}).status, 201)
        wait_until('it is said', lambda: (
            f'engine c at {lists.url} gets no work: model: "tiny"' + NATIVE
            in cluster.conductor.log()))
        self.assertEqual(self.remove(cluster, 'c').status, 202)
        cluster.api.metrics()  # fails where a sample comes twice
        self.wait_states(cluster, w='ready', b='ready')

    def test_ranks_of_one_url(self):
        """Each is an instance of its own, unless one is told twice."""
        a = self.engine()
        cluster = self.conductor()
        for name, rank in ('a', 0), ('b', 1), ('c', 1):
            self.assertNotIn('same url', cluster.conductor.log())
            self.assertEqual(self.add(cluster, self.entry(
                name, a, dp_rank=rank)).status, 201)
        self.assertIn('engines b and c have the same model and the same url',
                      cluster.conductor.log())

    def test_bad_entries(self):
        a = self.engine()
        cluster = self.conductor(max_instances=2, engines=[
            self.entry('a', a, block_tokens=32)])
        good = self.entry('b', a)
        for bad, field, value, *words in (
                ({**good, 'url': 'ftp://h'}, 'url', '"ftp://h"'),
                ({**good, 'url': 'http://h:1/x/v1/completions/'}, 'url',
                 '"http://h:1/x/v1/completions/"', 'write "http://h:1/x"'),
                ({**good, 'url': 'http://h/chat/completions'}, 'url',
                 '"http://h/chat/completions"', 'write "http://h"'),
                ({**good, 'kind': 'trt'}, 'kind', '"trt"'),
                ({**good, 'role': 'decod'}, 'role', '"decod"'),
                ({**good, 'kv_blocks': 0}, 'kv_blocks', '0'),
                ({**good, 'name': 'a b'}, 'name', '"a b"'),
                ({**good, 'blocks': 1}, 'blocks', 'no such field'),
                ({**good, 'block_tokens': 24}, 'block_tokens', '24', '32'),
                ({'name': 'b'}, 'url', 'missing; without it'),
                ({**good, 'dns': True, 'name': 'n' * 24}, 'name', '"nnn'),
                ({**good, 'aliases': ['b', 'b']}, 'aliases', '"b"')):
            got = self.add(cluster, bad)
            self.assertError(got, 400, f'{field}: {value}', *words)
            error = got.body['error']
            self.assertEqual((error['param'], error['code']),
                             (field, 'invalid_value'))
            self.assertTrue(error['message'].startswith(field + ': '))
        for bad, code, words in (([], 'invalid_value', 'must be an object'),
                                 (b'{', 'invalid_json', 'line 1')):
            got = self.add(cluster, bad)
            self.assertError(got, 400, words)
            error = got.body['error']
            self.assertEqual((error['param'], error['code']), (None, code))
        self.assertError(self.remove(cluster, 'nobody'), 404, 'nobody')
        self.assertError(self.remove(cluster, 'x' * 200), 404)
        self.assertError(cluster.api.request('PUT', '/admin/instances', '{}'),
                         405)
        self.assertError(cluster.api.post('/admin/other', good),
                         404)
        self.assertEqual(self.add(cluster, good).status, 201)
        self.assertError(self.add(cluster, {**good, 'name': 'c'}), 400,
                         'max_instances', '2')
        self.wait_states(cluster, a='ready', b='ready')
        # A name that an address must write in another way.
        self.assertEqual(self.remove(cluster, 'b').status, 202)
        self.wait_states(cluster, a='ready')
        self.assertEqual(
            self.add(cluster, {**good, 'name': 'q?x'}).status, 201)
        self.assertEqual(self.remove(cluster, 'q%3Fx').status, 202)
        self.wait_states(cluster, a='ready')

    def test_strangers(self):
        a = self.engine()
        cluster = self.conductor()
        entry = self.entry('a', a)
        self.assertError(self.add(cluster, entry, {'Origin': 'http://x'}), 403)
        self.assertError(self.add(
            cluster, {**entry, 'api_key_file': '/etc/hostname'}), 403,
            'api_key_file', '/etc/hostname')
        self.stop(cluster.conductor)
        path = self.write('admin.key', KEY + '\n')
        os.chmod(path, 0o600)
        cluster = self.conductor(admin_key_file=path)
        key = {'Authorization': 'Bearer ' + KEY}
        self.assertError(self.add(cluster, entry), 401, 'admin_key_file')
        self.assertError(self.add(cluster, entry, {
            'Authorization': 'Bearer ' + KEY + 'x'}), 401)
        self.assertEqual(self.add(cluster, entry, key).status, 201)
        self.assertError(self.remove(cluster, 'a'), 401)
        self.wait_states(cluster, a='ready')
        self.assertError(self.add(cluster, {
            **entry, 'name': 'b', 'cost_model': 'cost.json'}, key), 400,
            'cost_model: "cost.json"', 'whole path')
        self.assertEqual(self.remove(cluster, 'a', key).status, 202)
        self.wait_states(cluster)
        for how in 'added', 'removed':
            self.assertRegex(
                cluster.conductor.log(),
                rf'instance a: {how} over /admin by 127\.0\.0\.1:\d+, '
                'with the key')
        os.chmod(path, 0o644)
        cluster.config['admin_key_file'] = path
        status, _, errors = self.run_program(
            program(*CONDUCTOR), '-t', '-s', f'admin_key_file={path}',
            '-s', 'policy=random')
        self.assertEqual(status, 2)
        self.assertIn('admin_key_file', errors)


class File(InstanceCase):
    def put(self, *entries, text=None):
        """As an editor or a ConfigMap does it: a new file in the old place."""
        path = self.write('engines.next', text or json.dumps(
            {'engines': entries}))
        os.replace(path, os.path.join(self.folder, 'engines.json'))
        return 'engines.json'

    def failures(self, cluster):
        return cluster.api.metric('discovery_failures_total', source='file')

    def test_the_file_is_followed(self):
        a, b = self.engine(), self.engine()
        self.put(self.entry('a', a))
        cluster = self.conductor(engines_file='engines.json')
        self.wait_states(cluster, a='ready')
        self.put(self.entry('a', a), self.entry('b', b))
        self.wait_states(cluster, a='ready', b='ready')
        self.assertEqual(self.failures(cluster), 0)
        for bad, word in (('{"engines": [', 'line 1'),
                          ('{"engine": []}', 'no such field'),
                          (json.dumps({'engines': [
                              self.entry('c', a, kv_blocks=-1)]}),
                           'engines[0].kv_blocks'),
                          (json.dumps({'engines': [self.entry('c', a)] * 2}),
                           'engines[1].name')):
            before = self.failures(cluster)
            self.put(text=bad)
            wait_until('it was read',
                       lambda: self.failures(cluster) > before)
            wait_until('the log says why',
                       lambda: word in cluster.conductor.log())
            self.assertEqual(self.states(cluster),
                             {'a': 'ready', 'b': 'ready'})
        before = self.failures(cluster)
        os.remove(os.path.join(self.folder, 'engines.json'))
        wait_until('it is missed', lambda: self.failures(cluster) > before)
        self.assertEqual(self.states(cluster), {'a': 'ready', 'b': 'ready'})
        self.assertError(cluster.api.request(
            'DELETE', '/admin/instances/b'), 403, 'engines.json')
        self.put(self.entry('b', b))
        self.wait_states(cluster, b='ready')
        self.put()
        self.wait_states(cluster)

    def test_a_fleet_changes_as_a_whole(self):
        a = self.engine()
        n = 200
        names = [f'adapter-{i}' for i in range(32)]

        def fleet(adapters, first=0, **more):
            return [self.entry(f'e{i}', a, adapters=adapters, **more)
                    for i in range(first, n)]

        def adapters():
            return [m['id'] for m in cluster.api.get('/v1/models').body['data']]
        self.put(*fleet(names))
        cluster = self.conductor(engines_file='engines.json',
                                 max_instances=2 * n)
        ready = {f'e{i}': 'ready' for i in range(n)}
        self.wait_states(cluster, **ready)
        self.assertEqual(adapters(), ['m', *sorted(names)])
        # Each is another one now, and they have other adapters.
        self.put(*fleet(names[3:6] + ['new'], kv_blocks=100))
        wait_until('the adapters are new', lambda: adapters() == [
            'm', *names[3:6], 'new'])
        self.wait_states(cluster, **ready)
        self.put(*fleet(names[3:6] + ['new'], first=n - 3, kv_blocks=100))
        self.wait_states(cluster, **{f'e{i}': 'ready'
                                     for i in range(n - 3, n)})
        self.put()
        self.wait_states(cluster)
        wait_until('the model is gone', lambda: adapters() == [])

    def costs(self, name, prefill_us, **more):
        """A cost model by which a prefill takes so long."""
        model = json.loads(cost_model_json(prefill=(prefill_us, 0, 0, 0)))
        return self.write(name, json.dumps({**model, 'model': 'm', **more}))

    def predicted(self, cluster):
        """How long a prefill takes, and where that comes from."""
        reply = self.ask(cluster).ok()
        told = cluster.api.explain(reply)
        return told['cost'], told['predicted']['prefill_ms']

    def test_costs_are_followed(self):
        a, b = self.engine(), self.engine()
        self.costs('slow.json', 3e6)
        self.costs('fast.json', 1e3)
        self.put(self.entry('a', a, cost_model='slow.json'))
        cluster = self.conductor(engines_file='engines.json')
        self.wait_states(cluster, a='ready')
        self.assertEqual(self.predicted(cluster), ('file', 3000))
        # The first entry of the file that names one tells it for all.
        self.put(self.entry('b', b, cost_model='fast.json'),
                 self.entry('a', a, cost_model='slow.json'))
        self.wait_states(cluster, a='ready', b='ready')
        wait_until('the log has it', lambda: 'fast.json from now on' in
                   cluster.conductor.log())
        cost, ms = self.predicted(cluster)
        self.assertEqual(cost, 'file')
        self.assertLess(ms, 3)
        self.put(self.entry('a', a), self.entry('b', b))
        wait_until('they are learned', lambda: 'learned from now on' in
                   cluster.conductor.log())
        self.wait_states(cluster, a='ready', b='ready')
        self.assertEqual(self.predicted(cluster)[0], 'guess')

    def test_costs_of_other_blocks(self):
        a = self.engine()
        self.costs('blocks.json', 1e3, block_tokens=32)
        entry = self.entry('a', a, cost_model='blocks.json')
        words = 'engines[0].cost_model', 'blocks.json', '32', '16'
        for file in False, True:
            self.put(*[entry] * file)
            path = self.write('c.json', json.dumps({
                'listen': '127.0.0.1:0', 'engines': [entry] * (not file),
                **({'engines_file': 'engines.json'} if file else {})}))
            for options in (), ('-t',):
                status, _, errors = self.run_program(
                    program(*CONDUCTOR), '-c', path, *options)
                self.assertEqual(status, 2, errors)
                for word in words:
                    self.assertIn(word, errors)
        # The model's block size may come from another of its engines.
        self.put(entry, self.entry('b', a, block_tokens=32))
        cluster = self.conductor(engines_file='engines.json')
        self.wait_states(cluster, a='ready', b='ready')

    def test_a_pipe_in_its_place(self):
        """Nobody writes into it: reading it must not wait, nor must the end."""
        cluster = self.conductor(engines_file=self.put(
            self.entry('a', self.engine())))
        self.wait_states(cluster, a='ready')
        for field in None, 'api_key_file', 'cost_model':
            before = self.failures(cluster)
            pipe = os.path.join(self.folder, field or 'engines.next')
            os.mkfifo(pipe)
            if field:
                self.put(self.entry('a', self.engine(), **{field: pipe}))
            else:
                os.replace(pipe, os.path.join(self.folder, 'engines.json'))
            wait_until('it was read',
                       lambda: self.failures(cluster) > before)
            wait_until('the log says why', lambda: re.search(
                f'{field or "engines.json"}.*: not a regular file',
                cluster.conductor.log()))
            self.wait_states(cluster, a='ready')

    def test_a_file_that_is_not_there(self):
        for options in (), ('-t',):
            status, _, errors = self.run_program(
                program(*CONDUCTOR), '-s', 'listen=127.0.0.1:0',
                '-s', 'worker_listen=', '-s', 'engines_file=no.json', *options)
            self.assertEqual(status, 2)
            self.assertIn('no.json', errors)

    def test_it_is_checked_with_the_configuration(self):
        a = self.engine()
        good = self.entry('a', a)
        for file, config, *words in (
                ([{**good, 'kv_blocks': -1}], {}, 'engines[0].kv_blocks'),
                ([{**good, 'api_key_file': 'no.key'}], {},
                 'engines.json: engines[0].api_key_file', 'no.key'),
                ([{**good, 'name': 'b'}, good], {'engines': [good]},
                 'engines.json: engines[1].name', '"a"'),
                ([{**good, 'name': 'b'}], {'engines': [good],
                                           'max_instances': 1},
                 'max_instances', '2'),
                ([good], {'worker_listen': '127.0.0.1:0', 'model': 'm',
                          'policy': 'random'},
                 'engines.json: engines[0].model: "m"' + NATIVE),
                ([{**good, 'aliases': ['x']}], {
                    'worker_listen': '127.0.0.1:0', 'model': 'x',
                    'policy': 'random'},
                 'engines.json: engines[0].aliases: "x"' + NATIVE)):
            self.put(*file)
            path = self.write('c.json', json.dumps({
                'listen': '127.0.0.1:0', 'engines_file': 'engines.json',
                **config}))
            status, _, errors = self.run_program(
                program(*CONDUCTOR), '-t', '-c', path)
            self.assertEqual(status, 2, errors)
            for word in words:
                self.assertIn(word, errors)
        self.put(good)
        status, output, errors = self.run_program(
            program(*CONDUCTOR), '-t', '-c', self.write('c.json', json.dumps({
                'engines_file': 'engines.json'})))
        self.assertEqual((status, output), (0, 'configuration ok\n'), errors)


class Dns(InstanceCase):
    def look_up(self, addresses, host='pool.test', **config):
        """A conductor that looks the name up, and its name server."""
        self.servers = NameServer(host, addresses)
        self.addCleanup(self.servers.stop)
        return self.conductor(
            engine_dns_ms=100, name_server=f'127.0.0.1:{self.servers.port}',
            engines=[{'name': 'p', 'dns': True, 'model': 'm',
                      'url': f'http://{host}:{self.port}'}], **config)

    def everywhere(self):
        """One engine at all addresses of loopback."""
        e = self.engine(host='0.0.0.0', called='pool.test')
        self.port = e.port

    @staticmethod
    def pods(*which):
        return [f'127.0.1.{i}' for n in which for i in n]

    def wait_pods(self, cluster, *which):
        self.wait_states(cluster, **{f'p@{a}': 'ready'
                                     for a in self.pods(*which)})

    def at(self, n, called='pool.test'):
        """An engine at 127.0.0.n; all at one port."""
        e = self.engine(port=getattr(self, 'port', 0), host=f'127.0.0.{n}',
                        called=called)
        self.port = e.port
        return e

    def test_addresses_come_and_go(self):
        first, second = self.at(1), self.at(2)
        cluster = self.look_up(['127.0.0.1'])
        self.wait_states(cluster, **{'p@127.0.0.1': 'ready'})
        self.assertEqual(self.ask(cluster).headers['x-conductor-prefill'],
                         'p@127.0.0.1')
        self.servers.addresses = ['127.0.0.2', '127.0.0.1']
        self.wait_states(cluster, **{'p@127.0.0.1': 'ready',
                                     'p@127.0.0.2': 'ready'})
        self.servers.addresses = ['127.0.0.2']
        self.wait_states(cluster, **{'p@127.0.0.2': 'ready'})
        self.assertEqual(self.ask(cluster).headers['x-conductor-prefill'],
                         'p@127.0.0.2')
        self.assertEqual(len(first.requests), 1)
        self.assertEqual(len(second.requests), 1)
        # No such name is an answer, too.
        self.servers.addresses = []
        self.wait_states(cluster)
        self.assertError(self.ask(cluster), 503, "'m'")
        self.servers.addresses = ['127.0.0.1']
        self.wait_states(cluster, **{'p@127.0.0.1': 'ready'})
        self.assertIn('pool.test has 1 address\n', cluster.conductor.log())
        # So is a name without records, as of a service that has no pods.
        self.servers.addresses = ()
        self.wait_states(cluster)
        self.assertEqual(
            cluster.api.metric('discovery_failures_total', source='dns'), 0)
        self.servers.addresses = ['127.0.0.2']
        self.wait_states(cluster, **{'p@127.0.0.2': 'ready'})

    def test_more_addresses_than_a_datagram_holds(self):
        self.everywhere()
        cluster = self.look_up(self.pods(range(1, 51)), max_instances=256,
                               engine_health_ms=60000)
        self.wait_pods(cluster, range(1, 51))
        self.assertEqual(self.servers.most, 1232)
        self.assertEqual(self.servers.asked_tcp, 0)
        for which in range(1, 201), range(150, 201), range(101, 221):
            self.servers.addresses = self.pods(which)
            self.wait_pods(cluster, which)
        self.assertGreater(self.servers.asked_tcp, 0)
        self.assertEqual(
            cluster.api.metric('discovery_failures_total', source='dns'), 0)

    def test_more_addresses_than_instances(self):
        """Those that were there first stay; others come when some go."""
        self.everywhere()
        cluster = self.look_up(self.pods(range(1, 31)), max_instances=40,
                               engine_health_ms=60000)
        self.wait_pods(cluster, range(1, 31))
        self.servers.addresses = self.pods(range(11, 61))
        wait_until('it is told', lambda: 'engines p: 10 more addresses of '
                   'pool.test are not used: max_instances is 40' in
                   cluster.conductor.log())
        wait_until('there are 40', lambda: list(
            self.states(cluster).values()) == ['ready'] * 40)
        self.assertLessEqual({f'p@{a}' for a in self.pods(range(11, 31))},
                             set(self.states(cluster)))
        self.servers.addresses = self.pods(range(25, 61))
        self.wait_pods(cluster, range(25, 61))

    def kept(self, answer, tcp=True):
        """The engines stay while the name server answers that."""
        self.everywhere()
        cluster = self.look_up(self.pods(range(1, 101)), max_instances=256,
                               engine_health_ms=60000)
        self.wait_pods(cluster, range(1, 101))
        self.servers.addresses, self.servers.tcp = answer, tcp
        wait_until('it fails', lambda:
            cluster.api.metric('discovery_failures_total', source='dns') >= 3)
        self.wait_pods(cluster, range(1, 101))
        self.assertEqual(cluster.conductor.log().count('cannot look up'), 1)
        self.servers.addresses, self.servers.tcp = self.pods([7, 201]), True
        self.wait_pods(cluster, [7, 201])
        self.assertIn('pool.test is found again', cluster.conductor.log())

    def test_a_name_server_without_tcp(self):
        """Of a cut answer nothing is taken."""
        self.kept(self.pods(range(1, 102)), tcp=False)

    def test_a_name_server_that_answers_nonsense(self):
        self.kept(b'\xc0\x0c\0\1\0\1\0\0\0\1\0\4\x7f')

    def test_a_name_server_that_says_nothing(self):
        """Nor does who is silent for a while."""
        self.everywhere()
        cluster = self.look_up(self.pods(range(1, 4)), engine_health_ms=60000)
        self.wait_pods(cluster, range(1, 4))
        self.servers.addresses = 'nothing'
        asked = self.servers.asked
        wait_until('it is asked again', lambda: self.servers.asked > asked + 1)
        self.wait_pods(cluster, range(1, 4))
        self.servers.addresses = self.pods(range(2, 6))
        self.wait_pods(cluster, range(2, 6))

    def test_a_family_that_fails(self):
        """Its addresses stay; those of the other one come and go."""
        self.everywhere()
        cluster = self.look_up([*self.pods([1, 2]), '::ffff:127.0.1.9'],
                               engine_health_ms=60000)
        wait_until('all are there', lambda: len(self.states(cluster)) == 3)
        sixth = set(self.states(cluster)) - {f'p@{a}' for a in
                                             self.pods([1, 2])}
        self.servers.broken = {28}
        self.servers.addresses = self.pods([2, 3])
        wait_until('one came, one went', lambda: set(self.states(cluster)) ==
                   sixth | {f'p@{a}' for a in self.pods([2, 3])})
        self.servers.broken = set()
        self.wait_pods(cluster, [2, 3])

    def test_a_name_that_nobody_has(self):
        """As with a typo: it is told once."""
        self.at(1)
        cluster = self.look_up([])
        line = 'engines p: pool.test has no address'
        wait_until('it is told', lambda: line in cluster.conductor.log())
        empty = 'conductor_discovery_empty_names'
        self.assertEqual(cluster.api.metrics()[empty], 1)
        self.servers.addresses = ['127.0.0.1']
        self.wait_states(cluster, **{'p@127.0.0.1': 'ready'})
        self.assertEqual(cluster.conductor.log().count(line), 1)
        self.assertEqual(cluster.api.metrics()[empty], 0)

    def test_one_that_had_no_place_is_tried_again(self):
        self.at(1), self.at(2)
        self.servers = NameServer('pool.test', ['127.0.0.1', '127.0.0.2'])
        self.addCleanup(self.servers.stop)
        cluster = self.conductor(
            max_instances=2, engine_dns_ms=100,
            name_server=f'127.0.0.1:{self.servers.port}', engines=[])
        admin = '/admin/instances'
        self.assertEqual(cluster.api.post(
            admin, self.entry('a', self.engine())).status, 201)
        self.assertEqual(cluster.api.post(admin, {
            'name': 'p', 'dns': True, 'model': 'm',
            'url': f'http://pool.test:{self.port}'}).status, 201)
        wait_until('it is told', lambda: 'it is tried again' in
                   cluster.conductor.log())
        self.assertEqual(len(self.states(cluster)), 2)
        self.assertEqual(
            cluster.api.request('DELETE', f'{admin}/a').status, 202)
        self.wait_states(cluster, **{'p@127.0.0.1': 'ready',
                                     'p@127.0.0.2': 'ready'})

    def test_a_name_server_that_fails(self):
        self.fails(again=False)

    def test_a_name_server_that_falls_silent(self):
        self.fails(again=True)

    def test_a_name_server_that_never_answers(self):
        servers = NameServer('pool.test', [])
        self.addCleanup(servers.stop)
        servers.addresses = lambda: 'nothing'
        cluster = self.conductor(
            name_server=f'127.0.0.1:{servers.port}', engine_timeout_ms=200,
            state='redis://pool.test:1',
            engines=[{'name': 'a', 'model': 'm', 'url': 'http://pool.test:1'}])
        wait_until('it is told why', lambda:
                   'engine a was never ready at http://pool.test:1 and gets no '
                   'work yet: its host was not looked up in time' in
                   cluster.conductor.log())
        wait_until('of Redis, too', lambda:
                   'redis pool.test:1 cannot be used: its host was not looked '
                   'up in time' in cluster.conductor.log())

    def fails(self, again):
        self.at(1)
        cluster = self.look_up(['127.0.0.1'])
        self.wait_states(cluster, **{'p@127.0.0.1': 'ready'})
        self.servers.addresses = None
        wait_until('it fails', lambda:
            cluster.api.metric('discovery_failures_total', source='dns') >= 2)
        self.assertEqual(self.states(cluster), {'p@127.0.0.1': 'ready'})
        self.assertEqual(cluster.conductor.log().count(
            'cannot look up pool.test'), 1)
        self.servers.addresses = ['127.0.0.1']
        wait_until('it is told', lambda: 'pool.test is found again' in
                   cluster.conductor.log())
        # Mute while the conductor ends: nothing may be left behind, of the
        # look-up or of the question that follows an empty answer.
        answers = iter([(), ()]) if again else iter([])
        self.servers.addresses = lambda: next(answers, 'nothing')
        asked = self.servers.asked
        wait_until('it is asked', lambda: self.servers.asked > asked + again)


class Llama(engines.Case, InstanceCase):
    def test_another_server_at_run_time(self):
        """Two llama.cpp servers: the second comes while the first streams, and
        the first leaves before its stream has ended. The second one says its
        model itself."""
        servers = [engines.LlamaServer(self, f'llama{i}') for i in range(2)]
        cluster = self.conductor(engines=[{
            'name': 'a', 'url': servers[0].url, 'model': engines.MODEL}])
        self.wait_states(cluster, a='ready')
        connection, response = cluster.api.open('POST', '/v1/completions', {
            'model': engines.MODEL, 'prompt': 'A tale.', 'stream': True,
            'max_tokens': 64, 'temperature': 0})
        self.assertEqual(response.status, 200)
        self.assertEqual(cluster.api.post('/admin/instances', {
            'name': 'b', 'url': servers[1].url}).status, 201)
        self.assertEqual(cluster.api.request(
            'DELETE', '/admin/instances/a').status, 202)
        self.assertIn(b'[DONE]', response.read())
        connection.close()
        self.wait_states(cluster, b='ready')
        got = self.ask(cluster, engines.MODEL, max_tokens=4).ok()
        self.assertEqual(got.headers['x-conductor-prefill'], 'b')


class Tls(Certificates, InstanceCase):
    """https, with certificates of an authority of the test's own."""

    def test_streams_and_large_bodies(self):
        ca = self.authority()
        large = os.urandom(1 << 19).hex().encode()

        def serve(request, send):
            if request.path == '/v1/echo':
                name = request.header('x-request-id')
                send(reply(200, request.body, [f'X-Request-Id: {name}']))
            else:
                Engine.complete(request, send)
        e = self.engine(serve, tls=self.certificate('127.0.0.1'))
        cluster = self.conductor(engines=[self.entry(
            'a', e, tls_ca_file=ca)])
        self.wait_states(cluster, a='ready')
        events = list(cluster.api.stream('/v1/completions', {
            'model': 'm', 'prompt': 'x'}))
        self.assertEqual(events[-1], '[DONE]')
        body = b'{"model": "m", "prompt": "%s"}' % large
        for _ in range(3):
            got = cluster.api.post('/v1/echo', body).ok()
            self.assertEqual(json.dumps(got.body).encode(), body)
        # Connections are kept: few handshakes.
        self.assertLessEqual(e.connections, 4)

    def test_whom_it_does_not_trust(self):
        ca = self.authority()
        self.authority('other')
        named = self.engine(tls=self.certificate('engine.test'))
        cluster = self.conductor(engines=[
            # Another name than the certificate's.
            {'name': 'name', 'model': 'm', 'tls_ca_file': ca,
             'url': f'https://127.0.0.1:{named.port}'},
            # Another authority.
            self.entry('ca', self.engine(tls=self.certificate('127.0.0.1')),
                       tls_ca_file=os.path.join(self.folder, 'other.pem')),
            # The machine's authorities do not know it, either.
            self.entry('machine', self.engine(
                tls=self.certificate('127.0.0.1'))),
            # No TLS at all.
            {'name': 'plain', 'model': 'm', 'tls_ca_file': ca,
             'url': f'https://127.0.0.1:{self.engine().port}'}])
        self.wait_log(cluster, 'engine name was never ready',
                      'IP address mismatch', 'engine ca was never ready',
                      'engine machine was never ready',
                      'engine plain was never ready', 'TLS: ')
        self.assertEqual(set(self.states(cluster).values()), {'starting'})
        self.assertError(self.ask(cluster), 503, "'m'")
        # A plain engine sees handshakes, which are no HTTP.
        plain = self.more.pop()
        self.addCleanup(plain.stop)
        self.assertTrue(plain.faults)

    def test_insecure_is_said_explicitly(self):
        self.authority()
        e = self.engine(tls=self.certificate('engine.test'))
        cluster = self.conductor(engines=[{
            'name': 'a', 'model': 'm', 'tls_insecure': True,
            'url': f'https://127.0.0.1:{e.port}'}])
        e.authority = f'127.0.0.1:{e.port}'
        self.wait_states(cluster, a='ready')
        self.assertEqual(self.ask(cluster).status, 200)

    def test_the_name_of_looked_up_engines(self):
        """Each address must show the certificate of the name."""
        ca = self.authority()
        context = self.certificate('pool.test')
        first = self.engine(host='127.0.0.1', called='pool.test', tls=context)
        self.engine(host='127.0.0.2', called='pool.test', tls=context,
                    port=first.port)
        names = NameServer('pool.test', ['127.0.0.1', '127.0.0.2'])
        self.addCleanup(names.stop)
        cluster = self.conductor(
            name_server=f'127.0.0.1:{names.port}', engines=[self.entry(
                'p', first, dns=True, tls_ca_file=ca)])
        self.wait_states(cluster, **{'p@127.0.0.1': 'ready',
                                     'p@127.0.0.2': 'ready'})
        self.assertEqual(self.ask(cluster).status, 200)

    def test_a_handshake_that_does_not_come(self):
        mute = socket.create_server(('127.0.0.1', 0))
        self.addCleanup(mute.close)
        port = mute.getsockname()[1]
        cluster = self.conductor(engine_timeout_ms=200, engines=[{
            'name': 'a', 'model': 'm', 'url': f'https://127.0.0.1:{port}'}])
        self.wait_log(cluster, 'engine a was never ready', 'TLS: no handshake')
        connections = cluster.api.metrics()[
            'conductor_engine_connections{instance="a",state="busy"}']
        self.assertLessEqual(connections, 1)

    def test_http_to_a_port_of_https(self):
        self.authority()
        https = self.engine(tls=self.certificate('127.0.0.1'))
        # As nginx and others that read the request in spite of it.
        told = self.engine()
        told.health = 400
        cluster = self.conductor(engines=[
            {'name': 'a', 'model': 'm',
             'url': f'http://127.0.0.1:{https.port}'},
            self.entry('b', told)])
        self.wait_log(
            cluster, 'engine a was never ready', 'engine b was never ready',
            'it answers its health check with 400; does it need https://?')
        self.assertRegex(cluster.conductor.log(), 'engine a was never ready.*; '
                         'does it need https://')
        self.assertEqual(set(self.states(cluster).values()), {'starting'})
        https.faults.clear()

    def test_bad_files(self):
        e = self.engine()
        for fields, *words in (
                ({'tls_ca_file': self.write('no.pem', 'nothing')},
                 'tls_ca_file', 'no.pem'),
                ({'tls_insecure': True, 'url': e.url}, 'tls_insecure', e.url)):
            path = self.write('c.json', json.dumps({'engines': [{
                'name': 'a', 'model': 'm', 'url': 'https://h', **fields}]}))
            status, _, errors = self.run_program(
                program(*CONDUCTOR), '-t', '-c', path)
            self.assertEqual(status, 2, errors)
            for word in words:
                self.assertIn(word, errors)


class Models(InstanceCase):
    """What engines say of their models."""

    @staticmethod
    def card(name, root='r', parent=None):
        return {'id': name, 'object': 'model', 'root': root, 'parent': parent}

    def names(self, cluster):
        got = cluster.api.get('/v1/models')
        return {c['id']: c.get('parent') for c in got.body['data']}

    def gauge(self, cluster, name, engine):
        return cluster.api.metric(f'engine_{name}', instance=engine)

    def test_no_model_is_named(self):
        e = self.engine()
        e.models = [self.card('m'), self.card('alias'),
                    self.card('lora', 'path', 'm'), self.card('x', 'other')]
        late = self.engine()
        cluster = self.conductor(engines=[
            {'name': 'a', 'url': e.url}, {'name': 'b', 'url': late.url}])
        self.wait_states(cluster, a='ready', b='starting')
        self.assertEqual(self.names(cluster), {
            'm': None, 'alias': None, 'lora': 'm'})
        for name in 'm', 'alias', 'lora':
            self.assertEqual(self.ask(cluster, name).status, 200)
        self.assertError(self.ask(cluster, 'x'), 404, '"x"')
        self.assertIn('serving model m, block_tokens 16',
                      cluster.conductor.log())
        self.assertEqual(
            [cluster.api.health()['instances'][state]
             for state in ('ready', 'starting')], [1, 1])
        self.assertRegex(cluster.conductor.log(),
                         r'engine b at http://\S+ gets no work, because its '
                         'model is not known yet')
        listed = {i['name']: i for i in cluster.api.listed()}
        self.assertEqual([listed[n]['model'] for n in 'ab'], ['m', None])
        # Each name is had by engines of its own.
        late.models = [self.card('m'), self.card('lora', 'path', 'm')]
        self.wait_states(cluster, a='ready', b='ready')
        self.assertEqual(self.names(cluster),
                         {'m': None, 'lora': 'm', 'alias': None})
        self.wait_log(cluster, 'model m: requests may name lora: 2 of 2 '
                      'engines have it: a, b')
        late.models.append(self.card('alias'))
        self.wait_log(cluster, 'engine b has 1 aliases and 1 adapters',
                      'model m: requests may name alias: 2 of 2 engines have '
                      'it: ')

    def law(self, cluster, engines, log=None):
        """Waits until these have the adapter `law` and is asked for it."""
        def have():
            return {c['id']: c['conductor']['engines'] for c in
                    cluster.api.get('/v1/models').body['data']}
        wait_until(f'{engines} have it', lambda: sorted(
            i['name'] for i in cluster.api.listed()
            if 'law' in i.get('names', ())) == engines)
        self.assertEqual(have().get('law', 0), len(engines))
        self.assertEqual(have()['m'], 2)
        if log:
            self.wait_log(cluster, log)
        if not engines:
            return
        for _ in range(4):
            got = self.ask(cluster, 'law').ok()
            self.assertIn(got.headers['x-conductor-prefill'], engines)
            why = cluster.api.explain(got)
            self.assertEqual(sorted(c['instance'] for c in why['candidates']),
                             engines)
            self.assertEqual(why['name'], 'law')
            got = cluster.api.post('/v1/schedule', {
                'model': 'law', 'prompt': 'x'})
            self.assertIn(got.body['prefill']['instance'], engines)
            self.assertEqual(cluster.api.post('/v1/schedule/done', {
                    'ticket': got.body['ticket'],
                    'state': 'done'}).status, 200)

    def test_an_adapter_that_one_engine_has(self):
        """Engines load and unload it while they run."""
        a, b = self.engine(), self.engine()
        base, law = self.card('m'), self.card('law', 'path', 'm')
        a.models, b.models = [base, law], [base]
        cluster = self.conductor(engines=[
            {'name': 'a', 'url': a.url}, {'name': 'b', 'url': b.url}])
        self.wait_states(cluster, a='ready', b='ready')
        self.law(cluster, ['a'],
                 'model m: requests may name law: 1 of 2 engines has it: a')
        self.assertEqual(b.requests, [])
        self.assertIn(self.ask(cluster).headers['x-conductor-prefill'], 'ab')
        # Who fails it is no reason to ask one that does not have it.
        a.serve = lambda request, send: send(reply(500, {}))
        self.assertEqual(self.ask(cluster, 'law').status, 500)
        a.serve = lambda request, send: 'reset'
        self.assertEqual(self.ask(cluster, 'law').status, 502)
        self.assertNotIn(b'law', b''.join(r.body for r in b.requests))
        a.serve = a.complete
        b.models = [base, law]
        self.wait_states(cluster, a='ready', b='ready')
        self.law(cluster, ['a', 'b'], 'requests may name law: 2 of 2')
        a.models = [base]
        self.law(cluster, ['b'], '1 of 2 engines has it: b')
        b.models = [base]
        self.law(cluster, [], 'model m: no engine has law any more')
        self.assertError(self.ask(cluster, 'law'), 503,
                         "no engine of model 'm' has 'law' now")
        self.assertError(self.ask(cluster, 'tax'), 404, '"tax"')
        # Once for each change.
        log = cluster.conductor.log()
        for engines in '2 of 2', '1 of 2 engines has it: b':
            self.assertEqual(log.count(f'may name law: {engines}'), 1)
        self.assertEqual(log.count('no engine has law'), 1)

    def test_an_adapter_of_one_entry(self):
        a, b = self.engine(), self.engine()
        cluster = self.conductor(engines=[
            self.entry('a', a, adapters=['law']), self.entry('b', b)])
        self.wait_states(cluster, a='ready', b='ready')
        self.law(cluster, ['a'])
        # It had it once, and lists it no more.
        base, law = self.card('m'), self.card('law', 'path', 'm')
        a.models = [base, law]
        asked = a.n_models
        wait_until('it was asked', lambda: a.n_models > asked + 1)
        self.law(cluster, ['a'])
        a.models = [base]
        self.law(cluster, [], 'engine a does not list law, one of the adapters '
                 'of its entry: it gets no requests that name it')
        a.models = [base, law]
        self.law(cluster, ['a'])
        a.health = 500
        self.wait_states(cluster, a='suspect', b='ready')
        self.assertError(self.ask(cluster, 'law'), 503,
                         "no engine of model 'm' that has 'law' is ready "
                         '(1 have it)')
        self.assertEqual(self.ask(cluster).status, 200)

    def test_names_that_an_engine_lacks(self):
        e, none = self.engine(), self.engine()
        e.models = [self.card('m'), self.card('x', 'other')]
        cluster = self.conductor(engines=[
            self.entry(name, engine, aliases=['x', 'y'], adapters=['l'])
            for name, engine in (('a', e), ('none', none))])
        self.wait_states(cluster, a='ready', none='ready')

        def said(name):
            return cluster.conductor.log().count(
                f'engine a does not list {name}')
        asked = e.n_models
        wait_until('it was asked again', lambda: e.n_models > asked + 2)
        self.assertEqual((said('x'), said('y,'), said('l,')), (0, 1, 0))
        e.models.append(self.card('y', 'other'))
        asked = e.n_models
        wait_until('it was asked again', lambda: e.n_models > asked + 2)
        e.models.append(self.card('l', 'path', 'm'))
        wait_until('it was asked again', lambda: e.n_models > asked + 4)
        e.models.pop()
        wait_until('it lacks another', lambda: said('l, one of the adapters'))
        self.assertNotIn('engine none does not', cluster.conductor.log())

    def test_an_engine_changes_its_model(self):
        named, unnamed = self.engine(), self.engine()
        named.models = unnamed.models = [self.card('m')]
        cluster = self.conductor(engines=[
            self.entry('a', named), {'name': 'b', 'url': unnamed.url}])
        self.wait_states(cluster, a='ready', b='ready')
        self.assertEqual(self.gauge(cluster, 'other_model', 'a'), 0)
        named.models = [self.card('n')]
        self.wait_states(cluster, a='suspect', b='ready')
        self.assertEqual(self.gauge(cluster, 'other_model', 'a'), 1)
        self.assertIn('engine a gets no work: it has model n, and not m',
                      cluster.conductor.log())
        for _ in range(3):
            self.assertEqual(self.ask(cluster).headers[
                'x-conductor-prefill'], 'b')
        # One whose entry leaves it open serves its new model.
        unnamed.models = [self.card('n')]
        wait_until('it serves the other one',
                   lambda: self.ask(cluster, 'n').status == 200)
        self.assertError(self.ask(cluster), 503, "'m'")
        named.models = [self.card('m')]
        wait_until('it is back', lambda: self.ask(cluster).status == 200)
        self.assertEqual(self.gauge(cluster, 'other_model', 'a'), 0)
        self.assertEqual(self.states(cluster), {'a': 'ready', 'b': 'ready'})

    def test_an_empty_list(self):
        """As of a frontend whose workers have not come yet, or have gone."""
        had, new, lax = self.engine(), self.engine(), self.engine()
        had.models = [self.card('m')]
        new.models = lax.models = []
        cluster = self.conductor(engines=[
            self.entry('had', had), self.entry('new', new, kind='vllm'),
            self.entry('lax', lax)])
        self.wait_states(cluster, had='ready', new='suspect', lax='ready')
        had.models = []
        self.wait_states(cluster, had='suspect', new='suspect', lax='ready')
        self.assertIn('engine had gets no work: it has no model, and not m',
                      cluster.conductor.log())
        had.models = new.models = [self.card('m')]
        self.wait_states(cluster, had='ready', new='ready', lax='ready')

    def test_who_lists_another_model(self):
        strict, lax = self.engine(), self.engine()
        strict.models = lax.models = [self.card('n')]
        cluster = self.conductor(engines=[
            self.entry('strict', strict, kind='vllm'),
            self.entry('lax', lax)])
        self.wait_states(cluster, strict='suspect', lax='ready')
        self.assertEqual(self.ask(cluster).headers['x-conductor-prefill'],
                         'lax')
        log = cluster.conductor.log()
        self.assertIn('strict gets no work: it has model n, and not m', log)
        self.assertIn('lax lists model n, and not m', log)

    def test_no_list(self):
        """Of a vLLM or SGLang: it is another server, or another path."""
        strict, lax, closed = (self.engine() for _ in range(3))
        sglang = self.engine(lambda _, send: send(reply(200, {})))
        closed.models_status = 401  # of those without a key
        lost = self.engine()  # whose paths are others
        lost.health, lost.models_status = 404, 404
        cluster = self.conductor(engines=[
            self.entry('strict', strict, kind='vllm'),
            self.entry('sglang', sglang, kind='sglang', models_path='/x/y'),
            self.entry('lax', lax), self.entry('closed', closed, kind='vllm'),
            self.entry('lost', lost)])
        states = {'sglang': 'suspect', 'lax': 'ready', 'closed': 'ready',
                  'lost': 'ready'}
        self.wait_states(cluster, strict='suspect', **states)
        log = cluster.conductor.log()
        self.assertIn('engine strict gets no work: GET /v1/models '
                      'answers 404: the answer lists no model', log)
        self.assertIn('engine sglang gets no work: GET /x/y answers 200: '
                      'the answer lists no model', log)
        self.assertIn('engine lost answers 404 for /health and for '
                      '/v1/models', log)
        self.assertNotIn('engine lax answers 404', log)
        strict.models = [self.card('m')]
        self.wait_states(cluster, strict='ready', **states)
        # A list that fails for once says nothing.
        # A list that fails for once says nothing.
        for status in 503, 429:
            strict.models_status, asked = status, strict.n_models
            wait_until('it was asked', lambda: strict.n_models > asked + 2)
            self.assertEqual(self.states(cluster)['strict'], 'ready', status)
        strict.models_status = 404
        self.wait_states(cluster, strict='suspect', **states)

    def test_bad_lists(self):
        e = self.engine()
        e.models = 'nonsense'
        cluster = self.conductor(engines=[
            self.entry('named', e), {'name': 'unnamed', 'url': e.url}])
        self.wait_states(cluster, named='ready', unnamed='starting')
        for cards in ([], [{}], [{'id': 5}], [self.card('n' * 256)],
                      [self.card('m', parent='y')], {'id': 'x'}):
            e.models = cards
            asked = e.n_models
            wait_until('it was asked', lambda: e.n_models > asked + 8)
            self.assertEqual(self.states(cluster), {
                'named': 'ready', 'unnamed': 'starting'})

    def test_a_list_of_many_models(self):
        """The engine's own may be anywhere in it; also those of adapters."""
        many, lora, strict = self.engine(), self.engine(), self.engine()
        cards = [self.card('m')] + [self.card(f'x{i}', f'r{i}')
                                    for i in range(40)]
        many.models = cards
        lora.models = strict.models = cards[:0:-1] + [
            self.card(f'y{i}', 'z', 'x39') for i in range(40)] + [
            self.card('l', 'z', 'm'), self.card('m')]
        cluster = self.conductor(engines=[
            self.entry('many', many), self.entry('lora', lora, model='l'),
            self.entry('strict', strict, kind='vllm')])
        self.wait_states(cluster, many='ready', lora='ready', strict='ready')
        many.models = cards[::-1]
        asked = many.n_models
        wait_until('it was asked', lambda: many.n_models > asked + 8)
        self.assertEqual(self.states(cluster), {
            'many': 'ready', 'lora': 'ready', 'strict': 'ready'})
        self.assertNotIn('gets no work', cluster.conductor.log())

    def test_long_names(self):
        """Of a path, 255 bytes; a JSON text may have each / as \\/."""
        model, alias, lora = (f'/{c}{"/p" * 126}p' for c in 'mal')
        e, named = self.engine(), self.engine()
        e.models = named.models = [
            self.card(model), self.card(alias), self.card(lora, 'p', model),
            self.card(alias + 'p')]
        cluster = self.conductor(engines=[
            {'name': 'a', 'kind': 'vllm', 'url': e.url},
            self.entry('b', named, kind='vllm', model=model, aliases=[alias],
                       adapters=[lora])])
        self.wait_states(cluster, a='ready', b='ready')
        self.assertEqual(self.names(cluster),
                         {model: None, alias: None, lora: model})
        for name in model, alias, lora:
            self.assertEqual(self.ask(cluster, name).status, 200)
            body = json.dumps({'model': name, 'prompt': 'x'})
            self.assertEqual(cluster.api.post('/v1/completions',
                body.replace('/', '\\/').encode()).status, 200)
            self.assertEqual(cluster.api.get(
                '/v1/models/' + name).body['id'], name)
        for got in (self.ask(cluster, model[:-1]), cluster.api.get(
                '/v1/models/' + model[:-1])):
            self.assertError(got, 404, f'model: "{model[:100]}...": does not',
                             f'this server has "{model}" and others')
        self.assertError(self.ask(cluster, 'x' * 100), 404,
                         f'model: "{"x" * 100}": does not')
        self.assertError(self.ask(cluster, 'x' * 99 + '\u00e9'), 404,
                         f'model: "{"x" * 99}...": does not')
        self.assertError(self.ask(cluster, model + 'p'), 400,
                         'must be a text of at most 255 bytes')
        e.models = [self.card(lora)]
        wait_until('it has another model', lambda: f'engine a gets no work: it '
                   f'has model {lora}, and not {model}' in
                   cluster.conductor.log())

    def test_a_list_that_is_too_long(self):
        """Of 100,000 models, one of them its own."""
        e, unnamed = self.engine(), self.engine()
        e.models = unnamed.models = [self.card('m')] + [
            self.card(f'x{i}') for i in range(100000)]
        cluster = self.conductor(engines=[
            self.entry('strict', e, kind='vllm'),
            {'name': 'unnamed', 'url': unnamed.url}])
        for name, why in (
                ('strict gets no work', ''),
                (f'unnamed at {unnamed.url} gets no work',
                 ', because its model is not known yet')):
            line = (f'engine {name}{why}: GET /v1/models answers 200: the list '
                    'of models is longer than 1 MiB')
            wait_until('the log says so',
                       lambda line=line: line in cluster.conductor.log())
        e.models = unnamed.models = [self.card('m')]
        self.wait_states(cluster, strict='ready', unnamed='ready')

    def test_adapters_that_an_entry_leaves_out(self):
        e, none = self.engine(), self.engine()
        base, one, two = (self.card('m'), self.card('l1', 'z', 'm'),
                          self.card('l2', 'z', 'm'))
        e.models = [base, one, two]
        none.models = [self.card('k'), self.card('y', 'z', 'k'),
                       self.card('n', 'other')]
        # Those of another model are none of `none`'s.
        cluster = self.conductor(engines=[
            self.entry('a', e, adapters=['l1']),
            self.entry('none', none, model='n'),
            {'name': 'unnamed', 'url': none.url}])
        self.wait_states(cluster, a='ready', none='ready', unnamed='ready')

        def said(name):
            return cluster.conductor.log().count(
                f'engine {name} lists 1 adapters that its entry does not list')
        wait_until('it is told', lambda: said('a') == 1)
        for cards, times in (([base, two, one], 1), ([base, one], 1),
                             ([base, one, two], 2)):
            e.models, asked = cards, e.n_models
            wait_until('it was asked', lambda asked=asked:
                       e.n_models > asked + 2)
            self.assertEqual(said('a'), times)
        log = cluster.conductor.log()
        self.assertIn('as l2: it gets no requests for them, because its entry '
                      'names the model', log)
        self.assertEqual(log.count('adapters that its entry does not'), 2)

    def test_more_adapters_than_fit(self):
        e = self.engine()
        e.models = [self.card('m')] + [self.card(f'l{i}', 'z', 'm')
                                       for i in range(40)]
        cluster = self.conductor(engines=[{'name': 'a', 'url': e.url}])
        self.wait_states(cluster, a='ready')
        self.assertEqual(len(self.names(cluster)), 33)
        self.assertEqual(self.ask(cluster, 'l31').status, 200)
        self.assertError(self.ask(cluster, 'l32'), 404, '"l32"')
        e.models = e.models[::-1]
        wait_until('others are known', lambda: 'l39' in self.names(cluster))
        self.assertEqual(cluster.conductor.log().count(
            'engine a lists more than 32 aliases or adapters'), 1)

    def test_ready_names_who_has_none(self):
        e = self.engine()
        cluster = self.conductor(engines=[
            self.entry('a', e),
            {'name': 'b', 'url': 'http://127.0.0.1:1', 'model': 'n'}])
        self.wait_states(cluster, a='ready', b='starting')
        got = cluster.api.get('/ready')
        self.assertEqual((got.status, got.body), (200, {
            'ready': True, 'models': {'m': True, 'n': False}}))
        e.stop()
        wait_until('no model is served', lambda: cluster.api.get(
            '/ready').status == 503)
