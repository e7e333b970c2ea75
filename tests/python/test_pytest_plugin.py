"""The pytest plugin, in pytest runs of their own, with a stand-in for PyTorch and for `tessera
check`."""

import os
import shutil
import subprocess
import sys

import fake_torch
import pytest

pytest_plugins = ["pytester"]

plugin = fake_torch.load("pytest_plugin")

TESTS = os.path.dirname(os.path.abspath(__file__))


def real_tessera():
    """A tessera that knows `check`, or None."""
    built = os.path.join(fake_torch.ROOT, "build", "tessera")
    for path in (os.environ.get("TESSERA_COMMAND"), built, shutil.which("tessera")):
        if not path or not os.access(path, os.X_OK):
            continue
        if subprocess.run([path, "check", "--help"], capture_output=True).returncode == 0:
            return path
    return None


TESSERA = real_tessera()  # before a test sets the variable

# `tessera check` in small: the peak is the sum of the trace's allocations, all of them activations.
CHECK = """#!{python}
import pickle, re, sys
if sys.argv[1] != "check":
    sys.exit("tessera: no such command")
arguments, limits, lock, update = sys.argv[2:], [], None, False
while len(arguments) > 1:
    word = arguments.pop(0)
    if word in ("--max", "--max-reserved"):
        limits.append((word, arguments.pop(0)))
    elif word == "--lock":
        lock = arguments.pop(0)
    elif word == "--update":
        update = True
    else:
        arguments.pop(0)
with open(arguments[0], "rb") as file:
    snapshot = pickle.load(file)
peak = sum(entry["size"] for entry in snapshot["device_traces"][0])
reserved = sum(segment["total_size"] for segment in snapshot["segments"])
if lock and update:
    open(lock, "w").write(f"tessera memory lock 1\\n# for people\\n\\ndevice 0\\npeak {{peak}}\\n")
    sys.exit(0)
failed = []
for word, text in limits:
    kind, _, size = text.rpartition("=")
    if kind not in ("", "activation"):
        print(f"tessera check: no category '{{kind}}'", file=sys.stderr)
        sys.exit(2)
    number, unit = re.fullmatch(r"([0-9.]+)([KMGT]?)i?B?", size).groups()
    allowed = float(number) * 1024 ** " KMGT".index(unit or " ")
    used = reserved if word == "--max-reserved" else peak
    if used > allowed:
        failed.append(f"too much: {{kind or word}} {{used}} of {{allowed:.0f}}")
if lock:
    was = int(open(lock).read().split("peak")[1])
    if was != peak:
        failed.append(f"was {{was}}, is {{peak}}")
print("Memory check " + ("FAILED" if failed else "passed"))
print("\\n".join(failed))
sys.exit(1 if failed else 0)
"""


@pytest.fixture
def run(pytester, monkeypatch):
    """Runs pytest on a test file's text; the stand-ins are in place."""
    checker = pytester.path / "tessera-check"
    checker.write_text(CHECK.format(python=sys.executable))
    checker.chmod(0o755)
    monkeypatch.setenv("TESSERA", str(checker))
    monkeypatch.delenv("TESSERA_RECORD", raising=False)
    pytester.makeconftest(
        f"""
        import sys
        sys.path.insert(0, {TESTS!r})
        import fake_torch, os
        fake_torch.prepare()
        if os.environ.get("FAKE_TORCH") != "none":
            torch = fake_torch.install(device=os.environ.get("FAKE_TORCH", "cuda"))
            torch.fake.events = int(os.environ.get("FAKE_EVENTS", "3"))
        else:
            sys.modules["torch"] = None
        pytest_plugins = ["tessera.pytest_plugin"]
        """
    )
    if "tessera" in sys.modules and not hasattr(sys.modules["tessera"], "__version__"):
        monkeypatch.setenv("PYTHONPATH", os.path.join(fake_torch.ROOT, "python"))

    def call(text, *arguments, **environment):
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        pytester.makepyfile(test_it=text)
        return pytester.runpytest_inprocess(
            "-p", "no:tessera", "-p", "no:cacheprovider", *arguments
        )

    return call


LIMITED = """
import pytest, torch
@pytest.mark.limit_gpu_memory("{}"{})
def test_step():
    assert torch.fake.recording
def test_other():
    assert not torch.fake.recording
"""


def test_within_the_limit(run):
    run(LIMITED.format("2 KiB", "")).assert_outcomes(passed=2)


def test_over_the_limit(run):
    result = run(LIMITED.format("1 KiB", ""))
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["Memory check FAILED", "too much: --max 1536 of 1024"])
    result.stdout.no_fnmatch_line("*PluggyTeardownRaisedWarning*")


def test_limits_of_kinds_and_of_reserved_memory(run):
    result = run(LIMITED.format("1 KiB", ', category="activation"'))
    result.stdout.fnmatch_lines(["too much: activation 1536 of 1024"])
    result = run(LIMITED.format("1 MiB", ", reserved=True"))
    result.stdout.fnmatch_lines(["too much: --max-reserved 2097152 of 1048576"])


def test_several_limits_and_those_of_a_class(run):
    text = """
    import pytest
    @pytest.mark.limit_gpu_memory(1000)
    class TestIt:
        @pytest.mark.limit_gpu_memory("1.4K", category="activation")
        def test_step(self):
            pass
    """
    result = run(text)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines_random(
        ["too much: --max 1536 of 1000", "too much: activation 1536 of 1434"]
    )


def test_a_test_that_fails_by_itself_says_only_that(run):
    text = """
    import pytest
    @pytest.mark.limit_gpu_memory("1 KiB")
    def test_step():
        assert 1 == 2
    """
    result = run(text)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*assert 1 == 2*"])
    result.stdout.no_fnmatch_line("*too much*")


def test_recording_ends_with_a_test_that_raises(run):
    text = """
    import pytest, torch
    @pytest.mark.gpu_memory
    def test_step():
        torch.fake.run_out_of_memory()
    def test_after():
        assert not torch.fake.recording
    """
    run(text).assert_outcomes(failed=1, passed=1)


@pytest.mark.parametrize(
    "mark, message",
    [
        ('"lots"', "not a size: 'lots'"),
        ('"0"', "not a size: '0'"),
        ('"1 GiB", category="a b"', "not a category"),
        ('"1 GiB", category="activation", reserved=True', "reserved memory has no categories"),
        ("", "missing 1 required positional argument"),
    ],
)
def test_wrong_limits_are_failures_of_the_test(run, mark, message):
    result = run(f"import pytest\n@pytest.mark.limit_gpu_memory({mark})\ndef test_step(): pass\n")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines([f"limit_gpu_memory: *{message}*"])


def test_a_kind_that_tessera_does_not_know(run):
    result = run(LIMITED.format("1 GiB", ', category="gradients"'))
    result.stdout.fnmatch_lines(["this test's memory could not be checked: *no category 'gradients'"])


# ---- where it cannot be done ----


@pytest.mark.parametrize(
    "torch, message",
    [
        ("none", "PyTorch cannot be imported*"),
        ("cpu", "there is no GPU here whose memory PyTorch can record"),
    ],
)
def test_without_a_gpu_or_pytorch_it_is_skipped(run, torch, message):
    text = 'import pytest\n@pytest.mark.limit_gpu_memory("1 KiB")\ndef test_step(): pass\n'
    result = run(text, "-rs", FAKE_TORCH=torch)
    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines([f"SKIPPED*{message}"])


def test_required_it_fails_without_a_gpu(run):
    text = 'import pytest\n@pytest.mark.limit_gpu_memory("1 KiB")\ndef test_step(): pass\n'
    result = run(text, "--memory-required", FAKE_TORCH="cpu")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*--memory-required: there is no GPU here whose memory PyTorch can record*"])


def test_required_it_fails_if_nothing_is_compared(run):
    text = "import pytest, torch\ntorch.fake.initialized = {}\n@pytest.mark.gpu_memory\ndef test_step(): pass\n"
    run(text.format(True)).assert_outcomes(passed=1)
    result = run(text.format(True), "--memory-required")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*has no limit, and no lock is given*"])
    limited = text.replace("gpu_memory", "limit_gpu_memory(1)")
    run(limited.format(False)).assert_outcomes(passed=1)
    result = run(limited.format(False), "--memory-required")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*this test has used no device*"])


def test_without_tessera_it_is_skipped(run, monkeypatch):
    monkeypatch.setenv("PATH", "")
    if fake_torch.load("_record.answers").importlib.util.find_spec("tessera._core"):
        pytest.skip("the package has its command")
    result = run(LIMITED.format("1 KiB", ""), "-rs", TESSERA="")
    result.stdout.fnmatch_lines(
        ["SKIPPED*the tessera command, which checks snapshots, is not on PATH"]
    )


def test_a_device_that_is_not_used_is_within_any_limit(run):
    text = """
    import pytest, torch
    torch.fake.initialized = False
    @pytest.mark.limit_gpu_memory(1)
    def test_step():
        pass
    """
    run(text).assert_outcomes(passed=1)


def test_a_snapshot_that_cannot_be_written_is_a_failure(run):
    text = """
    import pytest, torch
    @pytest.mark.limit_gpu_memory("1 GiB")
    def test_step():
        torch.fake.fail.add("_snapshot")
    """
    result = run(text)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["no snapshot of this test's memory could be written"])


def test_a_history_that_was_full_is_a_failure(run, monkeypatch):
    monkeypatch.setenv("TESSERA_RECORD_MAX_ENTRIES", "1")
    text = """
    import pytest, torch
    @pytest.mark.limit_gpu_memory("1 GiB")
    def test_step():
        pass
    """
    result = run(text)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*its history of * events was full, and the first ones are lost*"])


# ---- the lock ----

LOCKED = """
import pytest
@pytest.mark.gpu_memory
@pytest.mark.parametrize("size", ["[1]", "b"])
def test_step(size):
    pass
"""


def test_a_lock_is_written_and_held(run, pytester):
    lock = pytester.path / "memory.lock"
    run(LOCKED, "--memory-lock", "memory.lock", "--memory-lock-update").assert_outcomes(passed=2)
    assert lock.read_text() == (
        "# Peak GPU memory of tests. Written by `pytest --memory-lock FILE --memory-lock-update`.\n"
        "\n[test_it.py::test_step[[1]]]\ntessera memory lock 1\ndevice 0\npeak 1536\n"
        "\n[test_it.py::test_step[b]]\ntessera memory lock 1\ndevice 0\npeak 1536\n"
    )
    run(LOCKED, "--memory-lock", "memory.lock").assert_outcomes(passed=2)
    result = run(LOCKED, "--memory-lock", "memory.lock", FAKE_EVENTS="4")
    result.assert_outcomes(failed=2)
    result.stdout.fnmatch_lines(["was 1536, is 2048"])


def test_an_update_keeps_the_tests_that_did_not_run(run, pytester):
    lock = pytester.path / "memory.lock"
    run(LOCKED, "--memory-lock", "memory.lock", "--memory-lock-update")
    run(LOCKED, "--memory-lock", "memory.lock", "--memory-lock-update", "-k", "b", FAKE_EVENTS="5")
    assert "[[1]]]\ntessera memory lock 1\ndevice 0\npeak 1536" in lock.read_text()
    assert "[b]]\ntessera memory lock 1\ndevice 0\npeak 2560" in lock.read_text()


def test_a_test_that_is_not_locked_says_so(run):
    result = run(LOCKED, "--memory-lock", "memory.lock")
    result.assert_outcomes(failed=2)
    result.stdout.fnmatch_lines(
        ["*memory.lock has no lock for this test: --memory-lock-update writes it"]
    )


def test_what_is_no_lock_is_refused(run, pytester):
    (pytester.path / "memory.lock").write_text("import torch\n")
    result = run(LOCKED, "--memory-lock", "memory.lock")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*is not a file of test locks: it begins with 'import torch'"])
    result = run(LOCKED, "--memory-lock-update")
    assert result.ret == pytest.ExitCode.USAGE_ERROR


def test_limits_hold_while_the_lock_is_written(run):
    result = run(
        LIMITED.format("1 KiB", ""), "--memory-lock", "memory.lock", "--memory-lock-update"
    )
    result.assert_outcomes(passed=1, failed=1)


def test_snapshots_are_kept_where_wanted(run, pytester):
    result = run(LIMITED.format("1 KiB", ""), "--memory-dir", "snapshots")
    path = pytester.path / "snapshots" / "test_it.py-test_step" / "test.pickle"
    result.stdout.fnmatch_lines(
        [f"The snapshot: {os.path.join('snapshots', 'test_it.py-test_step')}*"]
    )
    assert path.exists()
    run(LIMITED.format("1 KiB", ""), "--memory-dir", "snapshots")  # again: the old one is replaced
    assert sorted(entry.name for entry in path.parent.iterdir()) == ["test.json", "test.pickle"]


def test_workers_hand_their_locks_over(tmp_path):
    """As pytest-xdist does it, which need not be installed."""

    class Config:
        def getoption(self, name):
            return {"--memory-lock": str(tmp_path / "lock"), "--memory-lock-update": True}.get(name)

    worker, controller = plugin._Plugin(Config()), plugin._Plugin(Config())
    worker.config.workeroutput = {}
    worker.updates = {"a.py::test": "tessera memory lock 1\n"}
    worker.pytest_sessionfinish(None)
    assert not (tmp_path / "lock").exists()
    controller.pytest_testnodedown(worker.config, None)
    controller.pytest_sessionfinish(None)
    assert plugin.Locks(str(tmp_path / "lock")).texts == {"a.py::test": "tessera memory lock 1\n"}


# ---- the real command ----


def test_with_tessera_itself(run, pytester):
    if TESSERA is None:
        pytest.skip("there is no tessera here that knows `check`")
    run(LIMITED.format("1 GiB", ""), TESSERA=TESSERA).assert_outcomes(passed=2)
    result = run(LIMITED.format("1 KiB", ""), TESSERA=TESSERA)
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["*1.5 KiB*at most 1.0 KiB*"])
    arguments = ("--memory-lock", "memory.lock")
    run(LOCKED, *arguments, "--memory-lock-update").assert_outcomes(passed=2)
    run(LOCKED, *arguments).assert_outcomes(passed=2)
    run(LOCKED, *arguments, FAKE_EVENTS="4").assert_outcomes(failed=2)
    run(LOCKED, *arguments, "--memory-tolerance", "1MiB").assert_outcomes(passed=2)
