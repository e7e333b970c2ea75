"""conftest.py: the fixtures that the tests of this folder share, and how meson and ./run test see them.

    pytest tests/golden/test_real.py -k peak

runs some tests against build/tessera. meson runs each module by itself with --tap: one line for each test, and below one that
failed, as comments, why. Of what takes long, above all of a sanitized build, only every n-th test runs: TESSERA_EVERY is n, of the
functions in TESSERA_EVERY_OF or else of all (tests/meson.build), and TESSERA_WHOLE asks for all (./run test all)."""
import os
import pathlib
import shutil

import pytest
from support import ROOT, Tessera, fixtures


def pytest_addoption(parser):
    parser.addoption('--tessera', default=ROOT / 'build' / 'tessera', type=pathlib.Path, help='the program to test')
    parser.addoption('--work', type=pathlib.Path, help='folder for what the tests write; emptied first')
    parser.addoption('--core', type=pathlib.Path, help='the extension module of the Python package')
    parser.addoption('--gendocs', type=lambda text: pathlib.Path(text).resolve(), default=ROOT / 'build' / 'cmd' / 'gendocs',
                     help='the program that writes pages from what questions declare')
    parser.addoption('--reader', help='tests/halves/ask.c with the reader alone')
    parser.addoption('--engine', help='... and with the engine alone')
    parser.addoption('--takeover', type=pathlib.Path, help='tests/golden/takeover.c, a library')
    parser.addoption('--replay', type=lambda text: pathlib.Path(text).resolve(), help='the fuzz target lists, which reads damaged files')
    parser.addoption('--sanitized', action='store_true', help='leave out what takes long and finds nothing more in a sanitized build')
    parser.addoption('--accept', action='store_true', help='expect what happens now')
    parser.addoption('--tap', action='store_true', help='print TAP, with -p no:terminal')


# ---- fixtures ----

@pytest.fixture(scope='session')
def tessera(pytestconfig):
    return Tessera(pytestconfig.getoption('tessera'))


@pytest.fixture(scope='session')
def is_sanitized(pytestconfig):
    return pytestconfig.getoption('sanitized')


@pytest.fixture(scope='module')
def work(request, tmp_path_factory):
    """A folder of the module's own, empty."""
    given = request.config.getoption('work')
    if not given:
        return tmp_path_factory.mktemp(request.module.__name__)
    folder = given.resolve() / request.module.__name__
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


@pytest.fixture(scope='module')
def made(work):
    """A folder with the snapshots that tests/cli/fixtures.py makes."""
    folder = work / 'fixtures'
    fixtures.write_all(folder)
    return folder


def pytest_sessionstart():
    """tessera cuts lines to COLUMNS, which readline, that pytest loads, sets for child processes."""
    for name in ('COLUMNS', 'LINES'):
        os.environ.pop(name, None)
        os.unsetenv(name)
    os.environ['TESSERA_MACHINE'] = ''  # tests do not depend on what was measured on this machine


# ---- which tests run, and what is printed ----

def pytest_collection_modifyitems(items):
    every = 1 if os.environ.get('TESSERA_WHOLE') else int(os.environ.get('TESSERA_EVERY', '1'))
    names = os.environ.get('TESSERA_EVERY_OF')
    if not names:
        items[:] = items[::every]
        return
    of = {name: [item for item in items if item.originalname == name] for name in names.split(',')}
    left_out = {item for cases in of.values() for i, item in enumerate(cases) if i % every}
    items[:] = [item for item in items if item not in left_out]


class Tap:
    """Prints TAP instead of pytest's own report."""

    def __init__(self):
        self.count = 0

    def result(self, title, is_ok, skipped='', comments=''):
        self.count += 1
        line = f'{"" if is_ok else "not "}ok {self.count} - {title.replace("#", "")}{skipped and f" # SKIP {skipped}"}'
        print(line.replace('\n', ' '))
        for comment in comments.splitlines():
            print(f'# {comment}', flush=True)

    def pytest_collectreport(self, report):
        if report.failed:
            self.result(f'{report.nodeid} is collected', False, comments=report.longreprtext)

    def pytest_runtest_logreport(self, report):
        title = report.nodeid.partition('::')[2]
        if report.failed:
            self.result(title if report.when == 'call' else f'{title}: {report.when}', False,
                        comments='\n'.join([report.longreprtext, report.capstdout, report.capstderr]))
        elif report.skipped:
            self.result(title, True, skipped=report.longrepr[2].removeprefix('Skipped: '))
        elif report.when == 'call':
            self.result(title, True, comments=report.capstdout)

    def pytest_internalerror(self, excrepr):
        print(f'Bail out! {excrepr}')

    def pytest_sessionfinish(self):
        print(f'1..{self.count}', flush=True)


def pytest_configure(config):
    config.option.tbstyle = 'short'
    if config.getoption('tap'):
        config.pluginmanager.register(Tap())
