"""Real vLLM on 127.0.0.1, and a recount of the KV events that it sent."""
import json
import os
import signal
import sys

import msgpack
import zmq

import engines
import harness
import model as tiny
from publisher import END, Cache
from recount import Recount

BLOCK_TOKENS = 32  # the least that vLLM takes on a CPU
BLOCKS = 64        # few, so that blocks are evicted
START_S = 300      # half a minute where nothing else runs
HEAD_DIM = 32
ADAPTERS = ['law', 'sql']

ENV = {'HF_HUB_OFFLINE': '1', 'TRANSFORMERS_OFFLINE': '1',
       'VLLM_NO_USAGE_STATS': '1', 'DO_NOT_TRACK': '1',
       'VLLM_HOST_IP': '127.0.0.1', 'VLLM_CPU_KVCACHE_SPACE': '1',
       'VLLM_CPU_OMP_THREADS_BIND': 'nobind', 'OMP_NUM_THREADS': '1',
       'VLLM_WORKER_MULTIPROC_METHOD': 'fork',
       'VLLM_SERVER_DEV_MODE': '1'}  # for /reset_prefix_cache


class Group(engines.Foreign):
    """A program that leads a group of processes, which end with it."""

    def freeze(self):
        """It does nothing any more, and its connections stay open."""
        os.killpg(self.child.pid, signal.SIGSTOP)

    def thaw(self):
        os.killpg(self.child.pid, signal.SIGCONT)

    def kill(self):
        self.killed = True
        try:
            os.killpg(self.child.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.child.wait()


class Vllm:
    """One vLLM. It binds its events' address, or connects to it."""
    kind, env, adapters, blocks = 'vllm', ENV, ADAPTERS, BLOCKS
    weights = ['--load-format', 'dummy', '--dtype', 'bfloat16']

    def __init__(self, folder, model, name, binds):
        self.folder, self.model, self.name = folder, model, name
        self.binds = binds
        self.port, self.events_port, self.replay_port = (
            engines.free_ports(1) for _ in range(3))
        self.url = f'http://127.0.0.1:{self.port}'
        self.start()

    def command(self):
        host = '*' if self.binds else '127.0.0.1'
        events = {'enable_kv_cache_events': True, 'publisher': 'zmq',
                  'endpoint': f'tcp://{host}:{self.events_port}',
                  'replay_endpoint': f'tcp://127.0.0.1:{self.replay_port}'}
        return ['setsid', os.path.join(os.path.dirname(sys.executable), 'vllm'),
                'serve', self.model, '--served-model-name', engines.MODEL,
                '--host', '127.0.0.1', '--port', self.port,
                '--hf-overrides', json.dumps({'head_dim': HEAD_DIM}),
                *self.weights, *self.more(), '--enforce-eager',
                '--block-size', BLOCK_TOKENS,
                '--num-gpu-blocks-override', self.blocks,
                '--max-model-len', (BLOCKS - 2) * BLOCK_TOKENS,
                '--max-num-seqs', 8,
                '--distributed-executor-backend', 'uni',
                '--enable-prefix-caching', '--enable-prompt-tokens-details',
                '--kv-events-config', json.dumps(events)]

    def more(self):
        return ['--enable-lora', '--max-loras', len(self.adapters),
                '--max-lora-rank', tiny.ADAPTER_RANK, '--lora-modules',
                *(f'{a}={self.model}-{a}' for a in self.adapters)]

    def start(self):
        """Also starts it again, empty and on the same ports."""
        self.cache = Cache(BLOCK_TOKENS)
        self.next = 0
        self.whole = Recount(BLOCK_TOKENS)
        self.process = Group(self.folder, self.name,
                             list(map(str, self.command())),
                             {**os.environ, **self.env})

    def wait_ready(self):
        def ready():
            if not self.process.alive():
                raise AssertionError(self.process.log()[-3000:])
            return engines.answers(self.url)
        harness.wait_until(f'{self.name} answers', ready, START_S)

    def fields(self):
        """What Conductor's configuration says of it."""
        return {'name': self.name, 'kind': self.kind, 'url': self.url,
                'model': engines.MODEL, 'block_tokens': BLOCK_TOKENS,
                'adapters': self.adapters,
                'index': 'events', 'kv_events_bind': not self.binds,
                'kv_events': f'tcp://127.0.0.1:{self.events_port}',
                'kv_replay': f'tcp://127.0.0.1:{self.replay_port}'}

    def metric(self, name, *labels):
        """The sum of its metric over all lines with these labels."""
        _, text = engines.get(self.url + '/metrics')
        return sum(float(line.rsplit(' ', 1)[1]) for line in text.splitlines()
                   if line.startswith(name + '{')
                   and all(label in line for label in labels))

    def tokens_of(self, prompt):
        """The token ids of {'prompt': text} or of {'messages': chat}."""
        _, reply = engines.get(self.url + '/tokenize',
                               {'model': engines.MODEL, **prompt})
        return reply['tokens']

    def recount(self):
        """What it holds by the events that it has sent so far, which its
        replay tells to anybody."""
        with zmq.Context() as context, context.socket(zmq.DEALER) as socket:
            socket.linger = 0
            socket.connect(f'tcp://127.0.0.1:{self.replay_port}')
            socket.send_multipart([b'', self.next.to_bytes(8, 'big')])
            while True:
                if not socket.poll(30000 * harness.settings.scale):
                    raise AssertionError(f'{self.name} replays nothing')
                *_, number, payload = socket.recv_multipart()
                if number == END:
                    return self.cache
                self.take(int.from_bytes(number, 'big'), payload)

    def take(self, number, payload):
        if number != self.next:
            raise AssertionError(f'{self.name}: event {number} behind '
                                 f'{self.next - 1}')
        self.next += 1
        sent_s, events = msgpack.unpackb(payload)[:2]
        self.cache.apply(events)
        self.whole.take(sent_s, events)

    def held(self):
        """How many different blocks it holds."""
        return len({h for h, _ in self.cache.copies})
