#!/usr/bin/env python3
"""seeds.py FOLDER: writes the seed corpora of the fuzz targets, each into its own folder.

They are small on purpose: a fuzzer changes a few bytes at a time, and a hundred bytes that reach a
rule are better than a file that reaches all of them. Run it when a format learns something new, and
keep what it writes; the same Python writes the same bytes.
"""
import base64
import collections
import gzip
import io
import json
import lzma
import math
import pathlib
import pickle
import struct
import sys
import tempfile
import zipfile
import zlib

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / 'hostile'))
import spell  # noqa: E402

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / 'golden'))
import allocations  # noqa: E402

WINDOWS = b'\x00'  # the byte with the size of the pieces


def old_layouts():
    """The history of PyTorch 1.13 and 2.0, and the bare list."""
    history = [{'addr': 4096, 'real_size': 500, 'frames': [{'name': 'f', 'filename': 'a.py',
                                                            'line': 3}]}]
    segment = {'device': 0, 'address': 4096, 'total_size': 2 << 20, 'allocated_size': 512,
               'active_size': 512, 'stream': 0, 'segment_type': 'small',
               'blocks': [{'size': 512, 'state': 'active_allocated', 'history': history},
                          {'size': (2 << 20) - 512, 'state': 'inactive'}]}
    return [segment]


def odd_types():
    snapshot = spell.small()
    top = collections.OrderedDict(snapshot)
    top['device_traces'] = collections.deque(snapshot['device_traces'])
    top['labels'] = {1, 2} # of texts, the order would differ from run to run
    top['counts'] = collections.Counter('aab')
    top['groups'] = collections.defaultdict(list, {'x': [1, 2.5, None, True]})
    top['where'] = pathlib.PurePosixPath('/a/b')
    top['raw'] = b'\x00\xff'
    return top


def long_trace():
    """Events in the form that the fast path reads: enough of them to be read there."""
    snapshot = spell.small()
    trace = snapshot['device_traces'][0]
    for number in range(12):
        trace.append({**trace[1], 'addr': trace[1]['addr'] + 8192 * number, 'time_us': 20 + number})
    return snapshot


def host_memory():
    """Pinned host memory, in two of its spellings, and an event of the allocator's own."""
    snapshot = spell.small()
    trace = snapshot['device_traces'][0]
    held = [{'address': 4096, 'size': 512, 'allocated': True, 'active': 1, 'pool_id': (0, 1),
             'frames': [{'name': 'f', 'filename': 'a.py', 'line': 3}]},
            {'address': 8192, 'size': 512, 'state': 'inactive'}]
    yield 'host', snapshot['segments'], [trace, trace[:2], []]
    yield 'host-flat', held, [{**event, 'stream': None, 'internal_metadata': 'x'}
                              for event in trace]


def pickles():
    snapshot = spell.small()
    for protocol in range(6):
        yield f'protocol-{protocol}', pickle.dumps(snapshot, protocol=protocol)
    yield 'cpp', spell.Cpp(snapshot).bytes
    yield 'old', pickle.dumps(old_layouts(), protocol=2)
    yield 'odd-types', pickle.dumps(odd_types(), protocol=4)
    yield 'odd-types-2', pickle.dumps(odd_types(), protocol=2)
    yield 'long', pickle.dumps(long_trace(), protocol=4)
    yield 'cut', pickle.dumps(snapshot, protocol=4)[:-200]
    for name, held, traces in host_memory():
        yield name, pickle.dumps({**snapshot, 'host_segments': held, 'host_traces': traces}, 2)
    yield 'opcodes', spell.top(segments=spell.list_of(), device_traces=spell.list_of(), odd=(
        b'(' + spell.text('a') + b'2' + b'0' + b'1' + b'(I1\nL-2L\nF1.5\nS\'a\\x41\'\nVb\\u0041\nl'
        + b')' + b'\x85' + spell.call('numpy', 'dtype', spell.text('i8')) + b'\x86'))


def jsons():
    snapshot = spell.small()
    yield 'compact', json.dumps(snapshot, separators=(',', ':'))
    yield 'indented', json.dumps(snapshot, indent=1)
    yield 'old', json.dumps(old_layouts())
    yield 'odd', '{"segments": [], "x": [1e400, -0.5, NaN, -Infinity, "\\ud83d\\ude00", {"a": {}}]}'
    yield 'cut', json.dumps(snapshot)[:-300]
    yield 'threshold', json.dumps({**snapshot, 'allocator_settings': {'garbage_collection_threshold': 1e308}}, separators=(',', ':'))


def zstd_stored(data):
    """A Zstandard frame of raw blocks: no compressor needed."""
    blocks = b''.join(struct.pack('<I', (len(data[at:at + 1000]) << 3) |
                                  (at + 1000 >= len(data)))[:3] + data[at:at + 1000]
                      for at in range(0, len(data), 1000))
    return b'\x28\xb5\x2f\xfd\xa0' + struct.pack('<I', len(data)) + blocks


def zipped(data, method, name='archive/data.pkl'):
    out = io.BytesIO()
    with zipfile.ZipFile(out, 'w', method) as archive:
        archive.writestr(zipfile.ZipInfo('archive/version'), b'3\n')
        info = zipfile.ZipInfo(name)
        info.compress_type = method
        archive.writestr(info, data)
    return out.getvalue()


def torch_zipped(data):
    """Stored, with its sizes only after it, as torch.save writes."""
    name = b'archive/data.pkl'
    sizes = struct.pack('<III', zlib.crc32(data), len(data), len(data))
    header = struct.pack('<HHHHHIIIHH', 0, 8, 0, 0, 0, 0, 0, 0, len(name), 0)
    return b'PK\x03\x04' + header + name + data + b'PK\x07\x08' + sizes + b'PK\x05\x06' + b'\0' * 18


def page(*payloads):
    files = [{'name': 'snapshot.pickle', 'base64': base64.b64encode(data).decode()}
             for data in payloads]
    return f'<html><script>const local_files = {json.dumps(files)};</script></html>'.encode()


def containers():
    tiny = spell.snapshot(spell.event(), segments=[spell.segment(spell.block())])
    text = json.dumps(spell.small())[:700].encode()
    yield 'plain', tiny
    yield 'gzip', gzip.compress(tiny, mtime=0)
    yield 'gzip-two', gzip.compress(tiny[:50], mtime=0) + gzip.compress(tiny[50:], mtime=0)
    yield 'gzip-json', gzip.compress(text, mtime=0)
    yield 'zstd', zstd_stored(tiny)
    yield 'xz', lzma.compress(tiny)
    yield 'zip-stored', zipped(tiny, zipfile.ZIP_STORED)
    yield 'zip-deflated', zipped(tiny, zipfile.ZIP_DEFLATED)
    yield 'zip-torch', torch_zipped(tiny)
    yield 'zip-gzip', zipped(gzip.compress(tiny, mtime=0), zipfile.ZIP_STORED, 'a.pickle.gz')
    yield 'html', page(tiny + b'\0\0')
    yield 'html-two', page(tiny + b'\0', text)


def rules():
    yield 'mapping', '{"a": "for.ard|x", "b": {"pattern": "^/a/", "priority": 2}}'
    yield 'list', '{"rules": [{"name": "a", "pattern": "(?i)M\\\\w+\\\\.py$", "description": "d"}]}'
    yield 'yaml', 'a: x\nb: {pattern: "a+b", priority: -1}\n'
    yield 'yaml-list', 'rules:\n- &r {name: a, pattern: (?<=f)o}\n- *r\n'
    yield 'slow', 'a: (?:(?:a+)+)+$\n'
    yield 'wrong', '{"a": "(", "a": "[z-a]"}'


def models():
    yield 'gpt2', 'Ab{"model_type":"gpt2","n_embd":32,"n_head":2,"n_layer":2,"vocab_size":99}'
    yield 'added', 'aB' + json.dumps({'model_type': 'gpt2', 'n_embd': 16, 'n_head': 4, 'n_layer': 3, 'n_inner': 10,
                                      'tessera_modules': [{'name': 'x', 'kind': 'linear-per-layer', 'features': 5}]})
    for choice, (kind, more) in zip('#%Cq', (('llama', {'mlp_bias': True, 'attention_bias': True}),
                                             ('mistral', {'sliding_window': 8, 'head_dim': 12}),
                                             ('qwen2', {'tie_word_embeddings': True}),
                                             ('llama', {'num_key_value_heads': 1, 'use_cache': False}))):
        config = {'model_type': kind, 'vocab_size': 50, 'hidden_size': 24, 'intermediate_size': 40,
                  'num_hidden_layers': 2, 'num_attention_heads': 4, 'num_key_value_heads': 2, **more}
        yield f'{kind}-{choice.encode().hex()}', choice + 'd' + json.dumps(config)
    # Its keys are odd, so that it is as wide as Llama 2; found by libFuzzer.
    yield 'odd-keys', '#d' + json.dumps({'model_type': 'llama', 'vocab_size': 50, 'hn_ieddsize': 24,
                                         'intermediate_size': 40, 'num_hidden_layers': 2,
                                         'num_attention_heads': 4})
    yield 'huge', '""{"model_type":"gpt2","n_embd":16777216,"n_head":1,"n_layer":4,"vocab_size":16777216}'
    yield 'huge-sgd', b'\xef\xbe{"model_type":"gpt2","n_embd":16777216,"n_head":1,"n_layer":4,"vocab_size":16777216}'
    yield 'no-width', '#d{"model_type":"llama","hidden_size":24,"num_hidden_layers":2}'
    graph = {'schema': 'tessera-step/1', 'gpu': 'a100', 'parameters': 2, 'optimizer': 'SGD', 'texts': ['f', 'a.py'],
             'frames': [[0, 1, 1]], 'stacks': [[0]], 'static': 1,
             'slots': {'bytes': [8, 16, 24, 32],
                       'category': ['parameter', 'activation', 'gradient', 'optimizer_state']},
             'instructions': [['begin', 0], ['drop_previous', 2], ['new', 1, 0], ['new', 2, 0], ['drop', 1], ['once', 3, 0],
                              ['end', 0]]}
    yield 'step-graph', 'Ab' + json.dumps(graph, separators=(',', ':'))
    yield 'wrong', '!!{"model_type":"llama","num_attention_heads":7,"hidden_size":1e9}'


def locks():
    head = 'tessera memory lock 1\n'
    device = 'device 0\npeak 1024 # 1.0 KiB\nkind input 600\n'
    yield 'whole', f'{head}\n# kept\n{device}cause input 600 data.py:load # 600 B\nrest 5\n'
    yield 'two', f'{head}{device}device 7\r\npeak 18446744073709551615\r\n'
    yield 'gone', f'{head}{device}cause activation 9 x.py:f>y.py:g\ncause input 1 (no_stack)\n'
    yield 'other-version', 'tessera memory lock 3\n'
    yield 'version-2', 'tessera memory lock 2\ndevice 0\npeak 600\ncategory input 600\ncause input 600 \\#a # 600 B\n'
    yield 'twice', f'{head}{device}peak 1\n'
    yield 'text', 'import torch\n'


def sidecars():
    """For the snapshot of sidecar.c: an allocated block of 512 bytes at 4096, one of 1024 at 8192."""
    def tensor(name, address, size, **more):
        return {'name': name, 'shape': [size // 4], 'dtype': 'torch.float32', 'device': 'cuda:0',
                'data_ptr': address, 'nbytes': size, **more}
    head = {'schema': 'tessera/capture/1'}
    card = {'device': 0, 'total_bytes': 1 << 36, 'free_bytes': 5, 'outside_pytorch_bytes': 7}
    whole = {**head, 'devices': [card], 'models': [
        {'name': 'm', 'parameters': [tensor('w', 4096, 512, grad={'data_ptr': 8192, 'nbytes': 512})],
         'buffers': [tensor('b', '0x2200', 4)]}],
        'optimizers': [{'state': [{'parameter': 'w', 'key': 'm', **tensor('', 8708, 8)},
                                  {'parameter': 3, 'key': 'v', **tensor('', 1 << 62, 8)}]}]}
    yield 'whole', json.dumps(whole)
    yield 'two-models', json.dumps({**head, 'models': 2 * [{'name': 'é', 'parameters': [
        tensor('w', 4096, 4, storage_nbytes=2)]}]})
    yield 'others', json.dumps({**head, 'other_parameters': [tensor(None, 4096, 4, index=1)]})
    yield 'newer', '{"schema": "tessera/capture/2"}'
    series = {'time_us': [1795000000000000, 1795000000500000, 1795000001000000], 'mark': [0, None, 1],
              'total_used_bytes': [9 << 30, 12 << 30, 11 << 30], 'allocated_bytes': [4 << 30, 6 << 30, 5 << 30],
              'reserved_bytes': [5 << 30, 7 << 30, None], 'private_pool_bytes': [0, 1, 2], 'unmapped_bytes': [0, None, 1 << 30],
              'process_bytes': [6 << 30, 9 << 30, 8 << 30], 'communicator_bytes': [[1 << 20, 2 << 20, 3 << 20]],
              'other_process_bytes': [[1 << 30, 1 << 30, 2 << 30]]}
    ledger = {'device': 0, 'name': 'A card', 'uuid': 'GPU-1', 'total_bytes': 16 << 30, 'driver_bytes': 5, 'context_bytes': 400 << 20,
              'context_from': 'nvml', 'libraries': [{'name': 'cublas', 'bytes': 9 << 20, 'from': 'first_use'}],
              'communicators': [{'name': 'dp (0)', 'backend': 'nccl', 'ranks': 8, 'from': 'stats', 'suspended': True}],
              'processes': [{'pid': 4711, 'name': 'python3'}], 'marks': ['step 0', 'snapshot'], 'samples': series}
    host = {'pinned_bytes': 0, 'limit_bytes': 1 << 38, 'limit_from': 'cgroup',
            'samples': {'time_us': [1795000000000000], 'rss_bytes': [1 << 30], 'cgroup_bytes': [None], 'pinned_bytes': [0]}}
    yield 'card', json.dumps({**head, 'process': {'pid': 1, 'host': 'a'}, 'devices': [card], 'card': {
        'period_ms': 500, 'samples_taken': 3, 'samples_kept': 3, 'sampling_us': 9, 'step_us': None, 'nvml': '12', 'nvml_error': None,
        'devices': [ledger], 'host': host}})
    yield 'odd-card', json.dumps({**head, 'card': {'devices': [{'device': 0, 'marks': 3, 'samples': {
        'time_us': [5, None, 3], 'total_used_bytes': [1, 2], 'mark': [9, 0, -1], 'communicator_bytes': [[], [1, 2, 3]]},
        'communicators': [[], {}]}, {'device': 0}, 7], 'host': []}})
    yield 'odd', json.dumps({**head, 'models': [1, {'parameters': {}}], 'devices': {'device': 0}})
    yield 'deep', '{"schema": "tessera/capture/1", "models": ' + '[' * 3000


def safetensors():
    def file(header, data_bytes):
        text = json.dumps(header).encode()
        return struct.pack('<Q', len(text)) + text + bytes(data_bytes)

    def array(dtype, shape, begin, end):
        return {'dtype': dtype, 'shape': shape, 'data_offsets': [begin, end]}

    yield 'two', file({'b': array('BF16', [2, 3], 4, 16), 'a': array('F32', [], 0, 4),
                       '__metadata__': {'format': 'pt'}}, 16)
    yield 'none', file({}, 0)
    yield 'empty-array', file({'a': array('I64', [0, 7], 0, 0), 'b': array('U8', [1], 0, 1)}, 1)
    yield 'overlap', file({'a': array('U8', [2], 0, 2), 'b': array('U8', [2], 1, 3)}, 3)
    yield 'huge', file({'a': array('F64', [1 << 62, 4], 0, 0)}, 0)
    yield 'long-header', struct.pack('<Q', 1 << 60) + b'{}'


def llmc():
    def header(*numbers):
        return struct.pack(f'<{len(numbers)}I', *numbers)

    yield 'fp32', header(3, 8, 5, 2, 2, 4, 128)
    yield 'bf16', header(5, 1024, 50257, 12, 12, 768, 50304)
    yield 'older', header(1, 1024, 50257, 12, 12, 768)
    yield 'huge', header(3, 1 << 24, 1 << 24, 4096, 1, 1 << 24, 1 << 24)
    yield 'cut', header(3, 8)[:6]


def tokens():
    def header(magic, version, count):
        return struct.pack('<256I', magic, version, count, *[0] * 253)

    yield 'text', b'to be or not to be'
    yield 'llm-c-16', header(20240520, 1, 3) + struct.pack('<3H', 1, 2, 50256)
    yield 'llm-c-32', header(20240801, 7, 2) + struct.pack('<2I', 1, 70000)
    yield 'newer', header(20240520, 9, 3) + struct.pack('<3H', 1, 2, 3)
    yield 'cut', header(20240520, 1, 3)[:12]

def tokenizers():
    def added(number, content, **more):
        return {'id': number, 'content': content, 'single_word': False, 'lstrip': False, 'rstrip': False, 'normalized': False,
                'special': True, **more}

    letters = {character: i for i, character in enumerate(' abcdefghijklmnopqrstuvwxyz\u0120')}
    bpe = {'type': 'BPE', 'dropout': None, 'unk_token': None, 'fuse_unk': False, 'byte_fallback': False, 'ignore_merges': False,
           'vocab': {**letters, 'ca': 28, 'caf': 29, 'aa': 30, 'aaaa': 31}, 'merges': ['c a', 'ca f', 'a a', 'aa aa']}
    whole = {'version': '1.0', 'added_tokens': [added(32, '<|endoftext|>')], 'normalizer': None, 'pre_tokenizer': None,
             'post_processor': None, 'decoder': None, 'model': bpe}
    pattern = "(?i:'s|'t)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"
    byte_level = {'type': 'ByteLevel', 'add_prefix_space': True, 'trim_offsets': True, 'use_regex': True}
    yield 'plain', json.dumps(whole)
    yield 'byte-level', json.dumps({**whole, 'pre_tokenizer': byte_level, 'decoder': byte_level, 'normalizer': {'type': 'NFC'}})
    yield 'split', json.dumps({**whole, 'pre_tokenizer': {'type': 'Sequence', 'pretokenizers': [
        {'type': 'Digits', 'individual_digits': True},
        {'type': 'Split', 'pattern': {'Regex': pattern}, 'behavior': 'Isolated', 'invert': False}, {**byte_level, 'use_regex': False}]}})
    yield 'sentencepiece', json.dumps({
        **whole, 'model': {**bpe, 'vocab': {'<unk>': 0, '<0x0A>': 1, '<0xC3>': 2, '<0xA9>': 3, '\u2581': 4, 'c': 5, 'a': 6, 'ca': 7},
                           'merges': [['c', 'a']], 'unk_token': '<unk>', 'byte_fallback': True, 'fuse_unk': True},
        'added_tokens': [added(8, '<|endoftext|>', lstrip=True, normalized=True, single_word=True)],
        'normalizer': {'type': 'Sequence', 'normalizers': [{'type': 'Prepend', 'prepend': '\u2581'},
                                                           {'type': 'Replace', 'pattern': {'String': ' '}, 'content': '\u2581'}]},
        'post_processor': {'type': 'TemplateProcessing', 'single': [{'SpecialToken': {'id': '<unk>', 'type_id': 0}},
                                                                    {'Sequence': {'id': 'A', 'type_id': 0}}],
                           'special_tokens': {'<unk>': {'id': '<unk>', 'ids': [0], 'tokens': ['<unk>']}}},
        'decoder': {'type': 'Sequence', 'decoders': [{'type': 'Replace', 'pattern': {'String': '\u2581'}, 'content': ' '},
                                                     {'type': 'ByteFallback'}, {'type': 'Fuse'},
                                                     {'type': 'Strip', 'content': ' ', 'start': 1, 'stop': 0}]}})
    yield 'metaspace', json.dumps({**whole, 'pre_tokenizer': {'type': 'Metaspace', 'replacement': '\u2581', 'prepend_scheme': 'first',
                                                              'split': True},
                                   'decoder': {'type': 'Metaspace', 'replacement': '\u2581', 'add_prefix_space': True}})
    yield 'unigram', '{"model": {"type": "Unigram", "vocab": [["a", -1.5]]}}'


def chats():
    yield 'llama', ("{% for m in messages %}{% if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('no') }}{% endif %}"
                    "{{ bos_token + '[INST] ' + m.content.strip() + ' [/INST]' if loop.first else m['content'] | trim ~ 'x' }}{% endfor %}")
    yield 'spaces', "{%- set ns = namespace(a=1, b='x') -%}\n {# gone -#} {%+ if tools is none and not missing %}\n{{- ns.b -}}\n{% endif %}\n"
    yield 'values', ("{{ messages[1:]|length }}{{ 'a,b'.split(',')[-1] }}{{ [1, none, true][-2:][0] }}{{ 'q\"'|tojson }}{{ 1 < 2 < 3 }}"
                     "{{ missing|default('d') }}{{ 'abc'[1:] not in 'xbc' }}{{ -7 % 3 // 2 }}{% set ns.x = 1 if x else 2 %}")
    yield 'tools', "{% for k, v in tools | items %}{{ v | tojson(indent=4) }}{% endfor %}{% generation %}{{ messages[0].content }}{% endgeneration %}"


def ds_configs():
    yield 'zero-3', json.dumps({
        'train_batch_size': 8, 'train_micro_batch_size_per_gpu': 2, 'gradient_accumulation_steps': 2, 'bf16': {'enabled': True},
        'gradient_clipping': 1.0, 'zero_optimization': {'stage': 3, 'reduce_bucket_size': 5e8, 'overlap_comm': False,
                                                        'offload_optimizer': {'device': 'cpu', 'pin_memory': True},
                                                        'offload_param': {'device': 'none'}}})
    yield 'zero-2', json.dumps({'train_micro_batch_size_per_gpu': 2, 'gradient_accumulation_steps': 2, 'fp16': {'enabled': False},
                                'zero_optimization': {'stage': 2, 'cpu_offload': True}, 'optimizer': {'type': 'Adam'}})
    yield 'fp16', json.dumps({'fp16': {'enabled': 'auto', 'loss_scale': 0, 'initial_scale_power': 16, 'loss_scale_window': 1000},
                              'optimizer': {'type': 'AdamW', 'params': {'lr': 3e-4, 'betas': [0.9, 0.95], 'eps': 1e-8,
                                                                        'weight_decay': 0.1, 'torch_adam': True}}})
    yield 'scheduler', '{"scheduler": {"type": "WarmupLR"}, "steps_per_print": 10, "zero_optimization": true}'
    yield 'many-rows', '{"train_micro_batch_size_per_gpu": 131070}'
    yield 'hidden', json.dumps({'\x1b[2J\x7f': 1, 'a\u202eb': {'c': 2}, 'bf16': {'d\n': True}})
    yield 'wrong', '{"train_batch_size": -1, "zero_optimization": {"stage": 4}}'


def measured():
    device = {'name': 'Tesla T4', 'driver': '550.54', 'cuda': '12.4', 'context_bytes': 110100480, 'libraries_bytes': 52428800,
              'nccl_bytes_per_communicator': None, 'measured_at': '2026-11-28T08:00:00Z'}
    every = [{**device, 'name': name, 'nccl_bytes_per_communicator': 1 << 30} for name in
             ('NVIDIA A100-SXM4-80GB', 'NVIDIA H100 80GB HBM3', 'NVIDIA GeForce RTX 4090')]
    for name, value in {'whole': [device], 'cards': every, 'none': [], 'huge': [{**device, 'context_bytes': 1 << 44}],
                        'wrong': [{**device, 'context_bytes': -1}]}.items():
        yield name, json.dumps({'schema': 'tessera/machine/1', 'devices': value}).encode()


def rates():
    kernels = {'mm': [[0.007, 0], [0.003, 0]], 'add': [[0.1, 0.05], [0.1, 0.05]], 'new': [[0, 0], [0, 0]]}
    whole = {'copies': [12.5e9, 2e9], 'kernels': kernels, 'ranks': 1e10, 'schema': 'tessera-rates/1', 'title': 'A, 2 threads'}
    yield 'whole', json.dumps(whole)
    yield 'zeros', json.dumps({**whole, 'copies': [0, 0], 'kernels': {'mm': [[0, 0], [0, 0]]}, 'ranks': 0})
    yield 'slow', json.dumps({**whole, 'copies': [1e-300, 1e17], 'kernels': {'mm': [[9e17, 9e17], [9e17, 9e17]]}})
    yield 'wrong', json.dumps({**whole, 'kernels': {'mm': [[-1, 0], [1e400]]}})


def leb(number):
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes(out + bytes([number]))


def zigzag(number):
    return leb(number << 1 if number >= 0 else (-number << 1) - 1)


def counted(rows):
    return leb(len(rows)) + b''.join(rows)


def sketch(rank=3, device=0):
    """docs/sketch.md, without the sum: two stacks, a device with a peak of 3,000 bytes, one whole step."""
    texts = [leb(len(text)) + text for text in (b'forward', b'model.py', b'<lambda>')]
    frames = [leb(0) + leb(1) + leb(12), leb(2) + leb(1) + leb(2 ** 64 - 1)]
    stacks = [counted([leb(0), leb(1)]), counted([leb(1)])]
    shares = [leb(1) + leb(4) + leb(2000) + leb(2), leb(0) + leb(1) + leb(900) + leb(1)]
    body = b''.join((leb(device), leb(40), zigzag(1000), zigzag(9000), zigzag(17), zigzag(5000), leb(3000), leb(4096), leb(100), leb(4096),
                     leb(8192), leb(5000), zigzag(-1), zigzag(-2 ** 63), leb(0), leb(0), leb(0), zigzag(100), counted(shares), leb(500) * 13, counted(shares), leb(2),
                     counted(shares[:1]), counted(shares[1:]), leb(3), leb(1), counted([zigzag(1500) + 4 * zigzag(175) + leb(3000) + leb(100)]), leb(7) * 48))
    place = zigzag(rank) + zigzag(8) + counted([leb(2) + b'pp' + leb(2) + leb(1)])
    return b'tessera/sketch/2\n' + leb(123456) + place + zigzag(7000) + zigzag(-2 ** 63) + leb(0) + counted(texts) + counted(frames) + counted(stacks) + counted([body])


def summed(data):
    """With FNV-1a, 64 bits, of all bytes at the end."""
    number = 14695981039346656037
    for byte in data:
        number = (number ^ byte) * 1099511628211 % 2 ** 64
    return data + number.to_bytes(8, 'little')


def sketches():
    yield 'one', sketch()
    yield 'cut', sketch()[:200]
    whole = sketch() + b'12345678'
    rows = [leb(5) + b'a/b.p' + leb(0) + leb(len(whole)) + whole, leb(3) + b'c.p' + leb(1) + leb(5) + b'empty']
    yield 'several', b'tessera/sketches/2\n' + leb(0) + leb(0) + counted(rows)
    yield 'parts', b'tessera/sketches/2\n' + leb(8) + counted([leb(1), leb(3)]) + counted(rows)
    yield 'name', b'step_000000000100/000017_step_100.pickle'
    yield 'coordinates', b'1712-TP-3-PP-1-memory.pickle'
    yield 'pattern', rb'/worker(?P<rank>\d+)_s(?<step>[0-9]{1,3})\.'


def files(*parts):
    """Files of a folder, as folder.h has them: which name, and the content."""
    return b'\xff'.join(bytes([name]) + (part if isinstance(part, bytes) else json.dumps(part, separators=(',', ':')).encode())
                        for name, part in parts)


def header(arrays, metadata=None, dtype='F32'):
    """The header of a safetensors file with these arrays one after the other."""
    out, end = {'__metadata__': metadata} if metadata else {}, 0
    for name, shape in arrays.items():
        begin, end = end, end + math.prod(shape) * 4
        out[name] = {'dtype': dtype, 'shape': shape, 'data_offsets': [begin, end]}
    return out


def weights():
    index = {'metadata': {'total_size': 32}, 'weight_map': {'a': 'a.safetensors', 'b': 'b.safetensors', 'c': 'b.safetensors'}}
    a, b = header({'a': [2, 2]}, {'format': 'pt'}), header({'b': [], 'c': [3]})
    yield 'two-files', files((0, index), (1, a), (2, b))
    yield 'one-file', files((3, header({'wte.weight': [3, 4]})))
    yield 'absent', files((0, index), (1, a))
    yield 'not-in-file', files((0, {'weight_map': {'a': 'a.safetensors', 'x': 'a.safetensors'}}), (1, a))
    yield 'twice', files((0, index), (1, a), (2, header({'a': [1], 'b': [], 'c': [3]})))
    yield 'elsewhere', files((0, {'weight_map': {'a': '../a.safetensors', 'b': '/etc/passwd', 'c': ''}}), (1, a))
    yield 'no-map', files((0, {'weight_map': []}), (1, a))
    yield 'odd-type', files((3, header({'a': [2]}, dtype='F4')))


# The parameters of the model of saved.c.
BLOCK = {'attn.c_attn.bias': [12], 'attn.c_attn.weight': [4, 12], 'attn.c_proj.bias': [4], 'attn.c_proj.weight': [4, 4],
         'ln_1.bias': [4], 'ln_1.weight': [4], 'ln_2.bias': [4], 'ln_2.weight': [4], 'mlp.c_fc.bias': [16],
         'mlp.c_fc.weight': [4, 16], 'mlp.c_proj.bias': [4], 'mlp.c_proj.weight': [16, 4]}
MODEL = {**{f'transformer.h.0.{name}': shape for name, shape in BLOCK.items()}, 'transformer.ln_f.bias': [4],
         'transformer.ln_f.weight': [4], 'transformer.wpe.weight': [8, 4], 'transformer.wte.weight': [64, 4]}


def saved_runs():
    def run(notes, more={}, moments=(), names=MODEL):
        training = {'steps': '2', 'updates': '2', 'notes': notes, 'data_tokens': '21', 'data_hash': 'a5581c270192544c', **more}
        state = {f'{name}.{moment}': shape for name, shape in names.items() for moment in moments}
        return files((0, header(names, {'format': 'pt', 'tessera_training': 'training-2.safetensors'})), (1, header(state, training)))

    plan = 'plan={"optimizer":"sgd","version":1}\n'
    yield 'sgd', run(plan)
    yield 'adamw', run('steps=2\nseed=7\nlr=0.01\nschedule=cosine\nwarmup=1\nplan={"version":1}\n', moments=('exp_avg', 'exp_avg_sq'))
    yield 'scaled', run('plan={"dtype":"autocast-fp16","optimizer":"sgd","version":1}\n')
    yield 'paths', run(f'write_rates=/tmp/rates\nwrite_plan=plan\ndata=/etc/passwd\noffload_dir=/tmp\nsave=/tmp\n{plan}')
    yield 'odd-options', run(f'products=openblas\nnew=1\nthreads=99\nbook=torch\n=\nseed=-1\n{plan}')
    yield 'offload', run('plan={"offload":"activations:disk","optimizer":"sgd","version":1}\n')
    yield 'no-number', run(plan, {'updates': '-2'})
    yield 'late', run(plan, {'steps': '9223372036854775806', 'updates': '9223372036854775806'})
    yield 'other-model', run(plan, names={'transformer.wte.weight': [64, 5]})
    yield 'elsewhere', files((0, header({}, {'tessera_training': '../data'})))


def mcp_lines():
    def line(method, number=1, **params):
        return json.dumps({'jsonrpc': '2.0', 'id': number, 'method': method, 'params': params}, separators=(',', ':')) + '\n'

    def call(tool, **arguments):
        return line('tools/call', name=tool, arguments=arguments)

    config = {'model_type': 'gpt2', 'vocab_size': 31, 'n_positions': 16, 'n_embd': 8, 'n_layer': 2, 'n_head': 2}
    hello = line('initialize', protocolVersion='2025-06-18', capabilities={}, clientInfo={'name': 'x', 'version': '1'})
    yield 'handshake', hello + '{"jsonrpc":"2.0","method":"notifications/initialized"}\n' + line('ping', 'a')
    yield 'no-handshake', line('server/discover', _meta={'io.modelcontextprotocol/protocolVersion': '2026-07-28', 'progressToken': 1})
    yield 'peak', hello + call('tessera_peak', path='s', top=3) + '{"method":"notifications/cancelled","params":{"requestId":1}}\n'
    yield 'at', call('tessera_at', path='s', event=0, device='all') + call('tessera_whatif', path='s', settings=['backend:native'])
    yield 'diff', call('tessera_diff', before='s', after='s', by='line') + call('tessera_profile', path='s', by='category')
    yield 'simulate', call('tessera_simulate', model='g.json', steps=2) + call('tessera_plan', model=json.dumps(config), budget='2MiB')
    yield 'mosaic', call('analyze_memory_peak', path='s') + call('get_memory_usage_peak', snapshot='s')
    yield 'batch', line('initialize', protocolVersion='2024-11-05') + '[{"jsonrpc":"2.0","id":1,"method":"ping"},{},1,[]]\n'
    yield 'odd', '\n\r\n{"jsonrpc":"2.0","id":{},"method":7}\n[]\n{"a":"\\ud800\\u0000"}\n{"id":1e999}\nnull\n{"result":1}'
    yield 'deep', '[' * 3000


def https():
    def request(path, *lines, method='GET'):
        return '\r\n'.join([f'{method} {path} HTTP/1.1', 'Host: 127.0.0.1', *lines, '', ''])

    yield 'page', request('/TOKEN/')
    yield 'part', request('/TOKEN/part?track=0&from=0&to=2') + request('/TOKEN/part?track=9&from=4294967295&to=1')
    yield 'head', request('/TOKEN/', method='HEAD') + request('/TOKEN/', method='POST')
    yield 'no-secret', request('/') + request('/00000000000000000000000000000000/')
    yield 'origin', request('/TOKEN/', 'Origin: http://127.0.0.1') + request('/TOKEN/', 'Origin: http://example.org')
    yield 'host', 'GET /TOKEN/ HTTP/1.1\r\nHost: example.org\r\n\r\nGET /TOKEN/ HTTP/1.1\r\nHost: [::1]:80\r\n\r\n'
    yield 'escapes', request('/TOKEN/%2e%2e/part?track=%30&from=+1&to=0x2&&=&track')
    yield 'body', request('/TOKEN/', 'Content-Length: 5') + 'hello' + request('/TOKEN/', 'Transfer-Encoding: chunked') + '5\r\nhello\r\n0\r\n\r\n'
    yield 'old', 'GET /TOKEN/ HTTP/1.0\n\n'
    yield 'ending', request('/TOKEN/', 'Connection: close', 'Range: bytes=0-5', 'Expect: 100-continue')
    yield 'text', 'hello\r\n\r\n'


def options():
    def typed(question, *values, interface='0'):
        return interface + '\n'.join((question, *values))

    yield 'plan', typed('plan', 'budget=1MiB', 'allow=recompute,offload', 'gpu=t4', 'batch=2', 'seq=8')
    yield 'plan-all', typed('plan', 'budget=900KiB', 'allow=all', 'explain', 'batch=2', 'seq=8', 'plan={"version":1,"dtype":"bf16"}')
    yield 'front', typed('plan', 'front', 'gpu=a100', 'batch=2', 'seq=8', 'allow=none')
    yield 'largest', typed('plan', 'largest=batch', 'budget=4MiB', 'gpu=a100', 'seq=8')
    yield 'largest-without-card', typed('plan', 'largest=batch', 'budget=4MiB', 'seq=8')
    yield 'simulate', typed('simulate', 'set=max_split_size_mb:64,roundup_power2_divisions:[256:1,>:4]', 'capacity=1.5 gb', 'batch=2',
                            'seq=8', 'attention=chunked:4', 'loss=chunked:5', 'checkpoint=every:2')
    yield 'simulate-python', typed('simulate', 'offload=optimizer,activations:disk', 'in_place=add,gelu', 'zero=2', 'ranks=2',
                                   'link=400Gb/s', 'gpu=h100', 'rank=1', 'clip=1', 'seq=8', interface='2')
    yield 'whatif', typed('whatif', 'set=expandable_segments:True', 'set=backend:native; garbage_collection_threshold:0.8',
                          'capacity=8KiB', interface='1')
    yield 'at', typed('at', 'time=1970-01-01 00:00:00.000007', interface='1') + '\nfilter=f'
    yield 'peak', typed('peak', 'rules={"a": "f.*d"}', 'by=line')
    yield 'profile', typed('profile', 'by=category', 'ordered', 'moments=9')
    yield 'check', typed('check', 'lock=tessera memory lock 1\tx', 'max=category:activation=1KiB', 'tolerance=1.5')
    yield 'window', typed('steps', 'from=0', 'to=99999999999999999999', 'device=0,0,7')


def planner():
    yield 'gpt2', bytes([1, 7, 2, 4, 0, 4, 1, 1, 7, 0, 1, 0, 31, 0, 12, 9])
    yield 'llama', bytes([0, 20, 4, 60, 1, 2, 1, 3, 11, 1, 2, 0, 255, 1, 14, 200])
    yield 'ranks', bytes([2, 3, 1, 9, 0, 3, 0, 3, 5, 0, 0, 2, 255, 1, 11, 0])
    yield 'nothing-allowed', bytes([1, 7, 2, 4, 0, 4, 1, 1, 7, 0, 1, 0, 0, 0, 19, 9])


def lists():
    """An export of Nsight Systems, CSV and a profile, from the same generator as the tests of their numbers."""
    with tempfile.TemporaryDirectory() as name:
        path = pathlib.Path(name) / 'seed'
        for seed, lacks in ((3, ()), (8, ('memKind', 'name')), (12, ('StringIds', 'CUDA_CALLCHAINS'))):
            allocations.Nsight(path, allocations.Job(seed, most=12), seed, lacks, page_bytes=512)
            data = bytearray(path.read_bytes())
            data[92:100] = bytes(8)  # the version of SQLite
            yield f'nsight-{seed}', bytes(data)
            allocations.write_csv(path, allocations.Job(seed, most=12), seed)
            yield f'csv-{seed}', path.read_bytes()
            allocations.write_pprof(path, allocations.State(seed), seed)
            data = path.read_bytes()
            yield f'pprof-{seed}', gzip.decompress(data) if data[:2] == b'\x1f\x8b' else data
    yield 'csv-quotes', b'action,bytes,stack\r\nalloc,1,"a ""b"";c (d:1)"\r\nfree,1,\noom,5,"'
    yield 'csv-cpu-and-host', b'action,bytes,device\nalloc,1,cpu\nalloc,1,host\n'
    yield 'csv-header', b'"address","Size",Action\n0x10,2,alloc\n16,,free\n,2.0,alloc'


def write(folder, seeds, prefix=b''):
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in seeds:
        (folder / name).write_bytes(prefix + (data if isinstance(data, bytes) else data.encode()))


def main(arguments):
    if len(arguments) != 1:
        sys.exit('usage: seeds.py FOLDER')
    folder = pathlib.Path(arguments[0])
    write(folder / 'pickle', pickles(), WINDOWS)
    write(folder / 'json', jsons(), WINDOWS)
    write(folder / 'containers', containers())
    write(folder / 'rules', rules())
    write(folder / 'tokenizer', tokenizers())
    write(folder / 'chat', chats())
    write(folder / 'model', models())
    write(folder / 'lock', locks())
    write(folder / 'sidecar', sidecars())
    write(folder / 'safetensors', safetensors())
    write(folder / 'llmc', llmc())
    write(folder / 'tokens', tokens())
    write(folder / 'ds_config', ds_configs())
    write(folder / 'measured', measured())
    write(folder / 'rates', rates())
    write(folder / 'sketch', sketches())
    write(folder / 'weights', weights())
    write(folder / 'saved', saved_runs())
    write(folder / 'mcp', mcp_lines())
    write(folder / 'http', https())
    write(folder / 'options', options())
    write(folder / 'lists', lists(), WINDOWS)
    write(folder / 'planner', planner())


if __name__ == '__main__':
    main(sys.argv[1:])
