"""Makes traces/clusters/nodes from published measurements.

    fit_nodes.py silicon_sample.csv[.gz] FOLDER

The points are those of ai-dynamo/aiconfigurator (InferenceX): engines that
serve a fixed number of requests at once, of one prompt and answer length. With
B requests of n + m tokens an answer's token comes after

    TPOT = d0 + d1 B + d2 B (n + m / 2) + (B - 1) / m P(n)

a decode step, and the prompts of the others, P(n) = p1 n + p2 n^2, that are
computed between two tokens; and the first one, while few are served, after

    TTFT = d0 + P(n) (1 + (B - 1) / 20 + r / (2 (1 - r)))

as a tenth of the requests begin at once, and the others wait for prompts that
take r = (B - 1) P(n) / (m TPOT) of the time, as in a queue M/D/1. p2 is p1
times the ratio of the operations, at half the rate (attention is in bf16, the
rest in fp8). d0, d1, p1 are fitted, d2 is the KV's time at 80 % of the memory's
bandwidth. Half of the points, B = 8 and 32, are not used: they tell the error.
"""
import csv
import gzip
import json
import os
import sys

import numpy

MODEL = {'layers': 80, 'kv_bytes_per_token': 327680, 'block_tokens': 512}
PARAMETERS, WIDTH = 70.6e9, 8192
ATTENTION = 2 * (2 * MODEL['layers'] * WIDTH) / (2 * PARAMETERS)
USED, KEPT = (4, 16, 64), (8, 32)
# Card: bytes of memory, bytes a second, US dollars an hour.
CARDS = {'h100': (80e9, 3.35e12, 2.69), 'h200': (141e9, 4.8e12, 3.59),
         'b200': (180e9, 8e12, 5.98)}
NODES = [('h100', 2), ('h200', 4), ('b200', 1), ('b200', 4)]
PRICES = ('RunPod, on demand, {} US dollars for a card and hour, as listed by '
          'deploybase.ai/articles/b200-vs-h200-vs-h100 (the page has no date). Put '
          'in what you are offered.')


def read_points(path):
    with (gzip.open if path.endswith('.gz') else open)(path, 'rt') as f:
        return [r for r in csv.DictReader(f)
                if (r['mode'], r['backend'], r['gemm_quant_mode'],
                    r['model_path']) == ('agg', 'vllm', 'fp8',
                                         'meta-llama/Llama-3.1-70B')]


class Node:
    def __init__(self, card, cards, points):
        memory, bytes_per_s, price = CARDS[card]
        self.name, self.price = f'{card}x{cards}', round(cards * price, 2)
        self.card_price = price
        self.kv_tokens = int((0.9 * memory - 3e9) * cards - PARAMETERS) // (
            MODEL['kv_bytes_per_token'])
        self.kv_us = (MODEL['kv_bytes_per_token'] /
                      (cards * bytes_per_s * 0.8) * 1e6)
        # Where the requests do not fit into the memory, most of a TTFT is
        # spent waiting for room.
        self.points = [
            (b, n, m, float(p['silicon_ttft_ms']) * 1e3,
             float(p['silicon_tpot_ms']) * 1e3) for p in points
            if (p['system'], p['tp_size']) == (f'{card}_sxm', str(cards))
            for b, n, m in [[int(p[k]) for k in ('batch_size', 'isl', 'osl')]]
            if b * (n + m) <= self.kv_tokens]
        self.fit()

    @staticmethod
    def prompt(n):
        return n + ATTENTION * n * n

    def ttft_terms(self, b, n, m, tpot):
        """Returns what d0, d1 and p1 are multiplied by in a TTFT."""
        r = min(0.9, (b - 1) * self.p1 * self.prompt(n) / (m * tpot))
        return [1, 0, self.prompt(n) * (1 + (b - 1) / 20 + r / (2 - 2 * r))]

    def fit(self):
        self.p1 = 0.0
        for _ in range(10):  # p1 is in r, too
            self.fit_once()
        self.judge()

    def fit_once(self):
        rows = []
        for b, n, m, ttft, tpot in self.points:
            if b not in USED:
                continue
            rows.append(([1, b, (b - 1) / m * self.prompt(n)],
                         tpot - self.kv_us * b * (n + m / 2), tpot))
            if b == min(USED):
                rows.append((self.ttft_terms(b, n, m, tpot), ttft, ttft))
        terms = numpy.array([[x / y for x in a] for a, _, y in rows])
        want = numpy.array([want / y for _, want, y in rows])
        found = numpy.linalg.lstsq(terms, want, rcond=None)[0]
        if found[1] < 0:  # the KV's time already is that of a request
            found[[0, 2]] = numpy.linalg.lstsq(terms[:, [0, 2]], want,
                                               rcond=None)[0]
            found[1] = 0
        self.d0, self.d1, self.p1 = map(float, found)
        if min(found) < 0:
            sys.exit(f'{self.name}: a negative cost: {found}')

    def judge(self):
        """Compares with the points that were not used."""
        tpots, ttfts = [], []
        for b, n, m, ttft, tpot in self.points:
            if b not in KEPT:
                continue
            p = self.p1 * self.prompt(n)
            told = (self.d0 + self.d1 * b + self.kv_us * b * (n + m / 2) +
                    (b - 1) / m * p)
            tpots.append(abs(told / tpot - 1))
            if b == min(KEPT):
                d0, _, p1 = self.ttft_terms(b, n, m, told)
                ttfts.append(abs((self.d0 * d0 + self.p1 * p1) / ttft - 1))
        self.used = sum(p[0] in USED for p in self.points)
        self.kept = len(tpots)
        self.tpot_off, self.ttft_off = (100 * sum(x) / len(x)
                                        for x in (tpots, ttfts))
        self.tpot_most = 100 * max(tpots)

    def cluster(self):
        source = (
            'Fitted by tools/replay/study/size/fit_nodes.py to '
            f'{self.used} published points of vLLM with Llama-3.1-70B in fp8 '
            'on these cards (ai-dynamo/aiconfigurator 095f58a, '
            'silicon_sample.csv, from InferenceX, Apache-2.0, measured '
            f'2025-10-29). On {self.kept} points that were not used the time '
            f'of a token is off by {self.tpot_off:.1f} % on average, by '
            f'{self.tpot_most:.1f} % at most, and the TTFT of 8 requests at '
            f'once by {self.ttft_off:.1f} %. Memory, batch, steps and links '
            'are assumed, and prompts above 8,192 tokens extrapolated.')
        return {
            'format': 'conductor-cluster', 'version': 1, 'name': self.name,
            'about': 'A vLLM engine with Llama-3.1-70B in fp8, tensor '
                     f'parallel over {self.name[5:]} {self.name[:4].upper()} '
                     'SXM, that prefills and decodes.',
            'source': source, 'price_per_hour': self.price,
            'currency': 'US dollars',
            'price_source': PRICES.format(self.card_price),
            'model': MODEL,
            'cost': {'kind': 'polynomial',
                     'prefill_us': [0, *(float(f'{x:.4g}') for x in (
                         self.p1, self.p1 * ATTENTION,
                         2 * self.p1 * ATTENTION))],
                     'decode_us': [float(f'{x:.4g}') for x in (
                         self.d0, self.d1, self.kv_us)]},
            'coupled': {'nodes': 4, 'order': 'fifo', 'step_tokens': 2048,
                        'mix_requests': True, 'kv_tokens': self.kv_tokens,
                        'max_batch': 256},
            'links': {'gbps': 400}}


def main():
    _, path, folder = sys.argv
    points = read_points(path)
    for card, cards in NODES:
        node = Node(card, cards, points)
        name = os.path.join(folder, f'{node.name}.json')
        with open(name, 'w', encoding='utf-8') as f:
            json.dump(node.cluster(), f, indent=4)
            f.write('\n')
        print(f'{node.name}: {node.used} points used, {node.kept} not: time of '
              f'a token off by {node.tpot_off:.1f} % (at most '
              f'{node.tpot_most:.1f} %), TTFT by {node.ttft_off:.1f} %')


if __name__ == '__main__':
    main()
