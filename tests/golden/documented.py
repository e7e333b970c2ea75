#!/usr/bin/env python3
"""documented.py --tessera PATH --work FOLDER: commands of docs/plan.md's questions, and of other sections, answer as documented, as TAP.

A command is a line that begins with $; each line below it must be the beginning of a line of its answer, in that order.
"""
import functools
import os
import re
import subprocess
import sys

from support import ROOT, run_tests, tessera_and_work

SECTIONS = (('plan.md', '## Every technique, for one model'), ('plan.md', '## Common questions'), ('distributed.md', '## Which stage?'))


def commands():
    """Pairs of a command and the lines that it prints."""
    for page, heading in SECTIONS:
        text = (ROOT / 'docs' / page).read_text(encoding='utf-8')
        section = text[text.index(heading) + len(heading):].partition('\n## ')[0]
        for block in re.findall(r'```\n(\$.*?)```', section, re.S):
            for part in re.split(r'^\$ ', block, flags=re.M)[1:]:
                command, *lines = part.rstrip('\n').split('\n')
                yield command, lines


def check(work, environment, command, lines):
    done = subprocess.run(['sh', '-c', command], cwd=work, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done.stderr
    printed = iter(done.stdout.split('\n'))
    for line in lines:
        assert any(one.startswith(line) for one in printed), f'not printed: {line}\n{done.stdout}'


def main():
    given = tessera_and_work(__doc__)
    (given.work / 'tessera').symlink_to(given.tessera)
    environment = {**os.environ, 'PATH': f'{given.work}{os.pathsep}{os.environ["PATH"]}'}
    return run_tests((command, functools.partial(check, given.work, environment, command, lines)) for command, lines in commands())


if __name__ == '__main__':
    sys.exit(main())
