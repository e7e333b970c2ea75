"""Simulated runs give the numbers that were measured on real ones.

The runs are those of the PyTorch tutorial on Mosaic: GPT-2, batches of four sequences of 512 tokens,
AdamW, fp32, on one T4. What Mosaic printed about them is told here from the simulated snapshots, by
Mosaic's rules, straight from the pickle: sums of requested bytes, categories by substrings of the
frames' names, groups by the files and lines of their frames."""
import collections
import json
import pickletools

import pytest
from support import ROOT, expect, load

GIB = 1 << 30


def mosaic_size(count):
    """As Mosaic prints it: decimals that are zero are dropped."""
    for unit, name in ((GIB, 'GiB'), (1 << 20, 'MB'), (1 << 10, 'KB')):
        if count >= unit:
            return f'{round(count / unit, 2)}{name}'
    return f'{count}B'


def category(frames):
    for frame in frames:
        name = frame['name']
        if 'forward' in name:
            return 'ACTIVATION'
        if 'param' in name:
            return 'PARAMETER'
        if 'backward' in name:
            return 'BACKWARD'
        if name in ('custom_adamw', '_init_group'):
            return 'OPTIMIZER'
    return 'UNKNOWN'


def events(path):
    return load(path)['device_traces'][0]


def live_at_peak(trace):
    """Events of the allocations that are live when most recorded bytes are."""
    live, total, most, peak = {}, 0, 0, {}
    for event in trace:
        if event['action'] == 'alloc':
            live[event['addr']] = event
            total += event['size']
        elif event['action'] == 'free_completed' and event['addr'] in live:
            total -= live.pop(event['addr'])['size']
        if total > most:
            most, peak = total, None
        if peak is None:
            peak = dict(live)
    return most, list(peak.values())


def profile(trace):
    total, live = live_at_peak(trace)
    sums = collections.defaultdict(int)
    for event in live:
        sums[category(event['frames'])] += event['size']
    return {'Total Allocated': mosaic_size(total),
            **{name: mosaic_size(size) for name, size in sums.items()}}


def groups(trace):
    """(calls, bytes, names of the frames), largest first."""
    found = {}
    for event in live_at_peak(trace)[1]:
        key = tuple((f['filename'], f['line']) for f in event['frames'])
        calls, size, names = found.get(key, (0, 0, [f['name'] for f in event['frames']]))
        found[key] = (calls + 1, size + event['size'], names)
    return sorted(found.values(), key=lambda group: -group[1])


@pytest.fixture
def simulated(tessera, work):
    """Simulates a run of a model; returns the answer and the snapshot's file, which is gone after the test."""
    made = []

    def simulate(model, *options):
        made.append(work / f'simulated-{len(made)}.pickle')
        done = tessera.run('simulate', '-q', '--json', '--batch', 4, '--seq', 512, *options, '-o', made[-1], model)
        expect('errors', done.stderr, '')
        return json.loads(done.stdout)['devices'][0], made[-1]
    yield simulate
    for path in made:
        path.unlink(missing_ok=True)


@pytest.fixture
def ask(tessera):
    return lambda command, path, *words: tessera.device(command, '--top', 0, *words, path)


BASELINE = {'Total Allocated': '4.62GiB', 'UNKNOWN': '32.0KB', 'ACTIVATION': '2.93GiB',
            'BACKWARD': '785.27MB', 'OPTIMIZER': '949.4MB'}
CHECKPOINTED = {'Total Allocated': '2.55GiB', 'UNKNOWN': '32.0KB', 'ACTIVATION': '871.79MB',
                'BACKWARD': '785.27MB', 'OPTIMIZER': '949.4MB'}


def test_case_1(simulated, ask):
    """The two runs' categorical profiles, to the letter, and max_memory_allocated."""
    peaks = []
    for options, want, peak in (((), BASELINE, 5.13), (('--checkpoint', 'full'), CHECKPOINTED, 3.04)):
        answer, path = simulated('gpt2', '--steps', '5', *options)
        expect('profile', profile(events(path)), want)
        ours = ask('profile', path, '--categories', 'mosaic')
        expect('profile --categories mosaic', {g['name'].upper(): mosaic_size(g['bytes'])
                                         for g in ours['groups']},
               {name: size for name, size in want.items() if name != 'Total Allocated'})
        got = answer['peak']['allocated_bytes']
        if abs(got / GIB / peak - 1) > 0.003:
            raise AssertionError(f'max_memory_allocated: {got / GIB:.4f} GiB, not {peak}')
        expect('peak', ask('peak', path)['peak']['allocated_bytes'], got)
        peaks.append(got)
    expect('saved', f'{100 * (peaks[0] - peaks[1]) / peaks[0]:.1f} %', '40.6 %')


PRINTED = '''Memory Usage At Peak:
Total Allocated: {Total Allocated}
Category Profile:
AllocationType.UNKNOWN: {UNKNOWN}
AllocationType.ACTIVATION: {ACTIVATION}
AllocationType.BACKWARD: {BACKWARD}
AllocationType.OPTIMIZER: {OPTIMIZER}
Annotation Profile:
Compile Context Profile:
Custom Profile:
'''


def test_notebook(tessera, simulated):
    """mosaic_get_memory_profile prints the notebook's text, with the notebook's options."""
    for options, want in (((), BASELINE), (('--checkpoint', 'full'), CHECKPOINTED)):
        _, path = simulated('gpt2', '--steps', '5', *options)
        page = path.with_suffix('.html')
        done = tessera.run('mosaic_get_memory_profile', '--snapshot', path, '--out-path', page, '--profile', 'categories',
                           '--preserve-allocation-order', '--plotter_sampling_rate', 20)
        expect('text', done.stdout, PRINTED.format(**want))
        page.unlink()


SEGMENT = {'device': int, 'address': int, 'total_size': int, 'allocated_size': int, 'active_size': int,
           'requested_size': int, 'stream': int, 'segment_type': str, 'segment_pool_id': tuple,
           'is_expandable': bool, 'frames': list, 'blocks': list}
BLOCK = {'address': int, 'size': int, 'requested_size': int, 'state': str, 'frames': list}
EVENT = {'action': str, 'addr': int, 'size': int, 'stream': int, 'time_us': int, 'compile_context': str,
         'user_metadata': str, 'pool_id': tuple, 'frames': list}
FRAME = {'name': str, 'filename': str, 'line': int}
# What PyTorch's viewer can read of a pickle.
OPCODES = {'PROTO', 'FRAME', 'MEMOIZE', 'BINGET', 'LONG_BINGET', 'MARK', 'EMPTY_DICT', 'EMPTY_LIST',
           'EMPTY_TUPLE', 'TUPLE1', 'TUPLE2', 'TUPLE3', 'APPEND', 'APPENDS', 'SETITEM', 'SETITEMS', 'NONE',
           'NEWTRUE', 'NEWFALSE', 'BININT', 'BININT1', 'BININT2', 'LONG1', 'BINFLOAT', 'BINUNICODE',
           'SHORT_BINUNICODE', 'STOP'}


def expect_shape(what, value, keys):
    expect(f'types of {what}', {key: type(item) for key, item in value.items()}, keys)


def undo(snapshot):
    """The viewer's way back: from the final blocks through the trace, last event first."""
    live = {block['address']: block['requested_size'] for segment in snapshot['segments']
            for block in segment['blocks'] if block['state'] == 'active_allocated'}
    places = {segment['address']: segment['total_size'] for segment in snapshot['segments']}
    for event in reversed(snapshot['device_traces'][0]):
        action, address = event['action'], event.get('addr')
        if action == 'alloc':
            expect('block that is taken back', live.pop(address, None), event['size'])
        elif action == 'free_completed':
            expect('block that is there twice', live.get(address), None)
            live[address] = event['size']
        elif action == 'segment_alloc':
            expect('segment that is taken back', places.pop(address, None), event['size'])
        elif action == 'segment_free':
            places[address] = event['size']
    return live, places


def test_structure(simulated):
    """The snapshot is built as PyTorch's are: its viewer, Mosaic and Python read it."""
    for options in (('--categories',), ('--capacity', '4GiB', '--categories'), ('--checkpoint', 'full')):
        answer, path = simulated('gpt2', *options)
        kinds = {opcode.name for opcode, _, _ in pickletools.genops(path.read_bytes())}
        expect('opcodes the viewer does not know', kinds - OPCODES, set())
        snapshot = load(path)
        expect('keys', set(snapshot), {'segments', 'device_traces', 'allocator_settings',
                                       'external_annotations', 'tessera_plan'})
        addresses = [segment['address'] for segment in snapshot['segments']]
        expect('order of segments', addresses, sorted(addresses))
        for segment in snapshot['segments']:
            expect_shape('a segment', segment, SEGMENT)
            at = segment['address']
            for block in segment['blocks']:
                expect_shape('a block', block, BLOCK)
                expect('blocks tile their segment', block['address'], at)
                at += block['size']
            expect('end of segment', at, segment['address'] + segment['total_size'])
            expect('allocated_size', segment['allocated_size'],
                   sum(b['size'] for b in segment['blocks'] if b['state'] == 'active_allocated'))
        categories, before = set(), 0
        for event in snapshot['device_traces'][0]:
            keys = {**EVENT, **({'category': str} if '--categories' in options else {})}
            if event['action'] == 'oom':
                keys = {('device_free' if key == 'addr' else key): kind for key, kind in keys.items()}
            expect_shape('an event', event, keys)
            for frame in event['frames']:
                expect_shape('a frame', frame, FRAME)
            categories.add(event.get('category', 'unknown'))
            expect('time runs back', event['time_us'] >= before, True)
            before = event['time_us']
        expect('a category "unknown", which the viewer wants', 'unknown' in categories, True)
        live, places = undo(snapshot)
        expect('requested before the first event', sum(live.values()) <= answer['start_allocated_bytes'], True)
        expect('segments hold what was there', sum(live.values()) <= sum(places.values()), True)


def test_out_of_memory(simulated):
    """Over capacity the trace ends as PyTorch's does: cached segments given back, then an oom event."""
    answer, path = simulated('gpt2', '--steps', '5', '--capacity', '4GiB')
    trace = events(path)
    expect('fits', answer['fits'], False)
    last = trace[-1]
    expect('last event', last['action'], 'oom')
    expect('size', last['size'], (answer['oom_request_bytes'] + 511) // 512 * 512)
    reserved = sum(s['total_size'] for s in load(path)['segments'])
    expect('device_free', last['device_free'], (4 << 30) - reserved)
    if not any('backward' in frame['name'].lower() for frame in last['frames']):
        raise AssertionError('the stack is not of the backward pass')
    got = answer['message']
    if not got.startswith('CUDA out of memory. Tried to allocate 394.00 MiB. GPU 0 has a total capacity of 4.00 GiB'):
        raise AssertionError(got)


# Options and, in GiB of requested bytes, the peaks of forward, backward and optimizer.
FIGURES = (('', 4.87, 5.11, 2.87),
           ('--no-kv-cache', 4.59, 4.97, 2.73),
           ('--no-kv-cache --gelu fused', 3.74, 4.13, 2.73),
           ('--no-kv-cache --gelu fused --loss chunked:256', 2.84, 2.81, 2.35),
           ('--no-kv-cache --gelu fused --loss chunked:256 --optimizer adamw-fused', 2.84, 2.81, 1.88),
           ('--checkpoint full', 2.65, 3.04, 2.73),
           ('--checkpoint full --loss chunked:256', 1.75, 2.15, 2.35),
           ('--checkpoint full --loss chunked:256 --optimizer adamw-fused --gelu fused', 1.75, 2.03, 1.88))


def test_figures(simulated):
    """Each option changes the peak, and that of each phase, by as much as an account by hand says."""
    for options, *want in FIGURES:
        answer, _ = simulated('gpt2', *options.split())
        got = [phase['requested_bytes'] / GIB for phase in answer['phases']]
        if abs(answer['peak']['requested_bytes'] / GIB / max(want) - 1) > 0.01:
            raise AssertionError(f'{options}: {answer["peak"]}, not {max(want)} GiB')
        # The account by hand simplifies the temporaries of a block's backward.
        if any(abs(a - b) > 0.06 for a, b in zip(got, want, strict=True)):
            raise AssertionError(f'{options}: {got}, not {want}')


def test_case_1_fresh(simulated):
    """In a process that has done nothing before, cuBLAS's workspaces are recorded too."""
    _, path = simulated('gpt2', '--steps', '5', '--fresh-process')
    expect('profile', profile(events(path))['BACKWARD'], '793.39MB')


def test_case_2(simulated):
    """Projections that someone left in the model."""
    for model, calls, size, places in (('gpt2', 148, 0.464, (1, 2)),
                                       (ROOT / 'examples/leftover-projections.json', 172, 0.569,
                                        (0, 1))):
        _, path = simulated(model, '--steps', '3')
        found = groups(events(path))
        for place in places:  # among the stacks, as the tutorial has them
            got_calls, got_size, names = found[place]
            if '_init_group' not in names:
                raise AssertionError(f'stack {place} is not the optimizer\'s: {names}')
            expect('calls', got_calls, calls)
            expect('GiB', round(got_size / GIB, 3), size)
    products = [group for group in found if any('AddmmBackward0::apply' in n for n in group[2])]
    expect('GiB under AddmmBackward', round(sum(g[1] for g in products) / GIB, 3), 0.176)


def test_replays(simulated, ask):
    """Replaying a simulated trace gives its own allocator state back."""
    for model, options in (('gpt2', ()), ('gpt2', ('--checkpoint', 'every:5')),
                           ('gpt2', ('--set', 'expandable_segments:True')),
                           ('gpt2', ('--capacity', '5GiB')), ('gpt2', ('--capacity', '3GiB')),
                           ('llama-3.2-1b', ('--dtype', 'bf16', '--accumulate', '2')),
                           ('gpt2-medium', ('--dtype', 'autocast-fp16', '--optimizer', 'sgd')),
                           ('gpt2', ('--attention', 'eager', '--checkpoint', 'selective')),
                           ('gpt2', ('--attention', 'chunked:100', '--gelu', 'fused', '--no-kv-cache')),
                           ('gpt2-large', ('--loss', 'chunked:300', '--optimizer', 'adamw-fused')),
                           ('gpt2', ('--optimizer', 'adamw-loop', '--set', 'max_split_size_mb:64')),
                           ('mistral-7b', ('--dtype', 'fp16', '--attention', 'flash', '--capacity', '40GiB')),
                           (ROOT / 'examples/leftover-projections.json', ('--fresh-process',)),
                           ('qwen2.5-7b', ('--dtype', 'autocast-bf16', '--steps', '2'))):
        answer, path = simulated(model, *options)
        info = ask('info', path)
        check = info['replay']
        expect('reused', check['reused'], check['reused_matched'])
        expect('segments', check['segments_new'], check['segments_matched'])
        expect('final blocks', check['final_blocks'], check['final_matched'])
        expect('events', info['events'], answer['events'])
        if not answer['fits']:
            expect('last event', events(path)[-1]['action'], 'oom')


def test_categories(simulated):
    """With --categories every allocation says what it is truly for, and sums agree."""
    answer, path = simulated('gpt2', '--categories')
    live, sums = {}, collections.defaultdict(int)
    for number, event in enumerate(events(path)):
        if event['action'] == 'alloc':
            live[event['addr']] = event
        elif event['action'] == 'free_completed':
            live.pop(event['addr'], None)
        if number == answer['peak']['event']:
            break
    for event in live.values():
        sums[event['category']] += event['size']
    told = {c['name']: c['bytes'] for c in answer['categories']}
    expect('categories', dict(sums), {name: told[name] for name in sums})
