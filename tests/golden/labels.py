#!/usr/bin/env python3
"""What lists call a stack: no two rows read alike, and none is called after the allocator, the interpreter or
generated code. Of every real snapshot, in every list of stacks, in a narrow and a wide terminal.
Prints TAP.

usage: labels.py --tessera PATH

The snapshots are in ../shared next to the checkout; where they are absent, the tests are skipped and say
so."""
import argparse
import fcntl
import functools
import itertools
import json
import os
import pty
import re
import struct
import subprocess
import sys
import tempfile
import termios
from pathlib import Path

from agree import numbers, read_page
from support import SNAPSHOTS, Skip, run_tests, skip

# What no row may be called after.
ALLOCATOR = r'CUDACachingAllocator|c10::|at::detail::|empty_(strided_)?(cuda|generic)|cudaMalloc'
INTERPRETER = r'\b_?Py[A-Z_]\w*_|\bPy_|_start\b|__libc|runpy|<frozen'
GENERATED = r'torchinductor|\bc[a-z2-7]{20,}|<eval_with_key>|<string>|\.triton'
BAD = re.compile('|'.join((ALLOCATOR, INTERPRETER, GENERATED)))

LISTS = [['peak'], ['leaks'], ['why'], ['check', '--max', '1KiB', '--top', '0'],
         ['whatif', '--set', 'expandable_segments:True'], *(['profile', '--by', by] for by in ('line', 'op', 'module', 'stack'))]
COLUMNS = (60, 80, 100, 120)


# Their rows are of one category each.
WITH_CATEGORY = ('why', 'check')
TITLE = re.compile(r'allocated at(?:  |$)|(?:in use|requested), by line|(?:^| )function$|^  (?:line|operation|module)(?:  |$)')


def named(line, first, header):
    """(category, name) of a row whose name begins at the column `first`."""
    # Two spaces end a name; the columns after it, if any, are numbers.
    name = re.split(r'  +', line[first:].strip())[0]
    at = header.find('category')
    return line[at:].split()[0] if 0 <= at < first else '', name


def folded_rows(lines, is_above, header):
    """The same of a table whose names have lines of their own."""
    pairs = list(zip(lines[::2], lines[1::2]))
    for name, numbers in pairs if is_above else [pair[::-1] for pair in pairs]:
        at = header.find('category')
        yield numbers[at:].split()[0] if at >= 0 else '', name.strip()


def rows_of(text):
    """The rows of each table whose header names a place: (category, name). `why` has a row for each category
    of a line."""
    lines, tables, number = text.splitlines(), [], 0
    while number < len(lines):
        title = TITLE.search(lines[number])
        number += 1
        if not title or not lines[number - 1].startswith('  '):
            continue
        header = lines[number - 1]
        is_folded, is_above = header.strip() == title.group(0).strip(), not header.startswith('   ')
        number += is_folded and is_above
        end = number
        while end < len(lines) and lines[end].startswith('  ') and not lines[end].startswith('  ... and '):
            end += 1
        if is_folded:
            numbers = '' if is_above else lines[number - 2]
            tables.append(list(folded_rows(lines[number:end], is_above, numbers)))
        else:
            first = header.index(title.group(0).strip())
            tables.append([named(line, first, header) for line in lines[number:end]])
        number = end
    return [table for table in tables if table]


def check(names, what, with_category):
    keys = names if with_category else [name for _, name in names]
    twice = {key for key in keys if keys.count(key) > 1}
    if twice:
        raise AssertionError(f'{what}: rows that read alike: {sorted(twice)}')
    bad = [name for _, name in names if BAD.search(name)]
    if bad:
        raise AssertionError(f'{what}: named after what is not the program: {bad}')


LINE = re.compile(r'[^\s:]+(:\d+)(?= |,|\.\.\.|$)')


def check_lines(names, whole, what):
    """A row that names a line names one however narrow the terminal is: the first; or, where other rows share
    that, one of a later place or of a caller. A name that is cut in a pipe, too, may have had others."""
    assert len(names) == len(whole), f'{what}: {len(names)} rows instead of {len(whole)}'
    firsts = [re.match(LINE, full) for _, full in whole]
    for (_, name), (_, full), first in zip(names, whole, firsts):
        lines = LINE.findall(full)
        if not first:
            continue
        is_shared = sum(other is not None and other.group() == first.group() for other in firsts) > 1
        shown = lines if is_shared else lines[:1]
        if any(re.search(re.escape(line) + r'(?= |,|$)', name) for line in shown):
            continue
        if not (is_shared and '...' in full and LINE.search(name)):
            raise AssertionError(f'{what}: {full!r} lost its line: {name!r}')


def run(tessera, command, paths, columns=None):
    """What the command prints to a terminal of that width; without one, to a pipe."""
    words = [tessera, *command, '-q', '--color', 'never', *map(str, paths)]
    env = {name: value for name, value in os.environ.items() if name != 'COLUMNS'}
    if columns is None:
        return subprocess.run(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL, env=env, check=False).stdout.decode()
    parent, child = pty.openpty()
    fcntl.ioctl(child, termios.TIOCSWINSZ, struct.pack('HHHH', 50, columns, 0, 0))
    process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=child, stderr=subprocess.DEVNULL,
                               env=env)
    os.close(child)
    out = b''
    while True:
        try:
            part = os.read(parent, 1 << 16)
        except OSError:  # Linux: the other end is closed
            break
        if not part:
            break
        out += part
    os.close(parent)
    process.wait()
    return out.decode().replace('\r\n', '\n')


def check_list(tessera, command, paths):
    what = f'{" ".join(command)} {paths[-1].name}'
    whole = rows_of(run(tessera, command, paths))
    for names in whole:
        check(names, f'{what}, in a pipe', command[0] in WITH_CATEGORY)
    for columns in COLUMNS:
        tables = rows_of(run(tessera, command, paths, columns))
        assert len(tables) == len(whole), f'{what}, {columns} columns: {len(tables)} tables'
        for names, full in zip(tables, whole):
            check(names, f'{what}, {columns} columns', command[0] in WITH_CATEGORY)
            check_lines(names, full, f'{what}, {columns} columns')
    return sum(map(len, whole))


def check_file(tessera, path):
    found = sum(check_list(tessera, command, [path]) for command in LISTS)
    assert found or path.name == 'tiny-no-trace.pickle', 'no row was found at all'


def check_pair(tessera, old, new):
    for by in ('stack', 'line', 'op'):
        check_list(tessera, ['diff', '--by', by], [old, new])


def check_page(tessera, path):
    """The page's name of each stack that it has."""
    html = subprocess.run([tessera, 'view', '-q', str(path)], stdin=subprocess.DEVNULL, check=True,
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout.decode()
    _, columns, tracks = read_page(html)
    labels, strings = numbers(columns['labels']), json.loads(columns['strings'])
    nodes = sorted({node - 1 for track in tracks for node in track.nodes if node})
    unnamed = [node for node in nodes if not labels[node]]
    assert not unnamed, f'stacks without a name: {unnamed[:5]}'
    check([('', strings[labels[node] - 1]) for node in nodes], f'page of {path.name}', False)


def check_window(tessera, path):
    """Rows of a part of a trace: stacks that are left may have lost what told them apart."""
    events = [trace['events'] for trace in
              json.loads(run(tessera, ['info', '--json'], [path]))['devices']]
    if not events or max(events) < 100:
        raise Skip('too few events')
    with tempfile.TemporaryDirectory() as folder:
        part = Path(folder) / f'part-of-{path.stem}.pickle'
        middle = max(events) // 2
        run(tessera, ['trim', '--events', f'{middle - 40}..{middle + 40}', '-o', str(part)], [path])
        for command in LISTS[:1] + LISTS[-4:]:
            check_list(tessera, command, [part])


# What is simulated: models and plans whose blocks allocate at the same lines.
SIMULATED = (['gpt2', '--batch', '2', '--seq', '64', '--steps', '2'],
             ['llama-3.2-1b', '--seq', '64', '--checkpoint', 'full', '--accumulate', '2', '--steps', '1'])


def check_simulated(tessera, options):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f'simulated-{options[0]}.pickle'
        run(tessera, ['simulate', *options, '-o', str(path)], [])
        assert path.exists(), f'nothing was simulated with {options}'
        found = sum(check_list(tessera, command, [path]) for command in LISTS)
        assert found, 'no row was found at all'


def tests(tessera):
    for options in SIMULATED:
        yield f'names in simulated {" ".join(options)}', functools.partial(check_simulated, tessera, options)
    if not SNAPSHOTS.is_dir():
        yield 'names in real snapshots', skip(f'{SNAPSHOTS} is absent')
        return
    paths = sorted(path for path in SNAPSHOTS.iterdir() if path.suffix in ('.pickle', '.html'))
    for path in paths:
        yield f'names in {path.name}', functools.partial(check_file, tessera, path)
        yield f'names in a part of {path.name}', functools.partial(check_window, tessera, path)
        yield f'names in the page of {path.name}', functools.partial(check_page, tessera, path)
    for old, new in itertools.pairwise([path for path in paths if path.name.startswith('train')]):
        yield (f'names in what changed from {old.name} to {new.name}',
               functools.partial(check_pair, tessera, old, new))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--tessera', required=True)
    return run_tests(tests(parser.parse_args().tessera))


if __name__ == '__main__':
    sys.exit(main())
