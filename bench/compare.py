"""Does another build of tessera print the same, byte for byte?

    ./run compare OLD NEW [--values] [--files FOLDER] [--only COMMAND] [--differences N]

OLD and NEW are two binaries. Every command that reads snapshots is run by both on every file of the folder
(by default ../shared/snapshots), as text and as JSON; `diff` on each pair of neighbours; Mosaic's commands
too. Standard output, standard error, the exit status and the files written must be equal. What differs is
listed by command, with the first lines that do, and the exit status is 1: a change that is meant to leave
everything alone shows so with this, and one that isn't shows what it changed.

With --values only the JSON of the questions is compared, number by number and word by word: of each key
that both print, how often its value is the same, and one example where it isn't. This is for versions that
word their reports differently on purpose, whose numbers should nevertheless agree.

It takes a minute or two. The page of `mosaic_get_memory_profile` contains a random name, as Mosaic's does,
and the time it took: of these runs only the status is compared.
"""
import argparse
import collections
import concurrent.futures
import difflib
import hashlib
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
SNAPSHOTS = ROOT.parent / 'shared' / 'snapshots'
SUFFIXES = ('.pickle', '.pkl', '.gz', '.zst', '.xz', '.json', '.html')

# Questions, each with the arguments that make it say most. {file} and {next} are the file and its
# neighbour, {out} a folder of this run's own.
QUESTIONS = {
    'info': [['info', '{file}']],
    'peak': [['peak', '{file}'], ['peak', '{file}', '--top', '0', '-v'],
             ['peak', '{file}', '--full-stacks']],
    'at': [['at', '{file}', '--event', '0'], ['at', '{file}', '--event', '100']],
    'profile': [['profile', '{file}']] + [['profile', '{file}', '--by', by] for by in
                                          ('category', 'op', 'module', 'line', 'stack', 'pool')],
    'diff': [['diff', '{file}', '{next}']],
    'stages': [['stages', '{file}']],
    'steps': [['steps', '{file}']],
    'leaks': [['leaks', '{file}']],
    'whatif': [['whatif', '{file}'], ['whatif', '{file}', '--capacity', '24GiB']],
    'why': [['why', '{file}']],
    'check': [['check', '{file}', '--max', '1GiB']],
}
PROGRAMS = {
    'export': [['export', '{file}', '-o', '{out}/' + name] for name in
               ('a.json', 'a.pickle', 'a.folded', 'a.speedscope.json', 'a.pb.gz', 'a.csv')],
    'trim': [['trim', '{file}', '--events', '10:200', '-o', '{out}/part.pickle']],
    'view': [['view', '{file}', '-o', '{out}/page.html']],
    'mosaic_get_memory_usage_peak': [['mosaic_get_memory_usage_peak', '--snapshot', '{file}']],
    'mosaic_get_memory_usage': [['mosaic_get_memory_usage', '--snapshot', '{file}']],
    'mosaic_get_memory_usage_diff': [['mosaic_get_memory_usage_diff', '--snapshot-base', '{file}',
                                      '--snapshot-diff', '{next}']],
    'mosaic_get_memory_profile': [['mosaic_get_memory_profile', '--snapshot', '{file}',
                                   '--out-path', '{out}/profile.html', '--profile', 'categories']],
}


def answer(binary, arguments, file, following):
    """What a run leaves behind, as bytes: output, errors, status, and each file that it wrote."""
    with tempfile.TemporaryDirectory() as out:
        words = [word.format(file=file, next=following, out=out) for word in arguments]
        program = [binary]
        if words[0].startswith('mosaic_'):
            link = pathlib.Path(out) / words.pop(0)
            link.symlink_to(binary)
            program = [str(link)]
        done = subprocess.run(program + words, capture_output=True, check=False,
                              env=dict(os.environ, COLUMNS='100'))
        parts = [b'status %d\n' % done.returncode]
        if arguments[0] == 'mosaic_get_memory_profile':
            return parts[0]
        parts += [done.stdout, done.stderr]
        for path in sorted(pathlib.Path(out).iterdir()):
            if not path.is_symlink():
                digest = hashlib.sha256(path.read_bytes()).hexdigest()
                parts.append(f'file {path.name} {digest}\n'.encode())
        return b''.join(parts).replace(out.encode(), b'OUT')


def jobs(files, only):
    for i, file in enumerate(files):
        following = files[(i + 1) % len(files)]
        for name, runs in (QUESTIONS | PROGRAMS).items():
            for arguments in runs if not only or name in only else []:
                yield name, arguments, file, following
                if name in QUESTIONS:
                    yield name, arguments + ['--json'], file, following


def first_difference(old, new, lines):
    text = difflib.unified_diff(old.decode('utf-8', 'replace').splitlines(),
                                new.decode('utf-8', 'replace').splitlines(), 'old', 'new', '', '', 0, '')
    return [line[:160] for line in text if not line.startswith(('---', '+++', '@@'))][:lines]


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


def values_of(binary, arguments, file, following):
    text = answer(binary, arguments, file, following).partition(b'\n')[2]
    try:
        return dict(leaves(json.JSONDecoder().raw_decode(text.decode())[0]))
    except ValueError:
        return {}


def compare_values(binaries, files, only):
    """Print a line for each key whose values differ somewhere; return how many do."""
    same, differ, missing, example = (collections.Counter(), collections.Counter(),
                                      collections.Counter(), {})
    for name, arguments, file, following in jobs(files, only):
        if name not in QUESTIONS or arguments[-1] != '--json':
            continue
        old, new = (values_of(binary, arguments, file, following) for binary in binaries)
        for path, value in old.items():
            key = name + ' ' + re.sub(r'\[\d+\]', '[]', path)
            if path not in new:
                missing[key] += 1
            elif new[path] == value:
                same[key] += 1
            else:
                differ[key] += 1
                example.setdefault(key, f'{value!s:.40} -> {new[path]!s:.40} ({pathlib.Path(file).name})')
    print(f'{"key":56} {"same":>8} {"differ":>8} {"missing":>8}  example')
    for key in sorted(set(differ) | set(missing)):
        print(f'{key:56} {same[key]:8} {differ[key]:8} {missing[key]:8}  {example.get(key, "")}')
    print(f'{sum(same.values())} the same, {sum(differ.values())} differ, '
          f'{sum(missing.values())} are missing in the new one')
    return sum(differ.values()) + sum(missing.values())


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('old')
    parser.add_argument('new')
    parser.add_argument('--values', action='store_true', help='compare JSON by value')
    parser.add_argument('--files', type=pathlib.Path, default=SNAPSHOTS)
    parser.add_argument('--only', action='append', metavar='COMMAND')
    parser.add_argument('--differences', type=int, default=4, metavar='N',
                        help='lines shown of each difference (default: 4)')
    options = parser.parse_args()
    if not options.files.is_dir():
        print(f'compare: skipped: no snapshots to compare on (looked for {options.files})')
        return 0
    files = [str(path) for path in sorted(options.files.iterdir()) if path.name.endswith(SUFFIXES)]
    binaries = [str(pathlib.Path(path).resolve()) for path in (options.old, options.new)]

    if options.values:
        return 1 if compare_values(binaries, files, options.only) else 0

    def both(job):
        return job, [answer(binary, job[1], job[2], job[3]) for binary in binaries]

    counts, differing = collections.Counter(), collections.Counter()
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for (name, arguments, file, following), (old, new) in pool.map(
                both, jobs(files, options.only)):
            counts[name] += 1
            if old == new:
                continue
            differing[name] += 1
            words = [pathlib.Path(word.format(file=file, next=following, out='OUT')).name
                     if word.startswith('{') else word for word in arguments]
            print(' '.join(words))
            for line in first_difference(old, new, options.differences):
                print('    ' + line)
    print()
    for name, count in counts.items():
        print(f'{name:32} {count - differing[name]:5} the same {differing[name]:5} differ')
    print(f'{sum(counts.values()) - sum(differing.values())} the same, {sum(differing.values())} differ')
    return 1 if differing else 0


if __name__ == '__main__':
    sys.exit(main())
