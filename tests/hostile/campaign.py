#!/usr/bin/env python3
"""campaign.py --tessera PATH --seed N --count N: strange files of every format (strange.py), each read by a command. Prints a table.

Harm is an exit status of no documented meaning, a report of a sanitizer, a message that drives a terminal, more than 10 s of
processor time or 2 GiB, or a file that no option named. A case that does harm stays in the folder of --work, and its number makes it again
with --only. With --targets FOLDER, inputs made from the seeds of the fuzz targets that were built there are run by these.
"""
import argparse
import collections
import os
import pathlib
import re
import resource
import shutil
import socket
import subprocess
import sys

sys.dont_write_bytecode = True
HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / 'fuzz')]
import libfuzzer  # noqa: E402
import strange  # noqa: E402

CPU_S, HANG_S, MEMORY_BYTES = 10, 600, 2 << 30
ADDRESS = re.compile(rb'^http://127\.0\.0\.1:(\d+)/([0-9a-f]{32})/$')
CONTROLS = re.compile(rb'[\x00-\x08\x0b-\x1f\x7f]')
# A description that tessera cannot read itself is traced with PyTorch, which takes seconds where it is installed: not here.
ENVIRONMENT = {**os.environ, 'TESSERA_PYTHON': 'false', 'VIRTUAL_ENV': '', 'CONDA_PREFIX': ''}
# Exit status 4 is for what no input can cause: a full disk, no memory.
STATUSES = (0, 1, 2, 3)


def write_files(folder, files):
    shutil.rmtree(folder, ignore_errors=True)
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)


def listing(folder):
    return {str(path.relative_to(folder)) for path in folder.rglob('*')}


class Commands:
    """Runs cases, one process each."""

    def __init__(self, tessera, work):
        self.tessera, self.folder, self.server = str(tessera.resolve()), work / 'case', None
        self.is_answered = False  # by the last case: its exit status was 0

    def run(self, files, words):
        """What is wrong, and the processor time and memory of the command."""
        write_files(self.folder, files)
        if words == ['serve']:
            return self.request(files['in'])
        before = listing(self.folder)
        stdin = (self.folder / words[-1][1:]).open('rb') if words[-1] == '<in' else subprocess.DEVNULL
        words = words[:-1] if words[-1] == '<in' else words
        # Its processor time is limited by the system, which counts none while others use the machine.
        with subprocess.Popen([self.tessera, *words], cwd=self.folder, env=ENVIRONMENT, stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (4 * CPU_S, 4 * CPU_S))) as process:
            out = process.stdout.read()
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
        if stdin != subprocess.DEVNULL:
            stdin.close()
        took, memory = usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024
        self.is_answered = process.returncode == 0
        return list(self.harm(process.returncode, out, took, memory, before, words)), took, memory

    def harm(self, status, out, took, memory, before, words):
        if status not in STATUSES:
            yield f'exit status {status}: {out[-3000:].decode("utf-8", "replace")}'
        if CONTROLS.search(out):
            yield f'control characters: {out[:300]!r}'
        if took > CPU_S:
            yield f'{took:.1f} s'
        if memory > MEMORY_BYTES:
            yield f'{memory >> 20} MiB'
        # A resumed run is saved to its own folder.
        new = {name for name in listing(self.folder) - before if not (words[0] == 'train' and name.startswith('r/training-'))}
        if new:
            yield f'files that no option names: {sorted(new)}'

    def start_server(self):
        folder = self.folder.with_name('served')
        write_files(folder, {'s': strange.JSONS[0]})
        self.server = subprocess.Popen([self.tessera, 'serve', '--quiet', 's'], cwd=folder, stdout=subprocess.PIPE)
        match = ADDRESS.match(self.server.stdout.readline().strip())
        self.port, self.token = int(match[1]), match[2]

    def cpu_of_server(self):
        fields = pathlib.Path(f'/proc/{self.server.pid}/stat').read_text().rsplit(')', 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf('SC_CLK_TCK')

    def request(self, data):
        """One connection; the server must go on."""
        if not self.server:
            self.start_server()
        before, answer = self.cpu_of_server(), b''
        self.is_answered = False
        with socket.create_connection(('127.0.0.1', self.port), timeout=HANG_S) as connection:
            try:
                connection.sendall(data.replace(b'TOKEN', self.token))
                connection.shutdown(socket.SHUT_WR)
                while piece := connection.recv(1 << 16):
                    answer += piece
            except OSError:
                pass # refused before all was read
        harm = []
        if self.server.poll() is not None:
            harm.append(f'the server ended: {self.server.returncode}')
            self.server = None
            return harm, 0, 0
        if answer and not answer.startswith(b'HTTP/1.'):
            harm.append(f'no answer in HTTP: {answer[:200]!r}')
        if b'TOKEN' not in data and b' 200 ' in answer:
            harm.append('a page without the secret')
        self.is_answered = b' 200 ' in answer
        took = self.cpu_of_server() - before
        return harm + ([f'{took:.1f} s'] if took > CPU_S else []), took, 0

    def stop(self):
        if self.server:
            self.server.terminate()
            self.server.wait(HANG_S)
            self.server.stdout.close()


class Sums:
    """What the cases of one format took."""

    def __init__(self):
        self.executions = self.answered = self.harmful = self.memory_bytes = 0
        self.cpu_s = self.longest_s = 0.0

    def add(self, harm, took, memory, is_answered):
        self.executions += 1
        self.answered += is_answered
        self.harmful += bool(harm)
        self.cpu_s += took
        self.longest_s, self.memory_bytes = max(self.longest_s, took), max(self.memory_bytes, memory)


def run_all(commands, seed, numbers, keep=None):
    """For each format, its sums, and lines about the cases that did harm; `keep` gets their files."""
    rows = collections.defaultdict(lambda: (Sums(), []))
    for number in numbers:
        name, files, words = strange.case(seed, number)
        harm, took, memory = commands.run(files, words)
        sums, lines = rows[name]
        sums.add(harm, took, memory, commands.is_answered)
        if harm:
            shown = b' '.join(word if isinstance(word, bytes) else word.encode() for word in words)
            lines += [f'--seed {seed} --only {number}: {shown[:300]!r}', *'\n'.join(harm).splitlines()]
            print(*lines, sep='\n  ', file=sys.stderr, flush=True)
        if keep and (harm or len(numbers) == 1):
            shutil.copytree(commands.folder, keep / f'case-{number}', dirs_exist_ok=True)
    commands.stop()
    return dict(sorted(rows.items()))


def run_commands(options):
    numbers = range(options.first, options.first + options.count) if options.only is None else [options.only]
    rows = run_all(Commands(options.tessera, options.work), options.seed, numbers, options.work)
    print(f'\nseed {options.seed}\n| format | executions | answered | processor time (s) | longest (s) | most memory (MiB) | harm |\n'
          '|---|---:|---:|---:|---:|---:|---:|')
    for name, (sums, _) in rows.items():
        print(f'| {name} | {sums.executions:,} | {sums.answered:,} | {sums.cpu_s:.0f} | {sums.longest_s:.1f} | {sums.memory_bytes >> 20} | '
              f'{sums.harmful} |')
    print(f'{sum(sums.executions for sums, _ in rows.values()):,} executions, {sum(sums.harmful for sums, _ in rows.values())} did harm')
    return any(sums.harmful for sums, _ in rows.values())


def run_target(options, name):
    """Make inputs in a folder and let the target run each once; whether it failed."""
    target = libfuzzer.Target(name, options.targets.resolve())
    target.finds, target.log = options.work / 'finds' / name, options.work / f'{name}.log'
    target.finds.mkdir(parents=True, exist_ok=True)
    corpus = [path.read_bytes() for path in sorted(target.seeds.iterdir())]
    folder, count = options.work / name, options.few if name in SLOW else options.count
    write_files(folder, {f'{number:06}': strange.for_target(options.seed, number, corpus)
                         for number in range(options.first, options.first + count)})
    row, found = target.watch('-runs=0', '-max_len=1000000', folder) # each input once, and nothing else
    shutil.rmtree(folder)
    print(f"| {name} | {row['executions']:,} | {row['seconds']:,} | {row['memory_mib']:,} | {len(found)} |", flush=True)
    return row['executions'], len(found)


# Targets that take a second for an input; --few are enough.
SLOW = {'options', 'planner', 'rates'}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--tessera', type=pathlib.Path, help='the binary to run, best a sanitized one')
    parser.add_argument('--targets', type=pathlib.Path, metavar='FOLDER', help='run the fuzz targets in this build, each with --count inputs')
    parser.add_argument('--target', action='append', help='only this one')
    parser.add_argument('--work', required=True, type=pathlib.Path, help='folder for the files')
    parser.add_argument('--seed', type=int, required=True)
    parser.add_argument('--first', type=int, default=0, help='the number of the first case')
    parser.add_argument('--count', type=int, default=1000)
    parser.add_argument('--few', type=int, default=100, help='inputs of slow targets')
    parser.add_argument('--only', type=int, help='this case, again')
    options = parser.parse_args()
    options.work = options.work.resolve()
    options.work.mkdir(parents=True, exist_ok=True)
    if not options.targets:
        return run_commands(options)
    print(f'seed {options.seed}\n| target | executions | seconds | most memory (MiB) | failed |\n|---|---:|---:|---:|---:|')
    done = [run_target(options, name) for name in options.target or libfuzzer.all_targets()]
    print(f'{sum(count for count, _ in done):,} executions, {sum(failed for _, failed in done)} failed')
    return any(failed for _, failed in done)


if __name__ == '__main__':
    sys.exit(main())
