"""The answers of `why` and `check` add up.

On snapshots made here (tests/cli/fixtures.py) and, where ../shared has them, on real ones: parts sum to
wholes and agree with `peak`; a lock matches the run it was written from, from wherever that is read; and
the forms for other programs are what those read: JUnit well-formed with right counts, SARIF with
everything that its 2.1.0 schema requires, Markdown with tables of equal rows.
"""
import gzip
import json
import re
import xml.etree.ElementTree as ElementTree

import pytest
from runs import CALL, MAIN, Run, at
from support import cases, real

MADE = ('train', 'leaky', 'two-devices', 'oom', 'oom-pieces', 'oom-elsewhere', 'oom-pending',
        'oom-rounded')


@pytest.fixture
def path(made, given):
    """A snapshot, made or real."""
    return made / f'{given}.pickle' if isinstance(given, str) else given


each = cases('given', [*MADE, *real()])


def ends_early(path):
    """The made ones that run out of memory."""
    return path.name.startswith('oom')


@each
def test_why(tessera, path):
    for device in tessera.json('why', '--top', 0, path)['devices']:
        totals = device['moment']['totals']
        for field, total in (('bytes', 'requested_bytes'), ('block_bytes', 'active_bytes')):
            lists = [sum(part[field] for part in device[key]) for key in ('categories', 'causes')]
            assert lists == [totals[total]] * 2, f'what is in use adds up: {field}'
        free = sum(room['bytes'] for room in device['free'])
        parts = device['fragmentation']
        assert free == parts['free_block_bytes'] + parts['free_segment_bytes'], 'so does what is free'
        if device['reason'] == 'not_recorded':
            assert totals['reserved_bytes'] == device['peak_reserved_bytes'], 'where most is reserved'
            assert device['request'] is None and 'trials' not in device
        else:
            assert device['moment']['event'] in [oom['event'] for oom in device['ooms']]
            if not device['beyond_settings']:
                assert any(trial['recorded'] for trial in device['trials'])
            for trial in device['trials']:
                assert not (trial['fits'] and device['beyond_settings']), 'what cannot be is not'


@each
def test_figures(tessera, path):
    peaks = {device['device']: device
             for device in tessera.json('peak', path)['devices']}
    answer = tessera.json('check', '--max', 'activation=100TiB', '--max', '1000TiB', path, status=3 if ends_early(path) else 0)
    assert (answer['doubt'] == 'out-of-memory') == ends_early(path)
    assert answer['passed'] != ends_early(path) and answer['failed'] == 0
    for device in answer['devices']:
        peak = peaks[device['device']]
        assert device['peak']['totals']['allocated_bytes'] == peak['peak']['allocated_bytes']
        assert device['reserved']['bytes'] == peak['maxima']['reserved_bytes']
        at_peak = sum(part['bytes'] for part in device['categories'])
        assert at_peak == device['peak']['totals']['requested_bytes'], 'categories add up at the peak'


@each
def test_lock(tessera, work, path):
    lock, packed = work / 'memory.lock', work / 'other name.gz'
    lock.unlink(missing_ok=True)
    if ends_early(path):
        tessera.output('check', '--lock', lock, '--update', path, status=3)
        assert not lock.exists(), 'what a run needed that ran out of memory is not known'
        return
    tessera.output('check', '--lock', lock, '--update', path)
    text = lock.read_text(encoding='utf-8')
    assert len(text) < 20000 and '0x' not in text and str(path.parent) not in text
    tessera.output('check', '--lock', lock, '--tolerance', 0, path)
    tessera.output('check', '--lock', lock, '--update', path)
    assert lock.read_text(encoding='utf-8') == text, 'a lock is written the same again'
    packed.write_bytes(gzip.compress(path.read_bytes(), 1))
    tessera.output('check', '--lock', lock, '--tolerance', 0, packed)
    smaller = re.sub(r'^peak \d+', 'peak 1', text, flags=re.M)
    lock.write_text(smaller, encoding='utf-8')
    tessera.output('check', '--lock', lock, path, status=1)


def grown(layers):
    """Training of a model whose file has several methods `forward`: the head's one tensor is larger than each of the blocks', of which
    there are more."""
    run = Run(1 << 20)
    for _ in range(3):
        made = [run.take([*MAIN, at(40), CALL, at(60, 'forward', '/work/model.py')], 8 << 20)]
        made += [run.take([*MAIN, at(40), CALL, at(50, 'forward', '/work/model.py'), CALL, at(30, 'forward', '/work/model.py')], 2 << 20)
                 for _ in range(layers)]
        run.backward([*MAIN, at(41)], made)
        run.optimize([*MAIN, at(42)])
    return run


def test_line(tessera, work):
    """A function is shown by the line that holds most of it, in every format: one larger allocation elsewhere has not grown."""
    lock, path = work / 'memory.lock', work / 'run.pickle'
    lock.unlink(missing_ok=True)
    grown(8).write(path)
    tessera.output('check', '--lock', lock, '--update', path)
    grown(12).write(path)
    answer = tessera.json('check', '--lock', lock, path, status=1)
    cause = next(cause for result in answer['results'] if result['category'] == 'activation' for cause in result['causes'])
    assert cause['name'] == 'model.py:forward' and cause['peak_bytes'] == 32 << 20
    assert cause['frame']['line'] == 30 and cause['frames'][0]['line'] == 30
    for how in ('text', 'markdown', 'junit'):
        text = tessera.output('check', '--lock', lock, '--format', how, path, status=1)
        assert 'model.py:30 forward' in text and 'model.py:60' not in text, how
    run, = json.loads(tessera.output('check', '--lock', lock, '--format', 'sarif', path, status=1))['runs']
    lines = {place['physicalLocation']['region']['startLine'] for result in run['results'] for place in result['locations']}
    assert 30 in lines and 60 not in lines


def sarif_location(location, path):
    place = location['physicalLocation']
    assert re.fullmatch(r"[A-Za-z0-9\-._~/!$&'()*+,;=@%:]+", place['artifactLocation']['uri'])
    assert place['region']['startLine'] >= 1
    is_explained = 'message' in location  # without a line that explains it, it is at the snapshot
    assert location['message']['text'] if is_explained else (place['artifactLocation']['uri'].endswith(path.name), place['region']['startLine']) == (True, 1)


@each
def test_sarif(tessera, path):
    budgets = ('--max', '1B', '--max', 'parameter=1B', '--max', 'workspace=1B')
    log = json.loads(tessera.output('check', '--format', 'sarif', *budgets, path, status=1))
    answer = tessera.json('check', *budgets, path, status=1)
    warned = [warning['code'] for warning in answer['warnings']]
    assert log['version'] == '2.1.0' and log['$schema'].endswith('sarif-2.1.0.json')
    for one in log['runs']:
        driver = one['tool']['driver']
        assert driver['name'] == 'tessera'
        ids = [rule['id'] for rule in driver['rules']]
        assert len(set(ids)) == len(ids)
        assert one['results'], 'a failure is a result'
        assert all(notice['message']['text'] and notice['descriptor']['id'] in warned
                   for call in one['invocations'] if call['executionSuccessful']
                   for notice in call['toolExecutionNotifications'])
        for result in one['results']:
            assert ids[result['ruleIndex']] == result['ruleId'] and result['level'] == 'error'
            assert result['message']['text']
            assert all(isinstance(text, str) for text in result['partialFingerprints'].values())
            assert len(result['locations']) == 1, 'GitHub refuses a result without one'
            for location in result['locations'] + result.get('relatedLocations', []):
                sarif_location(location, path)


@each
def test_junit(tessera, path):
    root = ElementTree.fromstring(tessera.output('check', '--format', 'junit', '--max', '1B', '--max',
                                      'activation=100TiB', path, status=1))
    suite, = root
    cases = suite.findall('testcase')
    failures = [case for case in cases if case.find('failure') is not None]
    assert root.tag == 'testsuites' and suite.tag == 'testsuite'
    for node in (root, suite):
        assert (int(node.get('tests')), int(node.get('failures'))) == (len(cases), len(failures))
    assert failures and len({case.get('name') for case in cases}) == len(cases)
    assert all(case.find('failure').get('message') for case in failures)


@each
def test_markdown(tessera, path):
    text = tessera.output('check', '--format', 'markdown', '--max', '1B', path, status=1)
    assert text.startswith('### GPU memory check failed')
    for table in re.findall(r'(?:^\|.*\n)+', text, flags=re.M):
        rows = [len(re.findall(r'(?<!\\)\|', row)) for row in table.splitlines()]
        assert len(set(rows)) == 1 and len(rows) > 2, table
