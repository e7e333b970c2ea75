"""Answers: those of the command, to the letter; as objects; and what cannot be answered."""
import errno
import gc
import gzip
import inspect
import json
import os
import pickle
import re
import resource
import shutil
import subprocess
import sys
import weakref
from html import escape

import pytest

import tessera
from conftest import COMMAND, ROOT
from tessera import _core, _html

needs_command = pytest.mark.skipif(not COMMAND, reason='no binary to compare with (TESSERA_COMMAND)')
FILES = ['train', 'two-devices', 'loop', 'leaky', 'empty-trace', 'oom', 'stages', 'sources', 'truncated',
         'large-segments', 'no-times', 'taken-again', 'number', 'lone-free', 'oom-inside', 'one-time']
# A question as Python asks it, and as the command line does.
QUESTIONS = {
    'info': (lambda s: s.info(), ['info']),
    'peak': (lambda s: s.peak(), ['peak']),
    'peak-all': (lambda s: s.peak(top=0), ['peak', '--top', '0']),
    'at': (lambda s: s.at(0), ['at', '--event', '0']),
    'profile': (lambda s: s.profile(), ['profile']),
    'annotation': (lambda s: s.profile('annotation', top=2),
                   ['profile', '--by', 'annotation', '--top', '2']),
    'rules': (lambda s: s.profile(rules={'a': 'forward', 'b': '.*'}),
              ['profile', '--rules', '{"a": "forward", "b": ".*"}']),
    'history': (lambda s: s.profile(over_time=20, ordered=True),
                ['profile', '--over-time', '--samples', '20', '--ordered']),
    'stages': (lambda s: s.stages(), ['stages']),
    'stages-match': (lambda s: s.stages(['forward']), ['stages', '--match', 'forward']),
    'steps': (lambda s: s.steps(), ['steps']),
    'leaks': (lambda s: s.leaks(), ['leaks']),
    'why': (lambda s: s.why(capacity='1GiB'), ['why', '--capacity', '1GiB']),
    'why-set': (lambda s: s.why('expandable_segments:True'),
                ['why', '--set', 'expandable_segments:True']),
    'pools': (lambda s: s.pools(), ['pools']),
    'pools-end': (lambda s: s.pools(event=-1, top=0), ['pools', '--event', '-1', '--top', '0']),
    'whatif': (lambda s: s.whatif(capacity='1GiB'), ['whatif', '--capacity', '1GiB']),
}


def command(*words, ok=True):
    # An explicit environment: readline, which pytest loads, sets COLUMNS where only C programs see it.
    done = subprocess.run([COMMAND, *words], capture_output=True, text=True, check=False,
                          env=dict(os.environ))
    assert not ok or done.returncode == 0, done.stderr
    return done.stdout


@needs_command
@pytest.mark.parametrize('question', QUESTIONS)
@pytest.mark.parametrize('file', FILES)
def test_as_the_command(made, file, question):
    ask, words = QUESTIONS[question]
    path = str(made / f'{file}.pickle')
    try:
        answer = ask(tessera.open(path))
    except tessera.Error as error:
        done = subprocess.run([COMMAND, *words, path], capture_output=True, text=True, check=False)
        assert done.returncode in (2, 3) and str(error) in done.stderr
        return
    assert answer.json() == command(*words, '--json', path)
    assert answer.to_dict() == json.loads(answer.json())
    # The command prints warnings on standard error, a text has them at its end.
    out, rest = command(*words, path), ''
    text = str(answer) + '\n'
    if text != out:
        assert text.startswith(out) and answer.warnings
        rest = text[len(out):]
        assert rest.strip().startswith('warning: ')
    assert rest.count('warning: ') in (0, len(answer.warnings))


@needs_command
def test_questions_about_two(made):
    old, new = str(made / 'train.pickle'), str(made / 'sources.pickle')
    opened = tessera.open(old)
    assert opened.diff(new).json() == command('diff', '--json', old, new)
    assert opened.diff(tessera.open(new)).to_dict() == opened.diff(new).to_dict()
    source = str(made / 'model.py')
    assert tessera.open(new).source(source).json() == command('source', '--json', new, source)
    assert (tessera.open(new).source(source, compare=old).json()
            == command('source', '--json', new, source, '--compare', old))


@needs_command
def test_real_ones(snapshots):
    for path in sorted(snapshots.glob('*.pickle')):
        for question in ('info', 'peak', 'profile', 'stages', 'steps', 'leaks'):
            ask, words = QUESTIONS[question]
            assert ask(tessera.open(path)).json() == command(*words, '--json', str(path)), path


def test_fields(train):
    peak = tessera.open(train).peak(top=2)
    assert isinstance(peak, tessera.answers.Peak)
    assert isinstance(peak.stacks[0].frames, tuple) and isinstance(peak.devices[0], tessera.answers.PeakDevice)
    assert peak.schema == 'tessera/1' and peak['command'] == 'peak'
    device = peak.devices[0]
    # One device alone: its fields are the answer's own.
    assert peak.stacks == device.stacks and peak.peak.allocated_bytes == device.peak.allocated_bytes
    stack = peak.stacks[0]
    assert isinstance(stack, tessera.Record) and stack.bytes == stack['bytes'] > 0
    assert len(peak.stacks) == 2
    frame = next(frame for stack in peak.stacks for frame in stack.frames)
    assert isinstance(frame, tessera.Frame) and str(frame) == f'{frame.file}:{frame.line} {frame.name}'
    assert 'stacks' in dir(peak) and 'bytes' in stack and set(stack) == set(stack.keys())
    assert stack == stack.to_dict() and 'bytes=' in repr(stack)
    with pytest.raises(AttributeError, match='no field .weight.'):
        stack.weight
    with pytest.raises(KeyError):
        stack['weight']


def test_more_devices_than_one(made):
    peak = tessera.open(made / 'two-devices.pickle').peak()
    assert [device.device for device in peak.devices] == [0, 1]
    # Lists are joined, with a device in each record; other fields are each device's own.
    assert [stack.device for stack in peak.stacks] == [
        device.device for device in peak.devices for _ in device.stacks]
    assert isinstance(peak.stacks[0], tessera.answers.Stack) and peak.stacks[0].bytes > 0
    assert 'device' not in peak.devices[0].stacks[0]
    with pytest.raises(AttributeError, match='2 devices'):
        peak.peak
    one = tessera.open(made / 'two-devices.pickle').peak(device=1)
    assert one.device == 1 and one.stacks
    assert len(tessera.open(made / 'two-devices.pickle').peak(device=[0, 1]).devices) == 2


def test_a_question_is_computed_once(train):
    s = tessera.open(train)
    assert s.peak() is s.peak() and s.peak(top=1) is not s.peak()
    assert s.diff(s).to_dict()['devices'][0]['changes'] == []


def test_copies_are_free_to_be_changed(train):
    s = tessera.open(train)
    s.peak().to_dict()['devices'][0]['stacks'].clear()
    s.peak().peak.to_dict()['event'] = -5
    again = tessera.open(train).peak()
    assert s.peak().to_dict() == again.to_dict() and s.peak().json() == again.json()


def test_answers_are_read_only(train):
    """Whoever asks the same question gets the same object, so nobody can change it."""
    s = tessera.open(train)
    answer = s.peak()
    assert answer is s.peak() and answer.stacks is answer.devices[0].stacks is answer['stacks'] is answer['devices'][0]['stacks']
    for record, name in ((answer, 'verdict'), (answer, 'stacks'), (answer.peak, 'allocated_bytes'), (answer.stacks[0], 'bytes'), (answer.stacks[0].frames[0], 'new')):
        with pytest.raises(AttributeError, match='is read-only; to_dict'):
            setattr(record, name, 3)
        with pytest.raises(AttributeError, match='is read-only'):
            delattr(record, name)
        with pytest.raises(TypeError):
            record[name] = 3
    for rows in (answer.stacks, answer.devices, answer.stacks[0].frames, answer.inputs, answer.warnings):
        assert isinstance(rows, tuple)
    assert 'stacks' in answer and 'peak' in answer and 'weather' not in answer and 3 not in answer
    assert answer['peak'] is answer.peak and answer.get('stacks') is answer.stacks and answer.get('weather') is None
    with pytest.raises(KeyError):
        answer['weather']
    assert answer.to_dict() == tessera.open(train).peak().to_dict()


def test_the_cache_is_bounded(train):
    s = tessera.open(train)
    first = weakref.ref(s.peak(top=1000))
    for top in range(1, 100):
        s.peak(top=top)
    gc.collect()
    assert first() is None and len(s._answers._own) <= s._answers.LIMIT
    assert s.peak(top=99) is s.peak(top=99)


def test_other_snapshots_are_not_kept(train, made):
    s, other = tessera.open(train), tessera.open(made / 'sources.pickle')
    answer = s.diff(other)
    assert s.diff(other) is answer
    core, held = weakref.ref(other), weakref.ref(answer)
    del other, answer
    gc.collect()
    assert core() is None and held() is None and not s._answers._of_two
    for _ in range(5):  # another object may get the same address
        other = tessera.open(train)
        assert s.diff(other).to_dict()['devices'][0]['changes'] == []
        other = tessera.open(made / 'sources.pickle')
        assert s.diff(other).to_dict()['devices'][0]['changes'] != []


# What the method names differently, and why.
OTHER_NAMES = {('source', 'source'): 'path',  # with its text
               ('simulate', 'no_kv_cache'): 'kv_cache'}


@pytest.mark.parametrize('question', tessera.questions())
def test_methods_have_the_parameters_of_the_questions(question):
    owner = tessera if question == 'simulate' else tessera.Snapshot
    method = vars(owner).get(question)
    if method is None:
        pytest.skip('asked through the registry alone')
    known = inspect.signature(method).parameters
    summary, subjects, rows = _core.question(question)
    for name, text, _ in rows:
        assert OTHER_NAMES.get((question, name), name) in known, (question, name)
        assert question == 'simulate' and name == 'model' or text in method.__doc__
    assert any(one.kind is inspect.Parameter.VAR_KEYWORD for one in known.values())


def test_methods_pass_parameters_on(train, made):
    s, other = tessera.open(train), tessera.open(made / 'sources.pickle')
    assert s.diff(other, by='line').json() == s.ask('diff', other, by='line').json()
    assert s.diff(other, by='line').json() != s.diff(other).json()
    assert s.profile(categories='mosaic').json() == s.ask('profile', categories='mosaic').json()
    assert s.profile('mosaic-category').json() == s.profile(categories='mosaic').json()
    assert (s.profile(over_time=True, samples=7).json() == s.profile(over_time=7).json()
            == s.ask('profile', over_time=True, samples=7).json())
    for question in set(tessera.questions()) - {'simulate'}:
        arguments = {'at': [0], 'diff': [other], 'source': [made / 'model.py']}.get(question, [])
        with pytest.raises(TypeError, match="has no parameter 'nonsense'"):
            getattr(s, question)(*arguments, nonsense=1)
    with pytest.raises(TypeError, match="has no parameter 'nonsense'"):
        tessera.simulate('gpt2', nonsense=1)


def test_a_device_counts_once(made):
    s = tessera.open(made / 'two-devices.pickle')
    assert [device.device for device in s.peak(device=[1, 1, 0, 1]).devices] == [1, 0]
    assert s.export(format='folded', device=[0, 0]) == s.export(format='folded', device=0)
    assert s.trim(device=[1, 1]).devices == [1]


@pytest.mark.parametrize('size', [-1, 0, 10**30, 2**64, '99999999999999999999GiB', '-3GiB', '1e30'])
def test_sizes_that_are_none(train, size):
    s = tessera.open(train)
    for ask in (lambda: s.check(size), lambda: s.check({'activation': size}),
                lambda: s.check(max_reserved=size or -1), lambda: s.whatif(capacity=size or -1),
                lambda: s.view(capacity=size)):
        with pytest.raises(tessera.ArgumentError):
            ask()


def test_sizes_are_read_by_the_library():
    assert [_core.size(size) for size in (None, 5, '5B', '1.5GiB', '2 KiB', 2**64 - 1)] == [
        None, 5, 5, 3 * 2**29, 2048, 2**64 - 1]
    with pytest.raises(tessera.ArgumentError):
        _core.size('5')


def test_what_excludes_each_other(train):
    s = tessera.open(train)
    for given in ({'event': 3, 'events': (0, 5)}, {'event': 3, 'time_us': 5},
                  {'events': (0, 5), 'times': (0, 5)}):
        with pytest.raises(TypeError, match='at most one of .* given are'):
            s.export(format='folded', **given)
    with pytest.raises(TypeError, match='given are events and times'):
        s.trim(events=(0, 5), times=(0, 5))


def test_errors_name_the_file_that_was_asked_for(train, tmp_path):
    s = tessera.open(train)
    target = str(tmp_path / 'absent' / 'a.json')
    with pytest.raises(FileNotFoundError) as absent:
        s.export(target)
    assert absent.value.filename == target

    target = str(tmp_path / 'a.json')
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))  # the signal of that is ignored by Python
    try:
        with pytest.raises(OSError) as raised:
            s.export(target)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert (raised.value.filename, raised.value.errno) == (target, errno.EFBIG)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(tessera.ArgumentError, match='.unknown'):
        s.export(str(tmp_path / 'a.unknown'))
    assert list(tmp_path.iterdir()) == []


def test_html_begins_with_the_whole_verdict(made):
    for name in ('two-devices', 'train', 'oom'):
        s = tessera.open(made / f'{name}.pickle')
        for answer in (s.peak(), s.why(), s.check(1), s.info()):
            html = answer._repr_html_()
            assert '<br>'.join(map(escape, answer.verdict)) in html and '<pre>' in html


def test_repr_of_a_snapshot_is_its_verdict(made):
    for name in ('two-devices', 'empty-trace', 'train'):
        s = tessera.open(made / f'{name}.pickle')
        assert repr(s).splitlines() == s.info().verdict
        assert f'{name}.pickle: pickle' in repr(s)
        assert s._repr_html_().startswith('<div><p><b>' + escape(s.info().verdict[0]))
        s.close()
        assert repr(s) == '<tessera Snapshot, closed>'


def test_repr_is_the_verdict(made):
    two = tessera.open(made / 'two-devices.pickle').peak()
    assert repr(two).splitlines() == two.verdict and len(two.verdict) == 2


def test_moments(real):
    s = tessera.open(real)
    # PyTorch's viewer writes a 'b' before some addresses.
    named = s.at(allocation='cd1000000_0')
    assert named.devices[0].event == s.at(allocation='bcd1000000_0').devices[0].event
    event = named.devices[0].event
    assert s.at(event).live_allocations == named.live_allocations
    assert s.at(time_us=named.time_us).devices[0].event >= event
    assert s.at(allocation='cd1000000_0', action='free').devices[0].event > event


def test_text(train):
    peak = tessera.open(train).peak()
    assert peak.text(full_stacks=True) != peak.text() != peak.text(color=True)
    assert peak.text().endswith('\n') and str(peak) == peak.text().rstrip('\n')


def test_what_does_not_exist(train):
    s = tessera.open(train)
    with pytest.raises(tessera.ArgumentError, match='device 7'):
        s.peak(device=7)
    with pytest.raises(tessera.ArgumentError):
        s.at(10**9)
    with pytest.raises(tessera.ArgumentError, match='ADDRESS_VERSION'):
        s.at(allocation='nonsense')
    with pytest.raises(tessera.ArgumentError, match="rule 'a': .*offset 2"):
        s.profile(rules={'a': '(x'})
    with pytest.raises(tessera.FormatError):
        s.profile(rules='[1, 2')
    with pytest.raises(tessera.ArgumentError):
        s.profile('weather')
    with pytest.raises(tessera.ArgumentError, match='unknown allocator option'):
        s.whatif('nonsense:1')
    with pytest.raises(tessera.ArgumentError, match='40GiB'):
        s.whatif(capacity='much')
    with pytest.raises(tessera.UnsupportedError, match="no question 'weather'"):
        s._ask('weather', tessera.Answer)


def test_wrong_calls(train):
    s = tessera.open(train)
    for call in (lambda: s.at(), lambda: s.at(1, time_us=2), lambda: s.profile('rules'),
                 lambda: s.peak(device='one'), lambda: s.peak(top='ten'), lambda: s.at([1]),
                 lambda: s.stages([1]), lambda: s._core.ask('diff', {}),
                 lambda: s._core.ask('peak', {'by': 'op'}), lambda: s.diff(3)):
        with pytest.raises(TypeError):
            call()
    for call in (lambda: s.at('x'), lambda: s.peak(top=-1), lambda: s.peak(device=-1), lambda: s.peak(device=2**40),
                 lambda: s.peak(top=2**70), lambda: s.stages('a\0b')):
        with pytest.raises((ValueError, OverflowError)):
            call()


def test_rules_from_everywhere(train, tmp_path):
    s = tessera.open(train)
    file = tmp_path / 'rules.yaml'
    file.write_text('rules:\n  - name: fwd\n    pattern: forward\n')
    want = s.profile(rules={'fwd': 'forward'}).groups
    assert want == s.profile(rules=[{'name': 'fwd', 'pattern': 'forward'}]).groups
    assert want == s.profile(rules='fwd: forward').groups
    assert want == s.profile(rules=file).groups == s.profile(rules=str(file)).groups


def test_html(made):
    for name in ('train', 'empty-trace', 'two-devices', 'truncated', 'number'):
        try:
            s = tessera.open(made / f'{name}.pickle')
        except tessera.Error:
            continue
        html = s._repr_html_()
        assert html.startswith('<div>') and html.endswith('</div>') and '<script' not in html
        for answer in (s.peak(), s.profile(), s.info(), s.steps(), s.diff(s), s.whatif(), s.why(), s.leaks(),
                       s.stages(), s.check(1)):
            assert answer._repr_html_().count('<div>') == 1
    html = tessera.open(made / 'train.pickle')._repr_html_()
    assert '<svg' in html and '<polygon' in html


def test_html_has_a_table(made, train):
    s = tessera.open(made / 'sources.pickle')
    answers = [s.peak(), s.profile(), s.info(), s.steps(), s.diff(train), s.whatif(), s.why(), s.leaks(), s.stages(),
               s.check(1), s.check(), s.at(3), s.source(made / 'model.py'), tessera.simulate('gpt2', batch=1, seq=64)]
    for shown in (*answers, s, tessera.open(made / 'two-devices.pickle')):
        html = shown._repr_html_()
        assert html.count('<table') >= 1 and html.count('<th ') > 1, shown
        assert html.count('<td') >= html.count('<th ') and 'None' not in html.partition('<pre>')[0]
    peak = s.peak(top=0)._repr_html_().partition('<details>')[0]
    assert peak.count('<tr>') == 1 + len(s.peak(top=0).stacks) and 'model.py:' in peak
    assert peak.count('width:160.0px') == 1 and 'GiB' in peak or 'MiB' in peak
    many = s.profile('stack', top=0)
    assert len(many.groups) > 3
    html = tessera.open(made / 'two-devices.pickle').peak()._repr_html_()
    assert html.count('<table') == 2 and '<p>Device 1</p>' in html


def test_html_of_a_history_has_a_chart(train):
    s = tessera.open(train)
    assert '<polygon' in s.profile('line', over_time=True)._repr_html_()
    assert 'Requested memory by line' in s.profile('line', over_time=True)._repr_html_()
    assert '<polygon' not in s.profile('line')._repr_html_()


def test_colours_of_the_page():
    """One table of colours: the page's."""
    text = (ROOT / 'viewer' / 'src' / 'theme.ts').read_text()
    light = re.search(r'const LIGHT = \[(.*?)\]', text, re.DOTALL)[1]
    assert tuple(re.findall(r"'(#\w{6})'", light)) == _html._HUES
    category = re.search(r'const CATEGORY[^{]*{(.*?)}', text, re.DOTALL)[1]
    assert {name: int(at) for name, at in re.findall(r'(\w+): (\d+)', category)} == _html._CATEGORY
    assert set(_html._CATEGORY) == set(_core.categories())


def test_bands_have_different_colours():
    colors = _html.palette(_core.categories())
    assert len(set(colors)) == len(colors)
    for names in (['(none)', 'unknown'], ['conv', 'linear', 'attention', 'norm', 'gelu', '(other)'],
                  [f'layer {number}' for number in range(13)]):
        assert len(set(_html.palette(names))) == len(names), names
    assert len(_html.palette([str(number) for number in range(40)])) == 40  # more than colours


def test_a_chart_has_axes_a_scale_and_a_legend(made):
    html = tessera.open(made / 'train.pickle')._repr_html_()
    assert html.count('<line ') >= 3 and '>0</text>' in html and 'event 0</text>' in html
    assert re.search(r'>[\d.]+ (KiB|MiB|B)</text>', html) and 'at most' in html
    fills = re.findall(r'<polygon fill="(#\w+)"', html)
    assert len(fills) == len(set(fills)) > 1
    assert all(f'color:{color}' in html for color in fills)


@pytest.mark.parametrize('top', [1, 3, 1000, 1024, 5 * 2**20, 80 * 2**30, 3 * 2**50, 2**63])
def test_scales(top):
    ticks = _html._ticks(top)
    assert 2 <= len(ticks) <= 6 and ticks[0] == 0 and ticks[-1] <= top * 1.0001
    assert _html._tick_label(ticks[0]) == '0'
    assert len({_html._tick_label(tick) for tick in ticks}) == len(ticks)


def test_names_in_html_are_escaped():
    event = {'action': 'alloc', 'addr': 1 << 20, 'size': 512, 'stream': 0, 'time_us': 1,
             'frames': [{'name': '<b>x', 'filename': '<script>.py', 'line': 1}]}
    s = tessera.open({'segments': [], 'device_traces': [[event]]})
    for html in (s.peak()._repr_html_(), s._repr_html_()):
        assert '<script>' not in html and '<b>x' not in html


def test_a_group_has_one_colour(made):
    answer = tessera.open(made / 'train.pickle').profile('line', over_time=True)
    html = answer._repr_html_()
    legend = dict((name, color) for color, name in re.findall(r'color:(#\w+)">&#9632;</span> ([^<]*)</span>', html))
    rows = dict((name, color) for color, name in
                re.findall(r'background:(#\w+)"></div></td>(?:<td[^>]*>[^<]*</td>){3}<td[^>]*>([^<]*)</td>', html))
    assert len(rows) > 3 and set(rows) <= set(legend)
    assert {name: legend[name] for name in rows} == rows


def test_check(train, tmp_path):
    s = tessera.open(train)
    peak = s.peak().peak.allocated_bytes
    assert s.check(peak) and not s.check(peak - 1)
    assert s.check('1TiB', max_reserved='1TiB') and not s.check(max_reserved=1)
    failed = s.check({'': 1, 'activation': 1})
    assert failed.failed == 2 and [result.rule for result in failed.results] == ['max-peak', 'max-category']
    assert 'peak' in failed.results[0].message and '<testsuite' in failed.form('junit')
    text = s.check().lock()
    assert text.startswith('tessera memory lock 2\n') and s.check(lock=text, tolerance=0)
    (tmp_path / 'memory.lock').write_text(text.replace('peak ', 'peak 9'))
    assert not s.check(lock=tmp_path / 'memory.lock', tolerance='0.5%')
    with pytest.raises(tessera.ArgumentError, match='no category'):
        s.check({'weather': 1})
    with pytest.raises(tessera.FormatError):
        s.check(lock='nonsense\n')
    with pytest.raises(TypeError):
        s.check(1, tolerance='1%')
    with pytest.raises(TypeError, match='form'):
        s.peak()._core.form('sarif', None)


def event(action='alloc', address=512, **fields):
    return {'action': action, 'addr': address, 'size': 512, 'stream': 0, 'time_us': 1, 'frames': [], **fields}


def trace_of(*events):
    return {'segments': [], 'device_traces': [list(events)]}


LACKS_SIZE = {key: value for key, value in event().items() if key != 'size'}


@pytest.mark.parametrize('source, doubt', [
    (trace_of(event(), 7), 'unreadable'),
    (trace_of(event(), event(address=1024, size=-2**40)), 'unreadable'),
    (trace_of(event(), event(address=1024, size=None)), 'unreadable'),
    (trace_of(event(), LACKS_SIZE), 'unreadable'),
    (trace_of(event(), event(action=None)), 'unreadable'),
    ({**trace_of(event()), 'segments': [7]}, 'unreadable'),
])
def test_a_check_passes_only_what_was_read(source, doubt):
    found = tessera.open(source).check('1TiB')
    assert not found and not found.passed and found.doubt == doubt and found.failed == 0
    assert found.verdict[0].startswith('Memory check inconclusive: 1 check passed, but ')
    assert 'errors="1"' in found.form('junit') and '"executionSuccessful": false' in found.form('sarif')
    assert tessera.open(trace_of(event())).check('1TiB')


def test_a_check_of_a_damaged_file(train):
    data = bytearray(gzip.compress(train.read_bytes()))
    data[-6] ^= 255  # its checksum
    s = tessera.open(bytes(data))
    assert [warning.code for warning in s.warnings] == ['damaged']
    assert not s.check('1TiB') and s.check('1TiB').doubt == 'damaged'
    assert not tessera.open(s.export(format='pickle')).check('1TiB')


def test_a_check_of_a_truncated_file(train):
    s = tessera.open(train.read_bytes()[:-1])
    assert not s.check('1TiB') and 'inconclusive' in repr(s.check('1TiB'))


def test_a_check_of_nothing(train):
    for source in (trace_of(), {'segments': [], 'device_traces': []}):
        assert not tessera.open(source).check('1TiB')
    s = tessera.open(train)
    for given in (None, {}):
        assert not s.check(given)
        assert repr(s.check(given)) == 'Memory check without a budget or lock: nothing was checked.'


def test_what_is_no_budget(train):
    """Refused, rather than left out."""
    s = tessera.open(train)
    for given in (True, 1.5, float('nan'), ['18GiB'], b'18GiB', object()):
        for budget in (given, {'activation': given, 'temporary': '3GiB'}):
            with pytest.raises(tessera.UsageError, match='a budget is a whole number of bytes, or a text'):
                s.check(budget)
        with pytest.raises(tessera.Error):
            s.check(max_reserved=given)
    for given in ({'activation': None, 'temporary': '3GiB'}, {None: 1}, {3: '1GiB'}):
        with pytest.raises(tessera.UsageError):
            s.check(given)
    for given in ('nan', '-1', '0', 'much', '18 apples'):
        with pytest.raises(tessera.ArgumentError):
            s.check(given)
    numpy = pytest.importorskip('numpy')
    for size in (numpy.int64(2**34), numpy.uint32(2**31), 2**34):
        assert s.check(size) and s.check({'': size}) and s.check(max_reserved=size)
    with pytest.raises(tessera.NotFoundError):
        s.check(lock='/nonexistent/memory.lock')


def test_a_check_of_a_category_that_is_not_known():
    s = tessera.open(trace_of(event(size=2**30)))
    assert s.profile().groups[0].name == 'unknown'
    found = s.check({'activation': '1MiB'})
    assert not found and found.doubt == 'unknown'
    assert s.check({'activation': '2GiB'}) and s.check('2GiB') and not s.check({'unknown': '1MiB'})


def test_what_no_history_tells(made):
    warned = [w.code for w in tessera.open(made / 'empty-trace.pickle').check('1TiB').warnings]
    assert 'not-recorded' in warned


def test_an_unknown_action_is_counted(made):
    s = tessera.open(trace_of(event(), event('allocate', 1024), event('allocate', 2048)))
    assert [(w.code, w.count) for w in s.warnings] == [('actions-unknown', 2)]


def test_a_number_is_no_file(train):
    s = tessera.open(train)
    read, write = os.pipe()
    for ask in (lambda: s.check(lock=read), lambda: s.check(lock=True), lambda: s.profile(rules=read)):
        with pytest.raises(TypeError):
            ask()
    os.close(read)  # it is still open
    os.close(write)


def test_arguments_that_select_nothing(train):
    s = tessera.open(train)
    for ask in (lambda: s.peak(device=[]), lambda: s.live(device=()), lambda: s.check('1GiB', device=iter([])),
                lambda: s.trace(-1), lambda: s.whatif(capacity=0), lambda: s.why(capacity=0), lambda: s.export(format='weather')):
        with pytest.raises(tessera.ArgumentError):
            ask()


@needs_command
def test_check_as_the_command(train, tmp_path):
    s = tessera.open(str(train))
    lock = tmp_path / 'memory.lock'
    command('check', '--lock', lock, '--update', train)
    assert s.check().lock() == lock.read_text()
    for answer, words in ((s.check('1MiB'), ['--max', '1MiB']),
                          (s.check({'activation': '1KiB'}), ['--max', 'activation=1KiB']),
                          (s.check(lock=lock), ['--lock', lock])):
        assert str(answer) + '\n' == command('check', *words, str(train), ok=False)
        assert answer.form('markdown') == command('check', '--format', 'markdown', *words,
                                                  str(train), ok=False)


def test_machine(tmp_path, monkeypatch):
    """What tessera doctor measured on this machine is used where it has the card; a file that cannot be used is left out, with a warning."""
    path = tmp_path / 'machine.json'
    path.write_text('{"schema": "tessera/machine/1", "devices": [{"name": "Tesla T4", "context_bytes": 1000000}]}')
    asked = {'gpu': 't4', 'seq': 16, 'steps': 2}
    monkeypatch.setenv('TESSERA_MACHINE', str(path))
    measured = tessera.simulate('gpt2-bytes', **asked, capacity='16GiB').devices[0].outside
    assert (measured.source, measured.parts[0].bytes) == ('machine', 1000000)
    plan = tessera.plan('gpt2-bytes', **asked, budget='16GiB', allow='none')
    assert (plan.outside.source, plan.budget_bytes) == ('machine', measured.pytorch_bytes)
    monkeypatch.delenv('TESSERA_MACHINE')
    monkeypatch.setenv('XDG_CONFIG_HOME', str(tmp_path / 'config'))
    assert tessera.simulate('gpt2-bytes', **asked).devices[0].outside.source == 'table'
    (tmp_path / 'config' / 'tessera').mkdir(parents=True)
    (tmp_path / 'config' / 'tessera' / 'machine.json').write_text(path.read_text())
    assert tessera.simulate('gpt2-bytes', **asked).devices[0].outside.source == 'machine'
    assert tessera.simulate('gpt2-bytes', **asked, machine={'schema': 'tessera/machine/1', 'devices': []}).devices[0].outside.source == 'table'
    path.write_text('[]')
    monkeypatch.setenv('TESSERA_MACHINE', str(path))
    with pytest.warns(UserWarning, match='machine.json is left out'):
        assert tessera.simulate('gpt2-bytes', **asked).devices[0].outside.source == 'table'
    with pytest.raises(ValueError, match='tessera doctor'):
        tessera.simulate('gpt2-bytes', **asked, machine=path)
    monkeypatch.setenv('TESSERA_MACHINE', '')
    assert tessera.simulate('gpt2-bytes', **asked, outside='none').devices[0].outside is None


def test_simulate():
    run = tessera.simulate('gpt2', batch=1, seq=64, steps=2, dtype='autocast-bf16')
    assert run.fits and run.peak.allocated_bytes == run.snapshot.peak().peak.allocated_bytes
    assert 'gpt2' in tessera.models()
    snapshot = run.snapshot
    del run
    assert snapshot.info().events > 0
    assert not tessera.simulate('gpt2', batch=4, capacity='1GiB').fits
    with pytest.raises(tessera.ArgumentError, match='no model'):
        tessera.simulate('unheard of')
    with pytest.raises(tessera.ArgumentError, match='dtype takes fp32'):
        tessera.simulate('gpt2', dtype='int3')


def test_simulate_a_step_graph():
    graph = ROOT / 'tests' / 'golden' / 'rewrites' / 'bert.graph'
    run = tessera.simulate(str(graph), steps=3, fresh_process=True)
    again = tessera.simulate(json.loads(graph.read_text()), steps=3, fresh_process=True, checkpoint_modules='BertLayer')
    assert again.phases[-1].allocated_bytes <= run.phases[-1].allocated_bytes
    assert max(phase.allocated_bytes for phase in again.phases) < max(phase.allocated_bytes for phase in run.phases)
    with pytest.raises(tessera.ArgumentError, match='optimizer_in_backward does not apply'):
        tessera.simulate(str(graph), optimizer_in_backward=True)


# What plan() is asked, and the command's words; 'FILE' is a small model.
SMALL = {'model_type': 'gpt2', 'n_layer': 2, 'n_embd': 64, 'n_head': 2, 'vocab_size': 100}
PLANS = {
    'techniques': ({'seq': 64}, ['FILE', '--seq', '64']),
    'budget': ({'seq': 64, 'budget': '26MiB', 'gpu': 't4'}, ['FILE', '--seq', '64', '--budget', '26MiB', '--gpu', 't4']),
    'none': ({'seq': 64, 'budget': 1 << 20}, ['FILE', '--seq', '64', '--budget', '1MiB']),
    'front': ({'front': True, 'gpus': 2, 'allow': 'kernels,recompute'},
              ['FILE', '--front', '--gpus', '2', '--allow', 'kernels,recompute']),
    'largest': ({'seq': 64, 'budget': '30MiB', 'largest': 'batch', 'allow': 'kernels'},
                ['FILE', '--seq', '64', '--budget', '30MiB', '--largest', 'batch', '--allow', 'kernels']),
    'compare': ({'model': None, 'parameters': 1000, 'compare': True}, ['--parameters', '1000', '--compare']),
    'show': ({'plan': {'version': 1, 'checkpoint': 'full'}, 'show': True}, ['show', 'PLAN', 'FILE']),
}


@needs_command
@pytest.mark.parametrize('question', PLANS)
def test_plan_as_the_command(tmp_path, question):
    options, words = PLANS[question]
    files = {'FILE': tmp_path / 'small.json', 'PLAN': tmp_path / 'plan.json'}
    files['FILE'].write_text(json.dumps(SMALL))
    files['PLAN'].write_text('{"version":1,"checkpoint":"full"}')
    words = ['plan', *(str(files.get(word, word)) for word in words)]
    answer = tessera.plan(**{'model': str(files['FILE']), **options})
    assert answer.json() == command(*words, '--json', ok=False)
    said, _, _ = command(*words, ok=False).partition('\nNext: ')  # which is the command's alone
    assert answer.text() == said
    again = pickle.loads(pickle.dumps(answer))
    assert again == answer and str(again) == str(answer)


def test_plan():
    found = tessera.plan(SMALL, batch=4, seq=64, budget='28MiB', target='hf')
    assert found['verdict'] == 'fits_with_changes' and 'fits in 28.00 MiB' in found.verdict[0]
    run = tessera.simulate(SMALL, batch=4, seq=64, plan=found.plan.to_dict())
    assert run.peak_reserved_bytes == found.predicted.peak_reserved_bytes <= 28 << 20
    assert found['for'].target == 'hf' and 'TrainingArguments' in found['for'].text
    several = tessera.plan(SMALL, batch=4, seq=64, budget='40MiB', target=['hf', 'deepspeed', 'hf'])
    assert [one.file for one in (several['for'], *several.also_for)] == ['hf.py', 'deepspeed.json']
    assert json.loads(several.also_for[0].text)['train_micro_batch_size_per_gpu'] and several.also_for[0].notes and several['for'].notes is None
    with pytest.raises(tessera.ArgumentError, match='takes hf, peft'):
        tessera.plan(SMALL, target=['hf', 'moon'])
    recorded = tessera.plan(SMALL, batch=4, seq=64, budget='28MiB', recorded=tessera.simulate(SMALL, batch=4, seq=64).snapshot)
    assert recorded.calibration.unexplained_bytes == 0
    assert 'budget' in (tessera.plan.__doc__ or '')
    for options, message in (({'largest': 'batch'}, 'largest needs budget'), ({'budget': '1GiB', 'front': True, 'steps': 1}, 'steps must'),
                             ({'budget': '1GiB', 'allow': 'magic'}, 'magic'), ({'from': 'x', 'budget': '1GiB'}, 'from needs a snapshot')):
        with pytest.raises(tessera.ArgumentError, match=message):
            tessera.plan(SMALL, **options)
    with pytest.raises(tessera.ArgumentError, match='missing model'):
        tessera.plan()


# Each takes much longer than the signal to come.
LONG = {
    'budget': "plan(model, budget='900GiB')",
    'front': "plan(model, front=True)",
    'techniques': "plan(model)",
    'largest': "plan(model, budget='900GiB', largest='batch')",
    'simulate': "simulate(model, steps=20, batch=2)",
}


@pytest.mark.parametrize('call', LONG)
def test_ctrl_c_ends_planning_and_simulating(call):
    code = ('import os, signal, threading, tessera\n'
            'model = {"model_type": "gpt2", "n_layer": 600}\n'
            'threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()\n'
            f'try: tessera.{LONG[call]}\n'
            'except KeyboardInterrupt: print("interrupted")\n')
    done = subprocess.run([sys.executable, '-c', code], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr, done.returncode) == ('interrupted\n', '', 0)


def test_plan_has_limits():
    whole = tessera.plan('gpt2', budget='2GiB')
    some = tessera.plan('gpt2', budget='2GiB', work_limit=1000000)
    assert some.stopped_by == 'work_limit' and 'stopped_by' not in whole
    assert whole.predicted.step_time_us <= some.predicted.step_time_us
    with pytest.raises(tessera.ArgumentError, match='nothing was found within work_limit'):
        tessera.plan('gpt2', budget='2GiB', work_limit=500)


def test_fit_finds_plans_in_process(monkeypatch):
    """Neither another process nor a file: what fit() asks for a step graph."""
    from tessera import _fit
    monkeypatch.setattr(subprocess, 'Popen', None)
    graph = json.loads((ROOT / 'tests' / 'golden' / 'rewrites' / 'bert.graph').read_text())
    most = tessera.simulate(graph, steps=3).peak_reserved_bytes
    found = _fit._planned(graph, most, 'a100')
    assert found.fits and found.after.reserved_bytes <= most and found.plan['version'] == 1
    assert not _fit._planned(graph, 1 << 20, 'a100').fits
    with pytest.raises(tessera.ArgumentError, match='the step has no plan'):
        _fit._planned(graph, most, 'b300')


@needs_command
def test_simulate_as_the_command():
    run = tessera.simulate('gpt2', batch=2, seq=128, checkpoint='every:3', attention='chunked:32')
    assert run.json() == command('simulate', 'gpt2', '--batch', '2', '--seq', '128', '--checkpoint',
                                 'every:3', '--attention', 'chunked:32', '--json')


@needs_command
def test_what_the_program_said(made):
    s = tessera.open(made / 'noted.pickle')
    assert s.profile('metadata').json() == command('profile', made / 'noted.pickle', '--by', 'metadata',
                                                   '--json')
    groups = {group.name: group.bytes for group in s.profile('metadata:layer').groups}
    assert groups == {'(other metadata)': 27 << 20, '3': 2 << 20, '(no metadata)': 1 << 19}
    names = [(name.name, name.category, name.source) for name in s.peak().stacks[1].names]
    assert names == [('block 7', 'activation', 'annotation'),
                     ('packed into\x1b[1m the \u202egraph', None, 'annotation')]
    assert '"title":"metadata"' in s.view(by='metadata:layer')
    with pytest.raises(tessera.ArgumentError, match='metadata:KEY'):
        s.view(by='line:layer')


def test_any_question_by_its_name(train, made):
    s = tessera.open(train)
    assert s.ask('peak', top=2) is s.peak(top=2) and isinstance(s.ask('peak'), tessera.answers.Peak)
    assert s.ask('profile', by='op').to_dict() == s.profile('op').to_dict()
    assert s.ask('profile', by='compile_context').json() == s.profile('compile-context').json()
    assert s.ask('diff', made / 'sources.pickle').to_dict() == s.diff(made / 'sources.pickle').to_dict()
    assert {'peak', 'diff', 'simulate'} <= set(tessera.questions()) <= set(dir(s)) | {'simulate'}
    with pytest.raises(TypeError, match="'peak' has no parameter 'depth'"):
        s.ask('peak', depth=3)
    with pytest.raises(tessera.ArgumentError, match='by takes category, .* or metadata:KEY, not'):
        s.ask('profile', by='colour')
    with pytest.raises(AttributeError, match='weather'):
        s.weather


def test_verdicts(made):
    two = tessera.open(made / 'two-devices.pickle').peak()
    assert [line[:9] for line in two.verdict] == ['Device 0:', 'Device 1:']
    assert all(line in str(two).splitlines() for line in two.verdict)
    s = tessera.open(made / 'train.pickle')
    for answer in (s.info(), s.profile(), s.steps(), s.leaks(), s.whatif(), s.why(), s.stages(), s.diff(s)):
        assert answer.verdict and answer.verdict[0] in str(answer).splitlines()
    assert s.check(1).verdict == ['Memory check failed: 1 of 1 check.']


# ---- ranks ----


def test_ranks_with_budgets(train, tmp_path):
    """The answer is false if a rank is above its budget; and its formats survive pickling."""
    for rank in range(2):
        shutil.copy(train, tmp_path / f'rank{rank}.pickle')
    within = tessera.ranks(tmp_path, max={'': '1TiB', 'activation': 1 << 50}, max_spread='1GiB')
    assert within and within.passed and [check.rule for check in within.checks] == ['max-peak', 'max-category', 'max-spread']
    above = tessera.ranks(tmp_path, max='1B', max_reserved=1, capacity='80GiB')
    assert not above and [check.failed_ranks for check in above.checks] == [(0, 1), (0, 1)]
    assert tessera.ranks(tmp_path).passed is None and tessera.ranks(tmp_path)
    (tmp_path / 'rank2.pickle').write_bytes(b'nothing')
    assert tessera.ranks(tmp_path, max='1TiB').doubt == 'broken'
    assert tessera.ranks(tmp_path, max='1TiB', allow_missing=True)
    again = pickle.loads(pickle.dumps(above))
    assert not again
    for name in ('junit', 'markdown', 'prometheus'):
        assert again.form(name) == above.form(name)


@needs_command
def test_a_source_that_is_elsewhere(train, tmp_path, monkeypatch):
    """Lines are told by their numbers, as by the command."""
    monkeypatch.chdir(tmp_path)
    answer = tessera.open(train).source('train.py')
    assert answer.json() == command('source', '--json', str(train), 'train.py')
    assert answer.lines and not isinstance(answer, str)
    (tmp_path / 'folder.py').mkdir()
    with pytest.raises(tessera.ReadError):
        tessera.open(train).source('folder.py')
    with pytest.raises(tessera.UsageError):
        tessera.open(train).source(7)


@needs_command
def test_a_check_as_the_command(train, tmp_path):
    s, path = tessera.open(train), str(train)
    lock = tmp_path / 'memory.lock'
    lock.write_text(s.check().lock())
    for given, words in (({'max': '1GiB'}, ['--max', '1GiB']), ({'max': 2**30}, ['--max', f'{2**30}B']),
                         ({'max': {'activation': '1MiB', '': '1GiB'}}, ['--max', 'activation=1MiB', '--max', '1GiB']),
                         ({'lock': lock}, ['--lock', lock]), ({'lock': lock, 'tolerance': '5%'}, ['--lock', lock, '--tolerance', '5%']),
                         ({'max_reserved': '1MiB'}, ['--max-reserved', '1MiB'])):
        done = subprocess.run([COMMAND, 'check', '--json', *map(str, words), path], capture_output=True, text=True, check=False)
        assert done.returncode in (0, 1, 3), done.stderr
        assert s.check(**given).json() == done.stdout, given
