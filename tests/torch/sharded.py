"""Programs of several ranks whose step graphs are in tests/golden/graphs: rank 0 of 8, without the others."""
import contextlib

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, loss_parallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

from programs import Plain, ids

RANKS = 8
STEPS = 5  # more than a trace needs
HALF = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)


def model_of():
    return Plain(width=128, layers=4)


def nothing(_number, _model, _optimizer):
    return contextlib.nullcontext()


around = [nothing]  # what each step runs in


def train(model, clip=False):
    optimizer = torch.optim.AdamW(model.parameters())
    for number in range(STEPS):
        with around[-1](number, model, optimizer):
            loss = model(ids(), ids())
            optimizer.zero_grad()
            loss.backward()
            if clip:
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            del loss


def fsdp2(**options):
    """fully_shard() around each block and around all of it, as its documentation has it."""
    def program():
        dist.init_process_group('nccl')
        model = model_of()
        for block in model.blocks:
            fully_shard(block, **options)
        train(fully_shard(model, **options), clip='mp_policy' in options)
    return program


def ddp(bucket_cap_mb=None, **options):
    def program():
        dist.init_process_group('nccl')
        train(DistributedDataParallel(model_of().to('cuda'), device_ids=[0], bucket_cap_mb=bucket_cap_mb, **options))
    return program


class Head(nn.Module):
    """Two linear layers between an embedding and a head."""

    def __init__(self, words, width=64):
        super().__init__()
        self.words, self.up = nn.Embedding(words, width), nn.Linear(width, 4 * width)
        self.down, self.head = nn.Linear(4 * width, width), nn.Linear(width, words, bias=False)

    def forward(self, x):
        x = self.words(x)
        return self.head(x + self.down(nn.functional.gelu(self.up(x))))


def tensor_parallel(words, batch, rows):
    """Tensor parallelism with the loss of sharded logits, of weights that are drawn after they were sharded, as torchtitan does it."""
    def program():
        dist.init_process_group('nccl')
        torch.cuda.manual_seed_all(1)
        with torch.device('meta'):
            model = Head(words)
        parallelize_module(model, init_device_mesh('cuda', (RANKS,)), {
            'words': RowwiseParallel(input_layouts=Replicate()), 'up': ColwiseParallel(), 'down': RowwiseParallel(),
            'head': ColwiseParallel(output_layouts=Shard(-1), use_local_output=False)})
        model.to_empty(device='cuda')
        for parameter in model.parameters():
            nn.init.trunc_normal_(parameter, std=0.02)
        optimizer = torch.optim.AdamW(model.parameters())
        for _ in range(STEPS):
            batch_of = torch.randint(0, words, (batch, rows), device='cuda')
            with loss_parallel():
                loss = nn.functional.cross_entropy(model(batch_of).flatten(0, 1), batch_of.flatten())
                optimizer.zero_grad()
                loss.backward()
            optimizer.step()
            del loss
    return program


SHARDED = {
    'fsdp2': fsdp2(),
    'fsdp2-no-reshard': fsdp2(reshard_after_forward=False),
    'fsdp2-bf16': fsdp2(mp_policy=HALF),
    'ddp': ddp(),
}
