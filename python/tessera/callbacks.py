"""Recording from inside a trainer: Hugging Face, Lightning, Composer, TorchTNT, and hand-written loops.

    trainer = transformers.Trainer(..., callbacks=[tessera.callbacks.TrainerCallback("out/")])
    trainer = lightning.Trainer(..., callbacks=[tessera.callbacks.LightningCallback("out/")])
    trainer = composer.Trainer(..., callbacks=[tessera.callbacks.ComposerCallback("out/")])
    torchtnt.framework.train(..., callbacks=[tessera.callbacks.TNTCallback("out/")])

    with tessera.callbacks.TrainingLoop("out/", model=model, optimizer=optimizer) as loop:
        for batch in loader:
            ...
            loop.step()

All take the options of `tessera.record`, and these:

    scalars       send memory peaks and totals to the active trackers (True)
    log_every     number of steps between them (10)
    reset_peaks   peaks of the steps since the last line instead of since the start; this resets the
                  numbers that torch.cuda.max_memory_allocated() returns (False)
    page          send the page of each snapshot to the active trackers (True)
    writer        a SummaryWriter of TensorBoard, which cannot be found automatically

They record from their construction, so that a model that is moved to the device afterwards has
stacks, and stop when training ends. If memory runs out, they write a snapshot and print what `tessera why` says
of it on standard error (`explain=False`: only write it). Inside an active recording they add to it, and leave
it on. The classes for trainers are created on first use, from the base class that is
installed.
"""

from __future__ import annotations

import functools
import sys
import weakref
from types import TracebackType
from typing import TYPE_CHECKING, Any, Callable, Literal

from . import _capture
from ._record import recorder as _recorder
from ._record import trackers as _trackers
from ._record.guard import guarded as _guarded
from ._record.marks import marks as _marks
from ._record.settings import Options as _Options
from ._record.settings import Settings as _Settings

if TYPE_CHECKING:
    from composer.core import Callback as _ComposerBase
    from lightning.pytorch import Callback as _LightningBase
    from torchtnt.framework.callback import Callback as _TNTBase
    from transformers import TrainerCallback as _TrainerBase
    from typing_extensions import Unpack

    from ._record.settings import Path

__all__ = [
    "ComposerCallback",
    "LightningCallback",
    "TNTCallback",
    "TrainerCallback",
    "TrainingLoop",
]


class CallbackOptions(_Options, total=False):
    """The options of `tessera.record`, and those of callbacks."""

    scalars: bool
    log_every: int
    reset_peaks: bool
    page: bool
    writer: Any


_OWN: dict[str, Any] = {
    "scalars": True,
    "log_every": 10,
    "reset_peaks": False,
    "page": True,
    "writer": None,
}


class _Recording:
    """Shared by the callbacks: a recording that is joined or started, steps, and the trackers."""

    def __init__(self, out: Path, options: dict[str, Any]) -> None:
        own = {name: options.pop(name, default) for name, default in _OWN.items()}
        if not isinstance(own["log_every"], int) or own["log_every"] < 1:
            raise ValueError(f"log_every: a whole number of at least 1, not {own['log_every']!r}")
        self.own = own
        self.out, self.options = out, options
        self.settings = _Settings(out, **options)  # a wrong option raises here
        self.recorder: _recorder.Recorder | None = None
        self.is_ours = False
        self.begin()

    def __getstate__(self) -> dict[str, Any]:
        """Trainers pass callbacks to the processes they spawn, where a new recording begins."""
        return dict(self.__dict__, recorder=None, is_ours=False)

    @_guarded("a callback")
    def begin(self) -> None:
        """Joins the active recording, or starts one. Calling it again is harmless."""
        if self.recorder is not None and self.recorder.state != _recorder.STOPPED:
            return
        _marks.count_by_hand()
        if not _recorder.active:
            _capture.record.start(self.out, **self.options)
            self.is_ours = True
        else:
            _capture.warn_of_ignored(_recorder.active[-1].settings, self.settings, self.out)
        self.recorder = _recorder.active[-1] if _recorder.active else None
        if self.recorder is not None and self.own["page"]:
            self.recorder.listeners.append(self.written)

    @_guarded("a callback")
    def watch(self, model: Any = None, optimizer: Any = None) -> None:
        if model is not None or optimizer is not None:
            _capture.record.watch(model, optimizer)

    @_guarded("a callback")
    def step(
        self, number: int | None = None, log: Callable[[dict[str, float], int], Any] | None = None
    ) -> None:
        _capture.record.step(number)
        recorder = self.recorder
        if not self.own["scalars"] or recorder is None or recorder.backend is None:
            return
        if recorder.step % self.own["log_every"] == 0:
            values = _trackers.measure(recorder.backend, self.own["reset_peaks"])
            (log or self.log)(values, recorder.step)

    def log(self, values: dict[str, float], step: int) -> None:
        _trackers.log(values, step, self.own["writer"])

    def written(self, path: str, reason: str) -> None:
        _trackers.send_page(path, reason, self.own["writer"])

    @_guarded("a callback")
    def finish(self, error: BaseException | None = None) -> None:
        """Ends a recording that we started; one that we joined continues."""
        recorder, self.recorder = self.recorder, None
        if recorder is None:
            return
        if self.is_ours:
            self.is_ours = False
            recorder.stop("end", error)
        elif self.written in recorder.listeners:
            recorder.listeners.remove(self.written)


class TrainingLoop:
    """For a hand-written loop: a context manager whose `step()` is called once per step."""

    def __init__(
        self,
        out: Path = None,
        model: Any = None,
        optimizer: Any = None,
        **options: Unpack[CallbackOptions],
    ) -> None:
        self._recording = _Recording(out, dict(options))
        self._recording.watch(model, optimizer)

    def __enter__(self) -> TrainingLoop:
        self._recording.begin()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> Literal[False]:
        self._recording.finish(error)
        return False

    def watch(self, model: Any = None, optimizer: Any = None) -> None:
        """As `tessera.record.watch`."""
        self._recording.watch(model, optimizer)

    def step(self, number: int | None = None) -> None:
        """A step is complete."""
        self._recording.step(number)


# ---- Hugging Face ----


def _make_trainer_callback() -> Any:
    try:
        from transformers import TrainerCallback as base
    except ImportError as error:
        raise ImportError("tessera.callbacks.TrainerCallback needs transformers") from error

    class TrainerCallback(base):  # type: ignore[misc, unused-ignore]
        """Records a transformers.Trainer: steps by its own count, scalars and pages to its
        trackers. If train() raises, the recording ends with the exception: Trainer has no event for
        that, so its train() is wrapped."""

        def __init__(self, out: Path = None, **options: Unpack[CallbackOptions]) -> None:
            super().__init__()
            self._recording = _Recording(out, dict(options))
            _wrap(getattr(sys.modules.get("transformers"), "Trainer", None), "train")

        def on_train_begin(
            self,
            args: Any,
            state: Any,
            control: Any,
            model: Any = None,
            optimizer: Any = None,
            **kwargs: Any,
        ) -> None:
            _training.add(self._recording)
            self._recording.begin()
            self._recording.watch(model, optimizer)

        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            self._recording.step(state.global_step)

        def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            _training.discard(self._recording)
            self._recording.finish()

    return TrainerCallback


# ---- trainers that have no event for an exception ----

_training: weakref.WeakSet[_Recording] = (
    weakref.WeakSet()
)  # recordings of callbacks between the beginning and the end of training


def _recordings_of(trainer: Any) -> set[_Recording]:
    """The recordings of a trainer's callbacks, which may not have begun to train."""
    attached: list[Any] = []
    for holder in ("callback_handler", "state"):  # of Hugging Face's Trainer, and of Composer's
        attached += getattr(getattr(trainer, holder, None), "callbacks", None) or ()
    found = (getattr(callback, "_recording", None) for callback in attached)
    return {recording for recording in found if isinstance(recording, _Recording)}


@_guarded("watching for exceptions of a Trainer")
def _wrap(trainer: Any, name: str) -> None:
    """Makes trainer.NAME end the recordings that began inside it when it raises."""
    train = getattr(trainer, name, None)
    if train is None or getattr(train, "_is_tesseras", False):
        return

    @functools.wraps(train)
    def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
        others = set(_training)
        try:
            return train(self, *args, **kwargs)
        except BaseException as error:
            for recording in (set(_training) - others) | _recordings_of(self):
                _training.discard(recording)
                recording.finish(error)
            raise

    setattr(wrapper, "_is_tesseras", True)
    setattr(trainer, name, wrapper)


# ---- Lightning ----


def _lightning_base() -> Any:
    for name in ("lightning.pytorch", "pytorch_lightning"):
        try:
            return __import__(name, fromlist=["Callback"]).Callback
        except ImportError:
            continue
    raise ImportError("tessera.callbacks.LightningCallback needs lightning or pytorch_lightning")


def _make_lightning_callback() -> Any:
    class LightningCallback(_lightning_base()):  # type: ignore[misc]
        """Records a lightning.Trainer: steps by its own count, scalars to its loggers, pages to the
        trackers that run. `forward` is training_step, which forward hooks do not see."""

        def __init__(self, out: Path = None, **options: Unpack[CallbackOptions]) -> None:
            super().__init__()
            self._recording = _Recording(out, dict(options))
            self._trainer: Any = None
            self._steps = 0

        def _log(self, values: dict[str, float], step: int) -> None:
            loggers = list(getattr(self._trainer, "loggers", None) or [])
            for logger in loggers:
                _guarded("logging to a logger of Lightning")(logger.log_metrics)(values, step=step)
            if not loggers:
                self._recording.log(values, step)

        @_guarded("a callback")
        def on_train_start(self, trainer: Any, pl_module: Any) -> None:
            self._recording.begin()
            self._trainer = trainer
            self._steps = trainer.global_step
            for optimizer in trainer.optimizers:
                self._recording.watch(None, optimizer)
            self._recording.watch(pl_module)

        @_guarded("a callback")
        def on_train_batch_start(
            self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int
        ) -> None:
            if _marks.annotating:
                _marks.before_forward("forward", True)

        @_guarded("a callback")
        def on_before_backward(self, trainer: Any, pl_module: Any, loss: Any) -> None:
            _marks.after_forward("forward")

        @_guarded("a callback")
        def on_train_batch_end(
            self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
        ) -> None:
            _marks.after_forward("forward")  # of a step without a backward
            if (
                trainer.global_step != self._steps
            ):  # otherwise gradients are still being accumulated
                self._steps = trainer.global_step
                self._recording.step(self._steps, self._log)

        def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
            self._recording.finish(exception)

        def on_fit_end(self, trainer: Any, pl_module: Any) -> None:
            self._trainer = None
            self._recording.finish()

    return LightningCallback


# ---- Composer ----


def _make_composer_callback() -> Any:
    try:
        from composer.core import Callback as base
    except ImportError as error:
        raise ImportError("tessera.callbacks.ComposerCallback needs composer (mosaicml)") from error

    class ComposerCallback(base):  # type: ignore[misc, unused-ignore]
        """Records a composer.Trainer: steps are its batches. If fit() raises, the recording ends with the
        exception: Composer has no event for that, so its fit() is wrapped."""

        def __init__(self, out: Path = None, **options: Unpack[CallbackOptions]) -> None:
            super().__init__()
            self._recording = _Recording(out, dict(options))
            _wrap(getattr(sys.modules.get("composer"), "Trainer", None), "fit")

        @_guarded("a callback")
        def fit_start(self, state: Any, logger: Any) -> None:
            _training.add(self._recording)
            self._recording.begin()
            for optimizer in state.optimizers:
                self._recording.watch(None, optimizer)
            self._recording.watch(state.model)

        @_guarded("a callback")
        def batch_end(self, state: Any, logger: Any) -> None:
            # The timestamp already counts this batch.
            self._recording.step(int(state.timestamp.batch))

        def fit_end(self, state: Any, logger: Any) -> None:
            _training.discard(self._recording)
            self._recording.finish()

        def close(self, state: Any, logger: Any) -> None:
            self._recording.finish()  # of a trainer that did not train

    return ComposerCallback


# ---- TorchTNT ----


def _make_tnt_callback() -> Any:
    try:
        from torchtnt.framework.callback import Callback as base
    except ImportError as error:
        raise ImportError("tessera.callbacks.TNTCallback needs torchtnt") from error

    class TNTCallback(base):  # type: ignore[misc, unused-ignore]
        """Records torchtnt.framework's train() and fit(): steps by the unit's own count."""

        def __init__(self, out: Path = None, **options: Unpack[CallbackOptions]) -> None:
            super().__init__()
            self._recording = _Recording(out, dict(options))

        @_guarded("a callback")
        def on_train_start(self, state: Any, unit: Any) -> None:
            self._recording.begin()
            for optimizer in unit.tracked_optimizers().values():
                self._recording.watch(None, optimizer)
            for module in unit.tracked_modules().values():
                self._recording.watch(module)

        @_guarded("a callback")
        def on_train_step_end(self, state: Any, unit: Any) -> None:
            self._recording.step(unit.train_progress.num_steps_completed)

        def on_exception(self, state: Any, unit: Any, exc: BaseException) -> None:
            self._recording.finish(exc)

        def on_train_end(self, state: Any, unit: Any) -> None:
            self._recording.finish()

    return TNTCallback


if TYPE_CHECKING:  # what the makers make

    class TrainerCallback(_TrainerBase):  # type: ignore[misc, unused-ignore]
        """Records a transformers.Trainer."""

        def __init__(self, out: Path = None, **options: Unpack[CallbackOptions]) -> None: ...

    class LightningCallback(_LightningBase):  # type: ignore[misc, unused-ignore]
        """Records a lightning.Trainer."""

        def __init__(self, out: Path = None, **options: Unpack[CallbackOptions]) -> None: ...


    class ComposerCallback(_ComposerBase):  # type: ignore[misc, unused-ignore]
        """Records a composer.Trainer."""

        def __init__(self, out: Path = None, **options: Unpack[CallbackOptions]) -> None: ...

    class TNTCallback(_TNTBase):  # type: ignore[misc, unused-ignore]
        """Records torchtnt.framework's train() and fit()."""

        def __init__(self, out: Path = None, **options: Unpack[CallbackOptions]) -> None: ...


_MAKERS = {
    "ComposerCallback": _make_composer_callback,
    "LightningCallback": _make_lightning_callback,
    "TNTCallback": _make_tnt_callback,
    "TrainerCallback": _make_trainer_callback,
}


if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        maker = _MAKERS.get(name)
        if maker is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        made = maker()
        made.__module__, made.__qualname__ = __name__, name
        globals()[name] = made
        return made


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(_MAKERS))
