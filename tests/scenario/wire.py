"""Speaks proto/PROTOCOL.md from python: a stand-in for the conductor, and for
a peer of a worker, with which a worker can be tested alone."""
import ctypes
import socket
import struct
import threading
import time

from harness import settings

(HELLO, WELCOME, ERROR, STATUS, CHALLENGE, PROOF) = range(1, 7)
(PREFILL, DECODE, CANCEL, INVENTORY, COPY, PREFILL_GROUP,
 DROP, LEAVE, ROLE) = range(10, 19)
(DECODE_READY, PREFILL_STARTED, PREFILL_DONE, TOKENS, DONE, FAILED,
 BLOCKS_STORED, BLOCKS_REMOVED, BLOCKS_CLEARED, INVENTORY_MARK,
 COPIED, LEAVING, PATHS, SHARED_STORE) = range(20, 34)
FETCH, FETCH_END, FETCH_CHAIN = 40, 42, 43
(TRANSPORTS, FETCH_WANT, FETCH_GRANT) = range(46, 49)
(KV_BEGIN, KV_GRANT, KV_REFUSE, KV_LAYER, KV_END, KV_TAKEN) = range(50, 56)
(STAGE_BEGIN, STAGE_READY, STAGE_REFUSE, STAGE_ROWS, STAGE_KV,
 STAGE_DONE) = range(60, 66)
LEAD = 70

MAGIC, VERSION = 0x52444E43, 3
(AUTO, COMPUTE, LOAD, BOTH, LAYERWISE) = range(5)  # load modes
(PEER, DISK, SHARED) = (1, 2, 3)  # kinds of sources
HOST, ON_DISK, IN_STORE = 1, 2, 3  # tiers

ROLES = {'prefill': 1, 'decode': 2, 'both': 3}


def xxh3(data, seed=0):
    """XXH3-64, from the library itself."""
    function = ctypes.CDLL('libxxhash.so.0').XXH3_64bits_withSeed
    function.restype = ctypes.c_uint64
    function.argtypes = ctypes.c_char_p, ctypes.c_size_t, ctypes.c_uint64
    return function(data, len(data), seed)


def prompt_digest(tokens, key_seed=5):
    """XXH3-64 of the tokens."""
    return xxh3(struct.pack(f'<{len(tokens)}I', *tokens), key_seed)


def block_keys(tokens, block_tokens, seed):
    """As DESIGN 2.1 says."""
    keys = []
    for at in range(0, len(tokens) // block_tokens * block_tokens,
                    block_tokens):
        key = prompt_digest(tokens[at:at + block_tokens], seed)
        if keys:
            key = xxh3(struct.pack('<QQ', keys[-1], key), seed)
        keys.append(key)
    return keys


def text(value):
    raw = value.encode()
    return struct.pack('<H', len(raw)) + raw


def text_at(payload, at):
    n, = struct.unpack_from('<H', payload, at)
    return payload[at + 2:at + 2 + n].decode()


def frame(kind, request_id=0, payload=b''):
    return struct.pack('<IHHQ', len(payload), kind, 0, request_id) + payload


def fetch_want(rid, block, layer, n):
    return frame(FETCH_WANT, rid, struct.pack('<III', block, layer, n))


def fetch_grant(rid, block, layer, sums):
    return frame(FETCH_GRANT, rid, struct.pack(
        f'<IIQIQI{len(sums)}Q', block, layer, 1, 0, 0, len(sums), *sums))


def transports(rid, token=bytes(16)):
    """That only tcp is there."""
    return frame(TRANSPORTS, rid, b'\1' + text('tcp') +
                 struct.pack('<I', len(token)) + token)


def kv_layer(rid, layer, start, n, block_tokens=16, blocks=None, sums=None):
    """As a prefill worker tells of rows of zeroes, one token in each."""
    first, last = start // block_tokens, (start + n - 1) // block_tokens
    if blocks is None:
        blocks = [0] * (last - first + 1)
    if sums is None:
        whole = sum(start <= b * block_tokens and
                    (b + 1) * block_tokens <= start + n
                    for b in range(first, last + 1))
        sums = [0] * (2 * (last - first + 1) - whole)
    return frame(KV_LAYER, rid, struct.pack(
        f'<IIIQII{len(blocks)}QI{len(sums)}Q', layer, start, n, 1, 0,
        len(blocks), *blocks, len(sums), *sums))


def hello(kind=3, version=VERSION, fingerprint=0, block_tokens=256,
          nonce=bytes(32), capabilities=8, port=0):
    return frame(HELLO, 0, struct.pack('<IHHBBQ', MAGIC, version, version, kind,
                                       3, capabilities) + text('python') + text('cpu') +
                 text('tiny') + struct.pack('<QIIIQQQII', fingerprint,
                                            block_tokens, 32768, 512, 1, 1, 0,
                                            1, 2) +
                 text('') + struct.pack('<H', port) + nonce)


def welcome(heartbeat_ms=200, queue_order='uncached_first', capabilities=0):
    return frame(WELCOME, 0, struct.pack('<HQII', VERSION, capabilities, 7,
                                         heartbeat_ms) +
                 text(queue_order))


def parse_hello(p):
    at = 18
    names = []
    for _ in range(3):
        n, = struct.unpack_from('<H', p, at)
        names.append(p[at + 2:at + 2 + n].decode())
        at += 2 + n
    numbers = struct.unpack_from('<QIIIQQQII', p, at)
    at += struct.calcsize('<QIIIQQQII')
    n, = struct.unpack_from('<H', p, at)
    host = p[at + 2:at + 2 + n].decode()
    port, = struct.unpack_from('<H', p, at + 2 + n)
    return {'name': names[0], 'role': p[9], 'fingerprint': numbers[0],
            'block_tokens': numbers[1], 'blocks': numbers[4], 'host': host,
            'port': port, 'disk_blocks': numbers[6]}


def parse_reason(p):
    return struct.unpack_from('<H', p)[0], p[4:].decode()


class Closed(Exception):
    pass


def exactly(sock, n):
    parts = []
    while n:
        part = sock.recv(min(n, 1 << 20))
        if not part:
            raise Closed
        parts.append(part)
        n -= len(part)
    return b''.join(parts)


class Link:
    """One connection; a thread keeps what arrives."""

    def __init__(self, sock):
        self.sock = sock
        self.frames = []  # (type, request id, payload)
        self.by_id = {}  # the same by request id
        self.token_entries = {}  # request id: (index, token) of TOKENS
        self.closed = False
        self.changed = threading.Condition()
        sock.settimeout(None)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        try:
            while True:
                n, kind, _, rid = struct.unpack('<IHHQ', exactly(self.sock, 16))
                item = kind, rid, exactly(self.sock, n)
                with self.changed:
                    self.frames.append(item)
                    self.by_id.setdefault(rid, []).append(item)
                    if kind == TOKENS:
                        for at in range(4, len(item[2]), 16):
                            entry = struct.unpack_from('<QII', item[2], at)
                            self.token_entries.setdefault(
                                entry[0], []).append(entry[1:])
                    self.changed.notify_all()
        except (Closed, OSError):
            with self.changed:
                self.closed = True
                self.changed.notify_all()

    def send(self, data):
        self.sock.sendall(data)

    def close(self):
        try:
            self.sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self.sock.close()

    def until(self, what, found, limit_s=20):
        """The first true answer of found(frames)."""
        end = time.monotonic() + limit_s * settings.scale
        with self.changed:
            while True:
                got = found(self.frames)
                if got:
                    return got
                if self.closed:
                    raise AssertionError(f'closed while waiting for {what}')
                left = end - time.monotonic()
                if left <= 0:
                    seen = [(k, r) for k, r, _ in self.frames][-12:]
                    raise AssertionError(f'no {what} in time; last {seen}')
                self.changed.wait(left)

    def wait(self, kind, rid=None, limit_s=20):
        return self.until(
            f'frame {kind} of {rid}',
            lambda frames: [p or b'\0' for k, _, p in (
                frames if rid is None else self.by_id.get(rid, []))
                            if k == kind], limit_s)[-1]

    def forget(self, rid):
        """As if nothing had come about this request yet."""
        with self.changed:
            self.by_id.pop(rid, None)

    def wait_closed(self, limit_s=20):
        end = time.monotonic() + limit_s * settings.scale
        with self.changed:
            while not self.closed:
                left = end - time.monotonic()
                if left <= 0:
                    raise AssertionError('not closed in time')
                self.changed.wait(left)


class WorkerLink(Link):
    """The conductor's side of a worker's connection."""

    def __init__(self, sock):
        super().__init__(sock)
        self.hello = parse_hello(self.wait(HELLO))

    @property
    def address(self):
        return self.hello['host'], self.hello['port']

    def prefill(self, rid, tokens, max_tokens=1, decode=None, fetch=None,
                blocks=(0, 0), key_seed=5, mode=AUTO, sources=(), cost_us=0,
                group=b''):
        """sources: (address, None for the own disk, or SHARED; from block, to
        block);
        fetch and blocks are the short way to one."""
        host, port = decode or ('', 0)
        if fetch:
            sources = [(fetch, *blocks)]
        named = b''.join(
            struct.pack('<B', SHARED if address == SHARED else
                        PEER if address else DISK) +
            text(address[0] if address not in (None, SHARED) else '') +
            struct.pack('<HII', address[1] if address not in (None, SHARED)
                        else 0, first, end)
            for address, first, end in sources)
        self.send(frame(PREFILL_GROUP if group else PREFILL, rid, group +
                        struct.pack('<QIQQQ', key_seed, max_tokens, cost_us, 0,
                                    0) + text(host) + struct.pack('<H', port) +
                        struct.pack('<BB', mode, len(sources)) + named +
                        struct.pack(f'<I{len(tokens)}I', len(tokens),
                                    *tokens)))

    def lead(self, rid, tokens, max_tokens, members, chunk, layer, **more):
        """A prefill by a group: members ((host, port), end layer)."""
        self.prefill(rid, tokens, max_tokens, mode=COMPUTE, group=struct.pack(
            '<IIB', chunk, layer, len(members)) + b''.join(
                text(host) + struct.pack('<HI', port, end)
                for (host, port), end in members), **more)

    def decode(self, rid, n_tokens, max_tokens, digest=0):
        self.send(frame(DECODE, rid, struct.pack('<IIQ', n_tokens, max_tokens,
                                                 digest)))

    def decode_of(self, rid, tokens, max_tokens, key_seed=5):
        """Announces a prompt that a real worker will compute."""
        self.decode(rid, len(tokens), max_tokens,
                    prompt_digest(tokens, key_seed))

    def cancel(self, rid):
        self.send(frame(CANCEL, rid))

    def copy(self, rid, peer, keys, first=0, key_seed=5, rate=10 ** 9):
        """Fetch the blocks from `first` on of that chain from a peer."""
        self.send(frame(COPY, rid, struct.pack('<Q', key_seed) + text(peer[0]) +
                        struct.pack(f'<HQII{len(keys)}Q', peer[1], rate, first,
                                    len(keys), *keys)))

    def copied(self, rid, limit_s=20):
        """How many blocks came."""
        return struct.unpack('<I', self.ended(rid, COPIED, limit_s))[0]

    def drop(self, key, n):
        self.send(frame(DROP, 0, struct.pack('<QI', key, n)))

    def switch_role(self, role):
        self.send(frame(ROLE, 0, struct.pack('<B', role)))

    def prefill_done(self, rid, limit_s=20):
        names = ('first', 'local', 'fetched', 'computed', 'disk', 'queue_us',
                 'fetch_us', 'fetch_bytes', 'prefill_us', 'load_us',
                 'disk_bytes', 'load_mode', 'shared', 'shared_bytes')
        return dict(zip(names, struct.unpack(
            '<IIIIIQQQQQQBIQ', self.ended(rid, PREFILL_DONE, limit_s))))

    def ended(self, rid, kind, limit_s=20):
        """The frame `kind` of rid; FAILED of rid is an error."""
        def found(_):
            for k, _, p in self.by_id.get(rid, []):
                if k == kind:
                    return p or b'\0'
                if k == FAILED:
                    raise AssertionError(f'{rid} FAILED: {parse_reason(p)}')
            return None
        return self.until(f'frame {kind} of {rid}', found, limit_s)

    def tokens(self, rid):
        """Those of TOKENS frames, by index."""
        with self.changed:
            entries = self.token_entries.get(rid, [])
            out = dict(entries)
        assert len(out) == len(entries), 'a token came twice'
        return out

    def answer(self, rid, first, limit_s=60):
        """All tokens of a request that decodes here."""
        n, = struct.unpack('<I', self.ended(rid, DONE, limit_s))
        rest = self.tokens(rid)
        assert sorted(rest) == list(range(1, n)), (rid, n, sorted(rest))
        return [first] + [rest[i] for i in range(1, n)]

    def failure(self, rid, limit_s=20):
        return parse_reason(self.ended(rid, FAILED, limit_s))

    def held(self, tier=HOST):
        """Keys that the worker has reported in a tier and not taken back."""
        keys = set()
        with self.changed:
            for kind, _, p in self.frames:
                if kind in (BLOCKS_STORED, BLOCKS_REMOVED) and p[0] != tier:
                    continue
                if kind == BLOCKS_STORED:
                    parent, = struct.unpack_from('<Q', p, 1)
                    assert parent == 0 or parent in keys, 'orphan'
                    new = struct.unpack_from(f'<{(len(p) - 13) // 8}Q', p, 13)
                    assert not keys & set(new), 'stored twice'
                    keys |= set(new)
                elif kind == BLOCKS_REMOVED:
                    gone = struct.unpack_from(f'<{(len(p) - 5) // 8}Q', p, 5)
                    assert keys >= set(gone), 'removed what was not there'
                    keys -= set(gone)
                elif kind == BLOCKS_CLEARED:
                    keys = set()
        return keys

    def in_store(self):
        """Keys that the worker has said are in the shared store. It may say
        so twice, and of what is not there that it is gone."""
        keys = set()
        with self.changed:
            for kind, _, p in self.frames:
                if kind == BLOCKS_STORED and p[0] == IN_STORE:
                    keys |= set(struct.unpack_from(
                        f'<{(len(p) - 13) // 8}Q', p, 13))
                elif kind == BLOCKS_REMOVED and p[0] == IN_STORE:
                    keys -= set(struct.unpack_from(
                        f'<{(len(p) - 5) // 8}Q', p, 5))
        return keys

    def shared(self, good, limit_s=20):
        """Waits for a SHARED, from now on, that is good(fields)."""
        names = ('id', 'rate', 'put', 'missed', 'failed', 'away')
        start = len(self.frames)

        def found(frames):
            for kind, _, p in frames[start:]:
                if kind == SHARED_STORE:
                    fields = dict(zip(names, struct.unpack('<QQQQQQ', p)))
                    if good(fields):
                        return fields
            return None
        return self.until('a good SHARED', found, limit_s)

    def status(self, good, limit_s=20):
        """Waits for a STATUS, from now on, that is good(fields)."""
        names = ('queued', 'running', 'decodes', 'used', 'pinned',
                 'disk_used', 'disk_rate')
        start = len(self.frames)

        def found(frames):
            for kind, _, p in frames[start:]:
                if kind == STATUS:
                    fields = dict(zip(names, struct.unpack('<IIIQQQQ', p)))
                    if good(fields):
                        return fields
            return None
        return self.until('a good STATUS', found, limit_s)


class Conductor:
    """Accepts workers and welcomes them."""

    def __init__(self):
        self.listener = socket.create_server(('127.0.0.1', 0))
        self.port = self.listener.getsockname()[1]

    def accept(self, reply=None, limit_s=20):
        self.listener.settimeout(limit_s * settings.scale)
        link = WorkerLink(self.listener.accept()[0])
        link.send(welcome() if reply is None else reply)
        return link

    def close(self):
        self.listener.close()


def connect(address):
    return Link(socket.create_connection(address, timeout=10))


class Holder:
    """A worker of which others fetch blocks of zeroes, over tcp."""

    def __init__(self):
        self.listener = socket.create_server(('127.0.0.1', 0))
        self.link = None  # of the first one that fetches
        self.linked = threading.Event()
        threading.Thread(target=self.accept, daemon=True).start()

    @property
    def address(self):
        return self.listener.getsockname()

    def accept(self):
        try:
            while True:
                sock, _ = self.listener.accept()
                threading.Thread(target=self.serve, args=(sock,),
                                 daemon=True).start()
        except OSError:
            pass  # closed

    def serve(self, sock):
        n, _, _, _ = struct.unpack('<IHHQ', exactly(sock, 16))
        kind = exactly(sock, n)[8]
        sock.sendall(frame(WELCOME, 0, struct.pack('<HQII', VERSION, 8, 0, 0) +
                           text('')))
        if kind == 3:
            self.link = Link(sock)
            self.link.send(transports(0))
            self.linked.set()
            return
        try:
            exactly(sock, 16)  # the token
            while True:
                n, = struct.unpack('<24xQ8x', exactly(sock, 40))
                self.answer(sock, n)
        except (Closed, OSError):
            sock.close()

    def answer(self, sock, n):
        sock.sendall(bytes(8) + bytes(n))

    def wait(self):
        """Its link, when somebody fetches."""
        self.linked.wait(20 * settings.scale)
        return self.link

    def close(self):
        self.listener.close()


class Silent(Holder):
    """A worker that answers nothing."""

    def answer(self, sock, n):
        pass


SILENT = Silent()


def pusher(**hello_fields):
    """What a prefill worker says first whose KV nobody gets."""
    return hello(port=SILENT.address[1], **hello_fields) + transports(1)


class Gate:
    """A peer in front of another one: hands on what both say, but after so many
    pieces whose place it tells keeps the others until open(). They come out of
    shared memory."""

    def __init__(self, behind, blocks=0):
        self.behind = behind
        self.blocks = blocks
        self.closed = False  # and blocks wait
        self.listener = Conductor()
        self.opened = threading.Event()
        threading.Thread(target=self.run, daemon=True).start()

    @property
    def address(self):
        return '127.0.0.1', self.listener.port

    def open(self):
        self.opened.set()

    def run(self):
        try:
            asker = self.listener.listener.accept()[0]
        except OSError:
            return  # closed, and nobody came
        peer = socket.create_connection(self.behind)
        threading.Thread(target=self.hand_on, args=(asker, peer, False),
                         daemon=True).start()
        self.hand_on(peer, asker, True)

    def wait_for_turn(self):
        if self.blocks == 0:
            self.closed = True
            self.opened.wait()
        else:
            self.blocks -= 1

    def hand_on(self, source, sink, gated):
        try:
            while True:
                head = exactly(source, 16)
                n, kind, _, _ = struct.unpack('<IHHQ', head)
                data = exactly(source, n)
                if gated and kind == FETCH_GRANT:
                    self.wait_for_turn()
                sink.sendall(head + data)
        except (Closed, OSError):
            for sock in source, sink:
                sock.close()

    def close(self):
        self.open()
        self.listener.close()
