"""conductorctl top in a terminal: tmux is the terminal, and says what it
shows."""
import os
import shutil
import subprocess
import tempfile
import unittest

from harness import Case, program, wait_until
from stand_in import Engine, reply

CTL = 'tools', 'conductorctl'
TMUX = shutil.which('tmux')


class Terminal:
    """A terminal of its own with one program in it."""

    def __init__(self, case, columns, lines, *command):
        # Not in the case's folder: that goes before the terminal does.
        folder = tempfile.mkdtemp(prefix='conductor-tmux-')
        case.addCleanup(shutil.rmtree, folder)
        self.socket = os.path.join(folder, 'socket')
        self.tmux('-f', '/dev/null', 'new-session', '-d', '-x', str(columns),
                  '-y', str(lines), ' '.join(command))
        case.addCleanup(self.tmux, 'kill-server', check=False)
        self.tmux('set-option', '-g', 'status', 'off')
        self.resize(columns, lines)

    def tmux(self, *words, check=True):
        done = subprocess.run([TMUX, '-S', self.socket, *words], text=True,
                              capture_output=True, check=False)
        if check and done.returncode:
            raise AssertionError(f'tmux {words}: {done.stderr}')
        return done.stdout if done.returncode == 0 else None

    def resize(self, columns, lines):
        self.tmux('resize-window', '-x', str(columns), '-y', str(lines))

    def keys(self, *keys):
        self.tmux('send-keys', *keys)

    def screen(self):
        return self.tmux('capture-pane', '-p', check=False)

    def wait_for(self, *texts):
        def shown():
            screen = self.screen() or ''
            return all(text in screen for text in texts) and screen
        try:
            return wait_until(f'the terminal shows {texts}', shown)
        except AssertionError:
            print(self.screen())
            raise


@unittest.skipUnless(TMUX, 'no tmux')
class Top(Case):
    def top(self, port, columns=80, lines=24):
        return Terminal(self, columns, lines, program(*CTL), '--address',
                        f'127.0.0.1:{port}', 'top')

    def test_what_it_shows(self):
        cluster = self.cluster(prefill=2, decode=2, engine='timed',
                               kv_blocks=200)
        port = cluster.ports['http']
        terminal = self.top(port)
        screen = terminal.wait_for('tiny ready', '2 of 2 ready', 'p0', 'd1',
                                   'instances  1 to 4 of 4')
        self.assertEqual(len(screen.splitlines()), 24)
        self.assertNotIn('up and down', screen)
        for _ in range(2):
            self.assertEqual(cluster.api.complete('p' * 64).status, 200)
        screen = terminal.wait_for('in all 37.5 %\n',
                                   'here 48, fetched 0, disk 0, store 0 tokens')
        self.assertRegex(screen, r'TTFT +mean [0-9.]+ ms, p99 [0-9.]+ ms; '
                         r'p50 [0-9.]+ ms, predicted [0-9.]+ ms \(last')
        self.assertIn('promises   0 kept, 0 late; in all 0 kept, 0 late\n',
                      screen)
        # The worker that joined first has both requests.
        self.assertRegex(screen, r'p[01] +prefill +ready +0 +0 +0 '
                         r'\[[# ]{8}\] +\d+% [0-9.]+\n')
        terminal.resize(80, 14)
        terminal.wait_for('instances  1 to 2 of 4; up and down')
        terminal.keys('Down')
        terminal.wait_for('instances  2 to 3 of 4')
        terminal.keys('End')
        terminal.wait_for('instances  3 to 4 of 4')
        terminal.keys('Home')
        terminal.wait_for('instances  1 to 2 of 4')
        terminal.keys('q')
        wait_until('it has ended', lambda: terminal.screen() is None)

    def test_a_conductor_that_goes_and_comes(self):
        cluster = self.cluster(engine='timed', kv_blocks=200)
        port = cluster.ports['http']
        terminal = self.top(port)
        terminal.wait_for('tiny ready')
        cluster.conductor.kill()
        terminal.wait_for('AWAY: no answer', 'p0')
        cluster.config.update(listen=f'127.0.0.1:{port}')
        cluster.start_conductor()
        wait_until('it is back', lambda: 'AWAY' not in terminal.screen())
        terminal.keys('q')
        wait_until('it has ended', lambda: terminal.screen() is None)


class TopAsText(Case):
    def ctl(self, port, *words):
        return self.run_program(program(*CTL), '--address',
                                f'127.0.0.1:{port}', *words)

    def test_once_and_without_a_terminal(self):
        cluster = self.cluster(engine='timed', kv_blocks=200)
        port = cluster.ports['http']
        status, out, errors = self.ctl(port, '--once', 'top')
        self.assertEqual((status, errors), (0, ''))
        lines = out.splitlines()
        first = [line.split()[0] for line in lines]
        self.assertEqual(first[:12], [
            'conductor', 'requests', 'TTFT', 'promises', 'hits', 'cached',
            'rejected', 'transfers', 'prefill', 'decode', 'instances',
            'INSTANCE'])
        # In the order in which they came.
        self.assertEqual(sorted(first[12:]), ['d0', 'p0'])
        status, out, errors = self.ctl(port, 'top')
        self.assertEqual((status, out), (1, ''))
        self.assertIn('needs a terminal; use conductorctl status', errors)
        cluster.conductor.kill()
        status, out, errors = self.ctl(port, '--once', 'top')
        self.assertEqual((status, out), (1, ''))
        self.assertIn('Connection refused', errors)

    def test_what_came_from_the_store(self):
        """It counts as cached, beside the other places."""
        overview = {
            'promises': {'kept': 12345, 'late': 7},
            'guessed': {'length': 100, 'cached': 200},
            'requests': {}, 'rejections': {}, 'models': [], 'pools': {},
            'tokens': {'prompt': 1000, 'local': 100, 'fetched': 50,
                       'disk': 50, 'shared': 300},
            'transfers': {'fetched_bytes': 1, 'disk_bytes': 2,
                          'shared_bytes': 3000}}
        server = Engine(lambda request, send: send(reply(
            200, overview if request.path == '/admin/overview'
            else {'instances': []})))
        self.addCleanup(server.stop)
        _, out, errors = self.ctl(int(server.url.rsplit(':', 1)[1]),
                                  '--once', 'top')
        self.assertEqual(errors, '')
        self.assertIn('in all 50.0 % (guessed for 20.0 %)\n', out)
        self.assertIn('here 100, fetched 50, disk 50, store 300 tokens\n', out)
        self.assertIn('in all 12 k kept, 7 late\n', out)
        self.assertIn('from disk 2 B, store 3.0 kB\n', out)
