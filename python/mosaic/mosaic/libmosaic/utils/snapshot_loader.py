"""Opens snapshots."""
import io
import json
import logging
import os
import pickle
from typing import Any, Dict, Optional

import tessera


# Warnings about files on which Mosaic fails, and whose peak could be higher than what can be read of it.
_INCOMPLETE = {'truncated', 'incomplete', 'damaged'}


class _DataOnly(pickle.Unpickler):
    """This reads only what tessera has written, which is plain data."""

    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f'{module}.{name} is no data')


def _as_mosaic_fails(path: str, why: str) -> Exception:
    """What Python's readers raise for a file that is no pickle, or no JSON, or only the beginning of
    one. Mosaic decides by the file's name."""
    if not path.endswith(('.pickle', '.pkl')):
        return json.JSONDecodeError(why, '', 0)
    return pickle.UnpicklingError(why) if os.path.getsize(path) else EOFError('Ran out of input')


class SnapshotLoader:
    """A snapshot's file. It is opened by tessera; the dict that Mosaic loads, `snapshot_data`, is built
    on access."""

    def __init__(self, filename: Optional[str]) -> None:
        self.snapshot_filename = ''
        self._opened: Optional[tessera.Snapshot] = None
        self._data: Optional[Dict[str, Any]] = None
        if filename is not None:
            self.register_memory_snapshot(filename)

    def register_memory_snapshot(self, filename: str) -> None:
        """Log which file it is."""
        self.snapshot_filename = filename

    def load_memory_snapshot(self, stream_load: bool = False) -> None:
        """Open the file. A pickle is data: nothing in it is executed. A missing file is only logged, as
        in Mosaic; the analyses fail then. A file that is damaged raises what Python's own readers
        raise: tessera could read the beginning of one that is cut off, but a program that checks a
        limit must not pass on a part."""
        path = self.snapshot_filename
        if not os.path.exists(path):
            logging.error('Memory snapshot file %s not found, call register_memory_snapshot() to '
                          'register.', path)
            return
        how = 'stream read' if stream_load else 'io read'
        logging.info(f'Loading snapshot {path} using {how}')
        logging.info(f'Loading snapshot {path}, size {os.path.getsize(path) / 1024**2:.2f}MB ...')
        self._opened = self._data = None
        try:
            opened = tessera.open(path)
        except tessera.FormatError as error:
            raise _as_mosaic_fails(path, str(error)) from error
        for warning in opened.warnings:
            if warning.code in _INCOMPLETE:
                raise _as_mosaic_fails(path, f'{path}: {warning.message}')
        self._opened = opened
        logging.info('Snapshot loaded successfully.')
        for warning in opened.warnings:
            logging.warning(f'{warning.message} ({warning.count} times)')

    @property
    def opened(self) -> Optional[tessera.Snapshot]:
        """The tessera snapshot; None before it is loaded. Not in Mosaic."""
        return self._opened

    @property
    def _file(self) -> tessera.Snapshot:
        """The same, where a file is loaded."""
        assert self._opened is not None
        return self._opened

    @property
    def snapshot_data(self) -> Dict[str, Any]:
        """The object in the file."""
        if self._data is None and self._opened is not None:
            self._data = _DataOnly(io.BytesIO(self._opened.export(format='pickle') or b'')).load()
        return {} if self._data is None else self._data

    @snapshot_data.setter
    def snapshot_data(self, data: Dict[str, Any]) -> None:
        self._data = data
        self._opened = tessera.open(data) if data else None
