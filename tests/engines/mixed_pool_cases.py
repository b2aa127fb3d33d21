"""What tests/engines/mixed_pools measures: pools of Dynamo's mockers under one
load, streamed."""
import argparse
import http.client
import json
import os
import random
import statistics
import sys
import threading
import time
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(
    os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, 'tests', 'scenario'))

import engines  # noqa: E402
import harness  # noqa: E402
import test_pair_mockers as pairs  # noqa: E402

P, D, BOTH = pairs.P, pairs.D, pairs.BOTH
POOLS = {'half of each': (BOTH, BOTH, P, D), 'the half that does both':
         (BOTH, BOTH), 'the pair': (P, D), 'all do both': (BOTH,) * 4,
         'all in pairs': (P, P, D, D)}
SPEED, BLOCKS = .15, 4096  # slow, so that this machine's own time is small
LEARNS, AT_ONCE = 4, 4     # requests before the others: costs are learned
PROMPT, ANSWER = (200, 3000), (8, 60)


class Measured(pairs.MockerPairs):
    args = None

    def one(self, prompt, max_tokens, found):
        """(TTFT, mean time between tokens) in seconds; None: not answered."""
        began_s, times = time.monotonic(), []
        connection = http.client.HTTPConnection(
            '127.0.0.1', self.cluster.api.port, timeout=60)
        try:
            connection.request('POST', '/v1/completions', json.dumps(
                {'model': engines.MODEL, 'prompt': prompt,
                 'max_tokens': max_tokens, 'stream': True}))
            reply = connection.getresponse()
            for line in reply:
                if reply.status == 200 and line.startswith(b'data: {'):
                    times.append(time.monotonic())
        except OSError:
            times = []
        finally:
            connection.close()
        found.append((times[0] - began_s, (times[-1] - times[0]) /
                      max(1, len(times) - 1)) if times else None)

    def ask_at(self, times, drawn, found):
        """Asks at these seconds from now, and waits for all."""
        begin_s, threads = time.monotonic(), []
        for at_s in times:
            asked = drawn()
            time.sleep(max(0, begin_s + at_s - time.monotonic()))
            threads.append(threading.Thread(
                target=self.one, args=(*asked, found)))
            threads[-1].start()
        for thread in threads:
            thread.join()

    def runTest(self):
        args, rng = self.args, random.Random(self.args.seed)

        def drawn():
            return (pairs.tokens(rng, rng.randrange(*PROMPT)),
                    rng.randrange(*ANSWER))
        print('| pool | asked | answered | within both SLOs % | TTFT mean, p90 '
              's | TBT mean, p90 ms |\n|---|---|---|---|---|---|', flush=True)
        for name, roles in POOLS.items():
            self.pool(*roles, speed=SPEED, blocks=BLOCKS, config={
                'slo_ttft_ms': args.slo_ttft_ms, 'slo_tbt_ms': args.slo_tbt_ms})
            rng.seed(args.seed)
            found = []
            for _ in range(LEARNS):
                self.ask_at([0] * AT_ONCE, drawn, found)
            found.clear()
            times, at_s = [], 0
            while (at_s := at_s + rng.expovariate(args.rate)) < args.seconds:
                times.append(at_s)
            self.ask_at(times, drawn, found)
            print(self.row(name, found), flush=True)
            for process in reversed(self.processes):
                process.kill()

    def row(self, name, found):
        args, answered = self.args, [each for each in found if each]
        good = sum(ttft_s * 1e3 <= args.slo_ttft_ms and
                   tbt_s * 1e3 <= args.slo_tbt_ms for ttft_s, tbt_s in answered)

        def of(values):
            return (statistics.mean(values),
                    statistics.quantiles(values, n=10)[-1])
        ttft = of([each[0] for each in answered])
        tbt = of([each[1] * 1e3 for each in answered])
        return (f'| {name} | {len(found)} | {len(answered)} | '
                f'{100 * good / len(found):.1f} | {ttft[0]:.2f}, {ttft[1]:.2f} '
                f'| {tbt[0]:.0f}, {tbt[1]:.0f} |')


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('--build', default=harness.settings.build)
    parser.add_argument('--rate', type=float, default=6)
    parser.add_argument('--seconds', type=float, default=15)
    parser.add_argument('--seed', type=int, default=1)
    parser.add_argument('--slo-ttft-ms', type=float, default=3000)
    parser.add_argument('--slo-tbt-ms', type=float, default=200)
    Measured.args = parser.parse_args()
    harness.settings.build = os.path.realpath(Measured.args.build)
    result = unittest.TestResult()
    Measured().run(result)
    for _, why in [*result.errors, *result.failures, *result.skipped]:
        print(why)
    return 0 if result.wasSuccessful() and not result.skipped else 1


if __name__ == '__main__':
    sys.exit(main())
