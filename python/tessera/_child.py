"""A trace in a process of its own, for the command and for tessera.simulate(): a request in JSON comes in, a step graph goes out.

The request is one line: {"config": text or null, "options": {...}, "gpu": CARD, ...}, or {"script": ..., "arguments": [...]}. The answer is one line,
a word and what it is about, and after "graph" the graph:

    graph traced a step of Qwen3ForCausalLM with ...     and the graph
    lacks torch transformers                             packages that are not installed
    refused --seq 2048: the model has 448 positions      one sentence

Graphs of configs are kept in the user's cache, under the hash of everything that they depend on: the description, the options, the versions of
PyTorch, transformers and tessera. A file is compressed, so that damage shows when it is read, and is put in place by renaming.
"""
import gzip
import hashlib
import importlib.metadata
import importlib.util
import json
import os
import sys
import tempfile
import zlib
from typing import Any, Dict, List, Optional, Tuple

_CACHE_BYTES = 256 << 20
_MODULES = ('torch', 'transformers')


def _lacking(names: Tuple[str, ...]) -> List[str]:
    return [name for name in names if importlib.util.find_spec(name) is None]


# ---- The cache ----

def _folder() -> str:
    home = os.environ.get('XDG_CACHE_HOME', '')
    return os.path.join(home if os.path.isabs(home) else os.path.expanduser('~/.cache'), 'tessera', 'graphs')


def _key(request: Dict[str, Any], code: str) -> str:
    """The hash of everything that the graph depends on. Frames have the paths of packages."""
    places = [(name, importlib.metadata.version(name), getattr(importlib.util.find_spec(name), 'origin', '')) for name in _MODULES]
    try:
        config = json.loads(request['config'])
    except (ValueError, RecursionError):
        config = request['config']
    parts = [config, request['options'], request['gpu'], places, sys.version, code]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def _cached(key: str) -> Optional[Tuple[str, bytes]]:
    path = os.path.join(_folder(), f'{key}.gz')
    try:
        with gzip.open(path) as file:
            note, _, graph = file.read().partition(b'\n')
        os.utime(path)  # for _trim()
        return (note.decode(), graph) if graph else None
    except (OSError, EOFError, zlib.error, UnicodeDecodeError):
        return None


def _keep(key: str, note: str, graph: bytes) -> None:
    """Put a graph into the cache. A cache that cannot be written is none."""
    folder, temporary = _folder(), ''
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=folder)
        with os.fdopen(handle, 'wb') as file:
            file.write(gzip.compress(note.encode() + b'\n' + graph, 6, mtime=0))
        os.replace(temporary, os.path.join(folder, f'{key}.gz'))
        _trim(folder)
    except OSError:
        if os.path.exists(temporary):
            os.unlink(temporary)


def _trim(folder: str) -> None:
    """Remove the graphs that were not used for longest, until the rest is small enough."""
    found = [(entry.stat().st_mtime, entry.stat().st_size, entry.path) for entry in os.scandir(folder) if entry.is_file(follow_symlinks=False)]
    total = 0
    for _, size, path in sorted(found, reverse=True):
        total += size
        if total > _CACHE_BYTES:
            os.unlink(path)


# ---- Requests ----

def _of_config(request: Dict[str, Any], code: str) -> Tuple[str, bytes]:
    from . import _config
    key = _key(request, code)
    known = _cached(key)
    if known:
        return f'{known[0]} (from the cache)', known[1]
    import torch  # noqa: F401
    import transformers  # noqa: F401
    _config.bounded()
    with _config.guarded():
        graph, note = _config.graph_of(request['config'], _config.Options(request['options'], request['dashes']), request['gpu'])
    text = json.dumps(graph, separators=(',', ':')).encode()
    _keep(key, note, text)
    return note, text


def _of_script(request: Dict[str, Any]) -> Tuple[str, bytes]:
    from . import _script
    graph, name = _script.traced_script(request)
    slots = graph['slots']['bytes']
    return f'one step of {name}, {len(slots) - graph["static"]} allocations', json.dumps(graph, separators=(',', ':')).encode()


def _answer(request: Dict[str, Any], code: str) -> Tuple[str, bytes]:
    is_config = request.get('config') is not None
    if is_config:
        os.environ.update(HF_HUB_OFFLINE='1', TRANSFORMERS_OFFLINE='1', TRANSFORMERS_VERBOSITY='error')
    lacking = _lacking(_MODULES if is_config else _MODULES[:1])
    if lacking:
        return f'lacks {" ".join(lacking)}', b''
    from ._fake_cuda import TraceError
    try:
        note, graph = _of_config(request, code) if is_config else _of_script(request)
        return f'graph {note}', graph
    except TraceError as error:
        return f'refused {error}', b''
    except ImportError as error:
        return f'refused Python cannot import {error.name}: {error}', b''
    except OSError as error:
        return f'refused {error}', b''


def _code() -> str:
    """The hash of the tracer's modules, as files of the package."""
    here = os.path.dirname(__file__)
    digest = hashlib.sha256()
    for name in sorted(os.listdir(here)):
        if name.endswith('.py'):
            with open(os.path.join(here, name), 'rb') as file:
                digest.update(file.read())
    return digest.hexdigest()


def run(request: Dict[str, Any], code: str, results: int) -> None:
    """Answer a request on a file descriptor. Whatever the program prints goes to standard error. `code` is the hash of the tracer, if it is
    not in files."""
    if results == 1:
        results = os.dup(1)
        os.dup2(2, 1)
    try:
        head, graph = _answer(request, code or _code())
    except KeyboardInterrupt:
        os._exit(130)
    with os.fdopen(results, 'wb') as file:
        file.write(' '.join(head.split()).encode('utf-8', 'replace') + b'\n' + graph)
    sys.stdout.flush()
    os._exit(0)  # nothing of a large model is worth freeing one by one
