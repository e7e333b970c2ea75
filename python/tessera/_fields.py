"""What answers are made of: the fields of the JSON (docs/json.md), as attributes.

A Record wraps a dict of the JSON, and wraps nested values on access. The classes of _answers.py, which are
generated, list the fields, for people and for type checkers. Fields that this version does not list are
accessible too: fields are only ever added.
"""
import copy
import itertools
import json
import typing
import zlib
from typing import (TYPE_CHECKING, Any, ClassVar, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple,
                    TypeVar, Union)

from ._errors import UnsupportedError, UsageError

if TYPE_CHECKING:
    from ._core import Answer as _Core
    from ._page import Length, Page

__all__ = ['Answer', 'Counts', 'Drawn', 'Input', 'Judged', 'Place', 'Record', 'Unframed', 'Warning']


class Record(Mapping[str, Any]):
    """A part of an answer: fields as attributes, and as items of a mapping. Read-only, with tuples instead of lists, because
    the same question has the same answer, for all who ask. A tuple of records is a table for pandas.DataFrame()."""

    __slots__ = ('_data', '_wrapped')
    if TYPE_CHECKING:  # else hints of fields
        _data: Dict[str, Any]
        _wrapped: Dict[str, Any]

    def __init__(self, data: Dict[str, Any]) -> None:
        object.__setattr__(self, '_data', data)
        object.__setattr__(self, '_wrapped', {})

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f'{type(self).__name__} is read-only; to_dict() makes a copy that can be changed')

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f'{type(self).__name__} is read-only; to_dict() makes a copy that can be changed')

    if not TYPE_CHECKING:  # the fields are declared below: to a type checker, others are mistakes
        def __getattr__(self, name: str) -> Any:
            if name.startswith('__'):
                raise AttributeError(name)
            try:
                return self[name]
            except KeyError:
                raise AttributeError(f'{type(self).__name__} has no field {name!r}; it has '
                                     f'{", ".join(self._data)}') from None

    def __getitem__(self, name: str) -> Any:
        try:
            return self._wrapped[name]
        except KeyError:
            value = self._wrapped[name] = _wrap(self._data[name], _hints(type(self)).get(name))
            return value

    def __iter__(self) -> Iterator[str]:
        return iter(self._data)

    def __contains__(self, name: object) -> bool:
        return name in self._data

    def __len__(self) -> int:
        return len(self._data)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Record):
            return self._data == other._data
        return self._data == other if isinstance(other, dict) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __dir__(self) -> List[str]:
        return sorted([*object.__dir__(self), *self._data])

    def __repr__(self) -> str:
        fields = ', '.join(f'{name}={_brief(value)}' for name, value in self._data.items())
        return f'{type(self).__name__}({fields})'

    def __reduce__(self) -> Tuple[Any, ...]:
        return type(self), (self._data,)

    def to_dict(self) -> Dict[str, Any]:
        """The fields as plain dicts, lists and numbers, as in the JSON: a copy, free to be changed."""
        return copy.deepcopy(self._data)


def _brief(value: Any) -> str:
    if isinstance(value, list):
        return f'({len(value)} of them)' if value else '()'
    if isinstance(value, dict):
        return '{...}'
    return repr(value)


_HINTS: Dict[type, Dict[str, Any]] = {}


def _hints(kind: type) -> Dict[str, Any]:
    """The record class of each field: of `List[X]`, `Optional[X]` and `X` it is X."""
    if kind not in _HINTS:
        found = {}
        for name, hint in typing.get_type_hints(kind).items():
            while typing.get_args(hint):
                hint = typing.get_args(hint)[0]
            found[name] = hint if isinstance(hint, type) and issubclass(hint, Record) else None
        _HINTS[kind] = found
    return _HINTS[kind]


def _wrap(value: Any, kind: Optional[type]) -> Any:
    if isinstance(value, dict):
        return (kind or Record)(value)
    if isinstance(value, list) and value and isinstance(value[0], (dict, list)):
        return tuple(_wrap(item, kind) for item in value)
    return tuple(value) if isinstance(value, list) else value


# ---- shared ----

class Warning(Record):  # pylint: disable=redefined-builtin
    """What a file lacks or contradicts. Test for `code`; `message` is for people."""
    code: str
    count: int
    message: str


class Input(Record):
    """A file that was read."""
    path: str
    bytes: int
    format: str
    sidecar: Optional[str]


class Place(Record):
    """A line of code; str() is how a traceback would name it."""
    name: str
    file: str
    line: Optional[int]

    def __str__(self) -> str:
        return f'{self.file}:{"?" if self.line is None else self.line} {self.name}'


class Counts(Record):
    """Numbers by name; the names depend on the file."""


# ---- answers ----

class _Kept:
    """What an answer says, without the library's own value: what is left of it in a pickle. Texts are complete,
    whatever the width: names were not shortened."""

    _FLAGS = list(itertools.product(*[(False, True)] * 4))  # color, full_stacks, verbose, quiet

    def __init__(self, json: bytes, verdict: bytes, texts: List[bytes], forms: Dict[str, bytes]) -> None:
        self._parts = (json, verdict, texts, forms)

    @classmethod
    def of(cls, said: 'Answer') -> '_Kept':
        """Everything that `said` can print, compressed."""
        core = said._core
        if isinstance(core, cls):
            return core
        texts = [zlib.compress(core.text(color, full, verbose, quiet, 0)) for color, full, verbose, quiet in cls._FLAGS]
        forms = {name: zlib.compress(core.form(name, None)) for name in said._FORMS}
        return cls(zlib.compress(core.json()), core.verdict(), texts, forms)

    def __reduce__(self) -> Tuple[Any, ...]:
        return type(self), self._parts

    def json(self) -> bytes:
        return zlib.decompress(self._parts[0])

    def verdict(self) -> bytes:
        return self._parts[1]

    def text(self, color: bool, full_stacks: bool, verbose: bool, quiet: bool, width: int) -> bytes:
        flags = (bool(color), bool(full_stacks), bool(verbose), bool(quiet))
        return zlib.decompress(self._parts[2][self._FLAGS.index(flags)])

    def form(self, name: str, root: Optional[str]) -> bytes:
        if root is not None:
            raise UnsupportedError('an answer that was pickled takes no root')
        if name not in self._parts[3]:
            raise UsageError(f'the answer has no form {name!r}')
        return zlib.decompress(self._parts[3][name])


_Said = TypeVar('_Said', bound='Answer')


class Answer(Record):
    """The answer to a question. `devices` has one entry per device; if there is only one GPU, or
    only pinned host memory, its fields are also the answer's own. Of several GPUs, their lists are joined: `stacks` has the records of
    all, each with the number of its `device`. str() is what the command prints, repr() its verdict."""

    __slots__ = ('_core', '__weakref__')
    if TYPE_CHECKING:  # else a hint of a field
        _core: Union['_Core', '_Kept']
    _FORMS: ClassVar[Tuple[str, ...]] = ()

    schema: str
    command: str
    inputs: Tuple[Input, ...]
    devices: Sequence[Any]
    warnings: Tuple[Warning, ...]

    def __init__(self, core: 'Union[_Core, _Kept]') -> None:
        super().__init__(json.loads(core.json()))
        object.__setattr__(self, '_core', core)

    def __contains__(self, name: object) -> bool:
        if name in self._data:
            return True
        try:
            self._of_devices(str(name))
        except KeyError:
            return False
        return True

    def __getitem__(self, name: str) -> Any:
        """A field of the answer, or of its devices."""
        return super().__getitem__(name) if name in self._data else self._of_devices(name)

    if not TYPE_CHECKING:
        def __getattr__(self, name: str) -> Any:
            if name.startswith('__'):
                raise AttributeError(name)
            try:
                return self[name]
            except KeyError:
                gpus = self._gpus()
            if len(gpus) == 1:
                return getattr(gpus[0], name)  # which says what there is
            if not gpus:
                return super().__getattr__(name)  # likewise
            raise AttributeError(f'{type(self).__name__} has no field {name!r}; the answer is about '
                                 f'{len(self["devices"])} devices, see its .devices')

    def _gpus(self) -> Sequence[Record]:
        """All devices but pinned host memory; or that alone."""
        devices: Sequence[Record] = self['devices'] if 'devices' in self._data else ()
        return [device for device in devices if device['device'] != 'host'] or devices

    def _of_devices(self, name: str) -> Any:
        """A field of the only device; or the lists of several as one, each of whose records has its device's number as `device`."""
        gpus = self._gpus()
        if len(gpus) == 1:
            return gpus[0][name]
        if not gpus or not all(isinstance(device._data.get(name), list) for device in gpus):
            raise KeyError(name)
        return tuple(type(row)({'device': device['device'], **row._data}) if isinstance(row, Record) else row
                     for device in gpus for row in device[name])

    def __reduce__(self) -> Tuple[Any, ...]:
        return type(self), (_Kept.of(self),)

    def __copy__(self: _Said) -> _Said:
        return type(self)(self._core)

    def __deepcopy__(self: _Said, memo: Any) -> _Said:
        return type(self)(self._core)  # which never changes

    def __dir__(self) -> List[str]:
        names = super().__dir__()
        gpus = self._gpus()
        return sorted({*names, *gpus[0]}) if len(gpus) == 1 else names

    def text(self, *, full_stacks: bool = False, verbose: bool = False, quiet: bool = False,
             color: bool = False, width: int = 0) -> str:
        """What the command prints with these options; `width` is the number of columns to which long
        names are shortened, 0 for no limit. An answer from a pickle does not shorten them."""
        printed = self._core.text(color, full_stacks, verbose, quiet, width)
        return printed.decode('utf-8', 'replace')

    @property
    def verdict(self) -> List[str]:
        """What was found, in a sentence for each device or for the whole."""
        return self._core.verdict().decode('utf-8', 'replace').splitlines()

    def json(self) -> str:
        """What the command prints with --json."""
        return self._core.json().decode('utf-8')

    def __str__(self) -> str:
        return self.text().rstrip('\n')

    def __repr__(self) -> str:
        return '\n'.join(self.verdict) or super().__repr__()

    def _repr_html_(self) -> str:
        from . import _html
        return _html.answer(self)


class Judged(Answer):
    """An answer that is true if it passed, and has forms for other programs."""

    __slots__ = ()
    _FORMS = ('lock', 'junit', 'sarif', 'markdown')

    def __bool__(self) -> bool:
        return bool(self['passed'] and self['results'])

    def lock(self) -> str:
        """The measured figures as the text of a lock, to be kept with the code."""
        return self._core.form('lock', None).decode('utf-8')

    def form(self, name: str, root: Optional[str] = None) -> str:
        """The check as 'junit', 'sarif' or 'markdown'; `root` is the folder of the checkout as it
        appears in the snapshot."""
        return self._core.form(name, root).decode('utf-8')


class Unframed(Answer):
    """An answer about no snapshot and no device: its JSON has only fields of its own."""

    __slots__ = ()


class Drawn(Unframed):
    """An answer about many ranks: it can be shown as a page, has forms for other programs, and is false if it had budgets and did not
    pass."""

    __slots__ = ()
    _FORMS = ('junit', 'markdown', 'prometheus')

    def __bool__(self) -> bool:
        return self['passed'] is not False

    def form(self, name: str) -> str:
        """The checks as 'junit' or 'markdown', or the ranks' memory as 'prometheus' reads it."""
        return self._core.form(name, None).decode('utf-8')

    def view(self, target: Any = None, *, width: 'Length' = None, height: 'Length' = None) -> 'Optional[Page]':
        """The answer as one HTML page, which needs no network: written to `target`, a path or file object, or returned, and then
        a notebook shows it, `width` wide and `height` high (pixels, or a text such as '80%')."""
        from . import _page
        if isinstance(self._core, _Kept):
            raise UnsupportedError('an answer that was pickled has no page: ask again')
        core, name = self._core, self['inputs'][0]['path']
        return _page.shown(target, lambda path: core.view(name, path), name, width=width, height=height)
