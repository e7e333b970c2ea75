#!/usr/bin/env python3
"""fields.py --tessera PATH --gendocs PATH --work FOLDER: what questions declare is what their JSON has, and what is
generated from it is up to date, as TAP.

Every command below is asked of small snapshots. A value that is not declared, or is declared as something else, is a
defect; so is a field that is declared and that no answer has.
"""
import argparse
import collections
import functools
import json
import pathlib
import shutil
import subprocess
import sys

from support import ROOT, fixtures, run_tests

FILES = ('train', 'late', 'two-devices', 'loop', 'leaky', 'empty-trace', 'oom', 'oom-kept', 'oom-pieces', 'oom-rounded',
         'oom-elsewhere', 'driving', 'apart', 'stages', 'named', 'noted', 'growing-notes', 'told', 'sources', 'truncated',
         'simulated', 'planned', 'out-of-memory')
# By question: the command lines that together have every field. FILE stands for each of the files in turn.
COMMANDS = {
    'info': ('FILE',),
    'peak': ('FILE',),
    'at': ('FILE --event 3',),
    'profile': ('FILE --ordered --over-time', 'FILE --by stack'),
    'diff': ('FILE sources.pickle', 'FILE train.pickle --by allocation', 'FILE late.pickle --by category'),
    'stages': ('FILE',),
    'source': ('FILE model.py', 'FILE model.py --compare sources.pickle'),
    'steps': ('FILE',),
    'leaks': ('FILE',),
    'whatif': ('FILE', 'FILE --capacity 64MiB'),
    'why': ('FILE --capacity 1GiB', 'FILE --set expandable_segments:True'),
    'check': ('FILE --max 1KiB --lock train.lock', 'FILE --max activation=1KiB'),
    'simulate': ('gpt2 --batch 1 --seq 64 --profile --offload optimizer --gpu a100',
                 'gpt2 --batch 8 --attention eager --capacity 6GiB',
                 'gpt2 --batch 1 --seq 64 --offload activations:disk'),
    'plan': ('gpt2 --batch 2 --seq 64', 'show plan.json gpt2 --batch 2 --seq 64',
             'gpt2 --batch 2 --seq 128 --budget 2GiB --gpu t4 --allow all',
             'gpt2 --batch 2 --seq 128 --budget 2GiB --from leaking.pickle --allow recompute',
             'gpt2 --batch 2 --seq 64 --budget 2GiB --gpus 2 --link 50GB/s',
             'gpt2 --batch 2 --seq 64 --budget 1MiB --allow kernels,offload', 'gpt2 --seq 64 --front --allow kernels,recompute --budget 2GiB',
             'gpt2 --seq 64 --budget 3GiB --largest model --allow kernels', 'gpt2 --seq 64 --budget 1MiB --largest batch --allow kernels',
             'gpt2 --compare --gpus 8', '--compare --parameters 1000', 'GRAPH --budget 300MiB'),
}
# What the command line does not print as JSON: tests/python/test_answers.py has it.
ELSEWHERE = ('for',)
# A step graph, which is next to the tests.
GRAPH = ROOT / 'tests' / 'golden' / 'rewrites' / 'bert.graph'
# Snapshots that are made beside those of tests/cli.
SIMULATED = {
    'simulated': ('--batch', '2', '--seq', '128', '--steps', '4'),
    'leaking': ('--batch', '2', '--seq', '128', '--steps', '4', '--leak', 'outputs'),
    'planned': ('--batch', '1', '--seq', '64', '--plan', 'plan.json'),
    'out-of-memory': ('--batch', '8', '--attention', 'eager', '--capacity', '6GiB'),
}
TYPES = {'flag': bool, 'text': str, 'map': dict, 'record': dict, 'pair': list, 'json': dict}


def ask(given, *words):
    quiet = [] if words[0] == 'plan' else ['-q']
    done = subprocess.run([given.tessera, *words, '--json', *quiet], cwd=given.work, capture_output=True, text=True, check=False)
    return json.loads(done.stdout) if done.stdout else None


def declared(given):
    """By question, the fields that it declares, and what each is."""
    fields = collections.defaultdict(dict)
    for line in subprocess.run([given.gendocs, 'fields'], capture_output=True, text=True, check=True).stdout.splitlines():
        question, _, rest = line.partition(': ')
        path, kind, *flags = rest.split()
        fields[question][path] = kind, set(flags)
    return fields


def is_of(kind, value):
    if kind == 'device':
        return value == 'host' or type(value) is int
    if kind == 'pair':
        return isinstance(value, list) and len(value) == 2 and all(type(part) is int for part in value)
    if kind == 'real':
        return type(value) in (int, float)
    if kind in TYPES:
        return type(value) is TYPES[kind]
    return type(value) is int and (value >= 0 or kind in ('event', 'delta', 'time', 'duration'))


def walk(fields, where, value, seen):
    """Notes in `seen` every field of an object, and yields what is not as declared."""
    for key, member in value.items():
        path = where + key
        if isinstance(member, list) and path + '[]' in fields:
            path, parts = path + '[]', member
        else:
            parts = [member]
        if path not in fields:
            yield f'{path} is not declared'
            continue
        kind, flags = fields[path]
        seen.add(path)
        for part in parts:
            if part is None and 'nullable' in flags:
                continue
            if not is_of(kind, part):
                yield f'{path} is {part!r:.60}, not a {kind}'
            elif kind == 'record':
                yield from walk(fields, path + '.', part, seen)
    for path, (kind, flags) in fields.items():
        rest = path[len(where):]
        if path.startswith(where) and '.' not in rest and rest.removesuffix('[]') not in value and 'optional' not in flags:
            yield f'{path} is left out'


def check_question(given, fields, seen, question):
    wrong = set()
    for command in COMMANDS[question]:
        for name in FILES if 'FILE' in command else ['']:
            answer = ask(given, question, *command.replace('FILE', f'{name}.pickle').replace('GRAPH', str(GRAPH)).split())
            if answer is None and not name:
                wrong.add(f'{command}: no answer')
            elif answer is not None:
                wrong.update(walk(fields[question], '', answer, seen[question]))
    if wrong:
        raise AssertionError('\n'.join(sorted(wrong)))


def check_coverage(fields, seen):
    """What several answers have need not be in the answers of each: it counts as `record.field`."""
    shared = {'.'.join(path.split('.')[-2:]) for paths in seen.values() for path in paths if '.' in path}
    unseen = [f'{question}: {path} is in no answer' for question, declared_here in fields.items()
              for path in (path.removeprefix('answer.') for path in declared_here)  # an answer within one, of plan
              if path not in seen[question] and '.'.join(path.split('.')[-2:]) not in shared and path.partition('.')[0] not in ELSEWHERE]
    if unseen:
        raise AssertionError('\n'.join(unseen))


def check_generated(given, what, path):
    page = path.read_text(encoding='utf-8')
    made = subprocess.run([given.gendocs, what], input=page, capture_output=True, text=True, check=True).stdout
    if made != page:
        raise AssertionError(f'{path.relative_to(ROOT)} is not what the questions declare: ./run generate')


def check_page(given, fields):
    """Every question has its tables in the page."""
    page = (ROOT / 'docs' / 'json.md').read_text(encoding='utf-8')
    missing = [name for name in fields if f'<!-- fields of {name} -->' not in page]
    if missing:
        raise AssertionError(f'no table of fields: {missing}')
    check_generated(given, 'page', ROOT / 'docs' / 'json.md')


def make_files(given):
    fixtures.write_all(given.work)
    for words in (['check', 'train.pickle', '--max', '1GiB', '--lock', 'train.lock', '--update', '-q'],
                  ['plan', 'gpt2', '--batch', '1', '--seq', '64', '--budget', '2.5GiB', '--write-plan', 'plan.json'],
                  *(['simulate', 'gpt2', *words, '-q', '-o', f'{name}.pickle'] for name, words in SIMULATED.items())):
        subprocess.run([given.tessera, *words], cwd=given.work, capture_output=True, check=False)


def tests(given):
    make_files(given)
    fields, seen = declared(given), collections.defaultdict(set)
    for question in fields:
        yield f'fields of {question}', functools.partial(check_question, given, fields, seen, question)
    yield 'every field is in an answer', functools.partial(check_coverage, fields, seen)
    yield 'docs/json.md', functools.partial(check_page, given, fields)
    yield 'docs/plan.md', functools.partial(check_generated, given, 'page', ROOT / 'docs' / 'plan.md')
    for what, name in ('python', '_answers.py'), ('calls', '_calls.py'):
        yield f'python/tessera/{name}', functools.partial(check_generated, given, what, ROOT / 'python' / 'tessera' / name)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ('--tessera', '--gendocs', '--work'):
        parser.add_argument(name, required=True, type=lambda text: pathlib.Path(text).resolve())
    given = parser.parse_args()
    shutil.rmtree(given.work, ignore_errors=True)
    given.work.mkdir(parents=True)
    return run_tests(tests(given))


if __name__ == '__main__':
    sys.exit(main())
