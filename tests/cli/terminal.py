#!/usr/bin/env python3
"""terminal.py --tessera PATH --work FOLDER: what depends on where the output goes, as TAP.

Commands run with their output in a pipe and in pseudo-terminals of several widths: what is shortened,
and where warnings go.
"""
import argparse
import contextlib
import fcntl
import json
import os
import pty
import re
import select
import shutil
import signal
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import fixtures  # noqa: E402  (its bytecode would land in the source tree)
import tap  # noqa: E402

HANG_S = 1800  # ends what hangs; a busy machine may be slow
UNWANTED = ('NO_COLOR', 'COLUMNS', 'LINES', 'POSIXLY_CORRECT')
WIDTHS = (60, 80, 120)
NAME = 'a_function_whose_name_is_far_too_long_for_any_table_on_a_terminal'
PLACE = re.compile(r'a_module_with_a_long_name\.py:\d+')


def long_names():
    """Two steps' worth of memory from lines whose labels fit no table of 80 columns, kept in each step."""
    run = fixtures.Run()
    device, at = run.devices[0], '/work/a_module_with_a_long_name.py'
    for number in range(5):
        run.note(f'{NAME}#{number}', 'START')
        for line in range(4):
            device.alloc((line + 2) * fixtures.MIB, run.stacks(
                ('forward', '/usr/lib/python3/torch/nn/modules/linear.py', 125),
                ('_call_impl', '/usr/lib/python3/torch/nn/modules/module.py', 1750),
                (f'{NAME}_{line}', at, 1000 + line)))
        device.free(device.alloc(fixtures.MIB, run.stacks((NAME, at, 2000))),
                    run.stacks((NAME, at, 2001)))
        run.note(f'{NAME}#{number}', 'END')
    return run.snapshot()


class Runner:
    """Runs tessera in the folder of the fixtures."""

    def __init__(self, tessera, folder):
        self.tessera, self.folder = tessera, folder
        kept = {key: value for key, value in os.environ.items() if key not in UNWANTED}
        self.env = {**kept, 'LC_ALL': 'C', 'TERM': 'xterm-256color'}

    def piped(self, *words, **env):
        """(status, standard output, standard error)"""
        done = subprocess.run([self.tessera, *words], cwd=self.folder, env={**self.env, **env},
                              stdin=subprocess.DEVNULL, capture_output=True, timeout=HANG_S,
                              check=False)
        return done.returncode, done.stdout.decode(), done.stderr.decode()

    def shown(self, *words, columns, both=False, **env):
        """(status, what a terminal of that width receives, standard error). With `both`, standard error
        is the terminal too."""
        here, there = pty.openpty()
        fcntl.ioctl(there, termios.TIOCSWINSZ, struct.pack('HHHH', 24, columns, 0, 0))
        with subprocess.Popen([self.tessera, *words], cwd=self.folder, env={**self.env, **env},
                              stdin=subprocess.DEVNULL, stdout=there,
                              stderr=there if both else subprocess.PIPE) as process:
            os.close(there)
            screen = self.drain(here)
            errors = '' if both else process.stderr.read().decode()
            status = process.wait(timeout=HANG_S)
        os.close(here)
        return status, screen.replace('\r\n', '\n'), errors

    @staticmethod
    def drain(handle):
        pieces = []
        while select.select([handle], [], [], HANG_S)[0]:
            try:
                piece = os.read(handle, 1 << 16)
            except OSError:  # the other side is closed
                break
            if not piece:
                break
            pieces.append(piece)
        return b''.join(pieces).decode('utf-8', 'replace')


def plain(text):
    """Without colours."""
    return re.sub(r'\x1b\[[0-9;]*[mK]', '', text)


# What has long names in a table.
TABLES = (('peak',), ('profile', '--by', 'line'), ('why',), ('at', '--event', '20'), ('leaks',),
          ('stages',), ('steps',))


# The same, as they show whole names: `peak` and `at` are one screen wherever they are read.
WHOLE = (('peak', '-v'), ('profile', '--by', 'line'), ('why',), ('at', '--event', '20', '-v'), ('leaks',),
         ('stages',), ('steps',))


def table_lines(text):
    """The lines of tables: all up to the first stack, but the verdict and the lines on which it goes on, and advice."""
    lines = re.sub(r'\n\nWhat to do:\n(.+\n)*', '\n', plain(text).split('\n\n#1 ')[0]).splitlines()
    kept, in_verdict = [], False
    for line in lines:
        is_verdict = line.startswith(('Device', 'Out of memory'))
        in_verdict = is_verdict or (in_verdict and re.match(r'  \S+( \S+)*$', line) is not None)
        if not in_verdict:
            kept.append(line)
    return kept


def check_a_pipe_shortens_nothing(runner):
    for words in WHOLE:
        status, text, _ = runner.piped(*words, 'long.pickle')
        assert status == 0, words
        cut = [line for line in table_lines(text)
               if '...' in line and not line.lstrip().startswith('...')]
        assert not cut, (words, cut)


def check_help_fits_80_columns(runner):
    commands = re.findall(r'^  ([a-z]+)  ', runner.piped('help')[1], re.M)
    assert {'peak', 'simulate', 'plan', 'train'} <= set(commands), commands
    for command in commands:
        wide = [line for line in runner.piped('help', command)[1].splitlines() if len(line) > 80]
        assert not wide, (command, wide)


def check_one_screen_anywhere(runner):
    for words in (('peak',), ('at', '--event', '20')):
        piped = runner.piped(*words, 'long.pickle')[1]
        assert max(map(len, piped.splitlines())) <= 100, (words, piped)
        for columns in (100, 120, 200):
            assert plain(runner.shown(*words, 'long.pickle', columns=columns)[1]) == piped, (words, columns)


def check_names_survive_in_a_pipe(runner):
    for words in (('peak', '-v'), ('profile', '--by', 'line'), ('leaks',), ('why',)):
        text = runner.piped(*words, 'long.pickle')[1]
        assert all(f'{NAME}_{line}' in '\n'.join(table_lines(text)) for line in range(4)), (words, text)


def check_a_file_shortens_nothing(runner):
    status, _, _ = runner.shown('peak', '-o', 'out.txt', 'long.pickle', columns=60)
    assert status == 0
    assert (runner.folder / 'out.txt').read_text() == runner.piped('peak', 'long.pickle')[1]


def check_a_terminal_shortens(runner):
    for columns in WIDTHS:
        for words in TABLES:
            text = runner.shown(*words, 'long.pickle', columns=columns)[1]
            wide = [line for line in table_lines(text) if len(line) > columns and NAME[:12] in line]
            assert not wide, (words, columns, wide)


def check_file_and_line_survive(runner):
    for columns in WIDTHS:
        for words in (('peak',), ('profile', '--by', 'line'), ('leaks',), ('why',)):
            text = '\n'.join(table_lines(runner.shown(*words, 'long.pickle', columns=columns)[1]))
            assert all(f'a_module_with_a_long_name.py:{1000 + line}' in text or
                       re.search(rf'\.\.\.\S*name\.py:{1000 + line}', text)
                       for line in range(4)), (words, columns, text)


def check_columns_is_honoured(runner):
    for columns in WIDTHS:
        for words in TABLES:
            stated = runner.piped(*words, 'long.pickle', COLUMNS=str(columns))[1]
            shown = runner.shown(*words, 'long.pickle', columns=columns)[1]
            assert stated == plain(shown), (words, columns)
            other = runner.shown(*words, 'long.pickle', columns=columns + 17,
                                 COLUMNS=str(columns))[1]
            assert other == shown, (words, columns)


def check_columns_must_be_a_number(runner):
    wanted = runner.piped('peak', 'long.pickle')[1]
    for value in ('', '0', '-80', '80x', ' 80', '99999999999999999999'):
        assert runner.piped('peak', 'long.pickle', COLUMNS=value)[1] == wanted, value
        shown = runner.shown('peak', 'long.pickle', columns=60, COLUMNS=value)[1]
        assert shown == runner.shown('peak', 'long.pickle', columns=60)[1], value


def check_a_terminal_of_unknown_width(runner):
    shown = runner.shown('peak', 'long.pickle', columns=0)[1]
    assert plain(shown) == runner.piped('peak', 'long.pickle')[1]


# Every command that reads a file and does not answer on standard output alone, and what follows its name.
COMMANDS = (('info',), ('peak',), ('profile',), ('at', '--event', '3'), ('stages',), ('why',),
            ('source', 'model.py'), ('leaks',), ('steps',), ('pools',), ('whatif',), ('check', '--max', '1GiB'))
WRITERS = (('export', '-o', 'out.pickle'), ('export', '-o', 'out.json'),
           ('export', '--format', 'folded'), ('export', '--format', 'csv'),
           ('trim', '--events', '2..5', '-o', 'out.pickle'), ('view', '-o', 'out.html'))
WARNING = 'warning: truncated (1): '


def run_on_half(runner, words):
    name, *rest = words
    if name == 'source':
        return runner.piped(name, 'half.pickle', *rest)
    return runner.piped(name, *rest, 'half.pickle')


def check_warnings_go_to_standard_error(runner):
    for words in COMMANDS + WRITERS:
        _, text, errors = run_on_half(runner, words)
        assert WARNING not in text, words
        assert errors.count(f'tessera: half.pickle: {WARNING}') == 1, (words, errors)
        _, _, errors = run_on_half(runner, (*words, '-q'))
        assert 'warning' not in errors, (words, errors)


def check_warnings_stay_in_json(runner):
    for words in COMMANDS:
        _, text, errors = run_on_half(runner, (*words, '--json'))
        assert 'truncated' in [warning['code'] for warning in json.loads(text)['warnings']], words
        assert errors.count(WARNING) == 1, (words, errors)


def check_warnings_of_two_files(runner):
    _, text, errors = runner.piped('diff', 'half.pickle', 'half.pickle')
    assert 'warning' not in text
    assert errors.count('tessera: warning: truncated (2): ') == 1, errors


def check_warnings_follow_the_answer(runner):
    _, screen, _ = runner.shown('peak', 'half.pickle', columns=100, both=True)
    assert screen.index('Device 0') < screen.index('tessera: half.pickle: warning')
    assert screen.rstrip().splitlines()[-1].startswith('tessera: half.pickle: warning'), screen


def read_until(handle, text):
    """What a terminal receives up to a text, or to its end."""
    seen = b''
    while text not in seen and select.select([handle], [], [], HANG_S)[0]:
        try:
            seen += os.read(handle, 1 << 16)
        except OSError:  # the other side is closed
            break
    return seen


def check_a_page_in_the_making_has_a_clock(runner):
    for words, shows in (((), True), (('-q',), False)):
        here, there = pty.openpty()
        reading, writing = os.pipe()
        # A full pipe keeps the command from finishing.
        os.set_blocking(writing, False)
        with contextlib.suppress(BlockingIOError):
            while os.write(writing, bytes(4096)):
                pass
        os.set_blocking(writing, True)
        with subprocess.Popen([runner.tessera, 'view', *words, 'long.pickle'], cwd=runner.folder,
                              env=runner.env, stdin=subprocess.DEVNULL, stdout=writing,
                              stderr=there) as process:
            os.close(there)
            os.close(writing)
            line = read_until(here, b'making the page of long.pickle') if shows else b''
            with os.fdopen(reading, 'rb') as page:
                assert b'<!doctype html>' in page.read()
            assert process.wait(timeout=HANG_S) == 0
        rest = Runner.drain(here)
        os.close(here)
        assert line.endswith(b'making the page of long.pickle') == shows, line
        assert rest.endswith('\r\x1b[K') == shows, rest


def check_a_long_answer_has_a_clock(runner):
    here, there = pty.openpty()
    with subprocess.Popen([runner.tessera, 'simulate', 'gpt2', '--steps', '2000'], cwd=runner.folder,
                          env=runner.env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                          stderr=there) as process:
        os.close(there)
        seen = b''
        while b'working on gpt2' not in seen and process.poll() is None:
            # Slow the command down, so that it takes long on any machine.
            process.send_signal(signal.SIGSTOP)
            time.sleep(0.05)
            process.send_signal(signal.SIGCONT)
            time.sleep(0.002)
            if select.select([here], [], [], 0)[0]:
                seen += os.read(here, 1 << 16)
        process.kill()
    os.close(here)
    assert b'working on gpt2' in seen, seen


FAILURES = ('oom', 'oom-pieces', 'oom-elsewhere', 'oom-pending', 'oom-rounded')


def check_why_opens_with_two_lines(runner):
    for name in FAILURES:
        for columns in (None, 80, 120):
            env = {'COLUMNS': str(columns)} if columns else {}
            text = runner.piped('why', f'{name}.pickle', **env)[1]
            head = text.split('\n\n')[0].splitlines()[:2]
            assert head[0].startswith('Device 0: out of memory') and 'asked for' in head[0], head
            assert head[1] and all(len(line) <= 100 for line in head), head


def check_why_shows_the_request_then_advice_then_memory(runner):
    for name in FAILURES:
        text = runner.piped('why', f'{name}.pickle')[1]
        parts = [text.find(part) for part in ('Asked for at event', 'What would help',
                                              'Where the memory was')]
        assert parts[0] > 0 and parts[0] < parts[2], (name, text)
        assert parts[1] < 0 or parts[0] < parts[1] < parts[2], (name, text)
        stack = text[parts[0]:].split('\n\n')[0].splitlines()[1:]
        assert stack and all(re.match(r' +\S+\.py:\d+ \S', line) for line in stack), stack
        assert not any('/work/' in line for line in stack), stack


def check_why_keeps_details_for_verbose(runner):
    for name in FAILURES:
        brief, full = (runner.piped('why', *words, f'{name}.pickle')[1] for words in ((), ('-v',)))
        assert 'asked for, rounded up' in full and 'asked for, rounded up' not in brief, name
        assert len(brief.splitlines()) <= 40 < len(full.splitlines()), name


def check_colors_mean_something(runner):
    for words, color in ((('why', 'oom.pickle'), '\x1b[1;31mDevice 0: out of memory'),
                         (('why', 'oom.pickle'), '\x1b[38;5;'), (('peak', 'train.pickle'), '\x1b[38;5;')):
        assert color in runner.shown(*words, columns=100)[1], (words, color)
        assert color in runner.piped(*words, '--color=always')[1], (words, color)
        for text in (runner.piped(*words)[1], runner.shown(*words, '--color=never', columns=100)[1],
                     runner.shown(*words, columns=100, NO_COLOR='1')[1]):
            assert '\x1b' not in text, words


def check_colors_change_no_column(runner):
    for words in (('peak', 'train.pickle'), ('why', 'oom.pickle'), ('why', '-v', 'oom.pickle')):
        text = runner.piped(*words, '--color=always')[1]
        assert plain(text) == runner.piped(*words)[1], words


def check_a_report_cleans_the_name_of_its_file(runner):
    path = runner.folder / 'run\x1b]0;title\x07\x9b31m\u202egnp\u2066<b>.pickle'
    shutil.copy(runner.folder / 'train.pickle', path)
    for form in ('markdown', 'html'):
        text = runner.piped('report', '--format', form, path.name)[1]
        assert re.search(r'run\?\]0;title\?\?31m\?gnp\?&lt;b&gt;\.pickle', text), text[:2000]
        assert not re.search('[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]', text), (form, text)


CHECKS = [value for name, value in sorted(globals().items()) if name.startswith('check_')]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--tessera', required=True, type=Path)
    parser.add_argument('--work', required=True, type=Path)
    options = parser.parse_args()
    folder = options.work.resolve() / 'files'
    shutil.rmtree(folder, ignore_errors=True)
    fixtures.write_all(folder)
    fixtures.write(folder / 'long.pickle', long_names())
    (folder / 'half.pickle').write_bytes((folder / 'truncated.pickle').read_bytes())
    runner = Runner(options.tessera.resolve(), folder)
    return tap.run(tap.named(CHECKS, runner))


if __name__ == '__main__':
    sys.exit(main())
