"""What a reader's program has already, for blocks of docs/places that say `given: NAME`: with the stand-ins, or small and real."""
import torch

IS_REAL = not hasattr(torch, 'fake')

if IS_REAL:
    import transformers

    _CONFIG = {'n_layer': 1, 'n_embd': 8, 'n_head': 2, 'vocab_size': 32, 'n_positions': 16}

    def _model():
        return transformers.GPT2LMHeadModel(transformers.GPT2Config(**_CONFIG))

    _IDS = torch.zeros(1, 8, dtype=torch.long)
    data = [{'input_ids': _IDS[0], 'labels': _IDS[0]}] * 4
    loader = torch.utils.data.DataLoader(data)

    def _options():
        return {'max_steps': 4, 'per_device_train_batch_size': 1, 'use_cpu': not torch.cuda.is_available(), 'report_to': [], 'save_strategy': 'no'}

    def _args():
        return transformers.TrainingArguments('out-trainer', **_options())

    def _sft_args():
        import trl

        return trl.SFTConfig('out-trl', **_options())

else:

    class Loss:
        loss = property(lambda self: self)

        def backward(self):
            torch.autograd.backward(self)

        def item(self):
            return 0.0

    class Model(torch.nn.Module):
        def __call__(self, **batch):
            return super().__call__(Loss())

    _model = Model
    loader = data = [{'input_ids': None, 'labels': None}] * 4

    def _args():
        return None

    _sft_args = _args


def build():
    if not IS_REAL:
        torch.fake.use_device()
    model = _model()
    return model, torch.optim.AdamW(model.parameters(), lr=1e-3)


def _module():
    if not IS_REAL:
        return _model()
    import lightning

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.model = _model()

        def training_step(self, batch, index):
            return self.model(**batch).loss

        def configure_optimizers(self):
            return torch.optim.AdamW(self.parameters(), lr=1e-3)

    return Module()


def _dataset():
    if not IS_REAL:
        return data
    import datasets

    return datasets.Dataset.from_list([{name: ids.tolist() for name, ids in row.items()} for row in data])


def _tokenizer():
    if not IS_REAL:
        return None
    from tokenizers import Tokenizer, models

    words = Tokenizer(models.WordLevel({'[UNK]': 0, '[EOS]': 1}, '[UNK]'))
    return transformers.PreTrainedTokenizerFast(tokenizer_object=words, unk_token='[UNK]', eos_token='[EOS]', pad_token='[EOS]')


_MADE = {'model': _model, 'args': _args, 'sft_args': _sft_args, 'module': _module, 'dataset': _dataset, 'tokenizer': _tokenizer}


def __getattr__(name):
    if name not in _MADE:
        raise AttributeError(name)
    return _MADE[name]()
