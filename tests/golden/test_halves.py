"""Each half of the library, in a program that is linked without the other (tests/halves), answers its questions as tessera does."""
import json

import pytest
from support import Tessera, cases


@pytest.fixture
def reader(pytestconfig):
    return Tessera(pytestconfig.getoption('reader'))


@pytest.fixture
def engine(pytestconfig):
    return Tessera(pytestconfig.getoption('engine'))


def json_of(half, *words):
    return json.loads(half.output(*words))


def test_questions(tessera, reader, engine):
    """Every question is one half's, and tessera has them all."""
    halves = [half.output().split() for half in (reader, engine)]
    assert 'peak' in halves[0] and 'simulate' in halves[1]
    assert not set(halves[0]) & set(halves[1])
    for name in halves[0] + halves[1]:
        tessera.run('help', name)


@cases('model', ['gpt2', 'llama-3.2-1b'])
def test_engine(tessera, engine, model):
    mine = json_of(engine, 'simulate', f'model={model}', 'batch=2', 'seq=256')
    assert mine == tessera.json('simulate', model, '--batch', 2, '--seq', 256)


@cases('question', ['info', 'peak', 'profile', 'why', 'steps'])
@cases('name', ['train', 'two-devices', 'leaky', 'oom'])
def test_reader(tessera, reader, made, question, name):
    path = made / f'{name}.pickle'
    assert json_of(reader, question, path) == tessera.json(question, '--top', 0, path)


def test_the_other_half_is_not_there(reader, engine, made):
    assert reader.run('simulate', status=2).stderr == "no question 'simulate' in this half\n"
    assert engine.run('peak', made / 'train.pickle', status=2).stderr == "no question 'peak' in this half\n"
