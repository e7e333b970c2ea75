#!/usr/bin/env python3
"""run.py --tessera PATH --gendocs PATH --work FOLDER [--core PATH]: a question, an option and a technique more, as TAP.

A toy question is one folder (questions/toy) and one line (in questions/meson.build); a toy option of runs and a toy technique are one
row each (rows/). Nothing else in the tree names them, and yet they are there on every interface."""
import argparse
import json
import os
import shutil
import subprocess
import sys
import traceback
from pathlib import Path

sys.dont_write_bytecode = True
ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / 'tests' / 'cli'))
import fixtures  # noqa: E402

HANG_S = 600
EVENTS = 'import pickle, sys; print(sum(e["action"] == "alloc" for e in pickle.load(open(sys.argv[1], "rb"))["device_traces"][0]))'


class Skip(Exception):
    """The test cannot run here; says why."""


def run(*words, status=0, **options):
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, check=False,
                          timeout=HANG_S, **options)
    if done.returncode != status:
        raise AssertionError(f'{words}: exit {done.returncode}\n{done.stdout}{done.stderr}')
    return done.stdout if status == 0 else done.stderr


def expect(what, got, want):
    if got != want:
        raise AssertionError(f'{what}: got {got!r}, want {want!r}')


def expect_in(what, whole):
    if what not in whole:
        raise AssertionError(f'{what!r} is not in {whole[:2000]!r}')


def count(snapshot):
    return int(run(sys.executable, '-c', EVENTS, snapshot))


def check_nothing_else_names_it(given):
    """All but the folder, its list, and tests of the lists themselves."""
    for folder in ('src', 'cmd', 'include', 'python'):
        for path in (ROOT / folder).rglob('*'):
            text = path.read_bytes() if path.suffix in ('.c', '.h', '.py', '.build', '.def') else b''
            if b'"toy"' in text or b'toy_habit' in text:
                raise AssertionError(f'{path} names it')


def check_text_and_json(given):
    number = count(given.snapshot)
    expect('text', run(given.tessera, 'toy', given.snapshot, '-q'), f'Device 0: it happens {number} times.\n')
    answer = json.loads(run(given.tessera, 'toy', '--json', given.snapshot))
    expect('command', answer['command'], 'toy')
    expect('devices', answer['devices'], [{'device': 0, 'events': number}])
    fewer = json.loads(run(given.tessera, 'toy', '--least=1TiB', '--which_events', 'free_requested',
                           '--json', given.snapshot))
    expect('with parameters', fewer['devices'][0]['events'], 0)


def check_usage(given):
    expect_in("option '--which-events' takes alloc, free-requested or free-completed, not 'never'",
              run(given.tessera, 'toy', '--which-events', 'never', given.snapshot, status=2))
    expect_in("option '--least' takes a size such as 1MiB, not 'much'",
              run(given.tessera, 'toy', '--least', 'much', given.snapshot, status=2))
    expect_in("unknown command 'toi'; did you mean 'toy'?", run(given.tessera, 'toi', status=2))


def check_help(given):
    expect_in('  toy       how often does it happen?\n', run(given.tessera, '--help'))
    text = run(given.tessera, 'help', 'toy')
    expect('help', text, run(given.tessera, 'toy', '--help'))
    for part in ('Usage: tessera toy [options] FILE', '--which-events ACTION', '--least SIZE', '--json',
                 'tessera toy --least 1MiB snapshot.pickle'):
        expect_in(part, text)


def check_manual_pages(given):
    folder = given.work / 'man'
    folder.mkdir()
    run(given.gendocs, 'man', folder)
    expect_in('.It Xr tessera-toy 1', (folder / 'tessera.1').read_text())
    page = (folder / 'tessera-toy.1').read_text()
    expect_in('.It Fl \\-which-events Ar ACTION', page)
    expect_in('Count those of SIZE or more.', page)


def check_completions(given):
    for shell, parts in {
            'bash': ("toy) options='--which-events --least ",
                     "'toy --which-events') COMPREPLY=($(compgen -W 'alloc free-requested free-completed'"),
            'zsh': ("'toy:how often does it happen?'",
                    ':ACTION:(alloc free-requested free-completed)'),
            'fish': ("-a toy -d 'how often does it happen?'",
                     "-l which-events -x -a 'alloc free-requested free-completed'")}.items():
        script = run(given.gendocs, 'completion', shell)
        for part in parts:
            expect_in(part, script)
    bash = shutil.which('bash')
    if bash:
        script = given.work / 'tessera.bash'
        script.write_text(run(given.gendocs, 'completion', 'bash'))
        words = 'COMP_WORDS=(tessera toy --which-events free); COMP_CWORD=3; _tessera; echo ${COMPREPLY[*]}'
        expect('completed', run(bash, '-c', f'complete() {{ :; }}; . {script}; {words}'),
               'free-requested free-completed\n')


def check_mcp(given):
    messages = [{'method': 'tools/list'},
                {'method': 'tools/call', 'params': {'name': 'tessera_toy', 'arguments': {
                    'path': str(given.snapshot), 'which_events': 'alloc', 'least': '1B'}}},
                {'method': 'tools/call', 'params': {'name': 'tessera_toy', 'arguments': {
                    'path': str(given.snapshot), 'which_events': 'never'}}}]
    text = ''.join(json.dumps({'jsonrpc': '2.0', 'id': number, **message}) + '\n'
                   for number, message in enumerate(messages))
    tools, called, refused = (json.loads(line)['result'] for line in
                              run(given.tessera, 'mcp', input=text).splitlines())
    tool = next(tool for tool in tools['tools'] if tool['name'] == 'tessera_toy')
    expect('title', tool['title'], 'How often does it happen?')
    expect('arguments', list(tool['inputSchema']['properties']), ['path', 'which_events', 'least', 'device'])
    expect('words', tool['inputSchema']['properties']['which_events']['enum'],
           ['alloc', 'free-requested', 'free-completed'])
    answer = called['structuredContent']
    expect('verdict', answer['verdict'], [f'Device 0: it happens {count(given.snapshot)} times.'])
    expect('devices', answer['devices'], [{'device': 0, 'events': count(given.snapshot)}])
    expect('an error', refused['isError'], True)
    expect_in("argument 'which_events' takes alloc,", refused['content'][0]['text'])


# ---- an option of runs ----

def ask(given, *words, status=0):
    """An answer about the small model as JSON."""
    done = subprocess.run([given.tessera, *map(str, words), '--json'], capture_output=True, text=True, check=False, timeout=HANG_S)
    if done.returncode != status:
        raise AssertionError(f'{words}: exit {done.returncode}\n{done.stdout}{done.stderr}')
    return json.loads(done.stdout)


def run_of(given, *words):
    return ask(given, 'simulate', given.model, '--seq', 64, '--batch', 2, *words)['devices'][0]


def check_option_of_simulate(given):
    plan = given.work / 'habit.json'
    tidy, hoarder = run_of(given), run_of(given, '--toy-habit', 'hoarder', '--write-plan', plan)
    if hoarder['peak']['allocated_bytes'] <= tidy['peak']['allocated_bytes']:
        raise AssertionError('the option changes nothing')
    expect('plan file', json.loads(plan.read_text()), {'toy_habit': 'hoarder', 'version': 1})
    expect('by its plan', run_of(given, '--plan', plan), hoarder)
    expect('overridden', run_of(given, '--plan', plan, '--toy-habit', 'tidy'), tidy)
    expect_in("option '--toy-habit' takes tidy or hoarder, not 'messy'",
              run(given.tessera, 'simulate', 'gpt2', '--toy-habit', 'messy', status=2))
    expect_in('toy_habit takes tidy or hoarder', run(given.tessera, 'simulate', 'gpt2', '--plan',
                                                     write(given.work / 'messy.json', '{"toy_habit":"messy","version":1}'), status=3))
    expect('in plan show', [choice['choice'] for choice in ask(given, 'plan', 'show', plan, given.model, '--seq', 64)['choices']],
           ['toy_habit hoarder'])


def write(path, text):
    path.write_text(text)
    return path


def train(given, *words, status=0):
    return run(given.tessera, 'train', given.model, '--data', given.data, '--seq', 64, '--batch', 2, '--steps', 3, '--book', 'torch', *words,
               status=status)


def check_option_of_train(given):
    saved = given.work / 'saved'
    predicted = run_of(given, '--toy-habit', 'hoarder')['peak']['allocated_bytes']
    steps = [json.loads(line) for line in train(given, '--toy-habit', 'hoarder', '--save', saved, '--json').splitlines()]
    expect('peak', max(step.get('peak_bytes', 0) for step in steps), predicted)
    if not any(b'hoarder' in path.read_bytes() for path in saved.iterdir()):
        raise AssertionError('a saved run does not have it')


def check_rows_in_help(given):
    folder = given.work / 'man-of-rows'
    folder.mkdir()
    run(given.gendocs, 'man', folder)
    for command in ('simulate', 'plan', 'train'):
        expect_in('--toy-habit HABIT', run(given.tessera, command, '--help-all'))
        expect_in('.It Fl \\-toy-habit Ar HABIT', (folder / f'tessera-{command}.1').read_text())
    for command in ('plan', 'train'):
        expect_in('adapters, quantize, fp8, all-blocks and toy; or all', ' '.join(run(given.tessera, command, '--help-all').split()))
        expect_in('adapters, quantize, fp8, all-blocks and toy; or all', ' '.join((folder / f'tessera-{command}.1').read_text().replace('\\-', '-').split()))
    expect_in("'train --toy-habit') COMPREPLY=($(compgen -W 'tidy hoarder'", run(given.gendocs, 'completion', 'bash'))


def check_rows_in_docs(given):
    page = run(given.gendocs, 'page', input=(ROOT / 'docs' / 'plan.md').read_text())
    expect_in('| `toy_habit` | `tidy`, `hoarder` | What the program keeps', page)
    expect_in('| `toy` | train with an optimizer that has no state |', page)


# ---- a technique ----

def check_technique_of_plan(given):
    plan, size = given.work / 'toy.json', ('--seq', 64, '--batch', 2)
    listed = ask(given, 'plan', given.model, *size, '--explain')['techniques']
    item = next(item for item in listed if item['technique'] == 'toy: sgd')
    expect('choice', item['choice'], {'optimizer': 'sgd'})
    budget = f'{item["alone"]["peak_reserved_bytes"]}B'
    expect('not by default', ask(given, 'plan', given.model, *size, '--budget', budget, '--allow', 'none', status=1)['verdict'],
           'does_not_fit')
    found = ask(given, 'plan', given.model, *size, '--budget', budget, '--allow', 'toy', '--write-plan', plan)
    expect('verdict', found['verdict'], 'fits_with_changes')
    expect('changes', [change['technique'] for change in found['changes']], ['toy: sgd'])
    expect('plan', json.loads(plan.read_text()), {'optimizer': 'sgd', 'version': 1})
    expect('simulated', run_of(given, '--plan', plan)['peak_reserved_bytes'], found['predicted']['peak_reserved_bytes'])
    expect('in plan show', [choice['choice'] for choice in ask(given, 'plan', 'show', plan, given.model, *size)['choices']], ['toy: sgd'])
    expect_in('adapters, quantize, fp8, all-blocks and toy, or all or none',
              run(given.tessera, 'plan', given.model, '--budget', budget, '--allow', 'magic', status=2))


def check_technique_of_train(given):
    needs = run_of(given, '--optimizer', 'sgd')['peak_reserved_bytes']
    said = train(given, '--budget', f'{needs}B', '--allow', 'toy')
    expect_in('fits in', said)
    expect_in('toy: sgd', said)


def check_rows_in_mcp(given):
    messages = [{'method': 'tools/list'},
                {'method': 'tools/call', 'params': {'name': 'tessera_plan', 'arguments': {
                    'model': str(given.model), 'seq': 64, 'batch': 2, 'toy_habit': 'hoarder', 'budget': '1GiB', 'allow': 'toy'}}}]
    text = ''.join(json.dumps({'jsonrpc': '2.0', 'id': number, **message}) + '\n' for number, message in enumerate(messages))
    tools, called = (json.loads(line)['result'] for line in run(given.tessera, 'mcp', input=text).splitlines())
    known = next(tool for tool in tools['tools'] if tool['name'] == 'tessera_plan')['inputSchema']['properties']
    expect('words', known['toy_habit']['enum'], ['tidy', 'hoarder'])
    expect_in('adapters, quantize, fp8, all-blocks and toy; or all', known['allow']['description'])
    expect('plan', called['structuredContent']['plan'], {'optimizer': 'sgd', 'toy_habit': 'hoarder', 'version': 1})


PROGRAM = """
import sys, tessera, inspect
s = tessera.open(sys.argv[1])
assert 'toy' in tessera.questions() and 'toy' in dir(s)
answer = s.toy(which_events='free_requested', least=1 << 60)
assert answer.events == 0 and answer.command == 'toy'
assert s.ask('toy').json() == s.toy().json()
try:
    s.toy(which_events='never')
except tessera.ArgumentError as error:
    assert 'which_events takes alloc' in str(error)
model = dict(model_type='gpt2', n_layer=2, n_embd=64, n_head=2, vocab_size=256)
peak = lambda **options: tessera.simulate(model, seq=64, **options).peak.allocated_bytes
assert peak(toy_habit='hoarder') == peak(plan={'toy_habit': 'hoarder', 'version': 1}) > peak()
for call in tessera.simulate, tessera.plan:
    assert 'toy_habit' in inspect.signature(call).parameters and 'toy_habit: What the program keeps' in call.__doc__
assert 'adapters, quantize, fp8, all-blocks and toy' in tessera.plan.__doc__
found = tessera.plan(model, seq=64, budget='1GiB', allow='toy')
assert found.plan.to_dict() == {'optimizer': 'sgd', 'version': 1}
print(*s.toy().verdict)
"""


def check_python(given):
    if not given.core:
        raise Skip('the headers of CPython are absent')
    package = given.work / 'python' / 'tessera'
    shutil.copytree(ROOT / 'python' / 'tessera', package, ignore=shutil.ignore_patterns('*.so', '__pycache__'))
    shutil.copy(given.core, package / '_core.so')
    (package / '_calls.py').write_text(run(given.gendocs, 'calls'))
    said = run(sys.executable, '-c', PROGRAM, given.snapshot,
               env={**os.environ, 'PYTHONPATH': str(package.parent), 'PYTHONDONTWRITEBYTECODE': '1'})
    expect('verdict', said, f'Device 0: it happens {count(given.snapshot)} times.\n')


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ('tessera', 'gendocs', 'work', 'core'):
        parser.add_argument(f'--{name}', type=Path, required=name != 'core')
    given = parser.parse_args()
    given.tessera, given.gendocs = given.tessera.resolve(), given.gendocs.resolve()
    given.work = given.work.resolve()
    shutil.rmtree(given.work, ignore_errors=True)
    fixtures.write_all(given.work / 'fixtures')
    given.snapshot = given.work / 'fixtures' / 'train.pickle'
    given.model = write(given.work / 'small.json', json.dumps({'model_type': 'gpt2', 'n_layer': 2, 'n_embd': 64, 'n_head': 2, 'vocab_size': 256}))
    given.data = write(given.work / 'data.txt', 'All work and no play makes a dull text. ' * 50)
    checks = [(name[6:].replace('_', ' '), check) for name, check in globals().items()
              if name.startswith('check_')]
    failed = False
    print(f'1..{len(checks)}')
    for number, (title, check) in enumerate(checks, 1):
        try:
            check(given)
            print(f'ok {number} - {title}')
        except Skip as reason:
            print(f'ok {number} - {title} # SKIP {reason}')
        except Exception:  # pylint: disable=broad-except
            failed = True
            print(f'not ok {number} - {title}')
            for line in traceback.format_exc().splitlines():
                print(f'# {line}')
    return int(failed)


if __name__ == '__main__':
    sys.exit(main())
