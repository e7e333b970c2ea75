#!/usr/bin/env python3
"""generate.py [--check] [--seed N] [--count N] [--tessera PATH]: `tessera sample` beside transformers.

Random models of GPT-2, Llama, Mistral (with a window) and Qwen2, random prompts, contexts and threads. Each token at temperature 0 must be
the most likely one by transformers, which computes the whole context for it, or so nearly that rounding decides. `--stats` must print the
predicted memory.
"""
import argparse
import random
import re
import subprocess
import sys
import tempfile

import torch
import transformers

NEARLY = 1e-3  # between logits, whose largest are about 10


def model_of(rng):
    heads, groups = rng.choice((2, 4)), rng.choice((1, 2))
    width, layers, vocabulary, positions = heads * rng.choice((8, 24, 32)), rng.randint(1, 3), rng.randint(50, 700), 160
    kind = rng.choice(('gpt2', 'llama', 'mistral', 'qwen2'))
    if kind == 'gpt2':
        config = transformers.GPT2Config(vocab_size=vocabulary, n_positions=positions, n_embd=width, n_layer=layers, n_head=heads)
    else:
        more = {'sliding_window': rng.choice((None, 5, 40))} if kind == 'mistral' else {}
        config = transformers.AutoConfig.for_model(kind, vocab_size=vocabulary, max_position_embeddings=positions, hidden_size=width,
                                                   intermediate_size=2 * width, num_hidden_layers=layers, num_attention_heads=heads,
                                                   num_key_value_heads=heads // groups, tie_word_embeddings=rng.random() < 0.5, **more)
    config.eos_token_id = config.bos_token_id = None
    model = transformers.AutoModelForCausalLM.from_config(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.mul_(6)
    return kind, model, positions, vocabulary


def check(options, rng, folder):
    kind, model, positions, vocabulary = model_of(rng)
    model.save_pretrained(folder)
    prompt = [rng.randrange(vocabulary) for _ in range(rng.randint(1, 60))]
    count, context = rng.randint(1, 120), rng.choice((positions, rng.randint(1, 90)))
    words = ['sample', folder, '--ids', '--prompt', ' '.join(map(str, prompt)), '--temperature', 0, '--tokens', count, '--context', context,
             '--threads', rng.randint(1, 3), '--stats']
    done = subprocess.run([*options.command, *map(str, words)], capture_output=True, text=True, check=False)
    made = [int(token) for token in done.stdout.split()]
    what = f'{kind}, prompt of {len(prompt)}, {count} tokens, context {context}'
    if done.returncode or len(made) != count:
        return f'{what}: {done.stderr}'
    used, predicted = re.search(r'memory: (.*?), predicted (.*?)(?:,|$)', done.stderr).groups()
    if used != predicted:
        return f'{what}: {done.stderr}'
    text = list(prompt)
    for at, token in enumerate(made):
        with torch.no_grad():
            logits = model(torch.tensor([text[-context:]]), use_cache=False).logits[0, -1]
        short = (logits.max() - logits[token]).item()
        if short > NEARLY:
            return f'{what}: token {at} is {token}, whose logit is {short:.3g} below the largest'
        text.append(token)
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--check', action='store_true', help='fail if one differs')
    parser.add_argument('--seed', type=int, default=1)
    parser.add_argument('--count', type=int, default=40)
    parser.add_argument('--tessera', help='the program (default: python -m tessera)')
    options = parser.parse_args()
    options.command = [options.tessera] if options.tessera else [sys.executable, '-m', 'tessera']
    failed = 0
    for number in range(options.count):
        torch.manual_seed(options.seed + number)
        with tempfile.TemporaryDirectory() as folder:
            message = check(options, random.Random(options.seed + number), folder)
        print(f'{"not ok" if message else "ok"} {number + 1} - seed {options.seed + number}{": " + message if message else ""}', flush=True)
        failed += message is not None
    print(f'1..{options.count}')
    sys.exit(options.check and failed > 0)


main()
