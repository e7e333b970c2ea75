"""What the doctor prints: a text, JSON, and a file with both to attach to an issue."""
import json
import textwrap
from typing import Any, Dict, List

from .checks import FAILED, NOTE, OK, SKIPPED
from .compare import DIFFERS, EQUAL, EXPLAINED, FAILED as BROKE, MISREAD, NEAR, NOT_RUN, READ, size

WORDS = {OK: 'ok', NOTE: 'note', SKIPPED: 'skipped', FAILED: 'FAILED'}
COLORS = {OK: '32', NOTE: '33', SKIPPED: '33', FAILED: '1;31'}
SAYS = {EQUAL: 'equal', NEAR: 'within 0.5 %', EXPLAINED: 'explained', DIFFERS: 'DIFFERS', NOT_RUN: 'not run', BROKE: 'FAILED', READ: 'read right',
        MISREAD: 'MISREAD'}
PRIVACY = ('This file has the versions of tessera, Python, PyTorch, CUDA and the driver, the names and sizes of GPUs, the language and width of the terminal, '
           'the settings of PyTorch\'s allocator, and what was measured. It has no names of users or hosts, no paths, and nothing of your programs.')


def _count(number: int, what: str, many: str = '') -> str:
    return f'{number} {what if number == 1 else many or what + "s"}'


def verdict(answer: Dict[str, Any]) -> str:
    checks = answer['checks']
    of = {status: [row['name'] for row in checks if row['status'] == status] for status in WORDS}
    passed = len(of[OK]) + len(of[NOTE])
    rest = f', {len(of[SKIPPED])} skipped' if of[SKIPPED] else ''
    if of[FAILED]:
        return f'{_count(len(of[FAILED]), "check")} failed: {", ".join(of[FAILED])} ({passed} passed{rest}).'
    if not answer['devices']:
        return f'All is well, as far as can be checked without a GPU: {_count(passed, "check")} passed{rest}.'
    right = sum(row['status'] in (EQUAL, NEAR, EXPLAINED) for row in answer['programs'])
    return f'tessera is right on this machine: {_count(right, "program")} took what was predicted, {_count(passed, "check")} passed{rest}.'


def _wrapped(text: str, indent: int, columns: int) -> List[str]:
    if columns < indent + 20:
        return [text]
    return textwrap.wrap(text, columns - indent, break_long_words=False, break_on_hyphens=False) or ['']


def _checks(checks: List[Dict[str, Any]], columns: int, color: bool) -> List[str]:
    lines, group, width = [], '', max(len(row['name']) for row in checks)
    for row in checks:
        if row['group'] != group:
            group = row['group']
            lines += ['', group]
        word = WORDS[row['status']].ljust(7)
        if color:
            word = f'\x1b[{COLORS[row["status"]]}m{word}\x1b[0m'
        indent = 2 + 7 + 2 + width + 2
        text = _wrapped(row['message'], indent, columns)
        lines.append(f'  {word}  {row["name"].ljust(width)}  {text[0]}')
        lines += [' ' * indent + more for more in text[1:]]
        if row['advice']:
            advice = _wrapped(f'{"to do" if row["status"] == FAILED else "to have it"}: {row["advice"]}', indent, columns)
            lines += [' ' * indent + more for more in advice]
    return lines


def _table(programs: List[Dict[str, Any]], columns: int) -> List[str]:
    """One line for each program that ran on the card, and below what is to be said of some."""
    rows = [('program', 'predicted', 'peak', 'predicted', 'reserved', '')]
    for row in programs:
        numbers = [size(row[key]) if row[key] is not None else '-' for key in
                   ('predicted_peak_bytes', 'measured_peak_bytes', 'predicted_reserved_bytes', 'measured_reserved_bytes')]
        rows.append((row['name'], *numbers, SAYS[row['status']]))
    widths = [max(len(row[i]) for row in rows) for i in range(6)]
    out = ['']
    for row in rows:
        cells = [row[0].ljust(widths[0]), *(row[i].rjust(widths[i]) for i in range(1, 5)), row[5]]
        out.append(('  ' + '  '.join(cells)).rstrip())
    for row in programs:
        if row['message']:
            first, *rest = _wrapped(f'{row["name"]}: {row["message"]}', 4, columns)
            out += [f'  {first}', *(f'    {line}' for line in rest)]
    return out


def _devices(devices: List[Dict[str, Any]]) -> List[str]:
    out = []
    for device in devices:
        out += ['', f'{device["name"]}, {size(device["total_bytes"])}']
        for key, what in (('context_bytes', 'CUDA context of a process'), ('libraries_bytes', 'libraries and kernels that programs load'),
                          ('nccl_bytes_per_communicator', 'each NCCL communicator'), ('other_bytes', 'other processes, and the driver')):
            if device[key] is not None:
                out.append(f'  {size(device[key]).rjust(11)}  {what}')
    return out


def text(answer: Dict[str, Any], columns: int = 0, color: bool = False, hint: bool = True) -> str:
    """`columns` 0: as long as lines are."""
    measured = [row for row in answer['programs'] if row['measured_peak_bytes'] is not None or row['status'] in (BROKE, NOT_RUN)]
    lines = [*_wrapped(verdict(answer), 0, columns), *_checks(answer['checks'], columns, color)]
    if answer['devices']:
        lines += _table(measured, columns) + _devices(answer['devices'])
    if hint and any(row['status'] == FAILED for row in answer['checks']):
        lines += ['', *_wrapped('tessera doctor -o doctor.md writes all of this to a file, to attach to an issue.', 0, columns)]
    return '\n'.join(lines) + '\n'


def document(answer: Dict[str, Any]) -> str:
    return json.dumps(answer, indent=2) + '\n'


def page(answer: Dict[str, Any]) -> str:
    """The report: Markdown, with the text and the JSON. Neither has backticks of more than one in a row."""
    return f'# tessera doctor\n\n```\n{text(answer, hint=False)}```\n\n{PRIVACY}\n\n```json\n{document(answer)}```\n'
