"""roots.py: bare systems to try packages in, made once by debootstrap, and programs that run in them without a network and without
leaving a trace: each sees an empty layer on top, which is gone when it ends."""
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

DEBIAN, UBUNTU = 'http://deb.debian.org/debian', 'http://archive.ubuntu.com/ubuntu'


class Absent(Exception):
    """This system cannot be had here; the text is the reason."""


@dataclass(frozen=True)
class System:
    suite: str
    title: str
    mirror: str
    python: str  # of its package python3
    script: tuple = ()  # of debootstrap's, where this one's has none for the suite

    @property
    def words(self):
        """Arguments of debootstrap: those before the name of the suite, and those after it. The keys of Ubuntu's archive are not in Debian."""
        return ['--no-check-gpg', '--components=main,universe'] if self.mirror == UBUNTU else [], self.script


SYSTEMS = [System('bullseye', 'Debian 11', DEBIAN, '3.9'), System('bookworm', 'Debian 12', DEBIAN, '3.11'),
           System('trixie', 'Debian 13', DEBIAN, '3.13'), System('forky', 'Debian 14, unfinished', DEBIAN, '3.14', ('sid',)),
           System('jammy', 'Ubuntu 22.04', UBUNTU, '3.10', ('gutsy',)), System('noble', 'Ubuntu 24.04', UBUNTU, '3.12', ('gutsy',))]


def root_of(work, system, packages=(), extra=(), name=None):
    """The folder of a system with its smallest set of packages, and these."""
    if os.geteuid() != 0:
        raise Absent('that needs root')
    if shutil.which('debootstrap') is None:
        raise Absent('debootstrap is not installed')
    root = work / 'roots' / (name or system.suite)
    if (root / 'complete').exists():
        return root
    shutil.rmtree(root, ignore_errors=True)
    root.parent.mkdir(parents=True, exist_ok=True)
    before, after = system.words
    include = [f'--include={",".join(packages)}'] if packages else []
    done = subprocess.run(['debootstrap', '--variant=minbase', *before, *include, *extra, system.suite, str(root), system.mirror, *after],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    for name in ('proc', 'sys'):  # some versions of debootstrap leave the machine's own mounted there
        subprocess.run(['umount', root / name], stderr=subprocess.DEVNULL, check=False)
    if done.returncode:
        raise Absent(f'{system.title}: ' + (done.stdout.strip().splitlines() or ['debootstrap failed'])[-1])
    (root / 'complete').touch()
    return root


def bare(work, system):
    return root_of(work, system)


def with_python(work, system):
    return root_of(work, system, ['python3', 'python3-venv'], name=f'{system.suite}-python')


def run_in(root, work, files, script, setup=''):
    """What a script of the shell prints in the root, in /files, where copies of `files` lie. `setup` is run before, outside, with the
    root as $ROOT."""
    layer, carried = work / 'layer', work / 'carried'
    for folder in (layer, carried):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
    for file in files:
        (shutil.copytree if file.is_dir() else shutil.copy)(file, carried / file.name)
    outside = f"""set -e
mount -t tmpfs tmpfs {layer}
mkdir {layer}/upper {layer}/work {layer}/root
mount -t overlay overlay -o lowerdir={root},upperdir={layer}/upper,workdir={layer}/work {layer}/root
export ROOT={layer}/root FILES={carried}
mkdir -p $ROOT/proc $ROOT/files
mount -t proc proc $ROOT/proc
cp -r {carried}/. $ROOT/files
{setup}
cd $ROOT
exec chroot $ROOT "$@"
"""
    inside = ['/bin/sh', '-c', f'cd /files\n{script}'] if isinstance(script, str) else script
    done = subprocess.run(['unshare', '--mount', '--pid', '--net', '--fork', '/bin/sh', '-c', outside, 'sh', *inside],
                          env={'PATH': '/usr/sbin:/usr/bin:/sbin:/bin', 'LC_ALL': 'C.UTF-8', 'HOME': '/tmp'}, text=True,
                          capture_output=True, errors='replace', check=False)
    if done.returncode:
        raise AssertionError(f'status {done.returncode}: {script}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}')
    return done.stdout
