#!/usr/bin/env python3
"""train.py --tessera BINARY [--rounds N] [--steps N] [--one-thread]: a training step beside PyTorch's, in Markdown.

GPT-2 124M without dropout, 4 sequences of 64 tokens, fused AdamW, in fp32 and in bf16 (autocast); processor time with one
thread and wall time with two. Programs take turns, so that a slow moment of the machine falls on both alike. A step's time
is what more steps take: the time of a long run less that of a short one, over the difference in steps; medians of rounds.

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
CONFIG = {'model_type': 'gpt2', 'vocab_size': 50257, 'n_positions': 1024, 'n_embd': 768, 'n_layer': 12, 'n_head': 12,
          'resid_pdrop': 0, 'attn_pdrop': 0, 'embd_pdrop': 0}
BATCH, ROWS, SHORT = 4, 64, 2
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


def times_of(command, environment=None):
    """(processor, wall) seconds of a process."""
    before, start = os.times(), time.perf_counter()
    subprocess.run(list(map(str, command)), stdout=subprocess.DEVNULL, check=True,
                   env={**os.environ, **(environment or {})})
    after = os.times()
    return (after.children_user - before.children_user + after.children_system - before.children_system,
            time.perf_counter() - start)


def step_of(command, steps):
    """(processor, wall) seconds of a step, `command(n)` being a run of n steps."""
    short, long = times_of(command(SHORT)), times_of(command(SHORT + steps))
    return tuple((b - a) / steps for a, b in zip(short, long))


def programs(options, python):
    """{(name, dtype, threads): what runs that many steps}."""
    config, text = WORK / 'gpt2.json', WORK / 'train.txt'
    config.write_text(json.dumps(CONFIG))
    text.write_text(' '.join(map(str, range(20000))))
    table = {}
    for dtype, own in DTYPES.items():
        for threads in (1, 2):
            table['tessera', dtype, threads] = lambda steps, own=own, threads=threads: [
                options.tessera, 'train', config, '--data', text, '--batch', BATCH, '--seq', ROWS, '--steps', steps,
                '--threads', threads, '--dtype', own, '--optimizer', 'adamw-fused', '--json']
            if python:
                table['torch', dtype, threads] = lambda steps, dtype=dtype, threads=threads: [
                    python, ROOT / 'bench' / 'torch_step.py', config, BATCH, ROWS, steps, threads, dtype]
    return table


def processor_name():
    for line in Path('/proc/cpuinfo').read_text(encoding='utf-8').splitlines():
        if line.startswith('model name'):
            return line.split(':', 1)[1].strip()
    return 'unknown processor'


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--tessera', required=True)
    parser.add_argument('--rounds', type=int, default=3)
    parser.add_argument('--steps', type=int, default=4)
    parser.add_argument('--one-thread', action='store_true',
                        help='processor time alone, for a machine that is not idle')
    options = parser.parse_args()
    WORK.mkdir(parents=True, exist_ok=True)
    python = torch_python()
    table = {key: command for key, command in programs(options, python).items()
             if key[2] == 1 or not options.one_thread}
    measured = {key: [] for key in table}
    for _ in range(options.rounds):
        for key, command in table.items():
            measured[key].append(step_of(command, options.steps))
    flags = next((line for line in Path('/proc/cpuinfo').read_text(encoding='utf-8').splitlines()
                  if line.startswith('flags')), '').split()
    kinds = [name for name in ('avx2', 'avx512f', 'avx512_bf16', 'amx_bf16') if name in flags]
    print(f'{datetime.date.today()}, {processor_name()} ({", ".join(kinds)}), {os.cpu_count()} cores, '
          f'load {os.getloadavg()[0]:.1f}, medians of {options.rounds} rounds, seconds per step:\n')
    print('| | measure | tessera | PyTorch | tessera : PyTorch |\n|---|---|---:|---:|---:|')
    for dtype in DTYPES:
        for threads, index, measure in ((1, 0, 'processor time, 1 thread'), (2, 1, 'wall time, 2 threads')):
            if ('tessera', dtype, threads) not in measured:
                continue
            own, other = (statistics.median(times[index] for times in measured.get((name, dtype, threads), [])
                                            or [(0, 0)]) for name in ('tessera', 'torch'))
            print(f'| {dtype} | {measure} | {own:.2f} | ' + (f'{other:.2f} | {own / other:.2f} |' if other else '- | - |'))


main()
