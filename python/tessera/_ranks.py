"""ranks(): the snapshots of many ranks at once."""
import os
from typing import Optional, Union

from . import _core
from ._answers import Ranks

Path = Union[str, 'os.PathLike[str]']


def ranks(*paths: Path, pattern: Optional[str] = None, mesh: Optional[str] = None, part: Optional[str] = None,
          threads: Optional[int] = None, top: int = 10) -> Ranks:
    """Which of many ranks ran out of memory, or differs from its equals, and where?

    `paths` are folders, files, patterns such as 'run/*.pickle', '@list.txt', and files of sketches. The rest is as on the command
    line: `pattern` and `mesh` say which file is which rank and where it stands, `part` ('2/8') reads only a part of the files, and
    `top` is how many stacks are listed of each rank (0: all).
    """
    given = {'paths': [os.fspath(path) for path in paths], 'pattern': pattern, 'mesh': mesh, 'part': part, 'threads': threads}
    core, _ = _core.ask('ranks', {**given, 'top': top}, os.fspath(paths[0]) if paths else '')
    return Ranks(core)
