"""Counts of passed, failed and skipped tests, one JSON line a suite.

Run as a program it adds up a file of them and prints the last line of
tools/test; it fails if a test failed, if a suite left no line, or if nothing
ran.
"""
import argparse
import json
import sys
from dataclasses import dataclass


@dataclass
class Counts:
    """What one suite did; a skipped test keeps its reason."""
    passed: int = 0
    failed: int = 0
    skipped: int = 0

    def add(self, other):
        self.passed += other.passed
        self.failed += other.failed
        self.skipped += other.skipped

    def append_to(self, path):
        if path:
            with open(path, 'a', encoding='utf-8') as out:
                out.write(json.dumps(vars(self)) + '\n')

    def __str__(self):
        return (f'{self.passed} passed, {self.failed} failed, '
                f'{self.skipped} skipped')


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('file')
    parser.add_argument('--suites', type=int, required=True)
    args = parser.parse_args()

    total = Counts()
    with open(args.file, encoding='utf-8') as lines:
        suites = [Counts(**json.loads(line)) for line in lines]
    for counts in suites:
        total.add(counts)
    lost = args.suites - len(suites)
    if lost:
        print(f'{lost} suite(s) ended without a result')
        total.failed += lost
    nothing = not (total.passed or total.failed or total.skipped)
    if nothing:
        print('no test ran')
    print(total)
    return 1 if total.failed or nothing else 0


if __name__ == '__main__':
    sys.exit(main())
