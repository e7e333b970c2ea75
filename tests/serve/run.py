#!/usr/bin/env python3
"""What `tessera serve` answers, to whom, and how it ends. Prints TAP.

usage: run.py --tessera PATH --work FOLDER

Speaks to servers of its own at the loopback address only. What a browser makes of the page,
tests/viewer looks at."""
import argparse
import concurrent.futures
import http.client
import json
import pathlib
import pickle
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import zlib

HANG_S = 1800  # ends what hangs; a busy machine may be slow
HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent / 'viewer')]
import tap  # noqa: E402
from run import snapshot, waves  # noqa: E402
from tap import expect  # noqa: E402

ADDRESS = re.compile(r'^http://(127\.0\.0\.1|\[::1\]):(\d+)/([0-9a-f]{32})/$')


class Server:
    """A server of one file, stopped at the end of the block."""

    def __init__(self, tessera, path, *options, address='127.0.0.1'):
        self.process = subprocess.Popen([tessera, 'serve', *options, path], stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, text=True)
        match = ADDRESS.match(self.process.stdout.readline())
        if not match:
            self.process.kill()
            raise AssertionError(f'no address: {self.process.stderr.read()}')
        self.address, self.port, self.token = address, int(match[2]), match[3]

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self.stop(signal.SIGKILL)

    def stop(self, how):
        """The exit status."""
        if self.process.poll() is None:
            self.process.send_signal(how)
        status = self.process.wait(timeout=HANG_S)
        self.process.stdout.close()
        self.process.stderr.close()
        return status

    def ask(self, path=None, method='GET', headers=None, host=''):
        """(status, headers, body) of one request; `host` None sends no Host header."""
        connection = http.client.HTTPConnection(self.address, self.port, timeout=HANG_S)
        connection.putrequest(method, f'/{self.token}/' if path is None else path, skip_host=True,
                              skip_accept_encoding=True)
        if host is not None:
            connection.putheader('Host', host or f'127.0.0.1:{self.port}')
        for name, value in (headers or {}).items():
            connection.putheader(name, value)
        connection.endheaders()
        answer = connection.getresponse()
        body = answer.read()
        connection.close()
        return answer.status, {k.lower(): v for k, v in answer.getheaders()}, body

    def part(self, query):
        return self.ask(f'/{self.token}/part?{query}')


def status(answer):
    return answer[0]


def read_part(body):
    """The head of a part, and its columns by name."""
    length = struct.unpack('<I', body[:4])[0]
    head = json.loads(body[4:4 + length])
    data, columns, at = zlib.decompress(body[4 + length:]), {}, 0
    for name, size in head['columns']:
        columns[name] = data[at:at + size]
        at += size
    expect('columns are all there is', at, len(data))
    return head, columns


def check_page(server):
    """The page, as `view` writes it, but for what it may ask."""
    code, headers, body = server.ask()
    expect('status', code, 200)
    for name, value in (('content-type', 'text/html; charset=utf-8'), ('cache-control', 'no-store'),
                        ('x-content-type-options', 'nosniff'), ('referrer-policy', 'no-referrer'),
                        ('cross-origin-resource-policy', 'same-origin'), ('x-frame-options', 'DENY')):
        expect(name, headers.get(name), value)
    policy = re.search(rb'Content-Security-Policy" content="([^"]*)"', body)[1].decode()
    expect('policy', policy.startswith("default-src 'none'; connect-src 'self'; script-src"), True)
    expect('the rest of it', [w for w in ('unsafe', 'http', '*') if w in policy], [])
    expect('nobody may be told', 'access-control-allow-origin' in headers, False)
    code, headers, body = server.ask(method='HEAD')
    expect('HEAD', (code, body), (200, b''))


def check_token(server):
    """Without the secret nothing is told, not even what there is."""
    wrong = '0' * 32 if server.token != '0' * 32 else '1' * 32
    for path in ('/', '/part?track=0&from=0&to=1', f'/{wrong}/', f'/{wrong}/part?track=0&from=0&to=1',
                 f'/{server.token[:-1]}/', f'/{server.token}', f'/{server.token}x/', f'//{server.token}/',
                 f'/{server.token.upper()}x/', '/favicon.ico', '*', f'/?{server.token}/'):
        code, _, body = server.ask(path)
        expect(path.replace(server.token, 'TOKEN'), (code, len(body) < 16), (403, True))


def check_paths(server):
    """There are three things to ask for; a path is no path of the file system."""
    for path in ('../', '../../etc/passwd', '..%2f..%2fetc%2fpasswd', 'part/', 'page.html', '%00', './',
                 '/etc/passwd', 'part%00', '.', '%2e%2e/'):
        expect(path, server.ask(f'/{server.token}/{path}')[0], 404)
    built = HERE.parents[1] / 'build-web/tessera.html'
    code, _, body = server.ask(f'/{server.token}/tessera.html')
    expect('tessera as a page', (code, body if built.exists() else None),
           (200, built.read_bytes()) if built.exists() else (404, None))
    for method in ('POST', 'PUT', 'DELETE', 'OPTIONS', 'TRACE', 'PATCH', 'BREW'):
        expect(method, server.ask(method=method)[0], 405)
    expect('a body', server.ask(method='POST', headers={'Content-Length': '0'})[0], 405)


def check_hosts(server):
    """A name that a stranger points here is not a name of this machine; nor is his page from here."""
    port = server.port
    for host in (f'localhost:{port}', 'localhost', '127.0.0.1', f'127.0.0.1:{port}', '[::1]:1', 'LOCALHOST:99'):
        expect(host, server.ask(host=host)[0], 200)
    for host in ('evil.example', f'evil.example:{port}', 'localhost.evil.example', '127.0.0.1.evil.example',
                 '127.0.0.1@evil.example', '', '[::1', f'localhost:{port}x', '10.0.0.1', 'a' * 300, ':1'):
        expect(host[:40], server.ask(host=host or ' ')[0] in (400, 403), True)
    expect('no Host', server.ask(host=None)[0] in (400, 403), True)
    expect('from here', server.ask(headers={'Origin': f'http://127.0.0.1:{port}'})[0], 200)
    for origin in ('http://evil.example', 'null', f'https://127.0.0.1:{port}', f'http://localhost:{port}',
                   f'http://127.0.0.1:{port}.evil.example', 'file://', ''):
        expect(origin, server.ask(headers={'Origin': origin})[0], 403)


def check_parts(server):
    """Numbers, and of what there is; everything of a range that is not too long."""
    for query in ('', 'track=0', 'track=0&from=1', 'track=x&from=0&to=1', 'track=0&from=-1&to=1',
                  'track=0&from=2&to=1', 'track=0&from=0&to=99999999999', 'track=0&from=0&to=1e3',
                  'track=0&from=%00&to=1', 'track=0&from=&to=1', 'track=4294967296&from=0&to=1'):
        expect(query, server.part(query)[0], 400)
    for count in (100, 500, 5000):  # the library is silent once they fill its memory
        expect(f'{count} arguments', server.part('&'.join(['track=0'] * count))[0], 414)
    for query in ('track=7&from=0&to=1', 'track=0&from=4000000000&to=4100000000'):
        expect(query, server.part(query)[0], 404)
    code, headers, body = server.part('track=0&from=500&to=540')
    expect('a part', (code, headers['content-type']), (200, 'application/octet-stream'))
    head, columns = read_part(body)
    expect('stretch', (head['from'], head['to'], head['restCount']), (500, 540, 0))
    expect('a group each', len(columns['d0.group0']), head['allocations'])
    whole, _ = read_part(server.part('track=0&from=0&to=4294967295')[2])
    expect('to the end, wherever that is', whole['from'] == 0 and whole['to'] > 2000, True)
    expect('all of it', whole['allocations'] > head['allocations'], True)


def check_crowd(server):
    """Many at once get what each asked for."""
    stretches = [(i * 7 % 900, i * 7 % 900 + i % 90) for i in range(300)]
    alone = {s: server.part(f'track=0&from={s[0]}&to={s[1]}')[2] for s in set(stretches)}
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(lambda s: server.part(f'track=0&from={s[0]}&to={s[1]}'), stretches))
    for stretch, (code, _, body) in zip(stretches, answers):
        expect(f'{stretch}', (code, body == alone[stretch]), (200, True))


class Drip:
    """Connections that never finish their request, but send a byte of it now and then: the library's own
    limit on idle ones never ends them."""

    def __init__(self, server, count, start=b'GET / HTTP/1.1\r\nX-Slow: '):
        self.server, self.start, self.sockets, self.ended = server, start, [], 0
        self.stopped = threading.Event()
        for _ in range(count):
            self.add()
        self.thread = threading.Thread(target=self.run)

    def add(self):
        one = socket.create_connection((self.server.address, self.server.port), timeout=HANG_S)
        one.setblocking(False)
        self.sockets.append(one)
        self.send(one, self.start)

    def send(self, one, data):
        try:
            one.send(data)
            if one.recv(4096) == b'':
                raise ConnectionResetError
        except BlockingIOError:
            pass
        except OSError:
            self.sockets.remove(one)
            one.close()
            self.ended += 1

    def run(self):
        while not self.stopped.wait(0.2):
            for one in list(self.sockets):
                self.send(one, b'x')

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *unused):
        self.stopped.set()
        self.thread.join()
        for one in self.sockets:
            one.close()


def check_slow_crowd(server):
    """Those who never finish their request keep nobody out, however many they are: the server ends them."""
    for start in (b'', b'GET ', b'GET / HTTP/1.1\r\nX-Slow: ',
                  b'POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999\r\n\r\n'):
        with Drip(server, 150, start) as crowd:
            for _ in range(20):
                expect(f'in a crowd of {start[:4]}', server.ask()[0], 200)
            while crowd.ended < 50:
                time.sleep(0.05)


def check_slow_one(server):
    """Even alone it is ended in the end."""
    with Drip(server, 1) as alone:
        while not alone.ended:
            time.sleep(0.05)


def check_flood(server):
    """Connections that come and go at once leave nothing behind."""
    def come_and_go(number):
        with socket.create_connection((server.address, server.port), timeout=HANG_S) as one:
            if number % 3:
                one.sendall(b'GET / HTTP/1.1\r\n')
            if number % 3 == 2:
                one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 0))
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        list(pool.map(come_and_go, range(2000)))
    expect('after a flood', server.ask()[0], 200)


def check_ends(tessera, path):
    for how in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        with Server(tessera, path) as server:
            expect('is there', server.ask()[0], 200)
            expect(how.name, server.stop(how), 0)
        with Server(tessera, path, '-q') as server:
            expect(f'{how.name} before anything was asked', server.stop(how), 0)


def check_addresses(tessera, path):
    """Each has its own secret; a port in use is reported."""
    with Server(tessera, path) as one, Server(tessera, path) as other:
        expect('secrets differ', one.token != other.token, True)
        done = subprocess.run([tessera, 'serve', '--port', str(one.port), path], capture_output=True,
                              text=True, timeout=HANG_S, check=False)
        expect('taken', (done.returncode, done.stdout), (4, ''))
        expect('it says so', 'cannot listen at 127.0.0.1' in done.stderr, True)
    with Server(tessera, path, '--host', '::1', address='::1') as server:
        expect('IPv6', server.ask(host=f'[::1]:{server.port}')[0], 200)
    for options, word in ((['--host', 'example.org'], 'address'), (['--port', '65536'], '65535')):
        done = subprocess.run([tessera, 'serve', *options, path], capture_output=True, text=True,
                              timeout=HANG_S, check=False)
        expect(options[0], (done.returncode, word in done.stderr), (2, True))


def tests(tessera, path):
    """(name, function) of each."""
    def served(check):
        def run():
            with Server(tessera, path) as server:
                check(server)
                expect('it still stands', server.ask()[0], 200)
        return run

    yield 'the page, with what belongs around it', served(check_page)
    yield 'nothing without the token', served(check_token)
    yield 'two paths and no other, GET and HEAD and no other', served(check_paths)
    yield 'other hosts and origins are refused', served(check_hosts)
    yield 'parts of a trace', served(check_parts)
    yield 'many requests at once', served(check_crowd)
    yield 'slow connections keep nobody out', served(check_slow_crowd)
    yield 'a request may not take forever', served(check_slow_one)
    yield 'a flood of connections', served(check_flood)
    yield 'signals end it', lambda: check_ends(tessera, path)
    yield 'addresses and ports', lambda: check_addresses(tessera, path)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--tessera', required=True)
    parser.add_argument('--work', required=True, type=pathlib.Path)
    arguments = parser.parse_args()
    tessera = str(pathlib.Path(arguments.tessera).resolve())
    shutil.rmtree(arguments.work, ignore_errors=True)
    arguments.work.mkdir(parents=True)
    path = arguments.work / 'waves.pickle'
    path.write_bytes(pickle.dumps(snapshot(waves(3000, ['forward', 'backward'])), protocol=4))
    probe = subprocess.run([tessera, 'serve', str(path), '--port', '65536'], capture_output=True,
                           text=True, check=False)
    if 'without libmicrohttpd' in probe.stderr:
        print('1..0 # SKIP built without libmicrohttpd')
        return 0
    return tap.run(tests(tessera, str(path)))


if __name__ == '__main__':
    sys.exit(main())
