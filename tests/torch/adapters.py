#!/usr/bin/env python3
"""adapters.py [--check] [--seed N] [--count N] [--show]: models with random adapters of peft, traced and counted by PyTorch.

Needs the packages that ./run test torch installs. Each program trains the adapters of a small model of transformers, and is compared with
PyTorch's ledger as those of differential.py are. frameworks.py has what peft's own comparison of methods measured.
"""
import random
import sys

import differential

COUNT = 10  # of ./run test torch
TEXT = '''\
import contextlib
import peft
import torch
import transformers as hf

hf.logging.set_verbosity_error()


def build(device):
    config = hf.{model}Config(hidden_size=64, num_attention_heads=4, num_hidden_layers=2, vocab_size=500, intermediate_size=128,
                              num_key_value_heads=2, attn_implementation='eager', use_cache=False)
    with torch.device(device):
        base = hf.{model}ForCausalLM._from_config(config, dtype=torch.{dtype}).train()
        {before}
        model = peft.get_peft_model(base, {adapter}, autocast_adapter_dtype={is_cast})
        {after}
    optimizer = torch.optim.AdamW([param for param in model.parameters() if param.requires_grad])

    def step():
        for _ in range({batches}):
            ids = torch.randint(0, 500, (4, 48), device='cuda')
            with {context}:
                loss = model(input_ids=ids, labels=ids{mask}).loss
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss
    return step, [model], [optimizer]
'''
TARGETS = (['q_proj', 'v_proj'], ['q_proj', 'k_proj', 'v_proj', 'o_proj'], ['gate_proj', 'up_proj', 'down_proj'], ['down_proj'], 'all-linear')
CHECKPOINTS = ("base.gradient_checkpointing_enable({'use_reentrant': True}); base.enable_input_require_grads()",
               "base.gradient_checkpointing_enable({'use_reentrant': False})")


def lora(draw):
    given = {'r': draw.choice((1, 4, 16, 64)), 'target_modules': draw.choice(TARGETS), 'lora_dropout': draw.choice((0.0, 0.0, 0.1))}
    for name, value, share in (('use_dora', True, 0.25), ('use_rslora', True, 0.25), ('bias', 'lora_only', 0.15),
                               ('modules_to_save', ['lm_head'], 0.15), ('layers_to_transform', [1], 0.15)):
        if draw.random() < share and not (name == 'modules_to_save' and given['target_modules'] == 'all-linear'):
            given[name] = value
    return f'peft.LoraConfig({", ".join(f"{name}={value!r}" for name, value in given.items())})'


def other(draw):
    """What peft has besides LoRA."""
    targets = f'target_modules={draw.choice(TARGETS[:3])!r}'
    return draw.choice((
        "peft.IA3Config(target_modules=['k_proj', 'v_proj', 'down_proj'], feedforward_modules=['down_proj'])",
        f'peft.LoHaConfig(r=4, {targets})', f'peft.LoKrConfig(r=4, {targets})', f'peft.VeraConfig(r=16, {targets})',
        f'peft.OFTConfig(oft_block_size=8, {targets})', f'peft.AdaLoraConfig(total_step=100, {targets})',
        "peft.PromptTuningConfig(task_type='CAUSAL_LM', num_virtual_tokens=8)",
        "peft.LNTuningConfig(target_modules=['input_layernorm', 'post_attention_layernorm'])"))


class Program:
    """A training script, as differential.py has one."""

    def __init__(self, seed):
        draw = random.Random(seed)
        is_lora = draw.random() < 0.7
        adapter = (lora if is_lora else other)(draw)
        autocast = draw.choice((None, None, 'bfloat16', 'float16'))
        self.text = TEXT.format(
            model=draw.choice(('Llama', 'Qwen2', 'Mistral')), adapter=adapter,
            dtype=draw.choice(('float32', 'bfloat16', 'bfloat16', 'float16')), is_cast=draw.random() < 0.7, batches=draw.choice((1, 1, 2)),
            before=draw.choice(('', *CHECKPOINTS)),
            # a second adapter, which is not trained
            after=f"model.add_adapter('second', {adapter})" if is_lora and 'bias' not in adapter and draw.random() < 0.2 else '',
            context=f"torch.autocast('cuda', dtype=torch.{autocast})" if autocast else 'contextlib.nullcontext()',
            mask=", attention_mask=torch.ones(4, 48, dtype=torch.long, device='cuda')" if draw.random() < 0.3 else '')
        self.value = None


if __name__ == '__main__':
    sys.exit(differential.main(Program, COUNT, __doc__))
