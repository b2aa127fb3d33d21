"""A server that answers /v1/completions as a conductor would, without one.

Its cache is infinite, in blocks of block_tokens, so a replay against it must
reach exactly the best possible hit ratio. `behave(index)` may name something
else to do with the index-th request: a dict is the error in its stream, and
'warm' rejects it, but caches its prompt all the same.
"""
import http.server
import json
import threading
import time


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256  # 5 by default: a burst would lose a second


class FakeServer:
    """Serves on a free port of loopback until close()."""

    def __init__(self, block_tokens=32, behave=lambda index: 'answer',
                 token_gap_s=0.002, keeps=False, tls=None,
                 key=None, at_once=1000):
        self.slots = threading.Semaphore(at_once)  # for answers
        self.block_tokens = block_tokens
        self.behave = behave
        self.token_gap_s = token_gap_s
        self.keeps = keeps  # connections; else it closes without a word
        self.connections = set()
        self.lock = threading.Lock()
        self.blocks = set()
        self.requests = []  # the parsed bodies
        self.keys = []      # their Authorization, or None
        self.arrivals_s = []
        self.paths = set()  # that were asked for
        handler = type('Handler', (Handler,), {'fake': self})
        self.http = Server(('127.0.0.1', 0), handler)
        self.key = key  # that every request must show
        if tls:  # an ssl.SSLContext
            self.http.socket = tls.wrap_socket(self.http.socket,
                                               server_side=True)
        self.url = (f'http{"s" if tls else ""}://127.0.0.1:'
                    f'{self.http.server_address[1]}')
        threading.Thread(target=self.http.serve_forever, daemon=True).start()

    def close(self):
        self.http.shutdown()
        self.http.server_close()

    def accept(self, body, key):
        with self.lock:
            self.requests.append(body)
            self.keys.append(key)
            self.arrivals_s.append(time.monotonic())
            return len(self.requests) - 1

    def match(self, prompt):
        """Tokens of the prompt that are cached; then all of it is."""
        n = self.block_tokens
        keys = [tuple(prompt[:i + n]) for i in range(0, len(prompt) - n + 1, n)]
        keys = [hash(key) for key in keys]
        with self.lock:
            cached = 0
            while cached < len(keys) and keys[cached] in self.blocks:
                cached += 1
            self.blocks.update(keys)
        return cached * n


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'
    fake = None

    def log_message(self, *args):
        pass

    def page(self, status, value):
        text = json.dumps(value).encode()
        self.send_response(status)
        self.send_header('Content-Length', str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def is_stranger(self):
        if self.fake.key in (None, self.headers['Authorization']):
            return False
        self.page(401, {'error': {'message': 'no key', 'code': 'no_key'}})
        return True

    def do_GET(self):
        if self.is_stranger():
            return
        self.fake.paths.add(self.path)
        self.page(200, {'data': [{
            'id': 'tiny', 'max_model_len': 32768, 'conductor': {
                'policy': 'global_cache',
                'block_tokens': self.fake.block_tokens}}]})

    def chunk(self, text):
        self.wfile.write(f'{len(text):x}\r\n{text}\r\n'.encode())
        self.wfile.flush()

    def event(self, value):
        # Half an event a chunk: the client must not count on whole ones.
        text = f'data: {json.dumps(value)}\n\n'
        self.chunk(text[:len(text) // 2])
        self.chunk(text[len(text) // 2:])

    def do_POST(self):
        self.fake.paths.add(self.path)
        self.fake.connections.add(self.client_address)
        size = int(self.headers['Content-Length'])
        body = json.loads(self.rfile.read(size))
        if self.is_stranger():
            return
        index = self.fake.accept(body, self.headers['Authorization'])
        what = self.fake.behave(index)
        if what == 'hang':
            time.sleep(30)
            return
        if what == 'warm':
            self.fake.match(body['prompt'])
            what = 429
        if isinstance(what, int):
            self.page(what, {'error': {'message': f'no, {what}',
                                       'type': 'fake', 'code': 'made_up'}})
            return
        with self.fake.slots:
            self.stream(body, what)

    def stream(self, body, what):
        cached = self.fake.match(body['prompt'])
        count = len(body['prompt'])
        self.send_response(200)
        self.send_header('Content-Type', 'text/event-stream')
        self.send_header('Transfer-Encoding', 'chunked')
        self.send_header('x-conductor-predicted-ttft-ms', '5.5')
        self.end_headers()
        for i in range(body['max_tokens']):
            time.sleep(self.fake.token_gap_s)
            last = i + 1 == body['max_tokens']
            self.event({'choices': [{'text': 'x', 'index': 0, 'finish_reason':
                                     'length' if last else None}]})
            if what == 'cut':
                self.close_connection = True
                return
            if what == 'error' or isinstance(what, dict):
                self.event({'error': {'message': 'worker lost',
                                      'code': 'worker_gone'}
                            if what == 'error' else what})
                break
        else:
            self.event({'choices': [], 'usage': {
                'prompt_tokens': count,
                'completion_tokens': body['max_tokens'],
                'prompt_tokens_details': {'cached_tokens': cached}},
                'conductor': {
                    'request_id': 'r', 'prefill': 'p0', 'decode': 'd0',
                    'predicted_ttft_ms': 6.25, 'local_tokens': 0,
                    'fetched_tokens': cached, 'queue_ms': 0.5,
                    'computed_tokens': count - cached, 'prefill_ms': 1,
                    'retries': 1}})
        self.chunk('data: [DONE]\n\n')
        self.wfile.write(b'0\r\n\r\n')
        self.close_connection = not self.fake.keeps
