"""MemoryAbstract: the entry point of most programs."""
import json
import logging
from typing import Any, List, Optional

from mosaic.libmosaic.analyzer.memory_snapshot import MemorySnapshot


class MemoryAbstract:
    """A snapshot to be analyzed. Kineto traces, which Mosaic can load in addition, are not read."""

    def __init__(self, memory_snapshot_file: str, gpu_trace_file: Optional[str] = None) -> None:
        if gpu_trace_file is not None:
            raise NotImplementedError('traces of kernels are not read; tessera export --format '
                                      'perfetto puts memory next to them')
        self.memory_snapshot = MemorySnapshot(filename=memory_snapshot_file)
        self.memory_abstract: Any = None
        self.global_rank: Optional[int] = None
        self.op_cache: List[object] = []
        self.rank = 0

    def load_memory_snapshot(self) -> None:
        """Open the file."""
        self.memory_snapshot.load_memory_snapshot()

    def output_memory_abstract(self, output_filename: str) -> None:
        """Write `memory_abstract` as JSON."""
        if self.memory_abstract is None:
            logging.error('Memory abstract is not generated.')
            return
        with open(output_filename, 'w', encoding='utf-8') as file:
            json.dump(self.memory_abstract, file)

    def load_memory_abstract(self, filename: str) -> None:
        """Read `memory_abstract` from JSON text."""
        self.memory_abstract = json.loads(filename)
