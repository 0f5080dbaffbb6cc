"""Making written files durable beside the writing of the next ones."""

from __future__ import annotations

import os
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

_BATCH = 32
_THREADS = 8


class Flusher:
    """Flushes files to the disk in the background, a batch at a time.

    A disk takes many small flushes at once for little more than the price of one, and most of that
    price is waiting, which decoding the next files fills.
    """

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="tccache-flush")
        self._batch: list[Path] = []
        self._pending: list[Future[None]] = []

    def add(self, file: Path) -> None:
        """Takes a file that is written and closed."""
        self._batch.append(file)
        if len(self._batch) == _BATCH:
            self._submit()

    def finish(self) -> None:
        """Returns when all files are durable; raises the first OSError that a flush met."""
        self._submit()
        for pending in self._pending:
            pending.result()
        self._pending.clear()

    def close(self) -> None:
        """Drops what has not begun and ends the threads."""
        self._pool.shutdown(cancel_futures=True)

    def _submit(self) -> None:
        if self._batch:
            self._pending.append(self._pool.submit(_flush, self._batch))
            self._batch = []


def _flush(files: list[Path]) -> None:
    for file in files:
        handle = os.open(file, os.O_RDONLY)
        try:
            os.fdatasync(handle)
        finally:
            os.close(handle)
