#!/usr/bin/env python3
"""Decodes KV events of real engines and of every form that they may take, and
compares with what the JSON beside them, or the random values inside, say.

usage: test_kv_decode.py KV_DECODE [FOLDER]

FOLDER holds recordings of engines (events*.jsonl in its folders). Environment:
CONDUCTOR_SEED repeats a run.
"""
import glob
import json
import os
import random
import re
import struct
import subprocess
import sys

TIERS = {'GPU': 0, 'CPU': 1, 'CPU_PINNED': 1, 'DISK': 2, 'STORAGE': 2}
STORED = ['block_hashes', 'parent_block_hash', 'token_ids', 'block_size',
          'lora_id', 'medium', 'lora_name', 'extra_keys', 'group_idx',
          'kv_cache_spec_kind', 'kv_cache_spec_sliding_window']
REMOVED = ['block_hashes', 'medium', 'group_idx']


# What an event should decode to.

def as_hash(value):
    if isinstance(value, dict):  # bytes, in the recordings
        value = bytes.fromhex(value['bin'])
    if isinstance(value, bytes):
        return int.from_bytes(value[-8:], 'big')
    return value % 2**64


def named(event):
    """An event of either form as a map."""
    if isinstance(event, dict):
        return event
    fields = {'BlockStored': STORED, 'BlockRemoved': REMOVED}.get(event[0], [])
    return {'type': event[0], **dict(zip(fields, event[1:]))}


def as_bytes(text):
    return text.encode() if isinstance(text, str) else text


def extras_of(event, adapter):
    """(salt, a 0 or 1 for each block) of an event's extra keys."""
    salt, marks = b'', []
    keys = event.get('extra_keys') or []
    for i in range(len(event.get('block_hashes', []))):
        rest = list(keys[i] or []) if i < len(keys) else []
        if rest and adapter and rest[0] == event.get('lora_name'):
            rest.pop(0)
        if (rest and i == 0 and event.get('parent_block_hash') is None
                and isinstance(rest[-1], str)):
            salt = rest.pop().encode()
        marks.append('1' if rest else '0')
    return salt, ''.join(marks) if '1' in marks else ''


def named_object(name):
    """(hashes, part) of a store's object: the hash is the end of the name's
    first longest run of hexadecimal digits."""
    runs = list(re.finditer('[0-9a-fA-F]+', name))
    run = max(runs, key=lambda m: len(m[0]), default=None)
    if run is None or len(run[0]) < 16:
        return [], 0
    part = 0
    for byte in (name[:run.start()] + name[run.end():]).encode():
        part = (part * 31 + byte) % 2**32
    return [int(run[0][-16:], 16)], (part ^ part >> 16) % 2**16


def expected_line(event):
    e = named(event)
    medium = e.get('medium')
    groups = e.get('group_idx') or 0
    groups = groups if isinstance(groups, list) else [groups]
    mask = 0
    for group in groups or [0]:
        mask |= 1 << group
    kind = {'BlockStored': 'stored', 'BlockRemoved': 'removed',
            'AllBlocksCleared': 'cleared'}[e['type']]
    line = f'{kind} tier={TIERS.get(medium, 0)}'
    line += ' named' if medium in TIERS else ' medium?' if medium else ''
    if 'sliding' in (e.get('kv_cache_spec_kind') or ''):
        line += ' windowed'
    line += f' groups={mask:x}'
    if e.get('parent_block_hash') is not None:
        line += f' parent={as_hash(e["parent_block_hash"])}'
    hashes = e.get('block_hashes') or e.get('seq_hashes') or []
    part = 0
    if not hashes and e.get('object_key') and kind != 'cleared':
        hashes, part = named_object(e['object_key'])
    adapter, salt, marks = b'', b'', ''
    if kind == 'stored':
        adapter = as_bytes(e.get('lora_name') or e.get('lora_id') or '')
        if isinstance(adapter, int):
            adapter = adapter.to_bytes((adapter.bit_length() + 7) // 8, 'big')
        salt, marks = extras_of(e, adapter)
    salt = salt or as_bytes(e.get('cache_salt') or '')
    line += f' part={part}' if part else ''
    line += f' size={e.get("block_size") or 0}'
    line += ' hashes=' + ''.join(f'{as_hash(h)},' for h in hashes)
    line += ' tokens=' + ''.join(f'{t % 2**32},'
                                 for t in e.get('token_ids') or [])
    return line + f' adapter={adapter.hex()} salt={salt.hex()} extras={marks}'


def expected(batch):
    if isinstance(batch, dict):
        batch = [batch['ts'], batch['events'], batch.get('data_parallel_rank')]
    lines, unknown = [], 0
    for event in batch[1]:
        if named(event)['type'] in ('BlockStored', 'BlockRemoved',
                                    'AllBlocksCleared'):
            lines.append(expected_line(event))
        else:
            unknown += 1
    rank = batch[2] if len(batch) > 2 else None
    lines.append('rank nil' if rank is None else f'rank {rank % 2**64}')
    return lines + [f'unknown {unknown}']


# An encoder that takes any width that a value fits into.

def head(rng, n, fix, fix_limit, wide):
    """The head of a string, an array or a map; wide: codes of 1, 2, 4 bytes."""
    forms = [bytes([fix | n])] if n < fix_limit else []
    forms += [bytes([code]) + n.to_bytes(width, 'big')
              for code, width in wide if n < 256**width]
    return rng.choice(forms) if rng else forms[0]


def integer(rng, value):
    forms = [bytes([value % 256])] if -32 <= value < 128 else []
    forms += [bytes([0xcc + i]) + value.to_bytes(1 << i, 'big')
              for i in range(4) if 0 <= value < 256**(1 << i)]
    forms += [bytes([0xd0 + i]) + value.to_bytes(1 << i, 'big', signed=True)
              for i in range(4)
              if -256**(1 << i) // 2 <= value < 256**(1 << i) // 2]
    return rng.choice(forms) if rng else forms[0]


def pack(value, rng=None):
    if value is None:
        return b'\xc0'
    if isinstance(value, bool):
        return b'\xc3' if value else b'\xc2'
    if isinstance(value, int):
        return integer(rng, value)
    if isinstance(value, float):
        return b'\xcb' + struct.pack('>d', value)
    if isinstance(value, str):
        data = value.encode()
        return head(rng, len(data), 0xa0, 32,
                    [(0xd9, 1), (0xda, 2), (0xdb, 4)]) + data
    if isinstance(value, bytes):
        return head(rng, len(value), 0, 0,
                    [(0xc4, 1), (0xc5, 2), (0xc6, 4)]) + value
    if isinstance(value, dict):
        return head(rng, len(value), 0x80, 16, [(0xde, 2), (0xdf, 4)]) + \
            b''.join(pack(k, rng) + pack(v, rng) for k, v in value.items())
    return head(rng, len(value), 0x90, 16, [(0xdc, 2), (0xdd, 4)]) + \
        b''.join(pack(v, rng) for v in value)


# Random batches of every form.

def random_hash(rng):
    return rng.choice([rng.randrange(2**64), rng.randrange(-2**63, 2**63),
                       rng.randbytes(32), rng.randbytes(rng.randrange(12)),
                       rng.randrange(300)])


def random_block_extras(rng, adapter):
    keys = [adapter] if adapter and rng.random() < .5 else []
    keys += rng.choice([[], [], ['salt'], [['image', 3]], ['image', b'\1\2'],
                        [['image', -1], 'salt']])
    return keys or None


def random_event(rng):
    kind = rng.choice(['BlockStored'] * 3 + ['BlockRemoved'] * 2 +
                      ['AllBlocksCleared', 'BlockTransferred'])
    n = rng.choice([0, 1, 1, 2, 5, 40])
    size = rng.choice([1, 4, 16])
    medium = rng.choice(['GPU', 'GPU', 'CPU', 'CPU_PINNED', 'STORAGE', 'DISK',
                         'MOON', None])
    group = rng.choice([0, 0, 3, 63, None, [1, 2]])
    event = {'type': kind}
    if kind == 'BlockStored':
        adapter = rng.choice([None, None, 'adapter-ä'])
        limit = rng.choice([100, 300, 70000, 2**32])
        event |= {
            'block_hashes': [random_hash(rng) for _ in range(n)],
            'parent_block_hash': rng.choice([None, random_hash(rng)]),
            'token_ids': [rng.randrange(limit) for _ in range(n * size)],
            'block_size': size, 'lora_id': rng.choice(
                [None, None, 7, 'l', rng.randrange(1, 1 << 16), 0xcdcc05]),
            'medium': medium, 'lora_name': adapter,
            'extra_keys': rng.choice([None, [random_block_extras(rng, adapter)
                                             for _ in range(n)]]),
            'group_idx': group, 'kv_cache_spec_kind': rng.choice(
                [None, 'full_attention', 'sliding_window'])}
        if n and rng.random() < .2:
            event['token_ids'][0] = -rng.randrange(1, 2**31)
    elif kind == 'BlockRemoved':
        event |= {'block_hashes': [random_hash(rng) for _ in range(n)],
                  'medium': medium, 'group_idx': group}
    elif kind == 'BlockTransferred':
        event |= {'block_hashes': 'not a list', 'to': {'a': [1.5, {}]}}
    return event


def as_array(rng, event):
    fields = {'BlockStored': STORED, 'BlockRemoved': REMOVED}.get(
        event['type'], [])
    out = [event['type']] + [event.get(f) for f in fields]
    least = {'BlockStored': 5, 'BlockRemoved': 2}.get(event['type'], 1)
    while len(out) > least and out[-1] is None and rng.random() < .8:
        out.pop()
    return out


def with_object(rng, pairs):
    """As Mooncake's master: an object, and no hash."""
    digits = rng.choice(['0123456789abcdef', '0123456789ABCDEF'])
    name = 'm-8b@' + rng.choice(['', 'tp_rank:3@', 'cafe@']) + ''.join(
        rng.choice(digits) for _ in range(rng.choice([3, 15, 16, 40, 64])))
    gone = ('block_hashes', 'token_ids', 'extra_keys')
    return [p for p in pairs if p[0] not in gone] + [
        ('event_id', 7), ('event_type', 'stored'), ('seq_hashes', []),
        ('block_hashes', []), ('token_ids', None), ('group_id', None),
        ('object_key', name + rng.choice(['', '@half', '_k']))]


def with_other_name(_, pairs):
    return [('seq_hashes' if k == 'block_hashes' else k, v)
            for k, v in pairs if k != 'extra_keys']


def as_map(rng, event):
    pairs = [p for p in event.items() if p[1] is not None or rng.random() < .5]
    if event['type'] == 'BlockStored' and rng.random() < .5:
        pairs += [('cache_salt', rng.choice([None, 'salt']))]
    if event['type'] in ('BlockStored', 'BlockRemoved'):
        if rng.random() < .3:
            pairs = rng.choice([with_object, with_other_name])(rng, pairs)
    pairs += rng.choice([[], [('locality', 'LOCAL')], [(3, {'x': [None]})],
                         [('session_id', None), ('float', 1.5)]])
    if rng.random() < .2:
        rng.shuffle(pairs)
    return dict(pairs)


def random_batch(rng):
    events = [random_event(rng) for _ in range(rng.randrange(6))]
    form = rng.choice([as_array, as_map])
    events = [form(rng, e) for e in events]
    rank = rng.choice([None, 0, 3])
    if rng.random() < .2:
        return {'ts': 1.5, 'events': events, 'data_parallel_rank': rank}
    batch = [rng.choice([1.5, 3]), events, rank]
    return batch[:2] if rank is None and rng.random() < .5 else batch


# The two sides.

def decode_all(program, messages):
    done = subprocess.run([program], check=True, text=True,
                          input=''.join(m.hex() + '\n' for m in messages),
                          stdout=subprocess.PIPE)
    answers = [[]]
    for line in done.stdout.splitlines():
        if line == '.':
            answers.append([])
        else:
            answers[-1].append(line)
    assert len(answers) == len(messages) + 1, 'an answer for each message'
    return answers[:-1]


def recorded(folder):
    for path in sorted(glob.glob(os.path.join(folder, '*', 'events*.jsonl'))):
        with open(path, encoding='utf-8') as lines:
            for line in lines:
                entry = json.loads(line)
                yield path, bytes.fromhex(entry['frames'][2]), entry['payload']
    for path in glob.glob(os.path.join(folder, 'array-form*.json')):
        with open(path, encoding='utf-8') as f:
            for name, entry in json.load(f).items():
                if 'decoded' in entry:
                    yield name, bytes.fromhex(entry['payload_hex']), \
                        entry['decoded']


def compare(program, cases):
    answers = decode_all(program, [message for _, message, _ in cases])
    for (name, message, batch), answer in zip(cases, answers):
        if answer != expected(batch):
            sys.exit(f'{name}: {batch}\n{message.hex()}\nexpected '
                     + '\n         '.join(expected(batch)) + '\ndecoded  '
                     + '\n         '.join(answer))


def check_broken(program, rng, cases):
    """A message without its end is an error inside of it; one with a wrong
    byte may be anything, but ends."""
    cut, wrong = [], []
    for _, message, _ in cases:
        cut.append(message[:rng.randrange(len(message))])
        at = rng.randrange(len(message))
        wrong.append(message[:at] + bytes([rng.randrange(256)]) +
                     message[at + 1:])
    for message, answer in zip(cut, decode_all(program, cut)):
        word, offset, expected_words = answer[0].split(' ', 2)
        assert word == 'error' and expected_words, (message.hex(), answer)
        assert int(offset) <= len(message), (message.hex(), answer)
    decode_all(program, wrong)


def stored(hashes, tokens=b'\x90'):
    return (b'\x92\x01\x91\x95' + pack('BlockStored') + hashes + b'\xc0' +
            tokens + b'\x10')


def many(n, what):
    return b'\xdd' + n.to_bytes(4, 'big') + what * n


def check_errors(program):
    """Where a message is wrong, and what should have stood there."""
    tag = len(stored(b'')) - 3  # where an event's second element stands
    cases = [
        (b'', 0, 'an array'),
        (b'\xc0', 0, 'an array'),
        (b'\x91\x01', 1, 'a time and a list of events'),
        (b'\x92\x01\xc0', 2, 'an array'),
        (b'\x92\x01\x91\x90', 4, 'the tag of an event'),
        (b'\x92\x01\x91\x91\x05', 4, 'a string'),
        (b'\x92\x01\x91\x80', 4, "an event's type"),
        (b'\x92\x01\x91\x81\xa1x\x01', 4, "an event's type"),
        (b'\x92\x01\x91' + pack({'type': 'BlockRemoved'}), 22,
         'block_hashes in the event before this'),
        (b'\x92\x01\x91' + pack(['BlockStored', []]), 16,
         'more elements in the event'),
        (b'\x92\x01\xdd\xff\xff\xff\xff', 2,
         'a count that fits into the message'),
        (b'\x92\x01\x91\xdf\x80\x00\x00\x01' + bytes(9), 3,
         'a count that fits into the message'),
        (stored(b'\x91\xc3'), tag + 1, 'a block hash: an integer or bytes'),
        (stored(b'\x91\xc4\x50'), tag + 1, 'a count that fits into the message'),
        (stored(b'\x91\xcf\x50'), tag + 1, 'the rest of the value'),
        (stored(b'\x91\x01', b'\x91\xc1'), tag + 4, 'a value'),
        (b'\x80', 1, 'events'),
        (b'\x92\x01\x90\x07', 3, 'the end of the message'),
        (b'\x93\x01\x90\xa1x', 3, 'an integer'),
        (b'\x92' + b'\x91' * 4000000, 4000000,
         'a count that fits into the message'),
        (b'\x92\x91\x01', 3, 'an array'),
        (b'\x92\x01' + many(2**16 + 1, pack(['AllBlocksCleared'])), 7,
         'fewer events in one message'),
        (stored(many(2**20 + 1, b'\x01')), tag,
         'fewer block hashes in one message'),
        (stored(b'\x90', many(2**22 + 1, b'\x01')), tag + 2,
         'fewer tokens in one message'),
        (b'\x92\x01\x91' + pack(['BlockRemoved', [], 'GPU', 64]), 22,
         'a cache group of 0 to 63'),
    ]
    answers = decode_all(program, [message for message, _, _ in cases])
    for (message, offset, words), answer in zip(cases, answers):
        assert answer == [f'error {offset} {words}'], (message[:40], answer)
    fits = [b'\x92\x01' + many(2**16, pack(['AllBlocksCleared'])),
            stored(many(2**20, b'\x01')), stored(b'\x90', many(2**22, b'\x01')),
            stored(b'\x91\x01', b'\x91\xc3')]
    for answer in decode_all(program, fits):
        assert not answer[0].startswith('error'), answer[0][:200]
    assert ' odd ' in answer[0], answer


def main():
    seed = int(os.environ.get('CONDUCTOR_SEED', 4711))
    print(f'seed {seed}')
    rng = random.Random(seed)
    program = sys.argv[1]
    made = []
    for _ in range(2000):
        batch = random_batch(rng)
        made.append(('random', pack(batch, rng), batch))
    check_errors(program)
    compare(program, made)
    check_broken(program, rng, made)
    found = list(recorded(sys.argv[2])) if len(sys.argv) > 2 else []
    compare(program, found)
    check_broken(program, rng, found)
    print(f'{len(made)} random messages, {len(found)} recorded ones')


main()
