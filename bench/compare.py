"""Does another build of tessera print the same, byte for byte?

    ./run compare OLD NEW                      run both
    ./run compare --record FOLDER BINARY       store what a build prints, once
    ./run compare --against FOLDER BINARY      compare another build with that

    [--only PATTERN] [--quick] [--jobs N] [--files FOLDER] [--differences N] [--list] [--values]

The runs are listed in compare_runs.py: every question on every file of a folder of snapshots (by default
../shared/snapshots), simulated models and step graphs, plans, training runs, help, and wrong command lines. Standard
output, standard error, exit status and written files must be equal. For each run that differs a unified diff is
printed, and the exit status is 1: a change that is meant to leave everything alone shows so with this, and one that
isn't shows what it changed. The last line is `N compared, N differ`.

--only takes a regular expression that is searched in `GROUP: COMMAND LINE`, such as '^plan:' or 'llama.*--json'.
--quick takes one run in QUICK, of every group, always the same ones.

FOLDER contains runs.json.gz and the files that commands read, so --against reads the same step graphs and rates as
--record did, even if those of the repository have changed. Measured times are masked (see `normalised`). Losses depend on the
processor's instruction sets only in the runs with --isa avx2.

--values compares only the JSON of questions of OLD and NEW, number by number and word by word: for each key that both print,
how often its value is the same, and one example where it isn't. This is for versions that word their reports differently
on purpose, whose numbers should nevertheless agree.
"""
import argparse
import collections
import concurrent.futures
import difflib
import gzip
import hashlib
import json
import os
import pathlib
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import time
import zlib

import compare_runs

ROOT = pathlib.Path(__file__).resolve().parent.parent
SNAPSHOTS = ROOT.parent / 'shared' / 'snapshots'
GOLDEN = ROOT / 'tests' / 'golden'
SUFFIXES = ('.pickle', '.pkl', '.gz', '.zst', '.xz', '.json', '.html')
QUICK = 4
LONGEST_FILE = 100_000  # longer files are stored as a digest
SECONDS = 300           # after which a command has hung


# ---- What is not compared: times, and what depends on them.
MASKS = (
    (re.compile(r'[\d,.]+ tokens/s'), 'N tokens/s'),
    (re.compile(r'[\d.]+ [KMG]?i?B/s(?= with the)'), 'N GiB/s'),
    (re.compile(r'(?<=kernels waited )[\d.]+ m?s'), 'N s'),
    (re.compile(r'"((?:\w+_)?seconds|\w+_per_second)":\s*[-+.\de]+'), r'"\1":N'),
    (re.compile(r'(?<=function took: )[-+.\de]+'), 'N'),
)
# The rows of train --by op are sorted by time.
TIMES_OF_OPS = re.compile(r'(?m)^(op +phase +time/step.*\n)(?:.* ms .*\n)*')


def normalised(text, folder):
    """The output of a command or a file it wrote, without what differs from run to run."""
    text = TIMES_OF_OPS.sub(r'\1', text.replace(str(folder), 'FOLDER'))
    for pattern, replacement in MASKS:
        text = pattern.sub(replacement, text)
    if '{"event":"ops"' in text:
        text = '\n'.join(map(sorted_ops, text.split('\n')))
    return text


def sorted_ops(line):
    if not line.startswith('{"event":"ops"'):
        return line
    event = json.loads(line.replace('":N', '":0'))
    event['ops'].sort(key=lambda op: (op['op'], op['phase']))
    return json.dumps(event)


# ---- One run.
def title_of(run):
    return f'{run.group}: {run.line}' + (f' (COLUMNS={run.columns})' if run.columns else '')


def environment(run):
    kept = {name: value for name, value in os.environ.items() if name not in ('COLUMNS', 'NO_COLOR', 'TERM') and not name.startswith('LC_')}
    return kept | {'LC_ALL': 'C.UTF-8'} | ({'COLUMNS': str(run.columns)} if run.columns else {})


def written(folder):
    """The files below a folder, each as its text, or as a digest if it is long or binary."""
    for path in sorted(path for path in folder.rglob('*') if path.is_file() and path.relative_to(folder).parts[0] not in LINKS):
        content = path.read_bytes()
        name = path.relative_to(folder)
        try:
            text = content.decode() if len(content) <= LONGEST_FILE else None
        except UnicodeDecodeError:
            text = None
        yield f'--- file {name}\n' + (text if text is not None else f'{len(content)} bytes, {hashlib.sha256(content).hexdigest()}\n')


LINKS = ('in', 'graphs', 'snapshots')


def answer(binary, run, inputs, snapshots):
    """What a run prints and leaves behind, as text."""
    parts = []
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for link, target in zip(LINKS, (inputs / 'in', inputs / 'graphs', snapshots)):
            (folder / link).symlink_to(target)
        for line in run.line.split(' ; '):
            words, _, source = line.partition(' < ')
            words = shlex.split(words)
            program = [] if words[0].startswith('mosaic_') else ['tessera']
            try:
                done = subprocess.run(program + words, executable=binary, cwd=folder, env=environment(run), capture_output=True, check=False,
                                      input=(folder / source).read_bytes() if source else b'', timeout=SECONDS)
            except subprocess.TimeoutExpired:
                parts.append(f'no end after {SECONDS} s\n')
                break
            parts.append(f'status {done.returncode}\n{readable(done.stdout)}')
            if done.stderr:
                parts.append('--- standard error\n' + readable(done.stderr))
        if 'mosaic_get_memory_profile' not in run.line:  # its page contains a random name, as Mosaic's does
            parts += written(folder)
        return normalised(''.join(parts), folder)


def readable(output):
    return output.decode('utf-8', 'backslashreplace')


# ---- All runs.
def chosen(options):
    """The runs that the options select, in order."""
    names = sorted(path.name for path in options.files.iterdir() if path.name.endswith(SUFFIXES)) if options.files.is_dir() else []
    if not names:
        print(f'compare: no snapshots to compare on (looked for {options.files})', file=sys.stderr)
    graphs = sorted(str(pathlib.Path('graphs') / path.relative_to(GOLDEN)) for path in GOLDEN.glob('*/*.graph'))
    if options.against:
        graphs = sorted(str(path.relative_to(options.against)) for path in options.against.glob('graphs/*/*.graph'))
    runs = {title_of(run): run for run in compare_runs.all_runs(names, graphs)}
    return {title: run for title, run in runs.items()
            if (not options.only or any(re.search(pattern, title) for pattern in options.only))
            and (not options.quick or zlib.crc32(title.encode()) % QUICK == 0)}


def answers(runs, inputs, options):
    """Yields the title of each run with the answer of each binary, in order, and shows progress on a terminal."""
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        found = pool.map(lambda run: [answer(binary, run, inputs, options.files) for binary in options.binaries], runs.values())
        for i, (title, texts) in enumerate(zip(runs, found), 1):
            if sys.stderr.isatty() and (i % 20 == 0 or i == len(runs)):
                print(f'\r{i} of {len(runs)}', end='\n' if i == len(runs) else '', file=sys.stderr, flush=True)
            yield title, *texts


def record(options, runs):
    folder = options.record
    if (folder / 'in').exists():
        sys.exit(f'compare: {folder} contains a recording already; remove it first')
    compare_runs.write_inputs(folder, GOLDEN, options.binaries[0])
    with gzip.open(folder / 'runs.json.gz', 'wt', compresslevel=3, encoding='utf-8') as file:
        for title, text in answers(runs, folder, options):
            file.write(json.dumps([title, text]) + '\n')
    print(f'{len(runs)} recorded in {folder}')
    return 0


def recorded(folder):
    """Titles and answers of a recording. Answers stay compressed, because together they are long."""
    with gzip.open(folder / 'runs.json.gz', 'rt', encoding='utf-8') as file:
        return {title: zlib.compress(text.encode(), 1) for title, text in map(json.loads, file)}


def compare(pairs, options):
    """Print what differs in pairs of (title, old answer, new answer); return the exit status."""
    counts, differing = collections.Counter(), collections.Counter()
    for title, old, new in pairs:
        group = title.partition(':')[0]
        counts[group] += 1
        if old == new:
            continue
        differing[group] += 1
        print(title, flush=True)
        if sum(differing.values()) <= options.diffs:
            lines = list(difflib.unified_diff(old.splitlines()[:20_000], new.splitlines()[:20_000], n=1, lineterm=''))[2:]
            for line in lines[:options.differences]:
                print('    ' + line[:options.width])
            if len(lines) > options.differences:
                print(f'    ... {len(lines) - options.differences} more lines')
    print()
    for group, count in counts.items():
        print(f'{group:16} {count:5} compared {differing[group]:5} differ')
    print(f'{sum(counts.values())} compared, {sum(differing.values())} differ')
    return 1 if differing else 0


def compare_with_recording(options, runs):
    old = recorded(options.against)
    known = {title: run for title, run in runs.items() if title in old}
    if len(known) < len(runs):
        print(f'{len(runs) - len(known)} runs are not in the recording and are left out')
    found = answers(known, options.against, options)
    return compare(((title, zlib.decompress(old[title]).decode(), text) for title, text in found), options)


# ---- JSON by value.
def leaves(value, path=''):
    """Each number and word of a JSON value, with its path; positions in lists keep their number."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from leaves(inner, f'{path}.{key}' if path else key)
    elif isinstance(value, list):
        for i, inner in enumerate(value):
            yield from leaves(inner, f'{path}[{i}]')
    else:
        yield path, value


def values_of(text):
    try:
        return dict(leaves(json.JSONDecoder().raw_decode(text.partition('\n')[2])[0]))
    except ValueError:
        return {}


def compare_values(pairs):
    """Print a line for each key whose values differ somewhere; return the exit status."""
    same, differ, missing, example = collections.Counter(), collections.Counter(), collections.Counter(), {}
    for title, *texts in pairs:
        old, new = map(values_of, texts)
        for path, value in old.items():
            key = title.partition(':')[0] + ' ' + re.sub(r'\[\d+\]', '[]', path)
            if path not in new:
                missing[key] += 1
            elif new[path] == value:
                same[key] += 1
            else:
                differ[key] += 1
                example.setdefault(key, f'{value!s:.40} -> {new[path]!s:.40} ({title})')
    print(f'{"key":56} {"same":>8} {"differ":>8} {"missing":>8}  example')
    for key in sorted(set(differ) | set(missing)):
        print(f'{key:56} {same[key]:8} {differ[key]:8} {missing[key]:8}  {example.get(key, "")}')
    print(f'{sum(same.values())} the same, {sum(differ.values())} differ, {sum(missing.values())} are missing in the new one')
    return 1 if differ or missing else 0


# ---- The command line.
def parsed():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('binaries', nargs='*', metavar='BINARY', help='OLD NEW; one with --record or --against')
    parser.add_argument('--record', type=pathlib.Path, metavar='FOLDER', help='store the answers of BINARY')
    parser.add_argument('--against', type=pathlib.Path, metavar='FOLDER', help='compare BINARY with stored answers')
    parser.add_argument('--only', action='append', metavar='PATTERN', help='runs whose title matches; may be repeated')
    parser.add_argument('--quick', action='store_true', help=f'one run in {QUICK}')
    parser.add_argument('--jobs', type=int, default=min(2, os.cpu_count() or 1), metavar='N', help='commands at a time (default: 2)')
    parser.add_argument('--files', type=pathlib.Path, default=SNAPSHOTS, metavar='FOLDER')
    parser.add_argument('--differences', type=int, default=12, metavar='N', help='lines shown of each difference (default: 12)')
    parser.add_argument('--diffs', type=int, default=40, metavar='N', help='differences that are shown, not only named (default: 40)')
    parser.add_argument('--width', type=int, default=200, metavar='N', help='characters shown of a line (default: 200)')
    parser.add_argument('--list', action='store_true', help='only list the runs')
    parser.add_argument('--values', action='store_true', help='compare the JSON of questions by value')
    options = parser.parse_args()
    if options.record and options.against:
        parser.error('--record and --against are two different steps')
    if not options.list and len(options.binaries) != (1 if options.record or options.against else 2):
        parser.error('give OLD and NEW, or one binary with --record or --against')
    if options.against and not (options.against / 'runs.json.gz').exists():
        parser.error(f'{options.against} contains no recording')
    options.binaries = [str(pathlib.Path(path).resolve()) for path in options.binaries]
    options.files = options.files.resolve()
    for name in ('record', 'against'):
        if getattr(options, name):
            setattr(options, name, getattr(options, name).resolve())
    return options


def main():
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # so that `| head` ends it quietly
    options = parsed()
    runs = chosen(options)
    if options.values:
        runs = {title: run for title, run in runs.items() if run.group in compare_runs.QUESTIONS and run.line.endswith(' --json')}
    if options.list:
        print('\n'.join(runs))
        return 0
    begin = time.monotonic()
    if options.record:
        status = record(options, runs)
    elif options.against:
        status = compare_with_recording(options, runs)
    else:
        with tempfile.TemporaryDirectory() as name:
            inputs = pathlib.Path(name).resolve()
            compare_runs.write_inputs(inputs, GOLDEN, options.binaries[0])
            pairs = answers(runs, inputs, options)
            status = compare_values(pairs) if options.values else compare(pairs, options)
    print(f'{time.monotonic() - begin:.0f} s', file=sys.stderr)
    return status


if __name__ == '__main__':
    sys.exit(main())
