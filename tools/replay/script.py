"""What the subcommands written in Python share. conductor-replay runs them with
PROGRAM COMMAND, and option=value for each option, checked."""
import json
import math
import os
import re
import signal
import stat
import subprocess
import sys


class Refused(Exception):
    """An input cannot be used, for a reason of one line."""


def printable(text):
    return re.sub('[^ -~]', '?', text)


def read_file(path, most, too_large):
    """Returns the bytes of a regular file."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise Refused(f'{path}: not a regular file')
        with open(path, 'rb') as f:
            data = f.read(most + 1)
    except OSError as e:
        raise Refused(f'{path}: {e.strerror}') from None
    if len(data) > most:
        raise Refused(f'{path}: {too_large}')
    return data


def json_text(value, digits, **how):
    """Returns a value as JSON, real numbers with so many digits."""
    def marked(x):
        if isinstance(x, dict):
            return {k: marked(v) for k, v in x.items()}
        if isinstance(x, list):
            return [marked(v) for v in x]
        if not isinstance(x, float):
            return x
        text = re.sub(r'(e-?)\+?0*', r'\1', f'{x:.{digits}g}')
        return '\x7f' + (text if re.search('[.e]', text) else text + '.0')
    return re.sub('"(?:\x7f|\\\\u007f)([^"]*)"', r'\1',
                  json.dumps(marked(value), **how))


class Fields:
    """The members of an object of a file; `where` is its place, with a dot."""

    def __init__(self, file, members, where=''):
        self.file, self.members, self.where = file, members, where

    def refuse(self, name, what):
        place = (self.where + name if name else
                 re.sub(r'\.$', '', self.where))
        raise Refused(f'{self.file}: {place}{": " if place else ""}'
                      f'{printable(what)}')

    def refuse_value(self, name, expected):
        if name and name not in self.members:
            self.refuse(name, f'missing: must be {expected}')
        text = json_text(self.members[name] if name else self.members, 6,
                         separators=(',', ':'))
        self.refuse(name, f'{text:.60}{"..." if len(text) > 60 else ""}: '
                    f'must be {expected}')

    def object(self, name):
        """Returns the members of a member."""
        if not isinstance(self.members.get(name), dict):
            self.refuse_value(name, 'an object')
        return Fields(self.file, self.members[name], f'{self.where}{name}.')

    def objects(self, name, most):
        """Returns the members of each object of a list."""
        x = self.members.get(name)
        if not (isinstance(x, list) and 1 <= len(x) <= most):
            self.refuse_value(name, f'an array of 1 to {most} objects')
        return [Fields(self.file, {f'{name}[{i}]': one}).object(f'{name}[{i}]')
                for i, one in enumerate(x)]

    def constant(self, name, expected):
        if self.members.get(name) != expected:
            self.refuse_value(name, json.dumps(expected))

    def known(self, names):
        for name in self.members:
            if name not in names.split():
                raise Refused(printable(f'{self.file}: {self.where}{name:.60}: '
                                        'no such field'))

    def number(self, name, least, most, whole=False):
        x = self.members.get(name)
        good = type(x) in ((int,) if whole else (int, float))
        if not (good and least <= x <= most):
            self.refuse_value(name, f'an integer of {least} to {most}' if whole
                              else f'a number from {least:g}'
                              if most == math.inf else
                              f'a number of {least:g} to {most:g}')
        return x if whole else float(x)

    def text(self, name, most):
        x = self.members.get(name)
        if not (isinstance(x, str) and 1 <= len(x.encode()) <= most and
                not re.search('[\0-\x1f\x7f]', x)):
            self.refuse_value(name, f'a text of 1 to {most} printable bytes')
        return x


def read_json(path, data):
    """Returns the JSON object of the bytes of a file."""
    def once(pairs):
        members = dict(pairs)
        if len(members) < len(pairs):
            raise ValueError('a name is there twice')
        return members

    def no_constant(text):
        raise ValueError(f'{text}: must be a number')

    try:
        text = data.decode('utf-8-sig')
        if not text.strip():
            raise Refused(f'{path}: is empty: must be an object, {{}} at least')
        root = json.loads(text, object_pairs_hook=once,
                          parse_constant=no_constant)
    except json.JSONDecodeError as e:
        raise Refused(f'{path}: line {e.lineno}, column {e.colno}: '
                      f'{e.msg}') from None
    except (ValueError, RecursionError) as e:
        raise Refused(f'{path}: {printable(str(e))}') from None
    if not isinstance(root, dict):
        Fields(path, root).refuse_value('', 'an object')
    return root


def nearest(x):
    """Rounds halves away from zero, as C does."""
    whole = math.trunc(x)
    return whole + (abs(x - whole) >= 0.5) * (1 if x > 0 else -1)


def percentile(values, share):
    """Interpolates linearly between the ranks."""
    values = sorted(values)
    rank = share * (len(values) - 1)
    low = int(rank)
    if low + 1 >= len(values):
        return values[-1]
    return values[low] + (rank - low) * (values[low + 1] - values[low])


class Ended(Exception):
    """A runner has ended early, and has said why."""


class Runner:
    """Runs `conductor-replay COMMAND`, which simulates: it says one line of
    JSON, then answers questions, a line each."""

    def __init__(self, program, command, options, passed, *words):
        words = [w for name in passed if name in options
                 for value in options[name].split('\n')
                 for w in ([f'--{name}'] if name == 'skip-bad' else
                           [f'--{name}', value])] + list(words)
        self.process = subprocess.Popen(
            [program, command, *words], text=True, stdin=subprocess.PIPE,
            stdout=subprocess.PIPE)

    def read(self):
        line = self.process.stdout.readline()
        if not line:
            raise Ended
        return json.loads(line)

    def ask(self, question):
        """Returns the answer; [] if nothing is asked."""
        if not question:
            return []
        try:
            self.process.stdin.write(json.dumps(question) + '\n')
            self.process.stdin.flush()
        except BrokenPipeError:
            raise Ended from None
        return self.read()

    def end(self):
        self.process.stdin.close()
        return self.process.wait()


class Script:
    """A subcommand: its options, output files and exit status."""

    def __init__(self, program, name, options):
        self.program, self.name, self.options = program, name, options
        self.status = 0

    def complain(self, what):
        print(f'conductor-replay {self.name}: {what}', file=sys.stderr)
        self.status = 1

    def output(self, option, make):
        """Writes what make() returns, bytes or why not, to the option's file,
        if it has one."""
        path = self.options.get(option)
        if not path:
            return
        data = make()
        is_open = path.startswith('/dev/fd/')
        shown = f'--{option} -' if is_open else path
        if isinstance(data, str):
            self.complain(f'{shown}: {data}')
            return
        try:
            f = open(os.dup(int(path[8:])) if is_open else path, 'wb')
        except OSError as e:
            self.complain(f'{shown}: {e.strerror}')
            return
        try:
            with f:
                f.write(data)
        except OSError:
            self.complain(f'{shown}: {os.strerror(5)}')

    def end(self):
        """Is called last."""


def run(kind, main):
    """Runs main(kind(PROGRAM, COMMAND, OPTIONS)). Returns the exit status; ends
    the program if standard output cannot be written, and says so."""
    _, program, name, *given = sys.argv
    script = kind(program, name, dict(x.split('=', 1) for x in given if x))
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # ends without a traceback
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    for f in sys.stdout, sys.stderr:
        f.reconfigure(encoding='utf-8', errors='surrogateescape')
    try:
        try:
            main(script)
        except Refused as why:
            script.complain(why)
        script.end()
        sys.stdout.flush()
    except OSError as e:
        print(f'conductor-replay: standard output: {e.strerror}',
              file=sys.stderr)
        os._exit(1)
    return script.status
