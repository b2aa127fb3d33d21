"""What a comparison starts on 127.0.0.1: mockers, and routers before them."""
import json
import os
import subprocess
import sys
import time
import urllib.request

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(HERE)))
ENGINES = 4
BLOCKS = 2048
PLANES = ['--discovery-backend', 'file', '--request-plane', 'tcp',
          '--event-plane', 'zmq']
FIRST_PORT = 18100  # of a network that has nobody else

# What the mocker takes for a pass by its own polynomials, of prompts that are
# `work.SHORTER` times as long; then a tenth of that, by --speedup-ratio.
PROFILE = """
import sys, numpy
tokens = numpy.arange(0, 257)
long = 32.0 * tokens
kv = numpy.linspace(0, {pool}, 65)
use = kv / {pool}
step = numpy.maximum(1, 5.74 + 54.01 * use - 25.74 * use ** 2)
numpy.savez(sys.argv[1], prefill_isl=tokens.astype(float),
            prefill_ttft_ms=16.50 + 0.01518 * long + 4.21e-7 * long ** 2,
            decode_active_kv_tokens=kv,
            decode_context_length=numpy.array([1.0, {pool}]),
            decode_itl=numpy.stack([step, step], axis=1))
""".format(pool=float(BLOCKS * 16))
SPEEDUP = 10
BATCH_TOKENS = 256
WORDS = 2048


def cpu_s(pids):
    total = 0
    for pid in pids:
        with open(f'/proc/{pid}/stat', encoding='ascii') as f:
            fields = f.read().rsplit(')', 1)[1].split()
        total += int(fields[11]) + int(fields[12])
    return total / os.sysconf('SC_CLK_TCK')


def rss_mb(pids):
    total = 0
    for pid in pids:
        with open(f'/proc/{pid}/statm', encoding='ascii') as f:
            total += int(f.read().split()[1])
    return total * os.sysconf('SC_PAGE_SIZE') / 1e6


def children(pid):
    """A process and all that it started."""
    found = [pid]
    for task in os.listdir(f'/proc/{pid}/task'):
        with open(f'/proc/{pid}/task/{task}/children',
                  encoding='ascii') as f:
            for child in f.read().split():
                found += children(int(child))
    return found


def widen(model):
    """Gives the tiny model's vocabulary words for the token ids that the
    mocker answers with: what decodes to nothing is not streamed."""
    path = os.path.join(model, 'tokenizer.json')
    with open(path, encoding='utf-8') as f:
        tokenizer = json.load(f)
    vocabulary = tokenizer['model']['vocab']
    for i in range(len(vocabulary), WORDS):
        vocabulary[f'\u0120{i}'] = i  # a blank and the number
    with open(path, 'w', encoding='utf-8') as f:
        json.dump(tokenizer, f)
    path = os.path.join(model, 'config.json')
    with open(path, encoding='utf-8') as f:
        config = json.load(f)
    config['vocab_size'] = WORDS
    with open(path, 'w', encoding='utf-8') as f:
        json.dump(config, f)


class Site:
    """Everything that runs, and where."""

    def __init__(self, folder, venv, build, nagle):
        self.folder, self.build = folder, build
        self.preload = {} if nagle else {'LD_PRELOAD': self.compile()}
        self.bin = os.path.join(venv, 'bin')
        self.python = os.path.join(self.bin, 'python')
        self.started = []
        self.model = os.path.join(folder, 'model')
        subprocess.run([sys.executable, os.path.join(
            ROOT, 'tests', 'engines', 'model.py'), self.model], check=True)
        widen(self.model)
        self.profile = os.path.join(folder, 'profile.npz')
        subprocess.run([self.python, '-c', PROFILE, self.profile], check=True)

    def compile(self):
        library = os.path.join(self.folder, 'nodelay.so')
        subprocess.run(['cc', '-O2', '-shared', '-fPIC', '-o', library,
                        os.path.join(HERE, 'nodelay.c')], check=True)
        return library

    def start(self, name, *command, **env):
        with open(os.path.join(self.folder, f'{name}.log'), 'ab') as log:
            p = subprocess.Popen(list(map(str, command)), stdout=log,
                                 stderr=log, stdin=subprocess.DEVNULL,
                                 cwd=self.folder,
                                 env={**os.environ, **env})
        self.started.append(p)
        return p

    def stop(self, process):
        self.started.remove(process)
        process.terminate()
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def stop_all(self):
        for p in list(self.started):
            p.kill()
            p.wait()
        self.started.clear()

    def path(self, name):
        return os.path.join(self.folder, name)


def wait_answers(port, path='/v1/models', limit_s=60, want=b'tiny'):
    end = time.monotonic() + limit_s
    while time.monotonic() < end:
        try:
            with urllib.request.urlopen(
                    f'http://127.0.0.1:{port}{path}', timeout=2) as reply:
                if want in reply.read():
                    return
        except OSError:
            pass
        time.sleep(0.05)
    raise TimeoutError(f'port {port} does not answer')


def warm(port, n=10):
    """Asks until n requests are answered: the first ones are slow, or 503."""
    body = json.dumps({'model': 'tiny', 'prompt': [65] * 40, 'max_tokens': 2})
    end = time.monotonic() + 60
    while n and time.monotonic() < end:
        try:
            urllib.request.urlopen(urllib.request.Request(
                f'http://127.0.0.1:{port}/v1/completions', body.encode(),
                {'Content-Type': 'application/json'}), timeout=10).read()
            n -= 1
        except OSError:
            time.sleep(0.1)


class Engine:
    """One mocker; `kv` is the folder by which frontends find it."""

    def __init__(self, site, i, name, kv):
        self.events_port = FIRST_PORT + 100 + i
        self.replay_port = FIRST_PORT + 120 + i
        self.port = FIRST_PORT + 140 + i
        self.relayed_port = FIRST_PORT + 160 + i
        self.url = f'http://127.0.0.1:{self.port}'
        os.makedirs(kv, exist_ok=True)
        self.env = {'HF_HUB_OFFLINE': '1', 'DYN_LOG': 'warn',
                    'DYN_TCP_RPC_HOST': '127.0.0.1',
                    'DYN_HTTP_RPC_HOST': '127.0.0.1', 'DYN_FILE_KV': kv}
        events = ['--zmq-kv-events-ports', self.events_port,
                  '--zmq-replay-ports', self.replay_port]
        self.process = site.start(
            name, site.python, '-m', 'dynamo.mocker', '--model-path',
            site.model, '--model-name', 'tiny', '--num-workers', 1,
            '--block-size', 16, '--num-gpu-blocks-override', BLOCKS,
            '--max-num-batched-tokens', BATCH_TOKENS,
            '--planner-profile-data', site.profile,
            '--speedup-ratio', SPEEDUP, *events, *PLANES, **self.env)


class Engines:
    """Mockers, each behind a frontend of its own, for every router but
    Dynamo's."""

    def __init__(self, site):
        self.all = [Engine(site, i, f'mocker{i}', site.path(f'kv{i}'))
                    for i in range(ENGINES)]
        self.frontends = [
            site.start(f'frontend{i}', site.python, '-m', 'dynamo.frontend',
                       '--http-host', '127.0.0.1', '--http-port', e.port,
                       '--router-mode', 'round-robin',
                       '--kv-cache-block-size', 16, *PLANES, **e.env,
                       **site.preload)
            for i, e in enumerate(self.all)]
        for e in self.all:
            wait_answers(e.port)
            warm(e.port)

    def frontend_pids(self):
        return [p.pid for p in self.frontends]

    def engine_pids(self):
        return [e.process.pid for e in self.all]


class Router:
    """One router. `as_text`: it takes no prompts of token ids."""
    name = as_text = None
    port = FIRST_PORT + 1

    def __init__(self, site, engines):
        self.site, self.engines = site, engines
        self.processes = self.start()
        self.wait()

    def wait(self):
        wait_answers(self.port)

    def pids(self):
        return [pid for p in self.processes for pid in children(p.pid)]

    def helper_pids(self):
        """Of what it needs beside itself: the engines' frontends."""
        return self.engines.frontend_pids()

    def stop(self):
        for p in self.processes:
            self.site.stop(p)

    def settle(self):
        time.sleep(1.0)  # subscriptions, health
        warm(self.port)


class Conductor(Router):
    name = 'conductor'
    extra = {}

    n = None  # of the engines; None: all

    def config(self):
        return {'listen': f'127.0.0.1:{self.port}', 'engines': [
            {'name': f'e{i}', 'kind': 'vllm', 'url': e.url, 'model': 'tiny',
             'block_tokens': 16, 'kv_events':
             f'tcp://127.0.0.1:{e.events_port}',
             'kv_replay': f'tcp://127.0.0.1:{e.replay_port}'}
            for i, e in enumerate(self.engines.all[:self.n])], **self.extra}

    def write(self):
        with open(self.site.path('conductor.json'), 'w',
                  encoding='utf-8') as f:
            json.dump(self.config(), f)

    def start(self):
        self.write()
        return [self.site.start(
            self.name, os.path.join(self.site.build, 'conductor', 'conductor'),
            '-c', self.site.path('conductor.json'))]


class Nginx(Router):
    name = 'nginx'

    def start(self):
        servers = ''.join(f'server 127.0.0.1:{e.port};'
                          for e in self.engines.all)
        with open(self.site.path('nginx.conf'), 'w', encoding='utf-8') as f:
            f.write(f'''daemon off; worker_processes 1; pid nginx.pid;
error_log nginx-error.log; events {{ worker_connections 8192; }}
http {{
  access_log off; keepalive_requests 1000000; client_max_body_size 16m;
  client_body_buffer_size 1m; client_body_temp_path tmp;
  proxy_temp_path tmp; fastcgi_temp_path tmp; uwsgi_temp_path tmp;
  scgi_temp_path tmp;
  upstream engines {{ least_conn; {servers}
    keepalive 1024; keepalive_requests 1000000; }}
  server {{ listen 127.0.0.1:{self.port};
    location / {{ proxy_pass http://engines; proxy_http_version 1.1;
      proxy_set_header Connection ""; proxy_buffering off;
      proxy_request_buffering off; proxy_read_timeout 600s; }} }}
}}
''')
        return [self.site.start(
            self.name, 'nginx', '-p', self.site.folder, '-c',
            self.site.path('nginx.conf'),
            PATH=os.environ['PATH'] + ':/usr/sbin')]


class Smg(Router):
    name = 'smg'
    as_text = True

    def start(self):
        return [self.site.start(
            self.name, os.path.join(self.site.bin, 'smg'), 'launch',
            '--host', '127.0.0.1', '--port', self.port, '--worker-urls',
            *(e.url for e in self.engines.all), '--policy', 'cache_aware',
            '--backend', 'vllm', '--prometheus-host', '127.0.0.1',
            '--prometheus-port', FIRST_PORT + 2, '--log-level', 'warn',
            '--disable-tokenizer-autoload')]


class VllmRouter(Router):
    name = 'vllm-router'

    def start(self):
        ports = [p for e in self.engines.all
                 for p in (e.events_port, e.relayed_port)]
        self.relay = self.site.start(
            'relay', self.site.python, os.path.join(HERE, 'relay.py'), *ports)
        sources = []
        for e in self.engines.all:
            sources += ['--kv-event-source',
                        f'{e.url}=tcp://127.0.0.1:{e.relayed_port}']
        return [self.site.start(
            self.name, os.path.join(self.site.bin, 'vllm-router'),
            '--host', '127.0.0.1', '--port', self.port, '--worker-urls',
            *(e.url for e in self.engines.all), '--policy', 'kv_aware',
            *sources, '--kv-event-model', 'tiny', '--kv-event-block-size', 16,
            '--prometheus-host', '127.0.0.1', '--prometheus-port',
            FIRST_PORT + 3, '--log-level', 'warning')]

    def stop(self):
        super().stop()
        self.site.stop(self.relay)


class Dynamo(Router):
    """Its router is a frontend of its own, and its engines are found by it:
    mockers that only it has."""
    name = 'dynamo'

    def start(self):
        self.mockers = [Engine(self.site, 10 + i, f'dynamo-mocker{i}',
                               self.site.path('kv-dynamo'))
                        for i in range(ENGINES)]
        frontend = self.site.start(
            self.name, self.site.python, '-m', 'dynamo.frontend',
            '--http-host', '127.0.0.1', '--http-port', self.port,
            '--router-mode', 'kv', '--kv-cache-block-size', 16, *PLANES,
            **self.mockers[0].env, **self.site.preload)
        return [frontend]

    def settle(self):
        time.sleep(3.0)  # until it has found all engines
        warm(self.port, 40)

    def helper_pids(self):
        return []

    def stop(self):
        super().stop()
        for e in self.mockers:
            self.site.stop(e.process)


ROUTERS = {r.name: r for r in (Conductor, Dynamo, Smg, VllmRouter, Nginx)}
