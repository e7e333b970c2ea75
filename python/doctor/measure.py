"""What the processes do that use a GPU: they run programs and count, or make communicators.

A program's peaks are counted by phase, as the tracer has phases: a call of a module by the step itself is forward, then backward and the steps of optimizers.
PyTorch's counters of peaks are read and reset where a phase begins or ends, so that each stretch has its own peak.
"""
import contextlib
import os
import sys
from typing import Any, Callable, Dict, Iterator, List

from . import programs
from ._fake_cuda import patched
from .card import Card, NoCard
from .talk import Talk, one_line

KINDS = ('requested', 'allocated', 'reserved')
MAKING, BETWEEN = 'making', 'between'  # before the first step, and what belongs to no phase


class Phases:
    """The peaks of each phase of a program, over all of its steps."""

    def __init__(self, card: Any) -> None:
        self.card = card
        self.peaks: Dict[str, Dict[str, int]] = {}
        self._open: List[str] = [MAKING]
        card.reset()

    def _read(self) -> None:
        found, known = self.card.counters(), self.peaks.setdefault(self._open[-1], dict.fromkeys(KINDS, 0))
        for kind in KINDS:
            known[kind] = max(known[kind], found[f'peak_{kind}'])
        self.card.reset()

    def enter(self, phase: str) -> None:
        self._read()
        self._open.append(phase)

    def leave(self) -> None:
        self._read()
        self._open.pop()

    @contextlib.contextmanager
    def within(self, phase: str) -> Iterator[None]:
        self.enter(phase)
        try:
            yield
        finally:
            self.leave()

    def _wrapped(self, original: Callable[..., Any], phase: str) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            if self._open[-1] != BETWEEN:  # of a phase already
                return original(*args, **kwargs)
            with self.within(phase):
                return original(*args, **kwargs)
        return call

    @contextlib.contextmanager
    def noted(self, torch: Any) -> Iterator[None]:
        """Around the steps."""
        optim, depth = sys.modules['torch.optim.optimizer'], []

        def before(*_: Any) -> None:
            depth.append(0)
            self.enter('optimizer')

        def after(*_: Any) -> None:
            if depth:
                depth.pop()
                self.leave()
        handles = [optim.register_optimizer_step_pre_hook(before), optim.register_optimizer_step_post_hook(after)]  # type: ignore[attr-defined]
        try:
            with self.within(BETWEEN), patched(torch.nn.Module, __call__=self._wrapped(torch.nn.Module.__call__, 'forward')), \
                    patched(torch.autograd, backward=self._wrapped(torch.autograd.backward, 'backward')):
                yield
        finally:
            for handle in handles:
                handle.remove()


def measured(torch: Any, card: Any, program: programs.Program, snapshot: str = '') -> Dict[str, Any]:
    """The peaks of a program's steps, in all and by phase, without what was there before; and what a snapshot has to say, with a file to write one to."""
    card.clear()
    before = card.counters()
    if snapshot:
        card.record()
    phases = Phases(card)
    try:
        programs.run(torch, program, programs.STEPS, lambda: phases.noted(torch))
    finally:
        after = card.counters()
        if snapshot:
            card.dump(snapshot)
    peaks = {name: {kind: row[kind] - before[f'now_{kind}'] for kind in KINDS} for name, row in phases.peaks.items()}
    steps = [row for name, row in peaks.items() if name != MAKING]
    return {'before': {kind: before[f'now_{kind}'] for kind in KINDS},
            'peak': {kind: max(row[kind] for row in steps) for kind in KINDS},
            'phases': {name: row for name, row in peaks.items() if name not in (MAKING, BETWEEN)},
            'whole': {kind: max(row[kind] for row in phases.peaks.values()) for kind in KINDS},
            'after': {kind: after[f'now_{kind}'] for kind in KINDS}}


def _programs(torch: Any, card: Any, request: Dict[str, Any], talk: Any) -> None:
    for name in request['programs']:
        program, path = programs.by_name(name), os.path.join(request['folder'], f'{name}.pickle')
        talk.say(event='begins', name=name)
        try:
            talk.say(event='program', name=name, snapshot=path, **measured(torch, card, program, path))
        except Exception as error:
            is_memory = isinstance(error, getattr(torch, 'OutOfMemoryError', ()))
            talk.say(event='program', name=name, error='out of memory' if is_memory else one_line(error))


def _communicators(torch: Any, card: Any, request: Dict[str, Any], talk: Any) -> None:
    """What a communicator of all ranks takes of this rank's card, and then a second one."""
    import datetime
    import torch.distributed as dist  # noqa: F811
    dist.init_process_group(request['backend'], init_method=f'file://{request["meeting"]}', rank=request['rank'], world_size=request['ranks'],
                            timeout=datetime.timedelta(seconds=60))
    x = torch.ones(1 << 20, device=request['device'])
    (x + x).sum()
    group, taken = None, []
    for _ in range(2):
        free, reserved = card.free_bytes(), card.counters()['now_reserved']
        dist.all_reduce(x, group=group)
        taken.append(free - card.free_bytes() - (card.counters()['now_reserved'] - reserved))
        group = dist.new_group(list(range(request['ranks'])))
    is_right = bool((x == float(request['ranks'] ** 2)).all())
    talk.say(event='communicators', taken_bytes=taken, is_right=is_right)
    dist.barrier()


JOBS = {'programs': _programs, 'communicators': _communicators}


def work(torch: Any, card: Any, request: Dict[str, Any], talk: Any) -> None:
    """Do a job. The process that asked for it looks at the card while this one waits."""
    talk.say(event='imported')
    talk.wait()
    card.start()
    talk.say(event='context', **card.about())
    talk.wait()
    JOBS[request['job']](torch, card, request, talk)
    card.clear()
    talk.say(event='end', reserved_bytes=card.counters()['now_reserved'])
    talk.wait()


def run(request: Dict[str, Any], _code: str, results: int) -> None:
    """Of start.py."""
    talk = Talk(results, sys.stdin.buffer)
    try:
        import torch
        kind = NoCard if request.get('device') == 'cpu' else Card
        work(torch, kind(torch, request.get('index', 0)), request, talk)
    except Exception as error:
        talk.say(event='failed', error=one_line(error))
    os._exit(0)
