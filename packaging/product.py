"""product.py: the builds that are packed, and which of their files lie where on a system."""
import os
import subprocess

import build as cross
import fetch
import targets
from common import ROOT, VERSION, Entry, call, commit, from_file, say
from wheel import notices

SONAME = f'libtessera.so.{targets.major_version()}'


class Product:
    """A target, compiled."""

    def __init__(self, target, work):
        self.target, self.work = target, work / target.system
        self.work.mkdir(parents=True, exist_ok=True)
        self.tools = cross.compiler(target, self.work)
        self.prefix = cross.dependencies(fetch.tools(), self.tools, target, self.work)
        generated = ['cmd/gendocs'] if self.is_native else []
        self.folder = cross.build(fetch.tools(), self.tools, target, self.work, self.prefix,
                                  [f'-Dcommit={commit()}'], generated)

    @property
    def is_native(self):
        """Whether this machine runs it."""
        return self.target.system == 'linux' and self.target.processor == os.uname().machine

    def program(self):
        return self.folder / 'tessera'

    def library(self):
        return self.folder / f'src/libtessera.so.{VERSION}'


class Pages:
    """Manual pages and completions, which the build for this machine prints for all."""

    def __init__(self, product):
        gendocs, folder = product.folder / 'cmd/gendocs', product.work / 'pages'
        folder.mkdir(exist_ok=True)
        for old in folder.iterdir():
            old.unlink()
        call(gendocs, 'man', folder)
        self.manuals = {path.name: path.read_bytes() for path in sorted(folder.iterdir())}
        self.completions = {place: subprocess.run([gendocs, 'completion', shell], capture_output=True, check=True).stdout
                            for shell, place in COMPLETIONS.items()}


COMPLETIONS = {'bash': 'bash-completion/completions/tessera', 'zsh': 'zsh/site-functions/_tessera',
               'fish': 'fish/vendor_completions.d/tessera.fish'}


def drop_ins():
    """The names of Mosaic's commands, as cmd/meson.build lists them."""
    text = (ROOT / 'cmd/meson.build').read_text(encoding='utf-8')
    listed = text[text.index('drop_ins = ['):]
    return [line.strip(" ',") for line in listed[:listed.index(']')].splitlines()[1:]]


def command_files(product, pages, manual=lambda name, data: (name, data)):
    """The command, its other names, manual pages and completions."""
    found = [from_file('bin/tessera', product.program(), 0o755)]
    found += [Entry(f'bin/{name}', link='tessera') for name in drop_ins()]
    for name, data in pages.manuals.items():
        name, data = manual(name, data)
        found.append(Entry(f'share/man/man1/{name}', data))
    return found + [Entry(f'share/{place}', data) for place, data in pages.completions.items()]


def library_files(product, libdir='lib'):
    return [from_file(f'{libdir}/libtessera.so.{VERSION}', product.library()),
            Entry(f'{libdir}/{SONAME}', link=f'libtessera.so.{VERSION}')]


def development_files(product, prefix, libdir='lib'):
    """Headers, the name that is linked with, and what pkg-config says: the C libraries are inside, so it names none."""
    headers = ROOT / 'include'
    found = [from_file(f'include/{path.relative_to(headers).as_posix()}', path) for path in sorted(headers.rglob('*.h'))]
    text = (f'prefix={prefix}\nincludedir=${{prefix}}/include\nlibdir=${{prefix}}/{libdir}\n\nName: tessera\n'
            f'Description: reads PyTorch GPU memory snapshots\nVersion: {VERSION}\n'
            'Libs: -L${libdir} -ltessera\nCflags: -I${includedir}\n')
    return [*found, Entry(f'{libdir}/libtessera.so', link=SONAME),
            Entry(f'{libdir}/pkgconfig/tessera.pc', text.encode())]


def licence_files():
    """tessera's licence, and those of the C libraries inside."""
    return [from_file('LICENSE', ROOT / 'LICENSE'),
            *[Entry(f'licences/{name}.txt', text.encode()) for name, text in notices().items()]]


