"""fit(): trace a program's step, find a plan with which it fits, and apply it.

    tessera.fit(model, optimizer, step, '16GiB')

The step is traced unchanged. If it does not fit, it is traced with the changes that cost no time: no key-value cache, and a fused
optimizer. From that graph, plan() finds one that names modules (_planned), without tracing again, and the plan is applied.
"""
import contextlib
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Union

from . import _core
from ._apply import Applied, Left, applied_as, apply, ranges_of
from ._errors import ArgumentError, Error
from ._calls import plan as plan_of, simulate
from ._simulate import Simulation
from ._state import Taken
from ._trace import trace

_STEPS = 3  # from the third on, steps repeat


class Prediction(NamedTuple):
    """The memory of a step at its peak."""
    allocated_bytes: int
    reserved_bytes: int

    def __str__(self) -> str:
        return f'{_core.size_text(self.reserved_bytes)} reserved, {_core.size_text(self.allocated_bytes)} allocated'


class Fitted(Applied):
    """The result of fit(), with the predicted peaks: `before`, of the unchanged model, and `after`, with the plan."""
    budget_bytes: int
    before: Prediction
    after: Prediction

    def __str__(self) -> str:
        fits = f'{type(self.model).__name__}: fits in {_core.size_text(self.budget_bytes)}.'
        return f'{fits}\n  before  {self.before}\n  after   {self.after}\n{super().__str__()}'


def _predicted(graph: Dict[str, Any]) -> Prediction:
    run: Simulation = simulate(graph, steps=_STEPS)
    return Prediction(run.peak.allocated_bytes, run.peak_reserved_bytes)


class _Found(NamedTuple):
    plan: Dict[str, Any]
    after: Prediction
    fits: bool


def _planned(graph: Dict[str, Any], budget: int, gpu: str) -> _Found:
    """The fastest plan of modules that reserves no more than the budget, or the leanest."""
    try:
        found = plan_of(graph, budget=budget, gpu=gpu)
    except Error as error:
        raise ArgumentError(_core.terminal_clean(f'the step has no plan: {error}')) from error
    predicted = found['predicted']
    after = Prediction(predicted['peak_allocated_bytes'], predicted['peak_reserved_bytes'])
    return _Found(found['plan'].to_dict(), after, found['verdict'] != 'does_not_fit')


def _left(graph: Dict[str, Any], model: Any) -> List[Left]:
    """The modules that cannot run again in backward, and why."""
    texts = graph['texts']
    names: Dict[str, Dict[str, None]] = {}
    for call, _, why in graph.get('effects', ()):
        if why >= 0:
            names.setdefault(texts[why], {})[texts[graph['modules'][call][0]]] = None
    out = []
    for why, found in names.items():
        inner = [name for name in found if not any(other != name and other.startswith(f'{name}.' if name else '') for other in found)]
        more = ', and modules that contain these' if len(inner) < len(found) else ''
        out.append(Left('checkpoint', f'not of {ranges_of([name or type(model).__name__ for name in inner])}{more}: each {why}'))
    return out


@contextlib.contextmanager
def _unchanged(model: Any, optimizer: Any, step: Any) -> Iterator[None]:
    """Within it, the step is traced: the optimizer is as if it had made no steps, and Python's values and random numbers that the step
    changes are put back."""
    taken, state = Taken(model, (step,)), dict(optimizer.state)
    optimizer.state.clear()
    optimizer.state.update(_new_state(optimizer, state))
    try:
        yield
    finally:
        optimizer.state.clear()
        optimizer.state.update(state)
        taken.keep_changes()
        taken.put()


def _new_state(optimizer: Any, state: Dict[Any, Any]) -> Dict[Any, Any]:
    """The state before the first step. Adagrad makes it in its constructor."""
    import torch
    if not isinstance(optimizer, torch.optim.Adagrad):
        return {}
    return {parameter: {**values, 'step': torch.zeros_like(values['step'])} for parameter, values in state.items()}


def _free(model: Any, optimizer: Any) -> Dict[str, Any]:
    """The changes that take less memory and no more time."""
    import torch
    plan: Dict[str, Any] = {'version': 1}
    if getattr(getattr(model, 'config', None), 'use_cache', False):
        plan['no_kv_cache'] = True
    if isinstance(optimizer, (torch.optim.Adam, torch.optim.AdamW)) and all(
            group.get('foreach') is None and group.get('fused') is None for group in optimizer.param_groups):
        plan['optimizer'] = 'adamw-fused'
    return plan


def fit(model: Any, optimizer: Any, step: Callable[[], Any], budget: Union[int, str], *, gpu: str = 'a100',
        value: Optional[float] = None) -> Fitted:
    """Make a training step fit in a budget.

    `step` runs one training step, as for trace(): zero_grad, forward, backward, optimizer, with tensors on 'cuda'. It is traced without a
    GPU, a plan is found that reserves no more than `budget` ('16GiB' or bytes), and applied to the model and the optimizer. Returns what
    was done, as apply() does, with the predicted peaks before and after. If nothing fits, ArgumentError states what the leanest plan
    needs, and nothing has changed. `gpu` and `value` are passed to trace().
    """
    limit = _core.size(budget)
    if not limit:
        raise ArgumentError('the budget is a number of bytes, or a size such as 16GiB')

    def traced() -> Dict[str, Any]:
        with _unchanged(model, optimizer, step):
            return trace(step, model=model, optimizer=optimizer, gpu=gpu, value=value)
    with contextlib.ExitStack() as undo:
        before = after = _predicted(traced())
        plan: Dict[str, Any] = {'version': 1}
        left: List[Left] = []
        if before.reserved_bytes > limit:
            plan = _free(model, optimizer)
            trial = undo.enter_context(apply(model, plan, optimizer=optimizer))
            graph = traced()
            found, left = _planned(graph, limit, gpu), _left(graph, model)
            trial.undo()
            plan, after = {**plan, **found.plan}, found.after
            if not found.fits:
                raise ArgumentError(f'{type(model).__name__} does not fit in {_core.size_text(limit)}: the leanest plan reserves '
                                    f'{_core.size_text(after.reserved_bytes)}')
        applied = applied_as(Fitted, model, plan, optimizer)
    applied.left += left
    applied.budget_bytes, applied.before, applied.after = limit, before, after
    return applied
