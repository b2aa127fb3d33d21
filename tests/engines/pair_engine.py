"""One vLLM of a pair, which hands KV over with a connector."""
import json
import os

import engines
from vllm_engine import ENV, Vllm

BLOCKS = 256
LEASE_S = 20  # how long a prefill engine keeps KV for nobody; 30 untold

# float32 and weights that matter: the tokens are then those of the prompt, and
# the same whether blocks were computed here or there, and beside which others.
WEIGHTS = ['--dtype', 'float32']


class Alone(Vllm):
    """One that serves whole requests, and knows no connector."""
    adapters, blocks, weights = [], BLOCKS, WEIGHTS

    def more(self):
        return []


class Paired(Alone):
    def __init__(self, folder, model, role, connector, binds):
        self.role, self.connector = role, connector
        self.files = os.path.join(folder, 'kv')
        self.meeting_port = engines.free_ports(1)
        self.env = {**ENV, 'VLLM_NIXL_SIDE_CHANNEL_HOST': '127.0.0.1',
                    'VLLM_NIXL_SIDE_CHANNEL_PORT': str(self.meeting_port),
                    'UCX_TLS': 'tcp,self,sm', 'UCX_NET_DEVICES': 'lo'}
        super().__init__(folder, model, role, binds)

    def more(self):
        how = {'nixl': {
            'kv_connector': 'NixlConnector', 'kv_buffer_device': 'cpu',
            'kv_connector_extra_config': {'kv_lease_duration': LEASE_S}},
               'shared_storage': {
            'kv_connector': 'ExampleConnector', 'kv_connector_extra_config': {
                'shared_storage_path': self.files}}}[self.connector]
        return ['--kv-transfer-config',
                json.dumps({'kv_role': 'kv_both', **how})]

    def fields(self):
        return {**super().fields(), 'role': self.role,
                'kv_connector': self.connector}
