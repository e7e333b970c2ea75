"""The options of a recording: one table for calls and for the environment.

    record("out/", steps=[3, 10], every=10)
    TESSERA_RECORD=out/ TESSERA_RECORD_STEPS=3,10 TESSERA_RECORD_EVERY=10

mean the same. A wrong option raises TypeError or ValueError at the call: it is a mistake in
the program, found before training starts. In the environment it is only a warning, and the
option keeps its default.
"""

import difflib
import os
import signal as _signal

from .guard import warn_once

VARIABLE = "TESSERA_RECORD"
DEFAULT_FOLDER = "tessera-record"


def _folder(text):
    """The folder in TESSERA_RECORD: None if it is off, the default folder if it is just on."""
    word = (text or "").strip().lower()
    if word in ("", "0", "false", "no", "off"):
        return None
    return DEFAULT_FOLDER if word in ("1", "true", "yes", "on") else text


def _number(minimum):
    def read(name, value):
        if isinstance(value, bool) or not isinstance(value, (int, float)) or value < minimum:
            raise ValueError(f"{name}: a number of at least {minimum} is wanted, not {value!r}")
        return value

    return read


def _whole(minimum):
    def read(name, value):
        if isinstance(value, bool) or not isinstance(value, int) or value < minimum:
            raise ValueError(
                f"{name}: a whole number of at least {minimum} is wanted, not {value!r}"
            )
        return value

    return read


def _flag(name, value):
    if not isinstance(value, bool):
        raise ValueError(f"{name}: True or False is wanted, not {value!r}")
    return value


def _one_of(*choices):
    def read(name, value):
        if value not in choices:
            wanted = " or ".join(repr(choice) for choice in choices)
            raise ValueError(f"{name}: {wanted} is wanted, not {value!r}")
        return value

    return read


def _optional(read):
    return lambda name, value: None if value is None else read(name, value)


def _whole_numbers(name, value):
    numbers = {value} if isinstance(value, int) and not isinstance(value, bool) else set(value)
    for number in numbers:
        _whole(0)(name, number)
    return frozenset(numbers)


def _signal_number(name, value):
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


def _signals(name, value):
    """None, "auto", or a tuple of signals: of one or several, also as a text with commas."""
    if value is None or value is False:
        return None
    if value == "auto":
        return value
    if isinstance(value, str):
        value = [part for part in value.replace(" ", "").split(",") if part]
    several = value if isinstance(value, (list, tuple, set, frozenset)) else [value]
    return tuple(_signal_number(name, one) for one in several) or None


def _actions(name, value):
    if isinstance(value, str):
        raise ValueError(f"{name}: a list of actions is wanted, not {value!r}")
    return list(value)


def _mesh(name, value):
    if not isinstance(value, dict):
        raise ValueError(f"{name}: a dictionary is wanted, as in {{'dp': 3, 'tp': 0}}")
    return {str(key): value[key] for key in value}


# name: (default, check)
OPTIONS = {
    "stacks": ("python", _one_of("python", "all")),
    "context": ("all", _one_of(None, "state", "alloc", "all")),
    "max_entries": (1000000, _whole(1)),
    "compile_context": (None, _optional(_flag)),
    "skip_actions": (None, _optional(_actions)),
    "pinned": (False, _flag),
    "steps": (frozenset(), _whole_numbers),
    "every": (None, _optional(_number(0.001))),  # minutes
    "keep": (3, _whole(1)),
    "signal": ("auto", _signals),
    "on_oom": (True, _flag),
    "oom_limit": (3, _whole(1)),
    "at_end": (True, _flag),
    "ranks": (None, _optional(_whole_numbers)),
    "annotate": (True, _flag),
    "sidecar": (True, _flag),
    "explain": (True, _flag),
    "gzip": (False, _flag),
    "quiet": (False, _flag),
    "mesh": (None, _optional(_mesh)),
    "device": (None, _optional(_one_of("cuda", "xpu", "npu"))),
}


class Settings:
    """The options as attributes, and `out`: where the files go."""

    def __init__(self, out=None, **options):
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


def _from_text(name, text):
    """The value of an option from the text of its environment variable."""
    if name in ("steps", "ranks"):
        return [int(part) for part in text.replace(" ", "").split(",") if part]
    if name == "skip_actions":
        return [part for part in text.replace(" ", "").split(",") if part]
    if name in ("max_entries", "keep", "oom_limit"):
        return int(text)
    if name == "every":
        return float(text)
    lowered = text.strip().lower()
    if name == "context" and lowered == "none":
        return None
    if lowered in ("1", "true", "yes", "on"):
        return True
    if lowered in ("0", "false", "no", "off"):
        return False
    return text


def _warn_of_unknown(environment):
    """Names of variables that begin like ours and are none, most likely misspelt."""
    known = {f"{VARIABLE}_{name.upper()}": name for name in OPTIONS}
    for variable in sorted(environment):
        if not variable.startswith(VARIABLE + "_"):
            continue
        if known.get(variable) == "mesh":
            warn_once("mesh variable", "%s is left out: mesh= can only be given in a call", variable)
        elif variable not in known:
            word = variable[len(VARIABLE) + 1 :].lower()
            near = difflib.get_close_matches(word, OPTIONS, 1)
            hint = f"did you mean {VARIABLE}_{near[0].upper()}?" if near else "docs/capture.md lists the options"
            warn_once("variable " + variable, "%s is no option of tessera.record; %s", variable, hint)


def from_environment(environment=None):
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
