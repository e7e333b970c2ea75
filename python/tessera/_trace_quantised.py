"""Quantised weights of bitsandbytes, and other parameters of classes that programs derive from Parameter.

PyTorch knows the results of bitsandbytes' ops, but not what these allocate in between, such as the whole weight that a product dequantises.
Which of its kernels runs depends on the card and on the shapes, and the package decides that in Python. So its own code for CUDA
runs, on fake tensors, and only the launches of its kernels do nothing. The trace then has what the installed version allocates.
"""
import contextlib
import functools
import importlib
import sys
from typing import Any, Callable, Dict, List, Optional, Tuple

from ._fake_cuda import TraceError, patched
from ._trace_model import fake_of

_KERNELS = 'bitsandbytes.backends.cuda.ops'  # since 0.46


def _nothing(*_: Any) -> int:
    return 0


class _Launches:
    """Stands for the library in which the kernels are."""

    def __getattr__(self, name: str) -> Callable[..., int]:
        return _nothing

    __getitem__ = __getattr__


class _Handles:
    """Stands for the handles of cuBLAS."""

    @staticmethod
    def get_instance() -> Any:
        return _Handles()

    def get_context(self, _device: Any) -> int:
        return 0


class Library:
    """bitsandbytes while a step is traced. A program may import it at any time."""

    def __init__(self, torch: Any, fake: Any) -> None:
        self.torch, self.fake = torch, fake
        self._undo = contextlib.ExitStack()

    def __enter__(self) -> 'Library':
        self.prepare()
        return self

    def __exit__(self, *_: Any) -> None:
        self._undo.close()

    def prepare(self) -> None:
        """Let what is imported by now launch nothing."""
        functional, kernels = sys.modules.get('bitsandbytes.functional'), sys.modules.get(_KERNELS)
        for module in (functional, kernels):
            if module is None or isinstance(module.lib, _Launches):
                continue
            answers = {'lib': _Launches(), 'CUBLAS_Context': _Handles, 'get_ptr': _nothing, 'get_paged': self._paged, 'name2qmap': {},
                       '_get_raw_stream': _nothing, '_cuda_device_of': lambda _: contextlib.nullcontext()}
            tables = {name: {key: (_nothing,) * len(row) for key, row in table.items()} for name, table in vars(module).items()
                      if name.startswith('str2optimizer')}
            known = {name: answer for name, answer in answers.items() if hasattr(module, name)}
            self._undo.enter_context(patched(module, **known, **tables))
            for value in vars(module).values():
                if hasattr(value, 'cache_clear'):  # what it knows of a card
                    value.cache_clear()
                    self._undo.callback(value.cache_clear)

    def _paged(self, *shape: int, dtype: Any, device: Any) -> Any:
        """Memory that the driver moves between the card and the CPU: it is not PyTorch's."""
        like = self.torch.empty(shape, dtype=dtype, device='meta')
        made = fake_of(self.torch, self.fake, like, 'cpu')
        made.is_paged, made.page_deviceid = True, device.index
        return made

    def kernel(self, func: Any, args: Tuple[Any, ...]) -> Optional[Callable[..., Any]]:
        """The code that it runs for an op on a GPU; None for other ops and tensors."""
        leaves = self.torch.utils._pytree.tree_leaves
        if func.namespace != 'bitsandbytes' or not any(map(self.fake.is_our_fake, leaves(args))):
            return None
        try:
            importlib.import_module(_KERNELS)
        except ImportError as error:
            version = getattr(sys.modules.get('bitsandbytes'), '__version__', 'this version')
            raise TraceError(f'bitsandbytes {version} has no {_KERNELS}, which a trace runs: install bitsandbytes 0.46 or newer') from error
        self.prepare()
        has_kernel = self.torch._C._dispatch_has_kernel_for_dispatch_key
        key = next((key for key in ('CUDA', 'CompositeExplicitAutograd', 'CompositeImplicitAutograd') if has_kernel(func.name(), key)), None)
        if key is None:
            return None
        return functools.partial(self._run, func, getattr(self.torch._C.DispatchKey, key))

    def _run(self, func: Any, key: Any, *args: Any, **kwargs: Any) -> Any:
        from torch._subclasses.fake_tensor import FakeTensor
        with patched(FakeTensor, data_ptr=_nothing):
            return func._op_dk(key, *args, **kwargs)


# ---- Tensors that consist of others, such as those of torchao and DTensors ----

def wraps(kind: Any) -> bool:
    return hasattr(kind, '__tensor_flatten__') and hasattr(kind, '__tensor_unflatten__')


def is_wrapper(tensor: Any) -> bool:
    return wraps(type(tensor))


def parts_of(tensor: Any) -> List[Any]:
    """Without what is not a tensor, such as the mesh of a DTensor in newer versions."""
    return [part for part in (getattr(tensor, name) for name in tensor.__tensor_flatten__()[0]) if hasattr(part, 'untyped_storage')]


# ---- Parameters of derived classes ----

def making_subclasses(torch: Any, fake: Any) -> Callable[..., Any]:
    """Tensor._make_subclass, which refuses fake tensors. Here they become of a class that is the program's and theirs. So do real ones on
    the CPU, which are copied into fake ones later."""
    from torch._subclasses.fake_tensor import FakeTensor
    original, data, classes = torch.Tensor._make_subclass, torch._C.TensorBase.data, {}

    def faked(tensor: Any) -> Any:
        return tensor if isinstance(tensor, FakeTensor) else fake_of(torch, fake, tensor, tensor.device.type)

    def put(tensor: Any, other: Any) -> None:
        other = faked(other)
        data.__set__(tensor, other)
        tensor.fake_device = other.fake_device

    def of(cls: type) -> type:
        if cls not in classes:
            classes[cls] = type(cls.__name__, (cls, FakeTensor), {'data': property(data.__get__, put), '__module__': cls.__module__})
        return cls if issubclass(cls, FakeTensor) else classes[cls]

    def make(cls: type, tensor: Any, requires_grad: bool = False, **how: Any) -> Any:
        is_derived = issubclass(cls, torch.nn.Parameter) and cls is not torch.nn.Parameter and not hasattr(cls, 'cls_to_become')
        if not is_derived and not isinstance(tensor, FakeTensor):
            return original(cls, tensor, requires_grad, **how)
        made = faked(tensor).detach().requires_grad_(requires_grad)
        made.__class__ = of(cls)
        return made
    return make
