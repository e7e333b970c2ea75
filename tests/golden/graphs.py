#!/usr/bin/env python3
"""graphs.py --tessera PATH --work FOLDER: step graphs of eight small programs, simulated, as TAP.

Each must have at its peak what PyTorch's own MemTracker counted (graphs/peaks.json; tests/torch/graphs.py made both), and
the snapshot must be one that other commands read: its stacks the program's, and its replay the simulated run's.
"""
import argparse
import json
import shutil
import subprocess
import sys
from pathlib import Path

GRAPHS = Path(__file__).resolve().parent / 'graphs'


def answer(problems, tessera, *words):
    done = subprocess.run([tessera, *words, '--json', '-q'], capture_output=True, text=True, check=False)
    if done.returncode:
        problems.append(f'{" ".join(map(str, words))}: {done.returncode} {done.stderr}')
        return None
    return json.loads(done.stdout)


def problems_of(tessera, work, name, peak):
    graph, snapshot = GRAPHS / f'{name}.graph', work / f'{name}.pickle'
    out = []
    ran = answer(out, tessera, 'simulate', graph, '--steps', '3', '--fresh-process', '--categories', '-o', snapshot)
    read = answer(out, tessera, 'peak', snapshot) if ran else None
    if not read:
        return out
    device = ran['devices'][0]
    found = device['peak']
    if found['allocated_bytes'] != peak:
        out.append(f'{found["allocated_bytes"]} at the peak instead of {peak}')
    if not found['op'] or not all(phase['op'] for phase in device['phases']):
        out.append('a peak without an op')
    if read['devices'][0]['peak']['allocated_bytes'] != found['allocated_bytes']:
        out.append('the snapshot has another peak')
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ('--tessera', '--work'):
        parser.add_argument(name, required=True, type=lambda text: Path(text).resolve())
    given = parser.parse_args()
    shutil.rmtree(given.work, ignore_errors=True)
    given.work.mkdir(parents=True)
    peaks = json.loads((GRAPHS / 'peaks.json').read_text(encoding='utf-8'))
    print(f'1..{len(peaks)}')
    for number, (name, known) in enumerate(sorted(peaks.items()), 1):
        found = problems_of(given.tessera, given.work, name, known['peak_bytes'])
        print(f'{"not ok" if found else "ok"} {number} - {name}')
        for line in found:
            print(f'# {line}')


if __name__ == '__main__':
    sys.exit(main())
