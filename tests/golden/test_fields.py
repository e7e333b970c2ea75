"""The fields that questions declare are those that their JSON has, and the pages that are generated from them are up to date.

Every command below is asked of small snapshots. A value that is not declared, or is declared as something else, is a
defect; so is a field that is declared and that no answer has."""
import collections
import functools
import json
import pickle
import subprocess

import pytest
from fleets import Fleet
from paces import random_pace
import habits
from support import ROOT, Tessera, cases

FILES = ('train', 'late', 'two-devices', 'loop', 'leaky', 'empty-trace', 'oom', 'oom-kept', 'oom-pieces', 'oom-rounded',
         'oom-elsewhere', 'driving', 'apart', 'stages', 'named', 'noted', 'growing-notes', 'told', 'sources', 'truncated',
         'simulated', 'planned', 'out-of-memory', 'uneven', 'growing')
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
    'ranks': ('fleet', 'fleet --mesh pp=1,dp=8', 'fleet --top 2', 'fleet --max 1B --max activation=1B --max-spread 1TiB', 'late'),
    'pools': ('FILE', 'pooled.pickle'),
    'card': ('crowded.pickle --time 1700000000021000', 'engine.pickle trainer.pickle', 'cards', 'train.pickle'),
    'whatif': ('FILE', 'FILE --capacity 64MiB'),
    'why': ('FILE --capacity 1GiB', 'FILE --set expandable_segments:True', 'crowded.pickle'),
    'check': ('FILE --max 1KiB --lock train.lock', 'FILE --max activation=1KiB'),
    'simulate': ('gpt2 --batch 1 --seq 64 --profile --offload optimizer --gpu a100',
                 'gpt2 --batch 8 --attention eager --capacity 6GiB',
                 'gpt2 --batch 1 --seq 64 --offload activations:disk'),
    'plan': ('gpt2 --batch 2 --seq 64', 'gpt2 --budget 2GiB --work-limit 100000', 'show plan.json gpt2 --batch 2 --seq 64',
             'gpt2 --batch 2 --seq 128 --budget 2GiB --gpu t4 --allow all',
             'gpt2 --batch 2 --seq 128 --budget 2GiB --from leaking.pickle --allow recompute',
             'gpt2 --batch 2 --seq 64 --budget 2GiB --gpus 2 --link 50GB/s',
             'gpt2 --batch 2 --seq 64 --budget 1MiB --allow kernels,offload', 'gpt2 --seq 64 --front --allow kernels,recompute --budget 2GiB',
             'gpt2 --seq 64 --budget 3GiB --largest model --allow kernels', 'gpt2 --seq 64 --budget 1MiB --largest batch --allow kernels',
             'gpt2 --batch 2 --seq 64 --ways --allow accumulate,in-backward',
             'gpt2 --batch 2 --seq 128 --ways --from leaking.pickle --allow none',
             'gpt2 --seq 64 --budget 3GiB --for deepspeed --for hf --for tessera',
             'gpt2 --compare --gpus 8', '--compare --parameters 1000', 'GRAPH --budget 30MiB'),
    # No question, but what `tessera --version` prints is declared like their answers.
    'version': ('--version',),
}
# A step graph with experts, which is next to the tests.
GRAPH = ROOT / 'tests' / 'golden' / 'graphs' / 'mixtral-worst.graph'
# Snapshots that are made beside those of tests/cli.
SIMULATED = {
    'simulated': ('--batch', '2', '--seq', '128', '--steps', '4'),
    'leaking': ('--batch', '2', '--seq', '128', '--steps', '4', '--leak', 'outputs'),
    'planned': ('--batch', '1', '--seq', '64', '--plan', 'plan.json'),
    'out-of-memory': ('--batch', '8', '--attention', 'eager', '--capacity', '6GiB'),
}
TYPES = {'flag': bool, 'text': str, 'map': dict, 'record': dict, 'pair': list, 'json': dict}


def is_of(kind, value):
    if kind == 'device':
        return value in ('host', 'cpu') or type(value) is int
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


def write_fleet(folder):
    """Ranks of which one has a fault and ran out of memory, one has two dumps, and one cannot be read."""
    fleet = Fleet(7, 'leak')
    fleet.sizes, fleet.count, fleet.rank, fleet.is_dead = {'pp': 1, 'dp': 6, 'ep': 1, 'tp': 1}, 6, 4, True
    for rank, step in [*((rank, 20) for rank in range(6)), (4, 10)]:
        snapshot = fleet.snapshot(rank)[0]
        if step == 10:
            snapshot = {**Fleet(7).snapshot(rank)[0], 'segments': []}
        path = folder / f'step_{step}' / f'rank{rank}.pickle'
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(pickle.dumps(snapshot, protocol=4))
    (folder / 'step_20' / 'rank6.pickle').write_text('no snapshot')


class Declared(Tessera):
    """The program in a folder of snapshots, and what its questions declare."""

    def __init__(self, tessera, gendocs, folder):
        super().__init__(tessera)
        self.gendocs, self.folder = gendocs, folder
        for words in (['check', 'train.pickle', '--max', '1GiB', '--lock', 'train.lock', '--update', '-q'],
                      ['plan', 'gpt2', '--batch', '1', '--seq', '64', '--budget', '2.5GiB', '--write-plan', 'plan.json'],
                      *(['simulate', 'gpt2', *words, '-q', '-o', f'{name}.pickle'] for name, words in SIMULATED.items())):
            self.run(*words, cwd=folder, status=None)
        write_fleet(folder / 'fleet')
        random_pace(3000).write(folder / 'late')
        fields = collections.defaultdict(dict)  # by question: what each is, by path
        for line in self.generate('fields').splitlines():
            question, _, rest = line.partition(': ')
            path, kind, *flags = rest.split()
            fields[question][path] = kind, set(flags)
        self.fields = dict(fields)

    def generate(self, what, page=''):
        return subprocess.run([self.gendocs, what], input=page, capture_output=True, text=True, check=True).stdout

    @functools.cache
    def asked(self, question):
        """The fields that are in answers of a question, and the defects of these answers."""
        seen, wrong = set(), set()
        for command in COMMANDS[question]:
            for name in FILES if 'FILE' in command else ['']:
                words = command.replace('FILE', f'{name}.pickle').replace('GRAPH', str(GRAPH)).split()
                quiet = [] if question == 'plan' else ['-q']
                answer = self.output(*([] if question == 'version' else [question]), *words, '--json', *quiet, cwd=self.folder, status=None)
                if answer:
                    wrong.update(walk(self.fields[question], '', json.loads(answer), seen))
                elif not name:
                    wrong.add(f'{command}: no answer')
        return seen, wrong


@pytest.fixture(scope='module')
def declared(tessera, made, pytestconfig):
    habits.uneven().write(made / 'uneven.pickle')
    habits.growing().write(made / 'growing.pickle')
    return Declared(tessera, pytestconfig.getoption('gendocs'), made)


@cases('question', COMMANDS, str)
def test_question(declared, question):
    wrong = declared.asked(question)[1]
    assert not wrong, '\n'.join(sorted(wrong))


def test_every_question(declared):
    """Every question has a row of COMMANDS, and its tables in the page."""
    assert set(declared.fields) == set(COMMANDS)
    page = (ROOT / 'docs' / 'json.md').read_text(encoding='utf-8')
    assert not [name for name in COMMANDS if f'<!-- fields of {name} -->' not in page]


def test_every_field(declared):
    """What several answers have need not be in the answers of each: it counts as `record.field`."""
    seen = {question: declared.asked(question)[0] for question in COMMANDS}
    shared = {'.'.join(path.split('.')[-2:]) for paths in seen.values() for path in paths if '.' in path}
    unseen = [f'{question}: {path} is in no answer' for question, paths in seen.items()
              for path in (path.removeprefix('answer.') for path in declared.fields[question])  # an answer within one, of plan
              if path not in paths and '.'.join(path.split('.')[-2:]) not in shared]
    assert not unseen, '\n'.join(unseen)


@cases('what, path', [('page', 'docs/json.md'), ('page', 'docs/plan.md'), ('page', 'docs/sql.md'), ('python', 'python/tessera/_answers.py'),
                      ('calls', 'python/tessera/_calls.py')])
def test_generated(declared, what, path):
    page = (ROOT / path).read_text(encoding='utf-8')
    if declared.generate(what, page) != page:
        raise AssertionError(f'{path} is not what the questions declare: ./run generate')
