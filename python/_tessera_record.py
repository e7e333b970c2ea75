"""TESSERA_RECORD=out/ python train.py: waits for `import torch`, then starts to record.

`tessera_record.pth` imports this at the start of the interpreter, only where the variable is set.
torch is not imported for it, and neither is tessera before torch is: a program without PyTorch pays
for a look at each import. What goes wrong is a line on stderr and never the program's business.
"""

import importlib.util
import os
import sys

_WATCHED = ("torch", "torch_npu")


def _started():
    """torch, or a plug-in that brings another kind of device, has been imported."""
    try:
        from tessera import _capture

        _capture.start_from_environment()
    except Exception as error:
        sys.stderr.write(f"tessera: TESSERA_RECORD is set, but recording failed: {error}\n")


class _Finder:
    """Stands first in sys.meta_path; finds nothing itself, and sees what is about to be
    imported."""

    def __init__(self):
        self.looking = False

    def find_spec(self, name, path=None, target=None):
        if self.looking or name not in _WATCHED:
            return None
        self.looking = True
        try:
            spec = importlib.util.find_spec(name)
        except Exception:
            return None  # the import that asks will say what is wrong
        finally:
            self.looking = False
        loader = getattr(spec, "loader", None)
        execute = getattr(loader, "exec_module", None)
        if execute is None:
            return None

        def exec_module(module):
            del loader.exec_module  # the loader is as it was
            execute(module)
            _started()

        try:
            loader.exec_module = exec_module
        except AttributeError:  # a loader without a __dict__
            return None
        return spec


def install():
    if os.environ.get("TESSERA_RECORD", "").strip().lower() in ("", "0", "false", "no", "off"):
        return
    if "torch" in sys.modules:
        _started()
    else:
        sys.meta_path.insert(0, _Finder())


install()
