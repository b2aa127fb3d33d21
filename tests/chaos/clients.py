"""Clients that ask until they have an answer, and compare it."""
import collections
import http.client
import json
import random
import threading
import time

from harness import settings
from questions import OUTPUT_TOKENS, sendable

ANSWER_LIMIT_S = 60  # a silence this long is a hang
QUESTION_LIMIT_S = 180  # all attempts of one question
EXAMPLES = 5  # that are kept of each kind of failure


class Tally:
    """What happened, counted by all clients."""

    def __init__(self):
        self.lock = threading.Lock()
        self.counts = collections.Counter()
        self.refused = collections.Counter()  # by status
        self.tokens = collections.Counter()  # by where their KV came from
        self.blocks = collections.Counter()  # stored and removed
        self.failures = []

    def add(self, what, n=1):
        with self.lock:
            self.counts[what] += n

    def refuse(self, status):
        with self.lock:
            self.refused[status] += 1

    def reuse(self, told):
        with self.lock:
            for source in 'local', 'fetched', 'disk', 'computed':
                self.tokens[source] += told[source + '_tokens']
            self.counts['retried inside'] += told['retries']

    def fail(self, what, detail):
        with self.lock:
            self.counts[what] += 1
            if self.counts[what] <= EXAMPLES:
                self.failures.append(f'{what}: {detail}')

    def answers(self):
        return self.counts['right'] + self.counts['wrong']


class Asker:
    """One client. `conductor` tells whether a lost connection has a reason:
    conductor.epoch is odd while it is down and changes when it is killed."""

    def __init__(self, cluster, conductor, tally, seed):
        self.cluster = cluster
        self.conductor = conductor
        self.tally = tally
        self.rng = random.Random(seed)

    def ask(self, question):
        """Asks until there is an answer; returns how often it was refused."""
        end = time.monotonic() + QUESTION_LIMIT_S * settings.scale
        attempts = 0
        while not self.attempt(question):
            attempts += 1
            self.tally.add('asked again')
            if time.monotonic() > end:
                self.tally.fail('hang', f'prompt {question.index} has no '
                                f'answer after {attempts} attempts')
                break
            time.sleep(self.rng.uniform(0.05, 0.5))
        return attempts

    def attempt(self, question):
        """One exchange; true when the question is done with."""
        epoch = self.conductor.epoch
        try:
            return self.exchange(question)
        except TimeoutError:
            self.tally.fail('hang', f'prompt {question.index}: silence for '
                            f'{ANSWER_LIMIT_S} s')
            return True
        except (OSError, http.client.HTTPException) as e:
            if epoch % 2 or epoch != self.conductor.epoch:
                self.tally.add('cut by a dead conductor')
            else:
                self.tally.fail('cut for no reason', repr(e))
        return False

    def exchange(self, question):
        stream = self.rng.random() < 0.25
        n = self.rng.randint(1, OUTPUT_TOKENS)
        body = {'model': 'tiny', 'temperature': 0, 'max_tokens': n,
                'prompt': sendable(self.rng, question.tokens)}
        if stream:
            body.update(stream=True, stream_options={'include_usage': True})
        connection, response = self.cluster.api.open(
            'POST', '/v1/completions', body, limit_s=ANSWER_LIMIT_S)
        try:
            if self.rng.random() < 0.01:
                self.tally.add('left by the client')
                return False
            if response.status != 200:
                return self.refused(response)
            if stream:
                return self.read_stream(question, n, response)
            got = json.loads(response.read())
            return self.compare(question, n, got['choices'][0]['text'], got)
        finally:
            connection.close()

    def refused(self, response):
        message = response.read()
        self.tally.refuse(response.status)
        if response.status != 429 and response.status < 500:
            self.tally.fail('unexpected status',
                            f'{response.status}: {message[:300]}')
        return False

    def read_stream(self, question, n, response):
        """A stream may break where a worker died; what came must be right."""
        text, last = '', None
        for line in response:
            if not line.startswith(b'data: {'):
                continue
            last = json.loads(line[6:])
            if 'error' in last:
                break
            for choice in last['choices']:
                text += choice['text']
        if last and 'conductor' in last:
            return self.compare(question, n, text, last)
        self.tally.add('streams broken off')
        if not question.answer[:n].startswith(text):
            self.wrong(question, n, text, last)
        return False

    def compare(self, question, n, text, got):
        self.tally.reuse(got['conductor'])
        if text == question.answer[:n]:
            self.tally.add('right')
        else:
            self.wrong(question, n, text, got['conductor'])
        return True

    def wrong(self, question, n, text, told):
        self.tally.fail('wrong', f'prompt {question.index}: expected '
                        f'{question.answer[:n]!r}, got {text!r}: {told}')


def run_all(todo, askers):
    """Starts a thread an asker, which work off the questions; returns the
    threads."""
    lock = threading.Lock()

    def work(asker):
        while True:
            with lock:
                question = next(todo, None)
            if question is None:
                return
            asker.ask(question)
    threads = [threading.Thread(target=work, args=(a,), daemon=True)
               for a in askers]
    for thread in threads:
        thread.start()
    return threads
