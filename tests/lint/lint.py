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

# The rooms of the library, in the order in which they may know each other: a room calls functions of rooms above it
# in this table, and of none below. The reader and the engine do not know each other. See docs/architecture.md.
ROOMS = {
    'ground': ('base', 'io', 'columns', 'allocator', 'emit', 'ask'),
    'reader': ('formats', 'write', 'timeline', 'attribution', 'study', 'fleet', 'stacks', 'questions', 'tables', 'page', 'export'),
    'engine': ('kernels', 'graph', 'ops', 'traced', 'torch', 'models', 'dist', 'exec', 'tokens', 'train', 'plan', 'questions'),
    'mosaic': ('',),
}
# The half that a half stands on, besides itself.
BELOW = {'ground': (), 'reader': ('ground',), 'engine': ('ground',), 'mosaic': ('ground', 'reader')}
# Folders that use the library as any program does: public headers, their own, and these.
OUTSIDE = {'include': (), 'cmd': (), 'examples': (), 'python': ('core/program.h', 'core/output.h'),
           'web': ('core/program.h', 'core/tracer_archive.h')}
# Its headers stand on those of Windows, and no compiler here has them but that of cross/.
WINDOWS = ROOT / 'src/windows'
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
# Its order of equal items differs between C libraries; base/sort.h has one order.
UNSTABLE = 'qsort qsort_r'
ALLOWED = {'ground_base_memory.c.o': set(MEMORY.split())}


def sources(*patterns, top=('include', 'src', 'cmd', 'python', 'tests', 'examples', 'web')):
    """Files under the folders of `top` whose names match, sorted."""
    return sorted(path for folder in top for pattern in patterns
                  for path in (ROOT / folder).rglob(pattern)
                  if path.is_file() and not (pattern == '*.h' and path.is_relative_to(WINDOWS)))


def name(path):
    return path.relative_to(ROOT).as_posix()


def includes(path):
    """(line number, included file) of each #include with quotes, or of a public header."""
    for number, line in enumerate(path.read_text().splitlines(), 1):
        match = re.match(r'\s*#\s*include\s+(?:"([^"]+)"|<(tessera/[^>]+)>)', line)
        if match:
            yield number, match.group(1) or match.group(2)


def room_of(member):
    """(half, room) of an object of one of the library's four parts: engine_plan_ways.c.o is in engine/plan."""
    half, _, rest = member.partition('_')
    if half not in ROOMS:
        return None
    return half, next((room for room in ROOMS[half] if room and rest.startswith(room + '_')), '')


def may_call(caller, callee):
    if caller[0] != callee[0]:
        return callee[0] in BELOW[caller[0]]
    order = ROOMS[caller[0]]
    return order.index(callee[1]) <= order.index(caller[1])


def symbols_of(objects):
    """(object, symbol, kind) of each symbol of these objects, which one nm reads."""
    objects = list(objects)
    printed = tool('nm', '--print-file-name', '--format=posix', *map(str, objects)) if objects else ''
    for line in printed.splitlines():
        path, _, symbol = line.partition(': ')
        yield Path(path), *symbol.split()[:2]


def check_rooms(library):
    """No room calls a function, or reads data, of a room below it in the table: asked of the objects. Each folder of
    src/ is in the table."""
    for half, rooms in ROOMS.items():
        found = {path.parent.relative_to(ROOT / 'src' / half).parts[0] if path.parent.name != half else ''
                 for path in sources('*.c', top=(f'src/{half}',))}
        for room in sorted(found ^ set(rooms)):
            yield f'src/{half}/{room}: {"not in the table of rooms" if room in found else "no such room"}'
    defined, wanted, places = {}, [], {}
    for half in ROOMS:
        for path in sorted(Path(library).parent.glob(f'lib{half}.a.p/*.c.o')):
            place = room_of(path.name if half != 'mosaic' else f'mosaic_{path.name}')
            if place:  # else a generator wrote it
                places[path] = place
    for path, symbol, kind in symbols_of(places):
        if kind in 'TDRBVW':
            defined[symbol] = places[path]
        elif kind == 'U':
            wanted.append((path.name, places[path], symbol))
    if len(defined) < 1000:
        yield f'{len(defined)} symbols: this check is blind'
    for member, place, symbol in sorted(set(wanted)):
        other = defined.get(symbol)
        if other and not may_call(place, other):
            yield f'{member}: {"/".join(place)} may not call {symbol} of {"/".join(other)}'


def circle(objects):
    """The calls, as {object: {other: symbols}}, of those that can reach themselves: what is left of a graph when objects
    that call no other, or that no other calls, are taken away one after the other."""
    names = {path: re.sub(r'\.c\.o$', '', path.name.rpartition('.._')[2]) for path in objects}
    defined, wanted = {}, {member: set() for member in names.values()}
    for path, symbol, kind in symbols_of(names):
        if kind in 'TDRBVW':
            defined[symbol] = names[path]
        elif kind == 'U':
            wanted[names[path]].add(symbol)
    calls = {member: {} for member in wanted}
    for member, symbols in wanted.items():
        for symbol in sorted(symbols & set(defined)):
            if defined[symbol] != member:
                calls[member].setdefault(defined[symbol], []).append(symbol)
    while True:
        called = {other for others in calls.values() for other in others}
        left = {member: {other: symbols for other, symbols in others.items() if calls[other]}
                for member, others in calls.items() if others and member in called}
        if left == calls:
            return calls
        calls = left


# Folders whose files call each other in one direction only, by where their objects are in the folder of the build. Those of
# Python's half are there if CPython's headers are.
ONE_WAY = {'cmd': 'cmd/libcli.a.p/*.c.o', 'python/src': 'tests/toy/questions/_core*.p/*python_src_*.c.o'}


def check_circles(library):
    """No two files of a command, or of Python's C half, call each other, directly or through others."""
    for folder, pattern in ONE_WAY.items():
        objects = sorted(library.resolve().parent.parent.glob(pattern))
        if len(objects) < 10 and (objects or folder == 'cmd'):
            yield f'{folder}: {len(objects)} objects: this check is blind'
        for member, others in circle(objects).items():
            for other, symbols in others.items():
                yield f'{folder}: {member} is in a circle: it calls {", ".join(symbols)} of {other}'


def check_includes(_):
    """Includes name the folder, and commands, examples and the Python package see public headers only. What the halves may
    include of each other needs no check: each is compiled without the folder of the other."""
    for path in sources('*.[ch]', top=('src',)):
        for number, file in includes(path):
            if '/' not in file:
                yield f'{name(path)}:{number}: "{file}" does not name its room'
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


# Folders in which includes are looked up, the innermost first.
INCLUDED = ('include', 'src/ground', 'src/reader', 'src/engine', 'src', 'cmd')


def compile_errors(text, language='c'):
    """The first error that the compiler finds in `text`, as a list of one or none."""
    compiler, standard = {'c': ('cc', 'c17'), 'c++': ('c++', 'c++17')}[language]
    done = subprocess.run(
        [compiler, f'-std={standard}', '-x', language, '-fsyntax-only', '-Wall', '-Wextra',
         '-Wpedantic', '-Werror', *(f'-I{ROOT / folder}' for folder in INCLUDED), '-'],
        input=text, capture_output=True, text=True, check=False)
    errors = [line for line in done.stderr.splitlines() if 'error' in line]
    return (errors or [done.stderr])[:1] if done.returncode else []


def include_line(path):
    folder = next(folder for folder in INCLUDED if path.is_relative_to(ROOT / folder))
    return f'#include "{path.relative_to(ROOT / folder).as_posix()}"\n'


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
            rooms.setdefault(found, set()).add('/'.join(path.relative_to(ROOT / 'src').parts[:-1][:2]))
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
    text = ''.join(path.read_text() for path in (ROOT / 'include').rglob('*.h'))
    tables = {table for line in re.findall(r'^extern const [^;]*;', text, re.MULTILINE)
              for table in re.findall(r'\b(tsr_\w+)(?=[\[;,])', line)}
    listed = set(re.findall(r'^(\w+) DATA$', (ROOT / 'src/libtessera.def.in').read_text(), re.MULTILINE))
    for table in sorted(tables ^ listed):
        yield f'{table}: src/libtessera.def.in and the public headers do not agree'
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
    texts = {path: path.read_text() for path in sorted(folder.glob('*.h'))}
    code = {path: re.sub(r'/\*.*?\*/', '', text, flags=re.S) for path, text in texts.items()}
    known = set(re.findall(r'\btsr_\w+|\bTSR_\w+', '\n'.join(code.values())))
    for path, text in texts.items():
        for word in sorted(set(re.findall(r'\btsr_\w+\w|\bTSR_\w+\w', text)) - known):
            yield f'{name(path)}: {word} is declared in no stable header'
        for word in sorted(set(re.findall(r'\bstruct (tsr_\w+)', code[path]))):
            if not re.search(rf'\btypedef struct {word}\b', '\n'.join(code.values())):
                yield f'{name(path)}: struct {word} has no type in a stable header'
        if 'unstable/' in text and path.name != 'tessera.h':
            yield f'{name(path)} refers to unstable headers'
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
    forbidden = set(f'{MEMORY} {PROCESS} {UNSTABLE}'.split())
    seen = set()
    for member, line in members(library, ('nm', '-u')):
        seen.add(member)
        symbol = line.split()[-1].split('@')[0] if line.split() else ''
        if symbol in forbidden - ALLOWED.get(member, set()):
            yield f'{member}: uses {symbol}'
    if 'ground_base_memory.c.o' not in seen:
        yield f'{library}: base/memory.c is not in it: this check is blind'


def check_writable_data(library):
    for member, line in members(library, ('objdump', '-t')):
        match = re.match(r'[0-9a-f]+ .{7} (\.t?data|\.t?bss|\*COM\*)(\.\S*)?\t([0-9a-f]+) +(\S+)$',
                         line)
        relocated = match and (match.group(2) or '').startswith('.rel.ro')
        if match and not relocated and int(match.group(3), 16):
            yield f'{member}: {match.group(4)} can be written to'


# What only the builder of snapshots may call (src/ground/columns/event_table.h, tables.h).
BUILDER_ONLY = (r'\btsr__(events_(push|reserve|release)|trace_append|id_column_(set|spread)'
                r'|snapshot_warn)\(')


def check_snapshots_are_written_by_the_builder(_):
    """Outside src/ground/columns a snapshot is const, and nobody writes to what its pointers lead
    to, which const does not protect."""
    for path in sources('*.[ch]', top=('src', 'tests')):
        if (path.is_relative_to(ROOT / 'src/ground/columns') or
                name(path) == 'tests/unit/test_builder.c'):  # breaks them on purpose
            continue
        text = path.read_text()
        names = {'snapshot', *re.findall(r'\btsr_snapshot \*(\w+)', text)}
        table = r'\b(%s)->\w+(\.\w+|\[[^;=]*\])*' % '|'.join(sorted(names))
        writes = re.compile(r'%s\s*(([-+|&]?=)[^=]|\+\+|--)|(TSR__VECTOR_(PUSH|RESERVE|FREE)|'
                            r'tsr__intern_put)\(\s*&[\w.>-]*?%s' % (table, table))
        # fleet.c and the question "card" open snapshots and release them, which takes a pointer that is not const.
        is_code = path.is_relative_to(ROOT / 'src') and path.stem != 'fleet' and path.parent.name != 'card'
        has_snapshots = re.search(r'tsr_snapshot|snapshot->', text)
        for number, line in enumerate(text.splitlines(), 1):
            place = f'{name(path)}:{number}'
            if is_code and re.search(r'(?<!const )\btsr_snapshot \*(?!\*)', line):
                yield f'{place}: a snapshot is const outside the builder'
            if re.search(BUILDER_ONLY, line):
                yield f'{place}: for the builder of snapshots alone'
            if has_snapshots and writes.search(line):
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


# What docs/wording.md replaces, as far as a program can recognize it. Comments, messages and pages are read.
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
    """Nothing is called by a word or phrase that docs/wording.md replaces."""
    pages = [path for path in sorted(ROOT.glob('*.md')) + sources('*.md', top=('docs',))
             if path.name != 'wording.md']
    for path in sources('*.[ch]', '*.py', top=('include', 'src', 'cmd', 'python', 'examples')) + pages:
        for number, line in prose(path):
            found = WORDS.search(line)
            if found:
                yield f'{name(path)}:{number}: "{found.group()}": see docs/wording.md'


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
