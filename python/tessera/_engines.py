"""Sketches of many snapshots, made by several processes or machines, and of snapshots in object stores: for ranks().

Each worker runs the command, so that a file that ends a process ends only that one, and a worker that is ended ends its command. What a
worker returns is a file of sketches (docs/sketch.md), at most 64 KiB for each snapshot; any set of them can be put together.
"""
import contextlib
import importlib
import os
import posixpath
import re
import signal
import subprocess
import sys
import tempfile
import warnings
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Set, Tuple

from ._errors import ArgumentError, Error
from ._record.files import sidecar_path

_BATCH = 64  # snapshots of a store that are on the disk at once
_AT_ONCE = 8  # of these, that are fetched at the same time
_SNAPSHOT = re.compile(r'\.(pickle|pkl|html|zip|sketch|snapshot)(\.(gz|zst|xz))?$')
_PATTERN = re.compile(r'[*?\[]')


class Part(NamedTuple):
    """What one worker reads: each `total`-th file, from the `number`-th on."""

    places: Tuple[str, ...]
    number: int = 1
    total: int = 1
    storage: Mapping[str, Any] = {}


class Sketched(NamedTuple):
    """What it makes of them, and what could not be fetched, and why."""

    sketches: bytes
    messages: List[str]


def is_address(place: str) -> bool:
    """Whether a place is in a store, such as s3://bucket/run, and not a path."""
    return re.match(r'[A-Za-z][A-Za-z0-9+.-]*://', place) is not None


# ---- The command ----

def _command() -> int:
    """What _run() starts: the command, which ends when its parent does (on Linux)."""
    parent = int(sys.argv[1])
    if sys.platform == 'linux':
        import ctypes
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
        if os.getppid() != parent:
            return 1
    from .__main__ import main
    return main(sys.argv[2:])


def _run(words: Sequence[str], folder: Optional[str] = None) -> None:
    script = f'import sys; from {__package__}._engines import _command; sys.exit(_command())'
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen([sys.executable, '-c', script, str(os.getpid()), *words], cwd=folder, stdin=subprocess.DEVNULL,
                                   stdout=subprocess.DEVNULL, stderr=errors)
        try:
            status = process.wait()
        finally:
            process.kill()  # whatever has ended the wait
            process.wait()
        if status:
            errors.seek(0)
            message = errors.read().decode(errors='replace').strip()
            raise Error(message.replace('tessera: ', '', 1) or f'reading a part ended with status {status}')


def _sketch(places: Sequence[str], to: str, part: Tuple[int, int] = (1, 1), folder: Optional[str] = None) -> None:
    _run(['ranks', *places, '--part', f'{part[0]}/{part[1]}', '--sketches', to, '-q'], folder)


# ---- Stores ----

class _Object(NamedTuple):
    address: str
    store: Any
    path: str
    size: Optional[int]


def _list_objects(place: str, storage: Mapping[str, Any]) -> List[_Object]:
    """The snapshots at an address, with their sidecars."""
    try:
        core = importlib.import_module('fsspec.core')
    except ImportError:
        raise Error(f'{place}: reading addresses takes the package fsspec, and for some stores another one, such as s3fs: '
                    'pip install fsspec s3fs') from None
    try:
        store, path = core.url_to_fs(place, **storage)
        if _PATTERN.search(path):
            found = store.glob(path, detail=True)
        else:
            found = store.find(path, detail=True)
    except (OSError, ValueError, ImportError) as error:
        raise Error(f'{place}: {error}') from error
    files = {name: about for name, about in found.items() if about.get('type', 'file') == 'file'}
    wanted: Dict[str, Optional[int]] = {}
    for name, about in files.items():
        if len(files) > 1 and not _PATTERN.search(path) and not _SNAPSHOT.search(name):
            continue
        wanted[name] = about.get('size')
        beside = sidecar_path(name)
        if beside in files:
            wanted[beside] = files[beside].get('size')
        elif _PATTERN.search(path) or len(files) == 1:
            with contextlib.suppress(OSError, ValueError):
                wanted[beside] = store.info(beside).get('size')
    if not wanted:
        raise Error(f'{place}: no snapshots')
    out = [_Object(store.unstrip_protocol(name), store, name, size) for name, size in sorted(wanted.items())]
    for one in out:
        if '..' in one.address.split('/') or '\n' in one.address:
            raise ArgumentError(f'{one.address!r}: an address with ".." or a line feed in it')
    return out


def _fetch(one: _Object, folder: str) -> Optional[str]:
    """Copy an object to its address below the folder. Returns why it cannot be had."""
    path = os.path.join(folder, *[word for word in one.address.split('/') if word])
    os.makedirs(os.path.dirname(path), exist_ok=True)
    reason = ''
    for _ in range(2):
        try:
            one.store.get_file(one.path, path)
            size = os.path.getsize(path)
            if one.size is None or size == one.size:
                return None
            reason = f'{size:,} of {one.size:,} bytes came'
        except Exception as error:  # stores have exceptions of their own, which are about this object only
            reason = f'{type(error).__name__}: {error}'
    with contextlib.suppress(OSError):
        os.unlink(path)
    return f'{one.address}: {reason}'


def _sketch_objects(part: Part, work: str) -> List[str]:
    """Sketches of the objects of a part, a file of them for each batch. Their paths are their addresses: below the work folder, where
    the command runs, they have the same names."""
    objects: Dict[str, _Object] = {}
    for place in part.places:
        objects.update((one.address, one) for one in _list_objects(place, part.storage))
    beside: Set[str] = {sidecar_path(name) for name in objects} & set(objects)
    mine = sorted(set(objects) - beside)[part.number - 1::part.total]
    messages: List[str] = []
    for first in range(0, len(mine), _BATCH):
        batch = mine[first:first + _BATCH]
        with tempfile.TemporaryDirectory(dir=work) as folder, ThreadPoolExecutor(_AT_ONCE) as pool:
            with_sidecars = [*batch, *(name for name in map(sidecar_path, batch) if name in beside)]
            failed = list(filter(None, pool.map(lambda name: _fetch(objects[name], folder), with_sidecars)))
            messages += failed
            listed = os.path.join(folder, 'list.txt')
            with open(listed, 'w', encoding='utf-8', errors='surrogateescape') as out:
                out.writelines(f'{name}\n' for name in batch)
            _sketch(['@list.txt'], os.path.join(work, f'{first}.sketch'), folder=folder)
    return messages


# ---- A part ----

def sketch_part(part: Part) -> Sketched:
    """What a worker does."""
    with tempfile.TemporaryDirectory(prefix='tessera-ranks-') as work:
        messages: List[str] = []
        if any(map(is_address, part.places)):
            messages = _sketch_objects(part, work)
            made = [os.path.join(work, name) for name in os.listdir(work)]
            whole = os.path.join(work, 'whole.sketch')
            if not made:
                return Sketched(b'', messages)
            _sketch(made, whole)
        else:
            whole = os.path.join(work, 'whole.sketch')
            _sketch(part.places, whole, (part.number, part.total))
        with open(whole, 'rb') as file:
            return Sketched(file.read(), messages)


def _in_ray(parts: Optional[int], places: Tuple[str, ...], storage: Mapping[str, Any]) -> List[Sketched]:
    try:
        ray = importlib.import_module('ray')
    except ImportError:
        raise Error("on='ray' takes the package ray, in a cluster that runs: pip install ray") from None
    if not ray.is_initialized():
        try:
            ray.init(address='auto', log_to_driver=False)
        except ConnectionError:
            raise Error("on='ray': no cluster of Ray runs here; start one with 'ray start --head', or call ray.init(...) before") from None
    count = parts or max(1, int(ray.cluster_resources().get('CPU', 1)))
    # A worker that is lost is replaced, by Ray.
    work = ray.remote(num_cpus=1, max_retries=3, scheduling_strategy='SPREAD')(sketch_part)
    running = [work.remote(Part(places, number, count, storage)) for number in range(1, count + 1)]
    try:
        return list(ray.get(running))
    except ray.exceptions.RayTaskError as error:
        raise Error(f'a worker of Ray failed: {error.cause}') from error
    finally:
        for task in running:  # those that are done stay as they are
            ray.cancel(task, force=True)


def _in_executor(executor: Any, parts: Optional[int], places: Tuple[str, ...], storage: Mapping[str, Any]) -> List[Sketched]:
    count = parts or getattr(executor, '_max_workers', None) or os.cpu_count() or 1
    running = [executor.submit(sketch_part, Part(places, number, count, storage)) for number in range(1, count + 1)]
    try:
        return [one.result() for one in running]
    finally:
        for one in running:
            one.cancel()


@contextlib.contextmanager
def sketches(places: Sequence[str], on: Any, parts: Optional[int], storage: Mapping[str, Any]) -> Iterator[List[str]]:
    """Files of the sketches of all that is at these places, made by the workers of an engine; they last as long as the context."""
    addresses = [place for place in places if is_address(place)]
    if addresses and len(addresses) < len(places):
        raise ArgumentError('addresses and paths cannot be read together')
    given = tuple(places) if addresses else tuple(place if place.startswith('@') else os.path.abspath(place) for place in places)
    if on is None:
        made = [sketch_part(Part(given, storage=storage))]
    elif on == 'ray':
        made = _in_ray(parts, given, storage)
    elif callable(getattr(on, 'submit', None)):
        made = _in_executor(on, parts, given, storage)
    else:
        raise ArgumentError(f"on= takes 'ray' or an executor (an object with submit()), not {on!r}")
    for message in (message for one in made for message in one.messages):
        warnings.warn(message, stacklevel=4)
    with tempfile.TemporaryDirectory(prefix='tessera-ranks-') as folder:
        for number, one in enumerate(made):
            if one.sketches:
                with open(posixpath.join(folder, f'{number}.sketch'), 'wb') as file:
                    file.write(one.sketches)
        yield [folder]
