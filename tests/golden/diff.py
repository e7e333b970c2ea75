#!/usr/bin/env python3
"""`tessera diff` of pairs of snapshots, simulated and real, against the two peaks compared in Python.
Prints TAP.

usage: diff.py --tessera PATH

In every grouping the changes must add up to the difference of what the peaks hold. The real
snapshots are in ../shared next to the checkout; where they are absent, their pairs are skipped."""
import argparse
import collections
import functools
import itertools
import json
import pathlib
import subprocess
import sys
import tempfile

SHARED = pathlib.Path(__file__).resolve().parents[3] / 'shared' / 'snapshots'
# Runs of which one technique differs.
SIMULATED = (('--checkpoint', 'full'), ('--checkpoint', 'selective'), ('--dtype', 'bf16'),
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


def run(tessera, *words):
    done = subprocess.run([tessera, *words, '--json', '--top', '0'], capture_output=True, check=True)
    return json.loads(done.stdout)


def stack_of(item):
    return tuple((f['name'], f['file'], f['line']) for f in item['frames'])


def by_stack(peak, device):
    """stack -> [bytes, allocations] at the peak."""
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
    assert sum(deltas) == entry['requested_delta_bytes'], 'the difference of the peaks'
    peaks = [entry[side]['peak'] if entry[side]['device'] is not None else {} for side in ('old', 'new')]
    for kind, key in (('requested_bytes', 'requested_delta_bytes'), ('allocated_bytes', 'delta_bytes')):
        assert entry['delta_bytes'] == sum(deltas) + entry['rounding_delta_bytes'], 'the rounding'
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


@functools.cache
def groups_of(tessera, by, device, path):
    """Group -> bytes at the peak. Most files are in several pairs."""
    answer = run(tessera, 'profile', '--by', by, '--device', str(device), str(path))
    return {group['name']: group['bytes'] for group in answer['devices'][0]['groups']}


def check_groups(tessera, by, entry, old, new):
    """Groups that match by name are those of `profile`."""
    sides = [{} if side['device'] is None else groups_of(tessera, by, side['device'], path)
             for path, side in ((old, entry['old']), (new, entry['new']))]
    for change in entry['changes']:
        if not change['moved']:
            got = (change['old_bytes'], change['new_bytes'])
            assert got == tuple(side.get(change['name'], 0) for side in sides), change['name']


def check(tessera, old, new, peaks):
    for by in ('stack', 'category', 'op', 'line'):
        answer = run(tessera, 'diff', '--by', by, str(old), str(new))
        for entry in answer['devices']:
            before = by_stack(peaks[old], entry['old']['device'])
            after = by_stack(peaks[new], entry['new']['device'])
            check_sums(entry, before, after)
            if by == 'stack':
                check_stacks(entry, before, after)
            else:
                check_groups(tessera, by, entry, old, new)


def simulate(tessera, work):
    """The plain run first, then one for each technique."""
    paths = []
    for number, words in enumerate(((), *SIMULATED)):
        paths.append(work / f"{' '.join(words) or 'plain'}.pickle")
        subprocess.run([tessera, 'simulate', 'gpt2', '--batch', '4', '--seq', '128', *words, '-o',
                        str(paths[number])], stdout=subprocess.DEVNULL, check=True)
    return paths


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--tessera', required=True, type=pathlib.Path)
    tessera = parser.parse_args().tessera.resolve()
    files = sorted([*SHARED.glob('*.pickle'), *SHARED.glob('*.html')])
    with tempfile.TemporaryDirectory() as work:
        simulated = simulate(tessera, pathlib.Path(work))
        peaks = {path: run(tessera, 'peak', str(path)) for path in [*files, *simulated]}
        # Neighbours in the list, from one training script often, and each with itself.
        named = [(SHARED / old, SHARED / new) for old, new in NAMED] if files else []
        pairs = [*((simulated[0], path) for path in simulated), *named, *itertools.pairwise(files),
                 *zip(files, files)]
        failed = 0
        print(f'1..{len(pairs) + (not files)}')
        for number, (old, new) in enumerate(pairs, 1):
            try:
                check(tessera, old, new, peaks)
                what = NAMED.get((old.name, new.name))
                print(f'ok {number} - {old.name} and {new.name}' + (f': {what}' if what else ''))
            except AssertionError as why:
                failed += 1
                print(f'not ok {number} - {old.name} and {new.name}\n# {why}')
        if not files:
            print(f'ok {len(pairs) + 1} - real pairs # SKIP ../shared/snapshots is not there')
    return int(failed > 0)


if __name__ == '__main__':
    sys.exit(main())
