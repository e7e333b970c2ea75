#!/usr/bin/env python3
"""routing.py [--check] [NAME...]: mixtures of experts under a routing, and the same programs with their choices forced.

Needs the packages that ./run test torch installs. Each model is traced twice: with routing=..., and without, in a program in which a mode returns
tensors of given sizes wherever the model asks which tokens an expert gets. What the mode returns depends on counts that this file computes for itself,
and not on values that the tracer follows. Both must have the same peaks, within 64 bytes. Sizes that no router decides must be refused, and known
ones found.
"""
import argparse
import sys
import tempfile
from pathlib import Path
from unittest import mock

import torch
import transformers as hf
import triton
import triton.language
from torch.overrides import TorchFunctionMode

import tessera
from programs import ROUTED, adamw, hf_step, text
from tessera import _trace, _trace_routing

TOLERANCE_BYTES = 64
TOKENS = 4 * 32


# ---- How many tokens each expert gets, as docs/python.md describes it ----

def balanced(chosen, experts, tokens):
    return [tokens * chosen // experts + (number < tokens * chosen % experts) for number in range(experts)]


def worst(chosen, experts, tokens):
    rest = tokens * chosen - experts
    out = [1] * experts
    for number in range(experts):
        out[number] += min(rest, tokens - 1)
        rest -= min(rest, tokens - 1)
    return out


class Forced(TorchFunctionMode):
    """Answers the questions of a model that loops over its experts. `counts` has a list for each router."""

    def __init__(self, counts):
        super().__init__()
        self.counts, self.router = counts, -1
        self.at, self.hit = 0, None  # the expert whose turn it is; the next ones, of models that ask first which experts get tokens

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func is torch.topk or func is torch.Tensor.topk:
            self.at = 0
        if func is torch.nn.functional.one_hot:
            self.router += 1
            self.counts_now = self.counts[self.router % len(self.counts)]
        if func is torch.Tensor.nonzero:
            experts = [number for number, count in enumerate(self.counts_now) if count]
            self.hit = iter(experts)
            return found(len(experts), 1)
        if func is torch.Tensor.__index__:
            self.at = next(self.hit)
            return self.at
        if func is torch.Tensor.__eq__ and args[0].dim() == 0:
            self.at = next(self.hit)
            return False
        if func is torch.Tensor.__getitem__:
            args = args[0], self.numbered(args[1])
        if func is torch.where and len(args) == 1:
            count = self.counts_now[self.at]
            self.at += self.hit is None
            return found(count, args[0].dim()).unbind(1)
        return func(*args, **(kwargs or {}))

    def numbered(self, index):
        """Replace an expert's number that is a tensor by the number."""
        if isinstance(index, tuple):
            return tuple(map(self.numbered, index))
        return self.at if isinstance(index, torch.Tensor) and not index.dim() else index


def found(count, columns):
    """The result of nonzero, without values."""
    return torch.empty_strided((count, columns), (1, max(1, count)), dtype=torch.long, device='cuda')


# ---- Comparison ----

def peaks(document):
    with tempfile.TemporaryDirectory() as work:
        path = Path(work) / 'step.graph'
        _trace.write(document, path)
        device = tessera.simulate(str(path))['devices'][0]
    return [device['peak']['allocated_bytes'], *(phase['allocated_bytes'] for phase in device['phases'])]


def traced(make, counts=None, **how):
    torch.manual_seed(0)
    model = make().train()
    optimizer = adamw(model)
    step = hf_step(text)(model, optimizer)

    def forced():
        with Forced(counts):
            return step()
    return tessera.trace(forced if counts else step, model=model, optimizer=optimizer, **how)


def compared(name):
    make, chosen, experts, routers = ROUTED[name]
    skewed = [[1 + number * layer for number in range(experts)] for layer in range(1, routers + 1)]
    exact = [tessera._trace_routing._scaled(row, TOKENS, chosen) for row in skewed]
    for routing, counts in (('balanced', [balanced(chosen, experts, TOKENS)]), ('worst', [worst(chosen, experts, TOKENS)]), (skewed, exact)):
        document = traced(make, routing=routing)
        expected, got = peaks(traced(make, counts)), peaks(document)
        word = routing if isinstance(routing, str) else 'given'
        yield f'{name}, {word}: {got}, forced: {expected}', document.get('routing') != word or any(
            abs(a - b) > TOLERANCE_BYTES for a, b in zip(got, expected, strict=True))


# ---- What is known without a router, and what is not ----

class Gate(torch.nn.Module):
    """A mixture as people write it themselves. `pick` returns a list of the places of tokens, one for each expert."""

    def __init__(self, pick, experts=4):
        super().__init__()
        self.pick, self.gate = pick, torch.nn.Linear(32, experts)
        self.experts = torch.nn.ModuleList(torch.nn.Linear(32, 32) for _ in range(experts))

    def forward(self, x):
        out = torch.zeros_like(x)
        for expert, places in zip(self.experts, self.pick(self.gate(x), len(self.experts))):
            out = out.index_add(0, places, expert(x[places]))
        return out


def by_mask(scores, experts):
    chosen = scores.softmax(-1).topk(2).indices
    return [(chosen == number).any(-1).nonzero()[:, 0] for number in range(experts)]


def by_argmax(scores, experts):
    chosen = scores.argmax(-1)
    return [torch.nonzero(chosen == number, as_tuple=True)[0] for number in range(experts)]


def by_sorting(scores, experts):
    chosen = torch.topk(scores, 2, dim=-1)[1].flatten()
    order = torch.argsort(chosen) // 2
    return order.split(torch.bincount(chosen, minlength=experts).tolist())


def by_histogram(scores, experts):
    chosen = torch.topk(scores, 2, dim=-1)[1]
    table = torch.zeros_like(scores).scatter_(1, chosen, 1)
    counts = table.long().sum(0).cpu().numpy()
    return (torch.sort(chosen.flatten())[1] // 2).split([int(count) for count in counts])


def by_capacity(scores, experts):
    """No expert takes more than a quarter more than its share."""
    chosen = torch.nn.functional.one_hot(scores.max(-1).indices, experts)
    kept = chosen * (chosen.cumsum(0) <= len(scores) * 5 // 4 // experts)
    return [kept[:, number].bool().nonzero().squeeze(-1) for number in range(experts)]


def by_writes(scores, experts):
    """Counts in a tensor that is written in place, and through a view."""
    chosen, counts = scores.topk(2, -1).indices, torch.zeros(experts, dtype=torch.long, device='cuda')
    for number in range(experts):
        counts[number] += (chosen == number).sum()
    every = torch.arange(2 * len(scores), device='cuda') // 2
    return every.split([counts[number].item() for number in range(experts)])


def unknown(scores, experts):
    return [(scores[:, number] > 0).nonzero()[:, 0] for number in range(experts)]


def overwritten(scores, experts):
    chosen = scores.topk(2, -1).indices
    chosen.copy_(scores[:, :2])
    return [(chosen == number).any(-1).nonzero()[:, 0] for number in range(experts)]


def random(scores, experts):
    chosen = torch.randint(0, experts, (len(scores),), device='cuda')
    return [(chosen == number).nonzero()[:, 0] for number in range(experts)]


def words(scores, experts):
    """A choice among too many is no router's."""
    chosen = scores.repeat(1, 1000).argmax(-1)
    return [(chosen == number).nonzero()[:, 0] for number in range(experts)]


def constants(scores, experts):
    """Which tokens go where is known before the step."""
    lengths = torch.tensor([20, 10, 30, 4]).cuda()
    ends = lengths.cumsum(0)
    place = torch.arange(len(scores), device='cuda')
    return [((place < end) & (place >= end - length)).nonzero()[:, 0] for end, length in zip(ends, lengths)]


def own(pick, **how):
    """The sizes of what the experts save, or the message of a refusal."""
    torch.manual_seed(0)
    model = Gate(pick)
    optimizer = torch.optim.SGD(model.parameters())

    def step():
        optimizer.zero_grad()
        model(torch.randn(64, 32, device='cuda')).square().mean().backward()
        optimizer.step()
    try:
        document = tessera.trace(step, model=model, optimizer=optimizer, **how)
    except tessera.TraceError as error:
        return str(error)
    texts, of_expert = document['texts'], {}
    for word, slot, *stack in document['instructions']:
        if word == 'new':
            number, _, line = document['frames'][document['stacks'][stack[0]][0]]
            if texts[number] == 'at::_ops::addmm::call':
                of_expert.setdefault(document['slots']['bytes'][slot] // 128, 0)
                of_expert[document['slots']['bytes'][slot] // 128] += 1
    return of_expert


def counted(counts):
    """The gate's own product has 4 columns instead of 32: as many bytes as 8 rows of an expert."""
    return {count: [*counts, 64 * 4 // 32].count(count) for count in {*counts, 64 * 4 // 32} if count}


NO_ROUTER, REMEDY = 'use a tensor of fixed size with a mask instead', "routing='balanced'"


def written_by_hand():
    """Mixtures that people write themselves, in many forms."""
    for pick, even, uneven in ((by_mask, [32] * 4, [64, 62, 1, 1]), (by_argmax, [16] * 4, [61, 1, 1, 1]), (by_sorting, [32] * 4, [64, 62, 1, 1]),
                               (by_histogram, [32] * 4, [64, 62, 1, 1]), (by_capacity, [16] * 4, [20, 1, 1, 1]),
                               (by_writes, [32] * 4, [64, 62, 1, 1])):
        for how, expected in ({'routing': 'balanced'}, counted(even)), ({'routing': 'worst'}, counted(uneven)), ({}, REMEDY):
            got = own(pick, **how)
            yield f'{pick.__name__}, {how}: {got}', got != expected if isinstance(expected, dict) else expected not in got
    yield 'a value for all numbers', REMEDY not in own(by_mask, value=1.0)
    for pick in unknown, overwritten, random, words:
        for how in {}, {'routing': 'balanced'}:
            yield f'{pick.__name__}, {how}: {own(pick, **how)}', NO_ROUTER not in own(pick, **how)
    yield 'parameters that are moved', len(tessera.trace(moved)['slots']['bytes']) < 4
    yield f'constants: {own(constants)}', own(constants) != counted([20, 10, 30, 4])


def moved():
    """A program whose parameters have known values when it moves them."""
    with torch.device('cuda'):
        model = torch.nn.LayerNorm(32)
    model = model.to(torch.bfloat16)
    optimizer = torch.optim.SGD(model.parameters())
    for _ in range(6):
        optimizer.zero_grad()
        model(torch.randn(64, 32, device='cuda', dtype=torch.bfloat16)).sum().backward()
        optimizer.step()


def made():
    """Values of what is on the CPU are real ones; those of large tensors that a program makes and initializes are never computed."""
    found, largest = [], [0]
    results = _trace_routing._Call.results

    def noted(call):
        largest.append(max([0, *(tensor.nbytes for tensor in results(call) if tensor.is_floating_point())]))
        return results(call)

    def program():
        found.append((torch.arange(8) == 3).nonzero().tolist())
        found.append(torch.tensor(list(torch.arange(3., device='cuda'))).tolist())
        with torch.device('cuda'):
            model = torch.nn.Linear(1024, 1024)
        flat = model.weight.detach().view(-1)
        torch.nn.init.trunc_normal_(model.weight, std=0.02)
        flat.copy_(flat * 2)
        optimizer = torch.optim.SGD(model.parameters())
        for _ in range(6):
            optimizer.zero_grad()
            model(torch.randn(64, 1024, device='cuda')).sum().backward()
            optimizer.step()

    with mock.patch.object(_trace_routing._Call, 'results', noted):
        tessera.trace(program, value=1.0)
    yield f'places of what is true on the CPU, and numbers in a list: {found}', found != [[[3]], [1.0, 1.0, 1.0]]
    yield f'the largest value that was computed: {max(largest)} bytes', max(largest) >= 4 << 20


@triton.jit
def fill(place):
    triton.language.store(place, 3)


def launched():
    """A kernel of Triton writes what a trace does not know, and allocates nothing."""
    found = []

    def program():
        numbers = torch.zeros(4, dtype=torch.long, device='cuda')
        found.append(numbers.sum().item())
        fill[(1,)](numbers)
        torch.zeros(numbers.sum().item(), device='cuda')
    try:
        tessera.trace(program)
    except tessera.TraceError as error:
        found.append(str(error))
    yield f'a kernel of Triton: {found}', len(found) != 2 or found[0] or 'needs the value of a tensor' not in found[1]


def files(work):
    """Counts in a file, and what is wrong with some."""
    path = work / 'routing.json'
    for content, expected in (('[[8, 8, 8, 8]]', counted([32] * 4)), ('[[40, 44, 0, 44]]', counted([40, 44, 0, 44])),
                              ('[[1000, 10, 10, 10]]', counted([64, 22, 21, 21])), ('[[5, 0, 0, 0]]', 'fewer experts of router 1 than the 2'),
                              ('[[1, 2, 3]]', 'counts of 3 experts for router 1, which chooses among 4'),
                              ('[[1, 2, 3, 4], [1, 2, 3, 4]]', 'counts of 2 routers, and the program has 1'), ('{}', 'a list with one list'),
                              ('[[1, -2, 3, 4]]', 'a list with one list'), ('[', 'is not JSON')):
        path.write_text(content, encoding='utf-8')
        got = own(by_mask, routing=str(path))
        yield f'{content}: {got}', got != expected if isinstance(expected, dict) else expected not in got
    yield 'no file', 'no such routing' not in own(by_mask, routing='best')


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--check', action='store_true', help='accepted for run.py: nothing is written in any case')
    parser.add_argument('names', nargs='*', metavar='NAME', help=f'of {", ".join(ROUTED)}, own, made, launched and files')
    given = parser.parse_args()
    wrong = 0
    _trace._optimizers = lambda *_: []  # other forms of the optimizers, which only take time here
    with tempfile.TemporaryDirectory() as work:
        parts = {**{name: compared(name) for name in ROUTED}, 'own': written_by_hand(), 'made': made(), 'launched': launched(), 'files': files(Path(work))}
        for name in given.names or parts:
            for what, is_wrong in parts[name]:
                wrong += bool(is_wrong)
                print(f'{"not ok" if is_wrong else "ok"} - {what}', flush=True)
    return wrong > 0


if __name__ == '__main__':
    sys.exit(main())
