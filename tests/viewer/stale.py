#!/usr/bin/env python3
"""Are the templates of viewer/ made of the sources next to them? Prints TAP.

usage: stale.py

The templates that the binary embeds are in the tree, so that building needs no Node. They carry a hash
of their sources, which is compared here without Node; where Node and esbuild are there (`./run
viewer`), they are built again and must be the same."""
import hashlib
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

VIEWER = pathlib.Path(__file__).resolve().parents[2] / 'viewer'
TEMPLATES = ('page.html', 'ranks.html')


def hash_of_sources():
    """As build.mjs makes it."""
    names = ['build.mjs', 'package-lock.json'] + [f'src/{path.name}'
                                                  for path in (VIEWER / 'src').iterdir()]
    hashed = hashlib.sha256()
    for name in sorted(names):
        data = (VIEWER / name).read_bytes()
        hashed.update(f'{name} {len(data)}\n'.encode() + data)
    return hashed.hexdigest()


def recorded(name):
    match = re.search(r'<!-- sources: ([0-9a-f]{64}) -->', (VIEWER / name).read_text())
    return match.group(1) if match else None


def rebuild():
    """The templates as built now, by name, or why they cannot be."""
    if not shutil.which('node'):
        return None, 'no node'
    if not (VIEWER / 'node_modules/esbuild').is_dir():
        return None, 'no esbuild in viewer/node_modules; ./run viewer installs it'
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(['node', VIEWER / 'build.mjs', folder], capture_output=True, text=True,
                              check=False)
        if done.returncode:
            print('\n'.join(f'# {line}' for line in done.stderr.splitlines()))
            return {}, None
        return {name: (pathlib.Path(folder) / name).read_bytes() for name in TEMPLATES}, None


def main():
    print('1..2')
    wanted = hash_of_sources()
    old = [name for name in TEMPLATES if recorded(name) != wanted]
    print('not ' * bool(old) + 'ok 1 - the templates carry the hash of their sources')
    for name in old:
        print(f'# viewer/{name} is older than viewer/src: run ./run viewer')
    built, reason = rebuild()
    if reason:
        print(f'ok 2 - built again they are the same # SKIP {reason}')
        return int(bool(old))
    same = built == {name: (VIEWER / name).read_bytes() for name in TEMPLATES}
    print('not ' * (not same) + 'ok 2 - built again they are the same')
    return int(not (not old and same))


if __name__ == '__main__':
    sys.exit(main())
