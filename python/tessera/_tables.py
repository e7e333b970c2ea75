"""Columns of a snapshot, and tables of them.

A column is an array in the library's memory: numpy.asarray(), memoryview() and Arrow take it without
a copy, and it stays valid when the snapshot is closed. A table is converted to pandas with to_pandas(), and
is usable as it is by everything that supports Arrow's PyCapsule interface: pyarrow.table(s.events), polars.DataFrame(
s.events), duckdb ...
"""
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Union

from . import _core

_NO_ID = 0xFFFFFFFF
_ARROW = {'B': 'C', 'I': 'I', 'q': 'l', 'Q': 'L', '?': 'b'}


class _Field(NamedTuple):
    """Description of a column for other programs."""
    name: str
    column: Any
    kind: str = 'number'  # number; id: the largest number means none; time; text: a code of `texts`
    texts: Optional[List[str]] = None
    format: str = 'Q'

    def arrow(self):
        """The form that _core.Table takes."""
        if self.kind == 'time':
            return self.name, self.column, 'tsu:UTC', None
        texts = None
        if self.texts is not None:
            texts = [text.encode('utf-8', 'replace') for text in self.texts]
        return self.name, self.column, _ARROW[self.format], texts

    def pandas(self, numpy, pandas):
        """Values for a Series; missing ids are -1."""
        array = numpy.asarray(self.column)
        if self.kind == 'time':
            return array.view('datetime64[us]')  # INT64_MIN means no time, in pandas too
        if self.kind == 'number':
            return array
        if self.format == 'I':
            array = numpy.where(array == _NO_ID, -1, array.astype('int64'))
        if self.kind == 'id':
            return array
        return pandas.Categorical.from_codes(array.astype('int64'), self.texts)


class Table:
    """Columns of one length, as attributes and by name."""

    names: 'tuple[str, ...]' = ()

    def _fields(self) -> List[_Field]:
        raise NotImplementedError

    def __len__(self) -> int:
        return len(self[self.names[0]])

    def __getitem__(self, name: str) -> Any:
        if name not in self.names:
            raise KeyError(name)
        return getattr(self, name)

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __repr__(self) -> str:
        return f'<tessera {type(self).__name__}: {len(self):,} rows of {", ".join(self.names)}>'

    def to_pandas(self) -> Any:
        """A pandas.DataFrame; plain columns are not copied."""
        import numpy
        import pandas
        return pandas.DataFrame({field.name: field.pandas(numpy, pandas)
                                 for field in self._fields()}, copy=False)

    def _table(self) -> Any:
        return _core.Table([field.arrow() for field in self._fields()])

    def __arrow_c_schema__(self) -> Any:
        return self._table().__arrow_c_schema__()

    def __arrow_c_array__(self, requested_schema: Any = None) -> Any:
        return self._table().__arrow_c_array__(requested_schema)

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self._table().__arrow_c_stream__(requested_schema)


class Events(Table):
    """A device's trace, oldest event first. `action` holds codes of `actions`; `stack` and `stream`,
    `pool`, `context`, `metadata`, `category` hold ids, and 4294967295 for none. In tables, ids are
    replaced by the values they refer to, except for stacks."""

    names = ('action', 'addr', 'size', 'time_us', 'stack', 'stream', 'pool', 'context', 'metadata',
             'category')

    def __init__(self, core: Any, device: int) -> None:
        self._core, self._number = core, device
        self.device: Union[int, str] = 'host' if device == 2**32 - 2 else device
        self._columns: Dict[str, Any] = {}

    def __getattr__(self, name: str) -> Any:
        if name not in type(self).names:
            raise AttributeError(f'{type(self).__name__} has no column {name!r}; it has '
                                 f'{", ".join(type(self).names)}')
        if name not in self._columns:
            self._columns[name] = self._core.events(self._number, name)
        return self._columns[name]

    @property
    def actions(self) -> List[str]:
        """Names of the codes of `action`."""
        return self._core.actions()

    def _text(self, name: str, limit: int, text: Any) -> _Field:
        codes, ids = self[name]._factorize(limit)
        return _Field(name, codes, 'text', [text(number) for number in ids], 'I')

    def _fields(self) -> List[_Field]:
        core = self._core
        strings = core.counts()[0]
        streams, ids = self.stream._factorize(1 << 20)
        return [_Field('action', self.action, 'text', self.actions, 'B'),
                _Field('addr', self.addr), _Field('size', self.size),
                _Field('time', self.time_us, 'time'),
                _Field('stack', self.stack, 'id', None, 'I'),
                _Field('stream', streams._lookup([core.stream(number) for number in ids])),
                self._text('pool', 1 << 20, lambda number: str(core.pool(number))),
                self._text('context', strings, core.string),
                self._text('metadata', strings, core.string),
                self._text('category', strings, core.string)]


class _Columns(Table):
    """A table whose columns are all given at once."""

    def __init__(self, core: Any, columns: Dict[str, Any]) -> None:
        self._core, self._columns = core, columns

    def __getattr__(self, name: str) -> Any:
        try:
            return self.__dict__['_columns'][name]
        except KeyError:
            raise AttributeError(f'{type(self).__name__} has no column {name!r}') from None

    _kinds: Dict[str, str] = {}

    def _field(self, name: str) -> _Field:
        kind = self._kinds.get(name, 'Q')
        if kind == 'id':
            return _Field(name, self[name], 'id', None, 'I')
        return _Field(name, self[name], format=kind)

    def _fields(self) -> List[_Field]:
        return [self._field(name) for name in self.names]


class Segments(_Columns):
    """Memory that PyTorch held from the driver when the snapshot was taken."""

    names = ('device', 'address', 'total_bytes', 'allocated_bytes', 'active_bytes',
             'requested_bytes', 'stream', 'first_block', 'block_count', 'stack', 'pool', 'is_large',
             'is_expandable')
    _kinds = {'device': 'I', 'stack': 'id', 'pool': 'id', 'is_large': '?', 'is_expandable': '?'}


class Blocks(_Columns):
    """The parts of segments, in address order within each."""

    names = ('address', 'size_bytes', 'requested_bytes', 'stack', 'state')
    states = ['inactive', 'active_allocated', 'active_pending_free', 'unknown']
    _kinds = {'stack': 'id'}

    def _field(self, name: str) -> _Field:
        if name == 'state':
            return _Field(name, self.state, 'text', self.states, 'B')
        return super()._field(name)


class Allocations(_Columns):
    """Every allocation of a trace, by birth. `birth` is the event that allocated it, -1 for memory from
    before the recording; `death` is the event after which its memory was free, or the event count.
    `category` holds codes of `categories`, `stream` ids."""

    names = ('birth', 'death', 'address', 'requested_bytes', 'block_bytes', 'stack', 'stream',
             'category')
    _kinds = {'birth': 'q', 'death': 'q', 'stack': 'id', 'stream': 'id'}

    @property
    def categories(self) -> List[str]:
        """Names of the codes of `category`."""
        return _core.categories()

    def _field(self, name: str) -> _Field:
        if name == 'category':
            return _Field(name, self.category, 'text', self.categories, 'B')
        return super()._field(name)


class Totals(_Columns):
    """Requested, allocated, active and reserved bytes: row 0 before the first event, row i after
    event i - 1."""

    names = ('requested_bytes', 'allocated_bytes', 'active_bytes', 'reserved_bytes')
