"""Predictions against what was measured, read and recorded: what counts as right."""
from typing import Any, Dict, List, Optional, Tuple

from .programs import Program

KIB, MIB = 1 << 10, 1 << 20
NEAR_BYTES, NEAR_SHARE = 64 * KIB, 0.005
NEAR_RESERVED_BYTES, NEAR_RESERVED_SHARE = 2 * MIB, 0.01
SEGMENT_BYTES = 20 * MIB  # that one more small block may need
LT = (2, 10)  # from this PyTorch on, each thread that multiplies with a bias has a workspace of cuBLASLt
LT_BYTES, LT_THREADS, LT_SLACK_BYTES = MIB, 2, 8 * KIB

# From the best to the worst.
EQUAL, NEAR, EXPLAINED, DIFFERS = 'equal', 'near', 'explained', 'differs'
ORDER = (EQUAL, NEAR, EXPLAINED, DIFFERS)
NOT_RUN, FAILED, READ, MISREAD = 'not_run', 'failed', 'read', 'misread'


def size(count: int) -> str:
    """As the command prints sizes."""
    for unit, name, digits in ((1 << 30, 'GiB', 2), (MIB, 'MiB', 2), (KIB, 'KiB', 1)):
        if abs(count) >= unit:
            return f'{count / unit:.{digits}f} {name}'
    return f'{count} B'


def more(difference: int) -> str:
    return f'{size(abs(difference))} {"more" if difference > 0 else "less"}'


def version(text: str) -> Tuple[int, int]:
    """The first two numbers of a version."""
    parts = (text.split('+')[0].split('.') + ['0', '0'])[:2]
    return tuple(int(''.join(c for c in part if c.isdigit()) or 0) for part in parts)  # type: ignore[return-value]


def _judge(difference: int, predicted: int, program: Program, torch_version: str) -> Tuple[str, str]:
    if difference == 0:
        return EQUAL, ''
    if abs(difference) <= max(NEAR_BYTES, NEAR_SHARE * predicted):
        return NEAR, ''
    spaces = [n for n in range(1, LT_THREADS + 1) if abs(difference - n * LT_BYTES) <= LT_SLACK_BYTES]
    if spaces and version(torch_version) >= LT:
        return EXPLAINED, f'{size(spaces[0] * LT_BYTES)} for workspaces of cuBLASLt, which PyTorch has since 2.10, and predictions have not'
    if program.above and difference > 0:
        return EXPLAINED, f'{more(difference)}: {program.above}'
    return DIFFERS, ''


def _judge_reserved(difference: int, predicted: int, is_explained: bool) -> str:
    if difference == 0:
        return EQUAL
    if abs(difference) <= max(NEAR_RESERVED_BYTES, NEAR_RESERVED_SHARE * predicted):
        return NEAR
    return EXPLAINED if is_explained and 0 < difference <= SEGMENT_BYTES + 2 * MIB else DIFFERS


def compared(program: Program, predicted: Dict[str, Any], measured: Dict[str, Any], torch_version: str) -> Dict[str, Any]:
    """A row of the table: the worst of the peak, of each phase and of what is reserved."""
    named = [('peak', predicted['peak']['allocated'], measured['peak']['allocated'])]
    phases = []
    for name, row in predicted['phases'].items():
        if name in measured['phases']:
            found = measured['phases'][name]['requested']
            named.append((name, row['requested'], found))
            phases.append({'name': name, 'predicted_bytes': row['requested'], 'measured_bytes': found})
    status, reasons, wrong = EQUAL, [], []
    for name, expected, found in named:
        one, why = _judge(found - expected, expected, program, torch_version)
        status = max(status, one, key=ORDER.index)
        if why and why not in reasons:
            reasons.append(why)
        if one == DIFFERS:
            wrong.append(f'{name}: {more(found - expected)} than predicted')
    expected, found = predicted['peak']['reserved'], measured['peak']['reserved']
    one = _judge_reserved(found - expected, expected, status == EXPLAINED)
    status = max(status, one, key=ORDER.index)
    if one == DIFFERS:
        wrong.append(f'reserved: {more(found - expected)} than predicted')
    return {'status': status, 'message': '; '.join(wrong or reasons[:1]), 'phases': phases,
            'predicted_peak_bytes': predicted['peak']['allocated'], 'measured_peak_bytes': measured['peak']['allocated'],
            'predicted_reserved_bytes': expected, 'measured_reserved_bytes': found}


def misread(measured: Dict[str, Any], read: Dict[str, int]) -> Optional[str]:
    """What the snapshot of a program says, against PyTorch's counters over the whole program. Both are exact."""
    wrong = [f'the snapshot says {size(read[kind])} {kind} at most, PyTorch {size(measured["whole"][kind])}'
             for kind in ('allocated', 'reserved') if read[kind] != measured['whole'][kind]]
    return '; '.join(wrong) or None


def against_record(predicted: Dict[str, Any], known: Dict[str, Any]) -> List[Tuple[str, int, int]]:
    """What differs from the recorded prediction: names, with the recorded number and this one."""
    rows = [(kind, known['peak'][kind], predicted['peak'][kind]) for kind in ('requested', 'allocated', 'reserved')]
    for name in sorted({*known['phases'], *predicted['phases']}):
        rows.append((name, known['phases'].get(name, 0), predicted['phases'].get(name, {}).get('requested', 0)))
    return [row for row in rows if row[1] != row[2]]
