"""Strict stand-ins for engines of pairs, which speak a connector's protocol.

Each takes nothing that a real engine would fail at, counts what it has been
told to keep for others, and what was fetched.
"""
import http.client
import json
import threading
import urllib.parse

from harness import settings
from stand_in import Engine, chunk, event, reply, stream_head

P, D = 'prefill', 'decode'
PROMPT, CACHED = 900, 48  # tokens, as every prefill leg says


def body_of(request):
    return json.loads(request.body)


def answer(request, send, cached=0, text='abcd', name=None):
    """A whole answer of some tokens, with its usage; its id is vLLM's, or a
    name."""
    body = body_of(request)
    name = name or request.answer_id()
    usage = {'prompt_tokens': PROMPT, 'completion_tokens': len(text),
             'prompt_tokens_details': {'cached_tokens': cached, 'other': 1}}
    if not body.get('stream'):
        send(reply(200, {'id': name, 'choices': [
            {'text': text, 'finish_reason': 'length', 'logprobs': [1]}],
            'usage': usage}))
        return
    send(stream_head())
    for letter in text:
        send(chunk(event({'id': name, 'choices': [{'text': letter}]})))
    send(chunk(event({'choices': [], 'usage': usage})))
    send(chunk(event('[DONE]')) + b'0\r\n\r\n')


class Nixl:
    """What vLLM engines with NixlConnector do: `prefill` keeps blocks for the
    parameters that it returns, `decode` fetches them, once, for the same
    prompt, or computes the prompt itself."""

    ASKS = {'do_remote_decode': True, 'do_remote_prefill': False,
            'remote_engine_id': None, 'remote_block_ids': None,
            'remote_host': None, 'remote_port': None}

    def __init__(self):
        self.lock = threading.Lock()
        self.held = {}     # number: prompt
        self.n = 0
        self.faults = []   # each would have ended an engine
        self.prefills, self.fetched, self.alone = [], [], []
        self.null = False  # the replies of prefill legs have no parameters

    def fault(self, why):
        self.faults.append(why)
        return 'reset'

    def asks(self, body):
        return body.get('kv_transfer_params') == self.ASKS

    @staticmethod
    def limited(body):
        return (body.get('max_tokens'), body.get('stream')) == (1, False) and \
            body.get('max_completion_tokens', 1) == 1 and \
            body.get('min_tokens', 0) <= 1 and 'stream_options' not in body

    @staticmethod
    def prompt(body):
        return json.dumps(body.get('prompt', body.get('messages')))

    def params(self, body):
        """Keeps the blocks of a prefill leg; its parameters."""
        with self.lock:
            self.n += 1
            self.held[self.n] = self.prompt(body)
            return {'do_remote_prefill': True, 'do_remote_decode': False,
                    'remote_block_ids': [[self.n, self.n + 1]],
                    'remote_engine_id': 'e', 'remote_host': '127.0.0.1',
                    'remote_port': 5600, 'a_newer_member': {'x': [1e3]}}

    def reply(self, body):
        """To a prefill leg."""
        params = None if self.null else self.params(body)
        return {'choices': [{'text': 'a'}],
                'usage': {'prompt_tokens': PROMPT, 'completion_tokens': 1,
                          'prompt_tokens_details': {'cached_tokens': CACHED}},
                'kv_transfer_params': params}

    def prefill(self, request, send):
        body = body_of(request)
        if not self.asks(body):
            return self.fault(f'no prefill leg: {body}')
        if not self.limited(body):
            return self.fault(f'limits of a prefill leg: {body}')
        self.prefills.append(request)
        send(reply(200, {'id': request.answer_id(), **self.reply(body)}))
        return None

    def take(self, body):
        """Whether the parameters of a decode leg are in order; its blocks are
        given back."""
        params = body['kv_transfer_params']
        with self.lock:
            number = params['remote_block_ids'][0][0]
            return (params['do_remote_prefill'] and
                    params['a_newer_member'] == {'x': [1e3]} and
                    self.held.pop(number, None) == self.prompt(body))

    def decode(self, request, send):
        body = body_of(request)
        if 'kv_transfer_params' not in body:
            self.alone.append(request)
        elif self.take(body):
            self.fetched.append(request)
        else:
            return self.fault(f'parameters of another prompt: {body}')
        return answer(request, send)


class Offloading(Nixl):
    """What vLLM engines with OffloadingConnector's tier p2p do: `prefill` keeps
    blocks under the id that it is given, `decode` fetches them by it, once, for
    the same prompt. No reply has parameters."""

    PORT = 5710

    @staticmethod
    def number(params, role, **where):
        """The id in params, if they are what a leg of that role has."""
        of = params.get(role)
        if list(params) != [role] or not isinstance(of, dict):
            return None
        number = of.get('kv_request_id')
        if not isinstance(number, str) or not number or \
                of != {'kv_request_id': number, **where}:
            return None
        return number

    def asks(self, body):
        number = self.number(body.get('kv_transfer_params', {}),
                             'remote_decoder')
        return number is not None and number not in self.held

    def reply(self, body):
        with self.lock:
            self.n += 1
            self.held[body['kv_transfer_params']['remote_decoder']
                      ['kv_request_id']] = self.prompt(body)
        return {'choices': [{'text': 'a'}],
                'usage': {'prompt_tokens': PROMPT, 'completion_tokens': 1,
                          'prompt_tokens_details': {'cached_tokens': CACHED}},
                'kv_transfer_params': None}

    def take(self, body):
        number = self.number(body['kv_transfer_params'], 'remote_prefiller',
                             remote_host='127.0.0.1', remote_port=self.PORT)
        with self.lock:
            return number is not None and \
                self.held.pop(number, None) == self.prompt(body)


class Mooncake(Nixl):
    """What vLLM engines with MooncakeConnector do: `decode` asks the bootstrap
    server that it is told for the prefill engine, by its id, and waits until
    that has computed the prompt of a transfer; both are held until both are
    there. A prefill leg that ends otherwise than by its length leaves the other
    one waiting."""

    LEG = {'do_remote_decode': True, 'do_remote_prefill': False}
    ANSWER = {'do_remote_decode': False, 'do_remote_prefill': True}

    def __init__(self):
        super().__init__()
        self.changed = threading.Condition()
        self.go_on = threading.Event()  # prompts are computed
        self.go_on.set()
        self.before_answer = lambda: None
        self.servers, self.told = [], []  # of prefill engines, and what they say
        self.waiting = {}   # transfers that decode engines have blocks for
        self.seen = set()   # roles and transfers

    def bootstrap(self):
        """The port of another prefill engine's bootstrap server."""
        n = len(self.servers)
        self.told.append({'0': {'engine_id': f'id-{n}', 'worker_addr': {
            '0': {'0': 'tcp://127.0.0.1:1'}}}})

        def serve(request, send):
            if (request.method, request.path) != ('GET', '/query') or \
                    request.header('authorization'):
                return self.fault(f'no query: {request.path}')
            send(reply(200, self.told[n]))
            return None
        self.servers.append(Engine(serve))
        return self.servers[n].port

    def transfer(self, body, role, members):
        """The transfer's id, which no leg of that role has had; or None."""
        params = dict(body.get('kv_transfer_params') or {})
        number = params.pop('transfer_id', None)
        if not isinstance(number, str) or not number or params != members:
            return None
        with self.changed:
            if (role, number) in self.seen:
                return None
            self.seen.add((role, number))
        return number

    def settle(self, number):
        """Both are there: nothing is held any more."""
        if number in self.held and number in self.waiting:
            if self.held.pop(number) != self.waiting.pop(number):
                self.fault(f'another prompt: {number}')
            self.changed.notify_all()

    def prefill(self, request, send):
        body = body_of(request)
        number = self.transfer(body, P, self.LEG)
        if number is None or not self.limited(body) or \
                body.get('ignore_eos') is not True or \
                'stop' in body or 'stop_token_ids' in body:
            return self.fault(f'no prefill leg: {body}')
        computed = False
        while not computed:
            computed = self.go_on.wait(0.02)
            if request.left():
                return 'close'
        with self.changed:
            self.held[number] = self.prompt(body)
            self.prefills.append(request)
            self.settle(number)
        send(reply(200, {'id': request.answer_id(), 'choices': [
            {'text': 'a'}], 'usage': {
            'prompt_tokens': PROMPT, 'completion_tokens': 1,
            'prompt_tokens_details': {'cached_tokens': CACHED}},
            'kv_transfer_params': None}))
        return None

    def find(self, params):
        """Whether the engine is where the leg says; its address and id."""
        address = params.get('remote_bootstrap_addr')
        number = params.get('remote_engine_id')
        at = urllib.parse.urlsplit(address + '/query')
        server = http.client.HTTPConnection(at.hostname, at.port)
        server.request('GET', at.path)
        ranks = json.load(server.getresponse())
        server.close()
        if at.scheme != 'http':
            return None
        return {'remote_bootstrap_addr': address, 'remote_engine_id': number} \
            if number in [r['engine_id'] for r in ranks.values()] else None

    def decode(self, request, send):
        body = body_of(request)
        if 'kv_transfer_params' not in body:
            self.alone.append(request)
            return answer(request, send)
        found = self.find(body['kv_transfer_params'])
        number = self.transfer(body, D, {**self.ANSWER, **(found or {})})
        if not found or number is None:
            return self.fault(f'no decode leg: {body}')
        with self.changed:
            self.waiting[number] = self.prompt(body)
            self.settle(number)
            while number in self.waiting:
                self.changed.wait(0.02)
                if request.left():
                    return 'close'
            self.fetched.append(request)
        self.before_answer()
        return answer(request, send, 192)


class Storage:
    """What vLLM engines with ExampleConnector do: the prefill engine writes
    KV to a place where the decode engine finds it."""

    def __init__(self):
        self.written, self.found, self.alone = [], [], []

    def prefill(self, request, send):
        body = body_of(request)
        assert 'kv_transfer_params' not in body
        assert (body['max_tokens'], body['stream']) == (1, False)
        self.written.append(Nixl.prompt(body))
        answer(request, send, CACHED, 'a')

    def decode(self, request, send):
        body = body_of(request)
        there = Nixl.prompt(body) in self.written
        (self.found if there else self.alone).append(request)
        answer(request, send, 192 if there else 0)


class Sglang:
    """What SGLang's engines of pairs do: both serve nothing without a room,
    meet there, and wait for each other; the prefill engine answers once its KV
    is fetched. SGLang counts the rooms of several prompts or answers up."""

    OWN = ('bootstrap_host', 'bootstrap_port', 'bootstrap_room')

    def __init__(self, port=8998):
        self.changed = threading.Condition()
        self.port = port
        self.rooms = {}      # number: the legs that are there, by their roles
        self.used = set()
        self.faults, self.prefills, self.decodes = [], [], []
        self.open = 0        # legs that are being served

    @classmethod
    def rooms_of(cls, body):
        prompt = body.get('prompt', body.get('text', ''))
        n = len(prompt) if isinstance(prompt, list) and prompt and \
            not isinstance(prompt[0], int) else 1
        n *= body.get('n', 1)
        return {body['bootstrap_room'] + i for i in range(n)}

    def fault(self, why):
        self.faults.append(why)
        return 'reset'

    def meet(self, role, request):
        """Waits for the other leg. Its body, or None: the client left."""
        body = body_of(request)
        room = body['bootstrap_room']
        with self.changed:
            legs = self.rooms.setdefault(room, {})
            assert role not in legs, 'a room is used twice'
            legs[role] = body
            self.open += 1
            self.changed.notify_all()
            try:
                while len(legs) < 2 and not request.left():
                    self.changed.wait(0.02)
                return legs.get(D if role == P else P)
            finally:
                self.open -= 1

    def serve(self, role, request):
        body = body_of(request)
        if (body.get('bootstrap_host'), body.get('bootstrap_port')) != \
                ('127.0.0.1', self.port):
            return self.fault(f'no room: {body}')
        if not 0 < body['bootstrap_room'] < 2 ** 63 - 1024:
            return self.fault(f'no number of a room: {body}')
        other = self.meet(role, request)
        if other is not None and other != body:
            return self.fault(f'two bodies: {body} {other}')
        return None if other else 'close'

    def prefill(self, request, send):
        how = self.serve(P, request)
        if how:
            return how
        self.prefills.append(request)
        return answer(request, send, 7, 'a', 'b8c2')

    def decode(self, request, send):
        how = self.serve(D, request)
        if how:
            return how
        with self.changed:
            rooms = self.rooms_of(body_of(request))
            if rooms & self.used:
                return self.fault(f'rooms are shared: {rooms}')
            self.used |= rooms
        self.decodes.append(request)
        return answer(request, send, CACHED, name='b8c3')
