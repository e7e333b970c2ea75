#!/usr/bin/env python3
"""Training with validation, momentum and parameters without weight decay: the losses of PyTorch's own loop.

    python tests/torch/recipes.py --check [NAME...]   needs torch and transformers

Each recipe starts from weights that tessera has made. tessera and a loop of PyTorch then make the same steps with the same batches, and both are
evaluated on the same ones. With TESSERA, a path, that program trains instead of the package's.
"""
import json
import math
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / 'tests'))
import tap  # noqa: E402

STEPS, BATCH, SEQUENCE, BATCHES, NEAR = 20, 2, 33, 7, 1e-5
PROGRAM = [os.environ['TESSERA']] if 'TESSERA' in os.environ else [sys.executable, '-m', 'tessera']
MODELS = {
    'gpt2': {'model_type': 'gpt2', 'vocab_size': 256, 'n_positions': 64, 'n_embd': 64, 'n_layer': 3, 'n_head': 4,
             'resid_pdrop': 0, 'embd_pdrop': 0, 'attn_pdrop': 0},
    'llama': {'model_type': 'llama', 'vocab_size': 256, 'hidden_size': 64, 'intermediate_size': 128, 'num_hidden_layers': 3,
              'num_attention_heads': 4, 'num_key_value_heads': 2, 'max_position_embeddings': 64}}
RECIPES = {
    'AdamW': ([], lambda torch, wide, flat: torch.optim.AdamW(wide + flat, lr=0.003)),
    'no decay': (['--no-decay', 'norms,biases', '--weight-decay', '0.5'], lambda torch, wide, flat: torch.optim.AdamW(
        [{'params': wide, 'weight_decay': 0.5}, {'params': flat, 'weight_decay': 0}], lr=0.003)),
    'momentum': (['--optimizer', 'sgd', '--momentum', '0.9', '--lr', '0.02'],
                 lambda torch, wide, flat: torch.optim.SGD(wide + flat, lr=0.02, momentum=0.9)),
    'nesterov': (['--optimizer', 'sgd', '--momentum', '0.8', '--nesterov', '--lr', '0.02'],
                 lambda torch, wide, flat: torch.optim.SGD(wide + flat, lr=0.02, momentum=0.8, nesterov=True)),
    'least rate': (['--schedule', 'cosine', '--min-lr', '0.001', '--warmup', '4'],
                   lambda torch, wide, flat: torch.optim.AdamW(wide + flat, lr=0.003))}


def rate(name, step):
    """By --schedule cosine, --min-lr and --warmup; steps from 1."""
    if name != 'least rate':
        return None
    if step <= 4:
        return 0.003 * step / 4
    return 0.001 + 0.002 * 0.5 * (1 + math.cos(math.pi * (step - 5) / (STEPS - 4)))


def train(*words):
    done = subprocess.run([*PROGRAM, 'train', *map(str, words)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise AssertionError(done.stderr)
    return [json.loads(line) for line in done.stdout.splitlines()]


def batch(torch, data, starts):
    return torch.tensor([list(data[start:start + SEQUENCE]) for start in starts])


def evaluate(torch, model, data):
    rows = BATCHES * BATCH
    last = len(data) - SEQUENCE
    starts = [i * (last // (rows - 1)) + i * (last % (rows - 1)) // (rows - 1) for i in range(rows)]
    with torch.no_grad():
        losses = []
        for first in range(0, rows, BATCH):
            ids = batch(torch, data, starts[first:first + BATCH])
            losses.append(model(ids, labels=ids).loss.item())
    return sum(losses) / BATCHES


def compare(folder, model, name):
    import torch
    from transformers import AutoModelForCausalLM
    data, other = (ROOT / 'CONTRIBUTING.md').read_bytes(), (ROOT / 'docs' / 'plan.md').read_bytes()
    (folder / 'data.txt').write_bytes(data)
    (folder / 'val.txt').write_bytes(other)
    (folder / f'{model}.json').write_text(json.dumps(MODELS[model]))
    common = ['--data', folder / 'data.txt', '--order', 'sequential', '--batch', BATCH, '--seq', SEQUENCE, '--json', '-q']
    start, end = (folder / f'{model}_{name}_{part}'.replace(' ', '_') for part in ('start', 'end'))
    train(folder / f'{model}.json', *common, '--steps', 1, '--lr', '1e-30', '--weight-decay', 0, '--save', start)
    options, optimizer = RECIPES[name]
    rates = [] if '--lr' in options else ['--lr', '0.003']
    lines = train(start, *common, '--steps', STEPS, '--save', end, '--val', folder / 'val.txt', '--eval-every', 10, '--eval-steps', BATCHES, '--tokens', 'bytes',
                  *rates, *options)
    network = AutoModelForCausalLM.from_pretrained(start, dtype=torch.float32).train()
    wide = [parameter for parameter in network.parameters() if parameter.dim() > 1]
    flat = [parameter for parameter in network.parameters() if parameter.dim() == 1]
    chosen, wrong = optimizer(torch, wide, flat), []
    for step, line in enumerate(lines[:-1], 1):
        first = (step - 1) * BATCH * (SEQUENCE - 1)
        ids = batch(torch, data, [first + row * (SEQUENCE - 1) for row in range(BATCH)])
        for group in chosen.param_groups:
            group['lr'] = rate(name, step) or group['lr']
        chosen.zero_grad()
        loss = network(ids, labels=ids).loss
        loss.backward()
        chosen.step()
        told = {'loss': loss.item()}
        if line['validation_loss'] is not None:
            told['validation_loss'] = evaluate(torch, network, other)
        wrong += [f'step {step}: {key} {line[key]}, PyTorch {value}' for key, value in told.items() if abs(line[key] - value) > NEAR]
    evaluated = [line['step'] for line in lines[:-1] if line['validation_loss'] is not None]
    if evaluated != [10, 20]:
        wrong.append(f'evaluated after {evaluated}')
    best = AutoModelForCausalLM.from_pretrained(end / 'best', dtype=torch.float32)
    if abs(evaluate(torch, best, other) - lines[-1]['best_validation_loss']) > NEAR:
        wrong.append('DIR/best has other weights than the best')
    if lines[-1]['peak_bytes'] != lines[-1]['predicted_peak_bytes']:
        wrong.append('another peak than predicted')
    return wrong


def main():
    names = [name for name in sys.argv[1:] if name != '--check']
    report = tap.Report()
    with tempfile.TemporaryDirectory() as folder:
        for model in MODELS:
            for name in RECIPES:
                if names and name not in names:
                    continue
                try:
                    report.result(f'{model}: {name}', compare(Path(folder), model, name))
                except AssertionError as error:
                    report.result(f'{model}: {name}', str(error).splitlines())
    return report.end()


if __name__ == '__main__':
    sys.exit(main())
