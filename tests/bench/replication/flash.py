"""A trace in which one document is asked for by a flash crowd.

Other prompts come all the time, each on its own (their arrivals are those of
one Poisson process, their lengths are drawn from an exponential distribution
that is cut). One document is asked for at a usual rate; from --begin on, for
--crowd seconds, so many times as often. The trace has the form of the Mooncake
paper's (docs/internals/measurements/replication.md). The same arguments give the same bytes.
"""
import argparse
import heapq
import json
import random
import sys

BLOCK = 512  # tokens, of the trace's hash_ids


def parse():
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    add = parser.add_argument
    add('--seconds', type=float, default=300, help='of the trace')
    add('--begin', type=float, default=120, help='of the crowd')
    add('--crowd', type=float, default=60, help='seconds that it lasts')
    add('--times', type=float, default=50, help='as often as usual; 1: no crowd')
    add('--usual', type=float, default=0.2,
        help='requests for the document a second')
    add('--document', type=int, default=16384, help='its tokens')
    add('--question', type=int, default=500, help='mean tokens behind it')
    add('--others', type=float, default=10, help='other requests a second')
    add('--tokens', type=int, default=4000, help='their mean length')
    add('--longest', type=int, default=32768, help='their longest')
    add('--output', type=int, default=100, help='mean tokens of all answers')
    add('--seed', type=int, default=1)
    return parser.parse_args()


def arrivals(rng, options):
    """(second, is for the document)."""
    at, others = 0.0, []
    while options.others > 0:
        at += rng.expovariate(options.others)
        if at >= options.seconds:
            break
        others.append((at, False))
    at, document = 0.0, []
    most = options.usual * max(options.times, 1.0)
    while options.usual > 0:
        at += rng.expovariate(most)
        if at >= options.seconds:
            break
        crowd = options.begin <= at < options.begin + options.crowd
        rate = options.usual * (options.times if crowd else 1.0)
        if rng.random() < rate / most:
            document.append((at, True))
    return heapq.merge(others, document)


def draw(rng, mean, longest):
    return max(1, min(longest, round(rng.expovariate(1 / mean))))


def main():
    options = parse()
    rng = random.Random(options.seed)
    shared = options.document // BLOCK
    fresh = shared + 1
    for second, is_document in arrivals(rng, options):
        ids = list(range(1, shared + 1)) if is_document else []
        length = (shared * BLOCK + draw(rng, options.question, 4 * BLOCK)
                  if is_document else draw(rng, options.tokens,
                                           options.longest))
        own = -(-length // BLOCK) - len(ids)
        ids += range(fresh, fresh + own)
        fresh += own
        json.dump({'timestamp': round(second * 1000), 'input_length': length,
                   'output_length': draw(rng, options.output, 1024),
                   'hash_ids': ids}, sys.stdout, separators=(',', ':'))
        print()


if __name__ == '__main__':
    main()
