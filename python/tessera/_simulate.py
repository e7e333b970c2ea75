"""What simulate() returns, and asks: what a training run will need, before anything has run."""
import json
import os
from typing import Any, Callable, Dict, List, Mapping, Optional, Tuple, Union

from . import _core
from ._answers import Simulate
from ._fields import _Kept
from ._snapshot import Snapshot


class Simulation(Simulate):
    """What the run would need; `snapshot` is what PyTorch would have recorded."""

    __slots__ = ('snapshot',)

    def __init__(self, core: Any, snapshot: Snapshot) -> None:
        super().__init__(core)
        self.snapshot = snapshot

    def __reduce__(self) -> Tuple[Any, ...]:
        return type(self), (_Kept.of(self), self.snapshot)


def models() -> List[str]:
    """Names of the models that simulate() knows."""
    return _core.models()


def described(model: Any) -> 'tuple[Any, str]':
    """The model for the library, a name or a file's name and text; and how answers name it."""
    if isinstance(model, Mapping):
        name = str(model.get('model_type', '<config>'))
        return (name, json.dumps(dict(model))), name
    name = os.fspath(model)
    if not isinstance(model, str) or '/' in name or name.lower().endswith(('.json', '.graph')):
        with open(name, encoding='utf-8') as file:
            return (name, file.read()), name
    return name, name


def file_of(given: Any) -> 'Optional[tuple[str, str]]':
    """A file of JSON for the library: its name and text."""
    if given is None:
        return None
    if isinstance(given, Mapping):
        return '<plan>', json.dumps(dict(given))
    with open(given, encoding='utf-8') as file:
        return os.fspath(given), file.read()


def text_of(number: Union[None, float, str]) -> Optional[str]:
    """A number as the library reads it."""
    return None if number is None else str(number)


def simulated(model: Any, options: Dict[str, Any]) -> Simulation:
    """Simulate, with parameters of the question."""
    given, name = described(model)
    core, snapshot = _core.ask('simulate', {'model': given, **options}, name)
    assert snapshot is not None
    return Simulation(core, Snapshot(snapshot))


def document(call: Callable[..., Any], question: str, keywords: Mapping[str, str]) -> None:
    """Add the help of the question's parameters to the documentation of a function, as `keywords` call them."""
    call.__doc__ = (call.__doc__ or '') + '\n' + '\n'.join(
        f'    {keywords.get(name, name)}: {text}' + (f' One of {", ".join(choices)}.' if choices else '')
        for name, text, choices in _core.question(question)[2] if name != 'model') + '\n'
