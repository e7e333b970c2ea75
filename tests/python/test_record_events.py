"""What asks for a snapshot: memory that runs out, steps, signals, the clock, exceptions."""

import json
import os
import pickle
import signal
import threading
import time

import fake_torch
import pytest
from conftest import HANG_S
from record_fixtures import (  # noqa: F401
    answers,
    marks,
    names,
    process,
    reasons,
    record,
    recorder,
    torch,
    warnings,
)


def sidecar(folder, reason):
    found = [name for name in names(folder, ".json") if name.endswith(f"_{reason}.json")]
    assert len(found) == 1, names(folder, "")
    return json.loads((folder / found[0]).read_text())


def wait_for(condition, seconds=HANG_S):
    """Whether it comes true in time; a machine may be busy."""
    until = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > until:
            return False
        time.sleep(0.01)
    return True


# ---- out of memory ----


def test_the_observer_writes_and_the_exception_does_not_again(torch, record, tmp_path, capfd):
    with pytest.raises(torch.OutOfMemoryError):
        with record(tmp_path):
            torch.fake.run_out_of_memory()
    assert reasons(tmp_path) == ["oom"]
    told = sidecar(tmp_path, "oom")
    assert told["out_of_memory"] == {
        "device": 0,
        "segment_bytes": 21474836480,
        "limit_bytes": 85899345920,
        "device_free_bytes": 95682560,
    }
    assert f"tessera: wrote {tmp_path}" in capfd.readouterr().err


def test_the_exception_alone_is_enough(torch, record, tmp_path):
    del torch._C._cuda_attach_out_of_memory_observer
    with pytest.raises(torch.OutOfMemoryError):
        with record(tmp_path):
            torch.fake.run_out_of_memory()
    assert reasons(tmp_path) == ["oom"]
    assert sidecar(tmp_path, "oom")["exception"]["class"] == "OutOfMemoryError"


@pytest.mark.parametrize(
    "error, is_it",
    [
        (RuntimeError("CUDA out of memory. Tried to allocate"), True),
        (RuntimeError("CUDA error: out of memory"), True),
        (RuntimeError("HIP out of memory"), True),
        (RuntimeError("NPU out of memory. Tried to allocate"), True),
        (RuntimeError("out of memory"), False),  # of the CPU's allocator, perhaps
        (MemoryError("CUDA out of memory"), False),
        (ValueError("wrong shape"), False),
    ],
)
def test_what_counts_as_out_of_memory(torch, error, is_it):
    assert recorder.is_out_of_memory(error) is is_it


def test_out_of_memory_under_another_exception_is_found(torch):
    try:
        try:
            raise torch.OutOfMemoryError("CUDA out of memory")
        except RuntimeError as error:
            raise ValueError("the trainer failed") from error
    except ValueError as error:
        assert recorder.is_out_of_memory(error)
    try:
        try:
            raise torch.OutOfMemoryError("CUDA out of memory")
        except RuntimeError:
            raise ValueError("unrelated") from None
    except ValueError as error:
        assert not recorder.is_out_of_memory(error)


def test_one_that_is_survived_is_told_and_a_later_end_too(torch, record, tmp_path):
    optimizer = torch.optim.Optimizer([fake_torch.Tensor(1, (2,))])
    with record(tmp_path):
        with pytest.raises(torch.OutOfMemoryError):
            torch.fake.run_out_of_memory()
        optimizer.step()
    assert reasons(tmp_path) == ["end", "oom"]


def test_there_is_a_limit_to_what_is_survived_but_not_to_what_is_not(
    torch, record, tmp_path, caplog
):
    with pytest.raises(torch.OutOfMemoryError):
        with record(tmp_path, oom_limit=2):
            for _ in range(4):
                with pytest.raises(torch.OutOfMemoryError):
                    torch.fake.run_out_of_memory()
            torch.fake.run_out_of_memory()
    assert reasons(tmp_path) == ["oom", "oom_2", "oom_3"]  # the last by the exception
    assert "out of memory for the 3th time" in warnings(caplog)[0]


def test_only_the_innermost_recording_tells(torch, record, tmp_path):
    with pytest.raises(torch.OutOfMemoryError):
        with record(tmp_path / "outer"):
            with record(tmp_path / "inner"):
                torch.fake.run_out_of_memory()
    assert reasons(tmp_path / "inner") == ["oom"]
    assert not (tmp_path / "outer").exists()
    assert len(torch.fake.observers) == 1


def test_observers_are_attached_once_and_quiet_afterwards(torch, record, tmp_path):
    for _ in range(3):
        with record(tmp_path):
            pass
    assert len(torch.fake.observers) == 1
    with pytest.raises(torch.OutOfMemoryError):
        torch.fake.run_out_of_memory()
    assert reasons(tmp_path) == ["end", "end_2", "end_3"]


def test_on_oom_false(torch, record, tmp_path):
    with pytest.raises(torch.OutOfMemoryError):
        with record(tmp_path / "out", on_oom=False):
            torch.fake.run_out_of_memory()
    assert torch.fake.observers == [] and not (tmp_path / "out").exists()


@pytest.mark.parametrize("failing", ["_snapshot", "mem_get_info", "*"])
def test_the_observer_never_raises(torch, record, tmp_path, failing):
    with pytest.raises(torch.OutOfMemoryError, match="Tried to allocate"):
        with record(tmp_path):
            torch.fake.fail.add(failing)
            torch.fake.run_out_of_memory()


def test_why_is_printed_at_once(torch, record, tmp_path, monkeypatch, capfd):
    def why(path, capacity):
        return f"because of {os.path.basename(path)}, of {capacity}"

    monkeypatch.setattr(answers, "why", why)
    with pytest.raises(torch.OutOfMemoryError):
        with record(tmp_path):
            try:
                torch.fake.run_out_of_memory()
            finally:
                told = capfd.readouterr().err
    name = f"rank0_pid{os.getpid()}_step0_oom.pickle"
    assert told.splitlines()[1] == f"because of {name}, of 85899345920"


def test_a_why_that_fails_costs_nothing(torch, record, tmp_path, monkeypatch):
    def broken(path, capacity):
        raise OSError("no such program")

    monkeypatch.setattr(answers, "why", broken)
    with pytest.raises(torch.OutOfMemoryError):
        with record(tmp_path):
            torch.fake.run_out_of_memory()
    assert reasons(tmp_path) == ["oom"]


def test_out_of_memory_in_another_thread(torch, record, tmp_path):
    def backward():
        with pytest.raises(torch.OutOfMemoryError):
            torch.fake.run_out_of_memory()

    with record(tmp_path, at_end=False):
        thread = threading.Thread(target=backward)
        thread.start()
        thread.join()
    assert reasons(tmp_path) == ["oom"]


# ---- other ends ----


def test_other_exceptions_are_named(torch, record, tmp_path):
    with pytest.raises(ValueError):
        with record(tmp_path):
            raise ValueError("wrong shape")
    assert sidecar(tmp_path, "exception")["exception"] == {
        "class": "ValueError",
        "message": "wrong shape",
    }


def test_an_interrupt_is_named(torch, record, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        with record(tmp_path):
            raise KeyboardInterrupt
    assert reasons(tmp_path) == ["interrupt"]


def test_leaving_by_exit_is_an_end(torch, record, tmp_path):
    with pytest.raises(SystemExit):
        with record(tmp_path):
            raise SystemExit(3)
    assert reasons(tmp_path) == ["end"]


def test_an_interrupt_while_writing_leaves_nothing_half_written(torch, record, tmp_path):
    def interrupt():
        raise KeyboardInterrupt

    torch.fake.snapshot_hook = interrupt
    with pytest.raises(KeyboardInterrupt):
        with record(tmp_path):
            pass
    assert names(tmp_path, "") == [] and not torch.fake.recording and recorder.active == []


# ---- steps ----


def test_chosen_steps_are_written_at_their_end(torch, record, tmp_path):
    optimizer = torch.optim.Optimizer([fake_torch.Tensor(1, (2,))])
    with record(tmp_path, steps=[1, 3], at_end=False):
        for _ in range(5):
            optimizer.step()
    pid = os.getpid()
    assert names(tmp_path) == [f"rank0_pid{pid}_step{n}_step.pickle" for n in (1, 3)]


def test_of_two_optimizers_one_counts(torch, record, tmp_path):
    first, second = (torch.optim.Optimizer([fake_torch.Tensor(1, (2,))]) for _ in range(2))
    with record(tmp_path, at_end=False):
        for _ in range(3):
            first.step()
            second.step()
        assert marks.marks.steps == 3


def test_the_watched_optimizer_counts_also_inside_a_wrapper(torch, record, tmp_path):
    first, second = (torch.optim.Optimizer([fake_torch.Tensor(1, (2,))]) for _ in range(2))

    class Wrapper:
        optimizer = second
        param_groups = second.param_groups

    record.watch(None, Wrapper())
    with record(tmp_path, at_end=False):
        for _ in range(3):
            first.step()
            second.step()
            second.step()
        assert marks.marks.steps == 6


def test_the_next_training_counts_by_its_own_optimizer(torch, record, tmp_path):
    old, new = (torch.optim.Optimizer([fake_torch.Tensor(1, (2,))]) for _ in range(2))
    for optimizer in (old, new):
        with record(tmp_path, at_end=False) as recording:
            recording.watch(None, optimizer)
            optimizer.step()
            assert marks.marks.steps == 1
    with record(tmp_path, at_end=False):
        new.step()
        assert marks.marks.steps == 1 and old in marks.marks.living_optimizers()


def test_steps_are_not_counted_twice_where_the_program_joins_in(torch, record, tmp_path):
    optimizer = torch.optim.Optimizer([fake_torch.Tensor(1, (2,))])
    with record(tmp_path, steps=[1, 2], at_end=False):
        for _ in range(3):
            optimizer.step()
            record.step()
        assert marks.marks.steps == 3
    assert [name.split("_")[2] for name in names(tmp_path)] == ["step1", "step2"]


def test_a_program_may_count_for_itself(torch, record, tmp_path):
    optimizer = torch.optim.Optimizer([fake_torch.Tensor(1, (2,))])
    with record(tmp_path, steps=[2, 40]) as recording:
        for _ in range(2):
            recording.step()
            optimizer.step()
        assert marks.marks.steps == 2
        recording.step(40)
    assert [name.split("_")[2] for name in names(tmp_path)] == ["step2", "step40", "step40"]


def test_each_recording_counts_from_its_own_start(torch, record, tmp_path):
    optimizer = torch.optim.Optimizer([fake_torch.Tensor(1, (2,))])
    with record(tmp_path / "outer", steps=[3], at_end=False):
        optimizer.step()
        with record(tmp_path / "inner", steps=[1], at_end=False):
            optimizer.step()
        optimizer.step()
    assert len(names(tmp_path / "outer")) == len(names(tmp_path / "inner")) == 1


def test_ranks_choose_who_writes_what_is_not_urgent(torch, record, tmp_path, monkeypatch):
    monkeypatch.setenv("RANK", "5")
    monkeypatch.setenv("WORLD_SIZE", "16")
    with record(tmp_path, ranks=[0, 8]) as recording:
        assert recording.dump() is None
        with pytest.raises(torch.OutOfMemoryError):
            torch.fake.run_out_of_memory()
    assert names(tmp_path) == [f"rank5_pid{os.getpid()}_step0_oom.pickle"]


# ---- annotations ----


def run_steps(torch, record, tmp_path, count=2, **options):
    model = torch.nn.Module()
    optimizer = torch.optim.Optimizer(model.parameters())
    loss = fake_torch.Tensor(1, (1,))
    with record(tmp_path, at_end=False, **options) as recording:
        recording.watch(model, optimizer)
        for _ in range(count):
            model(loss)
            loss.backward()
            optimizer.step()
    return model


def test_steps_forward_and_backward_are_marked(torch, record, tmp_path):
    run_steps(torch, record, tmp_path)
    assert torch.fake.ranges == [
        ("START", "ProfilerStep#1"),
        ("START", "forward"),
        ("END", "forward"),
        ("START", "backward"),
        ("END", "backward"),
        ("END", "ProfilerStep#1"),
        ("START", "ProfilerStep#2"),
        ("START", "forward"),
        ("END", "forward"),
        ("START", "backward"),
        ("END", "backward"),
        ("END", "ProfilerStep#2"),
        ("START", "ProfilerStep#3"),
        ("END", "ProfilerStep#3"),
    ]
    assert len(torch.fake.called("backward")) == 2


def test_nothing_is_left_behind(torch, record, tmp_path):
    backward = torch.autograd.backward
    model = run_steps(torch, record, tmp_path)
    assert model.before == [] and model.after == [] and fake_torch.step_hooks() == []
    assert torch.autograd.backward is backward
    assert marks.marks.handles == [] and threading.active_count() == 1


def test_annotate_false_marks_nothing(torch, record, tmp_path):
    run_steps(torch, record, tmp_path, annotate=False)
    assert torch.fake.ranges == []


def test_watching_before_the_start_and_twice(torch, record, tmp_path):
    model = torch.nn.Module()
    record.watch(model)
    record.watch(model)
    with record(tmp_path, at_end=False), record(tmp_path, at_end=False):
        record.watch(model)
        assert len(model.before) == len(model.after) == 1
        model(1)
    assert [name for kind, name in torch.fake.ranges if kind == "START"] == [
        "ProfilerStep#1",
        "forward",
    ]


def test_other_models_are_told_apart(torch, record, tmp_path):
    first, second, third = torch.nn.Module(), torch.nn.Module(), torch.nn.Module()
    with record(tmp_path, at_end=False):
        record.watch(first)
        record.watch(second)
        record.watch(third, name="critic")
        for model in (second, third):
            model(1)
    started = [name for kind, name in torch.fake.ranges if kind == "START"]
    assert started == ["ProfilerStep#1", "forward model2", "forward critic"]


def test_a_forward_that_raises_is_closed(torch, record, tmp_path):
    model = torch.nn.Module()
    model.fails = True
    with record(tmp_path, at_end=False):
        record.watch(model)
        for _ in range(2):
            with pytest.raises(ValueError):
                model(1)
    assert torch.fake.ranges[1:5] == [("START", "forward"), ("END", "forward")] * 2


def test_a_backward_that_raises_is_closed(torch, record, tmp_path):
    torch.fake.fail.add("backward")
    with record(tmp_path, at_end=False):
        with pytest.raises(RuntimeError, match="backward was told to fail"):
            fake_torch.Tensor(1, (1,)).backward()
    assert ("END", "backward") in torch.fake.ranges


def test_another_that_stands_before_backward_stays(torch, record, tmp_path):
    original = torch.autograd.backward
    with record(tmp_path, at_end=False):
        ours = torch.autograd.backward
        torch.autograd.backward = lambda *tensors: ours(*tensors)
    assert torch.autograd.backward is not original
    del torch.fake.ranges[:]
    torch.autograd.backward(1)
    assert torch.fake.ranges == [] and len(torch.fake.called("backward")) == 1


def test_hooks_look_away_under_compile(torch, record, tmp_path):
    torch.fake.compiling = True
    run_steps(torch, record, tmp_path)
    assert torch.fake.ranges == [] and marks.marks.steps == 0


def test_names_are_in_the_snapshot_where_pytorch_can(record, tmp_path):
    torch = fake_torch.install("2.14")
    model = torch.nn.Module()
    optimizer = torch.optim.Optimizer(model.parameters())
    with record(tmp_path) as recording:
        record.watch(model, optimizer)
        optimizer.step()
        recording.dump()
        recording.dump()
    told = [(call[1]["tensor"].data_ptr(), call[1]["text"]) for call in torch.fake.called("annotate")]
    assert told == [  # once, and nothing that is on the CPU
        (0x7F0000000000, "parameter: layer.weight"),
        (0x7F0000000400, "gradient: layer.weight.grad"),
        (0x7F0000000800, "parameter: running_mean"),
        (0x7F0000010000, "optimizer_state: exp_avg of layer.weight"),
        (0x7F0000020000, "optimizer_state: exp_avg_sq of layer.weight"),
    ]
    order = [name for name, _ in torch.fake.calls if name in ("annotate", "_snapshot")]
    assert order == ["annotate"] * 5 + ["_snapshot"] * 3


def test_names_are_written_again_once_the_history_has_lost_some(record, tmp_path):
    torch = fake_torch.install("2.14")
    model = torch.nn.Module()
    with record(tmp_path, max_entries=3, at_end=False) as recording:
        record.watch(model)
        recording.dump()
        recording.dump()
    assert len(torch.fake.called("annotate")) == 6


@pytest.mark.parametrize("failing", ["annotate", "metadata"])
def test_names_that_pytorch_refuses_cost_nothing(record, tmp_path, failing):
    torch = fake_torch.install("2.14")
    torch.fake.fail.add(failing)
    with record(tmp_path) as recording:
        record.watch(torch.nn.Module())
        with recording.phase("evaluation"):
            pass
    assert len(recording.files) == 1


def test_annotate_false_names_nothing(record, tmp_path):
    torch = fake_torch.install("2.14")
    with record(tmp_path, annotate=False) as recording:
        record.watch(torch.nn.Module())
        with recording.phase("evaluation"):
            pass
    assert not torch.fake.called("annotate") and not torch.fake.called("metadata")


def test_memory_of_a_phase_has_its_name(record, tmp_path):
    torch = fake_torch.install("2.14")
    with record(tmp_path) as recording:
        with recording.phase("evaluation"):
            assert torch.fake.metadata == {"name": "evaluation", "phase": "evaluation"}
            with recording.phase("inner"):
                assert torch.fake.metadata["phase"] == "evaluation"
        assert torch.fake.metadata == ""
        torch.fake.metadata = "the program's own"
        with recording.phase("evaluation"):
            assert torch.fake.metadata == "the program's own"
        assert torch.fake.metadata == "the program's own"


def test_phases_have_names_of_the_program(torch, record, tmp_path):
    with record.phase("before any recording"):
        pass
    with record(tmp_path, at_end=False) as recording, recording.phase("evaluation"):
        pass
    assert torch.fake.ranges == [("START", "evaluation"), ("END", "evaluation")]


def test_a_watched_model_is_let_go(torch, record, tmp_path):
    import gc

    model = torch.nn.Module()
    with record(tmp_path):
        record.watch(model)
        del model
        gc.collect()
        assert marks.marks.living_models() == []


def test_copies_and_pickles_of_a_watched_model_know_nothing_of_it(torch, record, tmp_path):
    import copy
    import pickle

    model = torch.nn.Module()
    with record(tmp_path, at_end=False):
        record.watch(model)
        hooks = (model.before[0], model.after[0])
        written = pickle.dumps(hooks)
        assert b"tessera" not in written
        for before, after in (pickle.loads(written), copy.deepcopy(hooks)):
            assert before(model, ()) is None and after(model, (), 1) is None
    assert torch.fake.ranges == []


# ---- signals ----


@pytest.fixture
def no_grace(monkeypatch):
    monkeypatch.setattr(recorder, "GRACE", 0.05)


def test_a_signal_asks_for_a_snapshot(torch, record, tmp_path):
    with record(tmp_path, at_end=False) as recording:
        os.kill(os.getpid(), signal.SIGUSR2)
        assert wait_for(lambda: recording.files)
    assert reasons(tmp_path) == ["signal"]
    assert signal.getsignal(signal.SIGUSR2) is signal.SIG_DFL


def test_a_signal_is_served_at_the_end_of_the_step(torch, record, tmp_path, monkeypatch):
    monkeypatch.setattr(recorder, "GRACE", 600)
    optimizer = torch.optim.Optimizer([fake_torch.Tensor(1, (2,))])
    threads = []
    torch.fake.snapshot_hook = lambda: threads.append(threading.current_thread())
    with record(tmp_path, at_end=False) as recording:
        optimizer.step()
        os.kill(os.getpid(), signal.SIGUSR2)
        assert wait_for(lambda: recorder.active[0]._pending == "signal")
        assert recording.files == []
        optimizer.step()
        assert reasons(tmp_path) == ["signal"]
    assert threads == [threading.main_thread()]


def test_a_step_that_does_not_end_is_not_waited_for(torch, record, tmp_path, no_grace):
    optimizer = torch.optim.Optimizer([fake_torch.Tensor(1, (2,))])
    with record(tmp_path, at_end=False) as recording:
        optimizer.step()
        os.kill(os.getpid(), signal.SIGUSR2)
        assert wait_for(lambda: recording.files)


def test_a_handler_of_the_program_is_left_alone(torch, record, tmp_path):
    calls = []
    signal.signal(signal.SIGUSR2, lambda number, frame: calls.append(number))
    mine = signal.getsignal(signal.SIGUSR2)
    with record(tmp_path / "out", at_end=False):
        assert signal.getsignal(signal.SIGUSR2) is mine
    with record(tmp_path, at_end=False, signal="USR2") as recording:  # asked for: both are served
        os.kill(os.getpid(), signal.SIGUSR2)
        assert wait_for(lambda: recording.files) and calls == [signal.SIGUSR2]
    assert signal.getsignal(signal.SIGUSR2) is mine


@pytest.mark.parametrize("leaves_at_once", [False, True])
def test_a_handler_of_the_program_runs_after_the_snapshot(
    torch, record, tmp_path, no_grace, leaves_at_once
):
    seen = []
    mine = lambda number, frame: seen.append((number, reasons(tmp_path)))  # noqa: E731
    signal.signal(signal.SIGTERM, mine)
    with record(tmp_path, at_end=False, signal="SIGTERM") as recording:
        os.kill(os.getpid(), signal.SIGTERM)
        assert wait_for(lambda: leaves_at_once or seen)
        assert leaves_at_once or recording.files
    assert wait_for(lambda: seen)
    if not leaves_at_once:
        assert seen == [(signal.SIGTERM, ["signal"])]
    assert len(seen) == 1 and signal.getsignal(signal.SIGTERM) is mine


def test_nested_recordings_both_write_before_the_handler(torch, record, tmp_path, no_grace):
    seen = []
    signal.signal(signal.SIGTERM, lambda number, frame: seen.append(number))
    with record(tmp_path / "outer", at_end=False, signal="TERM") as outer:
        with record(tmp_path / "inner", at_end=False, signal="TERM") as inner:
            os.kill(os.getpid(), signal.SIGTERM)
            assert wait_for(lambda: seen)
            assert len(inner.files) == len(outer.files) == 1
    assert seen == [signal.SIGTERM]


def test_an_ignored_signal_stays_ignored(torch, record, tmp_path, no_grace):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    with record(tmp_path, at_end=False, signal=["TERM", "USR2"]) as recording:
        os.kill(os.getpid(), signal.SIGTERM)
        assert wait_for(lambda: recording.files and not recorder.active[0]._to_send)
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN


def test_a_handler_that_came_later_is_left_alone(torch, record, tmp_path):
    with record(tmp_path, at_end=False):
        signal.signal(signal.SIGUSR2, signal.SIG_IGN)
    assert signal.getsignal(signal.SIGUSR2) is signal.SIG_IGN


def test_no_signal_when_none_is_wanted(torch, record, tmp_path):
    with record(tmp_path, at_end=False, signal=None):
        assert signal.getsignal(signal.SIGUSR2) is signal.SIG_DFL
        assert threading.active_count() == 1


def test_signals_outside_the_main_thread_are_declined(torch, record, tmp_path, caplog):
    def run():
        with record(tmp_path, at_end=False, signal="USR2"):
            pass

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert warnings(caplog) == ["signals reach the main thread only: SIGUSR2 is left alone"]


# ---- the clock ----


def test_the_clock_keeps_the_last(torch, record, tmp_path):
    with record(tmp_path, every=0.001, keep=2, at_end=False) as recording:  # 60 ms
        assert wait_for(lambda: len(torch.fake.called("_snapshot")) >= 5)
    found = names(tmp_path)
    assert len(found) == 2 and all("_periodic" in name for name in found)
    assert len(names(tmp_path, ".json")) == 2
    assert sorted(os.path.basename(path) for path in recording.files) == found
    assert threading.active_count() == 1


def test_the_clock_leaves_other_snapshots(torch, record, tmp_path):
    with record(tmp_path, every=0.001, keep=1, at_end=False) as recording:
        path = recording.dump("mine")
        assert wait_for(lambda: len(torch.fake.called("_snapshot")) >= 4)
    assert os.path.exists(path) and len(names(tmp_path)) == 2


def test_snapshots_without_a_trace(torch, record, tmp_path):
    """PyTorch is asked for no history, and the event that it keeps all the same is not written."""
    with record(tmp_path, every=0.001, trace=False, at_end=False) as recording:
        enabled = torch.fake.called("_record_memory_history")[0][1]["enabled"]
        path = recording.dump("now")
        with open(path, "rb") as file:
            snapshot = pickle.load(file)
        assert wait_for(lambda: len(torch.fake.called("_snapshot")) >= 3)
    assert enabled == "state"
    assert snapshot["segments"] and not any(snapshot["device_traces"])
    with open(path.replace(".pickle", ".json"), encoding="utf-8") as file:
        document = json.load(file)
    assert document["time_us"] and document["recording"]["events"] == []


def test_the_clock_leaves_time_to_train(torch, record, tmp_path, monkeypatch):
    """Writing that takes longer than the period is not followed by the next at once, and never waits for another."""
    recorder = fake_torch.load("_record.recorder")
    written, write = [], recorder.write_snapshot

    def slow(*arguments):
        begin = time.monotonic()
        time.sleep(0.2)
        write(*arguments)
        written.append((begin, time.monotonic()))

    monkeypatch.setattr(recorder, "write_snapshot", slow)
    with record(tmp_path, every=0.001, keep=9, at_end=False):  # 60 ms
        assert wait_for(lambda: len(written) >= 4)
    pauses = [later[0] - earlier[1] for earlier, later in zip(written, written[1:])]
    assert all(pause > 0.04 for pause in pauses), pauses


def test_a_full_disk_is_survived(torch, record, tmp_path, monkeypatch, caplog):
    files = fake_torch.load("_record.files")

    def full(*arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files, "_write_pickle", full)
    with record(tmp_path, every=0.001):
        assert wait_for(lambda: len(torch.fake.called("_snapshot")) >= 3)
    assert warnings(caplog) == [
        "writing the snapshot failed: OSError: [Errno 28] No space left on device"
    ]
    assert names(tmp_path, "") == []


# ---- threads ----


def test_many_threads_at_once(torch, record, tmp_path):
    overlapping, inside = [], threading.Lock()

    def one_at_a_time():
        if not inside.acquire(blocking=False):
            overlapping.append(threading.current_thread())
            return
        time.sleep(0.001)
        inside.release()

    torch.fake.snapshot_hook = one_at_a_time
    with record(tmp_path, at_end=False, sidecar=False) as recording:

        def work():
            for _ in range(5):
                recording.dump("work")

        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert overlapping == [] and len(names(tmp_path)) == 40 == len(set(recording.files))


@pytest.mark.parametrize("out", ["out", "out/a.pickle", "out/a.pickle.gz"])
def test_recordings_that_end_together(torch, record, tmp_path, out):
    """Each keeps its own file and sidecar, whatever it is to be called."""
    for turn in range(100 if out == "out" else 20):
        folder, together, files = tmp_path / str(turn), threading.Barrier(4), []

        def work():
            with record(folder / out) as recording:
                together.wait()
            files.extend(recording.files)

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        found = names(folder / "out") if out == "out" else names(folder / "out", ".gz" if out.endswith("gz") else ".pickle")
        assert len(found) == 4 == len(set(files)), found
        assert len(names(folder / "out", ".json")) == 4
    with record(folder / out) as recording:  # a later run replaces the file that was asked for
        pass
    if out != "out":
        assert recording.files == [str(folder / out)]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_a_child_does_not_wait_for_a_name(torch, record, tmp_path):
    """Forked while a thread of the parent holds the lock of names, and has one."""
    names_of = fake_torch.load("_record.files").names
    with names_of._lock:
        child = os.fork()
        if child == 0:
            signal.alarm(20)
            with record(tmp_path / "child.pickle") as recording:
                pass
            os._exit(0 if recording.files == [str(tmp_path / "child.pickle")] else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_recordings_of_many_threads(torch, record, tmp_path):
    errors = []

    def work(index):
        try:
            for _ in range(10):
                with record(tmp_path / str(index), sidecar=False):
                    pass
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(index,)) for index in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == [] and not torch.fake.recording and recorder.active == []
    assert all(len(names(tmp_path / str(index))) == 10 for index in range(6))


def test_a_dump_inside_a_dump_is_declined(torch, record, tmp_path):
    with record(tmp_path, at_end=False) as recording:
        torch.fake.snapshot_hook = lambda: recording.dump("inner")
        recording.dump("outer")
    assert reasons(tmp_path) == ["outer"]


def test_listeners_are_told_and_contained(torch, record, tmp_path, caplog):
    told = []

    def broken(path, reason):
        raise OSError("the tracker is away")

    with record(tmp_path) as recording:
        recording.on_dump(broken)
        recording.on_dump(lambda path, reason: told.append((os.path.basename(path), reason)))
    assert [reason for _, reason in told] == ["end"] and "the tracker is away" in warnings(caplog)[
        0
    ]


# ---- what is easily forgotten ----


def test_a_later_out_of_memory_is_another(torch, record, tmp_path):
    optimizer = torch.optim.Optimizer([fake_torch.Tensor(1, (2,))])
    with pytest.raises(torch.OutOfMemoryError):
        with record(tmp_path):
            with pytest.raises(torch.OutOfMemoryError):
                torch.fake.run_out_of_memory()
            optimizer.step()
            torch.fake.observers.clear()  # now only the exception tells
            torch.fake.run_out_of_memory()
    assert [name.split("_", 2)[2] for name in names(tmp_path)] == [
        "step0_oom.pickle",
        "step1_oom.pickle",
    ]


def test_only_the_innermost_recording_tells_of_an_exception(torch, record, tmp_path):
    del torch._C._cuda_attach_out_of_memory_observer
    with pytest.raises(torch.OutOfMemoryError):
        with record(tmp_path / "outer"), record(tmp_path / "inner"):
            torch.fake.run_out_of_memory()
    assert reasons(tmp_path / "inner") == ["oom"] and not (tmp_path / "outer").exists()


def test_the_last_snapshot_has_no_step_half_open(torch, record, tmp_path):
    optimizer = torch.optim.Optimizer([fake_torch.Tensor(1, (2,))])
    seen = []
    with record(tmp_path / "outer"):
        with record(tmp_path / "inner"):
            optimizer.step()
            torch.fake.snapshot_hook = lambda: seen.append(torch.fake.ranges[-1])
        assert torch.fake.ranges[-1] == ("START", "ProfilerStep#2")  # the outer one goes on
    assert seen == [("END", "ProfilerStep#2")] * 2


def test_a_stopped_recording_is_let_go(torch, record, tmp_path):
    import gc
    import weakref

    with record(tmp_path, every=60) as recording:
        held = weakref.ref(recorder.active[0])
    del recording
    gc.collect()
    assert held() is None
    assert fake_torch.load("_record.backend").observers.listeners == []


def test_after_a_fork_no_lock_is_held_by_a_thread_that_is_gone(torch, record, tmp_path):
    guard = fake_torch.load("_record.guard")
    torch.fake.initialized = False
    with record(tmp_path):
        (armed,) = recorder.active
        before = [armed._dump_lock, armed._state_lock, marks.marks.lock, guard._lock]
        recorder._after_fork()
        after = [armed._dump_lock, armed._state_lock, marks.marks.lock, guard._lock]
        assert recorder.active == [armed]
        assert not any(new is old for new, old in zip(after, before))


# ---- a line for each step ----


def counts(torch, peaks):
    """Lets PyTorch report these peaks one after another."""
    left = list(peaks)
    torch.cuda.memory_stats = lambda: {
        "allocated_bytes.all.peak": left.pop(0) * 2**20,
        "allocated_bytes.all.current": 2**20,
        "reserved_bytes.all.current": 6 * 2**30,
        "reserved_bytes.all.peak": 7 * 2**30,
        "num_alloc_retries": 2,
        "num_ooms": 0,
    }


def test_a_line_for_each_step(torch, record, tmp_path, capfd):
    counts(torch, [1024, 1024, 1536, 512])
    with record(tmp_path, log_steps=True, at_end=False) as recording:
        for _ in range(4):
            recording.step()
    rest = "reserved 6.0 GiB, allocation retries 2"
    assert capfd.readouterr().err.splitlines() == [
        f"tessera: step 1: peak 1.0 GiB, {rest}",
        f"tessera: step 2: peak 1.0 GiB, {rest}",
        f"tessera: step 3: peak 1.5 GiB (+512.0 MiB), {rest}",
        f"tessera: step 4: peak 512.0 MiB (-1.0 GiB), {rest}",
    ]
    assert names(tmp_path, "") == [] and not torch.fake.called("reset_peak_memory_stats")
    assert torch.fake.synchronized == 0


@pytest.mark.parametrize("ranks, rank, logs", [(None, 0, True), (None, 3, False), ({3}, 3, True)])
def test_lines_of_ranks(torch, record, tmp_path, monkeypatch, capfd, ranks, rank, logs):
    monkeypatch.setenv("RANK", str(rank))
    monkeypatch.setenv("WORLD_SIZE", "8")
    counts(torch, [1, 1])
    with record(tmp_path, log_steps=2, ranks=ranks, at_end=False) as recording:
        for _ in range(5):
            recording.step()
    lines = capfd.readouterr().err.splitlines()
    assert [line.split(":")[1] for line in lines] == (
        [f" rank {rank}, step 2", f" rank {rank}, step 4"] if logs else []
    )


def test_lines_as_json(torch, record, tmp_path, monkeypatch, capfd):
    """Every rank has its own file, with the folder made if need be."""
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("WORLD_SIZE", "8")
    counts(torch, [1, 5, 9])
    with record(tmp_path / "new" / "a.pickle", log_steps=10, log_json=True, at_end=False) as run:
        for step in (10, 20, 25, 30):
            run.step(step)
    assert capfd.readouterr().err == ""
    path = tmp_path / "new" / f"a_rank3_pid{os.getpid()}_steps.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(line["step"], line["rank"], line["peak_allocated_bytes"]) for line in lines] == [
        (10, 3, 1 << 20),
        (20, 3, 5 << 20),
        (30, 3, 9 << 20),
    ]
    assert lines[0]["seconds_per_step"] is None and lines[1]["seconds_per_step"] >= 0
    assert lines[2]["time_us"] >= lines[0]["time_us"] > 1e15
    assert set(lines[0]) == {
        "step",
        "rank",
        "time_us",
        "seconds_per_step",
        "allocated_bytes",
        "peak_allocated_bytes",
        "reserved_bytes",
        "peak_reserved_bytes",
        "allocation_retries",
        "out_of_memory_errors",
    }


def test_lines_that_cannot_be_written_are_survived(torch, record, tmp_path, caplog):
    """A link in the file's place is not followed, and the loop does not notice."""
    counts(torch, [1, 2, 3])
    victim = tmp_path / "victim"
    victim.write_text("mine")
    (tmp_path / f"rank0_pid{os.getpid()}_steps.jsonl").symlink_to(victim)
    with record(tmp_path, log_steps=1, log_json=True, at_end=False) as recording:
        for _ in range(3):
            recording.step()
    assert victim.read_text() == "mine"
    assert len(warnings(caplog)) == 1 and warnings(caplog)[0].startswith("logging a step failed")


def test_lines_without_statistics(torch, record, tmp_path, capfd):
    with record(tmp_path, log_steps=True, at_end=False) as recording:
        recording.step()
    assert capfd.readouterr().err == ""
