"""common.py: what all kinds of packages share: the facts of the commit, files to be packed, and archives that are the same bytes
whenever and wherever they are written."""
import gzip
import hashlib
import io
import functools
import os
import subprocess
import sys
import tarfile
import tomllib
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / 'cross'))
import targets  # noqa: E402  (it is in a folder of its own)
from fetch import call  # noqa: E402, F401  (modules here take it from this one)

VERSION = targets.version()
AUTHORS = 'The authors of tessera'
# Nobody has an address for it yet; packages must have one of this form.
MAINTAINER = f'{AUTHORS} <maintainers@tessera.invalid>'
SUMMARY = tomllib.loads((ROOT / 'pyproject.toml').read_text(encoding='utf-8'))['project']['description']
LICENCE = 'Apache-2.0'


def say(text):
    print(f'package: {text}', file=sys.stderr, flush=True)


def git(*words):
    """What git prints; None where this is no checkout."""
    done = subprocess.run(['git', '-C', str(ROOT), *words], capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else None


@functools.cache
def commit_time():
    return git('log', '-1', '--format=%ct')  # asked for by each packed file


def epoch():
    """The time in all packages: SOURCE_DATE_EPOCH, or that of the commit."""
    found = os.environ.get('SOURCE_DATE_EPOCH') or commit_time()
    if not found:
        raise SystemExit('package: this is no checkout of git: set SOURCE_DATE_EPOCH')
    return int(found)


def commit():
    """The commit that is packed, with a plus if files differ from it; TESSERA_COMMIT where this is no checkout."""
    found = os.environ.get('TESSERA_COMMIT') or git('rev-parse', 'HEAD') or ''
    return found + ('+' if not os.environ.get('TESSERA_COMMIT') and git('status', '--porcelain', '--untracked-files=no') else '')


def tracked():
    """The files of the project, from its top: what git has, or everything that is no output where this is no checkout."""
    listed = git('ls-files')
    if listed is not None:
        names = [name for name in listed.split('\n') if (ROOT / name).is_file()]
    else:
        names = [path.relative_to(ROOT).as_posix() for path in ROOT.rglob('*') if path.is_file()
                 and not path.relative_to(ROOT).parts[0].startswith(('build', 'dist')) and '__pycache__' not in path.parts]
    return sorted(names)


# ---- files and archives ----

@dataclass(frozen=True)
class Entry:
    """A file or a link in a package."""
    path: str
    data: bytes = b''
    mode: int = 0o644
    link: str = ''


def from_file(path, source, mode=0o644):
    return Entry(path, Path(source).read_bytes(), mode)


def folders_of(entries):
    """The folders in which they lie, the outermost first."""
    found = {parent.as_posix() for entry in entries for parent in Path(entry.path).parents}
    return sorted(found - {'.', '/'})


def tar(entries, has_folders=False):
    """The bytes of an archive, in the order of names, without a trace of who made it and where."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode='w', format=tarfile.PAX_FORMAT) as archive:
        def add(name, kind, mode, data=b'', link=''):
            info = tarfile.TarInfo(name)
            info.type, info.mode, info.mtime, info.size, info.linkname = kind, mode, epoch(), len(data), link
            info.uname = info.gname = 'root'
            archive.addfile(info, io.BytesIO(data))
        for folder in folders_of(entries) if has_folders else []:
            add(folder, tarfile.DIRTYPE, 0o755)
        for entry in sorted(entries, key=lambda one: one.path):
            if entry.link:
                add(entry.path, tarfile.SYMTYPE, 0o777, link=entry.link)
            else:
                add(entry.path, tarfile.REGTYPE, entry.mode, entry.data)
    return out.getvalue()


def gz(data):
    out = io.BytesIO()
    with gzip.GzipFile(fileobj=out, mode='wb', compresslevel=9, mtime=0, filename='') as file:
        file.write(data)
    return out.getvalue()


def write(path, data):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def write_tree(folder, entries):
    """The files in a folder, with the time of the commit."""
    for entry in entries:
        path = folder / entry.path
        path.parent.mkdir(parents=True, exist_ok=True)
        if entry.link:
            path.symlink_to(entry.link)
        else:
            path.write_bytes(entry.data)
            path.chmod(entry.mode)
    for path in [folder, *folder.rglob('*')]:
        os.utime(path, (epoch(), epoch()), follow_symlinks=False)


def sha256(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()
