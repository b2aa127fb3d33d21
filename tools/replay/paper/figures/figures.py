"""The Mooncake paper's figures for every trace; conductor-replay figures runs
it with checked arguments: PROGRAM TRACES OUT CLUSTERS ONLY REQUESTS SKIP JOBS
(ONLY may be empty, REQUESTS 0, SKIP 0 or 1)."""

import os
import sys

import charts
from shown import MTOKENS, TABLE_MTOKENS
from simulations import Failed, Simulator
from table import FIGURES

HEAD = """# The Mooncake paper's figures, from the simulator

`conductor-replay figures` wrote this page. The numbers come from its \
simulations, with
the daemon's own scheduling code. Times are those of the described cluster, \
not of the
machine that simulates. The clusters are in `traces/clusters/`;
`traces/DESIGN.md` describes the format of traces.

The numbers decide whether a result agrees with the paper: a percentage agrees \
within
5 points. A trace stands for the workload in its name. Nothing is said of a \
trace
without such a name, or where the paper has no number for the workload.

%s Admission: `plain`, which rejects only where a
request asks for an SLO; requests ask for one only under "Goodput".

| trace | requests | mean input | mean output | over | best hit ratio (tokens) |
|---|---|---|---|---|---|
"""


def fail(message):
    sys.exit(f'conductor-replay figures: {message}')


class Run(Simulator):
    """A trace, and the figure of it that is being shown."""

    undrawn = False  # a picture is missing, and it was said

    def __init__(self, name, trace, args):
        _, program, _, out, clusters, _, requests, skip, jobs = args
        part = (['--requests', requests] if requests != '0' else []) + (
            ['--skip-bad'] if skip == '1' else [])
        super().__init__(program, trace, clusters, part,
                         int(jobs) or os.cpu_count())
        self.name, self.folder = name, os.path.join(out, name)
        self.workload = next((w for w in ('conversation', 'toolagent',
                                          'synthetic') if w in name), None)
        self.facts = self.facts(MTOKENS + TABLE_MTOKENS)
        os.makedirs(self.folder, exist_ok=True)

    def path(self, ending):
        return os.path.join(self.folder, f'figure-{self.figure.id}{ending}')

    def row(self, *cells):
        print('|', ' | '.join(map(str, (self.name, *cells))), '|',
              file=self.table)

    def csv_row(self, *cells):
        self.csv.append(','.join(map(str, cells)) + '\n')

    def verdict(self, agrees, text):
        self.verdicts.append(f'- {self.name}: '
                             f'{"agrees" if agrees else "differs"}: {text}.\n')

    def show(self, figure, table, verdicts):
        print(f'figure {figure.id} of {self.name}', file=sys.stderr)
        self.figure, self.table, self.verdicts = figure, table, verdicts
        self.csv = []
        title, drawn = figure.show(self)
        if title:
            with open(self.path('.csv'), 'w', encoding='utf-8') as f:
                f.writelines(self.csv)
            why = charts.draw(self.path('.svg'), f'{self.name}: {title}',
                              drawn)
        else:
            why = None if drawn else 'not drawn'
        if why and not Run.undrawn:
            print(f'{self.path(".svg")}: {why}', file=sys.stderr)
        Run.undrawn = Run.undrawn or why is not None


def write_figure(f, figure, runs):
    verdicts = []
    print(f'\n## {figure.title}\n\n**Paper:** {figure.paper}\n\n'
          f'**Simulated:** {figure.setup}\n\n| trace | {figure.header}\n'
          f'|---|{"---|" * figure.header.count("|")}', file=f)
    for run in runs:
        try:
            run.show(figure, f, verdicts)
        except Failed as why:
            fail(f'{run.trace}: figure {figure.id}: {why}')
    print('\n**Against the paper:**\n\n' + ''.join(verdicts) if verdicts else
          '\nThe paper has no such figure of any of these traces.\n', end='',
          file=f)
    print(f'\n**On the method:** {figure.notes}\n', file=f)
    for run in runs:
        print(f'![{run.name}]({run.name}/figure-{figure.id}.svg)', file=f)


def main():
    traces, out, only = sys.argv[2], sys.argv[3], sys.argv[5].split(',')
    found = [(f[:-len(ending)], os.path.join(traces, f))
             for f in os.listdir(traces) for ending in ('.jsonl', '.jsonl.gz')
             if f.endswith(ending) and f != ending]
    try:
        runs = [Run(name, path, sys.argv) for name, path in sorted(found)]
    except Failed as why:
        fail(why)
    with open(os.path.join(out, 'RESULTS.md'), 'w', encoding='utf-8') as f:
        requests = sys.argv[6]
        f.write(HEAD % ('All requests of each trace.' if requests == '0' else
                        f'Of each trace the first {requests} requests '
                        '(`--requests`).'))
        for run in runs:
            t = run.facts
            print(f'| {run.name} | {t["requests"]} | '
                  f'{t["input_tokens"]["mean"]:.0f} | '
                  f'{t["output_tokens"]["mean"]:.0f} | {t["span_s"]:.0f} s | '
                  f'{t["best_possible_hit_ratio"]["tokens"]:.4f} |', file=f)
        for figure in FIGURES:
            if only == [''] or figure.id in only:
                write_figure(f, figure, runs)
    return 1 if Run.undrawn else 0


if __name__ == '__main__':
    try:
        sys.exit(main())
    except OSError as e:
        fail(e)
