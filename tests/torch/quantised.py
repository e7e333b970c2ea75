#!/usr/bin/env python3
"""quantised.py [--check] [NAME...]: weights of bitsandbytes and torchao, traced, and counted by hand.

Needs the packages that ./run test torch installs; no GPU. The sizes of bitsandbytes are those of 0.50: what a quantised layer consists of, what a
product and its backward pass allocate (autograd/_functions.py, backends/cuda/ops.py), and the states of optimizers of 8 bits. A model is traced as
a program and as a step.
"""
import argparse
import collections
import sys
import tempfile
from pathlib import Path

import bitsandbytes as bnb
import torch
import transformers as hf

import tessera
from programs import adamw8bit, quantised_llama
from tessera import _script, _trace

BLOCK, TABLE_BYTES = 64, 256 * 4


# ---- By hand ----

def blocks(count, of):
    return -(-count // of)


def parts_of(count, nested):
    """The bytes of what a weight of `count` numbers consists of."""
    scales = blocks(count, BLOCK)
    more = [scales, 4 * blocks(scales, 256), 4, TABLE_BYTES] if nested else [4 * scales]
    return [count // 2, 16 * 4, *more]


def forward_of(rows, columns, tokens, nested, is_fused):
    """A product in bf16."""
    scales = [4 * blocks(rows * columns, BLOCK)] * 2 if nested and not is_fused else []
    return [*scales, *([] if is_fused else [2 * rows * columns]), 2 * rows * tokens]


def backward_of(rows, columns, tokens, nested, dtype):
    """The gradient of what the layer is given. The weight is dequantised to its type before it was quantised."""
    scales = [4 * blocks(rows * columns, BLOCK)] if nested else []
    cast = [2 * rows * columns] if dtype != torch.bfloat16 else []
    return [*scales, dtype.itemsize * rows * columns, *cast, 2 * columns * tokens]


def states_of(counts, bits=8, are_paged=False):
    """The bytes of AdamW's states of tensors of so many numbers. Those of small ones have 32 bits, and the driver moves large ones."""
    if bits == 32:
        return sum(8 * count for count in counts if not are_paged or count < 100_000)
    packed = sum(2 * 4 * blocks(count, 256) + (2 * count if not are_paged or count < 100_000 else 0) for count in counts if count >= 4096)
    return packed + sum(8 * count for count in counts if count < 4096) + 2 * TABLE_BYTES


# ---- One layer ----

def allocations(document, word):
    """The bytes of what is allocated with a name on the stack."""
    texts, out = document['texts'], []
    for kind, slot, *stack in document['instructions']:
        if kind == 'new' and any(texts[document['frames'][frame][0]] == word for frame in document['stacks'][stack[0]]):
            out.append(document['slots']['bytes'][slot])
    return out


def layer_program(rows, columns, tokens, nested, dtype, bias=False):
    def program():
        layer = bnb.nn.Linear4bit(columns, rows, bias=bias, compute_dtype=torch.bfloat16, compress_statistics=nested, quant_type='nf4')
        layer = layer.to(dtype).cuda()
        table = torch.nn.Parameter(torch.randn(tokens, columns, device='cuda', dtype=torch.bfloat16))
        optimizer = torch.optim.SGD([table])
        for _ in range(6):
            layer(table).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
    return program


# Rows, columns, tokens, double quantisation, the type before, and whether the card's own kernel multiplies without dequantising.
LAYERS = ((1024, 512, 4096, True, torch.float32, False), (1024, 512, 4096, False, torch.bfloat16, False),
          (512, 1024, 1537, True, torch.bfloat16, False), (512, 1024, 4, True, torch.bfloat16, True), (512, 1024, 4, False, torch.float16, True),
          (640, 200, 2048, False, torch.float32, False))


def layers():
    for case in LAYERS:
        rows, columns, tokens, nested, dtype, is_fused = case
        document = tessera.trace(layer_program(*case[:5]))
        static = document['slots']['bytes'][:document['static']]
        expected = collections.Counter([*parts_of(rows * columns, nested), 2 * tokens * columns, *([TABLE_BYTES] if nested else [])])
        yield f'{case}: {static}', collections.Counter(static) != expected
        got = allocations(document, 'forward')
        yield f'{case}, forward: {got}', [size for size in got if size != rows] != forward_of(rows, columns, tokens, nested, is_fused)
        got = allocations(document, 'torch::autograd::generated::MatMul4BitBackward::apply')
        yield f'{case}, backward: {got}', got != backward_of(rows, columns, tokens, nested, dtype)
        yield f'{case}: {document["parameters"]} parameters', document['parameters'] != rows * columns


# ---- A model ----

def step_of(model, optimizer):
    def step():
        ids = torch.randint(0, 2000, (4, 512), device='cuda')
        model(input_ids=ids, labels=ids).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return step


def peak(document):
    with tempfile.TemporaryDirectory() as work:
        path = Path(work) / 'step.graph'
        _trace.write(document, path)
        return tessera.simulate(str(path))['devices'][0]['peak']['allocated_bytes']


def state_bytes(document):
    return sum(size for size, category in zip(document['slots']['bytes'], document['slots']['category']) if category == 'optimizer_state')


def models():
    """A model as a step and as a program. Its shapes are those of programs.py."""
    width, wide, few = 256, 512, 128
    shapes = [(width, width), (few, width), (few, width), (width, width), (wide, width), (wide, width), (width, wide)] * 2
    weights = sum(sum(parts_of(rows * columns, True)) for rows, columns in shapes)
    adapters = sum(16 * (rows + columns) for rows, columns in shapes)
    others = 4 * (2 * 2000 * width + 5 * width)  # which peft makes fp32: embeddings, head and norms
    buffers = 4 * width // 4 // 2  # inverse frequencies
    model = quantised_llama(r=16)
    optimizer = adamw8bit(model)
    step = tessera.trace(step_of(model, optimizer), model=model, optimizer=optimizer)
    got, expected = state_bytes(step), states_of([16 * size for shape in shapes for size in shape])
    yield f'states of {got} bytes instead of {expected}', got != expected
    got = sum(size for size, category in zip(step['slots']['bytes'][:step['static']], step['slots']['category'])
              if category in ('parameter', 'buffer'))
    expected = weights + 4 * adapters + others + buffers
    yield f'weights of {got} bytes instead of {expected}', got != expected
    expected = sum(rows * columns for rows, columns in shapes) + adapters + others // 4
    yield f'{step["parameters"]} parameters instead of {expected}', step['parameters'] != expected
    yield 'the model is as before', not all(
        type(part) is torch.Tensor for module in model.modules() if isinstance(module, bnb.nn.Linear4bit)
        for part in (module.weight.data, module.weight.quant_state.absmax))

    def program():
        moved = quantised_llama(r=16, device='cuda')
        again = step_of(moved, adamw8bit(moved))
        for _ in range(6):
            again()
    more = peak(tessera.trace(program)) - peak(step)
    yield f'{more} bytes more as a program', more != TABLE_BYTES  # one table is the library's


def optimizers():
    """In programs, and with an optimizer that exists already."""
    for name, bits, are_paged in (('AdamW8bit', 8, False), ('PagedAdamW8bit', 8, True), ('PagedAdamW32bit', 32, True), ('AdamW32bit', 32, False)):
        model = torch.nn.Sequential(torch.nn.Linear(400, 300), torch.nn.Linear(300, 40), torch.nn.Linear(40, 4))
        optimizer = getattr(bnb.optim, name)(model.parameters())

        def step():
            model(torch.randn(8, 400, device='cuda')).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
        expected = states_of([param.numel() for param in model.parameters()], bits, are_paged)
        for _ in range(2):  # the first trace leaves nothing
            got = state_bytes(tessera.trace(step, model=model, optimizer=optimizer))
            yield f'{name}: states of {got} bytes instead of {expected}', got != expected or bool(optimizer.state)


# ---- Weights of 8 bits ----

def eights():
    """As a step and as a program: one byte a number, and a scale for each row."""
    rows, columns, tokens = 256, 512, 1024

    def made(device):
        layer = bnb.nn.Linear8bitLt(columns, rows, bias=False, has_fp16_weights=False).to(device)
        before = torch.nn.Linear(columns, columns, bias=False, dtype=torch.float16, device=device)
        return torch.nn.Sequential(before, layer), torch.optim.SGD(before.parameters(), lr=0.1)

    def step_of(model, optimizer):
        def step():
            model(torch.randn(tokens, columns, device='cuda', dtype=torch.float16)).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
        return step

    def program():
        step = step_of(*made('cuda'))
        for _ in range(6):
            step()
    model, optimizer = made('cpu')
    static = collections.Counter([rows * columns, 4 * rows, 2 * columns * columns])
    forward = [4 * tokens, tokens * columns, 4 * tokens * rows, 2 * tokens * rows]  # scales and numbers of x, sums, and what they are in fp16
    backward = [2 * rows * columns, 4 * rows, 2 * tokens * columns]
    for what, document in ('program', tessera.trace(program)), ('step', tessera.trace(step_of(model, optimizer), model=model, optimizer=optimizer)):
        got = document['slots']['bytes'][:document['static']]
        yield f'{what}: {got}', collections.Counter(got) != static
        got = [size for size in allocations(document, 'matmul') if size > 4]
        yield f'{what}, forward: {got}', got != forward
        got = [size for size in allocations(document, 'torch::autograd::generated::MatMul8bitLtBackward::apply') if size > 4]
        yield f'{what}, backward: {got}', got != backward


# ---- torchao ----

def float8():
    """Each operand is cast through fp32 to FP8 with one scale, by torchao's source; only the input itself is kept."""
    from torchao.float8 import convert_to_float8_training
    rows, columns, tokens = 256, 512, 1024

    def made(device):
        model = torch.nn.Sequential(torch.nn.Linear(columns, rows, bias=False, dtype=torch.bfloat16, device=device))
        return convert_to_float8_training(model), torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer = made('cpu')

    def step():
        x = torch.randn(tokens, columns, device='cuda', dtype=torch.bfloat16)
        model(x).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    document = tessera.trace(step, model=model, optimizer=optimizer, gpu='h100')
    casts = [size for count in (tokens * columns, rows * columns) for size in (2 * count, 4 * count, 4 * count, 4 * count, count)]
    got = [size for size in allocations(document, 'forward') if size > 8][:len(casts) + 1]  # backward casts in functions of this name
    yield f'forward: {got}', got != [*casts, 2 * tokens * rows]
    got = [size for size, category in zip(document['slots']['bytes'], document['slots']['category']) if category in ('activation', 'input') and size > 8]
    yield f'kept: {got}', got != [2 * tokens * columns]
    try:
        got = str(tessera.trace(step, model=model, optimizer=optimizer, gpu='a100'))
    except tessera.TraceError as error:
        got = str(error)
    yield f'on an A100: {got}', 'multiplies in FP8, which the NVIDIA A100' not in got


def nf4():
    """torchao's weights in 4 bits, which torchtune uses: a scale of 8 bits for 64 numbers, and a factor in bf16 for 256 scales."""
    from torchao.dtypes.nf4tensor import linear_nf4, to_nf4
    rows, columns = 256, 512

    def program():
        weight = torch.nn.Parameter(to_nf4(torch.randn(rows, columns, dtype=torch.bfloat16)), requires_grad=False).cuda()
        before = torch.nn.Linear(columns, columns, bias=False, dtype=torch.bfloat16, device='cuda')
        optimizer = torch.optim.SGD(before.parameters(), lr=0.1)
        for _ in range(6):
            linear_nf4(before(torch.randn(64, columns, dtype=torch.bfloat16, device='cuda')), weight).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
    document = tessera.trace(program)
    got, count = document['slots']['bytes'][:document['static']], rows * columns
    yield f'{got}', collections.Counter(got) != collections.Counter([count // 2, count // 64, 2 * count // 64 // 256, 2, 2 * 16, 2 * columns * columns])


def unready():
    """A weight that would be quantised by moving it."""
    layer = bnb.nn.Linear4bit(64, 64)
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(3))])
    try:
        tessera.trace(lambda: layer(torch.randn(2, 64, device='cuda')), model=layer, optimizer=optimizer)
        got = 'traced'
    except tessera.TraceError as error:
        got = str(error)
    yield got, 'is quantised when the model moves' not in got


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--check', action='store_true', help='accepted for run.py: nothing is written in any case')
    parser.add_argument('names', nargs='*', metavar='NAME', help='layers, optimizers, models, eights, float8, nf4 or unready')
    given = parser.parse_args()
    hf.logging.set_verbosity_error()
    for module in (_trace, _script):
        module._optimizers = lambda *_: []  # other forms of the optimizers, which only take time here
    wrong, parts = 0, {'layers': layers, 'optimizers': optimizers, 'models': models, 'eights': eights, 'float8': float8, 'nf4': nf4,
                       'unready': unready}
    for name in given.names or parts:
        for what, is_wrong in parts[name]():
            wrong += bool(is_wrong)
            print(f'{"not ok" if is_wrong else "ok"} - {name}: {what}', flush=True)
    return wrong > 0


if __name__ == '__main__':
    sys.exit(main())
