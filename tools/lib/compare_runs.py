"""Puts runs of one trace side by side.

  compare_runs.py FOLDER LIMIT_S POLICY...

Reads FOLDER/POLICY/report.json and requests.csv, prints a table, and writes its
numbers to FOLDER/compare.csv and a picture of them to FOLDER/compare.svg.
"""
import csv
import json
import os
import signal
import subprocess
import sys

DRAW = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))),
                    'plot', 'draw.py')


class Run:
    """One policy's run. A request is effective if it was answered, its first
    token came within limit_s, and its others within the report's limit."""

    def __init__(self, folder, policy, limit_s):
        self.policy = policy
        with open(os.path.join(folder, policy, 'report.json'),
                  encoding='utf-8') as file:
            self.report = json.load(file)
        with open(os.path.join(folder, policy, 'requests.csv'),
                  encoding='utf-8') as file:
            rows = list(csv.DictReader(file))
        self.total = self.report['requests']['total']
        self.answered = self.report['requests']['completed']
        tbt_s = self.report['slo']['tbt_s']
        effective = sum(row['outcome'] == 'completed' and
                        float(row['ttft_s']) <= limit_s and
                        float(row['tbt_s'] or 0) <= tbt_s for row in rows)
        self.effective = effective / self.total if self.total else 0

    def ttft(self, what):
        return self.report['ttft_s'][what]

    def row(self):
        """Returns the row of the table `compare` of conductor-replay."""
        return {'policy': self.policy, 'speed': self.report['trace']['speed'],
                'nodes': 1, 'decode_nodes': 0, 'link_gbps': 0,
                'requests': self.total, 'answered': self.answered,
                'hit_ratio': self.report['prefix_hit_ratio'],
                'effective_ratio': f'{self.effective:.6f}',
                **{f'ttft_{p}_s': self.ttft(p)
                   for p in ('mean', 'p50', 'p90', 'p99')}}


def shown(value, scale, digits=1):
    """Returns a number as text; '-' where nothing was measured."""
    return '-' if value is None else f'{scale * value:.{digits}f}'


def print_table(runs, limit_s):
    tbt_s = runs[0].report['slo']['tbt_s']
    print(f'''
{'requests':>26}{'prefix':>9}{'TTFT (ms)':>17}{'effective':>12}
policy{'answered':>20}{'hits':>9}{'mean':>9}{'p99':>8}{'requests':>12}''')
    for run in runs:
        answered = f'{run.answered} of {run.total}'
        print(f'{run.policy:14}{answered:>12}'
              f'{shown(run.report["prefix_hit_ratio"], 100):>7} %'
              f'{shown(run.ttft("mean"), 1000):>9}'
              f'{shown(run.ttft("p99"), 1000):>8}'
              f'{shown(run.effective, 100):>10} %')
    best = shown(runs[0].report['best_possible_hit_ratio'], 100)
    print(f'''
prefix hits: prompt tokens found in a cache; {best} % if no cache ever forgot
effective: first token within {1000 * limit_s:g} ms, each further one within \
{1000 * tbt_s:g} ms
''')


def write_csv(path, runs):
    with open(path, 'w', encoding='utf-8', newline='') as file:
        table = csv.DictWriter(file, list(runs[0].row()), lineterminator='\n')
        table.writeheader()
        for run in runs:
            table.writerow({name: '' if value is None else value
                            for name, value in run.row().items()})


def draw(data, picture, title):
    """Returns whether it was drawn: without matplotlib there is no picture."""
    with open(data, 'rb') as given, open(picture, 'wb') as drawn:
        done = subprocess.run([sys.executable, '-B', DRAW, 'compare', title],
                              stdin=given, stdout=drawn, check=False)
    if done.returncode:
        os.remove(picture)
    return done.returncode == 0


def main():
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # ends without a traceback
    folder, limit_s, policies = sys.argv[1], float(sys.argv[2]), sys.argv[3:]
    runs = [Run(folder, policy, limit_s) for policy in policies]
    print_table(runs, limit_s)
    data = os.path.join(folder, 'compare.csv')
    write_csv(data, runs)
    trace = os.path.basename(runs[0].report['trace']['file'])
    if not draw(data, os.path.join(folder, 'compare.svg'),
                f'{trace}, {runs[0].total} requests'):
        print(f'no picture: Python\'s matplotlib is missing; its numbers are '
              f'in {data}', file=sys.stderr)


if __name__ == '__main__':
    main()
