"""An engine whose inner optimizer makes three steps for each of the program's, as with three sub-groups in stage 3."""
import json

import torch


class Engine:
    def __init__(self, model, config):
        with open(config, encoding='utf-8') as file:
            self.config = json.load(file)
        self.module, self.optimizer = model, torch.optim.AdamW(model.parameters())

    def __call__(self, **batch):
        return self.module(**batch)

    def backward(self, loss):
        loss.backward()

    def is_gradient_accumulation_boundary(self):
        return True

    def step(self):
        for _ in range(3):
            self.optimizer.step()


def initialize(model, model_parameters, config):
    torch.fake.use_device()
    return Engine(model, config), None, None, None
