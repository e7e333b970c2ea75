"""The page inline in a notebook: its HTML, its size, and how it behaves in a browser."""
import copy
import html.parser
import io
import json
import pickle
import shutil
import subprocess

import pytest

import tessera
from conftest import HANG_S, ROOT, posix_only
from tessera import _page

# A frame inherits the policy of what is around it, which is strict in editors.
NOTEBOOK = ('<!doctype html><meta charset="utf-8"><title>notebook</title><link rel="icon" href="data:,">'
            '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; script-src \'unsafe-inline\'; '
            'style-src \'unsafe-inline\'; img-src https: data:; child-src https: data:">'
            '<body style="width:940px">{}<div style="height:3000px">below</div>')
HOSTILE = '"></iframe><script>window.pwned=1</script>&quot;&amp; \u202e\' <img src=x onerror="window.pwned=2">'


class Elements(html.parser.HTMLParser):
    """The elements of a text, with their attributes."""

    def __init__(self, text):
        super().__init__()
        self.found = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))

    def one(self, tag):
        (attributes,) = [attributes for name, attributes in self.found if name == tag]
        return attributes


def hostile():
    frames = [{'name': HOSTILE, 'filename': HOSTILE, 'line': 1}]
    return {'segments': [], 'device_traces': [
        [{'action': 'alloc', 'addr': row << 20, 'size': 1 << 20, 'stream': 0, 'time_us': row, 'frames': frames}
         for row in range(1, 40)]]}


def many(count):
    """Blocks of many sizes, which come and go."""
    state, events, held = 1, [], {}
    for row in range(count):
        state = state * 6364136223846793005 + 1442695040888963407 & 2**64 - 1
        address = row % 500 + 1 << 24
        common = {'addr': address, 'stream': 0, 'time_us': row}
        if address in held:
            events.append({**common, 'action': 'free_completed', 'size': held[address], 'frames': []})
        held[address] = 512 + (state >> 44)
        frames = [{'name': f'f{state >> 58}', 'filename': 'model.py', 'line': 1}]
        events.append({**common, 'action': 'alloc', 'size': held[address], 'frames': frames})
    return {'segments': [], 'device_traces': [events]}


def test_a_page_is_its_text_and_is_shown_in_a_frame(train):
    s = tessera.open(train)
    page = s.view()
    assert isinstance(page, tessera.Page) and page.startswith('<!doctype html>') and page.endswith('</html>\n')
    stream = io.StringIO()
    s.view(stream)
    assert stream.getvalue() == page == str(page)
    shown = Elements(page._repr_html_())
    frame = shown.one('iframe')
    assert frame['srcdoc'] == page
    assert 'allow-scripts' in frame['sandbox'] and 'allow-same-origin' not in frame['sandbox']
    assert [tag for tag, _ in shown.found] == ['div', 'p', 'iframe']
    assert len(page._repr_html_()) < 1.2 * len(page)


@posix_only
def test_hostile_names_stay_in_the_frame(tmp_path):
    path = tmp_path / f'{HOSTILE}.pickle'.replace('/', '')
    path.write_bytes(pickle.dumps(hostile()))
    page = tessera.open(path).view()
    text = page._repr_html_()
    assert Elements(text).one('iframe')['srcdoc'] == page
    assert [tag for tag, _ in Elements(text).found] == ['div', 'p', 'iframe']
    assert '<script' not in text.partition('srcdoc="')[0] and text.endswith('"></iframe></div>')


def test_sizes_of_the_frame(train):
    s = tessera.open(train)

    def style(**options):
        return Elements(s.view(**options)._repr_html_()).one('div')['style']
    assert style() == 'position:relative;width:100%;height:640px'
    assert style(width=900, height=500) == 'position:relative;width:900px;height:500px'
    assert style(width='80%', height='40em') == 'position:relative;width:80%;height:40em'
    for bad in ('1px;background:url(x)', '"', 'wide', '', -3, 2.5, True):
        with pytest.raises(tessera.ArgumentError, match='height is a number of pixels'):
            s.view(height=bad)
    with pytest.raises(TypeError, match='a file has no width'):
        s.view(io.StringIO(), height=300)


def test_what_it_says_at_a_prompt(train):
    s = tessera.open(train)
    assert repr(s.view()) == '<tessera page of 0.1 MB; .view("page.html") writes a file>'
    page = s.view()
    page._most = 1000
    assert repr(page).startswith('<tessera page of 0.1 MB; notebooks show it reduced to 0.0 MB;')


def test_copies_are_shown_too(train):
    page = tessera.open(train).view(height=321)
    for other in (pickle.loads(pickle.dumps(page)), copy.copy(page), copy.deepcopy(page)):
        assert other == page and other._repr_html_() == page._repr_html_()


def test_a_large_page_is_reduced(monkeypatch):
    assert _page.MOST_SHOWN == 4_000_000
    monkeypatch.setattr(_page, 'MOST_SHOWN', 500_000)
    s = tessera.open(many(40000))
    page = s.view()
    assert len(page) > 500_000 and 'notebooks show it reduced to 0.5 MB' in repr(page)
    shown = page._repr_html_()
    inside = Elements(shown).one('iframe')['srcdoc']
    assert inside.startswith('<!doctype html>') and inside != page and len(inside) <= 500_000
    assert 'Reduced from' in shown and '.view("page.html")' in shown and '.view(limit="20MB")' in shown
    # A limit of the program's own is what is written, returned and shown.
    small, whole = s.view(limit='500kB'), s.view(limit='20MB')
    assert len(small) <= 500_000 and Elements(small._repr_html_()).one('iframe')['srcdoc'] == small
    assert whole == page and Elements(whole._repr_html_()).one('iframe')['srcdoc'] == page
    with pytest.raises(tessera.LimitError, match='too large'):
        s.view(limit='140kB')
    page._most = 300_000  # less than sums take
    assert 'cannot be reduced to 0.3 MB' in page._repr_html_() and '<iframe' not in page._repr_html_()
    s.close()
    assert 'closed' in page._repr_html_() and '<iframe' not in page._repr_html_()


def test_pages_of_ranks(tmp_path):
    for rank in range(2):
        (tmp_path / f'rank{rank}.pickle').write_bytes(pickle.dumps(hostile()))
    page = tessera.ranks(tmp_path).view(height=500)
    assert 'tessera-ranks-page/1' in page and Elements(page._repr_html_()).one('iframe')['srcdoc'] == page
    page._most = 1000
    assert 'too much for a notebook' in page._repr_html_() and 'reduced' not in repr(page)


def test_a_snapshot_leads_to_its_page(made):
    text = tessera.open(made / 'train.pickle')._repr_html_()
    assert '.view()' in text and 'At the peak: ' in text and len(text) < 100_000


def test_tables_of_plans():
    text = tessera.plan('gpt2', batch=1, seq=64)._repr_html_().partition('<details>')[0]
    assert text.count('<tr>') > 10 and 'peak so far' in text and 'bf16 weights' in text
    plan = tessera.plan('gpt2', batch=4, seq=512, budget='2GiB')
    text = plan._repr_html_().partition('<details>')[0]
    assert text.count('<tr>') == 1 + len(plan['changes']) and 'saved' in text and ' ms' in text


@pytest.fixture(scope='module')
def browse(tmp_path_factory):
    """What tests/python/frame.mjs sees of a page that contains some HTML."""
    playwright = ROOT / 'viewer' / 'node_modules' / 'playwright-core' / 'index.mjs'
    node, chromium = shutil.which('node'), shutil.which('chromium')
    if not (node and chromium and playwright.exists()):
        pytest.skip('no chromium, node or playwright-core')
    folder = tmp_path_factory.mktemp('notebook')

    def look(shown):
        (folder / 'notebook.html').write_text(NOTEBOOK.format(shown), encoding='utf-8')
        done = subprocess.run([node, ROOT / 'tests' / 'python' / 'frame.mjs', playwright, chromium, folder / 'notebook.html'],
                              capture_output=True, text=True, check=False, timeout=HANG_S)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)
    return look


def test_in_a_browser(browse, train):
    s = tessera.open(train)
    seen = browse(s.view()._repr_html_())
    assert (seen['complaints'], seen['requests'], seen['reaches']) == ([], [], False)
    assert [device['events'] for device in seen['devices']] == [len(s.events)]
    assert seen['colours'] > 3 and 'activation' in seen['text']
    assert seen['focus'] == 'BODY' and seen['passesOver']
    assert seen['steps'] == 0 and seen['address'] == 'about:srcdoc'
    assert seen['saved'].endswith('.csv')


def test_hostile_names_in_a_browser(browse):
    seen = browse(tessera.open(hostile()).view()._repr_html_())
    assert (seen['complaints'], seen['requests'], seen['reaches']) == ([], [], False)
    assert '<script>' in seen['text'] and 'trusted' not in seen['text']
