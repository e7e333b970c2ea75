#!/usr/bin/env python3
"""What `tessera trim` cuts out says of every moment what the whole says. Prints TAP.

usage: trim.py --tessera PATH --work FOLDER

Windows are cut out of the snapshots that tests/cli/fixtures.py makes, and out of the real ones
in ../shared next to the checkout; where those are absent, they are skipped."""
import argparse
import functools
import json
import pathlib
import subprocess
import sys

from support import SNAPSHOTS, expect, fixtures, load, run_tests, skip

# Their traces cannot be replayed to their segments; what is left out of one can contradict less.
CONTRADICTORY = ('hand-edited-trace', 'synthetic-mosaic-sample')
TOTALS = ('requested_bytes', 'allocated_bytes', 'active_bytes', 'reserved_bytes',
          'live_allocations', 'time_us', 'fragmentation')
ACTIVE = ('active_allocated', 'active_pending_free')


class Tessera:
    def __init__(self, binary, work):
        self.binary, self.work, self.count = binary, work, 0
        # Of the whole file, which several windows ask the same.
        self.at_whole = functools.cache(self.at)
        self.codes = functools.cache(lambda path: {
            warning['code'] for warning in self.ask('info', path)['warnings']})

    def run(self, *arguments):
        return subprocess.run([self.binary, *map(str, arguments)], capture_output=True, check=False)

    def ask(self, command, path, *options):
        done = self.run(command, '--json', '--top', '0', *options, path)
        if done.returncode:
            raise AssertionError(f'{command}: exit {done.returncode}: {done.stderr.decode()}')
        return json.loads(done.stdout)

    def trim(self, path, *options):
        """The window as its own file."""
        self.count += 1
        out = self.work / f'trimmed-{self.count}.pickle'
        done = self.run('trim', '-q', '-o', out, *options, path)
        expect('exit status', (done.returncode, done.stderr), (0, b''))
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
    """What each stack holds; equal ones are in the order of the file. The category is left out: what was
    cut away may have decided it."""
    return sorted(((stack['bytes'], stack['allocations'], json.dumps(stack['frames']))
                   for stack in answer['stacks']), reverse=True)


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


def windows_of(count, is_small):
    """From first to last event: of the middle, and a single event; of small files more."""
    third = count // 3
    candidates = {(third, 2 * third), (third, third)}
    if is_small:
        candidates |= {(0, count - 1), (0, third), (2 * third, count - 1)}
    return sorted(window for window in candidates if window[0] <= window[1] < count)


def check_window(tessera, whole, device, window):
    part = tessera.trim(whole, '--device', device, '--events', f'{window[0]}..{window[1]}')
    check_file(part)
    check_replay(tessera, part, whole)
    check_moments(tessera, whole, part, device, window)
    part.unlink()


# ---- options ----

def check_devices(tessera, whole):
    """All devices unless one is named; a window of events is each device's own."""
    part = tessera.trim(whole, '--events', '1..3')
    expect('events', tessera.counts(part), {device: 3 for device in tessera.counts(whole)})
    part = tessera.trim(whole, '--device', '1')
    expect('events', tessera.counts(part), {1: tessera.counts(whole)[1]})
    snapshot = check_file(part)
    expect('devices of segments', {segment['device'] for segment in snapshot['segments']}, {1})
    expect('other traces', [len(trace) > 0 for trace in snapshot['device_traces'][:2]],
           [False, True])


def check_time(tessera, whole):
    """From the first event that is not before a time to the last that is not after another."""
    times = [event['time_us'] for event in load(whole)['device_traces'][0]]
    first, last = len(times) // 4, len(times) // 2
    for low, high in ((times[first], times[last]), (times[first] - 1, times[last] + 1)):
        part = tessera.trim(whole, '--time', f'{low}..{high}')
        got = [event['time_us'] for event in load(part)['device_traces'][0]]
        expect('times', got, times[first:last + 1])
    check_moments(tessera, whole, part, 0, (first, last))
    part = tessera.trim(whole, '--time', f'..{times[last]}')
    expect('events', tessera.counts(part), {0: last + 1})
    part = tessera.trim(whole, '--time', f'{times[first]}..')
    expect('events', tessera.counts(part), {0: len(times) - first})


def check_empty_window(tessera, whole):
    out = tessera.work / 'nothing.pickle'
    for window in (('--events', '1000000..1000001'), ('--time', '5..6')):
        done = tessera.run('trim', '-o', out, *window, whole)
        expect('exit status', done.returncode, 2)
        expect('message', done.stderr.decode().count('the window contains no event'), 1)
        expect('a file is left', out.exists(), False)


def check_trim_of_trim(tessera, whole):
    """A part of a part is that part of the whole."""
    count = tessera.counts(whole)[0]
    first, last = count // 4, count - 3
    part = tessera.trim(whole, '--device', '0', '--events', f'{first}..{last}')
    again = tessera.trim(part, '--events', f'5..{last - first - 4}')
    check_replay(tessera, again, whole)
    check_moments(tessera, whole, again, 0, (first + 5, last - 4))


# ---- running ----

def option_tests(tessera, folder):
    train, two = folder / 'train.pickle', folder / 'two-devices.pickle'
    yield 'devices', lambda: check_devices(tessera, two)
    yield 'time', lambda: check_time(tessera, train)
    yield 'a window without events', lambda: check_empty_window(tessera, train)
    yield 'a part of a part', lambda: check_trim_of_trim(tessera, train)


def window_tests(tessera, path):
    for device, count in tessera.counts(path).items():
        for window in windows_of(count, count < 100):
            yield (f'{path.name} device {device} events {window[0]}..{window[1]}',
                   lambda d=device, w=window: check_window(tessera, path, d, w))


def tests(tessera, folder):
    """(name, function) of every test."""
    yield from option_tests(tessera, folder)
    for name in ('train', 'two-devices', 'oom'):
        yield from window_tests(tessera, folder / f'{name}.pickle')
    if not SNAPSHOTS.is_dir():
        yield 'real snapshots', skip('../shared is absent')
    for path in sorted(SNAPSHOTS.glob('*.pickle')):
        if path.stem not in CONTRADICTORY:
            yield from window_tests(tessera, path)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('--tessera', required=True)
    parser.add_argument('--work', required=True, type=pathlib.Path)
    options = parser.parse_args()
    folder = options.work / 'fixtures'
    fixtures.write_all(folder)
    return run_tests(tests(Tessera(options.tessera, options.work), folder))


if __name__ == '__main__':
    sys.exit(main())
