"""Step graphs of one rank of 8, simulated.

tests/torch/ranks.py traced them: a transformer under fully_shard(), and in DistributedDataParallel. Without what kernels allocate while they
run, peaks must be those that PyTorch's FSDPMemTracker counted (graphs/ranks.json); bytes of parameters, gradients and optimizer state must match the formula; and
gathered memory must be on PyTorch's streams, prefetched, and have the category 'communication'.
"""
import json
import math
from collections import defaultdict

import temporaries
from support import HERE, cases

GRAPHS = HERE / 'graphs'
KNOWN = json.loads((GRAPHS / 'ranks.json').read_text(encoding='utf-8'))
RANKS, WIDTH, LAYERS = 8, 128, 4
# High priority streams are numbered from 33: that of copies for all-gathers, of all-gathers, of reduce-scatters.
GATHER, SCATTER = 33, 35


def shapes():
    """Of the parameters by group of fully_shard(): the rest of the model, and each block. The head is the embedding."""
    norm = [(WIDTH,), (WIDTH,)]
    block = [*norm, *norm, (3 * WIDTH, WIDTH), (WIDTH, WIDTH), (4 * WIDTH, WIDTH), (4 * WIDTH,), (WIDTH, 4 * WIDTH), (WIDTH,)]
    return [[(500, WIDTH), (64, WIDTH), *norm], *[block] * LAYERS]


def elements(shape):
    return math.prod(shape)


def shard(shape):
    """Rows are divided by the ranks, rounded up: all ranks have as many, the last ones' padded."""
    return math.ceil(shape[0] / RANKS) * math.prod(shape[1:])


WHOLE = sum(elements(shape) for group in shapes() for shape in group)
SHARD = sum(shard(shape) for group in shapes() for shape in group)
GATHERED = [RANKS * sum(map(shard, group)) for group in shapes()]


def of_graph(name):
    return json.loads((GRAPHS / f'{name}.graph').read_text(encoding='utf-8'))


def sums(graph):
    """Bytes of each category."""
    out = defaultdict(int)
    for size, category in zip(graph['slots']['bytes'], graph['slots']['category']):
        out[category] += size
    return out


def simulated(tessera, work, name, path=None):
    snapshot = work / f'{name}.pickle'
    return tessera.device('simulate', path or GRAPHS / f'{name}.graph', '--steps', '3', '--fresh-process', '--categories', '-q', '-o',
                          snapshot), snapshot


def tensors_at(rows, event):
    """Bytes of all tensors after an event, each in whole blocks of 512. Workspaces do not count as tensors, and a part of a block can be unused."""
    return sum(-int(row['requested_bytes']) // 512 * -512 for row in rows if row['category'] != 'workspace'
               and int(row['birth_event']) <= event < int(row['death_event'] or event + 1))


# ---- The tests ----

@cases('name', sorted(KNOWN))
def test_peaks(tessera, work, name):
    """What PyTorch's own tracker counted, of all of the third step and of its phases."""
    known = KNOWN[name]
    path = work / f'{name}.tracked.graph'
    path.write_text(json.dumps(temporaries.without(of_graph(name))), encoding='utf-8')
    device, snapshot = simulated(tessera, work, f'{name}.tracked', path)
    workspaces = sum(entry['bytes'] for entry in device['categories'] if entry['name'] == 'workspace')
    found = tensors_at(list(tessera.allocations(snapshot)), device['peak']['event'])
    assert found == known['peak_bytes'], (found, device['peak'])
    for phase in device['phases']:
        found = phase['allocated_bytes'] - workspaces
        expected = known.get(f'{phase["name"]}_bytes', found)
        assert found == expected, (phase, expected)


@cases('name', sorted(KNOWN))
def test_bytes(name):
    """Four bytes for an element of a parameter or a gradient, eight of AdamW's state."""
    found, count = sums(of_graph(name)), WHOLE if name == 'ddp' else SHARD
    assert found['parameter'] == found['gradient'] == 4 * count, found
    assert found['optimizer_state'] == 8 * count, found


def gathers(name, width=4):
    """Sizes of all-gathers in the order in which they begin. A prefetched one begins before the one before it goes."""
    graph = of_graph(name)
    sizes, streams = graph['slots']['bytes'], graph['slots']['stream']
    live, out, together = set(), [], 0
    flat = {width * count for count in GATHERED}
    for word, slot, *_ in graph['instructions']:
        if word == 'new' and streams[slot] == GATHER and sizes[slot] in flat:
            out.append(sizes[slot] // width)
            live.add(slot)
            together = max(together, len(live))
        elif word == 'drop':
            live.discard(slot)
    return out, together


def test_resharded():
    """The root gathers, and each block twice: in forward in order, in backward in reverse."""
    found, together = gathers('fsdp2')
    root, block = GATHERED[0], GATHERED[1]
    assert found == [root, *[block] * 2 * LAYERS], found
    assert together == 2, together


def test_kept():
    found, _ = gathers('fsdp2-no-reshard')
    assert found == GATHERED, found


def test_mixed():
    """Gathers of two bytes for each element, reductions of four, and gradients of four."""
    found, _ = gathers('fsdp2-bf16', width=2)
    assert found == [GATHERED[0], *[GATHERED[1]] * 2 * LAYERS], found
    graph = of_graph('fsdp2-bf16')
    slots = [*zip(graph['slots']['bytes'], graph['slots']['category'], graph['slots']['stream'])]
    inputs = sorted(size for size, category, stream in slots if category == 'communication' and stream == 0
                    and size in {4 * count for count in GATHERED})
    assert inputs == sorted(4 * count for count in GATHERED), inputs
    outputs = sorted(size for size, category, stream in slots if category == 'gradient')
    assert outputs == sorted(4 * count // RANKS for count in GATHERED), outputs
    assert all(stream == SCATTER for _, category, stream in slots if category == 'gradient')


def test_streams(tessera, work):
    """The allocator keeps segments apart by stream, and the snapshot has the streams."""
    _, snapshot = simulated(tessera, work, 'fsdp2')
    rows = [row for row in tessera.allocations(snapshot) if row['stream']]
    found = {int(row['stream']) for row in rows}
    assert found == {0, GATHER, SCATTER}, found
    regions = defaultdict(set)  # 2 MiB pages of an address: a segment is never shared between streams
    for row in rows:
        regions[int(row['address']) >> 21].add(int(row['stream']))
    assert all(len(owners) == 1 for owners in regions.values())


def test_peak_names(tessera, work):
    """`peak` lists what is gathered, with its category."""
    _, snapshot = simulated(tessera, work, 'fsdp2')
    stacks = tessera.device('peak', snapshot, '-q', '--top', 0)['stacks']
    found = sum(stack['categories'].get('communication', 0) for stack in stacks)
    # Parameters of one block and of the rest of the model, and the all-gather of the block that comes next.
    assert found == 4 * (GATHERED[0] + 2 * GATHERED[1]), found


def test_buckets():
    """Two: of the first MiB of gradients to arrive, and of the rest, which is below 25 MiB."""
    graph = of_graph('ddp')
    found = sorted(size for size, category in zip(graph['slots']['bytes'], graph['slots']['category']) if category == 'communication')
    assert len(found) == 2 and sum(found) == 4 * WHOLE, found
    largest = max(elements(shape) for group in shapes() for shape in group)
    assert 1 << 20 <= min(found) < (1 << 20) + 4 * largest, found
    assert all(word != 'new' for word, slot, *_ in graph['instructions'] if slot < len(graph['slots']['category'])
               and graph['slots']['category'][slot] == 'communication' and word in ('new', 'drop'))
