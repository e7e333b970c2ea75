"""What `tessera simulate` predicts for LoRA and QLoRA, next to what peft, litgpt and torchtune measured on real cards.

The measured figures are in ../shared/expected, and this test skips without it. Each entry below selects rows of such a file, has the command
that comes closest to the run, the figure of `simulate` that is of the same kind (allocated, reserved, or active, which is what is allocated),
and how far the two may be apart, with the reason if that is more than 3 %. Runs that name all of their settings and have no such reason count
for the median, each once.
"""
import dataclasses
import json
import statistics

from support import SHARED, cases, expect, needs_shared

CLOSE, GIB = 0.03, 1 << 30
MEDIAN = 0.02
PEFT, PUBLISHED = 'peft-figures.jsonl', 'published-figures.jsonl'

LITGPT = '--dtype bf16 --no-kv-cache --lora-dropout 0.05 --adapter-dtype base'
QUERIES = '--lora-targets q_proj,v_proj'
TORCHTUNE = 'llama-3.2-3b --batch 2 --seq 4096 --dtype bf16 --no-kv-cache --optimizer adamw-fused --loss chunked:1024'
CHECKPOINTS = '--checkpoint full --checkpoint-form non-reentrant'
RANK_64 = '--lora 64 --lora-targets q_proj,v_proj,o_proj,gate_proj,up_proj,down_proj --adapter-dtype base'
OLD_BITSANDBYTES = 'bitsandbytes 0.41 kept the input of each layer in 4 bits for backward; 0.50, which is simulated, does not'
COMPILED = 'torch.compile joins ops, so less is kept for backward than without it'


@dataclasses.dataclass
class Figure:
    """Rows of a file whose fields are these, and the command that predicts them."""
    file: str
    fields: dict
    words: str
    kind: str = 'allocated'
    within: float = CLOSE
    reason: str = ''
    is_specified: bool = True


def of_peft(rank):
    """The most that a whole run reserved. Its longest batch is not published: 768 tokens are the limit."""
    return Figure(PEFT, {'experiment': f'lora/llama-3.2-3B-rank{rank}'},
                  f'llama-3.2-3b --batch 4 --seq 768 --steps 1 --dtype bf16 --clip 1 --lora {rank} {QUERIES}', 'reserved')


def of_recipe(system, model, words, **more):
    """litgpt's table of its configurations, whose longest sample may be shorter than 512 tokens."""
    return Figure(PUBLISHED, {'system': system, 'model': model, 'gpus': 1}, f'{words} --lora 32 {QUERIES} {LITGPT}', is_specified=False, **more)


def of_torchtune(note, words, **more):
    return Figure(PUBLISHED, {'model': 'Llama 3.2 3B', 'note': note, 'gpus': 1}, f'{TORCHTUNE} {words}', 'active', **more)


LLAMA_13B = f'llama-2-13b --batch 1 --seq 1304 --lora 8 {QUERIES}'
FIGURES = (
    of_peft(32), of_peft(64),
    Figure(PUBLISHED, {'system': 'litgpt LoRA', 'model': 'Llama 2 13B', 'gpus': 1, 'micro_batch': 1, 'dtype': 'bf16-true', 'settings.quant': None},
           f'{LLAMA_13B} {LITGPT}'),
    Figure(PUBLISHED, {'system': 'litgpt LoRA', 'model': 'Llama 2 13B', 'gpus': 1, 'micro_batch': 1, 'settings.quant': 'bitsandbytes bnb.nf4'},
           f'{LLAMA_13B} {LITGPT} --quantize nf4', within=0.2, reason=OLD_BITSANDBYTES),
    Figure(PUBLISHED, {'system': 'litgpt LoRA', 'model': 'Llama 2 13B', 'gpus': 1, 'micro_batch': 1, 'settings.quant': 'bitsandbytes bnb.nf4-dq'},
           f'{LLAMA_13B} {LITGPT} --quantize nf4 --double-quant', within=0.2, reason=OLD_BITSANDBYTES),
    of_torchtune('+ chunked CE', '', within=0.12, reason=COMPILED),
    of_torchtune('+ AC', CHECKPOINTS),
    of_torchtune('+ optimizer in backward', f'{CHECKPOINTS} --optimizer-in-backward', within=0.08, reason='this difference is not explained'),
    of_torchtune('+ activation offload', f'{CHECKPOINTS} --optimizer-in-backward --offload activations'),
    of_torchtune('LoRA', f'{CHECKPOINTS} --offload activations {RANK_64}', within=0.065, reason=COMPILED),
    of_torchtune('QLoRA', f'{CHECKPOINTS} --offload activations {RANK_64} --quantize nf4 --double-quant', within=0.12, reason=COMPILED),
    of_recipe('litgpt lora', 'llama-3-8b', 'llama-3-8b --batch 1 --seq 512'),
    of_recipe('litgpt lora', 'llama-3.1-8b', 'llama-3-8b --batch 1 --seq 512'),
    of_recipe('litgpt lora', 'mistral-7b', 'mistral-7b --batch 2 --seq 512'),
)


def field(row, path):
    for key in path.split('.'):
        row = row.get(key)
    return row


def rows_of(figure):
    path = SHARED / 'expected' / figure.file
    listed = map(json.loads, path.read_text(encoding='utf-8').splitlines())
    found = [row for row in listed if all(field(row, key) == value for key, value in figure.fields.items())]
    return [row for row in found if figure.file == PEFT or row['memory_gib']]


def measured(row):
    """GiB, and what was measured."""
    if 'memory' in row:  # the name of the device differs
        most, = (value for key, value in row['memory'].items() if key.endswith('_memory_max'))
        return most / GIB, row['memory_semantics']['max']
    return row['memory_gib'], row['measures']


def is_of_kind(what, kind):
    return kind in what or (kind == 'allocated' and 'max_memory_allocated' in what)


def predicted(tessera, figure):
    peak = tessera.device('simulate', *figure.words.split())['peak']
    return peak['reserved_bytes' if figure.kind == 'reserved' else 'allocated_bytes'] / GIB


def title(figure):
    return ' '.join(str(value) for value in figure.fields.values())


@needs_shared
@cases('figure', FIGURES, title)
def test_figure(tessera, figure):
    rows, ours = rows_of(figure), predicted(tessera, figure)
    assert rows
    assert figure.reason or figure.within <= CLOSE
    for row in rows:
        theirs, what = measured(row)
        assert is_of_kind(what, figure.kind), what
        assert abs(ours / theirs - 1) <= figure.within, f'{ours:.3f} GiB predicted, {theirs:.3f} measured ({what}): {ours / theirs - 1:+.1%}'
        if figure.is_specified and 'underspecified' in row:
            expect('nothing is missing', row['underspecified'], [])


@needs_shared
def test_median(tessera):
    errors = []
    for figure in FIGURES:
        if figure.is_specified and not figure.reason:
            ours, theirs = predicted(tessera, figure), [measured(row)[0] for row in rows_of(figure)]
            errors.append(abs(ours / statistics.median(theirs) - 1))
    assert len(errors) >= 5
    assert statistics.median(errors) <= MEDIAN
