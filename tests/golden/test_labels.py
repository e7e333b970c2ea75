"""What lists call a stack: no two rows read alike, and none is called after the allocator, the interpreter or
generated code. Of every real snapshot, in every list of stacks, in a narrow and a wide terminal."""
import fcntl
import itertools
import json
import os
import pty
import re
import struct
import subprocess
import termios

import pytest
from readers import numbers, read_page
from support import absent, cases, real

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
    for name, figures in pairs if is_above else [pair[::-1] for pair in pairs]:
        at = header.find('category')
        yield figures[at:].split()[0] if at >= 0 else '', name.strip()


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
            figures = '' if is_above else lines[number - 2]
            tables.append(list(folded_rows(lines[number:end], is_above, figures)))
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
    words = [*command, '-q', '--color', 'never', *paths]
    if columns is None:
        return tessera.output(*words, status=None)
    parent, child = pty.openpty()
    fcntl.ioctl(child, termios.TIOCSWINSZ, struct.pack('HHHH', 50, columns, 0, 0))
    with subprocess.Popen([tessera, *map(str, words)], stdin=subprocess.DEVNULL, stdout=child, stderr=subprocess.DEVNULL):
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


PATHS = real('*.pickle', '*.html')
each_file = cases('path', PATHS)


@each_file
def test_file(tessera, path):
    found = sum(check_list(tessera, command, [path]) for command in LISTS)
    assert found or path.name == 'tiny-no-trace.pickle', 'no row was found at all'


TRAINED = [path for path in PATHS if getattr(path, 'name', '').startswith('train')]


@cases('old, new', list(itertools.pairwise(TRAINED)) or [absent(None, None)])
def test_pair(tessera, old, new):
    for by in ('stack', 'line', 'op'):
        check_list(tessera, ['diff', '--by', by], [old, new])


@each_file
def test_page(tessera, path):
    """The page's name of each stack that it has."""
    _, columns, tracks = read_page(tessera.output('view', '-q', path))
    labels, strings = numbers(columns['labels']), json.loads(columns['strings'])
    nodes = sorted({node - 1 for track in tracks for node in track.nodes if node})
    unnamed = [node for node in nodes if not labels[node]]
    assert not unnamed, f'stacks without a name: {unnamed[:5]}'
    check([('', strings[labels[node] - 1]) for node in nodes], f'page of {path.name}', False)


@each_file
def test_window(tessera, work, path):
    """Rows of a part of a trace: stacks that are left may have lost what told them apart."""
    events = [trace['events'] for trace in tessera.json('info', path, status=None)['devices']]
    if not events or max(events) < 100:
        pytest.skip('too few events')
    middle, part = max(events) // 2, work / f'part-of-{path.stem}.pickle'
    tessera.run('trim', '--events', f'{middle - 40}..{middle + 40}', '-o', part, path)
    for command in LISTS[:1] + LISTS[-4:]:
        check_list(tessera, command, [part])


# What is simulated: models and plans whose blocks allocate at the same lines.
SIMULATED = (['gpt2', '--batch', '2', '--seq', '64', '--steps', '2'],
             ['llama-3.2-1b', '--seq', '64', '--checkpoint', 'full', '--accumulate', '2', '--steps', '1'])


@cases('options', SIMULATED)
def test_simulated(tessera, work, options):
    path = tessera.simulate(*options, out=work / f'simulated-{options[0]}.pickle')
    found = sum(check_list(tessera, command, [path]) for command in LISTS)
    assert found, 'no row was found at all'
