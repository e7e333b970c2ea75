#!/usr/bin/env python3
"""replays.py --tessera PATH --work FOLDER: no command replays a trace twice, as TAP.

PATH is count_replays, which is tessera with a count of its replays on standard error. Every command
that reads a snapshot of one device replays its trace once; a session of several questions, too."""
import json
import re
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / 'mcp'))
import support  # noqa: E402
from support import expect  # noqa: E402

FILE = 'one-device.json'


def event(action, address, time_us):
    frame = {'name': 'train', 'filename': 'train.py', 'line': 7}
    return {'action': action, 'addr': address, 'size': 1 << 20, 'stream': 0, 'time_us': time_us,
            'frames': [frame]}


def write_snapshot(path):
    """One device, one segment, three allocations, one of them freed."""
    block = {'size': 1 << 20, 'requested_size': 1 << 20, 'state': 'active_allocated', 'frames': []}
    trace = [event('alloc', 4096 + (i << 20), i) for i in range(3)]
    trace += [event('free_requested', 4096, 3), event('free_completed', 4096, 4)]
    blocks = [{**block, 'state': 'inactive', 'requested_size': 0}, block, block]
    segment = {'device': 0, 'address': 4096, 'total_size': 3 << 20, 'stream': 0,
               'segment_type': 'large', 'blocks': blocks}
    path.write_text(json.dumps({'segments': [segment], 'device_traces': [trace]}))


def replays(options, *words, given=''):
    done = subprocess.run([str(options.tessera), *map(str, words)], cwd=options.work, input=given,
                          capture_output=True, text=True, check=False)
    if done.returncode not in (0, 1):
        raise AssertionError(f'{words}: exit {done.returncode}: {done.stderr}')
    if '"isError":true' in done.stdout or '"error":' in done.stdout:
        raise AssertionError(f'{words}: {done.stdout}')
    found = re.search(r'^replays: (\d+)$', done.stderr, re.M)
    return int(found.group(1)) if found else 0


def check_each_command_replays_once(options):
    for command in ('info', 'peak', 'why', 'pools', 'whatif', 'steps', 'leaks', 'profile', 'stages'):
        expect(command, replays(options, command, FILE), 1)
    expect('at', replays(options, 'at', FILE, '--event', 2), 1)
    expect('check', replays(options, 'check', FILE, '--max', '1GiB', '--max', 'activation=1GiB'), 1)
    expect('view', replays(options, 'view', FILE, '-o', 'page.html'), 1)
    expect('trim', replays(options, 'trim', FILE, '--events', '0..2', '-o', 'part.pickle'), 1)
    for form in ('folded', 'speedscope', 'pprof', 'csv', 'perfetto'):
        expect(form, replays(options, 'export', FILE, '--format', form, '-o', 'out'), 1)


def check_a_page_beside_an_answer_costs_no_replay(options):
    for by in ('category', 'op', 'annotation'):
        expect(by, replays(options, 'profile', FILE, '--by', by, '--html', 'page.html'), 1)


def check_two_files_are_replayed_once_each(options):
    for by in ('stack', 'category', 'line'):
        expect(by, replays(options, 'diff', '--by', by, FILE, FILE), 2)
    expect('view', replays(options, 'view', FILE, FILE, '-o', 'page.html'), 2)


def check_a_session_replays_once(options):
    tools = ('info', 'peak', 'why', 'profile', 'steps', 'leaks', 'stages')
    calls = [support.request('tools/call', {'name': f'tessera_{tool}', 'arguments': {'path': FILE}})
             for tool in tools]
    lines = ''.join(json.dumps(message) + '\n' for message in [support.initialize(), *calls])
    expect('session', replays(options, 'mcp', given=lines), 1)


def main():
    options = support.arguments(__doc__)
    options.work.mkdir(parents=True, exist_ok=True)
    write_snapshot(options.work / FILE)
    checks = (check_each_command_replays_once, check_a_page_beside_an_answer_costs_no_replay,
              check_two_files_are_replayed_once_each, check_a_session_replays_once)
    return support.tap.run(support.tap.named(checks, options))


if __name__ == '__main__':
    sys.exit(main())
