#!/usr/bin/env python3
"""run.py --tessera PATH --work FOLDER [--build FOLDER] [-- PYTEST ARGUMENTS]: the tests of the Python packages, as TAP.

Builds both wheels, installs them with pytest into a virtual environment of their own, and runs the
tests there. Environment and build folder are kept in FOLDER, so that the next run is quick. A build folder
next to that of the release build has the same compilations: ccache, where it is installed, has them already. Where the
package registry cannot be reached, everything is skipped, saying so.
"""
import argparse
import hashlib
import os
import pathlib
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ET

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
TOOLS = ['meson-python>=0.18', 'meson>=1.3', 'ninja', 'setuptools>=77', 'wheel', 'pytest', 'numpy']
# Tests that need these are skipped without them.
EXTRAS = ['pandas', 'polars', 'pyarrow', 'click', 'tabulate', 'mypy==2.4.1', 'matplotlib', 'nbclient', 'ipykernel', 'fsspec', 'pyyaml',
          'pre-commit']


class Unreachable(Exception):
    """Packages cannot be had."""


def call(*words, **options):
    done = subprocess.run([str(word) for word in words], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, errors='replace', check=False, **options)
    return done.returncode, done.stdout


def expect(*words, **options):
    status, output = call(*words, **options)
    if status:
        raise RuntimeError(f'{" ".join(map(str, words))}: exit {status}\n{output}')
    return output


def environment(work):
    """The virtual environment, with the tools in it."""
    folder, stamp = work / 'venv', work / 'venv' / 'tools'
    wanted = hashlib.sha256(repr((TOOLS, EXTRAS, sys.version)).encode()).hexdigest()
    python = folder / 'bin' / 'python'
    if stamp.exists() and stamp.read_text() == wanted:
        return python
    shutil.rmtree(folder, ignore_errors=True)
    expect(sys.executable, '-m', 'venv', folder)
    pip = [python, '-m', 'pip', 'install', '--quiet', '--no-compile', '--disable-pip-version-check', '--prefer-binary']
    status, output = call(*pip, *TOOLS)
    if status:
        raise Unreachable(output.strip().splitlines()[-1] if output.strip() else 'pip failed')
    if call(*pip, '--only-binary', ':all:', *EXTRAS)[0]:
        for extra in EXTRAS:  # one that is not made for this Python costs only itself
            call(*pip, '--only-binary', ':all:', extra)
    stamp.write_text(wanted)
    return python


def install(python, work, folder):
    """Both wheels, built again."""
    wheels = work / 'wheels'
    shutil.rmtree(wheels, ignore_errors=True)
    path = f'{python.parent}{os.pathsep}{os.environ["PATH"]}'
    pip = [python, '-m', 'pip', '--disable-pip-version-check']
    build = [*pip, 'wheel', '--quiet', '--no-deps', '--no-build-isolation', '--wheel-dir', wheels]
    expect(*build, f'-Cbuild-dir={folder}', '-Csetup-args=-Dwerror=true', ROOT,
           env={**os.environ, 'PATH': path})
    # setuptools leaves its build folder next to the sources: build from a copy.
    copy = work / 'mosaic'
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(ROOT / 'python' / 'mosaic', copy, ignore=shutil.ignore_patterns('__pycache__'))
    expect(*build, copy)
    expect(*pip, 'install', '--quiet', '--no-deps', '--no-index', '--force-reinstall',
           *sorted(wheels.glob('*.whl')))


def report(path):
    """TAP of pytest's JUnit report; answers the number of failures."""
    cases = list(ET.parse(path).getroot().iter('testcase'))
    print(f'1..{len(cases)}')
    failures = 0
    for number, case in enumerate(cases, 1):
        title = f'{case.get("classname", "").rpartition(".")[2]} {case.get("name")}'.replace('#', '.')
        skipped = case.find('skipped')
        problems = case.findall('failure') + case.findall('error')
        failures += bool(problems)
        directive = f' # SKIP {skipped.get("message", "")}' if skipped is not None else ''
        print(f'{"not " * bool(problems)}ok {number} - {title}{directive}'.replace('\n', ' '))
        for problem in problems:
            for line in (problem.text or '').splitlines():
                print(f'# {line}')
    return failures


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--tessera', required=True, type=pathlib.Path)
    parser.add_argument('--work', required=True, type=pathlib.Path)
    parser.add_argument('--build', type=pathlib.Path, help='where to build the package')
    parser.add_argument('arguments', nargs='*', help='for pytest')
    options = parser.parse_args()
    work = options.work.resolve()
    work.mkdir(parents=True, exist_ok=True)
    try:
        python = environment(work)
    except Unreachable as reason:
        print(f'1..0 # SKIP no packages to test with: {reason}')
        return 0
    install(python, work, (options.build or work / 'build').resolve())
    results = work / 'results.xml'
    results.unlink(missing_ok=True)
    plugin = ROOT / 'python' / 'tessera' / 'pytest_plugin.py'
    status, output = call(
        python, '-X', 'dev', '-m', 'pytest', '-q', f'--junitxml={results}', '--rootdir', HERE,
        '-p', 'no:cacheprovider', *([] if plugin.exists() else ['-p', 'no:tessera']),
        *(options.arguments or [HERE]), cwd=work,
        env={**os.environ, 'TESSERA_COMMAND': str(options.tessera.resolve()),
             'PYTHONDONTWRITEBYTECODE': '1'})
    if not results.exists():
        print(f'Bail out! pytest did not run\n{output}')
        return 1
    failures = report(results)
    if status not in (0, 1, 5):
        print(output)
    return int(failures > 0 or status not in (0, 1, 5))


if __name__ == '__main__':
    sys.exit(main())
