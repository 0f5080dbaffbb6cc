"""Mega-cache files, taken apart into artifacts and put together again, without torch.

The format is the one that `torch.compiler.save_cache_artifacts` of torch 2.7 and newer writes
(`torch/utils/_appending_byte_serializer.py`, encoding version 1), all numbers big-endian:

    crc32 (4 bytes, over the rest), version (8 bytes), then until the end:
    type (text), number of artifacts (8 bytes), for each: key (text), content (bytes)

where bytes are a length (8 bytes) and that many bytes, and text is bytes holding Base64.
One type may come several times: torch appends at each save.

As an entry, one artifact is a line of JSON {"type", "key"} and its content. The unit is the key,
and the entry is named after the content, because one key may have several: an FX graph and an
AOTAutograd entry for each set of guards.
"""

from __future__ import annotations

import base64
import binascii
import re
import zlib
from collections.abc import Iterable
from contextlib import suppress
from typing import NamedTuple

from cachesvc.core.digest import canonical_json, digest_bytes
from cachesvc.core.errors import IntegrityError
from cachesvc.core.fields import load_object

_VERSION = 1
_MAGIC = b"tccache-artifact/1 "
_GUARDED = frozenset({"inductor", "aot_autograd"})
_PLAIN = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_-]{0,127}")


class Artifact(NamedTuple):
    """One thing that the compiler's caches hold: its type, its key, its bytes."""

    type: str
    key: str
    content: bytes

    @property
    def path(self) -> str:
        """The entry path of this artifact; types and keys of any text give a valid one."""
        name = digest_bytes(self.content)[:32]
        return f"megacache/{_path_part(self.type)}/{_path_part(self.key)}/{name}"

    def to_bytes(self) -> bytes:
        header = canonical_json({"type": self.type, "key": self.key})
        return _MAGIC + header + b"\n" + self.content

    @classmethod
    def from_bytes(cls, data: bytes, where: str) -> Artifact:
        """The artifact in an entry's bytes; IntegrityError if they are something else."""
        end = data.find(b"\n")
        if data.startswith(_MAGIC) and end > 0:
            with suppress(IntegrityError):
                fields = load_object(data[len(_MAGIC) : end], where)
                kind, key = fields.get("type"), fields.get("key")
                if isinstance(kind, str) and isinstance(key, str):
                    return cls(kind, key, data[end + 1 :])
        raise IntegrityError(f"{where} is not a mega-cache artifact")


def _path_part(text: str) -> str:
    """The text itself where it can be part of a path, else a digest of it behind a tilde."""
    return text if _PLAIN.fullmatch(text) else f"~{digest_bytes(text.encode())}"


def take_apart(data: bytes, where: str) -> tuple[Artifact, ...]:
    """The artifacts of a mega-cache file as they stand after torch has loaded them all, in order.

    Under one key of a type with guards torch keeps every content. Of the others (tuning results
    are recorded again as they get better) it keeps the last one.
    Raises IntegrityError for anything that is not one whole file of the known version.
    """
    reader = _Reader(data, where)
    artifacts: dict[tuple[str, ...], Artifact] = {}
    while not reader.at_end:
        kind = reader.text()
        for _ in range(reader.number()):
            artifact = Artifact(kind, reader.text(), reader.bytes())
            slot = artifact.path if kind in _GUARDED else ""
            artifacts[kind, artifact.key, slot] = artifact
    return tuple(artifacts.values())


def put_together(artifacts: Iterable[Artifact]) -> bytes:
    """The mega-cache file that holds these artifacts, one group for each type.

    torch reads the groups into a dictionary by type, so a type in two groups would lose one.
    """
    by_type: dict[str, list[Artifact]] = {}
    for artifact in artifacts:
        by_type.setdefault(artifact.type, []).append(artifact)
    body = bytearray(_VERSION.to_bytes(8, "big"))
    for kind, group in by_type.items():
        body += _text(kind) + len(group).to_bytes(8, "big")
        for artifact in group:
            body += _text(artifact.key) + _bytes(artifact.content)
    return zlib.crc32(body).to_bytes(4, "big") + bytes(body)


def _bytes(data: bytes) -> bytes:
    return len(data).to_bytes(8, "big") + data


def _text(text: str) -> bytes:
    return _bytes(base64.b64encode(text.encode()))


class _Reader:
    def __init__(self, data: bytes, where: str) -> None:
        self._data = memoryview(data)
        self._where = where
        self._at = 4
        if len(data) < 12 or zlib.crc32(self._data[4:]).to_bytes(4, "big") != data[:4]:
            raise IntegrityError(f"{where} is not a mega-cache file, or not a whole one")
        if (version := self.number()) != _VERSION:
            raise IntegrityError(
                f"{where} is a mega-cache file of version {version}; this version of tccache"
                f" reads version {_VERSION}"
            )

    @property
    def at_end(self) -> bool:
        return self._at == len(self._data)

    def _take(self, size: int) -> memoryview:
        if size > len(self._data) - self._at:
            raise IntegrityError(f"{self._where} is cut short: a length points past its end")
        self._at += size
        return self._data[self._at - size : self._at]

    def number(self) -> int:
        return int.from_bytes(self._take(8), "big")

    def bytes(self) -> bytes:
        return bytes(self._take(self.number()))

    def text(self) -> str:
        try:
            return base64.b64decode(self.bytes(), validate=True).decode()
        except (binascii.Error, UnicodeDecodeError):
            raise IntegrityError(f"{self._where} holds a name that is not Base64 text") from None
