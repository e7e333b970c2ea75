"""A world with a card, for the recorder of the ledger: what is on the card is known because the world put it there.

    with World(folder, library) as world:           # stand-ins for PyTorch, NVML and process groups; a clock that is turned by hand
        world.others[77] = ["/usr/bin/python3", 3 << 30]
        world.use_device()                          # the program's context
        block = world.alloc(64 << 20)
        world.groups["dp"].allreduce()              # a communicator appears
        world.advance(0.5)                          # half a second passes, and the recorder's timer ticks
    world.moments[time_us]                          # what was on the card at a sample

`library` is the stand-in for NVML (`build`); None is a machine without it. Nothing here takes real time, or needs a card.
"""
import os
import pathlib
import shutil
import subprocess
import sys
import types

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / 'python'))
import fake_torch  # noqa: E402

MIB, GIB = 1 << 20, 1 << 30
START_US = 1_760_000_000_000_000

card = fake_torch.load('_record.card')
nvml = fake_torch.load('_record.nvml')
host = fake_torch.load('_record.host')
groups = fake_torch.load('_record.groups')
capture = fake_torch.load('_capture')
recorder = fake_torch.load('_record.recorder')
backend = fake_torch.load('_record.backend')
marks = fake_torch.load('_record.marks')
guard = fake_torch.load('_record.guard')


def compiler():
    return next((name for name in (os.environ.get('CC'), 'cc', 'gcc', 'clang') if name and shutil.which(name.split()[0])), None)


def build(folder):
    """The stand-in for NVML as a library in a folder; None without a compiler."""
    cc = compiler()
    if cc is None or sys.platform == 'win32':
        return None
    path = pathlib.Path(folder) / 'libnvidia-ml-standin.so'
    words = [*cc.split(), '-O1', '-shared', '-fPIC', '-Wall', '-Wextra', '-Werror', '-o', str(path), str(HERE / 'nvml_standin.c')]
    subprocess.run(words, check=True)
    return path


class Block:
    def __init__(self, address, size, pool):
        self.address, self.size, self.pool, self.is_live, self.stack = address, size, pool, True, None


class ProcessGroup:
    """A process group of NCCL; its methods are what PyTorch's has."""

    def __init__(self, world, name, number, ranks, base, extra=None, backend='nccl', stats=None):
        self.world, self.group_desc, self.group_name, self.ranks = world, name, str(number), ranks
        self.base, self.extra = base, dict(extra or {})
        self.used, self.number, self.bytes, self.persist = set(), 0, 0, 0
        self.is_suspended = False
        self.backend = types.SimpleNamespace(name=lambda: backend)
        if stats is not None:
            self.backend.memory_stats = lambda: self.stats(stats)

    @property
    def title(self):
        return f'{self.group_desc} ({self.group_name})'

    def size(self):
        return self.ranks

    def stats(self, share):
        """As ncclCommMemStats: the total is that of both states."""
        if not self.number:
            raise RuntimeError('there is no communicator')
        return {'total': self.bytes, 'persist': self.persist, 'suspend': self.bytes - self.persist,
                'suspended': int(self.is_suspended)}

    def on_card(self):
        return self.persist if self.is_suspended else self.bytes

    def _get_backend(self, device):
        return self.backend

    def _get_sequence_number_for_group(self):
        return self.number

    def run(self, method):
        """What C++ does in a collective, whoever calls it."""
        self.number += 1
        if not self.bytes:
            self.bytes += self.base
            self.persist = self.base // 4
        if method not in self.used:
            self.used.add(method)
            self.bytes += self.extra.get(method, 0)
        self.world.write()


def _method(name):
    def method(self, *arguments):
        self.run(name)
    method.__name__ = name
    return method


class World:
    """The card, and this process on it. Sizes in bytes."""

    def __init__(self, folder, library, total=80 * GIB, driver=600 * MIB, version='2.14', uuid='GPU-5f3a1c9e-0000-4000-8000-000000000001',
                 has_processes=True, lines=()):
        self.folder, self.library = pathlib.Path(folder), library
        self.folder.mkdir(parents=True, exist_ok=True)
        self.total, self.driver, self.uuid = total, driver, uuid
        self.version, self.has_processes, self.lines = version, has_processes, list(lines)
        self.pid = os.getpid()
        self.context = 0
        self.size_of_context = 450 * MIB
        self.libraries = {}
        self.others = {}  # pid: [path, bytes]
        self.rest = 0  # of this process, and nobody's: what the ledger must call unaccounted
        self.rest_elsewhere = 0
        self.asleep = set()  # pools that are not mapped
        self.groups = {}
        self.blocks, self.events = [], []
        self.next_address = 0x7F0000000000
        self.now_us, self.moments = START_US, {}
        self.path = self.folder / 'nvml.txt'
        self.maps = self.folder / 'maps'
        self.cost = 0.0  # seconds that each look at the clock of a sample takes

    # ---- what is there ----

    def reserved(self, pools=None):
        return sum(block.size for block in self.blocks if pools is None or block.pool in pools)

    def allocated(self):
        return sum(block.size for block in self.blocks if block.is_live)

    def unmapped(self):
        return self.reserved(self.asleep)

    def process_bytes(self):
        held = sum(self.libraries.values()) + sum(group.on_card() for group in self.groups.values())
        return self.context + self.reserved() - self.unmapped() + held + self.rest

    def used(self):
        """With what the driver keeps for itself."""
        return self.driver + self.process_bytes() + sum(size for _, size in self.others.values()) + self.rest_elsewhere

    def truth(self):
        return {
            'used': self.used(), 'driver': self.driver, 'context': self.context,
            'allocated': self.allocated(), 'reserved': self.reserved(), 'unmapped': self.unmapped(),
            'libraries': dict(self.libraries),
            'communicators': {group.title: group.on_card() for group in self.groups.values() if group.bytes},
            'others': {pid: size for pid, (_, size) in self.others.items()},
            'unaccounted': self.rest + self.rest_elsewhere,
        }

    def write(self):
        """What NVML tells from now on."""
        text = [f'card {self.uuid} {self.total} {self.driver} {self.total - self.used()} Stand-in H100']
        text += [f'card.process {pid} {size}' for pid, (_, size) in self.others.items() if self.has_processes]
        if self.context and self.has_processes:
            text.append(f'card.process {self.pid} {self.process_bytes()}')
        text += [f'name {pid} {path}' for pid, (path, _) in self.others.items()]
        temporary = self.path.with_suffix('.new')
        temporary.write_text('\n'.join([*self.lines, *text]) + '\n')
        os.replace(temporary, self.path)

    # ---- the stand-ins ----

    def __enter__(self):
        self.torch = torch = fake_torch.install(self.version, initialized=False)
        cuda = torch.cuda
        torch._C._cuda_hasPrimaryContext = lambda index: index == 0 and bool(self.context)
        torch.device = lambda kind, index: types.SimpleNamespace(type=kind, index=index)
        cuda.device_count = lambda: 1
        cuda.memory_stats_as_nested_dict = lambda index: {
            'allocated_bytes': {'all': {'current': self.allocated()}},
            'reserved_bytes': {'all': {'current': self.reserved()}}} if index == 0 else {}
        cuda.memory_allocated = lambda *index: self.allocated()
        cuda.memory_reserved = lambda *index: self.reserved()
        cuda.mem_get_info = lambda *index: (self.total - self.used(), self.total - self.driver)
        cuda.is_current_stream_capturing = lambda: False
        cuda.get_device_properties = lambda *index: types.SimpleNamespace(total_memory=self.total - self.driver, uuid=self.uuid[4:])
        torch.fake.snapshot = self.snapshot
        self._install_groups()
        self.before = {name: os.environ.get(name) for name in ('TESSERA_NVML', 'TESSERA_NVML_WORLD')}
        os.environ['TESSERA_NVML'] = str(self.library or self.folder / 'absent.so')
        os.environ['TESSERA_NVML_WORLD'] = str(self.path)
        self.maps.write_text('')
        self.saved = card._MAPS, nvml.has_own_processes, card.Ledger._start_thread
        card._MAPS = str(self.maps)
        nvml.has_own_processes = lambda: not self.has_processes
        card.Ledger._start_thread = lambda ledger: None  # `advance` ticks instead
        card.ledger.reset()
        card.ledger.clocks = self
        self.write()
        return self

    def __exit__(self, *error):
        for running in reversed(list(recorder.active)):
            running.settings.at_end = False
            running.stop()
        del recorder.active[:]
        capture.record._started = None
        card._MAPS, nvml.has_own_processes, card.Ledger._start_thread = self.saved
        card.ledger.reset()
        backend.history.reset()
        backend.observers.reset()
        marks.marks.reset()
        guard.forget()
        fake_torch.uninstall()
        for name, value in self.before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value

    def _install_groups(self):
        distributed = types.ModuleType('torch.distributed')
        core = types.ModuleType('torch.distributed.distributed_c10d')
        self.kind = type('ProcessGroup', (ProcessGroup,), {name: _method(name) for name in groups.METHODS})
        distributed.ProcessGroup = self.kind
        distributed.is_available = lambda: True
        distributed.is_initialized = lambda: False
        core._world = types.SimpleNamespace(pg_map={}, pg_names={})
        self.table = core._world.pg_map
        distributed.distributed_c10d = core
        self.torch.distributed = distributed
        sys.modules.update({'torch.distributed': distributed, 'torch.distributed.distributed_c10d': core})

    # ---- clocks (card.Clocks) ----

    def wall(self):
        """Each look is at another microsecond, so that a sample's time names a moment of this world."""
        self.now_us += 1
        self.moments[self.now_us] = self.truth()
        return self.now_us / 1e6

    def elapsed(self):
        return (self.now_us - START_US) / 1e6

    def program(self):
        """A sample looks at it before and after."""
        self.spent = getattr(self, 'spent', 0.0) + self.cost
        return self.spent

    own = program

    # ---- what happens ----

    def advance(self, seconds):
        self.now_us += int(1e6 * seconds)
        if self.library is not None:
            card.ledger.tick()

    def use_device(self):
        self.torch.fake.use_device()
        self.context = self.size_of_context
        self.write()

    def group(self, name, ranks, base, extra=None, stats=None, backend='nccl'):
        group = self.kind(self, name, len(self.groups), ranks, base, extra, backend, stats)
        self.groups[name] = group
        self.table[group] = ('nccl', None)
        return group

    def load_library(self, name, size):
        self.libraries[name] = self.libraries.get(name, 0) + size
        with open(self.maps, 'a', encoding='ascii') as file:
            file.write(f'7f00 r-xp 0 08:01 1 /usr/lib/x86_64-linux-gnu/lib{name}.so.9\n')
        self.write()

    def _event(self, action, block, stack):
        self.events.append({'action': action, 'addr': block.address, 'size': block.size, 'stream': 0, 'time_us': self.now_us,
                            'frames': stack})

    def alloc(self, size, line=1, pool=(0, 0)):
        """A block that fills a segment; the size must be a multiple of 2 MiB and at least 20."""
        stack = [{'name': 'train', 'filename': 'train.py', 'line': line}]
        self.now_us += 1
        block = next((one for one in self.blocks if not one.is_live and one.size == size and one.pool == pool), None)
        if block is None:
            block = Block(self.next_address, size, pool)
            self.next_address += size
            self.blocks.append(block)
            self._event('segment_alloc', block, stack)
        block.is_live, block.stack = True, stack
        self._event('alloc', block, stack)
        self.write()
        return block

    def free(self, block):
        block.is_live = False
        self.now_us += 1
        self._event('free_requested', block, block.stack)
        self._event('free_completed', block, block.stack)
        self.write()

    def sleep(self, pool):
        self.asleep.add(pool)
        self.write()

    def wake(self, pool):
        self.asleep.discard(pool)
        self.write()

    def run_out_of_memory(self, size):
        """PyTorch's observer is told, and the program gets the exception."""
        free = self.total - self.used()
        self.events.append({'action': 'oom', 'device_free': free, 'size': size, 'stream': 0, 'time_us': self.now_us,
                            'frames': [{'name': 'train', 'filename': 'train.py', 'line': 99}]})
        for observer in self.torch.fake.observers:
            observer(0, size, self.total - self.driver, free)
        raise self.torch.OutOfMemoryError(f'CUDA out of memory. Tried to allocate {size} bytes')

    def snapshot(self):
        segments = []
        for block in self.blocks:
            state = 'active_allocated' if block.is_live else 'inactive'
            held = block.size if block.is_live else 0
            segments.append({
                'device': 0, 'address': block.address, 'total_size': block.size, 'allocated_size': held, 'active_size': held,
                'requested_size': held, 'stream': 0, 'segment_type': 'large', 'segment_pool_id': block.pool,
                'is_expandable': False, 'frames': [],
                'blocks': [{'address': block.address, 'size': block.size, 'requested_size': held, 'state': state,
                            'frames': block.stack if block.is_live else []}]})
        return {'segments': segments, 'device_traces': [list(self.events)], 'allocator_settings': {}}
