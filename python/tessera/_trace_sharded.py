"""One rank of N, traced in one process: DDP and FSDP2 under PyTorch's own fake process group.

A fake process group (torch.testing._internal.distributed.fake_pg) has N ranks and sends nothing. Within ranks() every group that
the program makes is a fake one, this process is rank 0, and the variables that torchrun sets exist. So fully_shard() runs its own
Python code, with the collectives, streams and prefetching of the installed PyTorch. A real run also has NCCL's buffers, which are not
PyTorch's memory and are in no snapshot.

FSDP2 frees an unsharded parameter by making its storage empty, and fills it again for backward (_fsdp_param.py, free_storage and
alloc_storage). Resizing is not an op, so the method of storages is wrapped.
"""
import contextlib
import importlib
import os
import sys
from typing import Any, Callable, Dict, Iterator, Optional

from ._fake_cuda import TraceError, patched
from ._trace_ddp import reducing

# Of torch/distributed/fsdp/_fully_shard: who makes buffers of collectives, and parameters that are gathered.
_SHARDING = ('_fsdp_collectives.py', '_fsdp_param.py')
_COLLECTIVE = ('/torch/distributed/distributed_c10d.py', '/torch/distributed/_functional_collectives.py')
_DATA_PARALLEL = ('/torch/nn/parallel/distributed.py', '/tessera/_trace_ddp.py')
_PROPAGATING = ('_propagate_tensor_meta_non_cached', '_propagate_tensor_meta')  # of DTensor's ShardingPropagator
_FSDP2 = '/torch/distributed/fsdp/_fully_shard/'


def check_whole(model: Any, count: Optional[int]) -> None:
    """Refuse a model or optimizer that exists already: with ranks, the program has to make them."""
    whole = 'give trace() the whole program, which makes the process group, the model and the optimizer and trains three steps: ' \
        'tessera.trace(program, ranks=N)'
    if count is not None:
        raise TraceError(f'a trace of several ranks needs no model: {whole}')
    for kind in {type(module) for module in model.modules()}:
        if any(base.__name__ in ('FSDPModule', 'DistributedDataParallel', 'FullyShardedDataParallel')
               and base.__module__.startswith('torch.') for base in kind.__mro__):
            raise TraceError(f'the model is a {kind.__name__}, made for other ranks: {whole}')


def _role_of(recorder: Any, stack: int) -> str:
    """'communication' if the innermost of the program's lines are those of collectives, or of FSDP2's gathering."""
    for number in recorder.stacks.items[stack]:
        path = recorder.texts.items[recorder.frames.items[number][1]]
        if path == '??':
            continue
        if path.endswith(_COLLECTIVE) or path.endswith(_DATA_PARALLEL):
            return 'communication'
        if _FSDP2 not in path:
            break
        if path.endswith(_SHARDING):
            return 'communication'
    return ''


def _resizing(recorder: Any, original: Callable[..., Any]) -> Callable[..., Any]:
    """UntypedStorage.resize_: frees the storage's memory, and takes new memory."""
    def resize_(storage: Any, size: int) -> Any:
        before = storage.nbytes()
        result = original(storage, size)
        if storage.nbytes() != before:
            recorder.resized(storage)
        return result
    return resize_


def _moving(original: Callable[..., Any]) -> Callable[..., Any]:
    """FSDP2's _move_states_to_device sets `data`, and a fake tensor does not notice that it has moved."""
    def move(params: Any, buffers: Any, device: Any) -> None:
        original(params, buffers, device)
        for tensor in (*params, *buffers):
            if hasattr(tensor, 'fake_device') and tensor.device.type == 'cpu':
                tensor.fake_device = device
    return move


def _apart(recorder: Any, original: Callable[..., Any]) -> Callable[..., Any]:
    """A function of PyTorch that runs ops only to find out shapes."""
    def run(*args: Any, **kwargs: Any) -> Any:
        with recorder.elsewhere():
            return original(*args, **kwargs)
    return run


def _state_of(tracker: Any) -> Any:
    """OffsetBasedRNGTracker._get_device_state: the copy on the card is read back at once, but a trace does not have its values."""
    state = tracker._device_handle.get_rng_state()
    state.to(tracker._device)
    return state


# ---- The process group ----

def _variables(count: int) -> Dict[str, str]:
    """The variables that torchrun sets, for rank 0 of one machine with all ranks."""
    return {'RANK': '0', 'LOCAL_RANK': '0', 'WORLD_SIZE': str(count), 'LOCAL_WORLD_SIZE': str(count), 'GROUP_RANK': '0',
            'ROLE_RANK': '0', 'ROLE_WORLD_SIZE': str(count), 'MASTER_ADDR': '127.0.0.1', 'MASTER_PORT': '29500'}


@contextlib.contextmanager
def _environ(values: Dict[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _refusing(what: str) -> Callable[..., Any]:
    def refuse(*_: Any, **__: Any) -> None:
        raise TraceError(what)
    return refuse


def _without_offload(original: Callable[..., None]) -> Callable[..., None]:
    """FSDPParamGroup.__init__."""
    def make(self: Any, *args: Any, **kwargs: Any) -> None:
        if any(type(arg).__name__ == 'CPUOffloadPolicy' for arg in (*args, *kwargs.values())):
            raise TraceError('CPUOffloadPolicy is not traced: its parameters, gradients and optimizer are on the CPU')
        original(self, *args, **kwargs)
    return make


def _groups(dist: Any, count: int) -> 'tuple[Callable[..., Any], Callable[..., Any]]':
    """init_process_group and new_group, whatever back end they are called with."""
    from torch.testing._internal.distributed.fake_pg import FakeStore
    original, another = dist.init_process_group, dist.new_group

    def init(*_: Any, **__: Any) -> None:
        original('fake', rank=0, world_size=count, store=FakeStore())

    def new_group(ranks: Any = None, timeout: Any = None, backend: Any = None, pg_options: Any = None, **more: Any) -> Any:
        return another(ranks, timeout, None, None, **{key: value for key, value in more.items() if key != 'device_id'})
    return init, new_group


def sharded(torch: Any, recorder: Any, count: Optional[int]) -> contextlib.AbstractContextManager[None]:
    """What a program of `count` ranks needs; None: of one, without a process group."""
    return _alone(torch) if count is None else ranks(torch, recorder, count)


@contextlib.contextmanager
def _alone(torch: Any) -> Iterator[None]:
    if not torch.distributed.is_available():
        yield
        return
    refuse = _refusing('the program makes a process group: trace it as rank 0 of N, with --ranks N (from Python: ranks=N)')
    with patched(torch.distributed, init_process_group=refuse), \
            patched(torch.distributed.distributed_c10d, init_process_group=refuse):
        yield


def _modules(torch: Any) -> None:
    """Import the modules whose functions are replaced. PyTorch 2.9 has all of them."""
    try:
        if not torch.distributed.is_available():
            raise ImportError('it is built without torch.distributed')
        for name in ('distributed._tools.fake_collectives', 'distributed.tensor', 'distributed.fsdp._fully_shard',
                     'testing._internal.distributed.fake_pg'):  # the first: collectives of fake tensors
            importlib.import_module(f'torch.{name}')
    except ImportError as error:
        raise TraceError(f'PyTorch {torch.__version__} has no fully_shard or no fake process groups, which a trace of several '
                         f'ranks needs: {error}') from error


def _changes(torch: Any, recorder: Any, count: int) -> 'Iterator[tuple[Any, Dict[str, Any]]]':
    """By module or class, the attributes that are replaced while the ranks are pretended."""
    dist, c10d, sharding = torch.distributed, torch.distributed.distributed_c10d, torch.distributed.fsdp._fully_shard
    init, new_group = _groups(dist, count)
    names = {'init_process_group': init, 'new_group': new_group}
    mesh = sys.modules['torch.distributed.device_mesh']
    yield dist, names
    yield c10d, {**names, 'rendezvous': _refusing(
        'init_process_group() was imported by its name before the trace began: call torch.distributed.init_process_group()')}
    yield mesh, {name: value for name, value in names.items() if hasattr(mesh, name)}
    move = {'_move_states_to_device': _moving(sharding._fsdp_init._move_states_to_device)}
    yield sharding._fsdp_init, move
    yield sys.modules[f'{sharding.__name__}._fully_shard'], move
    group = sharding._fsdp_param_group.FSDPParamGroup
    yield group, {'__init__': _without_offload(group.__init__)}
    yield dist.fsdp.FullyShardedDataParallel, {'__init__': _refusing(
        'FullyShardedDataParallel (FSDP1) is not traced: use fully_shard (FSDP2)')}
    yield torch.UntypedStorage, {'resize_': _resizing(recorder, torch.UntypedStorage.resize_)}
    propagator = sys.modules['torch.distributed.tensor._sharding_prop'].ShardingPropagator
    yield propagator, {name: _apart(recorder, getattr(propagator, name)) for name in _PROPAGATING if hasattr(propagator, name)}
    numbers = sys.modules['torch.distributed.tensor._random']
    yield numbers, {'_rng_tracker': None}
    yield numbers.OffsetBasedRNGTracker, {'_get_device_state': _state_of}
    dispatch = sys.modules['torch.distributed.tensor._dispatch']
    if hasattr(dispatch, 'run_dtensor_rng_op'):  # newer versions; it only moves the offset of the card's random numbers
        yield dispatch, {'run_dtensor_rng_op': lambda _begin, _end, op, *args, **kwargs: op(*args, **kwargs)}
    device = torch.device('cuda')
    yield torch._C, {'_get_accelerator': lambda *_: device}
    yield torch.cuda, {'device_count': lambda: count, 'is_initialized': lambda: True}


@contextlib.contextmanager
def ranks(torch: Any, recorder: Any, count: int) -> Iterator[None]:
    """Within it this process is rank 0 of `count`."""
    if count < 1:
        raise TraceError(f'ranks must be at least 1, not {count}')
    _modules(torch)
    dist, hook = torch.distributed, sys.excepthook
    if dist.is_initialized():
        raise TraceError('there is a process group already: a trace of several ranks makes its own')
    recorder.role_of, recorder.is_sharded = lambda stack: _role_of(recorder, stack), True
    with contextlib.ExitStack() as stack:
        for owner, changed in _changes(torch, recorder, count):
            stack.enter_context(patched(owner, **changed))
        stack.enter_context(_environ(_variables(count)))
        stack.enter_context(reducing(torch))
        try:
            yield
            if not dist.is_initialized():
                raise TraceError(f'the program makes no process group, so it is not one of {count} ranks')
        finally:
            sys.excepthook = hook  # init_process_group() adds the rank to messages
            if dist.is_initialized():
                dist.destroy_process_group()
