"""A name server on loopback, which answers what the test says."""
import contextlib
import socket
import struct
import threading

OPT = 41


class NameServer:
    """`addresses` of the only name; None: it answers SERVFAIL; a string: it
    says nothing; bytes: they stand where a record should. An empty list is "no
    such name", an empty tuple a name without records; what can be called is
    asked for each question.

    What does not fit into a datagram is cut, and marked so; the whole answer
    comes by TCP, while `tcp` is set."""

    def __init__(self, name, addresses=()):
        self.name = name
        self.addresses = addresses if isinstance(addresses, tuple) else list(
            addresses)
        self.asked = 0  # for IPv4 addresses
        self.asked_tcp = 0  # likewise, of these
        self.most = 0  # bytes of a datagram that the last question allowed
        self.tcp = True
        self.broken = set()  # kinds of records that are SERVFAIL
        self.socket, self.listener = self.listen()
        self.port = self.socket.getsockname()[1]
        for serve in self.serve, self.serve_tcp:
            threading.Thread(target=serve, daemon=True).start()

    @staticmethod
    def listen():
        """Both at one port."""
        while True:
            udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            udp.bind(('127.0.0.1', 0))
            try:
                return udp, socket.create_server(udp.getsockname())
            except OSError:
                udp.close()

    def stop(self):
        self.socket.close()
        self.listener.close()

    def serve(self):
        while True:
            try:
                question, client = self.socket.recvfrom(4096)
                answer = self.answer(question)
                if answer:
                    self.socket.sendto(answer, client)
            except OSError:
                return

    def serve_tcp(self):
        while True:
            try:
                s, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self.serve_one, args=(s,),
                             daemon=True).start()

    def serve_one(self, s):
        """Until the client closes; at once without `tcp`."""
        with contextlib.suppress(OSError), s, s.makefile('rb') as f:
            while self.tcp and len(size := f.read(2)) == 2:
                answer = self.answer(f.read(*struct.unpack('>H', size)),
                                     whole=True)
                if answer:
                    s.sendall(struct.pack('>H', len(answer)) + answer)

    @staticmethod
    def datagram(records):
        """How long an answer may be, by what is behind the question."""
        if len(records) < 11 or records[0]:
            return 512
        kind, size = struct.unpack('>HH', records[1:5])
        return max(512, size) if kind == OPT else 512

    def answer(self, question, whole=False):
        number, at, labels = question[:2], 12, []
        while question[at]:
            labels.append(question[at + 1:at + 1 + question[at]].decode())
            at += 1 + question[at]
        kind, = struct.unpack('>H', question[at + 1:at + 3])
        asked = question[12:at + 5]
        self.asked += kind == 1
        self.asked_tcp += whole and kind == 1
        self.most = self.datagram(question[at + 5:])
        have = self.addresses
        if callable(have):
            have = have()
        if isinstance(have, str):
            return None
        if isinstance(have, bytes):
            return number + struct.pack('>HHHHH', 0x8180, 1, 1, 0,
                                        0) + asked + have
        code = (2 if have is None or kind in self.broken else
                0 if (have or have == ()) and
                '.'.join(labels).lower() == self.name else 3)
        family = {1: socket.AF_INET, 28: socket.AF_INET6}.get(kind)
        records = [socket.inet_pton(family, a) for a in have or ()
                   if family and (':' in a) == (kind == 28)] if not code else []
        room = 65535 if whole else self.most
        fit = records[:max(0, room - 12 - len(asked)) //
                      (12 + (4 if kind == 1 else 16))]
        flags = 0x8180 | (0x200 if len(fit) < len(records) else 0) | code
        return (number + struct.pack('>HHHHH', flags, 1, len(fit), 0, 0) +
                asked +
                b''.join(b'\xc0\x0c' + struct.pack('>HHIH', kind, 1, 1, len(r))
                         + r for r in fit))
