"""One line for each step, for those who read logs: on standard error, or as JSON in a file of each rank.

    tessera: step 120: peak 61.2 GiB (+102.4 MiB), reserved 66.0 GiB, allocation retries 0

The peak is PyTorch's own count, since the start or since the program last reset it; the change is that since the line before. Nothing
waits for the device.
"""

from __future__ import annotations

import json
import os
import time
from typing import TYPE_CHECKING, Any

from .guard import guarded, say

if TYPE_CHECKING:
    from .backend import Backend
    from .settings import Settings

_FIELDS = (
    ("allocated_bytes", "allocated_bytes.all.current"),
    ("peak_allocated_bytes", "allocated_bytes.all.peak"),
    ("reserved_bytes", "reserved_bytes.all.current"),
    ("peak_reserved_bytes", "reserved_bytes.all.peak"),
    ("allocation_retries", "num_alloc_retries"),
    ("out_of_memory_errors", "num_ooms"),
)


def human(size_bytes: float) -> str:
    size, units = float(size_bytes), ["B", "KiB", "MiB", "GiB", "TiB"]
    while size >= 1024 and len(units) > 1:
        size /= 1024
        units.pop(0)
    return f"{size:.0f} {units[0]}" if units[0] == "B" else f"{size:.1f} {units[0]}"


class StepLog:
    """The lines of one recording. `path` is the file of JSON; it is only written with `log_json`."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._peak: int | None = None  # of the line before
        self._at: tuple[int, float] | None = None  # step and time of the line before

    def _is_mine(self, rank: int) -> bool:
        """Each rank has its file; of lines on standard error, those of rank 0 are enough unless `ranks` says otherwise."""
        chosen = self.settings.ranks
        if chosen is None:
            return self.settings.log_json or rank == 0
        return rank in chosen

    @guarded("logging a step")
    def step(self, backend: Backend, who: dict[str, Any], step: int, path: str) -> None:
        every = self.settings.log_steps
        if every is None or step % every or not self._is_mine(who["rank"]):
            return
        statistics = backend.ask("memory_stats")
        if not statistics:
            return
        values = {name: int(statistics[key]) for name, key in _FIELDS if key in statistics}
        if self.settings.log_json:
            self._append(path, {"step": step, "rank": who["rank"], **self._times(step), **values})
        else:
            self._say(who, step, values)
        self._peak = values.get("peak_allocated_bytes")

    def _times(self, step: int) -> dict[str, Any]:
        before, now = self._at, time.time()
        self._at = (step, now)
        steps = step - before[0] if before is not None else 0
        seconds = (now - before[1]) / steps if before is not None and steps > 0 else None
        return {"time_us": int(now * 1e6), "seconds_per_step": seconds}

    def _say(self, who: dict[str, Any], step: int, values: dict[str, int]) -> None:
        peak = values.get("peak_allocated_bytes", 0)
        change = 0 if self._peak is None else peak - self._peak
        rank = f"rank {who['rank']}, " if who["world_size"] > 1 else ""
        more = f" ({'+' if change > 0 else '-'}{human(abs(change))})" if change else ""
        say(
            f"{rank}step {step}: peak {human(peak)}{more}, "
            f"reserved {human(values.get('reserved_bytes', 0))}, "
            f"allocation retries {values.get('allocation_retries', 0)}"
        )

    @staticmethod
    def _append(path: str, line: dict[str, Any]) -> None:
        """One write, so that lines stay whole whatever else happens to the process."""
        if os.path.dirname(path):
            os.makedirs(os.path.dirname(path), exist_ok=True)
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
        flags |= getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
        file = os.open(path, flags, 0o666)
        try:
            os.write(file, json.dumps(line).encode("ascii") + b"\n")
        finally:
            os.close(file)
