"""`tessera plan --from` a recorded run.

Runs are simulated, of a model and of a step graph, and then changed: another clock, and allocations that the prediction lacks.
"""
import json
import pickle
import sys

import pytest
from support import HERE, ROOT, expect

sys.path.insert(0, str(ROOT / 'examples'))
import check_certificate  # noqa: E402

SMALL = {'model_type': 'gpt2', 'vocab_size': 2000, 'n_positions': 64, 'n_embd': 128, 'n_layer': 4, 'n_head': 4}
ALLOW = 'kernels,recompute'  # what is measured is the same, however wide the search is
EXTRA = 48 << 20  # more than a step has


class Run:
    def __init__(self, tessera, work, model, *options):
        self.tessera, self.model, self.options = tessera, model, options
        self.predicted, self.recorded = work / 'predicted.pickle', work / 'recorded.pickle'
        tessera.simulate(model, *options, '--steps', 5, out=self.predicted)

    def change(self, factor, extra):
        """Record the run `factor` times slower, with a buffer that is never freed."""
        held = pickle.loads(self.predicted.read_bytes())
        events = held['device_traces'][0]
        begin = events[0]['time_us']
        for event in events + held['external_annotations']:
            event['time_us'] = begin + int((event['time_us'] - begin) * factor)
        if extra:
            frames = [{'name': 'init_buffers', 'filename': 'buffers.py', 'line': 7}]
            new = [dict(events[0], action=action, addr=1 << 46, size=extra, frames=frames) for action in ('segment_alloc', 'alloc')]
            events[:0] = new
        self.recorded.write_bytes(pickle.dumps(held, protocol=4))

    def plan(self, budget):
        options = [word for word in self.options if word != '--fresh-process']
        answer = self.tessera.json('plan', self.model, *options, '--budget', f'{budget}B', '--allow', ALLOW, '--from', self.recorded,
                                   status=(0, 1))
        check_certificate.verify(answer, self.tessera.path, self.model if self.model.suffix == '.graph' else None, sample=1)
        return answer


@pytest.fixture
def small(tessera, work):
    (work / 'small.json').write_text(json.dumps(SMALL))
    return Run(tessera, work, work / 'small.json', '--batch', '8', '--seq', '64')


@pytest.fixture(params=['model', 'graph'])
def run(tessera, work, request):
    if request.param == 'model':
        return request.getfixturevalue('small')
    return Run(tessera, work, HERE / 'rewrites' / 'llama.graph')


def test_times(run):
    """A clock that runs at half the speed: steps take twice as long, and so do the times of plans."""
    run.change(1, 0)
    fast = run.plan(1 << 40)
    run.change(2, 0)
    slow = run.plan(1 << 40)
    one, two = fast['calibration'], slow['calibration']
    expect('steps', one['steps'] >= 2, True)
    expect('a step', abs(two['measured_step_us'] / one['measured_step_us'] - 2) < 0.01, True)
    expect('the factor', abs(two['factor'] / one['factor'] - 2) < 0.02, True)
    expect('the estimate stays', two['estimated_step_us'], one['estimated_step_us'])
    expect('phases', all(phase['measured_us'] > 0 for phase in two['phases'].values()), True)
    expect('the plan takes what was measured',
           abs(slow['as_is']['step_time_us'] / slow['calibration']['measured_step_us'] - 1) < 0.01, True)
    expect('nothing is unexplained', (one['unexplained_bytes'], one['unexplained']), (0, []))


def test_memory(run):
    """Memory that the prediction lacks is listed by name, and subtracted from the budget."""
    run.change(1, EXTRA)
    budget = 1 << 40
    answer = run.plan(budget)
    found = answer['calibration']
    expect('bytes', (found['unexplained_bytes'], found['unexplained_allocations']), (EXTRA, 1))
    expect('the name', found['unexplained'][0]['place'], 'buffers.py:7 init_buffers')
    expect('the budget', answer['budget_bytes'], budget - EXTRA)
    whole = answer['as_is']['peak_reserved_bytes']
    expect('fits with it', run.plan(whole + EXTRA)['verdict'], 'fits')
    expect('not without', run.plan(whole + EXTRA - 1)['verdict'] != 'fits', True)


def test_refusals(tessera, work, small):
    """A run of something else, a run without a trace, and options that contradict one another."""
    small.change(1, 0)
    plan = ('plan', small.model, '--budget', '1GiB', '--from', small.recorded)
    for words, message in (((*plan, '--batch', '4', '--seq', '64'), 'has other sizes'), ((*plan, '--batch', '8', '--seq', '32'), 'has other sizes'),
                           (('plan', 'gpt2', '--budget', '1GiB', '--from', small.recorded), 'of something else'),
                           (('plan', small.model, '--from', small.recorded), 'needs --budget'),
                           (('plan', small.model, '--budget', '1GiB', '--from', work / 'none.pickle'), 'No such file')):
        assert message in tessera.run(*words, status=(2, 3)).stderr
