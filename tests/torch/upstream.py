#!/usr/bin/env python3
"""upstream.py [--check] [NAME...]: the reproductions of docs/upstream, with the packages that are installed.

    python tests/torch/upstream.py --check [accelerate] [deepspeed] [llm-analysis] [mosaic] [pytorch] [tutorial]

Each prints what its text says; and with the suggested change, applied to a copy of the package's file, what it should. A change to a file that the package lacks is
not applied. Packages that are not installed are skipped with a message, and so is Mosaic, which is in no registry: MOSAIC is the folder of a checkout. The tutorial
runs from beginning to end; with TESSERA, a path, that program is used."""
import argparse
import functools
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import traceback
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / 'golden'))
import drafts  # noqa: E402

PACKAGES = {'accelerate': 'accelerate', 'deepspeed': 'deepspeed', 'llm-analysis': 'llm_analysis', 'mosaic': 'mosaic', 'pytorch': 'torch'}
# Loads changed modules in place of the package's.
INSTEAD = '''
import importlib, importlib.util, sys
for name, path in {changed!r}:
    parent, _, last = name.rpartition('.')
    parent = importlib.import_module(parent)
    spec = importlib.util.find_spec(name)
    sys.modules[name] = importlib.util.module_from_spec(spec)
    with open(path, encoding='utf-8') as file:
        exec(compile(file.read(), spec.origin, 'exec'), sys.modules[name].__dict__)
    setattr(parent, last, sys.modules[name])
'''


class Skipped(Exception):
    """A package is not installed."""


def environment(page):
    """For a process that has the package of a page."""
    given = {**os.environ, 'PYTHONDONTWRITEBYTECODE': '1'}
    if page == 'mosaic':
        if 'MOSAIC' not in os.environ:
            raise Skipped('Mosaic is in no registry: set MOSAIC to the folder of a checkout')
        given['PYTHONPATH'] = os.pathsep.join((os.environ['MOSAIC'], given.get('PYTHONPATH', '')))
    elif importlib.util.find_spec(PACKAGES[page]) is None:
        raise Skipped(f'{PACKAGES[page]} is not installed')
    return given


def printed(code, folder, given):
    done = subprocess.run([sys.executable, '-W', 'ignore', '-c', code], cwd=folder, env=given, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def source(name, given):
    """The file that a change names, in the package; None if the package lacks it."""
    place = f'import importlib.util; print(importlib.util.find_spec({name.split("/")[0]!r}).submodule_search_locations[0])'
    path = Path(printed(place, None, given).splitlines()[-1]).parent / name
    return path if path.is_file() else None


def modules(issue, folder, given):
    """(module, path of its changed copy) of the files that the issue's change is for."""
    for name, hunks in drafts.changes(issue.diff):
        if name.endswith('.py'):
            path = source(name, given)
            assert path, f'the package has no {name}'
            copy = folder / name.replace('/', '-')
            copy.write_text(drafts.changed(path.read_text(encoding='utf-8'), hunks), encoding='utf-8')
            yield name.removesuffix('.py').replace('/', '.'), str(copy)


def check(issue):
    given = environment(issue.page)
    for wanted, is_changed in ((issue.prints, False), (issue.wanted, True)):
        with tempfile.TemporaryDirectory() as folder:
            changed = list(modules(issue, Path(folder), given)) if is_changed else []
            if wanted:
                code = (INSTEAD.format(changed=changed) if changed else '') + issue.code
                found = printed(code, folder, given).splitlines()[-len(wanted.splitlines()):]
                assert found == wanted.splitlines(), f'{"with" if is_changed else "without"} the change: {found}'


def check_tutorial():
    if importlib.util.find_spec('torch') is None:
        raise Skipped('torch is not installed')
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / 'bin' / 'tessera'
        program.parent.mkdir()
        found = os.environ.get('TESSERA') or shutil.which('tessera', path=f'{Path(sys.executable).parent}{os.pathsep}{os.environ["PATH"]}')
        program.symlink_to(Path(found).resolve())
        # `python3` is this one, which has PyTorch
        (program.parent / 'python3').write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n', encoding='utf-8')
        (program.parent / 'python3').chmod(0o755)
        steps = list(drafts.tutorial(drafts.TUTORIAL.read_text(encoding='utf-8')))
        drafts.follow(steps, Path(folder), f'{program.parent}{os.pathsep}{os.environ["PATH"]}')


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--check', action='store_true', help='as for the other programs; there is nothing else')
    parser.add_argument('names', nargs='*', metavar='NAME')
    given = parser.parse_args()
    names = given.names or [*PACKAGES, 'tutorial']
    checks = [(f'{issue.page}: {issue.title}', functools.partial(check, issue)) for issue in drafts.issues() if issue.page in names]
    checks += [('tutorial', check_tutorial)] if 'tutorial' in names else []
    failed = 0
    for name, run in checks:
        try:
            run()
            print(f'ok - {name}', flush=True)
        except Skipped as why:
            print(f'ok - {name} # SKIP {why}', flush=True)
        except Exception:  # the next one may say more
            failed += 1
            traceback.print_exc()
            print(f'not ok - {name}', flush=True)
    return int(failed > 0)


if __name__ == '__main__':
    sys.exit(main())
