"""The host's memory: what this process holds, and what its control group holds and may hold.

    version 2    /proc/self/cgroup has "0::/path"; /sys/fs/cgroup/path/memory.current and memory.max
    version 1    ... "9:memory:/path"; /sys/fs/cgroup/memory/path/memory.usage_in_bytes and memory.limit_in_bytes

A group's limit is the lowest of its own and those of the groups above it. In a container the path may be
that of the host: then the files are at the root.
"""

from __future__ import annotations

import os
from typing import NamedTuple

from .guard import attempt

_UNLIMITED = 2**60  # version 1 has the largest multiple of a page for "no limit"


def _number(path: str) -> int | None:
    """The number in a small file; None if it has none, such as "max"."""
    try:
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
    except OSError:
        return None
    try:
        text = os.read(descriptor, 64).split()
        return int(text[0]) if text and text[0].isdigit() else None
    except OSError:
        return None
    finally:
        os.close(descriptor)


class Host(NamedTuple):
    """Where to look, and what was found at the start."""

    current: str | None  # the file with the group's memory
    limit_bytes: int | None
    rss: str
    page: int

    def rss_bytes(self) -> int | None:
        try:
            descriptor = os.open(self.rss, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
        except OSError:
            return None
        try:
            words = os.read(descriptor, 128).split()
            return int(words[1]) * self.page if len(words) > 1 else None
        except (OSError, ValueError):
            return None
        finally:
            os.close(descriptor)

    def cgroup_bytes(self) -> int | None:
        return None if self.current is None else _number(self.current)


def _paths(root: str) -> tuple[str | None, str | None]:
    """The paths of this process's group in version 1 and in version 2."""
    older = newer = None
    try:
        with open(os.path.join(root, "proc/self/cgroup"), encoding="utf-8", errors="replace") as file:
            lines = file.read(65536).splitlines()
    except OSError:
        return None, None
    for line in lines:
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if "memory" in controllers.split(","):
            older = path
        elif number == "0" and not controllers:
            newer = path
    return older, newer


def _look(mount: str, path: str, current: str, limit: str) -> tuple[str, int | None] | None:
    """The file of the group's memory and the lowest limit from the group up to the mount."""
    parts = [part for part in path.split("/") if part and part != ".."]
    while parts and not os.path.exists(os.path.join(mount, *parts, current)):
        parts.pop()  # the path is the host's, and this is a container
    file = os.path.join(mount, *parts, current)
    if not os.path.exists(file):
        return None
    limits = []
    for depth in range(len(parts), -1, -1):
        found = _number(os.path.join(mount, *parts[:depth], limit))
        if found is not None and found < _UNLIMITED:
            limits.append(found)
    return file, min(limits, default=None)


def look(root: str = "/") -> Host:
    """What there is; never raises."""
    page = attempt(os.sysconf, "SC_PAGE_SIZE", default=4096) if hasattr(os, "sysconf") else 4096
    rss = os.path.join(root, "proc/self/statm")
    older, newer = attempt(_paths, root, default=(None, None))
    mount = os.path.join(root, "sys/fs/cgroup")
    found = None
    if older is not None:
        names = ("memory.usage_in_bytes", "memory.limit_in_bytes")
        found = attempt(_look, os.path.join(mount, "memory"), older, *names)
    if found is None and newer is not None:
        found = attempt(_look, mount, newer, "memory.current", "memory.max")
        if found is None:
            found = attempt(_look, os.path.join(mount, "unified"), newer, "memory.current", "memory.max")
    file, limit = found if found is not None else (None, None)
    return Host(file, limit, rss, page)
