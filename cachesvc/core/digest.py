"""Digests and the one way JSON is written where bytes matter."""

from __future__ import annotations

import hashlib
import json
import re
from typing import BinaryIO, TypeAlias

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"

DIGEST = re.compile(r"[0-9a-f]{64}")
_CHUNK = 1 << 20
_CANONICAL = json.JSONEncoder(
    sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
)


def canonical_json(value: object) -> bytes:
    """The UTF-8 bytes of `value` with sorted keys, no spaces and no NaN.

    Equal values give equal bytes in every process. Raises ValueError for NaN and infinities.
    """
    return _CANONICAL.encode(value).encode()


def digest_bytes(data: bytes) -> str:
    """SHA-256 of `data`, 64 lower-case hex digits."""
    return hashlib.sha256(data).hexdigest()


def digest_json(value: object) -> str:
    """SHA-256 of the canonical JSON of `value`."""
    return digest_bytes(canonical_json(value))


def digest_stream(source: BinaryIO) -> str:
    """SHA-256 of everything `source` still holds, read in chunks of 1 MiB."""
    state = hashlib.sha256()
    while chunk := source.read(_CHUNK):
        state.update(chunk)
    return state.hexdigest()
