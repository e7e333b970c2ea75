"""One recording: from start to stop, and every snapshot it writes.

    armed ──the program first uses a device──► recording ──► stopped
      └──────────────it never does───────────────────────────►┘

Snapshots are requested by five sources, each in its own thread:

    the allocator's observer    out of memory: at once, in the thread that requested memory
    the end, an exception       in the thread that leaves the context
    a chosen step               at its end
    a signal, the clock         at the end of the current step, when nothing else allocates;
                                if none ends within `GRACE` seconds, in our own thread. A signal that
                                ends processes is sent again after the snapshot, and then does that
    dump(reason)                at once

A lock lets one of them write at a time. A signal handler takes no lock: it puts a word
into a SimpleQueue, which is safe anywhere, and our thread takes it out.

A snapshot that cannot be written to its folder goes to a temporary one (`files.private_folder`).
"""

from __future__ import annotations

import atexit
import builtins
import contextlib
import gc
import os
import queue
import signal as _signal
import sys
import threading
import time
import weakref
from types import FrameType
from typing import TYPE_CHECKING, Any, Callable, Iterator

from . import answers, guard, sidecar
from .backend import find, history, observers, why_none
from .card import LASTING, ledger
from .files import Places, clean, names, other_folder, private_folder, why_not_writable, write_snapshot
from .guard import attempt, guarded, logger, say, warn, warn_once
from .marks import marks
from .nothing import nothing
from .steplog import StepLog, human

if TYPE_CHECKING:
    from .backend import Backend, Numbers
    from .settings import Settings

GRACE = 10.0  # seconds that a request waits for a step to end, if there are steps
ENDING_GRACE = 3.0  # the same after a signal that ends the process: schedulers don't wait long
QUIET = 60.0  # seconds between two reports of a recording's failures

# Signals whose meaning is that the process should end.
ENDING = frozenset(
    getattr(_signal, name)
    for name in ("SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT", "SIGXCPU")
    if hasattr(_signal, name)
)

ARMED, RECORDING, STOPPED = "armed", "recording", "stopped"

active: list[Recorder] = []  # active recordings; the innermost last
_leaving: set[int] = (
    set()
)  # pids of this process and its ancestors, once they are set to stop at exit
_telling: set[int] = set()  # pids, as above, of those that have recordings which have not begun
_active_lock = threading.Lock()


def is_out_of_memory(error: BaseException | None) -> bool:
    """Whether an exception, or one that it was raised from, means that a device ran out of memory."""
    torch = sys.modules.get("torch")
    kinds = tuple(
        kind
        for kind in (
            getattr(torch, "OutOfMemoryError", None),
            getattr(getattr(torch, "cuda", None), "OutOfMemoryError", None),
        )
        if isinstance(kind, type)
    )
    for _ in range(16):
        if error is None:
            return False
        if kinds and isinstance(error, kinds):
            return True
        text = attempt(str, error, default="").lower()
        is_of_device = any(word in text for word in ("cuda", "hip", "xpu", "npu"))
        if isinstance(error, RuntimeError) and "out of memory" in text and is_of_device:
            return True
        suppressed = error.__suppress_context__
        error = error.__cause__ or (None if suppressed else error.__context__)
    return False


def _told_of_oom(path: str | None) -> None:
    """A snapshot of the out-of-memory exists: no other recording needs to write another."""
    if path is not None:
        for recorder in list(active):
            recorder._oom_open = True


@contextlib.contextmanager
def _without_collector() -> Iterator[None]:
    """Pauses the garbage collector: a snapshot is millions of dicts without cycles, and the collector
    would traverse all of them again and again."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _drop_traces(snapshot: Any) -> None:
    """PyTorch keeps one event even without a history, and a program's own history is whole."""
    if isinstance(snapshot, dict) and isinstance(snapshot.get("device_traces"), list):
        snapshot["device_traces"] = [[] for _ in snapshot["device_traces"]]


class Recorder:
    """A recording. `files` lists the files it wrote and has not removed, in order; `step` counts completed
    steps."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.places = Places(settings)
        self._step_log = StepLog(settings)
        self.state = STOPPED
        self.backend: Backend | None = None
        self.step = 0
        self.files: list[str] = []
        self.listeners: list[Callable[[str, str], Any]] = []  # called with each path written
        self.pid = os.getpid()
        self.is_asked = True  # by the program; False: by the environment
        self.started_us: int | None = None
        self.allocated_at_start_bytes: int | None = None
        self._fresh_locks()
        self._thread: threading.Thread | None = None
        self._signals: dict[_signal.Signals, Any] = {}  # signal number: the previous handler
        self._ended_by: set[int] = set()  # signals that end the process, and have arrived
        self._to_send: set[int] = set()  # those of them to be sent again after the snapshot
        self._failures = 0  # snapshots that could not be written
        self._unreported = 0
        self._reported_at: float | None = None
        self._annotated: set[tuple[Any, str]] = (
            set()
        )  # (address, text) of names that are in the history
        self._pending: str | None = None  # a request that waits for the end of a step
        self._oom_dumps = 0
        self._oom_open = False  # there is a snapshot of an out-of-memory, and no step since
        self._joined = False
        self._has_card = False  # this recording has joined the ledger of the card
        self._stopping = False
        self.torch: Any = None
        self._armed: set[str] = set()  # names of the backends that we are waiting for

    def _fresh_locks(self) -> None:
        self._state_lock = threading.RLock()
        self._dump_lock = threading.RLock()
        self._pending_lock = threading.Lock()
        self._served = threading.Event()
        self._requests: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._busy = threading.local()
        self._is_writing = False

    # ---- start and stop ----

    @guarded("starting the recording")
    def start(self) -> None:
        """Arms the recording. Never raises; if nothing can be recorded, logs the reason once."""
        torch = sys.modules.get("torch") or _import_torch()
        if torch is None:
            warn_once("no torch", "PyTorch cannot be imported: no memory is recorded")
            return
        with self._state_lock:
            if self.state != STOPPED:
                return
            self.state, self.pid = ARMED, os.getpid()
            self._armed.clear()
        with _active_lock:
            active.append(self)
        self.torch = torch
        self._look_at_folder()
        if not self.arm():
            warn_once("no backend", "%s", why_none(torch, self.settings.device))
            return
        if self.state == ARMED:
            nothing.watch()
            _tell_at_exit()

    @guarded("looking at the folder")
    def _look_at_folder(self) -> None:
        """Removes what killed processes left there; says at once if nothing can be written there."""
        folder = self.places.folder
        removed = clean(folder)
        if removed:
            logger.info(
                "removed %d unfinished files of killed processes from %s", len(removed), folder
            )
        problem = why_not_writable(folder)
        if problem is not None:
            warn("snapshots cannot be written to %s: they will be in %s", problem, other_folder())

    def arm(self) -> bool:
        """Waits for each kind of device not waited for yet; returns False if every kind was."""
        backends = find(self.torch, self.settings.device)
        for backend in backends:
            if backend.name not in self._armed:
                self._armed.add(backend.name)
                # Weakly: PyTorch keeps the function for as long as the process lives.
                guarded("waiting for the device")(backend.when_ready)(_WeakCall(self, backend))
        return bool(backends)

    @guarded("starting the recording")
    def ready(self, backend: Backend) -> None:
        """The program uses a device: from here on, memory is recorded."""
        with self._state_lock:
            if self.state != ARMED or self.backend is not None or backend.is_imitated():
                return
            if not history.acquire(backend, self.settings):
                return
            self.backend, self.state = backend, RECORDING
        nothing.forget()
        self.pid = os.getpid()
        self.started_us = int(time.time() * 1e6)
        device = attempt(backend.current_device)
        self.allocated_at_start_bytes = backend.ask("memory_allocated", device)
        if self.settings.on_oom:
            observers.attach(backend)
            observers.listeners.append(self.out_of_memory)
        self._joined = True
        if self.settings.card and self.settings.sidecar:
            self._has_card = True
            ledger.join(self.torch, backend)
        marks.join(self.torch, self, self.settings.annotate)
        self._install_signal()
        if self.settings.every is not None or self._signals:
            self._start_thread()
        _leave_with_process()

    @guarded("stopping the recording")
    def stop(self, reason: str = "end", error: BaseException | None = None) -> str | None:
        """Writes the last snapshot if `at_end`, and removes all hooks. A second call does nothing."""
        with self._state_lock:
            if self.state == STOPPED or self._stopping:
                return None
            self._stopping = True
            was_recording = self.state == RECORDING and self.pid == os.getpid()
        path = None
        try:
            if was_recording:
                path = self._last_dump(reason, error)
            elif self.state == ARMED:
                logger.info("no device memory was used while recording: there is nothing to write")
                nothing.tell(self)
        finally:
            self._take_off()
        return path

    def _last_dump(self, reason: str, error: BaseException | None) -> str | None:
        is_oom = error is not None and is_out_of_memory(error)
        if is_oom and not self.settings.on_oom:
            return None
        if is_oom and self._oom_open:
            return (
                None  # the observer has already written a snapshot, from before anything was freed
            )
        if is_oom:
            path = self._dump("oom", error=error, urgent=True)
            _told_of_oom(path)
            return path
        if not self.settings.at_end:
            return None
        if error is None:
            marks.settle()
        elif not isinstance(error, (GeneratorExit, SystemExit)):
            reason = "interrupt" if isinstance(error, KeyboardInterrupt) else "exception"
        return self._dump(reason, error=error, urgent=reason == "exception")

    def _take_off(self) -> None:
        with self._state_lock:
            was, self.state = self.state, STOPPED
            self._stopping = False
        if self._failures > 1:
            say(f"{self._failures} snapshots of this recording could not be written")
        with _active_lock:
            if self in active:
                active.remove(self)
        attempt(observers.listeners.remove, self.out_of_memory)
        if self._joined:
            self._joined = False
            guarded("taking hooks off")(marks.leave)(self, self.settings.annotate)
        if self._has_card:
            self._has_card = False
            ledger.leave()
        self._restore_signals()
        self._stop_thread()
        if was == RECORDING and self.backend is not None:
            history.release(self.backend)
        self.backend = None
        for number in list(self._to_send):  # arrived during the last snapshot
            self._send_again(number)

    def abandon(self) -> None:
        """After a fork, in the child: the device, the thread and the locks belong to the
        parent."""
        self._fresh_locks()
        self._thread = None
        self.files = []
        self._pending = None
        if self.state == RECORDING:
            self._restore_signals()
            attempt(observers.listeners.remove, self.out_of_memory)
            self.state = STOPPED
            if self in active:
                active.remove(self)
            attempt(marks.leave, self, self.settings.annotate)
            self._joined = False
        self._has_card = False

    # ---- requests for snapshots ----

    def out_of_memory(self, numbers: Numbers) -> bool:
        """The allocator is about to raise. Returns True if handled."""
        if self.state != RECORDING or self.pid != os.getpid():
            return False
        self._oom_dumps += 1
        if self._oom_dumps > self.settings.oom_limit:
            warn_once(
                "oom limit",
                "out of memory for the %dth time: %d snapshots tell of it, and no more are written",
                self._oom_dumps,
                self.settings.oom_limit,
            )
            self._oom_open = False
            return True
        path = self._dump("oom", numbers=numbers, urgent=True)
        _told_of_oom(path)
        return True

    def step_ended(self, number: int | None) -> None:
        """Called at the end of each step, by hooks or by the program."""
        self.step = self.step + 1 if number is None else int(number)
        self._oom_open = False
        if self.step in self.settings.steps:
            self._dump("step")
        if self.settings.log_steps is not None and self.backend is not None:
            who = sidecar.ranks()
            path = self.places.log_name(who["rank"], self.pid)
            self._step_log.step(self.backend, who, self.step, path)
        reason = self._take_pending()
        if reason is not None:
            self._serve(reason)

    def dump(self, reason: str = "dump") -> str | None:
        """Writes a snapshot now and returns its path; None if nothing is being recorded."""
        if self.state != RECORDING:
            warn_once("not recording", "nothing is recorded yet: dump(%r) writes nothing", reason)
            return None
        return self._dump(reason)

    # ---- writing ----

    def _writes_here(self, who: dict[str, Any], urgent: bool) -> bool:
        chosen = self.settings.ranks
        return urgent or chosen is None or who["rank"] in chosen

    @guarded("writing the snapshot")
    def _dump(
        self,
        reason: str,
        error: BaseException | None = None,
        numbers: Numbers | None = None,
        urgent: bool = False,
    ) -> str | None:
        """One snapshot and its sidecar. `urgent`: written by every rank, regardless of `ranks`."""
        if getattr(self._busy, "is_dumping", False):
            return None  # a hook or a finalizer inside our own writing
        self._busy.is_dumping = True
        try:
            with self._dump_lock, self._writing():
                backend, who = self.backend, sidecar.ranks()
                if backend is None or self.pid != os.getpid() or not self._writes_here(who, urgent):
                    return None
                path = self._write(backend, who, reason, error, numbers)
        except Exception as problem:
            self._report_failure(problem)
            return None
        finally:
            self._busy.is_dumping = False
        self._announce(path, reason, who, numbers)
        return path

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        self._is_writing = True
        try:
            yield
        finally:
            self._is_writing = False

    def _write(
        self,
        backend: Backend,
        who: dict[str, Any],
        reason: str,
        error: BaseException | None,
        numbers: Numbers,
    ) -> str:
        place = (who["rank"], who["world_size"], self.pid, self.step, reason)
        path = wanted = self.places.name(*place)
        document = None
        with names.releasing(wanted), _without_collector():
            if self.settings.annotate and self.settings.trace:
                self._name_tensors(backend)
            if self._has_card:
                ledger.mark("out of memory" if reason == "oom" else "snapshot", LASTING)
            snapshot = backend.snapshot()
            if self._has_card:
                ledger.pools(snapshot)
            if not self.settings.trace:
                _drop_traces(snapshot)
            if self.settings.sidecar:  # before writing, so that it is from the same moment
                facts = self._facts(path, reason, who, error, numbers)
                document = sidecar.describe(self.torch, backend, self.settings, snapshot, facts)
            try:
                write_snapshot(path, snapshot, self.places.is_compressed, document)
            except OSError as problem:  # a full disk, most likely; the snapshot itself is there
                path = self._write_elsewhere(place, snapshot, document, path, problem)
            self._warn_if_full(snapshot)
            del snapshot
        self.files.append(path)
        return path

    def _write_elsewhere(
        self,
        place: tuple[Any, ...],
        snapshot: Any,
        document: dict[str, Any] | None,
        wanted: str,
        problem: OSError,
    ) -> str:
        """Writes to the temporary folder; if that fails too, raises the first problem."""
        try:
            places = Places(self.settings, private_folder())
        except OSError:
            raise problem from None
        path = places.name(*place)
        if document is not None:
            document["snapshot"] = os.path.basename(path)
        try:
            with names.releasing(path):
                write_snapshot(path, snapshot, places.is_compressed, document)
        except OSError:
            attempt(os.rmdir, places.folder)
            raise problem from None
        self._report(
            "%s cannot be written (%s): the snapshot is in %s", wanted, _reason(problem), path
        )
        return path

    @guarded("naming tensors in the snapshot")
    def _name_tensors(self, backend: Backend) -> None:
        """Names of watched tensors as events of the history, where PyTorch can (2.14)."""
        if not backend.can_annotate():
            return
        models, optimizers = marks.living_models(), marks.living_optimizers()
        for tensor, text in sidecar.named_tensors(models, optimizers, backend.name):
            key = (attempt(tensor.data_ptr), text)
            if key not in self._annotated:
                self._annotated.add(key)
                attempt(backend.annotate, tensor, text)

    def _report_failure(self, problem: BaseException) -> None:
        self._failures += 1
        self._report("writing the snapshot failed: %s: %s", type(problem).__name__, problem)

    def _report(self, message: str, *values: Any) -> None:
        """A warning about this recording; at most one in `QUIET` seconds, the others are counted."""
        now = time.monotonic()
        if self._reported_at is not None and now - self._reported_at < QUIET:
            self._unreported += 1
            logger.info(message, *values)
            return
        more, self._unreported, self._reported_at = self._unreported, 0, now
        if more:
            message, values = message + " (and %d more problems since the last report)", (
                *values,
                more,
            )
        warn(message, *values)

    def _facts(
        self,
        path: str,
        reason: str,
        who: dict[str, Any],
        error: BaseException | None,
        numbers: Numbers,
    ) -> dict[str, Any]:
        return {
            "snapshot": os.path.basename(path),
            "reason": reason,
            "step": self.step,
            "ranks": who,
            "exception": error,
            "out_of_memory": numbers,
            "started_us": self.started_us,
            "allocated_at_start_bytes": self.allocated_at_start_bytes,
            "models": marks.living_models(),
            "optimizers": marks.living_optimizers(),
            "card": ledger.document() if self._has_card else None,
        }

    def _warn_if_full(self, snapshot: Any) -> None:
        traces = snapshot.get("device_traces", []) if isinstance(snapshot, dict) else []
        if self.settings.trace and any(len(trace) >= self.settings.max_entries for trace in traces):
            self._annotated.clear()  # the events with names may be among the lost ones
            warn_once(
                "history full",
                "the history holds its limit of %d events: the oldest are lost. More: max_entries=",
                self.settings.max_entries,
            )

    @guarded("telling of a snapshot")
    def _announce(
        self, path: str | None, reason: str, who: dict[str, Any], numbers: Numbers
    ) -> None:
        if path is None:
            return
        size = attempt(lambda: human(os.stat(path).st_size), default="?")
        if reason == "oom" or (who["rank"] == 0 and not self.settings.quiet):
            say(f"wrote {path} ({size}, {reason})")
        else:
            logger.info("wrote %s (%s, %s)", path, size, reason)
        if reason == "oom" and self.settings.explain:
            limit = numbers[2] if numbers and len(numbers) > 2 and numbers[2] > 0 else None
            text = attempt(answers.why, path, limit)
            if text:
                attempt(sys.stderr.write, text if text.endswith("\n") else text + "\n")
                attempt(sys.stderr.flush)
        for listener in list(self.listeners):
            guarded("a listener of snapshots")(listener)(path, reason)

    # ---- signals and the clock ----

    def _serve(self, reason: str) -> None:
        path = self._dump(reason, urgent=reason == "signal")
        if reason == "periodic" and path is not None:
            self.places.keep_last(path, self.settings.keep)
            self.files = [file for file in self.files if os.path.exists(file)]

    def _take_pending(self) -> str | None:
        with self._pending_lock:
            reason, self._pending = self._pending, None
        if reason is not None:
            self._served.set()
        return reason

    def _start_thread(self) -> None:
        if self._thread is not None:
            return
        self._thread = threading.Thread(target=self._attend, name="tessera-record", daemon=True)
        self._thread.start()

    def _stop_thread(self) -> None:
        thread, self._thread = self._thread, None
        if thread is None or not thread.is_alive():
            return
        self._requests.put(None)
        self._served.set()
        if thread is not threading.current_thread():
            thread.join(timeout=30)

    @guarded("the thread of the recording")
    def _attend(self) -> None:
        """Our thread: waits for requests and for the clock until it is asked to stop."""
        period = None if self.settings.every is None else self.settings.every * 60
        due = None if period is None else time.monotonic() + period
        while self.state == RECORDING:
            wait = None if due is None else max(0.0, due - time.monotonic())
            try:
                reason = self._requests.get(timeout=wait)
            except queue.Empty:
                reason = "periodic"
                due = None if period is None else time.monotonic() + period
            if reason is None or self.state != RECORDING:
                return
            if reason == "periodic" and self._is_writing:
                continue  # a snapshot that takes longer than the period: training needs time, too
            if not isinstance(reason, int):
                self._offer(reason, GRACE)
                if period is not None and due is not None and due < time.monotonic():
                    due = time.monotonic() + period
                continue
            try:
                self._offer("signal", ENDING_GRACE)
            finally:
                self._send_again(reason)

    def _send_again(self, number: int) -> None:
        """The snapshot that a signal asked for is written, or could not be: now it ends the process, or
        does whatever the program's own handler does."""
        with self._pending_lock:
            if number not in self._to_send:
                return
            self._to_send.discard(number)
        with self._dump_lock:  # written by another thread, perhaps not completely
            pass
        os.kill(os.getpid(), number)

    def _offer(self, reason: str, grace: float) -> None:
        """Leaves a request to the end of the step; serves it here if the step does not end."""
        self._served.clear()
        with self._pending_lock:
            self._pending = reason
        if self.step:
            self._served.wait(grace)
        if self.state != RECORDING:
            return
        taken = self._take_pending()
        if taken is not None:
            self._serve(taken)

    def _install_signal(self) -> None:
        is_auto = self.settings.signal == "auto"
        for number in _usual_signals() if is_auto else self.settings.signal or ():
            self._listen(number, is_auto)

    def _listen(self, number: _signal.Signals, is_auto: bool) -> None:
        if threading.current_thread() is not threading.main_thread():
            if not is_auto:
                warn_once(
                    "signal thread",
                    "signals reach the main thread only: %s is left alone",
                    number.name,
                )
            return
        before = attempt(_signal.getsignal, number)
        if is_auto and before is not _signal.SIG_DFL:
            return  # the program uses it itself
        try:
            _signal.signal(number, _WeakHandler(self, before))
        except (ValueError, OSError) as error:
            warn_once("signal", "%s cannot be listened to: %s", number.name, error)
            return
        self._signals[number] = before

    def _restore_signals(self) -> None:
        signals, self._signals = self._signals, {}
        for number, before in signals.items():
            handler = attempt(_signal.getsignal, number)
            if isinstance(handler, _WeakHandler) and handler.recorder() is self:
                if threading.current_thread() is threading.main_thread():
                    attempt(_signal.signal, number, _signal.SIG_DFL if before is None else before)

    def signalled(self, number: int) -> bool:
        """A signal has arrived, in the main thread. Returns whether it has to wait for the snapshot: it
        is sent again afterwards. One that arrives twice does not wait."""
        if self.state != RECORDING or self.pid != os.getpid():
            return False
        if number not in ENDING:
            self._requests.put("signal")
            return False
        if number in self._ended_by:
            return False
        self._ended_by.add(number)
        self._to_send.add(number)
        self._requests.put(int(number))
        return True


class _WeakCall:
    """recorder.ready(backend), as long as the recorder exists."""

    def __init__(self, recorder: Recorder, backend: Backend) -> None:
        self.recorder = weakref.ref(recorder)
        self.backend = backend

    def __call__(self) -> None:
        recorder = self.recorder()
        if recorder is not None:
            recorder.ready(self.backend)


def _reason(problem: BaseException) -> str:
    return getattr(problem, "strerror", None) or str(problem)


def _usual_signals() -> list[_signal.Signals]:
    """Which signals ask for a snapshot unless the program says otherwise: SIGTERM is what schedulers, Kubernetes and launchers end
    a job with, some seconds before they kill it."""
    return [getattr(_signal, name) for name in ("SIGUSR2", "SIGTERM") if hasattr(_signal, name)]


class _WeakHandler:
    """Signal handler: requests a snapshot, and does what was done about the signal before: at once, or
    after the snapshot if it ends the process."""

    def __init__(self, recorder: Recorder, before: Any) -> None:
        self.recorder = weakref.ref(recorder)
        self.before = before

    def __call__(self, number: int, frame: FrameType | None) -> None:
        recorder = self.recorder()
        if recorder is not None and recorder.signalled(number):
            return
        if callable(self.before):
            self.before(number, frame)
        elif number in ENDING and self.before is not _signal.SIG_IGN:
            _signal.signal(number, _signal.SIG_DFL)
            os.kill(os.getpid(), number)


def _import_torch() -> Any:
    try:
        import torch
    except Exception:  # a broken installation can raise more than ImportError
        return None
    return torch


def look_again() -> None:
    """A plug-in that brings another kind of device has been imported."""
    for recorder in list(active):
        if recorder.state == ARMED:
            guarded("waiting for the device")(recorder.arm)()


# ---- the end of the process, and its children ----


def _leave_with_process() -> None:
    """Makes sure that active recordings are stopped before the interpreter exits."""
    pid = os.getpid()
    if pid in _leaving:
        return
    if not _leaving:
        atexit.register(_at_exit)
    _leaving.add(pid)
    util = sys.modules.get("multiprocessing.util")
    parent = getattr(sys.modules.get("multiprocessing"), "parent_process", None)
    if util is not None and parent is not None and attempt(parent) is not None:
        # A forked worker exits with os._exit, which skips atexit but not this.
        attempt(util.Finalize, None, _at_exit, exitpriority=100)


def _tell_at_exit() -> None:
    """Makes sure that recordings which never began are reported."""
    if not _telling:
        _telling.add(os.getpid())
        atexit.register(_at_exit_unused)


def _at_exit_unused() -> None:
    for recorder in list(active):
        if recorder.state == ARMED:
            nothing.tell(recorder)


@guarded("the end of the process")
def _at_exit() -> None:
    # The last exception printed is why the interpreter exits, except in an interactive session that continued.
    is_session = hasattr(sys, "ps1") or sys.flags.interactive or hasattr(builtins, "__IPYTHON__")
    error = None if is_session else getattr(sys, "last_value", None)
    for recorder in reversed(list(active)):
        if recorder.state == RECORDING and recorder.pid == os.getpid():
            recorder.stop("exit", error if isinstance(error, BaseException) else None)


def _after_fork() -> None:
    global _active_lock
    _active_lock = threading.Lock()
    guard.renew_lock()
    names.renew()
    marks.lock = threading.RLock()
    attempt(ledger.reset)
    history.lock = threading.Lock()
    for recorder in list(active):
        attempt(recorder.abandon)
    if not active:
        history.reset()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
