"""Values of whole numbers that decide sizes in a mixture of experts: which experts each token goes to.

A router takes the topk of its scores. Which experts these are depends on values, which fake tensors do not have, and so do the sizes of what each
expert gets. A policy supplies them: a function of the number of tokens, of experts each token goes to, and of experts. From there on, values follow
the ops that work on whole numbers and truth values (one_hot, permute, sum, greater, ...), which are run for real on the CPU, too. Where the
program asks how many elements are not zero, or reads a number, the answer is known.

Values that do not come from a router are not followed: what a program reads from them is refused as before.
"""
from typing import Any, Callable, Dict, Optional, Tuple

# Which experts (of `experts`) each token goes to: tokens x picks.
Policy = Callable[[Any, int, int, int], Any]


def balanced(torch: Any, tokens: int, picks: int, experts: int) -> Any:
    """Each expert gets as many tokens as any other, or one more."""
    first = torch.arange(tokens)[:, None] * picks
    return (first + torch.arange(picks)) % experts


POLICIES: Dict[str, Policy] = {'balanced': balanced}

# Ops without operands of which a result can depend on a router's choices later, as one_hot's table does.
_MADE = ('zeros', 'ones', 'full', 'arange', 'zeros_like', 'ones_like', 'full_like', 'new_zeros', 'new_ones', 'new_full', 'scalar_tensor')


class Routing:
    """Follows values from routers on."""

    def __init__(self, torch: Any, policy: Policy) -> None:
        from torch.utils._python_dispatch import _disable_current_modes
        from torch.utils.weak import WeakIdKeyDictionary
        self._really = _disable_current_modes  # within it, ops compute
        self.torch, self.policy = torch, policy
        self._known = WeakIdKeyDictionary()  # values that come from a router
        self._made = WeakIdKeyDictionary()  # what makes values that do not
        aten = torch.ops.aten
        self._topk, self._nonzero, self._scalar = aten.topk.default, aten.nonzero.default, aten._local_scalar_dense.default

    def number(self, func: Any, args: Tuple[Any, ...]) -> Optional[Any]:
        """The number that an op reads from a tensor, if it is known."""
        values = self._known.get(args[0]) if func is self._scalar else None
        if values is None:
            return None
        with self._really():
            return values.item()

    def faked(self, func: Any, args: Tuple[Any, ...]) -> Optional[Any]:
        """The result of an op whose size depends on values that are known, with the memory layout of the CUDA kernel (Nonzero.cu)."""
        values = self._known.get(args[0]) if func is self._nonzero else None
        if values is None:
            return None
        with self._really():
            count = int(self.torch.count_nonzero(values))
        return args[0].new_empty((values.dim(), count), dtype=self.torch.long).t()

    def follow(self, func: Any, args: Any, kwargs: Any, result: Any) -> None:
        """Note the values of the results of an op."""
        torch = self.torch
        if func is self._topk:
            indices = result[1]
            rows = indices.numel() // indices.shape[-1] if indices.numel() else 0
            if rows and (len(args) < 3 or args[2] in (-1, indices.dim() - 1)):
                with self._really():
                    self._known[indices] = self.policy(torch, rows, indices.shape[-1], args[0].shape[-1]).view(indices.shape)
            return
        leaves = [leaf for leaf in self._leaves(result) if leaf.device.type == 'cuda']
        if not leaves or any(leaf.is_floating_point() or leaf.is_complex() for leaf in leaves):
            return
        given = self._leaves((args, kwargs))
        if not any(leaf in self._known for leaf in given):
            if func._schema.name.rpartition(':')[2] in _MADE:
                self._made[leaves[0]] = (func, args, kwargs)
            elif func._schema.is_mutable:
                self._made.pop(leaves[0], None)
            return
        values = [self._value(leaf) for leaf in given]
        if all(value is not None for value in values):
            self._run(func, args, kwargs, leaves)
        elif func._schema.is_mutable:
            self._known.pop(leaves[0], None)

    def _leaves(self, given: Any) -> Any:
        from torch.utils import _pytree
        return [leaf for leaf in _pytree.tree_leaves(given) if isinstance(leaf, self.torch.Tensor)]

    def _value(self, tensor: Any) -> Any:
        """The values of an operand; None if they are not known."""
        from torch._subclasses.fake_tensor import FakeTensor
        if tensor in self._known:
            return self._known[tensor]
        if not isinstance(tensor, FakeTensor):
            return tensor
        made = self._made.get(tensor)
        return None if made is None else self._computed(*made)

    def _computed(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Run an op on values on the CPU."""
        from torch.utils import _pytree
        torch = self.torch

        def real(leaf: Any) -> Any:
            if isinstance(leaf, torch.Tensor):
                value = self._value(leaf)
                return torch.zeros(leaf.shape, dtype=leaf.dtype) if value is None else value
            return torch.device('cpu') if isinstance(leaf, torch.device) else leaf
        with self._really():
            args, kwargs = _pytree.tree_map(real, (args, kwargs))
            if func._schema.is_mutable:
                args = (args[0].clone(), *args[1:])
            return func(*args, **kwargs)

    def _run(self, func: Any, args: Any, kwargs: Any, leaves: Any) -> None:
        for leaf, value in zip(leaves, self._leaves(self._computed(func, args, kwargs))):
            self._known[leaf] = value


def one_hot(torch: Any, tensor: Any, count: int = -1) -> Any:
    """As PyTorch computes it on a card (aten/src/ATen/native/Onehot.cpp); for tensors of a mode, it takes another way."""
    if count < 0:
        count = int(tensor.max().item()) + 1
    return torch.zeros((*tensor.shape, count), dtype=torch.long, device=tensor.device).scatter_(-1, tensor.unsqueeze(-1), 1)
