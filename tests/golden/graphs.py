#!/usr/bin/env python3
"""graphs.py --tessera PATH --work FOLDER: step graphs of small programs, simulated, as TAP.

Without what kernels allocate while they run, each must have at its peak what PyTorch's own MemTracker counted (graphs/peaks.json;
tests/torch/graphs.py made both). With it, it must be the same run, event by event, as that of a graph into which temporaries.py has put those
temporaries, and the snapshot must be one that other commands read: its stacks the program's, and its replay the simulated run's.

The graph contains the true category of each storage. Without it, tessera must infer the right category for 99 of 100 bytes at the
peak, and for 97 of 100 after every event.
"""
import csv
import functools
import io
import json
import pickle
import subprocess
import sys
from pathlib import Path

import temporaries
from support import run_tests, tessera_and_work

GRAPHS = Path(__file__).resolve().parent / 'graphs'


PEAK_SHARE, EVENT_SHARE = 0.99, 0.97
# Where another category is right as well: a recording does not tell what a step keeps from what it computes again.
ALSO = {'activation': ['recomputed'], 'recomputed': ['activation']}


def answer(problems, tessera, *words):
    done = subprocess.run([tessera, *words, '--json', '-q'], capture_output=True, text=True, check=False)
    if done.returncode:
        problems.append(f'{" ".join(map(str, words))}: {done.returncode} {done.stderr}')
        return None
    return json.loads(done.stdout)


def simulate(problems, tessera, graph, snapshot):
    """The first device, or None."""
    ran = answer(problems, tessera, 'simulate', graph, '--steps', '3', '--fresh-process', '--categories', '-o', snapshot)
    return ran and ran['devices'][0]


def simulate_changed(problems, tessera, graph, path):
    path.write_text(json.dumps(graph), encoding='utf-8')
    return simulate(problems, tessera, path, path.with_suffix('.pickle'))


def events(snapshot):
    """What the run does, without times and addresses of stacks."""
    trace = pickle.loads(snapshot.read_bytes())['device_traces'][0]
    return [(event['action'], event['addr'], event['size'], event.get('category'), [frame['name'] for frame in event.get('frames', [])])
            for event in trace]


def problems_of(tessera, work, name, peak):
    path, snapshot = GRAPHS / f'{name}.graph', work / f'{name}.pickle'
    graph = json.loads(path.read_text(encoding='utf-8'))
    out = []
    device = simulate(out, tessera, path, snapshot)
    tracked = simulate_changed(out, tessera, temporaries.without(graph), work / f'{name}.tracked.graph')
    added = simulate_changed(out, tessera, temporaries.added(graph), work / f'{name}.added.graph')
    read = answer(out, tessera, 'peak', snapshot) if device and tracked and added else None
    if not read:
        return out
    workspaces = sum(entry['bytes'] for entry in tracked['categories'] if entry['name'] == 'workspace')
    if tracked['peak']['allocated_bytes'] - workspaces != peak:
        out.append(f'{tracked["peak"]["allocated_bytes"] - workspaces} at the peak instead of {peak}')
    found = device['peak']
    if events(snapshot) != events(work / f'{name}.added.pickle'):
        out.append('kernels allocate something else')
    if not found['op'] or not all(phase['op'] for phase in device['phases']):
        out.append('a peak without an op')
    if read['devices'][0]['peak']['allocated_bytes'] != found['allocated_bytes']:
        out.append('the snapshot has another peak')
    at_peak, worst = shares_right(tessera, snapshot)
    print(f'# {name}: categories of {100 * at_peak:.2f} % of the bytes are right at the peak, of {100 * worst:.2f} % or more '
          'after each event')
    if at_peak < PEAK_SHARE or worst < EVENT_SHARE:
        out.append('too many categories are wrong')
    return out


def without_truth(snapshot):
    """Remove the true categories from a snapshot; returns those of its trace's events."""
    held = pickle.loads(snapshot.read_bytes())
    truth = [event.pop('category', None) for event in held['device_traces'][0]]
    snapshot.write_bytes(pickle.dumps(held, protocol=4))
    return truth


def changes(rows, truth):
    """For each event, the growth of live bytes, and of live bytes with a wrong category."""
    out = [[0, 0] for _ in range(len(truth) + 1)]
    for row in rows:
        birth, size = int(row['birth_event']), int(row['requested_bytes'])
        true = truth[birth] if birth >= 0 else 'parameter'  # all there is before the step
        if true == 'workspace':  # large, and no part of the program
            continue
        wrong = 0 if row['category'] in [true, *ALSO.get(true, [])] else size
        for event, sign in ((max(birth, 0), 1), (int(row['death_event'] or len(truth)), -1)):
            out[event][0] += sign * size
            out[event][1] += sign * wrong
    return out[:-1]


def shares_right(tessera, snapshot):
    """The share of live bytes whose inferred category is true: at the peak, and its minimum."""
    truth = without_truth(snapshot)
    said = subprocess.run([tessera, 'export', '--format', 'csv', snapshot], capture_output=True, check=True, text=True)
    live = wrong = 0
    peak, worst = (0, 0), 1.0
    for more_live, more_wrong in changes(csv.DictReader(io.StringIO(said.stdout)), truth):
        live, wrong = live + more_live, wrong + more_wrong
        peak = max(peak, (live, live - wrong))
        worst = min(worst, 1 - wrong / live if live else 1)
    return peak[1] / peak[0], worst


def check(tessera, work, name, peak_bytes):
    found = problems_of(tessera, work, name, peak_bytes)
    assert not found, '\n'.join(found)


def main():
    given = tessera_and_work(__doc__)
    peaks = json.loads((GRAPHS / 'peaks.json').read_text(encoding='utf-8'))
    return run_tests((name, functools.partial(check, given.tessera, given.work, name, known['peak_bytes']))
                     for name, known in sorted(peaks.items()))


if __name__ == '__main__':
    sys.exit(main())
