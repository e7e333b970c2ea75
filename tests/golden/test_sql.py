"""What `tessera sql` returns: the queries of docs/sql.md against a computation from the snapshot itself, the same rows with and
without the conditions that a scan takes, the same rows in every format, and that nothing can be changed."""
import collections
import contextlib
import csv
import io
import json
import os
import pickle
import pty
import re
import select
import signal
import sqlite3
import struct
import subprocess
import sys
import termios
import time

import pytest
from support import ROOT, SNAPSHOTS, cases, load, part_of
from test_host import host_events, like_device
from test_ranks import write_small

QUERIES = re.findall(r'```sql\n(.*?)```', (ROOT / 'docs' / 'sql.md').read_text(encoding='utf-8'), re.S)
REAL = ('train-lm-small.pickle', 'train-fp32-ctx128.pickle', 'train-ctx100-annotated-torch2.6.pickle', 'two-devices-no-trace.pickle',
        'infer-bf16-ctx512.pickle', 'private-pools-no-trace.pickle')
FILES = ['train.pickle', *(name for name in REAL if (SNAPSHOTS / name).exists())]
each_file = cases('name', FILES, str)


def path_of(made, name):
    return made / name if name == 'train.pickle' else SNAPSHOTS / name


def rows(tessera, path, query, *words):
    """The rows of a query, as lists."""
    text = tessera.output('sql', '-q', '--output', 'json', *words, path, query)
    return [list(row.values()) for row in json.loads(text)]


# ---- the snapshot, computed again ----

class Allocation:
    def __init__(self, born, size, address, stack, born_us):
        self.born, self.size, self.address, self.stack, self.born_us = born, size, address, stack, born_us
        self.died = self.died_us = None


class Device:
    """The trace of a device: what was allocated when, by requested bytes, which need no model of the allocator."""

    def __init__(self, snapshot, number):
        traces = snapshot.get('device_traces', [])
        self.number, self.events = number, traces[number] if number < len(traces) else []
        self.segments = [segment for segment in snapshot['segments'] if segment['device'] == number]
        self.all, live = [], {}
        for at, event in enumerate(self.events):
            address = event.get('addr')
            if event['action'] == 'alloc':
                live[address] = Allocation(at, event['size'], address, event.get('frames'), event.get('time_us'))
                self.all.append(live[address])
            elif event['action'] == 'free_completed':
                if address not in live:  # allocated before the first event
                    live[address] = Allocation(-1, event['size'], address, None, None)
                    self.all.append(live[address])
                dead = live.pop(address)
                dead.died, dead.died_us = at, event.get('time_us')
        for segment in self.segments:
            for block in self.blocks(segment):
                if block['state'] != 'inactive' and block['address'] not in live:
                    self.all.append(Allocation(-1, self.requested(block), block['address'], block.get('frames'), None))

    @staticmethod
    def requested(block):
        return block.get('requested_size', block['size'])

    @staticmethod
    def blocks(segment):
        at = segment['address']
        for block in segment['blocks']:
            yield {**block, 'address': block.get('address', at)}
            at += block['size']

    def live(self, event):
        return [a for a in self.all if a.born <= event and (a.died is None or a.died > event)]

    def requested_after(self):
        """Requested bytes after each event."""
        change = collections.Counter()
        for allocation in self.all:
            if allocation.born >= 0:
                change[allocation.born] += allocation.size
            if allocation.died is not None:
                change[allocation.died] -= allocation.size
        total = sum(a.size for a in self.live(-1))
        for at in range(len(self.events)):
            total += change[at]
            yield total


def devices_of(path):
    snapshot = load(path)
    numbers = {segment['device'] for segment in snapshot['segments']}
    numbers |= {number for number, trace in enumerate(snapshot.get('device_traces', [])) if trace}
    return [Device(snapshot, number) for number in sorted(numbers)]


def sums(groups):
    """(key..., number, bytes) of allocations by key."""
    return [[*key, len(members), sum(a.size for a in members)] for key, members in sorted(groups.items())]


def by(devices, choose, key):
    groups = collections.defaultdict(list)
    for device in devices:
        for allocation in choose(device):
            groups[key(device, allocation)].append(allocation)
    return groups


# ---- what each query of the page has to return ----

# What an event does to reserved memory.
DRIVER = {'segment_alloc': 1, 'segment_map': 1, 'segment_free': -1, 'segment_unmap': -1}


def actions(devices, _):
    found = collections.defaultdict(lambda: [0, 0])
    for device in devices:
        for event in device.events:
            entry = found[device.number, event['action']]
            entry[0] += 1
            entry[1] += event.get('size', 0)
    return [[*key, *entry] for key, entry in sorted(found.items())]


def peaks(devices, answers):
    """The event and its bytes are those of `peak`, which test_real.py compares with another replay."""
    most = {}
    for device in devices:
        total = most[device.number] = sum(segment['total_size'] for segment in device.segments)
        for event in reversed(device.events):
            total -= DRIVER.get(event['action'], 0) * event.get('size', 0)
            most[device.number] = max(most[device.number], total)
    return [[d['device'], d['peak']['event'], d['peak']['allocated_bytes'], most[d['device']]] for d in answers['peaks']]


def at_peak(devices, answers):
    moments = {d['device']: d['peak']['event'] for d in answers['peaks']}
    return lambda device: device.live(moments[device.number])


def categories(devices, answers):
    """Without numbers of allocations. How bytes are divided is that of `profile`; they add up to what is live."""
    found = [[d['device'], group['name'], group['bytes']] for d in answers['profiles'] for group in d['groups'] if group['bytes']]
    live = at_peak(devices, answers)
    for device in devices:
        assert sum(row[2] for row in found if row[0] == device.number) == sum(a.size for a in live(device))
    return found


def largest_stacks(devices, answers):
    """Without numbers and names of stacks: device, number, bytes."""
    groups = by(devices, at_peak(devices, answers), lambda device, a: (device.number, frames_of(a.stack)))
    found = [[key[0], len(members), sum(a.size for a in members)] for key, members in groups.items() if key[1] is not None]
    return sorted(found, key=lambda row: -row[2])[:10]


def frames_of(stack):
    return None if stack is None else tuple((f['name'], f['filename'], f['line']) for f in stack)


def moment(devices, _):
    return sums(by(devices, lambda device: device.live(20), lambda device, a: (device.number,)))


def largest(devices, _):
    found = [[d.number, a.born, a.size, a.address] for d in devices for a in d.all if a.born >= 0]
    return sorted(found, key=lambda row: (-row[2], row[0], row[1]))[:10]


def lifetimes(devices, _):
    lives = [(a.died_us - a.born_us, a.size) for device in devices for a in device.all if a.born_us is not None and a.died_us is not None]
    short = [size for life, size in lives if life < 1000]
    long = [size for life, size in lives if life >= 100000]
    return [[len(short), len(lives) - len(short) - len(long), len(long), sum(short) if short else None, sum(long) if long else None]]


def below_forward(devices, _):
    def chosen(device):
        return [a for a in device.all if a.born >= 0 and any(f['name'] == 'forward' for f in a.stack or ())]
    return sums(by(devices, chosen, lambda device, a: (device.number,)))


def steps(_, answers):
    return [[d['device'], number, s['first_event'], s['last_event'], s['peak_bytes'], s['end_bytes'] - s['start_bytes']]
            for d in answers['steps'] for number, s in enumerate(d['steps'], 1)]


def left_behind(devices, answers):
    ranges = {d['device']: [(s['first_event'], s['last_event']) for s in d['steps']] for d in answers['steps']}

    def step(device, a):
        return next((n for n, (first, last) in enumerate(ranges[device.number], 1) if first <= a.born <= last), None)

    def left(device):
        return [a for a in device.all if a.died is None and step(device, a)]
    return sums(by(devices, left, lambda device, a: (device.number, step(device, a))))


def milliseconds(devices, _):
    """Without allocated bytes."""
    found = {}
    for device in devices:
        for event, total in zip(device.events, device.requested_after()):
            if event['action'] == 'alloc' and event.get('time_us') is not None:
                key = device.number, event['time_us'] // 1000
                found[key] = max(found.get(key, 0), total)
    return [[*key, most] for key, most in sorted(found.items())]


def reserved(devices, _):
    found = collections.defaultdict(lambda: [0, 0])
    for device in devices:
        for segment in device.segments:
            entry = found[device.number, segment['stream'], int(segment['segment_type'] == 'large')]
            entry[0] += 1
            entry[1] += segment['total_size']
    return [[*key, *entry] for key, entry in sorted(found.items())]


def empty(devices, _):
    found = []
    for device in devices:
        for segment in device.segments:
            used = sum(block['size'] for block in segment['blocks'] if block['state'] == 'active_allocated')
            if used < segment['total_size'] // 2:
                found.append([device.number, segment['address'], segment['total_size'], used])
    return sorted(found)


def driver(devices, _):
    return [[d.number, at, e.get('time_us'), e['size']] for d in devices for at, e in enumerate(d.events)
            if e['action'] in ('segment_alloc', 'segment_map')]


def nine_tenths(devices, _):
    found = []
    for device in devices:
        totals = list(device.requested_after())
        most = max([sum(a.size for a in device.live(-1)), *totals])
        found += [[device.number, at] for at, total in enumerate(totals) if total >= 0.9 * most][:1]
    return found


WANT = (actions, peaks, categories, largest_stacks, moment, largest, lifetimes, below_forward, steps, left_behind, milliseconds,
        reserved, empty, driver, nine_tenths)
# Columns that the other computation lacks.
LEAVE_OUT = {categories: (2,), largest_stacks: (1, 2), milliseconds: (3,)}
# Rows of equal rank may come in another order.
UNORDERED = (categories, largest_stacks)


@pytest.fixture(scope='module')
def known(tessera, made):
    """For a file: its devices, and what other commands say of them."""
    kept = {}

    def find(name):
        if name not in kept:
            path = path_of(made, name)
            kept[name] = devices_of(path), {'peaks': tessera.json('peak', path)['devices'],
                                            'profiles': tessera.json('profile', '--by', 'category', '--top', 0, path)['devices'],
                                            'steps': tessera.json('steps', path)['devices']}
        return kept[name]
    return find


def test_page_has_fifteen_queries():
    assert len(QUERIES) == len(WANT) == 15


@each_file
@cases('number', range(len(WANT)), lambda number: WANT[number].__name__)
def test_query(tessera, made, known, name, number):
    want_of = WANT[number]
    want = want_of(*known(name))
    got = rows(tessera, path_of(made, name), QUERIES[number])
    got = [[value for at, value in enumerate(row) if at not in LEAVE_OUT.get(want_of, ())] for row in got]
    if want_of in UNORDERED:
        got, want = sorted(got, key=str), sorted(want, key=str)
    assert got == want


# ---- conditions and orders ----

TABLES = ('devices', 'events', 'allocations', 'stacks', 'frames', 'segments', 'blocks', 'spans', 'steps', 'annotations')
# A scan takes these conditions and orders; with a sign before the column it does not see them.
CONDITIONS = (
    ('events', ('device = 0', 'event >= 10', 'event < 30.5')), ('events', ('event = 7',)), ('events', ('event > 1e18',)),
    ('events', ("action = 'alloc'", 'event < 25')), ('events', ("action = 'nothing'",)), ('events', ("action >= 'free'",)),
    ('events', ('stack = 3', 'event > 5')), ('events', ('stack = -1',)), ('events', ('stack IN (1, 2, 2, 900)',)), ('events', ('stack IS NULL',)),
    ('events', ('size_bytes > 1000', 'size_bytes <= 1e6')), ('events', ('event = NULL',)), ('events', ('event = 7.5',)),
    ('events', ('time_us >= (SELECT time_us FROM events WHERE event = 9)', 'time_us < (SELECT time_us FROM events WHERE event = 20)')),
    ('events', ('time_ms = (SELECT time_ms FROM events WHERE event = 9)', "action = 'alloc'")), ('events', ('time_ms IS NULL',)),
    ('events', ('allocated_bytes > 4000000',)), ('events', ('step = 1',)), ('events', ("action = 'ALLOC' COLLATE NOCASE",)),
    ('allocations', ('born_event <= 20', 'died_event > 20')), ('allocations', ('born_event = -1',)), ('allocations', ('allocation BETWEEN 3 AND 8',)),
    ('allocations', ("category = 'activation'",)), ('allocations', ("category = 'activation'", "phase = 'forward'", 'live_at_peak')),
    ('allocations', ("place = (SELECT top FROM stacks WHERE stack = 2)",)), ('allocations', ('died_event IS NULL', 'stack = 2')),
    ('stacks', ('stack >= 2', 'stack < 4')), ('stacks', ('depth > 3',)), ('frames', ('stack = 2', 'depth >= 1')), ('frames', ('stack > 2', 'stack <= 3')),
    ('frames', ('stack = 99999999',)), ('frames', ('stack < 0',)), ('segments', ('device = 0', 'segment = 1')), ('segments', ('device = 1',)),
    ('segments', ('device > -1',)), ('blocks', ("state = 'inactive'",)), ('blocks', ('requested_bytes > 512',)), ('steps', ('step >= 2',)),
    ('steps', ('first_event > 3',)), ('spans', ('died_event IS NULL',)), ('annotations', ('annotation < 4',)), ('devices', ('device = 0',)))


def unseen(condition):
    return '+' + condition


@each_file
def test_conditions(tessera, made, name):
    """The same rows with conditions that a scan takes, and with the same conditions that SQLite checks alone."""
    path = path_of(made, name)
    for table, conditions in part_of(CONDITIONS, name, 2):
        seen = f'SELECT * FROM {table} WHERE {" AND ".join(conditions)}'
        plain = f'SELECT * FROM {table} WHERE {" AND ".join(map(unseen, conditions))}'
        got, want = rows(tessera, path, seen), rows(tessera, path, plain)
        assert got == want or 'IN (' in seen and sorted(got, key=str) == sorted(want, key=str), seen


ORDERS = (('events', 'device, event'), ('events', 'event'), ('events', 'action'), ('events', 'device, stack'), ('events', 'stack DESC'), ('events', 'stack, event'),
          ('allocations', 'category'), ('allocations', 'place'), ('allocations', 'device, module'), ('allocations', 'born_event'),
          ('events', 'time_us'), ('events', 'device, time_ms'), ('events', 'time_ms DESC'), ('events', 'time_ms, time_us, event'), ('events', 'time_ms, size_bytes'),
          ('events', 'action, time_ms'), ('allocations', 'born_event, category'), ('steps', 'first_event'), ('steps', 'device DESC, last_event'),
          ('allocations', 'category DESC'), ('frames', 'stack, depth'), ('frames', 'depth'), ('stacks', 'stack'), ('segments', 'device'))


@each_file
def test_orders(tessera, made, name):
    path = path_of(made, name)
    for table, order in part_of(ORDERS, name, 3):
        keys = order.replace(' DESC', '')
        hidden = ', '.join('+' + term for term in order.split(', '))
        assert rows(tessera, path, f'SELECT {keys} FROM {table} ORDER BY {order}') == \
            rows(tessera, path, f'SELECT {keys} FROM {table} ORDER BY {hidden}'), order
        assert rows(tessera, path, f'SELECT DISTINCT {keys} FROM {table} ORDER BY {order}') == \
            rows(tessera, path, f'SELECT DISTINCT {keys} FROM {table} ORDER BY {hidden}'), order
        grouped = f'SELECT {keys}, count(*) AS n FROM {table} GROUP BY {keys} ORDER BY n DESC, {keys}'
        hidden = ', '.join('+' + term for term in keys.split(', '))
        assert rows(tessera, path, grouped) == \
            rows(tessera, path, f'SELECT {keys}, count(*) AS n FROM {table} GROUP BY {hidden} ORDER BY n DESC, {keys}'), grouped
        distinct = rows(tessera, path, f'SELECT DISTINCT {keys} FROM {table}')
        assert len(distinct) == len(rows(tessera, path, grouped)), order


def test_joins(tessera, made):
    path = made / 'train.pickle'
    joined = rows(tessera, path, 'SELECT a.allocation, f.depth FROM allocations a JOIN frames f USING (stack) ORDER BY 1, 2')
    plain = rows(tessera, path, 'SELECT a.allocation, f.depth FROM allocations a, frames f WHERE +a.stack = +f.stack ORDER BY 1, 2')
    assert joined == plain and joined
    events = rows(tessera, path, "SELECT a.allocation, e.event FROM allocations a JOIN events e ON e.device = a.device AND e.event = a.born_event")
    assert [row[1] for row in events] == [row[0] for row in rows(tessera, path, "SELECT event FROM events WHERE action = 'alloc'")]


def test_totals(tessera, made, known):
    """Totals, peaks so far and lifetimes agree with each other."""
    path = made / 'train.pickle'
    assert rows(tessera, path, 'SELECT count(*) FROM (SELECT peak_allocated_bytes AS p, max(allocated_bytes) OVER (PARTITION BY device ORDER BY event) AS m,'
                ' (SELECT start_allocated_bytes FROM devices d WHERE d.device = e.device) AS s FROM events e) WHERE p != max(m, s)') == [[0]]
    assert [row[0] for row in rows(tessera, path, 'SELECT requested_bytes FROM events')] == list(known('train.pickle')[0][0].requested_after())
    assert rows(tessera, path, 'SELECT sum(size_bytes) FROM allocations WHERE live_at_peak') == rows(tessera, path, 'SELECT peak_allocated_bytes FROM devices')
    assert rows(tessera, path, 'SELECT count(*) FROM allocations WHERE lifetime_us != died_us - born_us') == [[0]]


@pytest.fixture(scope='module')
def two(made, work):
    """A snapshot whose two devices have the same memory, and pinned host memory."""
    snapshot = load(made / 'train.pickle')
    snapshot['device_traces'] = [snapshot['device_traces'][0]] * 2
    snapshot['segments'] += [{**segment, 'device': 1} for segment in snapshot['segments']]
    snapshot.update(host_segments=like_device(), host_traces=[host_events()])
    (work / 'two.pickle').write_bytes(pickle.dumps(snapshot))
    return work / 'two.pickle'


def test_devices(tessera, two):
    """Pinned host memory is the device 'host', which is above all numbers."""
    names = ('SELECT device FROM devices', 'SELECT DISTINCT device FROM events', 'SELECT device FROM segments GROUP BY device')
    for query in names:
        assert rows(tessera, two, query) == [[0], [1], ['host']]
        assert rows(tessera, two, query, '--device', '1') == [[1]]
    assert rows(tessera, two, names[0], '--device', 'host,1') == [['host'], [1]]
    assert rows(tessera, two, names[0] + ' ORDER BY device', '--device', 'host,1') == [[1], ['host']]
    for where, want in (("= 'host'", ['host']), ('> 0', [1, 'host']), ('>= 5', ['host']), ('< 5', [0, 1]), ('= 1', [1]), ('BETWEEN 1 AND 7', [1])):
        assert [row[0] for row in rows(tessera, two, f'{names[0]} WHERE device {where}')] == want, where
    for query in ('SELECT place, sum(size_bytes) FROM allocations GROUP BY place', 'SELECT place, device, count(*) FROM allocations GROUP BY place, device', 'SELECT device, place FROM allocations ORDER BY device, place',
                  'SELECT place FROM allocations ORDER BY place', 'SELECT stack FROM events ORDER BY stack'):
        assert rows(tessera, two, query) == rows(tessera, two, query.replace('BY place', 'BY +place').replace('BY device', 'BY +device').replace('BY stack', 'BY +stack'))


def test_arrow_of_host(tessera, two, work):
    tessera.run('sql', '-q', '-o', work / 'two.arrow', two, 'SELECT device, event FROM events')
    assert set(dict(read_arrow(work / 'two.arrow'))['device']) == {'0', '1', 'host'}


# ---- the ranks of a job ----

@pytest.fixture(scope='module')
def job(work):
    fleet = work / 'job'
    fleet.mkdir()
    return write_small(fleet)


def test_ranks(tessera, job, work):
    """The tables of a folder are the answer of `ranks`."""
    answer = tessera.json('ranks', '--top', 0, '-q', '--sketches', work / 'job.sketches', job)
    want = [[row['rank'], row['path'], row['device'], row['peak_allocated_bytes'], row['out_of_memory']] for row in answer['ranks']]
    query = 'SELECT rank, path, device, peak_allocated_bytes, out_of_memory FROM ranks ORDER BY rank, device'
    for place in (job, job / '*', work / 'job.sketches'):
        assert rows(tessera, place, query) == want, place
    found = rows(tessera, job, 'SELECT rank, compared_with, delta_bytes, cause_code FROM outliers')
    assert found == [[o['rank'], o['compared_with'], o['delta_bytes'], o['cause_code']] for o in answer['outliers']] and found
    assert rows(tessera, job, "SELECT rank FROM outliers WHERE cause_code = 'leak'") == [[4]]
    assert rows(tessera, job, 'SELECT o.delta_bytes - sum(c.delta_bytes) FROM outliers o JOIN changes c USING (outlier) GROUP BY outlier') == [[0]] * len(found)
    assert rows(tessera, job, 'SELECT count(*) FROM changes WHERE outlier = 0') == [[len(answer['outliers'][0]['changes'])]]
    top = rows(tessera, job, 'SELECT f.file, f.line FROM changes c JOIN frames f USING (stack) WHERE c.outlier = 0 AND c.change = 0 ORDER BY f.depth')
    assert top == [[frame['file'], frame['line']] for frame in answer['outliers'][0]['changes'][0]['frames']]
    assert {tuple(row) for row in rows(tessera, job, 'SELECT group_name, count(*) FROM ranks GROUP BY group_name')} == \
        {(group['name'], len(group['ranks'])) for group in answer['groups']}


def test_ranks_have_no_events(tessera, job, made, work):
    assert 'the tables are stacks, frames, ranks' in tessera.run('sql', job, 'SELECT * FROM events', status=2).stderr
    assert 'no such table: ranks' in tessera.run('sql', made / 'train.pickle', 'SELECT * FROM ranks', status=2).stderr
    assert '--device does not apply' in tessera.run('sql', '--device', '0', job, 'SELECT 1', status=2).stderr
    assert '--mesh apply to ranks' in tessera.run('sql', '--mesh', 'dp=6', made / 'train.pickle', 'SELECT 1', status=2).stderr
    assert 'mesh' in tessera.run('sql', '--mesh', 'dp=5', job, 'SELECT 1', status=2).stderr
    (job / 'rank9_memory_snapshot.pickle').write_bytes(b'rubbish')
    assert '1 of 7 files cannot be read' in tessera.run('sql', job, 'SELECT 1').stderr


# ---- formats ----

SHAPES = 'SELECT 1 AS i, 1.5 AS r, NULL AS n, \'a "b", c\' AS t, x\'00ff\' AS b, 2 AS i, 1e300*1e300 AS inf, 3.0 AS w, \'=1\' AS f'


def test_json(tessera, made):
    text = tessera.output('sql', '--output', 'json', made / 'train.pickle', SHAPES)
    assert json.loads(text) == [{'i': 1, 'r': 1.5, 'n': None, 't': 'a "b", c', 'b': '00ff', 'i_6': 2, 'inf': None, 'w': 3.0, 'f': '=1'}]
    assert tessera.output('sql', '--json', made / 'train.pickle', 'SELECT 1 WHERE 0') == '[]\n'


def test_csv(tessera, made):
    text = tessera.output('sql', '--output', 'csv', made / 'train.pickle', SHAPES, universal_newlines=None, text=None).decode()
    assert text.endswith('\r\n')
    assert list(csv.reader(io.StringIO(text, newline=''))) == [
        ['i', 'r', 'n', 't', 'b', 'i', 'inf', 'w', 'f'], ['1', '1.5', '', 'a "b", c', '00ff', '2', 'inf', '3.0', "'=1"]]


def test_endings(tessera, made, work):
    for ending, begins in (('.csv', b'event\r\n'), ('.json', b'[\n'), ('.arrow', b'ARROW1'), ('.feather', b'ARROW1'), ('.txt', b'event\n'), ('', b'event\n')):
        tessera.run('sql', '-q', '-o', work / f'out{ending}', made / 'train.pickle', 'SELECT event FROM events')
        assert (work / f'out{ending}').read_bytes().startswith(begins), ending
    assert 'no format has this name' in tessera.run('sql', '-o', work / 'out.svg', made / 'train.pickle', 'SELECT 1', status=2).stderr
    assert 'also an input' in tessera.run('sql', '-o', made / 'train.pickle', made / 'train.pickle', 'SELECT 1', status=2).stderr
    before = (work / 'out.csv').read_bytes()
    tessera.run('sql', '-q', '-o', work / 'out.csv', made / 'train.pickle', 'SELECT abs(-9223372036854775808 + event) FROM events', status=2)
    assert (work / 'out.csv').read_bytes() == before  # a query that fails replaces nothing


class Flat:
    """A table of a flatbuffer, to read an Arrow file without a library."""

    def __init__(self, data, at):
        self.data, self.at = data, at
        self.vtable = at - struct.unpack_from('<i', data, at)[0]
        self.size = struct.unpack_from('<H', data, self.vtable)[0]

    def place(self, field):
        offset = struct.unpack_from('<H', self.data, self.vtable + 4 + 2 * field)[0] if 4 + 2 * field < self.size else 0
        return self.at + offset if offset else None

    def number(self, field, form):
        at = self.place(field)
        if at is None:
            return 0
        assert at % struct.calcsize(form) == 0  # aligned
        return struct.unpack_from(form, self.data, at)[0]

    def follow(self, field):
        at = self.place(field)
        return at + struct.unpack_from('<I', self.data, at)[0]

    def table(self, field):
        return Flat(self.data, self.follow(field))

    def vector(self, field):
        at = self.follow(field)
        return at + 4, struct.unpack_from('<I', self.data, at)[0]

    def string(self, field):
        at, size = self.vector(field)
        return self.data[at:at + size].decode()

    def tables(self, field):
        at, count = self.vector(field)
        return [Flat(self.data, at + 4 * i + struct.unpack_from('<I', self.data, at + 4 * i)[0]) for i in range(count)]


def root(data):
    return Flat(data, struct.unpack_from('<I', data)[0])


def column_of(body, kind, count, buffers):
    valid = buffers[0]
    here = [body[valid[0] + i // 8] >> i % 8 & 1 for i in range(count)]
    at = buffers[1][0]
    if kind in (2, 3):
        values = struct.unpack_from(f'<{count}{"q" if kind == 2 else "d"}', body, at)
    else:
        ends = struct.unpack_from(f'<{count + 1}i', body, at)
        data = body[buffers[2][0]:buffers[2][0] + buffers[2][1]]
        values = [data[a:b] if kind == 4 else data[a:b].decode() for a, b in zip(ends, ends[1:])]
    return [value if ok else None for ok, value in zip(here, values)]


def read_arrow(path):
    """The columns of an Arrow IPC file: [(name, values)]."""
    data = path.read_bytes()
    assert data[:8] == b'ARROW1\0\0' and data[-6:] == b'ARROW1'
    size = struct.unpack_from('<i', data, len(data) - 10)[0]
    footer = root(data[len(data) - 10 - size:len(data) - 10])
    fields = [(f.string(0), f.number(2, '<B')) for f in footer.table(1).tables(1)]
    columns = [(name, []) for name, _ in fields]
    at, count = footer.vector(3)
    for block in range(count):
        start, head, _, length = struct.unpack_from('<qiiq', footer.data, at + 24 * block)
        assert start % 8 == head % 8 == length % 8 == 0
        assert struct.unpack_from('<Ii', data, start) == (0xffffffff, head - 8)
        message, body = root(data[start + 8:start + head]), data[start + head:start + head + length]
        assert message.number(1, '<B') == 3 and message.number(3, '<q') == length
        batch = message.table(2)
        where, buffers = batch.vector(2)
        places = [struct.unpack_from('<qq', batch.data, where + 16 * i) for i in range(buffers)]
        for (_, values), (_, kind) in zip(columns, fields):
            take = 2 if kind in (2, 3) else 3
            values += column_of(body, kind, batch.number(0, '<q'), places[:take])
            places = places[take:]
    return columns


@cases('query', [f'SELECT * FROM {table}' for table in TABLES] + [
    'SELECT event, event * 0.5 AS half, CASE WHEN event % 3 THEN size_bytes END AS n, CASE WHEN event % 2 THEN event ELSE action END AS mixed FROM events',
    'SELECT * FROM steps WHERE step < 0',
    'WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 150000) SELECT i, i || \'\' AS t, i * 0.25 AS r FROM n'])
def test_arrow(tessera, made, work, query):
    """The rows are those of JSON, of which an Arrow column has one type."""
    path, out = made / 'train.pickle', work / 'x.arrow'
    tessera.run('sql', '-q', '-o', out, path, query)
    want = json.loads(tessera.output('sql', '-q', '--json', path, query))
    columns = read_arrow(out)
    for name, values in columns:
        expected = [row[name] for row in want]
        if any(isinstance(value, str) for value in expected):
            expected = [value if value is None else str(value) for value in expected]
        assert values == expected, name
    assert not want or [name for name, _ in columns] == list(want[0])


def test_arrow_of_mixed_types(tessera, made):
    """A type that changes after the first batch cannot be written."""
    query = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 150000) SELECT CASE WHEN i < 140000 THEN i ELSE 'x' END AS odd FROM n"
    done = tessera.run('sql', '-q', '--output', 'arrow', made / 'train.pickle', query, status=2, text=None, universal_newlines=None)
    assert b"column 'odd' has values of several types" in done.stderr


@pytest.fixture
def duck(tessera, made):
    """The words that select DuckDB, where there is one."""
    done = tessera.run('sql', '-q', '--engine', 'duckdb', made / 'train.pickle', 'SELECT 1', status=(0, 2))
    if done.returncode:
        assert done.stderr == 'tessera sql: --engine duckdb takes DuckDB (libduckdb.so), which cannot be loaded\n', done.stderr
        pytest.skip('DuckDB is absent')
    return '--engine', 'duckdb'


@each_file
def test_both_engines(tessera, made, name, duck):
    """Tables and documented queries have the same rows."""
    path = path_of(made, name)
    texts = [f'SELECT * FROM {table}' for table in TABLES]
    for text in texts + QUERIES:
        got = rows(tessera, path, text, *duck)
        assert sorted(got, key=str) == sorted(rows(tessera, path, text), key=str), text


def test_types_of_duckdb(tessera, made, duck):
    path = made / 'train.pickle'
    values = {'true': 1, 'NULL': None, '-5::TINYINT': -5, '200::UTINYINT': 200, '18446744073709551615::UBIGINT': 18446744073709551615.0,
              '-170141183460469231731687303715884105727::HUGEINT': -1.7014118346046923e38, '(-7)::HUGEINT': -7, '1.5': 1.5, '-0.25::DECIMAL(4,2)': -0.25,
              '1e300': 1e300, '0.5::FLOAT': 0.5, "'a'": 'a', "'twelve bytes'": 'twelve bytes', "'thirteen bytes'": 'thirteen bytes', "''": '',
              'sum(x) FROM (VALUES (1), (2)) t(x)': 3}
    for text, value in values.items():
        assert rows(tessera, path, f'SELECT {text}', *duck) == [[value]], text
    assert rows(tessera, path, "SELECT 'ab'::BLOB AS b", *duck) == [['6162']]
    assert len(rows(tessera, path, 'SELECT range FROM range(10000)', *duck)) == 10000
    assert 'CAST it to VARCHAR' in tessera.run('sql', *duck, path, "SELECT DATE '2026-01-01'", status=2).stderr


@pytest.mark.parametrize('text', ("COPY (SELECT 1) TO '/tmp/never.csv'", "SELECT * FROM read_csv('/etc/passwd')", "ATTACH '/tmp/never.db'",
                                  'CREATE TABLE x (a INT)', 'DROP TABLE events', "SET memory_limit = '100GB'", 'INSTALL httpfs', 'SELECT ?',
                                  'SELEC', 'SELECT * FROM nothing', "SELECT * FROM '/etc/passwd'", 'UPDATE events SET event = 0'))
def test_duckdb_only_reads(tessera, made, duck, text):
    done = tessera.run('sql', *duck, made / 'train.pickle', f'{text}; SELECT count(*) FROM events', status=2)
    assert done.stdout == '' and done.stderr.count('\n') == 1 and done.stderr.startswith('tessera sql: '), done.stderr


def test_limits_of_duckdb(tessera, made, duck):
    path = made / 'train.pickle'
    done = tessera.run('sql', *duck, '--time-limit', '1', path, 'SELECT count(*) FROM range(100000000000) t(a) WHERE a % 3 = 1', status=4)
    assert done.stderr == 'tessera sql: the query took longer than 1 s (--time-limit)\n'
    done = tessera.run('sql', *duck, '--memory-limit', '64MiB', path, 'SELECT count(*) FROM (SELECT DISTINCT a FROM range(100000000) t(a))', status=2)
    assert 'DuckDB: Out of Memory' in done.stderr, done.stderr


def test_parquet(tessera, made, work):
    """By DuckDB, read by pyarrow; or an explanation."""
    path, out = made / 'train.pickle', work / 'x.parquet'
    done = tessera.run('sql', '-q', '-o', out, path, 'SELECT 1', status=(0, 2))
    if done.returncode:
        assert 'Parquet needs DuckDB' in done.stderr and 'pyarrow' in done.stderr and not out.exists()
        assert 'Parquet needs DuckDB' in tessera.run('export', '-o', out, path, status=2).stderr
        pytest.skip('DuckDB is absent')
    parquet = pytest.importorskip('pyarrow.parquet')
    for query in [f'SELECT * FROM {table}' for table in TABLES] + ['SELECT event, event * 0.5 AS half, \'a"b\' AS "a""b" FROM events', 'SELECT * FROM steps WHERE step < 0']:
        tessera.run('sql', '-q', '-o', out, path, query)
        assert parquet.read_table(out).to_pylist() == json.loads(tessera.output('sql', '-q', '--json', path, query)), query
    tessera.run('export', '-q', '-o', out, path)
    assert parquet.read_table(out).num_rows == rows(tessera, path, 'SELECT count(*) FROM allocations')[0][0]
    assert 'use -o FILE' in tessera.run('sql', '--output', 'parquet', path, 'SELECT 1', status=2).stderr


# ---- nothing can be changed ----

REFUSED = ('INSERT INTO events VALUES (1)', 'DELETE FROM steps', 'UPDATE steps SET step = 1', 'DROP TABLE steps', 'CREATE TABLE x (y)',
           'CREATE TEMP TABLE x (y)', 'CREATE VIEW x AS SELECT 1', "ATTACH 'x.db' AS x", 'DETACH main', 'VACUUM', "VACUUM INTO 'x.db'", 'PRAGMA journal_mode = WAL',
           'PRAGMA temp_store_directory = "/tmp"', 'PRAGMA hard_heap_limit = 0', 'BEGIN', 'COMMIT', 'SAVEPOINT x', 'REINDEX', 'ANALYZE',
           "SELECT load_extension('libc.so.6')", "SELECT fts3_tokenizer('x')", 'CREATE VIRTUAL TABLE x USING fts5(y)')


@cases('query', REFUSED)
def test_refused(tessera, made, work, query):
    before = sorted(work.iterdir())
    done = tessera.run('sql', made / 'train.pickle', query, status=2, cwd=work)
    assert done.stdout == '' and done.stderr.startswith('tessera sql: ') and done.stderr.count('\n') == 1
    assert sorted(work.iterdir()) == before


WRONG = (('SELECT * FROM nowhere', 'no such table: nowhere; the tables are devices, events'), ('SELECT absent FROM steps', 'no such column: absent'),
         ('SELEC 1', 'syntax error'), ('', 'the query is empty'), (' -- nothing\n', 'the query is empty'), ('SELECT ?', 'parameters'), ('SELECT :x', 'parameters'),
         ('SELECT zeroblob(2000000000)', 'too big'), ('SELECT abs(-9223372036854775808)', 'integer overflow'),
         ('.nothing', 'no such command'), ('.schema nothing', 'no such table'))


@cases('query, message', WRONG)
def test_wrong(tessera, made, query, message):
    done = tessera.run('sql', made / 'train.pickle', query, status=2)
    assert done.stdout == '' and message in done.stderr


ENDLESS = 'WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n'


def test_time_limit(tessera, made):
    done = tessera.run('sql', '--time-limit', 1, made / 'train.pickle', ENDLESS, status=4)
    assert 'took longer than 1 s' in done.stderr


def test_memory_limit(tessera, made):
    query = 'WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 6000000) SELECT group_concat(i) FROM n ORDER BY 1'
    grow = 'WITH RECURSIVE n(i, b) AS (SELECT 1, zeroblob(10000000) UNION ALL SELECT i + 1, zeroblob(10000000 + i) FROM n LIMIT 1000) SELECT * FROM n ORDER BY b'
    assert 'more than 64.00 MiB' in tessera.run('sql', '--memory-limit', '64MiB', made / 'train.pickle', grow, status=4).stderr
    tessera.run('sql', '--memory-limit', '32MiB', made / 'train.pickle', query, status=(2, 4))


def test_hostile_names(tessera, made):
    """What a file calls its functions does not drive the terminal, and neither do names of columns."""
    path = made / 'driving.pickle'
    if not path.exists():
        pytest.skip('no such fixture')
    text = tessera.output('sql', '-q', path, 'SELECT name, file FROM frames') + tessera.output('sql', '-q', path, "SELECT char(27) || '[2J' AS \"\x1b[2J\"")
    assert '\x1b' not in text
    json.loads(tessera.output('sql', '-q', '--json', path, 'SELECT * FROM frames'))


# ---- scripts, and the prompt ----

def test_script(tessera, made):
    path = made / 'train.pickle'
    assert tessera.output('sql', path, input='SELECT 1 AS a;\nSELECT 2\n AS b; SELECT 3 AS c\n') == 'a\n1\n\nb\n2\n\nc\n3\n'
    assert 'devices' in tessera.output('sql', path, input='.tables\n')
    assert 'no query' in tessera.run('sql', path, input='', status=2).stderr
    assert 'room for the rows of one query' in tessera.run('sql', '--json', path, input='SELECT 1; SELECT 2;', status=2).stderr
    assert 'cannot be both' in tessera.run('sql', '-', input='', status=2).stderr
    with open(path, 'rb') as file:
        done = subprocess.run([str(tessera.path), 'sql', '-', 'SELECT count(*) AS n FROM devices'], stdin=file, capture_output=True, text=True, check=True)
    assert done.stdout == 'n\n1\n'


class Prompt:
    def __init__(self, tessera, path, state):
        self.seen = b''
        (state / 'leaks').write_text('leak:wcsdup\n')  # libedit keeps the names of functions that it is given
        self.pid, self.handle = pty.fork()
        if self.pid == 0:
            os.environ.update(TERM='xterm', XDG_STATE_HOME=str(state), LSAN_OPTIONS=f'suppressions={state}/leaks:print_suppressions=0')
            os.execv(str(tessera.path), ['tessera', 'sql', '-q', '--color', 'never', str(path)])

    def until(self, text):
        """What is shown until `text` is; the rest is for the next call."""
        end = time.monotonic() + 60
        while text.encode() not in self.seen:
            assert time.monotonic() < end and select.select([self.handle], [], [], 60)[0], self.seen
            self.seen += os.read(self.handle, 65536)
        before, _, self.seen = self.seen.partition(text.encode())
        return before.decode()

    def edits(self):
        """Waits until a line is edited: the prompt is shown before Ctrl-C is a key and no signal."""
        end = time.monotonic() + 60
        while termios.tcgetattr(self.handle)[3] & termios.ISIG:
            assert time.monotonic() < end, 'no line is edited'
            time.sleep(0.01)

    def ready(self):
        self.until('tessera> ')
        self.edits()

    def type(self, keys):
        os.write(self.handle, keys.encode())

    def interrupt(self, before=''):
        """Ctrl-C until there is a new prompt: one that comes just before the editor reads is lost."""
        self.type(before)
        for _ in range(30):
            self.type('\x03')
            end = time.monotonic() + 2
            while time.monotonic() < end and b'tessera> ' not in self.seen:
                if select.select([self.handle], [], [], 0.1)[0]:
                    self.seen += os.read(self.handle, 65536)
            if b'tessera> ' in self.seen:
                break
        self.ready()

    def end(self):
        with contextlib.suppress(OSError):
            while select.select([self.handle], [], [], 60)[0] and os.read(self.handle, 65536):
                pass
        os.close(self.handle)  # which ends one that waits for more
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def test_prompt(tessera, made, work):
    prompt = Prompt(tessera, made / 'train.pickle', work)
    prompt.until('tessera> ')
    prompt.type('SELECT 40 +\n')
    prompt.until('...> ')
    prompt.type('2 AS answer;\n')
    assert '42' in prompt.until('1 row')
    prompt.until('tessera> ')
    prompt.type('SELECT wrong;\n')
    prompt.until('no such column')
    prompt.until('tessera> ')
    prompt.type(ENDLESS + ';\n')
    prompt.until('FROM n;')
    time.sleep(0.5)
    prompt.type('\x03')
    prompt.until('cancelled')
    prompt.until('tessera> ')
    prompt.type('SELECT 7 * 6 AS after;\n')
    assert '42' in prompt.until('1 row')
    prompt.until('tessera> ')
    prompt.type('.quit\n')
    assert prompt.end() == 0


def has_editor(tessera):
    libraries = subprocess.run(['ldconfig', '-p'], capture_output=True, text=True, check=False).stdout
    return 'libedit.so.2' in libraries


def test_editor(tessera, made, work):
    """Completion, history, and Ctrl-C, which drops the line."""
    if not has_editor(tessera):
        pytest.skip('libedit is absent')
    prompt = Prompt(tessera, made / 'train.pickle', work)
    prompt.ready()
    prompt.type('SELECT count(*) AS n FROM seg\t;\n')
    prompt.until('1 row')
    prompt.ready()
    prompt.interrupt('rubbish ')
    prompt.interrupt()  # of an empty line, and of a query that is not whole
    prompt.type('SELECT 1\n')
    prompt.until('...> ')
    prompt.interrupt()
    prompt.type('.tab\t\n')
    prompt.until('annotations')
    prompt.ready()
    prompt.type('\x04')
    assert prompt.end() == 0
    kept = (work / 'tessera' / 'sql_history').read_text()
    assert 'FROM segments' in kept and '.tables' in kept and 'rubbish' not in kept
    assert (work / 'tessera' / 'sql_history').stat().st_mode & 0o77 == 0
    prompt = Prompt(tessera, made / 'train.pickle', work)
    prompt.ready()
    prompt.type('\x1b[A\x1b[A\x1b[A\n')
    prompt.until('1 row')
    prompt.ready()
    prompt.type('\x04')
    assert prompt.end() == 0


def test_signal_ends_a_query(tessera, made, work):
    """Without a prompt Ctrl-C ends the program, which leaves no file."""
    process = subprocess.Popen([str(tessera.path), 'sql', '-q', '-o', str(work / 'never.csv'), str(made / 'train.pickle'), ENDLESS])
    time.sleep(1)
    process.send_signal(signal.SIGINT)
    assert process.wait() == -signal.SIGINT and not (work / 'never.csv').exists()


# ---- export ----

@each_file
def test_database(tessera, made, work, name):
    """Each table of a database has the rows of the query."""
    path = path_of(made, name)
    tessera.run('export', '-q', '-o', work / 'all.sqlite', path)
    with contextlib.closing(sqlite3.connect(work / 'all.sqlite')) as database:
        database.text_factory = lambda data: data.decode('utf-8', 'replace')
        assert database.execute('PRAGMA integrity_check').fetchall() == [('ok',)]
        for table in TABLES:
            assert [list(row) for row in database.execute(f'SELECT * FROM {table}')] == rows(tessera, path, f'SELECT * FROM {table}'), table


def test_database_of_host(tessera, two, work):
    tessera.run('export', '-q', '-o', work / 'two.db', two)
    with contextlib.closing(sqlite3.connect(work / 'two.db')) as database:
        assert database.execute('SELECT device FROM devices').fetchall() == [(0,), (1,), ('host',)]


def test_database_needs_a_file(tessera, made, work):
    assert 'use -o FILE' in tessera.run('export', '--format', 'sqlite', made / 'train.pickle', status=2).stderr
    (work / 'old.sqlite').write_bytes(b'old')
    limit = 'import resource, os, signal, sys; signal.signal(signal.SIGXFSZ, signal.SIG_IGN); resource.setrlimit(resource.RLIMIT_FSIZE, (8192, 8192)); os.execv(sys.argv[1], sys.argv[1:])'
    done = subprocess.run([sys.executable, '-c', limit, str(tessera.path), 'export', '-o', str(work / 'old.sqlite'), str(made / 'train.pickle')],
                          capture_output=True, text=True, check=False)
    assert done.returncode == 4 and 'File too large' in done.stderr
    assert (work / 'old.sqlite').read_bytes() == b'old'


def test_arrow_export(tessera, made, work):
    tessera.run('export', '-q', '-o', work / 'lives.arrow', made / 'train.pickle')
    tessera.run('sql', '-q', '-o', work / 'query.arrow', made / 'train.pickle', 'SELECT * FROM allocations')
    assert (work / 'lives.arrow').read_bytes() == (work / 'query.arrow').read_bytes()
