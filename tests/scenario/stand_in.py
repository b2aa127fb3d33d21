"""A strict stand-in for an engine that speaks OpenAI's HTTP API.

It takes nothing but well-formed HTTP/1.1, remembers every request as it came,
and answers as the test says, byte by byte if need be.
"""
import json
import select
import socket
import threading

from harness import settings


class Request:
    def __init__(self, line, headers, body, connection):
        self.method, self.path, self.version = line.split(' ')
        self.headers = headers  # [(name in lower case, value), ..]
        self.body = body
        self.connection = connection  # its number, from 0 on
        self.socket = None

    def left(self):
        """Whether the client has closed the connection."""
        try:
            return bool(select.select([self.socket], [], [], 0)[0] and
                        not self.socket.recv(1, socket.MSG_PEEK))
        except (OSError, ValueError):
            return True

    def header(self, name):
        """The only header of that name, or None."""
        found = [v for n, v in self.headers if n == name]
        assert len(found) <= 1, f'{name}: {found}'
        return found[0] if found else None

    def answer_id(self):
        """The id of its answer, as vLLM makes it."""
        return f'cmpl-{self.header("x-request-id")}'


def reply(status, body=b'', headers=(), phrase='Whatever'):
    """A whole answer with a length."""
    if not isinstance(body, bytes):
        body = json.dumps(body).encode()
    lines = [f'HTTP/1.1 {status} {phrase}', f'Content-Length: {len(body)}',
             'Content-Type: application/json', *headers]
    return '\r\n'.join(lines).encode() + b'\r\n\r\n' + body


def stream_head(headers=()):
    lines = ['HTTP/1.1 200 OK', 'Content-Type: text/event-stream',
             'Transfer-Encoding: chunked', *headers]
    return '\r\n'.join(lines).encode() + b'\r\n\r\n'


def chunk(data):
    return b'%x\r\n' % len(data) + data + b'\r\n'


def event(value):
    text = value if isinstance(value, str) else json.dumps(value)
    return f'data: {text}\n\n'.encode()


class Engine:
    """One engine on a port of its own. `serve` is called with each request
    that is not for its health, and a function that sends bytes; it may return
    'close' to end the connection, or 'reset'."""

    def __init__(self, serve=None, port=0, host='127.0.0.1', called=None,
                 tls=None):
        self.serve = serve or self.complete
        self.health = 200
        self.silent = None  # an Event: no health is told before it is set
        self.metrics = ''  # of /metrics
        self.n_metrics = 0
        self.metrics_status = 200  # None: the connection ends instead
        self.models_status = 200  # other ones come without cards
        # The cards of /v1/models; None: it has no such list.
        self.models = [{'id': 'm', 'object': 'model'}]
        self.tells = {}  # path: JSON that it tells of itself
        self.requests = []
        self.faults = []  # what a strict server would not have taken
        self.gone = []    # requests whose client left before the answer's end
        self.deaf = None  # an Event: bodies are not read before it is set
        self.asked = 0    # requests whose body was to be read
        self.n_health = self.n_models = 0
        self.connections = 0
        self.sockets = set()
        self.lock = threading.Lock()
        self.host, self.called = host, called or host
        self.tls = tls  # an ssl.SSLContext, or None
        self.listener = socket.create_server((host, port))
        self.port = self.listener.getsockname()[1]
        self.authority = f'{self.called}:{self.port}'  # as Host names it
        self.open = True
        threading.Thread(target=self.accept, daemon=True).start()

    @property
    def url(self):
        return (f'https://{self.called}:{self.port}' if self.tls else
                f'http://{self.host}:{self.port}')

    def stop(self):
        """As a killed process: the port is free, connections are reset."""
        self.open = False
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        with self.lock:
            for s in self.sockets:
                try:
                    s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER,
                                 b'\1\0\0\0\0\0\0\0')
                    s.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass

    def restart(self):
        """Another process at the same place."""
        return Engine(self.serve, self.port)

    def accept(self):
        while self.open:
            try:
                s, _ = self.listener.accept()
            except OSError:
                return
            with self.lock:
                number = self.connections
                self.connections += 1
                self.sockets.add(s)
            threading.Thread(target=self.converse, args=(s, number),
                             daemon=True).start()

    def converse(self, s, number):
        s.settimeout(60 * settings.scale)
        try:
            if self.tls:
                plain, s = s, self.tls.wrap_socket(s, server_side=True)
                with self.lock:
                    self.sockets.discard(plain)
                    self.sockets.add(s)
            with s, s.makefile('rb') as f:
                while self.open and self.one(s, f, number):
                    pass
        except OSError:
            pass
        finally:
            with self.lock:
                self.sockets.discard(s)

    def read(self, f, number):
        line = f.readline(65536)
        if not line:
            return None
        headers = []
        assert line.endswith(b'\r\n'), line
        while True:
            h = f.readline(65536)
            assert h.endswith(b'\r\n'), h
            if h == b'\r\n':
                break
            name, value = h[:-2].decode().split(':', 1)
            assert name == name.strip() and name, h
            headers.append((name.lower(), value.strip()))
        request = Request(line[:-2].decode(), headers, b'', number)
        assert request.version == 'HTTP/1.1', line
        assert request.header('host') == self.authority, headers
        assert request.header('connection') in (None, 'close'), headers
        for hop in ('transfer-encoding', 'expect', 'te'):
            assert request.header(hop) is None, headers
        n = int(request.header('content-length') or 0)
        if n:
            self.asked += 1
            if self.deaf:
                self.deaf.wait(60 * settings.scale)
        request.body = f.read(n)
        if self.deaf and len(request.body) < n:
            return None  # nobody waits any more
        assert len(request.body) == n
        return request

    def one(self, s, f, number):
        """Whether the connection goes on."""
        try:
            request = self.read(f, number)
        except (AssertionError, ValueError) as e:
            self.faults.append(e)
            return False
        if request is None:
            return False
        if request.path == '/health':
            self.n_health += 1
            if self.silent:
                self.silent.wait(60 * settings.scale)
            s.sendall(reply(self.health))
            return True
        if request.path == '/v1/models' and request.method == 'GET':
            self.n_models += 1
            s.sendall(reply(self.models_status)
                      if self.models_status != 200 else
                      reply(404) if self.models is None else
                      reply(200, {'object': 'list', 'data': self.models}))
            return True
        if request.path.startswith(('/version', '/server_info')):
            told = self.tells.get(request.path)
            s.sendall(reply(404) if told is None else reply(200, told))
            return True
        if request.path == '/metrics':
            self.n_metrics += 1
            if self.metrics_status:
                s.sendall(reply(self.metrics_status, self.metrics.encode()))
            return bool(self.metrics_status)
        request.socket = s
        with self.lock:
            self.requests.append(request)
        try:
            how = self.serve(request, s.sendall)
        except OSError:
            with self.lock:
                self.gone.append(request)
            return False
        if how == 'reset':
            s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER,
                         b'\1\0\0\0\0\0\0\0')
        return (how not in ('close', 'reset') and
                request.header('connection') is None)

    @staticmethod
    def complete(request, send):
        """A usual engine: 4 tokens, streamed or not."""
        body = json.loads(request.body)
        if not body.get('stream'):
            send(reply(200, {'id': request.answer_id(),
                             'choices': [{'text': 'abcd'}],
                             'usage': {'completion_tokens': 4}}))
            return
        send(stream_head())
        for letter in 'abcd':
            send(chunk(event({'id': request.answer_id(),
                              'choices': [{'text': letter}]})))
        send(chunk(event('[DONE]')) + b'0\r\n\r\n')
