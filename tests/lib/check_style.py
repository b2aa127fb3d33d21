#!/usr/bin/env python3
"""What clang-format cannot say of the house's C dialect.

  - a pointer is tested as `p` or `!p`, never against NULL;
  - a blank line follows the declarations that begin a block.

usage: check_style.py [FILE...]    (default: every C file of the clone)

Prints FILE:LINE: what, one a line, and ends with 1 if there is any.
"""
import re
import subprocess
import sys

SUFFIXES = ('.c', '.h', '.cu', '.cuh', '.cc')
NOT_TYPES = ('return', 'goto', 'else', 'case', 'break', 'continue', 'typedef',
             'do', 'default', 'sizeof', 'delete', 'extern', 'using')
DECLARATION = re.compile(
    r'^(?:(?:const|static|unsigned|signed|volatile|register|constexpr)\s+)*'
    r'(?:(?:struct|enum|union)\s+)?(?P<type>[A-Za-z_]\w*)'
    r'(?:\s+(?:long|int|char|short|const|unsigned|double))*'
    r'(?:\s*\*+\s*(?:(?:const|restrict|__restrict__)\s+\**)?|\s+)'
    r'(?:\(\*)?[a-z_A-Z]\w*(?:\[[^=;]*\]|\)\([^=;]*\))*\s*(?:[=;,:{]|$)')


def blank_comments(text):
    """The text with comments and strings made blank, of the same length."""
    def blank(match):
        return re.sub(r'[^\n]', ' ', match.group())
    return re.sub(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|'
                  r"'(?:\\.|[^'\\\n])*'", blank, text, flags=re.S)


def is_declaration(statement):
    match = DECLARATION.match(statement)
    return bool(match) and match.group('type') not in NOT_TYPES


def missing_blanks(text):
    """Numbers (from 0) of lines that a blank line should precede."""
    lines = blank_comments(text).split('\n')
    raw = text.split('\n')
    found, depth, state, pending = [], 0, None, ''
    for number, line in enumerate(lines):
        code = line.strip()
        if raw[number].lstrip().startswith('#'):
            continue
        if not raw[number].strip():
            if not pending:
                state = None
            continue
        if state == 'block' and code:
            pending += ' ' + code
            whole = (pending.count('(') == pending.count(')') and
                     pending.count('{') == pending.count('}'))
            if is_declaration(pending.strip()):
                if whole and code.endswith(';'):
                    seen, pending = True, ''
            else:
                first = number - pending.count('\n')
                if seen and pending.strip() != '}' and \
                        not code.startswith('}'):
                    found.append(first)
                state, pending = None, ''
        if code.endswith('{') and not pending:
            head = code[:-1].strip()
            opens = head == '' or head.endswith(')') or \
                head.endswith(('else', 'do')) or head.startswith('switch')
            state, seen, pending = ('block' if opens else None), False, ''
        elif code.startswith('}') and not pending:
            state = None
    return found


def faults(text):
    """(number of the line from 0, what) of each fault."""
    code = blank_comments(text)
    for match in re.finditer(r'[=!]=\s*NULL\b', code):
        yield (code.count('\n', 0, match.start()),
               'a pointer compared with NULL; write p or !p')
    lines = text.split('\n')
    for number in missing_blanks(text):
        at = number
        while lines[at - 1].lstrip().startswith(('/*', '*', '//')):
            at -= 1
        if lines[at - 1].strip():
            yield (number, 'no blank line after the declarations that begin '
                           'the block')


def main(names):
    listed = subprocess.run(['git', 'ls-files'], capture_output=True,
                            text=True, check=True).stdout.split()
    bad = 0
    for name in names or listed:
        if name.endswith(SUFFIXES):
            with open(name, encoding='utf-8') as file:
                found = list(faults(file.read()))
            bad += len(found)
            for number, what in found:
                print(f'{name}:{number + 1}: {what}')
    return bad > 0


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
