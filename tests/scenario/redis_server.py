"""Real servers of Redis on loopback, for one case each, and a client."""
import os
import shutil
import signal
import socket

from harness import free_ports, program, settings, wait_until

REDIS = shutil.which('redis-server')
MISSING = 'redis-server is not installed'


class Connection:
    """Speaks RESP, version 2: one command at a time."""

    def __init__(self, port, password=None):
        self.socket = socket.create_connection(
            ('127.0.0.1', port), timeout=30 * settings.scale)
        self.file = self.socket.makefile('rb')
        if password:
            self.command('AUTH', password)

    def send(self, *words):
        words = [w if isinstance(w, bytes) else str(w).encode()
                 for w in words]
        self.socket.sendall(b'*%d\r\n' % len(words) + b''.join(
            b'$%d\r\n%s\r\n' % (len(w), w) for w in words))

    def reply(self):
        line = self.file.readline()
        if not line.endswith(b'\r\n'):
            raise ConnectionError('closed')
        kind, rest = line[:1], line[1:-2]
        if kind in b'+-':
            return line[:-2].decode() if kind == b'-' else rest.decode()
        if kind == b':':
            return int(rest)
        if int(rest) < 0:
            return None
        if kind == b'$':
            return self.file.read(int(rest) + 2)[:-2]
        return [self.reply() for _ in range(int(rest))]

    def command(self, *words):
        self.send(*words)
        return self.reply()

    def close(self):
        self.file.close()
        self.socket.close()


class RedisServer:
    """redis-server; options as in redis.conf, with _ for -. sentinel: the
    text of its configuration, which it writes to."""

    def __init__(self, case, name='redis', sentinel=None, **options):
        self.case = case
        self.name = name
        self.port = free_ports()
        self.password = options.get('requirepass')
        folder = os.path.join(case.folder, name)
        os.mkdir(folder)
        self.command_line = [REDIS]
        if sentinel is not None:
            config = os.path.join(folder, 'sentinel.conf')
            with open(config, 'w', encoding='ascii') as f:
                f.write(sentinel)
            self.command_line += [config, '--sentinel']
        else:
            options = {'save': '', 'appendonly': 'no',
                       'repl_diskless_sync_delay': 0, **options}
        for option, value in {'port': self.port, 'bind': '127.0.0.1',
                              'dir': folder, **options}.items():
            self.command_line += ['--' + option.replace('_', '-'),
                                  *(str(value).split(' ') if value != '' else
                                    [''])]
        self.process = None
        self.start()

    def start(self):
        self.process = self.case.start(self.name, self.command_line)
        self.process.killed = True  # with replicas it ends with 1
        wait_until(f'{self.name} answers', self.answers,
                   process=self.process)

    def answers(self):
        try:
            return self.command('PING') == 'PONG'
        except OSError:
            return False

    def connect(self):
        return Connection(self.port, self.password)

    def command(self, *words):
        connection = self.connect()
        try:
            return connection.command(*words)
        finally:
            connection.close()

    def kill(self):
        self.process.kill()

    def stop(self):
        """It no longer runs, and no connection of it ends."""
        self.process.child.send_signal(signal.SIGSTOP)

    def go_on(self):
        self.process.child.send_signal(signal.SIGCONT)

    def url(self, database=0):
        login = f':{self.password}@' if self.password else ''
        return f'redis://{login}127.0.0.1:{self.port}/{database}'


class RedisModel(RedisServer):
    """The model of Redis of tests/world, behind a port."""

    def __init__(self, case, name='redis', requirepass=None):
        self.case = case
        self.name = name
        self.port = free_ports()
        self.password = requirepass
        self.command_line = [program('tests', 'world', 'redis_model'),
                             '--port', str(self.port)]
        if requirepass:
            self.command_line += ['--requirepass', requirepass]
        self.process = None
        self.start()

    def fault(self, *words):
        """Makes a fault; tests/world/redis/fault_commands.c has their words."""
        self.case.assertEqual(self.command('FAULT', *words), 'OK')
