"""growths.py: dumps of a job's ranks over time, without a trace, of which some ranks leak in known stacks at a known rate.

    python3 tests/golden/growths.py FOLDER SEED [--dumps N]

Each dump is a snapshot with segments alone and a sidecar with the time, the rank and the card, as tessera.record(every=..., trace=False)
leaves it. All ranks hold parameters and the optimizer's state, and activations that differ from dump to dump, because dumps are taken at
any moment. One rank leaks in two stacks, one in a single stack and with an odd dump, the others do not. Nothing here knows how tessera
fits a line.
"""
import argparse
import json
import pathlib
import pickle
import random

MIB = 1 << 20
START_US = 1_795_000_000_000_000
CARD, OUTSIDE = 80 << 30, 1 << 30


def frames(name, file, line):
    return [{'name': name, 'filename': f'/job/{file}', 'line': line}, {'name': 'main', 'filename': '/job/train.py', 'line': 12}]


STEADY = {'parameters': (frames('build', 'model.py', 20), 8 << 30), 'state': (frames('step', 'optimizer.py', 31), 16 << 30)}
NOISE = [(frames('forward', 'block.py', 40 + i), 256 * MIB) for i in range(12)]
CACHE, LIST = frames('append', 'cache.py', 9), frames('log_losses', 'metrics.py', 17)


class Job:
    """`leaks[rank]`: by line of the stack, bytes per hour."""

    def __init__(self, seed, ranks=6, dumps=40, minutes=1.0, noise=1.0):
        self.random = random.Random(seed)
        self.ranks, self.dumps, self.minutes, self.noise = ranks, dumps, minutes, noise
        chosen = self.random.sample(range(ranks), 2)
        self.two, self.one = chosen
        self.leaks = {self.two: {9: self.random.uniform(20, 40) * (1 << 30), 17: self.random.uniform(5, 10) * (1 << 30)},
                      self.one: {9: self.random.uniform(10, 15) * (1 << 30)}}
        self.odd = self.random.randrange(dumps // 4, dumps // 2)
        self.times = {}  # (rank, dump): microseconds
        self.held = {}  # (rank, dump): {line: bytes}, of all stacks

    def blocks(self, rank, dump, time_us):
        """(frames, bytes) of what is held then."""
        hours = (time_us - START_US) / 3.6e9
        out = list(STEADY.values())
        out += [(stack, int(size * self.random.uniform(0, self.noise)) // 512 * 512) for stack, size in NOISE]
        for line, rate in self.leaks.get(rank, {}).items():
            leaked = int(hours * rate) // MIB * MIB
            if leaked:
                out.append(({9: CACHE, 17: LIST}[line], leaked))
        if rank == self.one and dump == self.odd:
            out.append((frames('evaluate', 'train.py', 77), 20 << 30))
        return [(stack, size) for stack, size in out if size]

    def write(self, folder):
        for rank in range(self.ranks):
            for dump in range(self.dumps):
                self.write_one(pathlib.Path(folder), rank, dump)
        return folder

    def write_one(self, folder, rank, dump):
        time_us = START_US + int((dump + self.random.uniform(0, 0.2)) * self.minutes * 60e6)
        blocks = self.blocks(rank, dump, time_us)
        held = sum(size for _, size in blocks)
        self.times[rank, dump] = time_us
        self.held[rank, dump] = {stack[0]['line']: size for stack, size in blocks}
        at, rows = 1 << 40, []
        for stack, size in blocks:
            rows.append({'address': at, 'size': size, 'requested_size': size, 'state': 'active_allocated', 'frames': stack})
            at += size
        segment = {'device': 0, 'address': 1 << 40, 'total_size': held, 'allocated_size': held, 'active_size': held, 'requested_size': held,
                   'stream': 0, 'segment_type': 'large', 'segment_pool_id': (0, 0), 'is_expandable': False, 'frames': [], 'blocks': rows}
        path = folder / f'rank{rank}_pid{4000 + rank}_step{dump}_periodic.pickle'
        path.write_bytes(pickle.dumps({'segments': [segment], 'device_traces': [[]], 'allocator_settings': {}}, protocol=4))
        path.with_suffix('.json').write_text(json.dumps({
            'schema': 'tessera/capture/1', 'snapshot': path.name, 'time_us': time_us, 'step': dump, 'reason': 'periodic',
            'ranks': {'rank': rank, 'world_size': self.ranks},
            'devices': [{'device': 0, 'total_bytes': CARD, 'outside_pytorch_bytes': OUTSIDE, 'free_bytes': 0,
                         'peak_allocated_bytes': max(sum(self.held[rank, i].values()) for i in range(dump + 1))}]}), encoding='utf-8')

    def peak(self, rank):
        return max(sum(self.held[rank, dump].values()) for dump in range(self.dumps))

    def slope(self, rank, line=None):
        """The median slope of pairs of dumps, in bytes an hour: of a line of the program, or of everything."""
        at = [self.times[rank, dump] / 3.6e9 for dump in range(self.dumps)]
        held = [self.held[rank, dump].get(line, 0) if line else sum(self.held[rank, dump].values()) for dump in range(self.dumps)]
        slopes = sorted((held[k] - held[i]) / (at[k] - at[i]) for i in range(self.dumps) for k in range(i + 1, self.dumps))
        middle = len(slopes) // 2
        return slopes[middle] if len(slopes) % 2 else (slopes[middle - 1] + slopes[middle]) / 2


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('folder', type=pathlib.Path)
    parser.add_argument('seed', type=int)
    parser.add_argument('--dumps', type=int, default=40)
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    job = Job(given.seed, dumps=given.dumps)
    job.write(given.folder)
    print(f'rank {job.two} leaks in two stacks, rank {job.one} in one: {job.leaks}')


if __name__ == '__main__':
    main()
