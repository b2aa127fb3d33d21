"""Dynamo's mocker behind the conductor: engines that others wrote and that
publish vLLM's KV events."""
import http.client
import json
import random
import threading

import engines
import harness
import stand_in
from harness import Cluster, settings, total, wait_until
from kv_feed import Feed
from stand_in import Engine, reply
from test_forward import EngineCase
from publisher import Publisher


class Behind(engines.Case):
    only_loopback = True

    def behind(self, n, blocks=1024, urls=None, **fields):
        """Conductor in front of n mockers, or of what stands in front of
        them; returns both."""
        mockers = [engines.Mocker(self, f'mocker{i}', blocks)
                   for i in range(n)]
        return self.in_front_of(mockers, urls, **fields), mockers

    def in_front_of(self, mockers, urls=None, **fields):
        """Conductor in front of these."""
        cluster = Cluster(self)
        cluster.config = {
            'listen': '127.0.0.1:0', 'engine_health_ms': 100,
            'engines': [
                {'name': f'e{i}', 'kind': 'vllm',
                 'url': urls(m) if urls else m.url,
                 'model': engines.MODEL, 'block_tokens': m.block_tokens,
                 'kv_events': f'tcp://127.0.0.1:{m.events_port}',
                 'kv_replay': f'tcp://127.0.0.1:{m.replay_port}', **fields}
                for i, m in enumerate(mockers)]}
        cluster.start_conductor()
        wait_until('all are ready', lambda: cluster.api.instances()[0] ==
                   len(mockers))
        return cluster

    def ask(self, cluster, prompt, max_tokens=2, path='/v1/completions'):
        """(engine, cached tokens as predicted and as told)."""
        what = 'messages' if path.endswith('chat/completions') else 'prompt'
        got = cluster.api.post(path, {
            'model': engines.MODEL, 'max_tokens': max_tokens, what: prompt})
        self.assertEqual(got.status, 200, got.body)
        self.last = got.headers['x-conductor-request-id']
        why = cluster.api.explain(self.last)
        told = got.body['usage'].get('prompt_tokens_details') or {}
        return (why['prefill'], 16 * why['predicted']['used_blocks'],
                told.get('cached_tokens', 0))

    @staticmethod
    def metric(cluster, name, i=0):
        return cluster.api.metric(name, instance=f'e{i}')


class Mocked(Behind):
    def test_what_is_predicted_is_what_is_told(self):
        """One request at a time: the hits are those that the engine counts,
        and a conversation stays where it is."""
        cluster, _ = self.behind(2, index='events')
        rng = random.Random(7)
        talks = [[rng.randrange(4, 250) for _ in range(150)]
                 for _ in range(4)]
        homes, sent = [None] * 4, [0] * 4
        for turn in range(4):
            for i, talk in enumerate(talks):
                home, predicted, told = self.ask(cluster, talk)
                if turn:
                    self.assertEqual(home, homes[i])
                    self.assertEqual(predicted, told)
                    self.assertGreater(told, 0)
                homes[i] = home
                # Events come behind the answer, on a connection of their own.
                sent[i] = len(talk) // 16
                blocks = sum(n for n, h in zip(sent, homes) if h == home)
                wait_until('its blocks are known', lambda: self.metric(
                    cluster, 'instance_blocks', int(home[1])) >= blocks)
                talk += [rng.randrange(4, 250) for _ in range(70)]
        self.assertEqual(set(homes), {'e0', 'e1'})

    def test_evictions_are_known(self):
        """An engine with little room: the hits are those that it counts on
        every request. An observer tells when all of its events are out."""
        cluster, mockers = self.behind(2, blocks=64, index='events')
        observers = [Feed(self, m.events_port, m.replay_port, block_tokens=16)
                     for m in mockers]
        rng, hits = random.Random(4711), 0
        bases = [[rng.randrange(4, 250) for _ in range(320)] for _ in range(6)]
        for _ in range(60):
            prompt = rng.choice(bases)[:rng.randrange(20, 321)] + \
                [rng.randrange(4, 250) for _ in range(rng.randrange(1, 40))]
            if rng.random() < .3:  # whole blocks: the last one is recomputed
                prompt = prompt[:len(prompt) // 16 * 16]
            # One token: what it stores is out with the prompt's last block.
            home, predicted, told = self.ask(cluster, prompt, 1)
            self.assertEqual(predicted, told, prompt)
            hits += told > 0
            i = int(home[1])
            wait_until('its blocks are observed', lambda: observers[i].match(
                prompt) == len(prompt) // 16)
            wait_until('the conductor knows them', lambda: self.metric(
                cluster, 'engine_events_total', i) ==
                observers[i].stats()['events'])
        self.assertGreater(hits, 15)
        self.assertGreater(sum(o.stats()['removed'] for o in observers), 0)
        for i, observer in enumerate(observers):
            self.assertEqual(self.metric(cluster, 'instance_blocks', i),
                             observer.stats()['held'])
            self.assertEqual(self.metric(cluster, 'engine_events_state', i), 0)

    def test_data_parallel_ranks(self):
        """The index has what any rank of an engine holds, and the engine
        chooses the rank: never less is predicted than it finds there."""
        mockers = [engines.Mocker(self, f'mocker{i}', 256, ranks=2)
                   for i in range(2)]
        cluster = self.in_front_of(mockers, index='events', dp_ranks=2)
        observers = [Feed(self, m.events_port, m.replay_port, ranks=2,
                          block_tokens=16) for m in mockers]
        rng, hits = random.Random(5), 0
        bases = [[rng.randrange(4, 250) for _ in range(320)] for _ in range(4)]
        for _ in range(40):
            prompt = rng.choice(bases)[:rng.randrange(20, 321)] + \
                [rng.randrange(4, 250) for _ in range(rng.randrange(1, 40))]
            home, predicted, told = self.ask(cluster, prompt, 1)
            self.assertLessEqual(told, predicted, prompt)
            hits += told > 0 and told == predicted
            i = int(home[1])
            wait_until('its blocks are observed', lambda: observers[i].match(
                prompt) == len(prompt) // 16)
            wait_until('the conductor knows them', lambda: self.metric(
                cluster, 'engine_events_total', i) ==
                observers[i].stats()['events'])
        self.assertGreater(hits, 5)
        for i in range(2):
            self.assertEqual(self.metric(cluster, 'engine_events_state', i), 0)

    def test_a_restarted_conductor_asks_for_what_it_missed(self):
        cluster, _ = self.behind(1, index='events')
        prompt = list(range(4, 164))
        self.ask(cluster, prompt)
        wait_until('its blocks are known', lambda: self.metric(
            cluster, 'instance_blocks') >= 10)
        self.stop(cluster.conductor)
        cluster.start_conductor()
        wait_until('its blocks are known again', lambda: self.metric(
            cluster, 'instance_blocks') >= 10)
        wait_until('it is ready', lambda: cluster.api.instances()[0] == 1)
        _, predicted, told = self.ask(cluster, prompt)
        self.assertEqual((predicted, told), (144, 144))

    @staticmethod
    def kv_events(cluster):
        one, = cluster.api.listed()
        return one.get('kv_events')

    def test_events_that_stop(self):
        """The conductor hears of the events through a stand-in that ends."""
        port = engines.free_ports(8)
        publisher = Publisher(port, port + 4, topic=b'')
        cluster, _ = self.behind(
            1, index='events', kv_events=f'tcp://127.0.0.1:{port}',
            kv_replay=f'tcp://127.0.0.1:{port + 4}')
        self.assertEqual(self.metric(cluster, 'engine_events_age_seconds'), -1)
        self.assertEqual(self.metric(cluster, 'engine_events_last'), -1)
        publisher.publish([
            {'type': 'Unheard of'},
            {'type': 'BlockRemoved', 'block_hashes': [1, 2, 3]},
            {'type': 'BlockStored', 'block_hashes': [5, 6], 'block_size': 16,
             'parent_block_hash': 4, 'token_ids': list(range(32))}])
        faults = 'conductor_engine_event_faults_total{instance="e0",fault="%s"}'
        for fault, n in (('unknown_tag', 1), ('unknown_hash', 3),
                         ('unknown_parent', 1)):
            wait_until(fault, lambda: cluster.api.metrics()[
                faults % fault] == n)
        self.assertEqual(self.metric(cluster, 'engine_events_last'), 0)
        publisher.stop()
        self.assertGreaterEqual(
            self.metric(cluster, 'engine_events_age_seconds'), 0)
        self.assertEqual(self.kv_events(cluster), 'whole')
        # The last of the first ones may still be taken for heard.
        for i in range(32):
            self.ask(cluster, [4 + i] * 100)
        wait_until('the log tells', lambda: 'no KV events arrive' in
                   cluster.conductor.log())
        self.assertGreaterEqual(
            self.metric(cluster, 'engine_unheard_requests'), 16)
        self.assertEqual(self.metric(cluster, 'engine_events_state'), 1)
        self.assertEqual(self.kv_events(cluster), 'silent')

    def test_blocks_that_found_no_place(self):
        """The index takes eight clears of an instance until it has swept.
        What comes then is asked for again."""
        port = engines.free_ports(8)
        publisher = Publisher(port, port + 4, topic=b'', remembers=1)
        self.addCleanup(publisher.stop)
        cluster, _ = self.behind(
            1, index='events', kv_events=f'tcp://127.0.0.1:{port}',
            kv_replay=f'tcp://127.0.0.1:{port + 4}')

        def store(number):
            return {'type': 'BlockStored', 'block_hashes': [number],
                    'parent_block_hash': None, 'token_ids': [number] * 16,
                    'block_size': 16}
        wait_until('it listens', lambda: publisher.publish([]) or self.metric(
            cluster, 'engine_events_age_seconds') >= 0)
        publisher.publish([e for n in range(64) for e in (
            store(n), {'type': 'AllBlocksCleared'})])
        publisher.publish([store(70)])
        wait_until('it is indexed', lambda: self.metric(
            cluster, 'instance_blocks') == 1)
        self.assertIn('is requested', cluster.conductor.log())

    def test_a_restarted_engine_has_nothing(self):
        cluster, mockers = self.behind(1, index='events')
        self.ask(cluster, list(range(4, 164)))
        wait_until('its blocks are known', lambda: self.metric(
            cluster, 'instance_blocks') >= 10)
        mockers[0].kill()
        wait_until('it gets no work', lambda: cluster.api.instances()[0] == 0)
        mockers[0].start()
        wait_until('it is back', lambda: cluster.api.instances()[0] == 1)
        wait_until('nothing is there', lambda: self.metric(
            cluster, 'instance_blocks') == 0)
        _, predicted, told = self.ask(cluster, list(range(4, 164)))
        self.assertEqual((predicted, told), (0, 0))


class Oracle(Behind):
    """Dynamo's indexer beside the conductor, fed by the same events."""

    def subscribed(self, mockers, oracle):
        """Until the oracle hears them all: it asks nobody for what it has
        missed. Each engine gets a prompt of its own until then."""
        for i, mocker in enumerate(mockers):
            prompt = [200 + i] * 3

            def heard():
                prompt[:] = [*prompt, *range(4, 36)]
                status, _ = engines.get(mocker.url + '/v1/completions', {
                    'model': engines.MODEL, 'prompt': prompt, 'max_tokens': 1})
                self.assertEqual(status, 200)
                return oracle.match(prompt)[i] > 0 or \
                    oracle.match(prompt[:35])[i] > 0
            wait_until('the oracle hears it', heard)

    def test_it_says_the_same(self):
        """On every prompt and of every engine, with evictions."""
        mockers = [engines.Mocker(self, f'mocker{i}', 64) for i in range(2)]
        oracle = engines.Indexer(self, mockers)
        self.subscribed(mockers, oracle)
        feeds = [Feed(self, m.events_port, m.replay_port, block_tokens=16)
                 for m in mockers]
        # What the oracle has not heard leaves before anything is compared.
        rng = random.Random(4711)
        for mocker in mockers:
            for _ in range(4):
                engines.get(mocker.url + '/v1/completions', {
                    'model': engines.MODEL, 'max_tokens': 1,
                    'prompt': [rng.randrange(4, 250) for _ in range(960)]})
        cluster = self.in_front_of(mockers, index='events')
        bases = [[rng.randrange(4, 250) for _ in range(320)] for _ in range(6)]
        compared = hits = 0
        for _ in range(60):
            prompt = rng.choice(bases)[:rng.randrange(20, 321)] + \
                [rng.randrange(4, 250) for _ in range(rng.randrange(1, 40))]
            wait_until('the conductor knows the events', lambda: all(
                self.metric(cluster, 'engine_events_total', i) ==
                f.stats()['events'] for i, f in enumerate(feeds)))
            wait_until(f'index and oracle agree on {prompt}', lambda: [
                f.match(prompt) for f in feeds] == oracle.match(prompt))
            want = [min(n, (len(prompt) - 1) // 16)
                    for n in oracle.match(prompt)]
            home, *_ = self.ask(cluster, prompt, 1)
            why = cluster.api.get('/admin/explain/' + self.last)
            for c in why.body['candidates']:
                i = int(c['instance'][1])
                self.assertEqual(c['used_blocks'], want[i], prompt)
                compared += 1
                hits += want[i] > 0
            i = int(home[1])
            wait_until('its blocks are observed', lambda: feeds[i].match(
                prompt) == len(prompt) // 16)
        for prompt in bases:
            for n in range(16, 321, 16):
                wait_until(f'they agree on {prompt[:n]}', lambda: [
                    f.match(prompt[:n]) for f in feeds] ==
                    oracle.match(prompt[:n]))
        self.assertEqual(compared, 120)
        self.assertGreater(hits, 30)
        self.assertGreater(sum(f.stats()['removed'] for f in feeds), 0)


def tokens_of(body):
    """As the model's tokenizer has them: bytes, but for "th"."""
    def plain(text):
        assert 'th' not in text, text
        return [4 + b for b in text.encode()]
    if 'prompt' in body:
        return plain(body['prompt'])
    tokens = []
    for m in body['messages']:
        tokens += [2, *plain(m['role'] + '\n' + m['content']), 3, *plain('\n')]
    return [*tokens, 2, *plain('assistant\n')]


class Tokenized(Behind):
    """Texts on engines whose events tell tokens: a stand-in before each
    mocker answers vLLM's /tokenize."""

    def before(self, mocker):
        def serve(request, send):
            if request.path == '/tokenize':
                if mocker.port == self.broken:
                    self.n_broken += 1
                    return 'reset'
                self.asked.append(json.loads(request.body))
                self.in_time.wait(60 * settings.scale)
                tokens = tokens_of(self.asked[-1])
                send(self.answer or reply(200, {
                    'count': len(tokens), 'max_model_len': 32768,
                    'tokens': tokens, 'token_strs': None}))
                return None
            connection = http.client.HTTPConnection('127.0.0.1', mocker.port)
            connection.request('POST', request.path, request.body,
                               {'Content-Type': 'application/json'})
            answer = connection.getresponse()
            send(reply(answer.status, answer.read()))
            connection.close()
            return None
        self.asked, self.answer = [], None
        self.broken, self.n_broken = None, 0
        self.in_time = threading.Event()
        self.in_time.set()
        self.addCleanup(self.in_time.set)
        engine = Engine(serve)
        engine.models = [{'id': engines.MODEL, 'object': 'model'}]
        self.addCleanup(engine.stop)
        return engine.url

    def known(self, cluster, prompt):
        """Events have come, so that texts are tokenized from now on."""
        self.ask(cluster, prompt)
        wait_until('its events have come', lambda: self.metric(
            cluster, 'engine_events_total') > 0)

    def grow(self, cluster, path, turns):
        """The same request with more and more behind it: predicted and told
        cached tokens of each."""
        found = []
        for turn in turns:
            before = self.metric(cluster, 'engine_events_total')
            found.append(self.ask(cluster, turn, path=path)[1:])
            wait_until('its events have come', lambda: self.metric(
                cluster, 'engine_events_total') > before)
        return found

    def test_texts(self):
        cluster, _ = self.behind(1, urls=self.before, index='events')
        self.known(cluster, list(range(4, 100)))
        found = self.grow(cluster, '/v1/completions', [
            'A rainy day. ' * 10 + 'More of it. ' * 6 * i for i in range(4)])
        self.assertEqual([p for p, _ in found], [t for _, t in found])
        self.assertTrue(all(t > 100 for _, t in found[1:]), found)
        self.assertEqual(len(self.asked), 4)
        self.assertEqual(
            cluster.api.metric('tokenized_total', result='tokens'), 4)

    def test_the_same_text_is_asked_for_once(self):
        cluster, _ = self.behind(1, urls=self.before, index='events')
        self.known(cluster, list(range(4, 100)))
        for _ in range(3):
            self.ask(cluster, 'A rainy day. ' * 10)
        self.ask(cluster, 'A rainy day. ' * 11)
        self.assertEqual(len(self.asked), 2)
        self.assertEqual([cluster.api.metric('tokenized_total', result=r)
            for r in ('tokens', 'cached', 'failed')], [2, 2, 0])
        _, predicted, told = self.ask(cluster, 'A rainy day. ' * 10)
        self.assertEqual(predicted, told)
        self.assertGreater(told, 100)

    def test_a_late_tokenizer(self):
        """Requests do not wait for it, and it is asked again when it has had
        time to recover."""
        cluster, _ = self.behind(1, urls=self.before, index='events')
        self.known(cluster, list(range(4, 100)))
        self.in_time.clear()
        for i in range(4):
            self.ask(cluster, f'It goes on {i}. ' * 20)
        metric = 'conductor_tokenized_total{result="%s"}'
        self.assertEqual(cluster.api.metrics()[metric % 'failed'], 4)
        self.assertIn('engine e0, asked for /tokenize: it did not answer in time',
                      cluster.conductor.log())
        self.in_time.set()

        def tokens_again():
            self.ask(cluster, 'Once more. ' * 20)
            return cluster.api.metrics()[metric % 'tokens'] > 0
        wait_until('it is asked again', tokens_again)

    def test_one_is_gone(self):
        """The next one is asked, and this one not for a while."""
        cluster, mockers = self.behind(2, urls=self.before, index='events')
        self.ask(cluster, list(range(4, 100)))
        wait_until('events have come', lambda: any(self.metric(
            cluster, 'engine_events_total', i) > 0 for i in range(2)))
        self.broken = mockers[0].port
        for i in range(4):
            self.ask(cluster, f'It goes on {i}. ' * 20)
        self.assertGreater(self.n_broken, 0)
        self.assertEqual(len(self.asked), 4)
        self.assertEqual([cluster.api.metric('tokenized_total', result=r)
            for r in ('tokens', 'failed')], [4, 0])

    def test_chats(self):
        cluster, _ = self.behind(1, urls=self.before, index='events')
        self.known(cluster, list(range(4, 100)))
        talk = [{'role': 'user', 'content': 'Who is who? ' * 12}]
        turns = []
        for i in range(4):
            turns.append(list(talk))
            talk += [{'role': 'assistant', 'content': 'Nobody. ' * 9},
                     {'role': 'user', 'content': f'And now {i}? ' * 7}]
        found = self.grow(cluster, '/v1/chat/completions', turns)
        self.assertEqual([p for p, _ in found], [t for _, t in found])
        self.assertTrue(all(t > 100 for _, t in found[1:]), found)
        self.assertEqual(set(self.asked[0]), {'model', 'messages'})

    def test_no_tokens(self):
        """Whatever is answered, the request goes on, known by its bytes."""
        cluster, _ = self.behind(1, urls=self.before)
        self.known(cluster, list(range(4, 100)))
        for answer in (reply(404, {}), reply(200, {'tokens': ['a']}),
                       reply(200, b'{"tokens": [1, 2'), reply(200, b'[]'),
                       b'nothing like HTTP\r\n\r\n'):
            self.answer = answer
            self.ask(cluster, 'It goes on. ' * 20)
        self.assertEqual(
            cluster.api.metric('tokenized_total', result='failed'), 5)
        # The bytes are known by now.
        _, predicted, _ = self.ask(cluster, 'It goes on. ' * 20)
        self.assertGreater(predicted, 0)
        self.assertEqual(total(cluster.api.metrics(),
                               'conductor_requests_in_flight'), 0)


class OneRank(EngineCase):
    """Conductor in front of the second of two ranks."""

    def test_events_of_other_ranks(self):
        """They are left out, whether they come live or from a replay, and
        those behind them are not."""
        for bind in False, True:
            with self.subTest(bind=bind):
                self.check(bind)

    def check(self, bind):
        port = engines.free_ports(4)
        own = Publisher(port + 1, port + 3, connect=bind, topic=b'', rank=1)
        self.addCleanup(own.stop)

        def store(number, rank):
            own.rank = rank
            own.publish([{
                'type': 'BlockStored', 'block_hashes': [number],
                'parent_block_hash': None, 'token_ids': [number] * 16,
                'block_size': 16}])
        store(1, 1)
        store(2, 0)
        cluster = self.engines(
            None, kind='vllm', index='events', block_tokens=16, dp_rank=1,
            kv_events=f'tcp://127.0.0.1:{port}', kv_events_bind=bind,
            kv_replay=f'tcp://127.0.0.1:{port + 2}')

        def value(name, more=''):
            return cluster.api.metrics()[
                f'conductor_{name}{{instance="e0"{more}}}']

        def others():
            return value('engine_event_faults_total', ',fault="rank"')
        wait_until('the replay is taken', lambda:
                   value('instance_blocks') == 1 and others() >= 1)
        before = others()
        wait_until('a live one is left out', lambda:
                   store(2, 0) or others() > before)
        store(3, 1)
        wait_until('the next one is known', lambda:
                   value('instance_blocks') == 2)
        self.assertEqual(value('engine_events_state'), 0)
        self.end(cluster)


class Late(EngineCase):
    @harness.mostly_waits
    def test_an_engine_that_is_ready_is_asked_again(self):
        """It starts later than the conductor: its events are asked for when
        it is ready, however often nobody answered before."""
        held = engines.HeldPorts(self, 2)
        port = held.first
        engine = stand_in.Engine()
        self.addCleanup(engine.stop)
        engine.health = 503
        cluster = Cluster(self)
        cluster.config = {
            'listen': '127.0.0.1:0', 'engine_health_ms': 50, 'engines': [{
                'name': 'e0', 'url': engine.url, 'model': 'm',
                'kind': 'vllm', 'block_tokens': 16,
                'kv_events': f'tcp://127.0.0.1:{port}',
                'kv_replay': f'tcp://127.0.0.1:{port + 1}'}]}
        cluster.start_conductor()

        def value(name):
            return cluster.api.metric(name, instance='e0')

        def failed():
            return cluster.api.metrics()[
                'conductor_engine_event_replays_total'
                '{instance="e0",result="failed"}']
        # The next pause is longer than what is waited for below.
        wait_until('it was asked twice', lambda: failed() == 2, 60)
        held.release()
        publisher = Publisher(port, port + 1)
        self.addCleanup(publisher.stop)
        publisher.publish([{
            'type': 'BlockStored', 'block_hashes': [1],
            'parent_block_hash': None, 'token_ids': [1] * 16,
            'block_size': 16}], lose=True)
        engine.health = 200
        wait_until('its blocks are known', lambda:
                   value('instance_blocks') == 1)
        wait_until('all is known', lambda: value('engine_events_state') == 0)


class PageOfOne(EngineCase):
    """SGLang's pages have one token, unless it is told otherwise."""

    def test_blocks_of_one_token(self):
        port = engines.free_ports(2)
        publisher = Publisher(port, port + 1, topic=b'')
        self.addCleanup(publisher.stop)
        cluster = self.engines(
            None, kind='sglang', index='events', block_tokens=1,
            kv_events=f'tcp://127.0.0.1:{port}',
            kv_replay=f'tcp://127.0.0.1:{port + 1}')
        rng = random.Random(3)
        prompt = [rng.randrange(50000) for _ in range(700)]
        publisher.publish([{
            'type': 'BlockStored', 'token_ids': prompt[i:i + 100],
            'block_hashes': list(range(i - 350, i - 250)), 'block_size': 1,
            'parent_block_hash': i - 351 if i else None, 'lora_id': None,
            'medium': 'GPU'} for i in range(0, 700, 100)])
        publisher.publish([{'type': 'BlockRemoved', 'medium': 'GPU',
                            'block_hashes': list(range(200, 350))}])
        wait_until('they are known', lambda:
            cluster.api.metric('instance_blocks', instance='e0') == 550)
        used = []
        for n in (700, 551, 550, 101, 1):
            got = cluster.api.post('/generate', {'input_ids': prompt[:n]}).ok()
            why = cluster.api.explain(got)
            used.append(why['predicted']['used_blocks'])
        # The last token is computed in any case; the first request is
        # expected to leave its blocks there.
        self.assertEqual(used[0], 550)
        self.assertEqual(used[1:], [550, 549, 100, 0])
