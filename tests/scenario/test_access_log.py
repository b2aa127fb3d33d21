"""The access log: a line for each request, a reload that begins another file,
lines that nobody takes, and the log as a trace."""
import json
import os

from harness import (BLOCK_TOKENS, CONDUCTOR, REPLAY, ROOT, Case, program,
                     read_file, wait_until)


class AccessLog(Case):
    def logged(self, n, name='access.log'):
        """The n lines of the log, when they are there."""
        path = os.path.join(self.folder, name)

        def lines():
            if not os.path.exists(path):
                return []
            return read_file(path).splitlines()
        wait_until(f'{name} has {n} lines', lambda: len(lines()) >= n)
        self.assertEqual(len(lines()), n)
        return [json.loads(line) for line in lines()]

    def with_log(self, **config):
        return self.cluster(config={
            'access_log': os.path.join(self.folder, 'access.log'),
            **config})

    def test_a_line_for_each(self):
        cluster = self.with_log()
        prompt = 'w' * (4 * BLOCK_TOKENS + 5)
        for _ in range(2):
            got = cluster.api.post('/v1/completions', {
                'prompt': prompt, 'max_tokens': 7}, {
                    'x-request-id': 'mine "1"',
                    'traceparent': '00-' + 'a' * 32 + '-' + 'b' * 16 + '-01'})
        late = cluster.api.post('/v1/completions', {
            'prompt': 'other ' * 50, 'max_tokens': 3},
            {'x-slo-ttft-ms': '0.001'})
        self.assertEqual(late.status, 429)
        one, two, refused = self.logged(3)
        self.assertEqual(two['id'], got.body['conductor']['request_id'])
        self.assertEqual(
            [two[k] for k in ('client_id', 'tenant_name', 'model', 'prefill',
                              'decode', 'outcome', 'status', 'reason',
                              'retries', 'max_tokens', 'output_tokens',
                              'output_length', 'input_length')],
            ['mine "1"', 'other', 'tiny', 'p0', 'd0', 'completed', 200, None,
             0, 7, 7, 7, len(prompt)])
        self.assertEqual(two['local_tokens'] + two['fetched_tokens'] +
                         two['disk_tokens'] + two['computed_tokens'],
                         len(prompt))
        self.assertEqual((one['local_tokens'], two['local_tokens']),
                         (0, 4 * BLOCK_TOKENS))
        for key in 'predicted_ttft_ms', 'ttft_ms', 'tbt_ms':
            self.assertGreater(two[key], 0)
        self.assertNotIn('hash_ids', two)
        self.assertEqual(
            [refused[k] for k in ('outcome', 'status', 'reason', 'ttft_ms',
                                  'output_tokens')],
            ['rejected', 429, 'slo_ttft_exceeded', None, 0])

    def test_another_file_after_a_reload(self):
        """As logrotate does: what came before is in the old one, nothing is
        lost, and a file that cannot be opened changes nothing."""
        cluster = self.with_log()
        self.assertEqual(cluster.api.complete('one').status, 200)
        self.logged(1)
        os.rename(os.path.join(self.folder, 'access.log'),
                  os.path.join(self.folder, 'old.log'))
        self.assertEqual(cluster.api.complete('two').status, 200)
        self.logged(2, 'old.log')
        self.assertEqual(
            cluster.api.post('/admin/reload').status, 200)
        self.assertEqual(cluster.api.complete('three').status, 200)
        self.logged(1)
        self.write('conductor.json', json.dumps(
            {**cluster.config, 'access_log': '/nowhere/x'}))
        self.assertError(cluster.api.post('/admin/reload'), 400,
                         'access_log: "/nowhere/x": No such file')
        self.assertEqual(cluster.api.complete('four').status, 200)
        self.logged(2)
        self.write('conductor.json', json.dumps(
            {**cluster.config, 'access_log': ''}))
        self.assertEqual(
            cluster.api.post('/admin/reload').status, 200)
        self.assertEqual(cluster.api.complete('five').status, 200)
        self.logged(2)
        self.logged(2, 'old.log')

    def test_lines_that_cannot_be_written(self):
        """/dev/full takes none: requests are answered, lines counted."""
        cluster = self.cluster(config={'access_log': '/dev/full'})
        for _ in range(3):
            self.assertEqual(cluster.api.complete('x').status, 200)
        wait_until('all are counted', lambda:
            cluster.api.metric('access_log_lost_total') == 3)

    def test_it_is_a_trace(self):
        cluster = self.with_log(access_log_blocks=True)
        base = 'b' * 1100
        for prompt in base, base + 'c' * 600, base + 'd' * 90, 'e' * 40:
            self.assertEqual(cluster.api.complete(prompt).status, 200)
        lines = self.logged(4)
        ids = [line['hash_ids'] for line in lines]
        self.assertEqual([len(i) for i in ids], [3, 4, 3, 1])
        self.assertEqual(ids[0][:2], ids[1][:2])
        self.assertEqual(ids[0][:2], ids[2][:2])
        self.assertEqual(len({i[-1] for i in ids}), 4)
        # Lines stand in order of their end; a trace is in order of arrival.
        with open(os.path.join(self.folder, 'access.log'), 'w',
                  encoding='utf-8') as f:
            for line in lines[::-1]:
                f.write(json.dumps(line) + '\n')
        replay = program(*REPLAY)
        status, _, errors = self.run_program(
            replay, 'from-log', '--log', 'access.log', '--out', 't.jsonl')
        self.assertEqual((status, errors), (0, '4 requests, 0 left out\n'))
        with open(os.path.join(self.folder, 't.jsonl'),
                  encoding='utf-8') as f:
            trace = [json.loads(line) for line in f]
        self.assertEqual(trace[0]['timestamp'], 0)
        self.assertEqual([t['hash_ids'] for t in trace], ids)
        self.assertEqual([t['input_length'] for t in trace],
                         [len(base), 1700, 1190, 40])
        status, out, errors = self.run_program(
            replay, 'simulate', '--trace', 't.jsonl', '--cluster',
            os.path.join(ROOT, 'traces', 'clusters', 'paper-16.json'))
        self.assertEqual(status, 0, errors)
        self.assertIn('4', out + errors)

    def test_whether_it_could_be_written(self):
        """-t tells, and makes no file."""
        for name, status in (('new.log', 0), ('nowhere/new.log', 2), ('.', 2)):
            path = os.path.join(self.folder, name)
            got, _, errors = self.run_program(
                program(*CONDUCTOR), '-t', '-s', 'policy=random', '-s',
                f'access_log={path}', '-s', 'access_log_blocks=true')
            self.assertEqual(got, status, errors)
            self.assertEqual(f'access_log: "{path}": ' in errors, status != 0)
            self.assertFalse(os.path.isfile(path))
        self.assertIn('access_log_blocks: 2: must be true or false', self.run_program(
            program(*CONDUCTOR), '-t', '-s', 'access_log_blocks=2')[2])

    def test_a_pipe_that_nobody_reads_yet(self):
        """It starts and reloads; the lines wait for the reader."""
        pipe = os.path.join(self.folder, 'pipe')
        os.mkfifo(pipe)
        cluster = self.cluster(prefill=0, decode=0,
                               config={'access_log': pipe})
        self.assertEqual(self.run_program(
            program(*CONDUCTOR), '-t', '-s', 'policy=random', '-s',
            f'access_log={pipe}')[0], 0)
        for name in 'a', 'b':
            cluster.api.post('/v1/completions', b'x', {'x-request-id': name})
            self.assertEqual(cluster.api.post('/admin/reload').status, 200)
        with open(pipe, encoding='utf-8') as f:
            self.assertEqual([json.loads(f.readline())['client_id']
                              for _ in 'ab'], ['a', 'b'])

    def test_a_line_that_is_not_whole(self):
        line = ('{"timestamp":5,"input_length":1,"output_length":1,'
                '"hash_ids":[1]}\n')
        self.write('torn', line + line[:-9])
        status, out, errors = self.run_program(
            program(*REPLAY), 'from-log', '--log', 'torn')
        self.assertEqual((status, out.count('\n')), (0, 1), errors)
        self.assertIn('torn:2: the last line has no end', errors)
        self.assertIn('1 requests, 1 left out: 1 on an unfinished last line\n',
                      errors)

    def test_refused_without_a_prompt(self):
        line = ('{"timestamp":5,"input_length":%d,"output_length":%d,'
                '"hash_ids":%s}\n')
        self.write('some', line % (1, 1, '[1]') + line % (0, 0, '[]')
                   + line % (1, 1, '[2]') + line % (0, 0, '[]')
                   + line % (1, 0, '[3]'))
        status, out, errors = self.run_program(
            program(*REPLAY), 'from-log', '--log', 'some')
        self.assertEqual((status, out.count('\n')), (0, 2), errors)
        self.assertRegex(errors, r'2 requests, 3 left out: 2 without a prompt.*'
                                 r', 1 without an answer')

    def test_logs_that_are_no_trace(self):
        self.write('a', '{"timestamp":5,"input_length":1,"output_length":1}\n')
        self.write('b', '{"timestamp":5,\n')
        for name, told in (('a', 'a:1: hash_ids'), ('b', 'b:1: '),
                           ('none', 'none: No such file')):
            status, _, errors = self.run_program(
                program(*REPLAY), 'from-log', '--log', name)
            self.assertNotEqual(status, 0)
            self.assertIn(told, errors)
