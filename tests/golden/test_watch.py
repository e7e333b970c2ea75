"""`tessera ranks` with budgets, and `tessera check` of a fleet, in every format; and what Prometheus reads of it.

The figures are compared with those that `ranks` has for each rank, and with `check` of the rank's own file."""
import json
import math
import pathlib
import pickle
import re
import shutil
import subprocess
import xml.etree.ElementTree as ET

import pytest
from fleets import Fleet
from growths import Job
from support import cases, expect

MIB = 1 << 20


@pytest.fixture(scope='module')
def fleet(work):
    """Six ranks, one of which leaks."""
    path = work / 'fleet'
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir(parents=True)
    made = Fleet(7, 'leak')
    made.sizes, made.count, made.rank, made.is_dead = {'pp': 1, 'dp': 6, 'ep': 1, 'tp': 1}, 6, 4, False
    for rank in range(6):
        (path / f'rank{rank}.pickle').write_bytes(pickle.dumps(made.snapshot(rank)[0], protocol=4))
    return path


def asked(tessera, *words, status=(0, 1, 3)):
    return json.loads(tessera.output(*words, '--json', '-q', status=status))


def peaks(tessera, fleet):
    return {row['rank']: row['peak_allocated_bytes'] for row in asked(tessera, 'ranks', fleet)['ranks']}


@cases('above', (0, 1, 3, 6), str)
@cases('command', ('ranks', 'check'), str)
def test_the_worst_rank(tessera, fleet, command, above):
    of_ranks = peaks(tessera, fleet)
    ordered = sorted(of_ranks.values(), reverse=True)
    limit = ordered[above] if above < 6 else ordered[5] - 1
    answer = asked(tessera, command, fleet, '--max', f'{limit}B')
    check, = answer['checks']
    failed = sorted(rank for rank, peak in of_ranks.items() if peak > limit)
    expect('who fails', check['failed_ranks'], failed)
    expect('the worst', (check['rank'], check['bytes'], check['limit_bytes']), (4, ordered[0], limit))
    expect('passed', (check['passed'], answer['passed']), (not failed, not failed))
    tessera.run(command, fleet, '--max', f'{limit}B', '-q', status=1 if failed else 0)


def test_the_same_as_each_file(tessera, fleet):
    """A category and reserved memory are what `check` measures of the worst rank's file."""
    for words, rule in ((('--max', 'activation=1B'), 'max-category'), (('--max-reserved', '1B'), 'max-reserved'), (('--max', '1B'), 'max-peak')):
        single = []
        for rank in range(6):
            result = next(row for row in asked(tessera, 'check', fleet / f'rank{rank}.pickle', *words)['results'] if row['rule'] == rule)
            single.append(result['bytes'])
        check, = asked(tessera, 'check', fleet, *words)['checks']
        expect(rule, (check['rule'], check['bytes']), (rule, max(single)))
        expect('the rank', single[check['rank']], max(single))


def test_spread(tessera, fleet):
    of_ranks = peaks(tessera, fleet)
    spread = max(of_ranks.values()) - min(of_ranks.values())
    for limit, passed in ((spread, True), (spread - 1, False)):
        check, = asked(tessera, 'ranks', fleet, '--max-spread', f'{limit}B')['checks']
        expect('spread', (check['bytes'], check['passed'], of_ranks[check['rank']] - of_ranks[check['lowest_rank']]), (spread, passed, spread))
    mesh = asked(tessera, 'check', fleet, '--max-spread', '1TiB', '--mesh', 'pp=3,dp=2')
    by_stage = [abs(of_ranks[first] - of_ranks[first + 1]) for first in (0, 2, 4)]
    expect('by stage', mesh['checks'][0]['bytes'], max(by_stage))


def test_several_budgets(tessera, fleet, work):
    words = ('--max', '1TiB', '--max', 'gradient=1B', '--max-reserved', '1TiB', '--max-spread', '1TiB')
    answer = asked(tessera, 'check', fleet, *words)
    expect('rules', [(row['rule'], row['passed']) for row in answer['checks']],
           [('max-peak', True), ('max-category', False), ('max-reserved', True), ('max-spread', True)])
    expect('a line', answer['checks'][1]['frames'][-2]['file'], '/job/train.py')
    text = tessera.output('check', fleet, *words, '-q', status=1)
    assert text.startswith('Memory check failed: 1 of 4 checks.\n'), text
    sketches = work / 'fleet.sketch'
    tessera.output('ranks', fleet, '--sketches', sketches, '-q')
    expect('from sketches', asked(tessera, 'check', sketches, *words)['checks'], answer['checks'])
    files = sorted(fleet.iterdir())
    expect('from files', asked(tessera, 'check', *files, *words)['checks'], answer['checks'])
    listed = work / 'files.txt'
    listed.write_text('\n'.join(map(str, files)))
    expect('from a list', asked(tessera, 'check', f'@{listed}', *words)['checks'], answer['checks'])
    expect('from a pattern', asked(tessera, 'check', fleet / 'rank*.pickle', *words)['checks'], answer['checks'])


@pytest.fixture
def copy(fleet, work):
    path = work / 'copy'
    shutil.rmtree(path, ignore_errors=True)
    shutil.copytree(fleet, path)
    return path


DOUBTS = {'broken': lambda path: (path / 'rank3.pickle').write_bytes(b'nothing'),
          'missing': lambda path: (path / 'rank3.pickle').unlink(),
          'partial': lambda path: (path / 'rank3.pickle').write_bytes((path / 'rank3.pickle').read_bytes()[:20000]),
          'out-of-memory': lambda path: (path / 'rank3.pickle').rename(path / 'rank3_oom.pickle')}


@cases('doubt', DOUBTS, str)
def test_doubts(tessera, copy, work, doubt):
    """What could hold more does not pass: status 3, and the report is written all the same."""
    DOUBTS[doubt](copy)
    out = work / 'doubt.json'
    tessera.run('check', copy, '--max', '1TiB', '-o', out, '-q', status=3)
    answer = json.loads(out.read_text())
    expect('doubt', (answer['passed'], answer['doubt'], answer['checks'][0]['passed']), (False, doubt, True))
    tessera.run('check', copy, '--max', '1B', '-q', status=1)  # a failure counts more
    tessera.run('check', copy, '--max', '1TiB', '--allow-missing', '-q', status=0 if doubt in ('broken', 'missing') else 3)
    junit = ET.fromstring(tessera.output('check', copy, '--max', '1TiB', '--format', 'junit', '-q', status=3))
    expect('errors', (junit.get('errors'), junit.find('.//error').get('type')), ('1', doubt))
    assert 'inconclusive' in tessera.output('check', copy, '--max', '1TiB', '--format', 'markdown', '-q', status=3)


def test_a_part_is_missing(tessera, fleet, work):
    folder = work / 'parts'
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for part in (1, 3):
        tessera.output('ranks', fleet, '--part', f'{part}/3', '--sketches', folder / '%p.sketch', '-q')
    answer = asked(tessera, 'check', folder, '--max', '1TiB', status=3)
    expect('doubt', (answer['doubt'], answer['missing_parts']), ('missing', [2]))


@cases('words, message', ((('--max', '70'), 'needs a unit'), (('--max', 'weights=1GiB'), 'no category'), ((), 'nothing to check'),
                          (('--max-spread', 'wide'), 'max-spread'), (('--max', '1GiB', '--format', 'sarif'), 'sarif'),
                          (('--max', '1GiB', '--json', '--format', 'junit'), 'mutually exclusive'), (('--allow-missing',), 'nothing to check'),
                          (('--max', '1GiB', '--part', '1/2', '--sketches', 'absent/a.sketch'), 'sketches of all parts'),
                          (('--max', '1GiB', '-o', 'a.sarif'), '.prom')), str)
def test_wrong_words(tessera, fleet, words, message):
    assert message in tessera.run('check', fleet, *words, status=2).stderr


def test_junit(tessera, fleet):
    suites = ET.fromstring(tessera.output('ranks', fleet, '--max', '1MiB', '--max-spread', '1TiB', '--format', 'junit', status=1))
    expect('counts', [suites.get(key) for key in ('tests', 'failures', 'errors')], ['2', '1', '0'])
    cases_of = suites.findall('.//testcase')
    expect('names', [case.get('name') for case in cases_of], ['peak within budget', 'spread within budget'])
    expect('who', re.findall(r'\d+', cases_of[0].find('failure').text), list('012345'))


# ---- Prometheus ----

NAME = r'[a-zA-Z_:][a-zA-Z0-9_:]*'
LABEL = rf'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\\\|\\"|\\n)*)"'
SAMPLE = re.compile(rf'({NAME})(?:\{{({LABEL}(?:,{LABEL})*)\}})? (\S+)')


def exposed(text):
    """The samples of a page by name and labels, read strictly: help, type and samples of a metric together, each sample once."""
    assert text.endswith('\n')
    samples, seen, current = {}, set(), None
    for line in text[:-1].split('\n'):
        words = line.split(' ', 3)
        if line.startswith('# HELP '):
            current = words[2]
            assert current not in seen and words[3], line
            seen.add(current)
        elif line.startswith('# TYPE '):
            assert words[2:] == [current, 'gauge'], line
        else:
            match = SAMPLE.fullmatch(line)
            assert match and match[1] == current, line
            labels = tuple((name, re.sub(r'\\(.)', lambda escaped: {'n': '\n'}.get(escaped[1], escaped[1]), value))
                           for name, value in re.findall(LABEL, match[2] or ''))
            assert (match[1], labels) not in samples, line
            samples[match[1], labels] = float(match[match.lastindex])
            assert math.isfinite(samples[match[1], labels])
    return samples


def test_prometheus(tessera, fleet, work):
    words = ('ranks', fleet, '--max', '1TiB', '--max', '1TiB', '--max-spread', '1B', '--format', 'prometheus')
    text = tessera.output(*words, '-q', status=1)
    samples = exposed(text)
    answer = asked(tessera, 'ranks', fleet)
    for row in answer['ranks']:
        where = (('rank', str(row['rank'])), ('device', str(row['device'])))
        for metric, key in (('peak_allocated_bytes', 'peak_allocated_bytes'), ('peak_reserved_bytes', 'peak_reserved_bytes'),
                            ('allocated_bytes', 'end_allocated_bytes'), ('reserved_bytes', 'end_reserved_bytes'),
                            ('out_of_memory', 'out_of_memory')):
            expect(metric, samples[f'tessera_rank_{metric}', where], float(row[key]))
        assert ('tessera_rank_info', (*where, ('group', row['group']), ('snapshot', row['path']))) in samples
    outlier, = answer['outliers']
    expect('outlier', samples['tessera_rank_excess_bytes', (('rank', '4'), ('device', '4'), ('cause', 'leak'))], outlier['excess_bytes'])
    expect('checks', {labels: value for (name, labels), value in samples.items() if name == 'tessera_check_passed'},
           {(('check', 'peak'), ('budget', str(1 << 40))): 1, (('check', 'spread'), ('budget', '1')): 0})
    out = work / 'ranks.prom'
    tessera.run(*words[:-2], '-o', out, '-q', status=1)  # by the name
    expect('the same', out.read_text(), text)


def test_promtool_reads_it(tessera, fleet):
    promtool = shutil.which('promtool')
    if not promtool:
        pytest.skip('promtool is not installed')
    text = tessera.output('ranks', fleet, '--max', '1TiB', '--format', 'prometheus', '-q')
    done = subprocess.run([promtool, 'check', 'metrics'], input=text, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 3), done.stderr  # 3: only style


def test_its_own_parser_reads_it(tessera, fleet):
    parser = pytest.importorskip('prometheus_client.parser')
    text = tessera.output('ranks', fleet, '--max', '1TiB', '--format', 'prometheus', '-q')
    read = {(sample.name, tuple(sorted(sample.labels.items()))): sample.value
            for family in parser.text_string_to_metric_families(text) for sample in family.samples}
    expect('samples', read, {(name, tuple(sorted(labels))): value for (name, labels), value in exposed(text).items()})


def test_prometheus_of_growth(tessera, work):
    folder = work / 'growing'
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    job = Job(11, ranks=3, dumps=12)
    job.write(folder)
    samples = exposed(tessera.output('ranks', folder, '--format', 'prometheus', '-q'))
    for row in asked(tessera, 'ranks', folder)['growth']:
        where = (('rank', str(row['rank'])), ('device', '0'))
        assert abs(samples['tessera_rank_growth_bytes_per_hour', where] - row['bytes_per_hour']) <= 0.5
        expect('full', samples['tessera_rank_full_time_seconds', where], row['full_time_us'] // 1000000)
    taken = {labels[0][1]: value for (name, labels), value in samples.items() if name == 'tessera_rank_snapshot_time_seconds'}
    expect('taken', taken, {str(rank): job.times[rank, 11] // 1000000 for rank in range(3)})


def test_names_that_are_instructions(tessera, fleet, work):
    """A folder's name stays inside its label, its attribute and its cell."""
    for name in ('a"} 1', 'back\\slash', 'line\nend', '<&">', '| **x** |', 'x{y="1"}', 'caf\u00e9 \u202e'):
        folder = work / name
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(fleet, folder)
        text = tessera.output('ranks', folder, '--format', 'prometheus', '-q')
        paths = [dict(labels)['snapshot'] for metric, labels in exposed(text) if metric == 'tessera_rank_info']
        expect('paths', [pathlib.Path(path).name for path in paths], [f'rank{rank}.pickle' for rank in range(6)])
        if name.isprintable():
            expect('whole', paths[0], str(folder / 'rank0.pickle'))
        suites = ET.fromstring(tessera.output('check', folder, '--max', '1TiB', '--format', 'junit', '-q'))
        assert len(suites) == 1
        shutil.rmtree(folder)


def test_nothing_can_be_read(tessera, work):
    folder = work / 'nothing'
    folder.mkdir(exist_ok=True)
    (folder / 'rank0.pickle').write_bytes(b'nothing')
    expect('counts', exposed(tessera.output('ranks', folder, '--format', 'prometheus', '-q', status=3)),
           {('tessera_ranks', ()): 0, ('tessera_ranks_missing', ()): 0, ('tessera_files_broken', ()): 1})
    for form in ('junit', 'markdown', 'json'):
        tessera.output('check', folder, '--max', '1GiB', '--format', form, '-q', status=3)
