#!/usr/bin/env python3
"""suite.py [--not-built FOLDER]... FOLDER[=SUITE]... [-- MESON ARGUMENTS]: run the tests of build folders.

The folders are tested one after the other by `meson test`: everything in a folder, or one suite of it,
or what MESON ARGUMENTS select; a folder that has none of those is left out. Each test that ends prints
a line with its number, the number of tests in all folders, and the time since the start; when nothing
ends for a while, a line says what is running. Then follows the output of each test that failed, and last the line

    N passed, N failed, N skipped

without the skipped ones if none were skipped. A subtest counts as one. A test that fails without naming
a subtest (it crashed, leaked, or hung) counts as one failure, and so does a folder that could not be
built (--not-built) or whose tests did not run.
"""
import argparse
import json
import re
import select
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from pathlib import Path

# How meson says that none of a folder's tests is selected, which is no failure: builds differ in their tests.
NO_TESTS = ('No suitable tests defined.', 'test name does not match any test')
QUIET_S = 30  # after so long without a finished test, say what is running


def key_of(command):
    """What tells a test's process from others, whichever interpreter its command stands for here."""
    return tuple(Path(word).name for word in command[1:] or command)


class Folder:
    """The tests of one build folder."""

    def __init__(self, word, arguments):
        name, _, suite = word.partition('=')
        self.path = Path(name)
        self.arguments = [*(['--suite', suite] if suite else []), *arguments]
        for log in self.logs.glob('testlog*'):
            log.unlink()
        listed = self.meson('test', '--no-rebuild', '--list', *self.arguments)
        self.has_none = any(line.endswith(NO_TESTS) for line in listed.splitlines())
        self.count = 0 if self.has_none else len(listed.splitlines())
        self.names = {key_of(test['cmd']): test['name']
                      for test in json.loads(self.meson('introspect', '--tests') or '[]')}

    @property
    def logs(self):
        return self.path / 'meson-logs'

    def meson(self, command, *words):
        where = [self.path] if command == 'introspect' else ['-C', self.path]
        return subprocess.run(['meson', command, *where, *words], stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL, text=True, check=False).stdout

    def run(self, progress):
        """Only the exit status of each test matters, which the logs have; so meson's is not looked at."""
        command = ['meson', 'test', '-C', self.path, '--no-rebuild', *self.arguments]
        with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL) as meson:
            try:
                for line in lines_of(meson.stdout, lambda: progress.still(self.running(meson.pid))):
                    number, _, rest = line.strip().partition(' ')
                    if number.partition('/')[0].isdigit() and '/' in number:
                        progress.ended(self.path.name, rest.strip())
            except KeyboardInterrupt:
                meson.terminate()
                raise

    def running(self, pid):
        """The names of the tests that this meson has started, where the system tells."""
        found = []
        try:
            children = Path(f'/proc/{pid}/task/{pid}/children').read_text().split()
            for child in children:
                words = Path(f'/proc/{child}/cmdline').read_text().split('\0')[:-1]
                found.append(self.names.get(key_of(words)))
        except OSError:
            pass
        return sorted(name for name in found if name)

    def outcomes(self):
        """(test, passed, failed, skipped) for each test, from the logs that meson left."""
        junit = ET.parse(self.logs / 'testlog.junit.xml').getroot()
        suites = {suite.get('name').partition('.')[2]: suite for suite in junit.iter('testsuite')}
        for line in (self.logs / 'testlog.json').read_text().splitlines():
            test = json.loads(line)
            cases = [case for case in suites.get(test['name'], ()) if case.tag == 'testcase']
            failed = sum(case.find('failure') is not None or case.find('error') is not None
                         for case in cases)
            skipped = sum(case.find('skipped') is not None for case in cases)
            passed = len(cases) - failed - skipped
            if test['result'] == 'SKIP' and not cases:
                skipped = 1
            elif test['result'] not in ('OK', 'SKIP', 'EXPECTEDFAIL'):
                failed = failed or 1
            elif not cases:
                passed = 1
            yield test, passed, failed, skipped


class Progress:
    """Prints what happens, with how far that is."""

    def __init__(self, total):
        self.total, self.done, self.start = total, 0, time.monotonic()

    def say(self, text):
        seconds = int(time.monotonic() - self.start)
        print(f'[{self.done:{len(str(self.total))}}/{self.total} {seconds // 60}:{seconds % 60:02}] {text}',
              flush=True)

    def ended(self, folder, text):
        self.done += 1
        self.say(f'{folder}  {text}')

    def still(self, names):
        if names:
            self.say(f'running: {", ".join(names)}')


def lines_of(stream, waiting):
    """The lines of a pipe as they come; calls waiting() whenever none came for a while."""
    rest = b''
    while True:
        if not select.select([stream], [], [], QUIET_S)[0]:
            waiting()
            continue
        data = stream.read1()
        *lines, rest = (rest + data).split(b'\n')
        yield from (line.decode('utf-8', 'replace') for line in lines)
        if not data:
            return


def without_passed(tap):
    return '\n'.join(line for line in tap.splitlines() if not re.match(r'ok \d', line))


def tally(folders, not_built):
    """Prints what failed and the counts; returns the exit status."""
    passed = skipped = 0
    failed = len(not_built)
    for name in not_built:
        print(f'{name}: not built')
    for folder in folders:
        try:
            results = list(folder.outcomes())
        except (OSError, ET.ParseError, ValueError) as problem:
            print(f'{folder.path}: its tests did not run: {problem}')
            results, failed = [], failed + 1
        for test, *counts in results:
            passed, failed, skipped = (a + b for a, b in zip((passed, failed, skipped), counts))
            if counts[1]:
                print(f'--- {folder.path.name}: {test["name"]}: {test["result"]}')
                print(without_passed(test.get('stdout', '')))
                print(test.get('stderr', '').rstrip())
    print(f'{passed} passed, {failed} failed' + (f', {skipped} skipped' if skipped else ''))
    return int(failed > 0 or passed == 0)


def main():
    words = sys.argv[1:]
    own, meson = (words[:words.index('--')], words[words.index('--') + 1:]) if '--' in words else (words, [])
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--not-built', action='append', default=[], metavar='FOLDER')
    parser.add_argument('folders', nargs='*', metavar='FOLDER[=SUITE]')
    options = parser.parse_args(own)
    folders = [folder for folder in (Folder(word, meson) for word in options.folders) if not folder.has_none]
    progress = Progress(sum(folder.count for folder in folders))
    for folder in folders:
        folder.run(progress)
    return tally(folders, options.not_built)


if __name__ == '__main__':
    sys.exit(main())
