#!/usr/bin/env python3
"""sql.py --tessera BINARY --snapshot FILE [--rounds N] [--library libduckdb.so]: the fifteen queries of docs/sql.md, in Markdown.

Each is answered by `tessera sql`, and by pandas from Parquet files of the tables, which `tessera sql -o x.parquet` writes (with DuckDB; needs
pandas and pyarrow). The answers must be equal. Times are the medians of all rounds: processor time and wall time of the command, which reads
the whole snapshot each time, and of pandas the time after its tables have been loaded."""
import argparse
import csv
import io
import os
import pathlib
import re
import statistics
import subprocess
import sys
import time

import pandas as pd

ROOT = pathlib.Path(__file__).resolve().parent.parent
TABLES = ('devices', 'events', 'allocations', 'stacks', 'frames', 'segments', 'blocks', 'steps')


def queries():
    """Number, title and text of each query in the documentation."""
    text = (ROOT / 'docs' / 'sql.md').read_text(encoding='utf-8')
    return [(int(number), title, query.strip().rstrip(';')) for number, title, query in
            re.findall(r'^### (\d+)\. (.*?)\n.*?```sql\n(.*?)```', text, re.DOTALL | re.MULTILINE)]


def summed(frame, keys, name='allocations', size='requested_bytes'):
    return frame.groupby(keys, dropna=False, as_index=False).agg(**{name: (size, 'size'), 'bytes': (size, 'sum')})


def by_pandas(number, t):
    """The rows of query `number`, as pandas has them."""
    a, e = t['allocations'], t['events']
    if number == 1:
        return summed(e, ['device', 'action'], 'events', 'size_bytes')
    if number == 2:
        return t['devices'][['device', 'peak_event', 'peak_allocated_bytes', 'peak_reserved_bytes']]
    if number == 3:
        return summed(a[a.live_at_peak == 1], ['device', 'category'])
    if number == 4:
        held = summed(a[a.live_at_peak == 1].dropna(subset=['stack']), ['device', 'stack']).merge(t['stacks'][['stack', 'top']], on='stack')
        held = held.sort_values(['bytes', 'stack'], ascending=[False, True]).head(10)
        return held[['device', 'stack', 'top', 'allocations', 'bytes']]
    if number == 5:
        return summed(a[(a.born_event <= 20) & (a.died_event.isna() | (a.died_event > 20))], ['device'])
    if number == 6:
        later = a[a.born_event >= 0].sort_values(['requested_bytes', 'device', 'born_event'], ascending=[False, True, True])
        return later.head(10)[['device', 'born_event', 'requested_bytes', 'address']]
    if number == 7:
        lived = a[a.lifetime_us.notna()]
        short, long = lived.lifetime_us < 1000, lived.lifetime_us >= 100000
        return pd.DataFrame([[short.sum(), len(lived) - short.sum() - long.sum(), long.sum(),
                              lived.requested_bytes[short].sum(min_count=1), lived.requested_bytes[long].sum(min_count=1)]])
    if number == 8:
        below = t['frames'][t['frames'].name == 'forward']['stack'].unique()
        return summed(a[(a.born_event >= 0) & a['stack'].isin(below)], ['device'])
    if number == 9:
        steps = t['steps'].assign(growth=t['steps'].end_allocated_bytes - t['steps'].start_allocated_bytes)
        return steps[['device', 'step', 'first_event', 'last_event', 'peak_allocated_bytes', 'growth']]
    if number == 10:
        return summed(a[a.died_event.isna() & a.step.notna()], ['device', 'step'])
    if number == 11:
        made = e[(e.action == 'alloc') & e.time_us.notna()]
        return made.assign(time_ms=made.time_us // 1000).groupby(['device', 'time_ms'], as_index=False).agg(
            requested=('requested_bytes', 'max'), allocated=('allocated_bytes', 'max'))
    if number == 12:
        return summed(t['segments'], ['device', 'stream', 'is_large'], 'segments', 'size_bytes')
    if number == 13:
        used = t['blocks'][t['blocks'].state == 'active_allocated'].groupby(['device', 'segment'], as_index=False).size_bytes.sum()
        both = t['segments'].merge(used.rename(columns={'size_bytes': 'used_bytes'}), on=['device', 'segment'], how='left').fillna({'used_bytes': 0})
        empty = both[both.used_bytes < both.size_bytes // 2]
        return empty[['device', 'address', 'size_bytes', 'used_bytes']]
    if number == 14:
        return e[e.action.isin(['segment_alloc', 'segment_map'])][['device', 'event', 'time_us', 'size_bytes']]
    if number == 15:
        both = e[['device', 'event', 'requested_bytes']].merge(t['devices'][['device', 'peak_requested_bytes']], on='device')
        return both[both.requested_bytes >= 0.9 * both.peak_requested_bytes].groupby('device', as_index=False).event.min()
    raise AssertionError(number)


def plain(value):
    """A value as text: numbers without a fraction, and nothing for NULL."""
    if pd.isna(value):
        return ''
    return str(int(value)) if isinstance(value, float) and value == int(value) else str(value)


def rows_of(frame):
    return sorted(tuple(plain(value) for value in row) for row in frame.itertuples(index=False))


def times_of(command):
    """Processor and wall time, and what was printed."""
    before, begun = os.times(), time.perf_counter()
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    wall, after = time.perf_counter() - begun, os.times()
    return after.children_user + after.children_system - before.children_user - before.children_system, wall, done.stdout


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--tessera', required=True, type=lambda text: str(pathlib.Path(text).resolve()))
    parser.add_argument('--snapshot', required=True, type=pathlib.Path)
    parser.add_argument('--rounds', type=int, default=3)
    parser.add_argument('--library', type=pathlib.Path, help='DuckDB, where the loader does not find it')
    given = parser.parse_args()
    if given.library:
        os.environ['LD_LIBRARY_PATH'] = f'{given.library.resolve().parent}:{os.environ.get("LD_LIBRARY_PATH", "")}'
    work = ROOT / 'build' / 'bench' / 'sql'
    work.mkdir(parents=True, exist_ok=True)
    tables = {}
    for name in TABLES:
        path = work / f'{name}.parquet'
        subprocess.run([given.tessera, 'sql', '-q', given.snapshot, f'SELECT * FROM {name}', '-o', path], check=True)
        tables[name] = pd.read_parquet(path, dtype_backend='numpy_nullable')
    sizes = ', '.join(f'{len(table):,} {name}' for name, table in tables.items() if len(table) > 10_000)
    print(f'{given.snapshot.stat().st_size / 1e9:.2f} GB: {sizes}.\n')
    print('| query | processor time | wall time | rows | pandas |\n|---|---:|---:|---:|---:|')
    wrong = 0
    for number, title, query in queries():
        runs = [times_of([given.tessera, 'sql', '-q', '--output', 'csv', given.snapshot, query]) for _ in range(given.rounds)]
        begun = time.perf_counter()
        expected = by_pandas(number, tables)
        pandas_s = time.perf_counter() - begun
        told = sorted(tuple(row) for row in csv.reader(io.StringIO(runs[0][2])))
        told.remove(tuple(csv.reader(io.StringIO(runs[0][2])).__next__()))
        is_equal = told == rows_of(expected)
        wrong += not is_equal
        print(f'| {number}. {title} | {statistics.median(run[0] for run in runs):.2f} s | {statistics.median(run[1] for run in runs):.2f} s | '
              f'{len(told):,} | {pandas_s:.2f} s{"" if is_equal else ", NOT EQUAL"} |', flush=True)
        if not is_equal:
            print(told[:3], rows_of(expected)[:3], file=sys.stderr)
    if wrong:
        sys.exit(f'bench: {wrong} answers differ')


if __name__ == '__main__':
    main()
