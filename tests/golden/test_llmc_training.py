"""`tessera train` on a checkpoint of llm.c: its losses, its weights, and what is wrong with a damaged one."""
import json
import struct
import sys

import pytest
from support import ROOT, expect
from trainer import Trainer, fresh, read_safetensors

TORCH = ROOT / 'tests' / 'torch'
sys.path.insert(0, str(TORCH))
import llmc  # noqa: E402

# What llm.c calls B 4 and T 16: a sequence of 17 tokens predicts 16.
RECIPE = ('--batch', llmc.BATCH, '--seq', llmc.SEQUENCE + 1, '--order', 'sequential', '--lr', '1e-4',
          '--weight-decay', 0, '--betas', '0.9,0.999', '--eps', '1e-8')
NAMES = {'ln1w': 'ln_1.weight', 'ln1b': 'ln_1.bias', 'qkvw': 'attn.c_attn.weight', 'qkvb': 'attn.c_attn.bias',
         'attprojw': 'attn.c_proj.weight', 'attprojb': 'attn.c_proj.bias', 'ln2w': 'ln_2.weight',
         'ln2b': 'ln_2.bias', 'fcw': 'mlp.c_fc.weight', 'fcb': 'mlp.c_fc.bias', 'fcprojw': 'mlp.c_proj.weight',
         'fcprojb': 'mlp.c_proj.bias'}


@pytest.fixture(scope='module')
def t(tessera, work):
    return Trainer(tessera, work)


def files(t):
    """The checkpoint, the same in bf16, and the tokens."""
    made = [t.work / name for name in ('tiny.bin', 'tiny-bf16.bin', 'tokens.bin')]
    if not made[2].exists():
        for path, data in zip(made, (llmc.checkpoint(), llmc.checkpoint(5), llmc.token_file())):
            path.write_bytes(data)
    return made


def recorded():
    lines = (TORCH / 'llmc.txt').read_text().splitlines()
    return [float(line.split()[1]) for line in lines if not line.startswith('#')]


def losses(t, model, *options):
    done = t.run('train', model, '--data', files(t)[2], *RECIPE, '--steps', llmc.STEPS, '--json', *options)
    expect('exit status', (done.returncode, done.stderr), (0, ''))
    return [json.loads(line)['loss'] for line in done.stdout.splitlines()[:-1]]


def near(what, got, want, most):
    differences = [abs(a - b) for a, b in zip(got, want)]
    expect(f'{what}: {max(differences)}', (len(got), max(differences) < most), (len(want), True))


def test_ten_losses(t):
    """As llm.c prints them."""
    checkpoint, bf16, tokens = files(t)
    near('fp32', losses(t, checkpoint), recorded(), 5e-6)
    near('bf16 weights, trained in fp32', losses(t, bf16), recorded(), 1e-3)
    near('eager', losses(t, checkpoint, '--attention', 'eager', '--gelu', 'fused'), recorded(), 5e-6)
    text = t.run('train', checkpoint, '--data', tokens, *RECIPE, '--steps', 1).stdout.splitlines()
    expect('the heading', text[0].startswith(f'{checkpoint}: 62,784 parameters; a peak of '), True)
    expect('six digits', abs(float(text[1].split()[3]) - recorded()[0]) < 5e-6, True)
    expect('six are printed', len(text[1].split()[3].split('.')[1]), 6)


def transformers_names():
    """{name: (shape, bytes)} of what --save should write."""
    made = {}
    for name, (shape, numbers) in llmc.weights().items():
        if name not in NAMES:
            base = {'wte': 'wte.weight', 'wpe': 'wpe.weight', 'lnfw': 'ln_f.weight', 'lnfb': 'ln_f.bias'}[name]
            made[f'transformer.{base}'] = list(shape), llmc.as_fp32(numbers)
            continue
        each = len(numbers) // shape[0]
        for layer in range(shape[0]):
            part = numbers[layer * each:(layer + 1) * each]
            if len(shape) == 3:
                outputs, inputs = shape[1:]
                part = [part[o * inputs + i] for i in range(inputs) for o in range(outputs)]
            made[f'transformer.h.{layer}.{NAMES[name]}'] = list(shape[:0:-1]), llmc.as_fp32(part)
    return made


def test_saved_for_transformers(t):
    """Weights that hardly moved are those of the checkpoint, under transformers' names and in its layout."""
    folder = fresh(t, 'from-llmc')
    common = ('--data', files(t)[2], *RECIPE[:6], '-q')
    done = t.run('train', files(t)[0], *common, '--optimizer', 'sgd', '--lr', '1e-30', '--steps', 1, '--save', folder)
    expect('trained', done.returncode, 0)
    arrays = read_safetensors(folder / 'model.safetensors')[0]
    expect('weights', {name: (shape, data) for name, (_, shape, data) in arrays.items()}, transformers_names())
    config = json.loads((folder / 'config.json').read_text())
    expect('config.json', [config[key] for key in ('model_type', 'n_positions', 'vocab_size', 'n_layer', 'n_head',
                                                   'n_embd', 'attn_pdrop')],
           ['gpt2', llmc.POSITIONS, llmc.VOCABULARY, llmc.LAYERS, llmc.HEADS, llmc.WIDTH, 0])
    greedy = ('--ids', '--prompt', '3 5', '--temperature', 0, '--tokens', 9, '--context', 16)
    expect('sampled', t.run('sample', files(t)[0], *greedy).stdout, t.run('sample', folder, *greedy).stdout)


def test_goes_on(t):
    """A run that is resumed reads the batches that would have followed."""
    folder = fresh(t, 'llmc-run')
    first = losses(t, files(t)[0])
    done = t.run('train', files(t)[0], '--data', files(t)[2], *RECIPE, '--steps', 4, '--save', folder, '-q')
    expect('four steps', done.returncode, 0)
    done = t.run('train', '--resume', folder, '--steps', 10, '--json', '-q')
    expect('the rest', [json.loads(line)['loss'] for line in done.stdout.splitlines()[:-1]], first[4:])


def test_damaged(t):
    """One sentence each; tests/unit/test_llmc.c has all of them."""
    checkpoint, _, tokens = files(t)
    whole, bad = checkpoint.read_bytes(), t.work / 'damaged.bin'
    weights = len(whole) - 1024
    for data, text in (
            (whole[:500], 'a checkpoint of llm.c that is cut off within its header'),
            (whole[:-4], f'a checkpoint of llm.c that is cut off: its header needs {weights} bytes of weights, and '
                         f'the file has {weights - 4}'),
            (whole + b'more', f'a checkpoint of llm.c that is too long: its header needs {weights} bytes of weights, '
                              f'and the file has {weights + 4}'),
            (whole[:4] + struct.pack('<i', 1) + whole[8:], 'a checkpoint of llm.c in version 1; tessera reads '
                                                           'versions 3 (fp32) and 5 (bf16) (at byte 4)')):
        bad.write_bytes(data)
        done = t.run('train', bad, '--data', tokens, *RECIPE)
        expect(text, (done.returncode, done.stderr), (3, f'tessera: {bad}: {text}\n'))
    done = t.run('train', checkpoint, '--data', tokens, *RECIPE, '--batch', 40)
    expect('too few', (done.returncode, 'fewer than a batch of 40 sequences in order' in done.stderr), (2, True))
    for options, text in ((('--betas', '0.9'), '--betas needs two numbers from 0 to below 1'),
                          (('--betas', '0.9,1'), '--betas needs two numbers from 0 to below 1'),
                          (('--eps', '-1'), '--eps needs a number of at least 0, not'),
                          (('--weight-decay', 'x'), '--weight-decay needs a number of at least 0, not')):
        done = t.run('train', checkpoint, '--data', tokens, *options)
        expect(text, (done.returncode, text in done.stderr), (2, True))


def test_predicted(t):
    """simulate takes the checkpoint as the description of its model."""
    config = t.work / 'as-config.json'
    config.write_text(json.dumps({'model_type': 'gpt2', 'vocab_size': 96, 'n_positions': 32, 'n_embd': 48, 'n_layer': 2,
                                  'n_head': 4, 'resid_pdrop': 0, 'embd_pdrop': 0, 'attn_pdrop': 0}))
    peaks = [json.loads(t.run('simulate', model, '--batch', 2, '--seq', 9, '--json', '-q', '-o',
                              t.work / 'simulated.pickle').stdout)['devices'][0]['peak']['allocated_bytes']
             for model in (files(t)[0], config)]
    expect('the same peak', peaks[0], peaks[1])
