#!/usr/bin/env python3
"""package.py [KIND...] [--work FOLDER] [--out FOLDER]: what people install, in dist/.

    wheels   tessera for Python on Linux (glibc 2.28 or musl; x86_64, aarch64), and mosaic
    sdist    the sources
    deb      tessera, the shared library and libtessera-dev for Debian and Ubuntu
    rpm      tessera, tessera-libs and tessera-devel
    tarball  all of it for other systems with glibc
    static   one program for any Linux
    recipes  for Homebrew and conda
    sbom     what is inside, in CycloneDX's JSON
    bundle   wheels, static program, documentation and examples for machines without a network

Without a kind, all of them, and SHA256SUMS. Two runs of the same commit write the same bytes, wherever they run.
docs/decisions/083-packages.md has the reasons."""
import argparse
import sys
from functools import cached_property
from pathlib import Path

from common import ROOT, say, sha256, targets  # noqa: I001  (finds the folders of the others)
import archives
import bundle
import debian
import product
import recipes
import rpms
import sbom
import wheel


class Factory:
    """Makes each kind once, and what several kinds need once."""

    def __init__(self, work, out, triple=''):
        self.work, self.out, self.triple = work, out, triple
        self.made, self.built = {}, {}

    def of(self, system):
        """The products of a system."""
        if system not in self.built:
            say(f'building for {system}')
            self.built[system] = [product.Product(target, self.work) for target in targets.of(system) if target.triple.startswith(self.triple)]
        return self.built[system]

    @cached_property
    def pages(self):
        """Manual pages are for all; this machine's build prints them."""
        native = [one for one in self.of('linux') if one.is_native]
        if not native:
            raise SystemExit('package: manual pages come from a build for this machine, and there is none')
        return product.Pages(native[0])

    def wheels(self):
        for system in ('linux', 'musl'):
            for one in self.of(system):
                yield wheel.make(one.tools, one.target, one.prefix, one.folder, one.work, self.out)
        yield wheel.make_mosaic(self.out)

    def sdist(self):
        return [archives.sources(self.out)]

    def deb(self):
        for one in self.of('linux'):
            yield from debian.make(one, self.pages, self.work, self.out)

    def rpm(self):
        for one in self.of('linux'):
            yield from rpms.make(one, self.pages, self.work, self.out)

    def tarball(self):
        return [archives.installed(one, self.pages, self.out) for one in self.of('linux')]

    def static(self):
        return [archives.static(one, self.out) for one in self.of('musl')]

    def recipes(self):
        return recipes.make(self.make('sdist')[0], self.out)

    def sbom(self):
        return [sbom.make(self.out)]

    def bundle(self):
        for one in self.of('musl'):
            processor = one.target.processor
            wheels = [path for path in self.make('wheels') if path.name.endswith((f'_{processor}.whl', '-any.whl'))]
            static = next(path for path in self.make('static') if processor in path.name)
            yield bundle.make(processor, wheels, static, self.make('sbom')[0], self.out)

    def make(self, kind):
        if kind not in self.made:
            self.made[kind] = list(getattr(self, kind)())
            for path in self.made[kind]:
                say(f'{kind}: {path.name}, {path.stat().st_size:,} bytes')
        return self.made[kind]


KINDS = ['wheels', 'sdist', 'deb', 'rpm', 'tarball', 'static', 'recipes', 'sbom', 'bundle']
SUMS = 'SHA256SUMS'


def write_sums(out):
    names = sorted(path.name for path in out.iterdir() if path.is_file() and path.name != SUMS)
    (out / SUMS).write_text(''.join(f'{sha256(out / name)}  {name}\n' for name in names))


def make(kinds, work, out, triple):
    for folder in (work, out):
        folder.mkdir(parents=True, exist_ok=True)
    factory = Factory(work, out, triple)
    for kind in kinds:
        factory.make(kind)
    write_sums(out)
    return factory.made


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('kinds', nargs='*', metavar='KIND', help=', '.join(KINDS))
    parser.add_argument('--work', type=Path, default=ROOT / 'build-package')
    parser.add_argument('--out', type=Path, default=ROOT / 'dist')
    parser.add_argument('--target', default='', metavar='TRIPLE', help='only targets that begin with this, such as x86_64-linux-gnu')
    options = parser.parse_args()
    unknown = set(options.kinds) - set(KINDS)
    if unknown:
        parser.error(f'no such kind: {", ".join(sorted(unknown))}; there are {", ".join(KINDS)}')
    for paths in make(options.kinds or KINDS, options.work.resolve(), options.out.resolve(), options.target).values():
        for path in paths:
            print(path)
    return 0


if __name__ == '__main__':
    sys.exit(main())
