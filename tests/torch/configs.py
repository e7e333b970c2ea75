#!/usr/bin/env python3
"""configs.py [--check] [NAME...]: models of transformers that are not built in, by their config.json and by hand.

Needs the packages that ./run test torch installs. `tessera simulate config.json` must need what the same program needs that is written and
traced here without any code of tessera/_config.py: within 64 bytes, at the peak of each phase and in each category at the peak. The small models
are of fifteen architectures, each with the options of OPTIONS; those of FULL have the sizes that their classes have by default. graphs.py records
step graphs of the small ones for tests that have no PyTorch.
"""
import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
import transformers as hf

import tessera

SMALL = {'hidden_size': 64, 'intermediate_size': 128, 'num_hidden_layers': 2, 'num_attention_heads': 4, 'vocab_size': 500}
GROUPED = {**SMALL, 'num_key_value_heads': 2}
SLIDING = {**GROUPED, 'head_dim': 16, 'sliding_window': 32}
CONFIGS = {
    'qwen3': {**GROUPED, 'head_dim': 16},
    'gemma2': SLIDING,
    'gemma3_text': SLIDING,
    'gemma3': {'text_config': {**SLIDING, 'model_type': 'gemma3_text'}, 'mm_tokens_per_image': 4,
               'vision_config': {'hidden_size': 64, 'intermediate_size': 128, 'num_hidden_layers': 2, 'num_attention_heads': 4,
                                 'image_size': 56, 'patch_size': 14, 'model_type': 'siglip_vision_model'}},
    'phi3': {**GROUPED, 'pad_token_id': 0, 'bos_token_id': 1, 'eos_token_id': 2},
    'mixtral': {**GROUPED, 'num_local_experts': 4},
    'deepseek_v3': {**SMALL, 'num_key_value_heads': 4, 'moe_intermediate_size': 64, 'n_routed_experts': 8, 'num_experts_per_tok': 2,
                    'n_group': 2, 'topk_group': 1, 'first_k_dense_replace': 1, 'q_lora_rank': 32, 'kv_lora_rank': 16,
                    'qk_rope_head_dim': 16, 'qk_nope_head_dim': 16, 'v_head_dim': 16},
    'llama4_text': {**GROUPED, 'intermediate_size_mlp': 128, 'num_local_experts': 4, 'head_dim': 16, 'attention_chunk_size': 32,
                    'num_hidden_layers': 4},
    'gpt_oss': {**SLIDING, 'num_local_experts': 4, 'num_experts_per_tok': 2},
    'falcon': {'hidden_size': 64, 'num_hidden_layers': 2, 'num_attention_heads': 4, 'vocab_size': 500},
    'bloom': {'hidden_size': 64, 'n_layer': 2, 'n_head': 4, 'vocab_size': 500},
    't5': {'d_model': 64, 'd_kv': 16, 'd_ff': 128, 'num_layers': 2, 'num_heads': 4, 'vocab_size': 500, 'decoder_start_token_id': 0},
    'bert': {**SMALL, 'max_position_embeddings': 128},
    'vit': {'hidden_size': 64, 'intermediate_size': 128, 'num_hidden_layers': 2, 'num_attention_heads': 4, 'image_size': 64},
    'whisper': {'d_model': 64, 'encoder_layers': 2, 'decoder_layers': 2, 'encoder_attention_heads': 4, 'decoder_attention_heads': 4,
                'encoder_ffn_dim': 128, 'decoder_ffn_dim': 128, 'vocab_size': 500, 'max_source_positions': 100,
                'max_target_positions': 64, 'num_mel_bins': 20, 'pad_token_id': 0, 'bos_token_id': 1, 'eos_token_id': 2,
                'decoder_start_token_id': 1},
}
CLASSES = {
    'qwen3': hf.Qwen3ForCausalLM, 'gemma2': hf.Gemma2ForCausalLM, 'gemma3_text': hf.Gemma3ForCausalLM,
    'gemma3': hf.Gemma3ForConditionalGeneration, 'phi3': hf.Phi3ForCausalLM, 'mixtral': hf.MixtralForCausalLM,
    'deepseek_v3': hf.DeepseekV3ForCausalLM, 'llama4_text': hf.Llama4ForCausalLM, 'gpt_oss': hf.GptOssForCausalLM,
    'falcon': hf.FalconForCausalLM, 'bloom': hf.BloomForCausalLM, 't5': hf.T5ForConditionalGeneration, 'bert': hf.BertForMaskedLM,
    'vit': hf.ViTForImageClassification, 'whisper': hf.WhisperForConditionalGeneration,
}
FULL = ('qwen3', 'gemma2', 'phi3', 'falcon', 'bloom', 't5', 'bert', 'vit', 'whisper')
# Of the command, and of the program below.
OPTIONS = ({}, {'dtype': 'bf16'}, {'dtype': 'autocast-bf16', 'accumulate': 2}, {'attention': 'eager', 'optimizer': 'adamw-fused'},
           {'checkpoint': 'full', 'checkpoint_form': 'non-reentrant'}, {'no_kv_cache': True, 'optimizer': 'sgd', 'clip': 1.0})
BATCH, ROWS = 2, 64
NEAR = 64


# ---- By hand ----

def batch_of(name, model, options, rows):
    kind = model.dtype

    def numbers(*shape):
        return torch.randint(0, 400, shape, device='cuda')
    if name == 'vit':
        side = model.config.image_size
        return {'pixel_values': torch.randn(BATCH, 3, side, side, dtype=kind, device='cuda'), 'labels': torch.zeros(BATCH, dtype=torch.long, device='cuda')}
    if name == 'whisper':
        config = model.config
        return {'input_features': torch.randn(BATCH, config.num_mel_bins, 2 * config.max_source_positions, dtype=kind, device='cuda'),
                'labels': numbers(BATCH, rows)}
    batch = {'input_ids': numbers(BATCH, rows), 'labels': numbers(BATCH, rows)}
    if name == 'gemma3':
        batch['token_type_ids'] = torch.zeros(BATCH, rows, dtype=torch.long, device='cuda')
    if options.get('no_kv_cache'):
        batch['attention_mask'] = torch.ones(BATCH, rows, dtype=torch.long, device='cuda')
    return batch


def by_hand(name, description, options, rows, path):
    config = hf.AutoConfig.for_model(name, **description)
    if name == 't5' and config.decoder_start_token_id is None:  # as T5's own files have it
        config.decoder_start_token_id = config.pad_token_id
    dtype = {'bf16': torch.bfloat16}.get(options.get('dtype'), torch.float32)
    if options.get('no_kv_cache'):
        config.use_cache = config.get_text_config().use_cache = False
    with torch.device('meta'):
        how = {'attn_implementation': options['attention']} if 'attention' in options else {}
        model = CLASSES[name]._from_config(config, dtype=dtype, **how).train()
    if options.get('checkpoint') == 'full':
        model.gradient_checkpointing_enable({'use_reentrant': False})
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1) if options.get('optimizer') == 'sgd' \
        else torch.optim.AdamW(model.parameters(), fused='fused' in options.get('optimizer', '') or None)
    batch = outputs = None  # the last ones, as variables of a loop

    def step():
        nonlocal batch, outputs
        for part in range(options.get('accumulate', 1)):
            batch = batch_of(name, model, options, rows)
            if part == 0:
                optimizer.zero_grad()
            with torch.autocast('cuda', dtype=torch.bfloat16) if 'autocast' in options.get('dtype', '') else contextlib.nullcontext():
                outputs = model(**batch)
            if 'accumulate' in options:
                (outputs.loss / options['accumulate']).backward()
            else:
                outputs.loss.backward()
        if 'clip' in options:
            torch.nn.utils.clip_grad_norm_(model.parameters(), options['clip'])
        optimizer.step()
    tessera.trace(step, model=model, optimizer=optimizer, path=str(path), value=1.0, routing='balanced')


# ---- Both ----

def simulated(model, *words):
    out = subprocess.run([sys.executable, '-m', 'tessera', 'simulate', model, '--json', *words], stdout=subprocess.PIPE,
                         stderr=subprocess.PIPE, text=True, check=False)
    if out.returncode:
        return None, out.stderr.strip()
    return json.loads(out.stdout), ''


def words_of(name, options, rows):
    words = ['--batch', str(BATCH)] + ([] if name == 'vit' else ['--seq', str(rows)])
    for key, value in options.items():
        words += [f'--{key.replace("_", "-")}'] + ([] if value is True else [str(value)])
    return words


def figures(answer):
    device, = answer['devices']
    return {'peak': device['peak']['requested_bytes'], **{f'peak of {row["name"]}': row['allocated_bytes'] for row in device['phases']},
            **{row['name']: row['bytes'] for row in device['categories']}}


def compared(name, description, options, rows, work):
    """Lines that say what differs."""
    config, graph = work / 'config.json', work / 'hand.graph'
    config.write_text(json.dumps({'model_type': name, **description}), encoding='utf-8')
    answer, error = simulated(config, *words_of(name, options, rows))
    if answer is None:
        if 'does not support' in error and ('attention' in options or 'checkpoint' in options):
            return None
        if name == 'gemma3' and 'no_kv_cache' in options and 'nonzero' in error:  # its loss picks tokens by the mask, whose values a trace lacks
            return None
        return [error]
    by_hand(name, description, options, rows, graph)
    expected, error = simulated(graph)
    if expected is None:
        return [error]
    ours, theirs = figures(answer), figures(expected)
    return [f'{key}: {ours.get(key, 0)} instead of {theirs.get(key, 0)}' for key in {**ours, **theirs}
            if abs(ours.get(key, 0) - theirs.get(key, 0)) > NEAR]


def cases(names):
    for name, description in CONFIGS.items():
        if names and name not in names:
            continue
        for options in OPTIONS:
            yield name, description, options, ROWS
    for name in FULL if not names else ():
        yield name, {}, {'dtype': 'bf16'}, 128


def check(names):
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        os.environ['XDG_CACHE_HOME'] = folder
        for name, description, options, rows in cases(names):
            lines = compared(name, description, options, rows, Path(folder))
            title = f'{name}{"" if description else " in its usual size"} {options or ""}'.strip()
            failed += bool(lines)
            print(f'{"not ok" if lines else "ok"} {title}{" # SKIP not supported by transformers" if lines is None else ""}', flush=True)
            for line in lines or []:
                print(f'# {line}', flush=True)
    return int(failed > 0)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--check', action='store_true', help='as other programs here have it; nothing is ever written')
    parser.add_argument('names', nargs='*', metavar='NAME')
    given = parser.parse_args()
    return check(given.names)


if __name__ == '__main__':
    sys.exit(main())
