"""The command lines that compare.py runs, and the files that they read. compare.py explains how they are compared.

`all_runs` yields a Run for each: its group, and one or more commands that follow each other in one folder, separated
by ' ; '. The folder contains links to `snapshots`, to `graphs` (the step graphs of tests/golden) and to `in`, the
files that `write_inputs` makes. Paths are relative, so that they are the same in every folder.

Groups are the names of commands; `simulate-graph`, `plan-graph` and `errors` are separate to be chosen separately.
"""
import collections
import itertools
import json
import shutil
import subprocess

# columns is the value of COLUMNS, None for output whose width does not depend on it.
Run = collections.namedtuple('Run', 'group line columns')
WIDTHS = (80, 120)

# ---- Questions: {file} is a snapshot, and {next} the one after it in the folder.
QUESTIONS = {
    'info': ['info {file}'],
    'peak': ['peak {file}', 'peak {file} --top 0 -v', 'peak {file} --full-stacks'],
    'at': ['at {file} --event 0', 'at {file} --event 100', 'at {file} --event -1 -v'],
    'profile': ['profile {file}', 'profile {file} --categories mosaic', 'profile {file} --over-time --samples 20',
                'profile {file} --ordered --top 5'] +
               [f'profile {{file}} --by {by}' for by in
                ('category', 'annotation', 'compile-context', 'op', 'module', 'line', 'stack', 'pool', 'metadata')],
    'diff': ['diff {file} {next}'] + [f'diff {{file}} {{next}} --by {by}' for by in
                                      ('category', 'op', 'line', 'allocation')],
    'stages': ['stages {file}', 'stages {file} -v --match forward'],
    'source': ['source {file} in/model.py', 'source {file} in/model.py --compare {next}'],
    'steps': ['steps {file}'],
    'leaks': ['leaks {file}'],
    'whatif': ['whatif {file}', 'whatif {file} --capacity 24GiB'],
    'why': ['why {file}', 'why {file} --capacity 24GiB'],
    'check': ['check {file} --max 1GiB', 'check {file} --max activation=1MiB --max-reserved 2GiB'],
}
# What has no JSON, or writes files, whose contents are compared.
OF_SNAPSHOTS = {
    'report': ['report {file}', 'report {file} -o report.html -q'],
    'check': ['check {file} --lock lock.json --update ; check {next} --lock lock.json',
              'check {file} --max 1GiB --format junit', 'check {file} --max 1GiB --format sarif',
              'check {file} --max 1GiB --format markdown'],
    'export': [f'export {{file}} -o {name}' for name in
               ('a.json', 'a.pickle', 'a.folded', 'a.speedscope.json', 'a.pb.gz', 'a.csv', 'a.perfetto.json')],
    'trim': ['trim {file} --events 10..200 -o part.pickle'],
    'view': ['view {file} -o page.html', 'view {file} {next} -o page.html'],
    'mosaic': ['mosaic_get_memory_usage_peak --snapshot {file}',
               'mosaic_get_memory_usage --snapshot {file} --allocation 1000_0 --action alloc',
               'mosaic_get_memory_usage_diff --snapshot-base {file} --snapshot-diff {next}',
               'mosaic_get_memory_usage_by_annotation_stage --snapshot {file}',
               'mosaic_get_json_snapshot --snapshot {file} --output-file a.json',
               'mosaic_per_file_memory_snapshot_analysis analyze --snapshot {file} --file-path in/model.py --verbose',
               'mosaic_get_memory_profile --snapshot {file} --out-path profile.html --profile categories',
               "mosaic_get_memory_profile --snapshot {file} --out-path '' --profile annotations"],
}
# Mosaic's commands and export are run on every third file.
ON_SOME_FILES = ('mosaic', 'export', 'report', 'view')

# ---- simulate: what is run, with each of the options, in each of the forms.
NAMED_MODELS = ('gpt2', 'gpt2-medium', 'gpt2-large', 'gpt2-xl', 'llama-2-7b', 'llama-2-13b', 'llama-2-70b', 'llama-3-8b',
                'llama-3-70b', 'llama-3-405b', 'llama-3.2-1b', 'mistral-7b', 'qwen2.5-7b', 'gpt2-bytes')
CONFIGS = ('in/gpt2.json', 'in/gpt2-deep.json', 'in/gpt2-untied.json', 'in/llama.json', 'in/llama-deep.json',
           'in/llama-scaled.json', 'in/mistral.json', 'in/qwen2.json')
SIMULATED = [f'{model} --seq 128 --steps 2' for model in NAMED_MODELS] + [
    f'{model} --batch 4 --seq 64' for model in CONFIGS] + [
    'gpt2 --batch 2 --seq 256 --dtype bf16', 'gpt2 --batch 4 --seq 128 --checkpoint full --gpu t4',
    'llama-3-8b --seq 256 --dtype bf16 --checkpoint full --optimizer adamw-fused --gpu h100',
    'llama-3.2-1b --seq 128 --dtype bf16 --ranks 4 --zero 3 --gpu a100',
    'gpt2-medium --batch 2 --seq 128 --book own --offload optimizer,activations',
    'qwen2.5-7b --seq 128 --dtype autocast-bf16 --offload parameters --steps 2',
    'mistral-7b --seq 128 --dtype bf16 --master-weights --capacity 40GiB',
    'gpt2-xl --batch 2 --seq 128 --attention eager --capacity 12GiB']
SIMULATE_FORMS = ('--json', '--profile --json', '--write-plan plan.json -q', '-q -o run.pickle ; info run.pickle',
                  '-q -o run.json --categories')
OPTIONED = ('in/gpt2.json', 'in/llama.json', 'gpt2-bytes')
OPTIONS = (
    '--batch 3 --seq 33', '--steps 1', '--steps 5', '--eval-steps 2 --eval-batch 2', '--book own', '--book own --checkpoint full',
    '--batch 4 --accumulate 2', '--batch 4 --micro-batch 1', '--batch 4 --micro-batch 2 --accumulation flat --book own',
    '--batch 4 --micro-batch 2 --accumulation grouped', '--batch 4 --micro-batch 1 --backward once',
    '--optimizer adamw-fused', '--optimizer adamw-loop', '--optimizer sgd', '--optimizer adamw-fused --optimizer-in-backward',
    '--clip 1', '--clip 1 --optimizer adamw-fused --batch 4 --micro-batch 2',
    '--dtype bf16', '--dtype fp16', '--dtype autocast-bf16', '--dtype autocast-fp16', '--dtype bf16 --master-weights',
    '--dtype fp16 --master-weights --loss-scale 1024 --loss-scale-window 2',
    '--attention eager', '--attention flash --dtype bf16', '--attention efficient', '--attention chunked:16',
    '--attention eager --dtype autocast-bf16', '--gelu fused', '--in-place add', '--in-place add,dropout', '--in-place gelu --gelu fused', '--in-place silu,product --checkpoint full',
    '--checkpoint full', '--checkpoint selective', '--checkpoint every:2', '--checkpoint sqrt', '--checkpoint blocks:1',
    '--checkpoint full --checkpoint-form non-reentrant', '--checkpoint selective --checkpoint-form non-reentrant',
    '--checkpoint full --dtype autocast-bf16 --batch 4 --micro-batch 2',
    '--loss chunked:16', '--loss chunked:16 --book own', '--loss chunked:32 --dtype bf16 --checkpoint full',
    '--offload optimizer', '--offload gradients,optimizer', '--offload parameters', '--offload activations',
    '--offload activations:disk', '--offload parameters,activations,optimizer,gradients',
    '--ranks 2', '--ranks 2 --zero 1', '--ranks 4 --zero 2 --bucket 1000', '--ranks 4 --zero 3 --no-overlap', '--ranks 2 --zero 3 --rank 1',
    '--ranks 2 --zero 2 --gpu a100 --link 50GB/s', '--ranks 4 --zero 3 --checkpoint full --book own',
    '--no-kv-cache', '--leak graph', '--leak outputs', '--leak shell', '--leak batches',
    '--gpu t4', '--gpu v100', '--gpu l4', '--gpu a10', '--gpu a100-40', '--gpu h100 --dtype bf16', '--gpu h200', '--gpu rtx3090', '--gpu rtx4090',
    '--rates in/rates.json', '--fresh-process', '--set expandable_segments:True', '--set roundup_power2_divisions:4',
    '--capacity 21MiB', '--capacity 30MiB', '--plan in/plan.json', '--plan in/plan.json --checkpoint none', '--plan in/blocks.json',
    '--ds-config in/ds.json --ranks 2', '--ds-config in/ds-offload.json')

# ---- Step graphs. In those of CHANGED_GRAPHS modules are checkpointed or offloaded.
GRAPH_FORMS = ('--profile --json', '-q -o run.pickle ; info run.pickle', '--capacity 20MiB', '--steps 5 --gpu h100 --fresh-process',
               '--optimizer-form fused', '--optimizer-form loop --json', '--set expandable_segments:True')
CHANGED_GRAPHS = {
    'graphs/bert': 'BertLayer', 'graphs/t5': 'T5LayerFF', 'graphs/vit': 'ViTLayer', 'graphs/resnet-50': 'ResNetStage', 'graphs/unet': 'Attention',
    'graphs/mixtral': 'MixtralSparseMoeBlock', 'graphs/llama-lora': 'LlamaMLP', 'graphs/plain-autocast': 'blocks.*',
    'graphs/llama': 'model.layers.0', 'graphs/gpt-neox': '*.mlp', 'graphs/layers': '*.mlp', 'graphs/contrastive': 'texts.layers.*',
    'graphs/fsdp2': '*', 'rewrites/gpt2-adamw': 'GPT2Block', 'rewrites/bert-autocast': 'bert.encoder.layer.1', 'rewrites/llama-narrow': 'LlamaDecoderLayer'}
# Budgets between what a graph reserves as it is (22 to 56 MiB) and what the leanest plan reserves; 1 byte asks for the least.
PLANNED_GRAPHS = {
    'graphs/bert': ('24MiB',), 'graphs/t5': ('26MiB', '24MiB'), 'graphs/vit': ('22MiB',), 'graphs/resnet-50': ('27MiB', '26MiB'),
    'graphs/unet': ('38MiB', '34MiB', '32MiB'), 'graphs/mixtral': ('27MiB', '26MiB'), 'graphs/llama-lora': ('23MiB', '22MiB'),
    'graphs/plain-autocast': ('24MiB',), 'graphs/llama': ('24MiB',), 'graphs/gpt-neox': ('24MiB',), 'graphs/layers': ('27MiB', '26MiB'),
    'graphs/contrastive': ('54MiB', '52MiB'), 'graphs/fsdp2': ('20MiB',), 'rewrites/gpt2-adamw': ('24MiB',)}
GRAPH_PLANS = ('--budget {budget} --write-plan plan.json ; simulate {graph} --plan plan.json --json ; plan show plan.json',
               '--budget {budget} --for hf', '--budget {budget} --for fsdp2', '--budget {budget} --allow recompute --json',
               '--budget {budget} --allow offload', '--front', '--front --json')

# ---- plan: the models with three budgets each; in every face of the command.
PLANNED = (('in/gpt2.json --batch 4 --seq 64', ('30MiB', '22MiB', '1B')),
           ('in/llama.json --batch 4 --seq 64 --gpu t4', ('30MiB', '22MiB', '1B')),
           ('gpt2-bytes --batch 4 --seq 64', ('60MiB', '32MiB', '20MiB')),
           ('gpt2-bytes --batch 4 --seq 64 --book own', ('60MiB', '26MiB', '1B')),
           ('gpt2 --batch 2 --seq 128 --gpu t4', ('3GiB', '2GiB', '700MiB')),
           ('in/gpt2-deep.json --batch 2 --seq 64 --gpus 4', ('40MiB', '28MiB', '24MiB')),
           ('llama-3.2-1b --seq 128 --dtype bf16 --gpu l4', ('16GiB', '8GiB', '1B')))
BUDGETED = ('', '--json', '--allow recompute', '--allow recompute --json', '--allow kernels,loss-chunk --json', '--allow none',
            '--allow offload,in-backward,accumulate', '--allow all', '--allow all --json')
TARGETS = ('hf', 'deepspeed', 'fsdp2', 'torchtitan', 'megatron', 'env', 'tessera')
PLAN_FACES = ('', '--explain', '--explain --json', '--front', '--front --json', '--front --write-front front.csv',
              '--front -o front.html', '--compare', '--compare --json', '--plan in/plan.json --json', '--plan in/plan.json --for hf')
# Faces that need a budget. {model} is the model, and {options} what follows it in PLANNED.
BUDGET_FACES = tuple(f'--budget {{budget}} --for {target}' for target in TARGETS) + (
    '--budget {budget} --write-plan found.json ; simulate {model} --plan found.json --json ; plan show found.json {model} ; '
    'plan show found.json --json ; plan show found.json {model} --json',
    '--budget {budget} --plan in/plan.json', '--budget {budget} --rates in/rates.json --json')
LARGEST = ('in/gpt2.json --seq 64 --budget 30MiB', 'in/llama.json --seq 64 --budget 30MiB', 'gpt2-bytes --batch 2 --seq 64 --budget 40MiB',
           'gpt2-bytes --batch 2 --seq 64 --budget 40MiB --allow kernels,loss-chunk')
# Options of simulate that plan does not have.
ONLY_SIMULATE = ('--eval', '--leak', '--capacity', '--set', '--fresh-process')
OTHER_PLANS = (
    'plan gpt2 --compare --gpus 8 --batch 4', 'plan gpt2 --compare --gpus 16 --gpus-per-node 8 --tp 2 --lora-rank 8 --json',
    'plan --compare --parameters 7500000000 --gpus 64', 'plan --compare --parameters 7500000000 --largest-layer 1000000 --gpus 64 --json',
    'plan show in/plan.json', 'plan show in/plan.json --json', 'plan show in/blocks.json gpt2 --batch 2 --seq 64',
    'plan show --ds-config in/ds.json --gpus 4', 'plan show gpt2 --ds-config in/ds.json --gpus 4 --seq 128',
    'plan show in/ranks.json gpt2 --batch 2 --seq 128 --link 1GB/s', 'plan show in/ranks.json in/gpt2.json --seq 64 --gpus 8 --json',
    'plan gpt2 --seq 128 --gpus 4 --budget 2GiB --zero 1 --allow loss-chunk,recompute', 'plan gpt2 --seq 128 --ranks 8 --budget 2GiB --zero 0 --allow zero',
    'plan gpt2 --ds-config in/ds.json --gpus 4 --seq 128 --budget 2GiB --allow none',
    'simulate gpt2-bytes --batch 2 --seq 64 --steps 4 -q -o run.pickle ; plan gpt2-bytes --batch 2 --seq 64 --budget 1GiB --from run.pickle ; '
    'plan gpt2-bytes --batch 2 --seq 64 --budget 24MiB --from run.pickle --json ; plan gpt2-bytes --batch 2 --seq 64 --front --from run.pickle',
    'simulate gpt2-bytes --batch 2 --seq 64 --steps 4 --leak batches -q -o run.pickle ; '
    'plan gpt2-bytes --batch 2 --seq 64 --budget 30MiB --from run.pickle --largest batch',
    'simulate in/llama.json --batch 2 --seq 64 --checkpoint full -q -o run.pickle ; plan in/llama.json --batch 2 --seq 64 --budget 30MiB --from run.pickle',
)
# Recorded runs with and without a technique, and questions about them that simulated snapshots answer well.
OF_SIMULATED = (
    'simulate gpt2 --batch 4 --seq 128 -q -o a.pickle ; simulate gpt2 --batch 4 --seq 128 --checkpoint full -q -o b.pickle ; '
    'diff a.pickle b.pickle ; diff a.pickle b.pickle --by allocation --json ; peak a.pickle ; whatif b.pickle ; steps a.pickle ; leaks a.pickle',
    'simulate gpt2 --batch 8 --seq 256 --attention eager --capacity 3GiB -q -o oom.pickle ; why oom.pickle ; why oom.pickle --json',
    'simulate gpt2-bytes --seq 64 --steps 6 --leak graph -q -o leak.pickle ; leaks leak.pickle ; leaks leak.pickle --json',
)

# ---- train and sample. The last digits of losses depend on instruction sets, libraries and measured choices: all are fixed.
TRAIN = '--data in/text.txt --steps 3 --batch 2 --seq 16 --threads 1 --isa plain --products own'
TRAINED = ('in/gpt2.json', 'in/llama.json')
TRAIN_OPTIONS = (
    '', '--by op', '--book torch', '--book torch --gelu fused --no-kv-cache', '--memory placed', '--schedule cosine --warmup 1 --lr 0.01',
    '--schedule linear --weight-decay 0.1 --betas 0.8,0.9 --eps 1e-6', '--order sequential --seed 7', '--clip 0.5', '--optimizer sgd',
    '--optimizer adamw-loop --book torch', '--optimizer-in-backward', '--accumulate 2', '--micro-batch 1', '--micro-batch 1 --accumulation flat',
    '--micro-batch 1 --backward once --book torch', '--dtype bf16', '--dtype bf16 --master-weights', '--dtype fp16 --master-weights',
    '--dtype autocast-bf16', '--dtype autocast-fp16', '--attention eager --book torch', '--attention chunked:4', '--checkpoint full', '--checkpoint selective',
    '--checkpoint blocks:1 --checkpoint-form non-reentrant', '--loss chunked:8', '--offload optimizer', '--offload activations', '--offload activations:disk --offload-dir .',
    '--offload parameters,gradients,optimizer', '--ranks 2', '--ranks 2 --zero 1', '--ranks 2 --zero 2 --bucket 1000', '--ranks 2 --zero 3 --no-overlap',
    '--plan in/plan.json', '--ds-config in/ds-offload.json', '--write-plan plan.json', '--isa avx2', '--threads 2', '--data in/tokens.bin',
    '--batch 16 --seq 64 --book torch --budget 32MiB', '--batch 16 --seq 64 --book torch --budget 28MiB --allow kernels,recompute', '--batch 16 --seq 64 --budget 8MiB', '--budget 1MiB', '--budget 480KiB', '--budget 1MiB --allow none', '--budget 4MiB --allow all --write-plan plan.json')
SAVED = ('{train} --save run -q ; train --resume run --steps 5 --isa plain --threads 1 --write-plan again.json ; train --resume run --steps 6 --json --isa plain --threads 1 ; '
         'sample run --prompt the --tokens 20 --threads 1 ; sample run --ids --prompt "116 104" --tokens 8 --temperature 0 --context 8 --threads 1 ; '
         'sample run --seed 3 --top-k 5 --tokens 12 --threads 1')
SNAPSHOT = '{train} --snapshot run.pickle -q ; peak run.pickle ; info run.pickle ; steps run.pickle'

# ---- What is wrong with a command line or a file.
ERRORS = tuple(line.strip() for line in '''
    simulate
    simulate gpt3
    simulate gpt2 gpt2
    simulate missing.json
    simulate in/bert.json
    simulate in/heads.json
    simulate in/cut.json
    simulate in/cut.graph
    simulate snapshots/train-lm-small.pickle
    simulate gpt2 --steps 0
    simulate gpt2 --batch many
    simulate gpt2 --batch 1000000000000
    simulate gpt2 --steps 1000000
    simulate gpt2 --seq 2000
    simulate gpt2 --checkpoint sometimes
    simulate gpt2 --checkpoint blocks:8-20
    simulate gpt2 --attention flash
    simulate gpt2 --attention fast
    simulate gpt2 --dtype int8
    simulate gpt2 --optimizer adam
    simulate gpt2 --optimizer-in-backward --clip 1
    simulate gpt2 --optimizer-in-backward --accumulate 2
    simulate gpt2 --optimizer-in-backward --dtype autocast-fp16
    simulate gpt2 --in-place all
    simulate gpt2 --in-place product
    simulate gpt2 --offload everything
    simulate gpt2 --offload activations:tape
    simulate gpt2 --zero 2
    simulate gpt2 --ranks 2 --zero 4
    simulate gpt2 --ranks 2 --rank 2
    simulate gpt2 --link 8Gb/s --gpu a100
    simulate gpt2 --batch 4 --micro-batch 3
    simulate gpt2 --eval-steps 4
    simulate gpt2 --eval-batch 2
    simulate gpt2 --eval-steps 1 --book own
    simulate gpt2 --gpu b100
    simulate gpt2 --capacity 40
    simulate gpt2 --set max_split_size_mb:ten
    simulate gpt2 --loss chunked:0
    simulate gpt2 --master-weights
    simulate gpt2 --loss-scale 8
    simulate gpt2 --leak memory
    simulate gpt2 --rates in/text.txt
    simulate gpt2 --plan missing.json
    simulate gpt2 --plan in/wrong-plan.json
    simulate gpt2 --plan in/long-plan.json
    simulate gpt2 --ds-config in/text.txt
    simulate gpt2 -o -
    simulate gpt2 -o run.svg
    simulate gpt2 --colour
    simulate gpt2-bytes --checkpoint-modules h.*
    simulate graphs/graphs/bert.graph --batch 2
    simulate graphs/graphs/bert.graph --checkpoint full
    simulate graphs/graphs/bert.graph --checkpoint-modules none
    simulate graphs/graphs/bert.graph --optimizer-form fast
    simulate graphs/graphs/bert.graph --write-plan plan.json
    simulate graphs/graphs/layers-checkpoint.graph --checkpoint-modules *.mlp
    plan graphs/graphs/bert.graph --explain
    plan gpt2 --budget 3GiB --explain
    plan
    plan show
    plan gpt2 llama-2-7b
    plan hide in/plan.json
    plan show in/plan.json gpt2 gpt2
    plan show in/wrong-plan.json
    plan gpt2 --budget 3
    plan gpt2 --budget 3GiB --allow fsdp
    plan gpt2 --budget 3GiB --allow none,kernels
    plan gpt2 --budget 3GiB --for hf --json
    plan gpt2 --budget 3GiB --for jax
    plan gpt2 --budget 3GiB --front --largest batch
    plan gpt2 --allow recompute
    plan gpt2 --largest batch
    plan gpt2-bytes --budget 60MiB --largest width
    plan gpt2-bytes --budget 60MiB --largest batch --write-model large.json
    plan gpt2 --write-front front.csv
    plan gpt2 --gpus 8 --ranks 4 --budget 2GiB
    plan gpt2 --gpus 8 --link fast
    plan gpt2 --compare --gpus 8 --gpus-per-node 3
    plan gpt2 --compare --parameters 1000
    plan --largest-layer 5 --compare
    plan gpt2-bytes --from snapshots/train-lm-small.pickle
    plan gpt2-bytes --budget 1GiB --from missing.pickle
    plan gpt2-bytes --budget 1GiB --from snapshots/tiny-no-trace.pickle
    plan gpt2-bytes --budget 1GiB --from snapshots/train-lm-small.pickle --rates in/rates.json
    plan in/cut.graph --budget 1GiB
    train
    train gpt2-bytes
    train gpt2-bytes --data missing.txt
    train gpt2-bytes --data in/text.txt --lr quick
    train gpt2-bytes --data in/text.txt --schedule step
    train gpt2-bytes --data in/text.txt --save-every 3
    train gpt2-bytes --data in/text.txt --betas 1
    train gpt2-bytes --data in/text.txt --isa sse
    train gpt2-bytes --data in/text.txt --products mkl
    train gpt2-bytes --data in/short.txt
    train gpt2 --data in/text.txt --seq 5000
    train in/gpt2.json --data in/text.txt --tokens u32
    train in/gpt2.json --data in/text.txt --tokens u16
    train in/gpt2.json --data in/text.txt --offload activations:disk
    train in/gpt2.json --data in/text.txt --seq 16 --attention flash
    train graphs/graphs/bert.graph --data in/text.txt
    train --resume missing
    sample
    sample gpt2-bytes
    sample ./missing
    sample . --temperature -1
    peak missing.pickle
    peak in/text.txt
    snapshots
'''.strip().splitlines())

COMMANDS = ('info', 'peak', 'at', 'profile', 'diff', 'stages', 'source', 'steps', 'leaks', 'whatif', 'why', 'check', 'simulate', 'plan', 'train', 'sample',
            'report', 'export', 'trim', 'mcp', 'view', 'serve', 'help')
MOSAIC = ('json_snapshot', 'memory_profile', 'memory_usage', 'memory_usage_by_annotation_stage', 'memory_usage_diff', 'memory_usage_peak')


def texts(group, *lines):
    """Each line as text, once for each width."""
    return (Run(group, line.strip().replace('  ', ' '), width) for line in lines for width in WIDTHS)


def plain(group, *lines):
    """Each line once: JSON, or what contains a chain of commands."""
    return (Run(group, line.strip().replace('  ', ' '), None) for line in lines)


def text_and_json(group, *lines):
    return itertools.chain(texts(group, *lines), plain(group, *(line + ' --json' for line in lines)))


def snapshot_runs(files):
    for i, file in enumerate(files):
        names = {'file': f'snapshots/{file}', 'next': f'snapshots/{files[(i + 1) % len(files)]}'}
        for group, lines in QUESTIONS.items():
            yield from text_and_json(group, *(line.format(**names) for line in lines))
        for group, lines in OF_SNAPSHOTS.items():
            if i % 3 == 0 or group not in ON_SOME_FILES:
                yield from plain(group, *(line.format(**names) for line in lines))


def simulate_runs():
    for model in SIMULATED:
        yield from texts('simulate', f'simulate {model}', f'simulate {model} --profile')
        yield from plain('simulate', *(f'simulate {model} {form}' for form in SIMULATE_FORMS))
    for model, options in itertools.product(OPTIONED, OPTIONS):
        start = f'simulate {model} --batch 2 --seq 64 {options}' if '--batch' not in options else f'simulate {model} --seq 64 {options}'
        yield from texts('simulate', start)
        yield from plain('simulate', *(f'{start} {form}' for form in SIMULATE_FORMS[1:4]))
    yield from plain('simulate', *OF_SIMULATED)


def graph_runs(graphs):
    for graph in graphs:
        name = graph.removeprefix('graphs/').removesuffix('.graph')
        yield from text_and_json('simulate-graph', f'simulate {graph}')
        yield from texts('simulate-graph', f'simulate {graph} --profile')
        yield from plain('simulate-graph', *(f'simulate {graph} {form}' for form in GRAPH_FORMS))
        if name in CHANGED_GRAPHS:
            yield from plain('simulate-graph', *(f"simulate {graph} --{how}-modules '{CHANGED_GRAPHS[name]}' {form}"
                                                 for how in ('checkpoint', 'offload') for form in ('', '--profile --json', '-q -o run.pickle')))
        budgets = PLANNED_GRAPHS.get(name, ())
        if budgets:
            yield from text_and_json('plan-graph', *(f'plan {graph} --budget {budget}' for budget in (*budgets, '1B')))
            yield from plain('plan-graph', *(f'plan {graph} {face}'.format(graph=graph, budget=budgets[-1]) for face in GRAPH_PLANS))


def plan_runs():
    for model, budgets in PLANNED:
        yield from plain('plan', *(f'plan {model} {face}' for face in PLAN_FACES))
        for budget in budgets:
            yield from plain('plan', *(f'plan {model} --budget {budget} {face}' for face in BUDGETED))
            yield from texts('plan', f'plan {model} --budget {budget}')
        of_simulate = model.replace('--gpus', '--ranks')
        yield from plain('plan', *(f'plan {model} {face}'.replace('{budget}', budgets[1]).replace('{model}', of_simulate)
                                   for face in BUDGET_FACES))
    for model, options in itertools.product(('in/gpt2.json', 'in/llama.json'), OPTIONS):
        if not options.startswith(ONLY_SIMULATE) and '--rank ' not in options:
            batch = '' if '--batch' in options else '--batch 2'
            yield from plain('plan', f'plan {model} --seq 64 {batch} {options} --budget 22MiB --json', f'plan {model} --seq 64 {batch} {options}')
    for model in LARGEST:
        yield from plain('plan', *(f'plan {model} --largest {what} {form}' for what in ('batch', 'seq', 'model') for form in ('', '--json')),
                         f'plan {model} --largest model --write-model large.json')
    yield from plain('plan', *OTHER_PLANS)


def train_runs():
    for model in TRAINED:
        train = f'train {model} {TRAIN}'
        yield from plain('train', *(f'{train} {options} {form}' for options in TRAIN_OPTIONS for form in ('', '--json')))
        yield from plain('train', *(line.format(train=train + options) for line in (SAVED, SNAPSHOT)
                                    for options in ('', ' --book torch', ' --dtype bf16')))


def other_runs():
    yield from texts('help', 'help', '--help', 'no-such-command', *(f'help {name}' for name in COMMANDS),
                     *(f'mosaic_get_{name} --help' for name in MOSAIC))
    yield from plain('help', '--version', 'mcp < in/mcp.jsonl')
    yield from plain('errors', *ERRORS)


def all_runs(snapshots, graphs):
    """Every run, on these names of snapshots, and these paths of step graphs."""
    return itertools.chain(snapshot_runs(snapshots), simulate_runs(), graph_runs(graphs), plan_runs(), train_runs(), other_runs())


# ---- The files that runs read.
GPT2 = {'model_type': 'gpt2', 'n_layer': 2, 'n_embd': 32, 'n_head': 2, 'n_positions': 64, 'vocab_size': 256}
LLAMA = {'model_type': 'llama', 'hidden_size': 48, 'intermediate_size': 96, 'num_hidden_layers': 2, 'num_attention_heads': 4,
         'num_key_value_heads': 2, 'max_position_embeddings': 64, 'vocab_size': 256}
SCALED = {'rope_type': 'llama3', 'factor': 8.0, 'low_freq_factor': 1.0, 'high_freq_factor': 4.0, 'original_max_position_embeddings': 32}
JSON_INPUTS = {
    'gpt2.json': GPT2,
    'gpt2-deep.json': GPT2 | {'n_layer': 7, 'n_embd': 48, 'n_head': 4},
    'gpt2-untied.json': GPT2 | {'tie_word_embeddings': False, 'resid_pdrop': 0.0, 'embd_pdrop': 0.0, 'attn_pdrop': 0.0},
    'llama.json': LLAMA,
    'llama-deep.json': LLAMA | {'num_hidden_layers': 6},
    'llama-scaled.json': LLAMA | {'tie_word_embeddings': True, 'rope_theta': 500000.0, 'rope_scaling': SCALED},
    'mistral.json': LLAMA | {'model_type': 'mistral', 'sliding_window': 32},
    'qwen2.json': LLAMA | {'model_type': 'qwen2', 'hidden_act': 'silu'},
    'plan.json': {'version': 1, 'checkpoint': 'full', 'loss': 'chunked:16', 'gelu': 'fused'},
    'blocks.json': {'version': 1, 'dtype': 'bf16', 'blocks': [{'first': 0, 'last': 0, 'checkpoint': 'full'}]},
    'ranks.json': {'version': 1, 'ranks': 2, 'zero': 3},
    'long-plan.json': {'version': 1, 'blocks': [{'first': 8, 'last': 20}]},
    'wrong-plan.json': {'version': 1, 'precision': 'bf16'},
    'ds.json': {'train_micro_batch_size_per_gpu': 4, 'zero_optimization': {'stage': 2, 'reduce_bucket_size': 1000000}, 'steps_per_print': 10},
    'ds-offload.json': {'train_micro_batch_size_per_gpu': 2, 'gradient_clipping': 1.0, 'bf16': {'enabled': True},
                        'zero_optimization': {'stage': 2, 'offload_optimizer': {'device': 'cpu'}}},
    'bert.json': {'model_type': 'bert'},
    'heads.json': {'model_type': 'gpt2', 'n_head': 5},
}
TEXT_INPUTS = {
    'text.txt': ''.join(f'the cat {("sat", "ran", "ate")[i % 3]} {i * 7919 % 97} times. ' for i in range(300)),
    'tokens.bin': ''.join(chr(i * 31 % 100) + '\0' for i in range(3000)),
    'short.txt': 'short\n',
    'cut.json': '{"model_type": ',
    'model.py': 'import torch\n\n\nclass Model:\n    def forward(self, x):\n' + '        x = torch.relu(x)\n' * 500,
    'mcp.jsonl': ''.join(json.dumps({'jsonrpc': '2.0', 'id': i} | message) + '\n' for i, message in enumerate((
        {'method': 'initialize', 'params': {'protocolVersion': '2025-06-18', 'capabilities': {}, 'clientInfo': {'name': 'c', 'version': '1'}}},
        {'method': 'tools/list'},
        {'method': 'tools/call', 'params': {'name': 'peak', 'arguments': {'file': 'snapshots/train-lm-small.pickle'}}},
        {'method': 'tools/call', 'params': {'name': 'simulate', 'arguments': {'model': 'gpt2', 'batch': 2}}},
        {'method': 'tools/call', 'params': {'name': 'simulate', 'arguments': {'model': 'gpt2', 'batch': 'two'}}},
        {'method': 'no/such'}))),
}


def write_inputs(folder, golden, binary):
    """Fill `folder`, new or empty: its subfolder `in` has files for commands, its subfolder `graphs` the step graphs of `golden`.
    `binary` measures one of them, the rates of this machine."""
    inputs = folder / 'in'
    inputs.mkdir(parents=True)
    for name, value in JSON_INPUTS.items():
        (inputs / name).write_text(json.dumps(value), encoding='utf-8')
    for name, text in TEXT_INPUTS.items():
        (inputs / name).write_text(text, encoding='utf-8')
    for path in sorted(golden.glob('*/*.graph')):
        copy = folder / 'graphs' / path.relative_to(golden)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, copy)
    (inputs / 'cut.graph').write_bytes((folder / 'graphs' / 'graphs' / 'bert.graph').read_bytes()[:300])
    subprocess.run([binary, *f'train in/gpt2.json {TRAIN} --write-rates in/rates.json'.split()], cwd=folder, check=True, capture_output=True)
