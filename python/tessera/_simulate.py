"""simulate(): what a training run will need, before anything has run."""
import json
import os
from typing import Any, List, Mapping, Sequence, Union

from . import _core
from ._answers import Answer, Device, Moment
from ._snapshot import Snapshot


class SimulationDevice(Device):
    peak: Moment


class Simulation(Answer, SimulationDevice):
    """What the run would need; `snapshot` is what PyTorch would have recorded."""

    __slots__ = ('snapshot',)

    devices: Sequence[SimulationDevice]

    def __init__(self, core: Any, snapshot: Snapshot) -> None:
        super().__init__(core)
        self.snapshot = snapshot


def models() -> List[str]:
    """Names of the models that simulate() knows."""
    return _core.models()


def _description(model: Any) -> 'tuple[Any, str]':
    """The model for the library, a name or a file's name and text; and how answers name it."""
    if isinstance(model, Mapping):
        name = str(model.get('model_type', '<config>'))
        return (name, json.dumps(dict(model))), name
    name = os.fspath(model)
    if not isinstance(model, str) or '/' in name or name.lower().endswith('.json'):
        with open(name, encoding='utf-8') as file:
            return (name, file.read()), name
    return name, name


def simulate(model: Any, *, batch: int = 1, seq: int = 512, steps: int = 3, accumulate: int = 1,
             optimizer: str = 'adamw', dtype: str = 'fp32', attention: str = 'sdpa',
             checkpoint: str = 'none', loss: str = 'full', gelu: str = 'eager',
             settings: str = '', capacity: Union[None, int, str] = None, kv_cache: bool = True,
             fresh_process: bool = False, categories: bool = False) -> Simulation:
    """Run training steps on the model of PyTorch's allocator, and return what they need.

    `model` is a name (see models()), the path of a config.json, or its content. `attention` is
    sdpa, eager, flash, efficient or chunked:N, `checkpoint` none, full, selective or every:K, `loss`
    full or chunked:N; `tessera help simulate` explains each.
    """
    described, name = _description(model)
    core, snapshot = _core.ask('simulate', {
        'model': described, 'batch': batch, 'seq': seq, 'steps': steps, 'accumulate': accumulate,
        'optimizer': optimizer, 'dtype': dtype, 'attention': attention, 'checkpoint': checkpoint,
        'loss': loss, 'gelu': gelu, 'settings': settings or None, 'capacity': capacity or None,
        'no_kv_cache': not kv_cache, 'fresh_process': fresh_process, 'categories': categories,
    }, name)
    return Simulation(core, Snapshot(snapshot))
