"""Writes a part of a trace to stdout, with the requests that share an arrival
time spread evenly over the time until the next one.

The public traces have ticks of 3 s. Of requests that are sent at once, a server
has read the short ones first: their order is chance, not scheduling.

usage: spread.py TRACE FROM REQUESTS
"""
import gzip
import itertools
import json
import sys


def main():
    path, first, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    opened = gzip.open if path.endswith('.gz') else open
    with opened(path, 'rt', encoding='utf-8') as f:
        lines = (line for line in f if line.strip())
        part = [json.loads(line)
                for line in itertools.islice(lines, first, first + count)]
    if not part:
        sys.exit(f'{path}: holds no request behind the first {first}')
    groups = [list(g) for _, g in
              itertools.groupby(part, lambda r: r['timestamp'])]
    gap = 1000
    for group, after in itertools.zip_longest(groups, groups[1:]):
        begin = group[0]['timestamp']
        gap = after[0]['timestamp'] - begin if after else gap
        for i, request in enumerate(group):
            request['timestamp'] = begin + gap * i // len(group)
            print(json.dumps(request))


main()
