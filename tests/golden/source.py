#!/usr/bin/env python3
"""source.py --tessera PATH: stages and source files on real snapshots, as TAP.

What `stages` says at a boundary is what `at --time` says of it, and the peaks inside are those
that a look at every event finds. Mosaic's per-file analysis prints what Mosaic prints; rows that
tie may come in any order. The snapshots and Mosaic's output are in ../shared; where that is
absent the tests skip."""
import argparse
import json
import subprocess
from pathlib import Path

SHARED = Path(__file__).resolve().parent.parent.parent.parent / 'shared'
SNAPSHOTS = SHARED / 'snapshots'
PER_FILE = SHARED / 'expected' / 'mosaic' / '_per_file'
ANNOTATED = ['train-ctx200-autocast-annotated-torch2.6', 'train-ctx100-annotated-torch2.6',
             'forward-bf16-ctx128-annotated', 'train-ctx1024-torch2.11', 'train-fp32-ctx128']
SOURCE = ['--file-name', 'model.py', '--file-content', str(PER_FILE / 'model.py')]
TOTALS = ('requested_bytes', 'allocated_bytes', 'active_bytes', 'reserved_bytes')


def run(tessera, *arguments):
    return subprocess.run([tessera, *arguments], cwd=SNAPSHOTS, check=True, capture_output=True,
                          text=True)


def ask(tessera, *arguments):
    return json.loads(run(tessera, *arguments, '--json').stdout)['devices'][0]


def check_stages(tessera, name):
    """Yields what is wrong."""
    file = f'{name}.pickle'
    device = ask(tessera, 'stages', '--top', '0', file)
    if not device['stages']:
        yield 'no stages'
    for stage in device['stages']:
        for bound in (stage['start'], stage['end']):
            if bound['event'] < 0:
                continue
            moment = ask(tessera, 'at', '--top', '1', '--time', str(bound['time_us']), file)
            if any(bound[key] != moment[key] for key in ('event', *TOTALS)):
                yield f'{stage["name"]}: {bound} is not {moment["event"]}'
        moment = ask(tessera, 'at', '--top', '1', '--event', str(stage['peak']['event']), file)
        if any(stage['peak'][key] != moment[key] for key in ('time_us', *TOTALS)):
            yield f'{stage["name"]}: the peak is not what at says'
        low = max(stage[end]['allocated_bytes'] for end in ('start', 'end'))
        if not low <= stage['peak']['allocated_bytes'] <= device['peak']['allocated_bytes']:
            yield f'{stage["name"]}: its peak is below its ends or above the whole'
        held = stage['start']['event'] < device['peak']['event'] <= stage['end']['event']
        if held != (stage['id'] in [inside['id'] for inside in device['peak_stages']]):
            yield f'{stage["name"]}: does it hold the peak?'


def same_but_for_ties(actual, expected):
    """Yields what differs; a table's rows may be in another order."""
    actual, expected = actual.split('\n'), expected.split('\n')
    if sorted(actual) != sorted(expected):
        yield from sorted(set(expected) - set(actual))[:3]
        yield f'{len(actual)} lines, expected {len(expected)}'
    elif [line[:1] for line in actual] != [line[:1] for line in expected]:
        yield 'tables and titles are in another order'


def check_per_file(tessera, stem, *arguments):
    done = run(tessera, 'mosaic_per_file_memory_snapshot_analysis', *arguments, *SOURCE)
    yield from same_but_for_ties(done.stdout, (PER_FILE / f'{stem}.out').read_text())
    if done.stderr != (PER_FILE / f'{stem}.err').read_text():
        yield 'the log differs'


def check_source(tessera):
    """The source that stands in for model.py is not what ran, and its lines add up."""
    device = ask(tessera, 'source', '--top', '0', 'train-ctx1024-torch2.11.pickle',
                 str(PER_FILE / 'model.py'))
    if device['lines_elsewhere'] != device['mentioned_lines'] or device['lines_beyond']:
        yield 'it fits'
    if sum(line['self_bytes'] for line in device['lines']) != device['bytes']:
        yield 'the lines do not add up to the file'
    if max(line['inclusive_bytes'] for line in device['lines']) > device['bytes']:
        yield 'a line holds more than the file'
    if device['bytes'] > device['peak']['requested_bytes']:
        yield 'the file holds more than there was'


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--tessera', required=True, type=lambda path: str(Path(path).resolve()))
    tessera = parser.parse_args().tessera
    if not PER_FILE.is_dir():
        print('1..0 # SKIP ../shared is absent')
        return
    tests = [(f'stages of {name}', check_stages(tessera, name)) for name in ANNOTATED]
    tests.append(('per-file analysis', check_per_file(
        tessera, 'analyze-train-ctx1024', 'analyze', '--snapshot',
        'train-ctx1024-torch2.11.pickle')))
    tests.append(('per-file comparison', check_per_file(
        tessera, 'compare-ctx1024-to-infer512', 'compare', '--base-snapshot',
        'train-ctx1024-torch2.11.pickle', '--diff-snapshot', 'infer-ctx512-torch2.11.pickle')))
    tests.append(('a source of another version', check_source(tessera)))
    print(f'1..{len(tests)}')
    for number, (title, wrong) in enumerate(tests, 1):
        found = list(wrong)
        print(f'{"not " if found else ""}ok {number} - {title}')
        for line in found:
            print(f'# {line}')


if __name__ == '__main__':
    main()
