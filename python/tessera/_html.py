"""What a notebook shows: a chart as inline SVG, and the text of the command."""
from html import escape
from typing import Any, List, Tuple

# By category, so that a colour has the same meaning in every chart.
_COLORS = {'parameter': '#4e79a7', 'activation': '#f28e2b', 'backward': '#e15759',
           'optimizer': '#76b7b2', 'net': '#59a14f', 'unknown': '#9c9c9c', 'net_setup': '#edc948',
           'stats': '#b07aa1', 'fsdp': '#ff9da7', 'added': '#e15759', 'grown': '#f28e2b',
           'removed': '#59a14f', 'shrunk': '#76b7b2'}
_OTHERS = ('#4e79a7', '#f28e2b', '#e15759', '#76b7b2', '#59a14f', '#edc948', '#b07aa1', '#ff9da7')
_WIDTH, _HEIGHT = 640, 160


def size(count: float) -> str:
    """Bytes for people: '17.80 GiB'."""
    sign, count = ('-' if count < 0 else ''), abs(count)
    for unit in ('B', 'KiB', 'MiB', 'GiB'):
        if count < 1024:
            return f'{sign}{count:.0f} B' if unit == 'B' else f'{sign}{count:.2f} {unit}'
        count /= 1024
    return f'{sign}{count:.2f} TiB'


def _color(name: str, index: int) -> str:
    return _COLORS.get(name, _OTHERS[index % len(_OTHERS)])


def _area(moments: List[Any], names: List[str]) -> str:
    """Bands over the moments of a history, memory from before the recording at the bottom."""
    first, last = moments[0]['event'], moments[-1]['event']
    top = max(m['requested_bytes'] + m['older_bytes'] for m in moments) or 1
    across = [_WIDTH * (m['event'] - first) / ((last - first) or 1) for m in moments]
    low = [0.0] * len(moments)
    bands = []
    for index in range(-1, len(names)):
        high = []
        for at, moment in enumerate(moments):
            share = moment['older_bytes'] if index < 0 else dict(moment['groups']).get(index, 0)
            high.append(low[at] + share)
        edge = [f'{x:.1f},{_HEIGHT * (1 - y / top):.1f}' for x, y in zip(across, high)]
        back = [f'{x:.1f},{_HEIGHT * (1 - y / top):.1f}' for x, y in zip(across, low)][::-1]
        name = 'before the recording' if index < 0 else names[index]
        color = '#d0d0d0' if index < 0 else _color(names[index], index)
        bands.append(f'<polygon fill="{color}" points="{" ".join(edge + back)}">'
                     f'<title>{escape(name)}</title></polygon>')
        low = high
    return (f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" width="{_WIDTH}" height="{_HEIGHT}" '
            f'role="img" style="max-width:100%;background:#fafafa">{"".join(bands)}</svg>')


def _legend(names: List[Tuple[str, str]]) -> str:
    return ' '.join(f'<span style="white-space:nowrap"><span style="color:{color}">&#9632;</span> '
                    f'{escape(name)}</span>' for name, color in names)


def _name(device: Any) -> str:
    return 'Pinned host memory' if device['device'] == 'host' else f'Device {device["device"]}'


def snapshot(opened: Any) -> str:
    """Memory over time on each device, by category, and its peak."""
    parts = [f'<div><b>{escape(opened.path)}</b> &middot; {escape(opened.format)}']
    # Two pixels per moment are enough for the eye.
    profile = opened.profile(over_time=_WIDTH // 2, top=0).to_dict()
    for device in profile['devices']:
        history = device['history']
        names = [group['name'] or 'others' for group in history['groups']]
        parts.append(f'<p>{_name(device)}: {device["events"]:,} events, '
                     f'{size(device["peak"]["allocated_bytes"])} allocated at the peak of what was '
                     'recorded</p>')
        if len(history['moments']) > 1:
            parts.append(_area(history['moments'], names))
            parts.append('<p>' + _legend(
                [('before the recording', '#d0d0d0'),
                 *((name, _color(name, index)) for index, name in enumerate(names))]) + '</p>')
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
    rows = []
    lists = (device.get(name) for name in ('changes', 'causes', 'leaks', 'groups', 'stacks'))
    for index, row in enumerate(next((one for one in lists if one and isinstance(one, list)), [])):
        if 'bytes' not in row and 'delta_bytes' not in row:
            return []
        kind = row.get('status') or row.get('category') or ''
        label = row['name'] if 'name' in row else f'{kind}  {_place(row.get("frames") or [])}'
        rows.append((label, row.get('bytes', row.get('delta_bytes')), _color(kind, index)))
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
    devices = said.to_dict()['devices']
    for device in devices:
        rows = _rows(device)[:20]
        if rows:
            heading = f'<p>{_name(device)}</p>' if len(devices) > 1 else ''
            parts.append(heading + _bars(rows))
    first, _, rest = text.partition('\n')
    parts.insert(1, f'<p><b>{escape(first)}</b></p>')
    if rest:
        parts.append(f'<details><summary>all of it</summary><pre>{escape(text)}</pre></details>')
    return ''.join(parts) + '</div>'
