"""The doctor's modules as the command has them, a package `tessera_tracer`, made of the files of a checkout."""
import importlib
import io
import sys
import types
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ('doctor', 'tessera', 'tracer')
NAME = 'tessera_tracer'


def load(name):
    """A module, such as 'compare'."""
    if NAME not in sys.modules:
        package = types.ModuleType(NAME)
        package.__path__ = [str(ROOT / 'python' / folder) for folder in FOLDERS]
        sys.modules[NAME] = package
        core = importlib.import_module(f'{NAME}._core')
        package._core = core
    return importlib.import_module(f'{NAME}.{name}')


def archive(build):
    """The archive that the command of a build folder has: bytes. Sets what start.py sets in this process."""
    numbers = (Path(build) / 'python/tracer/tracer_archive.c').read_text(encoding='ascii').partition('{')[2].partition('}')[0]
    data = bytes(map(int, numbers.replace('\n', '').split(',')))
    core = load('_core')
    core.LIBRARY, core.ARCHIVE = zipfile.ZipFile(io.BytesIO(data)).read('cuda_functions.so'), data
    return data
