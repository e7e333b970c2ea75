#!/usr/bin/env python3
"""libfuzzer.py --build FOLDER [--seconds N] [--keep] [TARGET...]: runs fuzz targets with libFuzzer, one after another, and prints a table.

New inputs are kept in FOLDER/corpus, inputs that fail in FOLDER/finds, and what has been executed so far, all runs together, in
FOLDER/fuzzed.json. With --keep nothing is fuzzed: the corpora in FOLDER are minimised, and small inputs that reach what those
in tests/fuzz/corpus do not are added there.
"""
import argparse
import json
import pathlib
import re
import resource
import shutil
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
NO_TARGETS = {'replay'}
# What an input may take. libFuzzer measures the time that passes, which is longer on a machine that has much else to do; an input
# that it ends, or calls slow, is run again, and its processor time counts.
CPU_S, MEMORY_MIB = 10, 2048
PASSING_S = 120
# An input that is kept in the repository has at most so many bytes, and a target so many of them.
KEPT_BYTES, KEPT_MOST = 600, 40
HASH = re.compile('[0-9a-f]{40}') # how libFuzzer names an input


def all_targets():
    return sorted(path.stem for path in HERE.glob('*.c') if path.stem not in NO_TARGETS)


class Target:
    def __init__(self, name, build):
        self.name = name
        self.program = build / 'tests' / f'fuzz_{name}'
        self.seeds = HERE / 'corpus' / name
        self.corpus = build / 'corpus' / name
        self.finds = build / 'finds' / name
        self.log = build / f'{name}.log'
        for folder in (self.corpus, self.finds):
            folder.mkdir(parents=True, exist_ok=True)

    def run(self, *arguments, log=None):
        """The program's exit status. Messages of commands do not go to the log (close_fd_mask)."""
        command = [self.program, f'-timeout={PASSING_S}', f'-report_slow_units={CPU_S}', f'-rss_limit_mb={MEMORY_MIB}', *arguments]
        with (log or self.log).open('w', errors='replace') as out:
            return subprocess.run(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, check=False).returncode

    def watch(self, *arguments):
        """Run it; what the log has of executions, time and coverage, and what it found."""
        began = time.monotonic()
        status = self.run('-print_final_stats=1', '-close_fd_mask=2', f'-artifact_prefix={self.finds}/', *arguments)
        took, log = time.monotonic() - began, self.log.read_text(errors='replace')
        row = {'executions': last(r'^stat::number_of_executed_units: *(\d+)', log) or last(r'^#(\d+)', log), 'seconds': round(took),
               'edges': last(r' cov: (\d+)', log), 'of': last(r'Loaded \d+ modules +\((\d+) inline', log),
               'memory_mib': last(r'^stat::peak_rss_mb: *(\d+)', log) or last(r' rss: (\d+)Mb', log)}
        found = [path for path in sorted(self.finds.iterdir()) if self.is_wrong(path)]
        if status and not found and 'libFuzzer: timeout' not in log:
            print(*log.splitlines()[-30:], sep='\n', file=sys.stderr)
            found = [self.log]
        return row, found

    def fuzz(self, seconds):
        """A run as a row of the table, and what it found."""
        words = self.seeds.parents[1] / f'{self.name}.dict'
        options = [f'-dict={words}'] if words.exists() else []
        folders = [self.corpus] + ([self.seeds] if self.seeds.is_dir() else [])
        row, found = self.watch(f'-max_total_time={seconds}', *options, *folders)
        return {**row, 'inputs': len(list(self.corpus.iterdir()))}, found

    def is_wrong(self, path):
        """Whether an input fails or takes too long when it is run again; prints what the target itself has to say. An input that was
        only slow while the machine was busy is removed."""
        again, before = self.log.with_suffix('.find.log'), resource.getrusage(resource.RUSAGE_CHILDREN)
        status, after = self.run(path, log=again), resource.getrusage(resource.RUSAGE_CHILDREN)
        took = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
        if not status and took <= CPU_S and path.name.startswith(('slow-unit-', 'timeout-')):
            path.unlink()
            return False
        print(f'{self.name}: {path}, {took:.1f} s', *again.read_text(errors='replace').splitlines()[-30:], sep='\n', file=sys.stderr)
        return True

    def keep(self):
        """Minimise the corpus, and add to the seeds; the number of inputs that were added."""
        small = self.corpus.with_name(self.name + '.small')
        shutil.rmtree(small, ignore_errors=True)
        small.mkdir()
        if self.run('-merge=1', '-close_fd_mask=2', small, self.corpus):
            sys.exit(f'{self.name}: the corpus cannot be minimised: see {self.log}')
        shutil.rmtree(self.corpus)
        small.rename(self.corpus)
        self.seeds.mkdir(exist_ok=True)
        before = set(self.seeds.iterdir())
        # Without counters, an input is new if it reaches an edge that no other does, not for how often.
        self.run('-merge=1', '-close_fd_mask=2', '-use_counters=0', f'-max_len={KEPT_BYTES}', self.seeds, self.corpus)
        found = sorted((path for path in self.seeds.iterdir() if HASH.fullmatch(path.name)), key=lambda path: path.stat().st_size)
        for path in found[KEPT_MOST:]:
            path.unlink()
        return len(set(self.seeds.iterdir()) - before)


def last(pattern, text):
    found = re.findall(pattern, text, re.MULTILINE)
    return int(found[-1]) if found else 0


class Ledger:
    """What has been executed in a build's folder, all runs together."""

    def __init__(self, build):
        self.path = build / 'fuzzed.json'
        self.rows = json.loads(self.path.read_text()) if self.path.exists() else {}

    def add(self, name, row):
        sums = self.rows.setdefault(name, {'executions': 0, 'seconds': 0})
        for key in ('executions', 'seconds'):
            sums[key] += row[key]
        sums.update({key: row[key] for key in ('edges', 'of', 'inputs')})
        self.path.write_text(json.dumps(self.rows, indent=1, sort_keys=True) + '\n')


HEAD = '| target | executions | seconds | edges reached | edges of the program | inputs |\n|---|---:|---:|---:|---:|---:|'


def line(name, row):
    return (f"| {name} | {row['executions']:,} | {row['seconds']:,} | {row['edges']:,} | {row['of']:,} | {row['inputs']:,} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--build', required=True, type=pathlib.Path, help='the folder that was built')
    parser.add_argument('--seconds', type=int, default=60, help='for each target')
    parser.add_argument('--list', action='store_true', help='print the names of targets')
    parser.add_argument('--keep', action='store_true', help='minimise corpora and keep small inputs')
    parser.add_argument('targets', nargs='*', metavar='TARGET')
    options = parser.parse_args()
    names = options.targets or all_targets()
    if options.list:
        return print('\n'.join(names))
    targets = [Target(name, options.build.resolve()) for name in names]
    if options.keep:
        for target in targets:
            print(f'{target.name}: {target.keep()} inputs added to {target.seeds}')
        return None
    ledger, failed = Ledger(options.build), []
    print(HEAD, flush=True)
    for target in targets:
        row, found = target.fuzz(options.seconds)
        ledger.add(target.name, row)
        failed += [target.name] if found else []
        print(line(target.name, row), flush=True)
    print(f'\nAll runs in {options.build} together:\n{HEAD}')
    for name, row in sorted(ledger.rows.items()):
        print(line(name, row))
    total = {key: sum(row[key] for row in ledger.rows.values()) for key in ('executions', 'seconds')}
    print(f"\n{total['executions']:,} executions in {total['seconds'] / 3600:.1f} hours")
    if failed:
        sys.exit(f"inputs that fail are in {options.build}/finds, of {', '.join(failed)}; remove them once mended")
    return None


if __name__ == '__main__':
    main()
