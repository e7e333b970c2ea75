"""Sizes of calls whose CUDA kernels allocate memory for themselves, which fake tensors do not show.

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
