"""allocations.py: random lists of allocations in the forms that other programs write, with what is true of them.

A Job is a random list of allocations and frees by some processes on some devices. It can be written as an export of
Nsight Systems (write_nsight) and as CSV (write_csv); State is a random set of live arrays, written as JAX writes it
(write_pprof). What a reader should find is computed here from the list alone, or for Nsight by SQLite from the file.
Nothing of tessera is used.

    python3 tests/golden/allocations.py --seed N --count N --tessera build/tessera [--mutate N]

compares random files, and with --mutate reads damaged ones, of which only a crash is an error."""
import argparse
import collections
import csv
import gzip
import json
import lzma
import os
import pathlib
import random
import sqlite3
import subprocess
import sys
import tempfile
import zipfile

PAGEABLE, PINNED, DEVICE, ARRAY, MANAGED, STATIC, MANAGED_STATIC, UNKNOWN = range(8)
HOST, CPU = 'host', 'cpu'
EPOCH_NS = 1_700_000_000_000_000_000

Row = collections.namedtuple('Row', 'time_ns pid device kind address bytes is_free name correlation stream stack')


def device_of(row):
    return {PINNED: HOST, PAGEABLE: CPU}.get(row.kind, row.device)


class Job:
    """Random rows, in the order of their times."""

    def __init__(self, seed, most=400, processes=None):
        self.random = r = random.Random(seed)
        self.pids = r.sample(range(1, 0x1000000), processes or r.choice([1, 1, 1, 2, 3]))
        self.devices = r.choice([[0], [0], [0, 1], [1, 3]])
        self.names = {pid: r.choice([f'python{pid % 7}', '/usr/bin/python3', 'ein Pröcess', 'x' * (300 if most > 100 else 9)]) for pid in self.pids}
        functions = [f'fn{i}' + 'λ' * r.choice([0, 0, 1]) + 'q' * r.choice([0, 0, 30, 3000 if most > 100 else 0]) for i in range(r.randint(1, 12))]
        modules = ['libcudart.so', 'train.py', '/opt/lib/libnccl.so.2']
        self.stacks = [tuple((r.choice(functions), r.choice(modules)) for _ in range(r.randint(0, 9))) for _ in range(r.randint(1, 15))]
        self.rows = []
        self.make(min(most, r.choice([0, 1, 5, 60, most])))

    def make(self, count):
        r, live, time = self.random, {}, r_time(self.random)
        for pid in self.pids:  # what was there before the recording
            for k in range(r.choice([0, 0, 3])):
                live[pid, 0x500000000000 + k * 0x1000000] = (r.choice(self.devices), DEVICE, r.randint(1, 1 << 30))
        for i in range(count):
            pid = r.choice(self.pids)
            time += r.choice([0, 1, 999, 1000, 12345])
            own = [key for key in live if key[0] == pid]
            common = {'time_ns': time, 'pid': pid, 'correlation': r.choice([0, i + 1, i + 1, i + 1]), 'stream': r.choice([0, 7, 13])}
            if own and r.random() < 0.48:
                key = r.choice(own)
                device, kind, size = live.pop(key)
                self.rows.append(Row(device=device, kind=kind, address=key[1], bytes=size, is_free=True, name=None, stack=(), **common))
                continue
            address = 0x7f0000000000 + r.randint(0, 40) * 0x200000
            if (pid, address) in live:
                continue
            kind = r.choice([DEVICE] * 8 + [PINNED, PAGEABLE, ARRAY, MANAGED, STATIC, MANAGED_STATIC])
            device, size = r.choice(self.devices), r.choice([1, 511, 513, 1 << 20, r.randint(1, 1 << 33)])
            live[pid, address] = (device, kind, size)
            name = r.choice([None, None, None, 'table']) if kind in (STATIC, MANAGED_STATIC) else None
            stack = r.choice(self.stacks) if common['correlation'] else ()
            self.rows.append(Row(device=device, kind=kind, address=address, bytes=size, is_free=False, name=name, stack=stack, **common))

    def shares(self):
        """Whether two processes allocate on one device."""
        users = collections.defaultdict(set)
        for row in self.rows:
            if not row.is_free and device_of(row) not in (HOST, CPU):
                users[device_of(row)].add(row.pid)
        return any(len(pids) > 1 for pids in users.values())


def r_time(r):
    return r.choice([0, 5, 10 ** 9, 10 ** 12 + 7])


# ---- Nsight ----

def global_id(pid, tid=0, vm=1):
    return vm << 56 | pid << 24 | tid


COLUMNS = ['start', 'globalPid', 'deviceId', 'contextId', 'address', 'pc', 'bytes', 'memKind', 'memoryOperationType', 'name',
           'correlationId', 'streamId', 'localMemoryPoolAddress', 'localMemoryPoolSize']
COMMENTS = ['', ' -- a comment, with (parentheses', ' /* and, another ) */', ' -- REFERENCES StringIds(id)']


def columns_of(r, names, types=None):
    """The columns of a CREATE TABLE statement, as versions of the tool write them."""
    texts = []
    for name in names:
        quoted = r.choice([name, name, f'"{name}"', f'[{name}]', f'`{name}`'])
        texts.append(f'    {quoted:<28}{(types or {}).get(name, "INTEGER")}{r.choice(["", "   NOT NULL"]) if not types else ""}')
    return ''.join(f'{text}{"," if i + 1 < len(texts) else ""}{r.choice(COMMENTS)}\n' for i, text in enumerate(texts))


class Nsight:
    """An export with the rows of a job. `lacks` are columns and tables that its version does not have."""

    def __init__(self, path, job, seed=0, lacks=(), page_bytes=None):
        self.path, self.job, self.lacks = path, job, set(lacks)
        self.random = r = random.Random(seed)
        pathlib.Path(path).unlink(missing_ok=True)
        self.db = sqlite3.connect(path)
        self.db.execute(f'PRAGMA page_size = {page_bytes or r.choice([512, 1024, 4096, 4096, 65536])}')
        if r.random() < 0.2:
            self.db.execute('PRAGMA auto_vacuum = FULL')
        self.strings = {'': 0}
        self.ranges = []
        self.write()

    def id_of(self, text):
        return self.strings.setdefault(text, len(self.strings))

    def create(self, name, columns, types=None, more=''):
        text = columns_of(self.random, columns, types)
        self.db.execute(f'CREATE TABLE {name} (\n    -- Rows of {name}.\n\n{text}{more})')
        return columns

    def insert(self, name, columns, rows):
        marks = ', '.join('?' * len(columns))
        quoted = ', '.join(f'"{column}"' for column in columns)
        self.db.executemany(f'INSERT INTO {name} ({quoted}) VALUES ({marks})', [[row[column] for column in columns] for row in rows])

    def write(self):
        steps = [self.write_noise, self.write_events, self.write_calls, self.write_ranges, self.write_others]
        self.random.shuffle(steps)
        for step in steps:
            step()
        if 'StringIds' not in self.lacks:
            self.db.execute('CREATE TABLE StringIds (\n    -- Texts.\n    id INTEGER NOT NULL PRIMARY KEY, -- number\n    value TEXT NOT NULL\n)')
            self.db.executemany('INSERT INTO StringIds VALUES (?, ?)', [(number, text) for text, number in self.strings.items()])
        self.db.commit()
        if self.random.random() < 0.2:
            self.db.execute('VACUUM')
        self.db.close()

    def write_noise(self):
        columns = self.create('CUPTI_ACTIVITY_KIND_KERNEL', ['start', 'end', 'demangledName'])
        count = self.random.choice([0, 10, 3000]) if len(self.job.rows) > 12 else 0
        self.insert('CUPTI_ACTIVITY_KIND_KERNEL', columns, [{'start': i, 'end': i + 1, 'demangledName': 0} for i in range(count)])

    def write_events(self):
        rows = [{'start': row.time_ns, 'globalPid': global_id(row.pid), 'deviceId': row.device, 'contextId': 1, 'address': row.address,
                 'pc': 0, 'bytes': row.bytes, 'memKind': row.kind, 'memoryOperationType': int(row.is_free), 'name': row.name,
                 'correlationId': row.correlation or None, 'streamId': row.stream, 'localMemoryPoolAddress': None,
                 'localMemoryPoolSize': None} for row in self.job.rows]
        ranked = list(range(len(rows)))
        if len({row.time_ns for row in self.job.rows}) == len(rows):
            self.random.shuffle(ranked)  # the table is in no order; rows of one time are
        columns = [column for column in COLUMNS if column not in self.lacks]
        types = dict.fromkeys(columns, 'INTEGER') | {'name': 'TEXT'}
        columns = self.create('CUDA_GPU_MEMORY_USAGE_EVENTS', columns, types)
        self.insert('CUDA_GPU_MEMORY_USAGE_EVENTS', columns, [rows[i] for i in ranked])

    def write_calls(self):
        if 'CUPTI_ACTIVITY_KIND_RUNTIME' in self.lacks:
            return
        chains = {stack: i + 1 for i, stack in enumerate(dict.fromkeys(row.stack for row in self.job.rows if row.stack))}
        columns = self.create('CUPTI_ACTIVITY_KIND_RUNTIME', ['start', 'end', 'globalTid', 'correlationId', 'nameId', 'callchainId'],
                              dict.fromkeys(['start', 'end', 'globalTid', 'correlationId', 'nameId', 'callchainId'], 'INTEGER'))
        calls = [{'start': row.time_ns, 'end': row.time_ns + 1, 'globalTid': global_id(row.pid, 9), 'correlationId': row.correlation,
                  'nameId': self.id_of('cudaFree_v3020' if row.is_free else 'cudaMalloc_v3020'), 'callchainId': chains.get(row.stack)}
                 for row in self.job.rows if row.correlation]
        self.random.shuffle(calls)
        self.insert('CUPTI_ACTIVITY_KIND_RUNTIME', columns, calls)
        if 'CUDA_CALLCHAINS' in self.lacks:
            return
        names = ['id', 'symbol', 'module', 'unresolved', 'originalIP', 'stackDepth']
        columns = self.create('CUDA_CALLCHAINS', names, dict.fromkeys(names, 'INTEGER'), more=',\n PRIMARY KEY (id, stackDepth)\n')
        steps = [{'id': number, 'symbol': self.id_of(function), 'module': self.id_of(module), 'unresolved': None, 'originalIP': 0,
                  'stackDepth': depth} for stack, number in chains.items() for depth, (function, module) in enumerate(stack)]
        self.random.shuffle(steps)
        self.insert('CUDA_CALLCHAINS', columns, steps)

    def write_ranges(self):
        names = ['start', 'end', 'eventType', 'rangeId', 'text', 'globalTid', 'textId', 'domainId']
        columns = self.create('NVTX_EVENTS', names, dict.fromkeys(names, 'INTEGER') | {'text': 'TEXT'})
        times = [row.time_ns for row in self.job.rows] or [0]
        rows = []
        for i in range(self.random.choice([0, 0, 1, 4])):
            start, end = sorted([self.random.choice(times), self.random.choice(times) + 2000])
            pid, name = self.random.choice(self.job.pids), f'range {i}'
            is_registered = self.random.random() < 0.5
            rows.append({'start': start, 'end': end, 'eventType': self.random.choice([59, 60]), 'rangeId': None,
                         'text': None if is_registered else name, 'globalTid': global_id(pid, 5),
                         'textId': self.id_of(name) if is_registered else None, 'domainId': 0})
            self.ranges.append((name, pid, start, end))
        rows.append({'start': 0, 'end': None, 'eventType': 75, 'rangeId': None, 'text': 'a domain', 'globalTid': global_id(self.job.pids[0]),
                     'textId': None, 'domainId': 0})
        self.insert('NVTX_EVENTS', columns, rows)

    def write_others(self):
        self.create('PROCESSES', ['globalPid', 'pid', 'name'], {'globalPid': 'INTEGER', 'pid': 'INTEGER', 'name': 'TEXT'})
        self.insert('PROCESSES', ['globalPid', 'pid', 'name'],
                    [{'globalPid': global_id(pid), 'pid': pid, 'name': name} for pid, name in self.job.names.items()])
        if 'TARGET_INFO_SESSION_START_TIME' not in self.lacks:
            self.db.execute('CREATE TABLE TARGET_INFO_SESSION_START_TIME (utcEpochNs INTEGER, utcTime TEXT)')
            self.db.execute('INSERT INTO TARGET_INFO_SESSION_START_TIME VALUES (?, ?)', (EPOCH_NS, 'then'))

    # ---- what is true of it ----

    def totals(self):
        """What SQLite says is allocated after each event of each device, counted from what the file shows was there."""
        kind = f'CASE memKind WHEN {PINNED} THEN "host" WHEN {PAGEABLE} THEN "cpu" ELSE deviceId END'
        place = 'deviceId' if 'memKind' in self.lacks else kind
        db = sqlite3.connect(self.path)
        rows = db.execute(f'''
            WITH rows AS (SELECT rowid AS number, start, bytes, memoryOperationType AS is_free, {place} AS place, address,
                                 globalPid / 0x1000000 % 0x1000000 AS pid FROM CUDA_GPU_MEMORY_USAGE_EVENTS),
            firsts AS (SELECT place, bytes, is_free,
                              row_number() OVER (PARTITION BY place, pid, address ORDER BY start, number) AS nth FROM rows),
            before AS (SELECT place, sum(bytes) AS bytes FROM firsts WHERE nth = 1 AND is_free = 1 GROUP BY place)
            SELECT rows.place, ifnull(before.bytes, 0) + sum(CASE is_free WHEN 1 THEN -rows.bytes ELSE rows.bytes END)
                   OVER (PARTITION BY rows.place ORDER BY start, number ROWS UNBOUNDED PRECEDING) AS total
            FROM rows LEFT JOIN before ON before.place = rows.place ORDER BY start, number''').fetchall()
        db.close()
        out = collections.defaultdict(list)
        for place, total in rows:
            out[str(place)].append(total)
        return dict(out)

    def frames(self, row):
        """The stack of an allocation, innermost first, as (name, file)."""
        frames = [(row.name, '??')] if row.name else []
        if row.correlation and 'CUPTI_ACTIVITY_KIND_RUNTIME' not in self.lacks:
            has_names = 'StringIds' not in self.lacks
            frames.append(('cudaMalloc_v3020' if has_names else '', '??'))
            if 'CUDA_CALLCHAINS' not in self.lacks:
                frames += [step if has_names else ('', '') for step in row.stack]
        if self.job.shares():
            frames.append((f'process {row.pid} ({self.job.names[row.pid].rpartition("/")[2][-100:]})', '??'))
        return tuple(frames)


def live_at(rows, place, event):
    """The allocations of a device that are live after its event number `event`, of those that the rows allocate."""
    live = {}
    for row in [row for row in rows if device_of(row) == place][:event + 1]:
        if row.is_free:
            live.pop((row.pid, row.address), None)
        else:
            live[row.pid, row.address] = row
    return list(live.values())


# ---- CSV ----

CSV_NAMES = {'action': ['action', 'Action'], 'bytes': ['bytes', 'size', 'size_bytes'], 'address': ['address', 'addr', 'ADDRESS'],
             'device': ['device'], 'time': ['time_us', 'time_ns', 'time_s', 'time_ms'], 'stack': ['stack'], 'stream': ['stream'],
             'thread': ['thread'], 'note': ['note, with "quotes"']}
UNITS = {'time_us': 3, 'time_ns': 0, 'time_s': 9, 'time_ms': 6}


def write_csv(path, job, seed=0):
    """The job's first process, in columns of a random order. Returns how many columns and lines mean nothing."""
    r = random.Random(seed)
    keys = list(CSV_NAMES)
    r.shuffle(keys)
    names = {key: r.choice(CSV_NAMES[key]) for key in keys}
    digits = UNITS[names['time']]
    bad = 0
    with open(path, 'w', newline='', encoding='utf-8-sig' if r.random() < 0.3 else 'utf-8') as file:
        writer = csv.writer(file, lineterminator=r.choice(['\n', '\r\n']), quoting=r.choice([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]))
        writer.writerow([names[key] for key in keys])
        for row in job.rows:
            if row.pid != job.pids[0]:
                continue
            place = device_of(row)
            whole, part = divmod(row.time_ns, 10 ** digits)
            known = {'action': r.choice(['free', 'FREE', 'dealloc'] if row.is_free else ['alloc', 'malloc', 'Alloc']),
                     'bytes': r.choice([str(row.bytes), f'{row.bytes}.0', hex(row.bytes)]), 'address': r.choice([hex(row.address), str(row.address)]),
                     'device': place if place in (HOST, CPU) else r.choice([str(place), f'cuda:{place}']),
                     'time': f'{whole}.{part:0{digits}}' if digits else str(whole), 'stream': str(row.stream), 'thread': r.choice(['1', 'a,b', 'c\nd', '"']),
                     'stack': ';'.join(f'{name} ({file}:{i + 1})' for i, (name, file) in reversed(list(enumerate(row.stack)))), 'note': ''}
            writer.writerow([known[key] for key in keys])
            if r.random() < 0.05:
                bad += 1
                writer.writerow([{'action': 'frobnicate', 'bytes': '1', 'address': '1'}.get(key, '') for key in keys])
    return 2, bad


def csv_frames(row):
    return tuple((name, file, i + 1) for i, (name, file) in enumerate(row.stack))


# ---- pprof ----

def varint(value):
    out = bytearray()
    value &= (1 << 64) - 1
    while True:
        out.append(value & 127 | (128 if value > 127 else 0))
        value >>= 7
        if not value:
            return bytes(out)


def number(field, value):
    return varint(field << 3) + varint(value)


def message(field, data):
    return varint(field << 3 | 2) + varint(len(data)) + data


class State:
    """Random live arrays: samples of (count, bytes in all, stack, kind, device)."""

    def __init__(self, seed):
        self.random = r = random.Random(seed)
        functions = [(f'f{i}', r.choice(['a.py', '/x/b.py'])) for i in range(r.randint(1, 8))]
        self.labels = r.choice([['cuda:0'], ['cuda:0', 'cuda:1', 'cpu:0'], ['TPU_2(process=0,(0,1,0,0))', 'TPU_3(process=0,(1,1,0,0))'], ['TFRT_CPU_0'], [None]])
        self.samples = []
        for _ in range(r.choice([1, 4, 60])):
            stack = tuple((*r.choice(functions), r.randint(1, 900)) for _ in range(r.randint(0, 9)))
            count = r.choice([1, 1, 3, 40])
            kind = 'executable' if r.random() < 0.15 and self.labels != [None] else 'buffer'
            size = r.choice([0, 400, r.randint(1, 1 << 32)])
            self.samples.append((count, count * size, stack, kind, None if kind == 'executable' else r.choice(self.labels)))

    def place(self, label):
        devices = [one for one in self.labels if one]
        if label is None:
            gpus = [self.place(one) for one in devices if 'cpu' not in one.lower()]
            used = {label for _, size, _, _, label in self.samples if label and size}
            gpus = [self.place(one) for one in used if 'cpu' not in one.lower()]
            return min(gpus) if gpus else CPU if used else 0
        if 'cpu' in label.lower():
            return CPU
        return int(''.join(c if c.isdigit() else ' ' for c in label).split()[0])

    def stacks(self):
        """Bytes and count by device and stack."""
        out = collections.defaultdict(lambda: [0, 0])
        for count, size, stack, kind, label in self.samples:
            if size:
                frames = ((f'[{kind}]', '', 0), *stack) if kind != 'buffer' else stack
                entry = out[self.place(label), frames]
                entry[0] += size
                entry[1] += count
        return out


def write_pprof(path, state, seed=0):
    r = random.Random(seed)
    strings, functions, locations = {'': 0}, {}, {}

    def text(value):
        return strings.setdefault(value, len(strings))

    types = [message(1, number(1, text('allocations')) + number(2, text('count'))), message(1, number(1, text('space')) + number(2, text('bytes')))]
    is_turned = r.random() < 0.3
    samples = []
    is_packed = r.random() < 0.7
    for count, size, stack, kind, label in state.samples:
        ids = []
        for name, file, line in stack:
            function = functions.setdefault((name, file), len(functions) + 1)
            ids.append(locations.setdefault((function, line), len(locations) + 1))
            text(name), text(file)
        values = [size, count] if is_turned else [count, size]
        if is_packed:
            body = message(1, b''.join(map(varint, ids))) + message(2, b''.join(map(varint, values)))
        else:
            body = b''.join(number(1, one) for one in ids) + b''.join(number(2, one) for one in values)
        body += message(3, number(1, text('kind')) + number(2, text(kind)))
        if label:
            body += message(3, number(1, text('device')) + number(2, text(label)))
        samples.append(message(2, body))
    parts = [message(5, number(1, i) + number(2, text(name)) + number(4, text(file)) + number(5, 1)) for (name, file), i in functions.items()]
    parts += [message(4, number(1, i) + number(3, 0x1234) + message(4, number(1, function) + number(2, line))) for (function, line), i in locations.items()]
    parts += samples
    r.shuffle(parts)
    texts = [message(6, one.encode()) for one in strings]
    data = b''.join((types[::-1] if is_turned else types) + parts + texts)
    pathlib.Path(path).write_bytes(gzip.compress(data) if r.random() < 0.5 else data)


# ---- what tessera says ----

class Mismatch(Exception):
    pass


def expect(what, got, want):
    if got != want:
        raise Mismatch(f'{what}: got {got!r:.400}, want {want!r:.400}')


def ask(tessera, *words):
    done = subprocess.run([os.fspath(tessera), *map(str, words)], stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=300)
    if done.returncode:
        raise Mismatch(f'tessera {" ".join(map(str, words))}: exit status {done.returncode}: {done.stderr.decode()}')
    return done.stdout.decode()


def totals_of(tessera, path):
    out = collections.defaultdict(list)
    for row in json.loads(ask(tessera, 'sql', '--output', 'json', path, 'select device, allocated_bytes from events order by device, event')):
        out[str(row['device'])].append(row['allocated_bytes'])
    return dict(out)


def key_of(device):
    return {HOST: HOST, CPU: CPU}.get(device, str(device))


def check_peak(tessera, path, rows, frames, place, totals, width):
    """Peak and stacks of one device against the list; `width` is how much of a frame `frames` returns."""
    answer = next(one for one in json.loads(ask(tessera, 'peak', '--json', '--top', '0', path))['devices'] if str(one['device']) == key_of(place))
    own = totals[key_of(place)]
    rows_own = [row for row in rows if device_of(row) == place]
    before, live = 0, set()
    for row in rows_own:
        key = row.pid, row.address
        if row.is_free and key not in live:
            before += row.bytes
        live.discard(key) if row.is_free else live.add(key)
    best = max([before, *own])
    expect('the peak', answer['peak']['allocated_bytes'], best)
    event = answer['peak']['event']
    expect('its event', event, -1 if before == best else own.index(best))
    want = collections.Counter()
    for row in live_at(rows, place, event):
        want[frames(row)] += row.bytes
    rest = best - sum(want.values())
    got = collections.Counter()
    for stack in answer['stacks']:
        got[tuple((frame['name'], frame['file'], frame['line'])[:width] for frame in stack['frames'])] += stack['bytes']
    if rest:
        want[()] += rest
    expect('bytes by stack at the peak', +got, +want)


def check_nsight(tessera, folder, seed):
    r = random.Random(seed)
    lacks = r.choice([(), (), (), ('memKind',), ('correlationId', 'streamId', 'name'), ('CUDA_CALLCHAINS',), ('CUPTI_ACTIVITY_KIND_RUNTIME',),
                      ('StringIds',), ('TARGET_INFO_SESSION_START_TIME',)])
    job = Job(seed)
    if 'correlationId' in lacks:
        job.rows = [row._replace(correlation=0, stack=(), name=None) for row in job.rows]
    if 'memKind' in lacks:
        job.rows = [row._replace(kind=DEVICE) for row in job.rows]
    path = folder / f'nsight{seed}.sqlite'
    export = Nsight(path, job, seed, lacks)
    want = export.totals()
    path = wrap(path, r)
    expect('totals by SQLite', totals_of(tessera, path), want)
    for place in {device_of(row) for row in job.rows}:
        check_peak(tessera, path, job.rows, export.frames, place, want, 2)
    if job.rows:
        check_ranges(tessera, path, export, 'TARGET_INFO_SESSION_START_TIME' in lacks)
    warnings = {one['code']: one['count'] for one in json.loads(ask(tessera, 'info', '--json', path))['warnings']}
    allocations = [row for row in job.rows if not row.is_free]
    expect('allocations of the driver', warnings.get('driver-allocations', 0), len(allocations))
    managed = sum(row.kind in (MANAGED, MANAGED_STATIC) for row in allocations)
    expect('managed memory', warnings.get('managed-memory', 0), managed)
    expect('unknown kinds', warnings.get('kinds-missing', 0), len(allocations) if 'memKind' in lacks else 0)
    expect('shared devices', warnings.get('processes-together', 0) > 1, job.shares())
    path.unlink()


def check_ranges(tessera, path, export, lacks_epoch):
    """Each range is an annotation of the devices on which its process allocates."""
    used = collections.defaultdict(set)
    for row in export.job.rows:
        if not row.is_free and device_of(row) not in (HOST, CPU):
            used[row.pid].add(device_of(row))
    epoch = 0 if lacks_epoch else EPOCH_NS
    want = sorted((device, name, stage, (epoch + time) // 1000) for name, pid, start, end in export.ranges for device in used[pid]
                  for stage, time in (('START', start), ('END', end)))
    query = 'select device, name, stage, time_us from annotations'
    got = sorted(tuple(row.values()) for row in json.loads(ask(tessera, 'sql', '--output', 'json', path, query)))
    if 'StringIds' not in export.lacks:
        expect('ranges', got, want)


def wrap(path, r):
    """The same file, perhaps compressed."""
    form = r.choice(['', '', '', 'gz', 'xz', 'zip'])
    out = path.with_name(f'{path.name}.{form}')
    if form == 'gz':
        out.write_bytes(gzip.compress(path.read_bytes(), 1))
    elif form == 'xz':
        out.write_bytes(lzma.compress(path.read_bytes(), preset=0))
    elif form == 'zip':
        with zipfile.ZipFile(out, 'w', zipfile.ZIP_DEFLATED) as file:
            file.write(path, {'.sqlite': 'run.sqlite', '.prof': 'a/memory.prof'}.get(path.suffix, 'run.json'))
    else:
        return path
    path.unlink()
    return out


def check_csv(tessera, folder, seed):
    job = Job(seed, processes=None)
    path = folder / f'list{seed}.csv'
    ignored, bad = write_csv(path, job, seed)
    job.rows = [row for row in job.rows if row.pid == job.pids[0]]
    want = collections.defaultdict(list)
    first, now = {}, collections.Counter()
    for row in job.rows:
        first.setdefault((device_of(row), row.address), row)
    for (place, _), row in first.items():
        now[place] += row.bytes if row.is_free else 0
    for row in job.rows:
        place = device_of(row)
        now[place] += -row.bytes if row.is_free else row.bytes
        want[key_of(place)].append(now[place])
    path = wrap(path, random.Random(seed))
    expect('totals', totals_of(tessera, path), dict(want))
    for place in {device_of(row) for row in job.rows}:
        check_peak(tessera, path, job.rows, csv_frames, place, want, 3)
    warnings = {one['code']: one['count'] for one in json.loads(ask(tessera, 'info', '--json', path))['warnings']}
    expect('ignored columns', warnings.get('columns-ignored', 0), ignored)
    expect('ignored lines', warnings.get('rows-malformed', 0), bad)
    path.unlink()


def check_pprof(tessera, folder, seed):
    state = State(seed)
    path = folder / f'state{seed}.prof'
    write_pprof(path, state, seed)
    path = wrap(path, random.Random(seed))
    got = {}
    for device in json.loads(ask(tessera, 'peak', '--json', '--top', '0', path))['devices']:
        for stack in device['stacks']:
            frames = tuple((frame['name'], frame['file'], frame['line']) for frame in stack['frames'])
            got[str(device['device']), frames] = [stack['bytes'], stack['allocations']]
    expect('bytes and count by device and stack', got, {(key_of(place), frames): value for (place, frames), value in state.stacks().items()})
    path.unlink()


CHECKS = {'nsight': check_nsight, 'csv': check_csv, 'pprof': check_pprof}


# ---- damaged files ----

def damage(data, r):
    """Bytes with one to a few changes, of which most leave the beginning as it was."""
    data = bytearray(data)
    for _ in range(r.choice([1, 1, 2, 5, 20])):
        if not data:
            break
        at = r.choice([r.randrange(len(data)), r.randrange(min(len(data), 200))])
        how = r.randrange(6)
        if how == 0:
            data[at] = r.randrange(256)
        elif how == 1:
            data[at] ^= 1 << r.randrange(8)
        elif how == 2:
            del data[at:at + r.choice([1, 4, 100, 5000])]
        elif how == 3:
            data[at:at] = bytes(r.choices(range(256), k=r.choice([1, 3, 50])))
        elif how == 4:
            data[at:at + 4] = r.choice([b'\xff' * 4, b'\0' * 4, b'\x7f\xff\xff\xff', b'\x80\0\0\0'])
        else:
            size = r.choice([1, 8, 300])
            other = r.randrange(len(data))
            data[at:at + size] = data[other:other + size]
    return bytes(data)


def seeds_of(folder, seed):
    """Small files to damage, one of each form."""
    job = Job(seed, most=60)
    Nsight(folder / 'seed.sqlite', job, seed, page_bytes=512)
    write_csv(folder / 'seed.csv', job, seed)
    write_pprof(folder / 'seed.prof', State(seed), seed)
    data = (folder / 'seed.prof').read_bytes()
    files = [(folder / 'seed.sqlite').read_bytes(), (folder / 'seed.csv').read_bytes(), gzip.decompress(data) if data[:2] == b'\x1f\x8b' else data]
    return files


def damaged(folder, seed, count):
    """Damaged files, one after the other."""
    r = random.Random(seed)
    for i in range(count):
        if i % 50 == 0:
            files = seeds_of(folder, seed * 1000 + i)
        yield damage(files[i % 3], r)


def check_damaged(tessera, folder, seed, count):
    """Reads damaged files by commands. One that ends by a signal, or by a status that no file causes, is a crash."""
    r, ends = random.Random(seed), collections.Counter()
    path = folder / 'damaged'
    for data in damaged(folder, seed, count):
        path.write_bytes(data)
        done = subprocess.run([os.fspath(tessera), r.choice(['info', 'peak', 'why']), path], stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=120)
        ends[done.returncode] += 1
        expect(f'exit status is 0 or 3: {done.stderr.decode(errors="replace"):.1000}', done.returncode in (0, 3), True)
    return dict(ends)


def replay_damaged(program, folder, seed, count):
    """Reads damaged files by the fuzz target `lists`, many in one process. Those of a process that fails are kept."""
    done, batch = 0, folder / 'batch'
    batch.mkdir()
    for i, data in enumerate(damaged(folder, seed, count), 1):
        (batch / str(i)).write_bytes(bytes([i % 256]) + data)
        if i % 500 and i < count:
            continue
        ran = subprocess.run([str(program), batch], stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=1800)
        passed = [line.rpartition(b' ')[2].decode() for line in ran.stdout.splitlines() if line.startswith(b'ok ')]
        if ran.returncode:
            kept = pathlib.Path(tempfile.mkdtemp(prefix='damaged-'))
            for file in batch.iterdir():
                if file.name not in passed:
                    (kept / file.name).write_bytes(file.read_bytes())
            raise Mismatch(f'{kept}: {ran.stderr.decode(errors="replace")[-3000:]}')
        done += len(passed) - 1
        for file in batch.iterdir():
            file.unlink()
    return done


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--tessera', default='build/tessera')
    parser.add_argument('--seed', type=int, default=1)
    parser.add_argument('--count', type=int, default=100)
    parser.add_argument('--only', choices=[*CHECKS])
    parser.add_argument('--mutate', type=int, default=0, help='read this many damaged files instead')
    parser.add_argument('--replay', help='... with the fuzz target lists, such as build-asan/tests/replay_lists')
    given = parser.parse_args()
    failed = 0
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        if given.mutate:
            ends = (replay_damaged(given.replay, folder, given.seed, given.mutate) if given.replay else
                    check_damaged(given.tessera, folder, given.seed, given.mutate))
            print(f'damaged files: {ends}')
            return 0
        for what, check in CHECKS.items():
            if given.only not in (None, what):
                continue
            for seed in range(given.seed, given.seed + given.count):
                try:
                    check(given.tessera, folder, seed)
                except Mismatch as error:
                    failed += 1
                    print(f'{what} {seed}: {error}')
            print(f'{what}: {given.count} files')
    return failed > 0


if __name__ == '__main__':
    sys.exit(main())
