"""A run that prints what it is sent."""
import contextlib

_active = []


def active_run():
    return _active[-1] if _active else None


@contextlib.contextmanager
def start_run(**_):
    _active.append(object())
    try:
        yield _active[-1]
    finally:
        _active.pop()


def log_metrics(values, step=None, synchronous=None):
    print('mlflow', *values, step)


def log_artifact(path, folder):
    print('mlflow', folder, path)
