#!/usr/bin/env python3
"""twice.py --dist FOLDER --work FOLDER [--target TRIPLE] [KIND...]: packages are built again, and must be the same bytes.

The second build is of a copy of the sources in another folder, with an empty cache of the compiler. Without KINDs all that the first
build wrote are compared; the tools and the sources of the C libraries are taken from the first."""
import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / 'packaging'))
import common  # noqa: E402  (it is in a folder of its own)


def copy(place):
    shutil.rmtree(place.parent, ignore_errors=True)
    for name in common.tracked():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, place / name)
    (place / 'build-tools').symlink_to(ROOT / 'build-tools')


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--dist', required=True, type=Path)
    parser.add_argument('--work', required=True, type=Path)
    parser.add_argument('--target', default='', help='as for packaging/package.py')
    parser.add_argument('kinds', nargs='*')
    options = parser.parse_args()
    place = options.work.resolve() / 'twice/a-folder-elsewhere'
    copy(place)
    again = {**os.environ, 'SOURCE_DATE_EPOCH': str(common.epoch()), 'TESSERA_COMMIT': common.commit(), 'TZ': 'Asia/Tokyo',
             'ZIG_GLOBAL_CACHE_DIR': str(place.parent / 'cache'), 'ZIG_LOCAL_CACHE_DIR': str(place.parent / 'cache'), 'GIT_CEILING_DIRECTORIES': str(place.parent)}
    subprocess.run([sys.executable, place / 'packaging/package.py', '--target', options.target, *options.kinds], check=True, env=again, stdout=subprocess.DEVNULL)
    made = sorted(path.name for path in (place / 'dist').iterdir() if path.name != 'SHA256SUMS')
    differ = [name for name in made if common.sha256(place / 'dist' / name) != common.sha256(options.dist / name)]
    for name in made:
        print(('not ok' if name in differ else 'ok') + f' - {name}')
    print(f'1..{len(made)}')
    return int(bool(differ))


if __name__ == '__main__':
    sys.exit(main())
