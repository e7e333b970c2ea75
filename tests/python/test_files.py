"""What is written: exports, parts, pages; and the command inside the package."""
import io
import json
import os
import pickle
import stat
import subprocess
import sys
import sysconfig

import pytest

import tessera
from conftest import COMMAND, module_of_tests, posix_only


def test_exports_say_the_same(train, tmp_path):
    s = tessera.open(train)
    raw = pickle.loads(train.read_bytes())
    assert pickle.loads(s.export()) == raw
    s.export(tmp_path / 'a.pickle')
    assert pickle.loads((tmp_path / 'a.pickle').read_bytes()) == raw
    s.export(tmp_path / 'a.json')
    assert json.loads((tmp_path / 'a.json').read_text()) == json.loads(json.dumps(raw))
    assert s.export(format='python-json').decode() == json.dumps(raw, indent=4)
    stream = io.BytesIO()
    assert s.export(stream, 'json') is None and stream.getvalue() == (tmp_path / 'a.json').read_bytes()
    assert stat.S_IMODE((tmp_path / 'a.json').stat().st_mode) == 0o666 & ~umask()
    assert sorted(path.name for path in tmp_path.iterdir()) == ['a.json', 'a.pickle']


def umask():
    mask = os.umask(0)
    os.umask(mask)
    return mask


@pytest.mark.skipif(not COMMAND, reason='no binary to compare with (TESSERA_COMMAND)')
def test_formats_as_the_command(train, tmp_path):
    s = tessera.open(str(train))
    for ending in ('.folded', '.speedscope.json', '.pb.gz', '.perfetto.json', '.csv', '.json', '.pickle'):
        ours, theirs = tmp_path / f'ours{ending}', tmp_path / f'theirs{ending}'
        s.export(str(ours))
        subprocess.run([COMMAND, 'export', '-q', '-o', theirs, train], check=True)
        assert ours.read_bytes() == theirs.read_bytes(), ending
    for options, words in (({'event': 3}, ['--event', '3']), ({'events': (2, 9)}, ['--events', '2..9']),
                           ({'full_stacks': True}, ['--full-stacks'])):
        subprocess.run([COMMAND, 'export', '--format', 'folded', *words, '-o', tmp_path / 'f', train],
                       check=True)
        assert s.export(format='folded', **options) == (tmp_path / 'f').read_bytes()
    subprocess.run([COMMAND, 'view', '-o', tmp_path / 'page.html', train], check=True)
    assert s.view() == (tmp_path / 'page.html').read_text()


def test_a_file_changes_only_when_all_is_written(train, tmp_path):
    s = tessera.open(train)
    target = tmp_path / 'kept.folded'
    target.write_text('before')
    with pytest.raises(tessera.ArgumentError):
        s.export(target, event=10**9)
    assert target.read_text() == 'before' and len(list(tmp_path.iterdir())) == 1
    with pytest.raises(FileNotFoundError):
        s.export(tmp_path / 'absent' / 'a.json')
    with pytest.raises(ValueError, match='no such format'):
        s.export(format='png')
    with pytest.raises(TypeError, match='trim'):
        s.export(format='json', device=0)
    if os.path.exists('/dev/full'):
        with pytest.raises(OSError):
            s.export('/dev/full', 'json')


@posix_only
def test_no_output_replaces_an_input(made, tmp_path, monkeypatch):
    for name in ('told.pickle', 'told.json'):
        (tmp_path / name).write_bytes((made / name).read_bytes())
    monkeypatch.chdir(tmp_path)
    s = tessera.open('told.pickle')
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    os.symlink('told.pickle', 'link.pickle')
    os.link('told.pickle', 'hard.pickle')
    (tmp_path / 'below').mkdir()
    monkeypatch.chdir(tmp_path / 'below')
    for target in ('../told.pickle', tmp_path / 'told.pickle', '../link.pickle', '../hard.pickle', '../told.json',
                   os.fsencode(tmp_path / 'told.json')):
        for write in (s.export, s.trim(events=(0, 3)).export, s.view, pickle.loads(pickle.dumps(s)).export):
            with pytest.raises(tessera.ArgumentError, match='input'):
                write(target) if write == s.view else write(target, 'json')
    with pytest.raises(tessera.ArgumentError, match='input'):
        tessera.open(made / 'train.pickle').view('../told.pickle', s)
    monkeypatch.chdir(tmp_path)
    assert {name: (tmp_path / name).read_bytes() for name in before} == before
    s.export('other.pickle')
    s.export('other.pickle')
    with open('told.pickle', 'rb') as file:
        tessera.open(file).export('told.json', 'json')  # that file was not opened by its name


@posix_only
def test_links_stay_links(train, tmp_path):
    s = tessera.open(train)
    for name, target in (('old', 'old.json'), ('new', 'new.json')):
        os.symlink(target, tmp_path / name)
    (tmp_path / 'old.json').write_text('before')
    os.chmod(tmp_path / 'old.json', 0o600)
    for name in ('old', 'new'):
        s.export(tmp_path / name, 'json')
        assert (tmp_path / name).is_symlink()
        assert (tmp_path / f'{name}.json').read_bytes() == s.export(format='json')
    assert stat.S_IMODE((tmp_path / 'old.json').stat().st_mode) == 0o600
    assert len(list(tmp_path.iterdir())) == 4


def test_what_is_empty_is_written_too(tmp_path):
    s = tessera.open({'segments': [], 'device_traces': []})
    s.export(tmp_path / 'empty.folded')
    assert (tmp_path / 'empty.folded').read_bytes() == s.export(format='folded') == b''


SIGNALLED = """
import os, signal, sys
import tessera
source, target = sys.argv[1:]
s = tessera.open(source)
seen = []

def handler(number, frame):
    seen.append(number)

signal.signal(signal.SIGALRM, handler)
signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
for _ in range(20):
    s.export(target, 'python-json')
signal.setitimer(signal.ITIMER_REAL, 0)
assert seen
with open(target, 'rb') as file:
    assert file.read() == s.export(format='python-json')

def stop(number, frame):
    raise KeyboardInterrupt

signal.signal(signal.SIGALRM, stop)
with open(target, 'w') as file:
    file.write('before')
for attempt in range(400):  # earlier and earlier, since nobody knows how long it takes here
    try:
        signal.setitimer(signal.ITIMER_REAL, max(0.002 * 0.97**attempt, 1e-5))
        s.export(target, 'python-json')
        signal.setitimer(signal.ITIMER_REAL, 0)
    except KeyboardInterrupt:
        break
else:
    sys.exit('never interrupted')
assert os.listdir(os.path.dirname(target)) == [os.path.basename(target)], os.listdir(os.path.dirname(target))
"""


@pytest.mark.parametrize('nameless', [True, False])
@posix_only
def test_signals_during_writing(made, tmp_path, nameless):
    """A handler runs and the file is complete; one that raises leaves nothing behind. Also where the file
    system has no files without names, so that one with a temporary name is being written."""
    traced = module_of_tests('golden/traced')
    if not nameless and not traced.is_filter_possible():
        pytest.skip('no filter of system calls here')
    done = subprocess.run([sys.executable, '-c', SIGNALLED, made / 'loop.pickle', tmp_path / 'out'],
                          preexec_fn=None if nameless else traced.without_nameless_files,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_trim(train):
    s = tessera.open(train)
    part = s.trim(events=(2, 9))
    assert len(part.events) == 8
    assert part.events.address.tolist() == s.events.address[2:10].tolist()
    assert len(s.trim(events=(None, 4)).events) == 5
    assert len(s.trim().events) == len(s.events)
    times = s.events.time_us
    assert s.trim(times=(times[3], times[4])).events.time_us[0] == times[3]
    with pytest.raises(tessera.ArgumentError):
        s.trim(events=(10**9, None))
    with pytest.raises(TypeError):
        s.trim(events=3)


def test_pages(train, tmp_path):
    s = tessera.open(train)
    s.view(tmp_path / 'page.html', s, by='stack', capacity='80GiB', blocks=100)
    assert (tmp_path / 'page.html').read_text().startswith('<!doctype html>')
    stream = io.StringIO()
    s.view(stream)
    assert stream.getvalue() == s.view()
    with pytest.raises(tessera.ArgumentError, match='by takes category'):
        s.view(by='weather')
    for by in ('op', 'module', 'line', 'compile-context', 'compile_context'):
        assert s.view(by=by, blocks=10)
    for by in ('op', 'line'):
        made = f'{{"key":"{by}"'
        assert made in s.view(by=by) and made not in s.view()
    assert s.view(rules={'a': 'forward'}, events=(2, 9), ordered=True) != s.view()
    with pytest.raises(TypeError, match='rules'):
        s.view(by='rules')
    with pytest.raises(TypeError, match='snapshots'):
        s._core.view([3], {}, None)


def run(*words, **options):
    # An explicit environment: readline, which pytest loads, sets COLUMNS where only C programs see it.
    options.setdefault('env', dict(os.environ))
    return subprocess.run([sys.executable, '-m', 'tessera', *map(str, words)], capture_output=True,
                          text=True, check=False, **options)


def test_the_command(train, made):
    done = run('peak', train)
    assert (done.returncode, done.stderr) == (0, '')
    assert done.stdout == tessera.open(train).peak().text()
    assert run('--version').stdout == f'tessera {tessera.__version__}\n'
    assert run('peak', '/nonexistent').returncode == 3
    assert run('nonsense').returncode == 2
    script = os.path.join(sysconfig.get_path('scripts'), 'tessera')
    done = subprocess.run([script, 'peak', train], capture_output=True, text=True, check=False,
                          env=dict(os.environ))
    assert done.stdout == tessera.open(train).peak().text()


def test_a_closed_pipe_is_no_failure(real):
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run([sys.executable, '-m', 'tessera', 'export', '--format', 'json', str(real)],
                          stdout=writer, stderr=subprocess.PIPE, check=False)
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, b'')
