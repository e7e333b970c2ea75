"""tessera: where the memory of a GPU job went.

    import tessera

    s = tessera.open("snapshot.pickle")     # a path, bytes, a file object, or the dict of _snapshot()
    print(s.peak())                         # what `tessera peak snapshot.pickle` prints
    s.peak().peak.allocated_bytes           # the same, for a program
    s.events.size_bytes.to_numpy()          # columns, without a copy

A snapshot is data: nothing in it is executed. Answers are those of the command, from the same
library. See docs/python.md.
"""
from typing import TYPE_CHECKING, Any, List

from . import _answers as answers
from ._errors import (ArgumentError, Error, FormatError, LimitError, NotFoundError, ReadError, UsageError,
                      UnsupportedError)
from ._answers import Frame, Plan
from ._fields import Answer, Record, Warning
from ._calls import plan, simulate
from ._card import card
from ._page import Page
from ._ranks import ranks
from ._simulate import Simulation, models
from ._snapshot import Snapshot, open, questions
from ._tables import Allocations, Blocks, Column, Events, Frames, Segments, Stacks, Table, Totals
from ._core import version as _version

if TYPE_CHECKING:
    from ._apply import Applied, Change, Left, apply, parts
    from ._capture import record
    from ._fake_cuda import TraceError
    from ._fit import Fitted, Prediction, fit
    from ._trace import trace

__version__ = _version()

__all__ = [
    'Allocations', 'Answer', 'Applied', 'ArgumentError', 'Blocks', 'Change', 'Column', 'Error', 'Events', 'Fitted',
    'FormatError', 'Frame', 'Frames', 'Left', 'LimitError', 'NotFoundError', 'Page', 'Plan', 'Prediction', 'ReadError', 'Record',
    'Segments', 'Simulation', 'Snapshot', 'Stacks', 'Table', 'Totals', 'TraceError', 'UnsupportedError', 'UsageError', 'Warning',
    'answers', 'apply', 'card', 'fit', 'models', 'open', 'parts', 'plan', 'questions', 'ranks', 'record', 'simulate', 'trace',
]


# What belongs to PyTorch programs is imported on first use.
_LATER = {'_apply': ('Applied', 'Change', 'Left', 'apply', 'parts'), '_capture': ('record',), '_fake_cuda': ('TraceError',),
          '_fit': ('Fitted', 'Prediction', 'fit'), '_trace': ('trace',)}

if not TYPE_CHECKING:  # a misspelt name is an error to type checkers
    def __getattr__(name: str) -> Any:
        """Imports what belongs to PyTorch programs on first use: those that only read snapshots don't need it."""
        home = next((home for home, names in _LATER.items() if name in names), None)
        if home:
            import importlib
            globals()[name] = getattr(importlib.import_module(f'{__name__}.{home}'), name)
            return globals()[name]
        raise AttributeError(f"module 'tessera' has no attribute {name!r}")


def load_ipython_extension(shell: Any) -> None:
    """`%load_ext tessera` in a notebook: the magics %tessera and %%tessera."""
    from . import _magic
    _magic.load(shell)


def unload_ipython_extension(shell: Any) -> None:
    """`%unload_ext tessera`."""
    from . import _magic
    _magic.unload(shell)


def __dir__() -> List[str]:
    return sorted({*__all__, *(name for name in globals() if name.startswith('__'))})
