#!/usr/bin/env python3
"""run.py --tessera BINARY [--small] [--rounds N]: how fast, beside what, as a Markdown table.

Ratios of one run on one machine, from medians of several rounds, with every file in the page cache:

  peak         wall time of `tessera peak FILE --json > /dev/null`, start of the process included
  pickle.load  the time that CPython's pickle.load alone takes on the open file, in a process of its
               own with the cyclic garbage collector off: its best case
  read         wall time of a loop that reads the file in pieces of 1 MiB, likewise the loop alone
  cat          wall time of `cat FILE > /dev/null`, start of the process included
  memory       largest RssAnon of /proc/PID/status while tessera runs, sampled every 2 ms: memory of
               its own, without pages of the binary or of mapped files. A run shorter than a few
               samples may hide a short peak.

The rounds take turns, so that a slow moment of the machine falls on all of them alike.
"""
import argparse
import datetime
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SHARED = ROOT.parent / 'shared'
SOURCE = SHARED / 'snapshots' / 'train-ctx1024-torch2.11.pickle'
STRETCH = SHARED / 'tools' / 'stretch.py'
CACHE = ROOT / 'build' / 'bench'
MIB = 1 << 20

LOAD = '''
import gc, pickle, sys, time
gc.disable()
with open(sys.argv[1], 'rb') as file:
    start = time.perf_counter()
    value = pickle.load(file)
    print(time.perf_counter() - start, flush=True)
import os
os._exit(0)
'''
READ = '''
import sys, time
with open(sys.argv[1], 'rb', buffering=0) as file:
    buffer = bytearray(1 << 20)
    start = time.perf_counter()
    while file.readinto(buffer):
        pass
    print(time.perf_counter() - start)
'''


def inside(program):
    """A measure that a Python program takes of itself."""
    def measure(path):
        done = subprocess.run([sys.executable, '-c', program, str(path)], capture_output=True,
                              text=True, check=True)
        return float(done.stdout)
    return measure


def outside(*command):
    """The wall time of a whole process."""
    def measure(path):
        line = [str(path) if word == 'FILE' else word for word in command]
        start = time.perf_counter()
        subprocess.run(line, stdout=subprocess.DEVNULL, check=True)
        return time.perf_counter() - start
    return measure


def largest_anonymous_bytes(command):
    """The largest RssAnon of the process while it runs, sampled every 2 ms."""
    largest = 0
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        while process.poll() is None:
            try:
                status = Path(f'/proc/{process.pid}/status').read_text(encoding='ascii',
                                                                       errors='replace')
            except OSError:
                break
            for line in status.splitlines():
                if line.startswith('RssAnon:'):
                    largest = max(largest, int(line.split()[1]) * 1024)
            time.sleep(0.002)
    if process.returncode:
        sys.exit(f'bench: {" ".join(command)} failed')
    return largest


def stretched(copies):
    """The source's trace repeated, made once."""
    if copies == 1:
        return SOURCE
    path = CACHE / f'{SOURCE.stem}-x{copies}.pickle'
    if not path.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        print(f'bench: making {path.relative_to(ROOT)}', file=sys.stderr)
        partial = path.with_suffix('.partial')
        subprocess.run([sys.executable, str(STRETCH), str(SOURCE), str(partial), str(copies)],
                       stdout=subprocess.DEVNULL, check=True)
        partial.rename(path)
    return path


def measure_file(tessera, path, rounds):
    measures = {
        'peak': outside(tessera, 'peak', 'FILE', '--json'),
        'load': inside(LOAD),
        'read': inside(READ),
    }
    measures['read'](path)  # warms the page cache
    seconds = {name: [] for name in measures}
    for _ in range(rounds):
        for name, measure in measures.items():
            seconds[name].append(measure(path))
    result = {name: statistics.median(values) for name, values in seconds.items()}
    result['memory'] = statistics.median(
        largest_anonymous_bytes([tessera, 'peak', str(path), '--json']) for _ in range(rounds))
    result['bytes'] = path.stat().st_size
    return result


def events_of(tessera, path):
    done = subprocess.run([tessera, 'peak', str(path), '--json'], capture_output=True, check=True)
    return sum(device['events'] for device in json.loads(done.stdout)['devices'])


def processor():
    for line in Path('/proc/cpuinfo').read_text(encoding='utf-8').splitlines():
        if line.startswith('model name'):
            return line.partition(':')[2].strip()
    return platform.machine()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--tessera', default=str(ROOT / 'build' / 'tessera'))
    parser.add_argument('--rounds', type=int, default=7)
    parser.add_argument('--small', action='store_true', help='leave the file of 1 GB out')
    parser.add_argument('--queries', default=str(ROOT / 'build' / 'bench_queries'))
    options = parser.parse_args()
    if not SOURCE.exists() or not STRETCH.exists():
        print(f'bench: skipped: no snapshots to measure on (looked for {SOURCE})')
        return
    tessera = str(Path(options.tessera).resolve())
    print(f'{datetime.date.today()}, {processor()}, {os.cpu_count()} cores, '
          f'Python {platform.python_version()}, medians of {options.rounds} rounds\n')
    print('| file | events | peak | speed | pickle.load | read | times faster than pickle.load '
          '| times slower than reading | memory | memory : file |')
    print('|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|')
    for copies in (1, 28) if options.small else (1, 28, 300):
        path = stretched(copies)
        result = measure_file(tessera, path, options.rounds if copies < 300 else 3)
        print(f'| {result["bytes"] / 1e6:.1f} MB | {events_of(tessera, path):,} '
              f'| {result["peak"] * 1e3:.1f} ms '
              f'| {result["bytes"] / result["peak"] / 1e6:.0f} MB/s '
              f'| {result["load"] * 1e3:.1f} ms | {result["read"] * 1e3:.1f} ms '
              f'| {result["load"] / result["peak"]:.1f} '
              f'| {result["peak"] / result["read"]:.1f} | {result["memory"] / MIB:.1f} MiB '
              f'| {result["memory"] / result["bytes"]:.2f} |', flush=True)
    print_queries(options.queries, path)


def print_queries(program, path):
    """Inside the process: reading, replay, and live sets after that, on the last file."""
    if not Path(program).exists():
        return
    done = subprocess.run([program, str(path)], capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    print(f'\nOn the last file, inside the process: reading {found["open_s"] * 1e3:.0f} ms, replay '
          f'{found["replay_s"] * 1e3:.0f} ms, the slowest of 1,000 live sets '
          f'{found["query_s"] * 1e3:.2f} ms; {found["bytes_per_allocation"]:.0f} bytes an '
          'allocation beyond what the reader holds.')


if __name__ == '__main__':
    main()
