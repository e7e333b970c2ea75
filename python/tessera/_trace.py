"""trace(): one training step on fake tensors, written as a step graph.

    tessera.trace(step, model=model, optimizer=optimizer, path='step.graph')

`step` runs one training step as the program would: zero_grad, forward, backward, optimizer. It is called three times. The
first call makes the tensors that stay (the optimizer's state); the second and the third have to do the same, and the third is
written as the step that repeats. Tensors on 'cuda' are fake: nothing is computed and no memory is taken, but they have the
shapes and lifetimes of real ones. Tensors on the CPU are real, so the program's data do not change. _script.py does the same
with a whole script, which it cuts into steps.

The trace contains each storage, with its bytes, from the op that makes it to its last reference; the Python lines and the
autograd node that made it; and which storages are parameters, gradients and optimizer state. docs/step-graph.md describes
the file.

These differences between fake and real tensors are corrected here. Autograd adds gradients of a subclass of Tensor into a new
tensor, but real gradients into the first one if nothing else holds its storage (input_buffer.cpp, can_accumulate_inplace).
The kernel that computes attention depends on the card (sdp_utils.cpp), which fake tensors do not have; where no fused kernel
fits, the mask is added to real scores in place, but to those of a subclass in a new tensor (attention.cpp). And some ops are
composed of others below autograd, where PyTorch does not show them, or replaced for fake tensors by a decomposition in Python.
"""
import contextlib
import ctypes
import functools
import gc
import json
import os
import random
import re
import sys
import traceback
import weakref
from typing import Any, Callable, Dict, Iterator, List, Optional, Set, Tuple, Union

from . import _trace_forms
from ._fake_cuda import CARDS, Card, TraceError, answer_for_driver, patched, pretend, stream_number
from ._trace_effects import Noted, why_once
from ._trace_kernels import faked, sizes_of
from ._trace_model import Fake, elements, fake_of, parts
from ._trace_quantised import Library, is_wrapper, parts_of, wraps
from ._trace_routing import Counts, NoRouting, Routing, forget, one_hot
from ._trace_saved import Saved
from ._trace_sharded import check_whole
from ._trace_work import Work

SCHEMA = 'tessera-step/1'
PHASES = ('step', 'zero_grad', 'forward', 'backward', 'optimizer')
CALLS = 3
HERE = os.path.dirname(__file__) + os.sep
CAST = 'at::autocast::cached_cast'


class _Texts:
    """Numbers values; equal values get the same number."""

    def __init__(self) -> None:
        self.items: List[Any] = []
        self._numbers: Dict[Any, int] = {}

    def number(self, item: Any) -> int:
        known = self._numbers.setdefault(item, len(self.items))
        if known == len(self.items):
            self.items.append(item)
        return known


def _is_ours(path: str) -> bool:
    """Whether a frame belongs to tracing itself: a real run would not have it."""
    return path.startswith(HERE) or '/torch/_subclasses/' in path or '/torch/utils/_python_dispatch' in path \
        or '/torch/_ops.py' in path or '/torch/overrides.py' in path or '/torch/utils/_stats.py' in path \
        or '/torch/_prims' in path or '/torch/_decomp' in path or '/torch/_meta_registrations' in path \
        or '/torch/utils/_pytree' in path or path.startswith('<frozen')


def _is_wrapper(path: str) -> bool:
    """Whether a frame is a wrapper through which newer versions of PyTorch call a mode. Optimizers are wrapped by them, too."""
    return path.endswith('/torch/_compile.py') or path.endswith('/torch/_dynamo/eval_frame.py')


def _program_frame(frame: Any) -> Any:
    """The innermost frame that does not belong to tracing itself."""
    while frame is not None and (_is_ours(frame.f_code.co_filename) or _is_wrapper(frame.f_code.co_filename)):
        frame = frame.f_back
    return frame


def _is_library(path: str) -> bool:
    return any(path.startswith(folder) for folder in sys.modules['torch'].__path__) or '-packages/' in path or _is_ours(path)


class _Recorder:
    """Notes storages as they are made and freed. It is not a mode itself: _mode() creates the mode that calls it."""

    def __init__(self, torch: Any) -> None:
        self.torch = torch
        self.texts, self.frames, self.stacks = _Texts(), _Texts(), _Texts()
        self.bytes: List[int] = []
        self.roles: List[str] = []
        self.born: List[Tuple[int, str]] = []  # in which call, and phase
        self.dead: List[bool] = []
        self.streams: List[int] = []
        self.role_of: Callable[[int], str] = lambda stack: ''  # that a stack shows; see _trace_sharded.py
        self.is_sharded = False  # parameters come and go, so that modules cannot be checkpointed in the graph
        self.call = -1
        self.phase: List[str] = ['step']
        self.events: List[Tuple[Any, ...]] = []  # of the current call
        self.calls: List[List[Tuple[Any, ...]]] = []
        self.work: List[Tuple[int, int, int, int]] = []  # of the current call: its place among events, and Work.of()
        self.kernels: List[Tuple[int, int, int, List[int]]] = []  # of the current call: events of an op's results, and sizes_of()
        self.is_loading = True  # what the step makes now is for the next forward
        self._of: Dict[int, int] = {}  # number of a live storage, by its address in libtorch
        self._shares: List[int] = []  # of each storage: how many there are in its place, with the twins of _trace_saved
        self._first: List[int] = []  # of each storage: the address of the one that the program has
        self.unheld: Dict[int, int] = {}  # when that one has gone: a number of events in its call
        self.static_count = 0
        self.saved: Any = None  # a _trace_saved.Saved
        self.autocast: List[bool] = []  # regions of it that the program is in: whether they switch it on
        self.modules: Any = weakref.WeakSet()  # that the step called itself
        self.after_phase: Callable[[], None] = lambda: None  # called when the step itself goes on
        self.noted = Noted()  # of the current call
        self.stepped: List[_trace_forms.Step] = []  # steps of optimizers in the current call
        self.until: Any = None  # code outside of which a stack continues with the frames of `outer`
        self.outer: Tuple[int, ...] = ()
        self.apart = 0  # how many times PyTorch has begun to run ops for itself, which take no memory; see elsewhere()
        self.host: Optional[_Host] = None  # if devices are not the program's
        self.is_over = False
        self.is_composing = False  # attention of other ops than its kernels
        self.is_compiled = False  # the program calls code of torch.compile
        self.routing: Any = Routing(torch, None)
        self.on_host = ''  # of a program: the line that puts its model on the CPU, and what it does
        self.told: List[bool] = []  # what PyTorch's own code reads next from the GPU, the last first

    @contextlib.contextmanager
    def elsewhere(self) -> Iterator[None]:
        """Within it, ops are run to find out shapes, on fake tensors in a real run, too."""
        self.apart += 1
        try:
            yield
        finally:
            self.apart -= 1

    def beside(self) -> '_Recorder':
        """Another recorder, which shares this one's stacks, and for which all existing storages are static."""
        out = _Recorder(self.torch)
        out.texts, out.frames, out.stacks = self.texts, self.frames, self.stacks
        for key, number in self._of.items():
            out._of[key] = len(out.bytes)
            out._add(self.bytes[number], self.roles[number], key, self.streams[number])
        return out

    # ---- storages ----

    def _innermost(self, tensor: Any) -> Any:
        """The tensor that the wrappers of torch.vmap contain, which have no storage and no history of their own."""
        functorch = self.torch._C._functorch
        while functorch.is_functorch_wrapped_tensor(tensor):
            tensor = functorch.get_unwrapped(tensor)
        return tensor

    def number_of(self, tensor: Any) -> Optional[int]:
        tensor = self._innermost(tensor)
        if is_wrapper(tensor):  # such as a DTensor
            return next(filter(lambda number: number is not None, map(self.number_of, parts_of(tensor))), None)
        tensor = tensor._values() if tensor.is_sparse else tensor
        return self._of.get(tensor.untyped_storage()._cdata)

    def see(self, tensor: Any, op: str, role: str = '') -> None:
        """Note the storage of a tensor that an op returned, unless it is known already."""
        if is_wrapper(tensor):
            for part in parts_of(tensor):
                self.see(part, op, role)
            return
        if tensor.device.type == 'cuda' and tensor.is_sparse:
            self.see(tensor._indices(), op, role)
            self.see(tensor._values(), op, role)
        if tensor.device.type != 'cuda' or tensor.layout != self.torch.strided:
            return
        self.see_storage(tensor.untyped_storage(), op, role)

    def see_storage(self, storage: Any, op: str, role: str = '') -> None:
        key = storage._cdata
        if key in self._of:
            return
        number, size = len(self.bytes), storage.nbytes()
        if not isinstance(size, int):
            raise TraceError(f'{op} makes a tensor whose size depends on its data')
        if not size:
            return  # takes no memory
        stack = self.stack(op)
        self._add(size, role or self.role_of(stack), key, stream_number())
        self._watch(storage, number)
        self.events.append(('+', number, stack))

    def _add(self, size: int, role: str, key: int, stream: int) -> None:
        self.bytes.append(size)
        self.roles.append(role)
        self.streams.append(stream)
        self.born.append((self.call, self.phase[-1]))
        self.dead.append(False)
        self._shares.append(0)
        self._first.append(key)

    def _watch(self, storage: Any, number: int) -> None:
        self._of[storage._cdata] = number
        self._shares[number] += 1
        weakref.finalize(storage, self._gone, storage._cdata, number).atexit = False

    def _gone(self, key: int, number: int) -> None:
        if self.is_over or self._of.get(key) != number:
            return
        del self._of[key]
        self._shares[number] -= 1
        if key == self._first[number]:
            if self._shares[number]:
                self.unheld[number] = len(self.events)
            self._first[number] = 0  # others may come to this address
        if not self._shares[number]:
            self.dead[number] = True
            self.events.append(('-', number))

    def share(self, tensor: Any, number: int) -> None:
        """Note another storage in the same memory."""
        self._watch(tensor.untyped_storage(), number)

    def resized(self, storage: Any) -> None:
        """Note that a storage has other memory now, or none."""
        number = self._of.pop(storage._cdata, None)
        self.see_storage(storage, 'resize_')
        if number is not None and not self.dead[number]:
            self.dead[number] = True
            self.events.append(('-', number))

    def check_device(self) -> None:
        """Refuse a program that computes a loss of a model on the CPU, and nothing on a GPU."""
        if not self.bytes and self.on_host:
            raise TraceError(f'{self.on_host} on the cpu, and a trace records what a step allocates on a GPU: put the model and its data on '
                             "'cuda' there, where a trace needs no GPU and torch.cuda.is_available() is true")

    def is_static(self, number: int) -> bool:
        """Whether a storage existed before the step, as far as is known."""
        return number < self.static_count or self.roles[number] in ('parameter', 'buffer')

    def keep_activations(self) -> None:
        """Backward begins: storages that forward left are activations."""
        for number in self._of.values():
            if not self.roles[number] and self.born[number][0] == self.call and self.born[number][1] in ('step', 'forward'):
                self.roles[number] = 'activation'

    def keep_inputs(self, tensors: List[Any]) -> None:
        """Forward begins: storages that the step made before it are its batch, and so are the tensors that it is called with."""
        for number in self._of.values():
            if self.is_loading and not self.roles[number] and self.born[number] == (self.call, 'step'):
                self.roles[number] = 'input'
        for tensor in map(self._innermost, tensors):
            given = self.number_of(tensor)
            if given is not None and not self.roles[given] and tensor.grad_fn is None:
                self.roles[given] = 'input'

    def mark(self, tensor: Any, role: str) -> None:
        if tensor is not None and is_wrapper(tensor):
            for part in parts_of(tensor):
                self.mark(part, role)
            return
        number = self.number_of(tensor) if tensor is not None else None
        if number is not None:
            self.roles[number] = role

    def mark_state(self, optimizers: List[Any]) -> None:
        for optimizer in optimizers:
            for state in optimizer.state.values():
                for value in state.values():
                    if isinstance(value, self.torch.Tensor):
                        self.mark(value, 'optimizer_state')

    def own(self, module: Any) -> None:
        """The step calls a module, so the module's tensors belong to the model."""
        if module in self.modules:
            return
        self.modules.add(module)
        for tensor in module.buffers():
            self.mark(tensor, 'buffer')
        for param in module.parameters():
            for _, _, part in parts(param):
                self.mark(part, 'buffer')
        for param in module.parameters():
            self.mark(param, 'parameter')

    def mark_gradients(self, optimizer: Any) -> None:
        for group in optimizer.param_groups:
            for param in group['params']:
                self.mark(param.grad, 'gradient')

    def begin_call(self) -> None:
        self.call += 1
        self.is_loading = True
        self.events = []
        self.work = []
        self.kernels = []
        self.unheld = {}
        self.stepped = []
        self.noted = Noted()
        if self.saved:
            self.saved.begin_call()
        gc.collect()  # what only the collector frees goes here, each time; see _process()
        self.events.append(('(', 0))

    def end_call(self) -> None:
        self.events.append((')', 0))
        self.calls.append(self.events)

    def ordinal(self, index: int) -> str:
        """The ordinal of one of the calls, for messages."""
        number = len(self.calls) + index + 1
        return {2: 'second', 3: 'third'}.get(number, f'{number}th')

    # ---- where the program is ----

    def stack(self, op: str) -> int:
        """Numbers of the current frames, innermost first: the op, autocast if it casts, the autograd node, and the Python frames."""
        out = [self._frame(f'at::_ops::{op}::call', '??', 0)]
        if self._is_of_autocast(op):
            out.append(self._frame(CAST, '??', 0))
        node = self.torch._C._current_autograd_node()
        if self.phase[-1] == 'backward' and node is not None:
            out.append(self._frame(f'torch::autograd::generated::{node.name()}::apply', '??', 0))
        if self.phase[-1] == 'backward':
            out.append(self._frame('torch::autograd::Engine::evaluate_function', '??', 0))
        python, end = self._python(_program_frame(sys._getframe(1)))
        end = None if end is None else len(out) + end
        return self.stacks.number(tuple([*out, *python][:end]))

    def _python(self, frame: Any) -> 'tuple[List[int], Optional[int]]':
        """The frames from one outwards, and how many of them are on its thread."""
        out: List[int] = []
        end = None
        while frame is not None:
            path = frame.f_code.co_filename
            if frame.f_code is self.until:
                return [*out, *self.outer], end
            if frame.f_code.co_name == '_engine_run_backward':
                end = len(out)  # of the outermost: backward is really in a thread of its own
            if not _is_ours(path):
                out.append(self._frame(frame.f_code.co_name, path, frame.f_lineno))
            frame = frame.f_back
        return out, end

    def _is_of_autocast(self, op: str) -> bool:
        """Whether autocast is casting the arguments of an op: its kernels exclude themselves then. It is also excluded where it is off."""
        return op == '_to_copy' and bool(self.autocast and self.autocast[-1]) and bool(self.torch._C._dispatch_tls_is_dispatch_key_excluded('AutocastCUDA'))

    def is_cast(self, op: str, args: Tuple[Any, ...]) -> bool:
        """Whether autocast copies a weight."""
        number = self.number_of(args[0]) if self._is_of_autocast(op) else None
        return number is not None and self.roles[number] == 'parameter'

    def line_of(self, stack: int) -> str:
        """The program's own line of a stack, for messages: the innermost that is not PyTorch's."""
        for number in self.stacks.items[stack]:
            _, file, line = self.frames.items[number]
            path = self.texts.items[file]
            if path != '??' and not _is_library(path):
                return f'{path}:{line}'
        return 'the step'

    def _frame(self, name: str, path: str, line: int) -> int:
        return self.frames.number((self.texts.number(name), self.texts.number(path), line))

    @contextlib.contextmanager
    def within(self, phase: str) -> Iterator[None]:
        self.phase.append(phase)
        self.events.append(('(', PHASES.index(phase)))
        try:
            yield
        finally:
            self.events.append((')', PHASES.index(phase)))
            self.phase.pop()
            self.is_loading = phase != 'forward'  # a loss may follow
        if phase != 'step' and self.phase[-1] == 'step':
            self.after_phase()


# ---- Sums of gradients ----

def _references(tensor: Any) -> 'tuple[int, int]':
    """Reference counts of the TensorImpl (its count follows the pointer to its vtable) and of its storage."""
    count = ctypes.c_uint32.from_address(tensor._cdata + ctypes.sizeof(ctypes.c_void_p)).value
    return count, sys.modules['torch']._C._storage_Use_Count(tensor.untyped_storage()._cdata)


def _is_added_by_autograd(torch: Any, func: Any, args: Any) -> bool:
    """Whether the engine itself is adding two gradients: then no Python function called it, on autograd's thread or in its loop."""
    if func is not torch.ops.aten.add.Tensor or len(args) != 2 or not all(isinstance(arg, torch.Tensor) for arg in args):
        return False
    if torch._C._current_autograd_node() is None or args[0].shape != args[1].shape:
        return False
    frame = _program_frame(sys._getframe(1))
    return frame is None or frame.f_code.co_name == '_engine_run_backward'


class _Sole:
    """The reference count of a gradient that only autograd's buffer holds. It depends on the versions of PyTorch and Python,
    so it is measured: the second of two equal terms is added to the first."""

    def __init__(self) -> None:
        self.references: Optional['tuple[int, int]'] = None

    def holds(self, tensor: Any) -> bool:
        return tensor._base is None and _references(tensor) == self.references


# ---- Attention ----

def _attention_of(torch: Any, card: Card, q: Any, k: Any, v: Any, mask: Any, dropout: float, causal: bool, scale: Any,
                  gqa: bool) -> Optional[Callable[[], Any]]:
    """The kernel that scaled_dot_product_attention chooses on the card (aten/src/ATen/native/transformers/cuda/
    sdp_utils.cpp), or None if it is composed of other ops."""
    half = q.dtype in (torch.float16, torch.bfloat16)
    if q.dim() != 4 or q.dtype != k.dtype or q.dtype != v.dtype or not (half or q.dtype == torch.float32):
        return None
    same = q.shape[-3] == k.shape[-3] == v.shape[-3]
    shifted = causal and q.shape[-2] != k.shape[-2]
    backend, width = torch.backends.cuda, q.shape[-1]
    can_flash = half and mask is None and card.capability >= (8, 0) and width <= 256 and width == v.shape[-1] and (same or gqa) and not shifted
    can_save = same and not width % (8 if half else 4) and not v.shape[-1] % (8 if half else 4)
    can_cudnn = half and card.capability >= (8, 0) and not width % 8 and not v.shape[-1] % 8 and (same or gqa) and not shifted
    given = (torch, q, k, v, dropout, causal, scale)
    for kernel in _priorities(torch, card):
        if kernel == _FLASH and can_flash and backend.flash_sdp_enabled():
            return functools.partial(_flash, *given)
        if kernel == _EFFICIENT and can_save and backend.mem_efficient_sdp_enabled():
            return functools.partial(_efficient, *given, mask)
        if kernel == _MATH and backend.math_sdp_enabled():
            return None
        if kernel == _CUDNN and can_cudnn and backend.cudnn_sdp_enabled():
            raise TraceError(f'{_program_line(sys._getframe(1))} computes attention with cuDNN on this card, of which PyTorch does not know how much '
                             'memory it works in. With torch.backends.cuda.enable_cudnn_sdp(False), and without CUDNN_ATTENTION in sdpa_kernel(), '
                             'PyTorch\'s own kernels run and can be traced')
    return None


_MATH, _FLASH, _EFFICIENT, _CUDNN = range(4)  # at::SDPBackend


def _priorities(torch: Any, card: Card) -> List[int]:
    """The kernels of attention in the order in which they are tried. From 2.10 on, cuDNN's comes first on some cards if cuDNN is new."""
    order = list(torch._C._get_sdp_priority_order()) if hasattr(torch._C, '_get_sdp_priority_order') else []
    order = order or [_FLASH, _EFFICIENT, _MATH, _CUDNN]
    version = tuple(map(int, torch.__version__.split('.')[:2]))
    is_preferred = version >= (2, 10) and (torch.backends.cudnn.version() or 0) > 91500 and card.capability[0] in (9, 10) \
        and os.environ.get('TORCH_CUDNN_SDPA_DEPRIORITIZED') != '1'
    return [_CUDNN, *order] if is_preferred and order[0] == _FLASH else order


def _flash(torch: Any, q: Any, k: Any, v: Any, dropout: float, causal: bool, scale: Any) -> Any:
    width = q.shape[-1]
    pad = -width % 8
    grown = [torch.nn.functional.pad(x, (0, pad)) if pad else x for x in (q, k, v)]
    out = torch.ops.aten._scaled_dot_product_flash_attention(*grown, dropout, causal, False, scale=width ** -0.5 if scale is None else scale)[0]
    return out[..., :width] if pad else out


def _efficient(torch: Any, q: Any, k: Any, v: Any, dropout: float, causal: bool, scale: Any, mask: Any) -> Any:
    bias = mask
    if bias is not None and bias.dtype == torch.bool:  # as _convert_boolean_attn_mask does
        bias = torch.where(bias.logical_not(), float('-inf'), torch.zeros((), dtype=q.dtype, device=q.device))
    if bias is not None:
        over = -bias.shape[-1] % 16  # pad_bias: rows are aligned
        if over:
            bias = torch.nn.functional.pad(bias, (0, over))[..., :bias.shape[-1]]
        bias = bias.expand(q.shape[0], q.shape[1], q.shape[2], k.shape[2])
    grad = torch.is_grad_enabled() and any(x.requires_grad for x in (q, k, v))
    return torch.ops.aten._scaled_dot_product_efficient_attention(q, k, v, bias, grad, dropout, causal, scale=scale)[0]


def _cast(torch: Any, tensor: Any) -> Any:
    """Cast the arguments of attention as autocast does."""
    is_cast = tensor is not None and tensor.is_floating_point() and tensor.is_cuda and tensor.dtype != torch.float64
    return tensor.to(torch.get_autocast_dtype('cuda')) if is_cast else tensor


def _attention(torch: Any, card: Card, recorder: _Recorder) -> 'Tuple[Any, Callable[..., Any]]':
    """A mode in which attention runs the card's kernel, whatever function a program calls for it; and the function that it calls
    instead, for PyTorch's own modules, which no mode sees."""
    from torch.overrides import TorchFunctionMode
    original = torch.nn.functional.scaled_dot_product_attention

    def attend(query: Any, key: Any, value: Any, attn_mask: Any = None, dropout_p: float = 0.0, is_causal: bool = False,
               scale: Optional[float] = None, enable_gqa: bool = False) -> Any:
        if torch.is_autocast_enabled('cuda'):
            query, key, value, attn_mask = (_cast(torch, x) for x in (query, key, value, attn_mask))
        chosen = _attention_of(torch, card, query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa)
        if chosen:
            return chosen()
        recorder.is_composing = True
        try:
            with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):  # and no question to the card
                return original(query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa)
        finally:
            recorder.is_composing = False

    class Attention(TorchFunctionMode):  # type: ignore[misc]
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            is_ours = func is original and not recorder.is_composing
            if func is torch.nn.functional.one_hot and args[0].device.type == 'cuda':
                return one_hot(torch, *args, **(kwargs or {}))
            if kwargs and kwargs.get('pin_memory') is True:  # memory of the CPU, which only a driver can pin
                kwargs = {**kwargs, 'pin_memory': False}
            if func in (torch.tensor, torch.as_tensor) and args and isinstance(args[0], (list, tuple)):
                args, kwargs = _read_numbers(torch, args, kwargs or {})
            return (attend if is_ours else func)(*args, **(kwargs or {}))

    return Attention(), attend


def _read_numbers(torch: Any, args: Any, kwargs: Dict[str, Any]) -> Tuple[Any, Dict[str, Any]]:
    """The arguments of torch.tensor() with numbers instead of fake tensors in its lists, which C++ would read without an op."""
    from torch._subclasses.fake_tensor import FakeTensor
    from torch.utils import _pytree
    leaves = _pytree.tree_leaves(args[0])
    if not any(isinstance(leaf, FakeTensor) for leaf in leaves):
        return args, kwargs
    if all(isinstance(leaf, torch.Tensor) for leaf in leaves):
        kwargs = {'dtype': functools.reduce(torch.promote_types, [leaf.dtype for leaf in leaves]), **kwargs}
    return (_pytree.tree_map_only(FakeTensor, lambda leaf: leaf.tolist() if leaf.dim() else leaf.item(), args[0]), *args[1:]), kwargs


# ---- Ops ----

def _fake_mode() -> Any:
    """The mode that makes fake tensors. While it is active, PyTorch does not initialise CUDA."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    class Mode(FakeTensorMode):  # type: ignore[misc]
        avoid_device_init = True  # whatever pretend() answers

        def __deepcopy__(self, memo: Any) -> Any:
            return self  # a copy of a fake tensor copies its attributes, but belongs to the same mode

    return Mode(allow_non_fake_inputs=True)


@contextlib.contextmanager
def _other_modes(recorder: _Recorder, fake: Any) -> Iterator[None]:
    """PyTorch itself runs ops in fake modes, such as DTensor to find out shapes: what they make takes no memory in a real run."""
    from torch._subclasses.fake_tensor import FakeTensorMode
    enter, leave = FakeTensorMode.__enter__, FakeTensorMode.__exit__

    def entering(mode: Any) -> Any:
        recorder.apart += mode is not fake
        return enter(mode)

    def leaving(mode: Any, *error: Any) -> Any:
        recorder.apart -= mode is not fake
        return leave(mode, *error)

    with patched(FakeTensorMode, __enter__=entering, __exit__=leaving):
        yield


def _tensors(torch: Any, given: Any) -> List[Any]:
    from torch.utils import _pytree
    return [leaf for leaf in _pytree.tree_leaves(given) if isinstance(leaf, torch.Tensor)]


class _Host:
    """Real tensors on the CPU. A step must not write what the GPU computes into those that are older than it: they may belong to a copy
    of the model, which is on the GPU if the model is, but was made on a machine without one."""

    def __init__(self, fake: type) -> None:
        self.fake = fake
        self._made: Set[int] = set()  # addresses of storages that the step made

    def check(self, torch: Any, func: Any, args: Any) -> None:
        if not func._schema.is_mutable or not any(isinstance(leaf, self.fake) for leaf in _tensors(torch, args)):
            return
        written = [arg for of, arg in zip(func._schema.arguments, args) if of.alias_info is not None and of.alias_info.is_write]
        for leaf in _tensors(torch, written):
            if not isinstance(leaf, self.fake) and leaf.dim() and leaf.untyped_storage()._cdata not in self._made:
                raise TraceError(f'{_program_line(sys._getframe(2))} writes what the GPU computes into a tensor on the CPU that is older '
                                 'than the step: if it belongs to a copy of the model, such as an average, give trace() both, as '
                                 'model=[model, copy]; otherwise make it within the step')

    def made(self, torch: Any, args: Any, result: Any) -> None:
        given = None
        for leaf in _tensors(torch, result):
            if leaf.device.type == 'cpu' and not isinstance(leaf, self.fake):
                given = given or {arg.untyped_storage()._cdata for arg in _tensors(torch, args)}
                storage = leaf.untyped_storage()
                if storage._cdata not in given:
                    self._made.add(storage._cdata)
                    weakref.finalize(storage, self._made.discard, storage._cdata).atexit = False


def _only_writes(torch: Any, func: Any) -> bool:
    """An op that returns nothing, such as a fused optimizer's: it allocates no tensor, even if PyTorch cannot fake it."""
    has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key
    return not func._schema.returns and func._schema.is_mutable and not has_kernel(func.name(), 'Meta') \
        and not has_kernel(func.name(), 'CompositeImplicitAutograd') \
        and not has_kernel(func.name(), 'CompositeExplicitAutograd')


def _run(torch: Any, fake: Any, func: Any, args: Any, kwargs: Any) -> Any:
    """Run the op: on fake tensors if it makes tensors on 'cuda' or has fake arguments, otherwise for real."""
    from torch._subclasses.fake_tensor import unset_fake_temporarily
    if _only_writes(torch, func) and any(fake.is_our_fake(leaf) for leaf in _tensors(torch, (args, kwargs))):
        return None
    from torch.utils import _pytree
    made = faked(torch, func, args, fake.is_our_fake, kwargs.get('out'))
    if made is not None:
        return made
    device = kwargs.get('device')
    if device is None or device.type != 'cuda':
        with unset_fake_temporarily():
            return func(*args, **kwargs)
    # 2.9 would run a copy to the device, if what is copied were not fake.
    args = _pytree.tree_map_only(torch.Tensor, lambda tensor: tensor if fake.is_our_fake(tensor) else fake.from_tensor(tensor),
                                 args)
    return func(*args, **kwargs)


# Of which C++ makes large temporaries by calling other ops.
_COMPOSED = ('_safe_softmax', 'binary_cross_entropy_with_logits', 'logsumexp', 'soft_margin_loss', 'soft_margin_loss_backward')


def _composed(torch: Any) -> Dict[Any, Callable[..., Any]]:
    """These ops' C++ code, for tensors of any kind."""
    ops = [getattr(torch.ops.aten, name).default for name in _COMPOSED if hasattr(torch.ops.aten, name)]
    key = torch._C.DispatchKey.CompositeExplicitAutograd
    return {op: functools.partial(op._op_dk, key) for op in ops
            if torch._C._dispatch_has_kernel_for_dispatch_key(op.name(), 'CompositeExplicitAutograd')}


def _decomposes(torch: Any, func: Any) -> bool:
    """Whether an op consists of others and was not taken apart before it came here, as below autograd and in inference mode."""
    has_kernel, name = torch._C._dispatch_has_kernel_for_dispatch_key, func.name()
    return func.namespace == 'aten' and has_kernel(name, 'CompositeImplicitAutograd') and not has_kernel(name, 'CUDA')


def _masked(torch: Any, recorder: _Recorder, func: Any) -> bool:
    """Whether attention adds its mask to the scores."""
    return recorder.is_composing and func is torch.ops.aten.add.Tensor


def _scalar(dtype: Any, value: float) -> Any:
    return value if dtype.is_floating_point else complex(value) if dtype.is_complex else \
        bool(value) if str(dtype) == 'torch.bool' else int(value)


def _mode(torch: Any, recorder: _Recorder, sole: _Sole, fake: Any, library: Library, value: Optional[float] = None) -> Any:
    """A mode that sees each op and notes its results. `value` is the value of every number that the program reads from the GPU."""
    from torch._subclasses.fake_tensor import FakeTensor
    from torch.utils import _pytree
    from torch.utils._python_dispatch import TorchDispatchMode
    leaves = torch.ops.aten._local_scalar_dense.default
    waits = getattr(torch.ops._c10d_functional, 'wait_tensor', None)
    work, composed = Work(torch), _composed(torch)
    decomposes = functools.lru_cache(maxsize=None)(functools.partial(_decomposes, torch))

    class Dispatch(TorchDispatchMode):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.recorder = recorder

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            recorder = self.recorder
            if any(map(wraps, types)):  # they turn an op into ones of their parts first
                return NotImplemented
            if recorder.apart:
                return func(*args, **(kwargs or {}))
            if recorder.told and func is leaves and isinstance(args[0], FakeTensor) and args[0].dtype == torch.bool:
                return recorder.told.pop()
            number = recorder.routing.number(func, args, value is not None)
            if number is not None:
                return number
            if func is leaves and value is not None and isinstance(args[0], FakeTensor):
                return _scalar(args[0].dtype, value)
            if func.overloadpacket is waits:
                return args[0]  # as the real op does; a fake one makes a new tensor
            calls = composed.get(func) or library.kernel(func, args) or (func.decompose if decomposes(func) else None)
            if calls:
                with self:  # sees what it calls
                    return calls(*args, **(kwargs or {}))
            if recorder.host:
                recorder.host.check(torch, func, args)
            args = recorder.routing.indexed(self, func, args)
            adds = _is_added_by_autograd(torch, func, args)
            place = len(recorder.events)
            masks = _masked(torch, recorder, func)
            in_place = masks or (adds and sole.holds(args[0]) and args[0].dtype == args[1].dtype)
            result = recorder.routing.sized(self, func, args, kwargs or {})
            if result is None:
                result = torch.ops.aten.add_.Tensor(*args) if in_place else _run(torch, fake, func, args, kwargs or {})
                recorder.routing.follow(func, args, kwargs or {}, result)
            if recorder.host:
                recorder.host.made(torch, args, result)
            recorder.noted.note(recorder, func, args, kwargs or {})
            done = work.of(func, args, kwargs or {}, result)
            if done:
                recorder.work.append((place, *done))
            if in_place:
                return torch.ops.aten.alias.default(result) if masks else result  # autograd gives a tensor of its own a history
            if adds and sole.references is None:
                sole.references = _references(args[0])
            name, overload = func._schema.name.replace('aten::', ''), func._overloadname
            op = name if overload == 'default' else f'{name}_{overload}'
            role = 'cast' if recorder.is_cast(op, args) else ''
            first = len(recorder.events)
            _pytree.tree_map_only(torch.Tensor, lambda tensor: recorder.see(tensor, op, role), result)
            sizes = sizes_of(op, args)
            if sizes and len(recorder.events) > first:
                recorder.kernels.append((first, len(recorder.events), *sizes))
            return result

    return Dispatch()


# ---- The step ----

@contextlib.contextmanager
def _process(torch: Any) -> Iterator[None]:
    """Within it, the state of random numbers is preserved, and the garbage collector only runs between the calls of the step. When
    it runs on its own depends on what else the process does, so memory that waits for it would be freed elsewhere in each call."""
    state, python_state, collects = torch.random.get_rng_state(), random.getstate(), gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()
        random.setstate(python_state)
        torch.random.set_rng_state(state)


@contextlib.contextmanager
def _foreach(fake: type) -> Iterator[None]:
    """Makes optimizers and clipping choose their foreach form for fake tensors, as they do for real ones on a GPU."""
    lists = [sys.modules[name]._foreach_supported_types for name in ('torch.optim.optimizer', 'torch.utils._foreach_utils')]
    for types in lists:
        types.append(fake)
    try:
        yield
    finally:
        for types in lists:
            types.remove(fake)


class _Phases:
    """Notes the phases of a step: calls of modules, backward, and optimizers. A forward is a call of any module by the step itself."""

    def __init__(self, torch: Any, recorder: _Recorder, attention: Any, library: Library) -> None:
        self.torch, self.recorder, self.library = torch, recorder, library
        self.attention = attention  # a mode, which is not active in backward: checkpoints run modules there
        self.optimizers: Any = weakref.WeakSet()  # that made steps
        self.on_new: Callable[[Any], None] = lambda optimizer: None  # called before the first step of an optimizer
        self.on_step: Callable[[Any], None] = lambda optimizer: None  # called after each step of an optimizer
        self.ops: Any = None  # what sees each op, for `recorder`
        self._early: Any = weakref.WeakKeyDictionary()  # whether they had a state before the first
        self._opened: List[Any] = []
        self.has_gpu = False
        self._made_here: Any = weakref.WeakSet()

    def calling(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Module.__call__. Not a hook, which would show in stacks."""
        from torch.utils._pytree import tree_leaves
        recorder, tensor = self.recorder, self.torch.Tensor

        def call(module: Any, *args: Any, **kwargs: Any) -> Any:
            if recorder.phase[-1] != 'step':
                return original(module, *args, **kwargs)
            recorder.own(module)
            recorder.keep_inputs([x for x in tree_leaves((args, kwargs)) if isinstance(x, tensor)])
            with recorder.within('forward'):
                return original(module, *args, **kwargs)
        return call

    def backward(self, original: Callable[..., Any]) -> Callable[..., Any]:
        recorder = self.recorder

        def backward(*args: Any, **kwargs: Any) -> Any:
            if recorder.phase[-1] == 'backward':
                return original(*args, **kwargs)
            recorder.check_device()
            recorder.keep_activations()
            with recorder.within('backward'):
                return original(*args, **kwargs)
        return backward

    def engine(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Wraps the function that all of PyTorch's backward functions call. The outer ones may deactivate modes again."""
        def run(*args: Any, **kwargs: Any) -> Any:
            with self.attention:
                return original(*args, **kwargs)
        return run

    def entering(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """autocast.__enter__."""
        def enter(region: Any) -> Any:
            if self._is_disabled(region) and not any(self.recorder.autocast):
                frame = sys._getframe(1)
                if region.fast_dtype == self.torch.bfloat16 or frame.f_code.co_name != 'decorate_autocast':
                    raise self._too_early(frame, 'an autocast region')
            result = original(region)
            if region.device == 'cuda':  # checkpoints enter one for the CPU, too, within that
                self.recorder.autocast.append(bool(region._enabled))
            return result
        return enter

    def making(self, original: Callable[..., Any]) -> Callable[..., None]:
        """The constructors of autocast and GradScaler."""
        def make(made: Any, *args: Any, **kwargs: Any) -> None:
            original(made, *args, **kwargs)
            self._made_here.add(made)
        return make

    def scaling(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """GradScaler.scale."""
        def scale(scaler: Any, *args: Any) -> Any:
            if self._is_disabled(scaler):
                raise self._too_early(sys._getframe(1), 'a GradScaler')
            return original(scaler, *args)
        return scale

    def _is_disabled(self, made: Any) -> bool:
        """Whether an autocast region or a GradScaler is disabled and older than the trace: without a GPU, PyTorch disables each."""
        device = getattr(made, 'device', None) or made._device
        return device == 'cuda' and not made._enabled and made not in self._made_here and not self.has_gpu

    @staticmethod
    def _too_early(frame: Any, what: str) -> TraceError:
        return TraceError(f'{_program_line(frame)} uses {what} that was made before the trace, on a machine without a GPU, where PyTorch '
                          'disables it: make it within the step, or leave it out if it is meant to be disabled')

    def leaving(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def leave(region: Any, *error: Any) -> Any:
            if region.device == 'cuda' and self.recorder.autocast:
                self.recorder.autocast.pop()
            return original(region, *error)
        return leave

    def zeroing(self, original: Callable[..., Any]) -> Callable[..., Any]:
        recorder = self.recorder

        def zero_grad(*args: Any, **kwargs: Any) -> Any:
            with recorder.within('zero_grad'):
                return original(*args, **kwargs)
        return zero_grad

    def before_step(self, optimizer: Any, *given: Any) -> None:
        self.library.prepare()
        if optimizer not in self.optimizers:
            self.optimizers.add(optimizer)
            self.on_new(optimizer)
            self._early[optimizer] = bool(optimizer.state)
        if isinstance(optimizer, self.torch.optim.LBFGS):
            raise TraceError(f'{_program_line(sys._getframe(1))} makes a step of LBFGS, which reads values of tensors to decide how often it '
                             'evaluates its closure and how many directions it keeps: to trace the rest, make a step of torch.optim.SGD')
        self.recorder.mark_gradients(optimizer)
        if not self._opened and self.recorder.until is None:
            self.recorder.stepped.append(self._noted(optimizer, given))
        self._opened.append(self.recorder.within('optimizer'))
        self._opened[-1].__enter__()

    def _noted(self, optimizer: Any, given: Tuple[Any, ...]) -> _trace_forms.Step:
        caller = sys._getframe(2).f_back  # of the function around step() that calls hooks
        outer, end = self.recorder._python(caller)
        texts, frames = self.recorder.texts.items, self.recorder.frames.items
        is_scaled = any(texts[frames[number][1]].endswith('/torch/amp/grad_scaler.py') for number in outer)
        return _trace_forms.noted(self.torch, optimizer, len(self.recorder.events), tuple(outer[:end]), given, is_scaled,
                                  self._early[optimizer])

    @contextlib.contextmanager
    def recording(self, recorder: _Recorder) -> Iterator[None]:
        """Within it, another recorder notes what optimizers do, and their steps do not end the traced step."""
        before = self.recorder, self.on_step
        self.recorder = self.ops.recorder = recorder
        self.on_step = lambda optimizer: None
        try:
            yield
        finally:
            self.recorder, self.on_step = before
            self.ops.recorder = self.recorder

    def after_step(self, optimizer: Any, *_: Any) -> None:
        if self._opened:
            self.on_step(optimizer)
            self._opened.pop().__exit__(None, None, None)

    @contextlib.contextmanager
    def noted(self) -> Iterator[None]:
        torch, optim = self.torch, sys.modules['torch.optim.optimizer']
        handles = [optim.register_optimizer_step_pre_hook(self.before_step),
                   optim.register_optimizer_step_post_hook(self.after_step)]
        autograd, module, autocast = torch.autograd, torch.nn.Module, torch.amp.autocast_mode.autocast
        scaler = torch.amp.grad_scaler.GradScaler
        try:
            with patched(autograd, backward=self.backward(autograd.backward), grad=self.backward(autograd.grad),
                         _engine_run_backward=self.engine(autograd._engine_run_backward)), \
                    patched(module, __call__=self.calling(module.__call__)), \
                    patched(autocast, __init__=self.making(autocast.__init__), __enter__=self.entering(autocast.__enter__),
                            __exit__=self.leaving(autocast.__exit__)), \
                    patched(scaler, __init__=self.making(scaler.__init__), scale=self.scaling(scaler.scale)), \
                    patched(optim.Optimizer, zero_grad=self.zeroing(optim.Optimizer.zero_grad)):
                yield
        finally:
            for handle in handles:
                handle.remove()


def _truncating(torch: Any, recorder: _Recorder) -> contextlib.AbstractContextManager[None]:
    """nn.init.trunc_normal_ of newer versions draws again what is outside until nothing is. Twice takes as much memory as any number of times."""
    original = torch.nn.init._no_grad_trunc_normal_

    def draw(*args: Any, **kwargs: Any) -> Any:
        recorder.told = [False, True, True]
        try:
            return original(*args, **kwargs)
        finally:
            recorder.told = []
    return patched(torch.nn.init, _no_grad_trunc_normal_=draw)


@contextlib.contextmanager
def _values(torch: Any, value: Optional[float], routing: Routing) -> Iterator[None]:
    """Functions that read all values of a tensor without an op."""
    from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensor

    def numpy(self: Any, **_: Any) -> Any:
        known = routing.known(self, value is not None)
        if known is not None:
            return known.numpy()
        if value is None:
            raise DataDependentOutputException(torch.ops.aten._local_scalar_dense.default)
        return torch.full(self.shape, value, dtype=self.dtype).numpy()

    def text(self: Any, form: str) -> str:
        return format(self.item(), form) if form and not self.dim() else object.__format__(self, form)

    with patched(FakeTensor, numpy=numpy, __format__=text):
        yield


def _finite(torch: Any) -> contextlib.AbstractContextManager[None]:
    """Makes a GradScaler find all gradients finite, so that the optimizer makes its step."""
    def step(_scaler: Any, optimizer: Any, _state: Any, *args: Any, **kwargs: Any) -> Any:
        return optimizer.step(*args, **kwargs)
    return patched(torch.amp.grad_scaler.GradScaler, _maybe_opt_step=step)


def _recurrent(torch: Any) -> contextlib.AbstractContextManager[None]:
    """cuDNN's layers keep a tensor for backward, as large as all their activations, whose size only cuDNN knows."""
    def refuse(original: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            if torch.backends.cudnn.enabled and args[0].device.type == 'cuda':
                line = _program_line(sys._getframe(1))
                raise TraceError(f'{line} calls {original.__name__} of cuDNN, of which PyTorch does not know what it keeps for backward. With '
                                 'torch.backends.cudnn.enabled = False, PyTorch\'s own kernels can be traced')
            return original(*args, **kwargs)
        return call

    names = ('lstm', 'gru', 'rnn_tanh', 'rnn_relu')
    variable_functions = torch.nn.modules.rnn._VF
    return patched(variable_functions, **{name: refuse(getattr(variable_functions, name)) for name in names})


def _compiled(recorder: _Recorder) -> contextlib.AbstractContextManager[None]:
    """Runs compiled functions, and modules after their compile(), as they are, and notes that. Before they run, each asks for the callback
    that compiles; so do functions that must not be compiled, which have none."""
    import torch._dynamo.eval_frame as dynamo
    original = dynamo._callback_from_stance

    def callback_of(callback: Any) -> Any:
        found, frame = original(callback), sys._getframe(1)
        if found in (None, False) or _is_of_operator(frame.f_back):
            return found
        context: Any = frame.f_locals.get('self')
        if (getattr(context, 'compiler_config', None) or {}).get('triton.cudagraphs'):
            raise TraceError(f'{_program_line(frame)} calls code that torch.compile puts into CUDA graphs, whose pools keep what a step '
                             'allocates: trace it without mode="reduce-overhead" or "max-autotune"')
        recorder.is_compiled = True
        return None

    return patched(dynamo, _callback_from_stance=callback_of)


@contextlib.contextmanager
def _launching() -> Iterator[None]:
    """Kernels of Triton write into tensors that they are given, and allocate none. They are not launched on fake tensors."""
    from torch._subclasses.fake_tensor import FakeTensor
    from torch.utils import _pytree
    try:
        from triton.runtime import autotuner, jit
    except ImportError:
        yield
        return

    def unless_fake(original: Callable[..., Any]) -> Callable[..., Any]:
        def run(kernel: Any, *args: Any, **kwargs: Any) -> Any:
            written = [leaf for leaf in _pytree.tree_leaves((args, kwargs)) if isinstance(leaf, FakeTensor)]
            if not written:
                return original(kernel, *args, **kwargs)
            forget(written)
            return None
        return run

    with contextlib.ExitStack() as stack:
        for kind in (jit.JITFunction, autotuner.Autotuner, autotuner.Heuristics):
            stack.enter_context(patched(kind, run=unless_fake(kind.run)))
        yield


def _is_of_operator(frame: Any) -> bool:
    """Whether PyTorch itself compiles what the program gives to a higher-order operator, which is refused as such."""
    path = frame.f_code.co_filename if frame is not None else ''
    return '/torch/_higher_order_ops/' in path or path.endswith('/torch/nn/attention/flex_attention.py')


# ---- What is computed again ----

def _recomputes(recorder: _Recorder, stack: int) -> bool:
    """Whether checkpointing is running forward again: then its function is called within autograd's, not around it."""
    for number in recorder.stacks.items[stack]:
        name, path, _ = recorder.frames.items[number]
        name, path = recorder.texts.items[name], recorder.texts.items[path]
        if name == '_engine_run_backward':
            return False
        if path.endswith('torch/utils/checkpoint.py') and name in ('unpack_hook', 'recompute_fn', 'backward'):
            return True
    return False


def _keep_recomputed(recorder: _Recorder, events: List[Tuple[Any, ...]]) -> None:
    """Give the role 'recomputed' to storages that recomputation made and that still exist when other work continues."""
    made: Dict[int, bool] = {}  # by the recomputation under way
    for event in events:
        if event[0] == '+' and _recomputes(recorder, event[2]):
            made[event[1]] = True
        elif event[0] == '-':
            made.pop(event[1], None)
        elif made:
            for number in made:
                recorder.roles[number] = recorder.roles[number] or 'recomputed'
            made = {}


# ---- What is written ----

def _births(events: List[Tuple[Any, ...]]) -> List[int]:
    return [event[1] for event in events if event[0] == '+']


def _kinds(recorder: _Recorder, events: List[Tuple[Any, ...]]) -> List[Tuple[Any, ...]]:
    """The parts of events that can be compared between calls."""
    return [('+', recorder.bytes[event[1]], event[2]) if event[0] == '+' else ('-',) if event[0] == '-' else event
            for event in events]


class _Instructions:
    """The step that repeats: its slots and instructions. Slots are numbered from 0: static ones, then those that the step makes."""

    def __init__(self, recorder: _Recorder, static: List[int]) -> None:
        self.recorder = recorder
        self.slots: List[int] = list(static)  # storages
        self.slot_of = {number: i for i, number in enumerate(static)}
        self.items: List[List[Any]] = []
        self.place_of: List[int] = []  # of each event, and of the end: its instruction

    def new(self, number: int) -> int:
        self.slot_of[number] = len(self.slots)
        self.slots.append(number)
        return self.slot_of[number]


def alike(recorder: _Recorder) -> bool:
    """Whether the last two calls did the same."""
    second, third = (_kinds(recorder, events) for events in recorder.calls[-2:])
    return second == third


def _same(recorder: _Recorder) -> None:
    second, third = (_kinds(recorder, events) for events in recorder.calls[-2:])
    if second == third:
        return
    at = next((i for i, (a, b) in enumerate(zip(second, third)) if a != b), min(len(second), len(third)))
    made = [event for event in recorder.calls[-1][:at + 1] if event[0] == '+']
    where = f', near {recorder.line_of(made[-1][2])}' if made else ''
    raise TraceError(f'the {recorder.ordinal(-2)} and the {recorder.ordinal(-1)} step differ{where}: a trace needs steps that repeat '
                     'exactly, with batches of the same size')


def _once(recorder: _Recorder, static: List[int]) -> Dict[int, List[Tuple[Any, ...]]]:
    """Storages that only earlier calls made and that stay, by the event of the last call before which they were made. A gradient that
    is kept looks like one that each call makes: in both cases backward allocates it, so what decides is that the storage still exists."""
    import difflib
    known, last = set(static), recorder.calls[-1]
    once: Dict[int, List[Tuple[Any, ...]]] = {}
    for events in recorder.calls[:-2]:
        first = [event for event in events if event[1] not in known or event[0] in '()']
        matcher = difflib.SequenceMatcher(None, _kinds(recorder, first), _kinds(recorder, last), autojunk=False)
        for tag, a, b, c, _ in matcher.get_opcodes():
            for i, event in enumerate(first[a:b]):
                if event[0] == '+' and not recorder.dead[event[1]]:
                    once.setdefault(c + i if tag == 'equal' else c, []).append(event)
    return once


def _older(recorder: _Recorder, static: List[int], twin: Dict[int, int]) -> Dict[int, int]:
    """Storages of the call before the last two that the last call frees, such as a loss that is replaced when the next one has been
    computed; and the storages that the last call makes instead and that are freed two calls later."""
    if recorder.calls[-2] is recorder.calls[-1]:
        return {}  # two calls alone; see _trace_forms.py
    known, third = set(static), recorder.calls[-1]
    before, freed = _by_kind(recorder, recorder.calls[-3]), {event[1] for event in third if event[0] == '-'}
    made, previous = _by_kind(recorder, third), {new: old for old, new in twin.items()}
    free = [number for number in made if number not in freed and previous[number] not in freed]
    out: Dict[int, int] = {}
    for number in (event[1] for event in third if event[0] == '-' and event[1] in before and event[1] not in known):
        found = next((new for new in free if made[new] == before[number] and new not in out.values()), None)
        if found is not None:
            out[number] = found
    return out


def _by_kind(recorder: _Recorder, events: List[Tuple[Any, ...]]) -> Dict[int, Tuple[int, int]]:
    """Size and stack of each storage that is made."""
    return {event[1]: (recorder.bytes[event[1]], event[2]) for event in events if event[0] == '+'}


def _schedule(recorder: _Recorder, static: List[int]) -> _Instructions:
    """The instructions of the third call, with the storages that only the first call made inserted in their places."""
    _same(recorder)
    out = _Instructions(recorder, static)
    second, third = recorder.calls[-2:]
    twin = dict(zip(_births(second), _births(third)))  # the same storage, a step later
    older = _older(recorder, static, twin)
    pairs = {new: old for old, new in twin.items() if new in older.values()}
    once = _once(recorder, static)
    for i, event in enumerate([*third, ('end',)]):
        out.items.extend(['once', out.new(extra[1]), extra[2]] for extra in once.get(i, ()))
        if event[0] == '+' and event[1] in pairs:  # two exist at a time: one of them might as well stay
            out.items.append(['once', out.new(pairs[event[1]]), event[2]])
        out.place_of.append(len(out.items))
        if event[0] == '+':
            out.items.append(['new', out.new(event[1]), event[2]])
        elif event[0] == '-':
            out.items.append(['drop', older.get(event[1], event[1])])
        elif event[0] != 'end':
            out.items.append(['begin' if event[0] == '(' else 'end', event[1]])
    _resolve(recorder, out, twin, set(older.values()))
    return out


def _resolve(recorder: _Recorder, out: _Instructions, twin: Dict[int, int], older: Set[int]) -> None:
    """Complete the instructions that free: they have numbers of storages so far."""
    freed = set()
    for item in out.items:
        if item[0] == 'drop':
            item[:] = ['drop_previous', out.slot_of[item[1]]] if item[1] in older else _drop(recorder, out, twin, item[1])
            freed.add(item[1])
    for item in out.items:
        if item[0] == 'new' and item[1] not in freed:
            raise TraceError(f'cannot be traced: each step keeps a tensor of {recorder.bytes[out.slots[item[1]]]:,} bytes for good, made at '
                             f'{recorder.line_of(item[2])}, and a trace needs steps that hold the same. To collect a loss, keep '
                             'loss.detach().cpu(), or loss.item() with value=1 (--value 1), instead')


def _drop(recorder: _Recorder, out: _Instructions, twin: Dict[int, int], number: int) -> List[Any]:
    """The instruction that frees a storage, of this step or of the previous one."""
    if number in out.slot_of:
        return ['drop', out.slot_of[number]]
    if twin.get(number) in out.slot_of:
        return ['drop_previous', out.slot_of[twin[number]]]
    raise TraceError(f'a tensor of {recorder.bytes[number]:,} bytes from earlier steps is freed in the {recorder.ordinal(-1)}')


class StepGraph(Dict[str, Any]):
    """What trace() returns: the content of the file, with a repr of one line."""

    def __repr__(self) -> str:
        slots = self.get('slots', {}).get('bytes')
        if slots is None:
            return super().__repr__()
        static = self['static']
        return (f'<step graph: one step, {len(slots) - static} allocations, at most {self._peak_bytes() / 2**20:.1f} MiB of tensors at a time; '
                '`tessera simulate` runs it>')

    def _repr_pretty_(self, printer: Any, _is_cycle: bool) -> None:
        """For IPython, which prints a dict itself."""
        printer.text(repr(self))

    def _peak_bytes(self) -> int:
        """The most that tensors take in the second step, which repeats, each rounded as PyTorch's allocator does."""
        sizes = [-(-size // 512) * 512 for size in self['slots']['bytes']]
        live: int = sum(sizes[:self['static']])
        top = live
        for step in range(2):
            top = live
            for word, slot, *_ in self['instructions']:
                if word == 'new' or (word == 'once' and step == 0):
                    live += sizes[slot]
                elif word == 'drop' or (word == 'drop_previous' and step):
                    live -= sizes[slot]
                top = max(top, live)
        return top


def _document(recorder: _Recorder, static: List[int], about: Dict[str, Any]) -> Dict[str, Any]:
    if not _births(recorder.calls[-1]):
        raise TraceError("the step allocates nothing on 'cuda': it has to call the model on tensors there, and to run backward")
    made = _schedule(recorder, static)
    _keep_recomputed(recorder, recorder.calls[-1])
    for number in made.slots:
        if not recorder.roles[number]:
            recorder.roles[number] = 'temporary'
    return StepGraph({
        'schema': SCHEMA, **about, **({'compiled': True} if recorder.is_compiled else {}), 'phases': list(PHASES), 'texts': recorder.texts.items, 'frames': recorder.frames.items,
        'stacks': recorder.stacks.items, 'static': len(static),
        'slots': {'bytes': [recorder.bytes[number] for number in made.slots],
                  'category': [recorder.roles[number] for number in made.slots],
                  **_streams(recorder, made)},
        'instructions': made.items, 'work': [[made.place_of[event], *done] for event, *done in recorder.work],
        'kernels': [[made.place_of[first], made.place_of[end - 1] + 1, *sizes] for first, end, *sizes in recorder.kernels],
        **_rewritable(recorder, made),
    })


def _optimizers(torch: Any, fake: Any, recorder: _Recorder, phases: _Phases) -> List[Dict[str, Any]]:
    """The other forms of the optimizers that made a step in the last call."""
    forms = _trace_forms.Forms(torch, recorder.beside, phases.recording, lambda like: fake_of(torch, fake, like, 'cuda'), _schedule)
    return [forms.of(step, recorder.calls[-1], _kinds, recorder) for step in recorder.stepped]


def _streams(recorder: _Recorder, made: _Instructions) -> Dict[str, Any]:
    """The stream of each slot, if there are several: PyTorch keeps their memory apart."""
    streams = [recorder.streams[number] for number in made.slots]
    return {'stream': streams} if any(streams) else {}


def _rewritable(recorder: _Recorder, made: _Instructions) -> Dict[str, Any]:
    """The tensors that autograd saves, when the program releases their storages, and the calls of modules."""
    def place(event: Optional[int]) -> int:
        return -1 if event is None else made.place_of[event]

    saved, texts = recorder.saved, recorder.texts
    if saved is None or recorder.is_sharded:
        return {}
    reasons = why_once(saved.modules, saved.saves, recorder.noted)
    effects = [[i, [made.slot_of[number] for number in call.effects.slots if number in made.slot_of],
                texts.number(reasons[call.name]) if call.name in reasons else -1] for i, call in enumerate(saved.modules)
               if call.effects.slots or call.name in reasons]
    return {
        'saved': [[made.slot_of.get(save.number, -1), save.bytes, place(save.made), place(save.used), place(save.left),
                   place(save.gone)]
                  for save in saved.saves],
        'unheld': [[made.slot_of[number], place(event)] for number, event in recorder.unheld.items()
                   if number in made.slot_of and event < len(made.place_of)],
        'modules': [[texts.number(call.name), texts.number(call.kind), place(call.begin), place(call.end),
                     call.first, call.last, [made.slot_of[number] for number in call.inputs if number in made.slot_of]] for call in saved.modules],
        **({'effects': effects} if effects else {}),
    }


# ---- All of it ----

@contextlib.contextmanager
def traced(torch: Any, recorder: _Recorder, fake: Any, gpu: str, value: Optional[float]) -> Iterator[_Phases]:
    """Within it, 'cuda' is fake and everything on it is recorded. Suspends the garbage collector, see _process()."""
    from torch._subclasses import fake_tensor
    card, sole, library = CARDS[gpu], _Sole(), Library(torch, fake)
    attention, attend = _attention(torch, card, recorder)
    phases = _Phases(torch, recorder, attention, library)
    phases.has_gpu = torch.cuda.is_available()
    no_context = patched(fake_tensor, init_gpu_context=lambda *_: None)  # makes a real tensor if there is a device
    with contextlib.ExitStack() as stack:
        for context in (_process(torch), pretend(torch, card), no_context, fake,
                        patched(torch.nn.functional, scaled_dot_product_attention=attend), _recurrent(torch), _compiled(recorder), _launching(),
                        torch.autograd.set_multithreading_enabled(False), _foreach(fake_tensor.FakeTensor),
                        attention, _finite(torch), _truncating(torch, recorder), _values(torch, value, recorder.routing),
                        _other_modes(recorder, fake), _explained(recorder), library):
            stack.enter_context(context)
        with _mode(torch, _Recorder(torch), sole, fake, library):  # its tensors are none of the step's
            _calibrate(torch)
        stack.callback(setattr, recorder, 'is_over', True)
        phases.ops = stack.enter_context(_mode(torch, recorder, sole, fake, library, value))
        stack.enter_context(phases.noted())
        yield phases


def check_gpu(gpu: str) -> None:
    if gpu not in CARDS:
        raise TraceError(f'no such GPU: {gpu} (known: {", ".join(CARDS)})')


def write(document: Dict[str, Any], path: str) -> None:
    with open(path, 'w', encoding='utf-8') as file:
        json.dump(document, file, separators=(',', ':'))


def trace(step: Callable[[], Any], *, model: Any = None, optimizer: Any = None, path: Optional[str] = None,
          gpu: str = 'a100', value: Optional[float] = None, ranks: Optional[int] = None,
          routing: 'Union[str, os.PathLike[str], Counts, None]' = None) -> Dict[str, Any]:
    """Trace one training step of any model, without a GPU, and write it as a step graph.

    `step()` runs one whole step - zero_grad, forward, backward, optimizer - on tensors on 'cuda'. It is called three times,
    with fake tensors in `model` and `optimizer` (one, or a list): nothing is computed. Their tensors and settings, and the state
    of random numbers, are restored afterwards in any case; other changes that `step` makes remain. `gpu` decides which kernels
    are chosen, by its name for `tessera simulate --gpu`. `value`, if given, is the value of each number that the step reads from a tensor, as
    `loss.item()` does. `routing` decides which experts of a mixture get how many tokens: 'balanced', 'worst', or a list (or the path of
    a JSON file with one) that has a list of counts for each router. The graph is written to `path`, and returned.

    Without a `model`, `step` is a whole program: it makes the model and the optimizer itself and trains at least three steps,
    as a script does (`python -m tessera.trace`). With `ranks=N` it is rank 0 of N, without the others and without a network:
    for models in DistributedDataParallel or under fully_shard(), which a program of N ranks makes after init_process_group().

    Raises TraceError if the step needs the values of tensors, or does not repeat itself.
    """
    import torch

    check_gpu(gpu)
    if model is None:
        from ._script import trace_program
        document = trace_program(step, gpu=gpu, value=value, ranks=ranks, routing=routing)
        if path is not None:
            write(document, path)
        return document
    models, optimizers = _listed(model), [] if optimizer is None else _listed(optimizer)
    for one in models:
        check_whole(one, ranks)
    answer_for_driver(torch)
    recorder, mode = _Recorder(torch), _fake_mode()
    recorder.routing = Routing(torch, routing)
    with Fake(torch, mode, models, optimizers) as fake, traced(torch, recorder, mode, gpu, value) as phases:
        static = _record(torch, recorder, fake, phases, step)
        forms = _optimizers(torch, mode, recorder, phases)
    recorder.routing.check()
    about = {'torch': torch.__version__, 'gpu': gpu,
             'parameters': sum(elements(tensor) for tensor in fake.tensors if isinstance(tensor, torch.nn.Parameter)),
             'optimizer': type(optimizers[0]).__name__ if optimizers else '', **recorder.routing.used(), 'optimizers': forms}
    document = _document(recorder, static, about)
    if path is not None:
        write(document, path)
    return document


def _listed(given: Any) -> List[Any]:
    return list(given) if isinstance(given, (list, tuple)) else [given]


def _record(torch: Any, recorder: _Recorder, fake: Fake, phases: _Phases, step: Callable[[], Any]) -> List[int]:
    """Run the step CALLS times. Returns the storages that existed before."""
    for tensor in fake.tensors:
        recorder.see(tensor, 'static', 'parameter' if isinstance(tensor, torch.nn.Parameter) else 'buffer')
    for tensor in fake.states:
        recorder.see(tensor, 'static', 'optimizer_state')
    recorder.static_count = len(recorder.bytes)
    recorder.saved = Saved(torch, recorder, fake.mode, fake.models)
    recorder.host = _Host(sys.modules['torch._subclasses.fake_tensor'].FakeTensor) if fake.is_on_host else None
    phases.on_new = lambda optimizer: _see_state(recorder, fake.adopt(optimizer))
    with recorder.saved.watching(), _gradients_marked(recorder, fake.tensors):
        for _ in range(CALLS):
            recorder.begin_call()
            step()
            recorder.mark_state([*fake.optimizers, *phases.optimizers])
            recorder.end_call()
    return list(range(recorder.static_count))


def _see_state(recorder: _Recorder, tensors: List[Any]) -> None:
    for tensor in tensors:
        recorder.see(tensor, 'static', 'optimizer_state')


@contextlib.contextmanager
def _gradients_marked(recorder: _Recorder, tensors: List[Any]) -> Iterator[None]:
    """Within it, gradients of these tensors are marked when they are complete, before the program's own hooks can free them."""
    handles = []
    for tensor in tensors:
        if tensor.requires_grad:
            handles.append(tensor.register_post_accumulate_grad_hook(lambda param: recorder.mark(param.grad, 'gradient')))
            tensor._post_accumulate_grad_hooks.move_to_end(handles[-1].id, last=False)
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


@contextlib.contextmanager
def _explained(recorder: _Recorder) -> Iterator[None]:
    """Turns the errors of fake tensors into a TraceError that names the program's line."""
    from torch._subclasses import fake_tensor
    try:
        yield
    except (fake_tensor.DataDependentOutputException, fake_tensor.DynamicOutputShapeException) as error:
        recorder.check_device()
        experts = ", and routing='balanced' (--routing balanced) for numbers of tokens that experts get" if recorder.routing.has_choices else ''
        what = f'a number, such as that of loss.item(): value=1 (--value 1) stands for all of them{experts}' \
            if isinstance(error, fake_tensor.DataDependentOutputException) else \
            'a size. Only sizes that follow from constants, from tensors on the CPU and from routers of experts are known: use a tensor of ' \
            'fixed size with a mask instead'
        raise TraceError(f'{_line_of(error)} needs the value of a tensor ({error.func}), which a trace does not have, '
                         f'for {what}') from error
    except NoRouting as error:
        raise TraceError(f'{_line_of(error)} needs to know which experts a router sends tokens to, which a trace does not: '
                         "routing='balanced' (--routing balanced) assumes that each gets the same share, 'worst' that a few get almost all, "
                         'and counts can be given') from error
    except fake_tensor.UnsupportedOperatorException as error:
        raise TraceError(f'{_line_of(error)} calls {error.func}, whose result PyTorch cannot predict without '
                         'running it') from error
    except Exception as error:
        if 'saved tensor hooks' in str(error):
            raise TraceError(f'{_line_of(error)} calls torch.func.grad, or what uses it, within which PyTorch does not tell what autograd '
                             'saves') from error
        if not isinstance(error, TraceError) and any('/transformer_engine/' in frame.filename for frame in traceback.extract_tb(error.__traceback__)):
            why = str(error).partition('. ')[0]
            raise TraceError(f'{_line_of(error)} uses TransformerEngine, whose kernels need a GPU and cannot be traced ({why}). Trace the step with '
                             "PyTorch's own modules, and add the copies of the weights in FP8, or use torchao's float8, which can be traced") from error
        kernel = _fallback_of(error)
        if kernel is not None:
            raise TraceError(f'{_line_of(error)} calls {kernel}, whose result PyTorch cannot predict without '
                             f'running it on a GPU{_way_out(str(kernel))}') from error
        operator = re.search(r'HigherOrderOperator (\w+)', str(error))
        if isinstance(error, NotImplementedError) and operator:
            raise TraceError(f'{_line_of(error)} calls {operator[1]}, which runs functions of the program as one op, so that what they '
                             f'allocate is not known{_way_out(operator[1])}') from error
        if 'devices' in str(error) and 'cpu' in str(error):
            raise TraceError(f"{_line_of(error)} mixes tensors on 'cpu' with tensors on 'cuda': the model is on "
                             "'cuda', and the tensors that the step makes must be there, too") from error
        raise


# By op, what a program may do instead.
_WAYS_OUT = {
    'cudnn_ctc_loss': 'To trace the rest of the step, use the mean of log_probs as the loss',
    'flex_attention': 'scaled_dot_product_attention with a mask can be traced',
}


def _way_out(op: str) -> str:
    return next((f'. {text}' for name, text in _WAYS_OUT.items() if name in op), '')


def _fallback_of(error: BaseException) -> Any:
    """The op that fake tensors tried to run on the card, if that is what failed."""
    for frame, _ in traceback.walk_tb(error.__traceback__):
        if frame.f_code.co_name == 'run_fallback_kernel':
            return frame.f_locals.get('func')
    return None


def _program_line(frame: Any) -> str:
    """The program's own line on a stack."""
    while frame is not None and _is_library(frame.f_code.co_filename):
        frame = frame.f_back
    return f'{frame.f_code.co_filename}:{frame.f_lineno}' if frame is not None else 'the step'


def _line_of(error: BaseException) -> str:
    """The program's own line at which an error arose."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if not _is_library(frame.filename) and not frame.filename.startswith('<')]
    return f'{own[-1].filename}:{own[-1].lineno}' if own else 'the step'


def _calibrate(torch: Any) -> None:
    """Adds two gradients, the first of which nothing else holds."""
    x = torch.ones(1, device='cuda', requires_grad=True)
    y = x * 2
    (y * 2 + torch.tanh(y)).sum().backward()
