"""What drivers read from and write to: streams that know how many bytes must pass."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import BinaryIO

from cachesvc.core.errors import IntegrityError, StoreError

CHUNK = 1 << 20
"""How many bytes a driver moves at once where nothing else decides it."""


class Source:
    """The `size` bytes that are to be stored; they can be read again, from the first."""

    def __init__(self, stream: BinaryIO, size: int, what: str) -> None:
        self.size = size
        self._stream = stream
        self._what = what

    def chunks(self, most: int = CHUNK) -> Iterator[bytes]:
        """All bytes in order, in chunks of `most` bytes; the last may be shorter.

        Raises StoreError if the stream cannot be read or does not hold exactly `size` bytes.
        """
        self._seek()
        left = self.size
        while left and (chunk := self._read(min(most, left))):
            left -= len(chunk)
            yield chunk
        if left or self._read(1):
            raise StoreError(
                f"{self._what}: the source changed size while it was being stored; store it again"
            )

    def whole(self) -> bytes:
        """All bytes at once, for objects that are known to be small."""
        return b"".join(self.chunks(self.size))

    def _seek(self) -> None:
        try:
            self._stream.seek(0)
        except OSError as error:
            raise self._unreadable(error) from error

    def _read(self, most: int) -> bytes:
        try:
            return self._stream.read(most)
        except OSError as error:
            raise self._unreadable(error) from error

    def _unreadable(self, error: OSError) -> StoreError:
        return StoreError(f"{self._what}: the source cannot be read: {error.strerror or error}")


class Target:
    """Where an object's bytes go: never more than `limit`, and exactly as many as were announced.

    An OSError of the stream itself is the caller's and passes through untouched.
    """

    def __init__(self, stream: BinaryIO, limit: int, what: str) -> None:
        self._stream = stream
        self._start = stream.tell() if stream.seekable() else None
        self._limit = limit
        self._what = what
        self._written = 0

    def receive(self, size: int, chunks: Iterable[bytes]) -> int:
        """Writes the chunks of an object that the store says has `size` bytes; returns `size`.

        Raises IntegrityError before a byte is taken if that is more than allowed, and StoreError
        if another number of bytes comes.
        """
        if size > self._limit:
            raise IntegrityError(
                f"{self._what} has {size} bytes, more than the {self._limit} allowed; "
                "delete it if nobody needs it"
            )
        for chunk in chunks:
            if self._written + len(chunk) > size:
                raise StoreError(f"{self._what}: more than its {size} bytes came; fetch it again")
            self._stream.write(chunk)
            self._written += len(chunk)
        if self._written != size:
            raise StoreError(f"{self._what}: {self._written} of {size} bytes came; fetch it again")
        return size

    def restart(self) -> bool:
        """Takes back what was written; False if it was written to a stream that cannot seek."""
        if not self._written:
            return True
        if self._start is None:
            return False
        self._stream.seek(self._start)
        self._stream.truncate()
        self._written = 0
        return True
