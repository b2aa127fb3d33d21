"""tools/gpu-check: a trial on the CPU, and the whole of it with a card and
programs that are only played."""
import csv
import json
import os
import re
import stat
import subprocess
import sys
import unittest

from harness import ROOT, FolderCase, read_file, settings

sys.path.insert(0, os.path.join(ROOT, 'tools'))

from gpu import fit as gpu_fit  # noqa: E402
from gpu import report as gpu_report  # noqa: E402

CHECK = os.path.join(ROOT, 'tools', 'gpu-check')

# What a played program answers: rows that keep every limit.
GOOD = {
    'bench_prefill': [
        {'what': 'chunk', 'chunk': 2048, 'share': 0.61},
        {'what': 'prompt', 'chunk': 2048, 'share': 0.62}],
    'bench_copy': [{'way': 'to_host', 'share': 0.95},
                   {'way': 'to_device', 'share': 0.9}],
    'bench_cake': [{'tokens': 4096, 'to_ideal': 1.08, 'to_best': 0.7,
                    'same_answer': 'yes'}],
    'bench_layerwise': [
        {'exposed_layers': 1.5, 'can_hide': 'yes'},
        {'exposed_layers': 9, 'can_hide': 'no'}],
    'bench_decode': [{'batch': 1, 'share': 0.8}],
    'check_modes': [{'cases': 3, 'wrong': 0}],
}

PLAYED = '''#!{python}
import json, sys
words = sys.argv[1:]
assert words[words.index('--engine') + 1] == 'cuda', words
with open(words[words.index('--json') + 1], 'w') as f:
    json.dump({{'bench': 'x', 'facts': {{}}, 'rows': {rows!r},
               'left_out': 0}}, f)
'''

PROFILE = 'kind,uncached_tokens,cached_tokens,batch,kv_tokens,us\n'


def profile_rows():
    for u in (16, 64, 256, 1024):
        for p in (0, 512, 2048):
            yield f'prefill,{u},{p},,,{100 + 3 * u + 1e-3 * u * (u + p)}'
    for b in (1, 4, 16):
        for k in (64, 256, 1024):
            yield f'decode,,,{b},{b * k},{50 + b + 0.1 * b * k}'


def sanitized():
    with open(os.path.join(settings.build, 'meson-info',
                           'intro-buildoptions.json'), encoding='utf-8') as f:
        options = {o['name']: o['value'] for o in json.load(f)}
    return options['b_sanitize'] not in ('none', [])


class GpuCheck(FolderCase):
    def script(self, text, *names):
        os.makedirs(os.path.dirname(self.path(*names)), exist_ok=True)
        self.write(os.path.join(*names), text)
        os.chmod(self.path(*names), stat.S_IRWXU)

    def run_check(self, *args, card=None, out=None):
        """With nvidia-smi as the machine has it, or a played one: `card` is
        what it prints, '' for none. `out`: the folder, else our own."""
        env = dict(os.environ)
        if card is not None:
            self.script('#!/bin/sh\n' + (f'echo "{card}"\n' if card else
                                         'exit 9\n'), 'bin', 'nvidia-smi')
            env['PATH'] = self.path('bin') + os.pathsep + env['PATH']
        return subprocess.run(
            [CHECK, *map(str, args), '--out', out or self.path('out')],
            env=env, capture_output=True, text=True,
            timeout=300 * settings.scale, check=False)

    def results(self):
        return self.read_json('out', 'results.json')

    def test_trial(self):
        """Every bench runs, and nothing is called a figure of a GPU."""
        done = self.run_check('--engine', 'cpu', '--build', settings.build,
                              '--minutes', 2 * settings.scale, card='')
        self.assertEqual(done.returncode, 0, done.stderr + done.stdout)
        result = self.results()
        self.assertTrue(result['trial'])
        self.assertEqual(
            sorted(result['benches']),
            ['cake', 'copy', 'decode', 'layerwise', 'modes', 'prefill'])
        for name, bench in result['benches'].items():
            self.assertTrue(bench['rows'], name)
            self.assertEqual(bench['facts']['gpu'], 'no: a trial')
            self.assertNotIn('failed', bench['facts'])
        self.assertEqual(result['fit']['by'], 'conductor-fit')
        self.assertGreaterEqual(
            result['fit']['prefill']['median_rel_error'], 0)
        page = self.read('out', 'trial.md')
        self.assertTrue(page.startswith('# Trial of tools/gpu-check: no GPU'))
        self.assertNotRegex(page, 'PASS|FAIL')
        with open(self.path('out', 'figures.csv'), encoding='utf-8') as f:
            rows = list(csv.DictReader(f))
        self.assertEqual(len(rows), sum(len(b['rows']) for b in
                                        result['benches'].values()))
        self.assertIn('trial (', done.stdout)
        self.assertIn('A trial judges no limit', done.stdout)

    def test_engine_only_build(self):
        """Without any of the libraries the engines, their tests and the
        benches build, with the warnings as errors where CI asks for it. That
        build has no sanitizers, so once is enough."""
        if sanitized():
            self.skipTest('the same as in a build without sanitizers')
        os.mkdir(self.path('nothing'))
        env = dict(os.environ, PKG_CONFIG_LIBDIR=self.path('nothing'),
                   PKG_CONFIG_PATH='')

        def run(*words):
            done = subprocess.run(words, env=env, capture_output=True,
                                  text=True, check=False,
                                  timeout=600 * settings.scale)
            self.assertEqual(done.returncode, 0, done.stdout[-3000:] +
                             done.stderr[-1000:])
            return done.stdout

        ci = os.environ.get('CI') == 'true'
        said = run('meson', 'setup', self.path('b'), ROOT, '-Dparts=engine',
                   '-Dcuda=disabled', *['-Dwerror=true'] * ci)
        self.assertIn('no OpenBLAS', said)
        self.assertIn('no CUnit', said)
        run('ninja', '-C', self.path('b'))
        deps = run('ninja', '-C', self.path('b'), '-t', 'deps')
        self.assertIn('standin/CUnit/Basic.h', deps)
        self.assertNotRegex(deps, 'event2/|jansson|gsl_|xxhash|cblas|'
                                  'include/CUnit|zlib')
        for name in ('model', 'engine', 'engine_cpu', 'profile'):
            run(self.path('b', 'tests', 'unit', 'test_' + name))
        run(self.path('b', 'tests', 'gpu', 'check_modes'), '--engine', 'cpu',
            '--model', 'tiny', '--repeats', '3')

    def test_warnings(self):
        """Warnings are not errors, nor are nvcc's, unless asked for."""
        done = subprocess.run(
            ['meson', 'setup', self.path('b'), ROOT, '-Dparts=engine'],
            capture_output=True, text=True, check=False,
            timeout=600 * settings.scale)
        self.assertEqual(done.returncode, 0, done.stdout[-3000:])
        rules = self.read('b', 'build.ninja')
        self.assertNotIn('-Werror', rules)
        self.assertNotIn('all-warnings', rules)

    def test_worker_needs_no_cuda(self):
        """A worker that was built beside nvcc starts without CUDA."""
        worker = os.path.join(settings.build, 'workers', 'conductor-worker')
        done = subprocess.run(['readelf', '-d', worker], capture_output=True,
                              text=True, check=True)
        self.assertIn('NEEDED', done.stdout)
        self.assertNotRegex(done.stdout, 'NEEDED.*(libcuda|libcublas)')

    def test_no_host_compiler(self):
        """nvcc without g++ compiles nothing: it is missed at the start."""
        for name in 'nvcc', 'meson', 'ninja', 'cc':
            self.script('#!/bin/sh\n', 'bin', name)
        self.script('#!/bin/sh\necho "Played Card, 1.2, 80 MiB, 9.0"\n', 'bin',
                    'nvidia-smi')
        done = subprocess.run(
            [sys.executable, CHECK, '--out', self.path('out')],
            env={**os.environ, 'PATH': self.path('bin')}, capture_output=True,
            text=True, timeout=60 * settings.scale, check=False)
        self.assertEqual(done.returncode, 77, done.stderr + done.stdout)
        self.assertIn('missing g++', done.stderr)

    def test_no_card(self):
        done = self.run_check(card='')
        self.assertEqual(done.returncode, 77, done.stderr + done.stdout)
        self.assertIn('missing a CUDA card', done.stderr)
        self.assertFalse(os.path.exists(self.path('out')))

    def test_wrong_usage(self):
        for words, say in ((('--minutes', '0'), '--minutes 0: must be'),
                           (('--build', '/nowhere'), 'no such folder'),
                           (('--engine', 'abacus'), 'invalid choice')):
            done = self.run_check(*words, card='')
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn(say, done.stderr)

    def test_out_cannot_be(self):
        with open(self.path('file'), 'w', encoding='utf-8'):
            pass
        for out in ('/proc/x', self.path('file'), self.path('file', 'x')):
            done = self.run_check('--engine', 'cpu', '--build', settings.build,
                                  card='', out=out)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn(f'gpu-check: --out {out}: no folder', done.stderr)
            self.assertNotIn('Traceback', done.stderr)

    def play(self, **spoilt):
        for name, rows in {**GOOD, **spoilt}.items():
            self.script(PLAYED.format(python=sys.executable, rows=rows),
                        'build', 'tests', 'gpu', name)
        text = PROFILE + '\n'.join(profile_rows()) + '\n'
        self.script(f'#!/bin/sh\ncat <<END\n{text}END\n', 'build', 'tests',
                    'gpu', 'bench_profile')
        self.script('#!/bin/sh\nexit 0\n', 'build', 'tests', 'gpu',
                    'test_cuda_kernels')
        self.script('#!/bin/sh\nexit 0\n', 'bin', 'compute-sanitizer')
        return self.run_check('--build', self.path('build'),
                              card='Played Card, 1.2, 80 MiB, 9.0')

    def test_played_card(self):
        done = self.play()
        self.assertEqual(done.returncode, 0, done.stderr + done.stdout)
        result = self.results()
        self.assertEqual(result['device'], 'Played Card')
        self.assertEqual({c['verdict'] for c in result['checks']}, {'PASS'})
        self.assertLess(result['fit']['prefill']['p95_rel_error'], 1e-6)
        page = self.path('out', result['date'][:10] + '-gpu.md')
        self.assertIn('Played Card, driver 1.2', read_file(page))

    def test_played_failures(self):
        slow = [dict(row, share=0.59) for row in GOOD['bench_prefill']]
        done = self.play(bench_prefill=slow, bench_layerwise=[])
        self.assertEqual(done.returncode, 1, done.stderr + done.stdout)
        self.assertRegex(done.stdout, r'worst chunk +0\.59 >= 0\.6 +FAIL')
        self.assertRegex(done.stdout, r'exposed.* - <= 1\.5 +NOT MEASURED')
        self.script('#!/bin/sh\necho bad access\nexit 86\n', 'bin',
                    'compute-sanitizer')
        self.script('#!/bin/sh\necho boom >&2\nexit 3\n', 'build', 'tests',
                    'gpu', 'bench_copy')
        done = self.run_check('--build', self.path('build'),
                              card='Played Card, 1.2, 80 MiB, 9.0')
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stdout, r'memcheck.* 1 <= 0 +FAIL')
        self.assertIn('copy: FAIL: exit status 3: boom', done.stdout)
        self.script('#!/bin/sh\necho Device not supported\nexit 1\n', 'bin',
                    'compute-sanitizer')
        done = self.run_check('--build', self.path('build'),
                              card='Played Card, 1.2, 80 MiB, 9.0')
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stdout, r'memcheck.* - <= 0 +NOT MEASURED')
        self.assertIn('sanitizer: left out: compute-sanitizer does not',
                      done.stdout)

    def test_played_slow(self):
        """A bench that does not end leaves the rows that it wrote."""
        self.play()
        self.script(PLAYED.format(python=sys.executable,
                                  rows=GOOD['bench_decode']) +
                    'import time; time.sleep(600)\n', 'build', 'tests', 'gpu',
                    'bench_decode')
        self.script('#!/bin/sh\nexec sleep 600\n', 'bin',
                    'compute-sanitizer')
        done = self.run_check('--build', self.path('build'), '--minutes',
                              0.4, card='Played Card, 1.2, 80 MiB, 9.0')
        self.assertEqual(done.returncode, 1, done.stderr + done.stdout)
        self.assertRegex(done.stdout, 'sanitizer: left out: no end after')
        self.assertIn('decode: FAIL: no end after', done.stdout)
        self.assertEqual(self.results()['benches']['decode']['rows'],
                         GOOD['bench_decode'])
        given = re.findall(r'no end after (\d+) s', done.stdout)
        self.assertEqual(len(given), 2)
        self.assertLess(sum(map(int, given)), 24)  # 0.4 minutes in all

    def test_limits(self):
        """A value at its limit is kept, one beyond it is not."""
        for column, at, beyond in (('to_ideal', 1.08, 1.0801),
                                   ('to_best', 1.02, 1.0201)):
            for value, verdict in ((at, 'PASS'), (beyond, 'FAIL')):
                row = dict(GOOD['bench_cake'][0], to_ideal=1, to_best=1)
                row[column] = value
                checks = gpu_report.limits({'cake x': {'rows': [row]}}, [])
                found = [c for c in checks if c.what.startswith('cake: time')
                         and c.value == value]
                self.assertEqual([c.verdict for c in found], [verdict])
        nothing = gpu_report.limits({}, [])
        self.assertEqual({c.verdict for c in nothing}, {'NOT MEASURED'})

    def test_fit(self):
        """Times of a polynomial are found again."""
        name = self.path('p.csv')
        with open(name, 'w', encoding='utf-8') as f:
            f.write('# engine: x\n' + PROFILE)
            f.write('\n'.join(profile_rows()) + '\n')
        points = gpu_fit.read(name)
        self.assertEqual(len(points['prefill']), 12)
        found = gpu_fit.fit('prefill', points['prefill'])
        for value, want in zip(found, (100, 3, 1e-3, 1e-3)):
            self.assertAlmostEqual(value, want, delta=1e-6 * want)
        self.assertLess(gpu_fit.fit_quality(name)['decode']['p95_rel_error'],
                        1e-6)


if __name__ == '__main__':
    unittest.main()
