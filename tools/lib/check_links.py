#!/usr/bin/env python3
"""Checks that every relative link of a page leads somewhere.

usage: check_links.py [FILE...]    (default: every .md file of the clone)

A link leads to a file or a folder of the clone; what stands behind `#` is a
heading of that page, named as GitHub names it. Prints FILE:LINE: what, one a
line, and ends with 1 if there is any.
"""
import os
import re
import subprocess
import sys
from collections import Counter
from urllib.parse import unquote

LINK = re.compile(r'\[(?:[^\[\]]|\[[^\]]*\])*\]\(\s*<?([^()\s>]+)>?[^()]*\)')
REFERENCE = re.compile(r'^ {0,3}\[[^\]]+\]:\s+<?(\S+?)>?\s*$', re.M)
FENCE = re.compile(r'^ {0,3}(```|~~~).*?^ {0,3}\1[^\n]*$', re.M | re.S)
HEADING = re.compile(r'^ {0,3}#{1,6}\s+(.*?)(?:\s+#+)?\s*$', re.M)


def read(path):
    """The page, with its blocks of code blank."""
    with open(path, encoding='utf-8') as file:
        return FENCE.sub(lambda m: re.sub(r'[^\n]', ' ', m.group()),
                         file.read())


def anchors(path):
    """All names that a link to a page may have behind `#`."""
    text, names, seen = read(path), set(), Counter()
    for heading in HEADING.findall(text):
        name = re.sub(r'\[([^\]]*)\]\([^)]*\)', r'\1', heading).strip().lower()
        name = re.sub(r'[^\w\- ]', '', name).replace(' ', '-')
        names.add(f'{name}-{seen[name]}' if seen[name] else name)
        seen[name] += 1
    return names | set(re.findall(r'<a\s+(?:id|name)="([^"]+)"', text))


def check(path, tracked):
    """The faults of one page, as lines to print."""
    text = re.sub(r'`[^`\n]*`', lambda m: re.sub(r'[\[\]()]', ' ', m.group()),
                  read(path))
    faults = []
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


def main():
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
    print('\n'.join(faults), end='\n' if faults else '')
    return 1 if faults else 0


if __name__ == '__main__':
    sys.exit(main())
