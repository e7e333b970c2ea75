#!/usr/bin/env python3
"""run.py --tessera PATH --work FOLDER [--sanitized] [--accept]: files that mean harm, as TAP.

Every file of make.py is given to tessera. expected.txt contains what must come of it, one line each:

    NAME  3  MESSAGE            refused, with exactly this line about the file
    NAME  0  CODE CODE ...      answered, with exactly these warnings (- for none)

Besides, whatever the file: nothing on standard output with an error, one line on standard error,
nothing executed, an end within CPU_S of processor time, and memory within MEMORY_BYTES (not measured
in a sanitized build, which needs more, and where the longest files are shorter). --accept rewrites expected.txt with what happens now: read the difference
before you commit it.
"""
import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import zlib
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.dont_write_bytecode = True
sys.path[:0] = [str(HERE), str(HERE.parent / 'cli')]
from campaign import Commands, run_all  # noqa: E402
from runner import Case, Outcome, run_cases, tap  # noqa: E402

SHARED = HERE.parents[2] / 'shared'
EXPECTED = HERE / 'expected.txt'
CANARY = 'was-executed'  # what the files would create
STRANGE_SEED, STRANGE_WHOLE, STRANGE_COUNT, STRANGE_FEW = 1, 250, 60, 20  # of files of every format (campaign.py); few in a sanitized build
# A file should take 10 s at most. Processor time, since it does not grow while others use the machine;
# a process that waits forever uses none, and meets the runner's limit.
CPU_S, SANITIZED_CPU_S = 60, 600
MEMORY_BYTES = 1 << 30
ANSWERED, REFUSED = 0, 3
# What else is asked of a file that was answered; and of one whose answers could take long.
OTHERS = (('peak', '--json'), ('export', '--format', 'json', '-o', '/dev/null'))
LENGTHY = (('whatif', '--json'),
           ('whatif', '--capacity', '1GiB', '--set', 'expandable_segments:True', '--json'),
           ('pools', '--json'), ('pools', '--event', '-1', '--json'),
           ('trim', '--format', 'pickle', '-o', '/dev/null'), ('at', '--event', '-1', '--json'),
           ('profile', '--json'))
NO_HARM = ['no harm']


class Known(Case):
    def accept(self, actual):
        """Harm is never expected."""
        if len(actual) == 1 and actual[0].split()[0] in (str(ANSWERED), str(REFUSED)):
            super().accept(actual)


class Files:
    """The files, and what tessera does with them."""

    def __init__(self, options):
        self.tessera, self.sanitized = str(options.tessera.resolve()), options.sanitized
        self.folder = options.work.resolve() / 'files'
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)

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

    def ask(self, name, *command):
        """How the command ends, and in words what must never be."""
        path = self.folder / name
        done = Outcome([self.tessera, *command, path.name], path.parent)
        err = done.err.decode('utf-8', 'replace')
        harm = []
        if done.status not in (ANSWERED, REFUSED):
            harm.append(f'exit status {done.status}: {err[-2000:]}')
        if done.status == REFUSED and (done.out or err.count('\n') != 1):
            harm.append(f'an error is one line on standard error: {done.out[:80]!r} {err[-500:]!r}')
        if done.memory_bytes > MEMORY_BYTES and not self.sanitized:
            harm.append(f'it took {done.memory_bytes >> 20} MiB')
        if (path.parent / CANARY).exists():
            (path.parent / CANARY).unlink()
            harm.append('the file was executed')
        return done, [f'{command[0]}: {line}' for text in harm for line in text.splitlines()]

    def known(self, case):
        """What comes of a file, as a line of expected.txt has it."""
        name = case.name
        done, harm = self.ask(name, 'info', '--json')
        if harm:
            return harm
        if done.status == REFUSED:
            message = done.err.decode('utf-8', 'replace').strip().replace(f'tessera: {name}: ', '', 1)
            return [f'{REFUSED}  {message}']
        codes = [warning['code'] for warning in json.loads(done.out)['warnings']]
        others = () if name.startswith('end-') else OTHERS + LENGTHY * name.startswith('values-long')
        if not os.environ.get('TESSERA_WHOLE'):
            others = others[zlib.crc32(name.encode()) % 3::3]
        if 'no-segments' in codes:  # a list of allocations, which export refuses
            others = tuple(command for command in others if command[0] != 'export')
        return [f'{ANSWERED}  {" ".join(codes) or "-"}', *(line for command in others for line in self.ask(name, *command)[1])]

    def unknown(self, case):
        """A file of which only harm is known to be wrong."""
        return self.ask(case.name, 'peak', '--json')[1] or NO_HARM


def cases_of(make, names, expected):
    cases = [make(f'tessera info --json {name}', name) for name in names]
    for case in cases:
        case.expected = expected(case.name)
    return cases


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--tessera', required=True, type=Path, help='the binary to run')
    parser.add_argument('--work', required=True, type=Path, help='folder for the files')
    parser.add_argument('--sanitized', action='store_true', help='the binary is slow and needs much memory')
    parser.add_argument('--accept', action='store_true', help='expect what happens now')
    options = parser.parse_args()
    # Inherited by every process; this one uses far less.
    cpu_s = SANITIZED_CPU_S if options.sanitized else CPU_S
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_s, resource.getrlimit(resource.RLIMIT_CPU)[1]))
    files, report, jobs = Files(options), tap.Report(), os.cpu_count()
    names, foreign = files.make(), list(files.make_foreign())
    everything = set(names)
    # The sanitized build reads all of them; what only this one can tell is what takes long, and what is executed.
    if not options.sanitized and not options.accept and not os.environ.get('TESSERA_WHOLE'):
        names = [name for i, name in enumerate(names) if i % 3 == 0 or name.startswith(('exec-', 'values-long'))]
        foreign = foreign[::3]
    known = [name for name in names if not name.startswith('any-')]
    unknown = [name for name in names if name.startswith('any-')] + foreign
    expected = dict(line.split('  ', 1) for line in EXPECTED.read_text().splitlines() if not line.startswith('#'))
    cases = cases_of(Known, known, lambda name: [expected[name]] if name in expected else [])
    run_cases(report, cases, files.known, options.accept, jobs)
    run_cases(report, cases_of(Case, unknown, lambda name: NO_HARM), files.unknown, jobs=jobs)
    strange = range(STRANGE_WHOLE if os.environ.get('TESSERA_WHOLE') else STRANGE_FEW if options.sanitized else STRANGE_COUNT)
    for name, (sums, harm) in run_all(Commands(options.tessera, options.work.resolve()), STRANGE_SEED, strange).items():
        report.result(f'{sums.executions} {name} from a seed', harm)
    if options.accept:
        lines = EXPECTED.read_text().splitlines()[:2] + [f'{case.name}  {case.expected[0]}' for case in cases if case.expected]
        EXPECTED.write_text('\n'.join(lines) + '\n')
    elif set(expected) - everything:
        report.result('expected.txt names files that exist', sorted(set(expected) - everything))
    if not foreign:
        report.result('files of another generator', skipped='../shared is absent')
    return report.end()


if __name__ == '__main__':
    sys.exit(main())
