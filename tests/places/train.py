"""The program of docs/places: with the stand-in for PyTorch three steps, and out of memory with the arguments --batch 8; with PyTorch
itself a loop to be traced."""
import os
import sys

import torch

if hasattr(torch, 'fake'):
    from given import build, loader

    torch.fake.use_device()
    model, optimizer = build()
    for batch in list(loader)[:3]:
        model(**batch).loss.backward()
        optimizer.step()
    if sys.argv[1:] == ['--batch', '8']:
        os.environ['PLACES_SNAPSHOT'] = os.environ['PLACES_OUT_OF_MEMORY']
        torch.fake.run_out_of_memory()
else:
    from given import build, loader

    model, optimizer = build()
    model.to('cuda')
    for _ in range(100):
        for batch in loader:
            ids = batch['input_ids'].to('cuda')
            model(input_ids=ids, labels=ids).loss.backward()
            optimizer.step()
            optimizer.zero_grad()
