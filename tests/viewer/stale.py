#!/usr/bin/env python3
"""Is viewer/page.html made of the sources next to it? Prints TAP.

usage: stale.py

The template that the binary embeds is in the tree, so that building needs no Node. It carries a hash
of its sources, which is compared here without Node; where Node and esbuild are there (`./run
viewer`), it is built again and must come out the same."""
import hashlib
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

VIEWER = pathlib.Path(__file__).resolve().parents[2] / 'viewer'


def hash_of_sources():
    """As build.mjs makes it."""
    names = ['build.mjs', 'package-lock.json'] + [f'src/{path.name}'
                                                  for path in (VIEWER / 'src').iterdir()]
    hashed = hashlib.sha256()
    for name in sorted(names):
        data = (VIEWER / name).read_bytes()
        hashed.update(f'{name} {len(data)}\n'.encode() + data)
    return hashed.hexdigest()


def recorded():
    match = re.search(r'<!-- sources: ([0-9a-f]{64}) -->', (VIEWER / 'page.html').read_text())
    return match.group(1) if match else None


def rebuild():
    """The page as built now, or why it cannot be."""
    if not shutil.which('node'):
        return None, 'no node'
    if not (VIEWER / 'node_modules/esbuild').is_dir():
        return None, 'no esbuild in viewer/node_modules; ./run viewer installs it'
    with tempfile.TemporaryDirectory() as folder:
        page = pathlib.Path(folder) / 'page.html'
        done = subprocess.run(['node', VIEWER / 'build.mjs', page], capture_output=True, text=True,
                              check=False)
        return (page.read_bytes() if done.returncode == 0 else done.stderr.encode()), None


def main():
    print('1..2')
    fresh = recorded() == hash_of_sources()
    print('not ' * (not fresh) + 'ok 1 - the template carries the hash of its sources')
    if not fresh:
        print('# viewer/page.html is older than viewer/src: run ./run viewer')
    page, reason = rebuild()
    if reason:
        print(f'ok 2 - built again it is the same # SKIP {reason}')
        return int(not fresh)
    same = page == (VIEWER / 'page.html').read_bytes()
    print('not ' * (not same) + 'ok 2 - built again it is the same')
    return int(not (fresh and same))


if __name__ == '__main__':
    sys.exit(main())
