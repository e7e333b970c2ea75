"""What a notebook shows: tables, a chart as inline SVG, and the text of the command.

Colours are those of the page (viewer/src/theme.ts, from which a test compares them): categories have
their own, other groups go by their name.
"""
import datetime
import math
import pickle
import re
from html import escape
from typing import Any, Dict, List, Optional, Sequence, Tuple

from . import _core

_HUES = ('#4878a8', '#e09438', '#5a9e57', '#8a6cb0', '#3c9d9b', '#d0719c', '#a3765a', '#9a9a3c',
         '#6fa8d6', '#c4534c', '#6a6fc0', '#7f9482', '#a4abb5', '#d9b36a', '#8cc084', '#b9a0d0')
_CATEGORY = {'parameter': 0, 'activation': 1, 'gradient': 2, 'optimizer_state': 3, 'temporary': 4,
             'recomputed': 13, 'input': 8, 'communication': 9, 'workspace': 6, 'buffer': 7,
             'kv_cache': 10, 'cast': 5, 'unknown': 12}
_QUIET = re.compile(r'\((before|outside|no |none|other|smaller)|unknown$|others$')
# Of a diff: more memory is red, less is green.
_STATUS = {'added': 9, 'grown': 1, 'removed': 2, 'shrunk': 14}
_BEFORE = '#d0d3d8'  # memory from before the recording
_LEFT, _WIDTH, _HEIGHT, _BELOW = 64, 640, 180, 34


def size(count: float) -> str:
    """Bytes as reports print them: '17.80 GiB', '-3 B'."""
    return ('-' if count < 0 else '') + _core.size_text(int(abs(count)))


def _hash(text: str) -> int:
    units = text.encode('utf-16-le', 'surrogatepass')
    value = 2166136261
    for at in range(0, len(units), 2):
        value = (value ^ int.from_bytes(units[at:at + 2], 'little')) * 16777619 & 0xFFFFFFFF
    return value


def palette(names: List[str]) -> List[str]:
    """A colour for each group, as the page chooses them."""
    taken: Dict[int, str] = {}
    chosen = []
    for name in names:
        at = _CATEGORY.get(name, _STATUS.get(name)) if name != 'unknown' else None
        if at is None and _QUIET.match(name):
            at = 11 if 12 in taken else 12
        if at is None:
            at = _hash(name) % 12
            for _ in range(16):  # of more groups than colours, some share one
                if at not in taken and at != 12:
                    break
                at = (at + 1) % 16
        taken[at] = name
        chosen.append(_HUES[at])
    return chosen


def _ticks(top: float) -> List[float]:
    """Round sizes from 0 to at most `top`, about four of them."""
    unit = 1024.0 ** max(0, min(4, int(math.log(top, 1024)))) if top >= 1 else 1.0
    raw = top / unit / 4
    power = 10.0 ** math.floor(math.log10(raw)) if raw > 0 else 1.0
    step = next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= raw) * unit
    step = max(step, 1.0)
    return [step * number for number in range(int(top / step + 1e-9) + 1)]


def _tick_label(count: float) -> str:
    """'2.5 GiB', '0'."""
    number, _, unit = size(count).partition(' ')
    return '0' if not count else f'{float(number):g} {unit}'


def _text(x: float, y: float, words: str, anchor: str = 'start') -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(words)}</text>'


def _axes(top: float, moments: List[Any]) -> str:
    """Sizes at the left, with lines across; the first and last event below."""
    parts = []
    for tick in _ticks(top):
        y = _HEIGHT * (1 - tick / top)
        parts.append(f'<line x1="{_LEFT}" x2="{_LEFT + _WIDTH}" y1="{y:.1f}" y2="{y:.1f}" '
                     'stroke="currentColor" stroke-opacity="0.18"/>'
                     + _text(_LEFT - 6, y + 4, _tick_label(tick), 'end'))
    first, last = moments[0]['event'], moments[-1]['event']
    parts.append(_text(_LEFT, _HEIGHT + 16, f'event {first:,}')
                 + _text(_LEFT + _WIDTH, _HEIGHT + 16, f'event {last:,}', 'end'))
    return ''.join(parts)


def _area(moments: List[Any], names: List[str], colors: List[str]) -> str:
    """Bands over the moments of a history, memory from before the recording at the bottom."""
    first, last = moments[0]['event'], moments[-1]['event']
    top = max(m['requested_bytes'] + m['older_bytes'] for m in moments) or 1
    across = [_LEFT + _WIDTH * (m['event'] - first) / ((last - first) or 1) for m in moments]
    low = [0.0] * len(moments)
    bands = []
    shares = [dict(moment['groups']) for moment in moments]
    has_older = any(moment['older_bytes'] for moment in moments)
    for index in range(-1 if has_older else 0, len(names)):
        high = [below + (moment['older_bytes'] if index < 0 else share.get(index, 0))
                for below, moment, share in zip(low, moments, shares)]
        edge = [f'{x:.1f},{_HEIGHT * (1 - y / top):.1f}' for x, y in zip(across, high)]
        back = [f'{x:.1f},{_HEIGHT * (1 - y / top):.1f}' for x, y in zip(across, low)][::-1]
        name = 'before the recording' if index < 0 else names[index]
        most = max(y - x for x, y in zip(low, high))
        color = _BEFORE if index < 0 else colors[index]
        bands.append(f'<polygon fill="{color}" points="{" ".join(edge + back)}">'
                     f'<title>{escape(name)}: at most {size(most)}</title></polygon>')
        low = high
    width, height = _LEFT + _WIDTH + 8, _HEIGHT + _BELOW
    return (f'<svg viewBox="0 -8 {width} {height + 8}" width="{width}" height="{height + 8}" role="img" '
            'aria-label="requested memory over the events of the trace" '
            'style="max-width:100%" font-size="11" font-family="sans-serif" fill="currentColor">'
            f'{"".join(bands)}{_axes(top, moments)}</svg>')


_CELL = ('padding:2px 8px;white-space:nowrap;max-width:36em;overflow:hidden;text-overflow:ellipsis;'
         'text-align:')


def table(header: Sequence[str], rows: Sequence[Optional[Sequence[str]]], is_left: Sequence[bool],
          caption: str = '', bars: Sequence[Tuple[float, str]] = ()) -> str:
    """A table of texts; a row of None is a gap. Columns are aligned right, or left where `is_left` is true. With
    `bars`, each row begins with a bar: its length, up to 1, and colour."""
    sides = ['left' if left else 'right' for left in is_left]

    def line(cells: Sequence[str], tag: str, before: str) -> str:
        return '<tr>' + before + ''.join(f'<{tag} style="{_CELL}{side}">{escape(cell)}</{tag}>'
                                         for cell, side in zip(cells, sides)) + '</tr>'
    gap = ['\u2026'] * len(header)
    drawn = [f'<td style="{_CELL}left"><div style="width:{160 * length:.1f}px;height:0.9em;'
             f'background:{color}"></div></td>' for length, color in bars] or [''] * len(rows)
    body = ''.join(line(gap if row is None else row, 'td', bar) for row, bar in zip(rows, drawn))
    head = line(header, 'th', '<th></th>' if bars else '')
    above = f'<p>{escape(caption)}</p>' if caption else ''
    return (f'<div style="overflow-x:auto">{above}<table style="border-collapse:collapse">'
            f'<thead>{head}</thead><tbody>{body}</tbody></table></div>')


def _legend(names: List[Tuple[str, str]]) -> str:
    return ' '.join(f'<span style="white-space:nowrap"><span style="color:{color}">&#9632;</span> '
                    f'{escape(name)}</span>' for name, color in names)


def _name(device: Any) -> str:
    return 'Pinned host memory' if device['device'] == 'host' else f'Device {device["device"]}'


def _bands(device: Any) -> List[str]:
    """The names of the groups whose memory over time is drawn; none without a drawing."""
    history = device.get('history')
    if not isinstance(history, dict) or len(history['moments']) < 2:
        return []
    return [group['name'] or 'others' for group in history['groups']]


def _history(device: Any, at_peak: Optional[Dict[str, int]] = None) -> str:
    """Memory over time, in bands, with a legend, which has the bytes of each group `at_peak`."""
    history, names = device['history'], _bands(device)
    if len(history['moments']) < 2:
        return ''
    colors = palette(names)
    before = [('before the recording', _BEFORE)] \
        if any(moment['older_bytes'] for moment in history['moments']) else []
    sizes = [f' {size(at_peak[name])}' if at_peak and at_peak.get(name) else '' for name in names]
    labels = [name + held for name, held in zip(names, sizes)]
    return (f'<p>Requested memory by {escape(device["by"].replace("_", " "))}, over the events of the trace</p>'
            + _area(history['moments'], names, colors)
            + '<p>' + ('At the peak: ' if any(sizes) else '') + _legend([*before, *zip(labels, colors)]) + '</p>')


def snapshot(opened: Any) -> str:
    """What is on each device, and its memory over time, by category."""
    verdict = opened.info().verdict
    parts = [f'<div><p><b>{"<br>".join(map(escape, verdict))}</b></p>']
    # Two pixels per moment are enough for the eye.
    profile = opened.profile(over_time=_WIDTH // 2, top=0)._data
    peaks = {device['device']: device['peak'] for device in profile['devices']}
    devices = opened.info()._data['devices']
    if devices:
        names = ['device', 'events', 'peak', 'at event', 'allocated at the end', 'reserved at the end', 'segments',
                 'blocks', 'stacks']
        rows = []
        for device in devices:
            peak = peaks.get(device['device'])
            rows.append([_name(device), f'{device["events"]:,}', size(peak['allocated_bytes']) if peak else '',
                         f'{peak["event"]:,}' if peak else '', size(device['end']['allocated_bytes']),
                         size(device['end']['reserved_bytes']),
                         *(f'{device[name]:,}' for name in names[-3:])])
        parts.append(table(names, rows, [True] + [False] * (len(names) - 1)))
    for device in profile['devices']:
        heading = f'<p>{_name(device)}</p>' if len(profile['devices']) > 1 else ''
        drawn = _history(device, {group['name']: group['bytes'] for group in device['groups']})
        parts.append(heading + drawn if drawn else '')
    parts += [f'<p>&#9888; {escape(w.message)} ({w.count:,})</p>' for w in opened.warnings]
    if devices:
        parts.append('<p><code>.view()</code> shows all of it as a page, here; <code>.peak()</code> lists what holds the memory.</p>')
    return ''.join(parts) + '</div>'


def _places(stacks: List[Any]) -> List[str]:
    """What the library calls stacks in lists of lines: read from a snapshot that consists of them."""
    def frame(one: Any) -> Dict[str, Any]:
        line = 2**64 - 1 if one['line'] is None else one['line']
        return {'name': one['name'], 'filename': one['file'], 'line': line}
    events = [{'action': 'alloc', 'addr': 512 * row, 'size': 512, 'stream': 0, 'frames': list(map(frame, frames))}
              for row, frames in enumerate(stacks, 1)]
    data = pickle.dumps({'segments': [], 'device_traces': [events]}, protocol=4)
    core = _core.read(data, '', None, b'')
    columns, names = core.stacks()
    return [names[columns['place'][number]] for number in core.events(0, 'stack')]


# The lists of an answer that a table may show, best first, and their columns; of other lists, all that are
# no lists.
_LISTS: Dict[str, Tuple[str, ...]] = {
    'results': ('passed', 'rule', 'device', 'category', 'bytes', 'limit_bytes'),
    'techniques': ('so_far', 'alone', 'is_free', 'technique'),
    'changes': ('delta_bytes', 'old_bytes', 'new_bytes', 'status', 'category', 'names', 'frames', 'saved_bytes', 'cost_us', 'technique'),
    'causes': ('bytes', 'allocations', 'category', 'names', 'frames'),
    'leaks': ('bytes_per_step', 'bytes', 'allocations', 'names', 'frames'),
    'runs': ('peak_reserved_bytes', 'waste_bytes', 'peak', 'settings', 'recorded', 'fits'),
    'stages': ('peak', 'start', 'end', 'name', 'repetition'),
    'outliers': ('excess_bytes', 'rank', 'group', 'cause'),
    'groups': ('bytes', 'allocations', 'peak_bytes', 'name', 'min_bytes', 'median_bytes', 'max_bytes'),
    'stacks': ('bytes', 'allocations', 'category', 'phase', 'names', 'frames'),
    'steps': ('peak_bytes', 'end_bytes', 'allocations', 'first_event', 'last_event', 'whole', 'steady'),
    'lines': ('self_bytes', 'inclusive_bytes', 'line', 'text'),
    'categories': (),
}
_MOST_ROWS, _MOST_TEXT = 20, 90


def _allocated(part: Any) -> Optional[int]:
    """The allocated bytes of a moment or a prediction."""
    allocated: Optional[int] = part.get('allocated_bytes', part.get('peak_allocated_bytes'))
    return allocated


def _value(name: str, value: Any) -> str:
    """A field of a record as text."""
    if value is None:
        return ''
    if isinstance(value, bool):
        return 'yes' if value else 'no'
    if name == 'names' and isinstance(value, list):
        more = f' and {len(value) - 1} more' if len(value) > 1 else ''
        return value[0]['name'][:_MOST_TEXT] + more if value else ''
    if isinstance(value, dict):
        allocated = _allocated(value)
        return '' if allocated is None else size(allocated)
    if name == 'cost_us':
        return f'{value / 1000:+.2f} ms'
    if isinstance(value, int):
        is_size = name.split('_')[-1] == 'bytes' or '_bytes_' in f'_{name}_'
        is_time = name.endswith('time_us')
        return size(value) if is_size else _time(value) if is_time else f'{value:,}'
    return str(value)[:_MOST_TEXT]


def _time(time_us: int) -> str:
    """A time as reports print it; a number if no calendar has it."""
    try:
        return str(datetime.datetime(1970, 1, 1) + datetime.timedelta(microseconds=time_us)) + ' UTC'
    except OverflowError:
        return str(time_us)


def _heading(name: str) -> str:
    """A field's name as a heading; sizes have their units in their cells."""
    return name.replace('_bytes', '').replace('time_us', 'time').replace('_', ' ')


def _measure(row: Any, name: str) -> float:
    value = row.get(name)
    return float(abs((_allocated(value) if isinstance(value, dict) else value) or 0))


def _records(rows: List[Any], columns: Tuple[str, ...], omitted: int, drawn: Sequence[str] = ()) -> str:
    """A table of the records of a list, with bars for their first column. Groups that are `drawn` above it have
    their colours there."""
    present = [name for name in columns or rows[0] if any(name in row for row in rows)]
    if not columns:
        present = [name for name in present if not isinstance(rows[0][name], (list, dict))]
    present = [name for name in present if name != 'names' or any(row.get('names') for row in rows)]
    shown = rows[:_MOST_ROWS]
    kinds = [row.get('status') or row.get('category') or row.get('name') or '' for row in shown]
    names = list(dict.fromkeys([*drawn, *kinds]))
    colors = dict(zip(names, palette(names)))
    sized = next((name for name in present if 'bytes' in name or isinstance(rows[0].get(name), dict)), None)
    widest = max((_measure(row, sized) for row in shown), default=0) if sized else 0
    if 'frames' in present:
        places = _places([row['frames'] for row in shown])
        shown = [{**row, 'frames': place} for row, place in zip(shown, places)]
    bars = [(_measure(row, sized) / widest, colors[kind]) for row, kind in zip(shown, kinds)] \
        if sized and widest else []
    cells = [[_value(name, row.get(name)) for name in present] for row in shown]
    is_left = [any(isinstance(row.get(name), (str, list)) for row in rows) for name in present]
    omitted += len(rows) - len(shown)
    words = {'frames': 'where', 'names': 'what', 'allocations': 'count', 'so_far': 'peak so far', 'alone': 'peak alone',
             'is_free': 'costs no time', 'cost_us': 'time of a step'}
    return (table([words.get(name) or _heading(name) for name in present], cells, is_left, '', bars)
            + (f'<p>&hellip; and {omitted:,} more</p>' if omitted else ''))


def _fields(devices: List[Any]) -> str:
    """A table of the fields of devices, for an answer without a list; what they contain by its path."""
    flat = []
    for device in devices:
        fields = {}
        for name, value in device.items():
            inner = value if isinstance(value, dict) else {}
            fields.update({f'{name} {key}': item for key, item in inner.items()})
            fields[name] = value
        flat.append({name: _value(name, value) for name, value in fields.items()
                     if name != 'device' and not isinstance(value, (dict, list))})
    rows = [[_heading(name), *(fields.get(name, '') for fields in flat)] for name in (flat[0] if flat else ())]
    header = ['', *(_name(device) for device in devices)]
    return table(header, rows, [True] + [False] * len(devices)) if rows else ''


def _list_of(part: Any) -> Optional[str]:
    """The list that a table shows."""
    return next((name for name in _LISTS if isinstance(part.get(name), list) and part[name]
                 and isinstance(part[name][0], dict)), None)


def answer(said: Any) -> str:
    """The verdict, a table of what is listed, and the complete text, folded."""
    text = str(said)
    data, devices = said._data, said._data.get('devices', [])
    verdict = said.verdict or text.splitlines()[:1]
    parts = [f'<div><p><b>{"<br>".join(map(escape, verdict))}</b></p>']
    whole = _list_of(data)
    if whole:
        parts.append(_records(data[whole], _LISTS[whole], 0))
    elif not any(_list_of(device) for device in devices):
        parts.append(_fields(devices))
    for device in [] if whole else devices:
        name = _list_of(device)
        parts.append(f'<p>{_name(device)}</p>' if name and len(devices) > 1 else '')
        if isinstance(device.get('history'), dict):
            parts.append(_history(device))
        if name:
            parts.append(_records(device[name], _LISTS[name], device.get(f'omitted_{name}', 0), _bands(device)))
    if text.splitlines() != verdict:
        parts.append(f'<details><summary>all of it</summary><pre>{escape(text)}</pre></details>')
    return ''.join(parts) + '</div>'
