"""Passes an engine's KV events on, with the members that vLLM's router insists
on and Dynamo's mocker leaves out.

usage: relay.py FROM_PORT TO_PORT [FROM_PORT TO_PORT ...]
"""
import sys

import msgpack
import zmq

ABSENT = {'lora_id': None, 'lora_name': None, 'medium': 'GPU'}


def completed(payload):
    batch = msgpack.unpackb(payload, strict_map_key=False)
    events = batch['events'] if isinstance(batch, dict) else batch[1]
    for event in events:
        if event.get('type') == 'BlockStored':
            for name, value in ABSENT.items():
                event.setdefault(name, value)
            event.setdefault('extra_keys',
                             [None] * len(event['block_hashes']))
        elif event.get('type') == 'BlockRemoved':
            event.setdefault('medium', 'GPU')
    return msgpack.packb(batch)


def main():
    context, poller, targets = zmq.Context(), zmq.Poller(), {}
    ports = list(map(int, sys.argv[1:]))
    for source_port, target_port in zip(ports[::2], ports[1::2]):
        source, target = context.socket(zmq.SUB), context.socket(zmq.PUB)
        source.set_hwm(0)
        target.set_hwm(0)
        source.subscribe(b'')
        source.connect(f'tcp://127.0.0.1:{source_port}')
        target.bind(f'tcp://127.0.0.1:{target_port}')
        poller.register(source, zmq.POLLIN)
        targets[source] = target
    while True:
        for source, _ in poller.poll():
            topic, number, payload = source.recv_multipart()
            targets[source].send_multipart(
                [topic, number, completed(payload)])


if __name__ == '__main__':
    main()
