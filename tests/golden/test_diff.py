"""`tessera diff` of pairs of snapshots, simulated and real, against the two peaks compared in Python.

In every grouping the changes must add up to the difference of what the peaks hold."""
import collections
import functools
import itertools

import pytest
from support import SNAPSHOTS, absent, cases

# Runs of which one technique differs.
SIMULATED = ((), ('--checkpoint', 'full'), ('--checkpoint', 'selective'), ('--dtype', 'bf16'),
             ('--dtype', 'autocast-bf16'), ('--optimizer', 'sgd'), ('--gelu', 'fused'))

# Runs of one program each, and what differs.
NAMED = {('trace-plot-fp32.html', 'trace-plot-bf16.html'): 'fp32 and bf16',
         ('train-fp32-ctx128.pickle', 'infer-bf16-ctx512.pickle'): 'fp32 and bf16, train and infer',
         ('train-ctx100-annotated-torch2.6.pickle', 'train-ctx200-autocast-annotated-torch2.6.pickle'):
             'ctx100 and ctx200',
         ('forward-ctx150-torch2.6.pickle', 'train-ctx100-annotated-torch2.6.pickle'):
             'forward and train',
         ('forward-fp32.pickle', 'train-late-recording.pickle'): 'forward and train',
         ('infer-ctx512-torch2.11.pickle', 'train-ctx1024-torch2.11.pickle'): 'infer and train'}


@functools.cache
def ask(tessera, *words):
    """Most files are in several pairs."""
    return tessera.json(*words, '--top', 0)


def stack_of(item):
    return tuple((f['name'], f['file'], f['line']) for f in item['frames']) or item['before_recording'] or ''


def by_stack(peak, device):
    """stack -> [bytes, allocations] at the peak, or another moment."""
    sums = collections.defaultdict(lambda: [0, 0])
    for entry in peak['devices']:
        for item in entry['stacks'] if entry['device'] == device else []:
            sums[stack_of(item)][0] += item['bytes']
            sums[stack_of(item)][1] += item['allocations']
    return sums


def whole(side):
    return sum(entry[0] for entry in side.values())


def check_sums(entry, before, after):
    deltas = [c['delta_bytes'] for c in entry['changes']]
    assert deltas == [c['new_bytes'] - c['old_bytes'] for c in entry['changes']], 'deltas'
    assert [abs(d) for d in deltas] == sorted(map(abs, deltas), reverse=True), 'the order'
    assert sum(deltas) == whole(after) - whole(before), 'the sum'
    assert sum(deltas) == entry['compared']['requested_delta_bytes'], 'the difference of the moments'
    if not entry['compared']['phase']:
        assert all(entry['compared'][key] == entry[key] for key in ('delta_bytes', 'requested_delta_bytes')), 'the peaks are compared'
    peaks = [entry[side]['peak'] if entry[side]['device'] is not None else {} for side in ('old', 'new')]
    for kind, key in (('requested_bytes', 'requested_delta_bytes'), ('allocated_bytes', 'delta_bytes')):
        assert entry['compared']['delta_bytes'] == sum(deltas) + entry['rounding_delta_bytes'], 'the rounding'
        assert entry[key] == peaks[1].get(kind, 0) - peaks[0].get(kind, 0), key


def check_stacks(entry, before, after):
    """Stacks that match to the line are what they are; the rest add up."""
    want = {stack: (*before[stack], *after[stack]) for stack in before.keys() & after.keys()
            if before[stack][0] != after[stack][0]}
    exact = {stack_of(c): (c['old_bytes'], c['old_allocations'], c['new_bytes'],
                           c['new_allocations']) for c in entry['changes'] if not c['moved']}
    for stack, numbers in want.items():
        assert exact[stack] == numbers, 'a stack that both have'
    for change in entry['changes']:
        if change['status'] in ('added', 'removed'):
            side = after if change['status'] == 'added' else before
            other = before if change['status'] == 'added' else after
            assert change['moved'] or stack_of(change) in side, 'a stack that neither has'
            assert stack_of(change) not in other, 'a stack that both have'


def groups_of(tessera, by, device, path, event):
    """Group -> bytes at the peak, or by category at another moment."""
    if event is not None:
        stacks = ask(tessera, 'at', '--device', device, '--event', event, path)['devices'][0]['stacks']
        return functools.reduce(lambda sums, stack: sums + collections.Counter(stack['categories']), stacks, collections.Counter())
    answer = ask(tessera, 'profile', '--by', by, '--device', device, path)
    return {group['name']: group['bytes'] for group in answer['devices'][0]['groups']}


def check_groups(tessera, by, entry, old, new):
    """Groups that match by name are those of `profile`."""
    events = [entry['compared'][f'{side}_event'] if entry['compared']['phase'] else None for side in ('old', 'new')]
    if entry['compared']['phase'] and by != 'category':
        return  # which no other command lists for any moment
    sides = [{} if side['device'] is None else groups_of(tessera, by, side['device'], path, event)
             for path, side, event in ((old, entry['old'], events[0]), (new, entry['new'], events[1]))]
    for change in entry['changes']:
        if not change['moved']:
            got = (change['old_bytes'], change['new_bytes'])
            assert got == tuple(side.get(change['name'], 0) for side in sides), change['name']


def held(tessera, entry, side, path):
    """What a side holds at the moment compared."""
    device, event = entry[side]['device'], entry['compared'][f'{side}_event']
    answer = (ask(tessera, 'at', '--device', device, '--event', event, path) if entry['compared']['phase']
              else ask(tessera, 'peak', path))
    return by_stack(answer, device)


def check(tessera, old, new):
    for by in ('stack', 'category', 'op', 'line'):
        for entry in tessera.json('diff', '--by', by, '--top', 0, old, new)['devices']:
            before, after = (held(tessera, entry, side, path) for side, path in (('old', old), ('new', new)))
            check_sums(entry, before, after)
            if by == 'stack':
                check_stacks(entry, before, after)
            else:
                check_groups(tessera, by, entry, old, new)


@pytest.fixture(scope='module')
def simulated(tessera, work):
    return [tessera.simulate('gpt2', '--batch', 4, '--seq', 128, *words, out=work / f"{' '.join(words) or 'plain'}.pickle")
            for words in SIMULATED]


@cases('number', range(len(SIMULATED)), lambda number: ' '.join(SIMULATED[number]) or 'plain')
def test_simulated(tessera, simulated, number):
    check(tessera, simulated[0], simulated[number])


def pairs():
    """Those named above, neighbours in the list, from one training script often, and each with itself."""
    files = sorted([*SNAPSHOTS.glob('*.pickle'), *SNAPSHOTS.glob('*.html')])
    named = [(SNAPSHOTS / old, SNAPSHOTS / new) for old, new in NAMED] if files else []
    return [*named, *itertools.pairwise(files), *zip(files, files)] or [absent(None)]


def title(pair):
    what = NAMED.get((pair[0].name, pair[1].name))
    return f'{pair[0].name} and {pair[1].name}' + (f': {what}' if what else '')


@cases('pair', pairs(), title)
def test_real(tessera, pair):
    check(tessera, *pair)
