"""The build backend: meson-python, and a wheel named for what it is.

The extension is built on the stable ABI of CPython 3.9. meson-python names a wheel after the
interpreter that built it, so that one built with 3.11 would not install on 3.9; here it is always named
cp39-abi3.
"""
import base64
import hashlib
import pathlib
import re
import zipfile

import mesonpy
from mesonpy import (build_editable, build_sdist, get_requires_for_build_editable,  # noqa: F401
                     get_requires_for_build_sdist, get_requires_for_build_wheel)


def _record_line(name, data):
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b'=').decode()
    return f'{name},sha256={digest},{len(data)}'


def _renamed(files):
    """The files of a wheel with its tag changed and RECORD updated."""
    about = next(name for name in files if name.endswith('.dist-info/WHEEL'))
    record = about[:-len('WHEEL')] + 'RECORD'
    files[about] = re.sub(rb'(?m)^Tag: cp\d+-abi3-', b'Tag: cp39-abi3-', files[about])
    lines = [_record_line(about, files[about]) if line.startswith(about + ',') else line
             for line in files[record].decode().splitlines()]
    files[record] = ('\n'.join(lines) + '\n').encode()
    return files


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    name = mesonpy.build_wheel(wheel_directory, config_settings, metadata_directory)
    target = re.sub(r'-cp\d+-abi3-', '-cp39-abi3-', name)
    if target == name:
        return name
    folder = pathlib.Path(wheel_directory)
    with zipfile.ZipFile(folder / name) as old:
        infos = {info.filename: info for info in old.infolist()}
        files = _renamed({name: old.read(name) for name in infos})
    with zipfile.ZipFile(folder / target, 'w', zipfile.ZIP_DEFLATED) as new:
        for file, data in files.items():
            new.writestr(infos[file], data, zipfile.ZIP_DEFLATED)
    (folder / name).unlink()
    return target
