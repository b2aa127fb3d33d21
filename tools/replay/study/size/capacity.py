"""The capacity curve of a cluster: what it does at other loads, with a band.

A load is a speed of the trace. The band is over traces made from the same
sessions: a session begins whenever one of the trace does, drawn at random
among those that began at about that time, so some come twice and some never.
"""
import collections
import gzip
import json
import os
from random import Random

# A block with more different blocks behind it is a prefix of many sessions.
BRANCHES = 8
# Sessions begin at the place of one at most this share of them away.
NEAR = 8
# Halvings of the interval in which the cluster breaks.
HALVINGS = 4
MEASURES = (('ttft_p50_s', 'ttft_s', 'p50'), ('ttft_p99_s', 'ttft_s', 'p99'),
            ('effective_ratio', 'effective_ratio', None),
            ('effective_token_ratio', 'effective_token_ratio', None))


class Part:
    """A trace to simulate: the whole one (path None), or one made of its
    sessions. speed: at which it asks for as many tokens a second."""

    def __init__(self, path, speed, starts):
        self.path, self.speed, self.starts = path, speed, starts


def read_requests(path, first, most):
    """Returns the trace's requests, without lines that are none."""
    found = []
    with open(path, 'rb') as f:
        zipped = f.read(2) == b'\x1f\x8b'
    with (gzip.open if zipped else open)(path, 'rb') as f:
        for line in f:
            if most and len(found) == first + most:
                break
            try:
                q = json.loads(line)
                if (q['input_length'] > 0 and q['timestamp'] >= 0 and
                        isinstance(q['hash_ids'], list)):
                    found.append(q)
            except (ValueError, TypeError, KeyError):
                continue
    return found[first:]


def session_parts(requests):
    """Returns for each request where its own blocks begin, behind those that
    many sessions share."""
    behind = collections.defaultdict(set)
    for q in requests:
        ids = q['hash_ids']
        for a, b in zip(ids, ids[1:]):
            if len(behind[a]) <= BRANCHES:
                behind[a].add(b)
    return [max((i + 1 for i, x in enumerate(q['hash_ids'])
                 if len(behind[x]) > BRANCHES), default=0) for q in requests]


def sessions_of(requests):
    """Returns the sessions, in order of their start: [(request, where its own
    blocks begin)]. They are told apart by the first block of their own."""
    found = {}
    for i, (q, own) in enumerate(zip(requests, session_parts(requests))):
        ids = q['hash_ids']
        key = ids[own] if own < len(ids) else ('alone', i)
        found.setdefault(key, []).append((q, own))
    return sorted(found.values(), key=lambda s: s[0][0]['timestamp'])


def resample(sessions, random):
    """Returns the requests of a trace with a session drawn for each."""
    last = max(q['timestamp'] for s in sessions for q, _ in s)
    reach = max(4, len(sessions) // NEAR)
    ids, made = 1 + max((x for s in sessions for q, _ in s
                         for x in q['hash_ids']), default=0), []
    for i, place in enumerate(sessions):
        low = min(max(0, i - reach), max(0, len(sessions) - 2 * reach - 1))
        drawn = sessions[random.randrange(
            low, min(len(sessions), low + 2 * reach + 1))]
        later = place[0][0]['timestamp'] - drawn[0][0]['timestamp']
        renamed = {}
        for q, own in drawn:
            at = q['timestamp'] + later
            if at > last:
                continue
            blocks = q['hash_ids'][:own]
            for x in q['hash_ids'][own:]:
                if x not in renamed:
                    renamed[x], ids = ids, ids + 1
                blocks.append(renamed[x])
            made.append(q | {'timestamp': at, 'hash_ids': blocks})
    return sorted(made, key=lambda q: q['timestamp'])


def tokens_per_s(requests):
    tokens = sum(q['input_length'] for q in requests)
    times = [q['timestamp'] for q in requests]
    return tokens / max(1, max(times) - min(times))


def parts(path, first, most, block_tokens, n, seed, folder):
    """Returns the whole trace and n others, written to the folder."""
    requests = read_requests(path, first, most)
    sessions = sessions_of(requests)
    found = [Part(None, 1.0, [s[0][0]['timestamp'] for s in sessions])]
    for i in range(n if len(sessions) > 1 else 0):
        made = resample(sessions, Random(f'{seed}/{i}'))
        name = os.path.join(folder, f'{i}.jsonl')
        with open(name, 'w', encoding='utf-8') as f:
            f.writelines(json.dumps(q, separators=(',', ':')) + '\n'
                         for q in made)
        found.append(Part(name, tokens_per_s(requests) / tokens_per_s(made),
                          []))
    return found


def case(z, mix, part, load, **more):
    more |= {'trace': part.path} if part.path else {}
    return z.case(mix, **more) | {'speed': z.speed * load * part.speed}


def breaks_at(z, mix, parts_of, loads, held):
    """Returns for each part (load that holds, load that does not), the first
    in order; None = there is none. held: {load: [whether it holds]}."""
    ends = []
    for i in range(len(parts_of)):
        bad = next((x for x in loads if not held[x][i]), None)
        good = [x for x in loads if held[x][i] and (bad is None or x < bad)]
        ends.append([good[-1] if good else None, bad])
    for _ in range(HALVINGS):
        asked = [(e, (e[0] + e[1]) / 2, p) for e, p in zip(ends, parts_of)
                 if None not in e]
        results = z.core.ask([case(z, mix, p, x, gives_up=True)
                              for _, x, p in asked])
        for (e, x, _), result in zip(asked, results):
            e[0 if z.meets(result) else 1] = x
    return ends


def curve(z, mix, parts_of, loads):
    """Returns the curve: rows of a load, each measure's value of the whole
    trace, and the least and most over all parts."""
    results = z.core.ask([case(z, mix, p, x) for x in loads for p in parts_of])
    rows, held = [], {}
    for i, load in enumerate(loads):
        of_load = results[i * len(parts_of):(i + 1) * len(parts_of)]
        held[load] = [z.meets(r) for r in of_load]
        row = {'load': load, 'meets': held[load][0],
               'meeting': sum(held[load])}
        for name, key, inner in MEASURES:
            values = [r[key] if inner is None else r[key] and r[key][inner]
                      for r in of_load]
            there = [v for v in values if v is not None]
            row[name] = values[0]
            row[f'{name}_least'] = min(there, default=None)
            row[f'{name}_most'] = max(there, default=None)
        rows.append(row)
    ends = breaks_at(z, mix, parts_of, loads, held)
    return {'rows': rows, 'holds': ends[0][0], 'fails': ends[0][1],
            'name': z.name(mix),
            'holds_of_parts': [good or 0.0 for good, _ in ends],
            'lowest': loads[0], 'highest': loads[-1]}


def as_csv(found):
    """A line for each load, of each cluster and of it with a node lost."""
    names = [f'{name}{end}' for name, *_ in MEASURES
             for end in ('', '_least', '_most')]
    lines = [','.join(['cluster', 'nodes_lost', 'load', 'meets', *names])]
    for which in ('answer', 'spare'):
        for lost, key in enumerate(('capacity', 'lost_capacity')):
            kept = found[which] and found[which].get(key)
            for row in kept['rows'] if kept else ():
                lines.append(','.join([
                    which, str(lost), f'{row["load"]:g}',
                    str(int(row['meets'])),
                    *('' if row[n] is None else f'{row[n]:.6f}'
                      for n in names)]))
    return '\n'.join(lines) + '\n'
