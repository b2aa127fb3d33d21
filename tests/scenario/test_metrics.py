"""/metrics: the page that tells of it, Prometheus's own check, what clients
cannot do to it, and the pieces in which many instances are written."""
import hashlib
import json
import os
import re
import shutil
import socket
import subprocess
import unittest

from harness import CONDUCTOR, ROOT, Case, program, read_file, wait_until
from redis_server import MISSING, REDIS, RedisServer

PAGE = os.path.join(ROOT, 'docs', 'reference', 'metrics.md')
# Whose values the configuration and the cluster say.
OPEN = {'model', 'instance', 'tenant', 'store', 'version'}


def families(text):
    """name -> [type, {label: values}], and how many series there are."""
    found, n = {}, 0
    for line in text.splitlines():
        if line.startswith('# '):
            _, what, name, rest = line.split(' ', 3)
            found.setdefault(name, [None, {}])
            if what == 'TYPE':
                found[name][0] = rest
            continue
        n += 1
        name, labels = re.match(r'(\w+)(?:\{(.*)\})? ', line).groups()
        if name not in found:
            name = re.sub('_(bucket|sum|count)$', '', name)
        for label, value in re.findall(r'(\w+)="([^"]*)"', labels or ''):
            if label != 'le':
                found[name][1].setdefault(label, set()).add(value)
    return found, n


def rows(page):
    """The same, of the page; each row must say what to do, too."""
    found = {}
    for line in page.splitlines():
        cells = [c.strip() for c in line.split('|')[1:-1]]
        if not line.startswith('| `'):
            continue
        name, kind, labels, meaning, advice = cells
        name = name.strip('`')
        assert name not in found and meaning and advice, line
        found[name] = [kind, {}]
        for part in re.findall(r'`\w+`[^`]*', labels):
            label, _, values = part.partition(':')
            found[name][1][label.strip('` ,')] = {
                v.strip() for v in values.split(',') if v.strip()}
    return found


class Metrics(Case):
    def text(self, cluster):
        reply = cluster.api.get('/metrics').ok()
        return reply.body.decode()

    def with_all(self):
        """Whatever has metrics of its own is there."""
        tenants = self.write('tenants.json', json.dumps({'tenants': [
            {'name': name, 'weight': 1,
             'sha256': [hashlib.sha256(name.encode()).hexdigest()]}
            for name in ('one', 'two')]}))
        return self.cluster(kv_mib=16, config={
            'state': RedisServer(self).url() if REDIS else 'memory',
            'tenants_file': tenants,
            'stores': [{'name': 'cake', 'model': 'm', 'tokens_per_s': 1,
                        'kv_events': 'tcp://127.0.0.1:9'}],
            'engines': [{'name': 'e0', 'url': 'http://127.0.0.1:9',
                         'model': 'm'}]})

    @unittest.skipUnless(REDIS, MISSING)
    def test_page(self):
        """docs/reference/metrics.md has every metric, with its type and its labels, and
        no other; and the number of series is as it says."""
        cluster = self.with_all()
        for key in 'one', 'two', 'three':
            for _ in range(2):
                reply = cluster.api.post('/v1/completions', {
                    'model': 'tiny', 'prompt': 'x' * 100, 'max_tokens': 3},
                    {'Authorization': f'Bearer {key}'}).ok()
        told, n = families(self.text(cluster))
        page = read_file(PAGE)
        written = rows(page)
        self.assertEqual(sorted(told), sorted(written))
        for name, (kind, labels) in told.items():
            with self.subTest(name):
                self.assertEqual(kind, written[name][0])
                # Of which test_plan, test_on_call and test_tls have series.
                if name not in ('conductor_instance_path_bytes_per_second',
                                'conductor_instance_losses',
                                'conductor_certificate_expires_seconds'):
                    self.assertEqual(set(labels), set(written[name][1]))
                for label in set(labels) - OPEN:
                    self.assertEqual(labels[label], written[name][1][label])
        bound = re.search(r'(\d+) × m \+ (\d+) × e \+ (\d+) × '
                          r'\(t \+ 1\) \+\s+(\d+) × s \+ (\d+)', page)
        each, engine, tenant, store, fixed = map(int, bound.groups())
        self.assertEqual(each * 2 + engine + tenant * 3 + store + fixed, n)

    @unittest.skipUnless(shutil.which('promtool'), 'promtool is not installed')
    def test_promtool(self):
        done = subprocess.run(['promtool', 'check', 'metrics'], check=False,
                              input=self.text(self.with_all()), text=True,
                              capture_output=True)
        self.assertEqual((done.returncode, done.stdout, done.stderr),
                         (0, '', ''))

    def test_names_of_markup(self):
        """What an operator's configuration, an engine, a worker or a client
        calls itself is text in all views, and a label in the metrics."""
        evil = '<img>"\\{}\u2028'
        name = evil[:-1]  # of instances: printable ASCII without blanks
        cluster = self.cluster(prefill=0, decode=0, both=1, kv_mib=16, config={
            'engines': [{'name': f'e{name}', 'url': 'http://127.0.0.1:9',
                         'model': evil, 'aliases': [f'a {evil}']}]})
        cluster.start_worker(name, 'both', kv_mib=16)
        cluster.wait_ready(2, 2)
        self.assertEqual(cluster.api.post('/v1/completions', {
            'model': 'tiny', 'prompt': 'x' * 40, 'max_tokens': 1, 'user': evil},
            {'x-request-id': f'{name}\t\xff', 'x-session-id': name}
        ).status, 200)
        views = {path: cluster.api.get(path).body for path in (
            '/admin/overview', '/admin/instances', '/admin/decisions',
            '/admin/copies', '/v1/models', '/ready', '/health')}
        for path, view in views.items():
            self.assertIsInstance(view, dict, path)  # it is JSON
        self.assertEqual([m['name'] for m in views['/admin/overview'][
            'models']], ['tiny', evil])
        self.assertEqual({i['name'] for i in views['/admin/instances'][
            'instances']} - {'b0'}, {name, f'e{name}'})
        text = self.text(cluster)
        label = name.replace('\\', '\\\\').replace('"', '\\"')
        self.assertIn(f'conductor_instance_ready{{instance="{label}"}} 1\n',
                      text)
        if shutil.which('promtool'):
            done = subprocess.run(['promtool', 'check', 'metrics'],
                                  check=False, input=text, text=True,
                                  capture_output=True)
            self.assertEqual((done.returncode, done.stderr), (0, ''))

    def test_names_that_no_view_can_show(self):
        path = self.write('bad.json', '')
        for more in ({'model': 'a\nb'}, {'model': 'a\x7f'}, {'engines': [
                {'name': 'e', 'url': 'http://127.0.0.1:9', 'model': 'm',
                 'adapters': ['a\nb']}]}):
            self.check_config({'policy': 'least_loaded', **more}, 2,
                              'printable')
        status, _, errors = self.run_program(
            program(*CONDUCTOR), '-t', '-s', 'policy=least_loaded', '-s',
            os.fsdecode(b'model=\xff'))
        self.assertEqual(status, 2)
        self.assertIn('model', errors)

    def test_clients_make_no_series(self):
        cluster = self.with_all()
        _, before = families(self.text(cluster))
        for i in range(20):
            cluster.api.post(f'/v1/{i}', {'model': f'm{i}', 'prompt': 'x' * i},
                {'Authorization': f'Bearer {i}', 'x-request-id': f'r"{i}'})
            cluster.api.post('/v1/completions', {
                'model': ('tiny', f'a{i}')[i % 2], 'prompt': 'x' * (i + 1),
                 'user': f'u{i}', 'max_tokens': 1},
                {'Authorization': f'Bearer {i}', 'x-session-id': f's{i}'})
        self.assertEqual(families(self.text(cluster))[1],
                         before + 1)  # the standing of `other`, who asked

    def test_why_requests_fail(self):
        cluster = self.cluster(kv_blocks=8)
        self.assertEqual(cluster.api.complete('x' * 200).status, 400)
        self.assertEqual(cluster.api.metrics()[
            'conductor_failures_total{reason="prompt_exceeds_kv_capacity"}'],
            1)

    def test_ways_of_blocks(self):
        """KV that is pushed to a decode worker has its time and its tokens,
        and predictions are beside what came of them."""
        cluster = self.cluster()
        self.assertEqual(cluster.api.complete('x' * 100).status, 200)
        seen = cluster.api.metrics()
        self.assertEqual(seen['conductor_pushed_tokens_total'], 100)
        for name in ('transfer_seconds_count{path="push"}',
                     'ttft_predicted_over_measured_ratio_count',
                     'tbt_predicted_over_measured_ratio_count'):
            self.assertEqual(seen[f'conductor_{name}'], 1, name)
        self.assertEqual(
            seen['conductor_instance_estimated_wait_seconds{instance="p0"}'],
            0)
        wait_until('the loop was asked', lambda:
            cluster.api.metric('loop_lag_seconds_count') > 1)

    def ask_for_metrics(self, cluster, times=1):
        """Who takes little of them."""
        s = socket.socket()
        self.addCleanup(s.close)
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        s.connect(('127.0.0.1', cluster.ports['http']))
        s.sendall(b'GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n' * times)
        return s

    def test_many_instances(self):
        """The whole text comes in pieces; of who takes none of it little is
        kept, and others go on."""
        n = 1000
        cluster = self.cluster(prefill=0, decode=0, config={
            'max_instances': n, 'engine_health_ms': 600000, 'engines': [
                {'name': f'e{i}', 'url': f'http://127.0.0.1:9/{i}',
                 'model': 'm'} for i in range(n)]})
        stuck = self.ask_for_metrics(cluster, 3)
        seen = cluster.api.metrics()
        self.assertEqual(sum(k.startswith('conductor_engine_waiting{')
                             for k in seen), n)
        self.assertGreater(len(seen), 45 * n)
        unsent = wait_until('it waits for its client', lambda: int(
            cluster.api.metric('http_unsent_bytes')))
        self.assertLess(unsent, 1 << 20)  # its own, and of who asks
        head = cluster.api.open('HEAD', '/metrics')
        self.assertEqual((head[1].status, head[1].read()), (200, b''))
        head[0].close()
        stuck.close()
        wait_until('it is gone', lambda:
            cluster.api.metric('http_connections') == 1)
        many = [self.ask_for_metrics(cluster) for _ in range(20)]
        wait_until('the last ones are refused', lambda: sum(
            b' 503 ' in s.recv(13, socket.MSG_PEEK) for s in many) == 4)
        for s in many:
            s.close()
