"""Draws what a program measured, as SVG: draw.py KIND TITLE <DATA >PICTURE.

KIND is one of KINDS. DATA is what the program also writes as report or CSV: a
JSON object if the kind takes one, then tables with an empty line between them.
Exits with 3 if matplotlib is missing.
"""
import csv
import io
import itertools
import json
import math
import signal
import sys

import chart
from chart import (ABOVE, CROSSES, CURVE, DOTS, LINE, STAIRS, Chart)


def rows_of(text):
    return list(csv.DictReader(io.StringIO(text)))


def column(rows, name):
    """Returns a column's numbers; NaN where none was measured."""
    return [float(r[name] or 'nan') for r in rows]


def both_of(text):
    """Splits JSON with a table behind it."""
    facts, end = json.JSONDecoder().raw_decode(text)
    return facts, rows_of(text[end:].lstrip())


def grouped(rows, *names):
    """Returns {values of the columns: rows}, in the order of the rows."""
    groups = {}
    for row in rows:
        groups.setdefault(tuple(row[n] for n in names), []).append(row)
    return groups


def mean(rows, name):
    values = [x for x in column(rows, name) if not math.isnan(x)]
    return sum(values) / len(values) if values else math.nan


def live(text, title):
    """TTFT over time, its distribution, predicted over observed TTFT."""
    report, rows = both_of(text)
    floor_s = 1e-4  # of logarithmic axes: nothing is faster
    answered = [r for r in rows if r['outcome'] == 'completed' and r['ttft_s']]
    ttft = [max(x, floor_s) for x in column(answered, 'ttft_s')]
    slo = report['slo']
    lost = [(f'{kind} ({len(some)})', [], ABOVE, column(some, 'intended_s'))
            for kind in ('rejected', 'failed')
            if (some := [r for r in rows if r['outcome'] == kind])]
    yield 3
    yield Chart('TTFT of completed requests', 'sent at (s)', 'TTFT (s)', (),
                [('completed', ttft, DOTS, column(answered, 'intended_s')),
                 *lost], log='y',
                rules=[(f'SLO {slo["ttft_s"]:g} s', 'y', slo['ttft_s'])]
                if slo['asked'] else [])
    times = sorted(ttft)
    yield Chart('Distribution', 'TTFT (s)', 'share of requests',
                times[:1] + times,
                [(None, [i / len(times) for i in range(len(times) + 1)]
                  if times else [], STAIRS)], log='x', y_range=(0, 1),
                rules=[(f'{p} {report["ttft_s"][p]:.3g} s', 'x',
                        report['ttft_s'][p])
                       for p in ('p50', 'p99') if times])
    told = [r for r in answered if r['predicted_ttft_s'] and r['send_lag_s']]
    if told:
        # From the real sending on: the server cannot know of a lag before it.
        observed = [max(t - lag, floor_s) for t, lag in zip(
            column(told, 'ttft_s'), column(told, 'send_lag_s'))]
        yield Chart('Prediction, from the real sending on',
                    'TTFT observed (s)', 'TTFT predicted (s)', observed,
                    [(None, [max(x, floor_s)
                             for x in column(told, 'predicted_ttft_s')],
                      DOTS)], log='xy', square=True,
                    rules=[('as observed', 'xy', 1)])


def stats(text, title):
    """LRU hit ratio over capacity, popularity over rank, reuse gaps."""
    facts, rows = both_of(text)
    best = facts['best_possible_hit_ratio']['blocks']
    gap_s = facts['reuse_gap_s']['p50']
    yield 3
    yield Chart('One LRU cache', 'capacity (M tokens)', 'hit ratio (blocks)',
                column(rows, 'mtokens'),
                [('LRU', column(rows, 'hit_ratio'), CURVE)], log='x',
                y_range=(0, best), rules=[(f'infinite: {best:.4f}', 'y', best)])
    yield Chart('Popularity of blocks', 'rank', 'touches',
                column(rows, 'rank'),
                [(None, column(rows, 'touches'), STAIRS)], log='xy')
    yield Chart('Time until a block comes back', 'gap (s)', 'share of reuses',
                column(rows, 'gap_s'),
                [(None, column(rows, 'share'), CURVE)], log='x',
                rules=[(f'p50 {gap_s:.0f} s', 'x', gap_s)])


# Rows of frames of `compare`: column, name, logarithmic axis.
COMPARED = [('ttft_mean_s', 'mean TTFT (s)', 'y'),
            ('ttft_p99_s', 'p99 TTFT (s)', 'y'),
            ('hit_ratio', 'prefix hit ratio', ''),
            ('effective_ratio', 'effective requests', ''),
            ('goodput_per_s', 'goodput (requests/s)', '')]


def compare(text, title):
    """Over speeds, with a column for each cluster; with one speed over nodes,
    or over links if the number of nodes is fixed; bars for one cluster."""
    rows = rows_of(text)
    for r in rows:
        r['size'] = r['nodes'] + (f'+{r["decode_nodes"]}'
                                  if r['decode_nodes'] != '0' else '')
    policies = [name for name, in grouped(rows, 'policy')]
    speeds, nodes, links = (len(grouped(rows, n))
                            for n in ('speed', 'nodes', 'link_gbps'))
    if speeds == nodes == links == 1:
        yield 2
        ttft = {p: f'ttft_{p}_s' for p in ('mean', 'p50', 'p90', 'p99')}
        short = max(mean(rows, c) for c in ttft.values()) < 10
        for name, label, scale, shown in (
                ('TTFT', 'ms' if short else 'seconds', 1000 if short else 1,
                 ttft),
                ('Shares', '%', 100, {'prefix hits': 'hit_ratio',
                                      'effective requests':
                                      'effective_ratio'})):
            yield Chart(name, '', label, (), [
                (p, [scale * mean(some, c) for c in shown.values()])
                for (p,), some in grouped(rows, 'policy').items()],
                groups=list(shown), key=name == 'Shares')
        return
    along, label = (('speed', 'speed') if speeds > 1 else
                    ('link_gbps', 'link (Gbit/s)') if nodes == 1 else
                    ('nodes', 'prefill nodes'))
    across = ([n for n in ('link_gbps', 'size') if n != along]
              if speeds > 1 else
              [] if nodes == 1 else ['link_gbps'])
    columns = grouped(rows, *across)
    yield len(columns)
    for name, y_label, log in COMPARED:
        seen = [x for some in grouped(rows, 'policy', 'speed', 'size',
                                      'link_gbps').values()
                if (x := mean(some, name)) > 0]
        for i, part in enumerate(columns.values()):
            one = part[0]
            head = (f'{one["size"]} nodes' if along != 'nodes' else
                    f'speed {one["speed"]}')
            if links > 1 and along != 'link_gbps':
                head += f', {one["link_gbps"]} Gbit/s'
            yield Chart(head, label, y_label, (), [
                (p, [mean(at, name) for at in points.values()], LINE,
                 [float(x) for x, in points])
                for p in policies
                if (points := grouped([r for r in part if r['policy'] == p],
                                      along))],
                log=log, whole=along == 'nodes', key=i + 1 == len(columns),
                y_range=(min(seen), max(seen)) if seen else ())


def fit(text, title):
    """Predicted over measured, for prefill and for decode steps."""
    yield 2
    for (part, median, p95), rows in grouped(
            rows_of(text), 'part', 'median_percent', 'p95_percent').items():
        yield Chart(f'{part}: {len(rows)} points, cross-validated error: '
                    f'median {median} %, p95 {p95} %', 'measured (ms)',
                    'predicted (ms)', column(rows, 'measured_ms'),
                    [(None, column(rows, 'predicted_ms'), DOTS)], log='xy',
                    square=True, rules=[('exact', 'xy', 1),
                                        ('10 % off', 'xy', 1.1),
                                        (None, 'xy', 1 / 1.1)])


def cake(text, title):
    """Predicted over published speed-ups; a colour for a machine and model."""
    machines = grouped(rows_of(text), 'hardware', 'model')
    yield 2
    for over, name in (('loading', 'speedup_io'),
                       ('computing', 'speedup_compute')):
        yield Chart(f'over {over} alone', 'speed-up, published',
                    'speed-up, predicted', (), [
                        (', '.join(machine), column(rows, f'predicted_{name}'),
                         DOTS, column(rows, name))
                        for machine, rows in machines.items()],
                    log='xy', square=True, key=over == 'computing',
                    rules=[('as published', 'xy', 1)])


def cake_adaptive(text, title):
    """How long each order takes, over the link's bandwidth."""
    rows = rows_of(text)
    yield 2
    for name, shown in (
            ('all prompts done, simulated', 'done_s'),
            ('short prompts, mean time to the first token',
             'short_ttft_mean_s')):
        yield Chart(name, 'Gbit/s', 'seconds', (),
                    [(order, column(some, shown)) for (order,), some in
                     grouped(rows, 'order').items()],
                    groups=[x for x, in grouped(rows, 'bandwidth_gbps')])


def cake_fluctuation(text, title):
    """Times of each way over seeds; both pointers of the first seed."""
    runs, course = map(rows_of, text.split('\n\n'))
    yield 2
    yield Chart('time to the first token, simulated', 'seed', 'seconds',
                column(runs, 'seed'), [
                    (name, column(runs, shown)) for name, shown in (
                        ('computed', 'compute_s'), ('loaded', 'load_s'),
                        ('split as planned', 'split_s'),
                        ('both until met', 'cake_s'), ('ideal', 'ideal_s'))],
                whole=True)
    yield Chart('where both are, first seed', 'seconds', 'token of the prompt',
                column(course, 'at_s'),
                [(f'{x} up to' if x == 'computed' else f'{x} down to',
                  column(course, f'{x}_tokens')) for x in ('computed',
                                                           'loaded')])


KINDS = {f.__name__: f for f in (live, stats, compare, fit, cake,
                                 cake_adaptive, cake_fluctuation)}


def main():
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # ends without a traceback
    _, kind, title = sys.argv
    title = title.encode(errors='surrogateescape').decode(errors='replace')
    text = sys.stdin.buffer.read().decode(errors='replace')
    columns, *charts = KINDS[kind](text, title)
    why = chart.draw(sys.stdout.buffer, title, charts, columns)
    return 3 if why else 0


if __name__ == '__main__':
    sys.exit(main())
