"""Groups of allocations of two snapshots, by the hash of their stack."""
from typing import Dict, Iterable

from mosaic.libmosaic.utils.data_utils import MemoryEvent


def order_call_stack_by_memory_size(traces: Dict[int, MemoryEvent]) -> Dict[int, MemoryEvent]:
    """The same groups, largest first."""
    return dict(sorted(traces.items(), key=lambda item: item[1].mem_size, reverse=True))


def _chosen(groups: Dict[int, MemoryEvent], keys: Iterable[int]) -> Dict[int, MemoryEvent]:
    wanted = set(keys)
    return order_call_stack_by_memory_size(
        {key: event for key, event in groups.items() if key in wanted})


def find_memory_snapshot_peak_call_stack_diffs(
        snapshot_base: Dict[int, MemoryEvent],
        snapshot_diff: Dict[int, MemoryEvent]) -> Dict[int, MemoryEvent]:
    """The groups of the second whose stack the first does not have. Ties keep the second's order."""
    return _chosen(snapshot_diff, snapshot_diff.keys() - snapshot_base.keys())


def find_memory_snapshot_peak_call_stack_intersection(
        snapshot_base: Dict[int, MemoryEvent],
        snapshot_diff: Dict[int, MemoryEvent]) -> Dict[int, MemoryEvent]:
    """The groups of the second whose stack the first has too."""
    return _chosen(snapshot_diff, snapshot_diff.keys() & snapshot_base.keys())
