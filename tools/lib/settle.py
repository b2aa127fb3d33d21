"""Takes a part of a trace and moves its arrivals, so that no decision depends
on chance.

The public traces have ticks of 3 s. A server reads the short ones first of all
requests sent at once: their order is chance, not scheduling. So requests with
the same arrival time are spread evenly over the time until the next one.

A request that comes within a fraction of a millisecond of an instance's last
step goes to one or another instance by chance; with the caches then different,
so is every later decision. So the trace is simulated with several hand-over
times, and a request whose instance depends on them comes a little later.

usage: settle.py CONDUCTOR-REPLAY CLUSTER TRACE FROM REQUESTS POLICY SPEED
                 LENGTH_SCALE FOLDER

Writes FOLDER/trace.jsonl, and keeps its working files in FOLDER.
"""
import csv
import gzip
import itertools
import json
import os
import subprocess
import sys

HANDOVERS_MS = (0, 0.3, 0.6, 1, 2, 4, 8)
STEP_MS = 11  # real time, longer than the longest hand-over
STEPS = 12
ROUNDS = 400
FIELDS = ('prefill', 'reused_tokens', 'local_tokens')


class Simulation:
    def __init__(self, replay, cluster, policy, speed, scale, folder):
        self.command = [replay, 'simulate', '--policy', policy, '--speed',
                        speed, '--length-scale', scale]
        self.trace = os.path.join(folder, 'settle.jsonl')
        self.out = os.path.join(folder, 'settle.csv')
        self.clusters = []
        with open(cluster, encoding='utf-8') as f:
            description = json.load(f)
        cost = description['cost']
        cost['file'] = os.path.join(os.path.dirname(os.path.abspath(cluster)),
                                    cost['file'])
        for ms in HANDOVERS_MS:
            description['prefill']['handover_ms'] = ms
            path = os.path.join(folder, f'settle-{ms}.json')
            with open(path, 'w', encoding='utf-8') as f:
                json.dump(description, f)
            self.clusters.append(path)

    def decisions(self, cluster):
        subprocess.run(
            self.command + ['--trace', self.trace, '--cluster', cluster,
                            '--requests-csv', self.out],
            check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        with open(self.out, encoding='utf-8', newline='') as f:
            return [[row[k] for k in FIELDS] for row in csv.DictReader(f)]

    def first_chance(self, requests):
        """Returns the first request whose instance depends on the hand-over."""
        write(self.trace, requests)
        wanted = self.decisions(self.clusters[0])
        first = len(wanted)
        for cluster in self.clusters[1:]:
            for i, pair in enumerate(zip(wanted, self.decisions(cluster))):
                if pair[0] != pair[1]:
                    first = min(first, i)
                    break
        return first


def write(path, requests):
    with open(path, 'w', encoding='utf-8') as f:
        for request in requests:
            f.write(json.dumps(request) + '\n')


def settle(simulation, requests, speed):
    """Returns how many arrivals were moved, and the first request that still
    depends on chance (the number of requests = none)."""
    moved = set()
    first = simulation.first_chance(requests)
    for _ in range(ROUNDS):
        if first == len(requests):
            break
        for back in range(3):
            better = move(simulation, requests, first, first - back, speed)
            if better > first:
                moved.add(first - back)
                break
        else:
            break
        first = better
    return len(moved), first


def move(simulation, requests, first, i, speed):
    """Delays request i until `first` no longer depends on chance; puts it back
    if that does not help."""
    was = requests[i]['timestamp'] if i >= 0 else 0
    if i < 0:
        return first
    end = (requests[i + 1]['timestamp'] if i + 1 < len(requests)
           else was + 1000)
    for step in range(1, STEPS + 1):
        at = was + round(step * STEP_MS * speed)
        if at >= end:
            break
        requests[i]['timestamp'] = at
        better = simulation.first_chance(requests)
        if better > first:
            return better
    requests[i]['timestamp'] = was
    return first


def spread(path, first, count):
    """Returns the requests, with equal arrival times spread out."""
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
    return part


def main():
    (replay, cluster, trace, first, count, policy, speed, scale,
     folder) = sys.argv[1:]
    requests = spread(trace, int(first), int(count))
    simulation = Simulation(replay, cluster, policy, speed, scale, folder)
    moved, first = settle(simulation, requests, float(speed))
    write(os.path.join(folder, 'trace.jsonl'), requests)
    text = f'== moved {moved} of {len(requests)} arrivals away from a tie'
    if first < len(requests):
        text += f'; from request {first} on chance may decide'
    print(text)


if __name__ == '__main__':
    main()
