"""Models that are not built in: what happens without PyTorch, what is refused before it is asked, and the cache of graphs."""
import gzip
import importlib.util
import json
import os
import subprocess
import sys

import pytest

import tessera
from tessera import _child, _config
from tessera._fake_cuda import TraceError

QWEN3 = {'model_type': 'qwen3', 'hidden_size': 64, 'num_hidden_layers': 2}


@pytest.mark.skipif(importlib.util.find_spec('torch') is not None, reason='PyTorch is installed')
def test_packages_that_are_missing_are_named():
    for ask in (tessera.simulate, tessera.plan):
        with pytest.raises(tessera.UnsupportedError, match=r'pip install torch transformers; tessera\.trace\(\)'):
            ask(QWEN3, batch=2)
    with pytest.raises(tessera.UnsupportedError, match='pip install'):
        tessera.simulate('gpt2', padding=True)


def test_a_model_that_is_built_in_is_not_traced(monkeypatch):
    monkeypatch.setattr(subprocess, 'run', None)
    assert tessera.simulate({'model_type': 'gpt2'}, seq=16).peak.allocated_bytes > 0


def test_files_of_models_may_have_any_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / 'plainname').write_text(json.dumps({'model_type': 'gpt2'}))
    (tmp_path / 'folder').mkdir()
    (tmp_path / 'folder' / 'config.json').write_text(json.dumps({'model_type': 'gpt2'}))
    expected = tessera.simulate('gpt2', seq=16).peak.allocated_bytes
    assert tessera.simulate('plainname', seq=16).peak.allocated_bytes == expected
    assert tessera.simulate('folder', seq=16).peak.allocated_bytes == expected


@pytest.mark.parametrize('wrong, message', [
    ({'hidden_size': 10**9}, '"hidden_size" is not a size'), ({'hidden_size': -1}, '"hidden_size" is not a size'),
    ({'hidden_size': 'x'}, '"hidden_size" is not a size'), ({'vocab_size': 2.5}, '"vocab_size" is not a size'),
    ({'num_hidden_layers': 10**9}, '"num_hidden_layers" is beyond 4096'), ({'text_config': {'num_experts': 10**6}}, '"num_experts" is beyond 4096'),
    ({'model_type': None}, '"model_type" names none')])
def test_wrong_sizes_are_refused(wrong, message):
    with pytest.raises(TraceError, match=message):
        _config.described(json.dumps({**QWEN3, **wrong}))


@pytest.mark.parametrize('text', ['[]', 'null', '{', '[' * 100000])
def test_what_is_no_description_is_refused(text):
    with pytest.raises(TraceError):
        _config.described(text)


def test_nothing_that_loads_code_or_weights_is_left():
    given = {**QWEN3, '_attn_implementation': 'somebody/kernel', 'attn_implementation': 'x', 'quantization_config': {}, 'torch_dtype': 'x',
             'text_config': {'auto_map': {}, 'hidden_size': 8, 'use_pretrained_backbone': True}, 'parts': [{'_name_or_path': 'x'}]}
    assert _config.described(json.dumps(given)) == {**QWEN3, 'text_config': {'hidden_size': 8}, 'parts': [{}]}


def test_options_that_cannot_be_honoured_are_refused():
    for given, message in (({'gelu': 'fused'}, '--gelu fused: the model'), ({'zero': 2}, '--zero 2: one rank'), ({'book': 'own'}, '--book own: only')):
        with pytest.raises(TraceError, match=message):
            _config.Options(given, True).check()
    with pytest.raises(TraceError, match="gelu='fused': "):
        _config.Options({'gelu': 'fused'}, False).check()
    _config.Options({'batch': 2, 'gelu': 'eager', 'loss': 'full', 'ranks': 1, 'no_overlap': False, 'seq': None}, True).check()


# ---- The guard ----

GUARDED = '''
import os, socket, subprocess, sys, tempfile
from tessera._config import guarded
def attempt(what):
    try:
        what()
        print('yes')
    except PermissionError:
        print('no')
with guarded():
    attempt(lambda: open(sys.argv[1], 'w'))
    attempt(lambda: os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT))
    attempt(lambda: os.mkdir(sys.argv[1]))
    attempt(lambda: open('weights.safetensors'))
    attempt(lambda: subprocess.run(['true']))
    attempt(lambda: os.system('true'))
    attempt(lambda: socket.create_connection(('127.0.0.1', 9)))
    attempt(lambda: tempfile.mkdtemp())
    attempt(lambda: open(os.devnull, 'w'))
    attempt(lambda: open(os.__file__))
attempt(lambda: open(sys.argv[1], 'w'))
'''


def test_the_guard_refuses_what_a_description_has_no_reason_to_do(tmp_path):
    done = subprocess.run([sys.executable, '-c', GUARDED, tmp_path / 'made'], cwd=tmp_path, stdout=subprocess.PIPE, text=True, check=True)
    assert done.stdout.split() == ['no'] * 7 + ['yes'] * 4


# ---- The cache ----

@pytest.fixture(name='cache')
def fixture_cache(tmp_path, monkeypatch):
    monkeypatch.setenv('XDG_CACHE_HOME', str(tmp_path))
    return tmp_path / 'tessera' / 'graphs'


def test_graphs_are_kept(cache):
    assert _child._cached('a') is None
    _child._keep('a', 'a note', b'{}')
    assert _child._cached('a') == ('a note', b'{}')
    assert [path.name for path in cache.iterdir()] == ['a.gz'] and os.stat(cache).st_mode & 0o777 == 0o700


def test_damage_is_found(cache):
    _child._keep('a', 'a note', b'{"slots":' + bytes(range(256)) + b'}')
    whole = (cache / 'a.gz').read_bytes()
    for damaged in (whole[:-1], whole[:20], b'', whole[:40] + bytes([whole[40] ^ 1]) + whole[41:]):
        (cache / 'a.gz').write_bytes(damaged)
        assert _child._cached('a') is None


def test_the_oldest_go(cache, monkeypatch):
    monkeypatch.setattr(_child, '_CACHE_BYTES', 3 * len(gzip.compress(b'note\n{}', 6, mtime=0)))
    for number, name in enumerate('abcd'):
        _child._keep(name, 'note', b'{}')
        os.utime(cache / f'{name}.gz', (number, number))
    _child._keep('e', 'note', b'{}')
    assert sorted(path.name for path in cache.iterdir()) == ['c.gz', 'd.gz', 'e.gz']


def test_a_cache_that_cannot_be_written_is_none(tmp_path, monkeypatch):
    (tmp_path / 'tessera').write_text('a file')
    monkeypatch.setenv('XDG_CACHE_HOME', str(tmp_path))
    _child._keep('a', 'note', b'{}')
    assert _child._cached('a') is None
