"""Steps, forward and backward: detected by hooks, written into the snapshot as annotations.

A range of `torch.profiler.record_function` that is open while history is recorded becomes a START
and an END in the snapshot (PyTorch 2.5 and later), which tessera's commands about stages
read:

    ProfilerStep#N    from the end of step N-1 to the end of step N; the profiler's own spelling
    forward           the watched model's forward
    backward          torch.autograd.backward, which Tensor.backward calls
    Optimizer.step#   PyTorch writes these itself, and Optimizer.zero_grad#

A step ends with an optimizer's step. Of several optimizers one leads: the first that is watched,
or else the first that steps. If the program counts steps itself (`record.step()`), hooks stop
counting.

Backward is detected by wrapping torch.autograd.backward, not by hooks on modules: those add
nodes to the graph and fail on outputs that are changed in place. Everything is removed when the
last recording ends. torch.compile optimizes the hooks away, because `is_compiling` is a constant
there.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import inspect
import threading
import weakref
from typing import TYPE_CHECKING, Any, Callable, Iterator

from .card import PHASE, ledger
from .guard import attempt, guarded, warn_once

if TYPE_CHECKING:
    from .backend import Backend
    from .sidecar import Watched


def _never() -> bool:
    return False


# Set when PyTorch is known. It must be a global so that torch.compile sees it as a constant.
is_compiling = _never


def _find_is_compiling(torch: Any) -> Callable[[], bool]:
    """The function that torch.compile treats as a constant; in older versions one that returns False."""
    for module in (getattr(torch, "compiler", None), getattr(torch, "_utils", None)):
        function: Callable[[], bool] | None = getattr(module, "is_compiling", None)
        if function is not None:
            return function
    return _never


class _Hook:
    """A hook on a module. A copied or pickled module must not need or call this package: there
    the hook is a function of the standard library that takes any arguments and does nothing."""

    def __init__(self, label: str, closes: bool) -> None:
        self.label = label
        self.closes = closes

    def __reduce__(self) -> tuple[Any, ...]:
        return getattr, (contextlib.nullcontext(), "__exit__")


class _BeforeForward(_Hook):
    """Before a module's forward: opens its range."""

    def __call__(self, module: Any, args: Any) -> None:
        if not is_compiling():
            marks.before_forward(self.label, self.closes)


class _AfterForward(_Hook):
    """After it: closes its range."""

    def __call__(self, module: Any, args: Any, output: Any) -> None:
        if not is_compiling():
            marks.after_forward(self.label)


def _is_another(reference: weakref.ref[Any], thing: Any) -> bool:
    """Whether a weak reference is to a live object other than `thing`."""
    held = reference()
    return held is not None and held is not thing


def innermost(optimizer: Any) -> Any:
    """The optimizer inside the wrappers of libraries, whose step() has the hooks."""
    for _ in range(8):
        inner = getattr(optimizer, "optimizer", None)
        if inner is None or not hasattr(inner, "param_groups"):
            break
        optimizer = inner
    return optimizer


class Marks:
    """The hooks of the process. Recordings join and leave; watched objects are held weakly."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self.lock = threading.RLock()
        self.torch: Any = None
        self.listeners: list[Any] = []  # recordings: step_ended(number)
        self.annotating = 0  # number of them that want annotations
        self.handles: list[Any] = []  # hooks to remove
        self.backward: tuple[Any, Any] | None = None  # (torch's function, our wrapper)
        self.models: list[tuple[str, weakref.ref[Any]]] = []  # (name, weak reference)
        self.hooked: weakref.WeakSet[Any] = weakref.WeakSet()  # models with hooks
        self.watched: list[weakref.ref[Any]] = []  # optimizers, weak references, in the order given
        self.seen: weakref.WeakSet[Any] = weakref.WeakSet()  # optimizers that have stepped
        self.leader: weakref.ref[Any] | None = None  # weak reference
        self.is_explicit = False  # the program counts its steps itself
        self.steps = 0  # steps ended
        self.step_range: Any = None
        self.open = threading.local()  # per thread: {name: [depth, range]}

    # ---- joining and leaving ----

    def join(self, torch: Any, listener: Any, annotate: bool) -> None:
        global is_compiling
        with self.lock:
            self.torch = torch
            is_compiling = _find_is_compiling(torch)
            first = not self.listeners
            self.listeners.append(listener)
            if first:
                self.steps = 0
                self.leader = self.watched[0] if self.watched else None
                self._hook_optimizers()
            if annotate:
                self.annotating += 1
                if self.annotating == 1:
                    self._hook_backward()
                    for name, reference in list(self.models):
                        self._hook_model(name, reference())

    def leave(self, listener: Any, annotate: bool) -> None:
        with self.lock:
            if listener not in self.listeners:
                return
            self.listeners.remove(listener)
            if annotate:
                self.annotating -= 1
            if not self.annotating:
                self._close_step()
                self._unhook_backward()
            elif annotate and self.steps:
                self._open_step()  # `settle` closed these for the recording that leaves
            if not self.listeners:
                for handle in self.handles:
                    attempt(handle.remove)
                self.handles = []
                self.hooked.clear()
                self.is_explicit = False
                # The first step of the next training must not wait for an optimizer of this one.
                self.seen.update(held for held in (ref() for ref in self.watched) if held)
                self.watched, self.leader = [], None

    def watch(self, model: Any, optimizer: Any, name: str | None) -> None:
        with self.lock:
            if model is not None:
                self.models = [row for row in self.models if _is_another(row[1], model)]
                name = name or ("model" if not self.models else f"model{len(self.models) + 1}")
                self.models.append((name, weakref.ref(model)))
                if self.annotating:
                    self._hook_model(name, model)
            if optimizer is not None:
                optimizer = innermost(optimizer)
                self.watched = [ref for ref in self.watched if _is_another(ref, optimizer)]
                self.watched.append(weakref.ref(optimizer))
                self.leader = self.watched[0]

    def living_models(self) -> Watched:
        with self.lock:
            rows = [(name, reference()) for name, reference in self.models]
        return [row for row in rows if row[1] is not None]

    def living_optimizers(self) -> list[Any]:
        with self.lock:
            found = [reference() for reference in self.watched]
            found += list(self.seen)
        unique = {id(optimizer): optimizer for optimizer in found if optimizer is not None}
        return list(unique.values())[:64]

    # ---- ranges ----

    def _range(self, name: str) -> Any:
        """An open range, or None."""
        opened = attempt(self.torch.profiler.record_function, name)
        if opened is None:
            return None
        return opened if attempt(opened.__enter__) is not None else None

    @staticmethod
    def _close(opened: Any) -> None:
        if opened is not None:
            attempt(opened.__exit__, None, None, None)

    def begin(self, name: str) -> None:
        """Opens a range in this thread; one inside another of the same name only increases its depth."""
        table = self.open.__dict__
        if name in table:
            table[name][0] += 1
        else:
            table[name] = [1, self._range(name)]
            ledger.mark(name)

    def end(self, name: str) -> None:
        table = self.open.__dict__
        if name not in table:
            return
        table[name][0] -= 1
        if table[name][0] <= 0:
            self._close(table.pop(name)[1])
            ledger.mark("end of " + name)

    @contextlib.contextmanager
    def phase(self, name: str) -> Iterator[None]:
        opened = self._range(name) if self.annotating else None
        marked = self._mark_memory(name) if self.annotating else []
        ledger.mark(name, PHASE)
        try:
            yield
        finally:
            ledger.mark("end of " + name, PHASE)
            for backend in marked:
                attempt(backend.set_metadata, "")
            self._close(opened)

    def _mark_memory(self, name: str) -> list[Backend]:
        """Marks what this thread allocates with the phase, where PyTorch can (2.10), unless the program
        or an outer phase marks it already. Returns the backends where it did."""
        backends = {listener.backend for listener in list(self.listeners)} - {None}
        marked = [backend for backend in backends if backend.metadata() == ""]
        for backend in marked:
            attempt(backend.set_metadata, {"name": name, "phase": name})
        return marked

    # ---- steps ----

    def _open_step(self) -> None:
        if self.annotating and self.step_range is None:
            self.step_range = self._range(f"ProfilerStep#{self.steps + 1}")

    def _close_step(self) -> None:
        opened, self.step_range = self.step_range, None
        self._close(opened)

    @guarded("the mark of the last step")
    def settle(self) -> None:
        """A recording is about to be written and to end: the current step does not belong to it."""
        with self.lock:
            self._close_step()

    @guarded("the first mark of a step")
    def _touch(self) -> None:
        """Something in a step happened: opens the first step."""
        if self.step_range is None:
            with self.lock:
                self._open_step()

    def count_by_hand(self) -> None:
        """The program counts its steps itself, from the first one on."""
        self.is_explicit = True

    @guarded("the end of a step")
    def step(self, number: int | None = None, explicit: bool = True) -> None:
        """A step is complete; `number` is its number if the program provides one."""
        with self.lock:
            if explicit:
                is_first, self.is_explicit = not self.is_explicit, True
                if is_first and self.steps and number in (None, self.steps):
                    return  # a hook has already reported this one
            elif self.is_explicit:
                return
            self._close_step()
            self.steps = self.steps + 1 if number is None else int(number)
            listeners = list(self.listeners)
        ledger.step(self.steps)
        for listener in listeners:
            listener.step_ended(number)
        with self.lock:
            if self.listeners:
                self._open_step()

    # ---- hooks ----

    @guarded("hooks on optimizers")
    def _hook_optimizers(self) -> None:
        # Not through torch.optim, which deletes the name of this module.
        module = importlib.import_module("torch.optim.optimizer")
        register = getattr(module, "register_optimizer_step_post_hook", None)
        if register is None:
            warn_once(
                "no optimizer hooks",
                "this PyTorch has no hooks on all optimizers: call record.step() after each step",
            )
            return
        self.handles.append(register(_after_step))

    @guarded("the hook after an optimizer's step")
    def after_optimizer(self, optimizer: Any) -> None:
        with self.lock:
            self.seen.add(optimizer)
            leader = self.leader() if self.leader is not None else None
            if leader is None:
                leader, self.leader = optimizer, weakref.ref(optimizer)
        if leader is optimizer:
            self.step(explicit=False)

    @guarded("hooks on a model")
    def _hook_model(self, name: str, model: Any) -> None:
        if model is None or model in self.hooked:
            return
        label = "forward" if name == "model" else f"forward {name}"
        options = attempt(inspect.signature, model.register_forward_hook)
        # The range is closed even if forward raises; before PyTorch 2.1 by the next forward.
        closes = options is not None and "always_call" in options.parameters
        extra = {"always_call": True} if closes else {}
        self.hooked.add(model)
        self.handles.append(model.register_forward_pre_hook(_BeforeForward(label, closes)))
        self.handles.append(model.register_forward_hook(_AfterForward(label, closes), **extra))

    @guarded("the hook before forward")
    def before_forward(self, label: str, closes: bool) -> None:
        if not self.annotating:
            return
        if not closes and label in self.open.__dict__:
            self.end(label)
        self._touch()
        self.begin(label)

    @guarded("the hook after forward")
    def after_forward(self, label: str) -> None:
        self.end(label)

    @guarded("the mark of backward")
    def _hook_backward(self) -> None:
        original = self.torch.autograd.backward
        owner = self

        @functools.wraps(original)
        def backward(*args: Any, **kwargs: Any) -> Any:
            if is_compiling() or not owner.annotating:
                return original(*args, **kwargs)
            owner._before_backward()
            try:
                return original(*args, **kwargs)
            finally:
                owner._after_backward()

        self.torch.autograd.backward = backward
        self.backward = (original, backward)

    def _unhook_backward(self) -> None:
        if self.backward is None:
            return
        original, ours = self.backward
        self.backward = None
        if self.torch.autograd.backward is ours:
            self.torch.autograd.backward = original
        # Otherwise someone has wrapped our function, which from now on only forwards calls.

    @guarded("the mark of backward")
    def _before_backward(self) -> None:
        self._touch()
        self.begin("backward")

    @guarded("the mark of backward")
    def _after_backward(self) -> None:
        self.end("backward")


marks = Marks()


def _after_step(optimizer: Any, args: Any, kwargs: Any) -> None:
    if not is_compiling():
        marks.after_optimizer(optimizer)
