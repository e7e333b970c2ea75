#!/usr/bin/env python3
"""tidy.py BUILD: clang-tidy on every C file of the library, the commands, the examples and the Python
package, on all processors, the largest first.

BUILD is a build folder that knows how the files are compiled. Prints what clang-tidy finds, and now and
then how far it is; fails if anything was found. A file takes seconds, so BUILD/tidy remembers which were
clean, by everything that they include. Tests are not checked: assertions of cmocka and fixtures
in static storage break rules that hold elsewhere."""
import concurrent.futures
import hashlib
import json
import os
import shlex
import subprocess
import sys
import sysconfig
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# Assertions count: they must compile, and the analyzer learns from them.
TIDY = ['clang-tidy-14', '--quiet', '--extra-arg=-Wno-unknown-warning-option', '--extra-arg=-UNDEBUG']
STEPS = 10  # lines of progress


def files(*folders):
    found = [path for folder in folders for path in (ROOT / folder).rglob('*.c') if not path.stem.endswith(('_macos', '_windows', '_wasi')) and
             path.parent.name != 'windows'] # those need other systems' headers
    if not found:
        sys.exit(f'no C files in {", ".join(folders)}')
    return sorted(found, key=lambda path: -path.stat().st_size)


def commands(build):
    """(file, clang-tidy's command, the preprocessor's). The extension for Python is built by pip, with
    flags of its own."""
    compiled = {(build / entry['directory'] / entry['file']).resolve(): shlex.split(entry['command'])
                for entry in json.loads((build / 'compile_commands.json').read_text())}
    some = next(words for path, words in compiled.items() if ROOT / 'cmd' in path.parents)
    for path in files('src', 'cmd', 'examples'):
        words = compiled.get(path, some)  # one that this build leaves out is like the others
        at = words.index('-o')
        yield path, [*TIDY, '-p', build, path], [*words[:at], '-UNDEBUG', '-E', path], build
    flags = ['-std=c17', f'-I{ROOT}/include', f'-I{ROOT}/cmd', f'-I{ROOT}/src/ground',
             '-DPy_LIMITED_API=0x03090000', f'-I{sysconfig.get_path("include")}']
    for path in files('python/src'):
        yield path, [*TIDY, path, '--', *flags], ['cc', *flags, '-UNDEBUG', '-E', path], build


def check(path, tidy, preprocess, build):
    """What clang-tidy found, or ''."""
    text = subprocess.run(preprocess, cwd=build, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL, check=False).stdout
    rules = (ROOT / '.clang-tidy').read_bytes()
    # The preprocessor drops comments, and with them what is marked as not to be checked.
    known = hashlib.sha256(b'\0'.join([repr(tidy).encode(), rules, path.read_bytes(), text])).hexdigest()
    clean = build / 'tidy' / known
    if text and clean.exists():
        return ''
    done = subprocess.run(tidy, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, errors='replace', check=False)
    if done.returncode:
        return done.stdout.strip() or f'exit status {done.returncode}'
    clean.parent.mkdir(exist_ok=True)
    clean.touch()
    return ''


def main(build):
    start, found = time.monotonic(), 0
    every = list(commands(Path(build).resolve()))
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        running = {pool.submit(check, *one): one[0] for one in every}
        for number, done in enumerate(concurrent.futures.as_completed(running), 1):
            if done.result():
                found += 1
                print(f'{running[done].relative_to(ROOT)}:\n{done.result()}', flush=True)
            if number * STEPS // len(every) > (number - 1) * STEPS // len(every):
                seconds = int(time.monotonic() - start)
                print(f'clang-tidy: {number} of {len(every)} files, {seconds // 60}:{seconds % 60:02}',
                      flush=True)
    return int(found > 0)


if __name__ == '__main__':
    if len(sys.argv) != 2:
        sys.exit('usage: tidy.py BUILD')
    sys.exit(main(sys.argv[1]))
