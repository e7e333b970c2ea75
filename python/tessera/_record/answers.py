"""Asking tessera about a file that was just written: through the package, else through the binary.

Two questions: why memory ran out, as text for a terminal, and how much was used, as numbers for a
test. The binary's JSON is a documented interface (docs/json.md), so numbers come from it alike.
Everything here may be missing; then the answer is None.
"""

import json
import os
import shutil
import subprocess
import sys

from .guard import attempt

_SECONDS = 300


class Unavailable(RuntimeError):
    """Neither the package nor the binary can answer; the message says what was tried."""


def binary():
    """The path of the `tessera` binary: TESSERA, the one in the package, the one on PATH; or None."""
    named = os.environ.get("TESSERA")
    if named and os.access(named, os.X_OK):
        return named
    beside = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    for candidate in (
        os.path.join(beside, "bin", "tessera"),
        os.path.join(os.path.dirname(sys.executable), "tessera"),
    ):
        if os.access(candidate, os.X_OK):
            return candidate
    return shutil.which("tessera")


def run(*arguments):
    """The finished `tessera ARGUMENTS`; raises Unavailable where there is no binary."""
    program = binary()
    if program is None:
        raise Unavailable("the tessera binary is not on PATH")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TESSERA_RECORD")}
    return subprocess.run(
        [program, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        timeout=_SECONDS,
        env=environment,
        check=False,
    )


def _open(path):
    """tessera.open(path), or None where the package has no reader."""
    module = sys.modules.get("tessera")
    reader = attempt(lambda: module.open) if module is not None else None
    return None if reader is None else attempt(reader, path)


def _as_text(answer):
    """An answer of the package as a person reads it, or None."""
    if isinstance(answer, str):
        return answer
    for name in ("text", "to_text"):
        told = getattr(answer, name, None)
        told = attempt(told) if callable(told) else told
        if isinstance(told, str):
            return told
    # str() of what has no words of its own is an address, of no use to anyone.
    if type(answer).__str__ is not object.__str__:
        return attempt(str, answer)
    return None


def why(path):
    """`tessera why` of a snapshot as text, or None."""
    snapshot = _open(path)
    if snapshot is not None:
        answer = attempt(lambda: snapshot.why())
        text = _as_text(answer) if answer is not None else None
        if text:
            return text
    finished = attempt(run, "why", "--color", "never", path)
    if finished is None or finished.returncode != 0:
        return None
    return finished.stdout.decode("utf-8", "replace")


def page(path, out):
    """Writes the page of a snapshot to `out` (.html); True where it did."""
    finished = attempt(run, "view", path, "-o", out)
    return finished is not None and finished.returncode == 0 and os.path.exists(out)


def _json(*arguments):
    finished = run(*arguments)
    if finished.returncode != 0:
        reason = finished.stderr.decode("utf-8", "replace").strip().splitlines()
        raise Unavailable(f"tessera {arguments[0]}: {reason[-1] if reason else finished.returncode}")
    return json.loads(finished.stdout)


def _names(stack):
    frames = stack.get("frames") or []
    return [f"{frame.get('name')} ({frame.get('file')}:{frame.get('line')})" for frame in frames]


def measure(path):
    """{"peak": bytes, "reserved": bytes, "device": N, "categories": {name: bytes}, "stacks": [...]} of the
    device that used most; raises Unavailable."""
    peaks = _json("peak", "--json", "--device", "all", path)["devices"]
    if not peaks:
        return {"peak": 0, "reserved": 0, "device": None, "categories": {}, "stacks": []}
    highest = max(peaks, key=lambda device: device["maxima"]["allocated_bytes"])
    profiles = _json("profile", "--json", "--by", "category", "--device", "all", path)["devices"]
    categories = {}
    for profile in profiles:
        if profile["device"] == highest["device"]:
            categories = {group["name"]: group["bytes"] for group in profile["groups"]}
    return {
        "peak": highest["maxima"]["allocated_bytes"],
        "reserved": highest["maxima"]["reserved_bytes"],
        "device": highest["device"],
        "categories": categories,
        "stacks": [
            {"bytes": stack["bytes"], "allocations": stack["allocations"], "frames": _names(stack)}
            for stack in highest["stacks"][:10]
        ],
    }
