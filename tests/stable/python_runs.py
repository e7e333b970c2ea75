"""python_runs.py: what the package tessera does with command lines and variables of the environment, and which exceptions it raises. Its parts
are imported for that, from a folder, without the extension and without PyTorch.

    command python -m tessera.ci = 1 to any operands
    option python -m tessera.ci --lock = text
    choice python -m tessera.ci operand-1 github = a word
    environment TESSERA_CHECK_LOCK = read
    setting TESSERA_RECORD=1 = tessera-record
    setting TESSERA_RECORD_EVERY=30s = 0.5
    exception TSR_ERROR_FORMAT = Error | Exception | FormatError | ValueError
    exception tessera.open(absent.pickle) = Error | Exception | FileNotFoundError | NotFoundError | OSError | ReadError

Options are those of the parser that a program makes, and variables those that it asks for. As values of variables the texts of the source are
tried, and a few others (TEXTS): facts are what they mean."""
import argparse
import ast
import contextlib
import ctypes
import errno
import functools
import importlib
import io
import itertools
import os
import re
import sys
import tempfile
import types
from pathlib import Path
from unittest import mock

ROOT = Path(__file__).resolve().parent.parent.parent
# Modules with a command line, by how it is called.
PROGRAMS = {'python -m tessera.ci': 'ci', 'python -m tessera.hook': 'hook', 'python -m tessera.trace': '_script'}
# Modules that these import, and that are slow to compile or need the extension: their names become empty classes.
REPLACED = ('_core', '_capture', '_page', '_snapshot', '_trace', '_trace_*')
NUMBERS = itertools.count()


@functools.lru_cache(maxsize=None)
def parsed(text):
    """The syntax tree of a source, once: most files of a changed copy are as they were."""
    return ast.parse(text)


class Empty:
    """What stands for a name of a module that is replaced. A call returns its first argument, as that of terminal_clean()."""

    def __new__(cls, *given, **_):
        return given[0] if given else super().__new__(cls)


class Replaced(types.ModuleType):
    def __getattr__(self, name):
        if name.startswith('__'):
            raise AttributeError(name)
        return type(name, (Empty,), {})


class Loaded:
    """A context in which modules of a folder can be imported."""

    def __init__(self, folder):
        self.name = f'package_{next(NUMBERS)}'
        package = types.ModuleType(self.name)
        package.__path__ = [str(folder)]
        made = {self.name: package}
        for path in itertools.chain(*(folder.glob(f'{pattern}.py*') for pattern in REPLACED)):
            made[f'{self.name}.{path.stem}'] = Replaced(path.stem)
        for name, module in list(made.items())[1:]:
            setattr(package, name.rpartition('.')[2], module)
        sys.modules.update(made)
        self.writes = sys.dont_write_bytecode
        sys.dont_write_bytecode = True

    def __enter__(self):
        return self

    def __exit__(self, *_):
        sys.dont_write_bytecode = self.writes
        for name in [name for name in sys.modules if name == self.name or name.startswith(f'{self.name}.')]:
            del sys.modules[name]

    def module(self, name):
        return importlib.import_module(f'{self.name}.{name}')


class Watched(dict):
    """An environment that remembers which variables were asked for."""

    def __init__(self, *given, **values):
        super().__init__(*given, **values)
        self.seen = set()

    def get(self, name, default=None):
        self.seen.add(name)
        return super().get(name, default)

    def __getitem__(self, name):
        self.seen.add(name)
        return super().__getitem__(name)

    def __contains__(self, name):
        self.seen.add(name)
        return super().__contains__(name)


# ---- command lines ----

class Found(BaseException):
    """With the parser that was about to read a command line."""

    def __init__(self, parser):
        super().__init__()
        self.parser = parser


def parser_of(call, *given):
    """The parser that a function makes."""
    def stop(parser, *_, **__):
        raise Found(parser)
    with contextlib.ExitStack() as stack:
        for name in ('parse_args', 'parse_known_args', 'parse_intermixed_args', 'parse_known_intermixed_args'):
            stack.enter_context(mock.patch.object(argparse.ArgumentParser, name, stop))
        try:
            call(*given)
        except Found as found:
            return found.parser
    raise ValueError(f'{call}: has no parser')


def operands_of(action):
    """The least and the most number of words; the most is None if there is no limit."""
    if isinstance(action.nargs, int):
        return action.nargs, action.nargs
    return {None: (1, 1), '?': (0, 1), '+': (1, None)}.get(action.nargs, (0, None))


def option_value(action, letters):
    kind = 'flag' if action.nargs == 0 else action.type.__name__ if action.type else 'text'
    flags = ['list'] if isinstance(action, argparse._AppendAction) else [] if kind == 'flag' or action.default is None else [f'default {action.default}']
    return ', '.join([kind, *flags, *(f'letter {letter}' for letter in letters), *(['required'] if action.required else [])])


def parser_facts(owner, parser):
    least, most, at = 0, 0, 0
    for action in parser._actions:
        if isinstance(action, argparse._HelpAction):
            continue
        names = [name for name in action.option_strings if name.startswith('--')] or action.option_strings
        letters = sorted(name[1:] for name in action.option_strings if name not in names)
        for name in names:
            yield f'option {owner} {name}', option_value(action, letters)
        if not names:
            at += 1
            fewest, greatest = operands_of(action)
            least, most = least + fewest, None if None in (most, greatest) else most + greatest
            names = [f'operand-{at}']
        for name in names:
            for word in action.choices or ():
                yield f'choice {owner} {name} {word}', 'a word'
    yield f'command {owner}', f'{least} to {"any" if most is None else most} operands'


class Shell:
    """What registers magics in a notebook."""

    def __init__(self):
        self.magics = []

    def register_magic_function(self, function, kind='line', name=None):
        self.magics.append((function, kind, name or function.__name__))


def magic_facts(loaded):
    """The magics, and the options of each."""
    shell = Shell()
    # How IPython cuts a line into words, and its exception.
    parts = {'IPython.utils.process': types.SimpleNamespace(arg_split=lambda line, **_: line.split()),
             'IPython.core.error': types.SimpleNamespace(UsageError=ValueError)}
    with mock.patch.dict(sys.modules, parts):
        loaded.module('_magic').load(shell)
        for function, kind, name in shell.magics:
            for way, given in (('line', ('',)), ('cell', ('', ''))):
                if way in kind.split('_'):
                    owner = f'{"%" if way == "line" else "%%"}{name}'
                    yield f'magic {owner}', f'of a {way}'
                    yield from parser_facts(owner, parser_of(function, *given))


# ---- the environment ----

def check_variables(loaded):
    """Variables that python -m tessera.ci asks for when it has no file, on a merge request; without a token it asks nobody anything."""
    tempfile.gettempdir()  # remembers the folder, before it has no environment
    environment, program = Watched(CI_MERGE_REQUEST_IID='1'), loaded.module('ci')
    with mock.patch.object(os, 'environ', environment), contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        with contextlib.suppress(Exception, SystemExit):
            program.main(['gitlab'])
    for name in environment.seen:
        if name.startswith('TESSERA_'):
            yield f'environment {name}', 'read'


# Texts that are tried for each option of recordings, besides those of its source.
TEXTS = ('3', '3,10', '0', '1.5', '30s', '2h', 'OFF', 'Yes', 'none', 'a/folder', 'usr1', 'usr1,usr2')


def texts_of(path):
    """The short texts of a source, which may be words that it compares with."""
    found = {node.value for node in ast.walk(parsed(path.read_text(encoding='utf-8'))) if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    words = {text for text in found if re.fullmatch(r'[a-zA-Z0-9]{1,10}', text)}
    return sorted(words | {f'2{word}' for word in words if word.isalpha() and len(word) < 4} | set(TEXTS))  # units of time


@functools.lru_cache(maxsize=None)
def compiled(path):
    return compile(path.read_text(encoding='utf-8'), str(path), 'exec')


def starts(folder, environment):
    """Whether Python starts to record with this environment: the line of tessera_record.pth, and the module that it imports."""
    files, system = {'_tessera_record'}, types.SimpleNamespace(meta_path=[], modules={})

    def importing(name, *given, **named):
        if name in files:
            exec(compiled(folder / f'{name}.py'), {'__builtins__': inner, '__name__': name})
            return None
        if name in ('os', 'sys'):
            return types.SimpleNamespace(environ=environment) if name == 'os' else system
        return __import__(name, *given, **named)
    inner = {**vars(importlib.import_module('builtins')), '__import__': importing}
    exec(compiled(folder / 'tessera_record.pth'), {'__builtins__': inner})
    return bool(system.meta_path)


def shown(value):
    """A setting as text: names of signals, and sets in their order."""
    if isinstance(value, (tuple, frozenset)):
        return ', '.join(str(getattr(one, 'name', one)) for one in sorted(value))
    return str(value)


def setting_facts(loaded, folder):
    """What texts in TESSERA_RECORD and the variables of options mean. Those that are refused, and names of folders, are no facts."""
    settings = loaded.module('_record.settings')
    settings.warn_once = lambda *_: None
    texts, main = texts_of(folder / '_record' / 'settings.py'), settings.VARIABLE
    yield f'environment {main}', 'read'
    compiled.cache_clear()
    for text in texts:
        environment = {main: text}
        found = settings.from_environment(environment) if starts(folder.parent, environment) else None
        if found is None or found.out != os.path.abspath(text) or text == 'a/folder':
            yield f'setting {main}={text}', 'off' if found is None else os.path.relpath(found.out)
    asked = Watched({main: 'a/folder'})
    settings.from_environment(asked)
    for name in sorted(asked.seen - {main}):
        def taken(text, name=name):
            found = settings.from_environment({main: 'a/folder', name: text})
            return [getattr(found, option) for option in found.given]
        for text in TEXTS if taken('a/folder') else texts:  # one that takes every text has no words
            for value in taken(text):
                yield f'environment {name}', 'read'
                yield f'setting {name}={text}', shown(value)


# ---- exceptions ----

# Files that cannot be read, by what they contain; None is a file that is absent, and '' an empty one.
FILES = {'absent.pickle': None, 'empty.pickle': b'', 'text.pickle': b'no snapshot\n', 'cut.pickle': b'\x80\x04\x95\x10', 'number.json': b'7\n'}


def bases_of(error):
    """What an `except` can name."""
    return ' | '.join(sorted({one.__name__ for one in type(error).__mro__} - {'object', 'BaseException'}))


def exception_facts(loaded, library=None, facts=None):
    """The exceptions of statuses; with the library, and the facts about the struct of its errors, those of files, too."""
    errors = loaded.module('_errors')
    header = (ROOT / 'include/tessera/status.h').read_text(encoding='utf-8')
    for name, number in re.findall(r'\b(TSR_ERROR_\w+) = (-\d+)', header):
        yield f'exception {name}', bases_of(errors.make_error(int(number), -1, 'a message', None))
    message = f'cannot open: {os.strerror(errno.ENOENT)}'
    yield 'exception TSR_ERROR_IO, no such file', bases_of(errors.make_error(-2, -1, message, 'a file'))
    if library:
        opened = ctypes.CDLL(str(library)).tsr_snapshot_open
        opened.argtypes = [ctypes.c_char_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p]
        size, begin = (int(re.match(r'(?:bytes )?(\d+)', facts[name])[1]) for name in ('struct tsr_error', 'member tsr_error.message'))
        with tempfile.TemporaryDirectory() as folder:
            for name, content in FILES.items():
                path = Path(folder) / name
                if content is not None:
                    path.write_bytes(content)
                error, made = ctypes.create_string_buffer(size), ctypes.c_void_p()
                status = opened(str(path).encode(), None, ctypes.byref(made), error)
                text = ctypes.string_at(ctypes.addressof(error) + begin).decode()
                yield f'exception tessera.open({name})', bases_of(errors.make_error(status, -1, text, str(path)))


# ---- all of it ----

def program_facts(loaded, name):
    owner = next(owner for owner, program in PROGRAMS.items() if program == name)
    yield from parser_facts(owner, parser_of(loaded.module(name).main, []))
    if name == 'ci':
        yield from check_variables(loaded)


# What is read, by the file that it is about.
PARTS = ('_errors', '_magic', '_record/settings', *PROGRAMS.values())


def facts(folder, parts=PARTS):
    """What the package in this folder does, next to which are the files that start recordings."""
    found = {}
    with Loaded(folder) as loaded:
        for part in parts:
            if part == '_errors':
                found.update(exception_facts(loaded))
            elif part == '_magic':
                found.update(magic_facts(loaded))
            elif part == '_record/settings':
                found.update(setting_facts(loaded, folder))
            else:
                found.update(program_facts(loaded, part))
    return found


def file_facts(folder, library, c_facts):
    """Which exception a file that cannot be read raises."""
    with Loaded(folder) as loaded:
        return {name: value for name, value in exception_facts(loaded, library, c_facts) if name.startswith('exception tessera.open(')}
