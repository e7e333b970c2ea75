#!/usr/bin/env python3
"""rewrites.py [--check] [NAME...]: small models, unchanged, with checkpointed or offloaded modules, and with
other forms of their optimizers.

Writes tests/golden/rewrites: step graphs of the unchanged models, and in peaks.json the peaks of traces of the others.
tests/golden/test_rewrites.py compares these with the rewrites of `tessera simulate`. Peaks include what kernels allocate while they run
(tests/golden/temporaries.py). Needs the packages that ./run test torch installs. With --check nothing is written, and the peaks must be the
recorded ones.
"""
import argparse
import functools
import json
import re
import sys
from pathlib import Path

import torch
import transformers as hf

import tessera
from programs import mixtral

GOLDEN = Path(__file__).resolve().parent.parent / 'golden'
sys.path.append(str(GOLDEN))
import temporaries  # noqa: E402

AT = GOLDEN / 'rewrites'
SMALL = {'hidden_size': 64, 'num_attention_heads': 4, 'intermediate_size': 128, 'num_hidden_layers': 2, 'vocab_size': 500}
# Name: the model, and whether it runs under autocast.
PROGRAMS = {
    'bert': (lambda: hf.BertForMaskedLM(hf.BertConfig(**SMALL)), False),
    'bert-autocast': (lambda: hf.BertForMaskedLM(hf.BertConfig(**SMALL)), True),
    't5': (lambda: hf.T5ForConditionalGeneration(hf.T5Config(
        d_model=64, d_kv=16, d_ff=128, num_layers=2, num_heads=4, vocab_size=500, decoder_start_token_id=0)), False),
    'vit': (lambda: hf.ViTForImageClassification(hf.ViTConfig(**{**SMALL, 'vocab_size': None}, image_size=64)), False),
    'resnet': (lambda: hf.ResNetForImageClassification(hf.ResNetConfig(
        embedding_size=16, hidden_sizes=[32, 64], depths=[1, 2])), False),
    'llama': (lambda: hf.LlamaForCausalLM(hf.LlamaConfig(**SMALL, num_key_value_heads=2, use_cache=False)), False),
    'llama-autocast': (lambda: hf.LlamaForCausalLM(hf.LlamaConfig(**SMALL, num_key_value_heads=2, use_cache=False)), True),
    # Of which attention has the peak, with what its kernels allocate.
    'llama-narrow': (lambda: hf.LlamaForCausalLM(hf.LlamaConfig(**{**SMALL, 'intermediate_size': 32, 'vocab_size': 32}, use_cache=False)), False),
    'mixtral': (mixtral, False),
    'gpt-neox': (lambda: hf.GPTNeoXForCausalLM(hf.GPTNeoXConfig(**SMALL)), False),
}
# Program, and the modules that are rewritten. One that adds to a cache of keys and values cannot be checkpointed.
CASES = (('bert', 'BertLayer'), ('bert', 'bert.encoder.layer.1'), ('bert-autocast', 'BertLayer'), ('t5', 'T5LayerFF'),
         ('vit', 'ViTLayer'), ('resnet', 'ResNetStage'), ('resnet', 'ResNetConvLayer'), ('llama', 'LlamaDecoderLayer'),
         ('llama', 'model.layers.0'), ('llama-autocast', 'LlamaMLP'), ('llama-narrow', 'LlamaDecoderLayer'),
         ('mixtral', 'MixtralSparseMoeBlock'), ('gpt-neox', '*.mlp'))


# Program, and a plan (docs/plan.md): modules that are checkpointed, and others whose saved tensors are on the host.
PLANS = (('llama', {'checkpoint': ['model.layers.0'], 'offload': ['model.layers.1.mlp']}),
         ('bert-autocast', {'checkpoint': ['*.layer.1', 'cls'], 'offload': ['bert.encoder.layer.0']}),
         ('t5', {'checkpoint': ['encoder.block.0', 'decoder.block.1.layer.2'], 'offload': ['encoder.block.1.layer.1', 'lm_head']}),
         ('resnet', {'checkpoint': ['resnet.encoder.stages.1.layers.0'], 'offload': ['resnet.embedder']}))


# Programs whose optimizers have other forms.
FORMS = {'foreach': {'foreach': True}, 'loop': {'foreach': False}, 'fused': {'fused': True}}
OPTIMIZERS = {
    'gpt2-adamw': torch.optim.AdamW,
    'llama-adam': functools.partial(torch.optim.Adam, amsgrad=True, weight_decay=0.1),
    'bert-sgd': functools.partial(torch.optim.SGD, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.1),
}
for form_program in OPTIMIZERS:
    if form_program != 'gpt2-adamw':
        PROGRAMS[form_program] = PROGRAMS[form_program.partition('-')[0]]
PROGRAMS['gpt2-adamw'] = (lambda: hf.GPT2LMHeadModel(hf.GPT2Config(n_layer=2, n_embd=64, n_head=4, vocab_size=500, n_positions=64)), False)


def batch(name):
    if name.partition('-')[0] in ('vit', 'resnet'):
        return {'pixel_values': torch.zeros(2, 3, 64, 64, device='cuda'), 'labels': torch.zeros(2, dtype=torch.long, device='cuda')}
    return {key: torch.zeros(2, 64, dtype=torch.long, device='cuda') for key in ('input_ids', 'labels')}


HOW = ('checkpoint', 'offload')


def traced(name, *changes, **form):
    torch.manual_seed(0)
    make, is_autocast = PROGRAMS[name]
    model = make().train()
    optimizer = OPTIMIZERS.get(name, torch.optim.AdamW)(model.parameters(), **form)
    if changes:
        tessera.apply(model, {**{how: [pattern for pattern, by in changes if by == how] for how in HOW}, 'version': 1})

    def step():
        optimizer.zero_grad()
        with torch.autocast('cuda', dtype=torch.bfloat16, enabled=is_autocast):
            loss = model(**batch(name)).loss
        loss.backward()
        optimizer.step()
    return tessera.trace(step, model=model, optimizer=optimizer, value=1.0)


def short(document):
    """Paths that are the same on every machine."""
    own = str(Path(__file__).resolve().parent)
    texts = [re.sub(r'^.*/(?:site|dist)-packages/', '', text).replace(own + '/', '') for text in document['texts']]
    return {**document, 'texts': texts}


def peaks(document):
    """Of each phase in the third step, with storages rounded to 512 bytes."""
    document = temporaries.added(document)
    sizes = [-(-size // 512) * 512 for size in document['slots']['bytes']]
    live, out = sum(sizes[:document['static']]), {}
    for step in range(3):
        within, out = [], {}
        for word, subject, *_ in document['instructions']:
            if word == 'begin':
                within.append(document['phases'][subject])
            elif word == 'end':
                within.pop()
            elif word == 'new' or (word == 'once' and step == 0):
                live += sizes[subject]
            elif word == 'drop' or (word == 'drop_previous' and step):
                live -= sizes[subject]
            for phase in within:
                out[phase] = max(out.get(phase, 0), live)
    return {phase: out[phase] for phase in ('forward', 'backward', 'optimizer')}


def cases():
    """Each rewrite with the peaks of a trace of the rewritten program."""
    for name, pattern in CASES:
        for how in HOW:
            yield {'program': name, 'modules': pattern, 'how': how}, ((pattern, how),), {}
    for name, plan in PLANS:
        yield {'program': name, 'plan': plan}, [(pattern, how) for how, patterns in plan.items() for pattern in patterns], {}
    for name in OPTIMIZERS:
        for form in FORMS:
            yield {'program': name, 'form': form}, (), FORMS[form]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--check', action='store_true')
    parser.add_argument('names', nargs='*', metavar='NAME', help='only these programs')
    given = parser.parse_args()
    recorded = json.loads((AT / 'peaks.json').read_text(encoding='utf-8'))
    known = {json.dumps({**case, 'peaks': 0}, sort_keys=True): case['peaks'] for case in recorded['cases']}
    found, wrong = [], 0
    for case, changes, form in cases():
        key = json.dumps({**case, 'peaks': 0}, sort_keys=True)
        if given.names and case['program'] not in given.names:
            found.extend([{**case, 'peaks': known[key]}] if key in known else [])
            continue
        found.append({**case, 'peaks': peaks(traced(case['program'], *changes, **form))})
        is_right = not given.check or known.get(key) == found[-1]['peaks']
        wrong += not is_right
        print(f'{"ok" if is_right else "not ok"} - {found[-1]}', flush=True)
    if given.check:
        return int(wrong > 0)
    for name in given.names or PROGRAMS:
        (AT / f'{name}.graph').write_text(json.dumps(short(traced(name)), separators=(',', ':')) + '\n', encoding='utf-8')
    (AT / 'peaks.json').write_text(json.dumps({**recorded, 'cases': found}, indent=1) + '\n', encoding='utf-8')
    return 0


if __name__ == '__main__':
    sys.exit(main())
