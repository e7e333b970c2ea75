"""sbom.py: what is inside the packages, with versions and licences, in CycloneDX's JSON."""
import datetime
import json
import re
import uuid

import fetch
from common import AUTHORS, LICENCE, SUMMARY, VERSION, commit, epoch, write

FORMAT = '1.6'
# By Debian's name of the sources: the licence, in SPDX's words. Of xz-utils only liblzma is inside, which is in the public domain.
LICENCES = {
    'zlib': 'Zlib', 'libzstd': 'BSD-3-Clause OR GPL-2.0-only', 'xz-utils': None, 'libyaml': 'MIT', 'jansson': 'MIT',
    'pcre2': 'BSD-3-Clause', 'utf8proc': 'MIT AND Unicode-DFS-2015',
}
# What the compiler adds.
OF_COMPILER = {'compiler-rt': 'Apache-2.0 WITH LLVM-exception', 'musl': 'MIT'}
EVERYWHERE, STATIC_ONLY = 'command, library, wheels', 'static command'


def debian_version(folder):
    """The version of sources, as Debian counts."""
    first = (folder / 'debian/changelog').read_text(encoding='utf-8').splitlines()[0]
    return re.search(r'\((.+?)\)', first).group(1)


def musl_version():
    found = fetch.zig().parent / 'lib/libc/musl/src/internal/version.h'
    return re.search(r'"([\d.]+)"', found.read_text()).group(1)


def licence(expression):
    if expression is None:
        return [{'license': {'name': 'Public domain'}}]
    return [{'expression': expression}] if ' ' in expression else [{'license': {'id': expression}}]


def component(name, version, expression, purl, place):
    return {'type': 'library', 'bom-ref': purl, 'name': name, 'version': version, 'licenses': licence(expression), 'purl': purl,
            'properties': [{'name': 'tessera:inside', 'value': place}]}


def components():
    found = []
    for name, folder in fetch.sources(fetch.LIBRARIES).items():
        version = debian_version(folder)
        found.append(component(name, version, LICENCES[name], f'pkg:deb/debian/{name}@{version.replace("+", "%2B").replace(":", "%3A")}?arch=source', EVERYWHERE))
    zig = next(tool for tool in fetch.TOOLS if tool.startswith('ziglang')).split('==')[1]
    found.append(component('compiler-rt', zig, OF_COMPILER['compiler-rt'], f'pkg:pypi/ziglang@{zig}#compiler-rt', EVERYWHERE))
    version = musl_version()
    found.append(component('musl', version, OF_COMPILER['musl'], f'pkg:generic/musl@{version}', STATIC_ONLY))
    return found


def bill():
    time = datetime.datetime.fromtimestamp(epoch(), datetime.timezone.utc).strftime('%Y-%m-%dT%H:%M:%SZ')
    parts, itself = components(), f'pkg:generic/tessera@{VERSION}'
    return {
        '$schema': f'http://cyclonedx.org/schema/bom-{FORMAT}.schema.json', 'bomFormat': 'CycloneDX', 'specVersion': FORMAT,
        'serialNumber': f'urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, f"tessera {VERSION} {commit()}")}', 'version': 1,
        'metadata': {'timestamp': time, 'component': {
            'type': 'application', 'bom-ref': itself, 'name': 'tessera', 'version': VERSION, 'description': SUMMARY,
            'authors': [{'name': AUTHORS}], 'licenses': licence(LICENCE), 'purl': itself,
            'properties': [{'name': 'tessera:commit', 'value': commit() or 'unknown'}]}},
        'components': parts,
        'dependencies': [{'ref': itself, 'dependsOn': [part['bom-ref'] for part in parts]},
                         *[{'ref': part['bom-ref'], 'dependsOn': []} for part in parts]],
    }


def make(out):
    return write(out / f'tessera-{VERSION}.cdx.json', (json.dumps(bill(), indent=2, ensure_ascii=False) + '\n').encode())
