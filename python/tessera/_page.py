"""Pages that notebooks show inline: the text of the HTML file, in a frame of its own."""
import re
from html import escape
from typing import Any, Callable, Optional, Union

from . import _files
from ._errors import ArgumentError, LimitError, UsageError

# A notebook is saved with its outputs. Colab stores at most 20 MB, and editors and reviews of notebooks become slow
# long before, so a page takes this much unless the program sets a limit.
MOST_SHOWN = 4_000_000

Length = Union[None, int, str]
_LENGTH = re.compile(r'\d+(\.\d+)?(px|%|em|rem|vw|vh)', re.ASCII)
# Scripts run, and tables can be saved and stacks copied; without allow-same-origin the page reaches neither the notebook
# nor its kernel.
_ALLOWED = 'sandbox="allow-scripts allow-downloads" allow="clipboard-write"'


def length(name: str, value: Length, default: str) -> str:
    """A width or height in CSS; a number is one of pixels."""
    if value is None:
        return default
    text = f'{value}px' if isinstance(value, int) and not isinstance(value, bool) else value
    if not isinstance(text, str) or not _LENGTH.fullmatch(text):
        raise ArgumentError(f'{name} is a number of pixels or a length such as "80%", not {value!r}')
    return text


def _megabytes(size: float) -> str:
    return f'{size / 1e6:.1f} MB'


def _bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode('utf-8', 'surrogatepass'))


class Page(str):
    """The text of a page, which is one HTML file. A notebook shows it inline, in a frame that cannot reach the notebook;
    a page larger than 4 MB is reduced there."""

    _width, _height, _title = '100%', '640px', 'tessera'
    _smaller: Optional[Callable[[int], str]] = None
    _most: float = MOST_SHOWN

    def __repr__(self) -> str:
        size = _bytes(self)
        more = f'; notebooks show it reduced to {_megabytes(self._most)}' if size > self._most and self._smaller else ''
        return f'<tessera page of {_megabytes(size)}{more}; .view("page.html") writes a file>'

    def __reduce__(self) -> Any:
        return Page, (str(self),), {'_width': self._width, '_height': self._height, '_title': self._title}

    def _repr_html_(self) -> str:
        size = _bytes(self)
        if size <= self._most:
            return self._frame(self)
        advice = '<code>.view("page.html")</code> writes it to a file'
        if not self._smaller:
            return f'<p>This page takes {_megabytes(size)}, too much for a notebook: {advice}.</p>'
        try:
            text = self._smaller(int(self._most))
        except (LimitError, ValueError) as error:  # a ValueError: the snapshot is closed
            return (f'<p>This page takes {_megabytes(size)}, and cannot be reduced to {_megabytes(self._most)}: '
                    f'{escape(str(error))}. {advice}.</p>')
        return (self._frame(text) + f'<p>Reduced from {_megabytes(size)} to {_megabytes(_bytes(text))}: fewer allocations are '
                f'shown individually, the rest aggregated. {advice}, complete; <code>.view(limit="20MB")</code> shows more here.</p>')

    def _frame(self, text: str) -> str:
        # What removes frames, such as an untrusted notebook, leaves the sentence that the frame covers.
        content = text.replace('&', '&amp;').replace('"', '&quot;')
        return (f'<div style="position:relative;width:{self._width};height:{self._height}">'
                '<p style="margin:8px">The page is shown once the notebook is trusted (File &gt; Trust Notebook), or the cell has run again.</p>'
                f'<iframe title="{escape(self._title)}" {_ALLOWED} style="position:absolute;left:0;top:0;width:100%;height:100%;'
                f'box-sizing:border-box;border:1px solid #8884" srcdoc="{content}"></iframe></div>')


def shown(target: Any, write: Callable[[Optional[bytes]], Optional[bytes]], title: str, *, width: Length = None,
          height: Length = None, most: Optional[int] = None, smaller: Optional[Callable[[int], str]] = None,
          inputs: Any = ()) -> Optional[Page]:
    """Write a page to the target, or return it to be shown; `most` is the limit that the program has set, and `smaller`
    makes the page again within a limit."""
    if target is not None and (width, height) != (None, None):
        raise UsageError('a file has no width and height; only a page that is returned has')
    sizes = length('width', width, Page._width), length('height', height, Page._height)
    text = _files.written(target, write, inputs=inputs, is_text=True)
    if text is None:
        return None
    page = Page(text)
    page._width, page._height = sizes
    page._title, page._smaller = f'tessera: {title}', smaller
    page._most = float('inf') if most is not None else MOST_SHOWN
    return page
