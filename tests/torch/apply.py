#!/usr/bin/env python3
"""apply.py [--check] [NAME..]: tessera.apply and tessera.fit on models of transformers.

On fake tensors, a step that is traced after apply() has the peaks that simulate predicts for the plan, to the byte. On real tensors, on the
CPU, losses and gradients after apply() are the same as before, to the bit, and undo() restores everything. Needs the packages that ./run test torch
installs. Models are small; one of normal size is traced without memory. Nothing is written.
"""
import argparse
import copy
import gc
import os
import pickle
import signal
import sys
import threading
import time
import traceback
import warnings
import weakref

import torch
import transformers as hf
from matrix import step_of
from rewrites import SMALL, peaks

import tessera

SURE = {'hidden_dropout_prob': 0.0, 'attention_probs_dropout_prob': 0.0}
NONE = {'resid_pdrop': 0.0, 'embd_pdrop': 0.0, 'attn_pdrop': 0.0}
TOKENS = {'bos_token_id': 0, 'eos_token_id': 0}
MODELS = {
    'gpt2': lambda: hf.GPT2LMHeadModel(hf.GPT2Config(n_layer=2, n_embd=64, n_head=4, vocab_size=500, use_cache=False, **NONE, **TOKENS)),
    'llama': lambda: hf.LlamaForCausalLM(hf.LlamaConfig(**SMALL, num_key_value_heads=2, use_cache=False)),
    'bert': lambda: hf.BertForMaskedLM(hf.BertConfig(**SMALL, **SURE)),
    'vit': lambda: hf.ViTForImageClassification(hf.ViTConfig(**{**SMALL, 'vocab_size': None}, image_size=64)),
    't5': lambda: hf.T5ForConditionalGeneration(hf.T5Config(
        d_model=64, d_kv=16, d_ff=128, num_layers=2, num_heads=4, vocab_size=500, decoder_start_token_id=0, use_cache=False, dropout_rate=0.0)),
}
PLANS = {
    'gpt2': ({'checkpoint': ['transformer.h.*']}, {'checkpoint': ['transformer.h.0'], 'offload': ['transformer.h.1.mlp']}),
    'llama': ({'checkpoint': ['LlamaDecoderLayer']}, {'offload': ['*.self_attn']}),
    'bert': ({'checkpoint': ['bert.encoder.layer.1']}, {'offload': ['BertLayer']}),
    'vit': ({'checkpoint': ['ViTLayer']},),
    't5': ({'checkpoint': ['T5Block']}, {'checkpoint': ['encoder.block.*'], 'offload': ['decoder.block.1']}),
}
# Less than the step of interrupted() reserves, and how long it may go on.
BUDGET, LATE_S = '26MiB', 30
# Plans of configurations, for PyTorch and transformers as simulate describes them.
BLOCKS = ({'loss': 'chunked:32'}, {'loss': 'chunked:32', 'checkpoint': 'full', 'gelu': 'fused'})


def batch_of(name, device):
    torch.manual_seed(1)
    if name == 'vit':
        return {'pixel_values': torch.randn(2, 3, 64, 64).to(device), 'labels': torch.zeros(2, dtype=torch.long, device=device)}
    if device == 'cuda':
        return {key: torch.zeros(2, 64, dtype=torch.long, device=device) for key in ('input_ids', 'labels')}
    ids = torch.randint(0, 500, (2, 64))
    return {'input_ids': ids, 'labels': ids}


def made(name):
    torch.manual_seed(0)
    return MODELS[name]().train()


def traced(model, batch, plan=None):
    optimizer = torch.optim.AdamW(model.parameters())
    applied = tessera.apply(model, plan, optimizer=optimizer) if plan else None

    def step():
        optimizer.zero_grad()
        model(**batch()).loss.backward()
        optimizer.step()
    graph = tessera.trace(step, model=model, optimizer=optimizer, value=1.0)  # a mask of ones, of which BERT asks whether it is
    if applied:
        applied.undo()
    return graph


def predicted(model, **options):
    """Of tensors alone."""
    run = tessera.simulate(model, steps=3, **options)
    workspaces = sum(entry.bytes for entry in run.categories if entry.name == 'workspace')
    return {phase.name: phase.allocated_bytes - workspaces for phase in run.phases}


def expect(found, wanted, what):
    assert found == wanted, f'{what}: {found} instead of {wanted}'


# ---- What is predicted ----

def modules(name):
    """Traced after apply(), a step has the peaks of its graph with that plan."""
    def batch():
        return batch_of(name, 'cuda')
    graph = traced(made(name), batch)
    for plan in PLANS[name]:
        plan = {**plan, 'version': 1}
        expect(peaks(traced(made(name), batch, plan)), predicted(graph, plan=plan), f'{name} with {plan}')


def fitted():
    """GPT-2 124M without memory: the plan that fit() finds has the predicted peaks, reserved and allocated, and a smaller budget does not fit."""
    with torch.device('meta'):
        model = hf.GPT2LMHeadModel(hf.GPT2Config())
    optimizer = torch.optim.AdamW(model.parameters())

    def step():
        ids = torch.zeros(4, 512, dtype=torch.long, device='cuda')
        optimizer.zero_grad()
        model(input_ids=ids, labels=ids).loss.backward()
        optimizer.step()
    with tessera.fit(model, optimizer, step, '4GiB') as found:
        run = tessera.simulate(tessera.trace(step, model=model, optimizer=optimizer), steps=3)
        expect((run.peak.allocated_bytes, run.peak_reserved_bytes), tuple(found.after), 'fit')
        assert found.after.reserved_bytes <= 4 << 30 < found.before.reserved_bytes, found
    assert model.config.use_cache and not any('forward' in vars(module) for module in model.modules())
    refused(lambda: tessera.fit(model, optimizer, step, '1GiB'), 'does not fit in 1.00 GiB: the leanest plan reserves')


def interrupted():
    """Ctrl-C ends fit() where it is, within a second or two: the model, the optimizer and PyTorch are as before, and no thread goes on."""
    model, ids = made('gpt2'), torch.zeros(2, 16, dtype=torch.long)
    optimizer = torch.optim.AdamW(model.parameters())

    def step():
        optimizer.zero_grad()
        model(input_ids=ids.to('cuda'), labels=ids.to('cuda')).loss.backward()
        optimizer.step()

    def state():
        return (pickle.dumps([{**group, 'params': None} for group in optimizer.param_groups]), len(optimizer.state), threading.active_count(),
                [(name, sorted(vars(module))) for name, module in model.named_modules()], torch.cuda.is_available(), torch.get_rng_state().tolist(),
                [(id(value), value.grad is None, value.tolist()) for value in model.parameters()])
    # A shell that starts a program in the background lets it ignore the signal, and Python keeps that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    before, began, seen = state(), time.monotonic(), 0
    tessera.fit(model, optimizer, step, BUDGET).undo()
    takes = time.monotonic() - began
    for part in (0.1, 0.3, 0.5, 0.7):
        timer, began = threading.Timer(part * takes, os.kill, (os.getpid(), signal.SIGINT)), time.monotonic()
        timer.start()
        try:
            tessera.fit(model, optimizer, step, BUDGET).undo()
            timer.cancel()  # it was quicker this time, or Python was in a finalizer, which swallows the exception
        except KeyboardInterrupt:
            seen += 1
            assert time.monotonic() - began < part * takes + LATE_S, f'{part}: {time.monotonic() - began} s'
        timer.join()
        for found, wanted in zip(state(), before):
            expect(found, wanted, f'after Ctrl-C at {part}')
    assert seen, 'no call of fit() was interrupted'
    tessera.fit(model, optimizer, step, BUDGET).undo()


def blocks():
    """A plan of a configuration with a loss in chunks. tests/torch/matrix.py has other plans, counted in requested bytes."""
    if not torch.__version__.startswith('2.9.') or not hf.__version__.startswith('4.57.'):
        print(f'# blocks are not compared: simulate describes PyTorch 2.9, not {torch.__version__}')
        return
    description = {'model_type': 'gpt2', 'n_layer': 2, 'n_embd': 96, 'n_head': 4, 'vocab_size': 999, 'n_positions': 256}

    for plan in BLOCKS:
        plan = {**plan, 'no_kv_cache': True, 'version': 1}
        model = hf.AutoModelForCausalLM.from_config(hf.AutoConfig.for_model(**description)).train()
        optimizer = torch.optim.AdamW(model.parameters())
        tessera.apply(model, plan, optimizer=optimizer)
        graph = tessera.trace(step_of(model, optimizer, {'cache': False}, 2, 96), model=model, optimizer=optimizer, value=1.0)
        expect(peaks(graph), predicted(description, batch=2, seq=96, plan=plan), f'{plan}')


# ---- What is computed ----

def run(model, batch):
    model.zero_grad()
    torch.manual_seed(2)
    out = model(**batch)
    out.loss.backward()
    return out.loss.detach(), {name: parameter.grad.clone() for name, parameter in model.named_parameters() if parameter.grad is not None}


def same(first, second):
    return torch.equal(first[0], second[0]) and first[1].keys() == second[1].keys() \
        and all(torch.equal(first[1][name], second[1][name]) for name in first[1])


def near(first, second, most=1e-5):
    return abs(first[0] - second[0]) < most and all((first[1][name] - second[1][name]).abs().max() < most for name in first[1])


def inside(model):
    """Everything that undo() must restore."""
    hidden = ('_parameters', '_buffers', '_modules')
    return [{key: id(value) if isinstance(value, torch.Tensor) else copy.copy(value) for key, value in vars(module).items()
             if key not in hidden} for module in model.modules()], \
        list(model.state_dict()), copy.deepcopy(getattr(model.config, 'use_cache', None)), model.config._attn_implementation


def numbers(name):
    """Results are bit for bit those without the plan, also for copies; names, hooks and modes stay; undo() restores everything."""
    model, batch = made(name), batch_of(name, 'cpu')
    before, as_it_was, names = run(model, batch), inside(model), list(model.state_dict())
    form = {'checkpoint': 'full', 'checkpoint_form': 'non-reentrant'}
    more = () if name == 't5' else ({'checkpoint': 'full'}, {'blocks': [{'first': 1, 'last': 1, 'saved': {'linear.0': 'recompute'}}]})
    for plan in (*PLANS[name], form, *more, {'offload': 'activations'}):
        with tessera.apply(model, {**plan, 'version': 1}) as applied:
            assert applied.changes and 'change' in str(applied), applied
            assert same(before, run(model, batch)), f'{name}: other numbers with {plan}'
            assert list(model.state_dict()) == names
            copies = copy.deepcopy(model), pickle.loads(pickle.dumps(model))
            model.zero_grad()
            assert all(same(before, run(each, batch)) for each in copies), f'{name}: a copy of {plan}'
            assert all(parameter.grad is None for parameter in model.parameters()), 'a copy runs modules of the original'
            model.eval()
            with torch.no_grad():
                model(**batch)
            model.train()
        assert inside(model) == as_it_was, f'{name}: undo() of {plan} leaves something'
        assert same(before, run(model, batch))
    assert goes(name, form) or not goes(name), 'a model with a plan waits for the garbage collector'


def goes(name, plan=None):
    """Whether a model is freed with its last reference."""
    model = made(name)
    if plan:
        tessera.apply(model, {**plan, 'version': 1})
    block = weakref.ref(model.get_submodule(tessera._apply.blocks_of(model)[0]))
    gc.collect()
    gc.disable()
    del model
    gc.enable()
    return block() is None


def kernels():
    """Changes that affect numbers only affect rounding: a loss in chunks, with ignored labels, tied and untied weights; parts of a batch."""
    for name in ('gpt2', 'llama'):
        model, batch = made(name), batch_of(name, 'cpu')
        batch = {**batch, 'labels': batch['labels'].clone()}
        batch['labels'][0, 40:] = -100
        before = run(model, batch)
        with tessera.apply(model, {'loss': 'chunked:24', 'gelu': 'fused', 'checkpoint': 'full', 'version': 1}):
            assert near(before, run(model, batch)), name
            assert model(**batch).logits is None and model.eval()(**batch).logits is not None
            model.train()
            assert near(before, run(model, {**batch, 'return_dict': True}))
        with tessera.apply(model, {'micro_batch': 1, 'version': 1}) as applied:
            model.zero_grad()
            loss = 0
            for part, weight in applied.parts(batch, labels='labels'):
                scaled = model(**part).loss * weight
                scaled.backward()
                loss += scaled.detach()
            parts = loss, {key: value.grad.clone() for key, value in model.named_parameters()}
            assert abs(parts[0] - before[0]) < 0.1  # labels are counted before they are shifted
    with tessera.apply(model, {'dtype': 'autocast-bf16', 'version': 1}):
        assert model(**batch).logits.dtype == torch.bfloat16


def optimizers():
    """Other forms of AdamW, in place, and each parameter's step in backward: the same weights."""
    def after(plan, steps=2):
        model, batch = made('gpt2'), batch_of('gpt2', 'cpu')
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
        applied = tessera.apply(model, {**plan, 'version': 1}, optimizer=optimizer)
        for _ in range(steps):
            optimizer.zero_grad()
            model(**batch).loss.backward()
            optimizer.step()
            schedule.step()
        assert len(optimizer.state) == len(list(model.parameters()))
        return model.state_dict(), applied
    known = after({})[0]
    for plan, most in (({'optimizer_in_backward': True}, 0), ({'optimizer': 'adamw-loop'}, 0), ({'optimizer': 'adamw-foreach'}, 1e-6),
                       ({'optimizer': 'adamw-fused'}, 1e-5)):
        found, applied = after(plan)
        assert not applied.left, applied
        assert all((found[name] - known[name]).abs().mean() <= most for name in known), plan
    none = tessera.apply(made('gpt2'), {'optimizer': 'adamw-fused', 'version': 1})
    assert 'pass optimizer=' in str(none)


def undone():
    """undo() in the middle of training: everything is as before, and the optimizer goes on with the state that it has."""
    def trained(plan, more=lambda model, optimizer: None):
        torch.manual_seed(0)
        model, batch = made('gpt2'), batch_of('gpt2', 'cpu')
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, foreach=False)
        if plan is None:
            steps(model, optimizer, batch, 4)
            return model.state_dict()
        as_it_was, groups = inside(model), [{**group, 'params': None} for group in optimizer.param_groups]
        applied = tessera.apply(model, {**plan, 'version': 1}, optimizer=optimizer)
        steps(model, optimizer, batch, 2)
        more(model, optimizer)
        applied.undo()
        assert applied.is_undone and inside(model) == as_it_was, plan
        assert [{**group, 'params': None} for group in optimizer.param_groups][:1] == groups, plan
        assert not any(getattr(p, '_post_accumulate_grad_hooks', None) for p in model.parameters())
        steps(model, optimizer, batch, 2)
        return model.state_dict()

    def load(model, optimizer):
        optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))

    def add(model, optimizer):
        optimizer.add_param_group({'params': [torch.nn.Parameter(torch.ones(3))]})

    known = trained(None)
    for plan, most in (({'optimizer': 'adamw-fused', 'checkpoint': 'full', 'checkpoint_form': 'non-reentrant'}, 1e-4),
                       ({'optimizer': 'adamw-foreach'}, 1e-6), ({'optimizer_in_backward': True, 'gelu': 'fused'}, 1e-4)):
        for more in (lambda model, optimizer: None, load, add, lambda model, optimizer: model.half().float()):
            found = trained(plan, more)
            if more.__name__ != '<lambda>':
                assert all((found[name] - known[name]).abs().mean() <= most for name in known), (plan, more)


def steps(model, optimizer, batch, count):
    for _ in range(count):
        optimizer.zero_grad()
        model(**batch).loss.backward()
        optimizer.step()


def ends():
    """A `with` ends cleanly, whatever happened inside."""
    model = made('gpt2')
    as_it_was = inside(model)
    plan = {'checkpoint': 'full', 'gelu': 'fused', 'version': 1}
    try:
        with tessera.apply(model, plan) as applied:
            raise KeyError('mine')
    except KeyError as error:
        assert error.args == ('mine',) and applied.is_undone and inside(model) == as_it_was
    with tessera.apply(model, plan) as applied:
        applied.undo()
    with tessera.apply(model, plan):
        refused(lambda: tessera.apply(model, plan), 'has a plan already')
        with tessera.apply(made('llama'), {'checkpoint': 'full', 'version': 1}):
            pass
        removed = model.transformer.h[1]
        del model.transformer.h[1]
        model.transformer.h[0].mlp.act = torch.nn.ReLU()
        model.config.use_cache = True
    assert 'forward' not in vars(removed) and type(removed.mlp.act) is not torch.nn.GELU
    assert type(model.transformer.h[0].mlp.act) is torch.nn.ReLU and model.config.use_cache, "the program's own changes stay"
    block = model.transformer.h[0]
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter('always')
        with tessera.apply(model, plan):
            ours = block.forward
            block.forward = lambda *args, **kwargs: ours(*args, **kwargs)
    assert len(found) == 1 and "the forward of 'transformer.h.0' was replaced" in str(found[0].message), found
    with tessera.apply(model, plan):
        pass
    assert ours(torch.zeros(1, 4, 64))[0].shape == (1, 4, 64), 'what was undone runs the module'


# ---- What is refused ----

def refused(function, message):
    try:
        function()
    except tessera.ArgumentError as error:
        assert message in str(error), error
    else:
        raise AssertionError(f'not refused: {message}')


def faults():
    model = made('gpt2')
    for plan, message in (
            ({'checkpoint': ['h.0']}, 'checkpoint[0]: the model has no module of the name or class "h.0"'),
            ({'checkpoint': ['GPT2Block'], 'offload': ['*.mlp']}, 'can have only one of them'),
            ({'checkpoint': ['GPT2Block'], 'offload': 'activations'}, 'offload must be a list of modules'),
            ({'blocks': [{'first': 0, 'last': 2, 'checkpoint': 'full'}]}, 'blocks[0].last is 2, but the model has 2 blocks'),
            ({'checkpoint': 'half'}, 'checkpoint takes none, full, selective'), ({'dtype': 'int8'}, 'dtype takes fp32, bf16')):
        refused(lambda plan=plan: tessera.apply(model, {**plan, 'version': 1}), message)
        assert not any('forward' in vars(module) for module in model.modules()), plan
    with tessera.apply(model, {'checkpoint': 'full', 'version': 1}):
        refused(model.gradient_checkpointing_enable, 'is checkpointed by a plan')
        refused(lambda: tessera.apply(model, {'version': 1}), 'has a plan already')
    applied = tessera.apply(model, {'checkpoint': 'full', 'version': 1})
    block, ours = model.transformer.h[0], model.transformer.h[0].forward
    block.forward = lambda *args, **kwargs: ours(*args, **kwargs)
    refused(applied.undo, "the forward of 'transformer.h.0' was replaced after apply(): undo that replacement first")
    assert not applied.is_undone and not ours.is_active and 'forward' not in vars(model.transformer.h[1]), 'all else is undone'
    block.forward = ours
    applied.undo()
    applied.undo()
    assert applied.is_undone and 'forward' not in vars(block)
    model.gradient_checkpointing_enable()
    refused(lambda: tessera.apply(model, {'version': 1}), 'is checkpointed already')
    model = made('llama')
    model.model.embed_tokens.requires_grad_(False)
    with tessera.apply(model, {'checkpoint': 'full', 'version': 1}):
        refused(lambda: model(**batch_of('llama', 'cpu')), 'would not train it')
    refused(lambda: tessera.apply(torch.compile(made('gpt2')), {'version': 1}), 'is compiled')


def caches():
    """A block that runs twice does not add to a cache twice, even if a call requests a cache; without gradients there is a cache."""
    for name in ('gpt2', 'llama'):
        model, batch = made(name), {**batch_of(name, 'cpu'), 'use_cache': True}
        before = run(model, batch)
        with tessera.apply(model, {'checkpoint': 'full', 'checkpoint_form': 'non-reentrant', 'version': 1}):
            assert same(before, run(model, batch)), name
            with torch.no_grad():
                assert model.eval()(**batch).past_key_values.get_seq_length() == 64, name


def compiled():
    """torch.compile after apply() gives the same results as without apply()."""
    for plan in ({'checkpoint': ['LlamaDecoderLayer']}, {'offload': ['LlamaMLP']}):
        model, batch = made('llama'), batch_of('llama', 'cpu')
        before = run(torch.compile(model, backend='aot_eager'), batch)
        torch._dynamo.reset()
        with tessera.apply(model, {**plan, 'version': 1}):
            after = run(torch.compile(model, backend='aot_eager'), batch)
        torch._dynamo.reset()
        assert near((before[0], {}), (after[0], {})), plan
        assert all(torch.allclose(gradient, after[1][name], atol=1e-6) for name, gradient in before[1].items()), plan


TESTS = {**{f'modules-{name}': (lambda name=name: modules(name)) for name in MODELS},
         **{f'numbers-{name}': (lambda name=name: numbers(name)) for name in MODELS},
         'blocks': blocks, 'fitted': fitted, 'interrupted': interrupted, 'kernels': kernels, 'optimizers': optimizers,
         'undone': undone, 'ends': ends, 'faults': faults, 'caches': caches, 'compiled': compiled}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--check', action='store_true', help='as for the other programs; there is nothing else')
    parser.add_argument('names', nargs='*', metavar='NAME')
    given = parser.parse_args()
    hf.logging.set_verbosity_error()
    failed = 0
    for name in given.names or TESTS:
        try:
            TESTS[name]()
            print(f'ok - {name}', flush=True)
        except Exception:  # the next one may say more
            failed += 1
            traceback.print_exc()
            print(f'not ok - {name}', flush=True)
    return int(failed > 0)


if __name__ == '__main__':
    sys.exit(main())
