#!/usr/bin/env python3
"""planner.py --tessera BINARY [--rounds N] [--small]: how long `tessera plan` looks for plans, in Markdown.

Processor time of the whole process (it has one thread), the median of all rounds. The counts are of plans that were simulated."""
import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
WORK = ROOT / 'build' / 'bench'
DEEP = {'model_type': 'gpt2', 'n_layer': 128}
QUESTIONS = (
    'gpt2 --batch 4 --gpu t4 --budget 3GiB',
    'deep.json --batch 4 --budget 30GiB --allow recompute',
    'llama-3-8b --dtype bf16 --gpu h100 --budget 70GiB',
    'llama-3-8b --dtype bf16 --gpu h100 --budget 70GiB --batch 8 --seq 2048',
    'gpt2 --gpu t4 --budget 16GiB --largest batch',
    'gpt2 --gpu t4 --budget 4GiB --batch 8 --largest seq',
    'gpt2 --gpu t4 --budget 16GiB --largest model',
    'llama-3-8b --dtype bf16 --gpu h100 --budget 70GiB --largest batch',
    'llama-3-8b --dtype bf16 --gpu h100 --budget 70GiB --largest seq',
)


def timed(tessera, question):
    """Seconds of processor time, and what was answered."""
    before = os.times()
    done = subprocess.run([tessera, 'plan', *question.split(), '--json'], cwd=WORK, capture_output=True, text=True, check=False)
    after = os.times()
    if done.returncode not in (0, 1):
        sys.exit(f'bench: {question} failed: {done.stderr}')
    seconds = after.children_user + after.children_system - before.children_user - before.children_system
    return seconds, json.loads(done.stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--tessera', required=True, type=lambda text: Path(text).resolve())
    parser.add_argument('--rounds', type=int, default=3)
    parser.add_argument('--small', action='store_true', help='two questions, once')
    given = parser.parse_args()
    WORK.mkdir(parents=True, exist_ok=True)
    (WORK / 'deep.json').write_text(json.dumps(DEEP), encoding='utf-8')
    print('| `tessera plan` | processor time | plans simulated |\n|---|---:|---:|')
    for question in QUESTIONS[:2] if given.small else QUESTIONS:
        runs = [timed(given.tessera, question) for _ in range(1 if given.small else given.rounds)]
        answer = runs[0][1].get('answer', runs[0][1])
        print(f'| `{question}` | {statistics.median(seconds for seconds, _ in runs):.2f} s | {answer["plans_tried"]} |', flush=True)


if __name__ == '__main__':
    main()
