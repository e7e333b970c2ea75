#!/usr/bin/env python3
"""hostile.py --tessera PATH --web FOLDER --seed N --count N [--browser NAME]: strange files (tests/hostile/strange.py) in the module and the page.

In Node each case must end as the command ends: the same exit status, output and messages; a trap, or more than 20 s, is harm. With
--browser, the page is given each case's files and asked its question: an answer or a message must come, and the page must
still answer afterwards. What differs is printed with its number, which --first makes again."""
import argparse
import base64
import json
import shutil
import subprocess
import sys
import threading
from pathlib import Path

sys.dont_write_bytecode = True
HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / 'hostile')]
import module as web  # noqa: E402
import strange  # noqa: E402

HANG_S = 20
# Not in the browser, or without an end.
ABSENT = ('serve', 'train', 'mcp', 'sql', 'trace', 'doctor', 'page', 'completion')


def cases(seed, first, count):
    """The next `count` cases that a browser can be asked, from number `first` on: (number, files, words)."""
    number = first
    while count:
        _, files, words = strange.case(seed, number)
        # Bytes that are no text can't be typed on a page, and it has no standard input.
        texts = [word.decode('utf-8', 'replace') if isinstance(word, bytes) else word for word in words]
        is_typed = all(word.isprintable() and word.encode('utf-8', 'replace').decode() == word for word in texts)
        if texts[0] not in ABSENT and texts[-1] != '<in' and is_typed:
            count -= 1
            yield number, files, ['written' if word == '/dev/null' else word for word in texts]
        number += 1


class Watched:
    """The module in Node, started again when it hangs."""

    def __init__(self, folder):
        self.folder, self.web = folder, web.Web(folder)

    def run(self, words, files, take):
        """As Web.run."""
        timer = threading.Timer(HANG_S, self.web.process.kill)
        timer.start()
        try:
            return self.web.run(words, files, take)
        except (ValueError, OSError):
            self.web = web.Web(self.folder)
            return {'failure': f'no end within {HANG_S} s'}
        finally:
            timer.cancel()


def write_files(folder, files):
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)


def differences(options, module, folder, files, words):
    write_files(folder, files)
    answer = module.run(words, {name: folder / name for name in files}, 'written')
    if answer.get('failure'):
        return [answer['failure']]
    status, output, messages = web.native(str(options.tessera), words, folder)
    # The files of a page lie in its root.
    output, messages = (text.replace(str(folder).encode(), b'') for text in (output, messages))
    wrong = []
    if answer['status'] != status:
        wrong.append(f'exit status {status}, in the browser {answer["status"]}: {answer["messages"][:200]!r} for {messages[:200]!r}')
    elif answer['output'] != output:
        wrong.append(web.first_difference(output, answer['output']))
    elif b'is traced with PyTorch, and this tessera' in answer['messages']: # which a browser lacks, and says
        pass
    elif answer['messages'] != messages:
        wrong.append(web.first_difference(messages, answer['messages']))
    elif (folder / 'written').exists() and (folder / 'written').read_bytes() != answer.get('taken'):
        wrong.append('another file was written')
    return wrong


def run_module(options):
    module, failed = Watched(options.web), 0
    for number, files, words in cases(options.seed, options.first, options.count):
        wrong = differences(options, module, options.work / 'case', files, words)
        failed += bool(wrong)
        if wrong:
            print(f'{number}: {" ".join(words)[:200]}', *wrong, sep='\n  ', flush=True)
    module.web.close()
    return failed


def run_browser(options):
    """The page is driven by a program in Node, to which each case is a line."""
    program = next(filter(None, map(shutil.which, (options.browser, options.browser + '-esr', options.program or ''))), None)
    plan = {'playwright': str(web.ROOT / 'viewer/node_modules/playwright-core/index.mjs'), 'browser': options.browser, 'program': program,
            'page': str((options.web / 'tessera.html').resolve()), 'hang_ms': 1000 * HANG_S}
    with subprocess.Popen(['node', str(HERE / 'hostile.mjs'), json.dumps(plan)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                          encoding='utf-8') as process:
        failed = 0
        for number, files, words in cases(options.seed, options.first, options.count):
            given = {name: base64.b64encode(data).decode() for name, data in files.items()}
            process.stdin.write(json.dumps({'files': given, 'words': words}) + '\n')
            process.stdin.flush()
            wrong = json.loads(process.stdout.readline() or '["the page has ended"]')
            failed += bool(wrong)
            if wrong:
                print(f'{number}: {" ".join(words)[:200]}', *wrong, sep='\n  ', flush=True)
        process.stdin.close()
    return failed


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--tessera', type=Path, required=True)
    parser.add_argument('--web', type=Path, required=True)
    parser.add_argument('--work', type=Path, default=None)
    parser.add_argument('--seed', type=int, required=True)
    parser.add_argument('--first', type=int, default=0)
    parser.add_argument('--count', type=int, default=1000)
    parser.add_argument('--browser', choices=('chromium', 'firefox'))
    parser.add_argument('--program', help='the browser, where it is not on the path')
    options = parser.parse_args()
    options.tessera = options.tessera.resolve()
    options.work = (options.work or options.web / 'hostile').resolve()
    options.work.mkdir(parents=True, exist_ok=True)
    failed = run_browser(options) if options.browser else run_module(options)
    print(f'seed {options.seed}: {options.count:,} cases from number {options.first} on, {failed} failed')
    return failed > 0


if __name__ == '__main__':
    sys.exit(main())
