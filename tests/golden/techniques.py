#!/usr/bin/env python3
"""The techniques of docs/techniques.md do what it says of them, executed and simulated. Prints TAP.

usage: techniques.py --tessera PATH --work FOLDER"""
import argparse
import functools
import json
import pathlib
import sys

from support import expect, run_tests
from train import Tessera

BATCH, SEQUENCE, STEPS = 2, 16, 6
TOKENS = BATCH * SEQUENCE
VOCABULARY, WIDTH, LAYERS = 256, 32, 2  # of train.py's models
LOGITS = TOKENS * VOCABULARY * 4
CACHE = 2 * LAYERS * TOKENS * WIDTH * 4


def simulated(t, model, *options):
    done = t.run('simulate', t.models[model], '--batch', BATCH, '--seq', SEQUENCE, '--json', '-q', *options)
    expect('exit status', (done.returncode, done.stderr), (0, ''))
    return json.loads(done.stdout)['devices'][0]


def growth(t, path):
    """What `leaks` finds: bytes a step in all, and of each place."""
    device = json.loads(t.run('leaks', '--json', '--top', 0, path).stdout)['devices'][0]
    return device['bytes_per_step'], [(leak['bytes_per_step'], leak['frames']) for leak in device['leaks']]


def leaks(t):
    """What each planted mistake keeps of a step is what `leaks` says, of a run and of its simulation."""
    losses = [step['loss'] for step in t.train('gpt2', '--steps', STEPS)[0]]
    wanted = {'outputs': LOGITS + CACHE + 4, 'shell': LOGITS, 'batches': 2 * TOKENS * 8, 'none': 0}
    for leak in (*wanted, 'graph'):
        executed, predicted = t.work / 'executed.pickle', t.work / 'predicted.pickle'
        steps, end = t.train('gpt2', '--steps', STEPS, '--leak', leak, '--snapshot', executed, '-q')
        device = simulated(t, 'gpt2', '--steps', STEPS, '--leak', leak, '-o', predicted)
        expect(f'{leak} executed as predicted', executed.read_bytes(), predicted.read_bytes())
        expect('peak', (end['peak_bytes'], end['predicted_peak_bytes']), (device['peak']['allocated_bytes'],) * 2)
        expect('losses do not depend on it', [step['loss'] for step in steps], losses)
        total, places = growth(t, executed)
        if leak in wanted:
            expect(f'{leak} grows by', total, wanted[leak])
        else:
            # The graph keeps at least both norms' results, the queries and keys, and the logits' softmax.
            expect('a graph is large', total > 8 * TOKENS * WIDTH * 4 * LAYERS + LOGITS, True)
            names = ' '.join(frame['name'] for _, frames in places for frame in frames)
            for place in ('scaled_dot_product', 'log_softmax', 'layer_norm'):
                expect(place, place in names, True)
    done = t.run('train', t.models['gpt2'], '--data', t.text, '--leak', 'graph', '--memory', 'placed')
    expect('placed memory', (done.returncode, 'a leak needs caching memory' in done.stderr), (2, True))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('--tessera', required=True)
    parser.add_argument('--work', required=True, type=pathlib.Path)
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    t = Tessera(options.tessera, options.work)
    return run_tests((check.__name__, functools.partial(check, t)) for check in (leaks,))


if __name__ == '__main__':
    sys.exit(main())
