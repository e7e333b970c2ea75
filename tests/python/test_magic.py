"""%tessera and %%tessera: in IPython's shell in this process, and in a notebook that runs to its end."""
import json
import os
import sys
import tempfile

import fake_torch
import pytest
from record_fixtures import process, record, recorder, torch  # noqa: F401

import tessera
from conftest import HANG_S, posix_only

Config = pytest.importorskip('traitlets.config', reason='IPython is not installed').Config
shells = pytest.importorskip('IPython.core.interactiveshell', reason='IPython is not installed')
pytestmark = posix_only
GIB = 1 << 30


def out_of_memory_snapshot():
    """What PyTorch would write as memory runs out: 2 GiB held, and 1 GiB more requested."""
    frames = [{'name': 'forward', 'filename': 'model.py', 'line': 12}]
    base = 0x7f0000000000
    entry = {'stream': 0, 'time_us': 1, 'frames': frames}
    trace = [dict(entry, action='segment_alloc', addr=base, size=2 * GIB), dict(entry, action='alloc', addr=base, size=2 * GIB),
             dict(entry, action='oom', addr=GIB // 2, size=GIB, device_free=GIB // 2)]
    block = {'address': base, 'size': 2 * GIB, 'requested_size': 2 * GIB, 'state': 'active_allocated', 'frames': frames}
    segment = {'device': 0, 'address': base, 'total_size': 2 * GIB, 'allocated_size': 2 * GIB, 'active_size': 2 * GIB,
               'requested_size': 2 * GIB, 'stream': 0, 'segment_type': 'large', 'segment_pool_id': (0, 0), 'is_expandable': False,
               'frames': frames, 'blocks': [block]}
    return {'segments': [segment], 'device_traces': [trace], 'allocator_settings': {}}


@pytest.fixture
def shell(monkeypatch, tmp_path):
    """A shell with the extension, and what it displayed."""
    monkeypatch.setenv('IPYTHONDIR', str(tmp_path / 'ipython'))
    main = sys.modules['__main__']  # a shell puts its own there
    config = Config()
    config.HistoryManager.enabled = False  # it would leave a thread
    made = shells.InteractiveShell.instance(config=config)
    shown = []
    monkeypatch.setattr('IPython.display.display', shown.append)
    made.user_ns.clear()
    made.init_user_ns()
    made.shown = shown
    assert made.run_cell('%load_ext tessera').success
    yield made
    made.run_cell('%unload_ext tessera')
    made.extension_manager.loaded.discard('tessera')
    shells.InteractiveShell.clear_instance()
    sys.modules['__main__'] = main


def run(shell, text, capsys):
    """(the result, what was printed)."""
    result = shell.run_cell(text)
    captured = capsys.readouterr()
    return result, captured.out + captured.err


# ---- a cell ----


def test_a_cell_is_recorded_and_shown(torch, shell, capsys, tmp_path, monkeypatch):  # noqa: F811
    monkeypatch.setattr(tempfile, 'tempdir', str(tmp_path))
    result, said = run(shell, '%%tessera --as s --height 500\nx = 1\nx + 1', capsys)
    assert result.success and result.result == 2 and shell.user_ns['x'] == 1
    assert said.startswith('Device 0: ') and 'peak' in said.splitlines()[0]
    (page,) = shell.shown
    assert isinstance(page, tessera.Page) and 'height:500px' in page._repr_html_()
    assert said.splitlines()[0] == shell.user_ns['s'].peak().verdict[0]
    assert not torch.fake.recording and recorder.active == [] and not list(tmp_path.glob('tessera-*'))


def test_files_are_kept_where_they_are_wanted(torch, shell, capsys, tmp_path):  # noqa: F811
    result, said = run(shell, f'%%tessera --out "{tmp_path}/a b" --no-page\nimport tessera\ntessera.record.dump("mine");', capsys)
    assert result.success and result.result is None and shell.shown == []
    written = sorted(path.name for path in (tmp_path / 'a b').glob('*.pickle'))
    assert [name.rpartition('_')[2] for name in written] == ['end.pickle', 'mine.pickle']
    assert all(str(tmp_path / 'a b' / name) in said for name in written)


def test_a_folder_of_the_home(torch, shell, capsys, tmp_path, monkeypatch):  # noqa: F811
    monkeypatch.setenv('HOME', str(tmp_path))
    monkeypatch.chdir(tmp_path)
    result, _ = run(shell, '%%tessera --out ~/runs --no-page\n1', capsys)
    assert result.success and list((tmp_path / 'runs').glob('*.pickle')) and not (tmp_path / '~').exists()


@pytest.mark.parametrize('cell, value', [('5;', None), ('5; # not shown', None), ('5 # shown;', 5), ('"a;"', 'a;'), ('5;\n\n# end', None), ('x = 5;', None),
                                         ("!echo it's;\n5", 5)])
def test_a_semicolon_hides_the_value(torch, shell, capsys, cell, value):  # noqa: F811
    result, _ = run(shell, f'%%tessera --no-page\n{cell}', capsys)
    assert result.success and result.result == value


def test_imports_from_future_of_earlier_cells(torch, shell, capsys):  # noqa: F811
    assert run(shell, 'from __future__ import annotations', capsys)[0].success
    result, _ = run(shell, '%%tessera --no-page\ndef f(x: undefined): pass\nf.__annotations__', capsys)
    assert result.success and result.result == {'x': 'undefined'}
    # ... and of a recorded cell.
    shell.compile.reset_compiler_flags()
    assert run(shell, '%%tessera --no-page\nfrom __future__ import annotations', capsys)[0].success
    assert run(shell, 'def g(x: undefined): pass', capsys)[0].success
    shell.compile.reset_compiler_flags()


@pytest.mark.parametrize('observed', [True, False])
def test_a_cell_that_runs_out_of_memory(torch, shell, capsys, observed, tmp_path, monkeypatch):  # noqa: F811
    monkeypatch.setattr(tempfile, 'tempdir', str(tmp_path))
    if not observed:
        del torch._C._cuda_attach_out_of_memory_observer
    torch.fake.snapshot = out_of_memory_snapshot
    result, said = run(shell, '%%tessera --as s\ny = 1\nimport torch\ntorch.fake.run_out_of_memory()\ny = 2', capsys)
    assert isinstance(result.error_in_exec, torch.OutOfMemoryError) and shell.user_ns['y'] == 1
    assert str(shell.user_ns['s'].why()) in said and 'out of memory' in said.lower() and 'model.py:12' in said
    assert said.index('model.py:12') < said.index('Traceback') and 'torch.fake.run_out_of_memory()' in said
    assert len(shell.shown) == 1 and not torch.fake.recording
    (kept,) = tmp_path.glob('tessera-*/*_oom.pickle')
    assert f'tessera: wrote {kept}' in said


def test_a_cell_that_survives_it(torch, shell, capsys):  # noqa: F811
    torch.fake.snapshot = out_of_memory_snapshot
    cell = '%%tessera\nimport torch\ntry:\n    torch.fake.run_out_of_memory()\nexcept RuntimeError:\n    z = 3'
    result, said = run(shell, cell, capsys)
    assert result.success and shell.user_ns['z'] == 3 and 'model.py:12' in said and len(shell.shown) == 1


def test_another_exception_passes(torch, shell, capsys):  # noqa: F811
    result, said = run(shell, '%%tessera\n1 / 0', capsys)
    assert isinstance(result.error_in_exec, ZeroDivisionError) and '1 / 0' in said and len(shell.shown) == 1
    result, said = run(shell, '%%tessera\nif', capsys)
    assert isinstance(result.error_in_exec or result.error_before_exec, SyntaxError)


def test_what_cannot_be_shown_does_not_hide_the_cell(torch, shell, capsys):  # noqa: F811
    torch.fake.snapshot = lambda: {'neither': 'segments'}
    result, said = run(shell, '%%tessera\n5', capsys)
    assert result.result == 5 and 'tessera: ' in said


def test_a_cell_without_a_device(shell, capsys):
    fake_torch.install(initialized=False)
    result, said = run(shell, '%%tessera\n6', capsys)
    assert result.result == 6 and 'used no GPU memory' in said and shell.shown == []


# ---- a file ----


def test_a_file_is_shown(shell, capsys, train):
    result, said = run(shell, f'%tessera "{train}" --as s --width 80%', capsys)
    assert result.success and result.result is None and said == ''
    (page,) = shell.shown
    assert 'width:80%' in page._repr_html_() and page == shell.user_ns['s'].view()
    result, _ = run(shell, f'%tessera {train} steps', capsys)
    assert str(result.result) == str(tessera.open(train).steps())


def test_each_question_has_an_answer(shell, train):
    from tessera import _magic
    for question in _magic.QUESTIONS:
        assert shell.run_cell(f'%tessera {train} {question}').success


# ---- words ----


@pytest.mark.parametrize('line', ['%%tessera --help\nx', '%tessera --help', '%tessera -h'])
def test_help(shell, capsys, line):
    result, said = run(shell, line, capsys)
    assert result.success and 'usage: %' in said and '--as NAME' in said and 'x' not in shell.user_ns


@pytest.mark.parametrize('line, said', [
    ('%tessera', 'file'), ('%tessera a.pickle colour', 'QUESTION'), ('%%tessera --depth 3\n1', 'unrecognized'),
    ('%tessera a.pickle --as 1x', 'name of a variable'), ('%tessera a.pickle --width wide', 'width'), ('%tessera "a', 'quotation')])
def test_wrong_words_are_said(shell, capsys, line, said):
    result, told = run(shell, line, capsys)
    assert type(result.error_in_exec).__name__ == 'UsageError' and said in str(result.error_in_exec) and 'Traceback' not in told


def test_a_file_that_is_none(shell, capsys, tmp_path):
    result, _ = run(shell, f'%tessera {tmp_path}/absent.pickle', capsys)
    assert isinstance(result.error_in_exec, tessera.Error)


# ---- a notebook ----


def test_a_notebook_runs_to_its_end(tmp_path, monkeypatch):
    """A kernel of its own, with the stand-in for PyTorch; outputs are as a reader sees them."""
    pytest.importorskip('ipykernel')
    nbclient, nbformat = pytest.importorskip('nbclient'), pytest.importorskip('nbformat')
    here = os.path.dirname(os.path.abspath(__file__))
    cells = [
        f'import sys\nsys.path.insert(0, {here!r})\nimport fake_torch, test_magic\ntorch = fake_torch.install()',
        '%load_ext tessera',
        '%%tessera --as s\nx = 2 * 21\nx',
        's.peak()',
        '%%tessera\ntorch.fake.snapshot = test_magic.out_of_memory_snapshot\ntorch.fake.run_out_of_memory()',
        'x + 1',
    ]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(text) for text in cells])
    notebook.cells[4].metadata['tags'] = ['raises-exception']
    # Another user's or system's kernel named python3 would run another Python.
    for name in ('JUPYTER_DATA_DIR', 'JUPYTER_PATH', 'JUPYTER_RUNTIME_DIR', 'JUPYTER_CONFIG_DIR', 'IPYTHONDIR'):
        monkeypatch.setenv(name, str(tmp_path))
    environment = dict(os.environ)
    client = nbclient.NotebookClient(notebook, timeout=HANG_S, startup_timeout=HANG_S, kernel_name='python3',
                                     resources={'metadata': {'path': str(tmp_path)}})
    client.execute(env=environment)
    recorded, died = notebook.cells[2].outputs, notebook.cells[4].outputs
    kinds = [[output.output_type for output in outputs] for outputs in (recorded, died)]
    assert kinds == [['stream', 'display_data', 'execute_result'], ['stream', 'stream', 'display_data', 'error']], json.dumps(died)[:3000]
    assert recorded[0].text.startswith('Device 0: ') and '<iframe' in recorded[1].data['text/html'] and recorded[2].data['text/plain'] == '42'
    assert 'wrote' in died[0].text and 'model.py:12' in died[1].text
    assert '<iframe' in died[2].data['text/html'] and died[3].ename == 'OutOfMemoryError'
    assert notebook.cells[5].outputs[0].data['text/plain'] == '43'
