"""Stands between an engine's KV events and who subscribes to them, and loses
messages as it is told: some of them live only, so that a replay has them, some
for good. Remembers all, whatever it loses."""
import threading

import msgpack
import zmq

import engines
import harness
from publisher import END


class Life:
    """The messages of one process of the engine."""

    def __init__(self, began_s):
        self.began_s, self.ended_s = began_s, float('inf')
        self.messages = []  # payloads; a message's number is its place
        self.gone = set()   # numbers that no replay gives

    def batch(self, number):
        """(when it was sent, its events)."""
        return msgpack.unpackb(self.messages[number])[:2]


class Relay:
    def __init__(self, mocker, rng, clock):
        self.mocker, self.rng, self.clock = mocker, rng, clock
        self.events_port = engines.free_ports(1)
        self.replay_port = engines.free_ports(1)
        self.lives = [Life(clock())]
        self.drops = self.loses = 0.  # of 1
        self.dropped = self.lost = 0
        self.orders, self.done = [], threading.Event()
        self.context = zmq.Context()
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.order(lambda: None, start=True)

    def order(self, what, start=False):
        """Has it done between two messages."""
        self.done.clear()
        self.orders.append(what)
        if start:
            self.thread.start()
        if not self.done.wait(60 * harness.settings.scale):
            raise AssertionError('the relay does not answer')

    def open(self):
        self.pub = self.context.socket(zmq.PUB)
        self.router = self.context.socket(zmq.ROUTER)
        for socket, port in ((self.pub, self.events_port),
                             (self.router, self.replay_port)):
            socket.linger = 0
            socket.sndhwm = 0
            self.bind(socket, f'tcp://127.0.0.1:{port}')

    @staticmethod
    def bind(socket, at):
        """An earlier socket may still be on its way out."""
        def bound():
            try:
                socket.bind(at)
            except zmq.ZMQError:
                return False
            return True
        harness.wait_until(f'{at} is free', bound)

    def close(self):
        for socket in self.pub, self.router:
            socket.close()

    def run(self):
        self.sub = self.context.socket(zmq.SUB)
        self.sub.linger, self.sub.rcvhwm = 0, 0
        self.sub.subscribe(b'')
        self.sub.connect(f'tcp://127.0.0.1:{self.mocker.events_port}')
        self.open()
        while True:
            while self.orders:
                what = self.orders.pop(0)
                if what is None:
                    return
                what()
                self.done.set()
            if not self.router.closed and self.router.poll(0):
                self.replay()
            if self.sub.poll(5):
                _, number, payload = self.sub.recv_multipart()
                self.take(int.from_bytes(number, 'big'), payload)

    def take(self, number, payload):
        life = self.lives[-1]
        if number < len(life.messages):
            return  # fetched before
        if number > len(life.messages):
            self.fetch(life, number)
        life.messages.append(payload)
        if self.pub.closed:
            return
        if self.rng.random() >= self.drops:
            self.pub.send_multipart([b'', number.to_bytes(8, 'big'), payload])
            return
        self.dropped += 1
        if self.rng.random() < self.loses:
            self.lost += 1
            life.gone.add(number)

    def fetch(self, life, until=None):
        """What the engine says again, up to a number or to the last one."""
        with self.context.socket(zmq.DEALER) as asks:
            asks.linger = 0
            asks.connect(f'tcp://127.0.0.1:{self.mocker.replay_port}')
            asks.send_multipart([b'', len(life.messages).to_bytes(8, 'big')])
            while asks.poll(10000 * harness.settings.scale):
                *_, number, payload = asks.recv_multipart()
                if number == END or \
                        int.from_bytes(number, 'big') == until:
                    return
                if int.from_bytes(number, 'big') == len(life.messages):
                    life.messages.append(payload)
            raise AssertionError('the engine replays nothing')

    def replay(self):
        who, _, first = self.router.recv_multipart()
        life = self.lives[-1]
        for number in range(int.from_bytes(first, 'big'), len(life.messages)):
            if number not in life.gone:
                self.router.send_multipart(
                    [who, b'', b'', number.to_bytes(8, 'big'),
                     life.messages[number]])
        self.router.send_multipart([who, b'', b'', END, b''])

    # What others ask for.

    def restart(self):
        """Kills the engine and starts it again."""
        self.order(self.close)
        self.mocker.kill()
        self.lives[-1].ended_s = self.clock()
        self.mocker.start()

        def begin():
            self.lives.append(Life(self.lives[-1].ended_s))
            self.open()
        self.order(begin)

    def complete(self):
        """Has all that the engine has said."""
        self.order(lambda: self.fetch(self.lives[-1]))

    def heal(self):
        """Loses nothing from now on, forgets nothing, and connects anew."""
        self.drops = 0.

        def begin():
            self.lives[-1].gone.clear()
            self.close()
            self.open()
        self.order(begin)

    def stop(self):
        self.orders.append(None)
        self.thread.join()
        self.close()
        self.sub.close()
        self.context.term()
