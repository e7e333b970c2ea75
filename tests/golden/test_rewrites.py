"""Golden step graphs, rewritten.

Each phase of the third step must have the peak that a trace of the rewritten program has, with what its kernels allocate while they run
(rewrites/peaks.json, which tests/torch/rewrites.py made), and the snapshot must be one that other commands read.
"""
import json

from support import HERE, cases

GRAPHS = HERE / 'rewrites'
CASES = json.loads((GRAPHS / 'peaks.json').read_text(encoding='utf-8'))['cases']


def title(case):
    return f'{case["program"]}: {case.get("how", "")} {case.get("modules") or case.get("form") or case["plan"]}'


@cases('case', CASES, title)
def test_rewritten(tessera, work, case):
    snapshot = work / 'rewritten.pickle'
    graph = GRAPHS / f'{case["program"]}.graph'
    if 'form' in case:
        change = ('--optimizer-form', case['form'])
    elif 'plan' in case:
        change = ('--plan', work / 'plan.json')
        change[1].write_text(json.dumps({**case['plan'], 'version': 1}), encoding='utf-8')
    else:
        change = (f'--{case["how"]}-modules', case['modules'])
    device = tessera.device('simulate', graph, *change, '--fresh-process', '--steps', '3', '-q', '-o', snapshot)
    workspaces = sum(entry['bytes'] for entry in device['categories'] if entry['name'] == 'workspace')
    found = {phase['name']: phase['allocated_bytes'] - workspaces for phase in device['phases']}
    wanted = {phase: size for phase, size in case['peaks'].items() if phase in found}  # a fused SGD allocates nothing
    assert found == wanted and {'forward', 'backward'} <= set(found), f'{found} instead of {case["peaks"]}'
    read = tessera.device('peak', snapshot)['peak']
    assert read['allocated_bytes'] == max(found.values()) + workspaces, 'the snapshot has another peak'
