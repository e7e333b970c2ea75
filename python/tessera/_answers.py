"""Answers as Python objects: a class for each, and for each of its parts, with the fields of the JSON.

docs/json.md explains the fields. Written by gendocs (`./run generate`) from what the questions declare in
their fields.c: change it there.
"""
from typing import Any, Dict, Optional, Sequence, Tuple, Union

from ._fields import Answer, Counts, Drawn, Input, Judged, Place, Record, Unframed, Warning

__all__ = ['Answer', 'Counts', 'Input', 'Record', 'Warning']


class Device(Record):
    """An answer about one device; pinned host memory is 'host', that of the CPU 'cpu'."""
    device: Union[int, str]
    events: int
    has_history: bool  # not always there


class Totals(Record):
    """Four byte counts, in PyTorch's terms."""
    requested_bytes: int
    allocated_bytes: int
    active_bytes: int
    reserved_bytes: int


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
    plan_hash: str  # not always there


class Info(Answer, InfoDevice):
    """What is in a file."""
    devices: Sequence[InfoDevice]


class Imbalance(Record):
    """GPUs that share the work and have very different peaks."""
    device: Union[int, str]
    peak_bytes: int
    least_device: Union[int, str]
    least_peak_bytes: int
    mean_peak_bytes: int
    devices_at_work: int
    data_parallel: bool


class Moment(Totals):
    """The totals after an event."""
    event: int
    time_us: Optional[int]


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


class PrivatePool(Record):
    """What the pool of a CUDA graph or a MemPool keeps on a stream."""
    pool: Tuple[int, int]
    stream: int
    active_bytes: int
    reserved_bytes: int
    high_water_bytes: int


class Recorded(Record):
    """The peak computed from the trace alone: Mosaic's numbers."""
    event: int
    time_us: Optional[int]
    dynamic_peak_bytes: int
    static_bytes: int
    overall_bytes: int


class StepsOutOfMemory(Record):
    """Where memory ran out for good."""
    event: int
    phase: str
    step: Optional[int]
    # 'pass' is an item only: the name is a keyword
    allocated_bytes: int


class Name(Record):
    """What the program called memory (categories.md)."""
    name: str
    type: Optional[str]
    category: Optional[str]
    bytes: int
    allocations: int
    source: str


class Frame(Place):
    """A function that was being executed."""
    name: str
    file: str
    line: Optional[int]


class Stack(Record):
    """What one stack holds."""
    bytes: int
    allocations: int
    category: str
    phase: str
    evidence: str
    confidence: str
    categories: Counts
    names: Tuple[Name, ...]
    omitted_names: int
    before_recording: bool  # not always there
    frames: Tuple[Frame, ...]


class FindingOption(Record):
    """A change that makes parameters, gradients or optimizer state smaller."""
    option: str
    saved_bytes: int


class Finding(Record):
    """What the program can change, and what that saves (findings.md)."""
    rule: str
    bytes: int
    saved_bytes: int
    count: Optional[int]
    event: int
    block: Optional[Frame]  # not always there
    call: str  # not always there
    step_bytes: int  # not always there
    parameter_bytes: int  # not always there
    gradient_bytes: int  # not always there
    optimizer_state_bytes: int  # not always there
    copy_bytes: int  # not always there
    peak_bytes: int  # not always there
    options: Tuple[FindingOption, ...]  # not always there
    settings: str  # not always there
    settings_saved_bytes: int  # not always there
    frame: Optional[Frame]
    frames: Tuple[Frame, ...]


class PeakDevice(Device):
    """What held the memory of a device at its peak."""
    peak: PeakMoment
    start: Totals
    start_unsplit_bytes: int
    end: Totals
    maxima: Totals
    fragmentation: Fragmentation
    private_pools: Tuple[PrivatePool, ...]
    recorded: Recorded
    out_of_memory: Optional[StepsOutOfMemory]
    stacks: Tuple[Stack, ...]
    omitted_stacks: int
    omitted_bytes: int
    findings: Tuple[Finding, ...]


class Peak(Answer, PeakDevice):
    """What held the memory at its peak."""
    imbalance: Optional[Imbalance]
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
    private_pools: Tuple[PrivatePool, ...]
    stacks: Tuple[Stack, ...]
    omitted_stacks: int
    omitted_bytes: int


class At(Answer, AtDevice):
    """What held the memory at a moment."""
    devices: Sequence[AtDevice]


class ProfilePeak(Record):
    """The moment for which groups or lines are listed."""
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
    reasons: Tuple[Reason, ...]  # not always there
    frames: Tuple[Frame, ...]  # not always there


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
    """A band that moments refer to."""
    group: int
    birth_event: int
    death_event: Optional[int]
    peak_bytes: int


class HistoryMoment(Record):
    """What groups hold after an event."""
    event: int
    time_us: Optional[int]
    requested_bytes: int
    older_bytes: int
    groups: Tuple[Tuple[int, int], ...]
    bands: Tuple[Tuple[int, int], ...]  # not always there


class History(Record):
    """Groups over time."""
    groups: Tuple[HistoryGroup, ...]
    bands: Tuple[HistoryBand, ...]  # not always there
    moments: Tuple[HistoryMoment, ...]


class ProfileDevice(Device):
    """A device's memory by group."""
    by: str
    peak: ProfilePeak
    groups: Tuple[Group, ...]
    omitted_groups: int
    omitted_bytes: int
    later_groups: Tuple[LaterGroup, ...]
    omitted_later_groups: int
    layers: Tuple[Layer, ...]  # not always there
    omitted_layers: int  # not always there
    omitted_layer_bytes: int  # not always there
    history: History  # not always there


class Profile(Answer, ProfileDevice):
    """Memory by group."""
    devices: Sequence[ProfileDevice]


class DiffSide(Record):
    """One of the two files."""
    device: Optional[Union[int, str]]
    events: int
    settings: str
    peak: Moment


class DiffCompared(Record):
    """The moments whose content is compared."""
    phase: Optional[str]
    old_event: int
    new_event: int
    delta_bytes: int
    requested_delta_bytes: int


class DiffPhase(Record):
    """When most is allocated in a phase."""
    phase: str
    old_event: Optional[int]
    new_event: Optional[int]
    old_bytes: Optional[int]
    new_bytes: Optional[int]


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
    frames: Tuple[Frame, ...]


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
    changes: Tuple[AlignedChange, ...]
    omitted_changes: int


class Change(Record):
    """What a stack, or another group, holds in one file and the other."""
    delta_bytes: int
    old_bytes: int
    new_bytes: int
    old_allocations: int
    new_allocations: int
    status: str
    moved: bool
    name: str  # not always there
    category: str  # not always there
    names: Tuple[Name, ...]  # not always there
    omitted_names: int  # not always there
    before_recording: bool  # not always there
    frames: Tuple[Frame, ...]  # not always there


class DiffDevice(Record):
    """What changed on a device."""
    device: Union[int, str]
    by: str
    old: DiffSide
    new: DiffSide
    delta_bytes: int
    requested_delta_bytes: int
    compared: DiffCompared
    phases: Tuple[DiffPhase, ...]
    cause: DiffCause
    alignment: Alignment  # not always there
    changes: Tuple[Change, ...]  # not always there
    omitted_changes: int  # not always there
    omitted_delta_bytes: int  # not always there
    rounding_delta_bytes: int  # not always there
    moved_stacks: int  # not always there
    unchanged_stacks: int  # not always there
    added_bytes: int  # not always there
    removed_bytes: int  # not always there
    grown_bytes: int  # not always there
    shrunk_bytes: int  # not always there


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
    delta_bytes: Optional[int]


class StageGroup(Record):
    """Stages of one name."""
    name: str
    stages: int
    depth: int
    highest: Stage


class StagesDevice(Device):
    """How high a device's memory went in each stage."""
    peak: Moment
    peak_stages: Tuple[StagePlace, ...]
    stages: Tuple[Stage, ...]
    omitted_stages: int
    groups: Tuple[StageGroup, ...]
    omitted_groups: int


class Stages(Answer, StagesDevice):
    """How high memory went in each stage."""
    devices: Sequence[StagesDevice]


class SourceFile(Record):
    """Another file of the same name."""
    file: str


class SourceCost(Record):
    """What a place of the source holds in one of two files."""
    self_bytes: int
    self_allocations: int
    inclusive_bytes: int
    inclusive_allocations: int


class SourceLine(Record):
    """A line of the source, and what it holds."""
    line: int
    # 'in' is an item only: the name is a keyword
    text: Optional[str]
    self_bytes: int  # not always there
    self_allocations: int  # not always there
    inclusive_bytes: int  # not always there
    inclusive_allocations: int  # not always there
    old: SourceCost  # not always there
    new: SourceCost  # not always there
    self_delta_bytes: int  # not always there
    inclusive_delta_bytes: int  # not always there


class SourceDefinition(Record):
    """A function or class of the source, and what it holds."""
    name: str
    first_line: int  # not always there
    last_line: int  # not always there
    self_bytes: int  # not always there
    self_allocations: int  # not always there
    inclusive_bytes: int  # not always there
    inclusive_allocations: int  # not always there
    old: SourceCost  # not always there
    new: SourceCost  # not always there
    self_delta_bytes: int  # not always there
    inclusive_delta_bytes: int  # not always there


class SourceDevice(Record):
    """What the lines of the source hold on a device."""
    device: Union[int, str]
    events: int  # not always there
    peak: ProfilePeak  # not always there
    file: Optional[str]
    other_files: Tuple[SourceFile, ...]
    source_lines: int
    mentioned_lines: int
    lines_beyond: int
    lines_elsewhere: int
    bytes: int  # not always there
    allocations: int  # not always there
    old_bytes: int  # not always there
    new_bytes: int  # not always there
    lines: Tuple[SourceLine, ...]
    omitted_lines: int
    omitted_line_bytes: int  # not always there
    functions: Tuple[SourceDefinition, ...]
    omitted_functions: int
    classes: Tuple[SourceDefinition, ...]
    omitted_classes: int


class Source(Answer, SourceDevice):
    """Which lines of a source file cost what."""
    devices: Sequence[SourceDevice]


class StepsPeak(Record):
    """Where the peak of the whole trace is."""
    event: int
    allocated_bytes: int
    phase: str
    loop: Optional[int]
    step: Optional[int]


class Steady(Record):
    """The peaks of a loop's steps past the warm-up."""
    peak_bytes: int
    peak_event: Optional[int]
    lowest_peak_bytes: int
    growth_bytes: int


class Warmup(Record):
    """The peaks of steps before those."""
    peak_bytes: int
    surplus_bytes: int


class StepsLoop(Record):
    """Steps that are rounds of one loop: run from one line, and doing the same."""
    loop: int
    main: bool
    listed: bool
    unit: str
    frame: Optional[Frame]
    first_step: int
    last_step: int
    first_event: int
    last_event: int
    step_count: int
    whole_steps: int
    steady_steps: int
    peak_bytes: int
    peak_event: int
    peak_step: int
    step_allocations: int
    step_time_us: Optional[int]
    steady: Steady
    warmup: Warmup


class StepAnnotations(Record):
    """How many ranges of a name match a step."""
    name: str
    ranges: int
    matched: int


class StepPhase(Record):
    """The peak of a phase, of all steady steps of the main loop."""
    phase: str
    steps: int
    peak_bytes: int
    peak_event: int


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
    loop: int


class StepsDevice(Device):
    """The steps of a device's trace."""
    basis: str
    unit: str
    counts_backwards: bool
    out_of_memory: Optional[StepsOutOfMemory]
    peak: StepsPeak
    loops: Tuple[StepsLoop, ...]
    step_count: int
    whole_steps: int
    steady_steps: int
    step_allocations: int
    step_time_us: Optional[int]
    steady: Steady
    warmup: Warmup
    annotations: Tuple[StepAnnotations, ...]
    phases: Tuple[StepPhase, ...]
    steps: Tuple[Step, ...]


class Steps(Answer, StepsDevice):
    """Where steps begin, and what one needs."""
    devices: Sequence[StepsDevice]


class LeaksLoop(Record):
    """A loop, judged by itself."""
    loop: int
    unit: str
    frame: Optional[Frame]
    whole_steps: int
    answered: bool
    leak_count: int
    bytes_per_step: int


class Leak(Record):
    """A stack that holds more after each step."""
    bytes_per_step: int
    bytes: int
    allocations: int
    since_step: int
    growing_steps: int
    first_event: int
    first_time_us: Optional[int]
    loop: int
    names: Tuple[Name, ...]
    omitted_names: int
    frames: Tuple[Frame, ...]


class LeaksDevice(Device):
    """What grows on a device."""
    basis: str
    unit: str
    whole_steps: int
    answered: bool
    out_of_memory: Optional[StepsOutOfMemory]
    bytes_per_step: int
    loops: Tuple[LeaksLoop, ...]
    leaks: Tuple[Leak, ...]
    omitted_leaks: int
    omitted_bytes_per_step: int


class Leaks(Answer, LeaksDevice):
    """What grows from step to step."""
    devices: Sequence[LeaksDevice]


class WhyMoment(Record):
    """The moment that the answer is about."""
    event: int
    time_us: Optional[int]
    totals: Totals


class OutOfMemory(Record):
    """A request that PyTorch could not serve."""
    event: int
    time_us: Optional[int]
    request_bytes: int
    device_free_bytes: int
    recovered: bool


class Request(Record):
    """The request that failed, and what it needed."""
    request_bytes: int
    needed_bytes: int
    device_free_bytes: int
    missing_bytes: int
    reason: str
    stream: int
    pool: Tuple[int, int]
    frame: Optional[Frame]
    layer: Optional[Frame]
    frames: Tuple[Frame, ...]


class HeldOutside(Record):
    """Who holds a part of the card outside PyTorch."""
    kind: str
    name: Optional[str]
    pid: Optional[int]
    bytes: int
    grew_bytes: int
    steady: bool
    covers_missing: bool


class OutsideCause(Record):
    """What outside PyTorch explains the failure."""
    index: int
    sort: str
    bytes: int


class FreeMemory(Record):
    """What was free in PyTorch's cache, and could not serve the request."""
    cache: str
    bytes: int
    blocks: int
    largest_bytes: int
    segment_bytes: int


class CategoryShare(Record):
    """What a category holds when memory runs out."""
    category: str
    bytes: int
    block_bytes: int
    allocations: int


class Cause(Record):
    """A line that held memory when it ran out."""
    category: str
    bytes: int
    block_bytes: int
    allocations: int
    covers_missing: bool
    frame: Optional[Frame]
    layer: Optional[Frame]
    names: Tuple[Name, ...]
    omitted_names: int
    before_recording: bool  # not always there
    frames: Tuple[Frame, ...]


class Trial(Record):
    """The trace with other settings, as far as the failure and beyond."""
    settings: str
    recorded: bool
    fits: bool
    failed_event: Optional[int]
    missing_bytes: int
    reserved_peak_bytes: int
    reserved_bytes: int
    given_up: bool
    rest_fits: Optional[bool]
    rest_missing_bytes: int


class Outlook(Record):
    """What the step would have needed beyond the failure."""
    basis: str
    phase: str
    step: Optional[int]
    unit: str
    like_event: Optional[int]
    blocks_begun: Optional[int]
    block_count: Optional[int]
    block_bytes: Optional[int]
    step_growth_bytes: int
    peak_bytes: Optional[int]
    asked_bytes: Optional[int]
    short_bytes: Optional[int]


class Advice(Record):
    """A change that helps, and whether it is enough."""
    change: str
    enough: Optional[bool]
    settings: Optional[str]
    batch_percent: Optional[int]
    peak_bytes: Optional[int]
    update_bytes: Optional[int]
    assumes: Optional[str]


class WhyDevice(Device):
    """Why a device ran out of memory."""
    reason: str
    moment: WhyMoment
    peak_reserved_bytes: int
    ooms: Tuple[OutOfMemory, ...]
    request: Optional[Request]
    capacity_bytes: Optional[int]
    capacity_from: Optional[str]
    outside_bytes: Optional[int]
    outside: Tuple[HeldOutside, ...]
    asleep_bytes: int
    outside_time_us: Optional[int]
    outside_causes: Tuple[OutsideCause, ...]
    lost_bytes: int
    free: Tuple[FreeMemory, ...]
    fragmentation: Fragmentation
    private_pools: Tuple[PrivatePool, ...]
    categories: Tuple[CategoryShare, ...]
    causes: Tuple[Cause, ...]
    omitted_causes: int
    omitted_bytes: int
    omitted_block_bytes: int
    trial_capacity_bytes: int  # not always there
    asked_bytes: int  # not always there
    beyond_settings: bool  # not always there
    model_agrees: Optional[bool]  # not always there
    trials: Tuple[Trial, ...]  # not always there
    outlook: Outlook  # not always there
    advice: Tuple[Advice, ...]  # not always there
    findings: Tuple[Finding, ...]


class Why(Answer, WhyDevice):
    """Why it ran out of memory."""
    imbalance: Optional[Imbalance]
    devices: Sequence[WhyDevice]


class PoolSums(Record):
    """Reserved memory, which the other four add up to."""
    reserved_bytes: int
    used_bytes: int
    pinned_bytes: int
    releasable_bytes: int
    kept_bytes: int


class Pool(PoolSums):
    """Blocks that serve each other's requests: of one id, one stream and one size class."""
    pool: Tuple[int, int]
    stream: int
    size: str
    kind: str
    segments: int
    end_reserved_bytes: int
    end_used_bytes: int
    most_reserved_bytes: int
    most_reserved_event: int
    most_used_bytes: int
    frames: Tuple[Frame, ...]


class PoolHolder(Record):
    """Live blocks of one stack in a pool, in segments that are free in part."""
    pool: Tuple[int, int]
    stream: int
    size: str
    segments: int
    segment_bytes: int
    free_bytes: int
    blocks: int
    block_bytes: int
    shared_segments: int
    shared_free_bytes: int
    frames: Tuple[Frame, ...]


class PinnedSegment(Record):
    """A segment that is free in part."""
    address: int
    size_bytes: int
    free_bytes: int
    pool: Tuple[int, int]
    stream: int
    size: str
    page: bool
    blocks: int
    block_bytes: int
    stacks: int
    frames: Tuple[Frame, ...]


class PoolThen(PoolSums):
    """What a pool held at another moment."""
    pool: Tuple[int, int]
    stream: int
    size: str


class PoolMoment(PoolSums):
    """Another moment: a step's end, or where most was free in a phase."""
    at: str
    step: int  # not always there
    phase: str
    event: int
    time_us: Optional[int]
    pools: Tuple[PoolThen, ...]
    holder: Optional[PoolHolder]


class PoolTrial(Record):
    """The trace with other pools, repeated on the model of the allocator."""
    pools: str
    pool: Tuple[int, int]  # not always there
    peak_reserved_bytes: int
    at_least: bool
    given_up: bool


class PoolsDevice(Device):
    """The pools of a device."""
    reason: str
    moment: Moment
    sums: PoolSums
    card_bytes: Optional[int]
    pools: Tuple[Pool, ...]
    holders: Tuple[PoolHolder, ...]
    omitted_holders: int
    omitted_holder_bytes: int
    segments: Tuple[PinnedSegment, ...]
    omitted_segments: int
    omitted_segment_bytes: int
    moments: Tuple[PoolMoment, ...]
    omitted_step_ends: int
    recorded_peak_reserved_bytes: int
    trials: Tuple[PoolTrial, ...]


class Pools(Answer, PoolsDevice):
    """Which pools reserved memory is in, and what keeps it there."""
    devices: Sequence[PoolsDevice]


class RunEnd(Record):
    """After the last event."""
    reserved_bytes: int
    segments: int


class RunOutOfMemory(Moment):
    """The first request that could not be served."""
    request_bytes: int


class Run(Record):
    """The trace on an allocator with other settings."""
    settings: str
    recorded: bool
    fits: Optional[bool]
    failed_event: int  # not always there
    peak_reserved_bytes: int
    waste_bytes: int
    peak: Moment
    fragmentation: Fragmentation
    end: RunEnd
    cache_flushes: int
    out_of_memory_count: int
    given_up: bool
    out_of_memory: RunOutOfMemory  # not always there


class RecordedOutOfMemory(Record):
    """The first oom event of the trace, and the number of them."""
    event: int
    request_bytes: int
    count: int


class WhatifDevice(Device):
    """What other settings would have done on a device."""
    not_comparable: Optional[str]
    recorded_peak_reserved_bytes: int
    capacity_bytes: Optional[int]
    capacity_from: Optional[str]
    outside_bytes: Optional[int]
    runs: Tuple[Run, ...]
    segments_recorded: int
    segments_reproduced: int
    recorded_out_of_memory: RecordedOutOfMemory  # not always there
    stacks: Tuple[Stack, ...]
    omitted_stacks: int
    omitted_bytes: int


class Whatif(Answer, WhatifDevice):
    """What other settings, or another card, would have done."""
    devices: Sequence[WhatifDevice]


class RankCheck(Record):
    """A budget, and the rank or the group that is furthest above it, or nearest below."""
    rule: str
    category: Optional[str]
    passed: bool
    bytes: int
    limit_bytes: int
    rank: int
    device: Union[int, str]
    lowest_rank: Optional[int]
    group: str
    failed_ranks: Tuple[int, ...]
    failed: int
    message: str
    stack_bytes: Optional[int]
    frames: Tuple[Frame, ...]


class Rank(Record):
    """A device of a rank, in its last snapshot."""
    rank: int
    path: str
    device: Union[int, str]
    group: str
    peak_allocated_bytes: int
    peak_reserved_bytes: int
    end_allocated_bytes: int
    end_reserved_bytes: int
    out_of_memory: bool
    out_of_memory_time_us: Optional[int]
    out_of_memory_bytes: Optional[int]
    partial: bool
    step: Optional[int]
    clock_ahead_us: Optional[int]
    coordinates: Counts


class RankGroup(Record):
    """Ranks of equal role, and the peaks of what they allocated."""
    name: str
    ranks: Tuple[int, ...]
    median_rank: int
    min_bytes: int
    median_bytes: int
    max_bytes: int


class RankChange(Record):
    """A stack and category in which the rank differs from the one that it is compared with."""
    delta_bytes: int
    median_bytes: int
    bytes: int
    category: str
    others: int
    frames: Tuple[Frame, ...]


class RankOutlier(Record):
    """A rank that holds more than its equals do, whatever they vary by."""
    rank: int
    device: Union[int, str]
    group: str
    compared_with: Optional[int]
    delta_bytes: int
    excess_bytes: int
    cause_code: str
    cause: str
    changes: Tuple[RankChange, ...]


class RankGrowthStack(Record):
    """A stack that grew from the first snapshot of a rank to its last."""
    first_bytes: int
    last_bytes: int
    bytes_per_hour: Optional[float]
    category: str
    frames: Tuple[Frame, ...]


class RankGrowth(Record):
    """A device of a rank with several snapshots that grew: of two, from one to the other; of more, steadily."""
    rank: int
    device: Union[int, str]
    snapshots: int
    first_bytes: int
    last_bytes: int
    bytes_per_hour: Optional[float]
    steady: bool
    limit_bytes: Optional[int]
    full_time_us: Optional[int]
    stacks: Tuple[RankGrowthStack, ...]


class RankStraggler(Record):
    """A rank that is late in its steps, by when it allocates in them."""
    rank: int
    group: str
    late_us: int
    step_us: int
    late_steps: int
    steps: int


class BrokenFile(Record):
    """A file that says nothing about a rank."""
    path: str
    message: str


class Ranks(Drawn):
    """Which of many ranks ran out of memory, or differs from its equals."""
    passed: Optional[bool]
    doubt: Optional[str]
    checks: Tuple[RankCheck, ...]
    files: int
    known_files: int
    world_size: Optional[int]
    ranks_by: str
    groups_by: str
    first_out_of_memory: Optional[int]
    ranks: Tuple[Rank, ...]
    groups: Tuple[RankGroup, ...]
    outliers: Tuple[RankOutlier, ...]
    out_of_memory: Tuple[int, ...]
    growth: Tuple[RankGrowth, ...]
    stragglers: Tuple[RankStraggler, ...]
    missing: Tuple[int, ...]
    missing_parts: Tuple[int, ...]
    broken: Tuple[BrokenFile, ...]


class CardApart(Record):
    """A card on which something takes far more than on the others."""
    card: int
    rank: Optional[int]
    path: str
    kind: str
    bytes: int
    others_bytes: int


class CardBroken(Record):
    """A file that could not be read."""
    path: str
    message: str


class CardPart(Record):
    """Who holds a part of the card's used memory."""
    name: str
    bytes: int
    kind: str
    holder: Optional[int]
    pid: Optional[int]
    group: Optional[str]
    # 'from' is an item only: the name is a keyword


class CardMoment(Record):
    """The card at one sample."""
    time_us: Optional[int]
    mark: Optional[str]
    used_bytes: int
    parts: Tuple[CardPart, ...]


class CardGrowth(Record):
    """A part outside PyTorch that is larger at the end than at `early`."""
    name: str
    kind: str
    bytes: int
    steady: bool


class CardHolder(Record):
    """A process whose file was given."""
    path: str
    pid: Optional[int]
    host: Optional[str]
    rank: Optional[int]
    device: int
    asleep_bytes: int
    private_pool_bytes: Optional[int]
    peak_bytes: int  # not always there
    together_bytes: int  # not always there


class CardPhase(Record):
    """What a process does, by its own name for it, and what that needs of the others."""
    name: str
    holder: int
    times: int
    time_us: int
    needs_bytes: int
    missing_bytes: int
    sum_bytes: int
    others_bytes: int
    room_bytes: Optional[int]
    before_bytes: int
    start_bytes: int
    release_bytes: int
    releaser: Optional[int]


class CardHost(Record):
    """Memory of the machine that the process used."""
    peak_resident_bytes: Optional[int]
    end_resident_bytes: Optional[int]
    pinned_bytes: Optional[int]
    limit_bytes: Optional[int]
    limit_from: Optional[str]


class CardRecording(Record):
    """How the ledger was recorded."""
    samples: int
    samples_taken: Optional[int]
    period_ms: Optional[int]
    sampling_us: Optional[int]
    step_us: Optional[int]
    nvml: Optional[str]
    nvml_error: Optional[str]
    notes: Tuple[str, ...]


class CardDevice(Record):
    """A card, and who holds its memory when most of it is used."""
    device: Union[int, str]
    name: Optional[str]
    uuid: Optional[str]
    source: str
    total_bytes: Optional[int]
    used_bytes: Optional[int]
    time_us: Optional[int]
    mark: Optional[str]
    parts: Tuple[CardPart, ...]
    overlap: str
    stale_us: int
    end: Optional[CardMoment]
    early: Optional[CardMoment]
    at: Optional[CardMoment]
    growth: Tuple[CardGrowth, ...]
    holders: Tuple[CardHolder, ...]
    together_bytes: int  # not always there
    together_time_us: Optional[int]  # not always there
    sum_of_peaks_bytes: int  # not always there
    phases: Tuple[CardPhase, ...]  # not always there
    host: CardHost
    recording: Optional[CardRecording]


class Card(Answer, CardDevice):
    """What is on the card."""
    files: int
    apart: Tuple[CardApart, ...]
    broken: Tuple[CardBroken, ...]
    devices: Sequence[CardDevice]


class CheckCause(Record):
    """What most likely made a rule fail: what a function holds in one category."""
    name: str
    category: str
    peak_bytes: int
    allocations: int
    peak_event: int
    bytes: int
    locked: Optional[bool]
    locked_bytes: Optional[int]
    frame: Optional[Frame]
    layer: Optional[Frame]
    names: Tuple[Name, ...]
    omitted_names: int
    frames: Tuple[Frame, ...]


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
    causes: Tuple[CheckCause, ...]
    omitted_causes: int
    omitted_bytes: int


class CheckMoment(WhyMoment):
    """The peak."""


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
    categories: Tuple[CheckCategory, ...]


class Check(Judged, CheckDevice):
    """A check; true if it passed: something was checked, nothing failed, and the file leaves no doubt
    (`doubt`), for example because it is truncated."""
    passed: bool
    doubt: Optional[str]
    cut: bool
    failed: int
    counts_blocks: bool
    results: Tuple[CheckResult, ...]
    devices: Sequence[CheckDevice]


class SimulatedMoment(Totals):
    """The totals after an event, and where in a step that is."""
    event: int
    step: int
    phase: str
    op: str


class OutsidePart(Record):
    """One thing that a process holds of the card outside of PyTorch's allocator."""
    name: str
    bytes: int
    low_bytes: int
    high_bytes: int


class Outside(Record):
    """What the process holds of the card outside of PyTorch's allocator, and what that leaves to it."""
    source: str
    measured_at: Optional[str]
    card: Optional[str]
    is_card_inferred: bool
    visible_bytes: Optional[int]
    bytes: int
    low_bytes: int
    high_bytes: int
    parts: Tuple[OutsidePart, ...]
    on_card_bytes: Optional[int]
    is_counted: bool
    pytorch_bytes: Optional[int]


class SimulatedSpace(Record):
    """What is kept outside the GPU."""
    allocated_bytes: int
    reserved_bytes: int


class SimulatedCategory(Record):
    """What a category holds."""
    name: str
    bytes: int


class SimulatedPhase(Record):
    """The highest moment of a phase."""
    name: str
    allocated_bytes: int
    requested_bytes: int
    step: int
    op: str


class SimulatedProfilePhase(Record):
    """The memory of a phase."""
    phase: str
    end_allocated_bytes: int
    end_reserved_bytes: int
    peak_allocated_bytes: Optional[int]
    peak_reserved_bytes: Optional[int]
    peak_step: Optional[int]
    peak_op: str


class SimulatedBlock(Record):
    """What is in memory for a block at the peak."""
    block: Optional[int]
    name: str
    bytes: int
    kept_bytes: int
    hooks_bytes: int


class SimulatedTensors(Record):
    """Tensors of one sort at the peak."""
    category: str
    dtype: str
    op: str
    kernel: str
    is_backward: bool
    saved_for: str
    is_module_output: bool
    count: int
    bytes: int


class SimulatedType(Record):
    """A category in one of its types."""
    category: str
    dtype: str
    count: int
    bytes: int
    peak_bytes: int


class SimulatedProfile(Record):
    """What is in memory at the peak, by phase, block, saved tensor and type."""
    phases: Tuple[SimulatedProfilePhase, ...]
    peak_allocated_bytes: int
    peak_reserved_bytes: int
    peak_event: int
    lost_bytes: int
    blocks: Tuple[SimulatedBlock, ...]
    tensors: Tuple[SimulatedTensors, ...]
    types: Tuple[SimulatedType, ...]
    kept_bytes: int
    hooks_bytes: int


class Note(Record):
    """What the simulation assumes."""
    message: str


class SimulationDevice(Device):
    """What the run needs of a device."""
    parameters: int
    steps: int
    capacity_bytes: Optional[int]
    fits: bool
    start_allocated_bytes: int
    peak_reserved_bytes: int
    step_flops: int
    step_recomputed_flops: int
    peak: SimulatedMoment
    out_of_memory: SimulatedMoment  # not always there
    oom_request_bytes: int  # not always there
    gpu: Optional[str]
    step_time_us: Optional[int]
    step_time_low_us: Optional[int]
    step_time_high_us: Optional[int]
    step_time_source: Optional[str]
    outside: Optional[Outside]
    host: SimulatedSpace  # not always there
    host_machine_bytes: int  # not always there
    disk: SimulatedSpace  # not always there
    message: str  # not always there
    categories: Tuple[SimulatedCategory, ...]
    phases: Tuple[SimulatedPhase, ...]
    profile: SimulatedProfile  # not always there
    notes: Tuple[Note, ...]


class Simulate(Answer, SimulationDevice):
    """What a training run would need."""
    devices: Sequence[SimulationDevice]


class PlanSearched(Record):
    """What the search compared."""
    combinations: int
    too_long: int
    excluded: int


class PlanModel(Record):
    """The model that was planned."""
    name: str
    is_step_graph: bool
    layers: int
    width: int
    heads: int
    kv_heads: int
    inner: int
    vocabulary: int
    sha256: str
    config: Optional[Record]


class PlanQuestion(Record):
    """Everything that the answer depends on."""
    model: PlanModel
    allow: Tuple[str, ...]
    batch: int
    sequence: int
    steps: int
    book: str
    gpu: Optional[str]
    link_bytes_per_s: Optional[float]
    gpus_per_node: Optional[int]
    network_bytes_per_s: Optional[float]
    latency_us: Optional[float]
    network_latency_us: Optional[float]
    host_budget_bytes: Optional[int]
    rates: Optional[str]
    rates_file: Optional[Record]
    options: Record
    begins_with: Record


class PlanFigures(Record):
    """What a training takes under a plan for a budget."""
    peak_allocated_bytes: int
    peak_reserved_bytes: int
    step_time_us: float
    step_time_low_us: float
    step_time_high_us: float
    sent_bytes: int
    stall_time_us: float
    host_bytes: int
    host_machine_bytes: int


class PlanBound(Record):
    """Bounds for every schedule of these kernels, over all ways."""
    step_time_us: Optional[float]
    gap_us: Optional[float]
    gap_percent: Optional[float]
    peak_bytes: Optional[int]


class PlanChange(Record):
    """One change, after those before it."""
    technique: str
    saved_bytes: Optional[int]
    cost_us: Optional[float]
    plan: Record
    host_bytes: int
    host_machine_bytes: int


class PlanSaving(Record):
    """A change that may cost no time, after those before it that were taken."""
    # 'keys' is an item only: the name is that of a member of all answers
    peak_allocated_bytes: Optional[int]
    step_time_us: Optional[float]


class PlanRefused(Record):
    """A way that the model or another choice excludes."""
    plan: Record
    narrows: bool
    reason: str


class PlanCalibratedPhase(Record):
    """The time of a phase."""
    measured_us: float
    predicted_us: float


class PlanCalibratedPhases(Record):
    """The times of the phases of a step."""
    forward: PlanCalibratedPhase
    backward: PlanCalibratedPhase
    optimizer: PlanCalibratedPhase


class PlanUnexplained(Record):
    """What a recorded run has at its peak beyond the prediction."""
    category: str
    place: str
    allocations: int
    bytes: int


class PlanCalibration(Record):
    """What the recorded run of `--from` shows (plan.md)."""
    steps: int
    measured_step_us: float
    estimated_step_us: float
    factor: Optional[float]
    phases: PlanCalibratedPhases
    unexplained_bytes: int
    unexplained_allocations: int
    unexplained: Tuple[PlanUnexplained, ...]


class PlanCandidate(Record):
    """Tensors that could be dropped and computed again."""
    op: str
    kernel: str
    bytes: int
    count: int
    us: float


class PlanTensor(Record):
    """Tensors of one sort."""
    name: str
    bytes: int


class PlanFloor(Record):
    """A moment whose required tensors alone are a lower bound."""
    phase: str
    op: str
    bytes: int
    tensors: Tuple[PlanTensor, ...]


class PlanWay(Record):
    """One way to run the model, with the data of its bounds (plan.md)."""
    plan: Record
    narrows: bool
    kernels_us: float
    copies_us: float
    waited_us: float
    links_us: float
    most_bytes: int  # not always there
    needed_bytes: int  # not always there
    repeats: int  # not always there
    sent_bytes: int  # not always there
    could_be_made_again: Tuple[PlanCandidate, ...]  # not always there
    floor: PlanFloor  # not always there
    bound_us: Optional[float]


class PlanBinding(Record):
    """The moment of the peak."""
    phase: str
    op: str
    step: int
    tensors: Tuple[PlanTensor, ...]


class PlanPasted(Record):
    """The plan in the words of another program."""
    target: str
    file: str
    text: str
    notes: Optional[str]
    reserved_bytes: Optional[int]


class PlanFound(Record):
    """A plan for a budget, which is also a certificate."""
    schema: str
    command: str
    tessera: str
    # 'verdict' is an item only: the name is that of a member of all answers
    budget_bytes: int
    is_proved: bool
    stopped_by: str  # not always there
    plans_tried: int
    searched: PlanSearched
    question: PlanQuestion
    exposed: float
    as_is: Optional[PlanFigures]
    predicted: PlanFigures
    lower_bound: PlanBound
    plan: Record
    plan_hash: str
    changes: Tuple[PlanChange, ...]
    savings: Tuple[PlanSaving, ...]
    refused: Tuple[PlanRefused, ...]
    blocks: int  # not always there
    blocks_out_of_chain: int  # not always there
    calibration: PlanCalibration  # not always there
    ways: Tuple[PlanWay, ...]
    binding: PlanBinding
    outside: Optional[Outside]  # not always there
    # 'for' is an item only: the name is a keyword
    also_for: Tuple[PlanPasted, ...]  # not always there


class PlanCost(Record):
    """What a training takes under some plan."""
    peak_allocated_bytes: int
    peak_reserved_bytes: int
    step_flops: int
    step_recomputed_flops: int
    step_time_us: int
    step_time_low_us: int
    step_time_high_us: int
    host_bytes: int
    host_machine_bytes: int


class PlanTechnique(Record):
    """What a technique saves and costs."""
    technique: str
    choice: Record
    is_free: bool
    alone: Optional[PlanCost]
    so_far: Optional[PlanCost]


class PlanChoice(Record):
    """What a choice of a plan saves and costs."""
    choice: str
    alone: Optional[PlanCost]
    so_far: Optional[PlanCost]


class PlanListing(Record):
    """What a search compares, with the names and values that a certificate has."""
    tessera: str
    question: PlanQuestion
    exposed: float
    as_is: Optional[PlanFigures]
    savings: Tuple[PlanSaving, ...]
    refused: Tuple[PlanRefused, ...]
    calibration: PlanCalibration  # not always there
    ways: Tuple[PlanWay, ...]
    binding: PlanBinding  # not always there


class PlanPoint(Record):
    """The fastest plan for some memory."""
    peak_allocated_bytes: int
    peak_reserved_bytes: int
    step_time_us: float
    step_time_low_us: float
    step_time_high_us: float
    host_bytes: int
    host_machine_bytes: int
    plan_hash: str
    plan: Record


class PlanEstimate(Record):
    """What a paper or another tool estimates."""
    source: str
    what: str
    counts: str
    device_bytes: int
    host_bytes: int
    remark: Optional[str]


class PlanNote(Record):
    """What the answer assumes, or what cannot be on the card."""
    message: str


class Plan(Unframed, PlanFound):
    """What to change so that a training fits, and what each technique saves and costs."""
    gpu: str  # not always there
    techniques: Tuple[PlanTechnique, ...]  # not always there
    without: PlanCost  # not always there
    # 'with' is an item only: the name is a keyword
    choices: Tuple[PlanChoice, ...]  # not always there
    listing: PlanListing  # not always there
    front: Tuple[PlanPoint, ...]  # not always there
    largest: str  # not always there
    size: int  # not always there
    size_as_is: int  # not always there
    model: Record  # not always there
    answer: Optional[PlanFound]  # not always there
    parameters: int  # not always there
    largest_layer_parameters: int  # not always there
    cards: int  # not always there
    cards_per_node: int  # not always there
    peak_allocated_bytes: int  # not always there
    peak_reserved_bytes: int  # not always there
    estimates: Tuple[PlanEstimate, ...]  # not always there
    step_time_source: str  # not always there
    notes: Tuple[PlanNote, ...]  # not always there


# The class of each question's answer; of others it is Answer.
KINDS: Dict[str, Any] = {
    'info': Info,
    'peak': Peak,
    'at': At,
    'profile': Profile,
    'diff': Diff,
    'stages': Stages,
    'source': Source,
    'steps': Steps,
    'leaks': Leaks,
    'why': Why,
    'pools': Pools,
    'whatif': Whatif,
    'ranks': Ranks,
    'card': Card,
    'check': Check,
    'simulate': Simulate,
    'plan': Plan,
}
