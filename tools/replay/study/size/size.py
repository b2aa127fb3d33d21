"""conductor-replay size: the cheapest cluster that a trace needs under SLOs.

Simulations are those of PROGRAM size-run, which reads the trace and the kinds
of nodes, and answers questions: an array of cases, a line of JSON.
"""
import csv
import io
import json
import os
import re
import subprocess
import sys
import tempfile

import capacity
import chart
import report
import words
from mixes import Search, Space, Spare, TooMany
from script import (Ended, Fields, Refused, Runner, Script, json_text,
                    read_file, read_json, run)

CLUSTER_MAX_BYTES = 64 * 1024
# What kinds of one cluster may differ in: the rest of their files is equal.
OF_A_KIND = {'name', 'about', 'cost', 'price_per_hour', 'currency',
             'price_source', 'source', 'prefill.nodes', 'prefill.device', 'prefill.host',
             'prefill.disk', 'decode.nodes', 'decode.kv_tokens',
             'decode.max_batch', 'coupled.nodes', 'coupled.kv_tokens',
             'coupled.max_batch'}
# What a file with several kinds of its own has.
SEVERAL = 'prefill.groups', 'decode.groups', 'coupled.groups', \
    'coupled.pairs', 'node_speed'
PASSED = 'trace', 'from', 'requests', 'skip-bad', 'jobs', 'policy-option'
CASES_MAX = 1 << 16  # simulations of one question
# Members of a simulation's result that are kept.
KEPT = ('gave_up', 'judged', 'effective_ratio', 'effective_token_ratio',
        'rejected', 'failed', 'reasons', 'input_tokens', 'offered_tokens',
        'prefix_hit_ratio', 'intervals')
SUMMARY = 'mean', 'p50', 'p90', 'p99'
# Clusters simulated to their ends if none meets the target.
FURTHEST = 8
# Totals of nodes below the answer whose splits are simulated to their ends.
TOTALS_BELOW = 3
SLACK = 1e-12
MISSING = ("not drawn, Python's matplotlib is missing: install Debian's "
           'python3-matplotlib')


def without_comments(data):
    """Replaces // comments, which cluster files may have."""
    return re.sub(rb'("(?:\\.|[^"\\\n])*")|//[^\n]*',
                  lambda m: m[1] or b'', data)


def flat(members, where=''):
    """Returns {path: value} of an object and the objects in it."""
    found = {}
    for name, value in members.items():
        path = where + name
        if isinstance(value, dict) and path not in OF_A_KIND:
            found |= flat(value, path + '.')
        else:
            found[path] = value
    return found


class Kind:
    """A cluster file as a kind of node; C has checked its other fields."""

    def __init__(self, path):
        self.path = path
        self.label = re.sub(r'\.json$', '', os.path.basename(path))
        members = read_json(path, without_comments(read_file(
            path, CLUSTER_MAX_BYTES, 'is too large for a cluster file')))
        fields = Fields(path, members)
        self.price = members.get('price_per_hour') and fields.number(
            'price_per_hour', 1e-6, 1e9)
        self.about, self.source, self.price_source, self.currency = (
            fields.text(name, most) if name in members else None
            for name, most in (('about', 1000), ('source', 1000),
                               ('price_source', 1000), ('currency', 32)))
        model = members.get('model')
        self.block_tokens = (model.get('block_tokens')
                             if isinstance(model, dict) else None)
        self.flat = flat(members)

    def check_beside(self, first):
        """Refuses what cannot be in a cluster with the first kind."""
        for name in SEVERAL:
            if name in self.flat:
                raise Refused(f'{self.path}: {name}: a kind of node that is '
                              'mixed with others must have equal nodes')
        if self.price is None:
            raise Refused(f'{self.path}: price_per_hour: missing: kinds of '
                          'nodes are compared by price')
        if self.currency != first.currency:
            a, b = (json.dumps(k.currency) if k.currency else 'missing'
                    for k in (first, self))
            raise Refused(f'{self.path}: currency: {b}: is {a} in '
                          f'{first.path}: prices are compared')
        for name in sorted(first.flat.keys() | self.flat.keys()):
            if name in OF_A_KIND:
                continue
            a, b = (json.dumps(k.flat[name]) if name in k.flat else 'missing'
                    for k in (first, self))
            if a != b:
                raise Refused(f'{self.path}: {name}: {b}: is {a} in '
                              f'{first.path}: kinds of nodes in one cluster '
                              'may differ in cost, memory, batch and price')


def files_of(path, only):
    """Returns the cluster files of --nodes and --kinds."""
    if not os.path.isdir(path):
        if only:
            raise Refused(f'--kinds {only}: {path} is not a folder')
        return [path]
    known = sorted(f[:-5] for f in os.listdir(path) if f.endswith('.json'))
    if not known:
        raise Refused(f'{path}: has no file of a kind of node, NAME.json')
    names = only.split(',') if only else known
    for i, name in enumerate(names):
        if name not in known:
            raise Refused(f'--kinds {name or only}: {path} has '
                          f'{", ".join(known)}')
        if name in names[:i]:
            raise Refused(f'--kinds {name}: comes twice')
    return [os.path.join(path, f'{name}.json') for name in names]


class Core:
    """Surveys the trace and simulates clusters of kinds of nodes."""

    def __init__(self, command, files):
        options = command.options
        self.files, self.seed = files, int(options['seed'])
        self.speed = float(options['speed'])
        self.interval_s = float(options.get('interval', 0))
        self.changes = {name: float(options[name]) for name in (
            'link-gbps', 'cache-tokens') if name in options}
        self.asked = {'policy': options['policy'], 'slo_ttft_s': float(
            options['slo-ttft']), 'slo_tbt_s': float(options.get('slo-tbt', 0))}
        self.runner = Runner(command.program, 'size-run', options, PASSED,
                             '--policies', options['policy'])
        self.facts = None

    def answer(self, question):
        answer = self.runner.ask(question)
        if 'error' in answer:
            raise Refused(answer['error'])
        return answer

    def survey(self, target, token_target):
        """Returns what the trace and the kinds of nodes are, and how many
        requests and tokens may miss an SLO before a case is given up."""
        self.runner.read()
        facts = self.answer(self.asked | {'kinds': [
            {'cluster': path, 'changes': self.changes}
            for path in self.files]})
        self.facts = facts | self.asked | {
            'target': target, 'token_target': token_target,
            'misses_max': int((1 - target) * facts['requests'] + 1e-6),
            'miss_tokens_max': int((1 - token_target) * facts['tokens'] +
                                   1e-6)}
        return self.facts

    def question(self, case):
        """Returns a case as a question: the nodes of other kinds, as groups,
        come before those of the first."""
        nodes, facts = case['nodes'], self.facts
        totals = [sum(n[role] for n in nodes) for role in (0, 1)]
        changes = self.changes | {'prefill': totals[0]} | (
            {'decode': totals[1]} if facts['kinds'][0]['decode'] else {})
        return self.asked | {
            'cluster': self.files[0], 'changes': changes, 'seed': self.seed,
            'groups': [[path, role == 1, n[role]]
                       for path, n in zip(self.files[1:], nodes[1:])
                       for role in (0, 1) if n[role]],
            'speed': case['speed'], 'interval_s': self.interval_s,
            'effective_ttft_s': self.asked['slo_ttft_s'],
            'effective_tbt_s': self.asked['slo_tbt_s']} | (
            {name: facts[name] for name in ('misses_max', 'miss_tokens_max')}
            if case.get('gives_up') else {}) | (
            {'source': {'path': case['trace']}} if 'trace' in case else {})

    def ask(self, cases):
        """Returns the cases' results, in order."""
        if len(cases) > CASES_MAX:
            raise Refused('size-run: a question must have 1 to '
                          f'{CASES_MAX} cases')
        return [r if r['gave_up'] else {name: r[name] for name in KEPT} | {
            'late': r['completed'] - r['effective']} | {
            name: r[name] and {x: r[name][x] for x in SUMMARY}
            for name in ('ttft_s', 'tbt_s')}
            for r in self.answer([self.question(case) for case in cases])]

    def end(self):
        return self.runner.end()


class Sizing:
    """The search, and what is simulated of its result."""

    def __init__(self, core, facts, kinds, options):
        self.core, self.facts, self.kinds = core, facts, kinds
        self.speed = float(options['speed'])
        first = facts['kinds'][0]
        self.coupled = first['coupled']
        self.decodes = first['decode'] > 0
        roles = [0, 1] if self.decodes else [0]
        self.priced = all(k.price is not None for k in kinds)
        self.currency = kinds[0].currency or 'price units'
        dims = [(k, role, round(kind.price * 1e6) if self.priced else 1)
                for role in roles for k, kind in enumerate(kinds)]
        most = (int(options['max-prefill']),
                int(options['max-decode']) if self.decodes else 0)
        self.space = Space(dims, most)
        self.results = {}  # mix: its result, simulated to its end
        self.judged = {}
        self.search = Search(self.space, self.ask, len(kinds) == 1,
                             at_once=max(4, int(options.get('jobs') or
                                                os.cpu_count() or 1)))

    # What is simulated.

    def case(self, mix, **more):
        nodes = [[0, 0] for _ in self.kinds]
        for n, (kind, role, _) in zip(mix, self.space.dims):
            nodes[kind][role] = n
        return {'nodes': nodes, 'speed': self.speed} | more

    def meets(self, result):
        return (not result['gave_up'] and
                result['effective_ratio'] >= self.facts['target'] - SLACK and
                result['effective_token_ratio'] >=
                self.facts['token_target'] - SLACK)

    def ask(self, mixes):
        """Answers the search."""
        price, n = self.space.price(mixes[0]), len(mixes)
        print(f'{self.cost(price)}: ' if self.priced else
              f'{words.count(sum(mixes[0]), "node")}: ' if
              self.search.everything else '',
              words.count(n, 'split' if self.search.everything else 'mix',
                          'splits' if self.search.everything else 'mixes'),
              sep='', file=sys.stderr, flush=True)
        results = self.core.ask([self.case(m, gives_up=True) for m in mixes])
        for mix, result in zip(mixes, results):
            self.judged[mix] = result['judged']
            if not result['gave_up']:
                self.results[mix] = result
        return [(self.meets(r), -1.0 if r['gave_up'] else r['effective_ratio'])
                for r in results]

    def finish(self, mixes):
        """Simulates these to their ends."""
        mixes = [m for m in dict.fromkeys(mixes)
                 if m not in self.results and self.space.fits(m)]
        if mixes:
            print(words.count(len(mixes), 'cluster'), 'to the end',
                  file=sys.stderr, flush=True)
        self.results |= zip(mixes, self.core.ask(
            [self.case(m) for m in mixes]))

    # What it is called.

    def cost(self, price):
        """Returns a price as text."""
        return words.money(price / 1e6, self.currency)

    def counts(self, mix):
        """Returns (label of the kind, prefill nodes, decode nodes) of those
        that there are."""
        case = self.case(mix)['nodes']
        return [(kind.label, p, d) for kind, (p, d) in zip(self.kinds, case)
                if p + d > 0]

    def totals(self, mix):
        return self.space.nodes(mix, 0), self.space.nodes(mix, 1)

    def name(self, mix):
        """Returns the nodes of a mix in words."""
        p, d = self.totals(mix)
        ratio = f' (P/D {p / d:.2f})' if d > 0 else ''
        if len(self.kinds) == 1:
            return (f'{p + d} nodes: {p} prefill and {d} decode{ratio}'
                    if d > 0 else
                    words.count(p, 'node' if self.coupled else 'prefill node'))
        parts = [[f'{n[role]} {label}' for label, *n in self.counts(mix)
                  if n[role]] for role in self.space.roles]
        if d == 0:
            return words.listed(parts[0]) + (
                '' if self.coupled else ' that prefill')
        return (f'{p + d} nodes: prefill on {words.listed(parts[0])}; decode '
                f'on {words.listed(parts[1])}{ratio}')

    def lost(self, mix):
        """Returns [(which node, the mix without it)]."""
        found = []
        for i, (kind, role, _) in enumerate(self.space.dims):
            if mix[i] == 0:
                continue
            label = (f'one {self.kinds[kind].label}'
                     if len(self.kinds) > 1 else 'a')
            what = ('node' if self.coupled or not self.decodes else
                    f'{("prefill", "decode")[role]} node')
            found.append((f'{label} {what}',
                          mix[:i] + (mix[i] - 1,) + mix[i + 1:]))
        return found

    # Results.

    def entry(self, mix):
        """Returns what is reported of a mix."""
        p, d = self.totals(mix)
        return {'nodes': p + d, 'prefill': p, 'decode': d,
                'mix': [list(n) for n in self.counts(mix)],
                'name': self.name(mix), 'coupled': self.coupled,
                'price_per_hour': (self.space.price(mix) / 1e6 if self.priced
                                   else None),
                'meets': mix in self.results and
                self.meets(self.results[mix]),
                'judged': self.judged.get(mix),
                'result': self.results.get(mix)}

    def plan(self, mix):
        """Returns a cluster to buy: with each node lost, and its curve."""
        losses = self.lost(mix)
        self.finish([mix] + [m for _, m in losses])
        return self.entry(mix) | {'lost': [
            {'what': what} | self.entry(m) for what, m in losses]}

    def worst_loss(self, mix):
        """Returns which node harms most when it is lost, and the mix without
        it; None in place of one that serves nothing."""
        def share(loss):
            r = self.results.get(loss[1])
            return -1 if r is None else min(
                r['effective_ratio'] - self.facts['target'],
                r['effective_token_ratio'] - self.facts['token_target'])
        what, worst = min(self.lost(mix), key=share)
        return what, worst if self.space.fits(worst) else None

    def of_kind(self, k):
        """Returns the mix of one kind alone that got furthest, or else the
        largest one."""
        alone = [m for m in self.judged if not any(
            n for n, (kind, _, _) in zip(m, self.space.dims) if kind != k)]
        largest = tuple(self.space.most[role] if kind == k else 0
                        for kind, role, _ in self.space.dims)
        return max(alone, default=largest, key=lambda m: (
            self.judged[m], -sum(m), m))

    def below(self, mix):
        """Returns the splits of the totals below, of one kind."""
        n = sum(mix)
        return [m for m in self.space.mixes(range(len(self.space.dims)),
                                            self.space.price(mix))
                if n - TOTALS_BELOW <= sum(m) < n]


def trace_options(options):
    return (options['trace'], int(options.get('from') or 0),
            int(options.get('requests') or 0))


class Command(Script):
    def __init__(self, program, name, options):
        unset = {'-1'}, {'-1', '0'}
        super().__init__(program, name, {
            k: v for k, v in options.items() if v not in unset[
                k in ('requests', 'jobs', 'slo-tbt', 'interval')]})

    def curves(self, z, plans):
        """Adds each plan's capacity curve, and those with a node lost."""
        loads = sorted({float(x) for x in self.options['loads'].split(',')})
        resamples = int(self.options['subsets'])
        with tempfile.TemporaryDirectory() as folder:
            parts = capacity.parts(
                *trace_options(self.options), z.kinds[0].block_tokens,
                resamples, int(self.options['seed']), folder)
            for plan, mix in plans:
                print('capacity curve', file=sys.stderr, flush=True)
                plan['capacity'] = capacity.curve(z, mix, parts, loads)
                plan['worst_loss'], worst = z.worst_loss(mix)
                plan['lost_capacity'] = worst and capacity.curve(
                    z, worst, parts, loads)
        return len(parts[0].starts)

    def search(self, z):
        """Returns the answer's mix and that with a spare, or None."""
        s = z.search
        if self.options.get('fixed'):
            kind = z.facts['kinds'][0]
            mix = (kind['prefill'], kind['decode'])[:len(z.space.dims)]
            z.space.most = mix if z.decodes else (*mix, 0)
            s.ask_for([mix])
            return mix, None
        try:
            best, spare = s.run(), None
            if best and self.options.get('spare'):
                again = Search(z.space, Spare(s).ask, s.everything, s.at_once)
                again.failed = list(s.failed)
                spare = again.run()
                best = s.best()
        except TooMany:
            raise Refused(
                f'{len(z.kinds)} kinds of nodes have too many mixes: name '
                'fewer with --kinds, or set --max-prefill and --max-decode'
            ) from None
        return best, spare

    def found(self, z):
        """Returns all that is found, as JSON."""
        facts, fixed = z.facts, bool(self.options.get('fixed'))
        skipped = words.is_hopeless(facts, facts) and not self.options.get('csv') and not fixed
        best, spare = (None, None) if skipped else self.search(z)
        plans = []
        if best:
            plans.append((z.plan(best), best))
        if spare:
            plans.append((z.plan(spare), spare))
        sessions = None
        if plans and (self.options.get('capacity') or
                      self.options.get('report')):
            sessions = self.curves(z, plans)
        s = z.search
        tried = sorted(s.answers, key=lambda m: (
            -z.judged[m], sum(m), *m) if best is None else (
            z.space.price(m), *m))
        below = []
        if best and s.everything and not fixed:
            below = z.below(best)
        elif not best and not skipped:
            below = tried[:FURTHEST]
        of_kinds = [None if words.is_hopeless(facts, kind) else z.of_kind(k)
                    for k, kind in enumerate(facts['kinds'])
                    ] if not best else []
        z.finish(below + [m for m in of_kinds if m])
        return facts | {
            'speed': z.speed, 'trace': self.options['trace'],
            'fixed': fixed, 'priced': z.priced, 'currency': z.currency,
            'coupled': z.coupled, 'decodes': z.decodes,
            'most': list(z.space.most),
            'kinds': [fact | {'label': k.label, 'file': k.path,
                              'about': k.about,
                              'price_per_hour': k.price, 'source': k.source,
                              'price_source': k.price_source}
                      for fact, k in zip(facts['kinds'], z.kinds)],
            'answer': plans[0][0] if best else None,
            'wants_spare': bool(self.options.get('spare')),
            'spare': plans[-1][0] if spare else None,
            'below': [z.entry(m) for m in below],
            'of_kinds': [m and z.entry(m) for m in of_kinds],
            'tried': [z.entry(m) for m in tried], 'simulated': len(tried),
            'everything': s.everything, 'checked': s.checked,
            'contradicted': s.contradicted, 'sessions': sessions,
            'resamples': int(self.options['subsets']),
            'version': subprocess.run(
                [self.program, '--version'], capture_output=True, text=True,
                check=False).stdout.strip()}


def csv_of(found):
    """A line for each cluster that the search asked for."""
    out = io.StringIO()
    rows = csv.writer(out, lineterminator='\n')
    rows.writerow('prefill decode nodes price_per_hour mix meets '
                  'effective_ratio effective_token_ratio requests_judged'
                  .split())
    for t in found['tried']:
        r = t['result']
        rows.writerow([
            t['prefill'], t['decode'], t['nodes'],
            '' if t['price_per_hour'] is None else f'{t["price_per_hour"]:g}',
            ' '.join(f'{label}:{p}+{d}' for label, p, d in t['mix']),
            int(t['meets']),
            *((f'{r["effective_ratio"]:.6f}',
               f'{r["effective_token_ratio"]:.6f}') if r else ('', '')),
            t['judged']])
    return out.getvalue().encode()


def nodes_of_file(command, core, facts, kinds):
    """--interval: the best split of the file's nodes, over time."""
    first = facts['kinds'][0]
    nodes = first['prefill'] + first['decode']
    if len(kinds) > 1 or first['decode'] == 0 or nodes < 3:
        raise Refused('--interval: needs one kind, and a cluster of at least 3 '
                      'nodes, some to prefill and some to decode; '
                      f'{first["name"]} has {first["prefill"]} and '
                      f'{first["decode"]}')
    splits = [(p, nodes - p) for p in range(1, nodes)]
    results = core.ask([{'nodes': [list(x)],
                         'speed': float(command.options['speed'])}
                        for x in splits])
    return [(*split, [tuple(x) for x in r['intervals']])
            for split, r in zip(splits, results)]


def over_time(command, core, facts, kinds):
    interval_s = float(command.options['interval'])
    splits = nodes_of_file(command, core, facts, kinds)
    words.print_over_time(splits, interval_s)

    def lines():
        yield 'from_s,prefill,decode,requests,effective_ratio,mean_ttft_s\n'
        for k in range(len(splits[0][2])):
            for p, d, intervals in splits:
                requests, effective, _, _ = at = intervals[k]
                share = effective / requests if requests else 0.0
                yield (f'{k * interval_s:.6g},{p},{d},{requests},'
                       f'{share:.6f},{words.mean_ttft_s(at):.6f}\n')
    command.output('csv', lambda: ''.join(lines()).encode())


def size(command, core, facts, kinds):
    options = command.options
    if options.get('fixed') and len(kinds) > 1:
        raise Refused(f'--fixed: is for one file, not for {len(kinds)} kinds '
                      'of nodes')
    if options.get('fixed') and options.get('spare'):
        raise Refused('--spare: searches, and --fixed does not: what a lost '
                      'node costs is told without it')
    z = Sizing(core, facts, kinds, options)
    found = command.found(z)
    words.print_found(found)
    if not (found['answer'] and found['answer']['meets']):
        command.status = 1
    command.output('csv', lambda: csv_of(found))
    command.output('json', lambda: (json_text(
        found, 9, indent=1, sort_keys=True, ensure_ascii=False) +
        '\n').encode(errors='replace'))
    if found['answer']:
        command.output('plot', lambda: report.picture(found) or MISSING)
        command.output('capacity', lambda: capacity.as_csv(found).encode())
    command.output('report', lambda: (
        MISSING if chart.matplotlib is None else
        report.html(found).encode(errors='replace')))


def main(command):
    files = files_of(command.options['nodes'], command.options.get('kinds'))
    core = Core(command, files)
    try:
        # C checks the files first: its messages name field and value.
        facts = core.survey(float(command.options['target']),
                            float(command.options['token-target']))
        kinds = [Kind(path) for path in files]
        if len(kinds) > 1:
            for kind in kinds:
                kind.check_beside(kinds[0])
        (over_time if command.options.get('interval') else size)(
            command, core, facts, kinds)
        core.end()
    except Ended:
        command.status = core.end()


if __name__ == '__main__':
    sys.exit(run(Command, main))
