"""Compression beside the reading of files, decompression beside the writing of them.

One more thread is enough: the codec lets go of the interpreter while it works.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from types import TracebackType
from typing import Any

from cachesvc.core.daemon_pool import DaemonPool

BLOCK = 1 << 20
_MOST_PENDING = 4


class WriteBehind:
    """Passes what is written on to `write`, in order, in blocks of 1 MiB, in a thread.

    Holds at most five blocks. Leaving the context returns when all is written, and raises what
    `write` raised.
    """

    def __init__(self, write: Callable[[bytes], object]) -> None:
        self._write = write
        self._pool = DaemonPool(1, "tccache-pack")
        self._block = bytearray()
        self._pending: deque[Future[object]] = deque()
        self.size = 0

    def write(self, data: bytes) -> int:
        """Takes bytes; raises what writing earlier ones raised."""
        self.size += len(data)
        self._block += data
        if len(self._block) >= BLOCK:
            self._submit()
        while len(self._pending) > _MOST_PENDING:
            self._pending.popleft().result()
        return len(data)

    def __enter__(self) -> WriteBehind:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if kind is None:
                self._submit()
                while self._pending:
                    self._pending.popleft().result()
        finally:
            self._pool.close()

    def _submit(self) -> None:
        self._pending.append(self._pool.submit(self._write, bytes(self._block)))
        self._block = bytearray()


class ReadAhead:
    """The blocks that `read` gives, the next one being read while the last one is used."""

    def __init__(self, read: Callable[[int], Any], size: int) -> None:
        self._read = read
        self._size = size
        self._pool = DaemonPool(1, "tccache-unpack")
        self._next: Future[Any] = self._pool.submit(read, size)

    def block(self) -> bytes:
        """The next block; empty at the end. Raises what `read` raised."""
        data: bytes = self._next.result()
        if data:
            self._next = self._pool.submit(self._read, self._size)
        return data

    def close(self) -> None:
        """Ends the thread; the block that is being read is dropped."""
        self._pool.close()
