#!/usr/bin/env python3
"""What tessera says of real snapshots, against an independent replay and against Mosaic. Prints TAP.

usage: real.py --tessera PATH

The snapshots and the expected answers lie in ../shared beside the checkout; where they are absent,
every test is skipped and says so."""
import argparse
import json
import pathlib
import re
import subprocess
import sys

SHARED = pathlib.Path(__file__).resolve().parents[3] / 'shared'


def run(tessera, command, path):
    """The parsed JSON of one command, or its error as text."""
    done = subprocess.run([tessera, command, '--json', '--top', '0', path], capture_output=True)
    if done.returncode != 0:
        raise AssertionError(f'{command}: exit {done.returncode}: {done.stderr.decode()}')
    return json.loads(done.stdout)


def device_of(answer, device):
    for entry in answer['devices']:
        if entry['device'] == device:
            return entry
    raise AssertionError(f'no device {device}')


def expect(what, got, want):
    if got != want:
        raise AssertionError(f'{what}: got {got}, want {want}')


def check_info(tessera, path, want):
    got = device_of(run(tessera, 'info', path), want['device'])
    for key in ('events', 'segments', 'blocks', 'actions'):
        expect(key, got[key], want[key])
    expect('stacks', got['stacks'], want['distinct_stacks'])


def check_peak(tessera, path, want):
    got = device_of(run(tessera, 'peak', path), want['device'])
    recorded = got['recorded']
    expect('dynamic peak', recorded['dynamic_peak_bytes'], want['dynamic_peak'])
    expect('static', recorded['static_bytes'], want['static'])
    expect('overall', recorded['overall_bytes'], want['dynamic_peak'] + want['static'])


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
    devices = run(tessera, 'profile', path)['devices']
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
        out = SHARED / 'expected' / 'mosaic' / name.rsplit('.', 1)[0] / 'profile-categories.out'
        if out.exists():
            yield f'categories {label}', lambda path=path, out=out: check_categories(
                tessera, path, out)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('--tessera', required=True)
    arguments = parser.parse_args()
    if not SHARED.is_dir():
        print('1..0 # SKIP no real snapshots: ../shared is absent')
        return
    number = 0
    for number, (name, test) in enumerate(tests(arguments.tessera), 1):
        try:
            test()
            print(f'ok {number} - {name}')
        except Exception as error:  # a test that cannot run is a test that fails
            print(f'not ok {number} - {name}\n# {error}')
        sys.stdout.flush()
    print(f'1..{number}')


if __name__ == '__main__':
    main()
