"""What a store is. The public verbs check and translate; a driver is five short hooks.

A key is one or more parts joined by `/`; a part is 1 to 255 of the characters A-Z a-z 0-9 . _ -
and does not start with a dot. Keys are flat: `a` and `a/b` may both exist only where the driver
can hold both, so callers never use one as the prefix of another.
"""

from __future__ import annotations

import io
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import BinaryIO

from cachesvc.core.errors import UsageError
from cachesvc.store.streams import Source, Target

KEY = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,254}(/[A-Za-z0-9_-][A-Za-z0-9._-]{0,254})*")


@dataclass(frozen=True, slots=True)
class Stat:
    """One object: its key, size in bytes, and time of writing by the store's clock (UTC)."""

    key: str
    size: int
    modified: datetime


class Store(ABC):
    """A flat key-value place.

    Every verb raises StoreError when the store is unreachable or failing: the outcome is then
    unknown and calling again is safe. AccessDenied (a StoreError) means that credentials are
    missing or lack a permission; calling again will not help. A missing object is a value, never
    an error. All verbs MUST be safe to call from several threads.
    """

    url: str
    """What a user would write to name this place; holds no credentials."""

    remote: bool
    """Whether other machines or users may write here, so that trust needs a word."""

    def get(self, key: str, *, limit: int) -> bytes | None:
        """The bytes of a small object, or None if there is none.

        Raises IntegrityError if the object is larger than `limit` bytes; no more than `limit`
        bytes are then held in memory.
        """
        target = io.BytesIO()
        if self.fetch(key, target, limit=limit) is None:
            return None
        return target.getvalue()

    def fetch(self, key: str, target: BinaryIO, *, limit: int) -> int | None:
        """Writes an object's bytes to `target`; their number, or None if there is no object.

        A reader MUST see no object or all of one object that was put, never a part or a mixture;
        a connection that breaks half-way MUST raise StoreError. Raises IntegrityError, having
        written at most `limit` bytes, if the object is larger than that. What `target` holds after
        an error is undefined; a fetch that is retried begins again only in a target that can seek.
        """
        return self._fetch(_checked(key), Target(target, limit, self._at(key)))

    def put(self, key: str, data: bytes) -> None:
        """Writes a small object; see `put_file`."""
        self._put(_checked(key), Source(io.BytesIO(data), len(data), self._at(key)))

    def put_file(self, key: str, path: Path) -> None:
        """Writes the file at `path` as an object, all of it or nothing.

        Names are write-once by convention (they hold digests of what they name), so writing a key
        that exists MAY replace it by equal bytes or leave it. Calling it again MUST be harmless.
        After it returns, every reader MUST see the object, by `fetch` and by `list`.
        """
        _checked(key)
        with open(path, "rb") as file:
            self._put(key, Source(file, os.fstat(file.fileno()).st_size, self._at(key)))

    def list(self, prefix: str = "") -> Iterator[Stat]:
        """All objects whose key starts with `prefix`, in order of key.

        `prefix` is empty or ends with a slash. An object that was put before the call MUST be
        listed; one that is put during it may be. Names that are no key are passed over.
        """
        if prefix:
            _checked(prefix.removesuffix("/"))
            if not prefix.endswith("/"):
                raise UsageError(f"the prefix {prefix!r} does not end with a slash")
        return (stat for stat in self._list(prefix) if KEY.fullmatch(stat.key))

    def stat(self, key: str) -> Stat | None:
        """What `list` would say of one object, or None if there is none."""
        return self._stat(_checked(key))

    def delete(self, key: str) -> None:
        """Removes an object; harmless if there is none."""
        self._delete(_checked(key))

    def now(self) -> datetime:
        """The time (UTC) by the clock that says when objects were written.

        Where a store has no clock that can be asked, this host's.
        """
        return self._now()

    def vouch(self, trusted: bool) -> None:  # noqa: B027 - most drivers see nobody
        """Says whether everyone who can write here is trusted, or need not be; before, nobody is.

        Where nobody is, a driver that can see who has written an object MUST refuse what another
        may have, by UntrustedError.
        """

    def check(self) -> None:
        """Returns if the store can be listed; else raises what the first use would raise."""
        next(iter(self._list("")), None)

    def _at(self, key: str) -> str:
        return f"{key} in {self.url}"

    @abstractmethod
    def _fetch(self, key: str, target: Target) -> int | None:
        """Gives the object's size and bytes to `target.receive`, once; None if there is none."""

    @abstractmethod
    def _put(self, key: str, source: Source) -> None: ...

    @abstractmethod
    def _list(self, prefix: str) -> Iterator[Stat]: ...

    @abstractmethod
    def _stat(self, key: str) -> Stat | None: ...

    @abstractmethod
    def _delete(self, key: str) -> None: ...

    def _now(self) -> datetime:
        return datetime.now(timezone.utc)


def _checked(key: str) -> str:
    if not KEY.fullmatch(key):
        raise UsageError(f"{key!r} is not a store key")
    return key
