"""What `steps`, `leaks` and `peak` say of random programs is true.

Nothing is expected but what the program itself wrote down while it ran: told.py's, whose loops, single calls, leaks and peak
are known, and simulated training runs of random models and options, of which simulate's own answer is the truth. Each
statement is compared: the line and the rounds of every loop and of no other, the peak of each, whether it has a warm-up, where the peak
of the file is, what grows by how much in a round, and what the peak consists of. Half of the simulated runs have lost their annotations.

Not compared is what other tests compare, or what the words do not claim: a step's forward pass may be that of an evaluation, whose
tensors are temporary; a table that is tied may be taken for optimizer state; and without an optimizer that shows, each backward
pass counts as a step, which `steps` says.

    python3 tests/golden/test_told.py PROGRAM FIRST PAST [KIND]

prints what is false for a range of seeds, of both kinds or of one."""
import collections
import json
import os
import pathlib
import pickle
import random
import sys
import tempfile

from support import Tessera, cases, load
from told import random_program

SEEDS = range(1, 401) if os.environ.get('TESSERA_WHOLE') else [*range(1, 41), 4038]
OPTIONS = (['--accumulate', 2], ['--checkpoint', 'full'], ['--optimizer', 'sgd'], ['--optimizer', 'adamw-loop'],
           ['--dtype', 'autocast-bf16'], ['--eval-steps', 1], ['--eval-steps', 2], ['--fresh-process'], ['--micro-batch', 1],
           ['--loss', 'chunked:32'])
EVALUATION = '## evaluation ##'


def categories(peak):
    sums = collections.Counter()
    for stack in peak['stacks']:
        sums.update(stack['categories'])
    return sums


def line_of(loop):
    return loop['frame'] and loop['frame']['line']


class Statements:
    """What was said that is not so."""

    def __init__(self):
        self.false = []

    def compare(self, what, said, true):
        if said != true:
            self.false.append(f'{what}: {said}, in truth {true}')


# ---- Programs of told.py ----

def is_at(truth, line):
    """Whether a line is one of a loop's, or of its function's."""
    return line is not None and any(truth['line'] - 1 <= own < truth['line'] + 5 for own in (line, line - 100))


def is_evaluation(told, loop):
    """Whether a loop is one of evaluations in the iterations of another."""
    return not loop['listed'] and loop['step_count'] in (truth['evaluates'] for truth in told.loops if is_at(truth, line_of(loop)))


def round_of(steps, loop, number):
    """Which round of its loop a step is, from 0."""
    if not loop['listed']:
        return number - 1
    return sum(step['loop'] == loop['loop'] for step in steps['steps'][:number - 1])


def check_loop(say, steps, said, truth, peaks):
    what = f'loop at {truth["line"]}'
    say.compare(f'{what}: rounds', (said['step_count'], said['whole_steps']), (truth['iterations'],) * 2)
    say.compare(f'{what}: peak', said['peak_bytes'], max(peaks))
    say.compare(f'{what}: round of its peak', round_of(steps, said, said['peak_step']), peaks.index(max(peaks)))
    warm = said['whole_steps'] - said['steady_steps']
    if truth['is_first_training'] and not warm:
        say.false.append(f'{what}: no warm-up, in truth the first round makes the state of the optimizer')
    if not truth['is_first_training'] and warm > bool(truth['habit']):
        say.false.append(f'{what}: a warm-up of {warm}, in truth all rounds do the same')
    say.compare(f'{what}: peak of steady rounds', said['steady'] and said['steady']['peak_bytes'], max(peaks[warm:]))
    if truth['runs'] == 1 or said['steady']['growth_bytes']:
        grows = truth['leak_bytes'] if said['steady_steps'] > 3 and truth['leak_bytes'] * (said['steady_steps'] - 2) > max(peaks) / 100 else 0
        say.compare(f'{what}: grows', said['steady']['growth_bytes'], grows)


def check_where(say, steps, told):
    peak = steps['peak']
    say.compare('peak of the file', (peak['event'], peak['allocated_bytes']), (told.peak['event'], told.peak['bytes']))
    loop = peak['loop'] and steps['loops'][peak['loop'] - 1]
    said = loop and (line_of(loop), round_of(steps, loop, peak['step']))
    if told.peak['within'] is None:
        say.compare('peak of the file is in', said, None)
        return
    truth = told.loops[told.peak['within'][0]]
    if loop and told.peak['evaluates'] and is_evaluation(told, loop) and is_at(truth, said[0]):
        return
    if not (said and is_at(truth, said[0]) and said[1] == told.peak['within'][1]):
        say.false.append(f'peak of the file is in {said}, in truth in {truth["line"], told.peak["within"][1]}')


def check_leaks(say, leaks, told):
    said = {leak['frames'][0]['line']: (leak['bytes_per_step'], leak['bytes'], leak['allocations']) for leak in leaks['leaks']}
    say.compare('leaks', said, {truth['leak_line']: (truth['leak_bytes'], truth['leak_bytes'] * truth['iterations'], truth['iterations'])
                                for truth in told.loops if truth['leak_bytes']})


def told_falsely(tessera, work, seed):
    told, path, say = random_program(seed), work / 'told.pickle', Statements()
    told.write(path)
    steps = tessera.device('steps', '-v', path)
    for said in steps['loops']:
        if not any(is_at(truth, line_of(said)) for truth in told.loops):
            say.false.append(f'loop at {line_of(said)} of {said["step_count"]}, in truth none')
    for truth in told.loops:
        found = [said for said in steps['loops'] if is_at(truth, line_of(said)) and not is_evaluation(told, said)]
        say.compare(f'loop at {truth["line"]} is listed', len(found), 1)
        for said in found[:1]:
            is_apart = any(is_evaluation(told, loop) and is_at(truth, line_of(loop)) for loop in steps['loops'])
            check_loop(say, steps, said, truth, truth['trained' if is_apart else 'peaks'])
    check_where(say, steps, told)
    check_leaks(say, tessera.device('leaks', path), told)
    peak = tessera.device('peak', '--top', 0, path)
    say.compare('event and bytes of peak', (peak['peak']['event'], peak['peak']['allocated_bytes']), (told.peak['event'], told.peak['bytes']))
    check_advice(say, peak['findings'], told)
    sums = categories(peak)
    for kind in ('parameter', 'gradient', 'optimizer_state')[:3 if told.has_state else 1]:  # without, gradients can't be told apart
        say.compare(f'peak: {kind}', sums[kind], told.peak['kinds'].get(kind, 0))
    return say.false


def check_advice(say, findings, told):
    """What advice would save, and of what it speaks."""
    rules = {finding['rule']: finding for finding in findings}
    for rule, kind in (('zero_grad', 'gradient'), ('held_outputs', 'output')):
        if rule in rules and told.has_state:
            say.compare(f'{rule} saves', rules[rule]['saved_bytes'], told.peak['bytes'] - told.peak_without(kind))
    if 'leak' in rules:
        say.compare('leaked at the peak', rules['leak']['bytes'], told.peak['kinds'].get('leaked', 0))
    does_train = any(loop['what'] == 'train' for loop in told.loops)
    for rule in ('old_gradients', 'two_forwards', *(['no_grad'] if does_train else [])):
        if rule in rules:
            say.false.append(f'advice {rule}, in truth there is none of that')


# ---- Simulated training ----

def random_model(draw):
    if draw.random() < .5:
        return {'model_type': 'gpt2', 'n_layer': draw.randrange(2, 6), 'n_embd': draw.choice((64, 128, 192)), 'n_head': 4,
                'vocab_size': draw.choice((500, 3000)), 'n_positions': 256}
    return {'model_type': 'llama', 'num_hidden_layers': draw.randrange(2, 6), 'hidden_size': draw.choice((64, 128)),
            'num_attention_heads': 4, 'intermediate_size': draw.choice((128, 344)), 'vocab_size': draw.choice((500, 3000))}


def evaluations(snapshot):
    """The times between which it evaluates."""
    times = [note['time_us'] for note in snapshot['external_annotations'] if note['name'] == EVALUATION]
    return list(zip(times[::2], times[1::2], strict=True))


def check_phases(say, steps, truth, is_annotated):
    """Those of which simulate names a steady step. `forward` may be an evaluation's; without annotations, what lies
    between two forward passes counts to them too, so it is not compared."""
    said = {phase['phase']: phase['peak_bytes'] for phase in steps['phases']}
    true = {phase['name']: phase for phase in truth['phases']}
    for name in ('forward', 'backward', 'optimizer'):
        if name not in said or name not in true or true[name]['step'] <= steps['step_count'] - steps['steady_steps']:
            continue
        possible = [true[name]['allocated_bytes']]
        if name == 'forward' and 'evaluation' in true:
            possible.append(true['evaluation']['allocated_bytes'])
            if not is_annotated:
                continue
        if said[name] not in possible:
            say.false.append(f'{name} peaks at {said[name]}, in truth at {possible}')


def check_peak_step(say, steps, truth):
    peak, true = steps['peak'], truth['peak']
    loop = peak['loop'] and steps['loops'][peak['loop'] - 1]
    phase = 'forward' if true['phase'] == 'evaluation' else true['phase']
    say.compare('phase of the peak', peak['phase'], phase)
    if loop and loop['listed']:
        say.compare('step of the peak', peak['step'], true['step'])
    elif true['phase'] != 'evaluation':
        say.false.append(f'peak of the file is outside of the steps, in truth in {true["step"]}')


def simulated_falsely(tessera, work, seed):
    draw, config, path, say = random.Random(seed), work / 'config.json', work / 'simulated.pickle', Statements()
    config.write_text(json.dumps(random_model(draw)))
    count = draw.randrange(3, 9)
    words = ['--batch', draw.choice((2, 4)), '--seq', draw.choice((32, 64, 128)), '--steps', count]
    for option in OPTIONS:
        if draw.random() < .25:
            words += option
    truth = tessera.device('simulate', config, *words, '-o', path)
    snapshot = load(path)
    evaluated = evaluations(snapshot)
    is_annotated = draw.random() < .5
    if not is_annotated:
        del snapshot['external_annotations']
        path.write_bytes(pickle.dumps(snapshot, protocol=4))
    steps = tessera.device('steps', path)
    if steps['counts_backwards']:  # which it says
        return []
    say.compare('steps, whole ones', (steps['step_count'], steps['whole_steps']), (count, count))
    for annotations in steps['annotations']:
        say.compare(annotations['name'], annotations['matched'], annotations['ranges'])
    for loop in steps['loops']:
        first = snapshot['device_traces'][0][loop['first_event']]['time_us']
        if not loop['listed'] and not any(begin <= first <= end for begin, end in evaluated):
            say.false.append(f'loop at {line_of(loop)}, in truth none')
    say.compare('loops of steps', sum(loop['listed'] for loop in steps['loops']), 1)
    check_peak_step(say, steps, truth)
    check_phases(say, steps, truth, is_annotated)
    say.compare('leaks', tessera.device('leaks', path)['leaks'], [])
    peak = tessera.device('peak', '--top', 0, path)
    for key in ('event', 'allocated_bytes'):
        say.compare(f'{key} of the peak', peak['peak'][key], truth['peak'][key])
    sums, true = categories(peak), {row['name']: row['bytes'] for row in truth['categories']}
    say.compare('peak: gradient', sums['gradient'], true.get('gradient', 0))
    return [f'{" ".join(map(str, words))}: {text}' for text in say.false]


KINDS = {'told': told_falsely, 'simulated': simulated_falsely}


@cases('seed', SEEDS)
@cases('kind', KINDS)
def test_nothing_is_false(tessera, work, kind, seed):
    false = KINDS[kind](tessera, work, seed)
    if false:
        raise AssertionError('\n'.join(false))


def main():
    tessera, count = Tessera(sys.argv[1]), 0
    with tempfile.TemporaryDirectory() as folder:
        for kind in sys.argv[4:] or KINDS:
            for seed in range(int(sys.argv[2]), int(sys.argv[3])):
                false = KINDS[kind](tessera, pathlib.Path(folder), seed)
                count += bool(false)
                for text in false:
                    print(f'{kind} {seed}: {text}')
    print(f'{count} programs of which something false was said')
    sys.exit(count > 0)


if __name__ == '__main__':
    main()
