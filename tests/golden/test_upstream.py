"""docs/upstream: every text is whole and listed, and the commands in texts for PyTorch print what they say.

Reproductions run the packages that they are about: tests/torch/upstream.py."""
import os
import re
import sys

import drafts
import pytest
from support import ROOT, cases, expect

sys.path.insert(0, str(ROOT / 'site'))
import pages  # noqa: E402

ISSUES = list(drafts.issues())
LISTED = (drafts.FOLDER / 'README.md').read_text(encoding='utf-8')


@pytest.fixture(scope='module')
def path(tessera, work):
    """PATH finds this tessera first."""
    folder = work / 'bin'
    folder.mkdir()
    (folder / 'tessera').symlink_to(tessera)
    return f'{folder}{os.pathsep}{os.environ["PATH"]}'


def test_listed():
    """The list has each text once, with its state, and nothing else."""
    wanted = [f'{page.name}#{anchor}' for page in drafts.PAGES for anchor in pages.anchors(page.read_text(encoding='utf-8')) if anchor not in ('', first(page))]
    rows = re.findall(r'^\| \[[^]]+\]\(([^)]+)\) \|[^|]+\|[^|]+\| (not sent|sent[^|]*) \|$', LISTED, re.M)
    expect('texts', sorted(row[0] for row in rows), sorted(wanted))


def first(page):
    """The anchor of a page's title."""
    title = page.read_text(encoding='utf-8').splitlines()[0]
    return next(iter(pages.anchors(title)))


@cases('issue', ISSUES, lambda issue: f'{issue.page}: {issue.title}')
def test_issue(issue):
    """A reproduction that compiles, what it prints, and a change whose hunks are what they say."""
    compile(issue.code, issue.title, 'exec')
    assert issue.prints and issue.diff and issue.title in (drafts.FOLDER / f'{issue.page}.md').read_text(encoding='utf-8')
    assert issue.wanted != issue.prints
    for _, hunks in drafts.changes(issue.diff):
        assert all(old != new for old, new in hunks)


def test_tutorial(work, path):
    """The commands before the part that needs PyTorch."""
    text, mark, _ = drafts.TUTORIAL.read_text(encoding='utf-8').partition(drafts.TRACED)
    steps = list(drafts.tutorial(text))
    assert mark and len(steps) == 6, len(steps)
    drafts.follow(steps, work, path)


def test_paragraph(tessera, work):
    """The commands of the paragraph for PyTorch's documentation."""
    for name, batch in (('old', 1), ('my_snapshot', 2)):
        tessera.output('simulate', 'gpt2', '--batch', str(batch), '--seq', '64', '-q', '-o', f'{name}.pickle', cwd=work)
    text = dict(drafts.sections(drafts.FOLDER / 'pytorch.md'))['A paragraph for the page on CUDA memory']
    commands = re.findall(r'(?:^ {4}|`)tessera ([^#\n`]+)', text, re.M)
    expect('commands', [command.split()[0] for command in commands], ['peak', 'why', 'diff', 'view'])
    for command in commands:
        tessera.output(*command.split(), cwd=work)
