"""What `tessera plan --for` prints is what the answer says that it costs, and names what it lacks (targets.py)."""
import json
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
    expect('texts', compared, 4 * 5)


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
