"""machine.json: what only a measurement on this machine can know, for `simulate` and others.

    {"schema": "tessera/machine/1",
     "devices": [{"name": "NVIDIA H100 80GB HBM3", "driver": "580.65.06", "cuda": "12.8", "context_bytes": 554696704, "libraries_bytes": 167772160,
                  "nccl_bytes_per_communicator": null, "measured_at": "2026-11-28T09:30:00Z"}]}

Its folder is $XDG_CONFIG_HOME/tessera or ~/.config/tessera; $TESSERA_MACHINE names another file, or none if it is
empty. Readers take the first device of a name, so the newest one comes first.
"""
import json
import os
import tempfile
from typing import Any, Dict, List, Mapping

SCHEMA = 'tessera/machine/1'
MOST_BYTES = 1 << 20
MOST_DEVICES = 64


class Unreadable(Exception):
    """The file exists and is something else, or another version of it."""


def place(environment: Mapping[str, str]) -> str:
    """Its path; '' if it is not wanted."""
    named, home = environment.get('TESSERA_MACHINE'), environment.get('XDG_CONFIG_HOME', '')
    if named is not None:
        return os.path.abspath(named) if named else ''
    return os.path.join(home if os.path.isabs(home) else os.path.expanduser('~/.config'), 'tessera', 'machine.json')


def load(path: str) -> List[Dict[str, Any]]:
    """Its devices; none if there is no file. Raises OSError or Unreadable."""
    try:
        with open(path, 'rb') as file:
            data = file.read(MOST_BYTES + 1)
    except FileNotFoundError:
        return []
    try:
        document = json.loads(data.decode('utf-8')) if len(data) <= MOST_BYTES else None
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict) or document.get('schema') != SCHEMA:
        raise Unreadable('this version of tessera did not write it')
    devices = document.get('devices')
    if not isinstance(devices, list) or not all(isinstance(device, dict) for device in devices):
        raise Unreadable('its devices are no list of objects')
    return devices


def save(path: str, device: Dict[str, Any]) -> None:
    """Put in a device. One of the same name, driver and CUDA is replaced; an unreadable file is kept as it is, with Unreadable."""
    keys = ('name', 'driver', 'cuda')
    others = [known for known in load(path) if any(known.get(key) != device[key] for key in keys)]
    document = {'schema': SCHEMA, 'devices': [device, *others][:MOST_DEVICES]}
    folder = os.path.dirname(path)
    os.makedirs(folder, mode=0o700, exist_ok=True)
    handle, temporary = tempfile.mkstemp(prefix='.machine.', dir=folder)
    try:
        with os.fdopen(handle, 'w', encoding='utf-8') as file:
            json.dump(document, file, indent=1)
            file.write('\n')
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
