#!/usr/bin/env python3
"""What memory is for, where half of the frames are missing: of simulated runs, whose trace says what is
true, the C++ frames are taken away, or Python's; checkpointing in both of its forms. Prints TAP.

usage: truth.py --tessera PATH --work FOLDER

After every event 99 of 100 live bytes must be right, as in tests/unit/test_truth.c, which has all the frames."""
import argparse
import csv
import io
import json
import pathlib
import subprocess
import sys

# The simulator's words.
KINDS = {'temporary': ['temporary'], 'backward': ['temporary'], 'parameter': ['parameter'],
         'buffer': ['parameter'], 'input': ['input'], 'activation': ['activation', 'recomputed'],
         'gradient': ['gradient'], 'optimizer': ['optimizer_state'], 'workspace': ['workspace']}
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
        lie = 0 if row['category'] in KINDS[truth[birth]] else size
        for event, sign in ((birth, 1), (int(row['death_event'] or events), -1)):
            live, wrong = deltas[event]
            deltas[event] = live + sign * size, wrong + sign * lie
    live = wrong = 0
    worst = 0.0
    for more_live, more_wrong in deltas[:events]:
        live, wrong = live + more_live, wrong + more_wrong
        worst = max(worst, wrong / live if live > 1 << 20 else 0)
    return worst


def check(tessera, work, words, change):
    path = work / 'run.json'
    subprocess.run([tessera, 'simulate', 'gpt2', '--batch', '4', '--seq', '256', '--steps', '2',
                    '--categories', *words, '-o', str(path)], stdout=subprocess.DEVNULL, check=True)
    snapshot = json.loads(path.read_text())
    for trace in snapshot['device_traces']:
        for event in trace:
            event['frames'] = change(event.get('frames', ()))
    truth = [event.pop('category', None) for event in snapshot['device_traces'][0]]
    path.write_text(json.dumps(snapshot))
    told = subprocess.run([tessera, 'export', '--format', 'csv', str(path)], capture_output=True,
                          check=True, text=True).stdout
    worst = worst_share(csv.DictReader(io.StringIO(told)), truth, len(truth))
    path.unlink()
    assert worst <= 0.01, f'{100 * worst:.2f} % of the live bytes are wrong'


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--tessera', required=True, type=pathlib.Path)
    parser.add_argument('--work', required=True, type=pathlib.Path)
    arguments = parser.parse_args()
    arguments.work.mkdir(parents=True, exist_ok=True)
    tests = [(words, 'Python alone', python_alone) for words in RUNS]
    tests += [(words, 'C++ alone', native_alone) for words in RUNS]
    tests += [(words, 'C++ alone, not reentrant', not_reentrant) for words in RUNS
              if '--checkpoint' in words]
    failed = 0
    print(f'1..{len(tests)}')
    for number, (words, name, change) in enumerate(tests, 1):
        try:
            check(arguments.tessera.resolve(), arguments.work, words, change)
            print(f"ok {number} - {name}: {' '.join(words) or 'plain'}")
        except AssertionError as why:
            failed += 1
            print(f"not ok {number} - {name}: {' '.join(words) or 'plain'}\n# {why}")
    return int(failed > 0)


if __name__ == '__main__':
    sys.exit(main())
