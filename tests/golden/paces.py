"""Random fleets that work in step, with the times that such a job leaves: every rank waits for the slowest, at one moment of each step, and
each machine's clock is off by something. A rank may be slow, or may wait for its data; nothing here knows how tessera compares times."""
import itertools
import random
import statistics

from fleets import Fleet

FAULTS = ('slow', 'late')


class Pace(Fleet):
    """What a seed decides besides the fleet: where ranks wait, how unlike they are, whose clock is off, and who is slow."""

    def __init__(self, seed, fault=None):
        super().__init__(seed)
        own = self.own = random.Random(f'{seed} pace')
        self.sizes = {'pp': own.choice((1, 2)), 'dp': own.choice((8, 16)), 'ep': 1, 'tp': own.choice((1, 2))}
        self.count = self.sizes['pp'] * self.sizes['dp'] * self.sizes['tp']
        self.spread = self.routing = 0.0
        self.delay = fault
        self.slow = own.randrange(self.count)
        self.work_us = own.choice((40_000, 300_000, 2_000_000))
        self.after_us = round(self.work_us * own.choice((0.05, 0.3)))  # of the optimizer, after the wait
        self.noise = own.choice((0.01, 0.05, 0.15))  # from step to step
        self.speeds = [1 + own.uniform(-0.02, 0.02) for _ in range(self.count)]
        self.factor = own.uniform(1.3, 2.0) if fault == 'slow' else 1.0
        self.wait_us = round(self.work_us * own.uniform(0.25, 0.8)) if fault == 'late' else 0
        off = own.choice((0, 2_000, self.work_us * 5, 3_600_000_000))
        self.clocks = [own.randint(-off, off) for _ in range(self.count // 8 + 1)]
        self.steps = 14
        self.cut = [own.choice((0, 0, 0, 1, 2)) for _ in range(self.count)]  # steps that a rank's dump lacks
        self.marks = []
        self.begins = self.walls()
        self.dying = own.sample(range(self.count), 3) if own.random() < 0.5 else []

    def steps_of(self, rank):
        return self.steps - self.cut[rank]

    def work(self, rank, step):
        """How long a rank waits for its data in a step, and how long it works."""
        noise = random.Random(f'{self.seed} {rank} {step} noise').uniform(0, self.noise)
        is_slow = self.delay and rank == self.slow
        factor = self.factor if is_slow else 1.0
        return (self.wait_us if is_slow else 0), self.work_us * self.speeds[rank] * factor * (1 + noise)

    def walls(self):
        """When each step begins, and when all go on in it."""
        at, out = 1764180000000000, []
        for step in range(self.steps + 1):
            own = random.Random(f'{self.seed} {step} wall')
            until = at + max(sum(self.work(rank, step)) for rank in range(self.count)) * own.uniform(1, 1.08)
            out.append((at, until))
            at = until + self.after_us * own.uniform(0.9, 1.1)
        return out

    def clock(self, rank):
        return self.clocks[rank // 8]

    def clocks_ahead(self):
        """By rank, to the median one."""
        middle = statistics.median_low(self.clock(rank) for rank in range(self.count))
        return [self.clock(rank) - middle for rank in range(self.count)]

    def step(self, device, at, batches, parameters, fault, leaked, step, rank):
        first = len(device.events)
        out = super().step(device, at, batches, parameters, fault, leaked, step, rank)
        self.marks.append((first, len(device.events) - 3))  # the optimizer's own allocation, and its two frees
        return out

    def snapshot(self, rank):
        self.marks = []
        snapshot, peak = super().snapshot(rank)
        events = snapshot['device_traces'][rank % 8]
        self.set_times(rank, events[1:])
        if rank in self.dying:
            when = self.begins[-1][0] + (self.begins[1][0] - self.begins[0][0]) * 3 * self.dying.index(rank)
            events.append({'action': 'oom', 'addr': 1 << 20, 'size': 1 << 30, 'stream': 0, 'time_us': round(when + self.clock(rank)),
                           'frames': []})
        events[0]['time_us'] = events[1]['time_us'] - 1
        return snapshot, peak

    def set_times(self, rank, events):
        own, clock = random.Random(f'{self.seed} {rank} times'), self.clock(rank)
        marks = [(first, wait, (self.marks + [(len(events), 0)])[i + 1][0]) for i, (first, wait) in enumerate(self.marks)]
        for event in events[:marks[0][0]]:
            event['time_us'] = self.begins[0][0] - 1000 + clock
        for step, (first, wait, end) in enumerate(marks):
            begin, until = self.begins[step]
            delay, work = self.work(rank, step)
            for begun, length, low, high in ((begin + delay, work, first, wait), (until, self.after_us * 0.8, wait, end)):
                # what lies between two events differs, but is nearly the same for all ranks and in all steps
                common = random.Random(f'{self.seed} {low - first}')
                gaps = [common.uniform(0.2, 1.8) * own.uniform(0.9, 1.1) for _ in range(low, high)]
                moments = list(itertools.accumulate(gaps))
                for event, moment in zip(events[low:high], [0, *moments]):
                    event['time_us'] = round(begun + length * moment / moments[-1] + clock + own.uniform(0, 200))


def random_pace(seed, with_fault=True):
    return Pace(seed, random.Random(f'{seed} fault').choice(FAULTS) if with_fault else None)
