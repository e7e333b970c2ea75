"""What tests/stable reads from the source of the package, and compares with earlier versions, is what the installed package has."""
import ast
import collections.abc
import inspect
import sys

import pytest

import tessera
import tessera.callbacks
from conftest import ROOT
from tessera import _capture

STABLE = ROOT / 'tests' / 'stable'
# A class that is not in the package's own names.
RETURNED = {'tessera.Recording': _capture.Recording}
# Methods that only the package calls.
INNER = {'note', 'refuse', 'set', 'skip', 'wrap'}


@pytest.fixture(scope='module')
def facts():
    sys.path.insert(0, str(STABLE))
    try:
        import python_facts
    finally:
        sys.path.remove(str(STABLE))
    return python_facts.facts(ROOT / 'python' / 'tessera')


def test_exceptions_of_files(facts, tmp_path):
    """As in the record, which has them from the library and the table of exceptions."""
    import python_runs
    newest = max((path for path in STABLE.iterdir() if path.name[0].isdigit()), key=lambda path: tuple(map(int, path.name.split('.'))))
    recorded = dict(line.split(' = ') for line in (newest / 'python.txt').read_text(encoding='utf-8').splitlines() if line.startswith('exception '))
    for name, content in python_runs.FILES.items():
        if content is not None:
            (tmp_path / name).write_bytes(content)
        with pytest.raises(tessera.Error) as raised:
            tessera.open(tmp_path / name)
        assert python_runs.bases_of(raised.value) == recorded[f'exception tessera.open({name})'], name
    assert len(python_runs.FILES) > 3 and facts


def found(path):
    """The object of that name; of a class its own attribute, without asking for the value of a property."""
    value = tessera
    for begin, known in RETURNED.items():
        if path == begin or path.startswith(f'{begin}.'):
            value, path = known, path[len('tessera.'):]
    for name in path.split('.')[1:]:
        value = inspect.getattr_static(value, name) if isinstance(value, type) else getattr(value, name)
        if isinstance(value, staticmethod):
            value = value.__func__
    return value


def is_of_trainer(path):
    """The callbacks are made from the classes of trainers, which are not installed; their options come after **."""
    return path.startswith('tessera.callbacks.')


def how_of(parameter, at):
    """As in facts."""
    kind = {inspect.Parameter.VAR_POSITIONAL: '*', inspect.Parameter.VAR_KEYWORD: '**', inspect.Parameter.KEYWORD_ONLY: 'keyword',
            inspect.Parameter.POSITIONAL_ONLY: f'positional {at}'}.get(parameter.kind, str(at))
    if parameter.default is inspect.Parameter.empty:
        return kind, None
    return kind, parameter.default


def arguments_of(facts, path):
    """(name, how, default as text) of the facts about a function's arguments."""
    for name, value in facts.items():
        if name.startswith(f'argument {path}('):
            how, _, rest = value.partition(', takes ')[0].partition(', default ')
            yield name[name.index('(') + 1:-1], how, rest or None


def is_default(text, value):
    if text is None or value is None and text != 'None':
        return text is None and value is None
    try:
        return ast.literal_eval(text) == value
    except ValueError:  # frozenset(), or a name
        return True


def test_functions(facts):
    wrong, count = [], 0
    for name, value in facts.items():
        path = name.partition(' ')[2]
        if not name.startswith('name ') or not value.startswith(('function', 'method')) or is_of_trainer(path) or '.__' in path:
            continue
        call = found(path)
        try:
            signature = inspect.signature(call)
        except ValueError:  # of the C half, which has none
            continue
        given = [one for one in signature.parameters.values() if one.name != 'self']
        has = {one.name: how_of(one, at) for at, one in enumerate(given)}
        want = {argument: (how, default) for argument, how, default in arguments_of(facts, path)}
        count += 1
        if {argument: how for argument, (how, _) in want.items()} != {argument: how for argument, (how, _) in has.items()}:
            wrong.append(f'{path}: {has} is not {want}')
        wrong += [f'{path}({argument}): the default is {has[argument][1]!r}, not {default}' for argument, (_, default) in want.items()
                  if argument in has and not is_default(default, has[argument][1])]
    assert not wrong, '\n'.join(wrong)
    assert count > 80, count


def declares(kind, name):
    """Whether a class, or one that it is based on, has an attribute or declares it: fields of answers are only declared."""
    return any(name in vars(one) or name in vars(one).get('__annotations__', {}) or name in vars(one).get('__slots__', ()) for one in kind.__mro__)


def test_attributes(facts):
    missing, count = [], 0
    for name, value in facts.items():
        owner, _, attribute = name.partition(' ')[2].rpartition('.')
        if name.startswith('name ') and value.startswith('attribute') and owner != 'tessera' and not is_of_trainer(f'{owner}.'):
            count += 1
            kind = found(owner)
            if not declares(kind if isinstance(kind, type) else type(kind), attribute):
                missing.append(f'{owner}.{attribute}')
    assert not missing
    assert count > 500, count


def test_public_names_of_objects_are_facts(facts):
    """A name of a class that programs use, and that no fact is about, would not be kept."""
    missing = []
    for owner in ('Snapshot', 'Table', 'Page', 'Applied', 'Fitted', 'Simulation', 'Column', 'Record', 'Answer'):
        for name in dir(getattr(tessera, owner)):
            if name.startswith('_') or name in INNER or hasattr(str, name) or hasattr(collections.abc.Mapping, name):
                continue
            if f'name tessera.{owner}.{name}' not in facts:
                missing.append(f'{owner}.{name}')
    assert not missing
