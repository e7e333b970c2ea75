"""Fixtures of the tests of recording: a stand-in for PyTorch, and a process as it was before."""

import logging
import pickle
import signal

import fake_torch
import pytest

capture = fake_torch.load("_capture")
recorder = fake_torch.load("_record.recorder")
backend = fake_torch.load("_record.backend")
guard = fake_torch.load("_record.guard")
marks = fake_torch.load("_record.marks")
answers = fake_torch.load("_record.answers")
nothing = fake_torch.load("_record.nothing")
card = fake_torch.load("_record.card")


def clean():
    """Ends every recording and forgets what the process learned."""
    for running in reversed(list(recorder.active)):
        running.settings.at_end = False
        running.stop()
    del recorder.active[:]
    capture.record._started = None
    backend.history.reset()
    backend.observers.reset()
    marks.marks.reset()
    guard.forget()
    nothing.nothing.__init__()
    card.ledger.reset()
    fake_torch.uninstall()


@pytest.fixture(autouse=True)
def process(monkeypatch, caplog):
    caplog.set_level(logging.INFO, logger="tessera")
    for name in (
        "RANK",
        "WORLD_SIZE",
        "LOCAL_RANK",
        "SLURM_PROCID",
        "SLURM_NTASKS",
        "SLURM_JOB_ID",
        "TORCHELASTIC_RUN_ID",
        "TESSERA_RECORD",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TESSERA_NVML", "/absent/libnvidia-ml.so.1")  # there may be a card
    monkeypatch.setattr(answers, "why", lambda path, capacity=None: None)
    monkeypatch.setattr(answers, "page", lambda path, out: False)
    before = {number: signal.getsignal(number) for number in (signal.SIGUSR2, signal.SIGTERM)}
    yield
    clean()
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture
def torch():
    return fake_torch.install()


@pytest.fixture
def record():
    return capture.record


def names(folder, ending=".pickle"):
    """Names in a folder that end so, sorted; the dot files of unfinished writing count too."""
    return sorted(path.name for path in folder.iterdir() if path.name.endswith(ending))


def reasons(folder):
    return sorted(name[: -len(".pickle")].split("_", 3)[3] for name in names(folder))


def read(path):
    with open(path, "rb") as file:
        return pickle.load(file)


def warnings(caplog):
    return [entry.getMessage() for entry in caplog.records if entry.levelno >= logging.WARNING]
