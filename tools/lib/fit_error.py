"""Prints the cross-validated errors of a cost model.

Exits with 3 if a median is above the given percentage.
"""
import json
import sys


def main():
    path, limit = sys.argv[1], float(sys.argv[2])
    try:
        with open(path, encoding='utf-8') as file:
            model = json.load(file)
        parts = [(name, 100 * model[name]['median_rel_error'],
                  100 * model[name]['p95_rel_error'])
                 for name in ('prefill', 'decode')]
    except (OSError, ValueError, KeyError, TypeError) as error:
        sys.exit(f'{path}: {error}')
    print('cost model: cross-validated error ' + ', '.join(
        f'{name} median {median:.1f} % p95 {p95:.1f} %'
        for name, median, p95 in parts))
    return 3 if any(median > limit for _, median, _ in parts) else 0


if __name__ == '__main__':
    sys.exit(main())
