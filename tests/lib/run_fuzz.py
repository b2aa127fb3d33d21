"""Runs every libFuzzer target of a build for some seconds each, one on each of
the processors at a time.

What a target finds to be new goes to the build folder; the corpus in the
repository (tests/fuzz/corpus/NAME) is only read.
"""
import argparse
import concurrent.futures
import glob
import os
import re
import subprocess
import sys

from counts import Counts
from progress import Progress

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(
    os.path.abspath(__file__))))


def run_target(build, program, seconds):
    """Returns (whether nothing was found, one line of what it did)."""
    name = program.removeprefix('fuzz_')
    found = os.path.join(build, 'corpus', name)
    os.makedirs(found, exist_ok=True)
    command = [os.path.join(build, 'tests', 'fuzz', program), found]
    seeds = os.path.join(ROOT, 'tests', 'fuzz', 'corpus', name)
    if os.path.isdir(seeds):
        command.append(seeds)
    command += [f'-max_total_time={seconds}', '-timeout=60',
                '-rss_limit_mb=2048', '-print_final_stats=1',
                f'-artifact_prefix={build}/{name}-']
    log = os.path.join(build, name + '.log')
    with open(log, 'wb') as out:
        status = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=out,
                                stderr=subprocess.STDOUT,
                                check=False).returncode
    with open(log, encoding='utf-8', errors='replace') as text:
        said = text.read()
    execs = re.search(r'stat::number_of_executed_units: (\d+)', said)
    if status == 0 and execs:
        return True, f'{execs.group(1)} inputs'
    return False, '\n'.join([f'exit {status}, see {log}',
                             *said.splitlines()[-30:]])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('build')
    parser.add_argument('seconds', type=int)
    parser.add_argument('--filter', default='')
    parser.add_argument('--counts')
    args = parser.parse_args()

    counts = Counts()
    folder = os.path.join(args.build, 'tests', 'fuzz')
    programs = sorted(
        os.path.basename(f) for f in glob.glob(os.path.join(folder, 'fuzz_*'))
        if os.access(f, os.X_OK) and os.path.isfile(f) and
        args.filter in os.path.basename(f))
    print(f'== fuzz: {len(programs)} targets, {args.seconds} s each',
          flush=True)
    pool = concurrent.futures.ThreadPoolExecutor(os.cpu_count())
    found = [pool.submit(run_target, args.build, p, args.seconds)
             for p in programs]
    progress = Progress(len(programs))
    for program, target in zip(programs, found):
        progress.running = [p for p, t in zip(programs, found) if t.running()]
        progress.show()
        good, words = target.result()
        progress.done += 1
        progress.clear()
        counts.passed += good
        counts.failed += not good
        if not good:
            counts.failures.append(f'{program}: {words.splitlines()[0]}')
        print(f'   {program:24} {"ok" if good else "FAIL":8} {words}',
              flush=True)
    counts.append_to(args.counts)
    return 1 if counts.failed else 0


if __name__ == '__main__':
    sys.exit(main())
