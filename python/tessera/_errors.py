"""Exceptions: one class for each status of the library (tessera/status.h)."""
import errno
import os
import re
from typing import Optional

from . import _core


class Error(Exception):
    """Something that tessera could not do. `offset` is the byte of the input that it is about, or
    None."""

    offset: Optional[int] = None


class ReadError(Error, OSError):
    """The operating system reported an error."""


class NotFoundError(ReadError, FileNotFoundError):
    """There is no such file."""


class FormatError(Error, ValueError):
    """The input is not a snapshot, or is too damaged for an answer."""


class LimitError(Error, ValueError):
    """The input exceeds a limit that protects from hostile files."""


class UnsupportedError(Error, NotImplementedError):
    """A snapshot format, or a question, that this build does not support."""


class ArgumentError(Error, ValueError):
    """A device, moment or setting that does not exist."""


class UsageError(Error, TypeError):
    """Arguments of a type that is not taken, or that do not go together."""


_BY_STATUS = {-2: ReadError, -3: FormatError, -4: LimitError, -5: UnsupportedError,
              -6: ArgumentError}


def _of_system(message: str, path: Optional[str]) -> Error:
    """The library's message ends with the system's error text; Python programs expect errno."""
    number = next((number for number in sorted(errno.errorcode) if message.endswith(os.strerror(number))), None)
    beside = re.match(r'the sidecar (.*): cannot ', message)
    path = beside[1] if beside else path  # the file that it is about
    if number is None or path is None:
        return ReadError(_core.terminal_clean(message if path is None else f'{path}: {message}'))
    kind = NotFoundError if number == errno.ENOENT else ReadError
    return kind(number, os.strerror(number), path)


def make_error(status: int, offset: int, message: str, path: Optional[str]) -> Error:
    """The exception for a failed call; the extension calls this."""
    kind = _BY_STATUS.get(status, Error)
    if kind is ReadError:
        error = _of_system(message, path)
    else:
        where = f' (at byte {offset})' if offset >= 0 else ''
        # Tracebacks print it: a file's name must not drive the terminal.
        error = kind(_core.terminal_clean(f'{path}: {message}{where}' if path else f'{message}{where}'))
    error.offset = offset if offset >= 0 else None
    return error


def not_found(error: OSError, path: object) -> ReadError:
    """The exception for a file that Python itself could not read."""
    kind = NotFoundError if isinstance(error, FileNotFoundError) else ReadError
    return kind(error.errno, error.strerror, os.fspath(path) if isinstance(path, (str, bytes, os.PathLike)) else path)


_core.set_error_maker(make_error)
_core.set_error_classes(UsageError, ArgumentError)
