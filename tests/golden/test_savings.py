"""What each technique saves on one model: the tables at the top of docs/techniques.md.

Each row is simulated without and with its option for GPT-2, and, if `train` runs the option, executed with a small model, where the
peak must be the predicted one to the byte. What a real card counted for the same step is compared, too. --accept writes the tables."""
import json
from dataclasses import dataclass
from typing import Optional

import pytest
from support import ROOT, cases, expect
from test_gpu import COUNTERS
from test_matrix import command_of
from trainer import TEXT

PAGE = ROOT / 'docs' / 'techniques.md'
MODEL = ('gpt2', '--batch', '4', '--seq', '512')
CARD = ('--gpu', 'h100')
SMALL = {'model_type': 'gpt2', 'vocab_size': 2048, 'n_positions': 64, 'n_embd': 64, 'n_layer': 12, 'n_head': 4}
EXECUTED = ('--book', 'torch', '--steps', '2', '--lr', '0.01', '--batch', '4', '--seq', '64')
PLANS = {'recompute': {'eager GELU': 'recompute', 'layer norm.0': 'recompute', 'dropout': 'recompute'},
         'narrow8': {'eager GELU': 'narrow8', 'linear.0': 'narrow8', 'layer norm.0': 'narrow8'}}
GIB = 1 << 30
# Of losses; and with other random numbers, where dropout has other shapes.
NEAR, DRAWN = 1e-5, 1e-2
MEASURED_WITHIN = 0.00135  # of what is saved: docs/techniques.md says 0.13 %
FASTER = 0.005  # of a step's time: less is no change


@dataclass
class Row:
    """A technique. `before` are the options of the run without it, `small` those of the executed run where they differ from `options`; None is
    not executed. `helps` and `fails` say when it does, and when not. `is_other`: it changes what is computed by more than the last digits."""
    name: str
    options: str
    helps: str
    fails: str
    before: str = ''
    small: Optional[str] = ''
    is_other: bool = False

    @property
    def executed(self):
        return self.options if self.small == '' else self.small


EAGER, RANKS = '--attention eager', '--ranks 4'
DEFAULT = f'the default, instead of `{EAGER}`'
ROWS = [
    Row('weights in 16 bits', '--dtype bf16', 'training tolerates weights, gradients and moments in 16 bits', 'small updates are lost: keep fp32 copies', is_other=True),
    Row('16 bits, and fp32 copies in the optimizer', '--dtype bf16 --master-weights', 'activations are most of the peak',
        'weights, gradients and states are: together they stay as large', is_other=True),
    Row('autocast', '--dtype autocast-bf16', 'for speed', 'logits and fp32 functions are most of the peak: they stay fp32', is_other=True),
    Row('loss of 512 tokens at a time', '--loss chunked:512', 'the vocabulary is large', 'the program reads the logits', small='--loss chunked:64'),
    Row('GELU as one kernel', '--gelu fused', "the model's GELU is written in Python, as GPT-2's", 'it is one kernel already'),
    Row('fused attention kernel', '', 'attention is eager, and sequences are long', 'a fused kernel is in use already: the default', before=EAGER),
    Row('no key-value cache', '--no-kv-cache', 'transformers, up to version 4 also in its Trainer', 'it is off: with checkpointing, and in the Trainer of version 5'),
    Row('optimizer in backward', '--optimizer-in-backward', "the optimizer's step is the peak: small batches", 'backward is; clipping and accumulation exclude it'),
    Row('fused AdamW', '--optimizer adamw-fused', "the optimizer's step is the peak: small batches", 'backward is'),
    Row('AdamW with states in 8 bits', '--optimizer adamw-8bit', 'states are most of the peak', 'activations are', small=None, is_other=True),
    Row('Adafactor', '--optimizer adafactor', 'states are most of the peak', 'activations are', small=None, is_other=True),
    Row('SGD with momentum', '--optimizer sgd-momentum', 'the model trains with it', 'it does not: transformers hardly do', is_other=True),
    Row('SGD', '--optimizer sgd', 'the model trains with it', 'it does not: transformers hardly do', is_other=True),
    Row('LoRA of rank 8', '--lora 8', 'gradients and states are most of the peak', 'activations are: the whole model still runs', is_other=True),
    Row('LoRA, and weights in 4 bits', '--lora 8 --quantize nf4', 'weights are most of the peak', 'embeddings are: they keep their type', before='--lora 8', small=None, is_other=True),
    Row('products in FP8', '--dtype bf16 --fp8 te', 'products are large, for speed', 'memory is short: copies in FP8 are extra', before='--dtype bf16', small=None, is_other=True),
    Row('each block recomputed', '--checkpoint full', 'activations of blocks are most of the peak', 'logits or states are'),
    Row('half of the blocks recomputed', '--checkpoint blocks:0-5', 'half the saving is enough, for half the time', 'the peak is outside of blocks'),
    Row('groups of √12 blocks recomputed', '--checkpoint sqrt', 'inputs of blocks are large: very many layers', 'a block keeps much more than its input, as here'),
    Row('attention recomputed', '--attention eager --checkpoint selective', 'attention is eager', 'a fused kernel is in use: it keeps no scores', before=EAGER),
    Row('single tensors recomputed', '--plan recompute.json', 'kernels that only read and write can run again', 'products would have to'),
    Row('saved tensors in 8 bits', '--plan narrow8.json', 'gradients may be rounded', 'results must stay the same', is_other=True),
    Row('attention for 128 rows at a time', '--attention chunked:128', 'attention is eager, and no fused kernel has its form', 'one has', before=EAGER, small='--attention chunked:16'),
    Row('1 sequence at a time', '--micro-batch 1', 'a batch has several sequences', 'one sequence alone does not fit'),
    Row('1 sequence at a time, one backward', '--micro-batch 1 --backward once', "never: only the loss's temporary tensors shrink", 'all graphs are alive at once'),
    Row("optimizer's state on the host", '--offload optimizer', 'states are most of the peak', 'time matters: its step runs on the host'),
    Row('state, gradients and parameters on the host', '--offload optimizer,gradients,parameters', 'states and weights are most of the peak', 'activations are'),
    Row('activations on the host', '--offload activations', 'kernels take longer than copies: large matrices', 'the host has little memory'),
    Row('sums in place', '--in-place add', 'hardly ever, in training', 'backward is the peak'),
    Row('ZeRO-1', '--ranks 4 --zero 1', 'states are most of the peak', 'activations are', before=RANKS),
    Row('ZeRO-2', '--ranks 4 --zero 2', 'gradients and states meet at the peak', 'the loss is the peak, as here: no gradients exist yet', before=RANKS),
    Row('ZeRO-3', '--ranks 4 --zero 3', 'weights do not fit a card', 'activations are most of the peak', before=RANKS),
]
# Rows of counters.json with the same batch: what differs in `options`, and the row above.
MEASURED = {'checkpoint': ('--checkpoint full', 'reentrant'), 'dtype': ('--dtype bf16', 'bf16'), 'optimizer': ('--optimizer sgd', 'sgd'),
            'attention': ('', 'eager')}


class Runs:
    """Each run once: what is predicted for GPT-2, and what the small model took."""

    def __init__(self, tessera, work):
        self.tessera, self.work, self.known = tessera, work, {}
        (work / 'small.json').write_text(json.dumps(SMALL), encoding='utf-8')
        (work / 'sheep.txt').write_text(TEXT, encoding='utf-8')
        for name, saved in PLANS.items():
            (work / f'{name}.json').write_text(json.dumps({'version': 1, 'blocks': [{'first': 0, 'last': 11, 'saved': saved}]}), encoding='utf-8')

    def predicted(self, options):
        """The peak, and the time of a step."""
        if options not in self.known:
            answer = json.loads(self.tessera.output('simulate', *MODEL, *CARD, *options.split(), '--json', '-q', cwd=self.work))
            if answer.get('devices'):
                device = answer['devices'][0]
                self.known[options] = device['peak']['allocated_bytes'], device['step_time_us']
            else:
                most = max(answer['ranks'], key=lambda rank: rank['peak_allocated_bytes'])
                self.known[options] = most['peak_allocated_bytes'], most['step_time_us']
        return self.known[options]

    def executed(self, options):
        """The peak of a run of the small model, the predicted one, and the losses."""
        key = 'executed', options
        if key not in self.known:
            printed = self.tessera.output('train', 'small.json', '--data', 'sheep.txt', *EXECUTED, *options.split(), '--json', '-q', cwd=self.work)
            *steps, end = [json.loads(line) for line in printed.splitlines()]
            ranks = end['ranks'] if '--ranks' in options else [end]
            peaks = [max(rank[key] for rank in ranks) for key in ('peak_bytes', 'predicted_peak_bytes')]
            self.known[key] = *peaks, [step['loss'] for step in steps]
        return self.known[key]


@pytest.fixture(scope='module')
def runs(tessera, work):
    return Runs(tessera, work)


@cases('row', [row for row in ROWS if row.executed is not None], lambda row: row.name)
def test_executed(runs, row):
    """Without and with the technique, the executed peak is the predicted one. The losses are the same, but for techniques that are marked."""
    for options in (row.before, row.executed):
        found, predicted, _ = runs.executed(options)
        expect(options, found, predicted)
    if not row.is_other:
        without, given = runs.executed(row.before)[2], runs.executed(row.executed)[2]
        is_drawn = any(word in row.options for word in ('--micro-batch', 'chunked:128'))
        assert given == pytest.approx(without, rel=DRAWN if is_drawn else NEAR), row.name


@dataclass
class Saving:
    """A row's figures."""
    row: Row
    without: tuple
    given: tuple

    @property
    def saved(self):
        return self.without[0] - self.given[0]

    @property
    def slower(self):
        return self.given[1] / self.without[1] - 1

    def order(self):
        """First what takes no time, the largest saving first; then by bytes for the added time; last what saves nothing."""
        if self.saved < GIB / 200:
            return 3, -self.saved
        if self.slower < FASTER:
            return int(self.row.is_other), -self.saved
        return 2, -self.saved / self.slower

    def group(self):
        return ('Takes no time', 'Takes no time, and changes results', 'Takes time', 'Saves next to nothing here')[self.order()[0]]

    def text(self):
        row = self.row
        name = f'{row.name}{" †" * row.is_other}'
        options = f'`{row.options}`' if row.options else DEFAULT
        peaks = f'{self.without[0] / GIB:.2f} → {self.given[0] / GIB:.2f}'
        return f'| {name} | {options} | {peaks} | {self.saved / GIB:.2f} | {100 * self.slower:+.1f} % | {row.helps} | {row.fails} |'.replace('| -0.00 |', '| 0.00 |')


def savings(runs):
    found = [Saving(row, runs.predicted(row.before), runs.predicted(row.options)) for row in ROWS]
    return sorted(found, key=Saving.order)


def table(runs):
    lines, group = ['| technique | option | peak, GiB | saved | time | helps if | does not if |', '|---|---|---|---:|---:|---|---|'], None
    for saving in savings(runs):
        if saving.group() != group:
            group = saving.group()
            lines.append(f'| **{group}** | | | | | | |')
        lines.append(saving.text())
    return lines


def executed_table(runs):
    lines = ['| option | without | with | predicted | saved |', '|---|---:|---:|---:|---:|']
    for row in (saving.row for saving in savings(runs)):
        options = f'`{row.executed}`' if row.executed else DEFAULT
        if row.executed is None:
            lines.append(f'| `{row.options}` | | simulated only | | |')
            continue
        without, (given, predicted, _) = runs.executed(row.before)[0], runs.executed(row.executed)
        lines.append(f'| {options} | {without:,} | {given:,} | {predicted:,} | {without - given:,} |')
    return lines


def measured():
    """Of the step that the table is about: what the card counted, as it was and with one thing changed."""
    rows = [row for row in COUNTERS['models'] if row['model'] == {'model_type': 'gpt2'} and (row['batch'], row['seq']) == (4, 512)]
    plain = next(row for row in rows if not row['options'])
    for key, (options, value) in MEASURED.items():
        yield options, plain, next(row for row in rows if row['options'] == {key: value})


def measured_table(tessera, work):
    config = work / 'config.json'
    lines = ['| option | without, counted | with, counted | saved | saved, predicted |', '|---|---:|---:|---:|---:|']
    for options, plain, changed in measured():
        config.write_text(json.dumps(plain['model']), encoding='utf-8')
        peaks = [tessera.device(*command_of(row, config), *CARD, '--fresh-process')['peak']['allocated_bytes'] for row in (plain, changed)]
        pair = [plain['peak'], changed['peak']]
        shown = f'`{options}`'
        if not options:  # the plain one is the one with the technique
            peaks, pair, shown = peaks[::-1], pair[::-1], DEFAULT
        saved, predicted = pair[0] - pair[1], peaks[0] - peaks[1]
        assert abs(saved - predicted) < saved * MEASURED_WITHIN, options
        lines.append(f'| {shown} | {pair[0]:,} | {pair[1]:,} | {saved:,} | {predicted:,} |')
    return lines


def test_documented(runs, tessera, work, pytestconfig):
    """docs/techniques.md has the tables."""
    text = PAGE.read_text(encoding='utf-8')
    expect('rows that a card has measured', (f'Four of the {len(ROWS)} rows' in text, len(MEASURED)), (True, 4))
    for name, lines in (('savings', table(runs)), ('executed', executed_table(runs)), ('measured', measured_table(tessera, work))):
        begin, end = f'<!-- {name} -->\n', f'<!-- end of {name} -->'
        before, _, rest = text.partition(begin)
        made, _, after = rest.partition(end)
        wanted = '\n'.join(lines) + '\n'
        if pytestconfig.getoption('accept'):
            text = before + begin + wanted + end + after
        else:
            assert made == wanted, f'the table {name} of docs/techniques.md is not what is predicted: --accept writes it'
    if pytestconfig.getoption('accept'):
        PAGE.write_text(text, encoding='utf-8')
