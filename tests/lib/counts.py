"""Counts of passed, failed and skipped tests, one JSON line a suite.

Run as a program it adds up a file of them and prints the last lines of
tools/test: "failed: NAME: why" for each failure, "passed alone: NAME: why" for
each case that failed only beside others, then the sum. It fails if a test failed, if a suite left no line, or if nothing
ran.
"""
import argparse
import json
import sys
from dataclasses import dataclass, field


@dataclass
class Counts:
    """What one suite did; a skipped test keeps its reason."""
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    failures: list = field(default_factory=list)  # "NAME: why"
    alone: list = field(default_factory=list)  # the same

    def add(self, other):
        self.passed += other.passed
        self.failed += other.failed
        self.skipped += other.skipped
        self.failures += other.failures
        self.alone += other.alone

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
    for failure in total.failures:
        print(f'failed: {failure}')
    for failure in total.alone:
        print(f'passed alone: {failure}')
    print(total)
    return 1 if total.failed or nothing else 0


if __name__ == '__main__':
    sys.exit(main())
