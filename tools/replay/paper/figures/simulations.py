"""Runs conductor-replay and reads its output files."""

import csv
import json
import os
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor


class Failed(Exception):
    """A run without a result; conductor-replay has printed why."""


class Result:
    """One simulation: its report, and its requests if wanted."""

    def __init__(self, report, requests_csv):
        self.report = report
        self.ttft_s = report['ttft_s']
        self.tbt_s = report['tbt_s']
        # (TTFT, TBT, predicted TTFT, prefill time); TBT -1 = one token only.
        self.answered = []
        self.requests, self.arrivals_s = 0, 0
        if requests_csv:
            with open(requests_csv, encoding='utf-8') as f:
                self.read(csv.reader(f))

    def read(self, rows):
        header = next(rows)
        outcome, at, *times = (header.index(name) for name in (
            'outcome', 'intended_s', 'ttft_s', 'tbt_s', 'predicted_ttft_s',
            'prefill_s'))
        for row in rows:
            self.requests += 1
            self.arrivals_s = float(row[at])
            if row[outcome] == 'completed' and row[times[0]]:
                self.answered.append([float(row[i] or -1) for i in times])

    def effective(self, ttft_s, tbt_s):
        """Returns how many requests are within both limits."""
        return sum(r[0] <= ttft_s and r[1] <= tbt_s for r in self.answered)

    def prefill_s(self):
        """Returns the mean prefill time of the completed requests."""
        return (sum(r[3] for r in self.answered) /
                self.report['requests']['completed'])


class Simulator:
    """Simulations of one trace."""

    def __init__(self, program, trace, clusters, part, jobs):
        self.program, self.trace, self.part = program, trace, part
        self.clusters, self.jobs = clusters, jobs

    def run(self, command, *args, needs):
        """Runs a command that writes the file `needs`."""
        done = subprocess.run(
            [self.program, command, '--trace', self.trace, *self.part,
             *map(str, args)], stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
            check=False)
        if not os.path.exists(needs):
            raise Failed(done.stderr.strip())
        return done.returncode

    def cluster(self, name):
        """Returns a cluster file's JSON, to change and pass to simulate()."""
        path = os.path.join(self.clusters, f'{name}.json')
        with open(path, encoding='utf-8') as f:
            return json.load(f)

    def simulate(self, requests, cluster, policy, *args):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, '')
            with open(path + 'c.json', 'w', encoding='utf-8') as f:
                json.dump(cluster, f)
            self.run('simulate', '--cluster', path + 'c.json', '--policy',
                     policy, '--block-tokens',
                     cluster['model']['block_tokens'], '--report',
                     path + 'r.json', *args,
                     *(['--requests-csv', path + 'r.csv'] if requests else []),
                     needs=path + 'r.json')
            with open(path + 'r.json', encoding='utf-8') as f:
                return Result(json.load(f), requests and path + 'r.csv')

    def simulate_all(self, cases, requests=True):
        """Simulates the cases (cluster, policy, options) in parallel. Returns
        their results in order, with each request's times if `requests`."""
        with ThreadPoolExecutor(self.jobs) as pool:
            return list(pool.map(lambda case: self.simulate(requests, *case),
                                 cases))

    def compare(self, name, path, *args):
        """Writes path.csv and path.svg. Returns the CSV's rows, and whether the
        picture was drawn."""
        status = self.run('compare', '--cluster',
                          os.path.join(self.clusters, f'{name}.json'),
                          '--jobs', self.jobs, '--csv', path + '.csv',
                          '--plot', path + '.svg', *args, needs=path + '.csv')
        with open(path + '.csv', encoding='utf-8') as f:
            rows = [{k: v if k == 'policy' else float(v or 'nan')
                     for k, v in r.items()} for r in csv.DictReader(f)]
        return rows, status == 0

    def facts(self, mtokens):
        """Returns the facts of `stats`; "lru" becomes the hit ratios of caches
        of mtokens million tokens."""
        lru = []
        for i in range(0, len(mtokens), 64):
            part = ','.join(f'{x:.17g}' for x in mtokens[i:i + 64])
            with tempfile.TemporaryDirectory() as folder:
                path = os.path.join(folder, 's.json')
                self.run('stats', '--capacities', part, '--json', path,
                         needs=path)
                with open(path, encoding='utf-8') as f:
                    facts = json.load(f)
            lru += [x['hit_ratio'] for x in facts['lru']]
        return facts | {'lru': dict(zip(mtokens, lru))}
