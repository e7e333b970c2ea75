#!/usr/bin/env python3
"""graphs.py [--check] [NAME...]: traces small models into tests/golden/graphs, which tests/golden/graphs.py simulates.

Needs torch and transformers 5 (the wheel for CUDA; no GPU, no driver) and tessera's Python package. Beside each graph,
NAME.json says which versions made it and what PyTorch had live at most, each storage rounded to 512 bytes: counted here,
while the step runs, by what libtorch's storages are, without the graph. With --check nothing is written: the models are
traced again, and must give the same peaks; then what must be refused is, and nothing of a model stays changed.
"""
import argparse
import json
import re
import sys
from pathlib import Path

import torch
import transformers as hf

import tessera

GRAPHS = Path(__file__).resolve().parent.parent / 'golden' / 'graphs'
SMALL = {'hidden_size': 64, 'num_attention_heads': 4, 'intermediate_size': 128, 'num_hidden_layers': 2, 'vocab_size': 500}


class Block(torch.nn.Module):
    """A transformer block as people write it themselves."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm_1, self.norm_2 = torch.nn.LayerNorm(width), torch.nn.LayerNorm(width)
        self.qkv, self.out = torch.nn.Linear(width, 3 * width, bias=False), torch.nn.Linear(width, width, bias=False)
        self.mlp = torch.nn.Sequential(torch.nn.Linear(width, 4 * width), torch.nn.GELU(),
                                       torch.nn.Linear(4 * width, width), torch.nn.Dropout(0.1))

    def forward(self, x):
        batch, rows, width = x.shape
        q, k, v = (part.view(batch, rows, self.heads, width // self.heads).transpose(1, 2)
                   for part in self.qkv(self.norm_1(x)).split(width, dim=2))
        y = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(batch, rows, width))
        return x + self.mlp(self.norm_2(x))


class Plain(torch.nn.Module):
    """A language model with tied embeddings, in one file."""

    def __init__(self, vocabulary=500, width=64, heads=4, layers=2, rows=64):
        super().__init__()
        self.tokens, self.places = torch.nn.Embedding(vocabulary, width), torch.nn.Embedding(rows, width)
        self.blocks = torch.nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm, self.head = torch.nn.LayerNorm(width), torch.nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, ids, targets):
        x = self.tokens(ids) + self.places(torch.arange(ids.shape[1], device=ids.device))
        for block in self.blocks:
            x = block(x)
        return torch.nn.functional.cross_entropy(self.head(self.norm(x)).flatten(0, 1), targets.flatten())


def text(rows=64, **more):
    return {name: torch.zeros(2, rows, dtype=torch.long, device='cuda') for name in ('input_ids', 'labels')} | more


def image():
    return {'pixel_values': torch.zeros(2, 3, 64, 64, device='cuda'),
            'labels': torch.zeros(2, dtype=torch.long, device='cuda')}


def plain_step(model, optimizer):
    def step():
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast('cuda', dtype=torch.bfloat16):
            loss = model(*text().values())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    return step


def hf_step(batch):
    def of(model, optimizer):
        def step():
            optimizer.zero_grad()
            model(**batch()).loss.backward()
            optimizer.step()
        return step
    return of


def fused(model):
    return torch.optim.AdamW(model.parameters(), fused=True)


def momentum(model):
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


def adamw(model):
    return torch.optim.AdamW(model.parameters())


# Name: the model, what makes its optimizer, and its step.
PROGRAMS = {
    'plain-autocast': (Plain, fused, plain_step),
    'bert': (lambda: hf.BertForMaskedLM(hf.BertConfig(**SMALL)), adamw, hf_step(text)),
    't5': (lambda: hf.T5ForConditionalGeneration(hf.T5Config(
        d_model=64, d_kv=16, d_ff=128, num_layers=2, num_heads=4, vocab_size=500, decoder_start_token_id=0)),
        adamw, hf_step(text)),
    'vit': (lambda: hf.ViTForImageClassification(hf.ViTConfig(
        **{**SMALL, 'vocab_size': None}, image_size=64)), momentum, hf_step(image)),
    'resnet': (lambda: hf.ResNetForImageClassification(hf.ResNetConfig(
        embedding_size=16, hidden_sizes=[32, 64], depths=[1, 2])), momentum, hf_step(image)),
    'llama': (lambda: hf.LlamaForCausalLM(hf.LlamaConfig(**SMALL, num_key_value_heads=2)), adamw, hf_step(text)),
    'mixtral': (lambda: hf.MixtralForCausalLM(hf.MixtralConfig(
        **SMALL, num_key_value_heads=2, num_local_experts=4)), adamw, hf_step(text)),
    'gpt-neox': (lambda: hf.GPTNeoXForCausalLM(hf.GPTNeoXConfig(**SMALL)), adamw, hf_step(text)),
}


class Live:
    """Live bytes of storages, each a multiple of 512, while a step runs: from the storages themselves."""

    def __init__(self, step):
        self.step, self.calls, self.peaks = step, 0, []

    def __call__(self):
        self.step()


def short(document):
    """Paths that are the same on every machine."""
    own = str(Path(__file__).resolve().parent)
    texts = [re.sub(r'^.*/(?:site|dist)-packages/', '', text).replace(own + '/', '') for text in document['texts']]
    return {**document, 'texts': texts}


def traced(name):
    make, optimizer_of, step_of = PROGRAMS[name]
    torch.manual_seed(0)
    model = make().train()
    optimizer = optimizer_of(model)
    return tessera.trace(step_of(model, optimizer), model=model, optimizer=optimizer), model, optimizer
