#!/usr/bin/env python3
"""findings.py --tessera PATH --work FOLDER: what peak advises, as TAP.

Each rule is asked of programs that have the habit it looks for, and of programs that look similar and do
not have it: there it must be silent. `saved_bytes` of a checkpoint is compared with a simulated run that
checkpoints.
"""
import argparse
import json
import pathlib
import subprocess
import sys

from runs import CALL, MAIN, TORCH, Run, at
from support import expect, run_tests

UNIT = 4 << 20
ENGINE = ('torch::autograd::Engine::evaluate_function(torch::autograd::Node*)', '??', 0)
GRADIENT = ('torch::autograd::AccumulateGrad::apply(std::vector<at::Tensor>&&)', '??', 0)


def ask(tessera, path, *words):
    done = subprocess.run([tessera, 'peak', *words, path], capture_output=True, check=True)
    return done.stdout


def findings(tessera, path):
    found = json.loads(ask(tessera, path, '--json'))['devices'][0]['findings']
    expect('ordered', found, sorted(found, key=lambda f: (f['rule'] == 'cached', -f['saved_bytes'])))
    return {finding['rule']: finding for finding in found}


# ---- Programs ----

def forwards(count, held=1, keeps=True, layers=26):
    """Calls of a model, of which `held` are alive at a time, under autograd if it `keeps`."""
    run, alive = Run(UNIT), []
    for _ in range(count):
        while len(alive) >= held:
            for address in alive.pop(0):
                run.give(address)
        alive.append(run.forward([*MAIN, at(40)], layers, keeps=keeps))
    for made in alive:
        for address in made:
            run.give(address)
    return run


def hidden_states(count):
    """Without autograd, but each layer's output is kept until the call is over."""
    run = Run(UNIT)
    for _ in range(count):
        made = []
        for _ in range(26):
            new = run.layer([*MAIN, at(40), CALL, at(12, 'forward', '/work/model.py')])
            for address in new[:-1]:
                run.give(address)
            made.append(new[-1])
        for address in made:
            run.give(address)
    return run


def unfinished():
    """The recording ends with the first forward pass: a backward pass may follow."""
    run = Run(UNIT)
    run.forward([*MAIN, at(40)], keeps=True)
    return run


def died():
    run = Run(UNIT)
    run.forward([*MAIN, at(40)], keeps=True, dies=True)
    return run


def training(steps=3, layers=12, kept_of_last=0):
    """Of each step's graph, the part from `kept_of_last` layers on is freed by its backward pass."""
    run, earlier = Run(UNIT), []
    for _ in range(steps):
        made = run.forward([*MAIN, at(40)], layers, keeps=True)
        cut = 3 * kept_of_last
        run.backward([*MAIN, at(41)], made[cut:])
        run.optimize([*MAIN, at(42)])
        for address in earlier:
            run.give(address)
        earlier = made[:cut]
    return run


def kept_outputs(steps=4):
    """Each step's outputs, a few large tensors, live until those of the next step are made."""
    run, outputs = Run(UNIT), []
    for _ in range(steps):
        made = run.forward([*MAIN, at(40)], 12, keeps=True)
        new = [run.take([*MAIN, at(40), CALL, at(20, 'forward', '/work/model.py')], 20 * UNIT)]
        for address in outputs:
            run.give(address)
        outputs = new
        run.backward([*MAIN, at(41)], made)
        run.optimize([*MAIN, at(42)])
    return run


def retrained(keeps_gradients, makes_model=True, is_average=False):
    """A model is built, trained for a step, and dropped; and another one trained."""
    run = Run(UNIT)

    def build(line, count=6):
        stack = [*MAIN, at(line), ('__init__', TORCH + 'nn/modules/linear.py', 106)]
        return [run.take(stack, 4 * UNIT) for _ in range(count)]

    def step(line, gradients):
        made = run.forward([*MAIN, at(line)], 4, keeps=True)
        for address in reversed(made):
            if len(gradients) < 6:
                gradients.append(run.take([ENGINE, GRADIENT], 4 * UNIT))
            run.give(run.take([ENGINE, ('at::_ops::mm::call', '??', 0)]))
            run.give(address)
        run.optimize([*MAIN, at(line + 2)])

    model, gradients = build(30), []
    step(40, gradients)
    if not keeps_gradients:
        for address in gradients:
            run.give(address)
        gradients = []
    if is_average:
        build(35)
    elif makes_model:
        for address in model:
            run.give(address)
        build(50)
        gradients = []
    for _ in range(2):
        step(60, gradients)
    return run


def caching(spare):
    run = training()
    run.spare_bytes = spare
    return run


# The program, the rules that apply to it, and a number that one of them must have.
CASES = {
    'calls of a model under autograd, one after the other': (lambda: forwards(3), {'no_grad'}, None),
    'calls of a model without autograd': (lambda: forwards(3, keeps=False), set(), None),
    'calls that return all hidden states': (lambda: hidden_states(3), set(), None),
    'a recording that ends with the first call': (unfinished, {'checkpoint'}, ('checkpoint', 26)),
    'a first call that runs out of memory': (died, {'checkpoint'}, None),
    'a call whose outputs live until the next is done':
        (lambda: forwards(4, held=2), {'no_grad', 'two_forwards'}, ('two_forwards', 2)),
    'a call whose outputs live until the next is done, without autograd':
        (lambda: forwards(4, held=2, keeps=False), set(), None),
    'training': (training, {'checkpoint'}, ('checkpoint', 12)),
    'training of two layers': (lambda: training(layers=2), set(), None),
    'training that holds on to the graph of the step before':
        (lambda: training(4, kept_of_last=8), {'checkpoint', 'two_forwards'}, ('two_forwards', 2)),
    'training that holds on to outputs': (kept_outputs, {'checkpoint'}, None),
    'another model, gradients kept': (lambda: retrained(True), {'old_gradients'}, ('old_gradients', 6)),
    'another model, gradients dropped': (lambda: retrained(False), set(), None),
    'an average of the weights': (lambda: retrained(True, is_average=True), set(), None),
    'one model': (lambda: retrained(True, makes_model=False), set(), None),
    'a segment that nothing uses': (lambda: caching(16 << 30), {'checkpoint', 'cached'}, None),
    'a small segment that nothing uses': (lambda: caching(2 << 20), {'checkpoint'}, None),
}


def check_case(tessera, work, make, rules, number):
    path = work / 'run.pickle'
    make().write(path)
    found = findings(tessera, path)
    expect('rules', set(found), rules)
    if number:
        expect('how many', found[number[0]]['count'], number[1])
    text = ask(tessera, path).decode()
    expect('a heading', 'What to do' in text, bool(rules))
    expect('all are printed', text.count('saves about'), len(rules - {'cached'}))
    path.unlink()


def check_forecast(tessera, work, model, words):
    """What a checkpoint saves is what a run with checkpoints saves, give or take the blocks' own inputs."""
    plain, checkpointed = work / 'plain.pickle', work / 'checkpointed.pickle'
    for path, more in ((plain, ()), (checkpointed, ('--checkpoint', 'full'))):
        subprocess.run([tessera, 'simulate', model, '--steps', '2', *words, *more, '-o', path],
                       stdout=subprocess.DEVNULL, check=True)
    peaks = [json.loads(ask(tessera, path, '--json'))['devices'][0]['peak']['allocated_bytes']
             for path in (plain, checkpointed)]
    found = findings(tessera, plain).get('checkpoint')
    saved = peaks[0] - peaks[1]
    if saved < peaks[0] // 20:
        expect('advice that helps little', found, None)
        return
    if not 0.8 * saved <= found['saved_bytes'] <= 1.25 * saved:
        raise AssertionError(f'forecast {found["saved_bytes"]:,}, saved {saved:,}')
    expect('no advice to do it again', 'checkpoint' in findings(tessera, checkpointed), False)
    if not found['frame'] or not found['frame']['file'].endswith('.py'):
        raise AssertionError(f'called at {found["frame"]}')


FORECASTS = (('gpt2', ('--batch', '8', '--seq', '512')),
             ('gpt2', ('--batch', '16', '--seq', '256', '--dtype', 'autocast-bf16')),
             ('llama-3.2-1b', ('--batch', '8', '--seq', '1024', '--dtype', 'bf16')),
             # Without activations, the optimizer's step or the loss has the peak.
             ('gpt2', ('--batch', '4', '--seq', '256', '--dtype', 'autocast-bf16', '--optimizer', 'adamw-loop',
                       '--loss', 'chunked:128')),
             ('gpt2-xl', ('--batch', '2', '--seq', '512', '--optimizer', 'adamw-loop')),
             ('gpt2-xl', ('--batch', '1', '--seq', '512', '--dtype', 'autocast-bf16', '--optimizer', 'sgd')))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--tessera', required=True, type=pathlib.Path)
    parser.add_argument('--work', required=True, type=pathlib.Path)
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    tessera = options.tessera.resolve()
    tests = [(title, check_case, given) for title, given in CASES.items()]
    tests += [(f'forecast: {model} {" ".join(words)}', check_forecast, (model, words))
              for model, words in FORECASTS]
    return run_tests((title, lambda check=check, given=given: check(tessera, options.work, *given))
                     for title, check, given in tests)


if __name__ == '__main__':
    sys.exit(main())
