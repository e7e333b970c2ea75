#!/usr/bin/env python3
"""run.py --work FOLDER: the site that `./run docs` has made in FOLDER, in a browser, from the file system. Prints TAP.

Builds it again first, and compares the bytes. The rest is site.mjs: each page at three widths, in light and in dark, and the search.
Screenshots of some pages are left in FOLDER/shots."""
import argparse
import json
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.dont_write_bytecode = True
sys.path[:0] = [str(ROOT / 'site'), str(ROOT / 'tests')]
import pages  # noqa: E402
import tap  # noqa: E402

DRIVER = ROOT / 'viewer/node_modules/playwright-core/index.mjs'


def contents(folder):
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in sorted(folder.rglob('*')) if path.is_file()}


def built_again(work):
    """The same files give the same bytes."""
    again = work / 'again'
    shutil.rmtree(again, ignore_errors=True)
    again.mkdir()
    (again / 'venv').symlink_to(work / 'venv')
    subprocess.run([sys.executable, ROOT / 'site/build.py', '--work', again], check=True, stderr=subprocess.DEVNULL)
    first, second = contents(work / 'site'), contents(again / 'site')
    tap.expect('files', sorted(second), sorted(first))
    tap.expect('files that differ', [name for name in first if first[name] != second[name]], [])
    shutil.rmtree(again)


def texts(work):
    """llms.txt names each page, and llms-full.txt contains it."""
    index, whole = ((work / 'site' / name).read_text(encoding='utf-8') for name in ('llms.txt', 'llms-full.txt'))
    for page in pages.all_pages():
        html = 'index.html' if page.path == 'README.md' else f'{page.path.removesuffix(".md")}.html'
        if f'({html})' not in index or page.text.rstrip() not in whole:
            raise AssertionError(f'not there: {page.path}')


def browser(work):
    missing = [name for name, is_there in (('chromium', shutil.which('chromium')), ('node', shutil.which('node')), ('playwright-core', DRIVER.is_file()))
               if not is_there]
    if missing:
        print('not ok 3 - no ' + ', '.join(missing))
        return 1
    plan = {'site': str(work / 'site'), 'shots': str(work / 'shots'), 'playwright': str(DRIVER), 'chromium': shutil.which('chromium'), 'first': 3}
    shutil.rmtree(work / 'shots', ignore_errors=True)
    return subprocess.run(['node', Path(__file__).with_name('site.mjs'), json.dumps(plan)], check=False).returncode


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--work', required=True, type=Path)
    work = parser.parse_args().work.resolve()
    report = tap.Report()
    for title, test in (('the same bytes again', built_again), ('texts for language models', texts)):
        try:
            test(work)
            report.result(title)
        except (AssertionError, subprocess.CalledProcessError) as error:
            report.result(title, str(error).splitlines() or ['failed'])
    return browser(work) or int(bool(report.failed))


if __name__ == '__main__':
    sys.exit(main())
