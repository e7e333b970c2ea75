#!/usr/bin/env python3
"""run.py --tessera PATH --work FOLDER [--wine WINE --sqlite DLL] [--sanitized] [--accept] [CASE...]: what tessera prints, as TAP.

A file NAME.case holds commands and what they must do:

    # A comment; the last one above a command is the test's name.
    $ tessera peak --jsn
    ! tessera peak: unknown option '--jsn'; did you mean '--json'?
    ! Try 'tessera help peak'.
    = 2

`|` lines are standard output, `!` lines standard error, `=` is the exit status. Commands are run by
sh, each in the folder of the fixtures (fixtures.py), where only the fixtures are: names in the output
are the same on every machine. Control characters are written \\xNN or
\\uNNNN, and an output that does not end in a newline has a last line `\\ no newline`. How long something took shows as N seconds, and how large a
written file is as SIZE (it depends on zlib and on the page's template; tests/golden/test_files.py checks it).

--accept rewrites the cases with what the commands do now: read the difference before you commit it.
A command without a `=` line is one that nobody has accepted yet, and fails.

A tessera.exe is run by Wine, or by Windows itself, with a shell from elsewhere; Wine lacks the SQLite of Windows. windows.txt has
the cases that are not for it, and why; and sanitized.txt those that a sanitized build leaves out.
"""
import argparse
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

sys.dont_write_bytecode = True
import fixtures  # noqa: E402  (its bytecode would land in the source tree)
from runner import Case, Outcome, run_cases, tap  # noqa: E402

HERE = Path(__file__).resolve().parent
# What drives a terminal or reorders a line.
CONTROLS = re.compile('[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]')
# The user's settings that would change what tessera prints.
UNWANTED = ('NO_COLOR', 'COLUMNS', 'LINES', 'POSIXLY_CORRECT', 'VIRTUAL_ENV', 'CONDA_PREFIX', 'TESSERA_PYTHON')


def read_cases(path):
    """The file's cases, and the lines after the last."""
    cases, above = [], []
    for number, line in enumerate(path.read_text(encoding='utf-8').splitlines(), 1):
        if line.startswith('$ '):
            cases.append(Case(line[2:], above=above))
            above = []
        elif line[:1] in ('|', '!', '=') and cases and not above:
            cases[-1].expected.append(line)
        elif not line or line.startswith('#'):
            above.append(line)
        else:
            sys.exit(f'{path.name}:{number}: neither command, output nor comment: {line}')
    return cases, above


def marked(mark, output):
    """The output as lines of a case file."""
    text = output.decode('utf-8', 'backslashreplace').replace('\\', '\\\\')
    text = re.sub(r'(?<= took: )[0-9.e-]+(?= seconds)', 'N', text)
    text = re.sub(r'(: wrote [^\n]*), [0-9.]+ (?:[KMG]i)?B$', r'\1, SIZE', text, flags=re.MULTILINE)
    text = CONTROLS.sub(lambda found: f'\\x{ord(found[0]):02x}' if found[0] < '\u0100' else
                        f'\\u{ord(found[0]):04x}', text)
    lines = text.split('\n')
    if lines.pop():
        lines = text.split('\n') + ['\\ no newline']
    return [f'{mark} {line}' if line else mark for line in lines]


def add_windows_program(programs, name, binary, wine):
    """A name for a tessera.exe: the program itself, and under Wine a script that runs it."""
    program = programs / f'{name}.exe'
    shutil.copy(binary, program)
    if wine:
        (programs / name).write_text(f'#!/bin/sh\nexec "{wine}" "{program}" "$@"\n', encoding='utf-8')
        (programs / name).chmod(0o755)


def drop_ins(binary):
    """The other names of a tessera: those next to it, and where there are no links the ones that cmd/meson.build lists."""
    if binary.suffix != '.exe':
        return [path.name for path in binary.parent.glob('mosaic_*')]
    return re.findall(r"'(mosaic_\w+)'", (HERE.parents[1] / 'cmd' / 'meson.build').read_text(encoding='utf-8'))


def environment(binary, work, wine, sqlite):
    """PATH finds this tessera first, under its own name and those of the drop-ins next to it."""
    programs = work / 'bin'
    shutil.rmtree(programs, ignore_errors=True)
    programs.mkdir(parents=True)
    for name in ['tessera', *drop_ins(binary)]:
        if binary.suffix == '.exe':
            add_windows_program(programs, name, binary, wine)
        else:
            (programs / name).symlink_to(binary)
    if sqlite:
        shutil.copy(sqlite, programs / 'winsqlite3.dll')
    kept = {key: value for key, value in os.environ.items() if key not in UNWANTED}
    if wine:
        (work / 'wine').mkdir(exist_ok=True)
        kept |= {'WINEDEBUG': '-all', 'WINEPREFIX': str(work / 'wine')}
        # The first program makes that folder, and prints lines about it.
        subprocess.run([wine, programs / 'tessera.exe', '--version'], env=kept, capture_output=True, check=False)
    return {**kept, 'PATH': f'{programs}{os.pathsep}{os.environ["PATH"]}', 'LC_ALL': 'C.UTF-8' if wine else 'C',
            'TERM': 'xterm'}


def reasons_to_skip(name):
    """Of windows.txt or sanitized.txt: (a pattern of commands or names of cases, why they are not for that)."""
    lines = (HERE / name).read_text(encoding='utf-8').splitlines()
    found = [line.split('\t', 1) for line in lines if line and not line.startswith('#')]
    return [(re.compile(pattern), why.strip()) for pattern, why in found]


def why_not(case, reasons):
    return next((why for pattern, why in reasons if pattern.search(case.command) or pattern.search(case.name)), '')


def without_skipped(report, cases):
    """The cases that are for Windows; of the others, a line says why they are not."""
    reasons, kept = reasons_to_skip('windows.txt'), []
    for case in cases:
        if why := why_not(case, reasons):
            report.result(case.name, skipped=why)
        else:
            kept.append(case)
    return kept


def run(case, folder, env):
    """What the command does now, as lines of a case file."""
    done = Outcome(['sh', '-c', case.command], folder, env)
    return marked('|', done.out) + marked('!', done.err) + [f'= {done.status}']


def accept(path, cases, below):
    lines = []
    for case in cases:
        lines += case.above + [f'$ {case.command}'] + case.expected
    path.write_text('\n'.join(lines + below) + '\n', encoding='utf-8')


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--tessera', required=True, type=Path, help='the binary to run')
    parser.add_argument('--work', required=True, type=Path, help='folder for fixtures and output')
    parser.add_argument('--wine', help='the program that runs a tessera.exe; none on Windows')
    parser.add_argument('--sqlite', type=Path, help='what Wine takes for winsqlite3.dll')
    parser.add_argument('--sanitized', action='store_true', help='the binary is slow: leave out what sanitized.txt names')
    parser.add_argument('--accept', action='store_true', help='expect what happens now')
    parser.add_argument('cases', nargs='*', help='names of case files (default: all)')
    return parser.parse_args()


def main():
    options = arguments()
    work = options.work.resolve()
    folder = work / 'fixtures'
    shutil.rmtree(folder, ignore_errors=True)
    fixtures.write_all(folder)
    env = environment(options.tessera.resolve(), work, options.wine, options.sqlite)
    report = tap.Report()
    left_out = reasons_to_skip('sanitized.txt') if options.sanitized and not options.accept and not os.environ.get('TESSERA_WHOLE') else []
    for name in options.cases or sorted(path.stem for path in HERE.glob('*.case')):
        path = HERE / f'{name}.case'
        cases, below = read_cases(path)
        for case in cases:
            case.name = f'{path.stem}: {case.title()}'
        if options.tessera.suffix == '.exe':
            cases = without_skipped(report, cases)
        cases = [case for case in cases if not why_not(case, left_out)]
        run_cases(report, cases, lambda case: run(case, folder, env), options.accept)
        if options.accept:
            accept(path, cases, below)
    return report.end()


if __name__ == '__main__':
    sys.exit(main())
