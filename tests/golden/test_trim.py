"""What `tessera trim` cuts out says of every moment what the whole says.

Windows are cut out of the snapshots that tests/cli/fixtures.py makes, and out of real ones."""
import collections
import functools
import json

import pytest
from support import SNAPSHOTS, Tessera, absent, cases, expect, load

# Their traces cannot be replayed to their segments; what is left out of one can contradict less.
CONTRADICTORY = ('hand-edited-trace', 'synthetic-mosaic-sample')
TOTALS = ('requested_bytes', 'allocated_bytes', 'active_bytes', 'reserved_bytes',
          'live_allocations', 'time_us', 'fragmentation')
ACTIVE = ('active_allocated', 'active_pending_free')


class Trimmer(Tessera):
    def __init__(self, tessera, work):
        super().__init__(tessera)
        self.work, self.count = work, 0
        # Of the whole file, which several windows ask the same.
        self.at_whole = functools.cache(self.at)
        self.codes = functools.cache(lambda path: {warning['code'] for warning in self.ask('info', path)['warnings']})

    def ask(self, command, path, *options):
        return self.json(command, '--top', 0, *options, path)

    def trim(self, path, *options):
        """The window as its own file."""
        self.count += 1
        out = self.work / f'trimmed-{self.count}.pickle'
        expect('errors', self.run('trim', '-q', '-o', out, *options, path).stderr, '')
        return out

    def at(self, path, device, event):
        for entry in self.ask('at', path, '--device', device, '--event', event)['devices']:
            if entry['device'] == device:
                return entry
        raise AssertionError(f'no device {device}')

    def counts(self, path):
        """Events by device, of those that have any."""
        return {entry['device']: entry['events'] for entry in self.ask('info', path)['devices']
                if entry['events']}


@pytest.fixture(scope='module')
def trimmer(tessera, work):
    return Trimmer(tessera, work)


# ---- what is true of a trimmed file ----

def check_file(path):
    """CPython reads it; blocks tile their segments and add up to what these say."""
    snapshot = load(path)
    for segment in snapshot['segments']:
        at = segment['address']
        for block in segment['blocks']:
            expect('address of a block', block['address'], at)
            at += block['size']
        expect('end of the blocks', at, segment['address'] + segment['total_size'])
        live = [block for block in segment['blocks'] if block['state'] in ACTIVE]
        expect('active size', segment['active_size'], sum(block['size'] for block in live))
        expect('allocated size', segment['allocated_size'],
               sum(block['size'] for block in live if block['state'] == ACTIVE[0]))
        expect('requested size', segment['requested_size'],
               sum(block['requested_size'] for block in live))
    return snapshot


def check_replay(tessera, path, whole):
    """No warning that the whole did not have, and every block where it should be."""
    answer = tessera.ask('info', path)
    known = tessera.codes(whole)
    expect('new warnings', [w for w in answer['warnings'] if w['code'] not in known], [])
    for device in answer['devices']:
        replay = device['replay']
        for kind in ('reused', 'final'):
            all_of = 'final_blocks' if kind == 'final' else kind
            expect(f'{kind} as the model has it', replay[f'{kind}_matched'], replay[all_of])
        expect('new segments', replay['segments_matched'], replay['segments_new'])


def stacks_of(answer):
    """What each stack holds. The category is left out, and which memory without a stack is older than the recording: what was
    cut away may have decided both."""
    sums = collections.defaultdict(lambda: [0, 0])
    for stack in answer['stacks']:
        frames = json.dumps(stack['frames'])
        sums[frames][0] += stack['bytes']
        sums[frames][1] += stack['allocations']
    return sorted((size, count, frames) for frames, (size, count) in sums.items())


def check_moments(tessera, whole, part, device, window):
    """The same at events of the window, each counted in its own file."""
    first, last = window
    length = last - first + 1
    inside = {-1, 0, length // 2, length - 1}
    for event in sorted(event for event in inside if -1 <= event < length):
        want = tessera.at_whole(whole, device, first + event)
        got = tessera.at(part, device, event)
        for key in TOTALS:
            if event >= 0 or key != 'time_us':
                expect(f'{key} after event {first + event}', got[key], want[key])
        expect(f'stacks after event {first + event}', stacks_of(got), stacks_of(want))


WINDOWS = {'the middle': lambda count: (count // 3, 2 * (count // 3)), 'an event': lambda count: (count // 3,) * 2,
           'all': lambda count: (0, count - 1), 'the first third': lambda count: (0, count // 3),
           'the last third': lambda count: (2 * (count // 3), count - 1)}
MADE = [('train', 0), ('two-devices', 0), ('two-devices', 1), ('oom', 0)]


def windows():
    """(file, device, window): all windows of small files, two of large ones."""
    yield from ((name, device, window) for name, device in MADE for window in WINDOWS)
    if not SNAPSHOTS.is_dir():
        yield absent(None, None, None)
    for path in sorted(SNAPSHOTS.glob('*.pickle')):
        if path.stem not in CONTRADICTORY:
            for device, trace in enumerate(load(path)['device_traces']):
                yield from ((path, device, window) for window in list(WINDOWS)[:5 if len(trace) < 100 else 2] if trace)


@cases('path, device, window', list(windows()), lambda value: getattr(value, 'name', str(value)))
def test_window(trimmer, made, path, device, window):
    whole = made / f'{path}.pickle' if isinstance(path, str) else path
    first, last = WINDOWS[window](trimmer.counts(whole)[device])
    part = trimmer.trim(whole, '--device', device, '--events', f'{first}..{last}')
    check_file(part)
    check_replay(trimmer, part, whole)
    check_moments(trimmer, whole, part, device, (first, last))
    part.unlink()


# ---- options ----

def test_devices(trimmer, made):
    """All devices unless one is named; a window of events is each device's own."""
    whole = made / 'two-devices.pickle'
    part = trimmer.trim(whole, '--events', '1..3')
    expect('events', trimmer.counts(part), {device: 3 for device in trimmer.counts(whole)})
    part = trimmer.trim(whole, '--device', '1')
    expect('events', trimmer.counts(part), {1: trimmer.counts(whole)[1]})
    snapshot = check_file(part)
    expect('devices of segments', {segment['device'] for segment in snapshot['segments']}, {1})
    expect('other traces', [len(trace) > 0 for trace in snapshot['device_traces'][:2]],
           [False, True])


def test_time(trimmer, made):
    """From the first event that is not before a time to the last that is not after another."""
    whole = made / 'train.pickle'
    times = [event['time_us'] for event in load(whole)['device_traces'][0]]
    first, last = len(times) // 4, len(times) // 2
    for low, high in ((times[first], times[last]), (times[first] - 1, times[last] + 1)):
        part = trimmer.trim(whole, '--time', f'{low}..{high}')
        got = [event['time_us'] for event in load(part)['device_traces'][0]]
        expect('times', got, times[first:last + 1])
    check_moments(trimmer, whole, part, 0, (first, last))
    part = trimmer.trim(whole, '--time', f'..{times[last]}')
    expect('events', trimmer.counts(part), {0: last + 1})
    part = trimmer.trim(whole, '--time', f'{times[first]}..')
    expect('events', trimmer.counts(part), {0: len(times) - first})


def test_empty_window(trimmer, made):
    whole = made / 'train.pickle'
    out = trimmer.work / 'nothing.pickle'
    for window in (('--events', '1000000..1000001'), ('--time', '5..6')):
        done = trimmer.run('trim', '-o', out, *window, whole, status=2)
        expect('message', done.stderr.count('the window contains no event'), 1)
        expect('a file is left', out.exists(), False)


def test_trim_of_trim(trimmer, made):
    """A part of a part is that part of the whole."""
    whole = made / 'train.pickle'
    count = trimmer.counts(whole)[0]
    first, last = count // 4, count - 3
    part = trimmer.trim(whole, '--device', '0', '--events', f'{first}..{last}')
    again = trimmer.trim(part, '--events', f'5..{last - first - 4}')
    check_replay(trimmer, again, whole)
    check_moments(trimmer, whole, again, 0, (first + 5, last - 4))
