"""Sends numbers and pages to the trackers that a program already runs; never starts or imports one.

    Weights & Biases    if wandb.run is not None
    MLflow              if mlflow.active_run() is not None
    TensorBoard         the SummaryWriter that was given, because it has no current run to find

Memory is reported in GiB, which suits their axes. PyTorch keeps one peak since the last
reset; it is not reset unless `reset_peaks` is set, because the program may read it too.
"""

from __future__ import annotations

import os
import sys
import tempfile
from typing import TYPE_CHECKING, Any

from . import answers
from .guard import attempt, guarded

if TYPE_CHECKING:
    from .backend import Backend

_GIB = 2.0**30

_SCALARS = (
    ("tessera/peak_allocated_gib", "allocated_bytes.all.peak"),
    ("tessera/peak_reserved_gib", "reserved_bytes.all.peak"),
    ("tessera/allocated_gib", "allocated_bytes.all.current"),
    ("tessera/reserved_gib", "reserved_bytes.all.current"),
)


def measure(backend: Backend, reset_peaks: bool = False) -> dict[str, float]:
    """Peaks and totals of the current device; {} if PyTorch does not report them. Does not
    synchronise."""
    statistics = backend.ask("memory_stats")
    if not statistics:
        return {}
    if reset_peaks:
        backend.ask("reset_peak_memory_stats")
    return {name: statistics[key] / _GIB for name, key in _SCALARS if key in statistics}


def _wandb() -> tuple[Any, Any]:
    module = sys.modules.get("wandb")
    run = getattr(module, "run", None)
    return (module, run) if run is not None else (None, None)


def _mlflow() -> Any:
    module = sys.modules.get("mlflow")
    if module is None or attempt(module.active_run) is None:
        return None
    return module


@guarded("logging to Weights & Biases")
def _log_wandb(values: dict[str, float]) -> None:
    _, run = _wandb()
    if run is not None:
        run.log(
            values, commit=False
        )  # logged with the program's next line, which has the same step


@guarded("logging to MLflow")
def _log_mlflow(values: dict[str, float], step: int) -> None:
    module = _mlflow()
    if module is None:
        return
    named = {name: value for name, value in values.items()}
    try:
        module.log_metrics(named, step=step, synchronous=False)
    except TypeError:  # before MLflow 2.8
        module.log_metrics(named, step=step)


@guarded("logging to TensorBoard")
def _log_writer(writer: Any, values: dict[str, float], step: int) -> None:
    for name, value in values.items():
        writer.add_scalar(name, value, step)


def log(values: dict[str, float], step: int, writer: Any = None) -> None:
    """Logs to every active tracker."""
    if not values:
        return
    _log_wandb(values)
    _log_mlflow(values, step)
    if writer is not None:
        _log_writer(writer, values, step)


def _page_of(path: str) -> str | None:
    """A page of a snapshot in a temporary file, or None."""
    handle, out = tempfile.mkstemp(prefix="tessera-", suffix=".html")
    os.close(handle)
    if attempt(answers.page, path, out):
        return out
    attempt(os.remove, out)
    return None


@guarded("sending the page")
def send_page(path: str, reason: str, writer: Any = None) -> None:
    """Logs the page of a snapshot to the trackers that can show it; to TensorBoard, which cannot, as
    text."""
    wandb, run = _wandb()
    mlflow = _mlflow()
    if writer is not None:
        text = attempt(answers.why, path) if reason == "oom" else None
        if text:
            indented = "\n".join("    " + line for line in text.splitlines())
            guarded("logging to TensorBoard")(writer.add_text)("tessera/why", indented)
    if run is None and mlflow is None:
        return
    page = _page_of(path)
    if page is None:
        return
    try:
        if run is not None:
            guarded("logging to Weights & Biases")(_html_to_wandb)(wandb, run, page, reason)
        if mlflow is not None:
            guarded("logging to MLflow")(mlflow.log_artifact)(page, "tessera")
    finally:
        attempt(os.remove, page)


def _html_to_wandb(wandb: Any, run: Any, page: str, reason: str) -> None:
    with open(page, encoding="utf-8") as file:
        run.log({f"tessera/{reason}": wandb.Html(file.read(), inject=False)}, commit=False)
