#!/usr/bin/env python3
"""What tessera writes never destroys what is there. Prints TAP.

usage: files.py --tessera PATH --work FOLDER

No output replaces an input, links are followed, and a command that a signal ends at any of its
system calls leaves the old file or the new one and nothing else. A tracer (ptrace) stops the command
at each call in turn; a filter (seccomp) pretends that the file system has no files without names.
Where the system allows neither, those tests are skipped."""
import argparse
import ctypes
import os
import pathlib
import pickle
import platform
import pty
import re
import select
import shutil
import signal
import struct
import subprocess
import sys
import time

from support import Skip, expect, fixtures, run_tests

OLD = b'what was there before\n'
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
libc = ctypes.CDLL(None, use_errno=True)

# ---- prctl, ptrace ----

PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 38, 22, 2
ALLOW, REFUSE_EOPNOTSUPP = 0x7fff0000, 0x00050000 | 95
OPENAT = {'x86_64': 257, 'aarch64': 56}.get(platform.machine())
O_TMPFILE_BIT = 0o20000000
TRACEME, CONT, SYSCALL, SETOPTIONS = 0, 7, 24, 0x4200
TRACESYSGOOD, EXITKILL = 1, 0x100000


def without_nameless_files():
    """From here on, in this process, O_TMPFILE is not supported."""
    code = [(0x20, 0, 0, 0),              # the number of the call
            (0x15, 0, 3, OPENAT),         # openat, or allow
            (0x20, 0, 0, 16 + 2 * 8),     # the flags
            (0x45, 0, 1, O_TMPFILE_BIT),  # O_TMPFILE, or allow
            (0x06, 0, 0, REFUSE_EOPNOTSUPP),
            (0x06, 0, 0, ALLOW)]
    lines = ctypes.create_string_buffer(b''.join(struct.pack('HBBI', *line) for line in code))
    program = ctypes.create_string_buffer(struct.pack('HxxxxxxP', len(code), ctypes.addressof(lines)))
    if libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) or \
            libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, program, 0, 0):
        os._exit(99)


def is_filter_possible():
    if not OPENAT:
        return False
    done = subprocess.run([sys.executable, '-c', 'pass'], preexec_fn=without_nameless_files,
                          check=False)
    return done.returncode == 0


def ptrace(request, pid, data=0):
    libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
    if libc.ptrace(request, pid, None, data) == -1:
        raise Skip('this system does not let a test trace its own child')


class Traced:
    """A command that stops whenever it enters or leaves a system call."""

    def __init__(self, command, folder, is_filtered):
        def prepare():
            libc.ptrace(TRACEME, 0, None, None)
            if is_filtered:
                without_nameless_files()
        environment = {**os.environ, 'ASAN_OPTIONS': 'detect_leaks=0'}
        self.child = subprocess.Popen(command, cwd=folder, preexec_fn=prepare, env=environment,
                                      stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                      stderr=subprocess.DEVNULL)
        self.status = None
        self.wait()
        ptrace(SETOPTIONS, self.child.pid, TRACESYSGOOD | EXITKILL)

    def wait(self):
        _, status = os.waitpid(self.child.pid, 0)
        if not os.WIFSTOPPED(status):
            self.status = status
            self.child.returncode = os.waitstatus_to_exitcode(status)
        return os.WSTOPSIG(status) if os.WIFSTOPPED(status) else None

    def step(self, count):
        """On to the `count`-th stop from here; False if the command ends before it."""
        passed = 0
        while count:
            ptrace(SYSCALL, self.child.pid, passed)
            stop = self.wait()
            if stop is None:
                return False
            is_call = stop == signal.SIGTRAP | 0x80
            passed = 0 if is_call else stop
            count -= is_call
        return True

    def end(self, number):
        """Send a signal and let the command run to its end."""
        os.kill(self.child.pid, number)
        passed = 0
        while self.status is None:
            ptrace(CONT, self.child.pid, passed)
            passed = self.wait()
        return self.child.returncode


# ---- the tests ----

class Place:
    """A folder, and a command that writes `out` from what is in it."""

    def __init__(self, binary, folder):
        self.binary, self.folder = binary, folder
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(folder.parent / 'fixtures', folder, symlinks=True)

    def run(self, *arguments, **how):
        return subprocess.run([self.binary, *map(str, arguments)], cwd=self.folder, check=False,
                              stdin=how.pop('stdin', subprocess.DEVNULL), capture_output=True, **how)

    def listing(self):
        return sorted(path.name for path in self.folder.iterdir())


# What each writing command is asked for, its output last; {} is a file that it reads.
WRITING = {
    'export': ['export', '{}', '--format', 'json', '-o'],
    'export of a graph': ['export', '{}', '--format', 'folded', '-o'],
    'trim': ['trim', '{}', '--events', '3..9', '--format', 'pickle', '-o'],
    'view': ['view', 'two-devices.pickle', '{}', '-o'],
    'profile --html': ['profile', '{}', '--html'],
    'check --update': ['check', '{}', '--update', '--lock'],
    'simulate': ['simulate', 'gpt2', '--batch', '1', '--seq', '64', '-o'],
    'an answer': ['peak', '{}', '-o'],
    'a difference': ['diff', 'two-devices.pickle', '{}', '-o'],
}


def check_input(place, arguments):
    """However the output names the input."""
    data = (place.folder / 'train.pickle').read_bytes()
    (place.folder / 'soft').symlink_to('train.pickle')
    (place.folder / 'hard').hardlink_to(place.folder / 'train.pickle')
    before = place.listing()
    for read, written in (('train.pickle', 'train.pickle'), ('train.pickle', './train.pickle'),
                          ('train.pickle', 'soft'), ('soft', 'train.pickle'), ('soft', 'hard')):
        done = place.run(*(word.format(read) for word in arguments), written)
        expect(f'exit status of {written} from {read}', done.returncode, 2)
        expect('a message', b'write to another file' in done.stderr, True)
        expect('nothing is printed', done.stdout, b'')
        expect('the input', (place.folder / 'train.pickle').read_bytes(), data)
        expect('files', place.listing(), before)


def check_other_inputs(place):
    """Files that options name, the sidecar, standard input, two outputs."""
    (place.folder / 'rules.yaml').write_text('mine: forward\n', encoding='utf-8')
    before = {path.name: path.read_bytes() for path in place.folder.iterdir() if path.is_file()}
    for words, message in (
            (['profile', '--rules', 'rules.yaml', '-o', 'rules.yaml', 'train.pickle'], 'input'),
            (['view', '--rules', 'rules.yaml', '-o', './rules.yaml', 'train.pickle'], 'same file'),
            (['export', '-o', 'told.json', 'told.pickle'], 'is the sidecar of'),
            (['peak', '--json', '-o', 'told.json', 'told.pickle'], 'is the sidecar of'),
            (['peak', '--sidecar', 'told.json', '-o', 'told.json', 'told.pickle'], 'input'),
            (['profile', '--html', 'new', '-o', './new', 'train.pickle'], 'two outputs')):
        done = place.run(*words)
        expect(f'{words}: exit status', done.returncode, 2)
        expect(f'{words}: {message}', message in done.stderr.decode(), True)
    with open(place.folder / 'train.pickle', 'rb') as file:
        done = place.run('export', '-o', 'train.pickle', '-', stdin=file)
    expect('exit status', done.returncode, 2)
    expect('standard input', b"'standard input'" in done.stderr, True)
    # Replacements for Mosaic's commands, where the output has a name by default.
    for name in 'mosaic_get_memory_profile', 'mosaic_get_json_snapshot':
        option = '--out-path' if 'profile' in name else '--output_file'
        done = place.run(name, '--snapshot', 'train.pickle', option, 'train.pickle')
        expect(f'{name}: exit status', done.returncode, 2)
    (place.folder / 'snapshot_graph.html').symlink_to('train.pickle')
    done = place.run('mosaic_get_memory_profile', '--snapshot', 'train.pickle')
    expect('by default: exit status', (done.returncode, b'same file' in done.stderr), (2, True))
    (place.folder / 'snapshot_graph.html').unlink()
    after = {path.name: path.read_bytes() for path in place.folder.iterdir() if path.is_file()}
    expect('files', after == before, True)
    # What only looks like the name of a sidecar may be replaced.
    for _ in range(2):
        expect('train.json', place.run('export', '-o', 'train.json', 'train.pickle').returncode, 0)


def check_simulate(place):
    (place.folder / 'gpt2.json').write_text('{"model_type": "gpt2"}', encoding='utf-8')
    done = place.run('simulate', 'gpt2.json', '-o', './gpt2.json')
    expect('exit status', done.returncode, 2)
    expect('the file', (place.folder / 'gpt2.json').read_text(), '{"model_type": "gpt2"}')
    for _ in range(2):  # the name of a model is no file
        done = place.run('simulate', 'gpt2', '--batch', '1', '--seq', '64', '-o', 'gpt2')
        expect('exit status', (done.returncode, done.stderr[:30]), (0, b'tessera simulate: wrote gpt2, '))


def check_links(place, prepare):
    """A link stays what it is; the file that it names is written."""
    folder = place.folder
    (folder / 'below').mkdir()
    for name, target in (('relative', 'below/one'), ('absolute', folder / 'below' / 'two'),
                         ('chain', 'relative'), ('below/up', '../three')):
        (folder / name).symlink_to(target)
    for name, target in (('relative', 'below/one'), ('absolute', 'below/two'),
                         ('chain', 'below/one'), ('below/up', 'three')):
        for is_there in False, True:
            (folder / target).unlink(missing_ok=True)
            if is_there:
                (folder / target).write_bytes(OLD)
                (folder / target).chmod(0o640)
            done = place.run('export', '--format', 'csv', '-o', name, 'train.pickle',
                             preexec_fn=prepare)
            expect(f'{name}: exit status', (done.returncode, name.encode() in done.stderr), (0, True))
            expect(f'{name} is a link', (folder / name).is_symlink(), True)
            expect(f'{target} is a file', (folder / target).is_symlink(), False)
            expect(f'{target} is written', (folder / target).read_bytes()[:6], b'device')
            if is_there:
                expect('its mode', (folder / target).stat().st_mode & 0o777, 0o640)
    expect('files below', sorted(path.name for path in (folder / 'below').iterdir()),
           ['one', 'two', 'up'])


def check_bad_links(place):
    """A loop, a folder that is missing, a folder: refused, and left alone."""
    for name, target in (('loop', 'loop'), ('away', 'missing/file')):
        (place.folder / name).symlink_to(target)
        done = place.run('export', '--format', 'csv', '-o', name, 'train.pickle')
        expect(f'{name}: exit status', done.returncode, 4)
        expect(f'{name}: a message', name.encode() in done.stderr, True)
        expect(f'{name} is a link', os.readlink(place.folder / name), target)
    (place.folder / 'below').mkdir()
    for name in 'below', 'below/', 'new/':
        done = place.run('export', '--format', 'csv', '-o', name, 'train.pickle')
        expect(f'{name}: exit status', done.returncode, 4)


def check_modes(place, prepare):
    """A new file has the permissions of any new file, and keeps those it has."""
    def set_mask():
        os.umask(0o027)
        if prepare:
            prepare()
    for mode in 0o640, 0o604:
        done = place.run('export', '--format', 'csv', '-o', 'out', 'train.pickle',
                         preexec_fn=set_mask)
        expect('exit status', done.returncode, 0)
        expect('mode', (place.folder / 'out').stat().st_mode & 0o777, mode)
        (place.folder / 'out').chmod(0o604)


def check_signals(place, arguments, is_filtered, is_new, step=1):
    """At each system call in turn, or every `step`-th, until one is beyond the last."""
    out = place.folder / 'out'
    before = place.listing()
    command = [place.binary, *(word.format('train.pickle') for word in arguments), 'out']
    done = place.run(*command[1:])
    expect('exit status', done.returncode, 0)
    new = out.read_bytes()
    old = OLD if arguments[0] != 'check' else new.replace(b'Written', b'written')
    seen, stop = set(), 0
    while True:
        out.unlink(missing_ok=True)
        if not is_new:
            out.write_bytes(old)
        traced = Traced(command, place.folder, is_filtered)
        stop += step
        if not traced.step(stop):
            break
        number = SIGNALS[stop % len(SIGNALS)]
        code = traced.end(number)
        expect(f'at stop {stop}: exit status', code in (-number, 0), True)
        left = [name for name in place.listing() if name not in before and name != 'out']
        expect(f'at stop {stop}: left behind', left, [])
        content = out.read_bytes() if out.exists() else None
        if content not in ((None if is_new else old), new):
            raise AssertionError(f'at stop {stop}: {content!r:.80}')
        seen.add(content == new)
    # The new one is in place at the last stops only, which larger steps may miss.
    expect('the old file and the new one were both left', seen | {True} if step > 1 else seen,
           {False, True})


def check_ignored(place, prepare):
    """nohup: a signal that is ignored ends nothing."""
    def ignore():
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        if prepare:
            prepare()
    with subprocess.Popen([place.binary, 'export', '--format', 'json', '-o', 'out', 'train.pickle'],
                          cwd=place.folder, preexec_fn=ignore, stderr=subprocess.DEVNULL) as child:
        while child.poll() is None:
            child.send_signal(signal.SIGHUP)
    expect('exit status', child.returncode, 0)


def check_words(place):
    """A command that writes a file prints which, and its size, unless it is to be quiet."""
    for title, arguments in WRITING.items():
        arguments = [word.format('train.pickle') for word in arguments]
        (place.folder / 'out').unlink(missing_ok=True)
        done = place.run(*arguments, 'out')
        size = (place.folder / 'out').stat().st_size
        line = f'tessera {arguments[0]}: wrote out, '
        lines = [text for text in done.stderr.decode().splitlines() if text.startswith(line)]
        expect(f'{title}: lines', len(lines), 1)
        number, unit = lines[0][len(line):].split()
        factor = {'B': 1, 'KiB': 1 << 10, 'MiB': 1 << 20}[unit]
        expect(f'{title}: {lines[0]}', abs(float(number) * factor - size) <= 0.06 * factor, True)
        done = place.run('-q', *arguments, 'out')
        expect(f'{title}: quiet', b'wrote' in done.stderr, False)
        if arguments[0] != 'check':  # it reads the old lock
            done = place.run(*arguments, '/dev/null')
            expect(f'{title}: no file', b'wrote' in done.stderr, False)


LONG_STACK = [{'name': f'function_{i}', 'filename': f'/home/somebody/{"long/" * 40}package_{i}.py',
               'line': i} for i in range(40)]


def write_large(folder):
    """A small file whose events share one long stack."""
    events = [{'action': ('alloc', 'free_completed')[i % 2], 'addr': 1 << 30, 'size': 512,
               'stream': 0, 'time_us': i, 'frames': LONG_STACK} for i in range(30000)]
    path = folder / 'large.pickle'
    path.write_bytes(pickle.dumps({'segments': [], 'device_traces': [events]}, protocol=4))
    return path


def check_size(place):
    """Before an output that is much larger than the input, a warning with about its size."""
    path = write_large(place.folder)
    for words, advice in ((['--format', 'json'], b'tessera trim'),
                          (['--format', 'csv', '--full-stacks'], b'--full-stacks')):
        with subprocess.Popen([place.binary, 'export', *words, path], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE) as child:
            size = sum(map(len, iter(lambda: child.stdout.read(1 << 20), b'')))
            warning = child.stderr.read()
        expect('exit status', child.returncode, 0)
        expect(f'{words}: advice', advice in warning, True)
        number, unit = re.search(rb'will be about ([0-9.]+) (MiB|GiB),', warning).groups()
        estimate = float(number) * {b'MiB': 1 << 20, b'GiB': 1 << 30}[unit]
        expect(f'{words}: {estimate} of {size}', 0.85 < estimate / size < 1.15, True)
        done = place.run('export', '-q', *words, '-o', '/dev/null', path)
        expect('quiet', b'will be about' in done.stderr, False)
    mosaic = os.path.join(os.path.dirname(place.binary), 'mosaic_get_json_snapshot')
    done = subprocess.run([mosaic, '--snapshot', path, '--output_file', '/dev/null'],
                          stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=True)
    expect('the replacement of Mosaic', b'mosaic_get_json_snapshot: the output will be about' in done.stderr, True)
    for words in ['--format', 'csv'], ['--format', 'pickle'], ['--format', 'perfetto']:
        done = place.run('export', *words, '-o', '/dev/null', path)
        expect(f'{words}: no warning', b'will be about' in done.stderr, False)
    done = place.run('export', '--format', 'json', '-o', '/dev/null', 'train.pickle')
    expect('a small one: no warning', b'will be about' in done.stderr, False)


def check_progress(place):
    """A terminal shows how far a long write is, and nothing of it in the end."""
    path = write_large(place.folder)
    os.mkfifo(place.folder / 'slow')
    primary, secondary = pty.openpty()
    with subprocess.Popen([place.binary, 'export', '--format', 'json', '-o', 'slow', path],
                          cwd=place.folder, stderr=secondary) as child:
        os.close(secondary)
        shown = b''
        with open(place.folder / 'slow', 'rb') as pipe:
            while b'writing slow [' not in shown:  # it is drawn once the writing takes long
                if not pipe.read(1 << 20):
                    break
                time.sleep(0.05)
                if select.select([primary], [], [], 0)[0]:
                    shown += os.read(primary, 1 << 16)
            while pipe.read(1 << 20):
                pass
        while True:
            try:
                shown += os.read(primary, 1 << 16)
            except OSError:  # the command has ended
                break
    os.close(primary)
    expect('exit status', child.returncode, 0)
    expect('a bar', b'writing slow [' in shown, True)
    expect('it is removed', shown.endswith(b'\r\x1b[K'), True)


def tests(binary, work):
    places = iter(range(1000))

    def at(check, *arguments):
        return lambda: check(Place(binary, work / f'place-{next(places)}'), *arguments)

    def filtered(check, *arguments):
        def test():
            if not is_filter_possible():
                raise Skip('this system has no system call filters')
            at(check, *arguments)()
        return test

    for title, arguments in WRITING.items():
        if '{}' in arguments:
            yield f'{title} does not replace its input', at(check_input, arguments)
    yield 'nor what options name, a sidecar, standard input', at(check_other_inputs)
    yield 'simulate does not replace its config', at(check_simulate)
    yield 'links are followed', at(check_links, None)
    yield 'links are followed, without nameless files', filtered(check_links, without_nameless_files)
    yield 'links that lead nowhere', at(check_bad_links)
    yield 'permissions', at(check_modes, None)
    yield 'permissions, without nameless files', filtered(check_modes, without_nameless_files)
    for title, arguments in WRITING.items():
        if title in ('an answer', 'a difference', 'export of a graph'):
            continue
        yield f'{title}, ended anywhere', at(check_signals, arguments, False, False, 1 if title == 'export' else 3)
    export = WRITING['export']
    yield 'export of a new file, ended anywhere', at(check_signals, export, False, True)
    yield ('export ended anywhere, without nameless files',
           filtered(check_signals, export, True, False))
    yield 'an ignored signal', at(check_ignored, None)
    yield ('an ignored signal, without nameless files',
           filtered(check_ignored, without_nameless_files))
    yield 'what was written is said', at(check_words)
    yield 'a large output is announced', at(check_size)
    yield 'the progress of writing', at(check_progress)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('--tessera', required=True)
    parser.add_argument('--work', required=True, type=pathlib.Path)
    options = parser.parse_args()
    shutil.rmtree(options.work, ignore_errors=True)
    fixtures.write_all(options.work / 'fixtures')
    return run_tests(tests(os.path.abspath(options.tessera), options.work.resolve()))


if __name__ == '__main__':
    sys.exit(main())
