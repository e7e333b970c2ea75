"""ranks(): the snapshots of many ranks at once."""
import os
from typing import Mapping, Optional, Union

from . import _core
from ._answers import Ranks
from ._snapshot import _budgets

Path = Union[str, 'os.PathLike[str]']


def ranks(*paths: Path, pattern: Optional[str] = None, mesh: Optional[str] = None, capacity: Union[None, int, str] = None,
          max: Union[None, int, str, Mapping[str, Union[int, str]]] = None, max_reserved: Union[None, int, str] = None,
          max_spread: Union[None, int, str] = None, allow_missing: bool = False, part: Optional[str] = None,
          threads: Optional[int] = None, top: int = 10) -> Ranks:
    """Which of many ranks ran out of memory, or differs from its equals, and where?

    `paths` are folders, files, patterns such as 'run/*.pickle', '@list.txt', and files of sketches. The rest is as on the command
    line: `pattern` and `mesh` say which file is which rank and where it stands, `capacity` is the memory of each card, `part` ('2/8') reads
    only a part of the files, and `top` is how many stacks are listed of each rank (0: all). With `max` ('70GiB', or a dict of categories),
    `max_reserved` or `max_spread`, the answer is false if a rank is above its budget, or if that is not certain.
    """
    given = {'paths': [os.fspath(path) for path in paths], 'pattern': pattern, 'mesh': mesh, 'capacity': capacity,
             'max': _budgets(max), 'max_reserved': max_reserved, 'max_spread': max_spread, 'allow_missing': allow_missing, 'part': part,
             'threads': threads}
    core, _ = _core.ask('ranks', {**given, 'top': top}, os.fspath(paths[0]) if paths else '')
    return Ranks(core)
