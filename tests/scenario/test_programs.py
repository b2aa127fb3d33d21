"""Programs with bad configurations, files and ports say what is wrong."""
import json
import os
import socket
import subprocess
import threading

from harness import (CONDUCTOR, FIT, REPLAY, ROOT, WORKER, Case, Cluster,
                     cost_model_json, program, read_file, wait_until)
from test_failures import SLOW_DECODE


class BadConfiguration(Case):
    def refused(self, text, *words):
        config = self.write('conductor.json', text)
        status, _, errors = self.run_program(program(*CONDUCTOR), '--config',
                                             config)
        self.assertNotEqual(status, 0)
        self.assertGreater(status, 0, errors)
        for word in words:
            self.assertIn(word, errors)

    def refused_option(self, name, value, *words):
        model = self.write('cost.json', cost_model_json())
        self.refused(json.dumps({'cost_model': model, name: value}), name,
                     *words)

    def test_malformed(self):
        self.refused('{"listen": ', 'conductor.json: line 1, column 11: ')
        self.refused('[]', 'conductor.json', 'object')

    def test_options(self):
        for name, value, words in (
                ('lisen', '127.0.0.1:0', []),
                ('listen', 8080, ['8080']),
                ('listen', 'nowhere', ['nowhere']),
                ('listen', '127.0.0.1:99999', ['99999']),
                ('block_tokens', 'many', ['"many"']),
                ('block_tokens', 8, ['8', '16', '512']),
                ('block_tokens', 20.5, ['20.5']),
                ('block_tokens', 24, ['24', '16']),
                ('model', '', []),
                ('policy', 'psychic', ['psychic', 'global_cache']),
                ('log_level', 'loud', ['loud']),
                ('slo_ttft_ms', -1, ['-1']),
                ('max_body_bytes', 10, ['10'])):
            with self.subTest(f'{name} = {value}'):
                self.refused_option(name, value, 'conductor.json', *words)

    def test_options_together(self):
        """What options say together names the file, if the file alone says
        it."""
        wrong = ('worker_timeout_ms: 5000: must be at least twice heartbeat_ms, '
                 '60000')
        self.refused_option('heartbeat_ms', 60000, f'conductor.json: {wrong}')
        config = self.write('conductor.json', '{}')
        status, _, errors = self.run_program(
            program(*CONDUCTOR), '--config', config, '--set',
            'heartbeat_ms=60000')
        self.assertEqual(status, 2)
        self.assertIn(f'conductor: {wrong}', errors)

    def test_one_address_twice(self):
        """What the conductor listens at, -t knows."""
        engine = {'url': 'http://h', 'model': 'm', 'kv_events_bind': True,
                  'kv_events': 'tcp://*:5557'}
        ranks = {**engine, 'kv_events': 'tcp://127.0.0.1:5555', 'dp_ranks': 3}
        store = {'name': 's', 'model': 'm', 'tokens_per_s': 1,
                 'kv_events_bind': True, 'kv_events': 'tcp://*:5557'}
        for config, words in (
                ({'listen': '127.0.0.1:80', 'worker_listen': '127.0.0.1:80',
                  'policy': 'random'},
                 'worker_listen: "127.0.0.1:80": must differ from listen'),
                ({'listen': 'localhost:80', 'worker_listen': '0.0.0.0:80'},
                 'worker_listen: "0.0.0.0:80": must differ from listen'),
                ({'listen': '0.0.0.0:5557',
                  'engines': [{**ranks, 'name': 'a'}]},
                 'listen: "0.0.0.0:5557": engine a sends its KV events there'),
                ({'worker_listen': '[::]:5557',
                  'engines': [{**engine, 'name': 'a'}]},
                 'worker_listen: "[::]:5557": engine a sends its KV '
                 'events there'),
                ({'listen': '127.0.0.1:5557', 'stores': [store],
                  'engines': [{'url': 'http://h', 'model': 'm', 'name': 'a'}]},
                 'listen: "127.0.0.1:5557": store s sends its KV events '
                 'there'),
                ({'stores': [store], 'engines': [{**ranks, 'name': 'a'}]},
                 'stores[0].kv_events: "tcp://*:5557": engine a sends '
                 'its KV events there, too'),
                ({'stores': [store, {**store, 'name': 't', 'model': 'n'}],
                  'engines': [{'url': 'http://h', 'model': m, 'name': m}
                              for m in 'mn']},
                 'stores[1].kv_events: "tcp://*:5557": store s sends '
                 'its KV events there, too'),
                ({'engines': [{**engine, 'name': 'a'},
                              {**ranks, 'name': 'b'}]},
                 'engines[1].kv_events: "tcp://127.0.0.1:5555": engine a '
                 'listens there, too'),
                ({'engines': [{**engine, 'name': 'a'},
                              {**engine, 'name': 'b'}]},
                 'engines[1].kv_events: "tcp://*:5557": engine a listens '
                 'there, too')):
            path = self.write('conductor.json', json.dumps(config))
            status, _, errors = self.run_program(
                program(*CONDUCTOR), '-t', '-c', path)
            self.assertEqual(status, 2, errors)
            self.assertIn(words, errors)

    def test_no_file(self):
        status, _, errors = self.run_program(program(*CONDUCTOR), '--config',
                                             '/nonexistent.json')
        self.assertGreater(status, 0)
        self.assertIn('/nonexistent.json', errors)

    def test_no_event_loop(self):
        """As with no memory or file left: libevent has no way to wait."""
        config = self.write('conductor.json', json.dumps({
            'listen': '127.0.0.1:0', 'worker_listen': '127.0.0.1:0',
            'cost_model': self.write('cost.json', cost_model_json())}))
        status, _, errors = self.run_program(
            'env', 'EVENT_NOEPOLL=1', 'EVENT_NOPOLL=1', 'EVENT_NOSELECT=1',
            program(*CONDUCTOR), '--config', config)
        self.assertEqual(status, 1, errors)
        self.assertIn('event loop cannot be set up', errors)

    def test_port_in_use(self):
        model = self.write('cost.json', cost_model_json())
        with socket.create_server(('127.0.0.1', 0)) as taken:
            address = '127.0.0.1:%d' % taken.getsockname()[1]
            for option in 'listen', 'worker_listen':
                self.refused(json.dumps({
                    'listen': '127.0.0.1:0', 'worker_listen': '127.0.0.1:0',
                    'cost_model': model, option: address}), f'{option}: {address}: '
                    'another program listens there: end it')
        self.refused(json.dumps({
            'listen': 'a..b:80', 'worker_listen': '127.0.0.1:0',
            'cost_model': model}), 'listen: a..b:80: no such host')

    def test_cost_model(self):
        good = json.loads(cost_model_json())
        for name, text, word in (
                ('no JSON', 'u + p', 'cost.json'),
                ('another format', json.dumps({**good, 'format': 'x'}),
                 'format'),
                ('another version', json.dumps({**good, 'version': 2}),
                 'version'),
                ('no prefill', json.dumps(
                    {k: v for k, v in good.items() if k != 'prefill'}),
                 'prefill'),
                ('negative', cost_model_json(prefill=(-5, 1, 0, 0)),
                 'coefficients_us')):
            with self.subTest(name):
                self.refused(json.dumps({
                    'cost_model': self.write('cost.json', text)}),
                    'cost_model: ', word)
        self.refused(json.dumps({'cost_model': '/nonexistent.json'}),
                     'cost_model: ', '/nonexistent.json')

    def test_cost_model_of_other_blocks(self):
        """Every program that reads a model of another block size than it
        serves says so, -t too."""
        rows = [f'prefill,{u},{p},,,{500 + 50 * u + p}'
                for u in range(64, 1025, 64) for p in (0, 256, 512)]
        rows += [f'decode,,,{b},{b * k},{900 + 10 * b + b * k / 64}'
                 for b in range(1, 33) for k in (64, 256)]
        profile = self.write('profile.csv', '\n'.join([
            '# engine: cpu', '# model: tiny', '# machine: none',
            '# date: 2026-01-01', '# block_tokens: 256',
            'kind,uncached_tokens,cached_tokens,batch,kv_tokens,us',
            *rows, '']))
        model = os.path.join(self.folder, 'other.json')
        self.assertEqual(self.run_program(program(*FIT), '--out', model,
                                          profile)[0], 0)
        config = self.write('conductor.json', json.dumps(
            {'cost_model': model, 'block_tokens': 32}))
        cluster = self.write('cluster.json', json.dumps({
            'format': 'conductor-cluster', 'version': 1, 'name': 'c',
            'model': {'layers': 2, 'block_tokens': 512,
                      'kv_bytes_per_token': 1024},
            'cost': {'kind': 'polynomial', 'file': 'other.json'}}))
        for command, words in (
                ([CONDUCTOR, '-t', '-c', config], ['256', 'block_tokens is 32']),
                ([CONDUCTOR, '-c', config], ['256', 'block_tokens is 32']),
                ([WORKER, '--engine', 'timed', '--cost-model', model,
                  '--block-tokens', '32', '--role', 'both', '--name', 'w',
                  '--conductor', '127.0.0.1:1'],
                 ['256', '--block-tokens is 32']),
                ([REPLAY, 'simulate', '--cluster', cluster, '--policy', 'plan',
                  '--trace', 'x'], ['256', 'block_tokens is 512'])):
            with self.subTest(command[1]):
                status, _, errors = self.run_program(program(*command[0]),
                                                     *command[1:])
                self.assertGreater(status, 0)
                for word in words:
                    self.assertIn(word, errors)
        same = self.write('same.json', json.dumps(
            {'cost_model': model, 'block_tokens': 256}))
        self.assertEqual(self.run_program(
            program(*CONDUCTOR), '-t', '-c', same)[0], 0)

    def test_no_cost_model(self):
        """A policy that predicts needs one, the others don't."""
        self.refused(json.dumps({}), 'cost_model', 'policy plan', 'name '
                     'engines instead', 'random',
                     'least_loaded')
        self.refused(json.dumps({'policy': 'global_cache'}), 'cost_model')
        for policy in 'random', 'round_robin', 'least_loaded':
            self.assertEqual(self.run_program(
                program(*CONDUCTOR), '-t', '-s', 'policy=' + policy)[0], 0)

    def test_reference(self):
        """docs/reference/configuration.md is what the program says."""
        status, text, _ = self.run_program(program(*CONDUCTOR),
                                           '--config-reference')
        self.assertEqual(status, 0)
        self.assertEqual(read_file(ROOT, 'docs', 'reference', 'configuration.md'), text)


class NoCostModel(Case):
    def test_serves_and_predicts_nothing(self):
        """Requests are served, spread by what waits, and no number passes for
        a prediction: not in answers, explanations or metrics. Limits that no
        machine could meet reject nothing."""
        cluster = Cluster(self, {'policy': 'least_loaded', 'cost_model': '',
                                 'slo_tbt_ms': 1})
        cluster.start_conductor()
        for name in 'p0', 'p1':
            cluster.start_worker(name, 'prefill')
        cluster.start_worker('d0', 'decode')
        cluster.wait_ready(2, 1)
        replies = []
        threads = [threading.Thread(target=lambda n=n: replies.append(
            cluster.api.complete(chr(97 + n) * 4000, 2))) for n in range(6)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual([r.status for r in replies], [200] * 6)
        told = [r.body['conductor'] for r in replies]
        self.assertEqual({c['prefill'] for c in told}, {'p0', 'p1'})
        for reply in replies:
            self.assertIsNone(reply.body['conductor']['predicted_ttft_ms'])
            self.assertNotIn('x-conductor-predicted-ttft-ms',
                             {k.lower() for k in reply.headers})
        why = cluster.api.get('/admin/explain/' + told[0]['request_id']).body
        self.assertIsNone(why['predicted']['ttft_ms'])
        self.assertIsNone(why['predicted']['total_ttft_ms'])
        self.assertTrue(all(c['queue_ms'] is None for c in why['candidates']))
        self.assertGreater(why['actual']['ttft_ms'], 0)
        metrics = cluster.api.metrics()
        for name in ('ttft_prediction_error_ratio', 'tbt_prediction_error_ratio',
                     'prefill_prediction_error_ratio',
                     'queue_prediction_error_seconds'):
            self.assertEqual(metrics[f'conductor_{name}_count'], 0)
        self.assertIn('times are not predicted', cluster.conductor.log())

    def test_a_limit_ends_a_wait(self):
        """A request that has waited for room until its limit is told so: no
        prediction missed the limit."""
        cluster = Cluster(self, {'policy': 'least_loaded', 'cost_model': ''},
                          SLOW_DECODE)
        cluster.start_conductor()
        cluster.start_worker('b0', 'both', engine='timed', max_batch=1)
        cluster.wait_ready(1, 1)
        first = cluster.api.hold('a')
        reply = cluster.api.post(
            '/v1/completions', {'model': 'tiny', 'prompt': 'b'},
            {'x-slo-ttft-ms': '200'})
        self.assertError(reply, 429, 'no instance had room in its KV cache '
                         'within the time to first token limit of 200.000 ms')
        self.assertEqual(reply.body['error']['code'], 'no_capacity')
        self.assertEqual(
            cluster.api.metric('rejections_total', reason='no_room'), 1)
        first.end()


class BadWorkerOptions(Case):
    def test_options(self):
        good = {'--conductor': '127.0.0.1:1', '--role': 'both',
                '--engine': 'cpu', '--model': 'tiny', '--name': 'w'}
        for option, value in (('--role', 'cook'), ('--engine', 'steam'),
                              ('--model', 'gpt-4'),
                              ('--conductor', 'nowhere'),
                              ('--block-tokens', '7'),
                              ('--kv-blocks', 'many'), ('--bogus', '1')):
            with self.subTest(f'{option} {value}'):
                options = [word for pair in {**good, option: value}.items()
                           for word in pair]
                status, _, errors = self.run_program(program(*WORKER),
                                                     *options, limit_s=20)
                self.assertGreater(status, 0, errors)
                self.assertIn(option if option == '--bogus' else value,
                              errors)

    def test_conductor_is_not_there(self):
        """A worker tries again and says what is wrong."""
        def says(address, *words, more=()):
            worker = subprocess.Popen(
                [program(*WORKER), '--conductor', address, *more],
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            try:
                self.assertTrue(any(all(word in line for word in words)
                                    for line in worker.stdout), address)
            finally:
                worker.kill()
                worker.communicate()

        secret = self.write('secret', 'of sixteen bytes')
        os.chmod(secret, 0o600)
        says('no host:1', 'cannot look up', 'trying again',
             more=('--listen', '0.0.0.0:0', '--secret-file', secret))
        with socket.create_server(('127.0.0.1', 0)) as silent:
            says('127.0.0.1:%d' % silent.getsockname()[1], 'worker_listen')

    def test_a_worker_of_another_block_size(self):
        """Conductor and worker both say why; the conductor serves on."""
        cluster = self.cluster()
        worker = cluster.start_worker('stranger', 'both', block_tokens=32)
        worker.killed = True  # its end is wanted
        wait_until('it is refused',
                   lambda: 'stranger' in cluster.conductor.log() and
                   'block' in worker.log())
        self.assertGreater(worker.wait(), 0)
        self.assertEqual(cluster.api.instances(), (1, 1))


class Versions(Case):
    def test_all_have_the_same(self):
        said = []
        for words in CONDUCTOR, WORKER, REPLAY, FIT:
            name = os.path.basename(program(*words))
            status, output, errors = self.run_program(program(*words),
                                                      '--version')
            self.assertEqual((status, errors), (0, ''), name)
            self.assertRegex(output, rf'^{name} \d+\.\d+\.\d+\n$')
            said.append(output.split()[1])
        self.assertEqual(len(set(said)), 1, said)


class BadTraces(Case):
    GOOD = ('{"timestamp": 0, "input_length": 600, "output_length": 2, '
            '"hash_ids": [0, 1]}\n')
    BAD = (
        ('no JSON', 'hello', ''),
        ('no timestamp', '{"input_length": 1, "output_length": 1, '
         '"hash_ids": [0]}', 'timestamp'),
        ('negative length', '{"timestamp": 0, "input_length": -1, '
         '"output_length": 1, "hash_ids": [0]}', 'input_length'),
        ('text for a number', '{"timestamp": 0, "input_length": "x", '
         '"output_length": 1, "hash_ids": [0]}', 'input_length'),
        ('too few hash ids', '{"timestamp": 0, "input_length": 5000, '
         '"output_length": 1, "hash_ids": [0]}', 'hash_ids'),
    )

    def replay(self, trace, *options):
        report = os.path.join(self.folder, 'report.json')
        return self.run_program(program(*REPLAY), 'live', '--url',
                                'http://127.0.0.1:1', '--report', report,
                                *options, '--trace', trace)

    def test_lines(self):
        for name, line, word in self.BAD:
            with self.subTest(name):
                trace = self.write('trace.jsonl', self.GOOD + line + '\n')
                status, _, errors = self.replay(trace)
                self.assertGreater(status, 0)
                self.assertIn('trace.jsonl:2', errors)
                self.assertIn(word, errors)

    def test_no_file(self):
        status, _, errors = self.replay('/nonexistent.jsonl')
        self.assertGreater(status, 0)
        self.assertIn('/nonexistent.jsonl', errors)

    def test_nobody_answers(self):
        status, _, errors = self.replay(self.write('trace.jsonl', self.GOOD))
        self.assertGreater(status, 0)
        self.assertIn('127.0.0.1', errors)


class BadProfiles(Case):
    def test_fit(self):
        for name, text in (('empty', ''), ('no header', '1,2,3\n'),
                           ('text', 'kind,a,b,us\nprefill,x,y,z\n')):
            with self.subTest(name):
                profile = self.write('profile.csv', text)
                out = os.path.join(self.folder, 'model.json')
                status, _, errors = self.run_program(program(*FIT), '--out',
                                                     out, profile)
                self.assertGreater(status, 0)
                self.assertIn('profile.csv', errors)
                self.assertFalse(os.path.exists(out))


class Order(Case):
    def test_workers_before_the_conductor(self):
        """A worker that finds nobody tries again."""
        cluster = Cluster(self)
        with socket.create_server(('127.0.0.1', 0)) as free:
            port = free.getsockname()[1]
        cluster.config['worker_listen'] = f'127.0.0.1:{port}'
        cluster.ports = {'worker': port}
        cluster.start_worker('b0', 'both')
        cluster.start_conductor()
        cluster.wait_ready(1, 1)
        self.assertEqual(cluster.api.complete('x').status, 200)
