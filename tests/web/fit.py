"""Forms of "Will it fit?" and models, in Node and in the command: the same bytes, as text and as JSON.

A form is drawn from the registry that the module lists, as the page makes it; values that are typed are in TYPED."""
import json
import random
from pathlib import Path

TYPED = {
    'capacity': ['3GiB', '16GiB', '80GiB'], 'batch': ['1', '2', '3', '8'], 'seq': ['64', '128', '500', '1024'], 'steps': ['1', '2', '4'],
    'accumulate': ['2'], 'micro-batch': ['1'], 'clip': ['1.0'], 'ranks': ['2', '8'], 'zero': ['1', '2', '3'], 'eval-steps': ['1'],
    'in-place': ['add', 'add,dropout'], 'offload': ['optimizer'], 'bucket': ['1000000'], 'top': ['3'],
    'set': ['expandable_segments:True'], 'attention': ['eager', 'flash', 'chunked:64'], 'loss': ['full', 'chunked:128'],
    'checkpoint': ['none', 'full', 'selective', 'every:2', 'sqrt'], 'padding': [],
}
CONFIGS = [
    {'model_type': 'llama', 'architectures': ['LlamaForCausalLM'], 'hidden_act': 'silu', 'rms_norm_eps': 1e-5, 'tie_word_embeddings': False},
    {'model_type': 'mistral', 'architectures': ['MistralForCausalLM'], 'hidden_act': 'silu', 'rms_norm_eps': 1e-5, 'sliding_window': None},
    {'model_type': 'qwen2', 'architectures': ['Qwen2ForCausalLM'], 'hidden_act': 'silu', 'rms_norm_eps': 1e-6, 'tie_word_embeddings': True},
]
GPT2 = {'model_type': 'gpt2', 'architectures': ['GPT2LMHeadModel'], 'activation_function': 'gelu_new'}


def configs(draw, work, count):
    """Files of models that have no name: (words, files)."""
    for i in range(count):
        heads = draw.choice([4, 8, 16])
        width, layers, words = heads * draw.choice([32, 64]), draw.randint(1, 6), draw.choice([1000, 32000, 50257])
        if i % 4 == 3:
            config = {**GPT2, 'n_embd': width, 'n_head': heads, 'n_layer': layers, 'n_positions': 2048, 'vocab_size': words}
        else:
            config = {**CONFIGS[i % 4], 'hidden_size': width, 'num_attention_heads': heads, 'num_hidden_layers': layers, 'vocab_size': words,
                      'num_key_value_heads': draw.choice([heads, heads // 2]), 'intermediate_size': 3 * width, 'max_position_embeddings': 4096}
        path = work / f'config-{i}.json'
        path.write_text(json.dumps(config), encoding='ascii')
        yield path


def form(draw, question):
    """The options of a form that somebody filled in."""
    words = []
    rows = [row for row in question['parameters'] if not row['is_operand'] and row['control'] != 'file']
    for row in draw.sample(rows, draw.randint(1, 7)):
        values = TYPED.get(row['option'], row.get('choices') or [])
        if row['control'] == 'tick' and row['option'] not in TYPED:
            words.append('--' + row['option'])
        elif values:
            words += ['--' + row['option'], draw.choice(values)]
    return words


def test_forms(tap, web, options, work, compare):
    """`compare` is run.py's; its first four arguments are those that are given here."""
    draw = random.Random(36)
    listed = {question['name']: question for question in json.loads(web.run(['web', 'questions'], {})['output'])}

    def differences(words, path=None):
        files = {path.name: path} if path else {}
        return [line for more in ([], ['--json']) for line in compare(web, options.tessera, words + more, path, files)]

    cards = [card['name'] for card in options.lists['cards']]
    forms = 50 if options.whole else 10
    wrong = []
    answered = 0
    while answered < forms:
        words = ['simulate', draw.choice(['gpt2', 'gpt2-medium', 'llama-3.2-1b']), '--gpu', draw.choice(cards), *form(draw, listed['simulate'])]
        wrong += differences(words)
        # Many contradict themselves, and have a message.
        answered += web.run(words, {})['status'] <= 1
        if answered % 10 == 1:
            wrong += differences(['plan', 'gpt2', '--gpu', draw.choice(cards), '--batch', '2'])
    tap.test(f'{forms} forms of simulate and plan that are answered, and others that are not', wrong)

    names = options.lists['models']
    graphs = sorted((Path(__file__).resolve().parents[1] / 'golden/graphs').glob('*.graph'), key=lambda path: path.stat().st_size)
    # The larger models and graphs take longest.
    models = [(name, None) for name in (names if options.whole else names[:2])]
    models += [(path.name, path) for path in (*configs(draw, work, 10 if options.whole else 3), *graphs[:8 if options.whole else 2])]
    wrong = []
    for name, path in models:
        wrong += differences(['simulate', name, '--gpu', draw.choice(cards), '--capacity', draw.choice(TYPED['capacity'])], path)
    tap.test(f'{len(models)} models', wrong)


# What the page shows for an address: the command line, and its output as text and JSON.
FORMS = ['gpt2 --gpu t4', 'gpt2 --batch 12 --seq 1024 --optimizer adamw-fused --gpu t4', 'gpt2-medium --capacity 24GiB --dtype bf16 --checkpoint full',
         'llama-3.2-1b --gpu h100 --no-kv-cache', 'gpt2 --batch 4']


def plan_of_page(options, work, native):
    """What fit.mjs needs: the command's answers to what it asks the page."""
    capacity = {card['name']: f'{card["memory_bytes"] >> 30}GiB' for card in options.lists['cards']}

    def answer(words):
        return native(options.tessera, words, work)[1].decode()

    cases = []
    for line in FORMS:
        words = line.split()
        if '--gpu' in words:
            words[1:1] = ['--capacity', capacity[words[words.index('--gpu') + 1]]]
        words = ['simulate', *words]
        cases.append({'options': line, 'words': words, 'text': answer(words), 'json': answer([*words, '--json'])})
    *_, config = configs(random.Random(1), work, 2)
    # A model whose name does not say so, and files that are none.
    (work / 'mine.json').write_bytes(config.read_bytes())
    for name in ('rates.json', 'ds_config.json', 'strange.bin'):
        (work / name).write_text('{"train_batch_size": 4}', encoding='ascii')
    files = {name: str(work / name) for name in ('mine.json', 'rates.json', 'ds_config.json', 'strange.bin')}
    files['graph'] = str(Path(__file__).resolve().parents[1] / 'golden/graphs/bert.graph')
    plan = ['plan', 'gpt2', '--budget', '3GiB', '--batch', '2']
    small = ['plan', 'gpt2', '--budget', '700MiB', '--batch', '2', '--json']
    return {'cases': cases, 'config': str(config), 'plan': answer([*plan, '--json']), 'plan_text': answer(plan), 'small': answer(small),
            'files': files, **options.lists}
