#!/usr/bin/env python3
"""The same snapshot in every form gives the same answers. Prints TAP.

usage: forms.py --tessera PATH --work FOLDER

Snapshots are the project's own fixtures and, where ../shared has them, real ones. Every one is written as
pickles of protocols 0 to 5, in the dialect of PyTorch's C++ pickler, as JSON, compressed, in a zip and in a
page; `info`, `peak` and `profile` must say the same of all."""
import argparse
import base64
import collections
import gzip
import io
import json
import lzma
import pathlib
import pickle
import shutil
import struct
import subprocess
import sys
import zipfile

from support import SNAPSHOTS, fixtures, load, run_tests, skip

REAL_NAMES = ('train-ctx100-annotated-torch2.6', 'private-pools-no-trace', 'short-trace',
              'torch2.0-history-layout-a')


class CppPickler:
    """PyTorch's C++ pickler: protocol 2, one batch a container, texts written once, and what is
    shared stored in the memo after its contents."""

    def __init__(self, root):
        self.out, self.memo, self.next = bytearray(b'\x80\x02'), {}, 0
        self.uses = collections.Counter()
        self.count(root)
        self.write(root)
        self.out += b'.'

    def count(self, value):
        if isinstance(value, (dict, list)):
            self.uses[id(value)] += 1
            if self.uses[id(value)] > 1:
                return
            for item in value.values() if isinstance(value, dict) else value:
                self.count(item)

    def store(self, key):
        self.memo[key] = self.next
        self.out += b'q' + bytes([self.next]) if self.next < 256 else (
            b'r' + struct.pack('<I', self.next))
        self.next += 1

    def refer(self, key):
        index = self.memo[key]
        self.out += b'h' + bytes([index]) if index < 256 else b'j' + struct.pack('<I', index)

    def write_int(self, value):
        if 0 <= value < 256:
            self.out += b'K' + bytes([value])
        elif 0 <= value < 65536:
            self.out += b'M' + struct.pack('<H', value)
        elif -2**31 <= value < 2**31:
            self.out += b'J' + struct.pack('<i', value)
        else:  # addresses from 2^63 on come out negative, as PyTorch casts them
            self.out += b'\x8a\x08' + struct.pack('<q', (value + 2**63) % 2**64 - 2**63)

    def write_container(self, value):
        if id(value) in self.memo:
            return self.refer(id(value))
        if isinstance(value, dict):
            self.out += b'}('
            for key, item in value.items():
                self.write(key)
                self.write(item)
            self.out += b'u'
        else:
            self.out += b']('
            for item in value:
                self.write(item)
            self.out += b'e'
        if self.uses[id(value)] > 1:
            self.store(id(value))

    def write(self, value):
        if isinstance(value, bool):
            self.out += b'\x88' if value else b'\x89'
        elif isinstance(value, int):
            self.write_int(value)
        elif isinstance(value, float):
            self.out += b'G' + struct.pack('>d', value)
        elif isinstance(value, str):
            if value in self.memo:
                return self.refer(value)
            data = value.encode('utf-8', 'surrogatepass')
            self.out += b'X' + struct.pack('<I', len(data)) + data
            self.store(value)
        elif isinstance(value, tuple):
            for item in value:
                self.write(item)
            self.out += {0: b')', 1: b'\x85', 2: b'\x86', 3: b'\x87'}[len(value)]
        else:
            self.write_container(value)


def zipped(data, member, method):
    out = io.BytesIO()
    with zipfile.ZipFile(out, 'w', method) as archive:
        archive.writestr(member, data)
    return out.getvalue()


def page(data):
    text = base64.b64encode(data + b'\0' * (3 - len(data) % 3)).decode()
    return (f'<!DOCTYPE html>\n<html><body><script type="module">\n'
            f'const local_files = [{{"name": "snapshot.pickle", "base64": "{text}"}}]\n'
            f"add_local_files(local_files, 'Active Memory Timeline')\n"
            f'</script></body></html>\n').encode()


def zstandard(data):
    return subprocess.run(['zstd', '-q', '-c'], input=data, capture_output=True, check=True).stdout


def forms(snapshot):
    """(name, the format tessera must tell, bytes) of every form."""
    plain = pickle.dumps(snapshot, 4)
    for protocol in range(6):
        yield f'protocol {protocol}', 'pickle', pickle.dumps(snapshot, protocol)
    yield 'C++ dialect', 'pickle', bytes(CppPickler(snapshot).out)
    yield 'JSON', 'json', json.dumps(snapshot).encode()
    yield 'spread JSON', 'json', json.dumps(snapshot, separators=(',\n    ', ' : ')).encode()
    yield 'gzip', 'gzip pickle', gzip.compress(plain)
    yield 'gzip JSON', 'gzip json', gzip.compress(json.dumps(snapshot).encode())
    yield 'xz', 'xz pickle', lzma.compress(plain)
    if shutil.which('zstd'):
        yield 'zstd', 'zstd pickle', zstandard(plain)
    yield 'zip, as torch.save', 'zip pickle', zipped(pickle.dumps(snapshot, 2), 'snapshot/data.pkl',
                                                     zipfile.ZIP_STORED)
    yield 'zip, deflated', 'zip pickle', zipped(plain, 'snapshot.pickle', zipfile.ZIP_DEFLATED)
    yield 'page', 'html pickle', page(plain)
    yield 'gzip page', 'gzip html pickle', gzip.compress(page(plain))


def answers(tessera, path, stdin=None):
    """What the three commands say, without what differs between forms by right."""
    result, told = [], None
    for command in ('info', 'peak', 'profile'):
        line = [tessera, command, '--json', '--top', '0', '-' if stdin else str(path)]
        done = subprocess.run(line, input=stdin, capture_output=True, check=False)
        if done.returncode:
            raise AssertionError(f'{command}: exit {done.returncode}: {done.stderr.decode()}')
        answer = json.loads(done.stdout)
        told = answer.pop('inputs')[0]['format']
        result.append(answer)
    return told, result


def long_run():
    """Of some thousand events, with many stacks of one length."""
    run = fixtures.Run(layers=24, width=2048, batch=8192)
    state = []
    run.model(run.devices[0], recorded=True)
    for number in range(3):
        run.step(run.devices[0], number, state)
    return run.snapshot()


def snapshots(work):
    fixtures.write(work / 'long.pickle', long_run())
    yield 'fixture', work / 'long.pickle'
    for name in REAL_NAMES:
        if (SNAPSHOTS / f'{name}.pickle').exists():
            yield name, SNAPSHOTS / f'{name}.pickle'


def check(tessera, copy, told, data, expected):
    copy.write_bytes(data)
    got_told, got = answers(tessera, copy)
    if got != expected:
        raise AssertionError('the answers differ')
    if got_told != told:
        raise AssertionError(f'told as {got_told}, not {told}')
    if answers(tessera, copy, data)[1] != expected:
        raise AssertionError('standard input differs')


def tests(tessera, work):
    """(name, function) of every test."""
    for name, path in snapshots(work):
        _, expected = answers(tessera, path)
        for form, told, data in forms(load(path)):
            yield f'{name}: {form}', lambda told=told, data=data, expected=expected: check(
                tessera, work / 'form.bin', told, data, expected)
    if not SNAPSHOTS.is_dir():
        yield 'real snapshots', skip('../shared is absent')
    if not shutil.which('zstd'):
        yield 'zstd', skip('the zstd program is absent')


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('--tessera', required=True)
    parser.add_argument('--work', required=True, type=pathlib.Path)
    arguments = parser.parse_args()
    arguments.work.mkdir(parents=True, exist_ok=True)
    return run_tests(tests(arguments.tessera, arguments.work))


if __name__ == '__main__':
    sys.exit(main())
