#!/usr/bin/env python3
"""Profiles of real snapshots: what mosaic_get_memory_profile prints, byte for byte, and histories
that add up. Prints TAP.

usage: profile.py --tessera PATH

The snapshots and the expected answers are in ../shared next to the checkout; where they are
absent, every test is skipped and says so."""
import argparse
import json
import pathlib
import re
import subprocess
import sys

from support import SHARED, SNAPSHOTS, expect, run_tests

RULES = ('{"attention": "attention|softmax", "ffn": "swiglu|mlp|ffn|silu", '
         '"optim": "optim|adam", "rest": ".*"}')
# The name of an expected output, and what the command was told.
PRINTED = {
    'profile-categories': ['--profile', 'categories'],
    'profile-categories-ordered': ['--profile', 'categories', '--preserve-allocation-order'],
    'profile-annotations': ['--profile', 'annotations'],
    'profile-compile-context': ['--profile', 'compile_context'],
    'profile-custom': ['--profile', 'custom', '--custom-profile', RULES],
}
# How tessera's own command is asked for the same groups.
GROUPINGS = {
    'profile-categories': ['--by', 'category'],
    'profile-annotations': ['--by', 'annotation'],
    'profile-compile-context': ['--by', 'compile-context'],
    'profile-custom': ['--rules', RULES],
}


def run(*command):
    done = subprocess.run(command, cwd=SNAPSHOTS, capture_output=True, check=False)
    expect(f'exit of {command}: {done.stderr.decode()}', done.returncode, 0)
    return done


def check_printed(tessera, name, out, options):
    """Standard output is Mosaic's; so are the INFO lines, the last of which gives the time taken."""
    done = run(tessera, 'mosaic_get_memory_profile', '--snapshot', name, '--out-path', '/dev/null',
               *options)
    expect('output', done.stdout.decode(), out.read_text())
    info = [line for line in done.stderr.decode().splitlines() if line.startswith('INFO:')]
    if not re.fullmatch(r'INFO:root:Profiling function took: \S+ seconds to run', info.pop()):
        raise AssertionError(f'no time in {done.stderr.decode()}')
    expect('log', info, out.with_suffix('.err').read_text().splitlines())


def check_moments(device):
    """The groups of each moment, and the bands, add up to it; bands are within their lives."""
    history = device['history']
    for moment in history['moments']:
        total, event = moment['requested_bytes'], moment['event']
        expect(f'groups at {event}', sum(size for _, size in moment['groups']), total)
        expect(f'bands at {event}', sum(size for _, size in moment['bands']), total)
        if total > device['peak']['requested_bytes']:
            raise AssertionError(f'more at event {event} than at the peak')
        for index, size in moment['bands']:
            band = history['bands'][index]
            end = band['death_event']
            if index >= 0 and not (band['birth_event'] <= event and (end is None or event < end)
                                   and size <= band['peak_bytes']):
                raise AssertionError(f'at event {event} there is no band {band} of {size}')


def check_history(tessera, name, options):
    answer = json.loads(run(tessera, 'profile', '--json', '--ordered', '--over-time', '--samples',
                            '100', '--top', '0', *options, name).stdout)
    for device in answer['devices']:
        moments, peak = device['history']['moments'], device['peak']
        if len(moments) > 100:
            raise AssertionError(f'{len(moments)} moments')
        check_moments(device)
        expect('groups', sum(group['bytes'] for group in device['groups']),
               peak['requested_bytes'])
        expect('layers', sum(layer['bytes'] for layer in device['layers']),
               peak['requested_bytes'])
        if peak['event'] >= 0:
            expect('moments at the peak',
                   [moment['requested_bytes'] for moment in moments
                    if moment['event'] == peak['event']], [peak['requested_bytes']])


def check_page(tessera, name, options):
    """The page of `tessera view`: whole, of bounded size, opened as requested."""
    done = run(tessera, 'profile', '--ordered', '--html', '/dev/stdout', '-o', '/dev/null', *options,
               name)
    page = done.stdout.decode()
    if not page.startswith('<!doctype html>') or len(page) > 20000000:
        raise AssertionError(f'{len(page)} bytes: {page[:40]}')
    by = options[1].replace('-', '_') if options[:1] == ['--by'] else 'category'
    for text in ('"isOrdered":1', f'"by":"{by}"', "connect-src 'none'"):
        if text not in page:
            raise AssertionError(f'{text} is not in the page')


def tests(tessera):
    """(name, function) of every test."""
    for out in sorted((SHARED / 'expected' / 'mosaic').glob('*/profile-*.out')):
        name, kind = f'{out.parent.name}.pickle', out.stem
        yield (f'{kind} {name}', lambda name=name, out=out, kind=kind: check_printed(
            tessera, name, out, PRINTED[kind]))
    for path in sorted(SNAPSHOTS.glob('*.*')):
        if path.suffix not in ('.pickle', '.html'):
            continue
        for kind, options in GROUPINGS.items():
            yield (f'history {kind} {path.name}', lambda path=path, options=options: check_history(
                tessera, path.name, options))
        yield f'page {path.name}', lambda path=path: check_page(tessera, path.name, [])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('--tessera', required=True)
    tessera = str(pathlib.Path(parser.parse_args().tessera).resolve())
    if not SHARED.is_dir():
        print('1..0 # SKIP no real snapshots: ../shared is absent')
        return 0
    return run_tests(tests(tessera))


if __name__ == '__main__':
    sys.exit(main())
