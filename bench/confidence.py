#!/usr/bin/env python3
"""confidence.py --tessera BINARY --confidence BINARY [--every N] [--reasons] [--check]: how often each
level of confidence is right, as a Markdown table.

The runs are simulated, so that the true category of every allocation is known: models x types x
attention x checkpointing x optimizers x micro-batches, of which every N-th is taken (default: 3). Each
is judged five times: with all frames, with Python's alone, with C++'s alone, with its first half
not recorded, and on a card on which it runs out of memory, at 40 to 95 % of what it needs. --reasons prints a second table, by reason instead of by level. --check fails if anything
sure is wrong.

confidence is the program bench_confidence (bench/confidence.c)."""
import argparse
import collections
import itertools
import json
import pathlib
import pickle
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / 'tests' / 'golden'))
import frames  # noqa: E402

LLAMA = {'model_type': 'llama', 'hidden_size': 512, 'intermediate_size': 1376, 'num_hidden_layers': 4,
         'num_attention_heads': 8, 'num_key_value_heads': 4, 'vocab_size': 8000}
GPT2 = {'model_type': 'gpt2', 'vocab_size': 9001, 'n_embd': 320, 'n_head': 5, 'n_layer': 5,
        'n_positions': 512}
QWEN = {'model_type': 'qwen2', 'hidden_size': 256, 'intermediate_size': 700, 'num_hidden_layers': 6,
        'num_attention_heads': 8, 'num_key_value_heads': 8, 'vocab_size': 9001,
        'tie_word_embeddings': True}
CHOICES = ((LLAMA, GPT2, QWEN),
           ('fp32', 'bf16', 'autocast-bf16', 'autocast-fp16'),
           ('sdpa', 'eager'),
           ('none', 'full', 'selective', 'every:2'),
           ('adamw', 'adamw-fused', 'sgd'),
           ('1', '2'),
           ('full', 'chunked:64'))
OPTIONS = ('--dtype', '--attention', '--checkpoint', '--optimizer', '--accumulate', '--loss')
WORKSPACE_BYTES = 8519680
FAILED = 'ends out of memory'
LEVELS = ('sure', 'likely', 'guess', 'none')


# Of the memory that a run reserves, how much a card has, in percent.
CARDS = (40, 55, 70, 80, 90, 95)


def simulate(tessera, folder, choice, capacity=None):
    """The snapshot of a run, and the true category of each event's allocation; None if the options
    do not go together."""
    model, path = folder / 'config.json', folder / 'run.pickle'
    model.write_text(json.dumps(choice[0]))
    words = [word for pair in zip(OPTIONS, choice[1:]) for word in pair]
    words += ['--capacity', f'{capacity}B'] if capacity else []
    run = subprocess.run([tessera, 'simulate', str(model), '--batch', '4', '--seq', '128', '--steps',
                          '2', '--fresh-process', '--categories', *words, '-o', str(path)],
                         stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    if run.returncode:
        return None
    snapshot = pickle.loads(path.read_bytes())
    return snapshot, [event.pop('category', None) for event in snapshot['device_traces'][0]]


def reserved(snapshot):
    """The most that was reserved."""
    most = now = 0
    for event in reversed(snapshot['device_traces'][0]):
        sign = {'segment_alloc': -1, 'segment_free': 1}.get(event['action'], 0)
        now += sign * event['size']
        most = max(most, now)
    return most + sum(segment['total_size'] for segment in snapshot['segments'])


def truth_before(snapshot, categories, cut):
    """What was at each address when event `cut` began, as far as events before it show."""
    found = {}
    for event, category in zip(snapshot['device_traces'][0][:cut], categories):
        if event['action'] == 'alloc':
            found[event['addr']] = category
    return found


def judge(program, folder, snapshot, categories, cut, tally, reasons):
    path = folder / 'judged.pickle'
    path.write_bytes(pickle.dumps(snapshot, protocol=4))
    before = truth_before(snapshot, categories, cut)
    if cut:
        snapshot = {**snapshot, 'device_traces': [snapshot['device_traces'][0][cut:]]}
        path.write_bytes(pickle.dumps(snapshot, protocol=4))
    lines = subprocess.run([program, str(path)], capture_output=True, check=True, text=True).stdout
    for line in lines.splitlines():
        birth, address, size, said, level, reason = line.split('\t')
        # Simulated memory from before the first event is the model and cuBLAS's.
        old = 'workspace' if int(size) == WORKSPACE_BYTES else 'parameter'
        true = categories[int(birth) + cut] if int(birth) >= 0 else before.get(int(address), old)
        right = said in [true, *frames.ALSO.get(true, [])]
        for key, table in ((level, tally), ((level, reason, said), reasons)):
            row = table[key]
            row['right' if right else 'wrong'] += 1
            row['right bytes' if right else 'wrong bytes'] += int(size)
            if not right:
                row[f'is {true}'] += 1


def share(row, unit=''):
    right, wrong = row['right' + unit], row['wrong' + unit]
    return f'{100 * right / (right + wrong):.2f} %' if right + wrong else '-'


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--tessera', required=True, type=pathlib.Path)
    parser.add_argument('--confidence', required=True, type=pathlib.Path)
    parser.add_argument('--every', type=int, default=3)
    parser.add_argument('--reasons', action='store_true')
    parser.add_argument('--check', action='store_true')
    arguments = parser.parse_args()
    tessera, program = arguments.tessera.resolve(), arguments.confidence.resolve()
    variants = {'all frames': None, 'Python frames alone': frames.python_alone,
                'C++ frames alone': frames.native_alone, 'first half not recorded': None}
    tallies = {name: collections.defaultdict(collections.Counter) for name in (*variants, FAILED)}
    reasons = collections.defaultdict(collections.Counter)
    runs = 0
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for choice in itertools.islice(itertools.product(*CHOICES), 0, None, arguments.every):
            simulated = simulate(tessera, folder, choice)
            if not simulated:
                continue
            runs += 1
            snapshot, categories = simulated
            for variant, change in variants.items():
                cut = len(categories) // 2 if variant.startswith('first') else 0
                judge(program, folder, frames.changed(snapshot, change) if change else snapshot,
                      categories, cut, tallies[variant], reasons)
            card = reserved(snapshot) * CARDS[runs % len(CARDS)] // 100
            snapshot, categories = simulate(tessera, folder, choice, card)
            judge(program, folder, snapshot, categories, 0, tallies[FAILED], reasons)
    print(f'{runs} runs; per level: allocations, right, right by bytes\n')
    print('| recorded | ' + ' | '.join(LEVELS) + ' |\n|---|' + '---:|' * len(LEVELS))
    for variant, tally in tallies.items():
        cells = []
        for level in LEVELS:
            row = tally[level]
            count = row['right'] + row['wrong']
            right = f": {share(row)}, {share(row, ' bytes')}" if level != 'none' else ''
            cells.append(f'{count:,}{right}' if count else '-')
        print(f'| {variant} | ' + ' | '.join(cells) + ' |')
    if arguments.reasons:
        print('\n| level | category | because | allocations | right | by bytes | wrong ones |\n|---|---|---|---:|---:|---:|---|')
        for (level, reason, said), row in sorted(reasons.items(), key=lambda item: -item[1]['wrong bytes']):
            wrong = ', '.join(f'{key[3:]} {row[key]}' for key in row if key.startswith('is '))
            print(f"| {level} | {said} | {reason} | {row['right'] + row['wrong']:,} | {share(row)} | "
                  f"{share(row, ' bytes')} | {wrong} |")
    return int(arguments.check and any(tally['sure']['wrong'] or not tally['sure']['right']
                                       for tally in tallies.values()))


if __name__ == '__main__':
    sys.exit(main())
