"""The techniques of docs/techniques.md have the documented effects, executed and simulated."""
import hashlib
import json
import re
import shutil
import subprocess

import pytest
from support import ROOT, expect
from trainer import GPT2, Trainer


class AsPredicted(Trainer):
    """What simulate predicts by default is also what train runs here."""

    def run(self, command, *words, **how):
        return super().run(command, *(('--book', 'torch') if command == 'train' else ()), *words, **how)


@pytest.fixture(scope='module')
def t(tessera, work):
    return AsPredicted(tessera, work)


BATCH, SEQUENCE, STEPS = 2, 16, 6
TOKENS = BATCH * SEQUENCE
VOCABULARY, WIDTH, LAYERS = 256, 32, 2  # of train.py's models
LOGITS = TOKENS * VOCABULARY * 4
CACHE = 2 * LAYERS * TOKENS * WIDTH * 4


def simulated(t, model, *options):
    done = t.run('simulate', t.models[model], '--batch', BATCH, '--seq', SEQUENCE, '--json', '-q', *options)
    expect('exit status', (done.returncode, done.stderr), (0, ''))
    return json.loads(done.stdout)['devices'][0]


def growth(t, path):
    """What `leaks` finds: bytes a step in all, and of each place."""
    device = json.loads(t.run('leaks', '--json', '--top', 0, path).stdout)['devices'][0]
    return device['bytes_per_step'], [(leak['bytes_per_step'], leak['frames']) for leak in device['leaks']]


def test_leaks(t):
    """`leaks` finds exactly what each planted mistake keeps of a step, in a run and in its simulation."""
    losses = [step['loss'] for step in t.train('gpt2', '--steps', STEPS)[0]]
    wanted = {'outputs': LOGITS + CACHE + 4, 'shell': LOGITS, 'batches': 2 * TOKENS * 8, 'none': 0}
    for leak in (*wanted, 'graph'):
        executed, predicted = t.work / 'executed.pickle', t.work / 'predicted.pickle'
        steps, end = t.train('gpt2', '--steps', STEPS, '--leak', leak, '--snapshot', executed, '-q')
        device = simulated(t, 'gpt2', '--steps', STEPS, '--leak', leak, '-o', predicted)
        expect(f'{leak} executed as predicted', executed.read_bytes(), predicted.read_bytes())
        expect('peak', (end['peak_bytes'], end['predicted_peak_bytes']), (device['peak']['allocated_bytes'],) * 2)
        expect('losses do not depend on it', [step['loss'] for step in steps], losses)
        total, places = growth(t, executed)
        if leak in wanted:
            expect(f'{leak} grows by', total, wanted[leak])
        else:
            # The graph keeps at least both norms' results, the queries and keys, and the logits' softmax.
            expect('a graph is large', total > 8 * TOKENS * WIDTH * 4 * LAYERS + LOGITS, True)
            names = ' '.join(frame['name'] for _, frames in places for frame in frames)
            for place in ('scaled_dot_product', 'log_softmax', 'layer_norm'):
                expect(place, place in names, True)
    done = t.run('train', t.models['gpt2'], '--data', t.text, '--leak', 'graph', '--memory', 'placed')
    expect('placed memory', (done.returncode, 'a leak needs caching memory' in done.stderr), (2, True))


def profiled(t, model, *options):
    """The profile and the last line of a run."""
    done = t.run('train', t.models[model], '--data', t.text, '--json', '--batch', BATCH, '--seq', SEQUENCE,
                 '--profile', '-q', *options)
    expect('exit status', (done.returncode, done.stderr), (0, ''))
    *_, profile, end = [json.loads(line) for line in done.stdout.splitlines()]
    return profile['profile'], end


def check_profile(profile, peak):
    """Blocks and tensors each add up to the peak, to the byte."""
    expect('the peak', (profile['peak_allocated_bytes'], profile['peak_reserved_bytes'] >= peak), (peak, True))
    for rows in ('blocks', 'tensors'):
        expect(f'{rows} sum', sum(row['bytes'] for row in profile[rows]), peak)
    expect('the last rows', [profile[rows][-1]['bytes'] for rows in ('blocks', 'tensors')],
           [profile['lost_bytes']] * 2)


def test_profiles(t):
    """The profile of a run is that of its simulation, and its peak that of the snapshot."""
    for options in ((), ('--checkpoint', 'full'), ('--leak', 'graph'), ('--offload', 'optimizer,activations'), ('--dtype', 'autocast-bf16'),
                    ('--accumulate', 2, '--optimizer', 'sgd')):
        for model in t.models:
            path = t.work / 'profiled.pickle'
            profile, end = profiled(t, model, '--steps', 3, '--snapshot', path, *options)
            device = simulated(t, model, '--steps', 3, '--profile', *options)
            expect(f'{model} {options}', profile, device['profile'])
            check_profile(profile, end['peak_bytes'])
            kinds = {row['name']: row['bytes'] for row in device['categories']}
            sums = dict.fromkeys(kinds, 0)
            for row in profile['tensors']:
                sums[row['category']] += row['bytes']
            expect('by category', sums, kinds)
            seen = json.loads(t.run('peak', '--json', path).stdout)['devices'][0]['peak']
            expect('the snapshot', (seen['allocated_bytes'], seen['event']),
                   (profile['peak_allocated_bytes'], profile['peak_event']))
            phases = {row['phase']: row for row in profile['phases']}
            expect('phases', {name: (row['peak_allocated_bytes'], row['peak_step'])
                              for name, row in phases.items() if row['peak_step']},
                   {row['name']: (row['allocated_bytes'], row['step']) for row in device['phases']})
    lines = t.run('simulate', t.models['gpt2'], '--seq', SEQUENCE, '--profile', '--top', 1).stdout
    expect('one of two blocks, and the rest', ('others (1)' in lines, 'other kinds' in lines), (True, True))


def test_hooks(t):
    """Of the 183 MiB that a block of GPT-2 keeps, hooks on outputs of modules see 78."""
    done = t.run('simulate', 'gpt2', '--batch', 4, '--seq', 512, '--profile', '--json', '-q')
    blocks = json.loads(done.stdout)['devices'][0]['profile']['blocks'][:12]
    expect('each block', {(block['kept_bytes'], block['hooks_bytes']) for block in blocks},
           {(192020496, 78 << 20)})


def test_components(t):
    """Parameters, gradients and AdamW's state: 4, 4 and 8 bytes for each parameter, executed and simulated."""
    wide = t.work / 'wide.json'
    wide.write_text(json.dumps({'model_type': 'gpt2', 'vocab_size': 256, 'n_positions': 64, 'n_embd': 192,
                                'n_layer': 3, 'n_head': 4}))
    t.models['wide'] = wide
    done = t.run('simulate', 'llama-2-7b', '--batch', 1, '--seq', 16, '--profile', '--json', '-q')
    large = json.loads(done.stdout)['devices'][0]
    profile, end = profiled(t, 'wide', '--steps', 2)
    del t.models['wide']
    for name, found, count in (('wide', profile, end['parameters']),
                               ('llama-2-7b', large['profile'], large['parameters'])):
        rows = {}
        for row in found['tensors']:
            of_kind = rows.setdefault(row['category'], [0, 0])
            of_kind[0] += row['bytes']
            of_kind[1] += row['count']
        tensors = rows['gradient'][1]
        expect(f'{name}: gradients', rows['gradient'][0], 4 * count)
        expect(f'{name}: states', rows['optimizer_state'], [8 * count, 2 * tensors])
        extra = rows['parameter'][0] - 4 * count  # buffers, which are not trained
        expect(f'{name}: parameters', 0 <= extra < 1 << 20, True)
    expect('7B', large['parameters'], 6738415616)


def test_types(t):
    """Under autocast parameters, gradients, moments and losses are fp32, and what products read is 16 bits."""
    t.models['wide'] = t.work / 'wide.json'  # of `components`: its peak has the gradients
    t.models['wide'].write_text(json.dumps({**GPT2, 'n_embd': 192, 'n_layer': 3}))
    for dtype, half in (('autocast-fp16', 'fp16'), ('autocast-bf16', 'bf16')):
        done = t.run('simulate', 'gpt2', '--batch', 4, '--dtype', dtype, '--profile', '--json', '-q')
        rows = [*json.loads(done.stdout)['devices'][0]['profile']['tensors'],
                *(row for model in ('wide', 'gpt2')
                  for row in profiled(t, model, '--steps', 2, '--dtype', dtype)[0]['tensors'])]
        found = {(row['category'], row['dtype']) for row in rows}
        for category in ('parameter', 'gradient', 'optimizer_state'):
            expect(category, {kind for name, kind in found if name == category} - {'bool'}, {'fp32'})
        expect('casts of weights', {kind for name, kind in found if name == 'cast'}, {half})
        expect('batch', {kind for name, kind in found if name == 'input'}, {'int64'})
        every = json.loads(done.stdout)['devices'][0]['profile']
        types = {(row['category'], row['dtype']): row for row in every['types']}
        for category in ('parameter', 'gradient', 'optimizer_state'):
            expect(f'every {category}', [kind for name, kind in types if name == category and kind != 'bool'], ['fp32'])
        expect('casts', ('cast', half) in types, True)
        expect('the peak', sum(row['peak_bytes'] for row in every['types']) + every['lost_bytes'],
               every['peak_allocated_bytes'])
        kernels = {(row['kernel'], row['dtype']) for row in rows}
        expect('logits', ('mm', half) in kernels, True)
        expect('their softmax', {kind for name, kind in kernels if name == 'log softmax'}, {'fp32'})
    del t.models['wide']


def test_formats(t):
    """The bytes per element of each format: 4, 2, 2 and 1, and four more per row for the last one."""
    sizes = {}
    for place in ('keep', 'narrow16', 'narrow8'):
        plan = t.work / 'format.json'
        plan.write_text(json.dumps({'version': 1, 'gelu': 'fused', 'blocks': [
            {'first': 0, 'last': LAYERS - 1, 'saved': {'GELU': place}}]}))
        steps, end = t.train('gpt2', '--steps', 4, '--plan', plan)
        expect(f'{place}: as predicted', end['peak_bytes'], end['predicted_peak_bytes'])
        done = t.run('simulate', 'gpt2', '--batch', 4, '--seq', 512, '--plan', plan, '--profile', '--json', '-q')
        rows = json.loads(done.stdout)['devices'][0]['profile']['tensors']
        sizes[place] = {(row['dtype'], row['bytes'] // row['count']) for row in rows if row['count'] == LAYERS and
                        row['saved_for'] == 'GELU'}
    tokens, wide = 4 * 512, 4 * 768
    expect('bytes of a tensor', [sizes[place] >= {size} for place, size in (
        ('narrow16', ('bf16', 2 * tokens * wide)), ('narrow8', ('int8', tokens * (wide + 4))))], [True, True])


# What ops of kept blocks save, elsewhere or computed again: together with each technique below.
SAVED = {'recompute': {'eager GELU': 'recompute', 'layer norm.0': 'recompute', 'dropout': 'recompute'},
         'some of a kind': {'linear#1.0': 'recompute', 'layer norm#1': 'recompute', 'linear#3.0': 'host'},
         'host': {'linear.0': 'host', 'eager GELU.2': 'host'}, 'disk': {'linear.0': 'disk'}}
OWN_SAVED = {'recompute': {'GELU': 'recompute', 'layer norm.0': 'recompute', 'linear.0': 'recompute'},
             'host': {'linear.0': 'host'}, 'disk': {'GELU': 'disk', 'layer norm': 'recompute'}}


def check_saved(t, plan, choices, common):
    wanted = t.train('gpt2', *common)[0]
    for name, saved in choices.items():
        for more in ((), ('--in-place', 'add'), *SAME_BITS):
            if more[:1] == ('--checkpoint',):
                continue  # it would replace the plan's blocks
            for checkpoint in ('none', 'full'):
                plan.write_text(json.dumps({'version': 1, 'blocks': [
                    {'first': 0, 'last': 0, 'checkpoint': checkpoint}, {'first': 1, 'last': LAYERS - 1, 'saved': saved}]}))
                steps, end = t.train('gpt2', *common, '--plan', plan, *more)
                label = f'{name} {more} {checkpoint}'
                expect(label, [step['loss'] for step in steps], [step['loss'] for step in wanted])
                expect(f'{label}: peak', end['peak_bytes'], end['predicted_peak_bytes'])


def test_saved_pairs(t):
    """What a plan chooses for saved tensors, with each other technique: the same bits, memory as predicted, a lower peak."""
    plan = t.work / 'saved.json'
    for book, saved in (('torch', SAVED), ('own', OWN_SAVED)):
        check_saved(t, plan, saved, ('--steps', 4, '--no-kv-cache', '--lr', '0.01', '--offload-dir', t.work, '--book', book))
    plan.write_text(json.dumps({'version': 1, 'blocks': [{'first': 0, 'last': 11, 'saved': SAVED['recompute']}]}))
    shown = t.run('plan', 'show', plan, 'gpt2', '--batch', 4, '--json')
    shown = json.loads(shown.stdout)
    expect('it saves a fifth', shown['with']['peak_allocated_bytes'] < 0.8 * shown['without']['peak_allocated_bytes'], True)


def test_saved_by_one(t):
    """Ops of a kind are numbered in each block: all of them are the kind, and each alone saves a part."""
    plan = t.work / 'one.json'

    def reserved(*names):
        plan.write_text(json.dumps({'version': 1, 'no_kv_cache': True, 'gelu': 'fused', 'blocks': [
            {'first': 1, 'last': LAYERS - 1, 'saved': {name: 'recompute' for name in names}}]}))
        return json.loads(t.run('simulate', 'gpt2', '--batch', 4, '--seq', 512, '--plan', plan, '--json', '-q').stdout)['devices'][0]

    each = [f'linear#{number}.0' for number in range(4)]
    whole, kept, all_of = reserved('linear.0'), reserved(), reserved(*each)
    for part in ('peak', 'phases', 'categories'):
        expect(f'all: {part}', all_of[part], whole[part])
    peaks = [reserved(name)['peak']['allocated_bytes'] for name in each]
    expect('each saves no more than all', all(whole['peak']['allocated_bytes'] <= peak <= kept['peak']['allocated_bytes'] for peak in peaks), True)
    expect('some save, and not the same', len(set(peaks)) > 2, True)
    for name in ('linear#01', 'linear#', 'linear#x.0', 'linear#1.0.0', 'linear#999'):
        plan.write_text(json.dumps({'version': 1, 'blocks': [{'first': 0, 'last': 1, 'saved': {name: 'recompute'}}]}))
        expect(name, t.run('simulate', 'gpt2', '--plan', plan).returncode, 2)
    plan.write_text(json.dumps({'version': 1, 'blocks': [{'first': 0, 'last': 1, 'saved': {'linear#4.0': 'recompute'}}]}))
    done = t.run('simulate', 'gpt2', '--plan', plan)
    expect('no fifth operation', (done.returncode, "by 'linear#4', but a block has 4 of these ops" in done.stderr), (2, True))


def test_checkpoint_stacks(t):
    """Recomputed memory has the frames of its checkpoint's form."""
    for form, wanted in (('reentrant', {'apply', 'forward', 'backward', 'checkpoint'}),
                         ('non-reentrant', {'checkpoint', 'unpack_hook', '_run_fn_with_dynamo_disabled', 'recompute_fn'})):
        path = t.work / 'stacks.json'
        done = t.run('simulate', t.models['llama'], '--seq', SEQUENCE, '--checkpoint', 'full', '--checkpoint-form', form,
                     '-o', path, '-q')
        expect('exit status', (done.returncode, done.stderr), (0, ''))
        events = json.loads(path.read_text())['device_traces'][0]
        frames = {frame['name'] for event in events for frame in event['frames']
                  if frame['filename'].endswith('utils/checkpoint.py')}
        expect(form, frames, wanted - {'apply'})


def test_attention_matrix(t):
    """The text's 64 MB a layer: scores of 4 sequences, 32 heads, 512 tokens, in 16 bits."""
    config = t.work / 'heads.json'
    config.write_text(json.dumps({'model_type': 'gpt2', 'vocab_size': 256, 'n_positions': 512, 'n_embd': 256,
                                  'n_layer': 2, 'n_head': 32, 'attn_pdrop': 0}))
    done = t.run('simulate', config, '--batch', 4, '--seq', 512, '--dtype', 'fp16', '--attention', 'eager',
                 '--profile', '--json', '-q')
    rows = json.loads(done.stdout)['devices'][0]['profile']['tensors']
    scores = [row for row in rows if row['count'] and row['bytes'] == row['count'] * (64 << 20)]
    expect('a matrix for each layer', any(row['count'] == 2 and row['saved_for'] for row in scores), True)


def test_build_along(t):
    """examples/build-along.sh: each row executed as predicted, and the large model fits in the end."""
    done = subprocess.run([ROOT / 'examples' / 'build-along.sh', t.path, t.work / 'build-along'],
                          capture_output=True, text=True, check=False)
    expect('exit status', (done.returncode, done.stderr), (0, ''))
    rows = [re.search(r'(\d+) +(\d+) +(\d+) +(\S+ GiB) +(yes|no)$', line) for line in done.stdout.splitlines()]
    rows = [row.groups() for row in rows if row]
    expect('apart', [(row[0] == row[1], row[2]) for row in rows], [(True, '0')] * 5)
    expect('each row takes less than the one above', sorted((int(row[1]) for row in rows), reverse=True),
           [int(row[1]) for row in rows])
    expect('large', [row[3:] for row in rows],
           [('76.45 GiB', 'no'), ('31.39 GiB', 'no'), ('30.83 GiB', 'no'), ('20.28 GiB', 'no'), ('4.42 GiB', 'yes')])
    expect('not 350 M', '1416552448 parameters' in done.stdout, True)


# Each changes where tensors are or when they are computed, but no numbers.
SAME_BITS = (('--checkpoint', 'full'), ('--checkpoint', 'every:2'), ('--checkpoint', 'selective'),
             ('--checkpoint-form', 'non-reentrant'), ('--offload', 'optimizer,gradients'),
             ('--offload', 'parameters'), ('--offload', 'activations:disk'), ('--memory', 'placed'),
             ('--threads', 1), ('--leak', 'outputs'), ('--budget', '1GiB'), ('--optimizer-in-backward',))


def test_pairs(t):
    """Techniques in pairs: the losses are those of the run without, and memory is as predicted."""
    for dtype in ('fp32', 'autocast-fp16'):
        common = ('--steps', 4, '--no-kv-cache', '--dtype', dtype, '--lr', '0.01', '--offload-dir', t.work)
        wanted = [step['loss'] for step in t.train('gpt2', *common)[0]]
        for number, first in enumerate(SAME_BITS):
            for second in SAME_BITS[number:]:
                both = (*first, *second)
                if first != second and first[0] == second[0]:
                    continue
                if '--leak' in both and '--memory' in both:
                    continue  # refused: see leaks
                if '--optimizer-in-backward' in both and dtype == 'autocast-fp16':
                    continue  # refused: the loss is scaled
                steps, end = t.train('gpt2', *common, *first, *second)
                expect(f'{dtype} {both}', [step['loss'] for step in steps], wanted)
                expect(f'{dtype} {both}: peak', end['peak_bytes'], end['predicted_peak_bytes'])


# Steps by tessera's own rules that leave the same weights: parts of 256 tokens, the engine's own.
SAME_WEIGHTS = (('--micro-batch', 4), ('--loss', 'chunked:256'), ('--checkpoint', 'full'), ('--checkpoint', 'sqrt'),
                ('--offload', 'optimizer,gradients,parameters'), ('--offload', 'activations'), ('--threads', 1),
                ('--memory', 'placed'), ('--in-place', 'add'))


def weights(t, config, batch, rows, *options):
    """A hash of the final weights of a run with tessera's own rule book, and its losses."""
    model, folder = t.work / 'even.json', t.work / 'even'
    model.write_text(json.dumps({**GPT2, 'resid_pdrop': 0, 'embd_pdrop': 0, 'attn_pdrop': 0, 'tie_word_embeddings': False, **config}))
    shutil.rmtree(folder, ignore_errors=True)
    done = Trainer.run(t, 'train', model, '--data', t.text, '--steps', 3, '--lr', '0.01', '--batch', batch, '--seq', rows,
                       '--json', '-q', '--save', folder, *options)
    expect(options, (done.returncode, done.stderr), (0, ''))
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    expect(f'{options}: peak', lines[-1]['peak_bytes'], lines[-1]['predicted_peak_bytes'])
    saved = (folder / 'model.safetensors').read_bytes()
    return hashlib.sha256(saved).hexdigest(), [line['loss'] for line in lines if line['event'] == 'step']


def test_equalities(t):
    """Parts of a batch, chunks of the loss or of attention, offloading and recomputation, in pairs: the same bits."""
    wanted = weights(t, {}, 8, 64)[0]
    for number, first in enumerate(SAME_WEIGHTS):
        for second in SAME_WEIGHTS[number:]:
            if first == second or first[0] != second[0]:
                both = first if first == second else (*first, *second)
                expect(f'{both}', weights(t, {}, 8, 64, *both)[0], wanted)
    expect('other parts', weights(t, {}, 8, 64, '--micro-batch', 2)[0] == wanted, False)
    long = {'n_positions': 512}
    eager, losses = weights(t, long, 1, 512, '--attention', 'eager')
    for more in ((), ('--checkpoint', 'full'), ('--offload', 'activations')):
        expect(f'chunks {more}', weights(t, long, 1, 512, '--attention', 'chunked:256', *more)[0], eager)
    flash = weights(t, long, 1, 512)[1]
    expect('flash attention', all(abs(a - b) <= 1e-5 * a for a, b in zip(losses, flash)), True)


def test_in_place(t):
    """In place: the losses of the run without, in the memory that was predicted; refusals name who saved the tensor."""
    for book in ('own', 'torch'):
        for options in ((), ('--checkpoint', 'full'), ('--offload', 'activations')):
            common = ('--steps', 4, '--no-kv-cache', '--lr', '0.01', *options)
            wanted = [step['loss'] for step in t.train('gpt2', *common, '--book', book)[0]]
            for ops in ('add', 'dropout', 'add,dropout'):
                steps, end = t.train('gpt2', *common, '--in-place', ops, '--book', book)
                expect(f'{book} {ops} {options}', [step['loss'] for step in steps], wanted)
                expect('peak', end['peak_bytes'], end['predicted_peak_bytes'])
    for options, message in ((('gelu', '--gelu', 'fused'), 'GELU of block 0 cannot be in place: it saves'),
                             (('gelu',), 'has no GELU as one kernel'), (('add,tanh',), "'tanh' cannot be in place"),
                             (('add', '--dtype', 'autocast-bf16'), 'its result has another type')):
        for command in (('simulate', '--seq', SEQUENCE), ('train', '--data', t.text)):
            done = t.run(*command, t.models['gpt2'], '--in-place', *options)
            expect(options, (done.returncode in (1, 2), message in done.stderr), (True, True))
    written = t.work / 'written.json'
    t.run('simulate', t.models['gpt2'], '--seq', SEQUENCE, '--in-place', 'dropout,add', '--write-plan', written)
    expect('canonical', written.read_text(), '{"in_place":"add,dropout","version":1}\n')


def test_documented(t):
    """Each command of docs/techniques.md prints the lines that follow it there."""
    blocks = (ROOT / 'docs' / 'techniques.md').read_text().split('```')[1::2]
    folder = t.work / 'documented'
    folder.mkdir(exist_ok=True)
    for command, *lines in (part.splitlines() for block in blocks for part in block.split('$ ')[1:]):
        program, *words = command.split()
        if program == 'cat':
            (folder / words[0]).write_text('\n'.join(lines))
            continue
        done = Trainer.run(t, *words, cwd=folder)
        is_refused = any(line.startswith('tessera ') for line in lines)
        expect(command, done.returncode != 0, is_refused)
        printed = [line.rstrip() for line in (done.stdout + done.stderr).splitlines()]
        missing = [line for line in lines if not any(seen.startswith(line) for seen in printed)]
        expect(command, missing, [])
