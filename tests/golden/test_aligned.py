"""`tessera diff --by allocation` of a prediction and of what was measured.

The prediction is a simulated golden step graph. The "measured" run is the same graph with known differences, run for another number of
steps, with other allocator settings (so other addresses and times), in another folder, with lines that have moved and C++ frames that a
trace on fake tensors lacks. Exactly these differences must be found.
"""
import copy
import json

import temporaries
from support import HERE, cases

GRAPHS = HERE / 'graphs'
PROGRAMS = ('plain-autocast', 't5', 'llama')
# Bytes and card.
WORKSPACES = ((8_519_680, 'a100'), (32 << 20, 'h100'))


def elsewhere(graph):
    """The same program as another machine would record it: each stack in kernels, in another folder, on other lines."""
    graph['texts'] = [f'/opt/venv/lib/{text}' if text.endswith('.py') else text for text in graph['texts']]
    python = {i for i, text in enumerate(graph['texts']) if text.endswith('.py')}
    graph['frames'] = [[name, file, line + 7 if file in python else line] for name, file, line in graph['frames']]
    graph['texts'] += ['at::native::structured_kernel::set_output', 'at::detail::empty_cuda', '??']
    kernels = [len(graph['frames']), len(graph['frames']) + 1]
    graph['frames'] += [[len(graph['texts']) - 2, len(graph['texts']) - 1, 0], [len(graph['texts']) - 3, len(graph['texts']) - 1, 0]]
    graph['stacks'] = [kernels + stack for stack in graph['stacks']]


def made(graph, category, least, from_end=False):
    """Where the first slot of a category and at least a size is made, or the last: instruction and slot."""
    items = list(enumerate(graph['instructions']))
    for at, item in reversed(items) if from_end else items:
        if item[0] == 'new' and graph['slots']['category'][item[1]] == category and graph['slots']['bytes'][item[1]] >= least:
            return at, item[1]
    raise AssertionError(f'no {category}')


def find(graph, *item):
    return graph['instructions'].index([*item])


def add(graph):
    """A buffer that a kernel takes for itself, next to an activation, for as long as that lives."""
    at, beside = made(graph, 'activation', 8192, from_end=True)
    slot = len(graph['slots']['bytes'])
    graph['slots']['bytes'].append(3_000_000)
    graph['slots']['category'].append('activation')
    graph['instructions'].insert(find(graph, 'drop', beside), ['drop', slot])
    graph['instructions'].insert(at, ['new', slot, graph['instructions'][at][2]])
    return [('added', None, 3_000_000, 1)]


def leave_out(graph):
    """One temporary fewer."""
    at, slot = made(graph, 'temporary', 4096, from_end=True)
    size = graph['slots']['bytes'][slot]
    graph['instructions'] = [item for item in graph['instructions'] if item[0] not in ('new', 'drop') or item[1] != slot]
    for item in graph['instructions']:
        if item[0] in ('new', 'once', 'drop', 'drop_previous') and item[1] > slot:
            item[1] -= 1
    for column in graph['slots'].values():
        del column[slot]
    assert at
    return [('removed', size, None, 1)]


def resize(graph):
    _, slot = made(graph, 'activation', 8192)
    before = graph['slots']['bytes'][slot]
    graph['slots']['bytes'][slot] = 2 * before + 512
    return [('resized', before, 2 * before + 512, 1)]


def reorder(graph):
    """Two neighbours of different ops and sizes change places: a pair, in another order."""
    items = graph['instructions']
    size = graph['slots']['bytes']
    for at in reversed(range(len(items) - 1)):
        a, b = items[at], items[at + 1]
        if a[0] == b[0] == 'new' and size[a[1]] != size[b[1]] and graph['stacks'][a[2]][0] != graph['stacks'][b[2]][0]:
            items[at], items[at + 1] = b, a
            return []
    raise AssertionError('no neighbours')


def keep(graph):
    """A temporary of forward that is not freed before backward has begun."""
    items = graph['instructions']
    _, slot = made(graph, 'temporary', 4096)
    items.remove(['drop', slot])
    items.insert(find(graph, 'end', 3), ['drop', slot])
    size = graph['slots']['bytes'][slot]
    return [('lifetime', size, size, 1)]


CHANGES = {'as it is': [], 'an addition': [add], 'an omission': [leave_out], 'another size': [resize], 'another order': [reorder],
           'another lifetime': [keep], 'all of it': [resize, reorder, keep, leave_out, add]}


def as_large_as_workspaces(graph, size, gpu):
    """The largest weights, their gradients and their state get the size of cuBLAS's workspace on a card."""
    largest = max(bytes for bytes, category in zip(graph['slots']['bytes'], graph['slots']['category']) if category == 'parameter')
    for slot, category in enumerate(graph['slots']['category']):
        if graph['slots']['bytes'][slot] == largest and category in ('parameter', 'gradient', 'optimizer_state'):
            graph['slots']['bytes'][slot] = size
    graph['gpu'] = gpu


def snapshot(tessera, graph, path, *words):
    at = path.with_suffix('.graph')
    at.write_text(json.dumps(graph), encoding='utf-8')
    return tessera.simulate(at, *words, out=path)


def compare(tessera, work, name, changes, card=None):
    predicted = json.loads((GRAPHS / f'{name}.graph').read_text(encoding='utf-8'))
    workspace, gpu = card or (WORKSPACES[0][0], None)
    if card:
        as_large_as_workspaces(predicted, workspace, gpu)
    measured = temporaries.added(copy.deepcopy(predicted))
    expected = [row for change in changes for row in change(measured)]
    elsewhere(measured)
    old = snapshot(tessera, predicted, work / 'predicted.pickle')
    new = snapshot(tessera, measured, work / 'measured.pickle', '--steps', '5', '--set', 'expandable_segments:True', '--fresh-process')
    found = tessera.device('diff', '--by', 'allocation', '--top', '0', old, new)['alignment']
    # cuBLAS's two workspaces, which only the prediction has.
    expected.append(('removed', workspace, None, 2))
    assert [row['category'] for row in found['changes'] if row['old_size_bytes'] == workspace] == ['workspace']
    rows = sorted(((row['status'], row['old_size_bytes'], row['new_size_bytes'], row['count']) for row in found['changes']), key=str)
    assert rows == sorted(expected, key=str), f'{rows} instead of {sorted(expected, key=str)}'
    moved = sum(change is reorder for change in changes)
    assert found['moved'] == moved, f'{found["moved"]} in another order'
    sides = found['old'], found['new']
    assert (sides[0]['step'], sides[1]['step']) == (3, 5), 'not the last steps'
    delta = sum(row['new_peak_bytes'] - row['old_peak_bytes'] for row in found['changes'])
    assert delta == sides[1]['peak_requested_bytes'] - sides[0]['peak_requested_bytes'], 'rows do not add up to the difference'
    assert all(row['category'] and ('frames' in row) for row in found['changes'])


@cases('title', CHANGES)
@cases('name', PROGRAMS)
def test_changes(tessera, work, name, title):
    compare(tessera, work, name, CHANGES[title])


@cases('card', WORKSPACES, lambda card: card[1])
@cases('name', PROGRAMS)
def test_weights_as_large_as_workspaces(tessera, work, name, card):
    compare(tessera, work, name, [], card)
