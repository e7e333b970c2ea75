#!/usr/bin/env python3
"""frameworks.py [--check] [NAME...]: unchanged code of litgpt, peft, torchtitan, torchtune and trl, against what they took on real cards.

Each run is traced from the framework's own model, adapters, checkpointing, sharding and trainer, on fake tensors and the fake process group, and
simulated. Its peak must be within TOLERANCE of the figure that was published, or within the run's own bound where docs/published.md explains the
difference. Runs without a figure must be traced, or refused with the reason. Runs of frameworks that aren't installed are skipped. Each names the
versions that can run it, as the code of that time is what was measured:

    python -m venv REAL && REAL/bin/pip install torch==2.9.1 transformers==4.57.1 peft==0.21.2 litgpt==0.5.13 lightning torchtitan==0.1.0
    REAL/bin/pip install . && REAL/bin/python tests/torch/frameworks.py litgpt peft torchtitan-8b

A NAME stands for all runs that begin with it. Some traces take minutes. torchtune 0.6 imports what torchao removed later: it needs torchao==0.14.1.
"""
import argparse
import contextlib
import dataclasses
import functools
import importlib.metadata
import sys
import tempfile
import typing
from pathlib import Path

import torch

import tessera
from tessera import _script, _trace

TOLERANCE = 0.005
STEPS = 4  # enough for a trace, which ends the program itself
GIB = 1 << 30
EXPANDABLE = 'expandable_segments:True'


@dataclasses.dataclass
class Run:
    """What is run, what was measured (GiB), and how a trace of it is simulated."""
    framework: str
    versions: typing.Tuple[str, ...]  # that it is written for
    program: typing.Callable[[], typing.Callable[[], None]]
    measured: typing.Optional[float]
    what: str = 'allocated'
    gpu: str = 'a100'
    ranks: typing.Optional[int] = None
    value: typing.Optional[float] = None
    routing: typing.Optional[str] = None
    settings: typing.Optional[str] = None
    steps: int = 1
    loads: int = 0  # bytes of weights that transformers loads
    tolerance: float = TOLERANCE
    refused: str = ''  # what the refusal must contain


def tokens(batch, rows):
    return torch.zeros(batch, rows, dtype=torch.long)


# ---- litgpt: finetune/lora.py ----

def litgpt(name, batch, rows, precision='bf16-true'):
    """The loop of litgpt's fit(), with tokens that are all the same instead of Alpaca's."""
    import lightning
    from litgpt import lora
    from litgpt.utils import chunked_cross_entropy, instantiate_torch_optimizer

    def program():
        fabric = lightning.Fabric(devices=1, accelerator='cuda', precision=precision)
        config = lora.Config.from_name(name, lora_r=8, lora_alpha=16, lora_dropout=0.05, lora_query=True, lora_value=True)
        with fabric.init_module(empty_init=False):
            model = lora.GPT(config)
        lora.mark_only_lora_as_trainable(model)
        model = fabric.setup_module(model)
        optimizer = fabric.setup_optimizers(instantiate_torch_optimizer('AdamW', model.parameters()))
        model.max_seq_length = rows
        for _ in range(STEPS):
            ids, targets = fabric.to_device((tokens(batch, rows), tokens(batch, rows)))
            logits = model(ids, lm_head_chunk_size=128)
            logits[-1] = logits[-1][..., :-1, :]
            fabric.backward(chunked_cross_entropy(logits, targets[..., 1:]) / 128)
            optimizer.step()
            optimizer.zero_grad()
    return program


# ---- peft: method_comparison/MetaMathQA/run.py ----

QUERIES = "target_modules=['q_proj', 'v_proj']"
# By name: the adapter, and GiB reserved at the most, over the whole run on an L40S (January 2026: PyTorch 2.9.0, transformers 4.57.1).
ADAPTERS = {
    'lora-32': (f'LoraConfig(r=32, lora_alpha=64, {QUERIES})', 20.756),
    'lora-64': (f'LoraConfig(r=64, lora_alpha=64, {QUERIES})', 21.006),
    'road': (f"RoadConfig(variant='road_2', group_size=64, {QUERIES})", 21.240),
    'gralora': (f'GraloraConfig(r=32, alpha=64, gralora_k=2, {QUERIES})', 20.775),
    'delora': (f'DeloraConfig(r=32, delora_lambda=15, {QUERIES})', 20.818),
    'loha': (f'LoHaConfig(r=32, alpha=64, {QUERIES})', 22.266),
    'lokr': (f'LoKrConfig(r=32, alpha=64, decompose_factor=-1, {QUERIES})', 21.953),
    'ia3': ("IA3Config(target_modules=['down_proj', 'k_proj', 'v_proj'], feedforward_modules=['down_proj'])", 21.645),
}
LLAMA_3B = {'hidden_size': 3072, 'intermediate_size': 8192, 'num_hidden_layers': 28, 'num_attention_heads': 24, 'num_key_value_heads': 8,
            'head_dim': 128, 'vocab_size': 128256, 'tie_word_embeddings': True}
WEIGHTS = 2 * 3212749824  # its bytes in bf16


def adapted(adapter, batch=4, rows=704):
    """The longest batch of the comparison. Samples differ in length, so attention has a mask. Outputs are released when there are new ones."""
    import peft
    import transformers as hf

    def program():
        with torch.device('cuda'):
            base = hf.LlamaForCausalLM._from_config(hf.LlamaConfig(**LLAMA_3B), dtype=torch.bfloat16)
            model = peft.get_peft_model(base, eval(adapter, vars(peft))).train()
        optimizer = torch.optim.AdamW([param for param in model.parameters() if param.requires_grad])
        for _ in range(STEPS):
            optimizer.zero_grad()
            ids, mask = tokens(batch, rows).to('cuda'), tokens(batch, rows).to('cuda')
            outputs = model(input_ids=ids, attention_mask=mask, labels=ids.clone(), num_items_in_batch=batch * rows)
            outputs.loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
    return program


def loaded(document, size):
    """The same steps with weights that transformers has loaded: it reserves one block for all of them (caching_allocator_warmup), which they divide."""
    slots, static, (first, *rest) = document['slots'], document['static'], document['instructions']
    room = len(slots['bytes'])
    loading = [['new', room, 0], ['drop', room], *(['once', slot, 0] for slot in range(static))]
    return {**{key: document[key] for key in ('schema', 'torch', 'gpu', 'parameters', 'optimizer', 'phases', 'texts', 'frames', 'stacks')},
            'static': 0, 'slots': {**slots, 'bytes': [*slots['bytes'], size], 'category': [*slots['category'], 'parameter']},
            'instructions': [first, *loading, *rest],
            'kernels': [[begin + len(loading), end + len(loading), *sizes] for begin, end, *sizes in document['kernels']]}


# ---- torchtitan ----

class Batches:
    """A data loader."""

    def __init__(self, batch, rows):
        self.batch, self.rows = batch, rows

    def __iter__(self):
        while True:
            yield {'input': tokens(self.batch, self.rows)}, tokens(self.batch, self.rows)


class Tokenizer:
    n_words, bos_id, eos_id = 128256, 0, 1


def titan(name, *words):
    """The Trainer of torchtitan up to 0.2, with its own configuration, weights and loop. Data and tokenizer are replaced, as its TrainSpec is made for.
    In 0.2, attention may choose cuDNN's kernel, which a trace refuses: with `flash`, it may not."""
    flash = 'flash' in words
    words = ['--model.name', name, *(word for word in words if word != 'flash')]
    try:
        from torchtitan.config import ConfigManager
    except ImportError:  # 0.1
        from torchtitan.config_manager import ConfigManager
    from torchtitan import train
    from torchtitan.models import attention
    from torchtitan.protocols import train_spec

    def program():
        config = ConfigManager().parse_args(words)
        known = getattr(train_spec, '_extra_train_specs', None)
        known = train_spec._train_specs if known is None else known
        before = dict(known)
        known[name] = dataclasses.replace(
            train_spec.get_train_spec(name), build_tokenizer_fn=lambda *_: Tokenizer(),
            build_dataloader_fn=lambda **_: Batches(config.training.local_batch_size, config.training.seq_len))
        kernels = getattr(attention, 'ScaledDotProductAttentionWrapper', None)
        try:
            with contextlib.ExitStack() as stack:
                if flash and kernels:
                    stack.enter_context(without_cudnn(kernels))
                train.Trainer(config).train()
        finally:
            known.clear()
            known.update(before)
    return program


@contextlib.contextmanager
def without_cudnn(kernels):
    before, backend = kernels.sdpa_backends, torch.nn.attention.SDPBackend
    kernels.sdpa_backends = [backend.FLASH_ATTENTION, backend.EFFICIENT_ATTENTION]
    try:
        yield
    finally:
        kernels.sdpa_backends = before


def llama_8b(*words):
    return lambda: titan('llama3', '--model.flavor', '8B', '--training.local_batch_size', '1', '--training.seq_len', '8192',
                         '--activation_checkpoint.mode', 'selective', '--activation_checkpoint.selective_ac_option', 'op', *words)


def qwen_32b(batch):
    return lambda: titan('qwen3', '--model.flavor', '32B', '--training.local_batch_size', str(batch), '--training.seq_len', '4096',
                         '--parallelism.tensor_parallel_degree', '8', '--activation_checkpoint.mode', 'full', 'flash')


def small(name, flavor, *words):
    return lambda: titan(name, '--model.flavor', flavor, '--training.local_batch_size', '2', '--training.seq_len', '512', *words)


class Built:
    """A part of a configuration that exists already."""

    def __init__(self, part):
        self.part = part

    def build(self, **_):
        return self.part


def llama_of(flavor, batch, rows):
    """The Trainer of torchtitan 0.3, whose configuration is code: with the loss and the attention that it had before, and without CUDA graphs."""
    from torchtitan.components.loss import CrossEntropyLoss
    from torchtitan.models.common.attention import FlexAttention, ScaledDotProductAttention
    from torchtitan.models.llama3 import config_registry, model_registry

    def program():
        config = config_registry.llama3_8b()
        config.model_spec, config.loss = model_registry(flavor), CrossEntropyLoss.Config()
        for _, _, attention, name in config.model_spec.traverse(FlexAttention.Config):
            setattr(attention, name, ScaledDotProductAttention.Config())
        config.dataloader, config.tokenizer = Built(Batches(batch, rows)), Built(Tokenizer())
        config.training.local_batch_size, config.training.seq_len, config.training.disable_cuda_graphs = batch, rows, True
        config.metrics.enable_tensorboard = config.profiler.enable_profiling = config.checkpoint.enable = config.validator.enable = False
        with without_cudnn(ScaledDotProductAttention):
            config.build().train()
    return program


# ---- torchtune: recipes/full_finetune_single_device.py ----

def partitioned(function, *like):
    """A function as torch.compile has it before it generates code: divided into forward and backward by PyTorch's partitioner, which decides what is
    kept between them, and run op by op. It is divided for tensors like these, on fake tensors of its own, so that the work is not traced."""
    from torch._dynamo.backends.debugging import boxed_nop
    from torch._functorch import aot_autograd, partitioners
    from torch._inductor.decomposition import select_decomp_table
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.utils import _python_dispatch, _pytree

    divided = aot_autograd.aot_function(function, boxed_nop, boxed_nop, partitioners.min_cut_rematerialization_partition,
                                        decompositions=select_decomp_table())
    with _python_dispatch._disable_current_modes(), FakeTensorMode():
        divided(*_pytree.tree_map(lambda of: torch.empty(of.shape, dtype=of.dtype, device='cuda', requires_grad=of.requires_grad), like))
    return divided


def torchtune(chunks, is_checkpointed):
    """Llama 3.2 3B in bf16, 2 x 4,096 packed tokens, with causal attention instead of a mask of samples. The recipe compiles each layer and the loss of
    a chunk, which are partitioned here."""
    from torchtune import modules, training
    from torchtune.models.llama3_2 import llama3_2_3b
    from torchtune.modules.loss import CEWithChunkedOutputLoss

    def state(layer):
        return {**dict(layer.named_parameters()), **dict(layer.named_buffers())}

    def program():
        with training.set_default_dtype(torch.bfloat16), torch.device('cuda'):
            model = llama3_2_3b()
        first, rows = model.layers[0], 2 * 4096 // chunks
        hidden, logits = (torch.empty(shape, dtype=torch.bfloat16, device='meta', requires_grad=True) for shape in ((2, 4096, 3072), (rows, 128256)))
        run = partitioned(lambda tensors, x: torch.func.functional_call(first, tensors, (x,)), state(first), hidden)
        for layer in model.layers:
            layer.forward = lambda x, layer=layer, **_: run(state(layer), x)
        if is_checkpointed:
            training.set_activation_checkpointing(model, auto_wrap_policy={modules.TransformerSelfAttentionLayer})
        loss_of = CEWithChunkedOutputLoss(num_output_chunks=chunks)
        loss_of.compute_cross_entropy = partitioned(loss_of.compute_cross_entropy, logits, torch.empty(rows, dtype=torch.long, device='meta'))
        model.set_num_output_chunks(loss_of.num_output_chunks)
        optimizer = torch.optim.AdamW(model.parameters(), lr=2e-5, fused=True)
        for _ in range(STEPS):
            ids = tokens(2, 4096).to('cuda')
            logits = model(ids)
            labels = torch.hstack((ids[..., 1:], torch.full((2, 1), -100, device='cuda')))
            loss = loss_of(logits, labels)
            del logits
            loss.backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
    return program


# ---- trl ----

def trl():
    """SFTTrainer with its defaults: bf16 autocast, gradient checkpointing and AdamW. Its samples are tokenized already and have the same length."""
    import datasets
    import tokenizers
    import transformers as hf
    from trl import SFTConfig, SFTTrainer

    def program():
        words = tokenizers.Tokenizer(tokenizers.models.WordLevel({'<pad>': 0, '<eos>': 1}, unk_token='<eos>'))
        config = hf.Qwen2Config(hidden_size=896, intermediate_size=4864, num_hidden_layers=24, num_attention_heads=14, num_key_value_heads=2,
                                vocab_size=151936, tie_word_embeddings=True, eos_token_id=1, pad_token_id=0)
        with tempfile.TemporaryDirectory() as folder:
            SFTTrainer(hf.Qwen2ForCausalLM(config), SFTConfig(folder, per_device_train_batch_size=4, max_steps=STEPS, save_strategy='no', report_to='none'),
                       train_dataset=datasets.Dataset.from_dict({'input_ids': [[1] * 1024] * 64}),
                       processing_class=hf.PreTrainedTokenizerFast(tokenizer_object=words, pad_token='<pad>', eos_token='<eos>')).train()
    return program


# ---- The runs ----

LITGPT = ('litgpt', ('0.5',))
OLD_TITAN = {'what': 'reserved', 'gpu': 'h100', 'ranks': 8, 'value': 1.0, 'settings': EXPANDABLE, 'steps': 2}
TITAN = {**OLD_TITAN, 'ranks': 32}
PEFT = {'what': 'reserved', 'gpu': 'l4', 'loads': WEIGHTS, 'value': 0.0}  # an L40S has the same architecture; the mask is not all ones
RUNS = {
    'litgpt-stablelm-3b-1': Run(*LITGPT, lambda: litgpt('stablelm-base-alpha-3b', 1, 1034), 9.025),
    'litgpt-stablelm-3b-2': Run(*LITGPT, lambda: litgpt('stablelm-base-alpha-3b', 2, 1034), 11.269),
    'litgpt-stablelm-3b-4': Run(*LITGPT, lambda: litgpt('stablelm-base-alpha-3b', 4, 1034), 15.758),
    'litgpt-stablelm-3b-autocast': Run(*LITGPT, lambda: litgpt('stablelm-base-alpha-3b', 1, 1034, 'bf16-mixed'), 25.071),
    'litgpt-phi-1.5': Run(*LITGPT, lambda: litgpt('phi-1_5', 1, 1044), 4.489),
    'litgpt-llama-2-13b': Run(*LITGPT, lambda: litgpt('Llama-2-13b-hf', 1, 1304), 35.502),
    **{f'peft-{name}': Run('peft', ('0.',), functools.partial(adapted, adapter), measured, **PEFT, tolerance=0.01 if name in ('ia3', 'lokr', 'road') else TOLERANCE)
       for name, (adapter, measured) in ADAPTERS.items()},
    'torchtitan-8b-first': Run('torchtitan', ('0.1.',), llama_8b(), 42.08, **{**OLD_TITAN, 'steps': 1}),
    'torchtitan-8b': Run('torchtitan', ('0.1.',), llama_8b(), 49.59, **OLD_TITAN),
    'torchtitan-8b-always': Run('torchtitan', ('0.1.',), llama_8b('--parallelism.fsdp_reshard_after_forward', 'always'), 49.41, **OLD_TITAN),
    'torchtitan-8b-never': Run('torchtitan', ('0.1.',), llama_8b('--parallelism.fsdp_reshard_after_forward', 'never'), 62.18, **OLD_TITAN),
    'torchtitan-qwen3-32b': Run('torchtitan', ('0.2.',), qwen_32b(16), 43.45, **TITAN),
    'torchtitan-qwen3-32b-32': Run('torchtitan', ('0.2.',), qwen_32b(32), 70.79, **TITAN),
    'torchtitan-llama3-tp': Run('torchtitan', ('0.2.',), small('llama3', 'debugmodel', '--parallelism.tensor_parallel_degree', '2', 'flash'), None,
                                **{**TITAN, 'ranks': 8}),
    'torchtitan-cudnn': Run('torchtitan', ('0.2.',), small('llama3', 'debugmodel'), None, **TITAN, refused='attention with cuDNN'),
    'torchtitan-qwen3-moe-ep': Run('torchtitan', ('0.2.',), small('qwen3', 'debugmodel_moe', '--parallelism.expert_parallel_degree', '4', 'flash'),
                                   None, **{**TITAN, 'ranks': 8, 'routing': 'balanced'}),
    'torchtitan-deepseek-ep': Run('torchtitan', ('0.2.',), small('deepseek_v3', 'debugmodel', '--parallelism.expert_parallel_degree', '4', 'flash'),
                                  None, **{**TITAN, 'ranks': 8, 'routing': 'balanced'}),
    'torchtitan-llama3-0.3': Run('torchtitan', ('0.3.',), lambda: llama_of('debugmodel', 2, 512), None, **OLD_TITAN),
    'torchtune-checkpointed': Run('torchtune', ('0.6',), lambda: torchtune(8, True), 24.9, 'active', steps=2, tolerance=0.025),
    'trl-sft': Run('trl', ('1.',), trl, None, what='reserved', value=1.0, steps=2),
    'torchtune-chunked': Run('torchtune', ('0.6',), lambda: torchtune(8, False), 42.9, 'active', steps=2),
}


def version_of(framework):
    try:
        return importlib.metadata.version(framework)
    except importlib.metadata.PackageNotFoundError:
        return ''


def predicted(run, document):
    with tempfile.TemporaryDirectory() as work:
        path = Path(work) / 'step.graph'
        _trace.write(loaded(document, run.loads) if run.loads else document, path)
        device = tessera.simulate(str(path), steps=run.steps, settings=run.settings, gpu=run.gpu)['devices'][0]
    return device['peak_reserved_bytes'] if run.what == 'reserved' else device['peak'][f'{run.what}_bytes']


def traced(run):
    """The step graph, or the message of a refusal. The program is not called by a name that ConfigManager would read."""
    words, sys.argv = sys.argv, sys.argv[:1]
    try:
        return tessera.trace(run.program(), gpu=run.gpu, ranks=run.ranks, value=run.value, routing=run.routing)
    except tessera.TraceError as error:
        return str(error)
    finally:
        sys.argv = words


def outcome(name, run, version):
    """Whether it is right, and a line about it."""
    document = traced(run)
    if isinstance(document, str):
        return bool(run.refused) and run.refused in document, f'{name} ({version}): refused: {document}'
    found = predicted(run, document) / GIB
    if run.measured is None:
        return not run.refused, f'{name} ({version}): {found:.3f} GiB'
    error = found / run.measured - 1
    return abs(error) <= run.tolerance, f'{name} ({version}): {found:.3f} GiB {run.what}, measured {run.measured:.3f} ({100 * error:+.2f} %)'


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--check', action='store_true', help='accepted for run.py: nothing is written in any case')
    parser.add_argument('names', nargs='*', metavar='NAME')
    given = parser.parse_args()
    _trace._optimizers = _script._optimizers = lambda *_: []  # other forms of the optimizers, which only take time here
    wrong = 0
    for name, run in RUNS.items():
        if given.names and not any(name.startswith(word) for word in given.names):
            continue
        version = version_of(run.framework)
        if not version.startswith(run.versions):
            print(f'ok - {name} # SKIP {run.framework} {" or ".join(run.versions)}* is not installed', flush=True)
            continue
        is_right, line = outcome(name, run, f'{run.framework} {version}, torch {torch.__version__}')
        wrong += not is_right
        print(f'{"ok" if is_right else "not ok"} - {line}', flush=True)
    return wrong > 0


if __name__ == '__main__':
    sys.exit(main())
