"""pre-commit: the step graphs, locks and plans of a repository belong together (docs/integrations.md).

    python -m tessera.hook [--capacity 24GiB] [--max 22GiB] [--lock memory.lock] FILE...

NAME.graph is simulated and compared with its lock, if there is one, and with the budgets. Its lock is NAME.lock, or what --lock names;
a lock that was changed is compared with its graph in the same way. Plans (plan.json, NAME.plan.json) are read. Locks and plans
of other programs (uv.lock, Terraform's plan.json) are skipped. The exit status is 1 if something does not pass. Nothing is written, except
with --update: the locks.
"""
import argparse
import json
import os
import re
import shlex
import sys
import tempfile
from typing import List, Optional

from .ci import _as_file, _run, _stem, _tessera


def _lock_of(graph: str, given: argparse.Namespace) -> str:
    if given.lock:
        return str(given.lock).replace('{name}', _stem(graph))
    return os.path.splitext(graph)[0] + '.lock'


def _is_lock(path: str) -> bool:
    try:
        with open(path, 'rb') as file:
            return file.readline(100).startswith(b'tessera memory lock')
    except OSError:
        return False


def _graphs_of(lock: str, given: argparse.Namespace) -> List[str]:
    """The graphs of the repository that have this lock."""
    if not given.lock:
        candidates = [os.path.splitext(lock)[0] + '.graph']
    else:
        try:
            candidates = _run('git', 'ls-files', '-z', '--', '*.graph')[1].split('\0')
        except OSError:
            candidates = []
    return [graph for graph in candidates if os.path.exists(graph) and os.path.normpath(_lock_of(graph, given)) == os.path.normpath(lock)]


def _graphs(given: argparse.Namespace) -> List[str]:
    """Those to simulate: the graphs, and those of the locks."""
    found: List[str] = []
    for path in given.files:
        if path.endswith('.graph'):
            graphs = [path] if os.path.exists(path) else []  # or it was removed
        elif path.endswith('.lock'):
            graphs = _graphs_of(path, given)
            if not graphs and _is_lock(path):
                print(f'{path}: not checked: no step graph has this lock (see --lock)')
        else:
            graphs = []
        found += [graph for graph in graphs if graph not in found]
    return found


def _judge_graph(graph: str, given: argparse.Namespace, folder: str) -> bool:
    snapshot = os.path.join(tempfile.mkdtemp(dir=folder), 'step.pickle')
    simulate = [_as_file(graph), *(['--capacity', given.capacity] if given.capacity else [])]
    status, told, said = _tessera('simulate', '--json', *simulate, '-o', snapshot)
    if status or not os.path.exists(snapshot):
        print(said.rstrip() or f'{graph}: cannot be simulated')
        return False
    if not all(device['fits'] for device in json.loads(told)['devices']):
        print(_tessera('simulate', *simulate)[1].partition('\n\nnote:')[0])
        return False
    lock = _lock_of(graph, given)
    words = [word for limit in given.max for word in ('--max', limit)]
    if os.path.exists(lock) or given.update:
        words += ['--lock', _as_file(lock)]
    if given.update:
        status, told, said = _tessera('check', '--lock', _as_file(lock), '--update', snapshot)
        print(f'{graph}: {said or told}'.rstrip())
        return status == 0
    if not words:
        words = ['--max', given.capacity] if given.capacity else []
    if not words:
        print(f'{graph}: can be simulated; there is no {lock} to compare it with, and no budget')
        return True
    status, told, said = _tessera('check', '--color', 'never', *words, snapshot)
    if status == 0:
        print(f'{graph}: {told}'.rstrip())
        return True
    print(f'{graph}: {told}{said}'.rstrip())
    if '--lock' in words and not given.max and status == 1:
        again = ['python', '-m', 'tessera.hook', '--update', *(['--capacity', given.capacity] if given.capacity else []),
                 *(['--lock', given.lock] if given.lock else []), graph]
        print(f'If this is meant: {shlex.join(again)}')
    return False


def _is_plan(path: str) -> bool:
    """Whether a JSON file is a plan of tessera, or was meant to be one: it has a version, which is a number."""
    try:
        with open(path, encoding='utf-8', errors='replace') as file:
            text = file.read()
    except OSError:
        return True  # which the command says
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return re.search(r'"version"\s*:\s*\d', text) is not None
    return isinstance(document, dict) and type(document.get('version')) is int


def _judge_plan(path: str) -> bool:
    if not _is_plan(path):
        print(f'{path}: not a plan of tessera: skipped')
        return True
    status, told, said = _tessera('plan', 'show', _as_file(path))
    print(f'{path}: {"a plan" if status == 0 else (said or told).strip()}')
    return status == 0


def main(arguments: Optional[List[str]] = None) -> int:
    words = list(sys.argv[1:] if arguments is None else arguments)
    words = [os.path.join('.', word) if word.startswith('-') and os.path.lexists(word) else word for word in words]
    parser = argparse.ArgumentParser(prog='python -m tessera.hook', description=(__doc__ or '').splitlines()[0])
    parser.add_argument('files', nargs='*', metavar='FILE', help='step graphs (*.graph), locks (*.lock) and plans (*plan.json); others are ignored')
    parser.add_argument('--capacity', help='memory of the card for which graphs are simulated, such as 24GiB')
    parser.add_argument('--max', action='append', default=[], help='a budget for each graph, such as 22GiB or activation=3GiB')
    parser.add_argument('--lock', help='the lock of a graph (default: NAME.lock beside NAME.graph); {name} stands for NAME')
    parser.add_argument('--update', action='store_true', help='write the locks instead of comparing with them')
    given = parser.parse_intermixed_args(words)
    with tempfile.TemporaryDirectory() as folder:
        passed = [_judge_graph(path, given, folder) for path in _graphs(given)]
    passed += [_judge_plan(path) for path in given.files if path.endswith('plan.json') and os.path.exists(path)]
    return int(not all(passed))


if __name__ == '__main__':
    sys.exit(main())
