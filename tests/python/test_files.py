"""What is written: exports, parts, pages; and the command inside the package."""
import io
import json
import os
import pickle
import stat
import subprocess
import sys

import pytest

import tessera
from conftest import COMMAND


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
        s._core.view([3], {}, -1)


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
    script = os.path.join(os.path.dirname(sys.executable), 'tessera')
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
