"""A comparison: its options, its engines, and one router under one load."""
import argparse
import os
import statistics
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(HERE)))
sys.path.append(os.path.join(ROOT, 'tests', 'scenario'))

import client  # noqa: E402
import servers  # noqa: E402
import work  # noqa: E402


def slo_s(n_tokens):
    """The limit of a prompt's first token: four times what it takes alone."""
    return 4 * (3.9 + 0.068 * n_tokens) / 1000


def machine_s():
    """(busy, all) seconds of all processors since the start."""
    with open('/proc/stat', encoding='ascii') as f:
        t = [int(x) for x in f.readline().split()[1:9]]
    hz = os.sysconf('SC_CLK_TCK')
    return (sum(t) - t[3] - t[4]) / hz, sum(t) / hz


def at(values, q):
    return sorted(values)[min(len(values) - 1, int(q * len(values)))]


class Run:
    """One router under one load, with what it cost."""

    def __init__(self, router, requests, speed):
        self.router = router
        everything = router.pids() + router.helper_pids()
        engine_pids = (router.engines.engine_pids() if router.helper_pids()
                       else [e.process.pid for e in router.mockers])
        before = [servers.cpu_s(p) for p in (
            router.pids(), everything, engine_pids, [os.getpid()])]
        machine = machine_s()
        self.outcomes, self.wall_s = client.play(
            router.port, requests, speed, router.as_text)
        after = [servers.cpu_s(p) for p in (
            router.pids(), everything, engine_pids, [os.getpid()])]
        busy, total = (b - a for a, b in zip(machine, machine_s()))
        self.cpu = [b - a for a, b in zip(before, after)]
        self.busy = busy / total
        self.others = max(0.0, busy - sum(self.cpu[1:])) / total

    def row(self):
        n = len(self.outcomes)
        ok = [o for o in self.outcomes
              if o.status == 200 and o.ttft_s is not None]
        ttft = [o.ttft_s * 1000 for o in ok] or [0.0]
        within = sum(o.ttft_s <= slo_s(len(o.request.text)) for o in ok)
        return {
            'requests': n, 'failed': n - len(ok),
            'ttft_mean_ms': statistics.fmean(ttft),
            'ttft_p50_ms': at(ttft, .5), 'ttft_p99_ms': at(ttft, .99),
            'hits_percent': 100 * sum(o.cached for o in ok) /
            max(1, sum(len(o.request.text) for o in ok)),
            'slo_percent': 100 * within / n,
            'goodput': within / self.wall_s,
            'e2e_mean_ms': statistics.fmean(
                [o.end_s * 1000 for o in ok if o.end_s] or [0.0]),
            'cpu_ms': 1000 * self.cpu[0] / n,
            'cpu_all_ms': 1000 * self.cpu[1] / n,
            'busy_percent': 100 * self.busy,
            'others_percent': 100 * self.others,
            'lag_p99_ms': 1000 * at([o.lag_s for o in self.outcomes], .99)}


class Comparison:
    def __init__(self, options, site):
        self.options, self.site = options, site
        self.engines = servers.Engines(site)
        self.salt = int(time.time())

    def requests(self, arrivals):
        self.salt += 1
        return work.load(self.options.trace, self.options.requests,
                         arrivals == 'spread', self.salt)

    def capacity(self):
        """Requests a second, all at once through nginx."""
        router = servers.Nginx(self.site, self.engines)
        router.settle()
        run = Run(router, self.requests('spread'), 0)
        router.stop()
        return len(run.outcomes) / run.wall_s

    def one(self, name, arrivals, rate):
        requests = self.requests(arrivals)
        span_s = requests[-1].due_s - requests[0].due_s
        router = servers.ROUTERS[name](self.site, self.engines)
        try:
            router.settle()
            return Run(router, requests, rate * span_s / len(requests)).row()
        finally:
            router.stop()


def parser(text):
    """Of the options that all programs here have."""
    options = argparse.ArgumentParser(
        description=text, usage=argparse.SUPPRESS,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument('--build', default=os.path.join(ROOT, 'build'))
    options.add_argument('--venv',
                        default=os.path.join(ROOT, 'run', 'side-by-side'))
    options.add_argument('--trace', default=os.path.join(
        ROOT, '..', 'shared', 'traces', 'conversation_trace.jsonl.gz'))
    options.add_argument('--loads', default='0.5,0.8')
    options.add_argument('--requests', type=int, default=1500)
    options.add_argument('--arrivals', default='spread')
    options.add_argument('--capacity', type=float, default=0)
    options.add_argument('--nagle', action='store_true')
    return options


def read(options):
    """The options as they were given, with absolute paths."""
    given = options.parse_args()
    given.build = os.path.abspath(given.build)
    given.venv = os.path.abspath(given.venv)
    return given
