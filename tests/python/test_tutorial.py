"""Code that others wrote for Mosaic, unchanged: PyTorch's tutorial and its notebook, which are next
to the checkout, and what Mosaic's README shows, in words of our own.

What needs a GPU is left out; what reads the snapshots that it would have made runs on real ones. The
tutorial is a web page's text and has lost its indentation, which is put back by its layout.
"""
import json
import os
import pickle
import re
import shlex
import shutil
import subprocess
import sys

import pytest

from conftest import shared

SNAPSHOTS = ['train-ctx1024-torch2.11', 'train-lm-small', 'train-steady-torch2.11']


def depth_after(line, depth):
    bare = re.sub(r'"[^"]*"|#.*', '', line)
    return depth + sum(bare.count(mark) for mark in '([{') - sum(bare.count(mark) for mark in ')]}')


def statements(lines):
    """Logical lines, as lists of lines; a text in triple quotes is one."""
    found, current, depth, in_text = [], [], 0, False
    for line in lines:
        current.append(line)
        in_text ^= line.count('"""') == 1
        depth = depth if in_text else depth_after(line, depth)
        if not depth and not in_text:
            found.append(current)
            current = []
    return found


def block(lines):
    """The code of `lines`: the first opens a block that holds the others, and an inner line that
    opens a block holds the one statement after it."""
    head, *body = statements(lines)
    code, nested = list(head), False
    for statement in body:
        code += [('        ' if nested else '    ') + line for line in statement]
        nested = not nested and statement[-1].rstrip().endswith(':')
    return '\n'.join(code) + '\n'


@pytest.fixture(scope='module')
def tutorial():
    return shared('seeds', '001_d4ea263d344ba3d6.txt').read_text().splitlines()


def section(lines, first, last):
    """From the line that is `first` up to, and without, the next that begins with `last`."""
    start = next(i for i, line in enumerate(lines) if line == first or line.startswith(first + '('))
    end = next(i for i in range(start + 1, len(lines)) if lines[i].startswith(last))
    return lines[start:end]


def code_after(lines, heading, last):
    at = lines.index(heading)
    return block(section(lines[at:], next(line for line in lines[at:] if line.startswith('if HAS_CUDA')),
                         last))


@pytest.fixture(params=SNAPSHOTS)
def names(request, snapshots, tmp_path, monkeypatch):
    """The names that the tutorial's code has by then, and files where it would have put them."""
    monkeypatch.chdir(tmp_path)
    path = snapshots / f'{request.param}.pickle'
    for name in ('snapshot_baseline', 'snapshot_with_ac', 'snapshot_debug_baseline',
                 'snapshot_with_bug', 'training_snapshot'):
        shutil.copy(path, f'{name}.pickle')
    monkeypatch.setenv('PATH', os.path.dirname(sys.executable) + os.pathsep + os.environ['PATH'])
    found = {'HAS_CUDA': True, 'HAS_MOSAIC_CLI': shutil.which('mosaic_get_memory_profile') is not None,
             'pipeline_snapshot_path': 'training_snapshot.pickle', 'json': json}
    exec('import subprocess\n'
         'from mosaic.libmosaic.analyzer.memory_abstract import MemoryAbstract\n', found)
    assert found['HAS_MOSAIC_CLI']
    return found


def test_the_python_interface(tutorial, names, capsys):
    exec(code_after(tutorial, 'Mosaic Memory Analysis via Python API#', 'Reusable'), names)
    out = capsys.readouterr().out
    exec(block(section(tutorial, 'def analyze_training_memory', 'if HAS_CUDA')), names)
    report = names['analyze_training_memory']('training_snapshot.pickle')
    assert f'Peak dynamic memory: {report["dynamic_peak_memory_gib"]:.3f} GiB' in out
    assert (report['overall_peak_memory_bytes']
            == report['dynamic_peak_memory_bytes'] + report['static_memory_bytes'] > 0)
    names['report'] = {'mosaic_analysis': {'overall_peak_gib': report['overall_peak_memory_gib']}}
    exec(block(section(tutorial, 'def check_memory_regression', 'Pattern 2')), names)
    names['check_memory_regression'](names['report'], threshold_gib=1000)
    with pytest.raises(AssertionError, match='Memory regression'):
        names['check_memory_regression'](names['report'], threshold_gib=0)


def test_the_commands_of_the_tutorial(tutorial, names, capsys):
    for heading, last in (('Analyze the Baseline (Clean) Snapshot#', 'Analyze the Buggy'),
                          ('Analyze the Buggy Snapshot#', 'Analyzing The')):
        exec(code_after(tutorial, heading, last), names)
        assert names['result'].returncode == 0 and 'Num of Calls' in names['result'].stdout
    for name, page in (('result1', 'profile_baseline.html'), ('result2', 'profile_with_ac.html')):
        start = tutorial.index(f'{name} = subprocess.run(')
        exec('\n'.join(statements(tutorial[start:])[0]), names)
        assert names[name].returncode == 0, names[name].stderr
        assert names[name].stdout.startswith('Memory Usage At Peak:') and os.path.exists(page)


def test_the_commands_of_the_notebook(names):
    text = shared('seeds', '000_f7af2b53d421e238.txt').read_text()
    commands = re.findall(r'"!(mosaic_\w+ [^"\\]*)', text)
    assert len(commands) == 2
    for command in commands:
        done = subprocess.run(shlex.split(command), capture_output=True, text=True, check=False)
        assert done.returncode == 0 and 'Category Profile:' in done.stdout, done.stderr


# ---- files that are not whole ----

def spoil(path, how):
    """Leaves a snapshot as a job that was killed, or a disk that was full, leaves it."""
    if how == 'missing':
        path.unlink()
    elif how == 'empty':
        path.write_bytes(b'')
    else:
        path.write_bytes(path.read_bytes()[:-1 if how == 'last byte' else path.stat().st_size // 2])


# What Mosaic raises: its reader is pickle.load, and without a file its data is an empty dict.
DAMAGE = [('missing', KeyError), ('half', pickle.UnpicklingError), ('last byte', pickle.UnpicklingError),
          ('empty', EOFError)]


@pytest.mark.parametrize('how, error', DAMAGE)
def test_the_tutorial_does_not_pass_on_less(tutorial, how, error, train, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv('PATH', os.path.dirname(sys.executable) + os.pathsep + os.environ['PATH'])
    path = tmp_path / 'training_snapshot.pickle'
    for name in ('training_snapshot', 'snapshot_baseline', 'snapshot_with_ac',
                 'snapshot_debug_baseline', 'snapshot_with_bug'):
        shutil.copy(train, tmp_path / f'{name}.pickle')
        spoil(tmp_path / f'{name}.pickle', how)
    if how != 'missing':
        with open(path, 'rb') as file, pytest.raises(error):
            pickle.load(file)
    found = {'HAS_CUDA': True, 'HAS_MOSAIC_CLI': True, 'pipeline_snapshot_path': path.name, 'json': json}
    exec('import subprocess\n'
         'from mosaic.libmosaic.analyzer.memory_abstract import MemoryAbstract\n', found)
    with pytest.raises(error):
        exec(code_after(tutorial, 'Mosaic Memory Analysis via Python API#', 'Reusable'), found)
    exec(block(section(tutorial, 'def analyze_training_memory', 'if HAS_CUDA')), found)
    with pytest.raises(error):
        found['analyze_training_memory'](path.name)
    assert 'passed' not in capsys.readouterr().out
    for heading, last in (('Analyze the Baseline (Clean) Snapshot#', 'Analyze the Buggy'),
                          ('Analyze the Buggy Snapshot#', 'Analyzing The')):
        exec(code_after(tutorial, heading, last), found)
        assert found['result'].returncode != 0 and 'Num of Calls' not in found['result'].stdout


@pytest.mark.parametrize('how, error', DAMAGE)
def test_the_readme_does_not_pass_on_less(how, error, made, tmp_path, capsys):
    from mosaic.cmd.entry_point import get_memory_profile, get_memory_usage_by_annotation_stage
    from mosaic.libmosaic.analyzer.memory_abstract import MemoryAbstract
    path = tmp_path / 'run.pickle'
    shutil.copy(made / 'stages.pickle', path)
    spoil(path, how)

    def peak():
        abstract = MemoryAbstract(memory_snapshot_file=str(path))
        abstract.load_memory_snapshot()
        abstract.memory_snapshot.analyze_memory_snapshot(opt='memory_peak')

    def stages():
        get_memory_usage_by_annotation_stage(snapshot=str(path), annotation=('forward',), paste=False)

    for call in (peak, stages):
        with pytest.raises(error):
            call()
    if how == 'missing':  # Mosaic's profile of no file is that of no events
        get_memory_profile(snapshot=str(path), out_path='', profile='categories')
        assert 'Total Allocated: 0.0GiB' in capsys.readouterr().out
    else:
        with pytest.raises(error):
            get_memory_profile(snapshot=str(path), out_path='', profile='categories')


@pytest.mark.parametrize('how', [how for how, _ in DAMAGE])
@pytest.mark.parametrize('command', ['get_memory_usage_peak', 'get_memory_profile',
                                     'get_memory_usage_by_annotation_stage', 'get_json_snapshot'])
def test_commands_do_not_pass_on_less(command, how, made, tmp_path):
    path, bin_folder = tmp_path / 'run.pickle', os.path.dirname(sys.executable)
    shutil.copy(made / 'stages.pickle', path)
    spoil(path, how)
    words = [os.path.join(bin_folder, f'mosaic_{command}'), '--snapshot', str(path)]
    out = {'get_memory_profile': ['--out_path', ''], 'get_json_snapshot': ['--output_file', '-']}
    done = subprocess.run([*words, *out.get(command, [])], capture_output=True, text=True, check=False)
    assert done.returncode == 3 and done.stdout == '', done.stderr
    if how == 'half':
        done = subprocess.run([*words, *out.get(command, []), '--allow_truncated'], capture_output=True,
                              text=True, check=False)
        assert done.returncode == 0 and 'WARNING:root:the file is truncated' in done.stderr, done.stderr


# ---- what the README shows ----

def test_the_readme(made, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    shutil.copy(made / 'stages.pickle', 'run.pickle')
    from mosaic.cmd.entry_point import get_memory_profile, get_memory_usage_by_annotation_stage
    from mosaic.libmosaic.analyzer.memory_abstract import MemoryAbstract
    abstract = MemoryAbstract(memory_snapshot_file='run.pickle')
    abstract.load_memory_snapshot()
    abstract.memory_snapshot.analyze_memory_snapshot(opt='memory_peak')
    assert abstract.memory_snapshot.memory_peak > 0
    get_memory_profile(snapshot='run.pickle', out_path='profile.html', profile='custom',
                       custom_profile=json.dumps({'Forward': '.*forward.*', 'Other': '.*'}))
    assert os.path.exists('profile.html')
    stages = get_memory_usage_by_annotation_stage(
        snapshot='run.pickle', annotation=('forward', 'backward', 'optimizer'), paste=False)
    assert stages and all(size >= 0 for _, size in stages.values())
    assert len(capsys.readouterr().out.splitlines()) >= len(stages)
