"""What size found, in words: for the terminal, and sentences of the report."""

HOURS_A_MONTH = 730


def count(n, what, many=None):
    return f'{n:,} {what if n == 1 else many or what + "s"}'


def listed(parts):
    """Returns "a, b and c"; "none" of nothing."""
    return ' and '.join(filter(None, (', '.join(parts[:-1]), *parts[-1:]))
                        ) or 'none'


def money(price):
    return f'{price:,.2f} an hour'


def asked(z):
    """The target: of requests, and of input tokens if asked for."""
    return f'{100 * z["target"]:.4g} % of requests' + (
        f' and {100 * z["token_target"]:.4g} % of input tokens'
        if z['token_target'] else '')


def slos(z):
    return f'TTFT within {z["slo_ttft_s"]:g} s' + (
        f', TBT within {z["slo_tbt_s"]:g} s' if z['slo_tbt_s'] > 0 else '')


def shares(result):
    return (f'{100 * result["effective_ratio"]:.2f} % effective (of the input '
            f'tokens {100 * result["effective_token_ratio"]:.2f} %)')


def print_served(entry):
    """A cluster, its shares, its requests that are not effective, by reason,
    and the others."""
    r = entry['result']
    price = entry['price_per_hour']
    print(entry['name'] + (f', {money(price)}' if price is not None else '') +
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
    """Up to which load a cluster holds, with the range over all parts."""
    if curve is None:
        return 'serves nothing'
    holds, fails, parts = (curve[k] for k in ('holds', 'fails',
                                              'holds_of_parts'))
    if holds is None:
        text = f'misses the target at {fails:.3g} times the load already'
    elif fails is None:
        text = f'holds at {holds:.3g} times the load, the most that was tried'
    else:
        text = (f'holds up to {holds:.3g} times the load, and breaks at '
                f'{fails:.3g}')
    least, most = min(parts[1:], default=0), max(parts[1:], default=0)
    if len(parts) == 1:
        return text
    if most == 0:
        return f'{text} (and so on {count(len(parts) - 1, "resampled trace")})'
    ends = ([] if least >= curve['highest'] else [f'{least:.3g}']) + [
        f'{most:.3g}' + (' or more' if most >= curve['highest'] else '')]
    return (f'{text} (over {count(len(parts) - 1, "resampled trace")}: '
            f'{" to ".join(ends)})')


def print_plan(z, plan):
    for loss in plan['lost']:
        print('  ' + lost_text(z, loss))
    if 'capacity' in plan:
        print('  ' + load_text(plan['capacity']))
        print('  with the node lost that harms most it ' +
              load_text(plan['lost_capacity']))


def tried_text(z):
    """What the search did."""
    if z['everything']:
        return (f'{z["simulated"]} sizes simulated, among them every split of '
                'every smaller number of nodes: none of these meets\nthe '
                'target')
    text = (f'{z["simulated"]} mixes simulated. A mix was left out if one of '
            'at least as many nodes of each kind\nand role missed the target; '
            f'of {z["checked"]} such mixes that were simulated all the same ')
    return text + (f'{z["contradicted"]} met it: more nodes\nare not always '
                   'better here, so a cheaper mix may exist'
                   if z['contradicted'] else 'none met it')


def print_answer(z):
    answer = z['answer']
    if z['fixed']:
        print('the cluster as it is: ', end='')
    else:
        print('cheapest cluster: ' if z['priced'] else 'smallest cluster: ',
              end='')
    print_served(answer)
    if z['fixed']:
        print(f'{"meets" if answer["meets"] else "misses"} the target: '
              f'{verdict(z, answer["result"])}')
    else:
        print(f'meets the target: {verdict(z, answer["result"])}')
    print_plan(z, answer)
    if z['spare'] and z['spare']['mix'] != answer['mix']:
        print('cheapest with any one node lost: ', end='')
        print_served(z['spare'])
        print_plan(z, z['spare'])
    elif z['spare']:
        print('it is also the cheapest that meets the target with any one '
              'node lost')
    elif z['wants_spare'] and not z['fixed']:
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


def hopeless_text(z):
    """The requests that no number of nodes can serve in time."""
    if z['hopeless'] == 0:
        return ''
    text = (f'{z["hopeless"]} of {z["requests"]} requests miss an SLO on any '
            'number of nodes: they do alone on idle ones, with\nall cached '
            'that came before' +
            (f' (TTFT up to {z["hopeless_ttft_s"]:.3g} s)'
             if z['hopeless_ttft_s'] > 0 else '') +
            f'; the target allows {z["misses_max"]}\n')
    if z['token_target']:
        text += (f'they have {100 * z["hopeless_tokens"] / z["tokens"]:.2f} % '
                 'of the input tokens; the target allows '
                 f'{100 * (1 - z["token_target"]):.2f} %\n')
    return text


def print_not_found(z):
    if not z['below']:
        print('no number of nodes will do, so none was simulated')
        print(hopeless_text(z), end='')
        return
    prefill, decode = z['most']
    print(f'none of the {z["simulated"]} '
          f'{"sizes" if z["everything"] else "mixes simulated"} up to '
          f'{prefill} prefill{"" if z["decodes"] else " (or coupled)"} nodes' +
          (f' and {decode} decode nodes' if z['decodes'] else '') + ' will do')
    print(hopeless_text(z), end='')
    print(f'the {len(z["below"])} that got furthest were simulated to their '
          'ends; best of them: ', end='')
    print_served(best_of(z['below']))


def print_found(z):
    kinds = z['kinds']
    print(f'{z["requests"]} requests at speed {z["speed"]:g} on nodes of '
          f'{", ".join(k["name"] for k in kinds)}, links of '
          f'{kinds[0]["link_gbps"]:g} Gbit/s, policy {z["policy"]};\n'
          f'{slos(z)}; target {asked(z)}')
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
