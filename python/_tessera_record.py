"""TESSERA_RECORD=out/ python train.py: waits for `import torch`, then starts to record.

`tessera_record.pth` imports this at the start of the interpreter, only where the variable is set.
It does not import torch, and imports tessera only after torch: a program without PyTorch pays only
for a check at each import. A failure prints a line on stderr and never affects the program.
"""

from __future__ import annotations

import importlib.util
import os
import sys

_WATCHED = ("torch", "torch_npu")


def _started() -> None:
    """torch, or a plug-in that brings another kind of device, has been imported."""
    try:
        from tessera import _capture

        _capture.start_from_environment()
    except Exception as error:
        sys.stderr.write(f"tessera: TESSERA_RECORD is set, but recording failed: {error}\n")


class _Finder:
    """Is first in sys.meta_path: finds nothing itself, but sees what is about to be
    imported."""

    def __init__(self) -> None:
        self.looking = False

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if self.looking or name not in _WATCHED:
            return None
        self.looking = True
        try:
            spec = importlib.util.find_spec(name)
        except Exception:
            return None  # the import itself will report the error
        finally:
            self.looking = False
        loader = getattr(spec, "loader", None)
        execute = getattr(loader, "exec_module", None)
        if execute is None:
            return None

        def exec_module(module: Any) -> None:
            del loader.exec_module  # the loader is unchanged
            execute(module)
            _started()

        try:
            loader.exec_module = exec_module
        except AttributeError:  # a loader without a __dict__
            return None
        return spec


def install() -> None:
    if os.environ.get("TESSERA_RECORD", "").strip().lower() in ("", "0", "false", "no", "off"):
        return
    if "torch" in sys.modules:
        _started()
    else:
        sys.meta_path.insert(0, _Finder())


install()
