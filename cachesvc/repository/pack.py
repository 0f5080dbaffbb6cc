"""Packs: the bytes of a segment's entries as one `.tar.zst`.

Written with long-distance matching over a window of 128 MiB (`window_log` 27, the most that
`zstd -d` and `tar --zstd` decode without a flag): the mega-cache, the FX entries and the Triton
tree hold the same binaries several times over, and only a long window sees it.
"""

from __future__ import annotations

import hashlib
import tarfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, cast

import zstandard

from cachesvc.core.errors import IntegrityError, TccacheError
from cachesvc.core.manifest import Entry, Pack

WINDOW_LOG = 27
_LEVEL = 3
_CHUNK = 1 << 20
_MODE = 0o600


@dataclass(frozen=True, slots=True)
class Source:
    """A file to be packed: its entry path, its size in bytes, and how to open it."""

    path: str
    size: int
    open: Callable[[], BinaryIO]


class _Tally:
    """A stream that counts and hashes what passes through it."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._state = hashlib.sha256()
        self.size = 0

    @property
    def sha256(self) -> str:
        return self._state.hexdigest()

    def _note(self, data: bytes) -> bytes:
        self._state.update(data)
        self.size += len(data)
        return data

    def read(self, size: int = -1) -> bytes:
        return self._note(self._stream.read(size))

    def write(self, data: bytes) -> int:
        self._note(data)
        return self._stream.write(data)


def write_pack(sources: Iterable[Source], target: Path) -> tuple[Pack, dict[str, Entry]]:
    """Packs the sources into the file `target`; the pack's facts and the entry of each path.

    Holds one chunk of one file beside the encoder's 145 MB. Raises TccacheError if a file is not
    of the size that was said, because something still writes to it.
    """
    parameters = zstandard.ZstdCompressionParameters.from_level(
        _LEVEL, window_log=WINDOW_LOG, enable_ldm=True, write_checksum=True
    )
    entries: dict[str, Entry] = {}
    with open(target, "wb") as file:
        packed = _Tally(file)
        encoder = zstandard.ZstdCompressor(compression_params=parameters)
        with encoder.stream_writer(cast(BinaryIO, packed), closefd=False) as stream:
            unpacked = _Tally(cast(BinaryIO, stream))
            with tarfile.open(
                fileobj=cast(BinaryIO, unpacked), mode="w|", format=tarfile.PAX_FORMAT
            ) as tar:
                for source in sorted(sources, key=_likeness):
                    entries[source.path] = _add(tar, source)
    return Pack(packed.size, packed.sha256, unpacked.size), entries


def _likeness(source: Source) -> tuple[str, str, str]:
    """Similar files lie next to each other: by kind, then by name, then by path."""
    name = source.path.rpartition("/")[2]
    return (name.rpartition(".")[2] if "." in name else "", name, source.path)


def _add(tar: tarfile.TarFile, source: Source) -> Entry:
    header = tarfile.TarInfo(source.path)
    header.size = source.size
    header.mode = _MODE
    with source.open() as file:
        content = _Tally(file)
        try:
            tar.addfile(header, cast(BinaryIO, content))
        except OSError as error:
            if error.errno is not None:
                raise
            raise _changed(source) from None
        if file.read(1):
            raise _changed(source)
    return Entry(source.path, source.size, content.sha256)


class ChangedWhilePacked(TccacheError):
    """A file is not of the size it had when the tree was read; reading the tree again may help."""


def _changed(source: Source) -> ChangedWhilePacked:
    return ChangedWhilePacked(
        f"{source.path} changed while it was packed: something still compiles into this directory;"
        " push again when it is done"
    )


class VerifiedStream:
    """The bytes of one entry; the read that meets their end checks size and digest."""

    def __init__(self, entry: Entry, stream: BinaryIO) -> None:
        self._entry = entry
        self._tally = _Tally(stream)

    def read(self, size: int = -1) -> bytes:
        """Up to `size` bytes; raises IntegrityError at the end if they were not the entry's."""
        data = self._tally.read(size)
        if (not data or size < 0) and not self._is_right():
            raise IntegrityError(f"{self._entry.path} does not have the digest its manifest says")
        return data

    def _is_right(self) -> bool:
        return (self._tally.size, self._tally.sha256) == (self._entry.size, self._entry.sha256)


def read_pack(
    source: BinaryIO, pack: Pack, wanted: Mapping[str, Entry], where: str
) -> Iterator[tuple[Entry, VerifiedStream]]:
    """The wanted entries of a pack, in the pack's order, each to be read before the next.

    The pack's own size and digest must have been checked before. Decoding stops at the unpacked
    size that the manifest says. Raises IntegrityError for anything that is not a pack, a member
    that is no regular file, an entry that comes twice, and wanted entries that never come.
    """
    missing = dict(wanted)
    decoder = zstandard.ZstdDecompressor(max_window_size=1 << WINDOW_LOG)
    try:
        with decoder.stream_reader(source, closefd=False) as stream:
            bounded = cast(BinaryIO, _Bounded(stream, pack.unpacked, where))
            with tarfile.open(fileobj=bounded, mode="r|") as tar:
                for member in tar:
                    entry = missing.pop(member.name, None)
                    if entry is not None:
                        yield entry, VerifiedStream(entry, _content(tar, member, entry, where))
                    elif member.name in wanted or not member.isreg():
                        raise IntegrityError(
                            f"{where} holds {member.name!r:.120} twice or not as a file"
                        )
    except (tarfile.TarError, zstandard.ZstdError, EOFError, UnicodeDecodeError) as error:
        raise IntegrityError(f"{where} is not a pack: {error}") from None
    if missing:
        raise IntegrityError(f"{where} lacks {len(missing)} entries, first {min(missing)}")


def _content(tar: tarfile.TarFile, member: tarfile.TarInfo, entry: Entry, where: str) -> BinaryIO:
    stream = tar.extractfile(member) if member.isreg() and member.size == entry.size else None
    if stream is None:
        raise IntegrityError(f"{where} holds {entry.path} as something else than its entry says")
    return cast(BinaryIO, stream)


class _Bounded:
    """The first `limit` bytes of a stream; more is an error, so a bomb costs no more than said."""

    def __init__(self, stream: BinaryIO, limit: int, where: str) -> None:
        self._stream = stream
        self._left = limit
        self._where = where

    def read(self, size: int) -> bytes:
        data = self._stream.read(min(size, self._left + 1))
        if len(data) > self._left:
            raise IntegrityError(f"{self._where} unpacks to more bytes than its manifest says")
        self._left -= len(data)
        return data


def copy(source: VerifiedStream | BinaryIO, target: BinaryIO) -> None:
    """Copies all of a stream in chunks of 1 MiB."""
    while data := source.read(_CHUNK):
        target.write(data)
