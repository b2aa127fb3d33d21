"""The requests of a comparison: the conversation trace, made shorter, as
prompts of the tiny model (tests/engines/model.py), whose tokens are bytes."""
import gzip
import json
import random

SHORTER = 32         # a block of 512 tokens becomes one of 16
BLOCK_TOKENS = 16
TICK_S = 3.0         # the trace's times are multiples of it
FIRST_BYTE_ID = 4    # the vocabulary begins with four special tokens
# No letters that the vocabulary merges, and none that JSON escapes.
LETTERS = 'abcdfgijklmnopqrsuvwxyzABCDFGIJKLMNOPQRSUVWXYZ0123456789'


def ids_of(text):
    """The tokens of a text of LETTERS: GPT-2's order of bytes."""
    return [FIRST_BYTE_ID + ord(c) for c in text]


class Request:
    def __init__(self, due_s, text, max_tokens):
        self.due_s = due_s  # at the trace's own speed
        self.text = text
        self.max_tokens = max_tokens

    def body(self, as_text):
        return json.dumps({
            'model': 'tiny', 'max_tokens': self.max_tokens, 'stream': True,
            'prompt': self.text if as_text else ids_of(self.text),
            'ignore_eos': True, 'stream_options': {'include_usage': True}},
            separators=(',', ':')).encode()


def load(path, n, spread, salt):
    """The first n requests. `spread` moves arrivals to anywhere in their
    tick. Another salt makes other prompts that repeat each other alike, so
    that nothing of an earlier run is cached."""
    rng, requests = random.Random(1), []
    with gzip.open(path, 'rt') as lines:
        for line in lines:
            r = json.loads(line)
            n_tokens = max(2, r['input_length'] // SHORTER)
            text = ''.join(block(salt, h) for h in r['hash_ids'])
            due_s = r['timestamp'] / 1000
            if spread:
                due_s += rng.random() * TICK_S
            requests.append(Request(due_s, text[:n_tokens],
                                    max(1, r['output_length'] // SHORTER)))
            if len(requests) == n:
                break
    return sorted(requests, key=lambda r: r.due_s)


def block(salt, number):
    rng = random.Random(f'{salt} {number}')
    return ''.join(rng.choices(LETTERS, k=BLOCK_TOKENS))
