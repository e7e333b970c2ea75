#!/usr/bin/env python3
"""run.py --tessera PATH --work FOLDER [--sanitized] [--accept]: files that mean harm, as TAP.

Every file of make.py is given to tessera. expected.txt says what must come of it, one line each:

    NAME  3  MESSAGE            refused, with exactly this line about the file
    NAME  0  CODE CODE ...      answered, with exactly these warnings (- for none)

Besides, whatever the file: nothing on standard output with an error, one line on standard error,
nothing executed, an end within CPU_S of processor time, and memory within MEMORY_BYTES (not measured
in a sanitized build, which needs more, and where the longest files are shorter). --accept rewrites expected.txt with what happens now: read the difference
before you commit it.
"""
import argparse
import concurrent.futures
import json
import os
import resource
import shutil
import subprocess
import sys
import threading
from pathlib import Path

HERE = Path(__file__).resolve().parent
SHARED = HERE.parents[2] / 'shared'
EXPECTED = HERE / 'expected.txt'
CANARY = 'was-executed'  # what the files would create
# A file should take 10 s at most. Processor time, since it does not grow while others use the machine;
# a process that waits forever uses none, and meets the other limit.
CPU_S, SANITIZED_CPU_S = 60, 600
HANG_S = 1800
MEMORY_BYTES = 1 << 30
ANSWERED, REFUSED = 0, 3
# What else is asked of a file that was answered; and of one whose answers could take long.
OTHERS = (('peak', '--json'), ('export', '--format', 'json', '-o', '/dev/null'))
LENGTHY = (('whatif', '--json'),
           ('whatif', '--capacity', '1GiB', '--set', 'expandable_segments:True', '--json'),
           ('trim', '--format', 'pickle', '-o', '/dev/null'), ('at', '--event', '-1', '--json'),
           ('profile', '--json'))


class Outcome:
    """What one run of tessera came to."""

    def __init__(self, command, folder):
        with subprocess.Popen(command, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE) as process:
            timer = threading.Timer(HANG_S, process.kill)
            timer.start()
            errors = []
            reader = threading.Thread(target=lambda: errors.append(process.stderr.read()))
            reader.start()
            self.out = process.stdout.read()
            reader.join()
            _, status, usage = os.wait4(process.pid, 0)
            timer.cancel()
            process.returncode = os.waitstatus_to_exitcode(status)
        self.status, self.err = process.returncode, errors[0].decode('utf-8', 'replace')
        self.memory_bytes = usage.ru_maxrss * 1024

    def harm(self, folder, sanitized):
        """What must never be, in words."""
        if self.status not in (ANSWERED, REFUSED):
            yield f'exit status {self.status}: {self.err[-2000:]}'
        if self.status == REFUSED and (self.out or self.err.count('\n') != 1):
            yield f'an error is one line on standard error: {self.out[:80]!r} {self.err[-500:]!r}'
        if self.memory_bytes > MEMORY_BYTES and not sanitized:
            yield f'it took {self.memory_bytes >> 20} MiB'
        if (folder / CANARY).exists():
            (folder / CANARY).unlink()
            yield 'the file was executed'

    def words(self, name):
        """As a line of expected.txt has it."""
        if self.status == ANSWERED:
            codes = [warning['code'] for warning in json.loads(self.out)['warnings']]
            return f'{ANSWERED}  {" ".join(codes) or "-"}'
        return f'{self.status}  {self.err.strip().replace(f"tessera: {name}: ", "", 1)}'


class Suite:
    """Runs the tests, and prints what comes of them in order."""

    def __init__(self, options):
        self.tessera, self.sanitized = str(options.tessera.resolve()), options.sanitized
        self.folder = options.work.resolve() / 'files'
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        lines = EXPECTED.read_text().splitlines() if EXPECTED.exists() else []
        self.expected = dict(line.split('  ', 1) for line in lines if not line.startswith('#'))
        self.accepts, self.accepted = options.accept, {}
        self.number = self.failed = 0

    def make(self):
        """The names of the files, written by its own process: memory that this one has used would
        count for those that it starts."""
        short = ['--short'] if self.sanitized else []
        done = subprocess.run([sys.executable, HERE / 'make.py', *short, self.folder], check=True,
                              stdout=subprocess.PIPE, text=True)
        return done.stdout.split()

    def make_foreign(self):
        """The files of another generator, made of real snapshots, where ../shared has them."""
        maker = SHARED / 'tools' / 'make_hostile.py'
        real = [SHARED / 'snapshots' / name for name in ('tiny-no-trace.pickle',
                                                         'short-trace.pickle')]
        if not maker.exists() or not all(path.exists() for path in real):
            return
        for seed in (1, 2):
            folder = self.folder / f'foreign-{seed}'
            subprocess.run([sys.executable, maker, folder, str(seed), *real], check=True,
                           stdout=subprocess.DEVNULL, cwd=self.folder)
            for path in sorted(folder.iterdir()):
                # Only what is made by chance differs from seed to seed.
                if seed == 1 or path.name.split('-')[0] in ('cut', 'flip', 'splice', 'repeat'):
                    yield f'foreign-{seed}/{path.name}'

    def ask(self, name, *commands):
        """The defects of each command on one file, and the outcome of the first."""
        path = self.folder / name
        outcomes = [Outcome([self.tessera, *command, path.name], path.parent)
                    for command in commands]
        defects = [f'{command[0]}: {defect}' for command, outcome in zip(commands, outcomes)
                   for defect in outcome.harm(path.parent, self.sanitized)]
        return defects, outcomes[0]

    def known(self, name):
        """A file of which it is known what must come of it."""
        defects, outcome = self.ask(name, ('info', '--json'))
        if not defects:
            actual = self.accepted[name] = outcome.words(name)
            expected = actual if self.accepts else self.expected.get(name, 'nothing yet: --accept')
            if actual != expected:
                defects = [f'expected  {expected}', f'got       {actual}']
        if outcome.status == ANSWERED and not defects and not name.startswith('end-'):
            defects, _ = self.ask(name, *OTHERS, *LENGTHY * name.startswith('values-long'))
        return name, defects

    def unknown(self, name):
        """A file of which only harm is known to be wrong."""
        return name, self.ask(name, ('peak', '--json'))[0]

    def report(self, results):
        for name, defects in results:
            self.number += 1
            self.failed += bool(defects)
            print('not ' * bool(defects) + f'ok {self.number} - {name}')
            for line in '\n'.join(defects).splitlines():
                print('# ' + line)
            sys.stdout.flush()

    def write_expected(self, names):
        lines = ['# What must come of each hostile file: its name, and 0 with the codes of warnings,',
                 '# or 3 with the message. See run.py.']
        lines += [f'{name}  {self.accepted[name]}' for name in names if name in self.accepted]
        EXPECTED.write_text('\n'.join(lines) + '\n')


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--tessera', required=True, type=Path, help='the binary to run')
    parser.add_argument('--work', required=True, type=Path, help='folder for the files')
    parser.add_argument('--sanitized', action='store_true', help='the binary is slow and needs much memory')
    parser.add_argument('--accept', action='store_true', help='expect what happens now')
    return parser.parse_args()


def main():
    options = arguments()
    # Inherited by every process; this one uses far less.
    cpu_s = SANITIZED_CPU_S if options.sanitized else CPU_S
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_s, resource.getrlimit(resource.RLIMIT_CPU)[1]))
    suite = Suite(options)
    names = suite.make()
    any_outcome = [name for name in names if name.startswith('any-')]
    known = names[:len(names) - len(any_outcome)]
    foreign = list(suite.make_foreign())
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        suite.report(pool.map(suite.known, known))
        suite.report(pool.map(suite.unknown, any_outcome + foreign))
    if options.accept:
        suite.write_expected(known)
    elif set(suite.expected) - set(known):
        suite.report([('expected.txt names no file that is no more',
                       sorted(set(suite.expected) - set(known)))])
    if not foreign:
        suite.number += 1
        print(f'ok {suite.number} - files of another generator # SKIP ../shared is absent')
    print(f'1..{suite.number}')
    return int(suite.failed > 0)


if __name__ == '__main__':
    sys.exit(main())
