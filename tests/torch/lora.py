#!/usr/bin/env python3
"""lora.py [--check] [--record] [--seed N] [--count N] [--tessera PATH]: `tessera simulate config.json --lora RANK`, compared with peft's adapters.

Needs the packages that ./run test torch installs. Small models of the built-in classes, of random sizes, get random adapters and options; about half
of them get weights in 4 bits. Each is written here as a program with peft and bitsandbytes and traced. What `simulate` predicts for it without
PyTorch must be within NEAR bytes of that, at the peak of each phase. Batches with weights in 4 bits have more than 1,536 tokens, above which
bitsandbytes dequantises in forward on every card. --record writes the traced figures to tests/golden/adapters.json, for tests/golden/test_adapters.py.
"""
import argparse
import contextlib
import json
import random
import subprocess
import sys
import tempfile
from pathlib import Path

import bitsandbytes as bnb
import peft
import torch
import transformers as hf
from transformers.integrations.bitsandbytes import replace_with_bnb_linear

import tessera

NEAR, COUNT = 0, 16
TABLE_BYTES = 1024  # of bitsandbytes: made once when the first weight is quantised twice, before a step
# A trace does not tell what a checkpoint computes again from what is temporary, and has clipping in another phase.
EXACT = ('parameter', 'gradient', 'optimizer_state', 'input')
OUT = Path(__file__).resolve().parent.parent / 'golden' / 'adapters.json'
NAMES = ('gpt2', 'llama', 'mistral', 'qwen2')
TARGETS = {'gpt2': ('', 'c_attn', 'c_proj', 'c_fc', 'c_attn,c_proj,c_fc', 'all-linear'),
           'llama': ('', 'q_proj,v_proj', 'q_proj,k_proj,v_proj,o_proj', 'gate_proj,up_proj,down_proj', 'down_proj', 'o_proj', 'all-linear')}


def draw_config(draw, name):
    heads, layers, vocabulary = draw.choice((2, 4, 6)), draw.choice((1, 2, 3)), draw.randrange(401, 900)
    width = heads * draw.choice((8, 16, 24, 32))
    if name == 'gpt2':
        inner = {'n_inner': draw.randrange(20, 300)} if draw.random() < 0.3 else {}
        return {'model_type': name, 'n_embd': width, 'n_layer': layers, 'n_head': heads, 'vocab_size': vocabulary, 'n_positions': 128, **inner}
    return {'model_type': name, 'hidden_size': width, 'intermediate_size': draw.randrange(20, 300), 'num_hidden_layers': layers,
            'num_attention_heads': heads, 'num_key_value_heads': draw.choice((heads, heads // 2)), 'vocab_size': vocabulary,
            'max_position_embeddings': 128, 'tie_word_embeddings': draw.random() < 0.3}


def draw_quantised(draw):
    """Options of weights in 4 bits, which need bf16 or fp32 in products."""
    options = {'quantize': draw.choice(('nf4', 'fp4')), 'dtype': draw.choice(('bf16', 'bf16', 'fp32', 'autocast-bf16', 'fp16'))}
    if draw.random() < 0.5:
        options['double_quant'] = True
    if draw.random() < 0.6:
        options['kbit_training'] = draw.choice(('checkpointing', 'casts'))
    return options


def draw_options(draw, name):
    options = {'lora': draw.choice((1, 4, 7, 16, 64)), 'batch': draw.randrange(1, 4), 'seq': draw.randrange(20, 128)}
    for key, values in (('lora_alpha', (16, 3)), ('dtype', ('bf16', 'autocast-bf16')), ('attention', ('eager',)), ('accumulate', (2,)),
                        ('optimizer', ('sgd', 'adamw-fused')), ('clip', (1.0,)), ('no_kv_cache', (True,)),
                        ('lora_targets', TARGETS.get(name, TARGETS['llama'])[1:])):
        if draw.random() < 0.35:
            options[key] = draw.choice(values)
    if draw.random() < 0.35:
        options['checkpoint'] = 'full'
        options['checkpoint_form'] = draw.choice(('reentrant', 'non-reentrant'))
    if draw.random() < 0.35:
        options['lora_dropout'] = draw.choice((0.05, 0.1, 0.5))
    if draw.random() < 0.35:
        options['adapter_dtype'] = 'base'
    if draw.random() < 0.5:
        options.update(draw_quantised(draw), batch=16, seq=draw.randrange(97, 128))
    return options


def quantised(base, options, loaded):
    """As transformers loads a model with a BitsAndBytesConfig."""
    low = torch.float16 if 'fp16' in options['dtype'] else torch.bfloat16
    how = hf.BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type=options['quantize'], bnb_4bit_use_double_quant='double_quant' in options,
                                bnb_4bit_compute_dtype=torch.float32 if options['dtype'] == 'fp32' else low)
    model = replace_with_bnb_linear(base, modules_to_not_convert=['lm_head'], quantization_config=how)
    for module in model.modules():
        if isinstance(module, bnb.nn.Linear4bit):
            weight = torch.randn(module.out_features, module.in_features, dtype=loaded)
            module.weight = bnb.nn.Params4bit(weight, requires_grad=False, quant_type=options['quantize'],
                                              compress_statistics='double_quant' in options, module=module)
            if module.bias is not None:
                module.bias = torch.nn.Parameter(torch.zeros(module.out_features, dtype=loaded), requires_grad=False)
    model = model.to('cpu')  # which quantises
    model.is_loaded_in_4bit = True
    return model


def trace(sizes, options, path):
    config = hf.AutoConfig.for_model(**sizes)
    dtype = {'bf16': torch.bfloat16, 'fp16': torch.float16}.get(options.get('dtype'), torch.float32)
    is_prepared = 'kbit_training' in options
    if is_prepared and 'autocast' in options['dtype']:
        dtype = torch.bfloat16
    if options.get('no_kv_cache'):
        config.use_cache = False
    form = {'use_reentrant': options.get('checkpoint_form') != 'non-reentrant'}
    with torch.device('cpu'):  # peft does not convert adapters on the meta device
        base = hf.AutoModelForCausalLM.from_config(config, dtype=dtype, attn_implementation=options.get('attention', 'sdpa')).train()
        if 'quantize' in options:
            base = quantised(base, options, dtype)
        if is_prepared:
            base = peft.prepare_model_for_kbit_training(base, use_gradient_checkpointing=options['kbit_training'] == 'checkpointing',
                                                        gradient_checkpointing_kwargs=form)
        for module in base.modules():
            if isinstance(module, bnb.nn.Linear4bit) and module.bias is not None:
                module.bias.data = module.bias.data.to(module.compute_dtype)  # as its first forward does, for good
        if 'checkpoint' in options:
            base.gradient_checkpointing_enable(form)
            if 'quantize' in options and form['use_reentrant']:
                base.enable_input_require_grads()
        targets = options.get('lora_targets')
        how = peft.LoraConfig(r=options['lora'], lora_alpha=options.get('lora_alpha', 8), task_type='CAUSAL_LM',
                              lora_dropout=options.get('lora_dropout', 0.0),
                              target_modules=targets if targets in (None, 'all-linear') else targets.split(','))
        model = peft.get_peft_model(base, how, autocast_adapter_dtype='adapter_dtype' not in options)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.SGD(trained, lr=0.1) if options.get('optimizer') == 'sgd' \
        else torch.optim.AdamW(trained, fused='fused' in options.get('optimizer', '') or None)
    batch, outputs, shape = None, None, (options['batch'], options['seq'])

    def step():
        nonlocal batch, outputs
        for part in range(options.get('accumulate', 1)):
            batch = {key: torch.randint(0, 400, shape, device='cuda') for key in ('input_ids', 'labels')}
            if options.get('no_kv_cache'):
                batch['attention_mask'] = torch.ones(shape, dtype=torch.long, device='cuda')
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


def words_of(options):
    return [word for key, value in options.items() for word in (['--' + key.replace('_', '-')] + ([] if value is True else [str(value)]))]


def without_clipping(figures, options):
    """A trace has the norm of gradients in another phase than the optimizer's."""
    return {key: value for key, value in figures.items() if not (key == 'peak of optimizer' and 'clip' in options)}


def compare(command, config, options, folder):
    """What the comparison finds, a text, and what was traced."""
    path = folder / 'config.json'
    path.write_text(json.dumps(config))
    ours, refusal = simulated(command, path, *words_of(options))
    if not ours:
        return 'refused', refusal, None
    trace(config, options, folder / 'step.graph')
    theirs, problem = simulated(command, folder / 'step.graph')
    if not theirs:
        return 'off', problem, None
    if 'double_quant' in options:
        theirs = {key: value + TABLE_BYTES * (key == 'parameter' or 'peak' in key) for key, value in theirs.items()}
    ours, theirs = without_clipping(ours, options), without_clipping(theirs, options)
    off = {key: ours.get(key, 0) - theirs.get(key, 0) for key in {**ours, **theirs} if abs(ours.get(key, 0) - theirs.get(key, 0)) > NEAR}
    return ('off' if off else 'ok'), f'{ours["peak"]:,} B, {theirs["peak"]:,} B traced{f"; off by {off}" if off else ""}', theirs


def record(rows):
    versions = {module.__name__: module.__version__ for module in (torch, hf, peft, bnb)}
    OUT.write_text(json.dumps(versions)[:-1] + ', "rows": [\n' + ',\n'.join(map(json.dumps, rows)) + '\n]}\n', encoding='utf-8')


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--check', action='store_true', help='fail if one differs')
    parser.add_argument('--record', action='store_true', help='write what was traced to tests/golden/adapters.json')
    parser.add_argument('--seed', type=int, default=1)
    parser.add_argument('--count', type=int, default=COUNT)
    parser.add_argument('--tessera', help='the program (default: python -m tessera)')
    given = parser.parse_args()
    command = [given.tessera] if given.tessera else [sys.executable, '-m', 'tessera']
    count, rows = {'ok': 0, 'off': 0, 'refused': 0}, []
    for seed in range(given.seed, given.seed + given.count):
        draw = random.Random(seed)
        name = draw.choice(NAMES)
        config, options = draw_config(draw, name), draw_options(draw, name)
        with tempfile.TemporaryDirectory() as folder:
            result, text, traced = compare(command, config, options, Path(folder))
        count[result] += 1
        if traced:
            rows.append({'seed': seed, 'model': config, 'options': words_of(options), 'traced': traced})
        print(f'{"not ok" if result == "off" else "ok"} {seed} - {config} {options}: {text}{" # SKIP refused" if result == "refused" else ""}', flush=True)
    print(f'1..{given.count}')
    if given.record:
        record(rows)
    return given.check and count['off'] > 0


if __name__ == '__main__':
    sys.exit(main())
