"""ProfilerPlotter: a history as a chart, in one HTML page without script or network."""
import logging
import sys
from html import escape
from typing import Any, Dict, List

from mosaic.libmosaic.utils.data_utils import MemoryUsage

_ATTRIBUTES = {'categories': 'per_category_alloc_sum', 'annotations': 'per_annotation_alloc_sum',
               'compile_context': 'per_compile_context_alloc_sum', 'custom': 'per_custom_alloc_sum'}
_COLORS = ('#4e79a7', '#f28e2b', '#e15759', '#76b7b2', '#59a14f', '#edc948', '#b07aa1', '#ff9da7',
           '#9c755f', '#bab0ac')
_WIDTH, _HEIGHT = 1000, 500


class ProfilerPlotter:
    """Draws usage over events, one area per group; entries of the history are numbered by time, every
    `sampling_rate`th from `start_idx` to `end_idx` is drawn."""

    def __init__(self, history: Dict[int, MemoryUsage], profile: str = 'categories',
                 sampling_rate: int = 1, start_idx: int = 0, end_idx: int = sys.maxsize,
                 preserve_allocation_order: bool = False) -> None:
        self.history = history
        self.profile = profile
        self.sampling_rate = sampling_rate
        self.start_idx = start_idx
        self.end_idx = end_idx
        self.preserve_allocation_order = preserve_allocation_order

    def plot(self, filename: str) -> None:
        """Write the chart; nothing is written if there is nothing to draw."""
        rows = []
        if self.preserve_allocation_order:
            rows = self._band_rows()
        if not rows:
            if self.profile not in _ATTRIBUTES:
                raise ValueError(f'Unsupported profile type: {self.profile}')
            self.plot_values(filename, _ATTRIBUTES[self.profile])
            return
        self._plot_rows(rows, filename)

    def plot_values(self, filename: str, attribute: str) -> None:
        """Draw one of the sums of each entry."""
        rows = []
        for index, usage in self._sampled():
            for group, size in getattr(usage, attribute).items():
                if size > 0:
                    rows.append(self._row(index, size, self._name(group)))
        self._plot_rows(rows, filename)

    def _sampled(self) -> Any:
        if self.sampling_rate < 1:
            raise ValueError('Sampling rate must be a positive integer')
        for index, time in enumerate(sorted(self.history)):
            if index % self.sampling_rate == 0 and self.start_idx <= index <= self.end_idx:
                yield index, self.history[time]

    def _name(self, group: Any) -> str:
        if self.profile != 'custom' and isinstance(group, str):
            return group.replace('Torch-Compiled Region: ', '')
        return group.name if hasattr(group, 'name') else str(group)

    def _row(self, index: int, size: float, name: str) -> Dict[str, Any]:
        return {'event_idx': index / self.sampling_rate, 'sum': round(size / 1024**3, 3), 'cat': name}

    def _band_rows(self) -> List[Dict[str, Any]]:
        """Bands, each named with its position, so that they sort by position."""
        deepest = max((len(usage.stack_snapshot or ()) for usage in self.history.values()), default=0)
        width = len(str(max(deepest - 1, 0)))
        return [self._row(index, size, f'{place:0{width}d}_{name}')
                for index, usage in self._sampled()
                for place, (name, size) in enumerate(usage.stack_snapshot or ()) if size > 0]

    def _plot_rows(self, rows: List[Dict[str, Any]], filename: str) -> None:
        if not rows:
            logging.warning('There is nothing to draw; %s is not written.', filename)
            return
        with open(filename, 'w', encoding='utf-8') as file:
            file.write(_page(rows, f'Event (Sampling Rate = {self.sampling_rate})'))


def _page(rows: List[Dict[str, Any]], title: str) -> str:
    names = sorted({row['cat'] for row in rows})
    places = sorted({row['event_idx'] for row in rows})
    sizes: Dict[Any, float] = {}
    for row in rows:
        sizes[row['cat'], row['event_idx']] = row['sum']
    low = dict.fromkeys(places, 0.0)
    top = max(sum(sizes.get((name, place), 0) for name in names) for place in places) or 1
    across = {place: _WIDTH * (place - places[0]) / ((places[-1] - places[0]) or 1)
              for place in places}
    areas, keys = [], []
    for number, name in enumerate(names):
        high = {place: low[place] + sizes.get((name, place), 0) for place in places}
        edge = [f'{across[p]:.1f},{_HEIGHT * (1 - high[p] / top):.1f}' for p in places]
        edge += [f'{across[p]:.1f},{_HEIGHT * (1 - low[p] / top):.1f}' for p in reversed(places)]
        label = name.split('_', 1)[1] if name[:1].isdigit() and '_' in name else name
        color = _COLORS[number % len(_COLORS)]
        areas.append(f'<polygon fill="{color}" points="{" ".join(edge)}"><title>{escape(label)}'
                     '</title></polygon>')
        if number < 40:
            keys.append(f'<li><span style="color:{color}">&#9632;</span> {escape(name)}</li>')
        low = high
    return ('<!doctype html><meta charset="utf-8"><title>Memory</title><style>body{font-family:'
            'sans-serif}ul{columns:4;list-style:none;padding:0}</style>'
            f'<p>Memory (GiB), {top:.3f} at the top</p><svg viewBox="0 0 {_WIDTH} {_HEIGHT}" '
            f'width="{_WIDTH}">{"".join(areas)}</svg><p>{escape(title)}</p><ul>{"".join(keys)}</ul>\n')
