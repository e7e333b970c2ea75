#!/usr/bin/env python3
"""A tiny GPT-2 as a checkpoint of llm.c, tokens to train it on, and the losses that PyTorch has.

    python tests/torch/llmc.py FOLDER     writes FOLDER/tiny.bin, tiny-bf16.bin and tokens.bin: needs no package
    python tests/torch/llmc.py --losses   prints ten losses: needs torch
    python tests/torch/llmc.py --check    compares them with those of llmc.txt

Weights and tokens come from a formula. llmc.txt has the losses that llm.c itself printed for these files; its first
lines describe how. tests/golden/test_train.py trains the same model with tessera.
"""
import pathlib
import struct
import sys

POSITIONS, VOCABULARY, LAYERS, HEADS, WIDTH, PADDED = 32, 96, 2, 4, 48, 128
BATCH, SEQUENCE, STEPS = 4, 16, 10  # as llm.c counts: a sequence has as many tokens as are predicted
TOKENS = 3 * BATCH * SEQUENCE + 9  # so that the fourth step starts again at the beginning
MASK = (1 << 64) - 1
NEAR = 5e-6  # losses of all versions of PyTorch


def uniform(key, i):
    """The i-th number of a key, from -1 to 1: SplitMix64."""
    z = ((key << 32) + i + 1) * 0x9E3779B97F4A7C15 & MASK
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & MASK
    z = (z ^ z >> 27) * 0x94D049BB133111EB & MASK
    return ((z ^ z >> 31) >> 11) / 2.0**52 - 1.0


def tensors():
    """Names, shapes as llm.c has them, and centres, in the file's order; the vocabulary is not padded yet."""
    layer = [('ln1w', (WIDTH,), 1), ('ln1b', (WIDTH,), 0), ('qkvw', (3 * WIDTH, WIDTH), 0), ('qkvb', (3 * WIDTH,), 0),
             ('attprojw', (WIDTH, WIDTH), 0), ('attprojb', (WIDTH,), 0), ('ln2w', (WIDTH,), 1), ('ln2b', (WIDTH,), 0),
             ('fcw', (4 * WIDTH, WIDTH), 0), ('fcb', (4 * WIDTH,), 0), ('fcprojw', (WIDTH, 4 * WIDTH), 0),
             ('fcprojb', (WIDTH,), 0)]
    yield 'wte', (VOCABULARY, WIDTH), 0
    yield 'wpe', (POSITIONS, WIDTH), 0
    for name, shape, centre in layer:
        yield name, (LAYERS, *shape), centre
    yield 'lnfw', (WIDTH,), 1
    yield 'lnfb', (WIDTH,), 0


def weights():
    """{name: (shape, numbers)}"""
    made = {}
    for key, (name, shape, centre) in enumerate(tensors(), 1):
        count = 1
        for size in shape:
            count *= size
        made[name] = shape, [centre + 0.1 * uniform(key, i) for i in range(count)]
    return made


def tokens():
    """Random tokens, each close to the previous one."""
    last, made = 0, []
    for i in range(TOKENS):
        last = (last + int((uniform(1000, i) + 1) * 3)) % VOCABULARY
        made.append(last)
    return made


def as_fp32(numbers):
    return struct.pack(f'<{len(numbers)}f', *numbers)


def as_bf16(numbers):
    """Rounded to the nearest, ties to even."""
    words = struct.unpack(f'<{len(numbers)}I', as_fp32(numbers))
    return struct.pack(f'<{len(numbers)}H', *((word + 0x7FFF + (word >> 16 & 1)) >> 16 for word in words))


def checkpoint(version=3):
    header = [20240326, version, POSITIONS, VOCABULARY, LAYERS, HEADS, WIDTH, PADDED]
    data = struct.pack('<256i', *header, *[0] * (256 - len(header)))
    pack = as_fp32 if version == 3 else as_bf16
    for name, (_, numbers) in weights().items():
        padding = [0.0] * ((PADDED - VOCABULARY) * WIDTH) if name == 'wte' else []
        data += pack(numbers + padding)
    return data


def token_file():
    made = tokens()
    return struct.pack('<256i', 20240520, 1, len(made), *[0] * 253) + struct.pack(f'<{len(made)}H', *made)


def losses():
    import torch  # pylint: disable=import-outside-toplevel
    from torch.nn import functional  # pylint: disable=import-outside-toplevel
    torch.set_num_threads(1)
    w = {name: torch.nn.Parameter(torch.tensor(numbers, dtype=torch.float64).float().reshape(shape))
         for name, (shape, numbers) in weights().items()}
    optimizer = torch.optim.AdamW(w.values(), lr=1e-4, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0)
    data, per_step = torch.tensor(tokens()), BATCH * SEQUENCE
    for step in range(STEPS):
        at = step % ((TOKENS - 1) // per_step) * per_step
        ids = data[at:at + per_step].reshape(BATCH, SEQUENCE)
        x = w['wte'][ids] + w['wpe'][:SEQUENCE]
        for i in range(LAYERS):
            normal = functional.layer_norm(x, (WIDTH,), w['ln1w'][i], w['ln1b'][i])
            parts = functional.linear(normal, w['qkvw'][i], w['qkvb'][i]).split(WIDTH, dim=2)
            q, k, v = (part.reshape(BATCH, SEQUENCE, HEADS, -1).transpose(1, 2) for part in parts)
            y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            y = y.transpose(1, 2).reshape(BATCH, SEQUENCE, WIDTH)
            x = x + functional.linear(y, w['attprojw'][i], w['attprojb'][i])
            normal = functional.layer_norm(x, (WIDTH,), w['ln2w'][i], w['ln2b'][i])
            wide = functional.gelu(functional.linear(normal, w['fcw'][i], w['fcb'][i]), approximate='tanh')
            x = x + functional.linear(wide, w['fcprojw'][i], w['fcprojb'][i])
        logits = functional.linear(functional.layer_norm(x, (WIDTH,), w['lnfw'], w['lnfb']), w['wte'])
        loss = functional.cross_entropy(logits.flatten(0, 1), data[at + 1:at + 1 + per_step])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield loss.item()


def check():
    lines = pathlib.Path(__file__).with_suffix('.txt').read_text(encoding='utf-8').splitlines()
    known = [float(line.split()[2]) for line in lines if not line.startswith('#')]
    apart = max(abs(loss - was) for loss, was in zip(losses(), known, strict=True))
    is_right = apart < NEAR
    print(f'{"ok" if is_right else "not ok"} - losses of llm.c\'s model: {apart:.2g} apart')
    return int(not is_right)


def main(arguments):
    if arguments == ['--losses']:
        print(*(f'{loss:.6f}' for loss in losses()), sep='\n')
    elif arguments == ['--check']:
        sys.exit(check())
    elif len(arguments) == 1:
        folder = pathlib.Path(arguments[0])
        for name, data in (('tiny.bin', checkpoint()), ('tiny-bf16.bin', checkpoint(5)),
                           ('tokens.bin', token_file())):
            (folder / name).write_bytes(data)
    else:
        sys.exit(__doc__)


if __name__ == '__main__':
    main(sys.argv[1:])
