#!/usr/bin/env python3
"""terminal_view.py --tessera PATH --work FOLDER: `tessera view FILE` in a terminal, as TAP.

Keys are pressed in a pseudo-terminal, and the screen (screen.py) is read. Its numbers must be those of other commands, and those
that this program counts in the events of the snapshots, which it makes at random.
"""
import argparse
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import fixtures  # noqa: E402  (its bytecode would land in the source tree)
import tap  # noqa: E402
from screen import HANG_S, Job  # noqa: E402

SHARED = Path(__file__).resolve().parents[3] / 'shared/snapshots'
UNWANTED = ('NO_COLOR', 'COLUMNS', 'LINES', 'TERM', 'LC_ALL', 'LANG', 'LC_CTYPE')
SEEDS = range(6 if 'TESSERA_WHOLE' in os.environ else 3)
BRAILLE = re.compile('[\u2800-\u28ff]')


def size(value):
    """As reports print it: halves are rounded up."""
    power = 0
    while value >= 1024 << (10 * power) and power < 6:
        power += 1
    for unit in range(power, 7):
        digits = (0, 1)[unit] if unit < 2 else 2
        scaled = (2 * value * 10 ** digits + (1 << 10 * unit)) // (2 << 10 * unit)
        if scaled < 1024 * 10 ** digits or unit == 6:
            break
    text = f'{scaled // 10 ** digits}' + (f'.{scaled % 10 ** digits:0{digits}}' if digits else '')
    return f'{text} {("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")[unit]}'


def delta(old, new):
    return ('+' if new > old else '-' if new < old else '') + size(abs(new - old))


# ---- Snapshots, and what is true of them ----

FUNCTIONS = [(f'{name}_{number}', f'/work/{name}.py', 10 + number) for name in ('embed', 'attention', 'mlp', 'loss') for number in range(3)]


def random_run(seed):
    """Allocations and frees at random, some of them from before the recording; and some ranges."""
    source, run = random.Random(seed), fixtures.Run()
    device, live = run.devices[0], []
    for number in range(source.randrange(120, 400)):
        device.recording = number >= 20
        if number in (30, 60):
            run.note(f'part {seed}.{number}', 'START')
        if number in (50, 100):
            run.note(f'part {seed}.{50 if number == 50 else 60}', 'END')
        if live and source.random() < 0.45:
            device.free(live.pop(source.randrange(len(live))), run.stacks(source.choice(FUNCTIONS)))
        else:
            bytes_ = int(2 ** source.uniform(4, 24))
            live.append(device.alloc(bytes_, run.stacks(source.choice(FUNCTIONS))))
    return run.snapshot()


def place_of(stack):
    """The program's innermost line, as a key."""
    return tuple((frame['name'], frame['filename'], frame['line']) for frame in stack) or None


class Truth:
    """What is live after each event, from the events and the final segments alone."""

    def __init__(self, snapshot, device=0):
        self.trace = snapshot['device_traces'][device]
        blocks = {block['address']: (block['requested_size'], place_of(block['frames']))
                  for segment in snapshot['segments'] if segment['device'] == device
                  for block in segment['blocks'] if block['state'] == 'active_allocated'}
        self.after = []
        # Backwards: what a free ended was live before it, and what was allocated was not.
        known = {}
        for event in self.trace:
            if event['action'] == 'alloc':
                known[event['addr']] = place_of(event['frames'])
            if event['action'] == 'free_completed':
                event['was'] = known.pop(event['addr'], None)
        live = dict(blocks)
        for event in reversed(self.trace):
            self.after.append(dict(live))
            if event['action'] == 'alloc':
                del live[event['addr']]
            if event['action'] == 'free_completed':
                live[event['addr']] = (event['size'], event['was'])
        self.after.append(dict(live))
        self.after.reverse()  # by moment: 0 is before the first event

    def requested(self, moment):
        return sum(bytes_ for bytes_, _ in self.after[moment].values())

    def shares(self, moment):
        """(bytes, count) by stack, largest first; memory without a stack is one share."""
        sums, counts = Counter(), Counter()
        for bytes_, place in self.after[moment].values():
            sums[place] += bytes_
            counts[place] += 1
        return sorted(((sums[place], counts[place]) for place in sums), reverse=True)

    def births(self, word):
        """Moments at which something is allocated whose stack has the word."""
        return [moment + 1 for moment, event in enumerate(self.trace) if event['action'] == 'alloc' and
                any(word in frame['name'] or word in frame['filename'] for frame in event['frames'])]


# ---- Running ----

class Runner:
    def __init__(self, tessera, folder):
        self.tessera, self.folder = tessera, folder
        kept = {key: value for key, value in os.environ.items() if key not in UNWANTED}
        self.env = {**kept, 'LC_ALL': 'C.UTF-8', 'TERM': 'xterm-256color'}

    def job(self, *words, rows=40, columns=120, **env):
        return Job([self.tessera, 'view', *words], rows, columns, cwd=self.folder, env={**self.env, **env})

    def piped(self, *words, **how):
        return subprocess.run([self.tessera, *words], cwd=self.folder, env=self.env, stdin=subprocess.DEVNULL, capture_output=True,
                              timeout=HANG_S, check=False, **how)

    def json(self, *words):
        done = self.piped(*words, '--json', '--top', '0')
        assert done.returncode == 0, (words, done.stderr)
        return json.loads(done.stdout)

    def at(self, name, moment, device=0):
        """What `tessera at` says, with the bytes of each category."""
        found = next(one for one in self.json('at', '--event', str(moment - 1), '--device', str(device), name)['devices'])
        found['categories'] = Counter()
        for stack in found['stacks']:
            found['categories'].update(stack['categories'])
        return found


def open_job(job):
    job.wait_for('Q quit', 'event', 'allocated', 'zoom')  # the last line, too


def end_job(job):
    job.press('q')
    tap.expect('after Q', job.wait_end(), 'exited 0')
    assert job.is_restored(), job.screen.modes


LEFT = re.compile(r'^ \S (\S+(?: \S+)*) +([\d.]+ [KMGT]?i?B) +[\d.]+ %')
RIGHT = re.compile(r' \S +([\d.]+ [KMGT]?i?B) +[\d.]+ % +([\d,]+) (\S.*)$')


def groups_of(screen):
    """{name: bytes} of the groups, at 120 columns."""
    lines = screen.lines()
    start = next(i for i, line in enumerate(lines) if 'bytes   share' in line)
    found = [LEFT.match(line) for line in lines[start + 1:-1]]
    return {match[1]: match[2] for match in found if match}


def stacks_of(screen):
    """[(bytes, count, name)] of the list."""
    lines = screen.lines()
    start = next(i for i, line in enumerate(lines) if 'allocated at' in line)
    found = [RIGHT.search(line[30:]) for line in lines[start + 1:-1]]
    return [(match[1], match[2], match[3]) for match in found if match]


def words_of_event(moment, count):
    return f'event {moment - 1:,} of {count:,}: ' if moment else f'before the first of {count:,} events'


def shows(runner, truth, name, moment):
    """A function that tells whether the screen shows all that is true of a moment."""
    answer = runner.at(name, moment)
    tap.expect('requested, as `at` has it', truth.requested(moment), answer['requested_bytes'])
    groups = {key: size(value) for key, value in answer['categories'].items() if value}
    stacks = [(size(bytes_), f'{count:,}') for bytes_, count in truth.shares(moment)]
    texts = (words_of_event(moment, len(truth.trace)), f'{size(answer["allocated_bytes"])} allocated of {size(answer["reserved_bytes"])} reserved',
             f'{size(truth.requested(moment))} requested')

    def holds(screen):
        text = screen.text()
        rows = [row[:2] for row in stacks_of(screen)] if 'allocated at' in text else []
        return (all(one in text for one in texts) and 'bytes   share' in text and groups_of(screen) == groups and
                rows == stacks[:len(rows)] and len(rows) == min(len(stacks), 15))
    return holds, (texts, groups, stacks)


# ---- What it shows ----

def check_the_peak_at_two_sizes(runner):
    peak = runner.json('peak', 'train.pickle')['devices'][0]['peak']
    for rows, columns in ((24, 80), (40, 120)):
        with runner.job('train.pickle', rows=rows, columns=columns) as job:
            open_job(job)
            job.wait_for(f'event {peak["event"]} of 45', f'{size(peak["allocated_bytes"])} allocated of {size(peak["reserved_bytes"])} reserved',
                         f'peak {size(peak["allocated_bytes"])}', 'train.pickle', 'activation', 'model.py:30 forward')
            assert BRAILLE.search(job.screen.text()) and job.screen.colors
            assert 1049 in job.screen.modes and 25 not in job.screen.modes
            end_job(job)


def check_every_number_of_random_runs(runner):
    for seed in SEEDS:
        snapshot = random_run(seed)
        name = f'random-{seed}.pickle'
        fixtures.write(runner.folder / name, snapshot)
        truth, source = Truth(snapshot), random.Random(seed)
        count = len(truth.trace)
        with runner.job(name) as job:
            open_job(job)
            moments = sorted({0, 1, count, *(source.randrange(count + 1) for _ in range(8))})
            job.press('Home')
            here = 0
            for moment in moments:
                job.press('.' * (moment - here))
                here = moment
                holds, what = shows(runner, truth, name, moment)
                job.wait(holds, what)
            job.press('Home', *'www', *'dd', 'End', 'w', ',')
            holds, what = shows(runner, truth, name, count - 1)
            job.wait(holds, what)
            peak = runner.json('peak', name)['devices'][0]['peak']
            job.press('f', 'p')
            holds, what = shows(runner, truth, name, peak['event'] + 1)
            job.wait(holds, what)
            end_job(job)


def check_search_finds_what_events_say(runner):
    snapshot = random_run(99)
    fixtures.write(runner.folder / 'found.pickle', snapshot)
    truth, count = Truth(snapshot), len(snapshot['device_traces'][0])
    births = truth.births('attention')
    with runner.job('found.pickle') as job:
        open_job(job)
        job.press('Home', '/', 'x', 'Back', 'Attention.PY', 'Enter')
        job.wait_for('> and < go from one to the next')
        for moment in births[:3]:
            job.press('>')
            live = sum(bytes_ for bytes_, place in truth.after[moment].values() if place and any('attention' in name for name, _, _ in place))
            job.wait_for(words_of_event(moment, count), f'found {size(live)}, ')
        job.press('<')
        job.wait_for(words_of_event(births[1], count))
        assert all('attention.py' in name for _, _, name in stacks_of(job.screen)), job.screen.text()
        job.press('End', '>')
        job.wait_for('nothing that was found is allocated later')
        job.press('Esc')
        job.wait(lambda screen: 'found ' not in screen.text(), 'Esc ends the search')
        job.press('/', 'no such thing', 'Enter')
        job.wait_for('no allocation matches')
        job.press('/', 'q', 'Esc')  # Q is typed here
        job.wait_for('W/S zoom')
        end_job(job)


def check_two_files(runner):
    for seed in (3, 4):
        fixtures.write(runner.folder / f'side-{seed}.pickle', random_run(seed))
    sides = [f'side-{seed}.pickle' for seed in (3, 4)]
    counts = [runner.json('info', side)['devices'][0]['events'] for side in sides]
    with runner.job(*sides) as job:
        open_job(job)
        for moments in ((0, 0), (5, 0), (5, 7)):
            job.press('Home', '.' * moments[0], 'n', 'Home', '.' * moments[1], 'n')
            answers = [runner.at(side, moment) for side, moment in zip(sides, moments)]
            rows = []
            for name in set(answers[0]['categories']) | set(answers[1]['categories']):
                old, new = (answer['categories'][name] for answer in answers)
                rows.append(re.escape(name) + ' +' + re.escape(size(old)) + ' +' + re.escape(size(new)) + ' +' + re.escape(delta(old, new)) + ' ')
            texts = [f'{size(answer["allocated_bytes"])} of {size(answer["reserved_bytes"])}' for answer in answers]
            texts += [words_of_event(moment, count) for moment, count in zip(moments, counts)]
            job.wait(lambda screen: all(text in screen.text() for text in texts) and
                     all(re.search(row, screen.text()) for row in rows), (texts, rows))
        text = job.screen.text()
        assert text.count('\u2524') >= 4 and len(re.findall(r'peak \d', text)) == 2, text
        end_job(job)


def crowded_run():
    """Steps and failures close to the peak, whose signs and words have to share a line."""
    run, state = fixtures.Run(), []
    device = run.devices[0]
    for step in range(8):
        run.step(device, step, state)
        if step in (2, 3):
            at = run.stacks(('forward', '/work/model.py', 40))
            device.event('oom', 1 << 20, 1 << 30, at)
            large = device.alloc((60 + step) << 20, at)
            device.event('snapshot', 0, 0, at)
            device.free(large, at)
    return run.snapshot()


def check_words_of_the_marks_do_not_touch(runner):
    """At 80 columns: a blank is between all words above a timeline, and the lines of two files are not cut."""
    fixtures.write(runner.folder / 'crowded.pickle', crowded_run())
    fixtures.write(runner.folder / 'early.pickle', fixtures.out_of_memory())
    words = re.compile(r"^ *(first|second)?(?: +(?:[\u25bc!sA]+|\u2575?(?:step )?\d+|peak \d+\.\d\d MiB))+ *$")
    for names in (['crowded.pickle'], ['crowded.pickle', 'early.pickle']):
        with runner.job(*names, rows=24, columns=80) as job:
            open_job(job)
            job.wait(lambda screen: len(re.findall(r'peak \d', screen.text())) == len(names)
                     and sum('\u25bc' in line for line in screen.lines()) == len(names), names)
            lines = job.screen.lines()
            marks = [line for line in lines if '\u25bc' in line]
            tap.expect('lines of marks', len(marks), len(names))
            for line in marks:
                assert words.match(line) and 'peak' in line, line
            if len(names) == 2:
                moments = [line for line in lines if '.pickle' in line and 'event' in line]
                assert len(moments) == 2 and not any('\u2026' in line for line in moments), moments
                assert all(re.search(r' of [\d.]+ MiB  event \d+', line) for line in moments), moments
            end_job(job)


def check_a_mark_is_compared_with(runner):
    with runner.job('train.pickle') as job:
        open_job(job)
        job.press('4')
        job.wait_for('M marks a moment to compare with')
        job.press('Home', 'm', 'p')
        old, new = runner.at('train.pickle', 0), runner.at('train.pickle', 31)
        for name in ('activation', 'optimizer_state'):
            a, b = old['categories'][name], new['categories'][name]
            job.wait(lambda screen: re.search(rf'{name} +{re.escape(size(a))} +{re.escape(size(b))} +{re.escape(delta(a, b))}', screen.text()), name)
        job.press('Esc')
        job.wait(lambda screen: 'mark A' not in screen.text() and 'bytes   share' in screen.text(), 'Esc drops the mark')
        end_job(job)


def check_events_stacks_and_groups(runner):
    with runner.job('train.pickle') as job:
        open_job(job)
        job.press('5')
        job.wait_for('30 alloc 1.00 MiB at 0x', 'what it did')
        job.press('1', 'j', 'Enter')
        job.wait_for('innermost last', '/work/model.py:30 forward', '/work/train.py:88 main')
        job.press('Enter', 'g')
        job.wait_for('by annotation')
        job.press('[')
        job.wait(lambda screen: 'event 30' not in screen.text(), 'an earlier edge')
        job.press('?')
        job.wait_for('zoom in, out', 'any key ends this help')
        job.press('?', 'p')
        job.wait_for('event 30 of 45')
        job.press('2')
        job.wait_for('the flame graph is on the page')
        end_job(job)


def check_help_of_a_small_screen(runner):
    """It is shown in pages, and long texts take two lines."""
    with runner.job('train.pickle', rows=14, columns=60) as job:
        open_job(job)
        job.press('?')
        job.wait_for('zoom in, out', '? shows more')
        seen = job.screen.text()
        while '? shows more' in seen:
            job.press('?')
            last = seen
            job.wait(lambda screen: screen.text() != last and re.search(r'^  (\? shows more; any other|any) key ends this help', screen.text(), re.M), 'the next page')
            seen = job.screen.text()
        assert re.search(r'Q +quit', seen) and 'any key ends this help' in seen, seen
        job.press('?')
        job.wait(lambda screen: 'ends this help' not in screen.text(), 'the help is gone')
        end_job(job)


def check_several_devices(runner):
    with runner.job('two-devices.pickle') as job:
        open_job(job)
        job.wait_for('(1 of 2)')
        job.press('n')
        job.wait_for('device 1 (2 of 2)')
        job.press('n')
        job.wait_for('device 0 (1 of 2)')
        end_job(job)
    with runner.job('--device', '1', 'two-devices.pickle') as job:
        open_job(job)
        job.wait_for('device 1, by category')
        end_job(job)


def check_a_trace_whose_beginning_is_missing(runner):
    with runner.job('late.pickle') as job:
        open_job(job)
        job.press('Home')
        start = runner.json('peak', 'late.pickle')['devices'][0]['start']
        job.wait_for(f'{size(start["allocated_bytes"])} of it from before the recording', 'train.py:88 main')
        end_job(job)


def check_files_without_a_history(runner):
    expected = runner.piped('view', '-o', 'empty.html', 'no-traces.pickle')
    with runner.job('no-traces.pickle', columns=200) as job:
        tap.expect('a file without segments', job.wait_end(), f'exited {expected.returncode}')
        tap.expect('a file without segments', job.screen.text().strip(), expected.stderr.decode().strip())
    snapshot = fixtures.train()
    snapshot['device_traces'] = [[]]
    fixtures.write(runner.folder / 'segments.pickle', snapshot)
    with runner.job('segments.pickle', rows=24, columns=80) as job:
        open_job(job)
        job.wait_for('no events were recorded, only one moment; `with tessera.record():` records')
        for key in ('Left', 'Right', 'w', 's', 'p', 'f', 'm', '4', '5', '>', 'y', 'Esc'):
            job.press(key)
        end_job(job)


# ---- Terminals ----

def check_without_colours(runner):
    for env in ({'NO_COLOR': '1'}, {'TERM': 'vt100'}, {'TERM': 'xterm-mono'}):
        with runner.job('train.pickle', **env) as job:
            open_job(job)
            assert not job.screen.colors and BRAILLE.search(job.screen.text()), (env, job.screen.colors)
            end_job(job)
    with runner.job('--color', 'never', 'train.pickle') as job:
        open_job(job)
        assert not job.screen.colors
        end_job(job)


def check_without_utf_8(runner):
    fixtures.write(runner.folder / 'f\u00fcr.pickle', fixtures.train())
    with runner.job('f\u00fcr.pickle', LC_ALL='C') as job:
        open_job(job)
        text = job.screen.text()
        assert text.isascii() and 'f??r.pickle' in text or 'f?r.pickle' in text, text
        assert re.search('AAA', text) and re.search(r'A activation', text), text
        end_job(job)


def check_terminals_that_cannot_draw(runner):
    for term in ('dumb', 'no-such-terminal', ''):
        with runner.job('train.pickle', TERM=term) as job:
            tap.expect(term, job.wait_end(), 'exited 2')
            text = job.screen.text()
            assert 'cannot move its cursor' in text and '-o page.html' in text.replace('\n', ''), text
            assert 1049 not in job.screen.modes


def check_resizing(runner):
    with runner.job('train.pickle') as job:
        open_job(job)
        for rows, columns in ((24, 80), (50, 200), (14, 60), (40, 120)):
            job.resize(rows, columns)
            job.wait(lambda screen: 'Q quit' in screen.lines()[0] and 'W/S zoom' in screen.lines()[-1] and
                     any(line.strip().startswith('event 30 of 45') for line in screen.lines()), (rows, columns))
        job.resize(10, 40)
        job.wait_for('smaller than 60 columns')
        job.resize(30, 100)
        job.wait_for('event 30 of 45')
        end_job(job)


def check_few_bytes_are_sent(runner):
    with runner.job('train.pickle', rows=24, columns=80) as job:
        open_job(job)
        job.wait_for('G group')
        while job.read(0.5):
            pass
        before = job.received
        job.press('j')
        while job.read(0.5):
            pass
        assert 0 < job.received - before < 1000, job.received - before
        end_job(job)


def check_signals_restore_the_terminal(runner):
    for number, key in ((signal.SIGINT, '\x03'), (signal.SIGQUIT, '\x1c'), (signal.SIGTERM, None), (signal.SIGHUP, None), (signal.SIGINT, None)):
        with runner.job('train.pickle') as job:
            open_job(job)
            if key:
                job.press(key)
            else:
                job.signal(number)
            tap.expect(f'signal {number}', job.wait_end(), f'signal {int(number)}')
            assert job.is_restored(), (number, job.screen.modes)


def check_stopping_and_going_on(runner):
    with runner.job('train.pickle') as job:
        open_job(job)
        for moment in (1, 2):
            job.press('\x1a')
            tap.expect('Ctrl-Z', job.wait_end(), 'stopped')
            assert job.is_restored(), job.screen.modes
            job.go_on()
            job.wait(lambda screen: 1049 in screen.modes, 'the screen again')
            job.press('Home', '.' * moment)
            job.wait_for(f'event {moment - 1} of 45')
        end_job(job)


# ---- What is refused, and what harms ----

def check_broken_files(runner):
    (runner.folder / 'broken.pickle').write_bytes(b'\x80\x04not a snapshot')
    for name in ('broken.pickle', 'absent.pickle'):
        expected = runner.piped('peak', name)
        with runner.job(name, columns=200) as job:
            tap.expect(name, job.wait_end(), f'exited {expected.returncode}')
            tap.expect(name, job.screen.text().strip(), expected.stderr.decode().strip())
            assert 1049 not in job.screen.modes
    tap.expect('status', expected.returncode, 3)


def check_what_is_refused(runner):
    for words, text in ((['train.pickle'] * 3, 'a terminal shows one file or two'), (['-'], 'standard input cannot be both'),
                        (['--ordered', 'train.pickle'], 'no single blocks'), (['--json', 'train.pickle'], 'cannot show a page')):
        with runner.job(*words, columns=200) as job:
            tap.expect(words, job.wait_end(), 'exited 2')
            assert text in job.screen.text() and 'use -o page.html' in job.screen.text(), job.screen.text()


def check_keys_need_a_terminal(runner):
    words = ['/bin/sh', '-c', '"$0" view train.pickle </dev/null', str(runner.tessera)]
    with Job(words, 40, 200, cwd=runner.folder, env=runner.env) as job:
        tap.expect('the status', job.wait_end(), 'exited 2')
        assert 'standard input is no terminal' in job.screen.text() and 'use -o page.html' in job.screen.text(), job.screen.text()


def check_elsewhere_it_is_a_page(runner):
    page = runner.piped('view', 'train.pickle')
    assert page.returncode == 0 and page.stdout.startswith(b'<!doctype html>'), page.stderr
    with runner.job('-o', 'page.html', 'train.pickle') as job:
        tap.expect('-o', job.wait_end(), 'exited 0')
    tap.expect('the page', (runner.folder / 'page.html').read_bytes(), page.stdout)


def check_warnings_come_after_the_view(runner):
    with runner.job('truncated.pickle', columns=200) as job:
        open_job(job)
        job.press('q')
        tap.expect('after Q', job.wait_end(), 'exited 0')
        assert 'warning: truncated' in job.screen.text(), job.screen.text()


def hostile_run():
    """Names that would drive a terminal, that are wide, that are long, or that are not text."""
    run = fixtures.Run()
    device = run.devices[0]
    names = ['\x1b[2J\x1b]0;title\x07', '\u202egnp\u2066', '\u4e2d\u6587\u51fd\u6570' * 20, 'x' * 100000, '\ud800', 'a\u0301\u0301', '\x9b31m', '%s%n', '']
    for number, name in enumerate(names):
        run.note(name, 'START')
        device.metadata = name
        device.alloc((number + 1) << 20, run.stacks((name, f'/work/{name[:200]}.py', 7)))
    return run.snapshot()


def check_names_that_would_drive_the_terminal(runner):
    fixtures.write(runner.folder / 'hostile.pickle', hostile_run())
    path = 'h\x1b[2J\u202e\u4e2d.pickle'
    shutil.copy(runner.folder / 'hostile.pickle', runner.folder / path)
    for locale in ('C.UTF-8', 'C'):
        with runner.job(path, LC_ALL=locale) as job:  # the screen refuses control characters
            open_job(job)
            for key in ('Home', 'End', '5', '1', *'gggggg', 'j', 'Enter', 'Esc', '/', '\u4e2d', 'Enter', '>', 'Esc', '?', 'p'):
                job.press(key)
            end_job(job)
            assert '\u202e' not in job.screen.text()


def check_the_documentation(runner):
    """The picture of docs/terminal.md is what is drawn, and its keys are those of the help."""
    page = (Path(__file__).resolve().parents[2] / 'docs/terminal.md').read_text(encoding='utf-8')
    command, *picture = re.search(r'^```\n\$ (.*?)\n```', page, re.M | re.S)[1].split('\n')
    tap.expect('the command', command, 'tessera view oom.pickle')
    made = runner.piped('simulate', 'gpt2', '--batch', '8', '--attention', 'eager', '--capacity', '6GiB', '-q', '-o', 'oom.pickle')
    tap.expect('a simulated run', made.returncode, 0)
    keys = [(key, text.replace('\\|', '|')) for key, text in re.findall(r'^\| `(.*?)` \| (.*) \|$', page, re.M)]
    with runner.job('oom.pickle', rows=24, columns=80) as job:
        job.wait(lambda screen: screen.lines() == picture, picture)
        job.press('?')
        job.wait(lambda screen: [(line[2:14].strip(), line[14:]) for line in screen.lines()[1:len(keys) + 1]] == keys, keys)
        end_job(job)


def check_real_snapshots(runner):
    if not SHARED.is_dir():
        raise tap.Skip('no ../shared/snapshots')
    source = random.Random(7)
    keys = [*'wsad,.[]pfymgGn145jk', 'Left', 'Right', 'Up', 'Down', 'Home', 'End', 'PageDown', 'Enter', 'Esc', '?', '<', '>']
    for path in sorted(SHARED.glob('*.*')):
        if path.suffix not in ('.pickle', '.html'):
            continue
        with runner.job(str(path), rows=source.choice((24, 40)), columns=source.choice((80, 120))) as job:
            open_job(job)
            for _ in range(40):
                job.press(source.choice(keys))
            job.press('Esc', 'Esc', 'Esc', 'Esc', '1', 'p')
            peak = {f'peak {size(one["peak"]["allocated_bytes"])}' for one in runner.json('peak', str(path))['devices']}
            job.wait(lambda screen: any(text in screen.text() for text in peak) and 'W/S zoom' in screen.lines()[-1], (path, peak))
            end_job(job)


CHECKS = [value for name, value in sorted(globals().items()) if name.startswith('check_')]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--tessera', required=True, type=Path)
    parser.add_argument('--work', required=True, type=Path)
    parser.add_argument('names', nargs='*', help='only checks that have one of these words in their name')
    options = parser.parse_args()
    folder = options.work.resolve() / 'files'
    shutil.rmtree(folder, ignore_errors=True)
    fixtures.write_all(folder)
    runner = Runner(options.tessera.resolve(), folder)
    probe = runner.job('train.pickle', TERM='dumb')
    with probe:
        probe.wait_end()
        absent = next((text for text in ('without a terminal view', 'is not installed') if text in probe.screen.text()), None)
    if absent:
        print(f'1..0 # SKIP {absent}')
        return 0
    chosen = [check for check in CHECKS if not options.names or any(word in check.__name__ for word in options.names)]
    return tap.run(tap.named(chosen, runner))


if __name__ == '__main__':
    sys.exit(main())
