#!/usr/bin/env python3
"""lora.py [--check] [--seed N] [--count N] [--tessera PATH]: `tessera simulate config.json --lora RANK`, compared with peft's adapters.

Needs the packages that ./run test torch installs. Small models of the built-in classes get random adapters and options. Each is written here as a
program with peft and traced; what `simulate` predicts for it without PyTorch must be within 64 bytes of that, at the peak of each phase.
"""
import argparse
import contextlib
import json
import random
import subprocess
import sys
import tempfile
from pathlib import Path

import peft
import torch
import transformers as hf

import tessera

BATCH, ROWS, NEAR, COUNT = 2, 64, 64, 12
# A trace does not tell what a checkpoint computes again from what is temporary, and has clipping in another phase.
EXACT = ('parameter', 'gradient', 'optimizer_state', 'input')
GROUPED = {'hidden_size': 64, 'intermediate_size': 128, 'num_hidden_layers': 2, 'num_attention_heads': 4, 'vocab_size': 500, 'num_key_value_heads': 2,
           'max_position_embeddings': 128}
CONFIGS = {'gpt2': {'n_embd': 64, 'n_layer': 2, 'n_head': 4, 'vocab_size': 500, 'n_positions': 128}, 'llama': GROUPED, 'mistral': GROUPED,
           'qwen2': GROUPED}
TARGETS = {'gpt2': ('', 'c_attn', 'c_proj', 'c_fc', 'c_attn,c_proj,c_fc', 'all-linear'),
           'llama': ('', 'q_proj,v_proj', 'q_proj,k_proj,v_proj,o_proj', 'gate_proj,up_proj,down_proj', 'down_proj', 'o_proj', 'all-linear')}


def draw_options(draw, name):
    options = {'lora': draw.choice((1, 4, 16))}
    for key, values in (('lora_alpha', (16, 3)), ('dtype', ('bf16', 'autocast-bf16')), ('attention', ('eager',)), ('accumulate', (2,)),
                        ('optimizer', ('sgd', 'adamw-fused')), ('clip', (1.0,)), ('no_kv_cache', (True,)),
                        ('lora_targets', TARGETS.get(name, TARGETS['llama'])[1:])):
        if draw.random() < 0.35:
            options[key] = draw.choice(values)
    if draw.random() < 0.35:
        options['checkpoint'] = 'full'
        options['checkpoint_form'] = draw.choice(('reentrant', 'non-reentrant'))
    return options


def trace(name, options, path):
    config = hf.AutoConfig.for_model(name, **CONFIGS[name])
    dtype = {'bf16': torch.bfloat16}.get(options.get('dtype'), torch.float32)
    if options.get('no_kv_cache'):
        config.use_cache = False
    with torch.device('meta'):
        base = hf.AutoModelForCausalLM.from_config(config, dtype=dtype, attn_implementation=options.get('attention', 'sdpa')).train()
        if 'checkpoint' in options:
            base.gradient_checkpointing_enable({'use_reentrant': options['checkpoint_form'] == 'reentrant'})
        targets = options.get('lora_targets')
        how = peft.LoraConfig(r=options['lora'], lora_alpha=options.get('lora_alpha', 8), task_type='CAUSAL_LM',
                              target_modules=targets if targets in (None, 'all-linear') else targets.split(','))
        model = peft.get_peft_model(base, how)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.SGD(trained, lr=0.1) if options.get('optimizer') == 'sgd' \
        else torch.optim.AdamW(trained, fused='fused' in options.get('optimizer', '') or None)
    batch = outputs = None

    def step():
        nonlocal batch, outputs
        for part in range(options.get('accumulate', 1)):
            batch = {key: torch.randint(0, 400, (BATCH, ROWS), device='cuda') for key in ('input_ids', 'labels')}
            if options.get('no_kv_cache'):
                batch['attention_mask'] = torch.ones(BATCH, ROWS, dtype=torch.long, device='cuda')
            if part == 0:
                optimizer.zero_grad()
            with torch.autocast('cuda', dtype=torch.bfloat16) if 'autocast' in options.get('dtype', '') else contextlib.nullcontext():
                outputs = model(**batch)
            (outputs.loss / options['accumulate'] if 'accumulate' in options else outputs.loss).backward()
        if 'clip' in options:
            torch.nn.utils.clip_grad_norm_(trained, options['clip'])
        optimizer.step()
    tessera.trace(step, model=model, optimizer=optimizer, path=str(path), value=1.0)


def simulated(command, *words):
    done = subprocess.run([*command, 'simulate', *map(str, words), '--json'], capture_output=True, text=True, check=False)
    if done.returncode:
        return None, done.stderr.strip()
    device, = json.loads(done.stdout)['devices']
    return {'peak': device['peak']['requested_bytes'], **{f'peak of {row["name"]}': row['allocated_bytes'] for row in device['phases']},
            **{row['name']: row['bytes'] for row in device['categories'] if row['name'] in EXACT}}, ''


def compare(command, name, options, folder):
    words = [word for key, value in options.items() for word in (['--' + key.replace('_', '-')] + ([] if value is True else [str(value)]))]
    config = folder / 'config.json'
    config.write_text(json.dumps({**CONFIGS[name], 'model_type': name}))
    ours, refusal = simulated(command, config, '--batch', BATCH, '--seq', ROWS, *words)
    if not ours:
        return 'refused', refusal
    trace(name, options, folder / 'step.graph')
    theirs, problem = simulated(command, folder / 'step.graph')
    if not theirs:
        return 'off', problem
    off = {key: ours.get(key, 0) - theirs.get(key, 0) for key in {**ours, **theirs} if not (key == 'peak of optimizer' and 'clip' in options) and abs(ours.get(key, 0) - theirs.get(key, 0)) > NEAR}
    return ('off' if off else 'ok'), f'{ours["peak"]:,} B, {theirs["peak"]:,} B traced{"" if not off else f"; off by {off}"}'


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--check', action='store_true', help='fail if one differs')
    parser.add_argument('--seed', type=int, default=1)
    parser.add_argument('--count', type=int, default=COUNT)
    parser.add_argument('--tessera', help='the program (default: python -m tessera)')
    given = parser.parse_args()
    command = [given.tessera] if given.tessera else [sys.executable, '-m', 'tessera']
    count = {'ok': 0, 'off': 0, 'refused': 0}
    for seed in range(given.seed, given.seed + given.count):
        draw = random.Random(seed)
        name = draw.choice(sorted(CONFIGS))
        options = draw_options(draw, name)
        with tempfile.TemporaryDirectory() as folder:
            result, text = compare(command, name, options, Path(folder))
        count[result] += 1
        print(f'{"not ok" if result == "off" else "ok"} {seed} - {name} {options}: {text}{" # SKIP refused" if result == "refused" else ""}', flush=True)
    print(f'1..{given.count}')
    return given.check and count['off'] > 0


if __name__ == '__main__':
    sys.exit(main())
