"""apply(): puts a plan into effect on a PyTorch model.

    with tessera.apply(model, 'plan.json', optimizer=optimizer) as applied:
        print(applied)
        for part, weight in applied.parts(batch):
            (model(**part).loss * weight).backward()

Plans are described in docs/plan.md. The two forms are plans with ranges of blocks, as `tessera plan MODEL --write-plan` writes them,
whose blocks are found in the model, and plans of step graphs, which name modules. The whole plan is checked before anything is
changed. Each change notes how to undo it. Parts of a plan that cannot be applied to an existing model, or only approximately, are
listed with the reason.
"""
import contextlib
import inspect
import json
import os
import textwrap
import warnings
from fnmatch import fnmatchcase
from typing import Any, Callable, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Set, Tuple, Type, TypeVar, Union

from . import _core
from ._errors import ArgumentError, Error
from ._wrap import CACHES, Autocast, Checkpoint, ChunkedLoss, Forward, Offload, Refusal

# Models of transformers whose head is followed by nothing but the loss.
_PLAIN_HEADS = frozenset({'gpt2', 'llama', 'mistral', 'qwen2'})
_ENABLERS = ('gradient_checkpointing_enable', 'activation_checkpointing_enable')


class Change(NamedTuple):
    """One technique, and its target: the name of a module or of an attribute, or 'optimizer'."""
    technique: str
    target: str
    detail: str = ''


class Left(NamedTuple):
    """A part of the plan that was not applied, or only approximately, and why."""
    technique: str
    reason: str


Kind = TypeVar('Kind', bound='Applied')


# ---- Plans ----

def _read(plan: Any) -> Tuple[Dict[str, Any], str]:
    """A plan and its name. `plan` is a file, or its content, or the output of `tessera plan --json`, which contains a plan."""
    if isinstance(plan, Mapping):
        found, name = dict(plan), '<plan>'
    else:
        name = os.fspath(plan)
        with open(name, encoding='utf-8') as file:
            try:
                found = json.load(file)
            except ValueError as error:
                raise ArgumentError(_core.terminal_clean(f'{name}: not JSON: {error}')) from error
    if isinstance(found, dict) and isinstance(found.get('plan'), dict):
        found = found['plan']
    if not isinstance(found, dict):
        raise ArgumentError(_core.terminal_clean(f'{name}: a plan is one JSON object'))
    try:
        _core.check_plan(json.dumps(found), name)
    except (Error, TypeError, ValueError) as error:
        raise ArgumentError(_core.terminal_clean(str(error))) from None
    return found, name


def _is_of_modules(plan: Mapping[str, Any]) -> bool:
    return isinstance(plan.get('checkpoint'), list) or isinstance(plan.get('offload'), list)


def _outer(names: Sequence[str]) -> List[str]:
    """The names without those of modules inside another module of the list."""
    found = set(names)
    return [name for name in names if not any(name[:i] in found for i, letter in enumerate(name) if letter == '.')
            and not ('' in found and name)]


def _chosen(model: Any, patterns: Sequence[str], key: str) -> List[str]:
    """Names of the modules that a list of a plan selects: by name or class, where * is any text."""
    modules = dict(model.named_modules())
    found: Set[str] = set()
    for i, pattern in enumerate(patterns):
        plain = pattern.replace('[', '[[]').replace('?', '[?]')
        names = [name for name, module in modules.items()
                 if fnmatchcase(name, plain) or fnmatchcase(type(module).__name__, plain)]
        if not names:
            raise ArgumentError(_core.terminal_clean(f'{key}[{i}]: the model has no module of the name or class "{pattern}"'))
        found.update(names)
    return _outer([name for name in modules if name in found])


def blocks_of(model: Any) -> List[str]:
    """Names of the model's blocks, in order: the items of its longest outermost lists whose modules have one class."""
    import torch
    lists = [(name, module) for name, module in model.named_modules()
             if isinstance(module, torch.nn.ModuleList) and len(module) and len({type(item) for item in module}) == 1]
    outer = _outer([name for name, _ in lists])
    most = max((len(module) for name, module in lists if name in outer), default=0)
    return [f'{name}.{i}' if name else str(i) for name, module in lists if name in outer and len(module) == most
            for i in range(most)]


# ---- What was done ----

def _replace(where: Dict[str, Any], key: str, value: Any) -> Callable[[], None]:
    """Put a value into a dict. Returns a function that undoes it, unless there is another value by then."""
    had, before = key in where, where.get(key)

    def put_back() -> None:
        if key not in where or where[key] is not value:
            return
        if had:
            where[key] = before
        else:
            del where[key]
    where[key] = value
    return put_back


class _Undo(NamedTuple):
    """How to undo one change. `put_back` cannot fail. `check` returns what would be left of the change, as the end of a sentence, or ''."""
    put_back: Callable[[], None]
    check: Callable[[], str]


def _nothing_left() -> str:
    return ''


class Applied:
    """The result of apply(). undo() restores the model, and so does the end of a `with`."""

    def __init__(self, model: Any, plan: Mapping[str, Any]) -> None:
        self.model, self.plan = model, dict(plan)
        self.changes: List[Change] = []
        self.left: List[Left] = []
        self._undo: List[_Undo] = []
        self.is_undone = False

    def __enter__(self) -> 'Applied':
        return self

    def __exit__(self, *_: Any) -> None:
        for text in self._put_back():
            warnings.warn(f'tessera.apply: {text}', stacklevel=2)

    def undo(self) -> None:
        """Put everything back as it was before apply(). A second call does nothing.

        Settings that the program has changed since stay as they are, and an optimizer keeps its state. If the program has put another
        function around the forward of a module, the plan has no effect there any more, everything else is undone, and ArgumentError
        names the module: call undo() again when that function has been removed."""
        left = self._put_back()
        if left:
            raise ArgumentError(f'{left[0]}: undo that replacement first')

    def _put_back(self) -> List[str]:
        """Undo what is not undone yet, the last change first. Returns what could not be removed."""
        left = []
        kept = []
        while self._undo:
            change = self._undo.pop()
            text = change.check()
            change.put_back()
            if text:
                left.append(text)
                kept.append(change)
        self._undo = kept[::-1]
        self.is_undone = not kept
        return left

    def parts(self, batch: Mapping[str, Any], labels: Optional[str] = None) -> Iterator[Tuple[Dict[str, Any], Any]]:
        """Split the batch into the plan's micro-batches. Each comes with the weight of its loss, so that the weighted sum is the mean over
        the batch. If `labels` names the labels, the weight is the part's share of the labels that are not -100 instead of its share of
        the sequences."""
        return parts(batch, self.plan.get('micro_batch', 0), labels=labels, batches=self.plan.get('accumulate', 1))

    def __repr__(self) -> str:
        return f'<Applied to {type(self.model).__name__}: {len(self.changes)} changes, {len(self.left)} not>'

    def __str__(self) -> str:
        name = type(self.model).__name__
        count = len(self.changes)
        lines = [f'{name}: {count} change{"s" if count != 1 else ""}{", undone" if self.is_undone else ""}.']
        for technique, detail, targets in _grouped(self.changes):
            lines.extend(_line(technique, f'{ranges_of(targets)}{", " + detail if detail else ""}'))
        if self.left:
            lines.append('Not applied, or only approximately:')
            for left in self.left:
                lines.extend(_line(left.technique, left.reason))
        return '\n'.join(lines)

    # ---- changes, each with its undo function ----

    def note(self, put_back: Callable[[], None], change: Optional[Change] = None, check: Callable[[], str] = _nothing_left) -> None:
        self._undo.append(_Undo(put_back, check))
        if change:
            self.changes.append(change)

    def wrap(self, name: str, make: Callable[[Any, Any], Forward], change: Change) -> None:
        """Replace the forward of a module."""
        module = self.model.get_submodule(name)
        ours = make(module, module.__dict__.get('forward'))

        def check() -> str:
            now = module.__dict__.get('forward', ours)
            return '' if now is ours else f"the forward of '{name or type(module).__name__}' was replaced after apply()"

        restore = _replace(module.__dict__, 'forward', ours)

        def put_back() -> None:
            ours.is_active = False  # whatever calls it
            restore()
        self.note(put_back, change, check)

    def set(self, where: Any, key: str, value: Any, change: Change) -> None:
        """Set an attribute."""
        self.note(_replace(vars(where), key, value), change)

    def refuse(self, name: str, message: str) -> None:
        if hasattr(type(self.model), name):
            self.note(_replace(self.model.__dict__, name, Refusal(message)))

    def skip(self, technique: str, reason: str) -> None:
        self.left.append(Left(technique, reason))


def _grouped(changes: Sequence[Change]) -> List[Tuple[str, str, List[str]]]:
    found: Dict[Tuple[str, str], List[str]] = {}
    for change in changes:
        found.setdefault((change.technique, change.detail), []).append(change.target)
    return [(technique, detail, targets) for (technique, detail), targets in found.items()]


def _follows(last: Sequence[str], name: Sequence[str]) -> int:
    """The index of the only part in which two names differ, if both have numbers there and the second is one more; else -1."""
    places = [i for i, pair in enumerate(zip(last, name)) if pair[0] != pair[1]]
    if len(last) != len(name) or len(places) != 1:
        return -1
    old, new = last[places[0]], name[places[0]]
    return places[0] if old.isdigit() and new.isdigit() and int(new) == int(old) + 1 else -1


def ranges_of(names: Sequence[str]) -> str:
    """Shorten a list of names: a.0.b, a.1.b, a.2.b, c becomes a.0-2.b, c."""
    out: List[Tuple[List[str], List[str], int]] = []  # first name, last name, where they differ
    for name in (name.split('.') for name in names):
        at = _follows(out[-1][1], name) if out else -1
        if at >= 0 and out[-1][2] in (-1, at):
            out[-1] = (out[-1][0], name, at)
        else:
            out.append((name, name, -1))
    return ', '.join('.'.join(f'{part}-{last[i]}' if i == at else part for i, part in enumerate(first)) for first, last, at in out)


def _line(name: str, text: str) -> List[str]:
    """A row of two columns, at most 80 wide where words allow it."""
    return textwrap.wrap(text, 80, initial_indent=f'  {name:<22} ', subsequent_indent=' ' * 25, break_long_words=False, break_on_hyphens=False)


# ---- Micro-batches ----

def parts(batch: Mapping[str, Any], size: int, *, labels: Optional[str] = None, batches: int = 1
          ) -> Iterator[Tuple[Dict[str, Any], Any]]:
    """Split a batch of tensors into parts of `size` rows (0: the whole batch), each with the weight of its loss. `batches` is the
    number of batches per step."""
    import torch
    rows = {value.shape[0] for value in batch.values() if isinstance(value, torch.Tensor) and value.dim()}
    if len(rows) != 1:
        raise ArgumentError('the tensors of a batch must all have the same number of rows')
    count = rows.pop()
    size = size or count
    if count % size:
        raise ArgumentError(f'a batch of {count} sequences cannot be split into parts of {size}')
    total = (batch[labels] != -100).sum() if labels else None
    for first in range(0, count, size):
        part = {name: value[first:first + size] if isinstance(value, torch.Tensor) and value.dim() else value
                for name, value in batch.items()}
        weight = (part[labels] != -100).sum() / total if labels else size / count
        yield part, weight / batches


# ---- Blocks, modules ----

def _form(plan: Mapping[str, Any]) -> bool:
    return bool(plan.get('checkpoint_form', 'non-reentrant' if _is_of_modules(plan) else 'reentrant') == 'reentrant')


class _Choice(NamedTuple):
    """The plan's choice for one block."""
    form: str  # of the checkpoint: none, full, part
    again: 'frozenset[str]'  # of a part, see _wrap.Policy
    is_away: bool


def _choice(checkpoint: str, saved: Mapping[str, str], applied: Applied) -> _Choice:
    if checkpoint == 'selective':
        return _Choice('part', frozenset({'attention'}), False)
    if checkpoint == 'sqrt' or checkpoint.startswith('every:'):
        applied.skip(f'checkpoint {checkpoint}', "the model's own loop calls one block after another: each is checkpointed on its own, "
                     'which keeps the input of every block')
        return _Choice('full', frozenset(), False)
    if checkpoint == 'full':
        return _Choice('full', frozenset(), False)
    again: Set[str] = set()
    is_away = False
    for key, place in saved.items():
        op, _, index = key.partition('.')
        if place == 'recompute':
            again.add('pointwise')
            if 'attention' in op:
                again.update(('inputs', 'attention') if not index else ('inputs',) if index in '012' else ('attention',))
            elif op in ('GELU', 'eager GELU', 'SiLU', 'product'):
                again.add('inner')
        elif place in ('host', 'disk'):
            is_away = True
        elif place != 'keep':
            applied.skip(f'{key}: {place}', 'PyTorch keeps saved tensors in the type that they have')
    if again:
        applied.skip('single saved tensors', 'approximated by a selective checkpoint of the block: products and attention are kept, except those '
                     'that the plan names, and the rest is recomputed')
    if again and is_away:
        applied.skip('saved tensors on the host', 'not in blocks where other saved tensors are recomputed')
    return _Choice('part' if again else 'none', frozenset(again - {'pointwise'}), is_away and not again)


def _blocks(applied: Applied) -> List[Tuple[str, _Choice]]:
    """The choice of a plan with ranges for each block of the model."""
    plan = applied.plan
    ranges = plan.get('blocks', [])
    base = plan.get('checkpoint', 'none')
    if not ranges and base == 'none' and not plan.get('offload_blocks'):
        return []
    names = blocks_of(applied.model)
    if not names:
        raise ArgumentError(f'no list of blocks was found in {type(applied.model).__name__}: use a plan that names modules')
    said = [_choice(base, {}, applied)] * len(names)
    for i, item in enumerate(ranges):
        first, last = item['first'], item['last']
        if last >= len(names):
            raise ArgumentError(f'blocks[{i}].last is {last}, but the model has {len(names)} blocks')
        choice = _choice(item.get('checkpoint', 'none'), item.get('saved', {}), applied)
        said[first:last + 1] = [choice] * (last + 1 - first)
    applied.left[:] = list(dict.fromkeys(applied.left))
    return list(zip(names, said))


def _checkpoint(applied: Applied, name: str, reentrant: bool, again: 'Optional[frozenset[str]]' = None) -> None:
    if again is not None:  # selective checkpoints have no reentrant form
        reentrant = False
    detail = ('reentrant' if reentrant else 'non-reentrant') if again is None else 'selective'
    applied.wrap(name, lambda module, inner: Checkpoint(module, inner, reentrant, again), Change('checkpoint', name, detail))


def _offload(applied: Applied, name: str) -> None:
    applied.wrap(name, Offload, Change('offload', name, 'saved tensors on the host'))


def _list_of(plan: Mapping[str, Any], key: str) -> List[str]:
    value = plan.get(key, [])
    if not isinstance(value, list):
        raise ArgumentError(f'{key} must be a list of modules, like the other list of this plan')
    return value


def _apply_modules(applied: Applied) -> None:
    """Apply the checkpoints and offloads of a plan that names modules."""
    plan, model = applied.plan, applied.model
    chosen = {key: _chosen(model, _list_of(plan, key), key) for key in ('checkpoint', 'offload')}
    for name in chosen['checkpoint']:
        for other in chosen['offload']:
            if name == other or name.startswith(f'{other}.') or other.startswith(f'{name}.') or not name or not other:
                raise ArgumentError(f"the plan checkpoints '{name}' and offloads '{other}': a module and its submodules can have only one of them")
    for name in chosen['checkpoint']:
        _checkpoint(applied, name, _form(plan))
    for name in chosen['offload']:
        _offload(applied, name)


def _apply_blocks(applied: Applied) -> None:
    """Apply the checkpoints and offloads of a plan with ranges of blocks."""
    offload = [word.strip() for word in str(applied.plan.get('offload', '')).split(',') if word.strip()]
    is_away = any(word.split(':')[0] == 'activations' for word in offload)
    away_blocks = applied.plan.get('offload_blocks', 0) if is_away else 0
    is_whole = is_away and not away_blocks
    choices = _blocks(applied)
    if away_blocks > len(choices):
        raise ArgumentError(f'offload_blocks is {away_blocks}, but the model has {len(choices)} blocks')
    for i, (name, choice) in enumerate(choices):
        if choice.form != 'none':
            _checkpoint(applied, name, _form(applied.plan), choice.again if choice.form == 'part' else None)
        elif (choice.is_away and not is_whole) or i < away_blocks:
            _offload(applied, name)
    if any(choice.form != 'none' for _, choice in choices[:away_blocks]):
        applied.skip('offload activations of checkpointed blocks', 'their inputs stay on the device')
    if is_whole:
        applied.wrap('', Offload, Change('offload', type(applied.model).__name__, 'saved tensors on the host'))
    if is_away:
        applied.skip('offload activations', 'PyTorch also copies saved weights, and copies tensors one by one; the prediction is for tessera train')
    for word in offload:
        if word.split(':')[0] != 'activations':
            applied.skip(f'offload {word}', "the optimizer has to do it: use FSDP2 with CPUOffloadPolicy, or DeepSpeed (tessera plan --for)")
        elif word.endswith(':disk'):
            applied.skip('activations on the disk', 'they go to host memory instead')


# ---- The rest of a plan ----

def _config(applied: Applied, key: str, value: Any, technique: str) -> None:
    config = getattr(applied.model, 'config', None)
    if config is None or not hasattr(config, key):
        applied.skip(technique, f'the model has no config.{key}')
    elif getattr(config, key) != value:
        applied.set(config, key, value, Change(technique, f'config.{key}', str(value)))


def _attention(applied: Applied, word: str) -> None:
    name = {'sdpa': 'sdpa', 'eager': 'eager', 'flash': 'flash_attention_2'}.get(word)
    if name is None:
        applied.skip(f'attention {word}', 'PyTorch chooses this kernel for each call; a model has no setting for it')
        return
    _config(applied, '_attn_implementation_internal' if hasattr(getattr(applied.model, 'config', None), '_attn_implementation_internal')
            else '_attn_implementation', name, 'attention')


def _gelu(applied: Applied) -> None:
    for name, module in list(applied.model.named_modules()):
        for key, child in list(module._modules.items()):
            if type(child).__name__ in ('NewGELUActivation', 'FastGELUActivation', 'GELUTanh'):
                _fuse_gelu(applied, module, key, f'{name}.{key}' if name else key)
    if not any(change.technique == 'fused GELU' for change in applied.changes):
        applied.skip('gelu fused', 'no module computes GELU step by step')


def _fuse_gelu(applied: Applied, module: Any, key: str, name: str) -> None:
    import torch
    child = module._modules[key]
    ours = torch.nn.GELU(approximate='tanh').train(child.training)
    restore = _replace(module._modules, key, ours)

    def put_back() -> None:
        child.train(ours.training)
        restore()
    applied.note(put_back, Change('fused GELU', name))


def _loss(applied: Applied, word: str) -> None:
    import torch
    model, chunk = applied.model, word.partition(':')[2]
    kind = getattr(getattr(model, 'config', None), 'model_type', None)
    head = model.get_output_embeddings() if hasattr(model, 'get_output_embeddings') else None
    if kind not in _PLAIN_HEADS or head is None or type(head) is not torch.nn.Linear or head.bias is not None:
        applied.skip(f'loss {word}', f'the head of {type(model).__name__} is not supported; supported are {", ".join(sorted(_PLAIN_HEADS))} with '
                     'a linear head')
        return
    applied.wrap('', lambda module, inner: ChunkedLoss(module, inner, int(chunk)),
                 Change('loss in chunks', type(model).__name__, f'{chunk} tokens at a time, outputs without logits'))


_FORMS: Dict[str, Dict[str, Optional[bool]]] = {
    'adamw-fused': {'fused': True, 'foreach': None}, 'adamw-foreach': {'fused': None, 'foreach': True},
    'adamw-loop': {'fused': False, 'foreach': False}, 'adamw': {'fused': None, 'foreach': None}}


def _optimizer(applied: Applied, word: str, optimizer: Any) -> None:
    """Switch the optimizer to another form."""
    import torch
    if optimizer is None:
        applied.skip(f'optimizer {word}', 'pass optimizer= to apply()')
        return
    if word not in _FORMS or not isinstance(optimizer, (torch.optim.Adam, torch.optim.AdamW)):
        applied.skip(f'optimizer {word}', f'the optimizer is {type(optimizer).__name__}: create the one that the plan names')
        return
    form = {key: value for key, value in _FORMS[word].items() if key in optimizer.defaults}
    known = [{key: where[key] for key in form} for where in (optimizer.defaults, *optimizer.param_groups)]
    restore = _replace(optimizer.__dict__, '_step_supports_amp_scaling', True) if form.get('fused') else lambda: None
    for where in (optimizer.defaults, *optimizer.param_groups):
        where.update(form)
    _move_counts(optimizer)

    def put_back() -> None:
        # Groups may be new objects by now (load_state_dict), or new groups, which were made with the defaults.
        for i, where in enumerate((optimizer.defaults, *optimizer.param_groups)):
            before = known[i if i < len(known) else 0]
            where.update({key: before[key] for key, value in form.items() if where.get(key) is value})
        restore()
        _move_counts(optimizer)
    applied.note(put_back, Change('optimizer', type(optimizer).__name__, word))


def _move_counts(optimizer: Any) -> None:
    """Put the counts of steps in the optimizer's state where its form needs them: fused ones on the parameter's device, others on the CPU."""
    import torch
    for group in optimizer.param_groups:
        is_fused = bool(group.get('fused'))
        for parameter in group['params']:
            count = optimizer.state.get(parameter, {}).get('step')
            if isinstance(count, torch.Tensor) and (is_fused or not group.get('capturable')):
                dtype = torch.float32 if is_fused or torch.get_default_dtype() != torch.float64 else torch.float64
                optimizer.state[parameter]['step'] = count.to(parameter.device if is_fused else 'cpu', dtype)


def _in_backward(applied: Applied, optimizer: Any) -> None:
    """Update each parameter as soon as its gradient is complete, with the optimizer's own state and settings."""
    if optimizer is None:
        applied.skip('optimizer in backward', 'pass optimizer= to apply()')
        return
    handles = []
    for index, group in enumerate(optimizer.param_groups):
        for parameter in group['params']:
            if parameter.requires_grad:
                handles.append(parameter.register_post_accumulate_grad_hook(_Update(optimizer, index)))

    def put_back() -> None:
        for handle in handles:
            handle.remove()
    applied.note(put_back, Change('optimizer in backward', type(optimizer).__name__, f'{len(handles)} parameters'))


class _Update:
    """A hook that makes the optimizer's step for one parameter."""

    def __init__(self, optimizer: Any, group: int) -> None:
        self.optimizer, self.group = optimizer, group

    def __call__(self, parameter: Any) -> None:
        kind: Any = type(self.optimizer)
        one = object.__new__(kind)
        one.__dict__.update(self.optimizer.__dict__)
        one.__dict__.pop('step', None)  # a schedule's wrapper
        one.param_groups = [{**self.optimizer.param_groups[self.group], 'params': [parameter]}]
        kind.step(one)
        parameter.grad = None


# Keys that have code of their own here.
_DONE = frozenset({'version', 'blocks', 'checkpoint', 'checkpoint_form', 'offload', 'offload_blocks', 'attention', 'gelu', 'loss', 'dtype', 'optimizer',
                   'optimizer_in_backward', 'no_kv_cache', 'micro_batch', 'accumulate', 'ranks'})
# Choices that the training loop has to make itself, or that cannot be made for an existing model.
_LEFT: Dict[str, str] = {
    'lora': 'wrap the model with peft.get_peft_model(model, peft.LoraConfig(r={})) before',
    'lora_alpha': 'pass it to peft.LoraConfig(lora_alpha={})',
    'lora_targets': 'pass its names to peft.LoraConfig(target_modules=[...]): {}',
    'clip': 'call torch.nn.utils.clip_grad_norm_(model.parameters(), {}) before optimizer.step()',
    'in_place': 'tessera cannot tell which operands a model no longer needs',
    'master_weights': 'the optimizer must be created with fp32 copies of the parameters',
    'loss_scale': 'pass it to torch.amp.GradScaler(init_scale={})',
    'loss_scale_window': 'pass it to torch.amp.GradScaler(growth_interval={})',
    'backward': 'call backward once, on the sum of the losses of all parts',
    'accumulation': "PyTorch's kernels cannot add up gradients in this order",
    'zero': 'use fully_shard() of FSDP2 for stage 3, or DeepSpeed for any stage',
    'replicas': 'pass fully_shard() of FSDP2 a device mesh of two dimensions',
    'bucket': 'pass bucket_cap_mb= to DistributedDataParallel, or set reduce_bucket_size in DeepSpeed',
    'no_overlap': 'set it where the model is wrapped, for example with overlap_comm of DeepSpeed',
}


def _dtype(applied: Applied, word: str) -> None:
    kinds = {'fp32': 'float32', 'bf16': 'bfloat16', 'fp16': 'float16'}
    is_cast = word.startswith('autocast-')
    name = kinds[word[9:] if is_cast else word]
    if is_cast:
        applied.wrap('', lambda module, inner: Autocast(module, inner, name),
                     Change('autocast', type(applied.model).__name__, name))
        if name == 'float16':
            applied.skip('dtype autocast-fp16', 'the training loop also needs a torch.amp.GradScaler')
    elif any(str(parameter.dtype) != f'torch.{name}' for parameter in applied.model.parameters()):
        applied.skip(f'dtype {word}', f'call model.to(torch.{name}) before the optimizer is created')


def _takes_cache(module: Any) -> bool:
    """Whether a module, or one in it, may add to a cache of keys and values: then it must have none if it runs again in backward."""
    def takes(part: Any) -> bool:
        try:
            return not set(CACHES).isdisjoint(inspect.signature(type(part).forward).parameters)
        except (TypeError, ValueError):  # not a function of Python
            return True
    return any(takes(part) for part in module.modules())


def _apply_rest(applied: Applied, optimizer: Any) -> None:
    plan = applied.plan
    if 'attention' in plan:
        _attention(applied, plan['attention'])
    if plan.get('gelu') == 'fused':
        _gelu(applied)
    if plan.get('loss', 'full') != 'full':
        _loss(applied, plan['loss'])
    if 'dtype' in plan:
        _dtype(applied, plan['dtype'])
    if 'optimizer' in plan:
        _optimizer(applied, plan['optimizer'], optimizer)
    if plan.get('optimizer_in_backward'):
        _in_backward(applied, optimizer)
    again = [change.target for change in applied.changes if change.technique == 'checkpoint']
    if plan.get('no_kv_cache') or any(_takes_cache(applied.model.get_submodule(name)) for name in again):
        if getattr(getattr(applied.model, 'config', None), 'use_cache', False):
            _config(applied, 'use_cache', False, 'no key-value cache')
    for key in ('micro_batch', 'accumulate'):
        if plan.get(key, 0) > (key == 'accumulate'):
            applied.skip(f'{key} {plan[key]}', 'do it in the training loop: for part, weight in applied.parts(batch)')
    if plan.get('ranks', 1) > 1:
        applied.skip(f'ranks {plan["ranks"]}', 'start them with torchrun, and wrap the model with DistributedDataParallel or fully_shard()')
    for key in [*_LEFT, *(key for key in plan if key not in _LEFT and key not in _DONE)]:
        if plan.get(key):
            reason = _LEFT.get(key, 'apply() cannot do this')
            applied.skip(f'{key} {plan[key]}' if plan[key] is not True else key, reason.format(plan[key]))


def _check(model: Any) -> None:
    """Refuse models to which a plan cannot be applied."""
    import torch
    if not isinstance(model, torch.nn.Module):
        raise ArgumentError(f'a plan is applied to a torch.nn.Module, not to {type(model).__name__}')
    for name, module in model.named_modules():
        own = f"'{name}'" if name else 'the model'
        forward = module.__dict__.get('forward')
        if isinstance(forward, Forward) and forward.is_active:
            raise ArgumentError(f'{own} has a plan already: undo it first')
        if getattr(module, 'gradient_checkpointing', False) is True:
            raise ArgumentError(f'{own} is checkpointed already: call model.gradient_checkpointing_disable(), or use a plan without '
                                'checkpoints')
        if type(module).__name__ == 'OptimizedModule' or getattr(module, '_compiled_call_impl', None) is not None:
            raise ArgumentError(f'{own} is compiled: apply the plan before torch.compile')
        if isinstance(module, torch.jit.ScriptModule):
            raise ArgumentError(f'{own} is a ScriptModule, whose forward cannot be replaced')


def apply(model: Any, plan: Union[str, 'os.PathLike[str]', Mapping[str, Any]], *, optimizer: Any = None) -> Applied:
    """Put a plan into effect on a model of PyTorch.

    `plan` is a plan file, its content, or the answer of `tessera plan --json`: with ranges of blocks or with names of modules.
    `optimizer` is switched to the plan's form of the optimizer. Returns what was done and what was not; undo() restores everything. If
    the plan cannot be applied, ArgumentError explains why, and nothing has changed.
    """
    return applied_as(Applied, model, plan, optimizer)


def applied_as(kind: Type[Kind], model: Any, plan: Any, optimizer: Any) -> Kind:
    """apply(), with the class of the result as an argument."""
    found, name = _read(plan)
    _check(model)
    applied = kind(model, found)
    with contextlib.ExitStack() as undo:
        undo.callback(applied._put_back)
        try:
            (_apply_modules if _is_of_modules(found) else _apply_blocks)(applied)
            _apply_rest(applied, optimizer)
        except ArgumentError as error:
            raise ArgumentError(_core.terminal_clean(f'{name}: {error}')) from None
        if any(change.technique == 'checkpoint' for change in applied.changes):
            for enabler in _ENABLERS:
                applied.refuse(enabler, 'the model is checkpointed by a plan (tessera.apply): undo it first, or leave out gradient_checkpointing')
        undo.pop_all()
    return applied
