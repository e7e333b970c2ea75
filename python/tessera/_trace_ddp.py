"""DistributedDataParallel's buckets in a trace, whose C++ Reducer needs a device.

The Reducer (torch/csrc/distributed/c10d/reducer.cpp) records CUDA events from its first iterations on, which fake tensors do not
have. What it allocates follows a few rules, which Reducer below repeats in Python:

- A bucket is one tensor of all gradients in it (initialize_buckets). The constructor makes those that it is given: since DDP
  passes no limit unless it looks for unused parameters, all parameters of one type are in one bucket.
- Before the forward that follows the first backward with hooks the buckets are made again (rebuild_buckets): of about 1 MiB for the
  first one and bucket_cap_mb, 25 MiB, for others, in the order in which gradients came. The old buckets are freed first. A static graph
  has its hooks from the second backward on. With find_unused_parameters, the first buckets stay.
- A gradient that is ready is copied into its bucket (mark_variable_ready_dense). Afterwards the bucket is copied back, or, with
  gradient_as_bucket_view, the gradient becomes a view of it. All-reduce works in the bucket.
- Buffers of modules are broadcast before forward in flat copies (comm.cpp, broadcast_coalesced).
"""
import contextlib
import sys
from typing import Any, Callable, Iterator, List, Set

from ._fake_cuda import TraceError, patched

_BROADCAST_BYTES = 250 << 20  # DistributedDataParallel.broadcast_bucket_size
_IN_FLIGHT = 2  # broadcast_coalesced


class _Bucket:
    """A tensor that contains the gradients of these parameters, one after the other."""

    def __init__(self, torch: Any, params: List[Any]) -> None:
        self.contents = torch.empty(sum(param.numel() for param in params), dtype=params[0].dtype, device=params[0].device)
        self.views = {}
        at = 0
        for param in params:
            self.views[id(param)] = self.contents.as_strided(param.shape, param.stride(), at)
            at += param.numel()


class Reducer:
    """The part of the C++ class of this name that DistributedDataParallel calls."""

    def __init__(self, params: List[Any], buckets: List[List[int]], limits: Any, group: Any, is_sparse: List[bool],
                 bucket_bytes: int, finds_unused: bool, is_view: bool, names: Any, first_bytes: int, *more: Any,
                 **named: Any) -> None:
        torch = sys.modules['torch']
        self.torch, self.params, self.names, self.limits = torch, params, names, [first_bytes, bucket_bytes]
        self.is_view, self.finds_unused, self.is_static = is_view, finds_unused, False
        self.expects = self.has_rebuilt = False
        self.iteration = 0
        self.ready: Set[int] = set()  # in the current backward
        self.used_first: Set[int] = set()  # by the first iteration of a static graph
        self.order: List[int] = []  # in which gradients came first
        self.buckets: List[_Bucket] = []
        if any(is_sparse):
            raise TraceError('DistributedDataParallel with sparse gradients is not traced')
        # Newer arguments, of 2.15: limits of each bucket; gradients copied together; buckets that come and go.
        _, _, per_bucket, *options = (*more, *[None] * 5)[:5]
        if any(options) or any(named.values()):
            raise TraceError('DistributedDataParallel with batched_grad_copy or lazy_bucket_allocation is not traced')
        self.limits = per_bucket or self.limits
        self._make(buckets)
        self.used = torch.empty(len(params), dtype=torch.int32, device=params[0].device) if finds_unused else None
        for i, param in enumerate(params):
            param.register_post_accumulate_grad_hook(lambda _, i=i: self._hook(i))

    def _make(self, indices: List[List[int]]) -> None:
        """initialize_buckets. Gradients that are views become views of the new bucket."""
        self.buckets = []
        with self.torch.no_grad():
            for bucket in indices:
                params = [self.params[i] for i in bucket]
                self.buckets.append(_Bucket(self.torch, params))
                for param in params if self.is_view else ():
                    if param.grad is not None:
                        param.grad = self.buckets[-1].views[id(param)]

    def _hook(self, index: int) -> None:
        """autograd_hook: the gradient of a parameter is there."""
        if not self.expects:
            return  # within no_sync()
        if self.is_static and self.iteration == 1:
            self.used_first.add(index)
            return  # until _delay_all_reduce
        if not self.ready:
            self.torch.autograd.Variable._execution_engine.queue_callback(self._end)
            for unused in set(range(len(self.params))) - self.used_first if self.is_static else ():
                self._mark_ready(unused)
        self._mark_ready(index)

    def _mark_ready(self, index: int) -> None:
        self.ready.add(index)
        if self._may_rebuild():
            self.order.append(index)
        self._view(self.params[index])

    def _view(self, param: Any) -> None:
        if self.is_view and param.grad is not None:
            param.grad = next(bucket.views[id(param)] for bucket in self.buckets if id(param) in bucket.views)

    def _end(self) -> None:
        self.expects = False

    def _may_rebuild(self) -> bool:
        return not self.has_rebuilt and (self.is_static or not self.finds_unused)

    def prepare_for_forward(self) -> None:
        self.iteration += 1

    def prepare_for_backward(self, _outputs: List[Any]) -> None:
        if self.ready and len(self.ready) < len(self.params) and not self.finds_unused:
            unused = [self.names[i] for i in range(len(self.params)) if i not in self.ready]
            raise TraceError(f'{len(unused)} parameters got no gradient, the first is {unused[0]}: DistributedDataParallel needs '
                             'find_unused_parameters=True')
        self.expects, self.ready = True, set()

    def _rebuild_buckets(self) -> bool:
        if not self._may_rebuild() or not self.order:
            return False
        self.has_rebuilt = True
        rebuilt, _ = self.torch.distributed._compute_bucket_assignment_by_size(
            [self.params[i] for i in self.order], self.limits, [], self.order)
        self.buckets = []
        self._make(rebuilt)
        return True

    def _set_static_graph(self) -> None:
        self.is_static = True

    def _delay_all_reduce(self) -> None:
        """The first backward with static_graph ends."""
        for param in self.params:
            self._view(param)
        self.expects = False

    def _push_all_rebuilt_params(self) -> None:
        if self._may_rebuild() and not self.order:
            self.order = list(range(len(self.params)))

    def _nothing(self, *_: Any, **__: Any) -> None:
        pass

    set_logger = _set_forward_pass_work_handle = _remove_autograd_hooks = _check_reducer_finalized = \
        _set_ddp_runtime_logging_sample_rate = _reset_state = _nothing

    def __getattr__(self, name: str) -> Any:
        raise TraceError(f'what DistributedDataParallel does with {name} is not traced')


class _Logger:
    """Notes nothing."""

    def __init__(self, *_: Any) -> None:
        pass

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *_, **__: None


def _broadcasting(torch: Any) -> Callable[..., None]:
    def flat(tensors: List[Any]) -> Any:
        flattened = [tensor.contiguous().view(-1) for tensor in tensors]
        return flattened[0] if len(flattened) == 1 else torch.cat(flattened)

    def broadcast(_group: Any, tensors: List[Any], buffer_bytes: int = _BROADCAST_BYTES, _source: int = 0) -> None:
        indices, _ = torch.distributed._compute_bucket_assignment_by_size(tensors, [buffer_bytes])
        flying: List[Any] = []
        for bucket in indices:
            flying.append(flat([tensors[i] for i in bucket]))
            if len(flying) == _IN_FLIGHT:
                flying.pop(0)
    return broadcast


def _refuse_hook(*_: Any, **__: Any) -> None:
    raise TraceError('DistributedDataParallel with a communication hook is not traced')


@contextlib.contextmanager
def reducing(torch: Any) -> Iterator[None]:
    """Within it, DistributedDataParallel has the Reducer of this file."""
    from torch.nn.parallel import distributed as parallel
    nothing = {name: lambda *_, **__: None for name in ('_verify_param_shape_across_processes', '_sync_module_states')
               if hasattr(parallel, name)}
    with patched(torch.distributed, Reducer=Reducer, Logger=_Logger, _broadcast_coalesced=_broadcasting(torch),
                 _register_comm_hook=_refuse_hook, _register_builtin_comm_hook=_refuse_hook), patched(parallel, **nothing):
        yield
