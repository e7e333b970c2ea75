"""The training step of a model of transformers, from nothing but its config.json: for `tessera simulate config.json` and `tessera trace`.

    batch = {...}                       # by the model's task: tokens and labels, pixels, a spectrogram
    optimizer.zero_grad()
    outputs = model(**batch)            # `outputs` and `batch` live until the next ones exist
    outputs.loss.backward()
    optimizer.step()

This is the program that the built-in models run, too (docs/simulate.md), so their options mean the same here. The model is made on the device 'meta'
and traced on fake tensors: no weight is read or allocated.

A description is data. transformers' own class of the "model_type" is made of it; code that it names (auto_map) is not run, kernels and weights
that it names are not loaded, and guarded() refuses whatever would reach for the network, for another program or for a file to write.
"""
import contextlib
import inspect
import json
import os
import re
import sys
import tempfile
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Tuple

from ._fake_cuda import TraceError

_MOST_PARTS, _MOST_SIZE = 4096, 1 << 24
_SIZES = ('hidden_size', 'intermediate_size', 'vocab_size', 'd_model', 'd_ff', 'n_embd', 'moe_intermediate_size', 'head_dim')
_MOST_CONFIG_BYTES = 1 << 20
_MEMORY_BYTES = 16 << 30  # of this process, for what Python needs to describe a model; its tensors take none
# Keys at any depth that would load code, kernels or weights, or that an option decides.
_DROPPED = ('auto_map', 'attn_implementation', '_attn_implementation', '_attn_implementation_internal', 'quantization_config', 'dtype', 'torch_dtype',
            'trust_remote_code', '_name_or_path', 'name_or_path', 'use_pretrained_backbone', 'device_map')


class Refusal(TraceError):
    """A description or an option that cannot be traced."""


class Options:
    """The options of the run, by the names of `simulate`; how messages spell them depends on who asks."""

    def __init__(self, given: Mapping[str, Any], has_dashes: bool) -> None:
        self._given, self._has_dashes = dict(given), has_dashes

    def has(self, name: str) -> bool:
        return self._given.get(name) is not None

    def text(self, name: str, default: str) -> str:
        return str(self._given[name]) if self.has(name) else default

    def flag(self, name: str) -> bool:
        return self._given.get(name) in (True, 1, 'true')

    def count(self, name: str, default: int) -> int:
        if not self.has(name):
            return default
        number = int(self._given[name])
        if number < 1:
            raise Refusal(f'{self.spelled(name)} must be at least 1')
        return number

    def routing(self) -> Any:
        return self._given.get('routing') or 'balanced'

    def spelled(self, name: str) -> str:
        return f'--{name.replace("_", "-")}' if self._has_dashes else name

    def refuse(self, name: str, why: str) -> Refusal:
        value = self._given.get(name)
        shown = '' if value is True else f' {value}' if self._has_dashes else f'={value!r}'
        return Refusal(f'{self.spelled(name)}{shown}: {why}')

    def check(self) -> None:
        """Refuse what a trace of a model from its description cannot honour."""
        for name, value in self._given.items():
            if value is None or value is False or name in _HONOURED or (name, value) in _DEFAULTS:
                continue
            raise self.refuse(name, _REASONS.get(name, 'only the built-in models have this option; to trace a program that does it, write it as a '
                                                       f'script: {"tessera trace SCRIPT" if self._has_dashes else "tessera.trace"}'))


_HONOURED = ('batch', 'seq', 'accumulate', 'micro_batch', 'optimizer', 'optimizer_in_backward', 'clip', 'dtype', 'attention', 'checkpoint',
             'checkpoint_form', 'no_kv_cache', 'padding', 'routing', 'eval_steps', 'eval_batch', 'loss_scale', 'loss_scale_window', 'blocks', 'modules', 'version')
_DEFAULTS = (('accumulation', 'auto'), ('backward', 'each'), ('gelu', 'eager'), ('loss', 'full'), ('zero', 0), ('ranks', 1), ('in_place', ''))
_REASONS = {
    'gelu': "the model's class decides how its activation runs; set it in the config (hidden_act)",
    'ranks': 'one rank of several is traced from a script that starts them: tessera trace --ranks N SCRIPT',
    'zero': 'one rank of several is traced from a script that starts them: tessera trace --ranks N SCRIPT',
    'offload': 'choose modules with --offload-modules instead',
}


# ---- The model ----

def _scrubbed(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _scrubbed(item) for key, item in value.items() if key not in _DROPPED}
    return [_scrubbed(item) for item in value] if isinstance(value, list) else value


def _check_sizes(value: Any) -> None:
    """Layers and experts are modules, whose number bounds the work. The bounds are those of the built-in models."""
    for key, item in value.items() if isinstance(value, dict) else ():
        if isinstance(item, dict):
            _check_sizes(item)
        if isinstance(item, int) and ('layer' in key or 'expert' in key) and item > _MOST_PARTS:
            raise Refusal(f'"{key}" is beyond {_MOST_PARTS}')
        if key in _SIZES and item is not None and not isinstance(item, list) \
                and not (isinstance(item, int) and 1 <= item <= _MOST_SIZE):
            raise Refusal(f'"{key}" is not a size')


def described(text: str) -> Dict[str, Any]:
    """The description, without the keys that decide nothing here."""
    if len(text) > _MOST_CONFIG_BYTES:
        raise Refusal('longer than 1 MiB, which no description of a model is')
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Refusal(f'not JSON: {error}') from None
    if not isinstance(found, dict) or not isinstance(found.get('model_type'), str):
        raise Refusal('no description of a model: "model_type" names none')
    clean: Dict[str, Any] = _scrubbed(found)
    _check_sizes(clean)
    if 'auto_map' in found and not _is_known(clean['model_type']):
        raise Refusal(f'its model_type "{clean["model_type"]}" has its own code (auto_map), which is not run: write its step as a script, '
                      'tessera trace SCRIPT')
    return clean


def _is_known(kind: str) -> bool:
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES
    return kind in CONFIG_MAPPING_NAMES


def _config_of(clean: Dict[str, Any]) -> Any:
    import transformers
    kind = clean['model_type']
    if not _is_known(kind):
        raise Refusal(f'transformers {transformers.__version__} has no model_type "{kind[:60]}"; a newer one may, or write its step as a script: '
                      'tessera trace SCRIPT')
    given = {key: value for key, value in clean.items() if key != 'model_type'}
    with _building(f'a {kind[:60]} config'):
        return transformers.AutoConfig.for_model(kind, **given)


def _class_of(config: Any) -> Any:
    """The class that `architectures` names, or the one that is trained for the model's task."""
    import transformers
    from transformers.models.auto import modeling_auto as auto
    kind = config.model_type
    names = [name for name in config.architectures or [] if isinstance(name, str)]
    for name in names:
        found = getattr(transformers, name, None) if name.isidentifier() else None
        if isinstance(found, type) and issubclass(found, transformers.PreTrainedModel):
            return found
    if names:
        raise Refusal(f'transformers {transformers.__version__} has no model "{names[0][:60]}" ("architectures")')
    sequences = (auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES, auto.MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING_NAMES) \
        if getattr(config, 'is_encoder_decoder', False) else ()
    masked = () if getattr(config, 'is_decoder', False) else (auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES,)
    for mapping in (*sequences, *masked, auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES, auto.MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES,
                    auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES):
        if kind in mapping:
            found = mapping[kind]
            return getattr(transformers, found if isinstance(found, str) else found[0])
    raise Refusal(f'transformers has no model of "{kind}" whose training is known here: name its class in "architectures", or write its step as a '
                  'script, tessera trace SCRIPT')


@contextlib.contextmanager
def _building(what: str) -> Iterator[None]:
    """Turns whatever a class of transformers raises about wrong values into one sentence."""
    try:
        yield
    except (TraceError, KeyboardInterrupt):
        raise
    except MemoryError:
        raise Refusal(f'{what} needs more than {_MEMORY_BYTES >> 30} GiB in Python alone') from None
    except Exception as error:
        lines = str(error).strip().splitlines() or ['']
        raise Refusal(f'transformers cannot make {what} of it: {type(error).__name__}: {lines[0][:200]}') from error


_TYPES = {'fp32': 'float32', 'autocast-bf16': 'float32', 'autocast-fp16': 'float32', 'bf16': 'bfloat16', 'fp16': 'float16'}


def model_of(clean: Dict[str, Any], options: Options) -> Any:
    """The model, on 'meta', in training mode."""
    import torch
    config = _config_of(clean)
    cls = _class_of(config)
    attention = options.text('attention', '')
    if attention not in ('', 'sdpa', 'eager', 'efficient'):
        raise options.refuse('attention', 'a trace takes sdpa, eager or efficient')
    if getattr(config, 'is_encoder_decoder', False) and config.decoder_start_token_id is None:
        config.decoder_start_token_id = config.pad_token_id or 0  # labels are shifted to the right with it
    if options.flag('no_kv_cache'):
        for part in (config, config.get_text_config()):
            part.use_cache = False
    how = {'attn_implementation': {'efficient': 'sdpa'}.get(attention, attention)} if attention else {}
    with _building(f'a {cls.__name__}'), torch.device('meta'):
        model = cls._from_config(config, dtype=getattr(torch, _TYPES[options.text('dtype', 'fp32')]), **how)
    model.train()
    _checkpoint(model, options)
    return model


def _checkpoint(model: Any, options: Options) -> None:
    what = options.text('checkpoint', 'none')
    if options.has('blocks'):
        raise Refusal('choices for single blocks of a plan: only the built-in models have blocks; choose modules with --checkpoint-modules')
    if what == 'none':
        return
    if what != 'full':
        raise options.refuse('checkpoint', 'transformers checkpoints each block (full); choose others with --checkpoint-modules')
    if not model.supports_gradient_checkpointing:
        raise options.refuse('checkpoint', f'{type(model).__name__} of transformers does not support gradient checkpointing')
    is_reentrant = options.text('checkpoint_form', 'reentrant') == 'reentrant'
    with _building('checkpoints'):
        model.gradient_checkpointing_enable({'use_reentrant': is_reentrant})
        if is_reentrant:
            model.enable_input_require_grads()


# ---- Its batch ----

# By the name of an argument, the shape of a tensor of the batch, and whether it has whole numbers.
Shapes = Dict[str, Tuple[Tuple[int, ...], bool]]

_TOKENS = ('ForCausalLM', 'LMHeadModel', 'ForMaskedLM', 'ForConditionalGeneration', 'ForTokenClassification', 'WithLMHead')
_CLASSES = ('ForSequenceClassification', 'ForImageClassification', 'ForNextSentencePrediction')


def _places(model: Any) -> Optional[int]:
    """How many tokens a sequence can have, if the model has learned a vector for each place."""
    import torch
    config = model.config.get_text_config()
    limits = [getattr(config, name, None) for name in ('max_target_positions', 'max_position_embeddings', 'n_positions')]
    known = [limit for limit in limits if isinstance(limit, int)]
    for name, module in model.named_modules():
        *outer, last = name.split('.')
        is_place = isinstance(module, torch.nn.Embedding) and ('position' in last or last == 'wpe') and 'relative' not in last
        is_of_other = any(word in part for part in outer for word in ('vision', 'visual', 'audio')) \
            or (model.main_input_name != 'input_ids' and 'encoder' in outer)
        if is_place and not is_of_other:
            return min([int(module.num_embeddings), *known])
    return None


def _sequence(model: Any, options: Options) -> int:
    """The length of sequences: what is asked for, or as many as `simulate` takes if the model can have them."""
    most = _places(model)
    length = options.count('seq', min(512, most or 512))
    if most and length > most:
        raise options.refuse('seq', f'the model has {most} positions')
    return length


def _labels(model: Any, batch: int, length: int) -> Shapes:
    """What the loss is computed of."""
    name, config = type(model).__name__, model.config
    if name.endswith(_TOKENS):
        return {'labels': ((batch, length), True)}
    if name.endswith(_CLASSES):
        return {'labels': ((batch,), getattr(config, 'num_labels', 2) > 1)}
    if name.endswith('ForQuestionAnswering'):
        return {'start_positions': ((batch,), True), 'end_positions': ((batch,), True)}
    raise Refusal(f'it is not known with which batches {name} trains: write its step as a script, tessera trace SCRIPT')


def _pair(value: Any) -> Tuple[int, int]:
    return (value[0], value[1]) if isinstance(value, (list, tuple)) else (value, value)


def shapes_of(model: Any, options: Options) -> Shapes:
    """The batch of the model's task."""
    config, kind = model.config, model.main_input_name
    batch = options.count('batch', 1)
    takes = inspect.signature(model.forward).parameters
    if kind == 'pixel_values':
        if options.flag('padding'):
            raise options.refuse('padding', 'images have none')
        if options.has('seq'):
            raise options.refuse('seq', f'{type(model).__name__} reads images, whose size is "image_size" of the config')
        size = _pair(getattr(config, 'image_size', None) or 224)
        return {'pixel_values': ((batch, getattr(config, 'num_channels', 3), *size), False), **_labels(model, batch, 0)}
    length = _sequence(model, options)
    if kind == 'input_features' and options.flag('padding'):
        raise options.refuse('padding', 'spectrograms are padded to the same length, without a mask')
    if kind == 'input_features' and hasattr(config, 'num_mel_bins') and hasattr(config, 'max_source_positions'):
        spectrum = (batch, config.num_mel_bins, 2 * config.max_source_positions)
        return {'input_features': (spectrum, False), **_labels(model, batch, length)}
    if kind != 'input_ids':
        raise Refusal(f'{type(model).__name__} reads {kind}, whose size its config does not decide: write its step as a script, tessera trace SCRIPT')
    out: Shapes = {'input_ids': ((batch, length), True), **_labels(model, batch, length)}
    if 'token_type_ids' in takes and 'Gemma3' in type(model).__name__:
        out['token_type_ids'] = ((batch, length), True)  # demanded in training
    if options.flag('padding') and 'attention_mask' not in takes:
        raise options.refuse('padding', f'{type(model).__name__} takes no attention mask')
    if (options.flag('no_kv_cache') or options.flag('padding')) and 'attention_mask' in takes:
        out['attention_mask'] = ((batch, length), True)
    return out


# ---- Its optimizer ----

def optimizers_of(model: Any, options: Options) -> Callable[[List[Any]], List[Any]]:
    """What makes the optimizers of a list of parameters."""
    import torch
    from ._config_optim import adamw_8bit, lion
    name = options.text('optimizer', 'adamw')

    def muon(params: List[Any]) -> List[Any]:
        """For matrices of hidden layers; AdamW for the rest."""
        if not hasattr(torch.optim, 'Muon'):
            raise options.refuse('optimizer', f'PyTorch {torch.__version__} has no Muon; 2.9 has')
        outer = {id(param) for module in model.modules() if isinstance(module, torch.nn.Embedding) for param in module.parameters()}
        head = model.get_output_embeddings()
        outer |= {id(param) for param in head.parameters()} if head is not None else set()
        matrices = [param for param in params if param.dim() == 2 and id(param) not in outer]
        known = set(map(id, matrices))
        others = [param for param in params if id(param) not in known]
        return [*([torch.optim.Muon(matrices)] if matrices else []), *([torch.optim.AdamW(others)] if others else [])]
    optim: Dict[str, Callable[[List[Any]], List[Any]]] = {
        'adamw': lambda params: [torch.optim.AdamW(params)],
        'adamw-foreach': lambda params: [torch.optim.AdamW(params, foreach=True)],
        'adamw-loop': lambda params: [torch.optim.AdamW(params, foreach=False)],
        'adamw-fused': lambda params: [torch.optim.AdamW(params, fused=True)],
        'sgd': lambda params: [torch.optim.SGD(params, lr=0.1)],
        'sgd-momentum': lambda params: [torch.optim.SGD(params, lr=0.1, momentum=0.9)],
        'adafactor': lambda params: [torch.optim.Adafactor(params)],
        'muon': muon,
        'adamw-8bit': lambda params: [adamw_8bit(torch)(params)],
        'lion': lambda params: [lion(torch)(params)],
    }
    if name not in optim:
        raise options.refuse('optimizer', f'known are {", ".join(optim)}; a step with another one is traced by tessera.trace, or as a script '
                             'by tessera trace SCRIPT')
    return optim[name]


# ---- Its step ----

def _batch(torch: Any, shapes: Shapes, dtype: Any) -> Dict[str, Any]:
    return {name: torch.ones(shape, dtype=torch.long if is_whole else dtype, device='cuda') for name, (shape, is_whole) in shapes.items()}


class Program:
    """The step, and what it works on."""

    def __init__(self, model: Any, options: Options) -> None:
        import torch
        self.torch, self.model, self.options = torch, model, options
        self.shapes = shapes_of(model, options)
        self.rows = options.count('batch', 1)
        self.part = options.count('micro_batch', self.rows)
        self.parts = options.count('accumulate', 1) * -(-self.rows // self.part)
        self.is_in_backward = options.flag('optimizer_in_backward')
        self.clip = float(options.text('clip', '0') or 0)
        kind = options.text('dtype', 'fp32')
        self.cast = {'autocast-bf16': torch.bfloat16, 'autocast-fp16': torch.float16}.get(kind)
        self.is_scaled = kind == 'autocast-fp16'
        self._check()
        self.optimizers = self._optimizers()
        self.kept: Dict[str, Any] = {}
        self.scaler: Any = None

    def _check(self) -> None:
        options = self.options
        if options.count('eval_steps', 1) > 1:
            raise options.refuse('eval_steps', 'each step of a trace does the same, so only 1 can be traced')
        for name in ('loss_scale', 'loss_scale_window'):
            if options.has(name) and not self.is_scaled:
                raise options.refuse(name, 'a GradScaler is traced with autocast-fp16 only')
        if self.is_in_backward and (self.clip or self.parts > 1 or self.is_scaled):
            raise Refusal(f'{options.spelled("optimizer_in_backward")} needs one batch per step, and no clipping or scaled loss')

    def _optimizers(self) -> List[Any]:
        make = optimizers_of(self.model, self.options)
        params = [param for param in self.model.parameters() if param.requires_grad]
        if not self.is_in_backward:
            return make(params)
        made = {id(param): make([param])[0] for param in params}

        def update(param: Any) -> None:
            made[id(param)].step()
            made[id(param)].zero_grad()

        for param in params:
            param.register_post_accumulate_grad_hook(update)
        return list(made.values())

    def region(self) -> Any:
        return self.torch.autocast('cuda', dtype=self.cast) if self.cast else contextlib.nullcontext()

    def batch(self, rows: int) -> Dict[str, Any]:
        shapes = {name: ((rows, *shape[1:]), is_whole) for name, (shape, is_whole) in self.shapes.items()}
        return _batch(self.torch, shapes, self.torch.float32 if self.cast else self.model.dtype)

    def evaluate(self) -> None:
        """Two batches, and the loss of each."""
        self.model.eval()
        with self.torch.no_grad():
            for _ in range(2):
                batch = self.batch(self.options.count('eval_batch', self.part))
                with self.region():
                    outputs = self.model(**batch)
        del outputs
        self.model.train()


def train(self: Program) -> None:
    """One step. A function for itself, so that its frame is the program's and not the tracer's."""
    if self.is_scaled and self.scaler is None:
        self.scaler = self.torch.amp.GradScaler('cuda')
    for number in range(self.parts):
        first = number * self.part % (self.part * -(-self.rows // self.part))
        if not first:
            self.kept['batch'] = self.batch(self.rows)
        if not number and not self.is_in_backward:
            for optimizer in self.optimizers:
                optimizer.zero_grad()
        is_whole = self.part == self.rows
        batch = self.kept['batch'] if is_whole else {name: value[first:first + self.part] for name, value in self.kept['batch'].items()}
        with self.region():
            self.kept['outputs'] = self.model(**batch)
        loss = self.kept['outputs'].loss if self.parts == 1 else self.kept['outputs'].loss / self.parts
        (self.scaler.scale(loss) if self.is_scaled else loss).backward()
        del loss
    if self.clip:
        if self.is_scaled:
            for optimizer in self.optimizers:
                self.scaler.unscale_(optimizer)
        self.torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.clip)
    for optimizer in () if self.is_in_backward else self.optimizers:
        if self.is_scaled:
            self.scaler.step(optimizer)
        else:
            optimizer.step()
    if self.is_scaled:
        self.scaler.update()
    if self.options.has('eval_steps'):
        self.evaluate()


# ---- All of it ----

@contextlib.contextmanager
def _kernels(torch: Any, options: Options) -> Iterator[None]:
    """The kernel of --attention efficient."""
    before = torch.backends.cuda.flash_sdp_enabled()
    if options.text('attention', '') == 'efficient':
        torch.backends.cuda.enable_flash_sdp(False)
    try:
        yield
    finally:
        torch.backends.cuda.enable_flash_sdp(before)


def graph_of(text: str, options: Options, gpu: str) -> 'Tuple[Dict[str, Any], str]':
    """The step graph of a config.json, and a sentence about its trace."""
    import torch
    import transformers

    from ._trace import trace
    transformers.logging.set_verbosity_error()
    options.check()
    model = model_of(described(text), options)
    program = Program(model, options)
    # Frames of this function are the program's: they show in stacks under the name of a training script.
    train.__code__ = train.__code__.replace(co_filename='train.py')
    name = type(model).__name__
    with _kernels(torch, options):
        try:
            # Models ask whether their mask is one of ones.
            value = 0.0 if options.flag('padding') else 1.0
            graph = trace(lambda: train(program), model=model, optimizer=program.optimizers, gpu=gpu, value=value,
                          routing=options.routing())
        except TraceError as error:
            raise Refusal(f'{name} cannot be traced: {error}') from error
        except MemoryError:
            raise Refusal(f'a trace of {name} needs more than {_MEMORY_BYTES >> 30} GiB in Python alone') from None
        except Exception as error:
            lines = str(error).strip().splitlines() or ['']
            raise Refusal(f'a step of {name} fails: {type(error).__name__}: {lines[0][:200]}') from error
    return graph, f'traced a step of {name} with PyTorch {torch.__version__} and transformers {transformers.__version__}'


@contextlib.contextmanager
def guarded() -> Iterator[None]:
    """Within it, this process reaches for no network and no other program, opens no weights, and writes only into a temporary folder, which
    modules of PyTorch make files in. An audit hook cannot be removed, so it is for a process of its own."""
    is_on, before = [True], tempfile.tempdir
    with tempfile.TemporaryDirectory(prefix='tessera-') as folder:
        tempfile.tempdir = folder

        def audit(event: str, args: Any) -> None:
            if not is_on[0] or event not in _WATCHED:
                return
            path = os.path.abspath(os.fsdecode(args[0])) if args and isinstance(args[0], (str, bytes)) else ''
            is_read = event == 'open' and not (re.search('[wax+]', args[1] or '') or (args[2] or 0) & (os.O_WRONLY | os.O_RDWR))
            is_ours = event not in _OUTSIDE and (path == os.devnull or path.startswith(folder) or event == 'open' and not path)
            if path.endswith(_WEIGHTS) or not is_read and not is_ours:
                raise PermissionError(f'a description of a model may not cause this: {event} {path}')
        sys.addaudithook(audit)
        try:
            yield
        finally:
            is_on[0], tempfile.tempdir = False, before


_OUTSIDE = ('socket.connect', 'socket.getaddrinfo', 'subprocess.Popen', 'os.system', 'os.exec', 'os.posix_spawn', 'os.fork', 'os.forkpty')
_WATCHED = ('open', 'os.mkdir', 'os.remove', 'os.rename', 'os.rmdir', 'os.link', 'os.symlink', 'os.truncate', 'os.chmod', 'shutil.rmtree', *_OUTSIDE)
_WEIGHTS = ('.safetensors', '.bin', '.pt', '.pth', '.ckpt', '.h5', '.msgpack', '.gguf')


def bounded() -> None:
    """Bound the memory of this process, for descriptions of endless models. Only Linux counts what a process has, and limits it."""
    if sys.platform != 'linux':
        return
    import resource
    with open('/proc/self/statm', encoding='ascii') as file:
        now = int(file.read().split()[0]) * resource.getpagesize()
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    most = now + _MEMORY_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))
