"""Sources that are read, and targets that are written."""
import io
import os
import pickle
import stat
from typing import Any, Callable, Iterable, Optional, Tuple, Union

from ._errors import ArgumentError, UsageError


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
            raise UsageError('a snapshot is read from a binary file: open it with mode "rb"')
        name = getattr(source, 'name', None)
        return data, _readable(name) if isinstance(name, str) else '<file>'
    try:
        return bytes(memoryview(source)), '<bytes>'
    except TypeError:
        raise UsageError('a snapshot is opened from a path, bytes, a binary file, or the dict of '
                        f'_snapshot(), not from {type(source).__name__}') from None


def encoded(path: Union[str, 'os.PathLike[str]']) -> bytes:
    """A path for the library, to which / is between folders on every system."""
    raw = os.fsencode(path)
    return raw.replace(b'\\', b'/') if os.sep == '\\' else raw


def word_of(word: str) -> bytes:
    """A word of a command line. On Windows a path in it, which begins after "=" in an option, is encoded as such
    if its folder is there, as the command itself does it (cmd/core/system_windows.c)."""
    start = word.find('=') + 1 if word.startswith('-') else 0
    is_path = os.sep == '\\' and '\\' in word[start:] and os.path.isdir(os.path.dirname(word[start:]) or os.sep)
    return encoded(word) if is_path else os.fsencode(word)


def path_of(path: Union[str, 'os.PathLike[str]']) -> Tuple[bytes, str]:
    """A path for the library, and its name in answers. For the library "-" is standard input; here it
    is a file with that name."""
    raw = encoded(path)
    return (b'./-' if raw == b'-' else raw), _readable(os.fsdecode(os.fsencode(path)))


def inputs_of(path: Optional[bytes], sidecar: Optional[bytes]) -> Tuple[bytes, ...]:
    """The full paths of what was read, which no output may replace."""
    return tuple(os.path.abspath(one) for one in (path, sidecar) if one is not None)


def _refuse_inputs(path: bytes, inputs: Iterable[bytes]) -> None:
    """Raise if writing to the path would replace one of the inputs: links do not hide that they are the
    same."""
    for one in inputs:
        try:
            target, read = os.stat(path), os.stat(one)
        except OSError:
            continue
        if stat.S_ISREG(read.st_mode) and os.path.samestat(target, read):
            name, other = _readable(os.fsdecode(path)), _readable(os.fsdecode(one))
            same = os.path.abspath(path) == one
            raise ArgumentError(f"the output '{name}' is " + ('also an input' if same else
                                                              f"the same file as the input '{other}'")
                                + '; write to another file')


def written(target: Any, write: Callable[[Optional[bytes]], Optional[bytes]], *,
            inputs: Iterable[bytes] = (), is_text: bool = False) -> Any:
    """Call `write` with the path of a file, or with None for bytes, and deliver its output to the target: a
    path, which is replaced only after everything is written and must be none of the `inputs`; a file object;
    or, for None, the returned bytes or str."""
    if target is None:
        data = write(None)
        return (data or b'').decode('utf-8', 'replace') if is_text else data
    if hasattr(target, 'write'):
        data = write(None) or b''
        target.write(data.decode('utf-8') if isinstance(target, io.TextIOBase) else data)
        return None
    path = encoded(target)
    _refuse_inputs(os.fsencode(target), inputs)
    try:
        write(b'./-' if path == b'-' else path)  # "-" is standard output for the library
    except OSError as error:
        if error.errno is None or error.filename is not None:
            raise
        raise type(error)(error.errno, error.strerror, os.fsdecode(target)) from None
    return None
