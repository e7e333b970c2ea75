#!/usr/bin/env python3
"""kineto.py [--out FOLDER] [NAME...]: record the profiler's traces of tests/golden/kineto with the PyTorch that runs this, on the CPU.

Twelve programs: each is profiled with profile_memory=True, and its trace is kept as NAME.pt.trace.json.gz. Next to three of them is PyTorch's
own memory timeline of the same run. The tests read the files; nobody needs PyTorch for that.
"""
import argparse
import contextlib
import gzip
import pathlib
import shutil
import tempfile
import threading
import warnings

import torch
from torch import nn
from torch.nn import functional
from torch.profiler import ProfilerActivity, profile, record_function, schedule

HERE = pathlib.Path(__file__).resolve().parent
FOLDER = HERE.parent / 'golden' / 'kineto'
warnings.filterwarnings('ignore')


def trained(model, optimizer, make_loss, steps=2):
    """A function that runs this many training steps, one at each call."""
    def step():
        optimizer.zero_grad()
        make_loss(model).backward()
        optimizer.step()
    return [step] * steps


def mlp():
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    return trained(model, torch.optim.AdamW(model.parameters()),
                   lambda m: functional.cross_entropy(m(torch.randn(16, 64)), torch.randint(0, 10, (16,))), 3)


def cnn():
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.LazyLinear(10))
    model(torch.randn(2, 3, 16, 16))
    return trained(model, torch.optim.SGD(model.parameters(), 0.1, momentum=0.9),
                   lambda m: m(torch.randn(4, 3, 16, 16)).square().mean())


def gpt2():
    from transformers import GPT2Config, GPT2LMHeadModel
    model = GPT2LMHeadModel(GPT2Config(n_layer=1, n_head=2, n_embd=32, vocab_size=128, n_positions=32))
    ids = torch.randint(0, 128, (2, 16))
    return trained(model, torch.optim.AdamW(model.parameters()), lambda m: m(input_ids=ids, labels=ids).loss)


def llama_generate():
    from transformers import LlamaConfig, LlamaForCausalLM
    model = LlamaForCausalLM(LlamaConfig(hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=2,
                                         num_key_value_heads=1, vocab_size=64)).eval()
    return [lambda: model.generate(torch.randint(3, 64, (1, 8)), max_new_tokens=2, do_sample=False)]


def lstm():
    model = nn.LSTM(16, 24, batch_first=True)
    return trained(model, torch.optim.RMSprop(model.parameters()), lambda m: m(torch.randn(4, 6, 16))[0].square().mean())


def checkpointed():
    from torch.utils.checkpoint import checkpoint
    blocks = nn.ModuleList(nn.Sequential(nn.Linear(48, 192), nn.GELU(), nn.Linear(192, 48)) for _ in range(3))

    def loss(model):
        x = torch.randn(8, 48)
        for block in model:
            x = checkpoint(block, x, use_reentrant=False)
        return x.sum()
    return trained(blocks, torch.optim.Adam(blocks.parameters()), loss)


def gan():
    maker, critic = nn.Linear(8, 32), nn.Sequential(nn.Linear(32, 16), nn.LeakyReLU(), nn.Linear(16, 1))
    of_maker, of_critic = torch.optim.Adam(maker.parameters()), torch.optim.Adam(critic.parameters())

    def step():
        fake = maker(torch.randn(8, 8))
        of_critic.zero_grad()
        (critic(fake.detach()).mean() - critic(torch.randn(8, 32)).mean()).backward()
        of_critic.step()
        of_maker.zero_grad()
        (-critic(fake).mean()).backward()
        of_maker.step()
    return [step, step]


def recommender():
    model = nn.ModuleDict({'bag': nn.EmbeddingBag(500, 16), 'top': nn.Linear(16, 1)})
    ids, offsets = torch.randint(0, 500, (40,)), torch.arange(0, 40, 5)
    return trained(model, torch.optim.Adagrad(model.parameters()), lambda m: m['top'](m['bag'](ids, offsets)).mean())


def attention():
    model = nn.TransformerEncoderLayer(32, 2, 64, batch_first=True)
    return trained(model, torch.optim.AdamW(model.parameters()), lambda m: m(torch.randn(2, 12, 32)).square().mean())


def accumulated():
    model = nn.Linear(100, 50)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)

    def step():
        for _ in range(3):
            with record_function('micro batch'):
                model(torch.randn(8, 100)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    return [step, step]


def inference():
    model = nn.Sequential(nn.Linear(64, 256), nn.Tanh(), nn.Linear(256, 64)).eval()

    def step():
        with torch.inference_mode():
            model(torch.randn(32, 64))
    return [step] * 4


def threads():
    """Two threads at the same time; the profiler sees both."""
    def work():
        x = torch.randn(64, 64)
        for _ in range(4):
            x = (x @ x).tanh()

    def step():
        both = [threading.Thread(target=work) for _ in range(2)]
        for thread in both:
            thread.start()
        work()
        for thread in both:
            thread.join()
    return [step]


# How each is recorded, where it is not with all there is.
PROGRAMS = {program.__name__: program for program in (
    mlp, cnn, gpt2, llama_generate, lstm, checkpointed, gan, recommender, attention, accumulated, inference, threads)}
WITHOUT_STACKS = {'lstm', 'recommender'}
WITH_STEPS = {'mlp', 'gpt2', 'accumulated', 'inference'}
WITH_TIMELINE = {'mlp', 'cnn', 'attention'}


def record(name, folder):
    torch.manual_seed(1)
    steps = PROGRAMS[name]()
    if name in ('inference', 'mlp'):
        steps[0]()  # so that some of its memory is from before the recording
    with_stack = name not in WITHOUT_STACKS
    how = {'schedule': schedule(wait=0, warmup=0, active=len(steps), repeat=1)} if name in WITH_STEPS else {}
    with tempfile.TemporaryDirectory() as work, contextlib.ExitStack() as stack:
        plain = pathlib.Path(work) / 'trace.json'
        how['on_trace_ready'] = lambda p: p.export_chrome_trace(str(plain))
        if name == 'inference':
            del how['on_trace_ready']
        recorder = stack.enter_context(profile(
            activities=[ProfilerActivity.CPU], profile_memory=True, with_stack=with_stack, record_shapes=with_stack, **how))
        for step in steps:
            step()
            if name in WITH_STEPS:
                recorder.step()
        stack.close()
        if not plain.exists():
            recorder.export_chrome_trace(str(plain))
        with plain.open('rb') as from_file, gzip.GzipFile(folder / f'{name}.pt.trace.json.gz', 'wb', mtime=0) as to:
            shutil.copyfileobj(from_file, to)
        if name in WITH_TIMELINE:
            recorder.export_memory_timeline(str(folder / f'{name}.memory.raw.json.gz'), device='cpu')
            recorder.export_memory_timeline(str(folder / f'{name}.memory.json.gz'), device='cpu')


def main():
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('--out', type=pathlib.Path, default=FOLDER)
    parser.add_argument('names', nargs='*', metavar='NAME')
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    for name in args.names or PROGRAMS:
        record(name, args.out)
        print(name, (args.out / f'{name}.pt.trace.json.gz').stat().st_size)


if __name__ == '__main__':
    main()
