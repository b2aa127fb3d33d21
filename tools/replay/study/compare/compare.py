"""conductor-replay compare: policies side by side, over seeds, speeds, nodes and
links.

Simulations are those of PROGRAM compare-run. The runs of a case, one for each
seed, stand behind one another.
"""
import os
import subprocess
import sys
import tempfile

from script import Ended, Refused, Runner, Script, run

# Of the Mooncake paper's Figure 5, slowest first.
PAPER_ORDER = 'random', 'least_loaded', 'local_cache', 'global_cache'
VERDICT_SEEDS = 3  # least for a verdict; with fewer it may be chance
# Most runs with --requests-csv: each keeps a file until all have ended.
REQUESTS_CSV_RUNS_MAX = 500
SETTINGS_MAX = 32  # of a policy
PASSED = ('trace', 'from', 'requests', 'skip-bad', 'jobs', 'policy-option',
          'admission')
NO_MATPLOTLIB = 3  # exit status of draw.py


class Case:
    """The means of a case's runs; maxima are the largest. None = in no run."""

    def __init__(self, runs):
        self.runs, first = runs, runs[0]
        self.label = first['policy']
        self.nodes = f'{first["nodes"]}' + (
            f'+{first["decode_nodes"]}' if first['decode_nodes'] else '')
        self.link_gbps, self.speed = (f'{first[name]:g}' for name in (
            'link_gbps', 'speed'))
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
                          if first['predicted_ratio'] is not None else None)
        told = self.total('p90_told')
        self.held = self.total('p90_held') / told if told > 0 else None
        # Counts are means, as the ratios beside them.
        self.rejected, self.late = (int(self.total(name)) // len(runs)
                                    for name in ('rejected', 'late'))
        self.latest_s = max(r['latest_s'] for r in runs) or None
        self.error_p99_s = self.mean('error_p99_s')
        self.error_max_s = max((r['error_max_s'] for r in runs
                                if r['error_max_s'] is not None), default=None)

    def total(self, name):
        return sum(r[name] or 0 for r in self.runs)

    def mean_of_all(self, name):
        return self.total(name) / len(self.runs)

    def mean(self, name):
        """Of the runs that have it."""
        found = [r[name] for r in self.runs if r[name] is not None]
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
              (f'; effective: TTFT within {h["effective_ttft_s"]:g} s' +
               (f', TBT within {h["effective_tbt_s"]:g} s'
                if h['decodes'] and h['effective_tbt_s'] > 0 else '')
               if self.with_slo else '') + '\n')

    def print_titles(self, width):
        line = '%7s %7s %6s  %-*s %9s %9s %9s %9s%s %7s%s %9s %9s%s'
        tbt, slo = self.head['decodes'], self.with_slo
        print(line % ('', '', '', width, '', 'TTFT (s)', '', '', '',
                      '   TBT (s)' if tbt else '', '',
                      ' effective effective    goodput' if slo else '',
                      'predicted', '% within',
                      '                     by most  prediction off by (s)'
                      if slo else ''))
        print(line % ('nodes', 'Gbit/s', 'speed', width, 'policy', 'mean',
                      'p50', 'p90', 'p99', '       p90' if tbt else '', 'hits',
                      '  requests    tokens    (req/s)' if slo else '',
                      '/ actual', 'its p90',
                      '  rejected      late       (s)        p99       max'
                      if slo else ''))

    def print_case(self, c, width):
        print(f'{c.nodes:>7} {c.link_gbps:>7} {c.speed:>6}  {c.label:<{width}}'
              + ''.join(number(x, 3) for x in c.ttft) +
              (number(c.tbt_s, 4) if self.head['decodes'] else '') +
              (f' {"-":>7}' if c.ttft[0] is None else
               f' {100 * c.hits:6.2f}%') +
              (f' {100 * c.effective:8.2f}% {100 * c.tokens:8.2f}% '
               f'{c.goodput:10.3f}' if self.with_slo else '') +
              number(c.predicted, 3) +
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


def flat(result):
    """Returns the columns of a result; None = not measured."""
    def of(name, which):
        return result[name] and result[name][which]
    return {f'ttft_{x}_s': of('ttft_s', x)
            for x in ('mean', 'p50', 'p90', 'p99')} | {
        'tbt_p90_s': of('tbt_s', 'p90'), 'error_p99_s': of('error_s', 'p99'),
        'error_max_s': of('error_s', 'max'),
        'hit_ratio': result['prefix_hit_ratio'] if result['ttft_s'] else None}


def shown(x):
    return '' if x is None else f'{x:.6f}'


def parameters(run):
    """Returns the first columns of each CSV."""
    return (f'{run["nodes"]},{run["decode_nodes"]},{run["link_gbps"]:g},'
            f'{run["speed"]:g},{run["policy"]},')


def csv_of(runs, seeds):
    """Returns a line for each run."""
    lines = ['nodes,decode_nodes,link_gbps,speed,policy,ttft_mean_s,ttft_p50_s,'
             'ttft_p90_s,ttft_p99_s,tbt_p90_s,hit_ratio,effective_ratio,'
             'effective_token_ratio,goodput_per_s,completed,rejected,failed,'
             'prefill_s,promised,late,latest_s,predicted_ratio,p90_held_ratio,'
             'error_p99_s,error_max_s' + (',seed' if seeds > 1 else '')]
    for r in runs:
        goodput = (r['effective'] / r['arrivals_s'] if r['arrivals_s'] > 0
                   else 0.0)
        lines.append(parameters(r) + ','.join([
            *(shown(r[name]) for name in (
                'ttft_mean_s', 'ttft_p50_s', 'ttft_p90_s', 'ttft_p99_s',
                'tbt_p90_s', 'hit_ratio', 'effective_ratio',
                'effective_token_ratio')), f'{goodput:.6f}',
            f'{r["completed"]},{r["rejected"]},{r["failed"]}',
            f'{r["prefill_s"]:.3f},{r["promised"]},{r["late"]}',
            shown(r['latest_s']), shown(r['predicted_ratio']),
            shown(r['p90_held'] / r['p90_told'] if r['p90_told'] else None),
            shown(r['error_p99_s']), shown(r['error_max_s'])] + (
            [f'{r["seed"]}'] if seeds > 1 else [])))
    return '\n'.join([*lines, '']).encode(errors='surrogateescape')


def requests_csv(runs, files):
    """Returns a line for each request of each run, from the runs' files."""
    parts = []
    for r, f in zip(runs, files):
        header, *lines = f.read().splitlines(keepends=True)
        if not parts:
            parts.append(b'nodes,decode_nodes,link_gbps,speed,policy,seed,' +
                         header)
        before = f'{parameters(r)}{r["seed"]},'.encode()
        parts += [before + line for line in lines]
    return b''.join(parts)


def picture(runs, seeds):
    """Returns an SVG, or why there is none: over speeds, with a column per
    cluster; with one speed over nodes, or over links if the node count is
    fixed; bars for one cluster."""
    title = f'{runs[0]["total"]} requests on {runs[0]["cluster"]}'
    done = subprocess.run(
        [sys.executable, '-B', os.path.join(os.path.dirname(
            os.path.abspath(__file__)), 'draw.py'), 'compare', title],
        input=csv_of(runs, seeds), stdout=subprocess.PIPE, check=False)
    if done.returncode == NO_MATPLOTLIB:
        return ("not drawn, Python's matplotlib is missing: install Debian's "
                'python3-matplotlib')
    return ('not drawn, its script failed' if done.returncode else
            done.stdout)


def settings_of_rules(text, policy, options, given):
    """Returns {label: settings} of --rules: a policy as it is, and without
    each of its rules. Its options are {name: [least, most, default, whole]}."""
    can_be_off = [name for name, (least, *_) in options.items() if least <= 0]

    def value(name):
        return given.get(name, options[name][2])

    if text == 'switches':
        names = [name for name, (least, most, _, whole) in options.items()
                 if whole and (least, most) == (0, 1) and value(name) > 0]
        if not names:
            raise Refused(f'--rules switches: {policy} has none that is on')
    else:
        names = text.split(',')
        for i, name in enumerate(names):
            if name not in can_be_off:
                raise Refused(
                    f'--rules {name:.100}: must be switches, or options of '
                    f'{policy} that can be 0: '
                    f'{", ".join(can_be_off) or "none"}')
            if name in names[i + 1:]:
                raise Refused(f'--rules {name}: comes twice')
            if not value(name) > 0:
                raise Refused(
                    f'--rules {name}: is 0 without that, so both lines would '
                    'be the same; give it another value with --policy-option, '
                    'or leave it out')
        names = [name for name in options if name in names]
    if len(given.keys() | names) > SETTINGS_MAX:
        raise Refused(f'--rules {text:.100}: more than {SETTINGS_MAX} options')
    return {policy: given} | {
        f'{policy} {name}=0': given | {name: 0} for name in names}


class Command(Script):
    def __init__(self, program, name, options):
        unset = {str(2 ** 64 - 1), '-1'}
        super().__init__(program, name, {
            k: v for k, v in options.items() if v not in unset and not (
                k in ('jobs', 'requests') and v == '0')})
        self.seeds = int(self.options['seeds'])
        self.policies = (self.options.get('policies') or ','.join(
            [*PAPER_ORDER, self.options['default-policy']])).split(',')
        self.slo = {name: float(self.options[f'slo-{name}'])
                    for name in ('ttft', 'tbt')}
        self.effective = {name: self.slo[name] or standard
                          for name, standard in (('ttft', 30.0), ('tbt', 0.2))}

    def lines(self, facts):
        """Returns {label: (policy, settings)}."""
        options = self.options
        if 'rules' not in options:
            return {p: (p, None) for p in self.policies}
        if 'policies' in options and len(self.policies) > 1:
            raise Refused(f'--policies {options["policies"]}: --rules is for '
                          'one')
        policy = options.get('policies', options['default-policy'])
        return {label: (policy, settings) for label, settings in
                settings_of_rules(options['rules'], policy,
                                  facts['options'][policy],
                                  facts['settings']).items()}

    def runs(self, lines):
        """Returns the questions: over links, nodes, speeds, policies, seeds.
        From the second seed on, requests of one timestamp come in another
        order; without noise, all runs would else be equal."""
        options, first = self.options, int(self.options['seed'])

        def numbers(name):
            return [float(x) for x in options[name].split(',')] \
                if name in options else [-1]
        same = {'decode': int(options.get('decode', -1)),
                'cache-tokens': float(options.get('cache-tokens', -1))}
        return [
            {'label': label, 'policy': policy, 'speed': speed,
             'cluster': options['cluster'],
             'changes': same | {'prefill': nodes, 'link-gbps': link},
             'seed': first + k, 'source': {'ties_seed': first + k if k else 0},
             'slo_ttft_s': self.slo['ttft'], 'slo_tbt_s': self.slo['tbt'],
             'effective_ttft_s': self.effective['ttft'],
             'effective_tbt_s': self.effective['tbt']} |
            ({} if settings is None else {'settings': settings})
            for link in numbers('link-gbps') for nodes in numbers('prefill')
            for speed in numbers('speeds')
            for label, (policy, settings) in lines.items()
            for k in range(self.seeds)]

    def simulate(self, runner, runs):
        """Returns the runs with their results, and the files of requests."""
        files = []
        if 'requests-csv' in self.options:
            if len(runs) > REQUESTS_CSV_RUNS_MAX:
                raise Refused(f'--requests-csv: {len(runs)} simulations, must '
                              f'be at most {REQUESTS_CSV_RUNS_MAX}')
            for r in runs:
                files.append(tempfile.TemporaryFile())
                r['csv'] = f'/proc/{os.getpid()}/fd/{files[-1].fileno()}'
        answer = runner.ask(runs)
        if 'error' in answer:
            raise Refused(answer['error'])
        runner.end()
        return [q | r | flat(r) | {'policy': q['label']}
                for q, r in zip(runs, answer)], files

    def head(self, runs, policies):
        return {'requests': runs[0]['total'], 'cluster': runs[0]['cluster'],
                'admission': self.options.get('admission', 'plain'),
                'decodes': runs[0]['decodes'], 'seeds': self.seeds,
                'policies': policies, 'of_rules': 'rules' in self.options} | {
            f'{kind}_{name}_s': x for kind, of in (
                ('slo', self.slo), ('effective', self.effective))
            for name, x in of.items()}


def main(command):
    runner = Runner(command.program, 'compare-run', command.options, PASSED,
                    '--policies', ','.join(command.policies))
    try:
        facts = runner.read()
        try:
            lines = command.lines(facts)
        except Refused as why:
            command.complain(why)
            command.status = 2
            return
        runs, files = command.simulate(runner, command.runs(lines))
    except Ended:
        command.status = runner.end()
        return
    Comparison(command.head(runs, len(lines)), runs).print()
    command.output('csv', lambda: csv_of(runs, command.seeds))
    command.output('requests-csv', lambda: requests_csv(runs, files))
    command.output('plot', lambda: picture(runs, command.seeds))


if __name__ == '__main__':
    sys.exit(run(Command, main))
