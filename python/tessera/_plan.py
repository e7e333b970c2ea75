"""plan(): what to change so that a training fits, and what each technique saves and costs."""
from typing import TYPE_CHECKING, Any, Mapping, Optional, Sequence, Union

from . import _core
from ._fields import Answer, Record
from ._simulate import _description, _plan
from ._snapshot import Snapshot


class Plan(Answer):
    """The answer of plan(): the JSON of `tessera plan` (docs/json.md). For a budget it is a certificate, and str() what to change."""

    __slots__ = ()

    def _gpus(self) -> Sequence[Record]:
        return []  # a plan is for each of its cards

    if not TYPE_CHECKING:
        def __getattr__(self, name: str) -> Any:
            return Record.__getattr__(self, name)


def plan(model: Any = None, *, budget: Union[None, int, str] = None, allow: Optional[str] = None, largest: Optional[str] = None,
         front: bool = False, explain: bool = False, compare: bool = False, show: bool = False, target: Optional[str] = None,
         plan: Union[None, str, Mapping[str, Any]] = None,  # pylint: disable=redefined-outer-name
         recorded: Optional[Snapshot] = None, rates: Union[None, str, Mapping[str, Any]] = None, gpu: Optional[str] = None,
         gpus: Optional[int] = None, batch: Optional[int] = None, seq: Optional[int] = None, **more: Any) -> Plan:
    """Find the fastest plan with which a training fits into a budget, or list what each technique saves and costs.

    `model` is a name (see models()), the path of a config.json or of a step graph, or its content. What is not given has the
    command's default. `plan` and `rates` are paths of such files, or their contents. `recorded` is a snapshot of a run (`--from`),
    and `target` a program in whose words the plan is given, too (`--for`). `more` are parameters of the question.
    """
    described, name = (None, '') if model is None else _description(model)
    options = {'model': described, 'budget': budget or None, 'allow': allow, 'largest': largest, 'front': front or None,
               'explain': explain or None, 'compare': compare or None, 'show': show or None, 'for': target, 'plan': _plan(plan),
               'rates': _plan(rates), 'gpu': gpu, 'gpus': gpus, 'batch': batch, 'seq': seq, **more}
    core, _ = _core.ask('plan', options, name, *([] if recorded is None else [recorded._core]))
    return Plan(core)


_NAMES = {'from': 'recorded', 'for': 'target'}  # keywords of Python
plan.__doc__ = (plan.__doc__ or '') + '\n' + '\n'.join(
    f'    {_NAMES.get(name, name)}: {text}' + (f' One of {", ".join(choices)}.' if choices else '')
    for name, text, choices in _core.question('plan')[2] if name != 'model') + '\n'
