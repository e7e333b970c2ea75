"""Traces of torch.profiler as an input: twelve recorded on the CPU (tests/torch/kineto.py), and random ones.

The truth of a recorded trace is computed from its JSON in the slowest way that there is (kineto_truth.py); that of a random one is known because
it was made from it. PyTorch's own memory timeline of three of the runs is a second witness of totals and categories."""
import gzip
import io
import json
import lzma
import os
import shutil
import subprocess
import zipfile

import kineto_truth
import pytest
from support import HERE, cases, expect

TRACES = sorted((HERE / 'kineto').glob('*.pt.trace.json.gz'))
SEEDS = range(2000) if os.environ.get('TESSERA_WHOLE') else range(60)
TIMELINES = ('attention', 'cnn', 'mlp')


def rows_of(tessera, path, stdin=None):
    """The events of each device, in order, from the table."""
    answer = subprocess.run([tessera, 'sql', str(path), '--output', 'json',
                             'select device, event, action, address, size_bytes, time_us, allocated_bytes, reserved_bytes from events '
                             'order by device, event'], input=stdin, capture_output=True, check=False)
    expect('exit status', (answer.returncode, answer.stderr[-300:] if answer.returncode else b''), (0, b''))
    found = {}
    for row in json.loads(answer.stdout):
        found.setdefault(row['device'], []).append(row)
    return found


def ask(tessera, *words, status=0):
    answer = subprocess.run([tessera, *map(str, words)], capture_output=True, text=True, check=False)
    expect(f'exit status of {words[0]}', (answer.returncode, answer.stderr[-300:] if answer.returncode != status else ''), (status, ''))
    return answer


def peak_of(tessera, path, device):
    answer = json.loads(ask(tessera, 'peak', '--json', '--top', 0, '--device', device, path).stdout)['devices'][0]
    stacks = {}
    for row in answer['stacks']:
        key = tuple((f['name'], f['file'], f['line']) for f in row['frames'])
        stacks[key] = stacks.get(key, 0) + row['bytes']
    return answer['peak'], stacks


@cases('path', TRACES)
def test_recorded(tessera, path):
    """Totals are the trace's own at every event; peaks by stack are those of a ledger."""
    trace = kineto_truth.read(gzip.decompress(path.read_bytes()))
    stacks, truth = kineto_truth.Stacks(trace), kineto_truth.rows_of(trace)
    got = rows_of(tessera, path)
    expect('devices', sorted(got, key=str), sorted(truth, key=str))
    for device, rows in truth.items():
        expect('events', len(got[device]), len(rows))
        ledger = kineto_truth.Ledger(rows[0].total - rows[0].bytes)
        for i, (row, event) in enumerate(zip(rows, got[device])):
            expect(f'total at {i}', (event['allocated_bytes'], event['action'], event['address'], event['size_bytes']),
                   (row.total, 'alloc' if row.bytes > 0 else 'free_completed', row.address, abs(row.bytes)))
            expect(f'time of {i}', event['time_us'], (row.time_ns + int(trace['baseTimeNanoseconds'])) // 1000)
            ledger.apply(i, row, stacks.at(row.thread, row.time_ns))
        peak, by_stack = peak_of(tessera, path, device)
        expect('peak', (peak['allocated_bytes'], peak['event']), (ledger.peak, ledger.peak_index))
        want = {stack: size for stack, size in ledger.stacks()[0].items() if size}
        expect('bytes by stack', {stack: by_stack.get(stack) for stack in want if stack}, {stack: size for stack, size in want.items() if stack})
        expect('bytes without a stack', by_stack.get((), 0), ledger.peak - sum(size for stack, size in want.items() if stack))


@cases('seed', SEEDS, ids=str)
def test_random(tessera, work, seed):
    made = kineto_truth.Made(seed)
    path = work / 'random.json'
    path.write_text(made.text(), encoding='utf-8')
    if not made.rows:
        if made.is_list and not made.events:
            return  # an empty list is a snapshot without segments
        answer = ask(tessera, 'info', path, status=3)
        assert 'profile_memory=True' in answer.stderr or 'JSON' in answer.stderr, answer.stderr
        return
    got = rows_of(tessera, path)
    truth = {}
    for row in made.rows:
        truth.setdefault(row[0], []).append(row[1:])
    expect('devices', sorted(got, key=str), sorted(truth, key=str))
    for device, rows in truth.items():
        check_device(tessera, path, made, device, rows, got[device])


def check_device(tessera, path, made, device, rows, got):
    """`got` may have events more: those that explain a total."""
    where = iter(got)
    highest, at = None, None
    added = 0
    for action, size, total, reserved, by_stack, time_us in rows:
        event = next(where)
        while (event['action'], event['time_us']) != (action, time_us) or (action != 'oom' and event['size_bytes'] != size) or (
                event['address'] > 1 << 60):
            added += 1
            event = next(where)
        if total is not None:
            expect(f'total at {event["event"]}', event['allocated_bytes'], total)
            if device != 'cpu':
                expect(f'reserved at {event["event"]}', event['reserved_bytes'], reserved)
    expect('events at the end', list(where), [])
    if not made.moves[device]:
        expect('events that nobody recorded', added, 0)
    best = max(got, key=lambda event: (event['allocated_bytes'], -event['event']))
    for i, (action, size, total, reserved, by_stack, time_us) in enumerate(rows):
        held = sum(by_stack.values())
        if highest is None or (total if total is not None else held) > highest:
            highest, at = (total if total is not None else held), by_stack
    peak, by_stack = peak_of(tessera, path, device)
    if made.has_totals and peak['event'] >= 0 and best['allocated_bytes'] == highest and not made.moves[device]:
        expect('peak', peak['allocated_bytes'], highest)
        expect('bytes by stack', {s: b for s, b in by_stack.items() if s}, {s: b for s, b in at.items() if s})
    if not made.has_totals and peak['event'] >= 0:
        expect('bytes by stack', {s: b for s, b in by_stack.items() if s}, {s: b for s, b in at.items() if s})


def zipped(data):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, 'w', zipfile.ZIP_DEFLATED) as archive:
        archive.writestr('rank0.pt.trace.json', data)
    return buffer.getvalue()


def zstd(data):
    if not shutil.which('zstd'):
        pytest.skip('zstd is not installed')
    return subprocess.run(['zstd', '-q'], input=data, capture_output=True, check=True).stdout


FORMS = {'plain': lambda data: data, 'gz': gzip.compress, 'xz': lzma.compress, 'zst': zstd, 'zip': zipped}


@cases('form', list(FORMS), ids=str)
def test_forms(tessera, work, form):
    """However a trace is wrapped, from a file or from standard input, the answer is the same."""
    data = gzip.decompress((HERE / 'kineto' / 'lstm.pt.trace.json.gz').read_bytes())
    want = rows_of(tessera, HERE / 'kineto' / 'lstm.pt.trace.json.gz')
    path = work / f'trace.{form}'
    path.write_bytes(FORMS[form](data))
    assert rows_of(tessera, path) == want
    assert rows_of(tessera, '-', path.read_bytes()) == want
    assert 'kineto' in ask(tessera, 'info', path).stdout.split('\n')[0]


def test_warnings(tessera, work):
    """Each thing that a trace cannot know is said once, with its number."""
    def codes(path):
        return {w['code']: w['count'] for w in json.loads(ask(tessera, 'info', '--json', path).stdout)['warnings']}
    assert codes(HERE / 'kineto' / 'gan.pt.trace.json.gz') == {'no-segments': 1, 'before-by-totals': 991032}
    assert codes(HERE / 'kineto' / 'lstm.pt.trace.json.gz').keys() == {'no-segments', 'no-stacks', 'before-by-totals'}
    old = {'traceEvents': [{'ph': 'i', 'name': '[memory]', 'ts': i, 'pid': 1, 'tid': 1, 'args': {'Device Type': 0, 'Device Id': -1, 'Bytes': size}}
                           for i, size in enumerate((64, 64, -64, -64, -8))]}
    path = work / 'old.json'
    path.write_text(json.dumps(old))
    assert codes(path) == {'no-segments': 1, 'no-totals': 1, 'no-addresses': 5, 'no-stacks': 1}
    text = (work / 'cut.json')
    text.write_bytes(gzip.decompress((HERE / 'kineto' / 'gan.pt.trace.json.gz').read_bytes())[:-100_000])
    assert codes(text) == {'truncated': 1, 'no-segments': 1, 'before-by-totals': 991032}


def test_refusals(tessera, work):
    """What needs an allocator's segments is refused."""
    trace = HERE / 'kineto' / 'gan.pt.trace.json.gz'
    assert 'no segments or blocks to write' in ask(tessera, 'trim', trace, '-o', work / 'x.pickle', status=2).stderr
    assert not (work / 'x.pickle').exists()
    empty = work / 'empty.json'
    empty.write_text('{"schemaVersion": 1, "traceEvents": []}')
    assert 'profile_memory=True' in ask(tessera, 'peak', empty, status=3).stderr
    picture = work / 'timeline.html'
    picture.write_text('<html>\n<head><meta charset="utf-8" /><title>GPU Memory Timeline HTML</title></head>\n<body><img></body></html>')
    assert '.raw.json.gz' in ask(tessera, 'peak', picture, status=3).stderr


NAMES = ('parameter', 'optimizer_state', 'input', 'temporary', 'activation', 'gradient', 'temporary', 'unknown')


def steps_of(name, form):
    """(time, bytes by category) after each moment, from PyTorch's file."""
    content = json.loads(gzip.decompress((HERE / 'kineto' / f'{name}.memory.{form}').read_bytes()))
    if form == 'json.gz':
        return [(time, sizes[1:]) for time, sizes in zip(*content)]
    first = min(time for time, *_ in content if time >= 0)
    now, steps = [0] * 8, {}
    for time, _, size, category in content:
        now[category] += size
        steps[(time if time >= 0 else first) // 1000] = list(now)
    return list(steps.items())


@cases('name', TIMELINES, ids=str)
@cases('form', ('raw.json.gz', 'json.gz'), ids=str)
def test_timeline(tessera, name, form):
    """Both forms of PyTorch's memory timeline give its totals at each time, and its categories at the peak."""
    want = steps_of(name, form)
    path = HERE / 'kineto' / f'{name}.memory.{form}'
    (device, rows), = rows_of(tessera, path).items()
    total, at = 0, 0
    for i, (time, sizes) in enumerate(want):
        while at < len(rows) and rows[at]['time_us'] <= time and (i + 1 == len(want) or want[i + 1][0] > rows[at]['time_us']):
            total = rows[at]['allocated_bytes']
            at += 1
        if i + 1 == len(want) or want[i + 1][0] != time:
            expect(f'total at {time}', total, sum(sizes))
    expect('rows that are left', at, len(rows))
    answer = json.loads(ask(tessera, 'profile', '--json', '--device', device, path).stdout)['devices'][0]
    totals = {}
    peak = rows[answer['peak']['event']]
    moments = [sizes for time, sizes in want if time == peak['time_us'] and sum(sizes) == peak['allocated_bytes']]
    for category, size in zip(NAMES, moments[-1] if moments else ()):
        totals[category] = totals.get(category, 0) + size
    if moments:
        expect('categories', {g['name']: g['bytes'] for g in answer['groups'] if g['bytes']}, {c: size for c, size in totals.items() if size})
    assert moments or form == 'raw.json.gz', 'the peak is at one of the times of the file'


def test_ranks(tessera, work):
    """Traces of ranks are compared like snapshots, also those of a program that ran on the CPU."""
    for rank, name in enumerate(('mlp', 'mlp', 'mlp', 'cnn')):
        shutil.copy(HERE / 'kineto' / f'{name}.pt.trace.json.gz', work / f'rank{rank}.pt.trace.json.gz')
    answer = json.loads(ask(tessera, 'ranks', '--json', *sorted(work.glob('rank*.gz'))).stdout)
    found = [(row['rank'], row['device'], row['peak_allocated_bytes']) for row in answer['ranks']]
    peaks = [peak_of(tessera, HERE / 'kineto' / f'{name}.pt.trace.json.gz', 'cpu')[0]['allocated_bytes'] for name in ('mlp', 'cnn')]
    assert found == [(0, 'cpu', peaks[0]), (1, 'cpu', peaks[0]), (2, 'cpu', peaks[0]), (3, 'cpu', peaks[1])]
