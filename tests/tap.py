"""tap.py: how tests that are programs of their own print TAP: one line a test, and below one that failed, as comments, why."""
import functools
import sys
import traceback


class Skip(Exception):
    """The test cannot run here; its text is the reason."""


def expect(what, got, want):
    if got != want:
        raise AssertionError(f'{what}: got {got!r:.1000}, want {want!r:.1000}')


class Report:
    """The lines so far, of which the last is the number of tests."""

    def __init__(self):
        self.number = self.failed = 0

    def result(self, title, lines=(), skipped=''):
        """A test has failed if there are `lines`."""
        self.number += 1
        self.failed += bool(lines)
        print('not ' * bool(lines) + f'ok {self.number} - {title.replace("#", "")}{skipped and f" # SKIP {skipped}"}')
        for line in lines:
            print(f'# {line}')
        sys.stdout.flush()

    def end(self):
        """The exit status."""
        print(f'1..{self.number}')
        return int(self.failed > 0)


def named(checks, *given):
    """(title, function) of functions check_..., each of which is called with `given`."""
    return [(check.__name__.removeprefix('check_').replace('_', ' '), functools.partial(check, *given)) for check in checks]


def run(tests):
    """Runs (title, function) of each, and returns the exit status."""
    report = Report()
    for title, test in tests:
        try:
            test()
            report.result(title)
        except Skip as reason:
            report.result(title, skipped=str(reason))
        except AssertionError as error:
            report.result(title, (str(error) or traceback.format_exc())[-3000:].splitlines())
        except Exception:  # a test that cannot run is a test that fails
            report.result(title, traceback.format_exc().splitlines())
    return report.end()
