"""Pickles spelled by hand, opcode by opcode: what Python's own pickler would never write, and the
dialect of PyTorch's C++ pickler."""
import struct

PROTO = b'\x80\x04'
STOP = b'.'


def text(value):
    """BINUNICODE forms; bytes stand as they are, so that they need not be UTF-8."""
    raw = value if isinstance(value, bytes) else value.encode('utf-8', 'surrogatepass')
    if len(raw) < 256:
        return b'\x8c' + bytes([len(raw)]) + raw
    return b'X' + struct.pack('<I', len(raw)) + raw


def number(value):
    """LONG1, whatever the size, or LONG4 beyond 255 bytes."""
    raw = value.to_bytes(value.bit_length() // 8 + 1, 'little', signed=True)
    if len(raw) < 256:
        return b'\x8a' + bytes([len(raw)]) + raw
    return b'\x8b' + struct.pack('<I', len(raw)) + raw


def real(value):
    return b'G' + struct.pack('>d', value)


def dict_of(pairs):
    """A dict of spelled values under keys that are texts, or spelled themselves."""
    return b'}(' + b''.join((key if isinstance(key, bytes) else text(key)) + value
                            for key, value in pairs.items()) + b'u'


def list_of(*items):
    return b'](' + b''.join(items) + b'e'


def call(module, name, *arguments):
    """module.name(*arguments), as protocol 4 asks for it."""
    return text(module) + text(name) + b'\x93(' + b''.join(arguments) + b'tR'


EVENT = {'action': text('alloc'), 'addr': number(0x7f0000000000), 'size': number(4096),
         'stream': number(0), 'time_us': number(1700000000000000)}
SEGMENT = {'device': number(0), 'address': number(0x7f0000000000), 'total_size': number(2 << 20),
           'allocated_size': number(4096), 'active_size': number(4096), 'stream': number(0),
           'segment_type': text('small')}
BLOCK = {'address': number(0x7f0000000000), 'size': number(4096), 'requested_size': number(4000),
         'state': text('active_allocated')}
FRAME = {'name': text('forward'), 'filename': text('/work/model.py'), 'line': number(31)}


def event(**changes):
    return dict_of({**EVENT, **changes})


def block(**changes):
    return dict_of({**BLOCK, **changes})


def segment(*blocks, **changes):
    return dict_of({**SEGMENT, 'blocks': list_of(*blocks), **changes})


def frame(**changes):
    return dict_of({**FRAME, **changes})


def top(**keys):
    return PROTO + dict_of(keys) + STOP


def snapshot(*events, segments=(), **more):
    return top(segments=list_of(*segments), device_traces=list_of(list_of(*events)), **more)


# ---- a small snapshot as Python has it ----

def small():
    """Two devices; one stack shared by two events, one by blocks; every kind of row."""
    frames = [{'name': 'forward', 'filename': '/work/model.py', 'line': 31},
              {'name': 'main', 'filename': '/work/train.py', 'line': 88}]
    shared, other = [frames[0], frames[1]], [frames[1]]

    def entry(action, addr, size, time_us, stack):
        return {'action': action, 'addr': addr, 'size': size, 'stream': 0, 'time_us': time_us,
                'compile_context': 'N/A', 'user_metadata': '', 'frames': stack}

    base = 0x7f0000000000
    trace = [entry('segment_alloc', base, 2 << 20, 10, shared),
             entry('alloc', base, 4000, 11, shared),
             entry('alloc', base + 4096, 500, 12, other),
             entry('free_requested', base + 4096, 500, 13, []),
             entry('free_completed', base + 4096, 500, 13, [])]
    blocks = [{'address': base, 'size': 4096, 'requested_size': 4000, 'state': 'active_allocated',
               'frames': shared},
              {'address': base + 4096, 'size': (2 << 20) - 4096, 'requested_size': 0,
               'state': 'inactive', 'frames': []}]
    segments = [{'device': 0, 'address': base, 'total_size': 2 << 20, 'allocated_size': 4096,
                 'active_size': 4096, 'requested_size': 4000, 'stream': 0, 'segment_type': 'small',
                 'segment_pool_id': (0, 0), 'is_expandable': False, 'frames': shared,
                 'blocks': blocks},
                {'device': 1, 'address': base + (1 << 40), 'total_size': 20 << 20,
                 'allocated_size': 0, 'active_size': 0, 'requested_size': 0, 'stream': 7,
                 'segment_type': 'large', 'segment_pool_id': (1, 2), 'is_expandable': True,
                 'frames': other, 'blocks': [{'address': base + (1 << 40), 'size': 20 << 20,
                                              'requested_size': 0, 'state': 'inactive',
                                              'frames': []}]}]
    return {'segments': segments,
            'device_traces': [trace, [entry('oom', 5 << 20, 40 << 20, 14, shared)]],
            'allocator_settings': {'max_split_size': -1, 'garbage_collection_threshold': 0.5,
                                   'roundup_power2_divisions': {'1': 0, '2': 4}},
            'external_annotations': [{'name': 'step', 'stage': 'START', 'device': 0,
                                      'time_us': 10},
                                     {'name': 'step', 'stage': 'END', 'device': 0,
                                      'time_us': 14}]}


# ---- the C++ pickler's dialect ----

class Cpp:
    """Protocol 2; containers in one batch, memoized after their contents and only when they are
    named again; equal texts written once; no tuple but those of pool ids."""

    def __init__(self, value):
        self.uses, self.memo, self.texts = {}, {}, {}
        self.kept, self.count = [], 0
        self.visit(value)
        self.bytes = b'\x80\x02' + self.spell(value) + STOP

    def visit(self, value):
        if not isinstance(value, (list, dict)):
            return
        self.kept.append(value)
        self.uses[id(value)] = self.uses.get(id(value), 0) + 1
        if self.uses[id(value)] == 1:
            for item in value.values() if isinstance(value, dict) else value:
                self.visit(item)

    def put(self):
        index, self.count = self.count, self.count + 1
        return index, b'q' + bytes([index]) if index < 256 else b'r' + struct.pack('<I', index)

    @staticmethod
    def get(index):
        return b'h' + bytes([index]) if index < 256 else b'j' + struct.pack('<I', index)

    def spell_text(self, value):
        if value in self.texts:
            return self.get(self.texts[value])
        self.texts[value], put = self.put()
        raw = value.encode()
        return b'X' + struct.pack('<I', len(raw)) + raw + put

    @staticmethod
    def spell_int(value):
        if 0 <= value < 256:
            return b'K' + bytes([value])
        if 0 <= value < 65536:
            return b'M' + struct.pack('<H', value)
        if -(1 << 31) <= value < 1 << 31:
            return b'J' + struct.pack('<i', value)
        return b'\x8a\x08' + struct.pack('<q', value)

    def spell(self, value):
        if isinstance(value, bool):
            return b'\x88' if value else b'\x89'
        if isinstance(value, int):
            return self.spell_int(value)
        if isinstance(value, float):
            return real(value)
        if isinstance(value, str):
            return self.spell_text(value)
        if isinstance(value, tuple):
            return b''.join(map(self.spell, value)) + b'\x86'
        if id(value) in self.memo:
            return self.get(self.memo[id(value)])
        if isinstance(value, dict):
            raw = b'}(' + b''.join(self.spell_text(key) + self.spell(item)
                                   for key, item in value.items()) + b'u'
        else:
            raw = b'](' + b''.join(map(self.spell, value)) + b'e'
        if self.uses[id(value)] > 1:
            self.memo[id(value)], put = self.put()
            raw += put
        return raw
