"""conductor-replay cake, cake-fluctuation and cake-adaptive, which run it with
PROGRAM COMMAND, and option=value for each of their options, checked. Plans and
steps come from the scheduler's core, by PROGRAM cake-run."""
import math
import os
import subprocess
import sys

from cake_input import OWN, read_calibration, read_table
from script import Refused, Script, json_text, percentile, run

ORDERS = 'fifo', 'uncached_first'

# The ways compared by cake-fluctuation: name, column.
WAYS = (('computed', 'compute_s'), ('loaded', 'load_s'),
        ('split as planned', 'split_s'), ('both until met', 'cake_s'),
        ('ideal', 'ideal_s'))


NO_MATPLOTLIB = ("not drawn, Python's matplotlib is missing: install Debian's "
                 'python3-matplotlib')


def mixed(x):
    """One value of splitmix64, as random_mix() (traces/random.h)."""
    x = (x + 0x9e3779b97f4a7c15) % 2 ** 64
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9 % 2 ** 64
    x = (x ^ x >> 27) * 0x94d049bb133111eb % 2 ** 64
    return x ^ x >> 31


class Unknown(Refused):
    """The calibration does not have the hardware or model."""


def make_engine(costs, row, what_is_chunk='chunk'):
    """Returns a row's constants, as cake-run takes them (process.h)."""
    hardware, model = row['hardware'], row['model']
    chunk, tokens = row['chunk'], costs['chunk_tokens']
    if model not in costs['kv_bytes_per_token']:
        raise Unknown('model: the calibration has no kv_bytes_per_token of '
                      f'"{model}"')
    if (hardware, model) not in costs['chunk_cost_s']:
        raise Unknown('hardware: the calibration has no chunk_cost_s of '
                      f'"{model}" on "{hardware}"')
    step = math.floor(chunk * row['util_pct'] + 0.5)
    if step < 1:
        raise Refused(f'util_pct: {100 * row["util_pct"]:g} % of a chunk of '
                      f'{chunk} tokens is less than one')
    # A step takes alpha of a chunk of its size, and beta for every step
    # before it.
    alpha, beta = costs['chunk_cost_s'][hardware, model]
    chunks = chunk / tokens
    a, b = alpha * chunks, beta * chunks * step / tokens
    if a < b:
        raise Refused(f'{what_is_chunk}: {chunk} tokens are too many for a '
                      f'calibration of chunks of {tokens}')
    piece_bytes = (float(costs['io_piece_tokens']) *
                   float(costs['kv_bytes_per_token'][model]) *
                   row['kv_bits'] / 16)
    # Step k of s tokens takes a + b k, so t tokens take, with k = t / s,
    #   T(t) = a k + b k (k - 1) / 2 = (a / s - b / 2s) t + (b / 2s^2) t^2
    # and u tokens behind p take T(p + u) - T(p): the cost model's form.
    s = float(step)
    return (row['seq_len'], step, costs['io_piece_tokens'], piece_bytes,
            costs['io_piece_s'],
            piece_bytes * 8 / (row['bandwidth_gbps'] * 1e9) +
            costs['io_piece_s'], costs['io_fixed_s'], costs['final_step_s'],
            (a / s - b / (2 * s)) * 1e6, b / (2 * s * s) * 1e6,
            b / (s * s) * 1e6)


MOST_S = 86400.0
COST_MAX_US = 1e12
COURSE_POINTS = 512  # most that are drawn


class Fluctuation:
    """A prompt whose engine draws its tokens before every step, and whose link
    draws its bandwidth every period: what each way of filling the cache takes.
    The same seed gives every way the same draws. The engine is one of
    make_engine(), of utilisation 1; `split`: tokens computed by a plan."""

    def __init__(self, engine, budget, gbps, period_s, seed, split):
        (self.n, self.step_tokens, self.piece_tokens, self.piece_bytes,
         self.extra_s, _, load_fixed_s, final_s, *self.cost) = engine
        self.budget, self.gbps, self.period_s = budget, gbps, period_s
        self.keys = [mixed(seed * 4 + kind) for kind in (1, 2)]
        self.compute_s = self.computed_s(self.n)
        self.load_s = self.loaded_s(self.n) + load_fixed_s
        self.split_s = max(self.computed_s(split),
                           self.loaded_s(self.n - split)) + final_s
        self.course = []  # (s, computed, not loaded) at the end of each step
        self.cake_s = self.meet() + final_s
        self.ideal_s = self.ideal()
        self.in_a_day = max(self.compute_s, self.load_s) < MOST_S

    def draw(self, kind, i):
        """Returns the i-th draw of its kind, uniform in [0, 1)."""
        return (mixed(self.keys[kind] + i) >> 11) * 2.0 ** -53

    def step(self, front):
        """Front: steps, time and tokens of the engine at the end of a step.
        Other requests fill the rest of the step, so its time is a full one's,
        as cost_model_prefill_us() (predictor/) has it."""
        steps, at_s, tokens = front
        u, (a, b, c) = float(self.step_tokens), self.cost
        us = min(max(1.0, u * (a + b * u + c * tokens)), COST_MAX_US)
        return (steps + 1, at_s + (int(us) + (us - int(us) >= 0.5)) * 1e-6,
                tokens + int(self.draw(0, steps) * (self.budget + 1.0)))

    def load(self, back, until_s, pieces):
        """Back: periods that are over, time and pieces of the loader. Loads
        until a time, or until so many pieces are loaded."""
        periods, at_s, loaded = back
        while at_s < until_s and loaded < pieces:
            gbps = self.gbps * self.draw(1, periods)
            piece_s = (self.piece_bytes * 8 / (gbps * 1e9) + self.extra_s
                       if gbps else math.inf)
            end_s = (periods + 1) * self.period_s
            stop_s = min(end_s, until_s, at_s + (pieces - loaded) * piece_s)
            loaded = (pieces if stop_s < end_s and stop_s < until_s else
                      min(pieces, loaded + (stop_s - at_s) / piece_s))
            at_s = stop_s
            periods += stop_s >= end_s
        return periods, at_s, loaded

    def computed_s(self, tokens):
        """Returns the end of the step in which so many are computed."""
        front = 0, 0.0, 0
        while front[2] < tokens and front[1] < MOST_S:
            front = self.step(front)
        return front[1]

    def loaded_s(self, tokens):
        pieces = math.ceil(tokens / self.piece_tokens)
        return self.load((0, 0.0, 0.0), MOST_S, pieces)[1]

    def meet(self):
        """Moves both until they meet; checked at the end of each step."""
        front, back, loaded = (0, 0.0, 0), (0, 0.0, 0.0), 0.0
        pieces = math.ceil(self.n / self.piece_tokens)
        while True:
            self.course.append((front[1], min(front[2], self.n),
                                max(self.n - loaded, 0)))
            if front[2] >= self.n - int(loaded) or front[1] >= MOST_S:
                break
            front = self.step(front)
            back = self.load(back, front[1], pieces)
            loaded = math.floor(back[2] + 1e-9) * float(self.piece_tokens)
        self.met_tokens = min(front[2], self.n)
        return front[1]

    def ideal(self):
        """As meet(), but tokens and pieces count continuously."""
        front, back = (0, 0.0, 0), (0, 0.0, 0.0)
        size, pieces = float(self.piece_tokens), self.n / self.piece_tokens
        while True:
            after = self.step(front)
            ahead = self.load(back, after[1], pieces)
            if after[2] + ahead[2] * size >= self.n or after[1] >= MOST_S:
                break
            front, back = after, ahead
        least_s, most_s = front[1], after[1]
        for _ in range(60):
            middle_s = (least_s + most_s) / 2
            share = (middle_s - front[1]) / (after[1] - front[1])
            tokens = (front[2] + share * (after[2] - front[2]) +
                      self.load(back, middle_s, pieces)[2] * size)
            if tokens < self.n:
                least_s = middle_s
            else:
                most_s = middle_s
        return most_s


class Command(Script):
    """What the commands share: costs, the core, output files."""

    def __init__(self, program, name, options):
        super().__init__(program, name, options)
        self.core = subprocess.Popen([program, 'cake-run'], text=True,
                                     stdin=subprocess.PIPE,
                                     stdout=subprocess.PIPE)

    def costs(self):
        path = self.options.get('calibration')
        return read_calibration(path) if path else OWN

    def ask(self, kind, *numbers):
        """Returns the words of the core's answer; None = it has none."""
        self.core.stdin.write(' '.join([kind, *map(repr, numbers)]) + '\n')
        self.core.stdin.flush()
        words = self.core.stdout.readline().split()
        return None if words in ([], ['error']) else words

    def plan(self, engine):
        """Returns compute_s, load_s, cake_s, split_tokens and the fastest."""
        words = self.ask('plan', *engine)
        return words and (*map(float, words[:3]), int(words[3]), words[4])

    def count(self, option):
        return int(self.options[option])

    def end(self):
        self.core.stdin.close()
        self.core.wait()

    def outputs(self, csv, kind, title, more=''):
        """Writes --csv, and --plot of the same data and more."""
        def draw():
            done = subprocess.run(
                [sys.executable, '-B', os.path.join(
                    os.path.dirname(__file__), 'draw.py'), kind, title],
                input=(csv + more).encode(), stdout=subprocess.PIPE,
                check=False)
            if done.returncode < 0:  # Ctrl-C goes to both
                os.kill(os.getpid(), -done.returncode)
            return (NO_MATPLOTLIB if done.returncode == 3 else
                    done.stdout if done.returncode == 0 else
                    'not drawn, its script failed')
        self.output('csv', csv.encode)
        self.output('plot', draw)


def predict(command, costs, row):
    """Adds the prediction to a row."""
    planned = command.plan(make_engine(costs, row))
    if not planned:
        raise Refused(f'seq_len: {row["seq_len"]} tokens take too long to '
                      'compute')
    compute_s, load_s, cake_s, split, best = planned
    io, compute = load_s / cake_s, compute_s / cake_s
    row.update(
        util_pct=100 * row['util_pct'], predicted_speedup_io=io,
        predicted_speedup_compute=compute,
        rel_error_io=abs(io / row['speedup_io'] - 1),
        rel_error_compute=abs(compute / row['speedup_compute'] - 1),
        predicted_cake_s=cake_s, predicted_load_s=load_s,
        predicted_compute_s=compute_s, split_tokens=split, fastest=best)


def print_table(rows, errors, skipped):
    print(' ' * 70 + f'{"speed-up over loading":<24}  over computing')
    print('%-8s %5s %6s  %-15s %7s %6s %4s  %8s  %7s %9s %6s  %7s %9s %6s  %s'
          % ('hardware', 'util', 'Gbit/s', 'model', 'tokens', 'chunk', 'bits',
             'TTFT (s)', 'paper', 'predicted', 'error', 'paper', 'predicted',
             'error', 'fastest'))
    for r in rows:
        print('%-8s %4g%% %6g  %-15s %7d %6d %4d  %8.3f  %7.2f %9.2f %5.1f%%  '
              '%7.2f %9.2f %5.1f%%  %s' % (
                  r['hardware'], r['util_pct'], r['bandwidth_gbps'],
                  r['model'], r['seq_len'], r['chunk'], r['kv_bits'],
                  r['predicted_cake_s'], r['speedup_io'],
                  r['predicted_speedup_io'], 100 * r['rel_error_io'],
                  r['speedup_compute'], r['predicted_speedup_compute'],
                  100 * r['rel_error_compute'], r['fastest']))
    (io, io_most), (compute, compute_most) = (
        (100 * percentile(e, 0.5), 100 * max(e)) for e in errors)
    print(f'\n{len(rows)} row{"" if len(rows) == 1 else "s"}. Relative error '
          f'over loading: median {io:.2f} %, largest {io_most:.2f} %;\n'
          f'over computing: median {compute:.2f} %, largest '
          f'{compute_most:.2f} %.')
    if skipped:
        print(f'{skipped} row{"" if skipped == 1 else "s"} skipped that the '
              'calibration does not know.')


CSV_FORMATS = {
    'hardware': '%s', 'util_pct': '%g', 'bandwidth_gbps': '%g', 'model': '%s',
    'seq_len': '%d', 'chunk': '%d', 'kv_bits': '%d', 'speedup_io': '%g',
    'speedup_compute': '%g', 'predicted_speedup_io': '%.4f',
    'predicted_speedup_compute': '%.4f', 'predicted_cake_s': '%.6f',
    'predicted_load_s': '%.6f', 'predicted_compute_s': '%.6f',
    'split_tokens': '%d', 'fastest': '%s'}


def cake(command):
    """Predicts a table, beside what the paper states."""
    options, costs = command.options, command.costs()
    table, known = read_table(options['table']), []
    try:
        for row in table:
            try:
                predict(command, costs, row)
                known.append(row)
            except Unknown:
                if 'skip-unknown' not in options:
                    raise
        if not known:
            raise Refused('no row is known to the calibration')
    except Refused as why:
        raise Refused(f'{options["table"]:.160}:{row["line"]}: '
                      f'{str(why):.300}') from None
    skipped = len(table) - len(known)
    errors = [[r[f'rel_error_{over}'] for r in known]
              for over in ('io', 'compute')]
    if 'json' in options:
        names = 'speedup_io', 'speedup_compute'
        for row in known:
            del row['line']
        print(json_text({
            'median_rel_error': dict(zip(names, [percentile(e, 0.5)
                                                 for e in errors])),
            'largest_rel_error': dict(zip(names, map(max, errors))),
            'skipped_rows': skipped, 'rows': known}, 12, indent=2,
            sort_keys=True, ensure_ascii=False))
    else:
        print_table(known, errors, skipped)
    command.outputs(
        ','.join(CSV_FORMATS) + '\n' +
        ''.join(','.join(CSV_FORMATS.values()) % tuple(
            r[name] for name in CSV_FORMATS) + '\n' for r in known),
        'cake', "Cake's speed-ups: published and predicted")


def experiment_engine(options, costs, utilisation, gbps):
    return make_engine(costs, {
        'hardware': options['hardware'], 'model': options['model'],
        'util_pct': utilisation, 'bandwidth_gbps': gbps,
        'seq_len': int(options['tokens']), 'chunk': costs['chunk_tokens'],
        'kv_bits': int(options['kv-bits'])})


def plan_means(command, costs):
    """Returns cake_s and split_tokens of the means: half the budget, half the
    bandwidth."""
    options, budget = command.options, command.count('budget')
    mean = budget / 2 / costs['chunk_tokens']
    if mean > 1:
        raise Refused(f'--budget {budget}: its mean is more than a step\'s '
                      f'{costs["chunk_tokens"]} tokens')
    planned = command.plan(experiment_engine(options, costs, mean,
                                             float(options['gbps']) / 2))
    if not planned:
        raise Refused(f'--tokens {options["tokens"]}: take too long to compute')
    return planned[2:4]


def print_fluctuation(options, seeds, times, planned):
    def mean_ratio(way):
        return sum(t[way] / t[3] for t in times) / len(times)

    print(f'simulated: {options["tokens"]} cached tokens of {options["model"]} '
          f'on {options["hardware"]}, budget 0 to {options["budget"]} tokens '
          f'a step,\nbandwidth 0 to {float(options["gbps"]):g} Gbit/s anew '
          f'every {float(options["period-ms"]):g} ms; seconds to the first '
          f'token\n\n{"seed":>6}' + ''.join(f'  {n:>16}' for n, _ in WAYS))
    for seed, t in zip(seeds, times):
        print(f'{seed:6}' + ''.join(f'  {x:16.3f}' for x in t))
    print('  mean' + ''.join(f'  {sum(x) / len(times):16.3f}'
                             for x in zip(*times)))
    worst = max(t[3] / min(t[0], t[1]) for t in times)
    print('\nTime to the first token over that of both until they meet, means '
          f'of the runs:\ncomputed {mean_ratio(0):.2f}, loaded '
          f'{mean_ratio(1):.2f}, split as planned {mean_ratio(2):.3f}, ideal '
          f'{mean_ratio(4):.3f}. Both took at most\n{worst:.2f} times the '
          'better of computed and loaded. From the mean budget and bandwidth\n'
          f'the load plan expects {planned[0]:.3f} s and {planned[1]} computed '
          'tokens.')


def cake_fluctuation(command):
    """Budget and bandwidth that change."""
    options, costs = command.options, command.costs()
    planned = plan_means(command, costs)
    engine = experiment_engine(options, costs, 1, float(options['gbps']))
    first = command.count('seed')
    seeds, runs = range(first, first + command.count('runs')), []
    for seed in seeds:
        run = Fluctuation(engine, command.count('budget'),
                          float(options['gbps']),
                          float(options['period-ms']) / 1e3, seed, planned[1])
        if not run.in_a_day:
            raise Refused(f'seed {seed}: the prompt takes more than a day')
        runs.append(run)
    times = [[getattr(run, way) for _, way in WAYS] for run in runs]
    print_fluctuation(options, seeds, times, planned)
    command.outputs(
        'seed,' + ','.join(c for _, c in WAYS) +
        ',met_tokens,planned_s,planned_tokens\n' +
        ''.join(f'{seed}' + ''.join(f',{x:.6f}' for x in t) +
                f',{run.met_tokens},{planned[0]:.6f},{planned[1]}\n'
                for seed, t, run in zip(seeds, times, runs)),
        'cake_fluctuation', 'Budget and bandwidth that change (simulated)',
        '\nat_s,computed_tokens,loaded_tokens\n' +
        ''.join('%.9g,%.9g,%.9g\n' % point
                for point in runs[0].course[:COURSE_POINTS]))


def cake_adaptive(command):
    """A cached prompt among short ones, in two orders."""
    options, costs = command.options, command.costs()
    runs, first = command.count('runs'), command.count('seed')
    least, most = command.count('short-min'), command.count('short-max')
    points = []
    for gbps in map(float, options['bandwidths'].split(',')):
        engine = experiment_engine(options, costs, 1, gbps)
        sums = {order: [0.0] * 5 for order in ORDERS}
        for seed in range(first, first + runs):
            for order in ORDERS:
                one = command.ask(order, *engine, seed, command.count('short'),
                                  least, most)
                sums[order] = [x + float(y) * (1 / runs)
                               for x, y in zip(sums[order], one)]
        points += [(gbps, order, *sums[order]) for order in ORDERS]
    print(f'simulated: {options["tokens"]} cached tokens of {options["model"]} '
          f'on {options["hardware"]}, then {options["short"]} prompts of '
          f'{least} to {most}\ntokens; means of {runs} runs\n\n'
          '%7s %-14s %9s %12s %12s %12s %10s %8s' % (
              'Gbit/s', 'order', 'all (s)', 'cached TTFT', 'short TTFT',
              'tokens/s', 'computed', 'gain'))
    for i, (gbps, order, done, cached, short, computed, rate) in enumerate(
            points):
        gain = ('' if i % 2 == 0 else
                f' {100 * (points[i - 1][2] / done - 1):+6.1f} %')
        print('%7g %-14s %9.3f %12.3f %12.3f %12.0f %10.0f%s' % (
            gbps, order, done, cached, short, rate, computed, gain))
    command.outputs(
        'bandwidth_gbps,order,runs,done_s,cached_ttft_s,short_ttft_mean_s,'
        'tokens_per_s,computed_tokens\n' +
        ''.join(f'{gbps:g},{order},{runs},{done:.6f},{cached:.6f},{short:.6f},'
                f'{rate:.3f},{computed:.1f}\n'
                for gbps, order, done, cached, short, computed, rate in points),
        'cake_adaptive', 'A cached prompt among short ones (simulated)')


def main(command):
    {'cake': cake, 'cake-fluctuation': cake_fluctuation,
     'cake-adaptive': cake_adaptive}[command.name](command)


if __name__ == '__main__':
    sys.exit(run(Command, main))
