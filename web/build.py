#!/usr/bin/env python3
"""build.py --native FOLDER --work FOLDER: tessera as a WebAssembly module, WORK/tessera.wasm.

What is compiled are the sources that meson lists for the library and the command (FOLDER, a build folder of the
release), with web/ for what a browser has none of. The compiler and the sources of the libraries are those of the builds for
other systems (cross/fetch.py). A second build takes only what changed.
docs/decisions/074-the-browser.md has the reasons."""
import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / 'cross'))
import fetch  # noqa: E402  (it is in a folder of its own)

TARGET = ['-target', 'wasm32-wasi', '-mbulk-memory', '-msimd128']
# Signals are emulated: none arrives.
WASI = ['-D_GNU_SOURCE=', '-D_WASI_EMULATED_SIGNAL', '-D_WASI_EMULATED_PROCESS_CLOCKS', '-D_WASI_EMULATED_GETPID', '-DNDEBUG']
# Before each file of the command, and of web/: what WASI's C library lacks. It has the functions of OWN as well, of which
# fchmod() always fails: those of web/posix.c have names of their own.
OWN = ['fchmod', 'realpath', 'pthread_mutex_init', 'pthread_mutex_destroy', 'pthread_cond_init', 'pthread_cond_destroy',
       'pthread_cond_signal']
POSIX = ['-include', str(ROOT / 'web/posix.h'), *(f'-D{name}=web_{name}' for name in OWN)]
# Sources of the native build that have another here; None: nothing takes its place.
REPLACED = {
    'src/ground/base/os_threads_posix.c': 'src/ground/base/os_threads_wasi.c', 'src/ground/base/os_linux.c': None,
    'cmd/core/system_posix.c': 'cmd/core/system_wasi.c', 'cmd/core/system_linux.c': 'cmd/core/nameless_absent.c',
    'cmd/core/sandbox_linux.c': 'cmd/core/sandbox_absent.c', 'cmd/core/tracer.c': 'cmd/core/tracer_absent.c',
    'cmd/serve/http.c': None, 'cmd/serve/serve_crowd.c': None, 'cmd/serve/serve_request.c': None,
    'cmd/serve/serve.c': 'cmd/serve/serve_absent.c',
    'cmd/terminal/screen.c': None, 'cmd/terminal/terminal.c': 'cmd/terminal/terminal_absent.c',
    'python/tracer/tracer_archive.c': None,
    'cmd/core/main.c': None,
}


class Ninja:
    """What is to be compiled, as the text of a build.ninja."""

    def __init__(self, compiler):
        self.lines = [f'zig = {compiler}', 'rule cc',
                      '  command = $zig cc $flags -MD -MF $out.d -c $in -o $out', '  depfile = $out.d', '  deps = gcc',
                      '  description = $in', 'rule link', '  command = $zig cc $flags @$out.rsp -o $out', '  rspfile = $out.rsp',
                      '  rspfile_content = $in', '  description = $out']
        self.objects = []

    def compile(self, group, source, flags):
        place = f'objects/{group}/' + str(source).replace('/', '_').strip('_') + '.o'
        self.lines += [f'build {place}: cc {source}', '  flags = ' + quoted(flags)]
        self.objects.append(place)

    def link(self, out, flags):
        self.lines += [f'build {out}: link ' + ' '.join(self.objects), '  flags = ' + quoted(flags), f'default {out}', '']


def quoted(words):
    return ' '.join("'" + word.replace('$', '$$') + "'" if set(word) & set('()" ') else word for word in map(str, words))


def write_if_new(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists() or path.read_text(encoding='utf-8') != text:
        path.write_text(text, encoding='utf-8')


JANSSON_CONFIG = '''#define JSON_INLINE inline
#define JSON_INTEGER_IS_LONG_LONG 1
#define JSON_HAVE_LOCALECONV 1
#define JSON_HAVE_ATOMIC_BUILTINS 0
#define JSON_HAVE_SYNC_BUILTINS 0
#define JSON_PARSER_MAX_DEPTH 2048
'''


def libraries(ninja, places, work):
    """Compile the libraries; returns the folders of their headers."""
    headers = work / 'headers'
    flags = [*TARGET, *WASI, '-O2', '-w', '-include', str(ROOT / 'web/posix.h')]
    pcre = places['pcre2'] / 'src'
    write_if_new(headers / 'pcre2.h', (pcre / 'pcre2.h.generic').read_text(encoding='utf-8'))
    write_if_new(headers / 'jansson_config.h', JANSSON_CONFIG)
    write_if_new(headers / 'jansson_private_config.h', '')
    write_if_new(work / 'pcre2/pcre2_chartables.c', (pcre / 'pcre2_chartables.c.dist').read_text(encoding='utf-8'))
    of_pcre = [*flags, '-DPCRE2_CODE_UNIT_WIDTH=8', '-DHAVE_CONFIG_H', '-DSUPPORT_UNICODE', '-DPCRE2_STATIC', f'-I{pcre}',
               f'-I{headers}', f'-I{work}/pcre2']
    write_if_new(work / 'pcre2/config.h', (pcre / 'config.h.generic').read_text(encoding='utf-8'))
    apart = {'dftables', 'fuzzsupport', 'jit_match', 'jit_misc', 'jit_test', 'printint', 'ucptables'}
    for source in [*sorted(pcre.glob('pcre2_*.c')), work / 'pcre2/pcre2_chartables.c']:
        if source.stem.removeprefix('pcre2_') not in apart:
            ninja.compile('pcre2', source, of_pcre)
    for name in ('adler32', 'crc32', 'deflate', 'inffast', 'inflate', 'inftrees', 'trees', 'zutil'):
        ninja.compile('zlib', places['zlib'] / f'{name}.c', [*flags, '-DHAVE_UNISTD_H'])
    zstd = places['libzstd'] / 'lib'
    for source in sorted([*zstd.glob('common/*.c'), *zstd.glob('decompress/*.c')]):
        ninja.compile('zstd', source, [*flags, '-DXXH_NAMESPACE=ZSTD_', '-DZSTD_DISABLE_ASM', '-DZSTD_LEGACY_SUPPORT=0', f'-I{zstd}'])
    yaml = places['libyaml']
    for name in ('api', 'loader', 'parser', 'reader', 'scanner'):
        ninja.compile('yaml', yaml / f'src/{name}.c', [*flags, f'-I{yaml}/include', '-DYAML_VERSION_MAJOR=0',
                      '-DYAML_VERSION_MINOR=2', '-DYAML_VERSION_PATCH=5', '-DYAML_VERSION_STRING="0.2.5"'])
    jansson = places['jansson'] / 'src'
    for source in sorted(jansson.glob('*.c')):
        ninja.compile('jansson', source, [*flags, f'-I{jansson}', f'-I{headers}', '-DHAVE_UNISTD_H', '-DHAVE_SYS_TIME_H',
                      '-DHAVE_STDINT_H', '-DHAVE_LOCALE_H', '-DHAVE_GETTIMEOFDAY', '-DHAVE_STRTOLL', '-DHAVE_LOCALECONV'])
    ninja.compile('utf8proc', places['utf8proc'] / 'utf8proc.c', [*flags, '-DUTF8PROC_STATIC'])
    xz(ninja, places['xz-utils'], flags)
    return [headers, places['zlib'], zstd, yaml / 'include', jansson, places['utf8proc'], places['xz-utils'] / 'src/liblzma/api',
            query_headers(headers)]


def xz(ninja, place, flags):
    lzma = place / 'src/liblzma'
    folders = [f'-I{lzma / name}' for name in ('api', 'common', 'check', 'lz', 'rangecoder', 'lzma', 'delta', 'simple')]
    defined = ['-DHAVE_STDBOOL_H', '-DHAVE_INTTYPES_H', '-DHAVE_STDINT_H', '-DHAVE_STRING_H', '-DHAVE_LIMITS_H', '-DSIZEOF_SIZE_T=4',
               '-DHAVE_CHECK_CRC32', '-DHAVE_CHECK_CRC64', '-DHAVE_CHECK_SHA256', '-DHAVE_DECODERS', '-DHAVE_DECODER_LZMA1',
               '-DHAVE_DECODER_LZMA2', '-DHAVE_DECODER_X86', '-DHAVE_DECODER_ARM', '-DHAVE_DECODER_ARMTHUMB', '-DHAVE_DECODER_ARM64',
               '-DHAVE_DECODER_POWERPC', '-DHAVE_DECODER_IA64', '-DHAVE_DECODER_SPARC', '-DHAVE_DECODER_DELTA',
               '-DTUKLIB_SYMBOL_PREFIX=lzma_', f'-I{place}/src/common']
    names = [*(f'common/{name}' for name in (
        'block_decoder', 'block_header_decoder', 'block_util', 'common', 'filter_common', 'filter_decoder', 'filter_flags_decoder',
        'index_hash', 'stream_decoder', 'stream_flags_common', 'stream_flags_decoder', 'vli_decoder', 'vli_size')),
        *(f'check/{name}' for name in ('check', 'crc32_fast', 'crc32_table', 'crc64_fast', 'crc64_table', 'sha256')),
        'lz/lz_decoder', 'lzma/lzma2_decoder', 'lzma/lzma_decoder', 'lzma/lzma_encoder_presets', 'delta/delta_common',
        'delta/delta_decoder', *(f'simple/{name}' for name in (
            'arm', 'arm64', 'armthumb', 'ia64', 'powerpc', 'simple_coder', 'simple_decoder', 'sparc', 'x86'))]
    for name in names:
        ninja.compile('xz', lzma / f'{name}.c', [*flags, *defined, *folders])


def query_headers(headers):
    """Headers of libraries that are loaded on demand, which are declarations alone: this machine's."""
    for package, name in (('sqlite3', 'sqlite3.h'), ('libedit', 'histedit.h')):
        folder = subprocess.run(['pkg-config', '--variable=includedir', package], capture_output=True, text=True,
                                check=True).stdout.strip()
        write_if_new(headers / 'query' / name, (Path(folder) / name).read_text(encoding='utf-8'))
    return headers / 'query'


def sources(native):
    """(target, source, arguments) of what the command is made of, as meson lists it."""
    listed = subprocess.run(['meson', 'introspect', '--targets', str(native)], capture_output=True, text=True, check=True)
    for target in json.loads(listed.stdout):
        if target['name'] not in ('ground', 'reader', 'engine', 'mosaic', 'kernels_plain', 'cli') and not (
                target['name'] == 'tessera' and target['type'] == 'shared library'):
            continue
        for group in target['target_sources']:
            kept = [word for word in group.get('parameters', ())
                    if word.startswith(('-DTSR__QUESTION', '-DTSR__RECORDED', '-DTESSERA_VERSION', '-DCLI_LIBRARY'))]
            kept += [word for word in group.get('parameters', ()) if word.startswith('-I' + str(ROOT))]
            for source in [*group['sources'], *group['generated_sources']]:
                if source.endswith('.c'):
                    yield target['name'], Path(source), kept


def name_of(source, native):
    """A source's name from the top of the tree, or of the build folder."""
    return str(source.relative_to(native if source.is_relative_to(native) else ROOT))


def write_ninja(native, work):
    ninja = Ninja(fetch.web_zig())
    folders = [f'-I{folder}' for folder in libraries(ninja, fetch.sources(fetch.LIBRARIES), work)]
    flags = [*TARGET, *WASI, '-std=c17', '-Wall', '-Wextra', '-Wno-unknown-pragmas', '-Wno-pass-failed', *folders]
    for target, source, kept in sources(native):
        other = REPLACED.get(name_of(source, native), source)
        if other:
            level = '-O3' if target == 'kernels_plain' else '-O2'
            ninja.compile(target, ROOT / other, [*flags, level, *kept, *(POSIX if target == 'cli' or source.name in ('os_files.c', 'os_posix.c') else []), *(
                ['-fno-math-errno', '-fno-trapping-math'] if target == 'kernels_plain' else [])])
    for source in sorted((ROOT / 'web').glob('*.c')):
        ninja.compile('web', source, [*flags, '-O2', *POSIX, f'-I{ROOT}/cmd', f'-I{ROOT}/include', *folders])
    ninja.link('tessera.wasm', [*TARGET, '-O2', '-s', '-lwasi-emulated-signal', '-lwasi-emulated-process-clocks',
                                '-lwasi-emulated-getpid', '-Wl,-z,stack-size=4194304'])
    write_if_new(work / 'build.ninja', '\n'.join(ninja.lines))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--native', type=Path, required=True, help='a build folder of the release')
    parser.add_argument('--work', type=Path, required=True)
    options = parser.parse_args()
    work, native = options.work.resolve(), options.native.resolve()
    work.mkdir(parents=True, exist_ok=True)
    write_ninja(native, work)
    subprocess.run([fetch.tools() / 'ninja', '-C', work, *(['-j', os.environ['JOBS']] if 'JOBS' in os.environ else [])], check=True)


if __name__ == '__main__':
    main()
