"""Every interface has the same numbers.

For each snapshot, `peak` and `at` are asked once. All other outputs with totals, categories, steps or
differences must have the same bytes: the other commands, the page (its columns are decoded here), the
server, the tools of `mcp`, Python (with --core, the extension module) and the formats for other programs.

The snapshots: those that tests/cli and tests/viewer make by hand, simulated runs (several devices,
out-of-memory errors, private pools, tails are among them), and real ones."""
import csv
import functools
import gzip
import io
import itertools
import json
import os
import re
import shutil
import signal
import struct
import subprocess
import sys
import urllib.request
import zlib
from pathlib import Path

import pytest
from readers import TOTALS, Track, fields, numbers, read_page, read_pairs, split, sums, totals
from support import HERE, ROOT, Tessera, cases, expect, fixtures, real

sys.path.insert(0, str(HERE.parent / 'viewer'))
from run import graphs  # noqa: E402

MADE = ('train', 'two-devices', 'leaky', 'stages', 'empty-trace', 'large-segments', 'oom', 'oom-pieces',
        'oom-elsewhere', 'oom-pending', 'oom-rounded', 'graphs')
SIMULATED = {'sim-plain': ('--batch', '2'), 'sim-checkpoint': ('--batch', '2', '--checkpoint', 'full'),
             'sim-autocast': ('--batch', '1', '--dtype', 'autocast-bf16'),
             'sim-oom': ('--batch', '2', '--attention', 'eager', '--capacity', '3GiB')}
WHOLE = ('category', 'op', 'module', 'line', 'stack', 'pool')
RECORDED = ('annotation', 'compile-context', 'mosaic-category')
HANG_S = 1800


def categories_of(stacks):
    return sums(({'name': name, 'bytes': size} for stack in stacks
                 for name, size in stack['categories'].items()), 'name')


class Asked(Tessera):
    """The program, which is asked everything once."""

    def __init__(self, tessera, work):
        super().__init__(tessera)
        self.work = work

    def bytes(self, *words):
        done = self.run(*words, text=False, status=None)
        ends = words[0] == 'check' and b'ran out of memory' in done.stderr  # its numbers count all the same
        expect(f'exit status of {words}: {done.stderr.decode():.300}', done.returncode, 3 if ends else 0)
        return done.stdout

    @functools.lru_cache(maxsize=None)
    def ask(self, command, *words):
        """By device."""
        answer = json.loads(self.bytes(command, '--json', '--top', 0, *words))
        return {device['device']: device for device in answer['devices']}

    def peak(self, path):
        return self.ask('peak', path)

    def at(self, path, device, event):
        return self.ask('at', '--device', device, '--event', event, path)[device]


@pytest.fixture(scope='module')
def tessera(tessera, work):
    return Asked(tessera, work)


@pytest.fixture(scope='module')
def simulated(tessera):
    """The answers of `simulate` about the runs whose snapshots it writes here."""
    return {name: tessera.device('simulate', 'gpt2', '--seq', '128', *words, '-q', '-o', tessera.work / f'{name}.pickle')
            for name, words in SIMULATED.items()}


@pytest.fixture(scope='module')
def path_of(tessera, simulated):
    """The path of a snapshot that is named, because it is made here, or that is a path already."""
    fixtures.write_all(tessera.work)
    fixtures.write(tessera.work / 'graphs.pickle', graphs())
    return lambda name: tessera.work / f'{name}.pickle' if isinstance(name, str) else name


HERE_MADE = [*MADE, *SIMULATED]
REAL = real('*.pickle', '*.html')


# ---- the commands ----

def check_info(tessera, path):
    for number, device in tessera.ask('info', path).items():
        peak = tessera.peak(path)[number]
        expect('end', totals(device['end']), totals(peak['end']))
        expect('events', device['events'], peak['events'])


def check_at(tessera, path):
    """The peak is a moment, and its parts add up."""
    for number, device in tessera.peak(path).items():
        peak, parts = device['peak'], device['fragmentation']
        at = tessera.at(path, number, peak['event'])
        expect('totals', totals(at), totals(peak))
        for name in ('fragmentation', 'private_pools', 'stacks'):
            expect(name, at[name], device[name])
        stacks = device['stacks']
        expect('stacks', sum(stack['bytes'] for stack in stacks), peak['requested_bytes'])
        expect('categories', sum(categories_of(stacks).values()), peak['requested_bytes'])
        expect('allocations', sum(stack['allocations'] for stack in stacks), at['live_allocations'])
        expect('rounding and tails', parts['rounding_bytes'] + parts['unsplit_bytes'],
               peak['active_bytes'] - peak['requested_bytes'] + peak['unsplit_bytes'])
        expect('waiting', parts['waiting_bytes'], peak['active_bytes'] - peak['allocated_bytes'])


def check_profile(tessera, path):
    for by in WHOLE + RECORDED:
        options = ('--categories', 'mosaic') if by == 'mosaic-category' else ('--by', by)
        for number, device in tessera.ask('profile', *options, path).items():
            peak = tessera.peak(path)[number]
            want = peak['peak'] if by in WHOLE else {
                'event': peak['recorded']['event'],
                'requested_bytes': peak['recorded']['dynamic_peak_bytes']}
            for name in ('event', 'requested_bytes'):
                expect(f'{name} by {by}', device['peak'][name], want[name])
            at = tessera.at(path, number, want['event'])
            expect(f'allocated by {by}', device['peak']['allocated_bytes'], at['allocated_bytes'])
            expect(f'groups by {by}', sum(group['bytes'] for group in device['groups']),
                   want['requested_bytes'])
            if by == 'category':
                expect('categories', sums(device['groups'], 'name'), categories_of(peak['stacks']))
            if by == 'stack':
                expect('stacks', sorted(group['bytes'] for group in device['groups'] if group['frames']
                                        and group['bytes']),
                       sorted(stack['bytes'] for stack in peak['stacks'] if stack['frames']
                              and stack['bytes']))


def check_history(tessera, path):
    for number, device in tessera.ask('profile', '--over-time', path).items():
        peak = tessera.peak(path)[number]['peak']
        moments = device['history']['moments']
        for moment in moments:
            expect('groups of a moment', sum(size for _, size in moment['groups']), moment['requested_bytes'])
        [highest] = [moment for moment in moments if moment['event'] == peak['event']] or [None]
        if highest:
            expect('the peak', highest['requested_bytes'] + highest['older_bytes'], peak['requested_bytes'])


def check_why(tessera, path):
    for number, device in tessera.ask('why', path).items():
        moment, parts = device['moment'], device['fragmentation']
        at = tessera.at(path, number, moment['event'])
        expect('totals', moment['totals'], totals(at))
        expect('fragmentation', parts, at['fragmentation'])
        expect('private pools', device['private_pools'], at['private_pools'])
        expect('categories', sums(device['categories'], 'category'), categories_of(at['stacks']))
        expect('causes', sums(device['causes'], 'category'), categories_of(at['stacks']))
        expect('rounding and tails', device['lost_bytes'], parts['rounding_bytes'] + parts['unsplit_bytes'])
        for items in (device['categories'], device['causes']):
            expect('blocks', sum(item['block_bytes'] for item in items), at['active_bytes'])
        expect('peak reserved', device['peak_reserved_bytes'],
               tessera.peak(path)[number]['maxima']['reserved_bytes'])


def check_check(tessera, path):
    answers = tessera.ask('check', '--max', '1000TiB', '--max', 'activation=1000TiB', path)
    profiles = tessera.ask('profile', '--by', 'category', path)
    for number, device in answers.items():
        peak = tessera.peak(path)[number]
        expect('peak', device['peak']['totals'], totals(peak['peak']))
        expect('event', device['peak']['event'], peak['peak']['event'])
        expect('reserved', device['reserved']['bytes'], peak['maxima']['reserved_bytes'])
        expect('categories', sums(device['categories'], 'category'), categories_of(peak['stacks']))
        groups = {group['name']: group for group in profiles[number]['groups']}
        for entry in device['categories']:
            group = groups.get(entry['category'])
            if group:  # others occur only after the peak
                expect(f'peak of {entry["category"]}', (entry['peak_bytes'], entry['peak_event']),
                       (group['peak_bytes'], group['peak_event']))


def check_steps(tessera, path):
    for number, device in tessera.ask('steps', path).items():
        steps = device['steps']
        expect('whole steps', device['whole_steps'], sum(step['whole'] for step in steps))
        peaks = [step['peak_bytes'] for step in steps if step['steady']]
        if peaks:
            expect('steady', (device['steady']['lowest_peak_bytes'], device['steady']['peak_bytes']),
                   (min(peaks), max(peaks)))
        for step in steps[:1] + steps[-1:]:
            for name, event in (('start', step['first_event'] - 1), ('end', step['last_event']),
                                ('peak', step['peak_event'])):
                at = tessera.at(path, number, event)
                expect(f'{name} of a step', step[f'{name}_bytes'], at['allocated_bytes'])


def check_leaks(tessera, path):
    steps = tessera.ask('steps', path)
    for number, device in tessera.ask('leaks', path).items():
        for name in ('basis', 'unit', 'whole_steps'):
            expect(name, device[name], steps[number][name])
        expect('all leaks', device['bytes_per_step'],
               sum(leak['bytes_per_step'] for leak in device['leaks']) + device['omitted_bytes_per_step'])
        if device['leaks']:
            end = max(step['last_event'] for step in steps[number]['steps'] if step['whole'])
            held = tessera.at(path, number, end)['requested_bytes']
            expect('leaks are live', sum(leak['bytes'] for leak in device['leaks']) <= held, True)


def check_stages(tessera, path):
    for number, device in tessera.ask('stages', path).items():
        peak = tessera.peak(path)[number]['peak']
        expect('peak', {name: device['peak'][name] for name in ('event', *TOTALS)},
               {name: peak[name] for name in ('event', *TOTALS)})
        for stage in device['stages'][:2]:
            for part in ('start', 'end', 'peak'):
                at = tessera.at(path, number, stage[part]['event'])
                expect(f'{part} of {stage["name"]}', totals(stage[part]), totals(at))


def check_source(tessera, path):
    """Of the file that most of the stacks at the peak mention."""
    stacks = [stack for device in tessera.peak(path).values() for stack in device['stacks']]
    files = [name for stack in stacks for name in {frame['file'] for frame in stack['frames']}
             if re.fullmatch(r'[^<>?]*[/\\\\][\w.]+\.py', name)]
    if not files:
        return
    most = max(sorted(set(files)), key=files.count)
    folder = tessera.work / 'sources' / path.name
    folder.mkdir(parents=True, exist_ok=True)
    source = folder / re.split(r'[/\\\\]', most)[-1]
    source.write_text('\n' * 5000)
    for number, device in tessera.ask('source', path, source).items():
        peak = tessera.peak(path)[number]
        for name in ('event', 'requested_bytes', 'allocated_bytes'):
            expect(name, device['peak'][name], peak['peak'][name])
        held = [stack for stack in peak['stacks']
                if any(frame['file'] == device['file'] for frame in stack['frames'])]
        for name in ('bytes', 'allocations'):
            expect(f'{name} of {device["file"]}', device[name], sum(stack[name] for stack in held))
        expect('lines', sum(line['self_bytes'] for line in device['lines']), device['bytes'])


def check_whatif(tessera, path):
    for number, device in tessera.ask('whatif', '--set', 'expandable_segments:True', path).items():
        expect('reserved', device['recorded_peak_reserved_bytes'],
               tessera.peak(path)[number]['maxima']['reserved_bytes'])
        for one in device['runs']:
            if not one['given_up']:
                expect('waste', one['waste_bytes'], one['peak_reserved_bytes'] - one['peak']['allocated_bytes'])


def compare(tessera, old, new):
    """`diff` of two files has the same figures as an answer about each of them."""
    for by in ('stack', 'category', 'op', 'line'):
        for device in tessera.ask('diff', '--by', by, old, new).values():
            deltas = sum(change['delta_bytes'] for change in device['changes'])
            peaks = []
            for side, path in (('old', old), ('new', new)):
                number = device[side]['device']
                peak = dict.fromkeys(TOTALS, 0)
                if number is not None:
                    peak = tessera.peak(path)[number]['peak']
                    expect(f'the {side} peak', {name: device[side]['peak'][name] for name in ('event', *TOTALS)},
                           {name: peak[name] for name in ('event', *TOTALS)})
                peaks.append(peak)
            expect('requested', device['requested_delta_bytes'],
                   peaks[1]['requested_bytes'] - peaks[0]['requested_bytes'])
            expect('allocated', device['delta_bytes'], peaks[1]['allocated_bytes'] - peaks[0]['allocated_bytes'])
            compared = device['compared']
            expect(f'changes by {by}', deltas, compared['requested_delta_bytes'])
            expect('the rest', device['rounding_delta_bytes'], compared['delta_bytes'] - deltas)
            if not compared['phase']:
                expect('the peaks', [compared[key] for key in ('delta_bytes', 'requested_delta_bytes')],
                       [device[key] for key in ('delta_bytes', 'requested_delta_bytes')])
            if by == 'category' and not compared['phase'] and None not in (device['old']['device'], device['new']['device']):
                sides = [categories_of(tessera.peak(path)[device[side]['device']]['stacks'])
                         for side, path in (('old', old), ('new', new))]
                want = {name: sides[1].get(name, 0) - sides[0].get(name, 0) for name in {**sides[0], **sides[1]}}
                expect('categories', sums(device['changes'], 'name', 'delta_bytes'),
                       {name: delta for name, delta in want.items() if delta})
    compare_difference(tessera, old, new)


def check_itself(tessera, path):
    """Nothing changes between a file and itself."""
    for device in tessera.ask('diff', path, path).values():
        expect('changes', (device['changes'], device['delta_bytes'], device['moved_stacks']), ([], 0, 0))


# ---- the page, and its server ----

def compare_difference(tessera, old, new):
    """The page of two files pairs their stacks as `diff` does."""
    _, columns, tracks = read_page(page(tessera, old, new))
    pairs = dict(read_pairs(columns))
    expect('pairs', list(pairs), [(0, 1)])
    for device in tessera.ask('diff', '--by', 'stack', old, new).values():
        sides = []
        for i, side in enumerate(('old', 'new')):
            there = [track for track in tracks if track.device['input'] == i
                     and track.device['device'] == device[side]['device']]
            moment = device['compared'][f'{side}_event'] + 1
            sides.append(there[0].stacks(moment, pairs[0, 1][i]) if there else {})
        rows = sorted((sides[0].get(row, 0), sides[1].get(row, 0)) for row in {**sides[0], **sides[1]})
        named = [change for change in device['changes'] if change['frames']]
        unnamed = [change for change in device['changes'] if not change['frames']]
        known = [(change['old_bytes'], change['new_bytes']) for change in named]
        known += [tuple(sum(change[key] for change in unnamed) for key in ('old_bytes', 'new_bytes'))]  # one row of the page
        expect('rows of the page', [row for row in rows if row[0] != row[1]], sorted(row for row in known if row[0] != row[1]))


def compare_page(tessera, path, html):
    head, _, tracks = read_page(html)
    peaks = tessera.peak(path)
    expect('devices', [device['device'] for device in head['devices']], list(peaks))
    for track in tracks:
        device = peaks[track.device['device']]
        moment = device['peak']['event'] + 1
        expect('the peak', track.device['peak'], moment)
        expect('the highest', (track.device['peakAllocated'], track.device['maxReserved']),
               (device['peak']['allocated_bytes'], device['maxima']['reserved_bytes']))
        expect('nothing is summed up', track.device['restCount'], 0)
        expect('totals', track.totals(moment), totals(device['peak']))
        expect('at the end', track.totals(device['events']), totals(device['end']))
        for number, grouping in enumerate(track.device['groupings']):
            groups = track.groups(number, moment)
            expect(f'groups by {grouping["key"]}', sum(groups.values()), device['peak']['requested_bytes'])
            if grouping['key'] == 'category':
                expect('categories', groups, categories_of(device['stacks']))


def page(tessera, *words):
    return tessera.bytes('view', '-q', *words).decode()


def check_page(tessera, path):
    compare_page(tessera, path, page(tessera, path))


def test_profile_page(tessera, path_of):
    path = path_of('train')
    target = tessera.work / 'profile.html'
    tessera.bytes('profile', '--by', 'line', '--html', target, path)
    compare_page(tessera, path, target.read_text())


@cases('name', ['train', 'graphs', REAL[0]])
def test_serve(tessera, path_of, name):
    path = path_of(name)
    server = subprocess.Popen([tessera.path, 'serve', '-q', path], stdout=subprocess.PIPE, text=True)
    try:
        address = server.stdout.readline().strip()
        with urllib.request.urlopen(address, timeout=HANG_S) as answer:
            html = answer.read().decode()
        compare_page(tessera, path, html)
        head = read_page(html)[0]
        for i, device in enumerate(head['devices']):
            moment = device['peak']
            question = f'part?track={i}&from={moment}&to={moment}&blocks=1000000'
            with urllib.request.urlopen(address + question, timeout=HANG_S) as answer:
                body = answer.read()
            length = struct.unpack('<I', body[:4])[0]
            cut = json.loads(body[4:4 + length])
            columns = split(cut['columns'], zlib.decompress(body[4 + length:]))
            part = Track(head, {**columns, 'd0.spans': b''}, device, 'd0.')
            want = totals(tessera.peak(path)[device['device']]['peak'])
            expect('a part', {**part.totals(moment), 'reserved_bytes': want['reserved_bytes']}, want)
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait(timeout=HANG_S)
        server.stdout.close()


# ---- formats for other programs ----

def check_exports(tessera, path):
    devices = tessera.peak(path)
    requested = sum(device['peak']['requested_bytes'] for device in devices.values())
    export = lambda form: tessera.bytes('export', '-q', '--format', form, path)  # noqa: E731
    expect('folded', sum(int(line.rpartition(' ')[2]) for line in export('folded').decode().splitlines()),
           requested)
    expect('speedscope', sum(profile['endValue'] for profile in json.loads(export('speedscope'))['profiles']),
           requested)
    samples = [numbers(dict(fields(value))[2]) for number, value in fields(gzip.decompress(export('pprof')))
               if number == 2]
    expect('pprof', sum(size for _, size in samples), requested)
    rows = list(csv.DictReader(io.StringIO(export('csv').decode(), newline='')))
    events = json.loads(export('perfetto'))['traceEvents']
    for number, device in devices.items():
        event = device['peak']['event']
        live = [row for row in rows if row['device'] == str(number) and int(row['birth_event']) <= event
                and (not row['death_event'] or int(row['death_event']) > event)]
        expect('csv', sums(({'name': row['category'], 'bytes': int(row['requested_bytes'])} for row in live),
                           'name'), categories_of(device['stacks']))
        expect('blocks in csv', sum(int(row['size_bytes']) for row in live), device['peak']['active_bytes'])
        own = [e for e in events if e['pid'] == number]
        memory = [e['args'] for e in own if e['name'] == 'memory']
        groups = [e['args'] for e in own if e['name'] == 'requested by category']
        highest = max(range(len(memory)), key=lambda i: memory[i]['allocated_bytes'])
        expect('perfetto', {name: memory[highest][name] for name in memory[highest] if name in TOTALS},
               {name: device['peak'][name] for name in memory[highest] if name in TOTALS})
        expect('its categories', {name: size for name, size in groups[highest].items() if size},
               categories_of(device['stacks']))


# ---- mcp and Python ----

MCP = (('peak', {}), ('info', {}), ('why', {}), ('profile', {'by': 'category'}), ('steps', {}), ('leaks', {}),
       ('stages', {}))


def numbers_of(device):
    """All byte figures of an answer, without the lists that mcp shortens."""
    if not isinstance(device, dict):
        return device
    return {key: numbers_of(value) for key, value in device.items() if key != 'folded_frames' and not isinstance(value, (list, str))}


def ask_mcp(tessera, calls):
    """The answers of tools, in the order of `calls`: (name, arguments)."""
    calls = [{'jsonrpc': '2.0', 'id': i, 'method': 'tools/call', 'params': {'name': name, 'arguments': arguments}}
             for i, (name, arguments) in enumerate(calls)]
    hello = {'jsonrpc': '2.0', 'id': 'hello', 'method': 'initialize',
             'params': {'protocolVersion': '2025-06-18', 'capabilities': {},
                        'clientInfo': {'name': 'test', 'version': '0'}}}
    text = ''.join(json.dumps(message) + '\n' for message in [hello, *calls])
    done = subprocess.run([tessera.path, 'mcp'], input=text, capture_output=True, text=True, check=True)
    answers = {answer['id']: answer for answer in map(json.loads, done.stdout.splitlines())}
    return [answers[i]['result']['structuredContent'] for i in range(len(calls))]


def without_nulls(value):
    """What a short answer of MCP has of it."""
    if isinstance(value, dict):
        return {key: without_nulls(part) for key, part in value.items() if part is not None}
    return [without_nulls(part) for part in value] if isinstance(value, list) else value


def check_mcp(tessera, path):
    answers = ask_mcp(tessera, [(f'tessera_{name}', {'path': str(path), **more}) for name, more in MCP])
    for i, (name, more) in enumerate(MCP):
        options = [word for key, value in more.items() for word in (f'--{key}', value)]
        want = tessera.ask(name, *options, path)
        for device in answers[i]['devices']:
            full = want[device['device']]
            got = numbers_of(device)
            for key, value in got.items():
                if key in full and not key.startswith('omitted_'):
                    expect(f'{key} of {name}', without_nulls(value), without_nulls(numbers_of(full)[key]))
            for key in ('categories', 'groups'):
                if name in ('why', 'profile') and isinstance(device.get(key), list):
                    by = 'category' if key == 'categories' else 'name'
                    shown = sums(device[key], by)
                    all_of = sums(full[key], by)
                    expect(f'{key} of {name}', shown, {part: all_of[part] for part in shown})


PROGRAM = '''
import json, sys, tessera
questions = json.loads(sys.argv[1])
out = {}
for path in sys.argv[2:]:
    s = tessera.open(path)
    out[path] = {name: s.ask(name, top=0, **more).to_dict()["devices"] for name, more in questions}
    out[path]["check"] = s.check({"activation": "1000TiB"}).to_dict()["devices"]
json.dump(out, sys.stdout)
'''


def test_python(tessera, path_of, pytestconfig):
    """All files in one process."""
    core = pytestconfig.getoption('core')
    if not core:
        pytest.skip('the extension is not built')
    paths = [path_of(name) for name in HERE_MADE + REAL if isinstance(name, (str, Path))]
    package = tessera.work / 'python' / 'tessera'
    shutil.rmtree(package.parent, ignore_errors=True)
    shutil.copytree(ROOT / 'python' / 'tessera', package, ignore=shutil.ignore_patterns('*.so', '__pycache__'))
    shutil.copy(core, package / '_core.so')
    done = subprocess.run([sys.executable, '-c', PROGRAM, json.dumps(MCP), *map(str, paths)],
                          capture_output=True, text=True, check=False,
                          env={**os.environ, 'PYTHONPATH': str(package.parent), 'PYTHONDONTWRITEBYTECODE': '1'})
    expect(done.stderr[-500:], done.returncode, 0)
    for path, answers in json.loads(done.stdout).items():
        for name, more in (*MCP, ('check', {})):
            options = [word for key, value in more.items() for word in (f'--{key}', value)]
            if name == 'check':
                options = ['--max', 'activation=1000TiB']
            expect(f'{name} of {Path(path).name}', {d['device']: d for d in answers[name]},
                   tessera.ask(name, *options, Path(path)))


# ---- simulated runs ----

@cases('name', SIMULATED, str)
def test_simulate(tessera, simulated, name):
    """The snapshot of a run shows the predicted memory."""
    path, said = tessera.work / f'{name}.pickle', simulated[name]
    device = tessera.peak(path)[0]
    expect('reserved', said['peak_reserved_bytes'], device['maxima']['reserved_bytes'])
    expect('the peak', totals(said['peak']), totals(device['peak']))
    expect('its event', said['peak']['event'], device['peak']['event'])
    names = [entry['name'] for entry in said['categories']]
    expect('the last row', names[-1], 'rounding and tails')
    moment = said['peak'] if said['fits'] else said['out_of_memory']
    expect('all rows', sum(entry['bytes'] for entry in said['categories']), moment['allocated_bytes'])
    if not said['fits']:
        why = tessera.ask('why', path)[0]
        expect('the failure', totals(said['out_of_memory']), why['moment']['totals'])
        return
    # A trace does not show which of a model's tensors are buffers.
    got = sums(said['categories'][:-1], 'name')
    got['parameter'] += got.pop('buffer', 0)
    expect('categories', got, categories_of(device['stacks']))
    categories = sums(tessera.ask('profile', '--by', 'category', path)[0]['groups'], 'name')
    expect('categories of profile', got, categories)


# ---- plans ----

PLANNED = ('gpt2', '--batch', '4', '--gpu', 't4')


def test_plan(tessera):
    """A plan's figures are those of the run that it describes, whoever asks."""
    options = {'model': PLANNED[0], 'batch': 4, 'gpu': 't4', 'budget': '3GiB'}
    answer = json.loads(tessera.bytes('plan', *PLANNED, '--budget', '3GiB', '--json', '--write-plan', tessera.work / 'found.json'))
    expect('the plan', json.loads((tessera.work / 'found.json').read_text()), answer['plan'])
    said = json.loads(tessera.bytes('simulate', *PLANNED, '--plan', tessera.work / 'found.json', '--json', '-q'))['devices'][0]
    predicted = answer['predicted']
    expect('the peak', said['peak']['allocated_bytes'], predicted['peak_allocated_bytes'])
    expect('reserved', said['peak_reserved_bytes'], predicted['peak_reserved_bytes'])
    expect('a step', said['step_time_us'], round(predicted['step_time_us']))
    by_mcp, = ask_mcp(tessera, [('tessera_plan', options)])
    expect('MCP', [by_mcp[key] for key in ('verdict', 'plan_hash', 'predicted', 'lower_bound')],
           [answer[key] for key in ('verdict', 'plan_hash', 'predicted', 'lower_bound')])
    text = tessera.bytes('plan', *PLANNED, '--budget', '3GiB').decode()
    expect('the sentence', by_mcp['in_words'], text.splitlines()[:1])


# ---- all of them ----

CHECKS = (check_info, check_at, check_profile, check_history, check_why, check_check, check_steps, check_leaks,
          check_stages, check_source, check_whatif, check_itself, check_page, check_exports, check_mcp)


@cases('name', HERE_MADE + REAL)
def test_numbers(tessera, path_of, name):
    wrong = []
    for check in CHECKS:
        try:
            check(tessera, path_of(name))
        except AssertionError as error:
            wrong.append(f'{check.__name__[6:]}: {error}')
    if wrong:
        raise AssertionError('\n'.join(wrong))


@cases('old, new', [pair for files in (HERE_MADE, REAL) for pair in itertools.pairwise(files)])
def test_difference(tessera, path_of, old, new):
    compare(tessera, path_of(old), path_of(new))
