#!/usr/bin/env python3
"""build.py --work FOLDER: the documentation as a site, in FOLDER/site, from the repository's Markdown files, which stay as they are.

They are copied with links that lead to pages of the site; files that they name, such as headers and examples, become pages as well. Sphinx
makes HTML of them, with a search that works without a server. Fails if a page is in no section of pages.txt, if a link leads nowhere, and
if Sphinx warns. The same files give the same bytes. FOLDER/site/llms.txt and llms-full.txt are for language models."""
import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pages

ROOT = pages.ROOT
HERE = Path(__file__).resolve().parent
# The page of the navigation that is the first of the site.
FIRST = 'README.md'
LANGUAGES = {'.c': 'c', '.h': 'c', '.py': 'python', '.json': 'json', '.ipynb': 'json', '.sh': 'sh'}
# The search leaves them out: what they contain has pages of its own.
HIDDEN = '---\norphan: true\nnosearch: true\n---\n\n'


def say(text):
    print(f'docs: {text}', file=sys.stderr, flush=True)


def tools(work):
    """The Python of an environment with the packages of requirements.txt, made again when those change."""
    wanted = HERE / 'requirements.txt'
    folder = work / 'venv'
    stamp, digest = folder / 'digest', hashlib.sha256(wanted.read_bytes()).hexdigest()
    if not stamp.exists() or stamp.read_text() != digest:
        say('installing what site/requirements.txt names')
        shutil.rmtree(folder, ignore_errors=True)
        subprocess.run([sys.executable, '-m', 'venv', folder], check=True)
        subprocess.run([folder / 'bin/pip', 'install', '--quiet', '--disable-pip-version-check', '--require-hashes', '-r', wanted], check=True)
        stamp.write_text(digest)
    return folder / 'bin/python'


def target(page, path, anchor, files):
    """Where a link of the page leads in the folder of sources; `files` gets what needs a page."""
    depth = '../' * page.count('/')
    anchor = anchor and f'#{anchor}'
    if path == FIRST:
        return f'{depth}index.md{anchor}'
    if path == 'docs/decisions':
        return f'{depth}docs/decisions/index.md'
    if path.endswith('.md') or path.startswith('docs/images/'):
        return f'{depth}{path}{anchor}'
    files.add(path)
    return f'{depth}files/{path}.md'


def with_links(page, text, files):
    """The text of a page with links as the site has them."""
    parts, end = [], 0
    for match in pages.links(text):
        where = pages.resolved(page, match.group())
        if where and not match.group().startswith('#'):
            parts += [with_title(text[end:match.start()], where[0]), target(page, *where, files)]
            end = match.end()
    return ''.join(parts) + text[end:]


def with_title(text, path):
    """A text that ends in `[docs/plan.md](`: paths are for readers of the repository, so the site has the page's title instead."""
    named = re.search(r'\[(`?)([\w./-]+)\1\]\($', text)
    if not named or not path.endswith(named[2]) or not (path.endswith('.md') or path == 'docs/decisions'):
        return text
    title = 'Decisions' if path == 'docs/decisions' else title_of((ROOT / path).read_text(encoding='utf-8'))
    return f'{text[:named.start()]}[{title}]('


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding='utf-8')


def tree(section, names):
    return '\n'.join(['', '```{toctree}', ':hidden:', f':caption: {section}', '', *names, '```', ''])


def entries(listed):
    """Lines of a toctree."""
    for page in listed:
        name = page.path.removesuffix('.md')
        name = 'self' if page.path == FIRST else f'/{name}'
        yield f'{page.title} <{name}>' if page.title else name


def indexed(phrases):
    """What makes the search find a page first by each of the phrases."""
    return '```{index} ' + ', '.join(f'! {phrase}' for phrase in phrases) + '\n```\n\n' if phrases else ''


def write_file_pages(files, source):
    """Pages that show the files which pages name; a folder's lists what is in it."""
    for path in sorted(files):
        if (ROOT / path).is_dir():
            there = sorted(each for each in (ROOT / path).iterdir() if each.is_file())
            lines = [f'- [{each.name}](/files/{path}/{each.name}.md)' for each in there]
            write(source / f'files/{path}.md', f'{HIDDEN}# {path}\n\n' + '\n'.join(lines) + '\n')
            write_file_pages({f'{path}/{each.name}' for each in there} - files, source)
        else:
            language = LANGUAGES.get(Path(path).suffix, 'text')
            code = (ROOT / path).read_text(encoding='utf-8').rstrip('\n')
            write(source / f'files/{path}.md', f'{HIDDEN}# {path}\n\n``````{{code-block}} {language}\n{code}\n``````\n')


def write_sources(source):
    """The folder that Sphinx reads."""
    shutil.rmtree(source, ignore_errors=True)
    shutil.copytree(ROOT / 'docs/images', source / 'docs/images')
    sections, files = pages.sections(), set()
    for section, listed in sections.items():
        for page in listed:
            text = indexed(page.phrases) + with_links(page.path, page.text, files)
            if page.path == FIRST:
                trees = {name: list(entries(each)) for name, each in sections.items() if name != 'Decisions'}
                trees['Decisions'] = ['/docs/decisions/index']
                text += ''.join(tree(name, lines) for name, lines in trees.items())
            write(source / ('index.md' if page.path == FIRST else page.path), text)
    decisions = [f'/{page.path.removesuffix(".md")}' for page in sections['Decisions']]
    write(source / 'docs/decisions/index.md', '\n'.join(
        ['# Decisions', '', 'Why tessera is built as it is: each page has a question, what could have been done, what was chosen, and what would change that.',
         '', '```{toctree}', ':maxdepth: 1', '', *decisions, '```', '']))
    write_file_pages(files, source)


def title_of(text):
    return re.search(r'^# (.*)$', text, re.M)[1].replace('`', '')


def write_texts(site):
    """llms.txt lists the pages, llms-full.txt contains them."""
    sections = pages.sections()
    lines = ['# tessera', '', '> Where the memory of a GPU job went: reads the memory snapshots that PyTorch writes, explains why memory ran out, '
             'predicts what a training run needs, and plans how to make it fit.', '', 'llms-full.txt contains all these pages in one file.', '']
    whole = []
    for section, listed in sections.items():
        lines += [f'## {section}', '']
        for page in listed:
            html = 'index.html' if page.path == FIRST else f'{page.path.removesuffix(".md")}.html'
            lines.append(f'- [{title_of(page.text)}]({html})')
            whole.append(f'<!-- {page.path} -->\n\n{page.text.rstrip()}\n')
        lines.append('')
    write(site / 'llms.txt', '\n'.join(lines).rstrip() + '\n')
    write(site / 'llms-full.txt', '\n'.join(whole))


def lead_of(text):
    """How a page begins, in at most 180 characters."""
    for paragraph in re.split(r'\n\s*\n', pages.without_samples(text)):
        if not re.match(r'\s*$|[#|!<-]', paragraph):
            plain = ' '.join(re.sub(r'\[([^]]*)\]\([^)]*\)', r'\1', paragraph).replace('`', '').replace('*', '').split())
            return plain if len(plain) <= 180 else f'{plain[:180].rpartition(" ")[0]} ...'
    return ''


def write_leads(static):
    """What the search shows below titles: a script, since a page cannot read other files without a server."""
    leads = {('index' if page.path == FIRST else page.path.removesuffix('.md')): lead_of(page.text) for page in pages.all_pages()}
    write(static / 'lead-texts.js', f'const LEADS = {json.dumps(leads, indent=0, sort_keys=True)};\n')


class Targets(HTMLParser):
    """What a page of the site refers to, and the anchors that it has."""

    def __init__(self, text):
        super().__init__()
        self.targets, self.anchors = [], set()
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        for key, value in attrs:
            if key in ('href', 'src') and value:
                self.targets.append((tag, value))
            elif key in ('id', 'name') and value:
                self.anchors.add(value)


def dead_links(site):
    """A line for each link of the site that leads nowhere, and for each thing that a page would load from elsewhere."""
    read = {path: Targets(path.read_text(encoding='utf-8')) for path in sorted(site.rglob('*.html'))}
    for path, page in read.items():
        for tag, value in page.targets:
            if re.match(r'[a-z]+:|//', value):
                if tag != 'a' and not value.startswith('data:'):
                    yield f'{path.relative_to(site)}: loads {value}'
                continue
            file, _, anchor = unquote(value).partition('#')
            there = (path.parent / file.partition('?')[0]).resolve() if file else path
            if not there.is_file():
                yield f'{path.relative_to(site)}: no such file: {value}'
            elif anchor and there in read and anchor not in read[there].anchors:
                yield f'{path.relative_to(site)}: no such heading: {value}'


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--work', required=True, type=Path)
    work = parser.parse_args().work.resolve()
    defects = list(pages.defects())
    if not defects:
        python, site = tools(work), work / 'site'
        write_sources(work / 'source')
        write_leads(work / 'static')
        shutil.rmtree(site, ignore_errors=True)
        say(f'building {site.relative_to(ROOT) if site.is_relative_to(ROOT) else site}')
        subprocess.run([python, '-m', 'sphinx', '-q', '-E', '-W', '--keep-going', '-b', 'html', '-c', HERE,
                        '-D', f'html_static_path={HERE / "static"},{work / "static"}', '-d', work / 'doctrees', work / 'source', site], check=True,
                       env={'SOURCE_DATE_EPOCH': '0', **os.environ, 'PYTHONHASHSEED': '0', 'PYTHONDONTWRITEBYTECODE': '1', 'LC_ALL': 'C.UTF-8'})
        (site / '.buildinfo').unlink(missing_ok=True)
        write_texts(site)
        defects = list(dead_links(site))
    for defect in defects:
        say(defect)
    return int(bool(defects))


if __name__ == '__main__':
    sys.exit(main())
