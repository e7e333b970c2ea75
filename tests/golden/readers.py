"""readers.py: what tessera writes for other programs, read again: protocol buffers, and the columns of the page."""
import base64
import json
import re
import zlib

from support import expect

TOTALS = ('requested_bytes', 'allocated_bytes', 'active_bytes', 'reserved_bytes')


def totals(answer):
    return {name: answer[name] for name in TOTALS}


def sums(items, name, value='bytes'):
    """Bytes by name, without names that hold nothing."""
    out = {}
    for item in items:
        out[item[name]] = out.get(item[name], 0) + item[value]
    return {key: size for key, size in out.items() if size}


def numbers(data):
    """Numbers of any length, one after the other: of a column of the page, and of a packed field."""
    out, value, shift = [], 0, 0
    for byte in data:
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            out.append(value)
            value = shift = 0
    return out


# ---- protocol buffers ----

def varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at


def fields(data):
    """(number, value) of each field of a protocol buffers message."""
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        value, at = varint(data, at)
        if key & 7 == 2:
            value, at = data[at:at + value], at + value
        elif key & 7:
            raise AssertionError(f'wire type {key & 7}')
        yield key >> 3, value


# ---- the page: see viewer/src ----

def signed(data):
    return [-(value + 1) // 2 if value & 1 else value // 2 for value in numbers(data)]


def differences(data):
    out, value = [], 0
    for step in signed(data):
        value += step
        out.append(value)
    return out


def spans_of(data):
    """(bytes, born, died) of each range of reserved memory."""
    at = 0
    while at < len(data):
        at, values = at + 8, []
        while len(values) < 7:
            value, at = varint(data, at)
            values.append(value)
        yield values[:3]


class Track:
    """What a page has of one device: see viewer/src/device.ts."""

    def __init__(self, head, columns, device, prefix):
        self.device, self.columns, self.prefix = device, columns, prefix
        end = device['events'] + 1
        self.born = differences(self.column('born'))
        self.died = [born + life if life else end for born, life in
                     zip(self.born, numbers(self.column('life')))]
        self.released = [died - wait for died, wait in zip(self.died, numbers(self.column('wait')))]
        kinds = numbers(self.column('kinds'))
        self.kinds = numbers(self.column('kind'))
        self.nodes = kinds[::3]  # of the kinds, plus 1
        self.sizes = [kinds[1 + 3 * kind:3 + 3 * kind] for kind in self.kinds]

    def column(self, name):
        return self.columns[f'{self.prefix}{name}']

    def live(self, moment):
        return [i for i in range(len(self.born)) if self.born[i] <= moment < self.died[i]]

    def totals(self, moment):
        live = self.live(moment)
        return {'requested_bytes': sum(self.sizes[i][0] for i in live),
                'allocated_bytes': sum(self.sizes[i][1] for i in live if self.released[i] > moment),
                'active_bytes': sum(self.sizes[i][1] for i in live),
                'reserved_bytes': sum(size for size, born, died in spans_of(self.column('spans'))
                                      if born <= moment < died)}

    def groups(self, number, moment):
        group, names = self.column(f'group{number}'), self.device['groupings'][number]['names']
        return sums(({'name': names[group[i]], 'bytes': self.sizes[i][0]} for i in self.live(moment)), 'name')

    def stacks(self, moment, moved):
        """Requested bytes by stack; by class, of those that moved."""
        return sums(({'name': f'class {moved[node]}' if node in moved else node, 'bytes': self.sizes[i][0]}
                     for i in self.live(moment) for node in [self.nodes[self.kinds[i]] - 1]), 'name')


def read_pairs(columns):
    """Of two inputs, the classes of nodes that moved: see src/reader/page/pairs.c."""
    values = iter(numbers(columns.get('pairs', b'')))
    for first in values:
        second = next(values)
        yield (first, second), [{next(values): next(values) for _ in range(next(values))} for _ in range(2)]


def split(directory, data):
    columns, at = {}, 0
    for name, size in directory:
        columns[name] = data[at:at + size]
        at += size
    expect('columns are all there is', at, len(data))
    return columns


def read_page(html):
    parts = {name: re.search(rf'id="tessera-{name}">(.*?)</script>', html, re.S)[1] for name in ('head', 'data')}
    head = json.loads(parts['head'])
    columns = split(head['columns'], zlib.decompress(base64.b64decode(parts['data'])))
    return head, columns, [Track(head, columns, device, f'd{i}.') for i, device in enumerate(head['devices'])]
