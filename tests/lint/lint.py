#!/usr/bin/env python3
"""lint.py --library LIBTESSERA.a [--accept]: the rules of the house that a program can check, as TAP.

Each check is a function that yields one line per defect and is one test. What the compiler knows
(who calls malloc, who has writable data) is asked of the compiled library, not guessed from text.
"""
import argparse
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent

# Who may include whom, besides itself. A room may also include the public headers of these rooms, and
# of those that they may include, and so on. See docs/architecture.md.
ROOMS = {
    'base': set(),
    'io': {'base'},
    'snapshot': {'base', 'io'},
    'allocator': {'base'},
    'timeline': {'base', 'snapshot', 'allocator'},
    'attribution': {'base', 'snapshot', 'timeline'},
    'study': {'base', 'snapshot', 'timeline', 'attribution'},
    'emit': {'base', 'snapshot', 'attribution'},
    'questions': {'base', 'io', 'snapshot', 'allocator', 'timeline', 'attribution', 'study', 'emit',
                  'exec'},
    'mosaic': {'base', 'snapshot', 'timeline', 'attribution', 'study', 'emit', 'questions'},
    'page': {'base', 'snapshot', 'timeline', 'attribution', 'study', 'emit', 'questions'},
    'export': {'base', 'snapshot', 'allocator', 'timeline', 'attribution', 'study', 'emit', 'questions'},
    'kernels': {'base'},
    'graph': {'base', 'kernels'},
    'ops': {'base', 'kernels', 'graph'},
    'traced': {'base', 'kernels', 'graph'},
    'models': {'base', 'kernels', 'graph', 'traced'},
    'torch': {'base', 'kernels', 'graph', 'models'},
    'exec': {'base', 'snapshot', 'allocator', 'kernels', 'graph', 'plan', 'traced', 'models', 'torch', 'dist'},
    'train': {'base', 'kernels', 'graph', 'plan', 'models', 'torch', 'exec', 'dist'},
    'plan': {'base', 'kernels', 'graph'},
    'planner': {'base', 'kernels', 'graph', 'plan', 'models', 'exec', 'questions', 'export'},
    'dist': {'base', 'kernels'},
}
# Which room implements which public headers (include/tessera/NAME.h or include/tessera/unstable/NAME.h).
PUBLIC = {
    'base': 'category limits options status terminal types version',
    'snapshot': 'columns export sidecar snapshot',
    'allocator': 'allocator allocator_state',
    'timeline': 'timeline',
    'attribution': 'attribution frames names rules',
    'study': 'findings query study window',
    'emit': 'input output',
    'questions': 'answers causes check params plans registry runs source stages steps whatif why',
    'mosaic': 'mosaic mosaic_file',
    'page': 'view',
    'export': 'allocations formats',
    'models': 'model',
    'plan': 'rates',
    'planner': 'estimates planning',
    'exec': 'simulate simulation',
    'train': 'training',
}
# Rooms that include a public header of a room to their right. The list may only shrink.
PUBLIC_EXCEPTIONS = set()
# Folders that use the library as any program does: public headers, their own, and these.
OUTSIDE = {'include': (), 'cmd': (), 'examples': (), 'python': ('core/program.h', 'core/output.h')}
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
    """(line number, included file) of each #include with quotes, or of a public header."""
    for number, line in enumerate(path.read_text().splitlines(), 1):
        match = re.match(r'\s*#\s*include\s+(?:"([^"]+)"|<(tessera/[^>]+)>)', line)
        if match:
            yield number, match.group(1) or match.group(2)


def rooms_left_of(room):
    """The rooms whose public headers `room` may include: those it may include, and theirs."""
    reached, waiting = {room}, [room]
    while waiting:
        for other in ROOMS[waiting.pop()] - reached:
            reached.add(other)
            waiting.append(other)
    return reached


def check_rooms(_):
    """The table of rooms has no circle, and every public header is in one room."""
    for room in ROOMS:
        for other in ROOMS[room]:
            if room in rooms_left_of(other):
                yield f'{room} and {other} may include each other'
    listed = [header for headers in PUBLIC.values() for header in headers.split()]
    there = {path.stem for path in sources('*.h', top=('include',))} - {'tessera', 'unstable'}
    for header in sorted(set(listed) ^ there):
        yield f'tessera/{header}.h: {"not there" if header in listed else "in no room"}'
    for header in sorted({header for header in listed if listed.count(header) > 1}):
        yield f'tessera/{header}.h: in several rooms'


def public_defect(room, header, used):
    """Why `room` may not include tessera/`header`.h, or None."""
    owners = [owner for owner, headers in PUBLIC.items() if header in headers.split()]
    if set(owners) & rooms_left_of(room):
        return None
    if (room, header) in PUBLIC_EXCEPTIONS:
        used.add((room, header))
        return None
    return f'{room} may not include "tessera/{header}.h" of {owners[0] if owners else "no room"}'


def check_include_directions(_):
    used = set()
    for path in sources('*.[ch]', top=('src',)):
        room = path.relative_to(ROOT / 'src').parts[0]
        if room not in ROOMS:
            yield f'{name(path)}: src/{room}/ is not in the table of rooms'
            continue
        for number, file in includes(path):
            other = file.split('/')[0]
            defect = None
            if other == 'tessera' and '/' in file:
                defect = public_defect(room, Path(file).stem, used)
            elif other not in ROOMS[room] | {room} or '/' not in file:
                defect = f'{room} may not include "{file}"'
            if defect:
                yield f'{name(path)}:{number}: {defect}'
    for room, headers in PUBLIC.items():
        for header in headers.split():
            for path in sources(f'{header}.h', top=('include',)):
                for number, file in includes(path):
                    defect = public_defect(room, Path(file).stem, used)
                    if defect:
                        yield f'{name(path)}:{number}: {defect}'
    for room, header in sorted(PUBLIC_EXCEPTIONS - used):
        yield f'{room} does not include "tessera/{header}.h" any more: take it out of lint.py'
    for path in sources('*.[ch]', top=tuple(OUTSIDE)):
        folder = path.relative_to(ROOT).parts[0]
        for number, file in includes(path):
            is_neighbour = (path.parent / file).resolve().is_relative_to(ROOT / folder)
            if not file.startswith('tessera/') and file not in OUTSIDE[folder] and not (
                    is_neighbour and (path.parent / file).is_file()) and not (
                    folder == 'cmd' and (ROOT / 'cmd' / file).is_file()):
                yield f'{name(path)}:{number}: only public headers here, not "{file}"'


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


def compile_errors(text, language='c'):
    """The first error that the compiler finds in `text`, as a list of one or none."""
    compiler, standard = {'c': ('cc', 'c17'), 'c++': ('c++', 'c++17')}[language]
    done = subprocess.run(
        [compiler, f'-std={standard}', '-x', language, '-fsyntax-only', '-Wall', '-Wextra',
         '-Wpedantic', '-Werror', '-I', str(ROOT / 'include'), '-I', str(ROOT / 'src'),
         '-I', str(ROOT / 'cmd'), '-'],
        input=text, capture_output=True, text=True, check=False)
    errors = [line for line in done.stderr.splitlines() if 'error' in line]
    return (errors or [done.stderr])[:1] if done.returncode else []


def include_line(path):
    top = path.relative_to(ROOT).parts[0]
    return f'#include "{path.relative_to(ROOT / top).as_posix()}"\n'


ASSERTIONS = 10  # a thousand lines of a room, at least


def check_assertions(_):
    """Says how many assertions each room has in a thousand lines; few are a defect."""
    for room in ROOMS:
        text = ''.join(path.read_text() for path in sources('*.[ch]', top=(f'src/{room}',)))
        text = re.sub(r'/\*.*?\*/', lambda comment: '\n' * comment.group().count('\n'), text,
                      flags=re.DOTALL)
        lines = text.count('\n')
        count = len(re.findall(r'\b(?:static_)?assert\(', text))
        print(f'# {room}: {count} assertions in {lines} lines, '
              f'{count * 1000 / max(lines, 1):.1f} a thousand')
        if count * 1000 < ASSERTIONS * lines:
            yield f'src/{room}/: fewer than {ASSERTIONS} assertions a thousand lines'


def check_headers_alone(_):
    """Each header compiles with nothing before it; the public ones in C++ as well."""
    wanted = [(path, 'c') for path in sources('*.h', top=('include', 'src', 'cmd'))]
    wanted += [(path, 'c++') for path in sources('*.h', top=('include',))]
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        found = threads.map(lambda job: compile_errors(include_line(job[0]), job[1]), wanted)
        for (path, language), errors in zip(wanted, found):
            for error in errors:
                yield f'{name(path)} as {language}: {error}'


def check_headers_together(_):
    """Any two headers compile in one file: all of them do, in both orders. A pair that clashes would
    clash here too, and a header that needs another one first fails check_headers_alone."""
    headers = [include_line(path) for path in sources('*.h', top=('include', 'src', 'cmd'))]
    for order, lines in (('first to last', headers), ('last to first', headers[::-1])):
        for error in compile_errors(''.join(lines)):
            yield f'all headers, {order}: {error}'


def declared_names(text):
    """The tsr__ types and functions that a file defines."""
    text = re.sub(r'/\*.*?\*/', '', text, flags=re.DOTALL)
    patterns = (
        r'^typedef\b[^;{]*?\b(tsr__\w+);',              # another name for a type, a vector
        r'^typedef\b[^;{]*?\(?\*?(tsr__\w+)\)?\([^;]*;',  # a function type
        r'^\} (tsr__\w+);',
        r'^(?:struct|enum|union) (tsr__\w+) \{',
        r'^[A-Za-z][\w \*]*?\b(tsr__\w+)\([^;{]*\) \{',  # a function
    )
    return {found for pattern in patterns for found in re.findall(pattern, text, re.MULTILINE)}


# Two names for one thing, which is clearer than a third: tsr__text makes a cell of a tsr_text.
NAMES_LIKE_PUBLIC = {'tsr__text'}


def check_names(_):
    """An internal name belongs to one room, and differs from public ones by more than a line."""
    rooms = {}
    for path in sources('*.[ch]', top=('src',)):
        for found in declared_names(path.read_text()):
            rooms.setdefault(found, set()).add(path.relative_to(ROOT / 'src').parts[0])
    public = set(re.findall(r'\btsr_\w+', ''.join(
        path.read_text() for path in sources('*.h', top=('include',)))))
    if len(rooms) < 500 or len(public) < 100:
        yield f'{len(rooms)} internal and {len(public)} public names: this check is blind'
    for found, where in sorted(rooms.items()):
        if len(where) > 1:
            yield f'{found} is defined in {" and ".join(sorted(where))}'
        if found.replace('tsr__', 'tsr_') in public and found not in NAMES_LIKE_PUBLIC:
            yield f'{found} and tsr_{found[5:]} are two things'
    for found in NAMES_LIKE_PUBLIC - set(rooms):
        yield f'{found} is gone: take it out of lint.py'


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


API = ROOT / 'tests/lint/api.txt'


def declared_functions(folder):
    """The functions that the headers directly in `folder` declare."""
    found = set()
    for path in folder.glob('*.h'):
        text = re.sub(r'/\*.*?\*/', '', path.read_text(), flags=re.DOTALL)
        found |= set(re.findall(r'^(?!typedef|static|#)[a-z][\w \*]*?\b(tsr_[a-z]\w*)\(', text,
                                re.MULTILINE))
    return found


def public_interface(library):
    """The lines of api.txt as they would be, and the symbols that the shared library exports."""
    shared = Path(library).with_suffix('.so')
    nm = subprocess.run(['nm', '-D', '--defined-only', str(shared)], capture_output=True,
                        text=True, check=True)
    exported = {line.split()[2] for line in nm.stdout.splitlines() if ' T ' in line}
    stable = declared_functions(ROOT / 'include/tessera')
    unstable = declared_functions(ROOT / 'include/tessera/unstable')
    lines = [f'stable {function}' for function in sorted(stable)]
    return lines + [f'unstable {function}' for function in sorted(unstable)], exported


def check_public_interface(library):
    """Functions are exported if and only if a public header declares them, and api.txt lists them: a change
    of the interface is a change of that file, to be seen in a review. --accept writes it."""
    lines, exported = public_interface(library)
    recorded = API.read_text().splitlines()
    count = sum(line.startswith('stable') for line in lines)
    print(f'# {count} stable functions, {len(lines) - count} unstable')
    declared = {line.split()[1] for line in lines}
    if len(lines) != len(declared):
        yield 'a function is declared as stable and as unstable'
    for function in sorted(exported - declared):
        yield f'{function} is exported, and no public header declares it: call it tsr__...'
    for function in sorted(declared - exported):
        yield f'{function} is declared, and not exported'
    for line in sorted(set(lines) - set(recorded)):
        yield f'{line} is new: lint.py --accept if that is intended'
    for line in sorted(set(recorded) - set(lines)):
        yield f'{line} is gone: lint.py --accept if that is intended'


def check_stable_headers(_):
    """The stable interface does not depend on the unstable one; tessera.h is all of it."""
    folder = ROOT / 'include/tessera'
    for path in sorted(folder.glob('*.h')):
        for number, file in includes(path):
            if file.startswith('tessera/unstable/'):
                yield f'{name(path)}:{number}: a stable header includes "{file}"'
    for umbrella in (folder / 'tessera.h', folder / 'unstable/unstable.h'):
        there = {path.relative_to(folder.parent).as_posix()
                 for path in umbrella.parent.glob('*.h') if path != umbrella}
        for file in sorted(there - {file for _, file in includes(umbrella)}):
            yield f'{name(umbrella)} does not include "{file}"'


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


# What only the builder of snapshots may call (src/snapshot/model/event_table.h, tables.h).
BUILDER_ONLY = (r'\btsr__(events_(push|reserve|release)|trace_append|id_column_(set|spread)'
                r'|snapshot_warn)\(')


def check_snapshots_are_written_by_the_builder(_):
    """Outside src/snapshot/model a snapshot is const, and nobody writes to what its pointers lead
    to, which const does not protect."""
    for path in sources('*.[ch]', top=('src', 'tests')):
        if (path.is_relative_to(ROOT / 'src/snapshot/model') or
                name(path) == 'tests/unit/test_builder.c'):  # breaks them on purpose
            continue
        text = path.read_text()
        names = {'snapshot', *re.findall(r'\btsr_snapshot \*(\w+)', text)}
        table = r'\b(%s)->\w+(\.\w+|\[[^;=]*\])*' % '|'.join(sorted(names))
        writes = re.compile(r'%s\s*(([-+|&]?=)[^=]|\+\+|--)|(TSR__VECTOR_(PUSH|RESERVE|FREE)|'
                            r'tsr__intern_put)\(\s*&[\w.>-]*?%s' % (table, table))
        is_code = path.is_relative_to(ROOT / 'src')
        for number, line in enumerate(text.splitlines(), 1):
            place = f'{name(path)}:{number}'
            if is_code and re.search(r'(?<!const )\btsr_snapshot \*(?!\*)', line):
                yield f'{place}: a snapshot is const outside the builder'
            if re.search(BUILDER_ONLY, line):
                yield f'{place}: for the builder of snapshots alone'
            if re.search(r'tsr_snapshot|snapshot->', text) and writes.search(line):
                yield f'{place}: only the builder writes to the tables of a snapshot'


def check_decisions(_):
    """Each decision has a number of its own, and begins with it."""
    taken = {}
    for path in sorted((ROOT / 'docs/decisions').iterdir()):
        match = re.fullmatch(r'(\d{3})-[a-z0-9-]+\.md', path.name)
        if not match:
            yield f'{name(path)}: decisions are called NNN-title.md'
            continue
        if match.group(1) in taken:
            yield f'{name(path)}: {taken[match.group(1)]} has that number'
        taken[match.group(1)] = path.name
        if not path.read_text().startswith(f'# {match.group(1)}: '):
            yield f'{name(path)}: does not begin with "# {match.group(1)}: "'


# What docs/words.md replaces, as far as a program can recognize it. Comments, messages and pages are read.
WORDS = re.compile(
    r'\b(there (is|are) none|in vain|by chance|lets? go of|handed on|so many of the|left aside|passed over|'
    r'whoever|anew|meanwhile|wholly|as a whole|comes? out as|as it comes|mend(s|ed)?|'
    r'says so|is said|fault of tessera)\b', re.IGNORECASE)


def prose(path):
    """(line number, text) of what people read in a file: all of a page, comments and strings of code."""
    text = path.read_text()
    if path.suffix == '.md':
        yield from enumerate(text.splitlines(), 1)
        return
    read = {'.py': r'#[^\n]*|"""(?s:.*?)"""|\'[^\'\n]*\'|"[^"\n]*"',
            '.c': r'/\*(?s:.*?)\*/|"(?:[^"\\\n]|\\.)*"'}['.py' if path.suffix == '.py' else '.c']
    for match in re.finditer(read, text):
        first = text.count('\n', 0, match.start()) + 1
        yield from enumerate(match.group().splitlines(), first)


def check_words(_):
    """Nothing is called by a word or phrase that docs/words.md replaces."""
    pages = [path for path in sorted(ROOT.glob('*.md')) + sources('*.md', top=('docs',))
             if path.name != 'words.md']
    for path in sources('*.[ch]', '*.py', top=('include', 'src', 'cmd', 'python', 'examples')) + pages:
        for number, line in prose(path):
            found = WORDS.search(line)
            if found:
                yield f'{name(path)}:{number}: "{found.group()}": see docs/words.md'


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
    parser.add_argument('--accept', action='store_true',
                        help='record the public interface as it is now, and stop')
    arguments = parser.parse_args()
    library = arguments.library
    if arguments.accept:
        API.write_text('\n'.join(public_interface(library)[0]) + '\n')
        return 0
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
