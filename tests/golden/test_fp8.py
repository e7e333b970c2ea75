"""`tessera simulate --fp8 te`: what TransformerEngine's layers keep for backward, counted here from shapes alone.

Random models and batches, with a vocabulary so large that the peak is in the loss, where all that forward saved is there. Compared with
the same run in 16 bits, a run has copies of all weights of blocks, keeps what layers read in a byte instead of two, and does
so for each layer that reads the same tensor."""
import json
import os
import random

import pytest
from support import cases, expect

WHOLE = 'TESSERA_WHOLE' in os.environ
MIB = 1 << 20


def model_of(own):
    width, heads = own.choice(((64, 2), (128, 4), (192, 3))), own.choice((1, 2, 4))
    width, heads = width[0], width[1]
    layers = own.randint(1, 4)
    if own.random() < 0.4:
        return {'model_type': 'gpt2', 'n_embd': width, 'n_head': heads, 'n_layer': layers, 'n_positions': 256, 'vocab_size': 20000}
    return {'model_type': 'llama', 'hidden_size': width, 'intermediate_size': 16 * own.randint(8, 40), 'num_hidden_layers': layers,
            'num_attention_heads': heads, 'num_key_value_heads': own.choice((1, heads)), 'vocab_size': 20000,
            'tie_word_embeddings': own.random() < 0.5}


def linears_of(model):
    """Inputs and outputs of each linear layer of a block, and, by what they read, how often it is read: (width, layers, kept anyway)."""
    if model['model_type'] == 'gpt2':
        w = model['n_embd']
        return [(w, 3 * w), (w, w), (w, 4 * w), (4 * w, w)], [(w, 1, False), (w, 1, True), (w, 1, False), (4 * w, 1, False)]
    w, inner = model['hidden_size'], model['intermediate_size']
    keys = w // model['num_attention_heads'] * model['num_key_value_heads']
    return ([(w, w), (w, keys), (w, keys), (w, w), (w, inner), (w, inner), (inner, w)],
            [(w, 3, False), (w, 1, True), (w, 2, False), (inner, 1, False)])  # attention keeps its result for itself


def categories(tessera, path, *words):
    device = tessera.device('simulate', path, '--optimizer', 'sgd', '--no-kv-cache', *words)
    expect('the peak is in the loss', device['peak']['phase'], 'backward')
    return {entry['name']: entry['bytes'] for entry in device['categories']}


@cases('seed', range(40 if WHOLE else 6), str)
def test_kept(tessera, work, seed):
    own = random.Random(3900 + seed)
    model = model_of(own)
    layers = model.get('n_layer', model.get('num_hidden_layers'))
    batch, sequence = own.choice((2, 3, 5, 8)), 8 * own.randint(16, 32)
    dtype, gpu = own.choice(('bf16', 'fp16', 'autocast-bf16')), own.choice(('h100', 'b200', 'l4'))
    path = work / 'fp8.json'
    path.write_text(json.dumps(model))
    words = ('--batch', batch, '--seq', sequence, '--dtype', dtype, '--gpu', gpu, '--attention', 'flash')
    plain, fp8 = categories(tessera, path, *words), categories(tessera, path, *words, '--fp8', 'te')
    linears, reads = linears_of(model)
    copies = 1 if gpu == 'b200' else 2
    cast = copies * layers * sum(a * b for a, b in linears)
    casts = 2 * layers * sum(a * b for a, b in linears) if dtype == 'autocast-bf16' else 0  # of autocast, which FP8 has no use for
    expect('copies of weights', fp8.get('cast', 0) - plain.get('cast', 0), cast - casts)
    is_cast = dtype == 'autocast-bf16' and model['model_type'] == 'llama'  # of norms' results, for each layer that reads them
    less = sum(0 if is_kept else 2 * width * (count if is_cast else 1) for width, count, is_kept in reads)
    more = sum(width * count for width, count, _ in reads)
    expect('what layers read', fp8['activation'] - plain['activation'], layers * batch * sequence * (more - less))
    expect('the workspace', fp8['workspace'] - plain['workspace'], (4 if gpu == 'l4' else 32) * MIB)


def test_made_again(tessera, work):
    """Under FSDP2, whose weights go after forward, no copy of a weight outlives it; and without a backward there are no transposed ones."""
    path = work / 'fp8.json'
    path.write_text(json.dumps({'model_type': 'llama', 'hidden_size': 64, 'intermediate_size': 128, 'num_hidden_layers': 2,
                                'num_attention_heads': 2, 'vocab_size': 20000}))
    words = ('--batch', 2, '--seq', 64, '--dtype', 'bf16', '--gpu', 'h100', '--fp8', 'te')
    expect('ZeRO stage 3', categories(tessera, path, *words, '--ranks', 2, '--zero', 3).get('cast', 0), 0)
    expect('checkpoints', categories(tessera, path, *words, '--checkpoint', 'full').get('cast', 0), 0)


@pytest.mark.parametrize('words, said', [
    (('--dtype', 'bf16', '--gpu', 'a100'), 'compute capability 8.9'),
    (('--dtype', 'fp32',), 'runs with 16 bits'),
    (('--dtype', 'bf16', '--seq', 33), 'that 8 divides'),
    (('--dtype', 'bf16', '--seq', 32, '--lora', 4), 'LoRA'),
    (('--dtype', 'bf16', '--seq', 32, '--book', 'own'), 'only simulated')])
def test_refused(tessera, words, said):
    done = tessera.run('simulate', 'gpt2-bytes', '--fp8', 'te', '--seq', 64, *words, status=2)
    expect('said', said in done.stderr, True)
