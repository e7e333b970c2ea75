"""What `tessera plan --for` prints is what the answer says that it costs, and names what it lacks (targets.py)."""
import json
import os
import random

import pytest
from support import cases, expect
from targets import Targets
from texts import TARGETS, draw

SEEDS = range(0, 240, 12)


@pytest.fixture(scope='module')
def t(tessera, work):
    return Targets(tessera, work)


@cases('first', SEEDS, str)
def test_texts(t, first):
    compared = sum(t.check(*draw(random.Random(seed))) for seed in range(first, first + 4))
    expect('texts', compared, 4 * 8)


def test_deepspeed(t):
    """A plan that DeepSpeed can express as it is comes back from the configuration, with the same prediction."""
    plan = {'version': 1, 'ranks': 4, 'zero': 2, 'bucket': 100000, 'no_overlap': True, 'clip': '1', 'dtype': 'fp16', 'loss_scale': 1024,
            'loss_scale_window': 100, 'master_weights': True, 'accumulate': 2, 'offload': 'optimizer,gradients', 'optimizer': 'sgd-momentum'}
    one = t.answer('llama', plan)['deepspeed']
    config = json.loads(one['text'])
    expect('notes', [note for note in one['notes'].splitlines() if note.startswith('not supported')], [])
    expect('optimizer', config['optimizer'], {'type': 'SGD', 'params': {'momentum': 0.9}})
    read = t.work / 'read.json'
    reserved = t.simulate('llama', '--ds-config', t.put('ds.json', one['text']), '--ranks', 4, '--write-plan', read)
    expect('plan', json.loads(read.read_text()), plan)
    expect('reserved', (reserved, t.simulate('llama', '--plan', t.put('plan.json', plan), '--batch', 4)), (one['reserved_bytes'],) * 2)


def test_several(t):
    """Texts for several programs are those for each, in the order in which they were asked for, each once."""
    words = ['plan', t.work / 'gpt2.json', '--plan', t.put('plan.json', {'version': 1, 'checkpoint': 'full'})]
    alone = {target: t.run(*words, '--for', target) for target in TARGETS}
    together = t.run(*words, *(word for target in (*TARGETS, 'hf') for word in ('--for', target)))
    parts = together.stdout.split('==> ')[1:]
    expect('texts', [part.split(' <==\n', 1)[1].rstrip('\n') for part in parts], [done.stdout.rstrip('\n') for done in alone.values()])
    expect('notes', together.stderr, ''.join(done.stderr for done in alone.values()))
    t.run(*words, '--for', 'nowhere', status=2)


def test_folder(t):
    """-o FOLDER makes a file of each text, and of notes where the format has no comments; -o FILE takes one text, whatever its name."""
    folder = t.work / 'texts'
    folder.mkdir()
    words = ['plan', t.work / 'gpt2.json', '--plan', t.put('plan.json', {'version': 1, 'checkpoint': 'full', 'in_place': 'add'})]
    each = [word for target in TARGETS for word in ('--for', target)]
    answer = t.run(*words, *each, '--json').stdout
    one = {text['file']: text for text in (json.loads(answer)['for'], *json.loads(answer)['also_for'])}
    done = t.run(*words, *each, '-o', folder)
    expect('output', (done.stdout, done.stderr.count(': wrote ')), ('', len(TARGETS) + 1))
    expect('files', {path.name for path in folder.iterdir()}, {*one, 'deepspeed.txt'})
    for name, text in one.items():
        expect(name, (folder / name).read_text(), text['text'])
    expect('notes', (folder / 'deepspeed.txt').read_text(), one['deepspeed.json']['notes'])
    t.run('simulate', t.work / 'gpt2.json', '--seq', 64, '--ds-config', folder / 'deepspeed.json')
    expect('with an answer', t.run(*words, *each, '--json', '-o', f'{folder}/').stdout, answer)
    single = folder / 'ds.json'
    t.run(*words, '--for', 'deepspeed', '-o', single)
    expect('one file', single.read_text(), one['deepspeed.json']['text'])
    for where, message in ((single, 'several --for write several files'), (folder / 'absent/', 'no folder')):
        expect('refused', message in t.run(*words, *each, '-o', f'{where}{"/" * (where != single)}', status=2).stderr, True)
    expect('as it was', single.read_text(), one['deepspeed.json']['text'])
    t.run('plan', t.work / 'gpt2.json', '--seq', 64, '--budget', '1MiB', '--for', 'deepspeed', '-o', single, status=1)
    expect('no verdict in it', single.read_text(), one['deepspeed.json']['text'])


# Programs that can be told to recompute all blocks or none: what is found for them is what their text says.
EXACT = ('hf', 'peft', 'axolotl', 'unsloth', 'deepspeed', 'torchtitan')


@cases('seed', range(0, 60 if 'TESSERA_WHOLE' in os.environ else 8), str)
def test_within(t, seed):
    """With a budget, the text for a program is of a plan that fits, or nothing is said to fit."""
    own = random.Random(5200 + seed)
    name = own.choice(('gpt2', 'llama'))
    target, part = own.choice((*EXACT, 'fsdp2', 'megatron')), own.choice((0.95, 0.8, 0.6, 0.45))
    options = ['--batch', own.choice((2, 4)), '--seq', 64, '--gpu', own.choice(('t4', 'h100'))]
    options += own.choice(([], ['--dtype', 'bf16'], ['--gpus', 4], ['--dtype', 'autocast-bf16', '--optimizer', 'sgd'], ['--clip', 1]))
    words = ['plan', t.work / f'{name}.json', *options, '--for', target, '--json']
    whole = json.loads(t.run('plan', t.work / f'{name}.json', *options, '--budget', '8GiB', '--allow', 'none', '--json').stdout)
    budget = int(whole['as_is']['peak_reserved_bytes'] * part)
    done = t.run(*words, '--budget', f'{budget}B', status=(0, 1))
    answer = json.loads(done.stdout)
    if answer['verdict'] == 'does_not_fit':
        expect('no text', (done.returncode, 'for' in answer), (1, False))
        return
    begins = json.loads(t.run(*words).stdout)['for']
    if 'not supported' in (begins.get('notes') or begins['text']):
        return  # of what was asked for
    expect('fits', (done.returncode, answer['for']['reserved_bytes'] <= budget), (0, True))
    if target in EXACT:
        expect('is what was found', answer['for']['reserved_bytes'], answer['predicted']['peak_reserved_bytes'])
