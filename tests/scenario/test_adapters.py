"""LoRA adapters and aliases of the models of engines: strict stand-ins."""
import json

import engines
from harness import CONDUCTOR, program, wait_until
from test_forward import EngineCase
from publisher import Publisher

NAMES = {'aliases': ['big', 'm/latest'], 'adapters': ['sql', 'law']}


class Adapters(EngineCase):
    def ask(self, cluster, body, path='/v1/completions'):
        """The blocks that were expected to be cached."""
        got = cluster.api.post(path, body).ok()
        return cluster.api.explain(got)['predicted']['used_blocks']

    def test_names_lead_to_the_model(self):
        cluster = self.engines(None, **NAMES)
        body = b'{"model": "%s","prompt":"x"}'
        for name in (b'm', b'big', b'm/latest', b'sql', b'law'):
            self.assertEqual(cluster.api.post(
                '/v1/completions', body % name).status, 200)
            self.assertEqual(self.all[0].requests[-1].body, body % name)
        self.assertError(cluster.api.post(
            '/v1/completions', body % b'sq'), 404, '"sq"')
        cards = cluster.api.get('/v1/models').body['data']
        self.assertEqual(
            [(c['id'], c.get('parent')) for c in cards],
            [('m', None), ('big', None), ('law', 'm'), ('m/latest', None),
             ('sql', 'm')])
        for name in ('sql', 'm%2Flatest'):
            self.assertEqual(cluster.api.get(f'/v1/models/{name}').status, 200)

    def test_blocks_are_no_other_adapters(self):
        cluster = self.engines(None, **NAMES)
        for prompt in ([7] * 100, 'a long question ' * 40):
            used = [self.ask(cluster, {'model': m, 'prompt': prompt}) > 0
                    for m in ('m', 'sql', 'law', 'big', 'sql', 'law')]
            self.assertEqual(used, [False] * 3 + [True] * 3)
        # SGLang's own path names the adapter apart.
        used = [self.ask(cluster, {'lora_path': a, 'input_ids': [8] * 100},
                         '/generate') > 0
                for a in (None, 'sql', 'law', None, 'sql')]
        self.assertEqual(used, [False] * 3 + [True] * 2)

    def test_events_name_the_adapter(self):
        port = engines.free_ports(2)
        publisher = Publisher(port, port + 1, topic=b'')
        self.addCleanup(publisher.stop)
        cluster = self.engines(
            None, kind='vllm', index='events', block_tokens=16,
            kv_events=f'tcp://127.0.0.1:{port}',
            kv_replay=f'tcp://127.0.0.1:{port + 1}', **NAMES)

        def stored(tokens, first, name, number, extra):
            publisher.publish([{
                'type': 'BlockStored', 'token_ids': tokens, 'block_size': 16,
                'block_hashes': list(range(first, first + len(tokens) // 16)),
                'parent_block_hash': None, 'lora_id': number, 'medium': 'GPU',
                'lora_name': name, 'extra_keys': extra}])
        prompt = list(range(100))
        stored(prompt[:64], 1, 'sql', 1, [['sql']] * 4)
        stored(prompt[:32], 11, None, None, [None] * 2)
        stored(prompt[:48], 21, 'law', 2,
               [['law', 'salt'], ['law'], ['law']])
        wait_until('they are known', lambda:
            cluster.api.metric('instance_blocks', instance='e0') == 9)
        self.assertEqual(
            [self.ask(cluster, {'model': m, 'prompt': prompt, **salt})
             for m, salt in (('sql', {}), ('big', {}), ('law', {}),
                             ('law', {'cache_salt': 'salt'}),
                             ('sql', {'cache_salt': 'salt'}))],
            [4, 2, 0, 3, 0])

    def test_errors_name_field_and_value(self):
        def refused(words, *engines_):
            self.check_config({'engines': [
                {'name': f'e{i}', 'url': 'http://h:1', 'model': 'm', **e}
                for i, e in enumerate(engines_)]}, 2, *words)
        refused(['engines[0].adapters', '"x"'], {'adapters': 'x'})
        refused(['engines[0].adapters', 'at most 32'],
                {'adapters': [f'a{i}' for i in range(33)]})
        refused(['engines[0].aliases', 'names of 1 to 255'], {'aliases': ['']})
        refused(['engines[0].aliases', '"m"'], {'aliases': ['m']})
        refused(['engines[0].adapters', '"a"'],
                {'aliases': ['a'], 'adapters': ['a']})
        refused(['engines[1].model', '"n"', 'engine e0'], {'aliases': ['n']},
                {'model': 'n'})
        refused(['engines[1].adapters', '"a"', 'engine e0'],
                {'adapters': ['a']}, {'model': 'n', 'adapters': ['a']})
        # Whichever entries of the models name it.
        refused(['engines[3].adapters', '"a"', 'engine e1'], {},
                {'adapters': ['b', 'a']}, {'model': 'n'},
                {'model': 'n', 'adapters': ['a']})
        path = self.write('d.json', json.dumps({'engines': [
            {'name': 'e0', 'url': 'http://h:1', 'model': 'm', **NAMES}]}))
        status, dumped, errors = self.run_program(
            program(*CONDUCTOR), '--dump-config', '-c', path)
        self.assertEqual(status, 0, errors)
        engine = json.loads(dumped)['engines'][0]
        self.assertEqual({k: engine[k] for k in NAMES}, NAMES)
