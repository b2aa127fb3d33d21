"""Prints a comparison of conductor-replay: compare.py HEAD "" <RUNS.

HEAD is a JSON object of what all runs share. RUNS is the CSV of --csv with
exact numbers and what means over the seeds need; the runs of a case, one for
each seed, stand behind one another.
"""
import csv
import json
import sys

from script import printed

# Of the Mooncake paper's Figure 5, slowest first.
PAPER_ORDER = 'random', 'least_loaded', 'local_cache', 'global_cache'
VERDICT_SEEDS = 3  # least for a verdict; with fewer it may be chance


class Case:
    """The means of a case's runs; maxima are the largest. None = in no run."""

    def __init__(self, runs):
        self.runs, first = runs, runs[0]
        self.label = first['policy']
        self.nodes = first['nodes'] + (f'+{first["decode_nodes"]}'
                                       if first['decode_nodes'] != '0' else '')
        self.link_gbps, self.speed = first['link_gbps'], first['speed']
        self.ttft = [self.mean(f'ttft_{p}_s')
                     for p in ('mean', 'p50', 'p90', 'p99')]
        self.tbt_s = self.mean('tbt_p90_s')
        self.hits = self.mean_of_all('hit_ratio')
        self.effective = self.mean_of_all('effective_ratio')
        self.tokens = self.mean_of_all('effective_token_ratio')
        arrivals_s = self.total('arrivals_s')
        self.goodput = (self.total('effective') / arrivals_s
                        if arrivals_s > 0 else 0.0)
        self.predicted = (self.mean_of_all('predicted_ratio')
                          if first['predicted_ratio'] else None)
        told = self.total('p90_told')
        self.held = self.total('p90_held') / told if told > 0 else None
        # Counts are means, as the ratios beside them.
        self.rejected, self.late = (int(self.total(name)) // len(runs)
                                    for name in ('rejected', 'late'))
        self.latest_s = max(float(r['latest_s']) for r in runs) or None
        self.error_p99_s = self.mean('error_p99_s')
        self.error_max_s = max((float(r['error_max_s']) for r in runs
                                if r['error_max_s']), default=None)

    def total(self, name):
        return sum(float(r[name] or 0) for r in self.runs)

    def mean_of_all(self, name):
        return self.total(name) / len(self.runs)

    def mean(self, name):
        """Of the runs that have it."""
        found = [float(r[name]) for r in self.runs if r[name]]
        return sum(found) / len(found) if found else None


def number(x, digits):
    return f' {"-":>9}' if x is None else f' {x:9.{digits}f}'


def per_cent(x):
    return None if x is None else 100 * x


class Comparison:
    def __init__(self, head, rows):
        self.head, seeds = head, head['seeds']
        self.cases = [Case(rows[i:i + seeds])
                      for i in range(0, len(rows), seeds)]
        self.policies = [c.label for c in self.cases[:head['policies']]]
        # At each point, the mean TTFT of every policy.
        self.points = [
            {c.label: c.ttft[0] or 0.0 for c in self.cases[i:i + len(
                self.policies)]}
            for i in range(0, len(self.cases), len(self.policies))]
        self.with_slo = head['slo_ttft_s'] > 0 or head['slo_tbt_s'] > 0

    def print_head(self):
        h = self.head
        asked = [f'{name} within {h[key]:g} s' for name, key in (
            ('TTFT', 'slo_ttft_s'), ('TBT', 'slo_tbt_s')) if h[key] > 0]
        print(f'{h["requests"]} requests on nodes of {h["cluster"]}, admission '
              f'{h["admission"]}\nasked for: {", ".join(asked) or "no SLO"}' +
              (f'; means of {h["seeds"]} seeds' if h['seeds'] > 1 else '') +
              f'; effective: TTFT within {h["effective_ttft_s"]:g} s' +
              (f', TBT within {h["effective_tbt_s"]:g} s'
               if h['decodes'] and h['effective_tbt_s'] > 0 else '') + '\n')

    def print_titles(self, width):
        line = ('%7s %7s %6s  %-*s %9s %9s %9s %9s%s %7s %9s %9s %10s %9s %9s'
                '%s')
        tbt, slo = self.head['decodes'], self.with_slo
        print(line % ('', '', '', width, '', 'TTFT (s)', '', '', '',
                      '   TBT (s)' if tbt else '', '', 'effective',
                      'effective', 'goodput', 'predicted', '% within',
                      '                     by most  prediction off by (s)'
                      if slo else ''))
        print(line % ('nodes', 'Gbit/s', 'speed', width, 'policy', 'mean',
                      'p50', 'p90', 'p99', '       p90' if tbt else '', 'hits',
                      'requests', 'tokens', '(req/s)', '/ actual', 'its p90',
                      '  rejected      late       (s)        p99       max'
                      if slo else ''))

    def print_case(self, c, width):
        print(f'{c.nodes:>7} {c.link_gbps:>7} {c.speed:>6}  {c.label:<{width}}'
              + ''.join(number(x, 3) for x in c.ttft) +
              (number(c.tbt_s, 4) if self.head['decodes'] else '') +
              (f' {"-":>7}' if c.ttft[0] is None else
               f' {100 * c.hits:6.2f}%') +
              f' {100 * c.effective:8.2f}% {100 * c.tokens:8.2f}% '
              f'{c.goodput:10.3f}' + number(c.predicted, 3) +
              number(per_cent(c.held), 1) +
              (f'  {c.rejected:8}  {c.late:8}' + number(c.latest_s, 3) + ' ' +
               number(c.error_p99_s, 3) + number(c.error_max_s, 3)
               if self.with_slo else ''))

    def in_order(self, policies):
        """Returns the number of points where the mean TTFT falls along the
        policies."""
        return sum(all(p[a] >= p[b] for a, b in zip(policies, policies[1:]))
                   for p in self.points)

    def lowest(self, policy):
        """Returns the number of points where only the ideal policy may be
        faster."""
        return sum(all(x >= p[policy] for name, x in p.items()
                       if name != 'ideal_pool') for p in self.points)

    def print_verdicts(self):
        """They do not depend on the order of the policies given."""
        paper = [p for p in PAPER_ORDER if p in self.policies]
        plan = 'plan' in self.policies
        if (self.head['of_rules'] or len(self.policies) < 2 or
                not (len(paper) > 1 or plan)):
            return
        if self.head['seeds'] < VERDICT_SEEDS:
            print(f'\nno verdict: that takes --seeds {VERDICT_SEEDS}')
            return
        print('\nmean TTFT' + (
            ' of accepted requests, which are not the same for each policy'
            if self.with_slo else '') + ':')
        if len(paper) > 1:
            print(f'  {" >= ".join(paper)}: at {self.in_order(paper)} of '
                  f'{len(self.points)} points')
        if plan:
            print(f'  plan is the lowest: at {self.lowest("plan")} of '
                  f'{len(self.points)} points')

    def print(self):
        width = max([14, *map(len, self.policies)])
        self.print_head()
        self.print_titles(width)
        for case in self.cases:
            self.print_case(case, width)
        self.print_verdicts()


def main():
    Comparison(json.loads(sys.argv[1]), list(csv.DictReader(sys.stdin))).print()


if __name__ == '__main__':
    sys.exit(printed(main))
