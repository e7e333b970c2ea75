#!/usr/bin/env python3
"""states.py [--check] [NAME..]: modules whose forward changes more than its result, under a plan.

Each block here changes a state in forward: buffers, attributes, counters of Python, generators of random numbers. With a checkpoint around
it, ten steps have the losses, gradients, weights, states and random numbers of an untouched copy, to the bit: if the plan names it, in
both forms of checkpoints, and after fit(), which says which modules it leaves out. Then undo(), and training goes on the same.
Needs the packages that ./run test torch installs. Nothing is written.
"""
import argparse
import collections
import gc
import itertools
import random
import sys
import traceback

import numpy as np
import torch
from torch import nn

import tessera

WIDTH = 16
SHARED = collections.Counter()
SHARED_RANDOM = random.Random(5)


class Plain(nn.Module):
    """The part that all have."""

    def __init__(self):
        super().__init__()
        self.inner, self.outer = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x):
        return x + self.outer(torch.tanh(self.inner(x)))


class Norm(Plain):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(WIDTH)

    def forward(self, x):
        return super().forward(self.norm(x))


class Functional(Plain):
    """Statistics that no counter accompanies."""

    def __init__(self):
        super().__init__()
        self.register_buffer('mean', torch.zeros(WIDTH))
        self.register_buffer('var', torch.ones(WIDTH))

    def forward(self, x):
        return super().forward(nn.functional.batch_norm(x, self.mean, self.var, training=self.training))


class Instance(Plain):
    def __init__(self):
        super().__init__()
        self.norm = nn.InstanceNorm1d(WIDTH, track_running_stats=True, affine=True)

    def forward(self, x):
        return super().forward(self.norm(x.t().unsqueeze(0)).squeeze(0).t())


class Frozen(Norm):
    """One of two norms is in evaluation."""

    def __init__(self):
        super().__init__()
        self.other = nn.BatchNorm1d(WIDTH)

    def forward(self, x):
        return super().forward(self.other(x))

    def train(self, mode=True):
        super().train(mode)
        self.other.eval()
        return self


class Spectral(Plain):
    """A power iteration, whose result depends on the state."""

    def __init__(self):
        super().__init__()
        self.inner = nn.utils.parametrizations.spectral_norm(self.inner)


class OldSpectral(Plain):
    def __init__(self):
        super().__init__()
        self.inner = nn.utils.spectral_norm(self.inner)


class Weight(Plain):
    def __init__(self):
        super().__init__()
        self.inner = nn.utils.parametrizations.weight_norm(self.inner)


class OldWeight(Plain):
    def __init__(self):
        super().__init__()
        self.inner = nn.utils.weight_norm(self.inner)


class Average(Plain):
    """An average in place, which the result depends on."""

    def __init__(self):
        super().__init__()
        self.register_buffer('ema', torch.ones(WIDTH))

    def forward(self, x):
        self.ema.mul_(0.9).add_(x.detach().abs().mean(0), alpha=0.1)
        return super().forward(x / self.ema)


class Replaced(Plain):
    """An average that is another tensor after each step, and an attribute."""

    def __init__(self):
        super().__init__()
        self.register_buffer('ema', torch.ones(WIDTH))
        self.last = None

    def forward(self, x):
        self.ema = 0.9 * self.ema + 0.1 * x.detach().abs().mean(0)
        self.last = x.detach()
        return super().forward(x / self.ema)


class Attribute(Plain):
    """A tensor that is no buffer."""

    def __init__(self):
        super().__init__()
        self.scale = None

    def forward(self, x):
        if self.scale is None:
            self.scale = torch.ones(WIDTH, device=x.device)
        self.scale.mul_(0.99)
        return super().forward(x * self.scale)


class Cached(Norm):
    """A table that the first call makes, and a buffer that nothing changes."""

    def __init__(self):
        super().__init__()
        self.table = None
        self.register_buffer('large', torch.ones(300, 1000))

    def forward(self, x):
        if self.table is None:
            self.table = torch.linspace(0.5, 1, WIDTH, device=x.device)
        return super().forward(x * self.table)


class Counters(Plain):
    """Counters of many kinds, on which the result depends."""

    made = 0
    known = collections.Counter()

    def __init__(self):
        super().__init__()
        self.calls, self.log, self.by = 0, [], {'forward': 0}
        self.state = type('State', (), {})()
        self.state.calls, self.state.values = 0, np.zeros(2)
        self.seen = set()
        self.recent = collections.deque(maxlen=3)

    def forward(self, x):
        self.calls += 1
        self.log.append(self.calls)
        self.by['forward'] += 1
        self.state.calls += 2
        self.state.values += 1
        self.seen.add(self.calls)
        self.recent.append(self.calls)
        type(self).made += 1
        self.known['calls'] += 1
        SHARED['calls'] += 1
        return super().forward(x) * (1 + 0.001 * (self.calls + self.by['forward'] + self.state.calls + float(self.state.values.sum()) + len(self.log)))


class Hooked(Plain):
    """A hook with variables of its own."""

    def __init__(self):
        super().__init__()
        calls, log = 0, []

        def hook(module, args, out):
            nonlocal calls
            calls += 1
            log.append(calls)
            return out * (1 + 0.001 * calls)
        self.inner.register_forward_hook(hook)
        self.read = lambda: (calls, list(log))


class Arguments(Plain):
    """A list that the caller passes."""

    def forward(self, x, losses=None):
        x = super().forward(x)
        if losses is not None:
            losses.append(x.detach().abs().mean())
        return x


class Auxiliary(Plain):
    """A loss that the model reads from an attribute."""

    def forward(self, x):
        self.auxiliary = 0.01 * x.square().mean()
        return super().forward(x)


class Random(Plain):
    """Random numbers of every generator."""

    def __init__(self):
        super().__init__()
        self.own, self.rng, self.old = random.Random(3), np.random.default_rng(3), np.random.RandomState(3)
        self.torch = torch.Generator().manual_seed(3)
        self.drop = nn.Dropout(0.2)

    def forward(self, x):
        scale = random.random() + np.random.rand() + self.own.random() + self.rng.random() + self.old.rand() + SHARED_RANDOM.random()
        drawn = torch.rand(WIDTH) + torch.rand(WIDTH, generator=self.torch)
        return super().forward(self.drop(x * (scale / 3) * drawn.to(x.device)))


class Depth(Plain):
    """Stochastic depth, as timm has it."""

    def forward(self, x):
        mask = x.new_empty(x.shape[0], 1).bernoulli_(0.8) / 0.8
        return x + mask * (super().forward(x) - x)


class Router(Plain):
    """A router with counters and a bias that balances the load."""

    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(WIDTH, 4)
        self.register_buffer('load', torch.zeros(4, dtype=torch.long))
        self.register_buffer('bias', torch.zeros(4))

    def forward(self, x):
        scores = self.gate(x) + self.bias
        chosen = torch.nn.functional.one_hot(scores.argmax(-1), 4) if not x.is_cuda else torch.zeros_like(scores, dtype=torch.long)
        with torch.no_grad():
            self.load += chosen.sum(0)
            self.bias += 0.01 * torch.sign(self.load.float().mean() - self.load)
        return x + super().forward(x) * (scores.softmax(-1) * chosen).sum(-1, keepdim=True) / 8


class InPlace(Plain):
    """The argument itself is changed, first and last."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.SiLU(inplace=True), nn.ReLU(inplace=True)

    def forward(self, x):
        return super().forward(self.last(self.outer(self.inner(self.first(x * 2)))))


class Changed(Plain):
    """The caller changes the argument afterwards."""

    def forward(self, x):
        return super().forward(x + 1)


class Renormed(Plain):
    """A parameter that forward writes."""

    def forward(self, x):
        with torch.no_grad():
            self.inner.weight.div_(self.inner.weight.norm().clamp(min=1))
        return super().forward(x)


class Often(Plain):
    """A state that changes in some calls only."""

    def __init__(self):
        super().__init__()
        self.calls = 0
        self.register_buffer('seen', torch.zeros(WIDTH))

    def forward(self, x):
        self.calls += 1
        if self.calls % 4 == 0:
            self.seen += x.detach().mean(0)
        return super().forward(x)


BLOCKS = [Plain, Norm, Functional, Instance, Frozen, Spectral, OldSpectral, Weight, OldWeight, Average, Replaced, Attribute, Cached, Counters, Hooked, Arguments,
          Auxiliary, Random, Depth, Router, InPlace, Changed, Renormed, Often]
# Not with a reentrant checkpoint, which has no gradients for what leaves a module by an attribute, and adds gradients of Instance in another
# order. Not with a plan that names the block, because PyTorch refuses an argument that is changed later.
NOT_REENTRANT = {Auxiliary, Instance}
NOT_NAMED = {Changed}


class Model(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.kind = kind
        self.first = nn.Linear(WIDTH, WIDTH)
        self.blocks = nn.ModuleList(kind() for _ in range(4))
        self.last = nn.Linear(WIDTH, 4)

    def forward(self, x):
        losses, total = [], 0
        x = self.first(x)
        for block in self.blocks:
            if self.kind is Arguments:
                x = block(x, losses=losses)
            elif self.kind is Changed:
                given = x * 1
                x = block(given)
                given.mul_(2)
                x = x / 2 + given / 4
            else:
                x = block(x)
            if self.kind is Auxiliary:
                total = total + block.auxiliary
        self.count = len(losses)
        return self.last(x), total, losses


def made(kind):
    torch.manual_seed(0)
    Counters.made = 0
    for counter in (Counters.known, SHARED):
        counter.clear()
    SHARED_RANDOM.seed(5)
    model = Model(kind).train()
    return model, torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)


def step_of(model, optimizer, device='cpu', rows=24):
    def step():
        x = torch.randn(rows, WIDTH, device=device)
        optimizer.zero_grad()
        out, more, losses = model(x)
        loss = out.square().mean() + more
        loss.backward()
        optimizer.step()
        step.count = len(losses)
        return loss.detach()
    return step


def plain(value):
    """A value that can be compared: Python's, without what only the object is."""
    if isinstance(value, torch.Tensor):
        return (tuple(value.shape), value.detach().double().flatten().tolist())
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, torch.Generator):
        return value.get_state().tolist()
    if isinstance(value, random.Random):
        return value.getstate()
    if isinstance(value, np.random.RandomState):
        return repr(value.get_state(legacy=False))
    if isinstance(value, np.random.Generator):
        return repr(value.bit_generator.state)
    if isinstance(value, (list, tuple, collections.deque)):
        return [plain(one) for one in value]
    if isinstance(value, dict):
        return {key: plain(one) for key, one in value.items()}
    if type(value).__name__ == 'State':
        return plain(vars(value))
    return value if isinstance(value, (int, float, str, set, type(None))) else type(value).__name__


def everything(model):
    """The states of a model, and of all generators."""
    own = {name: {key: plain(value) for key, value in vars(module).items() if not key.startswith('_') and key != 'forward'}
           for name, module in model.named_modules()}
    hooks = {name: module.read() for name, module in model.named_modules() if isinstance(module, Hooked)}
    return {'own': own, 'hooks': hooks, 'tensors': {key: plain(value) for key, value in model.state_dict().items()},
            'buffers': {key: plain(value) for key, value in model.named_buffers()},
            'gradients': {key: plain(value.grad) for key, value in model.named_parameters() if value.grad is not None},
            'classes': (Counters.made, dict(Counters.known), dict(SHARED), SHARED_RANDOM.getstate()),
            'random': (random.getstate(), repr(np.random.get_state()), torch.get_rng_state().tolist())}


def seed():
    random.seed(1)
    np.random.seed(1)
    torch.manual_seed(1)


def trained(kind, around, count=10):
    """The losses of `count` steps, and all states after them; `around` changes model and optimizer before the first step."""
    model, optimizer = made(kind)
    applied = around(model, optimizer)
    seed()
    step = step_of(model, optimizer)
    losses = [step().item() for _ in range(count)]
    state = everything(model)
    if applied:
        applied.undo()
        assert not any('forward' in vars(module) for module in model.modules())
    more = [step().item() for _ in range(3)]
    return losses, state, more, everything(model)


def compare(known, found, what):
    for name, first, second in zip(('losses', 'state', 'losses after undo()', 'state after undo()'), known, found):
        if first == second:
            continue
        if isinstance(first, dict):
            first, second = next((f'{name}: {key} {first[key]}'[:300], f'{second[key]}'[:300]) for key in first if first[key] != second[key])
        raise AssertionError(f'{what}: other {name}: {second} instead of {first}')


def named(kind):
    """A plan that names the block, in both forms, and parts of it."""
    if kind is Renormed:
        return refused()
    known = trained(kind, lambda *_: None)
    forms = itertools.product(('non-reentrant', 'reentrant'), (['blocks.*'], ['blocks.*.inner'], ['blocks.1', 'blocks.2'], ['Model']))
    for form, modules in forms:
        if kind in NOT_NAMED or (form == 'reentrant' and (kind in NOT_REENTRANT or modules == ['Model'])):
            continue
        plan = {'checkpoint': modules, 'checkpoint_form': form, 'version': 1}
        compare(known, trained(kind, lambda model, optimizer, plan=plan: tessera.apply(model, plan)), f'{kind.__name__} with {plan}')
    away = {'offload': ['blocks.*'], 'version': 1}
    compare(known, trained(kind, lambda model, optimizer: tessera.apply(model, away)), f'{kind.__name__} with {away}')


def refused():
    """A parameter is not a state."""
    for form in ('reentrant', 'non-reentrant'):
        try:
            trained(Renormed, lambda model, optimizer, form=form: tessera.apply(model, {'checkpoint': ['Renormed'], 'checkpoint_form': form, 'version': 1}))
        except tessera.ArgumentError as error:
            assert 'changes one of its parameters in forward' in str(error), error
        else:
            raise AssertionError('not refused')


KEEPS = 'keeps tensors that it computes, in an attribute, a list or a cache'
# Why fit() leaves out blocks of these.
LEFT = {Replaced: KEEPS, Arguments: KEEPS, Renormed: 'changes a parameter in forward',
        InPlace: 'changes a tensor in place that is not its own', Changed: 'is called with a tensor that is changed in place later'}
ROWS = 200000  # of the step that is fitted, which has no memory


def fitted(kind):
    """fit() changes no state, its plan has the predicted peaks when the step is traced again, and training stays the same."""
    def around(model, optimizer):
        seed()
        before, step = everything(model), step_of(model, optimizer, 'cuda', ROWS)
        unchanged = tessera.fit(model, optimizer, step, '1TiB', value=0.5)
        unchanged.undo()
        budget = int(unchanged.before.reserved_bytes * 0.75)
        found = tessera.fit(model, optimizer, step, budget, value=0.5)
        with tessera._fit._unchanged(model, optimizer, step):
            run = tessera.simulate(tessera.trace(step, model=model, optimizer=optimizer, value=0.5), steps=3)
        assert (run.peak.allocated_bytes, run.peak_reserved_bytes) == tuple(found.after), f'{kind.__name__}: not as predicted: {found}'
        assert found.after.reserved_bytes <= budget and found.changes, found
        assert {left.reason.partition('each ')[2] for left in found.left} == ({LEFT[kind]} if kind in LEFT else set()), found
        after = everything(model)
        assert after == before, f'{kind.__name__}: fit() changes {next(key for key in before if before[key] != after[key])}'
        return found
    compare(trained(kind, lambda *_: None, 4), trained(kind, around, 4), f'{kind.__name__} after fit()')


TESTS = {f'named-{kind.__name__}': (lambda kind=kind: named(kind)) for kind in BLOCKS}
# torch.nn.utils.weight_norm keeps a weight that has a history from the start, which a trace refuses.
TESTS.update({f'fitted-{kind.__name__}': (lambda kind=kind: fitted(kind)) for kind in BLOCKS if kind is not OldWeight})


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--check', action='store_true', help='as for the other programs; there is nothing else')
    parser.add_argument('names', nargs='*', metavar='NAME')
    given = parser.parse_args()
    torch.set_num_threads(1)
    gc.freeze()  # traces collect garbage often
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
