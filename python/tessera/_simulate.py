"""simulate(): what a training run will need, before anything has run."""
import json
import os
from typing import Any, List, Mapping, Optional, Tuple, Union

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


def _description(model: Any) -> 'tuple[Any, str]':
    """The model for the library, a name or a file's name and text; and how answers name it."""
    if isinstance(model, Mapping):
        name = str(model.get('model_type', '<config>'))
        return (name, json.dumps(dict(model))), name
    name = os.fspath(model)
    if not isinstance(model, str) or '/' in name or name.lower().endswith(('.json', '.graph')):
        with open(name, encoding='utf-8') as file:
            return (name, file.read()), name
    return name, name


def _plan(plan: Any) -> 'Optional[tuple[str, str]]':
    """A file of JSON for the library: its name and text."""
    if plan is None:
        return None
    if isinstance(plan, Mapping):
        return '<plan>', json.dumps(dict(plan))
    with open(plan, encoding='utf-8') as file:
        return os.fspath(plan), file.read()


def simulate(model: Any, *, batch: Optional[int] = None, seq: Optional[int] = None,
             steps: Optional[int] = None, eval_steps: Optional[int] = None, eval_batch: Optional[int] = None,
             accumulate: Optional[int] = None,
             optimizer: Optional[str] = None, dtype: Optional[str] = None,
             attention: Optional[str] = None, checkpoint: Optional[str] = None,
             loss: Optional[str] = None, gelu: Optional[str] = None, book: Optional[str] = None,
             micro_batch: Optional[int] = None, accumulation: Optional[str] = None,
             backward: Optional[str] = None, checkpoint_form: Optional[str] = None,
             plan: Union[None, str, Mapping[str, Any]] = None,
             offload: Optional[str] = None, in_place: Optional[str] = None, leak: Optional[str] = None,
             clip: Union[None, float, str] = None, master_weights: bool = False,
             loss_scale: Optional[int] = None, loss_scale_window: Optional[int] = None,
             optimizer_in_backward: bool = False, ranks: Optional[int] = None, zero: Optional[int] = None,
             rank: Optional[int] = None, bucket: Optional[int] = None, no_overlap: bool = False, profile: bool = False, top: Optional[int] = None,
             gpu: Optional[str] = None,
             rates: Union[None, str, Mapping[str, Any]] = None, link: Optional[str] = None,
             settings: Optional[str] = None, capacity: Union[None, int, str] = None,
             checkpoint_modules: Optional[str] = None, offload_modules: Optional[str] = None,
             optimizer_form: Optional[str] = None,
             kv_cache: bool = True, fresh_process: bool = False, categories: bool = False,
             **more: Any) -> Simulation:
    """Run training steps on the model of PyTorch's allocator, and return what they need.

    `model` is a name (see models()), the path of a config.json, or its content. What is not given has
    the command's default. `plan` and `rates` are paths of such files, or their contents.
    """
    described, name = _description(model)
    core, snapshot = _core.ask('simulate', {
        'model': described, 'batch': batch, 'seq': seq, 'steps': steps, 'eval_steps': eval_steps,
        'eval_batch': eval_batch, 'accumulate': accumulate,
        'optimizer': optimizer, 'dtype': dtype, 'attention': attention, 'checkpoint': checkpoint,
        'loss': loss, 'gelu': gelu, 'book': book, 'micro_batch': micro_batch,
        'accumulation': accumulation,
        'backward': backward, 'checkpoint_form': checkpoint_form, 'plan': _plan(plan),
        'clip': None if clip is None else str(clip), 'master_weights': master_weights or None,
        'loss_scale': loss_scale, 'loss_scale_window': loss_scale_window,
        'optimizer_in_backward': optimizer_in_backward or None, 'ranks': ranks, 'zero': zero, 'rank': rank, 'bucket': bucket,
        'no_overlap': no_overlap or None, 'profile': profile or None, 'top': top, 'gpu': gpu,
        'rates': _plan(rates), 'link': link,
        'checkpoint_modules': checkpoint_modules, 'offload_modules': offload_modules, 'optimizer_form': optimizer_form,
        'offload': offload, 'in_place': in_place, 'leak': leak, 'settings': settings or None, 'capacity': capacity or None,
        'no_kv_cache': not kv_cache or None, 'fresh_process': fresh_process or None, 'categories': categories or None,
        **more,
    }, name)
    assert snapshot is not None
    return Simulation(core, Snapshot(snapshot))


simulate.__doc__ = (simulate.__doc__ or '') + '\n' + '\n'.join(
    f'    {name}: {text}' + (f' One of {", ".join(choices)}.' if choices else '')
    for name, text, choices in _core.question('simulate')[2] if name != 'model') + '\n'
