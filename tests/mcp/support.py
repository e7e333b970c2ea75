"""support.py: what the tests of `tessera mcp` share: fixtures, and the server as a process."""
import argparse
import json
import shutil
import subprocess
import sys
from pathlib import Path

sys.dont_write_bytecode = True
ROOT = Path(__file__).resolve().parents[2]
SHARED = ROOT.parent / 'shared' / 'snapshots'
sys.path[:0] = [str(ROOT / 'tests'), str(ROOT / 'tests' / 'cli')]
import fixtures  # noqa: E402
import tap  # noqa: E402, F401
from tap import Skip, expect  # noqa: E402

HANG_S = 1800  # ends what hangs; a busy machine may be slow


def arguments(doc):
    parser = argparse.ArgumentParser(description=doc.splitlines()[0])
    parser.add_argument('--tessera', required=True, type=Path, help='the binary to run')
    parser.add_argument('--work', required=True, type=Path, help='folder for fixtures and output')
    options = parser.parse_args()
    options.tessera = options.tessera.resolve()
    options.work = options.work.resolve()
    shutil.rmtree(options.work / 'fixtures', ignore_errors=True)
    fixtures.write_all(options.work / 'fixtures')
    return options


def expect_that(what, is_so):
    if not is_so:
        raise AssertionError(what)


def real(name):
    """A snapshot of ../shared."""
    path = SHARED / name
    if not path.exists():
        raise Skip('../shared/snapshots is not there')
    return path


def initialize(version='2025-06-18'):
    return request('initialize', {'protocolVersion': version, 'capabilities': {},
                                  'clientInfo': {'name': 'test', 'version': '0'}}, 'init')


def request(method, params=None, number=1):
    message = {'jsonrpc': '2.0', 'id': number, 'method': method}
    return {**message, 'params': params} if params is not None else message


def call(tool, number=1, **given):
    return request('tools/call', {'name': tool, 'arguments': given}, number)


class Server:
    """`tessera mcp`, given all its input at once."""

    def __init__(self, tessera):
        self.tessera = tessera

    def raw(self, data, *options):
        """The process after `data`: messages must be JSON lines, standard error empty, exit 0."""
        done = subprocess.run([self.tessera, 'mcp', *options], input=data, capture_output=True,
                              check=False, timeout=HANG_S)
        expect('standard error', done.stderr.decode(), '')
        expect('exit status', done.returncode, 0)
        expect_that('output ends in a newline', not done.stdout or done.stdout.endswith(b'\n'))
        return [json.loads(line) for line in done.stdout.splitlines()]

    def ask(self, *messages, options=()):
        return self.raw(b''.join(json.dumps(m).encode() + b'\n' for m in messages), *options)

    def tool(self, name, *, options=(), **given):
        """The result of one call."""
        answers = self.ask(initialize(), call(name, **given), options=options)
        expect('answers', len(answers), 2)
        return answers[1]['result']

    def answer(self, name, *, options=(), **given):
        """Its structured content, which the text must equal."""
        result = self.tool(name, options=options, **given)
        expect('isError', result['isError'], False)
        expect('text', json.loads(result['content'][0]['text']), result['structuredContent'])
        return result['structuredContent']

    def command(self, *words):
        """What a command says as JSON."""
        done = subprocess.run([self.tessera, *words, '--json'], capture_output=True, check=False,
                              timeout=HANG_S)
        expect('exit status', done.returncode, 0)
        return json.loads(done.stdout)
