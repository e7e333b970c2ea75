"""No failure of ours may reach a training loop.

Every function that PyTorch, a signal, a timer or a user's loop calls goes through `guarded`: an
exception is logged, once per kind, and the caller gets None. KeyboardInterrupt and SystemExit pass:
the user asked for them.
"""

from __future__ import annotations

import functools
import logging
import sys
import threading
from typing import TYPE_CHECKING, Any, Callable

if TYPE_CHECKING:
    from typing_extensions import ParamSpec, TypeVar

    _P = ParamSpec("_P")
    _R = TypeVar("_R")

logger = logging.getLogger("tessera")

_said: set[str] = set()
_lock = threading.Lock()


def warn_once(kind: str, message: str, *values: Any) -> None:
    """Logs a warning the first time this kind of failure happens in the process."""
    with _lock:
        if kind in _said:
            return
        _said.add(kind)
    try:
        logger.warning(message, *values)
    except Exception:  # a failing log handler of the application is not our concern
        pass


def warn(message: str, *values: Any) -> None:
    """Logs a warning each time; the caller limits how often."""
    try:
        logger.warning(message, *values)
    except Exception:  # as above
        pass


def guarded(kind: str) -> Callable[[Callable[_P, _R]], Callable[_P, _R | None]]:
    """Decorator: an exception is logged once under `kind`, and None is returned."""

    def decorate(function: Callable[_P, _R]) -> Callable[_P, _R | None]:
        @functools.wraps(function)
        def wrapper(*args: _P.args, **kwargs: _P.kwargs) -> _R | None:
            try:
                return function(*args, **kwargs)
            except Exception as error:
                warn_once(kind, "%s failed: %s: %s", kind, type(error).__name__, error)
                return None

        return wrapper

    return decorate


def attempt(function: Any, *args: Any, default: Any = None, **kwargs: Any) -> Any:
    """function(...), or `default` if it raises: for values that are not essential."""
    try:
        return function(*args, **kwargs)
    except Exception:
        return default


def say(text: str) -> None:
    """Prints one line for the user; a closed stderr is not an error."""
    try:
        sys.stderr.write("tessera: " + text + "\n")
        sys.stderr.flush()
    except Exception:
        pass


def renew_lock() -> None:
    """After a fork: the thread that held the lock may not exist in this process."""
    global _lock
    _lock = threading.Lock()


def forget() -> None:
    """Forgets which failures were logged, so that they are logged again; for tests."""
    renew_lock()
    _said.clear()
