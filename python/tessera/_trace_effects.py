"""What calls of modules change besides their results: what a checkpoint has to keep, and why some modules cannot run twice.

A checkpoint keeps copies of the tensors that a module writes in place (_state.py), so a plan needs their sizes. It cannot run a module again
if that would need what is not there any more, such as an argument that was changed, or if memory would not be as predicted.
"""
from typing import Any, Dict, List, NamedTuple, Set

from . import _state

# Ends of sentences about a module.
ARGUMENT = 'is called with a tensor that is changed in place later'
FOREIGN = 'changes a tensor in place that is not its own'
PARAMETER = 'changes a parameter in forward'
KEEPS = 'keeps tensors that it computes, in an attribute, a list or a cache'
DRAWS = 'draws random numbers from a generator that is not its own'


class Effects(NamedTuple):
    """The storages of which a checkpoint keeps copies, and why the module cannot run twice, or ''."""
    slots: List[int]
    why: str


class _Write(NamedTuple):
    place: int
    number: int


class Noted:
    """What the ops of one call of the step write, and the generators from which they draw."""

    def __init__(self) -> None:
        self.writes: List[_Write] = []
        self.draws: List[Any] = []  # generators

    def note(self, recorder: Any, func: Any, args: Any, kwargs: Dict[str, Any]) -> None:
        for tensor in _state.written_tensors(func, args, kwargs):
            number = recorder.number_of(tensor)
            if number is not None:
                self.writes.append(_Write(len(recorder.events), number))
        if kwargs.get('generator') is not None:
            self.draws.append(kwargs['generator'])


class Watched:
    """One call of a module, before it begins."""

    def __init__(self, recorder: Any, module: Any, args: Any, kwargs: Any) -> None:
        self._recorder, self._module = recorder, module
        self._values = _state.Taken(module, (args, kwargs))
        self._noted: Noted = recorder.noted
        self._writes, self._draws, self._made = len(self._noted.writes), len(self._noted.draws), len(recorder.bytes)

    def end(self) -> Effects:
        changes = list(self._values.changes())
        own = self._numbers(one.tensor for one in _state.tensors_of(self._module))
        written = {write.number for write in self._noted.writes[self._writes:] if write.number < self._made}
        slots = own if any(change.counts for change in changes) else own & written
        return Effects(sorted(slots), self._why(changes, written - own))

    def _numbers(self, tensors: Any) -> Set[int]:
        numbers = (self._recorder.number_of(tensor) for tensor in tensors if tensor.device.type == 'cuda')
        return {number for number in numbers if number is not None}

    def _why(self, changes: List[Any], written: Set[int]) -> str:
        if any(self._is_kept(change) for change in changes):
            return KEEPS
        if written:
            return PARAMETER if written & self._numbers(self._module.parameters()) else FOREIGN
        draws = self._noted.draws[self._draws:]
        return '' if all(_state.has_generator(self._module, generator) for generator in draws) else DRAWS

    def _is_kept(self, change: '_state.Changed') -> bool:
        """Whether a value is a tensor on the card. An attribute that has a history belongs to the step, and is computed in each."""
        tensors = [value for value in (change.before, change.now) if isinstance(value, self._recorder.torch.Tensor) and value.device.type == 'cuda']
        return any(change.is_in_list or value.grad_fn is None for value in tensors)


def why_once(calls: List[Any], saves: List[Any], noted: Noted) -> Dict[str, str]:
    """By name, why modules cannot run twice: a reason for one of a module's calls holds for all. `calls` and `saves` are those of
    _trace_saved.py."""
    reasons: Dict[str, str] = {}
    for call in calls:
        why = call.effects.why or (ARGUMENT if _loses_argument(call, saves, noted) else '')
        if why:
            reasons.setdefault(call.name, why)
    return reasons


def _loses_argument(call: Any, saves: List[Any], noted: Noted) -> bool:
    """Whether an argument is changed before backward needs what the module saves."""
    uses = [save.used for save in saves[call.first:call.last] if save.used is not None]
    until, inputs = min(uses, default=call.end), set(call.inputs)
    return any(call.end <= write.place < until and write.number in inputs for write in noted.writes)
