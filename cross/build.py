#!/usr/bin/env python3
"""build.py SYSTEM --work FOLDER: the command, the library and the Python wheel for another system, compiled on this one.

    tools, sources fetched once (fetch.py)
    dependencies   compiled for the system, as static libraries, in FOLDER/NAME/prefix
    build          meson, with a cross file that this program writes, in FOLDER/NAME
    wheel          the package with its extension and the command in it (wheel.py)

docs/decisions/073-other-systems.md says why it is made this way.
"""
import argparse
import os
import shutil
import sys
from pathlib import Path

import fetch
import targets
import wheel
from fetch import ROOT, call

# Of libraries that are loaded when a command needs them, headers alone are needed: this machine's. `serve` and the view in a terminal are
# for Linux alone.
HEADERS = {'sqlite3': ['sqlite3.h'], 'libedit': ['histedit.h']}
LINUX_HEADERS = {'libmicrohttpd': ['microhttpd.h'], 'ncursesw': ['curses.h', 'ncurses_dll.h', 'unctrl.h']}

# What a program of PCRE2's would use, which is not built; cmake finds this machine's, and looks into its headers.
WITHOUT = [f'-DCMAKE_DISABLE_FIND_PACKAGE_{name}=ON' for name in ('BZip2', 'ZLIB', 'Readline', 'Editline')]
# The C libraries: Debian's package, the folder of its CMakeLists.txt, and what is left out of it.
LIBRARIES = {
    'zlib': ('.', ['-DZLIB_BUILD_EXAMPLES=OFF'], 'zlibstatic'),
    'libzstd': ('build/cmake', ['-DZSTD_BUILD_PROGRAMS=OFF', '-DZSTD_BUILD_SHARED=OFF', '-DZSTD_BUILD_TESTS=OFF',
                                '-DZSTD_BUILD_DICTBUILDER=OFF', '-DZSTD_BUILD_COMPRESSION=OFF',
                                '-DZSTD_LEGACY_SUPPORT=OFF', '-DZSTD_MULTITHREAD_SUPPORT=OFF'], 'libzstd_static'),
    'xz-utils': ('.', ['-DBUILD_TESTING=OFF', '-DENABLE_NLS=OFF', '-DCREATE_XZ_SYMLINKS=OFF',
                        '-DCREATE_LZMA_SYMLINKS=OFF'], 'liblzma'),
    'libyaml': ('.', ['-DBUILD_TESTING=OFF'], 'yaml'),
    'jansson': ('.', ['-DJANSSON_BUILD_DOCS=OFF', '-DJANSSON_WITHOUT_TESTS=ON', '-DJANSSON_EXAMPLES=OFF'], 'jansson'),
    'pcre2': ('.', ['-DPCRE2_BUILD_TESTS=OFF', '-DPCRE2_BUILD_PCRE2GREP=OFF', '-DPCRE2_SUPPORT_JIT=ON',
                    *WITHOUT], 'pcre2-8-static'),
    'utf8proc': ('.', ['-DUTF8PROC_INSTALL=OFF'], 'utf8proc'),
}
# A library that has these inside shows none of their functions. zlib takes today's macOS for that of 1999, which had no fdopen().
FLAGS = ['-O2', '-g0', '-fPIC', '-fvisibility=hidden', '-DZSTDLIB_VISIBLE=', '-DZSTDERRORLIB_VISIBLE=', '-Dfdopen=fdopen']
# What pkg-config says of each: its name for meson, the version, and how it is linked.
MODULES = {
    'zlib': ('zlib', '-lz', ''), 'libzstd': ('libzstd', '-lzstd', ''),
    'xz-utils': ('liblzma', '-llzma', '-DLZMA_API_STATIC'), 'libyaml': ('yaml-0.1', '-lyaml', '-DYAML_DECLARE_STATIC'),
    'jansson': ('jansson', '-ljansson', ''), 'pcre2': ('libpcre2-8', '-lpcre2-8', '-DPCRE2_STATIC'),
    'utf8proc': ('libutf8proc', '-lutf8proc', '-DUTF8PROC_STATIC'),
}


def say(text):
    print(f'cross: {text}', file=sys.stderr, flush=True)


def compiler(target, work):
    """The folder of programs that compile and archive for the target: cmake and meson want a name, not words."""
    folder = work / target.name / 'bin'
    folder.mkdir(parents=True, exist_ok=True)
    # Nothing is written in C++: its library, which zig would compile first, is not needed.
    words_of = {'cc': f'cc -target {target.triple}', 'c++': f'c++ -target {target.triple} -nostdlib++', 'ar': 'ar',
                'ranlib': 'ranlib', 'rc': 'rc', 'dlltool': 'dlltool'}
    for name, words in words_of.items():
        script = folder / name
        script.write_text(f'#!/bin/sh\nexec "{fetch.zig()}" {words} "$@"\n')
        script.chmod(0o755)
    return folder


# ---- dependencies ----

def toolchain(tools, target):
    """cmake's description of the target."""
    programs = {'CMAKE_C_COMPILER': 'cc', 'CMAKE_CXX_COMPILER': 'c++', 'CMAKE_AR': 'ar', 'CMAKE_RANLIB': 'ranlib',
                'CMAKE_RC_COMPILER': 'rc'}
    return ''.join([
        f'set(CMAKE_SYSTEM_NAME {target.cmake})\nset(CMAKE_SYSTEM_PROCESSOR {target.processor})\n',
        *[f'set({key} "{tools / name}")\n' for key, name in programs.items()],
        *[f'set(CMAKE_FIND_ROOT_PATH_MODE_{kind} ONLY)\n' for kind in ('LIBRARY', 'INCLUDE', 'PACKAGE')],
        # Apple's SDK is not here; zig has what it needs of it.
        'set(CMAKE_OSX_SYSROOT "")\nset(CMAKE_OSX_DEPLOYMENT_TARGET "")\nset(CMAKE_OSX_ARCHITECTURES "")\n'])


def write_module(prefix, package, version):
    """What pkg-config says of a library; what the projects' own files say differs from system to system."""
    name, link, flags = MODULES[package]
    (prefix / 'pkgconfig').mkdir(parents=True, exist_ok=True)
    (prefix / 'pkgconfig' / f'{name}.pc').write_text(
        f'Name: {name}\nDescription: {package} of Debian\nVersion: {version}\n'
        f'Libs: -L{prefix}/lib {link}\nCflags: -I{prefix}/include {flags}\n')


def dependencies(programs, tools, target, work):
    """The folder in which the C libraries are installed for the target."""
    home = work / target.name
    prefix = home / 'prefix'
    stamp, wanted = prefix / 'complete', ' '.join([*fetch.LIBRARIES, *FLAGS])
    if stamp.exists() and stamp.read_text() == wanted:
        return prefix
    shutil.rmtree(prefix, ignore_errors=True)
    unpacked = home / 'sources'
    shutil.rmtree(unpacked, ignore_errors=True)
    for name, source in fetch.sources(fetch.LIBRARIES).items():
        shutil.copytree(source, unpacked / name / source.name, symlinks=True)  # cmake renames a file of zlib's
    (home / 'toolchain.cmake').write_text(toolchain(tools, target))
    path = {**os.environ, 'PATH': f'{programs}{os.pathsep}{os.environ["PATH"]}', 'CFLAGS': ' '.join([*FLAGS, f'-ffile-prefix-map={home}=.'])}
    for package, (folder, options, library) in LIBRARIES.items():
        source = next((unpacked / package).iterdir())
        adapt(package, source)
        say(f'{target.triple}: {source.name}')
        made = home / 'libraries' / package
        shutil.rmtree(made, ignore_errors=True)
        call(programs / 'cmake', '-S', source / folder, '-B', made, '-G', 'Ninja', '-DCMAKE_BUILD_TYPE=Release',
             '-DBUILD_SHARED_LIBS=OFF', f'-DCMAKE_TOOLCHAIN_FILE={home / "toolchain.cmake"}',
             f'-DCMAKE_INSTALL_PREFIX={prefix}', '-DCMAKE_POLICY_VERSION_MINIMUM=3.5', *options, env=path)
        call(programs / 'ninja', '-C', made, library, env=path)
        install(package, source, made, prefix)
        write_module(prefix, package, source.name.rsplit('-', 1)[1].split('+')[0].replace('.dfsg', ''))
    for module, names in {**HEADERS, **(LINUX_HEADERS if target.is_linux else {})}.items():
        for name in names:
            shutil.copy(f'/usr/include/{name}', prefix / 'include')
        (prefix / 'pkgconfig' / f'{module}.pc').write_text(
            f'Name: {module}\nDescription: its headers\nVersion: {host_version(module)}\nCflags: -I{prefix}/include\n')
    stamp.write_text(wanted)
    return prefix


def adapt(package, source):
    """Debian's zlib lacks a file that cmake wants to see for a library which is not built here."""
    if package == 'zlib':
        (source / 'win32').mkdir(exist_ok=True)
        (source / 'win32' / 'zlib1.rc').touch()


def host_version(module):
    return call('pkg-config', '--modversion', module).strip()


# Where the public headers of each library lie: in its sources, or in the folder it was made in.
PUBLIC = {
    'zlib': ['{source}/zlib.h', '{made}/zconf.h'], 'libzstd': ['{source}/lib/zstd.h', '{source}/lib/zstd_errors.h'],
    'xz-utils': ['{source}/src/liblzma/api/lzma.h', '{source}/src/liblzma/api/lzma'],
    'libyaml': ['{source}/include/yaml.h'],
    'jansson': ['{source}/src/jansson.h', '{made}/include/jansson.h', '{made}/include/jansson_config.h'],
    'pcre2': ['{made}/pcre2.h'], 'utf8proc': ['{source}/utf8proc.h'],
}


def install(package, source, made, prefix):
    """Copies one static library, by the name that -l looks for, and its headers."""
    (prefix / 'lib').mkdir(parents=True, exist_ok=True)
    (prefix / 'include').mkdir(exist_ok=True)
    library = next(path for path in sorted(made.rglob('*.a')) if 'posix' not in path.name)
    shutil.copy(library, prefix / 'lib' / f'lib{MODULES[package][1][2:]}.a')
    for pattern in PUBLIC[package]:
        header = Path(pattern.format(source=source, made=made))
        if header.is_dir():
            shutil.copytree(header, prefix / 'include' / header.name, dirs_exist_ok=True)
        elif header.exists():
            shutil.copy(header, prefix / 'include')


# ---- the build ----

def cross_file(tools, target, prefix):
    """meson's description of the target. Names of files in what is built do not depend on the folder it is built in."""
    return f"""[binaries]
c = '{tools / 'cc'}'
ar = '{tools / 'ar'}'
strip = 'true'
pkg-config = 'pkg-config'
[properties]
pkg_config_libdir = '{prefix / 'pkgconfig'}'
needs_exe_wrapper = true
[host_machine]
system = '{target.kernel}'
cpu_family = '{target.processor}'
cpu = '{target.processor}'
endian = 'little'
[built-in options]
c_args = ['-g0', '-ffile-prefix-map={ROOT}=.']
c_link_args = {['-s'] if target.is_linux else []}
"""


PROGRAMS = {'windows': 'tessera.exe', 'darwin': 'tessera', 'linux': 'tessera'}
SHARED = {'windows': f'src/libtessera-{targets.major_version()}.dll', 'darwin': f'src/libtessera.{targets.major_version()}.dylib',
          'linux': f'src/libtessera.so.{targets.version()}'}


def what_is_made(target):
    """The files of the build folder that are wanted. musl's program is static, and its library for programs alone that are, too."""
    return [PROGRAMS[target.kernel], 'src/libtessera.a', *([] if target.is_musl else [SHARED[target.kernel]])]


def build(programs, tools, target, work, prefix, options=(), more=()):
    """The build folder of the target, with what is wanted of it and `more`; `options` are meson's."""
    folder = work / target.name / 'build'
    path = {**os.environ, 'PATH': f'{programs}{os.pathsep}{os.environ["PATH"]}'}
    cross = work / target.name / 'cross.ini'
    cross.write_text(cross_file(tools, target, prefix))
    if not (folder / 'build.ninja').exists():
        say(f'{target.triple}: setting up')
        of_linux = 'enabled' if target.is_linux else 'disabled'
        call(programs / 'meson', 'setup', folder, ROOT, '--cross-file', cross, '-Dwerror=true', '-Dtests=disabled',
             f'-Dserve={of_linux}', f'-Dterminal={of_linux}', '-Dstrip=true', *options, env=path, cwd=work)  # zig leaves a file where it is tried
    elif options:
        call(programs / 'meson', 'configure', folder, *options, env=path)
    say(f'{target.triple}: compiling')
    call(programs / 'ninja', '-C', folder, *what_is_made(target), *more, env=path)
    return folder


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('system', choices=targets.SYSTEMS)
    parser.add_argument('--work', required=True, type=Path)
    parser.add_argument('--wheel', action='store_true', help='the Python wheel as well, in FOLDER/dist')
    options = parser.parse_args()
    work = options.work.resolve()
    work.mkdir(parents=True, exist_ok=True)
    programs = fetch.tools()
    for target in targets.of(options.system):
        tools = compiler(target, work)
        prefix = dependencies(programs, tools, target, work)
        folder = build(programs, tools, target, work, prefix)
        print(folder / PROGRAMS[target.kernel])
        if options.wheel:
            print(wheel.make(tools, target, prefix, folder, work))
    return 0


if __name__ == '__main__':
    sys.exit(main())
