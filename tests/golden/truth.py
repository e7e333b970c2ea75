#!/usr/bin/env python3
"""Categories when half of the frames are missing. From simulated runs, whose traces contain the true categories, the
C++ frames or the Python frames are removed, with checkpointing in both of its forms. Prints TAP.

usage: truth.py --tessera PATH --work FOLDER

After every event 99 of 100 live bytes must be right, as in tests/unit/test_truth.c, which has all the frames."""
import argparse
import csv
import io
import itertools
import pathlib
import pickle
import subprocess
import sys

# Where another category than the true one is right as well: a recording does not tell buffers from
# parameters, nor what a step keeps for its backward pass from what it computes again.
ALSO = {'buffer': ['parameter'], 'activation': ['recomputed'], 'recomputed': ['activation']}
RUNS = ((), ('--checkpoint', 'full'), ('--checkpoint', 'every:3'), ('--checkpoint', 'selective'),
        ('--checkpoint', 'full', '--dtype', 'autocast-bf16', '--accumulate', '2'),
        ('--checkpoint', 'full', '--attention', 'chunked:64'),
        ('--dtype', 'autocast-bf16'),
        ('--accumulate', '2'), ('--optimizer', 'sgd'))


UNPACK = ('torch::autograd::PySavedVariableHooks::call_unpack_hook()',
          'torch::autograd::SavedVariable::unpack(std::shared_ptr<torch::autograd::Node>) const',
          'torch::autograd::generated::AddBackward0::apply(std::vector<at::Tensor>&&)')


def is_python(frame):
    return frame['filename'].endswith('.py')


def python_alone(frames):
    return [frame for frame in frames if is_python(frame)]


def native_alone(frames):
    return [frame for frame in frames if not is_python(frame)]


def not_reentrant(frames):
    """The same work as a hook of a saved tensor does it: the engine within a node is the one outside, and
    what a node computes again it computes while it unpacks what it saved."""
    frames = native_alone(frames)
    nodes = [i for i, frame in enumerate(frames) if '::PyNode::apply' in frame['name']]
    if not nodes:
        return frames
    inside, outside = frames[:nodes[-1]], frames[nodes[-1] + 1:]
    engine = [i for i, frame in enumerate(inside) if frame['name'].startswith('THPEngine')]
    if engine:
        return inside[:engine[0]] + outside
    return inside + [{'name': name, 'filename': '??', 'line': 0} for name in UNPACK] + outside


def worst_share(rows, truth, events):
    """The largest share of wrong bytes after any event, of what the recording saw being made."""
    deltas = [(0, 0)] * (events + 1)
    for row in rows:
        birth, size = int(row['birth_event']), int(row['requested_bytes'])
        if birth < 0:
            continue
        lie = 0 if row['category'] in [truth[birth], *ALSO.get(truth[birth], [])] else size
        for event, sign in ((birth, 1), (int(row['death_event'] or events), -1)):
            live, wrong = deltas[event]
            deltas[event] = live + sign * size, wrong + sign * lie
    live = wrong = 0
    worst = 0.0
    for more_live, more_wrong in deltas[:events]:
        live, wrong = live + more_live, wrong + more_wrong
        worst = max(worst, wrong / live if live > 1 << 20 else 0)
    return worst


def simulate(tessera, path, words):
    """The simulated snapshot, and what each event of its trace is for."""
    subprocess.run([tessera, 'simulate', 'gpt2', '--batch', '4', '--seq', '256', '--steps', '2',
                    '--categories', *words, '-o', str(path)], stdout=subprocess.DEVNULL, check=True)
    snapshot = pickle.loads(path.read_bytes())
    return snapshot, [event.pop('category', None) for event in snapshot['device_traces'][0]]


def changed(snapshot, change):
    """The snapshot with other frames. Events share their stacks, before and after."""
    stacks = {}
    for trace in snapshot['device_traces']:
        for event in trace:
            frames = event['frames']
            if id(frames) not in stacks:
                stacks[id(frames)] = change(frames)
    return {**snapshot, 'device_traces': [[{**event, 'frames': stacks[id(event['frames'])]}
                                           for event in trace]
                                          for trace in snapshot['device_traces']]}


def check(tessera, path, simulated, change):
    snapshot, truth = simulated
    path.write_bytes(pickle.dumps(changed(snapshot, change), protocol=4))
    told = subprocess.run([tessera, 'export', '--format', 'csv', str(path)], capture_output=True,
                          check=True, text=True).stdout
    worst = worst_share(csv.DictReader(io.StringIO(told)), truth, len(truth))
    assert worst <= 0.01, f'{100 * worst:.2f} % of the live bytes are wrong'


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--tessera', required=True, type=pathlib.Path)
    parser.add_argument('--work', required=True, type=pathlib.Path)
    arguments = parser.parse_args()
    arguments.work.mkdir(parents=True, exist_ok=True)
    tests = [(words, name, change) for words in RUNS for name, change in (
        ('Python alone', python_alone), ('C++ alone', native_alone),
        ('C++ alone, not reentrant', not_reentrant))
        if change != not_reentrant or '--checkpoint' in words]
    tessera, path = arguments.tessera.resolve(), arguments.work / 'run.pickle'
    number = failed = 0
    print(f'1..{len(tests)}')
    for words, group in itertools.groupby(tests, key=lambda test: test[0]):
        simulated = simulate(tessera, path, words)
        for _, name, change in group:
            number += 1
            title = f"{number} - {name}: {' '.join(words) or 'plain'}"
            try:
                check(tessera, path, simulated, change)
                print(f'ok {title}')
            except AssertionError as why:
                failed += 1
                print(f'not ok {title}\n# {why}')
    path.unlink()
    return int(failed > 0)


if __name__ == '__main__':
    sys.exit(main())
