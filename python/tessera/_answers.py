"""Answers as Python objects: the fields of the JSON (docs/json.md), as attributes.

A Record wraps a dict of the JSON, and wraps nested values on access. The classes below list the
fields, for people and for type checkers. Fields that this version does not list are accessible
too: fields are only ever added.
"""
import copy
import itertools
import json
import typing
import zlib
from typing import (TYPE_CHECKING, Any, ClassVar, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple,
                    TypeVar, Union)

from ._errors import UnsupportedError

if TYPE_CHECKING:
    from . import _core

__all__ = ['Record', 'Answer']


class Record(Mapping[str, Any]):
    """A part of an answer: fields as attributes, and as items of a mapping. A list of records is a table for
    pandas.DataFrame()."""

    __slots__ = ('_data', '_wrapped')

    def __init__(self, data: Dict[str, Any]) -> None:
        self._data = data
        self._wrapped: Dict[str, Any] = {}

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
        return f'[{len(value)} of them]' if value else '[]'
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
        return [_wrap(item, kind) for item in value]
    return list(value) if isinstance(value, list) else value


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


class Frame(Record):
    """A function, its file, and the line in it, None where unknown."""
    name: str
    file: str
    line: Optional[int]

    def __str__(self) -> str:
        return f'{self.file}:{"?" if self.line is None else self.line} {self.name}'


class Counts(Record):
    """Numbers by name; the names depend on the file."""


class Totals(Record):
    """PyTorch's four totals, in bytes."""
    requested_bytes: int
    allocated_bytes: int
    active_bytes: int
    reserved_bytes: int


class Moment(Totals):
    """The totals after an event; event -1 is before the first."""
    event: int
    time_us: Optional[int]


class Name(Record):
    """What the program called memory: "h.0.attn.weight", "float32 [768, 768]". `source` is "sidecar",
    "annotation" or "metadata"; `category` is None if the name gives none."""
    name: str
    type: Optional[str]
    category: Optional[str]
    bytes: int
    allocations: int
    source: str


class Stack(Record):
    """What one stack holds; frames innermost first, none if no stack was recorded. `category` is
    the one with the most bytes, `categories` has the bytes of each."""
    bytes: int
    allocations: int
    category: str
    phase: str
    evidence: str
    confidence: str
    categories: Counts
    names: List[Name]
    omitted_names: int
    frames: List[Frame]


class Finding(Record):
    """What the program can change, and what that saves (docs/findings.md)."""
    rule: str
    bytes: int
    saved_bytes: int
    count: Optional[int]
    event: int
    frame: Optional[Frame]
    frames: List[Frame]


class PrivatePool(Record):
    """What the pool of a CUDA graph or a MemPool keeps on a stream."""
    pool: List[int]
    stream: int
    active_bytes: int
    reserved_bytes: int
    high_water_bytes: int


class Device(Record):
    """An answer about one device; pinned host memory is 'host'."""
    device: Union[int, str]
    events: int


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
            raise TypeError(f'the answer has no form {name!r}')
        return zlib.decompress(self._parts[3][name])


_Said = TypeVar('_Said', bound='Answer')


class Answer(Record):
    """The answer to a question. `devices` has one entry per device; if there is only one GPU, or
    only pinned host memory, its fields are also the answer's own. Of several GPUs, their lists are joined: `stacks` has the records of
    all, each with the number of its `device`. str() is what the command prints, repr() its verdict."""

    __slots__ = ('_core', '__weakref__')
    _FORMS: ClassVar[Tuple[str, ...]] = ()

    schema: str
    command: str
    inputs: List[Input]
    devices: Sequence[Device]
    warnings: List[Warning]

    def __init__(self, core: '_core.Answer') -> None:
        super().__init__(json.loads(core.json()))
        self._core = core

    if not TYPE_CHECKING:
        def __getattr__(self, name: str) -> Any:
            if name.startswith('__'):
                raise AttributeError(name)
            if name in self._data:
                return self[name]
            devices, gpus = self['devices'], self._gpus()
            if len(gpus) == 1:
                return getattr(gpus[0], name)
            if gpus and all(isinstance(device._data.get(name), list) for device in gpus):
                return self._joined(gpus, name)
            raise AttributeError(f'{type(self).__name__} has no field {name!r}; the answer is about '
                                 f'{len(devices)} devices, see its .devices')

    def _gpus(self) -> Sequence[Device]:
        """All devices but pinned host memory; or that alone."""
        devices: List[Device] = self['devices']
        return [device for device in devices if device['device'] != 'host'] or devices

    @staticmethod
    def _joined(gpus: Sequence[Device], name: str) -> List[Any]:
        """The lists of several devices as one; each record has its device's number as `device`."""
        rows = []
        for device in gpus:
            for row in device[name]:
                number = {'device': device['device']}
                rows.append(type(row)({**number, **row._data}) if isinstance(row, Record) else row)
        return rows

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


class ReplayCheck(Record):
    """How well the replay agrees with the file; the numbers of a pair are equal if it does."""
    reused: int
    reused_matched: int
    segments_new: int
    segments_matched: int
    final_blocks: int
    final_matched: int


class InfoDevice(Device):
    """What a device's trace contains."""
    actions: Counts
    segments: int
    blocks: int
    stacks: int
    frames: int
    first_time_us: Optional[int]
    last_time_us: Optional[int]
    frees_without_alloc: int
    end: Totals
    replay: ReplayCheck


class Info(Answer, InfoDevice):
    """What is in a file."""
    devices: Sequence[InfoDevice]


class PeakMoment(Moment):
    """The highest moment."""
    unsplit_bytes: int


class Fragmentation(Record):
    """Reserved memory that holds no requested byte, by cause."""
    rounding_bytes: int
    unsplit_bytes: int
    waiting_bytes: int
    free_block_bytes: int
    free_segment_bytes: int
    largest_free_bytes: int


class Recorded(Record):
    """The peak computed from the trace alone: Mosaic's numbers."""
    event: int
    time_us: Optional[int]
    dynamic_peak_bytes: int
    static_bytes: int
    overall_bytes: int


class PeakDevice(Device):
    """What held the memory of a device at its peak."""
    peak: PeakMoment
    start: Totals
    end: Totals
    start_unsplit_bytes: int
    maxima: Totals
    fragmentation: Fragmentation
    private_pools: List[PrivatePool]
    recorded: Recorded
    out_of_memory: Optional['StepsOutOfMemory']
    findings: List[Finding]
    stacks: List[Stack]
    omitted_stacks: int
    omitted_bytes: int


class Peak(Answer, PeakDevice):
    """What held the memory at its peak."""
    devices: Sequence[PeakDevice]


class AtDevice(Device):
    """What held the memory of a device at a moment."""
    event: int
    time_us: Optional[int]
    requested_bytes: int
    allocated_bytes: int
    active_bytes: int
    reserved_bytes: int
    live_allocations: int
    fragmentation: Fragmentation
    private_pools: List[PrivatePool]
    stacks: List[Stack]
    omitted_stacks: int
    omitted_bytes: int


class At(Answer, AtDevice):
    """What held the memory at a moment."""
    devices: Sequence[AtDevice]


class ProfilePeak(Record):
    """The moment for which groups are listed."""
    event: int
    time_us: Optional[int]
    requested_bytes: int
    allocated_bytes: int


class GroupTrace(Record):
    """A group over the whole trace."""
    allocations: int
    bytes: int
    largest_bytes: int
    freed: int
    mean_life_events: Optional[int]
    mean_life_us: Optional[int]


class Reason(Record):
    """Why memory is in its category."""
    phase: str
    evidence: str
    confidence: str
    bytes: int
    allocations: int


class Group(Record):
    """A group of allocations, at the peak and at its own highest."""
    name: str
    bytes: int
    allocations: int
    peak_bytes: int
    peak_event: int
    first_event: int
    trace: GroupTrace
    reasons: List[Reason]
    frames: List[Frame]


class LaterGroup(Record):
    """A group that holds nothing up to the peak."""
    name: str
    peak_bytes: int
    peak_event: int
    first_event: int
    trace: GroupTrace


class Layer(Record):
    """A band of allocations of one group, one after another."""
    name: str
    bytes: int
    allocations: int
    birth_event: int


class HistoryGroup(Record):
    """A group of a history; the last combines those that are not listed, and has no name."""
    name: Optional[str]
    groups: int
    peak_bytes: int
    peak_event: int


class HistoryBand(Record):
    """A band, to which moments refer by its position."""
    group: int
    birth_event: int
    death_event: Optional[int]
    peak_bytes: int


class HistoryMoment(Record):
    """What is held after an event: pairs of a group's position and bytes, and with `ordered` those of bands."""
    event: int
    time_us: Optional[int]
    requested_bytes: int
    older_bytes: int
    groups: List[List[int]]
    bands: List[List[int]]


class History(Record):
    """Memory over time."""
    groups: List[HistoryGroup]
    bands: List[HistoryBand]
    moments: List[HistoryMoment]


class ProfileDevice(Device):
    """A device's memory by group."""
    by: str
    peak: ProfilePeak
    groups: List[Group]
    omitted_groups: int
    omitted_bytes: int
    later_groups: List[LaterGroup]
    omitted_later_groups: int
    layers: List[Layer]
    omitted_layers: int
    omitted_layer_bytes: int
    history: History


class Profile(Answer, ProfileDevice):
    """Memory by group."""
    devices: Sequence[ProfileDevice]


class DiffSide(Record):
    """One of the two files."""
    device: Optional[int]
    events: int
    settings: str
    peak: Moment


class Change(Record):
    """What a stack, or another group, holds in one file and the other."""
    delta_bytes: int
    old_bytes: int
    new_bytes: int
    old_allocations: int
    new_allocations: int
    status: str
    moved: bool
    name: str  # of a group, with `by`
    category: str
    names: List[Name]
    omitted_names: int
    frames: List[Frame]


class DiffCause(Record):
    """What most of the difference is made of."""
    category: Optional[str]
    delta_bytes: int
    line: Optional[str]
    line_delta_bytes: int


class AlignedSide(Record):
    """A step whose allocations were compared one by one."""
    step: Optional[int]
    allocations: int
    peak_event: int
    peak_requested_bytes: int
    peak_allocated_bytes: int


class AlignedSum(Record):
    """How many allocations differ in one way."""
    allocations: int
    bytes: int


class AlignedChange(Record):
    """Allocations that only one file has, or that differ in the same way."""
    status: str
    count: int
    old_size_bytes: Optional[int]
    new_size_bytes: Optional[int]
    old_peak_bytes: int
    new_peak_bytes: int
    old_event: int
    new_event: int
    category: str
    frames: List[Frame]


class Alignment(Record):
    """The last whole steps of two files, allocation by allocation."""
    old: AlignedSide
    new: AlignedSide
    same: int
    moved: int
    removed: AlignedSum
    added: AlignedSum
    resized: AlignedSum
    lifetime: AlignedSum
    changes: List[AlignedChange]
    omitted_changes: int


class DiffDevice(Device):
    """What changed on a device."""
    by: str
    old: DiffSide
    new: DiffSide
    delta_bytes: int
    requested_delta_bytes: int
    rounding_delta_bytes: int
    cause: DiffCause
    alignment: Alignment  # with by='allocation', in the place of what follows
    changes: List[Change]
    omitted_changes: int
    omitted_delta_bytes: int
    unchanged_stacks: int
    moved_stacks: int
    added_bytes: int
    removed_bytes: int
    grown_bytes: int
    shrunk_bytes: int


class Diff(Answer, DiffDevice):
    """What changed from one file to the other."""
    devices: Sequence[DiffDevice]


class StagePlace(Record):
    """A stage, by its number and name."""
    id: int
    name: str
    repetition: int


class Stage(Record):
    """An annotated range, and the highest moment in it."""
    name: str
    id: int
    parent: Optional[int]
    depth: int
    repetition: int
    repetitions: int
    annotation_device: int
    start_recorded: bool
    end_recorded: bool
    start: Moment
    end: Moment
    peak: Moment
    delta_bytes: int


class StageGroup(Record):
    """Stages of one name."""
    name: str
    stages: int
    depth: int
    highest: Stage


class StagesDevice(Device):
    """How high a device's memory went in each stage."""
    peak: Moment
    peak_stages: List[StagePlace]
    stages: List[Stage]
    omitted_stages: int
    groups: List[StageGroup]
    omitted_groups: int


class Stages(Answer, StagesDevice):
    """How high memory went in each stage."""
    devices: Sequence[StagesDevice]


class Step(Record):
    """A step; both its events are part of it."""
    step: int
    first_event: int
    last_event: int
    first_time_us: Optional[int]
    last_time_us: Optional[int]
    allocations: int
    start_bytes: int
    end_bytes: int
    peak_bytes: int
    peak_event: int
    whole: bool
    steady: bool


class Steady(Record):
    """The peaks of steps past the warm-up."""
    peak_bytes: int
    peak_event: Optional[int]
    lowest_peak_bytes: int


class Warmup(Record):
    """The peaks of steps before those."""
    peak_bytes: int
    surplus_bytes: int


class StepAnnotations(Record):
    """How many ranges of a name match a step."""
    name: str
    ranges: int
    matched: int


class StepPhase(Record):
    """The peak of a phase, of all steady steps."""
    phase: str
    steps: int
    peak_bytes: int
    peak_event: int


class StepsOutOfMemory(Record):
    """Where memory ran out for good. Its field "pass", the forward passes that had begun, is an item only: the
    word is a keyword."""
    event: int
    phase: str
    step: Optional[int]
    steps: int
    allocated_bytes: int


class StepsDevice(Device):
    """The steps of a device's trace."""
    basis: str
    unit: str
    counts_backwards: bool
    out_of_memory: Optional[StepsOutOfMemory]
    step_count: int
    whole_steps: int
    steady_steps: int
    step_allocations: int
    step_time_us: Optional[int]
    steady: Steady
    warmup: Warmup
    annotations: List[StepAnnotations]
    phases: List[StepPhase]
    steps: List[Step]


class Steps(Answer, StepsDevice):
    """Where steps begin, and what one needs."""
    devices: Sequence[StepsDevice]


class Leak(Record):
    """A stack that holds more after each step."""
    bytes_per_step: int
    bytes: int
    allocations: int
    since_step: int
    growing_steps: int
    first_event: int
    first_time_us: Optional[int]
    names: List[Name]
    omitted_names: int
    frames: List[Frame]


class LeaksDevice(Device):
    """What grows on a device."""
    basis: str
    unit: str
    out_of_memory: Optional[StepsOutOfMemory]
    whole_steps: int
    answered: bool
    bytes_per_step: int
    leaks: List[Leak]
    omitted_leaks: int
    omitted_bytes_per_step: int


class Leaks(Answer, LeaksDevice):
    """What grows from step to step."""
    devices: Sequence[LeaksDevice]


class RunEnd(Record):
    """After the last event."""
    reserved_bytes: int
    segments: int


class RunOutOfMemory(Moment):
    """The first request that could not be served."""
    request_bytes: int


class RecordedOutOfMemory(Record):
    """The first oom event of the trace, and the number of them."""
    event: int
    request_bytes: int
    count: int


class Run(Record):
    """The trace on an allocator with other settings."""
    settings: str
    recorded: bool
    fits: Optional[bool]
    failed_event: int  # if it does not fit
    peak_reserved_bytes: int
    waste_bytes: int
    peak: Moment
    fragmentation: Fragmentation
    end: RunEnd
    cache_flushes: int
    out_of_memory_count: int
    out_of_memory: RunOutOfMemory  # if there were any
    given_up: bool


class WhatifDevice(Device):
    """What other settings would have done on a device."""
    capacity_bytes: Optional[int]
    capacity_from: Optional[str]
    not_comparable: Optional[str]
    recorded_peak_reserved_bytes: int
    recorded_out_of_memory: RecordedOutOfMemory  # if the trace has any
    runs: List[Run]
    segments_recorded: int
    segments_reproduced: int
    stacks: List[Stack]
    omitted_stacks: int
    omitted_bytes: int


class Whatif(Answer, WhatifDevice):
    """What other settings, or another card, would have done."""
    devices: Sequence[WhatifDevice]


class SourceCost(Record):
    """What a place of the source holds in one of two files."""
    self_bytes: int
    self_allocations: int
    inclusive_bytes: int
    inclusive_allocations: int


class SourceFile(Record):
    """Another file of the same name."""
    file: str


class SourceLine(Record):
    """A line of the source, and what it holds."""
    line: int
    text: Optional[str]
    self_bytes: int
    self_allocations: int
    inclusive_bytes: int
    inclusive_allocations: int
    # of two files, instead of the four numbers:
    old: SourceCost
    new: SourceCost
    self_delta_bytes: int
    inclusive_delta_bytes: int


class SourceDefinition(Record):
    """A function or class of the source, and what it holds."""
    name: str
    first_line: int
    last_line: int
    self_bytes: int
    self_allocations: int
    inclusive_bytes: int
    inclusive_allocations: int
    # of two files, instead of the four numbers:
    old: SourceCost
    new: SourceCost
    self_delta_bytes: int
    inclusive_delta_bytes: int


class SourceDevice(Device):
    """What the lines of the source hold on a device."""
    peak: ProfilePeak
    file: Optional[str]
    other_files: List[SourceFile]
    source_lines: int
    mentioned_lines: int
    lines_beyond: int
    lines_elsewhere: int
    bytes: int
    allocations: int
    lines: List[SourceLine]
    functions: List[SourceDefinition]
    classes: List[SourceDefinition]
    omitted_lines: int
    omitted_line_bytes: int
    omitted_functions: int
    omitted_classes: int
    # of two files, instead of bytes and allocations:
    old_bytes: int
    new_bytes: int


class Source(Answer, SourceDevice):
    """Which lines of a source file cost what."""
    devices: Sequence[SourceDevice]


class CategoryShare(Record):
    """What a category holds when memory runs out."""
    category: str
    bytes: int
    block_bytes: int
    allocations: int


class OutOfMemory(Record):
    """A request that PyTorch could not serve; `recovered`: something was allocated afterwards."""
    event: int
    time_us: Optional[int]
    request_bytes: int
    device_free_bytes: int
    recovered: bool


class Request(Record):
    """The request that failed, and what it needed."""
    request_bytes: int
    needed_bytes: int
    missing_bytes: Optional[int]
    device_free_bytes: Optional[int]
    stream: int
    pool: List[int]
    frame: Optional[Frame]
    layer: Optional[Frame]
    frames: List[Frame]


class FreeMemory(Record):
    """What was free in PyTorch's cache, and could not serve the request."""
    cache: str
    bytes: int
    blocks: int
    largest_bytes: int
    segment_bytes: int


class Cause(Record):
    """A stack that held memory when it ran out."""
    category: str
    bytes: int
    block_bytes: int
    allocations: int
    covers_missing: bool
    frame: Optional[Frame]
    layer: Optional[Frame]
    names: List[Name]
    omitted_names: int
    frames: List[Frame]


class Trial(Record):
    """The trace with other settings, as far as the failure and beyond."""
    settings: str
    recorded: bool
    fits: bool
    failed_event: Optional[int]
    missing_bytes: int
    reserved_bytes: int
    reserved_peak_bytes: int
    rest_fits: Optional[bool]
    rest_missing_bytes: Optional[int]
    given_up: bool


class Advice(Record):
    """A change that helps, and whether it is enough."""
    change: str
    settings: Optional[str]
    batch_percent: Optional[int]
    peak_bytes: Optional[int]
    update_bytes: Optional[int]
    assumes: Optional[str]
    enough: Optional[bool]


class Outlook(Record):
    """What the step would have needed beyond the failure."""
    basis: str
    step: Optional[int]
    unit: str
    phase: Optional[str]
    like_event: Optional[int]
    peak_bytes: Optional[int]
    asked_bytes: Optional[int]
    short_bytes: Optional[int]
    step_growth_bytes: Optional[int]
    block_bytes: Optional[int]
    block_count: Optional[int]
    blocks_begun: Optional[int]


class WhyMoment(Record):
    """The moment that the answer is about."""
    event: int
    time_us: Optional[int]
    totals: Totals


class WhyDevice(Device):
    """Why a device ran out of memory."""
    reason: str
    capacity_bytes: Optional[int]
    capacity_from: Optional[str]
    outside_bytes: Optional[int]
    peak_reserved_bytes: int
    moment: WhyMoment
    ooms: List[OutOfMemory]
    request: Optional[Request]
    asked_bytes: Optional[int]
    lost_bytes: int
    beyond_settings: bool
    model_agrees: Optional[bool]
    fragmentation: Fragmentation
    private_pools: List[PrivatePool]
    free: List[FreeMemory]
    categories: List[CategoryShare]
    causes: List[Cause]
    omitted_causes: int
    omitted_bytes: int
    omitted_block_bytes: int
    findings: List[Finding]
    trial_capacity_bytes: Optional[int]
    trials: List[Trial]
    outlook: Outlook
    advice: List[Advice]


class Why(Answer, WhyDevice):
    """Why it ran out of memory."""
    devices: Sequence[WhyDevice]


class CheckCause(Record):
    """What most likely made a rule fail."""
    name: str
    category: str
    peak_bytes: int
    peak_event: int
    allocations: int
    bytes: int
    locked: Optional[bool]
    locked_bytes: Optional[int]
    frame: Optional[Frame]
    layer: Optional[Frame]
    names: List[Name]
    omitted_names: int
    frames: List[Frame]


class CheckResult(Record):
    """A rule, and what it found."""
    rule: str
    device: Union[int, str]
    category: Optional[str]
    passed: bool
    bytes: int
    event: int
    limit_bytes: int
    tolerance_bytes: int
    message: str
    by_change: bool
    causes: List[CheckCause]
    omitted_causes: int
    omitted_bytes: int


class CheckMoment(Record):
    """The peak."""
    event: int
    time_us: Optional[int]
    totals: Totals


class CheckReserved(Record):
    """The most that was reserved."""
    event: int
    bytes: int


class CheckCategory(Record):
    """A category when it held most, and at the peak."""
    category: str
    peak_bytes: int
    peak_event: int
    bytes: int


class CheckDevice(Device):
    """What was measured on a device."""
    peak: CheckMoment
    reserved: CheckReserved
    categories: List[CheckCategory]


class Check(Answer):
    """A check; true if it passed: something was checked, nothing failed, and the file leaves no doubt (`doubt`), for
    example because it is truncated."""

    __slots__ = ()
    _FORMS = ('lock', 'junit', 'sarif', 'markdown')

    passed: bool
    failed: int
    cut: bool
    counts_blocks: bool
    doubt: Optional[str]
    results: List[CheckResult]
    devices: Sequence[CheckDevice]

    def __bool__(self) -> bool:
        return bool(self['passed'] and self['results'])

    def lock(self) -> str:
        """The measured figures as the text of a lock, to be kept with the code."""
        return self._core.form('lock', None).decode('utf-8')

    def form(self, name: str, root: Optional[str] = None) -> str:
        """The check as 'junit', 'sarif' or 'markdown'; `root` is the folder of the checkout as it
        appears in the snapshot."""
        return self._core.form(name, root).decode('utf-8')


# The class of each question's answer; of others it is Answer.
KINDS: Dict[str, Any] = {
    'info': Info, 'peak': Peak, 'at': At, 'profile': Profile, 'diff': Diff, 'stages': Stages,
    'source': Source, 'steps': Steps, 'leaks': Leaks, 'whatif': Whatif, 'why': Why, 'check': Check,
}
