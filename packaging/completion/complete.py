#!/usr/bin/env python3
"""Writes what completes a program's command line in a shell, from what the
program says of its options.

usage: complete.py bash|zsh PROGRAM NAME

  PROGRAM  the program, to be asked for --help all (and for the help of each of its
           commands, and --config-reference, where it has them)
  NAME     what it is called
"""
import os
import re
import subprocess
import sys
from dataclasses import dataclass, field

OPTION = re.compile(r'  (?:-(?P<letter>.), |    )?--(?P<name>[a-z0-9-]+)'
                    r'(?: (?P<value>[[A-Z]\S*))?(?:  +(?P<help>.*))?$')
COMMAND = re.compile(r'  (?P<name>[a-z][a-z-]*)(?: \[?[A-Z]+\]?)?  +(?P<help>\S.*)$')
# "prefill, decode or both" at the end of the help, or behind a colon.
WORDS = re.compile(r'(?:^|: )((?:[a-z0-9_.-]+, )*[a-z0-9_.-]+ or [a-z0-9_.-]+)'
                   r'(?: \(default [^)]*\))?$')


@dataclass
class Option:
    name: str
    letter: str
    value: str
    help: str

    def spellings(self):
        return ([f'-{self.letter}'] if self.letter else []) + [f'--{self.name}']

    def words(self):
        match = WORDS.search(self.help)
        return re.split(', | or ', match.group(1)) if match else []

    def is_file(self):
        return bool(self.value) and 'FILE' in self.value

    def is_folder(self):
        return self.value in ('FOLDER', 'DIR')


@dataclass
class Program:
    name: str
    options: list = field(default_factory=list)
    commands: dict = field(default_factory=dict)  # name: Program
    settings: list = field(default_factory=list)  # of --set
    help: str = ''


def ask(*command):
    command = os.environ.get('RUN_WITH', '').split() + list(command)
    return subprocess.run(command, capture_output=True, text=True, check=True,
                          stdin=subprocess.DEVNULL).stdout


def read(name, text):
    program = Program(name)
    # Examples stand in front of commands, or behind options.
    front, *behind = re.split(r'^examples:\n(?:  .*\n)+', text, flags=re.M)
    if not any(OPTION.match(line) for line in front.splitlines()):
        front += ''.join(behind)
    for line in front.splitlines():
        option, command = OPTION.match(line), COMMAND.match(line)
        if option:
            program.options.append(Option(
                option['name'], option['letter'] or '', option['value'] or '',
                option['help'] or ''))
        elif command and not program.options:
            program.commands[command['name']] = Program(
                command['name'], help=command['help'])
        elif program.options and re.match(r' {8,}\S', line):
            last = program.options[-1]
            last.help = f'{last.help} {line.strip()}'.strip()
    return program


def learn(path, name):
    program = read(name, ask(path, '--help', 'all'))
    if 'COMMAND [OPTIONS]' in ask(path, '--help').splitlines()[0]:
        for command in program.commands:
            text = program.commands[command].help
            program.commands[command] = read(command,
                                             ask(path, command, '--help', 'all'))
            program.commands[command].help = text
    if any(o.name == 'config-reference' for o in program.options):
        program.settings = re.findall(
            r'^\| `([a-z_]+)` \| (?:string|integer|number|true)',
            ask(path, '--config-reference').split('\n## ')[0], re.M)
    return program


def bash_values(program, indent):
    """Branches of a case over the word in front."""
    out, free = [], []
    for o in program.options:
        pattern = '|'.join(o.spellings())
        if o.name == 'set' and program.settings:
            act = (f"COMPREPLY=($(compgen -S = -W "
                   f"'{' '.join(program.settings)}' -- \"$cur\")); "
                   'compopt -o nospace')
        elif not o.value:
            continue
        elif o.words():
            act = f"COMPREPLY=($(compgen -W '{' '.join(o.words())}' -- \"$cur\"))"
        elif o.is_folder():
            act = '_filedir -d'
        elif o.is_file():
            act = '_filedir'
        else:
            free += o.spellings()
            continue
        out.append(f'{indent}{pattern}) {act}; return ;;')
    return out + [f"{indent}{'|'.join(free)}) return ;;"] * bool(free)


def spelled(program):
    return ' '.join(s for o in program.options for s in o.spellings())


def bash(program):
    function = '_' + program.name.replace('-', '_')
    out = [f'# bash completion of {program.name}, written by its build.',
           f'{function}()', '{', '    local cur prev words cword',
           '    _init_completion -n =: || return']
    own = {c: p for c, p in program.commands.items() if p.options}
    if own:
        out += ['    case ${words[1]} in']
        for name, command in own.items():
            out += [f'        {name})', '            case $prev in',
                    *bash_values(command, ' ' * 16), '            esac',
                    '            COMPREPLY=($(compgen -W '
                    f"'{spelled(command)}' -- \"$cur\"))",
                    '            [[ $cur == -* ]] || _filedir',
                    '            return ;;']
        out += ['    esac']
    branches = bash_values(program, ' ' * 8)
    if branches:
        out += ['    case $prev in', *branches, '    esac']
    words = spelled(program) or '--help --version'
    out += ['    if [[ $cur == -* ]]; then',
            f"        COMPREPLY=($(compgen -W '{words}' -- \"$cur\"))"]
    if program.commands:
        out += ['    else',
                '        COMPREPLY=($(compgen -W '
                f"'{' '.join(program.commands)}' -- \"$cur\"))"]
    else:
        out += ['    else', '        _filedir']
    out += ['    fi', '} &&', f'    complete -F {function} {program.name}']
    return out


def zsh_text(text):
    return re.sub(r"([\[\]:\\])", r'\\\1', text).replace("'", "'\\''")


def zsh_specs(program, indent):
    out = []
    for o in program.options:
        act = ''
        if o.value:
            what = (f"({' '.join(o.words())})" if o.words() else
                    '_files -/' if o.is_folder() else
                    '_files' if o.is_file() else ' ')
            if o.name == 'set' and program.settings:
                what = f"({' '.join(s + '=' for s in program.settings)})"
            act = f':{zsh_text(o.value)}:{what}'
        text = zsh_text(o.help.split('. ')[0].split(';')[0])
        equals = '=' if o.value else ''
        repeats = '*' if 'may be repeated' in o.help else ''
        for spelling in o.spellings():
            mark = equals if spelling.startswith('--') else ''
            out.append(f"{indent}'{repeats}{spelling}{mark}[{text}]{act}'")
    return out


def zsh_call(program, indent, last):
    specs = zsh_specs(program, indent + '    ') + [f"{indent}    {last}"]
    return [indent + '_arguments \\', *[s + ' \\' for s in specs[:-1]],
            specs[-1]]


def zsh(program):
    out = [f'#compdef {program.name}',
           f'# zsh completion of {program.name}, written by its build.']
    if not program.commands:
        return out + zsh_call(program, '', "'*:file:_files'")
    out += ['local -a commands', 'commands=(']
    out += [f"    '{name}:{zsh_text(c.help)}'"
            for name, c in program.commands.items()]
    out += [')']
    own = {c: p for c, p in program.commands.items() if p.options}
    if not own:
        return out + zsh_call(program, '',
                              "'1:command:{_describe command commands}' '*: :'")
    out += ['if ((CURRENT == 2)); then', '    _describe command commands',
            '    return', 'fi', 'case $words[2] in']
    for name, command in own.items():
        out += [f'    {name})', '        shift words; ((CURRENT--))',
                *zsh_call(command, ' ' * 8, "'*:file:_files'"), '        ;;']
    return out + ['esac']


def main():
    shell, path, name = sys.argv[1:]
    print('\n'.join({'bash': bash, 'zsh': zsh}[shell](learn(path, name))))


if __name__ == '__main__':
    main()
