"""The advice of `peak`.

Each rule is asked of programs that have the habit it looks for, and of programs that look similar and do
not have it: there it must be silent. `saved_bytes` of a checkpoint is compared with a simulated run that
checkpoints.
"""
from habits import caching, died, forwards, hidden_states, kept_outputs, retrained, training, unfinished
from support import cases, expect


def findings(tessera, path):
    found = tessera.device('peak', path)['findings']
    expect('ordered', found, sorted(found, key=lambda f: (f['rule'] == 'cached', -f['saved_bytes'])))
    return {finding['rule']: finding for finding in found}


# The program, the rules that apply to it, and a number that one of them must have.
CASES = {
    'calls of a model under autograd, one after the other': (lambda: forwards(3), {'no_grad'}, None),
    'calls of a model without autograd': (lambda: forwards(3, keeps=False), set(), None),
    'calls that return all hidden states': (lambda: hidden_states(3), set(), None),
    'a recording that ends with the first call': (unfinished, {'checkpoint'}, ('checkpoint', 26)),
    'a first call that runs out of memory': (died, {'checkpoint'}, None),
    'a call whose outputs live until the next is done':
        (lambda: forwards(4, held=2), {'no_grad', 'two_forwards'}, ('two_forwards', 2)),
    'two graphs at a time': (lambda: forwards(3, held=2), {'no_grad', 'two_forwards'}, ('no_grad', 2 * (26 * 3 + 2))),
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


@cases('title', CASES)
def test_case(tessera, work, title):
    make, rules, number = CASES[title]
    path = work / 'run.pickle'
    make().write(path)
    found = findings(tessera, path)
    expect('rules', set(found), rules)
    if number:
        expect('how many', found[number[0]]['count'], number[1])
    text = tessera.output('peak', path)
    expect('a heading', 'What to do' in text, bool(rules))
    expect('all are printed', text.count('saves about'), len(rules - {'cached'}))


FORECASTS = (('gpt2', ('--batch', '8', '--seq', '512')),
             ('gpt2', ('--batch', '16', '--seq', '256', '--dtype', 'autocast-bf16')),
             ('llama-3.2-1b', ('--batch', '8', '--seq', '1024', '--dtype', 'bf16')),
             # Without activations, the optimizer's step or the loss has the peak.
             ('gpt2', ('--batch', '4', '--seq', '256', '--dtype', 'autocast-bf16', '--optimizer', 'adamw-loop',
                       '--loss', 'chunked:128')),
             ('gpt2-xl', ('--batch', '2', '--seq', '512', '--optimizer', 'adamw-loop')),
             ('gpt2-xl', ('--batch', '1', '--seq', '512', '--dtype', 'autocast-bf16', '--optimizer', 'sgd')))


@cases('model, words', FORECASTS)
def test_forecast(tessera, work, model, words):
    """What a checkpoint saves is what a run with checkpoints saves, give or take the blocks' own inputs."""
    plain, checkpointed = work / 'plain.pickle', work / 'checkpointed.pickle'
    for path, more in ((plain, ()), (checkpointed, ('--checkpoint', 'full'))):
        tessera.simulate(model, '--steps', 2, *words, *more, out=path)
    peaks = [tessera.device('peak', path)['peak']['allocated_bytes'] for path in (plain, checkpointed)]
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
