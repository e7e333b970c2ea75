"""simulate(): what a training run will need, before anything has run."""
import json
import os
from typing import Any, List, Mapping, Optional, Sequence, Union

from . import _core
from ._answers import Answer, Device, Moment
from ._errors import ArgumentError
from ._snapshot import Snapshot, size_of

_OPTIMIZERS = ('adamw', 'adamw-foreach', 'adamw-fused', 'adamw-loop', 'sgd')
_DTYPES = ('fp32', 'bf16', 'fp16', 'autocast-bf16', 'autocast-fp16')
_ATTENTIONS = ('sdpa', 'eager', 'flash', 'chunked:', 'efficient')
_CHECKPOINTS = ('none', 'full', 'selective', 'every:')
_LOSSES = ('full', 'chunked:')


class SimulationDevice(Device):
    peak: Moment


class Simulation(Answer, SimulationDevice):
    """What the run would need; `snapshot` is what PyTorch would have recorded of it."""

    __slots__ = ('snapshot',)

    devices: Sequence[SimulationDevice]

    def __init__(self, core: Any, snapshot: Snapshot) -> None:
        super().__init__(core)
        self.snapshot = snapshot


def _choice(name: str, text: str, words: 'tuple[str, ...]') -> 'tuple[int, Optional[int]]':
    """The number of one of `words`, and the number after one that ends in a colon."""
    for code, word in enumerate(words):
        rest = text[len(word):]
        if word.endswith(':') and text.startswith(word) and rest.isdigit() and int(rest):
            return code, int(rest)
        if word == text and not word.endswith(':'):
            return code, None
    shown = ', '.join(word + 'N' if word.endswith(':') else word for word in words)
    raise ArgumentError(f'{name} is one of {shown}, not {text!r}')


def models() -> List[str]:
    """Names of models that simulate() knows."""
    return _core.models()


def _description(model: Any) -> 'tuple[str, str, bool]':
    """The model for the library: a text, how answers name it, and whether the text is a name."""
    if isinstance(model, Mapping):
        return json.dumps(dict(model)), str(model.get('model_type', '<config>')), False
    name = os.fspath(model)
    if not isinstance(model, str) or '/' in name or name.lower().endswith('.json'):
        with open(name, encoding='utf-8') as file:
            return file.read(), name, False
    return name, name, True


def simulate(model: Any, *, batch: int = 1, seq: int = 512, steps: int = 3, accumulate: int = 1,
             optimizer: str = 'adamw', dtype: str = 'fp32', attention: str = 'sdpa',
             checkpoint: str = 'none', loss: str = 'full', gelu: str = 'eager',
             settings: str = '', capacity: Union[None, int, str] = None, kv_cache: bool = True,
             fresh_process: bool = False, categories: bool = False) -> Simulation:
    """Run a training step on the model of PyTorch's allocator alone, and tell what it needs.

    `model` is a name (see models()), the path of a config.json, or what is in one. `attention` is
    sdpa, eager, flash, efficient or chunked:N, `checkpoint` none, full, selective or every:K, `loss`
    full or chunked:N; `tessera help simulate` tells of each.
    """
    text, name, is_name = _description(model)
    attention_code, attention_chunk = _choice('attention', attention, _ATTENTIONS)
    checkpoint_code, checkpoint_every = _choice('checkpoint', checkpoint, _CHECKPOINTS)
    counts = {'batch': batch, 'sequence': seq, 'steps': steps, 'accumulate': accumulate}
    if min(counts.values()) < 1:
        raise ArgumentError('batch, seq, steps and accumulate are at least 1')
    core, snapshot = _core.simulate(text, name, is_name, {
        **counts,
        'optimizer': _choice('optimizer', optimizer, _OPTIMIZERS)[0],
        'dtype': _choice('dtype', dtype, _DTYPES)[0],
        'attention': attention_code, 'attention_chunk': attention_chunk,
        'checkpoint': checkpoint_code, 'checkpoint_every': checkpoint_every,
        'loss_chunk': _choice('loss', loss, _LOSSES)[1],
        'gelu_fused': _choice('gelu', gelu, ('eager', 'fused'))[0],
        'no_kv_cache': not kv_cache, 'fresh_process': fresh_process, 'categories': categories,
        'settings': settings, 'capacity_bytes': size_of(capacity),
    })
    return Simulation(core, Snapshot(snapshot))
