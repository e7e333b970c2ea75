"""The ledger of the card: what the recorder samples, against stand-ins whose world is known (tests/card)."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import textwrap
import threading
import time

import fake_torch
import pytest
from conftest import HANG_S
from record_fixtures import (  # noqa: F401
    backend,
    card,
    marks,
    names,
    process,
    record,
    recorder,
    torch,
    warnings,
)

CARD = pathlib.Path(fake_torch.ROOT) / "tests" / "card"
sys.path.insert(0, str(CARD))
import jobs  # noqa: E402
import ledger as reader  # noqa: E402
import world as worlds  # noqa: E402
from world import GIB, MIB, World  # noqa: E402

host = fake_torch.load("_record.host")
nvml = fake_torch.load("_record.nvml")
groups = fake_torch.load("_record.groups")


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    built = worlds.build(tmp_path_factory.mktemp("nvml"))
    if built is None:
        pytest.skip("no C compiler for the stand-in of NVML")
    return built


@pytest.fixture
def world(tmp_path, library):
    with World(tmp_path / "world", library) as made:
        yield made


def ledger_of(path):
    return reader.read(str(path).replace(".pickle", ".json"))


def only_device(path):
    (device,) = ledger_of(path)["devices"]
    return device


def texts(device):
    """The marks of the samples, in order; None is the timer."""
    return [None if at is None else device["marks"][at] for at in device["samples"]["mark"]]


def train(world, recording, steps=1, seconds=0.5):
    """Steps of a watched model; returns what it trains with."""
    model, optimizer = fake_torch.Module(), world.torch.optim.Optimizer([fake_torch.Tensor(1, (2,))])
    recording.watch(model, optimizer)
    for _ in range(steps):
        model(1)
        world.torch.autograd.backward(None)
        optimizer.step()
        world.now_us += int(1e6 * seconds)
    return model, optimizer


# ---- jobs whose ledger is known ----


def test_the_ledger_of_jobs_is_what_their_worlds_had(tmp_path, library):
    count = 200 if os.environ.get("TESSERA_WHOLE") else 8
    _, truth = jobs.jobs(7, count, tmp_path, library)
    for job in truth:
        assert reader.problems(job) == [], {name: job[name] for name in ("seed", "kind", "cause", "told")}


# ---- marks and the timer ----


def test_marks_and_the_timer(world, record, tmp_path):
    with record(tmp_path / "out") as recording:
        world.use_device()
        world.advance(0.05)
        with record.phase("rollout"):
            world.advance(0.5)
        train(world, recording)
    device = only_device(recording.files[0])
    assert texts(device) == [
        None, "rollout", None, "end of rollout", "forward", "end of forward", "backward", "end of backward", "step 1", "snapshot",
    ]
    told = ledger_of(recording.files[0])
    assert told["samples_taken"] == told["samples_kept"] == 10 and told["period_ms"] == 500
    assert told["nvml"] == "12.570.86" and told["nvml_error"] is None and told["marks_skipped"] == 0


def test_an_out_of_memory_is_sampled_before_its_snapshot(world, record, tmp_path):
    with pytest.raises(RuntimeError):
        with record(tmp_path / "out") as recording:
            world.use_device()
            world.alloc(40 * MIB)
            world.torch.fake.snapshot_hook = None
            world.run_out_of_memory(2 * GIB)
    (path,) = recording.files
    device = only_device(path)
    assert texts(device)[-1] == "out of memory"
    assert device["samples"]["total_used_bytes"][-1] == world.used()


def test_the_private_pools_of_a_snapshot_are_in_its_sample(world, record, tmp_path):
    with record(tmp_path / "out") as recording:
        world.use_device()
        world.alloc(40 * MIB)
        world.alloc(64 * MIB, pool=(0, 3))
        world.advance(0.5)
    assert only_device(recording.files[0])["samples"]["private_pool_bytes"] == [None, 64 * MIB]


def test_the_time_of_a_step_is_its_median(world, record, tmp_path):
    with record(tmp_path / "out") as recording:
        world.use_device()
        train(world, recording, 4, seconds=0.41)
    assert 400_000 < ledger_of(recording.files[0])["step_us"] < 420_000


def test_every_snapshot_has_what_was_sampled_so_far(world, record, tmp_path):
    with record(tmp_path / "out") as recording:
        world.use_device()
        first = record.dump("a")
        world.advance(0.5)
    assert [len(only_device(path)["samples"]["time_us"]) for path in (first, recording.files[1])] == [1, 3]


def test_a_nested_recording_has_the_ledger_of_the_process(world, record, tmp_path):
    with record(tmp_path / "outer") as outer:
        world.use_device()
        world.advance(0.05)
        with record(tmp_path / "inner") as inner:
            pass
        assert card.ledger.users == 1
        world.advance(0.5)
    assert card.ledger.users == 0
    assert texts(only_device(inner.files[0])) == [None, "snapshot"]
    assert texts(only_device(outer.files[0])) == [None, "snapshot", None, "snapshot"]


# ---- how many are kept ----


def fill(world, count, of):
    for number in range(count):
        of(number)


def test_samples_of_the_timer_are_thinned(world, record, tmp_path, monkeypatch):
    monkeypatch.setattr(card, "MOST", 64)
    with record(tmp_path / "out") as recording:
        world.use_device()
        highest = 0
        for number in range(500):
            world.others[7] = ["python", (number * 7919 % 1000) * MIB]
            highest = max(highest, world.used())
            world.write()
            world.advance(card.ledger.period)
        period = card.ledger.period
    told, device = ledger_of(recording.files[0]), only_device(recording.files[0])
    used = device["samples"]["total_used_bytes"]
    assert 32 <= len(used) <= 64 and told["samples_kept"] == len(used) and told["samples_taken"] == 501
    assert max(used) == highest  # the maximum is never dropped
    assert period == 0.5 * 2 ** (round(period / 0.5).bit_length() - 1) > 0.5
    assert device["samples"]["time_us"] == sorted(set(device["samples"]["time_us"]))
    assert texts(device)[-1] == "snapshot"


def test_the_highest_reserved_memory_is_kept(world, record, tmp_path, monkeypatch):
    monkeypatch.setattr(card, "MOST", 32)
    with record(tmp_path / "out") as recording:
        world.use_device()
        world.rest_elsewhere = 4 * GIB
        world.write()
        world.advance(0.5)  # the most used
        world.rest_elsewhere = 0
        world.alloc(1 * GIB)
        world.advance(0.5)  # the most reserved
        world.blocks.clear()
        world.write()
        fill(world, 200, lambda number: world.advance(card.ledger.period))
    assert max(only_device(recording.files[0])["samples"]["reserved_bytes"]) == GIB


def test_where_all_samples_have_marks_whole_steps_are_dropped(world, record, tmp_path, monkeypatch):
    monkeypatch.setattr(card, "MOST", 64)
    monkeypatch.setattr(world, "library", None)  # no timer
    with record(tmp_path / "out") as recording:
        world.use_device()
        train(world, recording, 60)
        record.dump("middle")
        train(world, recording, 60)
    device = only_device(recording.files[-1])
    found = texts(device)
    assert len(found) <= 64 and found.count("snapshot") == 2
    steps = [text for text in found if text.startswith("step ")]
    # Nearly all of the steps that are there have all of their marks.
    assert found.count("forward") == found.count("end of backward") and abs(found.count("forward") - len(steps)) <= 1
    assert len(device["marks"]) == len(set(found))  # texts of dropped samples are not in the file


def test_marks_that_are_always_sampled_are_thinned_at_last(world, record, tmp_path, monkeypatch):
    monkeypatch.setattr(card, "MOST", 32)
    with record(tmp_path / "out"):
        world.use_device()
        fill(world, 200, lambda number: card.ledger.mark(f"first {number}", card.LASTING))
        assert len(card.ledger.devices[0].rows) <= 32
        assert card.ledger.devices[0].rows[-1].mark == "first 199"


def test_samples_of_the_host_are_thinned(world, record, tmp_path, monkeypatch):
    monkeypatch.setattr(card, "MOST", 32)
    with record(tmp_path / "out") as recording:
        world.use_device()
        fill(world, 200, lambda number: world.advance(card.ledger.period))
    told = ledger_of(recording.files[0])["host"]["samples"]
    assert 16 <= len(told["time_us"]) <= 32
    assert {len(column) for column in told.values()} == {len(told["time_us"])}
    if sys.platform == "linux":
        assert all(isinstance(size, int) and size > 0 for size in told["rss_bytes"])


# ---- what it costs ----


@pytest.mark.parametrize("cost, seconds", [(0.0001, 0.4), (0.001, 0.1), (0.02, 0.4)])
def test_marks_take_at_most_their_share_of_the_time(world, record, tmp_path, cost, seconds):
    with record(tmp_path / "out") as recording:
        world.use_device()
        world.cost = cost
        train(world, recording, 2000, seconds)
        elapsed = world.elapsed()
    told, device = ledger_of(recording.files[0]), only_device(recording.files[0])
    # The last sample, that of the snapshot, is always taken.
    assert told["sampling_us"] <= 1e6 * (card.SHARE * elapsed + card.ALLOWANCE + cost)
    found = texts(device)
    assert told["marks_skipped"] > 0 and told["samples_taken"] + told["marks_skipped"] == 2000 * 5 + 1
    # Whole steps were sampled, after the first ones.
    for number, text in enumerate(found):
        if text == "forward" and number > 10:
            assert found[number : number + 4] == ["forward", "end of forward", "backward", "end of backward"]
            assert found[number + 4].startswith("step ")
    assert sum(text.startswith("step ") for text in found) > 2


def test_the_limit_holds_if_samples_take_longer_and_longer(world, record, tmp_path):
    with record(tmp_path / "out"):
        world.use_device()
        for _ in range(500):
            world.cost += 0.0001
            train(world, record, 1, 0.2)
            spent = card.ledger._for_marks.spent
            allowed = (1 - card.TIMERS) * (card.SHARE * world.elapsed() + card.ALLOWANCE)
            assert spent <= allowed + world.cost  # one sample, that took longer than the one before
        assert card.ledger.taken > 20
        world.cost = 0.0


def test_the_timer_waits_longer_after_samples_that_take_long(world, record, tmp_path):
    with record(tmp_path / "out") as recording:
        world.use_device()
        world.cost = 0.003
        for _ in range(200):
            world.now_us += int(1e6 * card.ledger._pause())
            card.ledger.tick()
        spent, elapsed = card.ledger._for_timer.spent, world.elapsed()
        assert spent <= card.TIMERS * (card.SHARE * elapsed + card.ALLOWANCE) + 0.003
        world.cost = 0.0
    assert ledger_of(recording.files[0])["period_ms"] >= 1000 * 0.003 / (card.SHARE * card.TIMERS) * 0.9


def test_what_a_sample_asks(world, record, tmp_path):
    """Counted, not timed: two calls of NVML for a mark, and PyTorch's counters once."""
    calls = world.folder / "calls"
    with record(tmp_path / "out") as recording:
        world.use_device()
        world.alloc(40 * MIB)
        model, optimizer = train(world, recording, 3)
        asked = []
        stats = world.torch.cuda.memory_stats_as_nested_dict
        world.torch.cuda.memory_stats_as_nested_dict = lambda index: asked.append(index) or stats(index)
        world.torch.cuda.mem_get_info = lambda *index: asked.append("mem_get_info")
        world.lines.append(f"log {calls}")
        world.write()
        optimizer.step()
        world.lines.pop()
        world.write()
        assert asked == [0]
        assert calls.read_text().split() == ["nvmlDeviceGetMemoryInfo_v2", "nvmlDeviceGetComputeRunningProcesses_v3"]
        asked.clear()
    assert world.torch.fake.synchronized == 0 and asked.count("mem_get_info") == 1  # for the sidecar's `devices`


def test_without_the_option_nothing_is_done(world, record, tmp_path, monkeypatch):
    calls = world.folder / "calls"
    world.lines.append(f"log {calls}")
    world.write()
    before = dict(vars(world.kind))
    for options in ({"card": False}, {"sidecar": False}):
        with record(tmp_path / "out", **options) as recording:
            world.use_device()
            assert dict(vars(world.kind)) == before and card.ledger.users == 0
            train(world, recording)
    told = json.loads((tmp_path / "out" / names(tmp_path / "out", ".json")[0]).read_text())
    assert told["card"] is None and not calls.exists()
    settings = fake_torch.load("_record.settings")
    assert settings.from_environment({"TESSERA_RECORD": "1", "TESSERA_RECORD_CARD": "0"}).card is False
    assert settings.from_environment({"TESSERA_RECORD": "1"}).card is True


def test_nothing_is_done_while_nothing_is_recorded(world, record, tmp_path):
    calls = world.folder / "calls"
    world.lines.append(f"log {calls}")
    world.write()
    with record(tmp_path / "out"):
        pass
    world.use_device()
    with record.phase("x"):
        world.advance(1)
    card.ledger.step(3)
    record.asleep(5)
    assert card.ledger.document() is None and not calls.exists()


# ---- CUDA is left alone ----


def test_a_device_without_a_context_is_not_asked(world, record, tmp_path):
    world.size_of_context = 0
    with record(tmp_path / "out") as recording:
        world.use_device()
        world.context = 0
        asked = []
        world.torch.cuda.mem_get_info = lambda *index: asked.append(index)
        world.torch.cuda.memory_stats_as_nested_dict = lambda index: asked.append(index)
        world.advance(0.5)
        train(world, recording)
        assert asked == []


def test_without_nvml_cuda_is_asked_at_marks_and_not_by_a_thread(tmp_path, record, process):
    with World(tmp_path / "world", None) as world:
        with record(tmp_path / "out") as recording:
            world.use_device()
            world.alloc(40 * MIB)
            assert not [one for one in threading.enumerate() if one.name == "tessera-card"]
            train(world, recording)
        told, device = ledger_of(recording.files[0]), only_device(recording.files[0])
        assert told["nvml"] is None and "cannot be loaded" in told["nvml_error"] and told["period_ms"] is None
        assert device["samples"]["total_used_bytes"][-1] == world.used() - world.driver
        assert device["total_bytes"] == world.total - world.driver and device["driver_bytes"] is None
        assert device["context_bytes"] is None and "context_bytes is not known" in device["notes"][0]
        assert device["samples"]["process_bytes"] == [None] * len(texts(device)) and device["processes"] == []


def test_a_graph_that_is_captured_is_not_disturbed(tmp_path, record, process):
    with World(tmp_path / "world", None) as world:
        with record(tmp_path / "out") as recording:
            world.use_device()
            world.alloc(40 * MIB)
            world.torch.cuda.is_current_stream_capturing = lambda: True
            train(world, recording)
            world.torch.cuda.is_current_stream_capturing = lambda: False
        used = only_device(recording.files[0])["samples"]["total_used_bytes"]
        assert used[:-1] == [None] * (len(used) - 1) and used[-1] is not None


def test_a_context_that_is_sampled_while_it_is_created(world, record, tmp_path):
    with record(tmp_path / "out") as recording:
        world.use_device()
        world.context = 40 * MIB
        world.write()
        world.advance(0.05)
        world.context = 450 * MIB
        world.write()
        world.advance(0.5)
        world.alloc(40 * MIB)
        world.advance(0.5)
        world.rest = 100 * MIB  # what comes later is no context
        world.write()
        world.advance(0.5)
    device = only_device(recording.files[0])
    assert (device["context_bytes"], device["context_from"]) == (450 * MIB, "nvml")
    assert len(texts(device)) == 4  # without the sample at which it was smaller
    assert [reader.parts(device, at)["unaccounted"] for at in range(4)] == [0, 0, 100 * MIB, 100 * MIB]


# ---- NVML of many kinds ----


@pytest.mark.parametrize("lines", [["processes v1"], ["processes v2"], ["processes v3"], ["processes v3wide"]])
def test_versions_of_the_lists_of_processes(tmp_path, library, record, process, lines):
    with World(tmp_path / "world", library, lines=lines) as world:
        world.others = {number: ["/usr/bin/python3", number * MIB] for number in (11, 12, 13)}
        with record(tmp_path / "out") as recording:
            world.use_device()
            world.alloc(40 * MIB)
        device = only_device(recording.files[0])
        assert device["processes"] == [{"pid": number, "name": "python3"} for number in (11, 12, 13)]
        assert device["samples"]["other_process_bytes"] == [[11 * MIB], [12 * MIB], [13 * MIB]]
        assert device["samples"]["process_bytes"] == [world.process_bytes()]


def test_more_processes_than_there_is_room_for(world, record, tmp_path):
    world.others = {number: ["/usr/bin/python3", MIB] for number in range(1, 301)}
    world.others[300][1] = GIB
    with record(tmp_path / "out") as recording:
        world.use_device()
    device = only_device(recording.files[0])
    assert len(device["processes"]) == 64 and device["processes"][-1] == {"pid": None, "name": "other processes"}
    assert sum(column[-1] for column in device["samples"]["other_process_bytes"]) == 299 * MIB + GIB
    assert {"pid": 300, "name": "python3"} in device["processes"]


def test_a_process_that_draws_and_one_of_mps(world, record, tmp_path):
    world.write()
    with record(tmp_path / "out") as recording:
        world.use_device()
        world.advance(0.05)
        with open(world.path, "a") as file:
            file.write(f"card.graphics 21 {5 * MIB}\ncard.mps 22 {6 * MIB}\ncard.process 23 -\ncard.graphics 23 {7 * MIB}\n")
        card.ledger.mark("look", card.LASTING)
    device = only_device(recording.files[0])
    told = {one["pid"]: column for one, column in zip(device["processes"], device["samples"]["other_process_bytes"])}
    assert {pid: column[1] for pid, column in told.items()} == {21: 5 * MIB, 22: 6 * MIB, 23: 7 * MIB}


def test_a_size_that_is_not_available_is_not_known(world, record, tmp_path):
    with record(tmp_path / "out") as recording:
        world.use_device()
        with open(world.path, "a") as file:
            file.write("card.process 4194309 -\n")
        card.ledger.mark("look", card.LASTING)
    device = only_device(recording.files[0])
    assert device["processes"] == [{"pid": 4194309, "name": None}]
    assert device["samples"]["other_process_bytes"] == [[None, None]]


def test_nvml_before_r510_does_not_tell_the_drivers_memory_apart(tmp_path, library, record, process):
    with World(tmp_path / "world", library, lines=["memory v1"]) as world:
        with record(tmp_path / "out") as recording:
            world.use_device()
        device = only_device(recording.files[0])
        assert device["driver_bytes"] is None and device["samples"]["total_used_bytes"] == [world.used()]


@pytest.mark.parametrize("line, wanted", [("init 9", "Driver Not Loaded (9)"), ("init 999", "Unknown Error (999)")])
def test_nvml_that_fails_to_start(tmp_path, library, record, process, line, wanted):
    with World(tmp_path / "world", library, lines=[line]) as world:
        with record(tmp_path / "out") as recording:
            world.use_device()
            world.alloc(40 * MIB)
        told = ledger_of(recording.files[0])
        assert told["nvml"] is None and told["nvml_error"] == f"nvmlInit_v2: {wanted}"
        assert only_device(recording.files[0])["samples"]["total_used_bytes"] == [world.used() - world.driver]


def test_a_file_that_is_no_library(tmp_path, record, process):
    other = tmp_path / "other.so"
    other.write_text("not a library")
    with World(tmp_path / "world", other) as world:
        with record(tmp_path / "out") as recording:
            world.use_device()
            world.alloc(40 * MIB)
            world.advance(0.5)
        assert "cannot be loaded" in ledger_of(recording.files[0])["nvml_error"]


def test_processes_that_may_not_be_seen(world, record, tmp_path):
    with record(tmp_path / "out") as recording:
        world.use_device()
        with open(world.path, "a") as file:
            file.write("card.processes 4\n")
        card.ledger.mark("look", card.LASTING)
    device = only_device(recording.files[0])
    assert device["samples"]["process_bytes"][0] is None and device["samples"]["total_used_bytes"][0] is not None
    assert device["notes"][0].startswith("processes are not known: nvmlDeviceGetComputeRunningProcesses")
    assert device["context_from"] == "first_use" and device["context_bytes"] == world.size_of_context


def test_memory_that_nvml_does_not_tell(tmp_path, library, record, process):
    """Cards that share the host's memory: CUDA is asked instead."""
    with World(tmp_path / "world", library) as world:
        with open(world.path, "a") as file:
            file.write("card.memory 3\n")
        with record(tmp_path / "out") as recording:
            world.use_device()
            with open(world.path, "a") as file:
                file.write("card.memory 3\n")
            world.alloc(40 * MIB)
        device = only_device(recording.files[0])
        assert device["samples"]["total_used_bytes"] == [world.used() - world.driver]
        assert device["notes"][0] == "NVML is not asked: nvmlDeviceGetMemoryInfo: Not Supported (3)"


# ---- containers ----


def test_in_a_container_where_nvml_reports_no_processes(tmp_path, library, record, process):
    with World(tmp_path / "world", library, has_processes=False) as world:
        world.others[77] = ["/usr/bin/python3", 3 * GIB]
        world.write()
        with record(tmp_path / "out") as recording:
            world.use_device()
            world.alloc(40 * MIB)
        device = only_device(recording.files[0])
        assert device["processes"] == [] and device["samples"]["process_bytes"] == [None]
        assert device["context_from"] == "first_use" and device["context_bytes"] == world.size_of_context
        assert "processes are not known: in this container NVML lists no processes" in device["notes"]


def test_in_a_container_where_nvml_has_the_hosts_numbers(world, record, tmp_path, monkeypatch):
    """Number 77 there is this process, perhaps; and what has this process's number is another one."""
    monkeypatch.setattr(nvml, "has_own_processes", lambda: True)
    with record(tmp_path / "out") as recording:
        world.use_device()
        world.alloc(4 * GIB)
        world.pid = 77
        world.others[os.getpid()] = ["/usr/bin/python3", 3 * GIB]
        world.write()
        world.advance(0.5)
    device = only_device(recording.files[0])
    assert device["processes"] == [] and device["samples"]["process_bytes"] == [None, None]
    assert "in this container NVML lists processes by the host's numbers" in device["notes"][0]


def test_in_a_container_whose_numbers_nvml_knows(world, record, tmp_path, monkeypatch):
    monkeypatch.setattr(nvml, "has_own_processes", lambda: True)
    world.others[77] = ["/usr/bin/python3", 3 * GIB]
    with record(tmp_path / "out") as recording:
        world.use_device()
        world.alloc(4 * GIB)
        world.advance(0.5)
    device = only_device(recording.files[0])
    assert device["samples"]["process_bytes"][-1] == world.process_bytes()
    assert [one["pid"] for one in device["processes"]] == [77]


# ---- which card ----


A, B = "GPU-aaaaaaaa-0000-4000-8000-000000000000", "GPU-bbbbbbbb-0000-4000-8000-000000000000"
MIG = "MIG-cccccccc-0000-4000-8000-000000000000"


@pytest.fixture
def cards(tmp_path, library, monkeypatch):
    """Two cards, the second with two MIG instances, and a function that finds one of them."""

    def find(index, uuid=None, names_=("H100", "H100"), instances=2, **environment):
        lines = [f"card {A} 1000 10 900 {names_[0]}", f"card {B} 1000 10 900 {names_[1]}"]
        if instances:
            lines.append("card.mig 1")
        for number in range(instances):
            lines += [f"card {MIG[:-1]}{number} 500 0 400 H100 MIG 3g", "card.parent 1"]
        (tmp_path / "cards.txt").write_text("\n".join(lines) + "\n")
        monkeypatch.setenv("TESSERA_NVML", str(library))
        monkeypatch.setenv("TESSERA_NVML_WORLD", str(tmp_path / "cards.txt"))
        loaded = nvml.Nvml()
        try:
            return loaded.uuid(nvml.find_card(loaded, index, uuid, environment))
        except nvml.Unusable as error:
            return str(error)

    return find


def test_a_card_by_what_pytorch_calls_it(cards):
    assert cards(0, A[4:]) == A
    assert cards(1, A[4:]) == A  # whatever the order is
    assert cards(0, B[4:], instances=0) == B


def test_a_card_by_the_numbers_in_the_environment(cards):
    assert cards(0, instances=0, CUDA_VISIBLE_DEVICES="1,0") == B
    assert cards(1, instances=0, CUDA_VISIBLE_DEVICES="1,0") == A
    assert cards(0, instances=0) == A
    assert "NVML has 2 cards" in cards(0, CUDA_VISIBLE_DEVICES="7")


def test_a_card_by_an_identifier_in_the_environment(cards):
    assert cards(0, instances=0, CUDA_VISIBLE_DEVICES=B) == B
    assert cards(1, instances=0, CUDA_VISIBLE_DEVICES=f"{B},GPU-aaaa") == A  # CUDA takes the beginning, too
    assert cards(0, CUDA_VISIBLE_DEVICES="GPU-dead") == "NVML has no GPU-dead"


def test_numbers_of_different_cards_are_not_trusted_without_an_order(cards):
    assert "CUDA_DEVICE_ORDER=PCI_BUS_ID" in cards(0, names_=("A100", "H100"))
    assert cards(0, names_=("A100", "H100"), CUDA_DEVICE_ORDER="PCI_BUS_ID") == A


def test_an_instance_of_a_partitioned_card(cards):
    first = MIG[:-1] + "0"
    assert cards(0, CUDA_VISIBLE_DEVICES=first) == first
    assert cards(0, CUDA_VISIBLE_DEVICES=MIG[:-1] + "1") == MIG[:-1] + "1"
    assert cards(0, first[4:]) == first  # as PyTorch tells it
    assert cards(0, B[4:], instances=1) == first  # the only one
    assert "which instance this is, is not known" in cards(0, B[4:])
    assert cards(0, CUDA_VISIBLE_DEVICES="MIG-dead") == "NVML has no MIG-dead"


def test_a_card_of_another_size_is_not_taken(world, record, tmp_path):
    world.torch.cuda.get_device_properties = lambda *index: type("P", (), {"total_memory": 20 * GIB})
    with record(tmp_path / "out") as recording:
        world.use_device()
        world.alloc(40 * MIB)
    device = only_device(recording.files[0])
    assert device["notes"][0] == "NVML is not asked: its card of this number has another size" and device["uuid"] is None


# ---- communicators ----


def test_the_class_of_process_groups_is_as_before(world, record, tmp_path):
    before = dict(vars(world.kind))
    with record(tmp_path / "out"):
        world.use_device()
        assert vars(world.kind)["allreduce"] is not before["allreduce"]
        assert world.kind.allreduce.__name__ == "allreduce"
    assert dict(vars(world.kind)) == before


def test_somebody_who_wraps_our_wrapper_keeps_theirs(world, record, tmp_path):
    with record(tmp_path / "out"):
        world.use_device()
        ours = world.kind.allreduce
        theirs = world.kind.allreduce = lambda group, *arguments: ours(group, *arguments)
    assert world.kind.allreduce is theirs
    group = world.group("dp", 8, 100 * MIB)
    group.allreduce([0])
    assert group.number == 1


def test_what_a_collective_raises_reaches_the_program(world, record, tmp_path):
    def fails(group, *arguments):
        raise ValueError("wrong shape")

    world.kind.broadcast = fails
    with record(tmp_path / "out"):
        world.use_device()
        for _ in range(2):
            with pytest.raises(ValueError, match="wrong shape"):
                world.group("dp", 8, MIB).broadcast([0])
        assert groups.groups._window.acquire(blocking=False)
        groups.groups._window.release()


def test_a_communicator_grows_with_the_first_of_each_collective(world, record, tmp_path):
    with record(tmp_path / "out") as recording:
        world.use_device()
        world.advance(0.05)
        group = world.group("ep", 8, 300 * MIB, {"alltoall_base": 2 * GIB})
        for method in ("allreduce", "allreduce", "alltoall_base", "alltoall_base"):
            getattr(group, method)([0])
    device = only_device(recording.files[0])
    assert device["communicators"] == [
        {"name": "ep (0)", "backend": "nccl", "ranks": 8, "from": "first_collective", "suspended": None}
    ]
    assert texts(device)[1:3] == ["first all_reduce of ep (0)", "first all_to_all of ep (0)"]
    assert device["samples"]["communicator_bytes"] == [[0, 300 * MIB, 2 * GIB + 300 * MIB, 2 * GIB + 300 * MIB]]


def test_communicators_that_tell_their_memory(world, record, tmp_path):
    with record(tmp_path / "out") as recording:
        world.use_device()
        world.advance(0.05)
        group = world.group("tp", 4, 400 * MIB, stats=1.0)
        group.allreduce([0])
        group.is_suspended = True
        world.write()
        card.ledger.mark("look", card.LASTING)
    device = only_device(recording.files[0])
    assert device["communicators"] == [{"name": "tp (0)", "backend": "nccl", "ranks": 4, "from": "stats", "suspended": True}]
    assert device["samples"]["communicator_bytes"] == [[0, 400 * MIB, 100 * MIB, 100 * MIB]]


def test_statistics_that_nccl_does_not_have(world, record, tmp_path):
    def refuses():
        refuses.calls += 1
        raise RuntimeError("requires NCCL 2.29.7")

    refuses.calls = 0
    with record(tmp_path / "out") as recording:
        world.use_device()
        world.advance(0.05)
        group = world.group("tp", 4, 400 * MIB)
        group.backend.memory_stats = refuses
        group.allreduce([0])
        train(world, recording, 3)
    device = only_device(recording.files[0])
    assert device["communicators"][0]["from"] == "first_collective" and refuses.calls == 1
    assert device["samples"]["communicator_bytes"][0][-1] == 400 * MIB


def test_a_group_that_cplusplus_uses_first(world, record, tmp_path):
    with record(tmp_path / "out") as recording:
        world.use_device()
        world.advance(0.05)
        world.group("dp", 8, 300 * MIB).run("allreduce")
        world.advance(0.5)
    device = only_device(recording.files[0])
    assert device["samples"]["communicator_bytes"] == [[0, 300 * MIB, 300 * MIB]]


def test_groups_that_cannot_be_told_apart_are_one_entry(world, record, tmp_path):
    with record(tmp_path / "out") as recording:
        world.use_device()
        world.advance(0.05)
        world.group("dp", 8, 300 * MIB).run("allreduce")
        world.group("tp", 4, 200 * MIB).run("allreduce")
        world.advance(0.5)
    device = only_device(recording.files[0])
    assert [(one["name"], one["ranks"]) for one in device["communicators"]] == [("dp (0), tp (1)", None)]
    assert device["samples"]["communicator_bytes"] == [[0, 500 * MIB, 500 * MIB]]


def test_a_group_from_before_the_first_sample_is_said_not_guessed(world, record, tmp_path):
    with record(tmp_path / "out") as recording:
        world.use_device()
        world.group("dp", 8, 300 * MIB).run("allreduce")
        world.advance(0.05)
    told = ledger_of(recording.files[0])
    assert told["notes"] == ["the memory of dp (0) is not known: it was in use before the first sample"]
    assert only_device(recording.files[0])["communicators"] == []


def test_the_memory_of_a_group_goes_with_it(world, record, tmp_path):
    with record(tmp_path / "out") as recording:
        world.use_device()
        world.advance(0.05)
        for name in ("kept", "destroyed", "collected"):
            world.group(name, 8, 300 * MIB).allreduce([0])
        del world.table[world.groups.pop("destroyed")]
        world.torch.keeps_alive = None
        gone = world.groups.pop("collected")
        del world.table[gone], gone
        world.write()
        world.advance(0.5)
    device = only_device(recording.files[0])
    assert [column[-1] for column in device["samples"]["communicator_bytes"]] == [300 * MIB, 0, 0]


def test_groups_of_the_processor_are_not_the_cards(world, record, tmp_path):
    with record(tmp_path / "out") as recording:
        world.use_device()
        world.group("cpu", 8, 0, backend="gloo").allreduce([0])
    device = only_device(recording.files[0])
    assert device["communicators"] == [] and texts(device) == ["snapshot"]


# ---- sleeping pools ----


def test_a_pool_that_sleeps(world, record, tmp_path):
    pool = (0, 5)
    with record(tmp_path / "out") as recording:
        world.use_device()
        world.advance(0.05)
        world.alloc(4 * GIB, pool=pool)
        world.advance(0.5)
        world.sleep(pool)
        world.advance(0.5)
        world.wake(pool)
        world.advance(0.5)
    device = only_device(recording.files[0])
    assert device["samples"]["unmapped_bytes"] == [None, None, 4 * GIB, None, None] and device["unmapped_from"] == "nvml"


def test_a_pool_of_which_the_program_tells(world, record, tmp_path):
    with record(tmp_path / "out") as recording:
        world.use_device()
        world.alloc(4 * GIB, pool=(0, 5))
        recording.asleep(3 * GIB)
        world.advance(0.5)
        record.asleep(0, 0)
        record.asleep("wrong")  # logged, not raised
    device = only_device(recording.files[0])
    assert device["samples"]["unmapped_bytes"] == [3 * GIB, 0] and device["unmapped_from"] == "program"


# ---- other devices, and pinned memory ----


def test_a_device_that_nvml_does_not_know(record, tmp_path):
    torch = fake_torch.install(device="xpu")
    with record(tmp_path / "out") as recording:
        train(type("W", (), {"torch": torch, "now_us": 0}), recording)
    told, device = ledger_of(recording.files[0]), only_device(recording.files[0])
    assert (told["nvml"], told["nvml_error"], told["period_ms"]) == (None, "NVML is for NVIDIA's cards", None)
    assert texts(device)[-1] == "snapshot" and device["total_bytes"] == 85899345920
    assert set(device["samples"]["total_used_bytes"]) == {85899345920 - 75161927680}


@pytest.mark.parametrize("counters, wanted", [
    ({"reserved_bytes": {"current": 7}, "allocated_bytes": {"current": 5}}, 7),
    ({"allocated_bytes": {"all": {"current": 5}}}, 5),
    ({"reserved_bytes": 3}, None),
    ({}, None),
])
def test_pinned_memory(world, record, tmp_path, counters, wanted):
    world.torch.cuda.memory.host_memory_stats_as_nested_dict = lambda: counters
    with record(tmp_path / "out") as recording:
        world.use_device()
    told = ledger_of(recording.files[0])["host"]
    assert (told["pinned_bytes"], told["samples"]["pinned_bytes"]) == (wanted, [wanted])


# ---- libraries ----


def test_the_first_use_of_a_library(world, record, tmp_path):
    with record(tmp_path / "out") as recording:
        world.use_device()
        world.alloc(40 * MIB)
        world.advance(0.05)
        world.load_library("cudnn", 200 * MIB)
        world.advance(0.5)
        world.load_library("cufft", 10 * MIB)
        world.load_library("curand", 10 * MIB)  # which of the two it was is not known
        world.advance(0.5)
    device = only_device(recording.files[0])
    (library,) = device["libraries"]
    assert (library["name"], library["bytes"]) == ("cudnn", 200 * MIB)
    assert library["since_us"] == device["samples"]["time_us"][1]


# ---- failures ----


def test_nothing_reaches_the_program(world, record, tmp_path):
    world.torch.fake.failure = OSError
    with record(tmp_path / "out") as recording:
        world.use_device()
        for name in ("memory_stats_as_nested_dict", "memory_allocated", "memory_reserved", "mem_get_info", "device_count",
                     "get_device_properties", "current_device"):
            setattr(world.torch.cuda, name, lambda *arguments: 1 / 0)
        world.path.write_text("card\ncard.process x y\nprocesses\n\0\n")
        world.group("dp", 8, 0).allreduce([0])
        train(world, recording, 2)
        world.advance(0.5)
        os.remove(world.path)
        world.advance(0.5)
    assert ledger_of(recording.files[0])["devices"] == []


@pytest.mark.parametrize("answer", [{}, {"allocated_bytes": 3}, {"allocated_bytes": {"all": {}}}, None, 5])
def test_counters_of_another_form(world, record, tmp_path, answer):
    with record(tmp_path / "out") as recording:
        world.use_device()
        world.torch.cuda.memory_stats_as_nested_dict = lambda index: answer
        world.alloc(40 * MIB)
    assert only_device(recording.files[0])["samples"]["reserved_bytes"] == [40 * MIB]


def test_threads_that_mark_while_the_timer_ticks(world, record, tmp_path):
    with record(tmp_path / "out") as recording:
        world.use_device()
        world.write()

        def work():
            for _ in range(50):
                with record.phase("p"):
                    card.ledger.mark("m", card.LASTING)

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            world.advance(0.3)
        for thread in threads:
            thread.join()
    device = only_device(recording.files[0])
    times = device["samples"]["time_us"]
    assert times == sorted(set(times)) and texts(device).count("m") == 200


def test_a_handler_that_asks_for_a_snapshot_within_a_sample(world, record, tmp_path):
    """As a signal's would: the lock is held by this very thread."""
    with record(tmp_path / "out") as recording:
        world.use_device()
        world.alloc(40 * MIB)
        stats, inside = world.torch.cuda.memory_stats_as_nested_dict, []

        def interrupts(index):
            if not inside:
                inside.append(True)
                record.dump("handler")
            return stats(index)

        world.torch.cuda.memory_stats_as_nested_dict = interrupts
        began = time.monotonic()
        card.ledger.mark("outer", card.LASTING)
        assert inside and time.monotonic() - began < HANG_S
    assert texts(only_device(recording.files[-1])) == ["outer", "snapshot"]


# ---- the file ----


def test_the_series_are_one_line_of_the_sidecar(world, record, tmp_path):
    with record(tmp_path / "out") as recording:
        world.use_device()
        world.alloc(40 * MIB)
    path = pathlib.Path(recording.files[0].replace(".pickle", ".json"))
    lines = path.read_text(encoding="utf-8").splitlines()
    assert [line[:8] for line in lines if '"card"' in line] == [' "card":'] and lines[-1] == "}"
    told = json.loads(path.read_text(encoding="utf-8"))
    assert list(told)[-1] == "card" and told["schema"] == "tessera/capture/1" and told["snapshot_bytes"] > 0


# ---- the host ----


def made(root, group, **texts_):
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/cgroup").write_text(group)
    (root / "proc/self/statm").write_text("1000 250 10 1 0 100 0\n")
    for name, text in texts_.items():
        path = root / "sys/fs/cgroup" / name.replace("__", "/").replace("_dot_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return host.look(str(root))


def test_a_control_group_of_version_2(tmp_path):
    found = made(tmp_path, "0::/job/step\n", **{
        "job__step__memory_dot_current": "700\n", "job__step__memory_dot_max": "max\n", "job__memory_dot_max": "4096\n"})
    assert (found.cgroup_bytes(), found.limit_bytes, found.rss_bytes()) == (700, 4096, 250 * found.page)


def test_a_control_group_of_version_1(tmp_path):
    found = made(tmp_path, "5:cpu:/x\n4:memory:/job\n0::/\n", **{
        "memory__job__memory.usage_in_bytes": "900\n", "memory__job__memory.limit_in_bytes": "9223372036854771712\n"})
    assert (found.cgroup_bytes(), found.limit_bytes) == (900, None)


def test_a_control_group_in_a_container(tmp_path):
    found = made(tmp_path, "0::/the/path/of/the/host\n", **{"memory_dot_current": "5\n", "memory_dot_max": "6\n"})
    assert (found.cgroup_bytes(), found.limit_bytes) == (5, 6)


@pytest.mark.parametrize("group", ["", "0::/../../etc\n", "nonsense", "4:memory:/a\n"])
def test_no_control_group(tmp_path, group):
    found = made(tmp_path, group)
    assert (found.cgroup_bytes(), found.limit_bytes) == (None, None)


# ---- whole processes ----


PROGRAM = """
import sys
sys.path.insert(0, {tests!r})
import fake_torch
fake_torch.prepare()
import os, signal, threading, time, types
torch = fake_torch.install(initialized=False)
torch._C._cuda_hasPrimaryContext = lambda index: True
torch.cuda.device_count = lambda: 1
torch.cuda.get_device_properties = lambda *index: types.SimpleNamespace(total_memory=80 << 30, uuid=None)
record = fake_torch.load("_capture").record
card = fake_torch.load("_record.card")

def wait(samples):
    until = time.monotonic() + {hang}
    while card.ledger.taken < samples and time.monotonic() < until:
        time.sleep(0.01)
"""


def run(tmp_path, library, code):
    """A process of its own, in which the timer runs."""
    (tmp_path / "nvml.txt").write_text(f"card GPU-1 {80 * GIB} {600 * MIB} {70 * GIB} H100\n")
    program = PROGRAM.format(tests=os.path.dirname(os.path.abspath(__file__)), hang=HANG_S) + textwrap.dedent(code)
    variables = {name: value for name, value in os.environ.items() if not name.startswith("TESSERA_RECORD")}
    variables.update(TESSERA_NVML=str(library), TESSERA_NVML_WORLD=str(tmp_path / "nvml.txt"))
    return subprocess.run([sys.executable, "-c", program, str(tmp_path / "out")], env=variables, capture_output=True, text=True,
                          timeout=HANG_S, check=False)


def test_the_timer_runs_by_itself_and_ends_with_the_recording(tmp_path, library):
    code = """
        with record(sys.argv[1], signal=None):
            torch.fake.use_device()
            wait(3)
            print([one.name for one in threading.enumerate() if one.name.startswith("tessera")])
        print([one.name for one in threading.enumerate() if one.name.startswith("tessera")])
    """
    done = run(tmp_path, library, code)
    assert done.stdout == "['tessera-card']\n[]\n", done.stderr
    (path,) = names(tmp_path / "out")
    found = texts(only_device(tmp_path / "out" / path))
    assert found[:2] == [None, None] and found[-1] == "snapshot"


def test_a_process_that_never_stops_its_recording_ends(tmp_path, library):
    done = run(tmp_path, library, "record.start(sys.argv[1]); torch.fake.use_device(); wait(2)")
    assert done.returncode == 0, done.stderr
    (path,) = names(tmp_path / "out")
    assert texts(only_device(tmp_path / "out" / path))[-1] == "snapshot"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_a_forked_child_samples_for_itself_only(tmp_path, library):
    code = """
        record.start(sys.argv[1], signal=None)
        torch.fake.use_device()
        wait(2)
        child = os.fork()
        if child == 0:
            assert card.ledger.users == 0 and card.ledger.devices == {}, "the parent's"
            assert threading.enumerate() == [threading.current_thread()]
            record.stop()
            record.start(sys.argv[1] + "/child", signal=None)
            wait(1)
            record.stop()
            os._exit(0)
        _, status = os.waitpid(child, 0)
        taken = card.ledger.taken
        wait(taken + 1)
        print(status, card.ledger.taken > taken)
        record.stop()
    """
    done = run(tmp_path, library, code)
    assert done.stdout == "0 True\n", done.stderr
    (child,) = names(tmp_path / "out" / "child")
    assert len(texts(only_device(tmp_path / "out" / "child" / child))) >= 2


@pytest.mark.skipif(not hasattr(signal, "SIGTERM") or sys.platform == "win32", reason="no signals")
def test_sigterm_and_periodic_snapshots_have_a_ledger(tmp_path, library):
    code = """
        record.start(sys.argv[1], every="1s", keep=2)
        torch.fake.use_device()
        until = time.monotonic() + 1000
        while not any("periodic" in name for name in os.listdir(sys.argv[1]) if name.endswith(".pickle")):
            time.sleep(0.01)
            assert time.monotonic() < until
        os.kill(os.getpid(), signal.SIGTERM)
        for _ in range(3000):
            time.sleep(0.01)
    """
    (tmp_path / "out").mkdir()
    done = run(tmp_path, library, code)
    assert done.returncode == -signal.SIGTERM, done.stderr
    for reason in ("periodic", "signal"):
        name = next(name for name in names(tmp_path / "out") if f"_{reason}" in name)
        assert texts(only_device(tmp_path / "out" / name))[-1] == "snapshot"
