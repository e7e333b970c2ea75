"""Where snapshots go and what they are called.

    out/rank3_pid4711_step10_oom.pickle        the snapshot
    out/rank3_pid4711_step10_oom.json          its sidecar (`sidecar`)

`step` counts completed steps. A file is written under a temporary name that begins with a dot
and renamed when it is complete, so that nobody sees half of one, even if the job is killed. What killed
jobs left of this kind is removed at the next start (`clean`).
The sidecar is renamed first: if a snapshot exists, so does its sidecar.

If `out` is a file name (it ends in .pickle or .pickle.gz), the snapshot written at the end has that
name, and the others are placed next to it with its stem as prefix.
"""

from __future__ import annotations

import contextlib
import gzip
import itertools
import json
import math
import os
import pickle
import re
import socket
import stat
import tempfile
import threading
import time
from typing import IO, TYPE_CHECKING, Any, Callable, Iterable, Iterator

from .guard import attempt

if TYPE_CHECKING:
    from .settings import Settings

_ENDINGS = (".pickle.gz", ".pkl.gz", ".pickle", ".pkl")


def split_ending(path: str) -> tuple[str, str]:
    """("out/a", ".pickle.gz") for "out/a.pickle.gz"; ("out/", "") for a folder."""
    for ending in _ENDINGS:
        if path.endswith(ending):
            return path[: -len(ending)], ending
    return path, ""


def sidecar_path(snapshot_path: str) -> str:
    return split_ending(snapshot_path)[0] + ".json"


def plain(text: Any, limit: int = 60) -> str:
    """The caller's words as part of a file name: letters, digits, dots and dashes."""
    return re.sub(r"[^A-Za-z0-9.-]+", "-", str(text)).strip("-.")[:limit] or "dump"


def _host() -> str:
    return plain(attempt(socket.gethostname, default="") or "host", 40)


_TEMPORARY = re.compile(r"\..+\.([A-Za-z0-9-][A-Za-z0-9.-]*)\.(\d+)\.\d+\.tmp")
_OLD = 86400.0  # seconds: what another host has left is abandoned


def _is_abandoned(path: str, match: re.Match[str]) -> bool:
    """Whether the process that was writing a temporary file is gone."""
    if match[1] != _host() or os.name == "nt":  # where os.kill ends the process, whatever the signal
        return time.time() - os.stat(path).st_mtime > _OLD
    try:
        os.kill(int(match[2]), 0)
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):
        pass
    return False


def _removed(path: str) -> bool:
    os.remove(path)
    return True


def clean(folder: str) -> list[str]:
    """Removes temporary files of processes that were killed while they wrote; returns their names."""
    removed = []
    for name in attempt(os.listdir, folder, default=[]):
        match = _TEMPORARY.fullmatch(name)
        path = os.path.join(folder, name)
        if match and attempt(_is_abandoned, path, match, default=False):
            if attempt(_removed, path):
                removed.append(name)
    return removed


def why_not_writable(folder: str) -> str | None:
    """Why no file can be written to a folder, or None. Creates no folder: of one that is absent, the
    nearest that exists is looked at."""
    while not os.path.lexists(folder):
        parent = os.path.dirname(folder)
        if not parent or parent == folder:
            break
        folder = parent
    if not os.path.isdir(folder):
        return f"{folder} is not a folder"
    try:
        with tempfile.TemporaryFile(dir=folder):
            return None
    except OSError as error:
        return f"{folder}: {error.strerror or error}"


def other_folder() -> str:
    """Where snapshots go that cannot be written to their place."""
    user = getattr(os, "getuid", lambda: "user")()
    return os.path.join(tempfile.gettempdir(), f"tessera-record-{user}")


def private_folder() -> str:
    """`other_folder`, which exists then and is the user's alone. Anybody can make a folder, or a link, of that name first;
    then a new one is made whose name nobody can foresee."""
    folder = other_folder()
    attempt(os.mkdir, folder, 0o700)
    if attempt(_is_private, folder, default=False):
        return folder
    return tempfile.mkdtemp(prefix=f"{os.path.basename(folder)}-")


def _is_private(folder: str) -> bool:
    found = os.lstat(folder)
    if not stat.S_ISDIR(found.st_mode):
        return False
    if not hasattr(os, "getuid"):  # temporary folders of Windows are the user's
        return True
    if found.st_uid != os.getuid():
        return False
    if found.st_mode & 0o077:
        os.chmod(folder, 0o700)
    return True


class _Names:
    """The names, without endings, that recordings of this process write to now, and those that they have written: two recordings
    that end together must not write to one. A snapshot and its sidecar have one name."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._taken: set[str] = set()
        self._written: dict[str, float] = {}

    def renew(self) -> None:
        """In a forked child, whose parent's threads may have held the lock, and still have their names."""
        self._lock = threading.Lock()
        self._taken.clear()

    def take(self, candidates: Iterable[str], since: float) -> str:
        """The first of the paths that is free, and nobody else's until it is released. The first one of all may exist, unless
        another recording has written it since `since`."""
        with self._lock:
            for path in candidates:
                stem = os.path.abspath(split_ending(path)[0])
                if stem not in self._taken and self._written.get(stem, -math.inf) <= since:
                    self._taken.add(stem)
                    return path
        raise AssertionError("candidates never end")

    @contextlib.contextmanager
    def releasing(self, path: str) -> Iterator[None]:
        """The path was taken, and is free after the block; without an exception it was written."""
        stem, is_written = os.path.abspath(split_ending(path)[0]), False
        try:
            yield
            is_written = True
        finally:
            with self._lock:
                self._taken.discard(stem)
                if is_written:
                    self._written[stem] = time.monotonic()


names = _Names()


class Places:
    """Names for the snapshots of one recording."""

    def __init__(self, settings: Settings, folder: str | None = None) -> None:
        self.began = time.monotonic()
        stem, ending = split_ending(settings.out)
        self.ending = ending or (".pickle.gz" if settings.gzip else ".pickle")
        self.is_compressed = self.ending.endswith(".gz")
        if ending:
            self.folder, self.prefix = os.path.dirname(stem), os.path.basename(stem)
        else:
            self.folder, self.prefix = settings.out, ""
        if folder is not None:
            self.folder = folder
        self.kept: list[str] = []  # paths of the periodic snapshots, oldest first

    def name(self, rank: int, world_size: int, pid: int, step: int, reason: str) -> str:
        """The path for a snapshot, which is nobody else's until `names.releasing` ends. It exists only if it is the name that was asked for,
        of an earlier run."""
        if self.prefix and reason == "end":
            stem = self.prefix if world_size <= 1 else f"{self.prefix}_rank{rank}"
            return names.take(self._candidates(stem, may_exist=True), self.began)
        stem = f"rank{rank}_pid{pid}_step{step}_{plain(reason)}"
        if self.prefix:
            stem = f"{self.prefix}_{stem}"
        return names.take(self._candidates(stem, may_exist=False), self.began)

    def _candidates(self, stem: str, may_exist: bool) -> Iterator[str]:
        path = os.path.join(self.folder, stem + self.ending)
        if may_exist or not os.path.exists(path):
            yield path
        for number in itertools.count(2):
            path = os.path.join(self.folder, f"{stem}_{number}{self.ending}")
            if not os.path.exists(path):
                yield path

    def log_name(self, rank: int, pid: int) -> str:
        """The path for the lines about steps of this process."""
        stem = f"rank{rank}_pid{pid}_steps.jsonl"
        return os.path.join(self.folder, f"{self.prefix}_{stem}" if self.prefix else stem)

    def keep_last(self, path: str, count: int) -> None:
        """Registers a periodic snapshot and removes the oldest beyond `count`."""
        self.kept.append(path)
        while len(self.kept) > count:
            oldest = self.kept.pop(0)
            for victim in (oldest, sidecar_path(oldest)):
                attempt(os.remove, victim)


def _temporary(path: str) -> str:
    folder, name = os.path.split(path)
    return os.path.join(folder, f".{name}.{_host()}.{os.getpid()}.{threading.get_ident()}.tmp")


def _create(path: str) -> int:
    """A new file, whatever had the name before: a link there is not followed."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    flags |= getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0)
    try:
        return os.open(path, flags, 0o666)
    except FileExistsError:  # of a killed process with our number
        os.remove(path)
        return os.open(path, flags, 0o666)


def _write(path: str, write: Callable[[IO[bytes]], Any]) -> str:
    """Calls write(file) with a temporary file next to `path`, and returns its path; removes it if that
    fails."""
    if os.path.dirname(path):
        os.makedirs(os.path.dirname(path), exist_ok=True)
    temporary = _temporary(path)
    try:
        with os.fdopen(_create(temporary), "wb") as file:
            write(file)
    except BaseException:  # even an interrupt must not leave the file
        attempt(os.remove, temporary)
        raise
    return temporary


def _rename(temporary: str, path: str) -> None:
    try:
        os.replace(temporary, path)
    except BaseException:
        attempt(os.remove, temporary)
        raise


def _write_pickle(file: IO[bytes], snapshot: Any, compressed: bool) -> None:
    # Protocol 4, because PyTorch's own viewer cannot read a later one, and Python 3.14 defaults to 5.
    if not compressed:
        pickle.dump(snapshot, file, protocol=4)
        return
    with gzip.GzipFile(filename="", mode="wb", compresslevel=1, fileobj=file) as stream:
        pickle.dump(snapshot, stream, protocol=4)


def write_snapshot(
    path: str, snapshot: Any, compressed: bool, document: dict[str, Any] | None = None
) -> None:
    """Writes a snapshot to `path` and a document, unless that is None, to its sidecar, with the
    size of the snapshot's file. A sidecar that cannot be written costs only itself."""
    temporary = _write(path, lambda file: _write_pickle(file, snapshot, compressed))
    beside = None
    try:
        if document is not None:
            document["snapshot_bytes"] = os.stat(temporary).st_size
            beside = attempt(_write_sidecar, sidecar_path(path), document)
        _rename(temporary, path)
    except BaseException:
        attempt(os.remove, temporary)  # already gone if renaming failed
        if beside is not None:
            attempt(os.remove, beside)
        raise


def _as_text(document: dict[str, Any]) -> str:
    """JSON for people, except the series of the card, which are long: they are one line."""
    # UTF-8, not ASCII: a lone surrogate, from a file name in an error message, would be escaped, which
    # strict readers reject.
    card = document.get("card")
    if not card:
        return json.dumps(document, indent=1, default=str, ensure_ascii=False)
    rest = {name: value for name, value in document.items() if name != "card"}
    text = json.dumps(rest, indent=1, default=str, ensure_ascii=False)
    series = json.dumps(card, default=str, ensure_ascii=False, separators=(",", ":"))
    return f'{text[: text.rindex("}")].rstrip()},\n "card": {series}\n}}'


def _write_sidecar(path: str, document: dict[str, Any]) -> str:
    text = _as_text(document)
    temporary = _write(path, lambda file: file.write(text.encode("utf-8", "replace") + b"\n"))
    _rename(temporary, path)
    return path
