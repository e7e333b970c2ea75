"""`tessera card` on jobs whose card is known to the byte (tests/card/ledgers.py), and what `why` says of them."""
import copy
import json
import os
import pathlib
import random
import re
import shutil
import subprocess
import sys
import time

import pytest
from support import ROOT, cases, expect

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / 'card'))
import example  # noqa: E402
from ledgers import CAUSES, Job  # noqa: E402
from shares import GIB, START_US, TICK_US, Shared  # noqa: E402

WHOLE = bool(os.environ.get('TESSERA_WHOLE'))
SEEDS = range(200) if WHOLE else range(14)


@pytest.fixture
def folder(work):
    path = work / 'card'
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir(parents=True)
    return path


def asked(tessera, *words):
    return json.loads(tessera.output('card', *words, '--json', '-q'))


def divided(moment):
    """{(kind, name): bytes} of the parts that are not 0."""
    out = {}
    for part in moment['parts']:
        name = {'communicator': part['group'], 'process': part['pid'], 'library': part['name']}.get(part['kind'], '')
        if part['bytes']:
            out[part['kind'], name] = out.get((part['kind'], name), 0) + part['bytes']
    return out


def adds_up(moment):
    expect('the sum of the parts', sum(part['bytes'] for part in moment['parts']), moment['used_bytes'])


@cases('seed', SEEDS, str)
def test_parts(tessera, folder, seed):
    job = Job(seed)
    answer = asked(tessera, job.write(folder))
    device, = answer['devices']
    peak = job.peak()
    expect('total', device['total_bytes'], job.total)
    expect('used', device['used_bytes'], job.used[peak])
    expect('time', device['time_us'], job.times[peak])
    expect('parts at the peak', divided(device), job.parts(peak))
    expect('the end', (device['end']['time_us'], device['end']['used_bytes']), (job.times[-1], job.used[-1]))
    expect('parts at the end', divided(device['end']), job.parts(job.count - 1))
    expect('overlap', device['overlap'], 'none')
    if device['early']:
        i = job.times.index(device['early']['time_us'])
        expect('parts at first', divided(device['early']), job.parts(i))
        adds_up(device['early'])
    adds_up(device)
    adds_up(device['end'])
    grown = {row['kind']: row for row in device['growth'] if row['kind'] != 'library'}
    if job.cause == 'growth' and device['early']:
        rise = job.parts(job.count - 1).get(job.culprit, 0) - job.parts(job.times.index(device['early']['time_us'])).get(job.culprit, 0)
        expect('what grew', grown[job.culprit[0]]['bytes'], rise)
    else:
        expect('nothing grew', grown, {})
    moment = random.Random(seed).randrange(job.count)
    device, = asked(tessera, folder / 'job.pickle', '--time', job.times[moment])['devices']
    adds_up(device['at'])
    expect('parts then', divided(device['at']), job.parts(moment))


@cases('seed', range(0, 200, 10) if WHOLE else (3, 4), str)
def test_copies(tessera, folder, seed):
    """A copy of the snapshot, and a part of it, have the ledger in them."""
    job = Job(seed)
    path = job.write(folder)
    device, = asked(tessera, path)['devices']
    device['holders'][0].pop('path')
    copies = folder / 'copies'
    copies.mkdir(exist_ok=True)
    tessera.output('trim', path, '--events', '1..4', '-o', copies / 'part.pickle')
    tessera.output('export', path, '-o', copies / 'copy.pickle')
    tessera.output('export', path, '-o', copies / 'copy.snapshot.json')
    for copied in ('part.pickle', 'copy.pickle', 'copy.snapshot.json'):
        same, = asked(tessera, copies / copied)['devices']
        expect(f'path of {copied}', same['holders'][0].pop('path'), str(copies / copied))
        expect(copied, same, device)


def places(value, at=()):
    """All places in a JSON value."""
    yield at
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield from places(inner, (*at, key))


def spoil(value, at, new):
    for key in at[:-1]:
        value = value[key]
    value[at[-1]] = new


ODD = (None, -1, 1.5, 'x', [], {}, True, 2**62, 2**63 - 1, '0x10', [None], [[]], [1, 2, 3], 0, 2**50, 2**50 - 1, {'a': 1}, '', '\u0000b')


@cases('seed', range(1000, 1200) if WHOLE else range(1000, 1008), str)
def test_spoiled(tessera, folder, seed):
    """Whatever stands in the ledger, what is answered adds up."""
    chance = random.Random(seed)
    job = Job(seed)
    path = job.write(folder)
    whole = job.sidecar()
    for _ in range(6 if WHOLE else 4):
        spoiled = copy.deepcopy(whole)
        for _ in range(chance.choice((1, 1, 2, 20))):
            found = [at for at in places(spoiled['card']) if at]
            spoil(spoiled['card'], chance.choice(found), copy.deepcopy(chance.choice(ODD)))
        path.with_suffix('.json').write_text(json.dumps(spoiled))
        for device in asked(tessera, path)['devices']:
            for moment in (device, device['end'], device['early'], device['at']):
                if moment and moment['used_bytes'] is not None:
                    adds_up(moment)
        assert tessera.output('card', path, '-q')
        json.loads(tessera.output('why', path, '--json', '-q'))


def test_order(tessera, folder):
    """Samples in any order are put in that of their times."""
    job = Job(4)
    path = job.write(folder)
    before, = asked(tessera, path)['devices']
    sidecar = job.sidecar()
    samples = sidecar['card']['devices'][0]['samples']
    order = list(range(job.count))
    random.Random(4).shuffle(order)
    for key, row in samples.items():
        if row:
            samples[key] = [[inner[i] for i in order] for inner in row] if isinstance(row[0], list) else [row[i] for i in order]
    path.with_suffix('.json').write_text(json.dumps(sidecar))
    after, = asked(tessera, path)['devices']
    expect('the same answer', after, before)


def test_twice(tessera, folder):
    """Parts that are more than is used are not hidden: the sum is right, and says why."""
    job = Job(0)
    job.used = [used - 300 * (1 << 20) - (job.here + job.rest[0]) for used in job.used]
    device, = asked(tessera, job.write(folder))['devices']
    expect('counted twice', divided(device)['counted_twice', ''], -300 * (1 << 20) - job.here)
    adds_up(device)
    assert device['overlap'] in ('first_use', 'counters'), device['overlap']


def test_older(tessera, folder):
    """An older sidecar has one figure for all that is not PyTorch's; without any there is none."""
    job = Job(3)
    path = job.write(folder)
    sidecar = job.sidecar()
    del sidecar['card']
    path.with_suffix('.json').write_text(json.dumps(sidecar))
    device, = asked(tessera, path)['devices']
    expect('source', device['source'], 'sidecar')
    expect('used', device['used_bytes'], job.used[-1])
    expect('parts', divided(device), {('allocated', ''): job.reserved_at[-1], ('unaccounted', ''): job.used[-1] - job.reserved_at[-1]})
    path.with_suffix('.json').unlink()
    device, = asked(tessera, path)['devices']
    expect('source', (device['source'], device['used_bytes'], device['total_bytes']), ('nothing', None, None))
    expect('parts', divided(device), {('allocated', ''): job.reserved_at[-1]})
    assert 'tessera.record' in tessera.output('card', path)


# ---- why ----

@cases('seed', SEEDS, str)
def test_why(tessera, folder, seed):
    """An out-of-memory that a part outside PyTorch was planted for names it, and another one names none."""
    job = Job(seed)
    device, = json.loads(tessera.output('why', job.write(folder), '--json', '-q'))['devices']
    cause = next(iter(device['outside_causes']), None)
    told = {(row['kind'], row['pid'] if row['kind'] == 'process' else row['name'] or ''): row['bytes'] for row in device['outside']}
    expect('outside PyTorch', told, {key: size for key, size in job.parts(job.peak() if job.cause == 'none' else job.count - 1).items()
                                     if key[0] != 'allocated'} if job.cause != 'none' else told)
    if job.cause in ('none', 'pytorch'):
        expect('cause', (device['reason'], cause), ('not_recorded' if job.cause == 'none' else 'in_use', None))
        return
    expect('reason', device['reason'], 'outside')
    part = device['outside'][cause['index']]
    named = (part['kind'], part['pid'] if part['kind'] == 'process' else part['name'] or '')
    expect('cause', named, job.culprit)
    sorts = {'process': 'process', 'communicator': 'groups', 'growth': 'growth', 'unaccounted': 'unaccounted', 'context': 'context'}
    expect('sort', cause['sort'], sorts[job.cause])
    assert device['advice'][0]['change'] == 'outside' or device['advice'][0]['enough'], device['advice']
    text = tessera.output('why', folder / 'job.pickle', '-q')
    assert 'Outside PyTorch: ' in text and 'What would help, outside PyTorch:' in text, text
    if job.cause == 'process':
        assert '9001' in text.splitlines()[1], text


def test_why_without(tessera, folder):
    """Without the ledger, nothing is said that only it could tell."""
    job = Job(CAUSES.index('communicator'))
    path = job.write(folder)
    path.with_suffix('.json').unlink()
    device, = json.loads(tessera.output('why', path, '--json', '-q'))['devices']
    expect('outside', (device['outside'], device['outside_causes'], device['outside_time_us']), ([], [], None))
    assert device['reason'] == 'in_use'


# ---- many ranks ----

@cases('seed', range(30) if WHOLE else range(3), str)
def test_ranks(tessera, folder, seed):
    """Of the cards of a job, the one whose NCCL, or whose rest, was made larger stands apart."""
    chance = random.Random(seed)
    count, total = chance.randrange(3, 12), 80 << 30
    odd, kind = chance.randrange(count), chance.choice(('communicator', 'unaccounted', 'process'))
    jobs = []
    for rank in range(count):
        job = Job(7 * seed, cause='none', total=total, samples=10, pid=4000 + rank)
        if rank == odd:
            more = chance.randrange(1 << 30, 9 << 30)
            rows = {'communicator': job.groups, 'process': job.others}.get(kind)
            if rows is not None:
                rows['more' if kind == 'communicator' else 9001] = [more] * job.count
            else:
                job.rest = [rest + more for rest in job.rest]
            job.used = [used + more for used in job.used]
        path = job.write(folder, f'rank{rank}')
        sidecar = job.sidecar()
        sidecar['ranks'] = {'rank': rank, 'world_size': count}
        sidecar['card']['devices'][0]['uuid'] = chance.choice((f'GPU-{rank}', None))
        path.with_suffix('.json').write_text(json.dumps(sidecar))
        jobs.append(job)
    answer = asked(tessera, folder)
    expect('cards', len(answer['devices']), count)
    for device, job in zip(sorted(answer['devices'], key=lambda device: device['holders'][0]['rank']), jobs):
        adds_up(device)
        expect('used', device['used_bytes'], job.used[job.peak()])
    if count >= 3:
        expect('apart', [(row['rank'], row['kind']) for row in answer['apart']], [(odd, kind)])
        assert f'On that of rank {odd}, ' in tessera.output('card', folder, '-q')
    (folder / 'rank1.pickle').write_bytes(b'no snapshot')
    answer = asked(tessera, folder)
    expect('broken', [row['path'] for row in answer['broken']], [str(folder / 'rank1.pickle')])
    expect('others', len(answer['devices']), count - 1)


# ---- processes that share a card ----

NOBODYS = ('driver', 'process', 'unaccounted_here', 'unaccounted', 'counted_twice')


@cases('seed', range(200) if WHOLE else range(12), str)
def test_shared(tessera, folder, seed):
    """The peak of the sum, and what each phase needs and asks of the others, worked out tick by tick."""
    shared = Shared(seed)
    device, = asked(tessera, *shared.write(folder))['devices']
    tick, most = shared.together()
    expect('together', (device['together_bytes'], device['together_time_us']), (most, START_US + tick * TICK_US))
    expect('peaks', [holder['peak_bytes'] for holder in device['holders']], shared.peaks())
    expect('their sum', device['sum_of_peaks_bytes'], sum(shared.peaks()))
    expect('what each held then', [holder['together_bytes'] for holder in device['holders']], [process.holds(tick) for process in shared.processes])
    for moment in (device, device['end'], device['early']):
        if moment:
            adds_up(moment)
    pids = {part['pid'] for part in device['parts'] if part['kind'] == 'process'}
    assert pids <= {7}, f'a process whose file was given is counted as another one: {pids}'
    nobodys = max(sum(part['bytes'] for part in device['parts'] if part['kind'] in NOBODYS), 0)
    want = shared.phases(nobodys)
    got = {(row['holder'], row['name']): row for row in device['phases']}
    expect('phases', sorted(got), sorted(want))
    for key, row in want.items():
        expect(key, {name: got[key][name] for name in row}, row)
    text = tessera.output('card', *(folder / f'{process.name}.pickle' for process in shared.processes), '-q')
    assert 'hold at most' in text.splitlines()[1], text
    if any(row['release_bytes'] for row in want.values()):
        assert 'must have released' in text.splitlines()[2], text


def test_two_real_processes(tessera, folder):
    """Two processes take turns by the clock of the machine: what they hold together is less than the sum of what each holds at most."""
    turn, start = 0.25, time.time() + 1
    program = pathlib.Path(__file__).resolve().parent.parent / 'card' / 'shares.py'
    paths = [folder / f'{role}.pickle' for role in ('engine', 'trainer')]
    running = [subprocess.Popen([sys.executable, program, '--process', path, path.stem, str(start), str(turn)]) for path in paths]
    for process in running:
        assert process.wait(timeout=120) == 0
    device, = asked(tessera, *paths)['devices']
    expect('peaks', [holder['peak_bytes'] for holder in device['holders']], [3 * GIB, 2 * GIB])
    expect('their sum', device['sum_of_peaks_bytes'], 5 * GIB)
    rows = {row['name']: row for row in device['phases']}
    expect('times', {name: row['times'] for name, row in rows.items()}, {'rollout': 3, 'training': 3})
    expect('needs', {name: row['needs_bytes'] for name, row in rows.items()}, {'rollout': 3 * GIB, 'training': 2 * GIB})
    expect('room', {name: row['room_bytes'] for name, row in rows.items()}, {'rollout': GIB, 'training': 2 * GIB})
    for row in rows.values():
        expect('to release', row['release_bytes'], max(row['before_bytes'] - row['room_bytes'], 0))
    # Whether they overlapped is a matter of how the machine ran them: the files' own times tell.
    assert device['together_bytes'] == overlap(paths), device


def overlap(paths):
    """The most that is reserved at one time, by the traces alone."""
    import pickle
    changes = []
    for which, path in enumerate(paths):
        for event in pickle.loads(path.read_bytes())['device_traces'][0]:
            sign = {'segment_alloc': 1, 'segment_free': -1}.get(event['action'], 0)
            changes.append((event['time_us'], which, sign * event['size']))
    held, most = 0, 0
    for moment in sorted({moment for moment, _, _ in changes}):
        held += sum(size for time_us, _, size in changes if time_us == moment)
        most = max(most, held)
    return most


def test_not_one_card(tessera, folder):
    """Files that say that their cards differ, or that are ranks of one job, are not joined."""
    shared = Shared(3)
    paths = shared.write(folder)
    sidecars = [json.loads(path.with_suffix('.json').read_text()) for path in paths]

    def cards(**changes):
        for i, (path, sidecar) in enumerate(zip(paths, sidecars)):
            changed = copy.deepcopy(sidecar)
            changed['card']['devices'][0]['uuid'] = None
            for key, value in changes.items():
                if key == 'uuid':
                    changed['card']['devices'][0]['uuid'] = value(i)
                elif key == 'host':
                    changed['process']['host'] = value(i)
                else:
                    changed[key] = value(i)
            path.with_suffix('.json').write_text(json.dumps(changed))
        return len(asked(tessera, *paths)['devices'])

    expect('nothing says otherwise', cards(), 1)
    expect('one UUID', cards(uuid=lambda i: 'GPU-1'), 1)
    expect('UUIDs', cards(uuid=lambda i: f'GPU-{i}'), len(paths))
    expect('machines', cards(host=lambda i: f'node{i}'), len(paths))
    expect('ranks', cards(ranks=lambda i: {'rank': i, 'world_size': 8}), len(paths))
    expect('a rank each of two jobs', cards(ranks=lambda i: {'rank': 0, 'world_size': 8}), 1)
    expect('one process', cards(process=lambda i: {'pid': 5, 'host': 'node1'}), len(paths))
    cards()
    expect('a folder is of ranks', len(asked(tessera, folder)['devices']), len(paths))


def test_documented(tessera, folder):
    """The reports of docs/card.md are those of the files that example.py makes."""
    example.write(folder)
    page = (ROOT / 'docs' / 'card.md').read_text(encoding='utf-8')
    blocks = [block.splitlines() for block in re.findall(r'```\n(\$ tessera .*?)```\n', page, re.DOTALL)]
    assert len(blocks) == 3
    for command, *lines in blocks:
        done = tessera.output(*command.split()[2:], cwd=folder, env={**os.environ, 'COLUMNS': '80'}).splitlines()
        if lines[-1] == '...':
            done = done[:len(lines) - 1] + ['...']
        expect(command, lines, done)


# ---- what the recorder writes ----

SORTS = {'communicators': {'groups'}, 'other_process': {'process'}, 'other_growth': {'process', 'growth'}, 'unaccounted': {'unaccounted', 'growth'}}


def test_recorded(tessera, work):
    """Jobs whose sidecars tessera.record wrote, of worlds that are known (tests/card/jobs.py): each part at the peak and at the end, and the
    cause that was planted."""
    recorded = pytest.importorskip('jobs', reason='no tests/card/jobs.py')
    folder, truth = recorded.jobs(1, 200 if WHOLE else 12, work / 'recorded')
    if folder is None:
        pytest.skip('no compiler for the stand-in of NVML')
    named = {'library': 'libraries', 'process': 'processes', 'communicator': 'communicators'}
    for job in truth:
        device, = asked(tessera, job['path'])['devices']
        for moment, i in ((device, job['peak']), (device['end'], job['end'])):
            want = {name: sum(size.values()) if isinstance(size, dict) else size or 0 for name, size in job['samples'][i].items()}
            got = dict.fromkeys(('allocated', 'cached', 'context', 'driver', 'libraries', 'communicators', 'processes', 'unaccounted'), 0)
            for part in moment['parts']:
                kind = named.get(part['kind'], part['kind'])
                got[kind if kind in got else 'unaccounted'] += part['bytes']
            adds_up(moment)
            expect(f'{job["path"]}: used', (moment['time_us'], moment['used_bytes']), (want['time_us'], want['used_bytes']))
            expect(f'{job["path"]}: parts', got, {name: want[name] for name in got})
        if job['cause'] in SORTS:
            why, = json.loads(tessera.output('why', job['path'], '--json', '-q'))['devices']
            cause = why['outside_causes'][0]
            expect(f'{job["path"]}: reason', why['reason'], 'outside')
            assert cause['sort'] in SORTS[job['cause']], (job['path'], cause)
            part = why['outside'][cause['index']]
            if job['cause_name']:
                expect(f'{job["path"]}: cause', str(part['pid'] or part['name']), job['cause_name'])
