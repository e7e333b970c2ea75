"""The class Snapshot, and open()."""
import functools
import json
import operator
import os
import threading
import weakref
from builtins import open as io_open
from collections import OrderedDict
from typing import (TYPE_CHECKING, Any, Callable, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple,
                    Type, TypeVar, Union)

from . import _answers, _core, _files, _page, _tables
from ._errors import ArgumentError, NotFoundError, UsageError, not_found

__all__ = ['Snapshot', 'open', 'questions']

Path = Union[str, 'os.PathLike[str]']
Device = Union[int, str]  # a number, 'cpu', or 'host': pinned host memory
Devices = Union[None, Device, Iterable[Device]]
# TSR_DEVICE_HOST and _CPU, the numbers of these in C and in columns.
_WORDS = {'host': 2**32 - 2, 'cpu': 2**32 - 3}
_NAMES = {number: word for word, number in _WORDS.items()}


def _number(device: Device) -> int:
    if isinstance(device, str):
        if device in _WORDS:
            return _WORDS[device]
        raise UsageError(f"a device is a number, 'cpu' or 'host', not {device!r}")
    try:
        return operator.index(device)
    except TypeError:
        raise UsageError(f"a device is a number, 'cpu' or 'host', not {device!r}") from None


def _devices(devices: Union[None, Device, Iterable[Device]]) -> Optional[List[int]]:
    """Each device once, in the order given; None for all."""
    if devices is None:
        return None
    given: Any = [devices] if isinstance(devices, str) or hasattr(type(devices), '__index__') else devices
    if not isinstance(given, Iterable):
        raise UsageError(f"a device is a number, 'cpu' or 'host', not {devices!r}")
    numbers = list(dict.fromkeys(_number(device) for device in given))
    if not numbers:
        raise ArgumentError('no device is given; None selects all of them')
    return numbers


Range = Tuple[Optional[int], Optional[int]]
_A = TypeVar('_A', bound=_answers.Answer)


def _sidecar(given: Union[None, bool, Path]) -> Optional[bytes]:
    """The path for the library: None selects the one next to the snapshot, "" none."""
    if given is None or given is True:
        return None
    return _files.encoded(given) if given else b''


def open(source: Any, *, progress: Optional[Callable[[int, int], Any]] = None,
         sidecar: Union[None, bool, Path] = None) -> 'Snapshot':
    """Open a snapshot: a path, bytes or anything that has a buffer, a binary file object, or the dict
    that torch.cuda.memory._snapshot() returns.

    Pickles of any protocol, JSON, PyTorch's HTML pages, and any of these compressed, are detected by
    their content. Nothing in them is executed. `progress` is called from time to time with the bytes
    read and the total.

    `sidecar` is the JSON file in which tessera.record named the program's tensors: the one next to the
    file is found by its name; False ignores it, a path selects another.
    """
    data = _files.data_of(source)
    if data is None:
        core = _core.open(*_files.path_of(source), progress, _sidecar(sidecar))
        return Snapshot(core, _files.inputs_of(os.fsencode(source), core.sidecar()))
    core = _core.read(*data, progress, _sidecar(sidecar))
    return Snapshot(core, _files.inputs_of(None, core.sidecar()))


def _unpickled(data: bytes, name: str, inputs: Tuple[bytes, ...]) -> 'Snapshot':
    return Snapshot(_core.read(data, name, None, None), inputs)


def questions() -> List[str]:
    """The names of the questions that this build of the library answers."""
    return sorted(_core.questions())


def _only_one(**given: Any) -> None:
    """Raise if more than one of these is given."""
    names = [name for name, value in given.items() if value is not None]
    if len(names) > 1:
        raise UsageError(f'at most one of {", ".join(given)}; given are {" and ".join(names)}')


def _content(path: Any, expected: str) -> bytes:
    """A file's content. Numbers are none: open() would take them for open files, and close them."""
    if not isinstance(path, (str, bytes, os.PathLike)):
        raise UsageError(f'{expected}, not {type(path).__name__}')
    return _read(path)


def _read(path: Any) -> bytes:
    try:
        with io_open(path, 'rb') as file:
            return file.read()
    except OSError as error:
        raise not_found(error, path) from None
    except ValueError as error:  # a zero byte in the name
        raise ArgumentError(f'{path!r}: {error}') from None


def _rules(rules: Any) -> Any:
    """Rules as text: from a mapping or list, a text, or a file."""
    if isinstance(rules, (dict, list, tuple)):
        return json.dumps(rules)
    if isinstance(rules, str):
        is_text = rules.lstrip()[:1] in ('{', '[') or '\n' in rules
        if is_text or (': ' in rules and not os.path.exists(rules)):
            return rules
    return _content(rules, 'rules are a mapping, a list, a text or a file')


def _budgets(budget: Any) -> List[str]:
    """Budgets as the command line takes them: SIZE, or CATEGORY=SIZE."""
    if budget is None:
        return []
    items = budget.items() if isinstance(budget, Mapping) else [('', budget)]
    for category, _ in items:
        if not isinstance(category, str):
            raise UsageError(f"a budget is for a category, or '' for all memory, not {category!r}")
    return [f'{category}={_size(size)}' if category else _size(size) for category, size in items]


def _size(size: Any) -> str:
    """A budget as the command line takes it: a number of bytes, of Python or NumPy, or a text such as '18GiB'."""
    if isinstance(size, str):
        return size
    try:
        number = None if isinstance(size, bool) else operator.index(size)
    except TypeError:
        number = None
    if number is None:
        raise UsageError(f"a budget is a whole number of bytes, or a text such as '18GiB', not {size!r}")
    return f'{number}B'


def _lock(lock: Any) -> Any:
    """The text of a lock: as given, or from a file."""
    if isinstance(lock, str) and '\n' in lock:
        return lock
    return _content(lock, 'a lock is a text or a file')


class _Cache:
    """Answers that were given before, so that the same question is computed once: the latest of this
    snapshot. An answer about two keeps the other open, so it is found only while the program holds it."""

    LIMIT = 32

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._own: 'OrderedDict[Any, Any]' = OrderedDict()
        self._of_two: 'weakref.WeakKeyDictionary[Any, Any]' = weakref.WeakKeyDictionary()

    def find(self, other: Any, key: Any) -> Any:
        with self._lock:
            if other is not None:
                return self._of_two.get(other, {}).get(key)
            if key in self._own:
                self._own.move_to_end(key)
            return self._own.get(key)

    def keep(self, other: Any, key: Any, answer: Any) -> Any:
        """The answer; of two threads that computed it, the first one's."""
        with self._lock:
            if other is not None:
                of_other = self._of_two.setdefault(other, weakref.WeakValueDictionary())
                return of_other.setdefault(key, answer)
            answer = self._own.setdefault(key, answer)
            while len(self._own) > self.LIMIT:
                self._own.popitem(last=False)
            return answer

    def clear(self) -> None:
        with self._lock:
            self._own.clear()
            self._of_two.clear()


class Snapshot:
    """An open snapshot. It never changes, and any number of threads may use it at once."""

    def __init__(self, core: _core.Snapshot, inputs: Tuple[bytes, ...] = ()) -> None:
        self._core = core
        self._inputs = inputs
        self._answers = _Cache()
        self._tables: Dict[Any, _tables.Table] = {}

    def __setattr__(self, name: str, value: Any) -> None:
        if not name.startswith('_'):
            raise AttributeError('a Snapshot never changes')
        object.__setattr__(self, name, value)

    def close(self) -> None:
        """Release the memory. Existing answers and columns stay valid; later questions raise
        ValueError. Closing is optional: a snapshot is released with its last reference."""
        self._core.close()
        self._answers.clear()
        self._tables.clear()

    def __enter__(self) -> 'Snapshot':
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def __repr__(self) -> str:
        try:
            self._core.input()
        except ValueError:
            return '<tessera Snapshot, closed>'
        return '\n'.join(self.info().verdict)

    def __reduce__(self) -> Tuple[Any, ...]:
        """A snapshot is pickled with all that it holds, names of tensors included; its format is then
        'pickle'."""
        data = self._core.export('pickle', {}, None)
        return _unpickled, (data, self.path, self._inputs)

    def _repr_html_(self) -> str:
        from . import _html
        return _html.snapshot(self)

    # ---- about the file ----

    @property
    def path(self) -> str:
        """The name of the input in answers."""
        return self._core.input()[2]

    @property
    def format(self) -> str:
        """The format it was read from, outermost first: 'pickle', 'gzip pickle', ..."""
        return self._core.input()[0]

    @property
    def input_bytes(self) -> int:
        """Stored size of the input in bytes."""
        return self._core.input()[1]

    @property
    def devices(self) -> List[Device]:
        """Devices that have events or segments: numbers, then 'cpu' for the CPU's memory and
        'host' for pinned host memory."""
        return [_NAMES.get(device, device) for device in self._core.devices()]

    @property
    def warnings(self) -> List[_answers.Warning]:
        """What the file lacks or contradicts, found while reading. Answers have further warnings, about
        the replay."""
        return [_answers.Warning({'code': code, 'count': count, 'message': message})
                for code, count, message in self._core.warnings()]

    # ---- questions ----

    def _ask(self, question: str, kind: Type[_A], device: Devices = None, top: int = 0,
             other: 'Optional[Snapshot]' = None, **options: Any) -> _A:
        """The answer; the same object for the same question."""
        options = {name: value for name, value in options.items() if value is not None}
        options.update(devices=_devices(device), top=top)
        key = (question, repr(sorted(options.items())))
        answer: Optional[_A] = self._answers.find(other, key)
        if answer is None:
            core = self._core.ask(question, options, *([other._core] if other else []))
            kept: _A = self._answers.keep(other, key, kind(core))
            return kept
        return answer

    def ask(self, question: str, other: Any = None, *, device: Devices = None, top: int = 10,
            **parameters: Any) -> _answers.Answer:
        """Any question that the library answers (questions() lists them), with its parameters by the
        names that `tessera help` has, '_' for '-'. `other` is a second snapshot, for questions about
        two. A question is a method too: snapshot.ask('peak') is snapshot.peak()."""
        if other is not None and not isinstance(other, Snapshot):
            other = open(other)
        kind: Type[_answers.Answer] = _answers.KINDS.get(question, _answers.Answer)
        return self._ask(question, kind, device, top, other, **parameters)

    if not TYPE_CHECKING:  # which would take a misspelt name for one of these; ask() has a type
        def __getattr__(self, name: str) -> Any:
            """A question that has no method below."""
            if name.startswith('_') or name not in _core.questions():
                raise AttributeError(f'{type(self).__name__!r} has no attribute {name!r}')
            return functools.partial(self.ask, name)

    def __dir__(self) -> List[str]:
        return sorted({*super().__dir__(), *_core.questions()})

    # Each method passes on further parameters by their names (`more`), so that what the library learns
    # can be asked here as well. Their texts are added to the documentation by _document.

    def info(self, *, device: Devices = None, **more: Any) -> _answers.Info:
        """What is in this file?"""
        return self._ask('info', _answers.Info, device, **more)

    def peak(self, *, device: Devices = None, top: int = 10, **more: Any) -> _answers.Peak:
        """What holds the memory at its peak? `top` is the number of stacks to list, 0 for all."""
        return self._ask('peak', _answers.Peak, device, top, **more)

    def at(self, event: Union[int, str, None] = None, *, time_us: Optional[int] = None,
           allocation: Optional[str] = None, action: Optional[str] = None, device: Devices = None,
           top: int = 10, **more: Any) -> _answers.At:
        """What held the memory at another moment: after an event (-1: before the first; or 'start', 'peak',
        'end'), at a time, or when a block was allocated or freed: 'cd1000000_1' is its address and the number of
        earlier frees there, and `action` is alloc, free_requested or free_completed."""
        if (event is not None) + (time_us is not None) + (allocation is not None) != 1:
            raise UsageError('pass one of event, time_us and allocation')
        return self._ask('at', _answers.At, device, top, event=event, time_us=time_us,
                         allocation=allocation, action=None if allocation is None else action, **more)

    def profile(self, by: Optional[str] = None, *, categories: Optional[str] = None,
                rules: Any = None, ordered: bool = False, over_time: Union[bool, int] = False,
                samples: Optional[int] = None, device: Devices = None, top: int = 10,
                **more: Any) -> _answers.Profile:
        """What is the memory for? `by` can also be 'mosaic-category', which is categories='mosaic'.
        `rules` are a dict of names and patterns, a list of rules, a text or a file of them.
        `over_time` adds a history of 200 moments, or of the given number, which is also `samples`."""
        by = by or ('rules' if rules is not None else 'category')
        if (by == 'rules') != (rules is not None):
            raise UsageError("by='rules' and rules=... go together")
        if by.replace('_', '-') == 'mosaic-category':
            by, categories = 'category', 'mosaic'
        if over_time is not True and over_time:
            samples = int(over_time)
        return self._ask('profile', _answers.Profile, device, top,
                         by=None if by == 'category' else by, categories=categories,
                         rules=None if rules is None else _rules(rules), ordered=ordered or None,
                         over_time=bool(over_time) or None, samples=samples, **more)

    def diff(self, other: Any, *, by: Optional[str] = None, device: Devices = None, top: int = 10,
             **more: Any) -> _answers.Diff:
        """What changed from this snapshot to `other`, a Snapshot or anything that open() takes?"""
        other = other if isinstance(other, Snapshot) else open(other)
        return self._ask('diff', _answers.Diff, device, top, other, by=by, **more)

    def stages(self, match: Union[str, Sequence[str]] = (), *, device: Devices = None,
               top: int = 10, **more: Any) -> _answers.Stages:
        """How high did memory go in each annotated stage, of those whose name contains one of the
        texts of `match`?"""
        texts = [match] if isinstance(match, str) else list(match)
        return self._ask('stages', _answers.Stages, device, top, match=texts or None, **more)

    def steps(self, *, device: Devices = None, top: int = 10, **more: Any) -> _answers.Steps:
        """Where do steps begin, and what does one need?"""
        return self._ask('steps', _answers.Steps, device, top, **more)

    def leaks(self, *, device: Devices = None, top: int = 10, **more: Any) -> _answers.Leaks:
        """What grows from step to step?"""
        return self._ask('leaks', _answers.Leaks, device, top, **more)

    def source(self, path: Path, *, text: Union[None, str, bytes] = None, compare: Any = None,
               device: Devices = None, top: int = 10, **more: Any) -> _answers.Source:
        """Which lines of a source file cost what? Its text is read from `path` unless given; if it is not on this machine, lines
        are told by their numbers. With `compare`, another snapshot, also what changed from this one to that one."""
        if text is None:
            try:
                text = _content(path, 'source is the path of a file')
                path = os.path.realpath(path)
            except NotFoundError:
                text = b''
        if compare is not None and not isinstance(compare, Snapshot):
            compare = open(compare)
        return self._ask('source', _answers.Source, device, top, compare,
                         source=(os.fspath(path), text), **more)

    def whatif(self, *settings: str, capacity: Union[None, int, str] = None,
               device: Devices = None, top: int = 10, outside: Optional[str] = None,
               **more: Any) -> _answers.Whatif:
        """What would other allocator settings ('expandable_segments:True'), or a card with another
        `capacity` (bytes, or '24GiB'), have done? Of the capacity, `outside` is not PyTorch's: a size, or
        'auto', what the sidecar shows."""
        return self._ask('whatif', _answers.Whatif, device, top, settings=list(settings) or None,
                         capacity=capacity, outside=outside, **more)

    def pools(self, event: Optional[int] = None, *, device: Devices = None, top: int = 10,
              **more: Any) -> _answers.Pools:
        """Which pools is reserved memory in, and which blocks keep it there: where memory ran out
        or most is reserved, or after `event`?"""
        return self._ask('pools', _answers.Pools, device, top, event=event, **more)

    def why(self, *settings: str, event: Optional[int] = None,
            capacity: Union[None, int, str] = None, device: Devices = None,
            top: int = 10, **more: Any) -> _answers.Why:
        """Why did it run out of memory, at its last failure or at that of the oom `event`? Tries
        `settings`, or the usual ones; `capacity` is the card's memory."""
        return self._ask('why', _answers.Why, device, top, event=event,
                         settings=list(settings) or None, capacity=capacity, **more)

    def check(self, max: Union[None, int, str, Mapping[str, Union[int, str]]] = None, *,
              max_reserved: Union[None, int, str] = None, lock: Any = None,
              tolerance: Union[None, int, str] = None, causes: bool = True, device: Devices = None,
              top: int = 10, **more: Any) -> _answers.Check:
        """Is it within its budget, and no worse than before? `max` limits allocated memory ('18GiB'), or,
        as a dict, categories ({'activation': '3GiB'}, and '' for all); `lock` is a file that
        Check.lock() was written to, or its text; `tolerance` is how far a figure may differ from the
        lock's: '1%', the default, or a size. The answer is true if it passed: something was checked, nothing
        failed, and the file leaves no doubt. Without a budget or lock nothing is checked, and the answer
        is false, but Check.lock() has the measured figures."""
        if lock is None and tolerance is not None:
            raise UsageError('tolerance goes with lock')
        return self._ask('check', _answers.Check, device, top, causes=causes, max=_budgets(max),
                         max_reserved=None if max_reserved is None else _size(max_reserved), lock=None if lock is None else _lock(lock),
                         tolerance=None if tolerance is None else str(tolerance), **more)

    # ---- columns ----

    def _table(self, name: Any, make: Callable[[], Any]) -> Any:
        """A table that is made once."""
        self._core.input()  # raises if the snapshot is closed
        if name not in self._tables:
            self._tables[name] = make()
        return self._tables[name]

    @property
    def events(self) -> _tables.Events:
        """The trace of the first device that has one, as a table; trace() returns another's."""
        devices = self.devices
        traced = [device for device in devices if self._core.event_count(_number(device))]
        return self.trace((traced or devices or [0])[0])

    def trace(self, device: Device) -> _tables.Events:
        """A device's events, as a table; it is empty if the device has none."""
        number = _number(device)
        if number < 0:
            raise ArgumentError(f'there is no device {device}')
        events: _tables.Events = self._table(number, lambda: _tables.Events(self._core, number))
        return events

    @property
    def segments(self) -> _tables.Segments:
        """The segments of all devices when the snapshot was taken, as a table. The device of pinned host
        memory is 4294967294 here."""
        segments: _tables.Segments = self._table('segments', lambda: _tables.Segments(self._core))
        return segments

    @property
    def blocks(self) -> _tables.Blocks:
        """The blocks in them, as a table; a segment refers to its rows."""
        blocks: _tables.Blocks = self._table('blocks', lambda: _tables.Blocks(self._core))
        return blocks

    @property
    def stacks(self) -> _tables.Stacks:
        """The distinct stacks, each with the line that stands for it in lists. Its column `stack` is that
        of other tables: s.live().to_pandas().merge(s.stacks.to_pandas(), on='stack')."""
        stacks: _tables.Stacks = self._table('stacks', lambda: _tables.Stacks(self._core))
        return stacks

    @property
    def frames(self) -> _tables.Frames:
        """Every frame of every stack, as a table, innermost first."""
        frames: _tables.Frames = self._table('frames', lambda: _tables.Frames(self._core))
        return frames

    def allocations(self, device: Devices = None) -> _tables.Allocations:
        """Every allocation with its lifetime, of all devices or of the given ones, as a table."""
        return _tables.Allocations(self._core, _devices(device))

    def live(self, event: Optional[int] = None, *, device: Devices = None) -> _tables.Allocations:
        """The allocations that were live at the peak of each device, or after an event, as a table."""
        if event is not None:
            self.at(event, device=device, top=1)  # raises if absent
            return self.allocations(device).live(event)
        allocations = self.allocations(device)
        chosen: Optional[_tables.Column] = None
        for one in self.peak(device=device, top=1).devices:
            mask = ((allocations.device == _number(one.device))
                    & (allocations.birth_event <= one.peak.event)
                    & (allocations.death_event > one.peak.event))
            chosen = mask if chosen is None else chosen | mask
        return allocations if chosen is None else allocations[chosen]

    def totals(self, device: Optional[Device] = None) -> _tables.Totals:
        """The four totals after each event of a device, the first one that has a trace if none is given,
        as a table."""
        return _tables.Totals(self._core, _number(self.events.device if device is None else device))

    def stack(self, number: int) -> List[_answers.Frame]:
        """The frames of a stack id in a column, innermost first; none for 4294967295."""
        if number in (0xFFFFFFFF, -1):
            return []
        return [_answers.Frame({'name': name, 'file': file, 'line': line})
                for name, file, line in self._core.stack(number, False)]

    @property
    def annotations(self) -> List[_answers.Record]:
        """Both ends of every record_function range, in the order of the file."""
        return [_answers.Record({'name': name, 'stage': stage, 'time_us': time_us,
                                 'device': device})
                for name, stage, time_us, device in self._core.annotations()]

    # ---- writing ----

    def export(self, target: Any = None, format: Optional[str] = None, *,
               event: Optional[int] = None, time_us: Optional[int] = None,
               events: Optional[Range] = None, times: Optional[Range] = None,
               device: Devices = None, full_stacks: bool = False) -> Optional[bytes]:
        """Write the snapshot in another format: 'pickle', 'json', 'folded', 'speedscope', 'pprof',
        'perfetto' or 'csv', as given or by the extension of the path. `target` is a path, a binary file
        object, or None for bytes. Flame graphs show the peak, or the given moment or range."""
        _only_one(event=event, time_us=time_us, events=events, times=times)
        if format is None:
            path = _files.encoded(target) if isinstance(target, (str, os.PathLike)) else b''
            format = _core.format_for(path)
            if format is None:
                endings = [ending for _, row, _ in _core.formats() for ending in row]
                raise ArgumentError(f'no format of export ends in {os.path.splitext(os.fsdecode(path))[1]!r}; '
                                    f"use one of {', '.join(endings)}, or choose one with format=")
        options: Dict[str, Any] = {'event': event, 'time_us': time_us, 'events': events,
                                   'times': times, 'full_stacks': full_stacks}
        if format not in [name for name, _, _ in _core.formats()]:
            raise ArgumentError(f'no such format: {format!r}')
        is_whole = any(name == format and whole for name, _, whole in _core.formats())
        if is_whole and (device is not None or any(value is not None for value in
                                                   (event, time_us, events, times))):
            raise UsageError('a whole snapshot has all devices and events; trim() cuts parts out')
        options['devices'] = _devices(device)
        chosen = format
        written: Optional[bytes] = _files.written(
            target, lambda path: self._core.export(chosen, options, path), inputs=self._inputs)
        return written

    def view(self, target: Any = None, *more: 'Snapshot', by: Optional[str] = None,
             rules: Any = None, ordered: bool = False, events: Optional[Range] = None,
             capacity: Union[None, int, str] = None, blocks: Optional[int] = None,
             limit: Union[None, int, str] = None, width: _page.Length = None, height: _page.Length = None,
             device: Devices = None) -> Optional[_page.Page]:
        """A picture of the trace as one HTML page, of this snapshot and `more`: written to `target`,
        a path or file object, or returned, and then a notebook shows it, without a server, `width` wide and `height` high
        (pixels, or a text such as '80%'). It opens with groups `by` (also metadata:KEY), `ordered` by allocation, at `events` (first, last); `rules` are those of profile(), `capacity` draws
        the card's memory, `blocks` limits the number of allocations shown individually, and `limit` the size of the page
        ('20MB', the default; a notebook shows at most 4 MB unless a limit is given)."""
        by, _, key = (by or ('rules' if rules is not None else 'category')).partition(':')
        by = by.replace('_', '-')
        *groupings, last = _core.groupings()
        if by not in groupings or key and by != 'metadata':
            raise ArgumentError(f'by takes {", ".join(groupings)} or {last}, not '
                                f'{by + (key and ":" + key)!r}')
        if by == 'rules' and rules is None:
            raise UsageError("by='rules' needs rules=...")
        most = _core.size(limit)
        options: Dict[str, Any] = {'by': by, 'key': key or None, 'ordered': ordered, 'blocks': blocks,
                                   'capacity_bytes': _core.size(capacity), 'most_bytes': most,
                                   'rules': None if rules is None else _rules(rules)}
        if events is not None:
            first = events[0] or 0
            options['first_event'] = first
            options['event_count'] = 0 if events[1] is None else events[1] - first + 1
        options['devices'] = _devices(device)
        others = [snapshot._core for snapshot in more]
        inputs = [path for snapshot in (self, *more) for path in snapshot._inputs]

        def smaller(bytes: int) -> str:
            page = self._core.view(others, {**options, 'most_bytes': bytes}, None) or b''
            return page.decode('utf-8', 'replace')
        return _page.shown(target, lambda path: self._core.view(others, options, path), self.path, width=width,
                           height=height, most=most, smaller=smaller, inputs=inputs)

    def trim(self, *, events: Optional[Range] = None, times: Optional[Range] = None,
             device: Devices = None) -> 'Snapshot':
        """A snapshot of a part of the trace: events (first, last), or times in microseconds, inclusive;
        None for an open end."""
        _only_one(events=events, times=times)
        return Snapshot(self._core.trim({'events': events, 'times': times,
                                         'devices': _devices(device)}), self._inputs)


def _document(owner: Any) -> None:
    """Add the library's own texts about parameters to the methods' documentation."""
    for question in _core.questions():
        method = vars(owner).get(question)
        rows = _core.question(question)[2]
        if method is None or not rows:
            continue
        lines = [f'{name}: {text}' + (f' One of {", ".join(choices)}.' if choices else '')
                 for name, text, choices in rows]
        method.__doc__ = f'{method.__doc__}\n\n        ' + '\n        '.join(lines)
    owner.view.__doc__ += f'\n\n        by: {", ".join(_core.groupings())}'


_document(Snapshot)
