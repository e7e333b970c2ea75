#!/usr/bin/env python3
"""hardening.py --commands compile_commands.json --flags=FLAG,... FILE...: what was built is hardened. Prints TAP.

Reads the files, programs and shared libraries, as ELF, and the commands that compiled them. FLAGs are those that the
compiler has."""
import argparse
import json
import struct
import sys
from pathlib import Path

import tap
from tap import Skip, expect

EXECUTABLE, WRITABLE = 1, 2
LOAD, DYNAMIC, STACK, RELRO = 1, 2, 0x6474e551, 0x6474e552
STRTAB, SYMTAB, TEXTREL, FLAGS, FLAGS_1 = 5, 6, 22, 30, 0x6ffffffb
# What the dynamic section has the address of: names, hashes, relocations and versions.
TABLES = (STRTAB, 4, 7, 23, 0x6ffffef5, 0x6ffffff0, 0x6ffffffc, 0x6ffffffe)
BIND_NOW, NOW, PIE = 8, 1, 0x08000000
FUNCTION, X86_64 = 2, 62
ENDBR64 = b'\xf3\x0f\x1e\xfa'


class Elf:
    """A 64-bit little-endian file: its segments, its dynamic section and its dynamic symbols."""

    def __init__(self, path):
        self.data, self.name = path.read_bytes(), path.name
        if self.data[:6] != b'\x7fELF\x02\x01':
            raise Skip(f'{path.name} is not ELF of 64 bits, little-endian')
        self.kind, self.machine = struct.unpack_from('<HH', self.data, 16)
        start, = struct.unpack_from('<Q', self.data, 32)
        size, count = struct.unpack_from('<HH', self.data, 54)
        self.segments = [struct.unpack_from('<IIQQQQQQ', self.data, start + i * size) for i in range(count)]
        self.dynamic = dict(self.entries())

    def segment(self, kind):
        found = [segment for segment in self.segments if segment[0] == kind]
        return found[0] if found else None

    def entries(self):
        _, _, at, _, _, size, _, _ = self.segment(DYNAMIC)
        yield from struct.iter_unpack('<QQ', self.data[at:at + size])

    def offset(self, address):
        for kind, _, at, start, _, size, _, _ in self.segments:
            if kind == LOAD and start <= address < start + size:
                return at + address - start
        raise ValueError(hex(address))

    def symbols(self):
        """(name, type, section, address) of each; the table of symbols ends where another begins."""
        first, names = self.offset(self.dynamic[SYMTAB]), self.offset(self.dynamic[STRTAB])
        end = min(at for at in (self.offset(self.dynamic[table]) for table in TABLES if table in self.dynamic) if at > first)
        for at in range(first, end - 23, 24):
            name, info, _, section, address, _ = struct.unpack_from('<IBBHQQ', self.data, at)
            last = self.data.index(b'\0', names + name)
            yield self.data[names + name:last].decode(), info & 15, section, address

    def imports(self):
        return {name for name, _, section, _ in self.symbols() if section == 0}


def check_position_independent(files, _):
    for file in files:
        expect(f'{file.name}: its type', file.kind, 3)
        expect(f'{file.name}: relocations in its code', TEXTREL in file.dynamic, False)
    expect('the program is one', bool(files[0].dynamic.get(FLAGS_1, 0) & PIE), True)


def check_read_only_relocations(files, _):
    """Tables of addresses are filled at the start, and cannot be written afterwards."""
    for file in files:
        now = file.dynamic.get(FLAGS, 0) & BIND_NOW or file.dynamic.get(FLAGS_1, 0) & NOW
        expect(f'{file.name}: RELRO, BIND_NOW', (file.segment(RELRO) is not None, bool(now)), (True, True))


def check_nothing_is_written_and_executed(files, _):
    for file in files:
        expect(f'{file.name}: its stack', (file.segment(STACK) or (0, EXECUTABLE))[1] & EXECUTABLE, 0)
        both = [hex(segment[3]) for segment in file.segments
                if segment[0] == LOAD and segment[1] & EXECUTABLE and segment[1] & WRITABLE]
        expect(f'{file.name}: segments that are both', both, [])


def check_stack_protector(files, options):
    if '-fstack-protector-strong' not in options.flags:
        raise Skip('the compiler has none')
    for file in files:
        expect(f'{file.name}: imports', '__stack_chk_fail' in file.imports(), True)


def check_fortified_calls(files, options):
    if not any(flag.startswith('-D_FORTIFY_SOURCE') for flag in options.flags):
        raise Skip('the C library or the kind of build has none')
    found = {file.name: sorted(name for name in file.imports() if name.endswith('_chk')) for file in files}
    if not any(found.values()) and not any('__libc_start_main' in name for name in files[0].imports()):
        raise Skip('the C library has no checks')
    for name, checks in found.items():
        expect(f'{name}: checked functions of the C library', len(checks) > 2, True)


def check_targets_of_jumps(files, options):
    """Each exported function begins with the instruction that indirect jumps must find."""
    if '-fcf-protection=full' not in options.flags or files[0].machine != X86_64:
        raise Skip('the compiler or the processor has no control-flow protection of this form')
    for file in files[1:]:
        functions = [(name, file.offset(address)) for name, kind, section, address in file.symbols()
                     if section and kind == FUNCTION]
        expect(f'{file.name}: functions', bool(functions), True)
        expect(f'{file.name}: without it',
               [name for name, at in functions if file.data[at:at + 4] != ENDBR64], [])


def check_every_file_is_compiled_so(_, options):
    commands = json.loads(options.commands.read_text())
    ours = [one for one in commands if not one['file'].startswith('../tests') and one['file'].endswith('.c')]
    expect('files', len(ours) > 100, True)
    expect('compiled without a flag', [(one['file'], flag) for one in ours for flag in options.flags
                                       if flag not in one['command'].replace("'", '').split()][:5], [])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--commands', required=True, type=Path)
    parser.add_argument('--flags', required=True, type=lambda text: text.split(','))
    parser.add_argument('files', nargs='+', type=Path, help='the program, then shared libraries')
    options = parser.parse_args()
    try:
        files = [Elf(path) for path in options.files]
    except Skip as reason:
        print(f'1..0 # SKIP {reason}')
        return 0
    return tap.run(tap.named([check_position_independent, check_read_only_relocations,
                              check_nothing_is_written_and_executed, check_stack_protector, check_fortified_calls,
                              check_targets_of_jumps, check_every_file_is_compiled_so], files, options))


if __name__ == '__main__':
    sys.exit(main())
