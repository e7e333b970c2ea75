"""Traces as programs make them: a model of layers that is called, trained, and that runs out of memory."""
import pickle

TORCH = '/venv/lib/python3.12/site-packages/torch/'
CALL = ('_call_impl', TORCH + 'nn/modules/module.py', 1750)
BASE, SEGMENT = 0x7f0000000000, 1 << 30


def at(line, name='run', file='/work/main.py'):
    return (name, file, line)


MAIN = [at(90, '<module>')]
LAYERS = 26
# How a model runs its layers: the frames of the line in its forward that calls each, and the layer's own.
ONE_LINE = [[CALL, at(12, 'forward', '/work/model.py')]]
LIBRARY = [[CALL, at(12, 'forward', '/work/model.py'), CALL, ('forward', TORCH + 'nn/modules/container.py', 250)]]
SEQUENTIAL = [[CALL, ('forward', TORCH + 'nn/modules/container.py', 250)]]
TWO_LINES = [[CALL, at(12, 'forward', '/work/model.py')], [CALL, at(13, 'forward', '/work/model.py')]]


class Run:
    """A trace as its program runs: stacks are lists of frames, outermost first."""

    def __init__(self, unit=64 << 10):
        """`unit`: bytes of an activation."""
        self.trace, self.notes, self.next, self.live, self.unit = [], [], BASE, {}, unit
        self.spare_bytes = 0  # of a segment that nothing uses

    def event(self, action, address, size, stack):
        frames = [{'name': name, 'filename': file, 'line': line} for name, file, line in reversed(stack)]
        self.trace.append({'action': action, 'addr': address, 'size': size, 'stream': 0,
                           'time_us': 1000 + 10 * len(self.trace), 'frames': frames})

    def note(self, name, stage):
        self.notes.append({'name': name, 'stage': stage, 'device': 0,
                           'time_us': 1000 + 10 * len(self.trace) - 5})

    def take(self, stack, size=None):
        address, size = self.next, size or self.unit
        self.next += size
        self.live[address] = size
        self.event('alloc', address, size, stack)
        return address

    def give(self, address):
        for action in ('free_requested', 'free_completed'):
            self.event(action, address, self.live[address], [])
        del self.live[address]

    def out_of_memory(self, stack):
        self.event('oom', 4096, 8 << 30, stack)

    def layer(self, stack):
        kept = []
        for line in (30, 31, 32):
            temporary = self.take([*stack, CALL, at(line, 'forward', '/work/layer.py')], 2 * self.unit)
            kept.append(self.take([*stack, CALL, at(line, 'forward', '/work/layer.py')]))
            self.give(temporary)
        return kept

    def forward(self, caller, layers=LAYERS, style=ONE_LINE, ends=True, keeps=False, dies=False):
        """One call of a model. `ends`: it has an embedding and a head; `dies`: within its layers."""
        model, made = [*caller, *style[0][:1]], []
        if ends:
            made.append(self.take([*model, at(10, 'forward', '/work/model.py')]))
        for _ in range(layers):
            for line in style:
                new = self.layer([*caller, *line])
                if not keeps:
                    for address in made + new[:-1]:
                        self.give(address)
                    made = []
                    new = new[-1:]
                made += new
        if dies:
            self.out_of_memory([*caller, *style[0], CALL, at(31, 'forward', '/work/layer.py')])
            return made
        if ends:
            made.append(self.take([*model, at(20, 'forward', '/work/model.py')]))
        return made

    def backward(self, caller, made, dies=False):
        engine = [*caller, ('backward', TORCH + '_tensor.py', 522),
                  ('torch::autograd::Engine::evaluate_function(torch::autograd::Node*)', '??', 0)]
        for i, address in enumerate(reversed(made)):
            if dies and i > len(made) // 2:
                self.out_of_memory(engine)
                return
            self.give(self.take([*engine, ('at::_ops::mm::call', '??', 0)]))
            self.give(address)

    def optimize(self, caller, count=6):
        for _ in range(count):
            self.give(self.take([*caller, ('step', TORCH + 'optim/adamw.py', 220),
                                 ('_single_tensor_adamw', TORCH + 'optim/adamw.py', 300)]))

    def train(self, line, **words):
        self.backward([*MAIN, at(line + 1)], self.forward([*MAIN, at(line)], keeps=True, **words))
        self.optimize([*MAIN, at(line + 2)])

    def write(self, path):
        path.write_bytes(pickle.dumps(self.snapshot(), protocol=4))

    def snapshot(self, device=0):
        blocks, end = [], BASE
        for address, size in sorted(self.live.items()):
            if address > end:
                blocks.append((end, address - end, 'inactive'))
            blocks.append((address, size, 'active_allocated'))
            end = address + size
        total = SEGMENT * self.unit // (64 << 10)
        blocks.append((end, BASE + total - end, 'inactive'))
        used = sum(self.live.values())
        segment = {'device': device, 'address': BASE, 'total_size': total, 'allocated_size': used,
                   'active_size': used, 'requested_size': used, 'stream': 0, 'segment_type': 'large',
                   'is_expandable': False, 'frames': [],
                   'blocks': [{'address': address, 'size': size, 'state': state, 'frames': [],
                               'requested_size': size if state != 'inactive' else 0}
                              for address, size, state in blocks]}
        segments = [segment]
        if self.spare_bytes:
            segments.append({**segment, 'address': BASE + 2 * total, 'total_size': self.spare_bytes,
                             'allocated_size': 0, 'active_size': 0, 'requested_size': 0,
                             'blocks': [{'address': BASE + 2 * total, 'size': self.spare_bytes,
                                         'state': 'inactive', 'frames': [], 'requested_size': 0}]})
        return {'segments': segments, 'device_traces': [[]] * device + [self.trace],
                'external_annotations': self.notes}


class Fleet:
    """One file of several devices, a run each."""

    def __init__(self, *runs):
        self.runs = runs

    def write(self, path):
        parts = [run.snapshot(device) for device, run in enumerate(self.runs)]
        snapshot = {'segments': [segment for part in parts for segment in part['segments']],
                    'device_traces': [run.trace for run in self.runs], 'external_annotations': []}
        path.write_bytes(pickle.dumps(snapshot, protocol=4))


class Caching(Run):
    """A trace as PyTorch's allocator writes it for requests of 10 MiB and more: each that no cached block serves gets a
    segment of its own, and the smallest block that is large enough is cut."""

    def __init__(self, unit=2 << 20, stream=0):
        super().__init__(unit)
        self.segments, self.free, self.blocks, self.stream = {}, {}, {}, stream

    def event(self, action, address, size, stack):
        super().event(action, address, size, stack)
        self.trace[-1]['stream'] = self.stream

    def take(self, stack, size=None):
        size = size or self.unit
        fitting = [(free, address) for address, free in self.free.items() if free >= size]
        if not fitting:
            address, total = self.next, -(-size // (2 << 20)) * (2 << 20)
            self.next += total + (1 << 30)
            self.segments[address] = total
            self.event('segment_alloc', address, total, stack)
            fitting = [(total, address)]
        free, address = min(fitting)
        self.free.pop(address, None)
        cut = free - size > 1 << 20  # a smaller rest stays with the block
        if cut:
            self.free[address + size] = free - size
        self.live[address], self.blocks[address] = size, size if cut else free
        self.event('alloc', address, size, stack)
        return address

    def give(self, address):
        super().give(address)
        self.free[address] = self.blocks.pop(address)
        for left in sorted(self.free):
            while left in self.free and left + self.free[left] in self.free and left + self.free[left] not in self.segments:
                self.free[left] += self.free.pop(left + self.free[left])

    def snapshot(self, device=0):
        segments = []
        for base, total in self.segments.items():
            blocks = [(address, size, state) for state, part in (('active_allocated', self.blocks), ('inactive', self.free))
                      for address, size in part.items() if base <= address < base + total]
            used = sum(size for _, size, state in blocks if state != 'inactive')
            requested = sum(self.live[address] for address, _, state in blocks if state != 'inactive')
            segments.append({'device': device, 'address': base, 'total_size': total, 'allocated_size': used, 'active_size': used,
                             'requested_size': requested, 'stream': self.stream, 'segment_type': 'large', 'is_expandable': False,
                             'frames': [], 'blocks': [{'address': address, 'size': size, 'state': state, 'frames': [],
                                                       'requested_size': self.live.get(address, 0)}
                                                      for address, size, state in sorted(blocks)]})
        return {'segments': segments, 'device_traces': [[]] * device + [self.trace], 'external_annotations': self.notes}
