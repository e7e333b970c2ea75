"""support.py: what the tests of this folder share besides fixtures (conftest.py): where real snapshots are, the program as a
value that runs commands, and how Python loads a snapshot."""
import csv
import io
import json
import os
import pathlib
import pickle
import subprocess
import sys
import zlib

import pytest

sys.dont_write_bytecode = True
HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
SHARED = ROOT.parent / 'shared'  # next to the checkout, or absent
SNAPSHOTS = SHARED / 'snapshots'
sys.path.insert(0, str(HERE.parent / 'cli'))
import fixtures  # noqa: E402, F401


def name_of(value):
    """The id of a parameter: paths by their name, options by their words."""
    if isinstance(value, pathlib.Path):
        return value.name
    return ' '.join(map(str, value)) if isinstance(value, (list, tuple)) else None


def part_of(items, name, n):
    """Every n-th of the items, other ones for another name; all of them in `./run test all`."""
    return items if os.environ.get('TESSERA_WHOLE') else items[zlib.crc32(name.encode()) % n::n]


def absent(*values, reason='../shared is absent'):
    """A case that is skipped, in the place of those that need what is not here."""
    return pytest.param(*values, marks=pytest.mark.skip(reason=reason), id='absent')


def real(*patterns):
    """The real snapshots whose names match, in order; without ../shared one case that is skipped."""
    return sorted(path for pattern in patterns or ('*.pickle',) for path in SNAPSHOTS.glob(pattern)) or [absent(None)]


needs_shared = pytest.mark.skipif(not SHARED.is_dir(), reason='../shared is absent')


def cases(names, values, ids=name_of):
    """The test runs once for each of `values`, which are named by `ids`."""
    return pytest.mark.parametrize(names, values, ids=ids)


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


class Tessera:
    """The program that is tested. What a command must exit with is `status`, which may be a tuple; None is anything."""

    def __init__(self, path, is_link=False):
        self.path = pathlib.Path(path)
        self.path = self.path.absolute() if is_link else self.path.resolve()  # a drop-in is a link whose name counts

    def __fspath__(self):
        return str(self.path)

    def run(self, *words, status=0, **how):
        """How a command ended: its exit status, and as texts what it printed."""
        how = {'stdin': None if 'input' in how else subprocess.DEVNULL, 'stdout': subprocess.PIPE, 'stderr': subprocess.PIPE,
               'text': True, 'check': False, **how}
        done = subprocess.run([str(self.path), *map(str, words)], **how)
        wanted = status if isinstance(status, tuple) else (status,)
        if status is not None and done.returncode not in wanted:
            raise AssertionError(f'tessera {" ".join(map(str, words))}: exit status {done.returncode}, want {status}: {done.stderr!s:.2000}')
        return done

    def output(self, *words, **how):
        return self.run(*words, **how).stdout

    def json(self, command, *words, **how):
        return json.loads(self.output(command, '--json', *words, **how))

    def device(self, command, *words, **how):
        """The answer about the first device."""
        return self.json(command, *words, **how)['devices'][0]

    def simulate(self, model, *words, out, **how):
        """The snapshot of a simulated run, in the file `out`."""
        self.run('simulate', model, *words, '-q', '-o', out, **how)
        return out

    def allocations(self, snapshot):
        """The rows of `export --format csv`."""
        return csv.DictReader(io.StringIO(self.output('export', '-q', '--format', 'csv', snapshot)))
