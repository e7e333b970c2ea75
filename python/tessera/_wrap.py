"""The objects with which apply() replaces a module's forward: checkpointing, copies to the host, and a loss in chunks.

Each is stored in the module's own `forward` attribute, so names of parameters, hooks and classes do not change. The object refers to
its module weakly, so that a model is freed with its last other reference. It is copied and pickled with its module, so that the
copy of a model calls the copy's blocks.
"""
import functools
import inspect
import weakref
from typing import Any, Callable, Dict, FrozenSet, Optional, Tuple

from ._errors import ArgumentError
from ._state import Learned, Twice

CACHES = ('past_key_values', 'past_key_value', 'layer_past', 'use_cache')


def _forward_of(module: Any) -> Callable[..., Any]:
    """The forward of the module's class."""
    found: Callable[..., Any] = type(module).forward.__get__(module)
    return found


def _is_cache(value: Any) -> bool:
    """Whether the value is a key-value cache of transformers, judged by its methods."""
    return hasattr(value, 'get_seq_length') and hasattr(value, 'update')


class Forward:
    """Replaces a module's forward. `inner` is the function that it replaces; None stands for the forward of the class. When the plan is
    undone it is not active any more, in case something else still calls it."""

    def __init__(self, module: Any, inner: Any) -> None:
        self._module = weakref.ref(module)
        self.inner = inner
        self.is_active = True
        forward = _forward_of(module) if inner is None else inner
        self.__name__, self.__doc__ = 'forward', forward.__doc__
        self.__signature__ = inspect.signature(forward)  # trainers inspect which arguments a model takes

    def __reduce__(self) -> Tuple[Any, ...]:
        return _again, (type(self), self._module(), self.inner, self.is_active, self.state())

    def state(self) -> Dict[str, Any]:
        """Further arguments of the constructor, for copies."""
        return {}

    @property
    def module(self) -> Any:
        return self._module()

    def original(self, *args: Any, **kwargs: Any) -> Any:
        return (self.inner or _forward_of(self.module))(*args, **kwargs)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return (self.run if self.is_active else self.original)(*args, **kwargs)

    def run(self, *args: Any, **kwargs: Any) -> Any:
        """What the plan does with a call."""
        return self.original(*args, **kwargs)


def _again(kind: Any, module: Any, inner: Any, is_active: bool, state: Dict[str, Any]) -> Any:
    made = kind(module, inner, **state)
    made.is_active = is_active
    return made


# ---- Checkpoints ----

# Results that a selective checkpoint keeps, because they take long to compute.
_PRODUCTS = frozenset({'mm', 'addmm', 'bmm', 'baddbmm', 'convolution'})
_ATTENTION = frozenset({'_scaled_dot_product_flash_attention', '_scaled_dot_product_efficient_attention',
                        '_scaled_dot_product_cudnn_attention', '_scaled_dot_product_flash_attention_for_cpu',
                        '_scaled_dot_product_attention_math', '_flash_attention_forward', '_efficient_attention_forward'})


class Policy:
    """Decides for torch.utils.checkpoint which results of a block's ops are kept: products and attention, except those in `again`.

    `again` has 'inputs' for the products before attention (queries, keys, values), 'attention' for its own result, 'inner'
    for those after it (the first product after attention is its projection, which is always kept)."""

    def __init__(self, again: FrozenSet[str]) -> None:
        self.again = again
        self.count: Dict[bool, int] = {}  # products after attention, of the forward and of the recomputation

    def __call__(self, context: Any, op: Any, *args: Any, **kwargs: Any) -> Any:
        from torch.utils.checkpoint import CheckpointPolicy
        name, again = op.overloadpacket.__name__, bool(context.is_recompute)
        keep = False
        if name in _ATTENTION or name == '_softmax':
            self.count[again] = 0
            keep = name != '_softmax' and 'attention' not in self.again
        elif name in ('bmm', 'baddbmm'):  # the products with queries and keys, and with values
            keep = 'attention' not in self.again
        elif name in _PRODUCTS and again not in self.count:
            keep = 'inputs' not in self.again
        elif name in _PRODUCTS:
            self.count[again] += 1
            keep = self.count[again] == 1 or 'inner' not in self.again
        return CheckpointPolicy.MUST_SAVE if keep else CheckpointPolicy.PREFER_RECOMPUTE


def _contexts(again: FrozenSet[str]) -> Any:
    from torch.utils.checkpoint import create_selective_checkpoint_contexts
    return create_selective_checkpoint_contexts(Policy(again))


class Checkpoint(Forward):
    """Runs the module again in backward. `again` selects the part that is recomputed, see Policy; None recomputes everything."""

    def __init__(self, module: Any, inner: Any, reentrant: bool = False, again: Optional[FrozenSet[str]] = None) -> None:
        super().__init__(module, inner)
        self.reentrant, self.again = reentrant, again
        self._learned = Learned()

    def state(self) -> Dict[str, Any]:
        return {'reentrant': self.reentrant, 'again': self.again}

    def run(self, *args: Any, **kwargs: Any) -> Any:
        import torch
        from torch.utils.checkpoint import checkpoint
        given = [name for name in CACHES if kwargs.get(name) is not None and kwargs[name] is not False]
        is_given = bool(given) or any(_is_cache(value) for value in args)
        if not torch.is_grad_enabled() or (is_given and not self.module.training):
            return self.original(*args, **kwargs)
        args = tuple(None if _is_cache(value) else value for value in args)
        for name in given:  # a module that runs twice must not add to a cache twice
            kwargs[name] = False if name == 'use_cache' else None
        is_compiling = torch.compiler.is_compiling()  # compiled code recomputes values alone
        call = self.original if is_compiling else Twice(self.module, self.original, self._learned)
        options: Dict[str, Any] = {'preserve_rng_state': is_compiling}
        if self.reentrant:
            return self._reentrant(call, args, kwargs, options)
        if self.again is not None:
            options['context_fn'] = functools.partial(_contexts, self.again)
        return checkpoint(call, *args, use_reentrant=False, **options, **kwargs)

    def _reentrant(self, function: Callable[..., Any], args: Tuple[Any, ...], kwargs: Dict[str, Any], options: Dict[str, Any]) -> Any:
        """A reentrant checkpoint passes gradients only to positional arguments, and to the module only if one of these needs gradients."""
        import torch
        from torch.utils.checkpoint import checkpoint
        names = [name for name, value in kwargs.items() if isinstance(value, torch.Tensor) and value.requires_grad]
        moved = [kwargs.pop(name) for name in names]
        if not any(tensor.requires_grad for tensor in (*(x for x in args if isinstance(x, torch.Tensor)), *moved)) \
                and any(parameter.requires_grad for parameter in self.module.parameters()):
            raise ArgumentError(f'{type(self.module).__name__} is called without a tensor that requires gradients, so a reentrant '
                                "checkpoint would not train it: call model.enable_input_require_grads(), or use a plan whose "
                                "checkpoint_form is 'non-reentrant'")
        count = len(args)

        def call(*given: Any) -> Any:
            return function(*given[:count], **dict(zip(names, given[count:])), **kwargs)
        return checkpoint(call, *args, *moved, use_reentrant=True, **options)


# ---- Copies on the host ----

class Offload(Forward):
    """Keeps in host memory what the module saves for backward."""

    def run(self, *args: Any, **kwargs: Any) -> Any:
        import torch
        if not torch.is_grad_enabled():
            return self.original(*args, **kwargs)
        with torch.autograd.graph.save_on_cpu():
            return self.original(*args, **kwargs)


# ---- The whole model ----

class Autocast(Forward):
    """The model's forward, and the loss in it, under autocast."""

    def __init__(self, module: Any, inner: Any, dtype: str) -> None:
        super().__init__(module, inner)
        self.dtype = dtype

    def state(self) -> Dict[str, Any]:
        return {'dtype': self.dtype}

    def run(self, *args: Any, **kwargs: Any) -> Any:
        import torch
        device = next((tensor.device.type for tensor in self.module.parameters()), 'cuda')
        with torch.autocast(device, dtype=getattr(torch, self.dtype)):
            return self.original(*args, **kwargs)


class ChunkedLoss(Forward):
    """The forward of a causal language model of transformers. While training with labels, the head passes on the hidden states, and
    the loss is computed from them a chunk of tokens at a time; the logits are None then."""

    def __init__(self, module: Any, inner: Any, chunk: int) -> None:
        super().__init__(module, inner)
        self.chunk = chunk

    def state(self) -> Dict[str, Any]:
        return {'chunk': self.chunk}

    def run(self, *args: Any, **kwargs: Any) -> Any:
        import torch
        model = self.module
        if kwargs.get('labels') is None or not model.training or not torch.is_grad_enabled():
            return self.original(*args, **kwargs)
        head = model.get_output_embeddings()
        before = model.__dict__.get('_loss_function')
        had = '_loss_function' in model.__dict__
        head.__dict__['forward'] = lambda hidden: hidden
        model.__dict__['_loss_function'] = functools.partial(self.loss, head.weight)
        try:
            out = self.original(*args, **kwargs)
        finally:
            del head.__dict__['forward']
            model.__dict__.pop('_loss_function')
            if had:
                model.__dict__['_loss_function'] = before
        if isinstance(out, tuple):  # return_dict=False: loss, logits, and other outputs
            return (out[0], None, *out[2:])
        return type(out)(**{name: value for name, value in out.items() if name != 'logits'})

    def loss(self, weight: Any, logits: Any, labels: Any, vocab_size: Any = None, num_items_in_batch: Any = None,
             ignore_index: int = -100, shift_labels: Any = None, **_: Any) -> Any:
        """The same loss as ForCausalLMLoss, computed from hidden states instead of logits."""
        import torch
        from torch.nn.functional import pad
        hidden = logits
        if shift_labels is None:
            labels = pad(labels, (0, 1), value=ignore_index)
            shift_labels = labels[..., 1:].contiguous()
        hidden, targets = hidden.reshape(-1, hidden.shape[-1]), shift_labels.reshape(-1)
        if torch.is_autocast_enabled(hidden.device.type):
            dtype = torch.get_autocast_dtype(hidden.device.type)
            hidden, weight = hidden.to(dtype), weight.to(dtype)
        with torch.autocast(hidden.device.type, enabled=False):
            return _function().apply(hidden, weight, targets, num_items_in_batch, self.chunk, ignore_index)


_LOSSES: 'list[Any]' = []  # the class below, once it is made


def _function() -> Any:
    """Head and cross-entropy, a chunk of tokens at a time. Gradients of hidden states and weight are complete after forward."""
    if _LOSSES:
        return _LOSSES[0]
    import torch
    from torch.autograd.function import once_differentiable

    class Loss(torch.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(ctx: Any, hidden: Any, weight: Any, targets: Any, items: Any, chunk: int, ignored: int) -> Any:
            return _forward(ctx, hidden, weight, targets, items, chunk, ignored)

        @staticmethod
        @once_differentiable  # type: ignore[untyped-decorator, misc, unused-ignore]
        def backward(ctx: Any, grad: Any) -> Any:
            if ctx.made is None:
                raise RuntimeError('the chunked loss has no gradients any more: backward ran a second time (retain_graph=True)')
            (of_hidden, of_weight), ctx.made = ctx.made, None
            return (of_hidden.mul_(grad) if of_hidden is not None else None, of_weight.mul_(grad) if of_weight is not None else None,
                    None, None, None, None)
    _LOSSES.append(Loss)
    return Loss


def _forward(ctx: Any, hidden: Any, weight: Any, targets: Any, items: Any, chunk: int, ignored: int) -> Any:
    import torch
    of_hidden = torch.empty_like(hidden) if ctx.needs_input_grad[0] else None
    of_weight = torch.zeros_like(weight) if ctx.needs_input_grad[1] else None
    sums = torch.zeros(2, dtype=torch.float32, device=hidden.device)  # one allocation
    loss, count = sums[0], sums[1]
    count.copy_((targets != ignored).sum() if items is None else torch.as_tensor(items))
    for first in range(0, hidden.shape[0], chunk):
        rows = hidden[first:first + chunk]
        grad = torch.log_softmax(rows @ weight.t(), -1, dtype=torch.float32)
        labels = targets[first:first + chunk].unsqueeze(1)
        counts, at = labels != ignored, labels.clamp(min=0)
        loss -= grad.gather(1, at).mul_(counts).sum() / count
        grad.exp_().scatter_add_(1, at, torch.full_like(at, -1, dtype=grad.dtype)).mul_(counts / count)
        grad = grad.to(hidden.dtype)
        if of_hidden is not None:
            torch.mm(grad, weight, out=of_hidden[first:first + chunk])
        if of_weight is not None:
            of_weight.addmm_(grad.t(), rows)
        del grad, counts, at
    ctx.made = of_hidden, of_weight
    return loss


class Refusal:
    """Replaces a method that would do the same as the plan a second time."""

    def __init__(self, message: str) -> None:
        self.message = message

    def __call__(self, *_: Any, **__: Any) -> Any:
        raise ArgumentError(self.message)
