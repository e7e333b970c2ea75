#!/usr/bin/env python3
"""lint.py --library LIBTESSERA.a: the rules of the house that a program can check, as TAP.

Each check is a function that yields one line per defect and is one test. What the compiler knows
(who calls malloc, who has writable data) is asked of the compiled library, not guessed from text.
"""
import argparse
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent

# Who may include whom; every room may include itself and the public headers. See
# docs/architecture.md.
ROOMS = {
    'base': set(),
    'io': {'base'},
    'snapshot': {'base', 'io'},
    'allocator': {'base'},
    'timeline': {'base', 'snapshot', 'allocator'},
    'attribution': {'base', 'snapshot', 'timeline'},
    'answers': {'base', 'io', 'snapshot', 'allocator', 'timeline', 'attribution'},
    'report': {'base', 'answers'},
    'engine': {'base', 'io', 'allocator', 'snapshot'},
    'plan': {'base', 'io', 'engine', 'allocator'},
}
FILE_LINES = 800
FUNCTION_LINES = 60
# Functions that are longer for a good reason, with their length. The list may only shrink: a
# length that is no longer true is a defect too.
LONG_FUNCTIONS = {
}
# Symbols that the library must not refer to, and the objects that may.
MEMORY = ('malloc calloc realloc free reallocarray aligned_alloc posix_memalign memalign strdup '
          'strndup asprintf vasprintf getline')
PROCESS = ('stdin stdout stderr printf vprintf puts putchar fprintf vfprintf perror exit _exit '
           '_Exit quick_exit abort atexit raise signal sigaction getenv secure_getenv setenv putenv '
           'unsetenv setlocale chdir umask srand rand srandom random strtok system popen fork')
ALLOWED = {'base_memory.c.o': set(MEMORY.split())}


def sources(*patterns, top=('include', 'src', 'cmd', 'python', 'tests', 'examples')):
    """Files under the folders of `top` whose names match, sorted."""
    return sorted(path for folder in top for pattern in patterns
                  for path in (ROOT / folder).rglob(pattern) if path.is_file())


def name(path):
    return path.relative_to(ROOT).as_posix()


def includes(path):
    """(line number, included file) of each #include with quotes."""
    for number, line in enumerate(path.read_text().splitlines(), 1):
        match = re.match(r'\s*#\s*include\s+"([^"]+)"', line)
        if match:
            yield number, match.group(1)


def check_include_directions(_):
    for path in sources('*.[ch]', top=('src',)):
        room = path.relative_to(ROOT / 'src').parts[0]
        if room not in ROOMS:
            yield f'{name(path)}: src/{room}/ is not in the table of rooms'
            continue
        for number, file in includes(path):
            other = file.split('/')[0]
            if other not in ROOMS[room] | {room, 'tessera'} or '/' not in file:
                yield f'{name(path)}:{number}: {room} may not include "{file}"'
    for path in sources('*.[ch]', top=('include', 'cmd', 'examples')):
        for number, file in includes(path):
            if not file.startswith('tessera/') and not (path.parent / file).is_file():
                yield f'{name(path)}:{number}: only public headers here, not "{file}"'


def check_file_lengths(_):
    for path in sources('*.c', '*.h', '*.py', top=('include', 'src', 'cmd', 'python', 'tests',
                                                   'examples', 'bench')):
        lines = len(path.read_text().splitlines())
        if lines > FILE_LINES:
            yield f'{name(path)}: {lines} lines, more than {FILE_LINES}'


def functions(path):
    """(name, first line, number of lines) of each function, as clang-format lays them out."""
    first = None
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if first is None or line and line[0] not in ' \t}{':
            if re.match(r'[A-Za-z_][^=;]*\(', line):
                first, title = number, re.findall(r'(\w+)\(', line)[0]
            elif line and not line[0].isspace():
                first = None
        if first is not None and line == '}':
            yield title, first, number - first + 1
            first = None
        elif first is not None and line.endswith(';') and not line[0].isspace():
            first = None


def check_function_lengths(_):
    exceptions = dict(LONG_FUNCTIONS)
    for path in sources('*.[ch]'):
        for function, line, length in functions(path):
            recorded = exceptions.pop(f'{name(path)}:{function}', None)
            if recorded and length < recorded:
                yield f'{name(path)}:{line}: {function} is down to {length} lines: say so in lint.py'
            elif length > (recorded or FUNCTION_LINES):
                yield f'{name(path)}:{line}: {function} has {length} lines'
    for key in exceptions:
        yield f'{key} is gone: take it out of lint.py'


def check_headers_alone(_):
    for path in sources('*.h', top=('include',)):
        for command in (['cc', '-std=c17', '-x', 'c'], ['c++', '-std=c++17', '-x', 'c++']):
            done = subprocess.run(
                command + ['-fsyntax-only', '-Wall', '-Wextra', '-Wpedantic', '-Werror',
                           '-I', str(ROOT / 'include'), '-'],
                input=f'#include "{path.relative_to(ROOT / "include")}"\n',
                capture_output=True, text=True, check=False)
            if done.returncode:
                errors = [line for line in done.stderr.splitlines() if 'error' in line]
                yield f'{name(path)} as {command[1][5:]}: {errors[0] if errors else done.stderr}'


def check_public_functions_documented(_):
    """A comment ends on the line above, or on the line above the functions directly above."""
    for path in sources('*.h', top=('include',)):
        above, statement = '', ''
        for number, line in enumerate(path.read_text().splitlines(), 1):
            statement += line
            if statement.startswith(('#', 'typedef', 'extern "C"', '}')) and ';' not in statement:
                if not statement.startswith('typedef'):
                    above, statement = '', ''
                continue
            if statement and not statement.rstrip().endswith((';', '}', '*/')):
                continue
            function = re.match(r'(?:static inline )?[\w ]+[\s*]+(tsr_\w+)\(', statement)
            if statement.endswith('*/') and statement.lstrip().startswith('/*'):
                above = 'comment'
            elif function:
                if above != 'comment':
                    yield f'{name(path)}:{number}: {function.group(1)} has no comment above it'
            else:
                above = ''
            statement = ''


def check_text(_):
    """Tabs, trailing blanks, a missing last newline, and marks of unfinished work."""
    marks = re.compile(r'\b(' + '|'.join(('TO' + 'DO', 'FIX' + 'ME', 'XX' + 'X', 'HA' + 'CK')) +
                       r')\b')
    for path in sources('*.[ch]', '*.py', '*.build', '*.md', '*.map',
                        top=('include', 'src', 'cmd', 'python', 'tests', 'examples', 'bench',
                             'docs')):
        text = path.read_text()
        if text and not text.endswith('\n'):
            yield f'{name(path)}: no newline at the end'
        for number, line in enumerate(text.splitlines(), 1):
            if '\t' in line:
                yield f'{name(path)}:{number}: tab'
            if line != line.rstrip():
                yield f'{name(path)}:{number}: blank at the end'
            if marks.search(line):
                yield f'{name(path)}:{number}: unfinished: {line.strip()}'


def check_opening_comments(_):
    for path in sources('*.[ch]'):
        if not path.read_text().startswith('/*'):
            yield f'{name(path)}: does not open with a comment that says what it is for'


def tool(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def members(library, command):
    """(object, line) for each line that binutils prints about the library's objects."""
    member = ''
    for line in tool(*command, str(library)).splitlines():
        match = re.match(r'(?:.*[/(])?(\w+\.c\.o)\)?:', line)
        if match:
            member = match.group(1)
        else:
            yield member, line


def check_forbidden_calls(library):
    """One door to memory, and no business of the program's done behind its back."""
    forbidden = set((MEMORY + ' ' + PROCESS).split())
    seen = set()
    for member, line in members(library, ('nm', '-u')):
        seen.add(member)
        symbol = line.split()[-1].split('@')[0] if line.split() else ''
        if symbol in forbidden - ALLOWED.get(member.split('src_')[-1], set()):
            yield f'{member}: uses {symbol}'
    if 'base_memory.c.o' not in seen:
        yield f'{library}: base/memory.c is not in it: this check is blind'


def check_writable_data(library):
    for member, line in members(library, ('objdump', '-t')):
        match = re.match(r'[0-9a-f]+ .{7} (\.t?data|\.t?bss|\*COM\*)(\.\S*)?\t([0-9a-f]+) +(\S+)$',
                         line)
        relocated = match and (match.group(2) or '').startswith('.rel.ro')
        if match and not relocated and int(match.group(3), 16):
            yield f'{member}: {match.group(4)} can be written to'


def check_links(_):
    """Each relative link of a page names a file that is there."""
    pages = sorted(ROOT.glob('*.md')) + sources('*.md', top=('docs',))
    if ROOT / 'README.md' not in pages:
        yield 'README.md is missing'
    for page in pages:
        for number, line in enumerate(page.read_text().splitlines(), 1):
            for target in re.findall(r'\]\(([^)#\s]+)', line):
                if not re.match(r'\w+:', target) and not (page.parent / target).exists():
                    yield f'{name(page)}:{number}: no such file: {target}'


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--library', required=True, type=Path)
    library = parser.parse_args().library
    checks = [(key[6:], value) for key, value in globals().items() if key.startswith('check_')]
    failed = False
    print(f'1..{len(checks)}')
    for number, (title, check) in enumerate(checks, 1):
        defects = list(check(library))
        failed = failed or bool(defects)
        print('not ' * bool(defects) + f'ok {number} - {title}')
        for line in '\n'.join(defects).splitlines():
            print('# ' + line)
    return int(failed)


if __name__ == '__main__':
    sys.exit(main())
