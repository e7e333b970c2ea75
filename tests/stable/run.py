#!/usr/bin/env python3
"""run.py --tessera FILE --gendocs FILE --library FILE --work FOLDER [--seed N] [--count N]: compares this tree with the recorded versions
(docs/stability.md), and checks that the comparison works. For that it makes changes that break programs, all kinds of them, and must find each;
and additions, which must pass (breakages.py). It does so `count` times, each time with another seed, beginning with `seed`. Prints TAP."""
import argparse
import json
import random
import re
import shutil
import subprocess
import sys
from fnmatch import fnmatchcase
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.dont_write_bytecode = True
sys.path[:0] = [str(HERE.parent), str(HERE)]
import breakages  # noqa: E402  (next to this file)
import c_facts  # noqa: E402
import contract  # noqa: E402
import facts  # noqa: E402
import format_facts  # noqa: E402
import integration_facts  # noqa: E402
import python_facts  # noqa: E402
import python_runs  # noqa: E402
import tap  # noqa: E402
from tap import Skip, expect  # noqa: E402


def fail(lines):
    if lines:
        raise AssertionError('\n'.join(lines))


def check_what_is_recorded_is_kept(options):
    """The newest record of this series, against this tree. A version of a new series may change everything."""
    version = contract.current_version()
    newest = contract.recorded_versions()[-1]
    assert contract.number_of(newest) <= contract.number_of(version), f'{newest} is recorded, and meson.build has {version}'
    old = contract.recorded(newest)
    more = contract.added(old, options.facts)
    print(f'# {len(more)} facts are new since {newest}')
    if contract.series(newest) != contract.series(version):
        raise Skip(f'{version} need not keep what {newest} has')
    fail([f'{area}: {name} {what} (since {newest}): {contract.advice(version)}' for area, name, what in contract.broken(old, options.facts)])


def check_records_keep_their_predecessors(_):
    """So that nothing is lost over several versions, and no record is edited afterwards."""
    versions = contract.recorded_versions()
    for earlier, later in zip(versions, versions[1:]):
        if contract.series(earlier) == contract.series(later):
            fail([f'tests/stable/{later}: {area}: {name} {what} (since {earlier})' for area, name, what in
                  contract.broken(contract.recorded(earlier), contract.recorded(later))])


def git(*words):
    return subprocess.run(['git', '-C', ROOT, *words], capture_output=True, text=True, check=False)


def check_records_are_as_they_were_tagged(_):
    if not shutil.which('git'):
        raise Skip('git is not installed')
    tagged = [version for version in contract.recorded_versions() if git('rev-parse', '--verify', '--quiet', f'v{version}^{{commit}}').returncode == 0]
    if not tagged:
        raise Skip('no recorded version has a tag here')
    for version in tagged:
        place = f'tests/stable/{version}'
        if git('cat-file', '-e', f'v{version}:{place}').returncode:
            raise AssertionError(f'v{version} has no {place}: it was recorded afterwards')
        fail([f'{line}: changed since v{version}' for line in git('diff', '--name-only', f'v{version}', '--', place).stdout.split()])


def check_files_of_earlier_versions_are_read(options):
    """Of this major version, and of the one before."""
    reader = format_facts.Reader(options.tessera, options.work / 'earlier')
    major = contract.number_of(contract.current_version())[0]
    versions = [version for version in contract.recorded_versions() if contract.number_of(version)[0] >= major - 1]
    for version in versions:
        samples = HERE / version / 'samples'
        expect(f'samples of {version}', {path.name for path in samples.iterdir()} >= set(format_facts.SAMPLES), True)
        for name, kind in format_facts.SAMPLES.items():
            status, text = reader.read_file(kind, samples / name)
            assert status in reader.READ.get(kind, (0,)), f'{name} of {version}: status {status}, {text}'
            assert kind != 'sidecar' or 'exp_avg of w' in text, f'{name} of {version}: no names are read'


def check_public_functions_are_facts(options):
    """The functions that tests/lint/api.txt lists as stable are declared and exported."""
    listed = {line.split()[1] for line in (ROOT / 'tests/lint/api.txt').read_text(encoding='utf-8').splitlines() if line.startswith('stable ')}
    for kind in ('function', 'symbol'):
        found = {name.split()[1] for name in options.facts['c'] if name.startswith(f'{kind} ')}
        expect(f'{kind}s that are not facts', sorted(listed - found), [])


def check_python_names_are_facts(options):
    """Everything that tessera.__all__ lists."""
    text = (ROOT / 'python/tessera/__init__.py').read_text(encoding='utf-8')
    listed = re.findall(r"'(\w+)'", text[text.index('__all__'):text.index(']', text.index('__all__'))])
    found = {name.split()[1] for name in options.facts['python']}
    expect('names that are not facts', [name for name in listed if f'tessera.{name}' not in found], [])
    assert len(listed) > 30


def check_callbacks_are_facts(options):
    """Every class of tessera.callbacks.__all__, with how it is made; those for trainers have a stub."""
    text = (ROOT / 'python/tessera/callbacks.py').read_text(encoding='utf-8')
    listed = re.findall(r'"(\w+)"', text[text.index('__all__'):text.index(']', text.index('__all__'))])
    found = options.facts['python']
    expect('classes', [name for name in listed if f'argument tessera.callbacks.{name}(out)' not in found], [])
    stubs = {name.rpartition('.')[2]: value for name, value in found.items() if name.startswith('stub ')}
    expect('stubs', stubs, dict.fromkeys(re.findall(r'^    "(\w+)": _make', text, re.MULTILINE), 'as the class'))
    assert len(listed) > len(stubs) > 3


def check_options_in_help_are_facts(options):
    """What `--help-all` of each command shows."""
    commands = [name.removeprefix('command tessera ') for name in options.facts['command'] if name.startswith('command tessera ')]
    commands.remove('help')  # it shows those of all
    assert len(commands) > 20
    for command in commands:
        shown = subprocess.run([options.tessera, command, '--help-all'], capture_output=True, text=True, check=True).stdout
        names = set(re.findall(r'^ {2,6}(?:-\w, )?(--[a-z][\w-]*)', shown, re.MULTILINE))
        expect(f'options of {command}', sorted(name for name in names if f'option tessera {command} {name}' not in options.facts['command']), [])
        assert names, command


def check_keys_of_traced_graphs_are_facts(options):
    """The sample of a step graph has all keys that traced ones have."""
    found = set()
    for path in (ROOT / 'tests/golden/graphs').glob('*.graph'):
        found |= set(format_facts.paths(json.loads(path.read_text(encoding='utf-8'))))
    expect('keys', sorted(name for name in found if f'key graph {name}' not in options.facts['formats']), [])
    assert len(found) > 20


def check_sidecar_sample_is_as_documented(options):
    """Its keys at the top are in the table of docs/capture.md."""
    page = (ROOT / 'docs/capture.md').read_text(encoding='utf-8')
    table = page[page.index('## The sidecar'):page.index('### What the analysis takes from it')]
    missing = [key for key in format_facts.SIDECAR if not re.search(rf'`{key}\b', table) and key != 'schema']
    expect('keys that the page does not have', missing, [])
    assert options


# ---- made-up changes ----

def is_one_of(name, patterns):
    return any(fnmatchcase(name, pattern.replace('[', '[[]')) for pattern in patterns)


def judge(changes, found, title):
    """All that breaks is found, and nothing else."""
    names = {name for name, _ in found}
    missed = sorted(changes.must - names)
    wrong = sorted(f'{name} {what}' for name, what in found if name not in changes.must and not is_one_of(name, changes.may))
    fail([f'{title}: not found: {name}' for name in missed] + [f'{title}: found, and not made up: {line}' for line in wrong])


def made_up(options, title, kinds, make, collect):
    """Each kind of change at once, `count` times: (old facts, changed facts) are collected from what `make` returns."""
    for at in range(options.count):
        seed = options.seed + at
        chance = random.Random(f'{title} {seed}')
        changes = make(chance, options.work / f'{title} {seed}'.replace(' ', '-'))
        for kind in kinds:
            kind(changes)
        old, new = collect(changes)
        judge(changes, facts.broken(old, new), f'{title}, seed {seed}')


def headers(options, title, kinds):
    def collect(changes):
        changes.write()
        return options.headers, c_facts.facts(changes.folder)
    made_up(options, title, kinds, lambda chance, folder: breakages.Headers(chance, ROOT / 'include', fresh(folder)), collect)


def sources(options, title, kinds):
    parts = ('_record/settings',)  # the changes of the others are in runs()
    old = python_facts.facts(ROOT / 'python/tessera', parts)

    def collect(changes):
        return old, python_facts.facts(changes.folder, parts)
    made_up(options, title, kinds, lambda chance, folder: breakages.Sources(chance, ROOT / 'python/tessera', fresh(folder)), collect)


def runs(options, title, kinds):
    """One kind at a time, since one that ends a program early hides what comes later."""
    package, folder = ROOT / 'python/tessera', fresh(options.work / 'programs')
    folder.mkdir()
    known = {part: python_runs.facts(package, (part,)) for part in python_runs.PARTS}

    def collect(changes):
        found = python_runs.facts(changes.folder, (changes.part,))
        changes.restore()
        return known[changes.part], found
    for kind in kinds:
        made_up(options, f'{title} {kind.__name__}', [kind], lambda chance, _: breakages.Programs(chance, package, folder, known), collect)


def integrations(options, title, kinds):
    made_up(options, title, kinds, lambda chance, folder: breakages.Integrations(chance, ROOT, fresh(folder)),
            lambda changes: (options.facts['integrations'], integration_facts.facts(changes.folder)))


def lines(options, title, rows, breaks):
    text = ''.join(facts.render(options.facts[area]) for area in ('command', 'json', 'formats', 'integrations'))
    text += ''.join(f'{name} = {value}\n' for name, value in options.facts['c'].items() if name.startswith(('symbol ', 'soname ')))
    kinds = [lambda changes, row=row: changes.change(*row, breaks=breaks) for row in rows]
    made_up(options, title, kinds, lambda chance, folder: breakages.Lines(chance, text),
            lambda changes: (facts.parse(text), facts.parse(unique(changes.text()))))


def unique(text):
    """Each line once: several additions may add the same."""
    return ''.join(f'{line}\n' for line in dict.fromkeys(text.splitlines()))


def fresh(folder):
    shutil.rmtree(folder, ignore_errors=True)
    return folder


def check_breaks_in_headers_are_found(options):
    headers(options, 'breaks in headers', breakages.C_BREAKS)


def check_additions_to_headers_break_nothing(options):
    headers(options, 'additions to headers', breakages.C_ADDITIONS)


def check_missing_symbols_are_found(options):
    """A library that lacks one function of all, and has another name."""
    work = fresh(options.work / 'symbols')
    work.mkdir()
    chance = random.Random(options.seed)
    names = sorted(name.split()[1] for name in options.facts['c'] if name.startswith('symbol '))
    for number in range(max(options.count, 1)):
        gone = chance.choice(names)
        library = work / f'{number}.so'
        c_facts.run('cc', '-shared', '-fPIC', '-w', '-Wl,-soname,libtessera.so.99', '-x', 'c', '-', '-o', library,
                    text=''.join(f'void {name}(void) {{}}\n' for name in names if name != gone))
        old = {name: value for name, value in options.facts['c'].items() if name.startswith(('symbol ', 'soname '))}
        found = [name for name, _ in facts.broken(old, dict(c_facts.library_facts(ROOT / 'include', library)))]
        expect('what is found', found, ['soname libtessera', f'symbol {gone}'])


def check_breaks_in_python_are_found(options):
    sources(options, 'breaks in Python', breakages.PY_BREAKS)


def check_additions_to_python_break_nothing(options):
    sources(options, 'additions to Python', breakages.PY_ADDITIONS)


def check_breaks_in_programs_are_found(options):
    runs(options, 'breaks in programs', breakages.RUN_BREAKS)


def check_additions_to_programs_break_nothing(options):
    runs(options, 'additions to programs', breakages.RUN_ADDITIONS)


def check_breaks_in_integrations_are_found(options):
    integrations(options, 'breaks in integrations', breakages.PLACE_BREAKS)


def check_additions_to_integrations_break_nothing(options):
    integrations(options, 'additions to integrations', breakages.PLACE_ADDITIONS)


def check_breaks_of_lines_are_found(options):
    lines(options, 'breaks of lines', breakages.LINE_BREAKS, True)


def check_additions_of_lines_break_nothing(options):
    lines(options, 'additions of lines', breakages.LINE_ADDITIONS, False)


def check_next_version(_):
    for version, broken, added, want in (('1.2.3', [], [], '1.2.4'), ('1.2.3', [], ['a'], '1.3.0'), ('1.2.3', ['a'], ['b'], '2.0.0'),
                                         ('0.1.0', [], ['a'], '0.2.0'), ('0.1.0', ['a'], [], '0.2.0'), ('0.1.9', [], [], '0.1.10')):
        expect(f'after {version}', contract.next_version(version, broken, added), want)
    expect('series', [contract.series(version) for version in ('0.1.2', '0.2.0', '1.0.0', '1.9.3')], [(0, 1), (0, 2), (1,), (1,)])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--tessera', type=Path, required=True)
    parser.add_argument('--gendocs', type=Path, required=True)
    parser.add_argument('--library', type=Path, required=True)
    parser.add_argument('--work', type=Path, required=True)
    parser.add_argument('--seed', type=int, default=1)
    parser.add_argument('--count', type=int, default=2)
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    options.tessera = options.tessera.resolve()
    options.work = options.work.resolve()
    options.facts = contract.collected(options.tessera, options.gendocs.resolve(), options.library.resolve(), options.work / 'now')
    options.headers = {name: value for name, value in options.facts['c'].items() if not name.startswith(('symbol ', 'soname '))}
    return tap.run(tap.named([check for name, check in globals().items() if name.startswith('check_')], options))


if __name__ == '__main__':
    sys.exit(main())
