#!/usr/bin/env python3
"""`tessera diff` of pairs of real snapshots, against the two peaks compared in Python. Prints TAP.

usage: diff.py --tessera PATH

The snapshots lie in ../shared beside the checkout; where they are absent, the test is skipped and
says so."""
import argparse
import collections
import itertools
import json
import pathlib
import subprocess
import sys

SHARED = pathlib.Path(__file__).resolve().parents[3] / 'shared' / 'snapshots'


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


def check(tessera, old, new, peaks):
    answer = run(tessera, 'diff', str(old), str(new))
    for entry in answer['devices']:
        before = by_stack(peaks[old], entry['old']['device'])
        after = by_stack(peaks[new], entry['new']['device'])
        want = {}
        for stack in before.keys() | after.keys():
            if before[stack][0] != after[stack][0]:
                want[stack] = (*before[stack], *after[stack])
        got = {stack_of(c): (c['old_bytes'], c['old_allocations'], c['new_bytes'],
                             c['new_allocations']) for c in entry['changes']}
        assert len(got) == len(entry['changes']), 'a stack stands there twice'
        assert got == want, 'other changes'
        deltas = [c['delta_bytes'] for c in entry['changes']]
        assert deltas == [c['new_bytes'] - c['old_bytes'] for c in entry['changes']], 'deltas'
        assert [abs(d) for d in deltas] == sorted(map(abs, deltas), reverse=True), 'the order'
        assert sum(deltas) == sum(v[0] for v in after.values()) - sum(
            v[0] for v in before.values()), 'the sum'


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--tessera', required=True, type=pathlib.Path)
    tessera = parser.parse_args().tessera.resolve()
    files = sorted(SHARED.glob('*.pickle'))
    if not files:
        print('1..0 # SKIP ../shared/snapshots is not there')
        return 0
    peaks = {path: run(tessera, 'peak', str(path)) for path in files}
    # Neighbours in the list, from one training script often, and each with itself.
    pairs = [*itertools.pairwise(files), *zip(files, files)]
    failed = 0
    print(f'1..{len(pairs)}')
    for number, (old, new) in enumerate(pairs, 1):
        try:
            check(tessera, old, new, peaks)
            print(f'ok {number} - {old.name} and {new.name}')
        except AssertionError as why:
            failed += 1
            print(f'not ok {number} - {old.name} and {new.name}\n# {why}')
    return int(failed > 0)


if __name__ == '__main__':
    sys.exit(main())
