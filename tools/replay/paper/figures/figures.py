"""The Mooncake paper's figures for every trace; conductor-replay figures runs
it with PROGRAM COMMAND, and option=value for each of its options, checked."""

import os
import re
import sys

import chart
from shown import MTOKENS, SHOWN, TABLE_MTOKENS
from simulations import Failed, Simulator

def fail(message):
    sys.exit(f'conductor-replay figures: {message}')


class Run(Simulator):
    """A trace, and its current figure."""

    undrawn = False  # a picture is missing, and was reported

    def __init__(self, name, trace, options):
        requests = options['requests']
        part = (['--requests', requests] if requests != '0' else []) + (
            ['--skip-bad'] if 'skip-bad' in options else [])
        super().__init__(sys.argv[1], trace, options['clusters'], part,
                         int(options['jobs']) or os.cpu_count())
        self.name = name
        self.folder = os.path.join(options['out'], name)
        self.workload = next((w for w in ('conversation', 'toolagent',
                                          'synthetic') if w in name), None)
        self.facts = self.facts(MTOKENS + TABLE_MTOKENS)
        os.makedirs(self.folder, exist_ok=True)

    def path(self, ending):
        return os.path.join(self.folder, f'figure-{self.figure}{ending}')

    def row(self, *cells):
        self.rows.append(
            '| ' + ' | '.join(map(str, (self.name, *cells))) + ' |\n')

    def csv_row(self, *cells):
        self.csv.append(','.join(map(str, cells)) + '\n')

    def verdict(self, agrees, text):
        self.verdicts.append(f'- {self.name}: '
                             f'{"agrees" if agrees else "differs"}: {text}.\n')

    def show(self, figure, rows, verdicts):
        print(f'figure {figure} of {self.name}', file=sys.stderr)
        self.figure, self.rows, self.verdicts = figure, rows, verdicts
        self.csv = []
        title, drawn = SHOWN[figure](self)
        if title:
            with open(self.path('.csv'), 'w', encoding='utf-8') as f:
                f.writelines(self.csv)
            why = chart.draw(self.path('.svg'), f'{self.name}: {title}',
                             drawn)
        else:
            why = None if drawn else 'not drawn'
        if why and not Run.undrawn:
            print(f'{self.path(".svg")}: {why}', file=sys.stderr)
        Run.undrawn = Run.undrawn or why is not None


def figure_text(template, figure, runs):
    rows, verdicts = [], []
    for run in runs:
        try:
            run.show(figure, rows, verdicts)
        except Failed as why:
            fail(f'{run.trace}: figure {figure}: {why}')
    return template.format(
        rows=''.join(rows),
        verdicts='\n**Against the paper:**\n\n' + ''.join(verdicts)
        if verdicts else
        '\nThe paper has no such figure of any of these traces.\n',
        pictures=''.join(f'![{run.name}]({run.name}/figure-{figure}.svg)\n'
                         for run in runs))


def trace_row(run):
    t = run.facts
    return (f'| {run.name} | {t["requests"]} | {t["input_tokens"]["mean"]:.0f} '
            f'| {t["output_tokens"]["mean"]:.0f} | {t["span_s"]:.0f} s | '
            f'{t["best_possible_hit_ratio"]["tokens"]:.4f} |\n')


def main():
    options = dict(x.split('=', 1) for x in sys.argv[3:] if x)
    traces, out, only = (options.get(n) for n in ('traces', 'out', 'only'))
    try:
        found = [(f[:-len(ending)], os.path.join(traces, f))
                 for f in os.listdir(traces)
                 for ending in ('.jsonl', '.jsonl.gz')
                 if f.endswith(ending) and f != ending]
    except OSError as e:
        fail(f'--traces {traces}: {e.strerror}')
    if not found:
        fail(f'--traces {traces}: holds no *.jsonl or *.jsonl.gz')
    if not os.path.isdir(options['clusters']):
        fail(f'--clusters {options["clusters"]}: no such folder; outside of a clone, '
             'say where its traces/clusters are')
    try:
        runs = [Run(name, path, options) for name, path in sorted(found)]
    except Failed as why:
        fail(why)
    with open(os.path.join(os.path.dirname(__file__), 'RESULTS.md.in'),
              encoding='utf-8') as f:
        head, *figures = re.split(r'\n<!-- (\w+) -->\n', f.read()[:-1])
    with open(os.path.join(out, 'RESULTS.md'), 'w', encoding='utf-8') as f:
        requests = options['requests']
        f.write(head.format(
            requests='All requests of each trace.' if requests == '0' else
            f'Of each trace the first {requests} requests (`--requests`).',
            traces=''.join(map(trace_row, runs))))
        for figure, template in zip(figures[::2], figures[1::2]):
            if not only or figure in only.split(','):
                f.write(figure_text(template, figure, runs))
    return 1 if Run.undrawn else 0


if __name__ == '__main__':
    try:
        sys.exit(main())
    except OSError as e:
        fail(e)
