#!/usr/bin/env python3
"""differential.py [--check] [--seed N] [--count N] [--show]: random training scripts, traced and counted by PyTorch.

Needs the packages that ./run test torch installs. Each program of scripts.py runs three times on fake tensors: under a ledger that
knows nothing of tessera's tracer, through tessera.trace(step), whose models are made on the CPU, and through tessera.trace(program),
which makes everything on 'cuda'. The ledger adds what each op makes, rounded to 512 bytes, and subtracts it when its storage is freed. The peak that
tessera.simulate() finds must be the ledger's, within 64 bytes, plus what it adds and lists: the workspaces of libraries. Otherwise the
program must be refused, and so must one that PyTorch itself rejects. --show prints the programs.
"""
import argparse
import collections
import contextlib
import gc
import random
import sys
import tempfile
import traceback
import weakref
from pathlib import Path

import torch
from torch._subclasses import fake_tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

import tessera
from scripts import Script
from tessera import _fake_cuda, _script, _trace

STEPS = 3
COUNT = 40  # of ./run test torch
TOLERANCE_BYTES = 64
# What PyTorch says of programs that it does not run on a GPU either.
REJECTED = ('modified by an inplace operation', 'a leaf Variable that requires grad', 'a view of a leaf',
            'use_reentrant=True, torch.utils.checkpoint is incompatible')


# ---- The ledger ----

class Ledger(TorchDispatchMode):
    """Adds what ops make on 'cuda' and subtracts what is freed. `value` is the value of numbers that the program reads from the card."""

    def __init__(self, mode, value):
        super().__init__()
        self.mode, self.value = mode, value
        self.live = self.peak = 0
        self.known = set()  # addresses of storages
        self.sole = None  # how often a gradient is referred to that only autograd holds

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func is torch.ops.aten._local_scalar_dense.default and self.value is not None and isinstance(args[0], FakeTensor):
            return bool(self.value) if args[0].dtype == torch.bool else self.value
        is_sum = func is torch.ops.aten.add.Tensor and self.is_of_autograd(*args)
        if is_sum and self.sole is None:
            self.sole = args[0]._use_count(), torch._C._storage_Use_Count(args[0].untyped_storage()._cdata)
        elif is_sum and self.is_sole(args[0]) and args[0].dtype == args[1].dtype:
            func = torch.ops.aten.add_.Tensor  # what autograd does with tensors of no subclass
        if func.name().startswith('aten::_fused_') and func.name().partition('.')[0].endswith('_'):  # of optimizers
            return None  # makes nothing, and PyTorch cannot fake all of these
        if func is torch.ops.aten.mse_loss.default and len(args) < 3:
            return self.mean_loss(func, args)
        result = self.run(func, args, kwargs or {})
        for leaf in tree_leaves(result):
            self.see(leaf)
        return result

    def run(self, func, args, kwargs):
        """Single numbers on the CPU are real: optimizers read their counts of steps."""
        given = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        if given and 'device' not in kwargs and not any(isinstance(leaf, FakeTensor) or leaf.dim() for leaf in given):
            with fake_tensor.unset_fake_temporarily():
                return func(*args, **kwargs)
        if 'device' in kwargs:
            args = tree_map_only(torch.Tensor, lambda leaf: leaf if isinstance(leaf, FakeTensor) else self.mode.from_tensor(leaf), args)
        return func(*args, **kwargs)

    def mean_loss(self, func, args):
        """On a card the result is allocated for the loss of each element, before what is reduced; fake tensors only have the number."""
        result, each = (self.run(func, (*args, 0), {}) for _ in range(2))
        for made in (result, each):
            self.see(made)
        return result.resize_(())

    def is_of_autograd(self, *args):
        if torch._C._current_autograd_node() is None or not all(isinstance(arg, torch.Tensor) for arg in args):
            return False
        frame = sys._getframe(2)
        while frame is not None and frame.f_code.co_filename.endswith(('/torch/_ops.py', '/_python_dispatch.py', '/_stats.py')):
            frame = frame.f_back
        return frame is None or frame.f_code.co_name == '_engine_run_backward'

    def is_sole(self, tensor):
        count = tensor._use_count(), torch._C._storage_Use_Count(tensor.untyped_storage()._cdata)
        return tensor._base is None and count == self.sole

    def see(self, leaf):
        if not isinstance(leaf, torch.Tensor) or leaf.device.type != 'cuda':
            return
        storage = leaf.untyped_storage()
        size = -(-storage.nbytes() // 512) * 512
        if storage._cdata in self.known or not size:
            return
        self.known.add(storage._cdata)
        weakref.finalize(storage, self.gone, storage._cdata, size).atexit = False
        self.live += size
        self.peak = max(self.peak, self.live)

    def gone(self, key, size):
        self.known.discard(key)
        self.live -= size

    def calibrate(self):
        x = torch.ones(1, device='cuda', requires_grad=True)
        y = x * 2
        (y * 2 + torch.tanh(y)).sum().backward()


@contextlib.contextmanager
def foreach():
    """Optimizers and clipping treat fake tensors as they treat real ones."""
    lists = [sys.modules['torch.optim.optimizer']._foreach_supported_types, sys.modules['torch.utils._foreach_utils']._foreach_supported_types]
    for kinds in lists:
        kinds.append(FakeTensor)
    try:
        yield
    finally:
        for kinds in lists:
            kinds.remove(FakeTensor)


@contextlib.contextmanager
def fake_card(value):
    """A ledger of a pretended card, on which everything is fake."""
    class Mode(FakeTensorMode):
        avoid_device_init = True

        def __deepcopy__(self, memo):
            return self  # copies of tensors are in the same mode

    def step(_scaler, optimizer, _state, *args, **kwargs):  # finds no infinities
        return optimizer.step(*args, **kwargs)

    def swapped(old, new):
        """For model.to(): tensors with weak references cannot be swapped, and PyTorch's converter has some to fake ones."""
        mode.fake_tensor_converter.meta_converter.tensor_memo.clear()
        swap(old, new)

    _fake_cuda.answer_for_driver(torch)
    swap = torch.utils.swap_tensors
    mode = Mode(allow_non_fake_inputs=True)
    state, collects = torch.random.get_rng_state(), gc.isenabled()
    gc.disable()
    try:
        with _fake_cuda.pretend(torch, _fake_cuda.CARDS['a100']), mode, foreach(), \
                torch.autograd.set_multithreading_enabled(False), _fake_cuda.patched(fake_tensor, init_gpu_context=lambda *_: None), \
                _fake_cuda.patched(torch.utils, swap_tensors=swapped), \
                _fake_cuda.patched(torch.amp.grad_scaler.GradScaler, _maybe_opt_step=step), Ledger(mode, value) as ledger:
            ledger.calibrate()
            ledger.live = ledger.peak = 0
            yield ledger
    finally:
        torch.random.set_rng_state(state)
        if collects:
            gc.enable()


def namespace(script):
    out = {}
    exec(compile(script.text, 'script.py', 'exec'), out)
    return out


def counted(script):
    """The peaks of the steps, as the ledger has them."""
    peaks = []
    with fake_card(script.value) as ledger:
        step, *_kept = namespace(script)['build']('cuda')
        loss = None
        for _ in range(STEPS):
            gc.collect()
            ledger.peak = ledger.live
            loss = step()
            peaks.append(ledger.peak)
        del loss
    return peaks


def with_value(script):
    """The same. A program that reads numbers from the card gets one."""
    try:
        return counted(script)
    except fake_tensor.DataDependentOutputException:
        script.value = 1.0
        return counted(script)


# ---- Traces ----

def by_step(script):
    step, models, optimizers = namespace(script)['build']('cpu')
    kept = []

    def run():
        kept[:] = [step()]
    return tessera.trace(run, model=models if len(models) > 1 else models[0], optimizer=optimizers, value=script.value)


def by_program(script):
    def program():
        step, *_kept = namespace(script)['build']('cuda')
        loss = None
        for _ in range(STEPS + 4):
            loss = step()
        del loss
    return tessera.trace(program, value=script.value)


def simulated(document):
    """The peak of tensors. Workspaces are there from the beginning on."""
    with tempfile.TemporaryDirectory() as work:
        path = Path(work) / 'step.graph'
        _trace.write(document, path)
        device = tessera.simulate(str(path), steps=STEPS)['devices'][0]
    spaces = sum(row['bytes'] for row in device['categories'] if row['name'] == 'workspace')
    return device['peak']['allocated_bytes'] - spaces


def outcome(how, script, expected):
    """What became of one trace, and whether it is right."""
    try:
        found = simulated(how(script))
    except tessera.TraceError as error:
        return f'refused: {error}', True
    except Exception as error:
        traceback.print_exc()
        return f'{type(error).__name__}: {error}', expected is None and any(words in str(error) for words in REJECTED)
    if expected is None:
        return f'{found}, but PyTorch rejects the program', False
    return f'{found} instead of {expected}', abs(found - expected) <= TOLERANCE_BYTES


def check(script, seed, show):
    if show:
        print(script.text.replace('\n', '\n# '))
    torch.manual_seed(0)
    random.seed(0)
    try:
        expected = max(with_value(script))
    except RuntimeError as error:
        if not any(words in str(error) for words in REJECTED):
            raise
        expected = None
        if show:
            print(f'# PyTorch: {error}')
    results = [outcome(how, script, expected) for how in (by_step, by_program)]
    is_right = all(right for _, right in results)
    print(f'{"ok" if is_right else "not ok"} - seed {seed}: ' + '; '.join(text.replace('\n', ' ') for text, _ in results), flush=True)
    return is_right, ['invalid' if expected is None else 'refused' if text.startswith('refused') else 'compared' for text, _ in results]


def without_forms():
    """Leave out the other forms of optimizers, which only take time here."""
    for module in (_trace, _script):
        module._optimizers = lambda *_: []


def main(program_of=Script, count=COUNT, about=__doc__):
    """`program_of` makes a program of a seed."""
    parser = argparse.ArgumentParser(description=about.splitlines()[0])
    parser.add_argument('--check', action='store_true', help='accepted for run.py: nothing is written in any case')
    parser.add_argument('--seed', type=int, default=0, help='of the first program')
    parser.add_argument('--count', type=int, default=count, help=f'number of programs (default: {count})')
    parser.add_argument('--show', action='store_true', help='print the programs')
    given = parser.parse_args()
    wrong, counts = 0, collections.Counter()
    without_forms()
    gc.collect()
    gc.freeze()  # so that collections between steps are quick
    for seed in range(given.seed, given.seed + given.count):
        is_right, kinds = check(program_of(seed), seed, given.show)
        wrong += not is_right
        counts.update(kinds)
    print(f'# {given.count} programs, traced in two ways: ' + ', '.join(f'{count} {kind}' for kind, count in sorted(counts.items())))
    return wrong > 0


if __name__ == '__main__':
    sys.exit(main())
