#!/usr/bin/env python3
"""targets.py: whether the texts of `plan --for` are what the answer says about them.

    python3 tests/golden/targets.py --tessera PROGRAM --seed N --count N

A plan is drawn from all options that plans have. Each text is read (texts.py), and the plan that it is simulated: it needs what the answer
of `plan` says, and each option in which it differs from the plan that was drawn is named by a note. DeepSpeed's configuration is read by
`simulate --ds-config`.
"""
import argparse
import json
import pathlib
import random
import re
import sys
import tempfile

from support import Tessera, expect
from texts import BATCH, MODELS, READERS, SEQUENCE, TARGETS, draw, notes_of, of_notes

# ---- comparing ----

# By option, words of the note about it, where they are not its own name.
WORDS = {'loss': 'loss chunked', 'optimizer': 'optimizer', 'dtype': r'fp16|bf16|autocast|16-bit', 'master_weights': r'masters|autocast|fp16', 'checkpoint': r'checkpoint|computed again',
         'blocks': r'computed again', 'checkpoint_form': r'reentrant', 'offload': r'on the (host|disk)|offload', 'in_place': 'in-place',
         'optimizer_in_backward': 'optimizer-in-backward', 'loss_scale': 'loss.scale', 'loss_scale_window': 'loss-scale', 'zero': r'ZeRO|offloading',
         'ranks': 'ZeRO|offloading|ranks', 'lora_alpha': 'lora', 'double_quant': 'double-quant', 'no_overlap': 'no-overlap', 'no_kv_cache': 'no-kv-cache'}
# What a program does anyway: it needs no note.
ALWAYS = {'torchtitan': ('no_kv_cache',), 'megatron': ('no_kv_cache', 'gelu', 'optimizer'), 'fsdp2': ('no_kv_cache',)}
SAME = {'accumulation': ('auto', 'grouped'), 'optimizer': ('adamw', 'adamw-foreach')}
DEFAULTS = {'accumulate': 1, 'optimizer': 'adamw', 'dtype': 'fp32', 'attention': 'sdpa', 'gelu': 'eager', 'checkpoint': 'none',
            'checkpoint_form': 'reentrant', 'loss': 'full', 'ranks': 1, 'zero': 0, 'accumulation': 'auto',
            'loss_scale': 65536, 'loss_scale_window': 2000}


def is_same(option, drawn, read):
    drawn, read = (DEFAULTS.get(option) if value in (None, '') else value for value in (drawn, read))
    same = SAME.get(option, ())
    return str(drawn) == str(read) or (drawn in same and read in same)


def normal(plan, batch):
    """With micro-batches as batches, which is how programs load them."""
    plan = dict(plan)
    micro = plan.pop('micro_batch', batch)
    plan['accumulate'] = plan.get('accumulate', 1) * (batch // micro)
    if plan.get('kbit_training') == 'checkpointing' and plan.get('checkpoint') == 'full':
        del plan['checkpoint']  # which that does
    return micro, plan


class Targets(Tessera):
    def __init__(self, program, work):
        super().__init__(program)
        self.work = pathlib.Path(work)
        for name, model in MODELS.items():
            self.put(f'{name}.json', model)

    def put(self, name, value):
        path = self.work / name
        path.write_text(value if isinstance(value, str) else json.dumps(value), encoding='utf-8')
        return path

    def answer(self, name, plan):
        """The answer for every target; None if the plan does not suit the model."""
        words = [word for target in TARGETS for word in ('--for', target)]
        done = self.run('plan', self.work / f'{name}.json', '--plan', self.put('plan.json', plan), '--batch', BATCH, '--seq', SEQUENCE, '--gpu', 'h100',
                        '--json', *words, status=None)
        if done.returncode:
            expect(f'a message about {json.dumps(plan)}', 'tessera' in done.stderr, True)
            return None
        answer = json.loads(done.stdout)
        return {one['target']: one for one in (answer['for'], *answer['also_for'])}

    def simulate(self, name, *words):
        """What is reserved; a message if it is impossible."""
        done = self.run('simulate', self.work / f'{name}.json', '--seq', SEQUENCE, '--gpu', 'h100', '--json', *words, status=None)
        return json.loads(done.stdout)['devices'][0]['peak_reserved_bytes'] if done.returncode == 0 else done.stderr

    def of_deepspeed(self, name, one, notes):
        """The plan that `--ds-config` and the notes are, and what it reserves."""
        words = [word for key, value in of_notes(notes).items() if key != 'ranks' or value
                 for word in ((f'--{key.replace("_", "-")}',) if value is True else (f'--{key.replace("_", "-")}', value))]
        read = self.work / 'read.json'
        read.unlink(missing_ok=True)
        reserved = self.simulate(name, '--ds-config', self.put('ds.json', one['text']), '--write-plan', read, *words)
        config = json.loads(one['text'])
        return config['train_micro_batch_size_per_gpu'], json.loads(read.read_text()) if read.exists() else {}, reserved

    def check(self, name, plan):
        """How many targets have been compared."""
        answer = self.answer(name, plan)
        if answer is None:
            return 0
        count = 0
        for target, one in answer.items():
            if target == 'tessera':
                expect('the plan', json.loads(one['text']), plan)
            elif target == 'env':
                expect('env', one['text'].splitlines()[-1], 'export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True')
            else:
                count += self.compare(name, plan, target, one, notes_of(one))
        return count

    def compare(self, name, plan, target, one, notes):
        if target == 'deepspeed':
            batch, read, reserved = self.of_deepspeed(name, one, notes)
        else:
            batch, read = READERS[target](one['text'], notes)
            if target == 'megatron' and name == 'llama':
                read.pop('gelu')
            if 'loss' in read:
                read['loss'] = plan['loss']
            reserved = self.simulate(name, '--batch', batch, '--plan', self.put('read.json', {'version': 1, **read}))
        what = f'{target} {name} {json.dumps(plan)}'
        if isinstance(reserved, str):
            expect(f'{what}: impossible: {reserved}', notes[0].startswith('no prediction'), True)
            expect(f'{what}: reserved', one['reserved_bytes'], None)
            if target == 'deepspeed':
                return 1  # what it read is not known
        else:
            expect(f'{what}: reserved by {json.dumps(read)} with {notes}', one['reserved_bytes'], reserved)
        micro, wanted = normal(plan, BATCH)
        _, read = normal(read, batch)
        expect(f'{what}: micro-batch', batch, micro)
        said = '\n'.join(note for note in notes if note.startswith('not supported: '))
        for option in {*wanted, *read} - {'version'}:
            is_always = option in ALWAYS.get(target, ()) and option not in wanted
            is_unused = (option == 'checkpoint_form' and not {'checkpoint', 'blocks'} & {*wanted}
                         or option in ('bucket', 'no_overlap', 'ranks') and wanted.get('ranks', 1) == 1
                         or option == 'master_weights' and 'lora' in wanted
                         or option in ('loss_scale', 'loss_scale_window') and 'fp16' not in wanted.get('dtype', ''))
            if is_always or is_unused or is_same(option, wanted.get(option), read.get(option)):
                continue
            if not re.search(f'{WORDS.get(option, option)}|not supported: {option.replace("_", "-")}\\b', said):
                raise AssertionError(f'{what}: {option} is {read.get(option)!r}, and no note says so: {notes}')
        return 1


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--tessera', required=True)
    parser.add_argument('--seed', type=int, default=0)
    parser.add_argument('--count', type=int, default=100)
    given = parser.parse_args()
    compared, failed = 0, 0
    with tempfile.TemporaryDirectory() as work:
        targets = Targets(given.tessera, work)
        for seed in range(given.seed, given.seed + given.count):
            try:
                compared += targets.check(*draw(random.Random(seed)))
            except (AssertionError, KeyError) as error:
                failed += 1
                print(f'{seed}: {error!r}'[:1500])
    print(f'{given.count} plans, {compared} texts compared, {failed} failed')
    return int(failed > 0)


if __name__ == '__main__':
    sys.exit(main())
