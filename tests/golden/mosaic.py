#!/usr/bin/env python3
"""Drop-ins print what Mosaic printed, byte for byte. Prints TAP.

usage: mosaic.py --tessera PATH --work FOLDER

JSON is compared with what Python's json module writes of the same pickle, and annotations with
what repr() says of them: of odd snapshots made here, in all protocols, and of real ones.
Everything else is compared with what Mosaic itself printed, of real snapshots. Those, and
Mosaic's output, are in ../shared next to the checkout; where they are absent, that is skipped."""
import argparse
import json
import pathlib
import pickle
import re
import shutil
import subprocess
import sys

from support import SHARED, SNAPSHOTS, load, run_tests, skip

MOSAIC = SHARED / 'expected' / 'mosaic'
LARGE = 'train-ctx1024-torch2.11.pickle'
DIFFS = {
    'diff-forward-to-train': ('forward-ctx150-torch2.6', 'train-ctx100-annotated-torch2.6'),
    'diff-train-ctx100-to-ctx200': ('train-ctx100-annotated-torch2.6',
                                    'train-ctx200-autocast-annotated-torch2.6'),
}
PEAK = 'mosaic_get_memory_usage_peak'
STAGES = 'mosaic_get_memory_usage_by_annotation_stage'
# By name of the expected file in a snapshot's folder: the command that prints it.
OF_ONE = {
    'peak': [PEAK],
    'stages': [STAGES],
}


def run(tessera, words, cwd):
    """Standard output and error of a drop-in, started by its link."""
    done = subprocess.run([tessera.parent / words[0], *words[1:]], cwd=cwd, capture_output=True,
                          check=False)
    if done.returncode != 0:
        raise AssertionError(f'exit {done.returncode}: {done.stderr.decode()}')
    return done.stdout.decode(), done.stderr.decode()


def expect_same(what, got, want):
    if got == want:
        return
    at = next((i for i, (a, b) in enumerate(zip(got, want)) if a != b), min(len(got), len(want)))
    raise AssertionError(f'{what}: {len(got)} characters, not {len(want)}; from {at} on: '
                         f'{got[at:at + 60]!r}, not {want[at:at + 60]!r}')


# ---- Mosaic's own output ----

def bytes_of_group(group):
    return float(re.search(r'Memory Usage: (\S+) GiB', group)[1])


def groups_of(text):
    """The groups, each with its empty line before it; equal sizes in the order of their text, since
    a diff visits a set, whose order is another each time Mosaic runs."""
    groups = re.split(r'(?m)^(?=\nNum of Calls)', text)
    if [bytes_of_group(g) for g in groups[1:]] != sorted(map(bytes_of_group, groups[1:]),
                                                         reverse=True):
        raise AssertionError('groups are not in the order of their size')
    return sorted(group.strip('\n') for group in groups)


def check_printed(tessera, words, expected, in_any_order=False):
    out, log = run(tessera, words, SNAPSHOTS)
    expect_same('log', '\n'.join(line for line in log.splitlines() if line.startswith('INFO:')),
                expected.with_suffix('.err').read_text().rstrip('\n'))
    want = expected.with_suffix('.out').read_text()
    if in_any_order:
        expect_same('length', len(out) * ' ', len(want) * ' ')
        out, want = '\n'.join(groups_of(out)), '\n'.join(groups_of(want))
    expect_same('output', out, want)


def window_of(path):
    """The options in a file of words such as start_time=1."""
    words = []
    for word in path.read_text().split():
        name, value = word.split('=')
        words += [f'--{name}', value]
    return words


def moments(tessera):
    for path in sorted((MOSAIC / '_at').glob('*.out')):
        words = [PEAK if path.stem.startswith('peak') else 'mosaic_get_memory_usage',
                 '--snapshot', LARGE]
        named = re.match(r'(?:usage|peak-until)-(\w+_\d+)-(\w+)$', path.stem)
        if named:
            words += ['--allocation', named[1], '--action', named[2]]
        else:
            words += window_of(path.with_suffix('.args'))
        yield path.stem, lambda words=words, path=path: check_printed(tessera, words, path)


def printed(tessera):
    for kind, command in OF_ONE.items():
        for path in sorted(MOSAIC.glob(f'[!_]*/{kind}.out')):
            name = path.parent.name
            words = [*command, '--snapshot', f'{name}.pickle']
            yield f'{kind} {name}', lambda words=words, path=path: check_printed(
                tessera, words, path)
    yield from moments(tessera)
    for name, (base, newer) in DIFFS.items():
        words = ['mosaic_get_memory_usage_diff', '--snapshot_base', f'{base}.pickle',
                 '--snapshot_diff', f'{newer}.pickle']
        path = MOSAIC / '_pairs' / f'{name}.out'
        yield name, lambda words=words, path=path: check_printed(tessera, words, path, True)


# ---- what Python would write ----

def check_json(tessera, path, work, want=None):
    written = work / 'written.json'
    run(tessera, ['mosaic_get_json_snapshot', '--snapshot', path, '--output_file', written], work)
    expect_same('JSON', written.read_text(encoding='ascii'),
                want or json.dumps(load(path), indent=4))
    written.unlink()


def check_repr(tessera, path, work):
    """Each annotation as print() shows it; names may hold line ends, repr() does not."""
    out, _ = run(tessera, [STAGES, '--snapshot', path], work)
    want = [repr(annotation) for annotation in load(path)['external_annotations']]
    got = re.findall(r' GiB\. Annotation: (.*)\n', out)
    expect_same('annotations', '\n'.join(got), '\n'.join(want))


def odd_snapshot():
    """Keys in orders that no PyTorch has, and values that need care."""
    frame = {'line': -1, 'name': "it's", 'filename': 'a"\\\n\t\x7f\u2028é\U0001f600.py'}
    texts = ["'", '"', '\'"', '\\', '\n\r\t\x00\x1b\x7f\xa0\xad', 'é€\U0001f600', '\u200b\ue000\uffff',
             '', 'plain']
    reals = [0.0, -0.0, 1e16, 1e15, 123456789012345678.0, 1e-4, 1e-5, 0.1, 1 / 3, 5e-324, 1.5e300,
             2.0**70, 2**-44, 100.0]
    event = {'size': 512, 'frames': [frame, {'name': None, 'filename': 'x', 'line': 2**64 - 1}],
             'action': 'alloc', 'extra': {'b': [], 'a': {}, '': (1, (2,), ())}, 'addr': 4096,
             'time_us': 5, 'stream': 0}
    plain = {'action': 'free_completed', 'addr': 4096, 'size': 512, 'stream': 0, 'time_us': 7,
             'frames': []}
    late = {'action': 'alloc', 'addr': 8192, 'size': 1.5, 'stream': 0, 'time_us': 7, 'frames': [frame],
            'compile_context': 'N/A'}
    block = {'state': 'inactive', 'size': 512, 'more': None, 'address': 4096, 'requested_size': 0,
             'frames': []}
    segment = {'blocks': [block], 'address': 4096, 'device': 0, 'total_size': 512, 'stream': 0,
               'segment_type': 'small', 'is_expandable': True, 'frames': []}
    annotations = [{'name': text, 'stage': 'START', 'device': 0, 'time_us': 6} for text in texts]
    annotations += [{'time_us': 9, 'x': real, 'stage': 'END', 'y': [True, None, ('z',)],
                     'name': 'reals', 'device': 0} for real in reals]
    return {'external_annotations': annotations, 'note': {'π': reals, 'n': -2**63, 'N': 2**64 - 1, 'v': -10**99},
            'device_traces': [[event, plain, late], []], 'segments': [segment]}


def made_here(tessera, work):
    for protocol in range(6):
        path = work / f'odd-{protocol}.pickle'
        path.write_bytes(pickle.dumps(odd_snapshot(), protocol=protocol))
        yield f'JSON of protocol {protocol}', lambda path=path: check_json(tessera, path, work)
        yield f'repr of protocol {protocol}', lambda path=path: check_repr(tessera, path, work)
    path = work / 'odd.json'
    path.write_text(json.dumps(odd_snapshot()))
    want = json.dumps(odd_snapshot(), indent=4)
    yield 'JSON of JSON', lambda: check_json(tessera, path, work, want)


def read_by_python(tessera, work):
    for path in sorted(SNAPSHOTS.glob('*.pickle')):
        if path.stat().st_size < 1 << 20:
            yield f'JSON of {path.name}', lambda path=path: check_json(tessera, path, work)
    for path in sorted((MOSAIC / '_json').glob('*.json')):
        name = SNAPSHOTS / f'{path.stem}.pickle'
        yield f"Mosaic's {path.name}", lambda path=path, name=name: check_json(
            tessera, name, work, path.read_text())


def tests(tessera, work):
    yield from made_here(tessera, work)
    if SHARED.is_dir():
        yield from printed(tessera)
        yield from read_by_python(tessera, work)
    else:
        yield 'real snapshots', skip('../shared is absent')


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('--tessera', required=True, type=pathlib.Path)
    parser.add_argument('--work', required=True, type=pathlib.Path)
    arguments = parser.parse_args()
    shutil.rmtree(arguments.work, ignore_errors=True)
    arguments.work.mkdir(parents=True)
    return run_tests(tests(arguments.tessera.resolve(), arguments.work.resolve()))


if __name__ == '__main__':
    sys.exit(main())
