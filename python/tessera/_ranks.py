"""ranks(): the snapshots of many ranks at once."""
import contextlib
import os
from typing import Any, List, Mapping, Optional, Union

from . import _core, _engines, _files
from ._answers import Ranks
from ._errors import ArgumentError
from ._snapshot import _budgets

Path = Union[str, 'os.PathLike[str]']


def ranks(*paths: Path, pattern: Optional[str] = None, mesh: Optional[str] = None, capacity: Union[None, int, str] = None,
          max: Union[None, int, str, Mapping[str, Union[int, str]]] = None, max_reserved: Union[None, int, str] = None,
          max_spread: Union[None, int, str] = None, allow_missing: bool = False, part: Optional[str] = None,
          threads: Optional[int] = None, top: int = 10, on: Any = None, parts: Optional[int] = None,
          storage_options: Optional[Mapping[str, Any]] = None) -> Ranks:
    """Which of many ranks ran out of memory, or differs from its equals, and where?

    `paths` are folders, files, patterns such as 'run/*.pickle', '@list.txt', and files of sketches. The rest is as on the command
    line: `pattern` and `mesh` say which file is which rank and where it stands, `capacity` is the memory of each card, `part` ('2/8') reads
    only a part of the files, and `top` is how many stacks are listed of each rank (0: all). With `max` ('70GiB', or a dict of categories),
    `max_reserved` or `max_spread`, the answer is false if a rank is above its budget, or if that is not certain.

    `on` has the files read elsewhere: 'ray' by the nodes of a cluster of Ray that runs already, an executor (anything with
    submit(), such as those of concurrent.futures, mpi4py.futures, or Dask's Client) by its workers. They see the same paths, and
    can import tessera; each reads one of `parts` parts (as many as there are processors). A worker that is ended ends what it started.

    Paths may also be addresses, such as 's3://bucket/run', of which fsspec reads those that it knows; `storage_options` are for it.
    At most 64 files of a store are on the disk of a worker at once. The size of each is checked; one that cannot be had is a
    warning, and broken in the answer.
    """
    given: List[str] = [os.fsdecode(_files.encoded(path)) for path in paths]
    has_addresses = any(map(_engines.is_address, given))
    with contextlib.ExitStack() as held:
        places = given
        if has_addresses or on is not None:
            if part is not None:
                raise ArgumentError('part= is not for addresses or engines, which divide the files themselves: use parts=')
            places = held.enter_context(_engines.sketches(given, on, parts, dict(storage_options or {})))
        asked = {'paths': places, 'pattern': pattern, 'mesh': mesh, 'capacity': capacity, 'max': _budgets(max), 'max_reserved': max_reserved,
                 'max_spread': max_spread, 'allow_missing': allow_missing, 'part': part, 'threads': threads, 'top': top}
        core, _ = _core.ask('ranks', asked, given[0] if given else '')
        return Ranks(core)
