"""`tessera pools` on random jobs whose pools, owners and pins are known (pooled.py)."""
import json
import os
import pickle

from pooled import DEFAULT, MIB, Allocator, Job, frames_of, measure, name_of, snapshot_of
from runs import CALL, MAIN, at
from support import HERE, cases, expect, real

SEEDS = range(1, 301) if os.environ.get('TESSERA_WHOLE') else range(1, 9)
GPU = HERE / 'gpu'  # recorded on a card
SUMS = ('reserved_bytes', 'used_bytes', 'pinned_bytes', 'releasable_bytes', 'kept_bytes')


def key_of(row):
    return tuple(row['pool']), row['stream'], row['size'] == 'large'


def line_of(row):
    return name_of(row['frames'])


def check_sums(what, row, pools):
    for name in SUMS:
        expect(f'{what}: {name}', row[name], sum(pool.get(name, 0) for pool in pools))


def check_moment(what, row, state):
    """A moment's sums by pool, against the state."""
    pools, holders, _ = measure(state)
    check_sums(what, row, pools.values())
    expect(f'{what}: pools', {key_of(pool) for pool in row['pools'] if pool['reserved_bytes']}, set(pools))
    for pool in row['pools']:
        check_sums(f'{what}: {key_of(pool)}', pool, [pools.get(key_of(pool), {})])
    return pools, holders


def check_holder(what, row, holders):
    want = holders[key_of(row), line_of(row)]
    expect(f'{what}: {key_of(row)} {line_of(row)}', {name: row[name] for name in want}, want)


def check_device(job, device, event):
    state = job.states[event] if event >= 0 else []
    what = f'event {event}'
    expect(f'{what}: event', device['moment']['event'], event)
    pools, holders = check_moment(what, {**device['sums'], 'pools': device['pools']}, state)
    _, _, units = measure(state)
    for pool in device['pools']:
        expect(f'{what}: segments', pool['segments'], pools.get(key_of(pool), {'segments': 0})['segments'])
    expect(f'{what}: holders', {(key_of(row), line_of(row)) for row in device['holders']}, set(holders))
    for row in device['holders']:
        check_holder(what, row, holders)
    kept = [(row['free_bytes'], row['shared_free_bytes']) for row in device['holders']]
    expect(f'{what}: order', kept, sorted(kept, reverse=True))
    expect(f'{what}: units', [(row['address'], row['size_bytes'], row['free_bytes'], key_of(row), row['blocks'], row['block_bytes'], row['stacks'])
                              for row in device['segments']], units)


def check_rows(job, device):
    """What is true of pools in the whole trace."""
    first = job.first_stacks()
    expect('pools', {key_of(row) for row in device['pools']}, set(job.most_reserved))
    end = measure(job.states[-1])[0]
    for row in device['pools']:
        key = key_of(row)
        expect(f'{key}: kind', row['kind'], 'default' if key[0] == DEFAULT else job.kinds[key[0]])
        expect(f'{key}: most reserved', row['most_reserved_bytes'], job.most_reserved[key])
        expect(f'{key}: most used', row['most_used_bytes'], job.most_used[key])
        expect(f'{key}: end', (row['end_reserved_bytes'], row['end_used_bytes']),
               tuple(end.get(key, {}).get(name, 0) for name in ('reserved_bytes', 'used_bytes')))
        expect(f'{key}: first', line_of(row), first.get(key))


def check_trials(job, device):
    main = job.main_stream()

    def leaves(pool):
        return (DEFAULT, main) if job.kinds[pool] == 'graph' else None
    ids = {tuple(key[0]) for key in job.most_reserved if key[0] != DEFAULT}
    expect('trials', len(device['trials']), len(ids) + 2 * (len(ids) > 1))
    for trial in device['trials']:
        def pool_for(pool, stream, trial=trial):
            if pool == DEFAULT or (trial['pools'] == 'without' and tuple(trial['pool']) != pool):
                return pool, stream
            if trial['pools'] == 'shared':
                return 'joined', stream
            return leaves(pool) or (DEFAULT, stream)
        expect(f'trial {trial["pools"]} {trial.get("pool")}', trial['peak_reserved_bytes'], job.again(pool_for))
        expect('at least', trial['at_least'], trial['pools'] != 'shared' and
               any(job.kinds[pool] == 'graph' for pool in ids if trial['pools'] == 'none' or tuple(trial['pool']) == pool))
    expect('the model agrees', job.again(lambda pool, stream: (pool, stream)), device['recorded_peak_reserved_bytes'])


@cases('seed', SEEDS, str)
def test_random(tessera, work, seed):
    job = Job(seed)
    path = job.write(work / f'job{seed}.pickle')
    device = tessera.device('pools', '--top', '0', path)
    check_rows(job, device)
    check_trials(job, device)
    expect('reason', device['reason'], 'out_of_memory' if job.dies else 'peak')
    check_device(job, device, device['moment']['event'])
    settled = [event for event, state in enumerate(job.states) if state is not None]  # not in the midst of a request
    for event in sorted({-1, settled[-1], *job.random.sample(settled, 6)}):
        check_device(job, tessera.device('pools', '--top', '0', '--event', event, path), event)
    for moment in device['moments']:
        state = job.states[moment['event']]
        if state is None:
            continue
        _, holders = check_moment(f'moment {moment["event"]}', moment, state)
        best = max((holder['free_bytes'] for (key, _), holder in holders.items() if key[0] == DEFAULT), default=0)
        expect('the worst holder', moment['holder']['free_bytes'] if moment['holder'] else 0, best)
        if moment['holder']:
            check_holder('moment', moment['holder'], holders)
    steps = tessera.device('steps', '--top', '0', path)
    ends = {moment['step']: moment['event'] for moment in device['moments'] if moment['at'] == 'step_end'}
    expect('ends of steps', len(ends), len(steps['steps']))
    expect('the last', ends, {row['step']: row['last_event'] for row in steps['steps']})


@cases('seed', SEEDS, str)
def test_late(tessera, work, seed):
    """Recording begins in the midst of a job: the end is as before, and no pool is lost."""
    job = Job(1000 + seed)
    settled = [event for event, state in enumerate(job.states) if state is not None]
    snapshot = job.snapshot()
    snapshot['device_traces'] = [snapshot['device_traces'][0][settled[len(settled) // 2] + 1:]]
    path = work / f'late{seed}.pickle'
    path.write_bytes(pickle.dumps(snapshot, protocol=4))
    event = len(snapshot['device_traces'][0]) - 1
    device = tessera.device('pools', '--top', '0', '--event', 'end', path)
    pools, holders = check_moment('the end', {**device['sums'], 'pools': device['pools']}, job.states[-1])
    expect('event', device['moment']['event'], event)
    expect('holders', {(key_of(row), line_of(row)) for row in device['holders']}, set(holders))
    for row in device['holders']:
        check_holder('the end', row, holders)
    expect('pools', set(pools) <= {key_of(row) for row in device['pools']}, True)


@cases('path', [*real('*.pickle', '*.html'), *sorted(GPU.glob('*.pickle.xz'))])
def test_real(tessera, path):
    """Sums agree with each other and with what `at` says, which counts in another way."""
    answer = tessera.json('pools', '--top', '0', path)
    for device in answer['devices']:
        rows = [device['sums'], *device['pools'], *device['moments'], *(pool for moment in device['moments'] for pool in moment['pools'])]
        for row in rows:
            expect('sums', row['reserved_bytes'], sum(row[name] for name in SUMS[1:]))
        check_sums('all pools', device['sums'], device['pools'])
        pinned = sum(row['free_bytes'] for row in device['segments'])
        private = sum(row['free_bytes'] for row in device['segments'] if row['pool'] != [0, 0])
        expect('pinned', pinned - private, device['sums']['pinned_bytes'])
        own = sum(row['free_bytes'] for row in device['holders'])
        expect('own', own, sum(row['free_bytes'] for row in device['segments'] if row['stacks'] == 1))
        if device['events']:
            then = [one for one in tessera.json('at', '--event', device['moment']['event'], path)['devices'] if one['device'] == device['device']][0]
            expect('reserved', then['reserved_bytes'], device['sums']['reserved_bytes'])
            parts = then['fragmentation']
            expect('free', parts['free_block_bytes'] + parts['free_segment_bytes'], sum(device['sums'][name] for name in SUMS[2:]))
            for pool in then['private_pools']:
                expect('private', pool['reserved_bytes'], sum(row['reserved_bytes'] for row in device['pools']
                                                              if row['pool'] == pool['pool'] and row['stream'] == pool['stream']))


@cases('file', ['graphs', 'expandable-graphs'], str)
def test_graphs(tessera, file):
    """A graph and a MemPool of a real run, whose segments have addresses that other memory had before."""
    device = tessera.device('pools', GPU / f'{file}.pickle.xz')
    private = {(tuple(row['pool']), row['size']): row for row in device['pools'] if row['pool'] != [0, 0]}
    expect('pools', {key: row['kind'] for key, row in private.items()},
           {((0, 1), 'large'): 'handle', ((1, 0), 'large'): 'graph', ((1, 0), 'small'): 'graph'})
    lines = {key: [frame['line'] for frame in row['frames'] if frame['file'].endswith('/gpu.py')] for key, row in private.items()}
    expect('the line that captures, and that of the MemPool', [lines[(1, 0), 'large'][-3], lines[(1, 0), 'small'][-3], lines[(0, 1), 'large'][0]],
           [212, 212, 218])


def sidecar_of(path, card):
    path.with_suffix('.json').write_text(json.dumps({
        'schema': 'tessera/capture/1', 'snapshot': path.name, 'time_us': 2000, 'step': 1, 'reason': 'periodic', 'ranks': {'rank': 0, 'world_size': 1},
        'devices': [{'device': 0, 'total_bytes': card, 'outside_pytorch_bytes': 0, 'free_bytes': 0, 'allocated_bytes': 0, 'reserved_bytes': 0}]}))


def test_managed(tessera, work):
    """torch.cuda._use_uvm() allocates more than the card has, in a MemPool: every answer has the whole of it."""
    gib, a = 1 << 30, Allocator()
    stack = frames_of([*MAIN, at(31), CALL, ('forward', '/work/model.py', 12)])
    blocks = [a.malloc(12 * gib, stack, None, (0, 1)) for _ in range(12)]
    a.malloc(6 * gib, stack, None)
    a.free(blocks[3], False, stack)
    path = work / 'managed.pickle'
    path.write_bytes(pickle.dumps(snapshot_of(a), protocol=4))
    sidecar_of(path, 80 * gib)
    expect('peak', tessera.device('peak', path)['peak']['allocated_bytes'], 150 * gib)
    expect('why', tessera.device('why', path)['moment']['totals']['allocated_bytes'], 150 * gib)
    expect('end', tessera.device('at', '--event', 'end', path)['allocated_bytes'], 138 * gib)
    expect('whatif', tessera.device('whatif', path)['recorded_peak_reserved_bytes'], 150 * gib)
    expect('ranks', tessera.json('ranks', path)['ranks'][0]['peak_allocated_bytes'], 150 * gib)
    device = tessera.device('pools', path)
    expect('pools', (device['sums']['reserved_bytes'], device['card_bytes']), (150 * gib, 80 * gib))
    expect('check', tessera.json('check', '--max', '200GiB', path)['results'][0]['bytes'], 150 * gib)
    expect('said', 'some of it is managed memory' in ' '.join(tessera.output('pools', path).split()), True)
    for command in ('peak', 'why', 'info', 'pools', 'whatif', 'report', 'steps', 'leaks'):
        done = tessera.run(command, *(['-o', work / 'report.html'] if command == 'report' else []), path)
        expect(command, [word for word in ('impossible', 'contradict', 'cannot be') if word in done.stdout + done.stderr], [])


def test_reserve(tessera, work):
    """expandable_segments_reserve as PyTorch 2.15 records it: in the text alone. A request above it fails with memory to spare."""
    a = Allocator(expandable=True)
    stack = frames_of([*MAIN, at(31), CALL, ('forward', '/work/model.py', 12)])
    for _ in range(3):
        a.malloc(300 * MIB, stack, None)
    snapshot = snapshot_of(a)
    conf = 'expandable_segments:True,expandable_segments_reserve:40G,expandable_segments_reserve_by_class:[serving:0.25]'
    snapshot['allocator_settings']['PYTORCH_CUDA_ALLOC_CONF'] = conf
    path = work / 'reserve.pickle'
    path.write_bytes(pickle.dumps(snapshot, protocol=4))
    runs = {run['settings']: run for run in tessera.device('whatif', '--capacity', '10GiB', '--set', 'expandable_segments:True,expandable_segments_reserve:0.02',
                                                           path)['runs']}
    expect('settings', list(runs), ['expandable_segments:True,expandable_segments_reserve:40G',
                                    'expandable_segments:True,expandable_segments_reserve:0.02'])
    expect('fits', [run['fits'] for run in runs.values()], [True, False])
    a.event('oom', 60 << 30, 50 << 30, (DEFAULT, 0, True))
    snapshot = {**snapshot_of(a), 'allocator_settings': snapshot['allocator_settings']}
    path.write_bytes(pickle.dumps(snapshot, protocol=4))
    said = ' '.join(tessera.output('why', path).split())
    expect(said, 'No expandable segment can exceed expandable_segments_reserve, 40.00 GiB; the request does.' in said, True)
    conf = conf.replace('40G', '51G')
    snapshot['allocator_settings']['PYTORCH_CUDA_ALLOC_CONF'] = conf
    path.write_bytes(pickle.dumps(snapshot, protocol=4))
    expect('it is not in the way', 'expandable_segments_reserve' in tessera.output('why', path), False)
