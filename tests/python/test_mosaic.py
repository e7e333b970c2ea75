"""The package in Mosaic's place: its interface, and what it prints, on real snapshots what Mosaic
itself printed."""
import json
import logging
import math
import os
import pickle
import subprocess
import sys

import pytest

import tessera
from conftest import SHARED
from mosaic.cmd import entry_point
from mosaic.libmosaic.analyzer.memory_abstract import MemoryAbstract
from mosaic.libmosaic.analyzer.memory_snapshot import MemorySnapshot
from mosaic.libmosaic.utils import utils
from mosaic.libmosaic.utils.data_utils import (Allocation, AllocationType, CategoryStackOrderTracker,
                                               FloatMemoryUsage, Frame, MemoryEvent, MemoryUsage,
                                               TraceEvent)
from mosaic.libmosaic.utils.profiler_plotter import ProfilerPlotter
from mosaic.libmosaic.utils.snapshot_utils import (
    find_memory_snapshot_peak_call_stack_diffs, find_memory_snapshot_peak_call_stack_intersection)

EXPECTED = SHARED / 'expected' / 'mosaic'
NAMES = sorted(path.name for path in EXPECTED.glob('[!_]*') if path.is_dir()) if EXPECTED.exists() else []
RULES = json.dumps({'attention': 'attention|softmax', 'ffn': 'swiglu|mlp|ffn|silu',
                    'optim': 'optim|adam', 'rest': '.*'})
LARGE = 'train-ctx1024-torch2.11.pickle'


@pytest.fixture
def there(snapshots, monkeypatch):
    """The folder of real snapshots as the working directory, since paths are in what is logged."""
    monkeypatch.chdir(snapshots)
    return snapshots


def loaded(path):
    abstract = MemoryAbstract(memory_snapshot_file=str(path))
    abstract.load_memory_snapshot()
    return abstract.memory_snapshot


def info_lines(caplog):
    return [f'INFO:root:{record.getMessage()}' for record in caplog.records
            if record.name == 'root' and record.levelno == logging.INFO
            and 'took' not in record.getMessage()]


def run(kind, name, out):
    path = f'{name}.pickle'
    if kind == 'peak':
        return entry_point.get_memory_usage_peak(path, '', '', '', False, True, False)
    if kind == 'stages':
        return entry_point.get_memory_usage_by_annotation_stage(path, (), False)
    profile = kind[len('profile-'):]
    ordered = profile.endswith('-ordered')
    profile = profile[:-len('-ordered')] if ordered else profile.replace('-', '_')
    return entry_point.get_memory_profile(path, str(out), profile,
                                          RULES if profile == 'custom' else None,
                                          preserve_allocation_order=ordered)


@pytest.mark.skipif(not NAMES, reason='../shared/expected/mosaic is absent')
@pytest.mark.parametrize('name', NAMES or [''])
def test_prints_what_mosaic_printed(there, name, capsys, caplog, tmp_path):
    caplog.set_level(logging.INFO)
    for want in sorted((EXPECTED / name).glob('*.out')):
        caplog.clear()
        run(want.stem, name, tmp_path / 'page.html')
        assert capsys.readouterr().out == want.read_text(), want.stem
        assert info_lines(caplog) == want.with_suffix('.err').read_text().splitlines(), want.stem


def test_moments(there, capsys):
    for path in sorted((EXPECTED / '_at').glob('usage-*.out')):
        _, allocation, action = path.stem.split('-')
        entry_point.get_memory_usage(LARGE, '', allocation, action, False, True)
        assert capsys.readouterr().out == path.read_text()
    until = EXPECTED / '_at' / 'peak-until-788000000_0-alloc.out'
    entry_point.get_memory_usage_peak(LARGE, '', '788000000_0', 'alloc', False, True, False)
    assert capsys.readouterr().out == until.read_text()
    words = dict(word.split('=') for word in
                 (EXPECTED / '_at' / 'peak-time-window.args').read_text().split())
    entry_point.get_memory_usage_peak(LARGE, '', '', '', False, True, False,
                                      int(words['start_time']), int(words['end_time']))
    assert capsys.readouterr().out == (EXPECTED / '_at' / 'peak-time-window.out').read_text()


def test_diff(there, capsys):
    base, newer = 'train-ctx100-annotated-torch2.6', 'train-ctx200-autocast-annotated-torch2.6'
    changes = entry_point.get_memory_usage_diff(f'{base}.pickle', f'{newer}.pickle', False)
    out = capsys.readouterr().out
    want = (EXPECTED / '_pairs' / 'diff-train-ctx100-to-ctx200.out').read_text()
    # Ties come in another order each time Mosaic runs.
    assert sorted(out.split('\n\n')) == sorted(want.split('\n\n')) or len(out) == len(want)
    assert all(isinstance(event, MemoryEvent) for event in changes.values())
    sizes = [event.mem_size for event in changes.values()]
    assert sizes == sorted(sizes, reverse=True)


def test_json_is_pythons(there, tmp_path):
    assert entry_point.get_json_snapshot('short-trace.pickle', str(tmp_path / 'a.json'), False) is None
    want = (EXPECTED / '_json' / 'short-trace.json').read_text()
    assert (tmp_path / 'a.json').read_text() == want


# ---- the objects ----

def test_peak(there):
    found = loaded(LARGE)
    found.analyze_memory_snapshot(opt='memory_peak')
    assert (found.dynamic_memory_peak, found.static_memory) == (19111272456, 1712394240)
    assert found.memory_peak == found.dynamic_memory_peak
    assert found.max_allocation_info == Allocation('alloc', 'cd1000000', 1)
    groups = found.call_stack_hash_set
    assert sum(event.mem_size for event in groups.values()) == found.dynamic_memory_peak
    for key, event in groups.items():
        assert key == hash(''.join(f'{frame["filename"]}{frame["line"]}' for frame in event.call_stack))
        assert len(event.mem_size_per_call) == event.num_call
        assert sum(event.mem_size_per_call.values()) == event.mem_size
    live = found.memory_usage_call_stack
    assert sum(event['size'] for event in live.values()) == found.dynamic_memory_peak
    assert all(event['addr'] == addr and event['action'] == 'alloc' for addr, event in live.items())
    with open(LARGE, 'rb') as file:
        assert found.snapshot_data == pickle.load(file)
    # Asked again, it says the same; Mosaic's groups would have doubled.
    found.analyze_memory_snapshot(opt='memory_peak')
    assert {k: e.mem_size for k, e in found.call_stack_hash_set.items()} == {
        k: e.mem_size for k, e in groups.items()}


def test_usage(there, caplog):
    found = loaded(LARGE)
    found.analyze_memory_snapshot(opt='memory_usage', allocation='788000000_2', action='alloc')
    assert found.memory_usage == {'alloc: 788000000_2': 4289564676}
    caplog.clear()
    for absent in ('788000000_999', 'nonsense_1'):
        found.analyze_memory_snapshot(opt='memory_usage', allocation=absent, action='alloc')
    assert len(found.memory_usage) == 1 and 'Allocation not found!' in caplog.text
    entry_point.get_memory_usage(LARGE, '', '788000000_999', 'alloc', False, True)
    assert 'alloc: 788000000_999 not found in memory snapshot' in caplog.text


@pytest.mark.parametrize('profile', ['categories', 'annotations', 'compile_context', 'custom'])
def test_history_agrees_with_the_peak(there, profile):
    found = loaded('train-ctx100-annotated-torch2.6.pickle')
    rules = json.loads(RULES) if profile == 'custom' else None
    found.analyze_memory_snapshot('alloc_history', profile_types=[profile], custom_rules=rules)
    peak, history = found.max_memory_usage, found.memory_usage_history
    assert isinstance(peak, MemoryUsage) and all(isinstance(key, int) for key in history)
    highest = max(usage.total_alloc for usage in history.values())
    assert highest == peak.total_alloc
    # The first moment at which it is so high.
    first = next(usage for _, usage in sorted(history.items()) if usage.total_alloc == highest)
    assert str(first) == str(peak)


def test_bands(there):
    found = loaded('train-ctx100-annotated-torch2.6.pickle')
    found.analyze_memory_snapshot('alloc_history', preserve_allocation_order=True)
    for usage in list(found.memory_usage_history.values())[::500]:
        assert sum(size for _, size in usage.stack_snapshot) == usage.total_alloc
        names = [name for name, _ in usage.stack_snapshot]
        assert all(a != b for a, b in zip(names, names[1:]))


def test_running_total(there):
    found = loaded('short-trace.pickle')
    found.stat_memory_usage_range()
    assert isinstance(found.max_memory_usage, FloatMemoryUsage)
    assert math.isclose(found.max_memory_usage / 1024, found.max_memory_usage.value / 1024)
    assert max(u.value for u in found.memory_usage_history.values()) == found.max_memory_usage.value
    assert set(found.call_stack) == set(found.memory_usage_history)


def test_stages(there, capsys):
    stages = entry_point.get_memory_usage_by_annotation_stage(
        'train-ctx100-annotated-torch2.6.pickle', 'Optimizer', True)
    assert stages and all('Optimizer' in said['name'] for said, _ in stages.values())
    assert all(isinstance(size, int) for _, size in stages.values())
    assert 'Memory Usage by Annotation' in capsys.readouterr().out


def test_where_mosaic_fails(made):
    for name in ('device-3', 'oom-inside', 'no-address', 'no-times'):
        found = loaded(made / f'{name}.pickle')
        found.analyze_memory_snapshot()
        assert found.dynamic_memory_peak >= 0 and found.static_memory >= 0
        assert isinstance(found.call_stack_hash_set, dict)
        found.analyze_memory_snapshot('alloc_history')
        assert str(found.max_memory_usage).startswith('Total Allocated: ')
        assert isinstance(found.memory_usage_history, dict)
    found = loaded(made / 'device-3.pickle')
    found.analyze_memory_snapshot()
    assert found.dynamic_memory_peak > 0


# ---- files that are missing or damaged: a gate must not pass on them ----

@pytest.fixture
def damaged(made, tmp_path):
    """Paths by what is wrong with them."""
    whole = (made / 'train.pickle').read_bytes()
    files = {'cut': whole[:len(whole) // 2], 'last byte': whole[:-1], 'first bytes': whole[:5],
             'empty': b'', 'text': b'not a pickle'}
    for name, data in files.items():
        (tmp_path / f'{name}.pickle').write_bytes(data)
    (tmp_path / 'cut.json').write_text('{"segments": [], "device_traces": [[')
    found = {path.name: str(path) for path in tmp_path.iterdir()}
    return {**found, 'missing': str(tmp_path / 'missing.pickle')}


@pytest.mark.parametrize('name', ['cut.pickle', 'last byte.pickle', 'first bytes.pickle',
                                  'empty.pickle', 'text.pickle'])
def test_damaged_pickles_raise_what_python_raises(damaged, name):
    with open(damaged[name], 'rb') as file, pytest.raises(Exception) as want:
        pickle.load(file)
    for call in (lambda path: entry_point.get_memory_usage_peak(path, '', '', '', False, True, False),
                 lambda path: entry_point.get_memory_usage(path, '', '0_0', 'alloc', False, True),
                 lambda path: entry_point.get_memory_usage_diff(path, path, False),
                 lambda path: entry_point.get_memory_usage_by_annotation_stage(path, (), False),
                 lambda path: entry_point.get_memory_profile(path, '', 'categories'),
                 lambda path: entry_point.get_json_snapshot(path, '', False), loaded):
        with pytest.raises(want.type) as raised:
            call(damaged[name])
        assert raised.type is want.type


def test_damaged_json_raises_what_python_raises(damaged):
    with pytest.raises(json.JSONDecodeError):
        loaded(damaged['cut.json'])


def test_missing_files_fail_as_in_mosaic(damaged, made, tmp_path, capsys):
    path, good = damaged['missing'], str(made / 'train.pickle')
    with pytest.raises(KeyError, match='segments'):
        entry_point.get_memory_usage_peak(path, '', '', '', False, True, False)
    for pair in ((path, good), (good, path)):
        with pytest.raises(KeyError, match='segments'):
            entry_point.get_memory_usage_diff(*pair, False)
    with pytest.raises(KeyError, match='external_annotations'):
        entry_point.get_memory_usage_by_annotation_stage(path, 'forward', False)
    assert entry_point.get_memory_usage_by_annotation_stage(path, (), False) == {}
    assert capsys.readouterr().out == ''
    entry_point.get_memory_profile(path, str(tmp_path / 'page.html'), 'categories')
    assert capsys.readouterr().out == (
        'Memory Usage At Peak:\nTotal Allocated: 0.0GiB\nCategory Profile:\nAnnotation Profile:\n'
        'Compile Context Profile:\nCustom Profile:\n')
    assert not (tmp_path / 'page.html').exists()
    entry_point.get_json_snapshot(path, str(tmp_path / 'a.json'), False)
    assert (tmp_path / 'a.json').read_text() == '{}'


@pytest.mark.parametrize('name', ['no-traces', 'empty-trace'])
def test_without_a_trace_there_is_no_peak(made, name, capsys):
    path = str(made / f'{name}.pickle')
    with pytest.raises(IndexError):
        entry_point.get_memory_usage_peak(path, '', '', '', False, True, False)
    with pytest.raises(IndexError):
        entry_point.get_memory_usage_by_annotation_stage(path, (), False)
    entry_point.get_memory_profile(path, '', 'categories')
    assert 'Total Allocated: 0.0GiB' in capsys.readouterr().out


def test_pinned_host_memory_is_no_device_of_mosaics():
    event = {'action': 'alloc', 'addr': 4096, 'size': 512, 'stream': 0, 'time_us': 1, 'frames': []}
    found = MemorySnapshot(None)
    found.snapshot_data = {'segments': [], 'device_traces': [[]], 'host_segments': [],
                           'host_traces': [[event]]}
    with pytest.raises(IndexError):
        found.analyze_memory_snapshot()


def test_the_gate_of_the_tutorial(damaged, made):
    """A limit on dynamic_memory_peak + static_memory."""
    def gate(path):
        found = loaded(path)
        found.analyze_memory_snapshot(opt='memory_peak')
        return found.dynamic_memory_peak + found.static_memory < 2**60

    assert gate(str(made / 'train.pickle'))
    for path in [*damaged.values(), str(made / 'empty-trace.pickle')]:
        with pytest.raises(Exception):
            gate(path)


def test_a_failed_load_keeps_no_older_file(damaged, made):
    found = loaded(made / 'train.pickle')
    found.register_memory_snapshot(damaged['cut.pickle'])
    with pytest.raises(pickle.UnpicklingError):
        found.load_memory_snapshot()
    with pytest.raises(KeyError):
        found.analyze_memory_snapshot()


def test_events_without_a_time_are_reported(made, caplog):
    entry_point.get_memory_profile(str(made / 'no-times.pickle'), '', 'categories')
    assert 'events without a time: Mosaic leaves them out, tessera counts them (2 times)' in caplog.text
    caplog.clear()
    entry_point.get_memory_profile(str(made / 'train.pickle'), '', 'categories')
    assert 'without a time' not in caplog.text


def test_mistakes(made, caplog):
    found = MemorySnapshot(None)
    with pytest.raises(KeyError):
        found.analyze_memory_snapshot()
    assert 'need to load snapshot first' in caplog.text and found.snapshot_data == {}
    found.register_memory_snapshot('/nonexistent.pickle')
    found.load_memory_snapshot()
    assert '/nonexistent.pickle' in caplog.text
    loaded(made / 'train.pickle').analyze_memory_snapshot(opt='nonsense')
    assert 'Invalid option' in caplog.text
    with pytest.raises(NotImplementedError):
        MemoryAbstract(str(made / 'train.pickle'), gpu_trace_file='trace.json')


def test_given_data(made):
    found = MemorySnapshot(None)
    found.snapshot_data = pickle.loads((made / 'train.pickle').read_bytes())
    found.analyze_memory_snapshot()
    want = loaded(made / 'train.pickle')
    want.analyze_memory_snapshot()
    assert found.dynamic_memory_peak == want.dynamic_memory_peak > 0


# ---- profiles ----

@pytest.mark.parametrize('rules, said', [
    ('invalid json', 'Failed to parse custom profile'),
    ('"not a dict"', 'Custom profile must be a JSON dictionary'),
    ('{"key": 123}', 'Custom profile dictionary keys and values must be strings'),
    ('invalid json', 'Invalid custom profile format. Expected JSON dictionary or YAML config. OmegaConf '
     r'error: Custom profile dictionary keys and values must be strings \(regex patterns\)$'),
    ('', 'configuration required'), (None, 'configuration required')])
def test_rules_that_are_none(rules, said):
    with pytest.raises(ValueError, match=said):
        entry_point.get_memory_profile('absent.pickle', 'absent.html', 'custom', rules)


def test_rules(made, tmp_path, capsys, caplog):
    path, page = str(made / 'train.pickle'), tmp_path / 'page.html'
    for rules in ('{"fwd": "forward"}', 'fwd: forward',
                  'rules:\n  - name: fwd\n    pattern: forward\n    description: d\n'):
        abstract = entry_point.get_memory_profile(path, str(page), 'custom', rules)
        assert isinstance(abstract, MemoryAbstract)
        assert set(abstract.memory_snapshot.max_memory_usage.per_custom_alloc_sum) <= {'fwd', 'unknown'}
        assert page.read_text().lower().startswith('<!doctype html>')
    entry_point.get_memory_profile(path, str(page), 'custom', '{"bad": "[x", "all": ".*"}')
    assert 'Invalid regex pattern: [x' in caplog.text
    for profile, rate in (('weather', 1), ('categories', 0)):
        with pytest.raises(ValueError):
            entry_point.get_memory_profile(path, str(page), profile, sampling_rate=rate)
    assert entry_point.CustomProfile([entry_point.CustomProfileRule('a', 'b')]).to_dict() == {'a': 'b'}


def test_pages(made, tmp_path, capsys):
    path = str(made / 'train.pickle')
    pages = set()
    for how in ({}, {'start_idx': 2, 'end_idx': 9}, {'start_idx': 10**9},
                {'preserve_allocation_order': True}):
        entry_point.get_memory_profile(path, str(tmp_path / 'page.html'), 'categories', **how)
        pages.add((tmp_path / 'page.html').read_text())
    assert len(pages) >= 3


# ---- values ----

def test_categories():
    def kind(*frames):
        return AllocationType.from_frame_stack([Frame(name, file, 1) for name, file in frames])
    assert kind(('forward', 'a.py'), ('backward', 'b.py')) is AllocationType.ACTIVATION
    assert kind(('backward', 'b.py'), ('forward', 'a.py')) is AllocationType.BACKWARD
    assert kind(('x', 'a.py'), ('y', 'z/fully_sharded_data_parallel.py')) is AllocationType.FSDP
    assert kind(('init_param', 'a.py')) is AllocationType.PARAMETER
    assert kind(('__init__', 'parallel/layers.py')) is AllocationType.PARAMETER
    assert kind(('_init_group', 'adam.py')) is AllocationType.OPTIMIZER
    assert kind(('dist_sum', '')) is AllocationType.NET
    assert kind(('validate_process_group', '')) is AllocationType.NET_SETUP
    assert kind(('compute_grad_stats', '')) is AllocationType.STATS
    assert kind(('clip_grad_norm_', '')) is AllocationType.BACKWARD
    assert kind() is kind(('x', 'y')) is AllocationType.UNKNOWN
    assert [one.value for one in AllocationType] == list(range(10))
    custom = AllocationType.from_frame_stack_with_custom
    assert custom([Frame('nccl', 'f', 1)], {'a': '[', 'n': 'nc+l'}) == (AllocationType.CUSTOM, 'n')
    assert custom([Frame('forward', 'f', 1)], {'a': 'x'}) == (AllocationType.ACTIVATION, None)


def test_the_library_has_the_same_categories(real):
    """Python's rules, which make histories, and the library's, which make peaks."""
    import tessera
    s = tessera.open(real)
    lives = s.allocations()
    device = s.profile('mosaic-category', top=0).devices[0]
    sums = {}
    for birth, death, size, stack in zip(lives.birth_event, lives.death_event, lives.requested_bytes, lives.stack):
        if 0 <= birth <= device.peak.event < death:
            frames = [Frame(frame.name, frame.file, frame.line or 0) for frame in s.stack(stack)]
            name = AllocationType.from_frame_stack(frames).name.lower()
            sums[name] = sums.get(name, 0) + size
    assert sums == {group.name: group.bytes for group in device.groups if group.bytes}


def event(action, addr, size, **more):
    return TraceEvent(action=action, addr=addr, size=size, stream=0, time_us=1, **more)


def test_bands_that_meet():
    bands = CategoryStackOrderTracker()
    numbers = [bands.track_allocation(event('alloc', addr, size), name)
               for addr, size, name in ((1, 10, 'a'), (2, 20, 'a'), (3, 5, 'b'), (4, 7, 'a'), (5, 1, 'c'))]
    assert numbers == [0, 1, 2, 3, 4]
    assert bands.get_current_stack_snapshot() == [('a', 30), ('b', 5), ('a', 7), ('c', 1)]
    assert bands.track_deallocation(3) == 2
    assert bands.get_current_stack_snapshot() == [('a', 37), ('c', 1)]
    assert bands.addr_to_info[4] == (0, 3, 7, 'a')
    assert bands.track_deallocation(99) is None
    for addr in (1, 2, 4, 5):
        bands.track_deallocation(addr)
    assert bands.stack == []


def test_memory_usage():
    usage = MemoryUsage(save_profile=True, track_allocation_order=True)
    usage.update(event('alloc', 1, 1024, classification=AllocationType.ACTIVATION), ['categories'])
    usage.update(event('alloc', 2, 2048, annotation='step'), ['categories', 'annotations'])
    usage.update(event('alloc', 2, 9), ['categories'])  # it is live
    usage.update(event('free_completed', 7, 9), ['categories'])  # it is not
    usage.update(event('segment_alloc', 3, 4096), ['categories'])
    copy = usage.partial_copy()
    usage.update(event('free_completed', 1, 1024), ['categories'])
    assert (copy.total_alloc, usage.total_alloc, usage.total_reserved) == (3072, 2048, 4096)
    assert copy > usage and copy.stack_snapshot == [('ACTIVATION', 1024), ('UNKNOWN', 2048)]
    assert str(copy).splitlines()[2] == 'AllocationType.ACTIVATION: 1.0KB'
    assert usage.per_category_alloc_sum[AllocationType.ACTIVATION] == 0
    plain = MemoryUsage()
    plain.update(event('alloc', 1, 10), [])
    plain.update(event('segment_alloc', 1, 30), [])
    assert (plain.total_alloc, plain.total_reserved) == (10, 30)


def test_events_of_dicts():
    raw = {'action': 'alloc', 'addr': 1, 'size': 2, 'stream': 0, 'time_us': 3, 'pool_id': (0, 0),
           'frames': [{'name': 'forward', 'filename': 'a.py', 'line': 1}]}
    made = TraceEvent.from_raw(raw, 'step', {'f': 'for'})
    assert (made.classification, made.custom_category) == (AllocationType.CUSTOM, 'f')
    assert (made.annotation, made.compile_context) == ('step', 'N/A')
    assert Allocation.from_str('ab_3', 'alloc').to_str() == 'alloc: ab_3'
    assert Allocation.from_str('', 'alloc') == Allocation('alloc', '', 0)


def test_printing():
    stack = [{'name': 'in', 'filename': 'a.py', 'line': 1}, Frame('out', 'b.py', 2)]
    assert utils.get_printable_stack_trace(stack) == '\nout, b.py:2\n  in, a.py:1\n'
    groups = {1: MemoryEvent(stack[:1], 2, 1 << 30, {1: 1 << 29, 2: 1 << 29}),
              2: MemoryEvent(stack[:1], 1, 1 << 31)}
    assert utils.get_printable_memory_event_set(groups).startswith(
        '\nNum of Calls: 2, Memory Usage: 1.0 GiB\nin, a.py:1\n\nNum of Calls: 1, ')
    told = json.loads(utils.get_memory_peak_event_in_json(groups))
    assert [row['memory_usage'] for row in told['call_stacks']] == [1 << 31, 1 << 30]
    assert find_memory_snapshot_peak_call_stack_diffs({1: groups[1]}, groups) == {2: groups[2]}
    assert find_memory_snapshot_peak_call_stack_intersection({1: groups[1]}, groups) == {1: groups[1]}


def test_plots(tmp_path):
    def usage(sizes, bands):
        made = MemoryUsage(save_profile=True)
        made.per_category_alloc_sum = sizes
        made.stack_snapshot = bands
        return made
    gib = 1024**3
    history = {i: usage({AllocationType.ACTIVATION: i * gib, AllocationType.NET: gib},
                        [('a', gib), ('b', i * gib)]) for i in range(10)}
    rows = []
    plotter = ProfilerPlotter(history, sampling_rate=3)
    plotter._plot_rows = lambda made, _: rows.extend(made)
    plotter.plot('unused')
    assert {row['event_idx'] for row in rows} == {0, 1, 2, 3} and len(rows) == 7
    assert {row['cat'] for row in rows} == {'ACTIVATION', 'NET'}
    for ordered in (False, True):
        ProfilerPlotter(history, preserve_allocation_order=ordered).plot(str(tmp_path / 'p.html'))
        assert '<polygon' in (tmp_path / 'p.html').read_text()
    with pytest.raises(ValueError):
        ProfilerPlotter(history, sampling_rate=0).plot('unused')
    with pytest.raises(ValueError):
        ProfilerPlotter(history, profile='weather').plot('unused')


@pytest.mark.parametrize('entry, error', [
    (7, TypeError), ({'action': 'alloc', 'addr': 512, 'stream': 0, 'time_us': 1, 'frames': []}, KeyError)])
def test_events_that_cannot_be_read_fail(tmp_path, entry, error):
    """As in Mosaic: the peak could be higher."""
    event = {'action': 'alloc', 'addr': 1024, 'size': 512, 'stream': 0, 'time_us': 1, 'frames': []}
    path = tmp_path / 'x.pickle'
    path.write_bytes(pickle.dumps({'segments': [], 'device_traces': [[event, entry]]}))
    abstract = MemoryAbstract(memory_snapshot_file=str(path))
    abstract.load_memory_snapshot()
    with pytest.raises(error):
        abstract.memory_snapshot.analyze_memory_snapshot(opt='memory_peak')
    done = subprocess.run([os.path.join(os.path.dirname(sys.executable), 'mosaic_get_memory_usage_peak'),
                           '--snapshot', path], capture_output=True, text=True, check=False)
    assert done.returncode == 3 and done.stdout == ''


def test_a_copy_of_a_truncated_file_fails(made, tmp_path):
    path = tmp_path / 'x.pickle'
    tessera.open(made / 'truncated.pickle').export(path)
    with pytest.raises(pickle.UnpicklingError):
        MemoryAbstract(memory_snapshot_file=str(path)).load_memory_snapshot()


# ---- the commands ----

COMMANDS = ['get_json_snapshot', 'get_memory_profile', 'get_memory_usage',
            'get_memory_usage_by_annotation_stage', 'get_memory_usage_diff', 'get_memory_usage_peak',
            'mcp', 'per_file_memory_snapshot_analysis']


def test_commands_are_there(made, tmp_path):
    folder = os.path.dirname(sys.executable)
    for name in COMMANDS:
        done = subprocess.run([os.path.join(folder, f'mosaic_{name}'), '--help'], capture_output=True,
                              text=True, check=False)
        assert done.returncode == 0 and 'Usage' in done.stdout or 'usage' in done.stdout, name
    done = subprocess.run([os.path.join(folder, 'mosaic_get_memory_profile'), '--snapshot',
                           made / 'train.pickle', '--out-path', tmp_path / 'page.html', '--profile',
                           'categories', '--preserve-allocation-order', '--plotter_sampling_rate',
                           '20'], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and done.stdout.startswith('Memory Usage At Peak:\n')
    assert (tmp_path / 'page.html').exists()


def test_commands_from_python(made, capsys, tmp_path):
    from mosaic.cmd.get_memory_profile import main
    assert main.main(['--snapshot', str(made / 'train.pickle'), '--out-path', str(tmp_path / 'p.html')],
                     standalone_mode=False) == 0
    assert capsys.readouterr().out.startswith('Memory Usage At Peak:\n')
    with pytest.raises(SystemExit) as ended:
        main(['--snapshot', str(made / 'train.pickle'), '--profile', 'custom'])
    assert ended.value.code == 2
    assert '--custom-profile required when --profile=custom' in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(['--snapshot', str(made / 'train.pickle'), '--custom-profile', '{"a": "b"}'])
    assert '--custom-profile only valid with --profile=custom' in capsys.readouterr().err


def test_under_clicks_runner(made):
    testing = pytest.importorskip('click.testing')
    from mosaic.cmd.get_memory_usage_peak import main
    result = testing.CliRunner().invoke(main, ['--snapshot', str(made / 'train.pickle')])
    assert result.exit_code == 0 and 'Num of Calls' in result.output


# ---- per file ----

SOURCE = """import torch

class Net:
    width = 3

    def forward(self, x):
        return x * 2


def train():
    pass
"""


@pytest.fixture
def tables():
    pytest.importorskip('pandas')
    pytest.importorskip('tabulate')
    from mosaic.libmosaic.analyzer import abstract_syntax_analyzer
    return abstract_syntax_analyzer


class Groups:
    """What the analyzer needs of a MemorySnapshot."""

    def __init__(self, *groups):
        self.call_stack_hash_set = {number: MemoryEvent(
            [{'name': name, 'filename': file, 'line': line} for name, file, line in stack], 1, size)
            for number, (size, stack) in enumerate(groups)}
        self.asked = []

    def analyze_memory_snapshot(self, **how):
        self.asked.append(how)


NET = ('forward', 'net.py', 7)


def test_lines_of_a_source_file(tables, tmp_path, capsys):
    groups = Groups((2 << 30, [('mul', 'x.py', 3), NET, ('train', '/a/net.py', 11)]),
                    (1 << 30, [NET, ('train', '/b/net.py', 11)]),
                    (5 << 30, [('other', 'y.py', 1)]), (1 << 30, [('top', 'net.py', 1)]))
    (tmp_path / 'net.py').write_text(SOURCE)
    made = tables.AbstractSyntaxAnalyzer(groups, file_path=str(tmp_path / 'net.py'))
    given = tables.AbstractSyntaxAnalyzer(groups, file_name='net.py', file_content=SOURCE)
    assert groups.asked == [{'opt': 'memory_peak', 'allocation': '', 'action': 'alloc'}] * 2
    assert made.file_name == given.file_name == 'net.py'
    assert made.classes == given.classes == {
        'Net': {'name': 'Net', 'start_line': 3, 'end_line': 7,
                'functions': {'forward': {'name': 'forward', 'start_line': 6, 'end_line': 7}}}}
    assert made.functions == {'train': {'name': 'train', 'start_line': 10, 'end_line': 11}}
    assert len(made.memory_events_df) == 3  # the line outside of functions makes no row
    assert list(made.memory_events_df.columns) == [
        'line_numbers', 'line_content', 'class_names', 'function_names', 'stack_trace',
        'memory_utilization']
    rows = made.with_occurence_memory_event_aggregation_by_lines.to_dict(orient='records')
    assert rows == [{'line_content': 'return x * 2', 'line_numbers': '7,11', 'class_names': 'Net,_',
                     'function_names': 'forward,train', 'occurrences': 2,
                     'total_memory_utilization_gb': 3.0}]
    others = made.without_occurence_memory_event_aggregation.to_dict(orient='records')
    assert others == [{'stack_trace': 'other, y.py:1', 'total_memory_utilization': 5 << 30,
                       'occurrences': 1}]
    assert '    7 3.000 GiB       |         return x * 2' in made.get_augmented_model_file_view()
    made.display_parsed_model_info()
    assert '  Function: forward, Start Line: 6, End Line: 7' in capsys.readouterr().out
    text = made.get_printable_classification_info([], [], verbose=True)
    assert text.count('with_occurence_memory_event_aggregation') == 4 and '| Net,_' in text
    less = tables.AbstractSyntaxAnalyzer(Groups((1 << 30, [NET])), file_name='net.py',
                                         file_content=SOURCE)
    joined = made.compare_with_occurence_memory_event_aggregation_by_lines(less)
    assert 'occurrences_diff' in joined and len([row for row in joined.split('\n') if '|' in row]) == 4


def test_sources_given_twice_or_not_at_all(tables):
    for how in ({}, {'file_name': 'a'}, {'file_path': 'a', 'file_name': 'a', 'file_content': ''}):
        with pytest.raises(ValueError):
            tables.AbstractSyntaxAnalyzer(Groups(), **how)
    empty = tables.AbstractSyntaxAnalyzer(Groups(), file_name='a', file_content='')
    assert len(empty.memory_events_df) == 0
    assert list(empty.with_occurence_memory_event_aggregation_by_lines.columns)[-2:] == [
        'occurrences', 'total_memory_utilization_gb']


def test_lines_are_those_that_mosaic_printed(tables, there):
    want = (EXPECTED / '_per_file' / 'analyze-train-ctx1024.out').read_text()
    source = (EXPECTED / '_per_file' / 'model.py').read_text()
    found = tables.AbstractSyntaxAnalyzer(loaded(LARGE), file_name='model.py', file_content=source)
    title = 'Aggregated Stack Traces by Model References'
    told = found.get_printable_dataframes(
        [found.simplified_with_occurence_memory_event_aggregation_by_lines], [title])
    start = want.index(title)
    table = want[start:want.index('\n\n', start)].splitlines()
    # Rows that tie may come in any order.
    assert sorted(told.strip().splitlines()) == sorted(table)
