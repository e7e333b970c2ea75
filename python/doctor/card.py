"""Everything that `tessera doctor` asks of a GPU. Tests put a stand-in in the place of torch.cuda, or of a Card."""
import gc
import os
import re
import subprocess
import warnings
from typing import Any, Dict, Optional

from ._fake_cuda import CARDS

HISTORY = {'max_entries': 200000, 'stacks': 'python'}


class Card:
    """One GPU, as PyTorch sees it. Nothing reaches the driver before start()."""

    def __init__(self, torch: Any, index: int = 0) -> None:
        self.torch, self.cuda, self.index = torch, torch.cuda, index

    def start(self) -> None:
        """Make this process's context."""
        self.cuda.set_device(self.index)
        self.cuda.init()
        self.cuda.synchronize()

    def about(self) -> Dict[str, Any]:
        has = self.cuda.get_device_properties(self.index)
        return {'name': has.name, 'capability': [has.major, has.minor], 'total_bytes': self.cuda.mem_get_info(self.index)[1]}

    def free_bytes(self) -> int:
        """Of the whole card."""
        self.cuda.synchronize()
        return int(self.cuda.mem_get_info(self.index)[0])

    def counters(self) -> Dict[str, int]:
        """PyTorch's own: what is there, and the most since reset()."""
        stats = self.cuda.memory_stats(self.index)
        return {f'{when}_{kind}': int(stats.get(f'{kind}_bytes.all.{name}', 0)) for kind in ('requested', 'allocated', 'reserved')
                for when, name in (('now', 'current'), ('peak', 'peak'))}

    def reset(self) -> None:
        self.cuda.reset_peak_memory_stats(self.index)

    def clear(self) -> None:
        """Return everything to the driver that no program holds, workspaces of libraries included."""
        gc.collect()
        self.cuda.synchronize()
        for name in ('_cuda_clearCublasWorkspaces', '_cuda_clearCublasLtWorkspaces'):
            clear = getattr(getattr(self.torch, '_C', None), name, None)
            if clear is not None:
                clear()
        self.cuda.empty_cache()

    def record(self) -> None:
        self.cuda.memory._record_memory_history(**HISTORY)

    def dump(self, path: str) -> None:
        """Write the snapshot, and stop recording."""
        self.cuda.memory._dump_snapshot(path)
        self.cuda.memory._record_memory_history(enabled=None)


class NoCard:
    """In the place of a card, for communicators of processes on the CPU: each look finds that a communicator has taken as much as the first one."""
    EACH_BYTES = 1 << 20

    def __init__(self, *_: Any) -> None:
        self._free_bytes = 1 << 30

    def start(self) -> None:
        pass

    def about(self) -> Dict[str, Any]:
        return {'name': 'CPU', 'capability': [0, 0], 'total_bytes': 0}

    def free_bytes(self) -> int:
        self._free_bytes -= self.EACH_BYTES
        return self._free_bytes

    def counters(self) -> Dict[str, int]:
        return {'now_reserved': 0}

    def clear(self) -> None:
        pass


def count(torch: Any) -> 'tuple[int, str]':
    """How many GPUs PyTorch sees, and what it complains of."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter('always')
        try:
            found = int(torch.cuda.device_count()) if torch.cuda.is_available() else 0
        except Exception as error:
            return 0, str(error)
    return found, ' '.join(str(one.message) for one in said[:1])


def driver_version() -> Optional[str]:
    """Of NVIDIA's driver, as Linux knows it, else as nvidia-smi says."""
    try:
        with open('/proc/driver/nvidia/version', encoding='ascii', errors='replace') as file:
            found = re.search(r'\b\d{3}\.\d+(\.\d+)?\b', file.read())
        if found:
            return found.group()
    except OSError:
        pass
    try:
        said = subprocess.run(['nvidia-smi', '--query-gpu=driver_version', '--format=csv,noheader'], stdin=subprocess.DEVNULL, capture_output=True,
                              text=True, timeout=20, check=False).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    found = re.match(r'\d{3}\.\d+(\.\d+)?', said)
    return found.group() if found else None


def like(name: str, capability: 'tuple[int, int]', total_bytes: int) -> str:
    """The card for which programs are traced in place of this one: itself, or another of the same compute capability, or the next lower one."""
    plain = name.lower().replace(' ', '').replace('-', '')
    if 'a100' in plain and total_bytes < 50 << 30:
        return 'a100-40'
    for key in sorted(CARDS, key=len, reverse=True):
        if key in plain and CARDS[key].capability == capability:
            return key
    below = [(CARDS[key].capability, key) for key in CARDS if CARDS[key].capability <= capability and key != 'mi300x']
    if not below:
        return 't4'
    best = max(known for known, _ in below)
    return next(key for known, key in below if known == best)


def settings(environment: 'os._Environ[str] | Dict[str, str]', wanted: str) -> Dict[str, str]:
    """The environment of a process with these settings of PyTorch's allocator, whatever the user's are."""
    out = {name: value for name, value in environment.items() if name not in ('PYTORCH_CUDA_ALLOC_CONF', 'PYTORCH_ALLOC_CONF', 'PYTORCH_HIP_ALLOC_CONF',
                                                                              'PYTORCH_NO_CUDA_MEMORY_CACHING', 'CUBLAS_WORKSPACE_CONFIG')}
    if wanted:
        out['PYTORCH_CUDA_ALLOC_CONF'] = wanted
    return out
