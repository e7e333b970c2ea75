"""What the command brings along for the user's Python: all that its modules import, and functions that PyTorch's C++ can call.

No PyTorch is needed: modules import it when they trace. A program in the place of Python keeps what the command sends."""
import io
import subprocess
import sys
import textwrap
import zipfile

import pytest

KEEPS = """\
    #!{python}
    import os
    with os.fdopen(10, 'rb') as file:
        file.readline()
        data = file.read()
    with open('archive.zip', 'wb') as file:
        file.write(data)
    os.write(11, b'refused as wanted\\n')
"""
# What start.py does before it answers a request.
IMPORTS = """\
    import importlib, sys, zipfile
    with open('archive.zip', 'rb') as file:
        data = file.read()
    source = zipfile.ZipFile('archive.zip').read('start.py').decode()
    exec(source.partition('ctypes.CDLL(')[0])
    found = Archive(data)
    sys.meta_path.insert(0, found)
    core = importlib.import_module('tessera_tracer._core')
    core.LIBRARY = found.files.read('cuda_functions.so')
    for name in sorted(found.names):
        if not name.endswith('.start'):
            importlib.import_module(name)
    print(len(found.names), sorted(core.cuda_functions()), 'torch' in sys.modules)
"""


@pytest.fixture(name='archive', scope='module')
def fixture_archive(tessera, work):
    (work / 'keeps').write_text(textwrap.dedent(KEEPS.format(python=sys.executable)), encoding='utf-8')
    (work / 'keeps').chmod(0o755)
    (work / 'config.json').write_text('{"model_type": "qwen3"}', encoding='utf-8')
    assert tessera.run('simulate', 'config.json', '--python', './keeps', cwd=work, status=3).stderr == 'tessera: config.json: as wanted\n'
    return work


def test_modules_are_complete(archive):
    done = subprocess.run([sys.executable, '-I', '-c', textwrap.dedent(IMPORTS)], cwd=archive, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          check=False)
    assert done.returncode == 0, done.stderr
    count, _, rest = done.stdout.partition(' ')
    assert int(count) > 15 and "'getStream'" in rest and "'hasPrimaryContext'" in rest and rest.endswith('False\n')


def test_the_archive_does_not_depend_on_when_it_was_made(archive):
    files = zipfile.ZipFile(io.BytesIO((archive / 'archive.zip').read_bytes())).infolist()
    assert {file.date_time for file in files} == {(1980, 1, 1, 0, 0, 0)}
