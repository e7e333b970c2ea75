#!/usr/bin/env python3
"""plans.py --tessera BINARY [--rounds N] [--steps N] [--small]: how long steps of other plans take, predicted and measured, in Markdown.

One run of a model as it is writes what its kernels and copies took (train --write-rates, with the optimizer's state on the host, so that
there are copies); from that, `simulate --rates` predicts steps with recomputation and with things on the host. Then all plans
are run, in turns, so that a slow moment of the machine falls on each of them. A plan's time is the median of its steps, without the
first two of a run, over all rounds. A ratio of 1 is exact; the aim is 0.9 to 1.1.
"""
import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
WORK = ROOT / 'build' / 'bench'
# A GPT-2 with dropout (width, blocks, heads, vocabulary), sequences in a batch, and tokens in each.
MODEL = ({'n_embd': 384, 'n_layer': 6, 'n_head': 6, 'vocab_size': 8192}, 4, 256)
SMALL = ({'n_embd': 64, 'n_layer': 3, 'n_head': 4, 'vocab_size': 256}, 2, 64)
PLANS = {
    'as it is': (),
    'every block computed again': ('--checkpoint', 'full'),
    'the same, not reentrant': ('--checkpoint', 'full', '--checkpoint-form', 'non-reentrant'),
    'attention computed again': ('--checkpoint', 'selective'),
    'optimizer state on the host': ('--offload', 'optimizer'),
    'activations on the host': ('--offload', 'activations'),
    'optimizer, gradients, parameters on the host': ('--offload', 'optimizer,gradients,parameters'),
}
FIRST = 2  # steps of a run that do not count


def answer(command):
    """What a command prints."""
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f'bench: {" ".join(map(str, command))} failed: {done.stderr}')
    return done.stdout


def measure(train, options):
    """Seconds of each step of each plan."""
    times = {name: [] for name in PLANS}
    for _ in range(options.rounds):
        for name, plan in PLANS.items():
            printed = answer((*train, '--json', '--steps', FIRST + options.steps, *plan)).splitlines()
            lines = [json.loads(line) for line in printed]
            times[name] += [line['seconds'] for line in lines if line['event'] == 'step'][FIRST:]
    return times


def compare(options, threads, model, size):
    """Rows of one table."""
    rates = WORK / 'rates.json'
    train = (options.tessera, 'train', model, '--data', WORK / 'plans.txt', *size, '--threads', threads)
    answer((*train, '--json', '--steps', FIRST + 2 * options.steps, '--offload', 'optimizer', '--write-rates', rates))
    for name, times in measure(train, options).items():
        whole = json.loads(answer((options.tessera, 'simulate', model, *size, '--book', 'own', '--rates', rates, '--json',
                                   '-q', *PLANS[name])))
        predicted, measured = whole['devices'][0]['step_time_us'] / 1e3, 1e3 * statistics.median(times)
        yield f'| {name} | {threads} | {predicted:.1f} ms | {measured:.1f} ms | {predicted / measured:.2f} |'


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('--tessera', required=True, type=Path)
    parser.add_argument('--rounds', type=int, default=5)
    parser.add_argument('--steps', type=int, default=8)
    parser.add_argument('--small', action='store_true')
    options = parser.parse_args()
    shape, batch, tokens = SMALL if options.small else MODEL
    WORK.mkdir(parents=True, exist_ok=True)
    model = WORK / 'plans.json'
    model.write_text(json.dumps({'model_type': 'gpt2', 'n_positions': tokens, **shape}))
    (WORK / 'plans.txt').write_text(' '.join(map(str, range(20000))))
    print('| plan | threads | predicted | measured | ratio |\n|---|---|---|---|---|')
    for threads in (1, 2):
        for row in compare(options, threads, model, ('--batch', batch, '--seq', tokens)):
            print(row, flush=True)


if __name__ == '__main__':
    main()
