"""What a notebook shows: a chart as inline SVG, and the text of the command.

Colours are those of the page (viewer/src/theme.ts, from which a test compares them): categories have
their own, other groups go by their name.
"""
import math
import re
from html import escape
from typing import Any, Dict, List, Optional, Sequence, Tuple

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
    """Bytes for people: '17.80 GiB'."""
    sign, count = ('-' if count < 0 else ''), abs(count)
    for unit in ('B', 'KiB', 'MiB', 'GiB'):
        if count < 1024:
            return f'{sign}{count:.0f} B' if unit == 'B' else f'{sign}{count:.2f} {unit}'
        count /= 1024
    return f'{sign}{count:.2f} TiB'


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


_CELL = 'padding:2px 8px;white-space:nowrap;text-align:'


def table(header: Sequence[str], rows: Sequence[Optional[Sequence[str]]], is_left: Sequence[bool],
          caption: str) -> str:
    """A table of texts; a row of None is a gap. Columns are aligned right, or left where `is_left` is true."""
    sides = ['left' if left else 'right' for left in is_left]

    def line(cells: Sequence[str], tag: str) -> str:
        return '<tr>' + ''.join(f'<{tag} style="{_CELL}{side}">{escape(cell)}</{tag}>'
                                for cell, side in zip(cells, sides)) + '</tr>'
    gap = ['\u2026'] * len(header)
    body = ''.join(line(gap if row is None else row, 'td') for row in rows)
    return (f'<div style="overflow-x:auto"><p>{escape(caption)}</p><table style="border-collapse:collapse">'
            f'<thead>{line(header, "th")}</thead><tbody>{body}</tbody></table></div>')


def _legend(names: List[Tuple[str, str]]) -> str:
    return ' '.join(f'<span style="white-space:nowrap"><span style="color:{color}">&#9632;</span> '
                    f'{escape(name)}</span>' for name, color in names)


def _name(device: Any) -> str:
    return 'Pinned host memory' if device['device'] == 'host' else f'Device {device["device"]}'


def snapshot(opened: Any) -> str:
    """Memory over time on each device, by category, and its peak."""
    parts = [f'<div><b>{escape(opened.path)}</b> &middot; {escape(opened.format)}']
    # Two pixels per moment are enough for the eye.
    profile = opened.profile(over_time=_WIDTH // 2, top=0)._data
    for device in profile['devices']:
        history = device['history']
        names = [group['name'] or 'others' for group in history['groups']]
        parts.append(f'<p>{_name(device)}: {device["events"]:,} events, '
                     f'{size(device["peak"]["allocated_bytes"])} allocated at the peak of what was '
                     'recorded</p>')
        if len(history['moments']) > 1:
            colors = palette(names)
            parts.append('<p>Requested memory by category, over the events of the trace</p>')
            parts.append(_area(history['moments'], names, colors))
            before = [('before the recording', _BEFORE)] \
                if any(moment['older_bytes'] for moment in history['moments']) else []
            parts.append('<p>' + _legend([*before, *zip(names, colors)]) + '</p>')
    warnings = opened.warnings
    parts += [f'<p>&#9888; {escape(w.message)} ({w.count:,})</p>' for w in warnings]
    return ''.join(parts) + '</div>'


def _place(frames: List[Any]) -> str:
    """The program's innermost frame, as far as names show it."""
    if not frames:
        return '(no stack recorded)'
    own = (frame for frame in frames
           if frame['file'].endswith('.py') and 'site-packages' not in frame['file'])
    frame = next(own, frames[0])
    return f'{frame["file"].replace(chr(92), "/").rpartition("/")[2]}:{frame["line"]} {frame["name"]}'


def _rows(device: Any) -> List[Tuple[str, int, str]]:
    """(label, bytes, colour) of the entries of an answer that lists something."""
    lists = (device.get(name) for name in ('changes', 'causes', 'leaks', 'groups', 'stacks'))
    found = next((one for one in lists if one and isinstance(one, list)), [])
    if any('bytes' not in row and 'delta_bytes' not in row for row in found):
        return []
    kinds = [row.get('status') or row.get('category') or row.get('name') or '' for row in found]
    shown = list(dict.fromkeys(kinds))
    colors = dict(zip(shown, palette(shown)))
    rows = []
    for row, kind in zip(found, kinds):
        label = row['name'] if 'name' in row else f'{kind}  {_place(row.get("frames") or [])}'
        rows.append((label, row.get('bytes', row.get('delta_bytes')), colors[kind]))
    return rows


def _bars(rows: List[Tuple[str, int, str]]) -> str:
    widest = max(abs(value) for _, value, _ in rows) or 1
    lines = []
    for index, (label, value, color) in enumerate(rows):
        y = index * 18
        lines.append(f'<rect x="90" y="{y + 2}" width="{180 * abs(value) / widest:.1f}" height="13" '
                     f'fill="{color}"/><text x="84" y="{y + 13}" text-anchor="end">'
                     f'{escape(size(value))}</text><text x="278" y="{y + 13}">{escape(label[:70])}'
                     '</text>')
    return (f'<svg width="760" height="{len(rows) * 18}" role="img" style="max-width:100%" '
            f'font-size="11" font-family="sans-serif" fill="currentColor">{"".join(lines)}</svg>')


def answer(said: Any) -> str:
    """The verdict, bars, and the complete text, folded."""
    text = str(said)
    parts = ['<div>']
    devices = said._data['devices']
    for device in devices:
        rows = _rows(device)[:20]
        if rows:
            heading = f'<p>{_name(device)}</p>' if len(devices) > 1 else ''
            parts.append(heading + _bars(rows))
    verdict = said.verdict or text.splitlines()[:1]
    parts.insert(1, f'<p><b>{"<br>".join(map(escape, verdict))}</b></p>')
    if text.splitlines() != verdict:
        parts.append(f'<details><summary>all of it</summary><pre>{escape(text)}</pre></details>')
    return ''.join(parts) + '</div>'
