"""What of tessera.trace needs no PyTorch. tests/torch/graphs.py --check has the rest."""
import pytest

import tessera
from tessera import _fake_cuda

HEADER = '''
struct Interface {
  virtual ~Interface() = default;
  virtual void init() const { }
  virtual bool hasPrimaryContext(DeviceIndex index) const = 0;
};
'''


def test_names():
    assert {'trace', 'TraceError'} <= set(dir(tessera))
    assert issubclass(tessera.TraceError, RuntimeError)
    assert callable(tessera.trace)


def test_place_of_a_function():
    """A destructor takes two."""
    assert _fake_cuda._slot_of(HEADER, 'init') == 2
    assert _fake_cuda._slot_of(HEADER, 'hasPrimaryContext') == 3
    with pytest.raises(tessera.TraceError, match='no getDevice'):
        _fake_cuda._slot_of(HEADER, 'getDevice')
