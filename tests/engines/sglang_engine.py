"""Real SGLang on 127.0.0.1; its events are recounted as vLLM's are."""
import json
import os
import sys

import engines
import vllm_engine
from vllm_engine import BLOCK_TOKENS, BLOCKS

STUBS = os.path.join(os.path.dirname(os.path.dirname(sys.executable)), 'stubs')
ENV = {'HF_HUB_OFFLINE': '1', 'TRANSFORMERS_OFFLINE': '1', 'DO_NOT_TRACK': '1',
       'OMP_NUM_THREADS': '1', 'SGLANG_USE_CPU_ENGINE': '1',
       'SGLANG_CPU_OMP_THREADS_BIND': '0', 'LD_LIBRARY_PATH': STUBS}


class Sglang(vllm_engine.Vllm):
    """One SGLang, with the radix cache on and pages of BLOCK_TOKENS. It binds
    its events' address, or connects to it, as vLLM does."""
    kind, env, adapters = 'sglang', ENV, []

    def command(self):
        host = '*' if self.binds else '127.0.0.1'
        events = {'publisher': 'zmq',
                  'endpoint': f'tcp://{host}:{self.events_port}',
                  'replay_endpoint': f'tcp://127.0.0.1:{self.replay_port}'}
        return ['setsid', sys.executable, '-m', 'sglang.launch_server',
                '--model-path', self.model, '--load-format', 'dummy',
                '--served-model-name', engines.MODEL,
                '--host', '127.0.0.1', '--port', self.port, '--device', 'cpu',
                '--attention-backend', 'torch_native',
                '--sampling-backend', 'pytorch', '--disable-cuda-graph',
                '--disable-overlap-schedule', '--page-size', BLOCK_TOKENS,
                '--max-total-tokens', BLOCKS * BLOCK_TOKENS,
                '--context-length', (BLOCKS - 2) * BLOCK_TOKENS,
                '--mem-fraction-static', 0.1, '--enable-metrics',
                '--enable-cache-report', '--skip-server-warmup',
                '--kv-events-config', json.dumps(events)]
