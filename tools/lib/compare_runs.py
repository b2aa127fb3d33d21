"""Puts runs of one trace side by side, and draws them.

  compare_runs.py FOLDER POLICY...

Reads FOLDER/POLICY/report.json and requests.csv, and draws each as ttft.svg
beside them. Of several policies it prints a table, and writes its numbers to
FOLDER/compare.csv and a picture of them to FOLDER/compare.svg.
"""
import signal
signal.signal(signal.SIGINT, signal.SIG_DFL)  # ends without a traceback

import csv  # noqa: E402
import io  # noqa: E402
import json  # noqa: E402
import os  # noqa: E402
import sys  # noqa: E402

sys.path.append(os.path.join(os.path.dirname(os.path.dirname(
    os.path.abspath(__file__))), 'plot'))
sys.dont_write_bytecode = True
import chart  # noqa: E402
import draw  # noqa: E402


class Run:
    """One policy's run."""

    def __init__(self, folder, policy):
        self.policy = policy
        self.folder = os.path.join(folder, policy)
        with open(os.path.join(self.folder, 'report.json'),
                  encoding='utf-8') as file:
            self.text = file.read()
        with open(os.path.join(self.folder, 'requests.csv'),
                  encoding='utf-8') as file:
            requests = file.read()
        self.report = json.loads(self.text)
        self.text += '\n' + requests  # what draw.live() reads
        self.total = self.report['requests']['total']
        self.answered = self.report['requests']['completed']
        self.effective = self.report['slo']['effective_ratio']

    def ttft(self, what):
        return self.report['ttft_s'][what]

    def row(self):
        """Returns the row of the table `compare` of conductor-replay."""
        return {'policy': self.policy, 'speed': self.report['trace']['speed'],
                'nodes': 1, 'decode_nodes': 0, 'link_gbps': 0,
                'requests': self.total, 'answered': self.answered,
                'hit_ratio': self.report['prefix_hit_ratio'],
                'effective_ratio': self.effective,
                **{f'ttft_{p}_s': self.ttft(p)
                   for p in ('mean', 'p50', 'p90', 'p99')}}


def shown(value, scale, digits=1):
    """Returns a number as text; '-' where nothing was measured."""
    return '-' if value is None else f'{scale * value:.{digits}f}'


def print_table(runs):
    ttft_s, tbt_s = (runs[0].report['slo'][k] for k in ('ttft_s', 'tbt_s'))
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
effective: first token within {1000 * ttft_s:g} ms, each further one within \
{1000 * tbt_s:g} ms
''')


def csv_of(runs):
    out = io.StringIO()
    table = csv.DictWriter(out, list(runs[0].row()), lineterminator='\n')
    table.writeheader()
    for run in runs:
        table.writerow({name: '' if value is None else value
                        for name, value in run.row().items()})
    return out.getvalue()


def picture(path, kind, title, data):
    """Returns None, or why it is not drawn."""
    columns, *charts = kind(data, title)
    return chart.draw(path, title, charts, columns)


def main():
    folder, *policies = sys.argv[1:]
    runs = [Run(folder, policy) for policy in policies]
    trace = os.path.basename(runs[0].report['trace']['file'])
    title = f'{trace}, {runs[0].total} requests'
    why = None
    if len(runs) > 1:
        print_table(runs)
        sys.stdout.flush()
        data = csv_of(runs)
        with open(os.path.join(folder, 'compare.csv'), 'w',
                  encoding='utf-8') as file:
            file.write(data)
        why = picture(os.path.join(folder, 'compare.svg'), draw.compare, title,
                      data)
    for run in runs:
        why = why or picture(os.path.join(run.folder, 'ttft.svg'), draw.live,
                             f'{title}, policy {run.policy}', run.text)
    if why:
        print(f'pictures: {why}', file=sys.stderr)


if __name__ == '__main__':
    main()
