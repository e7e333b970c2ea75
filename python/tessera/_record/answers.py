"""Asking tessera about a file that was just written: through the package, or otherwise the command.

Three questions: why memory ran out, as text for a terminal; whether a test is within its budget;
and the page, for a tracker. Any of these may be unavailable, which is reported.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from typing import Any, Sequence

from .guard import attempt

_SECONDS = 300
_SECONDS_FOR_WHY = 60  # other ranks may be waiting for this one


class Unavailable(RuntimeError):
    """The package and the command are both unable to answer; the message explains why."""


def command() -> list[str] | None:
    """The beginning of a tessera command line: TESSERA, the package's own command, or the one on
    PATH; None if absent."""
    named = os.environ.get("TESSERA")
    if named and os.access(named, os.X_OK):
        return [named]
    if attempt(importlib.util.find_spec, "tessera._core") is not None and sys.executable:
        return [sys.executable, "-m", "tessera"]
    found = shutil.which("tessera")
    return [found] if found else None


def run(*arguments: Any, seconds: float = _SECONDS) -> tuple[int, str, str]:
    """(exit status, standard output, standard error) of `tessera ARGUMENTS`; raises Unavailable."""
    program = command()
    if program is None:
        raise Unavailable("the tessera command is not on PATH")
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("TESSERA_RECORD")
    }
    try:
        finished = subprocess.run(
            [*program, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            timeout=seconds,
            env=environment,
            check=False,
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise Unavailable(f"{' '.join(program)}: {error}") from error
    output, said = (text.decode("utf-8", "replace") for text in (finished.stdout, finished.stderr))
    return finished.returncode, output, said


def _open(path: str) -> Any:
    """tessera.open(path), or None if the package has no reader."""
    module = sys.modules.get("tessera")
    reader = attempt(lambda: module.open) if module is not None else None
    return None if reader is None else attempt(reader, path)


def _as_text(answer: Any) -> str | None:
    """An answer of the package as text, or None."""
    if isinstance(answer, str):
        return answer
    for name in ("text", "to_text"):
        told = getattr(answer, name, None)
        told = attempt(told) if callable(told) else told
        if isinstance(told, str):
            return told
    # The default str() of an object is its address, which is useless.
    if getattr(type(answer), "__str__") != object.__str__:
        text: str | None = attempt(str, answer)
        return text
    return None


def why(path: str, capacity_bytes: int | None = None) -> str | None:
    """`tessera why` of a snapshot as text, or None. `capacity_bytes` is the memory of the card that
    PyTorch could use, which a snapshot does not contain."""
    snapshot = _open(path)
    if snapshot is not None:
        answer = attempt(lambda: snapshot.why(capacity=capacity_bytes))
        if answer is None:
            answer = attempt(lambda: snapshot.why())
        text = _as_text(answer) if answer is not None else None
        if text:
            return text
    capacity = [] if capacity_bytes is None else ["--capacity", f"{capacity_bytes}B"]
    words = ("why", "--color", "never", *capacity, path)
    finished = attempt(run, *words, seconds=_SECONDS_FOR_WHY)
    return finished[1] if finished is not None and finished[0] == 0 else None


def page(path: str, out: str) -> bool:
    """Writes the page of a snapshot to `out` (.html); returns whether it did."""
    finished = attempt(run, "view", path, "-o", out)
    return finished is not None and finished[0] == 0 and os.path.exists(out)


def check(
    path: str,
    limits: Sequence[str] = (),
    reserved: str | None = None,
    lock: str | None = None,
    update: bool = False,
    tolerance: str | None = None,
) -> tuple[bool, str]:
    """`tessera check`: (whether it passed, its report).

    `limits` are texts as for --max, "18GiB" or "activation=3GiB"; `lock` is a file, which `update`
    writes. Raises Unavailable, with the reason, if the check could not be made."""
    arguments = [part for limit in limits for part in ("--max", limit)]
    if reserved is not None:
        arguments += ["--max-reserved", reserved]
    if lock is not None:
        arguments += ["--lock", lock]
        if update:
            arguments.append("--update")
        elif tolerance is not None:
            arguments += ["--tolerance", tolerance]
    status, told, error = run("check", "--color", "never", *arguments, path)
    if status not in (0, 1):
        lines = error.strip().splitlines()
        raise Unavailable(lines[0] if lines else f"tessera check ended with status {status}")
    return status == 0, told
