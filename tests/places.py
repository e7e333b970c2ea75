#!/usr/bin/env python3
"""places.py --tessera PATH [PAGE...]: each block of docs/places runs as far as it can here. Prints TAP, and at the end counts of the blocks.

The blocks of a page run in order in a folder of their own, in which train.py is the reader's program (tests/places/train*.py). PyTorch,
trainers and launchers are stand-ins (tests/places/standins, launch.py): the recorder records, and its snapshots are those of a simulated run.

| block | what is done |
|---|---|
| sh | its commands run, and end with status 0 |
| python | runs as a program. With an installed package (tests/python/test_places.py) all do; in a checkout those that only record |
| yaml, toml, json | is parsed |
| without a language | a sample, of which tests/readme.py compares the output |

Jobs of GitLab on a page must be in the same pipelines as the template's, and all inputs and variables must have names that it or the action knows.

Comments above a block say more about it:

    <!-- made by: COMMAND -->            run before it, and not shown. Its files are listed at the end, if the page has not mentioned them: the reader has none
    <!-- file: NAME -->                  the block is a file of that name, which later commands use
    <!-- given: NAME, NAME -->           names that the reader's program has (tests/places/given.py)
    <!-- ends with: STATUS -->           the last command's exit status
    <!-- needs: torch, lightning -->     commands that need PyTorch itself, and more: ./run test torch runs them (tests/torch/places.py)
    <!-- not run: REASON -->             only its syntax is checked

Files that the commands leave are parsed, too, by their names. Blocks that are not run are listed with their reasons."""
import argparse
import collections
import functools
import importlib.util
import json
import os
import re
import subprocess
import sys
import tempfile
import tomllib
import xml.etree.ElementTree
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / 'tests')]
import tap  # noqa: E402
sys.path.remove(str(ROOT / 'tests'))  # it has a folder `torch`, which is not PyTorch

HERE = ROOT / 'tests/places'
PAGES = sorted((ROOT / 'docs/places').glob('*.md'))
LAUNCHERS = ('torchrun', 'accelerate', 'deepspeed', 'srun', 'sbatch')
KEYS = {'file', 'given', 'ends with', 'needs', 'not run'}
BLOCK = re.compile(r'^<!-- made by: (?P<made>.*?) -->\n|(?P<marks>(?:^<!-- (?!made by:|sample:).*? -->\n)*)^```(?P<language>\w*)\n(?P<text>.*?)^```$', re.M | re.S)
COMMENT = re.compile(r'<!-- .*? -->', re.S)
SAMPLE = re.compile(r'<!-- sample: .*? -->\n```\n')
WITH_CORE = re.compile(r'\btessera\.(open|ranks|plan|simulate|trace|apply|fit)\b|^%%tessera', re.M)
MAGIC = re.compile(r'^%', re.M)
CELLS = '''from IPython.core.interactiveshell import InteractiveShell

shell = InteractiveShell.instance()
for cell in ('%load_ext tessera', {before!r}, {cell!r}):
    shell.run_cell(cell).raise_error()
'''
WIDTH = 97
HANG_S = 300


@functools.cache
def fixtures():
    spec = importlib.util.spec_from_file_location('fixtures', ROOT / 'tests/cli/fixtures.py')
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Block:
    """A block of a page: its language, its text, and what the comments above it say."""

    def __init__(self, match, line):
        self.language, self.text, self.line, self.marks = match['language'], match['text'], line, {}
        for comment in re.findall(r'<!-- (.*?) -->', match['marks'] or ''):
            key, colon, value = comment.partition(': ')
            if not colon or key not in KEYS:
                raise AssertionError(f'line {line}: an unknown comment: {comment}')
            self.marks[key] = value

    def names(self):
        return [name.strip() for name in self.marks.get('given', '').split(',') if name.strip()]


def asks(block):
    """Whether a Python block asks questions, which takes the package's C half."""
    return block.language == 'python' and 'not run' not in block.marks and WITH_CORE.search(block.text) is not None


def parts(text):
    """The blocks of a page, and the commands (str) that run before them, in order."""
    sampled = {match.end() for match in SAMPLE.finditer(text)}
    for match in BLOCK.finditer(text):
        if match['made']:
            yield match['made']
        elif match.start('text') not in sampled:
            yield Block(match, text.count('\n', 0, match.start('language')) + 1)


# ---- what a block's text must be ----

def parse_yaml(text):
    try:
        import yaml
    except ImportError:
        return
    for document in yaml.safe_load_all(text):
        assert document is not None, 'an empty document'


def parse_shell(text):
    done = subprocess.run(['bash', '-n'], input=text, capture_output=True, text=True, check=False)
    assert not done.returncode, done.stderr


PARSERS = {'python': lambda text: compile(text, 'block', 'exec', dont_inherit=True), 'sh': parse_shell, 'yaml': parse_yaml, 'toml': tomllib.loads, 'json': json.loads}
ENDINGS = {'.py': 'python', '.json': 'json', '.toml': 'toml', '.yml': 'yaml', '.yaml': 'yaml', '.sarif': 'json', '.ipynb': 'json', '.sh': 'sh'}


def parse(language, text):
    if language == 'python':  # magics are a notebook's
        text = re.sub(r'(?m)^( *)%.*', r'\1pass', text)
    PARSERS[language](text)


def parse_files(folder):
    """What the commands have left is what its name promises."""
    for path in sorted(folder.rglob('*')):
        if path.is_symlink() or not path.is_file() or folder / 'bin' in path.parents:
            continue
        if path.suffix in ENDINGS:
            parse(ENDINGS[path.suffix], path.read_text(encoding='utf-8'))
        elif path.suffix == '.xml':
            xml.etree.ElementTree.parse(path)
        assert path.stat().st_size, f'an empty file: {path.name}'


# ---- where they run ----

class Place:
    """A folder in which the blocks of a page run, and the environment there. `real`: with PyTorch itself."""

    def __init__(self, folder, tessera, real=False):
        self.folder, self.real, self.counts, self.left = folder, real, collections.Counter(), []
        binaries = folder / 'bin'
        binaries.mkdir()
        (binaries / 'tessera').symlink_to(tessera)
        (binaries / 'python').write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n', encoding='utf-8')
        (binaries / 'python').chmod(0o755)
        for name in () if real else LAUNCHERS:
            (binaries / name).symlink_to(HERE / 'launch.py')
        for path in HERE.glob('train*.py'):
            (folder / path.name).write_text(path.read_text(encoding='utf-8'), encoding='utf-8')
        kept = {name: value for name, value in os.environ.items() if not name.startswith(('TESSERA', 'SLURM', 'PYTHON', 'RANK', 'WORLD', 'LOCAL_RANK'))}
        self.environment = {**kept, 'PATH': os.pathsep.join(map(str, (binaries, Path(sys.executable).parent, os.environ['PATH']))), 'COLUMNS': '80', 'LC_ALL': 'C.UTF-8',
                            'PYTHONPATH': os.pathsep.join([str(HERE), *[str(HERE / 'standins')] * (not real)]), 'PYTHONDONTWRITEBYTECODE': '1', 'VIRTUAL_ENV': sys.prefix,
                            'WANDB_MODE': 'offline', 'MLFLOW_TRACKING_URI': (folder / 'mlruns').as_uri(), 'MLFLOW_ALLOW_FILE_STORE': 'true', 'HF_HUB_OFFLINE': '1', 'MPLBACKEND': 'agg'}
        if not real:
            self.environment['PLACES_GRAPH'] = str(binaries / 'step.graph')  # a traced step
            (binaries / 'step.graph').write_text(json.dumps(fixtures().STEP), encoding='utf-8')
            for variable, options in (('PLACES_SNAPSHOT', '--seq 128 --steps 4'), ('PLACES_OUT_OF_MEMORY', '--capacity 2GiB')):
                self.environment[variable] = str(binaries / f'{variable}.pickle')
                self.shell(f'tessera simulate gpt2 --batch 2 -q {options} -o {self.environment[variable]}')

    def shell(self, command, status=0):
        done = subprocess.run(['bash', '-e', '-o', 'pipefail', '-c', command], cwd=self.folder, env=self.environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
                              timeout=HANG_S)
        assert done.returncode == status, f'{command}\nends with {done.returncode}\n{done.stdout[-1500:]}\n{done.stderr[-1500:]}'

    def python(self, block, path):
        text = ''.join(f'from given import {name}\n' for name in block.names()) + block.text
        if MAGIC.search(block.text):  # a cell of a notebook
            text = CELLS.format(before=text.removesuffix(block.text), cell=block.text)
        (self.folder / path).write_text(text, encoding='utf-8')

    # ---- one block ----

    @staticmethod
    def wanted(block):
        """The modules that a block needs: those that it imports, or lists."""
        listed = [name.strip() for name in block.marks.get('needs', '').split(',')] if block.language == 'sh' else re.findall(r'(?m)^(?:import|from) (\w+)', block.text)
        return sorted({*listed, *['tensorboard'] * ('torch.utils.tensorboard' in block.text)})

    def runs(self, block):
        """Whether a block can run here; counts and lists it otherwise."""
        reason = block.marks.get('not run')
        if reason:
            self.left.append(f'line {block.line}: {reason}')
            self.counts['not run anywhere'] += 1
        elif block.language not in ('sh', 'python'):
            self.counts['parsed'] += 1
        elif self.real != ('needs' in block.marks) and block.language == 'sh':
            self.counts['run without PyTorch' if self.real else 'for ./run test torch'] += 1
        elif self.real and (absent := [name for name in self.wanted(block) if importlib.util.find_spec(name) is None]):
            self.counts[f'without {", ".join(absent)}'] += 1
        elif asks(block) and (importlib.util.find_spec('tessera') is None or MAGIC.search(block.text) and importlib.util.find_spec('IPython') is None):
            self.counts['for tests/python'] += 1
        else:
            return True
        return False

    def block(self, block):
        assert block.language in PARSERS, f'line {block.line}: no sample, and no language that is known: {block.language!r}'
        wide = [line for line in block.text.splitlines() if len(line) > WIDTH]
        assert not wide, f'wider than the site shows: {wide[0]}'
        parse(block.language, block.text)
        name = block.marks.get('file')
        if name:
            (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
            if block.language == 'python':
                self.python(block, name)
            else:
                (self.folder / name).write_text(block.text, encoding='utf-8')
        if not self.runs(block):
            return
        self.counts['run'] += 1
        if block.language == 'sh' and not name:
            self.shell(block.text, int(block.marks.get('ends with', '0')))
        elif not name:
            self.python(block, 'block.py')
            self.shell('python block.py', int(block.marks.get('ends with', '0')))


def unmentioned(place, command, text):
    """Files that a command makes and of which the page says nothing before it. Numbers may differ: those of ranks and steps do."""
    def mentioned(name):
        return re.sub(r'\d+', '0', name)
    before = set(place.folder.rglob('*'))
    place.shell(command)
    made = [path.name for path in set(place.folder.rglob('*')) - before if path.is_file() and path.suffix != '.json']
    said = mentioned(COMMENT.sub('', text.partition(f'<!-- made by: {command} -->')[0]))
    return sorted({mentioned(name) for name in made if mentioned(name) not in said})


def run_page(tessera, page, counts, left, real=False):
    text = page.read_text(encoding='utf-8')
    with tempfile.TemporaryDirectory() as name:
        place = Place(Path(name), tessera.resolve(), real)
        for part in parts(text):
            if isinstance(part, str):
                place.left += [f'made for the test, and not mentioned before: {made}' for made in unmentioned(place, part, text)]
            else:
                place.block(part)
        parse_files(Path(name))
    counts.update(place.counts)
    left += [f'{page.name}, {what}' for what in place.left]


def check_blindness():
    """Comments, samples and blocks are told apart."""
    text = '<!-- made by: a -->\n<!-- sample: 1 -->\n```\n$ b\n```\n\n<!-- file: c.py -->\n<!-- not run: d: e -->\n```python\nf\n```\n\n```sh\ng\n```\n'
    found = list(parts(text))
    tap.expect('parts', [part if isinstance(part, str) else (part.language, part.text, part.marks, part.line) for part in found],
               ['a', ('python', 'f\n', {'file': 'c.py', 'not run': 'd: e'}, 9), ('sh', 'g\n', {}, 13)])


def check_inputs():
    """What pages give to the action and the template of integrations/ has a name that these know."""
    try:
        import yaml
    except ImportError:
        raise tap.Skip('no module yaml') from None
    action = yaml.safe_load((ROOT / 'integrations/github/action.yml').read_text(encoding='utf-8'))
    inputs, seen = set(action['inputs']), 0
    rules = yaml.safe_load((ROOT / 'integrations/gitlab/tessera.yml').read_text(encoding='utf-8'))['.tessera-check']['rules']
    variables = {'TESSERA_WHEEL', *('TESSERA_CHECK_' + name.upper().replace('-', '_') for name in inputs)}
    for page in PAGES:
        blocks = [yaml.safe_load(part.text) for part in parts(page.read_text(encoding='utf-8')) if not isinstance(part, str) and part.language == 'yaml']
        jobs = [job for block in blocks for job in [*block.get('jobs', {}).values(), *block.values()] if isinstance(job, dict)]
        if any(job.get('extends') == '.tessera-check' for job in jobs):
            others = [job for job in jobs if 'script' in job]
            tap.expect(f'{page.name}: rules of the other jobs', [job.get('rules') for job in others], [rules] * len(others))
            assert others, f'{page.name}: no other jobs'
        for job in jobs:
            given = [step['with'] for step in job.get('steps', []) if '/integrations/github@' in step.get('uses', '')]
            if job.get('extends') == '.tessera-check':
                tap.expect(f'{page.name}: variables that are not there', set(job['variables']) - variables, set())
                seen += 1
            for words in given:
                tap.expect(f'{page.name}: inputs that are not there', set(words) - inputs, set())
                seen += 1
    assert seen >= 2, f'{seen} uses: this check is blind'


def check_failures(tessera):
    """What does not work does not pass."""
    good = '```sh\ntessera simulate gpt2 -q\n```\n'
    broken = ('<!-- flie: c.py -->\n```sh\n```\n', '```sh\ntessera simulat gpt2\n```\n', '```sh\nif\n```\n', '```python\n1 / 0\n```\n', '```json\n{\n```\n',
              '```toml\na\n```\n', '```\ntessera peak\n```\n', f'```sh\ntrue {"#" * WIDTH}\n```\n', '```sh\necho "{" >a.json\n```\n', '<!-- ends with: 0 -->\n```sh\nfalse\n```\n')
    with tempfile.TemporaryDirectory() as name:
        page = Path(name) / 'page.md'
        for text in (good, *broken):
            page.write_text(text, encoding='utf-8')
            try:
                run_page(tessera, page, collections.Counter(), [])
            except (AssertionError, SyntaxError, ValueError):  # ValueError: of the parsers of JSON and TOML
                assert text != good, 'fails, and is right'
            else:
                assert text == good, f'passes: {text}'


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--tessera', required=True, type=Path)
    parser.add_argument('pages', nargs='*', help='only these, such as slurm')
    given = parser.parse_args()
    counts, left = collections.Counter(), []
    chosen = [page for page in PAGES if not given.pages or page.stem in given.pages]
    tests = [(page.relative_to(ROOT).as_posix(), functools.partial(run_page, given.tessera, page, counts, left)) for page in chosen]
    status = tap.run([*tests, ('blocks are seen', check_blindness), ('inputs', check_inputs), ('failures are seen', functools.partial(check_failures, given.tessera))])
    print(f'# blocks: {", ".join(f"{number} {what}" for what, number in sorted(counts.items()))}')
    for reason in left:
        print(f'# {reason}' if 'made for the test' in reason else f'# not run: {reason}')
    if importlib.util.find_spec('yaml') is None:
        print('# YAML was not parsed: Python has no module yaml')
    return status


if __name__ == '__main__':
    sys.exit(main())
