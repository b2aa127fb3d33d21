"""Clients that come with TLS: what they are shown, the reload of it under load,
and strangers who do not speak it, or never finish."""
import datetime
import json
import os
import re
import shutil
import socket
import ssl
import subprocess
import threading

from certificates import Certificates
from harness import (CONDUCTOR, WORKER, Api, Cluster, mostly_waits, program,
                     read_file, wait_until)
from stand_in import Engine
from test_forward import EngineCase

HOST = '127.0.0.1'


class TlsCase(Certificates, EngineCase):
    def certify(self, ca='ca'):
        """A certificate in tls.pem and tls.key, of an authority; returns the
        context of a client that trusts that one alone."""
        pem = self.authority(ca)
        self.certificate(HOST, ca=ca)
        for kind in 'pem', 'key':
            shutil.copy(os.path.join(self.folder, f'{HOST}.{kind}'),
                        os.path.join(self.folder, f'tls.{kind}'))
        return ssl.create_default_context(cafile=pem)

    def door(self, tls, serve=None, **config):
        """A conductor with TLS for its clients, and http for operators."""
        self.all = [Engine(serve)]
        self.more = []
        cluster = Cluster(self)
        cluster.tls = tls
        cluster.config = {
            'listen': f'{HOST}:0', 'admin_listen': f'{HOST}:0',
            'engine_health_ms': 50, 'tls_certificate': 'tls.pem',
            'tls_key': 'tls.key',
            'engines': [{'name': 'e', 'url': self.all[0].url, 'model': 'm'}],
            **config}
        cluster.start_conductor()
        self.admin = Api(cluster.ports['admin'])
        wait_until('the engine is ready',
                   lambda: self.admin.instances()[0] == 1)
        return cluster

    def metric(self, name):
        return self.admin.metric(f'http_{name}')


class TlsClients(TlsCase):
    def test_answers_streams_and_large_bodies(self):
        cluster = self.door(self.certify())
        self.assertEqual(self.post(cluster, {'prompt': 'x'}).status, 200)
        events = list(cluster.api.stream('/v1/completions', {
            'model': 'm', 'prompt': 'x'}))
        self.assertEqual(events[-1], '[DONE]')
        large = self.post(cluster, {'prompt': 'word ' * 400000}).ok()

    def test_files_beside_the_configuration(self):
        """As of all other files that it names, wherever the daemon begins."""
        self.certify()
        path = self.write('c.json', json.dumps({
            'engines': [{'name': 'e', 'url': 'http://127.0.0.1:1', 'model': 'm'}],
            'tls_certificate': 'tls.pem', 'tls_key': 'tls.key'}))
        got = subprocess.run([program(*CONDUCTOR), '-t', '-c', path], cwd='/',
                             capture_output=True, text=True, check=False)
        self.assertEqual((got.returncode, got.stdout, got.stderr),
                         (0, 'configuration ok\n', ''))

    def test_curl(self):
        self.certify()
        other = self.authority('other')
        cluster = self.door(None)
        url = f'https://{HOST}:{cluster.ports["http"]}/health'
        run = 'curl', '-sS', '--max-time', '20'
        status, out, errors = self.run_program(
            *run, '--cacert', 'ca.pem', url, '-w', ' %{http_version}')
        self.assertEqual(status, 0, errors)
        self.assertIn('"status":"ready"', out)
        self.assertTrue(out.endswith(' 1.1'), out)
        status, _, errors = self.run_program(*run, '--cacert', other, url)
        self.assertEqual(status, 60, errors)
        status, _, errors = self.run_program(
            *run, '--cacert', 'ca.pem', '--tls-max', '1.1', url)
        self.assertEqual(status, 35, errors)
        # Of TLS 1.2 no suite without authenticated encryption.
        for options, want in (
                (('--tls-max', '1.2', '--ciphers', 'ECDHE+SHA256:ECDHE+SHA384:'
                  'ECDHE+SHA1:AES256-SHA256:AES128-GCM-SHA256:'
                  '!ECDHE+AESGCM'), 35),
                (('--tls-max', '1.2', '--ciphers', 'ECDHE+AESGCM'), 0),
                (('--tlsv1.3',), 0)):
            status, _, errors = self.run_program(
                *run, '--cacert', 'ca.pem', *options, url)
            self.assertEqual(status, want, (options, errors))

    def test_admin_alone_and_too(self):
        tls = self.certify()
        cluster = self.door(tls, admin_tls='off')
        self.assertEqual(self.admin.get('/health').status, 200)
        self.end(cluster)
        cluster = Cluster(self)
        cluster.config = {'listen': f'{HOST}:0', 'admin_listen': f'{HOST}:0',
                          'tls_certificate': 'tls.pem', 'tls_key': 'tls.key',
                          'admin_tls': 'on', 'engines': []}
        cluster.start_conductor()
        admin = Api(cluster.ports['admin'], tls)
        self.assertEqual(admin.get('/health').status, 200)
        self.assertEqual(Api(cluster.ports['admin']).request(
            'GET', '/health').status, 400)
        # The status page, and what it follows.
        page = admin.get('/').ok()
        self.assertIn(b'/admin/events', page.body)
        connection, events = admin.open('GET', '/admin/events')
        self.assertEqual([events.readline() for _ in range(2)][0],
                         b'event: overview\n')
        connection.close()
        # conductorctl, which must be told whom to trust.
        ctl = [program('tools', 'conductorctl'), '--address',
               f'https://{HOST}:{cluster.ports["admin"]}']
        status, out, errors = self.run_program(
            *ctl, '--ca-file', 'ca.pem', 'status')
        self.assertEqual((status, errors), (1, ''))  # it has no engine
        self.assertIn('status     not ready', out)
        status, _, errors = self.run_program(*ctl, 'status')
        self.assertEqual(status, 1)
        self.assertIn('--ca-file FILE says whom to trust', errors)
        status, _, errors = self.run_program(
            *ctl, '--ca-file', 'none.pem', 'status')
        self.assertEqual(status, 2)
        self.assertIn('--ca-file: none.pem: No such file', errors)

    def test_a_chain_of_certificates(self):
        """What vouches for the server's own stands behind it in its file."""
        self.authority()
        self.write('san', 'basicConstraints=critical,CA:TRUE\n')
        self.openssl('req', '-newkey', 'ec', '-pkeyopt',
                     'ec_paramgen_curve:P-256', '-nodes', '-subj', '/CN=mid',
                     '-keyout', 'mid.key', '-out', 'mid.csr')
        self.openssl('x509', '-req', '-in', 'mid.csr', '-CA', 'ca.pem',
                     '-CAkey', 'ca.key', '-CAcreateserial', '-days', '7',
                     '-extfile', 'san', '-out', 'mid.pem')
        self.certificate(HOST, ca='mid')
        chain = ''
        for name in f'{HOST}.pem', 'mid.pem':
            chain += read_file(self.folder, name)
        self.write('tls.pem', chain)
        shutil.copy(os.path.join(self.folder, f'{HOST}.key'),
                    os.path.join(self.folder, 'tls.key'))
        cluster = self.door(ssl.create_default_context(
            cafile=os.path.join(self.folder, 'ca.pem')))
        self.assertEqual(self.post(cluster, {'prompt': 'x'}).status, 200)


class TlsStrangers(TlsCase):
    def connect(self, cluster):
        s = socket.create_connection((HOST, cluster.ports['http']))
        self.addCleanup(s.close)
        return s

    def test_http_where_tls_is_spoken(self):
        cluster = self.door(self.certify())
        got = Api(cluster.ports['http']).request('GET', '/health')
        self.assertError(got, 400, 'https://')
        self.assertEqual(got.headers['connection'], 'close')
        self.assertEqual(self.metric('tls_failed_total'), 1)

    def test_neither(self):
        cluster = self.door(self.certify())
        s = self.connect(cluster)
        s.sendall(b'\x00' * 200)
        s.settimeout(20)
        while s.recv(1000):  # at most an alert
            pass
        self.assertEqual(cluster.api.get('/health').status, 200)

    def test_no_more_than_their_places(self):
        """A quarter of max_connections; the oldest makes room."""
        cluster = self.door(self.certify(), max_connections=80)
        silent = [self.connect(cluster) for _ in range(60)]
        wait_until('40 have made room',
                   lambda: self.metric('tls_failed_total') == 40)
        self.assertEqual(self.metric('connections'), 20)
        for s in silent[:40]:
            s.settimeout(20)
            self.assertEqual(s.recv(1), b'')
        self.assertEqual(cluster.api.get('/health').status, 200)

    @mostly_waits
    def test_not_for_long(self):
        cluster = self.door(self.certify())
        s = self.connect(cluster)
        s.sendall(b'\x16\x03\x01')
        s.settimeout(60)
        self.assertEqual(s.recv(1), b'')
        self.assertEqual(self.metric('tls_failed_total'), 1)


class TlsReloads(TlsCase):
    def reload(self):
        return self.admin.post('/admin/reload')

    def test_new_connections_see_the_new_one(self):
        old = self.certify()
        cluster = self.door(old)
        kept, response = cluster.api.open('GET', '/health')
        self.assertEqual(response.read() and response.status, 200)
        new = self.certify('new')
        self.assertEqual(self.reload().body['taken'],
                         ['tls_certificate', 'tls_key'])
        kept.request('GET', '/health')
        self.assertEqual(kept.getresponse().status, 200)
        kept.close()
        with self.assertRaises(ssl.SSLCertVerificationError):
            cluster.api.get('/health')
        cluster.tls = new
        self.assertEqual(cluster.api.get('/health').status, 200)

    def test_a_bad_file_changes_nothing(self):
        cluster = self.door(self.certify())
        self.openssl('genpkey', '-algorithm', 'ec', '-pkeyopt',
                     'ec_paramgen_curve:P-256', '-out', 'tls.key')
        got = self.reload()
        self.assertError(got, 400, 'tls_key', 'tls.key',
                         'not the key of the certificate')
        self.write('tls.pem', 'nothing')
        self.assertError(self.reload(), 400, 'tls_certificate', 'tls.pem',
                         'no certificate in PEM format in it')
        self.assertEqual(cluster.api.get('/health').status, 200)

    def test_under_load(self):
        """Each of ten reloads, while four clients ask without a pause."""
        cluster = self.door(self.certify())
        self.certificate(HOST)
        pairs = ['tls.pem', 'tls.key'], [f'{HOST}.pem', f'{HOST}.key']
        stop, failed = threading.Event(), []

        def ask():
            while not stop.is_set():
                got = self.post(cluster, {'prompt': 'x'})
                if got.status != 200:
                    failed.append(got.body)
        clients = [threading.Thread(target=ask) for _ in range(4)]
        for c in clients:
            c.start()
        for i in range(10):
            cluster.config['tls_certificate'], cluster.config['tls_key'] = \
                pairs[(i + 1) % 2]
            self.write('conductor.json', json.dumps(cluster.config))
            self.assertEqual(self.reload().body['taken'],
                             ['tls_certificate', 'tls_key'])
        stop.set()
        for c in clients:
            c.join()
        self.assertEqual(failed, [])

    def test_on_and_off(self):
        tls = self.certify()
        cluster = self.door(None, tls_certificate='', tls_key='')
        path = os.path.join(self.folder, 'conductor.json')
        for context in tls, None:
            cluster.config['tls_certificate'] = 'tls.pem' if context else ''
            cluster.config['tls_key'] = 'tls.key' if context else ''
            with open(path, 'w', encoding='utf-8') as f:
                json.dump(cluster.config, f)
            self.assertEqual(self.reload().body['taken'],
                             ['tls_certificate', 'tls_key'])
            cluster.tls = context
            self.assertEqual(cluster.api.get('/health').status, 200)


class TlsExpiry(TlsCase):
    def end_of(self, name):
        """When a certificate ends: as openssl prints it, and Unix time."""
        _, out, _ = self.run_program('openssl', 'x509', '-noout', '-enddate',
                                     '-in', name)
        text = out.strip().partition('=')[2]
        end = datetime.datetime.strptime(text, '%b %d %H:%M:%S %Y GMT')
        return (f'{end:%Y-%m-%d %H:%M:%S} UTC',
                end.replace(tzinfo=datetime.timezone.utc).timestamp())

    def read(self, name):
        return read_file(self.folder, name)

    def test_it_is_told(self):
        """By -t, at the start and on reload, with its file and its date, and
        of a chain the first one to end."""
        tls = self.certify()
        good = self.read('tls.pem')
        self.certificate(HOST, days='-1')
        ended, ended_s = self.end_of(f'{HOST}.pem')
        shutil.copy(os.path.join(self.folder, f'{HOST}.key'),
                    os.path.join(self.folder, 'links.key'))
        self.write('links.pem', self.read(f'{HOST}.pem'))
        self.write('tls.pem', good + self.read(f'{HOST}.pem'))
        cluster = self.door(tls, worker_listen=f'{HOST}:0', policy='random',
                            worker_tls_certificate='links.pem',
                            worker_tls_key='links.key')
        says = re.compile(
            rf'warn .*: (\w+): "(?:\S*/)?(\w+\.pem)": expired on {ended}: ')
        both = [('tls_certificate', 'tls.pem'),
                ('worker_tls_certificate', 'links.pem')]
        self.assertEqual(says.findall(cluster.conductor.log()), both)
        name = 'conductor_certificate_expires_seconds'
        metrics = self.admin.metrics()
        for option, _ in both:
            self.assertEqual(metrics[f'{name}{{option="{option}"}}'], ended_s)
        status, out, errors = self.run_program(
            program(*CONDUCTOR), '-t', '-c', 'conductor.json')
        self.assertEqual((status, out), (0, 'configuration ok\n'))
        self.assertEqual(says.findall(errors), both)
        # The other is renewed, and is told of no more.
        self.write('tls.pem', good)
        self.assertEqual(self.admin.post('/admin/reload').status,
                         200)
        self.assertEqual(says.findall(cluster.conductor.log()),
                         both + both[1:])
        self.assertEqual(
            self.admin.metrics()[f'{name}{{option="tls_certificate"}}'],
            self.end_of('tls.pem')[1])


class TlsWorkers(TlsCase):
    """Links of native workers to their conductor."""

    def links(self):
        ca = self.certify()
        self.assertTrue(ca)
        self.secret = self.write('secret', 's' * 32)
        os.chmod(self.secret, 0o600)
        self.all = []
        self.more = []
        cluster = Cluster(self, {
            'worker_tls_certificate': 'tls.pem', 'worker_tls_key': 'tls.key',
            'secret_file': 'secret'})
        cluster.start_conductor()
        return cluster

    def refused(self, cluster, *words, **options):
        worker = cluster.start_worker('x', 'prefill', **{
            'secret_file': self.secret, **options})
        wait_until('it says why', lambda: all(
            word in worker.log() for word in words))
        self.assertEqual(cluster.api.instances(), (0, 0))
        worker.kill()
        worker.wait()

    def test_they_work(self):
        cluster = self.links()
        for name, role in ('p0', 'prefill'), ('d0', 'decode'):
            cluster.start_worker(name, role, secret_file=self.secret,
                                 tls_ca=os.path.join(self.folder, 'ca.pem'))
        cluster.wait_ready(1, 1)
        answer = cluster.api.complete('A prompt of several blocks. ' * 40).ok()
        for worker in cluster.workers.values():
            self.assertNotIn('warn', worker.log())
            self.stop(worker)
        # Who leaves says so within TLS: it is no connection that broke.
        for name in cluster.workers:
            wait_until(f'{name} has left', lambda n=name: re.search(
                rf'worker {n} \(\S+\) left\n', cluster.conductor.log()))
        self.assertNotIn('unexpected eof', cluster.conductor.log())
        cluster.conductor.kill()
        cluster.conductor.wait()
        late = cluster.start_worker('p1', 'prefill', secret_file=self.secret,
                                    tls_ca=os.path.join(self.folder, 'ca.pem'))
        wait_until('it says why', lambda: 'Connection refused' in late.log())
        late.kill()
        late.wait()

    def test_who_is_not_trusted(self):
        cluster = self.links()
        ca = os.path.join(self.folder, 'ca.pem')
        other = self.authority('other')
        self.refused(cluster, 'TLS: its certificate: ', 'issuer', tls_ca=other)
        self.refused(cluster, 'this port speaks TLS: give --tls-ca FILE')
        self.assertIn('TLS: the other side does not speak it',
                      cluster.conductor.log())
        another = self.write('another', 'o' * 32)
        os.chmod(another, 0o600)
        self.refused(cluster, 'refuses', secret_file=another, tls_ca=ca)
        self.certificate('x')  # which is not where the conductor is
        cluster.config['worker_tls_certificate'] = 'x.pem'
        cluster.config['worker_tls_key'] = 'x.key'
        self.write('conductor.json', json.dumps(cluster.config))
        self.assertEqual(
            cluster.api.post('/admin/reload').body['taken'],
            ['worker_tls_certificate', 'worker_tls_key'])
        self.refused(cluster, 'TLS: its certificate: ', 'mismatch', tls_ca=ca)

    def test_a_file_that_is_not_there(self):
        status, _, errors = self.run_program(
            program(*WORKER), '--conductor', f'{HOST}:9', '--tls-ca', 'none.pem')
        self.assertNotEqual(status, 0)
        self.assertIn('--tls-ca none.pem: No such file', errors)


class TlsOptions(TlsCase):
    def refused(self, *words, **config):
        path = self.write('c.json', json.dumps({'engines': [], **config}))
        for more in ['-t'], []:
            status, _, errors = self.run_program(
                program(*CONDUCTOR), '-c', path, '-s', f'listen={HOST}:0',
                *more)
            self.assertNotEqual(status, 0)
            for word in words:
                self.assertIn(word, errors)

    def test_what_cannot_be(self):
        self.certify()
        self.openssl('genpkey', '-algorithm', 'ec', '-pkeyopt',
                     'ec_paramgen_curve:P-256', '-aes256', '-pass',
                     'pass:word', '-out', 'locked.key')
        tls = {'tls_certificate': 'tls.pem', 'tls_key': 'tls.key'}
        self.refused('tls_certificate', 'tls.pem', 'needs tls_key',
                     tls_certificate='tls.pem')
        self.refused('tls_key', 'needs tls_certificate', tls_key='tls.key')
        self.refused('tls_certificate', 'none.pem', 'No such file',
                     tls_key='tls.key', tls_certificate='none.pem')
        self.refused('tls_certificate', 'tls.key',
                     'no certificate in PEM format in it', tls_key='tls.key',
                     tls_certificate='tls.key')
        self.refused('tls_key', 'ca.key', 'not the key of the certificate',
                     **{**tls, 'tls_key': 'ca.key'})
        self.refused('tls_key', 'locked.key', 'without a passphrase',
                     **{**tls, 'tls_key': 'locked.key'})
        self.refused('worker_tls_certificate', 'needs worker_tls_key',
                     worker_tls_certificate='tls.pem')
        self.refused('worker_tls_certificate', 'worker_listen is empty',
                     worker_tls_certificate='tls.pem',
                     worker_tls_key='tls.key')
        self.refused('admin_tls', 'needs admin_listen', admin_tls='on', **tls)
