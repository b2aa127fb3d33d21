"""Prints what conductor-replay sweep found."""
import math

METRICS = 'ttft', 'p99', 'effective', 'tokens'
SHARES = 'effective', 'tokens'  # the others are times
CAUSES = ('errors', 'slow links', 'slow nodes', 'disks', 'load', 'aggregated',
          'two kinds', 'max_tokens', 'small caches')
COMMANDS_MAX = 10  # shown


def nodes_of(case):
    return (str(case['coupled_nodes']) if case['coupled_nodes'] > 0 else
            f'{case["prefill_nodes"]}+{case["decode_nodes"]}')


def sum_of(case, metric, policy):
    """A value summed over the seeds; NaN = none."""
    return case[metric]['values'][policy]


def value(case, metric, policy):
    x = sum_of(case, metric, policy) / case['seeds']
    return (f' {100 * x:8.2f}%' if metric in SHARES else f' {x:8.3f}s')


class Losses:
    """`results` is the JSON of the sweep with exact numbers, in which values are
    sums over the seeds; `again` is the command line that repeats a case,
    without --case; `causes`, whether they were looked for."""

    def __init__(self, results, again, causes):
        self.cases, self.policies = results['cases'], results['policies']
        self.results, self.again, self.causes = results, again, causes
        self.first = self.policies[0]

    def print_alone(self, case):
        """All results of one case."""
        print(f'case {case["case"]}: {case["requests"]} requests of '
              f'{case["trace"]} (seed {case["seed"]}, speed {case["speed"]:g}' +
              (f', rate {case["rate"]:.6g}' if case['rate'] > 0 else '') +
              f') on {nodes_of(case)} nodes of {case["hardware"]}, load '
              f'{case["load"]:.3f}, {case["link_gbps"]:.0f} Gbit/s, errors '
              f'{case["prefill_error_sigma"]:.2f}, SLO '
              f'{case["slo_ttft_s"]:g} s; means of {case["seeds"]} seeds\n\n' +
              '%-16s %9s %9s %10s %10s %9s %8s %9s' % (
                  'policy', 'TTFT', 'p99', 'effective', 'tokens', 'accepted',
                  'late', 'by most'))
        for policy in self.policies:
            p = case['promises'][policy]
            print(f'{policy:<16}' + ''.join(
                (' ' if m in SHARES else '') + value(case, m, policy)
                for m in METRICS) +
                f' {p["promised"]:8} {p["late"]:8} {p["latest_s"]:8.3f}s')
        print()

    def print_loss(self, case, metric):
        loss = case[metric]
        other = loss['against']
        slow, cache = case['slow_nodes'], case['cache']
        print(f'{100 * loss["loss"]:6.1f}% {metric:<9} {other:<13}' +
              value(case, metric, self.first) + value(case, metric, other) +
              f' {case["case"]:6} {nodes_of(case):>7} '
              f'{case["link_gbps"]:6.0f} {case["load"]:5.2f} '
              f'{case["prefill_error_sigma"]:6.2f}' +
              (f'  {100 * slow:2.0f}% at {case["slow_speed"]:.2f}'
               if slow > 0 else f'  {"-":>11}') +
              (f' {100 * cache:4.0f}%' if cache > 0 else
               f' {"disk" if case["disks"] else "-":>5}') +
              f' {case["slo_ttft_s"]:5.1f}  {case["hardware"]}, '
              f'{case["trace"]}' +
              (f'; {"+".join(loss["causes"]) or "-"}' if self.causes else ''))

    def print_losses(self):
        """The worst first, and how to see each alone."""
        lost = sorted(((case, m) for case in self.cases for m in METRICS
                       if case[m]['loses']),
                      key=lambda one: -one[0][one[1]]['loss'])
        if not lost:
            return
        print('%7s %-9s %-13s %9s %9s %6s %7s %6s %5s %6s  %11s %5s %5s  '
              'hardware, trace%s' % (
                  'loss', 'metric', 'against', self.first, 'other', 'case',
                  'nodes', 'Gbit/s', 'load', 'errors', 'slow nodes', 'cache',
                  'SLO', '; what it takes' if self.causes else ''))
        for case, metric in lost:
            self.print_loss(case, metric)
        print('\nto see one alone:')
        for number in list(dict.fromkeys(
                case['case'] for case, _ in lost))[:COMMANDS_MAX]:
            print(f'  {self.again} --case {number}')
        print()

    def print_against_best(self, name, metric, least, most):
        """The first policy against the best of the others: the number of cases
        worse by more than each step, the worst, and the mean of all. For
        ratios it is geometric, so that no case outweighs the others."""
        losses = [c[metric]['loss'] for c in self.cases
                  if least < c['drawn_load'] <= most and
                  not math.isnan(sum_of(c, metric, self.first))]
        if not losses:
            return
        above = [sum(x > step for x in losses) for step in (0.02, 0.1, 0.5)]
        share, total = metric in SHARES, 0.0
        for x in losses:
            total += -x if share else math.log1p(x)
        print('  %-28s %6d %7d %7d %7d %8.1f%s' % (
            name, len(losses), *above, 100 * max(losses),
            '  ' if share else ' %') +
            (' %+9.2f' % (100 * total / len(losses)) if share else
             ' %9.3f x' % math.exp(total / len(losses))))

    def print_all_against_best(self):
        print(f'{self.first} against the best of the others in each case; '
              'shares in points\n  %-28s %6s %7s %7s %7s %10s %9s' % (
                  'worse by more than', 'cases', '2', '10', '50', 'worst',
                  'mean'))
        for name, metric, least, most in (
                ('mean TTFT', 'ttft', 0, math.inf),
                ('p99 TTFT, load up to 1', 'p99', 0, 1),
                ('p99 TTFT, load above 1', 'p99', 1, math.inf),
                ('effective requests', 'effective', 0, math.inf),
                ('effective input tokens', 'tokens', 0, math.inf)):
            self.print_against_best(name, metric, least, most)

    def beside(self, metric, policy):
        """The first policy beside another: points, or a ratio."""
        total = 0.0
        for case in self.cases:
            a, b = (sum_of(case, metric, p) for p in (self.first, policy))
            if metric in SHARES:
                total += (a - b) / case['seeds']
            elif a > 0 and b > 0:
                total += math.log(a / b)
        return (f' {100 * total / len(self.cases):+8.2f}' if metric in SHARES
                else f' {math.exp(total / len(self.cases)):8.3f}x')

    def print_policies(self):
        """Each policy's broken promises, and the first beside it."""
        print('\n%-16s %10s %8s %12s %12s   %s beside it: %9s %9s %9s %9s' % (
            'policy', 'accepted', 'late', 'by most (s)', 'cases late',
            self.first, 'mean TTFT', 'p99', 'requests', 'tokens'))
        for policy in self.policies:
            all_of = [case['promises'][policy] for case in self.cases]
            line = '%-16s %10d %8d %12.3f %12d' % (
                policy, sum(p['promised'] for p in all_of),
                sum(p['late'] for p in all_of),
                max(p['latest_s'] for p in all_of),
                sum(p['late'] > 0 for p in all_of))
            if policy != self.first:
                line += '   ' + ' ' * (len(self.first) + 11) + ''.join(
                    self.beside(m, policy) for m in METRICS)
            print(line)

    def print_group(self, name, cases):
        """How many of the cases lose, and the largest loss."""
        if not cases:
            return
        line = f'  {name:<20.20} {len(cases):6}'
        for metric in METRICS:
            lost = [c[metric]['loss'] for c in cases if c[metric]['loses']]
            line += f' {len(lost):9} {100 * max([0.0, *lost]):7.1f}%'
        print(line)

    def print_groups(self):
        print('\ncases that lose, and the worst, by what they have\n'
              f'  {"":<20} {"cases":>6}' +
              ''.join(f' {m:>9} {"worst":>8}' for m in METRICS))
        self.print_group('all', self.cases)
        for cause in CAUSES:
            self.print_group(cause, [c for c in self.cases
                                     if cause in c['has']])
        self.print_group('none of these',
                         [c for c in self.cases if not c['has']])
        for i, name in enumerate(self.results['traces']):
            self.print_group(name, [c for c in self.cases
                                    if c['trace_at'] == i])

    def print(self):
        print(f'sweep {self.results["description"]}, seed '
              f'{self.results["seed"]}: {len(self.cases)} cases\n')
        if len(self.cases) == 1:
            self.print_alone(self.cases[0])
        self.print_losses()
        self.print_all_against_best()
        self.print_policies()
        self.print_groups()
