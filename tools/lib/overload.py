"""The computing part of `tools/agree --loads`.

usage: overload.py workers CLUSTER
       overload.py traces CLUSTER TRACE LENGTH_SCALE SECONDS LOADS FOLDER
       overload.py table CONDUCTOR-REPLAY CLUSTER POLICY LENGTH_SCALE SLO_S
                         LOADS FOLDER JSON

`workers` prints name, role and options of each worker of the cluster file.
`traces` writes FOLDER/LOAD/trace.jsonl for each load, with as many requests of
the trace as take SECONDS at that load, and FOLDER/LOAD/speed. `table` simulates
each load with three seeds, and compares the live results with the simulated.

A load is the least time that the prefill workers need, if each prefix is
computed only once, divided by the time in which the requests arrive.
"""
import csv
import itertools
import json
import math
import os
import subprocess
import sys

import settle

SEEDS = (1, 2, 3)
# Limits for a server in overload.
REJECTED_WITHIN_S, ACCEPTED_WITHIN, GOODPUT_KEPT = 0.010, 0.95, 0.95


def read_json(path):
    with open(path, encoding='utf-8') as f:
        return json.load(f)


def speeds(cluster):
    """Returns the speeds of all nodes: prefill, then decode."""
    n = cluster['prefill']['nodes'] + cluster['decode']['nodes']
    given = cluster.get('node_speed', [])
    return given + [1] * (n - len(given))


def workers(path):
    cluster = read_json(path)
    prefill = cluster['prefill']['nodes']
    sigmas = ' '.join(
        f'--{role}-error-sigma {cluster.get(f"{role}_error_sigma", 0):g}'
        for role in ('prefill', 'decode'))
    for i, speed in enumerate(speeds(cluster)):
        role, k = ('prefill', i) if i < prefill else ('decode', i - prefill)
        print(f'{role}-{k} {role} --engine-speed {speed:g} {sigmas}')


def work_s(requests, cost, scale):
    """Yields the total work (s) up to each request, on a node of speed 1."""
    seen, total = set(), 0
    for request in requests:
        n, block = max(request['input_length'] // scale, 1), 512 // scale
        blocks = request['hash_ids'][:(n - 1) // block]
        cached = block * sum(1 for _ in itertools.takewhile(seen.__contains__,
                                                            blocks))
        seen.update(request['hash_ids'])
        u = n - cached
        total += sum(c * x for c, x in zip(cost, (1, u, u * u, u * cached)))
        yield total / 1e6


def traces(path, trace, scale, seconds, loads, folder):
    cluster = read_json(path)
    cost = read_json(os.path.join(os.path.dirname(path),
                                  cluster['cost']['file']))
    requests = settle.spread(trace, 0, 10 ** 6)
    work = list(work_s(requests, cost['prefill']['coefficients_us'],
                       int(scale)))
    power = sum(speeds(cluster)[:cluster['prefill']['nodes']])
    for load in loads.split(','):
        wanted = float(load) * float(seconds) * power
        n = next((i for i, s in enumerate(work) if s > wanted), len(work))
        if n < 2 or n == len(work):
            sys.exit(f'{trace}: {len(work)} requests are {work[-1]:.0f} s of '
                     f'work; a load of {load} for {seconds} s needs '
                     f'{wanted:.0f}')
        at = os.path.join(folder, load)
        os.makedirs(at, exist_ok=True)
        settle.write(os.path.join(at, 'trace.jsonl'), requests[:n])
        span = requests[n - 1]['timestamp'] - requests[0]['timestamp']
        with open(os.path.join(at, 'speed'), 'w', encoding='utf-8') as f:
            f.write(f'{span / 1e3 / float(seconds):.9g}\n')


def percentile(values, share):
    values = sorted(values)
    return values[math.ceil(share * len(values)) - 1] if values else math.nan


def judge(path, slo_s):
    """Returns the statistics of a CSV file of requests."""
    with open(path, encoding='utf-8', newline='') as f:
        rows = list(csv.DictReader(f))
    answered = [r for r in rows if r['outcome'] == 'completed']
    refused = [r for r in rows if r['outcome'] == 'rejected']
    ttft = [float(r['ttft_s']) for r in answered]
    good = sum(t <= slo_s for t in ttft)
    prompt = sum(int(r['prompt_tokens']) for r in answered)
    return {
        'requests': len(rows),
        'failed': len(rows) - len(answered) - len(refused),
        'rejected': len(refused) / len(rows),
        'goodput_per_s': good / float(rows[-1]['intended_s']),
        'good': good / len(rows),
        'accepted_in_time': good / max(len(answered), 1),
        'ttft_mean_s': sum(ttft) / max(len(ttft), 1),
        'ttft_p50_s': percentile(ttft, 0.5),
        'ttft_p90_s': percentile(ttft, 0.9),
        'hits': sum(int(r['reused_tokens']) for r in answered) / max(prompt, 1),
        # From the real sending: the server has no part in the client's lag.
        'rejected_p99_s': percentile(
            [float(r['total_s']) - float(r['send_lag_s'] or 0)
             for r in refused if r['total_s']], 0.99)}


def simulate(replay, cluster, policy, scale, slo, folder):
    """Returns means over the seeds: no seed draws the same errors as the
    workers, whose request numbers differ."""
    with open(os.path.join(folder, 'speed'), encoding='utf-8') as f:
        speed = f.read().strip()
    out = os.path.join(folder, 'simulated.csv')
    runs = []
    for seed in SEEDS:
        subprocess.run(
            [replay, 'simulate', '--trace', os.path.join(folder, 'trace.jsonl'),
             '--cluster', cluster, '--policy', policy, '--speed', speed,
             '--length-scale', scale, '--slo-ttft', slo, '--seed', str(seed),
             '--requests-csv', out], check=True, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL)
        runs.append(judge(out, float(slo)))
    return {k: sum(r[k] for r in runs) / len(runs) for k in runs[0]}


def show(load, of, x):
    rejected = x['rejected_p99_s']
    print(f'{load:>5} {of:<9} {x["requests"]:8.0f} {100 * x["rejected"]:7.1f}% '
          f'{1e3 * rejected:9.1f} ' if of == 'live' and rejected == rejected
          else f'{load:>5} {of:<9} {x["requests"]:8.0f} '
               f'{100 * x["rejected"]:7.1f}% {"-":>9} ', end='')
    print(f'{x["goodput_per_s"]:9.2f} {100 * x["good"]:7.1f}% '
          f'{100 * x["accepted_in_time"]:8.1f}% {1e3 * x["ttft_mean_s"]:8.0f} '
          f'{1e3 * x["ttft_p50_s"]:8.0f} {1e3 * x["ttft_p90_s"]:8.0f} '
          f'{100 * x["hits"]:6.1f}%')


def verdicts(results):
    """Prints the verdicts on the highest load. Returns whether all hold."""
    last = max(results, key=float)
    live = results[last]['live']
    kept = live['goodput_per_s'] / max(
        r['live']['goodput_per_s'] for r in results.values())
    failed = sum(r['live']['failed'] for r in results.values())
    late_ms = 1e3 * live['rejected_p99_s']
    all_hold = True
    print(f'\nlive, at {last} times the capacity:')
    for holds, text in (
            (not late_ms > 1e3 * REJECTED_WITHIN_S,
             f'rejections are answered within {late_ms:.1f} ms at p99 '
             f'(wanted: {1e3 * REJECTED_WITHIN_S:g})'),
            (live['accepted_in_time'] >= ACCEPTED_WITHIN,
             f'{100 * live["accepted_in_time"]:.1f} % of the accepted are '
             f'within the SLO (wanted: {100 * ACCEPTED_WITHIN:g})'),
            (kept >= GOODPUT_KEPT,
             f'goodput is {100 * kept:.1f} % of the best at any load '
             f'(wanted: {100 * GOODPUT_KEPT:g})'),
            (failed == 0, f'{failed} requests failed at all loads together')):
        print(f'  {"holds " if holds else "MISSED"}  {text}')
        all_hold = all_hold and holds
    return all_hold


def table(replay, cluster, policy, scale, slo, loads, folder, path):
    results = {}
    print(f'\n{"load":>5} {"":9} {"":8} {"":8} {"p99 of":>9} {"goodput":>9} '
          f'{"":8} {"accepted":>9} {"TTFT":>8} {"(ms)":>8} {"":8}\n'
          f'{"":5} {"":9} {"requests":>8} {"rejected":>8} {"429, ms":>9} '
          f'{"per s":>9} {"good":>8} {"in time":>9} {"mean":>8} {"p50":>8} '
          f'{"p90":>8} {"hits":>7}')
    for load in loads.split(','):
        at = os.path.join(folder, load)
        results[load] = {
            'live': judge(os.path.join(at, 'requests.csv'), float(slo)),
            'simulated': simulate(replay, cluster, policy, scale, slo, at)}
        for of, numbers in results[load].items():
            show(load, of, numbers)
    if path:
        with open(path, 'w', encoding='utf-8') as f:
            json.dump({'policy': policy, 'slo_ttft_s': float(slo),
                       'loads': results}, f, indent=1, sort_keys=True)
            f.write('\n')
    return 0 if verdicts(results) else 1


def main():
    command, *args = sys.argv[1:]
    return {'workers': workers, 'traces': traces, 'table': table}[command](*args)


sys.exit(main())
