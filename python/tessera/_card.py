"""card(): what else is on the card, of one process, of several that share one, or of the ranks of a job."""
import os
from typing import List, Optional, Union

from . import _core, _files
from ._answers import Card

Path = Union[str, 'os.PathLike[str]']


def card(*paths: Path, time_us: Optional[int] = None, device: Optional[int] = None) -> Card:
    """What else is on the card: NCCL, CUDA contexts, libraries, other processes?

    `paths` are a snapshot, the snapshots of several processes that share a card, or folders, patterns such as 'run/*.pickle' and
    '@list.txt' for the ranks of a job. The figures are in the sidecars that tessera.record writes next to them. With `time_us`, the answer
    also has what was on the card then; `device` selects one of several.
    """
    given: List[str] = [os.fsdecode(_files.encoded(path)) for path in paths]
    core, _ = _core.ask('card', {'paths': given, 'time_us': time_us, 'device': device}, given[0] if given else '')
    return Card(core)
