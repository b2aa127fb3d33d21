"""One fault for each alert: a real conductor and a real Prometheus with the
shipped alerts, whose times are a sixtieth. Each fault is made, the alert is
waited for, `conductorctl diagnose` must name the cause first, and what
docs/operate/on-call.md says must end both."""
import contextlib
import json
import os
import re
import signal
import socket
import ssl
import subprocess
import threading
import time

from certificates import Certificates
from harness import (ROOT, Api, Case, Cluster, cost_model_json, free_ports,
                     program, read_file, settings, wait_until)
from redis_server import MISSING, REDIS, RedisServer
from stand_in import Engine, reply

FOLDER = os.path.join(ROOT, 'packaging', 'prometheus')
CTL = 'tools', 'conductorctl'
ALL = []  # the faults
# 0.1 s for any prompt: neither its length nor a busy machine shows in it.
COST = {'prefill': (100000, 1, 0, 0), 'decode': (2000, 10, 0)}
# What a busy machine alone may cause; judged only with --strict.
OF_TIME = {'ConductorLoopLate', 'ConductorTtftUp', 'ConductorForecastsOff'}
OF_TIME_CHECKS = {'loop_lag', 'ttft', 'ttft_error'}


def shortened(rules):
    """The alerts with a second for each minute."""
    def shorter(match):
        seconds = int(match[2]) * {'m': 1, 'h': 60}[match[3]]
        return f'{match[1]}{seconds}s'
    return re.sub(r'(\[|offset |for: )(\d+)([mh])\b', shorter, rules)


class Skipped(Exception):
    """What the fault needs is not here."""


class Fault:
    """alert: which fires. check: what diagnose names first. base_s: how long
    all is well before it. mended_by: the page's step."""

    def __init__(self, run, what, alert, check, base_s, mended_by):
        self.run, self.name = run, run.__name__
        self.what, self.alert, self.check = what, alert, check
        self.base_s, self.mended_by = base_s, mended_by


def fault(what, alert, check, mended_by, base_s=6):
    """The function is a generator: it starts all, yields, makes the fault,
    yields, and mends it."""
    def register(run):
        ALL.append(Fault(run, what, alert, check, base_s, mended_by))
        return run
    return register


class Watched(Case, Certificates):
    """A cluster, its clients, and the Prometheus that watches it."""

    def __init__(self, of, strict=True, say=lambda text: None):
        super().__init__()
        self.of, self.strict, self.say = of, strict, say
        self.prefix = ()  # before the conductor's command line
        self.over = threading.Event()
        self.cleanups, self.threads = [], []
        self.cluster_ = self.operators = self.prometheus = None

    # --- what the faults are made of

    def start(self, name, command, pass_fds=()):
        if name == 'conductor':
            command = [*self.prefix, *command]
        return super().start(name, command, pass_fds)

    def native(self, prefill=1, config=None, cost=None, **worker):
        """A conductor and timed workers, which are real ones whose engine
        waits as long as a cost model says."""
        self.cluster_ = self.cluster(prefill, 1, config=config,
                                     cost=cost or COST, engine='timed',
                                     **worker)
        return self.cluster_

    def restart(self, **config):
        """The conductor with another configuration, at the same ports."""
        town = self.cluster_
        town.conductor.child.terminate()
        town.conductor.wait()
        self.processes.remove(town.conductor)
        town.config.update(config, listen=f'127.0.0.1:{town.ports["http"]}')
        if 'worker' in town.ports:
            town.config['worker_listen'] = f'127.0.0.1:{town.ports["worker"]}'
        town.start_conductor()

    def reload(self, **config):
        self.cluster_.config.update(config)
        self.write('conductor.json', json.dumps(self.cluster_.config))
        self.cluster_.api.post('/admin/reload').ok()

    def kill(self, name):
        process = self.cluster_.workers[name]
        process.kill()
        self.processes.remove(process)

    def clients(self, n, ask, pause_s=0.0):
        """n clients that ask until the end; what they get is not judged."""
        def client(k):
            i = 0
            while not self.over.wait(pause_s):
                with contextlib.suppress(OSError, AssertionError):
                    ask(k, i)
                i += 1
        for k in range(n):
            thread = threading.Thread(target=client, args=(k,), daemon=True)
            self.threads.append(thread)
            thread.start()

    def complete(self, prompt):
        return self.cluster_.api.complete(prompt, 2)

    def cleanup(self, call):
        self.cleanups.append(call)

    # --- who watches

    def watch(self):
        """Starts Prometheus."""
        ports = self.cluster_.ports
        port = free_ports()
        self.operators = Api(ports.get('admin') or ports['http'])
        config = read_file(FOLDER, 'prometheus.yml')
        self.write('prometheus.yml', config.replace('15s', '500ms').replace(
            '127.0.0.1:8082', f'127.0.0.1:{self.operators.port}'))
        self.write('conductor.rules.yml', shortened(read_file(
            FOLDER, 'conductor.rules.yml')))
        self.start('prometheus', [
            'prometheus', '--config.file',
            os.path.join(self.folder, 'prometheus.yml'),
            '--storage.tsdb.path', os.path.join(self.folder, 'data'),
            '--query.lookback-delta=5s', '--log.level=warn',
            f'--web.listen-address=127.0.0.1:{port}'])
        self.prometheus = Api(port)
        wait_until('Prometheus has read the conductor', self.is_read)

    def is_read(self):
        with contextlib.suppress(OSError, KeyError, TypeError):
            targets = self.prometheus.get('/api/v1/targets').body['data']
            return any(t['health'] == 'up' for t in targets['activeTargets'])
        return False

    def firing(self):
        told = self.prometheus.get('/api/v1/alerts').ok().body['data']
        return {a['labels']['alertname'] for a in told['alerts']
                if a['state'] == 'firing'}

    def diagnose(self):
        """The checks that found something, the worst first."""
        done = subprocess.run(
            [program(*CTL), '-a', f'127.0.0.1:{self.operators.port}', '--json',
             '--over', '5' if self.strict or self.of.check in OF_TIME_CHECKS
             else '2', 'diagnose'], capture_output=True, text=True,
            check=False, timeout=60 * settings.scale)
        self.assertIn(done.returncode, (0, 1), done.stderr)
        wrong = json.loads(done.stdout)['wrong']
        self.assertEqual(done.returncode, 1 if wrong else 0)
        if not self.strict:
            wrong = [w for w in wrong if w['check'] == self.of.check or
                     w['check'] not in OF_TIME_CHECKS]
        return wrong

    def fired(self):
        """The alerts that count."""
        return {a for a in self.firing() if self.strict or
                a == self.of.alert or a not in OF_TIME}

    def first_line(self):
        """What diagnose prints first, as text."""
        done = subprocess.run(
            [program(*CTL), '-a', f'127.0.0.1:{self.operators.port}',
             '--over', '5', 'diagnose'], capture_output=True, text=True,
            check=False)
        return (done.stdout.splitlines() + ['', ''])[1].removeprefix('1. ')

    # --- the play

    def play(self):
        """Returns a row of the table; fails where a step is not as it should
        be. A Skipped says what is missing."""
        self.setUp()
        self.failed = True
        acts = self.of.run(self)
        try:
            next(acts)
            self.watch()
            row = self.judge(acts)
            self.failed = False
            return row
        except Skipped:
            self.failed = False
            raise
        finally:
            self.over.set()
            for thread in self.threads:
                thread.join(5)
            for call in self.cleanups[::-1]:
                call()
            for process in self.processes if self.failed else ():
                process.killed = True
            self.tearDown()

    def judge(self, acts):
        end = time.monotonic() + self.of.base_s
        while time.monotonic() < end:
            self.assertEqual(self.fired(), set(), 'before the fault')
            time.sleep(0.5)
        self.assertEqual(self.diagnose(), [], 'before the fault')
        self.say('all is well')
        next(acts)
        begin = time.monotonic()
        wait_until(f'{self.of.alert} fires', lambda: self.of.alert in
                   self.firing(), 120)
        took_s = time.monotonic() - begin
        self.assertEqual(self.fired(), {self.of.alert})
        self.say(f'{self.of.alert} fires after {took_s:.1f} s')

        def named():
            wrong = self.diagnose()
            return wrong and wrong[0]['check'] == self.of.check and wrong
        try:
            wait_until(f'diagnose names {self.of.check} first', named, 90)
        except AssertionError as error:
            raise AssertionError(f'{error}: {self.diagnose()}') from error
        diagnosed_s = time.monotonic() - begin
        self.assertEqual(self.fired(), {self.of.alert})
        line = self.first_line() if self.strict else ''
        self.say(line)
        with contextlib.suppress(StopIteration):
            next(acts)
        begin = time.monotonic()
        wait_until('no alert fires', lambda: not self.fired(), 120)
        wait_until('diagnose finds nothing', lambda: not self.diagnose(), 120)
        return {'fault': self.of, 'fired_s': took_s, 'line': line,
                'diagnosed_s': diagnosed_s,
                'mended_s': time.monotonic() - begin}


SHARED = 'What every prompt begins with. ' * 14  # 434 tokens


@fault('three of four workers are drained, and the load stays',
       'ConductorTtftUp', 'ttft', '`conductorctl undrain` of the three',
       base_s=80)
def ttft_up(w):
    town = w.native(prefill=4)
    w.clients(4, lambda k, i: w.complete(f'{SHARED}{k} {i} ' * 2))
    yield
    for i in 1, 2, 3:
        town.api.post(f'/admin/instances/p{i}/drain').ok()
    yield
    for i in 1, 2, 3:
        town.api.post(f'/admin/instances/p{i}/undrain').ok()


@fault('clients put a number in front of the shared part of their prompts',
       'ConductorHitsDown', 'hits', 'the number behind the shared part again',
       base_s=80)
def hits_down(w):
    w.native()
    first = []
    w.clients(1, lambda k, i: w.complete(
        f'{i} {SHARED}' if first else f'{SHARED} {i}'))
    yield
    first.append(True)
    yield
    first.clear()


@fault('`slo_ttft_ms` is set to what no instance can meet', 'ConductorOverloaded',
       'rejected', '`slo_ttft_ms` as before, reload')
def refused(w):
    w.native()
    w.clients(1, lambda k, i: w.complete(f'{SHARED}{i}'), 0.05)
    yield
    w.reload(slo_ttft_ms=5)
    yield
    w.reload(slo_ttft_ms=0)


class Publishing:
    """An engine that says the blocks of each prompt it gets. Needs pyzmq."""

    def __init__(self, port):
        try:
            from publisher import Publisher
        except Exception as error:  # noqa: BLE001, a SkipTest of unittest
            raise Skipped(str(error)) from error
        self.make = lambda: Publisher(port, port + 1, topic=b'')
        self.lock, self.known = threading.Lock(), set()
        self.publisher = self.make()
        self.http = Engine(self.serve)

    def serve(self, request, send):
        tokens = json.loads(request.body)['prompt']
        whole = len(tokens) // 16 * 16
        cached = 0
        with self.lock:
            parent = None
            for i in range(0, whole, 16):
                key = hash(tuple(tokens[:i + 16])) & (1 << 62) - 1
                if key in self.known:
                    cached += 16
                elif self.publisher:
                    self.known.add(key)
                    self.publisher.publish([{
                        'type': 'BlockStored', 'block_hashes': [key],
                        'parent_block_hash': parent, 'block_size': 16,
                        'token_ids': tokens[i:i + 16]}])
                parent = key
        send(reply(200, {
            'id': request.answer_id(), 'choices': [{'text': 'abcd'}],
            'usage': {'prompt_tokens': len(tokens), 'completion_tokens': 4,
                      'prompt_tokens_details': {'cached_tokens': cached}}}))

    def set(self, on):
        with self.lock:
            self.known.clear()  # a new process has nothing
            if not on:
                self.publisher.stop()
            self.publisher = self.make() if on else None


@fault("an engine's publisher of KV events ends", 'ConductorEventsSilent',
       'events', 'the publisher started again, which replays')
def engine_silent(w):
    port = free_ports(2)
    engine = Publishing(port)
    w.cleanup(engine.http.stop)
    w.cleanup(lambda: engine.publisher and engine.set(False))
    town = w.cluster_ = Cluster(w)
    town.config = {
        'listen': '127.0.0.1:0', 'engine_health_ms': 200, 'engines': [{
            'name': 'e0', 'url': engine.http.url, 'model': 'm', 'kind': 'vllm',
            'block_tokens': 16, 'kv_events': f'tcp://127.0.0.1:{port}',
            'kv_replay': f'tcp://127.0.0.1:{port + 1}'}]}
    town.start_conductor()
    wait_until('the engine is ready', lambda: town.api.instances()[0] == 1)
    engine.publisher.wait_subscribed()
    w.clients(2, lambda k, i: town.api.post('/v1/completions', {
        'model': 'm', 'max_tokens': 2, 'prompt': [k, i, i >> 8] * 16}), 0.1)
    yield
    engine.set(False)
    yield
    engine.set(True)


@fault('a worker gets a card three times as fast as its cost model',
       'ConductorPredictionsOff', 'correction',
       'its own cost model in `worker_costs`, restart')
def predictions_off(w):
    town = w.native(config={'correction_ms': 500})
    w.clients(1, lambda k, i: w.complete(f'{SHARED}{i}'))
    yield
    fast = w.write('fast.json', cost_model_json(
        prefill=tuple(c / 3 for c in COST['prefill']), decode=COST['decode']))
    town.start_worker('p1', 'prefill', engine='timed', cost_model=fast)
    town.wait_ready(2, 1)
    w.kill('p0')
    yield
    w.restart(worker_costs=[{'workers': 'p1', 'cost_model': fast}])


@fault('workers hold more blocks than `index_mib` has room for',
       'ConductorIndexFull', 'index', '`index_mib` raised, restart')
def index_full(w):
    w.native(config={'index_mib': 1}, kv_blocks=80000)
    long = []
    w.clients(1, lambda k, i: w.complete(
        f'{i} ' + 'x' * (12000 if long else 300)))
    yield
    long.append(True)
    yield
    long.clear()
    w.restart(index_mib=96)


@fault('a worker is killed and started again, three times',
       'ConductorInstanceFlaps', 'losses', '`conductorctl drain` of the worker')
def worker_flaps(w):
    town = w.native(prefill=2)
    w.clients(1, lambda k, i: w.complete(f'{SHARED}{i}'), 0.1)
    yield
    for _ in range(3):
        w.kill('p1')
        wait_until('p1 is gone', lambda: town.api.instances()[0] == 1)
        town.start_worker('p1', 'prefill', engine='timed')
        town.wait_ready(2, 1)
    yield
    town.api.post('/admin/instances/p1/drain').ok()


@fault('the Redis of `state` is killed', 'ConductorRedisAway', 'state_up',
       'it is started again')
def redis_away(w):
    if not REDIS:
        raise Skipped(MISSING)
    redis = RedisServer(w)
    w.native(config={'state': redis.url()})
    w.clients(1, lambda k, i: w.complete(f'{SHARED}{i}'), 0.1)
    yield
    redis.kill()
    w.processes.remove(redis.process)
    yield
    redis.start()


@fault('clients upload 54 long prompts and do not end them, where 1 GiB is '
       'the limit', 'ConductorMemoryUp', 'memory',
       '`max_body_total_bytes` lowered, restart')
def memory_up(w):
    w.prefix = ('env', 'MALLOC_ARENA_MAX=1', 'prlimit', f'--as={1 << 30}')
    town = w.native(config={'index_mib': 1})
    w.clients(1, lambda k, i: w.complete(f'{SHARED}{i}'), 0.1)
    yield
    size = (16 << 20) - 1024
    uploads = []
    for _ in range(54):
        s = socket.create_connection(('127.0.0.1', town.ports['http']))
        s.sendall(b'POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: '
                  b'application/json\r\nContent-Length: %d\r\n\r\n' % size)
        s.sendall(b' ' * (size - 1))
        uploads.append(s)
        w.cleanup(s.close)
    yield
    w.restart(max_body_total_bytes=64 << 20)


@fault('the conductor gets 50 ms of CPU in each 130 ms, as by a quota',
       'ConductorLoopLate', 'loop_lag', 'the quota is taken away')
def loop_lag(w):
    town = w.native()
    yield
    free = threading.Event()

    def throttle():
        while not (free.is_set() or w.over.is_set()):
            os.kill(town.conductor.child.pid, signal.SIGSTOP)
            time.sleep(0.08)
            os.kill(town.conductor.child.pid, signal.SIGCONT)
            time.sleep(0.05)  # no multiple of it is a timer's period
    thread = threading.Thread(target=throttle, daemon=True)
    thread.start()
    w.threads.append(thread)
    yield
    free.set()


@fault('a certificate with 5 days left is loaded', 'ConductorCertificateExpires',
       'certificate', 'a new one, reload')
def certificate_ends(w):
    tls = ssl.create_default_context(cafile=w.authority())

    def renew(days):
        w.certificate('127.0.0.1', days=days)
        return {'tls_certificate': os.path.join(w.folder, '127.0.0.1.pem'),
                'tls_key': os.path.join(w.folder, '127.0.0.1.key')}
    town = w.cluster_ = Cluster(w, {'admin_listen': '127.0.0.1:0',
                                    **renew('60')}, COST)
    town.tls = tls
    town.start_conductor()
    for role in 'prefill', 'decode':
        town.start_worker(role[0], role, engine='timed')
    town.wait_ready(1, 1)
    yield
    renew('5')
    w.operators.post('/admin/reload').ok()
    yield
    renew('60')
    w.operators.post('/admin/reload').ok()


@fault('what reads the log stops reading', 'ConductorLogLost', 'log_lost',
       'it reads again')
def log_lost(w):
    pipe = os.path.join(w.folder, 'log.pipe')
    os.mkfifo(pipe)
    reader = w.start('read', ['cat', pipe])
    reader.killed = True  # it ends after the conductor
    w.prefix = ('sh', '-c', f'exec "$@" 2>{pipe}', 'sh')
    w.native(config={'log_level': 'debug'})
    w.clients(4, lambda k, i: w.complete('x'), 0.02)
    yield
    os.kill(reader.child.pid, signal.SIGSTOP)
    yield
    os.kill(reader.child.pid, signal.SIGCONT)
