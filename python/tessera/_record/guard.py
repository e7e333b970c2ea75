"""No failure of ours may reach a training loop.

Every function that PyTorch, a signal, a timer or a user's loop calls goes through `guarded`: an
exception is logged, once per kind, and the caller gets None. KeyboardInterrupt and SystemExit pass:
the user asked for them.
"""

import functools
import logging
import sys
import threading

logger = logging.getLogger("tessera")

_said = set()
_lock = threading.Lock()


def warn_once(kind, message, *values):
    """Logs a warning the first time this kind of failure happens in the process."""
    with _lock:
        if kind in _said:
            return
        _said.add(kind)
    try:
        logger.warning(message, *values)
    except Exception:  # a failing log handler of the application is not our concern
        pass


def warn(message, *values):
    """Logs a warning each time; the caller limits how often."""
    try:
        logger.warning(message, *values)
    except Exception:  # as above
        pass


def guarded(kind):
    """Decorator: an exception is logged once under `kind`, and None is returned."""

    def decorate(function):
        @functools.wraps(function)
        def wrapper(*args, **kwargs):
            try:
                return function(*args, **kwargs)
            except Exception as error:
                warn_once(kind, "%s failed: %s: %s", kind, type(error).__name__, error)
                return None

        return wrapper

    return decorate


def attempt(function, *args, default=None, **kwargs):
    """function(...), or `default` if it raises: for values that are not essential."""
    try:
        return function(*args, **kwargs)
    except Exception:
        return default


def say(text):
    """Prints one line for the user; a closed stderr is not an error."""
    try:
        sys.stderr.write("tessera: " + text + "\n")
        sys.stderr.flush()
    except Exception:
        pass


def renew_lock():
    """After a fork: the thread that held the lock may not exist in this process."""
    global _lock
    _lock = threading.Lock()


def forget():
    """Forgets which failures were logged, so that they are logged again; for tests."""
    renew_lock()
    _said.clear()
