"""The ledger of the card: what its memory holds, sampled while a program is recorded, for the sidecar's `card`.

    mark      a step, forward, backward, a phase, a snapshot, an out-of-memory, a communicator's first call: in the program's thread
    timer     in a thread of ours, which asks NVML and PyTorch's counters, never CUDA

A sample of a device is a `Sample`: what the card holds, PyTorch's counters, each process's memory and each communicator's. Nothing waits
for the device. CUDA is only asked (cudaMemGetInfo) if NVML has no answer, in a thread of the program, on a device that has a context,
and while no graph is captured.

Sampling is limited to `SHARE` of the time that has passed, plus `ALLOWANCE` at the start. A quarter of it is the timer's, which waits
accordingly after a sample that took long; the rest is for marks. Whole steps are sampled or left out, so that the marks of a step that was
sampled can be compared. Snapshots, out-of-memory and first calls are always sampled, and later marks wait until the time for them has passed.

At most `MOST` samples of a device are kept (`_thinned`). There is one ledger in a process, whatever number of recordings it has.
"""

from __future__ import annotations

import os
import re
import threading
import time
from typing import TYPE_CHECKING, Any, Callable

from . import host as _host
from .groups import Communicator, groups
from .guard import attempt, guarded
from .nvml import Nvml, Unusable, find_card

if TYPE_CHECKING:
    from .backend import Backend

SHARE = 0.001  # of the time, for all samples
TIMERS = 0.25  # of SHARE
ALLOWANCE = 0.02  # seconds, once
PERIOD = 0.5  # seconds between two samples of the timer
FIRST_PERIOD = 0.05  # at the start, when contexts and libraries appear
MOST = 4096  # samples kept of each device
_MOST_PROCESSES = 64  # of other processes: the others are added up
_LIBRARY_GROWTH = 1 << 20  # less is no library's first use
_MOST_LOOKS = 32  # for libraries: each takes a millisecond or more
_PAGES = 32 << 20  # less is no sleeping pool
_MAPS = "/proc/self/maps"

# How a sample came about: by the timer, by a mark that each step has, by a phase of the program, or by something that happens rarely and
# is always sampled. What must be dropped is dropped in this order.
TIMER, REPEATING, PHASE, LASTING = 0, 1, 2, 3

# CUDA's libraries by the names of their files. Communicators have their own rows.
_LIBRARIES = re.compile(rb"/lib(cudnn|cublas|cusolver|cusparse|cufft|curand|nvrtc|nvshmem|cutensor|nvjpeg)[\w-]*\.so")


class Sample:
    """One moment of one device; sizes in bytes, None: not known."""

    __slots__ = (
        "time_us",
        "mark",
        "kind",
        "step",
        "used",
        "allocated",
        "reserved",
        "private",
        "unmapped",
        "process",
        "others",
        "communicators",
    )

    def __init__(self, time_us: int, mark: str | None, kind: int, step: int) -> None:
        self.time_us, self.mark, self.kind, self.step = time_us, mark, kind, step
        self.used: int | None = None
        self.allocated: int | None = None
        self.reserved: int | None = None
        self.private: int | None = None
        self.unmapped: int | None = None
        self.process: int | None = None
        self.others: dict[int, int | None] | None = None
        self.communicators: tuple[int | None, ...] = ()

    def outside(self) -> int | None:
        """What the card holds that is neither PyTorch's nor another process's, as far as that is known."""
        if self.used is None or self.reserved is None:
            return None
        others = sum(size or 0 for size in (self.others or {}).values())
        return self.used - (self.reserved - (self.unmapped or 0)) - others


class HostSample:
    """One moment of the host's memory; sizes in bytes, None: not known."""

    __slots__ = ("time_us", "kind", "rss", "cgroup", "pinned")

    def __init__(
        self, time_us: int, kind: int, rss: int | None, cgroup: int | None, pinned: int | None
    ) -> None:
        self.time_us, self.kind = time_us, kind
        self.rss, self.cgroup, self.pinned = rss, cgroup, pinned


def _without_lower(rows: list[Any], size: Callable[[Any], int], keep: set[int]) -> list[Any]:
    """Of each two neighbours among the timer's samples, the one with more bytes."""
    kept: list[Any] = []
    waiting: Any = None
    for row in rows:
        if row.kind != TIMER or id(row) in keep:
            kept.append(row)
            continue
        if waiting is None:
            waiting = row
            continue
        kept.append(row if size(row) > size(waiting) else waiting)
        waiting = None
    if waiting is not None:
        kept.append(waiting)
    kept.sort(key=lambda row: row.time_us)
    return kept


def _thinned(rows: list[Any], size: Callable[[Any], int], keep: set[int]) -> list[Any]:
    """Without half of the timer's samples. If fewer than a quarter of all are gone then, the marks of every second step go, too, then every
    second phase, and at last every second of the others; the samples in `keep` (ids) stay."""
    limit = 3 * len(rows) // 4
    rows = _without_lower(rows, size, keep)
    if len(rows) > limit:
        steps = sorted({row.step for row in rows if row.kind == REPEATING})
        dropped = set(steps[1::2])
        rows = [
            row for row in rows if row.kind != REPEATING or row.step not in dropped or id(row) in keep
        ]
    for kind in (PHASE, LASTING):
        if len(rows) > limit:
            dropped = {id(row) for row in [row for row in rows if row.kind == kind][1::2]} - keep
            rows = [row for row in rows if id(row) not in dropped]
    return rows


class Device:
    """What is known of one device."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.name: str | None = None
        self.uuid: str | None = None
        self.total: int | None = None
        self.driver: int | None = None
        self.handle: Any = None  # of NVML; None: it cannot be asked about this device
        self.before: int | None = None  # what the card held before this process had a context
        self.others_before: int | None = None
        self.context: int | None = None
        self.context_source: str | None = None
        self.unmapped_source: str | None = None
        self.told_unmapped: int | None = None  # by the program
        self.libraries: list[tuple[str, int, int]] = []  # name, bytes, the time of the first sample with them
        self.communicators: list[Communicator] = []
        self.rows: list[Sample] = []
        self.notes: list[str] = []
        self.is_new = True  # its context may still be created

    def add(self, row: Sample) -> bool:
        """Appends a sample; returns whether samples had to be dropped."""
        self.rows.append(row)
        if len(self.rows) <= MOST:
            return False
        keep = {id(row)}
        for name in ("used", "reserved"):
            known = [row for row in self.rows if getattr(row, name) is not None]
            if known:
                keep.add(id(max(known, key=lambda row: getattr(row, name))))
        self.rows = _thinned(self.rows, lambda row: row.used or 0, keep)
        return True


class Budget:
    """How much time sampling may take and has taken, in seconds."""

    def __init__(self, now: float, share: float, allowance: float) -> None:
        self.began, self.share, self.allowance = now, share, allowance
        self.spent = 0.0
        self.cost = 0.0  # of a sample, lately

    def charge(self, seconds: float) -> None:
        seconds = max(0.0, seconds)
        self.spent += seconds
        self.cost = seconds if not self.cost else 0.75 * self.cost + 0.25 * seconds

    def allows(self, now: float, samples: int = 1) -> bool:
        return self.spent + self.cost * samples <= self.allowance + self.share * (now - self.began)

    def pause(self, now: float) -> float:
        """Seconds until there is time for one sample more."""
        missing = self.spent + self.cost - self.allowance - self.share * (now - self.began)
        return max(0.0, missing / self.share)


class Clocks:
    """The times that the ledger reads, in seconds; tests have their own."""

    def wall(self) -> float:
        """For the file."""
        return time.time()

    def elapsed(self) -> float:
        return time.monotonic()

    def program(self) -> float:
        """Its difference is what a sample delays the program by."""
        return time.perf_counter()

    def own(self) -> float:
        """The same in a thread of ours, which only costs the program what it computes."""
        return time.thread_time() if hasattr(time, "thread_time") else time.perf_counter()


class Ledger:
    """The ledger of the process. Recordings join and leave; what was sampled is kept until the last has left."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """As in a process that has recorded nothing; also after a fork."""
        groups.renew()
        self.clocks: Any = Clocks()
        self.users = 0
        self._lock = threading.Lock()
        self._owner: int | None = None  # the thread that holds the lock
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None
        self._clear()

    def _clear(self) -> None:
        self.pid = os.getpid()
        self.backend: Backend | None = None
        self.torch: Any = None
        self.nvml: Nvml | None = None
        self.nvml_error: str | None = None
        self.devices: dict[int, Device] = {}
        self.host: _host.Host | None = None
        self.host_rows: list[HostSample] = []
        self.names: dict[int, str | None] = {}  # of other processes
        self.notes: list[str] = []
        self.period = PERIOD
        self._next_period = FIRST_PERIOD
        self._last_us = 0
        self._for_marks = Budget(0.0, SHARE * (1 - TIMERS), ALLOWANCE * (1 - TIMERS))
        self._for_timer = Budget(0.0, SHARE * TIMERS, ALLOWANCE * TIMERS)
        self._libraries: set[str] = set()  # that were loaded at the last look
        self._looks = 0
        self.taken = self.skipped = 0
        self.setup_us = 0
        self._steps: list[float] = []  # seconds of the latest ones
        self._step_began: float | None = None
        self._step, self._marks, self._last_marks = 0, 0, 1
        self._is_step_sampled = True

    # ---- recordings ----

    @guarded("the ledger of the card")
    def join(self, torch: Any, backend: Backend) -> None:
        """A recording begins: its backend is in use, its devices perhaps not yet."""
        if self.pid != os.getpid():
            self.reset()
        self.users += 1
        if self.users > 1:
            return
        began = self.clocks.program()
        self._clear()
        self.torch, self.backend = torch, backend
        self.host = _host.look()
        if self._is_nvidia():
            self._load()
        else:
            self.nvml_error = "NVML is for NVIDIA's cards"
        self._for_marks.began = self._for_timer.began = self.clocks.elapsed()
        groups.join(self, self._torch_device)
        if self.nvml is not None:
            self._libraries = _loaded()
            self._look_before()
            self._start_thread()
        self.setup_us = int(1e6 * (self.clocks.program() - began))

    def _is_nvidia(self) -> bool:
        version = getattr(self.torch, "version", None)
        return self.backend is not None and self.backend.name == "cuda" and not getattr(version, "hip", None)

    def _load(self) -> None:
        try:
            self.nvml = Nvml()
        except Unusable as error:
            self.nvml_error = str(error)
        except Exception as error:
            self.nvml_error = f"{type(error).__name__}: {error}"

    @guarded("the ledger of the card")
    def leave(self) -> None:
        """A recording has ended. After the last, nothing is sampled."""
        self.users = max(0, self.users - 1)
        if self.users:
            return
        groups.leave()
        thread, self._thread = self._thread, None
        self._wake.set()
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout=1)

    # ---- the timer ----

    def _start_thread(self) -> None:
        self._wake = threading.Event()
        self._thread = threading.Thread(target=self._attend, name="tessera-card", daemon=True)
        self._thread.start()

    @guarded("the timer of the card")
    def _attend(self) -> None:
        wake = self._wake
        while not wake.wait(self._pause()):
            self.tick()

    def _pause(self) -> float:
        """Seconds to the timer's next sample."""
        period, self._next_period = self._next_period, min(2 * self._next_period, self.period)
        if self._next_period >= self.period:
            self._next_period = self.period
        return max(period, self._for_timer.pause(self.clocks.elapsed()))

    @guarded("the timer of the card")
    def tick(self) -> None:
        """A sample of the timer, unless a mark has just made one."""
        if not self.users or self.pid != os.getpid():
            return
        began = self.clocks.own()
        if 2e-6 * (self._now() - self._last_us) < self.period and self._next_period >= self.period:
            return
        if not self._hold(blocking=False):
            return
        try:
            self._sample(None, TIMER, in_program=False)
            self._look_for_libraries()
        finally:
            self._let_go()
            self._for_timer.charge(self.clocks.own() - began)

    # ---- marks ----

    def mark(self, text: str, kind: int = REPEATING) -> None:
        """Something begins or ends in the program's thread."""
        if self.users:
            self._mark(text, kind)

    @guarded("a sample of the card")
    def _mark(self, text: str, kind: int) -> None:
        if self.pid != os.getpid() or self._owner == threading.get_ident():
            return
        self._marks += kind == REPEATING
        if kind != LASTING and not self._is_wanted(kind):
            self.skipped += 1
            return
        began = self.clocks.program()
        if not self._hold(blocking=kind == LASTING):
            return  # a sample is being taken at this moment
        try:
            self._sample(text, kind, in_program=True)
        finally:
            self._let_go()
            self._for_marks.charge(self.clocks.program() - began)

    def _is_wanted(self, kind: int) -> bool:
        """Whether there is time for a sample. In steps, it was decided at the start of the step, and is over if samples
        take longer than before."""
        allowed = self._for_marks.allows(self.clocks.elapsed())
        if kind == PHASE or self._step_began is None:  # no step has ended yet
            return allowed
        self._is_step_sampled = self._is_step_sampled and allowed
        return self._is_step_sampled

    def step(self, number: int) -> None:
        """A step has ended."""
        if self.users:
            self._mark_step(number)

    @guarded("a sample of the card")
    def _mark_step(self, number: int) -> None:
        self._mark(f"step {number}", REPEATING)
        now = self.clocks.elapsed()
        if self._step_began is not None:
            self._steps.append(now - self._step_began)
            del self._steps[:-101]
        self._step_began = now
        self._step, self._last_marks, self._marks = self._step + 1, max(1, self._marks), 0
        self._is_step_sampled = self._for_marks.allows(now, self._last_marks)

    def mark_first(self, text: str) -> None:
        """A communicator was used for the first time (groups)."""
        self.mark(text, LASTING)

    def asleep(self, size_bytes: int, device: int | None) -> None:
        """The program reports how much of PyTorch's reserved memory is not mapped from now on."""
        index = device
        if index is None and self.backend is not None:
            index = attempt(self.backend.current_device)
        if not self.users or not isinstance(index, int):
            return
        self._device(index).told_unmapped = max(0, int(size_bytes))

    def _hold(self, blocking: bool) -> bool:
        held = self._lock.acquire(timeout=1.0) if blocking else self._lock.acquire(blocking=False)
        if held:
            self._owner = threading.get_ident()
        return held

    def _let_go(self) -> None:
        self._owner = None
        self._lock.release()

    def _now(self) -> int:
        return int(1e6 * self.clocks.wall())

    # ---- which devices ----

    def _torch_device(self) -> Any:
        """torch.device of the device that is current."""
        assert self.backend is not None
        return self.torch.device(self.backend.name, self.backend.current_device())

    def _count(self) -> int:
        count = self.backend.ask("device_count") if self.backend is not None else None
        if isinstance(count, int) and not isinstance(count, bool):
            return min(count, 64)
        current = attempt(self.backend.current_device) if self.backend is not None else None
        return current + 1 if isinstance(current, int) else 0

    def _has_context(self, index: int) -> bool:
        """Whether this process has a context on a device: asking CUDA about any other would create one."""
        assert self.backend is not None
        core = getattr(self.torch, "_C", None)
        function = getattr(core, f"_{self.backend.name}_hasPrimaryContext", None)
        told = attempt(function, index) if function is not None else None
        if isinstance(told, bool):
            return told
        device = self.devices.get(index)
        if device is not None and device.rows:
            return True
        return bool(self._counters(index)[1])

    def _device(self, index: int) -> Device:
        device = self.devices.get(index)
        if device is None:
            device = self.devices[index] = Device(index)
            self._identify(device)
        return device

    def _identify(self, device: Device) -> None:
        assert self.backend is not None
        properties = self.backend.ask("get_device_properties", device.index)
        device.name = self.backend.ask("get_device_name", device.index)
        total = getattr(properties, "total_memory", None)
        device.total = total if isinstance(total, int) else None
        uuid = getattr(properties, "uuid", None)
        if self.nvml is None:
            return
        try:
            handle = find_card(self.nvml, device.index, None if uuid is None else str(uuid))
            memory = self.nvml.memory(handle)
        except Unusable as error:
            device.notes.append(f"NVML is not asked: {error}")
            return
        if device.total is not None and abs(memory.total - device.total) > 2**31 + device.total // 20:
            device.notes.append("NVML is not asked: its card of this number has another size")
            return
        device.handle, device.total, device.driver = handle, memory.total, memory.reserved
        device.uuid = self.nvml.uuid(handle)

    def _look_before(self) -> None:
        """What the cards hold on which this process has no context yet."""
        assert self.nvml is not None
        for index in range(self._count()):
            device = self._device(index)
            if device.handle is None or self._has_context(index):
                continue
            memory = attempt(self.nvml.memory, device.handle)
            if memory is not None:
                device.before = memory.total - memory.free
                others = self._processes(device)[1]
                device.others_before = None if others is None else sum(size or 0 for size in others.values())

    # ---- samples ----

    def _counters(self, index: int) -> tuple[int | None, int | None]:
        """PyTorch's allocated and reserved bytes."""
        assert self.backend is not None
        nested = self.backend.ask("memory_stats_as_nested_dict", index)
        if isinstance(nested, dict) and nested:
            try:
                return (
                    int(nested["allocated_bytes"]["all"]["current"]),
                    int(nested["reserved_bytes"]["all"]["current"]),
                )
            except (KeyError, TypeError, ValueError):
                pass
        allocated = self.backend.ask("memory_allocated", index)
        reserved = self.backend.ask("memory_reserved", index)
        return (
            allocated if isinstance(allocated, int) else None,
            reserved if isinstance(reserved, int) else None,
        )

    def _used(self, device: Device, in_program: bool) -> int | None:
        """What the whole card holds, with what the driver keeps for itself if that is known."""
        assert self.backend is not None
        if self.nvml is not None and device.handle is not None:
            memory = attempt(self.nvml.memory, device.handle)
            if memory is not None:
                device.driver = memory.reserved if memory.reserved is not None else device.driver
                return memory.total - memory.free  # type: ignore[no-any-return]
        if not in_program or attempt(getattr(self.backend.module, "is_current_stream_capturing", None)):
            return None
        told = self.backend.ask("mem_get_info", device.index)
        if not isinstance(told, tuple) or len(told) != 2:
            return None
        if device.handle is None:
            device.total = int(told[1])
        return int(device.total or told[1]) - int(told[0])

    def _processes(self, device: Device, whole: bool = True) -> tuple[int | None, dict[int, int | None] | None]:
        """What this process holds of a device, and what others do; None: not known."""
        if self.nvml is None or device.handle is None:
            return None, None
        try:
            listed = self.nvml.processes(device.handle, whole)
        except Unusable as error:
            self._note_of(device, f"processes are not known: {error}")
            return None, None
        except Exception:
            return None, None
        own = listed.pop(self.pid, None)
        if not self.nvml.is_container:
            return own, listed
        # Here, a process's number may be that of another one on the host.
        reserved = self._counters(device.index)[1] or 0
        if own is not None and reserved and own >= reserved - (device.told_unmapped or 0):
            return own, listed
        if reserved:
            text = "lists no processes" if not listed and own is None else "lists processes by the host's numbers"
            self._note_of(device, f"processes are not known: in this container NVML {text}")
        return None, None

    @staticmethod
    def _note_of(device: Device, text: str) -> None:
        if text not in device.notes and len(device.notes) < 16:
            device.notes.append(text)

    def note(self, text: str) -> None:
        if text not in self.notes and len(self.notes) < 64:
            self.notes.append(text)

    def communicators(self, device: int) -> list[Communicator]:
        return self._device(device).communicators

    def _measured(self, device: Device, in_program: bool) -> Sample:
        """A sample that is not kept: what the device holds now."""
        row = Sample(0, None, TIMER, 0)
        row.used = self._used(device, in_program)
        row.process, row.others = self._processes(device, whole=False)
        row.allocated, row.reserved = self._counters(device.index)
        row.unmapped = device.told_unmapped
        return row

    def outside(self) -> dict[int, int]:
        """What each device holds that is neither PyTorch's nor another process's: in the program's thread, around a call of its own."""
        began = self.clocks.program()
        try:
            return self._outside()
        finally:
            self._for_marks.spent += max(0.0, self.clocks.program() - began)

    def _outside(self) -> dict[int, int]:
        found = {}
        for index in range(self._count()):
            if self._has_context(index):
                size = self._measured(self._device(index), in_program=True).outside()
                if size is not None:
                    found[index] = size
        return found

    def _grown(self) -> dict[int, int]:
        """What each device holds more outside than at its last sample; {} if no device has one."""
        found = {}
        for index, size in self._outside().items():
            device = self.devices[index]
            before = device.rows[-1].outside() if device.rows else None
            if before is not None and device.unmapped_source != "nvml":
                found[index] = size - before
        return found

    def _sample(self, text: str | None, kind: int, in_program: bool) -> None:
        """A sample of every device that this process uses. The lock is held."""
        groups.refresh(self._grown, asks=in_program)
        now = max(self._now(), self._last_us + 1)
        is_sparse = False
        for index in range(self._count()):
            if not self._has_context(index):
                continue
            device = self._device(index)
            row = Sample(now, text, kind, self._step)
            row.used = self._used(device, in_program)
            row.process, row.others = self._processes(device, whole=kind != REPEATING)
            row.allocated, row.reserved = self._counters(index)
            self._find_unmapped(device, row)
            self._find_context(device, row)
            row.communicators = tuple(held.bytes for held in device.communicators)
            for pid in row.others or ():
                self._name(pid)  # now, because it may be gone later
            is_sparse = device.add(row) or is_sparse
        self.taken += 1
        self._last_us = now
        if is_sparse:
            self.period = 2 * self.period
            self._next_period = self.period
        if kind != REPEATING or (text or "").startswith("step "):
            self._sample_host(now, kind)

    def _find_unmapped(self, device: Device, row: Sample) -> None:
        """How much of PyTorch's reserved memory is not there: a pool that sleeps keeps its addresses and gives its memory back."""
        if device.told_unmapped is not None:
            row.unmapped, device.unmapped_source = device.told_unmapped, "program"
            return
        if row.process is None or row.reserved is None:
            return
        held = (device.context or 0) + sum(size for _, size, _ in device.libraries)
        held += sum(one.bytes or 0 for one in device.communicators)
        missing = row.reserved + held - row.process
        if missing >= _PAGES:  # less than PyTorch believes to have, and the rest of this process has
            row.unmapped, device.unmapped_source = min(row.reserved, missing), "nvml"

    def _find_context(self, device: Device, row: Sample) -> None:
        """What this process holds of a device besides, up to the first sample at which PyTorch has memory: while a context is
        created, it is smaller."""
        if not device.is_new or row.reserved is None:
            return
        device.is_new = row.reserved == 0
        known = row.reserved - (row.unmapped or 0) + sum(one.bytes or 0 for one in device.communicators)
        found = None
        if row.process is not None:
            found, source = row.process - known, "nvml"
        elif row.used is not None and device.before is not None:
            found, source = row.used - device.before - known, "first_use"
            if row.others is not None and device.others_before is not None:
                found -= sum(size or 0 for size in row.others.values()) - device.others_before
        if found is None:
            if not device.is_new and device.context is None:
                text = "NVML reports neither this process's memory nor the card's before its context"
                self._note_of(device, "context_bytes is not known: " + text)
            return
        if device.context is not None and found > device.context:
            device.rows = [one for one in device.rows if one.kind != TIMER or one.reserved]  # from its creation
        if device.context is None or found > device.context:
            device.context, device.context_source = max(0, found), source
        if device.before is None and self.nvml is not None:
            self._note_of(device, "the device was in use when the recording began: context_bytes has what libraries held then")

    def _sample_host(self, now: int, kind: int) -> None:
        if self.host is None:
            return
        row = HostSample(now, kind, self.host.rss_bytes(), self.host.cgroup_bytes(), self._pinned())
        self.host_rows.append(row)
        if len(self.host_rows) > MOST:
            keep = {id(row)}
            self.host_rows = _thinned(self.host_rows, lambda row: row.rss or 0, keep)

    def _pinned(self) -> int | None:
        """What PyTorch's allocator of pinned memory has, from PyTorch 2.7 on."""
        nested = self.backend.ask("host_memory_stats_as_nested_dict") if self.backend is not None else None
        for name in ("reserved_bytes", "allocated_bytes", "segment_bytes"):
            counter = nested.get(name) if isinstance(nested, dict) else None
            counter = counter.get("all", counter) if isinstance(counter, dict) else None
            if isinstance(counter, dict) and isinstance(counter.get("current"), int):
                return int(counter["current"])
        return None

    # ---- libraries ----

    def _look_for_libraries(self) -> None:
        """After a sample of the timer: whether a library of CUDA was loaded since the one before, and memory grew with it."""
        grown = {index: _growth(device) for index, device in self.devices.items()}
        if self._looks >= _MOST_LOOKS or not any(size >= _LIBRARY_GROWTH for size in grown.values()):
            return
        self._looks += 1
        loaded = _loaded()
        fresh, self._libraries = loaded - self._libraries, loaded
        if len(fresh) != 1:
            return  # none, or it is not known which of them it was
        (name,) = fresh
        for index, size in grown.items():
            if size >= _LIBRARY_GROWTH:
                self.devices[index].libraries.append((name, size, self._last_us))

    # ---- the document ----

    @guarded("private pools of the snapshot")
    def pools(self, snapshot: Any) -> None:
        """The sample that was taken just before a snapshot has the snapshot's private pools."""
        segments = snapshot.get("segments") if isinstance(snapshot, dict) else None
        if not self.users or not isinstance(segments, list):
            return
        private: dict[Any, int] = {}
        for segment in segments:
            pool = segment.get("segment_pool_id")
            if not isinstance(pool, (tuple, list)):
                return
            index = segment.get("device")
            private.setdefault(index, 0)
            if tuple(pool) != (0, 0):
                private[index] += int(segment.get("total_size", 0))
        for index, device in self.devices.items():
            row = next((row for row in reversed(device.rows) if row.kind == LASTING), None)
            if row is not None:
                row.private = private.get(index, 0)

    @guarded("the ledger of the card")
    def document(self) -> dict[str, Any] | None:
        """The sidecar's `card`."""
        if not self.users:
            return None
        held = self._owner != threading.get_ident() and self._hold(blocking=True)
        try:
            return self._document()
        finally:
            if held:
                self._let_go()

    def _document(self) -> dict[str, Any]:
        told = [device for _, device in sorted(self.devices.items()) if device.rows]
        spent = self._for_marks.spent + self._for_timer.spent
        steps = sorted(self._steps)
        period = max(self.period, self._for_timer.cost / self._for_timer.share)
        return {
            "period_ms": int(1000 * period) if self.nvml is not None else None,
            "samples_taken": self.taken,
            "samples_kept": max((len(device.rows) for device in told), default=0),
            "marks_skipped": self.skipped,
            "sampling_us": int(1e6 * spent),
            "setup_us": self.setup_us,
            "step_us": int(1e6 * steps[len(steps) // 2]) if steps else None,
            "nvml": self.nvml.version if self.nvml is not None else None,
            "nvml_error": self.nvml_error,
            "notes": list(self.notes),
            "devices": [self._of_device(device) for device in told],
            "host": self._of_host(),
        }

    def _of_device(self, device: Device) -> dict[str, Any]:
        rows = list(device.rows)
        marks: dict[str, int] = {}
        for row in rows:
            if row.mark is not None:
                marks.setdefault(row.mark, len(marks))
        pids = self._pids(rows)
        count = len(device.communicators)
        return {
            "device": device.index,
            "name": device.name,
            "uuid": device.uuid,
            "total_bytes": device.total,
            "driver_bytes": device.driver,
            "context_bytes": device.context,
            "context_from": device.context_source,
            "libraries": [
                {"name": name, "bytes": size, "from": "first_use", "since_us": since_us}
                for name, size, since_us in device.libraries
            ],
            "communicators": [
                {
                    "name": held.name,
                    "backend": held.backend,
                    "ranks": held.ranks,
                    "from": held.source,
                    "suspended": held.is_suspended,
                }
                for held in device.communicators
            ],
            "processes": [
                {"pid": pid, "name": "other processes" if pid is None else self._name(pid)} for pid in pids
            ],
            "unmapped_from": device.unmapped_source,
            "notes": list(device.notes),
            "marks": list(marks),
            "samples": {
                "time_us": [row.time_us for row in rows],
                "mark": [None if row.mark is None else marks[row.mark] for row in rows],
                "total_used_bytes": [row.used for row in rows],
                "allocated_bytes": [row.allocated for row in rows],
                "reserved_bytes": [row.reserved for row in rows],
                "private_pool_bytes": [row.private for row in rows],
                "unmapped_bytes": [row.unmapped for row in rows],
                "process_bytes": [row.process for row in rows],
                "communicator_bytes": [
                    [row.communicators[at] if at < len(row.communicators) else 0 for row in rows]
                    for at in range(count)
                ],
                "other_process_bytes": [[_held(row, pid, pids) for row in rows] for pid in pids],
            },
        }

    @staticmethod
    def _pids(rows: list[Sample]) -> list[int | None]:
        """Other processes, in the order in which they were seen. Beyond a limit, the smallest are added up under None."""
        largest: dict[int, int] = {}
        for row in rows:
            for pid, size in (row.others or {}).items():
                largest[pid] = max(largest.get(pid, 0), size or 0)
        if len(largest) <= _MOST_PROCESSES:
            return list(largest)
        kept = sorted(largest, key=lambda pid: -largest[pid])[: _MOST_PROCESSES - 1]
        return [pid for pid in largest if pid in kept] + [None]

    def _name(self, pid: int) -> str | None:
        if pid not in self.names and len(self.names) < MOST:
            self.names[pid] = attempt(self.nvml.process_name, pid) if self.nvml is not None else None
        return self.names.get(pid)

    def _of_host(self) -> dict[str, Any] | None:
        if self.host is None:
            return None
        rows = list(self.host_rows)
        pinned = [row.pinned for row in rows if row.pinned is not None]
        limit = self.host.limit_bytes
        return {
            "pinned_bytes": pinned[-1] if pinned else None,
            "limit_bytes": limit,
            "limit_from": None if limit is None else "cgroup",
            "samples": {
                "time_us": [row.time_us for row in rows],
                "rss_bytes": [row.rss for row in rows],
                "cgroup_bytes": [row.cgroup for row in rows],
                "pinned_bytes": [row.pinned for row in rows],
            },
        }


def _held(row: Sample, pid: int | None, pids: list[int | None]) -> int | None:
    """What another process holds at a sample."""
    if row.others is None:
        return None
    if pid is not None:
        return row.others.get(pid, 0)
    return sum(size or 0 for number, size in row.others.items() if number not in pids)


def _growth(device: Device) -> int:
    """What a device holds more outside than at its sample before, without communicators."""
    if len(device.rows) < 2 or device.unmapped_source == "nvml":
        return 0
    before, now = device.rows[-2].outside(), device.rows[-1].outside()
    if before is None or now is None:
        return 0
    held = [sum(size or 0 for size in row.communicators) for row in device.rows[-2:]]
    return now - before - (held[1] - held[0])


def _loaded() -> set[str]:
    """CUDA's libraries that this process has loaded."""
    try:
        with open(_MAPS, "rb") as file:
            text = file.read()
    except OSError:
        return set()
    return {name.decode("ascii") for name in _LIBRARIES.findall(text)}


ledger = Ledger()
