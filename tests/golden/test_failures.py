"""Where a run ran out of memory: `why`, `steps` and `leaks` must have the same step and phase, and of a simulated
run those that the simulation had.

Each run dies at several capacities, once with the annotations that a program writes and once without. With
them, the step is known; without them it may be unknown, and must never be wrong. Neither may the three differ
about real snapshots."""
import pickle
import re

from runs import CALL, MAIN, TORCH, Run, at
from support import SNAPSHOTS, cases, expect, load, needs_shared

RUNS = (('gpt2', '--batch', '4'), ('gpt2', '--batch', '2', '--checkpoint', 'full'),
        ('gpt2', '--batch', '2', '--accumulate', '3'),
        ('gpt2', '--batch', '2', '--accumulate', '2', '--optimizer', 'adamw-fused'),
        ('gpt2', '--batch', '2', '--optimizer', 'sgd'),
        ('gpt2', '--batch', '2', '--optimizer', 'sgd', '--accumulate', '2'),
        ('gpt2', '--batch', '1', '--optimizer', 'adamw-loop', '--seq', '128'),
        ('gpt2', '--batch', '2', '--loss', 'chunked:64', '--dtype', 'autocast-bf16'),
        ('llama-3.2-1b', '--dtype', 'bf16', '--seq', '256'))
SHARES = (0.4, 0.6, 0.8, 0.9, 0.97)


def simulate(tessera, path, words, steps, capacity):
    limit = ('--capacity', f'{capacity >> 20}MiB') if capacity else ()
    return tessera.device('simulate', '-q', *words, '--steps', steps, *limit, '-o', path)


def same_everywhere(tessera, path):
    """What the three have in common: the step and the phase, both None if the run did not die."""
    steps, leaks, why = (tessera.device(command, '-q', path) for command in ('steps', 'leaks', 'why'))
    stop = steps['out_of_memory']
    expect('leaks', leaks['out_of_memory'], stop)
    died = [oom for oom in why['ooms'] if not oom['recovered']]
    expect('it died', stop is not None, bool(died))
    if not stop:
        return steps, None, None
    outlook = why['outlook']
    expect('the event', stop['event'], why['moment']['event'])
    expect('allocated', stop['allocated_bytes'], why['moment']['totals']['allocated_bytes'])
    expect('step and phase', (stop['step'], stop['phase']), (outlook['step'], outlook['phase']))
    expect('the word for it', steps['unit'], outlook['unit'])
    if stop['step']:
        step = steps['steps'][stop['step'] - 1]
        expect('its number', step['step'], stop['step'])
        expect('it is in it', step['first_event'] <= stop['event'] <= step['last_event'], True)
        expect('it is whole', step['whole'], False)
    return steps, stop['step'], stop['phase']


def text_agrees(tessera, path, step, phase):
    words = {'forward': 'the forward pass', 'backward': 'the backward pass', 'optimizer': 'the optimizer',
             'recompute': 'the recomputation'}
    where = f'in {words[phase]} of step {step}' if step else f'in {words[phase]}'
    for command, before in (('why', 'out of memory '), ('steps', 'Memory ran out '), ('leaks', 'Memory ran out ')):
        text = tessera.output(command, '-q', path)
        expect(f'{command} names it', before + where in text, True)
        advice = re.findall('Checkpoint the block|Recomputing each block', text)
        expect(f'{command} says it once', len(advice) <= 1, True)
        expect(f'{command} claims a step', ' of step ' in text.split(before, 1)[1][:40], bool(step))


@cases('words', RUNS)
def test_simulated(tessera, work, words):
    path = work / 'died.pickle'
    peak = simulate(tessera, path, words, 3, 0)['peak_reserved_bytes']
    same_everywhere(tessera, path)
    for share in SHARES:
        truth = simulate(tessera, path, words, 4, int(peak * share))
        died = truth.get('out_of_memory')
        steps, step, phase = same_everywhere(tessera, path)
        if not died:  # it gets by with less
            expect(f'{share} of it: no failure', step, None)
            continue
        expect(f'{share} of it: step and phase', (step, phase), (died['step'], died['phase']))
        expect(f'{share} of it: whole steps', steps['whole_steps'], truth['steps'])
        text_agrees(tessera, path, step, phase)
        snapshot = load(path)
        snapshot['external_annotations'] = []
        path.write_bytes(pickle.dumps(snapshot, protocol=4))
        _, step, phase = same_everywhere(tessera, path)
        expect(f'{share} of it, without annotations: the phase', phase, died['phase'])
        expect(f'{share} of it, without annotations: the step', step in (None, died['step']), True)
        text_agrees(tessera, path, step, phase)


@needs_shared
def test_real(tessera):
    for path in sorted(SNAPSHOTS.glob('*.pickle')):
        same_everywhere(tessera, path)


# ---- Runs written here ----

def steps_of(run, count):
    for _ in range(count):
        run.train(40, layers=4)


def marked(count, ends, dies):
    """Training whose steps a profiler marks; the last mark has no END unless `ends`."""
    run = Run()
    for number in range(count):
        run.note(f'ProfilerStep#{number}', 'START')
        steps_of(run, 1)
        run.note(f'ProfilerStep#{number}', 'END')
    run.note(f'ProfilerStep#{count}', 'START')
    dies(run)
    if ends:
        run.note(f'ProfilerStep#{count}', 'END')
    return run


def one_mark(count, ends, dies):
    """One mark around the whole run: the program never says that a step is over."""
    run = Run()
    run.note('ProfilerStep#0', 'START')
    steps_of(run, count)
    dies(run)
    if ends:
        run.note('ProfilerStep#0', 'END')
    return run


def forward(run):
    run.forward([*MAIN, at(40)], layers=3, keeps=True, dies=True)


def first_request(run):
    run.out_of_memory([*MAIN, at(40), CALL, at(10, 'forward', '/work/model.py')])


def loading(run):
    run.out_of_memory([*MAIN, at(39), ('default_collate', TORCH + 'utils/data/_utils/collate.py', 398)])


def after_it(run):
    run.out_of_memory([*MAIN, at(60, 'plot', '/work/plots.py')])


def optimizer(run):
    run.backward([*MAIN, at(41)], run.forward([*MAIN, at(40)], layers=4, keeps=True))
    run.out_of_memory([*MAIN, at(42), ('step', TORCH + 'optim/adamw.py', 220),
                       ('_single_tensor_adamw', TORCH + 'optim/adamw.py', 300)])


def plain(count, dies):
    run = Run()
    steps_of(run, count)
    dies(run)
    return run


def passes(count, dies):
    run = Run()
    for _ in range(count):
        for address in run.forward([*MAIN, at(40)]):
            run.give(address)
    dies(run)
    return run


def recovered(count):
    """A forward that fails, and is run again with less."""
    run = Run()
    steps_of(run, count)
    forward(run)
    steps_of(run, 2)
    return run


def dying_pass(run):
    run.forward([*MAIN, at(40)], layers=5, dies=True)


# What is run; then the whole steps, and the step and the phase in which it died.
DEATHS = {
    'a forward in step 3': (lambda: plain(2, forward), 2, 3, 'forward'),
    'the first request of step 3': (lambda: plain(2, first_request), 2, 3, 'forward'),
    'the loading of batch 3': (lambda: plain(2, loading), 2, 3, 'data'),
    'the optimizer of step 3': (lambda: plain(2, optimizer), 2, 3, 'optimizer'),
    'the optimizer of step 1': (lambda: plain(0, optimizer), 0, 1, 'optimizer'),
    'after step 2': (lambda: plain(2, after_it), 2, None, 'unknown'),
    'step 3 with a mark that never ends': (lambda: marked(2, False, forward), 2, 3, 'forward'),
    'step 3 with a mark that the exception ended': (lambda: marked(2, True, forward), 2, 3, 'forward'),
    'step 1 with a mark that never ends': (lambda: marked(0, False, forward), 0, 1, 'forward'),
    'the first request of a marked step': (lambda: marked(2, False, first_request), 2, 3, 'forward'),
    'one mark around all steps': (lambda: one_mark(2, False, forward), 2, 3, 'forward'),
    'one mark around all steps that the exception ended': (lambda: one_mark(2, True, forward), 2, 3, 'forward'),
    'one mark around the first two steps': (lambda: one_mark(1, False, forward), 1, 2, 'forward'),
    'a forward of which nothing is known': (lambda: plain(0, forward), 0, None, 'forward'),
    'a third pass': (lambda: passes(2, dying_pass), 2, 3, 'forward'),
    'the first request of a third pass': (lambda: passes(2, first_request), 2, 3, 'forward'),
    'after two passes': (lambda: passes(2, after_it), 2, None, 'unknown'),
}


@cases('title', DEATHS)
def test_death(tessera, work, title):
    make, whole, step, phase = DEATHS[title]
    path = work / 'death.pickle'
    make().write(path)
    steps, got, at_phase = same_everywhere(tessera, path)
    expect('whole steps', steps['whole_steps'], whole)
    expect('step and phase', (got, at_phase), (step, phase))


def test_recovered(tessera, work):
    path = work / 'recovered.pickle'
    recovered(2).write(path)
    steps, step, phase = same_everywhere(tessera, path)
    expect('it went on', (step, phase, steps['whole_steps'] >= 3), (None, None, True))
