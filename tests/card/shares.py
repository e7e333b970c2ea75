"""shares.py: processes that share a card, on one clock, whose sum at every moment is known because it is made here.

    python3 tests/card/shares.py FOLDER SEED

Each process has segments that come and go (its trace has them), a pool that sleeps and wakes (its ledger has a sample of that), a context,
and phases, which annotations mark. Time is in ticks; what all hold is worked out tick by tick, in the simplest way, and so is what each
phase needs and what must be released for it. Nothing here knows how tessera joins files.

As a program of its own, `python3 tests/card/shares.py --process FILE ROLE SECONDS` is one of two real processes that take turns by the
clock of the machine, and writes what it held with the times at which it did.
"""
import argparse
import json
import pathlib
import pickle
import random
import sys
import time

MIB, GIB = 1 << 20, 1 << 30
START_US, TICK_US = 1_795_000_000_000_000, 10_000


def frames(name):
    return [{'name': name, 'filename': '/job/rl.py', 'line': 9}]


class Process:
    """Draws a life in `ticks`: `reserved`, `asleep` and `context` by tick, and phases [(name, first, end)]."""

    def __init__(self, r, name, pid, ticks, total, names):
        self.name, self.pid, self.ticks, self.total = name, pid, ticks, total
        self.context = r.randrange(300, 600) * MIB
        self.segments, self.events, self.address = [], [], 0x7f0000000000 + (pid << 36)
        self.reserved, self.asleep, self.phases, self.samples = [], [], [], [0]
        self.ooms = []
        asleep = 0
        for tick in range(ticks):
            if tick == 0 or r.random() < 0.15:
                self.step(r, tick)
            now = sum(size for _, size in self.segments)
            if r.random() < 0.06:
                asleep = r.choice((0, now // 2, now // 4 * 3)) // MIB * MIB
                self.samples.append(tick)
            elif now < asleep:
                asleep = now
                self.samples.append(tick)
            elif r.random() < 0.1:
                self.samples.append(tick)
            self.reserved.append(now)
            self.asleep.append(asleep)
        self.samples = sorted({*self.samples, ticks - 1})
        at = r.randrange(2, 6)
        while at + 3 < ticks - 1 and names:
            end = min(at + r.randrange(2, 9), ticks - 2)
            self.phases.append((r.choice(names), at, end))
            at = end + r.choice((0, 0, 1, 3))

    def event(self, tick, action, address, size):
        where = {'device_free': address} if action == 'oom' else {}
        self.events.append({'action': action, 'addr': address, 'size': size, 'stream': 0, 'time_us': START_US + tick * TICK_US,
                            'frames': frames('grow'), **where})

    def step(self, r, tick):
        room = self.total // 2 - sum(size for _, size in self.segments)
        if self.segments and (r.random() < 0.45 or room < 64 * MIB):
            address, size = self.segments.pop(r.randrange(len(self.segments)))
            for action in ('free_requested', 'free_completed', 'segment_free'):
                self.event(tick, action, address, size)
        if room >= 64 * MIB and (not self.segments or r.random() < 0.7):
            size = r.randrange(16, room // (2 * MIB)) * 2 * MIB
            self.segments.append((self.address, size))
            self.event(tick, 'segment_alloc', self.address, size)
            self.event(tick, 'alloc', self.address, size)
            self.address += size + GIB

    def holds(self, tick):
        return self.reserved[tick] - self.asleep[tick] + self.context

    def snapshot(self):
        rows = [{'stage': stage, 'name': name, 'device': 0, 'time_us': START_US + tick * TICK_US}
                for name, first, end in self.phases for stage, tick in (('START', first), ('END', end))]
        segments = [{'device': 0, 'address': at, 'total_size': size, 'allocated_size': size, 'active_size': size, 'requested_size': size,
                     'stream': 0, 'segment_type': 'large', 'segment_pool_id': (0, 0), 'is_expandable': False, 'frames': [],
                     'blocks': [{'address': at, 'size': size, 'requested_size': size, 'state': 'active_allocated', 'frames': frames('grow')}]}
                    for at, size in sorted(self.segments)]
        return {'segments': segments, 'device_traces': [self.events], 'allocator_settings': {}, 'external_annotations': rows}


class Shared:
    def __init__(self, seed, fails=None):
        r = self.random = random.Random(seed)
        self.total = r.choice((24, 80)) * GIB
        self.ticks = r.randrange(40, 160)
        self.rest = r.randrange(0, 700) * MIB
        self.driver = r.choice((None, r.randrange(100, 500) * MIB))
        self.uuid = r.choice(('GPU-9', None))
        self.stranger = r.choice((0, r.randrange(64, 900) * MIB))
        names = [['rollout', 'weight sync'], ['training', 'weight sync'], ['reward']]
        self.processes = [Process(r, name, 100 + i, self.ticks, self.total * (12, 10, 2)[i] // 10, names[i])
                          for i, name in enumerate(('engine', 'trainer', 'judge')[:r.choice((2, 2, 3))])]
        if fails if fails is not None else r.random() < 0.4:
            self.fail()

    def outside(self):
        return self.rest + (self.driver or 0) + self.stranger

    def sum(self, tick):
        return sum(process.holds(tick) for process in self.processes)

    def fail(self):
        """The trainer asks for more than there is, in its last phase."""
        trainer = self.processes[1]
        if not trainer.phases:
            return
        name, first, _ = trainer.phases[-1]
        free = max(self.total - self.sum(first) - self.outside(), 0)
        asked = free // MIB * MIB + self.random.randrange(64, 4096, 2) * MIB
        asked -= asked % (2 * MIB)
        trainer.events = sorted(trainer.events, key=lambda event: event['time_us'])
        trainer.event(first, 'oom', free, asked)
        trainer.events.sort(key=lambda event: event['time_us'])
        trainer.ooms.append((first, asked - free))

    # ---- the truth ----

    def together(self):
        tick = max(range(self.ticks), key=lambda tick: (self.sum(tick), -tick))
        return tick, self.sum(tick)

    def peaks(self):
        return [max(process.holds(tick) for tick in range(self.ticks)) for process in self.processes]

    def phases(self, outside):
        """{(holder, name): {...}} of what each phase needs, of a card of which `outside` is nobody's among these processes."""
        out = {}
        for holder, process in enumerate(self.processes):
            for name in {name for name, _, _ in process.phases}:
                mine = [(first, end) for phase, first, end in process.phases if phase == name]
                row = {'times': len(mine), 'needs_bytes': 0, 'missing_bytes': 0, 'sum_bytes': 0, 'before_bytes': 0}
                last = 0
                for first, end in mine:
                    inside = range(first, end)
                    row['needs_bytes'] = max([row['needs_bytes'], *(process.holds(tick) for tick in inside)])
                    row['sum_bytes'] = max([row['sum_bytes'], *(self.sum(tick) for tick in inside)])
                    for tick, missing in process.ooms:
                        if first <= tick < end:
                            row['missing_bytes'] = max(row['missing_bytes'], missing)
                            row['needs_bytes'] = max(row['needs_bytes'], process.holds(tick) + missing)
                    before = max((self.sum(tick) - process.holds(tick) for tick in range(last, first)), default=0)
                    row['before_bytes'] = max(row['before_bytes'], before)
                    last = end
                row['room_bytes'] = max(self.total - outside - row['needs_bytes'], 0)
                row['release_bytes'] = max(row['before_bytes'] - row['room_bytes'], 0)
                out[holder, name] = row
        return out

    # ---- files ----

    def sidecar(self, process):
        at = process.samples
        others = [other for other in self.processes if other is not process]
        rows = [[other.holds(tick) for tick in at] for other in others] + [[self.stranger] * len(at)]
        column = [process.reserved[tick] for tick in at]
        return {'schema': 'tessera/capture/1', 'process': {'pid': process.pid, 'host': 'node1'}, 'card': {
            'period_ms': 10, 'nvml': '12', 'devices': [{
                'device': 0, 'uuid': self.uuid, 'total_bytes': self.total, 'driver_bytes': self.driver, 'context_bytes': process.context,
                'context_from': 'nvml', 'processes': [{'pid': other.pid, 'name': 'python3'} for other in others] + [{'pid': 7, 'name': 'Xorg'}],
                'samples': {'time_us': [START_US + tick * TICK_US for tick in at],
                            'total_used_bytes': [self.sum(tick) + self.outside() for tick in at], 'allocated_bytes': column,
                            'reserved_bytes': column, 'unmapped_bytes': [process.asleep[tick] for tick in at], 'other_process_bytes': rows}}]}}

    def write(self, folder):
        paths = []
        for process in self.processes:
            path = pathlib.Path(folder) / f'{process.name}.pickle'
            path.write_bytes(pickle.dumps(process.snapshot(), protocol=4))
            path.with_suffix('.json').write_text(json.dumps(self.sidecar(process)))
            paths.append(path)
        return paths


# ---- a real process ----

def live(path, role, start, turn):
    """Hold memory in turns of `turn` seconds: the engine in even ones, the trainer in odd ones, which it calls a phase."""
    sizes = {'engine': (3 * GIB, GIB // 2, 0), 'trainer': (2 * GIB, GIB // 4, 1)}
    most, least, mine = sizes[role]
    events, rows, samples = [], [], []

    def now():
        return time.time_ns() // 1000

    def sleep_until(moment):
        time.sleep(max(moment - time.time(), 0))

    def note(actions, first, size):
        for action in actions:
            events.append({'action': action, 'addr': 0x7f0000000000 + first, 'size': size, 'stream': 0, 'time_us': now(), 'frames': []})

    sleep_until(start)
    note(('segment_alloc', 'alloc'), 0, least)
    for step in range(6):
        held = least
        if step % 2 == mine:
            rows.append({'stage': 'START', 'name': 'rollout' if role == 'engine' else 'training', 'device': 0, 'time_us': now()})
            note(('segment_alloc', 'alloc'), least, most - least)
            held = most
        samples.append((now(), held))
        sleep_until(start + (step + 0.8) * turn)
        if held > least:
            note(('free_requested', 'free_completed', 'segment_free'), least, most - least)
            held = least
            rows.append({'stage': 'END', 'name': rows[-1]['name'], 'device': 0, 'time_us': now()})
        samples.append((now(), held))
        sleep_until(start + (step + 1) * turn)
    segment = {'device': 0, 'address': 0x7f0000000000, 'total_size': held, 'allocated_size': held, 'active_size': held, 'requested_size': held,
               'stream': 0, 'segment_type': 'large', 'segment_pool_id': (0, 0), 'is_expandable': False, 'frames': [],
               'blocks': [{'address': 0x7f0000000000, 'size': held, 'requested_size': held, 'state': 'active_allocated', 'frames': []}]}
    path = pathlib.Path(path)
    path.write_bytes(pickle.dumps({'segments': [segment], 'device_traces': [events], 'external_annotations': rows}, protocol=4))
    column = [size for _, size in samples]
    path.with_suffix('.json').write_text(json.dumps({'schema': 'tessera/capture/1', 'card': {'devices': [{
        'device': 0, 'uuid': 'GPU-1', 'total_bytes': 4 * GIB, 'samples': {
            'time_us': [moment for moment, _ in samples], 'total_used_bytes': [None] * len(samples), 'allocated_bytes': column,
            'reserved_bytes': column}}]}}))


if __name__ == '__main__':
    if sys.argv[1:2] == ['--process']:
        live(sys.argv[2], sys.argv[3], float(sys.argv[4]), float(sys.argv[5]))
    else:
        parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
        parser.add_argument('folder')
        parser.add_argument('seed', type=int)
        given = parser.parse_args()
        print(*Shared(given.seed).write(given.folder))
