"""Servers that others wrote, for cases that put Conductor in front of them:
llama.cpp's server, Dynamo's mocker behind Dynamo's frontend, and Dynamo's
indexer. tests/engines/install makes the environment that they run in; without
it, the cases are skipped.
"""
import ctypes
import functools
import json
import os
import socket
import subprocess
import sys
import unittest
import urllib.error
import urllib.request

import harness
from harness import free_ports

ENGINES = os.path.join(harness.ROOT, 'tests', 'engines')
VENV = os.path.join(harness.ROOT, 'run', 'engines')
PYTHON = os.path.join(VENV, 'bin', 'python')
MODEL = 'tiny'  # what every engine calls its model
PLANES = ('--discovery-backend', 'file', '--request-plane', 'tcp',
          '--event-plane', 'zmq')  # of Dynamo's programs


@functools.cache
def why_not():
    """Why the engines cannot run here; '' if they can."""
    done = subprocess.run([os.path.join(ENGINES, 'install')], check=False,
                          stdin=subprocess.DEVNULL, capture_output=True,
                          text=True)
    if done.returncode:
        return (done.stdout + done.stderr).strip() or 'not installed'
    return ''


def enter_loopback():
    """Moves this thread, and so what it starts, into a network of its own
    that has only loopback: Dynamo's mocker listens on every address. Returns
    whether that is allowed here."""
    new_net = 0x40000000  # CLONE_NEWNET
    if ctypes.CDLL(None, use_errno=True).unshare(new_net):
        return False
    return subprocess.run(['ip', 'link', 'set', 'lo', 'up'],
                          check=False).returncode == 0


class HeldPorts:
    """n ports in a row that nobody listens at, kept until they are let go."""

    def __init__(self, case, n):
        self.first = free_ports(n)
        self.sockets = [socket.socket() for _ in range(n)]
        for i, held in enumerate(self.sockets):
            case.addCleanup(held.close)
            held.bind(('127.0.0.1', self.first + i))

    def release(self):
        for held in self.sockets:
            held.close()


def get(url, body=None, limit_s=30):
    """(status, JSON or text) of a GET, or of a POST of a JSON body."""
    request = urllib.request.Request(
        url, data=None if body is None else json.dumps(body).encode(),
        headers={'Content-Type': 'application/json'})
    try:
        with urllib.request.urlopen(
                request, timeout=limit_s * harness.settings.scale) as reply:
            data, status = reply.read().decode(), reply.status
    except urllib.error.HTTPError as error:
        data, status = error.read().decode(), error.code
    try:
        return status, json.loads(data)
    except ValueError:
        return status, data


def answers(url):
    """Whether a server at this URL says that it has its model."""
    try:
        status, models = get(url + '/v1/models', limit_s=5)
    except OSError:
        return False
    return status == 200 and bool(models.get('data'))


class Foreign(harness.Process):
    """A program whose own end is no concern of ours."""

    def lost(self):
        return False

    def complaint(self):
        if self.alive():
            self.kill()
        return None


class Case(harness.Case):
    """A case with engines. It is skipped where they are not installed."""
    # Set where a server of the case listens on every address.
    only_loopback = False

    def setUp(self):
        reason = why_not()
        if not reason and self.only_loopback:
            self.home = os.open('/proc/thread-self/ns/net', os.O_RDONLY)
            self.addCleanup(self.leave_loopback)
            if not enter_loopback():
                reason = 'no right to make a network of loopback alone'
        if reason:
            raise unittest.SkipTest(reason)
        super().setUp()
        self.model = os.path.join(self.folder, 'model')
        subprocess.run([sys.executable, os.path.join(ENGINES, 'model.py'),
                        self.model], check=True)

    def leave_loopback(self):
        ctypes.CDLL(None).setns(self.home, 0)
        os.close(self.home)

    def start_foreign(self, name, *command, **env):
        """Starts a program of the environment: a script, or -m MODULE."""
        process = Foreign(self.folder, name, [PYTHON, *map(str, command)],
                          {**os.environ, **env})
        self.processes.append(process)
        return process

    def wait_answers(self, process, url):
        harness.wait_until(f'{process.name} answers', lambda: answers(url),
                           60, process)


class LlamaServer:
    """llama.cpp's server: OpenAI's API, no KV events."""

    def __init__(self, case, name='llama'):
        self.case, self.name = case, name
        self.port = free_ports()
        self.url = f'http://127.0.0.1:{self.port}'
        self.start()

    def start(self):
        """Also starts it again, empty and on the same port."""
        self.process = self.case.start_foreign(
            self.name, os.path.join(ENGINES, 'llama_server.py'),
            os.path.join(self.case.model, 'tiny.gguf'), self.port, MODEL)
        self.case.wait_answers(self.process, self.url)


class Mocker:
    """Dynamo's mocker behind a frontend of its own: OpenAI's API, vLLM's KV
    events with replay; replies without text. Data-parallel rank r publishes
    at events_port + r and replays at replay_port + r. Its case must set
    only_loopback."""

    def __init__(self, case, name='mocker', blocks=1024, block_tokens=16,
                 ranks=1, options=()):
        self.case, self.name, self.ranks = case, name, ranks
        self.options = [
            '--num-gpu-blocks-override', blocks, '--block-size', block_tokens,
            '--data-parallel-size', ranks, '--speedup-ratio', 0, *options]
        self.block_tokens = block_tokens
        self.events_port = free_ports(ranks)
        self.replay_port = free_ports(ranks)
        self.port = free_ports()
        self.url = f'http://127.0.0.1:{self.port}'
        self.start()

    def start(self):
        """Also starts it again, empty and on the same ports."""
        env = self.start_engine()
        self.frontend = self.case.start_foreign(
            self.name + '-frontend', '-m', 'dynamo.frontend',
            '--http-host', '127.0.0.1', '--http-port', self.port,
            '--router-mode', 'round-robin', '--kv-cache-block-size',
            self.block_tokens, *PLANES, **env)
        self.case.wait_answers(self.frontend, self.url)

    def start_engine(self, *options):
        """Starts the engine alone; the environment that says where it is."""
        env = {'HF_HUB_OFFLINE': '1', 'DYN_LOG': 'warn',
               'DYN_TCP_RPC_HOST': '127.0.0.1',
               'DYN_HTTP_RPC_HOST': '127.0.0.1',
               'DYN_FILE_KV': os.path.join(
                   self.case.folder, f'{self.name}-{len(self.case.processes)}')}
        os.mkdir(env['DYN_FILE_KV'])
        self.engine = self.case.start_foreign(
            self.name, '-m', 'dynamo.mocker', '--model-path', self.case.model,
            '--model-name', MODEL, '--num-workers', 1,
            '--zmq-kv-events-ports', self.events_port,
            '--zmq-replay-ports', self.replay_port, *self.options, *options,
            *PLANES, **env)
        return env

    def kill(self):
        self.engine.kill()
        self.frontend.kill()


class MockerLeg(Mocker):
    """Dynamo's mocker as an engine of a pair, which speaks SGLang's protocol:
    prefill and decode engines meet in rooms, at the bootstrap port of the
    former. Or one that does both."""

    def __init__(self, case, role, name, **more):
        self.role = role
        self.bootstrap_port = free_ports()
        super().__init__(case, name, **more)

    def start(self):
        options = []
        if self.role != 'both':
            options += ['--disaggregation-mode', self.role]
        if self.role == 'prefill':
            options += ['--bootstrap-ports', self.bootstrap_port]
        env = self.start_engine(*options)
        part = 'prefill' if self.role == 'prefill' else 'backend'
        self.frontend = self.case.start_foreign(
            self.name + '-front', os.path.join(ENGINES, 'mocker_front.py'),
            f'dynamo.{part}.generate', self.port, **{**env, 'DYN_LOG': 'error'})
        self.case.wait_answers(self.frontend, self.url)


class Indexer:
    """Dynamo's indexer: subscribes to engines' KV events, and says which of
    them has how much of a prompt. It listens on every address."""

    def __init__(self, case, mockers, block_tokens=16):
        self.port = free_ports()
        self.url = f'http://127.0.0.1:{self.port}'
        workers = ','.join(f'{i + 1}=tcp://127.0.0.1:{m.events_port}'
                           for i, m in enumerate(mockers))
        self.process = case.start_foreign(
            'indexer', '-m', 'dynamo.indexer', '--port', self.port,
            '--block-size', block_tokens, '--threads', 1, '--model-name',
            MODEL, '--workers', workers)
        harness.wait_until('the indexer answers', self.answers, 60,
                           self.process)
        self.n, self.block_tokens = len(mockers), block_tokens

    def answers(self):
        try:
            return get(self.url + '/health', limit_s=5)[0] == 200
        except OSError:
            return False

    def match(self, tokens):
        """Leading blocks that each engine has."""
        status, reply = get(self.url + '/query',
                            {'model_name': MODEL, 'token_ids': tokens})
        assert status == 200, reply
        found = reply['instances']
        return [found.get(str(i + 1), {}).get('longest_matched', 0) //
                self.block_tokens for i in range(self.n)]
