"""drafts.py: what docs/upstream has for other projects: issues with reproductions and changes, and the tutorial's commands.

An issue is a section of a page with a block of Python. The first block of text is what the reproduction prints, the second what it prints with the change,
which is the block of diff. Python before the first section begins each reproduction of the page."""
import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[2] / 'docs' / 'upstream'
PAGES = sorted(path for path in FOLDER.glob('*.md') if path.name != 'README.md')
TUTORIAL = FOLDER / 'tutorial.rst'
# What follows needs PyTorch.
TRACED = '\nYour own program\n'


@dataclass
class Issue:
    page: str
    title: str
    code: str
    prints: str
    wanted: str  # '' if there is nothing to run with the change
    diff: str


def blocks(text, language):
    return re.findall(rf'^```{language}\n(.*?)^```$', text, re.M | re.S)


def sections(path):
    """(title, text) of each section of a page, and first ('', what is before). Headings in blocks are none."""
    title, lines, is_code = '', [], False
    for line in path.read_text(encoding='utf-8').splitlines(keepends=True):
        is_code ^= line.startswith('```')
        if line.startswith('## ') and not is_code:
            yield title, ''.join(lines)
            title, lines = line[3:].rstrip('\n'), []
        else:
            lines.append(line)
    yield title, ''.join(lines)


def issues():
    for path in PAGES:
        (_, begin), *rest = sections(path)
        common = ''.join(blocks(begin, 'python'))
        for title, text in rest:
            code = blocks(text, 'python')
            if code:
                prints, wanted, *more = (*blocks(text, 'text'), '', '')
                assert len(code) == 1 and not any(more), f'{path.name}: {title}: one reproduction, and what it prints without and with the change'
                yield Issue(path.stem, title, common + code[0], prints, wanted, ''.join(blocks(text, 'diff')))


# ---- Changes ----

def changes(diff):
    """Of each file: its name, and for each hunk the lines before and after. The numbers of lines of a hunk must be right."""
    for part in re.split(r'^--- a/', diff, flags=re.M)[1:]:
        name, _, rest = part.partition('\n')
        assert rest.startswith(f'+++ b/{name}\n'), name
        hunks = []
        for header, body in re.findall(r'^@@ ([^@]*) @@.*\n((?:[ +\-].*\n|\n)+)', rest, re.M):
            lines = [line or ' ' for line in body.splitlines()]
            old, new = ([line[1:] for line in lines if line[0] in sign] for sign in (' -', ' +'))
            counts = [int(part.partition(',')[2] or 1) for part in header.split()]
            assert counts == [len(old), len(new)], f'{name}: {header} has {len(old)} and {len(new)} lines'
            hunks.append((old, new))
        assert hunks, name
        yield name, hunks


def changed(text, hunks):
    """The text with each hunk at the one place that has its lines."""
    lines = text.splitlines()
    for old, new in hunks:
        places = [at for at in range(len(lines)) if lines[at:at + len(old)] == old]
        assert len(places) == 1, f'{len(places)} places have the lines of a hunk: {old[:4]}'
        lines[places[0]:places[0] + len(old)] = new
    return '\n'.join(lines) + '\n'


# ---- Commands ----

def dedented(body):
    return [line[3:] for line in body.rstrip('\n').split('\n')]


def tutorial(text):
    """What the tutorial says to type, in order: ('file', name, text) or ('command', command, lines that it prints)."""
    for kind, name, body in re.findall(r'^\.\. code-block:: (\w+)\n(?:   :caption: (.*)\n)?\n((?:   .*\n|\n)+)', text, re.M):
        lines = dedented(body)
        if name:
            yield 'file', name, '\n'.join(lines).rstrip('\n') + '\n'
        elif kind == 'console':
            for part in '\n'.join(lines).rstrip('\n').split('$ ')[1:]:
                command, *printed = part.rstrip('\n').split('\n')
                yield 'command', command, printed


def follow(steps, folder, path):
    """Do what the tutorial says: each line is the beginning of a printed line, in order; "..." stands for any."""
    environment = {**{name: value for name, value in os.environ.items() if name != 'NO_COLOR'}, 'PATH': path, 'COLUMNS': '80'}
    for kind, name, content in steps:
        if kind == 'file':
            (folder / name).write_text(content, encoding='utf-8')
            continue
        done = subprocess.run(['sh', '-c', name], cwd=folder, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode in (0, 1), f'{name}: {done.stderr}'
        printed = iter(done.stdout.split('\n'))
        for line in content:
            assert line == '...' or any(one.rstrip() == line.rstrip() for one in printed), f'{name}: not printed: {line}\n{done.stdout}'
