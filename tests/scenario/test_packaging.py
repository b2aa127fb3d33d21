"""What an installed Conductor has beside its programs: pages and completions
name every option, units are right, each file is in a package, and the
configurations of packages, container and Kubernetes are ones that it takes. The
chart, rendered by Helm, is what the manifests are. tools/release says what is
wrong before it begins."""
import copy
import fnmatch
import glob
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys

from harness import CONDUCTOR, ROOT, Case, program, settings
from harness import read_file as read

PACKAGING = os.path.join(ROOT, 'packaging')
BUILT = os.path.join(settings.build, 'packaging')
PROGRAMS = {'conductor': (CONDUCTOR, 8),
            'conductor-worker': (('workers', 'conductor-worker'), 8),
            'conductorctl': (('tools', 'conductorctl'), 1),
            'conductor-replay': (('tools', 'conductor-replay'), 1),
            'conductor-fit': (('tools', 'conductor-fit'), 1)}


OPTION = re.compile(r'^  (?:-., |    )?(--[a-z0-9-]+)', re.M)


class Described(Case):
    """Pages and completions, against --help all."""

    def helps(self, name):
        """A command of the program, or none, and its --help all."""
        path = program(*PROGRAMS[name][0])
        status, text, _ = self.run_program(path, '--help', 'all')
        self.assertEqual(status, 0)
        yield [], text
        if 'COMMAND [OPTIONS]' in text.split('\n', 1)[0]:
            commands = re.findall(r'^  ([a-z][a-z-]*)  ', text, re.M)
            self.assertGreater(len(commands), 10)
            for command in commands:
                yield [command], self.run_program(path, command, '--help',
                                                  'all')[1]

    def options(self, name):
        found = set()
        for _, text in self.helps(name):
            found.update(OPTION.findall(text))
        return found

    def test_pages(self):
        if not shutil.which('help2man'):
            self.skipTest('no help2man')
        for name, (_, section) in PROGRAMS.items():
            page = os.path.join(BUILT, f'{name}.{section}')
            text = read(page).replace('\\-', '-').replace('\\', '')
            for title in 'NAME', 'SYNOPSIS', 'DESCRIPTION', 'SEE ALSO':
                self.assertRegex(text, f'(?m)^[.]SH "?{title}')
            for option in self.options(name) or {'--version'}:
                self.assertIn(option, text, name)
            for tool in (['mandoc', '-Tlint', '-W', 'warning'],
                         ['man', '-l', '--warnings', '-Tutf8']):
                if tool[0] == 'man' and not shutil.which('groff'):
                    continue
                if shutil.which(tool[0]):
                    done = subprocess.run([*tool, page], capture_output=True,
                                          text=True, check=False)
                    said = done.stderr + (done.stdout if tool[0] == 'mandoc'
                                          else '')
                    self.assertEqual((done.returncode, said), (0, ''), name)

    def test_help_fits_a_screen(self):
        """What --help leaves out is in its sections."""
        for name, (where, _) in PROGRAMS.items():
            path = program(*where)
            for command, whole in self.helps(name):
                text = self.run_program(path, *command, '--help')[1]
                self.assertLessEqual(text.count('\n'), 50, (name, command))
                more = re.search(r'by --help SECTION: ([a-z, -]+)\.', text)
                for section in more.group(1).split(', ') if more else []:
                    status, part, _ = self.run_program(
                        path, *command, '--help', section)
                    self.assertEqual(status, 0)
                    text += part
                self.assertEqual(sorted(OPTION.findall(whole)),
                                 sorted(OPTION.findall(text)), (name, command))

    def complete(self, name, *words):
        """What bash offers for the last of the words."""
        script = ('_init_completion() { cur=${COMP_WORDS[COMP_CWORD]}; '
                  'prev=${COMP_WORDS[COMP_CWORD-1]}; words=("${COMP_WORDS[@]}"); '
                  'cword=$COMP_CWORD; }\n'
                  '_filedir() { COMPREPLY=(FILES); }\n'
                  'compopt() { :; }\n'
                  'source "$1"; shift\n'
                  'COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))\n'
                  'cur= prev= words= cword=\n'
                  '"$(complete -p "$1" | sed "s/.*-F //; s/ .*//")"\n'
                  'printf "%s\\n" "${COMPREPLY[@]}"\n')
        done = subprocess.run(
            ['bash', '-c', script, 'bash', os.path.join(BUILT, name), name,
             *words], capture_output=True, text=True, check=True)
        self.assertEqual(done.stderr, '')
        return done.stdout.split()

    def test_completions(self):
        for name in PROGRAMS:
            options = self.options(name)
            bash, zsh = read(BUILT, name), read(BUILT, '_' + name)
            for option in options:
                self.assertRegex(bash, f'[ \']{option}[ \']', name)
                self.assertRegex(zsh, f'{option}[=[]', name)
        self.assertEqual(self.complete('conductorctl', 'dr'), ['drain'])
        self.assertEqual(self.complete('conductor', '--set', 'drain_'),
                         ['drain_wait_ms=', 'drain_limit_ms='])
        self.assertEqual(self.complete('conductor', '-c', ''), ['FILES'])
        self.assertEqual(self.complete('conductor-worker', '--role', ''),
                         ['prefill', 'decode', 'both'])
        self.assertEqual(self.complete('conductor-replay', 'live', '--slo-'),
                         ['--slo-ttft', '--slo-tbt'])
        self.assertIn('simulate', self.complete('conductor-replay', ''))
        self.assertEqual(self.complete('conductor-replay', 'stats', '--trace',
                                       'x'), ['FILES'])


class Pages(Case):
    def test_links_of_installed_pages(self):
        """Nothing of the clone is needed to follow them."""
        to = os.path.join(self.folder, 'installed')
        done = subprocess.run(
            ['meson', 'install', '-C', settings.build, '--no-rebuild',
             '--destdir', to, '--tags', 'doc'],
            capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        pages, = glob.glob(os.path.join(to, '**', 'doc', 'conductor'),
                           recursive=True)
        for name in ('README.md', 'docs/start/install.md',
                     'docs/start/how-it-works.svg',
                     'docs/examples/nginx.conf'):
            self.assertTrue(os.path.exists(os.path.join(pages, name)), name)
        check = [sys.executable, os.path.join(ROOT, 'tests', 'lib',
                                              'check_links.py'), '--installed']
        done = subprocess.run([*check, pages], capture_output=True, text=True,
                              check=False)
        self.assertEqual((done.returncode, done.stdout), (0, ''))
        os.remove(os.path.join(pages, 'docs', 'start', 'how-it-works.svg'))
        done = subprocess.run([*check, pages], capture_output=True, text=True,
                              check=False)
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stdout,
                         r'start/concepts.md:\d+: how-it-works.svg: no file')
        vllm = os.path.join(pages, 'docs', 'engines', 'vllm.md')
        with open(vllm, 'a', encoding='utf-8') as page:
            page.write('\n## Start vLLM\n')
        done = subprocess.run([*check, pages], capture_output=True, text=True,
                              check=False)
        self.assertRegex(done.stdout,
                         r'vllm.md:\d+: a second heading #start-vllm')


class Units(Case):
    def test_verify(self):
        if not shutil.which('systemd-analyze'):
            self.skipTest('no systemd-analyze')
        units = []
        for path in glob.glob(os.path.join(PACKAGING, 'systemd', '*.*')):
            name = os.path.basename(path)
            if not name.endswith(('.service', '.socket')):
                continue
            text = read(path)
            for where in re.findall(r'@bindir@/([a-z-]+)', text):
                text = text.replace(f'@bindir@/{where}',
                                    program(*PROGRAMS[where][0]))
            units.append(self.write(name.replace('@', '@p0'), text))
        self.assertEqual(len(units), 3)
        done = subprocess.run(
            ['systemd-analyze', 'verify', '--man=no', *units],
            capture_output=True, text=True, check=False)
        said = [line for line in done.stderr.splitlines()
                if self.folder in line or 'conductor' in line]
        self.assertEqual((done.returncode, said), (0, []), done.stderr)


class Packages(Case):
    DEBIAN = os.path.join(PACKAGING, 'deb', 'debian')

    def test_each_installed_file_is_in_one(self):
        """As the rules move them: no file is left out, none is missing."""
        done = subprocess.run(
            ['meson', 'introspect', '--installed', settings.build],
            capture_output=True, text=True, check=False)
        if done.returncode:
            self.skipTest('meson does not tell what is installed')
        wanted = {}
        for path in glob.glob(os.path.join(self.DEBIAN, '*.install')):
            for line in read(path).splitlines():
                if line.startswith('packaging/'):
                    self.assertTrue(os.path.exists(os.path.join(
                        ROOT, line.split()[0])), line)
                else:
                    wanted[line.replace('${env:UNITS}',
                                        'lib/systemd/system')] = 0
        installed = json.loads(done.stdout).values()
        prefix = os.path.commonpath(
            [p for p in installed if p.startswith('/')])
        for path in installed:
            inside = os.path.relpath(path, prefix)
            for old, new in (('lib/systemd', '/lib/systemd'),
                             ('share/zsh/site-functions',
                              'share/zsh/vendor-completions')):
                inside = inside.replace(old, new)
            inside = ('usr/' + inside).replace('usr//', '')
            found = [w for w in wanted if fnmatch.fnmatch(inside, w) or
                     inside.startswith(w + '/')]
            self.assertEqual(len(found), 1, f'{inside}: {found}')
            wanted[found[0]] += 1
        # Meson does not tell what a script installs.
        may_miss = {'usr/lib/*/conductor/conductor-rdma.so',
                    'usr/share/doc/conductor/*.md',
                    'usr/share/doc/conductor/docs'}
        if not shutil.which('help2man'):
            may_miss |= {w for w in wanted if '/man/' in w}
        self.assertEqual({w for w, n in wanted.items() if not n} - may_miss,
                         set())

    def test_version(self):
        version = self.run_program(program(*CONDUCTOR), '--version')[1].split()
        self.assertRegex(read(self.DEBIAN, 'changelog'),
                         rf'\Aconductor \({re.escape(version[1])}-\d+\) ')


class Manifests(Case):
    """What cases about objects of Kubernetes share."""

    def takes(self, text, **change):
        self.check_config({**json.loads(text), **change}, 0)

    def manifest(self, name):
        return self.objects(read(PACKAGING, 'kubernetes', name))

    def objects(self, text):
        if not importlib.util.find_spec('yaml'):
            self.skipTest('no python3-yaml')
        import yaml
        return list(yaml.safe_load_all(text))

    def kubernetes(self, objects, name='conductor'):
        """Checks the objects of a conductor of that name; returns them by kind,
        and its configuration."""
        by_kind = {}
        for o in objects:
            by_kind.setdefault(o['kind'], {})[o['metadata']['name']] = o
        text = by_kind['ConfigMap'][name]['data']['conductor.json']
        key = self.write('admin.key', 'k' * 32)
        os.chmod(key, 0o600)
        self.takes(text, admin_key_file=key)
        config = json.loads(text)
        pod = by_kind['Deployment'][name]['spec']['template']['spec']
        self.assertGreater(
            pod['terminationGracePeriodSeconds'] * 1000,
            config['drain_wait_ms'] + config['drain_limit_ms'])
        # The address of each engine is a Service of no address of its own.
        for engine in config['engines']:
            host = re.match(r'http://([a-z0-9-]+)', engine['url']).group(1)
            self.assertTrue(engine['dns'])
            self.assertEqual(by_kind['Service'][host]['spec']['clusterIP'],
                             'None')
        ports = {p['name']: p['containerPort']
                 for p in pod['containers'][0]['ports']}
        self.assertEqual(ports, {
            'http': int(config['listen'].split(':')[1]),
            'admin': int(config['admin_listen'].split(':')[1])})
        # The key that is to be replaced keeps it from starting.
        if 'Secret' in by_kind:
            key = by_kind['Secret'][name]['stringData']['admin.key']
            self.assertLess(len(key), 16)
        if importlib.util.find_spec('kubernetes_validate'):
            import kubernetes_validate
            for o in objects:
                kubernetes_validate.validate(o, '1.29', strict=True)
        return by_kind, config


class Configurations(Manifests):
    """What is shipped is what conductor -t takes."""

    def test_pages(self):
        """Each configuration in a page is one that the conductor takes."""
        self.write('engines.json', '{"engines": []}')
        os.chmod(self.write('engine.key', 'k' * 32), 0o600)
        taken = 0
        for page in glob.glob(os.path.join(ROOT, 'docs', '*', '*.md')):
            for text in re.findall(r'(?ms)^ *```json\n(.*?)^ *```', read(page)):
                if re.search('"(listen|engines)":', text) and '"tls_' not in text:
                    self.takes(text)
                    taken += 1
        self.assertGreater(taken, 8)

    def test_package_and_container(self):
        self.takes(read(PACKAGING, 'conductor.json'))
        self.takes(read(PACKAGING, 'container', 'conductor.json'))

    def test_kubernetes(self):
        self.kubernetes(self.manifest('conductor.yaml'))

    def test_kubernetes_several(self):
        by_kind, config = self.kubernetes(self.manifest('several.yaml'))
        host = re.match(r'redis://([a-z0-9-]+):6379/',
                        config['state']).group(1)
        self.assertEqual(by_kind['Service'][host]['spec']['ports'][0]['port'],
                         6379)
        self.assertLess(
            by_kind['PodDisruptionBudget']['conductor']['spec'][
                'minAvailable'],
            by_kind['Deployment']['conductor']['spec']['replicas'])


class Chart(Manifests):
    """By Helm itself, as a library."""
    CHART = os.path.join(PACKAGING, 'kubernetes', 'chart')

    def setUp(self):
        super().setUp()
        if not importlib.util.find_spec('helm_python'):
            self.skipTest('no helm-python-sdk')
        import helm_python
        self.helm = helm_python

    def render(self, values, name='conductor'):
        chart = self.helm.Chart.load(self.CHART)
        self.addCleanup(chart.close)
        chart.validate_schema(values)
        text, = chart.render(values, name=name).values()
        return self.objects(text)

    @staticmethod
    def comparable(objects):
        """Without what is Kubernetes' own default, and the configuration as
        data."""
        objects = copy.deepcopy(objects)
        for o in objects:
            if o['kind'] == 'ConfigMap':
                o['data'] = json.loads(o['data']['conductor.json'])
            if o['kind'] == 'Deployment':
                for container in o['spec']['template']['spec']['containers']:
                    if container.get('imagePullPolicy') == 'IfNotPresent':
                        del container['imagePullPolicy']
        return sorted(objects, key=lambda o: (o['kind'],
                                              o['metadata']['name']))

    def test_is_the_manifests(self):
        self.maxDiff = None
        for values, name in (({}, 'conductor.yaml'),
                             ({'replicas': 3}, 'several.yaml')):
            rendered = self.render({'adminKey': 'REPLACE-ME', **values})
            self.assertEqual(self.comparable(rendered),
                             self.comparable(self.manifest(name)), name)

    def test_other_values(self):
        by_kind, config = self.kubernetes(self.render(
            {'adminKeySecret': 'my-key', 'replicas': 2,
             'image': {'repository': 'r.example/c', 'tag': 't'},
             'engines': {'selector': {'app': 'mine'}, 'port': 9000},
             'config': {'drain_wait_ms': 1, 'drain_limit_ms': 300500,
                        'policy': 'round_robin'}}, 'west'), 'west')
        self.assertNotIn('Secret', by_kind)
        pod = by_kind['Deployment']['west']['spec']['template']['spec']
        self.assertEqual(pod['containers'][0]['image'], 'r.example/c:t')
        self.assertEqual(pod['terminationGracePeriodSeconds'], 311)
        self.assertEqual(pod['volumes'][1]['secret']['secretName'], 'my-key')
        self.assertEqual((config['policy'], config['state'],
                          config['engines'][0]['url']),
                         ('round_robin', 'redis://west-state:6379/0',
                          'http://west-engines:9000'))
        engines = by_kind['Service']['west-engines']['spec']
        self.assertEqual((engines['selector'], engines['ports'][0]['port']),
                         ({'app': 'mine'}, 9000))
        self.assertEqual(by_kind['PodDisruptionBudget']['west']['spec'][
            'minAvailable'], 1)

    def test_wrong_values(self):
        for values, said in (
                ({}, 'adminKey: give a key'),
                ({'adminKey': 'k', 'replica': 2}, 'replica'),
                ({'adminKey': 'k', 'replicas': 0}, 'replicas'),
                ({'adminKey': 'k', 'engines': {'port': 70000}}, 'port')):
            with self.assertRaisesRegex(self.helm.HelmError, said):
                self.render(values)

    def test_lint_and_version(self):
        report = self.helm.lint(self.CHART, {'adminKey': 'k' * 32})
        self.assertEqual(report['total_charts_linted'], 1)
        self.assertEqual([m for m in report['messages'] if m['severity'] > 1],
                         [])
        version = self.run_program(program(*CONDUCTOR), '--version')[1].split()
        chart = self.objects(read(self.CHART, 'Chart.yaml'))[0]
        self.assertEqual((chart['version'], chart['appVersion']),
                         (version[1], version[1]))


class Release(Case):
    """What tools/release refuses before it makes anything."""
    RELEASE = os.path.join(ROOT, 'tools', 'release')

    def test_help(self):
        status, text, _ = self.run_program(self.RELEASE, '--help')
        self.assertEqual(status, 0)
        for word in '--debian', '--arch', 'SHA256SUMS', 'examples:':
            self.assertIn(word, text)

    def test_wrong_options(self):
        for words, said in (
                (('--arch', 'mips'), "--arch: 'mips' is not one of: "),
                (('--debian', '11'), "--debian: '11' is not one of: 12 13"),
                (('--mirror', 'ftp'), "--mirror: 'ftp' is not an address"),
                (('--base', self.folder), '--base: '),
                (('--out', __file__), '--out: '),
                (('--fast',), "unknown option '--fast'")):
            status, _, text = self.run_program(self.RELEASE, *words)
            self.assertEqual(status, 2, words)
            self.assertIn('release: ' + said, text)

    def test_missing_tool(self):
        for name in 'bash', 'dirname', 'realpath', 'git':
            os.symlink(shutil.which(name), os.path.join(self.folder, name))
        done = subprocess.run([self.RELEASE], capture_output=True, text=True,
                              check=False, env={'PATH': self.folder})
        self.assertEqual((done.returncode, done.stderr),
                         (1, 'release: debootstrap is not installed: '
                          'apt-get install debootstrap\n'))
