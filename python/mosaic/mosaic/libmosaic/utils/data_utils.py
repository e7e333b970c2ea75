"""The values that Mosaic's functions take and return."""
import enum
import logging
import re
from collections import defaultdict
from dataclasses import dataclass, field, fields
from typing import Any, Dict, List, Optional, Set, Tuple, Union

NUM_GPUS_PER_HOST = 8

logger: logging.Logger = logging.getLogger(__name__)


@dataclass
class Allocation:
    """An event, identified by its address, the number of earlier frees there, and its action."""
    action: str
    addr: str
    version: int = 0

    def to_str(self) -> str:
        """In the form of the keys of `memory_usage`."""
        return f'{self.action}: {self.addr}_{self.version}'

    @staticmethod
    def from_str(allocation: str, action: str) -> 'Allocation':
        """From ADDRESS_VERSION; empty text means no allocation."""
        if not allocation:
            return Allocation(action, '')
        addr, version = allocation.split('_')
        return Allocation(action, addr, int(version))


@dataclass
class Frame:
    """A frame of a stack."""
    name: str
    filename: str
    line: int


class AllocationType(enum.Enum):
    """What an allocation is, by the names in its stack."""
    PARAMETER = 0
    ACTIVATION = 1
    BACKWARD = 2
    OPTIMIZER = 3
    NET = 4
    UNKNOWN = 5
    NET_SETUP = 6
    STATS = 7
    FSDP = 8
    CUSTOM = 9

    @classmethod
    def from_frame_stack(cls, frame_stack: List[Frame]) -> 'AllocationType':
        """The category: FSDP if any frame is in its file, otherwise that of the first frame that
        indicates one, innermost first."""
        if any('fully_sharded_data_parallel.py' in frame.filename for frame in frame_stack):
            return cls.FSDP
        for frame in frame_stack:
            for kind, holds in _TESTS:
                if holds(frame.name, frame.filename):
                    return cls[kind]
        return cls.UNKNOWN

    @classmethod
    def from_frame_stack_with_custom(
            cls, frame_stack: List[Frame], custom_rules: Optional[Dict[str, str]] = None
    ) -> Tuple['AllocationType', Optional[str]]:
        """CUSTOM and the name of the first rule whose pattern is found in the stack; otherwise the
        category, and None."""
        for name, pattern in (custom_rules or {}).items():
            if cls._matches_custom_pattern(frame_stack, pattern):
                return cls.CUSTOM, name
        return cls.from_frame_stack(frame_stack), None

    @classmethod
    def _matches_custom_pattern(cls, frame_stack: List[Frame], pattern: str) -> bool:
        try:
            search = re.compile(pattern).search
        except re.error:
            logger.warning('Invalid regex pattern: %s', pattern)
            return False
        return any(search(frame.name) or search(frame.filename) for frame in frame_stack)


# What a frame's name and file indicate, in the order of the checks.
_TESTS = (
    ('ACTIVATION', lambda name, file: 'forward' in name),
    ('PARAMETER', lambda name, file: 'param' in name),
    ('PARAMETER', lambda name, file: 'flatten_params_wrapper' in file),
    ('PARAMETER', lambda name, file: 'build_norm_fn' in name),
    ('PARAMETER', lambda name, file: '__init__' in name and 'parallel/layers.py' in file),
    ('BACKWARD', lambda name, file: 'backward' in name),
    ('BACKWARD', lambda name, file: name in ('clip_grad_norm_', 'calc_grad_norm')),
    ('OPTIMIZER', lambda name, file: name in ('custom_adamw', '_init_group')),
    ('NET', lambda name, file: name in ('dist_max', 'dist_mean', 'dist_sum', '_aggregate')),
    ('NET_SETUP', lambda name, file: 'validate_process_group' in name),
    ('STATS', lambda name, file: name == 'compute_grad_stats'),
)


@dataclass
class TraceEvent:
    """An event of a trace, with its group."""
    action: str
    addr: int
    size: int
    stream: int
    time_us: int
    classification: AllocationType = AllocationType.UNKNOWN
    custom_category: str = 'unknown'
    annotation: str = 'None'
    compile_context: str = 'None'

    @classmethod
    def from_raw(cls, raw: Dict[str, Any], annotation: str = 'None',
                 custom_rules: Optional[Dict[str, str]] = None) -> 'TraceEvent':
        """From an event of the snapshot; keys without a field are ignored."""
        stack = [Frame(frame['name'], frame['filename'], frame['line'])
                 for frame in raw.get('frames', ())]
        kind, custom = AllocationType.from_frame_stack_with_custom(stack, custom_rules)
        taken = {one.name for one in fields(cls)} - {'classification', 'custom_category', 'annotation'}
        values = {name: value for name, value in raw.items() if name in taken}
        values.setdefault('compile_context', 'N/A')
        return cls(**values, classification=kind, custom_category=custom or 'unknown',
                   annotation=annotation)


@dataclass
class MemoryEvent:
    """Live allocations of one stack. Elements of `call_stack` have a name, filename and line;
    `mem_size_per_call` has sizes by address."""
    call_stack: List[Union[Dict[str, Any], Frame]]
    num_call: int
    mem_size: float
    mem_size_per_call: Dict[Any, float] = field(default_factory=dict)
    alloc_type: Optional[AllocationType] = None


@dataclass
class CategoryStackElement:
    """A band: consecutive allocations of one category."""
    category: str
    total_size: float
    allocation_ids: Set[int]


class CategoryStackOrderTracker:
    """Bands in the order of allocation. An allocation joins the topmost band if that has
    its category, otherwise it starts a new band; a band ends with its last allocation, and if two bands
    of one category then become neighbours, they merge."""

    def __init__(self) -> None:
        self.stack: List[CategoryStackElement] = []
        # By address: the band, the allocation's number, its size.
        self._bands: Dict[int, Tuple[CategoryStackElement, int, float]] = {}
        self.allocation_counter = 0

    @property
    def addr_to_info(self) -> Dict[int, Tuple[int, int, float, str]]:
        """By address: the band's index, the allocation's number, its size, its category."""
        places = {id(band): index for index, band in enumerate(self.stack)}
        return {addr: (places.get(id(band), -1), number, size, band.category)
                for addr, (band, number, size) in self._bands.items()}

    def track_allocation(self, evt: TraceEvent, category: str) -> int:
        """Put an allocation on top; returns its number."""
        number = self.allocation_counter
        self.allocation_counter += 1
        if not self.stack or self.stack[-1].category != category:
            self.stack.append(CategoryStackElement(category, 0, set()))
        top = self.stack[-1]
        top.total_size += evt.size
        top.allocation_ids.add(number)
        self._bands[evt.addr] = (top, number, evt.size)
        return number

    def track_deallocation(self, addr: int) -> Optional[int]:
        """Remove the allocation at an address; returns its number, or None if absent."""
        if addr not in self._bands:
            return None
        band, number, size = self._bands.pop(addr)
        band.total_size -= size
        band.allocation_ids.discard(number)
        if not band.allocation_ids:
            self._remove(next(index for index, one in enumerate(self.stack) if one is band))
        return number

    def _remove(self, index: int) -> None:
        del self.stack[index]
        if not 0 < index < len(self.stack):
            return
        below, above = self.stack[index - 1], self.stack[index]
        if below.category != above.category:
            return
        below.total_size += above.total_size
        below.allocation_ids |= above.allocation_ids
        del self.stack[index]
        for addr, (band, number, size) in self._bands.items():
            if band is above:
                self._bands[addr] = (below, number, size)

    def get_current_stack_snapshot(self) -> List[Tuple[str, float]]:
        """(category, bytes) of each band, bottom first."""
        return [(band.category, band.total_size) for band in self.stack]


class BaseMemoryUsage:
    """How much memory is in use, by group."""

    def __init__(self) -> None:
        self.active_alloc_events: Dict[int, TraceEvent] = {}
        self.active_reserve_events: Dict[int, TraceEvent] = {}
        self.per_category_alloc_sum: Dict[AllocationType, float] = defaultdict(float)
        self.per_annotation_alloc_sum: Dict[str, float] = defaultdict(float)
        self.per_compile_context_alloc_sum: Dict[str, float] = defaultdict(float)

    def update(self, evt: TraceEvent, profile_types: List[str]) -> None:
        """Count an event."""

    def __gt__(self, other: 'BaseMemoryUsage') -> bool:
        return False

    @property
    def total_alloc(self) -> float:
        """Bytes allocated."""
        return 0.0

    @property
    def total_reserved(self) -> float:
        """Bytes of segments."""
        return 0.0

    def __str__(self) -> str:
        return ''

    def __truediv__(self, other: Union['BaseMemoryUsage', float, int]) -> float:
        return 0.0


class FloatMemoryUsage(BaseMemoryUsage):
    """One number."""

    def __init__(self, float_val: float) -> None:
        super().__init__()
        self.value = float_val

    def __gt__(self, other: BaseMemoryUsage) -> bool:
        return isinstance(other, FloatMemoryUsage) and self.value > other.value

    def __str__(self) -> str:
        return f'{self.value}'

    def __truediv__(self, other: Union[BaseMemoryUsage, float, int]) -> float:
        if isinstance(other, FloatMemoryUsage):
            return self.value / other.value
        return self.value / other if isinstance(other, (int, float)) else 0


# By profile: the sums it fills, and the attribute of an event by which it groups.
_SUMS = {'categories': ('per_category_alloc_sum', 'classification'),
         'annotations': ('per_annotation_alloc_sum', 'annotation'),
         'compile_context': ('per_compile_context_alloc_sum', 'compile_context'),
         'custom': ('per_custom_alloc_sum', 'custom_category')}


class MemoryUsage(BaseMemoryUsage):
    """Sums by group; if `save_profile` is false, totals only."""

    def __init__(self, save_profile: bool = False, track_allocation_order: bool = False) -> None:
        super().__init__()
        self.save_profile = save_profile
        self.per_custom_alloc_sum: Dict[str, float] = defaultdict(float)
        self.track_allocation_order = track_allocation_order
        self.category_stack_tracker = CategoryStackOrderTracker() if track_allocation_order else None
        self.stack_snapshot: Optional[List[Tuple[str, float]]] = None
        self.alloc_usage: float = 0
        self.reserved_usage: float = 0

    def _get_category_for_event(self, evt: TraceEvent, profile_types: List[str]) -> str:
        for profile, (_, group) in _SUMS.items():
            if profile in profile_types:
                value = getattr(evt, group)
                return value.name if isinstance(value, AllocationType) else value
        return 'unknown'

    def _add(self, evt: TraceEvent, size: float, profile_types: List[str]) -> None:
        for profile, (sums, group) in _SUMS.items():
            if profile in profile_types:
                getattr(self, sums)[getattr(evt, group)] += size

    def _alloc(self, evt: TraceEvent, profile_types: List[str]) -> None:
        if evt.addr in self.active_alloc_events:
            logger.warning('Double alloc at addr: %s', evt.addr)
            return
        self.active_alloc_events[evt.addr] = evt
        self._add(evt, evt.size, profile_types)
        if self.category_stack_tracker is not None:
            self.category_stack_tracker.track_allocation(
                evt, self._get_category_for_event(evt, profile_types))

    def _free(self, evt: TraceEvent, profile_types: List[str]) -> None:
        if evt.addr not in self.active_alloc_events:
            logger.warning('Free for unallocated address')
            return
        self._add(self.active_alloc_events.pop(evt.addr), -evt.size, profile_types)
        if self.category_stack_tracker is not None:
            self.category_stack_tracker.track_deallocation(evt.addr)

    def update(self, evt: TraceEvent, profile_types: List[str]) -> None:
        """Count an event, in the sums of these profiles."""
        if not self.save_profile:
            sign = {'alloc': 1, 'segment_alloc': 1, 'free_completed': -1, 'segment_free': -1}
            change = sign.get(evt.action, 0) * evt.size
            if evt.action.startswith('segment'):
                self.reserved_usage += change
            else:
                self.alloc_usage += change
        elif evt.action == 'alloc':
            self._alloc(evt, profile_types)
        elif evt.action == 'free_completed':
            self._free(evt, profile_types)
        elif evt.action == 'segment_alloc':
            self.active_reserve_events.setdefault(evt.addr, evt)
        elif evt.action == 'segment_free':
            self.active_reserve_events.pop(evt.addr, None)

    def _copy_sums(self, other: 'MemoryUsage') -> 'MemoryUsage':
        for sums, _ in _SUMS.values():
            setattr(other, sums, getattr(self, sums).copy())
        other.save_profile = self.save_profile
        return other

    def __copy__(self) -> 'MemoryUsage':
        other = self._copy_sums(MemoryUsage())
        other.active_alloc_events = self.active_alloc_events.copy()
        other.active_reserve_events = self.active_reserve_events.copy()
        other.alloc_usage, other.reserved_usage = self.alloc_usage, self.reserved_usage
        return other

    def partial_copy(self) -> 'MemoryUsage':
        """The sums, and the bands, without their allocations."""
        other = self._copy_sums(MemoryUsage())
        other.track_allocation_order = self.track_allocation_order
        if self.category_stack_tracker is not None:
            other.stack_snapshot = self.category_stack_tracker.get_current_stack_snapshot()
        return other

    def __gt__(self, other: BaseMemoryUsage) -> bool:
        return isinstance(other, MemoryUsage) and self.total_alloc > other.total_alloc

    @property
    def total_alloc(self) -> float:
        if not self.save_profile:
            return self.alloc_usage
        for sums, _ in _SUMS.values():
            if getattr(self, sums):
                groups: Dict[Any, float] = getattr(self, sums)
                return sum(groups.values())
        return sum(evt.size for evt in self.active_alloc_events.values())

    @property
    def total_reserved(self) -> float:
        if not self.save_profile:
            return self.reserved_usage
        return sum(evt.size for evt in self.active_reserve_events.values())

    def _convert_bytes(self, size: float) -> str:
        for unit, factor in (('GiB', 1024**3), ('MB', 1024**2), ('KB', 1024)):
            if size >= factor:
                return f'{round(size / factor, 2)}{unit}'
        return f'{size}B'

    def __str__(self) -> str:
        lines = [f'Total Allocated: {round(self.total_alloc / 1024**3, 2)}GiB']
        for heading, (sums, _) in zip(('Category', 'Annotation', 'Compile Context', 'Custom'),
                                      _SUMS.values()):
            lines.append(f'{heading} Profile:')
            lines += [f'{group}: {self._convert_bytes(size)}'
                      for group, size in getattr(self, sums).items()]
        return '\n'.join(lines)
