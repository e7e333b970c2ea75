"""The module that ./run build web made, in Node, beside the command."""
import base64
import json
import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


class Web:
    """The module in Node; one process runs all command lines."""

    def __init__(self, folder):
        self.process = subprocess.Popen(['node', str(folder / 'tessera.mjs'), str(folder / 'tessera.wasm')],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding='ascii')

    def run(self, words, files, take=None):
        request = {'words': words, 'files': {name: str(path) for name, path in files.items()}}
        if take:
            request['take'] = take
        self.process.stdin.write(json.dumps(request) + '\n')
        self.process.stdin.flush()
        answer = json.loads(self.process.stdout.readline())
        for key in ('output', 'messages', 'taken'):
            if answer.get(key) is not None:
                answer[key] = base64.b64decode(answer[key])
        return answer

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def native(tessera, words, folder):
    environment = {'PATH': os.environ['PATH'], 'XDG_CACHE_HOME': '/nowhere', 'TESSERA_PYTHON': '/nowhere/python'}
    done = subprocess.run([tessera, *words], cwd=folder, capture_output=True, env=environment, check=False)
    return done.returncode, done.stdout, done.stderr


def first_difference(expected, got):
    for number, (left, right) in enumerate(zip(expected.splitlines(), got.splitlines()), 1):
        if left != right:
            return f'line {number}: {left[:150]!r}, in the browser {right[:150]!r}'
    return f'{len(expected)} bytes, in the browser {len(got)}'
