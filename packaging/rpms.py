"""rpms.py: rpm packages of the same three parts as Debian's, packed by rpmbuild from what is compiled already."""
import shutil

import product as products
from common import LICENCE, MAINTAINER, SUMMARY, VERSION, Entry, call, epoch, say, write_tree

LONG = ('tessera reads the memory snapshots that PyTorch writes, and says which lines of a program held\nthe memory of a GPU at the '
        'peak, why it ran out, and what would help. It predicts the memory of\ntraining runs before they start, and plans those that fit.')
PARTS = {'': '', 'libs': ': shared library', 'devel': ': headers'}
# Nothing is compiled, stripped or compressed here, and nothing that depends on the machine or the hour is written.
SETTINGS = {
    '_topdir': '{work}/top', '_build_id_links': 'none', 'debug_package': '%{nil}', '__os_install_post': '%{nil}',
    '_buildhost': 'tessera', 'use_source_date_epoch_as_buildtime': '1', 'clamp_mtime_to_source_date_epoch': '1',
    'source_date_epoch_from_changelog': '0', '_binary_payload': 'w6.xzdio',
}


def files(product, pages):
    """{part: its files below /usr}."""
    licences = [Entry(f'share/licenses/{{}}/{one.path}', one.data) for one in products.licence_files()]

    def licensed(name):
        return [Entry(one.path.format(name), one.data) for one in licences]
    return {'': products.command_files(product, pages) + licensed('tessera'),
            'libs': products.library_files(product, 'lib64') + licensed('tessera-libs'),
            'devel': products.development_files(product, '/usr', 'lib64')}


def specification(parts):
    text = (f'Name: tessera\nVersion: {VERSION}\nRelease: 1\nSummary: {SUMMARY}\nLicense: {LICENCE}\nPackager: {MAINTAINER}\n'
            f'Recommends: sqlite-libs\nRecommends: ncurses-libs\n\n%description\n{LONG}\n\n')
    for part, what in PARTS.items():
        if part:
            needs = f'Requires: tessera-libs = {VERSION}-1\n' if part == 'devel' else ''
            text += f'%package {part}\nSummary: {SUMMARY}{what}\n{needs}\n%description {part}\n{LONG}\n\n'
    text += '%install\ncp -a %{prepared}/. %{buildroot}/\n\n'
    for part, entries in parts.items():
        listed = ''.join(f'/usr/{one.path}\n' for one in sorted(entries, key=lambda one: one.path))
        text += f'%files {part}\n%defattr(-,root,root,-)\n{listed}\n'
    return text + '%post libs -p /sbin/ldconfig\n%postun libs -p /sbin/ldconfig\n'


def make(product, pages, work, out):
    if shutil.which('rpmbuild') is None:
        say('no rpmbuild: no rpm packages')
        return []
    folder = work / 'rpm' / product.target.processor
    shutil.rmtree(folder, ignore_errors=True)
    (folder / 'top').mkdir(parents=True)
    parts = files(product, pages)
    (folder / 'prepared').mkdir()
    write_tree(folder / 'prepared', [Entry(f'usr/{one.path}', one.data, one.mode, one.link)
                                     for entries in parts.values() for one in entries])
    for path in (folder / 'prepared').rglob('*'):
        if path.is_dir():
            path.chmod(0o755)
    (folder / 'tessera.spec').write_text(specification(parts))
    settings = {**SETTINGS, '_topdir': folder / 'top', 'prepared': folder / 'prepared'}
    call('rpmbuild', '-bb', '--quiet', '--target', f'{product.target.processor}-linux',
         *[word for name, value in settings.items() for word in ('--define', f'{name} {value}')], folder / 'tessera.spec',
         env={'PATH': '/usr/bin:/bin:/usr/sbin:/sbin', 'HOME': str(folder), 'SOURCE_DATE_EPOCH': str(epoch()), 'LC_ALL': 'C.UTF-8'})
    made = []
    for package in sorted((folder / 'top/RPMS').rglob('*.rpm')):
        made.append(out / package.name)
        shutil.copy(package, made[-1])
    return made
