"""The description of a sweep, and the case of a number.

Case k depends on the description, the sweep's seed and k alone, so that it can
be repeated by itself. The format is in docs/plan/sweep.md.
"""
import math
import os
from types import SimpleNamespace

from script import Fields, Refused, nearest

BLOCK_TOKENS = 512  # of traces
MASK = (1 << 64) - 1
# Limits of the search for a rate.
RATE_START, RATE_MIN, RATE_MAX = 4.0, 1e-3, 1e5
RATE_STEPS_MAX, RATE_TOLERANCE = 12, 0.03
TERM_MAX_US, TOKENS_MAX = 1e9, 10 ** 12
REQUESTS_MAX = 1000000  # of a case: they are in memory at once
HARDWARE_MAX, TRACES_MAX, NODES_MAX = 8, 16, 512
NAME_BYTES, PATH_BYTES = 63, 1023
# {range: its limits} of every case, and those that come with a share of cases.
RANGES = {
    'requests': (1, REQUESTS_MAX), 'nodes': (2, NODES_MAX),
    'balance': (0.01, 100), 'link_gbps': (1e-3, 1e6), 'load': (0.01, 100),
    'slo_ttft_s': (1e-3, 1e6), 'slo_tbt_s': (1e-4, 1e6),
    'prefill_error_sigma': (0, 2), 'decode_error_sigma': (0, 2),
    'slow_nodes': (0, 1), 'slow_speed': (0.01, 100)}
SHARES = 'aggregated', 'disks', 'unequal', 'errors'
OPTIONAL = {
    'asks': {'max_tokens': (1, 1 << 24)},
    'small_caches': {'cache': (1e-4, 100)},
    'mixed': {'mixed_nodes': (0, 1), 'mixed_cost': (0.01, 100),
              'mixed_memory': (0.01, 100)}}


class Random:
    """xoshiro256**, as in traces/random.h."""

    def __init__(self, seed):
        self.s = [mix(seed + i * 0x9e3779b97f4a7c15) for i in range(4)]

    def u64(self):
        s = self.s
        result = rotate_left(s[1] * 5 & MASK, 7) * 9 & MASK
        t = s[1] << 17 & MASK
        s[2] ^= s[0]
        s[3] ^= s[1]
        s[1] ^= s[2]
        s[0] ^= s[3]
        s[2] ^= t
        s[3] = rotate_left(s[3], 45)
        return result

    def of(self, items):
        return items[(self.u64() >> 32) * len(items) >> 32]

    def uniform(self):
        """Returns a number in [0, 1)."""
        return (self.u64() >> 11) * 2.0 ** -53

    def within(self, ends):
        return ends[0] + (ends[1] - ends[0]) * self.uniform()

    def log_within(self, ends):
        """Uniform on a logarithmic scale, for orders of magnitude."""
        return math.exp(self.within([math.log(x) for x in ends]))


def mix(x):
    """One value of splitmix64."""
    x = x + 0x9e3779b97f4a7c15 & MASK
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9 & MASK
    x = (x ^ x >> 27) * 0x94d049bb133111eb & MASK
    return x ^ x >> 31


def rotate_left(x, k):
    return x << k & MASK | x >> 64 - k


def read_numbers(fields, name, n):
    x = fields.members.get(name)
    if not isinstance(x, list) or len(x) != n:
        fields.refuse_value(name, f'an array of {n} numbers')
    for i, value in enumerate(x):
        if type(value) not in (int, float):
            Fields(fields.file, {f'{name}[{i}]': value},
                   fields.where).refuse_value(f'{name}[{i}]', 'a number')
    return [float(value) for value in x]


def read_range(fields, name, least, most):
    ends = read_numbers(fields, name, 2)
    if not least <= ends[0] <= ends[1] <= most:
        fields.refuse_value(
            name, f'[least, most] from {least:g} to {most:g}')
    return ends


def read_terms(fields, name, n):
    us = read_numbers(fields, name, n)
    for i, x in enumerate(us):
        if not 0 <= x <= TERM_MAX_US:
            fields.refuse(name, f'term {i}: {x:g} us: must be 0 to '
                          f'{TERM_MAX_US:g}')
    return us


def read_hardware(fields, tiers):
    """Returns a node's model, costs and memory."""
    fields.known('name layers kv_bytes_per_token prefill_us decode_us '
                 f'kv_tokens max_batch step_tokens {" ".join(tiers)}')
    h = SimpleNamespace(
        name=fields.text('name', NAME_BYTES),
        layers=fields.number('layers', 1, 10000, True),
        kv_bytes=fields.number('kv_bytes_per_token', 1, 1 << 30, True),
        prefill_us=read_terms(fields, 'prefill_us', 4),
        decode_us=read_terms(fields, 'decode_us', 3))
    for name in 'prefill_us', 'decode_us':
        us = getattr(h, name)
        if not us[0] + us[1] > 0:
            fields.refuse(name, 'no cost')
    h.kv_tokens = fields.number('kv_tokens', 1, TOKENS_MAX, True)
    h.max_batch = fields.number('max_batch', 1, 1 << 16, True)
    h.step_tokens = fields.number('step_tokens', 1, 1 << 30, True)
    h.tiers = {}  # the disk only in cases with disks
    for i, name in enumerate(tiers):
        if i > 0 and name not in fields.members:
            continue
        tier = fields.object(name)
        tier.known('tokens gbytes_per_s')
        h.tiers[name] = {'tokens': tier.number('tokens', 1, TOKENS_MAX, True)}
        if 'gbytes_per_s' in tier.members:
            h.tiers[name]['gbytes_per_s'] = tier.number('gbytes_per_s', 1e-6,
                                                        1e9)
    return h


def read_trace(fields, workloads):
    fields.known('name like file length_scale')
    t = SimpleNamespace(name=fields.text('name', NAME_BYTES), like=None,
                        file=None)
    if 'file' in fields.members:
        if 'like' in fields.members:
            fields.refuse('like', 'does not go with "file"')
        # It is relative to the description.
        t.file = os.path.join(os.path.dirname(fields.file),
                              fields.text('file', PATH_BYTES // 2))
        if len(os.fsencode(t.file)) > PATH_BYTES:
            fields.refuse('file', 'too long')
    else:
        t.like = fields.text('like', NAME_BYTES)
        if t.like not in workloads:
            fields.refuse_value('like', 'a workload of `generate`')
    t.scale = fields.number('length_scale', 1, BLOCK_TOKENS, True) \
        if 'length_scale' in fields.members else 1
    if BLOCK_TOKENS % t.scale != 0:
        fields.refuse_value('length_scale', 'a divisor of 512')
    return t


class Description:
    """The ranges and shares from which cases are drawn."""

    def __init__(self, fields, workloads, tiers):
        self.workloads, self.tiers = workloads, tiers
        fields.constant('format', 'conductor-sweep')
        fields.constant('version', 1)
        fields.known(' '.join([
            'format version name about hardware traces', *RANGES, *SHARES,
            *OPTIONAL, *(name for of in OPTIONAL.values() for name in of)]))
        self.name = fields.text('name', NAME_BYTES)
        for name, limits in RANGES.items():
            needed = name != 'slo_tbt_s' or name in fields.members
            setattr(self, name, read_range(fields, name, *limits) if needed
                    else [0.0, 0.0])
        for name in SHARES:
            setattr(self, name, fields.number(name, 0, 1))
        for share, ranges in OPTIONAL.items():
            some = share in fields.members and fields.number(share, 0, 1)
            setattr(self, share, some or 0.0)
            for name, limits in ranges.items():
                setattr(self, name, read_range(fields, name, *limits) if some
                        else None)
        self.hardware = [read_hardware(one, tiers) for one in fields.objects(
            'hardware', HARDWARE_MAX)]
        self.traces = [read_trace(one, workloads) for one in fields.objects(
            'traces', TRACES_MAX)]

    def add_file(self, path):
        """Adds a trace file."""
        if len(self.traces) == TRACES_MAX or len(
                os.fsencode(path)) > PATH_BYTES:
            raise Refused(f'--trace {path}: too long, or more than '
                          f'{TRACES_MAX}')
        name = os.fsencode(path.rpartition('/')[2])[:60]
        self.traces.append(SimpleNamespace(
            name=os.fsdecode(name), like=None, file=path, scale=1))

    def draw(self, seed, number):
        """Returns what is drawn for a case. Every number is drawn in every
        case, so that a changed share changes nothing else; what a description
        may leave out comes last."""
        r = Random(mix(seed) + mix(number + 1))
        d = SimpleNamespace(
            number=number, seed=1 + (r.u64() >> 12),  # JSON holds it; not 0
            hardware=r.of(self.hardware), trace=r.of(self.traces))
        d.requests = nearest(r.within(self.requests))
        d.nodes = nearest(r.log_within(self.nodes))
        d.balance = r.log_within(self.balance)
        d.link_gbps = r.log_within(self.link_gbps)
        d.load = r.within(self.load)
        d.slo_ttft_s = r.log_within(self.slo_ttft_s)
        d.aggregated = r.uniform() < self.aggregated
        d.disks = (r.uniform() < self.disks and not d.aggregated and
                   self.tiers[-1] in d.hardware.tiers)
        unequal = r.uniform() < self.unequal
        d.slow_nodes = r.within(self.slow_nodes) * unequal  # share; 0 = none
        d.slow_speed = r.within(self.slow_speed)
        errors = r.uniform() < self.errors
        d.prefill_error_sigma = r.within(self.prefill_error_sigma) * errors
        d.decode_error_sigma = r.within(self.decode_error_sigma) * errors
        d.slo_tbt_s = (r.log_within(self.slo_tbt_s) if self.slo_tbt_s[1] > 0
                       else 0.0)
        # 0 = the exact output, one kind of nodes, the hardware's memory.
        d.max_tokens, d.cache = 0, 0.0
        d.mixed_nodes = d.mixed_cost = d.mixed_memory = 0.0
        if self.asks > 0:
            asks = r.uniform() < self.asks
            d.max_tokens = nearest(r.log_within(self.max_tokens)) * asks
        if self.mixed > 0:
            mixed = r.uniform() < self.mixed
            d.mixed_nodes = r.within(self.mixed_nodes) * mixed
            d.mixed_cost = r.log_within(self.mixed_cost)
            d.mixed_memory = r.log_within(self.mixed_memory)
        if self.small_caches > 0:
            small = r.uniform() < self.small_caches
            d.cache = r.log_within(self.cache) * small
        return d


class Case:
    """A case ready to simulate: what was drawn, as a cluster at its load.
    `ask` answers questions about work (run.c)."""

    def __init__(self, draw, sessions, ask):
        self.draw, self.ask = draw, ask
        self.speed, self.rate, self.load = 1.0, 0.0, 0.0
        h, d = draw.hardware, draw
        self.block = BLOCK_TOKENS // d.trace.scale
        self.prefill, self.decode, self.coupled = (
            (0, 0, 1) if d.aggregated else (1, 1, 0))
        self.kv_tokens = h.kv_tokens
        self.tiers = {name: tier for name, tier in h.tiers.items()
                      if d.disks or name != 'disk'}
        work = self.work(infinite=True)
        self.split(work)
        self.shrink(work)
        self.set_load(sessions)

    def split(self, work):
        """Splits the nodes in proportion to the work, times the balance."""
        d = self.draw
        if d.aggregated:
            self.coupled = d.nodes
            return
        share = work['prefill_s'] / (work['prefill_s'] + work['decode_s'])
        self.prefill = min(max(nearest(d.nodes * share * d.balance), 1),
                           d.nodes - 1)
        self.decode = d.nodes - self.prefill

    def scaled(self, tokens, times):
        """Returns tokens times a factor, in whole blocks, at least one."""
        return max(nearest(tokens * times / self.block), 1) * self.block

    def shrink(self, work):
        """Reduces the memory to the device, with room for at least two of the
        longest requests; four on coupled nodes, whose decodes share it."""
        if not self.draw.cache > 0:
            return
        least = (4 if self.coupled else 2) * work['longest_tokens']
        tokens = self.scaled(work['touched_tokens'],
                             self.draw.cache / (self.prefill + self.coupled))
        if tokens < least:
            tokens = self.scaled(least, 1.0) + self.block
        if self.coupled:
            self.kv_tokens = tokens
        self.tiers = {'device': {'tokens': tokens}}

    def groups(self, nodes, decodes):
        """Returns the groups of a role: its last nodes, at least one, have
        other costs and memory."""
        d, h = self.draw, self.draw.hardware
        if not d.mixed_nodes > 0 or nodes == 0:
            return {}
        n = max(nearest(nodes * d.mixed_nodes), 1)
        group = {'nodes': n}
        if not decodes:
            group['prefill_us'] = [x * d.mixed_cost for x in h.prefill_us]
        if decodes or self.coupled:
            group['decode_us'] = [x * d.mixed_cost for x in h.decode_us]
            group['kv_tokens'] = self.scaled(self.kv_tokens, d.mixed_memory)
        else:
            group |= {name: tier | {'tokens': self.scaled(
                tier['tokens'], d.mixed_memory)}
                for name, tier in self.tiers.items()}
        return {'groups': [{'nodes': nodes - n}] * (n < nodes) + [group]}

    def speeds(self):
        """The first nodes of each role are slow, at least one that
        prefills."""
        d, first = self.draw, self.prefill + self.coupled
        if not d.slow_nodes > 0:
            return {}
        slow = max(nearest(first * d.slow_nodes), 1)
        slow_decodes = nearest(self.decode * d.slow_nodes)
        return {'node_speed': [
            d.slow_speed if i < slow else 1.0 for i in range(first)] + [
            d.slow_speed if i < slow_decodes else 1.0
            for i in range(self.decode)]}

    def cluster(self):
        """Returns the content of its cluster file."""
        d, h = self.draw, self.draw.hardware
        memory = {'kv_tokens': self.kv_tokens, 'max_batch': h.max_batch}
        first = {'nodes': self.prefill + self.coupled,
                 'step_tokens': h.step_tokens} | self.groups(
            self.prefill + self.coupled, False)
        if self.coupled:
            roles = {'coupled': first | memory | {'mix_requests': True}}
        else:
            roles = {'prefill': first | self.tiers,
                     'decode': {'nodes': self.decode} | memory |
                     self.groups(self.decode, True)}
        return roles | self.speeds() | {
            'format': 'conductor-cluster', 'version': 1,
            'name': f'case-{d.number}',
            'model': {'layers': h.layers, 'kv_bytes_per_token': h.kv_bytes,
                      'block_tokens': self.block},
            'cost': {'kind': 'polynomial', 'prefill_us': h.prefill_us,
                     'decode_us': h.decode_us},
            'links': {'gbps': d.link_gbps},
            'prefill_error_sigma': d.prefill_error_sigma,
            'decode_error_sigma': d.decode_error_sigma} | (
            {'max_tokens': {'fixed': d.max_tokens}} if d.max_tokens else {})

    def source(self, i):
        """Returns the requests for its i-th seed: another generated trace, or
        the file with another order of equal timestamps."""
        d, t = self.draw, self.draw.trace
        return {'requests': d.requests, 'length_scale': t.scale,
                'block_tokens': BLOCK_TOKENS} | (
            {'path': t.name, 'like': t.like, 'like_seed': d.seed + i,
             'like_rate': self.rate} if t.like else
            {'path': t.file, 'ties_seed': d.seed + i if i > 0 else 0})

    def work(self, infinite=False):
        """Reads the trace's work."""
        return self.answer(self.ask({
            'cluster': self.cluster(), 'source': self.source(0),
            'infinite': infinite}))

    def answer(self, answer):
        if 'error' in answer:
            raise Refused(f'case {self.draw.number}: {answer["error"]}')
        return answer

    def set_load(self, sessions):
        """Sets the speed, or the rate of sessions, that gives the load: a rate
        scales only the starts of sessions."""
        if sessions:
            self.search_rate()
            return
        work = self.work()
        self.load = self.draw.load
        self.speed = self.load * work['span_s'] / work['least_s']

    def search_rate(self):
        """The load grows with the square root of the rate while sessions only
        begin, and in proportion once as many end. So each step uses the slope
        of the last two."""
        slope, last_rate, last_load = 1.0, 0.0, 0.0
        self.rate = RATE_START
        for i in range(RATE_STEPS_MAX + 1):
            work = self.work()
            self.load = work['least_s'] / work['span_s']
            off = math.log(self.draw.load / self.load)
            if i == RATE_STEPS_MAX or abs(off) < RATE_TOLERANCE:
                break
            if i > 0 and abs(math.log(self.rate / last_rate)) > 1e-6:
                slope = (math.log(self.load / last_load) /
                         math.log(self.rate / last_rate))
            slope = min(max(slope, 0.3), 3.0)
            last_rate, last_load = self.rate, self.load
            self.rate *= math.exp(off / slope)
            self.rate = min(max(self.rate, RATE_MIN), RATE_MAX)
