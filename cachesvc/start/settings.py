"""What the caller leaves unsaid, from the environment variables TCCACHE_*."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from cachesvc.core.errors import UsageError
from cachesvc.store.contract import Store
from cachesvc.store.location import check_format, open_store

if TYPE_CHECKING:
    from cachesvc.repository.repository import Repository

DISABLED = "TCCACHE_DISABLE is set: nothing was done"

StoreLike = str | os.PathLike[str] | Store


def is_disabled() -> bool:
    """Whether TCCACHE_DISABLE switches this library off."""
    return os.environ.get("TCCACHE_DISABLE", "") not in ("", "0")


def open_repository(store: StoreLike | None, trust: str | None) -> Repository:
    """The repository in a store, or in the one that TCCACHE_STORE names.

    Raises UsageError without a store, UntrustedError for a remote store without a word of trust,
    IntegrityError for a store of another format, StoreError if it cannot be reached.
    """
    from cachesvc.repository.repository import Repository

    opened = chosen_store(store, trust)
    check_format(opened)
    return Repository(opened)


def chosen_store(store: StoreLike | None, trust: str | None) -> Store:
    """The store, or the one that TCCACHE_STORE names; no request is made yet.

    Raises UsageError without a store, UntrustedError for a remote store without a word of trust.
    """
    place = store if store is not None else os.environ.get("TCCACHE_STORE")
    if not place:
        raise UsageError(
            "no store was given: name one (a directory, s3://BUCKET/PREFIX or another fsspec URL),"
            " or set TCCACHE_STORE"
        )
    return open_store(place, trust=trust)


def directory(path: str | os.PathLike[str]) -> Path:
    """An absolute path, links not followed: it is only a place to read from or write to.

    Raises UsageError for an empty one, as a variable that is not set leaves it.
    """
    if not os.fspath(path):
        raise UsageError("an empty path names no directory or file")
    return Path(path).expanduser().absolute()
