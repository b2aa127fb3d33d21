"""The KV-indexer API of Mooncake's conductor and of Dynamo's indexer: instances
are registered while it runs, and their KV events answer what is cached where.
"""
import os
import random

import engines
from harness import Case, Cluster, wait_until
from stand_in import Engine as Server
from publisher import Engine, Publisher, msgpack

PACKED = {'Content-Type': 'application/msgpack'}


class IndexerCase(Case):
    def setUp(self):
        super().setUp()
        self.servers = []
        self.cluster = Cluster(self)
        self.cluster.config = {'listen': '127.0.0.1:0', 'engines': [],
                               'engine_health_ms': 50}

    def begin(self, **config):
        self.cluster.config.update(config)
        self.cluster.start_conductor()

    def tearDown(self):
        for e in self.servers:
            e.stop()
            self.assertEqual(e.faults, [])
        super().tearDown()

    def publisher(self, **options):
        port = engines.free_ports(8)
        publisher = Publisher(port, **{'replay_port': port + 4, **options})
        self.addCleanup(publisher.stop)
        return publisher

    def post(self, path, body, headers=None):
        return self.cluster.api.post(path, body, headers)

    def packed(self, path, body, **headers):
        got = self.post(path, msgpack.packb(body), {**PACKED, **headers})
        self.assertEqual(got.headers['content-type'], 'application/msgpack')
        return got.status, msgpack.unpackb(got.body)

    def register(self, publisher, instance='i', **more):
        got = self.post('/register', {
            'endpoint': f'tcp://127.0.0.1:{publisher.port}',
            'replay_endpoint': f'tcp://127.0.0.1:{publisher.replay_port}',
            'type': 'vLLM', 'modelname': 'm', 'instance_id': instance,
            'block_size': 16, 'dp_rank': publisher.rank, **more})
        self.assertEqual((got.status, got.body), (200, {
            'status': 'registered successfully', 'instance_id': instance}))

    def query(self, tokens, path='/query', **more):
        got = self.post(path, {'model': 'm', 'token_ids': tokens,
                               'block_size': 16, **more}).ok()
        return got.body

    @staticmethod
    def stored(tokens, first=100, medium='GPU', parent=None, **more):
        """An event of whole blocks with hashes from `first` on."""
        n = len(tokens) // 16
        return {'type': 'BlockStored', 'block_size': 16, 'lora_id': None,
                'block_hashes': list(range(first, first + n)),
                'parent_block_hash': parent, 'token_ids': tokens[:16 * n],
                'medium': medium, 'lora_name': None, **more}


class Api(IndexerCase):
    def test_one_is_registered_asked_for_and_taken_out(self):
        self.begin()
        p = self.publisher()
        tokens = list(range(1000, 1085))
        p.publish([self.stored(tokens)])
        p.publish([self.stored(tokens[32:80], 102, 'CPU', parent=101)])
        p.publish([{'type': 'BlockRemoved', 'block_hashes': [103, 104],
                    'medium': 'GPU'}])
        self.register(p)
        want = {'default': {'i': {'longest_matched': 80, 'GPU': 48,
                                  'DP': {'0': 48}, 'CPU': 80, 'DISK': 80}}}
        wait_until('its events are known', lambda: self.query(tokens) == want)
        self.assertEqual(self.query(tokens[:70])['default']['i'], {
            'longest_matched': 64, 'GPU': 48, 'DP': {'0': 48}, 'CPU': 64,
            'DISK': 64})
        self.assertEqual(self.query(tokens, block_size=32)['default']['i'], {
            'longest_matched': 64, 'GPU': 32, 'DP': {'0': 32}, 'CPU': 64,
            'DISK': 64})
        self.assertEqual(self.query([5] * 64), {'default': {}})
        self.assertEqual(self.query(tokens, cache_salt='x'), {'default': {}})
        self.assertEqual(self.query(tokens, tenant_id='x'), {'x': {}})
        self.assertEqual(self.query(tokens, instance_id='j'), {'default': {}})
        self.assertEqual(self.query(tokens, instance_id='i'), want)
        # Dynamo's words, and its shape.
        dynamo = {'scores': {'i': {'0': 48}}, 'frequencies': [],
                  'instances': {'i': {'longest_matched': 80, 'gpu': 48,
                                      'dp': {'0': 48}, 'cpu': 80,
                                      'disk': 80}}}
        got = self.post('/query?shape=instances', {'model_name': 'm',
                                                   'token_ids': tokens})
        self.assertEqual((got.status, got.body), (200, dynamo))
        # msgpack, in both forms of ids, and as one asks for it.
        ids = b''.join(t.to_bytes(4, 'little') for t in tokens)
        for token_ids in tokens, ids:
            self.assertEqual(self.packed('/query', {
                'model': 'm', 'block_size': 16, 'token_ids': token_ids}),
                (200, dynamo))
        got = self.post('/query?shape=tenants', msgpack.packb(
            {'model': 'm', 'token_ids': tokens}),
            {**PACKED, 'Accept': 'application/json'})
        self.assertEqual((got.status, got.body), (200, want))
        # By the engine's hashes, whole or as it writes them.
        for name in 'seq_hashes', 'block_hash', 'block_hashes':
            for hashes, n in ([100, 101, 102], 48), ([100, 7, 102], 16), \
                    ([7], 0), ([], 0):
                got = self.post('/query_by_hash', {'model': 'm', name: hashes,
                                                   'block_size': 16}).ok()
                self.assertEqual(got.body['default'].get('i', {}).get(
                    'longest_matched', 0), n)
        self.assertEqual(self.packed('/query_by_hash', {
            'model': 'm', 'seq_hashes': [100, (101).to_bytes(32, 'big')]})[1]
            ['scores'], {'i': {'0': 32}})
        # Told again it is no other one.
        self.register(p)
        # It gets no request.
        self.assertError(self.post('/v1/completions', {
            'model': 'm', 'prompt': 'x'}), 503, 'no engine of model')
        states = [(i['name'], i['state']) for i in self.cluster.api.listed()]
        self.assertEqual(states, [('i|default|0', 'observed')])
        got = self.post('/unregister', {
            'type': 'vLLM', 'modelname': 'm', 'instance_id': 'i',
            'block_size': 16, 'dp_rank': 0})
        self.assertEqual((got.status, got.body), (200, {
            'status': 'unregistered successfully',
            'removed_instances': ['i|default|0']}))
        wait_until('its model is gone', lambda: self.post('/query', {
            'model': 'm', 'token_ids': tokens}).status == 404)

    def test_tenants_ranks_and_salts(self):
        self.begin()
        tokens = list(range(500, 596))
        ranks = [self.publisher(rank=r) for r in range(2)]
        other = self.publisher()
        ranks[0].publish([self.stored(tokens[:64])])
        ranks[1].publish([self.stored(tokens)])
        other.publish([self.stored(tokens[:32]), self.stored(
            tokens[:48], 300, extra_keys=[['salt'], None, None])])
        for p in ranks:
            self.register(p, instance='7')
        self.register(other, instance='7', tenant_id='them')
        wait_until('all is known', lambda: self.query(tokens) == {
            'default': {'7': {'longest_matched': 96, 'GPU': 96,
                              'DP': {'0': 64, '1': 96}, 'CPU': 96,
                              'DISK': 96}}})
        wait_until('theirs, too', lambda: self.query(
            tokens, tenant_id='them') == {
                'them': {'7': {'longest_matched': 32, 'GPU': 32,
                               'DP': {'0': 32}, 'CPU': 32, 'DISK': 32}}})
        for name in 'cache_salt', 'additional_salt', 'additionalsalt':
            self.assertEqual(self.query(tokens, tenant_id='them', **{
                name: 'salt'})['them']['7']['longest_matched'], 48)
        got = self.cluster.api.get('/workers')
        ports = [f'tcp://127.0.0.1:{p.port}' for p in ranks]
        self.assertEqual(got.body[0], {
            'instance_id': 7, 'source': 'zmq', 'status': 'active',
            'model_name': 'm', 'routing_group': 'default', 'block_size': 16,
            'endpoints': {'0': ports[0], '1': ports[1]},
            'listeners': {'0': {'endpoint': ports[0], 'status': 'whole'},
                          '1': {'endpoint': ports[1], 'status': 'whole'}}})
        self.assertEqual(got.body[1]['routing_group'], 'them')
        got = self.cluster.api.get('/services').body
        self.assertEqual((got['count'], len(got['services'])), (3, 3))
        self.assertEqual(got['services'][1], {
            'instance_id': '7', 'tenant_id': 'default', 'dp_rank': 1,
            'type': 'vllm', 'modelname': 'm', 'block_size': 16,
            'endpoint': ports[1], 'state': 'whole',
            'replay_endpoint': f'tcp://127.0.0.1:{ranks[1].replay_port}'})
        got = self.cluster.api.request('GET', '/global_view', None, {
            'Accept': 'application/msgpack'})
        self.assertEqual(msgpack.unpackb(got.body), {
            'context_count': 1, 'contexts': [{
                'model': 'm', 'block_size': 16, 'instances': 3,
                'blocks': 4 + 6 + 2 + 3}]})
        got = self.post('/unregister', {'model_name': 'm', 'instance_id': 7})
        self.assertEqual(got.body['removed_instances'],
                         ['7|default|0', '7|default|1'])
        wait_until('they are gone', lambda: self.query(tokens) == {
            'default': {}})
        self.assertEqual(len(self.query(tokens, tenant_id='them')['them']), 1)

    def test_one_with_a_url_gets_requests(self):
        self.begin()
        self.servers.append(Server())
        p = self.publisher()
        self.register(p, url=self.servers[0].url)
        wait_until('it is ready',
                   lambda: self.cluster.api.instances()[0] == 1)
        got = self.post('/v1/schedule', {'model': 'm', 'prompt': 'x'})
        self.assertEqual(got.body['decode']['instance'], 'i|default|0')

    def test_decisions_by_hashes(self):
        """/v1/schedule finds by an engine's hashes what its events told, also
        for prompts that another engine has under other names."""
        self.begin()
        tokens = list(range(2000, 2096))
        for i, first in enumerate((100, 500)):
            self.servers.append(Server())
            p = self.publisher()
            p.publish([self.stored(tokens[:96 - 48 * i], first)])
            self.register(p, instance=f'e{i}', url=self.servers[i].url)
        wait_until('their events are known', lambda: len(
            self.query(tokens)['default']) == 2)
        wait_until('both are ready',
                   lambda: self.cluster.api.instances()[0] == 2)
        for hashes, n in (list(range(100, 106)), 96), \
                ([500, 501, 502, 503], 48), ([501, 7], 16), ([8, 100], 0):
            got = self.post('/v1/schedule', {
                'model': 'm', 'block_hashes': hashes, 'prompt_tokens': 300})
            self.assertEqual(got.status, 200, got.body)
            if hashes[0] == 100:
                self.assertEqual(got.body['decode']['instance'],
                                 'e0|default|0')
            self.assertEqual(got.body['cached_tokens'], n, hashes)
            self.post('/v1/schedule/done', {'ticket': got.body['ticket']})

    def test_answers_equal_a_recount(self):
        """Random prompts, evictions and copies in tiers, of three instances
        of which two have other hashes for the same blocks."""
        self.begin()
        all_ = [(self.publisher(), Engine(4711 + i // 2, 16))
                for i in range(3)]
        for i, (p, _) in enumerate(all_):
            self.register(p, instance=f'e{i}')
        for p, e in all_:
            for _ in range(60):
                p.publish(e.step())
        rng = random.Random(7)

        def same(prompt):
            held = self.query(prompt)['default']
            return [held.get(f'e{i}', {}).get('longest_matched', 0)
                    for i in range(3)] == \
                [16 * e.cache.leading(prompt) for _, e in all_]
        hits = 0
        for i in range(60):
            prompt = all_[rng.randrange(3)][1].prompt()
            wait_until(f'answer and recount agree on {prompt}',
                       lambda: same(prompt))
            hits += self.query(prompt)['default'] != {}
        self.assertGreater(hits, 20)


class BadInput(IndexerCase):
    def test_fields_and_values_are_named(self):
        self.begin()
        p = self.publisher()
        self.register(p)
        query = {'model': 'm', 'token_ids': [1, 2]}
        register = {'endpoint': 'tcp://127.0.0.1:9', 'type': 'vLLM',
                    'modelname': 'm', 'instance_id': 'j', 'block_size': 16}
        for path, base, change, status, field, reason, *words in (
                ('/query', query, {'token_ids': 'x'}, 400, 'token_ids',
                 'invalid_type', '"x": must be an array of token ids'),
                ('/query', query, {'token_ids': [1, -2]}, 400, 'token_ids',
                 'invalid_type', '[1]: -2: must be'),
                ('/query', query, {'token_ids': [1, 2, 1.5, 4]}, 400,
                 'token_ids', 'invalid_type', '[2]: 1.5: must be'),
                ('/query', query, {'token_ids': [{'a': [1]}]}, 400,
                 'token_ids', 'invalid_type', 'token_ids[0]: '),
                ('/query', query, {'token_ids': True}, 400, 'token_ids',
                 'invalid_type', 'true: must be'),
                ('/query', query, {'token_ids': None}, 400, 'token_ids',
                 'missing'),
                ('/query', query, {'block_size': 0}, 400, 'block_size',
                 'out_of_range', '0: must be from 1 to 1024'),
                ('/query', query, {'block_size': 'x'}, 400, 'block_size',
                 'invalid_type', '"x": must be a whole number'),
                ('/query', query, {'block_size': 1.5}, 400, 'block_size',
                 'invalid_type', '1.5: must be a whole number'),
                ('/query', query, {'model': 5}, 400, 'model', 'invalid_type',
                 '5: must be a text'),
                ('/query', query, {'model': [5] * 30}, 400, 'model',
                 'invalid_type', 'must be a text'),
                ('/query', query, {'model': 'x'}, 404, 'model',
                 'unknown_model', '"x": does not exist'),
                ('/query', query, {'model': 'x' * 256}, 400, 'model',
                 'invalid_type', '255 bytes'),
                ('/query', query, {'lora_id': 3}, 400, 'lora_id',
                 'unsupported', 'lora_name'),
                ('/query', query, {'tokens': []}, 400, 'tokens',
                 'unknown_field'),
                ('/query?shape=round', query, {}, 400, 'shape',
                 'invalid_value', '?shape=round'),
                ('/query_by_hash', {'model': 'm'}, {}, 400, 'seq_hashes',
                 'missing'),
                ('/query_by_hash', {'model': 'm'}, {'seq_hashes': ['a']}, 400,
                 'seq_hashes', 'invalid_type', '[0]: "a": must be'),
                ('/query_by_hash', {'model': 'm'},
                 {'seq_hashes': [1, 1 << 64]}, 400, 'seq_hashes',
                 'invalid_type', '[1]: 18446744073709551616: must be'),
                ('/register', register, {'endpoint': None}, 400, 'endpoint',
                 'missing'),
                ('/register', register, {'endpoint': 'here'}, 400, 'endpoint',
                 'invalid_registration', '"here": must be tcp://HOST:PORT'),
                ('/register', register,
                 {'endpoint': 'tcp://127.0.0.1:5557x', 'dp_rank': 3}, 400,
                 'endpoint', 'invalid_registration',
                 '"tcp://127.0.0.1:5557x": must be tcp://HOST:PORT'),
                ('/register', register,
                 {'replay_endpoint': 'tcp://127.0.0.1:2', 'dp_rank': 3}, 400,
                 'replay_endpoint', 'invalid_value',
                 '"tcp://127.0.0.1:2": must have a port above 3'),
                ('/register', register, {'type': 'Mooncake'}, 400, 'type',
                 'unsupported', '"Mooncake": must be'),
                ('/register', register, {'instance_id': 'a b'}, 400,
                 'instance_id', 'invalid_value', '"a b"'),
                ('/register', register, {'instance_id': 'a' * 60}, 400,
                 'instance_id', 'out_of_range', 'too long'),
                ('/register', register, {'tenant_id': 'a|b'}, 400,
                 'tenant_id', 'invalid_value', '"a|b"'),
                ('/register', register, {'additionalsalt': 'a'}, 400,
                 'additionalsalt', 'unsupported'),
                ('/register', register, {'block_size': 24}, 400,
                 'block_size', 'invalid_registration', '24'),
                ('/register', register, {'dp_rank': 300}, 400, 'dp_rank',
                 'out_of_range'),
                ('/register', register, {'instance_id': 'i'}, 409,
                 'instance_id', 'already_registered'),
                ('/unregister', {'modelname': 'm', 'instance_id': 'j'}, {},
                 404, 'instance_id', 'unknown_instance', '"j"')):
            body = {**base, **change}
            got = self.post(path, body)
            self.assertError(got, status, field, *words)
            error = got.body['error']
            self.assertEqual((error['param'], error['code']), (field, reason))
            # msgpack has no such number; engines write ids as signed ones.
            if change in ({'seq_hashes': [1, 1 << 64]}, {'token_ids': [1, -2]}):
                continue
            status, packed = self.packed(path, body)
            self.assertEqual((status, packed['field'], packed['reason']),
                             (got.status, field, reason), body)
            for word in words:
                self.assertIn(word, packed['error'])

    def test_what_is_no_message(self):
        self.begin()
        self.register(self.publisher())
        for body in b'', b'[]', b'{"model": "m"', b'{"model": "m"} x':
            self.assertError(self.post('/query', body), 400)
        for body in (b'', b'\x90', b'\x81', b'\x81\xa5model', b'\x82\xa5model'
                     b'\xa1m\xa9token_ids\xdd\xff\xff\xff\xff', b'\x80\x80',
                     b'\x81\xa9token_ids\xc6\xff\xff\xff\xff',
                     b'\x82\xa7model\0x\xa1m\xa9token_ids\x91\x01'):
            got = self.post('/query', body, PACKED)
            self.assertEqual(got.status, 400, body)
            if got.headers['content-type'] == 'application/msgpack':
                self.assertIn(msgpack.unpackb(got.body)['reason'],
                              ('invalid_msgpack', 'missing'), body)
        got = self.post('/query', b'x', {'Content-Type': 'text/plain'})
        self.assertError(got, 415, 'application/msgpack')
        self.assertEqual(got.body['error']['code'], 'unsupported_media_type')
        self.assertError(self.cluster.api.get('/query'), 405)
        self.assertError(self.cluster.api.post('/workers', {}), 405)

    def test_changes_need_the_key(self):
        path = os.path.join(self.folder, 'key')
        with open(path, 'w', encoding='ascii') as f:
            f.write('a-key-of-sixteen-bytes-or-more\n')
        os.chmod(path, 0o600)
        self.begin(admin_key_file=path)
        for where in '/register', '/unregister':
            self.assertError(self.post(where, {'instance_id': 'i'}), 401,
                             'admin_key_file')
        p = self.publisher()
        got = self.post('/register', {
            'endpoint': f'tcp://127.0.0.1:{p.port}', 'modelname': 'm',
            'instance_id': 'i', 'block_size': 16},
            {'Authorization': 'Bearer a-key-of-sixteen-bytes-or-more'}).ok()


class Oracle(engines.Case):
    """Dynamo's indexer beside it, fed by the same events of Dynamo's mockers:
    what both answer is equal, member by member."""
    only_loopback = True
    QUERIES = int(os.environ.get('INDEXER_QUERIES', '300'))

    def setUp(self):
        super().setUp()
        self.mockers = [engines.Mocker(self, f'mocker{i}', 96)
                        for i in range(3)]
        self.oracle = engines.Indexer(self, self.mockers)
        self.cluster = Cluster(self)
        self.cluster.config = {'listen': '127.0.0.1:0', 'engines': []}
        self.cluster.start_conductor()
        for i, m in enumerate(self.mockers):
            got = self.cluster.api.post('/register', {
                'endpoint': f'tcp://127.0.0.1:{m.events_port}',
                'replay_endpoint': f'tcp://127.0.0.1:{m.replay_port}',
                'model_name': engines.MODEL, 'instance_id': i + 1,
                'block_size': 16, 'dp_rank': 0}).ok()
        self.rng = random.Random(4711)

    def load(self, mocker, prompt):
        status, reply = engines.get(mocker.url + '/v1/completions', {
            'model': engines.MODEL, 'prompt': prompt, 'max_tokens': 1})
        self.assertEqual(status, 200, reply)

    def ids(self, n):
        return [self.rng.randrange(4, 250) for _ in range(n)]

    def both(self, tokens):
        ours = self.cluster.api.post('/query?shape=instances', {
            'model_name': engines.MODEL, 'token_ids': tokens}).ok()
        status, theirs = engines.get(self.oracle.url + '/query', {
            'model_name': engines.MODEL, 'token_ids': tokens})
        self.assertEqual(status, 200, theirs)
        return ours.body, theirs

    def same(self, tokens):
        ours, theirs = self.both(tokens)
        return ours == theirs

    def hear(self):
        """The oracle asks nobody for what it has missed: each engine is filled
        anew once it is heard."""
        for i, m in enumerate(self.mockers):
            prompt = [200 + i] * 3

            def heard():
                prompt[:] = [*prompt, *range(4, 36)]
                self.load(m, prompt)
                return self.oracle.match(prompt)[i] > 0
            wait_until('the oracle hears it', heard)
            for _ in range(3):
                self.load(m, self.ids(1500))

    def test_answers_equal_dynamos(self):
        self.hear()
        bases = [self.ids(480) for _ in range(8)]
        asked = hits = 0
        while asked < self.QUERIES:
            for _ in range(6):
                base = self.rng.choice(bases)
                self.load(self.rng.choice(self.mockers), base[
                    :self.rng.randrange(20, 480)] + self.ids(
                        self.rng.randrange(1, 40)))
            # Both are told by connections of their own: the first prompts
            # wait until they agree.
            for base in bases:
                wait_until(f'they agree on {base}', lambda: self.same(base))
            for _ in range(60):
                base = self.rng.choice(bases)
                tokens = base[:self.rng.randrange(1, 480)]
                if self.rng.random() < .3:
                    tokens = tokens + self.ids(self.rng.randrange(1, 64))
                if not self.same(tokens):
                    wait_until(f'they agree on {tokens}',
                               lambda: self.same(tokens))
                asked += 1
                hits += self.both(tokens)[0]['instances'] != {}
        self.assertGreater(hits, asked // 3)
        removed = self.cluster.api.metrics()[
            'conductor_block_events_total{event="removed"}']
        self.assertGreater(removed, 0)
        print(f'{asked} queries equal, {hits} with hits, {removed:.0f} blocks '
              'removed meanwhile')
