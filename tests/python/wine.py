#!/usr/bin/env python3
"""wine.py --wheel FILE --wine WINE --work FOLDER [-- PYTEST ARGUMENTS]: the wheel for Windows, in a Python for Windows.

Installs the wheel there with pip, runs clean.py, and with pytest the tests of this folder that need no other package
and no system of POSIX, or those that are named. Python for Windows is python.org's (cross/fetch.py)."""
import argparse
import os
import pathlib
import shutil
import subprocess
import sys
import zipfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path.insert(0, str(ROOT / 'cross'))
from fetch import call, windows_python  # noqa: E402  (it is in a folder of its own)

# pip is one of them, since Python for Windows comes without; they are the same on all systems. numpy's is not, and calls what Wine lacks.
PACKAGES = ['pip', 'pytest', 'iniconfig', 'pluggy', 'packaging', 'colorama', 'pygments']
TESTS = ['test_files', 'test_open', 'test_pickle', 'test_view']


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--wheel', required=True, type=pathlib.Path)
    parser.add_argument('--wine', required=True)
    parser.add_argument('--work', required=True, type=pathlib.Path)
    parser.add_argument('pytest', nargs='*', help='what pytest is to run')
    return parser.parse_args()


def install(work):
    """A Python for Windows with pip and pytest."""
    home = work / 'python'
    if not (home / 'complete').exists():
        shutil.rmtree(home, ignore_errors=True)
        shutil.copytree(windows_python(), home)
        # Wine lacks what it asks the system with.
        (home / '_wmi.pyd').unlink()
        # This file says where modules are, and that nothing else is looked at.
        (home / 'python313._pth').write_text('python313.zip\n.\nLib/site-packages\nimport site\n')
        call(sys.executable, '-m', 'pip', 'download', '--quiet', '--disable-pip-version-check', '--no-deps', '--dest', work / 'packages',
             *PACKAGES)
        for package in (work / 'packages').glob('*.whl'):
            zipfile.ZipFile(package).extractall(home / 'Lib/site-packages')
        (home / 'complete').touch()
    return home / 'python.exe'


def main():
    options = arguments()
    work = options.work.resolve()
    (work / 'wine').mkdir(parents=True, exist_ok=True)
    program = install(work)
    settings = {**os.environ, 'WINEDEBUG': '-all', 'WINEPREFIX': str(work / 'wine'), 'PYTHONUTF8': '1'}

    def python(*words):
        """Runs Python, whose standard streams must be pipes, and shows what it says; answers its exit status."""
        with subprocess.Popen([options.wine, program, *map(str, words)], env=settings, stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd=work) as process:
            process.stdin.close()
            for line in process.stdout:
                sys.stdout.write(line.decode('utf-8', 'replace').replace('\r\n', '\n'))
                sys.stdout.flush()
        return process.returncode

    status = python('-m', 'pip', 'install', '--quiet', '--disable-pip-version-check', '--no-index', '--force-reinstall',
                    '--no-deps', options.wheel.resolve())
    status = status or python(HERE / 'clean.py', '--alone')
    tests = options.pytest or [HERE / f'{name}.py' for name in TESTS]
    return status or python('-m', 'pytest', '-q', '-p', 'no:cacheprovider', '--tb=short', *tests)


if __name__ == '__main__':
    sys.exit(main())
