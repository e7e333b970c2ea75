"""Columns of a snapshot, and tables of them.

A column is an array in the library's memory: numpy.asarray(), memoryview() and Arrow take it without
a copy, and it stays valid when the snapshot is closed. A table is a set of columns of one length. It
converts itself to pandas, polars and Arrow, and is usable as it is by everything that supports Arrow's PyCapsule
interface: pyarrow.table(s.events), duckdb, ...
"""
import datetime
import functools
import operator
from typing import (TYPE_CHECKING, Any, Callable, ClassVar, Dict, Iterator, List, Optional, Sequence, Tuple, Type, TypeVar,
                    Union)
from typing import cast, overload

from . import _core
from ._errors import UsageError

if TYPE_CHECKING:
    import pandas
    import polars
    import pyarrow

_ARROW = {'uint8': 'C', 'uint32': 'I', 'int64': 'l', 'uint64': 'L', 'bool': 'b'}
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)
_SHOWN_ROWS, _SHOWN_WIDTH = 10, 40

Column = _core.Column


def _calculated(name: str, left: Any, right: Any) -> Any:
    """Arithmetic with a column is numpy's: in signed numbers where these can hold it, so that differences may be negative; rows
    without a value are NaN."""
    def operand(value: Any) -> Any:
        if not isinstance(value, Column):
            return value
        if value.names is not None:
            raise UsageError('texts have no arithmetic')
        array, missing = value.to_numpy(), value.is_null().to_numpy()
        if missing.any():
            return numpy.where(missing, numpy.nan, array)
        is_small = array.dtype.kind == 'u' and (not len(array) or array.max() < 2**63)
        return array.astype('int64') if is_small else array
    import numpy
    return getattr(operator, name)(operand(left), operand(right))


_core.set_calculator(_calculated)
Source = Callable[[str], Column]


class _Field:
    """Description of a column of a table: an attribute of the class, which is the column for a table.

    `kind` is 'number', 'time' or 'text', whose column has codes of its `names`; `type` that of its
    items."""

    def __init__(self, type: str, kind: str = 'number', may_lack: bool = False) -> None:
        self.type, self.kind, self.may_lack = type, kind, may_lack
        self.name = ''

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    @overload
    def __get__(self, table: None, owner: type) -> '_Field': ...

    @overload
    def __get__(self, table: 'Table', owner: type) -> Column: ...

    def __get__(self, table: Optional['Table'], owner: type) -> Union['_Field', Column]:
        return self if table is None else table._column(self.name)

    def arrow(self, column: Column) -> Tuple[str, Column, str, Optional[List[bytes]]]:
        """The form that _core.Table takes."""
        if self.kind == 'time':
            return self.name, column, 'tsu:UTC', None
        texts = None
        if self.kind == 'text':
            texts = [text.encode('utf-8', 'replace') for text in column.names or ()]
        return self.name, column, _ARROW[self.type], texts

    def pandas(self, column: Column) -> Any:
        """Values for a Series."""
        import numpy
        import pandas
        array = column.to_numpy()
        if self.kind == 'time':
            return pandas.DatetimeIndex(array.view('datetime64[us]')).tz_localize('UTC')
        if self.kind == 'text':
            missing = column.is_null().to_numpy()
            codes = numpy.where(missing, -1, array.astype('int64'))
            return pandas.Categorical.from_codes(codes, pandas.Index(_distinct(column.names or []), dtype=str))
        if self.may_lack:
            missing = column.is_null().to_numpy()
            return pandas.arrays.IntegerArray(numpy.ascontiguousarray(array), missing.copy())
        return array

    def values(self, column: Column) -> List[Any]:
        """Values for people: texts instead of codes, datetimes instead of microseconds, None for none."""
        names = column.names
        numbers, missing = column.tolist(), column.is_null().tolist()
        found: List[Any] = []
        for number, lacks in zip(numbers, missing):
            if lacks:
                found.append(None)
            elif self.kind == 'time':
                found.append(_datetime(number))
            else:
                found.append(number if names is None else names[number])
        return found


def _datetime(time_us: int) -> Union[datetime.datetime, int]:
    """A time in UTC; as it is if no calendar has it."""
    try:
        return _EPOCH + datetime.timedelta(microseconds=time_us)
    except OverflowError:
        return time_us


def _distinct(names: List[str]) -> List[str]:
    """Texts for pandas, which wants each once: ids of a damaged file may share a text."""
    if len(set(names)) == len(names):
        return names
    seen: Dict[str, int] = {}
    found = []
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        found.append(name if seen[name] == 1 else f'{name} ({seen[name]})')
    return found


def _number(may_lack: bool = False) -> _Field:
    return _Field('uint64', may_lack=may_lack)


def _event() -> _Field:
    return _Field('int64')


def _id() -> _Field:
    return _Field('uint32', may_lack=True)


def _time() -> _Field:
    return _Field('int64', 'time', may_lack=True)


def _text(type: str = 'uint32') -> _Field:
    return _Field(type, 'text', may_lack=True)


def _flag() -> _Field:
    return _Field('bool')


_T = TypeVar('_T', bound='Table')


class Table:
    """Columns of one length, as attributes and by name: `table.address`, `table['address']`, and several as a table:
    `table[['address', 'stack']]`. Slices, masks and lists of row numbers choose rows: `table[:10]`, `table[table.size_bytes > 2**20]`.
    Columns have sum(), min() and max(), and arithmetic on them gives numpy arrays. To join, group and plot, convert the
    table: to_pandas(), to_polars() and to_arrow() share its memory."""

    columns: ClassVar[Tuple[str, ...]] = ()
    """The names of the columns, in order."""

    def __init_subclass__(cls) -> None:
        cls.columns = tuple(name for name, value in vars(cls).items() if isinstance(value, _Field))

    def __init__(self, source: Source) -> None:
        self._source = source
        self._loaded: Dict[str, Column] = {}

    def __setattr__(self, name: str, value: Any) -> None:
        if name in type(self).columns or name == 'columns':
            raise AttributeError('a table is read-only')
        object.__setattr__(self, name, value)

    def _column(self, name: str) -> Column:
        if name not in self._loaded:
            self._loaded[name] = self._source(name)
        return self._loaded[name]

    @classmethod
    def _field(cls, name: str) -> _Field:
        return cast(_Field, vars(cls)[name])

    @property
    def shape(self) -> Tuple[int, int]:
        """The numbers of rows and of columns."""
        return len(self), len(self.columns)

    def __len__(self) -> int:
        return len(self._column(self.columns[0]))

    @overload
    def __getitem__(self, key: str) -> Column: ...

    @overload
    def __getitem__(self: _T, key: Any) -> _T: ...

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, str):
            if key not in self.columns:
                raise KeyError(key)
            return self._column(key)
        if isinstance(key, (list, tuple)) and any(isinstance(name, str) for name in key):
            return self._columns_of(key)
        if isinstance(key, slice):
            return self._part(lambda name: self._column(name)[key])
        if hasattr(key, '__index__') and not hasattr(key, '__len__'):
            raise UsageError('a table has columns by name, and rows by slice, mask or list: '
                            f'[{key}:{key + 1}] for one row')
        rows = _core.rows(key, len(self))
        return self._part(lambda name: self._column(name)[rows])

    def __reduce__(self) -> Any:
        raise UsageError(f'{type(self).__name__} cannot be pickled; to_pandas() and to_arrow() can, and so can '
                        'its snapshot')

    def _part(self: _T, source: Source) -> _T:
        part = type(self).__new__(type(self))
        part.__dict__.update(self.__dict__)
        part._source, part._loaded = source, {}
        return part

    def _columns_of(self: _T, names: Sequence[str]) -> _T:
        for name in names:
            if name not in self.columns:
                raise KeyError(name)
        part = self._part(self._column)
        part.__dict__['columns'] = tuple(dict.fromkeys(names))
        return part

    def sort(self: _T, by: str, descending: bool = False) -> _T:
        """The rows in the order of a column, those that are equal in the order that they have; rows without a value are the last."""
        if not isinstance(by, str):
            raise UsageError(f'rows are sorted by the name of a column, not {by!r}')
        column: Column = self[by]
        values, names, absent = column.tolist(), column.names, column.is_null().tolist()
        key = values.__getitem__ if names is None else lambda row: names[values[row]]
        rows = sorted((row for row, lacks in enumerate(absent) if not lacks), key=key, reverse=descending)
        return self[rows + [row for row, lacks in enumerate(absent) if lacks]]

    def __iter__(self) -> Iterator[str]:
        return iter(self.columns)

    if not TYPE_CHECKING:
        def __getattr__(self, name: str) -> Any:
            raise AttributeError(f'{type(self).__name__} has no column {name!r}; it has '
                                 f'{", ".join(self.columns)}')

    def head(self: _T, count: int = 5) -> _T:
        """The first rows."""
        return self._part(lambda name: self._column(name)[:count])

    def tail(self: _T, count: int = 5) -> _T:
        """The last rows."""
        start = max(len(self) - count, 0) if count >= 0 else -count
        return self._part(lambda name: self._column(name)[start:])

    def to_dict(self) -> Dict[str, List[Any]]:
        """A list of Python values for each column, as in the table that is shown: texts, datetimes, None."""
        return {name: self._field(name).values(self._column(name)) for name in self.columns}

    def to_pandas(self) -> 'pandas.DataFrame':
        """A pandas.DataFrame. Plain columns are not copied. Texts are categories, times have the time
        zone UTC, and integers that may be missing are nullable (UInt32, UInt64)."""
        import pandas
        return pandas.DataFrame({name: self._field(name).pandas(self._column(name))
                                 for name in self.columns}, copy=False)

    def to_arrow(self) -> 'pyarrow.Table':
        """A pyarrow.Table; what pyarrow.table() makes of it. Plain columns are not copied."""
        import pyarrow
        return pyarrow.table(self)

    def to_polars(self) -> 'polars.DataFrame':
        """A polars.DataFrame; what polars.DataFrame() makes of it. Plain columns are not copied."""
        import polars
        return polars.DataFrame(self)

    def _table(self) -> _core.Table:
        return _core.Table([self._field(name).arrow(self._column(name)) for name in self.columns])

    def __arrow_c_schema__(self) -> Any:
        """Arrow's PyCapsule interface: the types of the columns."""
        return self._table().__arrow_c_schema__()

    def __arrow_c_array__(self, requested_schema: Any = None) -> Tuple[Any, Any]:
        """Arrow's PyCapsule interface: the columns as one record batch. It has the table's types, whatever
        is requested."""
        return self._table().__arrow_c_array__(requested_schema)

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """Arrow's PyCapsule interface: the columns as a stream of one record batch."""
        return self._table().__arrow_c_stream__(requested_schema)

    # ---- as shown ----

    def _shown(self) -> Tuple[Dict[str, List[str]], int]:
        """Cells of the first and last rows, as text, and how many come before the gap between them; -1 for
        no gap."""
        first, last = self, None
        if len(self) > _SHOWN_ROWS:
            first, last = self.head(_SHOWN_ROWS // 2), self.tail(_SHOWN_ROWS // 2)
        cells = {name: [_cell(name, value) for value in values]
                 for name, values in first.to_dict().items()}
        if last is None:
            return cells, -1
        for name, values in last.to_dict().items():
            cells[name] += [_cell(name, value) for value in values]
        return cells, _SHOWN_ROWS // 2

    def _caption(self) -> str:
        rows, columns = self.shape
        return f'{type(self).__name__}: {rows:,} row{"s" * (rows != 1)}, {columns} columns'

    def __repr__(self) -> str:
        cells, gap = self._shown()
        texts = [self._aligned(name, [name, *(_brief(cell) for cell in cells[name])]) for name in cells]
        lines = ['  '.join(row).rstrip() for row in zip(*texts)]
        if gap >= 0:
            lines.insert(gap + 1, '...')
        return '\n'.join([self._caption(), *lines])

    def _aligned(self, name: str, cells: List[str]) -> List[str]:
        width = max(map(len, cells))
        is_left = self._field(name).kind == 'text'
        return [cell.ljust(width) if is_left else cell.rjust(width) for cell in cells]

    def _repr_html_(self) -> str:
        from . import _html
        cells, gap = self._shown()
        rows: List[Optional[List[str]]] = [list(row) for row in zip(*cells.values())]
        if gap >= 0:
            rows.insert(gap, None)
        is_left = [self._field(name).kind == 'text' for name in self.columns]
        return _html.table(self.columns, rows, is_left, self._caption())


def _brief(cell: str) -> str:
    return cell if len(cell) <= _SHOWN_WIDTH else cell[:_SHOWN_WIDTH - 3] + '...'


def _cell(name: str, value: Any) -> str:
    """A value as text, safe for a terminal."""
    if value is None:
        return 'None'
    if isinstance(value, datetime.datetime):
        return value.isoformat(' ').replace('+00:00', '')
    if name == 'address':
        return f'{value:#x}'
    return _core.terminal_clean(value) if isinstance(value, str) else str(value)


def _ids(column: Column, limit: int, text: Callable[[int], str]) -> Column:
    """Codes of texts, for a column of ids."""
    codes, ids = column._factorize(limit)
    return codes._named([text(number) for number in ids])


def _pool_name(core: _core.Snapshot, number: int) -> str:
    return '(%d, %d)' % core.pool(number)


class Events(Table):
    """A device's trace, oldest event first. `address` and `size_bytes` of an action "oom" are the driver's free
    bytes and those requested. `stack` has ids, for Snapshot.stack() and the tables stacks and frames;
    `context`, `metadata` and `category` are texts of the file: compile_context, user_metadata, category."""

    event = _event()
    action = _text('uint8')
    address = _number()
    size_bytes = _number()
    time_us = _time()
    stack = _id()
    stream = _number(may_lack=True)
    pool = _text()
    context = _text()
    metadata = _text()
    category = _text()

    def __init__(self, core: _core.Snapshot, number: int) -> None:
        super().__init__(functools.partial(_event_column, core, number))
        self.device: Union[int, str] = 'host' if number == 2**32 - 2 else number


def _event_column(core: _core.Snapshot, device: int, name: str) -> Column:
    if name == 'event':
        return _core.range(0, core.event_count(device))
    column = core.events(device, name)
    if name == 'action':
        return column._named(core.actions())
    if name == 'stream':
        codes, ids = column._factorize(1 << 20)
        return codes._lookup([core.stream(number) for number in ids])
    if name == 'pool':
        return _ids(column, 1 << 20, lambda number: _pool_name(core, number))
    if name in ('context', 'metadata', 'category'):
        return _ids(column, core.counts()[0], core.string)
    return column


class Segments(Table):
    """Memory that PyTorch held from the driver when the snapshot was taken, of all devices. `device` is
    4294967294 for pinned host memory. The blocks of a segment are rows `first_block` to `first_block + block_count - 1`
    of the table of blocks."""

    device = _Field('uint32')
    address = _number()
    size_bytes = _number()
    allocated_bytes = _number()
    active_bytes = _number()
    requested_bytes = _number()
    stream = _number()
    first_block = _number()
    block_count = _number()
    stack = _id()
    pool = _text()
    is_large = _flag()
    is_expandable = _flag()

    def __init__(self, core: _core.Snapshot) -> None:
        found = core.segments()
        found['pool'] = _ids(found['pool'], 1 << 20, lambda number: _pool_name(core, number))
        super().__init__(found.__getitem__)


class Blocks(Table):
    """The parts of segments, in address order within each. `size_bytes` is what a block occupies,
    `requested_bytes` what the program asked for, if it is live."""

    device = _Field('uint32')
    address = _number()
    size_bytes = _number()
    requested_bytes = _number()
    stack = _id()
    state = _text('uint8')

    def __init__(self, core: _core.Snapshot) -> None:
        found = core.blocks()
        found['state'] = found['state']._named(
            ['inactive', 'active_allocated', 'active_pending_free', 'unknown'])
        super().__init__(found.__getitem__)


class Allocations(Table):
    """Every allocation of the trace, by device and birth. `birth_event` is the event that allocated it, -1 for
    memory from before the recording; `death_event` the event after which its memory was free, or the
    number of events if that was never. `size_bytes` is what its block occupies, `requested_bytes` what the
    program asked for."""

    device = _Field('uint32')
    birth_event = _event()
    birth_time_us = _time()
    death_event = _event()
    death_time_us = _time()
    address = _number()
    requested_bytes = _number()
    size_bytes = _number()
    stack = _id()
    stream = _number(may_lack=True)
    category = _text('uint8')

    def __init__(self, core: _core.Snapshot, devices: Optional[List[int]]) -> None:
        found = core.allocations({'devices': devices})
        found['category'] = found['category']._named(_core.categories())
        super().__init__(found.__getitem__)

    def live(self, event: int) -> 'Allocations':
        """Those that were live after an event."""
        return self[(self.birth_event <= event) & (self.death_event > event)]


class Totals(Table):
    """PyTorch's four totals after each event; row 0 is the state before the first event, whose number
    is -1."""

    event = _event()
    time_us = _time()
    requested_bytes = _number()
    allocated_bytes = _number()
    active_bytes = _number()
    reserved_bytes = _number()

    def __init__(self, core: _core.Snapshot, device: int) -> None:
        super().__init__(core.totals(device).__getitem__)


class Stacks(Table):
    """The distinct stacks, to be joined with other tables by `stack`. `name`, `file` and `line` are those of
    the frame that stands for the stack in lists, the program's innermost one if there is one; `place` is
    its text there, the name of a group of profile(by='line'). `depth` is the number of frames."""

    stack = _Field('uint32')
    depth = _Field('uint32')
    name = _text()
    file = _text()
    line = _number(may_lack=True)
    place = _text()

    def __init__(self, core: _core.Snapshot) -> None:
        found, places = core.stacks()
        found['place'] = _ids(found['place'], len(places), places.__getitem__)
        super().__init__(_texts_of(found, core))


class Frames(Table):
    """Every frame of every stack, to be joined with other tables by `stack`. `depth` is 0 for the innermost
    frame."""

    stack = _Field('uint32')
    depth = _Field('uint32')
    name = _text()
    file = _text()
    line = _number(may_lack=True)

    def __init__(self, core: _core.Snapshot) -> None:
        super().__init__(_texts_of(core.frames(), core))


def _texts_of(found: Dict[str, Column], core: _core.Snapshot) -> Source:
    for name in ('name', 'file'):
        found[name] = _ids(found[name], core.counts()[0], core.string)
    return found.__getitem__


TABLES: Tuple[Type[Table], ...] = (Events, Segments, Blocks, Allocations, Totals, Stacks, Frames)
