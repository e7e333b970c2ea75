#!/usr/bin/env python3
"""graphs.py [--check] [NAME...]: traces small models into tests/golden/graphs, which tests/golden/graphs.py simulates.

Needs torch (a wheel for CUDA; no GPU, no driver), transformers 5 and tessera's Python package. Beside the graphs,
peaks.json says which versions made them, and what PyTorch's own MemTracker counted at the peak of the third step: each
storage rounded to 512 bytes, as by the allocator. With --check nothing is written: the models are traced again and must
have the recorded peaks, what cannot be traced must be refused, and a model must be afterwards what it was before.
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


def short(document):
    """Paths that are the same on every machine."""
    own = str(Path(__file__).resolve().parent)
    texts = [re.sub(r'^.*/(?:site|dist)-packages/', '', text).replace(own + '/', '') for text in document['texts']]
    return {**document, 'texts': texts}


def program(name):
    make, optimizer_of, step_of = PROGRAMS[name]
    torch.manual_seed(0)
    model = make().train()
    optimizer = optimizer_of(model)
    return model, optimizer, step_of(model, optimizer)


def counted(name):
    """The peak of the third step, as MemTracker counts it. It holds on to things, so that the step then differs."""
    from torch.distributed._tools.mem_tracker import MemTracker
    model, optimizer, step = program(name)
    calls, found = [], []

    def tracked():
        calls.append(0)
        if len(calls) < 3:
            return step()
        tracker = MemTracker()
        tracker.track_external(model, optimizer)
        with tracker, torch.autograd.graph.saved_tensors_hooks(lambda tensor: tensor, lambda tensor: tensor):
            step()  # autograd saves tensors themselves, not twins
        found.extend(sizes['Total'] for device, sizes in tracker.get_tracker_snapshot('peak').items()
                     if device.type == 'cuda')
    try:
        tessera.trace(tracked, model=model, optimizer=optimizer)
    except tessera.TraceError:
        pass
    return found[0]


def peak(document):
    """Of the third step, from the graph, each storage rounded to 512 bytes."""
    sizes = [-(-size // 512) * 512 for size in document['slots']['bytes']]
    live, top = sum(sizes[:document['static']]), 0
    for step in range(3):
        top = live
        for word, subject, *_ in document['instructions']:
            if word == 'new' or (word == 'once' and step == 0):
                live += sizes[subject]
            elif word == 'drop' or (word == 'drop_previous' and step):
                live -= sizes[subject]
            top = max(top, live)
    return top


# ---- What is refused, and what stays ----

def refused(step, model, optimizer, expected):
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    kept = [id(tensor) for tensor in (*model.parameters(), *model.buffers())]
    groups = [dict(group) for group in optimizer.param_groups]
    attributes = set(optimizer.__dict__)
    random = torch.random.get_rng_state()
    message = 'nothing'
    try:
        tessera.trace(step, model=model, optimizer=optimizer)
    except tessera.TraceError as error:
        message = str(error)
    yield f'{expected!r} instead of {message!r}', expected not in message
    after = model.state_dict()
    yield 'the model has changed', not all(torch.equal(after[name], tensor) for name, tensor in before.items())
    yield 'other tensors', kept != [id(tensor) for tensor in (*model.parameters(), *model.buffers())]
    yield 'hooks stay', bool(model._forward_hooks or model._forward_pre_hooks or optimizer._optimizer_step_pre_hooks)
    same = all(list(map(id, old['params'])) == list(map(id, new['params'])) and old['lr'] == new['lr']
               for old, new in zip(groups, optimizer.param_groups))
    yield 'the optimizer has changed', not same or attributes != set(optimizer.__dict__) or bool(optimizer.state)
    yield 'random numbers have moved', not torch.equal(random, torch.random.get_rng_state())
    yield 'CUDA is said to be there', torch.cuda.device_count() > 0 and not torch.cuda.is_available()


def faults():
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.BatchNorm1d(8))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    kept, sizes = [], iter(range(2, 100))

    def run(rows=4, device='cuda'):
        optimizer.zero_grad()
        loss = model(torch.randn(rows, 8, device=device)).sum()
        loss.backward()
        optimizer.step()
        return loss

    for step, expected in (
            (lambda: run().item(), 'graphs.py:'), (lambda: run().item(), 'needs the value of a tensor'),
            (lambda: run(device='cpu'), "mixes tensors on 'cpu'"), (lambda: kept.append(run()), 'for good'),
            (lambda: run(next(sizes)), 'differ'), (run, 'nothing')):
        yield from refused(step, model, optimizer, expected)
    run_really = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    model(torch.randn(4, 8)).sum().backward()
    run_really.step()
    message = ''
    try:
        tessera.trace(run, model=model, optimizer=run_really)
    except tessera.TraceError as error:
        message = str(error)
    yield message, 'has made steps already' not in message
    yield 'the model is half fake', any(parameter.device.type != 'cpu' for parameter in model.parameters())


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--check', action='store_true')
    parser.add_argument('names', nargs='*', metavar='NAME')
    given = parser.parse_args()
    at = GRAPHS / 'peaks.json'
    known = json.loads(at.read_text(encoding='utf-8')) if at.exists() else {}
    wrong = 0
    for name in given.names or PROGRAMS:
        model, optimizer, step = program(name)
        document = short(tessera.trace(step, model=model, optimizer=optimizer))
        found = {'torch': torch.__version__, 'transformers': hf.__version__, 'peak_bytes': counted(name)}
        is_right = peak(document) == found['peak_bytes'] and (not given.check or known.get(name) == found)
        wrong += not is_right
        print(f'{"ok" if is_right else "not ok"} - {name}: {peak(document)}, {found["peak_bytes"]}', flush=True)
        known[name] = found
        if not given.check:
            (GRAPHS / f'{name}.graph').write_text(json.dumps(document, separators=(',', ':')) + '\n', encoding='utf-8')
    for what, is_wrong in faults() if given.check else ():
        wrong += is_wrong
        if is_wrong:
            print(f'not ok - {what}')
    if not given.check:
        at.write_text(json.dumps(known, indent=1, sort_keys=True) + '\n', encoding='utf-8')
    return wrong > 0


if __name__ == '__main__':
    sys.exit(main())
