#!/usr/bin/env python3
"""doctor.py [--check] [--accept] [--tessera PATH] [--build FOLDER]: what `tessera doctor` predicts, and its parts that need PyTorch.

Each program of python/doctor/programs.py runs on fake tensors under the ledger of differential.py, which stands in for a card's counters: the peaks of
its phases must be those that are predicted for tensors, within 64 bytes. Then `tessera doctor` itself must find that all is well, and two processes must
meet, with gloo in the place of NCCL. --accept records the predictions in python/doctor/goldens.py.
"""
import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path[:0] = [str(ROOT / 'tests' / 'doctor'), str(HERE)]

import support  # noqa: E402

TOLERANCE_BYTES = 64


def report(is_right, text):
    print(f'{"ok" if is_right else "not ok"} - {text}', flush=True)
    return not is_right


class Commands:
    def __init__(self, program):
        self.program = program

    def __call__(self, *words):
        done = subprocess.run([*self.program, *words], capture_output=True, text=True, check=False)
        return done.returncode, done.stdout, done.stderr


# ---- The ledger as a card ----

class LedgerCard:
    """Counters of what fake tensors take. No allocator is behind it, so nothing is rounded or reserved."""

    def __init__(self, ledger):
        self.ledger = ledger

    def counters(self):
        return {f'{when}_{kind}': number for when, number in (('now', self.ledger.live), ('peak', self.ledger.peak))
                for kind in ('requested', 'allocated', 'reserved')}

    def reset(self):
        self.ledger.peak = self.ledger.live

    def clear(self):
        pass


def attention(torch):
    """scaled_dot_product_attention as PyTorch 2.9 dispatches it on an A100; without a driver it asks for one."""
    aten = torch.ops.aten

    def attend(q, k, v, is_causal=False):
        if q.dtype != torch.float32:
            return aten._scaled_dot_product_flash_attention(q, k, v, 0.0, is_causal)[0]
        if torch.backends.cuda.mem_efficient_sdp_enabled():
            return aten._scaled_dot_product_efficient_attention(q, k, v, None, True, 0.0, is_causal)[0]
        return aten._scaled_dot_product_attention_math(q, k, v, None, 0.0, is_causal)[0]
    return attend


def counted(torch, program):
    """The program's peaks on the stand-in."""
    import differential
    measure = support.load('measure')

    class Exact(differential.Ledger):
        """Bytes as requested."""

        def see(self, leaf):
            if isinstance(leaf, torch.Tensor) and leaf.device.type == 'cuda' and leaf.untyped_storage()._cdata not in self.known:
                storage = leaf.untyped_storage()
                size = storage.nbytes()
                if size:
                    self.known.add(storage._cdata)
                    differential.weakref.finalize(storage, self.gone, storage._cdata, size).atexit = False
                    self.live += size
                    self.peak = max(self.peak, self.live)
    with contextlib.ExitStack() as stack:
        stack.enter_context(differential._fake_cuda.patched(differential, Ledger=Exact))
        stack.enter_context(differential._fake_cuda.patched(torch.nn.functional, scaled_dot_product_attention=attention(torch)))
        ledger = stack.enter_context(differential.fake_card(1.0))
        return measure.measured(torch, LedgerCard(ledger), program)


def check_program(torch, command, program, folder):
    """Peaks of tensors alone: without workspaces, which exist from the beginning here, and without what kernels allocate while they run."""
    predict = support.load('predict')
    graph = predict.traced(torch, program, 'a100')
    graph.pop('kernels', None)
    path = os.path.join(folder, 'step.graph')
    with open(path, 'w', encoding='utf-8') as file:
        json.dump(graph, file)
    device = predict.asked(command, 'simulate', path, '--steps', '3')['devices'][0]
    spaces = sum(row['bytes'] for row in device['categories'] if row['name'] == 'workspace')
    try:
        found, wrong = counted(torch, program), []
    except Exception as error:
        return report(False, f'{program.name}: {type(error).__name__}: {" ".join(str(error).split())[:300]}')
    rows = {row['name']: row['requested_bytes'] - spaces for row in device['phases']}
    for name, expected in {**rows, 'peak': device['peak']['requested_bytes'] - spaces}.items():
        here = found['peak'] if name == 'peak' else found['phases'].get(name)
        if here is None or abs(here['requested'] - expected) > TOLERANCE_BYTES:
            wrong.append(f'{name}: predicted {expected}, counted {here and here["requested"]}')
    return report(not wrong, f'{program.name}: ' + ('; '.join(wrong) or f'{len(rows)} phases, {found["peak"]["requested"]} bytes'))


# ---- Processes ----

def check_processes(torch, folder):
    """Two processes of this Python add up tensors, as two ranks with a card each would."""
    doctor, card = support.load('doctor'), support.load('card')
    host = doctor.Host({'version': ''}, support.load('_core').ARCHIVE)
    measuring = doctor.Measuring.__new__(doctor.Measuring)
    measuring.host, measuring.folder = host, folder
    taken, why = measuring.communicator_bytes('gloo', 'cpu')
    wrong = report(taken == card.NoCard.EACH_BYTES and not why, f'two processes meet: {taken} bytes {why}')
    with host.worker({'job': 'programs', 'programs': ['mlp'], 'folder': folder, 'index': 0}) as worker:
        worker.hear()
        worker.go()
        try:
            row = worker.hear()
            said = f'context: {row}'
        except doctor.Lost as error:
            said = str(error)
    return wrong + report(torch.cuda.is_available() or 'CUDA' in said or 'NVIDIA' in said, f'a process without a GPU says why it fails: {said[:100]}')


def check_names(torch):
    """Functions that card.py calls, which nothing runs without a GPU, exist and take what they are given."""
    import inspect
    card, cuda = support.load('card'), torch.cuda
    given = {cuda.set_device: ((0,), {}), cuda.init: ((), {}), cuda.synchronize: ((), {}), cuda.get_device_properties: ((0,), {}), cuda.mem_get_info: ((0,), {}),
             cuda.memory_stats: ((0,), {}), cuda.reset_peak_memory_stats: ((0,), {}), cuda.empty_cache: ((), {}),
             cuda.memory._record_memory_history: ((), card.HISTORY), cuda.memory._dump_snapshot: (('x',), {})}
    for function, (args, kwargs) in given.items():
        inspect.signature(function).bind(*args, **kwargs)
    return report(hasattr(torch._C, '_cuda_clearCublasWorkspaces'), f'{len(given)} functions of torch.cuda are there')


# ---- The command ----

def check_command(program):
    done = subprocess.run([*program, 'doctor', '--json', '--no-save'], capture_output=True, text=True, check=False,
                          env={**os.environ, 'TESSERA_PYTHON': sys.executable, 'VIRTUAL_ENV': '', 'CONDA_PREFIX': ''})
    answer = json.loads(done.stdout) if done.stdout else {}
    failed = [row['name'] + ': ' + row['message'] for row in answer.get('checks', []) if row['status'] == 'failed']
    rows = answer.get('programs', [])
    wrong = report(done.returncode == 0 and not failed, f'tessera doctor: {answer.get("verdict")} {"; ".join(failed)} {done.stderr.strip()}')
    return wrong + report(len(rows) >= 20 and all(row['status'] in ('equal', 'near', 'explained', 'read', 'not_run') for row in rows),
                          f'{len(rows)} programs are as predicted or recorded')


# ---- The record ----

def accept(torch, command, folder):
    """Write goldens.py again."""
    programs, predict, doctor = support.load('programs'), support.load('predict'), support.load('doctor')
    goldens = support.load('goldens')
    host = doctor.Host({'version': ''}, b'')
    host.command = command
    predictions, rows = doctor.Predictions(host, torch, goldens.GPU, folder), {}
    for program in programs.PROGRAMS:
        if program.is_predicted:
            found = predictions.of(program)
            assert found, predictions.errors
            rows[program.name] = {'peak': found['peak'], 'phases': {name: row['requested'] for name, row in found['phases'].items()}}
            print(program.name, rows[program.name], flush=True)
    answer = predict.asked(command, 'simulate', *goldens.ANSWER_WORDS)['devices'][0]['peak']['allocated_bytes']
    lines = [f'    {name!r}: {row!r},' for name, row in rows.items()]
    text = (ROOT / 'python/doctor/goldens.py').read_text(encoding='utf-8')
    head = text.partition('ANSWER_BYTES = ')
    before, after = head[0], head[2].partition('\n')[2]
    middle = after.partition('TORCH, GPU = ')[0]
    version = '.'.join(torch.__version__.split('.')[:2])
    (ROOT / 'python/doctor/goldens.py').write_text(
        f'{before}ANSWER_BYTES = {answer}\n{middle}TORCH, GPU = {version!r}, {goldens.GPU!r}\n'
        'PROGRAMS: Dict[str, Any] = {\n' + '\n'.join(lines) + '\n}\n', encoding='utf-8')


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--check', action='store_true', help='accepted for run.py')
    parser.add_argument('--accept', action='store_true')
    parser.add_argument('--tessera', type=Path, help='the command (default: that of the package in this Python)')
    parser.add_argument('--build', type=Path, help='the build folder of the command (default: that of run.py, or build)')
    parser.add_argument('names', nargs='*', help='only these programs')
    given = parser.parse_args()
    program = [str(given.tessera)] if given.tessera else [sys.executable, '-m', 'tessera']
    import torch
    if torch.version.cuda is None:
        print('ok - the doctor # SKIP this PyTorch is built without CUDA')
        return 0
    beside = Path(sys.prefix).parent / 'build'  # of run.py
    support.archive(given.build or (beside if (beside / 'python/tracer').is_dir() else ROOT / 'build'))
    command, wrong = Commands(program), 0
    with tempfile.TemporaryDirectory() as folder:
        if given.accept:
            accept(torch, command, folder)
            return 0
        for one in support.load('programs').PROGRAMS:
            if one.is_predicted and not one.settings and (not given.names or one.name in given.names):
                wrong += check_program(torch, command, one, folder)
        if not given.names:
            wrong += check_names(torch)
            wrong += check_processes(torch, folder)
            wrong += check_command(program)
    return int(wrong > 0)


if __name__ == '__main__':
    sys.exit(main())
