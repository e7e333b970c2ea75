"""Snapshots and answers in pickles: the same afterwards, also in another process."""
import concurrent.futures
import copy
import multiprocessing
import pickle

import pytest

import tessera

QUESTIONS = ['info', 'peak', 'profile', 'stages', 'steps', 'leaks', 'pools', 'whatif', 'why']
PROTOCOLS = range(2, pickle.HIGHEST_PROTOCOL + 1)


@pytest.mark.parametrize('protocol', PROTOCOLS)
def test_a_snapshot(made, protocol):
    for name in ('train', 'two-devices', 'stages', 'noted', 'empty-trace', 'no-times'):
        s = tessera.open(made / f'{name}.pickle')
        again = pickle.loads(pickle.dumps(s, protocol))
        assert again.path == s.path and again.devices == s.devices and repr(again)
        assert again.export() == s.export()
        for question in QUESTIONS:
            mine, theirs = s.ask(question).to_dict(), again.ask(question).to_dict()
            assert mine.pop('inputs')[0]['path'] == theirs.pop('inputs')[0]['path'] and mine == theirs


@pytest.mark.parametrize('protocol', PROTOCOLS)
def test_an_answer(made, protocol):
    s = tessera.open(made / 'sources.pickle')
    answers = [s.ask(question) for question in QUESTIONS]
    answers += [s.check(1), s.diff(made / 'train.pickle'), tessera.open(made / 'two-devices.pickle').peak()]
    for answer in answers:
        again = pickle.loads(pickle.dumps(answer, protocol))
        twice = pickle.loads(pickle.dumps(again, protocol))
        for one in (again, twice):
            assert type(one) is type(answer) and one == answer
            assert (str(one), repr(one), one.json(), one._repr_html_()) == (
                str(answer), repr(answer), answer.json(), answer._repr_html_())
            for options in ({'full_stacks': True}, {'verbose': True}, {'quiet': True, 'verbose': True}):
                assert one.text(**options) == answer.text(**options)
            assert one.text(color=True) == answer.text(color=True) != answer.text()
            assert one.text(width=60) == answer.text()  # complete, whatever the width
        for one in (copy.copy(answer), copy.deepcopy(answer)):
            assert one == answer and one.text(width=60, color=True) == answer.text(width=60, color=True)
    s.close()
    assert again.verdict == answer.verdict


def test_a_check_keeps_its_forms(train):
    check = tessera.open(train).check(1)
    again = pickle.loads(pickle.dumps(check))
    assert not again and again.lock() == check.lock()
    for form in ('junit', 'sarif', 'markdown'):
        assert again.form(form) == check.form(form)
    with pytest.raises(TypeError):
        again.form('weather')
    with pytest.raises(tessera.UnsupportedError):
        again.form('sarif', '/home')


def test_parts_of_an_answer(train):
    peak = tessera.open(train).peak()
    for part in (peak.stacks[0], peak.peak, peak.devices[0], peak.stacks[0].frames):
        assert pickle.loads(pickle.dumps(part)) == part and copy.deepcopy(part) == part
    assert type(pickle.loads(pickle.dumps(peak.peak))) is type(peak.peak)


def test_a_simulation():
    run = tessera.simulate('gpt2', batch=1, seq=64, steps=2)
    again = pickle.loads(pickle.dumps(run))
    assert again == run and again.snapshot.peak().peak == run.snapshot.peak().peak


def test_what_the_sidecar_says_stays(made):
    s = tessera.open(made / 'told.pickle')
    names = [name.name for stack in s.peak().stacks for name in stack.names]
    again = pickle.loads(pickle.dumps(s))
    assert names and [name.name for stack in again.peak().stacks for name in stack.names] == names
    s = tessera.open(made / 'oom-told.pickle')
    assert s.why().outside_bytes and pickle.loads(pickle.dumps(s)).why().outside_bytes == s.why().outside_bytes


def test_closed_and_tables(train):
    s = tessera.open(train)
    with pytest.raises(TypeError, match='to_pandas'):
        pickle.dumps(s.events)
    with pytest.raises(TypeError):
        pickle.dumps(s.events.size_bytes)
    s.close()
    with pytest.raises(ValueError, match='closed'):
        pickle.dumps(s)


def _peak_of(snapshot):
    return snapshot.peak()


def test_another_process(train):
    s = tessera.open(train)
    context = multiprocessing.get_context('spawn')
    with concurrent.futures.ProcessPoolExecutor(1, mp_context=context) as pool:
        answer = pool.submit(_peak_of, s).result()
    assert answer.peak == s.peak().peak and str(answer) == str(s.peak())


def test_a_truncated_snapshot_stays_one(train):
    s = tessera.open(train.read_bytes()[:-200])
    assert [warning.code for warning in s.warnings] == ['truncated'] and not s.check('1TiB')
    again = pickle.loads(pickle.dumps(s))
    for one in (again, pickle.loads(pickle.dumps(again)), s.trim(events=(0, 5)), tessera.open(s.export(format='json'))):
        assert 'incomplete' in [warning.code for warning in one.warnings]
        assert not one.check('1TiB') and one.check('1TiB').doubt == 'truncated'
