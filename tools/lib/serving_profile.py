"""Measures prefills as they are served, through a running cluster.

  serving_profile.py trace BLOCK_TOKENS
      prints a trace for `conductor-replay live --max-in-flight 1`: every point
      of a grid ROUNDS times, in random order
  serving_profile.py rows REQUESTS.csv PROFILE.csv
      prints PROFILE.csv, of `conductor-worker --profile`, with the prefills of
      REQUESTS.csv instead of its own
"""
import csv
import json
import random
import sys

# A machine's speed changes for about a round: the median of several rounds
# shows its usual speed.
ROUNDS = 5
UNCACHED = 16, 48, 128, 256, 512, 1024, 2048, 4096
CACHED = 0, 256, 1024, 3072
MOST = 4096

# After the pause the worker sleeps, and the processor's caches are cold.
PAUSE_MS = 100
TOKEN_MS = 0.06


class Prompts:
    """Makes prompts of blocks: a shared front, then new blocks."""

    def __init__(self, block_tokens):
        self.block_tokens = block_tokens
        self.front = list(range(MOST // block_tokens))
        self.next_id = len(self.front)

    def make(self, uncached, cached):
        tokens = cached + uncached
        ids = self.front[:cached // self.block_tokens]
        while len(ids) * self.block_tokens < tokens:
            ids.append(self.next_id)
            self.next_id += 1
        return ids


def print_trace(block_tokens):
    prompts = Prompts(block_tokens)
    at_ms = 0.0

    def ask(tokens, ids):
        nonlocal at_ms
        # Two tokens of output need a decode: KV is pushed during the prefill.
        print(json.dumps({'timestamp': int(at_ms), 'input_length': tokens,
                          'output_length': 2, 'hash_ids': ids}))
        at_ms += PAUSE_MS + TOKEN_MS * tokens

    grid = [(u, c) for u in UNCACHED for c in CACHED
            if u + c <= MOST and c % block_tokens == 0]
    order = random.Random(1)
    ask(MOST, prompts.front)
    for _ in range(ROUNDS):
        order.shuffle(grid)
        for uncached, cached in grid:
            ask(uncached + cached, prompts.make(uncached, cached))


def print_rows(requests, profile):
    with open(profile, encoding='utf-8') as file:
        sys.stdout.writelines(line for line in file
                              if not line.startswith('prefill,'))
    with open(requests, encoding='utf-8') as file:
        rows = list(csv.DictReader(file))
    if any(row['outcome'] != 'completed' for row in rows):
        sys.exit(f'{requests}: a request failed')
    # Skips the worker's first request, which warms it up.
    for row in rows[1:]:
        cached = int(row['prompt_tokens']) - int(row['computed_tokens'])
        us = max(1, 1e6 * float(row['prefill_s']))
        print(f'prefill,{row["computed_tokens"]},{cached},,,{us:.1f}')


def main():
    if len(sys.argv) == 3 and sys.argv[1] == 'trace':
        print_trace(int(sys.argv[2]))
    elif len(sys.argv) == 4 and sys.argv[1] == 'rows':
        print_rows(*sys.argv[2:])
    else:
        sys.exit(__doc__)


if __name__ == '__main__':
    main()
