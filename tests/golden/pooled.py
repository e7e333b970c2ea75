"""pooled.py: random jobs over several pools, CUDA graphs, MemPools and streams, and by brute force what their pools hold.

    python3 tests/golden/pooled.py SEED FILE

The allocator here is written after PyTorch's rules, not after tessera's code: it keeps plain lists of blocks and searches all of them. What
is pinned is counted page by page of every state, and who pins by taking each stack's blocks away and looking at what is empty then. A job is
the list of its requests, so that it can be repeated with other pools.
"""
import argparse
import copy
import pickle
import random

from runs import CALL, MAIN, TORCH, at

MIB = 1 << 20
SMALL, LARGE = 2 * MIB, 20 * MIB
RECORDED, OWN, RANGES = 0x10_0000_0000, 0x7f00_0000_0000, 0x1000_0000_0000
RESERVATION = (1 << 40) // 8 * 9
DEFAULT = (0, 0)
MAIN_STREAM, SIDE, CAPTURE = 0, 0x55aa00, 0x55bb00


def frames_of(stack):
    return [{'name': name, 'filename': file, 'line': line} for name, file, line in reversed(stack)]


class Block:
    def __init__(self, address, size, state='free'):
        self.address, self.size, self.state = address, size, state  # free, used, waiting, unmapped
        self.requested, self.stack, self.number = 0, None, None

    @property
    def is_live(self):
        return self.state in ('used', 'waiting')

    def take(self, requested, stack, number):
        self.state, self.requested, self.stack, self.number = 'used', requested, stack, number


class Segment:
    """Consecutive blocks: a segment of cudaMalloc, or a reservation of expandable memory."""

    def __init__(self, key, address, size, is_range):
        self.key, self.address, self.is_range = key, address, is_range
        self.blocks = [Block(address, size, 'unmapped' if is_range else 'free')]

    @property
    def page(self):
        return LARGE if self.key[2] else SMALL

    def runs(self):
        """What is mapped without a gap: lists of blocks."""
        out, run = [], []
        for block in self.blocks + [None]:
            if block is not None and block.state != 'unmapped':
                run.append(block)
            elif run:
                out.append(run)
                run = []
        return out

    def tidy(self):
        """Join free neighbours, and unmapped ones."""
        kept = []
        for block in self.blocks:
            if kept and block.state == kept[-1].state and block.state in ('free', 'unmapped'):
                kept[-1].size += block.size
            else:
                kept.append(block)
        self.blocks = kept

    def cut(self, block, size, state):
        """The front of a free or unmapped block in another state."""
        at = self.blocks.index(block)
        front = Block(block.address, size, state)
        rest = [Block(block.address + size, block.size - size, block.state)] if block.size > size else []
        self.blocks[at:at + 1] = [front, *rest]
        return front


class Allocator:
    """PyTorch's, for settings that are all default but `expandable`."""

    def __init__(self, expandable=False, capacity=None, places=()):
        self.expandable, self.capacity = expandable, capacity
        self.segments, self.events, self.peak = [], [], 0
        self.places = {}  # addresses of segments, by size, in order
        for size, address in places:
            self.places.setdefault(size, []).append(address)
        self.has_places, self.next, self.next_range = bool(places), OWN if places else RECORDED, RANGES
        self.made = []  # (size, address) of segments
        self.given_back = {}  # addresses of segments that were released, by size: the driver hands them out again
        self.in_use = set()  # private pools
        self.stack = None

    # ---- sums ----

    @property
    def reserved(self):
        return sum(block.size for segment in self.segments for run in segment.runs() for block in run)

    def event(self, action, address, size, key):
        self.events.append({'action': action, 'addr': address, 'size': size, 'stream': key[1], 'pool_id': key[0],
                            'frames': self.stack, 'key': key})

    # ---- requests ----

    @staticmethod
    def rounded(size):
        return max(512, -(-size // 512) * 512)

    def of(self, key):
        return [segment for segment in self.segments if segment.key == key]

    def malloc(self, size, stack, number, pool=DEFAULT, stream=0):
        """The block; None if memory ran out."""
        wanted = self.rounded(size)
        key = (pool, stream, wanted > MIB)
        self.stack = stack
        found = self.best_fit(key, wanted) or self.grow(key, wanted)
        if not found:
            self.empty()
            found = self.grow(key, wanted)
        if not found:
            self.event('oom', self.capacity - self.reserved, wanted, key)
            return None
        segment, block = found
        rest = block.size - wanted
        if rest >= 512 if not key[2] or segment.is_range else rest > MIB:
            block = segment.cut(block, wanted, 'free')
        block.take(size, stack, number)
        self.event('alloc', block.address, size, key)
        self.peak = max(self.peak, self.reserved)
        return block

    def best_fit(self, key, wanted):
        fitting = sorted(((block.size, block.address, segment, i) for segment in self.of(key) for i, block in enumerate(segment.blocks)
                          if block.state == 'free' and block.size >= wanted), key=lambda one: one[:2])

        def could_be(one):
            size, _, segment, i = one
            after = segment.blocks[i + 1] if i + 1 < len(segment.blocks) else None
            return size + (after.size if after and after.state == 'unmapped' else 0)
        if not fitting:
            return None
        chosen = fitting[0]
        for other in fitting[1:]:
            if not chosen[2].is_range or could_be(other) >= could_be(chosen):
                break
            chosen = other
        return chosen[2], chosen[2].blocks[chosen[3]]

    def has(self, size):
        return self.capacity is None or self.reserved + size <= self.capacity

    def place(self, size):
        """The next recorded address of a segment of this size, if nothing is there, or one of our own."""
        while self.places.get(size):
            address = self.places[size].pop(0)
            if all(address + size <= segment.address or address >= segment.blocks[-1].address + segment.blocks[-1].size
                   for segment in self.segments):
                return address
            break
        if not self.has_places and self.given_back.get(size):
            return self.given_back[size].pop()
        self.next += size
        return self.next - size

    def grow(self, key, wanted):
        if self.expandable:
            return self.grow_range(key, wanted)
        size = SMALL if not key[2] else LARGE if wanted < 10 * MIB else -(-wanted // SMALL) * SMALL
        if not self.has(size):
            return None
        segment = Segment(key, self.place(size), size, False)
        self.segments.append(segment)
        self.made.append((size, segment.address))
        self.event('segment_alloc', segment.address, size, key)
        return segment, segment.blocks[0]

    def grow_range(self, key, wanted):
        place = None
        for segment in self.of(key):
            for i, block in enumerate(segment.blocks):
                if block.state != 'unmapped':
                    continue
                first = i - 1 if i and segment.blocks[i - 1].state == 'free' else i
                room = 0
                for other in segment.blocks[first:]:
                    if other.is_live:
                        break
                    room += other.size
                if room >= wanted:
                    place = segment, segment.blocks[first]
                    break
            if place:
                break
        if not place:
            segment = Segment(key, self.next_range, RESERVATION, True)
            self.next_range += 2 * RESERVATION
            self.segments.append(segment)
            place = segment, segment.blocks[0]
        segment, block = place
        start = block.address
        while True:
            block = next(one for one in segment.blocks if one.address == start)
            if block.state == 'free' and block.size >= wanted:
                return segment, block
            missing = wanted - (block.size if block.state == 'free' else 0)
            hole = block if block.state == 'unmapped' else segment.blocks[segment.blocks.index(block) + 1]
            size = min(hole.size, -(-missing // segment.page) * segment.page)
            if not self.has(size):
                return None
            mapped = segment.cut(hole, size, 'free')
            self.event('segment_map', mapped.address, size, key)
            segment.tidy()

    def free(self, block, waits, stack):
        self.stack = stack
        segment = next(one for one in self.segments if block in one.blocks)
        self.event('free_requested', block.address, block.requested, segment.key)
        block.state = 'waiting'
        if not waits:
            self.complete(block)

    def complete(self, block):
        if block.state != 'waiting':
            return
        segment = next(one for one in self.segments if block in one.blocks)
        self.event('free_completed', block.address, block.requested, segment.key)
        block.state, block.requested, block.stack, block.number = 'free', 0, None, None
        segment.tidy()

    def empty(self):
        """empty_cache(): whether anything was released."""
        before = len(self.events)
        for segment in list(self.segments):
            for block in list(segment.blocks):
                if block.state == 'waiting':
                    self.complete(block)
        released = False
        for segment in list(self.segments):
            if segment.key[0] in self.in_use:
                continue
            if not segment.is_range:
                if all(block.state == 'free' for block in segment.blocks):
                    self.segments.remove(segment)
                    self.given_back.setdefault(segment.blocks[0].size, []).append(segment.address)
                    self.event('segment_free', segment.address, segment.blocks[0].size, segment.key)
                    released = True
                continue
            for block in list(segment.blocks):
                if block.state != 'free':
                    continue
                offset = block.address - segment.address
                low, high = -(-offset // segment.page) * segment.page, (offset + block.size) // segment.page * segment.page
                if low >= high:
                    continue
                i = segment.blocks.index(block)
                parts = [(offset, low, 'free'), (low, high, 'unmapped'), (high, offset + block.size, 'free')]
                segment.blocks[i:i + 1] = [Block(segment.address + a, b - a, state) for a, b, state in parts if a < b]
                self.event('segment_unmap', segment.address + low, high - low, segment.key)
                released = True
            segment.tidy()
            if all(block.state == 'unmapped' for block in segment.blocks):
                self.segments.remove(segment)
        assert released or all(one['action'] == 'free_completed' for one in self.events[before:])
        return released


# ---- the truth about a state ----

def name_of(stack):
    return stack[0]['line'] if stack else None


def units_of(segments):
    """(key, address, size, free, blocks) of every segment, and of expandable memory of every page that is mapped."""
    for segment in segments:
        for run in segment.runs():
            begin, end = run[0].address, run[-1].address + run[-1].size
            step = segment.page if segment.is_range else end - begin
            for address in range(begin, end, step):
                size = min(step, end - address)
                free = sum(max(0, min(block.address + block.size, address + size) - max(block.address, address))
                           for block in run if block.state == 'free')
                blocks = [block for block in run if block.is_live and block.address < address + size and block.address + block.size > address]
                yield segment.key, address, size, free, blocks


def measure(segments):
    """What a state holds: sums by pool, who pins what, and the units that are pinned."""
    pools, holders, units = {}, {}, []
    for segment in segments:
        for run in segment.runs():
            pools.setdefault(segment.key, {'segments': 0})['segments'] += 1
    for key, address, size, free, blocks in units_of(segments):
        sums = pools[key]
        kind = 'kept' if key[0] != DEFAULT else 'pinned' if blocks else 'releasable'
        for name, value in (('reserved', size), ('used', size - free), (kind, free)):
            sums[name + '_bytes'] = sums.get(name + '_bytes', 0) + value
        if blocks and free:
            units.append((address, size, free, key, len(blocks), sum(block.size for block in blocks), len({name_of(one.stack) for one in blocks})))
    full = [unit for unit in units_of(segments) if unit[3] and unit[4]]
    for key in pools:
        for stack in {name_of(block.stack) for unit in full if unit[0] == key for block in unit[4]}:
            # Take the blocks of the stack away: what is empty then, of what was free in part?
            own = [unit for unit in full if unit[0] == key and not [one for one in unit[4] if name_of(one.stack) != stack]]
            shared = [unit for unit in full if unit[0] == key and unit not in own and [one for one in unit[4] if name_of(one.stack) == stack]]
            blocks = {block.address: block.size for unit in own for block in unit[4]}
            holders[key, stack] = {'segments': len(own), 'segment_bytes': sum(unit[2] for unit in own), 'free_bytes': sum(unit[3] for unit in own),
                                   'blocks': len(blocks), 'block_bytes': sum(blocks.values()), 'shared_segments': len(shared),
                                   'shared_free_bytes': sum(unit[3] for unit in shared)}
    return pools, holders, sorted(units, key=lambda unit: (-unit[2], unit[0]))


# ---- jobs ----

class Job:
    """A training loop with leftovers, beside graphs that are captured and MemPools. Every request has its number; `states` are copies after
    each event."""

    def __init__(self, seed):
        self.random = pick = random.Random(seed)
        self.expandable = pick.random() < 0.4
        self.has_pool_ids = pick.random() < 0.6
        self.requests = []  # ('take', number, size, pool, stream, stack), ('give', number, waits, stack), ('complete', number), ('empty',)
        self.live, self.waiting, self.count = {}, [], 0
        self.kinds = {}  # of private pools
        self.memo = {}
        self.dies = pick.random() < 0.3
        self.build()
        self.run()

    # ---- what the program does ----

    def line(self, *stack):
        """One list of frames for equal stacks, outermost first."""
        return self.memo.setdefault(stack, frames_of(stack))

    def take(self, size, stack, pool=DEFAULT, stream=MAIN_STREAM):
        number = self.count
        self.count += 1
        self.requests.append(('take', number, size, pool, stream, stack))
        self.live[number] = pool
        return number

    def give(self, number, waits=False, stack=None):
        self.requests.append(('give', number, waits, stack))
        del self.live[number]
        if waits:
            self.waiting.append(number)

    def poll(self):
        while self.waiting:
            self.requests.append(('complete', self.waiting.pop(0)))

    def size(self):
        pick = self.random
        kind = pick.random()
        if kind < 0.35:
            return pick.randrange(1, MIB)
        return pick.randrange(MIB + 1, 9 * MIB) if kind < 0.8 else pick.randrange(9 * MIB, 60 * MIB)

    def build(self):
        pick = self.random
        setup = [self.take(self.size(), self.line(*MAIN, at(10 + i), ('__init__', '/work/model.py', 5 + i))) for i in range(pick.randrange(2, 6))]
        pools = [(n + 1, 0) for n in range(pick.randrange(0, 3))] + [(0, n + 1) for n in range(pick.randrange(0, 3))]
        kept, captured = [], []
        for step in range(pick.randrange(3, 7)):
            for pool in pools[len(captured):]:
                if step and pick.random() < 0.5:
                    break
                self.capture(pool, kept)
                captured.append(pool)
            self.step(step, kept, captured)
            if pick.random() < 0.25:
                self.poll()
                self.requests.append(('empty',))
            if pick.random() < 0.1 and setup:
                self.give(setup.pop())
        if self.dies:
            self.take(1 << 42, self.line(*MAIN, at(77), ('huge', '/work/huge.py', 7)))

    def capture(self, pool, kept):
        pick = self.random
        shows = pool[1] and pick.random() < 0.5  # a frame of the capture stays on the stack
        self.kinds[pool] = 'graph' if pool[0] or shows else 'handle'
        stream = CAPTURE if self.kinds[pool] == 'graph' else pick.choice([MAIN_STREAM, SIDE])
        inner = [('run', TORCH + '_inductor/cudagraph_trees.py', 900)] if shows else []
        made = []
        for i in range(pick.randrange(2, 9)):
            made.append(self.take(self.size(), self.line(*MAIN, at(20), *inner, ('layer', '/work/graph.py', 100 * sum(pool) + i)), pool, stream))
            if len(made) > 1 and pick.random() < 0.6:
                self.give(made.pop(pick.randrange(len(made))))
        kept += made

    def step(self, step, kept, pools):
        pick, made = self.random, []
        for i in range(pick.randrange(4, 12)):
            line = self.line(*MAIN, at(31), CALL, ('forward', '/work/model.py', 200 + i))
            made.append(self.take(self.size(), line))
            if pick.random() < 0.1:  # a leftover
                kept.append(self.take(pick.randrange(1, 64 << 10) if pick.random() < 0.5 else self.size(),
                                      self.line(*MAIN, at(31), CALL, ('log', '/work/log.py', 3))))
            if pools and pick.random() < 0.15:
                pool = pick.choice(pools)
                if self.kinds[pool] == 'handle':
                    made.append(self.take(self.size(), self.line(*MAIN, at(33), ('buffer', '/work/comm.py', 9)), pool, MAIN_STREAM))
        engine = [*MAIN, at(32), ('backward', TORCH + '_tensor.py', 522),
                  ('torch::autograd::Engine::evaluate_function(torch::autograd::Node*)', '??', 0)]
        pick.shuffle(made)
        for number in made:
            if pick.random() < 0.5:
                self.give(self.take(self.size(), self.line(*engine, ('at::_ops::mm::call', '??', 0))))
            self.poll()
            self.give(number, pick.random() < 0.1)
        self.poll()
        for _ in range(2):
            self.give(self.take(self.size(), self.line(*MAIN, at(34), ('step', TORCH + 'optim/adamw.py', 220),
                                                       ('_single_tensor_adamw', TORCH + 'optim/adamw.py', 300))))
        if kept and pick.random() < 0.3:
            self.give(kept.pop(pick.randrange(len(kept))))

    # ---- how it went ----

    def run(self):
        """Everything as the program asks it: events, and the state after each."""
        a = Allocator(self.expandable, capacity=(1 << 40) if self.dies else None)
        a.in_use = set(self.kinds)
        self.states, self.released, blocks = [], set(), {}
        self.most_reserved, self.most_used = {}, {}
        for i, request in enumerate(self.requests):
            before = len(a.events)
            if request[0] == 'take':
                _, number, size, pool, stream, stack = request
                blocks[number] = a.malloc(size, stack, number, pool, stream)
            elif request[0] == 'give':
                a.free(blocks[request[1]], request[2], request[3])
            elif request[0] == 'complete':
                a.complete(blocks[request[1]])
            else:
                if a.empty():
                    self.released.add(i)
            self.follow(a)
            self.states += [None] * (len(a.events) - before - 1) + [copy.deepcopy(a.segments)] * (len(a.events) > before)
        self.allocator, self.events = a, a.events

    def follow(self, a):
        used, reserved = {}, {}
        for segment in a.segments:
            for run in segment.runs():
                for block in run:
                    reserved[segment.key] = reserved.get(segment.key, 0) + block.size
                    used[segment.key] = used.get(segment.key, 0) + (block.size if block.is_live else 0)
        for most, now in ((self.most_reserved, reserved), (self.most_used, used)):
            for key, size in now.items():
                most[key] = max(most.get(key, 0), size)

    def first_stacks(self):
        """By pool, the line of its first allocation."""
        out = {}
        for event in self.events:
            if event['action'] == 'alloc':
                out.setdefault(event['key'], name_of(event['frames']))
        return out

    def main_stream(self):
        default = {key: size for key, size in self.most_reserved.items() if key[0] == DEFAULT}
        return max(sorted(default), key=default.get)[1] if default else 0

    def again(self, pool_for):
        """The peak of what is reserved if each request's (pool, stream) is what `pool_for` returns. Pools that it makes private release nothing."""
        a = Allocator(self.expandable, places=self.allocator.made or [(0, 0)])
        a.in_use = set(self.kinds) | {'joined'}
        blocks, skipped = {}, set()
        for i, request in enumerate(self.requests):
            if request[0] == 'take':
                _, number, size, pool, stream, stack = request
                if size == 1 << 42:
                    skipped.add(number)
                    continue
                pool, stream = pool_for(pool, stream)
                blocks[number] = a.malloc(size, stack, number, pool, stream)
            elif request[0] == 'give':
                a.free(blocks[request[1]], request[2], request[3])
            elif request[0] == 'complete':
                a.complete(blocks[request[1]])
            elif i in self.released:
                a.empty()
        return a.peak

    def snapshot(self):
        return snapshot_of(self.allocator, self.has_pool_ids)

    def write(self, path):
        with open(path, 'wb') as file:
            pickle.dump(self.snapshot(), file, protocol=4)
        return path


def snapshot_of(allocator, has_pool_ids=True):
    """What PyTorch would have written."""
    rows = []
    for segment in sorted(allocator.segments, key=lambda one: one.address):
        (pool, stream, is_large), runs = segment.key, segment.runs()
        for run in runs:
            used = [block for block in run if block.is_live]
            rows.append({'device': 0, 'address': run[0].address, 'total_size': sum(block.size for block in run),
                         'allocated_size': sum(block.size for block in used if block.state == 'used'),
                         'active_size': sum(block.size for block in used), 'requested_size': sum(block.requested for block in used),
                         'stream': stream, 'segment_type': 'large' if is_large else 'small', 'segment_pool_id': pool,
                         'is_expandable': segment.is_range, 'frames': [],
                         'blocks': [{'address': block.address, 'size': block.size, 'requested_size': block.requested,
                                     'state': {'used': 'active_allocated', 'waiting': 'active_pending_free'}.get(block.state, 'inactive'),
                                     'frames': block.stack or []} for block in run]})
    trace = []
    for i, event in enumerate(allocator.events):
        row = {'action': event['action'], 'addr': event['addr'], 'size': event['size'], 'stream': event['stream'], 'time_us': 1000 + 10 * i}
        if event['action'] == 'oom':
            row['device_free'] = row.pop('addr')
        if has_pool_ids:
            row['pool_id'] = event['pool_id']
        if event['frames']:
            row['frames'] = event['frames']
        trace.append(row)
    return {'segments': sorted(rows, key=lambda row: row['address']), 'device_traces': [trace], 'external_annotations': [],
            'allocator_settings': {'PYTORCH_CUDA_ALLOC_CONF': '', 'expandable_segments': allocator.expandable}}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('seed', type=int)
    parser.add_argument('file')
    given = parser.parse_args()
    job = Job(given.seed)
    job.write(given.file)
    print(f'{len(job.events)} events, {len(job.kinds)} private pools, {"expandable" if job.expandable else "plain"}')


if __name__ == '__main__':
    main()
