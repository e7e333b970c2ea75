"""`peak` fits on a screen: at most 45 lines of at most 100 columns in terminals of several widths and in a pipe, no two
rows of a table reading alike, and a tree that contains each row once and adds up.

The files are simulated runs, and real snapshots."""
import os
import re

import pytest
from support import cases, expect, real

LINES, COLUMNS = 45, 100
WIDTHS = (60, 80, 100, 120, 200, None)  # None: a pipe
UNITS = {'B': 1, 'KiB': 1 << 10, 'MiB': 1 << 20, 'GiB': 1 << 30}
# "4-6  441.71 MiB  3  ...": rows, bytes, allocations, and the indented text.
LINE = re.compile(r'^  +(?:(\d[\d, -]*?)  +)?([\d.]+) (B|[KMG]iB)  +([\d,]+)  ( *)(\S.*)$')


# "3  12.8 %    2.88 GiB     23  activation          model.py:434 ...", and the same with the name below.
ROW = re.compile(r'^ +\d+ +[\d.]+ % +[\d.]+ (?:B|[KMG]iB) +[\d,]+  +\w+(?: \+\d+)?(?:  +(\S.*))?$')
# What programs are like whose stacks are hard to tell apart in a few columns: a library calls everything.
SIMULATED = {
    'gpt2': ['gpt2', '--batch', '4'],
    'llama': ['llama-3.2-1b', '--dtype', 'bf16', '--seq', '2048', '--attention', 'eager', '--capacity', '16GiB'],
    'autocast': ['gpt2-medium', '--dtype', 'autocast-bf16', '--steps', '2', '--loss', 'chunked:256',
                 '--set', 'expandable_segments:True'],
}


@pytest.fixture
def path(tessera, work, given):
    """A simulated run, by its name, or a real snapshot."""
    if not isinstance(given, str):
        return given
    made = work / f'{given}.pickle'
    return made if made.exists() else tessera.simulate(*SIMULATED[given], out=made)


each = cases('given', [*SIMULATED, *real('*.pickle', '*.html')])


def peak(tessera, path, *options, columns=COLUMNS):
    stated = {'COLUMNS': str(columns)} if columns else {}
    return tessera.output('peak', *options, path, env={**os.environ, **stated})


def labels_of(lines):
    """The names of each table of stacks."""
    table = None
    for line in lines:
        if 'allocated at' in line:
            table = []
        elif table is not None:
            row = ROW.match(line)
            if row:
                table.append(row.group(1))
            elif table and table[-1] is None and line.startswith('     '):
                table[-1] = line.strip()
            else:
                yield table
                table = None
    if table is not None:
        yield table


@each
def test_screen(tessera, path):
    for columns in WIDTHS:
        lines = peak(tessera, path, columns=columns).splitlines()
        several = sum(line.startswith('Device') for line in lines) > 1
        if columns != 60 and not several:  # on a narrow terminal names have their own lines; several devices are long
            assert len(lines) <= LINES, f'{len(lines)} lines at {columns}'
        widest = max(lines, key=len)
        assert len(widest) <= min(columns or COLUMNS, COLUMNS), f'{len(widest)} columns at {columns}: {widest}'
        for options in ((), ('--top', '0')):
            tables = list(labels_of(peak(tessera, path, *options, columns=columns).splitlines()))
            assert tables, f'no table at {columns}'
            for labels in tables:
                assert labels and all(labels), labels
                twice = {label for label in labels if labels.count(label) > 1}
                assert not twice, f'at {columns}: {twice}'


@each
def test_categories(tessera, path):
    """What "parameter +2" adds up stands below the table, however full the screen is, or how to see it."""
    for columns in WIDTHS:
        text = peak(tessera, path, columns=columns)
        several = [int(row) for row in re.findall(r'^ +(\d+) +[\d.]+ % .* [a-z_]+ \+\d+(?:  .*)?$', text, flags=re.M)]
        table = re.search(r'^ +#  categories\n((?: +\d+  .*\n(?: {5}.*\n)*)*)', text, flags=re.M)
        told = [int(row) for row in re.findall(r'^ +(\d+)  \w', table[1] if table else '', flags=re.M)]
        if len(re.findall('^Device', text, flags=re.M)) == 1:
            assert told == several or '-v shows those of the other rows' in text and told == several[:len(told)], columns


def rows_of(text):
    """"1, 4-6": {1, 4, 5, 6}."""
    for part in text.split(', ') if text else []:
        first, _, last = part.partition('-')
        yield from range(int(first), int(last or first) + 1)


def trees_of(lines):
    """The lines of each tree: (rows, bytes as printed, allocations, level)."""
    tree = None
    for line in lines:
        if 'stacks of these rows' in line:
            tree = []
        elif tree is not None:
            found = LINE.match(line)
            if found:
                rows, number, unit, count, indent, _ = found.groups()
                tree.append((list(rows_of(rows)), float(number) * UNITS[unit], int(count.replace(',', '')),
                             len(indent) // 2))
            else:
                yield tree
                tree = None
    if tree is not None:
        yield tree


def check_sums(tree):
    """A branch has the allocations of its rows, and its bytes but for what printing rounds."""
    for i, (rows, size, count, level) in enumerate(tree):
        if rows:
            continue
        below = []
        for other in tree[i + 1:]:
            if other[3] <= level:
                break
            if other[3] == level + 1:
                below.append(other)
        assert len(below) > 1, 'a branch with one way to go'
        expect('allocations of a branch', sum(other[2] for other in below), count)
        assert abs(sum(other[1] for other in below) - size) <= 0.01 * size + 1, 'bytes of a branch'


@each
def test_tree(tessera, path):
    text = peak(tessera, path)
    lines = text.splitlines()
    answer = tessera.json('peak', '--top', 10, path)
    devices = [device for device in answer['devices'] if any(stack['frames'] for stack in device['stacks'])]
    trees = list(trees_of(lines))
    if len(answer['devices']) > 1:
        return  # several devices share the lines
    expect('trees', len(trees), len(devices))
    for device, tree in zip(devices, trees):
        rows = sorted(row for line in tree for row in line[0])
        cut = re.search(r'and the stacks of (\d+) more row', text)  # advice may take the room
        expect('rows in the tree', len(rows) + int(cut[1] if cut else 0), len(device['stacks']))
        assert set(rows) <= set(range(1, len(device['stacks']) + 1))
        for line in tree:
            if len(line[0]) == 1:
                expect('allocations of a row', line[2], device['stacks'][line[0][0] - 1]['allocations'])
        check_sums(tree)


@cases('given', real('*.pickle', '*.html'))
def test_paths(tessera, path):
    """No absolute path but the folder that the header names; -v has them, and every stack."""
    inside = False
    for line in peak(tessera, path).splitlines():
        if inside and re.search(r'  /\S+/\S+\.py:\d', line):
            raise AssertionError(f'an absolute path: {line}')
        inside = inside or 'stacks of these rows' in line
    text = peak(tessera, path, '-v')
    stacks = tessera.json('peak', '--top', 10, path)['devices']
    full = sum(1 for device in stacks for stack in device['stacks'] if stack['frames'])
    assert len(re.findall(r'^#\d+  ', text, re.M)) >= full, 'a stack is missing in -v'
