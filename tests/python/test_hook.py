"""The hook of .pre-commit-hooks.yaml: what it says of files, and pre-commit itself running it in a repository."""
import os
import shutil
import subprocess
import sys

import pytest

from conftest import ROOT, posix_only
from tessera import hook


@pytest.fixture
def folder(tmp_path, made, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copy(made / 'step.graph', 'step.graph')
    return tmp_path


def grow(path):
    """The step's activation takes 10 MiB more."""
    text = path.read_text()
    assert text.count('16777216') == 1
    path.write_text(text.replace('16777216', '27262976'))


def test_a_graph_and_its_lock(folder, capsys):
    assert hook.main(['step.graph']) == 0
    assert 'there is no step.lock' in capsys.readouterr().out
    assert hook.main(['--update', 'step.graph', '--capacity', '24GiB']) == 0
    lock = (folder / 'step.lock').read_text()
    assert lock.startswith('tessera memory lock 2')
    assert hook.main(['step.lock']) == hook.main(['step.graph', 'step.lock', 'README.md']) == 0
    assert capsys.readouterr().out.count('Memory check passed') == 2
    grow(folder / 'step.graph')
    for changed in ('step.graph', 'step.lock'):
        assert hook.main([changed, '--capacity', '24GiB']) == 1
        said = capsys.readouterr().out
        assert 'grew by 10.00 MiB' in said
        assert said.endswith('If this is meant: python -m tessera.hook --update --capacity 24GiB step.graph\n')
    assert (folder / 'step.lock').read_text() == lock


def test_budgets(folder, capsys):
    assert hook.main(['--max', '1GiB', 'step.graph']) == 0
    assert hook.main(['--max', '1MiB', 'step.graph']) == 1
    assert hook.main(['--capacity', '1GiB', 'step.graph']) == 0
    capsys.readouterr()
    assert hook.main(['--capacity', '100MiB', 'step.graph']) == 1
    assert capsys.readouterr().out.startswith('step.graph: does not fit in 100.00 MiB: ')


def test_what_cannot_be_read(folder, capsys):
    (folder / 'bad.graph').write_text('{}')
    (folder / 'lone.lock').write_text('x')
    for text in ('{"version": 1, "a": 1}', '{"version": 1,\n<<<<<<< HEAD\n'):
        (folder / 'bad.plan.json').write_text(text)
        assert hook.main(['bad.plan.json']) == 1
    assert hook.main(['bad.graph']) == 1
    capsys.readouterr()
    assert hook.main(['lone.lock', 'removed.graph', 'removed.plan.json', 'removed.lock']) == 0
    assert capsys.readouterr().out == ''
    (folder / 'lone.lock').write_text('tessera memory lock 2\n')
    assert hook.main(['lone.lock']) == 0
    assert 'lone.lock: not checked: no step graph has this lock' in capsys.readouterr().out
    (folder / 'step.lock').write_text('not a lock')
    assert hook.main(['step.lock']) == 1


@pytest.mark.parametrize('text', ['{"format_version": "1.2", "planned_values": {}}', '{"version": "1.0.0"}', '{"version": true', '[1]', '', '\udcff'])
def test_a_plan_of_another_program(folder, capsys, text):
    (folder / 'plan.json').write_text(text, errors='surrogateescape')
    assert hook.main(['plan.json']) == 0 and capsys.readouterr().out == 'plan.json: not a plan of tessera: skipped\n'


def test_a_lock_with_a_name_of_its_own(folder, capsys):
    (folder / 'graphs').mkdir()
    shutil.copy('step.graph', 'graphs/other.graph')
    subprocess.run('git init -q && git add -A', shell=True, check=True)
    for lock, graph, path in (('memory.lock', 'step.graph', 'memory.lock'), ('locks/{name}.lock', 'graphs/other.graph', 'locks/other.lock')):
        os.makedirs('locks', exist_ok=True)
        assert hook.main(['--lock', lock, '--update', graph]) == 0 and os.path.exists(path)
        capsys.readouterr()
        assert hook.main(['--lock', lock, path]) == 0
        assert f'{graph}: Memory check passed' in capsys.readouterr().out
    grow(folder / 'graphs/other.graph')
    assert hook.main(['--lock', 'locks/{name}.lock', 'locks/other.lock']) == 1
    assert capsys.readouterr().out.endswith("If this is meant: python -m tessera.hook --update --lock 'locks/{name}.lock' graphs/other.graph\n")


def test_a_plan(folder, capsys):
    subprocess.run([sys.executable, '-m', 'tessera', 'simulate', 'gpt2', '--checkpoint', 'full', '--write-plan', 'plan.json'], check=True,
                   capture_output=True)
    assert hook.main(['plan.json']) == 0 and capsys.readouterr().out == 'plan.json: a plan\n'


def test_names_that_look_like_options(folder, capsys):
    shutil.copy('step.graph', '--max')
    shutil.copy('step.graph', '--update.graph')
    assert hook.main(['--update.graph']) == 0
    assert './--update.graph: can be simulated' in capsys.readouterr().out and not os.path.exists('--update.lock')


# ---- pre-commit ----


@posix_only
def test_pre_commit_runs_it(folder):
    """From a clone of a repository that has the hook's file, as from this one."""
    pytest.importorskip('pre_commit', reason='pre-commit is not installed')
    environment = {**os.environ, 'PRE_COMMIT_HOME': str(folder / 'home'), 'GIT_CONFIG_GLOBAL': str(folder / 'gitconfig'),
                   'PATH': f'{os.path.dirname(sys.executable)}{os.pathsep}{os.environ["PATH"]}'}
    (folder / 'gitconfig').write_text('[user]\nname = a\nemail = a@b\n[protocol "file"]\nallow = always\n[init]\ndefaultBranch = main\n')

    def run(*words, cwd, status=0):
        done = subprocess.run(words, cwd=cwd, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        assert done.returncode == status, done.stdout
        return done.stdout
    source, user = folder / 'source', folder / 'user'
    for place in (source, user):
        place.mkdir()
        run('git', 'init', '-q', cwd=place)
    shutil.copy(ROOT / '.pre-commit-hooks.yaml', source)
    run('git', 'add', '.', cwd=source)
    run('git', 'commit', '-qm', 'the hook', cwd=source)
    revision = run('git', 'rev-parse', 'HEAD', cwd=source).strip()
    (user / '.pre-commit-config.yaml').write_text(
        f'repos:\n- repo: file://{source}\n  rev: {revision}\n  hooks:\n  - id: tessera\n    args: [--capacity, 24GiB]\n')
    shutil.copy('step.graph', user / 'a $(touch pwned).graph')
    shutil.copy('step.graph', user / '-b.graph')
    run(sys.executable, '-m', 'tessera.hook', '--update', 'a $(touch pwned).graph', '-b.graph', cwd=user)
    run('git', 'add', '.', cwd=user)
    precommit = (sys.executable, '-m', 'pre_commit')
    assert 'Passed' in run(*precommit, 'run', '--verbose', cwd=user)
    run('git', 'commit', '-qm', 'graphs', '--no-verify', cwd=user)
    for name in ('notes.md', 'uv.lock', 'poetry.lock', 'sub/Cargo.lock', 'plans.json'):
        (user / name).parent.mkdir(exist_ok=True)
        (user / name).write_text('nothing of it')
    run('git', 'add', '.', cwd=user)
    assert 'no files to check' in run(*precommit, 'run', cwd=user)
    grow(user / '-b.graph')
    run('git', 'add', '.', cwd=user)
    said = run(*precommit, 'run', cwd=user, status=1)
    assert 'Failed' in said and 'grew by 10.00 MiB' in said and 'a $(touch' not in said
    assert not list(folder.rglob('pwned'))
