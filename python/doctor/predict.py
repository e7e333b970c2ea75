"""Predictions, made as a user makes them: a program is traced on fake tensors, and `tessera simulate` runs its step graph."""
import json
import os
from typing import Any, Callable, Dict, Tuple

from . import _script, _trace, programs
from ._fake_cuda import patched

Command = Callable[..., Tuple[int, str, str]]  # words of a command line: its status, and what it printed on both streams


class Failed(Exception):
    """The command did not answer."""


def traced(torch: Any, program: programs.Program, gpu: str) -> Dict[str, Any]:
    """The step graph. The other forms of optimizers, which are not needed here, take time."""
    def whole() -> None:
        programs.run(torch, program, programs.TRACED)
    with patched(_trace, _optimizers=lambda *_: []), patched(_script, _optimizers=lambda *_: []):
        return _trace.trace(whole, gpu=gpu, value=1.0)


def asked(command: Command, *words: str) -> Dict[str, Any]:
    """The JSON of an answer."""
    status, said, complaint = command(*words, '--json')
    if status:
        lines = complaint.strip().splitlines()
        raise Failed(f'tessera {words[0]}: exit status {status}' + (f': {lines[-1]}' if lines else ''))
    try:
        answer: Dict[str, Any] = json.loads(said)
    except ValueError:
        raise Failed(f'tessera {words[0]}: its answer is no JSON') from None
    return answer


def simulated(command: Command, graph: Dict[str, Any], settings: str, folder: str) -> Dict[str, Any]:
    path = os.path.join(folder, 'step.graph')
    _trace.write(graph, path)
    more = ['--set', settings] if settings else []
    device = asked(command, 'simulate', path, '--steps', str(programs.STEPS), '--fresh-process', *more)['devices'][0]
    return {'peak': {'requested': device['peak']['requested_bytes'], 'allocated': device['peak']['allocated_bytes'],
                     'reserved': device['peak_reserved_bytes']},
            'phases': {row['name']: {'requested': row['requested_bytes'], 'allocated': row['allocated_bytes']} for row in device['phases']},
            'workspaces': sum(row['bytes'] for row in device['categories'] if row['name'] == 'workspace')}


def read(command: Command, path: str) -> Dict[str, int]:
    """What a snapshot has to say about the same."""
    devices = [device for device in asked(command, 'peak', path)['devices'] if device['events']]
    if not devices:
        raise Failed('the snapshot has no events')
    maxima = devices[0]['maxima']
    return {'allocated': maxima['allocated_bytes'], 'reserved': maxima['reserved_bytes']}
