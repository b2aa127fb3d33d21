"""Several conductors in front of the same workers."""
import json
import os
import shutil
import signal
import struct
import threading
import unittest
from http.client import HTTPException

from certificates import Certificates
from harness import (CONDUCTOR, ROOT, Api, Case, Cluster, cost_model_json,
                     free_ports, mostly_waits, program, read_file, total,
                     wait_until)
from redis_server import MISSING, REDIS, RedisServer
from test_failures import in_background

HAPROXY = shutil.which('haproxy', path=os.environ.get('PATH', '') +
                       ':/usr/sbin:/sbin')
PROMPT = list(range(1, 161))
# A token of a decode takes 20 ms, so that answers last.
SLOW = {'prefill': (2000, 20, 0, 0), 'decode': (20000, 0, 0)}


class Conductors(Case):
    def start_all(self, n, config=None, cost=None):
        """n conductors without workers, the first of which starts those."""
        self.clusters = [Cluster(self, config, cost, name=f'c{i}')
                         for i in range(n)]
        for cluster in self.clusters:
            cluster.start_conductor()
        return self.clusters

    def restart(self, cluster):
        """A conductor that has ended, on the ports that it had."""
        for option, port in (('listen', 'http'), ('worker_listen', 'worker')):
            cluster.config[option] = f'127.0.0.1:{cluster.ports[port]}'
        cluster.start_conductor()

    def addresses(self, clusters):
        return ','.join(f'127.0.0.1:{c.ports["worker"]}' for c in clusters)

    def assert_no_token_lost(self, cluster, held):
        """It got what an undisturbed answer has."""
        text = held.text()
        reply = cluster.api.complete(PROMPT, len(text)).ok()
        self.assertEqual(reply.body['choices'][0]['text'], text)

    def wait_all(self, prefill, decode):
        for cluster in self.clusters:
            wait_until(f'{cluster.name} has its workers', lambda c=cluster:
                       c.api.instances() == (prefill, decode))


class Listed(Conductors):
    """Workers that are told of all conductors."""

    def begin(self, n=2, **options):
        clusters = self.start_all(n, cost=SLOW)
        for name, role in (('p0', 'prefill'), ('d0', 'decode')):
            clusters[0].start_worker(name, role, engine='timed',
                                     conductor=self.addresses(clusters),
                                     **options)
        self.wait_all(1, 1)
        return clusters

    def test_each_index_is_whole(self):
        """What one conductor had computed, the other one finds; and who comes
        late finds all of it."""
        a, b = self.begin()
        first = a.api.complete(PROMPT).ok()
        wait_until('b knows the blocks', lambda: total(
            b.api.metrics(), 'conductor_index_holders') == total(
                a.api.metrics(), 'conductor_index_holders') > 0)
        again = b.api.complete(PROMPT)
        self.assertEqual(again.body['choices'], first.body['choices'])
        cached = again.body['usage']['prompt_tokens_details']['cached_tokens']
        self.assertGreater(cached, 100)
        pairs = total(b.api.metrics(), 'conductor_index_holders')
        b.conductor.kill()
        self.restart(b)
        wait_until('it knows them again', lambda: total(
            b.api.metrics(), 'conductor_index_holders') == pairs)

    def test_one_is_killed(self):
        """Its requests end; those of the other one do not notice."""
        a, b = self.begin()
        mine, others = a.api.hold(PROMPT), b.api.hold(PROMPT)
        a.conductor.kill()
        mine.lost()
        wait_until('its worker notices', lambda: '1 of 2 requests are dropped'
                   in a.workers['d0'].log())
        others.goes_on()
        others.end()
        self.assert_no_token_lost(b, others)
        self.assertEqual(total(b.api.metrics(), 'conductor_retries_total'), 0)

    def test_worker_leaves(self):
        """It ends what it has of both first."""
        a, b = self.begin()
        answers = [in_background(lambda c=c: c.api.complete(PROMPT, 40))
                   for c in (a, b)]
        for c in a, b:
            wait_until('it decodes', lambda c=c: total(
                c.api.metrics(), 'conductor_output_tokens_total') > 3)
        a.workers['d0'].child.terminate()
        for answer in answers:
            reply = answer().ok()
        self.assertEqual(a.workers['d0'].wait(), 0)

    def test_one_refuses(self):
        """The worker serves the other one."""
        a, = self.start_all(1)
        other = Cluster(self, {'block_tokens': 32}, name='other')
        other.start_conductor()
        self.clusters.append(other)
        for name, role in (('p0', 'prefill'), ('d0', 'decode')):
            a.start_worker(name, role,
                           conductor=self.addresses([other, a]))
        a.wait_ready(1, 1)
        wait_until('they know', lambda: all(
            'no longer looked for' in w.log() for w in a.workers.values()))
        self.assertEqual(a.api.complete(PROMPT).status, 200)


class Configured(Case):
    def test_wrong_state(self):
        """What is wrong is told, and no password is."""
        for value, word in (('redis://:geheim@a/x', 'number'),
                            ('redis://geheim@a', 'PASSWORD'),
                            ('rediss://:geheim@a', 'stunnel'),
                            ('geheim', 'redis://'),
                            ('redis+sentinel://:geheim@a', '/NAME')):
            status, _, errors = self.run_program(
                program(*CONDUCTOR), '--config',
                self.write('c.json', json.dumps({'state': value})))
            self.assertGreater(status, 0, value)
            self.assertIn('state: ', errors)
            self.assertIn(word, errors)
            self.assertNotIn('geheim', errors)


class OverRedis(Conductors):
    """Conductors that tell each other over Redis what they do."""
    # Long enough for a machine with other work to answer within a third of it.
    LEASE_MS = 1500

    def begin(self, n=2, cost=SLOW, redis=None, config=None, workers=(
            ('p0', 'prefill'), ('d0', 'decode')), **options):
        self.redis = redis or RedisServer(self)
        clusters = self.start_all(n, {
            'state': self.redis.url(), 'state_lease_ms': self.LEASE_MS,
            **(config or {})}, cost)
        for c in clusters:
            wait_until(f'{c.name} knows all', lambda c=c: total(
                c.api.metrics(), 'conductor_state_conductors') == n)
        # Each worker is told of one, and finds the others.
        for i, (name, role) in enumerate(workers):
            clusters[i % n].start_worker(name, role, engine='timed',
                                         **options)
        prefill = sum(role != 'decode' for _, role in workers)
        decode = sum(role != 'prefill' for _, role in workers)
        self.wait_all(prefill, decode)
        return clusters

    def metric(self, cluster, name):
        return total(cluster.api.metrics(), f'conductor_{name}')

    def booked(self, cluster):
        """What a conductor believes that its instances have."""
        values = cluster.api.metrics()
        return {key: value for key, value in values.items() if key.startswith((
            'conductor_instance_prefills', 'conductor_instance_decodes'))}

    def bookings(self, cluster):
        """Likewise, each by its id."""
        return {(x['instance'], x['part'], x['booking'])
                for x in cluster.api.get('/admin/bookings').body['bookings']}

    def wait_foreign(self, cluster, n):
        wait_until(f'{cluster.name} knows of {n} of others', lambda:
                   self.metric(cluster, 'state_foreign_requests') == n)


@unittest.skipUnless(REDIS, MISSING)
class LongLease(OverRedis):
    # version, owner, token, number; kind, request
    ASK = struct.Struct('<BQQQBQ')
    VERSION = 3  # CLUSTER_VERSION of conductor/cluster/event.h

    def test_who_asks_for_all_silences_nobody(self):
        """Twice at once: the second answer is not due yet, and what is decided
        meanwhile is told, long before the next renewal of a lease."""
        redis = RedisServer(self)
        a, b = self.start_all(2, {
            'state': redis.url(), 'state_lease_ms': 60000}, SLOW)
        for name, role in ('p0', 'prefill'), ('d0', 'decode'):
            b.start_worker(name, role, engine='timed')  # b knows of a
        self.wait_all(1, 1)
        key, = redis.command('KEYS', '*:load:*')
        for i in range(2):  # not heard in one turn
            heard = [self.metric(c, 'state_heard_total') for c in (a, b)]
            redis.command('XADD', key, '*', 'e', self.ASK.pack(
                self.VERSION, 77, 1, i, 2, 0))
            for c, n in zip((a, b), heard):
                wait_until('who asks is heard', lambda c=c, n=n: self.metric(
                    c, 'state_heard_total') > n)
        answers = [c.api.hold(PROMPT) for c in (a, b)]
        for c in a, b:
            self.wait_foreign(c, 1)
        for answer in answers:
            answer.end()


@unittest.skipUnless(REDIS, MISSING)
class Shared(OverRedis):
    def test_each_knows_the_others_load(self):
        a, b = self.begin()
        answers = [a.api.hold(PROMPT) for _ in range(3)]
        self.wait_foreign(b, 3)
        wait_until('a has begun all', lambda: total(
            a.api.metrics(), 'conductor_instance_decodes') == 3)
        wait_until('both believe the same', lambda:
                   self.booked(a) == self.booked(b))
        wait_until('of the same requests', lambda: self.bookings(a) ==
                   self.bookings(b) != set())
        ids = [{x['request_id'] for x in c.api.get(
            '/admin/bookings').body['bookings']} for c in (a, b)]
        self.assertEqual(len(ids[0]), 3)
        self.assertEqual(ids[1], {None})  # it took none of them
        for answer in answers:
            answer.end()
        self.wait_foreign(b, 0)
        wait_until('nothing is left', lambda:
                   set(self.booked(b).values()) <= {0})

    def test_tokens_grow_where_the_clock_is_behind(self):
        """Redis is replaced by an empty one, with an earlier clock: what
        conductors tell with the leases that it gives counts, and its leader
        has a higher token than the one that workers know."""
        prefix = '{conductor:1}:'

        def tokens():
            """Of both leases and of the lead."""
            about = self.redis.command('HGETALL', prefix + 'about')
            found = {about[i]: int(about[i + 1].split()[0])
                     for i in range(0, len(about), 2)}
            for key in self.redis.command('KEYS', prefix + 'leader:*'):
                found[key] = int(self.redis.command('GET', key).split()[1])
            return found

        def grown(least):
            now = tokens()
            return len(now) == 3 and all(
                now.get(key, 0) > token for key, token in least.items())
        a, b = self.begin()
        before = tokens()
        later_ms = max(before.values()) + 3600000
        self.redis.command('SET', prefix + 'token', later_ms)
        self.redis.command('DEL', prefix + 'about', prefix + 'conductors',
                           *self.redis.command('KEYS', prefix + 'leader:*'))
        wait_until('leases are of then', lambda: grown(
            dict.fromkeys(before, later_ms)))
        first = a.api.hold(PROMPT)
        self.wait_foreign(b, 1)
        before = tokens()
        self.redis.command('FLUSHALL')
        wait_until('tokens have grown', lambda: grown(before))
        second = a.api.hold(PROMPT)
        self.wait_foreign(b, 2)
        self.assertEqual(self.metric(b, 'state_fenced_total'), 0)
        for answer in first, second:
            answer.end()

    def test_killed_bookings_leave(self):
        """kill -9: in flight there ends, others lose nothing, and its
        bookings are gone with its lease."""
        a, b, c = self.begin(3)
        mine, *others = [x.api.hold(PROMPT) for x in (a, b, c)]
        for x in b, c:
            self.wait_foreign(x, 2)
        a.conductor.kill()
        mine.lost()
        for x in b, c:
            wait_until('the lease is over', lambda x=x: self.metric(
                x, 'state_conductors') == 2)
            self.wait_foreign(x, 1)  # its bookings left
        self.assertEqual(b.api.complete(PROMPT).status, 200)  # it tries again
        for answer in others:
            answer.goes_on()
            answer.end()
        for x in b, c:
            self.assertEqual(self.metric(x, 'retries_total'), 0)
            self.wait_foreign(x, 0)

    def test_killed_at_full_load(self):
        """More requests than fit, from six clients of each conductor: those of
        the one that is killed see one error each, and others serve them."""
        clusters = self.begin(3, workers=(
            ('p0', 'prefill'), ('p1', 'prefill'), ('d0', 'decode'),
            ('d1', 'decode')))
        ends, failed, errors = threading.Event(), [], []
        served = [0] * 3

        def client(home, n):
            at = home
            while not ends.is_set():
                try:
                    reply = clusters[at].api.complete(
                        [(n * 29 + i) % 500 + 1 for i in range(160)], 8)
                except (OSError, HTTPException) as e:
                    (errors if at == 0 else failed).append(e)
                    at = 1
                    continue
                if reply.status != 200:
                    failed.append(reply.body)
                served[home] += 1
        threads = [threading.Thread(target=client, args=(h, 6 * h + k))
                   for h in range(3) for k in range(6)]
        for thread in threads:
            thread.start()

        def all_served(n):
            before = list(served)
            wait_until('all are served', lambda: failed or all(
                now >= then + n for now, then in zip(served, before)))
        all_served(12)
        clusters[0].conductor.kill()
        all_served(24)
        ends.set()
        for thread in threads:
            thread.join()
        self.assertEqual(failed, [])
        self.assertEqual(len(errors), 6)
        for c in clusters[1:]:
            self.assertEqual(self.metric(c, 'retries_total'), 0)
            self.wait_foreign(c, 0)
            wait_until('nothing is left', lambda c=c:
                       set(self.booked(c).values()) <= {0})

    def test_evicted_registry(self):
        """A conductor whose lease was evicted, and that died, is not kept by
        what else says that it was there."""
        a, b = self.begin()
        b.conductor.kill()
        self.redis.command('DEL', '{conductor:1}:conductors')
        wait_until('it is gone', lambda: self.metric(
            a, 'state_conductors') == 1)
        self.assertEqual(len(self.redis.command(
            'HKEYS', '{conductor:1}:about')), 1)

    def test_late_one_is_told_all(self):
        a, b = self.begin()
        answer = a.api.hold(PROMPT)
        self.wait_foreign(b, 1)
        b.conductor.kill()
        self.restart(b)
        self.wait_foreign(b, 1)
        answer.end()
        self.wait_foreign(b, 0)

    def outage(self, begin, end):
        """Decisions go on while Redis is away; then all is known again."""
        a, b = self.begin()
        self.assertEqual(a.api.complete(PROMPT).status, 200)
        begin()
        for c in a, b:
            wait_until('it notices', lambda c=c: self.metric(
                c, 'state_up') == 0)
            self.assertEqual(c.api.complete(PROMPT).status, 200)
        answer = a.api.hold(PROMPT)
        wait_until('nobody leads', lambda: not any(
            self.metric(c, 'state_leader') for c in (a, b)))
        end()
        self.wait_foreign(b, 1)
        for c in a, b:
            self.assertIn('is lost', c.conductor.log())
            wait_until('both are there', lambda c=c: self.metric(
                c, 'state_conductors') == 2)
        answer.end()
        self.wait_foreign(b, 0)
        wait_until('one leads', lambda: sum(
            self.metric(c, 'state_leader') for c in (a, b)) == 1)

    def test_redis_stopped(self):
        self.outage(lambda: self.redis.stop(), lambda: self.redis.go_on())

    def test_redis_killed_and_empty(self):
        self.outage(lambda: self.redis.kill(), lambda: self.redis.start())

    def test_redis_full(self):
        a, b = self.begin()
        self.redis.command('CONFIG', 'SET', 'maxmemory', '1')
        for c in a, b:
            wait_until('it is told', lambda c=c: self.metric(
                c, 'state_up') == 0)
            self.assertIn('OOM', c.conductor.log())
        self.assertEqual(a.api.complete(PROMPT).status, 200)
        self.redis.command('CONFIG', 'SET', 'maxmemory', '0')
        answer = a.api.hold(PROMPT)
        self.wait_foreign(b, 1)
        for c in a, b:
            wait_until('it is over', lambda c=c: self.metric(
                c, 'state_up') == 1)
        answer.end()

    def test_other_values(self):
        """What is of another type under its keys, or no number, gives way to
        what belongs there."""
        a, b = self.begin()
        leader, other = (a, b) if self.metric(a, 'state_leader') else (b, a)
        load, = self.redis.command('KEYS', '*:load:*')
        lead, = self.redis.command('KEYS', '*:leader*')
        for word in 'conductors', 'about':
            self.redis.command('SET', '{conductor:1}:' + word, 'text')
        self.redis.command('SET', '{conductor:1}:token', 'inf')
        self.redis.command('SET', lead, 'nobody')
        self.redis.command('DEL', load)
        self.redis.command('SADD', load, 'text')
        for c in a, b:
            wait_until('both are there', lambda c=c: self.metric(
                c, 'state_leases_total') > 1 and self.metric(
                    c, 'state_conductors') == 2)
        answer = a.api.hold(PROMPT)
        self.wait_foreign(b, 1)
        answer.end()
        wait_until('one leads', lambda: sum(
            self.metric(c, 'state_leader') for c in (a, b)) == 1)
        self.assertEqual(
            self.redis.command('TYPE', load), 'stream')

    def test_redis_sleeps(self):
        """Longer than a lease: no answer waits for it."""
        a, b = self.begin()
        connection = self.redis.connect()
        connection.send('DEBUG', 'SLEEP', '2')
        for c in a, b:
            self.assertEqual(c.api.complete(PROMPT).status, 200)
        connection.reply()
        connection.close()
        answer = a.api.hold(PROMPT)
        self.wait_foreign(b, 1)
        answer.end()

    def test_sentinel(self):
        """The primary dies: the conductors follow the Sentinels to the next
        one, and know of each other again."""
        first = RedisServer(self, 'first')
        second = RedisServer(self, 'second',
                             replicaof=f'127.0.0.1 {first.port}')
        text = (f'sentinel monitor pool 127.0.0.1 {first.port} 2\n'
                'sentinel down-after-milliseconds pool 500\n'
                'sentinel failover-timeout pool 3000\n')
        guards = [RedisServer(self, f'sentinel{i}', text) for i in range(3)]
        wait_until('they know one another', lambda: all(
            g.command('SENTINEL', 'CKQUORUM', 'pool').startswith(
                'OK 3 usable') and
            len(g.command('SENTINEL', 'REPLICAS', 'pool')) == 1
            for g in guards))

        class Guarded:
            def url(self):
                return 'redis+sentinel://' + ','.join(
                    f'127.0.0.1:{g.port}' for g in guards) + '/pool'
        a, b = self.begin(redis=Guarded())
        answer = a.api.hold(PROMPT)
        self.wait_foreign(b, 1)
        first.kill()
        self.wait_foreign(b, 0)  # with a's lease
        wait_until('the second one is told to all', lambda: all(
            g.command('SENTINEL', 'GET-MASTER-ADDR-BY-NAME', 'pool')[1] ==
            str(second.port).encode() for g in guards), limit_s=120)
        self.assertEqual(b.api.complete(PROMPT).status, 200)
        self.wait_foreign(b, 1)
        for c in a, b:
            wait_until('both are there', lambda c=c: self.metric(
                c, 'state_conductors') == 2)
        wait_until('one leads', lambda: sum(
            self.metric(c, 'state_leader') for c in (a, b)) == 1)
        self.assertEqual(len(second.command(
            'HKEYS', '{conductor:1}:about')), 2)
        answer.end()
        self.wait_foreign(b, 0)

    def test_output_buffer_limit(self):
        """What one was not told while it was stopped is more than Redis keeps
        for a client: it goes on behind that, and asks for all."""
        a, b = self.begin()
        self.redis.command('CONFIG', 'SET', 'client-output-buffer-limit',
                           'normal 40000 0 0')
        b.conductor.child.send_signal(signal.SIGSTOP)
        for answer in [in_background(lambda: a.api.complete(PROMPT, 2))
                       for _ in range(150)]:
            self.assertEqual(answer().status, 200)
        b.conductor.child.send_signal(signal.SIGCONT)
        wait_until('it was cut off', lambda: self.metric(
            b, 'state_losses_total') > 0)
        answer = a.api.hold(PROMPT)
        self.wait_foreign(b, 1)
        answer.end()
        self.wait_foreign(b, 0)

    def test_paused_conductor(self):
        """Its lease ends, another one leads; once it goes on, it has a new
        one, and what it has left is known again."""
        a, b = self.begin()
        leader, other = (a, b) if self.metric(a, 'state_leader') else (b, a)
        answer = leader.api.hold(PROMPT)
        self.wait_foreign(other, 1)
        leader.conductor.child.send_signal(signal.SIGSTOP)
        self.wait_foreign(other, 0)
        wait_until('another one leads', lambda: self.metric(
            other, 'state_leader') == 1)
        leader.conductor.child.send_signal(signal.SIGCONT)
        self.wait_foreign(other, 1)
        self.assertEqual(self.metric(leader, 'state_leader'), 0)
        answer.end()

    def test_nothing_in_clear(self):
        """Prompts and answers are in no key and no value of Redis."""
        a, b = self.begin(config={'block_tokens': 16})
        monitor = self.redis.connect()
        monitor.send('MONITOR')
        self.assertEqual(monitor.reply(), 'OK')
        word = 'Rumpelstilzchen'
        reply = a.api.complete(f'{word} dances around the fire. ' * 8, 8,
                               user='Rapunzel').ok()
        self.wait_foreign(b, 0)
        self.redis.command('ECHO', 'the end')
        seen = ''
        while 'the end' not in seen:
            seen += monitor.reply()
        monitor.close()
        self.assertIn('XADD', seen)
        for text in word, 'Rapunzel', reply.body['choices'][0]['text'][:8]:
            self.assertNotIn(text, seen)
        keys = self.redis.command('KEYS', '*')
        for key in keys:
            self.assertTrue(key.startswith(b'{conductor:1}:'), keys)
            self.assertGreater(self.redis.command('PTTL', key), 0, key)


@unittest.skipUnless(REDIS, MISSING)
class Encrypted(Certificates, OverRedis):
    """State and shared store by TLS, where hiredis is 1.0 or later."""

    def test_state_and_store(self):
        _, _, errors = self.run_program(
            program(*CONDUCTOR), '-t', '--config', self.write(
                'c.json', json.dumps({'state': 'rediss://127.0.0.1'})))
        if 'stunnel' in errors:
            self.skipTest('built without hiredis 1.0 or later')
        ca = self.authority()
        self.certificate('127.0.0.1')
        port = free_ports()
        self.redis = RedisServer(
            self, tls_port=port, tls_auth_clients='no',
            tls_cert_file=os.path.join(self.folder, '127.0.0.1.pem'),
            tls_key_file=os.path.join(self.folder, '127.0.0.1.key'))
        self.redis.url = lambda: f'rediss://127.0.0.1:{port}'
        a, b = self.begin(redis=self.redis, config={'state_ca_file': ca},
                          shared_store=self.redis.url(), shared_store_mib=64,
                          shared_store_ca=ca, shared_store_put='all')
        answer = a.api.hold(PROMPT)
        self.wait_foreign(b, 1)
        answer.end()
        for c in a, b:
            wait_until('both read the store', lambda c=c: total(
                c.api.metrics(), 'conductor_instance_shared_store_up') == 2)
        wait_until('blocks are there', lambda: self.redis.command(
            'KEYS', '*:b:*'))


@unittest.skipUnless(REDIS, MISSING)
@unittest.skipUnless(HAPROXY, 'haproxy is not installed')
class Balanced(OverRedis):
    """The example of docs/examples, in front of three conductors."""

    def front(self, clusters):
        text = read_file(ROOT, 'docs', 'examples', 'haproxy-conductors.cfg')
        port = free_ports()
        for ours, own in ((8000, port), *zip((8080, 8090, 8100), (
                c.ports['http'] for c in clusters))):
            self.assertIn(f'127.0.0.1:{ours}', text)
            text = text.replace(f'127.0.0.1:{ours}', f'127.0.0.1:{own}')
        haproxy = self.start('haproxy', [HAPROXY, '-db', '-f', self.write(
            'haproxy-conductors.cfg', text)])
        haproxy.killed = True
        api = Api(port)
        wait_until('it balances', lambda: self.works(api), process=haproxy)
        return api

    def works(self, api):
        try:
            return api.get('/ready').status == 200
        except OSError:
            return False

    @mostly_waits
    def test_rolling_restart(self):
        """All conductors, one after the other, under load: no request
        fails. The front looks every half second, and is believed to have
        looked within four."""
        clusters = self.begin(3, config={'drain_wait_ms': 4000})
        api = self.front(clusters)
        ends, failed, served = threading.Event(), [], []

        def client():
            while not ends.is_set():
                try:
                    reply = api.complete(PROMPT, 4)
                    (served if reply.status == 200 else failed).append(reply)
                except (OSError, HTTPException) as e:
                    failed.append(e)
        threads = [threading.Thread(target=client) for _ in range(4)]
        for thread in threads:
            thread.start()
        for c in clusters:
            c.conductor.child.terminate()
            self.assertEqual(c.conductor.wait(), 0)
            self.restart(c)
            wait_until('it has its workers again', lambda c=c:
                       c.api.instances() == (1, 1))
            wait_until('it is known again', lambda c=c: self.metric(
                c, 'state_conductors') == 3)
        n = len(served)
        wait_until('it goes on', lambda: len(served) > n + 10 or failed)
        ends.set()
        for thread in threads:
            thread.join()
        self.assertEqual(failed, [])


@unittest.skipUnless(REDIS, MISSING)
class Led(OverRedis):
    """What only one conductor does."""

    def test_one_for_each_model(self):
        """Conductors of other workers, on the same Redis, have a leader of
        their own."""
        self.redis = RedisServer(self)
        self.clusters = [
            Cluster(self, {'state': self.redis.url(),
                           'state_lease_ms': self.LEASE_MS, 'model': model,
                           'cost_model': self.write(
                               f'{model}.json',
                               cost_model_json().replace('tiny', model))},
                    name=f'c{i}') for i, model in enumerate(
                        ('tiny', 'tiny', 'other'))]
        for c in self.clusters:
            c.start_conductor()
        for c in self.clusters:
            wait_until('all are there', lambda c=c: self.metric(
                c, 'state_conductors') == 3)
        *tiny, other = self.clusters
        wait_until('the other one leads', lambda: self.metric(
            other, 'state_leader') == 1)
        wait_until('one of the two leads', lambda: sum(self.metric(
            c, 'state_leader') for c in tiny) == 1)

    def test_roles_switch_for_all(self):
        """A worker that the leader switches serves all in its new role; what
        it has of others ends first."""
        workers = (('p0', 'prefill'), ('p1', 'prefill'), ('d0', 'decode'))
        a, b = self.begin(workers=workers)
        leader, other = (a, b) if self.metric(a, 'state_leader') else (b, a)
        refused = other.api.post('/admin/instances/p1/role/decode')
        self.assertError(refused, 409, 'another conductor leads')
        self.assertEqual(refused.body['error']['code'], 'another_leads')
        reply = leader.api.post('/admin/instances/p1/role/decode')
        self.assertLess(reply.status, 300, reply.body)
        self.wait_all(1, 2)
        for c in a, b:
            self.assertEqual(c.api.complete(PROMPT, 4).status, 200)

    def test_paused_leader(self):
        """What it orders when it goes on is refused by the workers."""
        workers = (('p0', 'prefill'), ('p1', 'prefill'), ('d0', 'decode'))
        a, b = self.begin(workers=workers)
        leader, other = (a, b) if self.metric(a, 'state_leader') else (b, a)
        leader.conductor.child.send_signal(signal.SIGSTOP)
        wait_until('another one leads', lambda: self.metric(
            other, 'state_leader') == 1)
        # It is told to switch a role before it can know that it leads no more.
        order = in_background(lambda: leader.api.post(
            '/admin/instances/p1/role/decode'))
        leader.conductor.child.send_signal(signal.SIGCONT)
        reply = order()
        wait_until('it knows', lambda: self.metric(
            leader, 'state_leader') == 0)
        if reply.status < 300:
            wait_until('it was ignored', lambda: 'another one leads' in
                       (leader.workers | other.workers)['p1'].log())
        self.assertEqual(other.api.instances(), (2, 1))
        self.assertEqual(other.api.complete(PROMPT, 4).status, 200)
