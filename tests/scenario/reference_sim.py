"""The reference calculation of TTFT by policy, straight from its conventions.

Shares no code and no data structure with the simulator: an ordered dictionary
a node, floating-point seconds, no events. Written from the definitions (see
docs/internals/decisions/031-slow-motion.md for the conventions); it gives the published
reference values of the conversation trace to their last digit.

usage: reference_sim.py TRACE [NODES [SPEED]]
"""
import collections
import gzip
import json
import sys

POLICIES = 'round_robin', 'least_loaded', 'local_cache', 'global_cache'

LAYERS, D, A, B = 80, 8192, 4, 22
FLOPS_PER_S = 8 * 312e12 * 0.5
KV_BYTES = 327680
BYTES_PER_S = 100e9
BLOCK = 512


def flops(n):
    return LAYERS * (A * n * n * D + B * n * D * D)


def prefill_s(n, p):
    return (flops(n) - flops(p)) / FLOPS_PER_S


class Node:
    def __init__(self, capacity_tokens):
        self.capacity = capacity_tokens // BLOCK
        self.ready_s = collections.OrderedDict()  # block: when; oldest first
        self.free_s = 0.0

    def match(self, ids, now=None):
        """Leading blocks that are here; with `now`, that are ready."""
        n = 0
        for block in ids:
            if block not in self.ready_s:
                break
            if now is not None and self.ready_s[block] > now:
                break
            n += 1
        return n

    def take(self, ids, end_s):
        for block in ids:
            if block in self.ready_s:
                self.ready_s.move_to_end(block)
                continue
            self.ready_s[block] = end_s
            if len(self.ready_s) > self.capacity:
                self.ready_s.popitem(last=False)


def plan(nodes, policy, turn, ids, n, now):
    """The chosen node, the blocks that it reuses, and the transfer time."""
    def cost(blocks):
        return prefill_s(n, min(BLOCK * blocks, n))

    wait = [max(0.0, node.free_s - now) for node in nodes]
    local = [node.match(ids) for node in nodes]
    every = range(len(nodes))
    if policy == 'round_robin':
        i = turn % len(nodes)
        return i, local[i], 0.0
    if policy == 'least_loaded':
        i = min(every, key=lambda j: wait[j])
        return i, local[i], 0.0
    if policy == 'local_cache':
        i = min(every, key=lambda j: wait[j] + cost(local[j]))
        return i, local[i], 0.0
    best = max(node.match(ids, now) for node in nodes)
    choices = []
    for j in every:
        blocks = max(best, local[j])
        transfer = (blocks - local[j]) * BLOCK * KV_BYTES / BYTES_PER_S
        choices.append((transfer + wait[j] + cost(blocks), j, blocks,
                        transfer))
    _, i, blocks, transfer = min(choices)
    return i, blocks, transfer


def read(path):
    opener = gzip.open if path.endswith('.gz') else open
    with opener(path, 'rt', encoding='utf-8') as file:
        return [json.loads(line) for line in file if line.strip()]


def percentile(ordered, share):
    rank = share * (len(ordered) - 1)
    low = int(rank)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (rank - low) * (ordered[high] - ordered[low])


def simulate(requests, policy, n_nodes=16, speed=1.0,
             capacity_tokens=3_000_000):
    nodes = [Node(capacity_tokens) for _ in range(n_nodes)]
    ttft, reused, total = [], 0, 0
    for turn, request in enumerate(requests):
        now = request['timestamp'] / 1000 / speed
        n, ids = request['input_length'], request['hash_ids']
        i, blocks, transfer = plan(nodes, policy, turn, ids, n, now)
        hit = min(BLOCK * blocks, n)
        begin = max(now, nodes[i].free_s, now + transfer)
        end = begin + prefill_s(n, hit)
        nodes[i].free_s = end
        nodes[i].take(ids, end)
        ttft.append(end - now)
        reused += hit
        total += n
    ttft.sort()
    return {'mean': sum(ttft) / len(ttft), 'p50': percentile(ttft, 0.5),
            'p99': percentile(ttft, 0.99), 'hit': reused / total}


def main():
    requests = read(sys.argv[1])
    nodes = int(sys.argv[2]) if len(sys.argv) > 2 else 16
    speed = float(sys.argv[3]) if len(sys.argv) > 3 else 1.0
    for policy in POLICIES:
        got = simulate(requests, policy, nodes, speed)
        print(f'{policy:14}', *(f'{k} {v:.6f}' for k, v in got.items()))


if __name__ == '__main__':
    main()
