"""`tessera simulate` against PyTorch's own steps, in a matrix of 154 configurations of GPT-2 and Llama models.

matrix.json has for each what tests/torch/matrix.py traced: the bytes, as requested, that tensors have at the peak of each
phase over three steps, and a digest of what is allocated and freed in these steps, in order. Both must be the same.
Workspaces are left out, as tensors have none, and from the digest the temporaries of attention's backward, which fake tensors do not
show."""
import hashlib
import json
import pickle

from support import HERE, cases, expect

FIGURES = HERE / 'matrix.json'
OPTIONS = {'dtype': '--dtype', 'attention': '--attention', 'optimizer': '--optimizer', 'accumulate': '--accumulate'}
FORMS = {'none': [], 'reentrant': ['--checkpoint', 'full'],
         'non-reentrant': ['--checkpoint', 'full', '--checkpoint-form', 'non-reentrant']}


def command_of(row, path):
    options = row['options']
    words = ['simulate', path, '--steps', '3', '--batch', str(row['batch']), '--seq', str(row['seq'])]
    for key, option in OPTIONS.items():
        if key in options:
            words += [option, str(options[key])]
    if 'eval_batch' in options:
        words += ['--eval-steps', '1', '--eval-batch', str(options['eval_batch'])]
    if 'plan' in options:
        plan = path.with_suffix('.plan')
        plan.write_text(json.dumps(options['plan']), encoding='utf-8')
        words += ['--plan', plan]
    elif options.get('cache') is False:
        words.append('--no-kv-cache')
    return words + FORMS[options.get('checkpoint', 'none')]


def is_of_attention(event):
    return any('attention_backward' in frame['name'] for frame in event['frames'])


def events(snapshot):
    """As tests/torch/matrix.py has them: sizes, negative of what is freed. Backward of attention frees its temporaries itself: before
    anything else is allocated."""
    listed, made = [], {}
    for event in snapshot['device_traces'][0]:
        if event['action'] == 'alloc':
            made[event['addr']] = len(listed)
            listed.append([event['size'], is_of_attention(event)])
        elif event['action'] == 'free_requested':
            first = made[event['addr']] if event['addr'] in made else None
            if first is not None and listed[first][1] and all(is_inner for size, is_inner in listed[first:] if size > 0):
                listed[first][0] = 0
            else:
                listed.append([-event['size'], False])
    out, freed = [], []
    for size, _ in [*listed, [None, False]]:
        if size is not None and size < 0:
            freed.append(size)
        elif size != 0:
            out += [*sorted(freed, reverse=True), *([] if size is None else [size])]
            freed = []
    return [f'{size:+}' for size in out]


def title(row):
    model = [key if value is True else f'{key}={value}' for key, value in row['model'].items()
             if key in ('num_key_value_heads', 'tie_word_embeddings', 'attn_pdrop', 'attention_dropout')]
    return ' '.join([row['model']['model_type'], *model, *(f'{key}={value}' for key, value in row['options'].items())])


@cases('row', json.loads(FIGURES.read_text(encoding='utf-8'))['rows'], title)
def test_row(tessera, work, row):
    path = work / 'config.json'
    path.write_text(json.dumps(row['model']), encoding='utf-8')
    made = path.with_suffix('.pickle')
    device = tessera.device(*command_of(row, path), '-o', made)
    listed = events(pickle.loads(made.read_bytes()))
    expect('events', len(listed), row['events'])
    expect('their digest', hashlib.sha256(' '.join(listed).encode()).hexdigest()[:16], row['digest'])
    workspaces = sum(entry['bytes'] for entry in device['categories'] if entry['name'] == 'workspace')
    expect('peaks', {phase['name']: phase['requested_bytes'] - workspaces for phase in device['phases']}, row['peaks'])
