"""Files: whole or not at all, names, compression, protocol; and the sidecar's contents."""

import gzip
import json
import os
import pickle
import pickletools
import socket
import subprocess
import sys
import types

import fake_torch
import pytest
from record_fixtures import (  # noqa: F401
    names,
    process,
    read,
    record,
    recorder,
    torch,
    warnings,
)

files = fake_torch.load("_record.files")
settings = fake_torch.load("_record.settings")
sidecar = fake_torch.load("_record.sidecar")


def told(path):
    with open(files.sidecar_path(str(path)), encoding="utf-8") as file:
        return json.load(file)


# ---- writing ----


def test_a_file_appears_only_when_it_is_whole(torch, record, tmp_path, monkeypatch):
    seen, replace = [], os.replace

    def watching(source, target):
        seen.append((os.path.basename(source), os.path.basename(target), os.path.exists(target)))
        replace(source, target)

    monkeypatch.setattr(os, "replace", watching)
    with record(tmp_path) as recording:
        pass
    (first, second) = seen
    assert first[1].endswith("_end.json") and second[1].endswith("_end.pickle")  # the sidecar first
    assert all(source.startswith(".") and source.endswith(".tmp") for source, _, _ in seen)
    assert not any(existed for _, _, existed in seen)
    assert len(recording.files) == 1 and names(tmp_path, ".tmp") == []


@pytest.mark.parametrize("failing", ["dump", "replace"])
def test_what_fails_half_way_leaves_nothing(torch, record, tmp_path, monkeypatch, failing, caplog):
    def fails(*arguments, **options):
        raise OSError("broken")

    if failing == "dump":
        monkeypatch.setattr(pickle, "dump", fails)
    else:
        monkeypatch.setattr(os, "replace", fails)
    with record(tmp_path):
        pass
    assert names(tmp_path, "") == [] and len(warnings(caplog)) == 1


def test_a_sidecar_that_fails_costs_only_itself(torch, record, tmp_path, monkeypatch):
    monkeypatch.setattr(sidecar, "describe", lambda *arguments: {("a", "b"): "is no key of JSON"})
    with record(tmp_path):
        pass
    assert len(names(tmp_path)) == 1 and names(tmp_path, ".json") == []


def test_protocol_4_whatever_python_prefers(torch, record, tmp_path):
    with record(tmp_path) as recording:
        pass
    with open(recording.files[0], "rb") as file:
        opcode, protocol, _ = next(pickletools.genops(file))
    assert opcode.name == "PROTO" and protocol == 4


def test_gzip(torch, record, tmp_path):
    with record(tmp_path, gzip=True) as recording:
        pass
    (path,) = recording.files
    assert path.endswith("_end.pickle.gz")
    with gzip.open(path) as file:
        assert pickle.load(file)["device_traces"][0][0]["action"] == "alloc"
    assert os.path.basename(files.sidecar_path(path)).endswith("_end.json")


def test_a_named_file_says_by_its_ending_that_it_is_compressed(torch, record, tmp_path):
    with record(tmp_path / "a.pickle.gz"):
        pass
    with gzip.open(tmp_path / "a.pickle.gz") as file:
        assert "segments" in pickle.load(file)


def test_sidecar_false(torch, record, tmp_path):
    with record(tmp_path, sidecar=False):
        pass
    assert len(names(tmp_path, "")) == 1


def test_a_folder_that_cannot_be_written_to(torch, record, tmp_path, caplog, monkeypatch):
    (tmp_path / "out").write_text("a file")
    monkeypatch.setattr(files.tempfile, "tempdir", str(tmp_path / "other"))
    (tmp_path / "other").mkdir()
    with record(tmp_path / "out", steps=[1]) as recording:
        assert warnings(caplog) == [
            f"snapshots cannot be written to {tmp_path}/out is not a folder: they will be in "
            f"{files.other_folder()}"
        ]
        record.step()
    assert [os.path.dirname(path) for path in recording.files] == [files.other_folder()] * 2
    assert all(read(path)["segments"] for path in recording.files)
    wanted = f"{tmp_path}/out/rank0_pid{os.getpid()}_step1_step.pickle"
    assert warnings(caplog)[1:] == [
        f"{wanted} cannot be written (File exists): the snapshot is in {recording.files[0]}"
    ]
    assert told(recording.files[0])["snapshot"] == os.path.basename(recording.files[0])


@pytest.mark.parametrize("kind", ["open", "link", "file", "foreign"])
def test_the_other_folder_is_the_users_alone(torch, record, tmp_path, monkeypatch, kind):
    """Somebody else made the folder in the system's temporary folder first."""
    (tmp_path / "out").write_text("a file")
    (tmp_path / "other").mkdir()
    (tmp_path / "trap").mkdir()
    monkeypatch.setattr(files.tempfile, "tempdir", str(tmp_path / "other"))
    folder = files.other_folder()
    if kind == "link":
        os.symlink(tmp_path / "trap", folder)
    elif kind == "file":
        open(folder, "w").close()
    else:
        os.mkdir(folder)
        os.chmod(folder, 0o777)
    if kind == "foreign":
        other = os.getuid() + 1
        monkeypatch.setattr(files.os, "getuid", lambda: other)
        os.rename(folder, files.other_folder())
    with record(tmp_path / "out", steps=[1], at_end=False) as recording:
        record.step()
    (path,) = recording.files
    used = os.stat(os.path.dirname(path))
    assert used.st_mode & 0o777 == 0o700
    assert os.listdir(tmp_path / "trap") == []
    assert (os.path.dirname(path) == files.other_folder()) == (kind == "open")


def test_an_unfinished_file_follows_no_link(tmp_path):
    path, trap = str(tmp_path / "a.pickle"), tmp_path / "trap"
    trap.write_text("kept")
    os.symlink(trap, files._temporary(path))
    files.write_snapshot(path, {"segments": []}, False)
    assert trap.read_text() == "kept" and not os.path.islink(path)
    assert os.stat(path).st_size > 10


def test_a_full_disk_sends_snapshots_elsewhere(torch, record, tmp_path, monkeypatch, caplog, capfd):
    whole = files._write

    def full(path, write):
        if path.startswith(str(tmp_path / "out")):
            raise OSError(28, "No space left on device")
        return whole(path, write)

    monkeypatch.setattr(files, "_write", full)
    monkeypatch.setattr(files.tempfile, "tempdir", str(tmp_path))
    with record(tmp_path / "out", at_end=False) as recording:
        with pytest.raises(torch.OutOfMemoryError):
            torch.fake.run_out_of_memory()
    (path,) = recording.files
    assert path.startswith(files.other_folder()) and path.endswith("_oom.pickle")
    assert "(No space left on device): the snapshot is in " + path in warnings(caplog)[0]
    assert f"tessera: wrote {path} (" in capfd.readouterr().err


def test_each_recording_reports_its_own_failures(torch, record, tmp_path, caplog, capfd):
    torch.fake.fail.add("_snapshot")
    for _ in range(2):
        with record(tmp_path, steps=[1, 2]):
            record.step()
            record.step()
    assert warnings(caplog) == [
        "writing the snapshot failed: RuntimeError: _snapshot was told to fail"
    ] * 2
    assert capfd.readouterr().err.count("3 snapshots of this recording could not be written") == 2


def test_failures_are_reported_again_after_a_while(torch, record, tmp_path, caplog, monkeypatch):
    monkeypatch.setattr(recorder, "QUIET", 0)
    torch.fake.fail.add("_snapshot")
    with record(tmp_path, at_end=False) as recording:
        recording.dump()
        recording.dump()
    assert len(warnings(caplog)) == 2


def test_what_killed_processes_left_is_removed(torch, record, tmp_path):
    host = files._host()
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    left = [f".rank0_pid{gone.pid}_step0_end.pickle.{host}.{gone.pid}.7.tmp"]
    kept = [
        f".a.pickle.{host}.{os.getpid()}.7.tmp",  # of a process that lives
        f".a.pickle.elsewhere.{gone.pid}.7.tmp",  # of another machine, which may be writing
        f".a.pickle.{gone.pid}.tmp",  # not ours
        f"a.pickle.{host}.{gone.pid}.7.tmp",
    ]
    old = ".b.pickle.elsewhere.4711.7.tmp"
    for name in [*left, *kept, old]:
        (tmp_path / name).write_text("")
    os.utime(tmp_path / old, (0, 0))
    with record(tmp_path, at_end=False):
        pass
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(kept)


def test_names_of_files_being_written_are_those_that_are_cleaned(tmp_path):
    match = files._TEMPORARY.fullmatch(os.path.basename(files._temporary("out/a.b_c.pickle.gz")))
    assert match and (match[1], match[2]) == (files._host(), str(os.getpid()))


def test_words_of_a_caller_are_no_path():
    assert files.plain("../../etc/passwd") == "etc-passwd"
    assert files.plain("  ") == "dump" and files.plain("step 3 / after") == "step-3-after"
    assert len(files.plain("x" * 500)) == 60


def test_a_full_history_is_said(torch, record, tmp_path, caplog):
    torch.fake.events = 5
    with record(tmp_path, max_entries=5) as recording:
        recording.dump()
    assert warnings(caplog) == [
        "the history holds its limit of 5 events: the oldest are lost. More: max_entries="
    ]
    assert told(recording.files[0])["recording"]["events"] == [
        {"device": 0, "events": 5, "is_full": True}
    ]


def test_quiet_and_the_other_ranks_say_nothing(torch, record, tmp_path, capfd, monkeypatch):
    with record(tmp_path, quiet=True):
        pass
    monkeypatch.setenv("RANK", "1")
    with record(tmp_path):
        pass
    assert capfd.readouterr().err == ""


# ---- ranks ----


@pytest.mark.parametrize(
    "environment, rank, size",
    [
        ({"RANK": "3", "WORLD_SIZE": "8"}, 3, 8),
        ({"SLURM_PROCID": "2", "SLURM_NTASKS": "4"}, 2, 4),
        ({"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2"}, 1, 2),
        ({"RANK": "none", "SLURM_PROCID": "6"}, 6, 1),
        ({"RANK": "-1"}, 0, 1),
        ({}, 0, 1),
    ],
)
def test_ranks_of_launchers(torch, record, tmp_path, monkeypatch, environment, rank, size):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with record(tmp_path) as recording:
        pass
    assert names(tmp_path) == [f"rank{rank}_pid{os.getpid()}_step0_end.pickle"]
    assert (
        told(recording.files[0])["ranks"]["rank"],
        told(recording.files[0])["ranks"]["world_size"],
    ) == (
        rank,
        size,
    )


def distributed(monkeypatch, rank=11, size=16, up=True):
    module = types.SimpleNamespace(
        is_available=lambda: True,
        is_initialized=lambda: up,
        get_rank=lambda: rank,
        get_world_size=lambda: size,
    )
    monkeypatch.setitem(sys.modules, "torch.distributed", module)


def test_a_process_group_knows_best(torch, record, tmp_path, monkeypatch):
    monkeypatch.setenv("RANK", "3")
    distributed(monkeypatch, up=False)
    with record(tmp_path) as recording:
        distributed(monkeypatch)  # comes up after the start
    assert names(tmp_path)[0].startswith("rank11_")
    assert told(recording.files[0])["ranks"]["source"] == "torch.distributed"


def test_a_mesh_of_the_user(torch, record, tmp_path):
    with record(tmp_path, mesh={"dp": 3, "tp": 1}) as recording:
        pass
    assert told(recording.files[0])["mesh"] == {
        "names": ["dp", "tp"],
        "sizes": None,
        "coordinates": [3, 1],
        "source": "record",
    }


def test_a_mesh_of_dtensors(torch, record, tmp_path):
    model = torch.nn.Module()
    model.weight.device_mesh = types.SimpleNamespace(
        mesh_dim_names=("dp", "tp"),
        mesh=types.SimpleNamespace(shape=(4, 2)),
        get_coordinate=lambda: [2, 1],
    )
    model.weight._local_tensor = fake_torch.Tensor(0x7F00BEEF0000, (1, 8))
    with record(tmp_path) as recording:
        record.watch(model)
    document = told(recording.files[0])
    assert document["mesh"] == {
        "names": ["dp", "tp"],
        "sizes": [4, 2],
        "coordinates": [2, 1],
        "source": "DTensor",
    }
    weight = document["models"][0]["parameters"][0]
    assert weight["shape"] == [4, 8]  # of the whole
    assert (weight["data_ptr"], weight["nbytes"]) == (0x7F00BEEF0000, 32)  # of this rank's part


@pytest.mark.parametrize("is_new", [True, False])
def test_the_mesh_of_a_slice(torch, record, tmp_path, monkeypatch, is_new):
    whole = types.SimpleNamespace(
        mesh_dim_names=("pp", "dp"),
        mesh=types.SimpleNamespace(shape=(2, 4)),
        get_coordinate=lambda: [1, 3],
    )
    part = types.SimpleNamespace(
        mesh_dim_names=("dp",), mesh=types.SimpleNamespace(shape=(4,)), get_coordinate=lambda: [3]
    )
    if is_new:
        part._get_root_mesh = lambda: whole
    else:
        resources = types.SimpleNamespace(get_root_mesh=lambda mesh: whole)
        module = types.SimpleNamespace(_mesh_resources=resources)
        monkeypatch.setitem(sys.modules, "torch.distributed.device_mesh", module)
    model = torch.nn.Module()
    model.weight.device_mesh = part
    model.weight._local_tensor = fake_torch.Tensor(0x7F00BEEF0000, (1, 8))
    with record(tmp_path) as recording:
        record.watch(model)
    mesh = told(recording.files[0])["mesh"]
    assert (mesh["names"], mesh["coordinates"]) == (["pp", "dp"], [1, 3])


def test_a_mesh_of_megatron(torch, record, tmp_path, monkeypatch):
    groups = {
        "tensor_model": (1, 2),
        "pipeline_model": (3, 4),
        "data": (5, 8),
        "context": (0, 1),
        "expert_model": (2, 4),
    }
    state = types.SimpleNamespace()
    for name, (rank, size) in groups.items():
        setattr(state, f"get_{name}_parallel_rank", lambda rank=rank: rank)
        setattr(state, f"get_{name}_parallel_world_size", lambda size=size: size)
    monkeypatch.setitem(sys.modules, "megatron.core.parallel_state", state)
    with record(tmp_path) as recording:
        pass
    mesh = told(recording.files[0])["mesh"]
    assert mesh["names"] == ["dp", "pp", "cp", "tp", "ep"]
    assert (mesh["sizes"], mesh["coordinates"]) == ([8, 4, 1, 2, 4], [5, 3, 0, 1, 2])


# ---- the sidecar ----


def test_what_a_sidecar_tells(torch, record, tmp_path, monkeypatch):
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")
    model = torch.nn.Module()
    optimizer = torch.optim.Optimizer(model.parameters())
    with record(tmp_path) as recording:
        record.watch(model, optimizer)
        optimizer.step()
    path = recording.files[0]
    document = told(path)
    assert document["schema"] == "tessera/capture/1"
    assert document["snapshot"] == os.path.basename(path)
    assert document["snapshot_bytes"] == os.path.getsize(path)
    assert (document["reason"], document["step"]) == ("end", 1)
    assert document["process"] == {"pid": os.getpid(), "host": socket.gethostname()}
    assert document["versions"]["torch"] == "2.11.0" and document["versions"]["cuda"] == "12.4"
    assert (
        document["allocator"]["environment"]["PYTORCH_CUDA_ALLOC_CONF"]
        == "expandable_segments:True"
    )
    assert document["allocator"]["backend"] == "native"
    assert (
        document["recording"]["backend"] == "cuda" and document["recording"]["stacks"] == "python"
    )
    assert document["recording"]["allocated_at_start_bytes"] == 1536
    assert document["devices"] == [
        {
            "device": 0,
            "name": "Fake H100",
            "total_bytes": 85899345920,
            "free_bytes": 75161927680,
            "allocated_bytes": 1536,
            "reserved_bytes": 2097152,
            "peak_allocated_bytes": 4096,
            "peak_reserved_bytes": 4194304,
            "outside_pytorch_bytes": 85899345920 - 75161927680 - 2097152,
        }
    ]
    (told_model,) = document["models"]
    assert told_model["class"] == "Module"
    assert told_model["parameters"] == [
        {
            "name": "layer.weight",
            "shape": [4, 8],
            "dtype": "torch.float32",
            "device": "cuda:0",
            "data_ptr": 0x7F0000000000,
            "nbytes": 128,
            "requires_grad": True,
            "grad": {"data_ptr": 0x7F0000000400, "nbytes": 128},
        }
    ]
    assert told_model["buffers"][0]["name"] == "running_mean"
    (told_optimizer,) = document["optimizers"]
    assert told_optimizer["state_bytes_by_key"] == {"exp_avg": 128, "exp_avg_sq": 128}
    assert told_optimizer["state_bytes"] == 256  # what is on the CPU is listed, not counted
    assert told_optimizer["state"][1] == {
        "parameter": "layer.weight",
        "key": "exp_avg",
        "data_ptr": 0x7F0000010000,
        "nbytes": 128,
        "device": "cuda:0",
    }
    assert document["other_parameters"] == []
    assert document["out_of_memory"] is None and document["exception"] is None


def test_an_optimizer_that_nobody_watched_gives_its_addresses(torch, record, tmp_path):
    optimizer = torch.optim.Optimizer([fake_torch.Tensor(0x7F0000000000, (2,))])
    optimizer.param_groups[0]["param_names"] = ["head.bias"]
    with record(tmp_path) as recording:
        optimizer.step()
    document = told(recording.files[0])
    assert [row["name"] for row in document["other_parameters"]] == ["head.bias"]
    assert document["optimizers"][0]["state"][0]["parameter"] == "head.bias"


def test_parameters_without_a_name_have_their_place(torch, record, tmp_path):
    optimizer = torch.optim.Optimizer(
        [fake_torch.Tensor(0x7F0000000000, (2,)), fake_torch.Tensor(0x7F0000000200, (2,))]
    )
    with record(tmp_path) as recording:
        optimizer.step()
    document = told(recording.files[0])
    assert [(row["name"], row["index"]) for row in document["other_parameters"]] == [
        (None, 0),
        (None, 1),
    ]
    assert {row["parameter"] for row in document["optimizers"][0]["state"]} == {0, 1}


def test_what_the_library_reads_of_it(torch, record, tmp_path):
    """Both sides of the schema: what is recorded names the blocks of its own snapshot."""
    tessera = pytest.importorskip("tessera")
    if not hasattr(tessera, "open"):
        pytest.skip("the extension is not built")
    model = torch.nn.Module()
    optimizer = torch.optim.Optimizer(model.parameters())
    with record(tmp_path, gzip=True) as recording:
        record.watch(model, optimizer)
        optimizer.step()
    (path,) = recording.files
    peak = tessera.open(path).at(event=2)
    assert peak.to_dict()["inputs"][0]["sidecar"] == files.sidecar_path(path)
    (stack,) = peak.stacks
    names = {row.name: (row.category, row.bytes, row.type) for row in stack.names}
    assert all(isinstance(row, tessera.answers.Name) for row in stack.names)
    assert names["layer.weight"] == ("parameter", 128, "float32 [4, 8]")
    assert names["layer.weight.grad"] == ("gradient", 128, "float32 [4, 8]")
    assert (stack.categories["parameter"], stack.categories["gradient"]) == (512, 512)
    why = tessera.open(path).why()
    assert (why.capacity_bytes, why.capacity_from) == (85899345920, "sidecar")
    assert why.outside_bytes == 85899345920 - 75161927680 - 2097152
    bare = tessera.open(path, sidecar=False)
    assert "gradient" not in bare.at(event=2).stacks[0].categories
    with open(path, "rb") as file:
        data = file.read()
    assert tessera.open(data, sidecar=files.sidecar_path(path)).at(event=2).stacks[0].names
    with pytest.raises(tessera.ReadError, match="nowhere.json"):
        tessera.open(path, sidecar=tmp_path / "nowhere.json")


def test_texts_and_addresses_that_strict_readers_refuse(torch, record, tmp_path):
    class Wide(fake_torch.Tensor):
        def data_ptr(self):
            return 0xFFFF_8000_0000_0000

    assert sidecar.place(Wide(0, (4,)))["data_ptr"] == "0xffff800000000000"
    with pytest.raises(ValueError):
        with record(tmp_path):
            raise ValueError("no file bad\udcff.bin")
    (name,) = [name for name in os.listdir(tmp_path) if name.endswith(".json")]
    text = (tmp_path / name).read_bytes().decode("utf-8")
    assert json.loads(text)["exception"]["message"].startswith("no file bad")
    assert "\\ud" not in text


def test_a_view_tells_its_storage(torch):
    placed = sidecar.place(fake_torch.Tensor(0x1000, (4,), offset=512))
    assert placed == {
        "data_ptr": 0x1200,
        "nbytes": 16,
        "storage_data_ptr": 0x1000,
        "storage_nbytes": 528,
    }


def test_tensors_that_will_not_tell(torch, record, tmp_path):
    model = torch.nn.Module()

    class Strange:
        shape = property(lambda self: 1 / 0)
        grad = None

        def data_ptr(self):
            raise RuntimeError("FakeTensor has no data")

    model.named_parameters = lambda: [("w", Strange())]
    model.named_buffers = lambda: 1 / 0
    with record(tmp_path) as recording:
        record.watch(model)
    (told_model,) = told(recording.files[0])["models"]
    assert told_model["parameters"][0]["data_ptr"] is None and told_model["buffers"] == []


@pytest.mark.parametrize(
    "function",
    ["mem_get_info", "memory_reserved", "get_device_name", "current_device", "memory_allocated"],
)
def test_what_pytorch_refuses_is_null(torch, record, tmp_path, function):
    torch.fake.fail.add(function)
    with record(tmp_path) as recording:
        pass
    (device,) = told(recording.files[0])["devices"]
    if function in ("mem_get_info", "memory_reserved"):
        assert device["outside_pytorch_bytes"] is None
    assert device["total_bytes"] == 85899345920  # from the device's properties, if need be


# ---- the environment ----


def test_the_environment_is_read_as_calls_are():
    read_settings = settings.from_environment(
        {
            "TESSERA_RECORD": "out",
            "TESSERA_RECORD_STEPS": "3, 10",
            "TESSERA_RECORD_EVERY": "2.5",
            "TESSERA_RECORD_KEEP": "7",
            "TESSERA_RECORD_STACKS": "all",
            "TESSERA_RECORD_GZIP": "1",
            "TESSERA_RECORD_AT_END": "no",
            "TESSERA_RECORD_SIGNAL": "USR1",
            "TESSERA_RECORD_CONTEXT": "none",
            "TESSERA_RECORD_RANKS": "0",
            "TESSERA_RECORD_MAX_ENTRIES": "500",
        }
    )
    assert read_settings.out == os.path.abspath("out") and read_settings.steps == {3, 10}
    assert (read_settings.every, read_settings.keep, read_settings.stacks) == (2.5, 7, "all")
    assert read_settings.gzip is True and read_settings.at_end is False
    assert [one.name for one in read_settings.signal] == ["SIGUSR1"] and read_settings.context is None
    assert read_settings.ranks == {0} and read_settings.max_entries == 500
    for text in ("", "0", "off"):
        assert settings.from_environment({"TESSERA_RECORD": text}) is None
    default = os.path.abspath(settings.DEFAULT_FOLDER)
    assert settings.from_environment({"TESSERA_RECORD": "1"}).out == default


@pytest.mark.parametrize(
    "name, text", [("KEEP", "many"), ("STACKS", "c"), ("GZIP", "maybe"), ("EVERY", "-1")]
)
def test_a_wrong_variable_is_left_out_aloud(caplog, name, text):
    read_settings = settings.from_environment(
        {"TESSERA_RECORD": "out", f"TESSERA_RECORD_{name}": text}
    )
    assert getattr(read_settings, name.lower()) == settings.OPTIONS[name.lower()][0]
    assert f"TESSERA_RECORD_{name}={text} is left out" in warnings(caplog)[0]


@pytest.mark.parametrize(
    "name, hint",
    [
        ("STEP", "did you mean TESSERA_RECORD_STEPS?"),
        ("MAX_ENTRYS", "did you mean TESSERA_RECORD_MAX_ENTRIES?"),
        ("WEATHER_TODAY", "docs/capture.md lists the options"),
        ("MESH", "mesh= can only be given in a call"),
    ],
)
def test_a_misspelt_variable_is_reported(caplog, name, hint):
    assert settings.from_environment({"TESSERA_RECORD": "out", f"TESSERA_RECORD_{name}": "3"})
    (said,) = warnings(caplog)
    assert said.startswith(f"TESSERA_RECORD_{name} is ") and said.endswith(hint)


def test_several_signals_in_a_variable():
    read_settings = settings.from_environment(
        {"TESSERA_RECORD": "out", "TESSERA_RECORD_SIGNAL": "TERM, USR2"}
    )
    assert [one.name for one in read_settings.signal] == ["SIGTERM", "SIGUSR2"]


def test_a_call_without_a_place_takes_the_variables(torch, record, tmp_path, monkeypatch):
    monkeypatch.setenv("TESSERA_RECORD", str(tmp_path / "chosen"))
    with record():
        pass
    assert len(names(tmp_path / "chosen")) == 1


def test_files_stay_where_the_program_began(torch, record, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "elsewhere").mkdir()
    with record("out"):
        monkeypatch.chdir(tmp_path / "elsewhere")
    assert len(names(tmp_path / "out")) == 1


def test_the_collector_rests_while_a_snapshot_is_taken(torch, record, tmp_path):
    import gc

    seen = []
    torch.fake.snapshot_hook = lambda: seen.append(gc.isenabled())
    with record(tmp_path) as recording:
        recording.dump()
        assert gc.isenabled()
        torch.fake.fail.add("_snapshot")
        recording.dump()
        assert gc.isenabled()
    assert seen == [False]


def test_a_sidecar_never_stands_alone(torch, record, tmp_path, monkeypatch):
    replace = os.replace

    def fails(source, target):
        if target.endswith(".pickle"):
            raise OSError("broken")
        replace(source, target)

    monkeypatch.setattr(os, "replace", fails)
    with record(tmp_path):
        pass
    assert names(tmp_path, "") == []
