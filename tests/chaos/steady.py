"""Clients that ask at a steady rate, a ledger of their ids, and what processes
hold meanwhile."""
import collections
import glob
import http.client
import json
import os
import random
import threading
import time

from harness import Api, settings

SILENCE_LIMIT_S = 60  # a silence this long is a hang
EXAMPLES = 5  # that are kept of each kind of failure
CLIENTS = 96  # most that ask at once


class Ledger:
    """How each id ended at its client, and how often the access log has it."""

    def __init__(self):
        self.lock = threading.Lock()
        self.ended = {}  # id: how
        self.logged = collections.Counter()
        self.outcomes = collections.Counter()  # as the log tells
        self.retries = 0
        self.failures = collections.defaultdict(list)
        self.most_late_s = 0

    def end(self, name, how):
        with self.lock:
            if name in self.ended:
                self.failures['ended twice'].append(name)
            self.ended[name] = how

    def fail(self, what, detail):
        with self.lock:
            self.failures[what].append(detail)

    def read(self, pattern):
        """Counts the lines of finished logs, and removes these."""
        for path in glob.glob(pattern):
            with open(path, encoding='utf-8') as log:
                for line in log:
                    told = json.loads(line)
                    self.logged[told.get('client_id')] += 1
                    self.outcomes[told['outcome']] += 1
                    self.retries += told.get('retries') or 0
            os.remove(path)

    def compare(self):
        """Each id must be in the log once."""
        for name in self.ended:
            if self.logged[name] != 1:
                self.fail('not in the log once',
                          f'{name}: {self.logged[name]} times, at its client '
                          f'{self.ended[name]}')
        for name in set(self.logged) - set(self.ended):
            self.fail('in the log, and never asked', str(name))

    def lines(self):
        return [f'{what}: {len(details)} times, as {details[:EXAMPLES]}'
                for what, details in sorted(self.failures.items())]


class Steady:
    """Asks `rate` questions a second, each under an id of its own."""

    def __init__(self, port, ledger, prompts, answers, rate, seed):
        self.port, self.ledger = port, ledger
        self.prompts, self.answers = prompts, answers
        self.rate, self.rng = rate, random.Random(seed)
        self.lock = threading.Lock()
        self.over = threading.Event()
        self.begin = time.monotonic()
        self.n = 0
        self.threads = [threading.Thread(target=self.run, daemon=True)
                        for _ in range(CLIENTS)]
        for thread in self.threads:
            thread.start()

    def stop(self):
        self.over.set()
        for thread in self.threads:
            thread.join(2 * SILENCE_LIMIT_S * settings.scale)
            if thread.is_alive():
                self.ledger.fail('hang', 'a client does not end')

    def next(self):
        with self.lock:
            n, self.n = self.n, self.n + 1
            return n, random.Random(self.rng.random())

    def run(self):
        while True:
            n, rng = self.next()
            late_s = time.monotonic() - self.begin - n / self.rate
            if self.over.wait(max(0, -late_s)):
                return
            self.ledger.most_late_s = max(self.ledger.most_late_s, late_s)
            name = f'soak-{n}'
            try:
                how = self.ask(name, rng)
            except TimeoutError:
                how = 'hang'
                self.ledger.fail('hang', name)
            except (OSError, http.client.HTTPException, ValueError) as e:
                how = 'cut'
                self.ledger.fail('cut', f'{name}: {e!r}')
            self.ledger.end(name, how)

    def ask(self, name, rng):
        """Returns how it ended."""
        i = rng.randrange(len(self.prompts))
        n = rng.randint(1, len(self.answers[i]))
        stream, engine = rng.random() < 0.3, rng.random() < 0.1
        body = {'model': 'm' if engine else 'tiny', 'max_tokens': n,
                'prompt': self.prompts[i], 'stream': stream}
        want = 'abcd' if engine else self.answers[i][:n]
        connection, response = Api(self.port).open(
            'POST', '/v1/completions', body, {'x-request-id': name},
            limit_s=SILENCE_LIMIT_S)
        try:
            if rng.random() < 0.005:
                return 'left by the client'
            if response.status != 200:
                text = response.read()
                self.ledger.fail('refused', f'{name}: {response.status} '
                                 f'{text[:200]}')
                return f'refused with {response.status}'
            if stream:
                return self.stream(name, response, want, engine)
            self.compare(name, json.loads(response.read())[
                'choices'][0]['text'], want)
            return 'answered whole'
        finally:
            connection.close()

    def stream(self, name, response, want, engine):
        """One that breaks off has an error, and what came was right; of an
        engine of others the connection may end."""
        text, last = '', None
        try:
            for line in response:
                if line.startswith(b'data: '):
                    last = line[6:].strip()
                    if last != b'[DONE]' and b'"error"' not in last:
                        for choice in json.loads(last)['choices']:
                            text += choice['text']
                    elif last != b'[DONE]':
                        self.compare(name, text, want[:len(text)])
                        return 'streams ended by an error'
        except (OSError, http.client.HTTPException):
            if not engine or isinstance(last, TimeoutError):
                raise
        if last == b'[DONE]':
            self.compare(name, text, want)
            return 'answered in a stream'
        self.compare(name, text, want[:len(text)])
        if not engine:
            self.ledger.fail('ended without a word', f'{name}: {last}')
        return 'streams that an engine broke off'

    def compare(self, name, text, want):
        if text != want:
            self.ledger.fail('wrong', f'{name}: {text!r}, not {want!r}')


class Watch(threading.Thread):
    """Memory and descriptors of processes, every `every_s`."""

    def __init__(self, processes, every_s):
        super().__init__(daemon=True)
        self.processes, self.every_s = processes, every_s
        self.over = threading.Event()
        self.begin = time.monotonic()
        self.samples = {p.name: [] for p in processes}  # (s, KiB, fds)
        self.start()

    def run(self):
        page = os.sysconf('SC_PAGE_SIZE')
        while not self.over.wait(self.every_s):
            for p in self.processes:
                root = f'/proc/{p.child.pid}'
                try:
                    with open(f'{root}/statm', encoding='ascii') as f:
                        kib = int(f.read().split()[1]) * page >> 10
                    fds = len(os.listdir(f'{root}/fd'))
                except OSError:
                    continue
                self.samples[p.name].append(
                    (time.monotonic() - self.begin, kib, fds))


def slope(samples, column):
    """Per hour, by least squares."""
    n = len(samples)
    t = sum(s[0] for s in samples) / n
    v = sum(s[column] for s in samples) / n
    below = sum((s[0] - t) ** 2 for s in samples)
    return 3600 * sum((s[0] - t) * (s[column] - v)
                      for s in samples) / below if below else 0
