"""What autograd saves for backward, and in which module: what a step graph needs to be rewritten without tracing again.

A storage lives as long as the program or autograd holds it. To tell the two apart, autograd gets a twin of each tensor that it
saves: another storage in the same memory. The original storage is freed when the program releases it, and each twin when autograd
releases what it saved. Backward gets a further twin, which is freed when the node that uses it ends. The recorder treats them as one
storage, whose memory is freed with the last of them.
"""
import contextlib
import weakref
from typing import Any, Dict, Iterator, List, Optional, Tuple

from ._fake_cuda import TraceError
from ._trace_effects import Effects, Watched
from ._trace_quantised import is_wrapper
from ._trace_routing import carry


class Save:
    """One tensor that autograd saved. Places are indices of events within its call of the step."""

    def __init__(self, number: Optional[int], size: int, made: int) -> None:
        self.number, self.bytes, self.made = number, size, made
        self.used: Optional[int] = None  # backward asks for it,
        self.left: Optional[int] = None  # and releases what it got,
        self.gone: Optional[int] = None  # and autograd releases it


class ModuleCall:
    """One call of a module's forward."""

    def __init__(self, name: str, kind: str, inputs: List[int], begin: int, first: int) -> None:
        self.name, self.kind, self.inputs = name, kind, inputs
        self.begin = self.end = begin  # events
        self.first = self.last = first  # saves
        self.effects = Effects([], '')


class _Packed:
    """The object that autograd keeps instead of a tensor. `counter` has the number of times that the tensor was written in place."""

    def __init__(self, save: Save, tensor: Any, counter: Any) -> None:
        self.save, self.tensor, self.counter = save, tensor, counter
        self.version = counter._version if counter is not None else 0

    def check(self) -> None:
        """Autograd itself does not compare versions if saved tensors have hooks."""
        if self.counter is not None and self.counter._version != self.version:
            raise TraceError('backward needs a tensor that was modified in place after it was saved, so PyTorch rejects the program: one of '
                             'the variables needed for gradient computation has been modified by an inplace operation: '
                             f'{self.tensor.dtype} {list(self.tensor.shape)} is at version {self.counter._version}; expected version {self.version}')


class Saved:
    """Notes saved tensors and calls of modules while it is in effect. `recorder` has the storages and events."""

    def __init__(self, torch: Any, recorder: Any, mode: Any, models: List[Any]) -> None:
        self.torch, self.recorder, self.mode = torch, recorder, mode
        self.saves: List[Save] = []  # of the current call, in order
        self.modules: List[ModuleCall] = []  # likewise
        self._names: Any = weakref.WeakKeyDictionary()
        self._nothing: Any = None
        for model in models:
            self._name(model)

    def _name(self, model: Any) -> None:
        for name, module in model.named_modules():
            self._names.setdefault(module, name)

    def begin_call(self) -> None:
        self.saves, self.modules = [], []

    def _place(self) -> int:
        return len(self.recorder.events)

    def _twin(self, tensor: Any) -> Any:
        from torch._subclasses.fake_tensor import FakeTensor
        from torch.utils._mode_utils import no_dispatch
        with no_dispatch():
            meta = self.torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device='meta')
            twin = FakeTensor(self.mode, meta, tensor.device)
        carry(tensor, twin)
        return twin

    def _counter(self, tensor: Any) -> Any:
        """A tensor without memory that counts the writes to another one; None if nothing counts them."""
        from torch._subclasses.fake_tensor import FakeTensor
        from torch.utils._mode_utils import no_dispatch
        if tensor.is_inference() or tensor.layout != self.torch.strided or self.torch._C._functorch.is_functorch_wrapped_tensor(tensor):
            return None
        if not isinstance(tensor, FakeTensor):
            return tensor.detach()
        with no_dispatch():
            counter = tensor.detach()
            counter.data = self._empty()
        return counter

    def _empty(self) -> Any:
        from torch._subclasses.fake_tensor import FakeTensor
        if self._nothing is None:
            self._nothing = FakeTensor(self.mode, self.torch.empty(0, device='meta'), self.torch.device('cuda'))
        return self._nothing

    def pack(self, tensor: Any) -> _Packed:
        counter = self._counter(tensor)
        number = self.recorder.number_of(tensor) if tensor.device.type == 'cuda' and not is_wrapper(tensor) else None
        save = Save(number, tensor.numel() * tensor.element_size(), self._place())
        self.saves.append(save)
        if number is not None and not self.recorder.is_static(number):
            tensor = self._twin(tensor)
            self.recorder.share(tensor, number)
        packed = _Packed(save, tensor, counter)
        weakref.finalize(packed, self._released, save).atexit = False
        return packed

    def unpack(self, packed: _Packed) -> Any:
        save = packed.save
        packed.check()
        if save.used is None:
            save.used = self._place()
        if save.number is None:
            return packed.tensor
        lent = self._twin(packed.tensor)
        self.recorder.share(lent, save.number)
        weakref.finalize(lent.untyped_storage(), self._given_back, save).atexit = False
        return lent

    def _given_back(self, save: Save) -> None:
        save.left = self._place()

    def _released(self, save: Save) -> None:
        save.gone = self._place()

    def _inputs(self, given: Tuple[Any, ...]) -> List[int]:
        from torch.utils import _pytree
        tensors = [leaf for leaf in _pytree.tree_leaves(given) if isinstance(leaf, self.torch.Tensor)]
        numbers = [self.recorder.number_of(tensor) for tensor in tensors]
        return sorted({number for number in numbers if number is not None})

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Within it, saves and calls of modules are noted. Modules are called through their class, because hooks would
        add frames to each stack."""
        module = self.torch.nn.Module
        original = module.__call__

        def call(called: Any, *args: Any, **kwargs: Any) -> Any:
            if self.recorder.phase[-1] == 'step' and called not in self._names:
                self._name(called)
            name = self._names.get(called)
            if name is None or self.recorder.phase[-1] == 'backward':
                return original(called, *args, **kwargs)
            noted = ModuleCall(name, type(called).__name__, self._inputs((args, kwargs)), self._place(), len(self.saves))
            self.modules.append(noted)
            watched = Watched(self.recorder, called, args, kwargs)
            result = original(called, *args, **kwargs)
            noted.end, noted.last = self._place(), len(self.saves)
            noted.effects = watched.end()
            return result

        module.__call__ = call
        try:
            with self.torch.autograd.graph.saved_tensors_hooks(self.pack, self.unpack):
                yield
        finally:
            module.__call__ = original
