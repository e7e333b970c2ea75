"""ledgers.py: jobs whose card is known to the byte, because they are made here: a snapshot, and a sidecar with the ledger of the card.

    python3 tests/card/ledgers.py FOLDER SEED

A job draws what is on its card over time: PyTorch's segments (the trace has them, too), a context, libraries, groups of NCCL, other
processes, and a rest that nobody accounts for. The used memory of each sample is the sum of all of it, so the truth about each part is
what was drawn, and the rest is what was planted. Some jobs run out of memory, because of a part that was planted for it. What the ledger
leaves out (a counter that is null) is part of the rest. Nothing here knows how tessera divides a card.
"""
import argparse
import json
import pathlib
import pickle
import random

MIB, GIB = 1 << 20, 1 << 30
START_US = 1_795_000_000_000_000
CAUSES = ('none', 'pytorch', 'process', 'communicator', 'growth', 'unaccounted', 'context')
GROUPS = ('dp (0)', 'tp (1)', 'pp (2)', 'ep (3)', 'cp (4)', 'default', 'embedding', 'moe', 'x' * 700, 'g\n\x1b[31m"')


def frames(name, line):
    return [{'name': name, 'filename': '/job/train.py', 'line': line}, {'name': 'main', 'filename': '/job/train.py', 'line': 3}]


class Job:
    """`used`, `parts`: by sample, what the truth is; a part is (kind, name)."""

    def __init__(self, seed, cause=None, total=None, samples=None, pid=4711, start_us=START_US):
        self.random = random.Random(seed)
        r = self.random
        self.seed, self.pid, self.start_us = seed, pid, start_us
        self.cause = cause or CAUSES[seed % len(CAUSES)]
        self.total = total or r.choice((24, 40, 80, 94, 141)) * GIB - r.randrange(0, 900) * MIB
        self.count = samples or r.randrange(8, 60)
        self.period_us = r.choice((100_000, 500_000, 2_000_000))
        self.times = sorted(r.sample(range(1, self.count * self.period_us), self.count))
        self.times = [start_us + time for time in self.times]
        self.draw()
        self.lay_trace()

    def size(self, low, high):
        """A size in bytes that is no whole number of anything, mostly."""
        return self.random.choice((self.random.randrange(int(low), int(high) + 1), self.random.randrange(int(low) // MIB, int(high) // MIB + 1) * MIB))

    def draw(self):
        r, unit = self.random, self.total // 64
        self.driver = r.choice((None, self.size(0, 700 * MIB)))
        self.context = r.choice((None, self.size(200 * MIB, 900 * MIB)))
        self.libraries = {name: self.size(0, 300 * MIB) for name in r.sample(('cublas', 'cudnn', 'cufft', 'triton'), r.randrange(4))}
        self.since = {name: r.choice((0, 0, r.randrange(self.count))) for name in self.libraries}  # the sample from which it counts
        names = r.sample(GROUPS, r.randrange(len(GROUPS)))
        small = max(unit // 8 // max(len(names), 1), 2 * MIB)
        self.groups = {name: [self.size(MIB, small)] * self.count for name in names}
        self.others = {4800 + i: [self.size(MIB, unit // 16)] * self.count for i in range(r.randrange(3))}
        self.rest = [self.size(0, unit // 4)] * self.count
        self.knows_process = r.random() < 0.5
        self.here = self.size(0, 200 * MIB) if self.knows_process else 0
        self.culprit = None
        self.plant(unit)

    def plant(self, unit):
        """What fills the card."""
        r, n = self.random, self.count
        large = self.size(8 * unit, 12 * unit)
        if self.cause == 'process':
            self.others = {pid: [size[0] // 8] * n for pid, size in self.others.items()}
            self.others[9001] = [large] * n
            self.culprit = 'process', 9001
        elif self.cause == 'communicator':
            self.groups['planted'] = [large] * n
            self.culprit = 'communicator', 'planted'
        elif self.cause == 'growth':
            rising = [large * i // n for i in range(1, n + 1)]
            where = r.choice(('communicator', 'rest'))
            if where == 'communicator':
                self.groups['planted'] = rising
                self.culprit = 'communicator', 'planted'
            else:
                self.rest = [first + more for first, more in zip(self.rest, rising)]
                self.culprit = ('unaccounted', '')
        elif self.cause == 'unaccounted':
            self.rest = [first + large for first in self.rest]
            self.culprit = 'unaccounted', ''
        elif self.cause == 'context':
            self.context = self.size(8 * unit, 10 * unit)
            self.culprit = 'context', ''

    def loaded(self, i):
        return {name: size for name, size in self.libraries.items() if i >= self.since[name]}

    def outside(self, i):
        return ((self.driver or 0) + (self.context or 0) + sum(self.loaded(i).values()) + sum(row[i] for row in self.groups.values()) +
                sum(row[i] for row in self.others.values()) + self.rest[i] + self.here)

    def lay_trace(self):
        """Segments that are allocated as the run goes on; each is one block, so that PyTorch caches next to nothing."""
        r, n = self.random, self.count
        self.fails = self.cause != 'none'
        room = self.total - max(self.outside(i) for i in range(n))
        spare = self.size(20 * MIB, 40 * MIB) if self.fails else room // 4
        target = (room - spare) // (2 * MIB) * 2 * MIB
        pieces = r.randrange(4, 12)
        each = target // pieces // (2 * MIB) * 2 * MIB
        self.events, self.blocks, self.reserved_at = [], [], [0] * n
        address, reserved = 0x7f0000000000, 0
        for k in range(pieces):
            size = each if k < pieces - 1 else target - each * (pieces - 1)
            before = r.randrange(0, n - 1) if k else 0
            time_us = self.times[before] - 1 if k else self.start_us
            self.blocks.append((time_us, address, size, k))
            address += size + (64 << 20)
        self.blocks.sort()
        for time_us, at, size, k in self.blocks:
            stack = frames('forward' if k % 2 else 'build', 20 + k)
            self.events.append({'action': 'segment_alloc', 'addr': at, 'size': size, 'stream': 0, 'time_us': time_us, 'frames': stack})
            self.events.append({'action': 'alloc', 'addr': at, 'size': size, 'stream': 0, 'time_us': time_us, 'frames': stack})
        for i, time_us in enumerate(self.times):
            self.reserved_at[i] = sum(size for born, _, size, _ in self.blocks if born <= time_us)
        self.unmapped = [None] * n
        self.asks = 64 * MIB
        if self.fails:
            self.times[-1] = max(self.times[-1], self.blocks[-1][0] + 1)
            self.reserved_at[-1] = reserved = target
            self.free = self.total - self.outside(n - 1) - target
            self.events.append({'action': 'oom', 'addr': self.free, 'size': self.asks, 'stream': 0, 'time_us': self.times[-1] + 1,
                                'device_free': self.free, 'frames': frames('attention', 77)})
        self.used = [self.outside(i) + self.reserved_at[i] for i in range(n)]

    # ---- the truth ----

    def parts(self, i):
        """{(kind, name): bytes} of what is not 0, at sample i."""
        out = {('allocated', ''): self.reserved_at[i], ('driver', ''): self.driver or 0, ('context', ''): self.context or 0,
               ('unaccounted', ''): self.rest[i], ('unaccounted_here', ''): self.here}
        out.update({('library', name): size for name, size in self.loaded(i).items()})
        out.update({('communicator', shown(name)): row[i] for name, row in self.groups.items()})
        out.update({('process', pid): row[i] for pid, row in self.others.items()})
        return {key: size for key, size in out.items() if size}

    def peak(self):
        return max(range(self.count), key=lambda i: (self.used[i], -i))

    # ---- files ----

    def snapshot(self):
        segments = [{'device': 0, 'address': at, 'total_size': size, 'allocated_size': size, 'active_size': size, 'requested_size': size,
                     'stream': 0, 'segment_type': 'large', 'segment_pool_id': (0, 0), 'is_expandable': False, 'frames': [],
                     'blocks': [{'address': at, 'size': size, 'requested_size': size, 'state': 'active_allocated',
                                 'frames': frames('forward' if k % 2 else 'build', 20 + k)}]}
                    for _, at, size, k in sorted(self.blocks, key=lambda row: row[1])]
        return {'segments': segments, 'device_traces': [self.events], 'allocator_settings': {}, 'external_annotations': []}

    def card(self):
        n = self.count
        process = [self.reserved_at[i] + (self.context or 0) + sum(self.loaded(i).values()) + sum(row[i] for row in self.groups.values()) + self.here
                   for i in range(n)]
        marks = ['snapshot']
        return {
            'period_ms': self.period_us // 1000, 'samples_taken': n, 'samples_kept': n, 'sampling_us': 40 * n, 'step_us': None,
            'nvml': '12.570.86' if self.knows_process or self.others else None, 'nvml_error': None,
            'devices': [{
                'device': 0, 'name': 'A card', 'uuid': 'GPU-1', 'total_bytes': self.total, 'driver_bytes': self.driver,
                'context_bytes': self.context, 'context_from': None if self.context is None else 'nvml',
                'libraries': [{'name': name, 'bytes': size, 'from': 'first_use', **({'since_us': self.times[self.since[name]]} if self.since[name] else {})}
                              for name, size in self.libraries.items()],
                'communicators': [{'name': name, 'backend': 'nccl', 'ranks': 8, 'from': 'stats', 'suspended': False} for name in self.groups],
                'processes': [{'pid': pid, 'name': 'python3' if pid % 2 else None} for pid in self.others],
                'marks': marks,
                'samples': {
                    'time_us': self.times, 'mark': [None] * (n - 1) + [0], 'total_used_bytes': self.used,
                    'allocated_bytes': self.reserved_at, 'reserved_bytes': self.reserved_at, 'private_pool_bytes': None,
                    'unmapped_bytes': self.unmapped, 'process_bytes': process if self.knows_process else [None] * n,
                    'communicator_bytes': list(self.groups.values()), 'other_process_bytes': list(self.others.values())}}],
            'host': {'pinned_bytes': 0, 'limit_bytes': None, 'limit_from': None,
                     'samples': {'time_us': self.times, 'rss_bytes': [GIB] * n, 'cgroup_bytes': [None] * n, 'pinned_bytes': [0] * n}}}

    def sidecar(self):
        free = self.total - self.used[-1]
        return {'schema': 'tessera/capture/1', 'time_us': self.times[-1], 'process': {'pid': self.pid, 'host': 'node1'},
                'devices': [{'device': 0, 'total_bytes': self.total, 'free_bytes': free,
                             'outside_pytorch_bytes': self.total - free - self.reserved_at[-1]}],
                'card': self.card()}

    def write(self, folder, name='job'):
        path = pathlib.Path(folder) / f'{name}.pickle'
        path.write_bytes(pickle.dumps(self.snapshot(), protocol=4))
        path.with_suffix('.json').write_text(json.dumps(self.sidecar()))
        return path


def shown(name):
    """A name as an answer has it: long ones are cut."""
    return name[:512]


if __name__ == '__main__':
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('folder')
    parser.add_argument('seed', type=int)
    given = parser.parse_args()
    made = Job(given.seed)
    print(made.write(given.folder), made.cause, made.culprit)
