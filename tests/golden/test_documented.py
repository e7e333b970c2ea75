"""Commands of docs/plan.md's questions, and of other sections, answer as documented.

A command is a line that begins with $; each line below it must be the beginning of a line of its answer, in that order.
"""
import os
import re

import subprocess

import pytest
from support import ROOT, cases

SECTIONS = (('plan.md', '## Every technique, for one model'), ('plan.md', '## Common questions'), ('distributed.md', '## Which stage?'))


def blocks():
    """The blocks of code: of each its commands, with the lines that they print. A command may need what an earlier one of its block wrote."""
    for page, heading in SECTIONS:
        text = (ROOT / 'docs' / page).read_text(encoding='utf-8')
        section = text[text.index(heading) + len(heading):].partition('\n## ')[0]
        for block in re.findall(r'```\n(\$.*?)```', section, re.S):
            parts = [part.rstrip('\n').split('\n') for part in re.split(r'^\$ ', block, flags=re.M)[1:]]
            yield [(command, lines) for command, *lines in parts]


@pytest.fixture(scope='module')
def environment(tessera, work):
    """PATH finds this tessera first."""
    (work / 'tessera').symlink_to(tessera)
    return {**os.environ, 'PATH': f'{work}{os.pathsep}{os.environ["PATH"]}'}


@cases('block', list(blocks()), lambda block: block[0][0])
def test_documented(work, environment, block):
    for command, lines in block:
        done = subprocess.run(['sh', '-c', command], cwd=work, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode in (0, 1), done.stderr
        printed = iter(done.stdout.split('\n'))
        for line in lines:
            assert any(one.startswith(line) for one in printed), f'not printed: {line}\n{done.stdout}'
