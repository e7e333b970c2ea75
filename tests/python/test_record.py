"""Starting and stopping: the context manager, the decorator, calls, and each release's
signature."""

import asyncio
import os
import sys

import fake_torch
import pytest
from record_fixtures import names, process, read, reasons, record, torch, warnings  # noqa: F401


def enabled(torch):
    """The arguments of the first call that turned history on."""
    return torch.fake.called("_record_memory_history")[0][1]


# ---- forms ----


def test_a_block_is_recorded_and_written_at_its_end(torch, record, tmp_path):
    with record(tmp_path) as recording:
        assert torch.fake.recording and record.is_recording and recording.is_recording
    assert not torch.fake.recording and not record.is_recording
    assert names(tmp_path) == [f"rank0_pid{os.getpid()}_step0_end.pickle"]
    assert recording.files == [str(tmp_path / names(tmp_path)[0])]
    assert read(recording.files[0])["segments"][0]["total_size"] == 2097152


def test_a_program_that_is_traced_is_not_recorded(torch, record, tmp_path):
    def _nothing(*_, **__):
        pass

    _nothing.__module__ = "tessera._fake_cuda"  # as tessera.trace replaces it
    torch.cuda.memory._record_memory_history = _nothing
    with record(tmp_path / "out"):
        pass
    assert not (tmp_path / "out").exists() and not torch.fake.observers


def test_a_decorated_function_is_recorded_at_each_call(torch, record, tmp_path):
    @record(str(tmp_path))
    def train(value, scale=1):
        """Trains."""
        assert torch.fake.recording
        return value * scale

    assert names(tmp_path) == []
    assert train(3, scale=2) == 6 and train(1) == 1
    assert train.__name__ == "train" and train.__doc__ == "Trains."
    assert reasons(tmp_path) == ["end", "end_2"]


def test_the_bare_decorator_takes_the_default_folder(torch, record, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    @record
    def train():
        return 5

    assert train() == 5
    assert reasons(tmp_path / "tessera-record") == ["end"]


def test_coroutines_and_generators_are_recorded_while_they_run(torch, record, tmp_path):
    @record(tmp_path / "a")
    async def later():
        await asyncio.sleep(0)
        assert torch.fake.recording
        return 7

    @record(tmp_path / "b")
    def several():
        yield torch.fake.recording
        return 8

    assert asyncio.run(later()) == 7
    assert list(several()) == [True]
    assert reasons(tmp_path / "a") == reasons(tmp_path / "b") == ["end"]


def test_asynchronous_generators_are_recorded_while_they_run(torch, record, tmp_path):
    events = []

    @record(tmp_path, at_end=False)
    async def batches():
        try:
            while True:
                events.append((torch.fake.recording, (yield len(events))))
        except KeyError as error:
            events.append(type(error))
            yield "after"
        finally:
            events.append("closed")

    async def use():
        made = batches()
        assert await made.__anext__() == 0 and await made.asend("sent") == 1
        assert await made.athrow(KeyError()) == "after"
        await made.aclose()
        assert not torch.fake.recording
        assert [item async for item in counted()] == [0, 1]

    @record(tmp_path)
    async def counted():
        for number in range(2):
            await asyncio.sleep(0)
            yield number
        assert torch.fake.recording

    asyncio.run(use())
    assert events == [(True, "sent"), KeyError, "closed"]
    assert reasons(tmp_path) == ["end"]


def test_classes_are_refused(record, tmp_path):
    with pytest.raises(TypeError, match="not the class Net: decorate a method"):

        @record(tmp_path)
        class Net:
            pass

    with pytest.raises(TypeError, match="not the class"):
        record(dict)


def test_a_second_start_reports_what_it_ignores(torch, record, tmp_path, caplog):
    record.start(tmp_path, keep=2)
    record.start()
    record.start(tmp_path, keep=2)
    assert warnings(caplog) == []
    record.start(tmp_path / "other", steps=[3], keep=2)
    assert warnings(caplog) == [
        f"a recording to {tmp_path} is under way and continues: out='{tmp_path}/other', steps=[3] "
        "are ignored"
    ]


def test_pinned_memory_where_pytorch_can(record, tmp_path, caplog):
    torch = fake_torch.install("2.14")
    with record(tmp_path, pinned=True):
        assert enabled(torch)["record_pinned_host_memory"] is True
    assert warnings(caplog) == []
    torch = fake_torch.install("2.11")
    with record(tmp_path, pinned=True):
        assert "record_pinned_host_memory" not in enabled(torch)
    assert warnings(caplog) == ["this PyTorch cannot record pinned memory: that needs 2.14 or later"]


def test_start_and_stop(torch, record, tmp_path):
    recording = record.start(tmp_path)
    assert record.start(tmp_path / "other") is recording  # goes on with the first
    path = record.dump("before the crash")
    assert os.path.basename(path) == f"rank0_pid{os.getpid()}_step0_before-the-crash.pickle"
    assert record.files == [path]
    assert record.stop().endswith("_end.pickle")
    assert record.stop() is None
    assert not (tmp_path / "other").exists()
    assert len(torch.fake.called("_record_memory_history")) == 2


def test_a_recording_can_be_entered_again(torch, record, tmp_path):
    recording = record(tmp_path)
    for _ in range(2):
        with recording:
            assert torch.fake.recording
    assert reasons(tmp_path) == ["end", "end_2"]


def test_a_file_can_be_named(torch, record, tmp_path):
    with record(tmp_path / "runs" / "baseline.pickle") as recording:
        recording.dump("middle")
    assert names(tmp_path / "runs") == [
        "baseline.pickle",
        f"baseline_rank0_pid{os.getpid()}_step0_middle.pickle",
    ]


def test_a_named_file_of_many_ranks_gets_the_rank(torch, record, tmp_path, monkeypatch):
    monkeypatch.setenv("RANK", "2")
    monkeypatch.setenv("WORLD_SIZE", "4")
    with record(tmp_path / "baseline.pickle"):
        pass
    assert names(tmp_path) == ["baseline_rank2.pickle"]


def test_at_end_false_writes_nothing(torch, record, tmp_path):
    with record(tmp_path / "out", at_end=False):
        pass
    assert not (tmp_path / "out").exists()


# ---- signatures ----


@pytest.mark.parametrize("version", ["2.1", "2.6", "2.8", "2.11", "2.14"])
@pytest.mark.parametrize("stacks", ["python", "all"])
def test_each_release_gets_the_arguments_it_knows(record, tmp_path, version, stacks, caplog):
    torch = fake_torch.install(version)
    with record(tmp_path, stacks=stacks, max_entries=77, context="alloc"):
        given = enabled(torch)
        assert given["enabled"] == "all"
        assert (given["stacks"], given["max_entries"], given["context"]) == (stacks, 77, "alloc")
        newer = version in ("2.8", "2.11", "2.14")
        assert given.get("global_record_annotations") is (True if newer else None)
        assert ("compile_context" in given) == newer
        assert "skip_actions" not in given and "record_cuda" not in given
    assert torch.fake.called("_record_memory_history")[-1][1] == {"enabled": None}
    assert warnings(caplog) == [] and reasons(tmp_path) == ["end"]


def test_release_2_0_is_given_room_for_more_than_one_event(record, tmp_path):
    torch = fake_torch.install("2.0")
    with record(tmp_path, stacks="all"):
        assert enabled(torch) == {
            "enabled": True,
            "record_context": True,
            "trace_alloc_max_entries": 1000000,
            "trace_alloc_record_context": True,
            "record_context_cpp": True,
        }
    assert torch.fake.called("_record_memory_history")[-1][1] == {"enabled": False}


def test_actions_are_skipped_where_the_release_can(record, tmp_path):
    torch = fake_torch.install("2.11")
    with record(tmp_path, skip_actions=["free_requested"]):
        assert enabled(torch)["skip_actions"] == ["free_requested"]


def test_compiled_regions_are_told_where_dynamo_is_loaded(torch, record, tmp_path, monkeypatch):
    with record(tmp_path):
        assert enabled(torch)["compile_context"] is False
    del torch.fake.calls[:]
    monkeypatch.setitem(sys.modules, "torch._dynamo", object())
    with record(tmp_path):
        assert enabled(torch)["compile_context"] is True


def test_a_build_whose_halves_disagree_gets_the_core_arguments(record, tmp_path, caplog):
    torch = fake_torch.install("2.14")
    real = torch.cuda.memory._record_memory_history

    def strict(enabled="all", **options):
        if "global_record_annotations" in options:
            raise TypeError("incompatible function arguments")
        real(enabled, **options)

    strict.__signature__ = real.__signature__
    torch.cuda.memory._record_memory_history = strict
    with record(tmp_path):
        assert sorted(enabled(torch)) == ["context", "enabled", "max_entries", "stacks"]
    assert warnings(caplog) == []


@pytest.mark.parametrize("device", ["xpu", "npu"])
def test_other_devices_with_the_same_functions(record, tmp_path, device, caplog):
    torch = fake_torch.install(device=device)
    with record(tmp_path) as recording:
        assert enabled(torch)["stacks"] == "python" and torch.fake.recording
    assert len(recording.files) == 1
    said = warnings(caplog)
    if device == "npu":
        assert said == [] and len(torch.fake.observers) == 1
    else:  # which has no observer
        assert said == [
            "PyTorch does not notify observers when XPU memory runs out: only the exception will be seen"
        ]


def test_a_device_without_a_history_is_named(record, tmp_path, caplog):
    torch = fake_torch.install(device="xpu")
    del torch.xpu.memory._record_memory_history
    with record(tmp_path / "out"):
        pass
    assert warnings(caplog)[0] == (
        "PyTorch 2.11.0 has no memory history for XPU devices: nothing is recorded there"
    )
    assert not (tmp_path / "out").exists()


def test_a_cpu_build_is_told_once(record, tmp_path, caplog):
    fake_torch.install(device="cpu")
    for _ in range(2):
        with record(tmp_path / "out"):
            pass
    assert warnings(caplog) == [
        "this PyTorch (2.11.0) is built without CUDA, XPU or NPU: there is no memory to record"
    ]


def test_apples_devices_are_named(record, tmp_path, caplog):
    import types

    torch = fake_torch.install(device="cpu")
    torch.backends = types.SimpleNamespace(mps=types.SimpleNamespace(is_available=lambda: True))
    with record(tmp_path):
        pass
    assert "Apple's MPS" in warnings(caplog)[0]


def test_without_torch_the_program_goes_on(record, tmp_path, caplog, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with record(tmp_path):
        done = True
    assert done and warnings(caplog) == ["PyTorch cannot be imported: no memory is recorded"]


# ---- waiting for the device ----


def test_nothing_is_initialised_before_the_program_does(record, tmp_path):
    torch = fake_torch.install(initialized=False)
    with record(tmp_path) as recording:
        assert torch.fake.calls == [] and not recording.is_recording
        torch.fake.use_device()
        assert torch.fake.recording and recording.is_recording
    assert reasons(tmp_path) == ["end"]


def test_a_device_that_is_never_used_leaves_no_trace(record, tmp_path, caplog):
    torch = fake_torch.install(initialized=False)
    with record(tmp_path / "out"):
        assert record.dump() is None
    torch.fake.use_device()  # afterwards: too late to record
    assert torch.fake.calls == [] and not (tmp_path / "out").exists()
    assert "no device memory was used" in caplog.text


# ---- one inside another ----


def test_nested_recordings_share_one_history(torch, record, tmp_path):
    with record(tmp_path / "outer"):
        with record(tmp_path / "inner"):
            pass
        assert torch.fake.recording
        assert reasons(tmp_path / "inner") == ["end"]
        record.dump("later")
    assert reasons(tmp_path / "outer") == ["end", "later"]
    states = [call[1]["enabled"] for call in torch.fake.called("_record_memory_history")]
    assert states == ["all", None]


def test_nested_recordings_may_end_in_any_order(torch, record, tmp_path):
    outer, inner = record(tmp_path / "outer"), record(tmp_path / "inner")
    outer.__enter__()
    inner.__enter__()
    outer.__exit__(None, None, None)
    assert torch.fake.recording
    inner.__exit__(None, None, None)
    assert not torch.fake.recording
    assert reasons(tmp_path / "outer") == reasons(tmp_path / "inner") == ["end"]


def test_other_stacks_inside_are_refused_aloud(torch, record, tmp_path, caplog):
    with record(tmp_path):
        with record(tmp_path, stacks="all"):
            pass
    assert "stacks='all' of the one inside it is ignored" in warnings(caplog)[0]


@pytest.mark.parametrize(
    "option, value", [("max_entries", 7), ("context", None), ("pinned", True)]
)
def test_other_options_of_the_history_too(torch, record, tmp_path, caplog, option, value):
    with record(tmp_path):
        with record(tmp_path, **{option: value}):
            pass
    (said,) = warnings(caplog)
    assert said.endswith(f"{option}={value!r} of the one inside it is ignored")


def test_a_history_the_program_turned_on_is_left_on(torch, record, tmp_path):
    torch.cuda.memory._record_memory_history("all", max_entries=5)
    with record(tmp_path):
        pass
    assert torch.fake.recording
    assert len(torch.fake.called("_record_memory_history")) == 1
    assert reasons(tmp_path) == ["end"]


# ---- options ----


@pytest.mark.parametrize(
    "options",
    [
        {"stacks": "c++"},
        {"context": "everything"},
        {"max_entries": 0},
        {"max_entries": 1.5},
        {"steps": [-1]},
        {"steps": ["3"]},
        {"every": 0},
        {"keep": 0},
        {"log_steps": 0},
        {"log_steps": "each"},
        {"log_json": 1},
        {"gzip": 1},
        {"signal": "SIGNOTHING"},
        {"signal": 4711},
        {"skip_actions": "alloc"},
        {"mesh": "dp0"},
        {"device": "tpu"},
    ],
)
def test_wrong_options_are_said_where_they_are_written(record, options):
    with pytest.raises(ValueError, match=next(iter(options))):
        record("out", **options)


def test_unknown_options_are_said(record):
    with pytest.raises(TypeError, match="no option stack"):
        record("out", stack="all")
    with pytest.raises(TypeError):
        record(3)


# ---- what fails ----

FUNCTIONS = [
    "_record_memory_history",
    "_snapshot",
    "attach",
    "current_device",
    "memory_allocated",
    "memory_reserved",
    "mem_get_info",
    "get_device_name",
    "get_device_properties",
    "get_allocator_backend",
    "max_memory_allocated",
    "record_function",
    "*",
]


@pytest.mark.parametrize("function", FUNCTIONS)
def test_no_failure_of_pytorch_reaches_the_loop(torch, record, tmp_path, function, caplog):
    torch.fake.fail.add(function)
    torch.fake.fail.discard("backward")
    model, loss = torch.nn.Module(), fake_torch.Tensor(1, (1,))
    optimizer = torch.optim.Optimizer(model.parameters())
    with record(tmp_path, steps=[1]) as recording:
        record.watch(model, optimizer)
        for _ in range(3):
            model(loss)
            if function != "*":
                loss.backward()
            optimizer.step()
        with record.phase("evaluation"):
            pass
        recording.dump()
    if function in ("_record_memory_history", "_snapshot", "*"):
        assert names(tmp_path) == []
        assert len(warnings(caplog)) >= 1
        assert len(warnings(caplog)) == len(set(warnings(caplog)))  # each kind once
    else:
        assert reasons(tmp_path) == ["dump", "end", "step"]
    assert names(tmp_path, ".tmp") == []


def test_a_failure_while_turning_off_is_contained(torch, record, tmp_path, caplog):
    with record(tmp_path):
        torch.fake.fail.add("_record_memory_history")
    assert "turning memory history off failed" in warnings(caplog)[0]
    assert reasons(tmp_path) == ["end"]


def test_a_missing_piece_of_pytorch_is_contained(torch, record, tmp_path, caplog):
    del sys.modules["torch.optim.optimizer"].register_optimizer_step_post_hook
    del torch.autograd.backward
    del torch.profiler
    with record(tmp_path):
        pass
    assert reasons(tmp_path) == ["end"]
    assert any("record.step()" in line for line in warnings(caplog))


def test_the_gpu_is_never_waited_for(torch, record, tmp_path):
    optimizer = torch.optim.Optimizer([fake_torch.Tensor(1, (2,))])
    with record(tmp_path, steps=[1]):
        optimizer.step()
        record.dump()
    assert torch.fake.synchronized == 0


@pytest.mark.parametrize(
    "every, minutes",
    [
        ("30s", 0.5),
        ("1min", 1.0),
        ("1.5 m", 1.5),
        ("2h", 120.0),
        ("1 D", 1440.0),
        (".5sec", 0.5 / 60),
        (3, 3),
    ],
)
def test_a_period_has_a_unit(record, every, minutes):
    settings = fake_torch.load("_record.settings")
    assert settings.Settings("out", every=every).every == pytest.approx(minutes)
    read = settings.from_environment({"TESSERA_RECORD": "1", "TESSERA_RECORD_EVERY": str(every)})
    assert read.every == pytest.approx(minutes)


@pytest.mark.parametrize(
    "every",
    ["30", "s", "1 week", "-1s", "0s", "1e9999min", "9" * 400 + "h", "", True, float("nan")],
)
def test_a_wrong_period_is_refused(record, every):
    with pytest.raises(ValueError, match="every"):
        record("out", every=every)


@pytest.mark.parametrize(
    "text, steps", [("1", 1), ("10", 10), ("true", 1), ("0", None), ("off", None), ("many", None)]
)
def test_steps_between_lines_from_the_environment(record, text, steps):
    settings = fake_torch.load("_record.settings")
    read = settings.from_environment({"TESSERA_RECORD": "1", "TESSERA_RECORD_LOG_STEPS": text})
    assert read.log_steps == steps
