"""python -m tessera.trace SCRIPT [ARGUMENT...]: one step of an unmodified training script, written as a step graph.

The script runs as __main__ on a machine without a GPU: tensors on 'cuda' are fake, torch.cuda answers as a card would, and
tensors on the CPU are real, so its data are. Parameters are fake on the CPU too, since a model may be larger than the
machine. DataLoaders load in this process.

A step lasts from the end of one optimizer.step() to the end of the next one of the same optimizer; if that is within
backward(), to the end of backward(). The first step, with everything before it, makes the tensors that stay. The last two steps
must be alike, and the last one is written. Then the script is ended by an exception that `except Exception` does not catch.
"""
import argparse
import contextlib
import functools
import os
import runpy
import sys
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple, Union

from ._fake_cuda import CARDS, TraceError, answer_for_driver, patched
from ._trace import _document, _fake_mode, _optimizers, _Phases, _program_line, _Recorder, alike, check_gpu, traced, write
from ._trace_model import elements, fake_of, rehook
from ._trace_quantised import making_subclasses
from ._trace_routing import Counts, Routing
from ._trace_saved import Saved
from ._trace_sharded import sharded


class _Done(BaseException):
    """Enough steps."""


class _Steps:
    """Cuts the run of a script into steps."""

    def __init__(self, recorder: _Recorder, phases: _Phases, optimizer: int, count: int, most: int,
                 forms: Callable[[], List[Dict[str, Any]]]) -> None:
        self.recorder, self.phases, self.optimizer, self.count, self.most = recorder, phases, optimizer, count, most
        self.forms = forms  # of the optimizers of the last step
        self.found: List[Dict[str, Any]] = []
        self.seen: List[int] = []  # optimizers, as they made steps first
        self.classes: List[str] = []
        self.parameters = 0
        self.is_over = False  # the current step ends with the phase it is in
        phases.on_step = self._after_optimizer
        recorder.after_phase = self._after_phase
        recorder.begin_call()

    def _after_optimizer(self, optimizer: Any) -> None:
        if id(optimizer) not in self.seen:
            self.seen.append(id(optimizer))
            self.classes.append(type(optimizer).__name__)
        self.is_over |= self.seen[self.optimizer - 1:self.optimizer] == [id(optimizer)]

    def _after_phase(self) -> None:
        if not self.is_over:
            return
        self.is_over = False
        self.recorder.mark_state(list(self.phases.optimizers))
        self.recorder.end_call()
        if len(self.recorder.calls) == self.most or len(self.recorder.calls) >= self.count and alike(self.recorder):
            self.parameters = _parameters(self.recorder)  # the program's variables go when it is left
            self.found = self.forms()
            self.recorder.is_over = True
            raise _Done
        self.recorder.begin_call()


def _static(recorder: _Recorder) -> List[int]:
    """Storages that the script made outside of modules, backward and optimizers before the last two steps, and keeps."""
    last = len(recorder.calls) - 2
    out = [number for number, (call, phase) in enumerate(recorder.born)
           if call < last and phase == 'step' and not recorder.dead[number]]
    for number in out:
        recorder.roles[number] = recorder.roles[number] or 'input'
    return out


def _parameters(recorder: _Recorder) -> int:
    """The number of elements of the parameters of all modules that ran."""
    found = {id(param): elements(param) for module in list(recorder.modules) for param in module.parameters()}
    return sum(found.values())


@contextlib.contextmanager
def _environment(torch: Any, recorder: _Recorder, fake: Any) -> Iterator[None]:
    """Replaces functions that a script may call and that a trace has to do differently."""
    from torch._subclasses.fake_tensor import FakeTensor
    original, loader, swap = torch.nn.Parameter.__new__, torch.utils.data.DataLoader.__init__, torch.utils.swap_tensors
    fake_really = FakeTensor.__new__

    def parameter(cls: Any, data: Any = None, requires_grad: bool = True) -> Any:
        if type(data) is torch.Tensor and data.device.type == 'cpu':
            recorder.on_host = recorder.on_host or f'{_program_line(sys._getframe(1))} makes the model'
            data = fake_of(torch, fake, data, 'cpu')
        if fake.is_our_fake(data) and isinstance(data, torch.nn.Parameter) and type(data) is not FakeTensor:
            return data  # of a class that a program derives from Parameter
        return original(cls, data, requires_grad)

    def faked(cls: Any, first: Any, *args: Any, **given: Any) -> Any:
        """accelerate makes a parameter on 'meta' with the class and the attributes of another one."""
        if isinstance(first, torch.Tensor):
            return original(torch.nn.Parameter, first, given.get('requires_grad', True))
        return fake_really(cls, first, *args, **given)

    def swapped(old: Any, new: Any) -> None:
        """For model.to('cuda'): tensors with weak references cannot be swapped, and the converter has weak references to fake ones."""
        fake.fake_tensor_converter.meta_converter.tensor_memo.clear()
        if old is not new:
            swap(old, new)
            rehook(old)

    def moving(original: Callable[..., Any], is_to_cpu: Callable[..., bool]) -> Callable[..., Any]:
        """Module.to and Module.cpu: for check_device()."""
        @functools.wraps(original)
        def move(module: Any, *args: Any, **kwargs: Any) -> Any:
            moved = original(module, *args, **kwargs)
            if is_to_cpu(*args, **kwargs):
                recorder.on_host = f'{_program_line(sys._getframe(1))} puts the model'
            return moved
        return move

    def is_to_cpu(*args: Any, **kwargs: Any) -> bool:
        device = torch._C._nn._parse_to(*args, **kwargs)[0]
        return device is not None and device.type == 'cpu'

    def load(self: Any, *args: Any, **kwargs: Any) -> None:
        changed = {'num_workers': 0, 'prefetch_factor': None, 'persistent_workers': False, 'timeout': 0,
                   'multiprocessing_context': None, 'pin_memory': False}
        loader(self, *args[:5], **{**kwargs, **dict(zip(_LOADER[5:], args[5:])), **changed})

    with patched(torch.nn.Parameter, __new__=staticmethod(parameter)), \
            patched(torch.nn.Module, to=moving(torch.nn.Module.to, is_to_cpu), cpu=moving(torch.nn.Module.cpu, lambda: True)), \
            patched(torch.utils.data.DataLoader, __init__=load), \
            patched(torch.utils, swap_tensors=swapped), patched(FakeTensor, __new__=staticmethod(faked)), \
            patched(torch.Tensor, _make_subclass=staticmethod(making_subclasses(torch, fake))):
        yield


# DataLoader's parameters, in order.
_LOADER = ('dataset', 'batch_size', 'shuffle', 'sampler', 'batch_sampler', 'num_workers', 'collate_fn', 'pin_memory',
           'drop_last', 'timeout', 'worker_init_fn', 'multiprocessing_context', 'generator')


@contextlib.contextmanager
def _saving(torch: Any, recorder: _Recorder, fake: Any, ranks: Optional[int]) -> Iterator[None]:
    """Within it, saved tensors are noted; but not with several ranks, whose storages are resized."""
    if ranks is not None:
        yield
        return
    recorder.saved = Saved(torch, recorder, fake, [])
    with recorder.saved.watching():
        yield


def _too_short(count: int, optimizer: int, optimizers: int, needed: int) -> TraceError:
    """What to tell of a program that ended before there were enough steps."""
    if not optimizers:
        return TraceError('the program ended without a step of an optimizer, and a trace ends a step where optimizer.step() ends: a loop without '
                          'an optimizer is traced by tessera.trace(step, model=...)')
    if optimizers < optimizer:
        return TraceError(f'the program has no optimizer {optimizer}: {optimizers} made {"a step" if optimizers == 1 else "steps"}')
    which = f'its optimizer {optimizer}' if optimizers > 1 else 'its optimizer'
    return TraceError(f'the program ended after {count} step{"s" * (count != 1)} of {which}, and a trace needs {needed}: let it train longer')


def trace_program(program: Callable[[], Any], *, gpu: str = 'a100', value: Optional[float] = None, after: Optional[int] = None,
                  optimizer: int = 1, ranks: Optional[int] = None,
                  routing: 'Union[str, os.PathLike[str], Counts, None]' = None) -> Dict[str, Any]:
    """The step graph of `program()`, which makes its model and optimizer and trains. See the top of this file."""
    import torch
    import torch.utils.data

    check_gpu(gpu)
    answer_for_driver(torch)
    # The second step may differ: a variable that keeps the loss is empty in the first, and DistributedDataParallel changes its buckets.
    most = 2 + (after or 4)
    after = after or 1
    recorder, fake = _Recorder(torch), _fake_mode()
    recorder.routing = Routing(torch, routing)
    with traced(torch, recorder, fake, gpu, value) as phases, _environment(torch, recorder, fake), \
            sharded(torch, recorder, ranks), _saving(torch, recorder, fake, ranks):
        steps = _Steps(recorder, phases, optimizer, after + 2, most,
                       lambda: [] if ranks is not None else _optimizers(torch, fake, recorder, phases))
        try:
            program()
        except _Done:
            pass
        except SystemExit as error:
            if error.code:
                raise
        recorder.is_over = True
    if len(recorder.calls) < after + 2:
        raise _too_short(len(recorder.calls), optimizer, len(steps.seen), after + 2)
    recorder.routing.check()
    about = {'torch': torch.__version__, 'gpu': gpu, 'parameters': steps.parameters, 'optimizer': steps.classes[optimizer - 1],
             **recorder.routing.used(), 'optimizers': steps.found}
    return _document(recorder, _static(recorder), about)


# ---- The command ----

def _arguments(words: Optional[List[str]]) -> Any:
    parser = argparse.ArgumentParser(
        prog='python -m tessera.trace',
        usage='%(prog)s [-h] [-o FILE] [--gpu CARD] [--value X] [--after N] [--optimizer N] [--ranks N] [--routing HOW] (SCRIPT | -m MODULE) [ARGUMENT...]',
        description='Trace one step of a training script on a machine without a GPU, and write it as a step graph for '
                    '`tessera simulate`. A step lasts from the end of one optimizer.step() to the end of the next.')
    parser.add_argument('-o', '--output', metavar='FILE', help='the step graph to write (default: SCRIPT with .graph instead of .py)')
    parser.add_argument('--gpu', choices=sorted(CARDS), default='a100', help='the GPU for which kernels are chosen (default: a100)')
    parser.add_argument('--value', type=float, metavar='X', help='the value of loss.item() and of other numbers read from the '
                        'GPU; without it, a script that reads one is refused')
    parser.add_argument('--after', type=int, metavar='N', help='steps before the two that are compared (default: 1 to 4, until two are alike)')
    parser.add_argument('--optimizer', type=int, default=1, metavar='N', help='with several optimizers, the one '
                        'whose step() ends a step: the N-th to make one (default: 1)')
    parser.add_argument('--ranks', type=int, metavar='N', help='trace rank 0 of N, without the others and without a network: '
                        'for DistributedDataParallel and fully_shard')
    parser.add_argument('--routing', metavar='HOW', help='which experts of a mixture get how many tokens: balanced, worst, or a JSON '
                        'file with a list of counts for each router')
    parser.add_argument('-m', dest='module', action='store_true', help='SCRIPT is the name of a module')
    parser.add_argument('script', metavar='SCRIPT')
    parser.add_argument('arguments', nargs=argparse.REMAINDER, metavar='ARGUMENT')
    given = parser.parse_args(words)
    if (given.after is not None and given.after < 1) or given.optimizer < 1:
        parser.error('--after and --optimizer must be at least 1')
    return given


def _program(script: str, arguments: List[str], is_module: bool) -> Callable[[], Any]:
    """Run the script as Python would."""
    def run() -> None:
        sys.argv = [script, *arguments]
        if is_module:
            sys.path.insert(0, os.getcwd())
            runpy.run_module(script, run_name='__main__', alter_sys=True)
        else:
            sys.path.insert(0, os.path.dirname(os.path.abspath(script)))
            runpy.run_path(script, run_name='__main__')
    return run


def _name_of(script: str, is_module: bool) -> str:
    return script.rpartition('.')[2] if is_module else os.path.splitext(os.path.basename(script))[0]


def traced_script(request: Dict[str, Any]) -> 'Tuple[Dict[str, Any], str]':
    """The step graph of a script, and the script's name. `request` has the arguments of trace_program(), and script, arguments and module."""
    how = {name: request[name] for name in ('gpu', 'value', 'after', 'optimizer', 'ranks', 'routing') if request.get(name) is not None}
    script, is_module = request['script'], bool(request.get('module'))
    argv, search = list(sys.argv), list(sys.path)
    try:
        return trace_program(_program(script, request['arguments'], is_module), **how), _name_of(script, is_module)
    finally:
        sys.argv[:], sys.path[:] = argv, search


def main(words: Optional[List[str]] = None) -> int:
    given = _arguments(words)
    path = given.output or f'{_name_of(given.script, given.module)}.graph'
    try:
        document, name = traced_script(vars(given))
        write(document, path)
    except ImportError as error:
        if error.name != 'torch':
            raise
        print('tessera.trace: PyTorch is not installed', file=sys.stderr)
        return 1
    except (TraceError, OSError) as error:
        print(f'tessera.trace: {error}', file=sys.stderr)
        return 1
    slots = document['slots']['bytes']
    print(f'{path}: one step of {name}, {len(slots) - document["static"]} allocations. `tessera simulate {path}` runs it.',
          file=sys.stderr)
    return 0
