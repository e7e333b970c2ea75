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


# Where args of losses have how they are reduced. Trailing arguments that are as by default are left out.
_REDUCTION = {'mse_loss': 2, 'smooth_l1_loss': 2, 'huber_loss': 2, 'binary_cross_entropy': 3}


def _is_reduced(op: str, args: Tuple[Any, ...]) -> bool:
    place = _REDUCTION[op]
    return len(args) <= place or args[place] != 0


def _unreduced(args: Tuple[Any, ...]) -> Any:
    """A loss for each element, as a tensor without memory."""
    import torch
    left, right = args[:2]
    return torch.empty(torch.broadcast_shapes(left.shape, right.shape), dtype=torch.result_type(left, right), device='meta')


def _loss(args: Tuple[Any, ...]) -> 'Tuple[Any, List[int]]':
    tensor = _unreduced(args)
    return tensor, [tensor.numel()]


def _smooth_loss(args: Tuple[Any, ...]) -> 'Tuple[Any, List[int]]':
    tensor = _unreduced(args)
    return tensor, [tensor.numel(), tensor.numel() if len(args) > 3 and args[3] == 0 else 0]


def _entropy(args: Tuple[Any, ...]) -> 'Tuple[Any, List[int]]':
    return args[0], [1]


# Where args of matrix products have the matrices.
_MATRICES = {'mm': 0, 'bmm': 0, 'addmm': 1, 'baddbmm': 1}


def _is_copied(matrix: Any) -> bool:
    """Whether cuBLAS cannot read it as it lies: neither its rows nor its columns are contiguous and apart from each other (Blas.cpp,
    prepare_matrix_for_cublas and prepare_batch_matrix_for_cublas)."""
    rows, columns = matrix.shape[-2:]
    row_stride, column_stride = matrix.stride()[-2:]
    return not (column_stride == 1 and row_stride >= max(1, columns)) and not (row_stride == 1 and column_stride >= max(1, rows))


def _copied(op: str, args: Tuple[Any, ...]) -> 'Optional[Tuple[Any, List[int]]]':
    first = _MATRICES[op]
    sizes = [matrix.numel() if _is_copied(matrix) else 0 for matrix in args[first:first + 2]]
    return (args[first], sizes) if any(sizes) else None


_SIZES: Dict[str, Callable[[Tuple[Any, ...]], 'Tuple[Any, List[int]]']] = {
    '_scaled_dot_product_efficient_attention_backward': _attention,
    '_scaled_dot_product_flash_attention_backward': _attention,
    'embedding_dense_backward': _embedding,
    'mse_loss': _loss,
    'smooth_l1_loss': _smooth_loss,
    'huber_loss': _loss,
    'binary_cross_entropy': _entropy,
}


def sizes_of(op: str, args: Tuple[Any, ...]) -> 'Optional[Tuple[int, List[int]]]':
    """The bits of an element of the op's tensors, and its sizes; None for other ops."""
    if op in _MATRICES:
        found = _copied(op, args)
        return found and (8 * found[0].element_size(), found[1])
    if op not in _SIZES or (op in _REDUCTION and not _is_reduced(op, args)):
        return None
    tensor, sizes = _SIZES[op](args)
    return 8 * tensor.element_size(), sizes


# ---- Results that PyTorch cannot fake, or fakes with less memory than they take ----

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


def _in_full_storage(torch: Any, op: str, args: Tuple[Any, ...]) -> Any:
    """A reduced loss whose storage was allocated for the loss of each element and is not made smaller (Loss.cpp, its meta functions;
    Loss.cu)."""
    if not _is_reduced(op, args):
        return None
    like = _unreduced(args) if op != 'binary_cross_entropy' else args[0]
    return args[0].new_empty(like.shape, dtype=like.dtype).resize_(())


def _mse_loss(torch: Any, *args: Any) -> Any:
    return _in_full_storage(torch, 'mse_loss', args)


def _smooth_l1_loss(torch: Any, *args: Any) -> Any:
    return _in_full_storage(torch, 'smooth_l1_loss', args)


def _binary_cross_entropy(torch: Any, *args: Any) -> Any:
    return _in_full_storage(torch, 'binary_cross_entropy', args)


# By op, and the operand that is fake if the call is.
_FAKES: 'Dict[str, Tuple[int, Callable[..., Any]]]' = {
    'aten::_weight_norm_interface_backward': (1, _weight_norm_backward),
    'aten::_thnn_fused_gru_cell': (2, _gru_cell),
    'aten::_thnn_fused_gru_cell_backward': (1, _gru_cell_backward),
    'aten::mse_loss': (0, _mse_loss),
    'aten::smooth_l1_loss': (0, _smooth_l1_loss),
    'aten::binary_cross_entropy': (0, _binary_cross_entropy),
}


def faked(torch: Any, func: Any, args: Tuple[Any, ...], is_fake: Callable[[Any], bool]) -> Any:
    """The results of a call on fake tensors; None if PyTorch itself fakes them as they are."""
    operand, make = _FAKES.get(func.name(), (0, None))
    return make(torch, *args) if make is not None and is_fake(args[operand]) else None
