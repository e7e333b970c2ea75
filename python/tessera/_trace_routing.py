"""Sizes that depend on data: values of tensors as far as a trace can know them, and the routing that a mixture of experts is assumed to have.

A router sends each token to some of its experts, and what an expert computes has the size of what it gets. Which experts these are depends on the
router's scores, which fake tensors do not have. So a routing supplies them, where the program takes the topk (or argmax) of scores of tokens:
'balanced', 'worst', or counts that the user gives. From there on values follow the ops that the program calls (one_hot, permute, sum, greater,
sort, ...): a value is a call of an op on other values, which is run on the CPU when the program asks for a number, or for a tensor whose size is
such a number. A router that nobody asks, such as the topk of a loss that balances experts, costs nothing.

Values that no router decides are known in the same way: constants, and tensors on the CPU that the program copies to the card. Random numbers, and
what is computed with parameters, are not; a program that needs these for a size is refused.

Values belong to storages. An op that writes in place replaces the value of a tensor that is alone in its storage. If it has views, the op writes into
the values themselves, which are views of each other in the same way, after whatever was to be computed from them.
"""
import functools
import json
import os
import sys
import weakref
from typing import Any, Dict, List, Optional, Sequence, Tuple, Union

from ._fake_cuda import TraceError

Counts = Sequence[Sequence[float]]  # of each router, of each expert
MOST_EXPERTS = 1024  # a choice among more is not a router's, but that of words, for example
MOST_BYTES = 64 << 20  # of a constant on the CPU that is followed
MOST_DATA_BYTES = 1 << 20  # of numbers that nothing but a write to their storage asks for, unless a router decides them
KEY = '_tessera_value'


# ---- How tokens are distributed ----

def _balanced(tokens: int, chosen: int, experts: int) -> List[int]:
    """The same share for each expert; the remainder goes to the first ones."""
    share, rest = divmod(tokens * chosen, experts)
    return [share + (number < rest) for number in range(experts)]


def _worst(tokens: int, chosen: int, experts: int) -> List[int]:
    """All tokens to the first experts, as far as possible while each other expert gets one: without tokens it would have no gradients.
    Backward comes to the first experts last, when it has the gradients of the others."""
    counts = [int(number < tokens * chosen) for number in range(experts)]
    left = tokens * chosen - sum(counts)
    for number in range(experts):
        more = min(left, tokens - 1)
        counts[number] += more
        left -= more
    return counts


POLICIES = {'balanced': _balanced, 'worst': _worst}


def _scaled(counts: Sequence[float], tokens: int, chosen: int) -> List[int]:
    """Shares as counts of tokens, whose sum is right. No expert gets a token twice, so what is too much for one goes to others."""
    total, out = tokens * chosen, [0] * len(counts)
    room = {number for number, count in enumerate(counts) if count}
    while sum(out) < total and room:
        left, whole = total - sum(out), sum(counts[number] for number in room)
        wanted = {number: left * counts[number] / whole for number in room}
        rest = left - sum(map(int, wanted.values()))
        for place, number in enumerate(sorted(room, key=lambda number: (int(wanted[number]) - wanted[number], number))):
            out[number] = min(tokens, out[number] + int(wanted[number]) + (place < rest))
        room = {number for number in room if out[number] < tokens}
    return out


def _spread(torch: Any, counts: List[int], tokens: int, chosen: int) -> Any:
    """Experts of each token, tokens x chosen: no token has an expert twice, and neighbours have different ones."""
    if max(counts) - min(counts) <= 1:
        return torch.arange(tokens * chosen).remainder(len(counts)).view(tokens, chosen)
    experts = torch.repeat_interleave(torch.arange(len(counts)), torch.tensor(counts)).view(chosen, tokens).t()
    stride = next(number for number in range(max(1, int(tokens * 0.618)), tokens + 2) if _coprime(number, tokens))
    return experts[torch.arange(tokens).mul(stride).remainder(tokens)]


def _coprime(a: int, b: int) -> bool:
    while b:
        a, b = b, a % b
    return a == 1


# ---- Values ----

class _Unknown(Exception):
    """A value that a trace does not have."""


class NoRouting(Exception):
    """A value that a router decides, without a routing."""


class _Call:
    """An op on values, which is run once, when a result is needed."""

    def __init__(self, torch: Any, func: Any, args: Any, kwargs: Any, is_routed: bool) -> None:
        self.torch, self.func, self.args, self.kwargs, self.is_routed = torch, func, args, kwargs, is_routed
        self._results: Optional[List[Any]] = None

    def results(self) -> List[Any]:
        if self._results is None:
            from torch.utils import _pytree
            from torch.utils._python_dispatch import _disable_current_modes
            args, kwargs = _pytree.tree_map(self._real, (self.args, self.kwargs))
            with _disable_current_modes(), self.torch.no_grad():
                try:
                    self._results = _pytree.tree_leaves(self.func(*args, **kwargs))
                except (RuntimeError, NotImplementedError) as error:  # the CPU has no such kernel
                    raise _Unknown from error
            self.args = self.kwargs = None
        return self._results

    def has_data(self) -> bool:
        from torch.utils import _pytree
        return any(isinstance(leaf, Value) and leaf.is_data for leaf in _pytree.tree_leaves((self.args, self.kwargs)))

    def _real(self, leaf: Any) -> Any:
        if isinstance(leaf, Value):
            return leaf.tensor()
        return self.torch.device('cpu') if isinstance(leaf, self.torch.device) else leaf


class _Choice:
    """What a router chooses, as the result of a call."""

    is_routed = True

    def __init__(self, routing: 'Routing', router: Any, shape: Tuple[int, ...], experts: int, chosen: int) -> None:
        self.routing, self.router, self.shape, self.experts, self.chosen = routing, router, shape, experts, chosen

    def results(self) -> List[Any]:
        return [self.routing.choose(self.router, self.shape, self.experts, self.chosen)]


class _Group:
    """Values of tensors in one storage."""

    def __init__(self) -> None:
        self.held: List[Any] = []  # weak references to what the tensors hold
        self.users: Any = weakref.WeakSet()  # values to be computed from these
        self.is_known = True

    def settle(self, is_lost: bool) -> None:
        """Compute what uses these values, before they change. `is_lost`: afterwards they are not known, nor are their views."""
        for value in list(self.users):
            if value.is_data or (is_lost and value.group is self):
                value.call = _LOST
                continue
            try:
                value.tensor()
            except (_Unknown, NoRouting):
                pass


class _Lost:
    """A call whose operands are not known anymore."""

    def results(self) -> List[Any]:
        raise _Unknown


_LOST = _Lost()


class Value:
    """What one tensor contains."""

    def __init__(self, call: Any, place: int, group: _Group, tensor: Any) -> None:
        self.call, self.place, self.group, self.stride = call, place, group, tuple(tensor.stride())
        self.is_routed = call.is_routed
        # Too large to be computed on the CPU without need, as the parameters of a model are when it makes and initializes them.
        self.is_data = tensor.is_floating_point() and not self.is_routed and tensor.numel() * tensor.element_size() > MOST_DATA_BYTES
        self._tensor: Any = None

    def tensor(self) -> Any:
        if not self.group.is_known:
            raise _Unknown
        if self._tensor is None:
            made = self.call.results()[self.place]
            if made.stride() != self.stride and 0 not in self.stride:  # kernels of the card lay some results out in another way
                from torch.utils._python_dispatch import _disable_current_modes
                with _disable_current_modes():
                    made = made.new_empty_strided(made.shape, self.stride).copy_(made)
            self._tensor = made
            self.call = None
        return self._tensor


class _Held:
    """A tensor's value, as an attribute of the tensor, whose life tells whether the tensor is alive: tensors with weak references to
    them cannot be swapped."""

    def __init__(self, tensor: Any, value: Value) -> None:
        self.storage, self.value = tensor.untyped_storage()._cdata, value
        setattr(tensor, KEY, self)

    def __deepcopy__(self, memo: Any) -> '_Held':
        return self  # copies of fake tensors copy their attributes


def value_of(tensor: Any) -> Optional[Value]:
    """The value of a tensor if it is known, unless other memory has been assigned to the tensor."""
    held = tensor.__dict__.get(KEY)
    return held.value if held is not None and held.value.group.is_known and held.storage == tensor.untyped_storage()._cdata else None


def carry(tensor: Any, twin: Any) -> None:
    """Another tensor in the same memory has the same value."""
    value = value_of(tensor)
    if value is not None:
        _Held(twin, value)


# Ops that make tensors from nothing. What empty ones contain is written before it is read.
_MADE = {'zeros': 0, 'ones': 1, 'empty': 0, 'zeros_like': 0, 'ones_like': 1, 'empty_like': 0, 'new_zeros': 0, 'new_ones': 1, 'new_empty': 0}
_FILLED = {'full': 1, 'full_like': 1, 'new_full': 2, 'scalar_tensor': 0}  # where args have the number
_COUNTED = ('arange', 'eye', 'linspace', 'tril_indices', 'triu_indices')
_INDEXED = ('index', 'index_put_', 'index_put', '_index_put_impl_')
# Their operands' layout on the CPU decides what they do.
_LAYOUT = ('as_strided', 'as_strided_', 'set_', 'resize_', 'empty_strided', 'new_empty_strided')


class Routing:
    """Follows values, and chooses experts. `given` is the name of a policy, the path of a file, counts, or None."""

    def __init__(self, torch: Any, given: 'Union[str, os.PathLike[str], Counts, None]') -> None:
        from torch._subclasses.fake_tensor import FakeTensor
        self.torch, self._fake = torch, FakeTensor
        self.name: Optional[str] = None
        self.counts: Optional[Counts] = None
        if isinstance(given, str) and given in POLICIES:
            self.name = given
        elif given is not None:
            self.name, self.counts = 'given', _read(given)
        self.source = str(given) if isinstance(given, (str, os.PathLike)) else 'routing'
        self._groups: Any = weakref.WeakValueDictionary()  # by the address of a storage
        self.has_choices = False  # whether the program has something that chooses as a router does
        self._routers: Dict[Any, int] = {}  # numbers of those that were asked, by module, or by line outside of modules
        aten = torch.ops.aten
        self._scalar, self._nonzero, self._select = aten._local_scalar_dense.default, aten.nonzero.default, aten.masked_select.default
        self._chooses = {aten.topk.default: 2, aten.argmax.default: 1, aten.max.dim: 1}  # where args have the dimension

    def used(self) -> Dict[str, str]:
        """What the graph says of it, if a router was asked."""
        return {'routing': self.name} if self.name and self._routers else {}

    def check(self) -> None:
        """Call when the trace is complete."""
        found = len(self._routers)
        if self.counts and found and len(self.counts) not in (1, found):
            raise TraceError(f'{self.source} has counts of {len(self.counts)} routers, and the program has {found}: list one for each, in '
                             'the order in which they run, or a single one for all')

    # ---- Before an op runs ----

    def number(self, func: Any, args: Tuple[Any, ...], has_value: bool) -> Any:
        """The number that an op reads from a tensor, if it is known; else None."""
        from torch.utils._python_dispatch import _disable_current_modes
        try:
            found = self.known(args[0], has_value) if func is self._scalar else None
        except NoRouting:  # it may be no size, such as how many of the topk classes are right
            return None
        if found is None:
            return None
        with _disable_current_modes():
            return found.item()

    def indexed(self, mode: Any, func: Any, args: Any) -> Any:
        """Replaces masks among indices by the numbers of their elements, as PyTorch's kernels do (TensorAdvancedIndexing.cpp,
        expandTensors). Returns the arguments."""
        torch = self.torch
        if func.overloadpacket.__name__ not in _INDEXED or func.namespace != 'aten':
            return args
        masks = [index for index in args[1] if isinstance(index, self._fake) and index.dtype in (torch.bool, torch.uint8)]
        if not masks or any(self._known(mask) is None for mask in masks) or (len(args) > 2 and args[2].numel() == 1):
            return args  # a single number is written by masked_fill
        indices: List[Any] = []
        for index in args[1]:
            if isinstance(index, self._fake) and index.dtype in (torch.bool, torch.uint8):
                with mode:
                    found = torch.ops.aten.nonzero.default(index)
                    indices.extend(found.select(1, place) for place in range(index.dim()))
            else:
                indices.append(index)
        return (args[0], indices, *args[2:])

    def sized(self, mode: Any, func: Any, args: Any, kwargs: Any) -> Any:
        """The result of an op whose size depends on values, if these are known; else None."""
        torch = self.torch
        if torch.Tag.dynamic_output_shape not in func.tags or func.namespace != 'aten' or func.overloadpacket.__name__ in _INDEXED:
            return None
        if func is self._select:
            tensor, mask = torch.broadcast_tensors(*args)
            with mode:
                return None if self._known(mask) is None else torch.ops.aten.index.Tensor(tensor, [mask])
        given = _tensors(torch, (args, kwargs))
        call = self._call(func, args, kwargs) if any(isinstance(tensor, self._fake) for tensor in given) else None
        if call is None:
            return None
        try:
            made = call.results()
        except _Unknown:
            return None
        out = [self._like(func, leaf, given[0]) for leaf in made]
        for place, leaf in enumerate(out):
            self._assign(leaf, call, place, given)
        return out[0] if len(func._schema.returns) == 1 else tuple(out)

    def _like(self, func: Any, made: Any, given: Any) -> Any:
        """A tensor of the card with the shape of a value, laid out as the card does (Nonzero.cu)."""
        stride = (1, max(1, made.shape[0])) if func is self._nonzero else made.stride()
        return given.new_empty_strided(made.shape, stride, dtype=made.dtype)

    def _known(self, tensor: Any) -> Any:
        """The value, computed; None if it is not known."""
        try:
            value = value_of(tensor)
            return None if value is None else value.tensor()
        except _Unknown:
            return None

    def known(self, tensor: Any, has_value: bool) -> Any:
        """The same for what the program reads. If the user has given a value for all numbers, it is taken unless a router decides."""
        value = value_of(tensor) if isinstance(tensor, self._fake) else None
        return None if value is None or (has_value and not (value.is_routed and self.name)) else self._known(tensor)

    # ---- After an op has run ----

    def follow(self, func: Any, args: Any, kwargs: Any, result: Any) -> None:
        """Note what its results contain."""
        if func._schema.is_mutable:
            self._write(func, args, kwargs)
            return
        from torch.utils import _pytree
        leaves = _pytree.tree_leaves(result)
        if not any(isinstance(leaf, self._fake) for leaf in leaves):
            return
        call: Any = self._made(func, args, leaves) or self._call(func, args, kwargs)
        if call is None:
            call = self._choice(func, args, kwargs, leaves)
            leaves = leaves[-1:] if call else []
        given = _tensors(self.torch, (args, kwargs)) if leaves else []
        for place, leaf in enumerate(leaves):
            if isinstance(leaf, self._fake):
                self._assign(leaf, call, place, given)

    def _made(self, func: Any, args: Any, leaves: List[Any]) -> Optional[_Call]:
        """A call that makes the same constant on the CPU."""
        name, torch = func.overloadpacket.__name__, self.torch
        if name not in _MADE and name not in _FILLED:
            return None
        number = _MADE[name] if name in _MADE else args[_FILLED[name]] if len(args) > _FILLED[name] else 0
        leaf = leaves[0]
        return _Call(torch, torch.ops.aten.full.default, (list(leaf.shape), number), {'dtype': leaf.dtype}, False)

    def _call(self, func: Any, args: Any, kwargs: Any) -> Optional[_Call]:
        """The op as a call on values; None if one of its operands is not known, or its results are random."""
        from torch.utils import _pytree
        given = _tensors(self.torch, (args, kwargs))
        if not given and func.overloadpacket.__name__ not in _COUNTED:
            return None
        collective = _collective(self.torch, func, args) if func.namespace == '_c10d_functional' else None
        if (func.namespace != 'aten' and collective is None) or self.torch.Tag.nondeterministic_seeded in func.tags or func.overloadpacket.__name__ in _LAYOUT:
            return None
        values: Dict[int, Value] = {}
        for leaf in given:
            value = value_of(leaf) if isinstance(leaf, self._fake) else self._constant(leaf)
            if value is None:
                return None
            values[id(leaf)] = value
        args, kwargs = _pytree.tree_map_only(self.torch.Tensor, lambda leaf: values[id(leaf)], (args, kwargs))
        kwargs.pop('pin_memory', None)
        return _Call(self.torch, collective or _ON_CPU.get(func.overloadpacket.__name__, func), args, kwargs,
                     any(value.is_routed for value in values.values()))

    def _constant(self, tensor: Any) -> Optional[Value]:
        """A real tensor on the CPU, as it is now."""
        if type(tensor) is not self.torch.Tensor or tensor.device.type != 'cpu' or tensor.numel() * tensor.element_size() > MOST_BYTES:
            return None
        if tensor.is_floating_point() and tensor.dim():
            return None  # data, not sizes
        from torch.utils._python_dispatch import _disable_current_modes
        with _disable_current_modes():
            copy = tensor.detach().clone()
        out = Value(_Call(self.torch, None, None, None, False), 0, _Group(), copy)
        out._tensor = copy
        return out

    def _choice(self, func: Any, args: Any, kwargs: Any, leaves: List[Any]) -> Optional[_Choice]:
        """What a router chooses: the places of the largest scores of each token."""
        place = self._chooses.get(func)
        if place is None or not args:
            return None
        scores = args[0]
        if not scores.is_floating_point() or scores.dim() < 2 or not 1 < scores.shape[-1] <= MOST_EXPERTS or not scores.numel():
            return None
        dim = args[place] if len(args) > place else kwargs.get('dim', -1 if place == 2 else None)
        if dim not in (-1, scores.dim() - 1):
            return None
        self.has_choices = True
        chosen = leaves[-1].shape[-1] if place == 2 else 1
        return _Choice(self, _router(self.torch, sys._getframe(2)), tuple(leaves[-1].shape), scores.shape[-1], chosen)

    def choose(self, router: Any, shape: Tuple[int, ...], experts: int, chosen: int) -> Any:
        """The experts of each token, by the routing."""
        from torch.utils._python_dispatch import _disable_current_modes
        if self.name is None:
            raise NoRouting
        number = self._routers.setdefault(router, len(self._routers))
        tokens = 1
        for size in shape:
            tokens *= size
        tokens //= chosen
        counts = POLICIES[self.name](tokens, chosen, experts) if self.counts is None else self._given(number, tokens, chosen, experts)
        with _disable_current_modes():
            return _spread(self.torch, counts, tokens, chosen).reshape(shape)

    def _given(self, number: int, tokens: int, chosen: int, experts: int) -> List[int]:
        """Counts of the user's for a router, scaled to the number of tokens."""
        assert self.counts is not None
        if len(self.counts) > 1 and number >= len(self.counts):
            raise TraceError(f'{self.source} has counts of {len(self.counts)} routers, and the program has more: list one for each, in the '
                             'order in which they run, or a single one for all')
        counts = self.counts[number if len(self.counts) > 1 else 0]
        if len(counts) != experts:
            raise TraceError(f'{self.source} has counts of {len(counts)} experts for router {number + 1}, which chooses among {experts}')
        if sum(count > 0 for count in counts) < chosen:
            raise TraceError(f'{self.source} sends tokens to fewer experts of router {number + 1} than the {chosen} that each token goes to')
        return _scaled(counts, tokens, chosen)

    def _assign(self, leaf: Any, call: Any, place: int, given: List[Any]) -> None:
        storage = leaf.untyped_storage()._cdata
        sharing = next((value_of(tensor) for tensor in given if isinstance(tensor, self._fake) and tensor.untyped_storage()._cdata == storage), None)
        group = sharing.group if sharing is not None else _Group()
        value = Value(call, place, group, leaf)
        group.held = [other for other in group.held if other() is not None] + [weakref.ref(_Held(leaf, value))]
        self._groups[storage] = group
        for tensor in given:
            used = value_of(tensor) if isinstance(tensor, self._fake) else None
            if used is not None:
                used.group.users.add(value)

    def _write(self, func: Any, args: Any, kwargs: Any) -> None:
        """An op has written into its operands."""
        written = [leaf for leaf in _written(self.torch, func, args, kwargs) if isinstance(leaf, self._fake)]
        groups = [group for group in (self._groups.get(leaf.untyped_storage()._cdata) for leaf in written) if group is not None]
        if not groups:
            return
        call = self._call(func, args, kwargs)
        tensor = written[0]
        live = [held for held in (other() for other in groups[0].held) if held is not None]
        if call is not None and len(written) == 1 and args and tensor is args[0] and len(live) == 1 and live[0] is tensor.__dict__.get(KEY):
            call.func = functools.partial(_on_copy, func)
            self._groups.pop(tensor.untyped_storage()._cdata)
            self._assign(tensor, call, 0, _tensors(self.torch, (args[1:], kwargs)))
            return
        if call is not None and call.has_data():
            call = None
        for group in groups:
            group.settle(call is None)
        try:
            if call is None:
                raise _Unknown
            call.results()
        except (_Unknown, NoRouting):
            for group in groups:
                group.is_known = False


def forget(tensors: List[Any]) -> None:
    """Something other than an op has written into these tensors."""
    for value in map(value_of, tensors):
        if value is not None:
            value.group.settle(True)
            value.group.is_known = False


def _collective(torch: Any, func: Any, args: Any) -> Any:
    """What a collective makes of a value. All ranks have the same values, as they have the same routing."""
    name = func.overloadpacket.__name__
    if name not in ('all_to_all_single', 'all_gather_into_tensor', 'all_reduce'):
        return None
    group = torch.distributed.distributed_c10d._resolve_process_group(args[-1])
    count, rank = group.size(), group.rank()
    if name == 'all_gather_into_tensor':
        return lambda tensor, *_: torch.cat([tensor] * count)
    if name == 'all_reduce':
        return lambda tensor, how, *_: tensor * count if how == 'sum' else tensor.clone()
    return lambda tensor, _, splits, *__: torch.cat([tensor.split(splits)[rank]] * count)


def _histc(tensor: Any, *args: Any) -> Any:
    """The kernel of the CPU has no integers."""
    return tensor.double().histc(*args).to(tensor.dtype)


_ON_CPU = {'histc': _histc}


def _on_copy(func: Any, tensor: Any, *args: Any, **kwargs: Any) -> Any:
    """What an op that writes in place makes of a tensor."""
    copy = tensor.clone()
    func(copy, *args, **kwargs)
    return copy


def _tensors(torch: Any, given: Any) -> List[Any]:
    from torch.utils import _pytree
    return [leaf for leaf in _pytree.tree_leaves(given) if isinstance(leaf, torch.Tensor)]


def _written(torch: Any, func: Any, args: Any, kwargs: Any) -> List[Any]:
    named = zip((of.name for of in func._schema.arguments), args)
    given = {**dict(named), **kwargs}
    return _tensors(torch, [given.get(of.name) for of in func._schema.arguments if of.alias_info is not None and of.alias_info.is_write])


def _router(torch: Any, frame: Any) -> Any:
    """A weak reference to the innermost module that is being called, or the line of code outside of modules."""
    where = ''
    while frame is not None:
        owner = frame.f_locals.get('self')
        if isinstance(owner, torch.nn.Module):
            return weakref.ref(owner)
        path = frame.f_code.co_filename
        where = where or ('' if '/torch/' in path or path.startswith(os.path.dirname(__file__)) else f'{path}:{frame.f_lineno}')
        frame = frame.f_back
    return where


def _read(given: Any) -> Counts:
    """Counts from a file, or as they are."""
    source = given if isinstance(given, (str, os.PathLike)) else 'routing'
    if source != 'routing':
        try:
            with open(given, encoding='utf-8') as file:
                given = json.load(file)
        except OSError as error:
            raise TraceError(f'no such routing: {source} is none of {", ".join(POLICIES)}, and no file that can be read '
                             f'({error.strerror})') from error
        except ValueError as error:
            raise TraceError(f'{source} is not JSON: {error}') from error
    is_right = isinstance(given, (list, tuple)) and given and all(
        isinstance(row, (list, tuple)) and row and all(_is_count(count) for count in row) for row in given)
    if not is_right:
        raise TraceError(f'{source} has to be a list with one list for each router: how many tokens each of its experts gets, such as '
                         '[[10, 0, 22], [11, 11, 10]]')
    return [list(row) for row in given]


def _is_count(count: Any) -> bool:
    return isinstance(count, (int, float)) and not isinstance(count, bool) and 0 <= count < 1 << 48


def one_hot(torch: Any, tensor: Any, num_classes: int = -1) -> Any:
    """As PyTorch computes it for real tensors (Onehot.cpp). It composes it of other ops, with larger temporaries, for subclasses."""
    count = int(tensor.max().item()) + 1 if num_classes == -1 else num_classes
    return torch.zeros((*tensor.shape, count), dtype=torch.long, device=tensor.device).scatter_(-1, tensor.unsqueeze(-1), 1)
