#!/usr/bin/env python3
"""sample.py --tessera BINARY [--torch PYTHON] [--rounds N]: text from GPT-2 124M beside PyTorch, in Markdown.

Greedy text after prompts of 64 and 512 tokens, in fp32 from random weights, with one thread and with two: both keep keys and values.
Programs take turns; medians of rounds. PyTorch comes from PyPI, into an environment in build/, as for the training bench.
"""
import argparse
import datetime
import json
import os
import re
import shutil
import statistics
import subprocess
from pathlib import Path

from train import MODELS, WORK, processor_name, torch_python

HERE = Path(__file__).resolve().parent
TOKENS = 100


def tessera(options, folder, prompt, threads):
    words = ['sample', folder, '--ids', '--prompt', ' '.join(map(str, range(prompt))), '--temperature', 0, '--tokens', TOKENS, '--context', 1024,
             '--threads', threads, '--stats']
    done = subprocess.run([options.tessera, *map(str, words)], capture_output=True, text=True, check=True)
    first, everything = map(float, re.search(r'tokens: ([\d.]+) s; [\d,]+ tokens: ([\d.]+) s', done.stderr).groups())
    return first, (everything - first) / (TOKENS - 1)


def torch(python, config, prompt, threads):
    done = subprocess.run([python, HERE / 'torch_sample.py', config, str(prompt), str(TOKENS), str(threads)], capture_output=True, text=True,
                          check=True)
    found = json.loads(done.stdout)
    return found['prompt'], found['tokens'] / (TOKENS - 1)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--tessera', required=True)
    parser.add_argument('--torch', help='a Python that has PyTorch, instead of one made in build/')
    parser.add_argument('--rounds', type=int, default=5)
    options = parser.parse_args()
    WORK.mkdir(parents=True, exist_ok=True)
    python, folder, config, text = options.torch or torch_python(), WORK / 'sampled', WORK / 'sampled.json', WORK / 'sampled.txt'
    config.write_text(json.dumps(MODELS['GPT-2 124M, 4 x 64'][0]))
    text.write_text('text ' * 99)
    shutil.rmtree(folder, ignore_errors=True)
    subprocess.run([options.tessera, 'train', config, '--data', text, '--tokens', 'bytes', '--batch', '1', '--seq', '8', '--steps', '1', '--lr', '1e-9',
                    '--save', folder, '--quiet'], check=True, stdout=subprocess.DEVNULL)
    print(f'{datetime.date.today()}, {processor_name()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, medians of {options.rounds} rounds:\n')
    print('| prompt | threads | | tessera | PyTorch | tessera : PyTorch |\n|---|---|---|---:|---:|---:|')
    for prompt in (64, 512):
        for threads in (1, 2):
            rounds = [(tessera(options, folder, prompt, threads), torch(python, config, prompt, threads)) for _ in range(options.rounds)]
            for index, what, factor in ((0, 'prompt, s', 1), (1, 'each token, ms', 1000)):
                own, other = (statistics.median(one[side][index] for one in rounds) * factor for side in (0, 1))
                print(f'| {prompt} tokens | {threads} | {what} | {own:.3g} | {other:.3g} | {own / other:.2f} |')


if __name__ == '__main__':
    main()
