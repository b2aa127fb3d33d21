"""Limits of keys that several conductors keep together, over a real Redis."""
import json
import time
import unittest

from harness import wait_until
from redis_server import MISSING, REDIS
from test_conductors import SLOW, OverRedis
from test_tenants import bearer, entry

N = 3
ASKS = 30  # a minute
FAST = {'prefill': (200, 5, 0, 0), 'decode': (200, 10, 0)}
# What conductors let in together before Redis has told them of each other.
AHEAD = 4 * N


@unittest.skipUnless(REDIS, MISSING)
class KeyLimits(OverRedis):
    def keyed(self, *tenants, **options):
        path = self.write('tenants.json', json.dumps({'tenants': [
            {**entry(name, f'key of {name}'), **limits}
            for name, limits in tenants]}))
        clusters = self.begin(N, config={
            'tenants_file': path, 'api_keys': 'required'}, **options)
        self.begun = time.monotonic()
        return clusters

    def ask(self, cluster, name, n=2, max_tokens=1):
        return cluster.api.complete(list(range(1, n + 1)), max_tokens,
                                    headers=bearer(f'key of {name}'))

    def wait_ms(self, reply, code):
        """A refusal by that limit says when to come again."""
        self.assertEqual(reply.status, 429, reply.body)
        self.assertEqual(reply.body['error']['code'], code)
        self.assertGreater(int(reply.headers['retry-after']), 0)
        return int(reply.headers['retry-after-ms'])

    def let_in(self, clusters, name):
        """How many are, in turn, until all conductors refuse for longer than
        Redis takes to tell what is left."""
        n, refused = 0, set()
        while len(refused) < len(clusters):
            for c in clusters:
                reply = self.ask(c, name)
                if reply.status == 200:
                    n += 1
                    refused.discard(c.name)
                elif self.wait_ms(reply, 'rate_limit_requests') > 100:
                    refused.add(c.name)
                else:
                    time.sleep(0.02)
        return n

    def drained(self, per_minute):
        return (time.monotonic() - self.begun) * per_minute / 60 + 1

    def alone(self, clusters, value):
        for c in clusters:
            wait_until(f'{c.name}: {value}', lambda c=c: self.metric(
                c, 'state_limits_alone') == value)

    def test_requests(self):
        limit = {'requests_per_minute': ASKS}
        clusters = self.keyed(*((name, limit) for name in (
            'all', 'one', 'gone')), cost=FAST)
        n = self.let_in(clusters, 'all')
        self.assertGreaterEqual(n, ASKS)
        self.assertLessEqual(n, ASKS + AHEAD + self.drained(ASKS))
        # All of it at one of them; the server has lost the script.
        self.redis.command('SCRIPT', 'FLUSH')
        n = self.let_in(clusters[:1], 'one')
        self.assertGreaterEqual(n, ASKS)
        # Without Redis each has a third of what is left.
        self.redis.kill()
        self.alone(clusters, 1)
        for c in clusters:
            n = self.let_in([c], 'gone')
            self.assertGreaterEqual(n, ASKS // N)
            self.assertLessEqual(n, ASKS // N + self.drained(ASKS / N))
            self.assertIn(f'this conductor applies 1/{N} of each', c.conductor.log())
        # It comes back empty, and has what was taken before and meanwhile.
        self.redis.start()
        self.alone(clusters, 0)
        for name in 'all', 'gone':
            n = self.let_in(clusters, name)
            self.assertLessEqual(n, AHEAD + self.drained(ASKS))
        for c in clusters:
            self.assertIn('count over all conductors again',
                          c.conductor.log())
        # What is no book gives way; the others' books are as they were.
        keys = self.redis.command('KEYS', '*limit*')
        self.redis.command('SET', keys[0], 'text')
        for field in 'at', 'asks', 'tokens', 'f' * 16:
            self.redis.command('HSET', keys[1], field, 'text')
        for key in keys[:2]:
            wait_until('it is a book again', lambda k=key: (
                self.redis.command('TYPE', k) == 'hash' and b'text' not in
                self.redis.command('HVALS', k)))
        for name in 'all', 'one', 'gone':
            n = self.let_in(clusters, name)
            self.assertLessEqual(n, AHEAD + self.drained(ASKS))
        for key in self.redis.command('KEYS', '*limit*'):
            self.assertRegex(key, rb'^\{conductor:1\}:limit:[0-9a-f]{16}$')
            self.assertGreater(self.redis.command('PTTL', key), 0)

    def test_tokens_and_in_flight(self):
        clusters = self.keyed(
            ('spends', {'tokens_per_minute': 100}),
            ('holds', {'max_in_flight': 2}), cost=SLOW)
        a, b, c = clusters
        # Tokens count once the request has ended, then everywhere.
        self.assertEqual(self.ask(a, 'spends', n=400).status, 200)
        for x in clusters:
            wait_until(f'{x.name} refuses', lambda x=x: self.ask(
                x, 'spends').status == 429)
            self.assertGreater(self.wait_ms(
                self.ask(x, 'spends'), 'rate_limit_tokens'), 60000)
        # Before c asks: else its request may be what keeps one of them out.
        lost, held = [x.api.hold([1, 2], headers=bearer('key of holds'))
                      for x in (a, b)]
        wait_until('c knows both', lambda: self.ask(
            c, 'holds').status == 429)
        self.wait_ms(self.ask(c, 'holds'), 'rate_limit_in_flight')
        # What a had in work counts until its lease is over.
        a.conductor.kill()
        lost.lost()
        wait_until('c lets one in', lambda: self.ask(
            c, 'holds').status == 200)
        held.end()
