"""conductor-replay sweep: policies on random clusters, and the cases where the
first one loses to another.

Simulations are those of PROGRAM sweep-run. A loss counts only against the
policy that does best in the case, and on the means of all seeds.
"""
import math
import re
import sys
import time

import losses
from cases import Case, Description
from losses import CAUSES, METRICS, SHARES
from script import Ended, Fields, Runner, Script, json_text, nearest, run

POLICIES_MAX = 16
WAVE = 256  # simulations in memory at once
FAST_LINKS_GBPS, SLOW_LINKS_GBPS, LOW_LOAD = 800.0, 400.0, 0.6
# p99 comes from some tens of requests: smaller losses are chance. It counts at
# loads up to this: above, someone must come last.
P99_THRESHOLDS, P99_LOAD_MAX = 5.0, 1.0
# Causes that a draw has, and the draw without each.
HAS = dict(zip(CAUSES, (
    lambda d: d.prefill_error_sigma > 0 or d.decode_error_sigma > 0,
    lambda d: d.link_gbps < SLOW_LINKS_GBPS,
    lambda d: d.slow_nodes > 0, lambda d: d.disks,
    lambda d: d.load > LOW_LOAD, lambda d: d.aggregated,
    lambda d: d.mixed_nodes > 0, lambda d: d.max_tokens > 0,
    lambda d: d.cache > 0)))
WITHOUT = dict(zip(CAUSES, (
    {'prefill_error_sigma': 0.0, 'decode_error_sigma': 0.0},
    {'link_gbps': FAST_LINKS_GBPS}, {'slow_nodes': 0.0}, {'disks': False},
    {'load': LOW_LOAD}, {'aggregated': False}, {'mixed_nodes': 0.0},
    {'max_tokens': 0}, {'cache': 0.0})))


def values_of(result, with_slo):
    """Returns what a simulation with or without the SLO is for."""
    if with_slo:
        return {'effective': result['effective_ratio'],
                'tokens': result['effective_token_ratio']} | {
            name: result[name] for name in ('promised', 'late', 'latest_s')}
    ttft, told = result['ttft_s'], result['p90_told']
    return {'ttft': ttft['mean'] if ttft else math.nan,
            'p99': ttft['p99'] if ttft else math.nan,
            'predicted_ratio': result['predicted_ratio'],
            'p90_held_ratio': result['p90_held'] / told if told else None}


def worse_by(metric, value, other):
    """Returns how much worse a value is: 0.1 = a tenth longer, or ten points
    less effective; below 0 = better; 0 if either is NaN."""
    if math.isnan(value) or math.isnan(other) or not other > 0:
        return 0.0
    return other - value if metric in SHARES else value / other - 1.0


def worst(metric, values):
    """Returns (by how much, index of the policy) that the first policy loses
    most to."""
    by = [worse_by(metric, values[0][metric], v[metric]) for v in values[1:]]
    return max(by), by.index(max(by)) + 1


class Ticker:
    """A count that grows, on standard error."""

    def __init__(self, what, total):
        self.what, self.total = what, total
        self.on_terminal, self.has_line = sys.stderr.isatty(), False
        self.shown = time.monotonic()

    def show(self, count):
        now = time.monotonic()
        if now - self.shown < (0.2 if self.on_terminal else 5):
            return
        self.shown, self.has_line = now, self.on_terminal
        print('\r' * self.on_terminal + f'{count} of {self.total} {self.what}',
              end=' ' if self.on_terminal else '\n', file=sys.stderr,
              flush=True)

    def end(self):
        if self.has_line:
            print('\r\033[K', end='', file=sys.stderr, flush=True)


class Result:
    """A case's values of each policy, {metric: value} and promises: `own` with
    the case's own seed, `all` summed over the seeds."""

    def __init__(self, case, policies):
        self.case, self.seeds = case, 1
        self.own = [{} for _ in policies]
        self.all, self.loss = None, {m: {'causes': []} for m in METRICS}

    def judge(self):
        for metric, loss in self.loss.items():
            by, loss['other'] = worst(metric, self.all)
            loss['loss'] = by / self.seeds if metric in SHARES else by

    def add(self, values):
        """Adds the values of another seed."""
        for total, v in zip(self.all, values):
            for name in total:
                total[name] = (max(total[name], v[name]) if name == 'latest_s'
                               else total[name] + v[name])


class Sweep:
    def __init__(self, command, runner, description):
        options = command.options
        self.runner, self.description = runner, description
        self.policies = options['policies'].split(',')
        self.threshold = float(options['threshold'])
        self.seed, self.seeds = int(options['seed']), int(options['seeds'])
        only = options.get('case')
        self.numbers = range(int(options['cases'])) if only is None else \
            [int(only)]
        self.jobs = []
        self.results = []

    # Simulations.

    def ask(self, case, seed, with_slo, policy, values):
        """Queues a simulation, whose results `values` gets."""
        if len(self.jobs) == WAVE:
            self.flush()
        d = case.draw
        self.jobs.append((case, with_slo, values, {
            'cluster': case.cluster(), 'source': case.source(seed),
            'policy': self.policies[policy], 'speed': case.speed,
            'seed': d.seed + seed,
            'slo_ttft_s': d.slo_ttft_s if with_slo else 0,
            'slo_tbt_s': d.slo_tbt_s if with_slo else 0,
            'effective_ttft_s': d.slo_ttft_s,
            'effective_tbt_s': d.slo_tbt_s}))

    def flush(self):
        answer = self.runner.ask([question for *_, question in self.jobs])
        if 'error' in answer:
            self.jobs[answer['case']][0].answer(answer)
        for (_, with_slo, values, _), r in zip(self.jobs, answer):
            values |= values_of(r, with_slo)
        self.jobs = []

    def ask_all(self, case, seed, values):
        """Queues all policies with a case's i-th seed, without and with the
        SLO."""
        for policy, into in enumerate(values):
            for with_slo in False, True:
                self.ask(case, seed, with_slo, policy, into)

    def make(self, draw):
        return Case(draw, self.description.workloads.get(draw.trace.like),
                    self.runner.ask)

    def run_cases(self):
        """Runs every case with its own seed."""
        ticker = Ticker('cases', len(self.numbers))
        for i, number in enumerate(self.numbers):
            result = Result(self.make(self.description.draw(
                self.seed, number)), self.policies)
            self.results.append(result)
            self.ask_all(result.case, 0, result.own)
            ticker.show(i + 1)
        self.flush()
        ticker.end()
        for result in self.results:
            result.all = [{k: v for k, v in own.items() if k not in (
                'predicted_ratio', 'p90_held_ratio')} for own in result.own]
            result.judge()
            for loss in result.loss.values():
                loss['first_loss'] = loss['loss']

    def loses(self, result, metric):
        """Returns whether the first policy loses the case by a metric."""
        p99 = metric == 'p99'
        return (result.loss[metric]['loss'] >
                self.threshold * (P99_THRESHOLDS if p99 else 1.0) and
                not (p99 and result.case.draw.load > P99_LOAD_MAX))

    def confirm(self):
        """Runs the lost cases again with other seeds."""
        again = [(r, [[{} for _ in self.policies]
                      for _ in range(1, self.seeds)])
                 for r in self.results
                 if any(self.loses(r, m) for m in METRICS)]
        for result, values in again:
            for i, of_seed in enumerate(values):
                self.ask_all(result.case, i + 1, of_seed)
        self.flush()
        for result, values in again:
            for of_seed in values:
                result.add(of_seed)
            result.seeds = self.seeds
            result.judge()

    def variant(self, case, cause):
        """Returns a case without one feature: same trace speed, unless load or
        node roles are the feature removed."""
        draw = type(case.draw)(**vars(case.draw) | WITHOUT[cause])
        variant = self.make(draw)
        if cause not in ('aggregated', 'load'):
            variant.speed, variant.rate = case.speed, case.rate
        return variant

    def find_causes_of(self, result, metric):
        """It is a cause if without it the loss is less than half."""
        loss, tried = result.loss[metric], []
        for cause in CAUSES:
            if not HAS[cause](result.case.draw):
                continue
            variant, values = self.variant(result.case, cause), ({}, {})
            tried.append((cause, values))
            for policy, into in zip((0, loss['other']), values):
                self.ask(variant, 0, metric in SHARES, policy, into)
        self.flush()
        loss['causes'] = [
            cause for cause, (first, other) in tried
            if worse_by(metric, first[metric], other[metric]) <
            loss['loss'] / 2]

    def find_causes(self):
        ticker = Ticker('cases looked at for causes', len(self.results))
        for i, result in enumerate(self.results):
            for metric in METRICS:
                if self.loses(result, metric):
                    self.find_causes_of(result, metric)
            ticker.show(i + 1)
        ticker.end()

    # What is found.

    def metric_json(self, result, metric):
        loss = result.loss[metric]
        return {'values': {p: v[metric] for p, v in zip(self.policies,
                                                        result.all)},
                'against': self.policies[loss['other']],
                'first_loss': loss['first_loss'], 'loss': loss['loss'],
                'loses': self.loses(result, metric), 'causes': loss['causes']}

    def case_json(self, result):
        """Returns a case; its values are sums over the seeds."""
        c, d = result.case, result.case.draw
        return {'case': d.number, 'seed': d.seed, 'hardware': d.hardware.name,
                'trace': d.trace.name, 'requests': d.requests,
                'prefill_nodes': c.prefill, 'decode_nodes': c.decode,
                'coupled_nodes': c.coupled, 'load': c.load, 'speed': c.speed,
                'rate': c.rate, 'seeds': result.seeds} | {
            name: getattr(d, name) for name in (
                'link_gbps', 'disks', 'slow_nodes', 'slow_speed',
                'prefill_error_sigma', 'decode_error_sigma', 'slo_ttft_s',
                'slo_tbt_s', 'max_tokens', 'mixed_nodes', 'mixed_cost',
                'mixed_memory', 'cache')} | {
            m: self.metric_json(result, m) for m in METRICS} | {
            'promises': {p: {name: v[name] for name in (
                'promised', 'late', 'latest_s')}
                for p, v in zip(self.policies, result.all)}}

    def json(self):
        return {'description': self.description.name, 'seed': self.seed,
                'threshold': self.threshold, 'policies': self.policies,
                'cases': [self.case_json(r) for r in self.results]}

    def print(self, again, causes):
        found = self.json() | {'traces': [
            t.name for t in self.description.traces]}
        for case, r in zip(found['cases'], self.results):
            d = r.case.draw
            case |= {'has': [c for c in CAUSES if HAS[c](d)],
                     'drawn_load': d.load,
                     'trace_at': self.description.traces.index(d.trace)}
        losses.Losses(found, again, causes).print()

    def as_json(self):
        found = self.json()
        for case in found['cases']:
            for m in METRICS:
                for p, x in case[m]['values'].items():
                    case[m]['values'][p] = x / case['seeds']
        return (json_text(rounded(found), 12, indent=2, sort_keys=True,
                          ensure_ascii=False) + '\n').encode(errors='replace')

    def as_csv(self):
        lines = [
            'case,seed,hardware,trace,requests,prefill_nodes,decode_nodes,'
            'coupled_nodes,link_gbps,load,speed,disks,slow_nodes,slow_speed,'
            'prefill_error_sigma,decode_error_sigma,slo_ttft_s,slo_tbt_s,'
            'max_tokens,mixed_nodes,mixed_cost,mixed_memory,cache,rate,policy,'
            'ttft_mean_s,ttft_p99_s,effective_ratio,effective_token_ratio,'
            'promised,late,latest_s,predicted_ratio,p90_held_ratio,seeds,'
            'ttft_mean_s_seeds,ttft_p99_s_seeds,effective_ratio_seeds,'
            'effective_token_ratio_seeds']
        for r in self.results:
            c, d = r.case, r.case.draw
            head = (f'{d.number},{d.seed},{d.hardware.name},{d.trace.name},'
                    f'{d.requests},{c.prefill},{c.decode},{c.coupled},'
                    f'{d.link_gbps:.3f},{c.load:.4f},{c.speed:.17g},'
                    f'{d.disks:d},{d.slow_nodes:.3f},{d.slow_speed:.3f},'
                    f'{d.prefill_error_sigma:.4f},{d.decode_error_sigma:.4f},'
                    f'{d.slo_ttft_s:.3f},{d.slo_tbt_s:.4f},{d.max_tokens},'
                    f'{d.mixed_nodes:.3f},{d.mixed_cost:.3f},'
                    f'{d.mixed_memory:.3f},{d.cache:.4f},{c.rate:.17g}')
            for policy, own, total in zip(self.policies, r.own, r.all):
                lines.append(','.join([
                    head, policy, *(shown(own[m]) for m in METRICS),
                    f'{own["promised"]},{own["late"]}',
                    shown(own['latest_s']), shown(own['predicted_ratio']),
                    shown(own['p90_held_ratio']), str(r.seeds),
                    *(shown(total[m] / r.seeds) for m in METRICS)]))
        return '\n'.join([*lines, '']).encode(errors='surrogateescape')


def shown(x):
    return '' if x is None or math.isnan(x) else f'{x:.6f}'


def rounded(x):
    """Returns a value as JSON has it: real numbers with six decimals."""
    if isinstance(x, dict):
        return {name: rounded(value) for name, value in x.items()}
    if isinstance(x, list):
        return [rounded(value) for value in x]
    if not isinstance(x, float):
        return x
    return None if math.isnan(x) else nearest(x * 1e6) / 1e6


def command_line(words):
    """Returns the given command, to which one case can be added: without
    options that select cases or their output."""
    line, words = ['conductor-replay sweep'], iter(words)
    for word in words:
        name, given, _ = word.partition('=')
        if name in ('--cases', '--case', '--csv', '--json', '--jobs'):
            if not given:
                next(words, None)
        elif word != '--causes':
            line.append(f"'{word}'" if re.search(r'[ *?$&|;<>()"\\]', word)
                        else word)
    return ' '.join(line)


class Command(Script):
    def __init__(self, program, name, options):
        unset = {'case': str(2 ** 64 - 1), 'jobs': '0'}
        super().__init__(program, name, {
            k: v for k, v in options.items() if unset.get(k) != v})


def main(command):
    options = command.options
    path = options['description']
    runner = Runner(command.program, 'sweep-run', options,
                    ('policies', 'policy-option', 'jobs'), '--quiet',
                    '--file', path)
    try:
        given = runner.read()
        if not 2 <= options['policies'].count(',') + 1 <= POLICIES_MAX:
            command.complain(f'--policies {options["policies"]}: must be 2 to '
                             f'{POLICIES_MAX}')
            command.status = 2
            return
        description = Description(Fields(path, given['file']),
                                  given['workloads'], given['tiers'])
        for trace in options.get('trace', '').split('\n'):
            if trace:
                description.add_file(trace)
        sweep = Sweep(command, runner, description)
        sweep.run_cases()
        if sweep.seeds > 1:
            sweep.confirm()
        if 'causes' in options:
            sweep.find_causes()
        runner.end()
    except Ended:
        command.status = runner.end()
        return
    sweep.print(command_line(options['words'].split('\n')),
                'causes' in options)
    command.output('csv', sweep.as_csv)
    command.output('json', sweep.as_json)


if __name__ == '__main__':
    sys.exit(run(Command, main))
