"""What of tessera.trace needs no PyTorch. tests/torch/graphs.py --check has the rest."""
import copy
import json
import os
import pickle
import pprint

import pytest

import tessera
from tessera import _fake_cuda, _script, _trace, _trace_kernels, _trace_sharded

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


def test_repr_of_a_graph():
    """One line, also in a notebook; and it is the dict that it was."""
    content = {'static': 1, 'slots': {'bytes': [1 << 20, 3 << 20, 100, 1 << 20]}, 'instructions': [
        ['begin', 0], ['new', 1, 0], ['drop', 1], ['once', 2, 0], ['new', 3, 0], ['drop_previous', 3], ['end', 0]]}
    graph = _trace.StepGraph(content)
    assert repr(graph) == '<step graph: one step, 3 allocations, at most 5.0 MiB of tensors at a time; `tessera simulate` runs it>'
    shown = []
    graph._repr_pretty_(type('', (), {'text': shown.append}), False)
    assert shown == [repr(graph)]
    assert pprint.pformat(graph, width=200) == repr(graph)
    assert graph == content
    assert json.dumps(graph) == json.dumps(content)
    assert type(copy.deepcopy(graph)) is type(pickle.loads(pickle.dumps(graph))) is _trace.StepGraph
    assert repr(_trace.StepGraph()) == '{}'


@pytest.mark.parametrize('optimizers, asked, message', [
    (0, 1, 'without a step of an optimizer'), (1, 1, 'after 1 step of its optimizer, and a trace needs 3'), (1, 2, 'no optimizer 2: 1 made a step'),
    (2, 2, 'after 1 step of its optimizer 2, and')])
def test_programs_that_end_early(optimizers, asked, message):
    assert message in str(_script._too_short(1, asked, optimizers, 3))


def test_programs_on_the_cpu():
    """A model on the CPU is refused where backward begins, if nothing is on a GPU."""
    recorder = type('', (), {'bytes': [], 'on_host': 'train.py:6 puts the model'})
    with pytest.raises(tessera.TraceError, match=r"^train\.py:6 puts the model on the cpu, .* on 'cuda' there"):
        _trace._Recorder.check_device(recorder)
    recorder.bytes = [64]
    _trace._Recorder.check_device(recorder)


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


def test_losses_that_stay_for_two_steps():
    """A variable holds a loss until the next one has been returned, which may be after the end of a step: two exist at a time."""
    class Recorder:
        bytes, dead, roles = [64] * 4, [True, True, False, False], ['activation'] * 4
        calls = [[('(', 0), ('+', 0, 5), (')', 0)],
                 [('(', 0), ('+', 1, 5), (')', 0)],
                 [('(', 0), ('-', 0), ('+', 2, 5), (')', 0)],
                 [('(', 0), ('-', 1), ('+', 3, 5), (')', 0)]]

    made = _trace._schedule(Recorder, [])
    assert made.items == [['begin', 0], ['drop_previous', 1], ['once', 0, 5], ['new', 1, 5], ['end', 0]]
    assert made.slots == [2, 3]


def test_results_that_pytorch_cannot_fake():
    """A cell of a GRU keeps five numbers for each element of its state."""
    class Tensor:
        shape = (4, 8)

        def new_empty(self, *shape):
            return shape

    class Torch:
        contiguous_format = None

        @staticmethod
        def empty_like(tensor, memory_format):
            return tensor.shape

    def func(name):
        return type('', (), {'name': lambda self: name})()

    state = Tensor()
    call = (Torch, func('aten::_thnn_fused_gru_cell'), (None, None, state))
    assert _trace_kernels.faked(*call, lambda tensor: tensor is state) == ((4, 8), (4, 40))
    assert _trace_kernels.faked(*call, lambda tensor: False) is None
    assert _trace_kernels.faked(Torch, func('aten::mm'), (state,), lambda tensor: True) is None
    backward = func('aten::_thnn_fused_gru_cell_backward')
    assert _trace_kernels.faked(Torch, backward, (state, state, False), lambda tensor: True) == ((4, 24), (4, 24), (4, 8), None, None)


def test_order_of_attention(monkeypatch):
    """From 2.10 on, PyTorch tries a new cuDNN first on cards of compute capability 9 and 10."""
    def order(version, cudnn, gpu):
        backends = type('', (), {'cudnn': type('', (), {'version': staticmethod(lambda: cudnn)})})
        torch = type('', (), {'__version__': version, 'backends': backends, '_C': object})
        return _trace._priorities(torch, _fake_cuda.CARDS[gpu])

    monkeypatch.delenv('TORCH_CUDNN_SDPA_DEPRIORITIZED', raising=False)
    usual = [_trace._FLASH, _trace._EFFICIENT, _trace._MATH, _trace._CUDNN]
    assert order('2.9.1+cu128', 91600, 'h100') == order('2.11.0', 91500, 'h100') == order('2.11.0', 91600, 'a100') == usual
    assert order('2.11.0', 91600, 'h100')[0] == _trace._CUDNN
    monkeypatch.setenv('TORCH_CUDNN_SDPA_DEPRIORITIZED', '1')
    assert order('2.11.0', 91600, 'h100') == usual
