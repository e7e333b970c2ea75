"""A training script like many: data from a DataLoader, a model moved to the GPU, mixed precision, a schedule, a log. graphs.py
traces it with `python -m tessera.trace`."""
import sys

import torch
from torch.utils.data import DataLoader, TensorDataset

from programs import Plain

VOCABULARY, ROWS, BATCH = 500, 64, 2


def main():
    device = 'cuda' if torch.cuda.is_available() else 'cpu'
    texts = torch.randint(VOCABULARY, (64, ROWS + 1))
    loader = DataLoader(TensorDataset(texts[:, :-1], texts[:, 1:]), BATCH, shuffle=True, num_workers=2, pin_memory=True)
    model = Plain(VOCABULARY, rows=ROWS)
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    model.to(device)
    if 'compile' in sys.argv:
        model = torch.compile(model)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, len(loader))
    for number, (ids, targets) in enumerate(loader):
        ids, targets = ids.to(device, non_blocking=True), targets.to(device, non_blocking=True)
        with torch.autocast(device, dtype=torch.bfloat16):
            loss = model(ids, targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        schedule.step()
        if 'log' in sys.argv:
            print(f'{number} {loss:.3f} {loss.item()} {torch.cuda.max_memory_allocated()}')


if __name__ == '__main__':
    main()
