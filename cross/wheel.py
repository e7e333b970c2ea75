"""wheel.py: the Python wheel of another system, from a build of the command for it (build.py).

The extension has CPython's stable interface alone, so its headers are this machine's, with the settings of the target:
for Windows those of Python's sources (PC/pyconfig.h), and a library of the names in python3.dll, made from its list
there; macOS has the same sizes of types as Linux, and finds the names when the extension is loaded."""
import base64
import hashlib
import re
import shutil
import sysconfig
import tomllib
import zipfile

import fetch
from fetch import ROOT, call

PYTHON = '0x03090000'  # the oldest, as in python/meson.build
TAG = 'cp39-abi3'
# Debian's package of the sources, which have Python's settings for Windows.
SOURCES = 'python3.11'


def sources():
    """The C files of the extension, as python/src/meson.build lists them."""
    text = (ROOT / 'python/src/meson.build').read_text()
    return [ROOT / 'python/src' / name for name in re.findall(r"'(\w+\.c)'", text)]


def windows_python(tools, folder):
    """(the folder of headers, the library to link with) of Python for Windows."""
    python = fetch.sources([SOURCES])[SOURCES]
    headers = folder / 'headers'
    shutil.rmtree(headers, ignore_errors=True)
    shutil.copytree(python / 'Include', headers)
    shutil.copy(python / 'PC' / 'pyconfig.h', headers)
    names = re.findall(r'^EXPORT_(FUNC|DATA)\((\w+)\)', (python / 'PC' / 'python3dll.c').read_text(), re.MULTILINE)
    lines = [f'  {name}{" DATA" if kind == "DATA" else ""}' for kind, name in names]
    (folder / 'python3.def').write_text('LIBRARY python3.dll\nEXPORTS\n' + '\n'.join(lines) + '\n')
    library = folder / 'libpython3.a'
    call(tools / 'dlltool', '-m', 'i386:x86-64', '-d', folder / 'python3.def', '-l', library)
    return headers, library


def extension(tools, target, prefix, build, folder):
    """Compiles and links the extension."""
    folder.mkdir(parents=True, exist_ok=True)
    libraries = [build / 'cmd/libcli.a', build / 'src/libtessera.a']
    link = ['-L' + str(prefix / 'lib'), '-ljansson', '-lyaml', '-lpcre2-8', '-lutf8proc', '-lzstd', '-llzma', '-lz']
    flags = ['-std=c17', '-O2', '-fPIC', '-fvisibility=hidden', f'-DPy_LIMITED_API={PYTHON}', f'-I{ROOT / "include"}',
             f'-I{ROOT / "cmd"}', '-Wall', '-Wextra', '-Werror']
    if target.system == 'windows':
        headers, library = windows_python(tools, folder)
        flags += [f'-I{headers}', f'-I{ROOT / "src"}', f'-I{ROOT / "src/windows/include"}', '-include', 'windows/posix.h',
                  '-D__USE_MINGW_ANSI_STDIO=1', '-DMS_WIN64']
        link += [library, '-lpthread', '-lshell32']
        name = '_core.pyd'
    else:
        flags += [f'-I{sysconfig.get_path("include")}']
        link += ['-undefined', 'dynamic_lookup', '-Wl,-install_name,@rpath/_core.abi3.so']
        name = '_core.abi3.so'
    call(tools / 'cc', '-shared', *flags, *sources(), *libraries, *link, '-o', folder / name)
    return folder / name


# ---- the archive ----

def metadata(version):
    project = tomllib.loads((ROOT / 'pyproject.toml').read_text())['project']
    lines = ['Metadata-Version: 2.4', f'Name: {project["name"]}', f'Version: {version}', f'Summary: {project["description"]}',
             f'Requires-Python: {project["requires-python"]}', 'Description-Content-Type: text/markdown']
    points = ''.join([
        '[console_scripts]\n', *[f'{name} = {value}\n' for name, value in project['scripts'].items()],
        *[f'\n[{group}]\n' + ''.join(f'{name} = {value}\n' for name, value in entries.items())
          for group, entries in project['entry-points'].items()]])
    return '\n'.join(lines) + '\n\n' + (ROOT / 'README.md').read_text(encoding='utf-8'), points


def notices():
    """The licences of the C libraries in the extension, as Debian has them."""
    return {f'licenses/bundled/{name}.txt': (folder / 'debian/copyright').read_text(encoding='utf-8', errors='replace')
            for name, folder in fetch.sources(fetch.LIBRARIES).items()}


def content(core, target, version):
    """{name in the wheel: bytes}."""
    about = f'tessera-{version}.dist-info'
    text, points = metadata(version)
    found = {f'tessera/{path.relative_to(ROOT / "python/tessera").as_posix()}': path.read_bytes()
             for path in sorted((ROOT / 'python/tessera').rglob('*'))
             if path.suffix in ('.py', '.pyi', '.typed') and '__pycache__' not in path.parts}
    found |= {f'tessera/{core.name}': core.read_bytes()}
    found |= {name: (ROOT / 'python' / name).read_bytes() for name in ('_tessera_record.py', 'tessera_record.pth')}
    found |= {f'{about}/{name}': text.encode() for name, text in {
        'METADATA': text, 'entry_points.txt': points, **notices(),
        'WHEEL': f'Wheel-Version: 1.0\nGenerator: tessera cross/wheel.py\nRoot-Is-Purelib: false\nTag: {TAG}-{target.tag}\n',
    }.items()}
    return about, found


def pack(core, target, version, out):
    """Writes the wheel; the same content gives the same bytes."""
    about, files = content(core, target, version)
    rows = [f'{name},sha256={base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()},{len(data)}'
            for name, data in files.items()]
    files[f'{about}/RECORD'] = ('\n'.join([*rows, f'{about}/RECORD,,']) + '\n').encode()
    out.mkdir(parents=True, exist_ok=True)
    wheel = out / f'tessera-{version}-{TAG}-{target.tag}.whl'
    with zipfile.ZipFile(wheel, 'w', zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            entry = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            entry.external_attr = 0o644 << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, data)
    return wheel


def make(tools, target, prefix, build, work):
    """The wheel of a target, from its build folder."""
    version = re.search(r"version: '([\d.]+)'", (ROOT / 'meson.build').read_text()).group(1)
    core = extension(tools, target, prefix, build, work / target.name / 'wheel')
    return pack(core, target, version, work / 'dist')
