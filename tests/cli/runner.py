"""runner.py: what runs the cases of tests/cli and tests/hostile, and compares what they do with what is expected.

A case is a command, and the lines that are expected of it; `--accept` expects what happens now."""
import concurrent.futures
import os
import subprocess
import sys
import threading
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import tap  # noqa: E402, F401

HANG_S = 1800  # ends what hangs; a busy machine may be slow


class Case:
    """One command, what is expected of it, and the lines above it in its file."""

    def __init__(self, command, title='', above=()):
        self.command, self.name, self.above, self.expected = command, title, list(above), []

    def title(self):
        comments = [line[1:].strip() for line in self.above if line.startswith('#')]
        return self.name or (comments[-1] if comments else self.command)

    def accept(self, actual):
        self.expected = actual

    def explain(self, actual):
        """The difference, for TAP's reader."""
        yield f'$ {self.command}'
        if not self.expected:
            yield 'nothing is expected yet: run with --accept'
        yield from (f'expected  {line}' for line in self.expected if line not in actual)
        yield from (f'got       {line}' for line in actual if line not in self.expected)
        if sorted(self.expected) == sorted(actual):
            yield 'the same lines in another order'


class Outcome:
    """How a command ended: its exit status, what it printed, and the most memory that it used."""

    def __init__(self, words, folder, env=None):
        errors = []
        with subprocess.Popen(words, cwd=folder, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE) as process:
            timer = threading.Timer(HANG_S, process.kill)
            timer.start()
            reader = threading.Thread(target=lambda: errors.append(process.stderr.read()))
            reader.start()
            self.out = process.stdout.read()
            reader.join()
            _, status, usage = os.wait4(process.pid, 0)
            timer.cancel()
            process.returncode = os.waitstatus_to_exitcode(status)
        self.status, self.err, self.memory_bytes = process.returncode, errors[0], usage.ru_maxrss * 1024


def run_cases(report, cases, run, accepts=False, jobs=1):
    """`run` returns the lines of a case; `jobs` of them run at a time."""
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        for case, actual in zip(cases, pool.map(run, cases)):
            if accepts:
                case.accept(actual)
            report.result(case.title(), [] if case.expected == actual else list(case.explain(actual)))
