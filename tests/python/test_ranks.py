"""tessera.ranks(): the answer about many ranks, as the command gives it, in a notebook and as a page."""
import io
import pickle

import pytest
from conftest import module_of_tests

import tessera


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
    fleet = module_of_tests('golden/fleets').Fleet(7, 'leak')
    fleet.sizes, fleet.count, fleet.rank = {'pp': 1, 'dp': 6, 'ep': 1, 'tp': 1}, 6, 4
    return fleet.write(tmp_path_factory.mktemp('fleet'))


def test_the_fault_is_found(folder):
    answer = tessera.ranks(folder)
    assert [(outlier.rank, outlier.cause_code) for outlier in answer.outliers] == [(4, 'leak')]
    assert answer.verdict == [str(answer).splitlines()[0]]
    with pytest.raises(AttributeError):
        answer.devices


def test_a_notebook_shows_who_stands_apart(folder):
    html = tessera.ranks(folder)._repr_html_()
    assert '<table' in html and 'a leak: ' in html and 'Rank 4 ' in html
    even = tessera.ranks(*sorted(folder.rglob('*rank[0-3]*')), pattern='rank(?<rank>[0-9]+)')
    assert not even.outliers and 'median' in even._repr_html_()


def test_a_page(folder, tmp_path):
    answer = tessera.ranks(folder)
    page = answer.view()
    assert page.startswith('<!doctype html>') and 'tessera-ranks-page/1' in page
    assert answer.view(tmp_path / 'ranks.html') is None
    assert (tmp_path / 'ranks.html').read_text() == page
    kept = io.BytesIO()
    answer.view(kept)
    assert kept.getvalue().decode() == page
    with pytest.raises(tessera.UnsupportedError, match='ask again'):
        pickle.loads(pickle.dumps(answer)).view()
    with pytest.raises(OSError):
        answer.view(tmp_path / 'absent' / 'ranks.html')
