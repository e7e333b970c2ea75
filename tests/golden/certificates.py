"""certificates.py: random questions for `tessera plan`, and ways to tamper with the certificates that it answers."""
import copy
import hashlib
import json
import random
import re

from support import HERE, ROOT

MODELS = {
    'gpt2': {'model_type': 'gpt2', 'vocab_size': 2000, 'n_positions': 128, 'n_embd': 128, 'n_layer': 4, 'n_head': 4},
    'llama': {'model_type': 'llama', 'vocab_size': 2000, 'hidden_size': 128, 'num_hidden_layers': 4, 'num_attention_heads': 4,
              'intermediate_size': 256},
    'grouped': {'model_type': 'llama', 'vocab_size': 1000, 'hidden_size': 128, 'num_hidden_layers': 3, 'num_attention_heads': 4,
                'num_key_value_heads': 2, 'intermediate_size': 320, 'tie_word_embeddings': True},
    'mistral': {'model_type': 'mistral', 'vocab_size': 1000, 'hidden_size': 64, 'num_hidden_layers': 5, 'num_attention_heads': 2,
                'num_key_value_heads': 2, 'intermediate_size': 128},
    'qwen2': {'model_type': 'qwen2', 'vocab_size': 1500, 'hidden_size': 64, 'num_hidden_layers': 2, 'num_attention_heads': 2,
              'num_key_value_heads': 2, 'intermediate_size': 192},
}
# Of each option of a run, values to try.
VALUES = {
    'accumulate': (2, 3), 'micro_batch': (1, 2), 'accumulation': ('flat', 'grouped'), 'backward': ('once', 'each'),
    'optimizer': ('adamw', 'adamw-foreach', 'adamw-fused', 'adamw-loop', 'sgd', 'sgd-momentum', 'adafactor', 'muon', 'adamw-8bit', 'lion'),
    'optimizer_in_backward': (True,), 'clip': ('1.0', '0.25'), 'dtype': ('fp32', 'bf16', 'fp16', 'autocast-bf16', 'autocast-fp16'),
    'attention': ('sdpa', 'eager', 'flash', 'efficient', 'chunked:16'), 'gelu': ('fused', 'eager'),
    'in_place': ('add', 'dropout', 'add,dropout'), 'checkpoint': ('full', 'selective', 'every:2', 'sqrt', 'blocks:0-1'),
    'checkpoint_form': ('non-reentrant',), 'loss': ('chunked:64', 'chunked:512', 'full'), 'master_weights': (True,), 'loss_scale': (1024,),
    'loss_scale_window': (100,), 'lora': (4,), 'lora_alpha': ('16', '0.5'), 'lora_targets': ('all-linear', 'q_proj,v_proj', 'c_attn'),
    'offload': ('optimizer', 'activations', 'activations:disk', 'optimizer,gradients', 'optimizer,gradients,parameters'),
    'ranks': (2, 4), 'zero': (0, 1, 2, 3), 'bucket': (100000,), 'no_overlap': (True,), 'no_kv_cache': (True,),
    'replicas': (2,), 'lora_dropout': ('0.1',), 'adapter_dtype': ('base',), 'quantize': ('nf4', 'fp4'), 'double_quant': (True,),
    'kbit_training': ('checkpointing', 'casts'), 'fp8': ('te',),
    'offload_blocks': (1, 2),
}
# Options that another one must be there for.
NEEDS = {'lora_alpha': {'lora': 4}, 'lora_targets': {'lora': 8}, 'zero': {'ranks': 2}, 'bucket': {'ranks': 4}, 'no_overlap': {'ranks': 2}, 'replicas': {'ranks': 4}, 'lora_dropout': {'lora': 4}, 'adapter_dtype': {'lora': 4},
         'quantize': {'lora': 4}, 'double_quant': {'lora': 4, 'quantize': 'nf4'}, 'kbit_training': {'lora': 4, 'quantize': 'nf4'},
         'master_weights': {'dtype': 'bf16'}, 'fp8': {'dtype': 'bf16'}, 'loss_scale': {'dtype': 'autocast-fp16'}, 'loss_scale_window': {'dtype': 'autocast-fp16'},
         'accumulation': {'micro_batch': 1}, 'backward': {'micro_batch': 1}, 'checkpoint_form': {'checkpoint': 'full'},
         'offload_blocks': {'offload': 'optimizer,gradients,parameters'}}
TARGETS = ('hf', 'deepspeed', 'fsdp2', 'torchtitan', 'megatron', 'env', 'tessera', 'peft', 'axolotl', 'unsloth')
ALLOW = ('kernels', 'loss-chunk', 'accumulate', 'recompute', 'offload', 'in-backward', 'precision', 'narrow', 'zero', 'fp8', 'all-blocks')
RECORDED = {'batch': 8, 'seq': 64}  # the sizes of the recorded run
GRAPHS = [HERE / 'rewrites' / f'{name}.graph' for name in ('llama', 'bert', 'gpt2-adamw', 'resnet', 'llama-autocast')] + \
    [HERE / 'graphs' / f'{name}.graph' for name in ('layers', 'qwen3', 'layers-checkpoint', 'vit', 'mixtral-balanced')]


def rows_of_options():
    """The options that a plan decides, by the table that declares them."""
    text = (ROOT / 'src' / 'engine' / 'plan' / 'option_rows.def').read_text(encoding='utf-8')
    return set(re.findall(r'^\{\.name = "(\w+)"', text, re.MULTILINE))


def words_of(options):
    """Options of a command line."""
    words = []
    for name, value in options.items():
        for one in value if isinstance(value, (list, tuple)) else [value]:
            words += ['--' + name.replace('_', '-')] + ([] if one is True else [str(one)])
    return words


class Question:
    """What is asked: the model, options, and how large the budget is, as a part of what the model needs as it is."""

    def __init__(self, model, options, part=None):
        self.model, self.options, self.part = model, options, part

    def __str__(self):
        return f'{self.model} {" ".join(map(str, words_of(self.options)))} {self.part}'


class Questions:
    """Random questions. `files`: names of what the tests wrote: a folder with MODELS, rates and plans, and a recorded run."""

    def __init__(self, seed, files):
        self.random, self.files = random.Random(seed), files

    def singles(self):
        """Each value of each option, on a model that may have it."""
        for name, values in VALUES.items():
            for value in values:
                model = 'gpt2' if value == 'c_attn' else self.random.choice(['gpt2', 'llama'] if 'q_proj' not in str(value) else ['llama'])
                allow = {'allow': self.allow()} if self.random.random() < 0.7 else {}
                yield Question(self.files[model], {**self.sizes(), **NEEDS.get(name, {}), **allow, name: value}, self.random.uniform(0.3, 1.1))

    def sizes(self):
        return {'batch': self.random.choice((2, 4, 6, 8)), 'seq': self.random.choice((32, 64, 96))}

    def allow(self):
        words = self.random.sample(ALLOW, self.random.randrange(5))
        return 'all' if self.random.random() < 0.1 else ','.join(words) or 'none'

    def some(self):
        """One with any options."""
        draw = self.random.random
        options = self.sizes()
        for name in self.random.sample(sorted(VALUES), self.random.randrange(4)):
            options = {**options, **NEEDS.get(name, {}), name: self.random.choice(VALUES[name])}
        if draw() < 0.85:
            options['allow'] = self.allow()
        if draw() < 0.6:
            options['gpu'] = self.random.choice(('t4', 'v100', 'a10', 'h100', 'mi300x'))
        elif draw() < 0.4:
            options['rates'] = self.files['rates']
        if draw() < 0.2:
            options['gpus'] = options.pop('ranks', 4)
        if draw() < 0.5 and options.keys() & {'gpus', 'ranks'}:
            options['link'] = self.random.choice(('8Gb/s', '50GB/s', '0.125GB/s'))
        if draw() < 0.5 and options.keys() & {'gpus', 'ranks'}:
            options['gpus_per_node'] = self.random.choice((1, 2))
            options['network'] = self.random.choice(('25GB/s', '400Gb/s'))
        if draw() < 0.4 and options.keys() & {'gpus', 'ranks'}:
            options['latency'] = self.random.choice(('3us', '2us,20us'))
        if draw() < 0.2:
            options['host_budget'] = self.random.choice(('1GiB', '20MiB', '5MiB'))
        if draw() < 0.2:
            options['book'] = self.random.choice(('own', 'torch'))
        if draw() < 0.2:
            options['steps'] = self.random.choice((2, 4))
        if draw() < 0.15:
            options['plan'] = self.files['plan']
        if draw() < 0.15:
            options['work_limit'] = self.random.choice((20000, 100000, 300000))
        if draw() < 0.15:
            options['for'] = self.random.sample(TARGETS, self.random.choice((1, 1, 2)))
            if draw() < 0.8:
                options.pop('allow', None)
        if draw() < 0.15:
            options['largest'] = self.random.choice(('batch', 'seq', 'model'))
        part = self.random.choice((self.random.uniform(0.2, 1.1), self.random.uniform(0.2, 1.1), 0.001, 100))
        return Question(self.files[self.random.choice(sorted(MODELS))], options, part)

    def graph(self):
        """One about a step graph."""
        options = {}
        if self.random.random() < 0.6:
            options['allow'] = self.random.choice(('recompute', 'offload', 'recompute,offload', 'none', 'all'))
        if self.random.random() < 0.3:
            options['gpu'] = self.random.choice(('t4', 'h100'))
        if self.random.random() < 0.2:
            options['steps'] = 2
        return Question(self.random.choice(GRAPHS), options, self.random.choice((self.random.uniform(0.3, 1.05), 0.001)))

    def recorded(self):
        """One with a recorded run, of the sizes that it has."""
        return Question(self.files['gpt2'], {**RECORDED, 'from': self.files['recorded'], 'allow': self.allow()}, self.random.uniform(0.4, 1.1))


# ---- tampering ----

def sign(answer):
    text = json.dumps(answer['plan'], sort_keys=True, separators=(',', ':')) + '\n'
    answer['plan_hash'] = hashlib.sha256(text.encode()).hexdigest()


def text_of(plan):
    return json.dumps(plan, sort_keys=True, separators=(',', ':'))


def surveyed(answer):
    return [way for way in answer['ways'] if 'floor' in way]


def settle(answer):
    """Make the answer's bounds those of its ways."""
    bounds = [way['bound_us'] for way in answer['ways'] if way['bound_us'] is not None]
    least, fits = min(bounds, default=None), answer['verdict'] != 'does_not_fit'
    gap = max(answer['predicted']['step_time_us'] - least, 0) if fits and least is not None else None
    answer['lower_bound'].update(step_time_us=least, gap_us=gap, gap_percent=100 * gap / least if gap is not None and least else None,
                                 peak_bytes=min((way['floor']['bytes'] for way in surveyed(answer)), default=None))
    answer['is_proved'] = least is None


def drop(answer, is_gone):
    """Leave out ways, consistently."""
    kept = [way for way in answer['ways'] if not is_gone(way)]
    if len(kept) == len(answer['ways']) or not kept:
        raise Unchanged
    answer['ways'] = kept
    settle(answer)


class Unchanged(Exception):
    """The certificate has nothing that could be tampered with in this manner."""


def some(items):
    if not items:
        raise Unchanged
    return items[len(items) // 2]


def other_model(answer):
    model = answer['question']['model']
    if not model['config']:
        raise Unchanged
    key = 'n_layer' if model['config']['model_type'] == 'gpt2' else 'num_hidden_layers'
    model['config'][key] = model['layers'] = model['layers'] + 1


def scale(value, is_scaled, factor):
    """Multiply all fields of which is_scaled(name, value) is true."""
    if isinstance(value, dict):
        for key, part in value.items():
            if is_scaled(key, part):
                value[key] = part * factor
            else:
                scale(part, is_scaled, factor)
    elif isinstance(value, list):
        for part in value:
            scale(part, is_scaled, factor)


def scale_times(answer, factor):
    """All times, consistently: those of another machine."""
    scale(answer, lambda key, value: key.endswith('us') and isinstance(value, float), factor)


def scale_bytes(answer, factor):
    scale(answer, lambda key, value: (key == 'bytes' or key.endswith('_bytes')) and type(value) is int and key != 'budget', factor)
    answer['question']['options']['budget'] *= factor


def invent_changes(answer):
    if not answer['changes'] or not answer['as_is']:
        raise Unchanged
    answer['changes'] = [{'technique': 'a miracle', 'plan': answer['plan'],
                          'saved_bytes': answer['as_is']['peak_allocated_bytes'] - answer['predicted']['peak_allocated_bytes'],
                          'cost_us': answer['predicted']['step_time_us'] - answer['as_is']['step_time_us']}]
    if len(answer['plan'].keys() ^ answer['question']['begins_with'].keys()) <= 1:
        raise Unchanged  # that is one change indeed


def less_memory(answer):
    """A plan that needs less, with all sums made right."""
    tensor = max(answer['binding']['tensors'], key=lambda one: one['bytes'])
    taken = tensor['bytes'] // 1024 * 512
    tensor['bytes'] -= taken
    answer['predicted']['peak_allocated_bytes'] -= taken
    answer['predicted']['peak_reserved_bytes'] -= taken
    if answer['changes']:
        answer['changes'][-1]['saved_bytes'] += taken
    elif answer['as_is']:
        answer['as_is']['peak_allocated_bytes'] -= taken


def faster(answer):
    """A plan that is exactly as fast as its bound, with all sums made right."""
    if answer['lower_bound']['gap_us'] is None or answer['lower_bound']['gap_us'] < 1:
        raise Unchanged
    gap = answer['lower_bound']['gap_us']
    answer['predicted']['step_time_us'] -= gap
    answer['lower_bound']['gap_us'] = 0.0
    if answer['changes']:
        answer['changes'][-1]['cost_us'] -= gap


def proof(answer):
    """That nothing fits, by floors that are all above the budget."""
    if answer['verdict'] != 'does_not_fit' or answer['is_proved'] or any('floor' not in way for way in answer['ways']):
        raise Unchanged
    for way in answer['ways']:
        if way['bound_us'] is not None:
            more = answer['budget_bytes'] + 512 - way['floor']['bytes']
            way['floor']['bytes'] += more
            way['floor']['tensors'][0]['bytes'] += more
            way['needed_bytes'] += more
            way['most_bytes'] += more
            way['bound_us'] = None
    settle(answer)


def higher_bound(answer):
    """A way that is slower by what it has to make again, and the bounds that follow."""
    way = min((way for way in answer['ways'] if way['bound_us'] is not None), key=lambda way: way['bound_us'], default=None)
    if way is None or 'floor' not in way:
        raise Unchanged
    way['kernels_us'] += 500
    way['bound_us'] += 500
    if answer['predicted']['step_time_us'] < way['bound_us']:
        raise Unchanged
    settle(answer)


def swap_plan(answer):
    """The plan of another way, signed."""
    others = [way['plan'] for way in answer['ways'] if way['plan'] != answer['plan']]
    answer['plan'] = some(others)
    sign(answer)


def reset_plan(answer):
    """The plan to begin with instead of the one that was found, with its figures and no changes."""
    if answer['plan'] == answer['question']['begins_with'] or not answer['as_is']:
        raise Unchanged
    answer['plan'], answer['predicted'], answer['changes'] = answer['question']['begins_with'], answer['as_is'], []
    sign(answer)
    settle(answer)


def move(value, by=1):
    """Another value of the same type."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 512 * by
    if isinstance(value, float):
        return value * 1.01 + 7 * by
    if isinstance(value, str):
        return value + 'x'
    return 1 if value is None else None


def at(path):
    """Change the value in a place; '*' stands for the item in the middle of a list."""
    def change(answer):
        value, keys = answer, path.split('.')
        for key in keys[:-1]:
            value = some(value) if key == '*' else value.get(key)
            if value is None:
                raise Unchanged
        if keys[-1] not in value:
            raise Unchanged
        value[keys[-1]] = move(value[keys[-1]])
    return change


FIELDS = [
    'schema', 'command', 'tessera', 'verdict', 'budget_bytes', 'is_proved', 'plans_tried', 'exposed', 'plan_hash', 'blocks', 'blocks_out_of_chain',
    'stopped_by', 'as_is', 'as_is.peak_allocated_bytes', 'as_is.peak_reserved_bytes', 'as_is.step_time_us', 'as_is.sent_bytes', 'as_is.stall_time_us',
    'predicted.peak_allocated_bytes', 'predicted.peak_reserved_bytes', 'predicted.step_time_us', 'predicted.sent_bytes', 'predicted.stall_time_us',
    'lower_bound.step_time_us', 'lower_bound.gap_us', 'lower_bound.peak_bytes', 'changes.*.technique', 'changes.*.saved_bytes', 'changes.*.cost_us',
    'savings.*.peak_allocated_bytes', 'savings.*.step_time_us', 'refused.*.narrows', 'refused.*.reason', 'binding.phase', 'binding.op', 'binding.step',
    'binding.tensors.*.name', 'binding.tensors.*.bytes', 'ways.*.narrows', 'ways.*.kernels_us', 'ways.*.copies_us', 'ways.*.waited_us',
    'ways.*.links_us', 'ways.*.bound_us', 'question.batch', 'question.sequence', 'question.steps', 'question.book', 'question.gpu',
    'question.link_bytes_per_s', 'question.rates', 'question.rates_file', 'question.model.name', 'question.model.is_step_graph',
    'question.model.layers', 'question.model.width', 'question.model.heads', 'question.model.kv_heads', 'question.model.inner',
    'question.model.vocabulary', 'question.model.sha256', 'question.options.budget', 'question.options.batch', 'question.options.seq',
    'question.options.gpu', 'question.options.allow', 'question.options.work_limit',
]
OF_WAY = ['most_bytes', 'needed_bytes', 'repeats', 'sent_bytes', 'could_be_made_again.*.op', 'could_be_made_again.*.kernel',
          'could_be_made_again.*.bytes', 'could_be_made_again.*.count', 'could_be_made_again.*.us', 'floor.phase', 'floor.op', 'floor.bytes',
          'floor.tensors.*.name', 'floor.tensors.*.bytes']


def in_way(path):
    change = at(path)
    return lambda answer: change(some(surveyed(answer)))


def of_question(**changes):
    """The question, with what it says of the options, too."""
    def change(answer):
        names = {'sequence': 'seq'}
        for key, value in changes.items():
            if answer['question'][key] == value:
                raise Unchanged
            answer['question'][key] = value
            answer['question']['options'][names.get(key, key)] = value
    return change


def more_budget(answer):
    """Another budget, said everywhere, and the verdict that follows."""
    answer['budget_bytes'] += 1 << 20
    answer['question']['options']['budget'] += 1 << 20


def less_budget(answer):
    """A budget that the plan just meets, said everywhere."""
    if answer['budget_bytes'] <= answer['predicted']['peak_reserved_bytes']:
        raise Unchanged
    taken = answer['question']['options']['budget'] - answer['budget_bytes']
    answer['budget_bytes'] = answer['predicted']['peak_reserved_bytes']
    answer['question']['options']['budget'] = answer['budget_bytes'] + taken


def allow_more(answer):
    words = answer['question']['allow']
    word = some([word for word in ALLOW if word not in words and word != 'zero'])
    answer['question']['allow'] = [one for one in ALLOW if one in words or one == word]
    answer['question']['options']['allow'] = ','.join(answer['question']['allow'])


def allow_less(answer):
    words = answer['question']['allow']
    words.remove(some(words))
    answer['question']['options']['allow'] = ','.join(words) or 'none'


def refuse(answer):
    if len(answer['ways']) < 2:
        raise Unchanged
    way = answer['ways'].pop()
    answer['refused'].append({'plan': way['plan'], 'narrows': way['narrows'], 'reason': 'the model or another choice excludes it'})
    settle(answer)


def begin_elsewhere(answer):
    plan = answer['question']['begins_with']
    if answer['question']['model']['is_step_graph']:
        raise Unchanged
    plan.update(attention='eager' if plan.get('attention') != 'eager' else 'flash')


def wider_floor(answer):
    """The floor of the leanest way is higher, and so is the bound on memory."""
    way = min(surveyed(answer), key=lambda one: one['floor']['bytes'], default=None)
    if way is None or way['floor']['bytes'] + 512 > way['most_bytes'] or way['floor']['bytes'] + 512 > answer['predicted']['peak_allocated_bytes']:
        raise Unchanged
    way['floor']['bytes'] += 512
    way['floor']['tensors'][0]['bytes'] += 512
    settle(answer)


def relabel(answer):
    """The figures of one way for another."""
    ways = [way for way in answer['ways'] if 'floor' not in way] or answer['ways']
    if len(ways) < 2 or ways[0]['plan'] == ways[-1]['plan']:
        raise Unchanged
    ways[0]['plan'], ways[-1]['plan'] = ways[-1]['plan'], ways[0]['plan']


def duplicate(answer):
    answer['ways'].append(copy.deepcopy(answer['ways'][0]))


def merge_changes(answer):
    """Two changes as one, with their sums."""
    changes = answer['changes']
    if len(changes) < 2 or changes[0]['saved_bytes'] is None:
        raise Unchanged
    if changes[0]['plan'].keys() == changes[1]['plan'].keys():
        raise Unchanged  # both are choices for blocks, which may be one change
    first = changes.pop(0)
    changes[0].update(saved_bytes=changes[0]['saved_bytes'] + first['saved_bytes'], cost_us=changes[0]['cost_us'] + first['cost_us'])


def shift_saved(answer):
    """One change saves more, and the next less."""
    changes = answer['changes']
    if len(changes) < 2 or changes[0]['saved_bytes'] is None:
        raise Unchanged
    changes[0]['saved_bytes'] += 4096
    changes[1]['saved_bytes'] -= 4096


def shift_cost(answer):
    changes = answer['changes']
    if len(changes) < 2 or changes[0]['cost_us'] is None:
        raise Unchanged
    changes[0]['cost_us'] -= 50.0
    changes[1]['cost_us'] += 50.0


def fewer_changes(answer):
    if not answer['changes']:
        raise Unchanged
    answer['changes'] = []


def last_saving(answer):
    if not answer['savings']:
        raise Unchanged
    answer['savings'].pop()


def shift_tensors(answer):
    """What is live at the peak, with the same sum."""
    tensors = answer['binding']['tensors']
    if len(tensors) < 2:
        raise Unchanged
    tensors[0]['bytes'] -= 512
    tensors[1]['bytes'] += 512


def cheaper_items(answer):
    """All that could be made again costs nothing, and bounds follow."""
    if not surveyed(answer):
        raise Unchanged
    changed = False
    for way in surveyed(answer):
        for item in way['could_be_made_again']:
            changed = changed or item['us'] > 1
            item['us'] = 0.0
    if not changed:
        raise Unchanged


def stop(answer):
    if 'stopped_by' in answer:
        raise Unchanged
    answer.update(stopped_by='work_limit', changes=[])


def go_on(answer):
    if answer.pop('stopped_by', None) is None:
        raise Unchanged


def add_field(answer):
    answer['is_audited'] = True


def lose(path):
    def change(answer):
        *keys, last = path.split('.')
        value = answer
        for key in keys:
            value = some(value) if key == '*' else value[key]
        if last not in value:
            raise Unchanged
        del value[last]
    return change


def has(part):
    return lambda way: part in way['plan']


TAMPERINGS = {
    **{f'another {path}': at(path) for path in FIELDS},
    **{f"a way's other {path}": in_way(path) for path in OF_WAY},
    **{f'no {path}': lose(path) for path in ('verdict', 'tessera', 'plan', 'plan_hash', 'question', 'question.options', 'question.model.config',
                                             'question.begins_with', 'ways', 'refused', 'savings', 'binding', 'changes', 'ways.*.kernels_us',
                                             'predicted.sent_bytes', 'as_is', 'lower_bound')},
    'another model, consistently': other_model,
    'another card': of_question(gpu='rtx4090'),
    'another batch, said twice': of_question(batch=16),
    'another sequence, said twice': of_question(sequence=128),
    'more steps, said twice': of_question(steps=5),
    'the other book, said twice': of_question(book='own'),
    'more budget, said everywhere': more_budget,
    'less budget, said everywhere': less_budget,
    'more is allowed': allow_more,
    'less is allowed': allow_less,
    'another beginning': begin_elsewhere,
    'times twice as long': lambda answer: scale_times(answer, 2),
    'times a hundredth shorter': lambda answer: scale_times(answer, 0.99),
    'twice the bytes': lambda answer: scale_bytes(answer, 2),
    'an invented change': invent_changes,
    'changes that are merged': merge_changes,
    'changes that share otherwise': shift_saved,
    'changes that cost otherwise': shift_cost,
    'no changes': fewer_changes,
    'less memory, consistently': less_memory,
    'as fast as the bound, consistently': faster,
    'a proof, consistently': proof,
    'a higher bound, consistently': higher_bound,
    'a higher floor, consistently': wider_floor,
    'the plan of another way, signed': swap_plan,
    'the plan to begin with, signed': reset_plan,
    'the first way less': lambda answer: drop(answer, lambda way: way is answer['ways'][0]),
    'the last way less': lambda answer: drop(answer, lambda way: way is answer['ways'][-1]),
    'the bound\'s way less': lambda answer: drop(answer, lambda way: way['bound_us'] == answer['lower_bound']['step_time_us']),
    'ways in parts less': lambda answer: drop(answer, has('micro_batch')),
    'ways on the host less': lambda answer: drop(answer, has('offload')),
    'ways of another type less': lambda answer: drop(answer, has('dtype')),
    'ways of a loss in parts less': lambda answer: drop(answer, has('loss')),
    'ways in backward less': lambda answer: drop(answer, has('optimizer_in_backward')),
    'ways of a stage less': lambda answer: drop(answer, has('zero')),
    'ways with fewer bits less': lambda answer: drop(answer, lambda way: way['narrows']),
    'a way that is refused': refuse,
    'two ways in the place of each other': relabel,
    'a way twice': duplicate,
    'the last saving less': last_saving,
    'other tensors at the peak': shift_tensors,
    'what is made again costs nothing': cheaper_items,
    'it was stopped': stop,
    'it was not stopped': go_on,
    'a field more': add_field,
}


# These make a true certificate of another plan: what is taken on trust is that the search found this one.
OTHER_PLAN = {'the plan of another way, signed', 'the plan to begin with, signed', 'it was stopped'}
# These ask another question, which may have the same answer.
OTHER_QUESTION = {'more budget, said everywhere', 'less budget, said everywhere', 'more is allowed', 'less is allowed', 'more steps, said twice',
                  'another card'}


def tampered(answer, name):
    """A changed copy. Raises Unchanged if there is nothing to change."""
    other = copy.deepcopy(answer)
    TAMPERINGS[name](other.get('answer') or other)
    if other == answer:
        raise Unchanged
    return other


def changed_places(a, b, place=''):
    """Where two values differ, as "ways[3].floor.bytes"."""
    if isinstance(a, dict) and isinstance(b, dict):
        for key in a.keys() | b.keys():
            if key in a and key in b:
                yield from changed_places(a[key], b[key], f'{place}.{key}')
            else:
                yield f'{place}.{key}'.strip('.')
    elif isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
        for i, (one, other) in enumerate(zip(a, b)):
            yield from changed_places(one, other, f'{place}[{i}]')
    elif type(a) is not type(b) or (abs(a - b) > 0.02 if isinstance(a, float) else a != b):  # times are rounded
        yield place.strip('.')


def is_trusted(place, fields):
    """Whether one of the fields contains the place: "ways[1,3]", "changes[*].technique", "*_us" or a name."""
    for field in fields:
        pattern = re.escape(field).replace(r'\[\*\]', r'\[\d+\]').replace(r'\*', '.*')
        if field.startswith('ways['):
            pattern = r'ways\[(' + field[5:-1].replace(',', '|') + r')\]'
        if re.match(pattern + r'($|[.\[])', place):
            return True
    return False
