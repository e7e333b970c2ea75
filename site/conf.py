"""What Sphinx makes of the pages; see build.py."""
import re
from pathlib import Path

HERE = Path(__file__).resolve().parent
version = re.search(r"version: '([^']*)'", (HERE.parent / 'meson.build').read_text())[1]

project = 'tessera'
html_title = f'tessera {version}'
extensions = ['myst_parser']
myst_heading_anchors = 6
# Samples of output are not always what the language of their block would accept.
highlight_language = 'none'
suppress_warnings = ['misc.highlighting_failure']
smartquotes = False

html_theme = 'furo'
html_css_files = ['site.css']
html_copy_source = False
html_show_sphinx = False
html_show_copyright = False
html_use_index = False
html_domain_indices = False
# The search shows parts of pages only where a server sends them.
html_show_search_summary = False
html_search_scorer = str(HERE / 'scorer.js')


def setup(app):
    """Only the page of the search loads what it shows."""
    def add(app, name, _template, _context, _doctree):
        if name == 'search':
            app.add_js_file('lead-texts.js')
            app.add_js_file('leads.js')
    app.connect('html-page-context', add)
