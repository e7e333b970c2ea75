"""The functions of Mosaic's commands."""
import json
import logging
import re
import sys
import time
from dataclasses import dataclass, field
from typing import Any, Dict, List, Optional, Tuple, Union

import tessera

from mosaic.libmosaic.analyzer.memory_abstract import MemoryAbstract
from mosaic.libmosaic.utils.data_utils import MemoryEvent
from mosaic.libmosaic.utils.snapshot_utils import find_memory_snapshot_peak_call_stack_diffs
from mosaic.libmosaic.utils.upload_utils import create_paste
from mosaic.libmosaic.utils.utils import get_printable_memory_event_set

# As in Mosaic, so that its log lines are visible.
logging.getLogger().setLevel(logging.INFO)

_PROFILES = ('categories', 'annotations', 'compile_context', 'custom')
_NO_TIME = -2**63


@dataclass
class CustomProfileRule:
    """A group and its pattern."""
    name: str
    pattern: str
    description: Optional[str] = None
    priority: int = 0


@dataclass
class CustomProfile:
    """Rules, in their order: the first that matches names the group."""
    rules: List[CustomProfileRule] = field(default_factory=list)

    def to_dict(self) -> Dict[str, str]:
        """Patterns by name."""
        return {rule.name: rule.pattern for rule in self.rules}


def _loaded(snapshot: str) -> MemoryAbstract:
    abstract = MemoryAbstract(memory_snapshot_file=snapshot)
    abstract.load_memory_snapshot()
    return abstract


def _action(action: str) -> str:
    """A program's free is requested, then completed; Mosaic counts the latter."""
    if action != 'free':
        return action
    logging.info("Overloading action 'free' to 'free_completed' for memory analysis")
    return 'free_completed'


def _deliver(text: str, paste: bool) -> None:
    if paste:
        create_paste(text)
    else:
        print(text)


def get_memory_usage(snapshot: str, trace: str, allocation: str, action: str, paste: bool,
                     print_stack: bool) -> MemoryAbstract:
    """What is live at an allocation event."""
    del trace
    action = _action(action)
    abstract = _loaded(snapshot)
    found = abstract.memory_snapshot
    found.analyze_memory_snapshot(opt='memory_usage', allocation=allocation, action=action)
    name = f'{action}: {allocation}'
    if name not in found.memory_usage:
        logging.error(f'{name} not found in memory snapshot')
        return abstract
    groups = get_printable_memory_event_set(found.call_stack_hash_set) \
        if paste or print_stack else ''
    if paste:
        create_paste(f'Memory Usage: {found.memory_usage[name] / 1024**3} GiB\n{groups}')
    elif print_stack:
        print(groups)
    return abstract


def get_memory_usage_peak(snapshot: str, trace: str, allocation: str, action: str, paste: bool,
                          print_stack: bool, upload_result: bool,
                          start_time: Optional[int] = None,
                          end_time: Optional[int] = None) -> MemoryAbstract:
    """What holds the memory at the peak."""
    del trace
    abstract = _loaded(snapshot)
    found = abstract.memory_snapshot
    found.analyze_memory_snapshot(opt='memory_peak', allocation=allocation or '',
                                  action=_action(action), start_time=start_time, end_time=end_time)
    if upload_result:
        logging.warning('There is nowhere to upload to; the answer stays here.')
    if paste:
        dynamic, static = found.dynamic_memory_peak, found.static_memory
        create_paste(
            f'Total Peak Dynamic Memory Usage (Relative to Start): {dynamic / 1024**3} GiB\n'
            f'Total Static Memory Usage (estimated by Pytorch visualizer): {static / 1024**3} GiB\n'
            'Total Overall Peak Memory Usage (Dynamic + Static): '
            f'{(dynamic + static) / 1024**3} GiB\n'
            + get_printable_memory_event_set(found.call_stack_hash_set))
    elif print_stack:
        print(get_printable_memory_event_set(found.call_stack_hash_set))
    return abstract


def get_memory_usage_diff(snapshot_base: str, snapshot_diff: str,
                          paste: bool) -> Dict[int, MemoryEvent]:
    """The stacks of the second peak that the first does not have."""
    both = [_loaded(snapshot).memory_snapshot for snapshot in (snapshot_base, snapshot_diff)]
    for found in both:
        found.analyze_memory_snapshot(opt='memory_peak')
    changes = find_memory_snapshot_peak_call_stack_diffs(both[0].call_stack_hash_set,
                                                         both[1].call_stack_hash_set)
    _deliver(get_printable_memory_event_set(changes), paste)
    return changes


def get_memory_usage_by_annotation_stage(
        snapshot: str, annotation: Union[str, Tuple[str, ...]],
        paste: bool) -> Dict[str, Tuple[Dict[str, Any], float]]:
    """Usage at each annotation whose name contains one of the texts."""
    texts = (annotation,) if isinstance(annotation, str) else annotation
    stages = _loaded(snapshot).memory_snapshot.get_memory_usage_by_annotation_stage(set(texts))
    lines = [f'{key}: {size / 1024**3} GiB. Annotation: {said}'
             for key, (said, size) in stages.items()]
    if paste:
        create_paste('\n'.join([f'Memory Usage by Annotation: {texts}', *lines]))
    else:
        for line in lines:
            print(line)
    return stages


def _checked_dict(rules: Any) -> Dict[str, str]:
    if not isinstance(rules, dict):
        raise ValueError('Custom profile must be a JSON dictionary')
    if not all(isinstance(value, str) for value in rules.values()):
        raise ValueError('Custom profile dictionary keys and values must be strings')
    return rules


def _parse_rules(custom_profile: str) -> Dict[str, str]:
    """Patterns by name, from a dictionary or from `rules:` with a name and a pattern each."""
    try:
        given = json.loads(custom_profile)
    except ValueError:
        given = None
    if given is not None and not (isinstance(given, dict) and 'rules' in given):
        return _checked_dict(given)
    try:
        rules = tessera._core.rules(custom_profile, True)
    except tessera.Error as error:
        # Mosaic reads a text without any structure as a YAML key without a value.
        is_word = not any(mark in custom_profile for mark in ':[]{}\n')
        why = 'Custom profile dictionary keys and values must be strings (regex patterns)' \
            if is_word else error
        raise ValueError('Invalid custom profile format. Expected JSON dictionary or YAML config. '
                         f'OmegaConf error: {why}') from None
    return CustomProfile([CustomProfileRule(*rule) for rule in rules]).to_dict()


def _custom_rules(profile: str, custom_profile: Optional[str]) -> Optional[Dict[str, str]]:
    if profile != 'custom':
        return None
    if not custom_profile:
        raise ValueError(
            "Custom profile configuration required when profile type is 'custom'. Provide either a "
            'JSON dictionary like \'{"category": "pattern"}\' or a structured YAML/JSON config with '
            "'rules' list.")
    try:
        return _parse_rules(custom_profile)
    except ValueError as error:
        raise ValueError(f'Failed to parse custom profile: {error}') from None


def _entries(trace: Any) -> List[int]:
    """The events that start an entry of Mosaic's plot: one entry per microsecond."""
    oom, last, rows = trace.action.names.index('oom'), _NO_TIME, []
    for row, (time_us, action) in enumerate(zip(trace.time_us, trace.action)):
        if time_us not in (_NO_TIME, last) and action != oom:
            last = time_us
            rows.append(row)
    return rows


def _window(trace: Any, start: int, end: int) -> Optional[Tuple[int, int]]:
    """The events that the page shows at first; None for all."""
    if (start, end) == (0, sys.maxsize):
        return None
    rows = _entries(trace)
    chosen = rows[start:end]
    if not chosen:
        logging.warning("the plot's indexes select nothing; everything is shown")
        return None
    after = rows.index(chosen[-1]) + 1
    return chosen[0], (rows[after] if after < len(rows) else len(trace)) - 1


def _write_page(abstract: MemoryAbstract, out_path: str, profile: str,
                rules: Optional[Dict[str, str]], ordered: bool, start: int, end: int) -> None:
    """The page is lossless, so a sampling rate has no effect."""
    found = abstract.memory_snapshot
    if found.opened is None:  # nothing to draw, as in Mosaic
        return
    device = found._device()
    events = None if device is None else _window(found.opened.trace(device), start, end)
    by = {'categories': 'category', 'annotations': 'annotation', 'custom': 'rules'}.get(profile, profile)
    found.opened.view(out_path, by=by, rules=_good(rules), ordered=ordered, events=events,
                      device=device)


def _good(rules: Optional[Dict[str, str]]) -> Optional[Dict[str, str]]:
    """Rules whose pattern is one."""
    if rules is None:
        return None
    good = {}
    for name, pattern in rules.items():
        try:
            re.compile(pattern)
        except re.error:
            continue
        good[name] = pattern
    return good or {'unknown': '(?!)'}


def get_memory_profile(snapshot: str, out_path: str, profile: str,
                       custom_profile: Optional[str] = None, sampling_rate: int = 1,
                       start_idx: int = 0, end_idx: int = sys.maxsize,
                       preserve_allocation_order: bool = False) -> MemoryAbstract:
    """Print the memory at the peak by group, and write a page with a chart. `profile` is annotations,
    categories, compile_context or custom, which takes rules in JSON or YAML."""
    rules = _custom_rules(profile, custom_profile)
    if profile not in _PROFILES:
        raise ValueError(f'Unsupported profile type: {profile}')
    if sampling_rate < 1:
        raise ValueError('Sampling rate must be a positive integer')
    begun = time.time()
    abstract = _loaded(snapshot)
    found = abstract.memory_snapshot
    found.analyze_memory_snapshot('alloc_history', profile_types=[profile], custom_rules=rules,
                                  preserve_allocation_order=preserve_allocation_order)
    print('Memory Usage At Peak:')
    print(found.max_memory_usage)
    if out_path:
        _write_page(abstract, out_path, profile, rules, preserve_allocation_order, start_idx, end_idx)
    logging.info(f'Profiling function took: {time.time() - begun} seconds to run')
    return abstract


def get_json_snapshot(snapshot: str, output_file: str, upload_result: bool) -> None:
    """Write the snapshot as JSON, indented by four spaces."""
    found = _loaded(snapshot).memory_snapshot
    opened = found.opened
    if output_file and opened is None:
        with open(output_file, 'w', encoding='utf-8') as file:
            json.dump(found.snapshot_data, file, indent=4)  # as Mosaic does: of no file, {}
    elif output_file and opened is not None:
        opened.export(output_file, 'python-json')
    if upload_result:
        logging.warning('There is nowhere to upload to; the answer stays here.')
