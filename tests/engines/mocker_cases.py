"""The cases of tests/engines/mockers: Conductor in front of eight of Dynamo's
mockers, on the prompts of a trace."""
import argparse
import collections
import gzip
import json
import os
import random
import sys
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
from recount import Recount, chain_of  # noqa: E402
from relay import Relay  # noqa: E402

MOCKERS, CLIENTS = 8, 48
DIVIDED, TRACE_BLOCK, BLOCK = 16, 512, 16
FIRST_TOKEN, TOKENS = 4, 246  # bytes, in the vocabulary of the tiny model
ROOMY, TIGHT = 32768, 1024    # blocks of an engine
AT_ONCE, REAL = 0, 1          # speeds of an engine
DROPS, LOSES = .03, .1        # of messages; of those that are dropped
REASONS = 'in flight', 'evicted since', 'lost', 'restarted'

Answer = collections.namedtuple(
    'Answer', 'prompt home used stored events told began_s ended_s')


def prompts(path, n):
    """(token ids, tokens of output) of a trace's first requests."""
    pieces = {}

    def piece(number):
        if number not in pieces:
            rng = random.Random(number)
            pieces[number] = [
                FIRST_TOKEN + rng.randrange(TOKENS)
                for _ in range(TRACE_BLOCK // DIVIDED)]
        return pieces[number]

    opened = gzip.open if path.endswith('.gz') else open
    with opened(path, 'rt', encoding='utf-8') as lines:
        for line, _ in zip(lines, range(n)):
            request = json.loads(line)
            tokens = [t for h in request['hash_ids'] for t in piece(h)]
            yield (tokens[:max(1, request['input_length'] // DIVIDED)],
                   max(1, request['output_length'] // DIVIDED))


class Case(engines.Case):
    only_loopback = True
    trace, requests = None, 2000

    def begin(self, blocks, speed):
        self.too_early = 0
        self.mockers = [engines.Mocker(self, f'mocker{i}', blocks, BLOCK,
                                       options=['--speedup-ratio', speed])
                        for i in range(MOCKERS)]
        self.relays = [Relay(m, random.Random(i), time.time)
                       for i, m in enumerate(self.mockers)]
        for relay in self.relays:
            self.addCleanup(relay.stop)
        self.cluster = harness.Cluster(self)
        self.cluster.config = {
            'listen': '127.0.0.1:0', 'engine_health_ms': 200,
            'explain_requests': 4096,
            'engines': [
                {'name': f'e{i}', 'kind': 'vllm', 'url': m.url,
                 'model': engines.MODEL, 'block_tokens': BLOCK,
                 'index': 'events',
                 'kv_events': f'tcp://127.0.0.1:{r.events_port}',
                 'kv_replay': f'tcp://127.0.0.1:{r.replay_port}'}
                for i, (m, r) in enumerate(zip(self.mockers, self.relays))]}
        self.cluster.start_conductor()
        wait_until('all are ready',
                   lambda: self.cluster.api.instances()[0] == MOCKERS)

    def note(self, text):
        print('    ' + text, flush=True)

    def metric(self, name, i):
        return self.cluster.api.metric(name, instance=f'e{i}')

    def ask(self, prompt, max_tokens):
        while True:
            began_s = time.time()
            got = self.cluster.api.post('/v1/completions', {
                'model': engines.MODEL, 'prompt': prompt,
                'max_tokens': max_tokens})
            ended_s = time.time()
            if got.status == 200:
                break
            # A frontend that was just started has no model yet.
            if got.status != 404:
                raise AssertionError(f'{got.status}: {got.body}')
            self.too_early += 1
        why = self.cluster.api.explain(got)
        told = got.body['usage'].get('prompt_tokens_details') or {}
        return Answer(prompt, int(why['prefill'][1:]),
                      why['predicted']['used_blocks'],
                      why['predicted']['stored_blocks'],
                      why.get('events'),
                      told.get('cached_tokens', 0) // BLOCK, began_s, ended_s)

    def check_index(self, lives):
        """What Conductor has of each engine is what it has sent."""
        for i, recount in enumerate(lives):
            wait_until(f'the blocks of e{i} are known', lambda: self.metric(
                'instance_blocks', i) == recount.held() and self.metric(
                    'engine_events_state', i) == 0, 60)


class Audit:
    """Holds each answer against a recount of what had been sent. `skips`: so
    many events in a thousand are left out of it, to see that this shows."""

    def __init__(self, relays, skips=0):
        self.relays, self.skips = relays, skips
        self.rng = random.Random(4711)
        self.recounts = {}
        self.counts = collections.Counter()
        self.wrong = []

    def recount(self, engine, life, first=0):
        """What follows from a life's messages from one on."""
        key = engine, life, first
        if key not in self.recounts:
            found = self.recounts[key] = Recount(BLOCK, first)
            source = self.relays[engine].lives[life]
            for number in range(first, len(source.messages)):
                sent_s, events = source.batch(number)
                found.take(sent_s, [e for e in events if not self.skips or
                                    self.rng.random() * 1000 >= self.skips])
        return self.recounts[key]

    def lives(self, answer):
        """Those that the engine had between question and answer."""
        return [n for n, life in enumerate(self.relays[answer.home].lives)
                if life.began_s <= answer.ended_s and
                life.ended_s >= answer.began_s]

    def predicted(self, answer, chain):
        """The life that the prediction follows from; None: from none."""
        if answer.events is None:
            return -1 if answer.stored == 0 else None
        first, last = answer.events['first'], answer.events['last']
        for n in reversed(self.lives(answer)):
            if last < len(self.relays[answer.home].lives[n].messages):
                known = self.recount(answer.home, n, first)
                if known.leading(chain, known.behind(last)) == answer.stored:
                    return n
        return None

    def reason(self, answer, chain, life):
        """Why the engine told something else; None: nobody knows."""
        lives = self.lives(answer)
        for n in lives:
            whole = self.recount(answer.home, n)
            since = whole.behind(answer.events['last']) if n == life else 0
            until = whole.until(answer.ended_s)
            if answer.told not in whole.ever(chain, since, max(since, until)):
                continue
            if n != life and (life >= 0 or n > 0):
                return 'restarted'
            if whole.leading(chain, since) != answer.stored:
                return 'lost'
            if answer.told > answer.stored or answer.used > answer.stored:
                return 'in flight'
            return 'evicted since'
        return None

    def take(self, answer):
        chain = chain_of(answer.prompt[:-1], BLOCK)
        life = self.predicted(answer, chain)
        if life is None:
            self.counts['not as recounted'] += 1
            self.wrong.append(answer)
        if answer.used == answer.told:
            self.counts['exact'] += 1
            return
        why = self.reason(answer, chain, -1 if life is None else life)
        self.counts[why or 'unexplained'] += 1
        if why is None:
            self.wrong.append(answer)


class Mockers(Case):
    def test_one_at_a_time(self):
        """Nothing is evicted: all that is predicted is told."""
        self.begin(ROOMY, AT_ONCE)
        predicted = told = 0
        taken = [0] * MOCKERS
        for prompt, max_tokens in prompts(self.trace, self.requests):
            answer = self.ask(prompt, max_tokens)
            self.assertEqual(answer.used, answer.told)
            predicted += answer.used
            told += answer.told
            i = answer.home
            life = self.relays[i].lives[0]
            # What it adds to the cache is out with the last block of the
            # prompt, and Conductor has it.
            if len(prompt) // BLOCK > answer.told:
                wait_until('it tells of the prompt',
                           lambda: len(life.messages) > taken[i])
            taken[i] = len(life.messages)
            n = sum(len(life.batch(k)[1]) for k in
                    range(self.seen[i], taken[i]))
            self.seen[i], self.events[i] = taken[i], self.events[i] + n
            wait_until('Conductor has it', lambda: self.metric(
                'engine_events_total', i) >= self.events[i])
        self.note(f'{self.requests} requests, {BLOCK * predicted} cached '
                  f'tokens predicted, {BLOCK * told} told; the same on every '
                  'request')

    def setUp(self):
        super().setUp()
        self.seen, self.events = [0] * MOCKERS, [0] * MOCKERS

    def load(self):
        """All requests by clients that take the next one each; two engines
        are killed on the way."""
        todo = list(prompts(self.trace, self.requests))[::-1]
        answers, faults, lock = [], [], threading.Lock()

        def client():
            while todo and not faults:
                with lock:
                    if not todo:
                        return
                    prompt, max_tokens = todo.pop()
                try:
                    answers.append(self.ask(prompt, max_tokens))
                except Exception as fault:  # of any kind: the run ends
                    faults.append(fault)
        clients = [threading.Thread(target=client) for _ in range(CLIENTS)]
        began = time.monotonic()
        for thread in clients:
            thread.start()
        # A process ends with the thread that has started it.
        for part, killed in (1, 2), (2, 5):
            wait_until('it is time', lambda: faults or len(
                answers) >= part * self.requests // 3, 600)
            self.relays[killed].restart()
        for thread in clients:
            thread.join()
        if faults:
            raise faults[0]
        self.note(f'{len(answers)} requests by {CLIENTS} clients in '
                  f'{time.monotonic() - began:.0f} s')
        return answers

    def test_under_load(self):
        """Evictions, losses, gaps and two restarts: every difference from what
        the engines tell has a reason in their events."""
        self.begin(TIGHT, REAL)
        for relay in self.relays:
            relay.drops, relay.loses = DROPS, LOSES
        answers = self.load()
        for relay in self.relays:
            relay.complete()
        messages = sum(len(life.messages) for r in self.relays
                       for life in r.lives)
        self.note(
            f'{messages} messages of events, {sum(r.dropped for r in self.relays)} '
            f'dropped, {sum(r.lost for r in self.relays)} of them for good; '
            f'{sum(len(r.lives) for r in self.relays) - MOCKERS} restarts, '
            f'{self.too_early} requests to frontends that had no model yet')
        audit = Audit(self.relays)
        for answer in answers:
            audit.take(answer)
        self.note(', '.join(
            f'{name} {audit.counts[name]}' for name in
            ('exact', *REASONS, 'unexplained', 'not as recounted')))
        self.note(f'cached tokens: {BLOCK * sum(a.used for a in answers)} '
                  f'predicted, {BLOCK * sum(a.told for a in answers)} told, of '
                  f'{sum(len(a.prompt) for a in answers)}')
        for answer in audit.wrong[:5]:
            print(answer._replace(prompt=len(answer.prompt)))
        self.assertEqual(len(audit.wrong), 0)
        self.assertEqual(len(answers), self.requests)
        for relay in self.relays:
            relay.heal()
        last = [audit.recount(i, len(r.lives) - 1)
                for i, r in enumerate(self.relays)]
        self.check_index(last)
        self.note(f'after the last replay: {sum(r.held() for r in last)} blocks '
                  'in the index, and by the events')
        self.check_audit(answers)

    def check_audit(self, answers):
        """It sees what is wrong: the events, or what the engine told."""
        lame, lied = Audit(self.relays, skips=200), Audit(self.relays)
        for answer in answers:
            lame.take(answer)
            lied.take(answer._replace(told=answer.told + 1))
        self.note('with a fifth of the events left out of the recount: '
                  f'{lame.counts["not as recounted"]} not as recounted')
        self.note('with a block more in each answer: '
                  f'{lied.counts["unexplained"]} unexplained')
        self.assertGreater(lame.counts['not as recounted'], 0)
        self.assertGreater(lied.counts['unexplained'], len(answers) // 2)


def run(name, counts):
    case, result = Mockers(name), unittest.TestResult()
    print(f'{name}', flush=True)
    began = time.monotonic()
    case.run(result)
    problems = result.errors + result.failures
    skipped = [reason for _, reason in result.skipped]
    word = 'FAIL' if problems else 'skip' if skipped else 'ok'
    print(f'    {word} {time.monotonic() - began:.0f} s', *skipped, flush=True)
    for _, text in problems:
        print(text, flush=True)
    counts.failed += bool(problems)
    counts.skipped += bool(skipped) and not problems
    counts.passed += not problems and not skipped


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('trace')
    parser.add_argument('--build', default=harness.settings.build)
    parser.add_argument('--scale', type=float, default=1,
                        help='of every time limit')
    parser.add_argument('--requests', type=int, default=Case.requests)
    parser.add_argument('--filter', default='')
    parser.add_argument('--keep', action='store_true')
    args = parser.parse_args()
    harness.settings.build = os.path.abspath(args.build)
    harness.settings.scale = args.scale
    harness.settings.keep = args.keep
    Case.trace, Case.requests = args.trace, args.requests

    print(f'== {MOCKERS} mockers of ai-dynamo, blocks of {BLOCK} tokens; '
          f'{args.requests} requests of {os.path.basename(args.trace)}, '
          f'lengths divided by {DIVIDED}', flush=True)
    counts = Counts()
    for name in vars(Mockers):
        if name.startswith('test_') and args.filter in name:
            run(name, counts)
    print(counts)
    return 1 if counts.failed or not counts.passed else 0


if __name__ == '__main__':
    sys.exit(main())
