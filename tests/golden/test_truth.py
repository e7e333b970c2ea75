"""Categories when half of the frames are missing. From simulated runs, whose traces contain the true categories, the
C++ frames or the Python frames are removed, with checkpointing in both of its forms.

After every event 99 of 100 live bytes must be right, as in tests/unit/test_truth.c, which has all the frames."""
import pickle

import pytest
from frames import ALSO, changed, native_alone, not_reentrant, python_alone

RUNS = ((), ('--checkpoint', 'full'), ('--checkpoint', 'every:3'), ('--checkpoint', 'selective'),
        ('--checkpoint', 'full', '--dtype', 'autocast-bf16', '--accumulate', '2'),
        ('--checkpoint', 'full', '--attention', 'chunked:64'),
        ('--dtype', 'autocast-bf16'),
        ('--accumulate', '2'), ('--optimizer', 'sgd'))


def worst_share(rows, truth, events):
    """The largest share of wrong bytes after any event, of what the recording saw being made."""
    deltas = [(0, 0)] * (events + 1)
    for row in rows:
        birth, size = int(row['birth_event']), int(row['requested_bytes'])
        if birth < 0:
            continue
        lie = 0 if row['category'] in [truth[birth], *ALSO.get(truth[birth], [])] else size
        for event, sign in ((birth, 1), (int(row['death_event'] or events), -1)):
            live, wrong = deltas[event]
            deltas[event] = live + sign * size, wrong + sign * lie
    live = wrong = 0
    worst = 0.0
    for more_live, more_wrong in deltas[:events]:
        live, wrong = live + more_live, wrong + more_wrong
        worst = max(worst, wrong / live if live > 1 << 20 else 0)
    return worst


@pytest.fixture(scope='module')
def simulated(tessera, work, request):
    """The simulated snapshot, and what each event of its trace is for."""
    path = tessera.simulate('gpt2', '--batch', 4, '--seq', 256, '--steps', 2, '--categories', *request.param, out=work / 'run.pickle')
    snapshot = pickle.loads(path.read_bytes())
    return snapshot, [event.pop('category', None) for event in snapshot['device_traces'][0]]


CHANGES = [(words, change) for words in RUNS for change in (python_alone, native_alone, not_reentrant)
           if change != not_reentrant or '--checkpoint' in words]


@pytest.mark.parametrize('simulated, change', CHANGES, indirect=['simulated'],
                         ids=[f'{change.__name__}: {" ".join(words) or "plain"}' for words, change in CHANGES])
def test_truth(tessera, work, simulated, change):
    snapshot, truth = simulated
    path = work / 'changed.pickle'
    path.write_bytes(pickle.dumps(changed(snapshot, change), protocol=4))
    worst = worst_share(tessera.allocations(path), truth, len(truth))
    assert worst <= 0.01, f'{100 * worst:.2f} % of the live bytes are wrong'
