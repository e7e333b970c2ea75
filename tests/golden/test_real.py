"""Answers about real snapshots, against an independent replay and against Mosaic."""
import json
import re

import pytest
from support import SHARED, SNAPSHOTS, absent, cases, expect

# Files that contradict themselves: their traces cannot be replayed to their segments.
CONTRADICTORY = ('hand-edited-trace.pickle', 'synthetic-mosaic-sample.pickle')
# What mosaic_get_memory_usage says of train-ctx1024-torch2.11.pickle: an allocation, an action of
# it, and the GiB that the trace has taken by then, counted from zero.
USAGE_FILE = 'train-ctx1024-torch2.11.pickle'
MOSAIC = SHARED / 'expected' / 'mosaic'
USAGE = re.compile(r"at '(\w+): (\w+)' - ([\d.]+) GiB")


def rows():
    """What is known of each device of each file."""
    known = SHARED / 'expected' / 'timeline.jsonl'
    return [json.loads(line) for line in known.read_text().splitlines()] if known.exists() else [absent(None)]


def title(want):
    return f'{want["file"]} device {want["device"]}'


@pytest.fixture
def ask(tessera):
    """Asks about a file of ../shared/snapshots."""
    return lambda command, name, *words: tessera.json(command, '--top', 0, SNAPSHOTS / name, *words)


ROWS = rows()
each_row = cases('want', ROWS, title)


def device_of(answer, device):
    for entry in answer['devices']:
        if entry['device'] == device:
            return entry
    raise AssertionError(f'no device {device}')


def expect_totals(what, got, want):
    for kind, value in want.items():
        expect(f'{what} {kind}', got[f'{kind}_bytes'], value)


def check_replay(answer, device, want):
    """Everything where the rules of the allocator put it, or else a warning that says so."""
    replay = device['replay']
    if want['file'] in CONTRADICTORY:
        if not answer['warnings']:
            raise AssertionError('nothing warns of the contradictions')
        return
    expect('warnings', answer['warnings'], [])
    expect('reused', replay['reused_matched'], replay['reused'])
    expect('new segments', replay['segments_matched'], replay['segments_new'])
    expect('final blocks', replay['final_blocks'], want['final_blocks'])
    expect('final blocks matched', replay['final_matched'], want['final_blocks_same'])


@each_row
def test_info(ask, want):
    answer = ask('info', want['file'])
    got = device_of(answer, want['device'])
    expect_totals('end', got['end'], want['end'])
    check_replay(answer, got, want)
    for key in ('events', 'segments', 'blocks', 'actions'):
        expect(key, got[key], want[key])
    expect('stacks', got['stacks'], want['distinct_stacks'])


@each_row
def test_peak(ask, want):
    got = device_of(ask('peak', want['file']), want['device'])
    recorded = got['recorded']
    expect('dynamic peak', recorded['dynamic_peak_bytes'], want['dynamic_peak'])
    expect('static', recorded['static_bytes'], want['static'])
    expect('overall', recorded['overall_bytes'], want['dynamic_peak'] + want['static'])
    for key, theirs in (('start', 'start'), ('end', 'end'), ('maxima', 'peak')):
        expect_totals(key, got[key], want[theirs])
    expect('peak event', got['peak']['event'], want['peak_event']['allocated'])


@each_row
def test_maxima_events(ask, want):
    """After the event where each total is largest for the first time, and not before."""
    for kind, event in want['peak_event'].items():
        at = device_of(ask('at', want['file'], '--event', event), want['device'])
        expect(f'{kind} at its maximum', at[f'{kind}_bytes'], want['peak'][kind])
        if event < 0:
            continue
        at = device_of(ask('at', want['file'], '--event', event - 1), want['device'])
        if at[f'{kind}_bytes'] >= want['peak'][kind]:
            raise AssertionError(f'{kind} is as large before event {event}')


@cases('want', [want for want in ROWS if not isinstance(want, dict) or want['file'] not in CONTRADICTORY], title)
def test_whatif(ask, want):
    """The model, asked again under the recorded settings, ends with the recorded segments."""
    got = device_of(ask('whatif', want['file'], '--set', 'max_split_size_mb:512'), want['device'])
    expect('segments recorded', got['segments_recorded'], want['segments'])
    expect('segments reproduced', got['segments_reproduced'], want['segments'])
    recorded = [entry for entry in got['runs'] if entry['recorded']]
    expect('peak', recorded[0]['peak_reserved_bytes'], want['peak']['reserved'])


@cases('said', sorted((MOSAIC / '_at').glob('usage-*.err')) or [absent(None)])
def test_usage(ask, said):
    """The state at an allocation, less what was there before the trace, is Mosaic's."""
    action, allocation, size = USAGE.search(said.read_text()).groups()
    at = ask('at', USAGE_FILE, '--alloc', allocation, '--action', action)['devices'][0]
    start = ask('at', USAGE_FILE, '--event', -1)['devices'][0]
    live = sum(stack['bytes'] for stack in at['stacks'])
    expect('requested', live, at['requested_bytes'])
    own = [stack['bytes'] for stack in at['stacks'] if stack['frames']]
    taken = sum(own)
    expect('GiB taken', taken / 2**30, float(size))
    if start['requested_bytes'] < live - taken:
        raise AssertionError('more is left of before than there was')


def mosaic_size(size):
    """A size as Mosaic prints it: powers of 1024, two decimals as Python rounds them."""
    for unit, factor in (('GiB', 1 << 30), ('MB', 1 << 20), ('KB', 1 << 10)):
        if size >= factor:
            return f'{round(size / factor, 2)}{unit}'
    return f'{size}B'


def categories_of(want):
    return MOSAIC / want['file'].rsplit('.', 1)[0] / 'profile-categories.out'


@cases('want', [want for want in ROWS if not isinstance(want, dict) or categories_of(want).exists()], title)
def test_categories(ask, want):
    text = categories_of(want).read_text()
    theirs = {name.lower(): size.replace('0.0B', '0B')
              for name, size in re.findall(r'AllocationType\.(\w+): (.*)', text)}
    devices = ask('profile', want['file'], '--categories', 'mosaic')['devices']
    got = {group['name']: mosaic_size(group['bytes']) for group in devices[0]['groups']}
    expect('categories', got, theirs)
