"""The advice of `peak`.

Each rule is asked of programs that have the habit it looks for, and of programs that look similar and do
not have it: there it must be silent. `saved_bytes` of a checkpoint is compared with a simulated run that
checkpoints.
"""
import re

from habits import (UNIT, accumulated, attending, blocks, caching, died, forwards, gradients_kept, growing, hidden_states, kept_outputs, late, late_training, leaking,
                    library, one_moment, retrained, states, training, uneven, unfinished)
from runs import CALL, MAIN, TORCH, Run, at
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
    'two graphs at a time, of which the first is older than the recording':
        (lambda: late(forwards(3, held=2), 26 * 12 + 2), {'no_grad', 'two_forwards'}, ('no_grad', 2 * (26 * 3 + 2))),
    'a call whose outputs live until the next is done, without autograd':
        (lambda: forwards(4, held=2, keeps=False), set(), None),
    'training': (training, {'checkpoint'}, ('checkpoint', 12)),
    'training of two layers': (lambda: training(layers=2), set(), None),
    'training that holds on to the graph of the step before':
        (lambda: training(4, kept_of_last=8), {'checkpoint', 'two_forwards'}, ('two_forwards', 2)),
    'training that holds on to outputs': (kept_outputs, {'checkpoint', 'held_outputs'}, ('held_outputs', 1)),
    'another model, gradients kept': (lambda: retrained(True), {'old_gradients'}, ('old_gradients', 6)),
    'another model, gradients dropped': (lambda: retrained(False), {'zero_grad'}, None),
    'an average of the weights': (lambda: retrained(True, is_average=True), {'zero_grad'}, None),
    'one model': (lambda: retrained(True, makes_model=False), {'zero_grad'}, None),
    'gradients dropped after the next forward': (gradients_kept, {'checkpoint', 'zero_grad'}, ('zero_grad', 6)),
    'gradients that are zeroed and kept':
        (lambda: gradients_kept(clears='never'), {'checkpoint', 'zero_grad'}, ('zero_grad', 6)),
    'gradients dropped after the next forward, recorded from that on':
        (lambda: late_training(gradients_kept()), {'checkpoint', 'zero_grad'}, ('zero_grad', 6)),
    'gradients of several passes, recorded from the second on': (lambda: late_training(accumulated()), set(), None),
    'gradients dropped after the step': (lambda: gradients_kept(clears='after step'), {'checkpoint'}, None),
    'gradients of several passes': (accumulated, set(), None),
    'a list that grows': (leaking, {'leak', 'checkpoint'}, ('leak', 5)),
    'a list that grows by little': (lambda: leaking(size=0.25), {'checkpoint'}, None),
    'a large model and a small batch': (states, {'states'}, None),
    'a large model and a large batch': (lambda: states(activation=60), {'zero_grad'}, None),
    'attention with a softmax of its own': (attending, {'checkpoint', 'attention'}, ('attention', 16)),
    'attention that is fused': (lambda: attending('fused'), {'checkpoint'}, None),
    'attention of which PyTorch chooses the kernel': (lambda: attending('torch'), {'checkpoint'}, None),
    'attention with a softmax of two layers': (lambda: attending(layers=2), set(), None),
    'a softmax that routes': (lambda: attending('router'), {'checkpoint'}, None),
    'a logarithm of a softmax': (lambda: attending('log'), {'checkpoint'}, None),
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
    expect('all are printed', len(re.findall('saves (about|at least) ', text)), len(rules - {'cached'}))


def block(line, *frames):
    return [CALL, at(line, 'forward', '/work/block.py'), *frames]


LINEAR, NORM = ([CALL, ('forward', TORCH + f'nn/modules/{name}.py', 100)] for name in ('linear', 'normalization'))
ATTENTION = [[CALL, at(line, 'forward', '/work/attention.py')] for line in (30, 31)]
ADD, GELU, MUL = ([(f'at::_ops::{op}::call', '??', 0)] for op in ('add_Tensor', 'gelu', 'mul_Tensor'))
ONE_LINE = [block(7, *frames) for frames in (NORM, LINEAR, GELU, ADD)]
# How a model calls its blocks, the line of which that is, and that of the block's own code.
CALLERS = {
    'a block of several lines': (blocks([block(line) for line in (6, 7, 8)]), 12, 6),
    'a block on one line': (blocks(ONE_LINE), 12, 7),
    'a block on one line, in a model that does nothing else': (blocks(ONE_LINE, outer=()), 12, 7),
    'a block on one line that calls a part of several lines': (blocks([block(7, *ATTENTION[0]), block(7, *ATTENTION[1]), *ONE_LINE]), 12, 7),
    'a block on one line that makes most by itself': (blocks([block(7, *frames) for frames in (LINEAR, GELU, MUL, ADD)]), 12, 7),
    'a loop that adds what the block returns': (blocks([*map(block, (6, 7, 8)), ADD], outer=()), 12, 6),
    'a loop that calls a norm before the block': (blocks([NORM, *map(block, (6, 7, 8)), ADD]), 12, None),
    "torch's own block": (blocks([[CALL, ('forward', TORCH + 'nn/modules/transformer.py', line)] for line in (900, 901, 902)], outer=()), 12, None),
}


@cases('title', CALLERS)
def test_caller(tessera, work, title):
    """A checkpoint goes where the block is called, which is not a line of the block."""
    run, line, inner = CALLERS[title]
    run.write(work / 'run.pickle')
    found = findings(tessera, work / 'run.pickle')['checkpoint']
    expect('the call', (found['frame']['file'], found['frame']['line']), ('/work/model.py', line))
    if inner:
        expect('the block', (found['block']['file'], found['block']['line']), ('/work/block.py', inner))
    for command in ('peak', 'why'):
        expect(command, f'the block called at model.py:{line}' in ' '.join(tessera.output(command, work / 'run.pickle').split()), True)


def test_saved(tessera, work):
    """What the advice saves is what the program without the habit needs less."""
    for habit, cure, rule in ((gradients_kept, lambda: gradients_kept(clears='after step'), 'zero_grad'),
                              (lambda: kept_outputs(layers=2), lambda: kept_outputs(layers=2, drops=True), 'held_outputs'),
                              (attending, lambda: attending('fused'), 'attention')):
        for name, make in (('habit', habit), ('cure', cure)):
            make().write(work / f'{name}.pickle')
        peaks = [tessera.device('peak', work / f'{name}.pickle')['peak']['allocated_bytes'] for name in ('habit', 'cure')]
        expect(f'{rule} saves', findings(tessera, work / 'habit.pickle')[rule]['saved_bytes'], peaks[0] - peaks[1])


def test_fused_attention(tessera, work):
    """A simulated run with fused attention needs what was said, and the advice is not given for it."""
    peaks = {}
    for model in ('gpt2', 'llama-3.2-1b'):
        for kind in ('eager', 'sdpa', 'efficient'):
            path = tessera.simulate(model, '--batch', 2, '--seq', 1024, '--dtype', 'bf16', '--steps', 2, '--attention', kind, out=work / f'{kind}.pickle')
            peaks[kind] = tessera.device('peak', path)['peak']['allocated_bytes']
            expect(f'{model}, {kind}', 'attention' in findings(tessera, path), kind == 'eager')
        found = findings(tessera, work / 'eager.pickle')['attention']
        expect('the call', found['call'], 'attn_implementation="sdpa"')
        left = peaks['eager'] - found['saved_bytes']
        expect(f'{model}: {left} of {peaks}', abs(left - peaks['sdpa']) < 0.05 * peaks['sdpa'], True)


def test_states(tessera, work):
    """Each option is counted in this file's bytes."""
    states().write(work / 'run.pickle')
    found = findings(tessera, work / 'run.pickle')['states']
    weights = 12 * 8 * UNIT
    expect('parts', [found[key] for key in ('parameter_bytes', 'gradient_bytes', 'optimizer_state_bytes')],
           [weights, weights, 2 * weights])
    options = {option['option']: option['saved_bytes'] for option in found['options']}
    expect('options', options, {'8bit_optimizer': int(2 * weights * (1 - (1 + 4 / 256) / 2)), 'factored_optimizer': 2 * weights,
                                'offload_optimizer': 2 * weights, 'zero1': weights, 'fsdp': 2 * weights, 'lora': 3 * weights - UNIT})  # a temporary is the peak then
    text = tessera.output('why', work / 'run.pickle')
    for words in ('99.2 % of', 'neither checkpointing nor a smaller batch helps', '8-bit optimizer'):
        expect(words, words in text, True)


def test_states_forecast(tessera, work):
    """A simulated run with an option needs what was said, or less: of 8 bits that is a bound."""
    peaks = {}
    for optimizer in ('adamw', 'adamw-fused', 'adamw-8bit', 'adafactor'):
        path = tessera.simulate('gpt2', '--batch', 1, '--seq', 64, '--steps', 2, '--optimizer', optimizer, out=work / f'{optimizer}.pickle')
        peaks[optimizer] = tessera.device('peak', path)['peak']['allocated_bytes']
    found = findings(tessera, work / 'adamw.pickle')['states']
    left = {option['option']: peaks['adamw'] - option['saved_bytes'] for option in found['options']}
    for option, optimizer in (('fused_optimizer', 'adamw-fused'), ('factored_optimizer', 'adafactor')):
        expect(option, abs(left[option] - peaks[optimizer]) < peaks['adamw'] / 100, True)
    expect('8 bits', 0.8 * left['8bit_optimizer'] < peaks['adamw-8bit'] <= left['8bit_optimizer'], True)
    expect('the most', found['saved_bytes'], max(option['saved_bytes'] for option in found['options']))


def test_states_without_state(tessera, work):
    """Where the optimizer keeps nothing, another one saves nothing."""
    path = work / 'run.pickle'
    states(has_state=False).write(path)
    found = findings(tessera, path)['states']
    expect('state', found['optimizer_state_bytes'], 0)
    expect('options', {option['option'] for option in found['options']} <= {'fsdp', 'lora'}, True)
    text = tessera.output('peak', path)
    expect('headline', ('Change the optimizer' in text, 'Divide the model' in text), (False, True))


def test_leak_of_leaks(tessera, work):
    """`peak` and `why` mention what `leaks` finds."""
    leaking().write(work / 'run.pickle')
    leak = tessera.device('leaks', work / 'run.pickle')['leaks'][0]
    for command in ('peak', 'why'):
        found = [finding for finding in tessera.device(command, work / 'run.pickle')['findings'] if finding['rule'] == 'leak'][0]
        expect('growth', found['step_bytes'], leak['bytes_per_step'])
        expect('at the peak', found['bytes'], 5 * 8 * UNIT)
        expect('the line', found['frames'], leak['frames'])


def test_unit_of_leak(tessera, work):
    """It grows in a round of the loop that leaks, which may be another than that of the steps."""
    run = Run(UNIT)
    for _ in range(4):
        for _ in range(3):
            run.train(40, layers=4)
        for _ in range(3):
            for address in run.forward([*MAIN, at(50)], layers=4):
                run.give(address)
            run.take([*MAIN, at(51)], 8 * UNIT)
    run.train(40, layers=4)
    run.write(work / 'run.pickle')
    for command in ('peak', 'why'):
        text = ' '.join(tessera.output(command, work / 'run.pickle').split())
        expect('the unit', f'grows by {8 * UNIT >> 20}.00 MiB in each iteration (see \'tessera leaks\')' in text, True)


@cases('outputs, is_data_parallel, is_found', [((0, 40, 4), True, True), ((0, 40, 4), False, True), ((4, 4, 4), True, False),
                                               ((40,), True, False)])
def test_imbalance(tessera, work, outputs, is_data_parallel, is_found):
    uneven(outputs, is_data_parallel=is_data_parallel).write(work / 'run.pickle')
    for command in ('peak', 'why'):
        answer = tessera.json(command, work / 'run.pickle')
        found, text = answer['imbalance'], tessera.output(command, work / 'run.pickle')
        expect('found', found is not None, is_found)
        expect('said', 'not used alike' in text, is_found)
        expect('DataParallel', 'nn.DataParallel, which gathers' in ' '.join(text.split()), is_found and is_data_parallel)
        if not is_found:
            continue
        peaks = [device['peak']['allocated_bytes'] for device in tessera.json('peak', work / 'run.pickle')['devices']]
        expect('which', (found['device'], found['peak_bytes'], found['least_device'], found['least_peak_bytes']),
               (1, peaks[1], 0, peaks[0]))
        expect('mean', found['mean_peak_bytes'], sum(peaks) // 3)


def test_cache(tessera, work):
    """Settings that reserve less come first, and empty_cache() last; of one moment, nothing is before or after it; and of a
    file that lacks a part, what was reserved is not known."""
    growing().write(work / 'run.pickle')
    found = tessera.device('peak', work / 'run.pickle')['findings'][-1]
    best = tessera.device('whatif', work / 'run.pickle')['runs'][0]
    recorded = tessera.device('whatif', work / 'run.pickle')['recorded_peak_reserved_bytes']
    expect('rule', found['rule'], 'cached')
    expect('settings', (found['settings'], found['settings_saved_bytes']), (best['settings'], recorded - best['peak']['reserved_bytes']))
    for command in ('peak', 'why'):
        text = tessera.output(command, work / 'run.pickle')
        expect('in order', text.find('PYTORCH_CUDA_ALLOC_CONF=expandable') < text.find('empty_cache()'), True)
    for command, events in (('peak', 0), ('why', 0), ('peak', 1), ('why', 1)):  # a single event is no history
        one_moment(growing(), events).write(work / 'run.pickle')
        text = tessera.output(command, work / 'run.pickle')
        expect('advice', 'torch.cuda.empty_cache().' in text, True)
        expect('one moment', 'before the peak' in text or 'when most' in text, False)
    growing().write(work / 'run.pickle')
    data = (work / 'run.pickle').read_bytes()
    (work / 'run.pickle').write_bytes(data[:len(data) * 3 // 4])
    for command in ('peak', 'why'):
        expect('truncated', 'empty_cache' in tessera.output(command, work / 'run.pickle', status=(0, 3)), False)


@cases('stream', [0, 140001])
def test_stream(tessera, work, stream):
    """The only stream is no other stream, whatever its number."""
    growing(stream=stream).write(work / 'run.pickle')
    answer, text = tessera.device('why', work / 'run.pickle'), tessera.output('why', work / 'run.pickle')
    free = {cache['cache']: cache['bytes'] for cache in answer['free']}
    expect('free', (free['own'], free['other_stream']), (1008 << 20, 0))
    expect('other streams', 'other streams' in text, False)


CALLS = {'hooks of accelerate': ({}, 'model.gradient_checkpointing_enable()'),
         'no hooks': ({'hooks': False}, 'model.gradient_checkpointing_enable()'),
         'the trainer of transformers': ({'trainer': True}, 'gradient_checkpointing=True in TrainingArguments'),
         'FSDP of Lightning': ({'sharded': 'pytorch_lightning/strategies/strategy.py'},
                               'FSDPStrategy(activation_checkpointing_policy={the block\'s class})'),
         'FSDP of accelerate': ({'sharded': 'accelerate/accelerator.py'},
                                'FullyShardedDataParallelPlugin(activation_checkpointing=True)')}


@cases('title', CALLS)
def test_block(tessera, work, title):
    """A block is named by its class, where frames have it, and called where the model calls it, not in a hook."""
    how, call = CALLS[title]
    for qualified, words in ((True, 'Checkpoint LlamaDecoderLayer, called at'), (False, 'Checkpoint the block called at')):
        library(qualified=qualified, **how).write(work / 'run.pickle')
        found = findings(tessera, work / 'run.pickle')['checkpoint']
        expect('called at', found['frame']['line'], 412)
        expect('the block', found['block']['line'], 301)
        expect('call', found['call'], call)
        for command in ('peak', 'why'):
            text = ' '.join(tessera.output(command, work / 'run.pickle').split())
            expect('the block is named', words in text, True)
            expect('the call is named', call in text, True)


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
