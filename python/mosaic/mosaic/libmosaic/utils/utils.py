"""Stacks and groups of allocations as text."""
import json
from typing import Any, Dict, List, Union

from mosaic.libmosaic.utils.data_utils import Frame, MemoryEvent


def _place(frame: Union[Dict[str, Any], Frame]) -> str:
    if isinstance(frame, Frame):
        return f'{frame.name}, {frame.filename}:{frame.line}'
    return f'{frame["name"]}, {frame["filename"]}:{frame["line"]}'


def get_printable_stack_trace(stack_trace: List[Union[Dict[str, Any], Frame]]) -> str:
    """The frames of a stack, outermost first, each indented two spaces more."""
    lines = ['  ' * depth + _place(frame) for depth, frame in enumerate(reversed(stack_trace))]
    return '\n' + '\n'.join(lines) + '\n'


def get_printable_memory_event_set(memory_event_set: Dict[int, MemoryEvent]) -> str:
    """Groups of allocations, an empty line before each."""
    return '\n' + '\n'.join(
        f'Num of Calls: {event.num_call}, Memory Usage: {event.mem_size / 1024**3} GiB'
        + get_printable_stack_trace(event.call_stack) for event in memory_event_set.values())


def get_memory_peak_event_in_json(memory_event_set: Dict[int, MemoryEvent]) -> str:
    """The groups as JSON, largest first, each with its percentage of the total."""
    events = sorted(memory_event_set.values(), key=lambda event: event.mem_size, reverse=True)
    total = sum(event.mem_size for event in events)
    stacks = [{'num_of_calls': event.num_call,
               'memory_usage': event.mem_size,
               'memory_usage_per_call': event.mem_size_per_call,
               'memory_usage_percentage': event.mem_size / total * 100 if total else 0,
               'call_stack': event.call_stack} for event in events]
    return json.dumps({'total_memory': total, 'num_of_unique_call_stacks': len(stacks),
                       'call_stacks': stacks}, indent=4)
