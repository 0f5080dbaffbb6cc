"""The tar in a pack: regular files under relative names, nothing else.

Written as POSIX (pax) tar, so that every `tar` lists it. Read by a reader of our own, because
`tarfile` takes whatever it finds: links, devices, sparse files, and headers of any size, which it
holds in memory.
"""

from __future__ import annotations

import tarfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from cachesvc.core.errors import IntegrityError

BLOCK = 512
END = bytes(2 * BLOCK)

_CHUNK = 1 << 20
_MODE = 0o600
_MAX_RECORDS = 1 << 16
_LONG_NAME = b"x"
_ABOUT_ALL = b"g"
_FILE = (tarfile.REGTYPE, tarfile.AREGTYPE)


class Readable(Protocol):
    """Anything that gives up to `size` bytes, and none only at its end."""

    def read(self, size: int, /) -> bytes: ...


def header(path: str, size: int) -> bytes:
    """What comes before a file's bytes; the same for the same arguments, wherever it is made."""
    info = tarfile.TarInfo(path)
    info.size = size
    info.mode = _MODE
    return info.tobuf(tarfile.PAX_FORMAT, "utf-8", "strict")


def padding(size: int) -> bytes:
    """What comes after a file's bytes."""
    return bytes(-size % BLOCK)


@dataclass
class Member:
    """One file of a tar, to be read before the next one is asked for."""

    path: str
    size: int
    left: int
    take: Callable[[int], bytes]

    def read(self, size: int = -1) -> bytes:
        """Up to `size` bytes; none only at the file's end."""
        data = self.take(self.left if size < 0 else min(size, self.left))
        self.left -= len(data)
        return data


def read_tar(stream: Readable, where: str) -> Iterator[Member]:
    """The files of a tar, in its order; bytes of a file that nobody read are passed over.

    Raises IntegrityError for a member that is no regular file, a damaged header, and an early end.
    """
    reader = _Reader(stream, where)
    while (member := reader.next()) is not None:
        yield member
        while member.left:
            member.read(_CHUNK)
        reader.take(-member.size % BLOCK)


class _Header(NamedTuple):
    """The fields of a ustar header block that a pack makes use of."""

    kind: bytes
    name: str
    size: int


def _parse(block: bytes) -> _Header:
    """The header in a block of 512 bytes; ValueError if it is damaged.

    Not by `TarInfo.frombuf`, which reads fifteen fields and takes a tenth of a pull.
    """
    blank = sum(block[:148]) + sum(block[156:]) + 8 * ord(" ")
    if _number(block[148:156]) != blank:
        raise ValueError("checksum")
    name = _text(block[:100])
    prefix = _text(block[345:500]) if block[257:262] == b"ustar" else ""
    return _Header(block[156:157], f"{prefix}/{name}" if prefix else name, _number(block[124:136]))


def _number(field: bytes) -> int:
    """Octal digits, or base 256 behind a first byte of 0x80 (0xff: negative)."""
    if field[0] in (0x80, 0xFF):
        return int.from_bytes(field[1:], "big", signed=field[0] == 0xFF)
    digits = field.strip(b" \0")
    if digits.strip(b"01234567"):
        raise ValueError(digits)
    return int(digits or b"0", 8)


def _text(field: bytes) -> str:
    return field.partition(b"\0")[0].decode()


class _Reader:
    def __init__(self, stream: Readable, where: str) -> None:
        self._stream = stream
        self._where = where

    def take(self, size: int) -> bytes:
        """Just `size` bytes."""
        chunks: list[bytes] = []
        while size and (chunk := self._stream.read(min(size, _CHUNK))):
            chunks.append(chunk)
            size -= len(chunk)
        if size:
            raise self._wrong("ends too early")
        return b"".join(chunks)

    def next(self) -> Member | None:
        """The next member with its bytes still to come; None at the end of the tar."""
        records: dict[str, str] | None = None
        while True:
            block = self.take(BLOCK)
            if not any(block):
                return None
            try:
                info = _parse(block)
            except ValueError:
                raise self._wrong("has a damaged header") from None
            if info.kind not in (_LONG_NAME, _ABOUT_ALL):
                return self._member(info, records or {})
            found = self._records(info.size)
            if info.kind == _LONG_NAME:
                if records is not None:  # which of two counts, readers could differ about
                    raise self._wrong("has two extended headers for one file")
                records = found

    def _member(self, info: _Header, records: dict[str, str]) -> Member:
        path = records.get("path", info.name)
        sparse = any(name.startswith("GNU.sparse") for name in records)
        # In old tars a folder is a file with a slash at its end.
        if info.kind not in _FILE or sparse or path.endswith("/"):
            raise self._wrong(f"holds {path.rstrip('/')!r:.120}, which is no plain file")
        size = records.get("size", str(info.size))
        if not (size.isascii() and size.isdigit() and len(size) < 20):
            raise self._wrong(f"holds {path!r:.120} with the size {size!r:.40}")
        return Member(path, int(size), int(size), self.take)

    def _records(self, size: int) -> dict[str, str]:
        """The `length name=value` lines of an extended header."""
        if not 0 <= size <= _MAX_RECORDS:
            raise self._wrong("has an extended header of unlikely size")
        data = self.take(size)
        self.take(-size % BLOCK)
        records: dict[str, str] = {}
        try:
            while data:
                length = int(data[: data.index(b" ")])
                name, equals, value = data[:length].partition(b" ")[2].partition(b"=")
                if not 0 < length <= len(data) or not equals or not value.endswith(b"\n"):
                    raise ValueError(length)
                records[name.decode()] = value[:-1].decode()
                data = data[length:]
        except ValueError:
            raise self._wrong("has a damaged extended header") from None
        return records

    def _wrong(self, what: str) -> IntegrityError:
        return IntegrityError(f"{self._where} is not a pack: its tar {what}")
