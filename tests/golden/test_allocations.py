"""Lists of allocations in other programs' forms: exports of Nsight Systems, CSV, and JAX's profiles of live arrays. Random
files of allocations.py, whose totals and stacks are known, and files that no generator makes."""
import csv
import gzip
import os
import random
import sqlite3

import allocations
import pytest
from support import cases, expect

IS_WHOLE = bool(os.environ.get('TESSERA_WHOLE'))
SEEDS = range(300) if IS_WHOLE else range(12)
DAMAGED = 100_000 if IS_WHOLE else 2400


@cases('form', list(allocations.CHECKS))
@cases('seed', SEEDS, ids=str)
def test_random(tessera, work, form, seed):
    """Totals at every event, the peak and its stacks are those of the list: for Nsight, those that SQLite adds up."""
    allocations.CHECKS[form](tessera, work, seed)


def test_damaged(pytestconfig, tmp_path):
    """Every damaged file is read, or is refused with an error: by the fuzz target, which asks every question."""
    replay = pytestconfig.getoption('replay')
    if not replay:
        pytest.skip('--replay names no program')
    seed = random.SystemRandom().randrange(1 << 30) if IS_WHOLE else 20
    print(f'seed {seed}')
    assert allocations.replay_damaged(replay, tmp_path, seed, DAMAGED) == DAMAGED


def nsight_of(path, rows, **more):
    """An export with these rows: (start, address, bytes, kind, is_free)."""
    job = allocations.Job(1)
    job.pids, job.names = [7], {7: 'python3'}
    job.rows = [allocations.Row(time, 7, 0, kind, address, size, is_free, None, 0, 0, ()) for time, address, size, kind, is_free in rows]
    return allocations.Nsight(path, job, 1, **more)


def warnings_of(tessera, path):
    return {one['code']: one for one in tessera.json('info', path)['warnings']}


def test_bytes_are_unsigned(tessera, work):
    """Sizes and addresses are 64 bits without a sign, and SQLite's integers have one."""
    path = work / 'unsigned.sqlite'
    nsight_of(path, [(1, -4096, 100, 2, False), (2, -8192, 1, 2, False), (3, -4096, 100, 2, True)])
    expect('totals', allocations.totals_of(tessera, path), {'0': [100, 101, 1]})


def test_views_and_empty_tables(tessera, work):
    path = work / 'empty.sqlite'
    nsight_of(path, [])
    db = sqlite3.connect(path)
    db.execute('CREATE VIEW CUDA_GPU_MEMORY_USAGE AS SELECT * FROM CUDA_GPU_MEMORY_USAGE_EVENTS')
    db.execute('CREATE INDEX an_index ON CUDA_GPU_MEMORY_USAGE_EVENTS (start)')
    db.commit()
    db.close()
    assert tessera.json('info', path)['devices'] == []


@cases('statement, message', [
    ('CREATE TABLE other (a)', 'an SQLite database without the table CUDA_GPU_MEMORY_USAGE_EVENTS'),
    ('CREATE VIEW CUDA_GPU_MEMORY_USAGE_EVENTS AS SELECT 1 AS start', 'without the table'),
    ('CREATE TABLE CUDA_GPU_MEMORY_USAGE_EVENTS (start, bytes, memoryOperationType)', 'has no column address'),
    ('CREATE TABLE CUDA_GPU_MEMORY_USAGE_EVENTS (start INT PRIMARY KEY, bytes, address, memoryOperationType) WITHOUT ROWID', 'without the table'),
    ('PRAGMA encoding = "UTF-16le"', 'UTF-16'),
], ids=str)
def test_other_databases(tessera, work, statement, message):
    """Another database is refused with what it lacks."""
    path = work / 'other.sqlite'
    path.unlink(missing_ok=True)
    db = sqlite3.connect(path)
    db.execute(statement)
    db.execute('CREATE TABLE more (a)')
    db.commit()
    db.close()
    assert message in tessera.run('peak', path, status=3).stderr


def test_truncated_database(tessera, work):
    """A truncated database is an error, which names the damage."""
    path = work / 'cut.sqlite'
    nsight_of(path, [(i, 4096 * i, 512, 2, False) for i in range(1, 3000)], page_bytes=512)
    path.write_bytes(path.read_bytes()[:20000])
    assert 'damaged' in tessera.run('peak', path, status=3).stderr


def test_standard_input(tessera, work):
    path = work / 'stdin.sqlite'
    nsight_of(path, [(1, 4096, 100, 2, False)])
    with open(path, 'rb') as file:
        got = tessera.json('peak', '-', stdin=file)
    assert got['devices'][0]['peak']['allocated_bytes'] == 100 and got['inputs'][0]['format'] == 'nsight sqlite'


def test_processes(tessera, work):
    """Processes that share a device are added up, and told apart by their stacks and as metadata."""
    path = work / 'processes.sqlite'
    job = allocations.Job(1)
    job.pids, job.names = [7, 8], {7: 'trainer', 8: 'engine'}
    job.rows = [allocations.Row(i, pid, 0, 2, 4096, 100 * pid, False, None, 0, 0, ()) for i, pid in enumerate([7, 8])]
    allocations.Nsight(path, job, 1)
    groups = tessera.device('profile', '--by', 'metadata', path)['groups']
    expect('groups', {group['name']: group['bytes'] for group in groups}, {'process 7 (trainer)': 700, 'process 8 (engine)': 800})
    expect('stacks', sorted(stack['frames'][-1]['name'] for stack in tessera.device('peak', path)['stacks']),
           ['process 7 (trainer)', 'process 8 (engine)'])


# ---- CSV ----

def csv_of(path, text):
    path.write_text(text, newline='')
    return path


@cases('text, totals', [
    ('action,bytes\nalloc,5\nalloc,6\nfree,5\n', [5, 11, 6]),
    ('bytes,action,address\r\n5,alloc,0x10\r\n,free,16\r\n', [5, 0]),
    ('"time_ns","action","size"\n3,free,1\n2,"alloc",1\n1,alloc,9', [9, 10, 9]),
    ('action,bytes,allocated_bytes\nalloc,5,105\nfree,5,100\n', [105, 100]),
    ('action, bytes ,stack\nalloc , 5,"a;""b"";c (d.py:3)"\n\n', [5]),
], ids=str)
def test_csv(tessera, work, text, totals):
    expect('totals', allocations.totals_of(tessera, csv_of(work / 'list.csv', text)), {'0': totals})


def test_csv_stack(tessera, work):
    path = csv_of(work / 'stack.csv', 'stack,action,bytes\n"main (a b.py:3); make ; (lambda) (x:y);?",alloc,7\n')
    frames = [tuple(frame.values()) for frame in tessera.device('peak', path)['stacks'][0]['frames']]
    expect('frames', frames, [('?', '', 0), ('(lambda)', 'x:y', 0), ('make', '', 0), ('main', 'a b.py', 3)])


@cases('text, message', [
    ('action,address\nalloc,5\n', "no column 'bytes'"),
    ('bytes,address\n5,5\n', "no column 'action'"),
    ('action;bytes\nalloc;5\n', 'a text file, but not JSON'),
], ids=str)
def test_csv_refused(tessera, work, text, message):
    assert message in tessera.run('peak', csv_of(work / 'bad.csv', text), status=3).stderr


def test_csv_ignores(tessera, work):
    path = csv_of(work / 'more.csv', 'action,bytes,thread,note\nalloc,5,1,x\nbogus,5,,\nalloc,-5,,\nalloc,1e3,,\nfree,\n')
    warnings = warnings_of(tessera, path)
    assert warnings['columns-ignored']['count'] == 2 and warnings['columns-ignored']['message'].endswith(': thread, note')
    assert warnings['rows-malformed']['count'] == 4


def test_csv_is_linear(tessera, work):
    """A long list with long quoted fields, in small reads."""
    path = work / 'long.csv'
    with open(path, 'w', newline='') as file:
        writer = csv.writer(file)
        writer.writerow(['action', 'bytes', 'stack'])
        writer.writerows(['alloc', 1, ';'.join(f'f{i}' for i in range(n % 50)) + '"x"' * 2000] for n in range(2000))
    with open(path, 'rb') as file:
        assert tessera.json('info', '-', stdin=file)['devices'][0]['events'] == 2000


# ---- pprof ----

def test_moment(tessera, work):
    """A profile of live arrays is one moment, and the text of peak contains that."""
    path = work / 'moment.prof'
    state = allocations.State(2)
    state.samples = [(2, 200, (('f', 'a.py', 3),), 'buffer', 'cuda:0'), (1, 50, (('g', 'b.py', 4),), 'executable', None)]
    state.labels = ['cuda:0']
    allocations.write_pprof(path, state)
    text = tessera.output('peak', path)
    assert 'no events were recorded; 250 B allocated' in text and 'live arrays at one moment' in text
    assert tessera.json('info', path)['inputs'][0]['format'].endswith('pprof')
    assert warnings_of(tessera, path)['devices-missing']['count'] == 1


def test_other_profile(tessera, work):
    """A profile of time is refused."""
    body = allocations.message(1, allocations.number(1, 1) + allocations.number(2, 2))
    texts = b''.join(allocations.message(6, text) for text in (b'', b'cpu', b'nanoseconds'))
    (work / 'cpu.pb.gz').write_bytes(gzip.compress(body + texts))
    assert 'not of live memory' in tessera.run('peak', work / 'cpu.pb.gz', status=3).stderr


@cases('name', ['leaky', 'loops', 'stages'], ids=str)
def test_own_profile(tessera, work, made, name):
    """What export writes of a peak for pprof has the bytes that were requested then, with their stacks."""
    source, path = made / f'{name}.pickle', work / 'own.pb.gz'
    tessera.run('export', '-q', '--format', 'pprof', source, '-o', path)
    want, got = tessera.device('peak', '--top', '0', source), tessera.device('peak', '--top', '0', path)
    expect('bytes', got['peak']['allocated_bytes'], want['peak']['requested_bytes'])
    expect('sizes of stacks', sorted(stack['bytes'] for stack in got['stacks']), sorted(stack['bytes'] for stack in want['stacks']))
