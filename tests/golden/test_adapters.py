"""`tessera simulate --lora` against traces of peft and bitsandbytes: random small models, adapters and weights in 4 bits.

adapters.json has for each run what tests/torch/lora.py traced: the requested bytes at the peak, the allocated bytes at the peak of each
phase, and bytes of the categories that a trace knows. All must be the same."""
import json

from support import HERE, cases, expect

FIGURES = HERE / 'adapters.json'


def title(row):
    return f'{row["seed"]} {row["model"]["model_type"]} {" ".join(row["options"])}'


@cases('row', json.loads(FIGURES.read_text(encoding='utf-8'))['rows'], title)
def test_row(tessera, work, row):
    path = work / 'config.json'
    path.write_text(json.dumps(row['model']), encoding='utf-8')
    device = tessera.device('simulate', path, *row['options'])
    found = {'peak': device['peak']['requested_bytes'], **{f'peak of {phase["name"]}': phase['allocated_bytes'] for phase in device['phases']},
             **{entry['name']: entry['bytes'] for entry in device['categories']}}
    expect('what was traced', {key: found.get(key) for key in row['traced']}, row['traced'])
