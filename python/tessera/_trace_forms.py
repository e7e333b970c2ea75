"""The forms of an optimizer: what its step would allocate with foreach, as a loop, or fused.

After the traced step has ended, each optimizer makes two steps in each form that PyTorch has, with gradients like those of the step:
the first makes its state, the second is the step that repeats. So `tessera simulate --optimizer-form` needs neither PyTorch nor
rules for particular optimizers. Other forms are only recorded if the optimizer's own form, run in this way, repeats what it did in
the traced step.
"""
import contextlib
from collections import defaultdict
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

# What PyTorch's constructors call them.
FORMS = {'foreach': (True, False), 'loop': (False, False), 'fused': (False, True)}


class Step:
    """One step of an optimizer in the traced step."""

    def __init__(self, optimizer: Any, begin: int, outer: Tuple[int, ...], is_plain: bool, is_scaled: bool,
                 keeps: bool) -> None:
        self.optimizer, self.begin, self.outer = optimizer, begin, outer
        self.is_plain = is_plain  # called without a closure
        self.is_scaled = is_scaled  # by a GradScaler, which does a part of what fused kernels do
        self.keeps = keeps  # its state is older than its first step
        self.grads: List[Tuple[Any, Any]] = []  # parameters, and tensors on 'meta' like their gradients


def noted(torch: Any, optimizer: Any, begin: int, outer: Tuple[int, ...], given: Tuple[Any, ...], is_scaled: bool,
          keeps: bool) -> Step:
    """A step that begins."""
    step = Step(optimizer, begin, outer, len(given[0]) + len(given[1]) <= 1, is_scaled, keeps)
    for group in optimizer.param_groups:
        for param in group['params']:
            grad = param.grad
            if grad is None:
                continue
            step.is_plain &= grad.layout == torch.strided and type(grad).__name__ == 'FakeTensor' and grad.device.type == 'cuda'
            if step.is_plain:
                from torch.utils._python_dispatch import _disable_current_modes
                with _disable_current_modes():
                    step.grads.append((param, torch.empty_strided(grad.shape, grad.stride(), dtype=grad.dtype, device='meta')))
    return step


@contextlib.contextmanager
def _as_new(step: Step, make: Callable[[Any], Any]) -> Iterator[List[Any]]:
    """Within it, the optimizer has no state yet, and its parameters have gradients."""
    state, grads = step.optimizer.state, [(param, param.grad) for param, _ in step.grads]
    groups = [dict(group) for group in step.optimizer.param_groups]
    if not step.keeps:
        step.optimizer.state = defaultdict(dict)
    try:
        made = [make(like) for _, like in step.grads]
        for (param, _), grad in zip(step.grads, made):
            param.grad = grad
        yield made
    finally:
        step.optimizer.state = state
        for group, before in zip(step.optimizer.param_groups, groups):
            group.clear()
            group.update(before)
        for param, grad in grads:
            param.grad = grad


def _choose(optimizer: Any, form: Optional[str]) -> bool:
    """Whether the optimizer has the form. None is its own form."""
    foreach, fused = FORMS.get(form or '', (None, None))
    for group in optimizer.param_groups if form else ():
        if 'foreach' not in group or (fused and 'fused' not in group):
            return False
        group['foreach'] = foreach
        if 'fused' in group:
            group['fused'] = fused
    return True


def _is_fused(optimizer: Any) -> bool:
    return any(group.get('fused') for group in optimizer.param_groups)


class Forms:
    """`recorder_like()` makes a recorder whose texts, frames and stacks are the step's; `recording(recorder)` is a context
    within which it notes ops."""

    def __init__(self, torch: Any, recorder_like: Callable[[], Any], recording: Callable[[Any], Any],
                 make: Callable[[Any], Any], schedule: Callable[[Any, List[int]], Any]) -> None:
        self.torch, self.recorder_like, self.recording, self.make, self.schedule = torch, recorder_like, recording, make, schedule

    def _run(self, step: Step, form: Optional[str]) -> Any:
        """Record two steps. Returns the recorder, or None."""
        recorder, optimizer = self.recorder_like(), step.optimizer
        recorder.outer, recorder.until = step.outer, _call.__code__
        with self.recording(recorder), _as_new(step, self.make) as grads:
            if not _choose(optimizer, form):
                return None
            for grad in grads:
                recorder.see(grad, 'static', 'gradient')
            recorder.static_count = len(recorder.bytes)
            for _ in range(2):
                recorder.begin_call()
                try:
                    _call(optimizer)
                except Exception:  # whatever: PyTorch does not have this form here
                    return None
                recorder.mark_state([optimizer])
                recorder.end_call()
            del grads
            recorder.is_over = True
        return recorder

    def _one(self, step: Step, form: str) -> Optional[Dict[str, Any]]:
        if (step.is_scaled or step.keeps) and (form == 'fused') != _is_fused(step.optimizer):
            return None
        recorder = self._run(step, form)
        if recorder is None:
            return None
        recorder.calls = [recorder.calls[0], recorder.calls[1], recorder.calls[1]]
        try:
            made = self.schedule(recorder, list(range(recorder.static_count)))
        except RuntimeError:  # it keeps more in each step
            return None
        first = recorder.static_count
        items = [[word, subject - first, *rest] for word, subject, *rest in made.items if word not in ('begin', 'end')]
        return {'bytes': [recorder.bytes[number] for number in made.slots[first:]],
                'category': [recorder.roles[number] or 'temporary' for number in made.slots[first:]], 'instructions': items}

    def of(self, step: Step, events: List[Tuple[Any, ...]], kinds: Callable[[Any, Any], Any], recorder: Any) -> Dict[str, Any]:
        """The forms of one optimizer step; none if the step does more than the optimizer. `events`: the events of the traced step."""
        out: Dict[str, Any] = {'class': type(step.optimizer).__name__, 'forms': {}}
        if not step.is_plain:
            return out
        depth, end = 0, step.begin
        while end == step.begin or depth:
            depth += {'(': 1, ')': -1}.get(events[end][0], 0)
            end += 1
        own = self._run(step, None)
        if own is None or kinds(own, own.calls[1])[1:-1] != kinds(recorder, events[step.begin:end]):
            return out
        for form in FORMS:
            found = self._one(step, form)
            if found:
                out['forms'][form] = found
        return out


def _call(optimizer: Any) -> None:
    type(optimizer).step(optimizer)
