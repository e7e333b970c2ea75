"""What `tessera export` writes is what the file held, value for value.

Small snapshots with everything odd that a writer of such files may do are pickled in all
protocols, exported as pickle and as JSON, loaded again and compared, types included. Then the
same with real snapshots. With --sanitized, of those only the pickle is loaded again: what takes long is
Python's part, and its answer does not depend on how tessera was built."""
import json
import math
import os
import pickle
import pickletools
import pty
import struct
import subprocess
import threading

import pytest
from support import Tessera, cases, load, real

# What torch/utils/viz/MemoryViz.js reads.
ACCEPTED = set('PROTO FRAME MEMOIZE BINPUT LONG_BINPUT BINGET LONG_BINGET MARK EMPTY_DICT '
               'EMPTY_LIST EMPTY_TUPLE DICT LIST TUPLE TUPLE1 TUPLE2 TUPLE3 APPEND APPENDS SETITEM '
               'SETITEMS NONE NEWTRUE NEWFALSE BININT BININT1 BININT2 LONG1 BINFLOAT BINUNICODE '
               'SHORT_BINUNICODE STOP'.split())
BATCH = 1000
FRAME_TARGET = 64 << 10
HUGE = 2**64 - 1
VAST = [2**64, 2**71 - 1, 2**71, 10**40, 10**613 - 1]  # beyond any column
LONE = '/home/\udce9t\ud800/x.py'  # what an undecodable path looks like


# ---- loading and comparing ----

def as_json(value, done=None):
    """The value as JSON has it: tuples are lists, keys are texts. What is shared stays shared."""
    done = {} if done is None else done
    if not isinstance(value, (dict, list, tuple)):
        return value
    if id(value) not in done:
        if isinstance(value, dict):
            done[id(value)] = {key if isinstance(key, str) else json.dumps(key): as_json(item, done)
                               for key, item in value.items()}
        else:
            done[id(value)] = [as_json(item, done) for item in value]
    return done[id(value)]


def difference(got, want, at='snapshot'):
    """Where two values differ, types included, or None."""
    if type(got) is not type(want):
        return f'{at}: {got!r:.80} is no {type(want).__name__}, as {want!r:.80} is'
    if isinstance(want, dict):
        if got.keys() != want.keys():
            return f'{at}: keys {sorted(map(str, got))}, not {sorted(map(str, want))}'
        pairs = ((got[key], item, f'{at}[{key!r}]') for key, item in want.items())
    elif isinstance(want, (list, tuple)):
        if len(got) != len(want):
            return f'{at}: {len(got)} items, not {len(want)}'
        pairs = ((*both, f'{at}[{i}]') for i, both in enumerate(zip(got, want)))
    elif isinstance(want, float):
        same = struct.pack('d', got) == struct.pack('d', want)
        return None if same else f'{at}: {got}, not {want}'
    else:
        return None if got == want else f'{at}: {got!r:.80}, not {want!r:.80}'
    for a, b, place in pairs:
        found = difference(a, b, place)
        if found:
            return found
    return None


def expect_same(got, want, what):
    found = difference(got, want)
    if found:
        raise AssertionError(f'{what}: {found}')


# ---- the form of the pickle ----

def check_frames(data, operations):
    """Frames are full and meet opcodes; outside are long texts, and less than four bytes."""
    end, run = 0, 0
    nexts = [at for _, _, at in operations[1:]] + [len(data)]
    for (op, value, at), behind in zip(operations, nexts):
        if op.name == 'FRAME':
            assert at >= end, f'the frame at byte {at} begins in another'
            end = behind + value
            assert value >= 4, f'a frame of {value} bytes'
            assert value < 2 * FRAME_TARGET + 64, f'a frame of {value} bytes'
            follows_long = data[end:end + 1] == b'X'
            assert value >= FRAME_TARGET or end == len(data) or follows_long, f'a frame of only {value} bytes at byte {at}'
        elif at < end:
            assert behind <= end, f'the frame that ends at byte {end} splits an opcode'
            run = 0
        elif op.name == 'BINUNICODE' and behind - at >= FRAME_TARGET:
            run = 0
        elif op.name != 'PROTO':
            run += behind - at
            assert run < 4, f'{op.name} at byte {at} is outside of all frames'


def check_batches(operations):
    """Count what is above each mark: a small machine that knows numbers of values alone."""
    depth = [0]
    for op, _, at in operations:
        if op.name == 'MARK':
            depth.append(0)
        elif op.name in ('APPENDS', 'SETITEMS', 'TUPLE'):
            count = depth.pop()
            most = {'APPENDS': BATCH, 'SETITEMS': 2 * BATCH, 'TUPLE': math.inf}[op.name]
            assert 0 < count <= most, f'{op.name} of {count} values at byte {at}'
            depth[-1] += op.name == 'TUPLE'
        elif op.name in ('APPEND', 'SETITEM'):
            depth[-1] -= 1 if op.name == 'APPEND' else 2
        elif op.name not in ('PROTO', 'FRAME', 'MEMOIZE', 'STOP'):
            depth[-1] += len(op.stack_after) - len(op.stack_before)
    assert depth == [1], f'{depth} values remain'


def check_form(path):
    data = path.read_bytes()
    operations = list(pickletools.genops(data))
    names = {op.name for op, _, _ in operations}
    assert data[:2] == b'\x80\x04', 'it is not protocol 4'
    assert names <= ACCEPTED, f'opcodes that viewers refuse: {names - ACCEPTED}'
    check_batches(operations)
    check_frames(data, operations)


# ---- snapshots ----

def frame(name='f', **more):
    return {'name': name, 'filename': 'a.py', 'line': 1, **more}


def event(action='alloc', **more):
    return {'action': action, 'addr': 0x7f0000000000, 'size': 512, 'stream': 0, **more}


def block(**more):
    return {'address': 4096, 'size': 512, 'requested_size': 500, 'state': 'active_allocated',
            'frames': [], **more}


def segment(**more):
    return {'device': 0, 'address': 4096, 'total_size': 512, 'allocated_size': 512,
            'active_size': 512, 'requested_size': 500, 'stream': 0, 'segment_type': 'small',
            'segment_pool_id': (0, 0), 'is_expandable': False, 'frames': [], 'blocks': [block()],
            **more}


def snapshot(events=(), segments=(), **more):
    return {'segments': list(segments), 'device_traces': [list(events)], **more}


def modern():
    shared, empty = [frame('alloc'), frame('main')], []
    events = [event(time_us=1 << 50, compile_context='N/A', user_metadata='', pool_id=(0, 0),
                    frames=shared),
              event('free_requested', time_us=2, compile_context='Region 0/1', user_metadata='x',
                    pool_id=(0, 1), frames=shared),
              event('free_completed', time_us=-5, frames=[]),
              event('segment_map', category='parameter', frames=empty)]
    oom = event('oom', device_free=123)
    del oom['addr']
    return snapshot(events + [oom], [segment(frames=empty), segment(frames=shared, device=1)],
                    allocator_settings={'PYTORCH_CUDA_ALLOC_CONF': '', 'max_split_size': -1,
                                        'garbage_collection_threshold': 0.8, 'expandable': True,
                                        'roundup': {str(1 << i): 0 for i in range(16)}},
                    external_annotations=[{'name': 'step', 'stage': 'START', 'device': 0,
                                           'time_us': 5}])


def unknown_keys():
    odd = {'more': [1, -1, None, True, 2.5, 'x', (1, 2, 3), (1, 2, 3, 4), (), (7,), [], {}]}
    return snapshot(
        [event(odd=odd, frames=[frame(fx_node_op=None, fx_node_name='n', fx_node_target='t')]),
         event(frames=[frame(fx_node_name='another'), frame()]), event(other=(5, 6))],
        [segment(odd=1, blocks=[block(odd=odd), block(forward_frames=['a\n', 'b\n'])])],
        external_annotations=[{'name': 'a', 'stage': 'END', 'odd': 'x'}, {'stage': 'START'}],
        odd=odd, single={'one': 1}, keys={1: 'a', None: 'b', True: 'c', 'd': 2, 1.5: 'e'})


def missing_keys():
    return snapshot(
        [{'action': 'alloc', 'size': 1}, {'action': 'snapshot'}, {'action': 'oom', 'size': 3}],
        [{'total_size': 9, 'device': 1, 'blocks': [{'size': 4, 'state': 'inactive'},
                                                   {'size': 5, 'state': 'active_pending_free'}]},
         {'blocks': [], 'address': 1}, {'total_size': 1, 'address': 77}],
        external_annotations=[])


def odd_values():
    return snapshot(
        [event(addr='0x7f00', size=512.5), event(addr=-4096, size=-1), event(size=512.0),
         event(addr=HUGE, size=None, stream='7'), event(stream=HUGE, frames=None),
         event(stream=-1, time_us=1.5, compile_context=None, category=3),
         event(user_metadata={'layer': 3, 'names': ['a', 'b']}), event(user_metadata=None),
         event(pool_id=[0, 0]), event(pool_id=[0, 7]), event(pool_id=(1, -1)), event(pool_id=5),
         event(pool_id=[-1, 'x']), event(pool_id=(1, 2, 3)), event(pool_id=None), event(True),
         event('brand_new_action'), event(None), event(device_free=5), event(time_us=HUGE),
         event(frames=[frame(line=HUGE), frame(line=-1), frame(line=None), frame(line=2**40),
                       {'name': None, 'filename': 'b.py', 'line': 0}, {'filename': 'c.py'}]),
         event(frames=['a text', 'instead of a dict']), event(size=True)],
        [segment(address=HUGE, stream=HUGE, segment_pool_id=[0, 1], is_expandable=1),
         segment(segment_pool_id=9, segment_type='huge', device=True, frames=None),
         segment(segment_type=None, blocks=[block(state='odd'), block(state=None, size=1.5),
                                            block(address='0x1000'), block(requested_size=-3)])],
        external_annotations=[{'name': None, 'stage': 'START', 'device': -1, 'time_us': 1.5}])


def numbers():
    edges = [0, 1, 127, 128, 255, 256, 32767, 32768, 65535, 65536, 2**31 - 1, 2**31, 2**32, 2**39,
             2**40, 2**63 - 1, 2**63, HUGE]
    floats = [0.0, -0.0, 0.1, 1e16, 1e22, 5e-324, 1.7976931348623157e308, math.pi, math.inf,
              -math.inf, 3.0, 123456789.125]
    return snapshot([event(addr=edge, time_us=edge if edge < 2**63 else 0) for edge in edges],
                    edges=edges + [-edge for edge in edges if edge <= 2**63], floats=floats,
                    vast=[sign * number for number in VAST for sign in (1, -1)])


def texts():
    names = ['', 'é', '\u20ac', '\U0001f600', LONE, '\0\x01\x7f\x80"\\/\b\f\n\r\t', '\ud83d x',
             'x' * 255, 'x' * 256, 'é' * 128, 'y' * 65535, 'z' * 65536, 'w' * 70000 + '\udcff']
    return snapshot([event(frames=[frame(name, filename=name)]) for name in names],
                    **{name: name for name in names})


def batches():
    lists = {f'list {n}': list(range(n)) for n in (0, 1, 2, 999, 1000, 1001, 2000, 2001)}
    dicts = {f'dict {n}': {str(i): i for i in range(n)} for n in (0, 1, 2, 1000, 2000)}
    deep = [frame(f'f{i}') for i in range(3000)]
    events = [event(addr=i, size=i * i, time_us=i, frames=deep[:i % 5]) for i in range(3000)]
    return snapshot(events + [event(frames=deep), event(frames=deep[:1000])],
                    [segment(blocks=[block(address=i) for i in range(2000)])], **lists, **dicts)


def history():
    used = [{'addr': 1, 'real_size': 100, 'frames': [frame()]}, {'addr': 1, 'real_size': 90}]
    old = {key: value for key, value in segment().items()
           if key not in ('segment_pool_id', 'is_expandable', 'frames')}
    blocks = [{'size': 512, 'requested_size': 0, 'state': 'inactive', 'history': used},
              {'size': 512, 'requested_size': 0, 'state': 'inactive'},
              {'size': 5, 'state': 'inactive', 'history': []},
              {'size': 5, 'state': 'inactive', 'history': [dict(used[0], odd=1)]}]
    return snapshot([], [dict(old, blocks=blocks)])


def pinned_memory():
    """Rows of segments and events that stand where no trace and no list of segments is."""
    shared = [frame('host')]
    return {'host_segments': [segment(odd=1), segment(address=1)], 'segments': [segment(odd=2)],
            'external_annotations': [{'stage': 'START', 'odd': 1}],
            'host_traces': [[event(addr=1, frames=shared), event(odd=5)], []],
            'device_traces': [[event(addr=2, frames=shared)], [event(addr=3)]],
            'host': {'stack': shared, 'one': event(addr=4), 'note': {'stage': 'END', 'odd': 2},
                     'block': block(), 'frame': frame('alone'), 'pool': (1, 2)}}


def shared_objects():
    """One object in many places, and traces that interleave, so that tables are put in order."""
    one, two, odd = event(addr=1), event(addr=2, odd=[1]), event(addr=3, inner=event(addr=4, odd=2))
    whole, empty = segment(odd=1), []
    first = [one, two]
    second = [odd, event(addr=5)]
    first += [second[1], odd, one]
    segments = [whole, segment(frames=empty)]
    return {'copy': segments, 'device_traces': [first, second, empty], 'segments': segments,
            'views': [second, [two, one]], 'a segment': whole, 'an event': odd,
            'external_annotations': empty}


def open_while_named():
    """An empty list that blocks share with their segment, whose dict is still open then."""
    empty = []
    blocks = [block(frames=[frame(str(i))] if i % 2 else empty) for i in range(4)]
    return snapshot([event(frames=empty)],
                    [segment(frames=empty, blocks=blocks), segment(frames=[frame('x')])])


MADE = {
    'as PyTorch writes them': modern, 'unknown keys at every level': unknown_keys,
    'missing keys': missing_keys, 'values of odd types': odd_values, 'numbers': numbers,
    'texts': texts, 'batches': batches, 'history of blocks': history,
    'pinned host memory': pinned_memory, 'shared objects': shared_objects,
    'lists named while they are open': open_while_named,
    'a bare list': lambda: [segment(), segment(device=3, odd=1)], 'an empty list': lambda: [],
    'no segments': lambda: {'segments': [], 'device_traces': []},
    'segments alone': lambda: {'segments': [segment()]},
    'a trace alone': lambda: {'device_traces': [[event()]]},
    'empty traces': lambda: {'segments': [], 'device_traces': [[], [], [event()], []]},
    'lists that are none': lambda: {'segments': None, 'device_traces': [[event()]],
                                    'external_annotations': {'a': 1}},
}


# ---- tests ----

class Exporter(Tessera):
    def __init__(self, tessera, work):
        super().__init__(tessera)
        self.work = work

    def export(self, *arguments, **more):
        """What `export` prints, and its messages."""
        done = self.run('export', *arguments, text=False, **more)
        return done.stdout, done.stderr.decode(errors='replace').strip()

    def compare(self, path, want):
        """Export as both, and each as pickle again: what is loaded is what the original holds."""
        out, again, text = (self.work / name for name in ('a.pickle', 'b.pickle', 'a.json'))
        self.export(path, '-o', out)
        check_form(out)
        expect_same(load(out), want, 'pickle')
        self.export(path, '-o', text)
        data = text.read_bytes()
        assert data.isascii() and data.endswith(b'\n'), 'the JSON is not ASCII lines'
        expect_same(json.loads(data), as_json(want), 'JSON')
        self.export(out, '-o', again)
        expect_same(load(again), want, 'the export of the export')
        self.export(text, '-o', again)
        expect_same(load(again), as_json(want), 'the export of the JSON')

    def small(self, value, name='small.pickle', protocol=4):
        path = self.work / name
        path.write_bytes(pickle.dumps(value, protocol))
        return path


@pytest.fixture(scope='module')
def exporter(tessera, work):
    return Exporter(tessera, work)


@cases('make', MADE.values(), MADE)
def test_made(exporter, make):
    want = make()
    for protocol in range(6):
        path = exporter.small(want, f'{protocol}.pickle', protocol)
        try:
            exporter.compare(path, load(path))
        except AssertionError as problem:
            raise AssertionError(f'protocol {protocol}: {problem}') from None
    path = exporter.work / 'python.pickle'
    with open(path, 'wb') as file:
        pickle._Pickler(file, 4).dump(want)  # writes some batches another way
    exporter.compare(path, load(path))


@cases('path', real())
def test_real(exporter, is_sanitized, path):
    """compare for large files: equal, by Python's own and quick idea of it."""
    want, out = load(path), exporter.work / 'real.pickle'
    exporter.export(path, '-o', out)
    is_same = load(out) == want
    assert is_same, 'the pickle holds something else'
    text = exporter.export(path, '--json')[0]
    if not is_sanitized:
        check_form(out)
        is_same = json.loads(text) == as_json(want)
        assert is_same, 'the JSON holds something else'


def test_form(exporter):
    """The name decides, and options outdo it; -o - is standard output."""
    path = exporter.small(modern())
    want = load(path)
    assert pickle.loads(exporter.export(path)[0]) == want, 'the default is no pickle'
    assert pickle.loads(exporter.export('-o', '-', path)[0]) == want, '-o - is no pickle'
    for options in (['--format', 'json'], ['--json']):
        assert json.loads(exporter.export(path, *options)[0]) == as_json(want), f'{options}'
    exporter.export(path, '--format', 'pickle', '-o', exporter.work / 'named.json')
    assert load(exporter.work / 'named.json') == want, '--format pickle does not outdo the name'
    exporter.export(path, '-o', exporter.work / 'upper.JSON')
    assert json.loads((exporter.work / 'upper.JSON').read_bytes()) == as_json(want), '.JSON'
    exporter.export('--json', '--format=pickle', path, status=2)
    exporter.export('--device', '0', path, status=2)
    assert pickle.loads(exporter.export('-', input=path.read_bytes())[0]) == want, 'standard input'


def test_lines(exporter):
    """One event or segment a line."""
    path = exporter.small(modern())
    lines = exporter.export(path, '--json')[0].decode().splitlines()
    for start, count in (('{"action":', 5), ('{"device":', 2), ('{"stage":', 1)):
        assert sum(line.startswith(start) for line in lines) == count, f'{start} is not a line'


def test_terminal(exporter):
    """A pickle is not for a terminal, JSON is."""
    path = exporter.small(modern())
    for options, status in (([], 2), (['--json'], 0)):
        ours, theirs = pty.openpty()
        got = bytearray()

        def read(source=ours, into=got):
            try:
                while True:
                    into += os.read(source, 4096)
            except OSError:  # the other end is closed
                pass
        reader = threading.Thread(target=read)
        reader.start()
        done = subprocess.run([exporter.path, 'export', str(path), *options], stdout=theirs,
                              stderr=subprocess.PIPE, check=False)
        os.close(theirs)
        reader.join()
        os.close(ours)
        assert done.returncode == status, f'{options}: exit {done.returncode}'
        assert bool(got) == (status == 0), f'{options}: {bytes(got[:40])}'
        assert status == 0 or b'terminal' in done.stderr, f'{done.stderr}'


def test_not_text(exporter):
    """Bytes that are no UTF-8 become U+FFFD, in both forms."""
    path = exporter.work / 'damaged.pickle'
    good = pickle.dumps(snapshot([event(frames=[frame('Q' * 7)])]), 4)
    for bad, want in ((b'a\xffbcdef', 'a\ufffdbcdef'), (b'abcdef\xe2', 'abcdef\ufffd'),
                      (b'\xc0\xafabcde', '\ufffd\ufffdabcde'),
                      (b'\xf4\x90\x80\x80abc', '\ufffd' * 4 + 'abc')):
        path.write_bytes(good.replace(b'Q' * 7, bad))
        for got in (pickle.loads(exporter.export(path)[0]),
                    json.loads(exporter.export(path, '--json')[0])):
            name = got['device_traces'][0][0]['frames'][0]['name']
            assert name == want, f'{bad} became {name!r}'


def test_not_a_number(exporter):
    """NaN is written as Python does."""
    path = exporter.small(snapshot(odd=math.nan))
    for got in (pickle.loads(exporter.export(path)[0]), json.loads(exporter.export(path, '--json')[0])):
        assert math.isnan(got['odd']), f'{got}'


def test_endless(exporter):
    """What grows without end when it is spelled out is refused; the pickle of it stays small."""
    value = ['x']
    for _ in range(60):
        value = [value, value]
    path = exporter.small(snapshot(odd=value))
    _, message = exporter.export(path, '--json', '-o', exporter.work / 'endless.json', status=3)
    assert 'nested' in message, message
    assert not (exporter.work / 'endless.json').exists(), 'half of it was left behind'
    data = exporter.export(path)[0]
    assert len(data) < 2000 and 'odd' in pickle.loads(data), f'{len(data)} bytes'
    # A chain of events, each of which holds the one before: flat to read, deep to write.
    key, action = b'X\x05\0\0\0inner', b'X\x06\0\0\0actionX\x05\0\0\0alloc'
    chain = b'}(' + action + key + b'Nu\x940'
    for i in range(3000):
        chain += b'}(' + action + key + b'j' + struct.pack('<I', i) + b'u\x940'
    path.write_bytes(b'\x80\x04' + chain + b'}(X\x0d\0\0\0device_traces]]j' +
                     struct.pack('<I', 3000) + b'aau.')
    exporter.export(path, status=3)
    exporter.export(path, '--json', status=3)


def test_holds_itself(exporter):
    """A snapshot, a list or a dict that holds itself comes out with None in that place."""
    for protocol in range(6):
        want = snapshot([event()], odd=[1])
        want['odd'].append(want['odd'])
        want['self'] = want
        want['segments'].append(segment(inner={}))
        want['segments'][0]['inner']['again'] = want['segments'][0]
        want['device_traces'][0][0]['self'] = want['device_traces'][0][0]
        path = exporter.small(want, protocol=protocol)
        for got in (pickle.loads(exporter.export(path)[0]),
                    json.loads(exporter.export(path, '--json')[0])):
            assert got['odd'][0] == 1 and len(got['odd']) == 2, f'protocol {protocol}: {got}'
            assert len(got['device_traces'][0]) == 1 and 'self' in got, f'protocol {protocol}: {got}'


def test_losses(exporter):
    """What the reader left out is said."""
    path = exporter.small(snapshot([event(), 5]))
    said = exporter.export(path)[1]
    assert 'the export is incomplete' in said and 'entries of a trace' in said, f'said: {said}'
    path.write_bytes(pickle.dumps(snapshot([event(), 5, 6])))
    assert '(2): entries of a trace' in exporter.export(path)[1], 'the number is not said'
    assert not exporter.export('-q', path)[1], '--quiet is not quiet'


def test_key_without_form(exporter):
    """A tuple as a key is fine in a pickle, and refused in JSON."""
    path = exporter.small(snapshot(odd={(1, 2, 3): 4}))
    assert pickle.loads(exporter.export(path)[0])['odd'] == {(1, 2, 3): 4}, 'the pickle'
    exporter.export(path, '--json', status=3)


def test_full_disk(exporter):
    path = exporter.small(batches())
    if os.path.exists('/dev/full'):
        exporter.export(path, '-o', '/dev/full', status=4)
