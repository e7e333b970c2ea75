"""MemorySnapshot: Mosaic's analyses of a snapshot, computed by tessera.

After analyze_memory_snapshot(), attributes that tessera has as numbers are available at once. Those
for which Mosaic has an object per event or allocation are built when they are read.
"""
import functools
import json
import logging
import re
from typing import Any, Callable, Dict, Iterable, Iterator, List, Optional, Set, Tuple, cast

import tessera

from mosaic.libmosaic.utils.data_utils import (Allocation, AllocationType, BaseMemoryUsage,
                                               FloatMemoryUsage, Frame, MemoryEvent, MemoryUsage,
                                               TraceEvent)
from mosaic.libmosaic.utils.snapshot_loader import SnapshotLoader

ALLOC_EVENTS = ['alloc']
FREE_EVENTS = ['free_completed']

_NO_TIME = -2**63
_NO_ID = 2**32 - 1
# Codes of actions, as tessera numbers them.
_CODES = {'alloc': 0, 'free_requested': 1, 'free_completed': 2, 'free': 3, 'segment_alloc': 4,
          'segment_free': 5, 'segment_map': 6, 'segment_unmap': 7}
_BY = {'categories': ('category', 'per_category_alloc_sum'),
       'annotations': ('annotation', 'per_annotation_alloc_sum'),
       'compile_context': ('compile-context', 'per_compile_context_alloc_sum'),
       'custom': ('rules', 'per_custom_alloc_sum')}
# Matches nothing, so that everything is unknown.
_NO_RULES = {'unknown': '(?!)'}


class _Group(MemoryEvent):
    """A group whose sizes by address are computed on access."""

    def __init__(self, sizes: Callable[[], Dict[int, float]], stack: List[Dict[str, Any]], calls: int,
                 size: int) -> None:
        self._make = sizes
        self._sizes: Optional[Dict[int, float]] = None
        super().__init__(call_stack=list(stack), num_call=calls, mem_size=size)

    @property
    def mem_size_per_call(self) -> Dict[int, float]:
        """Sizes by address."""
        if self._sizes is None:
            self._sizes = self._make()
        return self._sizes

    @mem_size_per_call.setter
    def mem_size_per_call(self, sizes: Dict[int, float]) -> None:
        self._sizes = sizes or None


def _names(trace: tessera.Events) -> List[str]:
    """Names of the codes of actions."""
    return trace.action.names or []


def _log(lines: bytes) -> None:
    """Log tessera's messages in Mosaic's format, through Python's logging. The caller handles
    errors."""
    for line in lines.decode('utf-8', 'replace').splitlines():
        level, _, text = line.partition(':root:')
        if level != 'ERROR':
            logging.log(logging.WARNING if level == 'WARNING' else logging.INFO, '%s', text)


# Bytes, allocations, the stack of the first, and the rows of the events that allocated them; the last
# group has no stack.
_Groups = List[Tuple[int, int, Optional[int], List[int]]]


class _Moment:
    """Where an analysis ended: an event of a device, and the groups that are live there."""

    def __init__(self, opened: tessera.Snapshot, device: Optional[int], groups: _Groups) -> None:
        # Without a device there are no groups.
        self.opened, self.device, self.groups = opened, device or 0, groups

    def live(self) -> Dict[int, int]:
        """Rows of the events that allocated what is live, by address, in order of allocation."""
        rows = sorted(row for group in self.groups for row in group[3])
        if not rows:
            return {}
        addresses = self.opened.trace(self.device).address
        return {addresses[row]: row for row in rows}

    def events(self) -> Dict[int, MemoryEvent]:
        """The groups in Mosaic's form, by the hash of their stack's files and lines."""
        found: Dict[int, MemoryEvent] = {}
        for size, calls, stack, rows in self.groups[:-1]:
            frames = [] if stack is None or stack == _NO_ID else [
                {'line': line, 'name': name, 'filename': file}
                for name, file, line in self.opened._core.stack(stack, True)]
            key = hash(''.join(f'{frame["filename"]}{frame["line"]}' for frame in frames))
            found[key] = _Group(functools.partial(self._sizes, rows), frames, calls, size)
        return found

    def _sizes(self, rows: List[int]) -> Dict[int, float]:
        trace = self.opened.trace(self.device)
        return {trace.address[row]: trace.size_bytes[row] for row in rows}


class MemorySnapshot(SnapshotLoader):
    """A snapshot and the results of its analysis."""

    def __init__(self, filename: Optional[str]) -> None:
        super().__init__(filename)
        self.max_memory_usage: BaseMemoryUsage = FloatMemoryUsage(0.0)
        self.call_stack: Dict[object, str] = {}
        self.dynamic_memory_peak = -1
        self.static_memory = 0
        self.memory_usage: Dict[str, float] = {}
        self.max_allocation_info = Allocation('', '', 0)
        self._moment: Optional[_Moment] = None
        self._groups: Optional[Dict[int, MemoryEvent]] = {}
        self._live_events: Optional[Dict[int, Dict[str, Any]]] = {}
        self._history: Optional[Dict[int, BaseMemoryUsage]] = {}
        self._history_of: Tuple[Any, ...] = ()

    # ---- results ----

    @property
    def memory_peak(self) -> int:
        """The same as dynamic_memory_peak, by its older name."""
        return self.dynamic_memory_peak

    @memory_peak.setter
    def memory_peak(self, value: int) -> None:
        self.dynamic_memory_peak = value

    @property
    def call_stack_hash_set(self) -> Dict[int, MemoryEvent]:
        """What is live, by the hash of its stack, largest first."""
        if self._groups is None:
            self._groups = self._found.events()
        return self._groups

    @call_stack_hash_set.setter
    def call_stack_hash_set(self, groups: Dict[int, MemoryEvent]) -> None:
        self._groups = groups

    @property
    def memory_usage_call_stack(self) -> Dict[int, Dict[str, Any]]:
        """The events that allocated what is live, as in the snapshot, by address."""
        if self._live_events is None:
            moment = self._found
            rows = moment.live()
            traces = self.snapshot_data['device_traces'] if rows else []
            self._live_events = {addr: traces[moment.device][row] for addr, row in rows.items()}
        return self._live_events

    @memory_usage_call_stack.setter
    def memory_usage_call_stack(self, events: Dict[int, Dict[str, Any]]) -> None:
        self._live_events = events

    @property
    def memory_usage_history(self) -> Dict[int, BaseMemoryUsage]:
        """Usage by time, after the last event of each microsecond."""
        if self._history is None:
            self._history = dict(self._replay(*self._history_of))
        return self._history

    @memory_usage_history.setter
    def memory_usage_history(self, history: Dict[int, BaseMemoryUsage]) -> None:
        self._history = history

    # ---- analyses ----

    def analyze_memory_snapshot(
            self, opt: str = 'memory_peak', allocation: str = '', action: str = '',
            profile_types: Optional[List[str]] = None,
            custom_rules: Optional[Dict[str, str]] = None, start_time: Optional[int] = None,
            end_time: Optional[int] = None, preserve_allocation_order: bool = False) -> None:
        """Find the peak ('memory_peak'), the usage at an allocation ('memory_usage'), or the
        memory by group ('alloc_history')."""
        if opt not in ('memory_peak', 'memory_usage', 'alloc_history'):
            logging.error('Invalid option, please check the options')
        elif self._opened is None:
            self._fail_empty('segments' if opt == 'memory_peak' else None)
            if opt == 'alloc_history':
                self.max_memory_usage = MemoryUsage()
        elif opt == 'memory_peak':
            self._require_trace()
            self._find_peak(Allocation.from_str(allocation, action), start_time, end_time)
        elif opt == 'memory_usage':
            self._find_usage(Allocation.from_str(allocation, action))
        else:
            self._profile(profile_types or ['categories'], custom_rules, preserve_allocation_order)

    @staticmethod
    def _fail_empty(key: Optional[str]) -> None:
        """No file was loaded: log it, and raise what Mosaic raises when it looks for `key`."""
        logging.error('Empty snapshot data, need to load snapshot first.')
        if key is not None:
            raise KeyError(key)

    def _require_trace(self) -> None:
        """Raise what Mosaic raises if no device has a trace, or events cannot be read: nothing is known about
        the peak, and a program that checks a limit must not take that for 0."""
        codes = {warning.code for warning in self._file.warnings}
        if 'events-malformed' in codes:
            raise TypeError('the trace has an entry that is no event')
        if 'sizes-missing' in codes:
            raise KeyError('size')
        if self._device() is None:
            logging.error('No device traces found')
            raise IndexError('list index out of range')

    @property
    def _found(self) -> _Moment:
        assert self._moment is not None
        return self._moment

    def _at(self, device: Optional[int], groups: _Groups) -> None:
        self._moment = _Moment(self._file, device, groups)
        self._groups = self._live_events = None

    @staticmethod
    def _address(allocation: Allocation) -> Tuple[int, int, int]:
        """The address for tessera; an invalid one is the address of no event."""
        is_address = re.fullmatch('[0-9a-f]{1,16}', allocation.addr)
        return (int(allocation.addr, 16) if is_address else 2**64 - 1, allocation.version,
                _CODES.get(allocation.action, 255))

    def _find_peak(self, until: Allocation, start: Optional[int], end: Optional[int]) -> None:
        stop = self._address(until) if until.addr else None
        device, event, version, size, static, groups, log = self._file._core.mosaic_peak(
            start or None, end or None, stop)
        self.dynamic_memory_peak, self.static_memory = size, static
        self.max_allocation_info = Allocation('', '', 0)
        if event >= 0:
            trace = self._file.trace(device or 0)
            self.max_allocation_info = Allocation(_names(trace)[trace.action[event]],
                                                  f'{trace.address[event]:x}', version)
        self._at(device, groups)
        _log(log)

    def _find_usage(self, where: Allocation) -> None:
        device, event, size, groups, log = self._file._core.mosaic_usage(*self._address(where))
        if event >= 0:
            self.memory_usage[where.to_str()] = size
        self._at(device, groups)
        _log(log)

    def _device(self) -> Optional[int]:
        """The first GPU that has a trace; Mosaic does not know pinned host memory."""
        core = self._file._core
        return next((device for device in self._file.devices
                     if isinstance(device, int) and core.event_count(device)), None)

    def _profile(self, kinds: List[str], rules: Optional[Dict[str, str]], ordered: bool) -> None:
        usage = MemoryUsage(save_profile=True)
        usage.track_allocation_order = ordered
        device = self._device()
        for pattern in (rules or {}).values():
            AllocationType._matches_custom_pattern([], pattern)  # warns about an invalid one
        for kind in kinds if device is not None else ():
            by, sums = _BY[kind]
            patterns = json.dumps(rules or _NO_RULES) if by == 'rules' else None
            rules_of = 'mosaic' if by == 'category' else None
            said = self._file._ask('profile', tessera.Answer, device, 0, by=by,
                                   categories=rules_of, rules=patterns, lenient=True)
            groups = sorted(said.to_dict()['devices'][0]['groups'],
                            key=lambda group: group['first_event'])
            for group in groups:
                name = group['name']
                getattr(usage, sums)[AllocationType[name.upper()] if by == 'category' else name] = \
                    float(group['bytes'])
        self._warn_of_times(device)
        self.max_memory_usage = usage
        self._history, self._history_of = None, (device, tuple(kinds), rules, ordered)

    def _warn_of_times(self, device: Optional[int]) -> None:
        times: Iterable[int] = [] if device is None else self._file.trace(device).time_us
        without = sum(time_us == _NO_TIME for time_us in times)
        if without:
            logging.warning('events without a time: Mosaic leaves them out, tessera counts them '
                            '(%d times)', without)

    # ---- one entry per event ----

    def _replay(self, device: Optional[int], kinds: Tuple[str, ...],
                rules: Optional[Dict[str, str]],
                ordered: bool) -> Iterator[Tuple[int, MemoryUsage]]:
        """(time, usage after it) of each event that has a time, except out of memory."""
        if device is None:
            return
        trace, usage = self._file.trace(device), MemoryUsage(True, ordered)
        names, types = _names(trace), self._types(rules)
        annotations = _Annotations(self._opened if 'annotations' in kinds else None)
        contexts = {_NO_ID: 'N/A', **dict(enumerate(trace.context.names or []))}
        strangers = 0
        columns = (trace.action, trace.address, trace.size_bytes, trace.time_us, trace.stack, trace.context)
        for action, addr, size, time_us, stack, context in zip(*(c.tolist() for c in columns)):
            if time_us == _NO_TIME:
                continue
            annotation = annotations.at(time_us)
            if names[action] == 'oom':
                continue
            kind, custom = types(stack)
            if action == _CODES['free_completed'] and addr not in usage.active_alloc_events:
                strangers += 1
            else:
                usage.update(TraceEvent(names[action], addr, size, 0, time_us, kind, custom,
                                        annotation, contexts[context]), list(kinds))
            yield time_us, usage.partial_copy()
        if strangers:
            logging.warning('Free for unallocated address (%d times)', strangers)

    def _types(self, rules: Optional[Dict[str, str]]) -> Any:
        """A function from a stack's id to its category and its rule's name."""
        known: Dict[int, Tuple[AllocationType, str]] = {}

        def types(stack: int) -> Tuple[AllocationType, str]:
            if stack not in known:
                frames = [] if stack == _NO_ID else [
                    Frame(name, file, cast(int, line))  # as in Mosaic, also where it is None
                    for name, file, line in self._file._core.stack(stack, True)]
                kind, custom = AllocationType.from_frame_stack_with_custom(frames, rules)
                known[stack] = kind, custom or 'unknown'
            return known[stack]

        return types

    def stat_memory_usage_range(self, device_idx: int = 0, start: int = -1, end: int = -1) -> None:
        """Fill memory_usage_history, max_memory_usage and call_stack with a running total from 0, of
        the events of a time or, without one, of all."""
        if self._opened is None:
            logging.error('Empty snapshot data, need to load snapshot first.')
            return
        trace = self._file.trace(device_idx)
        stacks: Dict[int, str] = {_NO_ID: ''}
        history: Dict[int, BaseMemoryUsage] = {}
        total, highest, self.call_stack = 0, 0.0, {}
        columns = (trace.action, trace.size_bytes, trace.time_us, trace.stack)
        for action, size, time_us, stack in zip(*(column.tolist() for column in columns)):
            if time_us == _NO_TIME or not (start < 0 and end < 0 or start <= time_us <= end):
                continue
            total += {0: size, 2: -size}.get(action, 0)
            highest = max(highest, total)
            if stack not in stacks:
                stacks[stack] = ''.join(f'{file}: {line}<br>' for _, file, line in
                                        self._file._core.stack(stack, True))
            self.call_stack[time_us] = stacks[stack]
            history[time_us] = FloatMemoryUsage(total)
        self._history, self.max_memory_usage = history, FloatMemoryUsage(highest)

    # ---- stages ----

    def get_memory_usage_by_annotation_stage(
            self, annotation_substring: Set[str]) -> Dict[str, Tuple[Dict[str, Any], float]]:
        """Usage at each annotation whose name contains one of the texts (or at all): the annotation
        and bytes, by NAME_STAGE, with a number for those that come again."""
        if self._opened is None:
            self._fail_empty('external_annotations' if annotation_substring else None)
            return {}
        self._require_trace()
        rows, log = self._file._core.mosaic_stages({'texts': list(annotation_substring) or None})
        _log(log)
        annotations = self.snapshot_data.get('external_annotations', []) if rows else []
        found: Dict[str, Tuple[Dict[str, Any], float]] = {}
        for index, repeat, size in rows:
            annotation = annotations[index]
            key = f'{annotation["name"]}_{annotation["stage"]}' + (f'({repeat})' if repeat else '')
            found[key] = annotation, size
        return found


class _Annotations:
    """Which annotated range is open at a time; times are asked for in ascending order."""

    def __init__(self, opened: Optional[tessera.Snapshot]) -> None:
        self._rows = opened._core.annotations() if opened else []
        self._next = 0
        self._open: List[str] = []

    def at(self, time_us: int) -> str:
        """The name of the open range that began last, or ""."""
        while self._next < len(self._rows):
            name, stage, at_us, _ = self._rows[self._next]
            if at_us is None or at_us > time_us:
                break
            name = name or ''
            self._next += 1
            if stage == 'START':
                self._open.append(name)
            elif stage == 'END':
                self._end(name)
            else:
                logging.error(f'Invalid annotation stage: {stage} for {name}')
        return self._open[-1] if self._open else ''

    def _end(self, name: str) -> None:
        if name not in self._open:
            logging.warning(f'END stage for {name} annotation found without START stage. Skipping...')
            return
        index = len(self._open) - 1 - self._open[::-1].index(name)
        if index != len(self._open) - 1:
            logging.warning(f'annotation {name} overlaps with {self._open[-1]}. This may result in '
                            'allocations being attributed to incorrect annotations!')
        del self._open[index]
