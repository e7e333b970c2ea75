"""Stages and source files on real snapshots.

What `stages` says at a boundary is what `at --time` says of it, and the peaks inside are those
that a look at every event finds. Mosaic's per-file analysis prints what Mosaic prints; rows that
tie may come in any order. The snapshots and Mosaic's output are in ../shared; where that is
absent the tests skip."""
from support import SHARED, SNAPSHOTS, cases, needs_shared

pytestmark = needs_shared
PER_FILE = SHARED / 'expected' / 'mosaic' / '_per_file'
ANNOTATED = ['train-ctx200-autocast-annotated-torch2.6', 'train-ctx100-annotated-torch2.6',
             'forward-bf16-ctx128-annotated', 'train-ctx1024-torch2.11', 'train-fp32-ctx128']
SOURCE = ['--file-name', 'model.py', '--file-content', PER_FILE / 'model.py']
TOTALS = ('requested_bytes', 'allocated_bytes', 'active_bytes', 'reserved_bytes')


def ask(tessera, *words):
    return tessera.device(*words, cwd=SNAPSHOTS)


@cases('name', ANNOTATED)
def test_stages(tessera, name):
    file = f'{name}.pickle'
    device = ask(tessera, 'stages', '--top', '0', file)
    assert device['stages']
    for stage in device['stages']:
        for bound in (stage['start'], stage['end']):
            if bound['event'] >= 0:
                moment = ask(tessera, 'at', '--top', '1', '--time', bound['time_us'], file)
                assert all(bound[key] == moment[key] for key in ('event', *TOTALS)), stage['name']
        moment = ask(tessera, 'at', '--top', '1', '--event', stage['peak']['event'], file)
        assert all(stage['peak'][key] == moment[key] for key in ('time_us', *TOTALS)), f'{stage["name"]}: the peak is not what at says'
        low = max(stage[end]['allocated_bytes'] for end in ('start', 'end'))
        assert low <= stage['peak']['allocated_bytes'] <= device['peak']['allocated_bytes'], stage['name']
        held = stage['start']['event'] < device['peak']['event'] <= stage['end']['event']
        assert held == (stage['id'] in [inside['id'] for inside in device['peak_stages']]), f'{stage["name"]}: does it hold the peak?'


@cases('stem, words', [('analyze-train-ctx1024', ['analyze', '--snapshot', 'train-ctx1024-torch2.11.pickle']),
                       ('compare-ctx1024-to-infer512', ['compare', '--base-snapshot', 'train-ctx1024-torch2.11.pickle',
                                                        '--diff-snapshot', 'infer-ctx512-torch2.11.pickle'])])
def test_per_file(tessera, stem, words):
    """What Mosaic prints; the rows of a table may be in another order."""
    done = tessera.run('mosaic_per_file_memory_snapshot_analysis', *words, *SOURCE, cwd=SNAPSHOTS)
    got, want = done.stdout.split('\n'), (PER_FILE / f'{stem}.out').read_text().split('\n')
    assert sorted(got) == sorted(want)
    assert [line[:1] for line in got] == [line[:1] for line in want], 'tables and titles are in another order'
    assert done.stderr == (PER_FILE / f'{stem}.err').read_text()


def test_source_of_another_version(tessera):
    """The source that stands in for model.py is not what ran, and its lines add up."""
    device = ask(tessera, 'source', '--top', '0', 'train-ctx1024-torch2.11.pickle', PER_FILE / 'model.py')
    assert device['lines_elsewhere'] == device['mentioned_lines'] and not device['lines_beyond'], 'it fits'
    assert sum(line['self_bytes'] for line in device['lines']) == device['bytes']
    assert max(line['inclusive_bytes'] for line in device['lines']) <= device['bytes']
    assert device['bytes'] <= device['peak']['requested_bytes']
