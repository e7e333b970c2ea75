"""Whole processes: the environment variable, the end of the interpreter, children."""

import json
import importlib.util
import os
import pickle
import shutil
import signal
import subprocess
import sys
import textwrap

import fake_torch
import pytest
from conftest import HANG_S
from record_fixtures import names, read

TESTS = os.path.dirname(os.path.abspath(__file__))
PACKAGE = os.path.join(fake_torch.ROOT, "python")


@pytest.fixture
def site(tmp_path):
    """A folder with a package `torch`, the stand-in, for processes of their own."""
    package = tmp_path / "site" / "torch"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(
        f"import sys; sys.path.insert(0, {TESTS!r})\n"
        "import os, fake_torch\n"
        "fake_torch.install(initialized=False)\n"
        f"sys.path.remove({TESTS!r})\n"
    )
    (tmp_path / "out").mkdir()
    return tmp_path


PREFIX = """
import site, sys
sys.path.insert(0, {tests!r})
import fake_torch
if {ready!r}:
    fake_torch.prepare()
site.addsitedir({package!r})        # runs tessera_record.pth as the interpreter would
"""


def run(site, code, variable=True, ready=True, before=(), **environment):
    """Runs a program whose interpreter has tessera's .pth file; the finished process. `before` are the
    words of a command that runs it."""
    program = PREFIX.format(tests=TESTS, package=PACKAGE, ready=ready) + textwrap.dedent(code)
    variables = {
        name: value for name, value in os.environ.items() if not name.startswith("TESSERA")
    }
    variables.update(environment, PYTHONPATH=str(site / "site"))
    if variable:
        variables["TESSERA_RECORD"] = str(site / "out")
    return subprocess.run(
        [*before, sys.executable, "-c", program], env=variables, capture_output=True, text=True, timeout=HANG_S
    )


def test_a_program_is_recorded_without_touching_it(site):
    done = run(site, "import torch; torch.fake.use_device(); print('trained')")
    assert done.stdout == "trained\n", done.stderr
    (name,) = names(site / "out")
    assert name.startswith("rank0_pid") and name.endswith("_step0_exit.pickle")
    assert read(site / "out" / name)["segments"]
    assert done.stderr.startswith(f"tessera: wrote {site}/out/{name} (")


def test_the_installed_package_brings_the_hook(site):
    import tessera

    folder = os.path.dirname(list(tessera.__path__)[0])
    if os.path.samefile(folder, PACKAGE):
        pytest.skip("the package is not installed")
    assert os.path.exists(os.path.join(folder, "tessera_record.pth"))
    program = "import torch; torch.fake.use_device()"  # and nothing else: the interpreter does it
    variables = dict(os.environ, PYTHONPATH=str(site / "site"), TESSERA_RECORD=str(site / "out"))
    subprocess.run([sys.executable, "-c", program], env=variables, check=True, timeout=HANG_S)
    assert [name.split("_", 3)[3] for name in names(site / "out")] == ["exit.pickle"]


def test_options_come_from_the_environment(site):
    code = """
        import torch
        torch.fake.use_device()
        optimizer = torch.optim.Optimizer([fake_torch.Tensor(1, (2,))])
        for _ in range(3):
            optimizer.step()
    """
    done = run(
        site, code, TESSERA_RECORD_STEPS="2", TESSERA_RECORD_AT_END="0", TESSERA_RECORD_GZIP="1"
    )
    assert done.returncode == 0
    assert [name.split("_", 2)[2] for name in names(site / "out", ".gz")] == [
        "step2_step.pickle.gz"
    ]


def test_without_the_variable_nothing_is_loaded(site):
    code = """
        import torch
        print([name for name in sys.modules if "tessera" in name], type(sys.meta_path[0]).__name__)
    """
    done = run(site, code, variable=False, ready=False)
    assert done.stdout.startswith("[] ") and "_Finder" not in done.stdout, done.stderr


def test_a_program_without_torch_never_loads_tessera(site):
    done = run(site, "import json; print('tessera._capture' in sys.modules)")
    assert (done.stdout, done.stderr) == ("False\n", "")


def test_a_program_that_uses_no_device_leaves_no_file(site):
    done = run(site, "import torch")
    assert (done.returncode, done.stderr, names(site / "out", "")) == (0, "", [])


NO_GPU = "import torch; torch.cuda.is_available = lambda: False\n"
STEP = "torch.optim.Optimizer([fake_torch.Tensor(1, (2,))]).step()\n"
NOTHING = "tessera: nothing was recorded, because PyTorch finds no GPU here; `tessera trace SCRIPT` needs none (docs/questions/no-gpu.md)\n"


def test_training_without_a_gpu_says_that_nothing_was_recorded(site):
    done = run(site, NO_GPU + STEP + STEP)
    assert (done.returncode, done.stderr, names(site / "out", "")) == (0, NOTHING, [])
    assert run(site, NO_GPU + STEP, RANK="1").stderr == ""
    assert run(site, NO_GPU + STEP, variable=False).stderr == ""


def test_processes_that_only_inherit_the_variable_are_silent(site):
    assert run(site, NO_GPU).stderr == ""
    assert run(site, NO_GPU + "import os\nif not os.fork():\n    " + STEP).stderr == ""
    traced = NO_GPU + "torch.cuda.memory._record_memory_history.__module__ = 'tessera._fake_cuda'\n" + STEP
    assert run(site, traced).stderr == ""


def test_a_recording_that_was_asked_for_says_so_without_training_and_once(site):
    asked = NO_GPU + 'record = fake_torch.load("_capture").record\nwith record("out"):\n    pass\nrecord.start("out")\n'
    assert run(site, asked, variable=False).stderr == NOTHING
    assert run(site, "import torch\n" + asked.partition("\n")[2], variable=False).stderr == ""  # there is a GPU, which it does not use


def test_a_torch_that_cannot_be_imported_fails_as_it_would(site):
    (site / "site" / "torch" / "__init__.py").write_text(
        "raise ImportError('libcudart is missing')\n"
    )
    done = run(site, "import torch")
    assert done.returncode == 1 and "ImportError: libcudart is missing" in done.stderr
    os.remove(site / "site" / "torch" / "__init__.py")
    os.rmdir(site / "site" / "torch")
    done = run(site, "import torch")
    if importlib.util.find_spec("torch") is None:  # or the real one is imported
        assert "No module named 'torch'" in done.stderr


def test_the_loader_of_torch_is_its_own_again(site):
    (site / "site" / "torch" / "__init__.py").write_text("x = 1\n")
    code = """
        import pkgutil, torch
        loader = torch.__spec__.loader
        text = pkgutil.get_data("torch", "__init__.py")
        print(type(loader).__name__, "exec_module" in vars(loader), text)
    """
    done = run(site, code)
    assert done.stdout == "SourceFileLoader False b'x = 1\\n'\n"
    assert "is built without CUDA, XPU or NPU" in done.stderr  # a torch with nothing in it


def test_out_of_memory_that_ends_the_program(site):
    done = run(site, "import torch; torch.fake.use_device(); torch.fake.run_out_of_memory()")
    assert done.returncode == 1 and "CUDA out of memory" in done.stderr
    assert [name.split("_", 3)[3] for name in names(site / "out")] == ["oom.pickle"]


def test_out_of_memory_without_an_observer(site):
    code = """
        import torch
        torch.fake.use_device()
        torch.fake.observers.clear()
        torch.fake.run_out_of_memory()
    """
    run(site, code)
    (name,) = names(site / "out")
    assert name.endswith("_oom.pickle")
    beside = json.loads((site / "out" / name.replace(".pickle", ".json")).read_text())
    assert beside["exception"]["class"] == "OutOfMemoryError"


def test_an_exception_that_ends_the_program(site):
    run(site, "import torch; torch.fake.use_device(); raise ValueError('wrong shape')")
    assert [name.split("_", 3)[3] for name in names(site / "out")] == ["exception.pickle"]


def test_the_thread_of_the_clock_ends_with_the_process(site):
    code = """
        import torch, threading
        torch.fake.use_device()
        assert any(thread.name == "tessera-record" for thread in threading.enumerate())
    """
    done = run(site, code, TESSERA_RECORD_EVERY="60")
    assert done.returncode == 0, done.stderr
    assert [name.split("_", 3)[3] for name in names(site / "out")] == ["exit.pickle"]


def test_a_recording_that_is_never_stopped(site):
    code = f"""
        import torch
        record = fake_torch.load("_capture").record
        record.start({str(site / "mine")!r})
        torch.fake.use_device()
    """
    done = run(site, code, variable=False)
    assert [name.split("_", 3)[3] for name in names(site / "mine")] == ["exit.pickle"], done.stderr


def test_a_signal_to_a_program_that_knows_nothing(site):
    code = """
        import torch, os, signal, time
        torch.fake.use_device()
        os.kill(os.getpid(), signal.SIGUSR2)
        while not os.listdir(os.environ["TESSERA_RECORD"]):
            time.sleep(0.01)
    """
    done = run(site, code, TESSERA_RECORD_AT_END="0")
    assert done.returncode == 0
    assert [name.split("_", 3)[3] for name in names(site / "out")] == ["signal.pickle"]


ENDED = """
    import torch, os, signal, time
    torch.fake.use_device()
    {before}
    os.kill(os.getpid(), signal.SIGTERM)
    for _ in range(3000):
        time.sleep(0.01)
    print("still there")
"""


@pytest.mark.parametrize(
    "variables",
    [{"TESSERA_RECORD_SIGNAL": "SIGTERM"}, {}, {"SLURM_JOB_ID": "7"}],
)
def test_a_signal_that_ends_the_process_ends_it_after_the_snapshot(site, variables):
    done = run(site, ENDED.format(before=""), TESSERA_RECORD_AT_END="0", **variables)
    assert (done.returncode, done.stdout) == (-signal.SIGTERM, ""), done.stderr
    assert [name.split("_", 3)[3] for name in names(site / "out")] == ["signal.pickle"]
    assert names(site / "out", ".tmp") == []


def test_a_snapshot_that_fails_does_not_keep_the_process_alive(site):
    code = ENDED.format(before='torch.fake.fail.add("_snapshot")')
    done = run(site, code, TESSERA_RECORD_SIGNAL="TERM")
    assert (done.returncode, done.stdout) == (-signal.SIGTERM, ""), done.stderr
    assert names(site / "out") == []


def test_a_signal_that_arrives_twice_does_not_wait(site):
    code = ENDED.format(
        before="""torch.fake.snapshot_hook = lambda: time.sleep(600)
    threading = __import__("threading")
    threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGTERM)).start()"""
    )
    done = run(site, code, TESSERA_RECORD_SIGNAL="TERM")
    assert (done.returncode, done.stdout) == (-signal.SIGTERM, ""), done.stderr


def test_sigterm_is_left_alone_if_it_is_not_among_the_signals(site):
    code = "import torch, signal; torch.fake.use_device(); print(signal.getsignal(signal.SIGTERM))"
    assert run(site, code, TESSERA_RECORD_SIGNAL="USR2").stdout == f"{signal.SIG_DFL}\n"
    assert "_WeakHandler" in run(site, code).stdout
    mine = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); " + code
    assert run(site, mine).stdout == f"{signal.SIG_IGN}\n"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_a_forked_child_writes_nothing_of_its_parents(site):
    code = """
        import torch, os, signal
        torch.fake.use_device()
        child = os.fork()
        if child == 0:
            assert signal.getsignal(signal.SIGUSR2) is signal.SIG_DFL
            sys.exit(0)
        _, status = os.waitpid(child, 0)
        print(status)
    """
    done = run(site, code)
    assert done.stdout == "0\n", done.stderr
    assert len(names(site / "out")) == 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_workers_that_use_the_device_themselves(site, method):
    (site / "site" / "worker.py").write_text(
        "import torch\ndef work():\n    torch.fake.use_device()\n    assert torch.fake.recording\n"
    )
    code = f"""
        import torch, multiprocessing, worker
        context = multiprocessing.get_context({method!r})
        process = context.Process(target=worker.work)
        process.start()
        process.join()
        print(process.exitcode)
    """
    # A spawned interpreter runs .pth files of its own site only; sitecustomize stands for it here.
    (site / "site" / "sitecustomize.py").write_text(
        PREFIX.format(tests=TESTS, package=PACKAGE, ready=True)
    )
    done = run(site, code)
    assert done.stdout == "0\n", done.stderr
    assert [name.split("_", 3)[3] for name in names(site / "out")] == ["exit.pickle"], done.stderr


def test_a_fork_while_another_thread_writes(site):
    code = """
        import torch, os, threading, time
        record = fake_torch.load("_capture").record
        torch.fake.use_device()
        writing, forked = threading.Event(), threading.Event()
        torch.fake.snapshot_hook = lambda: (writing.set(), forked.wait())
        thread = threading.Thread(target=record.dump)
        thread.start()
        writing.wait()
        child = os.fork()
        if child == 0:
            torch.fake.snapshot_hook = None
            record.stop()                   # the lock is held by a thread that is not here
            record.start(os.environ["TESSERA_RECORD"] + "/child")
            record.dump("mine")
            os._exit(0)
        _, status = os.waitpid(child, 0)
        forked.set()
        thread.join()
        print(status)
    """
    done = run(site, code)
    assert done.stdout == "0\n", done.stderr


@pytest.mark.skipif(not hasattr(signal, "SIGTERM"), reason="no signals")
def test_an_interpreter_that_is_killed_leaves_no_half_a_file(site):
    code = """
        import torch, os
        torch.fake.use_device()
        torch.fake.snapshot_hook = lambda: os._exit(9)
        fake_torch.load("_capture").record.dump()
    """
    done = run(site, code)
    assert done.returncode == 9 and names(site / "out") == []


# ---- places that cannot be written to ----


USES = """
    import torch
    torch.fake.use_device()
    {more}
    print("trained")
"""


def mounted(place, options):
    """The words before a command that see a file system of their own at `place`; skips where the system
    does not allow that."""
    words = ["unshare", "--mount", *(["--map-root-user"] if os.geteuid() else [])]
    script = f'mount {options} "$0" && exec "$@"'
    words += ["/bin/sh", "-c", script, str(place)]
    if shutil.which("unshare") is None or subprocess.run([*words, "true"], capture_output=True).returncode:
        pytest.skip("no file system can be mounted here")
    return words


def test_a_full_file_system(site):
    small = mounted(site / "out", "-t tmpfs -o size=64k none")
    code = USES.format(more="torch.fake.padding = b'x' * 1000000")
    done = run(site, code, before=small, TMPDIR=str(site))
    assert (done.returncode, done.stdout) == (0, "trained\n"), done.stderr
    other = site / f"tessera-record-{os.getuid()}"
    (path,) = names(other)
    assert done.stderr.count("No space left on device") == 1 and str(other / path) in done.stderr
    with open(other / path, "rb") as file:
        assert len(pickle.load(file)["padding"]) == 1000000
    assert names(other, ".tmp") == [] and names(site / "out", ".tmp") == []


def test_a_limit_of_the_size_of_files(site):
    # Wherever it is written: there is no snapshot, the program does not notice, and nothing is left.
    code = USES.format(more="torch.fake.padding = b'x' * 1000000")
    code = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, 1 << 16))\n" + textwrap.dedent(code)
    done = run(site, code, TMPDIR=str(site))
    assert (done.returncode, done.stdout) == (0, "trained\n"), done.stderr
    assert done.stderr.count("writing the snapshot failed") == 1 and "File too large" in done.stderr
    assert os.listdir(site / "out") == [] and not any(site.glob("tessera-record-*/*"))


def test_a_file_system_that_is_read_only(site):
    here = mounted(site / "out", f'--bind -o ro "{site / "out"}"')
    done = run(site, USES.format(more=""), before=here, TMPDIR=str(site))
    assert (done.returncode, done.stdout) == (0, "trained\n"), done.stderr
    other = site / f"tessera-record-{os.getuid()}"
    # Said at the start, and which file it is when it is written.
    assert done.stderr.count("Read-only file system") == 2 and str(other) in done.stderr
    assert len(names(other)) == 1 and names(site / "out") == []


def test_a_process_that_is_killed_while_it_writes(site):
    code = USES.format(
        more="""
    import os, signal
    torch.fake.padding, torch.fake.events = Killer(), 20000
    fake_torch.load("_capture").record.dump()"""
    )
    killer = """
class Killer:  # pickling it ends the process, after some of the file has been written
    def __reduce__(self):
        import os, signal
        os.kill(os.getpid(), signal.SIGKILL)
"""
    done = run(site, killer + textwrap.dedent(code))
    assert done.returncode == -signal.SIGKILL
    (left,) = os.listdir(site / "out")
    assert left.startswith(".") and left.endswith(".tmp") and os.path.getsize(site / "out" / left) > 0
    # No snapshot is there, and the next process clears up.
    done = run(site, USES.format(more=""))
    assert done.returncode == 0 and left not in os.listdir(site / "out")
    assert names(site / "out", ".tmp") == [] and len(names(site / "out")) == 1
