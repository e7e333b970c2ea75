"""The notebook in examples/ does what a reader expects of it, cell by cell."""
import json
import os
import re

import pytest

from conftest import HANG_S, ROOT

NOTEBOOK = ROOT / 'examples' / 'notebook.ipynb'


def test_it_is_as_committed():
    """Without output, which would be of another version."""
    cells = json.loads(NOTEBOOK.read_text(encoding='utf-8'))['cells']
    assert len(cells) == 13
    for cell in cells:
        assert cell['cell_type'] == 'markdown' or (cell['outputs'], cell['execution_count']) == ([], None)


@pytest.fixture(scope='module')
def outputs(tmp_path_factory):
    """What each cell shows, by kind; its errors fail the tests."""
    for package in ('pandas', 'matplotlib', 'ipykernel'):
        pytest.importorskip(package)
    nbclient, nbformat = pytest.importorskip('nbclient'), pytest.importorskip('nbformat')
    folder = tmp_path_factory.mktemp('notebook')
    environment = {**os.environ, 'MPLCONFIGDIR': str(folder), 'IPYTHONDIR': str(folder),
                   'JUPYTER_RUNTIME_DIR': str(folder)}
    notebook = nbformat.read(NOTEBOOK, 4)
    client = nbclient.NotebookClient(notebook, timeout=HANG_S, startup_timeout=HANG_S, kernel_name='python3',
                                     resources={'metadata': {'path': str(folder)}})
    client.execute(env=environment)
    shown = []
    for cell in notebook.cells:
        data = [output.data for output in cell.get('outputs', []) if 'data' in output]
        text = [output.text for output in cell.get('outputs', []) if 'text' in output]
        kinds = {kind: ''.join(one.get(kind, '') for one in data)
                 for kind in ('text/html', 'text/plain', 'image/png')}
        shown.append({'source': cell.source, **kinds, 'text': ''.join(text)})
    return shown


def find(outputs, words):
    return next(one for one in outputs if words in one['source'])


def test_every_cell_shows_something(outputs):
    for one in outputs[1:]:
        assert one['text/html'] or one['image/png'] or one['text'], one['source']
        assert 'Warning' not in one['text'] and 'Traceback' not in one['text']


def test_tables_and_verdicts(outputs):
    for words in ('s.peak()', 's.profile(', 's.diff(', 's.check('):
        one = find(outputs, words)
        verdict = one['text/plain'].splitlines()[0]
        assert '<table' in one['text/html'] and verdict.split(';')[0] in one['text/html']
    assert 'Device 0: peak' in find(outputs, 'print(s.peak')['text']
    assert 'Memory check failed: 2 of 2' in find(outputs, 's.check(')['text/plain']


def test_the_page_is_shown_inline(outputs):
    page = find(outputs, 's.view()')
    assert page['text/plain'].startswith('<tessera page of ')
    assert '<iframe ' in page['text/html'] and len(page['text/html']) < 500_000


def test_pandas_gives_the_library_s_numbers(outputs):
    def rows(html):
        return [re.sub(r'<[^>]+>|\s+', ' ', row).split() for row in re.findall(r'<tr.*?</tr>', html, re.DOTALL)]
    ours = rows(find(outputs, 's.profile("line"')['text/html'])
    theirs = rows(find(outputs, '.merge(')['text/html'])
    # "2.25 GiB 48 ..." and "... 2415919104 48", for the first line.
    assert ours[1][2] == theirs[2][-1] and ' '.join(ours[1][5:]) == ' '.join(theirs[2][:-2])


def test_charts(outputs):
    assert len(find(outputs, '.plot(')['image/png']) > 10000
    for words in ('over_time=True', 'tessera.simulate("gpt2", batch=8, seq=512, steps=2)\ns = '):
        html = find(outputs, words)['text/html']
        bands = re.findall(r'<polygon fill="(#\w+)" points="([^"]+)"', html)
        assert len(bands) >= 5 and len({color for color, _ in bands}) == len(bands)
        assert 'event 0</text>' in html and 'GiB</text>' in html
        assert all(f'color:{color}' in html for color, _ in bands)
