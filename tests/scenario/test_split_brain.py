"""Conductors in two halves: one without Redis, or each with one of its own."""
import socket
import threading
import unittest

from harness import Cluster, mostly_waits, total, wait_until
from redis_server import MISSING, REDIS, RedisServer
from test_conductors import PROMPT, SLOW, OverRedis
from test_failures import in_background


class Road:
    """A way to a server, which can be cut."""

    def __init__(self, port):
        self.port, self.open = port, True
        self.ends = set()
        self.listener = socket.create_server(('127.0.0.1', 0))
        self.own = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            near = far = None
            try:
                near = self.listener.accept()[0]
                far = self.open and socket.create_connection(
                    ('127.0.0.1', self.port))
            except OSError:
                if self.listener.fileno() < 0:
                    return
            if not far:
                if near:
                    near.close()
                continue
            self.ends |= {near, far}
            for a, b in (near, far), (far, near):
                threading.Thread(target=self.carry, args=(a, b),
                                 daemon=True).start()

    def carry(self, a, b):
        try:
            while data := a.recv(65536):
                b.sendall(data)
        except OSError:
            pass
        for end in a, b:
            self.end(end)

    @staticmethod
    def end(s):
        try:
            s.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass

    def cut(self):
        self.open = False
        for s in self.ends:
            self.end(s)

    def close(self):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        self.cut()
        for s in self.ends:
            s.close()


@unittest.skipUnless(REDIS, MISSING)
class SplitBrain(OverRedis):
    TOKENS = 30

    def begin_halves(self):
        """Two conductors, and a third, with ways of their own to a primary
        and its replica."""
        self.servers = [RedisServer(self, 'r0')]
        self.servers.append(RedisServer(
            self, 'r1', replicaof=f'127.0.0.1 {self.servers[0].port}'))
        self.roads = [[Road(s.port) for s in self.servers] for _ in range(2)]
        for roads in self.roads:
            for road in roads:
                self.addCleanup(road.close)
        self.clusters = [Cluster(self, {
            'state': 'redis://' + ','.join(
                f'127.0.0.1:{r.own}' for r in self.roads[half]),
            'state_lease_ms': self.LEASE_MS}, SLOW, name=name)
            for name, half in (('a', 0), ('b', 0), ('c', 1))]
        for c in self.clusters:
            c.start_conductor()
        self.knows(self.clusters, 3)
        for name, role in ('p0', 'prefill'), ('d0', 'decode'):
            self.clusters[0].start_worker(name, role, engine='timed')
        self.wait_all(1, 1)
        return self.clusters

    def knows(self, clusters, n):
        for c in clusters:
            wait_until(f'{c.name} knows {n}', lambda c=c: self.metric(
                c, 'state_conductors') == n and self.metric(
                    c, 'state_up') == 1)

    def one_leads(self, clusters):
        wait_until('one of them leads', lambda: sum(
            self.metric(c, 'state_leader') for c in clusters) == 1)

    def each_answers(self):
        """One request of each conductor at once: they are computed once."""
        answers = [in_background(lambda c=c: c.api.complete(
            PROMPT, self.TOKENS)) for c in self.clusters]
        for answer in answers:
            reply = answer().ok()
            self.assertEqual(reply.body['usage']['completion_tokens'],
                             self.TOKENS)

    def each_answers_alone(self):
        """As each_answers(), while there are no others."""
        before = self.sum_of('output_tokens_total')
        self.each_answers()
        self.assertEqual(self.sum_of('output_tokens_total'),
                         before + self.TOKENS * len(self.clusters))

    def end_all(self, held):
        for answer in held:
            answer.end()
        wait_until('they are cancelled', lambda: self.sum_of(
            'requests_in_flight') == 0)

    def sum_of(self, name):
        return sum(self.metric(c, name) for c in self.clusters)

    @mostly_waits
    def test_two_halves(self):
        a, b, c = self.begin_halves()
        before = [x.api.hold(PROMPT) for x in (a, b, c)]
        self.wait_foreign(c, 2)
        # Each half has a Redis, and each Redis believes that it is the one.
        self.roads[0][1].cut()
        self.roads[1][0].cut()
        self.servers[1].command('REPLICAOF', 'NO', 'ONE')
        self.knows((a, b), 2)
        self.knows((c,), 1)
        self.one_leads((a, b))
        self.one_leads((c,))
        self.each_answers()
        self.end_all(before)
        # One half has none.
        self.roads[1][1].cut()
        wait_until('c has none', lambda: self.metric(c, 'state_up') == 0)
        wait_until('c does not lead', lambda: self.metric(
            c, 'state_leader') == 0)
        self.each_answers_alone()
        # Joined: what each has is known to all again.
        during = [x.api.hold(PROMPT) for x in (a, b, c)]
        self.servers[1].command('REPLICAOF', '127.0.0.1',
                                self.servers[0].port)
        for roads in self.roads:
            for road in roads:
                road.open = True
        self.knows((a, b, c), 3)
        self.one_leads((a, b, c))
        for x in a, b, c:
            self.wait_foreign(x, 2)
        self.end_all(during)
        for x in a, b, c:
            self.wait_foreign(x, 0)
            self.assertTrue(x.conductor.alive())
        self.each_answers_alone()
        # Every request was computed, and answered, once.
        self.assertEqual(self.sum_of('requests_total'), 5 * 3)
        self.assertEqual(self.sum_of('retries_total'), 0)
        self.assertEqual(total(b.api.metrics(), 'conductor_requests_total'), 5)
