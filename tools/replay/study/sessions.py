"""conductor-replay sessions: closed loops of recorded sessions, side by side.

Simulations are those of PROGRAM sessions-run.
"""
import math
import sys

from script import (Ended, Refused, Runner, Script, json_text, nearest, run)

FIRST = 'global_cache'
IN_FLIGHT, IN_FLIGHT_MAX = 16, 65536
HOURS = 8.0
NEAR = 0.02  # of --ttft: accepted relative error
SUMMARY = 'mean', 'p50', 'p95', 'p99'


class Command(Script):
    def __init__(self, program, name, options):
        super().__init__(program, name, {
            k: v for k, v in options.items() if (k, v) != ('jobs', '0')})
        options = self.options
        self.ttft_s, hours, think_s = (float(options[name]) for name in (
            'ttft', 'hours', 'think-max'))
        sessions = int(options['sessions'])
        if hours == 0 and sessions == 0:
            hours = HOURS
        self.loop = {'path': options['trace'], 'sessions': sessions,
                     'until_us': nearest(hours * 3600e6),
                     'think_max_us': nearest(think_s * 1e6),
                     'input_max_tokens': int(options['input-max'])}
        self.runner, self.policies = None, []

    def simulate(self, numbers, policies):
        """Returns the results: the policies at each number in flight."""
        answer = self.runner.ask([
            {'loop': self.loop | {'in_flight': n}, 'policy': policy,
             'cluster': self.options['cluster'], 'speed': 1,
             'seed': int(self.options['seed'])}
            for n in numbers for policy in policies])
        if 'error' in answer:
            raise Refused(answer['error'])
        for i, result in enumerate(answer):
            result |= {'in_flight': numbers[i // len(policies)],
                       'policy': policies[i % len(policies)]}
        return answer

    def mean_ttft_s(self, in_flight):
        """Returns the first policy's."""
        one, = self.simulate([in_flight], self.policies[:1])
        mean_s = one['sessions']['ttft_s']['mean']
        print(f'{self.policies[0]}, {in_flight:g} in flight: mean TTFT '
              f'{mean_s:.2f} s', file=sys.stderr, flush=True)
        return mean_s

    def find_in_flight(self):
        """Finds the sessions in flight for --ttft: doubles their number until
        the mean TTFT is above it, then bisects. More sessions wait longer."""
        low, high, best, best_off, at = 0, 0, 1, math.inf, IN_FLIGHT
        while high == 0 or high - low > 1:
            mean_s = self.mean_ttft_s(at)
            off = abs(mean_s - self.ttft_s)
            if off < best_off:
                best, best_off = at, off
            if off <= NEAR * self.ttft_s:
                break
            if mean_s > self.ttft_s:
                high = at
            else:
                low = at
            if high == 0 and at * 2 > IN_FLIGHT_MAX:
                raise Refused(f'--ttft {self.ttft_s:g}: {at:g} sessions in '
                              f'flight have a mean TTFT of only {mean_s:.2f} s')
            at = at * 2 if high == 0 else (low + high) // 2
        return [n for n in (best // 2, best, best * 2)
                if 1 <= n <= IN_FLIGHT_MAX]

    def print_head(self, cluster):
        loop, hours = self.loop, self.loop['until_us'] / 1e6 / 3600
        print(f'\n{loop["path"]} on {cluster}, simulated closed-loop' +
              (f', {hours:g} h' if hours > 0 else '') +
              (f', {loop["sessions"]} sessions' if loop['sessions'] else '') +
              f'\npauses of at most {loop["think_max_us"] / 1e6:g} s, prompts '
              f'of at most {loop["input_max_tokens"]} tokens, seed '
              f'{self.options["seed"]}\n')
        print('%9s  %-14s %9s %8s %7s %31s  %23s %12s' % (
            'sessions', '', 'finished', '', '', 'TTFT of turns, s', 'turn, s',
            'hits, %'))
        print('%9s  %-14s %9s %8s %7s %7s %7s %7s %7s  %7s %7s %7s %6s %5s' % (
            'in flight', 'policy', 'an hour', 'turns', 'lost', *SUMMARY,
            *SUMMARY[:3], '', 'best'))

    def json(self, cluster, results):
        loop = self.loop
        return {'mode': 'simulate', 'file': loop['path'], 'cluster': cluster,
                'hours': loop['until_us'] / 1e6 / 3600,
                'sessions': loop['sessions'],
                'seed': int(self.options['seed']),
                'input_max': loop['input_max_tokens'],
                'think_max_s': loop['think_max_us'] / 1e6,
                'runs': [r['sessions'] | {
                    'in_flight': r['in_flight'], 'policy': r['policy'],
                    'prefix_hit_ratio': r['prefix_hit_ratio'],
                    'best_possible_hit_ratio': best_of(r)} for r in results]}


def best_of(result):
    best = result['best_possible_hit_ratio']
    return best if best >= 0 else None


def print_case(result):
    r, best = result['sessions'], best_of(result)
    print(f'{result["in_flight"]:9}  {result["policy"]:14} '
          f'{r["sessions_finished_per_hour"]:9.1f} {r["turns"]:8} '
          f'{r["sessions"]["lost"]:7} ' +
          ' '.join(f'{r["ttft_s"][x]:7.2f}' for x in SUMMARY) + '  ' +
          ' '.join(f'{r["turn_s"][x]:7.2f}' for x in SUMMARY[:3]) +
          f' {100 * result["prefix_hit_ratio"]:6.1f}' +
          ('     -' if best is None else f' {100 * best:5.1f}'))


def main(command):
    options = command.options
    command.runner = Runner(command.program, 'sessions-run', options,
                            ('policies', 'policy-option', 'jobs'))
    try:
        known = command.runner.read()['options']
        command.policies = (options['policies'].split(',')
                            if 'policies' in options else
                            [FIRST] + [p for p in known if p != FIRST])
        numbers = (command.find_in_flight() if command.ttft_s > 0 else
                   [int(float(x)) for x in options.get(
                       'in-flight', str(IN_FLIGHT)).split(',')])
        results = command.simulate(numbers, command.policies)
        command.runner.end()
    except Ended:
        command.status = command.runner.end()
        return
    cluster = results[0]['cluster']
    command.print_head(cluster)
    for i, result in enumerate(results):
        if i > 0 and i % len(command.policies) == 0:
            print()
        print_case(result)
    print()
    command.output('report', lambda: (json_text(
        command.json(cluster, results), 12, indent=2, sort_keys=True,
        ensure_ascii=False) + '\n').encode(errors='replace'))


if __name__ == '__main__':
    sys.exit(run(Command, main))
