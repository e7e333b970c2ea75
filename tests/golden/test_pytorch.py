"""`tessera simulate` against what PyTorch allocates: training steps of transformers' models, traced on fake CUDA tensors.

The figures, in ../shared, have what ops return: not cuBLAS's
workspaces, which are left out here too. Bytes as requested, at the peak of each phase over two steps."""
import json

from support import SHARED, absent, cases, expect

EXPECTED = SHARED / 'expected' / 'pytorch-2.9.1.jsonl'
FAMILIES = ('gpt2', 'llama', 'mistral', 'qwen2')
# Small tensors that masks of eager attention take differ: a few numbers.
# What sums over many rows add up in, which fake tensors do not show (docs/simulate.md); these runs have few rows.
ROOM = 3 << 20
TOLERANCE = 64
OPTIONS = {'dtype': '--dtype', 'attention': '--attention', 'optimizer': '--optimizer', 'accumulate': '--accumulate'}
CHECKPOINTS = {'reentrant': ['--checkpoint', 'full'],
               'non-reentrant': ['--checkpoint', 'full', '--checkpoint-form', 'non-reentrant']}


def rows():
    if not EXPECTED.exists():
        return [absent(None)]
    lines = EXPECTED.read_text(encoding='utf-8').splitlines()
    return [row for row in map(json.loads, lines) if row.get('model_config', {}).get('model_type') in FAMILIES]


def command_of(config, path):
    words = ['simulate', path, '--steps', '2', '--batch', str(config['batch']), '--seq', str(config.get('seq', 512))]
    for key, option in OPTIONS.items():
        if key in config:
            words += [option, str(config[key])]
    if config.get('use_cache') is False:
        words.append('--no-kv-cache')
    form = config.get('checkpoint', 'none')
    if form != 'none':
        words += CHECKPOINTS[form]
    return words


def title(row):
    config = row['config']
    model = config['model'] if isinstance(config['model'], str) else config['model']['model_type']
    return ' '.join([model, *(f'{key}={value}' for key, value in config.items() if key != 'model')])


@cases('row', rows(), title)
def test_figures(tessera, work, row):
    path = work / 'config.json'
    path.write_text(json.dumps(row['model_config']), encoding='utf-8')
    device = tessera.device(*command_of(row['config'], path))
    expect('parameters', device['parameters'], row['parameters'])
    workspaces = sum(entry['bytes'] for entry in device['categories'] if entry['name'] == 'workspace')
    for phase in device['phases']:
        name = phase['name']
        want = max(step[name]['requested'] for step in row['steps'] if name in step)
        got = phase['requested_bytes'] - workspaces
        room = ROOM if name == 'backward' else 0
        if not -TOLERANCE <= got - want <= TOLERANCE + room:
            raise AssertionError(f'{name}: {got:,} instead of {want:,} bytes, {100 * (got / want - 1):+.2f} %')
