"""What the Cake paper's process takes, walked step by step."""
import math


def steps_s(cost, calibration, row, tokens):
    """Time of the first steps of a prompt, each as long as a full chunk there;
    of one that has fewer tokens left, the part of a step that they are."""
    chunks = row['chunk'] / calibration['chunk_tokens']
    step = row['chunk'] * row['util_pct'] / 100
    k = tokens / step
    per_step = cost['beta'] * chunks * step / calibration['chunk_tokens']
    return cost['alpha'] * chunks * k + per_step * k * (k - 1) / 2


def walk(calibration, row):
    """(cake_s, load_s, compute_s, split_tokens) of one row."""
    cost = next(c for c in calibration['chunk_cost_s']
                if c['hardware'] == row['hardware'] and
                c['model'] == row['model'])
    piece_bits = (calibration['io_piece_tokens'] * 8 * row['kv_bits'] / 16 *
                  calibration['kv_bytes_per_token'][row['model']])
    piece_s = (piece_bits / row['bandwidth_gbps'] / 1e9 +
               calibration['io_piece_s'])
    n = row['seq_len']
    step = round(row['chunk'] * row['util_pct'] / 100)

    def load_s(tokens):
        return math.ceil(tokens / calibration['io_piece_tokens']) * piece_s

    at = 0
    while True:
        at = min(at + step, n)
        now_s = steps_s(cost, calibration, row, at)
        if load_s(n - at) <= now_s:
            break
    return (now_s + calibration['final_step_s'],
            load_s(n) + calibration['io_fixed_s'],
            steps_s(cost, calibration, row, n), at)
