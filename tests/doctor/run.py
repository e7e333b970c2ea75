#!/usr/bin/env python3
"""run.py --tessera PATH --work FOLDER [--gendocs PATH] [--seed N] [--count N]: `tessera doctor` without PyTorch and without a GPU, as TAP.

A machine of random properties stands in for the real one: a card of some size with other processes, contexts and libraries of known sizes, and programs that
take what is predicted, or more or less by a known amount, whose snapshots are right or wrong, which run out of memory or end their process. So it is
known what the doctor must say. The counting of peaks by phase is compared with a model of a program, which allocates and frees at random. The command itself
runs with programs in the place of Python, and with the Python of this test, which has no PyTorch.
"""
import argparse
import contextlib
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import types
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE)]
sys.dont_write_bytecode = True
import support  # noqa: E402
import tap  # noqa: E402

MIB = 1 << 20
COUNT = 300 if os.environ.get('TESSERA_WHOLE') else 20
OUTSIDE_LIMITS = ('differs more', 'differs less', 'reserved more', 'phase more')

card, checks, compare, doctor, goldens, machine, measure, predict, programs, report, talk = (
    support.load(name) for name in ('card', 'checks', 'compare', 'doctor', 'goldens', 'machine', 'measure', 'predict', 'programs', 'report', 'talk'))


def expect(what, got, want):
    if got != want:
        raise AssertionError(f'{what}: got {got!r:.1000}, want {want!r:.1000}')


def predicted_of(name):
    known = goldens.PROGRAMS[name]
    return {'peak': dict(known['peak']), 'phases': {phase: {'requested': count, 'allocated': count} for phase, count in known['phases'].items()},
            'workspaces': 0}


# ---- A machine of which everything is known ----

def no_workspace(count):
    """A difference that is not one or two workspaces of 1 MiB by chance."""
    return count + 64 * 1024 if min(count % MIB, -count % MIB) < 32 * 1024 else count


class Truth:
    """What a seed decides."""

    def __init__(self, seed):
        r = self.random = random.Random(seed)
        self.capability = r.choice([(7, 0), (7, 5), (8, 0), (8, 6), (9, 0), (10, 0), (12, 0)])
        self.name = r.choice(['NVIDIA H100 80GB HBM3', 'Tesla T4', 'NVIDIA GeForce RTX 4090', 'NVIDIA Something'])
        self.total = r.choice([16, 24, 80, 141]) << 30
        self.others, self.context, self.libraries = (r.randrange(low, high) * MIB for low, high in ((0, 3000), (200, 900), (0, 600)))
        self.torch = r.choice(['2.9.1', '2.10.0', '2.11.0+cu130', '2.15.0'])
        self.cards = r.choice([1, 1, 2])
        self.has_driver, self.built_for = False, '12.8'
        self.nccl = r.randrange(1, 2000) * MIB
        self.is_quick = r.random() < 0.5
        self.disturbed = r.random() < 0.15  # another process allocates while the context is measured
        self.plants = {program.name: r.choice(['equal'] * 6 + ['near', 'workspace', 'above', 'misread', 'memory', 'error', *OUTSIDE_LIMITS])
                       for program in programs.PROGRAMS}
        if r.random() < 0.5:
            self.plants = dict.fromkeys(self.plants, 'equal')
        self.spaces = {}  # planted workspaces
        names = [program.name for program in programs.chosen(self.is_quick) if program.is_predicted and not program.settings]
        self.dies_at = r.choice(names) if r.random() < 0.15 else None
        if self.dies_at and self.dies_at not in self.runs():
            self.dies_at = None

    def runs(self):
        return [program.name for program in programs.chosen(self.is_quick) if self.capability >= program.needs]

    def has_bf16(self):
        return self.capability >= (8, 0)

    def row(self, name):
        """What the program's process says, the plant in it."""
        r, program, plant = self.random, programs.by_name(name), self.plants[name]
        if plant == 'memory':
            return {'event': 'program', 'name': name, 'error': 'out of memory'}
        if plant == 'error':
            return {'event': 'program', 'name': name, 'error': f'RuntimeError: {os.path.expanduser("~")}/secret/train.py of {USER} on {HOST}: no'}
        known = predicted_of(name) if program.is_predicted else {'peak': {'requested': 90 * MIB, 'allocated': 91 * MIB, 'reserved': 100 * MIB}, 'phases': {}}
        peak, phases = known['peak'], {phase: dict(row) for phase, row in known['phases'].items()}
        if plant == 'near':
            peak['allocated'] += r.choice([-1, 1]) * r.randrange(1, 60) * 1024
        elif plant == 'workspace':
            self.spaces[name] = r.choice([1, 2]) * MIB
            peak['allocated'] += self.spaces[name]
            peak['reserved'] += 2 * MIB
        elif plant == 'above':
            peak['allocated'] += 5 * MIB
            peak['reserved'] += 4 * MIB
        elif plant in ('differs more', 'differs less'):
            peak['allocated'] += (1 if plant == 'differs more' else -1) * no_workspace(int(0.03 * peak['allocated']))
        elif plant == 'reserved more':
            peak['reserved'] += 24 * MIB
        elif plant == 'phase more' and phases:
            phase = r.choice(sorted(phases))
            phases[phase]['requested'] += no_workspace(int(0.03 * phases[phase]['requested']) + 100 * 1024)
        before = 512 * r.randrange(4)
        return {'event': 'program', 'name': name, 'snapshot': f'{name}.pickle', 'before': dict.fromkeys(compare_kinds, before), 'peak': peak,
                'phases': phases, 'whole': {kind: peak[kind] + before for kind in compare_kinds}, 'after': {}}

    def expected(self, name):
        """The status of a program."""
        program, plant = programs.by_name(name), self.plants[name]
        if name not in self.runs():
            return 'not_run'
        if self.dies_at and not program.settings and program.is_predicted:
            names = [one for one in self.runs() if programs.by_name(one).is_predicted and not programs.by_name(one).settings]
            if names.index(name) >= names.index(self.dies_at):
                return 'failed'
        if plant == 'memory':
            return 'not_run'
        if plant == 'error':
            return 'failed' if program.is_predicted else 'not_run'
        if plant == 'misread':
            return 'misread'
        if not program.is_predicted:
            return 'read'
        if plant == 'workspace':  # of a known size, if it is more than half a percent
            if self.spaces[name] <= 0.005 * goldens.PROGRAMS[name]['peak']['allocated']:
                return 'near'
            return 'explained' if program.above or not self.torch.startswith('2.9') else 'differs'
        if program.above and plant in ('above', 'differs more', 'phase more'):
            return 'explained'
        return plant if plant in ('equal', 'near') else 'differs'


compare_kinds = measure.KINDS
USER, HOST = 'jane.doe', 'node-17.example.org'


class Memory:
    """The card's memory, and who has it."""

    def __init__(self, truth):
        self.truth, self.taken = truth, truth.others

    def free(self):
        return self.truth.total - self.taken


class FakeCard:
    """The doctor's own look at the card."""

    def __init__(self, memory):
        self.memory, self.is_started = memory, False

    def start(self):
        self.memory.taken += self.memory.truth.context
        self.is_started = True

    def about(self):
        truth = self.memory.truth
        return {'name': truth.name, 'capability': list(truth.capability), 'total_bytes': truth.total}

    def counters(self):
        return {'now_reserved': 0}

    def free_bytes(self):
        assert self.is_started
        return self.memory.free()


class FakeWorker:
    """A process that runs programs: a generator that says rows, and goes on when it is told to."""

    def __init__(self, truth, memory, request):
        self.rows, self.truth, self.memory, self.request = None, truth, memory, request

    def __enter__(self):
        self.rows = self.steps()
        return self

    def __exit__(self, *_):
        self.rows.close()

    def steps(self):
        yield {'event': 'imported'}
        truth, memory, names = self.truth, self.memory, self.request.get('programs', ())
        taken = truth.context + (6 << 30 if truth.disturbed and len(names) > 1 else 0)
        memory.taken += taken
        yield {'event': 'context'}
        try:
            if self.request['job'] == 'communicators':
                assert self.request['backend'] == 'nccl' and self.request['ranks'] == 2 and truth.cards == 2
                yield {'event': 'communicators', 'taken_bytes': [3 * truth.nccl, truth.nccl], 'is_right': True}
            for name in names:
                yield {'event': 'begins', 'name': name}
                if name == truth.dies_at:
                    raise talk.Lost(f'signal 11: {os.getcwd()}/deep/core')
                yield truth.row(name)
            memory.taken += truth.libraries + 40 * MIB
            taken += truth.libraries + 40 * MIB
            yield {'event': 'end', 'reserved_bytes': 40 * MIB}
        finally:
            memory.taken -= taken

    def hear(self, _limit_s=0):
        return next(self.rows)

    def go(self):
        pass


class FakeHost(doctor.Host):
    """The real command and folders, and a stand-in for PyTorch and its card. Predictions are those that are recorded."""

    def __init__(self, truth, tessera, facts, work, **options):
        super().__init__({'version': facts['version'], 'program': str(tessera), 'quick': truth.is_quick, 'save': True, 'json': False, 'report': 'markdown', 'color': False,
                          'progress': False, 'columns': 0, **options}, b'')
        self.truth, self.memory = truth, Memory(truth)
        self.environment = {**os.environ, 'TESSERA_MACHINE': str(work / 'machine.json'), 'LANG': 'C.UTF-8', 'PYTORCH_CUDA_ALLOC_CONF': 'expandable_segments:True'}

    def has_module(self, name):
        return name == 'torch'

    def torch(self):
        truth = self.truth
        return types.SimpleNamespace(
            __version__=truth.torch, version=types.SimpleNamespace(cuda=truth.built_for, hip=None),
            cuda=types.SimpleNamespace(is_available=lambda: truth.cards > 0, device_count=lambda: truth.cards),
            distributed=types.SimpleNamespace(is_available=lambda: True, is_nccl_available=lambda: True))

    def card(self, torch, index=0):
        return FakeCard(self.memory)

    def worker(self, request, settings=''):
        for name in request.get('programs', ()):
            expect(f'settings of {name}', settings, programs.by_name(name).settings)
        return FakeWorker(self.truth, self.memory, request)

    def driver(self):
        return '580.65.06' if self.truth.cards or self.truth.has_driver else None

    def now(self):
        return '2026-11-28T09:30:00Z'

    def answer(self, traced=None, simulated=None):
        """With predictions from the record, and snapshots that say what was counted, unless it is planted that they do not."""
        seen, original = {}, self.truth.row

        def row(name):
            seen[name] = original(name)
            return seen[name]
        self.truth.row = row

        def read(_command, path):
            name = path[:-len('.pickle')]
            whole = {kind: seen[name]['whole'][kind] for kind in ('allocated', 'reserved')}
            if self.truth.plants[name] == 'misread':
                whole['allocated'] -= 512
            return whole
        patches = {'traced': traced or (lambda _torch, program, _gpu: program.make), 'read': read}
        patches['simulated'] = simulated or (lambda _command, make, settings, _folder: predicted_of(
            next(program.name for program in programs.PROGRAMS if program.make is make and program.settings == settings)))
        with patched(predict, **patches), patched(doctor.getpass, getuser=lambda: USER), patched(doctor.socket, gethostname=lambda: HOST):
            return doctor.examine(self)


@contextlib.contextmanager
def patched(owner, **names):
    before = {name: getattr(owner, name) for name in names}
    for name, new in names.items():
        setattr(owner, name, new)
    try:
        yield
    finally:
        for name, old in before.items():
            setattr(owner, name, old)


def facts_of(tessera):
    return json.loads(subprocess.run([tessera, '--version', '--json'], capture_output=True, check=True).stdout)


# ---- Checks ----

def check_machine(seed, tessera, facts, work):
    """Everything that a machine of a seed makes the doctor say."""
    truth = Truth(seed)
    host = FakeHost(truth, tessera, facts, work)
    answer = host.answer()
    statuses = {row['name']: row['status'] for row in answer['programs']}
    expect('programs', list(statuses), [program.name for program in programs.chosen(truth.is_quick)])
    for name, status in statuses.items():
        expect(f'{name}, where {truth.plants[name]} is planted', status, truth.expected(name))
    found = {row['name']: row['status'] for row in answer['checks']}
    expect('a check of predictions failed', found.get('predictions') == 'failed', 'differs' in statuses.values())
    expect('a check of snapshots failed', found.get('snapshots') == 'failed', 'misread' in statuses.values())
    expect('a check of programs failed', found.get('programs') == 'failed', 'failed' in statuses.values())
    expect('a check of processes failed', found.get('runs') == 'failed', truth.dies_at is not None)
    expect('verdict', answer['verdict'], 'failed' if 'failed' in found.values() else 'well')
    expect('verdict of the text', report.verdict(answer).startswith('tessera is right'), answer['verdict'] == 'well')
    (device,) = answer['devices']
    is_known = truth.dies_at is None and not truth.disturbed
    if len([name for name in truth.runs() if programs.by_name(name).is_predicted and not programs.by_name(name).settings]) > 1 or not truth.disturbed:
        expect('context', device['context_bytes'], truth.context if is_known else None)
        expect('libraries', device['libraries_bytes'], truth.libraries if is_known else None)
        expect('others', device['other_bytes'], truth.others if is_known else None)
    expect('NCCL', device['nccl_bytes_per_communicator'], truth.nccl if truth.cards == 2 else None)
    expect('saved', answer['is_saved'], is_known and not truth.is_quick)
    if answer['is_saved']:
        saved = [row for row in machine.load(host.environment['TESSERA_MACHINE']) if row['name'] == truth.name and row['driver'] == device['driver']]
        expect('machine.json', [(row['context_bytes'], row['nccl_bytes_per_communicator']) for row in saved], [(truth.context, device['nccl_bytes_per_communicator'])])
    check_private(report.page(answer), answer)


def check_private(page, answer):
    for what, text in (('home', os.path.expanduser('~') + '/'), ('folder', os.getcwd()), ('temporary folder', tempfile.gettempdir() + '/')):
        if len(text) > 3:
            assert text not in page, f'the {what} is in the report'
    for name in (USER, HOST):
        assert name not in page, f'{name} is in the report'
    assert '/secret/' not in page and '/deep/' not in page, 'a path is in the report'
    expect('the JSON of the report', json.loads(page.rpartition('```json\n')[2].rpartition('```')[0]), answer)


def check_phases(seed):
    """Peaks by phase of a program that allocates at random, against a model that notes each allocation with the phase it is in."""
    r = random.Random(seed)
    live, peak, truth = [0], [0], {}

    class Counters:
        def counters(self):
            return {f'{when}_{kind}': number for when, number in (('now', live[0]), ('peak', peak[0])) for kind in measure.KINDS}

        def reset(self):
            peak[0] = live[0]

        def clear(self):
            pass

    def allocate(phase):
        """`phase` is what the tracer would call this moment."""
        truth[phase] = max(truth.get(phase, 0), live[0])
        for _ in range(r.randrange(4)):
            live[0] = max(0, live[0] + r.randrange(-100, 130))
            peak[0] = max(peak[0], live[0])
            truth[phase] = max(truth.get(phase, 0), live[0])

    class Module:
        def __call__(self, depth, phase):
            phase = 'forward' if phase == measure.BETWEEN else phase
            allocate(phase)
            for _ in range(r.randrange(3) if depth < 3 else 0):
                Module()(depth + 1, phase)
            allocate(phase)

    hooks = {'before': [], 'after': []}

    class Handle:
        def __init__(self, kind, hook):
            self.kind, self.hook = kind, hook
            hooks[kind].append(hook)

        def remove(self):
            hooks[self.kind].remove(self.hook)

    def optimizer():
        for hook in list(hooks['before']):
            hook(None)
        allocate('optimizer')
        for hook in list(hooks['after']):
            hook(None)

    def backward():
        allocate('backward')
        if r.random() < 0.5:
            Module()(0, 'backward')  # computed again
        if r.random() < 0.3:
            optimizer()
        allocate('backward')
    torch = types.SimpleNamespace(nn=types.SimpleNamespace(Module=Module), autograd=types.SimpleNamespace(backward=backward), manual_seed=lambda _: None)
    optim = types.SimpleNamespace(register_optimizer_step_pre_hook=lambda hook: Handle('before', hook),
                                  register_optimizer_step_post_hook=lambda hook: Handle('after', hook))

    def make(_torch):
        allocate(measure.MAKING)

        def step():
            allocate(measure.BETWEEN)
            for _ in range(r.randrange(1, 4)):
                Module()(0, measure.BETWEEN)
                allocate(measure.BETWEEN)
                if r.random() < 0.9:
                    torch.autograd.backward()
                allocate(measure.BETWEEN)
            if r.random() < 0.8:
                optimizer()
            allocate(measure.BETWEEN)
        return step
    program = programs.Program('random', '', make)
    with patched(sys, modules={**sys.modules, 'torch.optim.optimizer': optim}):
        found = measure.measured(torch, Counters(), program)
    expect('hooks are gone', hooks, {'before': [], 'after': []})
    # The model's phases begin with what is live then, as a counter that is reset does.
    wanted = {name: count for name, count in truth.items() if name not in (measure.MAKING, measure.BETWEEN)}
    expect('phases', {name: row['requested'] for name, row in found['phases'].items()}, wanted)
    expect('peak', found['peak']['allocated'], max(count for name, count in truth.items() if name != measure.MAKING))
    expect('whole', found['whole']['allocated'], max(truth.values()))


def check_seeds(tessera, work, seed, count):
    facts = facts_of(tessera)
    for number in range(seed, seed + count):
        try:
            check_phases(number)
            check_machine(number, tessera, facts, work)
        except Exception as error:
            raise AssertionError(f'seed {number}: {error}') from error


def check_record(tessera, work):
    """Without a GPU: what is predicted here against the record, with a difference in one program, and with another PyTorch."""
    facts = facts_of(tessera)
    for torch, planted, status in (('2.9.1', '', 'ok'), ('2.9.1', 'conv', 'failed'), ('2.11.0', 'conv', 'note')):
        truth = Truth(1)
        truth.torch, truth.cards, truth.is_quick = torch, 0, False

        def simulated(_command, make, settings, _folder, planted=planted):
            name = next(program.name for program in programs.PROGRAMS if program.make is make and program.settings == settings)
            found = predicted_of(name)
            if name == planted:
                found['phases']['backward']['requested'] += 512
            return found
        answer = FakeHost(truth, tessera, facts, work).answer(simulated=simulated)
        found = {row['name']: row for row in answer['checks']}
        expect(f'{torch} {planted}', (found['record']['status'], found['card']['status']), (status, 'skipped'))
        expect('programs', [row['name'] for row in answer['programs'] if row['status'] == 'differs'], [planted] if planted else [])
        expect('verdict', answer['verdict'], 'failed' if status == 'failed' else 'well')


def check_tracer(tessera, work):
    """A PyTorch that cannot trace: one built without CUDA is no failure, and anything else is."""
    facts = facts_of(tessera)
    for said, status in (('this PyTorch is built without CUDA, so', 'skipped'), ('no hook', 'failed')):
        truth = Truth(1)
        truth.cards = 0

        def traced(*_, said=said):
            raise RuntimeError(said)
        found = {row['name']: row for row in FakeHost(truth, tessera, facts, work).answer(traced=traced)['checks']}
        expect(said, found['tracer']['status'], status)
        assert 'record' not in found


def check_no_card(tessera, work):
    """A driver without a GPU that PyTorch can use is a failure, unless that is what the user wants."""
    facts = facts_of(tessera)
    for has_driver, visible, built_for, status in ((False, '0', '12.8', 'skipped'), (True, '0', '12.8', 'failed'), (True, '', '12.8', 'skipped'),
                                                   (True, '0', None, 'note')):
        truth = Truth(1)
        truth.cards, truth.has_driver, truth.built_for = 0, has_driver, built_for
        host = FakeHost(truth, tessera, facts, work)
        host.environment['CUDA_VISIBLE_DEVICES'] = visible
        found = {row['name']: row for row in host.answer()['checks']}
        expect(f'{has_driver} {visible} {built_for}', found['card']['status'], status)


def check_layer():
    """What a Card asks of torch.cuda, with recorded counters in its place."""
    calls = []

    def note(name, result=None):
        return lambda *args, **kwargs: (calls.append((name, *args, kwargs)), result)[1]
    stats = {'allocated_bytes.all.current': 10, 'allocated_bytes.all.peak': 20, 'requested_bytes.all.current': 9, 'requested_bytes.all.peak': 19,
             'reserved_bytes.all.current': 30, 'reserved_bytes.all.peak': 40}
    memory = types.SimpleNamespace(_record_memory_history=note('record'), _dump_snapshot=note('dump'))
    cuda = types.SimpleNamespace(
        set_device=note('set_device'), init=note('init'), synchronize=note('synchronize'), empty_cache=note('empty_cache'), memory=memory,
        get_device_properties=note('properties', types.SimpleNamespace(name='A card', major=9, minor=0)), mem_get_info=note('mem_get_info', (7, 8)),
        memory_stats=note('memory_stats', stats), reset_peak_memory_stats=note('reset'))
    one = card.Card(types.SimpleNamespace(cuda=cuda, _C=types.SimpleNamespace(_cuda_clearCublasWorkspaces=note('workspaces'))), 1)
    one.start()
    expect('start', [call[0] for call in calls], ['set_device', 'init', 'synchronize'])
    expect('about', one.about(), {'name': 'A card', 'capability': [9, 0], 'total_bytes': 8})
    expect('free', one.free_bytes(), 7)
    expect('counters', one.counters(), {'now_requested': 9, 'peak_requested': 19, 'now_allocated': 10, 'peak_allocated': 20, 'now_reserved': 30,
                                        'peak_reserved': 40})
    expect('its number', {call[1] for call in calls if call[0] in ('set_device', 'properties', 'mem_get_info', 'memory_stats')}, {1})
    del calls[:]
    one.clear()
    expect('clear', [call[0] for call in calls], ['synchronize', 'workspaces', 'empty_cache'])
    del calls[:]
    one.record()
    one.dump('x.pickle')
    expect('history', calls, [('record', card.HISTORY), ('dump', 'x.pickle', {}), ('record', {'enabled': None})])
    expect('a driver that does not answer', card.count(types.SimpleNamespace(cuda=types.SimpleNamespace(is_available=lambda: 1 // 0)))[0], 0)


def check_cards():
    for name, capability, gib, want in (
            ('NVIDIA H100 80GB HBM3', (9, 0), 80, 'h100'), ('NVIDIA H200', (9, 0), 141, 'h200'), ('NVIDIA A100-SXM4-40GB', (8, 0), 40, 'a100-40'),
            ('NVIDIA A100-SXM4-80GB', (8, 0), 80, 'a100'), ('Tesla T4', (7, 5), 16, 't4'), ('NVIDIA GeForce RTX 5070 Ti', (12, 0), 16, 'rtx5070ti'),
            ('NVIDIA GeForce RTX 5070', (12, 0), 12, 'rtx5070'), ('NVIDIA L40S', (8, 9), 48, 'l4'), ('NVIDIA A10G', (8, 6), 24, 'a10'),
            ('Quadro RTX 6000', (7, 5), 24, 't4'), ('NVIDIA TITAN Xp', (6, 1), 12, 't4'), ('NVIDIA GH200 480GB', (9, 0), 96, 'h200')):
        expect(name, card.like(name, capability, gib << 30), want)
    expect('settings', card.settings({'PYTORCH_ALLOC_CONF': 'x', 'A': 'b'}, 'y:1'), {'A': 'b', 'PYTORCH_CUDA_ALLOC_CONF': 'y:1'})


def check_machine_file(work):
    """machine.json: devices are replaced by name, driver and CUDA; what cannot be read is left as it is."""
    path = work / 'deep' / 'er' / 'machine.json'
    one = {'name': 'A', 'driver': '1', 'cuda': '12', 'context_bytes': 5, 'libraries_bytes': 6, 'nccl_bytes_per_communicator': None, 'measured_at': 'x'}
    machine.save(str(path), one)
    machine.save(str(path), {**one, 'driver': '2'})
    machine.save(str(path), {**one, 'context_bytes': 9})
    expect('devices', [(row['driver'], row['context_bytes']) for row in machine.load(str(path))], [('1', 9), ('2', 5)])
    expect('only one file', os.listdir(path.parent), ['machine.json'])
    for text in (b'', b'[]', b'{"schema": "tessera/machine/2", "devices": []}', b'{"schema": "tessera/machine/1", "devices": {}}',
                 b'{"schema": "tessera/machine/1", "devices": [1]}', b'\xff\xfe', b'[' * 100000, b' ' * (2 << 20)):
        path.write_bytes(text)
        try:
            machine.save(str(path), one)
        except machine.Unreadable:
            expect('the file', path.read_bytes(), text)
            continue
        raise AssertionError(f'{text[:40]} was taken')
    expect('a place', machine.place({'XDG_CONFIG_HOME': '/c'}), '/c/tessera/machine.json')
    expect('a place of its own', machine.place({'XDG_CONFIG_HOME': '/c', 'TESSERA_MACHINE': '/m.json'}), '/m.json')
    expect('no place', machine.place({'XDG_CONFIG_HOME': '/c', 'TESSERA_MACHINE': ''}), '')
    expect('relative folders are ignored', machine.place({'XDG_CONFIG_HOME': 'c'}), os.path.expanduser('~/.config/tessera/machine.json'))


def check_folders(work):
    """A folder that cannot be written, one that is a file, and one that is made on demand."""
    file = work / 'file'
    file.write_text('')
    for cache, status in ((work / 'absent' / 'cache', 'ok'), (file, 'failed'), (Path('/proc/nowhere'), 'failed')):
        found = {row['name']: row['status'] for row in checks.folders({'XDG_CACHE_HOME': str(cache), 'TESSERA_MACHINE': str(work / 'm.json')})}
        expect(str(cache), found['cache folder'], status)
    expect('the others', (found['temp folder'], found['config folder']), ('ok', 'ok'))
    expect('locales', [checks.terminal({'LC_ALL': name}, False, 0)[0]['status'] for name in ('de_DE.UTF-8', 'C.utf8', 'C', '')], ['ok', 'ok', 'note', 'note'])


def check_text(tessera, work):
    """At 80 columns no line is longer, but for those that a word makes long; colors only where they are asked for."""
    truth = Truth(3)
    truth.plants = {name: plant for name, plant in zip(truth.plants, ['differs more', 'misread', 'error', 'memory', 'near'] * 10)}
    answer = FakeHost(truth, tessera, facts_of(tessera), work).answer()
    text = report.text(answer, 80)
    long = [line for line in text.splitlines() if len(line) > 80]
    expect('long lines', long, [])
    assert '\x1b' not in text and '\x1b[1;31mFAILED' in report.text(answer, 80, True)
    expect('the same words', text.split(), report.text(answer).split())


def check_package(work):
    """An installed package with a file that was changed, and one that is absent."""
    import base64
    import hashlib
    import importlib.metadata
    place = work / 'site'
    folder = place / 'tessera-1.0.0.dist-info'
    folder.mkdir(parents=True)
    rows = []
    for name in ('a.py', 'b.py', 'c.py'):
        (place / name).write_text(name)
        digest = base64.urlsafe_b64encode(hashlib.sha256(name.encode()).digest()).rstrip(b'=').decode()
        rows.append(f'{name},sha256={digest},4')
    (folder / 'METADATA').write_text('Metadata-Version: 2.1\nName: tessera\nVersion: 1.0.0\n')
    (folder / 'RECORD').write_text('\n'.join([*rows, 'tessera-1.0.0.dist-info/METADATA,,']) + '\n')
    found = importlib.metadata.PathDistribution(folder)
    expect('whole', checks._damaged(found), [])
    (place / 'a.py').write_text('x')
    (place / 'c.py').unlink()
    expect('damaged', sorted(checks._damaged(found)), ['a.py', 'c.py'])


# ---- The command ----

def command(tessera, work, *words, **environment):
    clean = {name: value for name, value in os.environ.items() if name not in ('VIRTUAL_ENV', 'CONDA_PREFIX', 'TESSERA_PYTHON')}
    done = subprocess.run([tessera, 'doctor', *words], capture_output=True, text=True, cwd=work, check=False,
                          env={**clean, 'TESSERA_MACHINE': str(work / 'machine.json'), **environment})
    return done.returncode, done.stdout, done.stderr


def in_place_of_python(work, name, text):
    path = work / name
    path.write_text(f'#!/bin/sh\n{text}\n')
    path.chmod(0o755)
    return str(path)


def check_without_python(tessera, work):
    for name, text, said in (('dies', 'exit 7', 'dies ended without an answer: exit status 7'),
                             ('garbage', 'cat /dev/fd/10 > /dev/null; echo "graph x 5" > /dev/fd/11', "Python's answer cannot be read"),
                             ('too-long', 'cat /dev/fd/10 > /dev/null; (echo "graph 0 99"; echo) > /dev/fd/11', "Python's answer cannot be read"),
                             ('nothing', 'cat /dev/fd/10 > /dev/null; echo "graph" > /dev/fd/11', 'ended without an answer')):
        status, out, err = command(tessera, work, '--python', in_place_of_python(work, name, text))
        expect(name, (status, err), (1, ''))
        assert said in out and out.startswith('1 check failed: python.\n'), out
    status, out, _ = command(tessera, work, '--python', './absent', '--json', '-o', 'alone.json')
    answer = json.loads(out)
    expect('absent', (status, answer['verdict'], [row['status'] for row in answer['checks']]), (1, 'failed', ['failed']))
    expect('the report', json.loads((work / 'alone.json').read_text()), answer)


def check_delivered(tessera, work):
    """The answer goes to standard output, the rest to the file, and the number of failures decides the status."""
    python = in_place_of_python(work, 'answers', 'head -n 1 /dev/fd/10 > request.json; (echo "graph 2 6"; printf "hello\\nreport\\n") > /dev/fd/11')
    expect('with a report', command(tessera, work, '--python', python, '-o', 'out.md', '-q'), (1, 'hello\n', ''))
    expect('the report', (work / 'out.md').read_text(), 'report\n')
    request = json.loads((work / 'request.json').read_text())
    expect('request', {key: request[key] for key in ('entry', 'quick', 'save', 'json', 'report', 'color', 'progress', 'columns')},
           {'entry': 'doctor', 'quick': False, 'save': True, 'json': False, 'report': 'markdown', 'color': False, 'progress': False, 'columns': 0})
    expect('version', request['version'], facts_of(tessera)['version'])
    command(tessera, work, '--python', python, '--quick', '--no-save', '--json', '--color', 'always', COLUMNS='70')
    request = json.loads((work / 'request.json').read_text())
    expect('request', [request[key] for key in ('quick', 'save', 'json', 'report', 'color', 'columns')], [True, False, True, '', False, 70])
    command(tessera, work, '--python', python, '-o', 'out.JSON')
    expect('by its name', json.loads((work / 'request.json').read_text())['report'], 'json')
    status, _, err = command(tessera, work, '--python', python, '-o', 'absent/out.md')
    expect('a folder that is absent', (status, 'absent/out.md' in err), (4, True))
    expect('standard output', command(tessera, work, '-o', '-')[0], 2)
    expect('an operand', command(tessera, work, 'file')[0], 2)


def check_this_python(tessera, work, gendocs):
    """All of it with the Python of this test. What it says has the declared fields, and nothing is left behind."""
    temporary = work / 'temporary'
    temporary.mkdir()
    status, out, _ = command(tessera, work, '--python', sys.executable, '--json', '--quick', '--no-save', '-o', 'report.md', LC_ALL='C.UTF-8',
                             TMPDIR=str(temporary))
    answer = json.loads(out)
    failed = [f'{row["name"]}: {row["message"]}' for row in answer['checks'] if row['status'] == 'failed']
    expect('status', (status, failed), (0, []))
    expect('left behind', os.listdir(temporary), [])
    check_private((work / 'report.md').read_text(), answer)
    expect('checks', [row['name'] for row in answer['checks']][:1], ['command'])
    expect('the answer of the command', next(row for row in answer['checks'] if row['name'] == 'answers')['status'], 'ok')
    if gendocs:
        listed = subprocess.run([gendocs, 'contract'], capture_output=True, text=True, check=True).stdout
        declared = {line.split()[2]: line.partition(' = ')[2].split(', ') for line in listed.splitlines() if line.startswith('field doctor ')}
        truth = Truth(1)
        measured = FakeHost(truth, tessera, facts_of(tessera), work).answer()
        seen = set()
        for one in (answer, measured, json.loads((work / 'alone.json').read_text())):
            walk(declared, '', one, seen)
        expect('fields that no answer has', set(declared) - seen, set())


TYPES = {'text': str, 'flag': bool, 'bytes': int, 'count': int, 'duration': int, 'record': dict}


def walk(declared, prefix, value, seen):
    """Each member of an object is declared, and is what it is declared as."""
    for key, member in value.items():
        if not prefix and key in ('schema', 'command', 'inputs', 'warnings'):
            continue
        path = prefix + key + ('[]' if isinstance(member, list) else '')
        assert path in declared, f'{path} is not declared'
        seen.add(path)
        for one in member if isinstance(member, list) else [member]:
            if one is None:
                assert 'nullable' in declared[path], f'{path} is null'
                continue
            assert type(one) is TYPES[declared[path][0]], f'{path} is {one!r}'
            if isinstance(one, dict):
                walk(declared, f'{path}.', one, seen)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--tessera', required=True, type=lambda text: Path(text).resolve())
    parser.add_argument('--work', required=True, type=lambda text: Path(text).resolve())
    parser.add_argument('--gendocs', type=lambda text: Path(text).resolve())
    parser.add_argument('--seed', type=int, default=0)
    parser.add_argument('--count', type=int, default=COUNT, help=f'of random machines (default: {COUNT})')
    given = parser.parse_args()
    given.work.mkdir(parents=True, exist_ok=True)
    os.chdir(given.work)
    with tempfile.TemporaryDirectory(dir=given.work) as folder:
        work = Path(folder)
        return tap.run([
            (f'{given.count} random machines', lambda: check_seeds(given.tessera, work, given.seed, given.count)),
            ('predictions against the record', lambda: check_record(given.tessera, work)),
            ('a PyTorch that cannot trace', lambda: check_tracer(given.tessera, work)),
            ('a driver without a card', lambda: check_no_card(given.tessera, work)),
            ('what a card is asked', check_layer),
            ('cards', check_cards),
            ('machine.json', lambda: check_machine_file(work)),
            ('folders', lambda: check_folders(work)),
            ('the text', lambda: check_text(given.tessera, work)),
            ('the package', lambda: check_package(work)),
            ('without Python', lambda: check_without_python(given.tessera, work)),
            ('what Python answers', lambda: check_delivered(given.tessera, work)),
            ('this Python', lambda: check_this_python(given.tessera, work, given.gendocs)),
        ])


if __name__ == '__main__':
    sys.exit(main())
