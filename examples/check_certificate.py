#!/usr/bin/env python3
"""Check the claims of `tessera plan MODEL --budget SIZE --json`, using only its output.

    tessera plan gpt2 --batch 4 --gpu t4 --budget 2GiB --json > answer.json
    python3 examples/check_certificate.py answer.json

It checks that the plan matches its hash; that what is live at the peak adds up to the peak; that the ways are all ways that the
question allows, including the plan's own; that each way's bound is the smallest that a knapsack of its tensors allows; and that
the answer's bound is the smallest of all ways. The times of kernels cannot be checked from the file. Exits with 1 if a check fails.
"""
import hashlib
import itertools
import json
import sys

OFFLOADS = ['activations', 'optimizer', 'optimizer,activations', 'optimizer,gradients', 'optimizer,gradients,activations',
            'optimizer,gradients,parameters', 'optimizer,gradients,parameters,activations']
SAVINGS = [('kernels', {'gelu': 'fused'}), ('kernels', {'no_kv_cache': True}), ('kernels', {'attention': 'sdpa'}),
           ('kernels', {'optimizer': 'adamw-fused'}), ('loss-chunk', {'loss': 'chunked:2048'}),
           ('loss-chunk', {'loss': 'chunked:512'}), ('kernels', {'in_place': 'add,dropout'}),
           ('kernels', {'in_place': 'add'}), ('kernels', {'in_place': 'dropout'})]


def near(a, b):
    return abs(a - b) <= 1e-6 * max(abs(a), abs(b)) + 0.01  # microseconds


def sizes(tensors):
    """The sum of their bytes."""
    assert all(t['bytes'] >= 0 for t in tensors), 'a size below zero'
    return sum(t['bytes'] for t in tensors)


def free_plan(question, tried):
    """The plan with the free savings: those that take no longer, and no more memory unless they are faster."""
    plan, tried = dict(question['begins_with']), list(tried)
    last, tokens = tried.pop(0), question['batch'] * question['sequence']
    for word, keys in SAVINGS:
        (key, value), = keys.items()
        was = plan.get(key)
        replaces = {'attention': was == 'eager', 'optimizer': (was or 'adamw').startswith('adamw')}.get(key, was is None)
        tokens = question['batch'] * question['sequence']
        if word not in question['allow'] or not replaces or (value == 'chunked:2048' and tokens <= 512):
            continue
        now = tried.pop(0)
        assert now['keys'] == keys, 'a saving was left out'
        peak, time = now['peak_allocated_bytes'], now['step_time_us']
        if peak is None or time > last['step_time_us'] * (1 + 1e-9):
            continue
        if key == 'in_place' and peak >= last['peak_allocated_bytes'] - last['peak_allocated_bytes'] // 100:
            continue
        if peak <= last['peak_allocated_bytes'] * 1001 // 1000 or time < last['step_time_us'] * 0.9995:
            plan[key], last = value, now
    assert not tried, 'savings'
    return plan


def are_blocks_free(question):
    """Whether plans make choices for blocks: to recompute, or to keep in fewer bits unless the question has choices already."""
    is_chosen = question['begins_with'].keys() & {'blocks', 'checkpoint'}
    return 'recompute' in question['allow'] or ('narrow' in question['allow'] and not is_chosen)


def all_ways(question, free):
    """Every way that must be there: all choices that the question allows, and the plan as it is."""
    allow, base, batch = question['allow'], question['begins_with'], question['batch']
    tokens = batch * question['sequence']
    sizes = [batch >> n for n in range(1, 9) if batch % 2 ** n == 0 and batch >> n]
    sizes += [1] if batch & (batch - 1) and 1 < batch <= 256 and 1 not in sizes else []
    types = [{'dtype': 'autocast-bf16'}, {'dtype': 'bf16'}]
    if question['gpu'] in ('t4', 'v100'):
        types = [{'dtype': 'autocast-fp16'}, {'dtype': 'fp16', 'master_weights': True}]
    if question['model']['is_step_graph']:  # its program has decided all but what modules keep
        yield {k: v for k, v in base.items() if {'checkpoint': 'recompute', 'offload': 'offload'}.get(k) not in allow}
        return
    choices = [('accumulate', ('micro_batch', 'backward'), [{'micro_batch': size} for size in sizes]),
               ('offload', ('offload',), [{'offload': words} for words in OFFLOADS]),
               ('loss-chunk', ('loss',), [{'loss': f'chunked:{n}'} for n in (512, 128)[:1 + (tokens > 128)]]),
               ('in-backward', ('optimizer_in_backward', 'ranks'), [{'optimizer_in_backward': True}]),
               ('precision', ('dtype',), types),
               ('narrow', (), [{'narrows': True}] if are_blocks_free(question) else []),
               ('zero', ('zero',), [{'zero': stage} for stage in (1, 2, 3)] if base.get('ranks', 0) > 1 else [])]
    lists = [[{}] + (some if word in allow and not any(key in base for key in keys) else [])
             for word, keys, some in choices]
    plans = [dict(free, **{k: v for part in parts for k, v in part.items()}) for parts in itertools.product(*lists)]
    for plan in plans + [base]:
        autocast = plan.get('dtype', '').startswith('autocast')
        yield {k: v for k, v in plan.items() if (k, v) != ('attention', 'sdpa')
               and not (k == 'in_place' and autocast and 'in_place' not in base)
               and not (k in ('blocks', 'checkpoint') and are_blocks_free(question))}


def bound(way, budget, exposed):
    """The least time of any schedule of the way's kernels within the budget; None: no schedule fits."""
    def step(kernels, copies):
        copies = 0 if 'activations' in way['plan'].get('offload', '') else copies  # what is made again is not copied
        least = max(kernels, copies) + exposed * min(kernels, copies) + way['waited_us']
        return max(least, way['links_us'])  # computing more may hide what ranks send, but ends no step sooner
    if 'floor' not in way:  # left out, because it is slower than the plan without any further change
        return step(way['kernels_us'], way['copies_us'])
    items = way['could_be_made_again']
    assert sizes(way['floor']['tensors']) == way['floor']['bytes'], 'floor: sum'
    assert way['needed_bytes'] <= way['floor']['bytes'] <= way['most_bytes'], 'floor: a moment of the way'
    live = way['needed_bytes'] + sum(i['bytes'] * i['count'] for i in items)
    assert live == way['most_bytes'] and all(i['us'] >= 0 for i in items), 'live tensors: sum'
    left, extra = max(live - budget, 0), 0.0
    for item in sorted(items, key=lambda i: i['us'] / i['bytes']):  # the cheapest bytes first
        taken = min(left, item['bytes'] * item['count'])
        extra += taken * item['us'] / item['bytes']
        left -= taken
    if way['floor']['bytes'] > budget or left:
        return None
    is_dropped = not way['narrows'] and 'activations' not in way['plan'].get('offload', '')
    return step(way['kernels_us'] + (extra * way['repeats'] if is_dropped else 0), way['copies_us'])


def check_ways(answer):
    """All ways are listed, and no possible way is refused."""
    question = answer['question']
    listed = [dict(row['plan'], **({'narrows': True} if row['narrows'] else {})) for row in answer['ways'] + answer['refused']]
    is_graph = question['model']['is_step_graph']
    free = question['begins_with'] if is_graph else free_plan(question, answer['savings'])
    wanted = list(all_ways(question, free))
    for way in wanted:
        assert way in listed, f'a way was left out: {way}'
    own = {k: v for k, v in answer['plan'].items() if not (k in ('blocks', 'checkpoint') and are_blocks_free(question))
           and not (is_graph and k == 'offload' and 'offload' in question['allow'])}
    assert own in listed, "the plan's own way"
    assert all(way in [*wanted, own] for way in listed), 'a way that is not a choice'
    rows = [row for row in answer['ways'] if row['plan'] == own and 'floor' in row]
    assert rows or own in [row['plan'] for row in answer['refused']], "the plan's own way was left out"
    for way in rows:
        assert way['floor']['bytes'] <= answer['predicted']['peak_allocated_bytes'], 'a peak below its own floor'
        more = answer['predicted']['sent_bytes'] - way['sent_bytes']  # stage 3 gathers what is run again once more
        assert more == 0 or more > 0 and own.get('zero') == 3, 'what is sent'
    is_stage = f"ZeRO stage {own.get('zero')}" in [change['technique'] for change in answer['changes']]
    assert is_stage == ('zero' in own.keys() - question['begins_with'].keys()), 'stage'
    for plan in (row['plan'] for row in answer['refused']):
        together = plan.keys() & {'micro_batch', 'accumulate', 'clip'} or 'fp16' in plan.get('dtype', '')
        assert plan.get('optimizer_in_backward') and together or answer['as_is'] is None, 'a way was refused'


def check(answer):
    budget, found, ways, as_is = answer['budget_bytes'], answer['predicted'], answer['ways'], answer['as_is']
    text = json.dumps(answer['plan'], sort_keys=True, separators=(',', ':')) + '\n'
    assert hashlib.sha256(text.encode()).hexdigest() == answer['plan_hash'], 'hash of the plan'
    stopped = 'stopped_by' in answer  # the search reached a limit: not all was tried, and there may be no bound
    live = sizes(answer['binding']['tensors'])
    assert live == found['peak_allocated_bytes'] <= found['peak_reserved_bytes'], 'peak: sum'
    if as_is and not stopped:
        saved = sum(change['saved_bytes'] for change in answer['changes'])
        assert as_is['peak_allocated_bytes'] - saved == found['peak_allocated_bytes'], 'saved: sum'
        cost = sum(change['cost_us'] for change in answer['changes'])
        assert near(as_is['step_time_us'] + cost, found['step_time_us']), 'cost: sum'
    fits = found['peak_reserved_bytes'] <= budget
    verdict = 'fits' if as_is and as_is['peak_reserved_bytes'] <= budget else 'fits_with_changes' if fits else 'does_not_fit'
    assert answer['verdict'] == verdict and (fits or verdict == 'does_not_fit'), 'verdict'
    if not stopped:
        check_ways(answer)
    bounds = [bound(way, budget, answer['exposed']) for way in ways]
    for way, least in zip(ways, bounds):
        claimed = way['bound_us']
        assert (claimed is None) == (least is None), 'bound of a way'
        assert least is None or near(claimed, least), 'bound of a way'
    times, lower = [least for least in bounds if least is not None], answer['lower_bound']
    claimed = lower['step_time_us']
    floors = [way['floor']['bytes'] for way in ways if 'floor' in way]
    if not (stopped and claimed == 0):
        assert answer['is_proved'] == (not times) == (claimed is None), 'proof'
        assert not times or near(claimed, min(times)), 'bound'
    if not (stopped and lower['peak_bytes'] is None):
        assert lower['peak_bytes'] == min(floors, default=None), 'bound on memory'
        assert fits or len(floors) == len(ways), 'a way without a floor'
    if fits:
        assert claimed <= found['step_time_us'] * (1 + 1e-6) + 0.01, 'faster than its bound'
        assert near(lower['gap_us'], max(found['step_time_us'] - claimed, 0)), 'gap'
        assert stopped or all('floor' in way or least * (1 + 1e-6) >= found['step_time_us'] for way, least in zip(ways, bounds)), \
            'a way was left out'
    return claimed


if __name__ == '__main__':
    with open(sys.argv[1], encoding='utf-8') as file:
        contents = json.load(file)
    try:
        print('holds; bound', check(contents), 'us, found', contents['predicted']['step_time_us'], 'us')
    except (AssertionError, AttributeError, IndexError, KeyError, TypeError, ValueError) as wrong:
        sys.exit(f'does not hold: {wrong!r}')
