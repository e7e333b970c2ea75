#!/usr/bin/env python3
"""The page in a browser: Debian's Chromium, driven by playwright-core. Prints TAP.

usage: run.py --tessera PATH --work FOLDER [--shots FOLDER] [--only WORDS]

Makes snapshots and pages in FOLDER and leaves the rest to page.mjs. Where Chromium, Node or
playwright-core is absent every test is skipped and says so; `./run viewer` installs them. Real
snapshots are those in ../shared, where that is there; with TESSERA_WHOLE, more moments of them are compared."""
import argparse
import json
import os
import pathlib
import pickle
import shutil
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.dont_write_bytecode = True
sys.path.insert(0, str(HERE.parent / 'golden'))
sys.path.insert(0, str(HERE.parent / 'card'))
import fleets  # noqa: E402
import habits  # noqa: E402
import ledgers  # noqa: E402
import paces  # noqa: E402

VIEWER = HERE.parents[1] / 'viewer'
SHARED = HERE.parents[2] / 'shared/snapshots'

# Names that would do something, were they not only shown as text.
HOSTILE = ['<script>window.pwned = 1</script>', '</script><script>window.pwned = 2</script>',
           '<!--', '-->', ']]>', '<img src=x onerror="window.pwned = 3">', '\u202egnp.txt\u202c',
           '\x00\x01\x1b[2J\x7f\x9b', '\ud800', '\udfff\ud800', '\u2028\u2029', '"\'`${window.pwned=4}',
           'javascript:window.pwned=5', '&lt;b&gt;', '\ufeff\u200b\u2066', 'so\u00adft\U000e0041\U000e007f', '=HYPERLINK("x")']


def event(action, address, size, time, frames):
    return {'action': action, 'addr': address, 'size': size, 'stream': 0, 'time_us': time,
            'frames': frames}


def snapshot(events, frames_at_end=()):
    """A trace that starts from nothing; what it leaves live is in one segment."""
    live = {}
    for e in events:
        if e['action'] == 'alloc':
            live[e['addr']] = e
        elif e['action'] == 'free_completed':
            live.pop(e['addr'], None)
    begin, end = 0x7f0000000000, 0x7f0000000000 + (64 << 20)
    blocks, at = [], begin
    for address in sorted(live):
        size = (live[address]['size'] + 511) // 512 * 512
        if address > at:
            blocks.append({'address': at, 'size': address - at, 'requested_size': 0,
                           'state': 'inactive', 'frames': []})
        blocks.append({'address': address, 'size': size, 'requested_size': live[address]['size'],
                       'state': 'active_allocated', 'frames': live[address]['frames']})
        at = address + size
    if at < end:
        blocks.append({'address': at, 'size': end - at, 'requested_size': 0, 'state': 'inactive',
                       'frames': []})
    allocated = sum(b['size'] for b in blocks if b['state'] == 'active_allocated')
    segment = {'device': 0, 'address': begin, 'total_size': end - begin, 'allocated_size': allocated,
               'active_size': allocated, 'requested_size': allocated, 'stream': 0,
               'segment_type': 'large', 'segment_pool_id': (0, 0), 'is_expandable': True,
               'frames': list(frames_at_end), 'blocks': blocks}
    return {'segments': [segment], 'device_traces': [events], 'allocator_settings': {},
            'external_annotations': []}


def waves(count, names, line=1, folder='/home/me'):
    """Allocations that come and go in waves, each with its own kind of stack: seven lines from `line` on of
    a file for each name."""
    events, live, time = [], [], 1700000000000000
    for i in range(count):
        time += 10
        slot = i % 61
        address = 0x7f0000000000 + slot * (1 << 20)
        for old in [e for e in live if e['addr'] == address]:
            live.remove(old)
            events.append(event('free_requested', address, old['size'], time, []))
            events.append(event('free_completed', address, old['size'], time + 1, []))
        name = names[i % len(names)]
        frames = [{'name': name, 'filename': f'{folder}/{name}.py', 'line': i % 7 + line},
                  {'name': 'main', 'filename': f'{folder}/train.py', 'line': 3}]
        size = 700 + (i * 7919) % (900 << 10) if i % 997 else 1 << 20
        live.append(event('alloc', address, size, time + 2, frames))
        events.append(live[-1])
    return events


def hostile():
    """Names of functions, files and annotations: all that is hostile, and one of ten thousand
    characters."""
    names = [text * (1 + 700 // len(text)) for text in HOSTILE] + ['<script>\u202e\x1b' * 1000]
    data = snapshot(waves(400, names))
    data['external_annotations'] = [
        {'stage': stage, 'name': name, 'device': 0, 'time_us': 1700000000000000 + 200 * i + 90 * k}
        for i, name in enumerate(HOSTILE) for k, stage in enumerate(('START', 'END'))]
    return data


def annotated(count, names):
    """Waves, some of them made within `count` annotations of so many names."""
    data = snapshot(waves(600, ['forward', 'backward', 'step']))
    data['external_annotations'] = [
        {'stage': stage, 'name': f'part {i % names}', 'device': 0,
         'time_us': 1700000000000000 + 5400 * i // count + 500 * k * 6 // count}
        for i in range(count) for k, stage in enumerate(('START', 'END'))]
    return data


def noted():
    """Waves whose memory the program names: by metadata, and one block afterwards."""
    events = waves(600, ['forward', 'backward'])
    for i, e in enumerate(events):
        if i % 3 == 0:
            e['user_metadata'] = json.dumps({'layer': i % 4, 'name': f'kv of <b>layer</b> {i % 4}',
                                             'category': 'kv_cache'})
    last = next(e for e in reversed(events) if e['action'] == 'alloc')
    at = len(events) - events[::-1].index(last)
    events.insert(at, {**last, 'action': 'annotate', 'size': 0,
                       'user_metadata': 'packed \u202einto the graph'})
    return snapshot(events)


def graphs():
    """Waves in the default pool, and a private pool that takes three segments of 20 MiB one after
    another and gives nothing back, while its blocks come and go."""
    waving = waves(600, ['forward', 'backward'])
    data = snapshot(waving)
    frames = [{'name': 'capture', 'filename': '/home/me/graphs.py', 'line': 7}]
    events, live, private = [], [], {'stream': 0, 'pool_id': (0, 1)}
    for i, e in enumerate(waving):
        events.append({**e, 'pool_id': (0, 0)})
        at, time = 0x7e0000000000 + (i // 300 << 28), e['time_us']
        if i % 300 == 100 and i < 900:
            events.append({**event('segment_alloc', at, 20 << 20, time, frames), **private})
            for k in range(4):
                live.append({**event('alloc', at + (k * 5 << 20), 5 << 20, time, frames), **private})
                events.append(live[-1])
        if i % 300 == 250 and i < 900:
            for old in [live.pop(), live.pop(), live.pop()]:
                for action in ('free_requested', 'free_completed'):
                    events.append({**old, 'action': action, 'time_us': time})
    data['device_traces'] = [events]
    for n in range(3):
        at = 0x7e0000000000 + (n << 28)
        there = [e for e in live if e['addr'] >> 28 == at >> 28]
        blocks = [{'address': e['addr'], 'size': e['size'], 'requested_size': e['size'],
                   'state': 'active_allocated', 'frames': frames} for e in there]
        used = sum(b['size'] for b in blocks)
        if used < 20 << 20:
            blocks.append({'address': at + used, 'size': (20 << 20) - used, 'requested_size': 0,
                           'state': 'inactive', 'frames': []})
        data['segments'].append({**data['segments'][0], 'address': at, 'total_size': 20 << 20,
                                 'allocated_size': used, 'active_size': used, 'requested_size': used,
                                 'segment_pool_id': (0, 1), 'is_expandable': False, 'blocks': blocks})
    data['segments'].sort(key=lambda segment: segment['address'])
    return data


def make(work):
    files = {'hostile': hostile(), 'annotated': annotated(6, 3), 'many': annotated(90, 70),
             'waves': snapshot(waves(3000, ['forward', 'backward', 'step'])),
             'long': snapshot(waves(30000, ['forward', 'backward', 'step'])),
             'moved': snapshot(waves(2500, ['forward', 'backward', 'loss'], line=5, folder='/home/you')),
             'shifted': snapshot(waves(3000, ['forward', 'backward', 'step'], line=3)),
             'graphs': graphs(), 'noted': noted(),
             'empty': {'segments': [], 'device_traces': [[]]}}
    at = 0x600000000000
    files['host'] = {**snapshot(waves(300, ['forward', 'loss'])),
                     'host_segments': [{'address': at, 'size': 1 << 30, 'allocated': True}],
                     'host_traces': [event(action, at, size, 1700000000000005, [])
                                     for action, size in (('segment_alloc', 1 << 30),
                                                          ('alloc', 3 << 28))]}
    # Three GPUs: the second does what the first does 8 ms later, the third recorded nothing.
    one, two, three = (snapshot(waves(900, ['forward', 'backward'])) for _ in range(3))
    for device, data in enumerate((one, two, three)):
        data['segments'][0]['device'] = device
    two['device_traces'] = [[{**e, 'time_us': e['time_us'] + 8000} for e in two['device_traces'][0]]]
    files['devices'] = {**one, 'segments': [data['segments'][0] for data in (one, two, three)],
                        'device_traces': [one['device_traces'][0], two['device_traces'][0], []]}
    files['single'] = snapshot(waves(1, ['forward']))
    ring = snapshot(waves(40, ['forward']))
    ring['segments'][0]['blocks'][0].update(frames=[])
    files['ring'] = {**ring, 'device_traces': [ring['device_traces'][0][-1:]]}
    files['still'] = {**three, 'device_traces': [[], [], []]}
    files['oom'] = snapshot(waves(300, ['forward', 'loss']) + [
        {'action': 'oom', 'addr': 1 << 20, 'size': 1 << 30, 'device_free': 1 << 20, 'stream': 0,
         'time_us': 1700000000009000, 'frames': []}])
    paths = {}
    for name, data in files.items():
        path = work / ('<b>hostile<script>.pickle' if name == 'hostile' else f'{name}.pickle')
        path.write_bytes(pickle.dumps(data, protocol=4))
        paths[name] = str(path)
    return paths


def habit_pages(work):
    """A file for each rule of docs/findings.md."""
    programs = {'no_grad': habits.forwards(3), 'two_forwards': habits.forwards(4, held=2),
                'checkpoint': habits.training(4, kept_of_last=8),
                'old_gradients': habits.retrained(True), 'cached': habits.caching(16 << 30), 'states': habits.states(),
                'zero_grad': habits.gradients_kept(), 'held_outputs': habits.kept_outputs(), 'leak': habits.leaking(),
                'attention': habits.attending()}
    for rule, program in programs.items():
        program.write(work / f'{rule}.pickle')
    return {rule: str(work / f'{rule}.pickle') for rule in programs}


def card(work):
    """A job with the ledger of its card, and what it has at each sample: time, used, and bytes by sort."""
    job = ledgers.Job(18, cause='growth', total=80 << 30, samples=60)
    rows = []
    for i in range(job.count):
        parts = {'allocated by PyTorch': 0, 'NCCL': 0, 'CUDA context and libraries': 0, 'the driver': 0, 'other processes': 0, 'unaccounted': 0}
        for (kind, _), size in job.parts(i).items():
            parts[{'allocated': 'allocated by PyTorch', 'communicator': 'NCCL', 'context': 'CUDA context and libraries',
                   'library': 'CUDA context and libraries', 'driver': 'the driver', 'process': 'other processes'}.get(kind, 'unaccounted')] += size
        rows.append({'time': job.times[i], 'used': job.used[i], 'parts': {name: size for name, size in parts.items() if size}})
    return {'path': str(job.write(work, 'card')), 'first': job.events[0]['time_us'], 'last': job.events[-1]['time_us'], 'total': job.total, 'rows': rows}


def ranks(work):
    """Folders of the snapshots of many ranks."""
    fleet = fleets.Fleet(9, 'leak')
    fleet.sizes, fleet.spread, fleet.is_dead = {'pp': 2, 'dp': 6, 'ep': 1, 'tp': 1}, 0.1, True
    fleet.count, fleet.rank = 12, 4
    fleet.name = lambda rank, step: f'rank{rank}.pickle'
    fleet.write(work / 'fleet', [rank for rank in range(12) if rank != 7])
    (work / 'fleet/rank99_broken.pickle').write_text('no snapshot')
    (work / 'hostile').mkdir()
    for rank in range(4):
        names = [name for name in HOSTILE if '\ud800' not in name and '\udfff' not in name and '\0' not in name]
        name = names[rank].replace('/', '')
        path = work / 'hostile' / f'rank{rank} {name} $(touch x) `id`\n.pickle'
        path.write_bytes(pickle.dumps(hostile(), protocol=4))
    (work / 'dumps').mkdir()
    for rank in range(3):
        for step in (100, 200):
            data = snapshot(waves(step // 2, ['forward']))
            (work / f'dumps/step_{step}').mkdir(exist_ok=True)
            (work / f'dumps/step_{step}/rank{rank}.pickle').write_bytes(pickle.dumps({**data, 'device_traces': [[]]}, protocol=4))
    timed = []
    for seed in (3000, 3001, 3004, 3007):
        pace = paces.random_pace(seed)
        pace.write(work / f'pace{seed}')
        timed.append({'path': str(work / f'pace{seed}'), 'step': pace.begins[1][0] - pace.begins[0][0], 'ahead': pace.clocks_ahead(), 'late': pace.slow})
    return {'paces': timed, 'fleet': {'path': str(work / 'fleet'), 'fault': 4, 'missing': 7}, 'hostile': str(work / 'hostile'), 'dumps': str(work / 'dumps'),
            'many': {'path': str(many_ranks(work / 'many', 10000, 4321)), 'count': 10000, 'fault': 4321}}


def many_ranks(folder, count, fault):
    """Small snapshots of many ranks, of which one has more memory."""
    folder.mkdir()
    main = {'name': 'main', 'filename': '/job/train.py', 'line': 3}
    for rank in range(count):
        time, address, events = 1764180000000000 + rank * 7919 % 900, 1 << 40, []
        for number, size in enumerate((100 << 20, (50 + rank * 31 % 17) << 20, 200 << 20, 900 << 20 if rank == fault else 1 << 20)):
            events.append(event('alloc', address, size, time, [{'name': f'part{number}', 'filename': '/job/model.py', 'line': number + 1}, main]))
            time, address = time + 1000 + rank % 13, address + size
        events += [{**events[1], 'action': action, 'time_us': time} for action in ('free_requested', 'free_completed')]
        (folder / f'rank{rank}.pickle').write_bytes(pickle.dumps({'segments': [], 'device_traces': [events]}, protocol=4))
    return folder


def missing():
    if not shutil.which('chromium'):
        return 'no chromium'
    if not shutil.which('node'):
        return 'no node'
    if not (VIEWER / 'node_modules/playwright-core').is_dir():
        return 'no playwright-core in viewer/node_modules; ./run test and ./run viewer install it'
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--tessera', required=True)
    parser.add_argument('--work', required=True, type=pathlib.Path)
    parser.add_argument('--shots', help='folder for screenshots')
    parser.add_argument('--only', help='tests whose names contain this')
    arguments = parser.parse_args()
    reason = missing()
    if reason:
        print(f'1..0 # SKIP {reason}')
        return 0
    shutil.rmtree(arguments.work, ignore_errors=True)
    arguments.work.mkdir(parents=True)
    arguments.work = arguments.work.resolve()
    (arguments.work / 'ranks').mkdir()
    real = sorted(str(path) for path in SHARED.iterdir() if path.suffix != '.md') \
        if SHARED.is_dir() else []
    plan = {'tessera': str(pathlib.Path(arguments.tessera).resolve()), 'work': str(arguments.work),
            'shots': arguments.shots, 'only': arguments.only, 'made': make(arguments.work), 'real': real,
            'whole': bool(os.environ.get('TESSERA_WHOLE')), 'ranks': ranks(arguments.work / 'ranks'), 'habits': habit_pages(arguments.work),
            'card': card(arguments.work),
            'playwright': str(VIEWER / 'node_modules/playwright-core/index.mjs'),
            'chromium': shutil.which('chromium')}
    return subprocess.run(['node', HERE / 'page.mjs', json.dumps(plan)], check=False).returncode


if __name__ == '__main__':
    sys.exit(main())
