"""What size found, in words: for the terminal, and sentences of the report."""

import re
import textwrap

HOURS_A_MONTH = 730
# Fewer are too few for a verdict: chance alone (a standard error) moves a share
# of 95 % by 0.7 points with 1,000 requests, by 2.4 with 80.
REQUESTS_LEAST = 1000


def count(n, what, many=None):
    return f'{n:,} {what if n == 1 else many or what + "s"}'


def listed(parts):
    """Returns "a, b and c"; "none" of nothing."""
    return ' and '.join(filter(None, (', '.join(parts[:-1]), *parts[-1:]))
                        ) or 'none'


def money(price, currency):
    return f'{price:,.2f} {currency} an hour'


def asked(z):
    """The target: of requests, and of input tokens if asked for."""
    return f'{100 * z["target"]:.4g} % of requests' + (
        f' and {100 * z["token_target"]:.4g} % of input tokens'
        if z['token_target'] else '')


def slos(z):
    return f'TTFT within {z["slo_ttft_s"]:g} s' + (
        f', TBT within {z["slo_tbt_s"]:g} s' if z['slo_tbt_s'] > 0 else '')


def definitions(z):
    """What the terms mean, in a sentence each."""
    tbt = z['slo_tbt_s'] > 0
    return ('TTFT is the time from a request\'s arrival to its first token. ' +
            ('TBT is the time between two tokens of an answer: the mean of '
             'its longest 10 %. ' if tbt else '') +
            'An SLO is a limit on ' + ('either' if tbt else 'it') +
            '. A request is effective if it was completed within ' +
            ('both limits' if tbt else 'the limit') +
            '; one that was rejected is not.')


def doubts(z):
    """Why the trace is too small for a verdict; empty if it is not."""
    found, heaviest = [], z['longest_tokens'] / z['tokens']
    if z['requests'] < REQUESTS_LEAST:
        found.append(f'the trace has {z["requests"]:,}, fewer than '
                     f'{REQUESTS_LEAST:,}')
    if 0 < 1 - z['token_target'] < 1 and heaviest > 1 - z['token_target']:
        found.append(
            f'one alone has {100 * heaviest:.2g} % of the input tokens, and '
            f'{100 * (1 - z["token_target"]):.4g} % may miss the target')
    return ('too few requests for a verdict: ' + '; '.join(found)
            if found else '')


def reasons(result):
    """Returns [(number, why)] of the requests that are not effective."""
    return [(int(n), f'rejected ({why})') for n, why in re.findall(
        r'rejected: \S+ +(\d+)  (.*)', result['reasons'])] + [
        (n, what) for n, what in ((result['failed'], 'failed'),
                                  (result['late'], 'completed too late'))
        if n]


def shares(result):
    return (f'{100 * result["effective_ratio"]:.2f} % effective (of the input '
            f'tokens {100 * result["effective_token_ratio"]:.2f} %)')


def print_served(z, entry):
    """A cluster, its shares, its requests that are not effective, by reason,
    and the others."""
    r = entry['result']
    price = entry['price_per_hour']
    print(entry['name'] +
          (f', {money(price, z["currency"])}' if price is not None else '') +
          f', {shares(r)}\n  not effective: {r["rejected"]} rejected, '
          f'{r["failed"]} failed, {r["late"]} completed too late\n' +
          r['reasons'], end='')
    served = (r['input_tokens'] / r['offered_tokens']
              if r['offered_tokens'] else 0.0)
    print(f'  input tokens served: {100 * served:.1f} % of those offered')
    if r['ttft_s']:
        print(f'  p90 of completed requests: TTFT {r["ttft_s"]["p90"]:.3f} s' +
              (f', TBT {r["tbt_s"]["p90"]:.4f} s' if r['tbt_s'] else ''))


def best_of(entries):
    return max(entries, key=lambda e: e['result']['effective_ratio'])


def verdict(z, r):
    """Both shares beside their targets."""
    return (f'{100 * r["effective_ratio"]:.2f} % of requests (target '
            f'{100 * z["target"]:.4g} %) and '
            f'{100 * r["effective_token_ratio"]:.2f} % of input tokens ' +
            (f'(target {100 * z["token_target"]:.4g} %)'
             if z['token_target'] else '(no target)'))


def lost_text(z, loss):
    """What is left with a node lost."""
    if loss['result'] is None:
        return f'without {loss["what"]}: nothing is served'
    return (f'without {loss["what"]}: '
            f'{"meets" if loss["meets"] else "misses"} the target, '
            f'{verdict(z, loss["result"])}')


def load_text(curve):
    """Up to which load a cluster holds: on resampled traces, if there are,
    and on the trace itself."""
    if curve is None:
        return 'serves nothing'
    holds, fails, lowest, highest = (curve[k] for k in (
        'holds', 'fails', 'lowest', 'highest'))
    if holds is None:
        itself = f'misses the target at {fails:.3g} times the load already'
    elif fails is None:
        itself = f'holds at {holds:.3g} times the load, the most that was tried'
    else:
        itself = (f'holds up to {holds:.3g} times the load, and breaks at '
                  f'{fails:.3g}')
    parts = curve['holds_of_parts'][1:]
    if not parts:
        return itself
    ends = [f'less than {lowest:.3g}' if x == 0 else
            f'{x:.3g}' + (' or more' if x >= highest else '')
            for x in (min(parts), max(parts))]
    if holds is None and max(parts) == 0:
        return f'{itself}, as on {count(len(parts), "resampled trace")}'
    return (f'holds {" to ".join(dict.fromkeys(ends))} times the load on '
            f'{count(len(parts), "resampled trace")}; on the trace itself it '
            f'{itself}')


def print_plan(z, plan):
    for loss in plan['lost']:
        print('  ' + lost_text(z, loss))
    if 'capacity' in plan:
        print('  ' + load_text(plan['capacity']))
        print(f'  without {plan["worst_loss"]}, the loss that harms most: it ' +
              load_text(plan['lost_capacity']))


def tried_text(z):
    """What the search did."""
    if z['everything']:
        return (f'{z["simulated"]} sizes simulated, among them every split of '
                'every smaller number of nodes: none of these meets\nthe '
                'target')
    text = (f'{z["simulated"]} mixes simulated. A mix was left out if another '
            'one, with at least as many nodes of each kind\nand role, had '
            'missed the target')
    checked, met = z['checked'], z['contradicted']
    if checked == 0:
        return text + ('; none that could have been cheaper was'
                       if z['answer'] else '; none was')
    return (text + f'. To check that, {checked} of those left out '
            f'{"was" if checked == 1 else "were"} simulated, too: ' +
            (f'{met} met it. So more nodes are\nnot always better here, and a '
             'cheaper mix may exist' if met else
             f'{"it" if checked == 1 else "all"} missed it'))


def print_answer(z):
    answer = z['answer']
    if z['fixed']:
        print('the cluster as it is: ', end='')
    else:
        print('cheapest cluster: ' if z['priced'] else 'smallest cluster: ',
              end='')
    print_served(z, answer)
    if z['fixed']:
        print(f'{"meets" if answer["meets"] else "misses"} the target: '
              f'{verdict(z, answer["result"])}')
    else:
        print(f'meets the target: {verdict(z, answer["result"])}')
    print_plan(z, answer)
    if z['spare'] and z['spare']['mix'] != answer['mix']:
        print('cheapest with any one node lost: ', end='')
        print_served(z, z['spare'])
        print_plan(z, z['spare'])
    elif z['spare']:
        print('it is also the cheapest that meets the target with any one '
              'node lost')
    elif z['wants_spare']:
        print('none that was allowed meets the target with any one node lost')
    if not z['fixed'] and (z['below'] or not z['everything']):
        print(tried_text(z))
    totals = {}
    for entry in z['below']:
        totals.setdefault(entry['nodes'], []).append(entry)
    for nodes in sorted(totals, reverse=True):
        best = best_of(totals[nodes])
        print(f'  best with {best["name"]}, '
              f'{100 * best["result"]["effective_ratio"]:.2f} % (of the input '
              f'tokens {100 * best["result"]["effective_token_ratio"]:.2f} %)')


def hopeless_lines(z):
    """The requests that no number of nodes can serve in time."""
    if z['hopeless'] == 0:
        return []
    lines = [f'{z["hopeless"]} of {z["requests"]} requests miss an SLO on any '
             'number of nodes: each would miss it as the only request, with '
             'all that was seen before in a cache' +
             (f' (TTFT up to {z["hopeless_ttft_s"]:.3g} s)'
              if z['hopeless_ttft_s'] > 0 else '') +
             f'; the target allows {z["misses_max"]}']
    if z['token_target']:
        lines.append(
            f'they have {100 * z["hopeless_tokens"] / z["tokens"]:.2f} % '
            'of the input tokens; the target allows '
            f'{100 * (1 - z["token_target"]):.2f} %')
    return lines


def is_hopeless(z, of):
    """Whether requests that `of` (the kinds together, or one of them) cannot
    serve in time alone are more than the target allows."""
    return (of['hopeless'] > z['misses_max'] or
            of['hopeless_tokens'] > z['miss_tokens_max'])


def short_of(z, requests, tokens, most=''):
    """Both shares, and by how much each misses its target."""
    parts = []
    for share, target, what in ((requests, z['target'], 'requests'),
                                (tokens, z['token_target'], 'input tokens')):
        if target:
            points = 100 * (target - share)
            parts.append(f'{most}{100 * share:.2f} % of {what}, ' + (
                f'{points:.2f} points less than the target'
                if points > 0 else 'enough'))
    return '; '.join(parts)


def misses_of_kinds(z):
    """Returns a line for each kind: what its clusters miss alone."""
    lines = []
    for kind, entry in zip(z['kinds'], z['of_kinds']):
        if entry:
            r = entry['result']
            why = max(reasons(r), default=None)
            what = f'{entry["name"]} serve in time ' + short_of(
                z, r['effective_ratio'], r['effective_token_ratio']) + (
                    f'; most of the others: {why[1]}' if why else '')
        else:
            what = 'any number of nodes serves in time ' + short_of(
                z, 1 - kind['hopeless'] / z['requests'],
                1 - kind['hopeless_tokens'] / z['tokens'], 'at most ')
        lines.append(f'{kind["label"]} alone: {what}')
    return lines


def print_hopeless(z):
    for line in hopeless_lines(z):
        print(textwrap.fill(line, 100))


def print_misses(z):
    for line in misses_of_kinds(z):
        print(textwrap.fill(line, 100, subsequent_indent='  '))


def print_not_found(z):
    if not z['below']:
        print('no number of nodes will do, so none was simulated')
        print_hopeless(z)
        print_misses(z)
        return
    prefill, decode = z['most']
    print(f'none of the {z["simulated"]} '
          f'{"sizes" if z["everything"] else "mixes simulated"} up to '
          f'{prefill} prefill{"" if z["decodes"] else " (or coupled)"} nodes' +
          (f' and {decode} decode nodes' if z['decodes'] else '') + ' will do')
    print_hopeless(z)
    print(f'the {len(z["below"])} that got furthest were simulated to their '
          'ends; best of them: ', end='')
    print_served(z, best_of(z['below']))
    print_misses(z)


def print_found(z):
    kinds = z['kinds']
    print(f'{z["requests"]} requests at speed {z["speed"]:g} on nodes of '
          f'{", ".join(k["name"] for k in kinds)}, links of '
          f'{kinds[0]["link_gbps"]:g} Gbit/s, policy {z["policy"]};\n'
          f'{slos(z)}; target {asked(z)}')
    for kind in kinds:
        if kind['about']:
            print(textwrap.fill(f'  {kind["label"]}: {kind["about"]}', 100,
                                subsequent_indent='    '))
    if doubts(z):
        print(textwrap.fill(f'warning: {doubts(z)}', 100))
    if z['answer']:
        print_answer(z)
    else:
        print_not_found(z)


# The best split over time.

def mean_ttft_s(at):
    _, _, answered, ttft_s = at
    return ttft_s / answered if answered > 0 else 0.0


def split_text(split, at):
    prefill, decode = split
    requests, effective, *_ = at
    share = effective / requests if requests else 0.0
    return (f'{prefill:3} + {decode:<3} {100 * share:6.2f} % '
            f'effective, mean TTFT {mean_ttft_s(at):.3f} s')


def best_split(splits, numbers):
    """Returns the split that serves best, and its numbers: most effective
    requests, then the shortest mean TTFT, then the fewest prefill nodes."""
    return max(zip(splits, numbers),
               key=lambda one: (one[1][1], -mean_ttft_s(one[1])))


def print_over_time(of_splits, interval_s):
    splits, requests, effective = [s[:2] for s in of_splits], 0, 0
    print('from s   requests  best prefill + decode')
    for k, numbers in enumerate(zip(*(s[2] for s in of_splits))):
        split, at = best_split(splits, numbers)
        if at[0] == 0:
            continue
        start = f'{k * interval_s:.6g}'
        print(f'{start:<8} {at[0]:8}  {split_text(split, at)}')
        requests += at[0]
        effective += at[1]
    sums = [[sum(x) for x in zip(*s[2])] or [0, 0, 0, 0.0]
            for s in of_splits]
    print('the best of those that stay: ' + split_text(
        *best_split(splits, sums)))
    share = effective / requests if requests else 0.0
    print('the best of each interval together: '
          f'{100 * share:.2f} % effective')
