"""What the tests of the Python packages share."""
import importlib.util
import os
import pathlib
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SHARED = ROOT.parent / 'shared'
HANG_S = 1800  # ends what hangs; a busy machine may be slow
# For tests of what Windows lacks.
posix_only = pytest.mark.skipif(sys.platform == 'win32', reason='needs signals, links or names of files that Windows lacks')
COMMAND = os.environ.get('TESSERA_COMMAND')  # the binary, if there is one to compare with


def module_of_tests(name):
    """A module of another folder of tests/, loaded without changing where Python looks for modules."""
    spec = importlib.util.spec_from_file_location(name, ROOT / 'tests' / f'{name}.py')
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope='session')
def made(tmp_path_factory):
    """A folder of snapshots that tests/cli/fixtures.py makes."""
    folder = tmp_path_factory.mktemp('made')
    module_of_tests('cli/fixtures').write_all(folder)
    return folder


@pytest.fixture(scope='session')
def train(made):
    """A small training run."""
    return made / 'train.pickle'


def shared(*parts):
    """A file next to the checkout; the test is skipped where that is absent."""
    path = SHARED.joinpath(*parts)
    if not path.exists():
        pytest.skip(f'../shared/{"/".join(parts)} is absent')
    return path


@pytest.fixture
def snapshots():
    """The folder of real snapshots."""
    return shared('snapshots')


@pytest.fixture
def real(snapshots):
    """A training run of 22,331 events, whose recording began late."""
    return snapshots / 'train-ctx1024-torch2.11.pickle'
