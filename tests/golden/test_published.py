"""Figures that papers and other tools published, next to tessera's.

Each row runs a command and compares its figure with the published one, within a tolerance. docs/published.md has the table that this
makes; --accept writes it."""
import functools
import json
import re
from dataclasses import dataclass
from typing import Callable

import pytest
from support import ROOT, cases

PAGE = ROOT / 'docs' / 'published.md'
BEGIN, END = '<!-- table -->\n', '<!-- end of the table -->'
GIB, MIB, TIB, GB = 2**30, 2**20, 2**40, 1e9

# Files that commands name. What is not there is the class's default.
CONFIGS = {
    'megatron-22b': {'n_embd': 6144, 'n_layer': 48, 'n_head': 64, 'n_positions': 2048, 'vocab_size': 51200},
    'gpt-3': {'n_embd': 12288, 'n_layer': 96, 'n_head': 96, 'n_positions': 2048},
    'megatron-530b': {'n_embd': 20480, 'n_layer': 105, 'n_head': 128, 'n_positions': 2048, 'vocab_size': 51200},
    'megatron-1t': {'n_embd': 25600, 'n_layer': 128, 'n_head': 160, 'n_positions': 2048, 'vocab_size': 51200},
    'infinity-0.1t': {'n_embd': 10240, 'n_layer': 80, 'n_head': 128},
    'infinity-0.5t': {'n_embd': 20480, 'n_layer': 100, 'n_head': 160},
    'infinity-1t': {'n_embd': 25600, 'n_layer': 128, 'n_head': 256},
    'infinity-10t': {'n_embd': 65536, 'n_layer': 195, 'n_head': 512},
    'infinity-101t': {'n_embd': 163840, 'n_layer': 315, 'n_head': 1024},
    'megatron-test': {'n_embd': 512, 'n_layer': 12, 'n_head': 8, 'vocab_size': 50304},
    'megatron-stage': {'n_embd': 512, 'n_layer': 3, 'n_head': 8, 'vocab_size': 50304},
    'megatron-swiglu': {'model_type': 'llama', 'hidden_size': 512, 'num_hidden_layers': 3, 'num_attention_heads': 8,
                        'intermediate_size': 1344, 'vocab_size': 50304},
    'one-block': {'n_embd': 4096, 'n_layer': 1, 'n_head': 32},
    'llm.c': {'vocab_size': 50304, 'resid_pdrop': 0, 'embd_pdrop': 0, 'attn_pdrop': 0},
    'text-003': {'n_embd': 2048, 'n_layer': 24, 'n_head': 16, 'tie_word_embeddings': False},
}


@dataclass
class Row:
    """`figure` takes what the command printed, in bytes or whatever `unit` counts. A tolerance is a part, or `digits`: printed ones."""
    quantity: str
    source: str
    command: str
    figure: Callable[[dict], float]
    expected: float
    unit: float = 1
    unit_name: str = ''
    tolerance: float = 0
    half_digit: float = 0  # of a printed figure, instead of a tolerance

    def check(self, found):
        apart = abs(found - self.expected)
        allowed = self.half_digit if self.half_digit else self.tolerance * self.expected
        assert apart <= allowed * 1.000001, f'{found} is not {self.expected}'

    def text(self, found):
        places = 0 if self.expected == int(self.expected) and self.expected >= 1000 else 2 if self.expected < 100 else 1
        shown = f'{found:,.0f}' if found == int(found) and self.unit == 1 else f'{found:,.{places}f}'
        wanted = f'{self.expected:,}' if self.expected == int(self.expected) else f'{self.expected:,.10g}'
        error = found / self.expected - 1
        off = '0' if found == self.expected else f'{100 * error:+.2f} %'
        unit = f' {self.unit_name}' if self.unit_name else ''
        return f'| {self.quantity} | {self.source} | `{self.command}` | {wanted}{unit} | {shown}{unit} | {off} |'


def estimate(source, what, key='device_bytes'):
    def figure(answer):
        return next(e for e in answer['estimates'] if (e['source'], e['what']) == (source, what))[key]
    return figure


def scaled(figure, by):
    return lambda answer: figure(answer) / by


def compared(options, model=None):
    return f'plan {model + ".json" if model else ""} --compare {options}'.replace('  ', ' ')


# ---- Rows ----

def zero():
    """A card's bytes of stages 1, 2 and 3, of the paper's table 1. 2218.75 is printed as 2218."""
    table = ((7500000000, 4, (52.5, 41.3, 30)), (7500000000, 16, (35.6, 21.6, 7.5)), (7500000000, 64, (31.4, 16.6, 1.88)),
             (7500000000, 1024, (30.1, 15.1, 0.12)), (10**12, 64, (4187, 2218, 250)), (10**12, 1024, (4011, 2013, 15.6)))
    for parameters, cards, stages in table:
        for stage, expected in enumerate(stages, 1):
            digits = 0.5 * 10.0**-len(str(expected).partition('.')[2]) if expected < 1000 else 0
            yield Row(f'stage {stage} on {cards} cards, {parameters / 1e9:g} G parameters', 'ZeRO, table 1',
                      compared(f'--parameters {parameters} --gpus {cards}'), estimate('ZeRO paper', f'stage {stage}'),
                      expected, GB, 'GB', 0.005, digits)


def infinity():
    table = (('0.1t', 1.83, .05), ('0.5t', 9.16, .12), ('1t', 18.31, .20), ('10t', 182.81, .76), ('101t', 1845.7, 3.08))
    for name, states, checkpoints in table:
        command = compared('--batch 32 --seq 1024', f'infinity-{name}')
        yield Row(f'states, {name.upper()}', 'ZeRO-Infinity', command, estimate('ZeRO-Infinity', 'states elsewhere', 'host_bytes'),
                  states, TIB, 'TiB', 0.005)
        yield Row(f'inputs of blocks, {name.upper()}', 'ZeRO-Infinity', command,
                  estimate('ZeRO-Infinity', 'inputs of blocks elsewhere', 'host_bytes'), checkpoints, TIB, 'TiB', 0.05)


def deepspeed():
    cold = compared('--parameters 2851000000 --largest-layer 32000000 --gpus 8')
    for what, host, device in (('ZeRO-3, all on the host', 71.69, 0.12), ('ZeRO-3, optimizer on the host', 63.72, 0.78),
                               ('ZeRO-3', 1.43, 6.09)):
        # Its count of parameters is rounded in print: 2851 M.
        yield Row(f'{what}, host', 'DeepSpeed, docs', cold, estimate('DeepSpeed', what, 'host_bytes'), host, GIB, 'GiB',
                  half_digit=0.015)
        yield Row(f'{what}, card', 'DeepSpeed, docs', cold, estimate('DeepSpeed', what), device, GIB, 'GiB', half_digit=0.005)
    yield Row('ZeRO-2, card', 'DeepSpeed, its function (its docs: 15.93)', cold, estimate('DeepSpeed', 'ZeRO-2'), 11.28, GIB, 'GiB',
              half_digit=0.01)
    cold = compared('--parameters 737670000 --largest-layer 32900000 --gpus 4')
    for what, device in (('ZeRO-3', 3291), ('ZeRO-3, all on the host', 125.5), ('ZeRO-3, optimizer on the host', 477)):
        yield Row(f'{what}, 4 cards', 'DeepSpeed, docs', cold, estimate('DeepSpeed', what), device, MIB, 'MiB', 0.002)
    for bucket, expected in ((500000000, 9), (200000000, 3.6)):
        yield Row(f'buckets of {bucket:.0e} elements'.replace('e+0', 'e'), 'DeepSpeed, Hugging Face docs',
                  compared(f'--parameters 1000000000 --bucket {bucket}'),
                  estimate('DeepSpeed', 'buckets of ZeRO-1 and 2'), expected, GB, 'GB')


def offload():
    for what, expected in (('gradients', 14), ('optimizer', 4), ('optimizer and gradients', 2)):
        yield Row(f'bytes a parameter, {what} on the host', 'ZeRO-Offload', compared('--parameters 1000000000'),
                  scaled(estimate('ZeRO-Offload', what), 1e9), expected)
    for what, by, expected in (('bf16, fp32 gradients', 1, 18), ('the same, distributed optimizer', 8, 7.5)):
        yield Row(f'bytes a parameter, {by} card{"s" if by > 1 else ""}', 'Megatron-LM, dist_optimizer.md',
                  compared(f'--parameters 1000000000 --gpus {by}'), scaled(estimate('Megatron-LM', what), 1e9), expected)


def korthikanti():
    yield Row('activations, 1.5 G parameters, 32 x 1,024', 'ZeRO', 'plan gpt2-xl --compare --batch 32 --seq 1024',
              estimate('ZeRO paper', '12 L C numbers a token'), 60, GB, 'GB', 0.02)
    sbh = 2048 * 12288 * 96
    command = compared('--gpus 8 --tp 8 --batch 1 --seq 2048', 'gpt-3')
    kinds = ('tensor parallel', 'tensor and sequence parallel', 'tensor parallel, selective', 'tensor and sequence, selective',
             'full recomputation')
    for what, expected in (('nothing recomputed', 114), *zip(kinds, (23, 14.25, 13, 4.25, 2))):
        yield Row(f'GPT-3, bytes of a block / sbh: {what}', 'Korthikanti, table 2', command,
                  scaled(estimate('Megatron paper', what), sbh), expected)
    table = (('megatron-22b', '22B', 4, (59.3, 39.6, 29.2, 9.6, 4.5)), ('gpt-3', '175B', 1, (51.8, 32.1, 29.2, 9.6, 4.5)),
             ('megatron-530b', '530B', 1, (86.1, 50.2, 53.3, 17.4, 8.2)), ('megatron-1t', '1T', 1, (131.2, 76.6, 81.2, 26.6, 12.5)))
    for name, size, batch, expected in table:
        for what, amount in zip(kinds, expected):
            yield Row(f'first stage, {size}: {what}', 'Korthikanti, its configurations',
                      compared(f'--gpus 8 --tp 8 --batch {batch} --seq 2048', name), estimate('Megatron paper', what), amount, GIB,
                      'GiB', 0.01)
    for name, expected in (('gpt-3', 70), ('megatron-530b', 65)):
        yield Row(f'saved by selective recomputation, {name}', 'Korthikanti, 4',
                  compared('--batch 1 --seq 2048', name), lambda answer: 100 * (
                      1 - estimate('Megatron paper', 'selective recomputation')(answer) /
                      estimate('Megatron paper', 'nothing recomputed')(answer)), expected, 1, '%', half_digit=1)
    for name, expected in (('gpt-3', 2.7), ('megatron-530b', 1.6)):
        yield Row(f'its operations, of a forward, {name}', 'Korthikanti, 4',
                  f'simulate {name}.json --batch 1 --seq 2048 --attention eager --checkpoint selective --json',
                  again_of_forward, expected, 1, '%', half_digit=1)
    for what, expected in (('nothing recomputed', 592), ('tensor parallel', 144)):
        yield Row(f'a block of width 4,096, 2 x 1,024: {what}', 'CS336, an example',
                  compared('--gpus 8 --tp 8 --batch 2 --seq 1024', 'one-block'), estimate('Megatron paper', what), expected, MIB, 'MiB')


def again_of_forward(answer):
    """A step has three forwards' operations, and those that are repeated."""
    device = answer['devices'][0]
    again = device['step_recomputed_flops']
    return 100 * again / ((device['step_flops'] - again) / 3)


def megatron():
    """What tests on A100 recorded: peak less what is allocated after a step. The last of four stages has no embedding's mask."""
    mask = 4 * 1024 * 512
    table = (('megatron-test', 'unfused attention', 'unfused attention', 4673069568 - 552128512, 0, .001),
             ('megatron-test', 'flash attention', 'flash attention', 2711714304 - 552128512, 0, .001),
             ('megatron-test', 'full recomputation', 'full recomputation', 2534070272 - 1232487936, 0, .001),
             ('megatron-stage', 'unfused attention', 'last of 4 stages, unfused attention', 2685510144 - 718931456, mask, .001),
             ('megatron-stage', 'flash attention', 'last of 4 stages, flash attention', 2195171328 - 718931456, mask, .001),
             ('megatron-swiglu', 'unfused attention', 'last of 4 stages, SwiGLU', 2684785152 - 717420032, mask, .002))
    for name, what, quantity, expected, less, tolerance in table:
        figure = estimate('Megatron-LM', what)
        yield Row(quantity + (' (less the embedding\'s mask)' if less else ''), 'Megatron-LM, functional tests',
                  compared('--batch 4 --seq 1024', name), lambda answer, figure=figure, less=less: figure(answer) - less, expected,
                  tolerance=tolerance)


def adapters():
    command = compared('--lora-rank 4', 'gpt-3')
    lora = estimate('LoRA paper', 'queries and values')
    yield Row('parameters of adapters, GPT-3, rank 4', 'LoRA', command, lambda answer: (lora(answer) - 2 * answer['parameters']) / 16,
              18874368)
    yield Row('training GPT-3 with them', 'LoRA', command, lora, 350, GB, 'GB', 0.08)
    yield Row('65 G parameters in 16 bits', 'QLoRA', compared('--parameters 65000000000'),
              estimate('QLoRA paper', '16 bits, all weights trained'), 780, GB, 'GB', 0.01)
    yield Row('bits a weight, with constants', 'QLoRA', compared('--parameters 1000000000'),
              scaled(estimate('QLoRA paper', 'the same, weights in 4 bits'), 1e9 / 8), 4.127, tolerance=0.001)


def parameter_counts():
    counts = {'gpt2': 124439808, 'gpt2-medium': 354823168, 'gpt2-large': 774030080, 'gpt2-xl': 1557611200,
              'llama-2-7b': 6738415616, 'llama-2-13b': 13015864320, 'llama-2-70b': 68976648192, 'llama-3-8b': 8030261248,
              'llama-3-70b': 70553706496, 'llama-3-405b': 405853388800, 'mistral-7b': 7241732096, 'llama-3.2-1b': 1235814400,
              'qwen2.5-7b': 7615616512, 'text-003.json': 1416552448}
    for name, count in counts.items():
        source = 'a course text says 350 M' if name.startswith('text') else 'model card'
        grouped = '' if name.startswith(('gpt2', 'text')) else '--dtype bf16 '
        yield Row('parameters', source, f'simulate {name} {grouped}--seq 16 --json', lambda answer: answer['devices'][0]['parameters'], count)


def tutorial():
    """The run of PyTorch's tutorial on memory; `profile --categories mosaic` has what it printed."""
    for options, figures in (('', (5.13, 2.93, 785.27, 949.40)), (' --checkpoint full', (3.04, 871.79 / 1024, 785.27, 949.40))):
        run = f'simulate gpt2 --batch 4 --steps 5{options} -o run.pickle --json'
        note = 'checkpointed' if options else 'as it is'
        yield Row(f'peak, {note}', 'tutorial', run, lambda answer: answer['devices'][0]['peak']['allocated_bytes'], figures[0], GIB, 'GiB',
                  0.003)
        asked = f'{run}; tessera profile --categories mosaic run.pickle --json'
        for name, expected, unit, unit_name in (
                ('activation', figures[1] if not options else 871.79, GIB if not options else MIB, 'GiB' if not options else 'MiB'),
                ('backward', figures[2], MIB, 'MiB'), ('optimizer', figures[3], MIB, 'MiB')):
            yield Row(f'{name}, {note}', 'tutorial', asked, functools.partial(group, name), expected, unit, unit_name, half_digit=0.005)


def group(name, answer):
    return next(g['bytes'] for g in answer['devices'][0]['groups'] if g['name'] == name)


def llmc():
    command = 'simulate llm.c.json --batch 32 --seq 1024 --dtype bf16 --master-weights --ranks 4 --zero 1 --optimizer adamw-fused --profile --json'

    def state(category, dtype, by):
        def figure(answer):
            rows = answer['devices'][0]['profile']['types']
            return next(row['bytes'] for row in rows if (row['category'], row['dtype']) == (category, dtype)) / by
        return figure
    yield Row('parameters of GPT-2, bf16', 'llm.c, 4 cards, ZeRO-1', command, state('parameter', 'bf16', 1), 237, MIB, 'MiB', half_digit=1)
    yield Row('each of m, v and master', 'llm.c, 4 cards, ZeRO-1', command, state('optimizer_state', 'fp32', 3), 118, MIB, 'MiB',
              half_digit=1)


def budgets():
    """A plan never takes more than its budget; torchtitan's planner left up to 0.3 % of these, and 1.5 % is the limit here."""
    for budget in (69, 70, 71, 72):
        yield Row(f'reserved in {budget} GiB, never more', 'torchtitan, automatic plans',
                  f'plan llama-3-8b --dtype bf16 --gpu h100 --seq 8192 --optimizer adamw-fused --budget {budget}GiB '
                  '--allow recompute,loss-chunk,kernels --json', within(budget), budget, GIB, 'GiB', 0.015)


def within(budget):
    def figure(answer):
        found = answer['predicted']['peak_reserved_bytes']
        assert found <= budget * GIB
        return found
    return figure


ROWS = [row for make in (zero, offload, deepspeed, infinity, korthikanti, megatron, adapters, parameter_counts, tutorial, llmc, budgets)
        for row in make()]


# ---- The page ----

class Runner:
    """Runs each command once."""

    def __init__(self, tessera, work):
        self.tessera, self.work, self.answers = tessera, work, {}
        for name, config in CONFIGS.items():
            (work / f'{name}.json').write_text(json.dumps({'model_type': 'gpt2', **config}))

    def answer(self, command):
        if command not in self.answers:
            for part in command.split('; tessera '):
                words = part.split() + ([] if '--json' in part else ['--json'])
                self.answers[command] = json.loads(self.tessera.output(*words, cwd=self.work))
        return self.answers[command]

    def found(self, row):
        return row.figure(self.answer(row.command)) / row.unit


@pytest.fixture(scope='module')
def runner(tessera, work):
    return Runner(tessera, work)


@cases('row', ROWS, lambda row: f'{row.source}: {row.quantity}')
def test_figure(runner, row):
    row.check(runner.found(row))


def table(runner):
    lines = ['| quantity | source | command | published | tessera | error |', '|---|---|---|---|---|---|']
    lines += [row.text(runner.found(row)) for row in ROWS]
    lines += ['', 'The files, of `model_type` gpt2 unless they say otherwise:', '', '| file | config |', '|---|---|']
    lines += [f'| `{name}.json` | `{json.dumps(config)}` |' for name, config in CONFIGS.items()]
    return '\n'.join(lines) + '\n'


def test_documented(runner, pytestconfig):
    """docs/published.md has the table, and nothing that it names is gone."""
    text = PAGE.read_text(encoding='utf-8')
    begin, end = text.index(BEGIN) + len(BEGIN), text.index(END)
    made = table(runner)
    if pytestconfig.getoption('accept'):
        PAGE.write_text(text[:begin] + made + text[end:], encoding='utf-8')
    else:
        assert text[begin:end] == made, 'docs/published.md is not what was measured: --accept writes it'
    for path, name in re.findall(r'`(tests/[\w/]+\.\w+)`: (\w+)', text):
        assert name in (ROOT / path).read_text(encoding='utf-8'), (path, name)
