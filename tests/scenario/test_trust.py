"""Strangers on the ports of workers: without the secret they learn nothing, get
no prompt, and take little memory."""
import hashlib
import hmac
import os
import re
import socket
import struct
import threading

from harness import (BLOCK_TOKENS, CONDUCTOR, WORKER, Case, Peer, cost_model_json,
                     program, settings, wait_until)
import wire

SECRET = 'b5e1 for these tests and no others'
LABELS = {'connects': b'cndr 3 connects ', 'accepts': b'cndr 3 accepts  '}


def proof(side, hello, nonce, secret=SECRET):
    """The payload of PROOF; hello is the payload of the HELLO."""
    return hmac.new(secret.encode(), LABELS[side] + nonce +
                    hashlib.sha256(hello).digest(), 'sha256').digest()


def memory_kib(process):
    with open(f'/proc/{process.child.pid}/status', encoding='ascii') as f:
        return int(re.search(r'VmRSS:\s+(\d+)', f.read()).group(1))


class Trust(Case):
    def secret(self, text=SECRET, mode=0o600, name='secret'):
        path = self.write(name, text)
        os.chmod(path, mode)
        return path

    def pipe(self):
        path = os.path.join(self.folder, 'pipe')
        os.mkfifo(path, 0o600)
        return path

    def trusting(self):
        """A cluster whose members prove a secret, and the fingerprint of its
        model."""
        path = self.secret()
        cluster = self.cluster(config={'secret_file': path}, secret_file=path,
                               log_level='debug')
        return cluster

    def peer_port(self, cluster, name='d0'):
        found = re.search(r'listening for workers on 127.0.0.1:(\d+)',
                          cluster.workers[name].log())
        return int(found.group(1))

    def refused(self, link):
        """It is told that it is refused, and nothing else."""
        link.wait_closed()
        (kind, _, payload), = [f for f in link.frames
                               if f[0] != wire.CHALLENGE]
        self.assertEqual(kind, wire.ERROR)
        self.assertEqual(wire.parse_reason(payload),
                         (11, "the refusing side's log says why"))
        link.close()

    def ports(self, cluster):
        """Where strangers may come: kind of HELLO, port, log."""
        return ((2, cluster.ports['worker'], cluster.conductor),
                (3, self.peer_port(cluster), cluster.workers['d0']))

    def opened(self, port, kind, nonce=b'n' * 32):
        """A connection that was challenged; returns it, its HELLO's payload
        and the nonce of the challenge."""
        link = wire.connect(('127.0.0.1', port))
        hello = wire.hello(kind=kind, block_tokens=BLOCK_TOKENS, nonce=nonce)
        link.send(hello)
        return link, hello[16:], link.wait(wire.CHALLENGE)

    def test_members_work_together(self):
        cluster = self.trusting()
        reply = cluster.api.complete('a prompt that moves between them ' * 9)
        self.assertEqual(reply.status, 200, reply.body)

    def test_a_stranger_learns_nothing(self):
        cluster = self.trusting()
        for kind, port, process in self.ports(cluster):
            for name, data in (
                    ('no hello', wire.frame(wire.STATUS, 0, bytes(44))),
                    ('noise', b'GET / HTTP/1.1\r\nHost: x\r\n\r\n'),
                    ('a worker of no secret', None)):
                with self.subTest(name, kind=kind):
                    if data:
                        link = wire.connect(('127.0.0.1', port))
                        link.send(data)
                    else:
                        link, _, _ = self.opened(port, kind)
                        link.send(wire.frame(wire.STATUS, 0, bytes(44)))
                    if name == 'noise':
                        link.wait_closed()
                        self.assertNotIn(b'fingerprint', repr(
                            link.frames).encode())
                        link.close()
                    else:
                        self.refused(link)
            self.assertIn('not HELLO', process.log())

    def test_wrong_proofs(self):
        cluster = self.trusting()
        for kind, port, process in self.ports(cluster):
            link, hello, nonce = self.opened(port, kind)
            link.close()
            replayed = proof('connects', hello, nonce)
            for name, mac in {
                    'another secret': lambda hello, nonce: proof(
                        'connects', hello, nonce, SECRET + '!'),
                    'zeroes': lambda hello, nonce: bytes(32),
                    'of another connection': lambda hello, nonce: replayed,
                    'of the other side': lambda hello, nonce: proof(
                        'accepts', hello, nonce),
                    'the challenge': lambda hello, nonce: nonce,
                    'of another HELLO': lambda hello, nonce: proof(
                        'connects', hello[:-1] + b'x', nonce)}.items():
                with self.subTest(name, kind=kind):
                    link, hello, now = self.opened(port, kind)
                    self.assertNotEqual(now, nonce)
                    link.send(wire.frame(wire.PROOF, 0, mac(hello, now)))
                    self.refused(link)
            self.assertEqual(process.log().count(
                'proof of the secret is wrong'), 6)

    def test_the_right_proof(self):
        """A side with the right proof learns what does not fit, and gets one."""
        cluster = self.trusting()
        for kind, port, _ in self.ports(cluster):
            link, hello, nonce = self.opened(port, kind)
            link.send(wire.frame(wire.PROOF, 0,
                                 proof('connects', hello, nonce)))
            self.assertEqual(link.wait(wire.PROOF),
                             proof('accepts', hello, nonce))
            self.assertEqual(wire.parse_reason(link.wait(wire.ERROR))[0], 3)
            link.close()

    def test_reflection(self):
        """A stranger that plays a conductor sends a worker back what it gets
        from one: as proof it is worth nothing."""
        played = wire.Conductor()
        path = self.secret()
        worker = self.start('w', [
            program(*WORKER), '--conductor', f'127.0.0.1:{played.port}',
            '--secret-file', path, '--block-tokens', '16', '--name', 'w'])
        played.listener.settimeout(20 * settings.scale)
        link = wire.Link(played.listener.accept()[0])
        hello = link.wait(wire.HELLO)
        link.send(wire.frame(wire.CHALLENGE, 0, hello[-32:]))
        mac = link.wait(wire.PROOF)
        self.assertEqual(mac, proof('connects', hello, hello[-32:]))
        link.send(wire.frame(wire.PROOF, 0, mac) + wire.welcome())
        wait_until('the worker gives it up', lambda: not worker.alive())
        self.assertIn('its proof of the secret is wrong', worker.log())
        self.stop_refused(worker)
        played.close()

    def stop_refused(self, worker):
        """It ended with an error, as it should."""
        self.processes.remove(worker)

    def test_a_conductor_without_secret(self):
        """A worker that has one gives its inventory to nobody without."""
        played = wire.Conductor()
        worker = self.start('w', [
            program(*WORKER), '--conductor', f'127.0.0.1:{played.port}',
            '--secret-file', self.secret(), '--block-tokens', '16'])
        link = played.accept(reply=b'')
        link.send(wire.welcome())
        wait_until('the worker gives it up', lambda: not worker.alive())
        self.assertIn('does not prove', worker.log())
        self.assertEqual({k for k, _, _ in link.frames}, {wire.HELLO})
        self.stop_refused(worker)
        played.close()

    def test_a_worker_without_secret(self):
        cluster = self.trusting()
        for name, options in (('none', {}), ('other', {
                'secret_file': self.secret('no' + SECRET, name='other')})):
            worker = cluster.start_worker(name, 'prefill', **options)
            wait_until('it gives up', lambda w=worker: not w.alive())
            self.assertIn('secret' if name == 'none' else 'log says why',
                          worker.log())
            self.stop_refused(worker)
            del cluster.workers[name]
        self.assertEqual(cluster.api.instances(), (1, 1))

    def conductor_says(self, *words, **config):
        path = self.write('c.json', '{}')
        command = [program(*CONDUCTOR), '-t', '--config', path]
        cost = self.write('cost.json', cost_model_json())
        for option, value in {'cost_model': cost, 'model': 'tiny',
                              **config}.items():
            command += ['--set', f'{option}={value}']
        status, _, errors = self.run_program(*command)
        self.assertEqual(status, 2, errors)
        for word in words:
            self.assertIn(word, errors)

    def worker_says(self, *words, **options):
        command = [program(*WORKER)]
        for option, value in {'conductor': '127.0.0.1:1', **options}.items():
            command += ['--' + option.replace('_', '-'), value]
        status, _, errors = self.run_program(*command)
        self.assertEqual(status, 2, errors)
        for word in words:
            self.assertIn(word, errors)

    def test_beyond_loopback_a_secret_is_needed(self):
        for address in '0.0.0.0:0', '[::]:0', '192.0.2.1:0':
            self.conductor_says('worker_listen', 'secret_file', 'openssl',
                                worker_listen=address)
        self.worker_says('--listen 0.0.0.0', '--secret-file',
                         listen='0.0.0.0:0')

    def test_a_loopback_listener_under_a_conductor_elsewhere(self):
        """It would tell all others to find it at 127.0.0.1."""
        self.worker_says('--listen 127.0.0.1', '0.0.0.0:PORT',
                         conductor='192.0.2.1:1', secret_file=self.secret())

    def test_bad_secret_files(self):
        for name, path, words in (
                ('empty', self.secret('\n', name='a'), ('empty', 'openssl')),
                ('short', self.secret('x' * 15 + '\n', name='b'),
                 ('shorter than 16',)),
                ('open', self.secret(mode=0o644, name='c'), ('chmod 600',)),
                ('long', self.secret('x' * 5000, name='d'), ('longer',)),
                ('missing', os.path.join(self.folder, 'e'), ('No such file',)),
                ('a pipe', self.pipe(), ('not a regular file',)),
                ('a device', '/dev/zero', ('not a regular file',)),
                ('a folder', self.folder, ('not a regular file',))):
            with self.subTest(name):
                self.conductor_says('secret_file', path, *words,
                                    secret_file=path)
                self.worker_says('--secret-file', path, *words,
                                 secret_file=path)

    def test_strangers_take_little_memory(self):
        """Sixty of them announce as much as is allowed and send all of it but
        the last byte; nobody answers them."""
        cluster = self.cluster()
        for _, port, process in self.ports(cluster):
            before = memory_kib(process)
            strangers = [Peer(port) for _ in range(60)]
            fill = struct.pack('<IHHQ', 7 << 20, 1, 0, 0) + bytes((7 << 20) - 1)
            threads = [threading.Thread(target=self.flood, args=(s, fill))
                       for s in strangers]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            grown = memory_kib(process) - before
            for stranger in strangers:
                stranger.close()
            self.assertLess(grown, 32 << 10)
        self.assertEqual(cluster.api.complete('still here').status, 200)

    def test_a_stranger_that_drips(self):
        """Bytes that come are no reason to wait longer."""
        cluster = self.cluster(config={'worker_timeout_ms': 1000})
        peer = Peer(cluster.ports['worker'])
        drops = iter(Peer.hello(name='n' * 63, model='m' * 63))

        def closed():
            try:
                peer.send(bytes([next(drops)]))
                return peer.socket.recv(1, socket.MSG_DONTWAIT) == b''
            except BlockingIOError:
                return False
            except OSError:
                return True
        wait_until('it is closed', closed)
        self.assertIn('not joined for', cluster.conductor.log())
        peer.close()

    @staticmethod
    def flood(stranger, data):
        stranger.socket.settimeout(3)
        try:
            stranger.send(data)
        except OSError:
            pass

    def test_strangers_fill_no_log(self):
        cluster = self.cluster()
        for _, port, process in self.ports(cluster):
            lines = len(process.log().splitlines())
            for _ in range(300):
                link = socket.create_connection(('127.0.0.1', port))
                link.sendall(bytes(16))
                link.close()
            self.assertEqual(cluster.api.complete('still here').status, 200)
            wait_until('it says how many', lambda: self.left_out(
                process, port) > 200)
            self.assertLess(len(process.log().splitlines()) - lines, 250)

    @staticmethod
    def left_out(process, port):
        socket.create_connection(('127.0.0.1', port)).close()
        return sum(map(int, re.findall(r'(\d+) lines like', process.log())))

    def test_strangers_make_room(self):
        """However many connect and stay silent, a worker still joins."""
        cluster = self.cluster()
        for _, port, process in self.ports(cluster):
            strangers = [socket.create_connection(('127.0.0.1', port))
                         for _ in range(90)]
            wait_until('the oldest goes', lambda p=process: 'too many' in
                       p.log())
            if port == cluster.ports['worker']:
                cluster.start_worker('late', 'prefill')
                cluster.wait_ready(2, 1)
            for stranger in strangers:
                stranger.close()

    def crowd(self, address, port):
        """More strangers than there are places, of that address."""
        strangers = []
        for _ in range(90):
            stranger = socket.socket()
            stranger.bind((address, 0))
            stranger.connect(('127.0.0.1', port))
            stranger.setblocking(False)
            self.addCleanup(stranger.close)
            strangers.append(stranger)
        return strangers

    @staticmethod
    def closed(stranger):
        try:
            return stranger.recv(1) == b''
        except BlockingIOError:
            return False
        except OSError:
            return True

    def test_a_crowd_keeps_nobody_out(self):
        """Who has begun to open a connection goes on with it, however many
        strangers come meanwhile, of the same address or of another one."""
        cluster = self.trusting()
        for kind, port, _ in self.ports(cluster):
            for address in '127.0.0.1', '127.0.0.2':
                with self.subTest(address, kind=kind):
                    link, hello, nonce = self.opened(port, kind)
                    strangers = self.crowd(address, port)
                    wait_until('they are too many', lambda: sum(
                        map(self.closed, strangers)) > 25)
                    link.send(wire.frame(wire.PROOF, 0,
                                         proof('connects', hello, nonce)))
                    self.assertEqual(link.wait(wire.PROOF),
                                     proof('accepts', hello, nonce))
                    for stranger in strangers:
                        stranger.close()
                    link.close()
