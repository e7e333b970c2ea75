#!/usr/bin/env python3
"""paste.py [--check] [--seed N] [--count N] [--tessera PROGRAM] [NAME...]: the output of `tessera plan --for`, used as its users use it.

Plans are drawn at random, and tests/golden/texts.py says what each text means. Each program has to understand the same:

hf          transformers (4 or 5) makes TrainingArguments of the text, and trains a step; accelerate makes its plugin for FSDP
hf-fsdp     two processes shard a model with that plugin, and train a step (gloo)
deepspeed   json.load; DeepSpeed and accelerate read the configuration, together with the text for transformers; a step on the CPU
fsdp2       PyTorch runs the text in two processes and trains a step (gloo)
torchtitan  its parser reads the TOML (0.2; later versions read none)
megatron    megatron-core makes its configurations from the arguments; it has no parser of command lines

Packages that are not installed are skipped with a message; ./run test torch installs only PyTorch, transformers and accelerate. Kernels that a
CPU lacks are replaced by others, after their settings have been compared."""
import argparse
import ast
import contextlib
import importlib.util
import json
import os
import random
import subprocess
import sys
import tempfile
import traceback
import types
from pathlib import Path

import torch
import transformers as hf

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / 'golden'))
import texts  # noqa: E402

GPT2 = {'model_type': 'gpt2', 'n_layer': 4, 'n_embd': 64, 'n_head': 4, 'vocab_size': 500, 'n_positions': 128, 'bos_token_id': 0,
        'eos_token_id': 0, 'loss_type': 'ForCausalLMLoss'}
LLAMA = {'model_type': 'llama', 'hidden_size': 64, 'intermediate_size': 128, 'num_hidden_layers': 4, 'num_attention_heads': 4,
         'vocab_size': 500, 'bos_token_id': 0, 'eos_token_id': 0, 'loss_type': 'ForCausalLMLoss'}
MODELS = {'gpt2': GPT2, 'llama': LLAMA}
OPTIMIZERS = {'adamw': 'AdamW', 'adamw-foreach': 'AdamW', 'adamw-fused': 'AdamW', 'adamw-loop': 'AdamW', 'sgd': 'SGD', 'sgd-momentum': 'SGD',
              'adafactor': 'Adafactor'}


class Skipped(Exception):
    """A package is not installed."""


class Given:
    """What the command line says: which plans, and which program prints texts."""
    seed, count, program, show = 0, 16, None, False


def need(name):
    try:
        found = importlib.util.find_spec(name)
    except ModuleNotFoundError:
        found = None
    if found is None:
        raise Skipped(f'{name} is not installed')
    return found


def texts_of(*targets, fits=lambda plan: True):
    """For each plan: the model's name, the plan, and for each target the text, its notes, the batch and the plan that it means."""
    with tempfile.TemporaryDirectory() as work:
        count, seed = 0, Given.seed
        while count < Given.count:
            name, plan = texts.draw(random.Random(seed))
            seed += 1
            if not fits(plan):
                continue
            count += 1
            paths = Path(work) / 'config.json', Path(work) / 'plan.json'
            for path, content in zip(paths, (MODELS[name], plan)):
                path.write_text(json.dumps(content), encoding='utf-8')
            words = [word for target in targets for word in ('--for', target)]
            done = subprocess.run([*((Given.program,) if Given.program else (sys.executable, '-m', 'tessera')), 'plan', paths[0], '--plan', paths[1], '--batch', str(texts.BATCH),
                                   '--seq', str(texts.SEQUENCE), '--json', *words], capture_output=True, text=True, check=False)
            assert done.returncode == 0, f'{plan}: {done.stderr}'
            answer = json.loads(done.stdout)
            if Given.show:
                print(f'# {seed - 1} {name} {json.dumps(plan)}', flush=True)
            out = []
            for one in (answer['for'], *answer.get('also_for', ())):
                notes = texts.notes_of(one)
                out.append((one['text'], notes, *(texts.READERS[one['target']](one['text'], notes) if one['target'] in texts.READERS else (0, {}))))
            try:
                yield name, plan, *out
            except GeneratorExit:
                return


def expect(what, got, want):
    if got != want:
        raise AssertionError(f'{what}: got {got!r}, want {want!r}')


def unused(text):
    """The names that Python code imports without using them."""
    tree = ast.parse(text)
    names = {alias.asname or alias.name.partition('.')[0] for node in ast.walk(tree) if isinstance(node, (ast.Import, ast.ImportFrom))
             for alias in node.names}
    return names - {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}


def made(name, meaning):
    model = hf.AutoModelForCausalLM.from_config(hf.AutoConfig.for_model(**MODELS[name])).train()
    chosen = []
    model.set_attn_implementation = chosen.append  # kernels that a CPU lacks
    return model, lambda: expect('attention', chosen, {'eager': ['eager'], 'flash': ['flash_attention_2']}.get(meaning.get('attention'), []))


def check_model(model, meaning, check_attention):
    check_attention()
    kind = {'bf16': torch.bfloat16, 'fp16': torch.float16}.get(meaning.get('dtype'), torch.float32)
    expect('types of parameters', {parameter.dtype for parameter in model.parameters()}, {kind})
    expect('cache', model.config.use_cache, not meaning.get('no_kv_cache'))
    if kind == torch.float16:
        model.to(torch.bfloat16)  # which CPUs have


def inputs(batch):
    return torch.zeros(batch, 16, dtype=torch.long)


class Tokens(torch.utils.data.Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, index):
        return {'input_ids': inputs(1)[0], 'labels': inputs(1)[0]}


# ---- transformers ----

# What a CPU lacks, and what stands in for it, once it has been compared.
OF_CARDS = (('    fp16=True,\n', ''), ('    use_liger_kernel=True,  # a fused loss\n', ''), ('adamw_bnb_8bit', 'adamw_torch'), ('lion_32bit', 'adamw_torch'))


def clean_environment():
    for key in [key for key in os.environ if key.startswith(('FSDP_', 'ACCELERATE_'))]:
        del os.environ[key]


def arguments(text, model, batch, meaning, folder):
    """The arguments that the text makes, as transformers understands them."""
    clean_environment()
    words = texts.keywords(text, 'TrainingArguments')
    known = set(hf.TrainingArguments.__dataclass_fields__)
    assert set(words) <= known, set(words) - known
    assert words['optim'] in {member.value for member in hf.training_args.OptimizerNames}, words['optim']
    for of_card, instead in OF_CARDS:
        text = text.replace(of_card, instead)
    space = {'model': model}
    exec(compile(text.replace('output_dir="out",', f'output_dir={folder!r}, use_cpu=True, report_to="none", save_strategy="no", max_steps=1,'),
                 'hf', 'exec'), space)
    args = space['args']
    expect('batch', args.per_device_train_batch_size, batch)
    expect('accumulate', args.gradient_accumulation_steps, meaning['accumulate'])
    expect('clip', args.max_grad_norm, float(meaning.get('clip', 0)))
    expect('bf16', args.bf16, meaning.get('dtype') == 'autocast-bf16')
    expect('checkpoint', args.gradient_checkpointing, 'checkpoint' in meaning)
    if args.gradient_checkpointing:
        expect('form', args.gradient_checkpointing_kwargs, {'use_reentrant': 'checkpoint_form' not in meaning})
    expect('optimizer', args.optim.value, {'adamw-fused': 'adamw_torch_fused', 'sgd': 'sgd'}.get(meaning['optimizer'], 'adamw_torch'))
    expect('fsdp', bool(args.fsdp), meaning.get('zero', 0) > 0)
    return args


def plugin_of(args, model, meaning):
    """accelerate's plugin for FSDP, as both versions of transformers have it made: from arguments, or from the environment."""
    from accelerate.utils import FullyShardedDataParallelPlugin
    plugin = FullyShardedDataParallelPlugin(**(getattr(args, 'fsdp_plugin_args', None) or {}))
    expect('version of FSDP', plugin.fsdp_version, 2)
    expect('reshard', plugin.reshard_after_forward, meaning['zero'] == 3)
    plugin.set_auto_wrap_policy(model)
    units = {kind.__name__ for kind in plugin.auto_wrap_policy.keywords['transformer_layer_cls']}
    expect('units', units, {'GPT2Block'} if model.config.model_type == 'gpt2' else {'LlamaDecoderLayer'})
    return plugin


def transformers():
    need('accelerate')
    for name, plan, (text, notes, batch, meaning) in texts_of('hf'):
        expect('unused', unused(text) - {'torch'}, set())
        with tempfile.TemporaryDirectory() as folder:
            model, check_attention = made(name, meaning)
            args = arguments(text, model, batch, meaning, folder)
            check_model(model, {**meaning, **({'dtype': 'fp32'} if 'autocast' in meaning.get('dtype', '') else {})}, check_attention)
            if args.fsdp:
                plugin_of(args, model, meaning)
                continue  # hf-fsdp
            trainer = hf.Trainer(model=model, args=args, train_dataset=Tokens())
            done = trainer.train()
            expect('steps', done.global_step, 1)
            assert torch.isfinite(torch.tensor(done.training_loss)), plan
            expect('class', type(trainer.optimizer.optimizer).__name__, OPTIMIZERS.get(meaning['optimizer'], 'AdamW'))
            expect('checkpointing', model.is_gradient_checkpointing, 'checkpoint' in meaning)
    clean_environment()


def fsdp_step(rank, size, name, text, batch, meaning, port):
    """One process of hf-fsdp. accelerate only shards on GPUs, so its distributed type is set by hand."""
    os.environ.update(MASTER_ADDR='127.0.0.1', MASTER_PORT=str(port), RANK=str(rank), WORLD_SIZE=str(size), LOCAL_RANK=str(rank))
    hf.logging.set_verbosity_error()
    from accelerate import DistributedType
    with tempfile.TemporaryDirectory() as folder:
        model, _ = made(name, meaning)
        args = arguments(text, model, batch, meaning, folder)
        if meaning.get('dtype') == 'fp16':
            model.to(torch.bfloat16)
        plugin = plugin_of(args, model, meaning)
        trainer = hf.Trainer(model=model, args=args, train_dataset=Tokens())
        state = trainer.accelerator.state
        state.distributed_type = DistributedType.FSDP
        state.fsdp_plugin = plugin
        if state._mixed_precision != 'no':
            plugin.set_mixed_precision(state._mixed_precision)
        trainer.is_fsdp_enabled = True
        done = trainer.train()
        expect('steps', done.global_step, 1)
        assert torch.isfinite(torch.tensor(done.training_loss))
        units = [module for module in model.modules() if isinstance(module, torch.distributed.fsdp.FSDPModule)]
        blocks = [unit for unit in units if type(unit).__name__.endswith(('GPT2Block', 'LlamaDecoderLayer'))]
        expect('blocks that are units', len(blocks), 4)
        expect('reshard', {bool(block._get_fsdp_state()._fsdp_param_group.post_forward_mesh_info) for block in blocks}, {meaning['zero'] == 3})
    torch.distributed.destroy_process_group()


def spawn(function, *args):
    torch.multiprocessing.spawn(function, args=args, nprocs=2)


def transformers_fsdp():
    need('accelerate')
    port = 29600 + os.getpid() % 300
    for number, (name, _, (text, _, batch, meaning)) in enumerate(texts_of('hf', fits=lambda plan: plan.get('ranks', 1) > 1 and plan.get('zero'))):
        if number < max(2, Given.count // 8):
            spawn(fsdp_step, 2, name, text, batch, meaning, port + number)


# ---- DeepSpeed ----

def deepspeed():
    need('deepspeed')
    import deepspeed as ds
    from accelerate.utils import DeepSpeedPlugin
    from deepspeed.runtime.config import DeepSpeedConfig
    os.environ.update(MASTER_ADDR='127.0.0.1', MASTER_PORT=str(29600 + os.getpid() % 300), RANK='0', WORLD_SIZE='1', LOCAL_RANK='0')
    ds.init_distributed(dist_backend='gloo', verbose=False)
    for name, plan, (text, notes, _, _), (args_text, _, batch, meaning) in texts_of('deepspeed', 'hf'):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / 'deepspeed.json'
            path.write_text(text, encoding='utf-8')
            with open(path, encoding='utf-8') as file:
                config = json.load(file)
            read = DeepSpeedConfig(dict(config))
            expect('batch', (read.train_micro_batch_size_per_gpu, read.gradient_accumulation_steps), (batch, meaning['accumulate']))
            expect('stage', read.zero_config.stage, config['zero_optimization']['stage'])
            expect('clip', read.gradient_clipping, float(plan.get('clip', 0)))
            is_half = plan.get('dtype', 'fp32') != 'fp32'
            expect('types', (read.float16_config.enabled, read.bfloat16_config.enabled),
                   (is_half and 'fp16' in plan['dtype'], is_half and 'bf16' in plan['dtype']))
            if read.float16_config.enabled:
                scale = plan.get('loss_scale', 65536)
                expect('scale', (read.float16_config.initial_scale_power, read.float16_config.loss_scale_window, read.float16_config.hysteresis),
                       ({1000: 10, 1024: 10, 65536: 16}[scale], plan.get('loss_scale_window', 2000), 1))
            expect('bucket', read.zero_config.reduce_bucket_size, config['zero_optimization'].get('reduce_bucket_size', 500000000))
            plugin = DeepSpeedPlugin(hf_ds_config=str(path))
            expect('accelerate', (plugin.deepspeed_config['zero_optimization'], plugin.zero_stage),
                   (config['zero_optimization'], config['zero_optimization']['stage']))
            check_together(name, args_text, config, path, folder, batch, meaning)
            check_engine(ds, name, config)


def check_together(name, text, config, path, folder, batch, meaning):
    """transformers finds no contradiction between its arguments and the configuration, if both texts have the same types."""
    from transformers.integrations.deepspeed import HfTrainerDeepSpeedConfig
    clean_environment()
    model, _ = made(name, meaning)
    wanted = 'bf16' if config.get('bf16') else 'fp16' if config.get('fp16') else 'fp32'
    if meaning.get('dtype', 'fp32') not in (wanted, f'autocast-{wanted}') or wanted == 'fp16' or meaning.get('dtype') == 'bf16':
        return
    args = arguments(text, model, batch, {**meaning}, folder)
    if args.fsdp:
        return  # one or the other
    both = HfTrainerDeepSpeedConfig(json.loads(path.read_text(encoding='utf-8')))
    both.trainer_config_process(args)
    both.trainer_config_finalize(args, model, 1)


def check_engine(ds, name, config):
    """A step. Kernels that are compiled when they are first used, and other types than a CPU has, are replaced."""
    config = json.loads(json.dumps(config))
    if config['optimizer']['type'] in ('AdamW', 'Lion'):
        config['optimizer'] = {'type': 'AdamW', 'params': {'torch_adam': True}}
    if config.pop('fp16', None):
        config['bf16'] = {'enabled': True}
    model, _ = made(name, {})
    engine, optimizer, _, _ = ds.initialize(model=model, config=config)
    expect('stage', engine.zero_optimization_stage(), config['zero_optimization']['stage'])
    for _ in range(config['gradient_accumulation_steps']):
        loss = engine(input_ids=inputs(2), labels=inputs(2)).loss
        engine.backward(loss)
        engine.step()
    expect('steps', engine.global_steps, 1)
    assert torch.isfinite(loss)
    engine.destroy()


# ---- torchtitan, Megatron-LM ----

def torchtitan():
    need('torchtitan')
    try:
        from torchtitan.config import ConfigManager
        from torchtitan.config import JobConfig  # noqa: F401
    except ImportError as error:
        raise Skipped(f'torchtitan 0.3 and later read no TOML: 0.2 does ({error})') from None
    for _, _, (text, notes, batch, meaning) in texts_of('torchtitan'):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / 'torchtitan.toml'
            path.write_text(text, encoding='utf-8')
            config = ConfigManager().parse_args(['--job.config_file', str(path)])
        ranks, training = meaning.get('ranks', 1), config.training
        expect('batch', (training.local_batch_size, training.global_batch_size, training.seq_len),
               (batch, batch * ranks * meaning['accumulate'], texts.SEQUENCE))
        expect('types', (training.dtype, training.mixed_precision_param),
               {None: ('float32', 'float32'), 'bf16': ('bfloat16',) * 2, 'autocast-bf16': ('float32', 'bfloat16')}[meaning.get('dtype')])
        expect('clip', training.max_norm, float(meaning.get('clip', 'inf')))
        expect('offload', training.enable_cpu_offload, 'offload' in meaning)
        expect('optimizer', (config.optimizer.name, config.optimizer.implementation, config.optimizer.early_step_in_backward),
               ('AdamW', {'adamw-fused': 'fused', 'adamw': 'foreach', 'adamw-loop': 'for-loop'}[meaning['optimizer']],
                'optimizer_in_backward' in meaning))
        expect('checkpoint', config.activation_checkpoint.mode, 'full' if 'checkpoint' in meaning else 'none')
        spread = config.parallelism
        if ranks > 1:
            expect('ranks', (spread.data_parallel_replicate_degree, spread.data_parallel_shard_degree),
                   (1, ranks) if meaning.get('zero') else (ranks, 1))
            expect('reshard', spread.fsdp_reshard_after_forward, 'always' if meaning.get('zero') == 3 else 'never')


def megatron():
    """The options are named as the fields that they set; those of the loop are not in megatron-core, which has no parser of command lines."""
    need('megatron.core')
    from megatron.core.distributed import DistributedDataParallelConfig
    from megatron.core.optimizer import OptimizerConfig
    from megatron.core.transformer import TransformerConfig
    from megatron.core.transformer.enums import AttnBackend
    from packaging.version import Version
    sys.modules['megatron.core.utils'].get_te_version = lambda: Version('2.1.0')  # TransformerEngine is for cards
    renamed = {'ddp_bucket_size': 'bucket_size'}
    loop = {'micro_batch_size', 'global_batch_size', 'seq_length', 'ckpt_format'}
    for name, plan, (text, notes, batch, meaning) in texts_of('megatron'):
        values = {}
        for line in text.splitlines():
            if not line.startswith('#'):
                word, *rest = line.split()
                key = word.removeprefix('--').replace('-', '_')
                value = rest[0] if rest else not key.startswith('no_')
                key = key.removeprefix('no_')
                for kind in (int, float):
                    try:
                        value = value if isinstance(value, bool) else kind(value)
                        break
                    except ValueError:
                        pass
                values[renamed.get(key, key)] = value
        if 'attention_backend' in values:
            values['attention_backend'] = AttnBackend[values['attention_backend']]
        configs, left = [], set(values) - loop
        for kind, more in ((TransformerConfig, {'num_layers': 4, 'hidden_size': 64, 'num_attention_heads': 4}), (OptimizerConfig, {}),
                           (DistributedDataParallelConfig, {})):
            own = {key: value for key, value in values.items() if key in kind.__dataclass_fields__}
            left -= set(own)
            configs.append(kind(**more, **own))
        expect(f'{plan}: unknown', left, set())
        model, optimizer, spread = configs
        expect('recompute', (model.recompute_granularity, model.recompute_method, model.recompute_num_layers), {
            'none': (None, None, None), 'full': ('full', 'uniform', 1), 'selective': ('selective', None, None), 'every:2': ('full', 'uniform', 2),
            'blocks': ('full', 'block', meaning.get('blocks', [{'last': 0}])[0]['last'] + 1),
        }['blocks' if 'blocks' in meaning else meaning.get('checkpoint', 'none')])
        expect('optimizer', (optimizer.optimizer, optimizer.clip_grad, optimizer.optimizer_cpu_offload),
               ('adam' if 'adam' in meaning['optimizer'] else 'sgd', float(meaning.get('clip', 0)), 'offload' in meaning))
        expect('types', (optimizer.bf16, optimizer.fp16), (meaning.get('dtype') == 'bf16', meaning.get('dtype') == 'fp16'))
        expect('sharding', spread.data_parallel_sharding_strategy if spread.use_megatron_fsdp else 'no_shard',
               {2: 'optim_grads', 3: 'optim_grads_params'}.get(meaning.get('zero'), 'no_shard'))
        expect('stage 1', spread.use_distributed_optimizer, meaning.get('zero', 0) > 0 or 'offload' in meaning)
        if optimizer.fp16:
            expect('scale', (optimizer.initial_loss_scale, optimizer.loss_scale_window, optimizer.hysteresis),
                   (meaning['loss_scale'], meaning['loss_scale_window'], 1))


# ---- FSDP2 ----

def fsdp2_steps(rank, size, cases, port):
    """A process that uses each text in turn."""
    os.environ.update(MASTER_ADDR='127.0.0.1', MASTER_PORT=str(port), RANK=str(rank), WORLD_SIZE=str(size), LOCAL_RANK=str(rank))
    torch.distributed.init_process_group('gloo')
    hf.logging.set_verbosity_error()
    try:
        for name, plan, text, batch, meaning in cases:
            torch.manual_seed(0)
            try:
                fsdp2_step(name, text, batch, meaning)
            except Exception as error:
                raise AssertionError(f'{json.dumps(plan)}: {error}\n{text}') from error
    finally:
        torch.distributed.destroy_process_group()


def fsdp2_step(name, text, batch, meaning):
    model, check_attention = made(name, meaning)
    space = {'model': model}
    text = text.replace('GradScaler("cuda"', 'GradScaler("cpu"').replace('OffloadPolicy()', 'OffloadPolicy(pin_memory=False)')
    if meaning.get('dtype') == 'fp16':
        text = text.replace('model.to(torch.float16)', 'model.to(torch.bfloat16)')  # gloo sums it
        meaning = {**meaning, 'dtype': 'bf16'}
    exec(compile(text, 'fsdp2', 'exec'), space)
    check_model(model, {**meaning, **({'dtype': 'fp32'} if 'autocast' in meaning.get('dtype', '') else {})}, check_attention)
    check_fsdp2(model, space, meaning)
    scaler, optimizer = space.get('scaler'), space['optimizer']
    for _ in range(meaning.get('accumulate', 1)):
        with torch.autograd.graph.save_on_cpu() if 'activations' in meaning.get('offload', '') else contextlib.nullcontext():
            loss = model(input_ids=inputs(batch), labels=inputs(batch)).loss
        (scaler.scale(loss) if scaler else loss).backward()
    if 'clip' in meaning:
        if scaler:
            scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), float(meaning['clip']))
    if scaler:
        scaler.step(optimizer)
        scaler.update()
    else:
        optimizer.step()
    assert torch.isfinite(loss)


def check_fsdp2(model, space, meaning):
    from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import CheckpointWrapper
    blocks = list(space['blocks'])
    again = [number for number, block in enumerate(blocks) if isinstance(block, CheckpointWrapper)]
    wanted = range(4) if meaning.get('checkpoint') == 'full' else [
        number for part in meaning.get('blocks', ()) for number in range(part['first'], part['last'] + 1)]
    expect('blocks computed again', again, list(wanted))
    groups = [module._get_fsdp_state() for module in (model, *blocks)]
    expect('reshard', {bool(state._fsdp_param_group.post_forward_mesh_info) for state in groups[1:]}, {meaning.get('zero', 3) == 3})
    kind = {'autocast-bf16': torch.bfloat16, 'autocast-fp16': torch.float16}.get(meaning.get('dtype'))
    expect('policy', {state._mp_policy.param_dtype for state in groups}, {kind})
    away = 'parameters' in meaning.get('offload', '')
    expect('offload', {type(state._fsdp_param_group.offload_policy).__name__ for state in groups}, {'CPUOffloadPolicy' if away else 'OffloadPolicy'})
    expect('optimizer', type(space['optimizer']).__name__, OPTIMIZERS[meaning['optimizer']])
    words = space['optimizer'].defaults
    expect('kind', (bool(words.get('fused')), words.get('foreach'), words.get('momentum', 0)),
           {'adamw-fused': (True, None, 0), 'adamw-foreach': (False, True, 0), 'adamw-loop': (False, False, 0), 'sgd-momentum': (False, None, 0.9), 'adafactor': (False, None, 0)}.get(
               meaning['optimizer'], (False, None, 0)))
    if 'scaler' in space:
        expect('scale', (space['scaler']._init_scale, space['scaler']._growth_interval),
               (meaning.get('loss_scale', 65536), meaning.get('loss_scale_window', 2000)))
    expect('scaler', 'scaler' in space, meaning.get('dtype') == 'autocast-fp16')


def fsdp2():
    cases = [(name, plan, text, batch, meaning) for name, plan, (text, _, batch, meaning) in texts_of('fsdp2')]
    for _, _, text, _, _ in cases:
        assert not unused(text), f'{unused(text)} in {text}'
    spawn(fsdp2_steps, 2, cases, 29900 + os.getpid() % 90)


TESTS: 'dict[str, types.FunctionType]' = {
    'hf': transformers, 'hf-fsdp': transformers_fsdp, 'deepspeed': deepspeed, 'torchtitan': torchtitan, 'megatron': megatron, 'fsdp2': fsdp2}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--check', action='store_true', help='as for the other programs; there is nothing else')
    parser.add_argument('--seed', type=int, default=0)
    parser.add_argument('--count', type=int, default=16)
    parser.add_argument('--show', action='store_true', help='print each plan')
    parser.add_argument('--tessera', metavar='PROGRAM', help='the program, in place of the installed package')
    parser.add_argument('names', nargs='*', metavar='NAME')
    given = parser.parse_args()
    Given.seed, Given.count, Given.program, Given.show = given.seed, given.count, given.tessera, given.show
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
