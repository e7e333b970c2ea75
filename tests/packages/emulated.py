"""emulated.py: tests of the project itself, of the build for AArch64, in QEMU's emulator: unit tests of the reader and what it stands on,
compiled here and linked with the objects that are in the packages; and the command-line tests."""
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / 'cross'))
import fetch  # noqa: E402  (it is in a folder of its own)

# Parts of the library and the archives that each is linked with, as src/meson.build has them.
PARTS = {'ground': ['ground'], 'reader': ['reader', 'ground']}
INCLUDED = {'ground': ['src/ground'], 'reader': ['src/ground', 'src/reader']}
LIBRARIES = ['-ljansson', '-lyaml', '-lpcre2-8', '-lutf8proc', '-lzstd', '-llzma', '-lz', '-lm', '-lpthread', '-ldl']
# zig's linker does not send calls through a test (-Wl,--wrap), and the emulator has none of the kernel's confinement.
LEFT_OUT = {'pool': 'the linker cannot replace functions', 'sort': 'the linker cannot replace functions',
            'sandbox': 'the emulator does not confine'}
CMOCKA = ['-DHAVE_SIGNAL_H', '-DHAVE_SETJMP_H', '-DHAVE_INTTYPES_H', '-DHAVE_STDINT_H', '-DHAVE_STRINGS_H', '-DHAVE_MALLOC_H', '-DHAVE_TIME_H',
          '-DHAVE_UNISTD_H', '-DHAVE_STRUCT_TIMESPEC', '-DHAVE_CLOCK_GETTIME', '-DHAVE_CLOCK_REALTIME', '-DHAVE_SNPRINTF', '-DHAVE_VSNPRINTF']


def names():
    """{part: names of its unit tests}, and {name: its other sources}, as tests/meson.build lists them."""
    text = (ROOT / 'tests/meson.build').read_text(encoding='utf-8')
    table = text[text.index('unit_tests = {'):text.index('unit_sources = {')]
    listed = {part: re.findall(r"'(\w+)'", re.search(rf"'{part}': \[(.*?)\]", table, re.DOTALL).group(1)) for part in PARTS}
    more = text[text.index('unit_sources = {'):text.index('unit_wrapped = {')]
    return listed, dict(re.findall(r"'(\w+)': '([\w./]+)'", more))


class Emulated:
    """The build of packages for AArch64, and what runs its programs."""

    def __init__(self, home, emulator, place):
        self.home, self.emulator, self.place = home, emulator, place
        self.place.mkdir(parents=True, exist_ok=True)
        wanted = [f'src/lib{name}.a' for name in ('ground', 'reader', 'rows_ground', 'rows_reader')]
        subprocess.run([fetch.tools() / 'ninja', '-C', home / 'build', *wanted], check=True, stdout=subprocess.DEVNULL)
        self.cmocka = next((ROOT / 'build-tools/sources').glob('cmocka/cmocka-*'), None) or fetch.sources(['cmocka'])['cmocka']
        self.compile('-c', *CMOCKA, '-w', f'-I{self.cmocka}/include', self.cmocka / 'src/cmocka.c', '-o', place / 'cmocka.o')

    def compile(self, *words):
        fetch.call(self.home / 'bin/cc', '-O1', '-g0', *words)

    def unit(self, part, name, sources):
        """Compiles and runs a test; its lines of TAP."""
        program = self.place / f'test_{name}'
        tests = ROOT / 'tests'
        archives = [self.home / f'build/src/lib{archive}.a' for archive in (f'rows_{part}', *PARTS[part])]
        self.compile('-std=gnu17', f'-I{ROOT}/include', *[f'-I{ROOT / folder}' for folder in INCLUDED[part]], f'-I{ROOT}/src', f'-I{tests}',
                     f'-I{self.cmocka}/include', f'-I{self.home}/prefix/include', tests / f'unit/test_{name}.c', *sources,
                     self.place / 'cmocka.o', '-Wl,--start-group', *archives, '-Wl,--end-group', f'-L{self.home}/prefix/lib', *LIBRARIES, '-o', program)
        done = subprocess.run([*self.emulator, program], capture_output=True, text=True, errors='replace', check=False, cwd=tests,
                              env={**os.environ, 'CMOCKA_MESSAGE_OUTPUT': 'TAP', 'TESSERA_TESTS': str(tests)})
        return done.returncode, done.stdout + done.stderr

    def units(self):
        """{name: (exit status, output)} of all unit tests of the reader and below."""
        listed, more = names()
        jobs = [(part, name, [ROOT / 'tests' / more[name]] if name in more else []) for part in PARTS for name in listed[part] if name not in LEFT_OUT]
        with ThreadPoolExecutor(os.cpu_count()) as threads:
            return dict(zip([name for _, name, _ in jobs], threads.map(lambda job: self.unit(*job), jobs)))

    def command(self, program):
        """A script that runs a program in the emulator, with the names of drop-ins beside it."""
        folder = self.place / 'command'
        folder.mkdir(exist_ok=True)
        script = folder / 'tessera'
        script.write_text(f'#!/bin/sh\nexec {" ".join(map(str, self.emulator))} -0 "$0" {program} "$@"\n')
        script.chmod(0o755)
        for link in program.parent.glob('mosaic_*'):
            if not (folder / link.name).is_symlink():
                (folder / link.name).symlink_to('tessera')
        return script
