"""The class Snapshot, and open()."""
import json
import os
import re
from builtins import open as io_open
from typing import Any, Callable, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple, Union

from . import _answers, _core, _files, _tables
from ._errors import ArgumentError

__all__ = ['Snapshot', 'open', 'questions']

Path = Union[str, 'os.PathLike[str]']
Devices = Union[None, int, Iterable[int]]
Range = Tuple[Optional[int], Optional[int]]

_BY = {'category': 0, 'annotation': 1, 'compile-context': 2, 'rules': 3, 'op': 4, 'module': 5,
       'line': 6, 'stack': 7, 'mosaic-category': 8}
_VIEWS = ('category', 'annotation', 'compile-context', 'rules', 'op', 'module', 'line', 'metadata',
          'stream', 'pool', 'stack', 'function', 'size')
_ACTIONS = {'alloc': 0, 'free_requested': 1, 'free_completed': 2, 'free': 2}
_ENDINGS = {'.speedscope.json': 'speedscope', '.perfetto.json': 'perfetto', '.json': 'json',
            '.folded': 'folded', '.pb.gz': 'pprof', '.csv': 'csv'}


def _sidecar(given: Union[None, bool, Path]) -> Optional[bytes]:
    """The path as the library takes it: None for the one beside the snapshot, nothing for none."""
    if given is None or given is True:
        return None
    return os.fsencode(given) if given else b''


def open(source: Any, *, progress: Optional[Callable[[int, int], Any]] = None,
         sidecar: Union[None, bool, Path] = None) -> 'Snapshot':
    """Open a snapshot: a path, bytes or anything that has a buffer, a binary file object, or the dict
    that torch.cuda.memory._snapshot() returns.

    Pickles of any protocol, JSON, PyTorch's HTML pages, and any of these compressed, are told by
    their content. Nothing in them is executed. `progress` is called now and then with the bytes read
    and the bytes in all.

    `sidecar` is the JSON in which tessera.record told of the program's tensors: the one beside the
    file is found by its name; False leaves it aside, a path takes another.
    """
    data = _files.data_of(source)
    if data is None:
        return Snapshot(_core.open(*_files.path_of(source), progress, _sidecar(sidecar)))
    return Snapshot(_core.read(*data, progress, _sidecar(sidecar)))


def questions() -> List[str]:
    """The names of the questions that this build of the library answers."""
    return sorted(_core.questions())


def size_of(value: Union[None, int, str]) -> Optional[int]:
    """Bytes, of a number or of a text such as '40GiB'."""
    if not isinstance(value, str):
        return value
    match = re.fullmatch(r'\s*(\d+(?:\.\d*)?)\s*([KMGT]?)i?B?\s*', value, re.IGNORECASE)
    if not match:
        raise ArgumentError(f"a size such as '40GiB', not {value!r}")
    return int(float(match[1]) * 1024 ** ' KMGT'.index(match[2].upper() or ' '))


def _rules(rules: Any) -> Any:
    """A text of rules: of a mapping or list, of a text, or out of a file."""
    if isinstance(rules, (dict, list, tuple)):
        return json.dumps(rules)
    if isinstance(rules, str):
        is_text = rules.lstrip()[:1] in ('{', '[') or '\n' in rules
        if is_text or (': ' in rules and not os.path.exists(rules)):
            return rules
    with io_open(rules, 'rb') as file:
        return file.read()


def _limits(budget: Any, reserved: Any) -> List[Tuple[int, int, Optional[int]]]:
    """Budgets as the library takes them: (rule, kind, bytes)."""
    names = _core.kinds()
    limits: List[Tuple[int, int, Optional[int]]] = []
    for kind, size in (budget.items() if isinstance(budget, Mapping) else [('', budget)]):
        if kind and kind not in names:
            raise ArgumentError(f'there is no kind {kind!r}; there are {", ".join(names)}')
        if size is not None:
            limits.append((1 if kind else 0, names.index(kind) if kind else 0, size_of(size)))
    if reserved is not None:
        limits.append((2, 0, size_of(reserved)))
    return limits


def _tolerance(tolerance: Any) -> Dict[str, int]:
    """How far a figure may be off a lock's."""
    match = re.fullmatch(r'\s*(\d+(?:\.\d*)?)\s*%\s*', '1%' if tolerance is None else str(tolerance))
    if match and float(match[1]) <= 100:
        return {'tolerance_millionths': round(float(match[1]) * 10000)}
    return {'tolerance_bytes': size_of(tolerance) or 0}


def _lock(lock: Any) -> Any:
    """The text of a lock: as given, or out of a file."""
    if isinstance(lock, str) and '\n' in lock:
        return lock
    with io_open(lock, 'rb') as file:
        return file.read()


class Snapshot:
    """A snapshot that is open. It never changes, and any number of threads may ask it at once."""

    def __init__(self, core: Any) -> None:
        self._core = core
        self._answers: Dict[Any, Any] = {}
        self._events: Dict[int, _tables.Events] = {}

    def close(self) -> None:
        """Give the memory back. Answers and columns that were taken stay valid; what is asked later
        is a ValueError. Closing is never needed: a snapshot ends with its last reference."""
        self._core.close()
        self._answers.clear()
        self._events.clear()

    def __enter__(self) -> 'Snapshot':
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def __repr__(self) -> str:
        try:
            kind, size, name = self._core.input()
        except ValueError:
            return '<tessera Snapshot, closed>'
        events = ', '.join(f'device {device}: {self._core.event_count(device):,} events'
                           for device in self.devices) or 'no device'
        return f'<tessera Snapshot of {name!r} ({kind}, {size:,} bytes): {events}>'

    def _repr_html_(self) -> str:
        from . import _html
        return _html.snapshot(self)

    # ---- about the file ----

    @property
    def path(self) -> str:
        """The input, as answers name it."""
        return self._core.input()[2]

    @property
    def format(self) -> str:
        """The form it was read from, outermost first: 'pickle', 'gzip pickle', ..."""
        return self._core.input()[0]

    @property
    def input_bytes(self) -> int:
        """Bytes of the input as stored."""
        return self._core.input()[1]

    @property
    def devices(self) -> List[int]:
        """Devices that have events or segments."""
        return self._core.devices()

    @property
    def warnings(self) -> List[_answers.Warning]:
        """What the file lacks or contradicts, as it was noticed in reading. Answers have more, about
        what they replayed."""
        return [_answers.Warning({'code': code, 'count': count, 'message': message})
                for code, count, message in self._core.warnings()]

    # ---- questions ----

    def _ask(self, question: str, kind: type, device: Devices = None, top: int = 0,
             other: Any = None, **options: Any) -> Any:
        """The answer, the same object for the same question."""
        if device is not None:
            options['devices'] = [device] if isinstance(device, int) else list(device)
        options = {name: value for name, value in options.items() if value is not None}
        options['top'] = top
        key = (question, id(other), repr(sorted(options.items())))
        if key not in self._answers:
            core = self._core.ask(question, options, *([other._core] if other else []))
            # `other` is kept, so that its id stays its own.
            self._answers[key] = other, kind(core)
        return self._answers[key][1]

    def info(self, *, device: Devices = None) -> _answers.Info:
        """What is in this file?"""
        return self._ask('info', _answers.Info, device)

    def peak(self, *, device: Devices = None, top: int = 10) -> _answers.Peak:
        """What holds the memory at its highest? `top` is how many stacks to list, 0 for all."""
        return self._ask('peak', _answers.Peak, device, top)

    def at(self, event: Optional[int] = None, *, time_us: Optional[int] = None,
           allocation: Optional[str] = None, action: str = 'alloc', device: Devices = None,
           top: int = 10) -> _answers.At:
        """What held the memory at another moment: after an event (-1: before the first), at a time,
        or when a block was allocated or freed, 'cd1000000_1' being its address and how often it was
        given back before, and `action` alloc, free_requested or free_completed."""
        if (event is not None) + (time_us is not None) + (allocation is not None) != 1:
            raise TypeError('say one of event, time_us and allocation')
        if allocation is None:
            return self._ask('at', _answers.At, device, top, event=event, time_us=time_us)
        if action not in _ACTIONS:
            raise ArgumentError(f'action is one of {", ".join(_ACTIONS)}, not {action!r}')
        match = re.fullmatch(r'([0-9a-fA-F]+)_(\d+)', allocation)
        if not match:
            raise ArgumentError(f'an allocation is ADDRESS_VERSION, such as cd1000000_1, not '
                                f'{allocation!r}')
        ask = {'version': int(match[2]), 'action': _ACTIONS[action]}
        try:
            return self._ask('at', _answers.At, device, top, address=int(match[1], 16), **ask)
        except ArgumentError:
            # PyTorch's viewer writes a 'b' before some addresses.
            if match[1][0] != 'b' or len(match[1]) == 1:
                raise
            return self._ask('at', _answers.At, device, top, address=int(match[1][1:], 16), **ask)

    def profile(self, by: Optional[str] = None, *, rules: Any = None, ordered: bool = False,
                over_time: Union[bool, int] = False, device: Devices = None,
                top: int = 10) -> _answers.Profile:
        """What kind of memory is it? `by` is 'category', 'op', 'module', 'line', 'stack',
        'annotation', 'compile-context', 'rules' or 'mosaic-category' (Mosaic's);
        `rules` a dict of names and patterns, a list of rules, a text or a file of them. `over_time`
        adds a history of 200 moments, or of as many as it says."""
        by = by or ('rules' if rules is not None else 'category')
        by = by.replace('_', '-')
        if by not in _BY:
            raise ArgumentError(f'by is one of {", ".join(_BY)}, not {by!r}')
        if (by == 'rules') != (rules is not None):
            raise TypeError("by='rules' and rules=... go together")
        moments = 200 if over_time is True else int(over_time) or None
        return self._ask('profile', _answers.Profile, device, top, by=_BY[by],
                         rules=None if rules is None else _rules(rules), ordered=ordered or None,
                         moments=moments)

    def diff(self, other: Any, *, device: Devices = None, top: int = 10) -> _answers.Diff:
        """What changed from this snapshot to `other`, a Snapshot or anything that open() takes?"""
        other = other if isinstance(other, Snapshot) else open(other)
        return self._ask('diff', _answers.Diff, device, top, other)

    def stages(self, match: Union[str, Sequence[str]] = (), *, device: Devices = None,
               top: int = 10) -> _answers.Stages:
        """How high did memory go in each annotated stage, of those whose name contains one of the
        texts of `match`?"""
        texts = [match] if isinstance(match, str) else list(match)
        return self._ask('stages', _answers.Stages, device, top, match=texts or None)

    def steps(self, *, device: Devices = None, top: int = 10) -> _answers.Steps:
        """Where do steps begin, and what does one take?"""
        return self._ask('steps', _answers.Steps, device, top)

    def leaks(self, *, device: Devices = None, top: int = 10) -> _answers.Leaks:
        """What grows from step to step?"""
        return self._ask('leaks', _answers.Leaks, device, top)

    def source(self, path: Path, *, text: Union[None, str, bytes] = None, compare: Any = None,
               device: Devices = None, top: int = 10) -> _answers.Source:
        """Which lines of a source file cost what? Its text is read from `path` unless it is given;
        with `compare`, another snapshot, also what changed from this to that."""
        if text is None:
            with io_open(path, 'rb') as file:
                text = file.read()
            path = os.path.realpath(path)
        if compare is not None and not isinstance(compare, Snapshot):
            compare = open(compare)
        question = 'source' if compare is None else 'source_comparison'
        return self._ask(question, _answers.Source, device, top, compare, path=os.fspath(path),
                         text=text)

    def whatif(self, *settings: str, capacity: Union[None, int, str] = None,
               device: Devices = None, top: int = 10) -> _answers.Whatif:
        """What would other allocator settings ('expandable_segments:True'), or a card with another
        `capacity` (bytes, or '24GiB'), have done?"""
        return self._ask('whatif', _answers.Whatif, device, top, settings=list(settings) or None,
                         capacity_bytes=size_of(capacity))

    def why(self, *settings: str, event: Optional[int] = None,
            capacity: Union[None, int, str] = None, device: Devices = None,
            top: int = 10) -> _answers.Why:
        """Why did it run out of memory, at its last failure or at that of the oom `event`? Tries
        `settings`, or the usual ones; `capacity` is the card's memory."""
        return self._ask('why', _answers.Why, device, top, event=event,
                         settings=list(settings) or None, capacity_bytes=size_of(capacity))

    def check(self, max: Union[None, int, str, Mapping[str, Union[int, str]]] = None, *,
              max_reserved: Union[None, int, str] = None, lock: Any = None,
              tolerance: Union[None, int, str] = None, device: Devices = None,
              top: int = 10) -> _answers.Check:
        """Is it within its budget, and what it was? `max` bounds allocated memory ('18GiB'), or, as a
        dict, memory of kinds ({'activation': '3GiB'}, and '' for all); `lock` is a file that
        Check.lock() was written to, or its text; `tolerance` how far a figure may be off the lock's:
        '1%', the default, or a size. The answer is true where nothing failed. Without a budget
        or lock nothing is checked, but Check.lock() has what was measured."""
        options: Dict[str, Any] = {'limits': _limits(max, max_reserved)}
        if lock is not None:
            options.update(_tolerance(tolerance), lock=_lock(lock))
        elif tolerance is not None:
            raise TypeError('tolerance goes with lock')
        return self._ask('check', _answers.Check, device, top, causes=True, **options)

    # ---- columns ----

    @property
    def events(self) -> _tables.Events:
        """The trace of the first device that has one; trace() gives another's."""
        devices = self.devices
        traced = [device for device in devices if self._core.event_count(device)]
        return self.trace((traced or devices or [0])[0])

    def trace(self, device: int) -> _tables.Events:
        """A device's events, as columns."""
        if device not in self._events:
            self._core.input()
            self._events[device] = _tables.Events(self._core, device)
        return self._events[device]

    @property
    def segments(self) -> _tables.Segments:
        """The segments of all devices when the snapshot was taken, as columns."""
        return _tables.Segments(self._core, self._core.segments())

    @property
    def blocks(self) -> _tables.Blocks:
        """The blocks in them, as columns; a segment names its rows."""
        return _tables.Blocks(self._core, self._core.blocks())

    def allocations(self, device: Optional[int] = None) -> _tables.Allocations:
        """Every allocation of a device, from birth to death, as columns."""
        device = self.events.device if device is None else device
        return _tables.Allocations(self._core, self._core.allocations(device))

    def totals(self, device: Optional[int] = None) -> _tables.Totals:
        """The four totals of a device after each event, as columns."""
        device = self.events.device if device is None else device
        return _tables.Totals(self._core, self._core.totals(device))

    def stack(self, number: int) -> List[_answers.Frame]:
        """The frames of a stack that a column names, innermost first; none for 4294967295."""
        if number in (0xFFFFFFFF, -1):
            return []
        return [_answers.Frame({'name': name, 'file': file, 'line': line})
                for name, file, line in self._core.stack(number, False)]

    def string(self, number: int) -> Optional[str]:
        """The text that an id of a column stands for; None for 4294967295."""
        return None if number in (0xFFFFFFFF, -1) else self._core.string(number)

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
        """Write the snapshot in another form: 'pickle', 'json', 'folded', 'speedscope', 'pprof',
        'perfetto' or 'csv', as said or by the ending of the path. `target` is a path, a binary file
        object, or None for bytes. Flame graphs show the peak, or the moment or range said."""
        if format is None:
            name = os.fspath(target) if isinstance(target, (str, os.PathLike)) else ''
            format = next((kind for ending, kind in _ENDINGS.items()
                           if str(name).lower().endswith(ending)), 'pickle')
        options: Dict[str, Any] = {'event': event, 'time_us': time_us, 'events': events,
                                   'times': times, 'full_stacks': full_stacks}
        is_whole = format in ('pickle', 'json', 'python-json')
        if is_whole and (device is not None or any(value is not None for value in
                                                   (event, time_us, events, times))):
            raise TypeError('a whole snapshot has all devices and events; trim() cuts parts out')
        if device is not None:
            options['devices'] = [device] if isinstance(device, int) else list(device)
        return _files.written(target, lambda handle: self._core.export(format, options, handle))

    def view(self, target: Any = None, *more: 'Snapshot', by: Optional[str] = None,
             rules: Any = None, ordered: bool = False, events: Optional[Range] = None,
             capacity: Union[None, int, str] = None, blocks: Optional[int] = None,
             device: Devices = None) -> Optional[str]:
        """A picture of the trace as one HTML page, of this snapshot and `more`: written to `target`,
        a path or file object, or returned. It opens with groups `by` category, annotation,
        compile-context, rules, op, module, line, metadata, stream, pool, stack, function or size,
        `ordered` as memory was taken, at `events` (first, last); `rules` are those of profile(), `capacity` draws the
        card's memory, `blocks` bounds how many allocations are told one by one."""
        by = (by or ('rules' if rules is not None else 'category')).replace('_', '-')
        if by not in _VIEWS:
            raise ArgumentError(f'by is one of {", ".join(_VIEWS)}, not {by!r}')
        if by == 'rules' and rules is None:
            raise TypeError("by='rules' needs rules=...")
        options: Dict[str, Any] = {'by': by.replace('-', '_'), 'ordered': ordered, 'blocks': blocks,
                                   'capacity_bytes': size_of(capacity),
                                   'rules': None if rules is None else _rules(rules)}
        if events is not None:
            first = events[0] or 0
            options['first_event'] = first
            options['event_count'] = 0 if events[1] is None else events[1] - first + 1
        if device is not None:
            options['devices'] = [device] if isinstance(device, int) else list(device)
        others = [snapshot._core for snapshot in more]
        return _files.written(target, lambda handle: self._core.view(others, options, handle),
                              is_text=True)

    def trim(self, *, events: Optional[Range] = None, times: Optional[Range] = None,
             device: Devices = None) -> 'Snapshot':
        """A snapshot of a part of the trace: events (first, last), or times in microseconds, both
        included; None for an open end."""
        options: Dict[str, Any] = {'events': events, 'times': times}
        if device is not None:
            options['devices'] = [device] if isinstance(device, int) else list(device)
        return Snapshot(self._core.trim(options))
