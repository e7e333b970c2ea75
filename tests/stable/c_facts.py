"""c_facts.py: what programs in C rely on, from the stable headers as the compiler understands them: functions, structs and where their
members are, enumerators, constants, and what the shared library exports.

    function tsr_gpu_at = _Bool (size_t, tsr_gpu *)
    struct tsr_query = 48 bytes, grows
    member tsr_query.top = bytes 24 to 32: size_t
    handle tsr_study = opaque
    enumerator tsr_status.TSR_ERROR_IO = -2
    constant TSR_NONE = 4294967295
    initializer TSR_OPTIONS_INIT(tsr_query) c++ = size, zeros
    symbol tsr_ask = exported

Layouts are those of 64-bit systems: all that tessera is built for have the same. The compiler writes them as debug information, which
readelf prints."""
import re
import subprocess
import tempfile
from pathlib import Path

# Rows that the library hands out by pointer: they grow at their end (tessera/registry.h), as structs that begin with their size do. Not
# tsr_parameter_type: of tsr_model_type, which is data, linkers copy as many bytes into a program as it had when they linked it.
ROWS = {'tsr_question', 'tsr_parameter'}
# Values that follow from what else there is, and so grow with it.
FOLLOWS = re.compile(r'_COUNT$|_ALL$')
# Constants that are the largest that is accepted: they may be raised.
LIMITS = re.compile(r'TSR_LIMIT_|TSR_RULES_|TSR_SIMULATE_MOST_')

# What readelf prints before a value, depending on its version: "(strp) (offset: 0x1b): ", "(indirect string, offset: 0x1b): ", "(data1) ".
FORM = re.compile(r'^(?:\([a-z]+_?[a-z]*\d*\) )?(?:\((?:indirect (?:line )?string, )?offset: \w+\): )?')


def number(text):
    return int(text.split()[0], 0)


def run(*command, text=None):
    done = subprocess.run(list(map(str, command)), input=text, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ValueError(f'{command[0]}: {done.stderr.strip()[-2000:]}')
    return done.stdout


def code_of(path):
    return re.sub(r'/\*.*?\*/', '', path.read_text(encoding='utf-8'), flags=re.DOTALL)


def headers_of(include):
    return sorted((include / 'tessera').glob('*.h'))


def functions_of(include):
    """The functions that the stable headers declare. A line that begins with a type, up to the parenthesis."""
    found = set()
    for path in headers_of(include):
        found |= set(re.findall(r'^(?!typedef|static|#)[a-z][\w \*]*?\b(tsr_[a-z]\w*)\(', code_of(path), re.MULTILINE))
    return sorted(found)


def data_of(include):
    return sorted(name for path in headers_of(include) for name in re.findall(r'^extern const [^;(]*?\b(tsr_\w+)(?:\[\])?;', code_of(path), re.MULTILINE))


class Debug:
    """The debug information of an object: each entry by its number, with its tag, attributes and children."""

    def __init__(self, path):
        self.entries, self.top = {}, []
        stack = []
        entry = None
        for line in run('readelf', '--debug-dump=info', '--wide', path).splitlines():
            begins = re.match(r' *<(\w+)><(\w+)>: Abbrev Number: \d+ \((DW_TAG_\w+)\)', line)
            if begins:
                depth, number, tag = int(begins[1], 16), int(begins[2], 16), begins[3][len('DW_TAG_'):]
                entry = {'tag': tag, 'children': []}
                self.entries[number] = entry
                del stack[depth:]
                (stack[-1]['children'] if stack else self.top).append(entry)
                stack.append(entry)
                continue
            has = re.match(r' *<\w+> +DW_AT_(\w+) *: (.*)', line)
            if has and entry is not None:
                entry[has[1]] = FORM.sub('', has[2]).strip()

    def of(self, entry):
        """The entry of its type; None for void."""
        found = re.search(r'<0x(\w+)>', entry.get('type', ''))
        return self.entries[int(found[1], 16)] if found else None

    def size(self, entry):
        tag = entry['tag']
        if 'byte_size' in entry:
            return number(entry['byte_size'])
        if tag == 'pointer_type':  # clang does not write it
            return 8
        if tag == 'array_type':
            return self.size(self.of(entry)) * self.length(entry)
        return self.size(self.of(entry))

    @staticmethod
    def length(entry):
        length = 1
        for part in entry['children']:
            length *= number(part['count']) if 'count' in part else number(part.get('upper_bound', '-1')) + 1
        return length

    def text(self, entry):
        """A type as C writes it, down to the names that headers give."""
        if entry is None:
            return 'void'
        tag, of = entry['tag'], self.of(entry)
        if tag in ('typedef', 'base_type'):
            return entry['name']
        if tag == 'pointer_type':
            text = self.text(of)
            if of is not None and of['tag'] == 'subroutine_type':
                return text.replace(' (', ' (*)(', 1)
            return text + ('*' if text.endswith('*') else ' *')
        if tag == 'const_type':
            text = self.text(of)
            return text + ' const' if of is not None and of['tag'] == 'pointer_type' else f'const {text}'
        if tag == 'array_type':
            return f'{self.text(of)} [{self.length(entry)}]'
        if tag == 'subroutine_type':
            return f'{self.text(of)} ({self.arguments(entry)})'
        kinds = {'structure_type': 'struct', 'enumeration_type': 'enum', 'union_type': 'union'}
        return f'{kinds[tag]} {entry.get("name", "...")}'

    def arguments(self, entry):
        parts = [self.text(self.of(part)) if part['tag'] == 'formal_parameter' else '...' for part in entry['children']]
        return ', '.join(parts) or 'void'


def struct_facts(debug, name, entry):
    if 'declaration' in entry:
        yield f'handle {name}', 'opaque'
        return
    members = [part for part in entry['children'] if part['tag'] == 'member']
    grows = name in ROWS or members[0]['name'] == 'struct_bytes'
    yield f'struct {name}', f'{debug.size(entry)} bytes, {"grows" if grows else "fixed"}'
    for part in members:
        begin, kind = number(part['data_member_location']), debug.of(part)
        yield f'member {name}.{part["name"]}', f'bytes {begin} to {begin + debug.size(kind)}: {debug.text(kind)}'


def type_facts(debug, entry):
    """Facts of a typedef."""
    name, of = entry['name'], debug.of(entry)
    if of['tag'] == 'structure_type':
        yield from struct_facts(debug, name, of)
    elif of['tag'] == 'enumeration_type':
        yield f'enum {name}', f'{debug.size(of)} bytes'
        for part in of['children']:
            if not FOLLOWS.search(part['name']):
                yield f'enumerator {name}.{part["name"]}', str(number(part['const_value']))
    else:
        yield f'type {name}', debug.text(of)


def macros_of(include):
    """Names and parameters of the macros of the stable headers."""
    printed = run('cc', '-std=c17', '-E', '-dM', f'-I{include}', '-', text='#include <tessera/tessera.h>\n')
    for name, given in re.findall(r'^#define ((?:TSR|TESSERA)_\w+)(\([^)]*\))?', printed, re.MULTILINE):
        if not name.endswith('_H') and not name.startswith('TESSERA_VERSION_'):
            yield name, given


def growing_of(include):
    """The structs that begin with their size."""
    return sorted(name for path in headers_of(include) for name in re.findall(r'typedef struct (tsr_\w+) \{\s*size_t struct_bytes;', code_of(path)))


# Prints what an initializer writes: the size of the struct first, and zeros.
PRINT = r'''#include <stdio.h>
static void print(const char *name, const void *made, size_t size) {
  size_t others = 0;
  for (size_t i = sizeof size; i < size; i++) others += ((const unsigned char *)made)[i] != 0;
  printf("%s %s, %s\n", name, *(const size_t *)made == size ? "size" : "another size", others ? "others" : "zeros");
}
'''


def constant_facts(include, folder):
    macros = sorted(macros_of(include))
    for name, given in macros:
        if given:
            yield f'macro {name}', given
    names = [name for name, given in macros if not given]
    lines = [f'printf((__typeof__({name}))-1 < 0 ? "{name} %lld\\n" : "{name} %llu\\n", (long long)({name}));' for name in names]
    initializers = [f'{{ static {kind} made = {name}({kind}); print("{name}({kind})", &made, sizeof made); }}'
                    for name, given in macros if given == '(type)' for kind in growing_of(include)]
    for language, given in (('c', lines + initializers), ('c++', initializers)):
        for name, value in printed(include, folder, language, given):
            if name.endswith(')'):
                yield f'initializer {name} {language}', value
            else:
                yield f'{"limit" if LIMITS.match(name) else "constant"} {name}', value


def printed(include, folder, language, lines):
    """(name, value) that statements print."""
    compiler, standard = {'c': ('cc', 'gnu17'), 'c++': ('c++', 'gnu++17')}[language]
    run(compiler, f'-std={standard}', '-w', f'-I{include}', '-x', language, '-', '-o', folder / 'printed',
        text=PRINT + '#include <tessera/tessera.h>\nint main(void) {\n' + '\n'.join(lines) + '\n}\n')
    return [line.split(maxsplit=1) for line in run(folder / 'printed').splitlines()]


def header_facts(include):
    """What the headers declare."""
    functions, data = functions_of(include), data_of(include)
    text = '#include <tessera/tessera.h>\n' + ''.join(f'__typeof__({name}) *function_{name};\n' for name in functions)
    text += ''.join(f'__typeof__({name}[0]) *data_{name};\n' if re.search(rf'\b{name}\[\]', code) else f'__typeof__({name}) *data_{name};\n'
                    for code in [''.join(map(code_of, headers_of(include)))] for name in data)
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        run('cc', '-std=gnu17', '-w', '-g', '-gdwarf-4', '-gstrict-dwarf', '-fno-eliminate-unused-debug-types', f'-I{include}', '-c', '-x', 'c', '-',
            '-o', folder / 'all.o', text=text)
        debug = Debug(folder / 'all.o')
        for path in headers_of(include):
            yield f'header tessera/{path.name}', 'included by tessera.h'
        for entry in debug.top[0]['children']:
            name = entry.get('name', '')
            if entry['tag'] == 'typedef' and name.startswith('tsr_'):
                yield from type_facts(debug, entry)
            elif entry['tag'] == 'variable' and name.startswith('function_'):
                of = debug.of(debug.of(entry))
                yield f'function {name.removeprefix("function_")}', debug.text(of)
            elif entry['tag'] == 'variable' and name.startswith('data_'):
                yield f'data {name.removeprefix("data_")}', debug.text(debug.of(debug.of(entry)))
        yield from constant_facts(include, folder)


def library_facts(include, library):
    """What the shared library exports of that, and what programs that are linked with it ask for."""
    exported = {line.split()[-1] for line in run('nm', '-D', '--defined-only', library).splitlines()}
    for name in functions_of(include) + data_of(include):
        if name in exported:
            yield f'symbol {name}', 'exported'
    yield 'soname libtessera', re.search(r'\(SONAME\) .*\[(.*)\]', run('readelf', '-d', library))[1]


def facts(include, library=None):
    found = dict(header_facts(include))
    if library:
        found.update(library_facts(include, library))
    return found
