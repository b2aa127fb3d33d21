"""Results of tools/gpu-check: checks against limits, table, CSV, Markdown."""
import csv
import json
import os
from typing import NamedTuple

# Two measurements of the same thing may differ by this: "never slower".
NOISE = 1.02


class Check(NamedTuple):
    """One line of the verdict. value None = not measured."""
    what: str
    value: float | None
    limit: float
    at_least: bool
    note: str = ''

    @property
    def verdict(self):
        if self.value is None:
            return 'NOT MEASURED'
        good = self.value >= self.limit if self.at_least \
            else self.value <= self.limit
        return 'PASS' if good else 'FAIL'

    def as_dict(self):
        *numbers, note = self._asdict().items()
        return dict([*numbers, ('verdict', self.verdict), note])


def rows(benches, name, **where):
    """Returns the rows with these values, of benches named `name`..."""
    return [row for key, bench in benches.items() if key.startswith(name)
            for row in bench.get('rows', ())
            if all(row.get(k) == v for k, v in where.items())]


def worst(found, column, pick):
    values = [row[column] for row in found if row.get(column) is not None]
    return pick(values) if values else None


def limits(benches, stages):
    """Returns the checks of the project's targets for a card."""
    chunk = rows(benches, 'prefill', chunk=2048)
    cake = rows(benches, 'cake')
    hidden = rows(benches, 'layerwise', can_hide='yes')
    checks = [
        Check('prefill, 2,048-token chunks: share of the matrix product, '
              'worst chunk', worst([r for r in chunk if r['what'] == 'chunk'],
                                   'share', min), 0.60, True),
        Check('prefill, 2,048-token chunks: the same, whole prompt',
              worst([r for r in chunk if r['what'] == 'prompt'], 'share',
                    min), 0.60, True),
        Check('copy to the device: share of a plain copy', worst(
            rows(benches, 'copy', way='to_device'), 'share', min), 0.90,
            True),
        Check('copy to the host: share of a plain copy', worst(
            rows(benches, 'copy', way='to_host'), 'share', min), 0.90, True),
        Check('cake: time over the merge without loss, worst cell',
              worst(cake, 'to_ideal', max), 1.08, False,
              f'{len(cake)} cells'),
        Check('cake: time over the better single resource, worst cell',
              worst(cake, 'to_best', max), NOISE, False,
              'never slower; 2 % for the noise of a measurement'),
        Check('cake: cells with another answer', sum(
            row['same_answer'] != 'yes' for row in cake) if cake else None,
            0, False),
        Check('layerwise: layers of load that stay exposed, worst cell',
              worst(hidden, 'exposed_layers', max), 1.5, False,
              'cells whose layers load faster than they compute'),
    ]
    wrong = [row['wrong'] for row in rows(benches, 'modes')]
    checks.append(Check('greedy answers that differ between compute, load, '
                        'both and layerwise',
                        sum(wrong) if wrong else None, 0, False))
    for name, what in (('test', 'kernels against their CPU references'),
                       ('sanitizer', 'compute-sanitizer memcheck')):
        done = [s for s in stages if s['name'].startswith(name)]
        ran = [s for s in done if s['status'] in ('ok', 'FAIL')]
        checks.append(Check(
            what + ': runs that failed', sum(
                s['status'] == 'FAIL' for s in ran) if ran else None, 0,
            False, '; '.join(s['note'] for s in done if s['note'])))
    return checks


def number(value):
    if value is None:
        return '-'
    return f'{value:g}' if isinstance(value, int) else f'{value:.4g}'


def verdict_lines(checks, trial):
    """Yields the lines of the table for the terminal."""
    width = max(len(c.what) for c in checks)
    if trial:
        yield ('A trial judges no limit: its exit status is 0 when every stage '
               'got through.')
    for c in checks:
        sign = '>=' if c.at_least else '<='
        verdict = f'trial ({c.verdict})' if trial else c.verdict
        yield (f'{c.what:{width}}  {number(c.value):>9} {sign} '
               f'{number(c.limit):<5} {verdict}')


def write_csv(path, benches):
    """Writes all rows to one file; columns a bench does not have are empty."""
    found = [{'bench': bench['bench'], 'model': bench['facts'].get('model'),
              **row} for bench in benches.values()
             for row in bench.get('rows', ())]
    columns = list(dict.fromkeys(name for row in found for name in row))
    with open(path, 'w', newline='', encoding='utf-8') as f:
        out = csv.DictWriter(f, columns)
        out.writeheader()
        out.writerows(found)


def markdown_table(found):
    columns = list(found[0])
    yield '| ' + ' | '.join(columns) + ' |'
    yield '|' + '---|' * len(columns)
    for row in found:
        yield '| ' + ' | '.join(
            row[c] if isinstance(row[c], str) else number(row[c])
            for c in columns) + ' |'


def fit_lines(fit):
    yield f'## Fit of the profile\n\nBy {fit["by"]}.\n'
    for kind in ('prefill', 'decode'):
        q = fit.get(kind)
        yield (f'- {kind}: {q["points"]} points, relative error at points '
               f'not seen: median {100 * q["median_rel_error"]:.2f} %, '
               f'p95 {100 * q["p95_rel_error"]:.2f} %' if q else
               f'- {kind}: not fitted')
    yield ''


def markdown(result):
    """Yields the lines of a page for docs/internals/measurements."""
    trial = result['trial']
    if trial:
        yield ('# Trial of tools/gpu-check: no GPU figures\n\n'
               'This page shows what the script writes. Its figures are those '
               'of a CPU and of a small model; it is no measurement.\n')
    else:
        yield f'# GPU check: {result["device"]}\n'
    yield f'{result["date"]}, {result["processor"]}.'
    if not trial:
        yield (f'{result["device"]}, driver {result["driver"]}, CUDA {result["cuda"]}, '
               f'{result["memory"]} of memory.')
    yield (f'Source: {result["commit"]}. Took {result["seconds"]:.0f} s.\n\n'
           f'```\n{result["command"]}\n```\n\n'
           '| check | value | limit | verdict |\n|---|---|---|---|')
    for c in result['checks']:
        sign = 'at least' if c['at_least'] else 'at most'
        note = f' ({c["note"]})' if c['note'] else ''
        yield (f'| {c["what"]}{note} | {number(c["value"])} | {sign} '
               f'{number(c["limit"])} | '
               f'{"trial" if trial else c["verdict"]} |')
    yield '\n| stage | status | s | |\n|---|---|---|---|'
    for s in result['stages']:
        yield f'| {s["name"]} | {s["status"]} | {s["seconds"]} | {s["note"]} |'
    yield ''
    for name, bench in result['benches'].items():
        if not bench.get('rows'):
            continue
        facts = ', '.join(f'{k}: {v}' for k, v in bench['facts'].items())
        left_out = bench.get('left_out')
        yield f'## {name}\n\n{facts}.' + (
            f'\n{left_out} cells were left out for time or memory.\n'
            if left_out else '\n')
        yield from markdown_table(bench['rows'])
        yield ''
    if result.get('fit'):
        yield from fit_lines(result['fit'])


def write(folder, result):
    """Writes results.json, figures.csv and the page. Returns its path."""
    with open(os.path.join(folder, 'results.json'), 'w',
              encoding='utf-8') as f:
        json.dump(result, f, indent=1)
        f.write('\n')
    write_csv(os.path.join(folder, 'figures.csv'), result['benches'])
    page = os.path.join(folder, 'trial.md' if result['trial'] else
                        f'{result["date"][:10]}-gpu.md')
    with open(page, 'w', encoding='utf-8') as f:
        f.write('\n'.join(markdown(result)).rstrip() + '\n')
    return page
