#!/usr/bin/env python3
"""make.py [--short] FOLDER: writes the hostile files, what a stranger could send, and prints their names;
those of which nothing is expected but that they do no harm (run.py) begin with "any-". The same Python
writes the same files. With --short the longest traces are a tenth as long: their length is for
finding answers that take too long, not for finding errors in memory.

Whoever executes one of these files creates the file named by CANARY in the current folder."""
import base64
import gzip
import io
import itertools
import json
import lzma
import pathlib
import pickle
import random
import struct
import sys
import zipfile
import zlib

sys.dont_write_bytecode = True
import spell  # noqa: E402
from spell import (PROTO, STOP,  # noqa: E402
                   block, call, dict_of, event, frame, list_of, number, real, segment,
                   snapshot, text, top)

CANARY = 'was-executed'
LONGER = 30000  # events of the longest traces
COMMAND = text(f'touch {CANARY}')
LINE = f'touch {CANARY}'.encode()
SYSTEM = text('os') + text('system') + b'\x93'
EVIL = SYSTEM + COMMAND + b'\x85R'

# ---- 1. attempts to have code executed ----


def execution_alone():
    """The whole file is the attempt."""
    yield 'global-reduce', b'\x80\x02cos\nsystem\n' + COMMAND + b'\x85R.'
    yield 'global-protocol-0', b'(S\'' + LINE + b'\'\ncos\nsystem\n(S\'' + LINE + b'\'\ntR.'
    yield 'stack-global', PROTO + EVIL + STOP
    yield 'posix', PROTO + call('posix', 'system', COMMAND) + STOP
    yield 'eval', PROTO + call('builtins', 'eval', text(f'open("{CANARY}","w")')) + STOP
    yield 'exec-builtin', b'\x80\x02c__builtin__\nexec\n' + text(f'open("{CANARY}","w")') + b'\x85R.'
    yield 'import', PROTO + call('builtins', '__import__', text('antigravity')) + STOP
    yield 'popen', PROTO + call('subprocess', 'Popen', list_of(text('touch'), text(CANARY))) + STOP
    yield 'inst', b"(S'" + LINE + b"'\nios\nsystem\n."
    yield 'obj', b"(cos\nsystem\nS'" + LINE + b"'\no."
    yield 'newobj', PROTO + text('subprocess') + text('Popen') + b'\x93' + COMMAND + b'\x85\x81.'
    yield 'newobj-ex', (PROTO + text('subprocess') + text('Popen') + b'\x93' + COMMAND + b'\x85' +
                        dict_of({'shell': b'\x88'}) + b'\x92.')
    yield 'build', PROTO + call('types', 'SimpleNamespace') + dict_of({'x': EVIL}) + b'b.'
    yield 'build-slots', (PROTO + call('types', 'SimpleNamespace') + b'N' +
                          dict_of({'__setstate__': SYSTEM}) + b'\x86b' + COMMAND + b'b.')
    yield 'persid', b'\x80\x02Ptouch ' + CANARY.encode() + b'\n.'
    yield 'binpersid', PROTO + COMMAND + b'Q.'
    yield 'ext1', b'\x80\x02\x82\x01)R.'
    yield 'ext2', b'\x80\x02\x83\x01\x00)R.'
    yield 'ext4', b'\x80\x02\x84\x01\x00\x00\x00)R.'
    yield 'buffers', PROTO + b'\x97\x98.'
    yield 'partial', PROTO + call('functools', 'partial', SYSTEM, COMMAND) + b')R.'
    yield 'memo-call', PROTO + SYSTEM + b'\x940' + b'h\x00' + COMMAND + b'\x85R.'
    yield 'reduce-twice', PROTO + EVIL + b'0' + EVIL + STOP
    yield 'name-long', PROTO + call('m' * 100000, 'n' * 100000) + STOP
    yield 'name-controls', PROTO + call('a\x1b[31m\nb', 'c\x00d') + STOP
    yield 'name-numbers', PROTO + number(1) + number(2) + b'\x93)R.'
    yield 'name-empty', PROTO + call('', '') + STOP
    yield 'attribute', PROTO + call('builtins', 'getattr', SYSTEM, text('__call__')) + STOP
    yield 'second-pickle', spell.top(segments=list_of()) + PROTO + EVIL + STOP
    yield 'frame-hides', b'\x80\x04\x95\x05\0\0\0\0\0\0\0' + EVIL + STOP


def execution_inside():
    """A snapshot with the attempt in some place of it."""
    for key in spell.EVENT:
        yield f'event-{key}', snapshot(event(**{key: EVIL}), event())
    yield 'event-frames', snapshot(event(frames=EVIL))
    yield 'event-pool', snapshot(event(pool_id=EVIL))
    yield 'event-key', snapshot(dict_of({**spell.EVENT, EVIL: number(1)}))
    yield 'event-itself', snapshot(EVIL, event())
    yield 'frame', snapshot(event(frames=list_of(frame(), EVIL, frame(name=EVIL))))
    yield 'segment', snapshot(event(), segments=[EVIL, segment()])
    yield 'block', snapshot(event(), segments=[segment(EVIL, block(state=EVIL))])
    yield 'blocks', snapshot(event(), segments=[segment(blocks=EVIL)])
    yield 'segments', top(segments=EVIL, device_traces=list_of(list_of(event())))
    yield 'traces', top(segments=list_of(segment(block())), device_traces=EVIL)
    yield 'trace', top(segments=list_of(), device_traces=list_of(EVIL, list_of(event())))
    yield 'settings', snapshot(event(), allocator_settings=dict_of({'a': EVIL}))
    yield 'annotation', snapshot(event(), external_annotations=list_of(EVIL))
    yield 'unknown-key', snapshot(event(), payload=EVIL)
    yield 'host', snapshot(event(), host_segments=EVIL, host_traces=EVIL)
    yield 'host-inside', snapshot(
        event(), host_traces=list_of(list_of(event(), EVIL), EVIL),
        host_segments=list_of(EVIL, segment(blocks=EVIL), block(state=EVIL),
                              dict_of({'address': number(4096), 'size': EVIL, 'frames': EVIL})))
    yield 'internal', snapshot(event(internal_metadata=EVIL), event(internal_metadata=text('x')))
    yield 'top-key', PROTO + dict_of({'segments': list_of(), EVIL: EVIL}) + STOP
    yield 'top-built', top(segments=list_of())[:-1] + dict_of({'x': EVIL}) + b'b.'
    yield 'popped', PROTO + EVIL + b'0' + top(segments=list_of())[2:]
    # the few names that are known, with what they must not do
    yield 'defaultdict', top(segments=list_of(), x=call('collections', 'defaultdict', SYSTEM))
    yield 'ordered-state', top(segments=list_of(), x=call('collections', 'OrderedDict') +
                               dict_of({'__class__': SYSTEM}) + b'b')
    yield 'numpy-object', top(segments=list_of(), x=call(
        'numpy.core.multiarray', 'scalar', call('numpy', 'dtype', text('O8')),
        b'C' + bytes([len(PROTO + EVIL + STOP)]) + PROTO + EVIL + STOP))
    yield 'numpy-dtype', top(segments=list_of(), x=call('numpy', 'dtype', EVIL) + EVIL + b'b')
    yield 'numpy-sizes', top(segments=list_of(), x=list_of(*[
        call('numpy.core.multiarray', 'scalar', call('numpy', 'dtype', text(kind)), b'C\x02ab')
        for kind in ('i8', 'u2', 'b2', 'f2', 'f8', 'U2', 'i', '', 'i99')]))
    yield 'path', top(segments=list_of(), x=call('pathlib', 'PosixPath', EVIL, text('b' * 2000)))
    yield 'counter', top(segments=list_of(), x=call('collections', 'Counter', EVIL))
    yield 'deque', top(segments=list_of(), x=call('collections', 'deque', EVIL, number(-1)) +
                       b'(' + EVIL + b'e')
    yield 'type-tag', top(segments=list_of(), x=call('torch.jit._pickle', 'restore_type_tag', EVIL))
    yield 'call-of-list', top(segments=list_of(), x=list_of() + b')R')
    yield 'call-without-tuple', top(segments=list_of(), x=SYSTEM + number(1) + b'R')


# ---- 2. structure ----

UNDERFLOWS = {'pop': b'0', 'pop-mark': b'1', 'dup': b'2', 'reduce': b'R', 'append': b'a',
              'build': b'b', 'dict': b'd', 'appends': b'e', 'list': b'l', 'obj': b'o',
              'setitem': b's', 'tuple': b't', 'setitems': b'u', 'newobj': b'\x81',
              'tuple1': b'\x85', 'tuple2': b'\x86', 'tuple3': b'\x87', 'additems': b'\x90',
              'frozenset': b'\x91', 'newobj-ex': b'\x92', 'stack-global': b'\x93',
              'memoize': b'\x94', 'binput': b'q\x00', 'long-binput': b'r\0\0\0\0', 'put': b'p0\n',
              'binpersid': b'Q', 'inst': b'ia\nb\n', 'stop': b'.'}
BAD_TEXT = {'int': b'I1x\n', 'int-empty': b'I\n', 'int-sign': b'I-\n', 'long': b'L\n',
            'long-l': b'LL\n', 'float': b'F1,5\n', 'float-tail': b'F1.5x\n', 'float-long':
            b'F' + b'1' * 100 + b'\n', 'float-empty': b'F\n', 'string': b'Sabc\n',
            'string-quotes': b"S'abc\"\n", 'string-short': b"S'\n", 'get': b'gx\n',
            'get-negative': b'g-1\n', 'get-huge': b'g99999999999999999999\n', 'put': b'Np\n',
            'put-negative': b'Np-5\n', 'put-huge': b'Np99999999999999999999\n',
            'put-far': b'Np4000000\n'}


def structure():
    for name, opcode in UNDERFLOWS.items():
        yield f'underflow-{name}', PROTO + opcode + STOP
        yield f'below-mark-{name}', PROTO + b'NNNN(' + opcode + STOP
    for name, line in BAD_TEXT.items():
        yield f'text-{name}', PROTO + line + STOP
        yield f'cut-text-{name}', PROTO + line[:-1]
    for byte in (0x00, 0x01, 0x0a, 0x20, 0x41, 0x5a, 0x66, 0x7f, 0x99, 0xa0, 0xc0, 0xfe, 0xff):
        yield f'opcode-{byte:02x}', PROTO + b'N' + bytes([byte]) + STOP
    yield 'protocol-6', b'\x80\x06N.'
    yield 'protocol-again', b'\x80\x04\x80\xff.'
    yield 'only-protocol', PROTO
    yield 'get-unknown', PROTO + b'h\x07.'
    yield 'long-get-unknown', PROTO + b'j\xff\xff\xff\xff.'
    yield 'put-far', b'\x80\x02]r\xff\xff\xff\xff.'
    yield 'put-sparse', PROTO + b''.join(b'Nq' + bytes([k]) for k in range(0, 240, 3)) + b'h\x04.'
    yield 'long4-negative', PROTO + b'\x8b\xff\xff\xff\xff.'
    yield 'long4-huge', PROTO + b'\x8b\xff\xff\xff\x7f.'
    yield 'long1-past-end', PROTO + b'\x8a\xff\x01'
    yield 'text8-huge', PROTO + b'\x8d' + b'\xff' * 8 + STOP
    yield 'bytes8-huge', PROTO + b'\x8e' + b'\xff' * 7 + b'\x7f' + STOP
    yield 'bytearray-huge', PROTO + b'\x96' + b'\x00' * 7 + b'\x01' + STOP
    yield 'text-at-limit', PROTO + b'X' + struct.pack('<I', 64 << 20) + b'abc'
    yield 'text-past-limit', PROTO + b'X' + struct.pack('<I', (64 << 20) + 1) + b'abc'
    yield 'frame-huge', PROTO + b'\x95' + b'\xff' * 8 + top(segments=list_of())[2:]
    yield 'setitems-odd', PROTO + b'}(' + text('segments') + list_of() + text('a') + b'u.'
    yield 'append-to-number', PROTO + number(1) + number(2) + b'a.'
    yield 'setitem-on-list', PROTO + b']' + text('a') + number(1) + b's.'
    yield 'marks', PROTO + b'(' * 20000 + STOP
    yield 'pop-marks', PROTO + b'(' * 9000 + b'1' * 9000 + top(segments=list_of())[2:]
    yield 'stop-inside', PROTO + b'}(' + text('segments') + b'](' + b'.'
    yield 'many-on-stack', b'\x80\x02' + b'N' * 50 + top(segments=list_of())[2:]


def deep():
    yield 'deep-lists', PROTO + b']' * 300000 + b'a' * 299999 + STOP
    yield 'deep-tuples', PROTO + b'N' + b'\x85' * 300000 + STOP
    yield 'deep-dicts', PROTO + (b'}' + text('a')) * 100000 + b'N' + b's' * 100000 + STOP
    yield 'deep-marks', PROTO + b'](' * 200000 + STOP
    yield 'deep-frames', snapshot(event(frames=b']' * 100000 + b'a' * 99999))
    yield 'deep-setting', snapshot(event(), deep=b']' * 100000 + b'a' * 99999)
    yield 'deep-metadata', snapshot(event(user_metadata=b'N' + b'\x85' * 50000))
    yield 'deep-metadata-dict', snapshot(event(user_metadata=(b'}' + text('a')) * 50000 + b'N' + b's' * 50000))
    yield 'deep-metadata-text', snapshot(event(user_metadata=text('{"a":' * 50000)))
    yield 'long-metadata', snapshot(event(user_metadata=text('{"name":"' + '\x1b[2J\u202e' * 20000 + '"}')))
    yield 'annotate-nothing', snapshot(event(action=text('annotate'), user_metadata=list_of()))
    yield 'deep-below-limit', snapshot(event(), deep=b']' * 900 + b'a' * 899)
    memo = b'\x94'
    yield 'self-list', PROTO + b']' + memo + b'h\x00a.'
    yield 'self-dict', PROTO + b'}' + memo + text('segments') + b'h\x00s.'
    yield 'self-value', PROTO + b'}' + memo + b'(' + text('segments') + list_of() + text('me') + b'h\x00u.'
    yield 'self-frames', snapshot(event(frames=b']' + memo + b'h\x00a'))
    yield 'self-frame-extra', snapshot(event(frames=b']' + memo + b'(' + frame(more=b'h\x00') + b'e'))
    yield 'self-event', snapshot(b'}' + memo + text('action') + text('alloc') + b's' +
                                 text('user_metadata') + b'h\x00s')
    yield 'self-blocks', snapshot(event(), segments=[
        b'}' + memo + text('total_size') + number(1) + b's' + text('blocks') + b'h\x00s'])
    yield 'self-history', snapshot(event(), segments=[segment(
        b'}' + memo + text('state') + text('inactive') + b's' + text('size') + number(1) + b's' +
        text('history') + b'h\x00s')])
    yield 'blocks-hold-segments', PROTO + b'}(' + text('segments') + b']' + memo + b'(' + segment(
        blocks=b'h\x00') + b'e' + text('device_traces') + list_of() + b'u.'
    yield 'history-holds-list', snapshot(event(), segments=[segment(
        dict_of({**spell.BLOCK, 'history': b']' + memo + b'(' + dict_of({'x': b'h\x00'}) + b'e'}))])
    yield 'trace-holds-itself', PROTO + b'}(' + text('device_traces') + b'](]' + memo + b'(' + event() + (
        b'h\x00' + event() + b'eeu.')
    yield 'cycle-of-two', snapshot(event(), x=b']' + memo + b']' + b'\x94' + b'h\x00a' + b'a')


def bombs():
    def layers(opening, closing):
        spelled = PROTO + b'}(' + text('segments') + list_of() + text('x') + opening + b'N' + closing
        for index in range(40):
            spelled += opening + (b'h' + bytes([index])) * 10 + closing
        return spelled + b'l' + b'u.'
    yield 'laughs-lists', layers(b'](', b'e\x94').replace(text('x'), text('x') + b'(', 1)
    yield 'laughs-tuples', layers(b'(', b't\x94').replace(text('x'), text('x') + b'(', 1)
    yield 'dup-bomb', PROTO + b']' + b'2' * 1000000 + STOP
    yield 'dup-appended', snapshot(event(), x=b'](' + list_of(number(1)) + b'2' * 300000 + b'e')
    yield 'named-frames', snapshot(event(frames=b'](' + frame() + b'\x94' + b'h\x00' * 120000 + b'e'))
    yield 'named-events', snapshot(event() + b'\x94' + b'h\x00' * 300000)
    yield 'named-events-rich', snapshot(
        dict_of({**spell.EVENT, **{f'key{k}': number(k) for k in range(1000)}}) + b'\x94' +
        b'h\x00' * 100000)
    yield 'named-blocks', snapshot(event(), segments=[segment(block() + b'\x94' + b'h\x00' * 200000)])
    yield 'named-segments', snapshot(event(), segments=[segment(block()) + b'\x94' + b'h\x00' * 100000])
    yield 'same-key', snapshot(b'}(' + text('action') + text('alloc') + text('device_free') + b'\x940' +
                               (b'h\x00' + number(1)) * 150000 + b'u')
    yield 'same-key-frames', snapshot(b'}(' + text('action') + text('alloc') + text('frames') +
                                      b'\x940' + (b'h\x00' + list_of()) * 50000 + b'u')
    yield 'same-segments', PROTO + b'}(' + (text('segments') + list_of()) * 20000 + b'u.'
    yield 'many-devices', top(segments=list_of(), device_traces=list_of(*[list_of(event())] * 5000))
    yield 'many-traces', top(device_traces=list_of(*[list_of()] * 100000))
    yield 'many-segment-devices', snapshot(event(), segments=[
        segment(device=number(k)) for k in range(6000)])
    yield 'devices-and-stacks', snapshot(
        *[event(frames=list_of(frame(line=number(k)))) for k in range(3000)],
        segments=[segment(device=number(k)) for k in range(1500)])
    yield 'many-actions', snapshot(*[event(action=text(f'a{k}')) for k in range(3000)])
    yield 'many-streams', snapshot(*[event(stream=number(k)) for k in range(3000)])
    yield 'many-keys', snapshot(dict_of({**spell.EVENT, **{f'k{k}': b'N' for k in range(50000)}}))
    yield 'many-frame-keys', snapshot(event(frames=list_of(frame(**{f'k{k}': b'N'
                                                                    for k in range(5000)}))))
    yield 'open-lists', gzip.compress(PROTO + b']0' * 5000000 + STOP, 9, mtime=0)
    yield 'stack-of-nothing', gzip.compress(PROTO + b'N' * 17000000 + STOP, 9, mtime=0)
    yield 'stack-of-lines', gzip.compress(PROTO + b'I1\n' * 17000000 + STOP, 9, mtime=0)
    yield 'one-to-a-trace', gzip.compress(
        PROTO + b'}(' + text('device_traces') + b'](' + text('action') + b'\x940' +
        b'](}(h\x00h\x00ue' * 1000000 + b'eu.', 9, mtime=0)
    yield 'empty-events', gzip.compress(PROTO + b'}(' + text('device_traces') + b'](](' +
                                        text('action') + b'\x940' + b'}h\x00h\x00s' * 2000000 +
                                        b'eeu.', 9, mtime=0)
    yield 'malformed-frames', gzip.compress(snapshot(event(frames=b'](' + b'})' * 45000 + b'e'),
                                                     event(frames=b'](' + b']N' * 45000 + b'e')), 9,
                                            mtime=0)


def long_traces():
    """Many events and segments of the kinds that contradict each other, to answer in good time."""
    count, step = 10000, 2 << 20
    places = [(3 * k + 1) * step for k in range(count)]

    def events(action, addresses, size):
        return [{'action': action, 'addr': address, 'size': size, 'stream': 0, 'time_us': 1}
                for address in addresses]

    def segments(addresses, size, **more):
        return [{'device': 0, 'address': address, 'total_size': size, 'stream': 0,
                 'blocks': [{'size': size, 'requested_size': size, 'state': 'active_allocated'}],
                 **more} for address in addresses]

    near = [step + 512 * k for k in range(count)]
    scattered = [step + k * 7919 % count * 1024 for k in range(count)]
    for name, trace, final in (
            ('unmapped', events('segment_unmap', places, step), []),
            ('mapped', events('segment_map', places, step),
             segments(places, step, is_expandable=True)),
            ('mapped-unmapped', [event for place in places for event in (
                *events('segment_map', [place], step), *events('segment_unmap', [place], step))], []),
            ('segments', events('segment_alloc', places, step), segments(places, step)),
            ('segments-freed', events('segment_free', places, step), []),
            ('overlapping', events('alloc', near, 512), segments(near, step)),
            ('scattered', events('alloc', scattered, 512) + events('free_completed', scattered, 512),
             segments([step], 1024 * count)),
            ('unknown-frees', events('free_completed', scattered, 512), []),
            ('same-address', events('alloc', [step] * count, 512), segments([step], step))):
        yield f'long-{name}', gzip.compress(pickle.dumps(
            {'segments': final, 'device_traces': [trace]}, protocol=4), mtime=0)


def longer_traces(count=LONGER):
    """LONGER events and more, in random order, each of which would have to look at everything that the
    others left, if that were not kept in order."""
    step, base = 2 << 20, 0x7f0000000000
    rng = random.Random(20261121)

    def shuffled():
        return rng.sample(range(count), count)

    def entry(action, address, size, **more):
        return {'action': action, 'addr': base + address, 'size': size, 'stream': 0, 'time_us': 1,
                **more}

    def final(address, size, *blocks, **more):
        return {'device': 0, 'address': base + address, 'total_size': size, 'stream': 0,
                'segment_type': 'small', 'blocks': list(blocks), **more}

    def mapped():
        apart = [entry('segment_map', 4 * k * step, step) for k in shuffled()]
        taken = [entry('alloc', 512 * k, 512) for k in range(count)]
        whole = entry('segment_map', 0, 512 * count)
        yield 'unmaps-adjacent', [entry('segment_unmap', k * step, step) for k in shuffled()], []
        yield 'maps-apart', apart, []
        yield 'maps-unmaps', apart + [entry('segment_unmap', 4 * k * step, step)
                                      for k in shuffled()], []
        yield 'maps-of-streams', [dict(event, stream=k) for k, event in enumerate(apart)], []
        yield 'maps-among-segments', [
            entry(*what) for k in shuffled() for what in (
                ('segment_map', 4 * k * step, step), ('segment_alloc', (4 * k + 2) * step, step))], []
        yield 'unmaps-of-all', apart + [entry('segment_unmap', 0, 8 * count * step)] * count, []
        yield 'unmaps-in-use', [whole] + taken + [entry('segment_unmap', 0, 512 * count)] * count, []
        yield 'maps-again', [whole] + taken + [whole] * count, []
        yield 'maps-huge', [entry(action, 512 * k, 1 << 46) for action in (
            'segment_map', 'segment_unmap') for k in shuffled()], []
        yield 'expandable-streams', [entry('oom', 0, step)], [final(k * step, step, is_expandable=True) | {'stream': k % 2}
                                         for k in shuffled()]
        yield 'expandable-overlap', [entry('oom', 0, step)], [final(512 * k, 100 * step, is_expandable=True)
                                         for k in shuffled()]
        yield 'gaps-too-narrow', [entry('alloc', 20 * k * step, 12 << 20) for k in range(count)], [
            final(2 * k * step, step, is_expandable=True) for k in range(count)]
        yield 'expandable-free', [entry('alloc', (9 * count + k) * step, step) for k in range(count)], [
            final(3 * k * step, step, {'address': base + 3 * k * step, 'size': step,
                                       'state': 'inactive'}, is_expandable=True)
            for k in range(count)]

    def plain():
        taken = [entry('alloc', 512 * k, 512) for k in range(count)]
        yield 'allocs-between', [entry('alloc', (2 * k + 1) * step, 512) for k in shuffled()], [
            final(2 * k * step, step) for k in range(count)]
        yield 'allocs-inside', [entry('alloc', 1024 * k + 512, 512) for k in shuffled()], [
            final(0, 2048 * count)]
        yield 'allocs-overlap', [entry('alloc', 512 * k + 256, 512) for k in shuffled()], [
            final(512 * k, 100 * step) for k in shuffled()]
        yield 'frees-wait', [entry('segment_alloc', 0, 512 * count), *taken, *[
            entry('free_requested', 512 * k, 512) for k in shuffled()]], []
        yield 'segments-of-pages', [entry(action, 4096 * k, 4096) for action in (
            'segment_alloc', 'alloc', 'free_completed', 'segment_free') for k in shuffled()], []
        yield 'sizes-apart', [entry('segment_alloc', 100 * step * k, step + 512 * k)
                              for k in range(count)] + [
            entry('alloc', 100 * step * k, step + 512 * k) for k in range(count)], []
        yield 'pools', [entry(action, k * step, size) for action, size in (
            ('alloc', 512), ('free_completed', 512), ('segment_free', step)) for k in shuffled()], [
            final(k * step, step, segment_pool_id=(k, 0)) for k in range(count)]
        yield 'streams', [dict(event, stream=7919 * k) for k, event in enumerate(taken)], [
            final(0, 1024 * count)]
        yield 'oom', [entry('oom', k, 40 << 20, time_us=k) for k in range(count)], []

    for name, trace, segments in itertools.chain(mapped(), plain()):
        yield f'longer-{name}', gzip.compress(pickle.dumps(
            {'segments': segments, 'device_traces': [trace]}, protocol=4), mtime=0)
    yield 'longer-devices', gzip.compress(pickle.dumps({
        'segments': [final(k * step, step) | {'device': k % 3000} for k in range(2 * count)],
        'device_traces': [[entry('alloc', 0, 512, frames=[{'name': f'f{k}', 'filename': 'x',
                                                           'line': k}])] for k in range(3000)]},
        protocol=4), mtime=0)


# ---- 3. values ----

ODD_VALUES = {
    'none': b'N', 'true': b'\x88', 'minus-one': number(-1), 'most': number((1 << 63) - 1),
    'beyond-signed': number(1 << 63), 'all-ones': number((1 << 64) - 1),
    'beyond': number(1 << 64), 'least': number(-(1 << 63)), 'huge': number(1 << 900),
    'half': real(0.5), 'nan': real(float('nan')), 'infinite': real(float('inf')),
    'large-real': real(1e300), 'digits': text('12'), 'hexadecimal': text('0x10'), 'nothing': text(''),
    'many-digits': text('9' * 40), 'bytes': b'C\x02\xff\x00', 'list': list_of(number(1)),
    'dict': dict_of({'a': number(1)}), 'event': event(), 'frame': frame(), 'tuple': b'K\x01K\x02\x86',
    'opaque': b'\x97'}
KEYS = {
    'event': 'action addr device_free size stream time_us compile_context user_metadata pool_id '
             'frames category',
    'frame': 'name filename line extra',
    'segment': 'device address total_size allocated_size active_size requested_size stream '
               'segment_type segment_pool_id is_expandable frames blocks',
    'block': 'address size requested_size state history frames',
    'history': 'addr real_size frames',
    'annotation': 'name stage device time_us'}
TOP_KEYS = ('segments device_traces allocator_settings external_annotations '
            'tessera_initial_blocks')


def rows(row, key):
    """A snapshot with a row for each odd value, which it has under that key."""
    odd = [{key: value} for value in ODD_VALUES.values()]
    if row == 'event':
        return snapshot(*[event(**keys) for keys in odd])
    if row == 'frame':
        return snapshot(*[event(frames=list_of(frame(**keys))) for keys in odd])
    if row == 'segment':
        return snapshot(event(), segments=[segment(block(), **keys) for keys in odd])
    if row == 'block':
        return snapshot(event(), segments=[segment(*[block(**keys) for keys in odd])])
    if row == 'history':
        entry = {'addr': number(1), 'real_size': number(1)}
        return snapshot(event(), segments=[segment(*[
            block(history=list_of(dict_of({**entry, **keys}))) for keys in odd])])
    return snapshot(event(), external_annotations=list_of(*[
        dict_of({'name': text('a'), 'stage': text('START'), **keys}) for keys in odd]))


def values():
    for row, keys in KEYS.items():
        for key in keys.split():
            yield f'{row}-{key}', rows(row, key)
    for name, value in ODD_VALUES.items():
        for key in TOP_KEYS.split():
            yield f'top-{key}-{name}', top(**{'segments': list_of(), key: value})
        yield f'alone-{name}', PROTO + value + STOP
        yield f'key-{name}', snapshot(event(), x=b'}(' + value + value + b'u')


def contents():
    yield 'sizes-overflow', snapshot(*[event(addr=number(k * 512), size=number((1 << 63) - 1))
                                       for k in range(64)])
    yield 'sizes-of-all-ones', snapshot(*[event(addr=number((1 << 64) - 1 - k),
                                                size=number((1 << 64) - 1)) for k in range(9)])
    yield 'blocks-overflow', snapshot(event(), segments=[segment(*[
        block(size=number((1 << 64) - 1), requested_size=number((1 << 64) - 1))] * 5)])
    largest, ones = number(1 << 57), number((1 << 64) - 1)  # the largest size that is believed
    yield 'largest-sizes-overflow', snapshot(*[event(addr=number(k * 512), size=largest)
                                               for k in range(200)])
    yield 'largest-blocks-overflow', snapshot(event(), segments=[segment(*[
        block(size=largest, requested_size=largest)] * 200)])
    yield 'largest-maps', snapshot(*[
        event(action=text(action), addr=number(address), size=largest)
        for address in (0, (1 << 57) - 1, (1 << 64) - (1 << 57) - 1, (1 << 64) - (1 << 57))
        for action in ('segment_map', 'alloc', 'segment_unmap', 'segment_map')])
    for action in ('segment_map', 'segment_unmap', 'segment_alloc', 'segment_free', 'oom'):
        yield f'{action}-of-all-ones', snapshot(event(action=text(action), addr=number(0),
                                                      size=ones), event())
    for expandable in (False, True):
        whole = segment(block(address=number(0), size=ones, requested_size=ones),
                        address=number(0), total_size=ones, is_expandable=b'\x88' if expandable else b'\x89')
        yield f'segment-of-all-ones-{expandable}', snapshot(event(), segments=[whole])
        yield f'host-of-all-ones-{expandable}', snapshot(
            event(), host_segments=list_of(whole), host_traces=list_of(list_of(event(
                action=text('segment_alloc'), addr=number(0), size=ones))))
    yield 'segments-overlap', snapshot(event(), segments=[segment(block())] * 50)
    above = (16 << 20) + (2 << 20)
    yield 'segment-on-another', snapshot(*[
        event(action=text(action), addr=number(address), size=number(size << 20))
        for action, address, size in (('segment_alloc', 16 << 20, 20), ('alloc', 16 << 20, 2),
                                      ('segment_alloc', above, 4), ('segment_free', above, 4),
                                      ('alloc', above, 1), ('free_requested', above, 1),
                                      ('free_completed', above, 1), ('alloc', above, 3))])
    yield 'segment-wraps', snapshot(event(addr=number((1 << 64) - 512)), segments=[
        segment(block(address=number((1 << 64) - 512)), address=number((1 << 64) - 512))])
    yield 'alloc-again', snapshot(*[event()] * 20)
    yield 'free-again', snapshot(*[event(action=text('free_completed'))] * 20)
    yield 'segment-freed-in-use', snapshot(
        event(action=text('segment_alloc'), size=number(2 << 20)), event(),
        event(action=text('segment_free'), size=number(2 << 20)), event())
    yield 'unmap-what-is-not', snapshot(*[event(action=text('segment_unmap'), size=number(k << 21))
                                          for k in range(5)])
    yield 'map-wraps', snapshot(*[event(action=text('segment_map'), addr=number((1 << 64) - 4096),
                                        size=number(1 << 63))] * 3)
    yield 'times-backwards', snapshot(*[event(time_us=number(1000 - k)) for k in range(99)])
    yield 'times-least', snapshot(*[event(time_us=number(-(1 << 63)))] * 3)
    yield 'zero-sizes', snapshot(*[event(size=number(0), addr=number(0))] * 9, segments=[
        segment(block(size=number(0)), total_size=number(0))])
    yield 'names-drive-terminals', snapshot(event(frames=list_of(frame(
        name=text('\x1b]0;owned\x07\x1b[2J'), filename=text('\r\n\u202egnp.exe\x9b31m')))))
    yield 'names-surrogates', snapshot(event(frames=list_of(frame(name=text('\udcff\ud800')))))
    yield 'names-not-utf8', snapshot(event(frames=list_of(frame(name=text(b'\xff\xc0\x80\xed\xa0')))))
    yield 'names-script', snapshot(event(frames=list_of(frame(name=text('</script><script>')))))
    yield 'settings-odd', snapshot(event(), allocator_settings=dict_of({
        'max_split_size': text('x'), 'roundup_power2_divisions': list_of(b'N'),
        'garbage_collection_threshold': number(1 << 900), 'expandable_segments': b'N'}))
    yield 'roundup-huge', snapshot(event(size=number((1 << 63) + 1)), allocator_settings=dict_of({
        'max_split_size': number((1 << 63) - 1), 'roundup_power2_divisions': dict_of(
            {str(1 << k): number((1 << 63) - k) for k in range(17)})}))
    odd = [list_of(*[value] * 3) for value in ODD_VALUES.values()]
    yield 'initial-blocks-odd', snapshot(event(), tessera_initial_blocks=dict_of(
        {'0': list_of(*ODD_VALUES.values()), **{str(k + 1): v for k, v in enumerate(odd)}}))


# ---- 4. endings ----

def protocols():
    small = spell.small()
    for protocol in range(6):
        yield f'protocol-{protocol}', pickle.dumps(small, protocol=protocol)
    yield 'cpp', spell.Cpp(small).bytes
    yield 'json', json.dumps(small).encode()
    yield 'gzip', gzip.compress(pickle.dumps(small, protocol=4), mtime=0)


def endings():
    for name, whole in protocols():
        for part in range(1, 16):
            yield f'cut-{name}-{part:02}', whole[:len(whole) * part // 16]
        yield f'cut-{name}-last', whole[:-1]
        yield f'tail-{name}', whole + b'\x00garbage' + whole[:40]


# ---- 5. containers ----

def zipped(name, data, **changes):
    out = io.BytesIO()
    with zipfile.ZipFile(out, 'w') as archive:
        info = zipfile.ZipInfo(name)
        info.compress_type = changes.get('method', zipfile.ZIP_DEFLATED)
        archive.writestr(info, data)
    return out.getvalue()


def page(*values):
    return (b'<html><script>const local_files = [' +
            b', '.join(b'{"name": "s", "base64": "' + value + b'"}' for value in values) +
            b']</script></html>')


def with_dictionary_of_a_gibibyte(xz):
    """Say so in the header of the block, which follows that of the stream. To compress with such a
    dictionary would take eleven times as much memory."""
    size = (xz[12] + 1) * 4
    header = xz[12:16] + b'\x24' + xz[17:12 + size - 4]
    return xz[:12] + header + struct.pack('<I', zlib.crc32(header)) + xz[12 + size:]


def containers():
    whole = pickle.dumps(spell.small(), protocol=4)
    zeros = bytes(80 << 20)
    packed = gzip.compress(whole, mtime=0)
    yield 'gzip-header-only', packed[:10]
    yield 'gzip-magic-only', packed[:2]
    yield 'gzip-wrong-sum', packed[:-8] + b'\0\0\0\0' + packed[-4:]
    yield 'gzip-wrong-size', packed[:-4] + b'\xff\xff\xff\xff'
    yield 'gzip-damaged', packed[:200] + b'\xff' * 20 + packed[220:]
    yield 'gzip-method', b'\x1f\x8b\x09' + packed[3:]
    yield 'gzip-bomb', gzip.compress(PROTO + b'X' + struct.pack('<I', 0xfffffff0) + zeros, 9, mtime=0)
    yield 'gzip-bomb-json', gzip.compress(b'{"segments": [' + b' ' * (80 << 20), 9, mtime=0)
    yield 'gzip-bomb-in-gzip', gzip.compress(gzip.compress(PROTO + b'N0' * (60 << 20), 9, mtime=0), 9,
                                             mtime=0)
    yield 'gzip-of-gzip-of-gzip', gzip.compress(gzip.compress(gzip.compress(packed, mtime=0), mtime=0),
                                                mtime=0)
    yield 'gzip-five-times', gzip.compress(gzip.compress(gzip.compress(gzip.compress(
        packed, mtime=0), mtime=0), mtime=0), mtime=0)
    yield 'zstd-magic-only', b'\x28\xb5\x2f\xfd'
    yield 'zstd-window', b'\x28\xb5\x2f\xfd\x00\xff' + bytes(50)
    yield 'zstd-size-huge', b'\x28\xb5\x2f\xfd\xe0' + b'\xff' * 8 + bytes(50)
    yield 'zstd-run', b'\x28\xb5\x2f\xfd\x00\x58' + (b'\x02\x00\x10' + b'\0') * 2000
    yield 'zstd-dictionary', b'\x28\xb5\x2f\xfd\x03\x58' + b'\x01\x02\x03\x04' + bytes(20)
    yield 'zstd-skippable-huge', b'\x50\x2a\x4d\x18\xff\xff\xff\xff' + b'abc'
    yield 'zstd-garbage', b'\x28\xb5\x2f\xfd' + random.Random(1).randbytes(300)
    squeezed = lzma.compress(whole)
    yield 'xz-header-only', squeezed[:12]
    yield 'xz-cut', squeezed[:-30]
    yield 'xz-wrong-sum', squeezed[:-40] + b'\0\0\0\0' + squeezed[-36:]
    yield 'xz-garbage', b'\xfd7zXZ\0' + random.Random(2).randbytes(300)
    yield 'xz-bomb', lzma.compress(PROTO + b'N0' * (60 << 20), preset=1)
    yield 'xz-dictionary', with_dictionary_of_a_gibibyte(squeezed)
    archive = zipped('archive/data.pkl', whole)
    yield 'zip-empty', b'PK\x05\x06' + b'\0' * 18
    yield 'zip-nothing-known', zipped('readme.txt', b'hello')
    yield 'zip-cut', archive[:200]
    yield 'zip-wrong-sum', archive.replace(archive[14:18], b'\0\0\0\0')
    yield 'zip-method', archive[:8] + b'\x0c\x00' + archive[10:]
    yield 'zip-encrypted', archive[:6] + b'\x01\x00' + archive[8:]
    yield 'zip-name-huge', archive[:26] + b'\xff\xff\xff\xff' + archive[30:]
    yield 'zip-sizes-huge', archive[:18] + b'\xfe\xff\xff\xff' * 2 + archive[26:]
    yield 'zip-name-climbs', zipped('../../etc/data.pkl', whole)
    yield 'zip-garbage', b'PK\x03\x04' + random.Random(3).randbytes(300)
    yield 'zip-bomb', zipped('data.pkl', PROTO + b'N0' * (60 << 20))
    yield 'html-nothing', b'<html><script>const local_files = []</script></html>'
    yield 'html-no-script', b'<html><body>hello</body></html>'
    yield 'html-empty-value', page(b'')
    yield 'html-not-base64', page(b'!!!!')
    yield 'html-damaged', page(base64.b64encode(whole)[:800] + b'!' + base64.b64encode(whole)[801:])
    yield 'html-cut', page(base64.b64encode(whole))[:900]
    yield 'html-two', page(base64.b64encode(whole), base64.b64encode(whole))
    yield 'html-text', page(base64.b64encode(b'hello world, this is no snapshot'))
    yield 'html-executes', page(base64.b64encode(PROTO + EVIL + STOP))
    yield 'empty', b''
    yield 'zeros', bytes(1000)
    yield 'elf', b'\x7fELF' + bytes(500)
    yield 'text', b'hello world\n' * 50
    yield 'random', random.Random(4).randbytes(5000)
    yield 'tar-like', json.dumps({'x' * 250: 'ustar', 'segments': []}).encode()


def jsons():
    yield 'deep', b'[' * 400000
    yield 'deep-objects', b'{"a":' * 400000
    yield 'deep-closed', b'{"segments":[],"x":' + b'[' * 9000 + b']' * 9000 + b'}'
    yield 'numbers', (b'{"segments":[],"device_traces":[[{"action":"alloc","addr":1e400,"size":-0.0,'
                      b'"stream":-1,"time_us":1e-400},{"action":"alloc","addr":'
                      b'123456789012345678901234567890,"size":1.5}]]}')
    yield 'number-long', b'{"segments":[],"x":' + b'1' * 100000 + b'.5}'
    yield 'same-keys', b'{"segments":[],"device_traces":[[{"action":"alloc",' + (
        b'"addr":1,' * 50000) + b'"size":1}]]}'
    yield 'keys-odd', b'{"segments":[],"":{"":{"\\u0000":[]}},"\\ud800":"\\udfff"}'
    yield 'escape', b'{"segments":["\\x41"]}'
    yield 'escape-short', b'{"segments":["\\u12"]}'
    yield 'control', b'{"segments":["a\nb"]}'
    yield 'comma', b'{"segments":[1,]}'
    yield 'colon', b'{"segments" []}'
    yield 'single-quotes', b'{\'segments\': []}'
    yield 'comment', b'{"segments": [] /* none */}'
    yield 'word', b'{"segments": nil}'
    yield 'not-utf8', b'{"segments":[],"x":"\xff\xfe\xc0\x80"}'
    yield 'other', b'{"name": "not a snapshot", "version": 2}'
    yield 'list', b'[1, 2, 3]'
    yield 'two', b'{"segments":[]}{"segments":[]}'
    yield 'stack-of-odds', b'{"device_traces":[[' + b','.join(
        [b'{"action":"alloc","frames":[{"name":[{}]},[[]],{"filename":{"a":[1]}},7]}'] * 3000) + b']]}'


# ---- 6. lists of allocations in other programs' forms ----

PAGE = 512
COLUMNS = 'start, bytes, address, memoryOperationType, deviceId, correlationId, name'


def big_varint(value):
    """A number as SQLite writes it: seven bits a byte, the largest first."""
    parts = [value & 127]
    while value := value >> 7:
        parts.append(value & 127 | 128)
    return bytes(reversed(parts))


def record(*values):
    types = b''.join(big_varint(6 if isinstance(one, int) else 13 + 2 * len(one)) for one in values)
    body = b''.join(struct.pack('>q', one) if isinstance(one, int) else one for one in values)
    return big_varint(len(types) + 1) + types + body


def leaf(cells, offset=0, count=None, at=None):
    """A page with rows: its cells are at the end, unless `at` is where each is."""
    page, end, places = bytearray(PAGE), PAGE, []
    for cell in cells:
        end -= len(cell)
        page[end:end + len(cell)] = cell
        places.append(end)
    places = at or places
    head = struct.pack('>BHHHB', 13, 0, len(places) if count is None else count, end, 0) + b''.join(struct.pack('>H', place) for place in places)
    page[offset:offset + len(head)] = head
    return bytes(page)


def interior(children, right):
    """A page that refers to others."""
    page, end, places = bytearray(PAGE), PAGE, []
    for child in children:
        end -= 5
        page[end:end + 5] = struct.pack('>IB', child, 1)
        places.append(end)
    head = struct.pack('>BHHHBI', 5, 0, len(places), end, 0, right) + b''.join(struct.pack('>H', place) for place in places)
    return head + bytes(page[len(head):])


def cell(row, number=1):
    return big_varint(len(row)) + big_varint(number) + row


def database(*pages, root=2, columns=COLUMNS, size=PAGE):
    """A database with the table of allocations, whose pages follow the first."""
    name = b'CUDA_GPU_MEMORY_USAGE_EVENTS'
    row = record(b'table', name, name, root, b'CREATE TABLE ' + name + b' (' + columns.encode() + b')')
    page = bytearray(leaf([cell(row)], 100))
    page[:100] = b'SQLite format 3\0' + struct.pack('>HBBBBBB', size, 1, 1, 0, 64, 32, 32) + struct.pack('>I', 1) * 8 + bytes(44)
    page[56:60] = struct.pack('>I', 1)
    return bytes(page) + b''.join(pages)


def databases():
    row = record(1, 512, 4096, 0, 0, 1, b'x')
    yield 'sqlite', database(leaf([cell(row)]))
    yield 'sqlite-no-pages', database()
    yield 'sqlite-root-0', database(leaf([cell(row)]), root=0)
    yield 'sqlite-root-beyond', database(leaf([cell(row)]), root=1 << 40)
    yield 'sqlite-circle', database(interior([2, 2], 2))
    yield 'sqlite-circle-of-two', database(interior([3], 3), interior([2], 2))
    yield 'sqlite-tree', database(interior([3] * 40, 3), leaf([cell(row)]))  # each of them once more
    yield 'sqlite-deep', database(*[interior([], page + 3) for page in range(60)], leaf([cell(row)]))
    yield 'sqlite-overlap', database(leaf([cell(row)], count=200, at=[PAGE - len(cell(row))] * 200))
    yield 'sqlite-count', database(leaf([cell(row)], count=65535))
    yield 'sqlite-cell-beyond', database(leaf([], at=[511, 65535, 510]))
    yield 'sqlite-long', database(leaf([big_varint(1 << 40) + b'\1' + row + bytes(100)]))
    yield 'sqlite-overflow', database(leaf([big_varint(1 << 30) + b'\1' + row + b'\0\0\0\2' * 100]), struct.pack('>I', 3) + bytes(PAGE - 4))
    yield 'sqlite-type', database(bytes([10]) + leaf([])[1:])
    yield 'sqlite-header', database(leaf([b'\x05\1\x7f\x06\x06\x06\x06']))
    yield 'sqlite-varints', database(leaf([b'\xff' * 20]))
    yield 'sqlite-texts', database(leaf([cell(record(b'a', b'b', b'c', b'd', b'e', b'f', b'g'))]))
    yield 'sqlite-sizes', database(leaf([cell(record(1, -1, -4096, 0, 0, 0, b'')), cell(record(-1 << 63, -1 << 63, 0, 0, 0, 0, b'')),
                                         cell(record((1 << 63) - 1, 0, -1, 1, 0, -1, b''))]))
    yield 'sqlite-devices', database(leaf([cell(record(n, n, n, 0, 4000 + 60 * n, 0, b'')) for n in range(5)]))
    yield 'sqlite-page-size', database(leaf([cell(row)]), size=700)
    yield 'sqlite-page-size-1', database(leaf([cell(row)]), size=1)
    yield 'sqlite-statement', database(leaf([cell(row)]), columns='/* "start')
    yield 'sqlite-columns', database(leaf([cell(row)]), columns='"a" (((( , [start], `bytes` INT)')
    yield 'sqlite-cut', database(leaf([cell(row)]))[:-1]
    yield 'sqlite-header-alone', database()[:100]
    yield 'sqlite-magic-alone', database()[:16]


def tables():
    yield 'csv-quote', b'action,bytes\nalloc,5\nalloc,"6'
    yield 'csv-quote-in-header', b'action,bytes,"\nalloc,5'
    yield 'csv-zeros', b'action,bytes\nalloc,\0\0\nalloc\0,5\n\0\n'
    yield 'csv-long', b'action,bytes\n"' + b'a' * (2 << 20)
    yield 'csv-wide', b'action,bytes' + b',x' * 5000 + b'\nalloc,1' + b',' * 5000 + b'\n'
    yield 'csv-sums', b'action,bytes,address\n' + b''.join(b'alloc,18446744073709551614,%d\n' % n for n in range(5))
    yield 'csv-totals', b'action,bytes,allocated_bytes,reserved_bytes\nalloc,1,18446744073709551614,1\nfree,1,0,18446744073709551614\nalloc,5,2,0\n'
    yield 'csv-times', b'action,bytes,time_s\nalloc,1,9223372036\nalloc,1,9223372037\nalloc,1,-9223372036.854775807\nfree,1,.5\n'
    yield 'csv-devices', b'action,bytes,device\nalloc,1,4095\nalloc,1,4096\nalloc,1,4294967293\nalloc,1,-1\nalloc,1,cpu\nalloc,1,host\n'
    yield 'csv-controls', b'action,bytes,stack,"n\xc2\x9bte"\nalloc,1,f\x1b[31m (\x07:1),\n'
    yield 'csv-columns-twice', b'action,action,bytes,size\nfree,alloc,1,2\n'


def spell_varint(value):
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def field(number_of, value):
    if isinstance(value, int):
        return spell_varint(number_of << 3) + spell_varint(value)
    return spell_varint(number_of << 3 | 2) + spell_varint(len(value)) + value


def profiles():
    space = field(1, field(1, 1) + field(2, 2))
    texts = b''.join(field(6, one) for one in (b'', b'space', b'bytes', b'device', b'cuda:0', b'kind', b'x' * 100))

    def sample(size, *places, label=4):
        return field(2, field(1, b''.join(map(spell_varint, places))) + field(2, spell_varint(size)) + field(3, field(1, 3) + field(2, label)))

    function, line = field(5, field(1, 1) + field(2, 1) + field(4, 2)), field(4, field(1, 1) + field(2, 7))
    yield 'pprof', space + function + field(4, field(1, 1) + line) + sample(512, 1) + texts
    yield 'pprof-nothing', space + texts
    yield 'pprof-no-texts', space + sample(512)
    yield 'pprof-cut', (space + function + texts)[:-3]
    yield 'pprof-deep', space + function + field(4, field(1, 1) + line * 60) + sample(512, *[1] * 3000) + texts
    yield 'pprof-lines', space + function + field(4, field(1, 1) + line * 5000) + sample(512, 1) + texts
    yield 'pprof-sums', space + sample(1 << 60) + sample(1 << 60) + texts
    yield 'pprof-negative', space + sample((1 << 64) - 5) + sample(7) + texts
    yield 'pprof-labels', space + b''.join(sample(n + 1, label=n + 4) for n in range(5000)) + texts + b''.join(field(6, b'gpu:0 %d' % n) for n in range(5000))
    yield 'pprof-counts', (field(1, field(1, 1) + field(2, 2)) + field(1, field(1, 3) + field(2, 4)) +
                           field(2, field(2, spell_varint(1 << 60) + spell_varint(1 << 60))) +
                           b''.join(field(6, one) for one in (b'', b'space', b'bytes', b'allocations', b'count')))
    yield 'pprof-unknown', space + field(2, field(1, b'\5\6') + field(2, b'\7')) + field(4, field(1, 9)) + field(99, b'?') + texts
    yield 'pprof-damaged', space + field(2, b'\xff' * 30) + texts
    yield 'pprof-time', field(1, field(1, 1) + field(2, 2)) + field(6, b'') + field(6, b'cpu') + field(6, b'nanoseconds')


# ---- 7. changes at random ----

def mutations():
    """Anything may come of these but a crash, a hang and code that is executed."""
    rng = random.Random(20240607)
    for name, whole in protocols():
        for number_of in itertools.chain([1] * 5, [3] * 4, [20] * 3):
            changed = bytearray(whole)
            for _ in range(number_of):
                changed[rng.randrange(len(changed))] = rng.randrange(256)
            yield f'flip-{name}', bytes(changed)
        for _ in range(3):
            first, last = sorted(rng.randrange(len(whole)) for _ in range(2))
            yield f'splice-{name}', whole[:first] + whole[last:]
            yield f'repeat-{name}', whole[:last] + whole[first:]


GROUPS = {'exec': (execution_alone, execution_inside), 'structure': (structure, deep, bombs),
          'values': (values, contents, long_traces, longer_traces), 'end': (endings,), 'container': (containers,),
          'json': (jsons,), 'list': (databases, tables, profiles)}


def cases(is_short):
    """(name, bytes) of every file of which it is known what comes of it."""
    for group, makers in GROUPS.items():
        for maker in makers:
            made = maker(LONGER // 10) if is_short and maker is longer_traces else maker()
            for name, data in made:
                yield f'{group}-{name}', data


def main(arguments):
    is_short = arguments[:1] == ['--short']
    if len(arguments) != 1 + is_short:
        sys.exit('usage: make.py [--short] FOLDER')
    changed = ((f'any-{index:03}-{name}', data) for index, (name, data) in enumerate(mutations()))
    for name, data in itertools.chain(cases(is_short), changed):
        (pathlib.Path(arguments[-1]) / name).write_bytes(data)
        print(name)


if __name__ == '__main__':
    main(sys.argv[1:])
