#!/usr/bin/env python3
"""card.py [--steps N] [--rounds N] [--cost MICROSECONDS]: what the ledger of the card takes of a training step, in Markdown.

A model of 4 blocks of width 256 (4 sequences of 128 tokens, AdamW) trains on the processor with the PyTorch of this interpreter; what PyTorch
tells of a GPU is replaced, and NVML is the stand-in of tests/card (needs a C compiler), whose calls take `--cost` more each, as a driver's do. In a
round, the same steps are made without a recording, with one that has no ledger (card=False), and with one that has it, in turns. A step's time is
processor time, of all threads: PyTorch has one here.
"""
import argparse
import datetime
import platform
import statistics
import subprocess
import sys
import tempfile
import time
import types
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / 'tests' / 'python'), str(ROOT / 'tests' / 'card')]


def processor():
    for line in Path('/proc/cpuinfo').read_text(encoding='utf-8').splitlines() if sys.platform == 'linux' else ():
        if line.startswith('model name'):
            return line.partition(':')[2].strip()
    return platform.processor() or platform.machine()


def pretend(torch):
    """What a GPU of PyTorch's would tell."""
    counters = {name: {'all': {'current': 3 << 30}} for name in ('allocated_bytes', 'reserved_bytes')}
    torch.version.cuda = '12.8'
    cuda = torch.cuda
    cuda._lazy_call = lambda function, **options: function()
    cuda.is_initialized = lambda: True
    cuda.current_device = lambda: 0
    cuda.device_count = lambda: 1
    cuda.memory.memory_stats_as_nested_dict = cuda.memory_stats_as_nested_dict = lambda *index: counters
    cuda.memory._record_memory_history = lambda *arguments, **options: None
    cuda.memory._snapshot = lambda *arguments: {'segments': [], 'device_traces': [[]]}
    cuda.get_device_properties = lambda *index: types.SimpleNamespace(total_memory=79 << 30, uuid=None)
    cuda.mem_get_info = lambda *index: (60 << 30, 79 << 30)
    torch._C._cuda_attach_out_of_memory_observer = lambda function: None
    torch._C._cuda_hasPrimaryContext = lambda index: True


def training(torch):
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(256, 4, 1024, dropout=0.0, batch_first=True)
    model = torch.nn.Sequential(torch.nn.Embedding(1000, 256), torch.nn.TransformerEncoder(layer, 4), torch.nn.Linear(256, 1000))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    tokens = torch.randint(0, 1000, (4, 128))

    def step():
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten())
        loss.backward()
        optimizer.step()

    return model, optimizer, step


def timed(step, steps):
    times = []
    for _ in range(steps):
        began = time.process_time()
        step()
        times.append(1e3 * (time.process_time() - began))
    return times


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--steps', type=int, default=100)
    parser.add_argument('--rounds', type=int, default=5)
    parser.add_argument('--cost', type=int, default=50)
    options = parser.parse_args()
    import torch
    import world

    torch.set_num_threads(1)

    processor_time, sample = [0.0], world.card.Ledger._sample

    def counted(*arguments, **named):
        began = time.thread_time()
        try:
            return sample(*arguments, **named)
        finally:
            processor_time[0] += time.thread_time() - began

    world.card.Ledger._sample = counted
    folder = tempfile.TemporaryDirectory()
    library = world.build(folder.name)
    if library is None:
        sys.exit('no C compiler for the stand-in of NVML')
    pretend(torch)
    text = Path(folder.name) / 'nvml.txt'
    text.write_text(f'delay {options.cost}\ncard GPU-1 {80 << 30} {600 << 20} {60 << 30} H100\ncard.process {world.os.getpid()} {4 << 30}\n')
    world.os.environ.update(TESSERA_NVML=str(library), TESSERA_NVML_WORLD=str(text))
    model, optimizer, step = training(torch)
    timed(step, 5)
    kinds = {'no recording': None, '`card=False`': {'card': False}, 'with the ledger': {}}
    times, told = {name: [] for name in kinds}, []
    for number in range(options.rounds):
        order = list(kinds)[number % 3 :] + list(kinds)[: number % 3]
        for name in order:
            how = kinds[name]
            if how is None:
                times[name] += timed(step, options.steps)
                continue
            processor_time[0] = 0.0
            with world.capture.record(folder.name + '/out', quiet=True, signal=None, **how) as recording:
                recording.watch(model, optimizer)
                times[name] += timed(step, options.steps)
                ledger = world.card.ledger
                if ledger.users:
                    spent, elapsed = ledger._for_marks.spent + ledger._for_timer.spent, time.monotonic() - ledger._for_marks.began
                    told.append((spent, elapsed, ledger.taken, ledger.skipped, processor_time[0] / max(1, ledger.taken)))
    commit = subprocess.run(['git', '-C', str(ROOT), 'log', '-1', '--format=%h'], stdout=subprocess.PIPE, text=True, check=False)
    print(f'{datetime.date.today()}, {processor()}, PyTorch {torch.__version__}, {commit.stdout.strip()}; '
          f'{options.rounds} rounds of {options.steps} steps, each call of NVML {options.cost} µs more\n')
    print('| | step (ms): median | first decile | least |\n|---|---:|---:|---:|')
    for name, found in times.items():
        tenth = statistics.quantiles(found, n=10)[0]
        print(f'| {name} | {statistics.median(found):.2f} | {tenth:.2f} | {min(found):.2f} |')
    print()
    for spent, elapsed, taken, skipped, cost in told:
        print(f'sampling took {1e3 * spent:.1f} ms of {elapsed:.1f} s ({100 * spent / elapsed:.3f} %), '
              f'{taken} samples, {skipped} marks left out, {1e6 * cost:.0f} µs of processor time a sample')


if __name__ == '__main__':
    main()
