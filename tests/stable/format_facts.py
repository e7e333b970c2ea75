"""format_facts.py: the files that tessera reads and writes, as the program treats them: samples with every key are changed, one key at
a time, and read by the command.

    version lock 2 = written
    version lock 1 = read
    key graph slots.bytes = read, required
    key graph torch = ignored
    word lock cause = read

A key is *required* if a file without it is refused, and *read* if a file in which it has another type is refused or understood
differently. write_samples() makes files of all formats as this version writes them, which later versions must read."""
import ast
import copy
import json
import pickle
import re
import subprocess

# A step graph with every key. PyTorch is needed to trace one, so it is written by hand; tests/golden/graphs has traced ones.
GRAPH = {
    'schema': 'tessera-step/1', 'torch': '2.9.1', 'gpu': 'h100', 'parameters': 250, 'optimizer': 'AdamW', 'routing': 'balanced', 'compiled': True,
    'phases': ['step', 'zero_grad', 'forward', 'backward', 'optimizer'], 'texts': ['at::_ops::mm::call', '??', 'layers.0', 'a.py'],
    'frames': [[0, 1, 0], [2, 3, 7]], 'stacks': [[0, 1]], 'static': 1,
    'slots': {'bytes': [1000, 4000, 1000, 2000], 'category': ['parameter', 'activation', 'gradient', 'optimizer_state'], 'stream': [0, 0, 0, 0]},
    'saved': [[1, 4000, 4, 5, 7, 7]], 'unheld': [[1, 4]], 'modules': [[2, 3, 3, 4, 0, 1, []]], 'effects': [[0, [0], 2]],
    'work': [[2, 1000000, 64, 16], [3, 0, 64, 32]], 'kernels': [[3, 4, 32, [16, 0]]],
    'instructions': [['begin', 0], ['drop_previous', 2], ['begin', 2], ['new', 1, 0], ['end', 2], ['begin', 3], ['new', 2, 0], ['drop', 1],
                     ['end', 3], ['begin', 4], ['once', 3, 0], ['end', 4], ['end', 0]],
    'optimizers': [{'class': 'AdamW', 'forms': {form: {'bytes': [2000], 'category': ['optimizer_state'], 'instructions': [['once', 0, 0]]}
                                                for form in ('foreach', 'loop', 'fused')}}],
}
PLAN = {'blocks': [{'first': 0, 'last': 3, 'checkpoint': 'full'}, {'first': 4, 'last': 5, 'saved': {'linear': 'host', 'eager GELU': 'recompute'}}],
        'dtype': 'bf16', 'accumulate': 2, 'version': 1}
RATES = {'band': [0.8, 1.25], 'copies': [12.5e9, 2e9], 'kernels': {'mm': [[0.007, 0], [0.003, 0]], 'add': [[0.1, 0.05], [0.1, 0.05]]},
         'ranks': 1e10, 'schema': 'tessera-rates/1', 'title': 'a machine, 2 threads'}
TENSOR = {'shape': [128], 'dtype': 'torch.float32', 'device': 'cuda:0', 'nbytes': 512}
SIDECAR = {
    'schema': 'tessera/capture/1', 'time_us': 1700000000000000, 'ranks': {'rank': 3, 'world_size': 8},
    'mesh': {'names': ['dp'], 'sizes': [8], 'coordinates': [3]}, 'recording': {'started_us': 1690000000000000},
    'devices': [{'device': 0, 'total_bytes': 1 << 30, 'free_bytes': 1 << 20, 'outside_pytorch_bytes': 7 << 20, 'peak_allocated_bytes': 4096}],
    'models': [{'name': 'm', 'parameters': [{**TENSOR, 'name': 'w', 'data_ptr': 0x200000, 'grad': {'data_ptr': 0x200200, 'nbytes': 512}}],
                'buffers': [{**TENSOR, 'name': 'b', 'data_ptr': 0x200400}]}],
    'other_parameters': [{**TENSOR, 'index': 3, 'data_ptr': 0x200600}],
    'optimizers': [{'state': [{**TENSOR, 'parameter': 'w', 'key': 'exp_avg', 'data_ptr': 0x200800}]}],
}
LOCK = 'tessera memory lock 2\ndevice 0\npeak 4096\ncategory parameter 512\nkind gradient 512\ncause parameter 512 a.py:f\nrest 0\nunexplained 0\n'
# The names of these keys are data: of ops, and of kernels.
OPEN = {'blocks[].saved', 'kernels'}
# Versions of formats that are tried.
VERSIONS = range(1, 10)


def snapshot():
    """A snapshot of one segment with five allocations, in a file of some hundred bytes."""
    frames = [{'name': 'f', 'filename': 'a.py', 'line': 7}]
    sizes = [(0x200000 + 512 * i, 512) for i in range(5)]
    blocks = [{'size': 512, 'requested_size': 512, 'address': address, 'state': 'active_allocated', 'frames': frames} for address, _ in sizes]
    blocks.append({'size': (2 << 20) - 2560, 'requested_size': 0, 'address': 0x200A00, 'state': 'inactive', 'frames': []})
    segment = {'address': 0x200000, 'total_size': 2 << 20, 'stream': 0, 'segment_type': 'small', 'allocated_size': 2560, 'active_size': 2560,
               'requested_size': 2560, 'device': 0, 'blocks': blocks, 'frames': frames, 'is_expandable': False, 'segment_pool_id': (0, 0)}
    trace = [{'action': 'segment_alloc', 'addr': 0x200000, 'size': 2 << 20, 'stream': 0, 'time_us': 1, 'frames': frames}]
    trace += [{'action': 'alloc', 'addr': address, 'size': size, 'stream': 0, 'time_us': 2 + i, 'frames': frames}
              for i, (address, size) in enumerate(sizes)]
    return pickle.dumps({'segments': [segment], 'device_traces': [trace], 'allocator_settings': {}}, protocol=4)


class Reader:
    """The command, in a folder for the files that it is given."""

    # How each kind of file is read: the words of a command, in which FILE is the file and SNAPSHOT a snapshot.
    COMMANDS = {
        'graph': ('simulate', 'FILE', '--steps', '2', '--json'),
        'plan': ('plan', 'show', 'FILE', 'gpt2', '--batch', '1', '--seq', '16', '--json'),
        'rates': ('simulate', 'gpt2', '--batch', '1', '--seq', '16', '--rates', 'FILE', '--json'),
        'lock': ('check', 'SNAPSHOT', '--lock', 'FILE', '--json'),
        'sketches': ('ranks', 'FILE', '--json'),
    }
    # The exit statuses of those that could be read. `check` fails if a lock has other figures.
    READ = {'lock': (0, 1)}

    def __init__(self, tessera, work):
        self.tessera, self.work = tessera, work
        work.mkdir(parents=True, exist_ok=True)
        self.snapshot = work / 'snapshot.pickle'
        self.snapshot.write_bytes(snapshot())

    def run(self, *words):
        done = subprocess.run([self.tessera, *map(str, words)], cwd=self.work, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout

    def read(self, kind, content):
        """The status and answer of a file with this text, an object for JSON."""
        file = self.work / {'graph': 'file.graph', 'lock': 'file.lock', 'sketches': 'file.sketches'}.get(kind, 'file.json')
        if isinstance(content, bytes):
            file.write_bytes(content)
        else:
            file.write_text(content if isinstance(content, str) else json.dumps(content), encoding='utf-8')
        return self.read_file(kind, file)

    def read_file(self, kind, file):
        if kind == 'sidecar':
            return self.read_beside(file)
        return self.run(*[str(file) if word == 'FILE' else str(self.snapshot) if word == 'SNAPSHOT' else word for word in self.COMMANDS[kind]])

    def read_beside(self, file):
        """A sidecar has names for `peak`, the card for `why`, and the rank and times for `ranks`, which finds it next to the snapshot."""
        folder = self.work / 'beside'
        folder.mkdir(exist_ok=True)
        (folder / 'snapshot.pickle').write_bytes(self.snapshot.read_bytes())
        (folder / 'snapshot.json').write_bytes(file.read_bytes())
        given = folder / 'snapshot.json', folder / 'snapshot.pickle'
        done = [self.run(command, '--json', '--sidecar', *given) for command in ('peak', 'why')] + [
            self.run('ranks', folder, '--json'), self.run('sql', folder, 'SELECT * FROM ranks', '--output', 'json')]
        return max(status for status, _ in done), ''.join(text for _, text in done)

    def accepts(self, kind, content):
        status, _ = self.read(kind, content)
        return status in self.READ.get(kind, (0,))


# ---- keys ----

def paths(value, prefix=''):
    """Paths of all keys, of lists those of the first object."""
    for key, member in value.items():
        path = prefix + key
        yield path
        if path in OPEN:
            continue
        if isinstance(member, dict):
            yield from paths(member, path + '.')
        elif isinstance(member, list) and member and isinstance(member[0], dict):
            merged = {name: one for item in reversed(member) for name, one in item.items()}
            yield from paths(merged, path + '[].')


def holders(value, path):
    """The objects that have the last key of a path, and that key."""
    first, _, rest = path.partition('.')
    if not rest:
        return [(value, first.removesuffix('[]'))] if first.removesuffix('[]') in value else []
    inner = value.get(first.removesuffix('[]'), {})
    return [found for one in (inner if isinstance(inner, list) else [inner]) for found in holders(one, rest)]


def least_of(reader, kind, sample):
    """The sample with as few keys as are accepted. What refers to others is after them, and goes first."""
    least = dict(sample)
    for key in reversed(sample):
        if reader.accepts(kind, {name: value for name, value in least.items() if name != key}):
            del least[key]
    return least


def key_facts(reader, kind, sample):
    whole = reader.read(kind, sample)
    if not reader.accepts(kind, sample):
        raise ValueError(f'the sample of {kind} is refused: {whole}')
    least = least_of(reader, kind, sample)
    for path in paths(sample):
        without, other = copy.deepcopy(sample), copy.deepcopy(sample)
        for owner, key in holders(without, path):
            del owner[key]
        for owner, key in holders(other, path):
            owner[key] = {'unexpected': ['value']}
        is_required = path in least if '.' not in path else not reader.accepts(kind, without)
        is_read = reader.read(kind, other) != whole or reader.read(kind, without) != whole
        yield f'key {kind} {path}', ('read' if is_read else 'ignored') + (', required' if is_required else '')


# ---- locks ----

def lock_facts(reader):
    lines = LOCK.splitlines(keepends=True)
    for line in lines[1:]:
        word = line.split()[0]
        if word == 'unexplained':  # an older name of a category
            continue
        renamed = LOCK.replace('unexplained 0\n', '').replace(line, 'no' + line)
        if not reader.accepts('lock', LOCK.replace('unexplained 0\n', '')) or reader.accepts('lock', renamed):
            continue
        yield f'word lock {word}', 'read'
    for name in ('unknown', 'unexplained'):
        if reader.accepts('lock', f'tessera memory lock 2\ndevice 0\npeak 4096\ncategory {name} 0\n'):
            yield f'word lock category {name}', 'read'


# ---- versions ----

def constant(path, name):
    """The text of a constant of a module."""
    for node in ast.parse(path.read_text(encoding='utf-8')).body:
        if isinstance(node, ast.Assign) and node.targets[0].id == name:
            return node.value.value
    raise ValueError(f'{path}: no {name}')


def with_version(kind, number, written):
    """A sample of that version."""
    if kind == 'plan':
        return {**PLAN, 'version': number}
    if kind == 'lock':
        return LOCK.replace('unexplained 0\n', '').replace('lock 2', f'lock {number}')
    if kind == 'sketches':
        return re.sub(rb'^tessera/sketches/\d+', b'tessera/sketches/%d' % number, written)
    sample = {'graph': GRAPH, 'rates': RATES, 'sidecar': SIDECAR}[kind]
    return {**sample, 'schema': re.sub(r'\d+$', str(number), sample['schema'])}


def written_versions(samples, python):
    """The version of each format that is written."""
    texts = {
        'graph': constant(python / '_trace.py', 'SCHEMA'),
        'sidecar': constant(python / '_record/sidecar.py', 'SCHEMA'),
        'rates': json.loads((samples / 'rates.json').read_text(encoding='utf-8'))['schema'],
        'plan': f'plan/{json.loads((samples / "plan.json").read_text(encoding="utf-8"))["version"]}',
        'lock': (samples / 'memory.lock').read_text(encoding='utf-8').splitlines()[0],
        'sketches': (samples / 'ranks.sketches').read_bytes().partition(b'\n')[0].decode(),
    }
    return {kind: int(re.search(r'\d+$', text).group()) for kind, text in texts.items()}


def version_facts(reader, samples, python):
    sketches = (samples / 'ranks.sketches').read_bytes()
    written = written_versions(samples, python)
    for kind in written:
        for number in VERSIONS:
            sample = with_version(kind, number, sketches)
            is_read = reader.accepts(kind, sample)
            if kind == 'sidecar':  # others are ignored
                is_read = reader.read(kind, sample) == reader.read(kind, SIDECAR)
            if is_read:
                yield f'version {kind} {number}', 'written' if number == written[kind] else 'read'
        if not reader.accepts(kind, with_version(kind, written[kind], sketches)):
            raise ValueError(f'{kind}: version {written[kind]} is written, and cannot be read')


# ---- samples ----

# Of each sample the kind of file that it is.
SAMPLES = {'step.graph': 'graph', 'plan.json': 'plan', 'rates.json': 'rates', 'sidecar.json': 'sidecar', 'memory.lock': 'lock',
           'ranks.sketches': 'sketches'}
TINY = {'model_type': 'gpt2', 'vocab_size': 256, 'n_positions': 8, 'n_embd': 4, 'n_layer': 1, 'n_head': 1}


def write_samples(reader, folder):
    """Files as this version writes them; graphs and sidecars, which PyTorch programs write, are those above."""
    folder.mkdir(parents=True, exist_ok=True)

    def wrote(*words):
        status, said = reader.run(*words)
        if status:
            raise ValueError(f'{" ".join(map(str, words))}: status {status}, {said}')
    for name, value in (('step.graph', GRAPH), ('sidecar.json', SIDECAR), ('tiny.json', TINY)):
        (reader.work if name == 'tiny.json' else folder).joinpath(name).write_text(json.dumps(value, indent=1) + '\n', encoding='utf-8')
    (reader.work / 'text').write_text('the memory of a step, and of the next\n' * 8, encoding='utf-8')
    (reader.work / 'plan').write_text(json.dumps(PLAN), encoding='utf-8')
    wrote('check', reader.snapshot.name, '--lock', folder / 'memory.lock', '--update', '-q')
    wrote('ranks', reader.snapshot.name, '--sketches', folder / 'ranks.sketches', '-q')
    wrote('simulate', 'gpt2', '--batch', '2', '--seq', '16', '--plan', 'plan', '--write-plan', folder / 'plan.json', '-q')
    wrote('train', 'tiny.json', '--data', 'text', '--tokens', 'bytes', '--steps', '2', '--batch', '1', '--seq', '8', '--write-rates',
          folder / 'rates.json', '-q')


# ---- exit statuses ----

# Command lines whose statuses scripts rely on; SNAPSHOT is a snapshot whose peak is 2,560 bytes.
STATUSES = ('peak SNAPSHOT', 'peak absent.pickle', 'peak text', 'peak SNAPSHOT --no-such-option', 'no-such-command', 'peak SNAPSHOT --device 7',
            'peak SNAPSHOT -o absent/file', 'check SNAPSHOT --max 1GiB', 'check SNAPSHOT --max 1KiB', 'check SNAPSHOT --lock absent.lock',
            'ranks SNAPSHOT --max 1KiB', 'simulate gpt2 --batch 1 --seq 16 --capacity 1GiB',
            'plan gpt2 --batch 1 --seq 16 --budget 1MiB --allow none', 'plan gpt2 --batch 1 --seq 16 --budget 100GiB --allow none',
            'help peak', '--version')


def status_facts(reader):
    for line in STATUSES:
        status, _ = reader.run(*[str(reader.snapshot) if word == 'SNAPSHOT' else word for word in line.split()])
        yield f'status tessera {line}', str(status)


def facts(tessera, python, work):
    """What this program does with its formats; `python` is the folder of the package."""
    reader = Reader(tessera, work)
    write_samples(reader, work / 'samples')
    found = {}
    for kind, sample in (('graph', GRAPH), ('plan', PLAN), ('rates', RATES), ('sidecar', SIDECAR)):
        found.update(key_facts(reader, kind, sample))
    found.update(lock_facts(reader))
    found.update(version_facts(reader, work / 'samples', python))
    found.update(status_facts(reader))
    return found
