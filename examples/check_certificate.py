#!/usr/bin/env python3
"""Check what `tessera plan MODEL --budget SIZE --json` claims, from that file alone.

    tessera plan gpt2 --batch 4 --gpu t4 --budget 2GiB --json > answer.json
    python3 examples/check_certificate.py answer.json

The plan is what its hash says; what is live at the peak adds up to it; each way's bound is the least that a knapsack
of its tensors allows, and the answer's bound is the least of all ways. Exits with 1 if anything does not hold.
"""
import hashlib
import json
import sys


def near(a, b):
    return abs(a - b) <= 1e-6 * max(abs(a), abs(b)) + 0.01  # microseconds


def bound(way, budget):
    """The least time of any schedule of the way's kernels within the budget; None: no schedule fits."""
    own = max(way['kernels_us'], way['copies_us'])
    if 'floor' not in way:  # left out, because it is slower than the plan without any further change
        return own
    items = way['could_be_made_again']
    assert sum(t['bytes'] for t in way['floor']['tensors']) == way['floor']['bytes'], 'floor: sum'
    live = way['needed_bytes'] + sum(i['bytes'] * i['count'] for i in items)
    assert live == way['most_bytes'] and all(i['us'] >= 0 for i in items), 'live tensors: sum'
    left, extra = max(live - budget, 0), 0.0
    for item in sorted(items, key=lambda i: i['us'] / i['bytes']):  # the cheapest bytes first
        taken = min(left, item['bytes'] * item['count'])
        extra += taken * item['us'] / item['bytes']
        left -= taken
    if way['floor']['bytes'] > budget or left:
        return None
    if 'activations' in way['plan'].get('offload', ''):  # these copies could be left out
        return way['kernels_us']
    return max(way['kernels_us'] + extra * way['repeats'], way['copies_us'])


def check(answer):
    budget, found, ways = answer['budget_bytes'], answer['predicted'], answer['ways']
    text = json.dumps(answer['plan'], sort_keys=True, separators=(',', ':')) + '\n'
    assert hashlib.sha256(text.encode()).hexdigest() == answer['plan_hash'], 'hash of the plan'
    live = sum(t['bytes'] for t in answer['binding']['tensors'])
    assert live == found['peak_allocated_bytes'] <= found['peak_reserved_bytes'], 'peak: sum'
    fits, as_is = found['peak_reserved_bytes'] <= budget, answer['as_is']['peak_reserved_bytes'] <= budget
    verdict = 'fits' if as_is else 'fits_with_changes' if fits else 'does_not_fit'
    assert answer['verdict'] == verdict, 'verdict'
    bounds = [bound(way, budget) for way in ways]
    for way, least in zip(ways, bounds):
        claimed = way['bound_us']
        assert (claimed is None) == (least is None), 'bound of a way'
        assert least is None or near(claimed, least), 'bound of a way'
    times = [least for least in bounds if least is not None]
    claimed = answer['lower_bound']['step_time_us']
    assert answer['is_proved'] == (not times) == (claimed is None), 'proof'
    assert not times or near(claimed, min(times)), 'bound'
    floors = [way['floor']['bytes'] for way in ways if 'floor' in way]
    assert answer['lower_bound']['peak_bytes'] == min(floors, default=None), 'bound on memory'
    if fits:
        assert claimed <= found['step_time_us'] * (1 + 1e-6) + 0.01, 'faster than its bound'
        assert all('floor' in way or bound(way, budget) * (1 + 1e-6) >= found['step_time_us'] for way in ways), \
            'a way was left out'
    return claimed


if __name__ == '__main__':
    with open(sys.argv[1], encoding='utf-8') as file:
        contents = json.load(file)
    try:
        print('holds; bound', check(contents), 'us, found', contents['predicted']['step_time_us'], 'us')
    except (AssertionError, KeyError, TypeError, ValueError) as wrong:
        sys.exit(f'does not hold: {wrong!r}')
