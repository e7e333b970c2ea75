"""PyTorch on a card that runs out of memory: tests/python/fake_torch.py, with the snapshot of a simulated run (PLACES_SNAPSHOT)."""
import os
import pickle
import sys
import types
from pathlib import Path

_tests = str(Path(__file__).resolve().parents[3] / 'python')
sys.path.insert(0, _tests)
import fake_torch  # noqa: E402

sys.path.remove(_tests)
_GIB = 2**30


class AdamW(fake_torch.Optimizer):
    def __init__(self, parameters, lr=1e-3, **_):
        super().__init__(parameters)

    def zero_grad(self):
        pass


class SummaryWriter:
    """Keeps what it is given."""

    def __init__(self, folder='runs'):
        self.folder, self.scalars, self.texts = folder, [], []

    def add_scalar(self, name, value, step):
        self.scalars.append((name, value, step))

    def add_text(self, name, text):
        self.texts.append((name, text))


def _snapshot():
    with open(os.environ['PLACES_SNAPSHOT'], 'rb') as file:
        return pickle.load(file)  # written by `tessera simulate`


_torch = fake_torch.install('2.14', initialized=False)
_torch.optim.AdamW = AdamW
_torch.cuda.memory_stats = lambda: {f'{kind}_bytes.all.{which}': 2 * _GIB for kind in ('allocated', 'reserved') for which in ('peak', 'current')}
if 'PLACES_SNAPSHOT' in os.environ:
    _torch.fake.snapshot = _snapshot
for _name in ('torch.utils', 'torch.utils.tensorboard'):
    sys.modules[_name] = types.ModuleType(_name)
sys.modules['torch.utils'].__path__ = []
sys.modules['torch.utils.tensorboard'].SummaryWriter = SummaryWriter
