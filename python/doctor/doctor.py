"""`tessera doctor`: whether tessera is right on this machine.

The command starts this in the user's Python (cmd/core/doctor.c), as it does the tracer. With a GPU, a process of its own runs the programs of programs.py
while this one predicts them; without one, the predictions are compared with recorded ones. Whatever needs the machine goes through a Host, and whatever
needs a GPU through a Card (card.py), so that tests can put others in their places.
"""
import contextlib
import getpass
import importlib
import importlib.util
import os
import platform
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

from . import card as cards
from . import checks, compare, goldens, machine, predict, programs, report
from .checks import FAILED, NOTE, OK, SKIPPED, check
from .talk import Lost, Worker, one_line

CONTEXT_BYTES = 64 << 20, 4 << 30  # what a context can be; else another process was busy at the same time
COMMAND_S = 120


class Host:
    """What the doctor asks of the machine."""

    def __init__(self, request: Dict[str, Any], archive: bytes) -> None:
        self.request, self.archive = request, archive
        self.environment: Any = os.environ
        self.words: List[str] = []
        self._private = self._find_private()
        self._screen: Optional[int] = os.dup(2) if request.get('progress') else None
        self._shown = 0

    # ---- other programs ----

    def _candidates(self) -> Iterator[List[str]]:
        program = self.request.get('program') or ''
        if program and not os.path.basename(program).lower().startswith('python'):
            yield [program]
        for python in (self.environment.get('TESSERA_PYTHON'), sys.executable):  # the package's command is in an extension
            if python:
                yield [python, '-P', '-m', 'tessera'] if sys.version_info >= (3, 11) else [python, '-m', 'tessera']
        found = shutil.which('tessera')
        if found:
            yield [found]

    def find_command(self) -> Optional[Dict[str, Any]]:
        """Find how to call this very command: what it says of its build, or None."""
        for words in self._candidates():
            self.words = words
            with contextlib.suppress(predict.Failed):
                facts = predict.asked(self.command, '--version')
                if facts.get('version') == self.request['version']:
                    return facts
        self.words = []
        return None

    def command(self, *words: str) -> Tuple[int, str, str]:
        return self._run([*self.words, *words])

    def _run(self, words: List[str]) -> Tuple[int, str, str]:
        environment = {name: value for name, value in self.environment.items() if not name.startswith('TESSERA_RECORD')}
        try:
            done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, timeout=COMMAND_S, env=environment, check=False)
        except (OSError, subprocess.SubprocessError) as error:
            return 127, '', one_line(error)
        return done.returncode, done.stdout.decode('utf-8', 'replace'), done.stderr.decode('utf-8', 'replace')

    def python(self, code: str, *words: str) -> Tuple[int, str]:
        """Run code in another process of this Python: what it printed, or if it failed the error."""
        status, said, complaint = self._run([sys.executable, '-W', 'ignore', '-c', code, *words])
        return status, complaint if status else said

    def has_module(self, name: str) -> bool:
        try:
            return importlib.util.find_spec(name) is not None
        except (ImportError, ValueError):
            return False

    def torch(self) -> Any:
        return importlib.import_module('torch')

    def worker(self, request: Dict[str, Any], settings: str = '') -> Any:
        return Worker({'entry': 'measure', **request}, self.archive, cards.settings(self.environment, settings))

    def card(self, torch: Any, index: int = 0) -> Any:
        return cards.Card(torch, index)

    def driver(self) -> Optional[str]:
        return cards.driver_version()

    def now(self) -> str:
        return time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime())

    # ---- what nobody else needs to know ----

    def _find_private(self) -> List[Tuple[str, str]]:
        rows = [(tempfile.gettempdir(), '<temporary>'), (os.getcwd(), '<folder>'), (os.path.dirname(os.path.dirname(sys.executable)), '<python>'),
                (sys.prefix, '<python>'), (sys.base_prefix, '<python>'), (os.path.expanduser('~'), '~')]
        return [(path, word) for path, word in sorted(set(rows), key=lambda row: -len(row[0])) if len(path) > 1]

    def clean(self, said: str) -> str:
        """A text of others without folders and names of this machine."""
        for path, word in self._private:
            said = said.replace(path, word)
        for ask, word in ((getpass.getuser, '<user>'), (socket.gethostname, '<host>')):
            with contextlib.suppress(Exception):
                name = ask()
                if len(name) > 3:
                    said = re.sub(rf'(?<!\w){re.escape(name)}(?!\w)', word, said)
        said = re.sub(r'(?<![\w/])(?:~|<\w+>)?/(?:[^\s/\'"():,]+/)+', '<folder>/', said)
        return ''.join(c if c.isprintable() else ' ' for c in said)

    # ---- a line while it takes long ----

    def show(self, line: str) -> None:
        if self._screen is None:
            return
        line = f'tessera doctor: {line}'[:78] if line else ''
        with contextlib.suppress(OSError):
            os.write(self._screen, f'\r{line.ljust(self._shown)}'.encode() + (b'' if line else b'\r'))
        self._shown = len(line)


# ---- Predictions ----

class Predictions:
    """Predicts programs, each graph traced once."""

    def __init__(self, host: Host, torch: Any, gpu: str, folder: str) -> None:
        self.host, self._torch, self._gpu, self._folder = host, torch, gpu, folder
        self._graphs: Dict[Any, Any] = {}
        self.errors: Dict[str, str] = {}  # by program

    def of(self, program: programs.Program) -> Optional[Dict[str, Any]]:
        try:
            if program.make not in self._graphs:
                self._graphs[program.make] = predict.traced(self._torch, program, self._gpu)
            return predict.simulated(self.host.command, self._graphs[program.make], program.settings, self._folder)
        except Exception as error:  # whatever a new PyTorch does
            self.errors[program.name] = self.host.clean(one_line(error))
            return None


def _tracer(predictions: Predictions, made: Dict[str, Any]) -> List[Dict[str, Any]]:
    errors = predictions.errors
    if not errors:
        return [check('predictions', 'tracer', OK, f'traces all {len(made)} programs on fake tensors')]
    name, why = next(iter(errors.items()))
    if 'is built without CUDA' in why:
        return [check('predictions', 'tracer', SKIPPED, 'this PyTorch is built without CUDA, so nothing can be traced', 'install the wheel for CUDA; no GPU or driver is needed')]
    return [check('predictions', 'tracer', FAILED, f'{len(errors)} of {len(made)} programs cannot be traced; {name}: {why}',
                  'use a PyTorch that tessera is tested with (2.9), or report it')]


def _row(program: programs.Program, **more: Any) -> Dict[str, Any]:
    row = {'name': program.name, 'about': program.about, 'status': NOTE, 'message': '', 'phases': [], 'predicted_peak_bytes': None, 'measured_peak_bytes': None,
           'predicted_reserved_bytes': None, 'measured_reserved_bytes': None, 'read_peak_bytes': None, 'read_reserved_bytes': None}
    return {**row, **more}


def _quietly(host: Host, work: Callable[[], Any]) -> Any:
    """Without what PyTorch writes to standard error."""
    held, nothing = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nothing, 2)
        return work()
    finally:
        os.dup2(held, 2)
        os.close(held)
        os.close(nothing)


def recorded(host: Host, torch: Any, chosen: List[programs.Program], folder: str) -> Tuple[List[Dict[str, Any]], List[Dict[str, Any]]]:
    """Without a GPU: predictions against recorded ones. Checks, and rows of programs."""
    predictions, made, differing, largest = Predictions(host, torch, goldens.GPU, folder), {}, [], (0.0, '')
    rows, wanted = [], [program for program in chosen if program.is_predicted]
    for number, program in enumerate(wanted, 1):
        host.show(f'{number} of {len(wanted)}: predicting {program.name}')
        found = made[program.name] = predictions.of(program)
        if not found:
            rows.append(_row(program, status=compare.FAILED, message=predictions.errors[program.name]))
            continue
        different = compare.against_record(found, goldens.PROGRAMS[program.name])
        words = '; '.join(f'{name}: {compare.more(now - before)} than recorded' for name, before, now in different)
        rows.append(_row(program, status=compare.DIFFERS if different else compare.EQUAL, message=words, predicted_peak_bytes=found['peak']['allocated'],
                         predicted_reserved_bytes=found['peak']['reserved']))
        if different:
            differing.append(program.name)
            largest = max(largest, *((abs(now - before) / max(before, 1), program.name) for _, before, now in different))
    out = _tracer(predictions, made)
    done = len(wanted) - len(predictions.errors)
    if not done:
        return out, rows
    is_same = '.'.join(torch.__version__.split('.')[:2]) == goldens.TORCH
    if not differing:
        out.append(check('predictions', 'record', OK, f'all {done} are as recorded with PyTorch {goldens.TORCH} for an A100'))
    elif is_same:
        out.append(check('predictions', 'record', FAILED, f'{len(differing)} of {done} differ from what was recorded with this PyTorch, by up to '
                         f'{100 * largest[0]:.2f} % ({largest[1]})', 'install tessera again; if that does not help, report it'))
    else:
        out.append(check('predictions', 'record', NOTE, f'{done - len(differing)} of {done} are as recorded with PyTorch {goldens.TORCH} for an A100; the others '
                         f'differ by up to {100 * largest[0]:.2f} % ({largest[1]}), because this is PyTorch {torch.__version__}'))
    return out, rows


# ---- A GPU ----

class Measuring:
    """Runs programs in processes of their own, and looks at the card from this one."""

    def __init__(self, host: Host, torch: Any, folder: str) -> None:
        self.host, self.folder, self._torch = host, folder, torch
        self.card = host.card(torch)
        self.card.start()
        self.about = self.card.about()
        self.rows: Dict[str, Dict[str, Any]] = {}
        self.context_bytes: Optional[int] = None
        self.libraries_bytes: Optional[int] = None
        self.other_bytes: Optional[int] = None
        self.lost: List[str] = []

    def run(self, names: List[str], settings: str, beside: Callable[[], None] = lambda: None, looks: bool = False) -> None:
        """Measure programs; `beside` is called while the first ones run. With `looks`, also what the process takes besides PyTorch's memory."""
        at = 'the start'
        try:
            with self.host.worker({'job': 'programs', 'programs': names, 'folder': self.folder}, settings) as worker:
                worker.hear()
                before, own = self.card.free_bytes(), self.card.counters()['now_reserved']
                worker.go()
                worker.hear()
                context = before - self.card.free_bytes()
                worker.go()
                beside()
                while True:
                    row = worker.hear()
                    if row['event'] == 'begins':
                        at = row['name']
                        self.host.show(f'running {at}')
                    elif row['event'] == 'program':
                        self.rows[row['name']] = row
                    elif row['event'] == 'end':
                        break
                if looks:
                    grown = self.card.counters()['now_reserved'] - own  # of this process
                    outside = before - self.card.free_bytes() - row['reserved_bytes'] - grown
                    if CONTEXT_BYTES[0] <= context <= CONTEXT_BYTES[1] and outside >= context:
                        self.context_bytes, self.libraries_bytes = context, outside - context
                        self.other_bytes = max(0, self.about['total_bytes'] - before - context)
                worker.go()
        except Lost as error:
            self.lost.append(self.host.clean(f'{at}: {error}'))

    def communicator_bytes(self, backend: str, device: str, ranks: int = 2) -> Tuple[Optional[int], str]:
        """What each communicator takes of a card, and why that is not known."""
        taken: List[int] = []
        try:
            with contextlib.ExitStack() as stack:
                workers = [stack.enter_context(self.host.worker(
                    {'job': 'communicators', 'index': rank, 'rank': rank, 'ranks': ranks, 'backend': backend, 'device': device,
                     'meeting': os.path.join(self.folder, 'meeting')})) for rank in range(ranks)]
                for _ in range(2):  # imported, context
                    for worker in workers:
                        worker.hear()
                        worker.go()
                for worker in workers:
                    row = worker.hear()
                    if not row['is_right']:
                        return None, 'a sum over two processes is wrong'
                    taken.append(row['taken_bytes'][1])
                for worker in workers:
                    worker.hear()
                    worker.go()
        except Lost as error:
            return None, self.host.clean(str(error))
        return max(0, max(taken)), ''


def _compared(host: Host, program: programs.Program, predicted: Optional[Dict[str, Any]], why: str, row: Optional[Dict[str, Any]], torch_version: str,
              capability: 'tuple[int, int]') -> Dict[str, Any]:
    """A row of a program that ran, or should have."""
    if capability < program.needs:
        return _row(program, status=compare.NOT_RUN, message='this card has no bf16')
    if row is None:
        return _row(program, status=compare.FAILED, message='its process ended')
    if 'error' in row:
        is_memory = row['error'] == 'out of memory'
        return _row(program, status=compare.NOT_RUN if is_memory or not program.is_predicted else compare.FAILED, message=host.clean(row['error']))
    out = _row(program, status=compare.READ, measured_peak_bytes=row['peak']['allocated'], measured_reserved_bytes=row['peak']['reserved'])
    if program.is_predicted:
        out.update(compare.compared(program, predicted, row, torch_version) if predicted else {'status': compare.FAILED, 'message': why})
    try:
        read = predict.read(host.command, row['snapshot'])
    except predict.Failed as error:
        return {**out, 'status': compare.MISREAD, 'message': host.clean(str(error))}
    wrong = compare.misread(row, read)
    out.update(read_peak_bytes=read['allocated'], read_reserved_bytes=read['reserved'])
    return {**out, 'status': compare.MISREAD, 'message': wrong} if wrong else out


def on_card(host: Host, torch: Any, chosen: List[programs.Program], folder: str) -> Tuple[List[Dict[str, Any]], List[Dict[str, Any]], Dict[str, Any]]:
    """With a GPU: checks, rows of programs, and the device."""
    host.show('waking the card')
    measuring = Measuring(host, torch, folder)
    about, capability = measuring.about, (measuring.about['capability'][0], measuring.about['capability'][1])
    gpu = cards.like(about['name'], capability, about['total_bytes'])
    predictions, made = Predictions(host, torch, gpu, folder), {}
    runs = [program for program in chosen if capability >= program.needs]

    def beside() -> None:
        wanted = [program for program in runs if program.is_predicted]
        for number, program in enumerate(wanted, 1):
            host.show(f'{number} of {len(wanted)}: predicting {program.name}')
            made[program.name] = predictions.of(program)
    plain = [program.name for program in runs if not program.settings and program.is_predicted]
    measuring.run(plain, '', lambda: _quietly(host, beside), True)
    for program in runs:  # whose settings are their own, or which may leave something behind
        if program.name not in plain:
            host.show(f'running {program.name}')
            measuring.run([program.name], program.settings)
    rows = []
    for number, program in enumerate(chosen, 1):
        host.show(f'{number} of {len(chosen)}: comparing {program.name}')
        rows.append(_compared(host, program, made.get(program.name), predictions.errors.get(program.name, ''), measuring.rows.get(program.name),
                              torch.__version__, capability))
    out, nccl = _tracer(predictions, made), None
    out += _judged(rows, about['name'], gpu)
    if measuring.lost:
        out.append(check('card', 'runs', FAILED, f'a process ended, {measuring.lost[0]}', 'see whether PyTorch works on this card'))
    if measuring.context_bytes is None:
        out.append(check('card', 'context', NOTE, 'what a context takes could not be measured: other processes were busy on the card', 'run it again when the card is idle'))
    else:
        out.append(check('card', 'context', OK, f'{compare.size(measuring.context_bytes)} for a context, {compare.size(measuring.libraries_bytes or 0)} for libraries'))
    if cards.count(torch)[0] > 1 and torch.distributed.is_available() and torch.distributed.is_nccl_available():
        host.show('two processes with NCCL')
        nccl, why = measuring.communicator_bytes('nccl', 'cuda')
        out.append(check('card', 'NCCL', FAILED if why else OK, why or f'{compare.size(nccl or 0)} for each communicator of two cards',
                         'see whether torch.distributed works on these cards' if why else None))
    else:
        out.append(check('card', 'NCCL', SKIPPED, 'needs two GPUs'))
    device = {'device': 0, 'name': about['name'], 'capability': f'{capability[0]}.{capability[1]}', 'predicted_as': gpu, 'driver': host.driver(),
              'cuda': torch.version.cuda, 'total_bytes': about['total_bytes'], 'context_bytes': measuring.context_bytes,
              'libraries_bytes': measuring.libraries_bytes, 'nccl_bytes_per_communicator': nccl, 'other_bytes': measuring.other_bytes}
    return out, rows, device


def _judged(rows: List[Dict[str, Any]], name: str, gpu: str) -> List[Dict[str, Any]]:
    """What the rows of programs mean, as checks."""
    def named(*statuses: str) -> List[Dict[str, Any]]:
        return [row for row in rows if row['status'] in statuses]
    right, wrong, misread, broke, absent = named(compare.EQUAL, compare.NEAR, compare.EXPLAINED), named(compare.DIFFERS), named(compare.MISREAD), \
        named(compare.FAILED), named(compare.NOT_RUN)
    out = []
    advice = 'report it, with the file of -o; tessera diff --by allocation of a predicted and a recorded snapshot shows where it is'
    text = f'{len(right)} of {len(right) + len(wrong)} programs took what was predicted for {gpu} on this {name}'
    if wrong:
        text += f'; {wrong[0]["name"]} ({wrong[0]["message"]})'
    if right or wrong:
        out.append(check('card', 'predictions', FAILED if wrong else OK, text, advice if wrong else None))
    for group, what in ((misread, 'snapshots'), (broke, 'programs')):
        if group:
            out.append(check('card', what, FAILED, f'{len(group)} {"read wrongly" if group is misread else "did not run"}; {group[0]["name"]}: {group[0]["message"]}',
                             'report it, with the file of -o'))
    if not misread:
        done = sum(row['read_peak_bytes'] is not None for row in rows)
        out.append(check('card', 'snapshots', OK if done else SKIPPED, f'the peaks that {done} snapshots show are those of PyTorch\'s counters'))
    if absent:
        out.append(check('card', 'left out', NOTE, f'{len(absent)}: ' + '; '.join(f'{row["name"]}, {row["message"]}' for row in absent)))
    return out


# ---- All of it ----

def _torch(host: Host) -> Tuple[Any, List[Dict[str, Any]]]:
    if not host.has_module('torch'):
        return None, [check('python', 'torch', SKIPPED, 'PyTorch is not installed in this Python. Reading snapshots needs none; tracing does',
                            'pip install torch, or name another Python with --python')]
    try:
        torch = _quietly(host, host.torch)
    except Exception as error:
        return None, [check('python', 'torch', FAILED, f'PyTorch cannot be imported: {host.clean(one_line(error))}', 'install PyTorch again')]
    cuda, hip = torch.version.cuda, getattr(torch.version, 'hip', None)
    what = f'CUDA {cuda}' if cuda else f'ROCm {hip}' if hip else 'without CUDA'
    known = compare.version(torch.__version__)
    if known < (2, 0):
        return torch, [check('python', 'torch', FAILED, f'PyTorch {torch.__version__}, {what}: too old to trace or record', 'use PyTorch 2.1 or newer')]
    return torch, [check('python', 'torch', OK, f'PyTorch {torch.__version__}, {what}')]


def _no_card(host: Host, torch: Any, complaint: str) -> Dict[str, Any]:
    """Why there is no GPU. One that PyTorch should see is a failure."""
    left = 'What programs take on a card, its context and NCCL are not compared'
    if getattr(torch.version, 'hip', None):
        return check('card', 'card', SKIPPED, f'only GPUs of NVIDIA are measured. {left}')
    if host.environment.get('CUDA_VISIBLE_DEVICES', '0').strip() in ('', '-1'):
        return check('card', 'card', SKIPPED, f'CUDA_VISIBLE_DEVICES hides all GPUs. {left}')
    driver = host.driver()
    if driver is None:
        return check('card', 'card', SKIPPED, f'no GPU. {left}')
    if torch.version.cuda is None:
        return check('card', 'card', NOTE, f'NVIDIA\'s driver {driver} is there, and this PyTorch is built without CUDA', 'install the wheel for CUDA')
    return check('card', 'card', FAILED, f'NVIDIA\'s driver {driver} is there, but PyTorch sees no GPU' + (f': {host.clean(complaint)[:200]}' if complaint else ''),
                 'see whether nvidia-smi lists the card, and whether the driver is new enough for this PyTorch')


def _save(host: Host, device: Dict[str, Any]) -> Tuple[bool, List[Dict[str, Any]]]:
    if device['context_bytes'] is None:
        return False, []
    row = {key: device[key] for key in ('name', 'driver', 'cuda', 'context_bytes', 'libraries_bytes', 'nccl_bytes_per_communicator')}
    try:
        machine.save(machine.place(host.environment), {**row, 'measured_at': host.now()})
    except (OSError, machine.Unreadable) as error:
        return False, [check('card', 'saved', FAILED, f'machine.json cannot be written: {host.clean(getattr(error, "strerror", None) or str(error))}',
                             'TESSERA_MACHINE names another file; --no-save leaves it out')]
    return True, [check('card', 'saved', OK, 'machine.json has what this card takes outside PyTorch, for simulate')]


def examine(host: Host) -> Dict[str, Any]:
    """The answer."""
    request, began = host.request, time.monotonic()
    version, rows, devices, saved = request['version'], [], [], False
    chosen, cuda = programs.chosen(request['quick']), None
    with tempfile.TemporaryDirectory(prefix='tessera-doctor-') as folder:
        host.show('looking at the installation')
        facts = host.find_command()
        out = checks.build(facts) + checks.answers(host.command, folder) if facts else [
            check('tessera', 'command', FAILED, f'tessera {version} runs, but cannot be started by name', 'put the folder of tessera first in PATH')]
        out += checks.python()
        torch, more = _torch(host)
        out += more
        host.show('looking at the package and its recorder')
        out += checks.package(host, version)
        if host.has_module('tessera') and facts:
            out += checks.recorder(host, host.command, folder)
        out += checks.folders(host.environment) + checks.terminal(host.environment, request['columns'] > 0, request['columns'])
        setting = host.environment.get('PYTORCH_CUDA_ALLOC_CONF') or host.environment.get('PYTORCH_ALLOC_CONF') or ''
        if torch is not None and facts and not any(row['name'] == 'torch' and row['status'] == FAILED for row in out):
            cuda = torch.version.cuda
            found, complaint = _quietly(host, lambda: cards.count(torch))
            if found and not getattr(torch.version, 'hip', None):
                try:
                    more, rows, device = on_card(host, torch, chosen, folder)
                    out += more
                    devices.append(device)
                    if request['save'] and not request['quick'] and machine.place(host.environment):  # a few programs load a part of the libraries
                        saved, more = _save(host, device)
                        out += more
                except Exception as error:
                    out.append(check('card', 'card', FAILED, f'PyTorch cannot use the card: {host.clean(one_line(error))}', 'see whether PyTorch works on it'))
            else:
                more, rows = _quietly(host, lambda: recorded(host, torch, chosen, folder))
                out += more
                out.append(_no_card(host, torch, complaint))
    host.show('')
    has_failed = any(row['status'] == FAILED for row in out)
    return {'schema': 'tessera/1', 'command': 'doctor', 'inputs': [], 'verdict': 'failed' if has_failed else 'well', 'version': version,
            'system': facts and facts['system'], 'processor': facts and facts['processor'], 'python': platform.python_version(), 'torch': getattr(torch, '__version__', None),
            'cuda': cuda, 'allocator_settings': host.clean(setting)[:200], 'is_quick': request['quick'], 'is_saved': saved,
            'duration_us': int(1e6 * (time.monotonic() - began)), 'checks': out, 'devices': devices, 'programs': rows, 'warnings': []}


def delivered(answer: Dict[str, Any], request: Dict[str, Any]) -> bytes:
    """For cmd/core/doctor.c: a line with the number of failed checks and the length of the answer, the answer, and the report if one is wanted."""
    shown = report.document(answer) if request['json'] else report.text(answer, request['columns'], request['color'], not request['report'])
    failed, data = sum(row['status'] == FAILED for row in answer['checks']), shown.encode()
    forms = {'': lambda _: '', 'markdown': report.page, 'json': report.document}
    return f'graph {failed} {len(data)}\n'.encode() + data + forms[request['report']](answer).encode()


def run(request: Dict[str, Any], _code: str, results: int) -> None:
    """Of start.py."""
    import ctypes
    import signal
    import warnings
    warnings.simplefilter('ignore')
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).prctl(1, int(signal.SIGTERM))  # PR_SET_PDEATHSIG: when the command ends early, leave no files behind
    os.environ.setdefault('OMP_NUM_THREADS', '1')
    try:
        core = importlib.import_module(f'{__package__}._core')
        host = Host(request, core.ARCHIVE)
        data = delivered(examine(host), request)
    except KeyboardInterrupt:
        os._exit(130)
    with os.fdopen(results, 'wb') as file:
        file.write(data)
    os._exit(0)
