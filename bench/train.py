#!/usr/bin/env python3
"""train.py --tessera BINARY [--kernels BINARY] [--rounds N] [--steps N] [--one-thread]: training beside PyTorch, in Markdown.

Steps: GPT-2 124M (4 sequences of 64 tokens, and 1 of 1,024), a Llama of its size (4 of 64), and a model of 6 blocks of width 256
(2 of 256), without dropout, fused AdamW, in fp32 and in bf16 (autocast); processor time with one thread and wall time with two. Programs take turns, so that a slow
moment of the machine falls on both alike. A step's time is what more steps take: the time of a long run less that of a
short one, over the difference in steps; medians of rounds. Resident memory is the most of the long run.
Kernels (bench/kernels.c): products of matrices next to oneDNN if it is installed, and attention.

PyTorch comes from PyPI, into an environment in build/ (some gigabytes, once). If that fails, the table has tessera alone.
"""
import argparse
import datetime
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
WORK = ROOT / 'build' / 'bench'
VENV = ROOT / 'build' / 'bench-torch'
WHOLE = {'model_type': 'gpt2', 'n_positions': 1024, 'resid_pdrop': 0, 'attn_pdrop': 0, 'embd_pdrop': 0}
LLAMA = {'model_type': 'llama', 'vocab_size': 32000, 'hidden_size': 768, 'intermediate_size': 2048, 'num_hidden_layers': 11,
         'num_attention_heads': 12, 'max_position_embeddings': 1024, 'tie_word_embeddings': False}
# What is trained: sequences, their tokens, and how many more steps the long run has for each that is asked for.
MODELS = {
    'GPT-2 124M, 4 x 64': ({**WHOLE, 'vocab_size': 50257, 'n_embd': 768, 'n_layer': 12, 'n_head': 12}, 4, 64, 1),
    'GPT-2 124M, 1 x 1024': ({**WHOLE, 'vocab_size': 50257, 'n_embd': 768, 'n_layer': 12, 'n_head': 12}, 1, 1024, 1),
    'Llama 124M, 4 x 64': (LLAMA, 4, 64, 1),
    'L6 C256, 2 x 256': ({**WHOLE, 'vocab_size': 4096, 'n_embd': 256, 'n_layer': 6, 'n_head': 8}, 2, 256, 4),
}
SHORT = 2
DTYPES = {'fp32': 'fp32', 'bf16': 'autocast-bf16'}


def torch_python():
    """The Python of an environment with PyTorch, or None."""
    python = VENV / 'bin' / 'python'
    check = [python, '-c', 'import torch, numpy']
    if python.exists() and subprocess.run(check, capture_output=True, check=False).returncode == 0:
        return python
    print('installing PyTorch into', VENV, file=sys.stderr)
    done = subprocess.run([sys.executable, '-m', 'venv', VENV], check=False)
    if done.returncode == 0:
        done = subprocess.run([VENV / 'bin' / 'pip', 'install', '--quiet', 'torch', 'numpy'], check=False)
    return python if done.returncode == 0 else None


class Run:
    """A process that has ended: seconds of processor and wall time, the most resident bytes, and its last line."""

    def __init__(self, command):
        start = time.perf_counter()
        with subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, text=True) as process:
            line = ''
            for line in process.stdout:
                pass
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            sys.exit(f'bench: {" ".join(map(str, command))} failed')
        self.wall = time.perf_counter() - start
        self.processor = usage.ru_utime + usage.ru_stime
        self.resident = usage.ru_maxrss * 1024
        self.last = json.loads(line)


def step_of(command, steps):
    """(processor, wall) seconds of a step, `command(n)` being a run of n steps; and the long run."""
    short, long = Run(command(SHORT)), Run(command(SHORT + steps))
    return (long.processor - short.processor) / steps, (long.wall - short.wall) / steps, long


def programs(options, python):
    """{(name, model, dtype, threads): what runs that many steps}."""
    text = WORK / 'train.txt'
    text.write_text(' '.join(map(str, range(20000))))
    table = {}
    for model, (config, batch, rows, _) in MODELS.items():
        path = WORK / (model.split(',')[0].replace(' ', '-') + '.json')
        path.write_text(json.dumps(config))
        for dtype, own in DTYPES.items():
            for threads in (1, 2):
                table['tessera', model, dtype, threads] = lambda steps, own=own, threads=threads, path=path, batch=batch, \
                    rows=rows: [options.tessera, 'train', path, '--data', text, '--batch', batch, '--seq', rows,
                                '--steps', steps, '--threads', threads, '--dtype', own, '--optimizer', 'adamw-fused',
                                '--tokens', 'bytes', '--products', 'own', '--json']
                if python:
                    table['torch', model, dtype, threads] = lambda steps, dtype=dtype, threads=threads, path=path, \
                        batch=batch, rows=rows: [python, ROOT / 'bench' / 'torch_step.py', path, batch, rows, steps,
                                                 threads, dtype]
    return table


def print_steps(measured):
    def median(name, model, dtype, threads, index):
        return statistics.median(run[index] for run in measured.get((name, model, dtype, threads), [(0, 0)]))
    print('| model | | measure | tessera | PyTorch | tessera : PyTorch |\n|---|---|---|---:|---:|---:|')
    for model in MODELS:
        for dtype in DTYPES:
            for threads, index, measure in ((1, 0, 'processor time, 1 thread'), (2, 1, 'wall time, 2 threads')):
                if ('tessera', model, dtype, threads) not in measured:
                    continue  # left out by --only or --one-thread
                own, other = (median(name, model, dtype, threads, index) for name in ('tessera', 'torch'))
                print(f'| {model} | {dtype} | {measure} | {own:.3f} | ' +
                      (f'{other:.3f} | {own / other:.2f} |' if other else '- | - |'))
    print('\n| model | | two threads, times as fast | most resident | predicted peak | difference |\n'
          '|---|---|---:|---:|---:|---:|')
    for model in MODELS:
        for dtype in DTYPES:
            if ('tessera', model, dtype, 2) not in measured:
                continue  # likewise
            ratio = median('tessera', model, dtype, 1, 1) / median('tessera', model, dtype, 2, 1)
            long = measured['tessera', model, dtype, 2][-1][2]
            resident, predicted = long.resident / 2**20, long.last['predicted_peak_bytes'] / 2**20
            print(f'| {model} | {dtype} | {ratio:.2f} | {resident:.0f} MiB | {predicted:.0f} MiB | '
                  f'{resident - predicted:+.0f} MiB |')


def kernels_of(options, python):
    """{(program, threads): its object}, of those programs that are there."""
    found = {}
    for threads in (1, 2):
        out = subprocess.run([options.kernels, str(threads)], stdout=subprocess.PIPE, check=True)
        found['own', threads] = json.loads(out.stdout)
        if python:
            names = json.dumps(list(found['own', threads]['products']))
            out = subprocess.run([python, ROOT / 'bench' / 'torch_kernels.py', str(threads), names],
                                 stdout=subprocess.PIPE, check=True)
            found['torch', threads] = json.loads(out.stdout)
    return found


def print_kernels(found):
    own = found['own', 1]
    print(f'\nProducts, GFLOP/s; registers alone {own["peak"]["fp32"]:.0f} in fp32 and {own["peak"]["bf16"]:.0f} in bf16 a '
          f'core; libraries: {", ".join(own["libraries"]) or "none"}:\n')
    print('| product | | own | oneDNN | PyTorch | own : best other | own, 2 threads | PyTorch, 2 threads |\n'
          '|---|---|---:|---:|---:|---:|---:|---:|')
    nothing = {'products': {}}
    for name, types in own['products'].items():
        for dtype, speeds in types.items():
            torch, both = (found.get(key, nothing)['products'].get(name, {}).get(dtype, {}).get('torch', 0)
                           for key in (('torch', 1), ('torch', 2)))
            others = [speeds.get('onednn', 0), torch]
            two = found['own', 2]['products'][name][dtype]['own']
            best = f'{speeds["own"] / max(others):.2f}' if max(others) else '-'
            cells = [f'{x:.0f}' if x else '-' for x in (speeds['own'], *others)]
            print(f'| {name} | {dtype} | {" | ".join(cells)} | {best} | {two:.0f} | {both:.0f} |')
    print('\nCausal attention with GPT-2\'s heads, 4 sequences of 1,024 tokens, forward and backward, ms:\n')
    print('| | threads | own | PyTorch | own : PyTorch |\n|---|---:|---:|---:|---:|')
    for dtype in DTYPES:
        for threads in (1, 2):
            mine = sum(found['own', threads]['attention'][dtype].values())
            other = sum(found.get(('torch', threads), {'attention': {dtype: {}}})['attention'][dtype].values())
            print(f'| {dtype} | {threads} | {mine:.0f} | ' + (f'{other:.0f} | {mine / other:.2f} |' if other else '- | - |'))


def flags_of():
    return next((line for line in Path('/proc/cpuinfo').read_text(encoding='utf-8').splitlines()
                 if line.startswith('flags')), '').split()


def processor_name():
    for line in Path('/proc/cpuinfo').read_text(encoding='utf-8').splitlines():
        if line.startswith('model name'):
            return line.split(':', 1)[1].strip()
    return 'unknown processor'


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--tessera', required=True)
    parser.add_argument('--kernels', help='the program of bench/kernels.c')
    parser.add_argument('--torch', help='a Python that has PyTorch, instead of one made in build/')
    parser.add_argument('--rounds', type=int, default=3)
    parser.add_argument('--steps', type=int, default=4)
    parser.add_argument('--only', default='', metavar='TEXT', help='only models whose names contain this')
    parser.add_argument('--one-thread', action='store_true',
                        help='processor time alone, for a machine that is not idle')
    options = parser.parse_args()
    WORK.mkdir(parents=True, exist_ok=True)
    python = options.torch or torch_python()
    table = {key: command for key, command in programs(options, python).items()
             if (key[3] == 1 or not options.one_thread) and options.only in key[1]}
    measured = {key: [] for key in table}
    for _ in range(options.rounds):
        for key, command in table.items():
            measured[key].append(step_of(command, options.steps * MODELS[key[1]][3]))
    kinds = [name for name in ('avx2', 'avx512f', 'avx512_bf16', 'amx_bf16') if name in flags_of()]
    print(f'{datetime.date.today()}, {processor_name()} ({", ".join(kinds)}), {os.cpu_count()} cores, '
          f'load {os.getloadavg()[0]:.1f}, medians of {options.rounds} rounds, seconds per step:\n')
    print_steps(measured)
    if options.kernels:
        print_kernels(kernels_of(options, python))


if __name__ == '__main__':
    main()
