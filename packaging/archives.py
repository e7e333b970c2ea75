"""archives.py: archives of tar: of everything that a build installs, of the static program, and of the sources."""
import product as products
import wheel
from common import ROOT, VERSION, Entry, from_file, gz, tar, tracked, write

README = """\
tessera {version}: {what}

{use}

LICENSE is tessera's licence; licences/ has those of the C libraries inside.
"""
INSTALLED = """\
bin/tessera needs glibc 2.28 or newer and nothing else. To install it, unpack this into a folder such as ~/.local:

    tar -xf {name}.tar.gz --strip-components=1 -C ~/.local"""
STATIC = """\
./tessera runs on any Linux with this processor. It is linked statically, so it can load no other library: `tessera sql`,
`serve`, the view on a terminal, ranks as processes of MPI and the kernels of oneDNN are not there. `tessera --version --json` shows
"can_load_libraries": false. The other packages have all of it."""


def _pack(name, entries, out):
    return write(out / f'{name}.tar.gz', gz(tar([Entry(f'{name}/{one.path}', one.data, one.mode, one.link) for one in entries])))


def _readme(name, what, use):
    return Entry('README', README.format(version=VERSION, what=what, use=use.format(name=name)).encode())


def installed(product, pages, out):
    """What `./run install` would install, for glibc."""
    name = f'tessera-{VERSION}-linux-{product.target.processor}'
    files = [*products.command_files(product, pages), *products.library_files(product),
             *products.development_files(product, '${pcfiledir}/../..')]
    notes = [Entry(f'share/doc/tessera/{one.path}', one.data)
             for one in [*products.licence_files(), _readme(name, 'command, library and headers for Linux', INSTALLED)]]
    return _pack(name, [*files, *notes], out)


def static(product, out):
    """The program alone, for musl."""
    name = f'tessera-{VERSION}-linux-{product.target.processor}-static'
    return _pack(name, [from_file('tessera', product.program(), 0o755), *products.licence_files(),
                        _readme(name, 'one program for any Linux', STATIC)], out)


def sources(out):
    """The sources as pip takes them; recipes of other packagers begin with it as well."""
    text, _ = wheel.metadata(wheel.project_of(ROOT)[0], VERSION)
    readme = (ROOT / 'README.md').read_text(encoding='utf-8')
    files = [from_file(name, ROOT / name, 0o755 if (ROOT / name).stat().st_mode & 0o100 else 0o644) for name in tracked()]
    return _pack(f'tessera-{VERSION}', [*files, Entry('PKG-INFO', f'{text}\n\n{readme}'.encode())], out)
