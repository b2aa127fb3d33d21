"""A TCP proxy that can be a bad network: between a worker and its conductor,
and in front of the worker's own port for other workers."""
import socket
import struct
import threading
import time

HELLO, WORKER = 1, 2
PORT_FROM_END = 34  # of a HELLO: the port, and 32 bytes of nonce
PIECE = 65536


class Proxy:
    """Hands on to a port of loopback, as `mode` says:
    pass
    cut      connections are reset, and new ones too
    silent   nothing comes through, and nobody is told
    slow     so many bytes a second
    What a worker says of its own port in HELLO becomes that of `peers`."""

    def __init__(self, to, peers=None):
        self.to, self.peers = to, peers
        self.mode, self.bytes_per_s = 'pass', 0
        self.changed = threading.Condition()
        self.sockets = set()
        self.listener = socket.create_server(('127.0.0.1', 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def set(self, mode, bytes_per_s=0):
        with self.changed:
            self.mode, self.bytes_per_s = mode, bytes_per_s
            self.changed.notify_all()
            sockets = list(self.sockets) if mode == 'cut' else []
        for s in sockets:
            self.reset(s)

    @staticmethod
    def reset(s):
        try:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER,
                         struct.pack('ii', 1, 0))
            s.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass

    def close(self):
        self.set('cut')
        self.listener.close()

    def accept(self):
        while True:
            try:
                near, _ = self.listener.accept()
                if self.mode == 'cut':
                    self.reset(near)
                    near.close()
                    continue
                far = socket.create_connection(('127.0.0.1', self.to))
            except OSError:
                if self.listener.fileno() < 0:
                    return
                near.close()
                continue
            for s in near, far:
                s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self.changed:
                self.sockets |= {near, far}
            for args in (near, far, True), (far, near, False):
                threading.Thread(target=self.hand_on, args=args,
                                 daemon=True).start()

    def hand_on(self, source, sink, is_client):
        try:
            if is_client and self.peers:
                sink.sendall(self.renamed(source))
            while True:
                data = source.recv(PIECE)
                if not data:
                    break
                sink.sendall(self.treat(data))
        except OSError:
            pass
        with self.changed:
            self.sockets -= {source, sink}
        for s in source, sink:
            try:
                s.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            s.close()

    def treat(self, data):
        """What of it goes on, when it may."""
        with self.changed:
            self.changed.wait_for(lambda: self.mode != 'silent')
            mode, rate = self.mode, self.bytes_per_s
        if mode == 'slow':
            time.sleep(len(data) / rate)
        return data

    def renamed(self, source):
        """The HELLO of a worker, with the other port."""
        head = self.exactly(source, 16)
        n, kind, _, _ = struct.unpack('<IHHQ', head)
        body = self.exactly(source, n)
        if kind != HELLO or body[8] != WORKER:
            return head + body
        at = len(body) - PORT_FROM_END
        self.peers.to, = struct.unpack_from('<H', body, at)
        return head + body[:at] + struct.pack('<H', self.peers.port) + \
            body[at + 2:]

    @staticmethod
    def exactly(source, n):
        data = b''
        while len(data) < n:
            more = source.recv(n - len(data))
            if not more:
                raise OSError('closed')
            data += more
        return data
