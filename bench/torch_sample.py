#!/usr/bin/env python3
"""torch_sample.py CONFIG PROMPT TOKENS THREADS: greedy text from a GPT-2 with PyTorch on the CPU, with a key-value cache.

Prints, as JSON, the seconds of wall time of the prompt and of the other tokens, and the processor time of all. The cache is
allocated once, and a token attends to the part of it that is filled, as fast loops for PyTorch do it; fp32. Run by bench/sample.py.
"""
import json
import sys
import time

import torch
from torch import nn
from torch.nn import functional


class Model(nn.Module):
    def __init__(self, config, length):
        super().__init__()
        width, layers, self.heads = config['n_embd'], config['n_layer'], config['n_head']
        self.tokens, self.positions = nn.Embedding(config['vocab_size'], width), nn.Embedding(config['n_positions'], width)
        self.blocks = nn.ModuleList(nn.ModuleDict({
            'norm_1': nn.LayerNorm(width), 'norm_2': nn.LayerNorm(width), 'qkv': nn.Linear(width, 3 * width), 'out': nn.Linear(width, width),
            'up': nn.Linear(width, 4 * width), 'down': nn.Linear(4 * width, width)}) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.cache = torch.zeros(layers, 2, self.heads, length, width // self.heads)

    def forward(self, ids, first):
        count, end = len(ids), first + len(ids)
        x = self.tokens(ids) + self.positions(torch.arange(first, end))
        for block, cache in zip(self.blocks, self.cache):
            q, k, v = block['qkv'](block['norm_1'](x)).view(count, 3, self.heads, -1).permute(1, 2, 0, 3)
            cache[0, :, first:end], cache[1, :, first:end] = k, v
            y = functional.scaled_dot_product_attention(q[None], cache[None, 0, :, :end], cache[None, 1, :, :end], is_causal=count > 1)
            x = x + block['out'](y[0].transpose(0, 1).reshape(count, -1))
            x = x + block['down'](functional.gelu(block['up'](block['norm_2'](x)), approximate='tanh'))
        return self.norm(x[-1]) @ self.tokens.weight.T


@torch.inference_mode()
def main():
    config = json.load(open(sys.argv[1], encoding='utf-8'))
    prompt, tokens, threads = (int(word) for word in sys.argv[2:5])
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    model = Model(config, prompt + tokens).eval()
    start, processor = time.perf_counter(), time.process_time()
    token = model(torch.arange(prompt), 0).argmax()
    first = time.perf_counter()
    for position in range(prompt, prompt + tokens - 1):
        token = model(token.view(1), position).argmax()
    end = time.perf_counter()
    print(json.dumps({'prompt': first - start, 'tokens': end - first, 'processor': time.process_time() - processor}))


main()
