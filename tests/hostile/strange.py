"""strange.py: strange files of every format that tessera reads, from a seed.

A case is a folder of files and a command that reads them. Each is made from a valid one by a few changes: of bytes, or of what a
text in JSON contains. The same seed and number make the same case, so that a case that does harm can be made again."""
import bz2
import gzip
import json
import lzma
import pathlib
import pickle
import random
import struct
import sys
import zipfile

sys.dont_write_bytecode = True
HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / 'fuzz')]
import seeds  # noqa: E402
import spell  # noqa: E402

GRAPHS = HERE.parent / 'golden' / 'graphs'
NUMBERS = (0, 1, -1, 2, 7, 127, 255, 256, 65535, 1 << 31, (1 << 31) - 1, 1 << 32, 1 << 48, 1 << 53, (1 << 63) - 1, 1 << 63, (1 << 64) - 1,
           1 << 64, -(1 << 63), 10 ** 30, 0.5, -0.0, 1e-320, 1e308, 3.0, 1e15)
TEXTS = ('', 'a', '\u0000', '\ud800', '\u202e', '\x1b[2J', '../../x', '/etc/passwd', '-', 'a' * 5000, '\u00e9' * 200, '%s%n', 'None', '*',
         '1e999', 'NaN', '0x10', '9' * 400)

# ---- changes of bytes ----


def some_number(rng):
    size = rng.choice((1, 2, 4, 8))
    return (int(rng.choice(NUMBERS)) % (1 << 8 * size)).to_bytes(size, rng.choice(('little', 'big')))


def change_bytes(rng, data, others):
    """One change; `others` are files of the same format."""
    at = rng.randrange(len(data) + 1)
    end = min(len(data), at + rng.choice((1, 2, 4, 16, 200)))
    how = rng.randrange(9)
    if how == 0 and at < len(data):
        return data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1:]
    if how == 1:
        return data[:at] + bytes(rng.choice((0, 0xff, 0x7f, 0x80, 0x20, rng.randrange(256))) for _ in range(end - at)) + data[end:]
    if how == 2:
        return data[:at] + data[end:]
    if how == 3:
        return data[:at] + data[at:end] * rng.choice((2, 3, 50)) + data[end:]
    if how == 4:
        return data[:at]
    if how == 5:
        number = some_number(rng)
        return data[:at] + number + data[at + len(number):]
    if how == 6 and others:
        other = rng.choice(others)
        return data[:at] + other[rng.randrange(len(other) + 1):]
    if how == 7:
        return data[:at] + rng.randbytes(end - at) + data[end:]
    begin = next((i for i in range(at, len(data)) if 48 <= data[i] <= 57), len(data))
    stop = next((i for i in range(begin, len(data)) if not 48 <= data[i] <= 57), len(data))
    return data[:begin] + str(rng.choice(NUMBERS)).encode() * (begin < stop) + data[stop:]


def change_all_bytes(rng, data, others=()):
    for _ in range(rng.choice((1, 1, 2, 3, 8))):
        data = change_bytes(rng, data, others)
    return data


# ---- changes of values ----

def places(value, found):
    """Every container, with the keys of what it contains."""
    if isinstance(value, (dict, list)):
        for key in (value if isinstance(value, dict) else range(len(value))):
            found.append((value, key))
            places(value[key], found)
    return found


def odd_value(rng, old, all_values):
    how = rng.randrange(9)
    if isinstance(old, (int, float)) and not isinstance(old, bool) and how < 5: # near it: such a file is not refused at once
        return rng.choice((old + 1, old - 1, old * 2, old // 2, old + 8, -old))
    if how == 0:
        return rng.choice(TEXTS)
    if how == 1:
        return rng.choice((None, True, False, [], {}, [[]], {'': None}))
    if how == 2:
        return [old] * rng.choice((2, 3, 300))
    if how == 3:
        deep = old
        for _ in range(rng.choice((1, 5, 60))):
            deep = [deep]
        return deep
    if how == 4 and isinstance(old, (int, float)):
        return old + 0.5
    if how == 5 and isinstance(old, str):
        return old + rng.choice(TEXTS)
    if how == 6 and all_values:
        return rng.choice(all_values)
    return rng.choice(NUMBERS)


def change_value(rng, root):
    """One change in a value of dicts and lists, in place."""
    found = places(root, [])
    if not found:
        return
    container, key = rng.choice(found)
    how = rng.randrange(6)
    if how == 0:
        del container[key]
    elif how == 1 and isinstance(container, dict):
        container[rng.choice((str(key) + 'x', rng.choice(TEXTS), rng.choice(found)[1]))] = container[key]
    elif how == 2 and isinstance(container, list):
        container.insert(key, container[key])
    else:
        container[key] = odd_value(rng, container[key], [c[k] for c, k in found if not isinstance(c[k], (dict, list))])


def changed(rng, value):
    """A copy with some changes."""
    value = pickle.loads(pickle.dumps(value))
    for _ in range(rng.choice((1, 1, 1, 1, 2, 5))):
        change_value(rng, value)
    return value


def json_bytes(rng, value):
    text = json.dumps(value, ensure_ascii=rng.random() < 0.8, separators=rng.choice(((',', ':'), (', ', ': '))))
    return text.encode('utf-8', 'surrogatepass')


def change_json(rng, value, chance=0.25):
    """The value as JSON, of which values or bytes are changed."""
    if rng.random() < chance:
        return change_all_bytes(rng, json_bytes(rng, value))
    return json_bytes(rng, changed(rng, value))


# ---- valid files ----

CONFIG = {'model_type': 'gpt2', 'vocab_size': 256, 'n_positions': 16, 'n_embd': 8, 'n_layer': 2, 'n_head': 2}
LLAMA = {'model_type': 'llama', 'vocab_size': 64, 'hidden_size': 16, 'intermediate_size': 24, 'num_hidden_layers': 2,
         'num_attention_heads': 4, 'num_key_value_heads': 2, 'rope_theta': 10000.0, 'rms_norm_eps': 1e-5,
         'tie_word_embeddings': False, 'rope_scaling': None}
TINY = {**CONFIG, 'vocab_size': 64, 'n_positions': 8, 'n_embd': 4, 'n_layer': 1, 'n_head': 1}


def valid(named):
    """The bytes of seeds."""
    return [data if isinstance(data, bytes) else data.encode() for _, data in named]


def parsed(named):
    """The seeds that are JSON, as values."""
    for data in valid(named):
        try:
            yield json.loads(data)
        except (ValueError, RecursionError):
            continue


def safetensors(header, rng=None):
    """A file with this header, changed if there is a generator."""
    data_bytes = max((entry['data_offsets'][1] for name, entry in header.items() if name != '__metadata__'), default=0)
    text = change_json(rng, header) if rng else json.dumps(header).encode()
    length = len(text) if not rng or rng.random() < 0.9 else rng.choice((0, len(text) - 1, 1 << 63, (1 << 64) - 1, 99999999))
    return struct.pack('<Q', length % (1 << 64)) + text + bytes(data_bytes)


def llmc(rng):
    header = [20240326, 3, 8, 64, 1, 1, 4, 128] + [0] * 248
    for _ in range(rng.choice((0, 1, 2))):
        header[rng.randrange(9)] = int(rng.choice(NUMBERS)) % (1 << 32)
    return struct.pack('<256I', *header) + bytes(4 * (128 * 4 + 8 * 4 + 12 * 16 + 13 * 4 + 8) + rng.choice((0, 0, 0, 1, -4)))


WRAPPINGS = {
    'plain': lambda data: data,
    'gz': lambda data: gzip.compress(data, mtime=0),
    'xz': lzma.compress,
    'zst': seeds.zstd_stored,
    'zip': lambda data: seeds.zipped(data, zipfile.ZIP_DEFLATED),
    'zip-torch': seeds.torch_zipped,
    'html': lambda data: seeds.page(data + b'\0' * (-len(data) % 3)),
    'zip-of-gz': lambda data: seeds.zipped(gzip.compress(data, mtime=0), zipfile.ZIP_STORED, 'a.pickle.gz'),
    'gz-of-xz': lambda data: gzip.compress(lzma.compress(data), mtime=0),
    'bz2': bz2.compress,
}

SNAPSHOT_COMMANDS = (
    'info --json', 'peak', 'peak --json --top 0', 'profile --json', 'profile --by category', 'profile --by annotation --json', 'why',
    'steps --json', 'leaks --json', 'at --event 0', 'at --event -1 --json', 'whatif --json', 'whatif --capacity 1GiB --json',
    'stages', 'check --max 1GiB --json', 'check --max activation=1KiB --format sarif', 'export --format folded -o /dev/null', 'export --format pprof -o /dev/null',
    'export --format perfetto -o /dev/null', 'export --format csv -o /dev/null', 'trim --events 0..2 -o /dev/null',
    'report -o /dev/null', 'view -o /dev/null', 'diff s', 'diff s --by allocation --json', 'source a.py --json')


def snapshot_value(rng):
    value = rng.choice((spell.small, seeds.long_trace))()
    if rng.random() < 0.2:
        value = {**value, 'host_segments': [], 'host_traces': [value['device_traces'][0]]}
    return value


def plain_snapshot(rng):
    """A snapshot whose values, or whose bytes, are changed."""
    how = rng.randrange(6)
    if how == 0:
        return change_all_bytes(rng, rng.choice(PICKLES), PICKLES)
    if how == 1:
        return change_all_bytes(rng, rng.choice(JSONS), JSONS)
    if how == 2:
        return change_json(rng, snapshot_value(rng), chance=0)
    try:
        value = changed(rng, snapshot_value(rng))
        return spell.Cpp(value).bytes if how == 3 else pickle.dumps(value, protocol=rng.randrange(6))
    except Exception: # what the C++ dialect, or a protocol, has no form for
        return pickle.dumps(snapshot_value(rng), protocol=2)


PICKLES, JSONS = valid(seeds.pickles()), valid(seeds.jsons())


def snapshots(rng):
    wrap = WRAPPINGS[rng.choice(list(WRAPPINGS))] if rng.random() < 0.7 else WRAPPINGS['plain']
    if rng.random() < 0.5:
        data = wrap(plain_snapshot(rng))
    else:
        data = change_all_bytes(rng, wrap(rng.choice(PICKLES + JSONS)))
    command, *more = rng.choice(SNAPSHOT_COMMANDS).split()
    return {'s': data, 'a.py': b'def f():\n  pass\n'}, [command, 's', *more]


def sidecars(rng):
    memory = {'segments': [{'device': 0, 'address': 4096, 'total_size': 8192, 'stream': 0, 'segment_type': 'small', 'blocks': [
        {'size': 512, 'requested_size': 500, 'state': 'active_allocated'}, {'size': 3584, 'state': 'inactive'},
        {'size': 1024, 'requested_size': 1024, 'state': 'active_allocated'}, {'size': 3072, 'state': 'inactive'}]}],
        'device_traces': [[]]}
    side = change_json(rng, rng.choice(list(parsed(seeds.sidecars()))))
    if rng.random() < 0.4:
        return {'s.pickle': json.dumps(memory).encode(), 's.json': side}, ['card', 's.pickle']
    return {'s': json.dumps(memory).encode(), 'side': side}, [rng.choice(('peak', 'info', 'why', 'profile')), 's', '--sidecar', 'side']


def rules(rng):
    data = change_all_bytes(rng, rng.choice(valid(seeds.rules())), valid(seeds.rules()))
    if rng.random() < 0.5:
        data = change_json(rng, rng.choice(list(parsed(seeds.rules()))))
    return {'s': JSONS[0], 'r': data}, ['profile', 's', '--by', 'rules', '--rules', 'r']


def locks(rng):
    data = change_all_bytes(rng, rng.choice(valid(seeds.locks())), valid(seeds.locks()))
    return {'s': JSONS[0], 'l': data}, ['check', 's', '--lock', 'l']


def run_options(rng):
    return rng.choice(([], ['--json'], ['--gpu', 't4'], ['--checkpoint', 'full'], ['--dtype', 'autocast-bf16']))


def configs(rng):
    config = change_json(rng, rng.choice((CONFIG, LLAMA)), chance=0.2)
    if rng.random() < 0.7:
        return {'m/config.json': config}, ['simulate', 'm/config.json', '--seq', '8', *run_options(rng)]
    return {'m/config.json': config}, ['plan', 'm/config.json', '--seq', '8', '--budget', '2MiB', '--gpu', 't4']


def graphs(rng):
    graph = rng.choice(GRAPH_VALUES)
    command = ['simulate', 'g.json', *rng.choice(([], ['--json'], ['--gpu', 'a100'], ['--checkpoint-modules', '*'], ['--steps', '5']))]
    if rng.random() < 0.2:
        command = ['plan', 'g.json', '--budget', '4MiB', '--gpu', 'a100']
    return {'g.json': change_json(rng, graph, chance=0.15)}, command


GRAPH_VALUES = list(parsed((path.name, path.read_bytes()) for path in sorted((HERE.parent / 'fuzz/corpus/graph').iterdir())))
GRAPH_VALUES += list(parsed((path.name, path.read_bytes()) for path in sorted(GRAPHS.glob('*.graph')) if path.stat().st_size < 60000))

PLANS = [{'version': 1, 'blocks': [{'first': 0, 'last': 1, 'checkpoint': 'full'}, {'first': 1, 'last': 1, 'checkpoint': 'none'}],
          'optimizer': 'adamw-fused'},
         {'version': 1, 'dtype': 'bf16', 'accumulate': 2, 'checkpoint': 'every:2', 'attention': 'chunked:4', 'loss': 'chunked:5'},
         {'version': 1, 'blocks': [{'first': 0, 'last': 1, 'checkpoint': 'full'}, {'first': 1, 'last': 1, 'saved': {'gelu': 'recompute'}}],
          'offload': 'optimizer,activations:disk', 'zero': 2, 'ranks': 2, 'micro_batch': 1, 'in_place': 'add,gelu'}]


def plans(rng):
    command = rng.choice((['simulate', 'c.json', '--plan', 'p', '--seq', '8'], ['plan', 'c.json', '--plan', 'p', '--explain', '--seq', '8']))
    return {'c.json': json.dumps(CONFIG).encode(), 'p': change_json(rng, rng.choice(PLANS))}, command


def ds_configs(rng):
    data = change_json(rng, rng.choice(list(parsed(seeds.ds_configs()))))
    return {'c.json': json.dumps(CONFIG).encode(), 'd': data}, ['simulate', 'c.json', '--ds-config', 'd', '--seq', '8']


def rates(rng):
    data = change_json(rng, rng.choice(list(parsed(seeds.rates()))))
    command = rng.choice((['simulate', 'c.json', '--rates', 'r', '--seq', '8'],
                          ['plan', 'c.json', '--rates', 'r', '--budget', '2MiB', '--seq', '8']))
    return {'c.json': json.dumps(CONFIG).encode(), 'r': data}, command


def tokens(rng):
    data = change_all_bytes(rng, rng.choice(valid(seeds.tokens())) + rng.randbytes(40))
    kind = rng.choice(('auto', 'bytes', 'u16', 'u32'))
    return {'c.json': json.dumps(CONFIG).encode(), 't': data}, ['train', 'c.json', '--data', 't', '--tokens', kind, '--steps', '1', '--batch', '1',
                                                          '--seq', '4', '--threads', '1']


def weights(rng):
    """One file or two with an index, of which one is changed."""
    names = dict(seeds.MODEL)
    which = rng.randrange(4)
    if which == 3:
        return {'m/config.json': json.dumps(TINY).encode(), 'm/model.safetensors': safetensors(seeds.header(names), rng)}, sample('m')
    halves = list(names.items())
    first, second = dict(halves[:5]), dict(halves[5:])
    index = {'metadata': {}, 'weight_map': {name: 'ab'[name in second] + '.safetensors' for name in names}}
    changes = [rng if i == which else None for i in range(3)]
    return {'m/config.json': json.dumps(TINY).encode(),
            'm/a.safetensors': safetensors(seeds.header(first), changes[0]),
            'm/b.safetensors': safetensors(seeds.header(second), changes[1]),
            'm/model.safetensors.index.json': change_json(rng, index) if changes[2] else json.dumps(index).encode()}, sample('m')


def sample(path):
    return ['sample', path, '--ids', '--prompt', '1 2', '--tokens', '2', '--threads', '1', '--context', '4']


def checkpoints(rng):
    return {'m.bin': change_all_bytes(rng, llmc(rng)) if rng.random() < 0.3 else llmc(rng)}, sample('m.bin')


NOTES = {'data': '/etc/hostname', 'steps': '2', 'lr': '0.01', 'schedule': 'cosine', 'warmup': '1', 'order': 'sequential', 'betas': '0.9,0.95',
         'eps': '1e-8', 'weight_decay': '0.1', 'write_rates': 'rates', 'write_plan': 'plan', 'offload_dir': '/tmp', 'snapshot': 's.pickle',
         'book': 'torch', 'memory': 'placed', 'isa': 'avx2', 'seed': '3', 'threads': '2', 'tokens': 'u16', 'save_every': '1'}


def saved_runs(rng):
    """The notes, the state or the metadata of a run are changed."""
    plan = changed(rng, rng.choice(PLANS)) if rng.random() < 0.3 else {'optimizer': 'sgd', 'version': 1}
    chosen = rng.sample(list(NOTES), rng.randrange(5))
    notes = ''.join(f'{name}={rng.choice((NOTES[name], NOTES[name], rng.choice(TEXTS), str(rng.choice(NUMBERS))))}\n' for name in chosen)
    metadata = {'steps': '2', 'updates': '2', 'notes': f'{notes}plan={json.dumps(plan)}\n', 'data_tokens': '21', 'data_hash': '5' * 16}
    state = seeds.header({f'{name}.exp_avg': shape for name, shape in seeds.MODEL.items()} if rng.random() < 0.2 else {}, metadata)
    model = seeds.header(seeds.MODEL, {'format': 'pt', 'tessera_training': 'training-2.safetensors'})
    which = rng.randrange(3)
    return {'r/config.json': json.dumps(TINY).encode(), 'r/model.safetensors': safetensors(model, rng if which == 0 else None),
            'r/training-2.safetensors': safetensors(state, rng if which == 1 else None), 't': b'0123456789' * 4}, [
                'train', '--resume', 'r', '--data', 't', '--steps', '3', '--batch', '1', '--seq', '4', '--threads', '1', '--ranks', '1',
                '--accumulate', '1', '--micro-batch', '1']


def mcp_lines(rng):
    """Lines of a client; the last word of the command is its standard input."""
    lines = b''
    for data in rng.sample(valid(seeds.mcp_lines()), 2):
        for line in data.split(b'\n'):
            try:
                value = json.loads(line)
                line = json_bytes(rng, changed(rng, value)) if rng.random() < 0.5 else line
            except (ValueError, RecursionError):
                pass
            lines += line + b'\n'
    if rng.random() < 0.3:
        lines = change_all_bytes(rng, lines)
    return {'s': JSONS[0], 'g': json.dumps(GRAPH_VALUES[0]).encode(), 'in': lines}, ['mcp', '<in']


def command_lines(rng):
    """Values of options of simulate, plan and whatif."""
    options = {
        'plan': {'allow': 'recompute,offload', 'budget': '2MiB', 'largest': 'batch', 'gpu': 't4', 'batch': '2', 'for': 'deepspeed',
                 'gpus': '4xa100', 'tp': '2'},
        'simulate': {'set': 'max_split_size_mb:64,roundup_power2_divisions:[256:1,>:4]', 'capacity': '1GiB', 'offload': 'optimizer:host',
                     'in-place': 'add,gelu', 'checkpoint': 'every:2', 'attention': 'chunked:4', 'loss': 'chunked:5', 'zero': '2', 'ranks': '2',
                     'link': '400Gb/s', 'clip': '1.0', 'micro-batch': '1', 'rank': '1', 'gpu': 'h100', 'steps': '2', 'eval-steps': '1'},
        'whatif': {'set': 'expandable_segments:True;backend:native', 'capacity': '8MiB', 'top': '3'}}
    command = rng.choice(list(options))
    words = [command, 's' if command == 'whatif' else 'c.json', *(['--seq', '8'] if command != 'whatif' else [])]
    for name in rng.sample(list(options[command]), 3):
        value = options[command][name].encode()
        value = change_all_bytes(rng, value) if rng.random() < 0.6 else str(rng.choice(NUMBERS + TEXTS[:12])).encode('utf-8', 'replace')
        words.append(b'--' + name.encode() + b'=' + value.replace(b'\0', b'0')[:5000])
    return {'c.json': json.dumps(CONFIG).encode(), 's': JSONS[0]}, words


def requests(rng):
    """Bytes for `serve`, with TOKEN for the secret."""
    data = b''.join(rng.sample(valid(seeds.https()), rng.choice((1, 2))))
    return {'in': change_all_bytes(rng, data, valid(seeds.https()))}, ['serve']


RANK_NAMES = ('rank%d.pickle', 'step_%d/000001_step_7.pickle', 'a_%d.pickle', 'x-TP-%d-PP-1-memory.pickle', 'rank%d_oom\n.pkl', '$(id)%d.pickle',
              '-%d.pickle', 'rank%d\x1b[2J.pickle', '20261126-1812/r_rank%d_pid1.pickle', 'rank99999999999999999999%d.pickle')


def fleets(rng):
    """Snapshots of ranks, whose names are strange, too."""
    files = {f'f/{rng.choice(RANK_NAMES) % rng.choice((number, 0, 2 ** 31))}': change_all_bytes(rng, rng.choice(JSONS))
             for number in range(rng.choice((1, 3, 6)))}
    for name in list(files):
        files[name] = rng.choice((files[name], JSONS[0], JSONS[-1]))
    more = rng.choice(([], ['--json'], ['--mesh', 'pp=2,dp=4'], ['--pattern', '(?<rank>\\d+)'], ['--part', '1/2'], ['--top', '0']))
    return files, ['ranks', 'f', *more]


def sketches(rng):
    """Sketches whose sums are right, most of the time."""
    data = change_all_bytes(rng, rng.choice(valid(seeds.sketches())), valid(seeds.sketches()))
    if data.startswith(b'tessera/sketch/'):
        row = seeds.leb(5) + b'a/b.p' + seeds.leb(0) + seeds.leb(len(data) + 8) + seeds.summed(data)
        data = b'tessera/sketches/2\n' + seeds.leb(0) + seeds.leb(0) + seeds.counted([row])
    return {'s.sketch': seeds.summed(data) if rng.random() < 0.9 else data}, ['ranks', 's.sketch', *rng.choice(([], ['--json'], ['--top', '0']))]


# Each format with how many of a hundred cases are of it.
FORMATS = {snapshots: 22, fleets: 3, sketches: 2, sidecars: 4, rules: 3, locks: 2, configs: 8, graphs: 10, plans: 6, ds_configs: 5, rates: 4, tokens: 3, weights: 6,
           checkpoints: 3, saved_runs: 6, mcp_lines: 5, command_lines: 5, requests: 3}


def case(seed, number):
    """The name of the format, the files, and the words of the command."""
    rng = random.Random(f'{seed}/{number}')
    make = rng.choices(list(FORMATS), list(FORMATS.values()))[0]
    files, words = make(rng)
    return make.__name__, files, words


def for_target(seed, number, corpus):
    """An input of a fuzz target: one of its corpus, changed."""
    rng = random.Random(f'{seed}/{number}')
    data = rng.choice(corpus)
    if rng.random() < 0.4:
        head, text = data[:1], data[1:]
        for start, rest in ((b'', data), (head, text), (data[:2], data[2:])):
            try:
                return start + change_json(rng, json.loads(rest))
            except (ValueError, RecursionError):
                continue
    return change_all_bytes(rng, data, corpus)
