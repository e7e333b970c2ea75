"""example.py FOLDER: the files of the reports that docs/card.md explains. They look like those of a real run, and are made here."""
import json
import pathlib
import pickle
import sys

MIB = 1 << 20
START_US = 1_795_000_000_000_000
MINUTE_US = 60_000_000
TOTAL = 95_830 * MIB


def frames(name, line):
    return [{'name': name, 'filename': '/job/train.py', 'line': line}, {'name': 'main', 'filename': '/job/train.py', 'line': 210}]


class Trace:
    """Segments of one block each, with the time at which each comes and goes; sizes in MiB, times in minutes."""

    def __init__(self):
        self.events, self.held, self.address, self.notes = [], {}, 0x7f3000000000, []

    def event(self, action, minute, address, size, stack, **more):
        self.events.append({'action': action, 'addr': address, 'size': size * MIB, 'stream': 0,
                            'time_us': START_US + int(minute * MINUTE_US), 'frames': stack, **more})

    def take(self, minute, name, size, stack, allocates=True):
        self.held[name] = self.address, size, stack, allocates
        self.event('segment_alloc', minute, self.address, size, stack)
        if allocates:
            self.event('alloc', minute, self.address, size, stack)
        self.address += (size + 1024) * MIB

    def drop(self, minute, name):
        address, size, stack, _ = self.held.pop(name)
        for action in ('free_requested', 'free_completed', 'segment_free'):
            self.event(action, minute, address, size, stack)

    def note(self, name, first, end):
        for stage, minute in (('START', first), ('END', end)):
            self.notes.append({'stage': stage, 'name': name, 'device': 0, 'time_us': START_US + int(minute * MINUTE_US)})

    def write(self, path, sidecar):
        segments = []
        for address, size, stack, allocates in sorted(self.held.values(), key=lambda row: row[0]):
            block = {'address': address, 'size': size * MIB, 'requested_size': size * MIB if allocates else 0,
                     'state': 'active_allocated' if allocates else 'inactive', 'frames': stack if allocates else []}
            used = size * MIB if allocates else 0
            segments.append({'device': 0, 'address': address, 'total_size': size * MIB, 'allocated_size': used, 'active_size': used,
                             'requested_size': used, 'stream': 0, 'segment_type': 'large', 'segment_pool_id': (0, 0),
                             'is_expandable': False, 'frames': stack, 'blocks': [block]})
        path = pathlib.Path(path)
        path.write_bytes(pickle.dumps({'segments': segments, 'device_traces': [sorted(self.events, key=lambda event: event['time_us'])],
                                       'allocator_settings': {}, 'external_annotations': self.notes}, protocol=4))
        path.with_suffix('.json').write_text(json.dumps({'schema': 'tessera/capture/1', **sidecar}))


def column(*sizes):
    return [size * MIB for size in sizes]


def times(*minutes):
    return [START_US + int(minute * MINUTE_US) for minute in minutes]


def trainer(folder):
    """One rank of a job with six process groups, one of which grows, and a process that was left over. It runs out of memory."""
    trace = Trace()
    trace.take(0, 'weights', 31_900, frames('build', 40))
    trace.take(1, 'states', 24_600, frames('step', 181))
    trace.take(2, 'activations', 18_020, frames('forward', 92))
    trace.take(2, 'cache', 62, frames('forward', 96), allocates=False)
    groups = {'default': 1_930, 'dp (0)': 2_104, 'tp (1)': 1_402, 'pp (2)': 918, 'cp (4)': 396}
    grows = [310, 480, 1_020, 1_610, 2_190, 2_748]
    reserved = [31_900, 56_500, 74_582, 74_582, 74_582, 74_582]
    allocated = [31_900, 56_500, 74_520, 74_520, 74_520, 74_520]
    fixed = 596 + 530 + 34 + 6_750 + sum(groups.values())  # driver, context, cublas, the process
    rest = [318, 322, 331, 331, 344, 349]
    used = [reserved[i] + fixed + grows[i] + rest[i] for i in range(6)]
    own = [reserved[i] + 530 + 34 + sum(groups.values()) + grows[i] + rest[i] - 205 for i in range(6)]
    free = TOTAL // MIB - used[-1]
    trace.event('oom', 10.02, free * MIB, 4_096, frames('attention', 77), device_free=free * MIB)
    names = [*groups, 'ep (3)']
    sizes = [[size] * 6 for size in groups.values()] + [grows]
    trace.write(folder / 'rank0.pickle', {
        'time_us': times(10.02)[0], 'process': {'pid': 88_310, 'host': 'node4'}, 'ranks': {'rank': 0, 'world_size': 64},
        'devices': [{'device': 0, 'total_bytes': TOTAL, 'free_bytes': free * MIB, 'outside_pytorch_bytes': (used[-1] - reserved[-1]) * MIB}],
        'card': {
            'period_ms': 500, 'samples_taken': 1_204, 'samples_kept': 6, 'sampling_us': 51_300, 'step_us': 2_310_000, 'nvml': '12.570.86',
            'nvml_error': None,
            'devices': [{
                'device': 0, 'name': 'a card of 94 GB', 'uuid': 'GPU-5b1e', 'total_bytes': TOTAL, 'driver_bytes': 596 * MIB,
                'context_bytes': 530 * MIB, 'context_from': 'nvml', 'libraries': [{'name': 'cublas', 'bytes': 34 * MIB, 'from': 'first_use'}],
                'communicators': [{'name': name, 'backend': 'nccl', 'ranks': 64 if name == 'default' else 8, 'from': 'stats', 'suspended': False}
                                  for name in names],
                'processes': [{'pid': 71_002, 'name': 'python3'}], 'marks': ['step 0', 'step 1', 'snapshot'],
                'samples': {
                    'time_us': times(0.5, 2.5, 4, 6, 8, 10), 'mark': [0, 1, None, None, None, 2], 'total_used_bytes': column(*used),
                    'allocated_bytes': column(*allocated), 'reserved_bytes': column(*reserved), 'process_bytes': column(*own),
                    'communicator_bytes': [column(*row) for row in sizes], 'other_process_bytes': [column(*[6_750] * 6)]}}]}})


def colocated(folder):
    """A trainer and an engine that take turns on a card; the trainer's memory does not fit beside what the engine still has."""
    engine, actor = Trace(), Trace()
    engine.take(0, 'weights', 15_300, frames('load', 12))
    engine.take(0.5, 'kv', 44_000, frames('allocate_kv', 30))
    engine.note('rollout', 1, 4)
    engine.drop(4.2, 'kv')
    engine.take(8.2, 'kv', 44_000, frames('allocate_kv', 30))
    engine.note('rollout', 8.5, 10)
    actor.take(0, 'shard', 22_800, frames('build', 40))
    actor.note('training', 4.5, 8)
    actor.take(5, 'activations', 55_146, frames('forward', 92))
    actor.event('oom', 6, 612 * MIB, 4_096, frames('backward', 95), device_free=612 * MIB)
    actor.drop(7.9, 'activations')
    rest = 596 + 205
    at = (0.2, 2, 4.3, 6.0, 9)
    holds = {'engine': ([15_300, 59_300, 15_300, 15_300, 59_300], 640), 'trainer': ([22_800, 22_800, 22_800, 77_946, 22_800], 530)}
    used = [sum(rows[i] + context for rows, context in holds.values()) + rest for i in range(5)]
    for trace, name, pid in ((engine, 'engine', 501), (actor, 'trainer', 502)):
        rows, context = holds[name]
        other, its = holds['trainer' if name == 'engine' else 'engine']
        trace.write(folder / f'{name}.pickle', {'process': {'pid': pid, 'host': 'node4'}, 'card': {'period_ms': 500, 'nvml': '12.570.86', 'devices': [{
            'device': 0, 'name': 'a card of 94 GB', 'uuid': 'GPU-77a0', 'total_bytes': TOTAL, 'driver_bytes': 596 * MIB,
            'context_bytes': context * MIB, 'context_from': 'nvml', 'processes': [{'pid': 1003 - pid, 'name': 'python3'}],
            'samples': {'time_us': times(*at), 'total_used_bytes': column(*used), 'allocated_bytes': column(*rows), 'reserved_bytes': column(*rows),
                        'other_process_bytes': [column(*(row + its for row in other))]}}]}})


def write(folder):
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    trainer(folder)
    colocated(folder)


if __name__ == '__main__':
    write(sys.argv[1])
