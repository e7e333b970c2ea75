"""Callbacks for trainers, with stand-ins for their base classes; numbers and pages for trackers."""

import copy
import json
import os
import pickle
import sys
import tempfile
import types

import fake_torch
import pytest
from record_fixtures import (  # noqa: F401
    answers,
    names,
    process,
    reasons,
    record,
    recorder,
    torch,
    warnings,
)

callbacks = fake_torch.load("callbacks")
trackers = fake_torch.load("_record.trackers")

STATISTICS = {
    "allocated_bytes.all.peak": 3 * 2**30,
    "reserved_bytes.all.peak": 4 * 2**30,
    "allocated_bytes.all.current": 2**30,
    "reserved_bytes.all.current": 2 * 2**30,
}
SCALARS = {
    "tessera/peak_allocated_gib": 3.0,
    "tessera/peak_reserved_gib": 4.0,
    "tessera/allocated_gib": 1.0,
    "tessera/reserved_gib": 2.0,
}


@pytest.fixture
def statistics(torch):
    torch.cuda.memory_stats = lambda: dict(STATISTICS)


@pytest.fixture
def wandb(monkeypatch):
    logged = []
    run = types.SimpleNamespace(log=lambda values, commit: logged.append((values, commit)))
    html = types.SimpleNamespace
    module = types.SimpleNamespace(
        run=run, Html=lambda text, inject: html(text=text), logged=logged
    )
    monkeypatch.setitem(sys.modules, "wandb", module)
    return module


@pytest.fixture
def mlflow(monkeypatch):
    module = types.SimpleNamespace(metrics=[], artifacts=[], active_run=lambda: object())

    def log_metrics(values, step=None, synchronous=None):
        module.metrics.append((values, step))

    def log_artifact(path, folder):
        with open(path, encoding="utf-8") as file:
            module.artifacts.append((file.read(), folder))

    module.log_metrics, module.log_artifact = log_metrics, log_artifact
    monkeypatch.setitem(sys.modules, "mlflow", module)
    return module


@pytest.fixture
def page(monkeypatch):
    def write(path, out):
        with open(out, "w") as file:
            file.write("<html>" + os.path.basename(path))
        return True

    monkeypatch.setattr(answers, "page", write)


class Writer:
    def __init__(self):
        self.scalars, self.texts = [], []

    def add_scalar(self, name, value, step):
        self.scalars.append((name, value, step))

    def add_text(self, name, text):
        self.texts.append((name, text))


# ---- a loop of one's own ----


def test_a_loop(torch, record, tmp_path, statistics, wandb):
    model = torch.nn.Module()
    optimizer = torch.optim.Optimizer(model.parameters())
    with callbacks.TrainingLoop(
        tmp_path, model=model, optimizer=optimizer, log_every=2, steps=[3]
    ) as loop:
        for _ in range(4):
            model(1)
            optimizer.step()
            loop.step()
        assert recorder.active[0].step == 4
    assert reasons(tmp_path) == ["end", "step"]
    assert wandb.logged == [(SCALARS, False), (SCALARS, False)]
    assert not torch.fake.called("reset_peak_memory_stats")
    assert recorder.active == [] and model.before == []


def test_a_loop_inside_a_recording_adds_to_it(torch, record, tmp_path, wandb, page):
    with record(tmp_path / "outer") as recording:
        with callbacks.TrainingLoop(tmp_path / "unused") as loop:
            loop.step()
            recording.dump("mine")
        assert torch.fake.recording
    assert reasons(tmp_path / "outer") == ["end", "mine"] and not (tmp_path / "unused").exists()
    assert [list(values) for values, _ in wandb.logged] == [["tessera/mine"]]  # not after the loop


def test_a_loop_that_runs_out_of_memory(torch, record, tmp_path):
    del torch._C._cuda_attach_out_of_memory_observer
    with pytest.raises(torch.OutOfMemoryError):
        with callbacks.TrainingLoop(tmp_path):
            torch.fake.run_out_of_memory()
    assert reasons(tmp_path) == ["oom"]


def test_wrong_options_of_callbacks_are_said(torch):
    with pytest.raises(TypeError, match="no option stack"):
        callbacks.TrainingLoop("out", stack="all")
    with pytest.raises(ValueError, match="log_every"):
        callbacks.TrainingLoop("out", log_every=0)
    assert recorder.active == []


# ---- Hugging Face ----


@pytest.fixture
def transformers(monkeypatch):
    module = types.SimpleNamespace(TrainerCallback=type("TrainerCallback", (), {}))
    monkeypatch.setitem(sys.modules, "transformers", module)
    yield module
    vars(callbacks).pop("TrainerCallback", None)


def test_hugging_faces_trainer(torch, record, tmp_path, transformers, statistics, wandb):
    callback = callbacks.TrainerCallback(tmp_path, steps=[501], log_every=1)
    assert isinstance(callback, transformers.TrainerCallback) and torch.fake.recording
    assert callbacks.TrainerCallback is type(callback)
    model = torch.nn.Module()
    optimizer = torch.optim.Optimizer(model.parameters())
    state = types.SimpleNamespace(global_step=500)  # resumed
    callback.on_train_begin(None, state, None, model=model, optimizer=optimizer, lr_scheduler=None)
    for _ in range(2):
        model(1)
        optimizer.step()
        state.global_step += 1
        callback.on_step_end(None, state, None)
    callback.on_train_end(None, state, None)
    pid = os.getpid()
    assert names(tmp_path) == [
        f"rank0_pid{pid}_step501_step.pickle",
        f"rank0_pid{pid}_step502_end.pickle",
    ]
    assert len(wandb.logged) == 2 and not torch.fake.recording
    callback.on_train_begin(None, state, None, model=model)  # again, as for a smaller batch
    assert torch.fake.recording
    callback.on_train_end(None, state, None)


def trainer_of(transformers, callback, fails_in):
    """A Trainer like Hugging Face's, whose train() raises at some point."""

    class Trainer:
        def __init__(self):
            self.callback_handler = types.SimpleNamespace(callbacks=[callback])
            self.state = types.SimpleNamespace(global_step=0)

        def train(self, resume=None):
            "Trains."
            if fails_in == "preparing":
                raise ValueError("no data")
            for one in self.callback_handler.callbacks:
                one.on_train_begin(None, self.state, None)
            if fails_in == "training":
                raise ValueError("wrong shape")
            for one in self.callback_handler.callbacks:
                one.on_train_end(None, self.state, None)
            return "trained"

    transformers.Trainer = Trainer
    return Trainer


@pytest.mark.parametrize("fails_in", ["preparing", "training"])
def test_an_exception_in_hugging_faces_trainer(torch, record, tmp_path, transformers, fails_in):
    made = []
    trainer = trainer_of(transformers, None, fails_in)
    for _ in range(2):  # the wrapper is put on once
        made.append(callbacks.TrainerCallback(tmp_path))
    assert trainer.train.__doc__ == "Trains." and torch.fake.recording
    running = trainer()
    running.callback_handler.callbacks = made[:1]
    with pytest.raises(ValueError):
        running.train()
    assert not torch.fake.recording and reasons(tmp_path) == ["exception"]


def test_hugging_faces_trainer_trains_as_before(torch, record, tmp_path, transformers):
    trainer = trainer_of(transformers, None, None)
    callback = callbacks.TrainerCallback(tmp_path)
    running = trainer()
    running.callback_handler.callbacks = [callback]
    assert running.train(resume=True) == "trained" and not torch.fake.recording
    assert reasons(tmp_path) == ["end"]


def test_a_recording_that_was_joined_survives_an_exception(torch, record, tmp_path, transformers):
    trainer = trainer_of(transformers, None, "training")
    with record(tmp_path):
        running = trainer()
        running.callback_handler.callbacks = [callbacks.TrainerCallback(tmp_path)]
        with pytest.raises(ValueError):
            running.train()
        assert torch.fake.recording
    assert reasons(tmp_path) == ["end"]


def test_a_callback_that_joins_reports_what_it_ignores(torch, record, tmp_path, caplog):
    with record(tmp_path):
        with callbacks.TrainingLoop(tmp_path / "other", steps=[3]):
            pass
        with callbacks.TrainingLoop():
            pass
    assert warnings(caplog) == [
        f"a recording to {tmp_path} is under way and continues: out='{tmp_path}/other', steps=[3] "
        "are ignored"
    ]


def test_without_the_library_it_says_so(monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(ImportError, match="needs transformers"):
        callbacks.TrainerCallback
    for name in ("lightning.pytorch", "pytorch_lightning"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ImportError, match="needs lightning"):
        callbacks.LightningCallback
    monkeypatch.setitem(sys.modules, "composer", None)
    with pytest.raises(ImportError, match="needs composer"):
        callbacks.ComposerCallback
    monkeypatch.setitem(sys.modules, "torchtnt", None)
    with pytest.raises(ImportError, match="needs torchtnt"):
        callbacks.TNTCallback
    with pytest.raises(AttributeError):
        callbacks.Nothing
    assert "TrainerCallback" in dir(callbacks)


# ---- Lightning ----


@pytest.fixture
def lightning(monkeypatch):
    module = types.ModuleType("pytorch_lightning")
    module.Callback = type("Callback", (), {})
    monkeypatch.setitem(sys.modules, "lightning.pytorch", None)
    monkeypatch.setitem(sys.modules, "pytorch_lightning", module)
    yield module
    vars(callbacks).pop("LightningCallback", None)


def test_lightnings_trainer(torch, record, tmp_path, lightning, statistics):
    callback = callbacks.LightningCallback(tmp_path, log_every=1)
    assert isinstance(callback, lightning.Callback)
    logged = []
    logger = types.SimpleNamespace(log_metrics=lambda values, step: logged.append((values, step)))
    model = torch.nn.Module()
    optimizer = torch.optim.Optimizer(model.parameters())
    trainer = types.SimpleNamespace(global_step=0, optimizers=[optimizer], loggers=[logger])
    callback.on_train_start(trainer, model)
    for batch in range(4):
        callback.on_train_batch_start(trainer, model, None, batch)
        callback.on_before_backward(trainer, model, None)
        fake_torch.Tensor(1, (1,)).backward()
        if batch % 2:  # gradients of two batches are gathered
            optimizer.step()
            trainer.global_step += 1
        callback.on_train_batch_end(trainer, model, None, None, batch)
    callback.on_fit_end(trainer, model)
    assert logged == [(SCALARS, 1), (SCALARS, 2)]
    assert [name for kind, name in torch.fake.ranges if kind == "START"] == [
        "ProfilerStep#1",
        *["forward", "backward"] * 2,
        "ProfilerStep#2",
        *["forward", "backward"] * 2,
        "ProfilerStep#3",
    ]
    assert names(tmp_path) == [f"rank0_pid{os.getpid()}_step2_end.pickle"]


def test_callbacks_travel_to_spawned_processes(torch, record, tmp_path, lightning, transformers):
    for made in (callbacks.LightningCallback(tmp_path), callbacks.TrainerCallback(tmp_path)):
        assert made._recording.recorder is not None
        copied = copy.deepcopy(made)
        again = pickle.loads(pickle.dumps(made._recording))
        assert copied._recording.recorder is again.recorder is None and again.out == tmp_path
        again.finish()  # of nothing
    assert torch.fake.recording


def test_an_exception_in_lightning(torch, record, tmp_path, lightning):
    callback = callbacks.LightningCallback(tmp_path)
    callback.on_exception(None, None, ValueError("wrong shape"))
    assert reasons(tmp_path) == ["exception"] and not torch.fake.recording


# ---- Composer ----


COMPOSER_EVENTS = "init fit_start epoch_start batch_start after_train_batch batch_end epoch_end fit_end".split()
TNT_HOOKS = "on_train_start on_train_epoch_start on_train_step_start on_train_step_end on_train_epoch_end on_train_end on_exception"


@pytest.fixture
def composer(monkeypatch):
    """A stand-in: its callbacks, and a Trainer whose fit() calls them in Composer's order."""

    def nothing(self, state, logger):
        pass

    base = type("Callback", (), {name: nothing for name in [*COMPOSER_EVENTS, "close"]})

    class Trainer:
        def __init__(self, model, optimizer, callbacks, batches):
            self.state = types.SimpleNamespace(
                model=model,
                optimizers=(optimizer,),
                callbacks=callbacks,
                timestamp=types.SimpleNamespace(batch=7),  # resumed
            )
            self.batches = batches
            self.run("init")

        def run(self, event):
            for one in self.state.callbacks:
                getattr(one, event)(self.state, None)

        def fit(self):
            "Fits."
            self.run("fit_start")
            for batch in self.batches:
                self.run("batch_start")
                batch()
                self.run("after_train_batch")
                self.state.timestamp.batch += 1
                self.run("batch_end")
            self.run("fit_end")

        def close(self):
            self.run("close")

    package = types.ModuleType("composer")
    package.core = types.ModuleType("composer.core")
    package.core.Callback, package.Trainer = base, Trainer
    monkeypatch.setitem(sys.modules, "composer", package)
    monkeypatch.setitem(sys.modules, "composer.core", package.core)
    yield package
    vars(callbacks).pop("ComposerCallback", None)


def composers_trainer(torch, composer, tmp_path, *batches, **options):
    callback = callbacks.ComposerCallback(tmp_path, **options)
    assert isinstance(callback, composer.core.Callback) and torch.fake.recording
    model = torch.nn.Module()
    return composer.Trainer(
        model, torch.optim.Optimizer(model.parameters()), [callback], list(batches)
    )


def test_composers_trainer(torch, record, tmp_path, composer, statistics, wandb):
    trainer = composers_trainer(torch, composer, tmp_path, int, int, steps=[8], log_every=1)
    trainer.fit()
    assert trainer.fit.__doc__ == "Fits." and not torch.fake.recording
    pid = os.getpid()
    assert names(tmp_path) == [
        f"rank0_pid{pid}_step8_step.pickle",
        f"rank0_pid{pid}_step9_end.pickle",
    ]
    assert len(wandb.logged) == 2
    assert len(json.loads((tmp_path / names(tmp_path, "end.json")[0]).read_text())["models"]) == 1
    trainer.close()
    assert len(names(tmp_path)) == 2


def test_a_trainer_of_composer_that_does_not_train(torch, record, tmp_path, composer):
    composers_trainer(torch, composer, tmp_path).close()
    assert reasons(tmp_path) == ["end"] and not torch.fake.recording


def test_an_exception_in_composers_trainer(torch, record, tmp_path, composer):
    trainer = composers_trainer(torch, composer, tmp_path, int, lambda: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        trainer.fit()
    assert reasons(tmp_path) == ["exception"] and not torch.fake.recording


# ---- TorchTNT ----


@pytest.fixture
def tnt(monkeypatch):
    """A stand-in: its callbacks, and a train() that calls them in TorchTNT's order. It calls only
    hooks whose code is not the base's, as TorchTNT does."""

    def nothing(self, state, unit, exc=None):
        pass

    base = type("Callback", (), {name: nothing for name in TNT_HOOKS.split()})

    def train(unit, batches, callbacks):
        def run(name, *more):
            for one in callbacks:
                hook = getattr(one, name)
                if getattr(hook, "__wrapped__", hook).__code__ is not nothing.__code__:
                    hook(None, unit, *more)

        try:
            run("on_train_start")
            for batch in batches:
                run("on_train_step_start")
                batch()
                unit.train_progress.num_steps_completed += 1
                run("on_train_step_end")
            run("on_train_end")
        except Exception as error:
            run("on_exception", error)
            raise

    module = types.ModuleType("torchtnt.framework.callback")
    module.Callback, module.train = base, train
    for name in ("torchtnt", "torchtnt.framework"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    monkeypatch.setitem(sys.modules, "torchtnt.framework.callback", module)
    yield module
    vars(callbacks).pop("TNTCallback", None)


def tnts_unit(torch):
    model = torch.nn.Module()
    optimizer = torch.optim.Optimizer(model.parameters())
    return types.SimpleNamespace(
        tracked_modules=lambda: {"module": model},
        tracked_optimizers=lambda: {"optimizer": optimizer},
        train_progress=types.SimpleNamespace(num_steps_completed=3),
    )


def test_tnts_train(torch, record, tmp_path, tnt, statistics, wandb):
    callback = callbacks.TNTCallback(tmp_path, steps=[4], log_every=1)
    assert isinstance(callback, tnt.Callback) and torch.fake.recording
    tnt.train(tnts_unit(torch), [int, int], [callback])
    pid = os.getpid()
    assert names(tmp_path) == [
        f"rank0_pid{pid}_step4_step.pickle",
        f"rank0_pid{pid}_step5_end.pickle",
    ]
    assert len(wandb.logged) == 2 and not torch.fake.recording
    assert len(json.loads((tmp_path / names(tmp_path, "end.json")[0]).read_text())["models"]) == 1


def test_an_exception_in_tnts_train(torch, record, tmp_path, tnt):
    with pytest.raises(ZeroDivisionError):
        tnt.train(tnts_unit(torch), [lambda: 1 / 0], [callbacks.TNTCallback(tmp_path)])
    assert reasons(tmp_path) == ["exception"] and not torch.fake.recording


# ---- out of memory, in each of them ----


def dies_in_transformers(torch, transformers, callback):
    class Trainer:
        def __init__(self, one):
            self.callback_handler = types.SimpleNamespace(callbacks=[one])

        def train(self):
            (one,) = self.callback_handler.callbacks
            one.on_train_begin(None, types.SimpleNamespace(global_step=0), None)
            torch.fake.run_out_of_memory()

    transformers.Trainer = Trainer
    Trainer(callback()).train()


def dies_in_lightning(torch, lightning, callback):
    one = callback()
    trainer = types.SimpleNamespace(global_step=0, optimizers=[], loggers=[])
    try:
        one.on_train_start(trainer, torch.nn.Module())
        torch.fake.run_out_of_memory()
    except Exception as error:
        one.on_exception(trainer, None, error)
        raise


def dies_in_composer(torch, composer, callback):
    one = callback()
    model = torch.nn.Module()
    optimizer = torch.optim.Optimizer(model.parameters())
    composer.Trainer(model, optimizer, [one], [torch.fake.run_out_of_memory]).fit()


def dies_in_tnt(torch, tnt, callback):
    tnt.train(tnts_unit(torch), [torch.fake.run_out_of_memory], [callback()])


@pytest.mark.parametrize("observed", [True, False], ids=["by the allocator", "by the exception"])
@pytest.mark.parametrize(
    "library, name, dies",
    [
        ("transformers", "TrainerCallback", dies_in_transformers),
        ("lightning", "LightningCallback", dies_in_lightning),
        ("composer", "ComposerCallback", dies_in_composer),
        ("tnt", "TNTCallback", dies_in_tnt),
    ],
)
def test_out_of_memory_is_explained_once(
    torch, record, tmp_path, request, monkeypatch, capfd, library, name, dies, observed
):
    """One snapshot, and one explanation on standard error, whoever sees it first."""
    if not observed:
        del torch._C._cuda_attach_out_of_memory_observer
    monkeypatch.setattr(answers, "why", lambda path, capacity=None: f"why of {path}")
    stub = request.getfixturevalue(library)
    with pytest.raises(torch.OutOfMemoryError):
        dies(torch, stub, lambda: getattr(callbacks, name)(tmp_path))
    assert reasons(tmp_path) == ["oom"] and not torch.fake.recording
    said = capfd.readouterr().err
    assert said.count("why of") == 1 and f"why of {tmp_path / names(tmp_path)[0]}" in said


# ---- trackers ----


def run_loop(tmp_path, **options):
    with callbacks.TrainingLoop(tmp_path, log_every=1, **options) as loop:
        loop.step()


def test_pages_and_numbers_go_where_a_run_is(
    torch, record, tmp_path, statistics, wandb, mlflow, page, monkeypatch
):
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    run_loop(tmp_path)
    assert names(tmp_path / "temporary", "") == []
    name = names(tmp_path)[0]
    assert [(list(values), commit) for values, commit in wandb.logged] == [
        (list(SCALARS), False),
        (["tessera/end"], False),
    ]
    assert wandb.logged[1][0]["tessera/end"].text == "<html>" + name
    assert mlflow.metrics == [(SCALARS, 1)] and mlflow.artifacts == [("<html>" + name, "tessera")]


def test_no_run_is_ever_started(torch, record, tmp_path, statistics, wandb, mlflow, page):
    wandb.run, mlflow.active_run = None, lambda: None
    run_loop(tmp_path)
    assert wandb.logged == mlflow.metrics == mlflow.artifacts == []


def test_trackers_are_not_imported(torch, record, tmp_path, statistics):
    run_loop(tmp_path)
    assert "wandb" not in sys.modules and "mlflow" not in sys.modules


def test_tensorboard_gets_numbers_and_the_reason(torch, record, tmp_path, statistics, monkeypatch):
    monkeypatch.setattr(answers, "why", lambda path, capacity=None: "because\nof this")
    writer = Writer()
    with pytest.raises(torch.OutOfMemoryError):
        with callbacks.TrainingLoop(tmp_path, writer=writer, log_every=1) as loop:
            loop.step()
            torch.fake.run_out_of_memory()
    assert writer.scalars == [(name, value, 1) for name, value in SCALARS.items()]
    assert writer.texts == [("tessera/why", "    because\n    of this")]


def test_peaks_of_the_last_steps_are_asked_for(torch, record, tmp_path, statistics):
    run_loop(tmp_path, reset_peaks=True)
    assert len(torch.fake.called("reset_peak_memory_stats")) == 1


def test_trackers_that_fail_cost_nothing(
    torch, record, tmp_path, statistics, wandb, mlflow, page, caplog
):
    def fails(*arguments, **options):
        raise ConnectionError("away")

    wandb.run.log = mlflow.log_metrics = mlflow.log_artifact = fails
    run_loop(tmp_path)
    assert reasons(tmp_path) == ["end"]
    assert sorted(warnings(caplog)) == [
        "logging to MLflow failed: ConnectionError: away",
        "logging to Weights & Biases failed: ConnectionError: away",
    ]


def test_an_older_mlflow(torch, record, tmp_path, statistics, mlflow):
    mlflow.log_metrics = lambda values, step=None: mlflow.metrics.append((values, step))
    run_loop(tmp_path, page=False)
    assert mlflow.metrics == [(SCALARS, 1)]


def test_nothing_where_pytorch_does_not_tell(torch, record, tmp_path, wandb):
    run_loop(tmp_path, page=False)
    assert wandb.logged == []


# ---- asking tessera ----


@pytest.fixture
def program(tmp_path, monkeypatch):
    """A stand-in for the command; what it prints, and with which status."""

    def make(text, status=0):
        path = tmp_path / "tessera"
        path.write_text(f"#!{sys.executable}\nimport sys, os\n{text}\nsys.exit({status})\n")
        path.chmod(0o755)
        monkeypatch.setenv("TESSERA", str(path))

    monkeypatch.undo()  # the fixture `process` stands in for why()
    return make


def test_why_by_the_command(program, monkeypatch):
    program("print(sys.argv[1:], [name for name in os.environ if 'TESSERA_RECORD' in name])")
    monkeypatch.setenv("TESSERA_RECORD", "out")
    monkeypatch.setattr(answers, "_open", lambda path: None)
    assert answers.why("a.pickle") == "['why', '--color', 'never', 'a.pickle'] []\n"
    wanted = "['why', '--color', 'never', '--capacity', '5B', 'a.pickle'] []\n"
    assert answers.why("a.pickle", 5) == wanted
    program("print('tessera: no such command')", status=2)
    assert answers.why("a.pickle") is None


def test_why_by_the_package(program, monkeypatch):
    class Answer:
        def __str__(self):
            return "the verdict"

    opened = types.SimpleNamespace(why=lambda: Answer())
    monkeypatch.setattr(answers, "_open", lambda path: opened)
    assert answers.why("a.pickle") == "the verdict"
    program("print('by the command')")
    opened.why = lambda: object()  # without words of its own
    assert answers.why("a.pickle") == "by the command\n"
    del opened.why  # a package that does not know the question
    assert answers.why("a.pickle") == "by the command\n"


def test_a_command_that_cannot_run(program, monkeypatch, tmp_path):
    path = tmp_path / "tessera"
    path.write_bytes(b"\x7fELF nonsense")
    path.chmod(0o755)
    monkeypatch.setenv("TESSERA", str(path))
    monkeypatch.setattr(answers, "_open", lambda path: None)
    assert answers.why("a.pickle") is None and answers.page("a.pickle", "out.html") is False
    with pytest.raises(answers.Unavailable):
        answers.check("a.pickle", ["1GiB"])


def test_check_tells_what_stood_in_its_way(program):
    program("print('no kind', file=sys.stderr)", status=2)
    with pytest.raises(answers.Unavailable, match="no kind"):
        answers.check("a.pickle", ["x=1GiB"])
    program("print(sys.argv[1:])", status=1)
    passed, told = answers.check(
        "a.pickle", ["1GiB", "activation=2GiB"], "3GiB", lock="l", tolerance="1%"
    )
    assert not passed
    wanted = "check --color never --max 1GiB --max activation=2GiB --max-reserved 3GiB --lock l"
    assert told == f"{[*wanted.split(), '--tolerance', '1%', 'a.pickle']}\n"
