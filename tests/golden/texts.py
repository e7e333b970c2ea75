"""texts.py: random plans, and what the texts of `plan --for` mean.

A reader for each program knows its settings, not tessera's code, and returns the batch and the plan that a text is. targets.py simulates
that plan; tests/torch/paste.py compares it with what the program itself makes of the text."""
import ast
import re
import tomllib

GPT2 = {'model_type': 'gpt2', 'n_layer': 4, 'n_embd': 512, 'n_head': 8, 'vocab_size': 8000, 'n_positions': 128}
LLAMA = {'model_type': 'llama', 'hidden_size': 512, 'intermediate_size': 1024, 'num_hidden_layers': 4, 'num_attention_heads': 8,
         'vocab_size': 8000}
MODELS = {'gpt2': GPT2, 'llama': LLAMA}
BATCH, SEQUENCE = 4, 128
TARGETS = ('hf', 'peft', 'axolotl', 'unsloth', 'deepspeed', 'fsdp2', 'torchtitan', 'megatron', 'env', 'tessera')
# By option, what is drawn; one that is not drawn keeps its default.
OPTIONS = {
    'accumulate': (2, 3), 'micro_batch': (1, 2), 'accumulation': ('grouped', 'flat'),
    'optimizer': ('adamw-foreach', 'adamw-fused', 'adamw-loop', 'sgd', 'sgd-momentum', 'adafactor', 'muon', 'adamw-8bit', 'lion'),
    'optimizer_in_backward': (True,), 'clip': ('1', '0.5'), 'dtype': ('bf16', 'fp16', 'autocast-bf16', 'autocast-fp16'),
    'attention': ('eager', 'flash', 'efficient', 'chunked:8'), 'gelu': ('fused',), 'in_place': ('add',),
    'checkpoint': ('full', 'selective', 'every:2', 'sqrt'), 'checkpoint_form': ('non-reentrant',), 'loss': ('chunked:64',),
    'master_weights': (True,), 'loss_scale': (1024, 1000), 'loss_scale_window': (100,), 'lora': (4,), 'lora_alpha': ('16',),
    'lora_targets': ('all-linear',), 'lora_dropout': ('0.1', '0.05'), 'adapter_dtype': ('base',), 'quantize': ('nf4', 'fp4'),
    'double_quant': (True,), 'kbit_training': ('checkpointing', 'casts'), 'fp8': ('te',),
    'offload': ('optimizer', 'optimizer,gradients', 'parameters', 'gradients', 'optimizer,gradients,parameters', 'activations',
                'optimizer,activations:disk', 'optimizer,gradients,parameters,activations'),
    'ranks': (1, 2, 8), 'zero': (1, 2, 3), 'bucket': (1000,), 'no_overlap': (True,), 'no_kv_cache': (True,)}
NEEDS = {'zero': 'ranks', 'bucket': 'ranks', 'no_overlap': 'ranks', 'loss_scale_window': 'loss_scale', 'double_quant': 'quantize', 'kbit_training': 'quantize', 'lora_alpha': 'lora', 'lora_targets': 'lora',
         'lora_dropout': 'lora', 'adapter_dtype': 'lora', 'quantize': 'lora'}
BLOCKS = ([{'first': 0, 'last': 1, 'checkpoint': 'full'}], [{'first': 1, 'last': 1, 'checkpoint': 'full'}],
          [{'first': 0, 'last': 0, 'checkpoint': 'full'}, {'first': 2, 'last': 2, 'saved': {'layer norm.0': 'recompute'}}])


def draw(own):
    """A model's name, and a plan, which may not suit the model."""
    name = own.choice(sorted(MODELS))
    plan = {key: own.choice(OPTIONS[key]) for key in own.sample(sorted(OPTIONS), own.randint(0, 7))}
    for key, other in NEEDS.items():
        if key in plan and other not in plan:
            plan[other] = own.choice(OPTIONS[other])
    if 'checkpoint' not in plan and own.random() < 0.2:
        plan['blocks'] = own.choice(BLOCKS)
    if 'loss_scale' in plan and 'fp16' not in plan.get('dtype', ''):
        plan['dtype'] = own.choice(('fp16', 'autocast-fp16'))
    if plan.get('master_weights') and plan.get('dtype') not in ('bf16', 'fp16'):
        plan['dtype'] = own.choice(('bf16', 'fp16'))
    if name == 'llama':
        plan.pop('gelu', None)
    return name, {'version': 1, **plan}


# ---- what a text means ----

def keywords(text, name):
    """The keywords of a call in Python code, each as a value, or as a name."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call) and getattr(node.func, 'id', getattr(node.func, 'attr', '')) == name:
            return {word.arg: ast.literal_eval(word.value) if isinstance(word.value, (ast.Constant, ast.Dict)) else ast.unparse(word.value)
                    for word in node.keywords}
    return None


def of_python(text, notes):
    """What both texts in Python set in the model, and what is made elsewhere."""
    plan = {}
    if 'activation_function="gelu_pytorch_tanh"' in text:
        plan['gelu'] = 'fused'
    if 'model.config.use_cache = False\n' in text:
        plan['no_kv_cache'] = True
    for word, attention in (('eager', 'eager'), ('flash_attention_2', 'flash')):
        if f'model.set_attn_implementation("{word}")' in text:
            plan['attention'] = attention
    for word, dtype in (('bfloat16', 'bf16'), ('float16', 'fp16')):
        if f'model.to(torch.{word})' in text:
            plan['dtype'] = dtype
    return {**plan, **of_notes(notes)}


def of_notes(notes):
    """What the notes say is made in another place."""
    plan = {}
    for note in notes:
        if not note.startswith('not in this text: '):
            continue
        if found := re.search(r'(\d+) ranks, which is', note):
            plan['ranks'] = int(found[1])
        if found := re.search(r'peft.LoraConfig\(r=(\d+)(?:, lora_alpha=([0-9.]+))?(?:, lora_dropout=([0-9.]+))?\)', note):
            plan.update({key: value for key, value in zip(('lora', 'lora_alpha', 'lora_dropout'), (int(found[1]), found[2], found[3])) if value})
            if 'autocast_adapter_dtype=False' in note:
                plan['adapter_dtype'] = 'base'
            if 'target_modules is all-linear' in note:
                plan['lora_targets'] = 'all-linear'
        if found := re.search(r'bnb_4bit_quant_type="(\w+)", bnb_4bit_use_double_quant=(\w+)', note):
            plan['quantize'] = found[1]
            if found[2] == 'True':
                plan['double_quant'] = True
        if found := re.search(r'prepare_model_for_kbit_training\(model, use_gradient_checkpointing=(\w+)(.*?)\) prepares', note):
            if 'False' in found[2]:
                plan['checkpoint_form'] = 'non-reentrant'
            plan['kbit_training'] = 'checkpointing' if found[1] == 'True' else 'casts'
        if found := re.search(r'gradient_checkpointing_enable\(.*"use_reentrant": (\w+)', note):
            plan.update({'checkpoint': 'full'}, **({} if found[1] == 'True' else {'checkpoint_form': 'non-reentrant'}))
        if 'use_cache = False' in note:
            plan['no_kv_cache'] = True
        if 'gelu_pytorch_tanh' in note:
            plan['gelu'] = 'fused'
        if found := re.search(r'set_attn_implementation\("(\w+)"', note):
            plan['attention'] = {'eager': 'eager', 'flash_attention_2': 'flash'}[found[1]]
    return plan


def of_hf(text, notes):
    plan = of_python(text, notes)
    args = keywords(text, 'TrainingArguments')
    kind = {'adamw_torch': 'adamw', 'adamw_torch_fused': 'adamw-fused', 'sgd': 'sgd', 'adamw_bnb_8bit': 'adamw-8bit', 'lion_32bit': 'lion'}
    plan.update(accumulate=args['gradient_accumulation_steps'], optimizer=kind[args['optim']])
    if args['max_grad_norm']:
        plan['clip'] = f'{args["max_grad_norm"]:g}'
    for word in ('bf16', 'fp16'):
        if args.get(word):
            plan['dtype'] = f'autocast-{word}'
    if args.get('use_liger_kernel'):
        plan['loss'] = 'chunked:64'
    if args.get('gradient_checkpointing'):
        plan['checkpoint'] = 'full'
        if not args['gradient_checkpointing_kwargs']['use_reentrant']:
            plan['checkpoint_form'] = 'non-reentrant'
    if args.get('fsdp'):
        plan['zero'] = 3 if args['fsdp_config']['reshard_after_forward'] else 2
        assert (args['fsdp_config']['version'], args['fsdp_config']['auto_wrap_policy']) == (2, 'TRANSFORMER_BASED_WRAP'), text
        words = dict(re.findall(r'os.environ\["(\w+)"\] = "(\w+)"', text))
        assert words == {'FSDP_VERSION': '2', 'FSDP_AUTO_WRAP_POLICY': 'TRANSFORMER_BASED_WRAP',
                         'FSDP_RESHARD_AFTER_FORWARD': str(plan['zero'] == 3).lower()}, text
    return args['per_device_train_batch_size'], plan


KINDS = {'adamw_torch': 'adamw', 'adamw_torch_fused': 'adamw-fused', 'sgd': 'sgd', 'adamw_bnb_8bit': 'adamw-8bit', 'lion_32bit': 'lion'}
LINEARS = {'gpt2': ['c_attn'], 'llama': ['q_proj', 'v_proj']}
ALL = ['q_proj', 'k_proj', 'v_proj', 'o_proj', 'gate_proj', 'up_proj', 'down_proj']


def of_adapter(rank, alpha, dropout, targets):
    """The plan of a LoraConfig. Each text names alpha and layers also where the plan leaves them to peft."""
    plan = {'lora': int(rank)}
    if float(alpha) != 8:
        plan['lora_alpha'] = f'{float(alpha):g}'
    if float(dropout):
        plan['lora_dropout'] = f'{float(dropout):g}'
    if targets == 'all-linear' or list(targets) == ALL:
        plan['lora_targets'] = 'all-linear'
    else:
        assert list(targets) in LINEARS.values(), targets
    return plan


def of_trainer(args):
    """What TrainingArguments and SFTConfig say."""
    plan = {'accumulate': args['gradient_accumulation_steps'], 'optimizer': KINDS[args['optim']]}
    if args['max_grad_norm']:
        plan['clip'] = f'{args["max_grad_norm"]:g}'
    return plan


def of_peft(text, notes):
    args, loaded, low = keywords(text, 'TrainingArguments'), keywords(text, 'from_pretrained'), keywords(text, 'BitsAndBytesConfig')
    plan = {**of_python(text, notes), **of_trainer(args)}
    kind = loaded['dtype'].removeprefix('torch.')
    plan['dtype'] = {'float32': 'fp32', 'bfloat16': 'bf16', 'float16': 'fp16'}[kind]
    for word in ('bf16', 'fp16'):
        if args.get(word):
            plan['dtype'] = f'autocast-{word}'
    if 'attn_implementation' in loaded:
        plan['attention'] = {'eager': 'eager', 'flash_attention_2': 'flash'}[loaded['attn_implementation']]
    if args.get('use_liger_kernel'):
        plan['loss'] = 'chunked:64'
    if found := re.search(r'gradient_checkpointing_enable\(\n.*"use_reentrant": (\w+)', text):
        plan['checkpoint'] = 'full'
        assert ('enable_input_require_grads' in text) == (found[1] == 'True' and 'LoraConfig' in text), text
        if found[1] == 'False':
            plan['checkpoint_form'] = 'non-reentrant'
    if low:
        product = {'fp32': 'float32', 'bf16': 'bfloat16', 'fp16': 'float16'}[plan['dtype'].removeprefix('autocast-')]
        assert (low['load_in_4bit'], low['bnb_4bit_compute_dtype']) == (True, f'torch.{product}'), text
        plan['quantize'] = low['bnb_4bit_quant_type']
        if low['bnb_4bit_use_double_quant']:
            plan['double_quant'] = True
    if found := re.search(r'model = prepare_model_for_kbit_training\((.*?)\)\n', text, re.S):
        plan['kbit_training'] = 'casts' if 'use_gradient_checkpointing=False' in found[1] else 'checkpointing'
        if '"use_reentrant": False' in found[1]:
            plan['checkpoint_form'] = 'non-reentrant'
    if words := keywords(text, 'LoraConfig'):
        names = words['target_modules'] if words['target_modules'] == 'all-linear' else ast.literal_eval(words['target_modules'])
        plan.update(of_adapter(words['r'], words['lora_alpha'], words['lora_dropout'], names))
        if 'autocast_adapter_dtype=False' in text:
            plan['adapter_dtype'] = 'base'
    return args['per_device_train_batch_size'], plan


def of_axolotl(text, notes):
    """YAML of one level, with lists and mappings of one more."""
    config = {}
    for line in text.splitlines():
        if line.startswith('  - '):
            config.setdefault(last, []).append(line[4:])
        elif line.startswith('  '):
            key, _, value = line.strip().partition(': ')
            config.setdefault(last, {})[key] = value
        elif not line.startswith('#'):
            last, _, value = line.partition(':')
            if value:
                config[last] = value.strip()
    assert int(config['sequence_len']) == SEQUENCE, text
    plan = {**of_notes(notes), 'accumulate': int(config['gradient_accumulation_steps']), 'optimizer': KINDS[config['optimizer']]}
    if float(config['max_grad_norm']):
        plan['clip'] = f'{float(config["max_grad_norm"]):g}'
    for word, dtype in (('bfloat16', 'bf16'), ('float16', 'fp16')):
        if config.get(word) == 'true':
            plan['dtype'] = dtype
    plan['attention'] = {'eager': 'eager', 'flash_attention_2': 'flash', 'sdpa': 'sdpa'}[config['attn_implementation']]
    if config['gradient_checkpointing'] == 'true':
        plan['checkpoint'] = 'full'
        if config['gradient_checkpointing_kwargs']['use_reentrant'] == 'false':
            plan['checkpoint_form'] = 'non-reentrant'
    if config.get('liger_fused_linear_cross_entropy') == 'true':
        plan['loss'] = 'chunked:64'
    if config.get('overrides_of_model_config') == {'use_cache': 'false'}:
        plan['no_kv_cache'] = True
    if 'adapter' in config:
        assert (config['adapter'] == 'qlora') == (config.get('load_in_4bit') == 'true'), text
        names = 'all-linear' if config.get('lora_target_linear') == 'true' else config['lora_target_modules']
        plan.update(of_adapter(config['lora_r'], config['lora_alpha'], config['lora_dropout'], names))
        if config.get('peft_autocast_adapter_dtype') == 'false':
            plan['adapter_dtype'] = 'base'
        if low := config.get('bnb_config_kwargs'):
            plan['quantize'] = low['bnb_4bit_quant_type']
            if low['bnb_4bit_use_double_quant'] == 'true':
                plan['double_quant'] = True
    return int(config['micro_batch_size']), plan


def of_unsloth(text, notes):
    args, loaded, words = keywords(text, 'SFTConfig'), keywords(text, 'from_pretrained'), keywords(text, 'get_peft_model')
    plan = {**of_python(text, notes), **of_trainer(args)}
    assert (loaded['max_seq_length'], args['max_length']) == (SEQUENCE, SEQUENCE), text
    plan['dtype'] = {'torch.float32': 'fp32', 'torch.bfloat16': 'bf16', 'torch.float16': 'fp16'}[loaded['dtype']]
    assert loaded['full_finetuning'] == (words is None), text
    if loaded['use_gradient_checkpointing']:
        plan['checkpoint'] = 'full'
    if loaded['load_in_4bit']:
        plan.update(quantize='nf4', double_quant=True)
    if words:
        assert words['use_gradient_checkpointing'] == loaded['use_gradient_checkpointing'], text
        plan.update(of_adapter(words['r'], words['lora_alpha'], words['lora_dropout'], ast.literal_eval(words['target_modules'])))
    return args['per_device_train_batch_size'], plan


def of_fsdp2(text, notes):
    plan, batch = of_python(text, notes), BATCH
    if found := re.search(r'# each step: (\d+) backward passes of (\d+) sequences', text):
        plan['accumulate'], batch = int(found[1]), int(found[2])
    name, words = re.search(r'optimizer = (\S+?)\(model.parameters\(\)(.*)\)\n', text).groups()
    plan['optimizer'] = {
        'torch.optim.AdamW': 'adamw-fused' if 'fused=True' in words else 'adamw-loop' if 'foreach=False' in words else
        'adamw-foreach' if 'foreach=True' in words else 'adamw',
        'torch.optim.SGD': 'sgd-momentum' if 'momentum=0.9' in words else 'sgd', 'torch.optim.Adafactor': 'adafactor'}[name]
    if found := re.search(r'clip_grad_norm_\(model.parameters\(\), ([0-9.]+)\)', text):
        plan['clip'] = found[1]
    if found := re.search(r'param_dtype=torch.(\w+), reduce_dtype=torch.float32', text):
        plan['dtype'] = {'bfloat16': 'autocast-bf16', 'float16': 'autocast-fp16'}[found[1]]
    for word, option in (('init_scale', 'loss_scale'), ('growth_interval', 'loss_scale_window')):
        if found := re.search(rf'GradScaler\(.*{word}=(\d+)', text):
            plan[option] = int(found[1])
    ranges = [(int(first), int(end)) for first, end in re.findall(r'again.update\(range\((\d+), (\d+)\)\)', text)]
    if 'range(len(blocks))' in text:
        plan['checkpoint'] = 'full'
    if ranges:
        plan['blocks'] = [{'first': first, 'last': end - 1, 'checkpoint': 'full'} for first, end in ranges]
    if 'CheckpointImpl.NO_REENTRANT' in text:
        plan['checkpoint_form'] = 'non-reentrant'
    if 'checkpoint_impl' in text:
        plan['no_kv_cache'] = True
    away = ['optimizer,gradients,parameters'] * ('CPUOffloadPolicy()' in text) + ['activations'] * ('save_on_cpu' in text)
    if away:
        plan['offload'] = ','.join(away)
    if found := re.search(r'"reshard_after_forward"\] = (\w+)', text):
        plan['zero'] = 3 if found[1] == 'True' else 2
    return batch, plan


def of_torchtitan(text, notes):
    config, plan = tomllib.loads(text), of_notes(notes)
    training, kind = config['training'], config['optimizer']['implementation']
    ranks = plan.get('ranks', 1)
    assert training['seq_len'] == SEQUENCE, text
    plan.update(accumulate=training['global_batch_size'] // ranks // training['local_batch_size'],
                optimizer={'fused': 'adamw-fused', 'foreach': 'adamw', 'for-loop': 'adamw-loop'}[kind], no_kv_cache=True)
    if training['max_norm'] < float('inf'):
        plan['clip'] = f'{training["max_norm"]:g}'
    kinds = {('float32', 'float32'): None, ('float32', 'bfloat16'): 'autocast-bf16', ('bfloat16', 'bfloat16'): 'bf16'}
    if dtype := kinds[training['dtype'], training['mixed_precision_param']]:
        plan['dtype'] = dtype
    if training.get('enable_cpu_offload'):
        plan['offload'] = 'optimizer,gradients,parameters'
    if config['optimizer'].get('early_step_in_backward'):
        plan['optimizer_in_backward'] = True
    if config['activation_checkpoint']['mode'] == 'full':
        plan.update(checkpoint='full', checkpoint_form='non-reentrant')
    if spread := config.get('parallelism'):
        assert spread['data_parallel_replicate_degree'] * spread['data_parallel_shard_degree'] == ranks, text
        if spread['data_parallel_shard_degree'] > 1:
            plan['zero'] = {'always': 3, 'never': 2}[spread['fsdp_reshard_after_forward']]
    return training['local_batch_size'], plan


def of_megatron(text, notes):
    args = {}
    for line in text.splitlines():
        if not line.startswith('#'):
            word, _, value = line.partition(' ')
            assert word.startswith('--'), text
            args[word[2:]] = value
    plan = of_notes(notes)
    batch, ranks = int(args['micro-batch-size']), plan.get('ranks', 1)
    assert int(args['seq-length']) == SEQUENCE, text
    plan.update(accumulate=int(args['global-batch-size']) // ranks // batch, no_kv_cache=True, gelu='fused',
                optimizer='adamw-fused' if args['optimizer'] == 'adam' else 'sgd' if args['sgd-momentum'] == '0.0' else 'sgd-momentum')
    if args['clip-grad'] != '0.0':
        plan['clip'] = args['clip-grad']
    for word in ('bf16', 'fp16'):
        if word in args:
            plan.update(dtype=word, master_weights=True)
    if args.get('fp8-format') == 'hybrid':
        plan['fp8'] = 'te'
    if 'initial-loss-scale' in args:
        plan['loss_scale'] = int(args['initial-loss-scale'])
    if 'loss-scale-window' in args:
        plan['loss_scale_window'] = int(args['loss-scale-window'])
    count = int(args.get('recompute-num-layers', 0))
    if args.get('recompute-granularity') == 'selective':
        plan['checkpoint'] = 'selective'
    elif args.get('recompute-method') == 'block':
        plan['blocks'] = [{'first': 0, 'last': count - 1, 'checkpoint': 'full'}]
    elif args.get('recompute-method') == 'uniform':
        plan['checkpoint'] = 'full' if count == 1 else f'every:{count}'
    if 'attention-backend' in args:
        plan['attention'] = {'unfused': 'eager', 'flash': 'flash'}[args['attention-backend']]
    if 'optimizer-cpu-offload' in args:
        plan['offload'] = 'optimizer'
    if ranks > 1:
        plan['zero'] = ({'optim_grads': 2, 'optim_grads_params': 3}[args['data-parallel-sharding-strategy']]
                        if 'use-megatron-fsdp' in args else int('use-distributed-optimizer' in args))
        if 'overlap-grad-reduce' not in args:
            plan['no_overlap'] = True
        if 'ddp-bucket-size' in args:
            plan['bucket'] = int(args['ddp-bucket-size'])
    return batch, plan


READERS = {'hf': of_hf, 'peft': of_peft, 'axolotl': of_axolotl, 'unsloth': of_unsloth, 'fsdp2': of_fsdp2, 'torchtitan': of_torchtitan, 'megatron': of_megatron}


def notes_of(one):
    """The notes of an answer, without what starts a comment."""
    if one['notes'] is not None:
        return one['notes'].splitlines()
    return [line[2:] for line in one['text'].splitlines() if line.startswith('# ')]
