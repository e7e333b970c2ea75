"""As much of transformers as a callback meets: a Trainer that makes four steps."""
import types

import torch


class TrainerCallback:
    def on_train_begin(self, args, state, control, **kwargs):
        pass

    on_step_end = on_train_end = on_train_begin


class TrainingArguments:
    def __init__(self, output_dir=None, **options):
        self.output_dir, self.options = output_dir, options


class Trainer:
    def __init__(self, model=None, args=None, train_dataset=None, callbacks=(), processing_class=None):
        torch.fake.use_device()  # as it moves the model
        self.model, self.callback_handler = model, types.SimpleNamespace(callbacks=list(callbacks))
        self.optimizer, self.state = torch.optim.AdamW(model.parameters()), types.SimpleNamespace(global_step=0)

    def call(self, event):
        for callback in self.callback_handler.callbacks:
            getattr(callback, event)(None, self.state, None, model=self.model, optimizer=self.optimizer)

    def train(self):
        self.call('on_train_begin')
        for _ in range(4):
            self.model().loss.backward()
            self.optimizer.step()
            self.state.global_step += 1
            self.call('on_step_end')
        self.call('on_train_end')



SFTTrainer, SFTConfig = Trainer, TrainingArguments
