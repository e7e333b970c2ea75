"""What the interpreter does at its start where the package tessera is installed. Without its C half there is recording alone."""
import importlib.util
import site
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def _has_core():
    try:
        return importlib.util.find_spec('tessera._core') is not None
    except ImportError:
        return False


if not _has_core():
    sys.path.append(str(ROOT / 'tests/python'))
    import fake_torch

    fake_torch.prepare()
    sys.path.pop()

    def _recording(name):
        if name in ('record', 'Recording'):
            return getattr(importlib.import_module('tessera._capture'), name)
        raise AttributeError(f'{name} of tessera needs its C half')

    sys.modules['tessera'].__getattr__ = _recording
    site.addsitedir(str(ROOT / 'python'))  # tessera_record.pth
