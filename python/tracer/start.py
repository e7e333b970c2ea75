"""What the command runs in the user's Python: the tracer from the archive that the command contains, so that this Python needs PyTorch, but not
tessera's package.

The command starts `python -c "..."` (cmd/core/tracer.c), which reads the request and the archive from a pipe and runs this file with both as
`REQUEST` and `ARCHIVE`, and with the descriptor for the answer as `RESULTS`. A request's `entry` is the module
that answers it: _child, or one of python/doctor. Modules of the archive are imported as parts of a package tessera_tracer, whose files have names that no real
file has.
"""
# ruff: noqa: F821
import ctypes
import hashlib
import importlib
import importlib.abc
import importlib.util
import io
import sys
import zipfile

NAME, FOLDER = 'tessera_tracer', '<command>/tessera/'


class Archive(importlib.abc.MetaPathFinder, importlib.abc.InspectLoader):
    """Finds and loads modules of the archive."""

    def __init__(self, data):
        self.files = zipfile.ZipFile(io.BytesIO(data))
        self.names = {f'{NAME}.{name[:-3]}': name for name in self.files.namelist() if name.endswith('.py')}

    def find_spec(self, name, path=None, target=None):
        if name == NAME:
            return importlib.util.spec_from_loader(name, self, origin=FOLDER, is_package=True)
        if name not in self.names:
            return None
        spec = importlib.util.spec_from_loader(name, self, origin=FOLDER + self.names[name])
        spec.has_location = True
        return spec

    def get_source(self, name):
        return self.files.read(self.names[name]).decode() if name in self.names else ''

    def exec_module(self, module):
        spec = module.__spec__
        exec(compile(self.get_source(spec.name), spec.origin, 'exec', dont_inherit=True), module.__dict__)


ctypes.CDLL(None).prctl(1, 9)  # PR_SET_PDEATHSIG, SIGKILL: end when the command does, however that ends
archive = Archive(ARCHIVE)
sys.meta_path.insert(0, archive)
core = importlib.import_module(f'{NAME}._core')
core.LIBRARY, core.ARCHIVE = archive.files.read('cuda_functions.so'), ARCHIVE
importlib.import_module(f'{NAME}.{REQUEST.get("entry", "_child")}').run(REQUEST, hashlib.sha256(ARCHIVE).hexdigest(), RESULTS)
