"""Host memory is part of every answer: its bytes follow from shapes, and no plan exceeds its budgets of card and host."""
import array
import csv
import json
import os
import random

import pytest
from support import ROOT, Tessera, expect

# More cases: TESSERA_CASES=100 (of budgets, per model), and another TESSERA_SEED.
CASES = int(os.environ.get('TESSERA_CASES', '3'))
SEED = int(os.environ.get('TESSERA_SEED', '1'))
MIB = 1 << 20
LIMIT = ('--work-limit', 10000000)  # answers at the limit are within their budgets, too
GRAPH = ROOT / 'tests' / 'golden' / 'graphs' / 'bert.graph'


def rounded(size):
    return -(-size // 512) * 512


class Model:
    """A random small model, and the shapes of its parameters, from its description alone."""

    def __init__(self, r, path):
        heads, self.layers = r.choice((2, 4)), r.randint(2, 4)
        self.width = c = heads * r.choice((16, 32, 48))
        vocabulary, self.is_gpt2 = r.randint(100, 3000), r.random() < 0.5
        if self.is_gpt2:
            config = {'model_type': 'gpt2', 'n_positions': 128, 'n_embd': c, 'n_layer': self.layers, 'n_head': heads}
            attention = [3 * c * c, 3 * c, c * c, c]
            block = [c, c, *attention, c, c, 4 * c * c, 4 * c, 4 * c * c, c]
            others = [vocabulary * c, 128 * c, c, c]
        else:
            inner, shared = c * r.choice((2, 3)), r.choice((heads, heads // 2))
            config = {'model_type': 'llama', 'hidden_size': c, 'num_hidden_layers': self.layers,
                      'num_attention_heads': heads, 'num_key_value_heads': shared, 'intermediate_size': inner,
                      'max_position_embeddings': 128}
            values = c * shared // heads
            block = [c * c, c * c, values * c, values * c, inner * c, inner * c, inner * c, c, c]
            others = [vocabulary * c, vocabulary * c, c]
        self.block = block
        self.blocks, self.all = block * self.layers, block * self.layers + others
        self.path = path
        path.write_text(json.dumps({**config, 'vocab_size': vocabulary}))


class Host(Tessera):
    def __init__(self, tessera, work):
        super().__init__(tessera)
        self.work = work

    def run(self, *words, status=None, **how):
        return super().run(*words, status=status, **how)

    def simulate(self, model, *options):
        done = self.run('simulate', model, '--json', *options)
        expect('simulate', (done.returncode, done.stderr), (0, ''))
        return json.loads(done.stdout)['devices'][0]

    def plan(self, model, *options):
        done = self.run('plan', model, '--json', *options)
        expect('plan', (done.returncode in (0, 1), done.stderr if '--write-front' not in options else ''), (True, ''))
        return json.loads(done.stdout), done.returncode


@pytest.fixture(scope='module')
def t(tessera, work):
    return Host(tessera, work)


def host_of(device):
    """What a rank has allocated and reserved, and what is reserved on a machine."""
    host = device.get('host', {'allocated_bytes': 0, 'reserved_bytes': 0})
    return host['allocated_bytes'], host['reserved_bytes'], device.get('host_machine_bytes', 0)


def check_shapes(t, r, what):
    model = Model(r, t.work / 'model.json')
    dtype, size = r.choice((('fp32', 4), ('bf16', 2)))
    if not model.is_gpt2:  # grouped queries need 16 bits
        dtype, size = 'bf16', 2
    batch, sequence = r.randint(1, 3), r.choice((16, 64))
    form = r.choice(('adamw', 'adamw-fused', 'adamw-loop'))
    common = ('--batch', batch, '--seq', sequence, '--dtype', dtype, '--optimizer', form, '--steps', 3)
    all_bytes = sum(rounded(size * count) for count in model.all)
    block_bytes = sum(rounded(size * count) for count in model.blocks)

    def allocated(offload, *more):
        return host_of(t.simulate(model.path, *common, '--offload', offload, *more))[0]

    expect(f'{what}: nothing', host_of(t.simulate(model.path, *common)), (0, 0, 0))
    expect(f'{what}: parameters', allocated('parameters'), block_bytes)
    expect(f'{what}: gradients', allocated('gradients'), all_bytes)
    # A recomputed block keeps its input, except for the last, whose backward is next; GPT-2 also keeps the mask of the first dropout.
    tokens = batch * sequence * model.width
    inputs = (model.layers - 1) * rounded(tokens * size) + (rounded(tokens) if model.is_gpt2 else 0)
    expect(f'{what}: activations', allocated('activations', '--checkpoint', 'full'), inputs)
    # The optimizer's state stays, with what else is at home there. On top of it come copies of gradients and parameters for the update, and
    # AdamW's own temporaries: at most three times the parameters.
    for words in ('optimizer', 'optimizer,gradients', 'optimizer,parameters', 'optimizer,gradients,parameters'):
        least = 2 * all_bytes + ('gradients' in words) * all_bytes + ('parameters' in words) * block_bytes
        most = least + 3 * all_bytes + len(model.all) * 512
        expect(f'{what}: {words} {form}', least <= allocated(words) <= most, True)
    check_first_blocks(model, r.randint(1, model.layers), lambda offload, *more: allocated(offload, *more), size, tokens, what)


def check_first_blocks(model, count, allocated, size, tokens, what):
    """The same of the first `count` blocks alone."""
    of = ('--offload-blocks', count)
    some = count * sum(rounded(size * elements) for elements in model.block)
    most = 3 * some + count * len(model.block) * 512
    what = f'{what}: of {count} blocks of {model.layers}'
    expect(f'{what}: parameters', allocated('parameters', *of), some)
    expect(f'{what}: gradients', allocated('gradients', *of), some)
    inputs = min(count, model.layers - 1) * rounded(tokens * size)
    expect(f'{what}: activations', allocated('activations', '--checkpoint', 'full', *of), inputs)
    for words, times in (('optimizer', 2), ('optimizer,gradients', 3), ('optimizer,parameters', 3), ('optimizer,gradients,parameters', 4)):
        expect(f'{what}: {words}', times * some <= allocated(words, *of) <= times * some + most, True)


def test_shapes(t):
    r = random.Random(SEED)
    for case in range(2 * CASES):
        check_shapes(t, r, f'model {case} of seed {SEED}')


def test_ranks(t):
    """A machine has what all its ranks have; ZeRO leaves each of them with a part."""
    model = Model(random.Random(SEED + 5), t.work / 'model.json')
    dtype = ('--dtype', 'bf16', '--batch', 1, '--seq', 32, '--offload', 'optimizer,gradients')
    alone = host_of(t.simulate(model.path, *dtype))
    expect('alone', alone[1] == alone[2] > 0, True)
    for ranks in (1, 2, 3, 8):
        for zero in (0, 1, 2, 3):
            allocated, reserved, machine = host_of(t.simulate(model.path, *dtype, '--ranks', ranks, '--zero', zero))
            expect(f'{ranks} ranks, stage {zero}: machine', machine, ranks * reserved)
            if zero == 0:
                expect(f'{ranks} ranks: as alone', allocated, alone[0])
            elif ranks > 1 and zero > 1:
                parts = -(-sum(model.all) // ranks) * 2
                expect(f'{ranks} ranks, stage {zero}: a part', 3 * parts <= allocated <= alone[0], True)
    text = t.run('simulate', model.path, *dtype, '--ranks', 4).stdout
    expect('text', ' by the 4 of a machine' in text, True)


def check_budgets(t, model, r, base, what):
    """One answer for random budgets: within both, and equal to what simulate finds for its plan."""
    most, host_most = base['as_is'], base['predicted']['host_machine_bytes']
    budget = int(most['peak_reserved_bytes'] * r.uniform(0.1, 1.1)) + 1
    host = int(max(host_most, 8 * MIB) * r.uniform(0.01, 1.5)) + 1
    common = base['options']
    answer, status = t.plan(model.path, *common, '--budget', f'{budget}B', '--host-budget', f'{host}B', *LIMIT)
    found, fits = answer['predicted'], answer['verdict'] != 'does_not_fit'
    expect(f'{what}: status', status, int(not fits))
    expect(f'{what}: question', answer['question']['host_budget_bytes'], host)
    if fits:
        expect(f'{what}: card', found['peak_reserved_bytes'] <= budget, True)
        expect(f'{what}: host', found['host_machine_bytes'] <= host, True)
        if answer['changes']:
            last = answer['changes'][-1]
            expect(f'{what}: the last change', (last['host_bytes'], last['host_machine_bytes']),
                   (found['host_bytes'], found['host_machine_bytes']))
    elif found['host_machine_bytes'] <= host:
        expect(f'{what}: not', found['peak_reserved_bytes'] > budget, True)
    plan = t.work / 'plan.json'
    plan.write_text(json.dumps(answer['plan']))
    sizes = [word for word in common if word not in ('--gpu', 't4', '--allow', 'all')]
    if '--gpus' in sizes:
        sizes[sizes.index('--gpus')] = '--ranks'
    run = t.simulate(model.path, *sizes, '--plan', plan, '--gpu', 't4', '--steps', 3)
    expect(f'{what}: simulated', (run['peak_reserved_bytes'], *host_of(run)[1:]),
           (found['peak_reserved_bytes'], found['host_bytes'], found['host_machine_bytes']))
    return fits


def test_budgets(t):
    """Random budgets of card and host over six models, some of them on several ranks."""
    r, count = random.Random(SEED + 1), 0
    for number in range(6):
        model = Model(r, t.work / f'model{number}.json')
        options = ('--batch', r.choice((2, 4)), '--seq', r.choice((32, 64)), '--dtype', 'bf16', '--gpu', 't4')
        if number % 3 == 2:
            options += ('--gpus', r.choice((2, 4)))
        if number % 2:
            options += ('--allow', 'all')
        base, _ = t.plan(model.path, *options, '--budget', '1B', *LIMIT)
        ample, _ = t.plan(model.path, *options, '--budget', '1B', '--host-budget', '1TiB', *LIMIT)
        asked = {name: value for name, value in ample['question']['options'].items() if name != 'host_budget'}
        expect('an ample budget is none', {**ample, 'question': {**ample['question'], 'host_budget_bytes': None, 'options': asked}}, base)
        base['options'] = options
        for case in range(CASES):
            count += check_budgets(t, model, r, base, f'model {number}, budgets {case} of seed {SEED}')
    expect('some fit', count > CASES, True)


def test_executes(t):
    """`train` takes on the host what plan and simulate predict, within the budget."""
    model = Model(random.Random(SEED + 2), t.work / 'model.json')
    tokens = t.work / 'tokens.bin'
    tokens.write_bytes(array.array('H', (number * number % 97 for number in range(9999))).tobytes())
    sizes = ('--batch', 4, '--seq', 64, '--dtype', 'bf16', '--book', 'own')
    least, _ = t.plan(model.path, *sizes, '--budget', '1B', '--allow', 'offload')
    budget, host = least['predicted']['peak_reserved_bytes'], least['predicted']['host_bytes']
    answer, status = t.plan(model.path, *sizes, '--budget', f'{budget}B', '--host-budget', f'{host}B', '--allow', 'offload')
    expect('fits with changes', (status, answer['verdict']), (0, 'fits_with_changes'))
    expect('changes', budget < least['as_is']['peak_reserved_bytes'], True)
    expect('uses the host', 0 < answer['predicted']['host_bytes'] <= host, True)
    plan = t.work / 'plan.json'
    plan.write_text(json.dumps(answer['plan']))
    run = t.simulate(model.path, *sizes, '--plan', plan, '--steps', 3)
    done = t.run('train', model.path, '--data', tokens, *sizes, '--plan', plan, '--steps', 3, '--json')
    end = json.loads(done.stdout.splitlines()[-1])
    expect('executed', (end['host_bytes'], end['predicted_host_bytes']), (host_of(run)[0],) * 2)


def test_lists(t):
    """Fronts and sizes are within the budget of the host, in every form."""
    model = Model(random.Random(SEED + 3), t.work / 'model.json')
    sizes = ('--seq', 64, '--dtype', 'bf16', '--gpu', 't4', '--allow', 'offload,kernels')
    for host in (4 * MIB, None):
        limit = ('--host-budget', f'{host}B') if host else ()
        page = t.work / 'front.csv'
        front, status = t.plan(model.path, *sizes, '--batch', 4, '--front', '--write-front', page, *limit)
        expect('front', status, 0)
        rows = list(csv.DictReader(page.open()))
        expect('as many', len(rows), len(front['front']))
        for row, point in zip(rows, front['front']):
            expect('a point', not host or point['host_machine_bytes'] <= host, True)
            expect('its row', (int(row['host_bytes']), int(row['host_machine_bytes'])),
                   (point['host_bytes'], point['host_machine_bytes']))
        uses = any(point['host_bytes'] for point in front['front'])
        text = t.run('plan', model.path, *sizes, '--batch', 4, '--front', *limit).stdout
        expect('a column', 'on the host' in text.splitlines()[2], uses)
        largest, status = t.plan(model.path, *sizes, '--budget', '60MiB', '--largest', 'batch', *limit)
        expect('largest', status, 0)
        found = largest['answer']['predicted']
        expect('within', found['peak_reserved_bytes'] <= 60 * MIB and (not host or found['host_machine_bytes'] <= host), True)
        text = t.run('plan', model.path, *sizes, '--budget', '60MiB', '--largest', 'batch', *limit).stdout
        expect('a hint', '--host-budget limits it' in text, bool(found['host_bytes'] and not host))
        expect('the verdict', ' on the host, is the largest' in text.splitlines()[0], found['host_bytes'] > 0)


def most_saved(graph, kind):
    """The most bytes that saves of modules of a class have at once, by the file."""
    texts, changes = graph['texts'], []
    for name, of, _, _, first, end, *_ in graph['modules']:
        for slot, size, made, used, left, gone in graph['saved'][first:end] if texts[of] == kind else ():
            if slot >= 0 and size:
                changes += [(made, 1, rounded(size)), (gone if gone >= 0 else float('inf'), 0, -rounded(size))]
    most, now = 0, 0
    for _, _, size in sorted(changes):
        now += size
        most = max(most, now)
    return most


def test_modules(t):
    """What modules of a step graph save is on the host until autograd releases it."""
    graph = json.loads(GRAPH.read_text())
    for kind in ('BertLayer', 'BertEmbeddings', 'BertIntermediate', 'LayerNorm'):
        allocated = host_of(t.simulate(GRAPH, '--offload-modules', kind))[0]
        expect(kind, allocated, most_saved(graph, kind))
        expect(f'{kind}: some', allocated > 0, True)
    for name in ('contrastive', 'unet'):
        graph = GRAPH.with_name(f'{name}.graph')
        answer, _ = t.plan(graph, '--budget', '1B', '--allow', 'offload')
        needs, least = answer['predicted']['host_machine_bytes'], answer['predicted']['peak_reserved_bytes']
        expect(f'{name}: the host is used', needs > 0, True)
        for share in (2, 1, 0.5):
            limits = ('--budget', f'{least}B', '--host-budget', f'{int(needs * share)}B')
            answer, status = t.plan(graph, *limits, '--allow', 'offload')
            within = answer['predicted']['host_machine_bytes'] <= needs * share
            expect(f'{name}: {share} of the host', (share < 1 or status == 0, status == 1 or within), (True, True))
