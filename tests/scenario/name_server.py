"""A name server on loopback, which answers what the test says."""
import socket
import struct
import threading


class NameServer:
    """`addresses` of the only name; None: it answers SERVFAIL; a string: it
    says nothing. An empty list is "no such name", an empty tuple a name without
    records; what can be called is asked for each question."""

    def __init__(self, name, addresses=()):
        self.name = name
        self.addresses = list(addresses)
        self.asked = 0  # for IPv4 addresses
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind(('127.0.0.1', 0))
        self.port = self.socket.getsockname()[1]
        threading.Thread(target=self.serve, daemon=True).start()

    def stop(self):
        self.socket.close()

    def serve(self):
        while True:
            try:
                question, client = self.socket.recvfrom(4096)
                answer = self.answer(question)
                if answer:
                    self.socket.sendto(answer, client)
            except OSError:
                return

    def answer(self, question):
        number, at, labels = question[:2], 12, []
        while question[at]:
            labels.append(question[at + 1:at + 1 + question[at]].decode())
            at += 1 + question[at]
        kind, = struct.unpack('>H', question[at + 1:at + 3])
        asked = question[12:at + 5]
        self.asked += kind == 1
        have = self.addresses
        if callable(have):
            have = have()
        if isinstance(have, str):
            return None
        code = (2 if have is None else
                0 if (have or have == ()) and
                '.'.join(labels).lower() == self.name else 3)
        family = {1: socket.AF_INET, 28: socket.AF_INET6}.get(kind)
        records = [socket.inet_pton(family, a) for a in have or ()
                   if family and (':' in a) == (kind == 28)] if not code else []
        return (number + struct.pack('>HHHHH', 0x8180 | code, 1, len(records),
                                     0, 0) + asked +
                b''.join(b'\xc0\x0c' + struct.pack('>HHIH', kind, 1, 1, len(r))
                         + r for r in records))
