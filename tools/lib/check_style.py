#!/usr/bin/env python3
"""What clang-format cannot say of the house's C dialect.

  - a pointer is tested as `p` or `!p`, never against NULL;
  - a blank line follows the declarations that begin a block.

usage: check_style.py [--fix] [FILE...]    (default: every C file of the clone)

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
    r'(?:\s*\*+\s*(?:const\s+|restrict\s+|__restrict__\s+)?|\s+)'
    r'(?:\(\*)?[a-z_A-Z]\w*(?:\[[^=;]*\]|\)\([^=;]*\))*\s*(?:[=;,:{]|$)')


def blank_comments(text):
    """The text with comments and strings made blank, of the same length."""
    def blank(match):
        return re.sub(r'[^\n]', ' ', match.group())
    return re.sub(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|'
                  r"'(?:\\.|[^'\\\n])*'", blank, text, flags=re.S)


def operand_start(code, end):
    """Where the postfix expression that ends before `end` begins."""
    at = end
    while True:
        while at > 0 and code[at - 1].isspace():
            at -= 1
        if at > 0 and code[at - 1] in ')]':
            depth = 0
            while True:
                at -= 1
                depth += (code[at] in ')]') - (code[at] in '([')
                if depth == 0:
                    break
            if at > 0 and re.match(r'[\w)\]]', code[at - 1]):
                continue
        while at > 0 and re.match(r'\w', code[at - 1]):
            at -= 1
        if code[at - 2:at] == '->':
            at -= 2
        elif code[at - 1:at] == '.':
            at -= 1
        else:
            while at > 0 and code[at - 1] == '*' and re.search(
                    r'(?:^|[^\w)\]\s]|\breturn)\s*$', code[:at - 1]):
                at -= 1
            return at


def null_tests(text):
    """Offsets of comparisons with NULL: (start of operand, end, negated)."""
    code = blank_comments(text)
    return [(operand_start(code, m.start()), m.start(), m.end(),
             m.group(1) == '=')
            for m in re.finditer(r'\s*([=!])=\s*NULL\b', code)]


def fix_null_tests(text):
    while True:
        found = null_tests(text)
        if not found:
            return text
        start, end, after, negated = found[0]
        text = (text[:start] + ('!' if negated else '') + text[start:end] +
                text[after:])


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


def fix_blanks(text):
    lines = text.split('\n')
    for number in reversed(missing_blanks(text)):
        while lines[number - 1].lstrip().startswith(('/*', '*', '//')):
            number -= 1
        if lines[number - 1].strip():
            lines.insert(number, '')
    return '\n'.join(lines)


def main(words):
    fix = '--fix' in words
    names = [w for w in words if w != '--fix'] or subprocess.run(
        ['git', 'ls-files'], capture_output=True, text=True,
        check=True).stdout.split()
    bad = 0
    for name in names:
        if not name.endswith(SUFFIXES):
            continue
        with open(name, encoding='utf-8') as file:
            text = file.read()
        if fix:
            new = fix_blanks(fix_null_tests(text))
            if new != text:
                with open(name, 'w', encoding='utf-8') as file:
                    file.write(new)
            continue
        for start, *_ in null_tests(text):
            bad += 1
            print(f'{name}:{text.count(chr(10), 0, start) + 1}: '
                  'a pointer compared with NULL; write p or !p')
        lines = text.split('\n')
        for number in missing_blanks(text):
            at = number
            while lines[at - 1].lstrip().startswith(('/*', '*', '//')):
                at -= 1
            if lines[at - 1].strip():
                bad += 1
                print(f'{name}:{number + 1}: no blank line after the '
                      'declarations that begin the block')
    return bad > 0


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
