"""`tessera ranks` finds the fault that was planted in a job of many ranks, and finds none where there is none (fleets.py).

Each fleet is asked without its mesh and with it: the rank, the cause and the line must be those of the fault, and nobody else stands apart."""
import base64
import collections
import concurrent.futures
import functools
import itertools
import json
import os
import pickle
import random
import re
import shutil
import subprocess
import time
import zlib

import pytest
from fleets import CAUSES, NAMES, STEPS, Device, Fleet, frame, random_fleet
from paces import random_pace
from support import cases, expect

WHOLE = bool(os.environ.get('TESSERA_WHOLE'))
FAULTS = range(1000, 1100) if WHOLE else range(1000, 1010)
PACES = range(4000, 4050) if WHOLE else range(4000, 4006)
SOUND = range(2000, 2040) if WHOLE else range(2000, 2004)


def asked(tessera, *words, **how):
    return json.loads(tessera.output('ranks', *words, '--json', '-q', **how))


@pytest.fixture
def folder(work):
    path = work / 'fleet'
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir()
    return path


def both(tessera, fleet, folder):
    fleet.write(folder)
    for words in ((), ('--mesh', fleet.mesh)):
        yield ' '.join(words) or 'likeness', asked(tessera, folder, *words)


@cases('seed', FAULTS, str)
def test_fault(tessera, folder, seed):
    fleet = random_fleet(seed)
    for how, answer in both(tessera, fleet, folder):
        what = f'{fleet.fault} of rank {fleet.rank}, {fleet.mesh}, by {how}'
        expect(f'{what}: ranks that stand apart', {outlier['rank'] for outlier in answer['outliers']}, {fleet.rank})
        first = answer['outliers'][0]
        expect(f'{what}: cause', first['cause_code'], fleet.fault)
        expect(f'{what}: sum of the changes', sum(change['delta_bytes'] for change in first['changes']), first['delta_bytes'])
        lines = {(frame['file'], frame['line']) for change in first['changes'] for frame in change['frames']}
        assert not fleet.line() or fleet.line() in lines, what
        expect(f'{what}: out of memory', answer['out_of_memory'], [fleet.rank] if fleet.is_dead else [])
        expect(f'{what}: ranks', sorted({row['rank'] for row in answer['ranks']}), list(range(fleet.count)))


@cases('seed', SOUND, str)
def test_no_false_alarm(tessera, folder, seed):
    fleet = random_fleet(seed, with_fault=False)
    for how, answer in both(tessera, fleet, folder):
        expect(f'{fleet.mesh} by {how}', answer['outliers'], [])


@cases('seed', PACES, str)
@pytest.mark.parametrize('with_fault', (True, False), ids=('late', 'in step'))
def test_paces(tessera, folder, seed, with_fault):
    """A rank that is slow, or that waits for its data, is named, and no other; clocks that are off by more than a step do not change who
    ran out of memory first."""
    pace = random_pace(seed, with_fault)
    step_us = pace.begins[1][0] - pace.begins[0][0]
    for how, answer in both(tessera, pace, folder):
        what = f'{pace.delay} of rank {pace.slow}, {pace.mesh}, by {how}'
        expect(f'{what}: late ranks', [late['rank'] for late in answer['stragglers']], [pace.slow] if with_fault else [])
        expect(f'{what}: out of memory', answer['out_of_memory'], pace.dying)
        expect(f'{what}: what differs in memory', answer['outliers'], [])
        if with_fault:
            late = answer['stragglers'][0]
            least = pace.wait_us or pace.work_us * (pace.factor - 1) * 0.4
            assert least * 0.8 < late['late_us'] < pace.work_us * 1.5, f'{what}: {late}'
            assert late['late_steps'] > late['steps'] // 2, f'{what}: {late}'
        if pace.noise < 0.02:
            truth = pace.clocks_ahead()
            for row in answer['ranks']:
                off = (row['clock_ahead_us'] or 0) - truth[row['rank']]
                assert abs(off) < step_us * 1.1, f'{what}: the clock of rank {row["rank"]} is off by {off} us'


def test_every_cause_is_planted():
    assert {random_fleet(seed).fault for seed in range(1000, 1100)} == set(CAUSES)


# ---- A small fleet ----

@functools.cache
def small(fault='leak'):
    fleet = Fleet(7, fault)
    fleet.sizes = {'pp': 1, 'dp': 6, 'ep': 1, 'tp': 1}
    fleet.count, fleet.rank, fleet.is_dead = 6, 4, False
    return fleet, [fleet.snapshot(rank)[0] for rank in range(fleet.count)]


def write_small(folder, name=NAMES[1], ranks=range(6)):
    _, snapshots = small()
    for rank in ranks:
        path = folder / name(rank, 100)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(pickle.dumps(snapshots[rank], protocol=4))
    return folder


def core(answer):
    """What does not depend on how the files were given."""
    return {name: value for name, value in answer.items() if name not in ('inputs', 'known_files')}


@cases('number', range(len(NAMES)), str)
def test_names(tessera, folder, number):
    answer = asked(tessera, write_small(folder, NAMES[number]))
    expect('ranks', [row['rank'] for row in answer['ranks']], list(range(6)))
    expect('how', answer['ranks_by'], 'name')
    expect('who', [outlier['rank'] for outlier in answer['outliers']], [4])


@cases('count', (1, 2, 4, 7), str)
def test_parts(tessera, folder, work, count):
    """However the files are divided, and in whatever order parts are put together: the same sketches, and the same answer."""
    write_small(folder)
    (folder / 'rank9.pickle').write_text('no snapshot')
    whole = asked(tessera, folder, '--sketches', work / 'whole.sketch')
    parts = []
    for part in range(1, count + 1):
        parts.append(work / f'part{part}.sketch')
        expect('a part prints nothing', tessera.output('ranks', folder, '--part', f'{part}/{count}', '--sketches', parts[-1], '-q'), '')
    for order in itertools.islice(itertools.permutations(parts), 6):
        answer = asked(tessera, *order, '--sketches', work / 'together.sketch')
        expect('the answer', core(answer), core(whole))
        expect('the sketches', (work / 'together.sketch').read_bytes(), (work / 'whole.sketch').read_bytes())
    again = asked(tessera, parts[0], parts[-1], *parts, parts[0])
    expect('a part given twice', core(again), core(whole))
    if count > 1:
        answer = asked(tessera, *parts[1:])
        expect('a part that is missing', answer['missing_parts'], [1])
    expect('of sketches', core(asked(tessera, work / 'whole.sketch')), core(whole))


LAUNCHED = {
    'tasks of Slurm': ({'SLURM_PROCID': '1', 'SLURM_NTASKS': '3'}, 2, 3),
    'an array of Slurm': ({'SLURM_ARRAY_TASK_ID': '7', 'SLURM_ARRAY_TASK_MIN': '5', 'SLURM_ARRAY_TASK_MAX': '8', 'SLURM_ARRAY_TASK_COUNT': '4',
                           'SLURM_PROCID': '0', 'SLURM_NTASKS': '1'}, 3, 4),
    'Open MPI': ({'OMPI_COMM_WORLD_RANK': '0', 'OMPI_COMM_WORLD_SIZE': '2'}, 1, 2),
    'MPICH': ({'PMI_RANK': '1', 'PMI_SIZE': '2'}, 2, 2),
    'Kubernetes': ({'JOB_COMPLETION_INDEX': '4', 'JOB_COMPLETIONS': '5'}, 5, 5),
    'an array with gaps': ({'SLURM_ARRAY_TASK_ID': '7', 'SLURM_ARRAY_TASK_MIN': '1', 'SLURM_ARRAY_TASK_MAX': '9',
                            'SLURM_ARRAY_TASK_COUNT': '3'}, None, None),
    'no count': ({'JOB_COMPLETION_INDEX': '4'}, None, None),
    'nothing': ({}, None, None),
}


@cases('launcher', LAUNCHED, str)
def test_launchers(tessera, folder, work, launcher):
    variables, part, count = LAUNCHED[launcher]
    known = {name for others, _, _ in LAUNCHED.values() for name in others}
    env = {**{name: value for name, value in os.environ.items() if name not in known}, **variables}
    words = ['ranks', write_small(folder), '--part', 'auto', '--sketches', work / 'of-%p.sketch', '-q']
    for path in work.glob('of-*'):
        path.unlink()
    if not part:
        assert '--part I/N' in tessera.run(*words, env=env, status=2).stderr
        return
    tessera.output(*words, env=env)
    tessera.output('ranks', folder, '--part', f'{part}/{count}', '--sketches', work / 'by-hand.sketch', '-q')
    expect('files', [path.name for path in work.glob('of-*')], [f'of-{part}.sketch'])
    expect('sketches', (work / f'of-{part}.sketch').read_bytes(), (work / 'by-hand.sketch').read_bytes())


STEP = {'SLURM_JOB_ID': '7', 'SLURM_STEP_ID': '0', 'SLURM_STEP_NUM_TASKS': '3', 'SLURM_NTASKS': '3'}
ARRAY = {'SLURM_ARRAY_JOB_ID': '9', 'SLURM_ARRAY_TASK_COUNT': '3', 'SLURM_ARRAY_TASK_MIN': '4', 'SLURM_ARRAY_TASK_MAX': '6'}
# For each case: the environment of every process, its options, and the number of the one that prints the answer (None: any).
GATHERINGS = {
    'srun': ([{**STEP, 'SLURM_PROCID': str(i)} for i in range(3)], (), '0'),
    'srun, and a process that is lost': ([{**STEP, 'SLURM_PROCID': str(i)} for i in (0, 2)], ('--wait', '1'), '0'),
    'an array': ([{**ARRAY, 'SLURM_ARRAY_TASK_ID': str(i)} for i in (4, 5, 6)], ('--part', 'auto'), None),
}


@pytest.mark.parametrize('how', GATHERINGS)
def test_gathering(tessera, folder, work, how):
    """Processes of Slurm need no option: each reads a part, one answers for all, and nothing is left in the folder that they share."""
    random_fleet(1003).write(folder / 'run')
    processes, words, answers = GATHERINGS[how]
    expected = tessera.output('ranks', folder / 'run')
    bench = folder / 'bench'
    bench.mkdir()
    plain = {key: value for key, value in os.environ.items() if not key.startswith('SLURM_')}
    running = [subprocess.Popen([tessera.path, 'ranks', folder / 'run', *words], env={**plain, **more}, cwd=bench, text=True,
                                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE) for more in processes]
    ended = [(*process.communicate(), process.returncode) for process in running]
    expect('exit statuses', [status for _, _, status in ended], [0] * len(ended))
    expect('answers', sorted(out for out, _, _ in ended), [''] * (len(ended) - 1) + [expected])
    if answers:
        expect('the process that answers', [bool(out) for out, _, _ in ended], [more['SLURM_PROCID'] == answers for more in processes])
    said = ''.join(err for _, err, _ in ended)
    expect('messages', said, 'tessera ranks: part 2 of 3 did not come, and is read here\n' if 'lost' in how else '')
    expect('files', list(bench.iterdir()), [])


def test_gathering_a_page(tessera, folder):
    """The process that answers writes the page, and it is that of one process."""
    random_fleet(1003).write(folder / 'run')
    whole, page = folder / 'whole.html', folder / 'bench' / 'ranks.html'
    expected = tessera.output('ranks', folder / 'run', '--html', whole, '-q')
    page.parent.mkdir()
    plain = {key: value for key, value in os.environ.items() if not key.startswith('SLURM_')}
    running = [subprocess.Popen([tessera.path, 'ranks', folder / 'run', '--html', page, '-q'], env={**plain, **STEP, 'SLURM_PROCID': str(i)},
                                cwd=page.parent, text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) for i in range(3)]
    expect('answers', [process.communicate()[0] for process in running], [expected, '', ''])
    expect('files', list(page.parent.iterdir()), [page])
    _, columns = read_page(page)
    _, wanted = read_page(whole)
    expect('the answer on it', *(core(json.loads(each.pop('answer'))) for each in (columns, wanted)))
    expect('the rest', columns, wanted)


def test_gathering_where_nothing_can_be_written(tessera, folder):
    random_fleet(1003).write(folder / 'run')
    done = tessera.run('ranks', folder / 'run', env={**os.environ, **STEP, 'SLURM_PROCID': '1'}, cwd='/proc', status=4)
    assert 'with --sketches FOLDER/%p.sketch the parts are written elsewhere' in done.stderr, done.stderr


def test_known(tessera, folder, work):
    """What has not changed is not read again, and what has is."""
    sketches = work / 'kept.sketch'
    sketches.unlink(missing_ok=True)
    write_small(folder)
    first = asked(tessera, folder, '--sketches', sketches)
    kept = sketches.read_bytes()
    expect('the first run', first['known_files'], 0)
    time.sleep(0.05)
    os.utime(sketches)  # the clock of files is coarse
    again = asked(tessera, folder, '--sketches', sketches)
    expect('the second run', (again['known_files'], core(again), sketches.read_bytes()), (6, core(first), kept))
    files = sorted(folder.rglob('*.pickle'))
    time.sleep(0.05)
    os.utime(files[0], ns=(1, 1))  # an old time, but of now
    files[2].with_suffix('.json').write_text('{"schema": "tessera/capture/1"}')
    files[4].rename(files[4].with_suffix('.tmp'))
    files[4].with_suffix('.tmp').rename(files[4])
    write_small(folder, lambda rank, step: f'iteration_{step}/rank{rank + 6}_memory_snapshot.pickle', (0,))
    changed = asked(tessera, folder, '--sketches', sketches)
    expect('two as they were, of one the sidecar is new, one is new', (changed['files'], changed['known_files']), (7, 3))
    sketches.write_bytes(kept[:-3])
    expect('damaged ones', (asked(tessera, folder, '--sketches', sketches)['known_files'], core(asked(tessera, folder))), (0, core(changed)))
    sketches.write_text('not sketches')
    expect('none', asked(tessera, folder, '--sketches', sketches)['known_files'], 0)


def test_threads(tessera, folder):
    write_small(folder)
    expect('one and four threads', asked(tessera, folder, '--threads', 1), asked(tessera, folder, '--threads', 4))


def test_places(tessera, folder):
    """A folder, a pattern, a list and the files themselves are the same."""
    write_small(folder)
    whole = core(asked(tessera, folder))
    files = sorted(folder.rglob('*.pickle'))
    (folder / 'list.txt').write_text('# ranks\n\n' + '\n'.join(str(path.relative_to(folder)) for path in files) + '\n')
    expect('files', core(asked(tessera, *files)), whole)
    expect('a pattern', core(asked(tessera, str(folder / '*' / '*.pickle'))), whole)
    expect('a list', core(asked(tessera, f'@{folder}/list.txt')), whole)
    (folder / 'loop').symlink_to(folder)
    (folder / 'notes.txt').write_text('rank')
    expect('a link to the folder itself, and other files', core(asked(tessera, folder)), whole)


# ---- Names that do not tell, or tell too much ----

REFUSED = {
    'numbers that may be steps': (lambda rank, _: f'snapshot_{100 * rank + 100}.pickle', 'may be ranks, steps or processes'),
    'no numbers': (lambda rank, _: f'snapshot{"abcdef"[rank]}.pickle', 'no name tells its rank'),
    'two jobs': (lambda rank, _: f'job{rank % 2}/rank{rank // 2}.pickle', 'nothing tells which is later'),
}


@cases('what', REFUSED, str)
def test_ambiguous_names(tessera, folder, what):
    name, message = REFUSED[what]
    write_small(folder, name)
    done = tessera.run('ranks', folder, status=2)
    assert message in done.stderr and '--pattern' in done.stderr, done.stderr


@cases('pattern', (r'worker(?P<rank>\d+)', r'worker(?<rank>[0-9]+)', r'/worker(?<rank>\d{1,3})_s(?<step>\d+)\.'), str)
def test_pattern(tessera, folder, pattern):
    write_small(folder, lambda rank, step: f'worker{rank}_s{step}.pickle')
    answer = asked(tessera, folder, '--pattern', pattern)
    expect('ranks', [row['rank'] for row in answer['ranks']], list(range(6)))
    expect('how', answer['ranks_by'], 'pattern')
    expect('step', answer['ranks'][0]['step'], 100 if 'step' in pattern else None)


@cases('words, message', ((('--pattern', 'rank([0-9]+)'), 'no group named rank'), (('--pattern', '(?<rank>[0-9'), 'not valid'),
                          (('--mesh', 'pp=2'), 'the mesh pp=2 has 2 ranks'),
                          (('--mesh', 'pp'), 'a mesh is names and sizes'), (('--mesh', 'pp=-4'), 'a mesh is names and sizes'),
                          (('--part', '3/2'), 'a part and how many'), (('--part', '0/2'), 'a part and how many'),
                          (('--part', '1'), 'a part and how many')))
def test_wrong_words(tessera, folder, words, message):
    done = tessera.run('ranks', write_small(folder), *words, status=2)
    assert message in done.stderr, done.stderr


def test_sidecars(tessera, folder):
    """The sidecar wins over the name, and has the mesh."""
    write_small(folder)
    for path in folder.rglob('*.pickle'):
        rank = int(path.name[4])
        path.with_suffix('.json').write_text(json.dumps(
            {'schema': 'tessera/capture/1', 'ranks': {'rank': 5 - rank, 'world_size': 8},
             'mesh': {'names': ['PP', 'dp'], 'sizes': [2, 4], 'coordinates': [rank % 2, rank // 2]}}))
    answer = asked(tessera, folder)
    expect('how', (answer['ranks_by'], answer['groups_by'], answer['world_size']), ('sidecar', 'sidecar', 8))
    expect('missing', answer['missing'], [6, 7])
    expect('groups', {group['name']: group['ranks'] for group in answer['groups']}, {'pp 1': [0, 2, 4], 'pp 0': [1, 3, 5]})
    expect('a place', answer['ranks'][0]['coordinates'], {'pp': 1, 'dp': 2})
    for path in folder.rglob('*.pickle'):  # what tessera writes keeps it
        tessera.output('export', path, '-o', path.with_suffix('.again.pickle'), '-q')
        path.unlink()
        path.with_suffix('.json').unlink()
    expect('exported', asked(tessera, folder)['groups'], answer['groups'])


# ---- Files that are none ----

def test_broken_and_missing(tessera, folder):
    write_small(folder, ranks=(0, 1, 2, 4, 5))
    (folder / 'iteration_100' / 'rank7_memory_snapshot.pickle').write_bytes(b'\x80\x04.')
    (folder / 'iteration_100' / 'rank3_memory_snapshot.pickle').write_bytes(b'')
    answer = asked(tessera, folder)
    expect('broken', [row['path'][-29:] for row in answer['broken']],
           ['/rank3_memory_snapshot.pickle', '/rank7_memory_snapshot.pickle'])
    expect('missing', answer['missing'], [3])
    expect('who', [outlier['rank'] for outlier in answer['outliers']], [4])
    assert 'No snapshot of rank 3' in tessera.output('ranks', folder, '-q')


def test_nothing_can_be_read(tessera, folder):
    (folder / 'rank0.pickle').write_text('nothing')
    done = tessera.run('ranks', folder, status=3)
    assert 'No file could be read.' in done.stdout
    tessera.run('ranks', folder / 'absent', status=3)
    (folder / 'rank0.pickle').unlink()
    done = tessera.run('ranks', folder, status=3)
    assert 'no snapshots' in done.stderr


def test_sketches_that_lie(tessera, folder, work):
    """A changed byte is found; what a snapshot is not asked for is not there."""
    path = work / 'whole.sketch'
    tessera.output('ranks', write_small(folder), '--sketches', path, '-q')
    good = path.read_bytes()
    dice = random.Random(5)
    for _ in range(60):
        bad = bytearray(good)
        at = dice.randrange(len(bad))
        if dice.random() < 0.3:
            del bad[at:]
        else:
            bad[at] ^= 1 << dice.randrange(8)
        (work / 'bad.sketch').write_bytes(bad)
        done = tessera.run('ranks', work / 'bad.sketch', '--json', status=3 if bad[:19] == good[:19] else (2, 3))
        assert not done.stdout or json.loads(done.stdout)['broken'], done.stdout


def spoil(paths, good, seed, until):
    """Change files in the ways in which jobs, and those who mean harm, do, until it is time to stop."""
    own = random.Random(seed)
    while time.monotonic() < until():
        path = own.choice(paths)
        whole = good[path]
        how = own.randrange(5)
        if how == 0:
            os.truncate(path, own.randrange(len(whole)))
        elif how == 1:
            with open(path, 'r+b') as file:
                file.seek(own.randrange(len(whole)))
                file.write(own.randbytes(2000))
        elif how == 2:
            with open(path, 'ab') as file:
                file.write(whole[:own.randrange(len(whole))])
        elif how == 3:
            with open(path, 'wb') as file:
                for at in range(0, len(whole), 4096):
                    file.write(whole[at:at + 4096])
        else:
            path.with_suffix('.new').write_bytes(whole)
            os.replace(path.with_suffix('.new'), path)


def test_files_that_change_while_they_are_read(tessera, folder, work):
    """Each is read whole, or is broken; what is written down of them can be read."""
    Fleet(11, 'leak').write(folder)
    paths = sorted(folder.rglob('*.pickle'))
    good = {path: path.read_bytes() for path in paths}
    end = time.monotonic() + 600
    with concurrent.futures.ThreadPoolExecutor(1) as threads:
        spoiling = threads.submit(spoil, paths, good, 1, lambda: end)
        for _ in range(100 if WHOLE else 10):
            done = tessera.run('ranks', folder, '--json', '--sketches', work / 'spoilt.sketch', '-q', status=(0, 2, 3))
            if done.returncode:
                continue  # files of equal names look like two jobs, or nothing was whole
            told = json.loads(done.stdout)
            expect('files', len({row['rank'] for row in told['ranks']}) + len(told['broken']), len(paths))
            again = asked(tessera, work / 'spoilt.sketch')
            expect('of sketches', core(again), core(told))
        end = 0
        spoiling.result()


def test_tiny_files(tessera, folder):
    """Of very many files each costs little."""
    count = 100_000 if WHOLE else 2_000
    for number in range(count):
        if number % 1000 == 0:
            (folder / f'd{number // 1000}').mkdir()
        (folder / f'd{number // 1000}' / f'rank{number}_memory_snapshot.pickle').write_bytes(b'x' * (number % 7))
    told = json.loads(tessera.run('ranks', folder, '--json', '-q', status=3).stdout)
    expect('broken files', len(told['broken']), count)


def test_folders_that_contain_themselves(tessera, folder):
    write_small(folder)
    before = asked(tessera, folder)
    (folder / 'again').symlink_to(folder)
    (folder / 'one').symlink_to('other')
    (folder / 'other').symlink_to('one')
    (folder / 'rank77_memory_snapshot.pickle').symlink_to('rank77_memory_snapshot.pickle')
    after = asked(tessera, folder)
    expect('ranks', len(after['ranks']), len(before['ranks']))
    expect('files', [path['path'].rsplit('/', 1)[1] for path in after['broken']], ['rank77_memory_snapshot.pickle'])


@pytest.mark.parametrize('data', (b'PAR1' + bytes(40) + b'PAR1', b'PAR1', b'ARROW1' + bytes(90), b'SQLite format 3' + bytes(500),
                                  b'tessera/sketches/1' + bytes(80), b'tessera/sketches/2' + bytes(80)))
def test_files_of_other_formats(tessera, folder, data):
    write_small(folder)
    path = folder / 'rank99_memory_snapshot.pickle'
    path.write_bytes(data)
    told = asked(tessera, folder)
    expect('broken files', [one['path'] for one in told['broken']], [str(path)])
    assert told['ranks'] and 99 not in {row['rank'] for row in told['ranks']}


@cases('name', ('rank{rank}.{step}.memory_snapshot.pickle', 'step_{step}/rank{rank}.pickle', 'rank{rank}_step{step}.pickle'), str)
def test_dumps_in_order(tessera, folder, name):
    """Without a trace, names alone tell which dump of a rank is later."""
    _, snapshots = small()
    for rank, step in itertools.product(range(3), (9, 100)):
        path = folder / name.format(rank=rank, step=step)
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(pickle.dumps({**snapshots[rank], 'device_traces': []}, protocol=4))
    answer = asked(tessera, folder)
    expect('the last ones', [(row['rank'], row['step']) for row in answer['ranks']], [(rank, 100) for rank in range(3)])


def test_growth(tessera, folder):
    """Dumps of several steps: the last one counts, and growth is from the first."""
    fleet, _ = small()
    for step, scale in ((10, 1), (20, 2), (30, 3)):
        for rank in range(4):
            snapshot = Fleet(7).snapshot(rank)[0]
            for trace in snapshot['device_traces']:
                for event in trace:
                    event['time_us'] += step * 360_000_000
            if rank == 2:
                frames = [{'name': 'append', 'filename': '/job/cache.py', 'line': 9}]
                for turn in range(scale):
                    address = (64 << 40) + (turn << 30)
                    size = 4 << 20
                    snapshot['segments'].append({
                        'device': 2, 'address': address, 'total_size': size, 'allocated_size': size, 'active_size': size, 'requested_size': size,
                        'stream': 0, 'segment_type': 'large', 'segment_pool_id': (0, 0), 'is_expandable': False, 'frames': [],
                        'blocks': [{'address': address, 'size': size, 'requested_size': size, 'state': 'active_allocated', 'frames': frames}]})
            path = folder / f'step_{step}' / f'rank{rank}.pickle'
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(pickle.dumps(snapshot, protocol=4))
    answer = asked(tessera, folder)
    expect('rows', [(row['rank'], row['step']) for row in answer['ranks']], [(rank, 30) for rank in range(4)])
    grown = {row['rank']: row for row in answer['growth']}
    expect('growth of rank 2', grown[2]['last_bytes'] - grown[2]['first_bytes'], 8 << 20)
    expect('snapshots', grown[2]['snapshots'], 3)
    assert abs(grown[2]['bytes_per_hour'] - (8 << 20) / 2) < 1e5, grown
    assert fleet.count == 6


# ---- The page ----

class Numbers:
    """A column of the page: LEB128, whose sign is in the lowest bit."""

    def __init__(self, data):
        self.data, self.at = data, 0

    def number(self):
        value = shift = 0
        while True:
            byte = self.data[self.at]
            self.at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    def signed(self):
        value = self.number()
        return value >> 1 ^ -(value & 1)


def page_of(tessera, work, *words):
    """The page that `--html` writes."""
    path = work / 'ranks.html'
    path.unlink(missing_ok=True)
    tessera.output('ranks', *words, '-q', '--html', path)
    return read_page(path)


def read_page(path):
    """The head of a page, and its columns by name."""
    parts = [re.search(f'id="tessera-{part}">([^<]*)</script>', path.read_text()).group(1) for part in ('head', 'data')]
    head, data = json.loads(parts[0]), zlib.decompress(base64.b64decode(parts[1]))
    columns, at = {}, 0
    for name, size in head['columns']:
        columns[name] = data[at:at + size]
        at += size
    expect('bytes of the columns', at, len(data))
    return head, columns


@cases('fault', ('leak', 'other_device', None), str)
def test_page(tessera, folder, work, fault):
    """The page has the answer that --json has, and its columns agree with it to the byte."""
    fleet, snapshots = small(fault)
    for rank, snapshot in enumerate(snapshots):
        (folder / f'rank{rank}.pickle').write_bytes(pickle.dumps(snapshot, protocol=4))
    (folder / 'rank2.pickle').write_text('no snapshot')
    head, columns = page_of(tessera, work, folder)
    answer = asked(tessera, folder)
    expect('the answer', json.loads(columns['answer']), answer)
    expect('the verdict', columns['verdict'].decode().strip(), tessera.output('ranks', folder, '-q').splitlines()[0])
    rows, compared = answer['ranks'], {(outlier['rank'], outlier['device']): outlier for outlier in answer['outliers']}
    numbers = {name: Numbers(columns[name]) for name in ('rows', 'categories', 'parts', 'steps', 'shares', 'changes')}
    for row in rows:
        what = f'rank {row["rank"]} on {row["device"]}'
        number, signed = ({name: getattr(n, kind) for name, n in numbers.items()} for kind in ('number', 'signed'))
        _, length, _, _, group, _, has_trace, steps, whole, is_aligned = (number['rows']() for _ in range(10))
        ahead = signed['rows']() if is_aligned else 0
        assert not row['clock_ahead_us'] or row['clock_ahead_us'] == ahead, what
        expect(f'{what}: group', answer['groups'][group]['name'], row['group'])
        peak = tessera.json('peak', row['path'], '--device', str(row['device']), '--top', '0')['devices'][0]
        categories = collections.Counter()
        for stack in peak['stacks']:
            for category, size in (stack.get('categories') or {stack['category']: stack['bytes']}).items():
                categories[category] += size
        requested = {name: number['categories']() for name in head['categories']}
        assert {name for name, size in requested.items() if size} == set(categories), what
        expect(f'{what}: categories are bytes of blocks', sum(requested.values()), row['peak_allocated_bytes'])
        parts = list(itertools.accumulate(signed['parts']() for _ in range(head['parts'])))
        expect(f'{what}: its highest part', max(parts), row['peak_allocated_bytes'])
        assert has_trace and parts[-1] > 0 and whole <= steps, what
        for _ in range(number['steps']()):
            first, duration, high, end = signed['steps'](), signed['steps'](), number['steps'](), number['steps']()
            assert first >= 0 and 0 <= duration < length and end <= high <= row['peak_allocated_bytes'], what
        shares = [[number['shares']() for _ in range(4)] for _ in range(number['shares']())]
        assert 0 < sum(size for _, _, size, _ in shares) <= row['peak_allocated_bytes'], what
        check_changes(what, row, rows, compared.get((row['rank'], row['device'])), number['changes'], signed['changes'])
    for name, column in numbers.items():
        expect(f'{name}: all of it', column.at, len(column.data))
    assert fault is None or compared


def check_changes(what, row, rows, outlier, number, signed):
    """The difference to another row adds up to that of the peaks; an outlier's is the answer's."""
    other = number()
    changes = [(number(), number(), signed(), number()) for _ in range(number())]
    number()
    if outlier:
        expect(f'{what}: changes', [(delta, median) for _, _, delta, median in changes],
               [(change['delta_bytes'], change['median_bytes']) for change in outlier['changes']])
    if other:
        expect(f'{what}: sum of changes', sum(delta for _, _, delta, _ in changes),
               row['peak_allocated_bytes'] - rows[other - 1]['peak_allocated_bytes'])
        expect(f'{what}: group of the other', rows[other - 1]['group'], row['group'])


def test_page_of_sketches(tessera, folder, work):
    """The same whether snapshots are read or their sketches; refused where only a part is there."""
    write_small(folder)
    parts = []
    for part in (1, 2):
        parts.append(work / f'page-{part}.sketch')
        words = [folder, '--part', f'{part}/2', '--sketches', parts[-1]]
        tessera.output('ranks', *words, '-q')
        assert '--html needs the sketches of all parts' in tessera.run('ranks', *words, '--html', work / 'ranks.html', status=2).stderr
    _, whole = page_of(tessera, work, folder)
    _, together = page_of(tessera, work, *parts)
    expect('answers', *(core(json.loads(columns.pop('answer'))) for columns in (together, whole)))
    expect('columns', together, whole)
    assert 'HTML' in tessera.run('ranks', folder, '--html', work / 'ranks.json', status=2).stderr


def test_page_among_the_snapshots(tessera, folder):
    """A page is no snapshot, wherever it is written."""
    write_small(folder)
    first = asked(tessera, folder, '--html', folder / 'rank3.html')
    tessera.output('view', folder / NAMES[1](2, 100), '-q', '-o', folder / 'rank2.html')
    expect('again', asked(tessera, folder, '--html', folder / 'rank3.html'), first)
    (folder / 'rank9.html').write_text('<!doctype html>')
    expect('another page', [one['path'] for one in asked(tessera, folder)['broken']], [str(folder / 'rank9.html')])


def test_page_without_ranks(tessera, folder, work):
    """Files that cannot be read are on the page."""
    (folder / 'rank0.pickle').write_text('no snapshot')
    path = work / 'ranks.html'
    tessera.run('ranks', folder, '-q', '--html', path, status=3)
    assert 'tessera-ranks-page/1' in path.read_text()


def test_parts_without_events(tessera, folder, work):
    """In a part of the time in which nothing happens, what was allocated before still is."""
    write_small(folder)
    _, snapshots = small()
    quiet = pickle.loads(pickle.dumps(snapshots[0]))
    events = next(trace for trace in quiet['device_traces'] if trace)
    for event in events[len(events) // 2:]:
        event['time_us'] += 1000000
    (folder / NAMES[1](0, 100)).write_bytes(pickle.dumps(quiet, protocol=4))
    head, columns = page_of(tessera, work, folder)
    numbers = Numbers(columns['parts'])
    parts = list(itertools.accumulate(numbers.signed() for _ in range(head['parts'])))
    totals = tessera.json('at', folder / NAMES[1](0, 100), '--event', str(len(events) // 2 - 1))['devices'][0]
    expect('the middle', set(parts[5:40]), {totals['allocated_bytes']})


# ---- Files and ranks that an earlier version misjudged ----

class Once(Fleet):
    """A fleet in which one rank allocates something in a step in the middle, and keeps it."""

    def step(self, device, at, batches, parameters, fault, leaked, step, rank):
        if rank == self.rank and step == STEPS // 2:
            device.alloc(self.once, [frame('warm_up', '/job/cache.py', 9), frame('main', '/job/train.py', 40)])
        return super().step(device, at, batches, parameters, fault, leaked, step, rank)


@pytest.mark.parametrize('seed', range(3))
def test_what_is_allocated_once_is_no_leak(tessera, folder, seed):
    fleet = Once(500 + seed)
    fleet.sizes, fleet.count, fleet.rank = {'pp': 1, 'dp': 8, 'ep': 1, 'tp': 1}, 8, 5
    fleet.once, fleet.name = 64 << 20, NAMES[1]
    answer = asked(tessera, fleet.write(folder))
    expect('who stands apart', [(one['rank'], one['cause_code']) for one in answer['outliers']], [(5, 'extra_work')])
    assert ('/job/cache.py', 9) in {(one['file'], one['line']) for one in answer['outliers'][0]['changes'][0]['frames']}


def test_equals_that_are_unlike(tessera, folder):
    """Where each of three ranks has memory of its own, none of them stands apart."""
    for rank in range(3):
        device = Device(0, 1_000_000)
        device.alloc(600 << 20, [frame('build', '/job/model.py', 3)])
        device.alloc((30 + 5 * rank) << 20, [frame('work', f'/job/only{rank}.py', 9)])
        path = folder / f'rank{rank}_memory_snapshot.pickle'
        path.write_bytes(pickle.dumps({'segments': device.segments(), 'device_traces': [device.whole_trace()], 'allocator_settings': {}}))
    expect('who stands apart', asked(tessera, folder)['outliers'], [])


def test_a_file_that_is_cut_off(tessera, folder):
    """Its rank may have held more: it is shown, and compared with nothing."""
    write_small(folder)
    path = folder / NAMES[1](3, 100)
    path.write_bytes(path.read_bytes()[:path.stat().st_size * 2 // 3])
    answer = asked(tessera, folder)
    expect('partial', [row['rank'] for row in answer['ranks'] if row['partial']], [3])
    expect('groups', {group['name']: group['ranks'] for group in answer['groups']}, {'like rank 0': [0, 1, 2, 4, 5], 'cut off': [3]})
    assert 'compared with nothing: rank 3' in tessera.output('ranks', folder)


def test_only_the_name_of_a_file_says_oom(tessera, folder):
    answer = asked(tessera, write_small(folder / 'oom_test'))
    expect('out of memory', answer['out_of_memory'], [])
    expect('known by', (answer['ranks_by'], answer['groups_by']), ('name', 'likeness'))


def test_dumps_of_two_devices(tessera, folder):
    for device in (0, 1):
        trace = Device(device, 1_000_000 * (1 + device))
        trace.alloc(1 << 20, [frame('build', '/job/model.py', 3)])
        data = {'segments': [], 'device_traces': [[]] * device + [trace.whole_trace()], 'allocator_settings': {}}
        path = folder / f'step_{device}' / 'rank0_memory_snapshot.pickle'
        path.parent.mkdir()
        path.write_bytes(pickle.dumps(data))
    done = tessera.run('ranks', folder, status=2)
    assert 'rank 0 has snapshots of the devices 0 and 1' in done.stderr, done.stderr


@pytest.mark.parametrize('words', (('ranks', '--sketches'), ('ranks', '--json', '-o'), ('sql', 'SELECT 1', '--output', 'csv', '-o')),
                         ids=('sketches', 'answer', 'sql'))
def test_snapshots_are_not_replaced(tessera, folder, words):
    """An output may not be a file in the folder that was read."""
    write_small(folder)
    path = folder / NAMES[1](3, 100)
    before = path.read_bytes()
    done = tessera.run(words[0], folder, *words[1:], path, status=2)
    assert 'is a snapshot that was read' in done.stderr, done.stderr
    expect('the snapshot', path.read_bytes(), before)


@pytest.mark.parametrize('mesh, message', (('foo=6', "'foo' is not an axis"), ('dp=2,dp=3', "axis 'dp' twice"), ('PP=2,dp=3', None)))
def test_axes(tessera, folder, mesh, message):
    write_small(folder)
    if message:
        assert message in tessera.run('ranks', folder, '--mesh', mesh, status=2).stderr
    else:
        expect('coordinates', asked(tessera, folder, '--mesh', mesh)['ranks'][5]['coordinates'], {'pp': 1, 'dp': 2})


def test_tables_of_ranks(tessera, folder, work):
    """The table of ranks as CSV, and as Arrow, is that of `tessera sql`."""
    write_small(folder)
    csv = tessera.output('ranks', folder, '--format', 'csv')
    expect('CSV', csv, tessera.output('sql', '-q', '--output', 'csv', folder, 'SELECT * FROM ranks'))
    for name in ('ranks.csv', 'ranks.arrow'):
        tessera.run('ranks', folder, '-q', '-o', work / name)
    tessera.run('sql', '-q', folder, 'SELECT * FROM ranks', '-o', work / 'same.arrow')
    expect('Arrow', (work / 'ranks.arrow').read_bytes(), (work / 'same.arrow').read_bytes())
    expect('rows', [line.split(',')[0] for line in (work / 'ranks.csv').read_text().splitlines()], ['rank', *map(str, range(6))])
    done = tessera.run('ranks', folder, '-q', '-o', work / 'ranks.parquet', status=(0, 2))
    assert not done.returncode or 'Parquet needs DuckDB' in done.stderr, done.stderr
