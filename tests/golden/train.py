#!/usr/bin/env python3
"""`tessera train` learns, repeats itself, and takes the memory that `simulate` predicts. Prints TAP.

usage: train.py --tessera PATH --work FOLDER"""
import argparse
import array
import functools
import json
import math
import pathlib
import signal
import subprocess
import sys

from support import expect, run_tests

GPT2 = {'model_type': 'gpt2', 'vocab_size': 256, 'n_positions': 64, 'n_embd': 32, 'n_layer': 2,
        'n_head': 4}
LLAMA = {'model_type': 'llama', 'vocab_size': 256, 'hidden_size': 32, 'num_hidden_layers': 2,
         'num_attention_heads': 4, 'intermediate_size': 64}
TEXT = ''.join(f'{number} sheep jumped over the fence, and then there were {number + 1}. '
               for number in range(300))


class Tessera:
    def __init__(self, binary, work):
        self.binary, self.work = binary, work
        self.models = {}
        for name, config in (('gpt2', GPT2), ('llama', LLAMA)):
            self.models[name] = work / f'{name}.json'
            self.models[name].write_text(json.dumps(config))
        self.text = work / 'sheep.txt'
        self.text.write_text(TEXT)

    def run(self, *arguments):
        return subprocess.run([self.binary, *map(str, arguments)], capture_output=True, text=True,
                              check=False)

    def train(self, model, *options):
        """The lines of --json: steps, and the summary."""
        done = self.run('train', self.models[model], '--data', self.text, '--json', '--batch', 2,
                        '--seq', 16, *options)
        expect('exit status', (done.returncode, done.stderr), (0, ''))
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        return lines[:-1], lines[-1]


def learns(t):
    for model in t.models:
        steps, end = t.train(model, '--steps', 40, '--lr', '0.01')
        expect('steps', [step['step'] for step in steps], list(range(1, 41)))
        expect(f'{model} starts where nothing is known',
               abs(steps[0]['loss'] - math.log(256)) < 0.2, True)
        expect(f'{model} learns', steps[-1]['loss'] < 0.75 * steps[0]['loss'], True)
        expect('last loss', (end['first_loss'], end['last_loss'], end['tokens']),
               (steps[0]['loss'], steps[-1]['loss'], 40 * 32))


def losses(t, *options):
    return [step['loss'] for step in t.train('gpt2', '--steps', 6, *options)[0]]


def repeats(t):
    first = losses(t)
    expect('the same seed', losses(t), first)
    expect('another seed', losses(t, '--seed', 7) == first, False)
    expect('threads', (losses(t, '--threads', 1), losses(t, '--threads', 3)), (first, first))
    expect('recomputed', losses(t, '--checkpoint', 'full'), losses(t, '--no-kv-cache'))


def as_predicted(t):
    for options in ([], ['--accumulate', 3], ['--dtype', 'autocast-bf16'], ['--optimizer', 'sgd'],
                    ['--checkpoint', 'full'], ['--attention', 'chunked:4', '--loss', 'chunked:8']):
        for model in t.models:
            path = t.work / 'run.pickle'
            end = t.train(model, '--steps', 4, '--snapshot', path, '-q', *options)[1]
            wanted = json.loads(t.run('simulate', t.models[model], '--batch', 2, '--seq', 16,
                                      '--steps', 4, '--json', '-q', '-o', t.work / 'wanted.pickle',
                                      *options).stdout)['devices'][0]
            peak = wanted['peak']['allocated_bytes']
            expect(f'{model} {options}', (end['peak_bytes'], end['predicted_peak_bytes']),
                   (peak, peak))
            expect('reserved', (end['reserved_bytes'], end['predicted_reserved_bytes']),
                   (wanted['peak_reserved_bytes'],) * 2)
            expect('the snapshot is the one that was simulated', path.read_bytes(),
                   (t.work / 'wanted.pickle').read_bytes())


def token_files(t):
    """The same tokens give the same run, whatever file they are in."""
    common = ('--steps', 5)
    expected = [step['loss'] for step in t.train('gpt2', *common)[0]]
    tokens = array.array('H', list(TEXT.encode()))
    wide = array.array('I', list(TEXT.encode()))
    header = array.array('I', [20240520, 1, len(tokens)] + [0] * 253)
    for path, data, options in (
            ('a.bin', tokens.tobytes(), ()),
            ('a.dat', tokens.tobytes(), ('--tokens', 'u16')),
            ('b.bin', wide.tobytes(), ('--tokens', 'u32')),
            ('llmc.data', header.tobytes() + tokens.tobytes(), ()),
            ('a.txt', TEXT.encode(), ('--tokens', 'bytes'))):
        (t.work / path).write_bytes(data)
        steps = t.train('gpt2', *common, '--data', t.work / path, *options)[0]
        expect(path, [step['loss'] for step in steps], expected)
    with open(t.text, encoding='utf-8') as text:
        done = subprocess.run([t.binary, 'train', t.models['gpt2'], '--data', '-', '--json',
                               '--batch', '2', '--seq', '16', '--steps', '5'], stdin=text,
                              capture_output=True, text=True, check=False)
    expect('standard input', [json.loads(line)['loss'] for line in done.stdout.splitlines()[:-1]],
           expected)
    large = t.work / 'large.bin'
    with large.open('wb') as file:
        file.truncate(3 << 30)  # more than memory should hold; its tokens are 0
    done = t.run('train', t.models['gpt2'], '--data', large, '--steps', 1, '--seq', 16, '--json')
    large.unlink()
    expect('a large file', (done.returncode, done.stderr), (0, ''))
    (t.work / 'bad.bin').write_bytes(array.array('H', [1, 2, 300, 4] * 10).tobytes())
    done = t.run('train', t.models['gpt2'], '--data', t.work / 'bad.bin', '--seq', 16)
    expect('a token beyond the vocabulary', (done.returncode, done.stderr),
           (3, f'tessera: {t.work / "bad.bin"}: token 300 at position 2 is not in the model\'s '
               'vocabulary of 256 tokens (at byte 4)\n'))


def ends(t):
    common = ('train', t.models['gpt2'], '--data', t.text, '--seq', 16)
    done = t.run(*common, '--steps', 3, '--lr', '1e30')
    expect('a loss that is no number', (done.returncode, 'not a finite number' in done.stderr),
           (1, True))
    done = t.run(*common, '--capacity', '18MiB')
    expect('too little memory', (done.returncode, 'out of memory' in done.stderr), (1, True))
    process = subprocess.Popen([t.binary, *map(str, common), '--steps', '900000', '--json'],
                               stdout=subprocess.PIPE, text=True)
    process.stdout.readline()
    process.send_signal(signal.SIGINT)
    end = json.loads(process.communicate()[0].splitlines()[-1])
    expect('interrupted', (process.returncode, end['interrupted'], end['steps_done'] >= 1),
           (0, True, True))


def refuses(t):
    common = ('train', t.models['gpt2'])
    for options, text in (
            ((), '--data is missing'),
            (('--data', t.text, '--lr', 'fast'), "--lr needs a number above 0, not 'fast'"),
            (('--data', t.text, '--seq', 65), "longer than the model's 64 positions"),
            (('--data', t.text, '--snapshot', t.work / 'a.csv'), '--snapshot writes .pickle or')):
        done = t.run(*common, *options)
        expect(text, (done.returncode, text in done.stderr), (2, True))
    small = t.work / 'small.json'
    small.write_text(json.dumps(GPT2 | {'vocab_size': 100}))
    done = t.run('train', small, '--data', t.text)
    at = next(i for i, byte in enumerate(TEXT.encode()) if byte >= 100)
    expect('vocabulary', (done.returncode, done.stderr),
           (3, f'tessera: {t.text}: token {ord(TEXT[at])} at position {at} is not in the model\'s '
               f'vocabulary of 100 tokens (at byte {at})\n'))
    short = t.work / 'short.txt'
    short.write_text('short')
    done = t.run(*common, '--data', short, '--seq', 16)
    expect('short', (done.returncode, 'fewer than a sequence of 16' in done.stderr), (2, True))
    done = t.run(*common, '--data', t.work / 'absent.txt')
    expect('absent', (done.returncode, 'No such file' in done.stderr), (3, True))
    done = t.run(*common, '--data', t.text, '--snapshot', t.text)
    expect('kept', (done.returncode, t.text.read_text() == TEXT), (2, True))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('--tessera', required=True)
    parser.add_argument('--work', required=True, type=pathlib.Path)
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    t = Tessera(options.tessera, options.work)
    return run_tests((check.__name__, functools.partial(check, t))
                     for check in (learns, repeats, as_predicted, token_files, ends, refuses))


if __name__ == '__main__':
    sys.exit(main())
