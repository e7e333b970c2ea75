#!/usr/bin/env python3
"""matrix.py [--check] [PART...]: the memory of PyTorch's training steps in 154 configurations of GPT-2 and Llama models.

Needs the packages that ./run test torch installs. Writes tests/golden/matrix.json, which has for each configuration the options of
transformers and of `tessera simulate`, the requested bytes of tensors that are live at the peak of each phase over three steps, and
a digest of everything that these steps allocate and free, in order. tests/golden/test_matrix.py simulates them. With --check nothing is
written, and the figures must be the recorded ones. A PART such as 2/4 is the second of four parts: only its configurations are
traced, and the recorded figures of the others are kept.
"""
import argparse
import contextlib
import hashlib
import json
import sys
from pathlib import Path

import torch
import transformers as hf

import tessera

OUT = Path(__file__).resolve().parent.parent / 'golden' / 'matrix.json'
GPT2 = {'model_type': 'gpt2', 'n_layer': 2, 'n_embd': 96, 'n_head': 4, 'vocab_size': 999, 'n_positions': 256}
LLAMA = {'model_type': 'llama', 'hidden_size': 128, 'intermediate_size': 344, 'num_hidden_layers': 2, 'num_attention_heads': 4,
         'vocab_size': 1000}
GROUPED = {**LLAMA, 'num_key_value_heads': 2}
TIED = {**GROUPED, 'tie_word_embeddings': True}
MISTRAL = {**GROUPED, 'model_type': 'mistral', 'sliding_window': None}
QWEN2 = {**GROUPED, 'model_type': 'qwen2', 'tie_word_embeddings': True}
UNTIED = {**GPT2, 'tie_word_embeddings': False}
SURE = {**GPT2, 'attn_pdrop': 0.0, 'resid_pdrop': 0.0, 'embd_pdrop': 0.0}
PLANS = ({'checkpoint': 'full'}, {'checkpoint': 'full', 'checkpoint_form': 'non-reentrant'},
         {'blocks': [{'first': 0, 'last': 0, 'checkpoint': 'full'}]},
         {'blocks': [{'first': 1, 'last': 1, 'checkpoint': 'full'}], 'checkpoint_form': 'non-reentrant'},
         {'checkpoint': 'full', 'optimizer': 'adamw-fused'}, {'checkpoint': 'full', 'attention': 'eager'},
         {'checkpoint': 'full', 'dtype': 'autocast-bf16'}, {'no_kv_cache': True, 'optimizer': 'adamw-loop'})
EVALUATED = ((2, {}), (6, {}), (5, {'dtype': 'bf16'}), (2, {'dtype': 'autocast-bf16'}), (3, {'attention': 'eager'}),
             (2, {'cache': False}), (4, {'checkpoint': 'reentrant'}), (8, {'checkpoint': 'non-reentrant', 'optimizer': 'sgd'}))
MATH = ({}, {'cache': False}, {'checkpoint': 'reentrant'}, {'checkpoint': 'non-reentrant'}, {'eval_batch': 3})
# Sizes that are no multiples of 32, 64 or 512.
ODD = {'hidden_size': 192, 'intermediate_size': 500, 'num_hidden_layers': 3, 'num_attention_heads': 6, 'vocab_size': 3001}
ODD_LLAMA = {**ODD, 'model_type': 'llama', 'attention_bias': True}
ODD_QWEN2 = {**ODD, 'model_type': 'qwen2', 'num_key_value_heads': 2}
ODD_MISTRAL = {**ODD, 'model_type': 'mistral', 'num_key_value_heads': 3, 'tie_word_embeddings': True, 'sliding_window': None}
ODD_GPT2 = {'model_type': 'gpt2', 'n_embd': 160, 'n_layer': 3, 'n_head': 5, 'vocab_size': 2003, 'n_positions': 200, 'attn_pdrop': 0.0,
            'resid_pdrop': 0.0}
NARROW_GPT2 = {'model_type': 'gpt2', 'n_embd': 99, 'n_layer': 3, 'n_head': 3, 'vocab_size': 2003, 'n_positions': 200}
WINDOWED = {**ODD, 'model_type': 'mistral', 'num_key_value_heads': 3, 'sliding_window': 40}
# With batch and rows.
ODD_ONES = ((ODD_QWEN2, {}, 3, 77), (ODD_QWEN2, {'dtype': 'bf16'}, 3, 77), (ODD_QWEN2, {'checkpoint': 'reentrant', 'dtype': 'bf16'}, 3, 77),
            (ODD_QWEN2, {'attention': 'eager', 'dtype': 'autocast-bf16', 'cache': False}, 3, 77),
            (ODD_MISTRAL, {'eval_batch': 2}, 2, 130), (ODD_MISTRAL, {'dtype': 'autocast-bf16', 'eval_batch': 2}, 2, 130),
            (ODD_GPT2, {}, 4, 111), (ODD_GPT2, {'dtype': 'bf16'}, 4, 111), (ODD_GPT2, {'attention': 'eager'}, 4, 111),
            (ODD_GPT2, {'dtype': 'autocast-bf16', 'accumulate': 2}, 4, 111), (ODD_GPT2, {'checkpoint': 'non-reentrant'}, 4, 111),
            (ODD_GPT2, {'attention': 'eager', 'cache': False, 'dtype': 'bf16'}, 4, 111),
            (ODD_LLAMA, {}, 3, 77), (ODD_LLAMA, {'cache': False, 'dtype': 'bf16'}, 3, 77),
            (ODD_LLAMA, {'attention': 'eager', 'dtype': 'bf16'}, 3, 77), (ODD_LLAMA, {'attention': 'eager', 'cache': False}, 3, 77),
            (ODD_LLAMA, {'checkpoint': 'non-reentrant', 'dtype': 'autocast-bf16'}, 3, 77),
            (WINDOWED, {}, 3, 77), (WINDOWED, {'dtype': 'bf16'}, 3, 77), (WINDOWED, {'attention': 'eager'}, 3, 77),
            (WINDOWED, {'checkpoint': 'reentrant'}, 3, 77), (WINDOWED, {'cache': False, 'dtype': 'bf16'}, 3, 77),
            (WINDOWED, {'attention': 'eager', 'checkpoint': 'non-reentrant'}, 3, 77),
            # heads of which rows are not whole 16 bytes
            ({**ODD_LLAMA, 'head_dim': 20}, {'dtype': 'bf16'}, 3, 77), ({**ODD_LLAMA, 'head_dim': 10}, {}, 3, 77),
            ({**ODD_LLAMA, 'head_dim': 20, 'num_key_value_heads': 2}, {'dtype': 'bf16', 'cache': False}, 3, 77),
            (NARROW_GPT2, {}, 3, 77), (NARROW_GPT2, {'dtype': 'bf16'}, 3, 77),
            # one sequence, one token, one head
            (ODD_LLAMA, {'attention': 'eager'}, 1, 33), (ODD_LLAMA, {'cache': False, 'attention': 'eager'}, 1, 33),
            ({**ODD_LLAMA, 'num_key_value_heads': 2}, {'attention': 'eager', 'cache': False, 'dtype': 'autocast-bf16'}, 1, 64),
            ({**WINDOWED, 'tie_word_embeddings': True, 'sliding_window': 16}, {'attention': 'eager', 'cache': False}, 1, 33),
            ({**NARROW_GPT2, 'n_embd': 160, 'n_head': 5}, {}, 1, 1), (ODD_LLAMA, {}, 1, 1),
            ({**NARROW_GPT2, 'n_embd': 160, 'n_head': 1}, {'attention': 'eager'}, 2, 33),
            ({**ODD_LLAMA, 'num_attention_heads': 1}, {'attention': 'eager'}, 2, 33),
            ({**ODD_LLAMA, 'mlp_bias': True, 'num_key_value_heads': 1}, {'dtype': 'bf16', 'checkpoint': 'reentrant'}, 3, 33),
            ({**ODD_QWEN2, 'attention_dropout': 0.1}, {'dtype': 'bf16'}, 3, 77),
            ({**NARROW_GPT2, 'n_embd': 160, 'n_head': 5, 'n_inner': 333}, {'dtype': 'autocast-bf16'}, 3, 33))
# Attention has the peak.
NARROW = {**GROUPED, 'num_attention_heads': 16, 'vocab_size': 50, 'attention_dropout': 0.1}


def configurations():
    """Each consists of a model's description, options with simulate's names, batch and rows."""
    for description, options in usual():
        yield description, options, 2, 96
    yield from ODD_ONES
    for description, options in others():
        yield description, options, 2, 96


def others():
    """Optimizers that are only simulated. Those of bitsandbytes need a card."""
    for name in ('sgd-momentum', 'adafactor', 'muon'):
        for model in (GPT2, GROUPED, TIED):
            yield model, {'optimizer': name, 'cache': False}
        yield GPT2, {'optimizer': name, 'dtype': 'bf16', 'accumulate': 2}
        yield LLAMA, {'optimizer': name, 'dtype': 'autocast-bf16', 'checkpoint': 'non-reentrant'}


def usual():
    for model in (GPT2, LLAMA):
        for dtype in ('fp32', 'bf16', 'autocast-bf16'):
            for attention in ('sdpa', 'eager'):
                for checkpoint in ('none', 'reentrant', 'non-reentrant'):
                    yield model, {'dtype': dtype, 'attention': attention, 'checkpoint': checkpoint}
    yield GPT2, {'optimizer': 'adamw-fused', 'accumulate': 2}
    yield LLAMA, {'optimizer': 'sgd', 'accumulate': 3}
    yield LLAMA, {'optimizer': 'adamw-loop', 'cache': False}
    yield GPT2, {'optimizer': 'sgd', 'cache': False, 'dtype': 'autocast-bf16'}
    yield UNTIED, {}
    yield SURE, {'attention': 'eager'}
    yield SURE, {'dtype': 'bf16', 'accumulate': 2}
    yield GROUPED, {'dtype': 'bf16'}
    yield GROUPED, {'attention': 'eager'}
    yield GROUPED, {'cache': False, 'dtype': 'bf16'}
    yield TIED, {'dtype': 'bf16', 'accumulate': 2}
    yield TIED, {'dtype': 'autocast-bf16', 'cache': False}
    yield MISTRAL, {'dtype': 'bf16', 'checkpoint': 'non-reentrant'}
    yield QWEN2, {'dtype': 'bf16', 'optimizer': 'adamw-fused'}
    for model in (GPT2, LLAMA):  # what tessera.apply makes of plans
        for plan in PLANS:
            yield model, {'plan': {**plan, 'version': 1}, **({'cache': False} if 'no_kv_cache' in plan else {})}
    yield GPT2, {'plan': {'gelu': 'fused', 'no_kv_cache': True, 'version': 1}, 'cache': False}
    for model in (GPT2, LLAMA):  # evaluated after each step
        for batch, options in EVALUATED:
            yield model, {**options, 'eval_batch': batch}
    yield GROUPED, {'eval_batch': 2, 'dtype': 'bf16'}
    yield {**GPT2, 'vocab_size': 50}, {'eval_batch': 6}
    yield {**GPT2, 'vocab_size': 50}, {'eval_batch': 2, 'checkpoint': 'reentrant', 'accumulate': 2}
    for options in MATH:  # grouped queries in fp32
        yield GROUPED, options
        yield NARROW, options
    yield TIED, {'accumulate': 2}
    yield MISTRAL, {'optimizer': 'adamw-fused'}
    yield QWEN2, {'checkpoint': 'reentrant'}
    yield {**GROUPED, 'num_key_value_heads': 1, 'attention_dropout': 0.1}, {}


def built(description, options):
    config = hf.AutoConfig.for_model(**description)
    config._attn_implementation = options.get('attention', 'sdpa')
    if options.get('cache') is False:
        config.use_cache = False
    dtype = {'bf16': torch.bfloat16}.get(options.get('dtype'), torch.float32)
    model = hf.AutoModelForCausalLM.from_config(config, dtype=dtype, attn_implementation=options.get('attention', 'sdpa')).train()
    form = options.get('checkpoint', 'none')
    if form != 'none':
        model.gradient_checkpointing_enable({'use_reentrant': form == 'reentrant'})
        if form == 'reentrant':
            model.enable_input_require_grads()
    return model


class Both:
    """Two optimizers of parts of a model, one after the other."""

    def __init__(self, *optimizers):
        self.optimizers = optimizers

    def zero_grad(self):
        for optimizer in self.optimizers:
            optimizer.zero_grad()

    def step(self):
        for optimizer in self.optimizers:
            optimizer.step()


def muon(model):
    """For matrices of blocks; AdamW for embeddings, the head and vectors."""
    params = dict(model.named_parameters())
    matrices = [name for name, param in params.items() if param.dim() == 2 and ('.h.' in name or '.layers.' in name)]
    return Both(torch.optim.Muon([params[name] for name in matrices]),
                torch.optim.AdamW([param for name, param in params.items() if name not in matrices]))


def optimizer_of(model, name):
    if name == 'muon':
        return muon(model)
    if name == 'adafactor':
        return torch.optim.Adafactor(model.parameters())
    if name in ('sgd', 'sgd-momentum'):
        return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9 if name == 'sgd-momentum' else 0)
    return torch.optim.AdamW(model.parameters(), **{'adamw-fused': {'fused': True}, 'adamw-loop': {'foreach': False}}.get(name, {}))


def inputs(options, batch, seq):
    names = ('input_ids', 'labels', *(('attention_mask',) if options.get('cache') is False else ()))
    return {name: torch.ones(batch, seq, dtype=torch.long, device='cuda') for name in names}


def region(options):
    is_autocast = options.get('dtype') == 'autocast-bf16'
    return torch.autocast('cuda', dtype=torch.bfloat16) if is_autocast else contextlib.nullcontext()


def step_of(model, optimizer, options, batch, seq):
    kept = {}
    parts = options.get('accumulate', 1)

    def step():
        for number in range(parts):
            kept['batch'] = inputs(options, batch, seq)
            if number == 0:
                optimizer.zero_grad()
            with region(options):
                kept['outputs'] = model(**kept['batch'])
            (kept['outputs'].loss if parts == 1 else kept['outputs'].loss / parts).backward()
        optimizer.step()
        if 'eval_batch' in options:
            evaluate(model, options, seq)
    return step


@torch.no_grad()
def evaluate(model, options, seq):
    """As tessera has it: two batches, and the loss of each."""
    model.eval()
    for _ in range(2):
        batch = inputs(options, options['eval_batch'], seq)
        with region(options):
            outputs = model(**batch)
    del outputs
    model.train()


def peaks(document):
    """The peak of each phase that allocates, over three steps, in requested bytes. A forward after the optimizer belongs to an evaluation."""
    sizes, out = document['slots']['bytes'], {}
    live, phases = sum(sizes[:document['static']]), []
    for step in range(3):
        is_over = False
        for word, subject, *_ in document['instructions']:
            if word == 'begin':
                phases.append(document['phases'][subject])
                is_over |= phases[-1] == 'optimizer'
                if is_over and phases[-1] == 'forward':
                    phases[-1] = 'evaluation'
            elif word == 'end':
                phases.pop()
            elif word == 'new' or (word == 'once' and step == 0):
                live += sizes[subject]
            elif word == 'drop' or (word == 'drop_previous' and step):
                live -= sizes[subject]
            if word in ('new', 'once') and phases:
                out[phases[-1]] = max(out.get(phases[-1], 0), live)
    return {name: out[name] for name in ('forward', 'backward', 'optimizer', 'evaluation') if name in out}


def events(document):
    """What three steps allocate and free, in order, as text: +BYTES and -BYTES. Of what is freed together, the smallest comes first."""
    sizes, out, freed = document['slots']['bytes'], [], []

    def close():
        out.extend(f'-{size}' for size in sorted(freed))
        freed.clear()
    for step in range(3):
        for word, subject, *_ in document['instructions']:
            if word == 'new' or (word == 'once' and step == 0):
                close()
                out.append(f'+{sizes[subject]}')
            elif word == 'drop' or (word == 'drop_previous' and step):
                freed.append(sizes[subject])
    close()
    return out


def summary(document, description, options, batch, seq):
    listed = events(document)
    return {'model': description, 'options': options, 'batch': batch, 'seq': seq, 'peaks': peaks(document),
            'events': len(listed), 'digest': hashlib.sha256(' '.join(listed).encode()).hexdigest()[:16]}


def row(description, options, batch, seq):
    torch.manual_seed(0)
    model = built(description, options)
    optimizer = optimizer_of(model, options.get('optimizer', 'adamw'))
    if 'plan' in options:
        assert not tessera.apply(model, options['plan'], optimizer=optimizer).left
    optimizers = getattr(optimizer, 'optimizers', optimizer)
    document = tessera.trace(step_of(model, optimizer, options, batch, seq), model=model, optimizer=optimizers, value=1.0)
    return summary(document, description, options, batch, seq)


def part(text):
    """2/4 as (2, 4)."""
    which, _, count = text.partition('/')
    if not (which.isdecimal() and count.isdecimal() and 1 <= int(which) <= int(count)):
        raise argparse.ArgumentTypeError(f'{text!r} is no part such as 2/4')
    return int(which), int(count)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--check', action='store_true')
    parser.add_argument('parts', nargs='*', metavar='PART', type=part, help='only these parts, each as 2/4')
    given = parser.parse_args()
    hf.logging.set_verbosity_error()
    known = json.loads(OUT.read_text(encoding='utf-8'))['rows'] if OUT.exists() else []
    wanted = list(configurations())
    rows, traced, wrong = [], 0, 0
    for number, given_row in enumerate(wanted):
        if given.parts and not any(number % count == which - 1 for which, count in given.parts):
            rows += [entry for entry in known if (entry['model'], entry['options'], entry['batch'], entry['seq']) == given_row]
            continue
        traced += 1
        rows.append(row(*given_row))
        is_right = not given.check or rows[-1] in known
        wrong += not is_right
        print(f'{"ok" if is_right else "not ok"} - {number + 1} of {len(wanted)}: {rows[-1]}', flush=True)
    print(f'# {traced} of {len(wanted)} configurations traced')
    if not given.check:
        lines = ',\n'.join(json.dumps(entry) for entry in rows)
        OUT.write_text(f'{{"torch": "{torch.__version__}", "transformers": "{hf.__version__}", "rows": [\n{lines}\n]}}\n',
                       encoding='utf-8')
    return wrong > 0


if __name__ == '__main__':
    sys.exit(main())
