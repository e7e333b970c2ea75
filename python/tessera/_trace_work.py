"""What each op of a traced step computes: operations, bytes that it reads and writes, and whether its numbers have 16 bits.

Operations are counted as PyTorch's own FlopCounterMode does. Ops that it does not know count as none, so their time is the time of
their bytes.
"""
from typing import Any, Callable, Dict, List, Tuple

# Make tensors without filling them.
_EMPTY = {'empty', 'empty_like', 'empty_strided', 'new_empty', 'new_empty_strided', '_unsafe_view', 'set_', 'resize_'}
# Read no more of their first operand than they write.
_PICK = {'embedding', 'index', 'index_select', 'gather', 'nll_loss_forward', '_foreach_zero_'}


class Work:
    """Counts ops."""

    def __init__(self, torch: Any) -> None:
        from torch.utils import _pytree
        from torch.utils.flop_counter import flop_registry
        self.torch, self.leaves = torch, _pytree.tree_leaves
        self.formulas: Dict[Any, Callable[..., Any]] = flop_registry
        self._halves = (torch.float16, torch.bfloat16)

    def _tensors(self, values: Any) -> List[Any]:
        return [x for x in self.leaves(values) if isinstance(x, self.torch.Tensor) and x.device.type == 'cuda']

    @staticmethod
    def _bytes(tensor: Any) -> int:
        """The bytes that are stored: an expanded tensor has fewer than its shape, a sparse one has indices and values."""
        if tensor.is_sparse:
            return sum(map(Work._bytes, (tensor._indices(), tensor._values())))
        return int(min(tensor.numel() * tensor.element_size(), tensor.untyped_storage().nbytes()))

    def _flops(self, func: Any, args: Any, kwargs: Any, result: Any) -> int:
        formula = self.formulas.get(func._overloadpacket)
        if formula is None:
            return 0
        try:
            return int(formula(*args, **kwargs, out_val=result))
        except Exception:  # a formula that does not take these operands: the op's bytes count
            return 0

    def of(self, func: Any, args: Any, kwargs: Any, result: Any) -> 'Tuple[int, int, int] | None':
        """Operations, bytes and bits; None for a view, which computes nothing."""
        if func.namespace != 'aten':
            return None  # asks for a property
        returns = func._schema.returns
        if returns and all(r.alias_info is not None and not r.alias_info.is_write for r in returns):
            return None
        made = self._tensors(result)
        read = self._tensors((args, kwargs))
        if not made and not read:
            return None
        name = func._schema.name.replace('aten::', '')
        if name in _EMPTY:
            return 0, 0, 32
        if name in _PICK:
            read = read[1:]
        written = made or read[:1]  # in place: what is written is an operand, which is read as well
        size = sum(map(self._bytes, read)) + sum(map(self._bytes, written))
        bits = 16 if any(x.dtype in self._halves for x in read[:2] + made[:1]) else 32
        return self._flops(func, args, kwargs, result), size, bits
