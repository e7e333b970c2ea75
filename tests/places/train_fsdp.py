"""A program for several ranks under fully_shard, to be traced."""
import torch
import torch.distributed as dist
from given import build
from torch.distributed.fsdp import fully_shard

dist.init_process_group('nccl')
torch.cuda.set_device(dist.get_rank() % torch.cuda.device_count())
model, _ = build()
for block in model.transformer.h:
    fully_shard(block)
fully_shard(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for _ in range(100):
    ids = torch.randint(0, 32, (4, 8), device='cuda')
    model(input_ids=ids, labels=ids).loss.backward()
    optimizer.step()
    optimizer.zero_grad()
