#!/usr/bin/env python3
"""graphs.py [--check] [NAME...]: traces small models into tests/golden/graphs, which tests/golden/test_graphs.py simulates.

Needs the packages that ./run test torch installs: torch (a wheel for CUDA; no GPU, no driver), transformers and tessera's Python package. In
addition to the graphs it writes peaks.json, with the versions that made them, and what PyTorch's own MemTracker counted at the peak of the third
step, with each storage rounded to 512 bytes as the allocator does. With --check nothing is written: the models are traced again and must give
the recorded graphs, programs that cannot be traced must be refused, and a model must be the same afterwards as before.
"""
import argparse
import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
import transformers as hf
from torch.nn.attention.flex_attention import flex_attention

import tessera
from programs import PROGRAMS, VALUE, routing_of

GRAPHS = Path(__file__).resolve().parent.parent / 'golden' / 'graphs'


def short(document):
    """Paths that are the same on every machine."""
    own = str(Path(__file__).resolve().parent)
    resolved = [str(Path(text).resolve()) if os.path.isabs(text) else text for text in document['texts']]
    texts = [re.sub(r'^.*/(?:site|dist)-packages/', '', text).replace(own + '/', '') for text in resolved]
    return {**document, 'texts': texts}


def settled(document):
    """Sort consecutive drops: autocast empties its cache of casts in the order of addresses, which differ from run to run."""
    words = [word if word[0] in ('begin', 'end') else word[:2] for word in document['instructions']]
    starts, runs = [], []
    for index, word in enumerate(words):
        follows = word[0] == 'drop' and index > 0 and words[index - 1][0] == 'drop'
        starts.append(starts[-1] if follows else index)
        if follows:
            runs[-1].append(word)
        else:
            runs.append([word])
    unheld = sorted([slot, starts[place - 1] if place and words[place - 1][0] == 'drop' else place]
                    for slot, place in document.get('unheld', []))
    return {'instructions': [word for run in runs for word in sorted(run)], 'unheld': unheld}


def without_lines(document):
    """The graph without its stacks, because lines of this folder may move, and without what ops compute, which some recorded graphs lack.
    Modules and reasons have texts instead of indices of texts."""
    texts = document['texts']
    modules = [[texts[name], texts[kind], *rest] for name, kind, *rest in document.get('modules', [])]
    effects = [[call, slots, texts[why] if why >= 0 else ''] for call, slots, why in document.get('effects', [])]
    return {**document, 'effects': effects, 'texts': 0, 'frames': 0, 'stacks': 0, 'work': 0, **settled(document), 'modules': modules}


def recorded(name):
    return without_lines(json.loads((GRAPHS / f'{name}.graph').read_text(encoding='utf-8')))


def program(name):
    make, optimizer_of, step_of = PROGRAMS[name]
    torch.manual_seed(0)
    model = make().train()
    optimizer = optimizer_of(model)
    return model, optimizer, step_of(model, optimizer)


@contextlib.contextmanager
def hooks_of_trained():
    """MemTracker registers hooks on every parameter, which PyTorch refuses for parameters that are not trained."""
    names = ('register_hook', 'register_post_accumulate_grad_hook')
    originals = {name: getattr(torch.Tensor, name) for name in names}
    other = torch.ones(1, requires_grad=True)
    for name, original in originals.items():
        setattr(torch.Tensor, name, lambda tensor, hook, original=original: original(
            tensor if tensor.requires_grad else other, hook))
    try:
        yield
    finally:
        for name, original in originals.items():
            setattr(torch.Tensor, name, original)


def counted(name):
    """The peak of the third step, as MemTracker counts it. The tracker keeps references, so steps after that differ."""
    from torch.distributed._tools.mem_tracker import MemTracker
    from torch.utils._python_dispatch import _get_current_dispatch_mode_stack
    model, optimizer, step = program(name)
    calls, found = [], []

    def tracked():
        calls.append(0)
        if len(calls) < 3:
            return step()
        tracker = MemTracker()
        tracker.track_external(model, optimizer, *getattr(step, 'kept', list)())
        # The mode that adds gradients in place, as PyTorch does with real tensors, is on top of it once more; and autograd saves tensors
        # themselves, not twins.
        adding = _get_current_dispatch_mode_stack()[-1]
        themselves = torch.autograd.graph.saved_tensors_hooks(lambda tensor: tensor, lambda tensor: tensor)
        with hooks_of_trained(), tracker, adding, themselves:
            step()
        found.extend(sizes['Total'] for device, sizes in tracker.get_tracker_snapshot('peak').items()
                     if device.type == 'cuda')
    try:
        tessera.trace(tracked, model=model, optimizer=optimizer, value=VALUE, routing=routing_of(name))
    except tessera.TraceError:
        pass
    return found[0]


def peak(document):
    """The peak of the third step, from the graph, with each storage rounded to 512 bytes."""
    sizes = [-(-size // 512) * 512 for size in document['slots']['bytes']]
    live, top = sum(sizes[:document['static']]), 0
    for step in range(3):
        top = live
        for word, subject, *_ in document['instructions']:
            if word == 'new' or (word == 'once' and step == 0):
                live += sizes[subject]
            elif word == 'drop' or (word == 'drop_previous' and step):
                live -= sizes[subject]
            top = max(top, live)
    return top


# ---- What is refused, and what stays ----

def refused(step, model, optimizer, expected):
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    kept = [id(tensor) for tensor in (*model.parameters(), *model.buffers())]
    groups = [dict(group) for group in optimizer.param_groups]
    attributes = set(optimizer.__dict__)
    random = torch.random.get_rng_state()
    message = 'nothing'
    try:
        tessera.trace(step, model=model, optimizer=optimizer)
    except tessera.TraceError as error:
        message = str(error)
    yield f'{expected!r} instead of {message!r}', expected not in message
    after = model.state_dict()
    yield 'the model has changed', not all(torch.equal(after[name], tensor) for name, tensor in before.items())
    yield 'other tensors', kept != [id(tensor) for tensor in (*model.parameters(), *model.buffers())]
    yield 'hooks stay', bool(model._forward_hooks or model._forward_pre_hooks or optimizer._optimizer_step_pre_hooks)
    same = all(list(map(id, old['params'])) == list(map(id, new['params'])) and old['lr'] == new['lr']
               for old, new in zip(groups, optimizer.param_groups))
    yield 'the optimizer has changed', not same or attributes != set(optimizer.__dict__) or bool(optimizer.state)
    yield 'random numbers have moved', not torch.equal(random, torch.random.get_rng_state())
    yield 'CUDA is said to be there', torch.cuda.device_count() > 0 and not torch.cuda.is_available()


def faults():
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.BatchNorm1d(8))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    kept, sizes, recorded = [], iter(range(2, 100)), torch.compile(model, mode='reduce-overhead')

    def rows(count, device='cuda'):
        return torch.randn(count, 8, device=device)

    def run(count=4, device='cuda'):
        optimizer.zero_grad()
        loss = model(rows(count, device)).sum()
        loss.backward()
        optimizer.step()
        return loss

    for step, expected in (
            (lambda: run().item(), 'graphs.py:'), (lambda: run().item(), 'needs the value of a tensor'),
            (lambda: run(device='cpu'), "mixes tensors on 'cpu'"), (lambda: kept.append(run()), 'cannot be traced: each step keeps a tensor of 4 bytes for good'),
            (lambda: kept.append(run()), 'keep loss.detach().cpu(), or loss.item()'),
            (lambda: run(next(sizes)), 'differ'), (lambda: recorded(rows(4)), 'CUDA graphs'),
            (lambda: torch.nn.LSTM(8, 8, device='cuda')(rows(4)), 'calls lstm of cuDNN'),
            (lambda: torch.func.grad(torch.sum)(rows(4)), 'torch.func'), (run, 'nothing'),
            (lambda: recorded(rows(4)), 'graphs.py:'),
            (lambda: torch.nn.functional.ctc_loss(rows(5), torch.ones(2, dtype=torch.long, device='cuda'), (5,), (2,)), '_use_cudnn_ctc_loss'),
            (lambda: flex_attention(*[rows(128)[None, None]] * 3), 'scaled_dot_product_attention with a mask'),
            (lambda: flex_attention(*[rows(128)[None, None]] * 3), 'graphs.py:'),
            (lambda: None, "allocates nothing on 'cuda'")):
        yield from refused(step, model, optimizer, expected)
    yield from supported()
    run_really = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    model(torch.randn(4, 8)).sum().backward()
    run_really.step()
    message = ''
    try:
        tessera.trace(run, model=model, optimizer=run_really)
    except tessera.TraceError as error:
        message = str(error)
    yield message, 'has made steps already' not in message
    yield 'the model is half fake', any(parameter.device.type != 'cpu' for parameter in model.parameters())


def compiled():
    """Modules of torch.compile or after compile(), and compiled functions, are traced as if they were not compiled, and the graph contains
    that; but not if the program asks to run them as they are."""
    expected = None
    for what in ('not', 'all', 'part', 'wrapped', 'function'):
        model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.GELU())
        called = torch.compile(model, fullgraph=True) if what == 'wrapped' else model
        if what in ('all', 'part'):
            (model if what == 'all' else model[0]).compile()
        loss = torch.compile(lambda x: x.sin().cos().sum(), dynamic=True) if what == 'function' else lambda x: x.sin().cos().sum()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        def step(called=called, loss=loss, optimizer=optimizer):
            optimizer.zero_grad()
            loss(called(torch.randn(4, 8, device='cuda'))).backward()
            optimizer.step()
        found = tessera.trace(step, model=model, optimizer=optimizer)
        expected = expected or found['slots']
        yield f'compiled, {what}: {found["slots"]}', found['slots'] != expected or found.get('compiled', False) != (what != 'not')
        with torch.compiler.set_stance('force_eager'):
            yield f'compiled, {what}, as it is', 'compiled' in tessera.trace(step, model=model, optimizer=optimizer)


def supported():
    """torch.vmap of modules, and what PyTorch cannot fake: weight_norm's backward, and products of halves in fp32."""
    mapped = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Tanh())
    optimizer = torch.optim.SGD(mapped.parameters())

    def step():
        optimizer.zero_grad()
        between = mapped[0](torch.randn(4, 3, 8, device='cuda'))
        torch.vmap(mapped[1])(between).sum().backward()
        optimizer.step()
    found = tessera.trace(step, model=mapped, optimizer=optimizer)
    yield 'storages of vmap', sizes(found, 'activation').count(4 * 3 * 8 * 4) != 2 or sizes(found, 'input') != [4 * 3 * 8 * 4]
    normed = torch.nn.utils.parametrizations.weight_norm(torch.nn.Linear(8, 6, bias=False))
    optimizer = torch.optim.SGD(normed.parameters())

    def normed_step():
        optimizer.zero_grad()
        normed(torch.randn(4, 8, device='cuda')).sum().backward()
        optimizer.step()
    found = tessera.trace(normed_step, model=normed, optimizer=optimizer)
    yield 'gradients of weight_norm', sorted(sizes(found, 'gradient')) != [6 * 4, 6 * 8 * 4]

    def products():
        halves = torch.randn(4, 8, dtype=torch.bfloat16, device='cuda'), torch.randn(8, 6, dtype=torch.bfloat16, device='cuda')
        several, total = [half[None] for half in halves], torch.zeros(4, 6, device='cuda')
        with torch.no_grad():
            made = [torch.mm(*halves, out_dtype=torch.float32), torch.bmm(*several, out_dtype=torch.float32),
                    torch.addmm(total, *halves, out_dtype=torch.float32), torch.baddbmm(total[None], *several, out_dtype=torch.float32)]
            torch.addmm(total, *halves, out_dtype=torch.float32, out=total)
        (normed(torch.randn(4, 8, device='cuda')) + sum(product.sum() for product in made)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    found = tessera.trace(products, model=normed, optimizer=optimizer)
    ops = {found['texts'][found['frames'][found['stacks'][word[2]][0]][0]] for word in found['instructions']
           if word[0] == 'new' and found['slots']['bytes'][word[1]] == 4 * 6 * 4}
    yield f'products in fp32: {sorted(ops)}', not ops.issuperset(f'at::_ops::{op}_dtype::call' for op in ('mm', 'bmm', 'addmm', 'baddbmm'))


def same_objects():
    """What the program has made of the parameters before the trace still refers to the model: lists, and hooks, which run in each call. A
    step that frees gradients through a list takes what one takes that calls zero_grad()."""
    def traced(zero, hook=None):
        model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.Tanh(), torch.nn.Linear(256, 64))
        parameters, calls = list(model.parameters()), []
        optimizer = torch.optim.AdamW(parameters)
        for parameter in parameters if hook else ():
            getattr(parameter, hook)(lambda _: calls.append(0))

        def step():
            zero(optimizer, parameters)
            model(torch.randn(4, 64, device='cuda')).sum().backward()
            torch.nn.utils.clip_grad_norm_(parameters, 1.0)
            optimizer.step()
        return peak(tessera.trace(step, model=model, optimizer=optimizer)), calls

    def by_hand(_optimizer, parameters):
        for parameter in parameters:
            parameter.grad = None
    usual, kept = (traced(lambda optimizer, _, to_none=to_none: optimizer.zero_grad(to_none))[0] for to_none in (True, False))
    yield 'p.grad = None', traced(by_hand)[0] != usual
    never, calls = traced(lambda *_: None, 'register_hook')
    yield f'without zero_grad {never} instead of {kept}', never != kept
    yield f'{len(calls)} calls of register_hook', len(calls) != 3 * 4
    calls = traced(by_hand, 'register_post_accumulate_grad_hook')[1]
    yield f'{len(calls)} calls of register_post_accumulate_grad_hook', len(calls) != 3 * 4


def made_before():
    """What exists before the trace and would be something else on a machine with a GPU is refused."""
    model, other = torch.nn.Linear(8, 8), torch.nn.Linear(8, 8)
    average = torch.optim.swa_utils.AveragedModel(model)
    scaler, region = torch.amp.GradScaler('cuda'), torch.autocast('cuda', dtype=torch.bfloat16)
    optimizer = torch.optim.SGD(model.parameters())

    def step(between=lambda: None, around=contextlib.nullcontext(), scale=lambda loss: loss):
        optimizer.zero_grad()
        with around:
            loss = model(torch.randn(4, 8, device='cuda')).sum()
        scale(loss).backward()
        optimizer.step()
        between()
    for run, expected in ((lambda: step(lambda: average.update_parameters(model)), 'model=[model, copy]'), (lambda: step(scale=scaler.scale), 'GradScaler'),
                          (lambda: step(around=region), 'an autocast region'), (step, 'nothing')):
        yield from refused(run, model, optimizer, expected)
    both = tessera.trace(lambda: step(lambda: average.update_parameters(model)), model=[model, average], optimizer=optimizer, value=1.0)
    yield 'the average is missing', sizes(both, 'parameter').count(8 * 8 * 4) != 2
    yield 'the average has counted', int(average.n_averaged) != 0
    held = other(torch.randn(2, 8))
    yield from refused(lambda: None, other, torch.optim.SGD(other.parameters()), 'autograd graph')
    del held


def values():
    """What PyTorch rejects, and what depends on values."""
    model = torch.nn.Linear(64, 64)
    optimizer, closures = torch.optim.SGD(model.parameters()), torch.optim.LBFGS(model.parameters())

    def in_place():
        made = model(torch.randn(4, 64, device='cuda')).sigmoid()
        made.mul_(2)
        made.sum().backward()

    def closure():
        loss = model(torch.randn(4, 64, device='cuda')).sum()
        loss.backward()
        return loss

    def attend():
        heads = model(torch.randn(4, 16, 64, device='cuda')).view(4, 16, 4, 16).transpose(1, 2).bfloat16()
        with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.CUDNN_ATTENTION):
            torch.nn.functional.scaled_dot_product_attention(heads, heads, heads).sum().backward()
    yield from refused(in_place, model, optimizer, 'modified by an inplace operation')
    yield from refused(lambda: closures.step(closure), model, closures, 'LBFGS')
    yield from refused(attend, model, optimizer, 'enable_cudnn_sdp(False)')


def of_devices(work):
    """What a driver does on a GPU: pinned memory, streams, states of random numbers; and torch.save(), which must not write."""
    model, path = torch.nn.GRU(8, 8), Path(work) / 'weights.pt'
    loader = torch.utils.data.DataLoader(torch.randn(16, 8), batch_size=4, pin_memory=True)
    optimizer = torch.optim.SGD(model.parameters())

    def step():
        generator = torch.Generator('cuda').manual_seed(1)
        generator.set_state(generator.get_state())
        torch.cuda.set_rng_state(torch.cuda.get_rng_state())
        torch.cuda.manual_seed(1)
        batch = torch.randn(4, 8, device='cuda', generator=generator) + next(iter(loader)).to('cuda', non_blocking=True)
        batch = batch + torch.ones(8).pin_memory().to('cuda') + torch.empty(8, pin_memory=True).cuda() + torch.tensor(1.0, pin_memory=True).cuda()
        batch.record_stream(torch.cuda.Stream())
        optimizer.zero_grad()
        model(batch[:, None])[0].sum().backward()
        optimizer.step()
        torch.save(model.state_dict(), path)
    with torch.backends.cudnn.flags(enabled=False):
        found = tessera.trace(step, model=model, optimizer=optimizer)
    yield 'what the cells keep', sizes(found, 'activation').count(5 * 8 * 4) != 4
    yield 'torch.save() wrote fake tensors', path.exists()


# ---- A script ----

def script(work):
    """python -m tessera.trace of a script gives the same memory as its step. Its log needs a value. A script that ends too early
    is refused, and a compiled one traced."""
    path, out = Path(__file__).resolve().parent / 'train_script.py', Path(work) / 'script.graph'

    def run(*words):
        done = subprocess.run([sys.executable, '-m', 'tessera.trace', '-o', out, *words], capture_output=True, text=True,
                              check=False)
        return done.returncode, done.stderr
    status, message = run(path)
    yield f'the script: {message}', status
    if not status:
        found = json.loads(out.read_text(encoding='utf-8'))
        known = json.loads((GRAPHS / 'plain-autocast.graph').read_text(encoding='utf-8'))
        for category in ('parameter', 'gradient', 'optimizer_state'):
            yield f'{category} of the script', sorted(sizes(found, category)) != sorted(sizes(known, category))
        yield f'a peak of {peak(found)}', abs(peak(found) - peak(known)) > 4 * 2 * 64 * 8  # batches that are still there
    status, message = run(path, 'log')
    yield f'a log: {message}', not status or 'train_script.py:' not in message or '--value 1' not in message
    status, message = run('--value', '0', path, 'log')
    yield f'a log with a value: {message}', status
    status, message = run('--after', '100', path)
    yield f'too few steps: {message}', not status or 'ended after 32 steps' not in message
    status, message = run(path, 'compile')
    yield f'a compiled script: {message}', status or json.loads(out.read_text(encoding='utf-8')).get('compiled') is not True
    yield from on_host(run, Path(work) / 'on_host.py')
    graphed = Path(work) / 'graphed.py'
    graphed.write_text('import torch\n@torch.compile(mode="reduce-overhead")\ndef f(x):\n    return x.sin()\nf(torch.ones(2, device="cuda"))\n',
                       encoding='utf-8')
    status, message = run(graphed)
    yield f'CUDA graphs: {message}', not status or 'graphed.py:5' not in message
    graphed.write_text(graphed.read_text(encoding='utf-8').replace('mode="reduce-overhead"', 'disable=True'), encoding='utf-8')
    status, message = run(graphed)
    yield f'a function that is not compiled: {message}', not status or 'without a step of an optimizer' not in message


def on_host(run, path):
    """A script whose model is on the CPU is refused with the line that puts it there, before it reads a number and with one; a part of a
    model may be there."""
    loop = ('\noptimizer = torch.optim.AdamW(model.parameters())\nfor _ in range(5):\n    loss = model(torch.ones(2, 8, device=DEVICE)).sum()\n'
            '    print(loss.item())\n    loss.backward()\n    optimizer.step()\n    optimizer.zero_grad()\n')
    moved = 'import torch\nDEVICE = "cpu"\nmodel = torch.nn.Linear(8, 8)\nmodel.to(DEVICE)'
    made = 'import torch\nDEVICE = "cpu"\nmodel = torch.nn.Linear(8, 8)'
    for text, expected in (moved, 'on_host.py:4 puts the model on the cpu'), (made, 'on_host.py:3 makes the model on the cpu'):
        for words in (), ('--value', '1'):
            path.write_text(text + loop, encoding='utf-8')
            status, message = run(*words, path)
            yield f'a model on the CPU: {message}', not status or expected not in message or len(message.splitlines()) != 1
    parts = ('import torch\nDEVICE = "cuda"\nclass Parts(torch.nn.Module):\n    def __init__(self):\n        super().__init__()\n'
             '        self.first, self.last = torch.nn.Linear(8, 8, device=DEVICE), torch.nn.Linear(8, 8)\n'
             '    def forward(self, x):\n        return self.last(self.first(x).cpu())\nmodel = Parts()')
    path.write_text(parts + loop, encoding='utf-8')
    status, message = run('--value', '1', path)
    yield f'a part on the CPU: {message}', status


def sizes(document, category):
    slots = document['slots']
    return [size for size, name in zip(slots['bytes'], slots['category']) if name == category]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--check', action='store_true')
    parser.add_argument('names', nargs='*', metavar='NAME')
    given = parser.parse_args()
    at = GRAPHS / 'peaks.json'
    known = json.loads(at.read_text(encoding='utf-8')) if at.exists() else {}
    wrong = 0
    for name in given.names or PROGRAMS:
        model, optimizer, step = program(name)
        document = short(tessera.trace(step, model=model, optimizer=optimizer, value=VALUE, routing=routing_of(name)))
        found = {'torch': torch.__version__, 'transformers': hf.__version__, 'peak_bytes': counted(name)}
        is_right = peak(document) == found['peak_bytes'] and (
            not given.check or (known.get(name) == found and recorded(name) == without_lines(document)))
        wrong += not is_right
        print(f'{"ok" if is_right else "not ok"} - {name}: {peak(document)}, {found["peak_bytes"]}', flush=True)
        known[name] = found
        if not given.check:
            (GRAPHS / f'{name}.graph').write_text(json.dumps(document, separators=(',', ':')) + '\n', encoding='utf-8')
    with tempfile.TemporaryDirectory() as work:
        for what, is_wrong in (*faults(), *compiled(), *same_objects(), *made_before(), *values(), *of_devices(work), *script(work)) if given.check else ():
            wrong += bool(is_wrong)
            if is_wrong:
                print(f'not ok - {what}')
    if not given.check:
        at.write_text(json.dumps(known, indent=1, sort_keys=True) + '\n', encoding='utf-8')
    return wrong > 0


if __name__ == '__main__':
    sys.exit(main())
