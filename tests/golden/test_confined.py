"""A file can make a command do nothing but what the command line says.

Twice: a library (takeover.c) does what code would do that a file has smuggled in, and everything fails that is not the
command's own work; and run folders, model folders, step graphs and snapshots with paths that lead elsewhere change nothing
there, while all of it is watched (inotify), also where the kernel confines nothing."""
import ctypes
import errno
import itertools
import json
import os
import re
import select
import shutil
import struct
import subprocess

import pytest
from support import HERE, cases, expect
from traced import is_filter_possible, without_confinement
from trainer import GPT2, TEXT, Trainer, fresh, read_safetensors, rewrite_notes, write_safetensors

HANG_S = 1800
DENIED = {errno.EACCES, errno.EPERM}
HARM = {'overwrite', 'create', 'remove', 'rename', 'folder', 'link', 'permissions', 'times', 'socket', 'local socket',
        'signal', 'program'}
NUMBERS = itertools.count()


class Place(Trainer):
    """The program in a folder `here`, with `out` for what it writes; `elsewhere` is not its business."""

    def __init__(self, tessera, made, work, takeover=None):
        self.root = work / f'place-{next(NUMBERS)}'
        self.here, self.elsewhere, self.out = self.root / 'here', self.root / 'elsewhere', self.root / 'here' / 'out'
        self.here.mkdir(parents=True)
        super().__init__(tessera, self.here)
        self.elsewhere.mkdir()
        (self.elsewhere / 'old').write_text(TEXT)
        self.out.mkdir()
        for name in 'train.pickle', 'two-devices.pickle':
            shutil.copy(made / name, self.here)
        shutil.copy(HERE / 'graphs' / 'bert.graph', self.here / 'step.graph')
        model = self.here / 'model'
        model.mkdir()
        (model / 'config.json').write_text(json.dumps(GPT2))
        self.takeover = takeover

    def run(self, *words, **how):
        return super().run(*words, **{'cwd': self.here, 'timeout': HANG_S, 'errors': 'replace', **how})

    def save_run(self, *options):
        """The folder of a run, with two steps."""
        self.run('train', 'model', '--data', self.text, '--batch', 1, '--seq', 16, '--steps', 2, '--save', 'run', '-q',
                 *options, status=0)
        return self.here / 'run'

    def env(self, trigger, inside=True):
        more = {'LD_PRELOAD': str(self.takeover), 'TSR_TAKEOVER': trigger, 'TSR_OUTSIDE': str(self.elsewhere)}
        return {**os.environ, **more, **({'TSR_INSIDE': str(self.out)} if inside else {})}

    def files(self):
        """All files elsewhere, with all that could change."""
        def facts(path):
            found = path.lstat()
            content = os.readlink(path) if path.is_symlink() else path.read_bytes() if path.is_file() else None
            return (found.st_ino, found.st_mode, found.st_uid, found.st_nlink, found.st_size, found.st_mtime_ns,
                    found.st_ctime_ns, content)
        return {str(path): facts(path) for path in [self.elsewhere, *sorted(self.elsewhere.rglob('*'))]}


def attempts(text):
    """{name: errno} of what takeover.c printed."""
    return {name: int(number) for name, number in re.findall(r'^takeover: ([a-z ]+) (\d+)$', text, re.M)}


def expect_harmless(place, text, before, output=None, read=0):
    """Whatever was tried elsewhere failed, and reading, and writing to the folder of the output, ended as they should."""
    got = attempts(text)
    expect('what was tried', set(got) - {'read', 'output'}, HARM)
    expect('what could be done', {name for name in HARM if got[name] not in DENIED}, set())
    expect('reading', got['read'], read)
    expect('writing an output', got.get('output'), output)
    expect('elsewhere', place.files(), before)


@pytest.fixture
def place(tessera, made, work):
    return Place(tessera, made, work)


@pytest.fixture
def taken(tessera, made, work, pytestconfig):
    """A place with the library, on a kernel that confines."""
    library = pytestconfig.getoption('takeover')
    if not library:
        pytest.skip('needs --takeover, a library, which a sanitized program does not load')
    kernel = json.loads(tessera.output('--version', '--json'))
    if not kernel['landlock'] or not kernel['seccomp']:
        pytest.skip('this kernel has no Landlock or no seccomp')
    return Place(tessera, made, work, library.resolve())


# ---- taken over while a file is read ----

# A command, the file that takes it over, and whether it writes to `out`.
WRITING = {
    'peak': ('train.pickle', 'peak', 'train.pickle', '-o', 'out/peak.json'),
    'diff': ('two-devices.pickle', 'diff', 'train.pickle', 'two-devices.pickle', '-o', 'out/diff.txt'),
    'export': ('train.pickle', 'export', 'train.pickle', '-o', 'out/train.json'),
    'trim': ('train.pickle', 'trim', 'train.pickle', '--events', '3..9', '-o', 'out/part.pickle'),
    'view': ('train.pickle', 'view', 'train.pickle', '-o', 'out/page.html'),
    'report': ('train.pickle', 'report', 'train.pickle', '-o', 'out/report.md'),
    'profile --html': ('train.pickle', 'profile', 'train.pickle', '--html', 'out/page.html'),
    'ranks --html': ('train.pickle', 'ranks', 'train.pickle', '--html', 'out/page.html'),
    'check --update': ('train.pickle', 'check', 'train.pickle', '--update', '--lock', 'out/lock.json'),
    'simulate': ('config.json', 'simulate', 'model', '--seq', '16', '-o', 'out/run.pickle'),
    'simulate, two ranks': ('config.json', 'simulate', 'model', '--seq', '16', '--ranks', '2', '-o', 'out/run.pickle'),
    'simulate a step graph': ('step.graph', 'simulate', 'step.graph', '-o', 'out/run.pickle'),
    'plan': ('config.json', 'plan', 'model', '--seq', '16', '--budget', '1GiB', '--write-plan', 'out/plan.json'),
    'train': ('config.json', 'train', 'model', '--data', 'sheep.txt', '--seq', '16', '--steps', '2', '--save', 'out/run',
              '--snapshot', 'out/run.pickle', '--write-rates', 'out/rates.json'),
    'train, offloading': ('config.json', 'train', 'model', '--data', 'sheep.txt', '--seq', '16', '--steps', '2',
                          '--offload', 'activations:disk', '--offload-dir', 'out'),
    'train --ranks': ('config.json', 'train', 'model', '--data', 'sheep.txt', '--seq', '16', '--steps', '2', '--ranks',
                      '2', '--save', 'out/run'),
    'a page of Mosaic': ('train.pickle', 'mosaic_get_memory_profile', '--snapshot', 'train.pickle', '--out-path',
                         'out/page.html'),
    'JSON of Mosaic': ('train.pickle', 'mosaic_get_json_snapshot', '--snapshot', 'train.pickle', '--output_file',
                       'out/train.json'),
}
ONLY_READING = {
    'peak, printed': ('train.pickle', 'peak', 'train.pickle'),
    'source': ('train.pickle', 'source', 'train.pickle', 'model.py'),
    'simulate, printed': ('config.json', 'simulate', 'model', '--seq', '16'),
    'simulate a step graph, printed': ('step.graph', 'simulate', 'step.graph'),
    'check': ('train.pickle', 'check', 'train.pickle', '--max', '80GiB'),
}


@cases('command', WRITING.values(), WRITING)
def test_taken_over_while_it_writes(taken, command):
    """The output is written nevertheless."""
    trigger, *words = command
    before = taken.files()
    done = taken.run(*words, env=taken.env(trigger), status=(0, 1))
    expect_harmless(taken, done.stderr, before, output=0)
    written = [path for path in taken.out.rglob('*') if path.name != 'made']
    expect('something is written', bool(written), '--offload-dir' not in words)
    expect('all of it is complete', [path for path in written if path.is_file() and not path.stat().st_size], [])


@cases('command', ONLY_READING.values(), ONLY_READING)
def test_taken_over_while_it_prints(taken, command):
    """Without an output nothing can be written anywhere."""
    trigger, *words = command
    before = taken.files()
    done = taken.run(*words, env=taken.env(trigger), status=(0, 1, 2))
    expect_harmless(taken, done.stderr, before, output=errno.EACCES)


@cases('words', [('train', '--resume', 'run', '--steps', '3'), ('sample', 'run', '--tokens', '8'),
                 ('train', 'run', '--data', 'sheep.txt', '--seq', '16', '--steps', '2', '--save', 'out/run')],
       ['train --resume', 'sample', 'train from weights'])
def test_taken_over_by_weights(taken, words):
    taken.save_run()
    before = taken.files()
    done = taken.run(*words, env=taken.env('model.safetensors'), status=0)
    expect_harmless(taken, done.stderr, before, output=0 if 'out/run' in words else errno.EACCES)


def test_mcp(taken):
    """Confined from the start: it writes nothing, and connects to nothing."""
    before = taken.files()
    messages = [{'jsonrpc': '2.0', 'id': 1, 'method': 'initialize',
                 'params': {'protocolVersion': '2025-06-18', 'capabilities': {}, 'clientInfo': {'name': 't', 'version': '0'}}},
                {'jsonrpc': '2.0', 'id': 2, 'method': 'tools/call',
                 'params': {'name': 'tessera_peak', 'arguments': {'path': str(taken.here / 'train.pickle')}}}]
    done = taken.run('mcp', input=''.join(json.dumps(message) + '\n' for message in messages),
                     env=taken.env('train.pickle'), status=0)
    expect_harmless(taken, done.stderr, before, output=errno.EACCES)
    answer = json.loads(done.stdout.splitlines()[1])
    expect('the answer', answer['result']['isError'], False)


def ask_server(address):
    import urllib.request
    with urllib.request.urlopen(address, timeout=HANG_S) as answer:
        return answer.status, answer.read()[:15]


@cases('trigger', ['train.pickle', 'accept'])
def test_serve(taken, trigger):
    """The server cannot even read files, once it listens."""
    before = taken.files()
    with subprocess.Popen([taken.path, 'serve', 'train.pickle'], cwd=taken.here, env=taken.env(trigger), text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        try:
            address = process.stdout.readline().strip()
            if not address and 'libmicrohttpd' in process.stderr.read():
                pytest.skip('built without libmicrohttpd')
            status = [dict(re.findall(r'^(\w+):\t(.*)$', task.read_text(), re.M))
                      for task in (HERE.__class__('/proc') / str(process.pid) / 'task').glob('*/status')]
            expect('each thread', {(task['NoNewPrivs'], task['Seccomp']) for task in status}, {('1', '2')})
            expect('the page', ask_server(address), (200, b'<!doctype html>'))
        finally:
            process.terminate()
        expect_harmless(taken, process.stderr.read(), before, output=errno.EACCES,
                        read=errno.EACCES if trigger == 'accept' else 0)
    expect('exit status', process.returncode, 0)


# ---- where the kernel confines nothing ----

def run_freely(place, *words):
    return place.run(*words, preexec_fn=without_confinement, status=(0, 1))


@cases('command', [*WRITING.values(), *ONLY_READING.values()], [*WRITING, *ONLY_READING])
def test_needs_no_confinement(place, command):
    """A kernel without Landlock and seccomp is no failure, and nothing is different."""
    if not is_filter_possible():
        pytest.skip('this system has no system call filters')
    (place.here / 'model.py').write_text('x = 1\n')
    _, *words = command
    with_it = place.run(*words, status=(0, 1))
    files = sorted(path.name for path in place.out.rglob('*'))
    shutil.rmtree(place.out)
    place.out.mkdir()
    done = run_freely(place, *words)
    expect('files', sorted(path.name for path in place.out.rglob('*')), files)
    expect('exit status', done.returncode, with_it.returncode)
    if words[0] != 'train': # which prints times
        expect('printed', done.stdout, with_it.stdout)


def test_says_that_nothing_is_confined(place):
    if not is_filter_possible():
        pytest.skip('this system has no system call filters')
    version = json.loads(run_freely(place, '--version', '--json').stdout)
    expect('version', (version['landlock'], version['seccomp']), (0, False))
    with subprocess.Popen([place.path, 'serve', 'train.pickle'], cwd=place.here, text=True, preexec_fn=without_confinement,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        address = process.stdout.readline().strip()
        page = ask_server(address) if address else None
        process.terminate()
        said = process.stderr.read()
    if not address and 'libmicrohttpd' in said:
        pytest.skip('built without libmicrohttpd')
    expect('the page', page, (200, b'<!doctype html>'))
    expect('says so', 'this kernel has no Landlock' in said, True)


# ---- hostile folders and files, watched ----

class Watch:
    """What happens in a folder and those below it, seen by inotify: also what is undone at once."""

    CHANGES = 0x2 | 0x4 | 0x40 | 0x80 | 0x100 | 0x200 | 0x400 | 0x800  # modify, attributes, moves, create, delete

    def __init__(self, folder):
        libc = ctypes.CDLL(None, use_errno=True)
        self.handle = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self.handle < 0:
            pytest.skip('this system has no inotify')
        for path in [folder, *(below for below in folder.rglob('*') if below.is_dir() and not below.is_symlink())]:
            if libc.inotify_add_watch(self.handle, os.fsencode(path), self.CHANGES) < 0:
                raise OSError(ctypes.get_errno(), 'inotify_add_watch')

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        os.close(self.handle)

    def seen(self):
        """(change, name) of each."""
        found = []
        while select.select([self.handle], [], [], 0)[0]:
            data = os.read(self.handle, 65536)
            while data:
                _, change, _, length = struct.unpack('iIII', data[:16])
                found.append((hex(change), data[16:16 + length].rstrip(b'\0').decode()))
                data = data[16 + length:]
        return found


@pytest.fixture(params=[None, without_confinement], ids=['here', 'where the kernel confines nothing'])
def prepare(request):
    """What a command does before it starts."""
    if request.param and not is_filter_possible():
        pytest.skip('this system has no system call filters')
    return request.param


def expect_unchanged(place, prepare, *commands):
    """None of these commands changes anything elsewhere, however it ends."""
    before = place.files()
    with Watch(place.elsewhere) as watch:
        for words in commands:
            done = place.run(*words, preexec_fn=prepare)
            expect(f'{words}: exit status', 0 <= done.returncode <= 4, True)
            expect(f'{words}: seen', watch.seen(), [])
            expect(f'{words}: elsewhere', place.files(), before)


def test_the_watch_sees(place):
    """A watch that sees nothing would prove nothing."""
    with Watch(place.elsewhere) as watch:
        (place.elsewhere / 'new').touch()
        (place.elsewhere / 'new').unlink()
        made = watch.seen()
        expect('what was made and removed', ('new' in {name for _, name in made}, len(made) >= 2), (True, True))


# What a run's notes could name elsewhere.
WRITTEN_KEYS = ('save', 'snapshot', 'write_rates', 'write_plan', 'output', 'offload_dir', 'resume', 'data', 'plan')


def test_notes_of_a_run(place, prepare):
    """A saved run that names files and folders elsewhere as its outputs, one by one and all of them."""
    run = place.save_run('--offload', 'activations:disk', '--offload-dir', place.out)
    expect('offloads', 'offload' in read_safetensors(run / 'training-2.safetensors')[1]['notes'], True)
    for number, keys in enumerate([(key,) for key in WRITTEN_KEYS] + [WRITTEN_KEYS]):
        for target in place.elsewhere, place.elsewhere / 'old', place.elsewhere / 'new':
            again = shutil.copytree(run, fresh(place, f'again-{number}'))
            rewrite_notes(again, lambda notes: '\n'.join(
                [f'{key}={target}' for key in keys] +
                [line for line in notes.split('\n') if line.partition('=')[0] not in keys]))
            expect_unchanged(place, prepare, ('train', '--resume', again, '--steps', 3),
                             ('train', '--resume', again, '--steps', 4, '--save', f'out/{number}-{target.name}'))


def test_every_option_in_notes(place, prepare):
    """Each option of train, as a saved run could have it: what it writes is never taken from there."""
    run = place.save_run()
    names = sorted(set(re.findall(r'^ +(?:-\w, )?--([a-z][a-z0-9-]*)', place.output('train', '--help-all'), re.M)) - {'help', 'help-all', 'version'})
    expect('options', {'write-rates', 'snapshot', 'save', 'offload-dir'} <= set(names) and len(names) > 50, True)
    for name in names:
        again = shutil.copytree(run, fresh(place, f'with-{name}'))
        rewrite_notes(again, lambda notes, key=name.replace('-', '_'): '\n'.join(
            [f'{key}={place.elsewhere / "new"}'] + [line for line in notes.split('\n') if line.partition('=')[0] != key]))
        expect_unchanged(place, prepare, ('train', '--resume', again, '--steps', 3))


# The output, and the file that it would replace: each belongs to a folder that the command reads.
OF_FOLDERS = [
    ('simulate', 'model', '--seq', 16, '-o', 'model/config.json'),
    ('simulate', 'model', '--seq', 16, '--write-plan', 'model/config.json'),
    ('simulate', 'model', '--seq', 16, '--ranks', 2, '-o', 'soft.pickle'),
    ('simulate', 'model', '--seq', 16, '--ranks', 2, '-o', 'hard.pickle'),
    ('plan', 'model', '--seq', 16, '--budget', '1GiB', '--write-plan', 'model/config.json'),
    ('plan', 'model', '--seq', 16, '--front', '--gpu', 't4', '--write-front', 'model/config.json'),
    ('plan', 'model', '--seq', 16, '--budget', '1GiB', '--largest', 'model', '--write-model', 'model/model.safetensors'),
    *(('train', 'model', '--data', 'sheep.txt', '--seq', 16, '--steps', 1, option, f'model/{name}')
      for option in ('--write-rates', '--write-plan', '--snapshot') for name in ('config.json', 'model.safetensors')),
    ('train', 'model', '--data', 'sheep.txt', '--seq', 16, '--steps', 1, '--save', 'model'),
    ('train', '--resume', 'run', '--steps', 3, '--write-rates', 'run/training-2.safetensors'),
    ('train', '--resume', 'run', '--steps', 3, '--save', 'out/run', '--snapshot', 'run/model.safetensors'),
    ('train', '--resume', 'run', '--steps', 3, '--save', 'out/run', '--write-rates', 'sheep.txt'),
]


@cases('words', OF_FOLDERS, [' '.join(map(str, words)) for words in OF_FOLDERS])
def test_outputs_keep_folders(place, words):
    """Files that a command finds in a folder are its inputs, too, and so is the data of a saved run; outputs of ranks have derived names."""
    run, model = place.save_run(), place.here / 'model'
    shutil.copy(run / 'model.safetensors', model)
    (place.here / 'rank1_soft.pickle').symlink_to('model/config.json')
    (place.here / 'rank1_hard.pickle').hardlink_to(model / 'config.json')
    before = {path: path.read_bytes() for path in place.here.rglob('*') if path.is_file()}
    done = place.run(*words, status=2)
    expect('a message', bool(re.search('write to another file|save to another folder', done.stderr)), True)
    expect('files', {path: path.read_bytes() for path in place.here.rglob('*') if path.is_file()}, before)


def test_offloads_to_its_own_folder(place):
    """A run that is resumed offloads to the folder that it is saved to, unless the folder is given again."""
    folder = place.here / 'scratch'
    folder.mkdir()
    run = place.save_run('--offload', 'activations:disk', '--offload-dir', folder)
    done = place.run('train', '--resume', run, '--steps', 3, status=0)
    expect('printed', f'--offload-dir {folder}, as {run} was saved, must be given again to be used; offloading to the '
           'folder that the run is saved to' in done.stderr, True)
    expect('quiet', place.run('train', '--resume', run, '--steps', 4, '-q', status=0).stderr, '')
    with Watch(folder) as watch:
        place.run('train', '--resume', run, '--steps', 5, '--offload-dir', folder, status=0)
        expect('given again', bool(watch.seen()), True)


def test_links_in_a_run(place, prepare):
    """Links in the folder that a run saves to are replaced, not followed; the folder of a link is not left."""
    run = place.save_run()
    for name in 'config.json', 'training-3.safetensors', 'training-1.safetensors', 'model.safetensors.tmp':
        for target in place.elsewhere / 'old', place.elsewhere / 'new', place.elsewhere:
            again = shutil.copytree(run, fresh(place, 'linked'))
            (again / name).unlink(missing_ok=True)
            (again / name).symlink_to(target)
            expect_unchanged(place, prepare, ('train', '--resume', again, '--steps', 3))


def test_names_in_a_run(place, prepare):
    """The weights name the file of the training that belongs to them; files of earlier saves are removed by name."""
    run = place.save_run()
    (place.elsewhere / 'training-2.safetensors').write_bytes((run / 'training-2.safetensors').read_bytes())
    for name in '../../elsewhere/training-2.safetensors', str(place.elsewhere / 'training-2.safetensors'), '../training-2':
        again = shutil.copytree(run, fresh(place, 'named'))
        arrays, notes = read_safetensors(again / 'model.safetensors')
        write_safetensors(again / 'model.safetensors', arrays, {**notes, 'tessera_training': name})
        expect_unchanged(place, prepare, ('train', '--resume', again, '--steps', 3), ('sample', again, '--tokens', 4))


def test_model_folder(place, prepare):
    """Weights in other folders, and a configuration that is a link or names files."""
    run, model = place.save_run(), place.here / 'model'
    arrays, _ = read_safetensors(run / 'model.safetensors')
    (place.elsewhere / 'part.safetensors').write_bytes((run / 'model.safetensors').read_bytes())
    for name in '../../elsewhere/part.safetensors', str(place.elsewhere / 'part.safetensors'), '../../elsewhere/new':
        (model / 'model.safetensors.index.json').write_text(
            json.dumps({'metadata': {}, 'weight_map': {array: name for array in arrays}}))
        expect_unchanged(place, prepare, ('sample', 'model', '--tokens', 4),
                         ('train', 'model', '--data', 'sheep.txt', '--seq', 16, '--steps', 1, '--save', fresh(place, 'kept')),
                         ('simulate', 'model', '--seq', 16, '-o', 'out/model.pickle'))
    (model / 'config.json').write_text(json.dumps({
        **GPT2, '_name_or_path': str(place.elsewhere / 'new'), 'save': str(place.elsewhere), 'output': str(place.elsewhere / 'old'),
        'auto_map': {'AutoConfig': '../../elsewhere/old'}}))
    expect_unchanged(place, prepare, ('simulate', 'model', '--seq', 16, '-o', 'out/model.pickle'),
                     ('plan', 'model', '--seq', 16, '--budget', '1GiB', '--write-plan', 'out/plan.json'))


def test_step_graph(place, prepare):
    """Texts of a step graph - files, modules, its title - name files elsewhere."""
    text = (place.here / 'step.graph').read_text()
    for target in place.elsewhere / 'old', place.elsewhere / 'new', '../elsewhere/new':
        (place.here / 'evil.graph').write_text(re.sub(r'"[^"]*\.py"', json.dumps(str(target)), text))
        expect_unchanged(place, prepare, ('simulate', 'evil.graph', '-o', 'out/evil.pickle'),
                         ('plan', 'evil.graph', '--budget', '1GiB', '--write-plan', 'out/plan.json'),
                         ('view', 'out/evil.pickle', '-o', 'out/evil.html'), ('source', 'out/evil.pickle', target))


def test_snapshot(place, prepare):
    """A sidecar that is a link, and outputs of ranks whose names are links that somebody else made in the output's folder."""
    (place.here / 'train.json').symlink_to(place.elsewhere / 'old')
    (place.out / 'rank1_run.json').symlink_to(place.elsewhere / 'absent' / 'new')
    expect_unchanged(place, prepare, ('peak', 'train.pickle', '-o', 'out/peak.json'),
                     ('view', 'train.pickle', '-o', 'out/page.html'),
                     ('simulate', 'model', '--seq', 16, '--ranks', 2, '-o', 'out/run.pickle'))
