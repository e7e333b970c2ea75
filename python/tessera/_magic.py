"""Jupyter: `%load_ext tessera`, then

    %%tessera                     records the GPU memory of the cell, and shows the page
    %%tessera --as s              ... and keeps the snapshot as `s`, for further questions
    %tessera snapshot.pickle      shows the page of a file
    %tessera snapshot.pickle why  answers a question about it

`%tessera --help` lists the options. If the cell runs out of memory, what `tessera why` says of it is printed, and the page is that of the
moment at which memory ran out, whose snapshot is kept; then the exception is raised as it would be without the magic.
"""
import argparse
import ast
import importlib
import os
import re
import shutil
import sys
import tempfile
from typing import Any, Dict, List, Optional

from . import _capture, _page, _snapshot
from ._errors import ArgumentError


# Those about one snapshot that need no other words.
QUESTIONS = ('info', 'leaks', 'peak', 'profile', 'stages', 'steps', 'whatif', 'why')


def _ipython(module: str) -> Any:
    return importlib.import_module(f'IPython.{module}')


class _Exit(Exception):
    """Raised after --help, in place of the end of the process."""


class _Parser(argparse.ArgumentParser):
    """Reports errors as IPython does, and does not end the process."""

    def error(self, message: str) -> Any:
        raise _ipython('core.error').UsageError(f'{self.prog}: {message} (%tessera --help)')

    def exit(self, status: int = 0, message: Optional[str] = None) -> Any:
        raise _Exit


def _parser(is_cell: bool) -> _Parser:
    if is_cell:
        parser = _Parser(prog='%%tessera', description='Records the GPU memory of a cell, and shows the page of it.',
                         epilog='%tessera FILE [QUESTION] shows a snapshot from a file: %tessera --help.')
        parser.add_argument('--out', metavar='FOLDER', help='keep the snapshots there (default: only one of memory that ran out is kept)')
        parser.add_argument('--no-page', action='store_true', help='print only the verdict')
        parser.add_argument('--stacks', choices=('python', 'all'), default='python', help='all: C++ frames, too; reading them takes long')
        parser.add_argument('--max-entries', type=int, metavar='N', help='the number of events kept, the latest ones (default: a million)')
    else:
        parser = _Parser(prog='%tessera', description='Shows the page of a snapshot, or answers a question about it.',
                         epilog='%%tessera in the first line of a cell records the cell: %%tessera --help, above a line such as pass.')
        parser.add_argument('file', help='a snapshot')
        parser.add_argument('question', nargs='?', choices=QUESTIONS, metavar='QUESTION',
                            help=f'instead of the page: {", ".join(QUESTIONS)}')
    parser.add_argument('--as', dest='name', metavar='NAME', help='keep the snapshot in this variable')
    parser.add_argument('--limit', metavar='SIZE', help='the size of the page (default: 4MB, since it is saved with the notebook)')
    parser.add_argument('--width', metavar='W', help='of the page, in pixels or as in CSS')
    parser.add_argument('--height', metavar='H', help='of the page, likewise')
    return parser


def _parse(line: str, is_cell: bool) -> Optional[argparse.Namespace]:
    """None if there is nothing more to do."""
    wrong = _ipython('core.error').UsageError
    try:
        # On Windows quotes are part of the words.
        words = [word.strip('"\'') if os.name == 'nt' else word for word in _ipython('utils.process').arg_split(line, posix=os.name != 'nt')]
    except ValueError as error:
        raise wrong(f'%tessera: {error}') from None
    try:
        given = _parser(is_cell).parse_args(words)
    except _Exit:
        return None
    if given.name is not None and not given.name.isidentifier():
        raise wrong(f'--as takes the name of a variable, not {given.name!r}')
    for name in ('width', 'height'):
        value = getattr(given, name)
        setattr(given, name, int(value) if value and value.isdigit() else value)
        try:
            _page.length(name, getattr(given, name), '')
        except ArgumentError as error:
            raise wrong(f'--{error}') from None
    return given


def _show(snapshot: _snapshot.Snapshot, given: argparse.Namespace) -> None:
    _ipython('display').display(snapshot.view(limit=given.limit, width=given.width, height=given.height))


# ---- %tessera FILE ----


def _line(shell: Any, line: str) -> Any:
    given = _parse(line, is_cell=False)
    if given is None:
        return None
    snapshot = _snapshot.open(os.path.expanduser(given.file))
    if given.name:
        shell.user_ns[given.name] = snapshot
    if given.question:
        return snapshot.ask(given.question)
    _show(snapshot, given)
    return None


# ---- %%tessera ----


def _run(shell: Any, cell: str) -> Any:
    """Runs a cell in the notebook's variables, and returns the value of its last expression."""
    code = shell.transform_cell(cell)
    # Under a name by which tracebacks and the page find its lines. shell.compile knows which `from __future__` earlier cells had.
    name = shell.compile.cache(code, shell.execution_count)
    tree = shell.transform_ast(shell.compile.ast_parse(code, name))
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(shell.compile(tree, name, 'exec'), shell.user_ns)
    if last is None:
        return None
    value = eval(shell.compile(ast.Expression(last.value), name, 'eval'), shell.user_ns)
    return None if _is_silenced(code) else value


def _is_silenced(code: str) -> bool:
    """IPython's rule: a semicolon at the end, before a comment perhaps, hides the value."""
    rule = getattr(_ipython('core.displayhook').DisplayHook, 'semicolon_at_end_of_expression', None)
    return bool(rule(code)) if rule else code.rstrip().endswith(';')


def _last_oom(files: List[str]) -> Optional[str]:
    """The last snapshot of a moment at which memory ran out."""
    return next((path for path in reversed(files) if re.search(r'_oom(_\d+)?\.pickle$', path)), None)


def _tell(shell: Any, files: List[str], given: argparse.Namespace, failed: bool) -> None:
    if not files:
        print('tessera: the cell used no GPU memory that PyTorch could record: there is nothing to show')
        return
    oom = _last_oom(files)
    died = _snapshot.open(oom) if oom else None
    snapshot = died if died is not None and failed else _snapshot.open(files[-1])
    if died is not None:
        print(died.why())
    else:
        print('\n'.join(snapshot.peak().verdict))
    if given.name:
        shell.user_ns[given.name] = snapshot
    if not given.no_page:
        _show(snapshot, given)
    if given.out:
        print(f'tessera: wrote {", ".join(files)}')


def _cell(shell: Any, line: str, cell: str) -> Any:
    given = _parse(line, is_cell=True)
    if given is None:
        return None
    options: Dict[str, Any] = {} if given.max_entries is None else {'max_entries': given.max_entries}
    folder = os.path.expanduser(given.out) if given.out else tempfile.mkdtemp(prefix='tessera-')
    recording = _capture.record(folder, quiet=True, explain=False, stacks=given.stacks, signal=None, **options)
    failed = True
    try:
        with recording:
            value = _run(shell, cell)
        failed = False
    finally:
        sys.stdout.flush()
        try:
            _tell(shell, recording.files, given, failed)
        except Exception as error:  # the cell's own exception, or its value, comes first
            print(f'tessera: {type(error).__name__}: {error}', file=sys.stderr)
        if not given.out and _last_oom(recording.files) is None:
            shutil.rmtree(folder, ignore_errors=True)
    return value


def load(shell: Any) -> None:
    """Registers both magics."""
    def tessera(line: str, cell: Optional[str] = None) -> Any:
        return _line(shell, line) if cell is None else _cell(shell, line, cell)
    tessera.__doc__ = f'{__doc__}\n{_parser(True).format_help()}\n{_parser(False).format_help()}'
    shell.register_magic_function(tessera, 'line_cell', 'tessera')


def unload(shell: Any) -> None:
    for magics in shell.magics_manager.magics.values():
        magics.pop('tessera', None)
