"""What plan() asks."""
from typing import Any, Dict, Optional

from . import _core
from ._answers import Plan
from ._simulate import asked, described, traced
from ._snapshot import Snapshot


def planned(model: Any, options: Dict[str, Any], recorded: Optional[Snapshot]) -> Plan:
    """Ask for a plan, with parameters of the question."""
    given, name = (None, '') if model is None else described(model)
    given, options = traced(given, options)
    core, _ = asked('plan', {'model': given, **options}, name, *([] if recorded is None else [recorded._core]))
    return Plan(core)
