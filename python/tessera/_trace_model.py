"""Models and optimizers on fake tensors, for as long as a step is traced.

The objects stay the same, so whatever the program has made of them before - lists of parameters, hooks, the keys of an optimizer's
state - still refers to the model's tensors while it is traced. What changes is what a tensor consists of: its class, its attributes
and the TensorImpl of C++, which are exchanged with those of a fake tensor on 'cuda', and exchanged back afterwards.
"""
import contextlib
import copy
import gc
import math
from typing import Any, Dict, Iterator, List, Set, Tuple

from ._fake_cuda import TraceError


def fake_of(torch: Any, fake: Any, tensor: Any, device: str) -> Any:
    """Make a fake tensor of the same shape, type and strides."""
    from torch.utils._python_dispatch import _disable_current_modes
    with _disable_current_modes(), fake:
        return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=device)


def rehook(tensor: Any) -> None:
    """Register the hooks of a tensor with its TensorImpl, which calls them: a TensorImpl that comes from another tensor has none."""
    for name in ('_backward_hooks', '_post_accumulate_grad_hooks'):
        hooks = getattr(tensor, name, None)
        if hooks:
            setattr(tensor, name, hooks)


def _exchange(torch: Any, tensor: Any, other: Any) -> None:
    """Exchange what two tensors consist of. torch.utils.swap_tensors does the same, but refuses tensors with weak references, which
    are meant to follow the object here, and forgets hooks."""
    tensor.__class__, other.__class__ = other.__class__, tensor.__class__
    tensor.__dict__, other.__dict__ = other.__dict__, tensor.__dict__
    torch._C._swap_tensor_impl(tensor, other)
    rehook(tensor)


def parts(tensor: Any) -> List[Tuple[Any, str, Any]]:
    """What a quantised parameter of bitsandbytes has besides itself: the object, the name and the tensor of each attribute."""
    state = getattr(tensor, '__dict__', {}).get('quant_state')  # of 4 bits
    attributes = [(holder, name) for holder in (state, getattr(state, 'state2', None)) for name in ('absmax', 'code', 'offset')]
    if hasattr(tensor, 'has_fp16_weights'):  # of 8 bits
        attributes += [(tensor, 'CB'), (tensor, 'SCB')]
    found = [(holder, name, getattr(holder, name, None)) for holder, name in attributes]
    return [part for part in found if hasattr(part[2], 'untyped_storage')]


def _is_unready(tensor: Any) -> bool:
    """Whether moving a parameter of bitsandbytes would quantise it."""
    return not getattr(tensor, 'bnb_quantized', True) or (not getattr(tensor, 'has_fp16_weights', True) and tensor.SCB is None)


def elements(tensor: Any) -> int:
    """How many numbers a parameter has. Quantised ones are packed."""
    shape = getattr(getattr(tensor, '__dict__', {}).get('quant_state'), 'shape', None)
    return math.prod(shape) if shape else tensor.numel()


def _put_back(where: Dict[Any, Any], what: Dict[Any, Any]) -> None:
    where.clear()
    where.update(what)


class Fake:
    """Within a `with`, the tensors of models and of optimizers are fake ones on 'cuda'."""

    def __init__(self, torch: Any, mode: Any, models: List[Any], optimizers: List[Any]) -> None:
        self.torch, self.mode, self.models, self.optimizers = torch, mode, models, optimizers
        self.tensors: List[Any] = []  # of the models, and parameters that only optimizers have
        self.states: List[Any] = []  # of optimizers
        self.is_on_host = False  # whether a tensor of the models was not on 'cuda'
        self._known: Set[int] = set()  # ids of `tensors`
        self._renewed: Set[int] = set()  # ids of the state of optimizers
        self._undo = contextlib.ExitStack()

    def __enter__(self) -> 'Fake':
        with contextlib.ExitStack() as undo:  # also if this fails half-way
            for name, module in self._modules():
                for tensors in (module._parameters, module._buffers):
                    undo.callback(_put_back, tensors, dict(tensors))
                    for key, tensor in tensors.items():
                        if tensor is not None and self._stays(module, key, tensor):
                            tensors[key] = tensor.clone()
                        elif tensor is not None:
                            self._replace(tensor, f'{name}.{key}' if name else key, undo)
            self._undo = undo
            for optimizer in self.optimizers:
                for number, param in enumerate(param for group in optimizer.param_groups for param in group['params']):
                    self._replace(param, f'parameter {number} of the optimizer', undo)
                self.renew(optimizer)
            self._undo = undo.pop_all()
        return self

    def __exit__(self, *_: Any) -> None:
        self._undo.close()

    def _modules(self) -> Iterator[Tuple[str, Any]]:
        for model in self.models:
            yield from model.named_modules()

    def _stays(self, module: Any, key: str, tensor: Any) -> bool:
        """AveragedModel makes its count on the CPU, whatever it averages, and reads it."""
        return key == 'n_averaged' and isinstance(module, self.torch.optim.swa_utils.AveragedModel) and tensor.device.type == 'cpu'

    def has(self, tensor: Any) -> bool:
        return id(tensor) in self._known

    def _replace(self, tensor: Any, name: str, undo: contextlib.ExitStack) -> None:
        if self.has(tensor):
            return  # tied weights
        torch = self.torch
        self._check(tensor, name)
        is_parameter = isinstance(tensor, torch.nn.Parameter)
        made = fake_of(torch, self.mode, tensor, 'cuda')
        if is_parameter:
            made = torch.nn.Parameter(made, requires_grad=tensor.requires_grad)
        self.is_on_host |= tensor.device.type != 'cuda'
        made.__dict__.update({key: value for key, value in tensor.__dict__.items() if key not in made.__dict__})
        try:
            _exchange(torch, tensor, made)
        except (TypeError, RuntimeError) as error:
            raise TraceError(f'{name} is a {type(tensor).__name__}, which cannot be replaced by a fake tensor: {error}') from error
        undo.callback(_exchange, torch, tensor, made)
        self._known.add(id(tensor))
        self.tensors.append(tensor)
        for holder, key, part in parts(tensor):
            undo.callback(setattr, holder, key, part)
            is_same = part.untyped_storage()._cdata == made.untyped_storage()._cdata
            setattr(holder, key, tensor.detach() if is_same else fake_of(torch, self.mode, part, 'cuda'))
            self.tensors.append(getattr(holder, key))

    def _check(self, tensor: Any, name: str) -> None:
        from torch.utils._python_dispatch import is_traceable_wrapper_subclass
        if is_traceable_wrapper_subclass(tensor):
            raise TraceError(f'{name} is a {type(tensor).__name__}, which consists of other tensors: give trace() the whole program, '
                             'which makes the model and the optimizer and trains three steps')
        if _is_unready(tensor):
            raise TraceError(f'{name} is quantised when the model moves to the GPU, or was called already: move it before the trace, on a '
                             "machine without a GPU to 'cpu', and call it only in the step, or give trace() the whole program")
        if self.torch.nn.parameter.is_lazy(tensor):
            raise TraceError(f'{name} has no shape yet: call the model once before the trace, or make it with all sizes')
        if tensor.is_leaf and tensor.requires_grad and tensor._use_count() > 1:
            gc.collect()
            if tensor._use_count() > 1:
                raise TraceError(f'{name} is in an autograd graph that exists already, whose hooks a trace would not run: delete losses and '
                                 'outputs of earlier calls first, and use register_post_accumulate_grad_hook() instead of hooks on '
                                 'the nodes that accumulate gradients')

    def _state_of(self, value: Any, is_fused: bool) -> Any:
        """Counts of steps stay on the CPU, where no fused kernel needs them."""
        if not isinstance(value, self.torch.Tensor) or (not value.dim() and not is_fused):
            return copy.copy(value)
        self.states.append(fake_of(self.torch, self.mode, value, 'cuda'))
        return self.states[-1]

    def renew(self, optimizer: Any) -> None:
        """Give an optimizer a fake state until the trace ends. It has to be one that has made no step yet."""
        if id(optimizer.state) in self._renewed:
            return
        state = dict(optimizer.state)
        if any('step' not in values or float(values['step']) for values in state.values()):
            raise TraceError('the optimizer has made steps already: trace() needs a new one')
        self._renewed.add(id(optimizer.state))
        undo = self._undo
        undo.callback(_put_back, optimizer.__dict__, dict(optimizer.__dict__))
        for value in [value for value in vars(optimizer).values() if isinstance(value, dict)]:
            undo.callback(_put_back, value, dict(value))
        optimizer.state.clear()
        is_fused = any(group.get('fused') for group in optimizer.param_groups)
        for group in optimizer.param_groups:
            undo.callback(_put_back, group, {key: copy.copy(value) if isinstance(value, list) else value
                                             for key, value in group.items()})
        for param, values in state.items():  # some make it in their constructor
            if self.has(param):
                optimizer.state[param] = {name: self._state_of(value, is_fused) for name, value in values.items()}

    def adopt(self, optimizer: Any) -> List[Any]:
        """Renew an optimizer that the step uses, if trace() was not given it. Returns the tensors of its state."""
        if any(self.has(param) for group in optimizer.param_groups for param in group['params']):
            known = len(self.states)
            self.renew(optimizer)
            return self.states[known:]
        return []
