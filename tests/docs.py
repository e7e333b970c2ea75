#!/usr/bin/env python3
"""docs.py --tessera PATH: what the pages tell a reader to type is there. Prints TAP.

Commands and options of tessera that README.md and the other pages name are known to `tessera help`, and
`./run help` lists each sub-command of ./run, which are all that the pages name."""
import argparse
import functools
import re
import subprocess
import sys
from pathlib import Path

import tap

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / 'README.md', ROOT / 'CONTRIBUTING.md', *(page for folder in ('docs', 'docs/places', 'docs/questions', 'docs/upstream') for page in sorted((ROOT / folder).glob('*.md')))]
# What a reader types: code in a line or of a block. A block's line may begin with a prompt, and end
# in a comment or another program.
INLINE = re.compile(r'`((?:\./run|tessera) [^`]+)`')
NO_COMMANDS = {'memory'}  # `tessera memory lock 1` begins a lock file
LINE = re.compile(r'(?m)^ *(?:\$ )?((?:\./run|tessera) .*)$')


def typed(page):
    """The words of each command that a page shows."""
    blocks = page.read_text().split('```')
    for number, text in enumerate(blocks):
        for line in (LINE if number % 2 else INLINE).findall(text):
            yield re.split(r' [#|;>&]', line)[0].split()


def expect(what, wrong):
    if wrong:
        raise AssertionError(f'{what}: {", ".join(sorted(wrong))}')


def sub_commands():
    """Those that ./run has, and those that its help lists."""
    script = (ROOT / 'run').read_text()
    listed = subprocess.run([ROOT / 'run', 'help'], stdout=subprocess.PIPE, text=True, check=True).stdout
    return set(re.findall(r'(?m)^run_([\w-]+)\(\)', script)), set(re.findall(r'(?m)^  ([\w-]+)', listed))


def check_help_of_run(_):
    has, lists = sub_commands()
    expect('not in ./run help', has - lists)
    expect('in ./run help alone', lists - has)


def check_page(tessera, page):
    for program, *words in typed(page):
        if words[0] in NO_COMMANDS or not re.fullmatch(r'[a-z][\w-]*', words[0]):
            continue  # the latter is a placeholder
        if program == './run':
            expect(f'{page.name}: no sub-commands of ./run', {words[0]} - sub_commands()[0])
            continue
        done = subprocess.run([tessera, 'help', words[0], '--help-all'], capture_output=True, text=True, check=False)
        expect(f'{page.name}: no commands of tessera', {words[0]} if done.returncode else set())
        options = {word.partition('=')[0] for word in words[1:]
                   if re.fullmatch(r'--?[a-z][\w-]*(=.*)?', word)}
        known = set(re.findall(r'(?m)^ +(?:(-\w), )?(--[\w-]+)', done.stdout))
        expect(f'{page.name}: no options of {words[0]}', options - {name for pair in known for name in pair})


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--tessera', required=True, type=Path)
    tessera = parser.parse_args().tessera.resolve()
    tests = [('./run help', functools.partial(check_help_of_run, tessera))]
    tests += [(page.relative_to(ROOT).as_posix(), functools.partial(check_page, tessera, page)) for page in PAGES]
    return tap.run(tests)


if __name__ == '__main__':
    sys.exit(main())
