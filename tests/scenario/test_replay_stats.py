"""conductor-replay stats: its numbers against a plain count, and bad lines."""
import collections
import gzip
import json
import xml.etree.ElementTree

from harness import FolderCase, replay
from test_replay import SAMPLE


def plain_lru(requests, capacity):
    """Hits of the obvious cache, blocks touched first to last."""
    cache, hits = collections.OrderedDict(), 0
    for r in requests:
        for block in r['hash_ids']:
            if block in cache:
                hits += 1
                cache.move_to_end(block)
            else:
                cache[block] = True
                if len(cache) > capacity:
                    cache.popitem(last=False)
    return hits


def line(at, tokens, ids):
    return json.dumps({'timestamp': at, 'input_length': tokens,
                       'output_length': 1, 'hash_ids': ids}) + '\n'


class Stats(FolderCase):
    def stats(self, trace, *args, **how):
        done = replay('stats', '--trace', trace, '--json',
                      self.path('s.json'), *args, **how)
        if done.returncode != 0:
            return done, None
        return done, self.read_json('s.json')

    def test_numbers(self):
        done, facts = self.stats(SAMPLE, '--plot', self.path('s.svg'),
                                 '--capacities', '0.01,0.05,0.2,5')
        with open(SAMPLE, encoding='utf-8') as f:
            requests = [json.loads(text) for text in f]
        touched = [b for r in requests for b in r['hash_ids']]
        uses = collections.Counter(touched)
        self.assertEqual(facts['requests'], 80)
        self.assertEqual(facts['blocks']['touched'], len(touched))
        self.assertEqual(facts['blocks']['different'], len(uses))
        self.assertEqual(facts['blocks']['used_once'],
                         sum(1 for n in uses.values() if n == 1))
        inputs = sorted(r['input_length'] for r in requests)
        self.assertAlmostEqual(facts['input_tokens']['mean'],
                               sum(inputs) / 80, places=4)
        self.assertEqual(facts['input_tokens']['p50'],
                         (inputs[39] + inputs[40]) / 2)
        self.assertEqual(facts['input_tokens']['max'], inputs[-1])
        for row in facts['lru']:
            capacity = int(row['mtokens'] * 1e6) // 512
            self.assertAlmostEqual(
                row['hit_ratio'],
                plain_lru(requests, capacity) / len(touched), places=6)
        self.assertAlmostEqual(facts['best_possible_hit_ratio']['blocks'],
                               1 - len(uses) / len(touched), places=6)
        self.assertEqual(facts['popularity'][0]['touches'],
                         max(uses.values()))
        xml.etree.ElementTree.parse(self.path('s.svg'))

    def test_bad_lines(self):
        good = line(0, 600, [0, 1]), line(5, 700, [0, 2])
        for bad, why in [
                ('nonsense\n', ':2: nonsense: expected a JSON object'),
                (line(-1, 600, [0, 3]), ':2: timestamp -1'),
                (line(5, 600, [0]),
                 ':2: hash_ids [1 ids]: 600 tokens in blocks of 512 need 2'),
                (line(5, 600, [1, 0]),
                 ':2: hash_ids 1: at index 0 follows another id')]:
            with self.subTest(bad=bad):
                with gzip.open(self.path('t.gz'), 'wt') as f:
                    f.write(good[0] + bad + good[1])
                self.stats(self.path('t.gz'), status=1,
                           says=self.path('t.gz') + why)
                done, facts = self.stats(self.path('t.gz'), '--skip-bad')
                self.assertIn('skipped ' + self.path('t.gz') + ':2:',
                              done.stderr)
                self.assertEqual(facts['skipped_lines'], 1)
                self.assertEqual(facts['requests'], 2)
                self.assertEqual(facts['blocks']['different'], 3)

    def test_backward_and_block_size(self):
        self.write('t', line(5, 33, [0, 1, 2]) + line(4, 33, [0, 1, 2]))
        self.stats(self.path('t'), '--block-tokens', 16, status=1,
                   says=':2: timestamp 4: goes backward, the line before has 5')
        done, facts = self.stats(self.path('t'), '--block-tokens', 16,
                                 '--skip-bad')
        self.assertEqual(facts['requests'], 1)
        self.stats(self.path('t'), '--skip-bad', status=1,
                   says='holds no good line')

    def test_bad_command_lines(self):
        for args, words in [
                ([], '--trace FILE is missing'),
                (['--trace', SAMPLE, '--capacities', '1,,2'],
                 '--capacities 1,,2: must be numbers'),
                (['--trace', SAMPLE, '--capacities', '0'],
                 '--capacities 0: must be numbers'),
                (['--trace', SAMPLE, '--block-tokens', '0'],
                 '--block-tokens 0')]:
            replay('stats', *args, status=2, says=words)
        replay('stats', '--trace', '/nowhere',
               status=1, says='/nowhere: No such file')
        replay('stats', '--trace', SAMPLE, '--json', '/nowhere/x',
               status=1, says='/nowhere/x: No such file')
