"""The options of a recording: one table for calls and for the environment.

    record("out/", steps=[3, 10], every=10)
    TESSERA_RECORD=out/ TESSERA_RECORD_STEPS=3,10 TESSERA_RECORD_EVERY=10

mean the same. A wrong option raises TypeError or ValueError at the call: it is a mistake in
the program, found before training starts. In the environment it is only a warning, and the
option keeps its default.
"""

from __future__ import annotations

import difflib
import math
import os
import re
import signal as _signal
from typing import AbstractSet, Any, Callable, List, Mapping, Optional, Sequence, TypedDict, Union

from .guard import warn_once

VARIABLE = "TESSERA_RECORD"
DEFAULT_FOLDER = "tessera-record"
Check = Callable[
    [str, Any], Any
]  # a check takes an option's name and value, and returns the value to use


def _folder(text: str | None) -> str | None:
    """The folder in TESSERA_RECORD: None if it is off, the default folder if it is just on."""
    word = (text or "").strip().lower()
    if word in ("", "0", "false", "no", "off"):
        return None
    return DEFAULT_FOLDER if word in ("1", "true", "yes", "on") else text


def _number(minimum: float) -> Check:
    def read(name: str, value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, (int, float)) or value < minimum:
            raise ValueError(f"{name}: a number of at least {minimum} is wanted, not {value!r}")
        return value

    return read


_MINUTES = {"s": 1 / 60, "sec": 1 / 60, "m": 1.0, "min": 1.0, "h": 60.0, "d": 1440.0}
_PERIOD = re.compile(r"\s*([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*([a-z]+)\s*", re.IGNORECASE)


def _period(name: str, value: Any) -> float:
    """A time in minutes: a number of them, or a text with a unit, "30s", "1min" or "2h"."""
    if isinstance(value, str):
        match = _PERIOD.fullmatch(value)
        unit = match and _MINUTES.get(match[2].lower())
        if match is None or unit is None:
            raise ValueError(
                f"{name}: minutes, or a text such as '30s', '1min' or '2h' is wanted, not {value!r}"
            )
        value = float(match[1]) * unit
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{name}: a finite time is wanted, not {value!r}")
    return _number(0.001)(name, value)  # type: ignore[no-any-return]


def _whole(minimum: int) -> Check:
    def read(name: str, value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or value < minimum:
            raise ValueError(
                f"{name}: a whole number of at least {minimum} is wanted, not {value!r}"
            )
        return value

    return read


def _steps_between(name: str, value: Any) -> int | None:
    """A number of steps; True is each of them, False and None are none."""
    if value is None or value is False:
        return None
    return 1 if value is True else _whole(1)(name, value)


def _flag(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"{name}: True or False is wanted, not {value!r}")
    return value


def _one_of(*choices: Any) -> Check:
    def read(name: str, value: Any) -> Any:
        if value not in choices:
            wanted = " or ".join(repr(choice) for choice in choices)
            raise ValueError(f"{name}: {wanted} is wanted, not {value!r}")
        return value

    return read


def _optional(read: Check) -> Check:
    return lambda name, value: None if value is None else read(name, value)


def _whole_numbers(name: str, value: Any) -> frozenset[int]:
    numbers = {value} if isinstance(value, int) and not isinstance(value, bool) else set(value)
    for number in numbers:
        _whole(0)(name, number)
    return frozenset(numbers)


def _signal_number(name: str, value: Any) -> _signal.Signals:
    """A signal's number or its name; True is SIGUSR2, which only Unix has."""
    if value is True:
        value = "SIGUSR2"
    if isinstance(value, str):
        text = value.upper() if value.upper().startswith("SIG") else "SIG" + value.upper()
        value = getattr(_signal, text, None)
        if value is None:
            raise ValueError(f"{name}: there is no signal {text} on this system")
    try:
        return _signal.Signals(value)
    except (ValueError, TypeError):
        raise ValueError(f"{name}: not a signal: {value!r}") from None


def _signals(name: str, value: Any) -> Any:
    """None, "auto", or a tuple of signals: of one or several, also as a text with commas."""
    if value is None or value is False:
        return None
    if value == "auto":
        return value
    if isinstance(value, str):
        value = [part for part in value.replace(" ", "").split(",") if part]
    several = value if isinstance(value, (list, tuple, set, frozenset)) else [value]
    return tuple(_signal_number(name, one) for one in several) or None


def _actions(name: str, value: Any) -> list[Any]:
    if isinstance(value, str):
        raise ValueError(f"{name}: a list of actions is wanted, not {value!r}")
    return list(value)


def _mesh(name: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{name}: a dictionary is wanted, as in {{'dp': 3, 'tp': 0}}")
    return {str(key): value[key] for key in value}


# name: (default, check)
OPTIONS = {
    "stacks": ("python", _one_of("python", "all")),
    "context": ("all", _one_of(None, "state", "alloc", "all")),
    "max_entries": (1000000, _whole(1)),
    "trace": (True, _flag),
    "compile_context": (None, _optional(_flag)),
    "skip_actions": (None, _optional(_actions)),
    "pinned": (False, _flag),
    "steps": (frozenset(), _whole_numbers),
    "every": (None, _optional(_period)),  # minutes
    "keep": (3, _whole(1)),
    "log_steps": (None, _steps_between),
    "log_json": (False, _flag),
    "signal": ("auto", _signals),
    "on_oom": (True, _flag),
    "oom_limit": (3, _whole(1)),
    "at_end": (True, _flag),
    "ranks": (None, _optional(_whole_numbers)),
    "annotate": (True, _flag),
    "sidecar": (True, _flag),
    "card": (True, _flag),
    "explain": (True, _flag),
    "gzip": (False, _flag),
    "quiet": (False, _flag),
    "mesh": (None, _optional(_mesh)),
    "device": (None, _optional(_one_of("cuda", "xpu", "npu"))),
}


Path = Union[None, str, "os.PathLike[str]"]
_Numbers = Union[int, Sequence[int], AbstractSet[int]]
_Signals = Union[None, bool, int, str, Sequence[Union[int, str]]]


class Options(TypedDict, total=False):
    """The options of a recording; docs/capture.md explains them.

    stacks: "python", or "all" for native frames too
    context: whose stacks: None, "state", "alloc" or "all"
    max_entries: events that the history holds
    trace: whether snapshots have a trace; False: only what is allocated, with its stacks
    compile_context: whether compiled regions are named; None: if torch._dynamo is loaded
    skip_actions: actions that are not recorded (PyTorch 2.11)
    pinned: pinned host memory too (PyTorch 2.14)
    steps: steps at whose end a snapshot is written
    every: minutes between periodic snapshots, or a text such as "30s", "1min" or "2h"
    keep: how many of these are kept
    log_steps: steps between two lines about memory, on standard error; True: each step
    log_json: these lines as JSON, in a file of each rank
    signal: signals that ask for one: names, numbers, None, or "auto"
    on_oom: whether one is written when memory runs out
    oom_limit: how many of these, at most
    at_end: whether one is written at the end
    ranks: which ranks write what is not urgent; None: all
    annotate: marks of steps, forward and backward, and names of tensors
    sidecar: a JSON file next to each snapshot
    card: whether it has what else is on the card, sampled over time
    explain: whether `tessera why` is printed when memory runs out
    gzip: compressed snapshots
    quiet: no line about each snapshot
    mesh: this process's place, such as {"dp": 3, "tp": 0}
    device: "cuda", "xpu" or "npu"; None: the one that is used"""

    stacks: str
    context: Optional[str]
    max_entries: int
    trace: bool
    compile_context: Optional[bool]
    skip_actions: Optional[Sequence[str]]
    pinned: bool
    steps: _Numbers
    every: Union[None, float, str]
    keep: int
    log_steps: Union[None, bool, int]
    log_json: bool
    signal: _Signals
    on_oom: bool
    oom_limit: int
    at_end: bool
    ranks: Optional[_Numbers]
    annotate: bool
    sidecar: bool
    card: bool
    explain: bool
    gzip: bool
    quiet: bool
    mesh: Optional[Mapping[str, Any]]
    device: Optional[str]


class Settings:
    """The options as attributes, and `out`: where the files go."""

    stacks: str
    context: Optional[str]
    max_entries: int
    trace: bool
    compile_context: Optional[bool]
    skip_actions: Optional[List[str]]
    pinned: bool
    steps: frozenset[int]
    every: Optional[float]
    keep: int
    log_steps: Optional[int]
    log_json: bool
    signal: Any  # None, "auto", or a tuple of signals
    on_oom: bool
    oom_limit: int
    at_end: bool
    ranks: Optional[frozenset[int]]
    annotate: bool
    sidecar: bool
    card: bool
    explain: bool
    gzip: bool
    quiet: bool
    mesh: Optional[dict[str, Any]]
    device: Optional[str]

    def __init__(self, out: Path = None, **options: Any) -> None:
        unknown = sorted(set(options) - set(OPTIONS))
        if unknown:
            raise TypeError(f"record has no option {', '.join(unknown)}")
        if out is None:
            out = _folder(os.environ.get(VARIABLE)) or DEFAULT_FOLDER
        path = os.fspath(out)
        if not isinstance(path, str):
            raise TypeError("out: a path of text is wanted, not bytes")
        self.given = dict(options)  # to report those that a running recording ignores
        # Resolved now, because the program may change its folder before anything is written.
        self.out = os.path.abspath(path)
        for name, (default, check) in OPTIONS.items():
            value = options.get(name, default)
            setattr(self, name, check(name, value) if name in options else default)


def _from_text(name: str, text: str) -> Any:
    """The value of an option from the text of its environment variable."""
    if name in ("steps", "ranks"):
        return [int(part) for part in text.replace(" ", "").split(",") if part]
    if name == "skip_actions":
        return [part for part in text.replace(" ", "").split(",") if part]
    if name in ("max_entries", "keep", "oom_limit"):
        return int(text)
    if name == "every":
        return text if re.search("[A-Za-z]", text) else float(text)
    if name == "log_steps" and text.strip().isdigit():
        return int(text) or False
    lowered = text.strip().lower()
    if name == "context" and lowered == "none":
        return None
    if lowered in ("1", "true", "yes", "on"):
        return True
    if lowered in ("0", "false", "no", "off"):
        return False
    return text


def _warn_of_unknown(environment: Mapping[str, str]) -> None:
    """Names of variables that begin like ours and are none, most likely misspelt."""
    known = {f"{VARIABLE}_{name.upper()}": name for name in OPTIONS}
    for variable in sorted(environment):
        if not variable.startswith(VARIABLE + "_"):
            continue
        if known.get(variable) == "mesh":
            warn_once(
                "mesh variable", "%s is left out: mesh= can only be given in a call", variable
            )
        elif variable not in known:
            word = variable[len(VARIABLE) + 1 :].lower()
            near = difflib.get_close_matches(word, OPTIONS, 1)
            hint = (
                f"did you mean {VARIABLE}_{near[0].upper()}?"
                if near
                else "docs/capture.md lists the options"
            )
            warn_once(
                "variable " + variable, "%s is no option of tessera.record; %s", variable, hint
            )


def from_environment(environment: Mapping[str, str] | None = None) -> Settings | None:
    """The settings in TESSERA_RECORD and related variables, or None if it is not set."""
    environment = os.environ if environment is None else environment
    out = _folder(environment.get(VARIABLE))
    if out is None:
        return None
    options = {}
    _warn_of_unknown(environment)
    for name in OPTIONS:
        text = environment.get(f"{VARIABLE}_{name.upper()}")
        if name == "mesh" or not text:
            continue
        try:
            value = _from_text(name, text)
            Settings(out, **{name: value})
            options[name] = value
        except (ValueError, TypeError) as error:
            warn_once(
                "environment " + name,
                "%s_%s=%s is left out: %s",
                VARIABLE,
                name.upper(),
                text,
                error,
            )
    return Settings(out, **options)
