"""pre-commit: the step graphs, locks and plans of a repository belong together (docs/integrations.md).

    python -m tessera.hook [--capacity 24GiB] [--max 22GiB] FILE...

NAME.graph is simulated and held against NAME.lock, if there is one, and against the budgets; a lock that was changed is held against
its graph in the same way. Plans (plan.json, NAME.plan.json) are read. The exit status is 1 if something does not
pass. Nothing is written, except with --update: the locks.
"""
import argparse
import json
import os
import shlex
import sys
import tempfile
from typing import List, Optional

from .ci import _as_file, _tessera


def _ending(path: str, ending: str) -> str:
    return os.path.splitext(path)[0] + ending


def _graphs(paths: List[str]) -> List[str]:
    """Those to simulate: the graphs, and those of the locks."""
    found = []
    for path in paths:
        graph = _ending(path, '.graph') if path.endswith('.lock') else path
        if not graph.endswith('.graph') or graph in found:
            continue
        if os.path.exists(graph):
            found.append(graph)
        elif path == graph:
            continue  # it was removed
        else:
            print(f'{path}: not checked: there is no {graph}')
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
    lock = _ending(graph, '.lock')
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
        again = ['python', '-m', 'tessera.hook', '--update', *(['--capacity', given.capacity] if given.capacity else []), graph]
        print(f'If this is meant: {shlex.join(again)}')
    return False


def _judge_plan(path: str) -> bool:
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
    parser.add_argument('--update', action='store_true', help='write the locks instead of comparing with them')
    given = parser.parse_intermixed_args(words)
    with tempfile.TemporaryDirectory() as folder:
        passed = [_judge_graph(path, given, folder) for path in _graphs(given.files)]
    passed += [_judge_plan(path) for path in given.files if path.endswith('plan.json') and os.path.exists(path)]
    return int(not all(passed))


if __name__ == '__main__':
    sys.exit(main())
