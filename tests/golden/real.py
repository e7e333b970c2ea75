#!/usr/bin/env python3
"""What tessera says of real snapshots, against an independent replay and against Mosaic. Prints TAP.

usage: real.py --tessera PATH

The snapshots and the expected answers are in ../shared next to the checkout; where they are
absent, every test is skipped and says so."""
import argparse
import json
import re
import subprocess
import sys

from support import SHARED, expect, run_tests

# Files that contradict themselves: their traces cannot be replayed to their segments.
CONTRADICTORY = ('hand-edited-trace.pickle', 'synthetic-mosaic-sample.pickle')
# What mosaic_get_memory_usage says of train-ctx1024-torch2.11.pickle: an allocation, an action of
# it, and the GiB that the trace has taken by then, counted from zero.
USAGE_FILE = 'train-ctx1024-torch2.11.pickle'
USAGE = re.compile(r"at '(\w+): (\w+)' - ([\d.]+) GiB")


def run(tessera, command, path, *options):
    """The parsed JSON of one command, or its error as text."""
    done = subprocess.run([tessera, command, '--json', '--top', '0', *options, path],
                          capture_output=True, check=False)
    if done.returncode != 0:
        raise AssertionError(f'{command}: exit {done.returncode}: {done.stderr.decode()}')
    return json.loads(done.stdout)


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


def check_info(tessera, path, want):
    answer = run(tessera, 'info', path)
    got = device_of(answer, want['device'])
    expect_totals('end', got['end'], want['end'])
    check_replay(answer, got, want)
    for key in ('events', 'segments', 'blocks', 'actions'):
        expect(key, got[key], want[key])
    expect('stacks', got['stacks'], want['distinct_stacks'])


def check_peak(tessera, path, want):
    got = device_of(run(tessera, 'peak', path), want['device'])
    recorded = got['recorded']
    expect('dynamic peak', recorded['dynamic_peak_bytes'], want['dynamic_peak'])
    expect('static', recorded['static_bytes'], want['static'])
    expect('overall', recorded['overall_bytes'], want['dynamic_peak'] + want['static'])
    for key, theirs in (('start', 'start'), ('end', 'end'), ('maxima', 'peak')):
        expect_totals(key, got[key], want[theirs])
    expect('peak event', got['peak']['event'], want['peak_event']['allocated'])


def check_maxima_events(tessera, path, want):
    """After the event where each total is largest for the first time, and not before."""
    for kind, event in want['peak_event'].items():
        at = device_of(run(tessera, 'at', path, '--event', str(event)), want['device'])
        expect(f'{kind} at its maximum', at[f'{kind}_bytes'], want['peak'][kind])
        if event < 0:
            continue
        at = device_of(run(tessera, 'at', path, '--event', str(event - 1)), want['device'])
        if at[f'{kind}_bytes'] >= want['peak'][kind]:
            raise AssertionError(f'{kind} is as large before event {event}')


def check_whatif(tessera, path, want):
    """The model, asked again under the recorded settings, ends with the recorded segments."""
    got = device_of(run(tessera, 'whatif', path, '--set', 'max_split_size_mb:512'), want['device'])
    expect('segments recorded', got['segments_recorded'], want['segments'])
    expect('segments reproduced', got['segments_reproduced'], want['segments'])
    recorded = [entry for entry in got['runs'] if entry['recorded']]
    expect('peak', recorded[0]['peak_reserved_bytes'], want['peak']['reserved'])


def check_usage(tessera, path, usage):
    """The state at an allocation, less what was there before the trace, is Mosaic's."""
    action, allocation, size = usage
    at = run(tessera, 'at', path, '--alloc', allocation, '--action', action)['devices'][0]
    start = run(tessera, 'at', path, '--event', '-1')['devices'][0]
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


def check_categories(tessera, path, out):
    text = out.read_text()
    want = {name.lower(): size.replace('0.0B', '0B')
            for name, size in re.findall(r'AllocationType\.(\w+): (.*)', text)}
    devices = run(tessera, 'profile', path, '--categories', 'mosaic')['devices']
    got = {group['name']: mosaic_size(group['bytes']) for group in devices[0]['groups']}
    expect('categories', got, want)


def tests(tessera):
    """(name, function) of every test."""
    for line in (SHARED / 'expected' / 'timeline.jsonl').read_text().splitlines():
        want = json.loads(line)
        name, path = want['file'], str(SHARED / 'snapshots' / want['file'])
        label = f'{name} device {want["device"]}'
        yield f'info {label}', lambda path=path, want=want: check_info(tessera, path, want)
        yield f'peak {label}', lambda path=path, want=want: check_peak(tessera, path, want)
        yield f'maxima {label}', lambda path=path, want=want: check_maxima_events(
            tessera, path, want)
        if name not in CONTRADICTORY:
            yield f'whatif {label}', lambda path=path, want=want: check_whatif(tessera, path, want)
        out = SHARED / 'expected' / 'mosaic' / name.rsplit('.', 1)[0] / 'profile-categories.out'
        if out.exists():
            yield f'categories {label}', lambda path=path, out=out: check_categories(
                tessera, path, out)
    for said in sorted((SHARED / 'expected' / 'mosaic' / '_at').glob('usage-*.err')):
        usage = USAGE.search(said.read_text()).groups()
        path = str(SHARED / 'snapshots' / USAGE_FILE)
        yield said.stem, lambda path=path, usage=usage: check_usage(
            tessera, path, usage)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('--tessera', required=True)
    arguments = parser.parse_args()
    if not SHARED.is_dir():
        print('1..0 # SKIP no real snapshots: ../shared is absent')
        return 0
    return run_tests(tests(arguments.tessera))


if __name__ == '__main__':
    sys.exit(main())
