"""conductorctl diagnose, the alerts, and the page that both lead to."""
import json
import os
import re
import shutil
import subprocess
import sys
import unittest

from harness import (ROOT, Case, Cluster, die_with_parent, mostly_waits,
                     program, read_file, settings, wait_until)
from redis_server import MISSING, REDIS, RedisServer
from stand_in import Engine, reply

CTL = 'tools', 'conductorctl'
RULES = os.path.join(ROOT, 'packaging', 'prometheus', 'conductor.rules.yml')
PAGE = os.path.join(ROOT, 'docs', 'operate', 'on-call.md')


def alerts():
    """{name: (expression, heading)}, by the file's own form."""
    found = {}
    for block in re.split(r'\n {6}- alert: ', read_file(RULES))[1:]:
        expr = re.search(r' expr: (?:>-)?(.*?)\n {8}for:', block, re.S).group(1)
        heading = re.search(r'runbook_url: .*on-call\.md#([\w-]+)"', block)
        found[block.split('\n')[0]] = (' '.join(expr.split()),
                                       heading.group(1))
    return found


def headings():
    """The anchors of the page, as GitHub makes them."""
    return [re.sub(r'[^\w -]', '', h).strip().lower().replace(' ', '-')
            for h in re.findall(r'^## (.*)', read_file(PAGE), re.M)]


def limits(expr):
    """Each comparison with a number: (operator, number)."""
    out = []
    for sign, value in re.findall(r'([<>]) ([0-9.]+(?: \* [0-9]+)?)(?= or|'
                                  r' unless| and|$)', expr):
        number = 1.0
        for factor in value.split(' * '):
            number *= float(factor)
        out.append((sign, number))
    return out


class Diagnosed(Case):
    def diagnose(self, port, *options):
        """(exit status, standard output, errors). In half a second too few
        timers fire to judge the event loop: no case judges a time."""
        return self.run_program(program(*CTL), '-a', f'127.0.0.1:{port}',
                                '--over', '0.5', *options, 'diagnose')

    def judged(self, port, *options):
        status, out, errors = self.diagnose(port, '--json', *options)
        self.assertEqual(errors, '')
        told = json.loads(out)
        self.assertEqual(status, 0 if told['ok'] else 1)
        self.assertEqual(told['ok'], not told['wrong'])
        return told

    def test_limits_and_headings(self):
        """diagnose, the alerts and the page say the same."""
        rules, page = alerts(), headings()
        self.assertEqual(len(page), len(set(page)))
        cluster = self.cluster()
        checks = self.judged(cluster.ports['http'])['checks']
        for check in checks:
            with self.subTest(check['check']):
                self.assertIn(check['page'], page)
                self.assertTrue(check['ok'])
                if check['alert']:
                    expr, heading = rules[check['alert']]
                    self.assertEqual(check['page'], heading)
                    sign = {'above': '>', 'below': '<'}[check['wrong_if']]
                    self.assertIn((sign, check['limit']), limits(expr))
                    self.assertEqual(
                        [float(n) for n in re.findall(r'>= ([0-9]+)', expr)],
                        [check['least']] if check['least'] else [])
        for name, (expr, heading) in rules.items():
            with self.subTest(name):
                self.assertIn(heading, page)
                self.assertIn(f'`{name}`', read_file(PAGE))
        checked = {c['alert'] for c in checks} - {None}
        self.assertEqual(checked, set(rules) - {'ConductorDown'})
        used = {c['page'] for c in checks} | {h for _, h in rules.values()}
        self.assertEqual(used, set(page))
        # Bounds of histograms, too.
        source = read_file(ROOT, 'tools', 'ctl', 'checks.c')
        for bound in re.findall(r'le="([0-9.]+)"', read_file(RULES)):
            self.assertIn(f'"{bound}"', source)

    def test_nothing_wrong(self):
        cluster = self.cluster()
        cluster.api.complete('a prompt ' * 10).ok()
        status, out, errors = self.diagnose(cluster.ports['http'])
        self.assertEqual((status, errors), (0, ''))
        self.assertRegex(out, r'\Aconductor 127\.0\.0\.1:\d+, version [\d.]+, '
                              r'up [\d.]+ h; two readings, 0\.5 s apart\n'
                              r'nothing wrong: \d+ checks\n\Z')

    def test_what_is_wrong(self):
        """A worker that flaps comes before what it causes; drained by its
        operator, it is known."""
        cluster = self.cluster(prefill=1)
        for _ in range(3):
            worker = cluster.workers['p0']
            worker.kill()
            self.processes.remove(worker)
            self.wait_for_no_prefill(cluster)
            cluster.start_worker('p0', 'prefill')
            cluster.wait_ready(1, 1)
        worker = cluster.workers['p0']
        worker.kill()
        self.processes.remove(worker)
        self.wait_for_no_prefill(cluster)
        status, out, _ = self.diagnose(cluster.ports['http'])
        self.assertEqual(status, 1)
        lines = out.splitlines()[1:]
        self.assertEqual(lines[:2], [
            '1. an instance flaps: p0: losses in 10 minutes 4, normal is at '
            'most 2', '   docs/operate/on-call.md#a-worker-flaps'])
        self.assertEqual(lines[2], '2. a model is not ready: tiny: ready 0, '
                                   'normal is at least 1')
        self.assertEqual(cluster.api.metric('instance_losses', instance='p0'),
                         4)
        cluster.start_worker('p0', 'prefill')
        cluster.wait_ready(1, 1)
        cluster.api.post('/admin/instances/p0/drain').ok()
        told = self.judged(cluster.ports['http'])
        wrong, = told['wrong']
        self.assertEqual((wrong['check'], wrong['detail']),
                         ('model_ready', '1 of 1 for prefill drained: '
                                         'conductorctl undrain p0'))

    @staticmethod
    def wait_for_no_prefill(cluster):
        wait_until('p0 is gone', lambda: cluster.api.instances()[0] == 0)

    def test_an_engine_that_is_taken_out(self):
        """It counts as lost, and is named with its state."""
        engines = [Engine(), Engine()]
        for engine in engines:
            self.addCleanup(engine.stop)
        cluster = Cluster(self)
        cluster.config = {
            'listen': '127.0.0.1:0', 'engine_health_ms': 20, 'engines': [
                {'name': f'e{i}', 'url': e.url, 'model': 'm'}
                for i, e in enumerate(engines)]}
        cluster.start_conductor()
        wait_until('both are ready', lambda: cluster.api.instances()[0] == 2)
        self.assertTrue(self.judged(cluster.ports['http'])['ok'])
        engines[1].health = 503
        wait_until('e1 is out', lambda: cluster.api.instances()[0] == 1)
        wrong, = self.judged(cluster.ports['http'])['wrong']
        self.assertEqual(
            (wrong['check'], wrong['subject'], wrong['detail'], wrong['value']),
            ('instance_ready', 'e1', f'suspect, {engines[1].url}: it answers '
             'its health check with 503', 0))
        self.assertEqual(cluster.api.metric('instance_losses', instance='e1'),
                         1)
        engines[1].health = 200
        wait_until('e1 is back', lambda: cluster.api.instances()[0] == 2)
        self.assertTrue(self.judged(cluster.ports['http'])['ok'])
        for name in 'e0', 'e1':
            cluster.api.post(f'/admin/instances/{name}/drain').ok()
        wrong, = self.judged(cluster.ports['http'])['wrong']
        self.assertEqual((wrong['check'], wrong['detail']), (
            'model_ready', '2 of 2 drained: conductorctl undrain e0'))
        self.assertError(
            cluster.api.post('/v1/completions', {'model': 'm', 'prompt': 'x'}),
            503, "no engine of model 'm' is ready: all 2 are drained")

    def test_an_engine_that_never_came(self):
        """It has an entry, and has told nothing, not even its model."""
        engine, later = Engine(), Engine()
        self.addCleanup(engine.stop)
        later.stop()
        cluster = Cluster(self)
        cluster.config = {
            'listen': '127.0.0.1:0', 'engine_health_ms': 20, 'engines': [
                {'name': 'here', 'url': engine.url},
                {'name': 'away', 'url': later.url}]}
        cluster.start_conductor()
        wait_until('one is ready', lambda: cluster.api.instances()[0] == 1)
        wait_until('the other was asked', lambda: next(
            i for i in cluster.api.request(
                'GET', '/admin/instances').body['instances']
            if i['name'] == 'away').get('last_error'))
        wrong, = self.judged(cluster.ports['http'])['wrong']
        self.assertEqual(
            (wrong['check'], wrong['subject'], wrong['detail'], wrong['value']),
            ('instance_ready', 'away',
             f'starting, {later.url}: Connection refused', 0))
        for name, ready in {'here': 1, 'away': 0}.items():
            self.assertEqual(
                cluster.api.metric('instance_ready', instance=name), ready)
        cluster.api.post('/admin/instances/away/drain').ok()
        self.assertTrue(self.judged(cluster.ports['http'])['ok'])
        cluster.api.post('/admin/instances/away/undrain').ok()
        later = later.restart()
        self.addCleanup(later.stop)
        wait_until('both are ready', lambda: cluster.api.instances()[0] == 2)
        self.assertTrue(self.judged(cluster.ports['http'])['ok'])

    def test_it_cannot_ask(self):
        status, out, errors = self.diagnose(9)
        self.assertEqual((status, out), (2, ''))
        self.assertIn('Connection refused', errors)
        server = Engine(lambda request, send: send(reply(200, b'[1]')))
        self.addCleanup(server.stop)
        server.metrics = 'vllm:num_requests_running 1\n'
        status, out, errors = self.diagnose(server.port)
        self.assertEqual((status, out), (2, ''))
        self.assertEqual(errors, (
            f'conductorctl: 127.0.0.1:{server.port}/metrics: has no '
            "conductor_build_info, so this is not a conductor's address "
            '(address from --address)\n'))
        server.metrics = 'conductor_build_info{version="\x1b[2J"} 1\n'
        status, out, errors = self.diagnose(server.port)
        self.assertEqual((status, out), (2, ''))
        self.assertIn('no JSON object', errors)

    def test_bundle(self):
        """It has what a report needs, and no secret of anybody."""
        secrets = {'prompt': 'Zaphod hides a towel', 'key': 'sk-q8w7e6r5t4',
                   'session': 'session-7531', 'id': 'mine-97531',
                   'password': 'redis-pa55', 'admin': 'a' * 30 + 'admin',
                   'bearer': 'b3ar3r', 'query': 'in-a-query'}
        key_file = self.write('admin.key', secrets['admin'])
        os.chmod(key_file, 0o600)
        redis = (RedisServer(self, requirepass=secrets['password']).url()
                 if REDIS else 'memory')
        cluster = self.cluster(config={
            'admin_key_file': key_file, 'admin_listen': '127.0.0.1:0',
            'state': redis, 'log_level': 'debug'})
        cluster.api.complete(
            secrets['prompt'] + ' x' * 100, headers={
                'Authorization': f'Bearer {secrets["key"]}',
                'x-session-id': secrets['session'],
                'x-request-id': secrets['id']},
            cache_salt=secrets['key'], user=secrets['key']).ok()
        log = self.write('the.log', cluster.conductor.log() + (
            f'x http://u:{secrets["password"]}@h/p?prompt={secrets["query"]} '
            f'Authorization: Bearer {secrets["bearer"]}\n'
            f'x api_token={secrets["bearer"]}\nlast line\n'))
        # One of a later version may have options that this one does not know.
        with open(os.path.join(self.folder, 'conductor.json'),
                  encoding='utf-8') as f:
            config = self.write('later.json', json.dumps(json.load(f) | {
                'later_keys': [secrets['key']], 'later_pass': secrets['admin'],
                'later_url': f'http://h/p?api-key={secrets["query"]}',
                'later_headers': {'Authorization': secrets['bearer']}}))
        options = ('-k', key_file, '--log', log, '--config', config,
                   '--bundle', self.write('b.json', 'long' * 100000))
        os.chmod(os.path.join(self.folder, 'b.json'), 0o644)
        status, out, errors = self.diagnose(cluster.ports['admin'], *options)
        self.assertEqual((status, errors), (0, ''), out)
        path = os.path.join(self.folder, 'b.json')
        self.assertEqual(os.stat(path).st_mode & 0o777, 0o600)
        text = read_file(path)
        for name, secret in secrets.items():
            self.assertFalse(secret in text, name)
        bundle = json.loads(text)
        self.assertEqual(bundle['config']['model'], 'tiny')
        self.assertEqual(bundle['config']['admin_key_file'], key_file)
        self.assertTrue(bundle['log'].endswith('\nlast line\n'))
        self.assertIn('worker p0 joined', bundle['log'])
        decision, = bundle['decisions']['decisions']
        self.assertEqual((decision['state'], decision['session']),
                         ('completed', '[removed]'))
        self.assertIn('conductor_build_info{version=', bundle['metrics'])
        self.assertTrue(bundle['diagnosis']['ok'])
        for part in 'health', 'ready', 'instances', 'overview', 'history':
            self.assertIsInstance(bundle[part], dict)
        if REDIS:
            self.assertRegex(bundle['config']['state'],
                             r'^redis://-@127\.0\.0\.1:\d+/0$')
        # Without what it cannot read.
        status, _, errors = self.diagnose(cluster.ports['admin'])
        self.assertEqual(status, 2)
        self.assertIn('--key-file FILE', errors)
        status, _, _ = self.diagnose(
            cluster.ports['admin'], '-k', key_file, '--log', 'none',
            '--config', 'none', '--bundle', os.path.join(self.folder, 'c.json'))
        bundle = json.loads(read_file(self.folder, 'c.json'))
        self.assertEqual(status, 0)
        self.assertIn('No such file', bundle['log'])
        self.assertIn('No such file', bundle['config']['not_read'])
        status, _, errors = self.diagnose(
            cluster.ports['admin'], '-k', key_file, '--bundle', '/no/b.json')
        self.assertEqual(status, 2)
        self.assertIn('/no/b.json: No such file', errors)


class Alerts(unittest.TestCase):
    """tests/faults/alerts, of which the whole takes minutes: three faults."""

    @staticmethod
    def play(name):
        return subprocess.Popen(
            [sys.executable, os.path.join(ROOT, 'tests', 'faults', 'alerts'),
             '--build', settings.build, '--scale', str(settings.scale),
             '--lenient', '--only', name], stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            preexec_fn=die_with_parent)

    @unittest.skipUnless(shutil.which('prometheus'),
                         'prometheus is not installed')
    @unittest.skipUnless(REDIS, MISSING)
    @mostly_waits
    def test_some(self):
        for play in [self.play(name) for name in (
                'redis_away', 'worker_flaps', 'log_lost')]:
            told, _ = play.communicate(timeout=300 * settings.scale)
            self.assertEqual(play.returncode, 0, told)
            self.assertIn('1 passed, 0 failed, 0 skipped', told)


if __name__ == '__main__':
    unittest.main()
