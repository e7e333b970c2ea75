"""The line at the end of a recording that had nothing to record, because PyTorch finds no GPU.

Without it nobody can tell a missing GPU from a recording that was never started. TESSERA_RECORD is often set for a whole job, so
a process that only inherited it says nothing unless it has trained: a launcher, a compiler's worker and a script that prints PyTorch's
version import torch, too. Workers that multiprocessing starts are silent, and so are all ranks but the first.
"""

from __future__ import annotations

import importlib
import os
import sys
import warnings
from typing import TYPE_CHECKING, Any

from . import sidecar
from .backend import find
from .guard import attempt, guarded, say

if TYPE_CHECKING:
    from .recorder import Recorder


class Nothing:
    """What this process knows of it; one per process."""

    def __init__(self) -> None:
        self.has_trained = False  # an optimizer has made a step while no device was in use
        self.told = False
        self._hook: Any = None

    def watch(self) -> None:
        """Notes whether an optimizer makes a step, until `forget`."""
        if self._hook is None:
            module = attempt(importlib.import_module, "torch.optim.optimizer")
            register = getattr(module, "register_optimizer_step_post_hook", None)
            self._hook = attempt(register, self._after_step) if register is not None else None

    @guarded("the hook after an optimizer's step")
    def _after_step(self, *_: Any) -> None:
        if not self.has_trained:
            backends = find(sys.modules.get("torch"))
            self.has_trained = not any(backend.is_imitated() for backend in backends)

    def forget(self) -> None:
        """A device is in use."""
        hook, self._hook = self._hook, None
        if hook is not None:
            attempt(hook.remove)

    @guarded("looking for a GPU")
    def tell(self, recorder: Recorder) -> None:
        """Says why a recording that ends has recorded nothing, once."""
        if self.told or recorder.pid != os.getpid() or not (recorder.is_asked or self.has_trained):
            return
        parent = getattr(sys.modules.get("multiprocessing"), "parent_process", None)
        is_worker = parent is not None and attempt(parent) is not None
        if is_worker or sidecar.ranks()["rank"] or not self._lacks_devices(recorder):
            return
        self.told = True
        say(
            "nothing was recorded, because PyTorch finds no GPU here; `tessera trace SCRIPT` needs none (docs/questions/no-gpu.md)"
        )

    @staticmethod
    def _lacks_devices(recorder: Recorder) -> bool:
        """Whether PyTorch could record devices but finds no device; tessera.trace pretends that one exists."""
        backends = find(recorder.torch, recorder.settings.device)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return bool(backends) and not any(
                backend.is_imitated() or attempt(backend.module.is_available, default=True)
                for backend in backends
            )


nothing = Nothing()
