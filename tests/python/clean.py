"""clean.py [--nothing-else] [--alone]: what installed wheels do, with the standard library alone.

Run by tests/packages and tests/python/wine.py, with the Python of an environment that has the wheels of tessera and mosaic and
nothing else. With --nothing-else, the machine has no compiler, no headers, and none of the C libraries
that only tessera uses. --alone: without mosaic's wheel.
"""
import glob
import importlib.metadata
import lzma
import os
import pathlib
import pickle
import shutil
import subprocess
import sys
import sysconfig
import tempfile

BIN = pathlib.Path(sysconfig.get_path('scripts'))
BUNDLED = ('jansson', 'yaml', 'pcre2', 'utf8proc', 'zstd', 'lzma', 'zlib')


def run(*words):
    """Standard output of a command that must succeed."""
    done = subprocess.run([str(word) for word in words], capture_output=True, check=False)
    assert done.returncode == 0, (words, done.returncode, done.stderr)
    assert b'\r' not in done.stdout, (words, done.stdout[:100])
    return done.stdout.decode()


def nothing_else():
    """The machine is as bare as it should be, or this test shows nothing."""
    for program in ('cc', 'gcc', 'clang', 'meson', 'ninja', 'pkg-config'):
        assert shutil.which(program) is None, f'{program} is here'
    for header in ('zlib.h', 'jansson.h', 'Python.h'):
        assert not glob.glob(f'/usr/include/**/{header}', recursive=True), f'{header} is here'
    for library in ('jansson', 'yaml'):
        assert not glob.glob(f'/usr/lib/*/lib{library}*'), f'lib{library} is here'


def metadata(names):
    for name in names:
        about = importlib.metadata.metadata(name)
        assert about['Name'] == name and about['Summary'] and about['Requires-Python'] == '>=3.9'
    files = [file.as_posix() for file in importlib.metadata.files('tessera')]
    for library in BUNDLED:
        source = {'lzma': 'xz-utils'}.get(library, library)
        assert any('licenses/bundled/' in file and (library in file or source in file)
                   for file in files), f'no licence of {library}'
    assert 'tessera/py.typed' in files


def answers(folder):
    """The package: simulates, writes, reads, answers; and the same through commands."""
    import tessera

    path = os.path.join(folder, 'run.pickle')
    simulated = tessera.simulate('gpt2', batch=1, seq=64, steps=1)
    simulated.snapshot.export(path)
    opened = tessera.open(path)
    peak = opened.peak()
    assert peak.peak.allocated_bytes == simulated.peak.allocated_bytes > 2**30
    assert len(opened.events.action) == peak.events > 1000
    assert peak.text().splitlines()[0] in run(BIN / 'tessera', 'peak', path)
    assert run(BIN / 'tessera', 'peak', path) == run(sys.executable, '-m', 'tessera', 'peak', path)
    # What each bundled library is for: JSON, YAML with patterns, and what snapshots are wrapped in.
    assert opened.profile(rules='rules:\n  - name: mine\n    pattern: "for.ard"\n').groups
    assert tessera.open(opened.export(format='python-json')).peak().peak == peak.peak
    with open(path, 'rb') as file:
        packed = lzma.compress(file.read())
    assert tessera.open(packed).peak().peak == peak.peak
    return path


def drop_in(path):
    """Mosaic's interface, as a package and as commands."""
    from mosaic.libmosaic.analyzer.memory_abstract import MemoryAbstract

    abstract = MemoryAbstract(memory_snapshot_file=path)
    abstract.load_memory_snapshot()
    abstract.memory_snapshot.analyze_memory_snapshot(opt='memory_peak')
    assert abstract.memory_snapshot.dynamic_memory_peak > 0
    said = run(BIN / 'mosaic_get_memory_profile', '--snapshot', path, '--out-path', path + '.html',
               '--profile', 'categories')
    assert said.startswith('Memory Usage At Peak:\nTotal Allocated: ')
    assert os.path.getsize(path + '.html') > 10000


def main():
    bare = '--nothing-else' in sys.argv[1:]
    if bare:
        nothing_else()
    alone = '--alone' in sys.argv[1:]
    metadata(['tessera'] if alone else ['tessera', 'mosaic'])
    with tempfile.TemporaryDirectory() as folder:
        path = answers(folder)
        if not alone:
            drop_in(path)
        with open(path, 'rb') as file:
            assert pickle.load(file)['device_traces']
    system = 'a bare system' if bare else 'this system'
    print(f'wheel: works on {system} with Python {sys.version.split()[0]}')


if __name__ == '__main__':
    main()
