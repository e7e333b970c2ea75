"""pytest: tests that fail when they use too much GPU memory, or more than they did.

    @pytest.mark.limit_gpu_memory("18 GiB")
    @pytest.mark.limit_gpu_memory("6 GiB", category="activation")
    def test_training_step(): ...

    @pytest.mark.gpu_memory                   # recorded and locked, without a limit of its own
    def test_inference(): ...

    pytest --memory-lock memory.lock --memory-lock-update    # writes down what marked tests hold
    pytest --memory-lock memory.lock                         # fails those that hold something else
    pytest --memory-dir snapshots/                           # keeps the snapshots
    pytest --memory-required ...                             # for a job that is to measure: nothing is skipped

A marked test is recorded while it runs, and `tessera check` judges its snapshot; its report is
the failure message. Without PyTorch, a device or tessera, a test is skipped with the reason; with --memory-required it
fails, and so does one that has used no device, or has neither a limit nor a lock.
The lock file has one lock of `tessera check` for each test, under the test's name in
brackets.
"""

from __future__ import annotations

import gc
import json
import os
import re
import shutil
import sys
import tempfile

import pytest
from typing import Any, Generator, Sequence

MARKERS = ("limit_gpu_memory", "gpu_memory")

# The units of the command line: GiB is binary, GB decimal.
_SIZE = re.compile(r"\s*\d+(\.\d*)?\s*([KMGT]i?)?B?\s*", re.IGNORECASE)

_HEAD = "# Peak GPU memory of tests. Written by `pytest --memory-lock FILE --memory-lock-update`.\n"


# ---- limits ----


def _size(value: Any) -> str:
    """A size for `tessera check`: "18 GiB", "512MiB", or a number of bytes."""
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return f"{value}B"
    if isinstance(value, str) and _SIZE.fullmatch(value) and re.search(r"[1-9]", value):
        return re.sub(r"\s+", "", value)
    raise ValueError(f"not a size: {value!r}; as in '18 GiB', '512 MiB' or a number of bytes")


def _limit(size: Any, category: str | None = None, reserved: bool = False) -> tuple[str, str]:
    """("max" or "reserved", text) of one marker's arguments."""
    if category is not None and reserved:
        raise ValueError("reserved memory has no categories")
    if reserved:
        return "reserved", _size(size)
    if category is not None and not re.fullmatch(r"[a-z_]+", category):
        raise ValueError(f"not a category: {category!r}")
    return "max", _size(size) if category is None else f"{category}={_size(size)}"


def limits_of(item: pytest.Item) -> tuple[list[str], str | None]:
    """Limits of a test, including those of its class and module: texts for --max, and one for --max-reserved or
    None."""
    found = [_limit(*mark.args, **mark.kwargs) for mark in item.iter_markers("limit_gpu_memory")]
    reserved = [text for kind, text in found if kind == "reserved"]
    if len(reserved) > 1:
        raise ValueError("reserved memory is limited twice")
    return [text for kind, text in found if kind == "max"], reserved[0] if reserved else None


# ---- locks ----


class Locks:
    """A file of locks: [name of a test], and the lock's own text below it."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.texts = {}
        if os.path.exists(path):
            with open(path, encoding="utf-8") as file:
                self.texts = _split(file.read(), path)

    def write(self, updates: dict[str, str]) -> None:
        """Inserts new locks; tests that did not run keep theirs."""
        texts = dict(self.texts, **updates)
        temporary = f"{self.path}.{os.getpid()}.tmp"
        with open(temporary, "w", encoding="utf-8") as file:
            file.write(_HEAD)
            for name in sorted(texts):
                file.write(f"\n[{name}]\n{texts[name].strip()}\n")
        os.replace(temporary, self.path)


def _split(text: str, path: str) -> dict[str, str]:
    texts, name = {}, None
    for line in text.splitlines():
        if line.startswith("[") and line.endswith("]"):
            name = line[1:-1]
            texts[name] = ""
        elif name is not None:
            texts[name] += line + "\n"
        elif line and not line.startswith("#"):
            raise ValueError(f"{path} is not a file of test locks: it begins with {line[:40]!r}")
    return texts


# ---- tessera ----


def _check(
    path: str, limits: Sequence[str], reserved: str | None, lock: str | None, tolerance: str | None
) -> tuple[bool, str]:
    """(whether a snapshot is within limits and lock, tessera's report); raises
    answers.Unavailable. The only place that knows how tessera is called."""
    from tessera._record import answers

    if not limits and reserved is None and lock is None:
        return True, ""
    if lock is None:
        return answers.check(path, limits, reserved)
    with tempfile.TemporaryDirectory(prefix="tessera-") as folder:
        file = os.path.join(folder, "lock")
        with open(file, "w", encoding="utf-8") as stream:
            stream.write(lock)
        return answers.check(path, limits, reserved, lock=file, tolerance=tolerance)


def _make_lock(path: str) -> str:
    """The text of a lock for a snapshot."""
    from tessera._record import answers

    with tempfile.TemporaryDirectory(prefix="tessera-") as folder:
        file = os.path.join(folder, "lock")
        answers.check(path, lock=file, update=True)
        with open(file, encoding="utf-8") as stream:
            lines = stream.read().splitlines()
    # The lock file explains once how it is written; not every lock needs to.
    return "\n".join(line for line in lines if line and not line.startswith("#")) + "\n"


def _why_not() -> str | None:
    """Why no test can be measured here, in a few words; None if they can."""
    try:
        import torch
    except Exception as error:
        return f"PyTorch cannot be imported: {error}"
    from tessera._record import answers
    from tessera._record.backend import find

    if not any(backend.ask("is_available") for backend in find(torch)):
        return "there is no GPU here whose memory PyTorch can record"
    if answers.command() is None:
        return "the tessera command, which checks snapshots, is not on PATH"
    return None


def _let_go() -> None:
    """Releases what earlier tests left, so that the peak is this test's."""
    gc.collect()
    torch = sys.modules.get("torch")
    for name in ("cuda", "xpu", "npu"):
        module = getattr(torch, name, None)
        if module is not None and getattr(module, "is_initialized", lambda: False)():
            module.empty_cache()


# ---- the plugin ----


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("tessera", "GPU memory (tessera)")
    group.addoption(
        "--memory-lock",
        metavar="FILE",
        help="check marked tests against the memory recorded in FILE",
    )
    group.addoption(
        "--memory-lock-update",
        action="store_true",
        help="write the memory of marked tests to the lock instead",
    )
    group.addoption(
        "--memory-tolerance",
        metavar="SHARE|SIZE",
        help="how far a figure may differ from the lock's: a share (0.5%%) or a size (default: 1%%)",
    )
    group.addoption(
        "--memory-required",
        action="store_true",
        help="fail marked tests that cannot be measured, or that nothing is compared with, instead of skipping or passing them",
    )
    group.addoption("--memory-dir", metavar="DIR", help="keep the snapshots of marked tests in DIR")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        "limit_gpu_memory(size, category=None, reserved=False): fail the test when more GPU memory "
        "is allocated at any time than size, as in '18 GiB'; or of a category of it; or is reserved",
    )
    config.addinivalue_line(
        "markers", "gpu_memory: record the test's GPU memory, and compare it with --memory-lock"
    )
    if config.getoption("--memory-lock-update") and not config.getoption("--memory-lock"):
        raise pytest.UsageError("--memory-lock-update needs --memory-lock FILE")
    config.pluginmanager.register(_Plugin(config), "tessera-memory")


class _Plugin:
    """Records marked tests, judges them, and collects locks."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.folder = config.getoption("--memory-dir")
        self.tolerance = config.getoption("--memory-tolerance")
        self.is_updating = config.getoption("--memory-lock-update")
        self.is_required = config.getoption("--memory-required")
        self.updates: dict[str, str] = {}
        self.locks: Locks | None = None
        self.obstacles: list[str | None] = []  # not looked for yet
        path = config.getoption("--memory-lock")
        if path:
            try:
                self.locks = Locks(os.path.abspath(path))
            except (OSError, ValueError) as error:
                raise pytest.UsageError(f"--memory-lock: {error}") from None

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, Any, None]:
        if not any(item.get_closest_marker(name) for name in MARKERS):
            yield
            return
        try:
            limits, reserved = limits_of(item)
        except (TypeError, ValueError) as error:
            pytest.fail(f"limit_gpu_memory: {error}", pytrace=False)
        if not self.obstacles:
            self.obstacles.append(_why_not())
        if self.obstacles[0] is not None:
            if self.is_required:
                pytest.fail(f"--memory-required: {self.obstacles[0]}", pytrace=False)
            pytest.skip(self.obstacles[0])
        if self.is_required and not limits and reserved is None and self.locks is None:
            pytest.fail(
                "--memory-required: this test has no limit, and no lock is given to compare it with: --memory-lock FILE",
                pytrace=False,
            )
        folder = self._folder(item)
        try:
            _let_go()
            path = os.path.join(folder, "test.pickle")
            outcome = yield from _recorded(path)
            if outcome.excinfo is None:
                try:
                    self._judge(item, path, limits, reserved)
                except pytest.fail.Exception as failure:
                    _fail_with(outcome, failure)
        finally:
            if self.folder is None:
                shutil.rmtree(folder, ignore_errors=True)

    def _folder(self, item: pytest.Item) -> str:
        if self.folder is None:
            return tempfile.mkdtemp(prefix="tessera-")
        folder = os.path.join(self.folder, re.sub(r"[^A-Za-z0-9._-]+", "-", item.nodeid).strip("-"))
        shutil.rmtree(folder, ignore_errors=True)  # of an earlier run
        return folder

    def _judge(
        self, item: pytest.Item, path: str, limits: Sequence[str], reserved: str | None
    ) -> None:
        from tessera._record import answers

        if not os.path.exists(path):
            if _used_a_device():
                pytest.fail("no snapshot of this test's memory could be written", pytrace=False)
            if self.is_required:
                pytest.fail("--memory-required: this test has used no device", pytrace=False)
            return  # it used no device, so it is within any limit
        lost = _lost_events(path)
        if lost:
            pytest.fail(f"this test's memory could not be checked: {lost}", pytrace=False)
        try:
            if self.locks is not None and self.is_updating:
                self.updates[item.nodeid] = _make_lock(path)
            has_passed, told = _check(path, limits, reserved, self._lock(item), self.tolerance)
        except answers.Unavailable as error:
            pytest.fail(f"this test's memory could not be checked: {error}", pytrace=False)
        if not has_passed:
            kept = "" if self.folder is None else f"\nThe snapshot: {path}"
            pytest.fail(told.rstrip() + kept, pytrace=False)

    def _lock(self, item: pytest.Item) -> str | None:
        """The lock to compare a test with, or None."""
        if self.locks is None or self.is_updating:
            return None
        if item.nodeid not in self.locks.texts:
            pytest.fail(
                f"{self.locks.path} has no lock for this test: --memory-lock-update writes it",
                pytrace=False,
            )
        return self.locks.texts[item.nodeid]

    # ---- the end, and workers of pytest-xdist ----

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if not self.updates:
            return
        output = getattr(self.config, "workeroutput", None)
        if output is not None:
            output["tessera_memory_locks"] = self.updates
        elif self.locks is not None:
            self.locks.write(self.updates)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any, error: Any) -> None:
        self.updates.update(getattr(node, "workeroutput", {}).get("tessera_memory_locks", {}))


def _lost_events(path: str) -> str | None:
    """What the history of a snapshot has lost, according to its sidecar; None for nothing."""
    try:
        with open(os.path.splitext(path)[0] + ".json", encoding="utf-8") as file:
            devices = json.load(file)["recording"]["events"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    full = [row for row in devices if row.get("is_full")]
    return full and (
        f"its history of {full[0]['events']:,} events was full, and the first ones are lost; "
        "TESSERA_RECORD_MAX_ENTRIES sets its size"
    ) or None


def _recorded(path: str) -> Generator[None, Any, Any]:
    """Lets the test run with its memory recorded, to `path`."""
    from tessera import _capture

    size = os.environ.get("TESSERA_RECORD_MAX_ENTRIES", "")
    entries = int(size) if re.fullmatch("[1-9][0-9]*", size) else 1_000_000
    with _capture.record(
        path, quiet=True, explain=False, signal=None, on_oom=False, max_entries=entries, card=False
    ):
        outcome = yield
    return outcome


def _fail_with(outcome: Any, failure: BaseException) -> None:
    """Makes a failure the test's outcome, as far as this version of pluggy can."""
    if not hasattr(outcome, "force_exception"):
        raise failure
    outcome.force_exception(failure)


def _used_a_device() -> bool:
    import torch

    from tessera._record.backend import find

    return any(backend.is_initialized() for backend in find(torch))
