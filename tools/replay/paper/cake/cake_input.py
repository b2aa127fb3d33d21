"""What cake.py reads: a table of the Cake paper, and the costs of machines.

A table is CSV, nothing quoted:

  hardware,util_pct,bandwidth_gbps,model,seq_len,chunk,kv_bits,speedup_io,
    speedup_compute                                     (one line)
  2xA100,12.5,7,LongAlpaca-13B,16384,512,16,1.87,2.18

The header must have each name once, in any order; other columns, such as those
of `cake --csv`, are ignored. Empty lines and lines that start with # are
skipped.

Costs are constants fitted to the ratio of the paper's two baselines, never to
Cake's own times. OWN is the default; a JSON file can replace it:

  {"io_fixed_s": 0.045,          per load
   "io_piece_s": 0.00077,        per piece of a load, beside its bytes
   "io_piece_tokens": 128,
   "final_step_s": 0.045,        the step after the merge
   "chunk_tokens": 512,          chunk size of the costs below
   "step_tokens": "chunk_tokens * utilisation",
   "kv_bytes_per_token": {"LongAlpaca-13B": 819200},   at 16 bits
   "chunk_cost_s": [{"hardware": "A100", "model": "LongAlpaca-13B",
                     "alpha": 0.08039, "beta": 0.001551}]}

Chunk i of a prompt takes alpha + beta i seconds. "source" and a cost's
"assumed_rising_share" are allowed and ignored.
"""
import re

from script import Fields, Refused, printable, read_file, read_json

OWN = {
    'io_fixed_s': 0.045, 'io_piece_s': 0.00077, 'io_piece_tokens': 128,
    'final_step_s': 0.045, 'chunk_tokens': 512,
    'kv_bytes_per_token': {
        'LongAlpaca-7B': 524288, 'LongAlpaca-13B': 819200,
        'Llama3.1-8B': 131072, 'Llama3.1-70B': 327680},
    'chunk_cost_s': {
        ('2xA100', 'LongAlpaca-13B'): (0.04992, 0.001045),
        ('A100', 'LongAlpaca-13B'): (0.08039, 0.001551),
        ('H100', 'LongAlpaca-13B'): (0.06034, 0.001229),
        ('2xA100', 'LongAlpaca-7B'): (0.02843, 0.000749),
        ('2xA100', 'Llama3.1-8B'): (0.03294, 0.000708),
        ('2xA100', 'Llama3.1-70B'): (0.26215, 0.003221)}}

NAME_MAX = 63  # of hardware and models, in bytes
TABLE_BYTES_MAX, CALIBRATION_BYTES_MAX = 4 << 20, 256 << 10
ROWS_MAX, COLUMNS_MAX, LINE_MAX = 20000, 64, 512
MODELS_MAX, COSTS_MAX = 64, 256

# Columns of a table: pattern of the value (None = a name), range.
NUMBER = r'[0-9]+\.?[0-9]*([eE][+-]?[0-9]+)?'
INTEGER = '[0-9]+'
COLUMNS = {
    'hardware': None, 'util_pct': (NUMBER, 0.01, 100),
    'bandwidth_gbps': (NUMBER, 1e-3, 1e6), 'model': None,
    'seq_len': (INTEGER, 1, 1e7), 'chunk': (INTEGER, 1, 1e6),
    'kv_bits': (INTEGER, 1, 16), 'speedup_io': (NUMBER, 1e-6, 1e6),
    'speedup_compute': (NUMBER, 1e-6, 1e6)}


def read_field(name, text, refuse):
    if not COLUMNS[name]:
        if not re.fullmatch(f'[!#-~]{{1,{NAME_MAX}}}', text):
            refuse(f'{name}: "{text:.80}": must be a name of 1 to {NAME_MAX} '
                   'printable bytes without spaces or quotes')
        return text
    pattern, least, most = COLUMNS[name]
    value = float(text) if re.fullmatch(pattern, text) else -1
    if not least <= value <= most:
        refuse(f'{name}: "{text:.80}": must be '
               f'{"a number" if pattern == NUMBER else "an integer"} of '
               f'{least:g} to {most:g}')
    return value if pattern == NUMBER else int(value)


def read_header(fields, refuse):
    """Returns the name of each column; None = ignored."""
    if len(fields) > COLUMNS_MAX:
        refuse(f'more than {COLUMNS_MAX} columns')
    for i, name in enumerate(fields):
        if name in COLUMNS and name in fields[:i]:
            refuse(f'column {i + 1}: {name} is there twice')
    for name in COLUMNS:
        if name not in fields:
            refuse(f'the header has no column {name}')
    return [name if name in COLUMNS else None for name in fields]


def read_table(path, data=None):
    """Returns the rows of a file (or of `data`, its bytes) as objects, each
    with its `line`; its util_pct is a share of 1."""
    if data is None:
        data = read_file(path, TABLE_BYTES_MAX, 'File too large')
    lines = data.decode('latin-1').split('\n')
    number, header, rows = 1, None, []

    def refuse(what):
        raise Refused(f'{path:.240}:{number}: {printable(what)}')

    for line in lines[:-1] if lines[-1] == '' else lines:
        line = line[:-1] if line.endswith('\r') else line
        if len(line) > LINE_MAX:
            refuse(f'longer than {LINE_MAX} bytes')
        if '\0' in line:
            refuse('a NUL byte')
        fields = line.split(',')
        if not line or line.startswith('#'):
            pass
        elif not header:
            header = read_header(fields, refuse)
        elif len(fields) != len(header):
            refuse(f'{len(fields)} columns: must be {len(header)}')
        else:
            row = {name: read_field(name, text, refuse)
                   for name, text in zip(header, fields) if name}
            row['util_pct'] /= 100
            row['line'] = number
            if len(rows) == ROWS_MAX:
                refuse(f'more than {ROWS_MAX} rows')
            rows.append(row)
        number += 1
    if not rows:
        refuse('the file ends before '
               f'{"the first row" if header else "the header"}')
    return rows


def read_sizes(root):
    field = 'kv_bytes_per_token'
    sizes = root.object(field)
    for i, name in enumerate(sizes.members):
        if i == MODELS_MAX:
            root.refuse(field, f'more than {MODELS_MAX} models')
        if not re.fullmatch(f'[ -~]{{1,{NAME_MAX}}}', name):
            root.refuse(field, f'"{name:.80}": must be a name of 1 to '
                        f'{NAME_MAX} printable bytes')
        sizes.number(name, 16, 1 << 40, whole=True)
    return sizes.members


def read_costs(root):
    field = 'chunk_cost_s'
    given = root.members.get(field)
    costs = {}
    if not isinstance(given, list) or not 1 <= len(given) <= COSTS_MAX:
        root.refuse(field, f'must be an array of 1 to {COSTS_MAX} objects')
    for i, members in enumerate(given):
        one = Fields(root.file, members, f'{field}[{i}].')
        if not isinstance(members, dict):
            one.refuse_value('', 'an object')
        one.known('hardware model alpha beta assumed_rising_share')
        machine = one.text('hardware', NAME_MAX), one.text('model', NAME_MAX)
        alpha, beta = one.number('alpha', 1e-9, 1e4), one.number('beta', 0, 1e4)
        if 'assumed_rising_share' in members:
            one.number('assumed_rising_share', 0, 1)
        if machine in costs:
            one.refuse('', f'{machine[1]} on {machine[0]} is there twice')
        # Otherwise the first tokens of a chunk would take negative time.
        if alpha < beta:
            one.refuse('alpha', f'{alpha:g} is less than beta, {beta:g}')
        costs[machine] = alpha, beta
    return costs


def read_calibration(path, data=None):
    """Returns costs of the form of OWN, from a file or `data`, its bytes."""
    if data is None:
        data = read_file(path, CALIBRATION_BYTES_MAX,
                         f'larger than {CALIBRATION_BYTES_MAX} bytes')
    root = Fields(path, read_json(path, data))
    root.known('source io_fixed_s io_piece_s final_step_s io_piece_tokens '
               'chunk_tokens step_tokens kv_bytes_per_token chunk_cost_s')
    if 'source' in root.members:
        root.text('source', 1023)
    read = {name: root.number(name, 0, 1e4)
            for name in ('io_fixed_s', 'io_piece_s', 'final_step_s')}
    for name in ('io_piece_tokens', 'chunk_tokens'):
        read[name] = root.number(name, 1, 1000000, whole=True)
    step = 'chunk_tokens * utilisation'
    if root.members.get('step_tokens', step) != step:
        root.refuse_value('step_tokens', f'"{step}"')
    read['kv_bytes_per_token'] = read_sizes(root)
    read['chunk_cost_s'] = read_costs(root)
    return read
