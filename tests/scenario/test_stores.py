"""A store that all engines of a model read: a strict stand-in for Mooncake's
master, which names objects and no tokens, beside engines that publish."""
import hashlib
import json
import random

import engines
import stand_in
from harness import Case, Cluster, wait_until
from publisher import Engine, Publisher

SIZE = 4


class Master:
    """Publishes as Mooncake's master: a map for each object, all fields there,
    most of them nil; the hash of a block is in the object's name alone."""

    def __init__(self, case, ranks=1):
        self.publisher = Publisher(engines.free_ports(1), topic=b'')
        case.addCleanup(self.publisher.stop)
        self.ranks, self.n = ranks, 0

    @staticmethod
    def name(digest, rank):
        return f'm@tp_rank:{rank}@pp_rank:0@group:0@{digest.hex()}'

    def event(self, kind, legacy, name=None, medium='cpu'):
        self.n += 1
        e = {'event_id': self.n, 'timestamp': 1790000000000, 'event_type': kind,
             'type': legacy, 'model_name': None, 'block_size': None,
             'additional_salt': None, 'lora_name': None, 'tenant_id': 'default',
             'backend_id': 'mooncake', 'medium': medium, 'dp_rank': 0}
        if name:
            e |= {'group_id': None, 'object_key': name, 'seq_hashes': [],
                  'block_hashes': [], 'base_block_idx': None}
        if kind == 'stored':
            e |= {'parent_hash': None, 'token_ids': None,
                  'parent_block_hash': None}
        return e

    def store(self, digests, ranks=None):
        self.publisher.publish([
            self.event('stored', 'BlockStored', self.name(d, r))
            for d in digests for r in range(ranks or self.ranks)])

    def remove(self, digests, rank=0):
        self.publisher.publish([
            self.event('removed', 'BlockRemoved', self.name(d, rank))
            for d in digests])

    def clear(self):
        self.publisher.publish([
            self.event('cleared', 'AllBlocksCleared', medium=None)])


class Words(Engine):
    """What an engine says, whose hashes are the ends of digests."""

    def digest(self, tokens):
        return hashlib.sha256(json.dumps(list(tokens)).encode()).digest()

    def hash_of(self, tokens):
        return int.from_bytes(self.digest(tokens)[-8:], 'big')

    def digests(self, tokens):
        return [self.digest(tokens[:end])
                for end in range(SIZE, len(tokens) + 1, SIZE)]


class Stores(Case):
    def begin(self, ranks=1, **fields):
        self.all = [stand_in.Engine() for _ in range(2)]
        self.publishers = []
        for engine in self.all:
            self.addCleanup(engine.stop)
            port = engines.free_ports(8)
            self.publishers.append(Publisher(port, port + 4))
            self.addCleanup(self.publishers[-1].stop)
        self.master = Master(self, ranks)
        self.words, self.rng = Words(4711, SIZE), random.Random(4711)
        self.cluster = Cluster(self)
        self.cluster.config = {
            'listen': '127.0.0.1:0', 'engine_health_ms': 50,
            'stores': [{
                'name': 'cake', 'model': 'm', 'parts': ranks,
                'tokens_per_s': 1000000,
                'kv_events': f'tcp://127.0.0.1:{self.master.publisher.port}',
                **fields}],
            'engines': [
                {'name': f'e{i}', 'kind': 'vllm', 'url': e.url, 'model': 'm',
                 'index': 'events', 'block_tokens': SIZE,
                 'kv_events': f'tcp://127.0.0.1:{p.port}',
                 'kv_replay': f'tcp://127.0.0.1:{p.replay_port}'}
                for i, (e, p) in enumerate(zip(self.all, self.publishers))]}
        self.cluster.start_conductor()
        self.api = self.cluster.api
        wait_until('all are ready', lambda: self.api.instances()[0] == 2)
        wait_until('the store is heard', self.heard)

    def heard(self):
        self.master.publisher.publish([self.master.event('x', 'Unheard of')])
        return self.metric('store_events_state{store="cake"}') != 1

    def metric(self, name):
        return self.api.metric(name)

    def store_has(self, blocks):
        wait_until(f'the store has {blocks} blocks', lambda: self.metric(
            'store_blocks{store="cake"}') == blocks)

    def publish(self, i, events):
        name = f'engine_events_total{{instance="e{i}"}}'
        before = self.metric(name)
        self.publishers[i].publish(events)
        wait_until('they are taken',
                   lambda: self.metric(name) >= before + len(events))

    def prompt(self, blocks=8):
        return [self.rng.randrange(1000) for _ in range(SIZE * blocks + 1)]

    def found(self, prompt):
        """(blocks counted on in each engine, sources of the plan)."""
        got = self.api.post('/v1/completions',
                            {'model': 'm', 'prompt': prompt}).ok()
        why = self.api.explain(got)
        return ({c['instance']: c['used_blocks'] for c in why['candidates']},
                [(s['from'], s['from_block'], s['to_block'])
                 for s in why['plan']['sources']])

    def test_all_engines_read_it(self):
        self.begin()
        prompt = self.prompt()
        digests = self.words.digests(prompt)
        # Names come from an engine, before the store says it has the block.
        self.publish(0, [self.words.stored(prompt[:-1])])
        self.master.store(digests)
        self.store_has(8)
        found, _ = self.found(prompt)
        self.assertEqual(found, {'e0': 8, 'e1': 8})
        # The engine's own go, the store's stay; then its end goes.
        self.publish(0, [{'type': 'AllBlocksCleared'}])
        self.master.store(digests[:3])  # again, which changes nothing
        self.master.remove(digests[5:])
        self.store_has(5)
        other = prompt[:-1] + [7] * SIZE
        found, sources = self.found(other)
        self.assertEqual(found['e0'], 5)
        self.assertIn(('disk', 0, 5), sources)
        self.master.clear()
        self.store_has(0)

    def test_names_that_come_later(self):
        self.begin()
        prompt = self.prompt()
        self.master.store(self.words.digests(prompt))
        wait_until('its objects are known', lambda: self.metric(
            'store_objects{store="cake"}') == 8)
        self.assertEqual(self.metric('store_blocks{store="cake"}'), 0)
        self.publish(1, [self.words.stored(prompt[:-1])])
        self.store_has(8)

    def test_parts(self):
        """A block is there when all ranks have stored theirs."""
        self.begin(ranks=2)
        prompt = self.prompt()
        digests = self.words.digests(prompt)
        self.publish(0, [self.words.stored(prompt[:-1])])
        self.master.store(digests, 1)
        self.master.store(digests[:4])
        self.store_has(4)
        self.master.remove(digests[2:3], 1)
        self.store_has(3)
        self.master.store(digests[2:3])
        self.store_has(4)

    def test_bad_fields(self):
        good = {'name': 's', 'model': 'm', 'kv_events': 'tcp://127.0.0.1:1',
                'tokens_per_s': 1}
        for bad, word in (({'model': 'other'}, 'stores[0].model'),
                          ({'kv_events': 'udp://x'}, 'stores[0].kv_events'),
                          ({'kv_events': 'tcp://*:1'},
                           '* needs kv_events_bind'),
                          ({'tokens_per_s': 0}, 'stores[0].tokens_per_s'),
                          ({'parts': 5000}, 'stores[0].parts'),
                          ({'rate': 1}, 'rate')):
            self.refused([{**good, **bad}], word)
        self.refused([good, {**good, 'name': 't'}], 'stores[1].model')
        self.refused([], 'stores')

    def refused(self, stores, word):
        self.check_config({'stores': stores, 'engines': [
            {'name': 'e', 'url': 'http://127.0.0.1:1', 'model': 'm'}]}, 2, word)
