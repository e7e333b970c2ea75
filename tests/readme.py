#!/usr/bin/env python3
"""readme.py --tessera PATH [--accept]: what the samples of README.md, docs/tour.md, docs/questions and docs/places show is what the commands print. Prints TAP.

A comment before a block names the parts of each output that the block shows; what is left out is "...":

    <!-- made by: tessera simulate gpt2 -q -o run.pickle -->
    <!-- sample: 1-2, /What to do/ +1 -->
    ```
    $ tessera peak run.pickle
    ...
    ```

A part is a range of lines, or the first line that matches a pattern, and the given number of lines after it; with several commands, their
parts are separated by semicolons. `made by` runs a command before the page's samples. --accept writes the samples again.

Commands of docs/questions and docs/places may be any of a shell, and each is in a sample; the other blocks of docs/places are tests/places.py's. `tests` there is the folder of that name."""
import argparse
import functools
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import tap

ROOT = Path(__file__).resolve().parents[1]
QUESTIONS = sorted([*(ROOT / 'docs/questions').glob('*.md'), *(path for path in (ROOT / 'docs/places').glob('*.md') if '<!-- sample: ' in path.read_text(encoding='utf-8'))])
PAGES = [ROOT / 'README.md', ROOT / 'docs/tour.md', *QUESTIONS]
# Columns: those of a wide terminal, and as many as the site shows.
WIDTH, QUESTIONS_WIDTH = '130', '96'
SAMPLE = re.compile(r'(<!-- sample: (.*?) -->\n```\n)(.*?)(```\n)', re.DOTALL)
MADE = re.compile(r'<!-- made by: (.*?) -->')
PART = re.compile(r'\s*(?:(\d+)(?:-(\d+))?|/(.*?)/(?:\s*\+(\d+))?)\s*(?:,|$)')


def programs(tessera, folder):
    """What PATH finds: tessera and the drop-ins; and the tests' files."""
    (folder / 'bin').mkdir()
    for name in ('tessera', *(path.name for path in tessera.parent.glob('mosaic_*'))):
        (folder / 'bin' / name).symlink_to(tessera)
    (folder / 'tests').symlink_to(ROOT / 'tests')


def output(page, folder, command):
    """What a terminal of that width would show, without colours."""
    kept = {name: value for name, value in os.environ.items() if name not in ('NO_COLOR', 'LINES')}
    given = {**kept, 'PATH': f'{folder / "bin"}{os.pathsep}{os.environ["PATH"]}', 'COLUMNS': QUESTIONS_WIDTH if page in QUESTIONS else WIDTH,
             'LC_ALL': 'C', 'PYTHONDONTWRITEBYTECODE': '1'}
    if page not in QUESTIONS and not command.startswith('tessera '):
        raise AssertionError(f'not a command of tessera: {command}')
    done = subprocess.run(['sh', '-c', command], cwd=folder, env=given, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False)
    if done.returncode > 1:
        raise AssertionError(f'{command}: exit status {done.returncode}')
    return done.stdout.splitlines()


def chosen(lines, parts):
    """The numbers, from 0, of the lines that are shown."""
    shown = set()
    for first, last, pattern, more in PART.findall(parts):
        if pattern:
            found = [number for number, line in enumerate(lines) if re.search(pattern, line)]
            if not found:
                raise AssertionError(f'no line matches /{pattern}/')
            shown.update(range(found[0], found[0] + int(more or 0) + 1))
        else:
            shown.update(range(int(first) - 1, int(last or first)))
    return sorted(number for number in shown if number < len(lines))


def shown(lines, parts, keeps_blanks):
    """The chosen lines, and "..." for each gap; `keeps_blanks`: a blank line for one of blank lines."""
    out, after = [], 0
    for number in chosen(lines, parts):
        if number > after and any(line for line in lines[after:number]):
            out.append('...')
        elif number > after and keeps_blanks:
            out.append('')
        out.append(lines[number])
        after = number + 1
    return out + ['...'] * any(line for line in lines[after:])


def sample(page, folder, match):
    commands = re.findall(r'(?m)^\$ (.*)$', match[3])
    parts = match[2].split(';')
    if len(commands) != len(parts):
        raise AssertionError(f'{len(commands)} commands and {len(parts)} lists of parts')
    text = ''
    for command, part in zip(commands, parts):
        text += ''.join(line.rstrip() + '\n' for line in [f'$ {command}', *shown(output(page, folder, command), part, page in QUESTIONS)])
    return match[1] + text + match[4]


def remade(tessera, page):
    """The page with its samples as the commands print them now."""
    text = page.read_text(encoding='utf-8')
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        programs(tessera, folder)
        for command in MADE.findall(text):
            output(page, folder, command)
        return text, SAMPLE.sub(functools.partial(sample, page, folder), text)


def check_page(tessera, page):
    before, after = remade(tessera, page)
    if before != after:
        new = [line for line in after.splitlines() if line not in before.splitlines()]
        raise AssertionError('stale samples; ./run generate writes them again: ' + ' | '.join(new[:3]))
    if page in QUESTIONS and re.search(r'(?m)^\$ ', SAMPLE.sub('', before)):
        raise AssertionError('a command that is in no sample')


def check_first_screen(_):
    """Picture, installation, recording, peak and why, within forty lines."""
    first = '\n'.join((ROOT / 'README.md').read_text(encoding='utf-8').splitlines()[:40])
    for part in ('![', './run install', 'TESSERA_RECORD', '$ tessera peak', '$ tessera why', 'What would help'):
        if part not in first:
            raise AssertionError(f'not in the first forty lines: {part}')


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--tessera', required=True, type=Path)
    parser.add_argument('--accept', action='store_true')
    given = parser.parse_args()
    tessera = given.tessera.resolve()
    if given.accept:
        for page in PAGES:
            page.write_text(remade(tessera, page)[1], encoding='utf-8')
        return 0
    tests = [(f'samples of {page.relative_to(ROOT)}', functools.partial(check_page, tessera, page)) for page in PAGES]
    return tap.run([*tests, ('the first forty lines', functools.partial(check_first_screen, tessera))])


if __name__ == '__main__':
    sys.exit(main())
