"""Making written files durable beside the writing of the next ones."""

from __future__ import annotations

import os
from collections import deque
from concurrent.futures import Future
from typing import BinaryIO

from cachesvc.core.daemon_pool import DaemonPool

_BATCH = 16
_THREADS = 8
# Files stay open until they are flushed: 144 at most, where the usual limit is 1,024 for all that
# the program does.
_MOST_PENDING = 8


class Flusher:
    """Flushes files to the disk in the background, a batch at a time, and closes them.

    A disk takes many small flushes at once for little more than the price of one, and most of that
    price is waiting, which decoding the next files fills.
    """

    def __init__(self) -> None:
        self._pool = DaemonPool(_THREADS, "tccache-flush")
        self._batch: list[BinaryIO] = []
        self._pending: deque[tuple[list[BinaryIO], Future[None]]] = deque()

    def add(self, file: BinaryIO) -> None:
        """Takes a file that is written; raises the OSError of an earlier one that could not be
        flushed."""
        self._batch.append(file)
        if len(self._batch) == _BATCH:
            self._submit()
        while len(self._pending) > _MOST_PENDING:
            self._settle()

    def finish(self) -> None:
        """Returns when all files are durable; raises the first OSError that a flush met."""
        self._submit()
        while self._pending:
            self._settle()

    def close(self) -> None:
        """Drops what has not begun, closes every file and ends the threads."""
        self._pool.close()
        for files, _ in self._pending:
            _close(files)
        _close(self._batch)

    def _settle(self) -> None:
        self._pending[0][1].result()
        self._pending.popleft()

    def _submit(self) -> None:
        if self._batch:
            self._pending.append((self._batch, self._pool.submit(_flush, self._batch)))
            self._batch = []


def _flush(files: list[BinaryIO]) -> None:
    for file in files:
        file.flush()
        os.fdatasync(file.fileno())
        file.close()


def _close(files: list[BinaryIO]) -> None:
    """Closes without a word: what is left in these files is not going to be used."""
    for file in files:
        try:
            file.close()
        except OSError:
            continue
