#!/usr/bin/env python3
"""Makes the small snapshots that the cases of tests/cli read.

A snapshot here is what PyTorch would have written for a tiny training run: a model of the caching
allocator (Device) hands out blocks, splits and merges them, and records the events, so that traces
and final segments agree with each other in the way a real file's do. Nothing is random and nothing
depends on the machine: the same bytes come out everywhere (see settle), since reports print the
size of the file.
"""
import gzip
import json
import os
import pickle
import sys
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.append(str(Path(__file__).resolve().parent.parent / 'golden'))
import allocations  # noqa: E402
from pooled import Allocator, frames_of, snapshot_of  # noqa: E402
from runs import CALL, MAIN, TORCH, at  # noqa: E402

MIB = 1 << 20
START_US = 1_700_000_000_000_000


# Programs in place of Python, for commands that trace (cmd/core/tracer.c): they get a request on descriptor 10 and answer on 11.
PROGRAMS = {
    'no-torch': 'cat /dev/fd/10 > /dev/null; echo "lacks torch transformers" > /dev/fd/11',
    'traces': 'head -n 1 /dev/fd/10 > request.json\n'
              '(echo "graph traced a step of it"; cat step.graph) > /dev/fd/11',
    'refuses': 'cat /dev/fd/10 > /dev/null; echo "refused --seq 9: the model has 8 positions" > /dev/fd/11',
    'dies': 'exit 7',
    'hangs': 'exec sleep 600',
}


def programs(folder):
    for name, text in PROGRAMS.items():
        (folder / name).write_text(f'#!/bin/sh\n{text}\n', encoding='utf-8')
        (folder / name).chmod(0o755)


# Traced steps of real programs.
GRAPHS = Path(__file__).resolve().parent.parent / 'golden' / 'graphs'
# One step of a traced program (docs/step-graph.md).
STEP = {
    'schema': 'tessera-step/1', 'torch': '2.9.1', 'gpu': 'h100', 'parameters': 1 << 20, 'optimizer': 'AdamW',
    'texts': ['at::_ops::mm::call', '??', 'forward', 'model.py'],
    'frames': [[0, 1, 0], [2, 3, 12]],
    'stacks': [[0, 1]],
    'static': 1,
    'slots': {'bytes': [4 * MIB, 16 * MIB, 4 * MIB, 8 * MIB], 'category': ['parameter', 'activation', 'gradient', 'optimizer_state']},
    'instructions': [['begin', 0], ['drop_previous', 2], ['begin', 2], ['new', 1, 0], ['end', 2], ['begin', 3], ['new', 2, 0], ['drop', 1],
                     ['end', 3], ['begin', 4], ['once', 3, 0], ['end', 4], ['end', 0]],
}


def settle(value, seen, strings):
    """A copy whose shared objects are those that PyTorch shares: equal strings are one object, lists
    and dicts stay what they were. Without it, the pickle would depend on which constants this
    Python happens to merge."""
    if isinstance(value, str):
        return strings.setdefault(value, value)
    if isinstance(value, tuple):
        return tuple(settle(item, seen, strings) for item in list(value))
    if not isinstance(value, (list, dict)):
        return value
    if id(value) not in seen:
        if isinstance(value, list):
            copy = [settle(item, seen, strings) for item in value]
        else:
            copy = {settle(key, seen, strings): settle(item, seen, strings)
                    for key, item in value.items()}
        seen[id(value)] = (copy, value)
    return seen[id(value)][0]


def write(path, snapshot):
    with open(path, 'wb') as file:
        pickle.dump(settle(snapshot, {}, {}), file, protocol=4)


class Stacks:
    """Stacks as PyTorch has them: innermost frame first, one dict per distinct frame, one list per
    distinct stack."""

    BELOW = [('PyEval_EvalFrameDefault', '/usr/src/python3.11/Python/ceval.c', 5231),
             ('main', '/work/train.py', 88), ('<module>', '/work/train.py', 97),
             ('_start', '??', 0)]
    ABOVE = [('c10::cuda::CUDACachingAllocator::Native::DeviceCachingAllocator::malloc',
              '/pytorch/c10/cuda/CUDACachingAllocator.cpp', 2817)]

    def __init__(self):
        self.frames, self.lists = {}, {}

    def frame(self, name, filename, line):
        key = (name, filename, line)
        return self.frames.setdefault(key, {'name': name, 'filename': filename, 'line': line})

    def __call__(self, *frames):
        """The stack of these frames, between those that every stack has."""
        if frames not in self.lists:
            self.lists[frames] = [self.frame(*f) for f in (*self.ABOVE, *frames, *self.BELOW)]
        return self.lists[frames]


class Device:
    """A caching allocator that records. Blocks are [address, size, requested, frames]; requested is
    None for a free one."""

    def __init__(self, number, clock):
        self.number, self.clock = number, clock
        self.trace, self.segments, self.recording = [], [], True
        self.metadata = ''  # what torch.cuda.memory._set_memory_metadata was called with

    def event(self, action, address, size, frames):
        if self.recording:
            where = {'device_free': address} if action == 'oom' else {'addr': address}
            self.trace.append({'action': action, **where, 'size': size, 'stream': 0,
                               'time_us': self.clock(), 'compile_context': 'N/A',
                               'user_metadata': self.metadata, 'pool_id': (0, 0), 'frames': frames})

    def annotate(self, address, text, frames):
        """torch.cuda.memory._annotate_tensor: the text is of this event alone."""
        before, self.metadata = self.metadata, text
        self.event('annotate', address, 0, frames)
        self.metadata = before

    def grow(self, size, frames):
        """A new segment with room for a block of `size` bytes."""
        small = size <= MIB
        total = 2 * MIB if small else 20 * MIB if size < 10 * MIB else -(-size // (2 * MIB)) * 2 * MIB
        address = 0x7f0000000000 + (self.number << 36) + (len(self.segments) << 28)
        self.segments.append({'address': address, 'total': total, 'small': small,
                              'frames': [] if small else frames,
                              'blocks': [[address, total, None, []]]})
        self.event('segment_alloc', address, total, frames)

    def fit(self, size):
        small = size <= MIB
        fits = [(block[1], block[0], segment, block) for segment in self.segments
                if segment['small'] == small for block in segment['blocks']
                if block[2] is None and block[1] >= size]
        return min(fits, key=lambda fit: fit[:2])[2:] if fits else None

    def alloc(self, requested, frames):
        size = -(-requested // 512) * 512
        if not self.fit(size):
            self.grow(size, frames)
        segment, block = self.fit(size)
        if block[1] - size >= (512 if segment['small'] else MIB + 1):
            at = segment['blocks'].index(block)
            segment['blocks'].insert(at + 1, [block[0] + size, block[1] - size, None, []])
            block[1] = size
        block[2], block[3] = requested, frames
        self.event('alloc', block[0], requested, frames)
        return block[0]

    def free(self, address, frames):
        for segment in self.segments:
            for block in segment['blocks']:
                if block[0] == address:
                    self.event('free_requested', address, block[2], frames)
                    self.event('free_completed', address, block[2], frames)
                    block[2], block[3] = None, []
                    self.merge(segment)
                    return

    @staticmethod
    def merge(segment):
        merged = []
        for block in segment['blocks']:
            if merged and merged[-1][2] is None and block[2] is None:
                merged[-1][1] += block[1]
            else:
                merged.append(block)
        segment['blocks'] = merged

    def segment_dicts(self):
        for segment in self.segments:
            live = [block for block in segment['blocks'] if block[2] is not None]
            allocated = sum(block[1] for block in live)
            yield {'device': self.number, 'address': segment['address'],
                   'total_size': segment['total'], 'allocated_size': allocated,
                   'active_size': allocated, 'requested_size': sum(block[2] for block in live),
                   'stream': 0, 'segment_type': 'small' if segment['small'] else 'large',
                   'segment_pool_id': (0, 0), 'is_expandable': False,
                   'frames': segment['frames'],
                   'blocks': [{'address': block[0], 'size': block[1],
                               'requested_size': block[2] or 0,
                               'state': 'inactive' if block[2] is None else 'active_allocated',
                               'frames': block[3]} for block in segment['blocks']]}


class Run:
    """Some steps of training on some devices, recorded from after the model was made."""

    def __init__(self, devices=1, layers=2, width=512, batch=2048):
        self.time_us = START_US
        self.devices = [Device(number, self.tick) for number in range(devices)]
        self.stacks, self.annotations = Stacks(), []
        self.layers, self.width, self.batch = layers, width, batch

    def tick(self):
        self.time_us += 7
        return self.time_us

    def note(self, name, stage):
        self.annotations.append({'name': name, 'stage': stage, 'device': 0, 'time_us': self.tick()})

    def model(self, device, recorded):
        """Parameters of each layer; `recorded` or from before the trace."""
        device.recording = recorded
        made = self.stacks(('__init__', '/work/model.py', 21), ('build_params', '/work/model.py', 9))
        weights = [device.alloc(self.width * self.width * 4, made) for _ in range(self.layers)]
        biases = [device.alloc(self.width * 4, made) for _ in range(self.layers)]
        device.recording = True
        return weights + biases

    def step(self, device, number, state):
        """Forward keeps one activation a layer, backward frees them and leaves gradients, the first
        optimizer step makes its state, zero_grad frees the gradients."""
        stacks, size = self.stacks, self.batch * self.width * 4
        self.note(f'ProfilerStep#{number}', 'START')
        self.note('## forward ##', 'START')
        kept = []
        for layer in range(self.layers):
            kept.append(device.alloc(size, stacks(
                ('forward', '/usr/lib/python3/torch/nn/modules/linear.py', 125),
                ('_call_impl', '/usr/lib/python3/torch/nn/modules/module.py', 1750),
                ('forward', '/work/model.py', 30 + layer % 4))))
        self.note('## forward ##', 'END')
        self.note('## backward ##', 'START')
        at = stacks(('backward', '/usr/lib/python3/torch/autograd/__init__.py', 347),
                    ('backward', '/usr/lib/python3/torch/_tensor.py', 581))
        gradients = []
        for activation in reversed(kept):
            scratch = device.alloc(size // 2, at)
            gradients.append(device.alloc(self.width * self.width * 4, at))
            device.free(scratch, at)
            device.free(activation, at)
        self.note('## backward ##', 'END')
        at = stacks(('_init_group', '/usr/lib/python3/torch/optim/adamw.py', 175),
                    ('step', '/usr/lib/python3/torch/optim/adamw.py', 232))
        while len(state) < 2 * self.layers:
            state.append(device.alloc(self.width * self.width * 4, at))
        at = stacks(('zero_grad', '/usr/lib/python3/torch/optim/optimizer.py', 977))
        for gradient in gradients:
            device.free(gradient, at)
        self.note(f'ProfilerStep#{number}', 'END')

    def snapshot(self):
        return {'segments': [segment for device in self.devices
                             for segment in device.segment_dicts()],
                'device_traces': [device.trace for device in self.devices],
                'allocator_settings': {
                    'PYTORCH_CUDA_ALLOC_CONF': '', 'max_split_size': -1,
                    'garbage_collection_threshold': 0.0, 'expandable_segments': False,
                    'pinned_num_register_threads': 1, 'release_lock_on_cudamalloc': False,
                    'pinned_use_cuda_host_register': False,
                    'roundup_power2_divisions': {str(1 << power): 0 for power in range(16)}},
                'external_annotations': self.annotations}


def train():
    """Two steps; the model is from before the trace, and a buffer from then is freed in it."""
    run = Run()
    device, state = run.devices[0], []
    run.model(device, recorded=False)
    device.recording = False
    buffer = device.alloc(3 * MIB, run.stacks(('load_batch', '/work/data.py', 14)))
    device.recording = True
    device.free(buffer, run.stacks(('drop_batch', '/work/data.py', 20)))
    for number in range(2):
        run.step(device, number, state)
    return run.snapshot()


def late():
    """A step like the one before the recording, which reserved all that both need."""
    run = Run()
    device, state = run.devices[0], []
    run.model(device, recorded=False)
    device.recording = False
    run.step(device, 0, state)
    device.recording = True
    run.step(device, 1, state)
    return run.snapshot()


def kept_whole(setting):
    """A free block of 40 MiB, too large to serve a smaller request where max_split_size_mb says so."""
    run = Run()
    device, at = run.devices[0], run.stacks(('forward', '/work/model.py', 31))
    device.free(device.alloc(40 * MIB, at), at)
    device.event('oom', MIB, 20 * MIB, at)
    snapshot = run.snapshot()
    snapshot['allocator_settings'].update(setting)
    return snapshot


def loop(leaks):
    """Five steps, the model recorded too; the log of each step may hold on to its loss."""
    run = Run()
    device, state = run.devices[0], []
    run.model(device, recorded=True)
    log = run.stacks(('log', '/work/log.py', 12))
    for number in range(5):
        run.step(device, number, state)
        loss = device.alloc(1024, log)
        if not leaks:
            device.free(loss, log)
    return run.snapshot()


def loops():
    """Six steps, four passes that evaluate on another line and keep what they predict, six steps more; and before
    them a buffer that is larger than all."""
    run = Run()
    device, state = run.devices[0], []
    run.model(device, recorded=True)
    once = run.stacks(('tune', '/work/tune.py', 7))
    device.free(device.alloc(64 * MIB, once), once)
    main = run.stacks()
    caller = [run.stacks.frame(*f) for f in (('forward', '/usr/lib/python3/torch/nn/modules/linear.py', 125),
                                             ('_call_impl', '/usr/lib/python3/torch/nn/modules/module.py', 1750),
                                             ('forward', '/work/model.py', 30), ('main', '/work/train.py', 95))]
    keeps = [run.stacks.frame('main', '/work/train.py', 96), *main[-2:]]
    pooled = [caller[0], caller[1], run.stacks.frame('forward', '/work/model.py', 31), caller[3]]
    for number in range(12):
        if number == 6:
            for _ in range(4):
                at = [*caller, *main[-2:]]
                hidden = device.alloc(8 * MIB, at)
                device.free(device.alloc(4 * MIB, [*pooled, *main[-2:]]), at)
                device.free(hidden, at)
                device.alloc(2 * MIB, keeps)
        run.step(device, number, state)
    snapshot = run.snapshot()
    snapshot['external_annotations'] = []
    return snapshot


def ring():
    """The last event of a ring: a block is free again, and no more is known of the past."""
    run = Run()
    run.model(run.devices[0], recorded=False)
    device = run.devices[0]
    device.recording = False
    at = run.stacks(('forward', '/work/model.py', 31))
    device.free(device.alloc(40 * MIB, at), at)
    device.recording = True
    device.event('free_completed', device.segments[-1]['blocks'][0][0], 40 * MIB, at)
    return run.snapshot()


def ended():
    """A stage that began before the recording, in which much was freed at first, and one that ended before it."""
    run = Run()
    device, at = run.devices[0], run.stacks(('forward', '/work/model.py', 31))
    device.recording = False
    before = device.alloc(40 * MIB, at)
    device.recording = True
    run.note('import', 'END')
    device.free(before, at)
    kept = device.alloc(5 * MIB, at)
    run.note('load', 'END')
    run.note('forward', 'START')
    device.free(device.alloc(3 * MIB, at), at)
    run.note('forward', 'END')
    device.free(kept, at)
    return run.snapshot()


def two_devices():
    """Device 0 trains, device 1 only holds a recorded model, device 2 has never been used."""
    run = Run(devices=3)
    run.model(run.devices[0], recorded=True)
    run.step(run.devices[0], 0, [])
    run.model(run.devices[1], recorded=True)
    return run.snapshot()


def empty_trace():
    """Memory, but no events: taken without recording the history."""
    run = Run()
    run.model(run.devices[0], recorded=False)
    snapshot = run.snapshot()
    snapshot['device_traces'], snapshot['external_annotations'] = [[]], []
    return snapshot


def out_of_memory():
    """A trace that ends where the memory did."""
    run = Run()
    device = run.devices[0]
    run.model(device, recorded=True)
    at = run.stacks(('forward', '/work/model.py', 31))
    for _ in range(3):
        device.alloc(20 * MIB, at)
    device.event('oom', 5 * MIB, 40 * MIB, at)
    return run.snapshot()


def fill(run, sizes):
    """Blocks of these sizes, allocated at three lines in turn; their addresses."""
    return [run.devices[0].alloc(size, run.stacks(('forward', '/work/model.py', 30 + number % 3)))
            for number, size in enumerate(sizes)]


def fragmented():
    """Enough is cached and free, but in pieces; the program gets over the first failure. The layer
    that asks is a library's."""
    run = Run()
    device, at = run.devices[0], run.stacks(
        ('forward', '/usr/lib/python3/site-packages/zoo/attention.py', 88),
        ('forward', '/work/model.py', 44))
    run.model(device, recorded=True)
    device.event('oom', 30 * MIB, 70 * MIB, at)
    blocks = fill(run, [4 * MIB] * 20)
    for block in blocks[::2]:
        device.free(block, at)
    device.event('oom', 3 * MIB, 12 * MIB, at)
    device.free(blocks[1], at)
    return run.snapshot()


def elsewhere():
    """The free pieces are another stream's, and a private pool's."""
    snapshot = fragmented()
    large = [segment for segment in snapshot['segments'] if segment['segment_type'] == 'large']
    changed = {segment['address'] >> 28: change for segment, change in zip(
        large, ({'stream': 0x55d0}, {'stream': 0x55d0}, {'segment_pool_id': (0, 3)},
                {'segment_pool_id': (0, 3)}))}
    for segment in large:
        segment.update(changed[segment['address'] >> 28])
    for event in snapshot['device_traces'][0]:
        change = changed.get(event.get('addr', 0) >> 28, {})
        event.update({key.replace('segment_', ''): value for key, value in change.items()})
    return snapshot


def without_oom(snapshot):
    """As if the request that failed had not been made."""
    traces = [[event for event in trace if event['action'] != 'oom'] for trace in snapshot['device_traces']]
    return {**snapshot, 'device_traces': traces}


def rounded():
    """Segments of 12 MiB for requests of 11: expandable segments would waste less."""
    run = Run()
    fill(run, [11 * MIB] * 8)
    run.devices[0].event('oom', 4 * MIB, 11 * MIB, run.stacks(('forward', '/work/model.py', 31)))
    return run.snapshot()


def pending():
    """What was freed last still waits for another stream."""
    run = Run()
    device, at = run.devices[0], run.stacks(('forward', '/work/model.py', 31))
    blocks = fill(run, [20 * MIB] * 3)
    device.free(blocks[1], at)
    del device.trace[-1]
    device.event('oom', MIB, 20 * MIB, at)
    snapshot = run.snapshot()
    for segment in snapshot['segments']:
        for block in segment['blocks']:
            if block['address'] == blocks[1]:
                block.update(state='active_pending_free', requested_size=20 * MIB)
                segment.update(active_size=20 * MIB)
    return snapshot


# ---- what the program says of its tensors ----

def sidecar(**told):
    """As tessera.record writes it next to a snapshot."""
    return {'schema': 'tessera/capture/1', 'reason': 'end', 'step': 2, **told}


def tensor(name, address, shape, **more):
    count = 1
    for axis in shape:
        count *= axis
    return {'name': name, 'shape': shape, 'dtype': 'torch.float32', 'device': 'cuda:0',
            'data_ptr': address, 'nbytes': 4 * count, 'requires_grad': True, 'grad': None, **more}


def named():
    """Weights from before the trace without a stack that tells, two of them in one flat block,
    state that nobody would take for it, and what fits nowhere. Returns the snapshot and its
    sidecar."""
    run = Run()
    device = run.devices[0]
    device.recording = False
    flat = device.alloc(3 * MIB, [])
    device.recording = True
    loose = device.alloc(2 * MIB, run.stacks(('scratch', '/work/train.py', 60)))
    grad = device.alloc(MIB, run.stacks(('scratch', '/work/train.py', 60)))
    moment = device.alloc(2 * MIB, run.stacks(('scratch', '/work/train.py', 61)))
    gone = device.alloc(4 * MIB, run.stacks(('forward', '/work/model.py', 31)))
    device.free(gone, run.stacks(('forward', '/work/model.py', 32)))
    parameters = [
        tensor('net.0.weight', flat, [512, 512], grad={'data_ptr': grad, 'nbytes': MIB},
               storage_data_ptr=flat, storage_nbytes=3 * MIB),
        tensor('net.1.weight', flat + MIB, [2, 512, 512]),
        tensor('head.\x1b[1mweight', hex(loose), [512, 1024]),
        tensor('elsewhere', 0x1000, [4]), tensor('freed', gone, [4]),
        tensor('too.large', loose, [512, 1025]),
        tensor('on.cpu', 0x1000, [4], device='cpu'), tensor('empty', 0, [0])]
    state = [{'parameter': 'net.0.weight', 'key': 'exp_avg', 'data_ptr': moment, 'nbytes': MIB,
              'device': 'cuda:0'},
             {'parameter': 7, 'key': 'exp_avg', 'data_ptr': moment + MIB, 'nbytes': 4,
              'device': 'cuda:0'},
             {'parameter': 7, 'key': 'step', 'data_ptr': 4096, 'nbytes': 4, 'device': 'cpu'}]
    card = {'device': 0, 'total_bytes': 80 * MIB, 'free_bytes': 30 * MIB,
            'outside_pytorch_bytes': 6 * MIB}
    return run.snapshot(), sidecar(
        devices=[card],
        models=[{'name': 'Net', 'class': 'Net', 'parameters': parameters, 'buffers': []}],
        optimizers=[{'class': 'AdamW', 'state': state}])


def noted():
    """What the program said in the snapshot itself: of memory from before the trace, by the thread's
    metadata, afterwards and more than once, of nothing, and with what a terminal would obey. The
    trace ends out of memory."""
    run = Run()
    device = run.devices[0]
    device.recording = False
    table = device.alloc(3 * MIB, [])
    device.recording = True
    at = run.stacks(('remember', '/work/train.py', 70))
    cache = run.stacks(('append', '/work/cache.py', 12))
    for layer in range(3):
        device.metadata = f'KV cache: layer {layer}'
        device.alloc((4 + layer) * MIB, cache)
    device.metadata = '{"layer":3,"name":"scratch of the mixer","who":{"rank":[0,1]}}'
    device.alloc(2 * MIB, run.stacks(('mix', '/work/model.py', 41)))
    device.metadata = ''
    packed = device.alloc(8 * MIB, run.stacks(('forward', '/work/model.py', 31)))
    moment = device.alloc(MIB, run.stacks(('scratch', '/work/train.py', 61)))
    device.alloc(MIB // 2, run.stacks(('scratch', '/work/train.py', 62)))
    device.annotate(table, '{"category":"parameter","name":"embed.weight"}', at)
    device.annotate(packed, 'packed into\x1b[1m the \u202egraph', at)
    device.annotate(packed + 512, 'activation/block 7', at)
    device.annotate(packed, 'packed into\x1b[1m the \u202egraph', at)
    device.annotate(moment, 'exp_avg of embed.weight', at)
    device.annotate(0x1000, 'nothing', at)
    device.event('oom', MIB, 64 * MIB, at)
    return run.snapshot()


def noted_dicts():
    """As other programs write it: metadata that is a dict, an integer, and too deep a dict."""
    run = Run()
    device = run.devices[0]
    deep = {}
    for _ in range(40):
        deep = {'a': deep}
    for metadata in ({'category': 'KV cache', 'name': 'a "dict"', 'layer': 7, 'more': [1.5, None, True]},
                     7, deep):
        device.metadata = metadata
        device.alloc(4 * MIB, run.stacks(('append', '/work/cache.py', 12)))
    return run.snapshot()


def growing_notes():
    """Five steps, each of which leaves a loss that it names."""
    run = Run()
    device, state = run.devices[0], []
    run.model(device, recorded=True)
    log = run.stacks(('log', '/work/log.py', 12))
    for number in range(5):
        run.step(device, number, state)
        device.metadata = f'loss of step {number}'
        device.alloc(1024 + 512 * number, log)
        device.metadata = ''
    return run.snapshot()


def write_named(folder):
    snapshot, told = named()
    parameters = told['models'][0]['parameters']
    write(folder / 'told.pickle', snapshot)
    (folder / 'told.json').write_text(json.dumps(told, indent=1), encoding='utf-8')
    (folder / 'renamed.pickle').write_bytes((folder / 'told.pickle').read_bytes())
    (folder / 'told-packed.pickle.gz').write_bytes(
        gzip.compress((folder / 'told.pickle').read_bytes(), mtime=0))
    (folder / 'told-packed.json').write_text(json.dumps(told), encoding='utf-8')
    many = [tensor(f'expert.{number}', parameters[0]['data_ptr'] + 4096 * number, [number + 1])
            for number in range(9)]
    (folder / 'told-many.json').write_text(
        json.dumps(sidecar(models=[{'name': 'Net', 'parameters': many}])), encoding='utf-8')
    write(folder / 'oom-told.pickle', out_of_memory())
    card = {'device': 0, 'total_bytes': 90 * MIB, 'free_bytes': 5 * MIB,
            'outside_pytorch_bytes': 3 * MIB}
    (folder / 'oom-told.json').write_text(json.dumps(sidecar(devices=[card])),
                                          encoding='utf-8')
    run = Run()
    twice = run.devices[0].alloc(MIB, run.stacks(('build', '/work/model.py', 7)))
    run.devices[0].annotate(twice, 'embed.weight', run.stacks(('remember', '/work/train.py', 70)))
    run.devices[0].annotate(twice, 'parameter: tied to the head', [])
    write(folder / 'told-twice.pickle', run.snapshot())
    (folder / 'told-twice.json').write_text(json.dumps(sidecar(models=[
        {'name': 'Net', 'parameters': [tensor('embed.weight', twice, [512, 512])]}])),
                                            encoding='utf-8')
    for name, text in (('torn', json.dumps(told)[:2000]),
                       ('newer', json.dumps({**told, 'schema': 'tessera/capture/9'})),
                       ('neighbour', json.dumps({'loss': [3.2, 2.9]}))):
        write(folder / f'{name}.pickle', snapshot)
        (folder / f'{name}.json').write_text(text, encoding='utf-8')


# ---- the ledger of the card ----

def ledger(times, used, reserved, **more):
    """A device of the ledger; what is not given is the same in all jobs here."""
    series = {key: more.pop(key) for key in ('unmapped_bytes', 'process_bytes', 'private_pool_bytes', 'communicator_bytes', 'other_process_bytes',
                                             'mark') if key in more}
    return {'device': 0, 'name': 'A card of 1 GiB', 'total_bytes': 1024 * MIB, **more, 'samples': {
        'time_us': [START_US + 1000 * at for at in times], 'total_used_bytes': [size * MIB for size in used],
        'allocated_bytes': [size * MIB for size in reserved], 'reserved_bytes': [size * MIB for size in reserved],
        **{key: [[None if size is None else size * MIB for size in row] for row in rows] if key in ('communicator_bytes', 'other_process_bytes')
           else rows if key == 'mark' else [None if size is None else size * MIB for size in rows] for key, rows in series.items()}}}


def with_card(pid, *devices, **more):
    return sidecar(process={'pid': pid, 'host': 'node1'}, time_us=START_US + 1000, card={
        'period_ms': 500, 'samples_taken': 5, 'samples_kept': 5, 'sampling_us': 210, 'step_us': 410000, 'nvml': '12.570.86', 'nvml_error': None,
        'devices': list(devices), 'host': {
            'pinned_bytes': 64 * MIB, 'limit_bytes': 8192 * MIB, 'limit_from': 'cgroup',
            'samples': {'time_us': [START_US, START_US + 40000], 'rss_bytes': [900 * MIB, 800 * MIB]}}}, **more)


def crowded(folder):
    """It ran out of memory beside a process that was left over, with NCCL in two groups, of which one grows."""
    run = Run()
    device = run.devices[0]
    run.model(device, recorded=True)
    at = run.stacks(('forward', '/work/model.py', 31))
    for _ in range(3):
        device.alloc(20 * MIB, at)
    run.time_us = START_US + 41000
    device.event('oom', 5 * MIB, 40 * MIB, at)
    write(folder / 'crowded.pickle', run.snapshot())
    held = sum(segment['total'] for segment in device.segments) // MIB
    left = 1024 - 5 - held - 90 - 12 - 60 - 30
    card = ledger([0, 10, 20, 30, 40], [held + left + 117, held + left + 147, held + left + 162, held + left + 182, 1019], [held] * 5,
                  uuid='GPU-1', driver_bytes=12 * MIB, context_bytes=60 * MIB, context_from='nvml',
                  libraries=[{'name': 'cublas', 'bytes': 30 * MIB, 'from': 'first_use'}],
                  communicators=[{'name': 'dp (0)', 'backend': 'nccl', 'ranks': 8, 'from': 'stats', 'suspended': False},
                                 {'name': 'tp (1)', 'backend': 'nccl', 'ranks': 2, 'from': 'stats', 'suspended': False}],
                  processes=[{'pid': 4242, 'name': 'python3'}], marks=['step 0', 'step 1', 'snapshot'], mark=[0, 1, None, None, 2],
                  communicator_bytes=[[10, 40, 55, 75, 80], [5, 5, 5, 5, 5]], other_process_bytes=[[left] * 5], private_pool_bytes=[4] * 5,
                  process_bytes=[held + size for size in (105, 135, 150, 170, 175)])
    (folder / 'crowded.json').write_text(json.dumps(with_card(4711, card, devices=[
        {'device': 0, 'total_bytes': 1024 * MIB, 'free_bytes': 5 * MIB, 'outside_pytorch_bytes': 1019 * MIB - held * MIB}])), encoding='utf-8')


def shared_card(folder):
    """A trainer and an engine that take turns; the trainer runs out of memory, because the engine slept too little."""
    for name, pid, sizes, asleep, phases in (('engine', 11, (600, 600, 600, 600), (0, 200, 200, 0), [('rollout', 1, 10), ('rollout', 35, 40)]),
                                             ('trainer', 12, (200, 200, 500, 200), (0, 0, 0, 0), [('training', 12, 30)])):
        run = Run()
        device = run.devices[0]
        stack = run.stacks(('forward', '/work/model.py', 31))
        device.alloc(sizes[0] * MIB, stack)
        more = sizes[2] - sizes[0]
        if more:
            run.time_us = START_US + 15000
            grown = device.alloc(more * MIB, stack)
            device.event('oom', 4 * MIB, 100 * MIB, stack)
            run.time_us = START_US + 33000
            device.free(grown, stack)
            segment = device.segments.pop()
            device.event('segment_free', segment['address'], segment['total'], stack)
        snapshot = run.snapshot()
        snapshot['external_annotations'] = [{'stage': stage, 'name': phase, 'device': 0, 'time_us': START_US + 1000 * at}
                                            for phase, first, end in phases for stage, at in (('START', first), ('END', end))]
        write(folder / f'{name}.pickle', snapshot)
        card = ledger([0, 11, 20, 34], [930, 730, 1020, 930], sizes, uuid='GPU-1', context_bytes=50 * MIB, context_from='nvml',
                      unmapped_bytes=list(asleep), processes=[{'pid': 23 - pid, 'name': 'python3'}],
                      other_process_bytes=[[250, 250, 550, 250] if pid == 11 else [650, 450, 450, 650]])
        (folder / f'{name}.json').write_text(json.dumps(with_card(pid, card)), encoding='utf-8')


def cards(folder):
    """Four ranks, of which one has a group that the others lack, and a file that is no snapshot."""
    folder.mkdir(exist_ok=True)
    for rank in range(4):
        run = Run()
        run.devices[0].alloc(200 * MIB, run.stacks(('forward', '/work/model.py', 31)))
        write(folder / f'rank{rank}.pickle', run.snapshot())
        more = 300 if rank == 2 else 0
        card = ledger([0, 10], [330 + more, 330 + more], [200, 200], uuid=f'GPU-{rank}', context_bytes=60 * MIB, context_from='nvml',
                      communicators=[{'name': 'dp (0)', 'backend': 'nccl', 'ranks': 4, 'from': 'stats'}], communicator_bytes=[[50 + more] * 2])
        (folder / f'rank{rank}.json').write_text(
            json.dumps(with_card(100 + rank, card, ranks={'rank': rank, 'world_size': 5})), encoding='utf-8')
    (folder / 'rank4.pickle').write_text('no snapshot')


# ---- for the drop-ins: what Mosaic stumbles over ----

def entry(action, addr, size, at_us, *frames, **more):
    """An event by hand; a frame is (name, filename, line), innermost first."""
    made = {'action': action, 'addr': addr, 'size': size, 'stream': 0, 'time_us': START_US + at_us,
            'frames': [dict(zip(('name', 'filename', 'line'), frame)) for frame in frames]}
    return {key: value for key, value in {**made, **more}.items() if value is not None}


def traces(*lists, annotations=()):
    return {'segments': [], 'device_traces': list(lists), 'external_annotations': list(annotations)}


A, B = ('load', 'a.py', 1), ('step', 'b.py', 2)


def mosaic_traces():
    """By file name, traces of a few events each."""
    first, second = entry('alloc', 0x1000, 1024, 1, A), entry('alloc', 0x2000, 2048, 2, B)
    oom = {'action': 'oom', 'device_free': 0x1000, 'size': 1 << 40, 'stream': 0,
           'time_us': START_US + 3, 'frames': []}
    return {
        'device-3': traces([], [], [], [first, second]),
        'two-traces': traces([entry('alloc', 0x1000, 1, 1, A)],
                             [entry('alloc', 0x9000, 32 << 30, 1, B)]),
        'oom-inside': traces([first, oom, second, entry('free_completed', 0x1000, 1024, 5, A)]),
        'one-time': traces([first, entry('alloc', 0x2000, 2048, 1, B),
                            entry('free_completed', 0x2000, 2048, 1, B)]),
        'lone-free': traces([entry('free_completed', 0x3000, 4096, 0, A), first]),
        'no-traces': traces(*([] for _ in range(8))),
        'no-address': traces([first, entry('alloc', None, 4096, 2, B)]),
        'no-times': traces([entry('alloc', 0x1000, 1024, 0, A, time_us=None),
                            entry('alloc', 0x2000, 2048, 0, B, time_us=None)]),
        'taken-again': traces([entry('alloc', 0x1000, 1024, 1, A),
                               entry('free_completed', 0x1000, 1024, 2),
                               entry('alloc', 0x2000, 4096, 3, B),
                               entry('alloc', 0x1000, 1024, 4, A),
                               entry('free_completed', 0x2000, 4096, 5),
                               entry('free_completed', 0x1000, 1024, 6),
                               entry('alloc', 0x1000, 9999, 7, A)]),
        'named': traces([entry('alloc', 0x1000, 1024, 1, ('\x1b[1mf', 'é.py', -1), A)],
                        annotations=[{'stage': 'START', 'name': "it's a 'test'", 'device': 0,
                                      'time_us': START_US},
                                     {'name': 'é\u200b', 'stage': 'END', 'time_us': START_US + 1},
                                     {'stage': 'START', 'name': "it's a 'test'", 'device': 0,
                                      'time_us': START_US + 2}]),
    }


# Moves the cursor, in C0 and in C1; reverses what follows; starts a line.
DRIVING = '\x1b[2J\x9b31m\u202egnp\nx'


def driving():
    """Every text that a report may print tries to drive the terminal."""
    frame = (f'f{DRIVING}', f'/work/m{DRIVING}.py', 3)
    events = [entry('alloc', 0x1000, 1024, 1, frame, compile_context=f'c{DRIVING}'),
              entry('alloc', 0x2000, 2048, 2, frame, compile_context=f'c{DRIVING}'),
              entry('free_completed', 0x2000, 2048, 3, frame)]
    return traces(events, annotations=[{'stage': stage, 'name': f'a{DRIVING}', 'device': 0,
                                        'time_us': START_US + at}
                                       for stage, at in (('START', 0), ('END', 4))])


def injecting():
    """Names that mean something where reports of other programs go: XML, spreadsheets, Markdown, HTML."""
    names = ['=1+1', '@SUM(A1)', '-2+3', '"\uffff\ufffe]]></failure>&amp;<b>', '</script><script>|`x`']
    return traces([entry('alloc', (i + 1) << 20, 4096 << i, i, (name, name, 3))
                   for i, name in enumerate(names)])


def zeros():
    """Names that would end early where a text ends with a zero byte."""
    names = ['a\0b', 'a\0c']
    events = [entry('alloc', (i + 1) << 20, 4096, 4 * i + 1, (name, name, 3), compile_context=name)
              for i, name in enumerate(names)]
    return traces(events, annotations=[{'stage': stage, 'name': name, 'device': 0,
                                        'time_us': START_US + 4 * i + at}
                                       for i, name in enumerate(names)
                                       for stage, at in (('START', 0), ('END', 2))])


def apart():
    """Times at both ends of what a number holds, and backwards."""
    events = [entry('alloc', 1 << 20, 4096, 0, A, time_us=-5),
              entry('free_completed', 1 << 20, 4096, 0, A, time_us=(1 << 63) - 1),
              entry('alloc', 2 << 20, 4096, 0, A, time_us=9),
              entry('free_completed', 2 << 20, 4096, 0, A, time_us=3)]
    return traces(events)


# Runs a command with standard output on a terminal, which leaves newlines alone, and copies that.
ON_TERMINAL = '''\
import os, pty, subprocess, sys, termios
master, slave = pty.openpty()
how = termios.tcgetattr(slave)
how[1] &= ~termios.OPOST
termios.tcsetattr(slave, termios.TCSANOW, how)
with subprocess.Popen(sys.argv[1:], stdout=slave) as process:
    os.close(slave)
    try:
        while piece := os.read(master, 65536):
            sys.stdout.buffer.write(piece)
    except OSError:
        pass  # the terminal is closed
sys.exit(process.returncode)
'''


def stages():
    """Annotations of every sort: steps with parts, one recorded twice, two that overlap, an END and
    a START without partners, one that is neither."""
    run = Run()
    device = run.devices[0]
    run.model(device, recorded=False)
    at = run.stacks(('forward', '/work/model.py', 31))

    def use(size):
        device.free(device.alloc(size * MIB, at), at)

    run.note('load', 'END')
    for number in range(6):
        run.note(f'ProfilerStep#{number}', 'START')
        run.note('forward', 'START')
        use(5 + number % 4)
        run.note('forward', 'END')
        run.note('Optimizer.step#AdamW.step', 'START')
        run.note('Optimizer.step#AdamW.step', 'START')
        use(3)
        run.note('Optimizer.step#AdamW.step', 'END')
        run.note('Optimizer.step#AdamW.step', 'END')
        run.note(f'ProfilerStep#{number}', 'END')
    run.note('copy', 'START')
    run.note('reduce', 'START')
    use(9)
    run.note('copy', 'END')
    use(12)
    run.note('reduce', 'END')
    run.note('save', 'START')
    run.note('shard', 'START')
    kept = device.alloc(4 * MIB, at)
    run.note('save', 'MIDDLE')
    run.note('save', 'END')
    run.note('evaluate', 'START')
    device.free(kept, at)
    return run.snapshot()


def sources():
    """A recursive function, and a file of the same name elsewhere."""
    run = Run()
    device, walk = run.devices[0], ('walk', '/work/model.py', 36)
    for path, lines in (('/work/model.py', (30, 31)), ('/opt/zoo/model.py', (4,)),
                        ('/usr/lib/python3/site-packages/zoo/base/ops.py', (1, 2, 3, 4))):
        for line in lines:
            device.alloc(3 * MIB, run.stacks(('forward', path, line)))
    device.alloc(5 * MIB, run.stacks(('forward', '/work/model.py', 32), walk, walk))
    device.alloc(2 * MIB, run.stacks(('act', '/work/ops.py', 3), ('gone', '/work/model.py', 99)))
    return run.snapshot()


# /work/model.py as the stacks above and those of a Run know it.
MODEL = """\
import torch

# Parameters.
WIDTH = 512


def build_params(width):
    \"\"\"Two of them.\"\"\"
    return Layer(width)


class Layer:
    def __init__(self, width):





        # Made on the card.

        self.weight = torch.empty(width, width)

    @staticmethod
    def name(): return "(not a def"

    def forward(
            self,
            x=(1,
               2)):
        a = self.weight @ x
        b = a.relu()
        c = b + 1
        return c

    def walk(self, x):
        self.walk(x) if x else self.forward(x)
"""


def pooled():
    """Two graphs with pools of their own, a MemPool, and blocks that a log keeps where a step's activations were."""
    a, kept = Allocator(), []
    a.in_use = {(1, 0), (2, 0), (0, 1)}

    def take(size, line, *stack, pool=(0, 0), stream=0):
        return a.malloc(size, frames_of([*MAIN, at(line), *stack]), None, pool, stream)
    for i in range(3):
        take(12 * MIB, 10, ('__init__', '/work/model.py', 5 + i))
    take(24 * MIB, 12, ('buffers', '/work/comm.py', 8), pool=(0, 1))
    for graph in (1, 2):
        temporary = take(30 * MIB, 20, ('layer', '/work/graph.py', 40), pool=(graph, 0), stream=7)
        kept.append(take(2 * MIB, 20, ('layer', '/work/graph.py', 41), pool=(graph, 0), stream=7))
        a.free(temporary, False, None)
    for _ in range(3):
        made = []
        for i in range(10):
            made.append(take(4 * MIB, 31, CALL, ('forward', '/work/model.py', 200 + i)))
            if i in (2, 6):
                kept.append(take(MIB + MIB // 2, 31, CALL, ('forward', '/work/model.py', 250), ('keep', '/work/log.py', 3)))
        for block in reversed(made):
            a.free(block, False, frames_of([*MAIN, at(32), ('backward', TORCH + '_tensor.py', 522)]))
        a.free(take(6 * MIB, 33, ('step', TORCH + 'optim/adamw.py', 220)), False, None)
    return snapshot_of(a)


def large_segments():
    """One segment of a size that only the text of the configuration explains."""
    base, mib = 0x7f0000000000, 1 << 20
    event = {'stream': 0, 'time_us': 1, 'addr': base, 'frames': []}
    blocks = [{'address': base, 'size': 3 * mib, 'requested_size': 3 * mib,
               'state': 'active_allocated'},
              {'address': base + 3 * mib, 'size': 37 * mib, 'state': 'inactive'}]
    return {'segments': [{'device': 0, 'address': base, 'total_size': 40 * mib, 'stream': 0,
                          'segment_type': 'large', 'blocks': blocks}],
            'device_traces': [[{**event, 'action': 'segment_alloc', 'size': 40 * mib},
                               {**event, 'action': 'alloc', 'size': 3 * mib}]],
            'allocator_settings': {'PYTORCH_CUDA_ALLOC_CONF': 'large_segment_size_mb:40'}}


class Command:
    """What a hostile pickle is made of: its reader would call this."""

    def __reduce__(self):
        return os.system, ('touch was-executed',)


def profiled():
    """A trace of torch.profiler: two steps of a GPU, of which the second runs out of memory, after 64 MiB that nobody recorded."""
    base_ns, events = START_US * 1000, []

    def slice(category, name, start, end):
        events.append({'ph': 'X', 'cat': category, 'name': name, 'pid': 7, 'tid': 7, 'ts': start, 'dur': end - start, 'args': {}})

    def memory(at, size, address, total, name='[memory]', device=0):
        where = {'Device Type': 1, 'Device Id': device} if device is not None else {'Device Type': 0, 'Device Id': -1}
        events.append({'ph': 'i', 's': 't', 'name': name, 'pid': 7, 'tid': 7, 'ts': at, 'args': {
            **where, 'Addr': address, 'Bytes': size * MIB, 'Total Allocated': total * MIB, 'Total Reserved': 112 * MIB if device is not None else 0}})

    slice('python_function', 'train.py(40): main', 0, 1000)
    slice('python_function', '<built-in method randn of type object at 0x7f00aa>', 5, 12)
    memory(10, 2, 1 << 20, 2, device=None)
    for step in range(2):
        at = 100 + 400 * step
        slice('user_annotation', f'ProfilerStep#{step}', at, at + 300)
        slice('python_function', 'train.py(12): step', at + 1, at + 299)
        slice('python_function', 'torch/nn/modules/linear.py(130): forward', at + 10, at + 60)
        slice('cpu_op', 'aten::linear', at + 20, at + 50)
        slice('cpu_op', 'aten::addmm', at + 22, at + 48)
        memory(at + 30, 16, 16 << 20, 80)
        memory(at + 40, 8, 48 << 20, 88)
        slice('cpu_op', 'autograd::engine::evaluate_function: AddmmBackward0', at + 100, at + 160)
        slice('cpu_op', 'aten::mm', at + 110, at + 150)
        memory(at + 120, 64 if step else 16, 80 << 20, 88 if step else 104, '[OutOfMemory]' if step else '[memory]')
        if not step:
            memory(at + 170, -16, 80 << 20, 88)
        memory(at + 180, -8, 48 << 20, 80)
        memory(at + 190, -16, 16 << 20, 64)
    return {'schemaVersion': 1, 'baseTimeNanoseconds': base_ns, 'traceEvents': events, 'traceName': 'profiled'}


# PyTorch's memory timeline: [ns, action, bytes, category].
TIMELINE = [[-1, 1, 4 * MIB, 0], [START_US * 1000, 2, MIB, 4], [START_US * 1000 + 5000, 2, 2 * MIB, 3], [START_US * 1000 + 9000, 4, -2 * MIB, 3],
            [START_US * 1000 + 12000, 3, -MIB, 4], [START_US * 1000 + 12000, 3, MIB, 5]]


def nsight():
    """Two processes on one card: a trainer, whose NCCL takes memory of its own, and an engine; and pinned memory."""
    row, gib = allocations.Row, 1 << 30
    job = allocations.Job(0)
    job.pids, job.names = [4711, 4720], {4711: '/usr/bin/python3', 4720: 'vllm'}
    segment = (('c10::cuda::CUDACachingAllocator::malloc', 'libc10_cuda.so'), ('at::empty_cuda', 'libtorch_cuda.so'), ('main', 'python3'))
    buffers = (('ncclCommInitRank', 'libnccl.so.2'), ('main', 'python3'))
    parts = [(4711, 2, 8 * gib, segment), (4711, 2, 20 * MIB, segment), (4711, 2, 384 * MIB, buffers), (4711, 1, 2 * gib, segment),
             (4720, 2, 4 * gib, segment), (4720, 4, gib, segment), (4711, 5, 8 * MIB, ())]
    job.rows = [row(1000 * i, pid, 0, kind, 0x7f0000000000 + i * 8 * gib, size, False, 'lookup' if kind == 5 else None, i + 1, 7, stack)
                for i, (pid, kind, size, stack) in enumerate(parts)]
    freed = job.rows[1]
    job.rows.append(freed._replace(time_ns=9000, is_free=True, stack=(), correlation=0))
    return job


def arrays():
    """Live arrays of two GPUs and the CPU."""
    state = allocations.State(0)
    state.labels = ['cuda:0', 'cuda:1', 'cpu:0']
    line = ('apply', '/work/model.py', 12)
    state.samples = [(4, 64 * MIB, (line, ('main', '/work/train.py', 40)), 'buffer', 'cuda:0'),
                     (1, 6 * MIB, (('init', '/work/model.py', 3), ('main', '/work/train.py', 31)), 'buffer', 'cuda:1'),
                     (1, MIB, (('load', '/work/data.py', 8), ('main', '/work/train.py', 20)), 'buffer', 'cpu:0'),
                     (2, 2 * MIB, (line, ('main', '/work/train.py', 40)), 'executable', None)]
    return state


LIST = """action,address,bytes,time_us,stack,category,thread
alloc,0x1000,4096,10,main (train.py:31);forward (model.py:12),parameter,1
alloc,0x2000,512,12,"main (train.py:31);loss, scaled (model.py:40)",,1
alloc,0x3000,100,14,main (train.py:31),,2
free,0x2000,,20,,,1
resize,0x1000,8192,21,,,1
oom,,1000000,30,main (train.py:31);forward (model.py:13),,1
"""


def write_lists(folder):
    # Sizes and versions of SQLite differ, and reports print the size of the file.
    allocations.Nsight(folder / 'nsight.sqlite', nsight(), 0, page_bytes=4096)
    allocations.write_pprof(folder / 'arrays.prof', arrays(), 1)  # not compressed, because versions of zlib differ
    (folder / 'list.csv').write_text(LIST, encoding='utf-8')
    (folder / 'unnamed.csv').write_text('address,bytes\n1,2\n', encoding='utf-8')
    (folder / 'other.csv').write_text('step,loss\n1,2.5\n', encoding='utf-8')
    database = (folder / 'nsight.sqlite').read_bytes()
    (folder / 'cut.sqlite').write_bytes(database[:6000])


def write_all(folder):
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    write(folder / 'train.pickle', train())
    write(folder / 'late.pickle', late())
    write(folder / 'oom-kept.pickle', kept_whole({'max_split_size': 30 * MIB}))
    write(folder / 'oom-unused.pickle', kept_whole({}))
    write(folder / 'two-devices.pickle', two_devices())
    write(folder / 'loop.pickle', loop(leaks=False))
    write(folder / 'leaky.pickle', loop(leaks=True))
    write(folder / 'empty-trace.pickle', empty_trace())
    write(folder / 'oom.pickle', out_of_memory())
    write(folder / 'oom-pieces.pickle', fragmented())
    write(folder / 'oom-elsewhere.pickle', elsewhere())
    write(folder / 'oom-pending.pickle', pending())
    write(folder / 'oom-rounded.pickle', rounded())
    write(folder / 'rounded.pickle', without_oom(rounded()))
    for name, snapshot in mosaic_traces().items():
        write(folder / f'{name}.pickle', snapshot)
    write(folder / 'driving.pickle', driving())
    write(folder / 'injecting.pickle', injecting())
    write(folder / 'zeros.pickle', zeros())
    write(folder / 'apart.pickle', apart())
    (folder / 'on_terminal.py').write_text(ON_TERMINAL, encoding='utf-8')
    write(folder / 'stages.pickle', stages())
    write(folder / 'ended.pickle', ended())
    write(folder / 'ring.pickle', ring())
    write(folder / 'loops.pickle', loops())
    write_named(folder)
    crowded(folder)
    shared_card(folder)
    cards(folder / 'cards')
    write(folder / 'noted.pickle', noted())
    write(folder / 'noted-dicts.pickle', noted_dicts())
    write(folder / 'growing-notes.pickle', growing_notes())
    write(folder / 'sources.pickle', sources())
    (folder / 'model.py').write_text(MODEL, encoding='utf-8')
    (folder / 'short.py').write_text('x = 1\n', encoding='utf-8')
    (folder / 'ops.py').write_text('def act(x):\n\n    return x.relu()\n', encoding='utf-8')
    (folder / 'old').mkdir(exist_ok=True)
    (folder / 'old' / 'model.py').write_text('x = 1\ny = 2\n', encoding='utf-8')
    write(folder / 'large-segments.pickle', large_segments())
    write(folder / 'pooled.pickle', pooled())
    (folder / 'profiled.pt.trace.json').write_text(json.dumps(profiled(), indent=1), encoding='utf-8')
    (folder / 'timeline.raw.json').write_text(json.dumps(TIMELINE), encoding='utf-8')
    whole = (folder / 'train.pickle').read_bytes()
    (folder / 'truncated.pickle').write_bytes(whole[:len(whole) // 2])
    (folder / 'empty.pickle').write_bytes(b'')
    (folder / 'text.pickle').write_bytes(b'This is a note about a snapshot, not a snapshot.\n')
    (folder / 'number.pickle').write_bytes(pickle.dumps(42, protocol=4))
    (folder / 'exec.pickle').write_bytes(pickle.dumps(Command(), protocol=4))
    (folder / 'step.graph').write_text(json.dumps(STEP), encoding='utf-8')
    (folder / 'b300.graph').write_text(json.dumps({**STEP, 'gpu': 'b300'}), encoding='utf-8')
    (folder / 'layers.graph').write_bytes((GRAPHS / 'layers.graph').read_bytes())
    write_lists(folder)
    programs(folder)
    (folder / 'folder').mkdir(exist_ok=True)


def main(arguments):
    if len(arguments) != 1:
        sys.exit('usage: fixtures.py FOLDER')
    write_all(arguments[0])


if __name__ == '__main__':
    main(sys.argv[1:])
