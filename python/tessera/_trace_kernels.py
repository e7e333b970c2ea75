"""What CUDA kernels make, where fake tensors do not show it: results of ops that PyTorch cannot fake, and sizes of calls whose kernels
allocate memory for themselves.

The table of what they allocate is in src/engine/traced/temporaries.c. Ops that are not in it have no sizes here.
"""
from typing import Any, Callable, Dict, List, Optional, Tuple


def _attention(args: Tuple[Any, ...]) -> 'Tuple[Any, List[int]]':
    query, key, value = args[1:4]
    batch, heads, rows, width = query.shape
    return query, [batch, heads, key.shape[1], rows, key.shape[2], width, value.shape[3]]


def _embedding(args: Tuple[Any, ...]) -> 'Tuple[Any, List[int]]':
    grad, indices = args[:2]
    return grad, [indices.numel(), grad.shape[-1], 8 * indices.element_size()]


_SIZES: Dict[str, Callable[[Tuple[Any, ...]], 'Tuple[Any, List[int]]']] = {
    '_scaled_dot_product_efficient_attention_backward': _attention,
    '_scaled_dot_product_flash_attention_backward': _attention,
    'embedding_dense_backward': _embedding,
}


def sizes_of(op: str, args: Tuple[Any, ...]) -> 'Optional[Tuple[int, List[int]]]':
    """The bits of an element of the op's tensors, and its sizes; None for other ops."""
    if op not in _SIZES:
        return None
    tensor, sizes = _SIZES[op](args)
    return 8 * tensor.element_size(), sizes


# ---- Results that PyTorch cannot fake ----

def _weight_norm_backward(torch: Any, _grad: Any, v: Any, g: Any, *_: Any) -> Any:
    """Gradients of a weight's direction and length (WeightNorm.cu)."""
    return tuple(torch.empty_like(x, memory_format=torch.contiguous_format) for x in (v, g))


def _gru_cell(torch: Any, _input: Any, _hidden: Any, before: Any, *_: Any) -> Any:
    """The new state, and what backward needs: five numbers for each of its elements (RNN.cu)."""
    return torch.empty_like(before, memory_format=torch.contiguous_format), before.new_empty(before.shape[0], 5 * before.shape[1])


def _gru_cell_backward(torch: Any, grad: Any, kept: Any, has_bias: bool) -> Any:
    """Gradients of both kinds of gates, of the state before, and of both biases (RNN.cu)."""
    width = 3 * grad.shape[1]
    gates = [kept.new_empty(kept.shape[0], width) for _ in range(2)]
    before = torch.empty_like(grad, memory_format=torch.contiguous_format)
    return *gates, before, *(kept.new_empty(width) if has_bias else None for _ in range(2))


# By op, and the operand that is fake if the call is.
_FAKES: 'Dict[str, Tuple[int, Callable[..., Any]]]' = {
    'aten::_weight_norm_interface_backward': (1, _weight_norm_backward),
    'aten::_thnn_fused_gru_cell': (2, _gru_cell),
    'aten::_thnn_fused_gru_cell_backward': (1, _gru_cell_backward),
}


def faked(torch: Any, func: Any, args: Tuple[Any, ...], is_fake: Callable[[Any], bool]) -> Any:
    """The results of a call on fake tensors; None if PyTorch itself can fake the op."""
    operand, make = _FAKES.get(func.name(), (0, None))
    return make(torch, *args) if make is not None and is_fake(args[operand]) else None
