"""A small least-squares fit of profiles, for when conductor-fit is not built.

It uses the polynomials and weights of conductor-fit (relative error, medians
of repeats), but drops no terms and makes no checks: it shows how well a profile
can be fitted, and makes no cost model.
"""
import csv
import statistics


def read(path):
    """{'prefill': [(u, p, us)], 'decode': [(batch, kv, us)]}, medians."""
    points = {'prefill': {}, 'decode': {}}
    with open(path, encoding='utf-8') as f:
        for row in csv.DictReader(line for line in f
                                  if not line.startswith('#')):
            key = (int(row['uncached_tokens']), int(row['cached_tokens'])) \
                if row['kind'] == 'prefill' \
                else (int(row['batch']), int(row['kv_tokens']))
            points[row['kind']].setdefault(key, []).append(float(row['us']))
    return {kind: [(*key, statistics.median(us))
                   for key, us in sorted(found.items())]
            for kind, found in points.items()}


TERMS = {
    'prefill': lambda u, p: (1.0, u, u * u, u * p),
    'decode': lambda b, k: (1.0, b, k),
}


def solve(rows, right):
    """x of rows x = right, by elimination with pivots; None if singular."""
    n = len(right)
    a = [list(row) + [right[i]] for i, row in enumerate(rows)]
    for i in range(n):
        pivot = max(range(i, n), key=lambda r: abs(a[r][i]))
        if abs(a[pivot][i]) < 1e-300:
            return None
        a[i], a[pivot] = a[pivot], a[i]
        for r in range(n):
            if r != i:
                factor = a[r][i] / a[i][i]
                a[r] = [x - factor * y for x, y in zip(a[r], a[i])]
    return [a[i][n] / a[i][i] for i in range(n)]


def fit(kind, points):
    """Returns coefficients with the least squared relative error, or None."""
    scaled = [[t / us for t in TERMS[kind](a, b)] for a, b, us in points]
    # Scale the columns alike: the square of thousands of tokens is large.
    size = [max(abs(row[j]) for row in scaled) or 1.0
            for j in range(len(scaled[0]))]
    x = [[t / s for t, s in zip(row, size)] for row in scaled]
    n = len(size)
    solved = solve([[sum(row[i] * row[j] for row in x) for j in range(n)]
                    for i in range(n)], [sum(row[i] for row in x)
                                         for i in range(n)])
    return [c / s for c, s in zip(solved, size)] if solved else None


def quality(kind, points):
    """Returns errors at points left out of the fit, one by one; None = none."""
    errors = []
    for i, (a, b, us) in enumerate(points):
        found = fit(kind, points[:i] + points[i + 1:])
        if found is None:
            continue
        predicted = sum(c * t for c, t in zip(found, TERMS[kind](a, b)))
        errors.append(abs(predicted - us) / us)
    errors.sort()
    if not errors:
        return None
    return {'points': len(points), 'median_rel_error':
            statistics.median(errors),
            'p95_rel_error': errors[min(len(errors) - 1,
                                        int(0.95 * len(errors)))]}


def fit_quality(path):
    """{'prefill': {...}, 'decode': {...}} of a profile."""
    return {kind: quality(kind, points) if len(points) > 5 else None
            for kind, points in read(path).items()}
