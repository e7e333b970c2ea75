"""Nothing that goes wrong here may reach a training loop.

Every function that PyTorch, a signal, a timer or a user's loop calls goes through `guarded`: what
it raises is logged, once per kind, and its caller gets None. KeyboardInterrupt and SystemExit pass:
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
    """Logs a warning the first time this kind of thing happens in the process."""
    with _lock:
        if kind in _said:
            return
        _said.add(kind)
    try:
        logger.warning(message, *values)
    except Exception:  # a handler of the application that fails is not ours to report
        pass


def guarded(kind):
    """Decorator: what the function raises is logged once under `kind`, and None is returned."""

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
    """function(...), or `default` where it raises: for what is nice to know and no more."""
    try:
        return function(*args, **kwargs)
    except Exception:
        return default


def say(text):
    """One line for the person at the terminal; a closed stderr is no reason to fail."""
    try:
        sys.stderr.write("tessera: " + text + "\n")
        sys.stderr.flush()
    except Exception:
        pass


def renew_lock():
    """After a fork: the thread that held the lock may not be here."""
    global _lock
    _lock = threading.Lock()


def forget():
    """Forgets what was said, so that it is said again; for tests."""
    renew_lock()
    _said.clear()
