"""The keys that sign what is published, as files."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from typing import Any

from cachesvc.start.given_path import directory


@dataclass(frozen=True, slots=True)
class Key:
    """What a file of keys holds: public keys, 64 hex digits each, or one private key by its public
    half. `public_file` is what readers are given, where it was written along."""

    file: str
    public: tuple[str, ...]
    private: bool
    public_file: str | None = None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def make_key(file: str | os.PathLike[str]) -> Key:
    """Writes a new private key to `file`, for its owner only, and its public half to `file`.pub.

    Raises UsageError if either exists or cannot be written.
    """
    from cachesvc.repository.keys import make_key as make
    from cachesvc.repository.keys import public_path

    path = directory(file)
    made = make(path)
    return Key(str(path), (made.public,), private=True, public_file=str(public_path(path)))


def read_key(file: str | os.PathLike[str]) -> Key:
    """What a file of keys holds. Raises UsageError if it holds none, UntrustedError if others could
    read a private key in it, or exchange a public one."""
    from cachesvc.repository.keys import (
        holds_private_key,
        read_public_keys,
        read_signing_key,
    )

    path = directory(file)
    if holds_private_key(path):
        return Key(str(path), (read_signing_key(path).public,), private=True)
    return Key(str(path), tuple(sorted(read_public_keys(path))), private=False)
