"""As much of Lightning as a callback meets: a Trainer that makes four steps."""
import torch

from .pytorch import Callback  # noqa: F401


class Trainer:
    def __init__(self, max_steps=4, callbacks=(), **options):
        self.max_steps, self.callbacks, self.options = max_steps, list(callbacks), options
        self.loggers, self.global_step, self.optimizers = [], 0, []

    def call(self, event, *given):
        for callback in self.callbacks:
            getattr(callback, event)(self, *given)

    def fit(self, module, loader=None):
        torch.fake.use_device()
        self.optimizers = [torch.optim.AdamW(module.parameters())]
        self.call('on_train_start', module)
        for step in range(self.max_steps):
            self.call('on_train_batch_start', module, None, step)
            self.call('on_before_backward', module, None)
            module().loss.backward()
            self.optimizers[0].step()
            self.global_step += 1
            self.call('on_train_batch_end', module, None, None, step)
        self.call('on_fit_end', module)
