"""Types: the package's own, what a type checker makes of programs that use it, and what help shows."""
import importlib
import inspect
import keyword
import pkgutil
import subprocess
import sys
import textwrap
import typing

import pytest

import tessera
from conftest import ROOT
from tessera import _fields

CONFIG = ROOT / 'pyproject.toml'

pytest.importorskip('mypy', reason='mypy is not installed')


def run(*words):
    done = subprocess.run([sys.executable, '-m', *map(str, words)], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, check=False)
    return done.returncode, done.stdout


@pytest.fixture(scope='module')
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp('mypy')


def test_the_package_is_strict(cache):
    status, said = run('mypy', '--config-file', CONFIG, '--cache-dir', cache, ROOT / 'python' / 'tessera')
    assert status == 0, said


def test_the_drop_in_is_strict(cache):
    pytest.importorskip('mosaic')
    status, said = run('mypy', '--config-file', CONFIG, '--cache-dir', cache, ROOT / 'python' / 'mosaic' / 'mosaic')
    assert status == 0, said


def test_what_is_declared_is_what_runs():
    status, said = run('mypy.stubtest', 'tessera', '--concise', '--ignore-unused-allowlist',
                       '--mypy-config-file', CONFIG,
                       '--allowlist', ROOT / 'tests' / 'python' / 'stubtest.txt')
    assert status == 0, said


def checked(text, cache, tmp_path):
    """What mypy --strict says of a program that uses the installed package."""
    program = tmp_path / 'program.py'
    program.write_text(textwrap.dedent(text))
    status, said = run('mypy', '--strict', '--cache-dir', cache, program)
    return status, said.replace(str(program), 'program.py')


def test_programs_have_types(cache, tmp_path):
    status, said = checked('''\
        from typing import AsyncIterator, List, Optional, Tuple
        from typing_extensions import assert_type

        import tessera
        import tessera.callbacks

        s = tessera.open("a.pickle")
        assert_type(s.peak().peak.allocated_bytes, int)
        assert_type(s.peak().stacks[0].frames[0].line, Optional[int])
        assert_type(s.why().causes[0].covers_missing, bool)
        assert_type(s.steps().steps[0].first_event, int)
        assert_type(s.profile(over_time=10).history.moments[0].groups, Tuple[Tuple[int, int], ...])
        assert_type(s.check(max="1 GiB").results[0].causes[0].name, str)
        assert_type(s.events[s.events.size_bytes > 512].head(3).tail(2), tessera.Events)
        assert_type(s.live().live(3)[:5], tessera.Allocations)
        assert_type(s.diff("b.pickle").changes[0].delta_bytes, int)
        assert_type(tessera.simulate("gpt2", batch=1).snapshot, tessera.Snapshot)

        @tessera.record
        def bare(x: int) -> str: return str(x)

        @tessera.record("out/", steps=[3], every=10.0, signal="SIGTERM")
        def train(x: int, *, y: float = 0.0) -> List[str]: return []

        @tessera.record(max_entries=10)
        async def items(count: int) -> AsyncIterator[int]:
            yield count

        class Trainer:
            @tessera.record("out/")
            def fit(self, epochs: int) -> float: return 0.0

        assert_type(bare(1), str)
        assert_type(train(1, y=2.0), List[str])
        assert_type(items(3), AsyncIterator[int])
        assert_type(Trainer().fit(3), float)
        with tessera.record("out/", quiet=True) as recording:
            assert_type(recording.files, List[str])
        assert_type(tessera.record.start("out/", keep=2).dump(), Optional[str])
        with tessera.callbacks.TrainingLoop("out/", log_every=5, steps=[1]) as loop:
            loop.step()
        ''', cache, tmp_path)
    assert status == 0, said


@pytest.mark.parametrize('line, error', [
    ('s.peek()', 'has no attribute "peek"'),
    ('s.peak().stakcs', 'has no attribute "stakcs"'),
    ('s.peak().stacks[0].byte', 'has no attribute "byte"'),
    ('tessera.recrod("out/")', 'has no attribute "recrod"'),
    ('tessera.record("out/", stepps=[3])', 'No overload variant'),
    ('tessera.record("out/", keep="3")', 'No overload variant'),
    ('tessera.record.start("out/", stepps=[3])', '"stepps"'),
    ('train("1")', 'incompatible type "str"'),
])
def test_mistakes_are_found(line, error, cache, tmp_path):
    status, said = checked(f'''\
        import tessera
        s = tessera.open("a.pickle")

        @tessera.record("out/")
        def train(x: int) -> None: ...

        {line}
        ''', cache, tmp_path)
    assert status == 1 and error in said, said
    assert {found.split(':')[1] for found in said.splitlines() if ' error: ' in found} == {'7'}, said


# ---- fields of answers ----

def _undeclared(kind, data, where):
    """Fields of a part of an answer that its class does not declare, or declares as another type."""
    hints = typing.get_type_hints(kind)
    for name, value in data.items():
        if keyword.iskeyword(name):  # only an item
            continue
        if name not in hints:
            yield f'{where}.{name}'
            continue
        record = _fields._hints(kind).get(name)
        for part in value if isinstance(value, list) else [value]:
            if not isinstance(part, dict):
                continue
            if record is None or record is _fields.Record:
                yield f'{where}.{name} is a record'
            elif record is not _fields.Counts:
                yield from _undeclared(record, part, f'{where}.{name}')


ASKED = {
    'info': {}, 'peak': {'top': 3}, 'steps': {}, 'leaks': {}, 'stages': {'top': 3},
    'profile': {'over_time': 10, 'ordered': True, 'top': 3}, 'why': {'top': 3},
    'pools': {'top': 3}, 'whatif': {'capacity': '1GiB', 'top': 3}, 'at': {'event': 0}, 'check': {'max': '1 KiB'},
}


@pytest.mark.parametrize('question', ASKED)
def test_every_field_is_declared(made, question):
    asked = 0
    for path in sorted(made.glob('*.pickle')):
        try:
            answer = getattr(tessera.open(path), question)(**ASKED[question])
        except tessera.Error:
            continue
        asked += 1
        assert sorted(set(_undeclared(type(answer), answer.to_dict(), question))) == [], path
    assert asked > 10


def test_fields_of_two_files_and_of_simulations(made):
    s, other = tessera.open(made / 'train.pickle'), made / 'sources.pickle'
    lock = s.check(max='1 GiB').lock()
    answers = [s.diff(other), s.diff(other, by='category'), tessera.open(other).check(lock=lock),
               tessera.open(other).source(made / 'model.py'), s.profile('stack'),
               tessera.open(other).source(made / 'model.py', compare=s),
               tessera.simulate('gpt2', batch=1, seq=64, steps=1)]
    for answer in answers:
        assert sorted(set(_undeclared(type(answer), answer.to_dict(), type(answer).__name__))) == []


# ---- help ----

def test_classes_and_functions_have_documentation():
    missing = []
    for found in pkgutil.walk_packages(tessera.__path__, 'tessera.'):
        if found.name.endswith('.__main__'):
            continue
        module = importlib.import_module(found.name)
        assert module.__doc__, found.name
        for name, value in vars(module).items():
            if inspect.isclass(value) and value.__module__ == module.__name__ and not value.__doc__:
                missing.append(f'{found.name}.{name}')
    for name in tessera.__all__:
        value = getattr(tessera, name)
        if not inspect.getdoc(value):
            missing.append(name)
    assert missing == []


def test_record_shows_its_options():
    from tessera._record.settings import OPTIONS, Options
    assert list(Options.__annotations__) == list(OPTIONS)
    for function in (tessera.record, tessera.record.start):
        parameters = inspect.signature(function).parameters
        assert list(parameters) == ['out', *OPTIONS]
        assert parameters['keep'].default == 3 and parameters['signal'].default == 'auto'
        assert str(inspect.signature(function)).startswith("(out=None, *, stacks='python', ")
    documented = inspect.getdoc(type(tessera.record).__call__)
    assert all(f'\n{name}: ' in documented for name in OPTIONS)


def test_a_decorated_function_is_still_itself(tmp_path):
    @tessera.record(tmp_path)
    def train(x: int, *, y: float = 0.0) -> str:
        """What it does."""

    assert train.__name__ == 'train' and train.__doc__ == 'What it does.'
    assert list(inspect.signature(train).parameters) == ['x', 'y']
