"""Pages of other origins that ask from a browser."""
import json
import socket

from harness import CONDUCTOR, program
from stand_in import reply
from test_forward import EngineCase
from test_tenants import bearer, entry

GOOD, BAD = 'https://chat.example', 'https://chat.example.evil.example'
ALLOW = 'access-control-allow-origin'


class Cors(EngineCase):
    def ask(self, cluster, method, path, origin, body=None, headers=None):
        return cluster.api.request(method, path, body, {
            'Origin': origin, **(headers or {})})

    def preflight(self, cluster, path, origin):
        return self.ask(cluster, 'OPTIONS', path, origin, None, {
            'Access-Control-Request-Method': 'POST',
            'Access-Control-Request-Headers': 'authorization,content-type'})

    def test_listed_origins(self):
        """Engines are not asked, and what they say of it does not pass."""
        tenants = self.write('tenants.json', json.dumps({'tenants': [
            entry('a', 'one')]}))
        cluster = self.engines(lambda _, send: send(reply(200, {}, [
            'Access-Control-Allow-Origin: *'])), config={
                'cors_origins': f'http://localhost:3000, {GOOD}',
                'tenants_file': tenants, 'api_keys': 'required'})
        paths = '/v1/completions', '/v1/chat/completions', '/v1/embeddings'
        for path in paths:
            got = self.preflight(cluster, path, GOOD)
            self.assertEqual((got.status, got.body), (204, b''))
            self.assertNotIn('transfer-encoding', got.headers)
            self.assertEqual(
                [got.headers.get_all(name) for name in (
                    ALLOW, 'access-control-allow-methods', 'vary',
                    'access-control-allow-headers')],
                [[GOOD], ['POST'], ['Origin'], ['authorization,content-type']])
            got = self.preflight(cluster, path, BAD)
            self.assertError(got, 403, 'cors_origins')
            self.assertNotIn(ALLOW, got.headers)
        self.assertEqual(self.all[0].requests, [])
        body = {'model': 'm', 'prompt': 'x'}
        for origin, key, status, allow in (
                (GOOD, bearer('one'), 200, [GOOD]), (GOOD, {}, 401, [GOOD]),
                (BAD, bearer('one'), 200, None)):
            got = self.ask(cluster, 'POST', paths[0], origin, body, key)
            self.assertEqual(got.status, status)
            self.assertEqual(got.headers.get_all(ALLOW), allow)
            self.assertEqual(got.headers['vary'], 'Origin')
        got = self.ask(cluster, 'POST', paths[0], GOOD, body, bearer('one'))
        self.assertIn('x-conductor-request-id',
                      got.headers['access-control-expose-headers'])
        # Not for operators; and a reload takes another list.
        for method in 'GET', 'OPTIONS':
            got = self.ask(cluster, method, '/admin/instances', GOOD, None, {
                'Access-Control-Request-Method': 'GET'})
            self.assertNotIn(ALLOW, got.headers)
        cluster.config['cors_origins'] = '*'
        self.write('conductor.json', json.dumps(cluster.config))
        taken = cluster.api.post('/admin/reload').body
        self.assertEqual(taken['taken'], ['cors_origins'])
        got = self.ask(cluster, 'POST', paths[0], BAD, body, bearer('one'))
        self.assertEqual(got.headers.get_all(ALLOW), ['*'])
        self.assertEqual(self.preflight(cluster, paths[0], BAD).status, 204)

    def test_before_the_head_is_whole(self):
        """What the server itself refuses a page may read, too."""
        cluster = self.engines(lambda _, send: send(reply(200, {}, [])),
                               config={'cors_origins': GOOD})
        for origin, more, status in (
                (GOOD, f'X-A: {"x" * 20000}', 431),
                (GOOD, 'Content-Length: 99999999', 413),
                (GOOD, 'Content-Length: x', 400),
                (BAD, 'Content-Length: 99999999', 413)):
            with socket.create_connection(
                    ('127.0.0.1', cluster.api.port)) as s:
                s.sendall(f'POST /v1/completions HTTP/1.1\r\nHost: a\r\n'
                          f'Origin: {origin}\r\n{more}\r\n\r\n'.encode())
                got = b''.join(iter(lambda: s.recv(65536), b'')).lower()
            self.assertIn(f'http/1.1 {status} '.encode(), got)
            self.assertEqual(f'{ALLOW}: {origin}\r'.encode() in got,
                             origin == GOOD, got)

    def test_off(self):
        """Then it is the engine's business, and none of native models."""
        cluster = self.engines(lambda _, send: send(reply(200, {}, [
            'Access-Control-Allow-Origin: theirs'])))
        got = self.preflight(cluster, '/v1/completions', GOOD)
        self.assertEqual(got.headers.get_all(ALLOW), ['theirs'])
        self.end(cluster)
        cluster = self.cluster(prefill=0, decode=0)
        got = self.preflight(cluster, '/v1/completions', GOOD)
        self.assertEqual(got.status, 405)
        self.assertNotIn(ALLOW, got.headers)

    def test_wrong_origins(self):
        cluster = self.cluster(prefill=0, decode=0)
        for wrong in ('https://a.example/', 'https://A.example', 'a.example',
                      '*, https://a.example', 'https://*.a.example',
                      '["https://a.example"]', 'https://'):
            path = self.write('c.json', json.dumps({
                **cluster.config, 'cors_origins': wrong}))
            status, _, errors = self.run_program(
                program(*CONDUCTOR), '-t', '-c', path)
            self.assertEqual(status, 2, wrong)
            self.assertIn(f'cors_origins: "{wrong}": must be', errors)
