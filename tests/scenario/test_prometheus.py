"""A real Prometheus with the configuration, the alerts and the dashboard that
are installed, and a real conductor: every panel has data."""
import json
import os
import re
import shutil
import subprocess
import unittest
import urllib.parse

from harness import ROOT, Api, Case, free_ports, read_file, wait_until

FOLDER = os.path.join(ROOT, 'packaging', 'prometheus')
DASHBOARD = os.path.join(ROOT, 'packaging', 'grafana', 'conductor.json')


def dashboard():
    return json.loads(read_file(DASHBOARD))


def queries(board):
    """(panel, expression) with Grafana's own variables replaced."""
    for panel in board['panels']:
        for target in panel.get('targets', ()):
            yield panel['title'], (target['expr']
                                   .replace('$__rate_interval', '1m')
                                   .replace('$job', 'conductor')
                                   .replace('$conductor', '.*'))


@unittest.skipUnless(shutil.which('promtool'), 'prometheus is not installed')
class Prometheus(Case):
    def promtool(self, *args):
        done = subprocess.run(['promtool', *args], check=False, cwd=FOLDER,
                              capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_files(self):
        self.promtool('check', 'config', 'prometheus.yml')
        self.promtool('check', 'rules', 'conductor.rules.yml')
        self.promtool('test', 'rules', 'conductor.test.yml')

    def test_dashboard(self):
        board = dashboard()
        panels = board['panels']
        ids = [p['id'] for p in panels]
        self.assertEqual(len(ids), len(set(ids)))
        taken = set()
        for p in panels:
            at = p['gridPos']
            cells = {(x, y) for x in range(at['x'], at['x'] + at['w'])
                     for y in range(at['y'], at['y'] + at['h'])}
            self.assertFalse(cells & taken, p['title'])
            self.assertLessEqual(at['x'] + at['w'], 24)
            taken |= cells
            refs = [t['refId'] for t in p.get('targets', ())]
            self.assertEqual(len(refs), len(set(refs)), p['title'])
            self.assertTrue(refs or p['type'] == 'row', p['title'])
        with open(os.path.join(ROOT, 'docs', 'reference', 'metrics.md'),
                  encoding='utf-8') as f:
            known = set(re.findall(r'^\| `(\w+)`', f.read(), re.M))
        for title, expr in queries(board):
            for name in re.findall(r'((?:conductor|process)_\w+)\{', expr):
                self.assertIn(re.sub('_(bucket|sum|count)$', '', name), known,
                              title)

    def test_every_panel_has_data(self):
        cluster = self.cluster(prefill=2, kv_mib=32)
        port = free_ports()
        config = read_file(FOLDER, 'prometheus.yml')
        self.write('prometheus.yml', config.replace('15s', '200ms').replace(
            '127.0.0.1:8082', f'127.0.0.1:{cluster.ports["http"]}'))
        shutil.copy(os.path.join(FOLDER, 'conductor.rules.yml'), self.folder)
        prometheus = self.start('prometheus', [
            'prometheus', '--config.file',
            os.path.join(self.folder, 'prometheus.yml'),
            '--storage.tsdb.path', os.path.join(self.folder, 'data'),
            f'--web.listen-address=127.0.0.1:{port}', '--log.level=warn'])
        api = Api(port)

        def ask(path):
            reply = api.get(f'/api/v1/{path}').ok()
            return reply.body['data']

        def up():
            self.assertTrue(prometheus.alive())
            try:
                if api.get('/-/ready').status != 200:
                    return None
            except OSError:
                return None
            return [t for t in ask('targets')['activeTargets']
                    if t['health'] == 'up']
        wait_until('Prometheus reads the conductor', up)
        lacking = dict.fromkeys(queries(dashboard()))

        def has_data(expr):
            values = [float(r['value'][1]) for r in ask(
                'query?query=' + urllib.parse.quote(expr))['result']]
            return any(v == v for v in values)

        def all_have():
            for n in 200, 300:
                self.assertEqual(cluster.api.complete(
                    'x' * n, headers={'x-slo-ttft-ms': '60000'}).status, 200)
            self.assertEqual(cluster.api.complete(
                'y' * 300, headers={'x-slo-ttft-ms': '0.001'}).status, 429)
            for query in list(lacking):
                if has_data(query[1]):
                    del lacking[query]
            return not lacking
        try:
            wait_until('every panel has data', all_have)
        finally:
            self.assertEqual(list(lacking), [])
        # What the load made shows: no panel has only zeros where it had some.
        for title in ('TTFT, mean', 'TTFT, p99', 'Promises kept', 'Hit ratio',
                      'Refused', 'Refused, by limit', 'Requests a second',
                      'Promises kept, and broken by cause',
                      'Time to first token: mean beside p99'):
            values = [float(r['value'][1]) for panel, expr in queries(dashboard())
                      if panel == title
                      for r in ask('query?query=' + urllib.parse.quote(expr))[
                          'result']]
            self.assertGreater(max(values, default=0), 0, title)
        for variable in dashboard()['templating']['list'][1:]:
            series, label = re.fullmatch(
                r'label_values\((.*), (\w+)\)',
                variable['query']['query']).groups()
            found = ask('query?query=' + urllib.parse.quote(
                series.replace('$job', 'conductor')))['result']
            self.assertTrue(found and all(r['metric'][label] for r in found),
                            variable['name'])
        rules = [r for g in ask('rules')['groups'] for r in g['rules']]
        self.assertEqual([r['name'] for r in rules if r['health'] == 'ok'],
                         re.findall(r'- alert: (\w+)', read_file(
                             FOLDER, 'conductor.rules.yml')))
        self.assertEqual([a for a in ask('alerts')['alerts']
                          if a['state'] == 'firing'], [])
