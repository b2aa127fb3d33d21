"""Stands in for an engine that publishes KV events: it does on command what
no real one does. And a slow recount of what an engine has said."""
import random
import threading
import time
import unittest

try:
    import msgpack
    import zmq
except ImportError as error:
    raise unittest.SkipTest(f'{error}; see tests/engines/install') from error

END = b'\xff' * 8


class Cache:
    """What an engine holds: counts of copies, and the blocks' contents."""

    def __init__(self, block_tokens):
        self.block_tokens = block_tokens
        self.copies = {}  # (hash, medium)
        self.content = {}  # hash: all tokens up to the block's end

    def apply(self, events):
        for event in events:
            medium = event.get('medium')
            if event['type'] == 'AllBlocksCleared':
                self.copies.clear()
                continue
            for i, h in enumerate(event['block_hashes']):
                n = self.copies.get((h, medium), 0)
                if event['type'] == 'BlockStored':
                    self.copies[h, medium] = n + 1
                    if event['token_ids']:
                        self.learn(event, i)
                elif n > 1:
                    self.copies[h, medium] = n - 1
                else:
                    self.copies.pop((h, medium), None)

    def learn(self, event, i):
        parent = (event['parent_block_hash'] if i == 0
                  else event['block_hashes'][i - 1])
        before = () if parent is None else self.content.get(parent)
        if before is not None:
            tokens = event['token_ids'][i * self.block_tokens:
                                        (i + 1) * self.block_tokens]
            self.content[event['block_hashes'][i]] = before + tuple(tokens)

    def leading(self, tokens):
        """How many leading blocks of a prompt are held."""
        held = {self.content[h] for h, _ in self.copies if h in self.content}
        n = 0
        while (n + 1) * self.block_tokens <= len(tokens) and \
                tuple(tokens[:(n + 1) * self.block_tokens]) in held:
            n += 1
        return n


class Publisher:
    """Publishes batches as vLLM does, and replays them."""

    def __init__(self, port, replay_port=None, connect=False, old_shape=False,
                 topic=b'kv@tiny', rank=0, remembers=10000):
        self.port, self.replay_port = port, replay_port
        self.connect, self.old_shape = connect, old_shape
        self.topic, self.rank, self.remembers = topic, rank, remembers
        self.answers_replay = True
        self.answers_behind = 0  # messages published between question and answer
        self.drops = set()  # numbers left out of an answer behind its first
        self.asked = []  # first numbers
        self.lock = threading.Lock()
        self.start()

    def start(self):
        """As a new process: numbers from 0, nothing remembered."""
        self.number, self.sent = 0, []
        self.context = zmq.Context()
        self.socket = self.context.socket(zmq.XPUB)
        self.socket.linger = 0
        at = f'tcp://127.0.0.1:{self.port}'
        (self.socket.connect if self.connect else self.socket.bind)(at)
        self.stopped = False
        self.thread = None
        if self.replay_port:
            self.thread = threading.Thread(target=self.replay, daemon=True)
            self.thread.start()

    def stop(self):
        self.stopped = True
        if self.thread:
            self.thread.join()
        self.socket.close()
        self.context.term()

    def wait_subscribed(self):
        """Until what it publishes from now on is heard."""
        assert self.socket.poll(120000)

    def publish(self, events, lose=False, payload=None, form=list):
        """Sends a batch, or only remembers it."""
        if payload is None:
            batch = [time.time(), events, self.rank]
            if form is dict:
                batch = dict(zip(('ts', 'events', 'data_parallel_rank'), batch))
            payload = msgpack.packb(batch)
        number = self.number.to_bytes(8, 'big')
        with self.lock:
            self.sent = [*self.sent, (self.number, payload)][-self.remembers:]
        self.number += 1
        if not lose:
            self.socket.send_multipart([self.topic, number, payload])

    def replay(self):
        router = self.context.socket(zmq.ROUTER)
        router.linger = 0
        router.bind(f'tcp://127.0.0.1:{self.replay_port}')
        topic = [] if self.old_shape else [self.topic]
        while not self.stopped:
            if not router.poll(20):
                continue
            who, empty, first = router.recv_multipart()
            assert empty == b''
            first = int.from_bytes(first, 'big')
            self.asked.append(first)
            if not self.answers_replay:
                continue
            behind = self.number + self.answers_behind
            while self.number < behind and not self.stopped:
                time.sleep(.01)
            with self.lock:
                sent = list(self.sent)
            for number, payload in sent:
                if number == first or \
                        number > first and number not in self.drops:
                    router.send_multipart([who, b'', *topic,
                                           number.to_bytes(8, 'big'), payload])
            router.send_multipart([who, b'', *(topic and [b'']), END, b''])
        router.close()


class Engine:
    """Makes events as an engine would: stores prompts, removes from the end."""

    def __init__(self, seed, block_tokens, copies=1):
        self.rng = random.Random(seed)
        self.block_tokens = block_tokens
        self.cache = Cache(block_tokens)
        self.prompts = [[self.rng.randrange(100000)
                         for _ in range(block_tokens * 12)]
                        for _ in range(6)]
        self.hashes = {}

    def hash_of(self, tokens):
        return self.hashes.setdefault(
            tuple(tokens), self.rng.randrange(2**64))

    def prompt(self):
        """A prompt that shares a beginning with others, or one of its own."""
        base = self.rng.choice(self.prompts)
        cut = self.rng.randrange(1, 12) * self.block_tokens
        if self.rng.random() < .5:
            return base[:cut]
        return base[:cut] + [self.rng.randrange(100000)
                             for _ in range(2 * self.block_tokens)]

    def stored(self, tokens, since=0, medium='GPU', **more):
        size = self.block_tokens
        chain = [self.hash_of(tokens[:(i + 1) * size])
                 for i in range(len(tokens) // size)]
        return {'type': 'BlockStored', 'block_hashes': chain[since:],
                'parent_block_hash': chain[since - 1] if since else None,
                'token_ids': tokens[since * size:len(chain) * size],
                'block_size': size, 'medium': medium, **more}

    def step(self):
        """The events of one step; the cache has them applied."""
        events = []
        tokens = self.prompt()
        have = self.cache.leading(tokens)
        if have * self.block_tokens < len(tokens):
            events.append(self.stored(tokens, have))
        elif have:  # the last block is computed, and stored, again
            events.append(self.stored(tokens, have - 1))
        for (h, medium), _ in self.rng.sample(
                sorted(self.cache.copies.items()),
                min(len(self.cache.copies), self.rng.randrange(3))):
            if h not in events[0]['block_hashes'] and \
                    h != events[0]['parent_block_hash']:
                events.append({'type': 'BlockRemoved', 'block_hashes': [h],
                               'medium': medium})
        self.cache.apply(events)
        return events
