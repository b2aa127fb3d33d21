"""Prints what conductor-replay size found: size.py "" "" <RESULT.

RESULT is JSON with exact numbers: of the search, or of every split over time.
"""
import json
import sys

from script import printed


def nodes_of(case):
    p, d = case['prefill'], case['decode']
    if d > 0:
        return f'{p + d} nodes: {p} prefill and {d} decode (P/D {p / d:.2f})'
    return f'{p} {"coupled" if case["coupled"] else "prefill"} nodes'


def print_served(case):
    """The size, its shares, its requests that are not effective, by reason,
    and the others."""
    print(f'{nodes_of(case)}, {100 * case["effective_ratio"]:.2f} % effective '
          f'(of the input tokens {100 * case["effective_token_ratio"]:.2f} %)\n'
          f'  not effective: {case["rejected"]} rejected, {case["failed"]} '
          f'failed, {case["late"]} completed too late\n' + case['reasons'],
          end='')
    offered = case['offered_tokens']
    served = case['input_tokens'] / offered if offered else 0.0
    print(f'  input tokens served: {100 * served:.1f} % of those offered')
    if case['ttft_p90_s'] >= 0:
        print('  p90 of completed requests: TTFT '
              f'{case["ttft_p90_s"]:.3f} s' +
              (f', TBT {case["tbt_p90_s"]:.4f} s'
               if case['tbt_p90_s'] >= 0 else ''))


def best_of(cases):
    return max(cases, key=lambda c: c['effective_ratio'])


def print_found(z):
    first, *below = z['ended']
    print('smallest cluster: ', end='')
    print_served(first)
    if below:
        print(f'{z["simulated"]} sizes simulated: every split of every smaller '
              'number of nodes; none meets the target')
    totals = {}
    for case in below:
        totals.setdefault(case['prefill'] + case['decode'], []).append(case)
    for cases in totals.values():
        best = best_of(cases)
        print(f'  best with {nodes_of(best)}, '
              f'{100 * best["effective_ratio"]:.2f} %')


def print_hopeless(z):
    """The requests that no number of nodes can serve in time."""
    if z['hopeless'] > 0:
        print(f'{z["hopeless"]} of {z["requests"]} requests miss an SLO on any '
              'number of nodes: they do alone on idle ones, with\nall cached '
              'that came before' +
              (f' (TTFT up to {z["hopeless_ttft_s"]:.3g} s)'
               if z['hopeless_ttft_s'] > 0 else '') +
              f'; the target allows {z["misses_max"]}')


def print_not_found(z):
    if not z['ended']:
        print('no number of nodes will do, so none was simulated')
        print_hopeless(z)
        return
    decodes = z['decode_max'] > 0
    print(f'none of the {z["simulated"]} sizes up to {z["prefill_max"]} '
          f'prefill{"" if decodes else " (or coupled)"} nodes' +
          (f' and {z["decode_max"]} decode nodes' if decodes else '') +
          ' will do')
    print_hopeless(z)
    print(f'the {len(z["ended"])} that got furthest were simulated to their '
          'ends; best of them: ', end='')
    print_served(best_of(z['ended']))


def print_search(z):
    print(f'{z["requests"]} requests at speed {z["speed"]:g} on nodes of '
          f'{z["cluster"]}, links of {z["link_gbps"]:g} Gbit/s, policy '
          f'{z["policy"]};\nTTFT within {z["slo_ttft_s"]:g} s' +
          (f', TBT within {z["slo_tbt_s"]:g} s' if z['slo_tbt_s'] > 0 else '') +
          f'; target {100 * z["target"]:.4g} %')
    if z['found']:
        print_found(z)
    else:
        print_not_found(z)


def mean_ttft_s(at):
    _, _, answered, ttft_s = at
    return ttft_s / answered if answered > 0 else 0.0


def split_text(split, at):
    requests, effective, *_ = at
    share = effective / requests if requests else 0.0
    return (f'{split["prefill"]:3} + {split["decode"]:<3} {100 * share:6.2f} % '
            f'effective, mean TTFT {mean_ttft_s(at):.3f} s')


def best(splits, numbers):
    """Returns the split that serves best, and its numbers: most effective
    requests, then the shortest mean TTFT, then the fewest prefill nodes."""
    return max(zip(splits, numbers),
               key=lambda one: (one[1][1], -mean_ttft_s(one[1])))


def print_over_time(o):
    splits, requests, effective = o['splits'], 0, 0
    print('from s   requests  best prefill + decode')
    for k, numbers in enumerate(zip(*(s['intervals'] for s in splits))):
        split, at = best(splits, numbers)
        if at[0] == 0:
            continue
        start = f'{k * o["interval_s"]:.6g}'
        print(f'{start:<8} {at[0]:8}  {split_text(split, at)}')
        requests += at[0]
        effective += at[1]
    sums = [[sum(x) for x in zip(*s['intervals'])] or [0, 0, 0, 0.0]
            for s in splits]
    print('the best of those that stay: ' + split_text(*best(splits, sums)))
    share = effective / requests if requests else 0.0
    print('the best of each interval together: '
          f'{100 * share:.2f} % effective')


def main():
    result = json.load(sys.stdin)
    if 'splits' in result:
        print_over_time(result)
    else:
        print_search(result)


if __name__ == '__main__':
    sys.exit(printed(main))
