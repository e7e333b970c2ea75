"""Recording with the real PyTorch, where it is installed: several processes, and the signal that ends them.

There may be no GPU: then its memory functions are replaced, and everything else is PyTorch's.
"""
import os
import pickle
import signal
import subprocess
import sys
import textwrap
import time

import pytest

from conftest import HANG_S

torch = pytest.importorskip('torch', reason='PyTorch is not installed')
if getattr(torch, 'fake', None) is not None:
    pytest.skip('this is a stand-in', allow_module_level=True)
pytest.importorskip('torch.distributed.run', reason='PyTorch has no torchrun')

# A rank: what it has of a GPU, and a training loop that waits for the others in each step.
RANK = '''
    import os, sys, time
    import torch
    import torch.distributed as dist
    import tessera

    if not torch.cuda.is_available():
        event = {"action": "alloc", "addr": 4096, "size": 512, "stream": 0, "time_us": 1, "frames": []}
        torch.version.cuda = "0"
        torch.cuda._lazy_call = lambda function, **options: function()
        torch.cuda.current_device = lambda: 0
        torch.cuda.memory._record_memory_history = lambda *args, **options: None
        torch.cuda.memory._snapshot = lambda *args: {"segments": [], "device_traces": [[event]]}
        torch._C._cuda_attach_out_of_memory_observer = lambda function: None

    tessera.record.start(sys.argv[1], at_end=False, explain=False)
    dist.init_process_group("gloo")
    model = torch.nn.Linear(8, 8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(100000):
        loss = model(torch.ones(4, 8)).sum()
        loss.backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
        optimizer.step()
        if step == 3:
            open(os.path.join(sys.argv[1], f"ready{dist.get_rank()}"), "w").close()
        time.sleep(0.01)
    print("went on")
'''


@pytest.fixture
def job(tmp_path):
    """A running torchrun with two ranks, and the folder of its snapshots."""
    program, out = tmp_path / 'rank.py', tmp_path / 'out'
    program.write_text(textwrap.dedent(RANK))
    out.mkdir()
    words = [sys.executable, '-m', 'torch.distributed.run', '--standalone', '--nproc-per-node', '2',
             str(program), str(out)]
    started = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                               start_new_session=True)
    for _ in range(HANG_S * 10):
        if all((out / f'ready{rank}').exists() for rank in (0, 1)) or started.poll() is not None:
            break
        time.sleep(0.1)
    yield started, out
    if started.poll() is None:
        os.killpg(started.pid, signal.SIGKILL)
    started.wait()
    started.stdout.close()


def test_sigterm_under_torchrun_writes_a_snapshot_of_each_rank(job):
    started, out = job
    assert started.poll() is None, started.stdout.read()
    started.send_signal(signal.SIGTERM)
    said, _ = started.communicate(timeout=HANG_S)
    assert started.returncode != 0 and 'went on' not in said, said
    written = sorted(path for path in out.iterdir() if path.suffix == '.pickle')
    assert len(written) == 2, said
    for rank, path in enumerate(written):
        assert path.name.startswith(f'rank{rank}_') and path.name.endswith('_signal.pickle')
        with open(path, 'rb') as file:
            assert 'device_traces' in pickle.load(file)
    assert not list(out.glob('.*.tmp'))
    # The ranks ended by the signal; PyTorch did not have to kill them.
    assert 'SIGKILL' not in said, said


# One process: what PyTorch's own process groups are, and who calls their methods. A ledger that only counts is in the ledger's place.
GROUPS = '''
    import importlib, os, sys
    import torch
    import torch.distributed as dist
    import tessera
    groups = importlib.import_module("tessera._record.groups")

    class Ledger:
        def __init__(self):
            self.bytes, self.texts, self.rows = 0, [], []
        def outside(self):
            self.bytes += 7  # the card holds more each time it is asked
            return {0: self.bytes}
        def mark_first(self, text):
            self.texts.append(text)
        def communicators(self, device):
            return self.rows
        def note(self, text):
            self.texts.append(text)

    before, ledger = dict(vars(dist.ProcessGroup)), Ledger()
    groups._is_of_card = lambda name: name == "gloo"  # there is no NCCL here
    groups.groups.join(ledger, lambda: torch.device("cpu"))
    dist.init_process_group("gloo", init_method="file://" + sys.argv[1], rank=0, world_size=1)
    tensor, out = torch.ones(3), torch.zeros(3)
    dist.all_reduce(tensor)
    dist.all_reduce(tensor)
    dist.all_gather_into_tensor(out, tensor)
    dist.broadcast(tensor, 0, group=dist.new_group([0], group_desc="mesh_dp"))
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2), process_group=dist.new_group([0], group_desc="ddp"))
    model(torch.ones(2)).sum().backward()
    groups.groups.refresh(lambda: {0: 5}, True)
    compiled = torch.compile(lambda value: (dist.all_reduce(value), value + 1)[1], backend="eager", fullgraph=True)
    assert compiled(torch.ones(2)).tolist() == [2.0, 2.0]
    print(ledger.texts)
    print([(row.name, row.bytes, row.ranks) for row in ledger.rows])
    groups.groups.leave()
    print(dict(vars(dist.ProcessGroup)) == before)
    dist.destroy_process_group()
'''


def test_process_groups_are_measured_and_left_as_they_were(tmp_path):
    program = tmp_path / 'groups.py'
    program.write_text(textwrap.dedent(GROUPS))
    done = subprocess.run([sys.executable, str(program), str(tmp_path / 'store')], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          text=True, check=False, timeout=HANG_S, env={**os.environ, 'OMP_NUM_THREADS': '1'})
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stdout.splitlines() if not line.startswith('[Gloo]')]
    assert lines == [
        "['first all_reduce of default_pg (0)', 'first all_gather of default_pg (0)', 'first broadcast of dp (1)']",
        "[('default_pg (0)', 14, 1), ('dp (1)', 7, 1), ('ddp (2)', 5, 1)]",
        'True',
    ]
