"""The hit ratio in front of engines that are no native workers: whatever their
usage tells, every view of it is one number, and what is a guess is marked."""
import http.client
import itertools
import json
import os
import random
import time

from harness import REPLAY, program, read_file, wait_until
from stand_in import chunk, event, reply, stream_head
from test_forward import EngineCase
from test_gateways import GatewayCase

CTL = 'tools', 'conductorctl'
BLOCK = 32
SOURCES = 'local', 'fetched', 'disk', 'shared'


class Teller:
    """An engine that never evicts, and tells of its tokens what it is to: a
    token is so many bytes of a text."""

    def __init__(self):
        self.blocks = set()
        self.bytes_each, self.tells, self.usage = 1, ('prompt', 'cached'), None
        self.events = None

    def tokens(self, prompt):
        if isinstance(prompt, str):
            text, n = prompt.encode(), self.bytes_each
            return tuple(text[i:i + n] for i in range(0, len(text), n))
        return tuple(prompt)

    def count(self, prompt):
        """(tokens, cached); the last token is computed each time."""
        tokens = self.tokens(prompt)
        whole = [tokens[:i] for i in range(BLOCK, len(tokens) + 1, BLOCK)]
        had = 0
        while had < len(whole) and whole[had] in self.blocks:
            had += 1
        self.blocks.update(whole)
        return len(tokens), min(had, (len(tokens) - 1) // BLOCK) * BLOCK

    def counts(self, body):
        prompts = body['prompt']
        if isinstance(prompts, str) or isinstance(prompts[0], int):
            prompts = [prompts]
        return [sum(n) for n in zip(*map(self.count, prompts))]

    def serve(self, request, send):
        body = json.loads(request.body)
        prompt, cached = self.counts(body)
        usage = self.usage or {}
        if 'prompt' in self.tells:
            usage = {**usage, 'prompt_tokens': prompt, 'completion_tokens': 4}
        if 'cached' in self.tells or ('cached, not 0' in self.tells and cached):
            usage = {**usage, 'prompt_tokens_details': {
                'cached_tokens': cached}}
        end = {'choices': [], **({'usage': usage} if usage else {})}
        if not body.get('stream'):
            send(reply(200, {'id': request.answer_id(), **end}))
            return None
        send(stream_head())
        for letter in self.events or 'abcd':
            send(chunk(event({'id': request.answer_id(),
                              'choices': [{'text': letter}]})))
        if self.events:
            return 'reset'
        if usage:
            send(chunk(event(end)))
        send(chunk(event('[DONE]')) + b'0\r\n\r\n')
        return None


class HitsCase(EngineCase):
    def logs(self):
        return {'access_log': os.path.join(self.folder, 'access.log'),
                'access_log_blocks': True}

    def lines(self, n):
        """The log, when it has n lines."""
        def read():
            return read_file(self.folder, 'access.log').splitlines()
        wait_until(f'{n} lines', lambda: len(read()) >= n)
        lines = [json.loads(line) for line in read()]
        self.assertEqual(len(lines), n)
        return lines

    @staticmethod
    def sums(metrics):
        """(prompt, cached, computed) tokens."""
        return (metrics['conductor_prompt_tokens_total'],
                sum(metrics[f'conductor_cached_tokens_total{{source="{s}"}}']
                    for s in SOURCES),
                metrics['conductor_computed_tokens_total'])

    @staticmethod
    def compared(metrics, name='e0'):
        """(predicted, told)"""
        return tuple(metrics[
            f'conductor_engine_cached_tokens_total{{instance="{name}",'
            f'source="{source}"}}'] for source in ('predicted', 'told'))

    def agree(self, cluster, n):
        """Every view has the same tokens. (prompt, cached, guessed length,
        guessed cached)"""
        lines = self.lines(n)
        metrics = cluster.api.metrics()
        prompt, cached, computed = self.sums(metrics)
        self.assertTrue(0 <= cached <= prompt, (cached, prompt))
        self.assertEqual(computed, prompt - cached)
        self.assertEqual(prompt, metrics[
            'conductor_tenant_computed_tokens_total{tenant="other"}'] + cached)
        counted = [line for line in lines if line['cached_known_by']]
        self.assertEqual(
            (prompt, cached, computed),
            tuple(sum(sum(line[k] for k in names) for line in counted)
                  for names in (('input_length',),
                                [f'{s}_tokens' for s in SOURCES],
                                ('computed_tokens',))))
        for line in lines:
            self.assertEqual(len(line['hash_ids']),
                             -(-line['input_length'] // 512))
        guessed = [metrics[f'conductor_guessed_prompt_tokens_total'
                           f'{{part="{part}"}}'] for part in
                   ('length', 'cached')]
        marks = [sum(line['input_length'] for line in counted
                     if line[key] == by) for key, by in
                 (('prompt_known_by', 'bytes'), ('cached_known_by', 'index'))]
        self.assertEqual(guessed, marks)
        over = cluster.api.get('/admin/overview').body
        self.assertEqual([over['guessed'][k] for k in ('length', 'cached')],
                         guessed)
        minute = over['last_minute']
        self.assertEqual((minute['prompt_tokens'], minute['reused_tokens']),
                         (prompt, cached))
        status, top, errors = self.run_program(
            program(*CTL), '--address',
            f'127.0.0.1:{cluster.ports["http"]}', '--once', 'top')
        self.assertEqual((status, errors), (0, ''))
        ratio = f'{100 * cached / prompt:.1f} %'
        share = minute['guessed_tokens'] / prompt
        self.assertTrue(max(guessed) <= minute['guessed_tokens'] <=
                        sum(guessed))
        mark = f' (guessed for {100 * share:.1f} %)' if share else ''
        whole = f' (guessed for {100 * max(guessed) / prompt:.1f} %)' \
            if max(guessed) else ''
        self.assertIn(f'hits       {ratio}{mark}, in all {ratio}{whole}\n', top)
        for line in counted[-1:]:
            actual = cluster.api.get(
                f'/admin/explain/{line["id"]}').body['actual']
            self.assertEqual(actual['prompt_tokens'], line['input_length'])
            for key in ('prompt_known_by', 'cached_known_by', 'local_tokens',
                        'computed_tokens'):
                self.assertEqual(actual[key], line[key])
        return prompt, cached, *guessed


class Hits(HitsCase):
    def test_whatever_the_usage_tells(self):
        """Prompts that come three times; so much of them is cached as the
        engine has, or as was predicted."""
        latin = 'A full block is kept and so on. '
        chinese = '一个完整的块会被保存下来。'
        ids = list(range(9 * BLOCK))
        cases = ((latin * 9, 1), (latin * 9, 5), (chinese * 40, 3), (ids, 1),
                 (latin * 4, 4))
        # One engine always tells the same: the next one is another.
        for tells in ('prompt', 'cached'), ('prompt',), ('cached',), ():
            teller = Teller()
            teller.tells = tells
            cluster = self.engines(teller.serve, config=self.logs(),
                                   block_tokens=BLOCK)
            n, before, marks = 0, (0, 0, 0, 0), (0, 0)
            for (prompt, each), stream in itertools.product(
                    cases, (False, True)):
                with self.subTest(prompt=prompt[:20], each=each, tells=tells,
                                  stream=stream):
                    teller.bytes_each = each
                    # Each case has a beginning of its own.
                    own = [1000 + n] + prompt if prompt is ids else \
                        f'{n:05d}' + prompt
                    real = len(teller.tokens(own))
                    # A block of four bytes a word, in its tokens.
                    slack = BLOCK * (1 if prompt is ids else 4 / each) + 3
                    for _ in range(3):
                        self.assertEqual(self.post(cluster, {
                            'prompt': own, 'stream': stream}).status, 200)
                    n += 3
                    now = self.agree(cluster, n)
                    got = [b - a for a, b in zip(before, now)]
                    before = now
                    exact = prompt is ids or 'prompt' in tells
                    if exact:
                        self.assertEqual(got[0], 3 * real)
                    self.assertEqual(got[2], 0 if exact else got[0])
                    self.assertEqual(
                        got[3], 0 if 'cached' in tells else got[0])
                    # The first one had nothing, the others all but some.
                    if exact:
                        self.assertLessEqual(got[1], 2 * real)
                        self.assertGreaterEqual(got[1], 2 * (real - slack))
                    counts = self.compared(cluster.api.metrics())
                    new = [b - a for a, b in zip(marks, counts)]
                    marks = counts
                    if exact and 'cached' in tells:
                        self.assertGreater(new[1], 0)
                        self.assertLessEqual(abs(new[0] - new[1]), 2 * slack)
                    else:
                        self.assertEqual(new, [0, 0])
            self.end(cluster)
            os.remove(os.path.join(self.folder, 'access.log'))

    def test_the_example(self):
        """288 tokens of which four bytes were taken for one: as told."""
        teller = Teller()
        cluster = self.engines(teller.serve, config=self.logs(),
                               block_tokens=BLOCK)
        prompt = 'A full block is kept and so on. ' * 9
        for _ in range(3):
            self.post(cluster, {'prompt': prompt})
        self.assertEqual(self.agree(cluster, 3), (3 * 288, 2 * 256, 0, 0))
        self.assertEqual(self.compared(cluster.api.metrics()), (512, 512))

    def test_a_zero_that_is_left_out(self):
        """As vLLM and SGLang do. An engine that has told cached tokens tells
        with a usage without them that it had none, whatever was predicted."""
        teller = Teller()
        cluster = self.engines(teller.serve, config=self.logs(),
                               block_tokens=BLOCK)
        teller.tells = 'prompt', 'cached, not 0'
        body = {'prompt': list(range(288))}
        self.post(cluster, body)  # not yet known to tell
        self.assertEqual(self.agree(cluster, 1), (288, 0, 0, 288))
        self.post(cluster, body)
        self.assertEqual(self.agree(cluster, 2), (576, 256, 0, 288))
        for stream in False, True:
            teller.blocks.clear()  # it has evicted all
            self.post(cluster, {**body, 'stream': stream})
        self.assertEqual(self.agree(cluster, 4), (1152, 256, 0, 288))
        self.assertEqual(self.compared(cluster.api.metrics()), (768, 256))
        # A usage of another form is not one without them.
        teller.tells, teller.usage = (), {'input_tokens': 288}
        self.post(cluster, body)
        self.assertEqual(self.agree(cluster, 5)[3], 576)

    def test_chats_that_tell(self):
        """What an engine tells of chats says nothing of its completions."""
        teller = Teller()
        cluster = self.engines(teller.serve, config=self.logs(),
                               block_tokens=BLOCK)
        body = {'prompt': list(range(288))}
        chat = {**body, 'messages': [{'role': 'user', 'content': 'x' * 288}]}
        self.post(cluster, chat, '/v1/chat/completions')
        teller.tells = ('prompt',)
        guessed = self.agree(cluster, 1)[3]
        self.post(cluster, body)
        self.assertEqual(self.agree(cluster, 2)[3], guessed + 288)

    def test_fewer_than_predicted(self):
        """An engine that tells none has evicted the prompt before, and holds
        it again now that it has computed it: what it tells is of the past, and
        takes nothing out of its predicted cache."""
        teller = Teller()
        cluster = self.engines(teller.serve, config=self.logs(),
                               block_tokens=BLOCK)
        for n in range(4):
            self.post(cluster, {'prompt': list(range(288))})
            self.lines(n + 1)
            teller.blocks.clear()
        self.assertEqual(self.compared(cluster.api.metrics()),
                         (3 * (287 // BLOCK * BLOCK), 0))

    def test_two_prompts(self):
        """Texts are known by the bytes of both, ids by those of the first."""
        teller = Teller()
        cluster = self.engines(teller.serve, config=self.logs(),
                               block_tokens=BLOCK)
        text = 'A full block is kept and so on. ' * 9
        n = 0
        for both in ([text, 'x' + text[1:]],
                     [list(range(288)), list(range(1000, 1288))]):
            before = self.compared(cluster.api.metrics())
            for _ in range(3):
                self.assertEqual(self.post(cluster, {
                    'prompt': both, 'n': 2}).status, 200)
            n += 3
            self.agree(cluster, n)
            predicted, told = (b - a for a, b in zip(
                before, self.compared(cluster.api.metrics())))
            self.assertEqual(told, 2 * 2 * 256)
            self.assertLessEqual(abs(told - predicted), 2 * BLOCK)
        self.assertEqual(predicted, told)
        self.assertEqual(self.sums(cluster.api.metrics())[0],
                         2 * 3 * 576)

    def test_batches_of_sglang(self):
        """Each prompt's tokens count, not those of the last one alone."""
        teller = Teller()

        def serve(request, send):
            body = json.loads(request.body)
            told = [{'text': 'abcd', 'meta_info': {
                'id': str(i), 'prompt_tokens': n, 'completion_tokens': 4,
                'cached_tokens': had}}
                    for i, (n, had) in enumerate(map(teller.count,
                                                     body['input_ids']))]
            if not body.get('stream'):
                send(reply(200, told))
                return
            send(stream_head() + b''.join(
                chunk(event({**one, 'index': i}))
                for i, one in 2 * list(enumerate(told))))
            send(chunk(event('[DONE]')) + b'0\r\n\r\n')
        cluster = self.engines(serve, config=self.logs(), kind='sglang',
                               block_tokens=BLOCK)
        prompts = [list(range(1000 * i, 1000 * i + 288)) for i in range(3)]
        for stream in False, True, False:
            self.assertEqual(self.post(cluster, {
                'input_ids': prompts, 'stream': stream}, '/generate').status,
                200)
        self.assertEqual(self.agree(cluster, 3),
                         (9 * 288, 6 * 256, 0, 0))

    def test_lies(self):
        """Of whatever an engine tells, the ratio is one."""
        rng = random.Random(11)
        teller = Teller()
        cluster = self.engines(teller.serve, config=self.logs(),
                               block_tokens=BLOCK)
        teller.tells = ()
        numbers = (-5, 0, 1, 64, 2 ** 31 - 1, 2 ** 31, 10 ** 12, 10 ** 30,
                   1.5, '"7"', None, True)
        for i in range(24):
            teller.usage = {
                'prompt_tokens': rng.choice(numbers),
                'prompt_tokens_details': {
                    'cached_tokens': rng.choice(numbers)}}
            self.assertEqual(self.post(cluster, {
                'prompt': rng.choice('xy') * 400,
                'stream': rng.random() < 0.5}).status, 200)
            prompt, cached, _ = self.sums(cluster.api.metrics())
            self.assertTrue(0 <= cached <= prompt, teller.usage)
            predicted, told = self.compared(cluster.api.metrics())
            self.assertLessEqual(max(predicted, told), prompt)
        self.agree(cluster, 24)

    def test_answers_that_do_not_end(self):
        """What an engine has computed counts, once, however its answer ends;
        what it has refused does not."""
        teller = Teller()
        cluster = self.engines(teller.serve, config=self.logs(),
                               block_tokens=BLOCK)
        teller.events = 'ab'  # and then the connection is reset
        body = {'prompt': 'x' * 512, 'stream': True}
        with self.assertRaises(http.client.IncompleteRead):
            self.post(cluster, body)
        self.assertEqual(self.agree(cluster, 1)[1:], (0, 128, 128))
        self.assertRegex(
            cluster.conductor.log(), r' info .*: (\S+): its answer was cut '
            r'after 2 tokens \(\d+ bytes\), instance e0: engine e0 failed: ')
        with self.assertRaises(http.client.IncompleteRead):
            self.post(cluster, body)
        self.assertEqual(self.agree(cluster, 2), (256, 96, 256, 256))
        # One whose client leaves, too.
        teller.events = iter(lambda: time.sleep(0.01) or 'a', None)
        connection, response = cluster.api.open(
            'POST', '/v1/completions', {'model': 'm', **body})
        response.readline()
        connection.close()
        self.assertEqual(self.agree(cluster, 3), (384, 192, 384, 384))
        left = [line for line in cluster.conductor.log().splitlines()
                if 'its client left' in line]
        self.assertRegex('\n'.join(left), self.lines(3)[2]['id'] +
                         r': its answer was cut after \d+ tokens \(\d+ bytes\),'
                         r' instance e0: its client left\Z')
        self.assertEqual(len(left), 1)

    def test_what_is_refused(self):
        """Neither the refused try nor an answer that asks for no work."""
        def refuse(_, send):
            send(reply(503, {'error': {}}))
        teller = Teller()
        cluster = self.engines(refuse, teller.serve, config=self.logs(),
                               block_tokens=BLOCK)
        for i in range(3):
            self.assertEqual(self.post(cluster, {
                'prompt': f'{i}' * 128}).status, 200)
        self.assertEqual(self.agree(cluster, 3)[:2], (3 * 128, 0))
        self.end(cluster)
        cluster = self.engines(refuse, config={
            'access_log': os.path.join(self.folder, 'other.log')})
        self.assertEqual(self.post(cluster, {'prompt': 'x' * 128}).status, 503)
        self.assertEqual(self.sums(cluster.api.metrics()), (0, 0, 0))

    def test_its_log_is_a_trace(self):
        """Of the tokens that were told; prompts that begin alike share their
        blocks, though a token has not as many bytes in each."""
        teller = Teller()
        cluster = self.engines(teller.serve, config=self.logs(),
                               block_tokens=BLOCK)
        base = 'A full block is kept and so on. ' * 64
        for prompt in base, base + 'other words follow here. ' * 60:
            self.assertEqual(self.post(cluster, {
                'prompt': prompt, 'max_tokens': 4}).status, 200)
        one, two = self.lines(2)
        self.assertEqual((one['input_length'], two['input_length']),
                         (2048, 3548))
        self.assertEqual(one['hash_ids'][:3], two['hash_ids'][:3])
        self.assertEqual(len(set(one['hash_ids'] + two['hash_ids'])), 4 + 7 -
                         len(set(one['hash_ids']) & set(two['hash_ids'])))
        status, out, errors = self.run_program(
            program(*REPLAY), 'from-log', '--log', 'access.log')
        self.assertEqual((status, errors), (0, '2 requests, 0 left out\n'))
        self.assertEqual([json.loads(line)['input_length']
                          for line in out.splitlines()], [2048, 3548])


class HitsOfTickets(GatewayCase, HitsCase):
    def test_as_the_gateway_reports(self):
        """A text's tokens come with the report, or are a guess."""
        cluster = self.engines(None, config=self.logs(), block_tokens=BLOCK)
        text = 'A full block is kept and so on. ' * 9
        for said in ({'prompt_tokens': 288, 'cached_tokens': 0},
                     {'prompt_tokens': 288, 'cached_tokens': 256},
                     {'prompt_tokens': 288, 'cached_tokens': 900}):
            got = self.ticket(cluster, text)
            self.assertEqual(self.report(
                cluster, got.body['ticket'], **said).status, 200)
        self.assertEqual(self.agree(cluster, 3), (3 * 288, 256 + 288, 0, 0))
        self.assertEqual(self.compared(cluster.api.metrics()),
                         (512, 256 + 288))
        for said in {'cached_tokens': 256}, {}:
            got = self.ticket(cluster, text)
            self.report(cluster, got.body['ticket'], **said)
        self.assertEqual(self.agree(cluster, 5), (
            3 * 288 + 256 + 72, 256 + 288 + 256 + 64, 256 + 72, 72))
        self.assertEqual(self.compared(cluster.api.metrics()),
                         (512, 256 + 288))
