"""support.py: what the programs of this folder share: where real snapshots are, how Python loads one, and
how tests are run and reported.

A test is a title and a function without arguments. It passes unless it raises: Skip, with the reason, or
anything else, which is a failure. Of a sanitized build, which needs several times as long, only every n-th
test runs: TESSERA_EVERY is n (tests/meson.build), and TESSERA_WHOLE asks for all (./run test all)."""
import argparse
import itertools
import os
import pathlib
import pickle
import shutil
import sys

sys.dont_write_bytecode = True
HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
SHARED = ROOT.parent / 'shared'  # next to the checkout, or absent
SNAPSHOTS = SHARED / 'snapshots'
sys.path.insert(0, str(HERE.parent / 'cli'))
import fixtures  # noqa: E402, F401


class Skip(Exception):
    """The test cannot run here; says why."""


def skip(reason):
    """A test of what is not there."""
    def test():
        raise Skip(reason)
    return test


def expect(what, got, want):
    if got != want:
        raise AssertionError(f'{what}: got {got!r:.200}, want {want!r:.200}')


class DataOnly(pickle.Unpickler):
    """A snapshot is data: nothing in it is looked up."""

    def find_class(self, module, name):
        raise pickle.UnpicklingError(f'{module}.{name} is asked for')


def load(path):
    with open(path, 'rb') as file:
        return DataOnly(file).load()


def tessera_and_work(description):
    """The program's arguments: `tessera`, the binary, and `work`, a folder, which is emptied. Both are absolute."""
    parser = argparse.ArgumentParser(description=description.splitlines()[0])
    for name in ('--tessera', '--work'):
        parser.add_argument(name, required=True, type=lambda text: pathlib.Path(text).resolve())
    given = parser.parse_args()
    shutil.rmtree(given.work, ignore_errors=True)
    given.work.mkdir(parents=True)
    return given


def run_tests(tests):
    """Runs tests, which may be made on the way, and prints TAP; returns the exit status."""
    every = 1 if os.environ.get('TESSERA_WHOLE') else int(os.environ.get('TESSERA_EVERY', '1'))
    number = failed = 0
    for number, (title, test) in enumerate(itertools.islice(tests, 0, None, every), 1):
        title, lines = title.replace('#', ''), []
        try:
            test()
        except Skip as reason:
            title += f' # SKIP {reason}'
        except Exception as error:  # a test that cannot run is a test that fails
            lines = (str(error) or repr(error)).splitlines()
            if not isinstance(error, AssertionError):
                lines.insert(0, type(error).__name__)
            failed += 1
            print('not ', end='')
        print(f'ok {number} - {title}')
        for line in lines:
            print(f'# {line}')
        sys.stdout.flush()
    print(f'1..{number}')
    return int(failed > 0)
