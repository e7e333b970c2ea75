"""`tessera ranks` over several dumps of each rank: what grows, in which stacks, how fast, and when the card is full (growths.py).

The truth is arithmetic on what was planted: the line is the median slope of pairs, and the card is full when the peak has risen to its limit."""
import json
import os
import pickle
import re

import pytest
from growths import CARD, MIB, OUTSIDE, Job
from support import cases, expect

SEEDS = range(1, 21) if os.environ.get('TESSERA_WHOLE') else range(1, 4)
RANKS_OF_NOISE = 60


def asked(tessera, *words):
    return json.loads(tessera.output('ranks', *words, '--json', '-q'))


@pytest.fixture
def folder(work):
    path = work / 'dumps'
    path.mkdir(parents=True, exist_ok=True)
    for old in path.iterdir():
        old.unlink()
    return path


def near(what, is_, want, share):
    assert abs(is_ - want) <= share * abs(want), f'{what}: {is_}, not {want}'


@cases('seed', SEEDS, str)
def test_planted(tessera, folder, seed):
    job = Job(seed)
    answer = asked(tessera, job.write(folder))
    grown = {row['rank']: row for row in answer['growth']}
    expect('who grows', sorted(grown), sorted(job.leaks))
    for rank, leaks in job.leaks.items():
        row = grown[rank]
        near(f'rank {rank}', row['bytes_per_hour'], job.slope(rank), 1e-9)
        expect('steady', row['steady'], True)
        expect('first and last', (row['first_bytes'], row['last_bytes']),
               tuple(sum(job.held[rank, dump].values()) for dump in (0, job.dumps - 1)))
        stacks = {stack['frames'][0]['line']: stack for stack in row['stacks']}
        for line, rate in leaks.items():
            near(f'line {line}', stacks[line]['bytes_per_hour'], job.slope(rank, line), 1e-9)
            near(f'the planted rate of line {line}', stacks[line]['bytes_per_hour'], rate, 0.02)
        expect('fastest first', [stack['bytes_per_hour'] for stack in row['stacks']],
               sorted((stack['bytes_per_hour'] for stack in row['stacks']), reverse=True))
        hours = (CARD - OUTSIDE - job.peak(rank)) / job.slope(rank)
        assert abs(row['full_time_us'] - (job.times[rank, job.dumps - 1] + hours * 3.6e9)) < 1000, row
    full = [row['full_time_us'] for row in answer['growth']]
    expect('the first to be full is first', full, sorted(full))
    text = tessera.output('ranks', folder, '-q')
    assert re.search(rf'Rank {answer["growth"][0]["rank"]} grows by [0-9.]+ GiB an hour; at this rate its card is full first,', text), text


def test_capacity(tessera, folder):
    job = Job(1)
    job.write(folder)
    row = asked(tessera, folder, '--capacity', '100GiB')['growth'][0]
    hours = ((100 << 30) - job.peak(row['rank'])) / job.slope(row['rank'])
    assert abs(row['full_time_us'] - (job.times[row['rank'], job.dumps - 1] + hours * 3.6e9)) < 1000, row
    row = next(row for row in asked(tessera, folder, '--capacity', '1GiB')['growth'] if row['rank'] == job.two)
    expect('full already', row['full_time_us'], job.times[job.two, job.dumps - 1])


@cases('dumps', (4, 8, 12, 30), str)
def test_noise_is_no_growth(tessera, folder, dumps):
    job = Job(100 + dumps, ranks=RANKS_OF_NOISE, dumps=dumps)
    job.leaks, job.one = {}, None
    expect('who grows', [row['rank'] for row in asked(tessera, job.write(folder))['growth']], [])


def test_one_rise_is_no_growth(tessera, folder):
    """Memory that rose once and stays, as the optimizer's state does, has no rate."""
    job = Job(5, ranks=3, dumps=30, noise=0)
    job.leaks = {}
    blocks = job.blocks
    job.blocks = lambda rank, dump, time_us: blocks(rank, dump, time_us)[:1 if dump < 12 else 2]
    expect('who grows', asked(tessera, job.write(folder))['growth'], [])


def test_leak_that_the_sum_hides(tessera, folder):
    job = Job(9, ranks=4, dumps=60)
    job.leaks, job.one = {2: {9: 2 << 30}}, None
    row, = asked(tessera, job.write(folder))['growth']
    expect('who', (row['rank'], [stack['frames'][0]['file'] for stack in row['stacks']][:1]), (2, ['/job/cache.py']))
    near('the rate', row['stacks'][0]['bytes_per_hour'], 2 << 30, 0.05)


def test_a_restart_begins_again(tessera, folder):
    """Only dumps of the last process show what grows, and its last one counts though its step is lower."""
    job = Job(6, ranks=3, dumps=24)
    job.write(folder)
    rank = job.two
    for path in folder.glob('*.json'):
        document = json.loads(path.read_text())
        later = document['step'] >= 14
        document['recording'] = {'started_us': 1_795_000_000_000_000 + later}
        if later and document['ranks']['rank'] == rank:  # numbered from 0 again, by another process
            new = folder / f'rank{rank}_pid9999_step{document["step"] - 14}_periodic.json'
            path.with_suffix('.pickle').rename(new.with_suffix('.pickle'))
            path.unlink()
            path = new
        path.write_text(json.dumps(document))
    answer = asked(tessera, folder)
    row = next(row for row in answer['growth'] if row['rank'] == rank)
    expect('its dumps', (row['snapshots'], row['first_bytes'], row['last_bytes']),
           (10, sum(job.held[rank, 14].values()), sum(job.held[rank, 23].values())))
    expect('the one that counts', next(row['step'] for row in answer['ranks'] if row['rank'] == rank), 9)


def test_without_times(tessera, folder):
    """Nothing gives a rate then, but what grows is still known; and without a card's size nothing says when it is full."""
    job = Job(3, dumps=12)
    job.write(folder)
    for path in folder.glob('*.json'):
        document = json.loads(path.read_text())
        del document['time_us'], document['devices']
        path.write_text(json.dumps(document))
    for row in asked(tessera, folder)['growth']:
        expect('rate', (row['bytes_per_hour'], row['full_time_us'], row['limit_bytes']), (None, None, None))
        expect('lines', {stack['frames'][0]['line'] for stack in row['stacks']} >= set(job.leaks[row['rank']]), True)
    for path in sorted(folder.glob('*.json')):  # the name has the time
        document = json.loads(path.read_text())
        pickled = path.with_suffix('.pickle')
        dump = document['step']
        pickled.rename(folder / f'memory_snapshot_time{1795000000 + 60 * dump}.0_rank{document["ranks"]["rank"]}_actor.pickle')
        path.unlink()
    rows = {row['rank']: row for row in asked(tessera, folder)['growth']}
    near('by the stamps of names', rows[job.two]['bytes_per_hour'], job.slope(job.two), 0.1)


def test_sketches_keep_it(tessera, folder, work):
    job = Job(2, ranks=3, dumps=10)
    job.write(folder)
    sketches = work / 'all.sketch'
    whole = asked(tessera, folder, '--sketches', sketches)
    expect('from sketches', asked(tessera, sketches)['growth'], whole['growth'])


def test_export_keeps_the_time(tessera, folder, work):
    """The time and the card go with a snapshot that tessera writes."""
    job = Job(2, ranks=2, dumps=9)
    job.write(folder)
    before = asked(tessera, folder)['growth']
    for path in list(folder.glob('*.pickle')):
        tessera.output('export', path, '-o', work / 'out.pickle', '-q')
        path.write_bytes((work / 'out.pickle').read_bytes())
        path.with_suffix('.json').unlink()
    expect('after export', asked(tessera, folder)['growth'], before)


@cases('what', ('time_us', 'total_bytes', 'peak_allocated_bytes'), str)
def test_hostile_numbers(tessera, folder, what):
    job = Job(4, ranks=2, dumps=10)
    job.write(folder)
    for turn, path in enumerate(sorted(folder.glob('*.json'))):
        document = json.loads(path.read_text())
        place = document if what == 'time_us' else document['devices'][0]
        place[what] = (2 ** 63 - 1, 0, 2 ** 64 - 1, -5, 'now', 1e300)[turn % 6]
        path.write_text(json.dumps(document))
    asked(tessera, folder)


def test_hostile_sizes(tessera, folder):
    for dump in range(9):
        size = (1 << 62) + dump * MIB * 1000
        block = {'address': 1 << 20, 'size': size, 'requested_size': size, 'state': 'active_allocated', 'frames': []}
        segment = {'device': 0, 'address': 1 << 20, 'total_size': size, 'allocated_size': size, 'active_size': size, 'requested_size': size,
                   'stream': 0, 'segment_type': 'large', 'segment_pool_id': (0, 0), 'is_expandable': False, 'frames': [], 'blocks': [block]}
        (folder / f'rank0_step{dump}.pickle').write_bytes(pickle.dumps({'segments': [segment], 'device_traces': [[]]}, protocol=4))
    asked(tessera, folder, '--capacity', '1B')
