"""kineto_truth.py: what a profiler's trace says of memory, computed slowly from its JSON; and random traces whose answers are known because
they were made from them. Nothing here knows how tessera reads a trace."""
import collections
import json
import random
import re

PYTHON_FRAME = re.compile(r'^(?P<file>.+)\((?P<line>\d+)\): (?P<name>.+)$', re.S)
ADDRESS = re.compile(r' at 0x[^> ]*')
SLICES = ('python_function', 'cpu_op')


def frame_of(name):
    """(name, file, line), as tessera's JSON has it."""
    found = PYTHON_FRAME.match(name)
    if name.startswith('<built-in '):
        return ADDRESS.sub('', name), '', 0
    if found:
        return found['name'], found['file'], int(found['line'])
    return name, '', 0


def ns_of(number):
    """A time in microseconds, read as text by json.loads(parse_float=str)."""
    whole, _, part = str(number).partition('.')
    return int(whole) * 1000 + int((part + '000')[:3])


Row = collections.namedtuple('Row', 'time_ns device address bytes total reserved thread is_oom')


def events_of(trace):
    return trace if isinstance(trace, list) else trace['traceEvents']


def rows_of(trace):
    """Allocations (bytes above 0) and frees in the order of time, by device."""
    rows = []
    for event in events_of(trace):
        if event.get('name') not in ('[memory]', '[OutOfMemory]'):
            continue
        args = event['args']
        device = 'cpu' if args['Device Type'] == 0 else args['Device Id']
        rows.append(Row(ns_of(event['ts']), device, args.get('Addr'), args['Bytes'], args.get('Total Allocated'),
                        args.get('Total Reserved') if device != 'cpu' else None, (event['pid'], event['tid']),
                        event['name'] == '[OutOfMemory]'))
    rows.sort(key=lambda row: row.time_ns)
    found = collections.defaultdict(list)
    for row in rows:
        found[row.device].append(row)
    return dict(found)


class Stacks:
    """The stack of a moment on a thread: every slice that contains it, the innermost first."""

    def __init__(self, trace):
        self.by_thread = collections.defaultdict(list)
        for i, event in enumerate(events_of(trace)):
            if event.get('ph') == 'X' and event.get('cat') in SLICES:
                start = ns_of(event['ts'])
                self.by_thread[event['pid'], event['tid']].append((start, -(start + ns_of(event['dur'])), i, event['name']))
        for slices in self.by_thread.values():
            slices.sort()

    def at(self, thread, time_ns):
        inside = [name for start, end, _, name in self.by_thread.get(thread, ()) if start <= time_ns <= -end]
        return tuple(frame_of(name) for name in reversed(inside))


class Ledger:
    """One device: what is live, by address, and the highest moment."""

    def __init__(self, before=0):
        self.live, self.total, self.before = {}, before, before
        self.peak, self.at_peak, self.peak_index = before, {}, -1

    def apply(self, index, row, stack):
        if row.bytes > 0:
            self.live[row.address] = (row.bytes, stack)
        elif row.address in self.live:
            del self.live[row.address]
        self.total += row.bytes
        if self.total > self.peak:
            self.peak, self.at_peak, self.peak_index = self.total, dict(self.live), index

    def stacks(self):
        """Bytes and allocations by stack at the peak."""
        found = collections.Counter(), collections.Counter()
        for size, stack in self.at_peak.values():
            found[0][stack] += size
            found[1][stack] += 1
        return found


def read(text):
    return json.loads(text, parse_float=str)


# ---- random traces ----

FILES = ('train.py', 'model (v2).py', 'torch/nn/modules/linear.py', 'torch/optim/adamw.py', 'pfad/ö "quoted".py')
OPS = ('aten::mm', 'aten::empty', 'autograd::engine::evaluate_function: MmBackward0', 'nn.Module: Linear_0')


class Made:
    """A trace, and what is known of it: `truth` has, by device, the totals after each of its rows, the peak, and what is live then by stack."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        r = self.random
        self.has_addresses = r.random() < 0.8
        self.has_totals = r.random() < 0.8
        self.base_ns = r.choice((0, 1790857026000000000))
        self.is_list = r.random() < 0.15
        self.devices = r.sample(('cpu', 0, 1, 5), r.randint(1, 3))
        self.threads = [(r.randint(1, 9), r.choice((7, 'stream 7', 12345678901234))) for _ in range(r.randint(1, 3))]
        self.events, self.rows, self.ranges = [], [], []
        self.time = r.randint(1, 10**9) * 1000
        self.open = {thread: [] for thread in self.threads}
        self.live = {device: {} for device in self.devices}
        self.total = {device: r.choice((0, 0, r.randint(1, 1 << 33))) for device in self.devices}
        self.before = dict(self.total)
        self.reserved = {device: 0 for device in self.devices}
        self.hidden = {device: 0 for device in self.devices}  # bytes that only totals show
        self.moves = collections.Counter()
        for _ in range(r.randint(1, 200)):
            self.act()
        for thread in self.threads:
            while self.open[thread]:
                self.close(thread)

    def tick(self):
        self.time += self.random.choice((1, 1, 7, 999, 1000, 123456))
        return self.time

    def stamp(self, time_ns):
        if self.is_list:
            time_ns += self.base_ns
        return f'{time_ns // 1000}.{time_ns % 1000:03}'

    def act(self):
        r = self.random
        thread = r.choice(self.threads)
        what = r.random()
        if what < 0.25 and len(self.open[thread]) < 12:
            self.open[thread].append((self.tick(), self.name()))
        elif what < 0.4 and self.open[thread]:
            self.close(thread)
        elif what < 0.75:
            self.alloc(thread, r.choice(self.devices))
        elif what < 0.95:
            self.free(thread, r.choice(self.devices))
        elif what < 0.97:
            self.oom(thread, r.choice(self.devices))
        elif self.has_totals:
            self.move(r.choice(self.devices))

    def name(self):
        r = self.random
        if r.random() < 0.5:
            return 'python_function', f'{r.choice(FILES)}({r.randint(1, 50)}): {r.choice(("forward", "<lambda>", "f"))}'
        if r.random() < 0.2:
            return 'python_function', f'<built-in method mm of type object at 0x{r.getrandbits(40):x}>'
        if r.random() < 0.15:
            return 'user_annotation', r.choice(('ProfilerStep#1', 'Optimizer.step#Adam.step', 'mine'))
        return 'cpu_op', r.choice(OPS)

    def close(self, thread):
        start, (category, name) = self.open[thread].pop()
        end = self.tick()
        self.events.append({'ph': 'X', 'cat': category, 'name': name, 'pid': thread[0], 'tid': thread[1], 'ts': self.stamp(start),
                            'dur': f'{(end - start) // 1000}.{(end - start) % 1000:03}', 'args': {'Ev Idx': 1, 'x': [1, {'y': '}'}]}})
        if category == 'user_annotation':
            self.ranges.append((start, end, name))

    def memory(self, thread, device, size, name='[memory]', address=None):
        args = {'Device Type': 0 if device == 'cpu' else self.random.choice((1, 6, 12)), 'Device Id': -1 if device == 'cpu' else device, 'Bytes': size}
        if address is not None and self.has_addresses:
            args['Addr'] = address
        if self.has_totals:
            args['Total Allocated'] = self.total[device]
            self.reserved[device] = max(self.reserved[device], -(-self.total[device] // (2 << 20)) * (2 << 20))
            args['Total Reserved'] = 0 if device == 'cpu' else self.reserved[device]
        items = list(args.items())
        self.random.shuffle(items)
        self.events.append({'ph': 'i', 's': 't', 'name': name, 'pid': thread[0], 'tid': thread[1], 'ts': self.stamp(self.time), 'args': dict(items)})

    def stack(self, thread):
        return tuple(frame_of(name) for _, (category, name) in reversed(self.open[thread]) if category != 'user_annotation')

    def alloc(self, thread, device):
        self.tick()
        # Without addresses a free is known by its size alone, so there sizes differ.
        size = self.random.choice((1, 512, 513, 4096, 1 << 20)) if self.has_addresses else 512 + len(self.rows)
        address = self.random.choice((0x7f0000000000, 1 << 47, 94000000000000)) + 512 * len(self.rows)
        self.total[device] += size
        self.live[device][address] = (size, self.stack(thread))
        self.memory(thread, device, size, address=address)
        self.note(device, 'alloc', size)

    def free(self, thread, device):
        self.tick()
        if self.live[device]:
            address = self.random.choice(list(self.live[device]))
            size = self.live[device].pop(address)[0]
        elif self.has_addresses and self.total[device] - self.hidden[device] >= 700 and self.before[device] >= 700:
            address, size = 0x1000000000 + 512 * len(self.rows), 700  # of before the recording
            self.before[device] -= size
        else:
            return
        self.total[device] -= size
        self.memory(thread, device, -size, address=address)
        self.note(device, 'free_completed', size)

    def oom(self, thread, device):
        self.tick()
        self.memory(thread, device, self.random.randint(1, 1 << 40), '[OutOfMemory]')
        self.note(device, 'oom', 0)

    def move(self, device):
        """A total changes, and nothing says why."""
        size = self.random.choice((1, 4096, 1 << 21))
        if self.random.random() < 0.5 and self.hidden[device] + self.before[device] >= size:
            size = -size
        self.total[device] += size
        if size > 0:
            self.hidden[device] += size
        elif self.hidden[device] >= -size:
            self.hidden[device] += size
        else:
            self.before[device] -= -size - self.hidden[device]
            self.hidden[device] = 0
        self.moves[device] += 1

    def note(self, device, action, size):
        by_stack = collections.Counter()
        for one, stack in self.live[device].values():
            by_stack[stack] += one
        self.rows.append((device, action, size, self.total[device] if self.has_totals else None, self.reserved[device], by_stack, (self.time + self.base_ns) // 1000))

    def text(self):
        events = [event for event in self.events]
        self.random.shuffle(events)
        numbers = re.compile(r'"(ts|dur)": "(\d+\.\d+)"')
        parts = [numbers.sub(r'"\1": \2', json.dumps(event, ensure_ascii=self.random.random() < 0.5)) for event in events]
        body = '[\n' + ',\n'.join(parts) + '\n]'
        if self.is_list:
            return body
        base = f'"baseTimeNanoseconds": {self.base_ns}'
        top = ['"schemaVersion": 1', '"deviceProperties": [{"id": 0, "name": "a {card} \\"]"}]', f'"traceEvents": {body}']
        if self.base_ns:
            top.insert(self.random.choice((1, 3)), base)
        return '{' + ',\n'.join(top) + '}'
