"""`tessera train` learns, repeats itself, and takes the memory that `simulate` predicts."""
import array
import collections
import contextlib
import itertools
import json
import math
import os
import pty
import random
import re
import shutil
import signal
import struct
import subprocess
import threading
import zlib

import pytest
from support import ROOT, expect
from trainer import GPT2, LLAMA, TEXT, Trainer, drop_checksums, fresh, read_safetensors, rewrite_notes, write_safetensors


@pytest.fixture(scope='module')
def t(tessera, work):
    return Trainer(tessera, work)


def test_learns(t):
    for model in t.models:
        steps, end = t.train(model, '--steps', 40, '--lr', '0.01')
        expect('steps', [step['step'] for step in steps], list(range(1, 41)))
        expect(f'{model} starts where nothing is known',
               abs(steps[0]['loss'] - math.log(256)) < 0.2, True)
        expect(f'{model} learns', steps[-1]['loss'] < 0.75 * steps[0]['loss'], True)
        expect('last loss', (end['first_loss'], end['last_loss'], end['tokens']),
               (steps[0]['loss'], steps[-1]['loss'], 40 * 32))


def losses(t, *options):
    return [step['loss'] for step in t.train('gpt2', '--steps', 6, *options)[0]]


def test_repeats(t):
    first = losses(t)
    expect('the same seed', losses(t), first)
    expect('another seed', losses(t, '--seed', 7) == first, False)
    expect('threads', (losses(t, '--threads', 1), losses(t, '--threads', 3)), (first, first))
    expect('recomputed', losses(t, '--checkpoint', 'full'), losses(t, '--no-kv-cache'))


def test_bf16_learns_as_fp32(t, is_sanitized):
    """After 200 steps in bf16 (autocast) the loss is within 1 % of that in fp32, in the mean of some seeds."""
    seeds = 1 if is_sanitized else 3
    for model in t.models:
        means = []
        for dtype in ('fp32', 'autocast-bf16'):
            runs = [t.train(model, '--steps', 200, '--seq', 32, '--dtype', dtype, '--seed', seed)[0] for seed in range(seeds)]
            means.append(sum(step['loss'] for steps in runs for step in steps[-20:]) / len(runs) / 20)
        expect(f'{model}: {means}', abs(means[1] / means[0] - 1) < 0.01, True)


def test_clips(t):
    """Gradients are clipped, and the printed norm is the norm without clipping. Memory is as predicted, and results do not depend on threads."""
    whole = t.train('gpt2', '--steps', 4)[0]
    expect('not computed', [step['gradient_norm'] for step in whole], [None] * 4)
    wide = t.train('gpt2', '--steps', 4, '--clip', 1e6)[0]
    expect('nothing to clip', [step['loss'] for step in wide], [step['loss'] for step in whole])
    narrow, end = t.train('gpt2', '--steps', 4, '--clip', '0.01', '--optimizer', 'sgd', '--lr', 100)
    expect('the same norm at first', narrow[0]['gradient_norm'], wide[0]['gradient_norm'])
    expect('clipped', all(step['gradient_norm'] > 0.01 for step in narrow), True)
    expect('as predicted', end['peak_bytes'], end['predicted_peak_bytes'])
    for options in (['--threads', 1], ['--threads', 3], ['--memory', 'placed']):
        again = t.train('gpt2', '--steps', 4, '--clip', '0.01', '--optimizer', 'sgd', '--lr', 100, *options)[0]
        expect(f'{options}', [(step['loss'], step['gradient_norm']) for step in again],
               [(step['loss'], step['gradient_norm']) for step in narrow])
    scaled = t.train('gpt2', '--steps', 4, '--clip', '1.0', '--dtype', 'autocast-fp16')[0]
    expect('unscaled first', abs(scaled[0]['gradient_norm'] / wide[0]['gradient_norm'] - 1) < 0.01, True)
    folder = fresh(t, 'clipped')
    t.train('gpt2', '--steps', 2, '--clip', '0.01', '--optimizer', 'sgd', '--lr', 100, '--save', folder, '-q')
    done = t.run('train', '--resume', folder, '--steps', 4, '--json', '-q')
    expect('resumed', [json.loads(line)['loss'] for line in done.stdout.splitlines()[:-1]],
           [step['loss'] for step in narrow[2:]])
    text = t.run('train', t.models['gpt2'], '--data', t.text, '--seq', 16, '--steps', 1, '--clip', 1)
    expect('printed', '  norm ' in text.stdout.splitlines()[1], True)
    for wrong in ('0', '-1', 'x', ''):
        for command in (['train', t.models['gpt2'], '--data', t.text, '--seq', 16],
                        ['simulate', t.models['gpt2'], '--seq', 16]):
            done = t.run(*command, '--clip', wrong)
            expect(f'--clip {wrong}', (done.returncode, 'must be a number above 0' in done.stderr),
                   (2, True))


def test_placed(t):
    """Placed memory: less memory, the same numbers, and the peak that simulate predicts."""
    for model in t.models:
        for options in ([], ['--dtype', 'bf16', '--attention', 'eager'], ['--checkpoint', 'full', '--accumulate', 2]):
            steps, end = t.train(model, '--steps', 4, *options)
            in_place, other = t.train(model, '--steps', 4, *options, '--memory', 'placed')
            expect(f'{model} {options}', [step['loss'] for step in in_place], [step['loss'] for step in steps])
            expect('the same is live', other['peak_bytes'], end['peak_bytes'])
            expect('one range', other['reserved_bytes'], other['predicted_reserved_bytes'])
            expect('between the bound and what caching takes',
                   other['bound_bytes'] <= other['reserved_bytes'] < end['reserved_bytes'], True)
    steps, end = t.train('gpt2', '--steps', 2)
    text = t.run('train', t.models['gpt2'], '--data', t.text, '--batch', 2, '--seq', 16, '--steps', 2).stdout
    expect('what is reserved', text.splitlines()[0].endswith(
        f' is predicted, {end["predicted_reserved_bytes"] / 2**20:.2f} MiB reserved.'), True)
    text = t.run('train', t.models['gpt2'], '--data', t.text, '--seq', 16, '--steps', 1, '--memory', 'placed').stdout
    expect('what it says', text.splitlines()[-1].startswith('Placed memory: '), True)
    done = t.run('train', t.models['gpt2'], '--data', t.text, '--seq', 16, '--memory', 'placed', '--budget', '512KiB',
                 '--allow', 'none')
    expect('too small', (done.returncode, 'placed memory needs ' in done.stderr), (2, True))


def how_many(sample, is_sanitized):
    """Random runs: a sample, less of it where each takes long."""
    return 200 if 'TESSERA_WHOLE' in os.environ else sample // 3 if is_sanitized else sample


CHOICES = {'--dtype': ['fp32', 'bf16', 'autocast-bf16'], '--checkpoint': ['none', 'full', 'every:2'], '--accumulate': [1, 2, 3],
           '--attention': ['eager', 'sdpa'], '--loss': ['full', 'chunked:8'], '--optimizer': ['adamw', 'sgd'], '--batch': [1, 2, 4],
           '--seq': [8, 16], '--offload': ['parameters', 'optimizer', 'activations'], '--clip': [0.5, 1], '--steps': [1, 2, 3]}


def test_budgets_of_placed_runs(t, is_sanitized):
    """A placed run fits into what it says that it reserves; into less, it gets a plan that does, or a refusal."""
    rng = random.Random(3705)
    runs = how_many(14, is_sanitized)
    ends = collections.Counter()
    for n in range(runs):
        model = rng.choice(sorted(t.models))
        options = [str(word) for name, words in CHOICES.items() if rng.random() < 0.5 for word in (name, rng.choice(words))]
        common = ['train', t.models[model], '--data', t.text, *options, '--memory', 'placed', '--json', '-q']
        done = t.run(*common)
        expect(f'{n}: {options}', (done.returncode, done.stderr), (0, ''))
        end = json.loads(done.stdout.splitlines()[-1])
        size = end['reserved_bytes']
        expect(f'{n}: {options} reserves', (end['predicted_reserved_bytes'], size >= end['peak_bytes']), (size, True))
        again = t.run(*common, '--budget', f'{size}B')
        expect(f'{n}: {options} in its own bytes', (again.returncode, again.stderr), (0, ''))
        expect(f'{n}: {options} in its own bytes', (json.loads(again.stdout.splitlines()[-1])['reserved_bytes'],
                                                    '"plan"' in again.stdout), (size, '"plan"' in done.stdout))
        budget = int(size * rng.uniform(0.5, 1))
        less = t.run(*common, '--budget', f'{budget}B')
        ends[less.returncode] += 1
        if less.returncode == 0:
            expect(f'{n}: {options} in less', json.loads(less.stdout.splitlines()[-1])['reserved_bytes'] <= budget, True)
        else:
            expect(f'{n}: {options} in {budget} B', (less.returncode, less.stderr), (1, ''))
    expect('both kinds of answer', set(ends) == {0, 1} or is_sanitized, True)


def test_sets_of_instructions(t):
    """Each set that --isa names gives its own bits again and again, and nearly the same numbers."""
    first = losses(t)
    for name in ('plain', 'avx2', 'avx512', 'avx512-bf16'):
        own = losses(t, '--isa', name)
        expect(f'{name}, threads', losses(t, '--isa', name, '--threads', 2), own)
        expect(name, all(abs(a - b) < 1e-4 for a, b in zip(own, first)), True)


def test_as_predicted(t):
    for options in ([], ['--accumulate', 3], ['--dtype', 'autocast-bf16'], ['--optimizer', 'sgd'],
                    ['--checkpoint', 'full'], ['--attention', 'chunked:4', '--loss', 'chunked:8']):
        for model, book in itertools.product(t.models, ('torch', 'own')):
            options = [*options, '--book', book]
            path = t.work / 'run.pickle'
            end = t.train(model, '--steps', 4, '--snapshot', path, '-q', *options)[1]
            wanted = json.loads(t.run('simulate', t.models[model], '--batch', 2, '--seq', 16,
                                      '--steps', 4, '--json', '-q', '-o', t.work / 'wanted.pickle',
                                      *options).stdout)['devices'][0]
            peak = wanted['peak']['allocated_bytes']
            expect(f'{model} {options}', (end['peak_bytes'], end['predicted_peak_bytes']),
                   (peak, peak))
            expect('reserved', (end['reserved_bytes'], end['predicted_reserved_bytes']),
                   (wanted['peak_reserved_bytes'],) * 2)
            expect('the snapshot is the one that was simulated', path.read_bytes(),
                   (t.work / 'wanted.pickle').read_bytes())


def resident_bytes(t, data):
    """The most that a run had in memory, its own and pages of files."""
    with subprocess.Popen([t.path, 'train', t.models['gpt2'], '--data', data, '--steps', '2', '--seq', '16',
                           '--threads', '1'], stdout=subprocess.DEVNULL,
                          stderr=subprocess.DEVNULL) as run:
        _, status, usage = os.wait4(run.pid, 0)
        run.returncode = os.waitstatus_to_exitcode(status)
    expect('the run', run.returncode, 0)
    return usage.ru_maxrss << 10


def test_token_files(t):
    """The same tokens give the same run, whatever file they are in."""
    common = ('--steps', 5)
    expected = [step['loss'] for step in t.train('gpt2', *common)[0]]
    tokens = array.array('H', list(TEXT.encode()))
    wide = array.array('I', list(TEXT.encode()))
    header = array.array('I', [20240520, 1, len(tokens)] + [0] * 253)
    for path, data, options in (
            ('a.bin', tokens.tobytes(), ()),
            ('a.dat', tokens.tobytes(), ('--tokens', 'u16')),
            ('b.bin', wide.tobytes(), ('--tokens', 'u32')),
            ('llmc.data', header.tobytes() + tokens.tobytes(), ()),
            ('a.txt', TEXT.encode(), ('--tokens', 'bytes'))):
        (t.work / path).write_bytes(data)
        steps = t.train('gpt2', *common, '--data', t.work / path, *options)[0]
        expect(path, [step['loss'] for step in steps], expected)
    for options, rows in (((), 2), (('--accumulate', 3), 6), (('--micro-batch', 1), 2)):
        end = t.train('gpt2', *common, *options)[1]
        expect('tokens of a step', (end['data_bytes'], end['predicted_data_bytes']), (rows * 16 * 8,) * 2)
    with open(t.text, encoding='utf-8') as text:
        done = t.run('train', t.models['gpt2'], '--data', '-', '--json', '--batch', 2, '--seq', 16, '--steps', 5, stdin=text)
    expect('standard input', [json.loads(line)['loss'] for line in done.stdout.splitlines()[:-1]],
           expected)
    large = t.work / 'large.bin'
    with large.open('wb') as file:
        file.truncate(3 << 30)  # more than memory should hold; its tokens are 0
    done = t.run('train', t.models['gpt2'], '--data', large, '--steps', 1, '--seq', 16, '--json')
    expect('a large file', (done.returncode, done.stderr), (0, ''))
    resident = [resident_bytes(t, path) for path in (t.work / 'a.bin', large)]
    large.unlink()
    expect(f'{resident}: what is resident does not depend on the size of the file', resident[1] - resident[0] < 2 << 20,
           True)
    (t.work / 'bad.bin').write_bytes(array.array('H', [1, 2, 300, 4] * 10).tobytes())
    done = t.run('train', t.models['gpt2'], '--data', t.work / 'bad.bin', '--seq', 16)
    expect('a token beyond the vocabulary', (done.returncode, done.stderr),
           (3, f'tessera: {t.work / "bad.bin"}: token 300 at position 2 is not in the model\'s '
               'vocabulary of 256 tokens (at byte 4)\n'))
    for name, data, why in (
            ('odd.bin', tokens.tobytes()[1:], f'{2 * len(tokens) - 1} bytes are not a whole number of 2-byte tokens'),
            ('long.bin', header.tobytes() + tokens.tobytes()[2:],
             f'the header announces {len(tokens)} tokens, but the file has another length (at byte 8)'),
            ('cut.bin', header.tobytes()[:500],
             f'the header announces {len(tokens)} tokens, but the file has another length (at byte 8)'),
            ('new.bin', array.array('I', [20240520, 9]).tobytes() + header.tobytes()[8:],
             'a token file of llm.c in version 9; tessera reads version 1 (at byte 4)'),
            ('empty.txt', b'', 'at least 2 tokens are needed to train on')):
        (t.work / name).write_bytes(data)
        done = t.run('train', t.models['gpt2'], '--data', t.work / name, '--seq', 16)
        expect(name, (done.returncode, done.stdout, done.stderr), (3, '', f'tessera: {t.work / name}: {why}\n'))


def names(config):
    """What transformers calls the parameters, with their shapes."""
    if config['model_type'] == 'gpt2':
        width, vocabulary = config['n_embd'], config['vocab_size']
        block = {'ln_1.weight': [width], 'ln_1.bias': [width],
                 'attn.c_attn.weight': [width, 3 * width], 'attn.c_attn.bias': [3 * width],
                 'attn.c_proj.weight': [width, width], 'attn.c_proj.bias': [width],
                 'ln_2.weight': [width], 'ln_2.bias': [width],
                 'mlp.c_fc.weight': [width, 4 * width], 'mlp.c_fc.bias': [4 * width],
                 'mlp.c_proj.weight': [4 * width, width], 'mlp.c_proj.bias': [width]}
        return {'transformer.wte.weight': [vocabulary, width],
                'transformer.wpe.weight': [config['n_positions'], width],
                'transformer.ln_f.weight': [width], 'transformer.ln_f.bias': [width],
                **{f'transformer.h.{i}.{name}': shape for i in range(config['n_layer'])
                   for name, shape in block.items()}}
    width, vocabulary, inner = (config[key] for key in ('hidden_size', 'vocab_size',
                                                        'intermediate_size'))
    block = {f'self_attn.{name}_proj.weight': [width, width] for name in 'qkvo'} | {
        'mlp.gate_proj.weight': [inner, width], 'mlp.up_proj.weight': [inner, width],
        'mlp.down_proj.weight': [width, inner], 'input_layernorm.weight': [width],
        'post_attention_layernorm.weight': [width]}
    return {'model.embed_tokens.weight': [vocabulary, width], 'model.norm.weight': [width],
            'lm_head.weight': [vocabulary, width],
            **{f'model.layers.{i}.{name}': shape for i in range(config['num_hidden_layers'])
               for name, shape in block.items()}}


def test_saves(t):
    """A folder has the files of transformers, and training it again begins with its weights."""
    for model, config in (('gpt2', GPT2), ('llama', LLAMA)):
        folder = fresh(t, f'saved-{model}')
        t.train(model, '--steps', 3, '--save', folder, '-q')
        arrays, notes = read_safetensors(folder / 'model.safetensors')
        expect('names and shapes', {name: array[1] for name, array in arrays.items()},
               names(config))
        sums = {f'tessera_{name}_crc32': f'{zlib.crc32(data):08x}' for name, data in (
            ('arrays', b''.join(data for _, _, data in arrays.values())),
            ('config', json.dumps(json.loads((folder / 'config.json').read_text()), sort_keys=True, separators=(',', ':')).encode()))}
        expect('metadata', notes, {'format': 'pt', 'tessera_training': 'training-3.safetensors', **sums})
        saved = json.loads((folder / 'config.json').read_text())
        expect('config.json', {key: saved.get(key) for key in config}, config)
        expect('files', sorted(path.name for path in folder.iterdir()),
               ['config.json', 'model.safetensors', 'training-3.safetensors'])
        again = ['--data', t.text, '--json', '--batch', 2, '--seq', 16, '--lr', '1e-9', '--steps']
        done = t.run('train', folder, *again, 1)
        first = json.loads(done.stdout.splitlines()[0])['loss']
        expect('its loss is the trained one', first < t.train(model, '--steps', 1)[0][0]['loss'],
               True)
        # The same weights without the model's prefix, in two files, and of another type.
        parts = fresh(t, 'parts')
        parts.mkdir()
        shutil.copy(folder / 'config.json', parts)
        bare = {name.split('.', 1)[1] if name != 'lm_head.weight' else name: array
                for name, array in arrays.items()}
        cut = dict(list(bare.items())[:5])
        wide = {name: ('F64', shape, array_of('d', array_of('f', data)).tobytes())
                for name, (_, shape, data) in bare.items() if name not in cut}
        write_safetensors(parts / 'a.safetensors', cut)
        write_safetensors(parts / 'b.safetensors', wide)
        (parts / 'model.safetensors.index.json').write_text(json.dumps({'weight_map': {
            **dict.fromkeys(cut, 'a.safetensors'), **dict.fromkeys(wide, 'b.safetensors')}}))
        done = t.run('train', parts, *again, 1)
        expect('an index', (done.stderr, json.loads(done.stdout.splitlines()[0])['loss']),
               ('', first))
    done = t.run('train', t.models['gpt2'], '--data', t.text, '--save', t.work / 'saved-gpt2')
    expect('a folder with weights is kept', (done.returncode, 'already contains weights' in done.stderr),
           (2, True))


def array_of(kind, data):
    if isinstance(data, bytes):
        out = array.array(kind)
        out.frombytes(data)
        return out
    return array.array(kind, list(data))


def test_wrong_weights(t):
    """One sentence for each thing that can be wrong with weights."""
    folder = fresh(t, 'wrong')
    t.train('gpt2', '--steps', 1, '--save', folder, '-q')
    drop_checksums(folder)
    file = folder / 'model.safetensors'
    good, (arrays, weight_notes) = file.read_bytes(), read_safetensors(file)
    name = 'transformer.h.1.mlp.c_fc.weight'
    kind, shape, data = arrays[name]
    training = folder / 'training-1.safetensors'
    good_training, (states, notes) = training.read_bytes(), read_safetensors(training)
    commands = [('train', folder, '--data', t.text, '--seq', 16, '--steps', 1),
                ('train', '--resume', folder, '--steps', 2, '--data', t.text),
                ('sample', folder, '--ids')]

    def refuses_arrays(changed, text):
        write_safetensors(file, changed, weight_notes)
        refuses_file(text)

    def refuses_file(text):
        """Each command that reads it says so, in one line, and leaves the folder as it is."""
        before = [path.read_bytes() for path in sorted(folder.iterdir())]
        for command in commands:
            done = t.run(*command)
            expect(f'{command[0]}: {text}', (done.returncode, done.stdout, done.stderr),
                   (3, '', f'tessera: {folder}: {text}\n'))
        expect('nothing is lost', [path.read_bytes() for path in sorted(folder.iterdir())], before)

    def refuses_header(change, text):
        length = struct.unpack('<Q', good[:8])[0]
        header = json.loads(good[8:8 + length])
        header[name].update(change)
        changed = json.dumps(header).encode()
        file.write_bytes(struct.pack('<Q', len(changed)) + changed + good[8 + length:])
        refuses_file(f'model.safetensors: array "{name}" {text}')

    def refuses_training(changed, text, metadata=None):
        if isinstance(changed, bytes):
            training.write_bytes(changed)
        else:
            write_safetensors(training, changed, notes | (metadata or {}))
        before = [path.read_bytes() for path in sorted(folder.iterdir())]
        done = t.run(*commands[1])
        expect(text, (done.returncode, done.stdout, done.stderr),
               (3, '', f'tessera: {folder}: training-1.safetensors{text}\n'))
        expect('nothing is lost', [path.read_bytes() for path in sorted(folder.iterdir())], before)
        training.write_bytes(good_training)

    refuses_arrays({key: value for key, value in arrays.items() if key != name},
                   f'there is no array "{name}", which the model needs')
    refuses_arrays(arrays | {'transformer.h.2.ln_1.bias': ('F32', [0], b'')},
                   'array "transformer.h.2.ln_1.bias" is not part of the model')
    refuses_arrays(arrays | {name: (kind, shape[::-1], data)},
                   f'array "{name}" has the shape [128, 32], and the model needs [32, 128]')
    refuses_arrays(arrays | {name: ('I32', shape, data)},
                   f'array "{name}" is of type I32; weights can be F32, BF16, F16 or F64')
    file.write_bytes(good[:-7])
    refuses_file('model.safetensors: the file is cut off: array '
                 '"transformer.wte.weight" ends 7 bytes after the end of the file')
    file.write_bytes(struct.pack('<Q', 1 << 40) + good[8:])
    refuses_file('model.safetensors: not a safetensors file, or cut off: its header would be longer '
                 'than the file (at byte 0)')
    refuses_arrays(arrays | {name: (kind, shape, struct.pack('<f', math.nan) + data[4:])},
                   f'array "{name}" has an element that is not a finite number')
    refuses_arrays(arrays | {name: (kind, [32 * 128], data)},
                   f'array "{name}" has the shape [4096], and the model needs [32, 128]')
    file.write_bytes(good[:60])
    refuses_file('model.safetensors: not a safetensors file, or cut off: its header would be longer '
                 'than the file (at byte 0)')
    file.write_bytes(good[:5])
    refuses_file('model.safetensors: too short for a safetensors file (at byte 0)')
    file.write_bytes(good + b'abc')
    refuses_file('model.safetensors: 3 bytes after the last array belong to no array')
    file.write_bytes(struct.pack('<Q', 40) + good[8:])
    refuses_file('model.safetensors: the header is not JSON: premature end of input near \'"tesse\' '
                 '(at byte 40)')
    refuses_header({'dtype': 'Q4'}, 'has elements of an unknown type: Q4')
    refuses_header({'data_offsets': [9, 3]}, 'must have two "data_offsets" in ascending order')
    refuses_header({'data_offsets': [0, 1 << 62]},
                   f'has {1 << 62} bytes, which does not match its shape and type')
    refuses_header({'shape': [1 << 40, 1 << 40]},
                   'has 16384 bytes, which does not match its shape and type')
    refuses_header({'shape': [-1]}, 'has a dimension that is not a whole number')
    refuses_header({'shape': [1] * 50}, 'has more than 8 dimensions')
    file.write_bytes(good)
    moment = f'{name}.exp_avg'
    refuses_training({key: value for key, value in states.items() if key != moment},
                     f' has no array "{moment}"; it was trained with another --optimizer or --dtype')
    refuses_training(states | {moment: ('F32', [1], data[:4])},
                     f': array "{moment}" has another size or type than this model needs')
    refuses_training(states, ': its metadata does not contain the number of steps', {'steps': '-1'})
    refuses_training(good_training[:5], ': too short for a safetensors file (at byte 0)')
    training.unlink()
    done = t.run(*commands[1])
    expect('no training', done.stderr, f'tessera: {folder}: training-1.safetensors: cannot open: No such file '
           'or directory\n')
    training.write_bytes(good_training)
    index = fresh(t, 'wrong-index')
    index.mkdir()
    shutil.copy(folder / 'config.json', index)
    for text, why in (
            ({}, 'has no "weight_map"'), ({'weight_map': {}}, 'the index names no files'),
            ({'weight_map': {'a': '../wrong/model.safetensors'}},
             'array "a" is in a file whose name is not a plain file name'),
            ({'weight_map': {'a': 'b.safetensors'}},
             'b.safetensors: cannot open: No such file or directory')):
        (index / 'model.safetensors.index.json').write_text(json.dumps(text))
        done = t.run('train', index, '--data', t.text, '--steps', 1)
        expect(why, (done.returncode, done.stdout, done.stderr),
               (3, '', f'tessera: {index}: model.safetensors.index.json: {why}\n'))
    done = t.run('train', '--resume', t.work / 'absent', '--data', t.text)
    expect('no folder', (done.returncode, len(done.stderr.splitlines())), (3, 1))
    write_safetensors(file, arrays)
    done = t.run('train', '--resume', folder)
    expect('weights of another program',
           (done.returncode, 'were not saved by a run that can be resumed' in done.stderr),
           (3, True))


def resumed(t, whole, *options):
    """Run in three parts, and compare with the whole."""
    parts = fresh(t, 'parts-of-a-run')
    lines = t.train('gpt2', '--steps', 2, '--save', parts, '-q', *options)[0]
    for steps in (3, 6):
        done = t.run('train', '--resume', parts, '--steps', steps, '--json', '-q')
        expect('resumed', (done.returncode, done.stderr), (0, ''))
        lines += [json.loads(line) for line in done.stdout.splitlines()[:-1]]
    steps = t.train('gpt2', '--steps', 6, '--save', whole, '-q', *options)[0]
    keys = ('step', 'loss', 'learning_rate', 'skipped', 'allocated_bytes')
    expect(f'steps {options}', [[line[key] for key in keys] for line in lines],
           [[line[key] for key in keys] for line in steps])
    for file in ('model.safetensors', 'training-6.safetensors'):
        expect(f'{file} {options}', read_safetensors(parts / file)[0],
               read_safetensors(whole / file)[0])


def test_resumes(t):
    """Six steps are the same as three and three, bit for bit."""
    for options in ([], ['--optimizer', 'adamw-fused', '--accumulate', 2, '--seed', 3],
                    ['--optimizer', 'sgd', '--lr', '0.1', '--checkpoint', 'every:2'],
                    ['--dtype', 'autocast-fp16', '--attention', 'chunked:4'],
                    ['--dtype', 'bf16', '--no-kv-cache']):
        resumed(t, fresh(t, 'whole'), *options)
    done = t.run('train', '--resume', t.work / 'whole')
    expect('nothing left to do', (done.returncode, 'has already made 6 steps' in done.stderr), (2, True))
    done = t.run('train', '--resume', t.work / 'whole', '--steps', 7, '--book', 'torch',
                 '--optimizer', 'adamw-fused')
    expect('another optimizer',
           (done.returncode, 'has no array "transformer.wte.weight.step"' in done.stderr), (3, True))


def test_resumes_with_a_library_that_is_gone(t):
    """A run that an earlier version saved with --products openblas continues with the default, and says so."""
    folder, whole = fresh(t, 'gone'), t.train('gpt2', '--steps', 2)[0]
    t.train('gpt2', '--steps', 1, '--save', folder, '-q')
    rewrite_notes(folder, lambda notes: notes.replace('products=own\n', 'products=openblas\n'))
    expect('saved', 'products=openblas' in read_safetensors(folder / 'training-1.safetensors')[1]['notes'], True)
    note = (f'tessera train: {folder} was saved with --products openblas, which tessera no longer has; '
            'continuing with --products auto')
    for options, said in (([], True), (['-q'], False), (['--products', 'own'], False)):
        again = shutil.copytree(folder, t.work / 'gone-again', dirs_exist_ok=True)
        done = t.run('train', '--resume', again, '--steps', 2, '--json', *options)
        step, end = map(json.loads, done.stdout.splitlines())
        expect(f'{options}: note', note.replace(str(folder), str(again)) in done.stderr.splitlines(), said)
        expect(f'{options}: the step', (done.returncode, step['loss'], end['products']), (0, whole[1]['loss'], 'own'))
        shutil.rmtree(again)


def test_takes_no_written_path_from_a_folder(t):
    """A folder that somebody else saved names a file of the user in each option in turn. Only paths that are read are taken, and
    printed, and the file keeps its content."""
    folder, precious = fresh(t, 'foreign'), t.work / 'precious.txt'
    t.train('gpt2', '--steps', 1, '--save', folder, '-q')
    options = re.findall(r'^ +(?:-\w, )?--([a-z-]+) ([A-Z]+)', t.run('train', '--help-all').stdout, re.M)
    paths = {name for name, argument in options if argument in ('FILE', 'DIR')}
    expect('options that name files', {'data', 'write-rates', 'write-plan', 'snapshot', 'save'} <= paths, True)
    for name, _ in options:
        key = {'budget': 'capacity'}.get(name, name.replace('-', '_'))
        precious.write_text(TEXT)
        again = shutil.copytree(folder, fresh(t, 'foreign-again'))
        rewrite_notes(again, lambda notes: '\n'.join(
            [f'{key}={precious}'] + [line for line in notes.split('\n') if not line.startswith(f'{key}=')]))
        done = t.run('train', '--resume', again, '--steps', 2)
        expect(f'{name}: the file', precious.read_text(), TEXT)
        if name in paths - {'data', 'val', 'offload-dir', 'plan', 'resume'}:
            expect(f'{name}: ignored', f'ignoring --{name}, with which {again} was saved' in done.stderr, True)
        if name in ('data', 'val', 'offload-dir'):
            expect(f'{name}: printed', f'--{name} {precious}, as {again} was saved' in done.stderr, True)
    again = shutil.copytree(folder, fresh(t, 'foreign-again'))
    link = t.work / 'link.txt'
    link.unlink(missing_ok=True)
    link.symlink_to(precious)
    for path in (link, t.work / 'absent.txt', 'sheep.txt'):
        rewrite_notes(again, lambda notes: re.sub('^data=.*', f'data={path}', notes, flags=re.M))
        done = t.run('train', '--resume', again, '--steps', 2, '-q')
        expect(f'{path} is no place', (done.returncode, done.stderr),
               (3, f"tessera train: {again} was saved with --data '{path}', which is no longer there; "
                   'give --data again\n'))
    expect('given again', t.run('train', '--resume', again, '--steps', 2, '-q', '--data', t.text).returncode, 0)


def contents(folder):
    return [(path.name, path.read_bytes()) for path in sorted(folder.iterdir())]


def test_keeps_files_in_folders(t):
    """No output replaces a file in a folder that is read: config.json, weights, a saved run; also under the name of a rank, and
    through a link."""
    model, saved = fresh(t, 'model-folder'), fresh(t, 'run-folder')
    t.train('gpt2', '--steps', 1, '--save', saved, '-q')
    model.mkdir()
    (model / 'config.json').write_text(json.dumps(GPT2))
    link = t.work / 'linked.json'
    link.unlink(missing_ok=True)
    link.symlink_to(model / 'config.json')
    ranked = t.work / 'rank1_model.json'
    ranked.write_text(json.dumps(GPT2))
    plan = t.work / 'two-ranks.json'
    t.run('simulate', ranked, '--seq', 16, '--ranks', 2, '--write-plan', plan, status=0)
    train = ('train', model, '--data', t.text, '--seq', 16, '--steps', 1, '-q')
    resume = ('train', '--resume', saved, '--steps', 2, '-q')
    simulate = ('simulate', model, '--seq', 16, '-q')
    before = contents(model), contents(saved), ranked.read_bytes()
    for words in ((*simulate, '-o', model / 'config.json'), (*simulate, '-o', link),
                  (*simulate, '--write-plan', model / 'config.json'),
                  ('plan', model, '--seq', 16, '--budget', '1GiB', '--write-plan', model / 'config.json'),
                  ('plan', model, '--seq', 16, '--budget', '1GiB', '-o', model / 'config.json'),
                  (*train, '--save', model), (*train, '--write-rates', model / 'config.json'),
                  (*train, '--snapshot', model / 'config.json'), (*train, '--write-plan', link),
                  (*resume, '--write-rates', saved / 'model.safetensors'),
                  (*resume, '--snapshot', saved / 'config.json'),
                  (*resume, '--write-plan', saved / 'training-1.safetensors'),
                  ('simulate', ranked, '--seq', 16, '-q', '--plan', plan, '-o', t.work / 'model.json'),
                  ('train', ranked, '--data', t.text, '--seq', 16, '--steps', 1, '-q', '--ranks', 2, '--snapshot',
                   t.work / 'model.json'),
                  ('train', ranked, '--data', t.text, '--seq', 16, '--steps', 1, '-q', '--plan', plan, '--snapshot',
                   t.work / 'model.json')):
        done = t.run(*words)
        expect(f'{words}: kept', (contents(model), contents(saved), ranked.read_bytes()) == before, True)
        expect(f'{words}: refused', (done.returncode, 'write to another file' in done.stderr), (2, True))
    new = fresh(t, 'new-run')
    new.mkdir()
    done = t.run(*train, '--save', new, '--write-rates', new / 'model.safetensors')
    expect('two outputs', (done.returncode, 'is a file of the run that is saved to' in done.stderr), (2, True))
    for words in ((*simulate, '-o', model / 'run.pickle'), (*simulate, '-o', model / 'run.pickle'),
                  (*resume, '--snapshot', saved / 'run.pickle')):
        expect(f'{words}: nothing is replaced', t.run(*words).returncode, 0)


def test_follows_no_link_in_a_run(t):
    """A file of a saved run that leads out of the folder is replaced there, not where it leads."""
    saved, precious = fresh(t, 'linked-run'), t.work / 'precious.txt'
    t.train('gpt2', '--steps', 1, '--save', saved, '-q')
    precious.write_text(TEXT)
    (saved / 'training-2.safetensors').symlink_to(precious)
    os.mkfifo(saved / 'training-3.safetensors')
    for steps in (2, 3):
        done = t.run('train', '--resume', saved, '--steps', steps, '-q')
        expect('resumed', (done.returncode, done.stderr), (0, ''))
        expect('not followed', (precious.read_text(), (saved / f'training-{steps}.safetensors').is_file()), (TEXT, True))


def test_notices_other_data(t):
    """A run is resumed with the tokens that it had, in any file; other data must be named."""
    folder, data = fresh(t, 'data-changes'), t.work / 'changing.txt'
    data.write_text(TEXT)
    t.train('gpt2', '--data', data, '--steps', 1, '--save', folder, '-q')
    kept = [(path, path.read_bytes()) for path in sorted(folder.iterdir())]
    common = ('train', '--resume', folder, '--steps', 2, '--json', '-q')
    for text, why in ((TEXT + 'Amen.', f'{len(TEXT) + 5} tokens instead of {len(TEXT)}'),
                      (TEXT[:-2] + '!' + TEXT[-1], 'the same number of tokens, but different ones')):
        data.write_text(text)
        done = t.run(*common)
        expect(why, (done.returncode, done.stdout, done.stderr),
               (3, '', f'tessera: {data}: not the data of the saved run: {why}; to resume with it anyway, '
                   'name it with --data\n'))
        expect('nothing is lost', [(path, path.read_bytes()) for path in sorted(folder.iterdir())], kept)
    data.unlink()
    wide = t.work / 'changing.bin'
    wide.write_bytes(array.array('H', list(TEXT.encode())).tobytes())
    (folder / 'other').mkdir()
    done = t.run(*common, '--data', wide, '--save', folder / 'other')
    expect('the same tokens', (done.returncode, done.stderr), (0, ''))
    done = t.run('train', '--resume', folder / 'other', '--steps', 3, '-q')
    expect('and again', (done.returncode, done.stderr), (0, ''))
    data.write_text(TEXT + 'Amen.')
    done = t.run(*common, '--data', data)
    expect('named', (done.returncode, done.stderr), (0, ''))


def test_schedules(t):
    def rates(*options):
        return [step['learning_rate'] for step in t.train('gpt2', '--steps', 8, '--lr', '0.8',
                                                          *options)[0]]
    expect('constant', rates(), [0.8] * 8)
    warm = ['--warmup', 4]
    expect('warmup', rates(*warm), [0.2, 0.4, 0.6, 0.8, 0.8, 0.8, 0.8, 0.8])
    for form, expected in (('linear', [0.8, 0.6, 0.4, 0.2]),
                           ('cosine', [0.4 * (1 + math.cos(math.pi * i / 4)) for i in range(4)])):
        found = rates('--schedule', form, *warm)
        expect(form, [round(rate, 6) for rate in found],
               [round(rate, 6) for rate in [0.2, 0.4, 0.6, 0.8, *expected][:8]])
    linear = rates('--schedule', 'linear', '--min-lr', '0.4', *warm)
    expect('to a least rate', [round(rate, 6) for rate in linear], [0.2, 0.4, 0.6, 0.8, 0.8, 0.7, 0.6, 0.5])
    folder = fresh(t, 'scheduled')
    t.run('train', t.models['gpt2'], '--data', t.text, '--steps', 2, '--schedule', 'linear', '--min-lr', '0.0004', '--save', folder, '-q', status=0)
    done = t.run('train', '--resume', folder, '--steps', 3, '--schedule', 'constant', '--json')
    expect('another schedule has no least rate', (done.returncode, json.loads(done.stdout.splitlines()[0])['learning_rate']), (0, 0.001))
    for words, said in ((['--min-lr', '0.1'], '--min-lr needs --schedule'), (['--min-lr', '0.9', '--schedule', 'cosine'], '--min-lr is above --lr'),
                        (['--momentum', '0.9'], '--momentum needs --optimizer sgd'), (['--nesterov', '--optimizer', 'sgd'], '--nesterov needs'),
                        (['--no-decay', 'embeddings'], '--no-decay takes norms'), (['--no-decay', 'norms', '--optimizer', 'sgd'], 'only adamw'),
                        (['--no-decay', 'norms', '--ranks', 2, '--zero', 1], 'whole parameters')):
        done = t.run('train', t.models['gpt2'], '--data', t.text, '--seq', 16, '--lr', '0.8', *words)
        expect(f'{words}', (done.returncode, said in done.stderr), (2, True))


def weights(folder):
    """{name: floats} of weights in fp32."""
    return {name: struct.unpack(f'<{len(data) // 4}f', data) for name, (_, _, data) in read_safetensors(folder / 'model.safetensors')[0].items()}


def test_says_that_losses_rise(t):
    words = ['train', t.models['gpt2'], '--data', t.text, '--batch', 2, '--seq', 16, '--steps', 200, '--json']
    done = t.run(*words, '--lr', 3)
    said = [json.loads(line)['warning'] for line in done.stdout.splitlines()[:-1]]
    found = [text for text in said if text]
    expect('said', (1 <= len(found) <= 3, 'worse than guessing (5.545); try a smaller --lr than 3, or --warmup, or --clip 1' in found[0]), (True, True))
    expect('printed', [f'tessera train: {text}' for text in found], done.stderr.splitlines())
    quiet = t.run(*words)
    expect('falls', (quiet.stderr, [line for line in quiet.stdout.splitlines()[:-1] if json.loads(line)['warning']]), ('', []))


def test_momentum(t):
    """The steps of torch.optim.SGD, from the differences that plain SGD makes: the gradients of the first step, and of the second at the weights of the first."""
    config = t.work / 'dry.json'
    config.write_text(json.dumps(GPT2 | {'embd_pdrop': 0, 'attn_pdrop': 0, 'resid_pdrop': 0}))
    common = [config, '--data', t.text, '--batch', 2, '--seq', 16, '--order', 'sequential', '--json', '-q', '--optimizer', 'sgd', '--lr', '0.5', '--threads', 1]

    def run(steps, *options, name='momentum'):
        folder = fresh(t, name)
        done = t.run('train', *common, '--steps', steps, '--save', folder, *options)
        expect(f'{options}', (done.returncode, done.stderr), (0, ''))
        end = json.loads(done.stdout.splitlines()[-1])
        expect('as predicted', end['peak_bytes'], end['predicted_peak_bytes'])
        return weights(folder)
    start, once, plain = run(1, '--lr', '1e-30'), run(1), run(2)
    for options, factor in ((['--momentum', '0.9'], lambda old, new: 0.9 * old + new),
                            (['--momentum', '0.9', '--nesterov'], lambda old, new: new + 0.9 * (0.9 * old + new))):
        first, second = run(1, *options), run(2, *options)
        more = 1.9 if '--nesterov' in options else 1
        for name, whole in start.items():
            step = [before - after for before, after in zip(whole, once[name])]
            expect('the first step', max(abs(before - more * d - after) for before, d, after in zip(whole, step, first[name])) < 1e-6, True)
        if more == 1:  # the second gradient is the same, since the weights are
            for name, now in once.items():
                old = [before - after for before, after in zip(start[name], now)]
                new = [before - after for before, after in zip(now, plain[name])]
                expect('the second step', max(abs(a - factor(o, n) - b) for a, o, n, b in zip(now, old, new, second[name])) < 1e-6, True)
    run(2, '--momentum', '0.9', name='parts')
    expect('state', {name.rsplit('.', 1)[1] for name in read_safetensors(t.work / 'parts/training-2.safetensors')[0]}, {'momentum_buffer'})
    t.run('train', '--resume', t.work / 'parts', '--steps', 4, '-q')
    expect('resumed', weights(t.work / 'parts'), run(4, '--momentum', '0.9'))
    for options in (['--ranks', 2, '--zero', 2], ['--offload', 'optimizer'], ['--memory', 'placed'], ['--optimizer-in-backward'], ['--book', 'torch']):
        run(3, '--momentum', '0.9', *options)


def test_no_decay(t):
    """With a rate that moves weights by their decay alone, only those that decay get smaller."""
    config = t.work / 'dry.json'
    config.write_text(json.dumps(GPT2 | {'initializer_range': 0.5}))

    def run(*options):
        folder = fresh(t, 'decayed')
        done = t.run('train', config, '--data', t.text, '--batch', 2, '--seq', 16, '--steps', 1, '--save', folder, '--json', '-q', '--lr', '1e-6', *options)
        end = json.loads(done.stdout.splitlines()[-1])
        expect('as predicted', end['peak_bytes'], end['predicted_peak_bytes'])
        return weights(folder)
    for book in ('own', 'torch'):
        without, start = run('--weight-decay', 0, '--book', book), None
        for options, kept in (([], ()), (['--no-decay', 'norms'], ('ln_',)), (['--no-decay', 'biases'], ('bias',)), (['--no-decay', 'norms,biases'], ('ln_', 'bias'))):
            decayed = run('--weight-decay', 50000, *options, '--book', book)
            for name, numbers in without.items():
                is_kept = any(word in name for word in kept)
                factor = 1 if is_kept else 1 - 1e-6 * 50000
                expect(f'{options}: {name}', all(abs(a * factor - b) < 1e-5 for a, b in zip(numbers, decayed[name])), True)


def start(t, *options):
    return subprocess.Popen([t.path, 'train', *map(str, options), '--json'],
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_goes_on(t):
    """A run that was interrupted, terminated or killed resumes where it was saved, and ends like an uninterrupted
    one."""
    common = [t.models['gpt2'], '--data', t.text, '--batch', 2, '--seq', 16, '--steps', 600,
              '--schedule', 'cosine', '--warmup', 5, '--save-every', 3]
    whole, parts = fresh(t, 'whole'), fresh(t, 'parts-of-a-run')
    last = parts / 'training-600.safetensors'  # on a busy machine a signal may come after it
    expect('whole', t.run('train', *common, '--save', whole, '-q').returncode, 0)
    for end in (signal.SIGINT, signal.SIGKILL, signal.SIGTERM, signal.SIGKILL, signal.SIGHUP):
        if last.exists():
            break
        if (parts / 'model.safetensors').exists():
            process = start(t, '--resume', parts, '--save-every', 3)
        else:
            process = start(t, *common, '--save', parts)
        for _ in range(5):
            process.stdout.readline()
        process.send_signal(end)
        out, err = process.communicate()
        if end == signal.SIGKILL:
            continue
        summary = json.loads(out.splitlines()[-1])
        expect(f'{end}', (process.returncode, summary['interrupted'] or summary['saved']), (0, True))
        expect('says so', f'tessera train: saved {parts} after step ' in err, True)
    if not last.exists():
        done = t.run('train', '--resume', parts, '-q')
        expect('the rest', (done.returncode, done.stderr), (0, ''))
    for file in ('model.safetensors', 'training-600.safetensors'):
        expect(file, read_safetensors(parts / file)[0], read_safetensors(whole / file)[0])
    expect('nothing is left behind', sorted(path.name for path in parts.iterdir()),
           ['config.json', 'model.safetensors', 'training-600.safetensors'])


def test_keeps_what_others_save(t):
    """A folder belongs to one run at a time, outputs are checked at the start, and a run is resumed with all
    of its state or not at all."""
    folder, common = fresh(t, 'taken'), ('train', t.models['gpt2'], '--data', t.text, '--seq', 16)
    process = start(t, *common[1:], '--steps', 900000, '--save', folder)
    process.stdout.readline()
    done = t.run(*common, '--save', folder)
    process.send_signal(signal.SIGINT)
    process.communicate()
    expect('taken', (done.returncode, f"'{folder}' is in use: another run saves to it" in done.stderr,
                     done.stdout), (2, True, ''))
    expect('saved', (folder / 'model.safetensors').exists(), True)
    done = t.run('train', '--resume', folder, '--optimizer', 'sgd', '--steps', 900000)
    expect('state', (done.returncode, 'trained with another --optimizer' in done.stderr, done.stdout),
           (3, True, ''))
    for option in ('--snapshot', '--write-rates'):
        path = t.work / 'absent-folder' / 'a.json'
        done = t.run(*common, option, path)
        expect(option, (done.returncode, done.stdout, done.stderr),
               (4, '', f'tessera train: {path}: No such file or directory\n'))
    with open('/dev/full', 'w', encoding='utf-8') as full:
        for form in ('--json', '-q'):
            done = t.run(*common, form, stdout=full)
            expect(f'full {form}', (done.returncode, done.stderr),
                   (4, 'tessera: standard output: No space left on device\n'))
    done = t.run(*common, '--offload', 'activations:disk', '--offload-dir', '/absent')
    expect('no folder', (done.returncode, done.stderr),
           (3, 'tessera train: /absent: cannot make a file there: No such file or directory\n'))


def test_names_the_type_of_weights(t):
    """config.json has the type of the saved weights, and is otherwise the model's."""
    config, folder = t.work / 'published.json', fresh(t, 'typed')
    for key, options, name in (('torch_dtype', (), 'float32'), ('dtype', ('--dtype', 'bf16'), 'bfloat16'),
                               ('other', (), 'float16')):
        config.write_text(json.dumps(GPT2 | {key: 'float16', 'layer_norm_epsilon': 1e-05}))
        folder = fresh(t, f'typed-{key}')
        done = t.run('train', config, '--data', t.text, '--seq', 16, '--steps', 1, '--save', folder, *options)
        saved = json.loads((folder / 'config.json').read_text())
        expect(key, (done.returncode, saved), (0, GPT2 | {key: name, 'layer_norm_epsilon': 1e-05,
                                                              'architectures': ['GPT2LMHeadModel']}))


def test_keeps_the_last_good_state(t):
    """A loss that is not finite ends the run, and the state before it is saved. So does a file of tokens that
    becomes shorter."""
    folder, whole = fresh(t, 'diverged'), fresh(t, 'whole')
    done = t.run('train', t.models['gpt2'], '--data', t.text, '--batch', 2, '--seq', 16, '--lr',
                 '1e30', '--steps', 9, '--save', folder)
    expect('diverged', (done.returncode, done.stderr.splitlines()),
           (1, [f'tessera train: saved {folder} after step 1; resume with: tessera train --resume '
                f'{folder}',
                'tessera train: the loss or a gradient of step 2 is not a finite number; a smaller '
                '--lr may help']))
    t.train('gpt2', '--steps', 1, '--lr', '1e30', '--save', whole, '-q')
    for file in ('model.safetensors', 'training-1.safetensors'):
        expect(file, read_safetensors(folder / file)[0], read_safetensors(whole / file)[0])
    data, folder = t.work / 'shrinking.txt', fresh(t, 'shrunk')
    data.write_text(TEXT)
    process = start(t, t.models['gpt2'], '--data', data, '--seq', 16, '--steps', 900000, '--save',
                    folder)
    process.stdout.readline()
    data.write_text('')
    out, err = process.communicate()
    steps = [json.loads(line)['step'] for line in out.splitlines()]
    saved, why = err.splitlines()
    expect('shrunk', (process.returncode, saved, why.split(' (at byte')[0]),
           (3, f'tessera train: saved {folder} after step {steps[-1]}; resume with: tessera train '
               f'--resume {folder}', f'tessera: {data}: the file has become shorter while it is read'))


def sample(t, folder, prompt, *options):
    done = t.run('sample', folder, '--ids', '--prompt', ' '.join(map(str, prompt)), *options)
    expect('exit status', (done.returncode, done.stderr), (0, ''))
    return [int(token) for token in done.stdout.split()]


def on_terminal(t, *words):
    """What a terminal gets of the command."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen([t, *map(str, words)], stdout=theirs, stderr=subprocess.DEVNULL)
    os.close(theirs)
    parts = []
    while True:
        try:
            part = os.read(ours, 65536)
        except OSError:  # Linux: the terminal has been closed
            part = b''
        if not part:
            break
        parts.append(part)
    os.close(ours)
    expect('exit status', process.wait(), 0)
    return b''.join(parts).replace(b'\r\n', b'\n').decode()


def test_a_text_is_no_data_for_trained_words(t):
    """Random weights may learn bytes with any vocabulary; trained ones with a tokenizer would lose what they know."""
    config, folder = t.work / 'words.json', fresh(t, 'words')
    config.write_text(json.dumps(GPT2 | {'vocab_size': 2000}))
    common = ['--data', t.text, '--batch', 2, '--seq', 16, '--steps', 1, '-q']
    expect('random weights', t.run('train', config, *common, '--save', folder).returncode, 0)
    done = t.run('train', folder, *common)
    expect('trained weights', (done.returncode, done.stderr),
           (3, f'tessera: {t.text}: a text, of which each byte would be a token; this trained model has its own tokenizer, of 2000 tokens: name it '
               'with --tokenizer, give a file of their numbers (--tokens u16 or u32), or --tokens bytes if it was trained on bytes\n'))
    expect('on purpose', t.run('train', folder, *common, '--tokens', 'bytes').returncode, 0)
    expect('resumed', t.run('train', '--resume', folder, '--steps', 2, '-q').returncode, 0)


def test_a_tokenizer_makes_tokens_of_a_text(t):
    """The folder's tokenizer is used by train, saved with the weights, and used by sample, which ends where it is asked to."""
    spoken, saved, numbers = fresh(t, 'spoken'), fresh(t, 'spoken-run'), t.work / 'spoken.bin'
    spoken.mkdir()
    (spoken / 'config.json').write_text(json.dumps(GPT2 | {'vocab_size': 600, 'eos_token_id': 599}))
    shutil.copyfile(ROOT / 'tests/golden/tokens/gpt2.json', spoken / 'tokenizer.json')
    (spoken / 'special_tokens_map.json').write_text('{}')
    common = ['--batch', 2, '--seq', 16, '--steps', 4, '--lr', '0.01']
    trained = t.run('train', spoken, '--data', t.text, *common, '--save', saved)
    expect('trained', (trained.returncode, f'tokens, by {spoken}/tokenizer.json' in trained.stderr), (0, True))
    for name in ('tokenizer.json', 'special_tokens_map.json'):
        expect(f'{name} is saved', (saved / name).read_bytes(), (spoken / name).read_bytes())
    expect('tokens', t.run('tokens', '--tokenizer', spoken, t.text, '-o', numbers).returncode, 0)
    again = t.run('train', spoken, '--data', numbers, *common)
    losses = [line.split('loss')[1].split()[0] for line in trained.stdout.splitlines() if line.startswith('step')]
    expect('a file of tokens', [line.split('loss')[1].split()[0] for line in again.stdout.splitlines() if line.startswith('step')], losses)
    expect('resumed', t.run('train', '--resume', saved, '--steps', 5, '-q').returncode, 0)
    how = ['--prompt', 'the fox', '--tokens', 12, '--temperature', 0]
    text = t.run('sample', saved, *how)
    expect('sampled', (text.returncode, bool(text.stdout.strip())), (0, True))
    stop = text.stdout[2:5]
    expect('stopped', t.run('sample', saved, *how, '--stop', stop, '--stop', 'not there').stdout,
           text.stdout[:text.stdout.index(stop)] + '\n')
    expect('the most likely', t.run('sample', saved, *how[:4], '--top-p', '1e-9').stdout, text.stdout)
    ids = t.run('sample', saved, '--ids', '--prompt', '5 6', '--tokens', 9, '--temperature', 0).stdout.split()
    (saved / 'generation_config.json').write_text(json.dumps({'eos_token_id': [int(ids[4])]}))
    ended = t.run('sample', saved, '--ids', '--prompt', '5 6', '--tokens', 9, '--temperature', 0).stdout.split()
    expect('ended', ended, ids[:ids.index(ids[4])])


def test_notices_flipped_bytes(t):
    """Whatever changes in a saved file is noticed before the first step, by the name of the file or of an array that the model needs,
    and nothing is written."""
    folder, rng = fresh(t, 'flipped'), random.Random(20261127)
    t.train('gpt2', '--steps', 2, '--save', folder, '-q')
    files = sorted(folder.iterdir())
    for path in files:
        good = path.read_bytes()
        for _ in range(200 if os.environ.get('TESSERA_WHOLE') else 12):
            changed = bytearray(good)
            at, count = rng.randrange(len(good)), rng.choice((1, 1, 64))
            changed[at:at + count] = bytes(len(changed[at:at + count])) if count > 1 else [changed[at] ^ 1 << rng.randrange(8)]
            if bytes(changed) == good:
                continue
            path.write_bytes(changed)
            done = t.run('train', '--resume', folder, '--steps', 3)
            why = done.stderr.splitlines()[-1]
            expect(f'byte {at} of {path.name}: {why}', (done.returncode, done.stdout, path.name in why or 'array "' in why), (3, '', True))
            expect('nothing is written', sorted(folder.iterdir()), files)
        path.write_bytes(good)
    expect('as it was', t.run('train', '--resume', folder, '--steps', 3, '-q').returncode, 0)


def test_notices_another_configuration(t):
    """Weights of a run are of the model that it was, wherever they are read."""
    folder = fresh(t, 'reconfigured')
    t.train('gpt2', '--steps', 1, '--save', folder, '-q')
    config = json.loads((folder / 'config.json').read_text())
    (folder / 'config.json').write_text(json.dumps({**config, 'n_head': 2}))
    for words in (('train', '--resume', folder, '--steps', 2), ('train', folder, '--data', t.text), ('sample', folder)):
        done = t.run(*words)
        expect(str(words[:2]), (done.returncode, 'config.json' in done.stderr), (3, True))


def test_killed_between_the_files_of_another_type(t):
    """A run that is resumed with another type writes config.json, which names it, before the weights."""
    config, folder = t.work / 'typed.json', fresh(t, 'typed')
    config.write_text(json.dumps(GPT2 | {'torch_dtype': 'float32'}))
    common = ['--data', t.text, '--batch', 2, '--seq', 16, '-q']
    expect('saved', t.run('train', config, *common, '--steps', 1, '--save', folder).returncode, 0)
    saved = json.loads((folder / 'config.json').read_text())
    (folder / 'config.json').write_text(json.dumps(saved | {'torch_dtype': 'bfloat16'}, indent=2))
    expect('resumed', t.run('train', '--resume', folder, '--steps', 2, '-q').returncode, 0)


def test_notices_states_that_no_optimizer_keeps(t):
    """The states of earlier versions have no checksums."""
    folder = fresh(t, 'unsound')
    t.train('gpt2', '--steps', 1, '--save', folder, '-q')
    drop_checksums(folder)
    file = folder / 'training-1.safetensors'
    arrays, notes = read_safetensors(file)
    for ending, value in (('exp_avg', float('nan')), ('exp_avg_sq', float('inf')), ('exp_avg_sq', -1.0)):
        name = next(name for name in arrays if name.endswith('.' + ending))
        kind, shape, data = arrays[name]
        write_safetensors(file, {**arrays, name: (kind, shape, struct.pack('<f', value) + data[4:])}, notes)
        done = t.run('train', '--resume', folder, '--steps', 2)
        expect(f'{ending} {value}', (done.returncode, done.stderr.splitlines()[-1]),
               (3, f'tessera: {folder}: array "{name}" of the saved training has an element that no optimizer keeps: it is not finite, '
                   'or negative'))


def test_weights_that_are_not_finite_replace_none(t):
    """Gradients and loss may be finite and a weight overflow all the same."""
    folder = fresh(t, 'overflowed')
    done = t.run('train', t.models['gpt2'], '--data', t.text, '--batch', 2, '--seq', 16, '--lr', '1e39', '--optimizer', 'sgd', '--steps', 1,
                 '--save', folder, '-q')
    expect('refused', (done.returncode, 'has an element that is not a finite number' in done.stderr, folder.exists()), (4, True, False))


@pytest.mark.skipif(os.geteuid() != 0, reason='only root may mount a small disk')
def test_a_full_disk(t):
    """It is found before the first step; one that fills up meanwhile does not end the run, and has no half of a save."""
    disk = fresh(t, 'disk')
    disk.mkdir()
    if subprocess.run(['mount', '-t', 'tmpfs', '-o', 'size=256k', 'tmpfs', disk], check=False, capture_output=True).returncode:
        pytest.skip('no file system can be mounted here')
    try:
        words = [t.models['gpt2'], '--data', t.text, '--batch', 2, '--seq', 16]
        (disk / 'filler').write_bytes(bytes(200_000))
        done = t.run('train', *words, '--steps', 2, '--save', disk / 'run')
        expect('before the first step', (done.returncode, done.stdout, 'left; free some' in done.stderr, (disk / 'run').exists()),
               (4, '', True, False))
        subprocess.run(['mount', '-o', 'remount,size=8m', disk], check=True)
        (disk / 'filler').unlink()
        process = start(t, *words, '--steps', 900000, '--save', disk / 'run', '--save-every', 1)
        while not (disk / 'run/model.safetensors').exists():
            process.stdout.readline()
        is_enough = threading.Event()

        def fill():
            """Take what a save that failed gives back, too."""
            with (disk / 'filler').open('wb', 0) as filler:
                while not is_enough.wait(0.0005):
                    with contextlib.suppress(OSError):
                        while filler.write(bytes(4096)):
                            pass

        filling = threading.Thread(target=fill, daemon=True)
        filling.start()
        threading.Thread(target=lambda: [None for _ in process.stdout], daemon=True).start()
        said = []
        while not any('the run goes on' in line for line in said):
            said.append(process.stderr.readline())
        for name in ('config.json', 'model.safetensors'):
            expect(f'{name} is the last good one', (disk / 'run' / name).stat().st_size > 0, True)
        copy = shutil.copytree(disk / 'run', fresh(t, 'from-the-disk'))
        steps = int(read_safetensors(copy / 'model.safetensors')[1]['tessera_training'].split('-')[1].split('.')[0])
        good = t.run('train', '--resume', copy, '--steps', steps + 1, '-q').returncode
        process.send_signal(signal.SIGTERM)
        while not any('trying again in' in line for line in said):
            said.append(process.stderr.readline())
            expect('it waits for room', said[-1] != '', True)
        is_enough.set()
        filling.join()
        (disk / 'filler').unlink()
        rest = process.stderr.read()
        expect('saved at last', (process.wait(), 'saved' in rest, good), (0, True, 0))
    finally:
        subprocess.run(['umount', '-l', disk], check=False)


def test_samples_do_not_drive_a_terminal(t):
    """A model can print any bytes; a terminal gets the characters among them, and a pipe the bytes."""
    folder, text = fresh(t, 'driving'), t.work / 'driving.txt'
    whole = '\x1b[2Ja\u009bb\u202ec\U000e0041d\u200be\u00adf\u00e9\u20ac\U0001f600\n'
    text.write_text(whole * 60)
    config = t.work / 'driving.json'
    config.write_text(json.dumps(GPT2 | {'n_positions': 128}))
    t.run('train', config, '--data', text, '--seq', 64, '--steps', 120, '--lr', '0.01', '--save', folder, '-q', status=0)
    words = ('sample', folder, '--prompt', '\n', '--temperature', 0, '--tokens', 2 * len(whole.encode()))
    raw = subprocess.run([t, *map(str, words)], stdout=subprocess.PIPE, check=True).stdout
    expect('a pipe', raw.decode(), whole * 2 + '\n')
    expect('a terminal', on_terminal(t, *words), '?[2Ja?b?c?d?e?f\u00e9\u20ac\U0001f600\n' * 2 + '\n')
    broken = ('sample', folder, '--prompt', 'f\u00e9\u20ac', '--temperature', 0, '--tokens', 3)
    expect('cut', on_terminal(t, *broken), '?\n')


def test_samples(t):
    """A model can repeat a text that it has memorized, from any position."""
    for model in t.models:
        folder = fresh(t, f'sampled-{model}')
        heart = t.work / 'heart.txt'
        heart.write_text('abcdefghijklmnopqrstuvwxyz. ' * 40)
        t.train(model, '--data', heart, '--steps', 60, '--lr', '0.01', '--save', folder, '-q')
        greedy = ('--temperature', 0, '--tokens')
        done = t.run('sample', folder, '--prompt', 'abcd', *greedy, 12)
        expect(f'{model}', (done.returncode, done.stdout, done.stderr), (0, 'efghijklmnop\n', ''))
        whole = sample(t, folder, b'xyz', *greedy, 40)
        expect('from the middle', sample(t, folder, [*b'xyz', *whole[:9]], *greedy, 31), whole[9:])
        expect('the most likely one', sample(t, folder, b'xyz', '--top-k', 1, '--tokens', 40), whole)
        expect('threads', sample(t, folder, b'xyz', *greedy, 40, '--threads', 3), whole)
        done = t.run('sample', folder, '--prompt', 'abcdefgh', *greedy, 1, '--context', 3)
        expect('a short context', ([*done.stdout[:-1].encode()], done.stderr),
               (sample(t, folder, b'fgh', *greedy, 1), "tessera sample: the model saw the last 3 of the prompt's 8 tokens (--context)\n"))
        drawn = [sample(t, folder, b'q', '--tokens', 40, '--temperature', 3, '--seed', seed)
                 for seed in (1, 1, 2)]
        expect('seeds', (drawn[0] == drawn[1], drawn[0] == drawn[2]), (True, False))
        likely = sample(t, folder, b'q', '--tokens', 40, '--temperature', 50, '--top-k', 2)
        expect('top-k leaves a choice', len(set(likely)) > 1, True)
    for options, status, text in (
            (('--prompt', ''), 2, 'the prompt is empty'),
            (('--ids', '--prompt', '256'), 2, 'token 256 of the prompt is not in the model\'s'),
            (('--ids', '--prompt', 'abc'), 2, '--prompt needs numbers of tokens with --ids'),
            (('--temperature', 'hot'), 2, '--temperature needs a number of at least 0, not \'hot\'')):
        done = t.run('sample', t.work / 'sampled-llama', *options)
        expect(text, (done.returncode, text in done.stderr), (status, True))
    done = t.run('sample', t.models['gpt2'])
    expect('no folder', (done.returncode, 'is neither a folder' in done.stderr), (2, True))
    large = fresh(t, 'large')
    config = t.work / 'large.json'
    config.write_text(json.dumps(GPT2 | {'vocab_size': 5000, 'initializer_range': 2}))
    t.run('train', config, '--data', t.text, '--seq', 8, '--steps', 1, '--save', large)
    done = t.run('sample', large)
    expect('no bytes', (done.returncode, 'is not a byte: the model was trained with a tokenizer'
                        in done.stderr), (3, True))
    (large / 'model.safetensors').write_bytes(b'short')
    done = t.run('sample', large)
    expect('damaged', (done.returncode, done.stderr),
           (3, f'tessera: {large}: model.safetensors: too short for a safetensors file (at byte 0)\n'))


def test_keeps_keys_and_values(t, is_sanitized):
    """A text has the same tokens whether keys and values are kept, or all tokens computed again for each one; and takes the predicted memory."""
    rng, mistral = random.Random(37), t.work / 'mistral.json'
    mistral.write_text(json.dumps(LLAMA | {'model_type': 'mistral', 'sliding_window': 7, 'num_key_value_heads': 2}))
    for model in (*t.models.values(), mistral):
        folder = fresh(t, 'kept')
        wide = t.work / 'wide.json'
        wide.write_text(json.dumps(json.loads(model.read_text()) | {'initializer_range': 0.5}))
        t.run('train', wide, '--data', t.text, '--seq', 16, '--steps', 1, '--lr', 1e-9, '--save', folder, '-q', status=0)
        for _ in range(2 if is_sanitized else 8):
            prompt, count = [rng.randrange(256) for _ in range(rng.randint(1, 30))], rng.randint(2, 30)
            context = ['--context', rng.randint(1, 50)] if rng.random() < 0.6 else ['--context', 60]
            words = ('sample', folder, '--ids', '--temperature', 0, *context, '--prompt')
            done = t.run(*words, ' '.join(map(str, prompt)), '--tokens', count, '--stats', '--threads', rng.randint(1, 3))
            text = [int(token) for token in done.stdout.split()]
            expect('length', len(text), count)
            for k, token in enumerate(text):
                so_far = ' '.join(map(str, [*prompt, *text[:k]]))
                expect(f'{model.name} {words} {so_far}', int(t.run(*words, so_far, '--tokens', 1).stdout), token)
            memory = re.search(r'memory: (.*?), predicted (.*?)(?:,|$)', done.stderr)
            expect('memory', memory[1], memory[2])
            if len(prompt) < context[1]:
                expect('cache', 'of which' in done.stderr, True)


def test_samples_while_it_trains(t):
    """After each save, with the saved weights; the run stays the same."""
    folder, other = fresh(t, 'sampling'), fresh(t, 'not-sampling')
    common = ['train', t.models['gpt2'], '--data', t.text, '--seq', 16, '--steps', 10, '--save-every', 5]
    sampling = ['--sample', 'two sheep\nthree', '--sample-tokens', 12]
    done = t.run(*common, '--save', folder, *sampling, '--json', '-q')
    expect('runs', (done.returncode, done.stderr), (0, ''))
    events = [json.loads(line) for line in done.stdout.splitlines()]
    samples = [event for event in events if event['event'] == 'sample']
    expect('after each save', [(s['step'], s['prompt']) for s in samples], [(5, 'two sheep\nthree'), (10, 'two sheep\nthree')])
    plain = t.run(*common, '--save', other, '--json', '-q')
    expect('the same run', [event['loss'] for event in events if event['event'] == 'step'],
           [json.loads(line)['loss'] for line in plain.stdout.splitlines()[:-1]])
    expect('the same weights', (folder / 'model.safetensors').read_bytes(), (other / 'model.safetensors').read_bytes())
    text = t.run('sample', folder, '--prompt', 'two sheep\nthree', '--tokens', 12, '--seed', 10, text=False)
    expect('of the saved weights', samples[1]['text'], text.stdout[:-1].decode('utf-8', 'replace'))
    shutil.rmtree(folder)
    lines = t.run(*common, '--save', folder, *sampling).stdout.splitlines()
    at = lines.index('sample after step 10:')
    expect('printed', (lines[at + 1], lines[at + 2][:7]), ('  two sheep', '  three'))
    for words, said in ((['--save', fresh(t, 'unsampled'), '--sample-tokens', 2**64 - 1], '--sample-tokens must be from 1 to 1,000,000'),
                        (['--save', fresh(t, 'unsampled'), '--sample-tokens', 0], '--sample-tokens must be from 1 to 1,000,000'), ([], '--sample needs --save'), (['--save', fresh(t, 'sampled-adapters'), '--lora', 2], '--lora saves adapters alone')):
        done = t.run('train', t.models['gpt2'], '--data', t.text, *sampling, *words)
        expect(said, (done.returncode, said in done.stderr), (2, True))
    done = t.run(*common, '--save', fresh(t, 'unsampled'), '--sample-tokens', 3)
    expect('without a text', (done.returncode, '--sample-tokens needs --sample' in done.stderr), (2, True))
    narrow = t.work / 'narrow.json'
    narrow.write_text(json.dumps(GPT2 | {'vocab_size': 100}))
    digits = t.work / 'digits.txt'
    digits.write_text('0123456789' * 50)
    done = t.run('train', narrow, '--data', digits, '--seq', 8, '--steps', 1, '--save', fresh(t, 'unsampled'), '--sample', 'x')
    expect('no token of the model', (done.returncode, done.stdout, "token 120 of the text is not in the model's vocabulary" in done.stderr), (2, '', True))
    done = t.run('train', '--resume', folder, '--steps', 11, '--json', '-q')
    expect('resumed', [json.loads(line)['event'] for line in done.stdout.splitlines()], ['step', 'sample', 'end'])
    done = t.run('train', '--resume', folder, '--steps', 12, '--sample', '', '--json', '-q')
    expect('turned off', [json.loads(line)['event'] for line in done.stdout.splitlines()], ['step', 'end'])


def test_by_op(t):
    """The ops of a step add up to the step."""
    for model in t.models:
        done = t.run('train', t.models[model], '--data', t.text, '--json', '--batch', 2, '--seq', 16,
                     '--steps', 3, '--by', 'op')
        *_, ops, end = [json.loads(line) for line in done.stdout.splitlines()]
        ops = ops['ops']
        expect('flops', sum(op['flops'] for op in ops), end['step_flops'])
        expect('seconds', 0 < sum(op['seconds'] for op in ops) <= end['seconds'], True)
        expect('the longest first', ops, sorted(ops, key=lambda op: (-op['seconds'], op['op'])))
        expect('each once', len({(op['op'], op['phase']) for op in ops}), len(ops))
        expect('phases', {'forward', 'backward', 'optimizer'} <= {op['phase'] for op in ops}, True)
    lines = t.run('train', t.models['gpt2'], '--data', t.text, '--steps', 1, '--by',
                  'op').stdout.splitlines()
    expect('a table of 80 columns', max(len(line) for line in lines[2:]), 80)


def documented(name):
    """The fields in a table of docs/json.md, and their types."""
    page = (ROOT / 'docs' / 'json.md').read_text(encoding='utf-8')
    rows = page.partition(f'<!-- fields of {name} -->')[2].partition('<!-- end -->')[0].splitlines()[3:]
    return {cells[1].strip(' `'): cells[2].strip() for cells in (row.split('|') for row in rows)}


def fields_of(event, prefix=''):
    for key, value in event.items():
        yield prefix + key
        for part in value if isinstance(value, list) else []:
            yield from fields_of(part, f'{prefix}{key}[].')


def evaluated(t, *options):
    """Losses, those of validation by step, and the summary."""
    steps, end = t.train('gpt2', '--steps', 7, '--val', t.work / 'wolves.txt', '--eval-every', 3, *options)
    return [step['loss'] for step in steps], {step['step']: step['validation_loss'] for step in steps if step['validation_loss']}, end


def test_evaluates(t):
    """Evaluations have the loss of the weights that they follow, and change neither losses, weights nor the rule that memory is as predicted."""
    (t.work / 'wolves.txt').write_text(''.join(f'{number} wolves came, and ate {number % 7} sheep. ' for number in range(200)))
    found, end = evaluated(t)[1:]
    expect('when', sorted(found), [3, 6, 7])
    expect('the best', (end['validation_loss'], end['best_validation_loss'], end['best_validation_step']),
           (found[7], min(found.values()), min(found, key=found.get)))
    for options in ([], ['--eval-steps', 1], ['--eval-batch', 5], ['--loss', 'chunked:8'], ['--memory', 'placed'], ['--checkpoint', 'full'],
                    ['--offload', 'optimizer,gradients,parameters,activations'], ['--optimizer-in-backward'], ['--dtype', 'bf16'],
                    ['--book', 'torch'], ['--book', 'torch', '--offload', 'activations'], ['--leak', 'batches'],
                    *(['--ranks', 2, '--zero', stage] for stage in range(4))):
        own, again, summary = evaluated(t, *options)
        expect(f'{options}: losses', own, losses(t, '--steps', 7, *([] if '--eval' in str(options) else options)))
        for what in ('peak', 'reserved', 'host', 'data'):
            expect(f'{options}: {what}', summary[f'{what}_bytes'], summary[f'predicted_{what}_bytes'])
        for rank in summary['ranks'] or []:
            expect(f'{options}: sent', rank['sent_bytes'], rank['predicted_sent_bytes'])
        expect(f'{options}: when', sorted(again), [3, 6, 7])
    alone = evaluated(t, '--accumulate', 2, '--seed', 3, '--eval-steps', 5)[1]
    spread = [evaluated(t, '--ranks', 2, '--zero', stage, '--seed', 3, '--eval-steps', 5, '--accumulation', 'grouped')[1] for stage in (0, 3)]
    expect('whatever the stage', spread[0], spread[1])
    expect('about what one process has', all(abs(alone[step] - spread[0][step]) < 1e-4 for step in alone), True)


def test_evaluates_what_it_trains_on(t):
    """On one sequence, the loss of an evaluation is that of the next step, bit for bit."""
    (t.work / 'one.txt').write_text(TEXT[:16])
    config = t.work / 'dry.json'
    config.write_text(json.dumps(GPT2 | {'embd_pdrop': 0, 'attn_pdrop': 0, 'resid_pdrop': 0}))
    done = t.run('train', config, '--data', t.work / 'one.txt', '--val', t.work / 'one.txt', '--eval-every', 1, '--eval-steps', 3,
                 '--batch', 2, '--seq', 16, '--steps', 5, '--json')
    steps = [json.loads(line) for line in done.stdout.splitlines()[:-1]]
    for before, after in zip(steps, steps[1:]):
        expect('loss', before['validation_loss'], after['loss'])


def test_evaluates_after_a_resume(t):
    (t.work / 'wolves.txt').write_text('The wolves came. ' * 99)
    words = ['train', t.models['gpt2'], '--data', t.text, '--val', t.work / 'wolves.txt', '--eval-every', 2, '--batch', 2, '--seq', 16,
             '--json', '-q', '--steps']
    whole, folder = t.run(*words, 9), fresh(t, 'evaluated')
    t.run(*words, 5, '--save', folder)
    rest = t.run('train', '--resume', folder, '--steps', 9, '--json', '-q')
    for first, second in zip(whole.stdout.splitlines()[5:9], rest.stdout.splitlines()):
        first, second = json.loads(first), json.loads(second)
        expect('step', [first[key] for key in ('step', 'loss', 'validation_loss')], [second[key] for key in ('step', 'loss', 'validation_loss')])


def files_of(folder):
    return sorted(path.name for path in folder.iterdir())


def test_keeps_the_best(t):
    """DIR/best has the weights of the best evaluation, also after a resume that makes worse ones, and continues as any saved run."""
    folder = fresh(t, 'with-best')
    words = ['train', t.models['gpt2'], '--data', t.text, '--val', t.text, '--eval-every', 1, '--eval-steps', 4, '--batch', 2, '--seq', 16,
             '--json', '-q', '--save', folder, '--steps']
    done = t.run(*words, 4, '--lr', '0.01')
    best = json.loads(done.stdout.splitlines()[-1])
    expect('the last is the best', best['best_validation_step'], 4)
    expect('files', (files_of(folder), files_of(folder / 'best')),
           (['best', 'config.json', 'model.safetensors', 'training-4.safetensors'], ['config.json', 'model.safetensors', 'training-4.safetensors']))
    expect('the same weights', read_safetensors(folder / 'best/model.safetensors')[0], read_safetensors(folder / 'model.safetensors')[0])
    expect('noted', f"best-validation=4 {best['best_validation_loss']:.6g}" in read_safetensors(folder / 'training-4.safetensors')[1]['notes'], True)
    before = (folder / 'best/model.safetensors').read_bytes()
    done = t.run('train', '--resume', folder, '--steps', 6, '--lr', 10, '--json', '-q')
    expect('worse', json.loads(done.stdout.splitlines()[-1])['validation_loss'] > best['validation_loss'], True)
    expect('kept', (files_of(folder / 'best'), (folder / 'best/model.safetensors').read_bytes() == before), (['config.json', 'model.safetensors', 'training-4.safetensors'], True))
    expect('sampled', t.run('sample', folder / 'best', '--tokens', 2, '--prompt', '70', '--ids').returncode, 0)
    expect('resumed', t.run('train', '--resume', folder / 'best', '--steps', 5, '-q').returncode, 0)
    expect('used', 'already contains weights' in t.run(*words, 4).stderr, True)
    shutil.rmtree(folder / 'best')
    (t.work / 'elsewhere').mkdir(exist_ok=True)
    (folder / 'best').symlink_to(t.work / 'elsewhere')
    done = t.run('train', '--resume', folder, '--steps', 8, '-q')
    expect('a link', (done.returncode, 'a link, which leads elsewhere' in done.stderr, list((t.work / 'elsewhere').iterdir())), (4, True, []))


def test_keeps_the_best_adapters(t):
    base, folder = fresh(t, 'base'), fresh(t, 'best-adapters')
    t.train('gpt2', '--steps', 2, '--save', base, '-q')
    done = t.run('train', base, '--tokens', 'bytes', '--data', t.text, '--val', t.text, '--eval-every', 1, '--batch', 2, '--seq', 16, '--lora', 2, '--lr', '0.01',
                 '--steps', 3, '--save', folder, '--json', '-q')
    best = json.loads(done.stdout.splitlines()[-1])['best_validation_step']
    t.run('train', '--resume', folder, '--steps', 5, '--lr', 100, '-q')
    expect('kept', [name for name in files_of(folder / 'best') if 'training' in name], [f'training-{best}.safetensors'])


def test_saves_by_time(t):
    folder = fresh(t, 'timely')
    process = start(t, t.models['gpt2'], '--data', t.text, '--batch', 2, '--seq', 16, '--steps', 900000, '--save', folder, '--save-every', '1s')
    saved = set()
    for line in process.stdout:
        saved |= {path.name for path in folder.glob('training-*')}
        if len(saved) > 1 or json.loads(line)['step'] == 900000:
            break
    process.kill()
    process.communicate()
    expect('saves', len(saved) > 1, True)
    for wrong in ('0', 'x', '5 parsecs', '-1', '1e3'):
        done = t.run('train', t.models['gpt2'], '--data', t.text, '--save', folder, '--save-every', wrong)
        expect(wrong, (done.returncode, '--save-every needs a number of steps, or a time' in done.stderr), (2, True))


def test_logs(t):
    """A row for each step, also over a resume: rows of steps that are made again, and a broken one, are cut away."""
    words = ['--data', t.text, '--val', t.text, '--eval-every', 2, '--eval-steps', 1, '--batch', 2, '--seq', 16, '--clip', 1, '-q', '--steps']
    whole, folder, log = t.work / 'whole.csv', fresh(t, 'logged'), t.work / 'parts.csv'

    def rows(path):
        lines = [line.split(',') for line in path.read_text().splitlines()]
        expect('header', lines[0], ['step', 'loss', 'val_loss', 'learning_rate', 'gradient_norm', 'tokens_per_second', 'seconds', 'peak_bytes'])
        return [row[:5] for row in lines[1:]]
    steps = t.run('train', t.models['gpt2'], *words, 9, '--log', whole, '--json').stdout.splitlines()[:-1]
    expect('as in the JSON', [[float(cell) if cell else None for cell in row] for row in rows(whole)],
           [[json.loads(line)[key] for key in ('step', 'loss', 'validation_loss', 'learning_rate', 'gradient_norm')] for line in steps])
    t.run('train', t.models['gpt2'], *words, 6, '--log', log, '--save', folder)
    log.write_text(log.read_text() + '7,1.5,,0.001,1,2,3,4\n8,1.')
    expect('resumed', t.run('train', '--resume', folder, '--steps', 9, '--log', log, '-q').returncode, 0)
    expect('rows', rows(log), rows(whole))
    lines = t.work / 'run.jsonl'
    t.run('train', t.models['gpt2'], *words, 4, '--log', lines)
    expect('JSON lines', [(row['step'], row['val_loss'] is None) for row in map(json.loads, lines.read_text().splitlines())],
           [(1, True), (2, False), (3, True), (4, False)])
    done = t.run('train', t.models['gpt2'], *words, 4, '--log', t.work / 'run.txt')
    expect('another name', (done.returncode, '--log writes .csv or .jsonl' in done.stderr), (2, True))
    (t.work / 'other.csv').write_text('a,b\n1,2\n')
    done = t.run('train', '--resume', folder, '--steps', 12, '--log', t.work / 'other.csv')
    expect('not a log', (done.returncode, 'is not a log that train has written' in done.stderr, (t.work / 'other.csv').read_text()), (2, True, 'a,b\n1,2\n'))


def test_a_log_on_a_full_disk(t):
    """The run goes on, and says it once. No row is broken."""
    log = t.work / 'limited.csv'
    done = subprocess.run(['bash', '-c', 'ulimit -f 4; trap "" XFSZ; "$@"', '-', t.path, 'train', t.models['gpt2'], '--data', t.text, '--batch', '2', '--seq', '16',
                           '--steps', '200', '--log', log, '-q'], capture_output=True, text=True)
    expect('goes on', (done.returncode, done.stderr.count('the run goes on')), (0, 1))
    expect('whole rows', (log.read_text()[-1], len(log.read_bytes()) <= 4096, log.read_text().count('\n') > 30), ('\n', True, True))


def test_refuses_to_evaluate(t):
    (t.work / 'short.txt').write_text('too short')
    (t.work / 'large.bin').write_bytes(struct.pack('<64H', *range(200, 264)))
    for words, said in ((['--val', t.work / 'short.txt'], 'the validation data has 9 tokens, fewer than a sequence of 16'),
                        (['--val', t.work / 'no.txt'], 'no.txt: cannot open'), (['--val', t.work / 'large.bin'], 'large.bin: '),
                        (['--val', t.text, '--eval-steps', 10**15], 'too many to evaluate'), (['--eval-every', 5], '--eval-every needs --val'),
                        (['--val', t.text, '--book', 'torch', '--ranks', 2], "PyTorch's evaluation between steps is not modelled with ranks")):
        done = t.run('train', t.models['gpt2'], '--data', t.text, '--seq', 16, '--steps', 2, *words)
        expect(f'{words}', (done.returncode in (2, 3), said in done.stderr, done.stdout), (True, True, ''))


def test_fields(t):
    """Each event has the fields that docs/json.md lists for it."""
    found = {}
    for options in (['--by', 'op', '--ranks', 2], ['--profile'], ['--budget', '1MiB']):
        done = t.run('train', t.models['gpt2'], '--data', t.text, '--json', '--batch', 2, '--seq', 16, '--steps', 2, *options)
        for line in done.stdout.splitlines():
            event = json.loads(line)
            found.setdefault(event.get('event', 'profile'), set()).update(fields_of(event))
    expect('events', sorted(found), ['end', 'ops', 'plan', 'profile', 'step'])
    for event, fields in found.items():
        expect(event, sorted(fields), sorted(documented(f'Train{event.title()}')))


def test_runs_out_of_memory(t):
    """A budget ends the run where simulate's capacity does, with a report and a snapshot."""
    for model, book, batch, budget in (('gpt2', 'torch', 4, '20MiB'), ('gpt2', 'torch', 4, '22MiB'),
                                       ('llama', 'torch', 4, '22MiB'), ('gpt2', 'own', 32, '4MiB'),
                                       ('llama', 'own', 32, '4MiB')):
        common = (t.models[model], '--batch', batch, '--seq', 48, '--steps', 3, '--book', book)
        done = t.run('train', *common, '--data', t.text, '--budget', budget, '--allow', 'none', '--snapshot',
                     t.work / 'oom.pickle', '-q')
        wanted = json.loads(t.run('simulate', *common, '--capacity', budget, '--json', '-q', '-o',
                                  t.work / 'wanted.pickle').stdout)['devices'][0]
        moment = wanted['out_of_memory']
        where = (f'in step {moment["step"]}, {moment["phase"]} ({moment["op"]})' if moment['step']
                 else 'before the first step')
        report = done.stdout[done.stdout.index('Out of memory'):].splitlines()
        expect('report', (done.returncode, done.stderr, report[0]),
               (1, f'tessera train: out of memory after {max(moment["step"], 1) - 1} steps: --budget is '
                   'too small\n', f'Out of memory {where}:'))
        categories = {line.split()[0] for line in report[2:] if line.startswith('  ')}
        expect('what memory was for', categories,
               {row['name'] for row in wanted['categories'][:-1] if row['bytes']})
        expect('the snapshot is the one that was simulated', (t.work / 'oom.pickle').read_bytes(),
               (t.work / 'wanted.pickle').read_bytes())


def test_ends(t):
    common = ('train', t.models['gpt2'], '--data', t.text, '--seq', 16)
    done = t.run(*common, '--steps', 3, '--lr', '1e30')
    expect('a loss that is no number', (done.returncode, 'not a finite number' in done.stderr),
           (1, True))
    done = t.run(*common, '--book', 'torch', '--budget', '18MiB', '--allow', 'none')
    expect('too little memory', (done.returncode, 'out of memory' in done.stderr), (1, True))
    process = start(t, *common[1:], '--steps', 900000)
    process.stdout.readline()
    process.send_signal(signal.SIGINT)
    end = json.loads(process.communicate()[0].splitlines()[-1])
    expect('interrupted', (process.returncode, end['interrupted'], end['steps_done'] >= 1),
           (0, True, True))


def test_leaves_a_step_unfinished(t, is_sanitized):
    """The second Ctrl-C ends a run within its step, which takes long; what is saved is the state before it, to the bit."""
    folder = fresh(t, 'unfinished')
    words = ('train', t.models['gpt2'], '--data', t.text, '--seq', 64, '--batch', 8, '--accumulate', 25 if is_sanitized else 150,
             '--threads', 1)
    whole = [json.loads(line) for line in t.run(*words, '--steps', 2, '--json', '-q').stdout.splitlines()]
    process = start(t, *words[1:], '--steps', 50, '--save', folder)
    process.stdout.readline()
    said = []
    for _ in range(2):
        process.send_signal(signal.SIGINT)
        said.append(process.stderr.readline())
    output, errors = process.communicate()
    expect('it is said at once', said, [f'tessera train: ending after this step, then saving to {folder}; Ctrl-C again leaves the step '
                                        'unfinished\n', f'tessera train: leaving this step unfinished, then saving to {folder}; Ctrl-C '
                                        'again ends at once\n'])
    end = json.loads(output.splitlines()[-1])
    expect('the end', (process.returncode, end['interrupted'], end['steps_done'], 'after step 1' in errors), (0, True, 1, True))
    done = t.run('train', '--resume', folder, '--steps', 2, '--json', '-q')
    expect('resumed', json.loads(done.stdout.splitlines()[0])['loss'], whole[1]['loss'])


def test_a_folder_called_like_a_model(t):
    """Its weights are taken, and not random ones of the model of that name."""
    place = fresh(t, 'place')
    place.mkdir()
    t.train('gpt2', '--steps', 2, '--save', place / 'gpt2', '-q')
    done = t.run('train', 'gpt2', '--data', t.text, '--steps', 1, cwd=place)
    expect('the folder', (done.returncode, done.stdout.startswith('gpt2: 35,712 parameters; ')), (0, True))


def test_says_what_computed_a_run(t):
    folder = fresh(t, 'computed')
    t.train('gpt2', '--steps', 1, '--isa', 'plain', '--save', folder, '-q')
    words = ('train', '--resume', folder)
    said = t.run(*words, '--steps', 2).stderr
    if 'plain kernels' not in said:
        pytest.skip('the processor has no other instructions')
    expect('the same instructions', ('goes on with plain kernels, as it was saved' in said, 'can differ' in said), (True, False))
    best = t.run(*words, '--steps', 3, '--isa', 'avx512-bf16').stderr
    expect('others', 'was saved with plain kernels and goes on with ' in best, True)
    expect('quiet', t.run(*words, '--steps', 4, '--isa', 'plain', '-q').stderr, '')


ADAPTED = {'gpt2': ('c_attn', ['transformer.h.{}.attn.c_attn']), 'llama': ('q_proj,v_proj', ['model.layers.{}.self_attn.q_proj',
                                                                                             'model.layers.{}.self_attn.v_proj'])}


def test_adapters(t):
    """Adapters are all that is trained, as predicted; they are saved under peft's names, and resumed to the bit."""
    for model, (targets, modules) in ADAPTED.items():
        base, folder = fresh(t, 'base'), fresh(t, 'adapters')
        t.train(model, '--steps', 2, '--save', base, '-q')
        before = (base / 'model.safetensors').read_bytes()
        words = ('train', base, '--data', t.text, '--batch', 2, '--seq', 16, '--json', '-q', '--lora', 3, '--lora-alpha', 6, '--lr', '0.01')
        whole = [json.loads(line) for line in t.run(*words, '--steps', 5).stdout.splitlines()]
        expect('as predicted', whole[-1]['peak_bytes'], whole[-1]['predicted_peak_bytes'])
        done = t.run(*words, '--steps', 3, '--save', folder)
        expect('saved', (done.returncode, sorted(path.name for path in folder.iterdir())),
               (0, ['adapter_config.json', 'adapter_model.safetensors', 'config.json', 'training-3.safetensors']))
        arrays, _ = read_safetensors(folder / 'adapter_model.safetensors')
        expect('names', sorted(arrays), sorted(f'base_model.model.{module.format(layer)}.lora_{part}.weight' for module in modules
                                               for layer in range(2) for part in 'AB'))
        expect('types', {kind for kind, _, _ in arrays.values()}, {'F32'})
        shapes = [shape for name, (_, shape, _) in sorted(arrays.items())][:2]
        expect('shapes', (shapes[0], shapes[1][1]), ([3, 32], 3))
        expect('trained', whole[-1]['trained_parameters'], sum(len(data) // 4 for _, _, data in arrays.values()))
        config = json.loads((folder / 'adapter_config.json').read_text())
        expect('configuration', (config['peft_type'], config['r'], config['lora_alpha'], config['target_modules'], config['fan_in_fan_out'],
                                 config['base_model_name_or_path']), ('LORA', 3, 6, targets.split(','), model == 'gpt2', str(base)))
        done = t.run('train', '--resume', folder, '--steps', 5, '--json')
        expect('resumed', [json.loads(line)['loss'] for line in done.stdout.splitlines()[:-1]], [line['loss'] for line in whole[3:5]])
        expect('which model', f'the model is {base}, as {folder} was saved' in done.stderr, True)
        expect('the model is as it was', (base / 'model.safetensors').read_bytes(), before)
    named = t.run('train', '--resume', folder, '--steps', 9, '-q')
    expect('the same model', named.returncode, 0)
    t.run('train', '--resume', base, '--steps', 4, '-q')
    changed = t.run('train', '--resume', folder, '--steps', 12, '-q')
    expect('another model', (changed.returncode, 'a model with other weights' in changed.stderr), (3, True))
    expect('no sample of adapters', 'contains adapters without' in t.run('sample', folder).stderr, True)
    expect('a layer of others', t.run('train', t.models['gpt2'], '--data', t.text, '--lora', 2, '--lora-targets', 'c_attn,q_proj').returncode, 2)
    expect('adapters alone', t.run('train', folder, '--data', t.text).returncode, 2)
    expect('not the model', t.run('train', '--resume', base, '--lora', 2, '--steps', 9).returncode, 2)


def test_adapters_as_predicted(t, is_sanitized):
    rng = random.Random(3709)
    for n in range(how_many(12, is_sanitized)):
        model = rng.choice(sorted(t.models))
        targets = rng.choice(('', 'all-linear', *(('c_attn', 'c_proj,c_fc') if model == 'gpt2' else ('k_proj,v_proj', 'o_proj', 'gate_proj,up_proj'))))
        options = [str(word) for name, words in CHOICES.items() if rng.random() < 0.4 for word in (name, rng.choice(words))]
        options += ['--lora', str(rng.choice((1, 4, 9)))] + (['--lora-targets', targets] if targets else [])
        options += ['--memory', 'placed'] if rng.random() < 0.2 else []
        options += ['--book', 'torch'] if rng.random() < 0.3 else []
        done = t.run('train', t.models[model], '--data', t.text, '--seq', 16, *options, '--json', '-q')
        expect(f'{n}: {options}', (done.returncode, done.stderr), (0, ''))
        end = json.loads(done.stdout.splitlines()[-1])
        for kind in ('peak', 'reserved', 'host', 'disk', 'data'):
            expect(f'{n}: {options} {kind}', end[f'{kind}_bytes'], end[f'predicted_{kind}_bytes'])


def draw_recipe(rng, model):
    """Random options of everything that a run may have, without those that exclude each other."""
    def maybe(chance, *words):
        return list(words) if rng.random() < chance else []
    adapters = rng.random() < 0.3
    ranks = not adapters and rng.random() < 0.25
    optimizer = rng.choice(('adamw', 'adamw-fused', 'sgd'))
    dtype = rng.choice(('fp32', 'fp32', 'bf16', 'autocast-bf16', 'autocast-fp16'))
    options = ['--optimizer', optimizer, '--dtype', dtype, '--seq', rng.choice((8, 16)), '--batch', rng.choice((1, 2, 4)), '--steps', rng.choice((3, 4, 5)),
               '--seed', rng.randrange(99), '--order', rng.choice(('random', 'sequential'))]
    options += maybe(0.5, '--schedule', rng.choice(('cosine', 'linear')), *maybe(0.5, '--min-lr', 1e-4), *maybe(0.5, '--warmup', 2))
    if optimizer == 'sgd':
        options += maybe(0.6, '--momentum', 0.9, *maybe(0.5, '--nesterov'))
    elif not ranks:
        options += maybe(0.5, '--no-decay', rng.choice(('norms', 'biases', 'norms,biases')))
    if adapters:
        options += ['--lora', rng.choice((1, 3, 8)), *maybe(0.4, '--lora-targets', 'all-linear'), *maybe(0.4, '--lora-alpha', 16)]
    if ranks:
        options += ['--ranks', 2, '--zero', rng.choice((1, 2, 3))]
    options += maybe(0.3, '--clip', 1) + maybe(0.3, '--accumulate', 2) + maybe(0.2, '--loss', 'chunked:8')
    options += maybe(0.3, '--checkpoint', rng.choice(('full', 'every:2', 'blocks:1')))
    options += maybe(0.2, '--offload', rng.choice(('optimizer', 'activations'))) if not ranks else []
    options += maybe(0.2, '--memory', 'placed') if not ranks else []
    validation = maybe(0.5, '--eval-every', rng.choice((1, 2, 3)), '--eval-steps', rng.choice((1, 2, 3)), *maybe(0.4, '--eval-batch', rng.choice((1, 3))))
    return [str(word) for word in options], [str(word) for word in validation]


def test_recipes_as_predicted(t, is_sanitized):
    """Random runs of all that a recipe may have: memory as predicted; saved on the way, ended and resumed, they have the losses of a run that was not."""
    rng = random.Random(int(os.environ.get('TESSERA_SEED', 3711)))
    kinds = collections.Counter()
    for n in range(how_many(14, is_sanitized)):
        model = rng.choice(sorted(t.models))
        options, validation = draw_recipe(rng, model)
        if validation:
            validation += ['--val', t.text]
        log, folder = t.work / f'recipe.{rng.choice(("csv", "jsonl"))}', fresh(t, 'recipe')
        words = ['train', t.models[model], '--data', t.text, *options, *validation]
        what = f'{n}: {model} {options} {validation[:-2]}'
        done = t.run(*words, '--json', '-q')
        expect(what, (done.returncode, done.stderr), (0, ''))
        *steps, end = [json.loads(line) for line in done.stdout.splitlines()]
        steps = [step for step in steps if step['event'] == 'step']
        for kind in ('peak', 'reserved', 'host', 'disk', 'data'):
            expect(f'{what} {kind}', end[f'{kind}_bytes'], end[f'predicted_{kind}_bytes'])
        kinds.update(word for word in options if word.startswith('--'))
        first = rng.randrange(1, len(steps))
        at = options.index('--steps')
        # A schedule depends on the number of all steps, so fewer have other losses.
        if '--schedule' in options:
            continue
        part = options[:at + 1] + [str(first)] + options[at + 2:]
        t.run('train', t.models[model], '--data', t.text, *part, *validation, '--save', folder, '--log', log, '-q', status=0)
        done = t.run('train', '--resume', folder, '--steps', len(steps), '--log', log, '-q', '--json', '--threads', rng.choice((1, 2, 3)))
        expect(f'{what} resumed', (done.returncode, done.stderr), (0, ''))
        again = [json.loads(line) for line in done.stdout.splitlines()]
        for kind in ('peak', 'reserved', 'host', 'disk', 'data'):
            expect(f'{what} resumed {kind}', again[-1][f'{kind}_bytes'], again[-1][f'predicted_{kind}_bytes'])
        expect(f'{what} resumed losses', [step['loss'] for step in again if step['event'] == 'step'], [step['loss'] for step in steps[first:]])
        rows = log.read_text().splitlines()[log.suffix == '.csv':]
        losses = [json.loads(row)['loss'] if log.suffix == '.jsonl' else float(row.split(',')[1]) for row in rows]
        expect(f'{what} logged', losses, [step['loss'] for step in steps])
    expect('all kinds of options', len(kinds) > 15 or is_sanitized, True)


def test_refuses(t):
    common = ('train', t.models['gpt2'])
    for options, text in (
            ((), '--data is missing'),
            (('--data', t.text, '--lr', 'fast'), "--lr needs a number above 0, not 'fast'"),
            (('--data', t.text, '--seq', 65), "longer than the model's 64 positions"),
            (('--data', t.text, '--snapshot', t.work / 'a.csv'), '--snapshot writes .pickle or')):
        done = t.run(*common, *options)
        expect(text, (done.returncode, text in done.stderr), (2, True))
    small = t.work / 'small.json'
    small.write_text(json.dumps(GPT2 | {'vocab_size': 100}))
    done = t.run('train', small, '--data', t.text)
    at = next(i for i, byte in enumerate(TEXT.encode()) if byte >= 100)
    expect('vocabulary', (done.returncode, done.stderr),
           (3, f'tessera: {t.text}: token {ord(TEXT[at])} at position {at} is not in the model\'s '
               f'vocabulary of 100 tokens (at byte {at})\n'))
    short = t.work / 'short.txt'
    short.write_text('short')
    done = t.run(*common, '--data', short, '--seq', 16)
    expect('short', (done.returncode, 'fewer than a sequence of 16' in done.stderr), (2, True))
    done = t.run(*common, '--data', t.work / 'absent.txt')
    expect('absent', (done.returncode, 'No such file' in done.stderr), (3, True))
    huge = t.work / 'huge.json'
    huge.write_text(json.dumps(LLAMA | {'hidden_size': 131072, 'intermediate_size': 524288}))
    done = t.run('train', huge, '--data', t.text)
    expect('more memory than there is',
           (done.returncode, 'the run needs ' in done.stderr, ' of memory, and ' in done.stderr),
           (2, True, True))
    done = t.run(*common, '--data', t.text, '--snapshot', t.text)
    expect('kept', (done.returncode, t.text.read_text() == TEXT), (2, True))
