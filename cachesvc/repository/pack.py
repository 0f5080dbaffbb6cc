"""Packs: the bytes of a segment's entries as one `.tar.zst`.

Written with long-distance matching over a window of 128 MiB (`window_log` 27, the most that
`zstd -d` and `tar --zstd` decode without a flag): the mega-cache, the FX entries and the Triton
tree hold the same binaries several times over, and only a long window sees it.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Protocol, cast

import zstandard

from cachesvc.core.errors import IntegrityError, TccacheError
from cachesvc.core.manifest import Entry, Pack
from cachesvc.repository.beside import ReadAhead, WriteBehind
from cachesvc.repository.tar import END, Readable, header, padding, read_tar

WINDOW_LOG = 27
_LEVEL = 3
_CHUNK = 1 << 20
_BUFFER = 1 << 18


@dataclass(frozen=True, slots=True)
class Source:
    """A file to be packed: its entry path, its size in bytes, and how to open it."""

    path: str
    size: int
    open: Callable[[], BinaryIO]


class Writable(Protocol):
    """Anything that takes bytes."""

    def write(self, data: bytes, /) -> int: ...


class _Tally:
    """A place to write to that counts and hashes what passes through it."""

    def __init__(self, target: Writable) -> None:
        self._target = target
        self._state = hashlib.sha256()
        self.size = 0

    @property
    def sha256(self) -> str:
        return self._state.hexdigest()

    def write(self, data: bytes) -> int:
        self._state.update(data)
        self.size += len(data)
        return self._target.write(data)


def write_pack(sources: Iterable[Source], target: Path) -> tuple[Pack, dict[str, Entry]]:
    """Packs the sources into the file `target`; the pack's facts and the entry of each path.

    Holds a few chunks of 1 MiB beside the encoder's 145 MB. Raises ChangedWhilePacked if a file
    is gone or not of the size that was said, TccacheError if it cannot be read.
    """
    parameters = zstandard.ZstdCompressionParameters.from_level(
        _LEVEL, window_log=WINDOW_LOG, enable_ldm=True, write_checksum=True
    )
    entries: dict[str, Entry] = {}
    with open(target, "wb") as file:
        packed = _Tally(file)
        encoder = zstandard.ZstdCompressor(compression_params=parameters)
        with (
            encoder.stream_writer(cast(BinaryIO, packed), closefd=False) as stream,
            WriteBehind(stream.write) as tar,
        ):
            for source in sorted(sources, key=_likeness):
                entries[source.path] = _add(tar, source)
            tar.write(END)
    return Pack(packed.size, packed.sha256, tar.size), entries


def _likeness(source: Source) -> tuple[str, str, str]:
    """Similar files lie next to each other: by kind, then by name, then by path."""
    name = source.path.rpartition("/")[2]
    return (name.rpartition(".")[2] if "." in name else "", name, source.path)


def _add(tar: WriteBehind, source: Source) -> Entry:
    state = hashlib.sha256()
    tar.write(header(source.path, source.size))
    for chunk in _chunks(source):
        state.update(chunk)
        tar.write(chunk)
    tar.write(padding(source.size))
    return Entry(source.path, source.size, state.hexdigest())


def _chunks(source: Source) -> Iterator[bytes]:
    """The bytes of a file, just as many as were said."""
    left = source.size
    try:
        with source.open() as file:
            while left and (chunk := file.read(min(left, _CHUNK))):
                left -= len(chunk)
                yield chunk
            if left or file.read(1):
                raise _changed(source)
    except FileNotFoundError:
        raise _changed(source) from None
    except OSError as error:
        raise TccacheError(
            f"cannot read {error.filename or source.path}: {error.strerror}: make it readable for"
            " this user, or take it out of the cache directory"
        ) from error


class ChangedWhilePacked(TccacheError):
    """A file is not as it was when the tree was read; reading the tree again may help."""


def _changed(source: Source) -> ChangedWhilePacked:
    return ChangedWhilePacked(
        f"{source.path} changed while it was packed: something still compiles into this directory;"
        " push again when it is done"
    )


class VerifiedStream:
    """The bytes of one entry; its last byte is given only if all of them are the entry's."""

    def __init__(self, entry: Entry, stream: Readable) -> None:
        self._entry = entry
        self._stream = stream
        self._left = entry.size
        self._state = hashlib.sha256()

    def read(self, size: int = -1) -> bytes:
        """Up to `size` bytes. Raises IntegrityError, giving nothing, if the digest is not right."""
        data = self._stream.read(self._left if size < 0 else size)
        self._state.update(data)
        self._left -= len(data)
        if not self._left and self._state.hexdigest() != self._entry.sha256:
            raise IntegrityError(f"{self._entry.path} does not have the digest its manifest says")
        return data


def read_pack(
    source: BinaryIO, pack: Pack, wanted: Mapping[str, Entry], where: str
) -> Iterator[tuple[Entry, VerifiedStream]]:
    """The wanted entries of a pack, in the pack's order, each to be read before the next.

    The pack's own size and digest must have been checked before. Decoding stops at the unpacked
    size that the manifest says. Raises IntegrityError, here or in a stream's read, for anything
    that is not a pack, a member that is no regular file or has another size than its entry, an
    entry that comes twice, and wanted entries that never come.
    """
    missing = dict(wanted)
    decoder = zstandard.ZstdDecompressor(max_window_size=1 << WINDOW_LOG)
    with (
        decoder.stream_reader(source, closefd=False) as stream,
        io.BufferedReader(_Unpacked(stream, pack.unpacked, where), _BUFFER) as tar,
    ):
        for member in read_tar(tar, where):
            entry = missing.pop(member.path, None)
            if entry is not None and entry.size == member.size:
                yield entry, VerifiedStream(entry, member)
            elif member.path in wanted:
                raise IntegrityError(
                    f"{where} holds {member.path} twice, or with another size than its entry"
                )
    if missing:
        raise IntegrityError(f"{where} lacks {len(missing)} entries, first {min(missing)}")


class _Unpacked(io.RawIOBase):
    """The first `limit` bytes of a decoder; asking for more is an error, so a bomb costs no more
    than was said."""

    def __init__(self, decoder: zstandard.ZstdDecompressionReader, limit: int, where: str) -> None:
        self._blocks = ReadAhead(decoder.read, _BUFFER)
        self._left = limit
        self._where = where
        self._block = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if not self._block:
            self._block = memoryview(self._next())
        size = min(len(self._block), memoryview(buffer).nbytes)
        memoryview(buffer)[:size] = self._block[:size]
        self._block = self._block[size:]
        return size

    def _next(self) -> bytes:
        try:
            data = self._blocks.block()
        except zstandard.ZstdError as error:
            raise IntegrityError(f"{self._where} is not a pack: {error}") from None
        if len(data) > self._left:
            raise IntegrityError(f"{self._where} unpacks to more bytes than its manifest says")
        self._left -= len(data)
        return data

    def close(self) -> None:
        self._blocks.close()
        super().close()


def copy(source: Readable, target: Writable) -> None:
    """Copies all of a stream in chunks of 1 MiB."""
    while data := source.read(_CHUNK):
        target.write(data)
