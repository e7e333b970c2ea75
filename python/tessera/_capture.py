"""`tessera.record`: recording GPU memory, and writing snapshots when they matter.

    with tessera.record("out/"):            # a block
        train()

    @tessera.record("out/")                 # a function
    def train(): ...

    tessera.record.start("out/")            # from here on
    tessera.record.stop()

    TESSERA_RECORD=out/ python train.py     # without touching the code

All take the options of `tessera._record.settings.OPTIONS`; docs/capture.md explains them. A snapshot
is written when memory runs out, at chosen steps, on a signal, periodically, at the end, and when
`record.dump()` is called. Nothing here raises into a training loop; wrong options do, at once.
"""

from __future__ import annotations

import functools
import inspect
from contextlib import AbstractContextManager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Callable, Literal, TypeVar, cast, overload

from ._record import recorder as _recorder
from ._record.card import ledger as _ledger
from ._record.guard import guarded as _guarded
from ._record.guard import warn as _warn
from ._record.marks import marks as _marks
from ._record.settings import OPTIONS as _OPTIONS
from ._record.settings import Options as _Options
from ._record.settings import Settings as _Settings
from ._record.settings import from_environment as _from_environment

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ._record.settings import Path

_F = TypeVar("_F", bound=Callable[..., Any])

__all__ = ["Recording", "record"]


class Recording:
    """What `record(...)` returns: a context manager, and a decorator. Each entry starts a
    new recording.

    Inside the block, `step`, `watch` and `dump` are those of `record`; `files` lists what was
    written."""

    def __init__(self, settings: _Settings) -> None:
        self.settings = settings
        self._open: list[_recorder.Recorder] = (
            []
        )  # recorders of the entries that have not been left
        self._last: _recorder.Recorder | None = None

    def __enter__(self) -> Recording:
        recorder = _recorder.Recorder(self.settings)
        self._open.append(recorder)
        self._last = recorder
        recorder.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> Literal[False]:
        if self._open:
            self._open.pop().stop("end", error)
        return False

    def __call__(self, function: _F) -> _F:
        """Decorates a function, a generator, a coroutine function or an asynchronous generator: each
        call is a recording."""
        if isinstance(function, type):
            raise TypeError(
                f"record(...) decorates a function, not the class {function.__name__}: decorate a "
                "method, or use `with` for a block"
            )
        if not callable(function):
            raise TypeError("record(...) decorates a function; use `with` for a block")
        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def wrapper(*args: Any, **kwargs: Any) -> Any:
                with Recording(self.settings):
                    return await function(*args, **kwargs)

        elif inspect.isasyncgenfunction(function):

            @functools.wraps(function)
            async def wrapper(*args: Any, **kwargs: Any) -> Any:
                with Recording(self.settings):
                    relay = function(*args, **kwargs)
                    step = relay.__anext__()
                    while True:  # `yield from` has no asynchronous form
                        try:
                            item = await step
                        except StopAsyncIteration:
                            return
                        try:
                            sent = yield item
                        except GeneratorExit:
                            await relay.aclose()
                            raise
                        except BaseException as error:
                            step = relay.athrow(error)
                        else:
                            step = relay.asend(sent)

        elif inspect.isgeneratorfunction(function):

            @functools.wraps(function)
            def wrapper(*args: Any, **kwargs: Any) -> Any:
                with Recording(self.settings):
                    return (yield from function(*args, **kwargs))

        else:

            @functools.wraps(function)
            def wrapper(*args: Any, **kwargs: Any) -> Any:
                with Recording(self.settings):
                    return function(*args, **kwargs)

        return cast(_F, wrapper)

    @property
    def _is_under_way(self) -> bool:
        """Whether an entry is recording, or waits for the device."""
        return bool(self._open) and self._open[-1].state != _recorder.STOPPED

    @property
    def files(self) -> list[str]:
        """Paths of the snapshots of the latest entry, in the order in which they were written."""
        return list(self._last.files) if self._last is not None else []

    @property
    def is_recording(self) -> bool:
        """Whether memory is being recorded: a device is in use, and history is on."""
        return bool(self._open) and self._open[-1].state == _recorder.RECORDING

    def dump(self, reason: str = "dump") -> str | None:
        """Writes a snapshot now; returns its path, or None if nothing is being recorded."""
        return self._open[-1].dump(reason) if self._open else None

    def step(self, number: int | None = None) -> None:
        """As `record.step`."""
        record.step(number)

    def watch(self, model: Any = None, optimizer: Any = None, name: str | None = None) -> None:
        """As `record.watch`."""
        record.watch(model, optimizer, name)

    def phase(self, name: str) -> AbstractContextManager[None]:
        """As `record.phase`."""
        return record.phase(name)

    def asleep(self, size_bytes: int, device: int | None = None) -> None:
        """As `record.asleep`."""
        record.asleep(size_bytes, device)

    def on_dump(self, listener: Any) -> None:
        """Calls listener(path, reason) after each snapshot of this entry."""
        if self._open:
            self._open[-1].listeners.append(listener)


def warn_of_ignored(running: _Settings, asked: _Settings, out: Path) -> None:
    """A recording that is under way continues; reports what the second one asked for in addition."""
    ignored = []
    if out is not None and asked.out != running.out:
        ignored.append(f"out={asked.out!r}")
    ignored += [
        f"{name}={value!r}"
        for name, value in asked.given.items()
        if getattr(asked, name) != getattr(running, name)
    ]
    if ignored:
        _warn(
            "a recording to %s is under way and continues: %s ignored",
            running.out,
            ", ".join(ignored) + (" is" if len(ignored) == 1 else " are"),
        )


class _Record:
    """The object `tessera.record`; one per process."""

    def __init__(self) -> None:
        self._started: Recording | None = None

    @overload
    def __call__(self, out: _F) -> _F: ...

    @overload
    def __call__(self, out: Path = None, **options: Unpack[_Options]) -> Recording: ...

    def __call__(self, out: Any = None, **options: Unpack[_Options]) -> Any:
        """record("out/", steps=[3], ...) is a Recording; @record alone decorates with the
        defaults."""
        if callable(out) and not options and not hasattr(out, "__fspath__"):
            return Recording(_Settings())(out)
        return Recording(_Settings(out, **options))

    def __repr__(self) -> str:
        return f"<tessera.record: {'recording' if self.is_recording else 'not recording'}>"

    # ---- on and off ----

    def start(self, out: Path = None, **options: Unpack[_Options]) -> Recording:
        """Records from here until `stop()` or the end of the process. Starting twice continues
        the first. Returns the Recording."""
        settings = _Settings(out, **options)
        if self._started is None or not self._started._is_under_way:
            self._started = Recording(settings)
            self._started.__enter__()
        else:
            warn_of_ignored(self._started.settings, settings, out)
        return self._started

    def stop(self) -> str | None:
        """Ends what `start` began and writes the last snapshot; returns its path, or None."""
        started, self._started = self._started, None
        if started is None or not started._is_under_way:
            return None
        return started._open.pop().stop("end")

    @property
    def is_recording(self) -> bool:
        """Whether any recording is active and a device in use."""
        return any(recorder.state == _recorder.RECORDING for recorder in list(_recorder.active))

    @property
    def files(self) -> list[str]:
        """Paths of all snapshots of the active recordings."""
        return [path for recorder in list(_recorder.active) for path in recorder.files]

    # ---- during a recording ----

    def dump(self, reason: str = "dump") -> str | None:
        """Writes a snapshot of the innermost recording now; returns its path, or None if there is
        no recording."""
        running = list(_recorder.active)
        return running[-1].dump(reason) if running else None

    def step(self, number: int | None = None) -> None:
        """Marks the end of a step, with its number: for loops without a PyTorch optimizer,
        or with several. From then on only these calls count steps."""
        _marks.step(number)

    @_guarded("watching a model")
    def watch(self, model: Any = None, optimizer: Any = None, name: str | None = None) -> None:
        """Marks forward and backward of a model, and writes names, shapes and addresses of its
        parameters and the optimizer's state next to each snapshot. Both are held weakly;
        call it at any time, and again for another model. The steps of the first optimizer are
        counted."""
        _marks.watch(model, optimizer, name)

    def phase(self, name: str) -> AbstractContextManager[None]:
        """with record.phase("evaluation"): a part of the program with a name in the snapshot."""
        return _marks.phase(str(name))

    @_guarded("memory that is not mapped")
    def asleep(self, size_bytes: int, device: int | None = None) -> None:
        """From now on, so much of the memory that PyTorch counts as reserved is not on the card: a pool
        sleeps, which keeps its addresses and gives its memory back. 0 when it is awake again."""
        _ledger.asleep(size_bytes, device)


def _with_options(method: Any) -> None:
    """Makes help() and completion show the options, of which the table in `_record.settings` is the only list."""
    method.__doc__ = f"{method.__doc__}\n\n        " + "\n        ".join(
        line.strip() for line in (_Options.__doc__ or "").splitlines()[2:]
    )
    signature = inspect.signature(method)
    fixed = [
        one.replace(annotation=inspect.Parameter.empty)
        for one in signature.parameters.values()
        if one.kind is not one.VAR_KEYWORD
    ]
    named = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default)
        for name, (default, _) in _OPTIONS.items()
    ]
    method.__signature__ = inspect.Signature([*fixed, *named])


_with_options(_Record.__call__)
_with_options(_Record.start)

record = _Record()


@_guarded("recording as the environment says")
def start_from_environment() -> None:
    """Starts the recording that TESSERA_RECORD configures, once per process; called when torch has
    been imported."""
    settings = _from_environment()
    if settings is None:
        return
    if record._started is not None:
        _recorder.look_again()
        return
    record._started = Recording(settings)
    record._started.__enter__()
    for recorder in record._started._open:
        recorder.is_asked = False
