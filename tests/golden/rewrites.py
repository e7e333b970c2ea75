#!/usr/bin/env python3
"""rewrites.py --tessera PATH --work FOLDER: golden step graphs, rewritten, as TAP.

Each phase of the third step must have the peak that a trace of the rewritten program has, with what its kernels allocate while they run
(rewrites/peaks.json, which tests/torch/rewrites.py made), and the snapshot must be one that other commands read.
"""
import functools
import json
import subprocess
import sys
from pathlib import Path

from support import run_tests, tessera_and_work

GRAPHS = Path(__file__).resolve().parent / 'rewrites'


def answer(tessera, *words):
    done = subprocess.run([tessera, *words, '--json', '-q'], capture_output=True, text=True, check=False)
    assert not done.returncode, done.stderr
    return json.loads(done.stdout)


def check(tessera, work, case):
    snapshot = work / 'rewritten.pickle'
    graph = GRAPHS / f'{case["program"]}.graph'
    if 'form' in case:
        change = ('--optimizer-form', case['form'])
    elif 'plan' in case:
        change = ('--plan', work / 'plan.json')
        change[1].write_text(json.dumps({**case['plan'], 'version': 1}), encoding='utf-8')
    else:
        change = (f'--{case["how"]}-modules', case['modules'])
    run = answer(tessera, 'simulate', graph, *change, '--fresh-process', '--steps', '3', '-o', snapshot)
    device = run['devices'][0]
    workspaces = sum(entry['bytes'] for entry in device['categories'] if entry['name'] == 'workspace')
    found = {phase['name']: phase['allocated_bytes'] - workspaces for phase in device['phases']}
    wanted = {phase: size for phase, size in case['peaks'].items() if phase in found}  # a fused SGD allocates nothing
    assert found == wanted and {'forward', 'backward'} <= set(found), f'{found} instead of {case["peaks"]}'
    read = answer(tessera, 'peak', snapshot)['devices'][0]['peak']
    assert read['allocated_bytes'] == max(found.values()) + workspaces, 'the snapshot has another peak'


def main():
    given = tessera_and_work(__doc__)
    cases = json.loads((GRAPHS / 'peaks.json').read_text(encoding='utf-8'))['cases']
    return run_tests((f'{case["program"]}: {case.get("how", "")} {case.get("modules") or case.get("form") or case["plan"]}', functools.partial(check, given.tessera, given.work, case))
                     for case in cases)


if __name__ == '__main__':
    sys.exit(main())
