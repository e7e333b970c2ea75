"""CUDA (and ROCm, which is the same to PyTorch), Intel XPU and Ascend NPU: the memory history of
each.

The functions are private to PyTorch and their arguments grew with the releases:

    1.13       _record_memory_history(enabled)
    2.0        (enabled, record_context, trace_alloc_max_entries, trace_alloc_record_context, ...)
    2.1        (enabled, context, stacks, max_entries, device)
    2.7, 2.8   + clear_history, compile_context, global_record_annotations
    2.11       + skip_actions
    2.14       + record_pinned_host_memory, record_cuda

so the arguments passed are those in the function's signature, independent of the version. The
NPU's takes *args and hides its arguments in _record_memory_history_impl.

Recording never initialises a device: PyTorch calls us back (`_lazy_call`) when a program
first uses one. So a rank that calls set_device first gets no extra context on device 0, and a
program can still fork.

The history belongs to the process, not to a recording: `History` counts its users and turns it
off after the last. A history that the program itself turned on is used unchanged and left on.
"""

from __future__ import annotations

import inspect
import sys
import threading
from typing import TYPE_CHECKING, Any, Callable, Optional, Tuple

from .guard import attempt, guarded, logger, warn_once

if TYPE_CHECKING:
    from .settings import Settings

# What an out-of-memory observer is given: device, requested, total and free bytes.
Numbers = Optional[Tuple[int, ...]]

# The arguments that every release since 2.1 has.
_CORE = ("context", "stacks", "max_entries")
# The options that concern the history, which all recordings of a process share.
_HISTORY_OPTIONS = (*_CORE, "trace", "compile_context", "skip_actions", "pinned")


class Backend:
    """One kind of device. `module` is torch.cuda, torch.xpu or torch_npu.npu."""

    def __init__(self, name: str, module: Any, attach: Any) -> None:
        self.name = name
        self.module = module
        self.memory = module.memory
        self.attach = attach  # attaches an out-of-memory observer; None if unsupported

    # ---- readiness ----

    def is_initialized(self) -> bool:
        return bool(attempt(self.module.is_initialized, default=False))

    def when_ready(self, function: Callable[..., Any]) -> None:
        """Calls function() once the device is in use: now, or when the program first uses it."""
        lazy_call = getattr(self.module, "_lazy_call", None)
        if lazy_call is not None:
            lazy_call(function)
        elif self.is_initialized() or attempt(self.module.is_available, default=False):
            function()

    def is_imitated(self) -> bool:
        """Whether tessera.trace answers for the device: then there is no memory to record."""
        function = self.memory._record_memory_history
        return getattr(function, "__module__", "") == "tessera._fake_cuda"

    # ---- the history ----

    def is_recording(self) -> bool:
        """Whether the history is on; False if PyTorch cannot report it."""
        ask = getattr(_torch_c(), f"_{self.name}_isHistoryEnabled", None)
        return bool(attempt(ask, default=False)) if ask is not None else False

    def enable(self, settings: Settings) -> None:
        """Turns the history on. Raises what PyTorch raises."""
        function = self.memory._record_memory_history
        names = _parameters(function, self.memory)
        if "max_entries" not in names:
            function(True, **_legacy_arguments(names, settings))
            return
        wanted = _arguments(settings)
        if settings.pinned and "record_pinned_host_memory" not in names:
            warn_once(
                "pinned", "this PyTorch cannot record pinned memory: that needs 2.14 or later"
            )
        kept = "all" if settings.trace else "state"
        try:
            function(kept, **{name: wanted[name] for name in wanted if name in names})
        except TypeError:
            # In some builds the Python half accepts arguments that the C++ half rejects.
            if settings.pinned:
                warn_once("pinned", "this build of PyTorch refuses to record pinned memory")
            function(kept, **{name: wanted[name] for name in _CORE})

    def disable(self) -> None:
        names = _parameters(self.memory._record_memory_history, self.memory)
        self.memory._record_memory_history(None if "max_entries" in names else False)

    def snapshot(self) -> Any:
        return self.memory._snapshot()

    # ---- what the program calls things, from PyTorch 2.14 on ----

    def annotate(self, tensor: Any, text: str) -> bool:
        """Writes a name of a tensor's allocation into the history; False if PyTorch cannot."""
        function = getattr(self.memory, "_annotate_tensor", None)
        if function is None:
            return False
        function(tensor, text)
        return True

    def can_annotate(self) -> bool:
        return hasattr(self.memory, "_annotate_tensor")

    def metadata(self) -> Any:
        """What this thread's allocations are marked with; None if PyTorch cannot mark them."""
        if not hasattr(self.memory, "_set_memory_metadata"):
            return None
        return attempt(getattr(self.memory, "_get_memory_metadata", None), default="") or ""

    def set_metadata(self, value: Any) -> None:
        attempt(self.memory._set_memory_metadata, value)

    # ---- numbers; none of these waits for the device ----

    def current_device(self) -> Any:
        return self.module.current_device()

    def ask(self, name: str, *arguments: Any) -> Any:
        """The result of module.NAME(...), or None if that function is missing or fails."""
        function = getattr(self.module, name, None) or getattr(self.memory, name, None)
        return None if function is None else attempt(function, *arguments)


def _torch_c() -> Any:
    return getattr(sys.modules.get("torch"), "_C", None)


def _parameters(function: Callable[..., Any], memory: Any) -> set[str]:
    """The names of the arguments that a _record_memory_history takes."""
    for candidate in (function, getattr(memory, "_record_memory_history_impl", None)):
        if candidate is None:
            continue
        signature = attempt(inspect.signature, candidate)
        if signature is None:
            continue
        kinds = signature.parameters.values()
        if not any(kind.kind is inspect.Parameter.VAR_KEYWORD for kind in kinds):
            return set(signature.parameters)
    return {"enabled", *_CORE}


def _arguments(settings: Settings) -> dict[str, Any]:
    compiled = settings.compile_context
    if compiled is None:
        # It costs a string comparison per operator, so only if torch.compile can be in use.
        compiled = "torch._dynamo" in sys.modules
    wanted: dict[str, Any] = {
        "context": settings.context,
        "stacks": settings.stacks,
        "max_entries": settings.max_entries,
        "compile_context": compiled,
        "global_record_annotations": True,  # of all threads, including the program's own annotations
    }
    if settings.skip_actions is not None:
        wanted["skip_actions"] = settings.skip_actions
    if settings.pinned:
        wanted["record_pinned_host_memory"] = True
    return wanted


def _legacy_arguments(names: set[str], settings: Settings) -> dict[str, Any]:
    """For PyTorch 2.0, whose history keeps one event by default."""
    wanted = {
        "record_context": settings.context is not None,
        "trace_alloc_max_entries": settings.max_entries if settings.trace else 1,
        "trace_alloc_record_context": settings.trace and settings.context in ("alloc", "all"),
        "record_context_cpp": settings.stacks == "all",
    }
    return {name: wanted[name] for name in wanted if name in names}


# ---- which devices this PyTorch knows ----


def _is_built(name: str, torch: Any, module: Any) -> bool:
    version = getattr(torch, "version", None)
    if name == "cuda":
        return bool(getattr(version, "cuda", None) or getattr(version, "hip", None))
    if name == "xpu":
        return bool(attempt(getattr(module, "_is_compiled", None), default=False))
    return True


def _modules(torch: Any) -> list[tuple[str, Any, Any]]:
    """(name, module, the module that has the observer) of every kind of device PyTorch could
    have."""
    torch_npu = sys.modules.get("torch_npu")
    rows = (
        ("cuda", getattr(torch, "cuda", None), getattr(torch, "_C", None)),
        ("xpu", getattr(torch, "xpu", None), getattr(torch, "_C", None)),
        ("npu", getattr(torch_npu, "npu", None), getattr(torch_npu, "_C", None)),
    )
    return [row for row in rows if row[1] is not None and _is_built(row[0], torch, row[1])]


def find(torch: Any, only: str | None = None) -> list[Backend]:
    """The backends of this PyTorch that can be recorded; warns of those that cannot."""
    found = []
    version = getattr(torch, "__version__", "of unknown version")
    for name, module, core in _modules(torch):
        if only is not None and name != only:
            continue
        memory = getattr(module, "memory", None)
        if hasattr(memory, "_record_memory_history") and hasattr(memory, "_snapshot"):
            attach = getattr(core, f"_{name}_attach_out_of_memory_observer", None)
            found.append(Backend(name, module, attach))
        else:
            warn_once(
                "no history " + name,
                "PyTorch %s has no memory history for %s devices: nothing is recorded there",
                version,
                name.upper(),
            )
    return found


def why_none(torch: Any, only: str | None) -> str:
    """One sentence for people: why `find` found nothing."""
    version = getattr(torch, "__version__", "of unknown version")
    if only is not None:
        return f"this PyTorch ({version}) cannot record the memory of {only.upper()} devices"
    mps = getattr(getattr(torch, "backends", None), "mps", None)
    if mps is not None and attempt(getattr(mps, "is_available", None), default=False):
        return "PyTorch keeps no memory history for Apple's MPS; CUDA, XPU and NPU have one"
    return (
        f"this PyTorch ({version}) is built without CUDA, XPU or NPU: there is no memory to record"
    )


# ---- the history of the process ----


class History:
    """Counts the recordings that want a backend's history; on with the first, off with the last."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self.lock = threading.Lock()
        self.users: dict[str, int] = {}  # backend name: number of users
        self.borrowed: set[str] = set()  # names whose history the program had turned on itself
        self.asked: dict[str, Settings] = {}  # backend name: the settings of the first user

    def acquire(self, backend: Backend, settings: Settings) -> bool:
        """Returns whether the history is on afterwards; if so, the caller must release it."""
        with self.lock:
            if not self.users.get(backend.name):
                if backend.is_recording():
                    self.borrowed.add(backend.name)
                    logger.info("memory history is on already, and used with the settings it has")
                else:
                    try:
                        backend.enable(settings)
                    except Exception as error:
                        warn_once(
                            "enable " + backend.name,
                            "memory history of %s could not be turned on: %s: %s",
                            backend.name.upper(),
                            type(error).__name__,
                            error,
                        )
                        return False
                    self.asked[backend.name] = settings
            elif backend.name in self.asked:
                self._warn_of_ignored(self.asked[backend.name], settings)
            self.users[backend.name] = self.users.get(backend.name, 0) + 1
            return True

    @staticmethod
    def _warn_of_ignored(running: Settings, settings: Settings) -> None:
        """The history is the process's: what the first recording asked for holds for all."""
        for name in _HISTORY_OPTIONS:
            first, asked = getattr(running, name), getattr(settings, name)
            if first != asked:
                warn_once(
                    f"nested {name} {asked!r}",
                    "a recording with %s=%r is under way: %s=%r of the one inside it is ignored",
                    name,
                    first,
                    name,
                    asked,
                )

    @guarded("turning memory history off")
    def release(self, backend: Backend) -> None:
        with self.lock:
            self.users[backend.name] = max(0, self.users.get(backend.name, 0) - 1)
            if self.users[backend.name]:
                return
            self.asked.pop(backend.name, None)
            if backend.name in self.borrowed:
                self.borrowed.discard(backend.name)
            else:
                backend.disable()


history = History()


# ---- out of memory ----


class Observers:
    """PyTorch's observer cannot be removed, so a single one is attached and calls the listeners."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self.listeners: list[Callable[[Numbers], bool]] = []  # the innermost recording is last
        self.attached: set[str] = set()

    @guarded("attaching the out-of-memory observer")
    def attach(self, backend: Backend) -> None:
        if backend.attach is None:
            warn_once(
                "no observer " + backend.name,
                "PyTorch does not notify observers when %s memory runs out: "
                "only the exception will be seen",
                backend.name.upper(),
            )
            return
        if backend.name not in self.attached:
            self.attached.add(backend.name)  # set first: a second attempt would attach a second one
            backend.attach(self.notify)

    def notify(self, *numbers: int) -> None:
        """Called by the allocator, in whichever thread asked for memory, before it raises."""
        self._notify(numbers)

    @guarded("the out-of-memory observer")
    def _notify(self, numbers: Numbers) -> None:
        for listener in reversed(list(self.listeners)):
            if listener(numbers):
                return


observers = Observers()
