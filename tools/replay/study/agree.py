"""conductor-replay agree: compares a live replay with its simulation."""
import csv
import math
import os
import subprocess
import sys
import tempfile

from script import (Fields, Refused, Script, json_text, percentile, read_file,
                    read_json, run)

LIVE_BYTES_MAX = 16 << 20
MOST = 2 ** 63 - 1


def read_live(path):
    """Returns what was replayed, and the measured numbers."""
    try:
        root = Fields(path, read_json(path, read_file(
            path, LIVE_BYTES_MAX, f'larger than {LIVE_BYTES_MAX} bytes')))
        trace, requests, ttft = map(root.object, ('trace', 'requests',
                                                  'ttft_s'))
        live = {'policy': root.text('policy', 63),
                'file': trace.text('file', 1023),
                'from': trace.number('from', 0, MOST, whole=True),
                'requests': trace.number('requests', 1, MOST, whole=True)}
        for name in 'block_tokens', 'length_scale':
            live[name] = trace.number(name, 1, 65536, whole=True)
        live['speed'] = trace.number('speed', 1e-9, math.inf)
        total = requests.number('total', 1, MOST, whole=True)
        live['completed'] = requests.number('completed', 1, MOST, whole=True)
        live['lost'] = max(total - live['completed'], 0)
        for name in 'mean', 'p50', 'p90', 'p99':
            live[name] = ttft.number(name, 0, math.inf)
        live['hits'] = root.number('prefix_hit_ratio', 0, math.inf)
        return live
    except Refused as why:
        raise Refused(f'{why}; it must be the report of conductor-replay '
                      'live') from None


def simulate(script, live):
    """Returns the same numbers of the simulation, from its requests: the
    report's have six decimals only."""
    options = script.options
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, 'requests.csv')
        done = subprocess.run(
            [script.program, 'simulate', '--trace',
             options.get('trace', live['file']), '--cluster',
             options['cluster'], '--policy', live['policy'], '--speed',
             repr(live['speed']), '--from', str(live['from']), '--requests',
             str(live['requests']), '--length-scale',
             str(live['length_scale']), '--block-tokens',
             str(live['block_tokens'] * live['length_scale']),
             '--requests-csv', path],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE, text=True, errors='surrogateescape',
            check=False)
        if not os.path.exists(path):
            raise Refused(done.stderr.split('\n')[0].removeprefix(
                'conductor-replay simulate: '))
        with open(path, encoding='utf-8') as f:
            rows = [r for r in csv.DictReader(f)
                    if r['outcome'] == 'completed']
    ttft = sorted(float(r['ttft_s']) for r in rows if r['ttft_s'])
    prompts = sum(int(r['prompt_tokens']) for r in rows)
    return {'completed': len(rows),
            'mean': sum(ttft) / len(ttft) if ttft else 0.0,
            **{f'p{p}': percentile(ttft, p / 100) if ttft else 0.0
               for p in (50, 90, 99)},
            'hits': sum(int(r['reused_tokens']) for r in rows) / prompts
            if prompts else 0.0}


class Pair:
    """A number of both; a ratio is compared in points, a time in per cent."""

    def __init__(self, name, live, simulated, limit, is_ratio):
        self.name, self.live, self.simulated = name, live, simulated
        self.limit, self.is_ratio = limit, is_ratio
        self.difference = (100 * (simulated - live) if is_ratio else
                           100 * (simulated / live - 1) if live > 0 else 0.0)
        self.agrees = not limit > 0 or abs(self.difference) <= limit

    def line(self):
        scale, unit = (100, 'points') if self.is_ratio else (1000, '%')
        text = (f'{self.name:<18} {scale * self.live:12.2f} '
                f'{scale * self.simulated:12.2f} {self.difference:+9.2f} '
                f'{unit}')
        if self.limit > 0:
            text += ('' if self.is_ratio else '     ') + (
                f'  {"agrees" if self.agrees else "DIFFERS"} '
                f'(within {self.limit:g})')
        return text


def main(script):
    options = script.options
    live = read_live(options['live'])
    live['policy'] = options.get('policy', live['policy'])
    simulated = simulate(script, live)
    ttft, hits = float(options['max-ttft']), float(options['max-hits'])
    pairs = {f'ttft_{name}_s': Pair(f'TTFT {name} (ms)', live[name],
                                    simulated[name], limit, False)
             for name, limit in (('mean', 0), ('p50', ttft), ('p90', ttft),
                                 ('p99', 0))}
    pairs['prefix_hit_ratio'] = Pair('hit ratio (%)', live['hits'],
                                     simulated['hits'], hits, True)
    print(f'{live["requests"]} requests at speed {live["speed"]:g}, policy '
          f'{live["policy"]}; {live["completed"]} completed live, '
          f'{simulated["completed"]} simulated\n\n' +
          '%-18s %12s %12s %14s' % ('', 'live', 'simulated', 'difference'))
    for pair in pairs.values():
        print(pair.line())
    if live['lost'] > 0:
        script.complain(f'{live["lost"]} requests were not completed live: the '
                        'two are not of the same requests')
    if (simulated['completed'] != live['completed'] or
            not all(p.agrees for p in pairs.values())):
        script.status = 1
    script.output('json', lambda: (json_text({
        'live': options['live'], 'cluster': options['cluster'],
        'policy': live['policy'], 'requests': live['requests'],
        'speed': live['speed'], **{
            key: {'live': p.live, 'simulated': p.simulated,
                  'points' if p.is_ratio else 'percent': p.difference,
                  'agrees': p.agrees} for key, p in pairs.items()}}, 12,
        indent=2, sort_keys=True, ensure_ascii=False) + '\n').encode())


if __name__ == '__main__':
    sys.exit(run(Script, main))
