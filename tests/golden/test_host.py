"""Pinned host memory and the allocator's own events.

The snapshots are built by hand. PyTorch does not document how an entry of `host_segments` is spelled, nor
whether `host_traces` is one list of events or one for each device, so every spelling is tried: they must
all give the same answers, and come back from an export unchanged."""
import copy
import csv
import io
import json
import pickle

import pytest
from support import Tessera, cases, expect, load

MIB = 1 << 20
GPU, HOST = 0x7f0000000000, 0x600000000000
TAGGED = {'internal_metadata': 'mallocWithAddress'}


def stack(name, filename='train.py', line=10):
    return [{'name': name, 'filename': filename, 'line': line},
            {'name': 'main', 'filename': 'train.py', 'line': 99}]


PIN = stack('pin_batch', 'data.py', 7)


def event(action, addr, size, at_us, frames=(), **more):
    made = {'action': action, 'addr': addr, 'size': size, 'stream': 0, 'time_us': at_us,
            'compile_context': 'N/A', 'user_metadata': '', 'pool_id': (0, 0), **more}
    return {**made, 'frames': list(frames)} if frames else made


def host_events(**more):
    """A block of 4 MiB serves 3 MiB and then 4; one of 1 MiB; one from before, of 2, is given up."""
    rows = [('segment_alloc', 0, 4, PIN), ('alloc', 0, 3, PIN),
            ('segment_alloc', 16, 1, stack('buffer')), ('alloc', 16, 1, stack('buffer')),
            ('free_requested', 0, 3, PIN), ('free_completed', 0, 3, PIN), ('alloc', 0, 4, PIN),
            ('free_requested', 32, 2, PIN), ('free_completed', 32, 2, PIN),
            ('segment_free', 32, 2, PIN)]
    return [event(action, HOST + at * MIB, size * MIB, 1000 + i, frames, **more)
            for i, (action, at, size, frames) in enumerate(rows)]


def gpu_events():
    return [event('segment_alloc', GPU, 2 * MIB, 1000, stack('net')),
            event('alloc', GPU, MIB // 2, 1001, stack('net'))]


def block(address, size, state='active_allocated', frames=()):
    return {'address': address, 'size': size, 'requested_size': size * (state != 'inactive'),
            'state': state, 'frames': list(frames)}


def segment(address, blocks, **more):
    used = sum(b['size'] for b in blocks if b['state'] != 'inactive')
    return {**more, 'address': address, 'total_size': sum(b['size'] for b in blocks),
            'allocated_size': used, 'active_size': used, 'requested_size': used, 'stream': 0,
            'segment_type': 'small', 'segment_pool_id': (0, 0), 'is_expandable': False,
            'frames': [], 'blocks': blocks}


HELD = ((0, 4, 'active_allocated', PIN), (16, 1, 'active_allocated', stack('buffer')),
        (64, 8, 'inactive', ()))


def held_blocks():
    return [block(HOST + at * MIB, size * MIB, state, frames) for at, size, state, frames in HELD]


def like_device(**more):
    return [segment(b['address'], [b], **more) for b in held_blocks()]


def without_blocks():
    return [{key: value for key, value in s.items() if key != 'blocks'} for s in like_device()]


def flags(s):
    """Booleans for bytes, as the struct in C++ has them."""
    is_used = s['allocated_size'] > 0
    kept = {key: s[key] for key in ('address', 'total_size', 'segment_pool_id', 'frames')}
    return {**kept, 'allocated': is_used, 'active': is_used}


def flat():
    return [{'address': b['address'], 'size': b['size'], 'allocated': b['state'] != 'inactive',
             'active': b['state'] != 'inactive', 'pool_id': (0, 0), 'frames': b['frames']}
            for b in held_blocks()]


def split_by_device():
    """The same events in two lists, as if the process had two GPUs."""
    events = host_events()
    return [[e for e in events if e['addr'] < HOST + 16 * MIB],
            [e for e in events if e['addr'] >= HOST + 16 * MIB]]


def snapshot(held, traces, **more):
    rest = block(GPU + MIB // 2, 3 * MIB // 2, 'inactive')
    gpu = [segment(GPU, [block(GPU, MIB // 2, frames=stack('net')), rest], device=0)]
    return {'segments': gpu, 'device_traces': [gpu_events()],
            'allocator_settings': {'PYTORCH_CUDA_ALLOC_CONF': '', 'expandable_segments': False},
            'external_annotations': [], 'host_segments': held, 'host_traces': traces, **more}


def spellings():
    yield 'like a device', snapshot(like_device(), [host_events()])
    yield 'with devices', snapshot(like_device(device=0), [host_events()])
    yield 'on device -1', snapshot(like_device(device=-1), [host_events(), []])
    yield 'on device cpu', snapshot(like_device(device='cpu'), [host_events()])
    yield 'without blocks', snapshot(without_blocks(), host_events())
    yield 'with flags', snapshot([flags(s) for s in like_device()], [host_events()])
    yield 'blocks alone', snapshot(held_blocks(), [host_events()])
    yield 'flat', snapshot(flat(), host_events(stream=None))
    yield 'two lists', snapshot(like_device(), split_by_device())
    yield 'without a GPU', snapshot(like_device(), host_events(), segments=[], device_traces=[])


class Host(Tessera):
    def __init__(self, tessera, work):
        super().__init__(tessera)
        self.work = work

    def write(self, data, name='snapshot.pickle'):
        path = self.work / name
        path.write_bytes(pickle.dumps(data))
        return path

    def first(self):
        return self.write(SPELLINGS['like a device'])

    def comes_back(self, data):
        path = self.write(data)
        out = self.work / 'out.pickle'
        self.run('export', '-o', out, path)
        expect('a pickle', load(out), data)
        out = self.work / 'out.json'
        self.run('export', '-o', out, path)
        expect('JSON', json.loads(out.read_text()), json.loads(json.dumps(data)))
        expect('the same answer of it', self.json('peak', out)['devices'], self.json('peak', path)['devices'])


@pytest.fixture(scope='module')
def host(tessera, work):
    return Host(tessera, work)


SPELLINGS = dict(spellings())
WITH_GPU = {name: data for name, data in SPELLINGS.items() if data['segments']}


@cases('data', WITH_GPU.values(), WITH_GPU)
def test_same_answers(host, data):
    path = host.write(data)
    device = host.device('peak', '--device', 'host', path)
    expect('device', device['device'], 'host')
    expect('events', device['events'], 10)
    peak = device['peak']
    expect('the peak', [peak[key] for key in
                        ('event', 'requested_bytes', 'allocated_bytes', 'reserved_bytes')],
           [3, 6 * MIB, 7 * MIB, 15 * MIB])
    expect('the end', (device['end']['allocated_bytes'], device['end']['reserved_bytes']),
           (5 * MIB, 13 * MIB))
    expect('rounding', device['fragmentation']['rounding_bytes'], MIB)
    expect('who', [(s['bytes'], s['frames'][0]['name'] if s['frames'] else None)
                   for s in device['stacks']],
           [(3 * MIB, 'pin_batch'), (2 * MIB, None), (MIB, 'buffer')])
    info = host.json('info', path)
    expect('blocks', [(d['blocks'], d['replay']['final_matched']) for d in info['devices']][-1],
           (3, 2))
    expect('warnings', info['warnings'], [])


@cases('data', SPELLINGS.values(), SPELLINGS)
def test_comes_back(host, data):
    host.comes_back(data)


def test_all_commands(host):
    """Each command lists the GPU first and then the host; --device selects."""
    path = host.first()
    for words in (['info'], ['peak'], ['profile'], ['at', '--event', '1'], ['why'], ['steps'],
                  ['leaks'], ['stages'], ['diff', path]):
        for asked, want in ((['--device', 'all'], [0, 'host']), ([], [0, 'host']),
                            (['--device', 'host'], ['host']), (['--device', '0'], [0])):
            got = [d['device'] for d in host.json(*words, path, *asked)['devices']]
            expect(f'{words[0]} {asked}', got, want)
    text = host.run('peak', path).stdout
    expect('the text names it', '\nPinned host memory: peak 7.00 MiB allocated of' in text, True)
    text = host.run('info', path).stdout
    expect('and counts it apart', '1 device, 2 events; pinned host memory, 10 events.' in text,
           True)


def test_is_no_gpu(host):
    """Budgets and the GPU's allocator are not about it."""
    path = host.first()
    got = host.json('check', '--max', '1M', path)
    expect('check', [d['device'] for d in got['devices']], [0])
    expect('which says so', [w['code'] for w in got['warnings']], ['host-left-out'])
    got = host.json('check', '--max', '1M', '--device', 'host', path, status=1)
    expect('unless it is asked', [d['device'] for d in got['devices']], ['host'])
    got = host.json('whatif', path)
    expect('whatif', [d['device'] for d in got['devices']], [0])
    expect('which says so', [w['code'] for w in got['warnings']], ['host-left-out'])
    done = host.run('whatif', '--device', 'host', path, status=2)
    expect('whatif of it', 'pinned host memory has another' in done.stderr, True)
    got = host.json('pools', path)
    expect('pools', [d['device'] for d in got['devices']], [0])
    expect('which says so', [w['code'] for w in got['warnings']], ['host-left-out'])
    done = host.run('pools', '--device', 'host', path, status=2)
    expect('pools of it', 'pinned host memory is never split' in done.stderr, True)
    got = host.device('why', '--capacity', '1M', '--device', 'host', path)
    expect('its capacity is no card\'s', got.get('capacity_bytes') or None, None)
    missing = host.run('peak', '--device', 'host', host.write(
        {'segments': [], 'device_traces': [gpu_events()]}), status=2)
    expect('a file without', 'no events or segments for pinned host memory' in missing.stderr,
           True)


def test_lock(host):
    path, lock = host.first(), host.work / 'run.lock'
    host.run('check', '--lock', lock, '--update', '--device', '0,host', path)
    got = host.json('check', '--lock', lock, path)
    expect('a lock that has it', [d['device'] for d in got['devices']], [0, 'host'])
    host.run('check', '--lock', lock, '--update', path)
    expect('a lock without', 'device host' in lock.read_text(), False)


def test_diff_of_one_gpu(host):
    """One GPU each is compared whatever its number; the host with the host."""
    old = host.first()
    data = snapshot(like_device(), [host_events()])
    data['segments'][0]['device'] = 1
    data['device_traces'] = [[]] + data['device_traces']
    new = host.write(data, 'new.pickle')
    expect('pairs', [(d['old']['device'], d['new']['device'])
                     for d in host.json('diff', old, new)['devices']], [(0, 1), ('host', 'host')])


def test_trim(host):
    for data in (snapshot(like_device(), [host_events()]),
                 snapshot(flat(), host_events(stream=None))):
        path, out = host.write(data), host.work / 'part.pickle'
        host.run('trim', '--events', '2..7', '-o', out, path)
        part = load(out)
        events = part['host_traces']
        expect('as it was listed', isinstance(events[0], list),
               isinstance(data['host_traces'][0], list))
        expect('the events', events[0] if isinstance(events[0], list) else events,
               host_events(stream=data['host_traces'][0].get('stream')
                           if isinstance(events[0], dict) else 0)[2:8])
        want = host.device('at', '--event', '3', '--device', 'host', path)
        got = host.device('at', '--event', '1', '--device', 'host', out)
        for key in ('requested_bytes', 'allocated_bytes', 'reserved_bytes'):
            expect(key, got[key], want[key])
        host.run('trim', '--device', '0', '--events', '0..1', '-o', out, path)
        expect('without it', [key for key in load(out) if key.startswith('host')], [])


def test_exports(host):
    path = host.first()
    rows = list(csv.DictReader(io.StringIO(
        host.run('export', '--format', 'csv', path).stdout)))
    expect('CSV', [r['device'] for r in rows], ['0'] + ['host'] * 4)
    expect('blocks in CSV', [int(r['size_bytes']) // MIB for r in rows[1:]], [2, 4, 1, 4])
    folded = host.run('export', '--format', 'folded', path).stdout
    expect('folded', sum(line.startswith('pinned host memory;')
                         for line in folded.splitlines()), 3)
    trace = json.loads(host.run('export', '--format', 'perfetto', path).stdout)
    expect('Perfetto', {e['args']['name']: e['pid'] for e in trace['traceEvents']
                        if e['name'] == 'process_name'},
           {'GPU 0 memory': 0, 'Pinned host memory': 1})
    names = json.loads(host.run('export', '--format', 'speedscope', path).stdout)['profiles']
    expect('speedscope', names[1]['name'].startswith('pinned host memory, '), True)


def test_rounding(host):
    """Without segments, a request counts with the power of two that serves it, up to the limit."""
    events = [event('alloc', HOST, 3 * MIB, 1000), event('alloc', HOST + 8 * MIB, 5 * MIB, 1001)]
    for settings, want in (({}, 12), ({'max_round_threshold': 4 * MIB}, 9),
                           ({'max_round_threshold': -1, 'max_cached_size': MIB}, 8)):
        path = host.write(snapshot([], [events], allocator_settings=settings))
        got = host.device('peak', '--device', 'host', path)['peak']
        expect(f'{settings}', (got['requested_bytes'], got['allocated_bytes']),
               (8 * MIB, want * MIB))


def test_hostile(host):
    huge = 2**64 - 1
    odd = [None, 7, 'text', [], {}, {'address': 1}, {'address': 'x', 'size': 5},
           {'address': huge, 'size': huge, 'allocated': 1}, {'address': 5, 'size': -5},
           {'address': 4096, 'size': 2**70}, {'blocks': 5}, {'total_size': 'x', 'blocks': None},
           {'address': 4096, 'size': 1, 'frames': 7, 'pool_id': {'a': 1}},
           {'address': huge, 'total_size': huge, 'allocated_size': huge},
           {'address': 1 << 20, 'size': 512, 'state': 'active_allocated', 'frames': ['f']},
           {'address': 1 << 20, 'size': 512, 'state': 'odd'}, [[[[[{'address': 1, 'size': 1}]]]]]]
    events = [event('alloc', 1 << 20, huge, 5), event('free_completed', 7, huge, 1),
              event('oom', 1, huge, 2), event('segment_free', 1, 1, 3), {'action': 'alloc'},
              event('segment_map', 4096, huge - 8192, 3), event('snapshot', 0, 1, 9)]
    same = odd + odd
    traces = [events, events, [7, 'x'], None, (event('alloc', 4096, 1, 4), 5)]
    for segments in (same, tuple(same), {'a': same}, 5, None, 'x', [same, same]):
        for trace in (traces, events, tuple(events), {'cuda:0': events}, 5, None, [[[[events]]]]):
            data = snapshot(segments, trace)
            path = host.write(data)
            for words in (['info'], ['peak'], ['why'], ['profile']):
                host.run(*words, path)
            out = host.work / 'out.pickle'
            host.run('export', '-o', out, path)
            host.run('trim', '--events', '0..1', '-o', out, path)


@cases('order', ['before', 'around'], str)
def test_wished(host, order):
    """The allocator's own pair before an allocation at a wished address, in either order."""
    at = GPU + MIB
    pair = [event('alloc', GPU + MIB // 2, MIB // 2, 1002, stack('net'), **TAGGED),
            event('free_requested', GPU + MIB // 2, MIB // 2, 1003, **TAGGED),
            event('free_completed', GPU + MIB // 2, MIB // 2, 1003, **TAGGED)]
    wished = event('alloc', at, MIB // 4, 1004, stack('wished'))
    events = gpu_events() + (pair + [wished] if order == 'before' else
                             pair[:1] + [wished] + pair[1:])
    events = [dict(e, time_us=1000 + i) for i, e in enumerate(events)]
    data = snapshot([], [], device_traces=[events])
    blocks = data['segments'][0]['blocks']
    blocks[1]['size'] = MIB // 2
    blocks += [block(at, MIB // 4, frames=stack('wished')),
               block(at + MIB // 4, 3 * MIB // 4, 'inactive')]
    del data['host_segments'], data['host_traces']
    path = host.write(data)
    info = host.json('info', path)
    expect('warnings', info['warnings'], [])
    expect('counts', info['devices'][0]['actions'],
           {'alloc': 2, 'segment_alloc': 1, '(internal)': 3})
    expect('replay', info['devices'][0]['replay']['final_matched'], 2)
    peak = host.device('peak', path)
    expect('peak', peak['peak']['allocated_bytes'], 3 * MIB // 4)
    expect('at it', [s['frames'][0]['name'] for s in peak['stacks']], ['net', 'wished'])
    groups = host.device('profile', path)['groups']
    expect('profile', sum(g['bytes'] for g in groups), 3 * MIB // 4)
    rows = list(csv.DictReader(io.StringIO(host.run('export', '--format', 'csv', path).stdout)))
    expect('allocations', len(rows), 2)
    host.comes_back(data)
    out = host.work / 'part.pickle'
    host.run('trim', '--events', '2..5', '-o', out, path)
    expect('a part keeps them', load(out)['device_traces'][0], copy.deepcopy(events[2:]))
    empty = copy.deepcopy(data)
    for e in empty['device_traces'][0]:
        if 'internal_metadata' in e:
            e['internal_metadata'] = ''
    expect('an empty tag is none', host.device('info', host.write(empty))['actions'],
           {'alloc': 3, 'free_requested': 1, 'free_completed': 1, 'segment_alloc': 1})
