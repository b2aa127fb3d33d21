"""Writes a tiny Llama with random weights and a tokenizer of bytes, for
engines that others wrote: a folder as Hugging Face has it, without weights,
and a GGUF file with them. write_weights() adds weights to the folder.

usage: model.py DIR
"""
import json
import math
import os
import random
import struct
import sys

WIDTH, HIDDEN, LAYERS, HEADS, KV_HEADS = 64, 128, 2, 4, 2
WINDOW_TOKENS = 32768
ADAPTER_RANK = 8
SPECIAL = ['<|begin|>', '<|end|>', '<|im_start|>', '<|im_end|>']
MERGES = ['t h', 'th e']
CHAT = ("{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + "
        "m['content'] + '<|im_end|>\n' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}"
        "{% endif %}")


def byte_letters():
    """GPT-2's printable letter for each byte."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in plain]
    letters = {b: chr(b) for b in plain}
    letters.update({b: chr(256 + i) for i, b in enumerate(others)})
    return [letters[b] for b in range(256)]


def vocabulary():
    return SPECIAL + byte_letters() + [m.replace(' ', '') for m in MERGES]


def write_json(path, value):
    with open(path, 'w', encoding='utf-8') as out:
        json.dump(value, out, indent=1)


def write_folder(folder):
    tokens = vocabulary()
    byte_level = {'type': 'ByteLevel', 'add_prefix_space': False,
                  'trim_offsets': True, 'use_regex': True}
    write_json(os.path.join(folder, 'tokenizer.json'), {
        'version': '1.0', 'truncation': None, 'padding': None,
        'added_tokens': [
            {'id': i, 'content': s, 'single_word': False, 'lstrip': False,
             'rstrip': False, 'normalized': False, 'special': True}
            for i, s in enumerate(SPECIAL)],
        'normalizer': None, 'pre_tokenizer': byte_level,
        'post_processor': None, 'decoder': byte_level,
        'model': {'type': 'BPE', 'dropout': None, 'unk_token': None,
                  'continuing_subword_prefix': None,
                  'end_of_word_suffix': None, 'fuse_unk': False,
                  'byte_fallback': False,
                  'vocab': {t: i for i, t in enumerate(tokens)},
                  'merges': MERGES}})
    write_json(os.path.join(folder, 'tokenizer_config.json'), {
        'tokenizer_class': 'PreTrainedTokenizerFast',
        'bos_token': SPECIAL[0], 'eos_token': SPECIAL[1],
        'pad_token': SPECIAL[1], 'model_max_length': WINDOW_TOKENS,
        'chat_template': CHAT})
    write_json(os.path.join(folder, 'config.json'), {
        'architectures': ['LlamaForCausalLM'], 'model_type': 'llama',
        'vocab_size': len(tokens), 'hidden_size': WIDTH,
        'intermediate_size': HIDDEN, 'num_hidden_layers': LAYERS,
        'num_attention_heads': HEADS, 'num_key_value_heads': KV_HEADS,
        'head_dim': WIDTH // HEADS, 'hidden_act': 'silu',
        'max_position_embeddings': WINDOW_TOKENS, 'rms_norm_eps': 1e-5,
        'rope_theta': 10000.0, 'bos_token_id': 0, 'eos_token_id': 1,
        'pad_token_id': 1, 'tie_word_embeddings': False,
        'torch_dtype': 'bfloat16'})
    write_json(os.path.join(folder, 'generation_config.json'),
               {'bos_token_id': 0, 'eos_token_id': [1], 'pad_token_id': 1})


def write_adapter(folder, head_dim, seed):
    """A LoRA adapter of it with random weights, as peft writes one."""
    os.makedirs(folder)
    write_json(os.path.join(folder, 'adapter_config.json'), {
        'peft_type': 'LORA', 'task_type': 'CAUSAL_LM', 'r': ADAPTER_RANK,
        'lora_alpha': ADAPTER_RANK, 'lora_dropout': 0.0, 'bias': 'none',
        'target_modules': ['q_proj', 'o_proj'],
        'base_model_name_or_path': None})
    rng = random.Random(seed)
    write_tensors(os.path.join(folder, 'adapter_model.safetensors'), {
        f'base_model.model.model.layers.{layer}.self_attn.{name}.{part}.weight':
            (shape, lambda: rng.gauss(0, 9))
        for layer in range(LAYERS)
        for name, into, out in (('q_proj', WIDTH, HEADS * head_dim),
                                ('o_proj', HEADS * head_dim, WIDTH))
        for part, shape in (('lora_A', (ADAPTER_RANK, into)),
                            ('lora_B', (out, ADAPTER_RANK)))})


def write_weights(folder, head_dim):
    """Weights with which each token of a prompt has a say in the answer: an
    engine's own random ones are so small that its last token decides."""
    rng = random.Random(1)
    q, kv, tokens = HEADS * head_dim, KV_HEADS * head_dim, len(vocabulary())
    found = {'model.embed_tokens': (tokens, WIDTH), 'lm_head': (tokens, WIDTH),
             'model.norm': (WIDTH,)}
    for i in range(LAYERS):
        layer = f'model.layers.{i}.'
        found.update({layer + name: shape for name, shape in {
            'input_layernorm': (WIDTH,), 'post_attention_layernorm': (WIDTH,),
            'self_attn.q_proj': (q, WIDTH), 'self_attn.k_proj': (kv, WIDTH),
            'self_attn.v_proj': (kv, WIDTH), 'self_attn.o_proj': (WIDTH, q),
            'mlp.gate_proj': (HIDDEN, WIDTH), 'mlp.up_proj': (HIDDEN, WIDTH),
            'mlp.down_proj': (WIDTH, HIDDEN)}.items()})

    def value(name, shape):
        if len(shape) == 1:
            return lambda: 1.0
        scale = shape[-1] ** -0.5 * (4 if 'self_attn' in name else 1)
        return lambda: rng.gauss(0, scale)
    write_tensors(os.path.join(folder, 'model.safetensors'), {
        f'{name}.weight': (shape, value(name, shape))
        for name, shape in found.items()})


def write_tensors(path, tensors):
    """{name: (shape, what gives a value)} as safetensors."""
    head, data = {'__metadata__': {'format': 'pt'}}, b''
    for name, (shape, value) in tensors.items():
        n = math.prod(shape)
        head[name] = {'dtype': 'F32', 'shape': shape,
                      'data_offsets': [len(data), len(data) + 4 * n]}
        data += struct.pack(f'<{n}f', *(value() for _ in range(n)))
    head = json.dumps(head).encode()
    with open(path, 'wb') as out:
        out.write(struct.pack('<Q', len(head)) + head + data)


def text(s):
    data = s.encode()
    return struct.pack('<Q', len(data)) + data


def uint32(value):
    return struct.pack('<II', 4, value)


def float32(value):
    return struct.pack('<If', 6, value)


def string(value):
    return struct.pack('<I', 8) + text(value)


def strings(values):
    return struct.pack('<IIQ', 9, 8, len(values)) + b''.join(map(text, values))


def int32s(values):
    return struct.pack(f'<IIQ{len(values)}i', 9, 5, len(values), *values)


def facts():
    tokens = vocabulary()
    normal, control = 1, 3
    return {
        'general.architecture': string('llama'),
        'general.name': string('tiny'),
        'general.alignment': uint32(32),
        'llama.vocab_size': uint32(len(tokens)),
        'llama.context_length': uint32(WINDOW_TOKENS),
        'llama.embedding_length': uint32(WIDTH),
        'llama.block_count': uint32(LAYERS),
        'llama.feed_forward_length': uint32(HIDDEN),
        'llama.rope.dimension_count': uint32(WIDTH // HEADS),
        'llama.attention.head_count': uint32(HEADS),
        'llama.attention.head_count_kv': uint32(KV_HEADS),
        'llama.attention.layer_norm_rms_epsilon': float32(1e-5),
        'tokenizer.ggml.model': string('gpt2'),
        'tokenizer.ggml.pre': string('default'),
        'tokenizer.ggml.tokens': strings(tokens),
        'tokenizer.ggml.token_type': int32s(
            [control if t in SPECIAL else normal for t in tokens]),
        'tokenizer.ggml.merges': strings(MERGES),
        'tokenizer.ggml.bos_token_id': uint32(0),
        'tokenizer.ggml.eos_token_id': uint32(1),
        'tokenizer.chat_template': string(CHAT)}


def shapes():
    """name: (columns, rows); a vector has no rows."""
    kv_width = WIDTH // HEADS * KV_HEADS
    found = {'token_embd.weight': (WIDTH, len(vocabulary())),
             'output_norm.weight': (WIDTH,),
             'output.weight': (WIDTH, len(vocabulary()))}
    for i in range(LAYERS):
        found.update({f'blk.{i}.{name}.weight': shape for name, shape in {
            'attn_norm': (WIDTH,), 'attn_q': (WIDTH, WIDTH),
            'attn_k': (WIDTH, kv_width), 'attn_v': (WIDTH, kv_width),
            'attn_output': (WIDTH, WIDTH), 'ffn_norm': (WIDTH,),
            'ffn_gate': (WIDTH, HIDDEN), 'ffn_up': (WIDTH, HIDDEN),
            'ffn_down': (HIDDEN, WIDTH)}.items()})
    return found


def write_gguf(path):
    rng = random.Random(0)
    head, infos, data = facts(), b'', b''
    for name, shape in shapes().items():
        infos += text(name) + struct.pack(
            f'<I{len(shape)}QIQ', len(shape), *shape, 0, len(data))
        if len(shape) == 1:
            values = [1.0] * shape[0]
        else:
            values = [rng.gauss(0, shape[0] ** -0.5)
                      for _ in range(shape[0] * shape[1])]
        data += struct.pack(f'<{len(values)}f', *values)
        data += bytes(-len(data) % 32)
    out = b'GGUF' + struct.pack('<IQQ', 3, len(shapes()), len(head))
    out += b''.join(text(k) + v for k, v in head.items()) + infos
    with open(path, 'wb') as f:
        f.write(out + bytes(-len(out) % 32) + data)


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    os.makedirs(sys.argv[1], exist_ok=True)
    write_folder(sys.argv[1])
    write_gguf(os.path.join(sys.argv[1], 'tiny.gguf'))


if __name__ == '__main__':
    main()
