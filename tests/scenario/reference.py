"""What an infinite cache would reuse of a trace: the obvious way."""
import json

TRACE_BLOCK_TOKENS = 512


def read_trace(path, count):
    with open(path, encoding='utf-8') as lines:
        return [json.loads(line) for _, line in zip(range(count), lines)]


def infinite_cache_ratio(requests, length_scale):
    """Reused over input tokens, as conductor-replay scales them. Only full
    blocks can be reused, and of a prompt that is reused as a whole the last
    block is computed again, for a first token needs a forward pass."""
    block = TRACE_BLOCK_TOKENS // length_scale
    seen, reused, total = set(), 0, 0
    for request in requests:
        tokens = max(1, -(-request['input_length'] // length_scale))
        matched = 0
        for key in request['hash_ids'][:(tokens - 1) // block]:
            if key not in seen:
                break
            matched += 1
        reused += matched * block
        total += tokens
        seen.update(request['hash_ids'][:tokens // block])
    return reused / total
