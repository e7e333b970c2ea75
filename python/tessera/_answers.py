"""Answers as Python objects: the fields of the JSON (docs/json.md), as attributes.

A Record wraps a dict of the JSON, and wraps nested values on access. The classes below list the
fields, for people and for type checkers. Fields that this version does not list are accessible
too: fields are only ever added.
"""
import copy
import json
import typing
from typing import Any, Dict, Iterator, List, Optional, Sequence, Union

__all__ = ['Record', 'Answer']


class Record:
    """A part of an answer: fields as attributes, and as items."""

    __slots__ = ('_data', '_wrapped')

    def __init__(self, data: Dict[str, Any]) -> None:
        self._data = data
        self._wrapped: Dict[str, Any] = {}

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

    def keys(self):
        """Names of the fields."""
        return self._data.keys()

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
    categories: Record
    names: List[Name]
    omitted_names: int
    frames: List[Frame]


class Device(Record):
    """An answer about one device; pinned host memory is 'host'."""
    device: Union[int, str]
    events: int


# ---- answers ----

class Answer(Record):
    """The answer to a question. `devices` has one entry per device; if there is only one GPU, or
    only pinned host memory, its fields are also the answer's own. Of several GPUs, their lists are joined: `stacks` has the records of
    all, each with the number of its `device`. str() is what the command prints, repr() its verdict."""

    __slots__ = ('_core', '_question', '__weakref__')

    schema: str
    command: str
    inputs: List[Input]
    devices: Sequence[Device]
    warnings: List[Warning]

    def __init__(self, core: Any) -> None:
        super().__init__(json.loads(core.json()))
        self._core = core

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
        devices = self['devices']
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

    def __dir__(self) -> List[str]:
        names = super().__dir__()
        gpus = self._gpus()
        return sorted({*names, *gpus[0]}) if len(gpus) == 1 else names

    def text(self, *, full_stacks: bool = False, verbose: bool = False, quiet: bool = False,
             color: bool = False, width: int = 0) -> str:
        """What the command prints with these options; `width` is the number of columns to which long
        names are shortened, 0 for no limit."""
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
    reused: int
    reused_matched: int
    segments_new: int
    segments_matched: int
    final_blocks: int
    final_matched: int


class InfoDevice(Device):
    actions: Dict[str, int]
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
    devices: Sequence[InfoDevice]


class PeakMoment(Moment):
    unsplit_bytes: int


class Fragmentation(Record):
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
    peak: PeakMoment
    start: Totals
    end: Totals
    start_unsplit_bytes: int
    maxima: Totals
    fragmentation: Fragmentation
    recorded: Recorded
    stacks: List[Stack]
    omitted_stacks: int
    omitted_bytes: int


class Peak(Answer, PeakDevice):
    devices: Sequence[PeakDevice]


class AtDevice(Device):
    event: int
    time_us: Optional[int]
    requested_bytes: int
    allocated_bytes: int
    active_bytes: int
    reserved_bytes: int
    live_allocations: int
    fragmentation: Fragmentation
    stacks: List[Stack]
    omitted_stacks: int
    omitted_bytes: int


class At(Answer, AtDevice):
    devices: Sequence[AtDevice]


class ProfilePeak(Record):
    event: int
    time_us: Optional[int]
    requested_bytes: int
    allocated_bytes: int


class Group(Record):
    name: str
    bytes: int
    allocations: int
    peak_bytes: int
    peak_event: int
    first_event: int


class Layer(Record):
    name: str
    bytes: int
    allocations: int
    birth_event: int


class ProfileDevice(Device):
    by: str
    peak: ProfilePeak
    groups: List[Group]
    omitted_groups: int
    omitted_bytes: int
    layers: List[Layer]
    history: Record


class Profile(Answer, ProfileDevice):
    devices: Sequence[ProfileDevice]


class DiffSide(Record):
    device: Optional[int]
    events: int
    peak: Moment


class Change(Record):
    delta_bytes: int
    old_bytes: int
    new_bytes: int
    old_allocations: int
    new_allocations: int
    status: str
    category: str
    names: List[Name]
    omitted_names: int
    frames: List[Frame]


class DiffDevice(Device):
    old: DiffSide
    new: DiffSide
    delta_bytes: int
    changes: List[Change]
    omitted_changes: int
    omitted_delta_bytes: int
    unchanged_stacks: int
    added_bytes: int
    removed_bytes: int
    grown_bytes: int
    shrunk_bytes: int


class Diff(Answer, DiffDevice):
    devices: Sequence[DiffDevice]


class StagePlace(Record):
    id: int
    name: str
    repetition: int


class Stage(Record):
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
    name: str
    stages: int
    depth: int
    highest: Stage


class StagesDevice(Device):
    peak: Moment
    peak_stages: List[StagePlace]
    stages: List[Stage]
    omitted_stages: int
    groups: List[StageGroup]
    omitted_groups: int


class Stages(Answer, StagesDevice):
    devices: Sequence[StagesDevice]


class StepsDevice(Device):
    basis: str
    steps: List[Record]


class Steps(Answer, StepsDevice):
    devices: Sequence[StepsDevice]


class Leak(Record):
    bytes_per_step: int
    bytes: int
    allocations: int
    names: List[Name]
    omitted_names: int
    frames: List[Frame]


class LeaksDevice(Device):
    basis: str
    leaks: List[Leak]


class Leaks(Answer, LeaksDevice):
    devices: Sequence[LeaksDevice]


class Run(Record):
    settings: str
    recorded: bool
    peak_reserved_bytes: int
    waste_bytes: int
    peak: Moment
    fragmentation: Fragmentation
    end: Record
    cache_flushes: int
    out_of_memory_count: int
    given_up: bool


class WhatifDevice(Device):
    recorded_peak_reserved_bytes: int
    runs: List[Run]
    segments_recorded: int
    segments_reproduced: int
    stacks: List[Stack]
    omitted_stacks: int
    omitted_bytes: int


class Whatif(Answer, WhatifDevice):
    devices: Sequence[WhatifDevice]


class SourceLine(Record):
    line: int
    text: Optional[str]
    self_bytes: int
    self_allocations: int
    inclusive_bytes: int
    inclusive_allocations: int


class SourceDefinition(Record):
    name: str
    first_line: int
    last_line: int
    self_bytes: int
    self_allocations: int
    inclusive_bytes: int
    inclusive_allocations: int


class SourceDevice(Device):
    peak: ProfilePeak
    file: Optional[str]
    source_lines: int
    mentioned_lines: int
    lines_beyond: int
    lines_elsewhere: int
    bytes: int
    allocations: int
    lines: List[SourceLine]
    functions: List[SourceDefinition]
    classes: List[SourceDefinition]


class Source(Answer, SourceDevice):
    devices: Sequence[SourceDevice]


class CategoryShare(Record):
    category: str
    bytes: int
    block_bytes: int
    allocations: int


class WhyDevice(Device):
    reason: str
    capacity_bytes: Optional[int]
    capacity_from: Optional[str]
    outside_bytes: Optional[int]
    peak_reserved_bytes: int
    ooms: List[Record]
    request: Optional[Record]
    fragmentation: Fragmentation
    free: List[Record]
    categories: List[CategoryShare]
    causes: List[Record]


class Why(Answer, WhyDevice):
    devices: Sequence[WhyDevice]


class CheckResult(Record):
    rule: str
    device: int
    category: Optional[str]
    passed: bool
    bytes: int
    limit_bytes: int
    message: str
    causes: List[Record]


class Check(Answer):
    """A check; true if nothing failed."""

    passed: bool
    failed: int
    results: List[CheckResult]

    def __bool__(self) -> bool:
        return not self['failed']

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
