#!/usr/bin/env python3
"""torch_kernels.py THREADS NAMES: what bench/kernels.c measures, with PyTorch: products in GFLOP/s, attention in ms.

NAMES is a JSON list of products, whose sizes are in their names: "... (256 x 768 x 2304)". Prints a JSON object like that
of bench/kernels.c.
"""
import json
import re
import statistics
import sys
import time

import torch
from torch.nn import functional

ROUNDS = 9
BATCH, HEADS, TOKENS, WIDTH = 4, 12, 1024, 64


def seconds_of(run):
    run()
    times = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def product(name, dtype):
    rows, depth, columns = map(int, re.search(r'\((\d+) x (\d+) x (\d+)\)$', name).groups())
    a, b = torch.randn(rows, depth).to(dtype), torch.randn(depth, columns).to(dtype)
    if 'weight' in name:
        a = a.t().contiguous().t()
    if 'head (' in name or "input" in name:
        b = b.t().contiguous().t()
    out = torch.empty(rows, columns, dtype=dtype)
    return 2 * rows * depth * columns / seconds_of(lambda: torch.mm(a, b, out=out)) * 1e-9


def attention(dtype):
    """(forward, backward) in milliseconds."""
    forward, backward = [], []
    gradient = torch.randn(BATCH, HEADS, TOKENS, WIDTH).to(dtype)
    qkv = torch.randn(BATCH, TOKENS, 3, HEADS, WIDTH).to(dtype)
    for _ in range(ROUNDS + 1):
        q, k, v = (part.requires_grad_(True) for part in qkv.permute(2, 0, 3, 1, 4).detach().unbind())
        start = time.perf_counter()
        result = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        middle = time.perf_counter()
        result.backward(gradient)
        forward.append(middle - start)
        backward.append(time.perf_counter() - middle)
    return {'forward': 1e3 * statistics.median(forward[1:]), 'backward': 1e3 * statistics.median(backward[1:])}


def main():
    torch.set_num_threads(int(sys.argv[1]))
    types = {'fp32': torch.float32, 'bf16': torch.bfloat16}
    print(json.dumps({
        'products': {name: {word: {'torch': product(name, dtype)} for word, dtype in types.items()}
                     for name in json.loads(sys.argv[2])},
        'attention': {word: attention(dtype) for word, dtype in types.items()}}))


main()
