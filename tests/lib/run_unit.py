"""Runs meson's tests and counts the CUnit tests inside each binary.

A binary counts as one test where it prints no CUnit summary, and as at least
one failure where it did not end well, whatever it printed.
"""
import argparse
import json
import os
import re
import subprocess
import sys

from counts import Counts
from progress import Progress

# "tests     12     12     12      0        0": total, ran, passed, failed,
# inactive.
SUMMARY = re.compile(r'^\s*tests\s+(\d+)\s+(\d+)\s+(\d+)\s+(\d+)\s+(\d+)\s*$',
                     re.MULTILINE)

# " 3/47 conductor:unit / test_pool        OK   0.02s" of meson.
ENDED = re.compile(r'\s*\d+/\d+ (.*?)\s+[A-Z]+\s+[0-9.]+s')


def count(entry):
    """Counts of one line of meson's testlog.json."""
    counts = Counts()
    found = SUMMARY.search(entry.get('stdout') or '')
    if found:
        _, _, counts.passed, counts.failed, counts.skipped = map(
            int, found.groups())
    result = entry['result']
    if result in ('SKIP', 'EXPECTEDFAIL'):
        counts.skipped = max(counts.skipped, 1)
    elif result != 'OK':
        counts.failed = max(counts.failed, 1)
    elif not found:
        counts.passed = 1
    return counts


def short(name):
    """Of "conductor:unit / test_pool" the last part."""
    return name.split(' / ')[-1].split(':')[-1]


def last_words(entry, n):
    text = (entry.get('stdout') or '') + (entry.get('stderr') or '')
    return '\n'.join(text.splitlines()[-n:])


def reason(entry):
    """CUnit's "1. file.c:12  - what did not hold", or else the last line."""
    found = re.search(r'^\s*1\. (\S+:\d+.*)$', entry.get('stdout') or '',
                      re.MULTILINE)
    return found[1].strip() if found else last_words(entry, 1).strip()


def names(build, text):
    listed = subprocess.run(['meson', 'introspect', '--tests', build],
                            check=True, capture_output=True, text=True)
    return [t['name'] for t in json.loads(listed.stdout) if text in t['name']]


def run(command, chosen):
    """Runs meson, and shows which tests are left of those that it runs now:
    it says only what has ended."""
    progress = Progress(len(chosen))
    left = list(chosen)
    with subprocess.Popen(command, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, errors='replace') as meson:
        for line in meson.stdout:
            ended = ENDED.match(line)
            if ended and short(ended[1]) in left:
                left.remove(short(ended[1]))
                progress.done += 1
            progress.running = left[:os.cpu_count()]
            progress.show()
    progress.clear()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('build')
    parser.add_argument('--scale', default='1', help='of meson\'s timeouts')
    parser.add_argument('--filter', default='')
    parser.add_argument('--counts')
    args = parser.parse_args()

    total = Counts()
    chosen = names(args.build, args.filter)
    log = os.path.join(args.build, 'meson-logs', 'testlog.json')
    if os.path.exists(log):
        os.remove(log)
    print(f'== unit tests: {len(chosen) or "none"}'
          f'{" binaries" if chosen else ""}', flush=True)
    entries = []
    if chosen:
        run(['meson', 'test', '-C', args.build, '--no-rebuild', '-t',
             args.scale, *chosen], chosen)
        with open(log, encoding='utf-8') as lines:
            entries = [json.loads(line) for line in lines]
    for entry in entries:
        counts = count(entry)
        print(f'   {short(entry["name"]):24} {entry["result"].lower():8} '
              f'{entry["duration"]:6.1f} s  {counts}')
        if counts.failed:
            counts.failures.append(f'{short(entry["name"])}: {reason(entry)}')
        total.add(counts)
        if counts.failed or counts.skipped:
            print(last_words(entry, 60 if counts.failed else 5))
    lost = len(chosen) - len(entries)
    if lost > 0:
        print(f'   {lost} binaries did not run')
        total.failed += lost
    total.append_to(args.counts)
    return 1 if total.failed else 0


if __name__ == '__main__':
    sys.exit(main())
