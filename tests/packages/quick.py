#!/usr/bin/env python3
"""quick.py --tessera FILE --work FOLDER: what is known of packages before one is built: tables, metadata and recipes agree with the
project, and archives are the same bytes twice. No network. Prints TAP."""
import argparse
import ast
import io
import json
import os
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from email.parser import Parser
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.dont_write_bytecode = True
os.environ.setdefault('SOURCE_DATE_EPOCH', '1700000000')  # also where this is no checkout
sys.path[:0] = [str(HERE.parent), str(ROOT / 'packaging'), str(ROOT / 'cross')]
import archives  # noqa: E402  (these are in folders of their own)
import common  # noqa: E402
import debian  # noqa: E402
import fetch  # noqa: E402
import package  # noqa: E402
import product  # noqa: E402
import recipes  # noqa: E402
import rpms  # noqa: E402
import sbom  # noqa: E402
import tap  # noqa: E402
import targets  # noqa: E402
import wheel  # noqa: E402
from tap import Skip, expect  # noqa: E402

MESON = (ROOT / 'meson.build').read_text(encoding='utf-8')


def check_targets_are_named_once(_):
    names = [(target.system, target.name) for target in targets.TARGETS]
    expect('names', len(set(names)), len(names))
    expect('tags', len({target.tag for target in targets.TARGETS}), len(names))
    for target in targets.TARGETS:
        assert target.triple.startswith(target.processor), target
        assert target.tag.endswith(target.name) or target.system == 'windows', target
        expect(f'{target.triple}: its package of Debian', bool(target.debian), target.system == 'linux')
        assert target.processor in wheel.OF_PROCESSOR or not target.is_linux, target


def check_version_is_one(options):
    """Of the library, its name, the two Python packages, and the header."""
    mosaic = tomllib.loads((ROOT / 'python/mosaic/pyproject.toml').read_text(encoding='utf-8'))['project']
    expect('mosaic', (mosaic['version'], mosaic['dependencies']), (common.VERSION, [f'tessera == {common.VERSION}']))
    header = (ROOT / 'include/tessera/version.h').read_text(encoding='utf-8')
    expect('header', '.'.join(re.findall(r'^#define TESSERA_VERSION_\w+ (\d+)$', header, re.MULTILINE)), common.VERSION)
    assert (options.tessera.parent / 'src' / product.SONAME).exists(), f'the library that was built is not called {product.SONAME}'
    for page in (ROOT / 'README.md', *sorted((ROOT / 'docs').rglob('*.md'))):
        named = set(re.findall(r'\b(?:lib)?(?:tessera|mosaic)[-_](\d+\.\d+\.\d+)(?=[-.])', page.read_text(encoding='utf-8')))
        assert named <= {common.VERSION}, f'{page.relative_to(ROOT)} names packages of another version: {named}'
    assert debian.LIBRARY in (ROOT / 'docs/install.md').read_text(encoding='utf-8'), f'docs/install.md does not name {debian.LIBRARY}'


def check_every_kind_is_explained(_):
    """In the program's help, in that of `run`, and in docs/install.md."""
    for text in (package.__doc__, (ROOT / 'run').read_text(encoding='utf-8')):
        missing = [kind for kind in package.KINDS if not re.search(rf'\b{kind}\b', text)]
        expect('kinds that are not explained', missing, [])
    page = (ROOT / 'docs/install.md').read_text(encoding='utf-8')
    for name in (*debian.PACKAGES, 'tessera-libs', 'tessera-devel', 'manylinux', 'musllinux', '-static.tar.gz', '-offline-', 'tessera.rb',
                 'recipe.yaml', 'cdx.json', 'SHA256SUMS'):
        assert name in page, f'docs/install.md does not name {name}'


def check_drop_ins(_):
    project = tomllib.loads((ROOT / 'python/mosaic/pyproject.toml').read_text(encoding='utf-8'))['project']
    expect('names', product.drop_ins(), sorted(project['scripts']))


def check_metadata_of_wheels(_):
    for folder, name, needs in ((ROOT, 'tessera', None), (ROOT / 'python/mosaic', 'mosaic', [f'tessera=={common.VERSION}'])):
        about, files = wheel.described(name, common.VERSION, 'py3-none-any', True, folder, {'zlib': 'text'})
        text = Parser().parsestr(files[f'{about}/METADATA'].decode())
        expect('its name and version', (text['Name'], text['Version'], text['Requires-Python']), (name, common.VERSION, '>=3.9'))
        expect('licences', (text['License-Expression'], text.get_all('License-File')), (common.LICENCE, ['LICENSE', 'bundled/zlib.txt']))
        assert all(f'{about}/licenses/{file}' in files for file in text.get_all('License-File'))
        expect('what it needs', [line for line in text.get_all('Requires-Dist') or () if 'extra' not in line], needs or [])
        assert text.get_payload().startswith('#'), 'no README'


def check_wheels_are_the_same_twice(options):
    made = [wheel.make_mosaic(options.work / name) for name in ('one', 'two')]
    expect('bytes', made[0].read_bytes() == made[1].read_bytes(), True)
    with zipfile.ZipFile(made[0]) as archive:
        expect('what is broken', archive.testzip(), None)
        rows = archive.read(f'mosaic-{common.VERSION}.dist-info/RECORD').decode().splitlines()
        expect('names in RECORD', sorted(row.split(',')[0] for row in rows), sorted(archive.namelist()))


def check_archives_are_the_same_twice(_):
    entries = [common.Entry('b/x', b'1', 0o755), common.Entry('a', link='b/x')]
    made = [common.gz(common.tar(order)) for order in (entries, entries[::-1])]
    expect('bytes', made[0] == made[1], True)
    with tarfile.open(fileobj=io.BytesIO(made[0])) as archive:
        members = [(one.name, one.mode, one.mtime, one.uname) for one in archive]
    expect('members', members, [('a', 0o777, common.epoch(), 'root'), ('b/x', 0o755, common.epoch(), 'root')])


def check_sources(_):
    """They have what is compiled, and nothing that is not tracked."""
    names = set(common.tracked())
    assert {'meson.build', 'LICENSE', 'README.md', 'pyproject.toml', 'python/backend.py', 'viewer/page.html'} <= names
    expect('outputs', [name for name in names if name.startswith(('build', 'dist/'))], [])
    assert archives.README.count('{') == 3


def check_debian_fields(_):
    for name in debian.PACKAGES:
        fields = Parser().parsestr(debian.control(name, [common.Entry('x', b'1' * 2000)], 'amd64'))
        expect(name, (fields['Package'], fields['Version'], fields['Installed-Size']), (name, f'{common.VERSION}-1', '2'))
        assert fields['Depends'] and fields['Maintainer'] and fields['Description'], name
        lines = fields['Description'].split('\n')
        assert len(lines[0]) <= 80 and all(line.startswith(' ') for line in lines[1:]), name


def check_rpm_specification(_):
    parts = {part: [common.Entry(f'share/{part}', b'')] for part in rpms.PARTS}
    text = rpms.specification(parts)
    for part in rpms.PARTS:
        expect(f'%files {part}', len(re.findall(rf'^%files {part}$', text, re.MULTILINE)), 1)
    expect('its licence', re.search(r'^License: (.*)$', text, re.MULTILINE).group(1), common.LICENCE)


def check_bill_of_materials(_):
    """Its form, and that each library that is linked is in it, with a licence."""
    expect('libraries', sorted(sbom.LICENCES), sorted(fetch.LIBRARIES))
    libraries = {name: ROOT / 'nowhere' for name in fetch.LIBRARIES}
    fetch_sources, of_debian, of_musl = sbom.fetch.sources, sbom.debian_version, sbom.musl_version
    sbom.fetch.sources, sbom.debian_version, sbom.musl_version = (lambda names: libraries), (lambda folder: '1:2.0+dfsg-1'), (lambda: '1.2.5')
    try:
        bill = json.loads(json.dumps(sbom.bill()))
    finally:
        sbom.fetch.sources, sbom.debian_version, sbom.musl_version = fetch_sources, of_debian, of_musl
    expect('its format', (bill['bomFormat'], bill['specVersion'], bill['version']), ('CycloneDX', sbom.FORMAT, 1))
    assert re.fullmatch(r'urn:uuid:[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}', bill['serialNumber'])
    assert re.fullmatch(r'\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ', bill['metadata']['timestamp'])
    references = {bill['metadata']['component']['bom-ref'], *(part['bom-ref'] for part in bill['components'])}
    expect('references', {one['ref'] for one in bill['dependencies']}, references)
    for part in bill['components']:
        assert part['name'] and part['version'] and len(part['licenses']) == 1 and re.match(r'pkg:\w+/', part['purl']), part
        assert ':' not in part['purl'].removeprefix('pkg:') and '+' not in part['purl'], part['purl']


# ---- recipes ----

def linked():
    """The libraries that src/meson.build and cmd/meson.build ask for, by pkg-config's names."""
    text = ''.join((ROOT / name).read_text(encoding='utf-8') for name in ('src/meson.build', 'cmd/meson.build'))
    return set(re.findall(r"dependency\('([\w.-]+)'", text)) - {'threads', 'dl'}


HOMEBREW = {'zlib': 'zlib', 'libzstd': 'zstd', 'liblzma': 'xz', 'jansson': 'jansson', 'yaml-0.1': 'libyaml', 'libpcre2-8': 'pcre2',
            'libutf8proc': 'utf8proc', 'libmicrohttpd': 'libmicrohttpd', 'sqlite3': 'sqlite', 'libedit': 'libedit',
            'ncursesw': 'ncurses'}
CONDA = {'zlib': 'zlib', 'libzstd': 'zstd', 'liblzma': 'liblzma-devel', 'jansson': 'jansson', 'yaml-0.1': 'yaml', 'libpcre2-8': 'pcre2',
         'libutf8proc': 'libutf8proc', 'sqlite3': 'libsqlite', 'libedit': 'libedit', 'ncursesw': 'ncurses'}  # conda-forge has no libmicrohttpd for it: no `serve`


def check_formula(_):
    text = recipes.filled('homebrew/tessera.rb', 'https://example.org/tessera', '0' * 64)
    expect('places that are not filled', re.findall(r'@[A-Z0-9]+@', text), [])
    opened = len(re.findall(r'^\s*(class|def)\b|\bdo$', text, re.MULTILINE))
    expect('blocks and ends', opened, len(re.findall(r'^\s*end$', text, re.MULTILINE)))
    wanted = set(re.findall(r'depends_on "([^"]+)"', text))
    expect('libraries that it lacks', sorted(HOMEBREW[name] for name in linked() if HOMEBREW[name] not in wanted), [])
    try:
        done = subprocess.run(['ruby', '-c', '-'], input=text, capture_output=True, text=True, check=False)
        expect('ruby', (done.returncode, done.stderr), (0, ''))
    except FileNotFoundError:
        pass


def parsed(text):
    """YAML as the recipe has it: mappings and lists by indentation, and scalars."""
    root = {}
    places = [(0, root)]  # the containers that are open, by the indentation of their members
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith('#')]
    for number, line in enumerate(lines):
        indent, word = len(line) - len(line.lstrip()), line.strip()
        while len(places) > 1 and places[-1][0] > indent:
            places.pop()
        is_item = word.startswith('- ')
        if places[-1][0] < indent:
            raise AssertionError(f'line {line!r} is inside a scalar')
        holder = places[-1][1]
        if is_item:
            word = word[2:]
        if not is_item or re.match(r'[\w-]+:( |$)', word):
            key, _, value = word.partition(':')
            if is_item:
                holder.append({})
                holder, indent = holder[-1], indent + 2
                places.append((indent, holder))
            value = value.strip()
            follows = next(iter(lines[number + 1:number + 2]), '')
            deeper = len(follows) - len(follows.lstrip())
            if not value:
                holder[key] = [] if follows.strip().startswith('- ') else {}
                places.append((deeper, holder[key]))
            else:
                holder[key] = ast.literal_eval(value) if value[0] in '"\'' else value
        else:
            holder.append(word)
    return root


def check_recipe(_):
    text = recipes.filled('conda/recipe.yaml', 'https://example.org/tessera', '0' * 64)
    expect('places that are not filled', re.findall(r'@[A-Z0-9]+@', text), [])
    found = parsed(text)
    expect('its parts', list(found), ['schema_version', 'context', 'package', 'source', 'build', 'requirements', 'tests', 'about'])
    expect('its version', found['context']['version'], common.VERSION)
    expect('its licence', found['about']['license'], common.LICENCE)
    host = {name.split()[0] for name in found['requirements']['host']}
    expect('libraries that it lacks', sorted(CONDA[name] for name in linked() - {'libmicrohttpd'} if CONDA[name] not in host), [])
    expect('steps', len(found['build']['script']), 4)


# ---- the program ----

def check_build_facts(options):
    """`--version` is a line; with --json, the files of libraries that it names are those that the sources load."""
    expect('--version', subprocess.run([options.tessera, '--version'], capture_output=True, text=True, check=True).stdout,
           f'tessera {common.VERSION}\n')
    about = json.loads(subprocess.run([options.tessera, '--version', '--json'], capture_output=True, text=True, check=True).stdout)
    expect('its version', about['version'], common.VERSION)
    if about['system'] != 'linux':
        raise Skip('the names of libraries are those of Linux')
    listed = set(re.findall(r'"(lib\w+\.so[.\d]*)"', (ROOT / 'cmd/core/version.c').read_text(encoding='utf-8')))
    loaded = set(re.findall(r'"(lib\w+\.so[.\d]*)"', ''.join((ROOT / name).read_text(encoding='utf-8') for name in (
        'cmd/serve/http.c', 'src/engine/dist/mpi.c', 'src/engine/kernels/library.c'))))
    expect('files', listed, loaded)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--tessera', required=True, type=lambda text: Path(text).resolve())
    parser.add_argument('--work', required=True, type=Path)
    options = parser.parse_args()
    return tap.run(tap.named([value for key, value in globals().items() if key.startswith('check_')], options))


if __name__ == '__main__':
    sys.exit(main())
