"""The memory of communicators: NCCL's buffers, for each process group on each device.

From PyTorch 2.12 and NCCL 2.29.7 on, a group's backend reports it (`memory_stats()`): "persist" bytes that stay, "suspend" bytes
that are released while "suspended" is 1, and "total", the sum of both, which suspending does not change. Otherwise a communicator's size is
how much more the card holds after the group's first call of each collective than before it: NCCL allocates in the calling thread.

The calls of a program are seen because the methods of ProcessGroup are wrapped while something is recorded. The
functions of torch.distributed are not: torch.compile recognises them by identity. What C++ calls (DDP's reducer, functional
collectives) is seen from the group's sequence number at the next sample; then the growth since the sample before is the communicator's. If
several groups were first used between two samples, the growth is that of all of them together.
"""

from __future__ import annotations

import functools
import sys
import threading
import weakref
from typing import Any, Callable, Protocol

from .guard import attempt, guarded

_MOST = 256  # groups looked at

# The collectives of ProcessGroup, and what to call them.
METHODS = {
    "allreduce": "all_reduce",
    "allreduce_coalesced": "all_reduce",
    "broadcast": "broadcast",
    "reduce": "reduce",
    "allgather": "all_gather",
    "_allgather_base": "all_gather",
    "allgather_coalesced": "all_gather",
    "allgather_into_tensor_coalesced": "all_gather",
    "gather": "gather",
    "scatter": "scatter",
    "reduce_scatter": "reduce_scatter",
    "_reduce_scatter_base": "reduce_scatter",
    "reduce_scatter_tensor_coalesced": "reduce_scatter",
    "alltoall": "all_to_all",
    "alltoall_base": "all_to_all",
    "send": "send",
    "recv": "recv",
    "recv_anysource": "recv",
    "barrier": "barrier",
    "_end_coalescing": "coalesced call",
}


class Communicator:
    """One process group's memory on one device, or that of several that were first used together."""

    def __init__(self, name: str, backend: str, ranks: int | None) -> None:
        self.name, self.backend, self.ranks = name, backend, ranks
        self.source = "first_collective"  # or "stats"
        self.is_suspended: bool | None = None
        self.bytes: int | None = 0  # now; None: not known


class Ledger(Protocol):
    """What is asked of the ledger (card.Ledger)."""

    def outside(self) -> dict[int, int]:
        """{device: bytes of the card that are neither PyTorch's nor another process's}, now."""
        ...

    def mark_first(self, text: str) -> None: ...

    def communicators(self, device: int) -> list[Communicator]: ...

    def note(self, text: str) -> None: ...


class _Group:
    """What is known of a process group."""

    def __init__(self, name: str, backend: str, ranks: int | None) -> None:
        self.name, self.backend, self.ranks = name, backend, ranks
        self.is_used = False
        self.methods: set[str] = set()  # collectives that were measured
        self.of_device: dict[int, Communicator] = {}
        self.has_stats: bool | None = None  # None: not asked yet


def _is_of_card(backend: str) -> bool:
    return "ccl" in backend.lower()  # nccl, rccl, xccl, hccl, and their successors


def _backend(group: Any, device: Any) -> Any:
    return attempt(group._get_backend, device)


def _backend_name(backend: Any) -> str:
    name = getattr(backend, "name", None)
    name = attempt(name) if callable(name) else name
    return str(name or "")


def _title(group: Any, given: Any) -> str:
    """ "dp (3)": what the program calls the group, and PyTorch's number of it."""
    name = str(getattr(group, "group_name", None) or given or "")
    words = str(getattr(group, "group_desc", None) or "")
    words = words[5:] if words.startswith("mesh_") else words
    if words in ("", "undefined", name):
        return f"group {name}" if name else "group"
    return f"{words} ({name})" if name else words


class Groups:
    """The process groups of this process; one per process."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self._known: Any = weakref.WeakKeyDictionary()  # process group: _Group, or None if it is not of a card
        self._living: list[tuple[Any, _Group]] = []  # (weak reference to a process group of a card, what is known)
        self._wrapped: list[tuple[str, Any, Any]] = []  # (method, what the class had, ours)
        self._class: Any = None
        self._window = threading.Lock()  # held while a first call is measured
        self._ledger: Ledger | None = None
        self._device: Callable[[], Any] = lambda: None  # a torch.device of the card

    def renew(self) -> None:
        """In a forked child: nothing is measured, and the lock may be held by a thread that is not here."""
        self.leave()
        self._window = threading.Lock()

    # ---- the calls of the program ----

    @guarded("the hooks on process groups")
    def join(self, ledger: Ledger, device: Callable[[], Any]) -> None:
        self._ledger, self._device = ledger, device
        module = sys.modules.get("torch.distributed")
        kind = getattr(module, "ProcessGroup", None)
        if kind is None or self._class is not None:
            return
        self._class = kind
        for method, text in METHODS.items():
            before = vars(kind).get(method)
            function = getattr(kind, method, None)
            if before is None or not callable(function):
                continue
            ours = self._wrapper(function, method, text)
            if attempt(_set, kind, method, ours):
                self._wrapped.append((method, before, ours))

    @guarded("the hooks on process groups")
    def leave(self) -> None:
        kind, wrapped = self._class, self._wrapped
        self._ledger, self._class, self._wrapped = None, None, []
        for method, before, ours in wrapped:
            if vars(kind).get(method) is ours:
                attempt(_set, kind, method, before)
            # Otherwise someone has wrapped our function, which from now on only forwards calls.
        self._known, self._living = weakref.WeakKeyDictionary(), []

    def _wrapper(self, function: Any, method: str, text: str) -> Any:
        owner = self

        def call(group: Any, *args: Any, **kwargs: Any) -> Any:
            if owner._ledger is None or owner._is_seen(group, method):
                return function(group, *args, **kwargs)
            before = owner._before(group, method)
            try:
                return function(group, *args, **kwargs)
            finally:
                if before is not None:
                    owner._after(group, text, before)

        return functools.update_wrapper(call, function, ("__name__", "__doc__"))

    def _is_seen(self, group: Any, method: str) -> bool:
        try:
            known = self._known.get(group, self)
        except TypeError:  # cannot be held weakly
            return True
        return known is None or (known is not self and method in known.methods)

    @guarded("measuring a communicator")
    def _before(self, group: Any, method: str) -> dict[int, int] | None:
        """What the devices hold before a group's first call of a collective; None if another first call is being
        measured, or if the group is not of a card."""
        known = self._look(group, None)
        ledger = self._ledger
        if known is None or ledger is None or not self._window.acquire(blocking=False):
            return None
        try:
            known.methods.add(method)
            known.is_used = True
            return ledger.outside()
        except BaseException:
            self._window.release()
            raise

    @guarded("measuring a communicator")
    def _after(self, group: Any, text: str, before: dict[int, int]) -> None:
        try:
            known, ledger = self._look(group, None), self._ledger
            if known is None or ledger is None:
                return
            if not self._ask(group, known, ledger):
                for device, size in ledger.outside().items():
                    if device in before and size > before[device]:
                        self._grow(known, device, size - before[device], ledger)
            ledger.mark_first(f"first {text} of {known.name}")
        finally:
            self._window.release()

    # ---- at each sample ----

    @guarded("looking at process groups")
    def refresh(self, grown: Callable[[], dict[int, int]], asks: bool) -> None:
        """Before a sample. `grown` are the bytes that devices hold more than at the sample before, outside PyTorch and other processes;
        `asks`: backends may be asked, which is left to the program's own threads, because a communicator that is being made holds its lock."""
        module: Any = sys.modules.get("torch.distributed.distributed_c10d")
        table = getattr(getattr(module, "_world", None), "pg_map", None)
        ledger = self._ledger
        if ledger is None or (not table and not self._living):
            return
        groups = list(table or ())[:_MOST]
        self._forget(groups)
        names = getattr(module._world, "pg_names", {})
        begun = []
        for group in groups:
            known = self._look(group, names)
            if known is None:
                continue
            if not known.is_used and self._number(group) > 0:
                known.is_used = True
                if not (asks and self._ask(group, known, ledger)):
                    begun.append(known)
            elif asks and known.is_used and known.has_stats is not False:
                self._ask(group, known, ledger)
        if begun and not self._window.locked():
            self._share(begun, grown(), ledger)

    def _share(self, begun: list[_Group], grown: dict[int, int], ledger: Ledger) -> None:
        """Groups that C++ was the first to use, between the last sample and this one."""
        if not grown:  # nothing was measured before, or the card cannot be asked
            for known in begun:
                ledger.note(f"the memory of {known.name} is not known: it was in use before the first sample")
            return
        joint = begun[0]
        if len(begun) > 1:
            joint = _Group(", ".join(known.name for known in begun[:8]), begun[0].backend, None)
            for known in begun:
                known.of_device, known.has_stats = joint.of_device, False
        for device, size in grown.items():
            if size > 0:
                self._grow(joint, device, size, ledger)

    @staticmethod
    def _grow(known: _Group, device: int, size: int, ledger: Ledger) -> None:
        held = known.of_device.get(device)
        if held is None:
            held = known.of_device[device] = Communicator(known.name, known.backend, known.ranks)
            ledger.communicators(device).append(held)
        held.bytes = (held.bytes or 0) + size

    def _ask(self, group: Any, known: _Group, ledger: Ledger) -> bool:
        """Asks the backend what its communicator holds; returns whether it had an answer."""
        if known.has_stats is False:
            return False
        device = attempt(self._device)
        backend = _backend(group, device)
        function = getattr(backend, "memory_stats", None)
        told = None if function is None else attempt(function)
        told = told if isinstance(told, dict) else {}
        total = told.get("total")
        if not isinstance(total, int) or total <= 0:  # NCCL is older, or does not count
            known.has_stats = False if not known.has_stats else known.has_stats
            return False
        known.has_stats = True
        index = getattr(device, "index", None) or 0
        held = known.of_device.get(index)
        if held is None:
            held = known.of_device[index] = Communicator(known.name, known.backend, known.ranks)
            ledger.communicators(index).append(held)
        held.source = "stats"
        held.is_suspended = bool(told.get("suspended"))
        held.bytes = int(told.get("persist") or 0) if held.is_suspended else total
        return True

    # ---- groups ----

    def _look(self, group: Any, names: Any) -> _Group | None:
        if group in self._known:
            return self._known[group]  # type: ignore[no-any-return]
        name = _backend_name(_backend(group, attempt(self._device)))
        known = None
        if _is_of_card(name):
            given = names.get(group) if isinstance(names, dict) else None
            known = _Group(_title(group, given), name, attempt(group.size))
            self._living.append((weakref.ref(group), known))
        self._known[group] = known
        return known

    @staticmethod
    def _number(group: Any) -> int:
        """How many collectives the group has run; 0 if that is unknown."""
        number = attempt(getattr(group, "_get_sequence_number_for_group", None), default=0)
        return number if isinstance(number, int) else 0

    def _forget(self, groups: Any) -> None:
        """Of groups that are gone, so is the memory."""
        there = {id(group) for group in groups}
        living = []
        for reference, known in self._living:
            group = reference()
            if group is not None and id(group) in there:
                living.append((reference, known))
                continue
            for held in known.of_device.values():
                held.bytes = 0
        self._living = living


def _set(kind: Any, name: str, value: Any) -> bool:
    setattr(kind, name, value)
    return True


groups = Groups()
