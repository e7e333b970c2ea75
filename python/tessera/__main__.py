"""The command: `tessera`, and `python -m tessera`. It is the program that ./run build makes, run from
the extension."""
import os
import signal
import sys
from typing import List, Optional

from . import _core, _files


def main(words: Optional[List[str]] = None, name: str = 'tessera') -> int:
    """Run a command line; returns the exit status."""
    line = [name, *(sys.argv[1:] if words is None else words)]
    os.environ.setdefault('TESSERA_PYTHON', sys.executable)  # traces models, unless another environment is active
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    # The command runs in C: Ctrl-C must end it at once, not when Python next checks for signals.
    before = signal.getsignal(signal.SIGINT)
    try:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    except ValueError:  # not the main thread
        before = None
    try:
        return _core.command([_files.word_of(word) for word in line])
    finally:
        if before is not None:
            signal.signal(signal.SIGINT, before)


if __name__ == '__main__':
    sys.exit(main())
