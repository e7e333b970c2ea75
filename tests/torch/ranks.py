#!/usr/bin/env python3
"""ranks.py [--check] [NAME...]: traces rank 0 of 8 of the programs of sharded.py into tests/golden/graphs.

It works as graphs.py does. The independent reference is PyTorch's own FSDPMemTracker, which counts the third step of the same program on
the same fake tensors: ranks.json has its peaks of the whole step, of forward and of backward. For DDP the references are MemTracker, and
the real C++ Reducer on the CPU, whose log has the sizes of its buckets.
"""
import argparse
import contextlib
import json
import math
import sys
from pathlib import Path
from unittest import mock

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as funcol
import torch.distributed._tools.fsdp2_mem_tracker as fsdp2
import transformers as hf
from torch.distributed._tools import mem_tracker
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

import sharded
import tessera
from graphs import GRAPHS, recorded, short, without_lines
from tessera import _trace_ddp

AT = GRAPHS / 'ranks.json'
HEADROOM = 512  # what a block is rounded to


# ---- PyTorch's own account ----

@contextlib.contextmanager
def tracking(found, number, model, optimizer):
    """Run the third step within a tracker, with the mode that adds gradients in place on top of it once more."""
    if number != 2:
        yield
        return
    adding = _get_current_dispatch_mode_stack()[-1]
    if hasattr(model, 'unshard'):
        tracker = fsdp2.FSDPMemTracker(model, optimizer)
    else:
        tracker = mem_tracker.MemTracker()
        tracker.track_external(model, optimizer, *(bucket.contents for bucket in model.reducer.buckets))
    with tracker, adding:
        yield
    found.append((tracker, model))


def counted(name):
    """Peaks of the third step. The tracker keeps references, so steps after that differ."""
    found = []
    sharded.around.append(lambda *step: tracking(found, *step))
    # Newer trackers don't count ops within a fake mode that was not active when they began: those that `adding` takes out of it.
    with contextlib.suppress(tessera.TraceError), contextlib.ExitStack() as undo:
        for module in (fsdp2, mem_tracker):
            if hasattr(module, 'active_fake_mode'):
                undo.enter_context(mock.patch.object(module, 'active_fake_mode', lambda: None))
        tessera.trace(sharded.SHARDED[name], ranks=sharded.RANKS)
    sharded.around.pop()
    tracker, model = found[0]
    out = {'peak_bytes': on_card(tracker.get_tracker_snapshot('peak'))}
    if hasattr(model, 'unshard'):
        states = tracker.memory_tracking[model].snapshots
        for phase, state in (('forward', fsdp2._FSDPModState.PEAK_FW), ('backward', fsdp2._FSDPModState.PEAK_BW)):
            out[f'{phase}_bytes'] = max(map(on_card, states[state]))
    return out


def on_card(snapshot):
    return sum(sizes['Total'] for device, sizes in snapshot.items() if device.type == 'cuda')


# ---- The graph's ----

def rounded(size):
    return math.ceil(size / HEADROOM) * HEADROOM


def peaks(document):
    """Of the third step and its phases."""
    slots = [rounded(size) for size in document['slots']['bytes']]
    live = sum(slots[:document['static']])
    for step in range(3):
        phases, out = [], {'peak': live}
        for word, subject, *_ in document['instructions']:
            if word == 'begin':
                phases.append(document['phases'][subject])
            elif word == 'end':
                phases.pop()
            elif word == 'new' or (word == 'once' and step == 0):
                live += slots[subject]
            elif word == 'drop' or (word == 'drop_previous' and step):
                live -= slots[subject]
            for phase in ('peak', *phases):
                out[phase] = max(out.get(phase, 0), live)
    return {f'{phase}_bytes': out[phase] for phase in ('peak', 'forward', 'backward')}


# ---- Buckets ----

def buckets():
    """The sizes of our buckets, and of the buckets in C++, in bytes."""
    for cap in (None, 0.25, 4):
        original, found = _trace_ddp.Reducer._make, []

        def noted(self, indices, original=original, found=found):
            original(self, indices)
            found[:] = [bucket.contents.numel() * bucket.contents.element_size() for bucket in self.buckets]
        _trace_ddp.Reducer._make = noted
        try:
            tessera.trace(sharded.ddp(bucket_cap_mb=cap), ranks=sharded.RANKS)
        finally:
            _trace_ddp.Reducer._make = original
        real = of_cpp(cap)
        print(f'# buckets of {cap or "1 and 25"} MiB: {found}')
        yield f'buckets of {found} bytes instead of {real}', found != real


def of_cpp(cap):
    """The buckets of the C++ Reducer on the CPU, with one rank: they do not depend on the number of ranks."""
    dist.init_process_group('gloo', rank=0, world_size=1, store=dist.HashStore())
    try:
        model = torch.nn.parallel.DistributedDataParallel(sharded.model_of(), bucket_cap_mb=cap)
        for _ in range(3):
            ids = torch.zeros(2, 64, dtype=torch.long)
            model(ids, ids).backward()
        data = model._get_ddp_logging_data()
    finally:
        dist.destroy_process_group()
    return [int(size) for size in data['rebuilt_bucket_sizes'].split(',')]


# ---- Tensor parallelism ----

def parallel():
    """DTensor runs ops on whole tensors to find out shapes, which take no memory: of the logits, each rank has its share."""
    words, batch, rows = 8000, 4, 128
    slots = tessera.trace(sharded.tensor_parallel(words, batch, rows), ranks=sharded.RANKS)['slots']
    largest = max(size for size, category in zip(slots['bytes'], slots['category']) if category != 'gradient')
    share = batch * rows * words // sharded.RANKS * 4
    yield f'{largest} bytes instead of {share}', largest != share
    meshes = []

    def program():
        mesh = dist.init_device_mesh('cuda', (2, 4), mesh_dim_names=('data', 'model'))
        meshes.extend(one.get_coordinate() for one in (mesh, mesh['model'], mesh._flatten('all')))
    with contextlib.suppress(tessera.TraceError):  # it does not train
        tessera.trace(program, ranks=sharded.RANKS, value=1.0)
    yield f'coordinates of rank 0: {meshes}', meshes != [[0, 0], [0], [0]]


def waited():
    """Waiting for a collective takes no memory: it returns the tensor that it waits for, as the real process group of one rank shows."""
    found = []

    def gathers(count, device):
        gathered = torch.ops._c10d_functional.all_gather_into_tensor(torch.ones(4, device=device), count, dist.group.WORLD.group_name)
        found.append(torch.ops._c10d_functional.wait_tensor(gathered) is gathered)

    def program():
        dist.init_process_group('nccl')
        gathers(sharded.RANKS, 'cuda')
    dist.init_process_group('gloo', rank=0, world_size=1, store=dist.HashStore())
    gathers(1, 'cpu')
    dist.destroy_process_group()
    with contextlib.suppress(tessera.TraceError):  # it does not train
        tessera.trace(program, ranks=sharded.RANKS, value=1.0)
    yield f'what a wait returns is what it waits for: {found}', found != [True, True]


# ---- Expert parallelism ----

def exchanged():
    """Ranks tell each other how many tokens they send. All have the same routing, so each gets from all what it sends to itself."""
    for routing, sent, got in (('balanced', [16] * 8, [16] * 8), ('worst', [114, *[2] * 7], [114] * 8)):
        found = []

        def program(found=found):
            dist.init_process_group('nccl')
            chosen = torch.randn(64, 16, device='cuda').topk(2, -1).indices
            counts = torch.histc(chosen.flatten(), bins=16, min=0, max=16)
            others = funcol.wait_tensor(funcol.all_to_all_single(counts, None, None, group=dist.group.WORLD))
            found.extend(numbers.view(sharded.RANKS, -1).sum(1).tolist() for numbers in (counts, others))
        with contextlib.suppress(tessera.TraceError):  # it does not train
            tessera.trace(program, ranks=sharded.RANKS, routing=routing, value=1.0)
        yield f'{routing}: tokens sent and received: {found}', found != [sent, got]


# ---- What is refused ----

def refused():
    from torch.distributed.fsdp import CPUOffloadPolicy, FullyShardedDataParallel

    def wrapped():
        dist.init_process_group('nccl')
        FullyShardedDataParallel(sharded.model_of())

    def hooked():
        dist.init_process_group('nccl')
        model = torch.nn.parallel.DistributedDataParallel(sharded.model_of().to('cuda'))
        model.register_comm_hook(None, lambda state, bucket: None)

    model = sharded.model_of()
    for program, options, expected in (
            (wrapped, {'ranks': 8}, 'FSDP1'), (hooked, {'ranks': 8}, 'communication hook'),
            (sharded.fsdp2(offload_policy=CPUOffloadPolicy()), {'ranks': 8}, 'CPUOffloadPolicy'),
            (sharded.fsdp2(), {}, 'ranks=N'), (lambda: None, {'ranks': 8}, 'makes no process group'),
            (lambda: None, {'ranks': 0}, 'at least 1, not 0'), (lambda: None, {'ranks': 8, 'model': model}, 'needs no model')):
        message = 'nothing'
        try:
            tessera.trace(program, **options)
        except tessera.TraceError as error:
            message = str(error)
        yield f'{expected!r} instead of {message!r}', expected not in message
        yield 'a process group stays', dist.is_initialized()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--check', action='store_true')
    parser.add_argument('names', nargs='*', metavar='NAME')
    given = parser.parse_args()
    known = json.loads(AT.read_text(encoding='utf-8')) if AT.exists() else {}
    wrong = 0
    for name in given.names or sharded.SHARDED:
        document = short(tessera.trace(sharded.SHARDED[name], ranks=sharded.RANKS))
        found = {'torch': torch.__version__, 'transformers': hf.__version__, **counted(name)}
        ours = peaks(document)
        is_right = all(ours[key] == found[key] for key in ours if key in found) and (
            not given.check or (known.get(name) == found and recorded(name) == without_lines(document)))
        wrong += not is_right
        print(f'{"ok" if is_right else "not ok"} - {name}: {ours}, {found}', flush=True)
        known[name] = found
        if not given.check:
            (GRAPHS / f'{name}.graph').write_text(json.dumps(document, separators=(',', ':')) + '\n', encoding='utf-8')
    for what, is_wrong in (*buckets(), *parallel(), *waited(), *exchanged(), *refused()) if not given.names else ():
        wrong += bool(is_wrong)
        if is_wrong:
            print(f'not ok - {what}')
    if not given.check:
        AT.write_text(json.dumps(known, indent=1, sort_keys=True) + '\n', encoding='utf-8')
    return wrong > 0


if __name__ == '__main__':
    sys.exit(main())
