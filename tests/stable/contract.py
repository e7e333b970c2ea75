#!/usr/bin/env python3
"""contract.py write|compare --build FOLDER: what programs rely on, recorded for each version in tests/stable/VERSION (docs/stability.md).

  write    records it for the version in meson.build, before it is released; a version that has a tag is never written again
  compare  prints what is new and what breaks programs since the newest record, and the version that follows from it

Both are `./run release contract` and `./run release compare`."""
import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path.insert(0, str(HERE))
import c_facts  # noqa: E402  (next to this file)
import facts  # noqa: E402
import format_facts  # noqa: E402
import integration_facts  # noqa: E402
import python_facts  # noqa: E402
import python_runs  # noqa: E402

AREAS = ('command', 'json', 'python', 'c', 'formats', 'integrations')


# ---- versions ----

def number_of(text):
    return tuple(int(part) for part in text.split('.'))


def current_version():
    return re.search(r"version: '([\d.]+)'", (ROOT / 'meson.build').read_text(encoding='utf-8'))[1]


def series(version):
    """What versions have in common that keep their promises to each other: the major version, and below 1 the minor one."""
    major, minor, _ = number_of(version)
    return (major,) if major else (major, minor)


def advice(version):
    major = number_of(version)[0]
    return f'keep it, or raise the {"major" if major else "minor"} version in meson.build (docs/stability.md)'


def recorded_versions(folder=HERE):
    """Versions of which there is a record, ascending."""
    return sorted((path.name for path in folder.iterdir() if re.fullmatch(r'\d+\.\d+\.\d+', path.name)), key=number_of)


def next_version(version, broken, added):
    """The lowest version that may follow."""
    major, minor, patch = number_of(version)
    if broken:
        return f'{major + 1}.0.0' if major else f'0.{minor + 1}.0'
    return f'{major}.{minor + 1}.0' if added else f'{major}.{minor}.{patch + 1}'


# ---- records ----

def recorded(version, folder=HERE):
    """The facts of a record, by area."""
    return {area: facts.parse((folder / version / f'{area}.txt').read_text(encoding='utf-8')) for area in AREAS}


def command_area(name):
    kind, _, rest = name.partition(' ')
    if kind in ('field', 'table', 'column', 'category'):
        return 'json'
    return 'formats' if rest.startswith('plan-file ') else 'command'


def collected(tessera, gendocs, library, work):
    """The facts of this tree, by area."""
    found = {area: {} for area in AREAS}
    printed = subprocess.run([gendocs, 'contract'], capture_output=True, text=True, check=True).stdout
    for name, value in facts.parse(printed).items():
        found[command_area(name)][name] = value
    table = (ROOT / 'src/ground/columns/warnings.h').read_text(encoding='utf-8')
    for code in re.findall(r'^  X\(\w+, "([a-z-]+)"', table, re.MULTILINE):
        found['json'][f'warning {code}'] = 'of a file'
    found['python'] = python_facts.facts(ROOT / 'python/tessera')
    found['c'] = c_facts.facts(ROOT / 'include', library)
    found['python'].update(python_runs.file_facts(ROOT / 'python/tessera', library, found['c']))
    found['integrations'] = integration_facts.facts(ROOT)
    for name, value in format_facts.facts(tessera, ROOT / 'python/tessera', work).items():
        found['command' if name.startswith('status ') else 'formats'][name] = value
    return found


def broken(old, new):
    """(area, name, what is wrong) of all areas."""
    return [(area, *one) for area in AREAS for one in facts.broken(old[area], new[area])]


def added(old, new):
    return [(area, name) for area in AREAS for name in facts.added(old[area], new[area])]


def is_tagged(version):
    if not shutil.which('git'):
        return False
    done = subprocess.run(['git', '-C', ROOT, 'tag', '--list', f'v{version}'], capture_output=True, text=True, check=False)
    return done.returncode == 0 and done.stdout.strip() != ''


# ---- commands ----

def compared(new, version, previous):
    """The differences from a record, printed; and the lowest version that they allow."""
    old = recorded(previous)
    wrong, more = broken(old, new), added(old, new)
    for area, name, what in wrong:
        print(f'breaks: {area}: {name} {what}')
    for area, name in more:
        print(f'new: {area}: {name}')
    lowest = next_version(previous, wrong, more)
    print(f'{len(wrong)} changes since {previous} break programs, and {len(more)} facts are new: the next version is {lowest} or higher; '
          f'meson.build has {version}.')
    return lowest


def write(new, work):
    version = current_version()
    earlier = [one for one in recorded_versions() if number_of(one) < number_of(version)]
    if is_tagged(version):
        raise SystemExit(f'contract: v{version} is a tag: its record stays as it is; raise the version in meson.build')
    if earlier:
        lowest = compared(new, version, earlier[-1])
        if number_of(version) < number_of(lowest):
            raise SystemExit(f'contract: {version} is too low: {lowest} is the lowest that may follow {earlier[-1]}')
    folder = HERE / version
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for area in AREAS:
        (folder / f'{area}.txt').write_text(facts.render(new[area]), encoding='utf-8')
    shutil.copytree(work / 'samples', folder / 'samples')
    print(f'contract: wrote {folder.relative_to(ROOT)}: {sum(map(len, new.values()))} facts')


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('what', choices=('write', 'compare'))
    parser.add_argument('--build', type=Path, default=ROOT / 'build')
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        build = options.build.resolve()
        new = collected(build / 'tessera', build / 'cmd/gendocs', build / 'src/libtessera.so', Path(work))
        if options.what == 'write':
            write(new, Path(work))
        elif recorded_versions():
            compared(new, current_version(), recorded_versions()[-1])
        else:
            print('contract: no version is recorded')


if __name__ == '__main__':
    main()
