#!/usr/bin/env python3
"""The WebAssembly module against the command: the same bytes. Prints TAP.

usage: run.py --tessera PATH --web FOLDER [--whole]

FOLDER is what `./run build web` made; without it, or without Node, every test is skipped. Each question is asked of the
snapshots of tests/golden, as text and as JSON, in Node with the shim of the page, and of `tessera`: standard output and exit
status must be equal, and so must the page of `view`. --whole, or TESSERA_WHOLE, takes ../shared/snapshots as well, where
that is there."""
import argparse
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import fit
import hostile
from module import ROOT, Web, first_difference, native

SHARED = ROOT.parent / 'shared/snapshots'
QUESTIONS = ['info', 'peak', 'at --event 10', 'profile', 'profile --by annotation', 'stages', 'steps', 'leaks', 'why', 'pools', 'whatif',
             'source', 'check --max-peak 1GiB', 'export --format folded']
MODELS = ['simulate gpt2 --batch 2', 'simulate gpt2-medium --batch 4 --precision bf16', 'plan gpt2 --budget 6GiB --batch 8',
          'help', 'peak --help', 'simulate nothing', 'train gpt2']
FORMS = ['', ' --json']
HOSTILE_SEED = 20261127


def snapshots(whole):
    found = sorted(path for kind in ('pickle', 'json', 'html', 'gz', 'zst', 'xz', 'zip')
                   for path in (ROOT / 'tests/golden').rglob('*.' + kind))
    named = {}
    for path in found:
        if path.stat().st_size and 'graph' not in path.as_posix():
            named.setdefault(path.name, path)
    chosen = sorted(named.values())
    if not whole:
        chosen = chosen[::3]
    if whole and SHARED.is_dir():
        chosen += sorted(path for path in SHARED.iterdir() if path.suffix in ('.pickle', '.html', '.json'))
    return chosen


def beside(path):
    """The file and what lies next to it with its name: its sidecar is found there."""
    stem = path.name.split('.')[0]
    return {other.name: other for other in path.parent.iterdir() if other.is_file() and other.name.split('.')[0] == stem}


class Tap:
    def __init__(self):
        self.count = self.failed = 0

    def test(self, name, differences):
        self.count += 1
        self.failed += bool(differences)
        print(f'{"not ok" if differences else "ok"} {self.count} - {name}')
        for line in differences[:5]:
            print(f'# {line}')
        sys.stdout.flush()


def compare(web, tessera, words, path, files):
    """What differs between the command's output and the module's; an empty list if nothing does."""
    status, output, messages = native(tessera, words, path.parent if path else ROOT)
    answer = web.run(words, files)
    if answer.get('failure'):
        return [f'{" ".join(words)}: {answer["failure"]}']
    if answer['status'] != status:
        return [f'{" ".join(words)}: exit status {status}, in the browser {answer["status"]}: {answer["messages"][:300]!r}']
    if answer['output'] != output:
        return [f'{" ".join(words)}: {first_difference(output, answer["output"])}']
    if status and answer['messages'] != messages:
        return [f'{" ".join(words)}: {first_difference(messages, answer["messages"])}']
    return []


def compare_page(web, tessera, path, work):
    page = work / 'page.html'
    status, _, _ = native(tessera, ['view', '-o', str(page), path.name], path.parent)
    answer = web.run(['view', '-o', 'page.html', path.name], beside(path), 'page.html')
    if answer['status'] != status:
        return [f'view {path.name}: exit status {status}, in the browser {answer["status"]} {answer["messages"][:200]!r}']
    if status == 0 and answer.get('taken') != page.read_bytes():
        return [f'view {path.name}: another page']
    return []


def test_all(tap, web, options, work):
    files = snapshots(options.whole)
    for path in files:
        lines = [question + form + ' ' + path.name for question in QUESTIONS for form in FORMS
                 if not (form and question.startswith('export'))]
        if not options.whole:
            lines = [line for line in lines if '--json' in line or line.startswith(('peak', 'export'))]
        wrong = []
        for line in lines:
            wrong += compare(web, options.tessera, line.split(), path, beside(path))
        wrong += compare_page(web, options.tessera, path, work)
        tap.test(f'{path.name}: {len(lines)} command lines and the page', wrong)
    for first, second in zip(files, files[1:]):
        if first.parent == second.parent:
            wrong = []
            for form in FORMS:
                wrong += compare(web, options.tessera, ['diff', *form.split(), first.name, second.name], first,
                                 beside(first) | beside(second))
            tap.test(f'diff {first.name} {second.name}', wrong)
    wrong = []
    for line in MODELS[:-1]:
        for form in FORMS if not line.startswith(('help', 'peak --help')) else ['']:
            wrong += compare(web, options.tessera, (line + form).split(), None, {})
    tap.test('models, plans, help and messages', wrong)
    answer = web.run(MODELS[-1].split(), {})
    tap.test('what a browser lacks is said', [] if answer['status'] == 2 and b'not in the browser' in answer['messages']
             else [str(answer)])


def test_hostile(tap, options, work):
    """What nobody may be harmed by; numbers that 32 bits cannot hold are the module's own danger."""
    beyond = b'(lp0\n(dp1\ng%d\ns.'
    names = {f'memo-{power}.pickle': beyond % (1 << power) for power in (32, 33, 53, 62)}
    module = hostile.Watched(options.web)
    options.work = work
    wrong = []
    for name in names:
        wrong += hostile.differences(options, module, work / 'hostile', names, ['info', name])
    tap.test('a number of an object that 32 bits cannot hold', wrong)
    count, wrong = 1000 if options.whole else 40, []
    for number, files, words in hostile.cases(HOSTILE_SEED, 0, count):
        wrong += [f'{number}: {line}' for line in hostile.differences(options, module, work / 'hostile', files, words)]
    module.web.close()
    tap.test(f'{count} strange files end as they do with the command', wrong)


def test_memory(tap, web):
    """A C library that rounds up what it allocates takes twice as much: 70 MiB become 135 (cross/fetch.py)."""
    path = next((ROOT / 'tests/golden').rglob('annotated.pickle.xz'))
    used = web.run(['peak', path.name], {path.name: path})['memory_bytes']
    tap.test('memory is what is needed', [] if used < 96 << 20 else [f'{used >> 20} MiB'])


def test_command(tap, options, work):
    """`tessera page` writes the page of the checkout that it was built in."""
    out = work / 'copy.html'
    done = subprocess.run([options.tessera, 'page', '-q', '-o', str(out)], capture_output=True, check=False)
    same = done.returncode == 0 and out.read_bytes() == (options.web / 'tessera.html').read_bytes()
    tap.test('tessera page writes it', [] if same else [done.stderr.decode()[:300]])


def test_browsers(tap, options, work):
    """The page in Chromium, and in Firefox where it is installed (browser.mjs)."""
    playwright = ROOT / 'viewer/node_modules/playwright-core/index.mjs'
    for browser, names in (('chromium', ('chromium', 'chromium-browser')), ('firefox', ('firefox-esr', 'firefox'))):
        program = next(filter(None, map(shutil.which, names)), None)
        if program and playwright.exists():
            test_browser(tap, options, work, browser, program, playwright)
        else:
            tap.test(f'the page in {browser} # SKIP it is not installed, or nothing to drive it with', [])


def test_browser(tap, options, work, browser, program, playwright):
    files = snapshots(options.whole)
    chosen = [path for path in files if path.name.startswith(('tutorial-1', 'out-of-memory', 'annotated'))] or files[:2]
    if options.whole:
        chosen = files
    cases = []
    for path in chosen:
        for question in QUESTIONS[:-1] if options.whole or path == chosen[0] else QUESTIONS[1:2]:
            for form in ('text', 'json'):
                words = [*question.split(), path.name]
                _, output, _ = native(options.tessera, [*words, *(['--json'] if form == 'json' else [])], path.parent)
                cases.append({'line': ' '.join(words), 'form': form, 'output': output.decode(),
                              'files': [str(other) for other in beside(path).values()]})
    for line in MODELS[:3]:
        _, output, _ = native(options.tessera, line.split(), ROOT)
        cases.append({'line': line, 'form': 'text', 'output': output.decode(), 'files': []})
    broken = []
    for name, data in (('empty.pickle', b''), ('noise.bin', bytes(range(256)) * 40), ('cut.pickle', b'\x80\x04\x95\xff'),
                       ('deep.json', b'[' * 200000)):
        (work / name).write_bytes(data)
        broken.append(str(work / name))
    second = next(path for path in files if path.name != chosen[0].name)
    ranks = work / 'ranks'
    shutil.rmtree(ranks, ignore_errors=True)
    ranks.mkdir()
    (ranks / '.DS_Store').write_bytes(b'x')
    for i in range(2):
        shutil.copy(chosen[0], ranks / (f'rank{i}.' + chosen[0].name.split('.', 1)[1]))
    plan = {'playwright': str(playwright), 'browser': browser, 'program': program, 'page': str((options.web / 'tessera.html').resolve()),
            'cases': cases, 'snapshot': str(chosen[0]), 'second': str(second), 'ranks': str(ranks), 'broken': broken,
            'fit': fit.plan_of_page(options, work, native)}
    (work / 'plan.json').write_text(json.dumps(plan), encoding='utf-8')
    done = subprocess.run(['node', str(ROOT / 'tests/web/browser.mjs'), str(work / 'plan.json')], stdout=subprocess.PIPE,
                          text=True, encoding='utf-8', check=False)
    for line in done.stdout.splitlines():
        result = json.loads(line)
        tap.test(f'in {browser}: {result["name"]}', result['wrong'])
    if done.returncode:
        tap.test(f'{browser} ran to its end', [f'exit status {done.returncode}'])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--tessera', required=True)
    parser.add_argument('--web', type=Path, required=True)
    parser.add_argument('--work', type=Path, default=None)
    parser.add_argument('--whole', action='store_true', default=bool(os.environ.get('TESSERA_WHOLE')))
    options = parser.parse_args()
    options.tessera = str(Path(options.tessera).resolve())
    if not (options.web / 'tessera.wasm').exists() or not shutil.which('node'):
        print('1..0 # SKIP ./run build web has not been run, or there is no Node')
        return 0
    work = (options.work or options.web / 'test').resolve()
    work.mkdir(parents=True, exist_ok=True)
    web, tap = Web(options.web), Tap()
    test_all(tap, web, options, work)
    test_memory(tap, web)
    options.lists = json.loads(web.run(['web', 'lists'], {})['output'])
    fit.test_forms(tap, web, options, work, compare)
    web.close()
    test_hostile(tap, options, work)
    test_command(tap, options, work)
    test_browsers(tap, options, work)
    tap.test('the page is one file of at most 3 MB', [] if (options.web / 'tessera.html').stat().st_size <= 3000000 else ['larger'])
    print(f'1..{tap.count}')
    return 1 if tap.failed else 0


if __name__ == '__main__':
    sys.exit(main())
