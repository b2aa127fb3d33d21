"""Compares the prefill instances of a live replay and its simulation: how many
requests have the same one, and the first request that does not.

usage: decisions.py LIVE.csv SIMULATED.csv

Both are requests CSVs of conductor-replay, of the same trace.
"""
import csv
import sys


def read(path):
    with open(path, encoding='utf-8', newline='') as f:
        return list(csv.DictReader(f))


def ms(row, field):
    return f'{1000 * float(row[field]):.1f} ms' if row[field] else '-'


def describe(row):
    return (f'{row["prefill"] or "nowhere"}, {row["reused_tokens"]} of '
            f'{row["prompt_tokens"]} tokens reused, queue {ms(row, "queue_s")}')


def main():
    live, simulated = read(sys.argv[1]), read(sys.argv[2])
    pairs = list(zip(live, simulated))
    other = [p for p in pairs if p[0]['prefill'] != p[1]['prefill']]
    print(f'decisions: {len(pairs) - len(other)} of {len(pairs)} the same')
    if not other:
        return
    first, second = other[0]
    print(f'the first other one: request {first["index"]}, at '
          f'{float(first["intended_s"]):.4f} s\n'
          f'  live       {describe(first)}\n'
          f'  simulated  {describe(second)}\n'
          'Behind it the caches hold other blocks, so what follows differs, '
          'too. It is a\ndifference in logic only if it comes back at the same '
          'request; else the machine\nstalled: repeat while it is idle, or '
          'replay more requests, so that one counts\nfor less.')


main()
