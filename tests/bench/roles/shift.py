"""A trace whose prompts and answers change: phases of long prompts with short
answers, and of short prompts with long answers, in turn.

Requests of a phase come as one Poisson process; lengths are drawn from an
exponential distribution that is cut; every prompt is its own. --steady draws
one phase that has both in halves, all the time. The trace has the form of the
Mooncake paper's. The same arguments give the same bytes.
"""
import argparse
import json
import random
import sys

BLOCK = 512  # tokens, of the trace's hash_ids


def parse():
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    add = parser.add_argument
    add('--seconds', type=float, default=2400, help='of the trace')
    add('--phase', type=float, default=600, help='seconds of a phase')
    add('--prompts', type=float, nargs=3, default=(7, 12000, 200),
        metavar=('PER_S', 'PROMPT', 'ANSWER'),
        help='the first phase: requests a second, and mean tokens')
    add('--answers', type=float, nargs=3, default=(24, 1500, 1200),
        metavar=('PER_S', 'PROMPT', 'ANSWER'), help='the second one')
    add('--steady', action='store_true')
    add('--speed', type=float, default=1, help='times as many requests')
    add('--seed', type=int, default=1)
    return parser.parse_args()


def draw(rng, mean, longest):
    return max(2, min(int(longest), round(rng.expovariate(1 / mean))))


def main():
    options = parse()
    rng = random.Random(options.seed)
    kinds = options.prompts, options.answers
    at, fresh = 0.0, 1
    most = sum(k[0] for k in kinds) * options.speed
    while True:
        at += rng.expovariate(most)
        if at >= options.seconds:
            return
        u = rng.random() * sum(k[0] for k in kinds)
        kind = 0 if u < kinds[0][0] else 1
        if options.steady:
            if rng.random() < 0.5:
                continue
        elif int(at / options.phase) % 2 != kind:
            continue
        length = draw(rng, kinds[kind][1], 8 * kinds[kind][1])
        n = -(-length // BLOCK)
        json.dump({'timestamp': round(at * 1000), 'input_length': length,
                   'output_length': draw(rng, kinds[kind][2],
                                         8 * kinds[kind][2]),
                   'hash_ids': list(range(fresh, fresh + n))}, sys.stdout,
                  separators=(',', ':'))
        print()
        fresh += n


if __name__ == '__main__':
    main()
