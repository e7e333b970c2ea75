#!/usr/bin/env python3
"""paste.py [--check]: the output of `tessera plan --for`, read by the programs that it is for.

transformers reads TrainingArguments, deepspeed its JSON, torchtitan its TOML, megatron-core has the options as fields of its configurations, and
PyTorch runs the Python for FSDP2, in one process on the CPU (gloo), with a tiny model. Packages that are not installed are
skipped with a message; ./run test torch installs only PyTorch and transformers.
"""
import argparse
import ast
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import tomllib
import traceback
import types
import typing
from pathlib import Path

import torch
import transformers as hf

LLAMA = {'model_type': 'llama', 'hidden_size': 64, 'intermediate_size': 128, 'num_hidden_layers': 3, 'num_attention_heads': 4,
         'vocab_size': 500, 'bos_token_id': 0, 'eos_token_id': 0}
GPT2 = {'model_type': 'gpt2', 'n_layer': 3, 'n_embd': 64, 'n_head': 4, 'vocab_size': 500, 'bos_token_id': 0, 'eos_token_id': 0}
PLANS = ({}, {'checkpoint': 'full', 'checkpoint_form': 'non-reentrant', 'clip': '1.0', 'micro_batch': 1, 'optimizer': 'adamw-fused'},
         {'blocks': [{'first': 0, 'last': 1, 'checkpoint': 'full'}], 'loss': 'chunked:64', 'no_kv_cache': True, 'gelu': 'fused'},
         {'dtype': 'autocast-bf16', 'checkpoint': 'every:2', 'offload': 'optimizer'}, {'dtype': 'autocast-fp16', 'checkpoint': 'selective'},
         {'offload': 'optimizer,gradients,parameters,activations', 'optimizer': 'sgd'}, {'optimizer_in_backward': True, 'attention': 'eager'},
         {'ranks': 8}, {'ranks': 2, 'zero': 1}, {'ranks': 4, 'zero': 2, 'checkpoint': 'full'}, {'ranks': 4, 'zero': 3})


class Skipped(Exception):
    """A package is not installed."""


def need(name):
    try:
        found = importlib.util.find_spec(name)
    except ModuleNotFoundError:
        found = None
    if found is None:
        raise Skipped(f'{name} is not installed')
    return found


def texts(target):
    """What is printed for each plan, of each model that it suits."""
    with tempfile.TemporaryDirectory() as work:
        for model in (GPT2, LLAMA):
            for plan in PLANS:
                if 'gelu' in plan and model is LLAMA:
                    plan = {key: value for key, value in plan.items() if key != 'gelu'}
                paths = Path(work) / 'config.json', Path(work) / 'plan.json'
                for path, content in zip(paths, (model, {**plan, 'version': 1})):
                    path.write_text(json.dumps(content), encoding='utf-8')
                done = subprocess.run([sys.executable, '-m', 'tessera', 'plan', paths[0], '--plan', paths[1], '--batch', '2', '--seq', '64',
                                       '--for', target], capture_output=True, text=True, check=False)
                assert done.returncode == 0, f'{plan}: {done.stderr}'
                yield model, plan, done.stdout


def unused(text):
    """The names that Python code imports without using them."""
    tree = ast.parse(text)
    names = {alias.asname or alias.name.partition('.')[0] for node in ast.walk(tree) if isinstance(node, (ast.Import, ast.ImportFrom))
             for alias in node.names}
    return names - {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}


def made(model):
    return hf.AutoModelForCausalLM.from_config(hf.AutoConfig.for_model(**model)).train()


def transformers():
    need('accelerate')
    for model, plan, text in texts('hf'):
        assert ('liger' in text) == ('loss' in plan and model is LLAMA), text
        # A CPU has no fused kernels of Liger and no fp16; what is checked is that each argument is known.
        words = {keyword.arg for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)
                 and getattr(node.func, 'id', '') == 'TrainingArguments' for keyword in node.keywords}
        known = {field for field in hf.TrainingArguments.__dataclass_fields__}
        assert words <= known, words - known
        space = {'model': made(model)}
        exec(compile(text.replace('    fp16=True,\n', '').replace('    use_liger_kernel=True,', '#').replace(
            'output_dir="out",', 'output_dir="out", use_cpu=True,'), 'hf', 'exec'), space)
        parts = plan.get('micro_batch', 2)
        assert space['args'].per_device_train_batch_size == parts and space['args'].gradient_accumulation_steps == 2 // parts
        assert space['args'].gradient_checkpointing == (plan.get('checkpoint', 'none') != 'none' or 'blocks' in plan)


def deepspeed():
    need('deepspeed')
    from deepspeed.runtime.config import DeepSpeedConfig
    for _, plan, text in texts('deepspeed'):
        config = DeepSpeedConfig(json.loads(''.join(line for line in text.splitlines() if not line.startswith('//'))))
        assert config.train_micro_batch_size_per_gpu == plan.get('micro_batch', 2), text
        assert config.zero_config.stage == (3 if 'optimizer' in plan.get('offload', '') else plan.get('zero', 0)), text


def torchtitan():
    need('torchtitan')
    try:
        from torchtitan.config import JobConfig
    except ImportError:
        raise Skipped('torchtitan 0.3 and later read no TOML: 0.2 does') from None
    for _, _, text in texts('torchtitan'):
        for section, values in tomllib.loads(text).items():
            kinds = typing.get_type_hints(type(getattr(JobConfig(), section)))
            for key, value in values.items():
                words = typing.get_args(kinds[key]) if typing.get_origin(kinds[key]) is typing.Literal else (value,)
                assert value in words, f'{section}.{key}: {value}'


def megatron():
    """Options of pretrain_gpt.py are named as the fields that they set; those of the loop are not in megatron-core."""
    folder = Path(need('megatron.core').origin).parent
    fields = set()
    for path in ('transformer/transformer_config.py', 'model_parallel_config.py', 'optimizer/optimizer_config.py',
                 'distributed/distributed_data_parallel_config.py'):
        for node in ast.walk(ast.parse((folder / path).read_text(encoding='utf-8'))):
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                fields.add(node.target.id)
    loop = {'micro_batch_size', 'global_batch_size', 'seq_length'}
    for _, plan, text in texts('megatron'):
        words = [line.split()[0] for line in text.splitlines() if not line.startswith('#')]
        names = {word.removeprefix('--').replace('-', '_') for word in words}
        assert all(word.startswith('--') for word in words) and names <= fields | loop, f'{plan}: {names - fields - loop}'


def fsdp2():
    """Runs: one process, a step of each. CPUs have fp16 sums as gloo has."""
    os.environ.update(MASTER_ADDR='127.0.0.1', MASTER_PORT='29551', RANK='0', WORLD_SIZE='1')
    torch.distributed.init_process_group('gloo')
    try:
        for model, plan, text in texts('fsdp2'):
            assert not unused(text), f'{unused(text)} in {text}'
            assert ('GradScaler' in text) == ('fp16' in plan.get('dtype', '')), text
            torch.manual_seed(0)
            space = {'model': made(model)}
            text = text.replace('GradScaler("cuda")', 'GradScaler("cpu")').replace('OffloadPolicy()', 'OffloadPolicy(pin_memory=False)')
            exec(compile(text, 'fsdp2', 'exec'), space)
            ids = torch.zeros(2, 16, dtype=torch.long)
            loss = space['model'](input_ids=ids, labels=ids).loss
            (space['scaler'].scale(loss) if 'scaler' in space else loss).backward()
            if 'scaler' in space:
                space['scaler'].step(space['optimizer'])
                space['scaler'].update()
            else:
                space['optimizer'].step()
            assert torch.isfinite(loss), plan
    finally:
        torch.distributed.destroy_process_group()


TESTS: 'dict[str, types.FunctionType]' = {
    'hf': transformers, 'deepspeed': deepspeed, 'torchtitan': torchtitan, 'megatron': megatron, 'fsdp2': fsdp2}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--check', action='store_true', help='as for the other programs; there is nothing else')
    parser.add_argument('names', nargs='*', metavar='NAME')
    given = parser.parse_args()
    hf.logging.set_verbosity_error()
    failed = 0
    for name in given.names or TESTS:
        try:
            TESTS[name]()
            print(f'ok - {name}', flush=True)
        except Skipped as why:
            print(f'ok - {name} # SKIP {why}', flush=True)
        except Exception:  # the next one may say more
            failed += 1
            traceback.print_exc()
            print(f'not ok - {name}', flush=True)
    return int(failed > 0)


if __name__ == '__main__':
    sys.exit(main())
