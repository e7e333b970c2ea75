"""Drop-ins print what Mosaic printed, byte for byte.

JSON is compared with what Python's json module writes of the same pickle, and annotations with
what repr() says of them: of odd snapshots made here, in all protocols, and of real ones.
Everything else is compared with what Mosaic itself printed, of real snapshots."""
import json
import pickle
import re

import pytest
from support import SHARED, SNAPSHOTS, Tessera, absent, cases, load, real

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
    done = Tessera(tessera.path.parent / words[0], is_link=True).run(*words[1:], cwd=cwd)
    return done.stdout, done.stderr


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


def moment(path):
    """The words of the command that printed it."""
    named = re.match(r'(?:usage|peak-until)-(\w+_\d+)-(\w+)$', path.stem)
    return [PEAK if path.stem.startswith('peak') else 'mosaic_get_memory_usage', '--snapshot', LARGE,
            *(['--allocation', named[1], '--action', named[2]] if named else window_of(path.with_suffix('.args')))]


def printed():
    for kind, command in OF_ONE.items():
        for path in sorted(MOSAIC.glob(f'[!_]*/{kind}.out')):
            yield f'{kind} {path.parent.name}', [*command, '--snapshot', f'{path.parent.name}.pickle'], path
    for path in sorted((MOSAIC / '_at').glob('*.out')):
        yield path.stem, moment(path), path
    for name, (base, newer) in DIFFS.items() if MOSAIC.is_dir() else ():
        yield name, ['mosaic_get_memory_usage_diff', '--snapshot_base', f'{base}.pickle', '--snapshot_diff',
                     f'{newer}.pickle'], MOSAIC / '_pairs' / f'{name}.out'


@pytest.mark.parametrize('words, path', [pytest.param(words, path, id=title) for title, words, path in printed()] or [absent(None, None)])
def test_printed(tessera, words, path):
    check_printed(tessera, words, path, path.stem in DIFFS)


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


@pytest.fixture(params=range(6))
def odd(work, request):
    path = work / f'odd-{request.param}.pickle'
    path.write_bytes(pickle.dumps(odd_snapshot(), protocol=request.param))
    return path


def test_json(tessera, work, odd):
    check_json(tessera, odd, work)


def test_repr(tessera, work, odd):
    check_repr(tessera, odd, work)


def test_json_of_json(tessera, work):
    path = work / 'odd.json'
    path.write_text(json.dumps(odd_snapshot()))
    check_json(tessera, path, work, json.dumps(odd_snapshot(), indent=4))


SMALL = [path for path in real() if SHARED.is_dir() and path.stat().st_size < 1 << 20]


@cases('path', SMALL or [absent(None)])
def test_json_of_real(tessera, work, path):
    check_json(tessera, path, work)


@cases('path', sorted((MOSAIC / '_json').glob('*.json')) or [absent(None)])
def test_json_of_mosaic(tessera, work, path):
    check_json(tessera, SNAPSHOTS / f'{path.stem}.pickle', work, path.read_text())
