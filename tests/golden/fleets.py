"""fleets.py: snapshots of a job of many ranks, with a fault whose rank, cause and line are known because it was planted.

    python3 tests/golden/fleets.py FOLDER SEED [--ranks N] [--fault CAUSE]

A mesh of pipeline, data, expert and tensor parallel ranks trains a transformer: each rank allocates parameters, and in each step, for each
micro-batch, activations whose sizes follow the lengths of its sequences and the load of its experts, which vary at random. Stages keep as
many micro-batches as one-forward-one-backward does. Nothing here knows how tessera compares ranks.
"""
import argparse
import itertools
import pathlib
import pickle
import random

SITE = '/usr/lib/python3/site-packages/'
STEPS, MICRO = 8, 4
CAUSES = ('leak', 'optimizer_state', 'extra_work', 'other_device', 'expert_load', 'in_flight', 'longer_sequences', 'parameters')
# Who names files so, and how.
NAMES = (
    lambda rank, step: f'step_{step:012d}/{rank:06d}_step_{step}.pickle',
    lambda rank, step: f'iteration_{step}/rank{rank}_memory_snapshot.pickle',
    lambda rank, step: f'snapshot_{rank}.pickle',
    lambda rank, step: f'20261126-1812/actor_rank{rank}_pid{4000 + rank}.pickle',
    lambda rank, step: f'memory_snapshot_time1764180000.{rank}_rank{rank}_actor.pickle',
    lambda rank, step: f'profile_rank{rank}/snapshot.pickle',
    lambda rank, step: f'rank{rank}.{step}.memory_snapshot.pickle',
    lambda rank, step: f'mem_oom_rank-{rank}.pickle',
)


def frame(name, file, line):
    return {'name': name, 'filename': file, 'line': line}


MAIN = frame('main', '/job/train.py', 40)
MODULE = frame('_call_impl', SITE + 'torch/nn/modules/module.py', 1762)
FORWARD = [frame('forward_step', '/job/train.py', 88), MAIN]
BACKWARD = [frame('_engine_run_backward', SITE + 'torch/autograd/graph.py', 825),
            frame('backward', SITE + 'torch/autograd/__init__.py', 347),
            frame('backward', SITE + 'torch/_tensor.py', 581), frame('backward_step', '/job/train.py', 95), MAIN]
OPTIMIZER = [frame('_init_group', SITE + 'torch/optim/adamw.py', 166), frame('step', SITE + 'torch/optim/adamw.py', 215),
             frame('train_step', '/job/train.py', 101), MAIN]
BUILD = [frame('__init__', SITE + 'torch/nn/modules/linear.py', 108), frame('__init__', '/job/model.py', 20),
         frame('build', '/job/train.py', 30), MAIN]


def stack(*frames):
    return list(frames)


FORWARDS = {name: stack(frame('forward', f'/job/{file}.py', line), MODULE, frame('forward', '/job/model.py', 61), MODULE, *FORWARD)
            for name, file, line in (('norm', 'model', 33), ('qkv', 'attention', 44), ('attention', 'attention', 58),
                                     ('output', 'attention', 63), ('expert_up', 'experts', 71), ('expert_act', 'experts', 73),
                                     ('expert_down', 'experts', 75), ('embedding', 'model', 52), ('logits', 'model', 70), ('loss', 'loss', 12))}


class Device:
    """A trace, and an allocator that reuses the last free block of the same size."""

    def __init__(self, number, start_us):
        self.base, self.top, self.events, self.live, self.free = (1 + number) << 40, 0, [], {}, {}
        self.time_us = start_us
        self.bytes = self.peak = 0

    def alloc(self, size, frames):
        rounded = -(-size // 512) * 512
        spare = self.free.get(rounded)
        if spare:
            address = spare.pop()
        else:
            address = self.base + self.top
            self.top += rounded
        self.time_us += 3
        self.events.append({'action': 'alloc', 'addr': address, 'size': size, 'stream': 0, 'time_us': self.time_us, 'frames': frames})
        self.live[address] = (size, rounded, frames)
        self.bytes += rounded
        self.peak = max(self.peak, self.bytes)
        return address

    def drop(self, address):
        size, rounded, _ = self.live.pop(address)
        self.time_us += 2
        self.events += [{'action': action, 'addr': address, 'size': size, 'stream': 0, 'time_us': self.time_us, 'frames': []}
                        for action in ('free_requested', 'free_completed')]
        self.free.setdefault(rounded, []).append(address)
        self.bytes -= rounded

    def fail(self, size, frames):
        self.events.append({'action': 'oom', 'addr': 1 << 20, 'size': size, 'stream': 0, 'time_us': self.time_us + 1, 'frames': frames})

    def segments(self):
        if not self.top:
            return []
        blocks, at = [], self.base
        for address in sorted(self.live):
            size, rounded, frames = self.live[address]
            if address > at:
                blocks.append({'address': at, 'size': address - at, 'requested_size': 0, 'state': 'inactive', 'frames': []})
            blocks.append({'address': address, 'size': rounded, 'requested_size': size, 'state': 'active_allocated', 'frames': frames})
            at = address + rounded
        total = -(-self.top // (2 << 20)) * (2 << 20)
        if at < self.base + total:
            blocks.append({'address': at, 'size': self.base + total - at, 'requested_size': 0, 'state': 'inactive', 'frames': []})
        return [{'device': 0, 'address': self.base, 'total_size': total, 'allocated_size': self.bytes, 'active_size': self.bytes,
                 'requested_size': sum(size for size, _, _ in self.live.values()), 'stream': 0, 'segment_type': 'large',
                 'segment_pool_id': (0, 0), 'is_expandable': False, 'frames': [], 'blocks': blocks}]

    def whole_trace(self):
        total = -(-self.top // (2 << 20)) * (2 << 20)
        first = {'action': 'segment_alloc', 'addr': self.base, 'size': total, 'stream': 0,
                 'time_us': self.events[0]['time_us'] - 1 if self.events else 0, 'frames': []}
        return [first, *self.events] if self.events else []


class Fleet:
    """What a seed decides: the mesh, the model, how much things vary, and the fault."""

    def __init__(self, seed, fault=None, ranks=None):
        self.random = random.Random(seed)
        pick = self.random.choice
        self.sizes = {'pp': pick((1, 2, 4)), 'dp': pick((4, 8)), 'ep': pick((1, 2)), 'tp': pick((1, 2))}
        if ranks:
            self.sizes = {'pp': 4, 'dp': max(ranks // 16, 1), 'ep': 2, 'tp': 2}
        self.width, self.layers = pick((256, 512)), pick((2, 3))
        self.vocabulary, self.length = 4096, pick((128, 256))
        self.spread = pick((0.0, 0.1, 0.4))  # of sequence lengths
        self.routing = pick((0.0, 0.05, 0.2))  # of experts' loads
        self.seed, self.fault = seed, fault
        self.count = self.sizes['pp'] * self.sizes['dp'] * self.sizes['ep'] * self.sizes['tp']
        self.rank = self.random.randrange(self.count)
        self.is_dead = bool(fault) and self.random.random() < 0.3
        if fault == 'extra_work':
            self.rank = 0
        if fault == 'other_device' and self.rank % 8 == 0:
            self.rank = min(self.rank + 1, self.count - 1)
        self.name = self.random.choice(NAMES[:-1])
        self.site = self.random.choice(('/job/hooks.py', '/job/metrics.py', '/job/trainer.py'))

    def place(self, rank):
        out = {}
        for axis in ('tp', 'ep', 'dp', 'pp'):
            out[axis] = rank % self.sizes[axis]
            rank //= self.sizes[axis]
        return out

    def snapshot(self, rank):
        """The snapshot of a rank, and the peak of its device."""
        at, fault = self.place(rank), self.fault if rank == self.rank else None
        device = Device(rank % 8, 1764180000000000 + self.random.randrange(-3000, 3000))
        parameters = self.build(device, at, fault)
        leaked, gradients = [], []
        steps = self.steps_of(rank)
        for step in range(steps):
            batches = [self.lengths(at, step, micro, fault) for micro in range(MICRO)]
            gradients = self.step(device, at, batches, parameters, fault, leaked, step, rank)
            if step == 0:
                self.make_state(device, parameters, fault)
            if step + 1 < steps:
                for address in gradients:
                    device.drop(address)
        if fault and self.is_dead:
            device.fail(1 << 30, FORWARDS['expert_up'])
        traces, segments = [[] for _ in range(8)], []
        traces[rank % 8] = device.whole_trace()
        segments += [dict(segment, device=rank % 8) for segment in device.segments()]
        if fault == 'other_device':
            other = Device(0, device.time_us)
            other.alloc(device.peak // 4, stack(frame('load_checkpoint', self.site, 17), MAIN))
            other.alloc(1 << 20, stack(frame('load_checkpoint', self.site, 18), MAIN))
            traces[0], segments = other.whole_trace(), segments + [dict(segment, device=0) for segment in other.segments()]
        return {'segments': segments, 'device_traces': traces, 'allocator_settings': {}}, device.peak

    def steps_of(self, _rank):
        return STEPS

    def lengths(self, at, step, micro, fault):
        """Tokens of a micro-batch, and of an expert: equal for the tensor parallel ranks of a data parallel one."""
        own = random.Random(f'{self.seed} {at["dp"]} {step} {micro}')
        length = round(self.length * (1 - self.spread * own.random()))
        load = random.Random(f'{self.seed} {at} {step} {micro} load')
        tokens = round(length * (1 + self.routing * (load.random() * 2 - 1)))
        if fault == 'longer_sequences':
            length = tokens = round(self.length * 2.5)
        if fault == 'expert_load':
            tokens = round(self.length * 4)
        return length, tokens

    def build(self, device, at, fault):
        split, width = self.sizes['tp'], self.width
        sizes = []
        for _ in range(self.layers):
            sizes += [2 * width, 2 * width * width * 4 // split, 2 * width * width // split, 2 * width * width * 4 // split,
                      2 * width * width * 4 // split]
        if at['pp'] == 0:
            sizes.append(2 * self.vocabulary * width // split)
        if at['pp'] == self.sizes['pp'] - 1:
            sizes.append(2 * self.vocabulary * width // split)
        made = [(size, device.alloc(size, BUILD)) for size in sizes]
        if fault == 'parameters':
            for size in sizes:
                device.alloc(size, stack(BUILD[0], frame('__init__', '/job/model.py', 20), frame('keep_copy', self.site, 23), MAIN))
        return made

    def make_state(self, device, parameters, fault):
        for size, _ in parameters:
            for _ in range(2):
                device.alloc(2 * size, OPTIMIZER)
        if fault == 'optimizer_state':
            for size, _ in parameters:
                for _ in range(2):
                    device.alloc(2 * size, stack(*OPTIMIZER[:2], frame('restart', self.site, 77), MAIN))

    def forward(self, device, at, length, tokens):
        width, split, kept = self.width, self.sizes['tp'], []
        if at['pp'] == 0:
            kept.append(device.alloc(2 * length * width, FORWARDS['embedding']))
        for _ in range(self.layers):
            kept.append(device.alloc(2 * length * width, FORWARDS['norm']))
            kept.append(device.alloc(6 * length * width // split, FORWARDS['qkv']))
            kept.append(device.alloc(2 * length * width // split, FORWARDS['attention']))
            kept.append(device.alloc(2 * length * width, FORWARDS['output']))
            kept.append(device.alloc(8 * tokens * width // split, FORWARDS['expert_up']))
            kept.append(device.alloc(8 * tokens * width // split, FORWARDS['expert_act']))
            kept.append(device.alloc(2 * tokens * width, FORWARDS['expert_down']))
        if at['pp'] == self.sizes['pp'] - 1:
            kept.append(device.alloc(2 * length * self.vocabulary // split, FORWARDS['logits']))
            kept.append(device.alloc(4 * length * self.vocabulary // split, FORWARDS['loss']))
        return kept

    def backward(self, device, kept, length):
        other = device.alloc(2 * length * self.width, BACKWARD)
        for address in reversed(kept):
            device.drop(address)
        device.drop(other)

    def step(self, device, at, batches, parameters, fault, leaked, step, rank):
        flying = self.sizes['pp'] - at['pp'] + (2 if fault == 'in_flight' else 0)
        waiting, gradients = [], []
        if fault == 'leak':
            unit = max(sum(size for size, _ in parameters) // 3, 65536)
            leaked.append(device.alloc(unit, stack(frame('record', self.site, 41), *FORWARD)))
        if fault == 'extra_work' and step >= 2:
            unit = sum(size for size, _ in parameters)
            leaked.append(device.alloc(unit * 2, stack(frame('gather_checkpoint', self.site, 55), MAIN)))
        for length, tokens in batches:
            if len(waiting) == flying:
                self.backward(device, *waiting.pop(0))
                gradients = gradients or [device.alloc(size, BACKWARD) for size, _ in parameters]
            waiting.append((self.forward(device, at, length, tokens), length))
        while waiting:
            self.backward(device, *waiting.pop(0))
            gradients = gradients or [device.alloc(size, BACKWARD) for size, _ in parameters]
        device.drop(device.alloc(512, stack(frame('_multi_tensor_adamw', SITE + 'torch/optim/adamw.py', 540), *OPTIMIZER[1:])))
        if fault == 'extra_work' and leaked:
            device.drop(leaked.pop())
        return gradients

    def line(self):
        """Where the fault allocates: file and line."""
        return {'leak': (self.site, 41), 'optimizer_state': (self.site, 77), 'extra_work': (self.site, 55), 'other_device': (self.site, 17),
                'parameters': (self.site, 23)}.get(self.fault)

    def write(self, folder, ranks=None):
        folder = pathlib.Path(folder)
        for rank in ranks if ranks is not None else range(self.count):
            path = folder / self.name(rank, 100)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(pickle.dumps(self.snapshot(rank)[0], protocol=4))
        return folder

    @property
    def mesh(self):
        return ','.join(f'{axis}={self.sizes[axis]}' for axis in ('pp', 'dp', 'ep', 'tp'))


def random_fleet(seed, with_fault=True):
    own = random.Random(seed)
    for turn in itertools.count():
        fault = own.choice(CAUSES) if with_fault else None
        fleet = Fleet(seed * 1000 + turn, fault)
        # a fault must be possible, and its equals at least four
        is_possible = fault != 'in_flight' or fleet.place(fleet.rank)['pp'] + 2 < fleet.sizes['pp'] + 1
        if fault == 'in_flight' and fleet.sizes['pp'] - fleet.place(fleet.rank)['pp'] >= MICRO:
            is_possible = False
        if is_possible:
            return fleet
    raise AssertionError


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('folder')
    parser.add_argument('seed', type=int)
    parser.add_argument('--ranks', type=int)
    parser.add_argument('--fault', choices=CAUSES)
    given = parser.parse_args()
    fleet = Fleet(given.seed, given.fault, given.ranks)
    fleet.write(given.folder)
    print(f'{fleet.count} ranks, {fleet.mesh}; rank {fleet.rank if given.fault else "-"}: {given.fault} at {fleet.line()}')


if __name__ == '__main__':
    main()
