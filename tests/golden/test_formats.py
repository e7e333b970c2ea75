"""What `tessera export` writes for other programs says what the answers say.

Of the snapshots that tests/cli/fixtures.py makes, and of real ones, each form is written and read again, and its sums compared with
those of `tessera peak` and `tessera at`. Where Go is installed, its pprof reads the profile too;
where PyPI and npm can be reached, the file for speedscope is held against speedscope's published
schema. Other programs read the same whatever the build, so they are left out with --sanitized."""
import collections
import csv
import gzip
import io
import json
import re
import shutil
import subprocess
import sys

import pytest
from readers import fields, numbers
from support import SNAPSHOTS, absent, cases, expect, fixtures

MADE = ('oom', 'train', 'two-devices')
REAL = ('train-ctx1024-torch2.11', 'forward-ctx150-torch2.6', 'torch2.0-history-layout-b',
        'two-devices-no-trace', 'train-windows-python-stacks-torch2.11')
FILES = [*MADE, *(SNAPSHOTS / f'{name}.pickle' for name in REAL)] if SNAPSHOTS.is_dir() else [*MADE, absent(None)]
each_file = cases('name', FILES)
first_files = cases('name', [FILES[0], FILES[len(MADE)]])


@pytest.fixture
def path(made, name):
    return made / f'{name}.pickle' if isinstance(name, str) else name


@pytest.fixture(scope='session')
def export(tessera):
    return lambda form, path, *options: tessera.output('export', '--format', form, *options, path, text=False)


@pytest.fixture(scope='session')
def ask(tessera):
    """The answer about each device."""
    return lambda command, path, *options: tessera.json(command, '--top', 0, *options, path)['devices']


def live_bytes(devices):
    return sum(stack['bytes'] for device in devices for stack in device.get('stacks', []))


# ---- flame graphs ----

def folded_sum(text):
    total = 0
    for line in text.decode().splitlines():
        stack, _, weight = line.rpartition(' ')
        if not stack or any(not frame for frame in stack.split(';')):
            raise AssertionError(f'not a folded stack: {line!r:.200}')
        total += int(weight)
    return total


@each_file
def test_folded(export, ask, path):
    expect('the peak', folded_sum(export('folded', path)),
           live_bytes(ask('peak', path)))


@first_files
def test_folded_moment(export, ask, path):
    middle = max(device['events'] for device in ask('peak', path)) // 2
    expect('a moment', folded_sum(export('folded', path, '--event', middle)),
           live_bytes(ask('at', path, '--event', middle)))


@each_file
def test_speedscope(export, ask, path):
    data = json.loads(export('speedscope', path))
    frames = len(data['shared']['frames'])
    total = 0
    for profile in data['profiles']:
        expect('samples and weights', len(profile['samples']), len(profile['weights']))
        expect('end', profile['endValue'], sum(profile['weights']))
        if any(not 0 <= frame < frames for sample in profile['samples'] for frame in sample):
            raise AssertionError('a frame that is not in the list')
        total += profile['endValue']
    expect('the peak', total, live_bytes(ask('peak', path)))


def read_tables(data):
    """A pprof profile's fields, its strings, and the name and file of each function."""
    profile = list(fields(gzip.decompress(data)))
    strings = [value.decode() for number, value in profile if number == 6]
    functions = {}
    for number, value in profile:
        if number == 5:
            function = dict(fields(value))
            functions[function[1]] = strings[function.get(2, 0)], strings[function.get(4, 0)]
    return profile, strings, functions


@each_file
def test_pprof(export, ask, path):
    profile, strings, functions = read_tables(export('pprof', path))
    locations = {dict(fields(value))[1] for number, value in profile if number == 4}
    expect('functions and locations', set(functions), locations)
    expect('the first string', strings[0], '')
    total = allocations = 0
    for number, value in profile:
        if number == 2:
            sample = dict(fields(value))
            if not set(numbers(sample[1])) <= locations:
                raise AssertionError('a location that is not in the list')
            count, size = numbers(sample[2])
            total, allocations = total + size, allocations + count
    devices = ask('peak', path)
    expect('the peak', total, live_bytes(devices))
    expect('allocations', allocations,
           sum(stack['allocations'] for device in devices for stack in device['stacks']))


# ---- which frames ----

# The allocator, the interpreter, how threads and programs start, and generated code.
HIDDEN = re.compile(r'CachingAllocator|_PyEval|PyEval_|PyObject_|_PyObject|PyRun_|Py_BytesMain|'
                    r'\b_start\b|__libc_start|start_thread|torchinductor_|eval_with_key|empty_cuda|'
                    r'at::detail::|c10::|frozen importlib|unwind')


def read_folded(data):
    """Stacks, each the texts of its frames from the outermost, and their bytes."""
    stacks = collections.Counter()
    for line in data.decode().splitlines():
        stack, _, weight = line.rpartition(' ')
        stacks[tuple(stack.split(';'))] += int(weight)
    return stacks


def frame_text(name, file, line):
    file = '' if file == '??' else file
    return (name + (f' ({file}{f":{line}" if line else ""})' if file else '')).replace(';', ':')


def read_speedscope(data):
    data, stacks = json.loads(data), collections.Counter()
    frames = [frame_text(frame['name'], frame.get('file', ''), frame.get('line'))
              for frame in data['shared']['frames']]
    for number, profile in enumerate(data['profiles']):
        device = [profile['name'].split(',')[0]] if len(data['profiles']) > 1 else []
        for sample, weight in zip(profile['samples'], profile['weights']):
            stacks[(*device, *(frames[frame] for frame in sample))] += weight
    return stacks, frames


def read_pprof(data):
    profile, strings, functions = read_tables(data)
    places = {}
    for number, value in profile:
        if number == 4:
            place = dict(fields(value))
            line = dict(fields(place[4]))
            places[place[1]] = frame_text(*functions[line[1]], line.get(2, 0))
    stacks, devices = collections.Counter(), set()
    for number, value in profile:
        if number == 2:
            sample = list(fields(value))
            labels = [dict(fields(label)) for key, label in sample if key == 3]
            device = next(label.get(3, 0) for label in labels if strings[label[1]] == 'device')
            stack = tuple(places[place] for place in reversed(numbers(dict(sample)[1])))
            stacks[device, stack] += numbers(dict(sample)[2])[1]
            devices.add(device)
    return collections.Counter({((f'device {device}',) if len(devices) > 1 else ()) + stack: size
                                for (device, stack), size in stacks.items()}), strings


def cleaned(text):
    """Control characters cannot be in a folded line."""
    return re.sub(r'[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufffd]|\\x..', '?', text)


def live_stacks(ask, path):
    """All frames of what is live at the peak, as an answer has them."""
    stacks = collections.Counter()
    devices = [device for device in ask('peak', path) if device.get('stacks')]
    for device in devices:
        for stack in device['stacks']:
            frames = [frame_text(frame['name'], frame['file'], frame['line'])
                      for frame in reversed(stack['frames'])] or ['(no stack recorded)']
            first = [f'device {device["device"]}'] if len(devices) > 1 else []
            stacks[tuple(cleaned(text) for text in first + frames)] += stack['bytes']
    return stacks


def tidy(stacks):
    out = collections.Counter()
    for stack, size in stacks.items():
        out[tuple(map(cleaned, stack))] += size
    return out


@each_file
def test_frames(export, ask, path):
    """By default what the page shows, the same in each format; with --full-stacks every frame."""
    for options in (), ('--full-stacks',):
        folded = read_folded(export('folded', path, *options))
        speedscope, frames = read_speedscope(export('speedscope', path, *options))
        pprof, strings = read_pprof(export('pprof', path, *options))
        expect(f'speedscope {options}', tidy(speedscope), tidy(folded))
        expect(f'pprof {options}', tidy(pprof), tidy(folded))
        if options:
            expect('all frames', tidy(folded), live_stacks(ask, path))
            continue
        hidden = [text for text in frames + strings if HIDDEN.search(text)]
        expect('frames that nobody asked for', hidden, [])
        if any(not stack for stack in folded):
            raise AssertionError('a stack without frames')


def test_shown(export, work):
    """Hand-made stacks: which of their frames are shown."""
    stacks = fixtures.Stacks()
    malloc = ('c10::cuda::CUDACachingAllocator::Native::DeviceCachingAllocator::malloc(int)',
              '/pytorch/c10/cuda/CUDACachingAllocator.cpp', 2817)
    interpreter = ('_PyEval_EvalFrameDefault', '/usr/src/python3.11/Python/ceval.c', 5231)
    mul = ('at::_ops::mul_Tensor::call(at::Tensor const&, at::Tensor const&)', '??', 0)
    torch = ('forward', '/usr/lib/python3/site-packages/torch/nn/modules/linear.py', 125)
    library = ('forward', '/usr/lib/python3/site-packages/transformers/activations.py', 62)
    program = ('step', '/work/train.py', 31), ('<module>', '/work/train.py', 97)
    generated = ('call', '/tmp/torchinductor_me/ab/c' + 'a' * 51 + '.py', 53)
    compiler = ('run', '/usr/lib/python3/site-packages/torch/_inductor/utils.py', 2000)
    node = ('torch::autograd::generated::MulBackward0::apply(std::vector<at::Tensor>&&)', '??', 0)
    thread = ('start_thread', '??', 0)
    wanted = [
        ((malloc, mul, torch, interpreter, *program),
         ['<module> (/work/train.py:97)', 'step (/work/train.py:31)', 'aten::mul']),
        ((malloc, torch, library, interpreter, *program),
         ['<module> (/work/train.py:97)', 'step (/work/train.py:31)',
          f'forward ({library[1]}:62)', 'nn.linear.forward']),
        ((malloc, mul, generated, compiler, ('fused', '/work/train.py', 45), program[1]),
         ['<module> (/work/train.py:97)', 'fused (/work/train.py:45)', 'aten::mul']),
        ((malloc, mul, torch, library), [f'forward ({library[1]}:62)', f'forward ({torch[1]}:125)',
                                         'aten::mul']),
        ((torch, *program),
         ['<module> (/work/train.py:97)', 'step (/work/train.py:31)', 'nn.linear.forward']),
        ((malloc, mul, node, thread), ['aten::mul in MulBackward0']),
        ((malloc, thread), ['(C++ alone)']),
        ((), ['(no stack recorded)']),
    ]
    events = [{'action': 'alloc', 'addr': (i + 1) << 21, 'size': 512 << i, 'stream': 0, 'time_us': i,
               'frames': [stacks.frame(*frame) for frame in frames]}
              for i, (frames, _) in enumerate(wanted)]
    path = work / 'shown.pickle'
    fixtures.write(path, {'segments': [], 'device_traces': [events]})
    folded = read_folded(export('folded', path))
    for i, (frames, texts) in enumerate(wanted):
        expect(f'stack {i}', [list(stack) for stack, size in folded.items() if size == 512 << i],
               [texts])
    full = read_folded(export('folded', path, '--full-stacks'))
    for i, (frames, _) in enumerate(wanted):
        [stack] = [stack for stack, size in full.items() if size == 512 << i]
        expect(f'all frames of stack {i}', len(stack), len(frames) or 1)


def other_programs(is_sanitized, name):
    if is_sanitized:
        pytest.skip('it reads the same whatever the build')
    if not shutil.which(name):
        pytest.skip(f'{name} is not installed')


def test_go_pprof(export, ask, made, work, is_sanitized):
    other_programs(is_sanitized, 'go')
    path, target = made / 'oom.pickle', work / 'go.pb.gz'
    target.write_bytes(export('pprof', path))
    done = subprocess.run(['go', 'tool', 'pprof', '-unit=B', '-nodefraction=0', '-top', target],
                          capture_output=True, text=True, check=True)
    total = live_bytes(ask('peak', path))
    expect('what Go counts', f' of {total}B total' in done.stdout, True)


def test_schema(export, made, work, is_sanitized):
    """speedscope's own schema, by a program that knows schemas."""
    other_programs(is_sanitized, 'npm')
    home = work / 'speedscope'
    schema = home / 'package' / 'dist' / 'release'
    home.mkdir(parents=True, exist_ok=True)
    if not list(schema.glob('file-format-schema.json')):
        packed_name = subprocess.run(['npm', 'pack', '--silent', 'speedscope@1.25.0'], cwd=home,
                                     capture_output=True, text=True, check=False)
        if packed_name.returncode:
            pytest.skip('npm cannot be reached')
        subprocess.run(['tar', 'xzf', packed_name.stdout.split()[-1]], cwd=home, check=True)
    if not (home / 'venv').exists():
        subprocess.run([sys.executable, '-m', 'venv', home / 'venv'], check=True)
    pip = subprocess.run([home / 'venv/bin/pip', 'install', '-q', 'jsonschema==4.26.0'],
                         capture_output=True, check=False)
    if pip.returncode:
        pytest.skip('PyPI cannot be reached')
    target = work / 'x.speedscope.json'
    target.write_bytes(export('speedscope', made / 'oom.pickle'))
    check = ('import json, sys, jsonschema\n'
             'jsonschema.validate(json.load(open(sys.argv[1])), json.load(open(sys.argv[2])))\n')
    done = subprocess.run([home / 'venv/bin/python', '-c', check, target,
                           schema / 'file-format-schema.json'], capture_output=True, text=True,
                          check=False)
    expect(f'the schema: {done.stderr[-300:]}', done.returncode, 0)


# ---- ranges ----

@first_files
def test_range(export, ask, path):
    """Bytes x time over the whole trace, allocation by allocation."""
    rows = list(csv.DictReader(io.StringIO(export('csv', path).decode(), newline='')))
    raw = fields(gzip.decompress(export('pprof', path, '--events', '0..')))
    got = [0, 0, 0]
    for number, value in raw:
        if number == 2:
            for i, part in enumerate(numbers(dict(fields(value))[2])):
                got[i] += part
    lived = [row for row in rows if row['death_event'] != '0']
    expect('allocations', got[0], len(lived))
    expect('bytes', got[1], sum(int(row['requested_bytes']) for row in lived))
    devices = {str(device['device']): device for device in ask('info', path)}
    want = 0
    for row in lived:
        device = devices[row['device']]
        if device['first_time_us'] is None:  # counted in events
            birth, death = max(int(row['birth_event']), 0), int(row['death_event'] or
                                                                device['events'] - 1)
            want += int(row['requested_bytes']) * (death - birth)
            continue
        birth = int(row['birth_time_us'] or device['first_time_us'])
        death = int(row['death_time_us'] or device['last_time_us'])
        want += int(row['requested_bytes']) * (death - birth) / 1000
    if abs(got[2] - want) > want * 1e-6 + len(lived):
        raise AssertionError(f'bytes x time: got {got[2]}, want {want}')


# ---- tables and time lines ----

@each_file
def test_csv(export, ask, path):
    rows = list(csv.DictReader(io.StringIO(export('csv', path, '--full-stacks').decode(),
                                           newline='')))
    for device in ask('peak', path):
        for event in {-1, device['events'] // 3, device['events'] - 1}:
            live = [row for row in rows if row['device'] == str(device['device']) and
                    int(row['birth_event']) <= event and
                    (not row['death_event'] or int(row['death_event']) > event)]
            [want] = [found for found in ask('at', path, '--event', event)
                      if found['device'] == device['device']] if device['events'] else [None]
            if want and 'live_allocations' in want:
                expect(f'live after {event}', len(live), want['live_allocations'])
                expect(f'bytes after {event}', sum(int(row['requested_bytes']) for row in live),
                       want['requested_bytes'])


@each_file
def test_perfetto(export, ask, path):
    events = json.loads(export('perfetto', path))['traceEvents']
    for device in ask('peak', path):
        own = [event for event in events if event['pid'] == device['device']]
        counters = [event['args'] for event in own if event['name'] == 'memory']
        expect('the peak', max(args['allocated_bytes'] for args in counters),
               device['peak']['allocated_bytes'])
        sums = [sum(event['args'].values()) for event in own
                if event['name'] == 'requested by category']
        expect('the start', sums[0], device['start']['requested_bytes'])
        expect('one sum a state', len(sums), len(counters))
        if device['peak']['requested_bytes'] not in sums:
            raise AssertionError('the peak is no state of the categories')
        check_tracks(own)
        stacks = [event['args']['stack'] for event in own if event['ph'] == 'X' and 'args' in event]
        expect('frames that nobody asked for', [text for text in stacks if HIDDEN.search(text)], [])
    full = json.loads(export('perfetto', path, '--full-stacks'))['traceEvents']
    depth = [event['args']['stack'].count(';') for event in events if event.get('args', {}).get('stack')]
    deeper = [event['args']['stack'].count(';') for event in full if event.get('args', {}).get('stack')]
    expect('the same slices', len(depth), len(deeper))
    expect('more frames', sum(depth) <= sum(deeper), True)


def check_tracks(own):
    """Few, each with a name and a place; slices of one nest."""
    named = {event['tid']: event['args']['name'] for event in own
             if event['ph'] == 'M' and event['name'] == 'thread_name'}
    order = {event['tid']: event['args']['sort_index'] for event in own
             if event['ph'] == 'M' and event['name'] == 'thread_sort_index'}
    used = {event['tid'] for event in own if 'tid' in event and event['ph'] != 'M'}
    expect('names', set(named), used)
    expect('order', set(order), used)
    expect('each another', len(set(order.values())), len(used))
    expect('each named once', len(set(named.values())), len(used))
    expect('few', len(used) <= 2 + 3 * 13, True)
    expect('the process', [event['args'] for event in own if event['name'] == 'process_name'],
           [{'name': f'GPU {own[0]["pid"]} memory'}])
    open_slices = collections.defaultdict(list)
    for event in own:
        if event['ph'] != 'X':
            continue
        outer, until = open_slices[event['tid']], event['ts'] + event['dur']
        while outer and outer[-1] <= event['ts']:
            outer.pop()
        if outer and outer[-1] < until:
            raise AssertionError(f'slices of {named[event["tid"]]} cross')
        outer.append(until)
        expect('depth', len(outer) <= 8, True)


def test_formula(export, work):
    """A frame's name that looks like a formula, or like CSV, is only a name."""
    stacks = fixtures.Stacks()
    run = fixtures.Run(layers=1)
    snapshot = run.snapshot()
    frame = stacks.frame('=HYPERLINK("http://x")\n', '=1+1,"a".py', 7)
    snapshot['device_traces'] = [[{'action': 'alloc', 'addr': 2 << 20, 'size': 512, 'stream': 0,
                                   'time_us': 1, 'frames': [frame]}]]
    path = work / 'formula.pickle'
    fixtures.write(path, snapshot)
    rows = list(csv.reader(io.StringIO(export('csv', path, '--full-stacks').decode(),
                                       newline='')))
    expect('cells', {len(row) for row in rows}, {14})
    if any(cell[:1] in '=+@' and cell for row in rows for cell in row):
        raise AssertionError('a cell that a spreadsheet would run')
