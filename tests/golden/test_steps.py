"""`tessera steps` and `leaks` of real and simulated training runs, against their annotations and what was
planted in them, and of runs written here whose loops are known.

Steps must end where the annotations of Optimizer.step do, and cover those of ProfilerStep;
healthy runs have no leaks; 1 KiB a step among thousands of allocations is found, wherever it is
made."""
import collections
import pickle
import random

from runs import CALL, LAYERS, LIBRARY, MAIN, SEQUENTIAL, TORCH, TWO_LINES, Run, at
from support import SNAPSHOTS, cases, expect, load, needs_shared

STEP = 'Optimizer.step'
# Annotated by their authors, and the ranges of Optimizer.step in each.
ANNOTATED = {'train-ctx100-annotated-torch2.6': 3, 'train-ctx200-autocast-annotated-torch2.6': 3,
             'train-ctx1024-torch2.11': 1, 'train-fp32-ctx128': 1, 'train-late-recording': 1,
             'train-lm-small': 1}
# With three steps or more, and nothing that leaks.
HEALTHY = {'train-ctx100-annotated-torch2.6': 3, 'train-ctx200-autocast-annotated-torch2.6': 3,
           'train-steady-torch2.11': 5}
SIMULATED = ((), ('--checkpoint', 'full'), ('--accumulate', '2'), ('--optimizer', 'sgd'),
             ('--dtype', 'autocast-fp16'), ('--fresh-process', '--optimizer', 'adamw-loop'),
             ('--loss', 'chunked:64', '--checkpoint', 'selective'), ('--eval-steps', '2'))
PLANTED_STEPS = 8
LEAK_BYTES = 1024
# How far through a step the leak is made.
PLACES = (0.05, 0.3, 0.55, 0.8, 0.97)


def simulate(tessera, path, steps, words):
    tessera.simulate('gpt2', '--batch', 1, '--seq', 64, '--steps', steps, *words, out=path)


def ranges_of(snapshot, name):
    """The times at which the ranges of this name begin and end."""
    begun, out = None, []
    for note in snapshot['external_annotations']:
        if not note['name'].startswith(name):
            continue
        if note['stage'] == 'START':
            begun = note['time_us']
        elif begun is not None:
            out.append((begun, note['time_us']))
            begun = None
    return out


def check_against_ranges(snapshot, found, name, count):
    """Each whole step holds one range. An optimizer's step ends where its range does: nothing is
    allocated after it."""
    ranges = ranges_of(snapshot, name)
    expect(f'ranges of {name}', len(ranges), count)
    steps = [step for step in found['steps'] if step['whole']]
    expect('whole steps', (found['whole_steps'], len(steps)), (count, count))
    trace = snapshot['device_traces'][found['device']]
    for (begin, end), step in zip(ranges, steps, strict=True):
        inside = [i for i, event in enumerate(trace)
                  if begin <= event['time_us'] <= end and event['action'] == 'alloc']
        if inside and not step['first_event'] <= inside[0] <= inside[-1] <= step['last_event']:
            raise AssertionError(f"{name}: events {inside[0]} to {inside[-1]} are not in the step "
                                 f"{step['first_event']} to {step['last_event']}")
    matched = {entry['name']: (entry['ranges'], entry['matched']) for entry in found['annotations']}
    expect(f'said of {name}', matched[name], (count, count))


@needs_shared
@cases('name', ANNOTATED)
def test_real_steps(tessera, name):
    path = SNAPSHOTS / f'{name}.pickle'
    check_against_ranges(load(path), tessera.device('steps', path), STEP, ANNOTATED[name])


def expect_no_leak(tessera, path, steps):
    found = tessera.device('leaks', path)
    expect('steps', found['whole_steps'], steps)
    expect('an answer', found['answered'], True)
    expect('leaks', (found['leaks'], found['bytes_per_step']), ([], 0))


@needs_shared
@cases('name', HEALTHY)
def test_real_leaks(tessera, name):
    expect_no_leak(tessera, SNAPSHOTS / f'{name}.pickle', HEALTHY[name])


@needs_shared
def test_every_real_file(tessera):
    """No file of theirs has a leak, of however few steps."""
    for path in sorted(SNAPSHOTS.glob('*.pickle')):
        if path.name != 'synthetic-mosaic-sample.pickle':
            expect(path.name, tessera.device('leaks', path)['leaks'], [])


@cases('steps', (10, 50))
@cases('words', SIMULATED, lambda words: ' '.join(words) or 'plain')
def test_simulated(tessera, work, steps, words):
    path = work / 'run.pickle'
    simulate(tessera, path, steps, words)
    expect_no_leak(tessera, path, steps)
    found = tessera.device('steps', path)
    snapshot = load(path) if steps <= 10 else None
    # Without momentum SGD allocates nothing: no event is in its ranges.
    names = ('ProfilerStep',) if 'sgd' in words else (STEP, 'ProfilerStep')
    for name in names if snapshot else ():
        check_against_ranges(snapshot, found, name, steps)
    matched = {entry['name']: (entry['ranges'], entry['matched']) for entry in found['annotations']}
    expect('annotations', matched, dict.fromkeys(names, (steps, steps)))


@cases('evaluates', (1, 2, 3))
def test_evaluations_without_annotations(tessera, work, evaluates):
    """Evaluations between steps change neither their number nor what they do."""
    path = work / 'run.pickle'
    simulate(tessera, path, 7, ('--eval-steps', evaluates))
    snapshot = load(path)
    del snapshot['external_annotations']
    path.write_bytes(pickle.dumps(snapshot, protocol=4))
    found = tessera.device('steps', path)
    expect('whole steps, all', (found['whole_steps'], found['step_count']), (7, 7))
    expect('leaks', tessera.device('leaks', path)['leaks'], [])


def plant(snapshot, steps, place, own_stack):
    """1 KiB in each step that is never freed, in its own segment."""
    trace = snapshot['device_traces'][0]
    base = max(segment['address'] + segment['total_size'] for segment in snapshot['segments'])
    base = (base // (2 << 20) + 64) * (2 << 20)
    # After the same line in each step: the one that is so far through the last.
    first, last = steps[-1]['first_event'], steps[-1]['last_event']
    model = first + int(place * (last - first))
    while trace[model]['action'] != 'alloc':
        model -= 1
    after = {}
    for number, step in enumerate(steps):
        event = step['first_event']
        while (trace[event]['action'], trace[event]['frames']) != ('alloc', trace[model]['frames']):
            event += 1
        after[event] = base + number * LEAK_BYTES
    blocks, out = [], []
    for i, event in enumerate(trace):
        out.append(event)
        if i not in after:
            continue
        frames = event['frames']
        if own_stack:
            frames = [frames[0], {'name': 'remember', 'filename': '/work/log.py', 'line': 7}, *frames[1:]]
        leak = {**event, 'addr': after[i], 'size': LEAK_BYTES, 'frames': frames}
        if not blocks:
            out.append({**leak, 'action': 'segment_alloc', 'addr': base, 'size': 2 << 20})
        out.append(leak)
        blocks.append({'address': after[i], 'size': LEAK_BYTES, 'requested_size': LEAK_BYTES,
                       'state': 'active_allocated', 'frames': frames})
    used = LEAK_BYTES * len(blocks)
    blocks.append({'address': base + used, 'size': (2 << 20) - used, 'requested_size': 0,
                   'state': 'inactive', 'frames': []})
    snapshot['segments'].append({**snapshot['segments'][0], 'address': base, 'total_size': 2 << 20,
                                 'allocated_size': used, 'active_size': used, 'requested_size': used,
                                 'segment_type': 'small', 'blocks': blocks})
    snapshot['device_traces'][0] = out


@cases('place, own_stack, words', [*((place, True, ()) for place in PLACES), *((place, False, ()) for place in PLACES[1:4]),
                                   (0.5, True, ('--checkpoint', 'full'))])
def test_planted(tessera, work, place, own_stack, words):
    """The leak is found, also by the stack of what does not leak, and while checkpointing computes again."""
    path = work / 'run.pickle'
    simulate(tessera, path, PLANTED_STEPS, words)
    snapshot, steps = load(path), tessera.device('steps', path)['steps']
    plant(snapshot, steps, place, own_stack)
    path.write_bytes(pickle.dumps(snapshot, protocol=4))
    found = tessera.device('leaks', path)
    expect('leaks', len(found['leaks']), 1)
    leak = found['leaks'][0]
    expect('the leak', {key: leak[key] for key in ('bytes_per_step', 'bytes', 'allocations', 'since_step')},
           {'bytes_per_step': LEAK_BYTES, 'bytes': LEAK_BYTES * PLANTED_STEPS,
            'allocations': PLANTED_STEPS, 'since_step': 1})
    if own_stack:
        expect('its function', leak['frames'][1]['name'], 'remember')


# ---- Runs written here, in which loops are known ----

def forwards(lines, **words):
    """A call of the model from each of these lines; what one makes is freed after the next."""
    run, old = Run(), []
    for line in lines:
        new = run.forward([*MAIN, at(line)], **words)
        for address in old:
            run.give(address)
        old = new
    return run


def marked(count, caller):
    """Passes that a profiler marks."""
    run = Run()
    for number in range(count):
        run.note(f'ProfilerStep#{number}', 'START')
        for address in run.forward(caller):
            run.give(address)
        run.note(f'ProfilerStep#{number}', 'END')
    return run


def method(passes):
    """A model that is no module, of modules."""
    run = Run()
    for _ in range(passes):
        model = [*MAIN, at(40)]
        made = [run.take([*model, at(5, 'encode', '/work/model.py'), CALL, at(3, 'forward', '/work/embed.py')])]
        for _ in range(LAYERS):
            new = run.layer([*model, at(6, 'encode', '/work/model.py')])
            for address in made:
                run.give(address)
            made = new
        made.append(run.take([*model, at(7, 'encode', '/work/model.py'), CALL,
                              at(9, 'forward', '/work/head.py')]))
        for address in made:
            run.give(address)
    return run


def died(count, **words):
    run = forwards([40] * count, **words)
    run.forward([*MAIN, at(40)], layers=5, dies=True, **words)
    return run


def generation(tokens, requests=1, prompt=True):
    run = Run()
    for _ in range(requests):
        caller, cache = [*MAIN, at(50), at(60, 'generate', '/work/generate.py')], []
        if prompt:
            cache += run.forward([*caller[:-1], at(58, 'generate', '/work/generate.py')])
        for _ in range(tokens):
            old = run.forward(caller)
            run.give(run.take([*caller[:-1], at(61, 'generate', '/work/generate.py')], 4096))
            for address in old:
                run.give(address)
        run.give(run.take([*MAIN, at(51)], 4096))
        for address in cache:
            run.give(address)
    return run


DYNAMO = ('_fn', TORCH + '_dynamo/eval_frame.py', 850)
COMPILED = [('compile_wrapper', TORCH + '_dynamo/eval_frame.py', 736)]
GENERATED = [DYNAMO, ('forward', TORCH + '_functorch/aot_autograd.py', 1130),
             ('__call__', TORCH + '_inductor/output_code.py', 460)]


def compiled(passes, layers=None, forward=True):
    """A model that torch.compile has translated, called from one line; or its layers, each on its own."""
    run, old = Run(), []
    own = [at(10, 'forward', '/work/model.py')] if forward else []
    for _ in range(passes):
        caller, made = [*MAIN, at(40), CALL], []
        if layers:
            caller += [at(12, 'forward', '/work/outer.py'), CALL]
        for _ in range(layers or 1):
            for line in range(100, 160, 7):
                made.append(run.take([*caller, *COMPILED, *own, *GENERATED,
                                      ('call', '/tmp/torchinductor_me/ab/cab.py', line)]))
                if len(made) > 2:
                    run.give(made.pop(0))
        for address in old:
            run.give(address)
        old = made
    return run


def growing(passes):
    """Equal passes, of each of which the program keeps something."""
    run = Run()
    for _ in range(passes):
        for address in run.forward([*MAIN, at(40)], layers=4):
            run.give(address)
        run.take([*MAIN, at(41, 'remember')], 8 * run.unit)
    return run


def training(steps, batches=1, dies=None):
    run = Run()
    for _ in range(steps):
        for _ in range(batches - 1):
            run.backward([*MAIN, at(41)], run.forward([*MAIN, at(40)], layers=4, keeps=True))
        run.train(40, layers=4)
    if dies == 'forward':
        run.forward([*MAIN, at(40)], layers=3, keeps=True, dies=True)
    if dies == 'backward':
        run.backward([*MAIN, at(41)], run.forward([*MAIN, at(40)], layers=4, keeps=True), dies=True)
    return run


def stateful(steps, made_in=0):
    """Training whose optimizer makes its state in one of its steps."""
    run = Run()
    for number in range(steps):
        run.train(40, layers=4)
        for _ in range(40 if number == made_in else 0):
            run.take([*MAIN, at(42), ('step', TORCH + 'optim/adamw.py', 220),
                      ('_init_group', TORCH + 'optim/adamw.py', 150)])
    return run


def replacing(steps):
    """Training whose optimizer makes its state anew in each step, as one written by hand may."""
    run, state = Run(), None
    for _ in range(steps):
        run.train(40, layers=4)
        new = run.take([*MAIN, at(42), ('step', TORCH + 'optim/optimizer.py', 220),
                        at(30, 'step', '/work/adam.py')], 16 * run.unit)
        if state is not None:
            run.give(state)
        state = new
    return run


def two_models(steps, in_turn):
    run = Run()
    for _ in range(steps):
        run.train(40, layers=8)
        if in_turn:
            run.train(50, layers=3, style=TWO_LINES)
    for _ in range(0 if in_turn else steps):
        run.train(50, layers=3)
    return run


# What is run, the word for it, the whole ones, all.
LOOPS = {
    'two forward passes in a loop': (lambda: forwards([40, 40]), 'iteration', 2, 2),
    'two forward passes on two lines': (lambda: forwards([40, 44]), 'iteration', 0, 0),
    'two forward passes that keep all for backward':
        (lambda: forwards([40, 40], keeps=True), 'iteration', 2, 2),
    'a call, and a loop on another line': (lambda: forwards([30, 40, 40, 40]), 'iteration', 3, 3),
    'three passes of a model that calls layers on two lines':
        (lambda: forwards([40] * 3, style=TWO_LINES), 'iteration', 3, 3),
    'three passes of a model around a container':
        (lambda: forwards([40] * 3, style=LIBRARY), 'iteration', 3, 3),
    'two passes of a model that is no module': (lambda: method(2), 'iteration', 2, 2),
    'one pass of a model that is no module': (lambda: method(1), 'iteration', 0, 0),
    'passes that a profiler marks': (lambda: marked(5, [*MAIN, at(40)]), 'iteration', 5, 5),
    'one forward pass': (lambda: forwards([40]), 'iteration', 0, 0),
    'one forward pass that keeps all': (lambda: forwards([40], keeps=True), 'iteration', 0, 0),
    'one pass with layers on two lines': (lambda: forwards([40], style=TWO_LINES), 'iteration', 0, 0),
    'one pass through layers alone': (lambda: forwards([40], ends=False), 'iteration', 0, 0),
    'one pass through a container': (lambda: forwards([40], ends=False, style=SEQUENTIAL), 'iteration', 0, 0),
    'a forward that died': (lambda: died(0), 'iteration', 0, 0),
    'a forward that died, layers on two lines': (lambda: died(0, style=TWO_LINES), 'iteration', 0, 0),
    'the third forward died': (lambda: died(2), 'iteration', 2, 3),
    'twelve tokens': (lambda: generation(12, prompt=False), 'iteration', 12, 12),
    'twelve tokens after a prompt': (lambda: generation(12), 'iteration', 12, 12),
    'three requests of twelve tokens': (lambda: generation(12, 3), 'iteration', 3, 3),
    'a compiled model in a loop': (lambda: compiled(5), 'iteration', 5, 5),
    'a compiled model whose forward is not in its stacks':
        (lambda: compiled(5, forward=False), 'iteration', 5, 5),
    'one call of a compiled model': (lambda: compiled(1), 'iteration', 0, 0),
    'one call of a model whose layers are compiled': (lambda: compiled(1, layers=12), 'iteration', 0, 0),
    'training': (lambda: training(4), 'step', 4, 4),
    'training with micro-batches': (lambda: training(4, 3), 'step', 4, 4),
    'training that died in forward': (lambda: training(3, dies='forward'), 'step', 3, 4),
    'training that died in backward': (lambda: training(3, dies='backward'), 'step', 3, 4),
    'the first step died in backward': (lambda: training(0, dies='backward'), 'step', 0, 1),
    'two models, one after the other': (lambda: two_models(4, False), 'step', 8, 8),
    'two models in turn': (lambda: two_models(4, True), 'step', 4, 4),
}


@cases('title', LOOPS)
def test_loop(tessera, work, title):
    make, unit, whole, count = LOOPS[title]
    path = work / 'loop.pickle'
    make().write(path)
    found = tessera.device('steps', path)
    expect('the word', found['unit'], unit)
    expect('whole ones, all', (found['whole_steps'], found['step_count']), (whole, count))
    leaks = tessera.device('leaks', path)
    expect('leaks compare', (leaks['unit'], leaks['leaks']), (unit, []))


WARM = {'equal passes whose memory grows are no warm-up': (lambda: growing(10), 10, 10),
        'the first step makes the state of the optimizer': (lambda: stateful(6), 5, 6),
        'the fourth step makes the state of the optimizer': (lambda: stateful(12, 3), 8, 12),
        'the first step leaves the state that others replace': (lambda: replacing(6), 5, 6)}


@cases('title', WARM)
def test_warmup(tessera, work, title):
    make, steady, whole = WARM[title]
    path = work / 'warm.pickle'
    make().write(path)
    found = tessera.device('steps', path)
    expect('steady and whole', (found['steady_steps'], found['whole_steps']), (steady, whole))


def test_growth(tessera, work):
    """Steps that grow are reported as growing, not as steady steps with the last one's peak."""
    path = work / 'grows.pickle'
    growing(10).write(path)
    found, leaks = tessera.device('steps', path), tessera.device('leaks', path)
    expect('growth', (found['steady']['growth_bytes'], found['loops'][0]['steady']['growth_bytes']), (leaks['bytes_per_step'],) * 2)
    peaks = [step['peak_bytes'] for step in found['steps']]
    expect('the text', f"memory grows by {leaks['bytes_per_step'] >> 10}.0 KiB an iteration (see 'tessera leaks'): steady ones peak at "
           f'{peaks[0] >> 10}.0 KiB to {peaks[-1] / 2 ** 20:.2f} MiB' in ' '.join(tessera.output('steps', path).split()), True)
    training(10).write(path)
    expect('no growth', tessera.device('steps', path)['steady']['growth_bytes'], 0)
    expect('not in the text', 'grows' in tessera.output('steps', path), False)


REPEATED = {'passes': lambda: forwards([40] * 6), 'passes that keep all': lambda: forwards([40] * 6, keeps=True),
            'passes of which the last died': lambda: died(4), 'tokens': lambda: generation(8, prompt=False),
            'a compiled model': lambda: compiled(5)}


@cases('title', REPEATED)
def test_categories(tessera, work, title):
    """What a line makes is for the same in every iteration."""
    path = work / 'loop.pickle'
    REPEATED[title]().write(path)
    steps = tessera.device('steps', path)['steps']
    found = [collections.Counter() for _ in steps]
    for row in tessera.allocations(path):
        for number, step in enumerate(steps):
            if step['whole'] and step['first_event'] <= int(row['birth_event']) <= step['last_event']:
                found[number][row['allocated_at'], row['category']] += 1
    whole = [count for count, step in zip(found, steps, strict=True) if step['whole']]
    expect('iterations', len(whole) > 1, True)
    for count in whole:
        expect('categories', count, whole[0])


# ---- Programs of several loops ----

class Program:
    """A program of loops one after the other, with what is true of it."""

    def __init__(self):
        self.run, self.loops, self.old = Run(), {}, []

    def drop(self):
        for address in self.old:
            self.run.give(address)
        self.old = []

    def round(self, line, trains, layers, unit=64 << 10, keeps=0, style=None):
        """One round of the loop at a line; `keeps`: bytes that nothing frees."""
        run, begin = self.run, len(self.run.trace)
        run.unit = unit
        words = {'style': style} if style else {}
        if trains:
            run.train(line, layers=layers, **words)
        else:
            new = run.forward([*MAIN, at(line)], layers=layers, **words)
            self.drop()
            self.old = new
        if keeps:
            run.take([*MAIN, at(line + 3, 'remember')], keeps)
        self.loops.setdefault(line, []).append((begin, len(run.trace) - 1))

    def loop(self, line, count, trains, layers, **words):
        for _ in range(count):
            self.round(line, trains, layers, **words)
        if not trains:
            self.drop()

    def once(self, megabytes):
        self.run.give(self.run.take([*MAIN, at(80, 'once')], megabytes << 20))

    def peak(self):
        """The event of the peak, and the line and round that it is in."""
        live = highest = 0
        event = -1
        for number, entry in enumerate(self.run.trace):
            live += {'alloc': 1, 'free_requested': -1}.get(entry['action'], 0) * entry['size']
            if live > highest:
                highest, event = live, number
        for line, rounds in self.loops.items():
            for number, (first, last) in enumerate(rounds, 1):
                if first <= event <= last:
                    return event, highest, line, number
        return event, highest, None, None


def look(tessera, program, path):
    program.run.write(path)
    return tessera.device('steps', path), tessera.device('leaks', path)


def line_of(loop):
    return loop['frame'] and loop['frame']['line']


def small_and_large():
    """Twenty rounds of a small model on one line, and ten of a larger one on another."""
    program = Program()
    program.loop(30, 20, False, 8)
    program.loop(40, 10, False, 20, unit=1 << 20, style=TWO_LINES)
    return program


def forty_and_twenty():
    program = Program()
    program.loop(30, 40, True, 4)
    program.loop(50, 20, True, 6)
    return program


def changed():
    """One line, whose model is replaced."""
    program = Program()
    program.loop(30, 40, True, 4)
    program.loop(30, 20, True, 6, style=TWO_LINES)
    return program


def epochs():
    """Training with an evaluation after each epoch, which keeps what it predicts."""
    program = Program()
    for _ in range(3):
        program.loop(30, 10, True, 4, keeps=1 << 10)
        program.loop(60, 5, False, 4, keeps=1 << 20)
    return program


def elsewhere():
    program = Program()
    program.loop(40, 5, False, 8)
    program.once(500)
    return program


def late_leak():
    program = Program()
    program.loop(30, 40, True, 4)
    program.loop(50, 20, True, 6, keeps=1 << 20)
    return program


# The lines of its loops, the rounds of each, the steady ones, what each grows by in a round.
SEVERAL = {'a small loop and a large one': (small_and_large, [(30, 20, 19, 0), (40, 10, 9, 0)]),
           'forty steps, and twenty others': (forty_and_twenty, [(30, 40, 40, 0), (50, 20, 20, 0)]),
           'one line that changes': (changed, [(30, 40, 40, 0), (30, 20, 20, 0)]),
           'epochs with evaluations': (epochs, [(30, 30, 29, 1 << 10), (60, 15, 15, 1 << 20)]),
           'a peak elsewhere': (elsewhere, [(40, 5, 4, 0)]),
           'a leak in the second loop': (late_leak, [(30, 40, 40, 0), (50, 20, 20, 1 << 20)])}


@cases('title', SEVERAL)
def test_several_loops(tessera, work, title):
    make, wanted = SEVERAL[title]
    program = make()
    steps, leaks = look(tessera, program, work / 'several.pickle')
    found = [(line_of(loop), loop['whole_steps'], loop['steady_steps'], of_leaks['bytes_per_step'])
             for loop, of_leaks in zip(steps['loops'], leaks['loops'], strict=True)]
    expect('line, rounds, steady ones, growth', found, wanted)
    event, highest, line, _ = program.peak()
    where = steps['peak']['loop']
    expect('the peak of the file', (steps['peak']['event'], steps['peak']['allocated_bytes'],
                                    where and line_of(steps['loops'][where - 1])), (event, highest, line))


@cases('habit, growth', [('keeps', 8 << 20), ('keeps the last', 0), ('keeps two', 0), ('none', 0)])
@cases('tail', [0, 3])
def test_rounds_of_loops(tessera, work, habit, growth, tail):
    """What is kept of each epoch, outside of its loops, grows from round to round. `tail`: steps of an epoch that is not whole."""
    program, kept = Program(), []
    for _ in range(4):
        program.loop(30, 6, True, 4, keeps=1 << 10)
        program.loop(60, 3, False, 4)
        if habit != 'none':
            kept.append(program.run.take([*MAIN, at(70, 'remember')], 8 << 20))
        if len(kept) > {'keeps the last': 1, 'keeps two': 2}.get(habit, 4):
            program.run.give(kept.pop(0))
    program.loop(30, tail, True, 4, keeps=1 << 10)
    _, leaks = look(tessera, program, work / 'rounds.pickle')
    found = {leak['frames'][0]['line']: leak['bytes_per_step'] for leak in leaks['leaks']}
    expect('leaks', (set(found), found.get(70, 0)), ({33, 70} if growth else {33}, growth))
    rounds = [loop for loop in leaks['loops'] if loop['unit'] == 'round']
    expect('rounds', [(loop['bytes_per_step'], loop['whole_steps']) for loop in rounds],
           [(growth, 4)] if growth else [])
    text = ' '.join(tessera.output('leaks', work / 'rounds.pickle').split())
    expect('the text', 'memory grows by 8.00 MiB a round, from 1 place, over 4 rounds of all loops' in text, growth > 0)


def random_program(seed):
    """A program, and of each loop in it: its rounds, whether the first makes more, what each keeps."""
    draw, program, truth = random.Random(seed), Program(), {}
    trains = draw.random() < 0.5
    blocks = []
    for number in range(draw.randint(1, 4)):
        line = 30 + 10 * number
        is_training = trains and (number == 0 or draw.random() < 0.5)
        keeps = draw.choice((0, 0, 1 << 20))
        blocks.append((line, draw.randint(5, 12), is_training, draw.randint(3, 9), keeps))
    for _ in range(draw.choice((1, 1, 3)) if trains else 1):
        for line, count, is_training, layers, keeps in blocks:
            if draw.random() < 0.2:
                program.once(draw.randint(1, 40))
            program.loop(line, count, is_training, layers, keeps=keeps)
            was = truth.get(line, (0, keeps))
            truth[line] = (was[0] + count, keeps)
    return program, truth


@cases('seed', range(40))
def test_random_programs(tessera, work, seed):
    """Whatever loops a program has: each is listed with its line and rounds, judged by itself, and the peak of
    the file is where it is."""
    program, truth = random_program(seed)
    path = work / 'random.pickle'
    steps, leaks = look(tessera, program, path)
    expect('loops', {line_of(loop): loop['step_count'] for loop in steps['loops']},
           {line: count for line, (count, _) in truth.items()})
    grows = {line_of(loop): loop['bytes_per_step'] > 0 for loop in leaks['loops']}
    expect('growth', grows, {line: keeps > 0 for line, (_, keeps) in truth.items()})
    event, highest, line, number = program.peak()
    where = steps['peak']['loop']
    loop = steps['loops'][where - 1] if where else None
    if loop and not line and loop['first_event'] < event < loop['last_event']:
        line = line_of(loop)  # between two rounds, to which it is then counted
    expect('the peak', (steps['peak']['event'], steps['peak']['allocated_bytes'], loop and line_of(loop)),
           (event, highest, line))
    if loop and number and not loop['listed']:
        expect('its round', steps['peak']['step'], number)
    for loop in steps['loops']:
        first, last = program.loops[line_of(loop)][0][0], program.loops[line_of(loop)][-1][1]
        if not (abs(loop['first_event'] - first) <= 8 and abs(loop['last_event'] - last) <= 8):
            raise AssertionError(f"loop at {line_of(loop)}: events {loop['first_event']} to {loop['last_event']}, "
                                 f'not {first} to {last}')
