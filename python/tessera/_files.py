"""Sources that are read, and targets that are written."""
import io
import os
import pickle
import tempfile
from typing import Any, Callable, Optional, Tuple, Union


def _readable(name: str) -> str:
    """A file's name as UTF-8, which the library prints: what it is on disk may be no text, or end
    early for C."""
    return name.encode('utf-8', 'replace').decode('utf-8').replace('\0', '?')


def data_of(source: Any) -> Optional[Tuple[bytes, str]]:
    """The bytes of a source that is not a path, and its name in answers; None for a path."""
    if isinstance(source, (str, os.PathLike)):
        return None
    if isinstance(source, bytes):
        return source, '<bytes>'
    if isinstance(source, (dict, list)):
        # What torch.cuda.memory._snapshot() returns. The reader expects what Python writes.
        return pickle.dumps(source, protocol=4), '<snapshot>'
    if hasattr(source, 'read'):
        data = source.read()
        if not isinstance(data, bytes):
            raise TypeError('a snapshot is read from a binary file: open it with mode "rb"')
        name = getattr(source, 'name', None)
        return data, _readable(name) if isinstance(name, str) else '<file>'
    try:
        return bytes(memoryview(source)), '<bytes>'
    except TypeError:
        raise TypeError('a snapshot is opened from a path, bytes, a binary file, or the dict of '
                        f'_snapshot(), not from {type(source).__name__}') from None


def path_of(path: Union[str, 'os.PathLike[str]']) -> Tuple[bytes, str]:
    """A path for the library, and its name in answers. For the library "-" is standard input; here it
    is a file with that name."""
    raw = os.fsencode(path)
    return (b'./-' if raw == b'-' else raw), _readable(os.fsdecode(raw))


def written(target: Any, write: Callable[[int], Optional[bytes]], is_text: bool = False) -> Any:
    """Call `write` with a file descriptor, or with -1 for bytes, and deliver its output to the
    target: a path (which is replaced only after everything is written), a file object, or, for None,
    the returned bytes or str."""
    if target is None:
        data = write(-1)
        return (data or b'').decode('utf-8', 'replace') if is_text else data
    if hasattr(target, 'write'):
        data = write(-1) or b''
        target.write(data.decode('utf-8') if isinstance(target, io.TextIOBase) else data)
        return None
    path = os.fsdecode(target)
    folder = os.path.dirname(os.path.realpath(path))
    if os.path.exists(path) and not os.path.isfile(path):
        with open(path, 'wb', buffering=0) as file:  # a pipe, a device
            write(file.fileno())
        return None
    try:
        handle, temporary = tempfile.mkstemp(dir=folder, prefix='.tessera-')
    except OSError as error:  # it is about the file that was asked for, not about ours
        raise type(error)(error.errno, os.strerror(error.errno or 0), path) from None
    try:
        try:
            write(handle)
            mask = os.umask(0)
            os.umask(mask)
            os.fchmod(handle, 0o666 & ~mask)
        finally:
            os.close(handle)
        os.replace(temporary, os.path.realpath(path))
    except BaseException as error:
        os.unlink(temporary)
        if isinstance(error, OSError) and error.errno is not None and error.filename in (None, temporary):
            raise type(error)(error.errno, error.strerror, path) from None
        raise
    return None
