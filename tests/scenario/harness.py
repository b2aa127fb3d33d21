"""Starts real programs on loopback for one test case and ends them with it.

Each case has its own folder and the ports that the system gives it. Time
limits bound a hang; no case judges how long anything took.
"""
import collections
import csv
import ctypes
import functools
import http.client
import json
import os
import random
import re
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import threading
import time
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(
    os.path.abspath(__file__))))
BLOCK_TOKENS = 16
# Of a worker, unless told: 16,384 tokens. It touches all of it, so most of what
# its start takes is this.
KV_MIB = 32
SANITIZER = re.compile(r'Sanitizer|runtime error:')


class settings:
    """What the runner was told."""
    build = os.path.join(ROOT, 'build')
    scale = 1.0  # of every time limit
    keep = False
    # Below those that connections get for their own ends.
    ports = range(10000, 30000)
    port = None  # how far this process is among them


def program(*path):
    return os.path.join(settings.build, *path)


CONDUCTOR = 'conductor', 'conductor'
WORKER = 'workers', 'conductor-worker'
REPLAY = 'tools', 'conductor-replay'
FIT = 'tools', 'conductor-fit'


@functools.cache
def sanitized():
    """Whether the programs were built with a sanitizer of memory or threads."""
    with open(program(*CONDUCTOR), 'rb') as f:
        text = f.read()
    return b'__asan_init' in text or b'__tsan_init' in text


def reduced(n, sanitized_n):
    """How long or how many: less in sanitized builds, which take ten times as
    long, where it runs the same code."""
    return sanitized_n if sanitized() else n


def read_file(*path):
    with open(os.path.join(*path), encoding='utf-8') as f:
        return f.read()


def replay(*args, status=0, says='', timeout=120, **how):
    """Runs conductor-replay to its end. It ends with this status (None: any)
    and says these words among its errors."""
    done = subprocess.run([program(*REPLAY), *map(str, args)],
                          capture_output=True, text=True,
                          timeout=timeout * settings.scale, **how)
    if status not in (None, done.returncode) or says not in done.stderr:
        raise AssertionError(f'status {done.returncode}: {done.stderr}')
    return done


def free_ports(n=1):
    """n ports in a row that nobody uses, for programs that cannot tell which
    one the system gave them; the first. They stay free for a server that
    restarts. Each process goes once through a part of its own before it names
    one again (`run`): no other case is told the same."""
    if settings.port is None:
        settings.port = random.randrange(len(settings.ports))
    while True:
        at = settings.port % (len(settings.ports) - n + 1)
        settings.port = at + n
        try:
            for port in settings.ports[at:at + n]:
                with socket.socket() as other:
                    other.bind(('127.0.0.1', port))
            return settings.ports[at]
        except OSError:
            continue


def wait_until(what, condition, limit_s=30, process=None):
    """Waits for condition() to be true and returns its value. In vain as soon
    as `process` has ended, or a program of the case as none should."""
    end = time.monotonic() + limit_s * settings.scale
    while True:
        over = process is not None and not process.alive()
        mine = Case.running.processes if Case.running else []
        lost = [process] if over else [p for p in mine if p.lost()]
        value = condition()
        if value:
            return value
        if lost:
            raise AssertionError(
                f'waited in vain until {what}: {lost[0].name} ended with '
                f'status {lost[0].child.returncode}\n{lost[0].log()[-2000:]}')
        if time.monotonic() > end:
            raise AssertionError(f'waited in vain until {what}')
        time.sleep(0.02)


def mostly_waits(case):
    """Decorates a case that takes long without work: it is begun early, so
    that others run beside it."""
    case.mostly_waits = True
    return case


def computes_long(case):
    """Decorates a case that computes for long and judges its figures alone:
    it is left out of sanitized builds, where shorter ones run the same code."""
    @functools.wraps(case)
    def wrapper(self):
        if sanitized():
            self.skipTest('computes long; others run this code sanitized')
        case(self)
    return wrapper


def waits_long(test):
    method = getattr(test, test.id().rsplit('.', 1)[-1], None)
    return getattr(method, 'mostly_waits', False)


def die_with_parent():
    """In the child: a runner that is killed leaves no daemon behind."""
    pr_set_pdeathsig = 1
    ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)


class Process:
    """One program with its log."""

    def __init__(self, folder, name, command, env=None, pass_fds=()):
        self.name = name
        self.log_path = os.path.join(folder, name + '.log')
        with open(self.log_path, 'ab') as log:
            self.child = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                cwd=folder, env=env, preexec_fn=die_with_parent,
                pass_fds=pass_fds)
        self.killed = False

    def log(self):
        with open(self.log_path, encoding='utf-8', errors='replace') as f:
            return f.read()

    def alive(self):
        return self.child.poll() is None

    def lost(self):
        """Whether it ended, and as none should; complaint() says how."""
        return not self.killed and self.child.poll() not in (None, 0)

    def rss_mib(self):
        with open(f'/proc/{self.child.pid}/statm', encoding='ascii') as f:
            return int(f.read().split()[1]) * os.sysconf('SC_PAGE_SIZE') >> 20

    def kill(self):
        """As a crash would: no farewell."""
        self.killed = True
        self.child.kill()
        self.child.wait()

    def wait(self, limit_s=30):
        """Its exit status; -N if signal N ended it."""
        try:
            return self.child.wait(limit_s * settings.scale)
        except subprocess.TimeoutExpired:
            raise AssertionError(f'{self.name} does not end') from None

    def complaint(self):
        """Ends it; what a healthy program would not have done, or None."""
        if self.alive():
            self.child.terminate()
        try:
            status = self.wait(15)
        except AssertionError as e:
            self.kill()
            return str(e)
        found = SANITIZER.search(self.log())
        if found:
            return f'{self.name}: {found.group()} in its log'
        if self.lost():
            return f'{self.name}: exit status {status}'
        return None


def cost_model_json(prefill=(200, 50, 0, 0), decode=(200, 10, 0)):
    """A cost model as text, from its coefficients in microseconds: prefill of
    1, u, u^2, u p and decode of 1, batch, kv_tokens."""
    def polynomial(basis, coefficients):
        return {'basis': basis, 'coefficients_us': coefficients, 'r2': 1,
                'median_rel_error': 0, 'p95_rel_error': 0}
    return json.dumps({
        'format': 'conductor-cost-model', 'version': 1, 'engine': 'cpu',
        'model': 'tiny', 'machine': 'none', 'date': '2026-01-01',
        'units': {'time': 'us', 'length': 'tokens'},
        'prefill': polynomial(['1', 'uncached_tokens', 'uncached_tokens^2',
                               'uncached_tokens*cached_tokens'], prefill),
        'decode': polynomial(['1', 'batch', 'kv_tokens'], decode),
        'valid_range': {'uncached_min_tokens': 1,
                        'uncached_max_tokens': 32768,
                        'cached_max_tokens': 32768, 'batch_max': 64,
                        'kv_tokens_max': 1000000}})


class Reply(collections.namedtuple('Reply', 'status headers body')):
    def ok(self):
        """Itself, which must be a 200."""
        if self.status != 200:
            raise AssertionError(f'{self.status}: {self.body}')
        return self


class Api:
    """The daemon's HTTP door."""

    def __init__(self, port, tls=None):
        self.port = port
        self.tls = tls  # an ssl.SSLContext, or None: http

    def open(self, method, path, body=None, headers=None, limit_s=60):
        """Sends a request; returns (connection, response) to read from."""
        if body is not None and not isinstance(body, (bytes, str)):
            body = json.dumps(body)
        limit_s *= settings.scale
        connection = http.client.HTTPSConnection(
            '127.0.0.1', self.port, timeout=limit_s, context=self.tls
        ) if self.tls else http.client.HTTPConnection(
            '127.0.0.1', self.port, timeout=limit_s)
        connection.request(method, path, body, {
            **({'Content-Type': 'application/json'} if body else {}),
            **(headers or {})})
        return connection, connection.getresponse()

    def request(self, method, path, body=None, headers=None):
        """A whole exchange; a JSON body comes back decoded."""
        connection, response = self.open(method, path, body, headers)
        data = response.read()
        connection.close()
        if response.headers.get_content_type() == 'application/json':
            data = json.loads(data)
        return Reply(response.status, response.headers, data)

    def get(self, path, headers=None):
        return self.request('GET', path, None, headers)

    def post(self, path, body=None, headers=None):
        return self.request('POST', path, body, headers)

    def complete(self, prompt, max_tokens=4, headers=None, **more):
        return self.post('/v1/completions', {
            'model': 'tiny', 'prompt': prompt, 'max_tokens': max_tokens,
            **more}, headers)

    def stream(self, path, body, headers=None):
        """Generates the data of each server-sent event, decoded; the last one
        is the text '[DONE]' if the daemon sent it."""
        connection, response = self.open(
            'POST', path, {'model': 'tiny', 'stream': True, **body}, headers)
        try:
            if response.status != 200:
                raise AssertionError(f'{response.status}: {response.read()}')
            for line in response:
                if line.startswith(b'data: '):
                    data = line[6:].strip().decode()
                    yield data if data == '[DONE]' else json.loads(data)
        finally:
            connection.close()

    def hold(self, prompt, headers=None, **more):
        """A request that lasts until it is ended: see Held."""
        return Held(self, '/v1/completions', {'prompt': prompt, **more},
                    headers)

    def health(self):
        return self.get('/health').body

    def instances(self):
        """(prefill, decode) instances that are ready."""
        have = self.health()['instances']
        return have['prefill'], have['decode']

    def explain(self, asked):
        """What was decided of a request: its id, or its Reply."""
        if isinstance(asked, Reply):
            asked = asked.headers['x-conductor-request-id']
        return self.get('/admin/explain/' + asked).body

    def listed(self):
        """The entries of /admin/instances."""
        return self.get('/admin/instances').body['instances']

    def metric(self, name, **labels):
        """conductor_NAME with these labels."""
        which = ','.join(f'{key}="{value}"' for key, value in labels.items())
        return self.metrics()[
            f'conductor_{name}{{{which}}}' if labels else f'conductor_{name}']

    def metrics(self):
        """{'name{label="value"}': number}; fails where a line is none of
        Prometheus's text format."""
        text = self.get('/metrics').body.decode()
        return parse_metrics(text)


class Held:
    """A request that lasts until the test ends it, for what must be seen while
    it runs: whoever is to see it may be late, as on a busy machine. It is a
    stream whose first event has come, and that has more tokens than any wait
    takes, where a token takes its time."""
    TOKENS = 5000  # three fit into the KV of a worker

    def __init__(self, api, path, body, headers):
        self.over = self.error = None
        self.events = []
        self.connection, self.response = api.open('POST', path, {
            'model': 'tiny', 'stream': True, 'max_tokens': self.TOKENS,
            **body}, headers)
        if self.response.status != 200:
            raise AssertionError(
                f'{self.response.status}: {self.response.read()}')
        self.socket = socket.socket(fileno=os.dup(self.response.fileno()))
        self.thread = threading.Thread(target=self.read, daemon=True)
        self.thread.start()
        self.goes_on(1)

    def read(self):
        try:
            for line in self.response:
                if line.startswith(b'data: '):
                    data = line[6:].strip().decode()
                    if data == '[DONE]':
                        self.over = 'its answer has ended'
                        break
                    event = json.loads(data)
                    if 'error' in event:
                        self.error = event['error']
                    self.events.append(event)
        except (OSError, http.client.HTTPException) as e:
            self.over = self.over or repr(e)
        self.over = self.over or 'its connection was closed'

    def text(self):
        return ''.join(e['choices'][0]['text'] for e in list(self.events)
                       if e.get('choices'))

    def goes_on(self, n=4):
        """Waits for n more events."""
        want = len(self.events) + n
        wait_until(f'a request that is held gets {n} more events', lambda:
                   self.over or self.error or len(self.events) >= want)
        self.well()

    def well(self):
        if self.over or self.error:
            raise AssertionError('a request was to be held, but '
                                 f'{self.error or self.over}')

    def lost(self):
        """Waits for its connection to end, as when the server has died."""
        wait_until('its connection ends', lambda: self.over)
        if self.error or 'answer' in self.over:
            raise AssertionError(f'not lost: {self.error or self.over}')

    def fails(self):
        """Waits for its end by an error event, and returns that error."""
        wait_until('it ends', lambda: self.over)
        if not self.error:
            raise AssertionError(f'no error: {self.over}')
        return self.error

    def end(self):
        """As a client that leaves. Until now all must have gone well."""
        self.well()
        self.leave()

    def leave(self):
        self.over = 'the test has ended it'
        try:
            self.socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # the server was first
        self.thread.join()
        self.socket.close()
        self.connection.close()


SAMPLE = re.compile(
    r'([a-zA-Z_:][a-zA-Z0-9_:]*)'
    r'(\{(?:[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\n]|\\["\\n])*",?)*\})?'
    r' ([-+]?(?:[0-9.]+(?:[eE][-+]?[0-9]+)?|Inf)|NaN)(?: [0-9]+)?')


def parse_metrics(text):
    values, kinds = {}, {}
    for line in text.splitlines():
        if line.startswith('# TYPE '):
            _, _, name, kind = line.split()
            if name in kinds:
                raise AssertionError(f'a second TYPE of {name}')
            kinds[name] = kind
        elif line and not line.startswith('#'):
            found = SAMPLE.fullmatch(line)
            if not found:
                raise AssertionError(f'not a sample: {line!r}')
            name, labels, value = found.groups()
            family = re.sub(r'_(bucket|sum|count)$', '', name)
            if name not in kinds and family not in kinds:
                raise AssertionError(f'no TYPE of {name}')
            key = name + (labels or '')
            if key in values:
                raise AssertionError(f'{key} comes twice')
            values[key] = float(value)
    return values


def total(metrics, name):
    """The sum of a metric over its labels."""
    return sum(value for key, value in metrics.items()
               if key == name or key.startswith(name + '{'))


def cached_tokens(metrics, source):
    """Prompt tokens that were not computed: source 'local' or 'fetched'."""
    return metrics[f'conductor_cached_tokens_total{{source="{source}"}}']


class Cluster:
    """One conductor and its workers."""

    def __init__(self, case, config=None, cost=None, name='conductor'):
        self.case = case
        self.name = name  # of the conductor's process and files
        self.cost_model = case.write('cost.json', cost_model_json(
            **(cost or {})))
        self.config = {'listen': '127.0.0.1:0', 'worker_listen': '127.0.0.1:0',
                       'model': 'tiny', 'block_tokens': BLOCK_TOKENS,
                       # Who is silent as the machine is busy is not gone.
                       'worker_timeout_ms': 60000,
                       'cost_model': self.cost_model, **(config or {})}
        self.workers = {}
        self.ports = {}
        self.tls = None  # of its clients: an ssl.SSLContext
        self.conductor = None

    def start_conductor(self):
        folder = self.case.folder
        ports = os.path.join(folder, 'ports.json' if self.name == 'conductor'
                             else f'{self.name}-ports.json')
        config = os.path.join(folder, f'{self.name}.json')
        with open(config, 'w', encoding='utf-8') as f:
            json.dump(self.config, f)
        if os.path.exists(ports):
            os.remove(ports)
        self.conductor = self.case.start(self.name, [
            program(*CONDUCTOR), '--config', config, '--ports-file', ports])

        def bound():
            try:
                with open(ports, encoding='utf-8') as f:
                    return json.load(f)
            except (OSError, ValueError):
                return None
        self.ports = wait_until('the conductor names its ports', bound,
                                process=self.conductor)

    def processes(self):
        return [*self.workers.values(), self.conductor]

    @property
    def api(self):
        return Api(self.ports['http'], self.tls)

    def start_worker(self, name, role, path=WORKER, **options):
        """Options of conductor-worker, with _ for -."""
        command = [program(*path), '--name', name, '--role', role,
                   '--conductor', f'127.0.0.1:{self.ports["worker"]}']
        if options.get('engine') == 'timed':
            options.setdefault('cost_model', self.cost_model)
        if not {'kv_mib', 'kv_blocks'} & set(options):
            options['kv_mib'] = KV_MIB
        for option, value in {'engine': 'cpu', 'model': 'tiny',
                              'block_tokens': BLOCK_TOKENS,
                              **options}.items():
            command += ['--' + option.replace('_', '-'), str(value)]
        self.workers[name] = self.case.start(name, command)
        return self.workers[name]

    def wait_ready(self, prefill, decode):
        """Until so many instances take prefill and decode work; one of role
        both counts in both."""
        wait_until(f'{prefill} prefill and {decode} decode instances are '
                   'ready', lambda: self.api.instances() == (prefill, decode))


class FolderCase(unittest.TestCase):
    """A case with a folder of its own, which goes when it ends."""

    def setUp(self):
        super().setUp()
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def path(self, *names):
        return os.path.join(self.folder, *names)

    def write(self, name, text):
        with open(self.path(name), 'w', encoding='utf-8') as f:
            f.write(text)
        return self.path(name)

    def read(self, *names):
        return read_file(self.folder, *names)

    def read_json(self, *names):
        return json.loads(self.read(*names))

    def read_csv(self, *names):
        return list(csv.DictReader(self.read(*names).splitlines()))


class Case(unittest.TestCase):
    """A test with its folder and its processes."""
    running = None  # of this process

    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix='conductor-')
        self.processes = []
        Case.running = self
        self.failed = False  # set by the runner

    def start(self, name, command, pass_fds=()):
        process = Process(self.folder, name, command, pass_fds=pass_fds)
        self.processes.append(process)
        return process

    def stop(self, process):
        """Ends a process before the case does."""
        self.processes.remove(process)
        self.assertIsNone(process.complaint())

    def check_config(self, config, status, *words):
        """Returns what `conductor -t` says of it: it ends with this status,
        and says these words."""
        path = self.write('c.json', json.dumps(config))
        ended, _, errors = self.run_program(program(*CONDUCTOR), '-t', '-c',
                                            path)
        self.assertEqual(ended, status, errors)
        for word in words:
            self.assertIn(word, errors)
        return errors

    def run_program(self, *command, limit_s=60):
        """Runs a program to its end; returns (status, output, errors)."""
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True,
            text=True, errors='replace', cwd=self.folder, check=False,
            timeout=limit_s * settings.scale)
        self.assertIsNone(SANITIZER.search(done.stderr), done.stderr)
        return done.returncode, done.stdout, done.stderr

    def cluster(self, prefill=1, decode=1, both=0, config=None, cost=None,
                **worker):
        """Conductor and workers p0.., d0.., b0.. that are ready. config and
        cost go to the conductor (cost also to timed engines), the rest to
        every worker."""
        cluster = Cluster(self, config, cost)
        cluster.start_conductor()
        for role, count in (('prefill', prefill), ('decode', decode),
                            ('both', both)):
            for i in range(count):
                cluster.start_worker(f'{role[0]}{i}', role, **worker)
        cluster.wait_ready(prefill + both, decode + both)
        return cluster

    def write(self, name, text):
        path = os.path.join(self.folder, name)
        with open(path, 'w', encoding='utf-8') as f:
            f.write(text)
        return path

    def tearDown(self):
        Case.running = None
        # Workers first: a worker that loses its conductor may only wait.
        complaints = [c for c in (p.complaint() for p in self.processes[::-1])
                      if c]
        if complaints or self.failed:
            for process in self.processes:
                tail = process.log().splitlines()[-25:]
                print(f'--- {process.name}.log', *tail, sep='\n      ')
            print(f'--- kept {self.folder}', flush=True)
        elif settings.keep:
            print(f'      kept {self.folder}')
        else:
            shutil.rmtree(self.folder)
        self.assertEqual(complaints, [])

    def assertError(self, reply, status, *words):
        """An error in OpenAI's shape whose message holds these words."""
        self.assertEqual(reply.status, status, reply.body)
        self.assertIsInstance(reply.body, dict)
        error = reply.body['error']
        self.assertIsInstance(error['message'], str)
        self.assertIsInstance(error['type'], str)
        for word in words:
            self.assertIn(word, error['message'])


class Peer:
    """Speaks the framed protocol of PROTOCOL.md, also wrongly."""
    HELLO, WELCOME, ERROR, STATUS = 1, 2, 3, 4
    MAGIC, VERSION = 0x52444e43, 3
    KIND_WORKER, KIND_WORKER_PEER = 2, 3

    def __init__(self, port):
        self.socket = socket.create_connection(
            ('127.0.0.1', port), timeout=30 * settings.scale)

    def close(self):
        self.socket.close()

    def send(self, data):
        self.socket.sendall(data)

    @staticmethod
    def frame(kind, payload=b'', request_id=0, length=None, reserved=0):
        if length is None:
            length = len(payload)
        return struct.pack('<IHHQ', length, kind, reserved,
                           request_id) + payload

    @staticmethod
    def text(text):
        data = text.encode()
        return struct.pack('<H', len(data)) + data

    @classmethod
    def hello(cls, version=VERSION, magic=MAGIC, kind=KIND_WORKER, role=1,
              name='stranger', model='tiny', fingerprint=1,
              block_tokens=BLOCK_TOKENS, window_tokens=32768, vocab=512,
              capacity_blocks=1000, kv_bytes_per_token=1024,
              host='127.0.0.1', capabilities=0, newest=None, more=b''):
        payload = struct.pack('<IHHBBQ', magic, version, newest or version,
                              kind, role, capabilities)
        payload += cls.text(name) + cls.text('cpu') + cls.text(model)
        payload += struct.pack('<QIIIQQQII', fingerprint, block_tokens,
                               window_tokens, vocab, capacity_blocks,
                               kv_bytes_per_token, 0, 8, 2)
        payload += cls.text(host) + struct.pack('<H', 1) + bytes(32)
        payload += more
        return cls.frame(cls.HELLO, payload)

    def read(self, n):
        """n bytes, or fewer at the end of the connection."""
        data = b''
        while len(data) < n:
            try:
                more = self.socket.recv(n - len(data))
            except ConnectionResetError:
                more = b''
            if not more:
                break
            data += more
        return data

    def receive(self):
        """(type, payload) of the next frame, or None at the end."""
        header = self.read(16)
        if len(header) < 16:
            return None
        length, kind, _, _ = struct.unpack('<IHHQ', header)
        return kind, self.read(length)

    def receive_error(self):
        """The text of the ERROR that must come next, with the end of the
        connection behind it."""
        got = self.receive()
        if got is None or got[0] != self.ERROR:
            raise AssertionError(f'not an ERROR: {got}')
        size = struct.unpack_from('<H', got[1], 2)[0]
        if self.receive() is not None:
            raise AssertionError('the connection goes on behind an ERROR')
        return got[1][4:4 + size].decode()
