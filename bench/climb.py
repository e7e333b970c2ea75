#!/usr/bin/env python3
"""climb.py --climb BINARY [--models N] [--tries N|all] [--seed N]: how far plans of `tessera plan` are from the best that a random search finds.

Draws small models, batches, cards and budgets. bench/climb.c asks the planner, and then changes the best plan that it knows at random and simulates it, `tries`
times. With `--tries all` the models have one or two blocks, some choices are allowed, and every plan of the space that these span is compared (docs/plan.md,
What is searched). Prints a row of Markdown for each model, and last how many plans were improved by more than 0.1 %."""
import argparse
import json
import random
import re
import subprocess
import sys
import tempfile
from pathlib import Path

LINE = re.compile(r'budget (\S+) MiB .*planner (\S+) ms in (\d+) sims, climb (\S+) ms, gain (\S+) %, gap (\S+) %')


def draw(seed):
    """A model's description, and what is asked about it."""
    pick = random.Random(seed).choice
    heads, layers, vocabulary = pick([2, 4, 8]), pick([1, 2, 3, 4, 6, 12]), pick([500, 2000, 8000, 32000])
    width = heads * pick([16, 32, 64])
    if pick([True, False, False]):
        model = {'model_type': 'gpt2', 'n_layer': layers, 'n_embd': width, 'n_head': heads, 'vocab_size': vocabulary, 'n_positions': 1024}
    else:
        model = {'model_type': 'llama', 'vocab_size': vocabulary, 'hidden_size': width, 'num_hidden_layers': layers,
                 'num_attention_heads': heads, 'intermediate_size': width * pick([2, 3, 4])}
    card = pick(['t4', 'a100', 'h100', 'rtx4090'])
    dtype = 'fp32' if card == 't4' else pick(['fp32', 'bf16', 'autocast-bf16'])
    return model, [str(pick([1, 2, 3, 4, 6, 8, 12])), str(pick([32, 64, 128, 256, 512])), card, dtype, str(pick([0.9, 0.8, 0.7, 0.6, 0.5, 0.45, 0.4]))]


ALLOWED = ['recompute', 'kernels,loss-chunk,accumulate,offload,in-backward', 'loss-chunk,recompute', 'kernels,recompute,in-backward', 'accumulate,recompute',
           'offload,in-backward,all-blocks,recompute', 'loss-chunk,accumulate,offload']


def draw_small(seed):
    """The same with one or two blocks, and the choices that are allowed."""
    pick = random.Random(seed).choice
    model, question = draw(seed)
    layers = pick([1, 1, 2])
    model['n_layer' if model['model_type'] == 'gpt2' else 'num_hidden_layers'] = layers
    return model, question, pick(ALLOWED)


def climb(binary, seed, tries, folder):
    """The line that is printed about a drawn model: budget, times, number of simulations, gain and gap."""
    model, question, *allowed = draw_small(seed) if tries == 'all' else draw(seed)
    path = Path(folder) / f'{seed}.json'
    path.write_text(json.dumps(model))
    done = subprocess.run([binary, str(path), *question, tries, str(seed), *allowed], capture_output=True, text=True, check=False)
    found = LINE.search(done.stdout)
    if done.returncode or not found:
        sys.exit(f'climb: seed {seed}: {done.stderr or done.stdout}')
    if 'STOPPED' in done.stdout:
        print(f'climb: seed {seed}: not all plans were compared', file=sys.stderr)
    return model, [*question, *allowed], found.groups()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split('\n', maxsplit=1)[0])
    parser.add_argument('--climb', required=True)
    parser.add_argument('--models', type=int, default=40)
    parser.add_argument('--tries', default='3000')
    parser.add_argument('--seed', type=int, default=1)
    args = parser.parse_args()
    better = fitting = 0
    print('| model | batch, tokens, card, type | budget | plan | random search | gain | plans simulated |\n|---|---|---|---|---|---|---|')
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(args.seed, args.seed + args.models):
            model, question, (budget, plan, simulated, other, gain, _) = climb(args.climb, seed, args.tries, folder)
            if plan == 'inf' and other == 'inf':
                continue
            fitting += 1
            better += plan == 'inf' or float(gain) > 0.1
            print(f'| {seed}: {model["model_type"]} | {", ".join([*question[:4], *question[5:]])} | {budget} MiB | {plan} ms | {other} ms | {gain} % | {simulated} |', flush=True)
    print(f'\n{better} of {fitting} plans were improved by more than 0.1 %.')


if __name__ == '__main__':
    main()
