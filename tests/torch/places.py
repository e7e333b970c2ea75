#!/usr/bin/env python3
"""places.py --check [PAGE...]: blocks of docs/places with PyTorch itself, as far as that goes without a GPU. Prints TAP.

Python blocks run with small models on the CPU, where the recorder has nothing to record: the trainers call the callbacks, and nothing fails.
Commands that need PyTorch (`needs: torch`) trace the programs. What needs a package that is not installed is left out, and counted."""
import argparse
import collections
import functools
import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / 'tests')]
sys.dont_write_bytecode = True
import tap  # noqa: E402

from importlib import util  # noqa: E402

SPEC = util.spec_from_file_location('recipes', ROOT / 'tests/places.py')  # this file has the same name
recipes = util.module_from_spec(SPEC)
SPEC.loader.exec_module(recipes)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--check', action='store_true', required=True)
    parser.add_argument('names', nargs='*')
    given = parser.parse_args()
    tessera = Path(shutil.which('tessera', path=str(Path(sys.executable).parent)) or 'tessera')
    counts, left = collections.Counter(), []
    pages = [page for page in recipes.PAGES if not given.names or page.stem in given.names]
    status = tap.run([(page.relative_to(ROOT).as_posix(), functools.partial(recipes.run_page, tessera, page, counts, left, real=True)) for page in pages])
    print(f'# blocks: {", ".join(f"{number} {what}" for what, number in sorted(counts.items()))}')
    return status


if __name__ == '__main__':
    sys.exit(main())
