"""What is checked without a GPU. Each function returns checks: rows with a group, a name, a status, a message, and what to do.

ok: as it should be. note: worth knowing, and nothing is wrong. skipped: could not be checked here. failed: something is wrong.
"""
import base64
import hashlib
import importlib.metadata
import json
import os
import platform
import shutil
import struct
import sys
import tempfile
from typing import Any, Dict, List, Optional

from . import goldens, machine, predict
from .compare import size

OK, NOTE, SKIPPED, FAILED = 'ok', 'note', 'skipped', 'failed'
SPACE_BYTES = 256 << 20  # in the temporary folder, for snapshots of programs
START = "import sys\nif sys.path[:1] == ['']: del sys.path[0]\nimport json, os, tessera\nout = {'version': tessera.__version__}\n"
# The library's own answer to the question that the command is asked, too.
LIBRARY = START + ("made = tessera.simulate(sys.argv[1], batch=4, seq=512, steps=2)\n"
                   "out['peak'] = made['devices'][0]['peak']['allocated_bytes']\nprint(json.dumps(out))\n")
RECORDER = START + ("folder, known = sys.argv[1], json.loads(sys.argv[2])\n"
                    "from tessera._record.files import write_snapshot\n"
                    "known['device_traces'] = [[dict(row, frames=[]) for row in known['device_traces'][0]]]\n"
                    "write_snapshot(os.path.join(folder, 'known.pickle'), known, False)\n"
                    "recording, has_card = tessera.record(os.path.join(folder, 'recorded')), False\n"
                    "try:\n  import torch\nexcept ImportError:\n  torch = None\n"
                    "with recording as inner:\n"
                    "  if torch is not None and torch.cuda.is_available():\n"
                    "    has_card, kept = True, torch.ones(1 << 20, device='cuda')\n"
                    "out['files'] = len(recording.files) if has_card else None\n"
                    "if torch is not None:\n"
                    "  from tessera._record.backend import find\n"
                    "  out['kinds'] = [kind.name for kind in find(torch)]\n"
                    "print(json.dumps(out))\n")


def check(group: str, name: str, status: str, message: str, advice: Optional[str] = None) -> Dict[str, Any]:
    return {'group': group, 'name': name, 'status': status, 'message': message, 'advice': advice}


# ---- tessera ----

def build(facts: Dict[str, Any]) -> List[Dict[str, Any]]:
    """What `tessera --version --json` says."""
    group, rows = 'tessera', []
    slow = ', with assertions, which make it slower' if facts['has_assertions'] else ''
    rows.append(check(group, 'command', NOTE if slow else OK,
                      f'tessera {facts["version"]} for {facts["system"]} on {facts["processor"]}, {facts["c_library"]}{slow}'))
    absent = [row for row in facts['libraries'] if row['file'] is None]
    if not facts['can_load_libraries']:
        rows.append(check(group, 'libraries', NOTE, 'a static binary, which has no sql, serve and view on a terminal',
                          'the package of your system, or pip install tessera'))
    elif absent:
        uses = '; '.join(f'{row["name"]} ({row["use"]})' for row in absent)
        rows.append(check(group, 'libraries', NOTE, f'{len(facts["libraries"]) - len(absent)} of {len(facts["libraries"])} are here. Absent: {uses}'.replace('`', '')))
    else:
        rows.append(check(group, 'libraries', OK, f'all {len(facts["libraries"])} that commands load are here'))
    if facts['system'] == 'linux':
        is_confined = facts['landlock'] > 0 and facts['seccomp']
        what = f'Landlock {facts["landlock"]}' if facts['landlock'] else 'no Landlock'
        rows.append(check(group, 'confinement', OK if is_confined else NOTE,
                          f'{what}, {"seccomp" if facts["seccomp"] else "no seccomp"}' +
                          ('' if is_confined else ': commands are not confined to what their command line says')))
    return rows


def answers(command: predict.Command, folder: str) -> List[Dict[str, Any]]:
    """A run is simulated, and its snapshot read again."""
    group, name, path = 'tessera', 'answers', os.path.join(folder, 'known.pickle')
    try:
        made = predict.asked(command, 'simulate', *goldens.ANSWER_WORDS, '-o', path)['devices'][0]
        found = predict.asked(command, 'peak', path)['devices'][0]
    except predict.Failed as error:
        return [check(group, name, FAILED, str(error), 'install tessera again')]
    peaks = [made['peak']['allocated_bytes'], found['peak']['allocated_bytes']]
    if peaks != [goldens.ANSWER_BYTES] * 2:
        return [check(group, name, FAILED, f'gpt2 needs {goldens.ANSWER_BYTES} bytes, but simulate says {peaks[0]}, and peak {peaks[1]}',
                      'install tessera again, and report it if that does not help')]
    return [check(group, name, OK, f'simulate and peak have the known answer, {size(peaks[0])} for gpt2')]


# ---- Python ----

def python() -> List[Dict[str, Any]]:
    bits, is_venv = 8 * struct.calcsize('P'), sys.prefix != sys.base_prefix
    text = f'{platform.python_implementation()} {platform.python_version()}, {bits} bits' + (', in a virtual environment' if is_venv else '')
    if sys.version_info < (3, 9) or bits != 64:
        return [check('python', 'python', FAILED, text, 'use Python 3.9 or newer, with 64 bits')]
    return [check('python', 'python', OK, text)]


def _damaged(found: importlib.metadata.Distribution) -> List[str]:
    """Files of an installed package that are absent, or not what was installed."""
    wrong = []
    for file in found.files or ():
        # Programs are elsewhere with pip install --target.
        if file.hash is None or file.hash.mode != 'sha256' or file.suffix == '.pyc' or file.parts[0] == '..':
            continue
        try:
            with open(str(file.locate()), 'rb') as opened:
                digest = hashlib.sha256(opened.read()).digest()
        except OSError:
            wrong.append(file.name)
            continue
        if base64.urlsafe_b64encode(digest).rstrip(b'=').decode() != file.hash.value:
            wrong.append(file.name)
    return wrong


def package(host: Any, version: str) -> List[Dict[str, Any]]:
    """The Python package: that it is whole, that it is the command's, and that both have the same answer."""
    group = 'python'
    try:
        installed: Optional[importlib.metadata.Distribution] = importlib.metadata.distribution('tessera')
    except importlib.metadata.PackageNotFoundError:
        installed = None
    if installed is None and not host.has_module('tessera'):
        return [check(group, 'package', SKIPPED, 'the package tessera is not installed in this Python: tessera.record and notebooks need it',
                      f'pip install tessera=={version}')]
    rows = []
    status, said = host.python(LIBRARY, goldens.ANSWER_WORDS[0])
    try:
        found = json.loads(said.splitlines()[-1]) if status == 0 else None
    except (ValueError, IndexError):
        found = None
    again = f'pip install --force-reinstall tessera=={version}'
    if found is None:
        last = (said.strip().splitlines() or [f'exit status {status}'])[-1]
        rows.append(check(group, 'package', FAILED, f'the package tessera cannot be used: {host.clean(last)[:200]}', again))
    elif found['version'] != version:
        rows.append(check(group, 'package', FAILED, f'the package is tessera {found["version"]}, and the command {version}', again))
    elif found['peak'] != goldens.ANSWER_BYTES:
        rows.append(check(group, 'package', FAILED, f'the library says {found["peak"]} bytes where the command says {goldens.ANSWER_BYTES}', again))
    else:
        rows.append(check(group, 'package', OK, f'tessera {version}, with the same answers as the command'))
    if installed is not None:
        wrong = _damaged(installed)
        rows.append(check(group, 'files', FAILED if wrong else OK,
                          f'{len(wrong)} files of the package are absent or changed: {", ".join(sorted(wrong)[:3])}' if wrong else
                          f'all {len(installed.files or ())} files of the package are as installed', again if wrong else None))
    return rows


def recorder(host: Any, command: predict.Command, folder: str) -> List[Dict[str, Any]]:
    """tessera.record starts and stops, and what its writer writes is read."""
    group, name = 'python', 'recorder'
    status, said = host.python(RECORDER, folder, json.dumps(goldens.SNAPSHOT))
    try:
        found = json.loads(said.splitlines()[-1]) if status == 0 else None
    except (ValueError, IndexError):
        found = None
    if found is None:
        last = (said.strip().splitlines() or [f'exit status {status}'])[-1]
        return [check(group, name, FAILED, f'tessera.record cannot be used: {host.clean(last)[:200]}', 'install tessera again')]
    try:
        read = predict.read(command, os.path.join(folder, 'known.pickle'))
    except predict.Failed as error:
        return [check(group, name, FAILED, f'what the recorder writes cannot be read: {error}', 'install tessera again')]
    if read['allocated'] != goldens.SNAPSHOT_BYTES:
        return [check(group, name, FAILED, f'the recorder wrote {goldens.SNAPSHOT_BYTES} bytes, and {read["allocated"]} are read', 'report it')]
    if found['files'] == 0:
        return [check(group, name, FAILED, 'tessera.record wrote no snapshot of a program that used the GPU', 'see docs/capture.md')]
    kinds = found.get('kinds')
    if kinds == []:
        return [check(group, name, NOTE, 'writes, but this PyTorch has no memory history: it is built without CUDA, XPU or NPU', 'install the wheel for CUDA')]
    what = f', of {" and ".join(kind.upper() for kind in kinds)} with this PyTorch' if kinds else ''
    return [check(group, name, OK, f'starts, stops, and writes what is read again{what}')]


# ---- the machine ----

def _why_not(folder: str, room_bytes: int = 0) -> Optional[str]:
    """Why nothing can be written to a folder, or where it will be made."""
    while not os.path.isdir(folder) and os.path.dirname(folder) != folder:
        if os.path.lexists(folder):
            return 'it is not a folder'
        folder = os.path.dirname(folder)
    try:
        handle, path = tempfile.mkstemp(prefix='.tessera-doctor-', dir=folder)
        os.close(handle)
        os.unlink(path)
    except OSError as error:
        return error.strerror or 'it cannot be written'
    free = shutil.disk_usage(folder).free
    return f'only {size(free)} are free' if free < room_bytes else None


def folders(environment: Any) -> List[Dict[str, Any]]:
    cache, home = environment.get('XDG_CACHE_HOME', ''), os.path.expanduser('~/.cache')
    rows = (('temp', tempfile.gettempdir(), SPACE_BYTES, 'TMPDIR names another folder'),
            ('config', os.path.dirname(machine.place(environment)), 0, 'TESSERA_MACHINE names another file for what is measured here'),
            ('cache', os.path.join(cache if os.path.isabs(cache) else home, 'tessera'), 0, 'XDG_CACHE_HOME names another folder for traced models'))
    out = []
    for name, folder, room, advice in rows:
        if not folder:
            continue
        why = _why_not(folder, room)
        out.append(check('machine', f'{name} folder', FAILED if why else OK, why or 'can be written', advice if why else None))
    return out


def terminal(environment: Any, is_terminal: bool, columns: int) -> List[Dict[str, Any]]:
    named = next((environment[name] for name in ('LC_ALL', 'LC_CTYPE', 'LANG') if environment.get(name)), '')
    is_utf8 = 'utf8' in named.lower().replace('-', '')
    shown = f'{columns} columns' if is_terminal else 'not a terminal'
    color = ', NO_COLOR' if environment.get('NO_COLOR') else ''
    known = ''.join(c for c in named if c.isalnum() or c in '_.-@')[:40]
    return [check('machine', 'terminal', OK if is_utf8 else NOTE, f'{shown}, locale {known or "unset"}{color}' +
                  ('' if is_utf8 else ': not UTF-8, so other programs may show names of files and functions wrongly'),
                  None if is_utf8 else 'LC_ALL=C.UTF-8')]
