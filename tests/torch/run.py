#!/usr/bin/env python3
"""run.py --work FOLDER [PROGRAM.py] [NAME...]: the tests that need PyTorch, in an environment of their own.

Creates the environment in FOLDER, with the packages of requirements.txt (about 7 GB, from PyPI) and tessera's own package, and
traces the programs behind tests/golden again. paste.py and upstream.py run in a second one, too, which has the packages of requirements_other.txt before those. No GPU and no driver are needed. FOLDER is kept, so the next run is quick.
With PROGRAM.py only that program runs; the NAMEs are its arguments (the arguments of graphs.py without a program). The last line
has the numbers of cases that passed, failed and were skipped; the exit status is 1 if any failed.
"""
import argparse
import collections
import hashlib
import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
REQUIREMENTS = HERE / 'requirements.txt'
OTHER = HERE / 'requirements_other.txt'
CHECKS = ('llmc.py', 'losses.py', 'recipes.py', 'routing.py', 'rotary.py', 'tokens.py', 'generate.py', 'chats.py', 'paste.py', 'ranks.py', 'graphs.py', 'configs.py',
          'rewrites.py', 'apply.py', 'states.py', 'adapters.py', 'lora.py', 'quantised.py', 'zoo.py', 'matrix.py', 'differential.py', 'frameworks.py',
          'places.py', 'gpu.py', 'doctor.py', 'trainers.py', 'upstream.py')
# ... and in the second environment, too.
TWICE = ('paste.py', 'upstream.py')


PIP = ('-m', 'pip', 'install', '--quiet', '--disable-pip-version-check')


def call(*words, **options):
    subprocess.run([str(word) for word in words], check=True, **options)


def environment(work):
    """Its Python, with the requirements and tessera as it is now."""
    python = packages(work / 'venv', REQUIREMENTS)
    path = f'{python.parent}{os.pathsep}{os.environ["PATH"]}'
    call(python, *PIP, '--no-deps', '--no-index', '--no-build-isolation', '--force-reinstall', f'-Cbuild-dir={work / "build"}', ROOT,
         env={**os.environ, 'PATH': path})
    return python


def packages(folder, requirements, before=None):
    """The Python of an environment, which finds the packages of the environment `before`, too."""
    python, stamp = folder / 'bin' / 'python', folder / 'requirements'
    wanted = hashlib.sha256(requirements.read_bytes() + sys.version.encode()).hexdigest()
    if not stamp.exists() or stamp.read_text(encoding='utf-8') != wanted:
        call(sys.executable, '-m', 'venv', '--clear', folder)
        if before:
            places = [next((place / 'lib').glob('python*/site-packages')) for place in (folder, before)]
            (places[0] / 'before.pth').write_text(f'{places[1]}\n', encoding='utf-8')
        call(python, *PIP, '-r', requirements)
        stamp.write_text(wanted, encoding='utf-8')
    return python


def cases(python, check, names):
    """Run a program, show what it prints and count its cases. One that ends with an error without a failed case is one."""
    counts = collections.Counter()
    with subprocess.Popen([python, '-u', '-W', 'ignore', HERE / check, '--check', *names], stdout=subprocess.PIPE, text=True) as running:
        for line in running.stdout:
            print(line, end='', flush=True)
            counts['skipped' if '# SKIP' in line else 'passed'] += line.startswith('ok ')
            counts['failed'] += line.startswith('not ok ')
    counts['failed'] += bool(running.returncode and not counts['failed'])
    return counts


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--work', required=True, type=lambda text: Path(text).resolve())
    parser.add_argument('names', nargs='*', metavar='NAME', help='only this program, such as matrix.py, or only these of its parts')
    given = parser.parse_args()
    given.work.mkdir(parents=True, exist_ok=True)
    python = environment(given.work)
    checks, names = CHECKS, given.names
    if names:
        checks, names = ((names[0],), names[1:]) if names[0] in CHECKS else (('graphs.py',), names)
    counts = collections.Counter()
    for check in checks:
        print(f'# {check}', flush=True)
        counts += cases(python, check, names)
        if check in TWICE:
            counts += cases(packages(given.work / 'other', OTHER, given.work / 'venv'), check, names)
    print(f'{counts["passed"]} passed, {counts["failed"]} failed, {counts["skipped"]} skipped')
    return int(counts['failed'] > 0)


if __name__ == '__main__':
    sys.exit(main())
