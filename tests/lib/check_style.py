#!/usr/bin/env python3
"""Rules of the house's C dialect that clang-format cannot check.

  - a pointer is tested as `p` or `!p`, never against NULL;
  - a blank line follows the declarations that begin a block;
  - a comment names its subject: it does not begin with a relative clause ("What
    waits", "Which of them", "that it waits for"), and no later sentence begins
    with "Who", "That of" or "Of these" (but "of these, refused ones" counts);
  - the comment of a function in a header says what it does: not "Whether it
    waits" or "Likewise for links", but "Returns whether ..".
    Folders in MOST_PRONOUNS may have as many of these as it says, never more;
  - only the files that base/DESIGN.md lists include libevent's headers, read
    the machine's clocks, draw its random numbers or call the kernel's sockets:
    all others ask the loop
    (BEHIND_LOOP).

usage: check_style.py [FILE...]    (default: every C file of the clone)
       check_style.py --pronouns [FILE...]    (lists such comments, counts them)

Prints FILE:LINE: what, one a line, and ends with 1 if there is any.
"""
import collections
import re
import subprocess
import sys

# Comments without a subject, as --pronouns counts them, in folders that are not
# without them yet: lower a number when a folder has fewer.
MOST_PRONOUNS = {'tests': 351}
SUFFIXES = ('.c', '.h', '.cu', '.cuh', '.cc')
NOT_TYPES = ('return', 'goto', 'else', 'case', 'break', 'continue', 'typedef',
             'do', 'default', 'sizeof', 'delete', 'extern', 'using')
DECLARATION = re.compile(
    r'^(?:(?:const|static|unsigned|signed|volatile|register|constexpr)\s+)*'
    r'(?:(?:struct|enum|union)\s+)?(?P<type>[A-Za-z_]\w*)'
    r'(?:\s+(?:long|int|char|short|const|unsigned|double))*'
    r'(?:\s*\*+\s*(?:(?:const|restrict|__restrict__)\s+\**)?|\s+)'
    r'(?:\(\*)?[a-z_A-Z]\w*(?:\[[^=;]*\]|\)\([^=;]*\))*\s*(?:[=;,:{]|$)')


COMMENT = re.compile(r'"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|'
                     r'/\*(?P<block>.*?)\*/|//(?P<line>[^\n]*)', re.S)
PRONOUN_FIRST = re.compile(
    r'(?:what|who|whom|whose|which|whoever|whatever|that|those)\b', re.I)
PRONOUN_LATER = re.compile(
    r'[.;]\s+(?:what|who|whoever|whatever|those)\b|'
    r'[.;=]\s+(?:that|those) of\b|[.;]\s+of (?:these|those)\b(?!,)', re.I)
NO_VERB = re.compile(r'(?:[\w/]+\.c[:.] )?(?:\w+\([\w, ]*\): )?'
                     r'(?:whether|likewise)\b', re.I)
PROTOTYPE = re.compile(r'\s*\n(?!\s*(?:#|/\*|//))[^;{=#]*\(')


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


def pronouns(text, is_header):
    """(number of the line from 0, beginning) of each comment without a subject
    or, where it is a function's in a header, without a verb."""
    for match in COMMENT.finditer(text):
        comment = match.group('block') or match.group('line')
        if not comment:
            continue
        lines = re.sub(r'\n\s*\*', '\n', comment.strip('*/<! '))
        words = ' '.join(lines.split())
        if PRONOUN_FIRST.match(words) or PRONOUN_LATER.search(words) or (
                is_header and NO_VERB.match(words) and
                PROTOTYPE.match(text, match.end())):
            yield text.count('\n', 0, match.start()), words[:60]


def too_many(found):
    """A line for each folder with more such comments than it may have."""
    for folder, most in MOST_PRONOUNS.items():
        if found[folder] > most:
            yield (f'{folder}: {found[folder]} comments lack a subject, and at '
                   f'most {most} may (check_style.py --pronouns lists them)')


# What goes by the loop: a section of base/DESIGN.md lists the other users of
# these headers and functions. (Heading, lines, folders without the rule, what to
# do instead.) accept() and send() are names of our own, too: not looked for.
BEHIND_LOOP = (
    ('## Who may include libevent',
     re.compile('#include (<event2/|"base/loop/libevent.h")'), ('tests/',),
     'use base/loop/loop.h'),
    ("## Who may read the machine's clocks",
     re.compile(r'#include "base/clock\.h"'
                r'|.*(?<![\w.>])(clock_gettime|gettimeofday|timespec_get)\('
                r'|.*(?<![\w.>])time\((NULL|0|&)'), ('tests/', 'tools/'),
     'use loop_now_us() or loop_wall_us()'),
    ("## Who may draw the machine's random numbers",
     re.compile(r'#include "base/entropy\.h"|.*(?<![\w.>])(getrandom|getentropy'
                r'|arc4random|RAND_bytes|s?rand|random|[dlm]rand48)\('),
     ('tests/', 'tools/'), 'use loop_random()'),
    ("## Who may call the kernel's sockets",
     re.compile(r'.*(?<![\w.>])(socket(pair)?|connect|accept4|bind|listen|shutdown'
                r'|(get|set)sockopt|get(sock|peer)name'
                r'|(recv|send)(from|to|m?msg)|recv)\('),
     ('tests/', 'tools/'), 'use base/loop/net.h'),
)


def users_of(heading):
    """The files that a section of base/DESIGN.md lists."""
    with open('base/DESIGN.md', encoding='utf-8') as file:
        section = file.read().split(heading)[1]
    return set(re.findall(r'`([\w/]+\.[ch])`', section.split('\n## ')[0]))


def beside_loop(name, text, users):
    """(number of the line from 0, what) of each line that passes the loop by
    and is not allowed, or 0 and what if an allowed file needs it no longer."""
    for heading, lines, free, instead in BEHIND_LOOP:
        found = [number for number, line in enumerate(text.split('\n'))
                 if lines.match(line) and not line.startswith((' *', '/*'))]
        section = f'the list "{heading[3:]}" in base/DESIGN.md'
        if name in users[heading] and not found:
            yield 0, f'does nothing of that kind: take it from {section}'
        elif name not in users[heading] and not name.startswith(free):
            for number in found:
                yield number, f'{instead}, or see {section}'


def main(names):
    listing = names[:1] == ['--pronouns']
    names = names[listing:]
    listed = subprocess.run(['git', 'ls-files'], capture_output=True,
                            text=True, check=True).stdout.split()
    bad, n_pronouns = 0, collections.Counter()
    users = {heading: users_of(heading) for heading, *_ in BEHIND_LOOP}
    for name in names or listed:
        if name.endswith(SUFFIXES):
            with open(name, encoding='utf-8') as file:
                text = file.read()
            folder = name.split('/')[0]
            found = list(pronouns(text, name.endswith(('.h', '.cuh'))))
            n_pronouns[folder] += len(found)
            if not listing:
                found = [] if folder in MOST_PRONOUNS else [
                    (number, f'a comment without a subject: "{what}"')
                    for number, what in found]
                found += faults(text)
                found += beside_loop(name, text, users)
            bad += len(found)
            for number, what in found:
                print(f'{name}:{number + 1}: {what}')
    if listing:
        print(dict(sorted(n_pronouns.items())))
        return 0
    for line in too_many(n_pronouns):
        bad += 1
        print(line)
    return bad > 0


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
