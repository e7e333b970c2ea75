#!/usr/bin/env python3
"""Each key of a DeepSpeed configuration changes what is predicted of memory, or is said to have no effect. Prints TAP.

usage: ds_config.py --tessera PROGRAM --work FOLDER"""
import argparse
import copy
import json
import os
import shutil
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import tap  # noqa: E402

MODEL = {'model_type': 'gpt2', 'vocab_size': 256, 'n_positions': 32, 'n_embd': 64, 'n_layer': 2, 'n_head': 2,
         'resid_pdrop': 0, 'embd_pdrop': 0, 'attn_pdrop': 0}
CONFIG = {
    'train_batch_size': 16,
    'gradient_accumulation_steps': 2,
    'gradient_clipping': 0,
    'steps_per_print': 10,
    'surprise': {'inside': 1},
    'fp16': {'enabled': False, 'loss_scale': 0, 'loss_scale_window': 1000, 'initial_scale_power': 16, 'hysteresis': 2},
    'bf16': {'enabled': True},
    'activation_checkpointing': {'partition_activations': True, 'cpu_checkpointing': True},
    'scheduler': {'type': 'WarmupLR', 'params': {'warmup_num_steps': 10}},
    'optimizer': {'type': 'AdamW', 'params': {'lr': 3e-4, 'betas': [0.9, 0.95], 'eps': 1e-8, 'weight_decay': 0.1,
                                              'torch_adam': False}},
    'zero_optimization': {
        'stage': 2, 'overlap_comm': True, 'reduce_bucket_size': 4e4, 'allgather_bucket_size': 2e8,
        'allgather_partitions': True, 'reduce_scatter': True, 'contiguous_gradients': True, 'sub_group_size': 1e9,
        'stage3_prefetch_bucket_size': 'auto', 'stage3_param_persistence_threshold': 'auto',
        'stage3_max_live_parameters': 1e9, 'stage3_max_reuse_distance': 1e9,
        'offload_optimizer': {'device': 'none', 'pin_memory': True},
        'offload_param': {'device': 'none', 'pin_memory': True}}}
# What a key becomes; a flag becomes the other one, and a number one more.
CHANGED = {'train_batch_size': 32, 'gradient_accumulation_steps': 4, 'stage': 3, 'reduce_bucket_size': 500,
           'lr': 1e-3, 'eps': 1e-6, 'weight_decay': 0, 'gradient_clipping': 1.0}
WORDS = {'optimizer.type': 'SGD', 'zero_optimization.offload_optimizer.device': 'cpu',
         'zero_optimization.offload_param.device': 'cpu'}
WRONG = [('{"zero_optimization": {"stage": 4}}', 'zero_optimization.stage must be 0, 1, 2 or 3'),
         ('{"zero_optimization": {"stage": true}}', 'zero_optimization.stage must be a whole number'),
         ('{"zero_optimization": 2}', 'zero_optimization must be an object'),
         ('{"fp16": {"enabled": 1}}', 'fp16.enabled must be true or false'),
         ('{"fp16": {"enabled": true}, "bf16": {"enabled": true}}', 'cannot both be true'),
         ('{"train_batch_size": 7}', 'train_batch_size must be'),
         ('{"train_micro_batch_size_per_gpu": 0}', 'train_micro_batch_size_per_gpu must be at least 1'),
         ('{"train_micro_batch_size_per_gpu": 1.5}', 'must be a whole number'),
         ('{"gradient_clipping": "much"}', 'gradient_clipping must be a number'),
         ('{"optimizer": {"type": "OneBitLamb"}}', 'optimizer.type must be'),
         ('{"optimizer": {"params": {"betas": [0.9]}}}', 'optimizer.params.betas must be'),
         ('{"zero_optimization": {"offload_param": {"device": "moon"}}}', 'offload_param.device must be'),
         ('[]', 'is a JSON object'), ('{"a": 1, "a": 2}', 'duplicate'), ('[' * 100000, 'depth'), ('', 'expected')]


class Tests:
    def __init__(self, program, work):
        self.program, self.work = program, work
        shutil.rmtree(work, ignore_errors=True)
        os.makedirs(work)
        self.write('model.json', json.dumps(MODEL))
        self.write('data', 'a text to learn from; ' * 100)

    def write(self, name, text):
        with open(f'{self.work}/{name}', 'w', encoding='utf-8') as out:
            out.write(text)

    def run(self, text, options, command='simulate'):
        self.write('ds.json', text)
        done = subprocess.run([self.program, command, f'{self.work}/model.json', '--ds-config', f'{self.work}/ds.json',
                               '--json', *options], capture_output=True, text=True, timeout=600, check=False)
        return done.returncode, done.stdout, done.stderr

    def predict(self, config, *options):
        """What is predicted: the peak of each phase, the host's, what is reserved, the number of requests; and the keys without
        effect."""
        status, output, errors = self.run(json.dumps(config), ['--seq', '16', '--ranks', '4', *options])
        assert status == 0, errors
        device = json.loads(output)['devices'][0]
        keys = [line.split('no effect here: ')[1].split(',')[0] for line in errors.splitlines() if 'no effect' in line]
        return (device['phases'], device.get('host'), device['peak_reserved_bytes'], device['events']), keys

    def check_keys(self):
        before, reported = self.predict(CONFIG)
        assert len(reported) == len(set(reported)), reported
        for path in leaves(CONFIG):
            after, now = self.predict(changed(CONFIG, path))
            said = any(path == key or path.startswith(key + '.') for key in now)
            assert said != (before != after), (path, 'said' if said else 'not said, and no request changes')

    def check_options(self):
        """It says what options say, and those go before it."""
        with_file, _ = self.predict(CONFIG)
        given = ['--batch', '2', '--accumulate', '2', '--dtype', 'bf16', '--master-weights', '--zero', '2', '--bucket',
                 '40000', '--optimizer', 'adamw-fused']
        assert self.predict({}, *given)[0] == with_file
        stage, keys = self.predict(CONFIG, '--zero', '0')
        assert stage != with_file and 'zero_optimization.stage' in keys, keys
        assert self.predict({**CONFIG, 'train_micro_batch_size_per_gpu': 2})[0] == with_file
        halved = {key: value for key, value in CONFIG.items() if key != 'gradient_accumulation_steps'}
        assert self.predict({**halved, 'train_micro_batch_size_per_gpu': 2})[0] == with_file

    def check_wrong(self):
        for text, message in WRONG:
            status, output, errors = self.run(text, ['--seq', '16', '--ranks', '4'])
            assert status != 0 and not output and message in errors and 'ds.json: ' in errors, (text[:80], status, errors)

    def check_training(self):
        status, output, errors = self.run(json.dumps(CONFIG), ['--data', f'{self.work}/data', '--seq', '16', '--ranks', '4',
                                                               '--steps', '2', '--threads', '1'], 'train')
        assert status == 0, errors
        assert 'optimizer.params.lr' not in errors and 'surprise' in errors, errors
        ranks = json.loads(output.splitlines()[-1])['ranks']
        assert len(ranks) == 4 and all(one['peak_bytes'] == one['predicted_peak_bytes'] for one in ranks), ranks

    def check_pasted(self):
        """What `plan --for deepspeed` prints is read back as the same plan."""
        plan = {'version': 1, 'ranks': 4, 'zero': 2, 'bucket': 1000, 'no_overlap': True, 'clip': '1', 'dtype': 'bf16',
                'master_weights': True, 'accumulate': 2}
        self.write('plan.json', json.dumps(plan))
        done = subprocess.run([self.program, 'plan', 'gpt2', '--plan', f'{self.work}/plan.json', '--for', 'deepspeed'],
                              capture_output=True, text=True, timeout=600, check=False)
        assert done.returncode == 0, done.stderr
        status, _, errors = self.run(done.stdout, ['--ranks', '4', '--seq', '16', '--write-plan', f'{self.work}/read'])
        assert status == 0, errors
        with open(f'{self.work}/read', encoding='utf-8') as file:
            assert json.load(file) == plan


def leaves(config, prefix=''):
    for key, value in config.items():
        if isinstance(value, dict):
            yield from leaves(value, f'{prefix}{key}.')
        else:
            yield prefix + key


def changed(config, path):
    config = copy.deepcopy(config)
    *sections, key = path.split('.')
    section = config
    for name in sections:
        section = section[name]
    before = section[key]
    if path in WORDS:
        section[key] = WORDS[path]
    elif key in CHANGED:
        section[key] = CHANGED[key]
    elif isinstance(before, bool):
        section[key] = not before
    elif isinstance(before, list):
        section[key] = [0.5, 0.5]
    else:
        section[key] = 1 if isinstance(before, str) else before + 1
    if path == 'fp16.enabled':
        config['bf16']['enabled'] = False
    return config


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--tessera', required=True)
    parser.add_argument('--work', required=True)
    options = parser.parse_args()
    tests = Tests(os.path.abspath(options.tessera), os.path.abspath(options.work))
    return tap.run(tap.named([tests.check_keys, tests.check_options, tests.check_wrong, tests.check_training, tests.check_pasted]))


if __name__ == '__main__':
    sys.exit(main())
