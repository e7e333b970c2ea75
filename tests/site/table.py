#!/usr/bin/env python3
"""table.py: each page of docs/ is in the navigation of the site, and each link between pages leads somewhere. Prints TAP.

Needs neither a network nor the generator; `./run docs check` tests the site itself."""
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.dont_write_bytecode = True
sys.path[:0] = [str(ROOT / 'site'), str(ROOT / 'tests')]
import pages  # noqa: E402
import tap  # noqa: E402

SECTIONS = ['Start', 'Questions', 'Places', 'Looking and asking', 'Techniques', 'Reference', 'Decisions']


def check_pages():
    found = list(pages.defects())
    if found:
        raise AssertionError(' | '.join(found))


def check_sections():
    tap.expect('sections', list(pages.sections()), SECTIONS)
    for section, listed in pages.sections().items():
        if not listed:
            raise AssertionError(f'{section} has no pages')
    tap.expect('the first page', pages.all_pages()[0].path, 'README.md')


def check_phrases():
    """A phrase finds one page."""
    phrases = [phrase.lower() for page in pages.all_pages() for phrase in page.phrases]
    tap.expect('phrases of two pages', sorted({phrase for phrase in phrases if phrases.count(phrase) > 1}), [])
    for phrase in phrases:
        if any(mark in phrase for mark in ';!'):
            raise AssertionError(f'a phrase with a mark: {phrase}')


# Where the figures of docs/accuracy.md are from.
SOURCES = ('published', 'benchmarks', 'categories')


def cells(line):
    return [cell.strip() for cell in line.strip().strip('|').split('|')]


def check_figures():
    """The figures of each row of docs/accuracy.md are those of a row of another page."""
    rows = [cells(line) for name in SOURCES for line in (ROOT / 'docs' / f'{name}.md').read_text(encoding='utf-8').splitlines() if line.startswith('|')]
    text = (ROOT / 'docs/accuracy.md').read_text(encoding='utf-8')
    count = 0
    for line in text.splitlines():
        if not re.match(r'\| .*\d', line) or len(cells(line)) < 4:
            continue
        figures, count = cells(line)[1:], count + 1
        if not any(row[-len(figures):] == figures for row in rows):
            raise AssertionError(f'docs/accuracy.md: in no page: {line}')
    if count < 15:
        raise AssertionError(f'{count} rows: this check is blind')


def check_blindness():
    """Links and headings are found, but not those in samples of code."""
    text = '# A b\n\n`[x](none.md)`\n\n```\n[x](none.md)\n# no heading\n```\n\n## The `c`: d, e\n\n[y](words.md#terms) ![z](p.png)\n## A b\n'
    tap.expect('links', [match.group() for match in pages.links(text)], ['words.md#terms', 'p.png'])
    tap.expect('headings', sorted(pages.anchors(text)), ['a-b', 'a-b-1', 'the-c-d-e'])
    tap.expect('a link', pages.resolved('docs/plan.md', '../README.md#more'), ('README.md', 'more'))
    tap.expect('a link within a page', pages.resolved('docs/plan.md', '#the-file'), ('docs/plan.md', 'the-file'))
    tap.expect('a link elsewhere', pages.resolved('docs/plan.md', 'https://example.org/'), None)


if __name__ == '__main__':
    sys.exit(tap.run([('pages and links', check_pages), ('sections', check_sections), ('phrases', check_phrases),
                      ('figures of docs/accuracy.md', check_figures), ('links are seen', check_blindness)]))
