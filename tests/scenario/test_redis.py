"""A connection to Redis: limits, losses, silent servers, replicas, Sentinels,
clusters, TLS."""
import os
import shutil
import socket
import subprocess
import threading
import time
import unittest

from certificates import Certificates
from harness import (ROOT, Case, die_with_parent, free_ports, program,
                     read_file, wait_until)
from redis_server import MISSING, REDIS, RedisServer


class Probe:
    """tests/unit/redis_probe: commands go in, what becomes of them comes
    out."""

    def __init__(self, case, url, timeout_ms=1000, max_flight=100,
                 max_bytes=1 << 20, ca=()):
        self.case = case
        self.sent = 0
        self.log = open(case.write('probe.log', ''), 'w+', encoding='utf-8')
        self.child = subprocess.Popen(
            [program('tests', 'unit', 'redis_probe'), url, str(timeout_ms),
             str(max_flight), str(max_bytes), *ca], text=True, bufsize=1,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log,
            preexec_fn=die_with_parent)

    def line(self):
        return self.child.stdout.readline().rstrip('\n')

    def expect(self, *lines):
        for line in lines:
            self.case.assertEqual(self.line(), line)

    def send(self, text):
        self.child.stdin.write(text + '\n')
        self.sent += 1

    def ask(self, text, answer):
        self.send(text)
        self.expect(f'{self.sent} {answer}')

    def logged(self):
        self.log.seek(0)
        return self.log.read()

    def end(self):
        """What it counted."""
        self.child.stdin.close()
        rest = self.child.stdout.read().splitlines()
        self.child.stdout.close()
        self.case.assertEqual(self.child.wait(), 0, self.logged())
        self.case.assertNotIn('Sanitizer', self.logged())
        self.log.close()
        return rest


STUNNEL = shutil.which('stunnel', path=os.environ.get('PATH', '') + ':/usr/sbin')


@unittest.skipUnless(REDIS, MISSING)
class Tls(Certificates, Case):
    """A server with TLS, whose certificate is for 127.0.0.1."""

    def begin(self):
        self.ca = self.authority()
        self.certificate('127.0.0.1')
        self.server = RedisServer(
            self, requirepass='secret', tls_port=free_ports(),
            tls_cert_file=os.path.join(self.folder, '127.0.0.1.pem'),
            tls_key_file=os.path.join(self.folder, '127.0.0.1.key'),
            tls_auth_clients='no')
        self.port = int(self.server.command('CONFIG', 'GET', 'tls-port')[1])

    def test_stunnel(self):
        """The example of docs/examples, where hiredis speaks no TLS."""
        if not STUNNEL:
            self.skipTest('stunnel is not installed')
        self.begin()
        text = read_file(ROOT, 'docs', 'examples', 'stunnel-redis.conf')
        own = free_ports()
        for ours, now in (
                ('127.0.0.1:6380', f'127.0.0.1:{own}'),
                ('redis.example:6379', f'127.0.0.1:{self.port}'),
                ('checkHost = redis.example', 'checkIP = 127.0.0.1'),
                ('/etc/ssl/certs/ca-certificates.crt', self.ca)):
            self.assertIn(ours, text)
            text = text.replace(ours, now)
        self.start('stunnel', [STUNNEL, self.write('stunnel.conf', text)]
                   ).killed = True
        probe = Probe(self, f'redis://:secret@127.0.0.1:{own}')
        probe.expect('up')
        probe.ask('SET k v', 'OK')
        probe.end()

    def refusal(self, url, ca):
        probe = Probe(self, url, ca=[ca])
        self.addCleanup(probe.child.kill)
        wait_until('it has an end', lambda: 'cannot be used' in
                   probe.logged() or 'is connected' in probe.logged())
        log = probe.logged()
        self.assertNotIn('is connected', log)
        probe.child.stdin.close()
        probe.child.stdout.close()
        probe.child.wait()
        probe.log.close()
        return log

    def test_own(self):
        """rediss://; who shows another certificate gets no password."""
        self.begin()
        url = f'rediss://:secret@127.0.0.1:{self.port}'
        probe = Probe(self, url, ca=[self.ca])
        if probe.child.poll() or not (line := probe.line()):
            probe.child.wait()
            self.assertIn('stunnel', probe.logged())
            self.skipTest('built without hiredis 1.0 or later')
        self.assertEqual(line, 'up')
        probe.ask('SET k ' + 'v' * 200000, 'OK')
        probe.ask('STRLEN k', '200000')
        self.server.stop()
        probe.send('PING')
        probe.expect('3 none', 'down')
        self.server.go_on()
        probe.expect('up')
        probe.end()
        self.assertIn('certificate', self.refusal(
            url, self.authority('other')))
        self.assertIn('certificate', self.refusal(
            url.replace('127.0.0.1', 'localhost'), self.ca))


@unittest.skipUnless(REDIS, MISSING)
class Redis(Case):
    def test_commands(self):
        server = RedisServer(self, requirepass='a@b')
        probe = Probe(self, f'redis://:a%40b@127.0.0.1:{server.port}/3')
        probe.expect('up')
        probe.ask('SET k v', 'OK')
        probe.ask('GET k', 'v')
        probe.ask('GET none', 'nil or more')
        probe.ask('INCR k', 'ERR value is not an integer or out of range')
        self.assertIsNone(server.command('GET', 'k'))  # of database 0
        probe.ask('SET k ' + 'x' * (1 << 20), 'refused: '
                  'No buffer space available')
        self.assertNotIn('a@b', probe.logged())
        self.assertEqual(probe.end(), ['commands 7 replies 7'])

    def test_wrong_password(self):
        server = RedisServer(self, requirepass='right')
        probe = Probe(self, f'redis://:wrong@127.0.0.1:{server.port}')
        wait_until('it says why', lambda: 'cannot be used' in probe.logged())
        self.assertIn('WRONGPASS', probe.logged())
        probe.ask('PING', 'refused: Transport endpoint is not connected')
        server.command('CONFIG', 'SET', 'requirepass', 'wrong')
        probe.expect('up')
        probe.end()

    def test_end_while_it_connects(self):
        """It is no fault of the server, and is not logged as one."""
        silent = socket.create_server(('127.0.0.1', 0))
        self.addCleanup(silent.close)
        probe = Probe(self, 'redis://127.0.0.1:'
                      f'{silent.getsockname()[1]}', timeout_ms=600000)
        self.addCleanup(silent.accept()[0].close)
        probe.end()
        self.assertNotIn('cannot be used',
                         read_file(self.folder, os.path.basename(
                             probe.log.name)))

    def test_silent_and_full(self):
        """A server that is stopped: nothing waits, all is answered once."""
        server = RedisServer(self)
        probe = Probe(self, server.url(), timeout_ms=300, max_flight=2)
        probe.expect('up')
        server.stop()
        probe.send('PING')
        probe.send('PING')
        probe.ask('PING', 'refused: No buffer space available')
        probe.expect('1 none', '2 none', 'down')
        self.assertIn('no answer in time', probe.logged())
        server.go_on()
        probe.expect('up')
        probe.ask('PING', 'PONG')
        probe.end()

    def test_killed_and_empty(self):
        server = RedisServer(self)
        probe = Probe(self, server.url())
        probe.expect('up')
        probe.ask('SET k v', 'OK')
        server.kill()
        probe.expect('down')
        probe.ask('PING', 'refused: Transport endpoint is not connected')
        server.start()
        probe.expect('up')
        probe.ask('GET k', 'nil or more')
        probe.end()

    def test_replica(self):
        """Of several addresses the primary is found, and found again."""
        a = RedisServer(self, 'a')
        b = RedisServer(self, 'b', replicaof=f'127.0.0.1 {a.port}')
        probe = Probe(self, f'redis://127.0.0.1:{b.port},127.0.0.1:{a.port}')
        probe.expect('up')
        probe.ask('SET k v', 'OK')
        wait_until('it is copied', lambda: b.command('GET', 'k') == b'v')
        b.command('REPLICAOF', 'NO', 'ONE')
        a.command('REPLICAOF', '127.0.0.1', b.port)
        probe.send('SET k w')  # at a replica now, if it is still connected
        self.assertRegex(probe.line(), '^2 (READONLY.*|none)|down')
        wait_until('up again', lambda: probe.line() == 'up')
        probe.ask('SET k w', 'OK')
        self.assertEqual(b.command('GET', 'k'), b'w')
        probe.end()

    def test_sentinel(self):
        a = RedisServer(self, 'a')
        b = RedisServer(self, 'b', replicaof=f'127.0.0.1 {a.port}')
        text = (f'sentinel monitor pool 127.0.0.1 {a.port} 2\n'
                'sentinel down-after-milliseconds pool 500\n'
                'sentinel failover-timeout pool 3000\n')
        guards = [RedisServer(self, f'sentinel{i}', text) for i in range(3)]
        probe = Probe(self, 'redis+sentinel://127.0.0.1:1,' + ','.join(
            f'127.0.0.1:{g.port}' for g in guards) + '/pool')
        probe.expect('up')
        probe.ask('SET k v', 'OK')
        wait_until('they know one another', lambda: all(
            g.command('SENTINEL', 'CKQUORUM', 'pool').startswith(
                'OK 3 usable') and
            len(g.command('SENTINEL', 'REPLICAS', 'pool')) == 1
            for g in guards))
        a.kill()
        probe.expect('down', 'up')
        probe.ask('SET k w', 'OK')
        self.assertEqual(b.command('GET', 'k'), b'w')
        probe.end()

    def test_sentinel_without_password(self):
        """As they are set up mostly: only the servers have one. The refusal of
        it comes before the answer, not with it."""
        server = RedisServer(self, requirepass='secret')
        guard = socket.create_server(('127.0.0.1', 0))
        self.addCleanup(guard.close)

        def answer():
            s = guard.accept()[0]
            while b'get-master-addr-by-name' not in s.recv(65536):
                pass
            s.sendall(b'-ERR AUTH <password> called without any password '
                      b'configured for the default user.\r\n')
            time.sleep(0.1)
            port = str(server.port)
            s.sendall(b'*2\r\n$9\r\n127.0.0.1\r\n$%d\r\n%s\r\n' % (
                len(port), port.encode()))
        threading.Thread(target=answer, daemon=True).start()
        probe = Probe(self, 'redis+sentinel://:secret@127.0.0.1:'
                      f'{guard.getsockname()[1]}/pool', timeout_ms=10000)
        self.addCleanup(probe.child.kill)
        wait_until('it is up, or has given up', lambda: 'is connected' in
                   probe.logged() or 'cannot be used' in probe.logged())
        self.assertIn('is connected', probe.logged())
        probe.expect('up')
        probe.ask('SET k v', 'OK')
        probe.end()

    def test_cluster(self):
        """Two servers that share the slots: the one with the key's is
        found."""
        bus = free_ports()  # told, for it would be 10,000 above the port
        a = RedisServer(self, 'a', cluster_enabled='yes',
                        cluster_port=free_ports())
        b = RedisServer(self, 'b', cluster_enabled='yes', cluster_port=bus)
        a.command('CLUSTER', 'ADDSLOTSRANGE', 0, 8191)
        b.command('CLUSTER', 'ADDSLOTSRANGE', 8192, 16383)
        b.command('CLUSTER', 'SET-CONFIG-EPOCH', 2)
        a.command('CLUSTER', 'MEET', '127.0.0.1', b.port, bus)
        wait_until('they are one', lambda: all(
            b'cluster_state:ok' in s.command('CLUSTER', 'INFO')
            for s in (a, b)))
        slot = a.command('CLUSTER', 'KEYSLOT', '{conductor:1}')
        first, then = (a, b) if slot > 8191 else (b, a)
        probe = Probe(self, first.url())
        probe.expect('up')
        probe.send('SET {conductor:1}:k v')
        self.assertRegex(probe.line(), f'MOVED {slot} 127.0.0.1:{then.port}')
        probe.expect('down', 'up')
        probe.ask('SET {conductor:1}:k v', 'OK')
        probe.end()
