"""Fake CUDA tensors on a machine without a driver: what PyTorch then asks of a device, answered here.

FakeTensorMode computes shapes and lifetimes of tensors on 'cuda' without memory. Two questions still go to a device:

- autograd asks the CUDA hooks whether a context exists. Where there is no driver, that fails; here the answer is no. The
  hooks are an object in libtorch whose first word points to its table of functions; the place of this one is counted in
  the header that the wheel brings (ATen/detail/AcceleratorHooksInterface.h), and the table is exchanged for a copy. It
  stays so for the rest of the process: without a driver, no other answer is right.
- Python code asks torch.cuda for a capability, for bf16, and for the number of devices. A Card answers, within a `with`.

Where there is a driver nothing is exchanged, and Card answers too, so that a trace says the same everywhere.
"""
import atexit
import contextlib
import ctypes
import os
import re
from typing import Any, Dict, Iterator, List, NamedTuple

_KEPT: List[Any] = []  # what libtorch points to
_WORDS = 160  # more than its table has; what lies behind is copied and never used


class Card(NamedTuple):
    """What code may ask of a GPU."""
    name: str
    capability: 'tuple[int, int]'
    memory_bytes: int


CARDS: Dict[str, Card] = {
    't4': Card('Tesla T4', (7, 5), 16 << 30),
    'v100': Card('Tesla V100-SXM2-32GB', (7, 0), 32 << 30),
    'a100': Card('NVIDIA A100-SXM4-80GB', (8, 0), 80 << 30),
    'h100': Card('NVIDIA H100 80GB HBM3', (9, 0), 80 << 30),
}


class TraceError(RuntimeError):
    """A program that cannot be traced; the message says why."""


def _slot_of(header: str, function: str) -> int:
    """Which entry of a class's table a virtual function has. A destructor takes two."""
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
    try:
        with open(os.path.join(root, 'include/ATen/detail/AcceleratorHooksInterface.h'), encoding='utf-8') as file:
            slot = _slot_of(file.read(), 'hasPrimaryContext')
        hooks = ctypes.CDLL(os.path.join(root, 'lib', 'libtorch_cpu.so'))._ZN2at6detail12getCUDAHooksEv
    except (OSError, AttributeError) as error:
        raise TraceError(f'PyTorch {torch.__version__} is not one that can be traced without a driver: {error}') from error
    hooks.restype = ctypes.c_void_p
    table = ctypes.cast(hooks(), ctypes.POINTER(ctypes.c_void_p))
    old = ctypes.cast(table[0], ctypes.POINTER(ctypes.c_void_p))
    no = ctypes.CFUNCTYPE(ctypes.c_bool, ctypes.c_void_p, ctypes.c_int8)(lambda _self, _device: False)
    # Two words stand before a table, which dynamic_cast reads.
    copy = (ctypes.c_void_p * _WORDS)(*(old[i - 2] for i in range(_WORDS)))
    copy[2 + slot] = ctypes.cast(no, ctypes.c_void_p).value
    before, table[0] = table[0], ctypes.addressof(copy) + 2 * ctypes.sizeof(ctypes.c_void_p)
    _KEPT.extend((copy, no))
    atexit.register(table.__setitem__, 0, before)  # the copy goes with the interpreter


@contextlib.contextmanager
def pretend(torch: Any, card: Card) -> Iterator[None]:
    """Within it, torch.cuda answers as on this card."""
    cuda = torch.cuda
    answers = {
        'is_available': lambda: True,
        'device_count': lambda: 1,
        'current_device': lambda: 0,
        'get_device_capability': lambda *_: card.capability,
        'get_device_name': lambda *_: card.name,
        'is_bf16_supported': lambda *_, **__: card.capability >= (8, 0),
        'is_current_stream_capturing': lambda: False,
        'synchronize': lambda *_: None,
        'empty_cache': lambda: None,
        'mem_get_info': lambda *_: (card.memory_bytes, card.memory_bytes),
    }
    before = {name: getattr(cuda, name) for name in answers}
    try:
        for name, answer in answers.items():
            setattr(cuda, name, answer)
        yield
    finally:
        for name, function in before.items():
            setattr(cuda, name, function)
