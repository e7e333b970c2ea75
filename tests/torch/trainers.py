#!/usr/bin/env python3
"""trainers.py [--check] [NAME...]: the callbacks in the real transformers, Lightning, Composer and TorchTNT, each in a process of its own.

Each trains two steps on the CPU with a stand-in for the memory functions of a card, whose allocator then runs out of memory: one
snapshot is written, and standard error has what `tessera why` says of it. A library that isn't installed is skipped. What they need:

    python -m venv REAL && REAL/bin/pip install torch==2.9.1 transformers==4.57.1 accelerate lightning torchtnt
    REAL/bin/pip install mosaicml     # in another one: it takes an older torch
    REAL/bin/pip install . && REAL/bin/python tests/torch/trainers.py
"""
import argparse
import importlib
import re
import subprocess
import sys
import tempfile
from pathlib import Path

LIBRARIES = {'transformers': ('transformers', 'accelerate'), 'lightning': ('lightning.pytorch',), 'composer': ('composer',),
             'torchtnt': ('torchtnt.framework',)}
GIB = 1 << 30
OBSERVERS = []


def pretend_a_card(torch):
    """The memory functions that recording calls. The trace is of a program that holds 2 GiB, and asks for one more than there is."""
    frames = [{'name': 'training_step', 'filename': 'train.py', 'line': 12}]
    base = 0x7f0000000000
    entry = {'stream': 0, 'time_us': 1, 'frames': frames}
    trace = [dict(entry, action='segment_alloc', addr=base, size=2 * GIB), dict(entry, action='alloc', addr=base, size=2 * GIB),
             dict(entry, action='oom', addr=GIB // 2, size=GIB, device_free=GIB // 2)]
    segment = {'device': 0, 'address': base, 'total_size': 2 * GIB, 'allocated_size': 2 * GIB, 'active_size': 2 * GIB,
               'requested_size': 2 * GIB, 'stream': 0, 'segment_type': 'large', 'segment_pool_id': (0, 0), 'is_expandable': False,
               'frames': frames, 'blocks': [{'address': base, 'size': 2 * GIB, 'requested_size': 2 * GIB, 'state': 'active_allocated',
                                             'frames': frames}]}
    torch.version.cuda = torch.version.cuda or '12.8'
    torch.cuda._lazy_call = lambda function, **options: function()
    torch.cuda.current_device = lambda: 0
    torch.cuda.memory._record_memory_history = lambda *args, **options: None
    torch.cuda.memory._snapshot = lambda *args, **options: {'segments': [segment], 'device_traces': [trace]}
    torch._C._cuda_attach_out_of_memory_observer = OBSERVERS.append


def run_out_of_memory():
    import torch
    for observer in OBSERVERS:
        observer(0, GIB, 3 * GIB, GIB // 2)
    raise torch.OutOfMemoryError('CUDA out of memory. Tried to allocate 1024.00 MiB.')


def model_of(torch):
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = torch.nn.Linear(8, 8)
            self.calls = 0

        def forward(self, x):
            self.calls += 1
            if self.calls > 2:
                run_out_of_memory()
            return self.inner(x)
    return Model()


def transformers(torch, callbacks, out):
    import transformers as hf

    class Wrapped(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model_of(torch)

        def forward(self, x, labels=None):
            return {'loss': self.model(x).sum()}
    rows = [{'x': torch.ones(8), 'labels': torch.ones(1)} for _ in range(8)]
    arguments = hf.TrainingArguments(output_dir=f'{out}/hf', max_steps=4, per_device_train_batch_size=1, report_to=[], use_cpu=True,
                                     save_strategy='no', disable_tqdm=True)
    hf.Trainer(Wrapped(), arguments, train_dataset=rows, callbacks=[callbacks.TrainerCallback(out)]).train()


def lightning(torch, callbacks, out):
    import lightning.pytorch as pl

    class Module(pl.LightningModule):
        def __init__(self):
            super().__init__()
            self.model = model_of(torch)

        def training_step(self, batch, index):
            return self.model(batch).sum()

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1)
    loader = torch.utils.data.DataLoader(torch.ones(8, 8), batch_size=1)
    pl.Trainer(max_steps=4, accelerator='cpu', logger=False, enable_checkpointing=False, enable_progress_bar=False,
               callbacks=[callbacks.LightningCallback(out)]).fit(Module(), loader)


def composer(torch, callbacks, out):
    import composer as mosaic

    class Model(mosaic.ComposerModel):
        def __init__(self):
            super().__init__()
            self.model = model_of(torch)

        def forward(self, batch):
            return self.model(batch)

        def loss(self, outputs, batch):
            return outputs.sum()
    model = Model()
    loader = torch.utils.data.DataLoader(torch.ones(8, 8), batch_size=1)
    mosaic.Trainer(model=model, train_dataloader=loader, optimizers=torch.optim.SGD(model.parameters(), lr=0.1), max_duration='4ba',
                   device='cpu', progress_bar=False, callbacks=[callbacks.ComposerCallback(out)]).fit()


def torchtnt(torch, callbacks, out):
    from torchtnt.framework.train import train
    from torchtnt.framework.unit import TrainUnit

    class Unit(TrainUnit):
        def __init__(self):
            super().__init__()
            self.model = model_of(torch)
            self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)

        def train_step(self, state, data):
            self.model(data).sum().backward()
            self.optimizer.step()
            self.optimizer.zero_grad()
    loader = torch.utils.data.DataLoader(torch.ones(8, 8), batch_size=1)
    train(Unit(), loader, max_steps=4, callbacks=[callbacks.TNTCallback(out)])


def die(name, out):
    """In a process of its own: train until memory runs out."""
    import torch
    from tessera import callbacks
    pretend_a_card(torch)
    globals()[name](torch, callbacks, out)


def judge(name):
    """What is wrong, or ''."""
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run([sys.executable, '-W', 'ignore', __file__, '--die', name, folder], capture_output=True, text=True, timeout=1800,
                              check=False)
        written = sorted(path.name for path in Path(folder).glob('*.pickle'))
        told = done.stderr
    if 'OutOfMemoryError: CUDA out of memory' not in told:
        return f'did not die of it: {told[-2000:]}'
    if len(written) != 1 or not re.fullmatch(r'rank0_pid\d+_step2_oom\.pickle', written[0]):
        return f'wrote {written}\n{told[-2000:]}'
    lines = told.splitlines()
    at = [number for number, line in enumerate(lines) if re.match(r'tessera: wrote .*_oom\.pickle', line)]
    if len(at) != 1 or 'out of memory' not in lines[at[0] + 1].lower() or 'training_step' not in told:
        return f'said {told[-4000:]}'
    return ''


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--check', action='store_true', help='nothing else is done anyway')
    parser.add_argument('--die', nargs=2, help=argparse.SUPPRESS)
    parser.add_argument('names', nargs='*', metavar='NAME', help=' '.join(LIBRARIES))
    given = parser.parse_args()
    if given.die:
        return die(*given.die)
    names = given.names or list(LIBRARIES)
    print(f'1..{len(names)}')
    failed = 0
    for number, name in enumerate(names, 1):
        try:
            for module in LIBRARIES[name]:
                importlib.import_module(module)
        except ImportError as error:
            print(f'ok {number} - {name} # SKIP {error}')
            continue
        problem = judge(name)
        failed += bool(problem)
        print(f'{"not " * bool(problem)}ok {number} - {name}')
        for line in problem.splitlines():
            print(f'# {line}')
    return int(failed > 0)


if __name__ == '__main__':
    sys.exit(main())
