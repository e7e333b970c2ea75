"""pages.py: which pages the site has (pages.txt), and the links of a page. Needs nothing but Python, so that a test can use it."""
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TABLE = ROOT / 'site/pages.txt'
LINK = re.compile(r'(?<=\]\()([^()\s]+)(?=\))')


class Page:
    """A Markdown file, as a path in the repository; its title in the navigation, '' for that of the file; and phrases that find it."""

    def __init__(self, path, title='', phrases=()):
        self.path, self.title, self.phrases = path, title, tuple(phrases)

    @property
    def text(self):
        return (ROOT / self.path).read_text(encoding='utf-8')


def sections(table=None):
    """{title of a section: its pages}, in the order of the table."""
    found, section = {}, None
    for line in (table or TABLE.read_text(encoding='utf-8')).splitlines():
        line = line.strip()
        if not line or line.startswith('#'):
            continue
        if line.startswith('['):
            section = found.setdefault(line.strip('[]'), [])
            continue
        path, title, phrases = (*(part.strip() for part in line.split('|')), '', '')[:3]
        paths = sorted(ROOT.glob(path)) if '*' in path else [ROOT / path]
        section += [Page(each.relative_to(ROOT).as_posix(), title, [phrase.strip() for phrase in phrases.split(',') if phrase.strip()])
                    for each in paths]
    return found


def all_pages():
    return [page for pages in sections().values() for page in pages]


def without_code(text):
    """The text with code and comments as blanks: the rest is where it was."""
    return re.sub(r'^( *)(```+)[^\n]*\n(?s:.*?)^ *\2[ `]*$|<!--(?s:.*?)-->|(`+)(?!`)(?s:.+?)(?<!`)\3(?!`)',
                  lambda match: re.sub(r'[^\n]', ' ', match.group()), text, flags=re.M)


def without_samples(text):
    """The text without blocks of code and comments."""
    return re.sub(r'^( *)(```+)[^\n]*\n(?s:.*?)^ *\2[ `]*$|<!--(?s:.*?)-->', '', text, flags=re.M)


def links(text):
    """A match for each target of a link or picture, outside of code."""
    return LINK.finditer(without_code(text))


def anchors(text):
    """What a link to a heading may name, as forges make it."""
    found = set()
    blank = without_code(text).splitlines()
    for line, code in zip(text.splitlines(), blank):
        if not re.match(r'#{1,6} ', code):
            continue
        title = re.sub(r'\[([^]]*)\]\([^)]*\)', r'\1', line.lstrip('#').strip())
        slug = base = re.sub(r'[^\w\- ]', '', title.lower()).replace(' ', '-')
        number = 0
        while slug in found:
            number += 1
            slug = f'{base}-{number}'
        found.add(slug)
    return found


def resolved(page, target):
    """(path in the repository, anchor) of a relative link, or None for one that leads elsewhere."""
    if re.match(r'[a-z]+:', target):
        return None
    path, _, anchor = target.partition('#')
    there = ((ROOT / page).parent / path).resolve() if path else ROOT / page
    return (there.relative_to(ROOT).as_posix() if there.is_relative_to(ROOT) else target), anchor


def defects():
    """A line for each page that the table lacks, has twice or has without a file, and for each dead link."""
    pages = all_pages()
    paths = [page.path for page in pages]
    wanted = {path.relative_to(ROOT).as_posix() for path in (ROOT / 'docs').rglob('*.md')}
    for path in sorted(wanted - set(paths)):
        yield f'{path}: not in site/pages.txt'
    for path in sorted(set(paths)):
        if not (ROOT / path).is_file():
            yield f'site/pages.txt: no such file: {path}'
        elif paths.count(path) > 1:
            yield f'site/pages.txt: {path} is there {paths.count(path)} times'
    known = {path: anchors((ROOT / path).read_text(encoding='utf-8')) for path in set(paths) if (ROOT / path).is_file()}
    for page in pages:
        if page.path not in known:
            continue
        text = page.text
        for match in links(text):
            where = resolved(page.path, match.group())
            if where is None:
                continue
            place = f'{page.path}:{text.count(chr(10), 0, match.start()) + 1}'
            if not (ROOT / where[0]).exists():
                yield f'{place}: no such file: {match.group()}'
            elif where[1] and where[1] not in known.get(where[0], ()):
                yield f'{place}: no such heading: {match.group()}'
