"""conductor-replay profile against engines that others wrote, and what
conductor-fit makes of it."""
import csv
import json
import os
import signal
import ssl
import threading

import engines
from fake_server import FakeServer
from harness import FIT, REPLAY, program, read_file, wait_until


class Case(engines.Case):
    def profile(self, url, *options):
        """(status, errors, rows) of a run."""
        self.path = os.path.join(self.folder, 'engine.csv')
        status, _, errors = self.run_program(
            program(*REPLAY), 'profile', '--url', url, '--out', self.path,
            *options, limit_s=180)
        rows = []
        if os.path.exists(self.path):
            with open(self.path, encoding='utf-8') as file:
                rows = list(csv.DictReader(
                    line for line in file if line[0] != '#'))
        return status, errors, rows


class Llama(Case):
    def test_a_cost_model_of_llama(self):
        server = engines.LlamaServer(self)
        status, errors, rows = self.profile(
            server.url, '--max-tokens', '512', '--max-batch', '4',
            '--repeats', '1')
        self.assertEqual(status, 0, errors)
        self.assertGreater(
            sum(int(r['cached_tokens'] or 0) > 0 for r in rows), 8, errors)
        model = os.path.join(self.folder, 'engine.json')
        status, _, errors = self.run_program(program(*FIT), '--out', model,
                                             self.path, limit_s=60)
        self.assertEqual(status, 0, errors)
        model = json.loads(read_file(model))
        self.assertEqual((model['engine'], model['model'],
                          model['block_tokens']), ('openai', 'tiny', 16))
        self.assertEqual(model['valid_range']['uncached_max_tokens'], 512)

    def test_what_it_refuses(self):
        server = engines.LlamaServer(self)
        for options, why in (
                (('--max-tokens', '9000'), '--max-tokens: must be 64 to 8175'),
                (('--max-tokens', '5'), '--max-tokens 5: must be'),
                (('--max-batch', '0'), '--max-batch 0: must be'),
                (('--vocab', '4000000'),
                 'http 400 invalid_request_error: Prompt contains invalid'),
                (('--timeout', '0.001', '--max-tokens', '4096'), 'timeout')):
            status, errors, rows = self.profile(server.url, *options)
            self.assertNotEqual(status, 0)
            self.assertIn(why, errors)
            self.assertEqual(rows, [])
        server.process.kill()
        status, errors, _ = self.profile(server.url)
        self.assertEqual(status, 1)
        self.assertIn('Connection refused', errors)

    def test_an_interrupt_keeps_what_is_there(self):
        server = engines.LlamaServer(self)
        path = os.path.join(self.folder, 'part.csv')
        run = engines.Foreign(self.folder, 'profile', [
            program(*REPLAY), 'profile', '--url', server.url, '--repeats',
            '1000', '--max-tokens', '64', '--max-batch', '1', '--out', path],
            os.environ)
        self.processes.append(run)
        wait_until('some are written', lambda: os.path.exists(path) and
                   os.path.getsize(path) > 1000)
        run.child.send_signal(signal.SIGINT)
        self.assertEqual(run.wait(60), 130)
        self.assertIn('interrupted: ', run.log())
        self.assertEqual(read_file(path)[-1], '\n')


class Vocabulary(Case):
    only_loopback = True

    def test_a_refused_prompt_names_the_option(self):
        server = FakeServer(behave=lambda index: 400)
        self.addCleanup(server.close)
        hint = '(--vocab N keeps ids below N)'
        for options, hinted in ((), True), (('--vocab', '300'), False):
            status, errors, _ = self.profile(server.url, *options)
            self.assertEqual(status, 1)
            self.assertIn('http 400', errors)
            self.assertEqual(hint in errors, hinted, errors)
            self.assertGreater(max(server.requests[-1]['prompt']), 255)
            self.assertLess(max(server.requests[-1]['prompt']),
                            512 if hinted else 300)

    def test_a_refusal_in_a_stream(self):
        """vLLM's."""
        error = {'message': 'Token id 300 is out of vocabulary',
                 'type': 'BadRequestError', 'param': None, 'code': 400}
        server = FakeServer(behave=lambda index: error)
        self.addCleanup(server.close)
        status, errors, _ = self.profile(server.url)
        self.assertEqual(status, 1)
        self.assertIn('error event BadRequestError: Token id 300 is out of '
                      'vocabulary (--vocab N keeps ids below N)', errors)

    def test_a_url_that_is_too_long(self):
        status, errors, _ = self.profile('http://127.0.0.1:1/v1/completions')
        self.assertEqual(status, 2)
        self.assertIn('--url http://127.0.0.1:1/v1/completions: must be http[s]'
                      '://HOST[:PORT][/PREFIX], without /v1/completions',
                      errors)


class Blocks(Case):
    only_loopback = True

    def test_of_another_size(self):
        server = FakeServer(block_tokens=32)
        self.addCleanup(server.close)
        small = ('--max-tokens', '128', '--max-batch', '1', '--repeats', '1')
        for tokens, told in (32, 0), (3, 1):
            status, errors, _ = self.profile(server.url, *small,
                                             '--block-tokens', f'{tokens}')
            self.assertEqual(status, 0, errors)
            self.assertEqual(errors.count('left out'), told, errors)
            self.assertEqual(errors.count('(--block-tokens 3: is it the size '
                                          'of its blocks?)'), told, errors)


class Slots(Case):
    only_loopback = True

    def test_fewer_than_it_asks_for(self):
        """Batches that are not decoded at once are left out, with one line
        for all, and a last one that says what to do."""
        server = FakeServer(at_once=2, token_gap_s=0.02)
        self.addCleanup(server.close)
        status, errors, rows = self.profile(
            server.url, '--max-tokens', '64', '--max-kv', '256',
            '--max-batch', '4', '--repeats', '1')
        self.assertEqual(status, 0, errors)
        self.assertEqual(max(int(r['batch'] or 0) for r in rows), 2, errors)
        self.assertEqual(errors.count('not decoded at once'), 1)
        self.assertIn('it decodes fewer than 4 requests at once: --max-batch '
                      '2 leaves those out', errors)


    def test_fewer_once_than_later(self):
        """That two were not decoded at once in one round, and were in the next
        one, does not hide that four never were."""
        options = ('--max-tokens', '64', '--max-kv', '256', '--max-batch', '4')
        server = FakeServer(at_once=4, token_gap_s=0.01)
        self.addCleanup(server.close)
        self.profile(server.url, *options, '--repeats', '1')
        seats = Seats(server, sum(r['max_tokens'] > 1 for r in server.requests))
        server.behave, server.slots = seats.behave, seats
        status, errors, rows = self.profile(server.url, *options, '--repeats',
                                            '2')
        self.assertEqual(status, 0, errors)
        self.assertEqual(max(int(r['batch'] or 0) for r in rows), 2, errors)
        self.assertIn('it decodes fewer than 4 requests at once: --max-batch '
                      '2 leaves those out', errors)


class Seats:
    """An engine's seats for answers: one for the first `n` answers of more than
    a token, then two."""
    def __init__(self, server, n):
        self.server, self.n = server, n
        self.of_thread = threading.local()
        self.taken = 0
        self.changed = threading.Condition()

    def behave(self, index):
        self.of_thread.long = self.server.requests[index]['max_tokens'] > 1
        return 'answer'

    def __enter__(self):
        with self.changed:
            self.changed.wait_for(lambda: self.taken < (1 if self.n else 2))
            self.taken += 1

    def __exit__(self, *_):
        with self.changed:
            self.taken -= 1
            self.n -= self.of_thread.long and self.n > 0
            self.changed.notify_all()


class Https(Case):
    only_loopback = True

    def test_a_key_and_a_certificate(self):
        status, _, errors = self.run_program(
            'openssl', 'req', '-x509', '-newkey', 'ec', '-pkeyopt',
            'ec_paramgen_curve:prime256v1', '-nodes', '-days', '2', '-subj',
            '/CN=x', '-addext', 'subjectAltName=IP:127.0.0.1', '-keyout',
            'server.key', '-out', 'server.pem')
        self.assertEqual(status, 0, errors)
        pem, private = (os.path.join(self.folder, f'server.{end}')
                        for end in ('pem', 'key'))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(pem, private)
        server = FakeServer(keeps=True, tls=context, key='Bearer sk-1')
        self.addCleanup(server.close)
        key = self.write('a.key', 'sk-1\n')
        small = ('--max-tokens', '64', '--max-batch', '1', '--repeats', '1')
        for trust in ('--ca-file', pem), ('--insecure',):
            status, errors, rows = self.profile(server.url, *small, *trust,
                                                '--key-file', key)
            self.assertEqual(status, 0, errors)
            self.assertGreater(len(rows), 1)
        for options, why in (
                (('--key-file', key), 'a certificate that is not trusted '
                 '(--ca-file FILE says whom to trust)'),
                (('--insecure',),
                 'answered 401 (--key-file FILE sends the key in it)'),
                (('--insecure', '--key-file', self.write('b.key', 'sk-2\n')),
                 'answered 401 (it refuses the key of --key-file)'),
                (('--insecure', '--ca-file', pem), '--insecure: not with'),
                (('--ca-file', 'no.pem'), '--ca-file no.pem: No such file'),
                (('--insecure', '--key-file', 'no.key'),
                 '--key-file no.key: No such file')):
            status, errors, _ = self.profile(server.url, *small, *options)
            self.assertNotEqual(status, 0)
            self.assertIn(why, errors)
        for option in ('--insecure',), ('--ca-file', pem):
            status, errors, _ = self.profile('http://127.0.0.1:1', *option)
            self.assertNotEqual(status, 0)
            self.assertIn(f'{option[0]}: only with https', errors)


class Dynamo(Case):
    only_loopback = True

    def test_cached_tokens_as_vllm_counts_them(self):
        mocker = engines.Mocker(self)
        status, errors, rows = self.profile(
            mocker.url, '--vocab', '256', '--max-tokens', '1024',
            '--max-batch', '1', '--repeats', '1')
        self.assertEqual(status, 0, errors)
        self.assertNotIn('warning', errors)
        self.assertGreater(
            sum(int(r['cached_tokens'] or 0) > 0 for r in rows), 8, errors)
