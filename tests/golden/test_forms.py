"""The same snapshot in every form gives the same answers.

Snapshots are the project's own and real ones. Every one is written as
pickles of protocols 0 to 5, in the dialect of PyTorch's C++ pickler, as JSON, compressed, in a zip and in a
page; `info`, `peak` and `profile` must return the same of all."""
import base64
import collections
import functools
import gzip
import io
import json
import lzma
import pickle
import shutil
import struct
import subprocess
import zipfile

import pytest
from support import SNAPSHOTS, absent, cases, expect, fixtures, load

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


def plain(snapshot):
    return pickle.dumps(snapshot, 4)


def as_json(snapshot, **how):
    return json.dumps(snapshot, **how).encode()


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


# By name: the format that tessera must recognize, and how a snapshot becomes its bytes.
FORMS = {
    **{f'protocol {protocol}': ('pickle', functools.partial(pickle.dumps, protocol=protocol)) for protocol in range(6)},
    'C++ dialect': ('pickle', lambda snapshot: bytes(CppPickler(snapshot).out)),
    'JSON': ('json', as_json),
    'spread JSON': ('json', functools.partial(as_json, separators=(',\n    ', ' : '))),
    'gzip': ('gzip pickle', lambda snapshot: gzip.compress(plain(snapshot))),
    'gzip JSON': ('gzip json', lambda snapshot: gzip.compress(as_json(snapshot))),
    'xz': ('xz pickle', lambda snapshot: lzma.compress(plain(snapshot))),
    'zstd': ('zstd pickle', lambda snapshot: zstandard(plain(snapshot))),
    'zip, as torch.save': ('zip pickle', lambda snapshot: zipped(pickle.dumps(snapshot, 2), 'snapshot/data.pkl', zipfile.ZIP_STORED)),
    'zip, deflated': ('zip pickle', lambda snapshot: zipped(plain(snapshot), 'snapshot.pickle', zipfile.ZIP_DEFLATED)),
    'page': ('html pickle', lambda snapshot: page(plain(snapshot))),
    'gzip page': ('gzip html pickle', lambda snapshot: gzip.compress(page(plain(snapshot)))),
}


def answers(tessera, path, **how):
    """The format that the program recognizes, and what the three commands return, without what differs between forms by right."""
    result, recognized = [], None
    for command in ('info', 'peak', 'profile'):
        answer = tessera.json(command, '--top', 0, path, text=False, **how)
        recognized = answer.pop('inputs')[0]['format']
        result.append(answer)
    return recognized, result


def long_run():
    """Of some thousand events, with many stacks of one length."""
    run = fixtures.Run(layers=24, width=2048, batch=8192)
    state = []
    run.model(run.devices[0], recorded=True)
    for number in range(3):
        run.step(run.devices[0], number, state)
    return run.snapshot()


@pytest.fixture(scope='module', params=['long', *REAL_NAMES] if SNAPSHOTS.is_dir() else ['long', absent(None)])
def original(request, tessera, work):
    """A snapshot, and what is answered of it as it is in its file."""
    path = SNAPSHOTS / f'{request.param}.pickle'
    if request.param == 'long':
        path = work / 'long.pickle'
        fixtures.write(path, long_run())
    return load(path), answers(tessera, path)[1]


@cases('form', FORMS, str)
def test_form(tessera, work, original, form):
    if form == 'zstd' and not shutil.which('zstd'):
        pytest.skip('the zstd program is absent')
    snapshot, expected = original
    recognized, make = FORMS[form]
    data, copy = make(snapshot), work / 'form.bin'
    copy.write_bytes(data)
    got_format, got = answers(tessera, copy)
    expect('the answers', got, expected)
    expect('the format', got_format, recognized)
    expect('the answers about standard input', answers(tessera, '-', input=data)[1], expected)
