"""What plan() returns, and asks."""
from typing import TYPE_CHECKING, Any, Dict, Optional, Sequence

from . import _core
from ._fields import Answer, Record
from ._simulate import described
from ._snapshot import Snapshot


class Plan(Answer):
    """The answer of plan(): the JSON of `tessera plan` (docs/json.md). For a budget it is a certificate, and str() what to change."""

    __slots__ = ()

    def _gpus(self) -> Sequence[Record]:
        return []  # a plan is for each of its cards

    if not TYPE_CHECKING:
        def __getattr__(self, name: str) -> Any:
            return Record.__getattr__(self, name)


def planned(model: Any, options: Dict[str, Any], recorded: Optional[Snapshot]) -> Plan:
    """Ask for a plan, with parameters of the question."""
    given, name = (None, '') if model is None else described(model)
    core, _ = _core.ask('plan', {'model': given, **options}, name, *([] if recorded is None else [recorded._core]))
    return Plan(core)
