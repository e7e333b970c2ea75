"""trainer.py: small models that train, and the weights that they save."""
import json
import shutil
import struct

from support import Tessera, expect

GPT2 = {'model_type': 'gpt2', 'vocab_size': 256, 'n_positions': 64, 'n_embd': 32, 'n_layer': 2,
        'n_head': 4}
LLAMA = {'model_type': 'llama', 'vocab_size': 256, 'hidden_size': 32, 'num_hidden_layers': 2,
         'num_attention_heads': 4, 'intermediate_size': 64}
TEXT = ''.join(f'{number} sheep jumped over the fence, and then there were {number + 1}. '
               for number in range(300))


class Trainer(Tessera):
    """The program with a folder, two small models and a text. A command may fail: the test looks at its exit status."""

    def __init__(self, tessera, work):
        super().__init__(tessera)
        self.work = work
        self.models = {}
        for name, config in (('gpt2', GPT2), ('llama', LLAMA)):
            self.models[name] = work / f'{name}.json'
            self.models[name].write_text(json.dumps(config))
        self.text = work / 'sheep.txt'
        self.text.write_text(TEXT)

    def run(self, *words, status=None, **how):
        return super().run(*words, status=status, **how)

    def train(self, model, *options):
        """The lines of --json: steps, and the summary."""
        done = self.run('train', self.models[model], '--data', self.text, '--json', '--batch', 2,
                        '--seq', 16, *options)
        expect('exit status', (done.returncode, done.stderr), (0, ''))
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        return lines[:-1], lines[-1]


def read_safetensors(path):
    """{name: (type, shape, bytes)}, and the metadata."""
    data = path.read_bytes()
    length = struct.unpack('<Q', data[:8])[0]
    header = json.loads(data[8:8 + length])
    notes = header.pop('__metadata__', {})
    rest = data[8 + length:]
    return {name: (array['dtype'], array['shape'], rest[slice(*array['data_offsets'])])
            for name, array in header.items()}, notes


def write_safetensors(path, arrays, notes=None):
    header, at = {'__metadata__': notes or {}}, 0
    for name, (kind, shape, data) in arrays.items():
        header[name] = {'dtype': kind, 'shape': shape, 'data_offsets': [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack('<Q', len(text)) + text +
                     b''.join(data for _, _, data in arrays.values()))


def drop_checksums(folder):
    """A saved run as earlier versions wrote it, whose files may be changed."""
    arrays, notes = read_safetensors(folder / 'model.safetensors')
    write_safetensors(folder / 'model.safetensors', arrays, {key: value for key, value in notes.items() if not key.endswith('_crc32')})


def rewrite_notes(folder, change):
    """Change the options in a saved run, as whoever made the folder could."""
    drop_checksums(folder)
    file, = folder.glob('training-*.safetensors')
    arrays, notes = read_safetensors(file)
    write_safetensors(file, arrays, notes | {'notes': change(notes['notes'])})


def fresh(t, name):
    """A folder that does not exist yet."""
    shutil.rmtree(t.work / name, ignore_errors=True)
    return t.work / name
