"""Pictures: hostile texts, nothing to draw, and what is missing."""
import json
import os
import re
import signal
import subprocess
import sys
import unittest
import xml.etree.ElementTree

from harness import ROOT, FolderCase, replay, settings
from test_replay import SAMPLE

CLUSTER = os.path.join(ROOT, 'traces', 'clusters', 'reference-16.json')
HOSTILE = ['a \'b\' <d> & {e}^2 f_1 %g @x $y$', '_hidden', '\\frac{$1}{2',
           '`touch broke_out`']


class Plot(FolderCase):
    def write(self, name, text):
        super().write(name, text)
        os.chmod(self.path(name), 0o700)
        return self.path(name)

    def draw(self, kind, title, data):
        """Runs the script alone. Returns the picture and its texts."""
        done = subprocess.run(
            ['python3', '-B', os.path.join(settings.build, 'tools', 'plot',
                                           'draw.py'), kind, title],
            input=data.encode(), capture_output=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        tree = xml.etree.ElementTree.fromstring(done.stdout)
        return done.stdout, [text.text.strip() for text in tree.iter(
            '{http://www.w3.org/2000/svg}text')]

    def test_hostile_texts(self):
        """What a user wrote is drawn as it is."""
        head = ('hardware,model,speedup_io,predicted_speedup_io,'
                'speedup_compute,predicted_speedup_compute\n')
        for text in HOSTILE:
            _, words = self.draw('cake', text + '\n\x1b', head +
                                 f'"{text}",m,1.5,2,2,2\n')
            self.assertIn(text, words)
            self.assertIn(f'{text}, m', words)

    def test_numbers(self):
        """Ticks of a logarithmic axis are plain numbers, and the same numbers
        give the same bytes."""
        data = ('part,median_percent,p95_percent,measured_ms,predicted_ms\n'
                'Prefill,1.0,2.0,2,3\nPrefill,1.0,2.0,900,800\n'
                'Decode step,1.0,2.0,1,1\n')
        picture, words = self.draw('fit', 't', data)
        for word in ('10', '100', 'exact', '10 % off', 'Prefill: 2 points, '
                     'cross-validated error: median 1.0 %, p95 2.0 %'):
            self.assertIn(word, words)
        self.assertNotIn(b'nan', picture)
        self.assertEqual(picture, self.draw('fit', 't', data)[0])

    def test_nothing(self):
        """Frames are drawn even if there is no number."""
        for asked in True, False:
            _, words = self.draw(
                'live', 't', json.dumps({
                    'slo': {'asked': asked, 'ttft_s': 30},
                    'ttft_s': {'p50': None, 'p99': None}}) +
                '\noutcome,ttft_s,predicted_ttft_s,send_lag_s,intended_s\n'
                'failed,,,0,1\n')
            for word in 'failed (1)', 'Distribution':
                self.assertIn(word, words)
            self.assertEqual('SLO 30 s' in words, asked)
        _, words = self.draw('cake_adaptive', 't', 'bandwidth_gbps,order,'
                             'done_s,short_ttft_mean_s\n7,fifo,1,\n')
        self.assertIn('fifo', words)

    def test_fit(self):
        """A dot for each point."""
        rows = [f'prefill,{n},{c},,,{1000 + 40 * n + n * n / 100 + c}'
                for n in (16, 256, 1024, 4096) for c in (0, 256, 4096)]
        rows += [f'decode,,,{b},{b * k},{500 + 60 * b + b * k / 20}'
                 for b in (1, 4, 16, 32) for k in (64, 1024, 8192)]
        profile = self.write('p.csv', '# engine: cpu\n# model: <m&m>\n'
                             '# machine: here\n# date: 2025-01-31\n'
                             '# block_tokens: 256\nkind,uncached_tokens,'
                             'cached_tokens,batch,kv_tokens,us\n' +
                             '\n'.join(rows) + '\n')
        fit = [os.path.join(settings.build, 'tools', 'conductor-fit'), '--out',
               self.path('m.json'), '--plot']
        done = subprocess.run([*fit, self.path('p.svg'), profile],
                              capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        picture = self.read('p.svg')
        self.assertIn('&lt;m&amp;m&gt; on cpu, here', picture)
        self.assertEqual(len(re.findall('<use [^>]*fill: #1f6fb4', picture)),
                         len(rows))
        done = subprocess.run([*fit, '/nowhere/p.svg', profile],
                              capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn('plot /nowhere/p.svg: No such file or directory',
                      done.stderr)

    def drawn(self, **environment):
        return replay('compare', '--trace', SAMPLE, '--cluster', CLUSTER,
                      '--plot', self.path('o.svg'), '--csv',
                      self.path('o.csv'), status=None,
                      env={**os.environ, **environment})

    def test_no_matplotlib(self):
        """The rest is written, and an older picture stays."""
        self.write('matplotlib.py', 'raise ImportError\n')
        self.write('o.svg', 'kept')
        done = self.drawn(PYTHONPATH=self.folder)
        self.assertEqual(done.returncode, 1)
        self.assertIn(f"{self.path('o.svg')}: not drawn, Python's matplotlib "
                      "is missing: install Debian's python3-matplotlib",
                      done.stderr)
        with open(self.path('o.svg'), encoding='utf-8') as f:
            self.assertEqual(f.read(), 'kept')
        self.assertTrue(os.path.exists(self.path('o.csv')))

    def test_interrupt(self):
        """Ctrl-C goes to the script, too: the program ends by it, and does not
        go on with its next file; another failure is reported."""
        # Where the tests run in the background, Ctrl-C is ignored.
        before = signal.signal(signal.SIGINT, signal.SIG_DFL)
        self.addCleanup(signal.signal, signal.SIGINT, before)
        path = f'{self.folder}:{os.environ["PATH"]}'

        def drawn():
            return replay('stats', '--trace', SAMPLE, '--plot',
                          self.path('o.svg'), status=None,
                          env={**os.environ, 'PATH': path})
        self.write('python3', '#!/bin/sh\nkill -INT $$\n')
        self.assertEqual(drawn().returncode, -signal.SIGINT)
        self.write('python3', '#!/bin/sh\nexit 2\n')
        done = drawn()
        self.assertEqual(done.returncode, 1)
        self.assertIn('not drawn, its script failed', done.stderr)


if __name__ == '__main__':
    sys.exit(unittest.main())
