#!/usr/bin/env python3
"""torch_step.py CONFIG BATCH SEQ STEPS THREADS fp32|bf16: training steps of a GPT-2 or a Llama with PyTorch on the CPU.

Prints, as JSON, the seconds of wall and processor time of each step. Eager PyTorch as a user would write it: scaled
dot-product attention, GELU by tanh or SwiGLU, cross-entropy of all logits, fused AdamW; bf16 is autocast. Run by bench/train.py in
an environment of its own.
"""
import json
import sys
import time

import torch
from torch import nn
from torch.nn import functional


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.before_attention = nn.LayerNorm(width)
        self.before_mlp = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x):
        batch, rows, width = x.shape
        parts = self.qkv(self.before_attention(x)).view(batch, rows, 3, self.heads, width // self.heads)
        q, k, v = parts.permute(2, 0, 3, 1, 4)
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(batch, rows, width))
        return x + self.down(functional.gelu(self.up(self.before_mlp(x)), approximate='tanh'))


class LlamaBlock(nn.Module):
    def __init__(self, config):
        super().__init__()
        width, inner, self.heads = config['hidden_size'], config['intermediate_size'], config['num_attention_heads']
        self.before_attention = nn.RMSNorm(width, eps=1e-6)
        self.before_mlp = nn.RMSNorm(width, eps=1e-6)
        self.q, self.k, self.v, self.out = (nn.Linear(width, width, bias=False) for _ in range(4))
        self.gate, self.up = (nn.Linear(width, inner, bias=False) for _ in range(2))
        self.down = nn.Linear(inner, width, bias=False)

    def forward(self, x, cosine, sine):
        batch, rows, width = x.shape
        normal = self.before_attention(x)
        q, k, v = (project(normal).view(batch, rows, self.heads, -1).transpose(1, 2) for project in (self.q, self.k, self.v))
        q, k = (y * cosine + torch.cat((-y[..., y.shape[-1] // 2:], y[..., :y.shape[-1] // 2]), dim=-1) * sine for y in (q, k))
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(batch, rows, width))
        normal = self.before_mlp(x)
        return x + self.down(functional.silu(self.gate(normal)) * self.up(normal))


class Llama(nn.Module):
    def __init__(self, config):
        super().__init__()
        width = config['hidden_size']
        self.tokens = nn.Embedding(config['vocab_size'], width)
        self.blocks = nn.ModuleList(LlamaBlock(config) for _ in range(config['num_hidden_layers']))
        self.norm = nn.RMSNorm(width, eps=1e-6)
        self.head = nn.Linear(width, config['vocab_size'], bias=False)
        size = width // config['num_attention_heads']
        self.register_buffer('frequencies', 1 / 10000 ** (torch.arange(0, size, 2) / size))

    def forward(self, ids):
        x = self.tokens(ids)
        angles = torch.outer(torch.arange(ids.shape[1]).float(), self.frequencies).repeat(1, 2)
        cosine, sine = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
        for block in self.blocks:
            x = block(x, cosine, sine)
        return self.head(self.norm(x))


class Model(nn.Module):
    def __init__(self, config):
        super().__init__()
        width = config['n_embd']
        self.tokens = nn.Embedding(config['vocab_size'], width)
        self.positions = nn.Embedding(config['n_positions'], width)
        self.blocks = nn.ModuleList(Block(width, config['n_head']) for _ in range(config['n_layer']))
        self.norm = nn.LayerNorm(width)

    def forward(self, ids):
        x = self.tokens(ids) + self.positions(torch.arange(ids.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.norm(x) @ self.tokens.weight.T


def main():
    config = json.load(open(sys.argv[1], encoding='utf-8'))
    batch, rows, steps, threads = (int(word) for word in sys.argv[2:6])
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    model = (Llama if config['model_type'] == 'llama' else Model)(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    wall, processor = [], []
    for _ in range(steps):
        ids = torch.randint(0, 256, (batch, rows))
        start, start_cpu = time.perf_counter(), time.process_time()
        with torch.autocast('cpu', dtype=torch.bfloat16, enabled=sys.argv[6] == 'bf16'):
            logits = model(ids)
            loss = functional.cross_entropy(logits[:, :-1].reshape(-1, logits.shape[-1]), ids[:, 1:].reshape(-1))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        wall.append(time.perf_counter() - start)
        processor.append(time.process_time() - start_cpu)
    print(json.dumps({'torch': torch.__version__, 'wall': wall, 'processor': processor}))


main()
