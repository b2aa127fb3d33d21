"""Recorded KV events, played to Conductor and to Dynamo's indexer: /query of
both is compared on random beginnings of what the events hold.

usage: run/engines/bin/python tests/engines/recorded_queries.py CONDUCTOR
           QUERIES FILE..

FILE has a JSON object a line, whose "frames" are the parts of a message in
hexadecimal. Prints a line for each file; ends with 1 where answers differ.
"""
import json
import os
import random
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, '..', 'scenario'))
import engines  # noqa: E402
import msgpack  # noqa: E402
from publisher import Publisher  # noqa: E402


def payloads(path):
    with open(path, encoding='utf-8') as f:
        for line in f:
            frames = [bytes.fromhex(x) for x in json.loads(line)['frames']]
            if len(frames) == 3:
                yield frames[2]


def named(event):
    """An event as a map, from either form."""
    if isinstance(event, dict):
        return event
    names = ('type', 'block_hashes', 'parent_block_hash', 'token_ids',
             'block_size')
    return dict(zip(names, event))


def prompts(batches):
    """All chains of tokens that were ever stored, and their block size."""
    content, size = {}, 0
    for batch in batches:
        all_ = msgpack.unpackb(batch, strict_map_key=False)
        for event in map(named, all_['events'] if isinstance(all_, dict)
                         else all_[1]):
            if event['type'] != 'BlockStored' or not event.get('token_ids'):
                continue
            size, parent = event['block_size'], event['parent_block_hash']
            for i, h in enumerate(event['block_hashes']):
                content[h] = content.get(parent, []) + event['token_ids'][
                    i * size:(i + 1) * size]
                parent = h
    return list(content.values()), size


def wait(what, true):
    for _ in range(300):
        try:
            if true():
                return
        except OSError:
            pass
        time.sleep(0.1)
    raise SystemExit(f'waited in vain: {what}')


def play(conductor, n, path):
    batches = list(payloads(path))
    chains, size = prompts(batches)
    publisher = Publisher(engines.free_ports(1))
    at = f'tcp://127.0.0.1:{publisher.port}'
    port, rng = engines.free_ports(1), random.Random(7)
    theirs = f'http://127.0.0.1:{port}'
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, 'c.json'), 'w', encoding='ascii') as f:
            json.dump({'listen': '127.0.0.1:0', 'engines': [],
                       'log_level': 'error'}, f)
        all_ = [subprocess.Popen([os.path.abspath(conductor), '--ports-file',
                                  'ports', '--config', 'c.json'], cwd=folder),
                subprocess.Popen(
                    [engines.PYTHON, '-m', 'dynamo.indexer', '--port',
                     str(port), '--block-size', str(size), '--threads', '1',
                     '--model-name', 'm', '--workers', f'1={at}'],
                    stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)]
        try:
            ports = os.path.join(folder, 'ports')
            wait('conductor', lambda: os.path.exists(ports))
            with open(ports, encoding='ascii') as f:
                ours = f'http://127.0.0.1:{json.load(f)["http"]}'
            wait('the indexer', lambda: engines.get(
                theirs + '/health', limit_s=5)[0] == 200)
            status, reply = engines.get(ours + '/register', {
                'endpoint': at, 'model_name': 'm', 'instance_id': 1,
                'block_size': size})
            assert status == 200, reply
            publisher.wait_subscribed()
            time.sleep(2)  # the other one
            for batch in batches:
                publisher.publish(None, payload=batch)

            def answers(tokens):
                body = {'model_name': 'm', 'token_ids': tokens}
                got = [engines.get(u, body) for u in (
                    ours + '/query?shape=instances', theirs + '/query')]
                assert [s for s, _ in got] == [200, 200], got
                return [a for _, a in got]
            time.sleep(2)
            hits = differ = 0
            for _ in range(n):
                chain = rng.choice(chains)
                tokens = chain[:rng.randrange(1, len(chain) + 1)]
                if rng.random() < .2:
                    tokens = tokens + [rng.randrange(4, 250)
                                       for _ in range(size)]
                a, b = answers(tokens)
                hits += a['instances'] != {}
                if a != b:
                    differ += 1
                    if differ < 4:
                        print(f'  {len(tokens)} tokens: {a} {b}')
            print(f'{os.path.basename(os.path.dirname(path))}: '
                  f'{len(batches)} batches, blocks of {size}, {n} queries, '
                  f'{hits} with hits, {differ} differ', flush=True)
            return differ
        finally:
            for process in all_:
                process.terminate()
                process.wait()
            publisher.stop()


if __name__ == '__main__':
    sys.exit(1 if sum(play(sys.argv[1], int(sys.argv[2]), path)
                      for path in sys.argv[3:]) else 0)
