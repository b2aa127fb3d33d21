#!/usr/bin/env python3
"""Checks that what the pages name is there: links, and the map of the code.

usage: check_links.py [FILE...]    (default: every .md file of the clone)
       check_links.py --installed FOLDER    (every .md file below it, where
                                             meson install has put the pages)

A link leads to a file or a folder of the clone; what stands behind `#` is a
heading of that page, named as GitHub names it. No page has a heading twice: a
merge that takes both sides doubles whole sections. In a DESIGN.md each `name()` is
a function of the project. In a table whose last column is `begin at`, the column
`file` (or `folder`) names files, and they contain what the last one has in
backticks. Prints FILE:LINE: what, one a line, and ends with 1 if there is any.
"""
import os
import re
import subprocess
import sys
from urllib.parse import unquote

LINK = re.compile(r'\[(?:[^\[\]]|\[[^\]]*\])*\]\(\s*<?([^()\s>]+)>?[^()]*\)')
REFERENCE = re.compile(r'^ {0,3}\[[^\]]+\]:\s+<?(\S+?)>?\s*$', re.M)
FENCE = re.compile(r'^ {0,3}(```|~~~).*?^ {0,3}\1[^\n]*$', re.M | re.S)
FUNCTION = re.compile(r'^(?:#define |\s*(?:async )?def |[A-Za-z_[][\w \t*<>,"[\]]*'
                      r'[ *])?(\w+)\(', re.M)
CODE = re.compile(r'`([^`\n]+)`')
FOLDER = re.compile(r'\]\(([^)]*)/[^/)]*\)')
SOURCES = ('.c', '.h', '.cu', '.cuh', '.py', '.sh', '.build', '.cc')
HEADING = re.compile(r'^ {0,3}#{1,6}\s+(.*?)(?:\s+#+)?\s*$', re.M)


def read(path):
    """The page, with its blocks of code blank."""
    with open(path, encoding='utf-8') as file:
        return FENCE.sub(lambda m: re.sub(r'[^\n]', ' ', m.group()),
                         file.read())


def anchor_of(heading):
    """Returns the fragment by which a link names a heading."""
    name = re.sub(r'\[([^\]]*)\]\([^)]*\)', r'\1', heading).strip().lower()
    return re.sub(r'[^\w\- ]', '', name).replace(' ', '-')


def anchors(path):
    """All names that a link to a page may have behind `#`."""
    text = read(path)
    return ({anchor_of(heading) for heading in HEADING.findall(text)} |
            set(re.findall(r'<a\s+(?:id|name)="([^"]+)"', text)))


def doubled(path):
    """The headings that a page has twice, as lines to print."""
    text, seen, faults = read(path), set(), []
    for match in HEADING.finditer(text):
        name = anchor_of(match.group(1))
        if name in seen:
            line = text.count('\n', 0, match.start(1)) + 1
            faults.append(f'{path}:{line}: a second heading #{name}')
        seen.add(name)
    return faults


def check(path, tracked):
    """The faults of one page, as lines to print."""
    text = re.sub(r'`[^`\n]*`', lambda m: re.sub(r'[\[\]()]', ' ', m.group()),
                  read(path))
    faults = doubled(path)
    for match in sorted([*LINK.finditer(text), *REFERENCE.finditer(text)],
                        key=lambda m: m.start()):
        target = match.group(1)
        if re.match(r'[a-z][a-z0-9+.-]*:', target):
            continue
        file, _, anchor = target.partition('#')
        to = os.path.normpath(
            os.path.join(os.path.dirname(path), unquote(file))
            if file else path)
        fault = None
        if to not in tracked:
            fault = f'no file {to}'
        elif anchor and to.endswith('.md') and anchor not in anchors(to):
            fault = f'no heading #{anchor} in {to}'
        if fault:
            line = text.count('\n', 0, match.start()) + 1
            faults.append(f'{path}:{line}: {target}: {fault}')
    return faults


def code_of(path):
    """The text of a file of code; nothing for any other."""
    if not path.endswith(SOURCES) and '.' in os.path.basename(path):
        return ''
    with open(path, encoding='utf-8', errors='replace') as file:
        return file.read()


def expand(name):
    """`x.[ch]` names two files."""
    stem, bracket, ends = name.rstrip(']').partition('[')
    return [stem + end for end in ends] if bracket else [name]


def code_in(cell, folder, files):
    """The code of the files and folders that a cell names; None where one of
    them is not there."""
    text = ''
    for name in CODE.findall(cell) + FOLDER.findall(cell):
        for path in expand(os.path.normpath(os.path.join(folder, name))):
            found = [f for f in files if f == path or f.startswith(path + '/')]
            if not found:
                return None
            text += ''.join(map(code_of, found))
    return text


def check_map(path, files, functions):
    """The faults of a DESIGN.md as a map of the code, as lines to print."""
    faults, of_files = [], None
    for number, line in enumerate(read(path).split('\n'), 1):
        at = f'{path}:{number}:'
        faults += [f'{at} no function {name}()'
                   for name in re.findall(r'`(\w+)\(\)`', line)
                   if name not in functions]
        cells = [cell.strip() for cell in line.split('|')[1:-1]]
        if not cells:
            of_files = None
        elif cells[-1] == 'begin at':
            of_files = 1 if cells[1] == 'file' else 0
        elif of_files is not None and not cells[0].startswith('--'):
            cell = cells[of_files]
            code = code_in(cell, os.path.dirname(path), files)
            if code is None:
                faults.append(f'{at} a file of {cell} is missing')
                continue
            names = re.findall(r'\w+', ' '.join(CODE.findall(cells[-1])))
            faults += [f'{at} no {name} in {cell}' for name in names
                       if not re.search(rf'\b{name}\b', code)]
    return faults


def check_installed(folder):
    """The faults of the pages below a folder: no link leads out of it."""
    there = {folder}
    for at, folders, files in os.walk(folder):
        there.update(os.path.join(at, name) for name in folders + files)
    return [fault for page in sorted(there) if page.endswith('.md')
            for fault in check(page, there)]


def main():
    if sys.argv[1:2] == ['--installed']:
        faults = check_installed(os.path.normpath(sys.argv[2]))
        print('\n'.join(faults), end='\n' if faults else '')
        return 1 if faults else 0
    listed = subprocess.run(['git', 'ls-files', '-co', '--exclude-standard'],
                            capture_output=True, text=True, check=True)
    files = [file for file in listed.stdout.split('\n')
             if file and os.path.exists(file)]
    tracked = {'.', *files}
    for file in files:
        while file := os.path.dirname(file):
            tracked.add(file)
    pages = sys.argv[1:] or [f for f in files if f.endswith('.md')]
    faults = [fault for page in pages for fault in check(page, tracked)]
    functions = {name for file in files
                 for name in FUNCTION.findall(code_of(file))}
    faults += [fault for page in pages
               if os.path.basename(page) == 'DESIGN.md'
               for fault in check_map(page, files, functions)]
    print('\n'.join(faults), end='\n' if faults else '')
    return 1 if faults else 0


if __name__ == '__main__':
    sys.exit(main())
