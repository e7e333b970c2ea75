"""What of tessera.trace needs no PyTorch. tests/torch/graphs.py --check has the rest."""
import os

import pytest

import tessera
from tessera import _fake_cuda, _trace, _trace_sharded

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


def test_cards():
    """simulate() knows each card that a trace can be made for."""
    for card in _fake_cuda.CARDS:
        assert tessera.simulate('gpt2-bytes', batch=1, seq=16, steps=1, gpu=card).peak.allocated_bytes


def test_place_of_a_function():
    """A destructor takes two."""
    assert _fake_cuda._slot_of(HEADER, 'init') == 2
    assert _fake_cuda._slot_of(HEADER, 'hasPrimaryContext') == 3
    with pytest.raises(tessera.TraceError, match='no getDevice'):
        _fake_cuda._slot_of(HEADER, 'getDevice')


def test_streams():
    """As PyTorch gives them out: 32 of each priority, in turn. Memory is allocated on the one that was entered last."""
    streams = _fake_cuda._STREAMS
    streams.reset()
    made = [_fake_cuda._Stream(priority=-1) for _ in range(33)]
    assert [stream.stream_id for stream in made] == [*range(33, 65), 33]
    assert _fake_cuda._Stream().stream_id == 1
    assert _fake_cuda.stream_number() == 0
    with made[2]:
        with made[0]:
            assert _fake_cuda.stream_number() == 33
        assert _fake_cuda.stream_number() == 35
    assert _fake_cuda.stream_number() == 0
    streams.set(made[1])
    assert _fake_cuda.stream_number() == 34
    streams.reset()
    assert _fake_cuda.stream_number() == 0


def test_variables_of_torchrun(monkeypatch):
    """They are there while a program runs, and then as before."""
    monkeypatch.setenv('RANK', '5')
    monkeypatch.delenv('WORLD_SIZE', raising=False)
    with _trace_sharded._environ(_trace_sharded._variables(8)):
        assert (os.environ['RANK'], os.environ['WORLD_SIZE'], os.environ['LOCAL_RANK']) == ('0', '8', '0')
    assert os.environ['RANK'] == '5'
    assert 'WORLD_SIZE' not in os.environ


def test_roles_of_collectives():
    """What FSDP2 gathers is communication; what it casts in forward is not."""
    class Recorder:
        texts, frames, stacks = (type('', (), {'items': items}) for items in (
            ['f', '??', '/torch/distributed/fsdp/_fully_shard/_fsdp_param.py', '/torch/distributed/fsdp/_fully_shard/_fsdp_state.py',
             '/torch/nn/parallel/distributed.py', '/home/me/train.py'],
            [(0, file, 1) for file in range(6)],
            [(1, 2, 5), (1, 3, 5), (1, 5, 2), (1, 4, 5), (1,)]))

    assert [_trace_sharded._role_of(Recorder, stack) for stack in range(5)] == ['communication', '', '', 'communication', '']


def test_ways_out():
    """Refusals of ops for which there is another way name it."""
    assert 'mean of log_probs' in _trace._way_out('aten._use_cudnn_ctc_loss.Tensor')
    assert 'scaled_dot_product_attention' in _trace._way_out('flex_attention')
    assert _trace._way_out('aten.other.default') == ''


def test_step_without_memory():
    class Recorder:
        calls = [[('(', 0), (')', 0)]] * 3

    with pytest.raises(tessera.TraceError, match="allocates nothing on 'cuda'"):
        _trace._document(Recorder, [], {})


def test_gradients_that_stay():
    """Gradients of the first step that are added to later look like the gradients that each later step makes and adds."""
    class Recorder:
        bytes, dead = [64, 64, 64], [False, True, True]
        calls = [[('(', 0), ('+', 0, 5), (')', 0)],
                 [('(', 0), ('+', 1, 5), ('-', 1), (')', 0)],
                 [('(', 0), ('+', 2, 5), ('-', 2), (')', 0)]]

    assert _trace._once(Recorder, []) == {1: [('+', 0, 5)]}
    Recorder.dead = [True, True, True]
    assert _trace._once(Recorder, []) == {}
