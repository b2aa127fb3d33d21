"""One fault: a cluster with clients that ask all the time, what each of them
got, and the rules that hold whatever happens."""
import contextlib
import http.client
import json
import os
import random
import signal
import subprocess
import threading
import time
import traceback

from harness import ROOT, Case, Cluster, settings, total, wait_until
from stand_in import Engine

SILENCE_LIMIT_S = 60  # a silence this long is a hang
OUTPUT_TOKENS = 48
SOON = {'heartbeat_ms': 100, 'worker_timeout_ms': 1500}
CALM = 8  # requests behind the fault; none may fail
ALL = []  # the faults, in the order of the table


class Skipped(Exception):
    """What the fault needs is not here."""


class Fault:
    """What is done, and what may come of it.
    refused: without another instance, whole requests may be refused
    cut: the conductor itself is lost, with its connections
    broken: an engine of others broke off behind its answer's head"""

    def __init__(self, part, what, run, refused, cut, broken):
        self.part, self.what, self.run = part, what, run
        self.refused, self.cut, self.broken = refused, cut, broken
        self.name = run.__name__


def fault(part, what, refused=False, cut=False, broken=False):
    def register(run):
        ALL.append(Fault(part, what, run, refused, cut, broken))
        return run
    return register


class Ask:
    """One request as its client saw it."""
    __slots__ = ('kind', 'begin', 'end', 'outcome', 'detail', 'instances')

    def __init__(self, stream):
        self.kind = 'stream' if stream else 'whole'
        self.begin, self.end = time.monotonic(), None
        self.outcome, self.detail, self.instances = None, '', ()


class Scene(Case):
    """A cluster, its clients, and what was asked."""

    def __init__(self, of, references, seed):
        super().__init__()
        self.of, self.references = of, references
        self.rng = random.Random(seed)
        self.lock = threading.Lock()
        self.asks, self.threads = [], []
        self.over = threading.Event()
        self.engines, self.proxies, self.cleanups = [], [], []
        self.town = None
        self.failed_names = set()  # of instances that the fault hits
        self.in_flight = 0  # when it began
        self.model = 'tiny'

    # --- the cluster

    def native(self, prefill=2, decode=2, both=0, config=None, fetches=False,
               **worker):
        """Workers p0.., d0.., b0..; what is silent is soon lost. fetches:
        computing is believed to be slow, so that blocks are fetched."""
        self.town = self.cluster(prefill, decode, both, {
            **SOON, 'policy': 'plan' if fetches else 'random',
            **(config or {})}, cost={'prefill': (200, 3000, 0, 0)}
            if fetches else None, **worker)
        return self.town

    def fetched(self):
        return self.metric('fetched_blocks_total')

    def of_engines(self, *serves, config=None, entries=None, **fields):
        """Stand-ins e0.. of engines, each with what serves; None: usual."""
        self.model = 'm'
        for serve in serves:
            self.add_engine(serve)
        self.town = Cluster(self)
        self.town.config = {
            'listen': '127.0.0.1:0', 'engine_health_ms': 50,
            'engine_timeout_ms': 500, 'request_timeout_ms': 1000,
            'policy': 'round_robin',
            'engines': entries or [
                {'name': f'e{i}', 'url': e.url, 'model': 'm', **fields}
                for i, e in enumerate(self.engines)], **(config or {})}
        self.town.start_conductor()
        self.cleanup(self.stop_engines)
        return self.town

    def add_engine(self, serve=None, **more):
        engine = Engine(serve, **more)
        engine.models = None
        self.engines.append(engine)
        return engine

    def stop_engines(self):
        for engine in self.engines:
            if engine.open:
                engine.stop()

    def cleanup(self, call):
        self.cleanups.append(call)

    def metric(self, name, instance=None):
        metrics = self.town.api.metrics()
        if instance is None:
            return total(metrics, 'conductor_' + name)
        return metrics.get(
            f'conductor_instance_{name}{{instance="{instance}"}}', 0)

    def until(self, what, condition, limit_s=30):
        return wait_until(what, condition, limit_s)

    def until_gone(self, name):
        self.until(f'{name} is gone', lambda: any(
            f'worker {name} (' in line and
            (' is gone: ' in line or line.endswith(' left'))
            for line in self.town.conductor.log().splitlines()))

    def until_busy(self, name, gauge='prefills_running'):
        self.until(f'{name} has work',
                   lambda: self.metric(gauge, name) > 0)

    def until_states(self, **states):
        def have():
            got = {i['name']: i['state'] for i in self.town.api.listed()}
            return all(got.get(n) == s for n, s in states.items())
        self.until(f'the instances are {states}', have)

    def reload(self, expect=200, **config):
        self.write('conductor.json', json.dumps(
            {**self.town.config, **config}))
        self.assertEqual(self.town.api.post('/admin/reload').status, expect)

    # --- what is done to processes

    def signal(self, name, number):
        os.kill(self.process(name).child.pid, number)

    def process(self, name):
        return (self.town.conductor if name == 'conductor' else
                self.town.workers[name])

    def kill(self, name):
        process = self.process(name)
        process.kill()
        self.processes.remove(process)

    def restart_conductor(self):
        self.town.config.update(
            listen=f'127.0.0.1:{self.town.ports["http"]}',
            worker_listen=f'127.0.0.1:{self.town.ports["worker"]}')
        self.town.start_conductor()

    @contextlib.contextmanager
    def stopped(self, name):
        self.signal(name, signal.SIGSTOP)
        try:
            yield
        finally:
            if self.process(name).alive():
                self.signal(name, signal.SIGCONT)

    @contextlib.contextmanager
    def hits(self, *names):
        """The fault: what it hits, and what was in flight as it began."""
        with self.lock:
            self.failed_names |= set(names)
            self.in_flight = sum(a.end is None for a in self.asks)
        yield

    # --- the clients

    def load(self, n=6):
        """n clients ask until the end; the first answers have come."""
        for i in range(n):
            thread = threading.Thread(
                target=self.client, args=(random.Random(self.rng.random()),
                                          i % 2 == 1), daemon=True)
            self.threads.append(thread)
            thread.start()
        self.until('the clients are served',
                   lambda: self.count('right') >= n)

    def client(self, rng, stream):
        while not self.over.is_set():
            self.ask(rng, stream)

    def more(self, n=10):
        """Until n more answers have come."""
        have = self.count('right')
        self.until(f'{n} more answers', lambda: self.count('right') >=
                   have + n)

    def count(self, outcome):
        with self.lock:
            return sum(a.outcome == outcome for a in self.asks)

    def ask(self, rng, stream, question=None):
        ask = Ask(stream)
        with self.lock:
            self.asks.append(ask)
        try:
            ask.outcome = self.exchange(ask, question or rng.choice(
                self.references), stream)
        except TimeoutError:
            ask.outcome = 'hang'
        except (OSError, http.client.HTTPException, ValueError) as e:
            ask.outcome, ask.detail = 'cut', repr(e)
        ask.end = time.monotonic()
        if ask.outcome != 'right':
            time.sleep(0.05)  # a refusal is no reason to ask like mad
        return ask

    def exchange(self, ask, question, stream):
        prompt, answer = question
        want = 'abcd' if self.model == 'm' else answer
        connection, response = self.town.api.open('POST', '/v1/completions', {
            'model': self.model, 'prompt': prompt, 'stream': stream,
            'max_tokens': len(want)}, limit_s=SILENCE_LIMIT_S)
        ask.instances = (response.headers['x-conductor-prefill'],
                         response.headers['x-conductor-decode'])
        try:
            if response.status != 200:
                ask.detail = response.read().decode()
                if 'error' not in json.loads(ask.detail):
                    raise ValueError(f'no error: {ask.detail}')
                return f'refused {response.status}'
            if stream:
                return self.stream(ask, response, want)
            text = json.loads(response.read())['choices'][0]['text']
            ask.detail = f'{text!r}, not {want!r}'
            return 'right' if text == want else 'wrong'
        finally:
            connection.close()

    @staticmethod
    def stream(ask, response, want):
        text, last = '', b''
        try:
            for line in response:
                if not line.startswith(b'data: '):
                    continue
                last = line[6:].strip()
                if last == b'[DONE]' or b'"error"' in last:
                    break
                text += ''.join(c['text']
                                for c in json.loads(last)['choices'])
        except http.client.HTTPException as e:
            ask.detail = repr(e)
        if not want.startswith(text) or (last == b'[DONE]' and text != want):
            ask.detail = f'{text!r}, not {want!r}'
            return 'wrong'
        if last == b'[DONE]':
            return 'right'
        ask.detail = ask.detail or last.decode()
        return 'error event' if b'"error"' in last else 'cut'

    # --- the verdict

    def settle(self):
        """Ends the clients; then nothing is refused and nothing held."""
        self.over.set()
        for thread in self.threads:
            thread.join(2 * SILENCE_LIMIT_S * settings.scale)
            self.assertFalse(thread.is_alive(), 'a client hangs')
        asked = len(self.asks)
        for i in range(CALM):
            ask = self.ask(self.rng, i % 2 == 1)
            self.assertEqual(ask.outcome, 'right',
                             f'behind the fault: {ask.detail}')
        del self.asks[asked:]
        def idle():
            return not any(
                value for key, value in self.town.api.metrics().items()
                if key.startswith(('conductor_instance_kv_pinned_tokens',
                                   'conductor_requests_in_flight')))
        self.until('nothing is pinned and nothing in flight', idle)

    def judge(self):
        for ask in self.asks:
            at = (f'{ask.kind} at {ask.instances}: {ask.outcome}: '
                  f'{ask.detail[:300]}')
            if ask.outcome in ('wrong', 'hang', None):
                raise AssertionError(at)
            if ask.outcome == 'cut':
                hit = self.of.broken and self.failed_names & set(ask.instances)
                self.assertTrue(self.of.cut or hit, at)
            if ask.outcome == 'error event':
                self.assertTrue(self.failed_names & set(ask.instances) or
                                'conductor' in self.failed_names, at)
            if ask.outcome.startswith('refused'):
                self.assertTrue(self.of.refused or self.of.cut, at)

    def row(self):
        counts = {}
        for ask in self.asks:
            counts[ask.outcome] = counts.get(ask.outcome, 0) + 1
        refused = sum(n for what, n in counts.items()
                      if what.startswith('refused'))
        return {'part': self.of.part, 'what': self.of.what,
                'name': self.of.name, 'asked': len(self.asks),
                'in_flight': self.in_flight,
                'right': counts.get('right', 0),
                'anew': int(self.metric('retries_total')),
                'errors': counts.get('error event', 0), 'refused': refused,
                'cut': counts.get('cut', 0)}

    def play(self):
        """Returns (row or None, why it failed or None); neither: it was
        skipped, and why."""
        self.setUp()
        why = row = self.skipped = None
        try:
            self.of.run(self)
            self.settle()
            self.judge()
            row = self.row()
        except Skipped as e:
            self.skipped = str(e)
        except Exception as e:  # noqa: BLE001, told as the verdict
            why = f'{type(e).__name__}: {e}'
            if not isinstance(e, AssertionError):
                traceback.print_exc()
        self.over.set()
        self.failed = bool(why)
        for call in self.cleanups[::-1]:
            call()
        for process in self.processes:
            if process.alive():
                process.child.send_signal(signal.SIGCONT)
            if why:
                process.killed = True
        try:
            self.tearDown()
        except AssertionError as e:
            why = why or str(e)
        return row, why


def cold_references(seed, n=16):
    """Prompts and their answers, each computed in a cache of its own."""
    case, rng = Case(), random.Random(seed)
    case.setUp()
    oracle = case.cluster(prefill=0, decode=0, both=1)
    out, base = [], ''.join(chr(rng.randrange(32, 127)) for _ in range(900))
    for i in range(n):
        prompt = base[:rng.choice((0, 160, 500))] + ''.join(
            chr(rng.randrange(32, 127))
            for _ in range(rng.choice((20, 200, 600, 900))))
        reply = oracle.api.complete(prompt, OUTPUT_TOKENS, temperature=0,
                                    cache_salt=f'cold {i}')
        assert reply.status == 200, reply.body
        out.append((prompt, reply.body['choices'][0]['text']))
    case.tearDown()
    return out


def preload(scene):
    """Builds the library that fails calls of a program (preload.c)."""
    out = os.path.join(scene.folder, 'preload.so')
    subprocess.run([*os.environ.get('CC', 'cc').split(), '-shared', '-fPIC',
                    '-O1', '-o', out,
                    os.path.join(ROOT, 'tests', 'faults', 'preload.c'),
                    '-ldl'], check=True)
    return out
