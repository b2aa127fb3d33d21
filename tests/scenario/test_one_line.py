"""A conductor that starts without a file: engines named on the command line are
asked for what a configuration would say of them."""
import json
import os
import signal
import subprocess
import threading
import unittest

import engines
from harness import CONDUCTOR, Api, Case, program, wait_until
from stand_in import Engine, reply

try:
    from publisher import Publisher
except ImportError as error:
    raise unittest.SkipTest(f'{error}; see tests/engines/install') from error

METRICS = 'vllm:cache_config_info{block_size="32",num_gpu_blocks="64"} 1.0\n'


def server_info(port, replay_port):
    return {'vllm_config': {'kv_events_config': {
        'enable_kv_cache_events': True, 'publisher': 'zmq',
        'endpoint': f'tcp://*:{port}', 'topic': '',
        'replay_endpoint': f'tcp://*:{replay_port}'}}}


class OneLine(Case):
    def setUp(self):
        super().setUp()
        self.engines = []

    def tearDown(self):
        for e in self.engines:
            if e.open:
                e.stop()
        super().tearDown()

    def engine(self, serve=None, owner=None, **tells):
        e = Engine(serve)
        e.models = [{'id': 'm', 'object': 'model', 'owned_by': owner}]
        e.tells = {f'/{path}': told for path, told in tells.items()}
        self.engines.append(e)
        return e

    def vllm(self, *ports):
        e = self.engine(owner='vllm', version={'version': '0.32.0'})
        e.metrics = METRICS
        if ports:
            e.tells['/server_info?config_format=json'] = server_info(*ports)
        return e

    def conduct(self, *words):
        """Starts it; returns its API."""
        ports = os.path.join(self.folder, 'ports.json')
        self.conductor = self.start('conductor', [
            program(*CONDUCTOR), '--listen', '127.0.0.1:0', '--ports-file',
            ports, *words])
        wait_until('it names its ports', lambda: os.path.exists(ports),
                   process=self.conductor)
        with open(ports, encoding='utf-8') as f:
            return Api(json.load(f)['http'])

    def kinds(self, api):
        return {i['name']: i.get('kind')
                for i in api.request('GET', '/admin/instances').body[
                    'instances']}

    def log(self):
        with open(os.path.join(self.folder, 'conductor.log'),
                  encoding='utf-8') as f:
            return f.read()

    def test_engines_tell_what_they_are(self):
        port = engines.free_ports(2)
        publisher = Publisher(port, port + 1, topic=b'')
        self.addCleanup(publisher.stop)
        a, b = self.vllm(port, port + 1), self.vllm()
        c = self.engine(owner='llamacpp')
        c.models = [{'id': 'other', 'object': 'model'}]
        api = self.conduct('-e', f'a={a.url}', '--engine',
                           b.url.split('//')[1], '-e', f'c={c.url}/v1')
        wait_until('all are ready', lambda: api.instances()[0] == 3)
        self.assertEqual(self.kinds(api), {
            'a': 'vllm', b.url.split('//')[1]: 'vllm', 'c': 'openai'})
        log = self.log()
        for line in (
                f'engine a at {a.url}: vllm 0.32.0, model m, blocks of 32 '
                f'tokens; its KV events at tcp://127.0.0.1:{port}',
                f'at {b.url}: vllm 0.32.0, model m, blocks of 32 tokens; its '
                'cache is predicted, as it does not tell where',
                f'engine c at {c.url}/v1: openai , model other; its cache is '
                'predicted, as it publishes no KV events'):
            self.assertIn(line.replace('openai ,', 'openai,'), log)
        publisher.wait_subscribed()
        publisher.publish([{
            'type': 'BlockStored', 'token_ids': list(range(64)),
            'block_size': 32, 'block_hashes': [1, 2],
            'parent_block_hash': None, 'lora_id': None, 'medium': 'GPU'}])
        wait_until('the blocks are known', lambda: api.metrics().get(
            'conductor_instance_blocks{instance="a"}') == 2)
        got = api.request('POST', '/v1/completions',
                          {'model': 'm', 'prompt': list(range(80))})
        self.assertEqual((got.status, got.headers['x-conductor-prefill']),
                         (200, 'a'))
        self.assertEqual(api.request('POST', '/v1/completions', {
            'model': 'other', 'prompt': 'x'}).status, 200)
        # A reload asks nobody anew.
        asked = a.n_models
        self.conductor.child.send_signal(signal.SIGHUP)
        wait_until('it was reloaded', lambda: 'reload' in self.log()[len(log):])
        self.assertEqual(self.kinds(api)['a'], 'vllm')
        self.assertGreaterEqual(a.n_models, asked)

    def test_an_engine_that_comes_later_or_tells_nonsense(self):
        a = self.vllm()
        port = a.port
        a.stop()
        odd = self.engine(owner='sglang', version=[1, 2])
        odd.metrics_status = None  # it breaks off
        odd.tells['/server_info?config_format=json'] = {
            'kv_events_config': '{"publisher": "zmq", "endpoint": "tcp://*:x"}',
            'version': 'a b'}
        api = self.conduct('-e', f'a=127.0.0.1:{port}', '-e', f'odd={odd.url}',
                           '-s', 'engine_health_ms=50',
                           '-s', 'engine_timeout_ms=300')
        wait_until('one is ready', lambda: api.instances()[0] == 1)
        self.assertEqual(self.kinds(api)['odd'], 'sglang')
        self.assertIn(f'engine a at http://127.0.0.1:{port} gets no work, '
                      'because its model is not known yet', self.log())
        late = Engine(port=port)
        self.engines.append(late)
        wait_until('both are ready', lambda: api.instances()[0] == 2)
        self.assertEqual(self.kinds(api)['a'], 'openai')

    def test_what_changes_with_a_restart(self):
        """Facts of before a restart do not stay, and a size that does not fit
        the index keeps no engine away."""
        a, b = self.vllm(), self.vllm()
        a.metrics += 'process_start_time_seconds 1\n'
        b.metrics = METRICS.replace('32', '48')
        api = self.conduct('-e', f'a={a.url}', '-e', f'b={b.url}',
                           '-s', 'engine_health_ms=50')
        wait_until('both are ready', lambda: api.instances()[0] == 2)
        port = engines.free_ports(2)
        publisher = Publisher(port, port + 1, topic=b'')
        self.addCleanup(publisher.stop)
        a.tells['/server_info?config_format=json'] = server_info(port, port + 1)
        a.metrics = METRICS + 'process_start_time_seconds 2\n'
        wait_until('its events are followed', lambda: f'its KV events at '
                   f'tcp://127.0.0.1:{port}' in self.log())
        publisher.wait_subscribed()
        wait_until('it is ready again', lambda: api.instances()[0] == 2)

    def test_a_restarted_engine_works_until_it_has_answered(self):
        a, answers, asked = self.vllm(), threading.Event(), threading.Event()
        a.metrics += 'process_start_time_seconds 1\n'
        self.addCleanup(answers.set)

        class Slow(dict):
            def get(self, path):
                if path.startswith('/server_info'):
                    asked.set()
                    answers.wait()
                return super().get(path)

        api = self.conduct('-e', f'a={a.url}', '-s', 'engine_health_ms=50')
        wait_until('it is ready', lambda: api.instances()[0] == 1)
        a.tells = Slow(a.tells)
        a.metrics = METRICS + 'process_start_time_seconds 2\n'
        wait_until('it is asked again', asked.is_set)
        self.assertEqual(api.request('POST', '/v1/completions', {
            'model': 'm', 'prompt': 'x'}).status, 200)
        self.assertNotIn('is removed', self.log())
        answers.set()
        wait_until('it has answered', lambda: 'is removed' in self.log() and
                   self.log().count('engine a is ready') == 2)
        wait_until('it is ready again', lambda: api.instances()[0] == 1)
        self.assertEqual(len(self.kinds(api)), 1)

    def test_an_engine_that_is_late_is_asked_again(self):
        """The first answer never comes, as from a machine that is busy."""
        a, port = self.vllm(), engines.free_ports(2)
        a.tells['/server_info?config_format=json'] = server_info(port, port + 1)
        asked, over = [], threading.Event()
        self.addCleanup(over.set)

        class Late(dict):
            def get(self, path):
                if path.startswith('/server_info'):
                    asked.append(path)
                    if len(asked) == 1:
                        over.wait()
                return super().get(path)

        a.tells = Late(a.tells)
        self.conduct('-e', f'a={a.url}')
        wait_until('its events are followed', lambda: f'its KV events at '
                   f'tcp://127.0.0.1:{port}' in self.log(), 40)
        self.assertEqual(len(asked), 2)

    def test_an_engine_without_a_list(self):
        a = self.engine()
        a.models = None
        path = self.write('c.json', json.dumps({'engines': [
            {'name': 'a', 'kind': 'auto', 'url': a.url, 'model': 'mine'}]}))
        api = self.conduct('-c', path)
        wait_until('it is ready', lambda: api.instances()[0] == 1)
        self.assertEqual(self.kinds(api), {'a': 'openai'})

    def test_no_model_is_known_yet(self):
        port = engines.free_ports(1)
        api = self.conduct('-e', f'127.0.0.1:{port}')
        for body in {'model': 'm', 'prompt': 'x'}, {'prompt': 'x'}:
            self.assertError(api.request('POST', '/v1/completions', body), 503,
                             'not known yet: no engine has told its model (asked: 1)')
        self.assertError(api.get('/'), 404, 'the status page is /admin')
        wait_until('it tells why', lambda: api.request(
            'GET', '/admin/instances').body['instances'][0].get('last_error') ==
                   'Connection refused')

    def test_a_file_by_a_pipe_with_comments(self):
        a = self.engine()
        text = (b'// mine\n{"listen": "127.0.0.1:0", // any port\n'
                b' /* not "this": \n, */ "cors_origins": "http://a.b", // }\n}')
        process = subprocess.run(
            [program(*CONDUCTOR), '-c', '-', '--engine', f'a={a.url}',
             '--dump-config'], input=text, capture_output=True, check=False)
        self.assertEqual(process.returncode, 0, process.stderr)
        got = json.loads(process.stdout)
        self.assertEqual((got['listen'], got['cors_origins'],
                          got['worker_listen']),
                         ('127.0.0.1:0', 'http://a.b', ''))
        self.assertEqual([(e['name'], e['kind']) for e in got['engines']],
                         [('a', 'auto')])
        example = subprocess.run([program(*CONDUCTOR), '--config-example'],
                                 capture_output=True, check=True).stdout
        for words in ('-t', '--dump-config'):
            process = subprocess.run(
                [program(*CONDUCTOR), '-c', '/dev/stdin', words],
                input=example, capture_output=True, check=False)
            self.assertEqual(process.returncode, 0, process.stderr)
        text = example.decode()
        self.assertLess(text.index('"engines": ['), text.index('"listen"'))
        for words in '](', 'below', '(see ':  # of the page made of the same
            self.assertNotIn(words, text)
        # Each option of the example holds what it says.
        names = set(json.loads(process.stdout)) - {'engines'}
        lines = [line.strip()[3:].rstrip(',')
                 for line in text.split('\n')
                 if line.startswith('  // "')]
        told = json.loads('{' + ','.join(lines) + '}')
        self.assertEqual(set(told), names)

    def test_a_pipe_has_a_limit(self):
        process = subprocess.run(
            [program(*CONDUCTOR), '-c', '-', '-t'], input=b' ' * (4 << 20 | 1),
            capture_output=True, check=False)
        self.assertEqual(process.returncode, 2)
        self.assertEqual(process.stderr,
                         b'conductor: -: larger than 4194304 bytes\n')

    def test_what_a_file_says_stays(self):
        """A default that the file writes is no default."""
        own = self.write('own.json', '{"worker_listen": "127.0.0.1:8081"}')
        none = self.write('none.json', '{}')
        for path, listen in (own, '127.0.0.1:8081'), (none, ''):
            status, out, errors = self.run_program(
                program(*CONDUCTOR), '-c', path, '-e', 'h:1', '--dump-config')
            self.assertEqual(status, 0, errors)
            self.assertEqual(json.loads(out)['worker_listen'], listen)

    def test_nothing_is_named(self):
        """A newcomer's first call."""
        for words in [], ['-t'], ['-l', '127.0.0.1:0']:
            status, _, errors = self.run_program(program(*CONDUCTOR), *words)
            self.assertEqual(status, 2)
            self.assertRegex(errors, r'\Aconductor: no engine is named: .*'
                                     r'--engine URL')
            for word in '--config-example', '--help':
                self.assertIn(word, errors)
            self.assertNotIn('cost_model', errors)

    def test_members_that_are_misspelt(self):
        for text, told in (
                ('{"engine": []}', 'engine: no such option: did you mean '
                                   'engines?'),
                ('{"engines": [{"name": "a", "urll": "http://h"}]}',
                 'engines[0].urll: no such field: did you mean url?'),
                ('{"engines": [{"name": "a", "ur": "http://h"}]}',
                 'engines[0].ur: no such field: did you mean url?'),
                ('{"engines": [{"name": "a", "colour": "red"}]}',
                 'engines[0].colour: no such field\n')):
            status, _, errors = self.run_program(
                program(*CONDUCTOR), '-t', '-c', self.write('c.json', text))
            self.assertEqual(status, 2, errors)
            self.assertIn(told, errors)
            self.assertNotIn('--help', errors)  # which knows no fields

    def test_the_kind_is_asked_for(self):
        """Without a kind and a model; with a model nothing is asked."""
        a, b = self.vllm(), self.vllm()
        path = self.write('c.json', json.dumps({'engines': [
            {'name': 'a', 'url': a.url},
            {'name': 'b', 'url': b.url, 'model': 'm'}]}))
        api = self.conduct('-c', path)
        wait_until('both are ready', lambda: api.instances()[0] == 2)
        self.assertEqual(self.kinds(api), {'a': 'vllm', 'b': 'openai'})

    def test_servers_that_take_turns(self):
        """Behind one address; each was started at another time."""
        a = self.vllm()
        a.metrics += 'process_start_time_seconds 5\n'
        api = self.conduct('-e', f'a={a.url}', '-s', 'engine_health_ms=20')
        wait_until('it is ready', lambda: api.instances()[0] == 1)

        def turns(*starts):
            for start in starts:
                a.metrics = (METRICS +
                             f'process_start_time_seconds {start}\n')
                seen = a.n_metrics
                wait_until('it was read', lambda: a.n_metrics > seen + 2)
        turns(5, 3, 5, 3, 5)
        self.assertNotIn('was restarted', self.log())
        a.metrics = METRICS + 'process_start_time_seconds 6\n'
        wait_until('a restart is noticed',
                   lambda: 'engine a was restarted' in self.log())
        a.metrics = METRICS + 'process_start_time_seconds 3\n'
        wait_until('it has joined again', lambda:
                   self.log().count('engine a is ready') == 2)
        turns(3, 6, 3, 6)
        self.assertEqual(self.log().count('engine a was restarted'), 1)

    def test_errors_name_the_word(self):
        for words, told in (
                (['-e', 'a b=http://h'], '--engine a b=http://h: name: "a b"'),
                (['-e', 'ftp://h'], '"ftp://h": must begin with http'),
                (['-e', 'a=http://h', '-e', 'a=http://g'],
                 '--engine a=http://g: name: "a": is the name of the engine at '
                 'http://h, too'),
                (['-e', 'http://h:1/x', '-e', 'http://h:1/y'],
                 '--engine http://h:1/y: name: "h:1": is the name of the engine '
                 'at http://h:1/x, too: give another one, as in --engine '
                 'NAME=http://h:1/y'),
                (['-e', 'http://h', '-e', b'\xff=http://g'],
                 '=http://g": must be in UTF-8'),
                (['-e', 'http://h', '-e', 'b=HTTP://H:80/v1/'],
                 'url: "HTTP://H:80/v1/": engine h is given with it, too'),
                (['-e', 'localhost:8000', '-e', '127.0.0.1:8000'],
                 'engine localhost:8000 is given with it, too'),
                (['-e', 'http://h', '-s', 'worker_listen=127.0.0.1:0'],
                 'native workers: leave worker_listen out to have engines only, '
                 'or make one'),
                (['-s', 'engines=x'], '(it is a list, which only a '
                                      'configuration file can hold)'),
                (['--conf', 'x'], 'did you mean --config?'),
                (['-e', ''], '--engine "": must be [NAME=]URL, such as http:'),
                (['-e', 'http://'], '--engine "http://": must be [NAME=]URL'),
                (['-e', 'http://h http://g'], '--engine "http://h http://g": '
                 'takes one [NAME=]URL: repeat --engine for each'),
                (['-e', 'a=http://h,b=http://g'], 'takes one [NAME=]URL'),
                (['--enigne', 'x'], "did you mean --engine?"),
                (['http://h:1'], "unexpected argument 'http://h:1': name an "
                                 'engine by --engine http://h:1'),
                (['x'], "unexpected argument 'x'\ntry conductor --help"),
                (['-c', 'a', '-c', 'b'], '--config: comes twice, with a and b'),
                (['-s', 'polcy=plan'], 'polcy: no such option: did you mean '
                                       'policy?')):
            status, _, errors = self.run_program(program(*CONDUCTOR), '-t',
                                                 *words)
            self.assertEqual(status, 2, (words, errors))
            self.assertIn(told, errors)
