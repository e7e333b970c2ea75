"""debian.py: Debian packages: the command, the shared library, and what programs are compiled with.

dpkg-deb packs them from files that are compiled for glibc 2.28 with the C libraries inside, so that one package serves all
releases of Debian and Ubuntu since: docs/decisions/083-packages.md."""
import hashlib
import shutil
import textwrap
from email.utils import formatdate

import product as products
from common import AUTHORS, MAINTAINER, ROOT, VERSION, Entry, call, epoch, from_file, gz, write_tree
from wheel import notices

REVISION = f'{VERSION}-1'
GLIBC = 'libc6 (>= 2.28)'
LONG = """\
 tessera reads the memory snapshots that PyTorch writes, and says which lines of
 a program held the memory of a GPU at the peak, why it ran out, and what would
 help. It predicts the memory of training runs before they start, and plans
 those that fit."""
LIBRARY = products.SONAME.replace('.so.', '')
PACKAGES = {
    'tessera': {
        'Section': 'science', 'Depends': GLIBC, 'Recommends': 'libsqlite3-0, libncursesw6',
        'Suggests': 'libmicrohttpd12t64 | libmicrohttpd12, libedit2, python3',
        'Description': f'where the memory of a GPU job went\n{LONG}'},
    LIBRARY: {
        'Section': 'libs', 'Multi-Arch': 'same', 'Depends': GLIBC,
        'Description': f'where the memory of a GPU job went: shared library\n{LONG}\n .\n This package has the shared library.'},
    'libtessera-dev': {
        'Section': 'libdevel', 'Multi-Arch': 'same', 'Depends': f'{LIBRARY} (= {REVISION})',
        'Description': f'where the memory of a GPU job went: headers\n{LONG}\n .\n This package has what C programs are compiled with.'},
}
# Where Debian has it: other systems have zsh/site-functions.
ZSH = 'share/zsh/vendor-completions/_tessera'


def copyright_text():
    """In Debian's form, followed by what Debian's packages of the C libraries inside say of them."""
    parts = [textwrap.dedent(f"""\
        Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
        Upstream-Name: tessera

        Files: *
        Copyright: {AUTHORS}
        License: Apache-2.0
         On Debian systems, the text of the Apache License, version 2.0, is in
         /usr/share/common-licenses/Apache-2.0.
        """)]
    for name, text in notices().items():
        parts.append(f'\n{"-" * 70}\n{name}, which is contained in compiled form:\n\n{text.strip()}\n')
    return ''.join(parts).encode()


def changelog():
    date = formatdate(epoch(), localtime=False).replace('-0000', '+0000')
    return gz(f'tessera ({REVISION}) stable; urgency=medium\n\n  * Version {VERSION}: see changelog.gz.\n\n'
              f' -- {MAINTAINER}  {date}\n'.encode())


def files(name, product, pages):
    """What a package installs, below /usr."""
    libdir = f'lib/{product.target.processor}-linux-gnu'
    if name == 'tessera':
        found = products.command_files(product, pages, lambda page, data: (f'{page}.gz', gz(data)))
        found = [Entry(ZSH, one.data) if one.path.startswith('share/zsh') else one for one in found]
        found.append(Entry('share/doc/tessera/changelog.gz', gz((ROOT / 'CHANGELOG.md').read_bytes())))
    elif name == LIBRARY:
        found = products.library_files(product, libdir)
    else:
        found = products.development_files(product, '/usr', libdir)
        found += [from_file(f'share/doc/{name}/examples/{path.name}', path) for path in sorted((ROOT / 'examples').glob('*.c'))]
    return [*found, Entry(f'share/doc/{name}/copyright', copyright_text()),
            Entry(f'share/doc/{name}/changelog.Debian.gz', changelog())]


def control(name, installed, processor):
    fields = {'Package': name, 'Source': 'tessera', 'Version': REVISION, 'Architecture': processor, 'Maintainer': MAINTAINER,
              'Installed-Size': str(-(-sum(len(one.data) for one in installed) // 1024)), 'Priority': 'optional', **PACKAGES[name]}
    if name == 'tessera':
        del fields['Source']
    return ''.join(f'{key}: {value}\n' for key, value in fields.items() if value)


def scripts(name, installed):
    """The files beside control."""
    found = [Entry('md5sums', ''.join(f'{hashlib.md5(one.data, usedforsecurity=False).hexdigest()}  usr/{one.path}\n'
                                      for one in sorted(installed, key=lambda one: one.path) if not one.link).encode())]
    if name == LIBRARY:
        found += [Entry('shlibs', f'libtessera 0 {LIBRARY} (>= {VERSION})\n'.encode()),
                  Entry('triggers', b'activate-noawait ldconfig\n')]
    return found


def make(product, pages, work, out):
    """The packages of a target."""
    made = []
    for name in PACKAGES:
        installed = files(name, product, pages)
        folder = work / 'deb' / f'{name}-{product.target.debian}'
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        write_tree(folder, [*[Entry(f'usr/{one.path}', one.data, one.mode, one.link) for one in installed],
                            *[Entry(f'DEBIAN/{one.path}', one.data) for one in scripts(name, installed)],
                            Entry('DEBIAN/control', control(name, installed, product.target.debian).encode())])
        for path in folder.rglob('*'):
            if path.is_dir():
                path.chmod(0o755)
        folder.chmod(0o755)
        package = out / f'{name}_{REVISION}_{product.target.debian}.deb'
        # xz, which all releases can read; Ubuntu's own default is zstd.
        call('dpkg-deb', '--root-owner-group', '-Zxz', '--build', folder, package,
             env={'PATH': '/usr/bin:/bin', 'SOURCE_DATE_EPOCH': str(epoch())})
        made.append(package)
    return made
