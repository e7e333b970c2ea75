"""Plans of golden step graphs.

There are ten budgets for each graph, from the peak of the unchanged program down to the smallest that a plan reserves, and one below that. A
plan must fit, agree with `simulate --plan`, take no less time and no more memory than the plan for the previous budget, and have a valid certificate.
"""
import json
import sys

from support import HERE, ROOT, cases, expect

sys.path.insert(0, str(ROOT / 'examples'))
import check_certificate  # noqa: E402

GRAPHS = ('graphs/bert', 'graphs/t5', 'graphs/vit', 'graphs/resnet-50', 'graphs/unet', 'graphs/mixtral-worst', 'graphs/llama-lora', 'graphs/plain-autocast',
          'rewrites/llama', 'rewrites/gpt-neox')
BUDGETS = 10


def answer_of(tessera, *words):
    done = tessera.run(*words, '--json', status=(0, 1))
    expect('errors', done.stderr, '')
    return json.loads(done.stdout)


def plan(tessera, graph, budget, *options):
    answer = answer_of(tessera, 'plan', graph, '--budget', f'{budget}B', *options)
    check_certificate.verify(answer, tessera.path, graph, sample=1)
    expect(f'{budget}: above the bound', answer['predicted']['peak_allocated_bytes'] >= answer['lower_bound']['peak_bytes'], True)
    return answer


def check_simulated(tessera, work, graph, answer):
    (work / 'plan.json').write_text(json.dumps(answer['plan']), encoding='utf-8')
    found = answer_of(tessera, 'simulate', graph, '--plan', work / 'plan.json', '--gpu', 'a100')['devices'][0]
    expect('allocated', found['peak']['allocated_bytes'], answer['predicted']['peak_allocated_bytes'])
    expect('time', abs(found['step_time_us'] - answer['predicted']['step_time_us']) <= 1, True)
    expect('reserved', found['peak_reserved_bytes'], answer['predicted']['peak_reserved_bytes'])


@cases('name', GRAPHS)
def test_budgets(tessera, work, name):
    graph = HERE / f'{name}.graph'
    least = plan(tessera, graph, 1)
    expect('nothing fits in a byte', (least['verdict'], least['is_proved']), ('does_not_fit', True))
    high, low = least['as_is']['peak_reserved_bytes'], least['predicted']['peak_reserved_bytes']
    last = None
    for i in range(BUDGETS):
        budget = high - (high - low) * i // (BUDGETS - 1)
        answer = plan(tessera, graph, budget)
        now = answer['predicted']
        expect(f'{budget}: fits', now['peak_reserved_bytes'] <= budget and answer['verdict'] != 'does_not_fit', True)
        expect(f'{budget}: no more memory', last is None or now['peak_reserved_bytes'] <= last['peak_reserved_bytes'], True)
        expect(f'{budget}: no less time', last is None or now['step_time_us'] >= last['step_time_us'], True)
        if last is None or now['peak_reserved_bytes'] != last['peak_reserved_bytes']:
            check_simulated(tessera, work, graph, answer)
        last = now
    expect('the least fits exactly', last['peak_reserved_bytes'], low)
    both = plan(tessera, graph, (high + low) // 2)
    for one, key in (('recompute', 'offload'), ('offload', 'checkpoint')):
        answer = plan(tessera, graph, (high + low) // 2, '--allow', one)
        expect(f'{one} alone', key in answer['plan'], False)
        slower = both['predicted']['step_time_us'] / answer['predicted']['step_time_us']
        expect(f'not slower than {one} alone', slower <= 1.02 or answer['verdict'] == 'does_not_fit', True)
    expect('nothing', plan(tessera, graph, (high + low) // 2, '--allow', 'none')['plan'], {'version': 1})


@cases('name, routing', [('mixtral-balanced', 'balanced'), ('qwen3-moe-worst', 'worst')])
def test_routing(tessera, work, name, routing):
    """How tokens are distributed to experts is repeated in all answers about a graph, as text and as JSON."""
    graph = HERE / 'graphs' / f'{name}.graph'
    (work / 'plan.json').write_text('{"version": 1}', encoding='utf-8')
    for words in (('simulate', graph), ('plan', graph, '--budget', '1GiB'), ('plan', graph, '--front'), ('plan', 'show', work / 'plan.json', graph)):
        notes = answer_of(tessera, *words)['notes' if words[0] == 'plan' else 'devices']
        notes = notes if words[0] == 'plan' else notes[0]['notes']
        expect(f'{words[1]}: JSON', notes[0]['message'].startswith(f'routing: {routing}, so '), True)
        expect(f'{words[1]}: text', f'note: {notes[0]["message"]}' in ' '.join(tessera.run(*words, status=(0, 1)).stdout.split()), True)


def test_damaged(tessera, work):
    """A graph that lacks its modules is refused with advice, and one whose saves are missing is answered or refused."""
    whole = json.loads((HERE / 'rewrites' / 'llama.graph').read_text(encoding='utf-8'))
    bare = {key: value for key, value in whole.items() if key not in ('saved', 'unheld', 'modules', 'work')}
    empty = {**whole, 'saved': [], 'modules': [[*call[:4], 0, 0, call[6]] for call in whole['modules']]}
    for graph, statuses, message in ((bare, (2,), 'trace it again'), (empty, (0, 1), '')):
        path = work / 'damaged.graph'
        path.write_text(json.dumps(graph), encoding='utf-8')
        done = tessera.run('plan', path, '--budget', '1MiB', status=statuses)
        assert message in done.stderr
    for option in (('--batch', '2'), ('--largest', 'batch'), ('--for', 'hf')):
        done = tessera.run('plan', HERE / 'rewrites' / 'llama.graph', '--budget', '1GiB', *option, status=2)
        assert 'plan' in done.stderr
