"""What CUDA kernels make, where fake tensors do not show it: results of ops that PyTorch cannot fake, and sizes of calls whose kernels
allocate memory for themselves.

The table of what they allocate is in src/engine/traced/temporaries.c. Ops that are not in it have no sizes here.
"""
import functools
from typing import Any, Callable, Dict, List, Optional, Tuple

from ._fake_cuda import TraceError


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


# Reductions of one tensor, and where their args have the dimensions; None: all of them.
_REDUCTIONS = {'sum': None, 'sum_dim_IntList': 1, 'mean': None, 'mean_dim': 1, 'linalg_vector_norm': 2, 'amax': 1, 'amin': 1}
_FEWEST_INPUTS = 1024  # below, no blocks share an output


def _merged(dims: 'List[Tuple[int, int]]') -> 'List[Tuple[int, int]]':
    """Sizes and strides of dimensions, the narrowest first, those that lie behind each other as one (TensorIterator, coalesce_dimensions)."""
    out: List[Tuple[int, int]] = []
    for size, stride in sorted(dims, key=lambda dim: dim[1]):
        if out and stride == out[-1][0] * out[-1][1]:
            out[-1] = out[-1][0] * size, out[-1][1]
        else:
            out.append((size, stride))
    return out


def _outputs_at_once(tensor: Any, reduced: 'List[Tuple[int, int]]', kept: 'List[Tuple[int, int]]') -> int:
    """How many outputs a thread makes: what can be loaded at once (Reduce.cuh, get_output_vec_size)."""
    count = 4
    for number in (tensor.storage_offset(), kept[0][0], *(stride for _, stride in reduced + kept[1:])):
        while number % count:
            count //= 2
    return count


def _reduction(op: str, args: Tuple[Any, ...]) -> 'Optional[Tuple[int, List[int]]]':
    """How Reduce.cuh divides a reduction: src/engine/kernels/scratch.h, tsr__reduced."""
    import torch
    tensor, place = args[0], _REDUCTIONS[op]
    given = args[place] if place is not None and len(args) > place else None
    chosen = range(tensor.dim()) if given in (None, [], ()) else [given] if isinstance(given, int) else given
    chosen = {dim % tensor.dim() for dim in chosen} if tensor.dim() else set()
    dims = [(size, stride, dim in chosen) for dim, (size, stride) in enumerate(zip(tensor.shape, tensor.stride())) if size != 1]
    reduced, kept = (_merged([dim[:2] for dim in dims if dim[2] == side]) for side in (True, False))
    inputs = 1
    for size, _ in reduced:
        inputs *= size
    if inputs < _FEWEST_INPUTS or not tensor.numel():
        return None
    is_along = not kept or reduced[0][1] < kept[0][1]
    at_once, along = 1, 0
    if is_along:
        along = 4 if reduced[0][1] == 1 and len(reduced) == 1 else 1
    elif kept[0][1] == 1:
        at_once = _outputs_at_once(tensor, reduced, kept)
    card = torch.cuda.get_device_properties(0)
    bits = 8 * max(4, tensor.element_size()) if tensor.is_floating_point() or tensor.is_complex() else 64
    return bits, [tensor.numel() // inputs, inputs, at_once, along, card.multi_processor_count, card.max_threads_per_multi_processor]


_CHUNK = 65536  # elements that a block of _foreach_norm takes


def _norms(args: Tuple[Any, ...]) -> 'Tuple[Any, List[int]]':
    import torch
    most = max(tensor.numel() for tensor in args[0])
    return torch.empty(0, dtype=torch.float64 if args[0][0].dtype == torch.float64 else torch.float32, device='meta'), \
        [len(args[0]), -(-most // _CHUNK)]


_SIZES: Dict[str, Callable[[Tuple[Any, ...]], 'Tuple[Any, List[int]]']] = {
    '_scaled_dot_product_efficient_attention_backward': _attention,
    '_scaled_dot_product_flash_attention_backward': _attention,
    'embedding_dense_backward': _embedding,
    'mse_loss': _loss,
    'smooth_l1_loss': _smooth_loss,
    'huber_loss': _loss,
    'binary_cross_entropy': _entropy,
    '_foreach_norm_Scalar': _norms,
}


def sizes_of(op: str, args: Tuple[Any, ...]) -> 'Optional[Tuple[int, List[int]]]':
    """The bits of an element of the op's tensors, and its sizes; None for other ops."""
    if op in _REDUCTIONS:
        return _reduction(op, args)
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


def _scaled_mm(torch: Any, *_: Any) -> Any:
    """Products in FP8, which PyTorch fakes for any card (Blas.cpp, _scaled_mm_allowed_device)."""
    card = torch.cuda.get_device_properties(0)
    if (card.major, card.minor) < (8, 9):
        raise TraceError(f"the step multiplies in FP8, which the {card.name} cannot: trace it for a card that can, such as gpu='h100' (--gpu h100)")


def _product(first: int, _torch: Any, *args: Any) -> Any:
    """A product of matrices in a type that is not theirs (Blas.cpp)."""
    left, right, dtype = args[first:first + 3]
    return left.new_empty(*left.shape[:-1], right.shape[-1], dtype=dtype)


# By op, and the operand that is fake if the call is.
_FAKES: 'Dict[str, Tuple[int, Callable[..., Any]]]' = {
    'aten::_weight_norm_interface_backward': (1, _weight_norm_backward),
    'aten::_thnn_fused_gru_cell': (2, _gru_cell),
    'aten::_thnn_fused_gru_cell_backward': (1, _gru_cell_backward),
    'aten::_scaled_mm': (0, _scaled_mm),
    'aten::mse_loss': (0, _mse_loss),
    'aten::smooth_l1_loss': (0, _smooth_l1_loss),
    'aten::binary_cross_entropy': (0, _binary_cross_entropy),
    **{f'aten::{op}.{overload}': (first, functools.partial(_product, first)) for op, first in _MATRICES.items() for overload in ('dtype', 'dtype_out')},
}


def faked(torch: Any, func: Any, args: Tuple[Any, ...], is_fake: Callable[[Any], bool], out: Any = None) -> Any:
    """The results of a call on fake tensors, or `out` if the program gives it; None if PyTorch itself fakes them as they are."""
    operand, make = _FAKES.get(func.name(), (0, None))
    if make is None or not is_fake(args[operand]):
        return None
    return make(torch, *args) if out is None else out
