"""What tessera writes never destroys what is there.

No output replaces an input, links are followed, and a command that a signal ends at any of its
system calls leaves the old file or the new one and nothing else. A tracer stops the command
at each call in turn; a filter pretends that the file system has no files without names (traced.py).
Where the system allows neither, those tests are skipped."""
import itertools
import os
import pickle
import pty
import re
import select
import shutil
import signal
import subprocess
import time

import pytest
from support import Tessera, cases, expect
from traced import Traced, is_filter_possible, without_nameless_files

OLD = b'what was there before\n'
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Place(Tessera):
    """The program in a folder of files that it reads, where it writes `out`."""

    def __init__(self, tessera, folder):
        super().__init__(tessera)
        self.folder = folder

    def run(self, *words, **how):
        return super().run(*words, **{'cwd': self.folder, 'text': False, 'status': None, **how})

    def listing(self):
        return sorted(path.name for path in self.folder.iterdir())


NUMBERS = itertools.count()


@pytest.fixture
def place(tessera, made, work):
    return Place(tessera, shutil.copytree(made, work / f'place-{next(NUMBERS)}', symlinks=True))


@pytest.fixture(params=[None, without_nameless_files], ids=['here', 'without nameless files'])
def prepare(request):
    """What a command does before it starts."""
    if request.param and not is_filter_possible():
        pytest.skip('this system has no system call filters')
    return request.param


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


READING = {title: arguments for title, arguments in WRITING.items() if '{}' in arguments}


@cases('arguments', READING.values(), READING)
def test_input(place, arguments):
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


def test_other_inputs(place):
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


def test_simulate(place):
    (place.folder / 'gpt2.json').write_text('{"model_type": "gpt2"}', encoding='utf-8')
    done = place.run('simulate', 'gpt2.json', '-o', './gpt2.json')
    expect('exit status', done.returncode, 2)
    expect('the file', (place.folder / 'gpt2.json').read_text(), '{"model_type": "gpt2"}')
    for _ in range(2):  # the name of a model is no file
        done = place.run('simulate', 'gpt2', '--batch', '1', '--seq', '64', '-o', 'gpt2')
        expect('exit status', (done.returncode, done.stderr[:30]), (0, b'tessera simulate: wrote gpt2, '))


def test_links(place, prepare):
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


def test_bad_links(place):
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


def test_modes(place, prepare):
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


def signalled():
    """(title, (arguments, prepare, is_new, step)): each command that streams its output; of most every third system call."""
    export = WRITING['export']
    for title, arguments in WRITING.items():
        if title not in ('an answer', 'a difference', 'export of a graph'):
            yield title, (arguments, None, False, 1 if title == 'export' else 3)
    yield 'export of a new file', (export, None, True, 1)
    yield 'export, without nameless files', (export, without_nameless_files, False, 1)


ENDED = dict(signalled())


@pytest.mark.parametrize('arguments, prepare, is_new, step', ENDED.values(), ids=ENDED, indirect=['prepare'])
def test_signals(place, arguments, prepare, is_new, step):
    """At each system call in turn, or every `step`-th, until one is beyond the last."""
    out = place.folder / 'out'
    before = place.listing()
    command = [place.path, *(word.format('train.pickle') for word in arguments), 'out']
    done = place.run(*command[1:])
    expect('exit status', done.returncode, 0)
    new = out.read_bytes()
    old = OLD if arguments[0] != 'check' else new.replace(b'Written', b'written')
    seen, stop = set(), 0
    while True:
        out.unlink(missing_ok=True)
        if not is_new:
            out.write_bytes(old)
        traced = Traced(command, place.folder, prepare)
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


def test_ignored(place, prepare):
    """nohup: a signal that is ignored ends nothing."""
    def ignore():
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        if prepare:
            prepare()
    with subprocess.Popen([place.path, 'export', '--format', 'json', '-o', 'out', 'train.pickle'],
                          cwd=place.folder, preexec_fn=ignore, stderr=subprocess.DEVNULL) as child:
        while child.poll() is None:
            child.send_signal(signal.SIGHUP)
    expect('exit status', child.returncode, 0)


def test_words(place):
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


def test_size(place):
    """Before an output that is much larger than the input, a warning with about its size."""
    path = write_large(place.folder)
    for words, advice in ((['--format', 'json'], b'tessera trim'),
                          (['--format', 'csv', '--full-stacks'], b'--full-stacks')):
        with subprocess.Popen([place.path, 'export', *words, path], stdout=subprocess.PIPE,
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
    mosaic = place.path.parent / 'mosaic_get_json_snapshot'
    done = subprocess.run([mosaic, '--snapshot', path, '--output_file', '/dev/null'],
                          stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=True)
    expect('the replacement of Mosaic', b'mosaic_get_json_snapshot: the output will be about' in done.stderr, True)
    for words in ['--format', 'csv'], ['--format', 'pickle'], ['--format', 'perfetto']:
        done = place.run('export', *words, '-o', '/dev/null', path)
        expect(f'{words}: no warning', b'will be about' in done.stderr, False)
    done = place.run('export', '--format', 'json', '-o', '/dev/null', 'train.pickle')
    expect('a small one: no warning', b'will be about' in done.stderr, False)


def test_progress(place):
    """A terminal shows how far a long write is, and nothing of it in the end."""
    path = write_large(place.folder)
    os.mkfifo(place.folder / 'slow')
    primary, secondary = pty.openpty()
    with subprocess.Popen([place.path, 'export', '--format', 'json', '-o', 'slow', path],
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
