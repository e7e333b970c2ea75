"""Mosaic's commands: those of tessera with these names.

A Command can be called, as a console script does, or passed to click's CliRunner, as tests of Mosaic's
commands do.
"""
import subprocess
import sys
from typing import Any, Optional, Sequence


def run(name: str, words: Sequence[str]) -> int:
    """Run the command in this process, on its own standard streams; returns the exit status."""
    from tessera.__main__ import main
    return main(list(words), name)


class Command:
    """One of Mosaic's commands."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, args: Optional[Sequence[str]] = None, **extra: Any) -> Any:
        return self.main(args, **extra)

    def main(self, args: Optional[Sequence[str]] = None, prog_name: Optional[str] = None,
             standalone_mode: bool = True, **_: Any) -> Any:
        """Run it with these words, or those of the command line, and exit the program with its
        status; if `standalone_mode` is false, the status is returned."""
        words = sys.argv[1:] if args is None else list(args)
        status = run(self.name, words) if self._is_direct() else self._run_apart(words)
        if standalone_mode:
            sys.exit(status)
        return status

    @staticmethod
    def _is_direct() -> bool:
        """Whether Python's standard streams are those of the process."""
        try:
            return (sys.stdout.fileno(), sys.stderr.fileno()) == (1, 2)
        except (AttributeError, OSError, ValueError):
            return False

    def _run_apart(self, words: Sequence[str]) -> int:
        """Runs in a separate process, for callers that have replaced the standard streams."""
        call = f'import sys; from mosaic._command import run; sys.exit(run({self.name!r}, sys.argv[1:]))'
        done = subprocess.run([sys.executable, '-c', call, *words], capture_output=True, text=True,
                              check=False)
        sys.stdout.write(done.stdout)
        sys.stderr.write(done.stderr)
        return done.returncode
