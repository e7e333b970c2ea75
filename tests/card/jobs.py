#!/usr/bin/env python3
"""Jobs whose ledger of the card is known: the recorder runs against a world that a seed makes (world.py), and writes snapshots and sidecars.

    folder, truth = jobs(seed)                  # 200 jobs, and what is true of each
    python3 tests/card/jobs.py --seed 3 --count 20 --out FOLDER

`truth` is a list, a dict for each job:

    path, sidecar     the snapshot that the job wrote last, and its sidecar
    kind              how the card is asked: "nvml"; "container" (NVML lists no processes); "old" (NVML before R510 does not tell the
                      driver's memory apart); "none" (no NVML: CUDA is asked at marks)
    cause             what an out-of-memory is due to: "pytorch", "communicators", "other_process", "other_growth", "unaccounted", "sleeping"
                      (a pool that wakes up does not fit); None: the job ended well
    cause_name        the communicator, or the process's number as text
    samples           one for each sample in the sidecar, in order: time_us, used_bytes, and the parts that it consists of
                      {allocated, cached, unmapped, context, driver, libraries, communicators {name: bytes}, processes {pid: bytes},
                      unaccounted}; `unaccounted` is what the recorder cannot know: what was planted as nobody's, and what this kind
                      of machine does not tell. allocated + cached is what PyTorch has on the card; if blocks of a pool that sleeps
                      are allocated, `allocated` is what is left of that, and `cached` is 0
    peak, end         indices into samples: the most used bytes (the first of these), and the last
    told              whether sleeping pools were told by the program (record.asleep), or follow from NVML
"""
import argparse
import json
import os
import pathlib
import random
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from world import GIB, MIB, World, build, capture, card, fake_torch  # noqa: E402

PAGE = 2 * MIB
NAMES = ('/usr/bin/python3', '/opt/vllm/bin/python', '/usr/lib/xorg/Xorg', '/usr/bin/tritonserver')
GROUPS = ('dp', 'tp', 'pp', 'cp', 'ep', 'default_pg')
COLLECTIVES = ('allreduce', '_allgather_base', '_reduce_scatter_base', 'alltoall_base', 'broadcast')
POOL = (0, 7)  # of the engine that sleeps
CAUSES = (None, None, 'pytorch', 'communicators', 'other_process', 'other_growth', 'unaccounted', 'sleeping')


def _pages(random_, low, high):
    """A size that is a whole number of pages, between two sizes."""
    return random_.randrange(low // PAGE, high // PAGE + 1) * PAGE


class Job:
    """One job: a story of a seed."""

    def __init__(self, seed, folder, library):
        self.random = random.Random(f'card {seed}')
        choose = self.random.choice
        self.cause = choose(CAUSES)
        self.kind = choose(('nvml',) * 7 + ('container', 'old', 'none'))
        if self.cause in ('other_process', 'other_growth', 'sleeping'):
            self.kind = choose(('nvml', 'nvml', 'old'))  # where NVML lists no processes, nobody knows of them
        self.cause_name = None
        self.told = self.kind != 'nvml' or self.random.random() < 0.5
        self.folder = pathlib.Path(folder)
        lines = ['memory v1'] if self.kind == 'old' else []
        lines.append('processes ' + choose(('v1', 'v2', 'v3', 'v3wide')))
        self.world = World(
            self.folder / 'world', None if self.kind == 'none' else library,
            total=choose((24, 40, 80, 94, 141) if self.cause is None else (80, 94, 141)) * GIB,
            driver=_pages(self.random, 300 * MIB, 900 * MIB), has_processes=self.kind in ('nvml', 'old'), lines=lines)
        self.world.size_of_context = _pages(self.random, 200 * MIB, 800 * MIB)

    # ---- the story ----

    def run(self):
        with self.world as world:
            torch = world.torch
            if self.random.random() < 0.5 or self.cause in ('other_process', 'other_growth', 'sleeping'):
                for _ in range(self.random.randint(1, 3)):
                    self.start_other(_pages(self.random, 300 * MIB, world.total // 16))
            recording = capture.record(self.folder, explain=False, quiet=True, signal=None)
            with recording:
                world.use_device()
                world.advance(0.05)
                self.model = fake_torch.Module()
                self.optimizer = torch.optim.Optimizer([self.model.weight])  # its addresses are in the first block
                recording.watch(self.model, self.optimizer)
                self.weights = [world.alloc(_pages(self.random, 20 * MIB, world.total // (40 if self.cause is None else 80)), line=10 + i) for i in range(6)]
                world.advance(0.5)
                self.make_groups()
                if self.random.random() < 0.4 and self.kind in ('nvml', 'old'):
                    world.load_library(self.random.choice(('cudnn', 'cusolver', 'nvshmem')), _pages(self.random, 20 * MIB, 400 * MIB))
                    world.advance(0.5)
                self.plant_rest()
                steps = self.random.randint(2, 6)
                self.colocated = self.cause == 'sleeping' or self.random.random() < 0.25
                if self.colocated:
                    self.start_engine()
                try:
                    for step in range(steps):
                        self.step(step)
                    if self.cause is not None:
                        getattr(self, 'die_of_' + self.cause)()
                except torch.OutOfMemoryError:
                    pass
            self.path = pathlib.Path(recording.files[0])
            if self.cause is not None:
                self.path = next(pathlib.Path(path) for path in recording.files if '_oom' in path)
            return self.truth()

    def start_other(self, size):
        pid = self.random.randint(1000, 99999)
        while pid == self.world.pid or pid in self.world.others:
            pid += 1
        self.world.others[pid] = [self.random.choice(NAMES), size]
        self.world.write()
        return pid

    def plant_rest(self):
        """Memory that is nobody's. Beside a pool whose sleep follows from NVML it belongs to no process: in this one, it could not
        be told from the pool."""
        if self.random.random() < 0.5:
            size = _pages(self.random, 20 * MIB, 600 * MIB)
            if self.told and self.random.random() < 0.5:
                self.world.rest += size
            else:
                self.world.rest_elsewhere += size
            self.world.write()
            self.world.advance(0.5)

    def make_groups(self):
        for name in self.random.sample(GROUPS, self.random.randint(0, 4)):
            stats = 1.0 if self.random.random() < 0.4 else None
            extra = {method: _pages(self.random, PAGE, 128 * MIB) for method in self.random.sample(COLLECTIVES, 2)}
            group = self.world.group(name, self.random.choice((2, 4, 8, 64)), _pages(self.random, 64 * MIB, 700 * MIB), extra, stats)
            if self.kind != 'none' and self.random.random() < 0.25:  # C++ is the first to use it: DDP's reducer, for example
                group.run('allreduce')
                self.world.advance(0.5)
            else:
                group.allreduce([0])
        if self.random.random() < 0.3:
            gloo = self.world.group('cpu', 8, 0, backend='gloo')
            gloo.allreduce([0])

    def start_engine(self):
        """An engine that shares the process: its pool sleeps while training goes on."""
        with capture.record.phase('rollout'):
            self.pool = [self.world.alloc(_pages(self.random, 64 * MIB, self.world.total // 20), line=70, pool=POOL) for _ in range(3)]
            self.world.advance(0.5)
            for group in self.world.groups.values():
                if hasattr(group.backend, 'memory_stats') and self.random.random() < 0.5:
                    group.is_suspended = True
            self.sleep()
        self.world.advance(0.5)

    def sleep(self):
        self.world.sleep(POOL)
        if self.told:
            capture.record.asleep(self.world.unmapped())

    def wake(self):
        self.world.wake(POOL)
        if self.told:
            capture.record.asleep(0)

    def step(self, number):
        world, random_ = self.world, self.random
        activations = [world.alloc(_pages(random_, 20 * MIB, world.total // 60), line=30 + i) for i in range(random_.randint(1, 4))]
        self.model(1)
        world.advance(0.2)
        world.torch.autograd.backward(None)
        for group in list(world.groups.values()):
            if random_.random() < 0.5:
                getattr(group, random_.choice(COLLECTIVES))([0])
        for block in activations:
            world.free(block)
        if number == 0:
            self.state = [world.alloc(block.size, line=50) for block in self.weights]
        if self.cause == 'other_growth':
            self.grow_other(world.total // 40)
        if self.cause == 'unaccounted':
            world.rest_elsewhere += _pages(random_, 64 * MIB, 256 * MIB)
        world.write()
        world.advance(0.3)
        self.optimizer.step()

    def grow_other(self, size):
        pid = self.cause_name = self.cause_name or str(self.random.choice(list(self.world.others)))
        self.world.others[int(pid)][1] += size
        self.world.write()

    # ---- how it ends ----

    def fill(self, grow, step_of):
        """Lets something grow until less than a gigabyte is free."""
        world = self.world
        while world.total - world.used() > GIB:
            size = min(step_of(), (world.total - world.used() - 512 * MIB) // PAGE * PAGE)
            grow(max(PAGE, size))
            world.write()
            world.advance(0.4)
        world.run_out_of_memory(2 * GIB)

    def die_of_pytorch(self):
        self.fill(lambda size: self.world.alloc(max(20 * MIB, size), line=90), lambda: _pages(self.random, 512 * MIB, 2 * GIB))

    def die_of_communicators(self):
        number = 0

        def grow(size):
            nonlocal number
            number += 1
            group = self.world.group(f'expert{number}', 8, size)
            group.alltoall_base([0])
            if group.bytes >= max(one.bytes for one in self.world.groups.values()):
                self.cause_name = group.title

        self.fill(grow, lambda: _pages(self.random, 1 * GIB, 4 * GIB))

    def die_of_other_process(self):
        pid = self.start_other(0)
        self.cause_name = str(pid)
        self.fill(self.grow_other, lambda: self.world.total)

    def die_of_other_growth(self):
        self.fill(self.grow_other, lambda: _pages(self.random, 512 * MIB, 3 * GIB))

    def die_of_unaccounted(self):
        def grow(size):
            self.world.rest_elsewhere += size

        self.fill(grow, lambda: _pages(self.random, 512 * MIB, 3 * GIB))

    def die_of_sleeping(self):
        """Training took what the pool had given back, and now the engine wakes up."""
        world = self.world
        while world.total - world.used() > GIB + PAGE:
            size = min(_pages(self.random, 512 * MIB, 2 * GIB), (world.total - world.used() - 512 * MIB) // PAGE * PAGE)
            world.alloc(max(20 * MIB, size), line=91)
            world.advance(0.4)
        with capture.record.phase('weight sync'):
            world.advance(0.4)
            world.run_out_of_memory(2 * GIB)

    # ---- what is true ----

    def parts(self, at):
        """The parts of a sample as this kind of machine can know them."""
        on_card = at['reserved'] - at['unmapped']
        allocated = min(at['allocated'], on_card)
        told = {'used_bytes': at['used'], 'allocated': allocated, 'cached': on_card - allocated, 'unmapped': at['unmapped'],
                'context': at['context'], 'driver': at['driver'], 'libraries': sum(at['libraries'].values()),
                'communicators': at['communicators'], 'processes': {str(pid): size for pid, size in at['others'].items()}}
        if self.kind == 'none':
            told['used_bytes'] -= at['driver']  # which CUDA has taken off the card's total, too
            told.update(context=None, driver=None, libraries=0, processes={})
        elif self.kind == 'old':
            told['driver'] = None
        elif self.kind == 'container':
            told['processes'] = {}
        known = sum(told[name] or 0 for name in ('allocated', 'cached', 'context', 'driver', 'libraries'))
        told['unaccounted'] = told['used_bytes'] - known - sum(told['communicators'].values()) - sum(told['processes'].values())
        return told

    def truth(self):
        sidecar = self.path.with_suffix('.json')
        written = json.loads(sidecar.read_text(encoding='utf-8'))['card']['devices'][0]['samples']
        samples = [{'time_us': time_us, **self.parts(self.world.moments[time_us])} for time_us in written['time_us']]
        used = [one['used_bytes'] for one in samples]
        return {'path': str(self.path), 'sidecar': str(sidecar), 'kind': self.kind, 'cause': self.cause, 'cause_name': self.cause_name,
                'told': self.told, 'samples': samples, 'peak': used.index(max(used)), 'end': len(samples) - 1}


def job(seed, folder, library):
    """One job in a folder of its own; what is true of it."""
    return {'seed': seed, **Job(seed, folder, library).run()}


def jobs(seed, count=200, folder=None, library=None):
    """(folder, truth) of `count` jobs; None, None without a compiler for the stand-in."""
    folder = pathlib.Path(folder or tempfile.mkdtemp(prefix='tessera-card-'))
    folder.mkdir(parents=True, exist_ok=True)
    library = library or build(folder)
    if library is None:
        return None, None
    return folder, [job(seed * 1000 + number, folder / f'job{number:03}', library) for number in range(count)]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--seed', type=int, default=1)
    parser.add_argument('--count', type=int, default=200)
    parser.add_argument('--out', type=pathlib.Path)
    options = parser.parse_args()
    folder, truth = jobs(options.seed, options.count, options.out)
    if folder is None:
        sys.exit('no compiler for the stand-in of NVML')
    (folder / 'truth.json').write_text(json.dumps(truth))
    print(f'{len(truth)} jobs in {folder}; truth.json has what is true of them')


if __name__ == '__main__':
    main()
