"""What a module's forward may change besides its parameters: its buffers and other tensors, Python's values, and generators of random numbers.

A checkpointed module runs twice, but it must change such a state once, and its second run must find the state that the first one found.
Running statistics, counters, power iterations and random numbers of Python are examples. _wrap.Checkpoint does this for each call:

    forward      take the state, run, and keep what the run has changed as it was before
    recompute    exchange the present state for the kept one, run, exchange it back

_trace_saved.py finds out with the same functions which modules change what, and fit() puts back what a trace has changed.

Python's values are searched where modules usually have them: attributes of the module, of modules in it, of their classes and of objects
that these refer to; lists, dicts and sets in them; global variables that forward uses; variables of functions that are hooks; arguments.
"""
import collections
import contextlib
import functools
import operator
import random
import sys
import types
import weakref
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Set, Tuple

from ._errors import ArgumentError

# Attributes of a module that are not its own values.
_HIDDEN = frozenset({'_parameters', '_buffers', '_modules', '_non_persistent_buffers_set', 'forward', '_compiled_call_impl',
                     '_backward_hooks', '_backward_pre_hooks', '_forward_hooks', '_forward_hooks_with_kwargs', '_forward_hooks_always_called',
                     '_forward_pre_hooks', '_forward_pre_hooks_with_kwargs', '_state_dict_hooks', '_state_dict_pre_hooks',
                     '_load_state_dict_pre_hooks', '_load_state_dict_post_hooks'})
_HOOKS = ('_forward_hooks', '_forward_pre_hooks')
_PLAIN = (int, float, complex, str, bytes, bool, type(None))
# Libraries of whose objects the attributes are not searched.
_CLOSED = frozenset({'torch', 'numpy', 'logging', 'threading', '_thread', 'weakref', 'inspect', 'functools', 'typing', 'importlib', 'tessera'})
_DEEPEST = 6
_LONGEST = 10000  # list whose items are searched, too


class _Absent:
    """Stands for a name that has no value."""


class _Present:
    """Stands for the value that is there now."""


class Place(NamedTuple):
    """Where values are that can be taken and put back, by name. If `is_whole`, `put` needs all of them, otherwise those to change."""
    take: Callable[[], Dict[Any, Any]]
    put: Callable[[Dict[Any, Any]], None]
    is_whole: bool = True
    is_generator: bool = False

    def changed(self, before: Dict[Any, Any]) -> Optional[Dict[Any, Any]]:
        """What has to be put to have these values again; None if nothing has changed."""
        if self.is_generator:
            return before
        now = self.take()
        if _are_identical(before, now):
            return None
        names = {name for name in (*before, *now) if not _is_same(before.get(name, _Absent), now.get(name, _Absent))}
        if not names:
            return None
        return before if self.is_whole else {name: before.get(name, _Absent) for name in names}


def _are_identical(a: Dict[Any, Any], b: Dict[Any, Any]) -> bool:
    return a.keys() == b.keys() and all(map(operator.is_, a.values(), b.values()))


def _is_same(a: Any, b: Any) -> bool:
    return a is b or (type(a) is type(b) and isinstance(a, _PLAIN) and a == b)


class Tensors(NamedTuple):
    """A tensor of a module: its name, and where the module has it."""
    path: Tuple[str, str]
    where: Dict[str, Any]
    key: str
    tensor: Any


# ---- Places ----

def _of_names(take: Callable[[], Dict[Any, Any]], put: Callable[[Any, Any], Any], remove: Callable[[Any], Any]) -> Place:
    """Values that are put and removed one by one."""
    def put_all(values: Dict[Any, Any]) -> None:
        now = take()
        for name, value in values.items():
            if value is _Absent:
                if name in now:
                    remove(name)
            elif value is not _Present and now.get(name, _Absent) is not value:
                put(name, value)
    return Place(take, put_all, is_whole=False)


def _of_dict(where: Dict[Any, Any]) -> Place:
    return _of_names(functools.partial(dict.copy, where), where.__setitem__, where.__delitem__)


def _of_attributes(module: Any) -> Place:
    where = vars(module)
    return _of_names(lambda: {name: where[name] for name in where.keys() - _HIDDEN}, where.__setitem__, where.__delitem__)


def _of_globals(known: Dict[str, Any], names: List[str]) -> Place:
    return _of_names(lambda: {name: known[name] for name in names if name in known}, known.__setitem__, known.__delitem__)


def _of_class(kind: type) -> Place:
    known = vars(kind)
    names = [name for name, value in known.items()
             if not name.startswith('__') and isinstance(value, (*_PLAIN, list, dict, set, collections.deque))]
    return _of_names(lambda: {name: known[name] for name in names if name in known}, lambda name, value: setattr(kind, name, value),
                     lambda name: delattr(kind, name))


def _of_cell(cell: Any) -> Place:
    def take() -> Dict[Any, Any]:
        try:
            return {'': cell.cell_contents}
        except ValueError:  # empty
            return {}
    return _of_names(take, lambda _, value: setattr(cell, 'cell_contents', value), lambda _: delattr(cell, 'cell_contents'))


def _of_list(items: Any) -> Place:
    def put(before: Dict[Any, Any]) -> None:
        items.clear()
        items.extend(before.values())
    return Place(lambda: dict(enumerate(items)), put)


def _of_set(items: Any) -> Place:
    def put(before: Dict[Any, Any]) -> None:
        items.clear()
        items.update(before)
    return Place(lambda: dict.fromkeys(items), put)


def _of_array(array: Any) -> Place:
    def put(before: Dict[Any, Any]) -> None:
        array.reshape(-1).view('u1')[...] = bytearray(before[''])
    return Place(lambda: {'': array.tobytes()}, put)


def _of_generator(take: Callable[[], Any], put: Callable[[Any], Any]) -> Place:
    return Place(lambda: {'': take()}, lambda before: put(before['']), is_generator=True)


def generator_of(value: Any) -> Optional[Place]:
    """The place of a generator of random numbers; None if the value is none."""
    if isinstance(value, random.Random) and not isinstance(value, random.SystemRandom):
        return _of_generator(value.getstate, value.setstate)
    numpy, torch = sys.modules.get('numpy'), sys.modules['torch']
    if isinstance(value, torch._C.Generator):
        return _of_generator(value.get_state, value.set_state)
    if numpy is not None and isinstance(value, numpy.random.RandomState):
        return _of_generator(value.get_state, value.set_state)
    if numpy is not None and isinstance(value, numpy.random.Generator):
        bits = value.bit_generator
        return _of_generator(lambda: bits.state, lambda state: setattr(bits, 'state', state))
    return None


def generators(devices: Any = ()) -> List[Place]:
    """The generators that everybody draws from: of Python, of NumPy, and of PyTorch for the CPU and these devices."""
    torch, numpy = sys.modules['torch'], sys.modules.get('numpy')
    out = [_of_generator(random.getstate, random.setstate), _of_generator(torch.get_rng_state, torch.set_rng_state)]
    if numpy is not None:
        out.append(_of_generator(numpy.random.get_state, numpy.random.set_state))
    for device in devices:
        out.append(_of_device(torch, device))
    return out


def _of_device(torch: Any, device: Any) -> Place:
    module = torch.get_device_module(device)
    if device.type == 'mps':
        return _of_generator(module.get_rng_state, module.set_rng_state)
    return _of_generator(lambda: module.get_rng_state(device), lambda state: module.set_rng_state(state, device))


class _Search:
    """Finds places, each once."""

    def __init__(self) -> None:
        self.torch: Any = sys.modules['torch']
        self.places: List[Place] = []
        self.generators: List[Any] = []  # of PyTorch
        self._seen: Set[int] = set()
        self._kept: List[Any] = []  # so that ids stay unique

    def _is_new(self, value: Any) -> bool:
        if id(value) in self._seen:
            return False
        self._seen.add(id(value))
        self._kept.append(value)
        return True

    def module(self, module: Any) -> None:
        """A module and those in it."""
        for one in module.modules():
            if not self._is_new(one):
                continue
            own, forward = vars(one), type(one).forward
            self.places += [_of_attributes(one), _of_dict(one._buffers)]
            for name, value in list(own.items()):
                if name not in _HIDDEN:
                    self.value(value)
            for hooks in _HOOKS:
                for hook in list(own.get(hooks, {}).values()):
                    self.value(hook)
            if not type(one).__module__.startswith('torch.'):
                self.kind(type(one))
                self.globals_of(forward)

    def kind(self, kind: type) -> None:
        for base in kind.__mro__:
            if base.__module__.partition('.')[0] in ('torch', 'builtins', 'typing', 'abc') or not self._is_new(base):
                continue
            place = _of_class(base)
            self.places.append(place)
            for value in place.take().values():
                self.value(value)

    def globals_of(self, function: Any) -> None:
        """Global variables that a function names and that are values."""
        code, known = getattr(function, '__code__', None), getattr(function, '__globals__', {})
        if code is None or not self._is_new(code):
            return
        names = [name for name in code.co_names if name in known and (
            isinstance(known[name], _PLAIN) or generator_of(known[name]) or self._is_opened(known[name]))]
        if names:
            self.places.append(_of_globals(known, names))
        for name in names:
            self.value(known[name])

    def function(self, function: Any) -> None:
        """A function of the program: its variables outside, and those that it is bound to."""
        while isinstance(function, types.MethodType):
            self.value(function.__self__)
            function = function.__func__
        if not isinstance(function, types.FunctionType):
            return
        for cell in function.__closure__ or ():
            if self._is_new(cell):
                place = _of_cell(cell)
                self.places.append(place)
                for value in place.take().values():
                    self.value(value)
        self.globals_of(function)

    def _is_opened(self, value: Any) -> bool:
        """Whether a value consists of values that can change."""
        if isinstance(value, (list, dict, set, collections.deque, tuple)):
            return True
        kind = type(value)
        if isinstance(value, (type, types.ModuleType, types.FunctionType, types.MethodType, self.torch.Tensor, self.torch.nn.Module)):
            return False
        is_closed = kind.__module__.partition('.')[0] in _CLOSED and not kind.__module__.startswith(('torch.optim.', 'torch.amp.', 'torch.nn.utils.'))
        return not is_closed and isinstance(getattr(value, '__dict__', None), dict)

    def value(self, value: Any, depth: int = 0) -> None:
        """A value and those in it."""
        if isinstance(value, _PLAIN) or depth > _DEEPEST:
            return
        if isinstance(value, functools.partial):
            for one in (value.func, value.args, value.keywords):
                self.value(one, depth + 1)
        elif isinstance(value, (types.FunctionType, types.MethodType)):
            if self._is_new(value) and not (value.__module__ or '').startswith('torch.'):
                self.function(value)
        else:
            self._object(value, depth)

    def _object(self, value: Any, depth: int) -> None:
        is_array = type(value).__module__ == 'numpy' and type(value).__name__ == 'ndarray'
        if not (is_array or self._is_opened(value) or generator_of(value)) or not self._is_new(value):
            return
        found = generator_of(value)
        if found:
            self.generators += [value] if isinstance(value, self.torch._C.Generator) else []
            self.places.append(found)
        elif is_array:
            if value.nbytes <= 1 << 20 and value.flags.writeable and value.flags.c_contiguous and value.dtype != object:
                self.places.append(_of_array(value))
        else:
            self._open(value, depth)

    def _open(self, value: Any, depth: int) -> None:
        inner: Any
        if isinstance(value, dict):
            self.places.append(_of_dict(value))
            inner = list(value.values())
        elif isinstance(value, (list, collections.deque)):
            self.places.append(_of_list(value))
            inner = list(value)
        elif isinstance(value, set):
            self.places.append(_of_set(value))
            inner = ()
        elif isinstance(value, tuple):
            inner = value
        else:
            self.places.append(_of_dict(vars(value)))
            inner = list(vars(value).values())
        for one in inner if len(inner) <= _LONGEST else ():
            self.value(one, depth + 1)


# ---- Python's values ----

class Changed(NamedTuple):
    """A value that is another one now, and whether it is in a list or a set instead of having a name."""
    before: Any
    now: Any
    is_in_list: bool

    @property
    def counts(self) -> bool:
        """Whether it may be different in each call, unlike something that the first call makes. What a module writes may depend on it."""
        return self.is_in_list or (isinstance(self.now, (int, float)) and not isinstance(self.now, bool))


class _Found(NamedTuple):
    """The places of a module, and what was there when they were searched: modules with their hooks; keys and identities of values."""
    modules: Any
    places: List[Tuple[Place, Any]]


# The search takes longer than to check that it would find the same.
_FOUND: 'weakref.WeakKeyDictionary[Any, _Found]' = weakref.WeakKeyDictionary()


def _mark_of_modules(module: Any) -> Any:
    return [(id(vars(one)), *one._forward_hooks, *one._forward_pre_hooks) for one in module.modules()]


def _mark(values: Dict[Any, Any]) -> Any:
    return tuple(values), tuple(map(id, values.values()))


def _found(module: Any) -> List[Tuple[Place, Dict[Any, Any]]]:
    """The places of a module and of those in it, with their values."""
    known, modules = _FOUND.get(module), _mark_of_modules(module)
    if known is not None and known.modules == modules:
        taken = [(place, place.take()) for place, _ in known.places]
        if all(place.is_generator or _mark(values) == mark for (place, values), (_, mark) in zip(taken, known.places)):
            return taken
    search = _Search()
    search.module(module)
    taken = [(place, place.take()) for place in search.places]
    _FOUND[module] = _Found(modules, [(place, None if place.is_generator else _mark(values)) for place, values in taken])
    return taken


def has_generator(module: Any, generator: Any) -> bool:
    """Whether a generator of PyTorch's is the default one, or one that a module or those in it have. In C++ it is another object with the
    same state."""
    torch, search = sys.modules['torch'], _Search()
    search.module(module)
    return any(torch.equal(one.get_state(), generator.get_state()) for one in (torch.default_generator, *search.generators))


class Taken:
    """Python's values at a moment: of a module with those in it, and of other values such as functions and lists of arguments."""

    def __init__(self, module: Any = None, values: Any = (), devices: Any = ()) -> None:
        found = _found(module) if module is not None else []
        search = _Search()
        for value in values:
            search.value(value)
        self._taken = [*found, *((place, place.take()) for place in (*search.places, *generators(devices)))]

    def changes(self) -> 'Iterator[Changed]':
        """Each value that is another one now."""
        for place, before in self._taken:
            changed = None if place.is_generator else place.changed(before)
            if changed is None:
                continue
            now = place.take()
            for name in {**changed, **now} if place.is_whole else changed:
                yield Changed(changed.get(name, _Absent), now.get(name, _Absent), place.is_whole)

    def keep_changes(self) -> None:
        """Forget what is still the same."""
        kept = [(place, place.changed(before)) for place, before in self._taken]
        self._taken = [(place, before) for place, before in kept if before is not None]

    def forget_history(self) -> None:
        """Attributes that have a history belong to the step that computed them: do not keep them."""
        tensor = sys.modules['torch'].Tensor
        self._taken = [(place, before if place.is_whole else {
            name: _Present if isinstance(value, tensor) and value.grad_fn is not None else value for name, value in before.items()})
            for place, before in self._taken]

    def put(self) -> None:
        """Put back what keep_changes() has kept."""
        for place, before in self._taken:
            changed = place.changed(before) if place.is_whole else before
            if changed is not None:
                place.put(changed)

    def present(self) -> 'Taken':
        """The same names with what they are now."""
        out = object.__new__(Taken)
        out._taken = []
        for place, before in self._taken:
            now = place.take()
            out._taken.append((place, now if place.is_whole else {name: now.get(name, _Absent) for name in before}))
        return out


# ---- Tensors ----

def tensors_of(module: Any) -> Iterator[Tensors]:
    """The tensors that a module and those in it have as buffers and attributes, without parameters."""
    torch = sys.modules['torch']
    for name, one in module.named_modules():
        for where in (one._buffers, vars(one)):
            for key, value in where.items():
                if isinstance(value, torch.Tensor) and not isinstance(value, torch.nn.Parameter) and not value.requires_grad:
                    yield Tensors((name, key), where, key, value)


def version_of(tensor: Any) -> int:
    return 0 if tensor.is_inference() else int(tensor._version)


# Parts of names of ops that read running statistics only.
_READERS = ('backward', 'no_update', 'no_training', 'functional', 'elemt')


def written(func: Any, args: Any, kwargs: Any) -> List[Any]:
    """What an op writes in place: tensors and lists of tensors. Batch norms write running statistics although their schemas do not show it."""
    schema = getattr(func, '_schema', None)
    if schema is None:  # an operator that takes functions
        return []
    if schema.is_mutable:
        of = [(argument, args[i] if i < len(args) else kwargs.get(argument.name)) for i, argument in enumerate(schema.arguments)]
        return [value for argument, value in of if argument.alias_info is not None and argument.alias_info.is_write and value is not None]
    if 'batch_norm' not in schema.name or any(part in schema.name for part in _READERS):
        return []
    named = {argument.name: args[i] if i < len(args) else kwargs.get(argument.name) for i, argument in enumerate(schema.arguments)}
    if not named.get('training', named.get('train', True)):
        return []
    return [named[name] for name in ('running_mean', 'running_var') if named.get(name) is not None]


def _leaves(values: Any) -> Iterator[Any]:
    torch = sys.modules['torch']
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from _leaves(value)


def written_tensors(func: Any, args: Any, kwargs: Any) -> Iterator[Any]:
    return _leaves(written(func, args, kwargs))


def _address(tensor: Any) -> int:
    local = getattr(tensor, '_local_tensor', tensor)  # of a DTensor
    try:
        return int(local.untyped_storage()._cdata)
    except (NotImplementedError, RuntimeError):  # it has no storage
        return id(tensor)


def _observer() -> Any:
    """A mode that notes the addresses of the storages that ops write in place."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class Observer(TorchDispatchMode):  # type: ignore[misc]
        supports_higher_order_operators = True

        def __init__(self) -> None:
            super().__init__()
            self.seen: Set[int] = set()

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            self.seen.update(map(_address, written_tensors(func, args, kwargs or {})))
            return func(*args, **(kwargs or {}))
    return Observer()


# ---- Running twice ----

class _Mode:
    """What calls of a module in one mode have shown."""

    def __init__(self) -> None:
        self.is_written: Dict[Tuple[str, str], bool] = {}  # by the name of a tensor
        self.writes_parameters = False
        self.is_counting = False  # whether the last one changed values on which it may depend what the next one writes


class Learned:
    """What earlier calls of a module have shown, by the modes of the modules in it."""

    def __init__(self) -> None:
        self._modes: Dict[Tuple[bool, ...], _Mode] = {}

    def of(self, module: Any) -> _Mode:
        return self._modes.setdefault(tuple(one.training for one in module.modules()), _Mode())


class Twice:
    """A call of a module that is made again in backward. The first call changes the state of the module. Each further one finds the
    state that the first one found, and leaves the present one. A tensor that is written although no earlier call did so has no copy: a
    further call finds it as it is now."""

    def __init__(self, module: Any, call: Callable[..., Any], learned: Learned) -> None:
        self._call, self._learned = call, learned
        self._module: Any = module  # until the first call
        self._state: Any = None
        self._kept: List[Tuple[Tensors, Any]] = []  # tensors that the first call wrote, and what they were before it

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._module is None:
            return self._again(args, kwargs)
        module, self._module = self._module, None
        return self._first(module, args, kwargs)

    def _first(self, module: Any, args: Any, kwargs: Any) -> Any:
        state, mode = Taken(module, (args, kwargs), _devices(module, args, kwargs)), self._learned.of(module)
        known, found = mode.is_written, list(tensors_of(module))
        parameters = [(one, version_of(one)) for one in module.parameters()]
        versions = [version_of(one.tensor) for one in found]
        copies = [one.tensor.detach().clone() if mode.is_counting or known.get(one.path, True) else None for one in found]
        observer = _observer() if mode.writes_parameters or any(one.path not in known for one in found) else None
        with observer or contextlib.nullcontext():
            result = self._call(*args, **kwargs)
        seen: Set[int] = observer.seen if observer else set()
        self._check(module, mode, any(version_of(one) != version or _address(one) in seen for one, version in parameters))
        mode.is_counting = any(change.counts for change in state.changes())
        state.keep_changes()
        state.forget_history()
        for one, version, copy in zip(found, versions, copies):
            known[one.path] = known.get(one.path, False) or version_of(one.tensor) != version or _address(one.tensor) in seen
            if (known[one.path] or mode.is_counting) and one.where.get(one.key) is one.tensor:
                self._kept.append((one, copy))
        for one in tensors_of(module) if observer else ():  # those that this call has made
            known.setdefault(one.path, _address(one.tensor) in seen)
        self._state = state
        return result

    @staticmethod
    def _check(module: Any, mode: _Mode, writes_parameters: bool) -> None:
        """A parameter that only the first call writes is initialised."""
        if writes_parameters and mode.writes_parameters:
            raise ArgumentError(f'{type(module).__name__} changes one of its parameters in forward, so that it cannot run twice: use a plan that does not '
                                'checkpoint it')
        mode.writes_parameters |= writes_parameters

    def _again(self, args: Any, kwargs: Any) -> Any:
        present = self._state.present()
        tensors = [(one, one.where.get(one.key)) for one, _ in self._kept]
        try:
            self._state.put()
            for one, before in self._kept:  # a copy, because there may be another call
                one.where[one.key] = (one.tensor if before is None else before).detach().clone()
            return self._call(*args, **kwargs)
        finally:
            for one, now in tensors:
                one.where[one.key] = now
            present.put()


def _devices(module: Any, args: Any, kwargs: Any) -> List[Any]:
    """The devices other than the CPU on which a module computes, if they are in use."""
    from torch.utils._pytree import tree_leaves
    torch = sys.modules['torch']
    tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
    found = {tensor.device for tensor in (*tensors, *module.parameters(), *module.buffers()) if tensor.device.type not in ('cpu', 'meta')}
    return sorted(found, key=str)
