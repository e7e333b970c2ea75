"""Which moment, and of what a share: `peak`, `at` and `why` of hand-made runs."""
import re

from runs import CALL, MAIN, TORCH, Caching, Run, at
from support import cases, expect

MIB = 1 << 20


def tails():
    """Blocks with unsplit tails: less is requested than is allocated."""
    run = Caching()
    for line in (40, 41, 42):
        run.take([*MAIN, at(line)], 21 * MIB + 100)
    return run


@cases('command', [('peak',), ('at', '--event', '5'), ('why',)])
def test_share(tessera, work, command):
    """Shares are of allocated bytes, which the headline has."""
    tails().write(work / 'run.pickle')
    totals = tessera.device('peak', work / 'run.pickle')['peak']
    expect('there are tails', totals['allocated_bytes'] - totals['requested_bytes'], 3 * (MIB - 100))
    text = tessera.output(*command, work / 'run.pickle')
    shares = re.findall(r'^ *\d +([\d.]+) %.*main.py:4\d run', text, re.M)
    expect('shares', shares, [f'{100 * (21 * MIB + 100) / totals["allocated_bytes"]:.1f}'] * 3)


def without_stacks(events=True):
    """Memory from before the recording, and gradients that have no stack."""
    run = Run(4 * MIB)
    for _ in range(5):
        run.give(run.take([]))  # moves on
    run.live[run.next] = 8 * MIB
    run.next += 8 * MIB
    for _ in range(3):
        run.take([], 4 * MIB)
    if not events:
        run.trace = []
    return run


def test_no_stack(tessera, work):
    """What is older than the recording, and what has no stack, are two rows; of one moment, nothing is older."""
    without_stacks().write(work / 'run.pickle')
    rows = {'(before the recording)': 8 * MIB, '(no stack recorded)': 12 * MIB}
    expect('peak', {stack['before_recording']: stack['bytes'] for stack in tessera.device('peak', work / 'run.pickle')['stacks']},
           {True: 8 * MIB, False: 12 * MIB})
    causes = tessera.device('why', work / 'run.pickle')['causes']
    expect('why', {cause['before_recording']: cause['bytes'] for cause in causes}, {True: 8 * MIB, False: 12 * MIB})
    for command in ('peak', 'why'):
        text = tessera.output(command, work / 'run.pickle')
        for name, size in rows.items():
            expect(name, re.findall(rf'^ *\d .* ([\d.]+) MiB .*{re.escape(name)}', text, re.M)[0], f'{size / MIB:.2f}')
    without_stacks(events=False).write(work / 'run.pickle')
    for command in ('peak', 'why'):
        expect('one moment', '(before the recording)' in tessera.output(command, work / 'run.pickle'), False)


def two_peaks():
    """Most is allocated at one moment, and most is reserved at another."""
    run = Caching()
    run.give(run.take([*MAIN, at(40)], 100 * MIB))
    for address in [run.take([*MAIN, at(41)], 200 * MIB) for _ in range(2)]:
        run.give(address)
    run.take([*MAIN, at(42)], 250 * MIB)
    return run


def test_two_moments(tessera, work):
    """`why` without a failure is about the moment when most is reserved; its advice has the event of the allocated peak."""
    two_peaks().write(work / 'run.pickle')
    peak, why = (tessera.device(command, work / 'run.pickle') for command in ('peak', 'why'))
    text = tessera.output('why', work / 'run.pickle')
    expect('two moments', peak['peak']['event'] < why['moment']['event'], True)
    expect('advice', [finding['rule'] for finding in why['findings']], ['cached'])
    expect('said', f'the most allocated, at event {peak["peak"]["event"]}:' in text, True)


def step_with(activations, copies, steps=2, weight=4 * MIB):
    """Training whose optimizer's step makes copies of all weights at once."""
    run = Run(4 * MIB)
    for _ in range(6):
        run.take([*MAIN, at(30), ('__init__', TORCH + 'nn/modules/linear.py', 106)], weight)
    for _ in range(steps):
        made = [run.take([*MAIN, at(40), CALL, at(12, 'forward', '/work/model.py')]) for _ in range(activations)]
        run.backward([*MAIN, at(41)], made)
        step = [*MAIN, at(42), ('step', TORCH + 'optim/adamw.py', 220), ('_multi_tensor_adamw', TORCH + 'optim/adamw.py', 400)]
        for address in [run.take(step, weight) for _ in range(copies)]:
            run.give(address)
    return run


def test_diff_of_phases(tessera, work):
    """Peaks of different phases: the same phase is compared, and no row is an artefact of the other."""
    files = [work / 'old.pickle', work / 'new.pickle']
    for path, activations in zip(files, (30, 6)):
        step_with(activations, 12).write(path)
    entry = tessera.device('diff', *files)
    expect('phase', entry['compared']['phase'], 'backward')
    expect('rows', [(change['delta_bytes'], change['frames'][0]['file']) for change in entry['changes']],
           [(-24 * 4 * MIB, '/work/model.py')])
    expect('the sum', sum(change['delta_bytes'] for change in entry['changes']), entry['compared']['requested_delta_bytes'])
    expect('the peaks', entry['delta_bytes'], (6 + 12 - (6 + 30 + 1)) * 4 * MIB)
    phases = {phase['phase']: (phase['old_bytes'], phase['new_bytes']) for phase in entry['phases']}
    expect('by phase', phases, {'forward': (36 * 4 * MIB, 12 * 4 * MIB), 'backward': (37 * 4 * MIB, 13 * 4 * MIB),
                                'optimizer': (18 * 4 * MIB, 18 * 4 * MIB), 'setup': (6 * 4 * MIB, 6 * 4 * MIB)})
    text = ' '.join(tessera.output('diff', *files).split())
    expect('said', 'The old peak is in the backward pass, the new one in the optimizer; what follows compares the backward pass of both'
           in text, True)
    expect('by line', [change['name'] for change in tessera.device('diff', '--by', 'line', *files)['changes']], ['model.py:12 forward'])
    expect('of one phase', tessera.device('diff', files[0], files[0])['compared']['phase'], None)
