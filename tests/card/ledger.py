"""The parts of a card's memory at each sample of a sidecar, by the definitions of docs/card.md, and whether they are what a world had."""
import json
import pathlib


def read(sidecar):
    """The ledger in a sidecar."""
    return json.loads(pathlib.Path(sidecar).read_text(encoding='utf-8'))['card']


def parts(device, at):
    """The parts of sample `at` of a device."""
    samples = device['samples']
    allocated, reserved = samples['allocated_bytes'][at], samples['reserved_bytes'][at]
    unmapped = samples['unmapped_bytes'][at] or 0
    on_card = reserved - unmapped
    told = {
        'time_us': samples['time_us'][at], 'used_bytes': samples['total_used_bytes'][at],
        'allocated': min(allocated, on_card), 'cached': on_card - min(allocated, on_card), 'unmapped': unmapped,
        'context': device['context_bytes'], 'driver': device['driver_bytes'],
        'libraries': sum(one['bytes'] for one in device['libraries'] if one['since_us'] <= samples['time_us'][at]),
        'communicators': {one['name']: column[at] for one, column in zip(device['communicators'], samples['communicator_bytes'])
                          if column[at]},
        'processes': {str(one['pid']): column[at] for one, column in zip(device['processes'], samples['other_process_bytes'])
                      if column[at]},
    }
    known = sum(told[name] or 0 for name in ('allocated', 'cached', 'context', 'driver', 'libraries'))
    told['unaccounted'] = told['used_bytes'] - known - sum(told['communicators'].values()) - sum(told['processes'].values())
    return told


def problems(truth):
    """Sentences about what is wrong with the ledger of one job (jobs.py)."""
    found = []
    ledger = read(truth['sidecar'])
    (device,) = ledger['devices']
    columns = device['samples']
    lengths = {len(column) for name, column in columns.items() if not name.endswith(('process_bytes', 'communicator_bytes'))}
    lengths |= {len(column) for name in ('communicator_bytes', 'other_process_bytes') for column in columns[name]}
    if lengths != {len(truth['samples'])}:
        return [f'columns of {lengths} samples']
    if columns['time_us'] != sorted(columns['time_us']):
        found.append('times go back')
    for at, wanted in enumerate(truth['samples']):
        told = parts(device, at)
        for name, value in wanted.items():
            if isinstance(value, dict):
                value = {key: size for key, size in value.items() if size}
            if told[name] != value:
                found.append(f'sample {at} ({columns["mark"][at]}): {name} is {told[name]}, and was {value}')
        pytorch = told['allocated'] + told['cached']
        rest = sum(told[name] or 0 for name in ('context', 'driver', 'libraries', 'unaccounted'))
        if pytorch + rest + sum(told['communicators'].values()) + sum(told['processes'].values()) != told['used_bytes']:
            found.append(f'sample {at}: the parts do not sum up')
    return found
