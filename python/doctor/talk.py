"""How the doctor and its processes talk: JSON lines on a pipe, and a line on standard input for each go-ahead."""
import json
import os
import select
import subprocess
import sys
import tempfile
import time
from typing import Any, Dict, List, Optional

LIMIT_S = 150.0  # of one program; a compiler may take a minute
BOOT = ('import sys, json, io, zipfile\n'
        "if sys.path[:1] == ['']: del sys.path[0]\n"
        'REQUEST = json.loads(sys.stdin.buffer.readline())\n'
        "ARCHIVE = sys.stdin.buffer.read(REQUEST['archive_bytes'])\n"
        "RESULTS = REQUEST['results']\n"
        "code = zipfile.ZipFile(io.BytesIO(ARCHIVE)).read('start.py')\n"
        "exec(compile(code, '<command>/tessera/start.py', 'exec', dont_inherit=True))\n")


class Lost(Exception):
    """A process ended, or said nothing for too long."""


def one_line(error: BaseException) -> str:
    text = ' '.join(str(error).split())
    return f'{type(error).__name__}: {text[:300]}' if text else type(error).__name__


class Talk:
    """The side of the process."""

    def __init__(self, results: int, words: Any) -> None:
        self._results, self._words = results, words

    def say(self, **row: Any) -> None:
        data = json.dumps(row).encode() + b'\n'
        while data:
            data = data[os.write(self._results, data):]

    def wait(self) -> None:
        """Until the other side has seen what it wanted to. It is gone if there is nothing to read."""
        if not self._words.readline():
            os._exit(0)


class Worker:
    """The other side. A worker ends with its `with`."""

    def __init__(self, request: Dict[str, Any], archive: bytes, environment: Optional[Dict[str, str]] = None) -> None:
        self._from, to = os.pipe()
        self._rest, self._said = b'', tempfile.TemporaryFile()
        self._process = subprocess.Popen([sys.executable, '-W', 'ignore', '-c', BOOT], stdin=subprocess.PIPE, stdout=self._said, stderr=self._said,
                                         pass_fds=[to], env=environment)
        os.close(to)
        self.go(json.dumps({**request, 'results': to, 'archive_bytes': len(archive)}).encode() + b'\n' + archive)

    def __enter__(self) -> 'Worker':
        return self

    def __exit__(self, *_: Any) -> None:
        if self._process.stdin:
            try:
                self._process.stdin.close()
            except OSError:
                pass
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._from)
        self._said.close()

    def go(self, data: bytes = b'go\n') -> None:
        try:
            assert self._process.stdin
            self._process.stdin.write(data)
            self._process.stdin.flush()
        except OSError:
            pass  # hear() will say why

    def hear(self, limit_s: float = LIMIT_S) -> Dict[str, Any]:
        end = time.monotonic() + limit_s
        while b'\n' not in self._rest:
            left = end - time.monotonic()
            if left <= 0 or not select.select([self._from], [], [], left)[0]:
                self._process.kill()
                raise Lost(f'nothing happened for {limit_s:.0f} seconds')
            data = os.read(self._from, 1 << 16)
            if not data:
                raise Lost(self._why())
            self._rest += data
        line, _, self._rest = self._rest.partition(b'\n')
        row: Dict[str, Any] = json.loads(line)
        if row.get('event') == 'failed':
            raise Lost(row['error'])
        return row

    def _why(self) -> str:
        """The last line that the process printed, and how it ended."""
        try:
            status = self._process.wait(10)
        except subprocess.TimeoutExpired:
            return 'it closed its pipe'
        self._said.seek(max(0, self._said.seek(0, os.SEEK_END) - 4096))
        lines: List[str] = [line for line in self._said.read().decode('utf-8', 'replace').splitlines() if line.strip()]
        how = f'signal {-status}' if status < 0 else f'exit status {status}'
        return f'{how}: {lines[-1].strip()[:200]}' if lines else how
