"""NVIDIA's management library, as far as the ledger of the card needs it: which memory of a card is used, and by which process.

NVML asks the driver, not CUDA: a call creates no context, waits for no kernel and is allowed while a graph is captured. It is
loaded with ctypes, from the driver's own libnvidia-ml.so.1 or from the file that TESSERA_NVML names.

What differs between drivers:

    memory       since R510 a second version of the call separates the driver's own memory, `reserved`. total = reserved + used + free
    processes    three versions of the call. The first has entries of 16 bytes (pid, bytes), the others of 24 (and two numbers of a MIG
                 instance); some drivers of R535 write 32, which is recognised by what they write after the last entry of 24
    bytes        all ones mean "not available": Windows, and vGPUs

In a container with process numbers of its own, NVML reports nothing, or the numbers of the host: `Processes.is_translated` is False then.
"""

from __future__ import annotations

import ctypes
import os
import struct
import sys
from typing import Any, Mapping, NamedTuple

from .guard import attempt

VARIABLE = "TESSERA_NVML"
_NOT_AVAILABLE = 2**64 - 1
_INSUFFICIENT_SIZE = 7
_WRONG_CALL = (2, 13, 25)  # invalid argument, no such function, version mismatch: an older call may work
_MEMORY_2 = 0x02000028  # version 2 of a struct of 40 bytes: version, total, reserved, free, used
_UNWRITTEN = b"\xa5"
_MOST_PROCESSES = 4096
_INITIAL_NAMESPACE = "pid:[4026531836]"  # what Linux gives to its first namespace of process numbers
_LISTS = (
    "nvmlDeviceGetComputeRunningProcesses",
    "nvmlDeviceGetMPSComputeRunningProcesses",
    "nvmlDeviceGetGraphicsRunningProcesses",
)


class Unusable(Exception):
    """NVML or one of its answers cannot be had; the message says why."""


class Memory(NamedTuple):
    """Of a card, in bytes."""

    total: int
    free: int
    reserved: int | None  # by the driver; None: unknown


def _file() -> str:
    return os.environ.get(VARIABLE) or ("nvml.dll" if sys.platform == "win32" else "libnvidia-ml.so.1")


def has_own_processes() -> bool:
    """Whether this process's number may mean another one outside: a container."""
    namespace = attempt(os.readlink, "/proc/self/ns/pid")
    return namespace is not None and namespace != _INITIAL_NAMESPACE


class Nvml:
    """The library, loaded and initialised. It is never shut down: PyTorch uses it, too."""

    def __init__(self) -> None:
        """Raises Unusable."""
        path = _file()
        try:
            self._library = ctypes.CDLL(path)
        except OSError as error:
            raise Unusable(f"{path} cannot be loaded: {error}") from None
        self._functions: dict[str, Any] = {}
        self._lists: dict[str, list[str]] = {}  # list of processes: the calls to try, the newest first
        self._silent: set[str] = set()  # lists that had nothing the last time, or cannot be had
        self._check(self._call("nvmlInit_v2"), "nvmlInit_v2")
        self.version = self._text("nvmlSystemGetNVMLVersion", 80) or "unknown"
        self.is_container = has_own_processes()

    # ---- calls ----

    def _function(self, name: str) -> Any:
        if name not in self._functions:
            function = getattr(self._library, name, None)
            if function is not None:
                function.restype = ctypes.c_int
            self._functions[name] = function
        return self._functions[name]

    def _call(self, name: str, *arguments: Any) -> int:
        """The status; 13 (no such function) if this driver does not have it."""
        function = self._function(name)
        return 13 if function is None else int(function(*arguments))

    def _check(self, status: int, name: str) -> None:
        if status:
            function = attempt(self._function, "nvmlErrorString")
            text = None
            if function is not None:
                function.restype = ctypes.c_char_p
                text = attempt(lambda: function(status).decode("utf-8", "replace"))
            raise Unusable(f"{name}: {text or 'status'} ({status})")

    def _text(self, name: str, size: int, *before: Any) -> str | None:
        buffer = ctypes.create_string_buffer(size)
        if self._call(name, *before, buffer, ctypes.c_uint(size)):
            return None
        return buffer.value.decode("utf-8", "replace")

    # ---- cards ----

    def cards(self) -> list[ctypes.c_void_p]:
        """A handle of each card, in the order of PCI addresses."""
        count = ctypes.c_uint(0)
        self._check(self._call("nvmlDeviceGetCount_v2", ctypes.byref(count)), "nvmlDeviceGetCount_v2")
        found = []
        for index in range(min(count.value, 256)):
            handle = ctypes.c_void_p()
            if not self._call("nvmlDeviceGetHandleByIndex_v2", ctypes.c_uint(index), ctypes.byref(handle)):
                found.append(handle)
        return found

    def uuid(self, handle: ctypes.c_void_p) -> str | None:
        return self._text("nvmlDeviceGetUUID", 96, handle)

    def name(self, handle: ctypes.c_void_p) -> str | None:
        return self._text("nvmlDeviceGetName", 96, handle)

    def by_uuid(self, uuid: str) -> ctypes.c_void_p | None:
        handle = ctypes.c_void_p()
        if self._call("nvmlDeviceGetHandleByUUID", uuid.encode("utf-8", "replace"), ctypes.byref(handle)):
            return None
        return handle

    def instances(self, handle: ctypes.c_void_p) -> list[ctypes.c_void_p] | None:
        """The MIG instances of a card that this process may see; None if it is not partitioned."""
        now, later = ctypes.c_uint(0), ctypes.c_uint(0)
        if self._call("nvmlDeviceGetMigMode", handle, ctypes.byref(now), ctypes.byref(later)) or not now.value:
            return None
        count, found = ctypes.c_uint(0), []
        self._call("nvmlDeviceGetMaxMigDeviceCount", handle, ctypes.byref(count))
        for index in range(min(count.value, 64)):
            instance = ctypes.c_void_p()
            arguments = (handle, ctypes.c_uint(index), ctypes.byref(instance))
            if not self._call("nvmlDeviceGetMigDeviceHandleByIndex", *arguments):
                found.append(instance)
        return found

    # ---- memory ----

    def memory(self, handle: ctypes.c_void_p) -> Memory:
        """Raises Unusable: cards that share the host's memory, for example, have no answer."""
        told = ctypes.create_string_buffer(struct.pack("=I36x", _MEMORY_2), 40)
        if not self._call("nvmlDeviceGetMemoryInfo_v2", handle, told):
            total, reserved, free, _ = struct.unpack_from("=4Q", told, 8)
            return Memory(total, free, reserved)
        self._check(self._call("nvmlDeviceGetMemoryInfo", handle, told), "nvmlDeviceGetMemoryInfo")
        total, free, _ = struct.unpack_from("=3Q", told)
        return Memory(total, free, None)

    # ---- processes ----

    def processes(self, handle: ctypes.c_void_p, whole: bool = True) -> dict[int, int | None]:
        """{pid: bytes, None if not available}. Unless `whole`, lists that were empty the last time are left out.
        Raises Unusable if the list of computing processes cannot be had."""
        found: dict[int, int | None] = {}
        for kind in _LISTS:
            if kind in self._silent and not whole and kind != _LISTS[0]:
                continue
            try:
                rows = self._list(kind, handle)
            except Unusable:
                if kind == _LISTS[0]:
                    raise
                rows = {}
            (self._silent.discard if rows else self._silent.add)(kind)
            for pid, size in rows.items():  # one that computes and draws is in two lists, with the same bytes
                known = found.get(pid)
                found[pid] = size if known is None else max(known, size or 0)
        return found

    def _list(self, kind: str, handle: ctypes.c_void_p) -> dict[int, int | None]:
        calls = self._lists.setdefault(kind, [kind + "_v3", kind + "_v2", kind])
        while True:
            name = calls[0]
            status, rows = self._rows(name, handle)
            if status in _WRONG_CALL and len(calls) > 1:
                del calls[0]
                continue
            self._check(status, name)
            return rows

    def _rows(self, name: str, handle: ctypes.c_void_p) -> tuple[int, dict[int, int | None]]:
        size = 16 if name.endswith("Processes") else 24
        room, status, count = 32, _INSUFFICIENT_SIZE, ctypes.c_uint(0)
        buffer: Any = None
        for _ in range(4):  # processes may start between two calls
            buffer = ctypes.create_string_buffer(_UNWRITTEN * (32 * room), 32 * room)
            count = ctypes.c_uint(room)
            status = self._call(name, handle, ctypes.byref(count), buffer)
            if status != _INSUFFICIENT_SIZE or room >= _MOST_PROCESSES:
                break
            room = min(max(2 * room, count.value + 8), _MOST_PROCESSES)
        if status:
            return status, {}
        entries, data = min(count.value, room), buffer.raw
        if size == 24 and data[24 * entries : 32 * entries].strip(_UNWRITTEN):
            size = 32
        rows: dict[int, int | None] = {}
        for start in range(0, size * entries, size):
            pid, used = struct.unpack_from("=I4xQ", data, start)
            rows[pid] = None if used == _NOT_AVAILABLE else used
        return 0, rows

    def process_name(self, pid: int) -> str | None:
        """The name of a process's program, without its folder."""
        buffer = ctypes.create_string_buffer(1024)
        status = self._call("nvmlSystemGetProcessName", ctypes.c_uint(pid), buffer, ctypes.c_uint(1024))
        text = "" if status else buffer.value.decode("utf-8", "replace")
        if not text and not self.is_container:
            text = attempt(_comm, pid, default="")
        return os.path.basename(text.strip()) or None


def _comm(pid: int) -> str:
    with open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as file:
        return file.read(64)


# ---- which card is which ----


def _visible(environment: Mapping[str, str]) -> list[str] | None:
    """The entries of CUDA_VISIBLE_DEVICES; None if all cards are visible."""
    text = environment.get("CUDA_VISIBLE_DEVICES")
    return None if text is None else [part.strip() for part in text.split(",")]


def _by_prefix(nvml: Nvml, cards: list[ctypes.c_void_p], prefix: str) -> ctypes.c_void_p | None:
    """CUDA takes the beginning of an identifier if only one card has it."""
    found = nvml.by_uuid(prefix)
    if found is not None:
        return found
    every = list(cards)
    if prefix.startswith("MIG-"):
        every = [one for card in cards for one in nvml.instances(card) or ()]
    matches = [one for one in every if (nvml.uuid(one) or "").startswith(prefix)]
    return matches[0] if len(matches) == 1 else None


def _by_index(
    nvml: Nvml, cards: list[ctypes.c_void_p], index: int, environment: Mapping[str, str]
) -> ctypes.c_void_p:
    """CUDA counts cards from the fastest on unless CUDA_DEVICE_ORDER says PCI_BUS_ID, which is NVML's order."""
    if not 0 <= index < len(cards):
        raise Unusable(f"NVML has {len(cards)} cards, and this is number {index}")
    is_ordered = environment.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID"
    if not is_ordered and len({nvml.name(card) for card in cards}) > 1:
        raise Unusable("which of NVML's cards it is, is not known: set CUDA_DEVICE_ORDER=PCI_BUS_ID")
    return cards[index]


def find_card(
    nvml: Nvml, index: int, uuid: str | None, environment: Mapping[str, str] | None = None
) -> ctypes.c_void_p:
    """The handle of PyTorch's device `index`; `uuid` is what PyTorch calls it, if it does. Raises Unusable if the card is not certain."""
    environment = os.environ if environment is None else environment
    visible = _visible(environment)
    entry = visible[index] if visible is not None and index < len(visible) else None
    cards = nvml.cards()
    found = None
    if entry is not None and entry.startswith("MIG-"):
        found = _by_prefix(nvml, cards, entry)
        if found is None:
            raise Unusable(f"NVML has no {entry}")
        return found
    if uuid:
        bare = uuid[4:] if uuid.startswith(("GPU-", "MIG-")) else uuid
        found = nvml.by_uuid("MIG-" + bare) or nvml.by_uuid("GPU-" + bare)
    if found is None and entry is not None and not entry.isdigit():
        found = _by_prefix(nvml, cards, entry)
        if found is None:
            raise Unusable(f"NVML has no {entry}")
    if found is None:
        found = _by_index(nvml, cards, index if entry is None else int(entry), environment)
    instances = nvml.instances(found)
    if instances is None:
        return found
    if len(instances) != 1:
        raise Unusable("the card is partitioned (MIG), and which instance this is, is not known")
    return instances[0]
