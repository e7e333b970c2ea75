#!/usr/bin/env python3
"""`tessera steps` and `leaks` of real and simulated training runs, against their annotations and what was
planted in them. Prints TAP.

usage: steps.py --tessera PATH --work FOLDER

Steps must end where the annotations of Optimizer.step do, and cover those of ProfilerStep; healthy runs have
no leaks; 1 KiB a step among thousands of allocations is found, wherever it is made. The real snapshots lie in
../shared beside the checkout; where they are absent, their tests are skipped."""
import argparse
import json
import pathlib
import pickle
import subprocess
import sys

SHARED = pathlib.Path(__file__).resolve().parents[3] / 'shared' / 'snapshots'
STEP = 'Optimizer.step'
# Annotated by their authors, and the ranges of Optimizer.step in each.
ANNOTATED = {'train-ctx100-annotated-torch2.6': 3, 'train-ctx200-autocast-annotated-torch2.6': 3,
             'train-ctx1024-torch2.11': 1, 'train-fp32-ctx128': 1, 'train-late-recording': 1,
             'train-lm-small': 1}
# With three steps or more, and nothing that leaks.
HEALTHY = {'train-ctx100-annotated-torch2.6': 3, 'train-ctx200-autocast-annotated-torch2.6': 3,
           'train-steady-torch2.11': 5}
SIMULATED = ((), ('--checkpoint', 'full'), ('--accumulate', '2'), ('--optimizer', 'sgd'),
             ('--dtype', 'autocast-fp16'), ('--fresh-process', '--optimizer', 'adamw-loop'),
             ('--loss', 'chunked:64', '--checkpoint', 'selective'))
PLANTED_STEPS = 8
LEAK_BYTES = 1024
# How far through a step the leak is made.
PLACES = (0.05, 0.3, 0.55, 0.8, 0.97)


class Skip(Exception):
    """The test cannot run here; says why."""


def expect(what, got, want):
    if got != want:
        raise AssertionError(f'{what}: got {got}, want {want}')


def ask(tessera, command, path):
    done = subprocess.run([tessera, command, '--json', path], capture_output=True, check=True)
    return json.loads(done.stdout)['devices'][0]


def simulate(tessera, path, steps, words):
    subprocess.run([tessera, 'simulate', 'gpt2', '--batch', '1', '--seq', '64', '--steps', str(steps),
                    *words, '-o', path], stdout=subprocess.DEVNULL, check=True)


def real(name):
    path = SHARED / f'{name}.pickle'
    if not path.exists():
        raise Skip('../shared/snapshots is not there')
    return path


class Inert(pickle.Unpickler):
    """A snapshot is data: no class of it is looked up."""

    def find_class(self, module, name):
        raise pickle.UnpicklingError(f'{module}.{name}')


def load(path):
    with open(path, 'rb') as stream:
        return Inert(stream).load()


def ranges_of(snapshot, name):
    """The times at which the ranges of this name begin and end."""
    begun, out = None, []
    for note in snapshot['external_annotations']:
        if not note['name'].startswith(name):
            continue
        if note['stage'] == 'START':
            begun = note['time_us']
        elif begun is not None:
            out.append((begun, note['time_us']))
            begun = None
    return out


def check_against_ranges(snapshot, found, name, count):
    """Each whole step holds one range. An optimizer's step ends where its range does: nothing is
    allocated behind it."""
    ranges = ranges_of(snapshot, name)
    expect(f'ranges of {name}', len(ranges), count)
    steps = [step for step in found['steps'] if step['whole']]
    expect('whole steps', (found['whole_steps'], len(steps)), (count, count))
    trace = snapshot['device_traces'][found['device']]
    for (begin, end), step in zip(ranges, steps, strict=True):
        inside = [i for i, event in enumerate(trace)
                  if begin <= event['time_us'] <= end and event['action'] == 'alloc']
        if inside and not step['first_event'] <= inside[0] <= inside[-1] <= step['last_event']:
            raise AssertionError(f"{name}: events {inside[0]} to {inside[-1]} are not in the step "
                                 f"{step['first_event']} to {step['last_event']}")
    matched = {entry['name']: (entry['ranges'], entry['matched']) for entry in found['annotations']}
    expect(f'said of {name}', matched[name], (count, count))


def check_real_steps(tessera, _, name, count):
    path = real(name)
    check_against_ranges(load(path), ask(tessera, 'steps', path), STEP, count)


def expect_no_leak(tessera, path, steps):
    found = ask(tessera, 'leaks', path)
    expect('steps', found['whole_steps'], steps)
    expect('an answer', found['answered'], True)
    expect('leaks', (found['leaks'], found['bytes_per_step']), ([], 0))


def check_real_leaks(tessera, _, name, steps):
    expect_no_leak(tessera, real(name), steps)


def check_every_real_file(tessera, _):
    """No file of theirs has a leak, of however few steps."""
    real('train-steady-torch2.11')
    for path in sorted(SHARED.glob('*.pickle')):
        if path.name != 'synthetic-mosaic-sample.pickle':
            expect(path.name, ask(tessera, 'leaks', path)['leaks'], [])


def check_simulated(tessera, work, steps, words):
    path = work / 'run.pickle'
    simulate(tessera, path, steps, words)
    expect_no_leak(tessera, path, steps)
    found = ask(tessera, 'steps', path)
    snapshot = load(path) if steps <= 10 else None
    # Without momentum SGD allocates nothing: no event lies in its ranges.
    names = ('ProfilerStep',) if 'sgd' in words else (STEP, 'ProfilerStep')
    for name in names if snapshot else ():
        check_against_ranges(snapshot, found, name, steps)
    matched = {entry['name']: (entry['ranges'], entry['matched']) for entry in found['annotations']}
    expect('annotations', matched, dict.fromkeys(names, (steps, steps)))
    path.unlink()


def plant(snapshot, steps, place, own_stack):
    """1 KiB in each step that is never freed, in a segment of its own."""
    trace = snapshot['device_traces'][0]
    base = max(segment['address'] + segment['total_size'] for segment in snapshot['segments'])
    base = (base // (2 << 20) + 64) * (2 << 20)
    # Behind the same line in each step: the one that is so far through the last.
    first, last = steps[-1]['first_event'], steps[-1]['last_event']
    model = first + int(place * (last - first))
    while trace[model]['action'] != 'alloc':
        model -= 1
    after = {}
    for number, step in enumerate(steps):
        event = step['first_event']
        while (trace[event]['action'], trace[event]['frames']) != ('alloc', trace[model]['frames']):
            event += 1
        after[event] = base + number * LEAK_BYTES
    blocks, out = [], []
    for i, event in enumerate(trace):
        out.append(event)
        if i not in after:
            continue
        frames = event['frames']
        if own_stack:
            frames = [frames[0], {'name': 'remember', 'filename': '/work/log.py', 'line': 7}, *frames[1:]]
        leak = {**event, 'addr': after[i], 'size': LEAK_BYTES, 'frames': frames}
        if not blocks:
            out.append({**leak, 'action': 'segment_alloc', 'addr': base, 'size': 2 << 20})
        out.append(leak)
        blocks.append({'address': after[i], 'size': LEAK_BYTES, 'requested_size': LEAK_BYTES,
                       'state': 'active_allocated', 'frames': frames})
    used = LEAK_BYTES * len(blocks)
    blocks.append({'address': base + used, 'size': (2 << 20) - used, 'requested_size': 0,
                   'state': 'inactive', 'frames': []})
    snapshot['segments'].append({**snapshot['segments'][0], 'address': base, 'total_size': 2 << 20,
                                 'allocated_size': used, 'active_size': used, 'requested_size': used,
                                 'segment_type': 'small', 'blocks': blocks})
    snapshot['device_traces'][0] = out


def check_planted(tessera, work, place, own_stack, words=()):
    path = work / 'run.pickle'
    simulate(tessera, path, PLANTED_STEPS, words)
    snapshot, steps = load(path), ask(tessera, 'steps', path)['steps']
    plant(snapshot, steps, place, own_stack)
    path.write_bytes(pickle.dumps(snapshot, protocol=4))
    found = ask(tessera, 'leaks', path)
    expect('leaks', len(found['leaks']), 1)
    leak = found['leaks'][0]
    expect('the leak', {key: leak[key] for key in ('bytes_per_step', 'bytes', 'allocations', 'since_step')},
           {'bytes_per_step': LEAK_BYTES, 'bytes': LEAK_BYTES * PLANTED_STEPS,
            'allocations': PLANTED_STEPS, 'since_step': 0})
    if own_stack:
        expect('its function', leak['frames'][1]['name'], 'remember')
    path.unlink()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--tessera', required=True, type=pathlib.Path)
    parser.add_argument('--work', required=True, type=pathlib.Path)
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    tests = [(f'the annotations of {name}', check_real_steps, (name, count))
             for name, count in ANNOTATED.items()]
    tests += [(f'no leak in {name}', check_real_leaks, (name, steps)) for name, steps in HEALTHY.items()]
    tests += [('no leak in any real file', check_every_real_file, ())]
    tests += [(f"{steps} simulated steps: {' '.join(words) or 'plain'}", check_simulated, (steps, words))
              for words in SIMULATED for steps in (10, 50)]
    tests += [(f'a leak at {place} of a step', check_planted, (place, True)) for place in PLACES]
    tests += [(f'a leak at {place} of a step, by the stack of what does not leak', check_planted,
               (place, False)) for place in PLACES[1:4]]
    tests += [('a leak while checkpointing computes again', check_planted,
               (0.5, True, ('--checkpoint', 'full')))]
    failed = 0
    print(f'1..{len(tests)}')
    for number, (title, check, given) in enumerate(tests, 1):
        try:
            check(options.tessera.resolve(), options.work, *given)
            print(f'ok {number} - {title}')
        except Skip as why:
            print(f'ok {number} - {title} # SKIP {why}')
        except AssertionError as why:
            failed += 1
            print(f'not ok {number} - {title}\n# {why}')
    return int(failed > 0)


if __name__ == '__main__':
    sys.exit(main())
