"""What simulate() returns, and asks: what a training run will need, before anything has run."""
import json
import os
import re
import subprocess
import sys
import warnings
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Mapping, Optional, Tuple, Union

from . import _core
from ._answers import Simulate
from ._errors import UnsupportedError
from ._fields import _Kept
from ._snapshot import Snapshot


class Simulation(Simulate):
    """What the run would need; `snapshot` is what PyTorch would have recorded."""

    __slots__ = ('snapshot',)
    if TYPE_CHECKING:  # else a hint of a field
        snapshot: Snapshot

    def __init__(self, core: Any, snapshot: Snapshot) -> None:
        super().__init__(core)
        object.__setattr__(self, 'snapshot', snapshot)

    def __reduce__(self) -> Tuple[Any, ...]:
        return type(self), (_Kept.of(self), self.snapshot)


def models() -> List[str]:
    """Names of the models that simulate() knows."""
    return _core.models()


# The name of a model of Hugging Face.
_HUB_ID = re.compile(r'\w[\w.-]*/[\w.-]*(?<!\.json)(?<!\.graph)', re.ASCII)


def described(model: Any) -> 'tuple[Any, str]':
    """The model for the library, a name or a file's name and text; and how answers name it."""
    if isinstance(model, Mapping):
        name = str(model.get('model_type', '<config>'))
        return (name, json.dumps(dict(model))), name
    name = os.fspath(model)
    if isinstance(model, str) and _HUB_ID.fullmatch(name) and not os.path.exists(name):
        return name, name  # refused with advice
    is_file = not isinstance(model, str) or '/' in name or name.lower().endswith(('.json', '.graph'))
    if is_file or (os.path.exists(name) and name not in models()):
        with open(os.path.join(name, 'config.json') if os.path.isdir(name) else name, encoding='utf-8') as file:
            return (name, file.read()), name
    return name, name


_CHILD = 'import json, sys; request = json.loads(sys.stdin.readline()); sys.path[:] = request["path"]; ' \
    'from tessera._child import run; run(request, "", 1)'


def traced(given: Any, options: Dict[str, Any]) -> 'tuple[Any, Dict[str, Any]]':
    """A model that is not built in as the step graph of its training step, traced in a process of its own, and the options that are left."""
    if options.get('padding') and isinstance(given, str):
        given = given, _core.model_config(given)
    if not isinstance(given, tuple) or not (_core.is_foreign(given[1]) or options.get('padding')):
        return given, options
    plan = json.loads(options['plan'][1]) if options.get('plan') else {}
    decided = {**plan, **{name: value for name, value in options.items() if value is not None and _core.is_traced(name)}}
    left = {name: value for name, value in options.items() if name not in decided and (name != 'plan' or 'modules' in plan)}
    request = {'config': given[1], 'options': {name: value for name, value in decided.items() if name not in ('modules', 'version')},
               'gpu': options.get('gpu') or 'a100', 'dashes': False, 'path': [place for place in sys.path if os.path.isabs(place)]}
    done = subprocess.run([sys.executable, '-I', '-W', 'ignore', '-c', _CHILD], input=json.dumps(request).encode() + b'\n', stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL, check=False)
    head, _, graph = done.stdout.partition(b'\n')
    word, _, note = head.decode('utf-8', 'replace').partition(' ')
    if word == 'graph':
        return (given[0], graph.decode()), left
    why = {'lacks': f'tracing this model needs packages that are not installed: pip install {note}', 'refused': note}
    raise UnsupportedError(_core.terminal_clean(f'{given[0]}: {why.get(word, f"the trace ended with exit status {done.returncode}")}; '
                                                'tessera.trace() traces any program'))


def file_of(given: Any) -> 'Optional[tuple[str, str]]':
    """A file of JSON for the library: its name and text."""
    if given is None:
        return None
    if isinstance(given, Mapping):
        return '<plan>', json.dumps(dict(given))
    with open(given, encoding='utf-8') as file:
        return os.fspath(given), file.read()


def text_of(number: Union[None, float, str]) -> Optional[str]:
    """A number as the library reads it."""
    return None if number is None else str(number)


def _machine() -> Optional[str]:
    """The path of what `tessera doctor` measured on this machine, as the command finds it; None without such a file."""
    own, home = os.environ.get('TESSERA_MACHINE'), os.environ.get('HOME', '')
    if own is not None:
        return own or None
    config = os.environ.get('XDG_CONFIG_HOME', '')
    folder = config if config.startswith('/') else os.path.join(home, '.config') if home.startswith('/') else ''
    path = os.path.join(folder, 'tessera', 'machine.json')
    return path if folder and os.path.exists(path) else None


def asked(question: str, options: Dict[str, Any], name: str, *studies: Any) -> 'tuple[Any, Any]':
    """Ask, with what was measured on this machine where nothing else is given; a file that cannot be used is left out, with a warning."""
    path = None if options.get('machine') else _machine()
    if path is None:
        return _core.ask(question, options, name, *studies)
    try:
        return _core.ask(question, {**options, 'machine': file_of(path)}, name, *studies)
    except (OSError, ValueError) as why:
        answer = _core.ask(question, options, name, *studies)  # raises what is wrong otherwise
        warnings.warn(f'{path} is left out: {why}', stacklevel=4)
        return answer


def simulated(model: Any, options: Dict[str, Any]) -> Simulation:
    """Simulate, with parameters of the question."""
    given, name = described(model)
    given, options = traced(given, options)
    core, snapshot = asked('simulate', {'model': given, **options}, name)
    assert snapshot is not None
    return Simulation(core, Snapshot(snapshot))


def document(call: Callable[..., Any], question: str, keywords: Mapping[str, str]) -> None:
    """Add the help of the question's parameters to the documentation of a function, as `keywords` call them."""
    call.__doc__ = (call.__doc__ or '') + '\n' + '\n'.join(
        f'    {keywords.get(name, name)}: {text}' + (f' One of {", ".join(choices)}.' if choices else '')
        for name, text, choices in _core.question(question)[2] if name != 'model') + '\n'
