"""Fake CUDA tensors on a machine without a driver: what PyTorch then asks of a device, answered here.

FakeTensorMode computes shapes and lifetimes of tensors on 'cuda' without memory. Three kinds of calls still reach for a device:

- autograd asks the CUDA hooks whether a context exists. Where there is no driver, that fails; here the answer is no. The
  hooks are an object in libtorch whose first word points to its table of functions; the place of this one is counted in
  the header that the wheel brings (ATen/detail/AcceleratorHooksInterface.h), and the table is exchanged for a copy. It
  stays so for the rest of the process: without a driver, no other answer is right.
- autograd of PyTorch 2.9 asks CUDA's device guard for the current stream. Guards are in a table that libc10 exports, one
  for each type of device. One like that of 'meta', which does nothing, takes the place of CUDA's. Its functions that return
  something are in C (python/src/guard.c).
- Python code asks torch.cuda for a capability, for bf16, and for the number of devices. A Card answers, within a `with`.

If there is a driver, nothing is exchanged, but a Card still answers, so that traces are the same on every machine.
"""
import atexit
import contextlib
import ctypes
import os
import re
from typing import Any, Dict, Iterable, Iterator, List, NamedTuple, Optional

from . import _core

_KEPT: List[Any] = []  # what libtorch points to
_CUDA, _META = 1, 14  # c10/core/DeviceType.h
_GUARDS = '_ZN3c104impl26device_guard_impl_registryE'
_WORDS = 160  # more than its table has; what lies behind is copied and never used


class Card(NamedTuple):
    """The properties of a GPU that code may read."""
    name: str
    capability: 'tuple[int, int]'
    memory_bytes: int
    processors: int  # multiprocessors
    threads: int  # the most of each multiprocessor


CARDS: Dict[str, Card] = {
    't4': Card('Tesla T4', (7, 5), 16 << 30, 40, 1024),
    'v100': Card('Tesla V100-SXM2-32GB', (7, 0), 32 << 30, 80, 2048),
    'l4': Card('NVIDIA L4', (8, 9), 24 << 30, 58, 1536),
    'a10': Card('NVIDIA A10', (8, 6), 24 << 30, 72, 1536),
    'a100-40': Card('NVIDIA A100-SXM4-40GB', (8, 0), 40 << 30, 108, 2048),
    'a100': Card('NVIDIA A100-SXM4-80GB', (8, 0), 80 << 30, 108, 2048),
    'h100': Card('NVIDIA H100 80GB HBM3', (9, 0), 80 << 30, 132, 2048),
    'h200': Card('NVIDIA H200', (9, 0), 141 << 30, 132, 2048),
    'b200': Card('NVIDIA B200', (10, 0), 180 << 30, 148, 2048),
    'mi300x': Card('AMD Instinct MI300X', (9, 4), 192 << 30, 304, 2048),
    'rtx3090': Card('NVIDIA GeForce RTX 3090', (8, 6), 24 << 30, 82, 1536),
    'rtx4090': Card('NVIDIA GeForce RTX 4090', (8, 9), 24 << 30, 128, 1536),
    'rtx5070': Card('NVIDIA GeForce RTX 5070', (12, 0), 12 << 30, 48, 1536),
    'rtx5070ti': Card('NVIDIA GeForce RTX 5070 Ti', (12, 0), 16 << 30, 70, 1536),
    'rtx5080': Card('NVIDIA GeForce RTX 5080', (12, 0), 16 << 30, 84, 1536),
    'rtx5090': Card('NVIDIA GeForce RTX 5090', (12, 0), 32 << 30, 170, 1536),
}


class TraceError(RuntimeError):
    """A program that cannot be traced; the message says why."""


def _slot_of(header: str, function: str) -> int:
    """The index of a virtual function in its class's vtable. A destructor has two entries."""
    header = re.sub(r'//[^\n]*|/\*.*?\*/', '', header, flags=re.DOTALL)
    names = re.findall(r'virtual\s+[^;{=]*?(~?\w+)\s*\(', header)
    if function not in names:
        raise TraceError(f'this version of PyTorch has no {function}')
    return sum(2 if name.startswith('~') else 1 for name in names[:names.index(function)])


def answer_for_driver(torch: Any) -> None:
    """Let autograd run on fake CUDA tensors. Once is enough."""
    if _KEPT or torch.cuda.is_available():
        return
    if not torch.backends.cuda.is_built():
        raise TraceError('this PyTorch is built without CUDA, so its tensors cannot be on a GPU, not even fake ones: '
                         'install the wheel for CUDA (no GPU or driver is needed)')
    root = os.path.dirname(torch.__file__)
    functions = _core.cuda_functions()
    try:
        hooks = ctypes.CDLL(os.path.join(root, 'lib', 'libtorch_cpu.so'))._ZN2at6detail12getCUDAHooksEv
        guards = (ctypes.c_void_p * (_META + 1)).in_dll(ctypes.CDLL(os.path.join(root, 'lib', 'libc10.so')), _GUARDS)
        hooks.restype = ctypes.c_void_p
        _exchange(root, 'ATen/detail/AcceleratorHooksInterface.h', hooks(), ['hasPrimaryContext'], functions)
        if tuple(map(int, torch.__version__.split('.')[:2])) < (2, 10):
            guards[_CUDA] = ctypes.addressof(_guard(root, guards[_META] or 0, functions))
    except (OSError, AttributeError, ValueError) as error:
        raise TraceError(f'PyTorch {torch.__version__} cannot be traced without a driver: {error}') from error


def _exchange(root: str, header: str, address: int, names: Iterable[str], functions: Dict[str, int]) -> None:
    """Exchange virtual functions of an object, by their names in a header."""
    with open(os.path.join(root, 'include', header), encoding='utf-8') as file:
        text = file.read()
    table = ctypes.cast(address, ctypes.POINTER(ctypes.c_void_p))
    old = ctypes.cast(table[0], ctypes.POINTER(ctypes.c_void_p))
    # Two words stand before a table, which dynamic_cast reads.
    copy = (ctypes.c_void_p * _WORDS)(*(old[i - 2] for i in range(_WORDS)))
    for name in names:
        copy[2 + _slot_of(text, name)] = functions[name]
    before, table[0] = table[0], ctypes.addressof(copy) + 2 * ctypes.sizeof(ctypes.c_void_p)
    _KEPT.append(copy)
    atexit.register(table.__setitem__, 0, before)  # the copy goes with the interpreter


def _guard(root: str, meta: int, functions: Dict[str, int]) -> Any:
    """A device guard like that of 'meta', which does nothing, for 'cuda'. An object is a pointer to its table."""
    guard = (ctypes.c_void_p * 1)(ctypes.cast(meta, ctypes.POINTER(ctypes.c_void_p))[0])
    _KEPT.append(guard)
    _exchange(root, 'c10/core/impl/DeviceGuardImplInterface.h', ctypes.addressof(guard),
              [name for name in functions if name != 'hasPrimaryContext'], functions)
    return guard


class _Stream:
    """A stream, of which only its number matters: memory belongs to the stream that it was allocated on."""
    device_index, device_type = 0, _CUDA

    def __init__(self, *_: Any, number: Optional[int] = None, priority: int = 0, **__: Any) -> None:
        self.device = 'cuda:0'
        self.stream_id = self.cuda_stream = _STREAMS.next(priority) if number is None else number

    def __enter__(self) -> '_Stream':
        _STREAMS.entered.append(_STREAMS.current)
        _STREAMS.current = self
        return self

    def __exit__(self, *_: Any) -> None:
        _STREAMS.current = _STREAMS.entered.pop()

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, _Stream) and other.stream_id == self.stream_id

    def __hash__(self) -> int:
        return self.stream_id

    def record_event(self, event: Any = None) -> Any:
        return event or _Event()

    def query(self) -> bool:
        return True

    def is_capturing(self) -> bool:
        return False

    def wait_event(self, *_: Any) -> None:
        pass

    wait_stream = synchronize = wait_event


class _Streams:
    """The streams of a process. Like PyTorch (c10/cuda/CUDAStream.cpp) there are 32 of each priority, given out in turn."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """So that each trace numbers them in the same way."""
        self.made = [0, 0]
        self.default = self.current = _Stream(number=0)
        self.entered: List[_Stream] = []

    def next(self, priority: int) -> int:
        is_high = priority < 0
        self.made[is_high] += 1
        return 1 + 32 * is_high + (self.made[is_high] - 1) % 32

    def set(self, stream: Any) -> None:
        self.current = stream or self.default


_STREAMS = _Streams()


def stream_number() -> int:
    """The number of the current stream; 0 is the default one."""
    return _STREAMS.current.stream_id


class _Event:
    """An event that has happened."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def query(self) -> bool:
        return True

    def elapsed_time(self, _end: Any) -> float:
        return 1.0

    def record(self, *_: Any) -> None:
        pass

    wait = synchronize = record


class _Properties(NamedTuple):
    """What get_device_properties returns."""
    name: str
    major: int
    minor: int
    total_memory: int
    multi_processor_count: int
    max_threads_per_multi_processor: int


def _generators(torch: Any) -> Any:
    """A class for torch.Generator. One of 'cuda' is one of the CPU whose state has the form of CUDA's: seed and offset, 16 bytes. Fake
    tensors are drawn without using it."""
    original = torch.Generator

    class Kind(type(original)):  # type: ignore[misc]
        def __instancecheck__(cls, value: Any) -> bool:
            return isinstance(value, original)

    class Generator(original, metaclass=Kind):  # type: ignore[misc, valid-type]
        def __new__(cls, device: Any = 'cpu') -> Any:
            if torch.device(device).type != 'cuda':
                return original(device)
            made = super().__new__(cls, 'cpu')
            made._state = torch.zeros(16, dtype=torch.uint8)
            return made.manual_seed(0)

        @property
        def device(self) -> Any:
            return torch.device('cuda', 0)

        def get_state(self) -> Any:
            return self._state.clone()

        def set_state(self, state: Any) -> Any:
            self._state = state.clone()
            return self

        def manual_seed(self, seed: int) -> Any:
            self._state = torch.tensor([seed % 2**63, 0]).view(torch.uint8)
            return self

        def initial_seed(self) -> int:
            return int(self._state.view(torch.int64)[0])

        def seed(self) -> int:
            return self.initial_seed()
    return Generator


def _nothing(*_: Any, **__: Any) -> None:
    pass


def _zero(*_: Any, **__: Any) -> int:
    return 0


def _convolution(torch: Any) -> Any:
    """The library that runs a convolution decides the memory layout of the result. If that depends on the card, it is cuDNN."""
    original, backend = torch._C._select_conv_backend, torch._C._ConvBackend

    def select(*args: Any, **kwargs: Any) -> Any:
        try:
            return original(*args, **kwargs)
        except RuntimeError:
            return backend.CudnnTranspose if kwargs.get('transposed') else backend.Cudnn
    return select


def _answers(torch: Any, card: Card) -> 'Dict[Any, Dict[str, Any]]':
    """By module, the functions that replace its own while a card is pretended."""
    nothing = ('synchronize', 'empty_cache', 'ipc_collect', 'set_device', 'reset_peak_memory_stats',
               'reset_accumulated_memory_stats', 'reset_max_memory_allocated', 'reset_max_memory_cached',
               'set_per_process_memory_fraction', 'init')
    zero = ('memory_allocated', 'max_memory_allocated', 'memory_reserved', 'max_memory_reserved')
    answers: 'Dict[Any, Dict[str, Any]]' = {torch.cuda: {
        'is_available': lambda: True,
        'device_count': lambda: 1,
        'current_device': lambda: 0,
        'get_device_capability': lambda *_: card.capability,
        'get_device_name': lambda *_: card.name,
        'get_device_properties': lambda *_: _Properties(card.name, *card.capability, card.memory_bytes, card.processors, card.threads),
        'is_bf16_supported': lambda *_, **__: card.capability >= (8, 0),
        'is_current_stream_capturing': lambda: False,
        'mem_get_info': lambda *_: (card.memory_bytes, card.memory_bytes),
        'memory_summary': lambda *_, **__: '',
        'memory_stats': lambda *_, **__: {},
        'memory_snapshot': lambda *_, **__: [],
        'Event': _Event, 'Stream': _Stream, 'current_stream': lambda *_: _STREAMS.current,
        'default_stream': lambda *_: _STREAMS.default, 'set_stream': _STREAMS.set,
        'stream': lambda stream=None: contextlib.nullcontext() if stream is None else stream,
        'device': lambda *_: contextlib.nullcontext(), 'device_of': lambda *_: contextlib.nullcontext(),
        **{name: _nothing for name in nothing}, **{name: _zero for name in zero},
    }, torch.cuda.memory: {
        '_record_memory_history': _nothing, '_dump_snapshot': _nothing, '_snapshot': lambda *_, **__: {},
        **{name: _zero for name in zero},
    }}
    generators = _generators(torch)
    drawing = {'_lazy_init': _nothing, '_lazy_call': lambda call, **_: call()}
    answers[torch.cuda].update(drawing, default_generators=(generators('cuda'),))
    answers[torch.cuda.random] = {**drawing, 'current_device': _zero, 'device_count': lambda: 1, 'is_initialized': lambda: True}
    # A state is saved as values, which a trace does not have, and no stream uses memory later than another.
    answers[torch] = {'Generator': generators, 'save': _nothing}
    answers[torch.Tensor] = {'record_stream': _nothing, 'pin_memory': lambda tensor, *_: tensor}
    answers[torch._C] = {'_select_conv_backend': _convolution(torch)}
    if hasattr(torch, 'accelerator'):
        answers[torch.accelerator] = {
            'is_available': lambda: True, 'device_count': lambda: 1, 'synchronize': _nothing,
            'current_accelerator': lambda *_, **__: torch.device('cuda'), 'current_stream': lambda *_: _STREAMS.current,
            'set_stream': _STREAMS.set, 'current_device_index': _zero, 'set_device_index': _nothing}
    return answers


@contextlib.contextmanager
def patched(owner: Any, **names: Any) -> Iterator[None]:
    """Within it, these attributes of a class or module are replaced."""
    missing = object()
    before = {name: vars(owner).get(name, missing) for name in names}
    try:
        for name, new in names.items():
            setattr(owner, name, new)
        yield
    finally:
        for name, old in before.items():
            if old is missing:
                delattr(owner, name)
            else:
                setattr(owner, name, old)


@contextlib.contextmanager
def pretend(torch: Any, card: Card) -> Iterator[None]:
    """Within it, torch.cuda answers as on this card, and what would reach a device does nothing."""
    _STREAMS.reset()
    with contextlib.ExitStack() as stack:
        for module, answers in _answers(torch, card).items():
            known = {name: answer for name, answer in answers.items() if hasattr(module, name)}
            stack.enter_context(patched(module, **known))
        yield
